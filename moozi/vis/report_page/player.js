// The episode, step by step: frame, actions, values, model unroll and search tree.

const { episode } = data;
const numFrames = episode.num_frames;
// Sampled choices differ from step to step; otherwise each column is an action.
const { choices = null } = episode;
const numChoices = choices ? choices.length / numFrames : episode.names.length;
const isBoard = episode.num_players === 2;

/** Returns row t of a flat array with `columns` columns. */
const row = (flat, t, columns) => flat.slice(t * columns, (t + 1) * columns);

/** The frames, in sheets that are decoded on first use. */
class Frames {
  constructor(canvas, { width, height, columns, per_sheet: perSheet, sheets }) {
    Object.assign(this, { canvas, width, height, columns, perSheet, sheets });
    this.images = sheets.map(() => null);
    canvas.width = width;
    canvas.height = height;
    // The scale is an integer; the picture is at most as wide as the column, and about as high.
    canvas.style.width = `${width * Math.max(1, Math.floor(Math.min(294 / width, 320 / height)))}px`;
    this.wanted = 0;
  }

  show(t) {
    this.wanted = t;
    const sheet = Math.floor(t / this.perSheet);
    const image = this.image(sheet);
    if (image.complete) this.paint(t, image);
    if (sheet + 1 < this.sheets.length) this.image(sheet + 1);
  }

  image(sheet) {
    if (!this.images[sheet]) {
      const image = new Image();
      image.onload = () => {
        if (Math.floor(this.wanted / this.perSheet) === sheet) this.paint(this.wanted, image);
      };
      image.src = this.sheets[sheet];
      this.images[sheet] = image;
    }
    return this.images[sheet];
  }

  paint(t, image) {
    const place = t % this.perSheet;
    const [x, y] = [place % this.columns, Math.floor(place / this.columns)];
    const context = this.canvas.getContext("2d");
    context.imageSmoothingEnabled = false;
    const { width, height } = this;
    context.drawImage(image, x * width, y * height, width, height, 0, 0, width, height);
    this.canvas.dataset.step = t;
  }
}

/** Shows the names of the planes beside their colors; hidden if the environment has no named planes. */
function showPlanes() {
  byId("planes").hidden = !episode.planes.length;
  byId("planes").replaceChildren(...episode.planes.map(({ name, color }) => {
    const swatch = element("span", "swatch");
    swatch.style.background = color;
    return element("span", "plane", swatch, name);
  }));
}

const sideOf = (t) => (episode.seat_sign[t] > 0 ? "the agent" : "the opponent");
const playerAt = (t) => `${episode.player_names[episode.to_play[t]]}, ${sideOf(t)}`;
const whose = (t) => (episode.is_agents[t] ? "" : " (opponent)");

function showNow(t) {
  const isEnd = t === numFrames - 1;
  let total = 0;
  for (let i = 1; i <= t; i++) total += episode.rewards[i] * episode.seat_sign[i - 1];
  total = Math.round(total * 1e6) / 1e6; // without the error of a sum of floats
  fillFacts(byId("now"), [
    ["action", isEnd ? "none: the last frame" : episode.names[episode.actions[t]] + whose(t)],
    ["reward on entering", figure(episode.rewards[t], true) + (isBoard && t > 0 ? ` to ${playerAt(t - 1)}` : "")],
    ["rewards so far", figure(total, true) + (isBoard ? " for the agent" : "")],
    ["search value", figure(episode.root_values[t], true)],
    ["network value", figure(episode.prior_values[t], true)],
    ["return from here", figure(episode.returns[t], true)],
    ...(isBoard ? [["values are for", playerAt(t)]] : []),
  ]);
  byId("frame").setAttribute("aria-label", `Frame of step ${t}`);
}

/** Returns a table cell that shows a probability as a bar and a number. */
function barCell(kind, share) {
  const fill = element("span", kind);
  fill.style.width = `${100 * (share ?? 0)}%`;
  return element("td", "", element("span", "bar", fill), share === null ? "–" : share.toFixed(3));
}

const MAX_ACTIONS = 20;
const ENDS = {
  terminal: "the episode has ended", truncated: "the episode was truncated", cut: "the recording stops here",
};

