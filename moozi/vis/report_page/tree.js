// The search tree of one step, with nodes to select and zoom.

const BOX = { width: 150, height: 36, column: 194, row: 50 };

class TreeView {
  /**
   * @param svg, title, facts, note: elements of the page.
   * @param trees: flat arrays of all steps' nodes; those of step t start at `start[t]`.
   * @param names: of the actions. @param discount: the search's signed discount.
   * @param dimensions: those whose values are the names of actions; "" if actions have other names.
   */
  constructor({ svg, title, facts, note, trees, names, discount, dimensions }) {
    Object.assign(this, { svg, title, facts, note, trees, names, discount, dimensions });
    this.step = null;
    this.scale = null; // null: the scale is chosen per tree
    this.view = { x: 0, y: 0 };
    this.nodes = [];
    this.listen();
    new ResizeObserver(() => this.applyView()).observe(svg);
  }

  /** Draws the tree of a step and shows the root's numbers. */
  show(step) {
    this.step = step;
    const { start, total } = this.trees;
    this.from = start[step];
    this.count = start[step + 1] - this.from;
    this.nodes = [];
    this.note.textContent = this.count === 0
      ? "No search: this is the last frame."
      : this.count < total[step]
        ? `The ${this.count} most visited of ${total[step]} nodes; ${total[step] - this.count} are left out.`
        : `${this.count} nodes.`;
    if (this.count && this.dimensions) this.note.textContent += ` Actions are values of: ${this.dimensions}.`;
    if (this.count === 0) {
      this.svg.replaceChildren();
      this.title.textContent = "";
      this.facts.replaceChildren();
      return;
    }
    const depth = [];
    this.children = Array.from({ length: this.count }, () => []);
    for (let i = 0; i < this.count; i++) {
      const parent = this.at("parent", i);
      depth.push(parent < 0 ? 0 : depth[parent] + 1);
      if (parent >= 0) this.children[parent].push(i);
    }
    this.depth = depth;
    for (const below of this.children) below.sort((a, b) => this.at("row", a) - this.at("row", b));
    this.x = depth.map((d) => d * BOX.column);
    this.y = depth.map((_, i) => this.at("row", i) * BOX.row);
    this.size = {
      width: Math.max(...this.x) + BOX.width,
      height: Math.max(...this.y) + BOX.height + 16,
    };
    const edges = [];
    for (let i = 1; i < this.count; i++) edges.push(this.edge(i));
    this.nodes = Array.from({ length: this.count }, (_, i) => this.box(i));
    const hadFocus = this.svg.contains(document.activeElement);
    this.svg.replaceChildren(...edges, ...this.nodes);
    this.select(0, hadFocus);
    this.center();
  }

  at(field, i) {
    return this.trees[field][this.from + i];
  }

  edge(i) {
    const p = this.at("parent", i);
    const [x0, y0] = [this.x[p] + BOX.width, this.y[p] + BOX.height / 2];
    const [x1, y1] = [this.x[i], this.y[i] + BOX.height / 2];
    const bend = (x0 + x1) / 2;
    return shape("path", {
      class: this.at("principal", i) ? "edge principal" : "edge",
      d: `M${x0} ${y0}C${bend} ${y0} ${bend} ${y1} ${x1} ${y1}`,
      "stroke-width": 1 + 5 * this.share(i),
    });
  }

  share(i) {
    return this.at("visits", i) / Math.max(1, this.at("visits", 0));
  }

  nodeName(i) {
    if (i === 0) return "root";
    const edge = this.at("action", i);
    return this.at("chance", this.at("parent", i)) ? `code ${edge}` : this.names[edge];
  }

  /** Returns the action value Q of the move into a node, for the player who made the move. */
  qValue(i) {
    if (this.at("chance", i)) return this.at("value", i); // the outcome is not drawn yet
    return this.at("reward", i) + this.discount * this.at("value", i);
  }

  box(i) {
    const worth = i === 0 ? `V ${figure(this.at("value", 0), true)}` : `Q ${figure(this.qValue(i), true)}`;
    const leftOut = this.at("left_out", i);
    const isChance = this.at("chance", i);
    const [indent, inset, rx] = isChance ? [14, BOX.height / 2 - 2, BOX.height / 2] : [7, 2, 4];
    const group = shape("g", {
      class: this.at("principal", i) ? "node principal" : "node",
      transform: `translate(${this.x[i]} ${this.y[i]})`,
      role: "treeitem",
      "aria-level": this.depth[i] + 1,
      tabindex: i === 0 ? 0 : -1,
      "data-node": i,
    });
    group.append(
      shape("rect", { class: "box", width: BOX.width, height: BOX.height, rx }),
      shape("rect", {
        class: "visits", x: inset, y: BOX.height - 5, width: (BOX.width - 2 * inset) * this.share(i), height: 3,
      }),
      shape("text", { class: "name", x: indent, y: 10 }, this.nodeName(i).slice(0, 20)),
      shape("text", { x: indent, y: 24 }, `${this.at("visits", i)} visits   ${worth}`),
    );
    if (leftOut) {
      group.append(shape("text", { class: "left-out", x: 7, y: BOX.height + 7 }, `+ ${leftOut} left out`));
    }
    return group;
  }

