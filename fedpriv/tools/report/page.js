"use strict";
// Values at the cursor, by pointer or by arrow keys; legend buttons; folded parts open in print.

const { frame, charts: numbers } = JSON.parse(document.getElementById("numbers").textContent);
const { left: LEFT, right: RIGHT, top: TOP, bottom: BOTTOM, width: WIDTH, height: HEIGHT } = frame;
const MOST_TOLD = 10, NEAR = 0.03;

const shown = (value) =>
  Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(2)
    : String(Number(value.toPrecision(5)));

const scope = (element) => element.closest("[data-scope]");

const isOff = (plot, key) =>
  [...scope(plot).querySelectorAll("[data-switch]")].some(
    (button) => button.dataset.switch === key && button.getAttribute("aria-pressed") === "false");

function nearest(values, wanted) {
  let best = 0;
  for (let i = 1; i < values.length; i++)
    if (Math.abs(values[i] - wanted) < Math.abs(values[best] - wanted)) best = i;
  return best;
}

/** What stands at x: the nearest point of each curve that is shown and has one near by. */
function pointsAt(plot, wanted) {
  const chart = numbers[plot.id];
  const width = chart.x[1] - chart.x[0];
  const all = chart.curves
    .filter((curve) => !isOff(plot, curve.key))
    .map((curve) => ({ curve, at: nearest(curve.x, wanted) }));
  if (!all.length) return [];
  const distance = ({ curve, at }) => Math.abs(curve.x[at] - wanted);
  const first = all.reduce((a, b) => (distance(b) < distance(a) ? b : a));
  const x = first.curve.x[first.at];
  return all.filter(({ curve, at }) => Math.abs(curve.x[at] - x) <= NEAR * width)
    .sort((a, b) => Math.abs(a.curve.x[a.at] - x) - Math.abs(b.curve.x[b.at] - x));
}

function line(words, style) {
  const row = document.createElement("span");
  if (style) {
    row.className = style;
    row.append(document.createElement("i"));
  }
  row.append(words);
  return row;
}

/** Show the values at x; y (if known) chooses among too many curves. */
function read(plot, wanted, y) {
  const chart = numbers[plot.id];
  const output = plot.querySelector(".reading");
  const cursor = plot.querySelector(".cursor");
  let found = pointsAt(plot, wanted);
  if (!found.length) return leave(plot);
  const x = found[0].curve.x[found[0].at];
  const left_out = found.length - MOST_TOLD;
  if (left_out > 0) {
    const away = ({ curve, at }) => Math.abs(curve.y[at] - (y ?? curve.y[at]));
    found = found.sort((a, b) => away(a) - away(b)).slice(0, MOST_TOLD);
  }
  found.sort((a, b) => b.curve.y[b.at] - a.curve.y[a.at]);
  const share = (x - chart.x[0]) / (chart.x[1] - chart.x[0]);
  const place = LEFT + share * (WIDTH - LEFT - RIGHT);
  cursor.setAttribute("x1", place);
  cursor.setAttribute("x2", place);
  const head = document.createElement("b");
  head.textContent = `${chart.label} ${shown(x)}`;
  const rows = found.map(({ curve, at }) => {
    const own = curve.x[at] === x ? "" : ` (at ${shown(curve.x[at])})`;
    const band = curve.low ? ` (${shown(curve.low[at])} to ${shown(curve.high[at])})` : "";
    return line(`${curve.label}: ${shown(curve.y[at])}${band}${own}`, curve.style.split(" ")[0]);
  });
  output.replaceChildren(head, ...rows);
  if (left_out > 0) output.append(line(`${left_out} more`));
  output.style.left = share > 0.5 ? "" : `${(100 * place) / WIDTH + 2}%`;
  output.style.right = share > 0.5 ? `${100 - (100 * place) / WIDTH + 2}%` : "";
  plot.dataset.at = x;
}

function leave(plot) {
  plot.querySelector(".reading").replaceChildren();
  for (const end of ["x1", "x2"]) plot.querySelector(".cursor").setAttribute(end, -9);
  delete plot.dataset.at;
}

function follow(plot, event) {
  const chart = numbers[plot.id];
  const box = plot.querySelector("svg").getBoundingClientRect();
  const across = ((event.clientX - box.left) / box.width) * WIDTH;
  const down = ((event.clientY - box.top) / box.height) * HEIGHT;
  const x = chart.x[0] + ((across - LEFT) / (WIDTH - LEFT - RIGHT)) * (chart.x[1] - chart.x[0]);
  const y = chart.y[0] + ((HEIGHT - BOTTOM - down) / (HEIGHT - BOTTOM - TOP)) * (chart.y[1] - chart.y[0]);
  read(plot, x, y);
}

/** The next point to the left or right, at most a fiftieth of the picture away from where one is. */
function step(plot, way) {
  const chart = numbers[plot.id];
  const values = [...new Set(chart.curves.filter((c) => !isOff(plot, c.key)).flatMap((c) => c.x))]
    .sort((a, b) => a - b);
  if (!values.length) return;
  if (plot.dataset.at === undefined) return read(plot, way > 0 ? values[0] : values.at(-1));
  const now = nearest(values, Number(plot.dataset.at));
  const jump = Math.max(1, Math.round(values.length / 50));
  read(plot, values[Math.min(values.length - 1, Math.max(0, now + way * jump))]);
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

/** A link to a folded part opens it. */
function openTarget() {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

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
