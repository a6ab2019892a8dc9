// The page of `moozi play --web`. The server knows the rules; the page shows its state and sends moves.
const $ = (id) => document.getElementById(id);
let state = null;
let from = null; // the chosen first cell of a move from one cell to another
let current = 0; // the cell that has the focus when Tab enters the board
let advice = new Map();
let isBusy = false;
let chosen = []; // the index of the value of each dimension
let waiting = null; // the last request that was made while another was computed

async function ask(path, request) {
  if (isBusy) return null;
  isBusy = true;
  document.body.setAttribute("aria-busy", "true");
  $("error").textContent = "";
  try {
    const options = request === undefined ? {} : {
      method: "POST",
      headers: {"Content-Type": "application/json"},
      body: JSON.stringify(request),
    };
    const response = await fetch(path, options);
    const answer = await response.json();
    if (response.ok) return answer;
    $("error").textContent = answer.error;
  } catch {
    $("error").textContent = "The server does not answer. Is moozi play still running?";
  } finally {
    isBusy = false;
    document.body.removeAttribute("aria-busy");
    if (waiting !== null) {
      const [path, request] = waiting;
      waiting = null;
      setTimeout(() => update(path, request)); // after the answer is shown; a move of an old position is refused
    }
  }
  return null;
}

async function update(path, request) {
  if (isBusy) { // such as while an opinion is computed
    waiting = [path, request];
    $("error").textContent = "This waits until the answer before is there.";
    return;
  }
  $("status").textContent = request === undefined ? "" : "…";
  const answer = (await ask(path, request)) ?? (request === undefined ? null : await refresh());
  if (answer !== null) show(answer);
}

// Asks for the state again after a refused request, and keeps the message.
async function refresh() {
  const message = $("error").textContent;
  const answer = await ask("/state");
  if (answer !== null) $("error").textContent = message;
  return answer;
}

function show(answer) {
  const hadFocus = document.activeElement?.className.startsWith("cell");
  state = answer;
  if (state.error !== null) $("error").textContent = state.error;
  from = null;
  advice = new Map();
  $("advice").hidden = true;
  $("title").textContent = state.env;
  $("players").textContent = state.user === null
    ? "You play all seats."
    : `You are ${state.seats[state.user]}; ${state.opponent} plays ${state.seats.filter((_, i) => i !== state.user).join(", ")}.`;
  $("status").textContent = state.status;
  $("seat-label").hidden = state.user === null;
  $("seat").replaceChildren(...state.seats.map((name, i) => new Option(name, i, i === state.user, i === state.user)));
  $("opinion").hidden = state.advisor === null;
  $("opinion").disabled = state.is_over;
  $("moves").replaceChildren(...state.moves.map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
  $("moves").scrollTop = $("moves").scrollHeight;
  const hasBoard = state.picture !== undefined;
  $("board").hidden = !hasBoard;
  $("text").hidden = hasBoard || state.text === "";
  $("text").textContent = state.text;
  if (hasBoard) {
    $("picture").src = state.picture;
    $("picture").alt = state.text;
  }
  draw();
  if (hadFocus) cellAt(current)?.focus();
}

function draw() {
  const hasBoard = state.picture !== undefined;
  const isMove = state.mode === "from_to" && state.actions.some((x) => x.cells.length);
  const listed = state.actions.filter((x) => !hasBoard || x.cells.length === 0 || isMove);
  $("hint").textContent = state.is_over ? "" : !hasBoard ? "" : isMove
    ? "Choose a piece, then its new cell; Escape cancels the choice."
    : "Choose a cell; the arrow keys move between cells.";
  // With moves from cell to cell, the list has only the moves of the chosen piece and moves without cells.
  const shown = isMove ? listed.filter((x) => x.cells.length === 0 || x.cells[0] === from) : listed;
  $("actions").replaceChildren(...shown.map((x) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = x.name + label(x.action, " ");
    button.addEventListener("click", () => play(x.action));
    return button;
  }));
  if (state.dimensions.length) drawDimensions();
  $("board").querySelectorAll(".cell").forEach((e) => e.remove());
  if (hasBoard) drawCells(isMove);
}

// A control for each dimension of a joint action, and a button that plays their values.
function drawDimensions() {
  const { dimensions } = state;
  if (chosen.length !== dimensions.length) chosen = dimensions.map((x) => Math.floor(x.values.length / 2));
  const controls = dimensions.map((dimension, i) => {
    const select = document.createElement("select");
    select.append(...dimension.values.map((text, j) => new Option(text, j, j === chosen[i], j === chosen[i])));
    select.addEventListener("change", () => { chosen[i] = Number(select.value); });
    const name = document.createElement("label");
    name.append(dimension.name, " ", select);
    return name;
  });
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Play";
  button.addEventListener("click", () => play(jointAction()));
  $("actions").replaceChildren(...controls, button);
}

// The number of the joint action of the chosen values; the last dimension changes first.
function jointAction() {
  return state.dimensions.reduce((action, x, i) => action * x.values.length + chosen[i], 0);
}

