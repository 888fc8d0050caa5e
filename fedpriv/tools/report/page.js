"use strict";
// Script of a report: values at the cursor, by pointer or arrow keys; legend buttons; tables that are sorted and
// filtered; unfolding for print.

const { frame, charts: numbers } = JSON.parse(document.getElementById("numbers").textContent);
const { left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM, width: WIDTH, height: HEIGHT } = frame;
const MOST_SHOWN = 10;  // curves whose values are shown at the cursor
const NEAR = 0.03;  // share of the x axis within which a point belongs to the cursor

/** Write a number with five digits. */
const shown = (value) =>
  Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(5)));

/** The part of the page whose curves one legend switches. */
const scope = (element) => element.closest("[data-scope]");

const isOff = (plot, key) =>
  [...scope(plot).querySelectorAll("[data-switch]")].some(
    (button) => button.dataset.switch === key && button.getAttribute("aria-pressed") === "false");

/** Return the index of the value that is nearest to the target. */
function nearest(values, target) {
  let best = 0;
  for (let i = 1; i < values.length; i++)
    if (Math.abs(values[i] - target) < Math.abs(values[best] - target)) best = i;
  return best;
}

/** Return the points near x, at most one of each visible curve: the curve, and the index of the point. */
function pointsAt(plot, target) {
  const chart = numbers[plot.id];
  const width = chart.x[1] - chart.x[0];
  const all = chart.curves
    .filter((curve) => !isOff(plot, curve.key))
    .map((curve) => ({ curve, at: nearest(curve.x, target) }));
  if (!all.length) return [];
  const distance = ({ curve, at }) => Math.abs(curve.x[at] - target);
  const first = all.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  const x = first.curve.x[first.at];
  return all.filter(({ curve, at }) => Math.abs(curve.x[at] - x) <= NEAR * width)
    .sort((a, b) => Math.abs(a.curve.x[a.at] - x) - Math.abs(b.curve.x[b.at] - x));
}

/** Return a line of the box with values, with a sample of the curve's style. */
function line(text, style) {
  const row = document.createElement("span");
  if (style) {
    row.className = style;
    row.append(document.createElement("i"));
  }
  row.append(text);
  return row;
}

/** Show the values at x. Where too many curves have a point there, those nearest to y (if known) are shown. */
function read(plot, target, y) {
  const chart = numbers[plot.id];
  const output = plot.querySelector(".reading");
  const cursor = plot.querySelector(".cursor");
  let points = pointsAt(plot, target);
  if (!points.length) return leave(plot);
  const x = points[0].curve.x[points[0].at];
  const omitted = points.length - MOST_SHOWN;
  if (omitted > 0) {
    const distance = ({ curve, at }) => Math.abs(curve.y[at] - (y ?? curve.y[at]));
    points = points.sort((a, b) => distance(a) - distance(b)).slice(0, MOST_SHOWN);
  }
  points.sort((a, b) => b.curve.y[b.at] - a.curve.y[a.at]);
  const share = (x - chart.x[0]) / (chart.x[1] - chart.x[0]);
  const pixel = LEFT + share * (WIDTH - LEFT - RIGHT);
  cursor.setAttribute("x1", pixel);
  cursor.setAttribute("x2", pixel);
  const head = document.createElement("b");
  head.textContent = `${chart.label} ${shown(x)}`;
  const rows = points.map(({ curve, at }) => {
    const otherX = curve.x[at] === x ? "" : ` (at ${shown(curve.x[at])})`;
    const band = curve.low ? ` (${shown(curve.low[at])} to ${shown(curve.high[at])})` : "";
    return line(`${curve.label}: ${shown(curve.y[at])}${band}${otherX}`, curve.style.split(" ")[0]);
  });
  output.replaceChildren(head, ...rows);
  if (omitted > 0) output.append(line(`${omitted} more`));
  // The box is on the side of the cursor where the picture has more room.
  output.style.left = share > 0.5 ? "" : `${(100 * pixel) / WIDTH + 2}%`;
  output.style.right = share > 0.5 ? `${100 - (100 * pixel) / WIDTH + 2}%` : "";
  plot.dataset.at = x;
}

/** Hide the cursor and its values. */
function leave(plot) {
  plot.querySelector(".reading").replaceChildren();
  for (const end of ["x1", "x2"]) plot.querySelector(".cursor").setAttribute(end, -9);
  delete plot.dataset.at;
}

