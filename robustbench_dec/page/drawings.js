// Charts and pictures of what is chosen. A method has one colour; its other networks are shades of it, with dashes.

const METHODS = Object.keys(DATA.titles.method);
const DASHES = ["", "6 3", "2 3", "8 3 2 3"];

function point(x, values) {
  return { x, mean: mean(values), low: Math.min(...values), high: Math.max(...values), seeds: values.length };
}

/** A look for every line that a section draws: the method's colour, and for its 2nd, 3rd, ... variant a shade and dashes. */
function looks(lines) {
  const found = new Map();
  for (const method of METHODS) {
    const keys = unique(lines.filter((line) => line.method === method).map((line) => line.key));
    keys.forEach((key, place) => {
      const share = keys.length > 1 ? Math.round(100 - (55 * place) / (keys.length - 1)) : 100;
      found.set(key, {
        colour: share === 100 ? DATA.colours[method] : `color-mix(in oklab, ${DATA.colours[method]} ${share}%, var(--muted))`,
        dash: DASHES[place % DASHES.length], marker: METHODS.indexOf(method) % MARKERS.length,
      });
    });
  }
  return found;
}

function drawRadius() {
  const every = DATA.groups.filter((group) => chosen(group, ["eps"]));
  const place = (group) => `${group.setup}|${group.attack}|${group.norm}|${plain(group.eps)}`;
  const isPlain = (group) => group.attack_label === title("attack", group.attack) && group.submitter === "";
  const usual = new Set(every.filter(isPlain).map(place));  // our own longer form of an attack has no line beside it
  const groups = every.filter((group) => isPlain(group) || group.submitter !== "" || !usual.has(place(group)));
  const key = (group) => `${group.setup}|${group.attack_label === title("attack", group.attack) ? "" : group.attack_label}|${group.images}|${group.submitter}`;
  const facets = Map.groupBy(groups, (group) => `${group.dataset}|${group.norm}`);
  drawCharts("#radius", [...facets.values()].map((inside) => {
    const { dataset, norm } = inside[0];
    return [`${title("dataset", dataset)}, ${normTitle(norm)}`, [...Map.groupBy(inside, (group) => group.attack).values()].map((some) => {
      const series = [...Map.groupBy(some, key)].map(([, lines]) => {
        const rows = (group) => group.rows.map((index) => ROWS[index]);
        const attacked = lines.map((group) => point(group.eps, rows(group).map((row) => row.robust_acc)));
        const seeds = [...new Map(lines.flatMap(rows).map((row) => [row.run_id, row.clean_acc])).values()];
        const { method, model, attack, attack_label, submitter } = lines[0];
        const variant = attack_label.replace(title("attack", attack), "").trim();
        const label = [model, variant, submitter && `submitted by ${submitter}`].filter(Boolean).join(", ");
        return { label, method, key: label, points: [point(0, seeds), ...attacked.sort((a, b) => a.x - b.x)] };
      });
      const { universal, n_classes } = ROWS[some[0].rows[0]];
      const images = unique(some.map((group) => group.images.toLocaleString("en"))).join(" and ");
      return { title: `${title("attack", some[0].attack)}, ${images} images`, series, xLabel: "radius δ of the attack", low: 0, high: 1, chance: universal ? 1 / n_classes : null };
    })];
  }));
}

function drawCost() {
  const models = [...Map.groupBy(ROWS.filter((row) => row.run_id in DATA.curves && chosen(row, ["eps", "attack", "norm"])), (row) => row.setup).values()];
  const order = Object.keys(DATA.titles.dataset);
  const datasets = [...Map.groupBy(models, ([row]) => row.dataset)].sort(([a], [b]) => order.indexOf(a) - order.indexOf(b));
  const attack = state.view === "networks" ? "" : state.attack;
  drawCharts("#cost", datasets.map(([dataset, inside]) => {
    const ids = unique(inside.flat().map((row) => row.run_id));
    const images = unique(ids.map((id) => DATA.runs[id].settings.curve.examples.toLocaleString("en"))).join(" or ");
    const curves = inside.map((rows) => [rows[0], unique(rows.map((row) => row.run_id)).map((id) => DATA.curves[id])]);
    const measures = unique(curves.flatMap(([, some]) => some.flatMap((curve) => Object.keys(curve)))).filter((name) => name === "clean_acc" || name.includes("@"));
    const asked = measures.filter((name) => !attack || name === "clean_acc" || name.startsWith(`${attack}@`));
    return [`${title("dataset", dataset)}, first ${images} test images`, asked.map((measure) => {
      const series = curves.map(([{ model, method }, some]) => ({ label: model, method, key: model, points: costPoints(some, measure) })).filter((line) => line.points.length);
      const values = series.flatMap((line) => line.points.flatMap((each) => [each.low, each.high]));
      const low = Math.floor(20 * Math.min(...values)) / 20, high = Math.min(1, Math.ceil(20 * Math.max(...values) + 0.01) / 20);
      return { title: measureTitle(measure, ids), note: falling(series), series, xLabel: AXES[state.axis], low, high, xText: thousands };
    }).filter((chart) => chart.series.length)];
  }));
}

