// Line charts as SVG, and functions shared with the other scripts.

const SVG = "http://www.w3.org/2000/svg";

/** Returns an SVG element with attributes and children. */
function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** Returns an HTML element with a class and children. */
function element(tag, className = "", ...children) {
  const out = document.createElement(tag);
  if (className) out.className = className;
  out.append(...children);
  return out;
}

const byId = (id) => document.getElementById(id);

/** Formats a number with about three digits; null becomes a dash. */
function figure(x, isSigned = false) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (Math.abs(x) < 1e-9) x = 0; // the error of a sum of floats
  const size = Math.abs(x);
  const text = size !== 0 && (size < 0.0005 || size >= 1e6) ? size.toExponential(1)
    : size >= 1000 ? size.toLocaleString("en", { maximumFractionDigits: 0 })
    : size >= 100 ? size.toFixed(1) : size >= 10 ? size.toFixed(2) : size.toFixed(3);
  return (x < 0 ? "−" : isSigned ? "+" : "") + text;
}

/** Fills a definition list with [term, text] pairs. */
function fillFacts(list, pairs) {
  list.replaceChildren(...pairs.flatMap(([term, text]) => [element("dt", "", term), element("dd", "", text)]));
}

/**
 * A chart as wide as its container, redrawn when that is resized.
 *
 * `describe()` returns {series: [{kind, x, y, dots}], bands: [{kind, x, low, high}], limits, left, right, ticks, joints,
 * dots}: x and y are arrays of numbers or null (a gap); kind is a class of the style sheet; a vertical line is at each of
 * the joints. Points beyond `limits` [low, high] are marked at the edge. `onSeek(x)` receives the x under the pointer.
 */
class Chart {
  constructor(place, height, label, describe, onSeek = null) {
    this.place = place;
    this.height = height;
    this.describe = describe;
    this.svg = shape("svg", { role: "img", "aria-label": label, height });
    place.replaceChildren(this.svg);
    this.cursorX = null;
    if (onSeek) {
      const seek = (event) => {
        const box = this.svg.getBoundingClientRect();
        onSeek(this.toX(event.clientX - box.left));
      };
      this.svg.addEventListener("pointerdown", (event) => {
        this.svg.setPointerCapture(event.pointerId);
        seek(event);
      });
      this.svg.addEventListener("pointermove", (event) => {
        if (event.buttons & 1) seek(event);
      });
    }
    this.width = 0;
    new ResizeObserver(() => {
      if (Math.abs(place.clientWidth - this.width) > 1) this.draw();
    }).observe(place);
  }

  toX(pixel) {
    const share = (pixel - this.inner.left) / Math.max(1, this.inner.right - this.inner.left);
    return this.range.left + Math.min(1, Math.max(0, share)) * (this.range.right - this.range.left);
  }

  draw() {
    this.width = this.place.clientWidth;
    if (!this.width) return;
    const data = this.describe();
    const bands = data.bands ?? [];
    const ys = [...data.series.map((s) => s.y), ...bands.flatMap((b) => [b.low, b.high])].flat()
      .filter((y) => y !== null);
    let low = Infinity;
    let high = -Infinity;
    for (const y of ys) {
      if (y < low) low = y;
      if (y > high) high = y;
    }
    if (!ys.length) [low, high] = [0, 1];
    if (data.limits) [low, high] = data.limits;
    if (high - low < 1e-9) {
      const margin = Math.max(1e-3, Math.abs(high) * 0.1);
      [low, high] = [low - margin, high + margin];
    }
    this.range = { left: data.left, right: Math.max(data.right, data.left + 1e-9), low, high };
    const labels = [figure(high), figure(low)];
    const margin = 10 + 6.5 * Math.max(...labels.map((l) => l.length));
    this.inner = { left: margin, right: this.width - 8, top: 8, bottom: this.height - 20 };
    const { left, right, top, bottom } = this.inner;
    this.svg.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    const parts = [
      shape("line", { class: "axis", x1: left, x2: right, y1: bottom, y2: bottom }),
      shape("line", { class: "axis", x1: left, x2: left, y1: top, y2: bottom }),
      shape("text", { x: left - 5, y: top + 4, "text-anchor": "end" }, labels[0]),
      shape("text", { x: left - 5, y: bottom, "text-anchor": "end" }, labels[1]),
      shape("text", { x: left, y: this.height - 5 }, figure0(data.left)),
      shape("text", { x: right, y: this.height - 5, "text-anchor": "end" }, figure0(data.right)),
    ];
    if (low < 0 && high > 0) {
      parts.push(shape("line", { class: "axis", x1: left, x2: right, y1: this.y(0), y2: this.y(0) }));
    }
    for (const x of data.ticks ?? []) {
      parts.push(shape("line", { class: "reward", x1: this.x(x), x2: this.x(x), y1: bottom - 7, y2: bottom }));
    }
    for (const x of data.joints ?? []) {
      if (x < data.left || x > data.right) continue;
      parts.push(shape("line", { class: "joint", x1: this.x(x), x2: this.x(x), y1: top, y2: bottom }));
    }
    for (const { kind, x, low: below, high: above } of bands) {
      const back = this.path({ x: [...x].reverse(), y: [...below].reverse() }).replace("M", "L");
      parts.push(shape("path", { class: `band ${kind}`, d: `${this.path({ x, y: above })}${back}Z` }));
    }
    for (const series of data.series) {
      parts.push(shape("path", { class: series.kind, d: this.path(series) }));
      series.y.forEach((y, i) => {
        if (y !== null && (y < low || y > high)) parts.push(this.outlier(series.kind, series.x[i], y));
      });
      if (data.dots || series.dots) {
        series.x.forEach((x, i) => {
          if (series.y[i] !== null) {
            parts.push(shape("circle", { class: series.kind, cx: this.x(x), cy: this.y(series.y[i]), r: 3 }));
          }
        });
      }
    }
    this.cursor = shape("line", { class: "cursor", y1: top, y2: bottom });
    this.svg.replaceChildren(...parts, this.cursor);
    this.moveCursor(this.cursorX);
  }

