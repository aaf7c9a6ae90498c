// Line charts as SVG. A series is {label, colour, dash, marker, points: [{x, mean, low, high, seeds}]}, accuracies as fractions.

const SIZE = { width: 340, height: 210, left: 34, right: 10, top: 22, bottom: 34 };
const MARKERS = [
  (x, y) => s("circle", { cx: x, cy: y, r: 3.4 }),
  (x, y) => s("rect", { x: x - 3.1, y: y - 3.1, width: 6.2, height: 6.2 }),
  (x, y) => s("path", { d: `M${x} ${y - 4.2}l4 7h-8z` }),
  (x, y) => s("path", { d: `M${x} ${y - 4.4}l4.4 4.4l-4.4 4.4l-4.4 -4.4z` }),
];

function chart({ title, series, xLabel, low, high, chance = null, xText = plain, note = null }) {
  const xs = series.flatMap((one) => one.points.map((point) => point.x)).sort((a, b) => a - b);
  const ticks = steps(0, xs.at(-1), 4);
  const right = Math.max(xs.at(-1), 1e-12);
  const x = (value) => SIZE.left + (value / right) * (SIZE.width - SIZE.left - SIZE.right);
  const y = (value) => SIZE.height - SIZE.bottom - ((value - low) / (high - low)) * (SIZE.height - SIZE.top - SIZE.bottom);
  const svg = s("svg", { viewBox: `0 0 ${SIZE.width} ${SIZE.height}`, role: "img", "aria-label": summary(title, series, xLabel, xText) });
  for (const value of steps(low, high, 4)) {
    svg.append(s("line", { class: "grid", x1: SIZE.left, x2: SIZE.width - SIZE.right, y1: y(value), y2: y(value) }));
    svg.append(s("text", { x: SIZE.left - 6, y: y(value) + 3.5, "text-anchor": "end" }, plain(100 * value)));
  }
  for (const value of ticks) {
    svg.append(s("text", { x: x(value), y: SIZE.height - SIZE.bottom + 14, "text-anchor": "middle" }, xText(value)));
  }
  svg.append(s("text", { x: (SIZE.left + SIZE.width) / 2, y: SIZE.height - 4, "text-anchor": "middle" }, xLabel));
  svg.append(s("text", { x: 2, y: SIZE.top - 8 }, "accuracy (%)"));
  if (chance !== null && chance > low) {
    svg.append(s("line", { class: "chance", x1: SIZE.left, x2: SIZE.width - SIZE.right, y1: y(chance), y2: y(chance) }));
    svg.append(s("text", { x: SIZE.left + 4, y: y(chance) - 4 }, "chance"));
  }
  for (const { points, colour, dash, marker } of series) {
    const path = (name, order = points) => order.map((point) => `${x(point.x).toFixed(1)} ${y(point[name]).toFixed(1)}`).join("L");
    if (points.some((point) => point.high > point.low)) {
      svg.append(s("path", { d: `M${path("high")}L${path("low", [...points].reverse())}Z`, fill: colour, opacity: 0.16 }));
    }
    svg.append(s("path", { d: `M${path("mean")}`, fill: "none", stroke: colour, "stroke-width": 2, "stroke-linejoin": "round", "stroke-dasharray": dash }));
    svg.append(s("g", { class: "marks", fill: colour }, ...points.map((point) => MARKERS[marker](x(point.x), y(point.mean)))));
  }
  const figure = h("figure", { className: "chart", tabIndex: 0, role: "group", "aria-label": title }, h("figcaption", {}, title), svg, note ? h("p", {}, note) : null);
  pointed(figure, svg, series, unique(xs), x, xLabel, xText);
  return figure;
}

/** Values under the pointer, or under a cursor that the arrow keys move. */
function pointed(figure, svg, series, xs, x, xLabel, xText) {
  const cursor = s("line", { class: "cursor", y1: SIZE.top, y2: SIZE.height - SIZE.bottom, visibility: "hidden" });
  const tip = h("div", { className: "tip", hidden: true, role: "status" });
  svg.append(cursor);
  figure.append(tip);
  let place = -1;
  const show = (next) => {
    place = Math.max(0, Math.min(xs.length - 1, next));
    const at = xs[place];
    cursor.setAttribute("x1", x(at));
    cursor.setAttribute("x2", x(at));
    cursor.setAttribute("visibility", "visible");
    const lines = series.map((one) => [one, one.points.find((point) => point.x === at)]).filter(([, point]) => point);
    lines.sort((a, b) => b[1].mean - a[1].mean);
    const spread = (point) => (point.high > point.low ? ` (${percent(point.low)}–${percent(point.high)})` : "");
    tip.replaceChildren(
      h("div", {}, `${xLabel}: ${xText(at)}`),
      ...lines.map(([one, point]) =>
        h("div", {}, coloured(one.colour), h("span", {}, one.label), h("span", {}, `${percent(point.mean)} %${spread(point)}`))),
    );
    tip.hidden = false;
    const box = svg.getBoundingClientRect(), outer = figure.getBoundingClientRect();
    const middle = box.left - outer.left + (x(at) / SIZE.width) * box.width;
    tip.style.left = `${Math.max(4, Math.min(outer.width - tip.offsetWidth - 4, middle - tip.offsetWidth / 2))}px`;
    tip.style.top = `${box.top - outer.top + box.height - tip.offsetHeight - 40}px`;
  };
  const hide = () => { tip.hidden = true; cursor.setAttribute("visibility", "hidden"); place = -1; };
  const follow = (event) => {
    const box = svg.getBoundingClientRect();
    const at = ((event.clientX - box.left) / box.width) * SIZE.width;
    show(xs.reduce((best, value, index) => (Math.abs(x(value) - at) < Math.abs(x(xs[best]) - at) ? index : best), 0));
  };
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  figure.addEventListener("pointerleave", hide);
  figure.addEventListener("blur", hide);
  figure.addEventListener("keydown", (event) => {
    const moves = { ArrowRight: place + 1, ArrowLeft: place < 0 ? xs.length - 1 : place - 1, Home: 0, End: xs.length - 1 };
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    show(moves[event.key]);
  });
}

/** Round numbers from low to high, about `count` steps. */
function steps(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((factor) => factor * power >= rough * 0.999);
  const values = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-6; value += step) values.push(Number(value.toPrecision(12)));
  return values;
}

function summary(title, series, xLabel, xText) {
  const last = (one) => `${one.label} ${percent(one.points.at(-1).mean)} % at ${xText(one.points.at(-1).x)}`;
  return `${title}: accuracy against ${xLabel}. ${series.map(last).join("; ")}.`;
}

function legend(series) {
  return series.map(({ label, colour, dash, marker }) => {
    const line = s("path", { d: "M1 8H27", stroke: colour, "stroke-width": 2, "stroke-dasharray": dash });
    const sample = s("svg", { viewBox: "0 0 28 16", "aria-hidden": "true" }, line, s("g", { fill: colour }, MARKERS[marker](14, 8)));
    return h("span", {}, sample, label);
  });
}
