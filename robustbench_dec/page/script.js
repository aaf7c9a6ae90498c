// The page: state in the address, filters, table, charts, pictures, downloads.

const DATA = JSON.parse(find("#data").textContent);
const ROWS = DATA.rows.map((values, index) => ({
  ...Object.fromEntries(DATA.columns.map((name, place) => [name, values[place]])), ...DATA.added[index], index,
}));
for (const row of ROWS) row.id = `${row.run_id}/${row.cell}`;
const LABELS = Object.keys(DATA.colours);
const DEFAULTS = { view: "means", dataset: "", method: "", attack: "", eps: "", source: "", q: "", sort: "", open: "", axis: "sfo" };
const AXES = { sfo: "SFO calls per node", round: "Communication rounds", megabytes: "Megabytes sent, all nodes together" };
const state = { ...DEFAULTS };

const flagsOf = (row) => row.reliability_flags.split(";").filter(Boolean);
const title = (column, name) => DATA.titles[column][name] ?? name;

// ---- the address ----

function link(wanted) {
  const changed = Object.entries(wanted).filter(([name, value]) => value !== DEFAULTS[name]);
  return new URLSearchParams(changed).toString() || "all=1";
}

function readAddress() {
  const hash = location.hash.slice(1);
  if (!hash.includes("=")) return false;
  const given = new URLSearchParams(hash);
  for (const name of Object.keys(DEFAULTS)) state[name] = given.get(name) ?? DEFAULTS[name];
  if (!(state.axis in AXES)) state.axis = DEFAULTS.axis;
  if (state.view !== "runs") state.view = "means";
  return true;
}

function change(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", `#${link(state)}`);
  draw();
}

// ---- which rows ----

function chosen(item, but = []) {
  const asks = (name) => state[name] && !but.includes(name);
  if (["dataset", "method", "attack"].some((name) => asks(name) && item[name] !== state[name])) return false;
  if (asks("eps") && plain(item.eps) !== state.eps) return false;
  return !asks("source") || (state.source === "ours") === (item.submitter === "");
}

