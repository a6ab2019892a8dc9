// Groups of runs side by side: curves, final scores, probabilities of improvement, and differing settings.

const data = JSON.parse(byId("data").textContent);
const AXES = {
  env_steps: { title: "Return over environment steps", at: (x) => `${Math.round(x).toLocaleString("en")} steps` },
  minutes: { title: "Return over minutes of training", at: (x) => `${figure(x)} minutes` },
};
const NUM_STYLES = 7;
const SLIDER_STEPS = 400;

const seedsOf = (group) => (group.runs.length > 1 ? `${group.runs.length} seeds` : "1 seed, no interval");
const interval = ({ low, high }) => (low === null ? "–" : `[${figure(low)}, ${figure(high)}]`);

/** Formats a number and its interval, if it has one. */
const withInterval = (found) => figure(found.value) + (found.low === null ? "" : ` ${interval(found)}`);

/** Returns the y of a curve at x, interpolated linearly; null outside its range. */
function valueAt(xs, ys, x) {
  if (!ys || !xs.length || x < xs[0] || x > xs[xs.length - 1]) return null;
  const i = Math.max(1, xs.findIndex((other) => other >= x));
  if (xs.length === 1) return ys[0];
  const share = (x - xs[i - 1]) / (xs[i] - xs[i - 1] || 1);
  return ys[i - 1] + share * (ys[i] - ys[i - 1]);
}

/** Returns a table with a caption in a scrolling region; the first cell of each row is a heading. */
function table(task, caption, headings, rows) {
  const head = element("tr", "", ...headings.map((text) => {
    const cell = element("th", "", text);
    cell.scope = "col";
    return cell;
  }));
  const body = rows.map(([first, ...rest]) => {
    const cell = element("th", "", first);
    cell.scope = "row";
    return element("tr", "", cell, ...rest.map((text) => element("td", text.length > 30 ? "many" : "", text)));
  });
  const region = element(
    "div", "scroll",
    element("table", "", element("caption", "", caption), element("thead", "", head), element("tbody", "", ...body)),
  );
  region.tabIndex = 0;
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", `${caption}: ${task.name}`);
  return element("div", "card", region);
}

/** A chart of all visible groups over one axis, with a slider that shows the curves' values. */
class CurveCard {
  constructor(task, axis, isShown) {
    Object.assign(this, { task, axis, isShown });
    const xs = task.groups.flatMap((group) => group.runs.flatMap((run) => run[axis]));
    this.left = Math.min(0, ...xs);
    this.right = Math.max(...xs);
    const place = element("div", "chart");
    const { title } = AXES[axis];
    this.slider = element("input");
    Object.assign(this.slider, { type: "range", min: 0, max: SLIDER_STEPS, value: SLIDER_STEPS });
    this.slider.setAttribute("aria-label", `${title}: position`);
    this.output = element("output", "readout note");
    this.card = element("div", "card", element("h3", "", title), place, this.slider, this.output);
    this.chart = new Chart(place, 260, `${title}: ${task.name}`, () => this.describe(), (x) => {
      this.slider.value = ((x - this.left) / (this.right - this.left || 1)) * SLIDER_STEPS;
      this.read();
    });
    this.slider.addEventListener("input", () => this.read());
  }

  visible() {
    return this.task.groups.map((group, i) => ({ group, style: `g${i % NUM_STYLES}`, i })).filter((x) => this.isShown(x.i));
  }

  describe() {
    const { axis } = this;
    const groups = this.visible();
    return {
      left: this.left,
      right: this.right,
      bands: groups.filter(({ group }) => group.bands[axis].low)
        .map(({ group, style }) => ({ kind: style, ...group.bands[axis] })),
      series: [
        ...groups.flatMap(({ group, style }) => group.runs.map((run) => ({
          kind: `${style} seed`, x: run[axis], y: run.returns, dots: run[axis].length < 2,
        }))),
        ...groups.map(({ group, style }) => ({ kind: style, x: group.bands[axis].x, y: group.bands[axis].center })),
      ],
    };
  }

