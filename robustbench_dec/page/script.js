// The page: filters, downloads, light and dark, and drawing all of it.

// ---- the filters ----

const form = find("form.filters");

function drawFilters() {
  const pairs = (column) => Object.entries(DATA.titles[column]);
  options("table", DATA.tables.map((table) => [table.stem, table.title]), ["all", "All tables"]);
  options("dataset", pairs("dataset"));
  options("norm", unique(ROWS.map((row) => row.norm)).map((norm) => [norm, normTitle(norm)]));
  options("step", Object.entries(STEPS), null);
  options("method", pairs("method"));
  options("attack", pairs("attack"));
  const radii = unique(DATA.groups.filter((group) => chosen(group, ["eps"])).map((group) => group.eps)).sort((a, b) => a - b).map(plain);
  options("eps", unique([...radii, ...(state.eps ? [state.eps] : [])]).map((text) => [text, text]));
  options("source", [["ours", "this repository"], ["users", "submitted by users"]]);
  const networks = state.view === "networks";
  for (const label of findAll("[data-view]", form)) label.hidden = (label.dataset.view === "networks") !== networks;
  form.elements.norm.closest("label").hidden = !state.norm && unique(ROWS.map((row) => row.norm)).length < 2;
  if (!state.source && ROWS.every((row) => row.submitter === "")) find("#source").hidden = true;
  for (const radio of findAll("input[name=view]")) radio.checked = radio.value === state.view;
  for (const radio of findAll("input[name=axis]")) radio.checked = radio.value === state.axis;
  if (form.elements.q.value !== state.q) form.elements.q.value = state.q;
}

function options(name, pairs, all = ["", "All"]) {
  const every = all ? [...pairs, all].sort((a, b) => (b[0] === "") - (a[0] === "")) : pairs;
  const known = every.some(([value]) => value === state[name]) ? every : [...every, [state[name], state[name]]];
  const select = form.elements[name];
  select.replaceChildren(...known.map(([value, text]) => h("option", { value }, text)));
  select.value = state[name];
}

form.addEventListener("submit", (event) => event.preventDefault());
form.addEventListener("input", (event) => {
  const { name, value } = event.target;
  change(name === "view" ? { view: value, open: "", sort: value === "networks" ? DEFAULTS.sort : state.view === "networks" ? "" : state.sort } : { [name]: value });
});
find("#reset").addEventListener("click", () => change({ ...DEFAULTS, view: state.view, axis: state.axis, sort: state.view === "networks" ? DEFAULTS.sort : "" }));
find("#axis").addEventListener("input", (event) => change({ axis: event.target.value }));

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
  const groups = state.view !== "runs" ? items : DATA.groups.filter((group) => group.rows.some((index) => indices.has(index)));
  return DATA.latex.head + groups.map((group) => group.latex).join("") + DATA.latex.foot;
}

function bibtexText() {
  const { software, entries, method, attack } = DATA.references;
  const items = visible();
  const rows = items.flatMap((item) => item.rows ?? [item.index]).sort((a, b) => a - b).map((index) => ROWS[index]);
  const keys = unique([...unique(rows.map((row) => row.method)).flatMap((name) => method[name] ?? []), ...unique(rows.map((row) => row.attack)).flatMap((name) => attack[name] ?? [])]);
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
  const networks = state.view === "networks";
  const asked = ["table", "dataset", "norm", "method", "attack", "eps"].filter((name) => state[name] && !(name === "table" && state.table === "all") && !(networks && CELL_FILTERS.includes(name)))
    .map((name) => ` --${name} ${quoted(state[name])}`);
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
  if (state.view === "networks") drawNetworks();
  else drawCells();
  drawCommand();
  const now = ["view", "table", "dataset", "norm", "method", "attack", "source", "axis"].map((name) => state[name]).join("|");
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