function searched(item) {
  const words = state.q.toLowerCase().replace(/\bseed\s+(\d+)/g, "seed:$1;").split(/\s+/).filter(Boolean);
  const rows = item.rows ? item.rows.map((index) => ROWS[index]) : [item];
  const text = [item.model, item.attack_label, item.submitter, title("dataset", item.dataset), ...(item.flags ?? flagsOf(item)),
    ...rows.flatMap((row) => [row.run_id, row.cell, row.method, row.attack, row.topology, row.architecture, `seed:${row.seed};`, row.checkpoint_sha256, row.git_commit])].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** The chosen groups, and the single rows in them, both in the table's order. */
function visible() {
  const groups = DATA.groups.filter((group) => chosen(group) && searched(group));
  if (state.view === "means") return sorted(groups);
  const rows = DATA.groups.filter((group) => chosen(group)).flatMap((group) => group.rows.map((index) => ROWS[index]));
  return sorted(rows.filter(searched));
}

function sorted(items) {
  const column = COLUMNS.find((one) => one.key === state.sort.replace("-", ""));
  if (!column) return items;
  const sign = state.sort.startsWith("-") ? -1 : 1;
  const order = (a, b) => (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  return [...items].sort((a, b) => sign * order(column.value(a), column.value(b)));
}

// ---- the table ----

const robust = (item) => item.robust ?? item.robust_acc;
const COLUMNS = [
  { key: "dataset", name: "Data set", value: (item) => title("dataset", item.dataset) },
  { key: "model", name: "Model", value: (item) => item.model },
  { key: "attack", name: "Attack", value: (item) => item.attack_label },
  { key: "eps", name: "δ", number: true, value: (item) => item.eps, show: (item) => plain(item.eps) },
  { key: "robust", name: "Robust (%)", number: true, high: true, value: robust, show: accuracy },
  { key: "clean", name: "Clean (%)", number: true, high: true, minor: true, value: (item) => item.clean ?? item.clean_acc, show: (item) => percent(item.clean ?? item.clean_acc) },
  { key: "seeds", name: "Seeds", number: true, minor: true, only: "means", value: (item) => item.seeds },
  { key: "seed", name: "Seed", number: true, only: "runs", value: (item) => item.seed },
  { key: "sfo", name: "SFO calls", number: true, minor: true, value: (item) => item.sfo ?? Math.max(item.sfo_x, item.sfo_y), show: (item) => thousands(item.sfo ?? Math.max(item.sfo_x, item.sfo_y)) },
  { key: "rounds", name: "Rounds", number: true, minor: true, value: (item) => item.rounds ?? item.comm_rounds },
  { key: "megabytes", name: "MB sent", number: true, minor: true, value: (item) => item.megabytes ?? item.bytes_payload / 1e6, show: (item) => thousands(item.megabytes ?? item.bytes_payload / 1e6) },
  { key: "flags", name: "Flags", minor: true, value: (item) => (item.flags ?? flagsOf(item)).length, show: (item) => (item.flags ?? flagsOf(item)).map((flag) => h("span", { className: "flag" }, flag)) },
];
const BEST = bestGroups();

/** Groups whose mean is the highest of their data set, attack and radius, where there is someone to beat. */
function bestGroups() {
  const rivals = Map.groupBy(DATA.groups, (group) => [group.dataset, group.attack_label, group.eps].join("|"));
  return new Set([...rivals.values()].filter((groups) => groups.length > 1).flatMap((groups) => {
    const most = Math.max(...groups.map((group) => group.robust));
    return groups.filter((group) => group.robust > most - 1e-12).map((group) => group.id);
  }));
}

function accuracy(item) {
  const spread = item.rows
    ? item.robust_std === null ? "" : ` ± ${percent(item.robust_std)}`
    : ` [${percent(item.ci_low)}, ${percent(item.ci_high)}]`;
  const cell = h("span", { className: "accuracy" }, h("span", { className: BEST.has(item.id) ? "best" : "" }, percent(robust(item))), h("span", { className: "spread" }, spread));
  cell.style.setProperty("--share", robust(item));
  return cell;
}

function drawTable(items) {
  const columns = COLUMNS.filter((column) => !column.only || column.only === state.view);
  find("#rows thead").replaceChildren(h("tr", {}, columns.map(headCell)));
  const body = items.flatMap((item, place) => tableRow(item, items[place - 1], columns));
  if (!items.length) body.push(h("tr", {}, h("td", { className: "empty", colSpan: columns.length }, "No row has all of this together. Reset brings everything back.")));
  find("#rows tbody").replaceChildren(...body);
  const total = state.view === "means" ? DATA.groups.length : ROWS.length;
  find("#count").textContent = `${items.length} of ${total} ${state.view === "means" ? "means over seeds" : "single runs"}`;
}

const classes = (column) => `col-${column.key} ${column.number ? "number" : ""} ${column.minor ? "minor" : ""}`;

function headCell(column) {
  const [first, second] = column.high ? [`-${column.key}`, column.key] : [column.key, `-${column.key}`];
  const next = { [first]: second, [second]: "" }[state.sort] ?? first;
  const sort = { [column.key]: "ascending", [`-${column.key}`]: "descending" }[state.sort] ?? null;
  const press = () => { change({ sort: next }); find(`#rows th button[data-key="${column.key}"]`).focus(); };
  return h("th", { scope: "col", className: classes(column), "aria-sort": sort },
    h("button", { type: "button", "data-key": column.key, onclick: press }, column.name));
}

function tableRow(item, above, columns) {
  const open = state.open === item.id;
  const apart = !state.sort && above && (above.dataset !== item.dataset || above.attack !== item.attack);
  const toggle = () => { change({ open: open ? "" : item.id }); find(`[data-open="${CSS.escape(item.id)}"]`)?.focus({ preventScroll: true }); };
  const cells = columns.map((column) => {
    const shown = column.show ? column.show(item) : String(column.value(item));
    const inside = column.key === "model" ? opener(item, shown, open, toggle) : shown;
    return h("td", { className: classes(column) }, inside);
  });
  const clicked = (event) => { if (!event.target.closest("button, a") && !String(getSelection())) toggle(); };
  const row = h("tr", { className: `row ${apart ? "first" : ""} ${open ? "open" : ""}`, onclick: clicked }, cells);
  if (!open) return [row];
  const [sentence, rest] = item.rows ? groupDetails(item) : rowDetails(item);
  const head = h("div", { className: "head" }, sentence, h("a", { href: `#${link(state)}` }, "Link to this row"));
  const details = h("div", { className: "details", id: "details", role: "region", "aria-label": `Details of ${item.model}` }, head, ...rest.filter(Boolean));
  return [row, h("tr", { className: "detail" }, h("td", { colSpan: columns.length }, details))];
}

function opener(item, label, open, toggle) {
  const badge = item.submitter ? h("span", { className: "badge", title: `Submitted by ${item.submitter}` }, "submitted") : null;
  return [h("button", { type: "button", className: "open-row", "data-open": item.id, "aria-expanded": String(open), "aria-controls": open ? "details" : null, onclick: toggle },
    coloured(DATA.colours[item.model]), h("span", {}, label, h("span", { className: "where" }, title("dataset", item.dataset)))), badge];
}

// ---- the filters ----

const form = find("form.filters");

function drawFilters() {
  for (const column of ["dataset", "method", "attack"]) options(column, Object.entries(DATA.titles[column]).map(([name, text]) => [name, text]));
  const radii = unique(DATA.groups.filter((group) => chosen(group, ["eps"])).map((group) => group.eps)).sort((a, b) => a - b).map(plain);
  options("eps", unique([...radii, ...(state.eps ? [state.eps] : [])]).map((text) => [text, text]));
  options("source", [["ours", "this repository"], ["users", "submitted by users"]]);
  find("#source").hidden = !state.source && ROWS.every((row) => row.submitter === "");
  for (const radio of findAll("input[name=view]")) radio.checked = radio.value === state.view;
  for (const radio of findAll("input[name=axis]")) radio.checked = radio.value === state.axis;
  if (form.elements.q.value !== state.q) form.elements.q.value = state.q;
}

function options(name, pairs) {
  const known = pairs.some(([value]) => value === state[name]) || !state[name] ? pairs : [...pairs, [state[name], state[name]]];
  const select = form.elements[name];
  select.replaceChildren(h("option", { value: "" }, "All"), ...known.map(([value, text]) => h("option", { value }, text)));
  select.value = state[name];
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const { name, value } = event.target;
  change(name === "view" ? { view: value, open: "", sort: COLUMNS.some((one) => one.only && one.only !== value && state.sort.endsWith(one.key)) ? "" : state.sort } : { [name]: value });
});
find("#reset").addEventListener("click", () => change({ ...DEFAULTS, view: state.view, axis: state.axis }));
find("#axis").addEventListener("input", (event) => change({ axis: event.target.value }));

// ---- the charts ----

const styled = (label) => ({ label, colour: DATA.colours[label], marker: (LABELS.indexOf(label) + Math.floor(LABELS.indexOf(label) / 10)) % MARKERS.length });
const ordered = (series) => series.filter((one) => one.points.length).sort((a, b) => LABELS.indexOf(a.label) - LABELS.indexOf(b.label));

function point(x, values) {
  return { x, mean: mean(values), low: Math.min(...values), high: Math.max(...values), seeds: values.length };
}

function drawRadius() {
  const groups = DATA.groups.filter((group) => chosen(group, ["eps"]));
  const facets = Map.groupBy(groups, (group) => group.dataset);
  drawCharts("#radius", [...facets].map(([dataset, inside]) => [title("dataset", dataset), [...Map.groupBy(inside, (group) => group.attack_label + (group.submitter && ` (submitted by ${group.submitter})`))].map(([attack, some]) => {
    const series = ordered([...Map.groupBy(some, (group) => group.setup).values()].map((lines) => {
      const rows = (group) => group.rows.map((index) => ROWS[index]);
      const attacked = lines.map((group) => point(group.eps, rows(group).map((row) => row.robust_acc)));
      const seeds = [...new Map(lines.flatMap(rows).map((row) => [row.run_id, row.clean_acc])).values()];
      return { ...styled(lines[0].model), points: [point(0, seeds), ...attacked.sort((a, b) => a.x - b.x)] };
    }));
    const { universal, n_classes } = ROWS[some[0].rows[0]];
    return { title: attack, series, xLabel: "radius δ", low: 0, high: 1, chance: universal ? 1 / n_classes : null };
  })]));
}

function drawCost() {
  const models = [...Map.groupBy(ROWS.filter((row) => row.run_id in DATA.curves && chosen(row, ["eps", "attack"])), (row) => row.setup).values()];
  const datasets = [...Map.groupBy(models, ([row]) => row.dataset)].sort(([a], [b]) => Object.keys(DATA.titles.dataset).indexOf(a) - Object.keys(DATA.titles.dataset).indexOf(b));
  drawCharts("#cost", datasets.map(([dataset, inside]) => {
    const curves = inside.map((rows) => [rows[0].model, unique(rows.map((row) => row.run_id)).map((id) => DATA.curves[id])]);
    const measures = unique(curves.flatMap(([, some]) => some.flatMap((curve) => Object.keys(curve)))).filter((name) => name === "clean_acc" || name.includes("@"));
    const asked = measures.filter((name) => !state.attack || name === "clean_acc" || name.startsWith(`${state.attack}@`));
    return [title("dataset", dataset), asked.map((measure) => {
      const series = ordered(curves.map(([label, some]) => ({ ...styled(label), points: costPoints(some, measure) })));
      const values = series.flatMap((one) => one.points.flatMap((each) => [each.low, each.high]));
      const [attack, eps] = measure.split("@");
      const low = Math.floor(20 * Math.min(...values)) / 20, high = Math.min(1, Math.ceil(20 * Math.max(...values) + 0.01) / 20);
      return { title: eps ? `${title("attack", attack)}, δ = ${eps}` : "Clean", series, xLabel: AXES[state.axis], low, high, xText: thousands };
    }).filter((one) => one.series.length)];
  }));
}

/** Mean, smallest and largest over the runs of one model, round by round. */
function costPoints(curves, measure) {
  const found = new Map();
  for (const curve of curves) {
    (curve[measure] ?? []).forEach((value, place) => {
      if (value === null) return;
      const round = curve.round[place];
      if (!found.has(round)) found.set(round, { x: curve[state.axis][place], values: [] });
      found.get(round).values.push(value);
    });
  }
  return [...found.values()].map(({ x, values }) => point(x, values)).sort((a, b) => a.x - b.x);
}

function drawCharts(where, facets) {
  const shown = facets.filter(([, charts]) => charts.length);
  const labels = LABELS.filter((label) => shown.some(([, charts]) => charts.some((one) => one.series.some((line) => line.label === label))));
  find(`${where} .legend`).replaceChildren(...legend(labels.map(styled)));
  const parts = shown.flatMap(([name, charts]) => [h("h3", {}, name), h("div", { className: "facets" }, charts.map(chart))]);
  find(`${where} .charts`).replaceChildren(...(parts.length ? parts : [h("p", { className: "note" }, "No curve for this choice.")]));
}

// ---- the pictures ----

function drawPictures() {
  const all = DATA.pictures.map((one) => ({ ...one, of: ROWS[one.row] })).filter((one) => chosen(one.of, one.kind === "trained" ? ["attack", "eps"] : ["eps"]));
  const first = (one) => Math.min(...all.filter((other) => other.of.setup === one.of.setup).map((other) => other.of.seed)) === one.of.seed;
  const datasets = Object.keys(DATA.titles.dataset);
  const order = (one) => [datasets.indexOf(one.of.dataset), one.kind === "trained" ? 0 : 1, LABELS.indexOf(one.of.model), one.eps];
  const shown = all.filter(first).sort((a, b) => order(a).map((value, place) => value - order(b)[place]).find(Boolean) ?? 0);
  const parts = [...Map.groupBy(shown, (one) => one.of.dataset)].flatMap(([dataset, some]) => [h("h3", {}, title("dataset", dataset)),
    h("div", { className: "line" }, some.map((one) => picture(one, one.kind === "trained" ? "Trained y" : one.of.attack_label, `${one.kind === "trained" ? "of" : "against"} ${one.of.model}, δ = ${plain(one.eps)}`)))]);
  find("#perturbations .gallery").replaceChildren(...(parts.length ? parts : [h("p", { className: "note" }, "No picture for this choice.")]));
}

// ---- downloads ----

function csvText() {
  const rows = visible().flatMap((item) => (item.rows ? item.rows.map((index) => ROWS[index]) : [item])).sort((a, b) => a.index - b.index);
  const floats = new Set(DATA.floats);
  const word = (value, name) => {  // as Python writes it
    if (typeof value === "boolean") return value ? "True" : "False";
    return floats.has(name) && Number.isInteger(value) ? value.toFixed(1) : String(value ?? "");
  };
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  return [DATA.columns, ...rows.map((row) => DATA.columns.map((name) => word(row[name], name)))].map((line) => line.map(quoted).join(",") + "\n").join("");
}

function latexText() {
  const items = visible();
  const indices = new Set(items.flatMap((item) => item.rows ?? [item.index]));
  const groups = state.view === "means" ? items : DATA.groups.filter((group) => group.rows.some((index) => indices.has(index)));
  return DATA.latex.head + groups.map((group) => group.latex).join("") + DATA.latex.foot;
}

function bibtexText() {
  const { software, entries, method, attack } = DATA.references;
  const items = visible();
  const keys = unique([...unique(items.map((item) => item.method)).flatMap((name) => method[name] ?? []), ...unique(items.map((item) => item.attack)).flatMap((name) => attack[name] ?? [])]);
  return [software, ...keys.map((key) => entries[key])].join("\n\n") + "\n";
}

const DOWNLOADS = { csv: [csvText, "leaderboard.csv", "text/csv"], latex: [latexText, "leaderboard.tex", "text/x-tex"], bibtex: [bibtexText, "leaderboard.bib", "text/x-bibtex"] };

for (const button of findAll("[data-download]")) {
  button.addEventListener("click", () => {
    const [text, download, type] = DOWNLOADS[button.dataset.download];
    const href = URL.createObjectURL(new Blob([text()], { type: `${type};charset=utf-8` }));
    h("a", { href, download }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  });
}

function drawCommand() {
  const quoted = (text) => (/^[\w.:/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
  const asked = ["dataset", "method", "attack", "eps"].filter((name) => state[name]).map((name) => ` --${name} ${quoted(state[name])}`);
  find("#command").textContent = `robustbench-dec export --format csv${asked.join("")}`;
}

// ---- light and dark ----

function drawTheme() {
  const dark = (document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  find("#theme").textContent = dark ? "Light" : "Dark";
  find("#theme").setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
  return dark;
}

/** The choice lasts where the browser lets a local page remember it. */
function remembered(value) {
  try {
    if (value) localStorage.setItem("robustbench-dec-theme", value);
    return localStorage.getItem("robustbench-dec-theme");
  } catch {
    return null;
  }
}

find("#theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = drawTheme() ? "light" : "dark";
  remembered(document.documentElement.dataset.theme);
  drawTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);

// ---- all of it ----

let drawn = "";

function draw() {
  drawFilters();
  drawTable(visible());
  drawCommand();
  const now = ["dataset", "method", "attack", "source", "axis"].map((name) => state[name]).join("|");
  if (now === drawn) return;  // charts keep the focus and need not be made again
  drawn = now;
  drawRadius();
  drawCost();
  drawPictures();
}

/** Follow the address: a state, a section's name, or nothing. */
function follow() {
  if (readAddress()) {
    draw();
    if (state.open) find("#rows tr.open")?.scrollIntoView({ block: "center" });
  }
}

for (const anchor of findAll('.skip, nav a')) {
  anchor.addEventListener("click", (event) => {  // the address keeps the state of the view
    event.preventDefault();
    const section = find(anchor.getAttribute("href"));
    section.scrollIntoView();
    section.focus({ preventScroll: true });
  });
}
addEventListener("hashchange", follow);

if (["light", "dark"].includes(remembered())) document.documentElement.dataset.theme = remembered();
for (const part of findAll("#board, .drawn, #theme")) part.hidden = false;
drawTheme();
draw();
follow();