/** An attack of a curve with its steps, as the runs tell them. */
function measureTitle(measure, ids) {
  const [attack, eps] = measure.split("@");
  if (!eps) return "Clean";
  const steps = unique(ids.flatMap((id) => DATA.runs[id].settings.curve.attacks.filter((each) => each.name === attack && each.steps).map((each) => each.steps)));
  return `${title("attack", attack)}, δ = ${eps}${steps.length ? `, ${steps.join(" or ")} steps` : ""}`;
}

/** That an accuracy falls while training goes on, where it ends more than a point below its own best. */
function falling(series) {
  const falls = series.map((line) => {
    const best = line.points.reduce((a, b) => (b.mean > a.mean ? b : a)), last = line.points.at(-1);
    return best.mean - last.mean > 0.01 ? `${line.label} ${percent(best.mean)} to ${percent(last.mean)}` : null;
  }).filter(Boolean);
  if (!falls.length) return null;
  return falls.length > 3 ? `Falls as training goes on in ${falls.length} of ${series.length} networks.` : `Falls as training goes on: ${falls.join(", ")}.`;
}

/** Mean, smallest and largest over the runs of one network, round by round. */
function costPoints(curves, measure) {
  const rounds = new Map();
  for (const curve of curves) {
    (curve[measure] ?? []).forEach((value, place) => {
      if (value === null) return;
      const round = curve.round[place];
      if (!rounds.has(round)) rounds.set(round, { x: curve[state.axis][place], values: [] });
      rounds.get(round).values.push(value);
    });
  }
  return [...rounds.values()].map(({ x, values }) => point(x, values)).sort((a, b) => a.x - b.x);
}

/** The charts of a section, and one legend of all that they draw. */
function drawCharts(where, facets) {
  const shown = facets.filter(([, charts]) => charts.length);
  const lines = shown.flatMap(([, charts]) => charts.flatMap((each) => each.series));
  lines.sort((a, b) => METHODS.indexOf(a.method) - METHODS.indexOf(b.method));
  const styles = looks(lines);
  for (const line of lines) Object.assign(line, styles.get(line.key));
  find(`${where} .legend`).replaceChildren(...legend([...new Map(lines.map((line) => [line.key, line])).values()]));
  const parts = shown.flatMap(([name, charts]) => [h("h3", {}, name), h("div", { className: "facets" }, charts.map(chart))]);
  find(`${where} .charts`).replaceChildren(...(parts.length ? parts : [h("p", { className: "note" }, "No curve for this choice.")]));
}

// ---- the pictures ----

function drawPictures() {
  const all = DATA.pictures.map((each) => ({ ...each, of: ROWS[each.row] })).filter((each) => chosen(each.of, each.kind === "trained" ? ["attack", "eps", "norm"] : ["eps"]));
  const seeds = new Map();
  for (const { of } of all) seeds.set(of.setup, Math.min(seeds.get(of.setup) ?? Infinity, of.seed));
  const order = (each) => [METHODS.indexOf(each.of.method), each.kind === "trained" ? 0 : 1, each.eps];
  const shown = all.filter((each) => each.of.seed === seeds.get(each.of.setup))
    .sort((a, b) => order(a).map((value, place) => value - order(b)[place]).find(Boolean) ?? 0);
  const datasets = Object.keys(DATA.titles.dataset);
  const networks = [...Map.groupBy(shown, (each) => each.of.setup).values()].sort(([a], [b]) => datasets.indexOf(a.of.dataset) - datasets.indexOf(b.of.dataset));
  const parts = networks.map((some) => h("div", { className: "strip" },
    h("h3", {}, coloured(DATA.colours[some[0].of.method]), some[0].of.model, h("span", {}, `${title("dataset", some[0].of.dataset)}, seed ${some[0].of.seed}`)),
    h("div", { className: "line" }, some.map((each) => (each.kind === "trained"
      ? picture(each, "Trained y", `ρ = ${plain(each.eps)}`)
      : picture(each, `${each.of.attack_label}`, `δ = ${plain(each.eps)}\n${percent(each.of.robust_acc)} % right${each.hit ? `\n${percent(each.hit[1], 0)} % as ${each.hit[0]}` : ""}`))))));
  find("#perturbations .gallery").replaceChildren(...(parts.length ? parts : [h("p", { className: "note" }, "No picture for this choice.")]));
}