// The name of a joint action, as the server writes it.
function jointName(action) {
  const parts = [];
  let rest = action;
  for (const { name, values } of [...state.dimensions].reverse()) {
    parts.unshift(`${name}=${values[rest % values.length]}`);
    rest = Math.floor(rest / values.length);
  }
  return parts.join(" ");
}

function label(action, before) {
  const found = advice.get(action);
  if (found === undefined) return "";
  const value = found.value === null ? "" : ` ${found.value.toFixed(2)}`;
  return `${before}${Math.round(100 * found.share)}%${value}`;
}

function targetsOf(cell, isMove) {
  if (!isMove) return state.actions.filter((x) => x.cells.includes(cell));
  const at = from === null ? 0 : 1;
  return state.actions.filter((x) => x.cells.length === 2 && x.cells[at] === cell && (at === 0 || x.cells[0] === from));
}

function drawCells(isMove) {
  const [rows, columns] = state.shape;
  const width = state.is_hex ? columns + (rows - 1) / 2 : columns;
  for (let cell = 0; cell < rows * columns; cell += 1) {
    const row = Math.floor(cell / columns);
    const column = cell % columns;
    const targets = targetsOf(cell, isMove);
    const button = document.createElement("button");
    button.type = "button";
    button.className = cell === state.last ? "cell last" : "cell";
    button.dataset.cell = cell;
    button.style.left = `${100 * (column + (state.is_hex ? row / 2 : 0)) / width}%`;
    button.style.top = `${100 * row / rows}%`;
    button.style.width = `${100 / width}%`;
    button.style.height = `${100 / rows}%`;
    const place = `row ${row + 1}, column ${column + 1}`;
    const name = targets.length === 1 ? `${targets[0].name}, ${place}` : place;
    // Cells without a move stay reachable by the arrow keys, so they are not `disabled`.
    button.setAttribute("aria-label", targets.length ? name : `${place}, no move`);
    button.setAttribute("aria-disabled", String(targets.length === 0 && cell !== from));
    if (isMove) button.setAttribute("aria-pressed", String(cell === from));
    button.tabIndex = cell === current ? 0 : -1;
    const isLowest = state.mode !== "columns" || row === rows - 1;
    if (targets.length === 1 && isLowest && advice.has(targets[0].action)) {
      const span = document.createElement("span");
      span.textContent = label(targets[0].action, "");
      button.append(span);
      button.setAttribute("aria-label", `${name}, ${span.textContent}`);
    }
    button.addEventListener("click", () => choose(cell, isMove));
    button.addEventListener("keydown", (event) => walk(event, cell));
    $("board").append(button);
  }
}

function choose(cell, isMove) {
  current = cell;
  const targets = targetsOf(cell, isMove);
  if (isMove && from === null) {
    if (targets.length) from = cell;
    redraw();
  } else if (isMove && !targets.length) {
    from = null;
    if (targetsOf(cell, true).length) from = cell;
    redraw();
  } else if (targets.length) {
    play(targets[0].action);
  }
}

function redraw() {
  draw();
  cellAt(current)?.focus();
}

function cellAt(cell) {
  return $("board").querySelector(`[data-cell="${cell}"]`);
}

function walk(event, cell) {
  const [rows, columns] = state.shape;
  const steps = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]};
  if (event.key === "Escape" && from !== null) {
    from = null;
    redraw();
    return;
  }
  const step = steps[event.key];
  if (step === undefined) return;
  event.preventDefault();
  const row = Math.min(rows - 1, Math.max(0, Math.floor(cell / columns) + step[0]));
  const column = Math.min(columns - 1, Math.max(0, (cell % columns) + step[1]));
  cellAt(current)?.setAttribute("tabindex", "-1");
  current = row * columns + column;
  cellAt(current).tabIndex = 0;
  cellAt(current).focus();
}

function play(action) {
  update("/move", {game: state.game, ply: state.ply, action});
}

async function showOpinion() {
  const answer = await ask("/opinion", {});
  if (answer === null || answer.game !== state.game || answer.ply !== state.ply) return;
  advice = new Map(answer.advice.map((x) => [x.action, x]));
  const names = new Map(state.actions.map((x) => [x.action, x.name]));
  const value = answer.value === null ? "" : `: value ${answer.value.toFixed(3)} for the player to move`;
  $("advice-by").textContent = answer.by + value;
  $("rows").replaceChildren(...answer.advice.map((x) => {
    const row = document.createElement("tr");
    const value = x.value === null ? "–" : x.value.toFixed(3);
    for (const text of [names.get(x.action) ?? jointName(x.action), `${(100 * x.share).toFixed(1)}%`, value]) {
      row.insertCell().textContent = text;
    }
    return row;
  }));
  $("advice").hidden = false;
  draw();
}

$("new").addEventListener("click", () => update("/new", state.user === null ? {} : {seat: Number($("seat").value)}));
$("opinion").addEventListener("click", showOpinion);
update("/state");
