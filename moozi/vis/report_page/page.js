// The parts that every page has: the run, its curves and its settings.

const data = JSON.parse(byId("data").textContent);

/** Lists the points at which the run took over another run's state. */
function showJoints(joints, place) {
  if (!joints.length) return;
  const lines = joints.map(({ x, text }) => {
    const at = x < 0 ? "before this run" : `at ${x.toLocaleString("en")} steps (dashed line)`;
    return element("li", "", `${at}: ${text}`);
  });
  place.append(element("p", "note", "The run continues another run:"), element("ol", "note", ...lines));
}

function start() {
  const { run } = data;
  byId("run-name").textContent = run.name;
  byId("run-lead").textContent =
    `${run.env}, checkpoint ${run.checkpoint}: ${run.env_steps.toLocaleString("en")} environment steps, `
    + `${run.learner_steps.toLocaleString("en")} updates.${run.figures}`;
  if (!data.episode) byId("episode-link").remove();
  byId("config").textContent = data.config;
  showJoints(data.joints, byId("joints"));
  showCurves(data.curves, byId("curve-groups"), data.joints.map((joint) => joint.x).filter((x) => x >= 0));
}

start();