function showActions(t) {
  const fields = ["prior_probs", "action_probs", "root_visits", "network_q", "search_q"];
  const [prior, policy, visits, network, search] = fields.map((name) => row(episode[name], t, numChoices));
  const actions = choices ? row(choices, t, numChoices) : [...prior.keys()];
  const chosen = t === numFrames - 1 ? -1 : actions.indexOf(episode.actions[t]);
  const legal = [...prior.keys()].filter((a) => prior[a] !== null);
  const likelier = (a, b) => (b === chosen) - (a === chosen) || policy[b] - policy[a] || prior[b] - prior[a];
  const shown = legal.length > MAX_ACTIONS ? [...legal].sort(likelier).slice(0, MAX_ACTIONS) : legal;
  const visited = shown.filter((a) => visits[a] > 0);
  const best = visited.reduce((top, a) => (top === null || search[a] > search[top] ? a : top), null);
  byId("actions").tBodies[0].replaceChildren(...shown.map((a) => {
    const line = element(
      "tr", "", element("td", "", episode.names[actions[a]]), barCell("network", prior[a]), barCell("search", policy[a]),
      element("td", "", String(visits[a])), element("td", "", figure(network[a], true)),
      element("td", "search-value", visits[a] > 0 ? figure(search[a], true) : "–"),
    );
    line.classList.toggle("played", a === chosen);
    line.classList.toggle("best-search", a === best);
    return line;
  }));
  const more = legal.length - shown.length;
  byId("actions-note").textContent =
    (legal.length
      ? "● was played. Network Q is the model’s reward plus its discounted value one step ahead."
      : `No action: ${ENDS[episode.end]}.`)
    + (choices && legal.length ? " The actions are those that the search has sampled." : "")
    + (more > 0 ? ` ${more} more legal actions have a lower search probability.` : "");
}

const steps = Array.from({ length: numFrames }, (_, t) => t);
/** Converts values for the player to move to values for the agent's seat. */
const agentValues = (values) => values.map((v, t) => (v === null ? null : v * episode.seat_sign[t]));

const valueChart = new Chart(byId("values"), 200, "Value and return at each step of the episode", () => ({
  series: [
    { kind: "real", x: steps, y: agentValues(episode.returns) },
    { kind: "network", x: steps, y: agentValues(episode.prior_values) },
    { kind: "search", x: steps, y: agentValues(episode.root_values) },
  ],
  left: 0, right: numFrames - 1, ticks: steps.filter((t) => episode.rewards[t] !== 0),
}), (x) => goTo(Math.round(x)));

const K = episode.unroll_steps;
let now = 0;

/** Returns the actual values k steps after step t: null after a cut or truncation, 0 after the end. */
function realAt(t, k) {
  const at = t + k;
  if (at < numFrames) {
    const [reward, search] = [episode.rewards[at], episode.root_values[at]];
    return { reward, search, worth: episode.returns[at], sign: episode.seat_sign[at] };
  }
  const known = episode.end === "terminal" ? 0 : null;
  return { reward: known, search: known, worth: known, sign: null };
}

function imaginedSeries() {
  const ahead = Array.from({ length: K + 1 }, (_, k) => k).filter((k) => now + k < numFrames);
  const values = row(episode.imagined_values, now, K + 1);
  const signed = (of) => ahead.map((k) => of(k) * realAt(now, k).sign);
  return {
    series: [
      { kind: "real", x: ahead, y: signed((k) => realAt(now, k).worth) },
      { kind: "search", x: ahead, y: signed((k) => realAt(now, k).search) },
      { kind: "network", x: ahead, y: signed((k) => values[k]) },
    ],
    left: 0, right: K, dots: true,
  };
}

const imaginedChart = new Chart(byId("imagined-chart"), 170, "Unrolled and real values, steps ahead", imaginedSeries);

function showImagined(t) {
  const rewards = row(episode.imagined_rewards, t, K);
  const values = row(episode.imagined_values, t, K + 1);
  byId("imagined").tBodies[0].replaceChildren(...Array.from({ length: K + 1 }, (_, k) => {
    const real = realAt(t, k);
    const last = numFrames - 1;
    const after = k === 0 ? "now" : t + k - 1 < last ? episode.names[episode.actions[t + k - 1]] : "the end";
    return element("tr", "", ...[
      String(k), after, k === 0 ? "" : figure(rewards[k - 1], true), k === 0 ? "" : figure(real.reward, true),
      figure(values[k], true), figure(real.search, true), figure(real.worth, true),
    ].map((text) => element("td", "", text)));
  }));
  imaginedChart.draw();
}