  /** Marks a node and shows its numbers. */
  select(i, isFocused = false) {
    this.nodes.forEach((node, j) => {
      if (node.getAttribute("aria-selected") === "true") node.setAttribute("aria-selected", "false");
      node.setAttribute("tabindex", i === j ? 0 : -1);
    });
    this.selected = i;
    this.nodes[i].setAttribute("aria-selected", "true");
    // Screen readers announce a selection by the user, not every step of playback.
    this.facts.parentElement.setAttribute("aria-live", isFocused ? "polite" : "off");
    if (isFocused) {
      this.nodes[i].focus({ preventScroll: true });
      this.keepInView(i);
    }
    const isRoot = i === 0;
    this.title.textContent = isRoot ? "Root" : `After ${this.path(i).join(", ")}`;
    const leftOut = this.at("left_out", i);
    fillFacts(this.facts, [
      ["visits", `${this.at("visits", i)} (${(100 * this.share(i)).toFixed(0)}%)`],
      ["mean value V", figure(this.at("value", i), true)],
      ["network value", figure(this.at("raw", i), true)],
      ...(isRoot ? [] : this.at("chance", i) ? [
        ["Q, before the outcome", figure(this.qValue(i), true)],
        ["network probability", figure(this.at("prior", i))],
      ] : [
        ["reward", figure(this.at("reward", i), true)],
        ["Q", figure(this.qValue(i), true)],
        [this.dimensions ? "prior, corrected for sampling" : "network probability", figure(this.at("prior", i))],
      ]),
      ["depth", String(this.depth[i])],
      ...(leftOut ? [["left out below", String(leftOut)]] : []),
    ]);
  }

  path(i) {
    const out = [];
    for (let j = i; j > 0; j = this.at("parent", j)) out.unshift(this.nodeName(j));
    return out;
  }

  listen() {
    let drag = null;
    this.svg.addEventListener("pointerdown", (event) => {
      drag = { x: event.clientX, y: event.clientY, view: { ...this.view }, hasMoved: false };
    });
    this.svg.addEventListener("pointermove", (event) => {
      if (!drag || !(event.buttons & 1)) return;
      const [dx, dy] = [event.clientX - drag.x, event.clientY - drag.y];
      if (!drag.hasMoved && Math.hypot(dx, dy) > 4) {
        drag.hasMoved = true;
        this.svg.setPointerCapture(event.pointerId);
      }
      if (!drag.hasMoved) return;
      this.view = { x: drag.view.x - dx / this.zoom(), y: drag.view.y - dy / this.zoom() };
      this.applyView();
    });
    this.svg.addEventListener("click", (event) => {
      const node = event.target.closest?.("[data-node]");
      if (node && !drag?.hasMoved) this.select(Number(node.dataset.node), true);
      drag = null;
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !this.svg.contains(document.activeElement)) return;
      event.preventDefault();
      const box = this.svg.getBoundingClientRect();
      this.zoomBy(Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    }, { passive: false });
    this.svg.addEventListener("keydown", (event) => this.onKey(event));
  }

  onKey(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const moves = {
      ArrowLeft: () => this.at("parent", this.selected),
      ArrowRight: () => this.children[this.selected][0] ?? -1,
      ArrowUp: () => this.neighbor(-1),
      ArrowDown: () => this.neighbor(1),
      Home: () => 0,
      Enter: () => this.selected,
      " ": () => this.selected,
    };
    const zooms = { "+": 1.25, "=": 1.25, "-": 0.8 };
    if (event.key in moves) {
      const to = moves[event.key]();
      if (to >= 0) this.select(to, true);
    } else if (event.key in zooms) {
      this.zoomBy(zooms[event.key]);
    } else if (event.key === "0") {
      this.fit();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }

  /** Returns the next node of the same depth, above or below. */
  neighbor(direction) {
    const level = this.depth[this.selected];
    const nodes = [];
    for (let i = 0; i < this.count; i++) if (this.depth[i] === level) nodes.push(i);
    nodes.sort((a, b) => this.at("row", a) - this.at("row", b));
    return nodes[nodes.indexOf(this.selected) + direction] ?? -1;
  }

  /** Returns the number of screen pixels per picture pixel. */
  zoom() {
    if (this.scale !== null) return this.scale;
    return Math.min(1, Math.max(0.55, this.fittingScale()));
  }

  fittingScale() {
    const { clientWidth, clientHeight } = this.svg;
    return Math.min(clientWidth / (this.size.width + 24), clientHeight / (this.size.height + 24));
  }

  /** Shows the whole tree if it fits at a readable size, else its left part, centered on the root. */
  center() {
    const zoom = this.zoom();
    const { clientWidth, clientHeight } = this.svg;
    const hasRoom = zoom <= this.fittingScale() + 1e-6;
    const middle = hasRoom ? this.size.height / 2 : this.y[0] + BOX.height / 2;
    this.view = {
      x: hasRoom ? (this.size.width - clientWidth / zoom) / 2 : -12 / zoom,
      y: middle - clientHeight / zoom / 2,
    };
    this.applyView();
  }

  fit() {
    if (!this.count) return;
    this.scale = this.fittingScale();
    this.center();
  }

  zoomBy(factor, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    if (!this.count) return;
    const before = this.zoom();
    const after = Math.min(3, Math.max(0.05, before * factor));
    this.view.x += x / before - x / after;
    this.view.y += y / before - y / after;
    this.scale = after;
    this.applyView();
  }

  keepInView(i) {
    const zoom = this.zoom();
    const [width, height] = [this.svg.clientWidth / zoom, this.svg.clientHeight / zoom];
    this.view.x = Math.max(this.x[i] + BOX.width + 10 - width, Math.min(this.view.x, this.x[i] - 10));
    this.view.y = Math.max(this.y[i] + BOX.height + 20 - height, Math.min(this.view.y, this.y[i] - 10));
    this.applyView();
  }

  applyView() {
    if (!this.count) return;
    const zoom = this.zoom();
    const [width, height] = [this.svg.clientWidth / zoom, this.svg.clientHeight / zoom];
    if (width > 0) this.svg.setAttribute("viewBox", `${this.view.x} ${this.view.y} ${width} ${height}`);
  }
}