/** Show the values at the pointer. */
function follow(plot, event) {
  const chart = numbers[plot.id];
  const box = plot.querySelector("svg").getBoundingClientRect();
  const pixelX = ((event.clientX - box.left) / box.width) * WIDTH;
  const pixelY = ((event.clientY - box.top) / box.height) * HEIGHT;
  const x = chart.x[0] + ((pixelX - LEFT) / (WIDTH - LEFT - RIGHT)) * (chart.x[1] - chart.x[0]);
  const y = chart.y[0] + ((HEIGHT - BOTTOM - pixelY) / (HEIGHT - BOTTOM - TOP)) * (chart.y[1] - chart.y[0]);
  read(plot, x, y);
}

/** Move the cursor to the next point (direction 1: right, -1: left); of many points, by a fiftieth of them. */
function step(plot, direction) {
  const chart = numbers[plot.id];
  const values = [...new Set(chart.curves.filter((c) => !isOff(plot, c.key)).flatMap((c) => c.x))]
    .sort((a, b) => a - b);
  if (!values.length) return;
  if (plot.dataset.at === undefined) return read(plot, direction > 0 ? values[0] : values.at(-1));
  const current = nearest(values, Number(plot.dataset.at));
  const jump = Math.max(1, Math.round(values.length / 50));
  read(plot, values[Math.min(values.length - 1, Math.max(0, current + direction * jump))]);
}

for (const plot of document.querySelectorAll(".plot")) {
  plot.addEventListener("pointermove", (event) => follow(plot, event));
  plot.addEventListener("pointerdown", (event) => follow(plot, event));
  plot.addEventListener("pointerleave", () => leave(plot));
  plot.addEventListener("blur", () => leave(plot));
  plot.addEventListener("keydown", (event) => {
    if (event.key === "ArrowRight") step(plot, 1);
    else if (event.key === "ArrowLeft") step(plot, -1);
    else if (event.key === "Escape") leave(plot);
    else return;
    event.preventDefault();
  });
}

/** Show or hide the curves of a legend button. */
function turn(button, on) {
  button.setAttribute("aria-pressed", String(on));
  for (const curve of scope(button).querySelectorAll("[data-curve]"))
    if (curve.dataset.curve === button.dataset.switch) curve.classList.toggle("off", !on);
}

for (const button of document.querySelectorAll("[data-switch]"))
  button.addEventListener("click", () => turn(button, button.getAttribute("aria-pressed") === "false"));

for (const button of document.querySelectorAll("[data-all]"))
  button.addEventListener("click", () => {
    for (const other of scope(button).querySelectorAll("[data-switch]"))
      turn(other, button.dataset.all === "all");
  });

/** Return the number that a cell begins with; infinite for its word, NaN for other words. */
function valueOf(cell) {
  const text = cell.textContent.trim();
  return text.startsWith("infinite") ? Infinity : parseFloat(text.replaceAll(",", ""));
}

/** Compare two cells as numbers where both have one, else as words; cells without a number come last. */
function compare(a, b, direction) {
  const [x, y] = [valueOf(a), valueOf(b)];
  if (Number.isNaN(x) !== Number.isNaN(y)) return Number.isNaN(x) ? 1 : -1;
  if (!Number.isNaN(x) && x !== y) return direction * (x < y ? -1 : 1);
  return Number.isNaN(x) ? direction * a.textContent.localeCompare(b.textContent, undefined, { numeric: true }) : 0;
}

/** Sort the rows of a table by a column; the same column again: the other way round. */
function sortBy(table, heading) {
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(a.cells[heading.cellIndex], b.cells[heading.cellIndex], down ? -1 : 1));
  table.tBodies[0].append(...rows);
}

const FEWEST_FILTERED = 6;  // rows from which on a table gets a field that filters

for (const table of document.querySelectorAll("table[data-sorts]")) {
  for (const heading of table.tHead.rows[0].cells) {
    const button = document.createElement("button");
    button.className = "sort";
    button.title = "sort by this column";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sortBy(table, heading));
    heading.append(button);
  }
  if (table.tBodies[0].rows.length < FEWEST_FILTERED) continue;
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = "rows with these words";
  field.setAttribute("aria-label", `filter ${table.caption ? table.caption.textContent : "the table"}`);
  field.addEventListener("input", () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of table.tBodies[0].rows)
      row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word));
  });
  table.parentElement.before(field);
}

/** Unfold the part that the page's address points to. */
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

// Print shows every folded part, and folds it again afterwards.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    part.dataset.folded = "";
  }
});
addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-folded]")) {
    part.open = false;
    delete part.dataset.folded;
  }
});