  /** Draws the chart, and the values at the slider. */
  draw() {
    this.chart.draw();
    this.read();
  }

  read() {
    const x = this.left + (this.slider.value / SLIDER_STEPS) * (this.right - this.left);
    const parts = this.visible().map(({ group }) => {
      const band = group.bands[this.axis];
      const [value, low, high] = ["center", "low", "high"].map((name) => valueAt(band.x, band[name], x));
      return `${group.name} ${value === null ? "–" : withInterval({ value, low, high })}`;
    });
    const at = AXES[this.axis].at(x);
    this.output.textContent = `At ${at}, ${data.center_name}: ${parts.join("; ")}.`;
    this.slider.setAttribute("aria-valuetext", at);
    this.chart.moveCursor(x);
  }
}

function finalsTable(task) {
  return table(
    task,
    `Final scores: the mean of each run’s last ${data.last} evaluations`,
    ["Group", "Seeds", "Finished", "Environment steps", "Mean", "95%", "Interquartile mean", "95%", "By seed"],
    task.groups.map((group) => [
      group.name,
      String(group.runs.length),
      String(group.runs.filter((run) => run.is_finished).length),
      Math.min(...group.runs.map((run) => run.env_steps[run.env_steps.length - 1])).toLocaleString("en"),
      figure(group.finals.mean.value), interval(group.finals.mean),
      figure(group.finals.iqm.value), interval(group.finals.iqm),
      group.runs.map((run) => `${run.seed}: ${figure(run.final)}`).join(", "),
    ]),
  );
}

function addTask(task, index) {
  const id = `task-${index}`;
  const title = element("h2", "", task.name);
  title.id = `${id}-title`;
  const section = element("section", "", title);
  section.id = id;
  section.setAttribute("aria-labelledby", title.id);
  const conditions = Object.entries(task.conditions).map(([key, value]) => `${key}=${JSON.stringify(value)}`);
  section.append(element("p", "note", conditions.join(", ")));
  const boxes = task.groups.map(() => {
    const box = element("input");
    Object.assign(box, { type: "checkbox", checked: true });
    return box;
  });
  const labels = task.groups.map((group, i) => element(
    "label", "", boxes[i], element("span", `key g${i % NUM_STYLES}`), `${group.name}, ${seedsOf(group)}`,
  ));
  const legend = element("legend", "note", "Groups shown");
  section.append(element("fieldset", "groups", legend, ...labels));
  const cards = Object.keys(AXES).map((axis) => new CurveCard(task, axis, (i) => boxes[i].checked));
  section.append(element("div", "pair", ...cards.map((card) => card.card)));
  section.append(element("p", "note", data.note), finalsTable(task));
  if (task.pairs.length) {
    const rows = task.pairs.map((pair) => [
      `${pair.first} over ${pair.second}`, figure(pair.value), pair.low === null ? "one seed: none" : interval(pair),
    ]);
    const caption = "Probability that a run of one group has a higher final score than a run of another";
    section.append(table(task, caption, ["Groups", "Probability", "95%"], rows));
  }
  const settings = Object.entries(task.settings);
  if (settings.length) {
    const rows = settings.map(([key, values]) => [key, ...values]);
    section.append(table(task, "Settings that differ", ["Setting", ...task.groups.map((group) => group.name)], rows));
  }
  byId("tasks").append(section);
  const link = element("a", "", task.name);
  link.href = `#${id}`;
  byId("parts").append(link, " ");
  boxes.forEach((box) => box.addEventListener("change", () => cards.forEach((card) => card.draw())));
  cards.forEach((card) => card.draw());
}

const numRuns = data.tasks.flatMap((task) => task.groups.flatMap((group) => group.runs)).length;
byId("lead").textContent =
  `${numRuns} run${numRuns === 1 ? "" : "s"}. Environments and protocols are kept apart; seeds are the unit of every interval.`
  + (data.left_out.length ? ` Left out, without evaluations: ${data.left_out.join(", ")}.` : "");
data.tasks.forEach(addTask);