/** Returns text with the model's mean absolute errors k steps ahead, over the steps of the episode. */
function errorText() {
  const parts = [];
  for (const k of [...new Set([1, K])].filter((k) => k >= 1 && k <= K)) {
    let [reward, value, count] = [0, 0, 0];
    for (let t = 0; t + k < numFrames; t++) {
      reward += Math.abs(episode.imagined_rewards[t * K + k - 1] - episode.rewards[t + k]);
      value += Math.abs(episode.imagined_values[t * (K + 1) + k] - episode.root_values[t + k]);
      count++;
    }
    if (!count) continue;
    parts.push(
      `${figure(reward / count)} in reward and ${figure(value / count)} from the search value `
      + `${k} step${k > 1 ? "s" : ""} ahead`,
    );
  }
  return parts.length ? ` Mean absolute error over the episode: ${parts.join(", ")}.` : "";
}

const frames = new Frames(byId("frame"), episode.frames);
const treeView = new TreeView({
  svg: byId("tree"), title: byId("node-title"), facts: byId("node-facts"), note: byId("tree-note"),
  trees: episode.trees, names: episode.labels ?? episode.names, discount: episode.signed_discount,
  dimensions: episode.dimensions ?? "",
});

function goTo(t) {
  now = Math.min(numFrames - 1, Math.max(0, t));
  const slider = byId("step");
  slider.value = now;
  const text = `step ${now} of ${numFrames - 1}`;
  slider.setAttribute("aria-valuetext", text);
  byId("step-text").textContent = text;
  frames.show(now);
  showNow(now);
  showActions(now);
  showImagined(now);
  valueChart.moveCursor(now);
  treeView.show(now);
}

let timer = null;

function play(isOn) {
  clearInterval(timer);
  timer = null;
  if (isOn) {
    if (now === numFrames - 1) goTo(0);
    timer = setInterval(() => {
      if (now === numFrames - 1) play(false);
      else goTo(now + 1);
    }, 1000 / Number(byId("speed").value));
  }
  byId("play").textContent = isOn ? "Pause" : "Play";
  byId("play").setAttribute("aria-pressed", String(isOn));
}

function listen() {
  const jump = (t) => () => {
    play(false);
    goTo(t());
  };
  byId("first").addEventListener("click", jump(() => 0));
  byId("back").addEventListener("click", jump(() => now - 1));
  byId("next").addEventListener("click", jump(() => now + 1));
  byId("last").addEventListener("click", jump(() => numFrames - 1));
  byId("play").addEventListener("click", () => play(timer === null));
  byId("speed").addEventListener("change", () => timer !== null && play(true));
  byId("step").addEventListener("input", (event) => jump(() => Number(event.target.value))());
  byId("zoom-in").addEventListener("click", () => treeView.zoomBy(1.25));
  byId("zoom-out").addEventListener("click", () => treeView.zoomBy(0.8));
  byId("zoom-fit").addEventListener("click", () => treeView.fit());
  const keys = { ArrowLeft: () => now - 1, ArrowRight: () => now + 1, Home: () => 0, End: () => numFrames - 1 };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    // Elements that use these keys themselves still receive them.
    if (event.target.closest?.("input, select, summary, a, .scroll, pre")) return;
    if (event.key in keys) jump(keys[event.key])();
    else if (event.key === " " && !event.target.closest?.("button")) play(timer === null);
    else return;
    event.preventDefault();
  });
}

function startEpisode() {
  const ends = { terminal: "to its end", truncated: "until it was truncated", cut: "up to the step limit" };
  byId("episode-lead").textContent =
    `Evaluation episode ${episode.index}, played with this checkpoint ${ends[episode.end]}: `
    + `${numFrames - 1} steps, return ${figure(episode.return)}`
    + `${isBoard ? ` for the agent, which is ${episode.player_names[episode.seat]}` : ""}; `
    + `${episode.num_simulations} simulations per step.`;
  byId("values-note").textContent =
    `Discount ${episode.discount}.`
    + (isBoard
      ? " The values in this chart and in the unroll chart are the agent’s; elsewhere they are for the player "
        + "to move, and a reward is for the player who moved."
      : "")
    + (episode.end === "terminal"
      ? ""
      : " Returns use the search value of the last frame for what follows it.");
  byId("imagined-note").textContent = "Rewards and values after a terminal frame are 0."
    + (isBoard ? " Values are the agent’s in the chart, and for the player to move in the table." : "")
    + errorText();
  byId("step").max = numFrames - 1;
  byId("imagined-chart").closest(".card").hidden = K === 0; // AlphaZero has no model
  showPlanes();
  listen();
  valueChart.draw();
  const match = /^#step=(\d+)$/.exec(location.hash);
  goTo(match ? Number(match[1]) : 0);
}

startEpisode();
