// The parts that every page has: the run, its curves and its settings.

const data = JSON.parse(byId("data").textContent);

function start() {
  const { run } = data;
  byId("run-name").textContent = run.name;
  byId("run-lead").textContent =
    `${run.env}, checkpoint ${run.checkpoint}: ${run.env_steps.toLocaleString("en")} environment steps, `
    + `${run.learner_steps.toLocaleString("en")} updates.${run.figures}`;
  if (!data.episode) byId("episode-link").remove();
  byId("config").textContent = data.config;
  showCurves(data.curves, byId("curve-groups"));
}

start();
