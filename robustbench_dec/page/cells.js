// All cells: one row per network, attack and radius, as means over seeds or as single runs.

const FIRST = 300;  // rows that are drawn before all are asked for: a browser lays out thousands slowly

const robust = (item) => item.robust ?? item.robust_acc;
const CELL_COLUMNS = [
  { key: "dataset", name: "Data set", value: (item) => title("dataset", item.dataset) },
  { key: "model", name: "Network", value: (item) => item.model },
  { key: "attack", name: "Attack", value: (item) => item.attack_label, show: (item) => h("span", { className: "name", title: item.attack_label }, item.attack_label) },
  { key: "norm", name: "Norm", minor: true, value: (item) => normTitle(item.norm) },
  { key: "eps", name: "δ", number: true, value: (item) => item.eps, show: (item) => plain(item.eps) },
  { key: "robust", name: "Robust", number: true, high: true, value: robust, show: accuracy },
  { key: "clean", name: "Clean", number: true, high: true, minor: true, value: (item) => item.clean ?? item.clean_acc, show: (item) => percent(item.clean ?? item.clean_acc) },
  { key: "seeds", name: "Seeds", number: true, minor: true, only: "means", value: (item) => item.seeds },
  { key: "seed", name: "Seed", number: true, only: "runs", value: (item) => item.seed },
  { key: "images", name: "Images", number: true, minor: true, value: (item) => item.images ?? item.n_examples, show: (item) => (item.images ?? item.n_examples).toLocaleString("en") },
  { key: "sfo", name: "SFO", hint: "Stochastic first-order oracle calls per node in training", number: true, minor: true, value: (item) => item.sfo ?? Math.max(item.sfo_x, item.sfo_y), show: (item) => thousands(item.sfo ?? Math.max(item.sfo_x, item.sfo_y)) },
  { key: "megabytes", name: "MB", hint: "Megabytes that all nodes sent in training", number: true, minor: true, value: (item) => item.megabytes ?? item.bytes_payload / 1e6, show: (item) => thousands(item.megabytes ?? item.bytes_payload / 1e6) },
  { key: "flags", name: "Flags", minor: true, value: (item) => (item.flags ?? flagsOf(item)).length, show: (item) => (item.flags ?? flagsOf(item)).map((flag) => h("span", { className: "flag", title: flag }, flag)) },
];

function accuracy(item) {
  const spread = item.rows
    ? item.robust_std === null ? "" : ` ± ${percent(item.robust_std)}`
    : ` [${percent(item.ci_low)}, ${percent(item.ci_high)}]`;
  const cell = h("span", { className: "accuracy" }, percent(robust(item)), h("span", { className: "spread" }, spread));
  cell.style.setProperty("--share", robust(item));
  return cell;
}

/** The chosen groups, or the single rows in them, in the table's order. */
function visible() {
  if (state.view === "networks") return groupsOfNetworks();
  if (state.view === "means") return sorted(DATA.groups.filter((group) => chosen(group) && searched(group)), CELL_COLUMNS);
  const rows = DATA.groups.filter((group) => chosen(group)).flatMap((group) => group.rows.map((index) => ROWS[index]));
  return sorted(rows.filter((row) => chosen(row) && searched(row)), CELL_COLUMNS);
}

function drawCells() {
  const items = visible();
  const columns = CELL_COLUMNS.filter((column) => !column.only || column.only === state.view);
  const opened = items.findIndex((item) => item.id === state.open);
  const shown = state.rows === "all" || items.length <= FIRST ? items : items.slice(0, Math.max(FIRST, opened + 1));
  const body = shown.flatMap((item, place) => cellRow(item, shown[place - 1], columns));
  if (!items.length) body.push(h("tr", {}, h("td", { className: "empty", colSpan: columns.length }, "No row has all of this together. Reset brings everything back.")));
  find("#rows").replaceChildren(h("div", { className: "scroller", tabIndex: 0, role: "region", "aria-label": "All cells, scrolls sideways" },
    h("table", {}, h("thead", {}, h("tr", {}, columns.map(headCell))), h("tbody", {}, body))));
  if (shown.length < items.length) find("#rows").append(more(shown.length, items.length));
  const total = state.view === "means" ? DATA.groups.length : ROWS.length;
  find("#count").textContent = `${items.length} of ${total} ${state.view === "means" ? "means over seeds" : "single runs"}, accuracy in %`;
}

/** What is left out below the first rows, and the button that draws all. */
function more(drawn, all) {
  const draw = () => { change({ rows: "all" }); findAll("#rows .open-row")[drawn].focus({ preventScroll: true }); };
  return h("p", { className: "more" }, `The first ${drawn.toLocaleString("en")} of ${all.toLocaleString("en")} rows in this order. `,
    h("button", { type: "button", className: "quiet", onclick: draw }, "Show all"));
}

function cellRow(item, above, columns) {
  const apart = !columns.some((column) => state.sort.replace("-", "") === column.key) && above && (above.dataset !== item.dataset || above.attack !== item.attack);
  const badge = item.submitter ? h("span", { className: "badge", title: `Submitted by ${item.submitter}` }, "submitted") : null;
  const cells = columns.map((column) => h("td", { className: classes(column) },
    column.key === "model" ? opener(item.id, DATA.colours[item.method], item.model, title("dataset", item.dataset), badge)
      : column.show ? column.show(item) : String(column.value(item))));
  return openRow(item.id, item.model, cells, columns.length, () => (item.rows ? groupDetails(item) : rowDetails(item)), apart);
}