  x(value) {
    const { left, right } = this.range;
    return this.inner.left + ((value - left) / (right - left)) * (this.inner.right - this.inner.left);
  }

  /** Returns a triangle at the edge of the chart, for a point that is beyond it. */
  outlier(kind, x, y) {
    const [at, edge, size] = [this.x(x), this.y(y), y > this.range.high ? 6 : -6];
    const d = `M${at - 4} ${edge + size}L${at + 4} ${edge + size}L${at} ${edge}Z`;
    return shape("path", { class: `outlier ${kind}`, d }, shape("title", {}, `${figure(y)} at ${figure0(x)}`));
  }

  /** Returns the y coordinate of a value; a value beyond the axis is placed at the end of the axis. */
  y(value) {
    const { low, high } = this.range;
    value = Math.min(high, Math.max(low, value));
    return this.inner.bottom - ((value - low) / (high - low)) * (this.inner.bottom - this.inner.top);
  }

  path({ x, y }) {
    let out = "";
    let isDown = false;
    for (let i = 0; i < x.length; i++) {
      if (y[i] === null) {
        isDown = false;
        continue;
      }
      out += `${isDown ? "L" : "M"}${this.x(x[i]).toFixed(1)} ${this.y(y[i]).toFixed(1)}`;
      isDown = true;
    }
    return out;
  }

  moveCursor(x) {
    this.cursorX = x;
    if (!this.cursor) return;
    this.cursor.setAttribute("visibility", x === null ? "hidden" : "visible");
    if (x !== null) {
      this.cursor.setAttribute("x1", this.x(x));
      this.cursor.setAttribute("x2", this.x(x));
    }
  }
}

/** Formats the label at the end of an axis: integers with commas, other numbers with three digits. */
function figure0(x) {
  return Number.isInteger(x) ? x.toLocaleString("en") : figure(x);
}

/** Adds a collapsible section for each group of the run's curves; opening it draws its charts. */
function showCurves(curves, place, joints = []) {
  const names = Object.keys(curves);
  const groups = new Map();
  for (const name of names) {
    const group = name.includes("/") ? name.slice(0, name.indexOf("/")) : "other";
    if (!groups.has(group)) groups.set(group, []);
    groups.get(group).push(name);
  }
  const first = names.filter((name) => FIRST_CURVES.includes(name));
  // The group of faults comes last: it has a dozen charts, most of them constantly 0.
  const last = [...groups].sort((a, b) => (a[0] === "faults") - (b[0] === "faults"));
  const folds = [...(first.length ? [["main", first]] : []), ...last];
  if (!folds.length) place.append(element("p", "note", "The run has no metrics."));
  folds.forEach(([group, members], i) => {
    const summary = element("summary", "", `${group} (${members.length})`);
    const charts = element("div", "curves");
    const fold = element("details", "", summary, charts);
    fold.addEventListener("toggle", () => {
      if (fold.open && !charts.childElementCount) members.forEach((name) => addCurve(charts, name, curves[name], joints));
    });
    place.append(fold);
    fold.open = i === 0;
  });
}

const FIRST_CURVES = [
  "test/return_mean", "test/score", "train/return_mean", "train/length_mean", "loss/total", "loss/value",
  "loss/policy", "loss/reward", "search/root_value", "search/policy_entropy", "system/env_steps_per_s",
];

/**
 * The range that shows a curve: of all points, or of 98% of them and half as much beyond each end, if that leaves
 * a few spikes out, which would flatten the rest. Null: all points are in the range.
 */
function robustLimits(ys) {
  if (ys.length < 8) return null;
  const sorted = [...ys].sort((a, b) => a - b);
  const last = sorted.length - 1;
  const [low, high] = [sorted[Math.ceil(0.02 * last)], sorted[Math.floor(0.98 * last)]];
  const margin = (high - low) / 2;
  const limits = [Math.max(sorted[0], low - margin), Math.min(sorted[last], high + margin)];
  const isWhole = limits[0] === sorted[0] && limits[1] === sorted[last];
  return isWhole || margin === 0 ? null : limits;
}

/** Returns text with the number of points above and below the limits, and the farthest of each side. */
function beyondText(ys, limits) {
  if (!limits) return "";
  const side = (beyond, where, farthest) => (beyond.length
    ? `; ${beyond.length} point${beyond.length > 1 ? "s" : ""} ${where} ${figure(farthest(...beyond))}` : "");
  return side(ys.filter((y) => y > limits[1]), "above the axis, up to", Math.max)
    + side(ys.filter((y) => y < limits[0]), "below the axis, down to", Math.min);
}

function addCurve(place, name, { x, y }, joints) {
  const newest = y.length ? y[y.length - 1] : null;
  const limits = robustLimits(y);
  const beyond = beyondText(y, limits);
  const caption = element("figcaption", "", `${name} `, element("span", "", `last ${figure(newest)}${beyond}`));
  const chartPlace = element("div", "chart");
  place.append(element("figure", "", caption, chartPlace));
  const label = `${name} over environment steps, from ${figure(y[0])} to ${figure(newest)}${beyond}`;
  const right = x.length ? x[x.length - 1] : 1;
  const chart = new Chart(chartPlace, 120, label, () => ({
    series: [{ kind: "search", x, y }], limits, left: x.length ? x[0] : 0, right, dots: x.length < 12, joints,
  }));
  chart.draw();
}
