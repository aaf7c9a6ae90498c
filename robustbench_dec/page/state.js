// What is chosen: the state in the address, and which rows it leaves.

const DATA = JSON.parse(find("#data").textContent);
const ROWS = DATA.rows.map((values, index) => ({
  ...Object.fromEntries(DATA.columns.map((name, place) => [name, values[place]])), ...DATA.added[index], index,
}));
for (const row of ROWS) {
  row.id = `${row.run_id}/${row.cell}`;
  row.tables = row.table.split(";").filter(Boolean);
  if (!row.tables.length) row.tables = ["others"];
}
for (const group of DATA.groups) group.tables = unique(group.rows.flatMap((index) => ROWS[index].tables));

const STEPS = { small: "Smallest δ", middle: "Middle δ", large: "Largest δ", all: "All δ" };
const NORMS = { Linf: "L∞", L2: "L2", L1: "L1", L0: "L0" };
const VIEWS = ["networks", "means", "runs"];
const DEFAULTS = {
  view: "networks", table: DATA.tables[0].stem, dataset: "", norm: "", step: "middle", method: "", attack: "", eps: "", source: "", q: "",
  sort: "-worst", open: "", axis: "sfo", rows: "",
};
const AXES = { sfo: "SFO calls per node", round: "Communication rounds", megabytes: "Megabytes sent, all nodes together" };
const CELL_FILTERS = ["method", "attack", "eps", "source"];
const state = { ...DEFAULTS };

const flagsOf = (row) => row.reliability_flags.split(";").filter(Boolean);
const title = (column, name) => DATA.titles[column][name] ?? name;
const normTitle = (norm) => NORMS[norm] ?? norm;

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
  if (!(state.step in STEPS)) state.step = DEFAULTS.step;
  if (!VIEWS.includes(state.view)) state.view = DEFAULTS.view;
  return true;
}

function change(changes) {
  Object.assign(state, changes);
  history.replaceState(null, "", `#${link(state)}`);
  draw();
}

// ---- which rows ----

/** Whether a row or a group of rows is chosen, but for some filters; those of cells do not bear on networks. */
function chosen(item, but = []) {
  const asks = (name) => state[name] && !but.includes(name) && !(state.view === "networks" && CELL_FILTERS.includes(name));
  if (state.table !== "all" && !but.includes("table") && !item.tables.includes(state.table)) return false;
  if (["dataset", "norm", "method", "attack"].some((name) => asks(name) && item[name] !== state[name])) return false;
  if (asks("eps") && plain(item.eps) !== state.eps) return false;
  return !asks("source") || (state.source === "ours") === (item.submitter === "");
}

/** Whether a text has every word that is searched for; "seed 1" is one word. */
function found(text) {
  const words = state.q.toLowerCase().replace(/\bseed\s+(\d+)/g, "seed:$1;").split(/\s+/).filter(Boolean);
  const all = text.toLowerCase();
  return words.every((word) => all.includes(word));
}

const rowWords = (row) => [row.run_id, row.cell, row.method, row.attack, row.norm, row.topology, row.architecture, row.table,
  `seed:${row.seed};`, row.checkpoint_sha256, row.git_commit];

function searched(item) {
  if (!state.q) return true;
  const rows = item.rows ? item.rows.map((index) => ROWS[index]) : [item];
  return found([item.model, item.attack_label, item.submitter, title("dataset", item.dataset), ...(item.flags ?? flagsOf(item)),
    ...rows.flatMap(rowWords)].join(" "));
}

/** Items by a column of the view, in the direction that the state asks for; without one, in their own order. */
function sorted(items, columns) {
  const key = state.sort.replace("-", "");
  const column = columns.find((each) => each.key === key) ?? columns.find((each) => each.key.startsWith(`${key}#`));
  if (!column) return items;
  const sign = state.sort.startsWith("-") ? -1 : 1;
  const missing = (value) => value === null || value === undefined;
  const order = (a, b) => {
    if (missing(a) || missing(b)) return missing(a) - missing(b);  // what is not there comes last
    return sign * (typeof a === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true }));
  };
  return items.map((item) => [column.value(item), item]).sort(([a], [b]) => order(a, b)).map(([, item]) => item);
}

// ---- what both tables share ----

const classes = (column) => `col-${column.key.split(/[#@]/)[0]} ${column.number ? "number" : ""} ${column.minor ? "minor" : ""}`;

function headCell(column) {
  const [first, second] = column.high ? [`-${column.key}`, column.key] : [column.key, `-${column.key}`];
  const next = { [first]: second, [second]: state.view === "networks" ? first : "" }[state.sort] ?? first;
  const sort = { [column.key]: "ascending", [`-${column.key}`]: "descending" }[state.sort] ?? null;
  const press = () => { change({ sort: next }); find(`#rows th button[data-key="${CSS.escape(column.key)}"]`)?.focus(); };
  return h("th", { scope: "col", className: classes(column), "aria-sort": sort, title: column.hint ?? "" },
    h("button", { type: "button", "data-key": column.key, onclick: press }, h("span", {}, column.name, column.below ? h("small", {}, column.below) : null)));
}

function toggled(id) {
  change({ open: state.open === id ? "" : id });
  find(`[data-open="${CSS.escape(id)}"]`)?.focus({ preventScroll: true });
}

/** The button that opens a row, with its name on at most two lines. */
function opener(id, colour, label, below, badge = null) {
  const open = state.open === id;
  return [h("button", { type: "button", className: "open-row", title: label, "data-open": id, "aria-expanded": String(open), "aria-controls": open ? "details" : null, onclick: () => toggled(id) },
    coloured(colour), h("span", { className: "name" }, label, below ? h("span", { className: "where" }, below) : null)), badge];
}

/** A row and, where it is open, its details below. */
function openRow(id, label, cells, width, details, first = false) {
  const open = state.open === id;
  const clicked = (event) => { if (!event.target.closest("button, a") && !String(getSelection())) toggled(id); };
  const row = h("tr", { className: `row ${first ? "first" : ""} ${open ? "open" : ""}`, onclick: clicked }, cells);
  if (!open) return [row];
  const [sentence, rest] = details();
  const head = h("div", { className: "head" }, sentence, h("a", { href: `#${link(state)}` }, "Link to this row"));
  const inside = h("div", { className: "details", id: "details", role: "region", "aria-label": `Details of ${label}` }, head, ...rest.filter(Boolean));
  return [row, h("tr", { className: "detail" }, h("td", { colSpan: width }, inside))];
}
