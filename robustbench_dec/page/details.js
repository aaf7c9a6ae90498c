// What opens below a row: everything that is known about a number.

function pairs(values) {
  const shown = Object.entries(values).filter(([, value]) => value !== null && value !== undefined && value !== "");
  return h("dl", { className: "pairs" }, shown.map(([name, value]) => [h("dt", {}, name), h("dd", {}, readable(value))]));
}

function readable(value) {
  if (value instanceof Node || typeof value === "string") return value;
  if (Array.isArray(value)) return value.map(readable).join(", ");
  if (typeof value === "number") return Number.isInteger(value) ? value.toLocaleString("en") : plain(value);
  if (value !== null && typeof value === "object") return Object.entries(value).map(([name, one]) => `${name} ${readable(one)}`).join(", ");
  return String(value);
}

const block = (title, ...children) => h("div", {}, h("h4", {}, title), ...children);

function flagList(flags) {
  if (!flags.length) return null;
  const meaning = (flag) => DATA.flags[flag.split(":")[0]] ?? "see the documentation of the audit.";
  return h("ul", { className: "flagged" }, flags.map((flag) => h("li", {}, h("span", { className: "flag" }, flag), meaning(flag))));
}

function picture(found, title, below) {
  const image = h("img", { src: found.uri, alt: `${title}, radius ${plain(found.eps)}: a perturbation drawn in diverging colours` });
  return h("figure", { className: "picture" }, image, h("figcaption", {}, h("b", {}, title), below));
}

/** The perturbations that belong to a row: its model's trained y, and its own if the attack is universal. */
function picturesOf(row) {
  return pictureBlock(DATA.pictures.filter((one) => (one.kind === "attack" ? one.row === row.index : ROWS[one.row].run_id === row.run_id)));
}

function pictureBlock(own) {
  if (!own.length) return null;
  return block("Perturbations", h("div", { className: "line" }, own.map((one) => {
    const row = ROWS[one.row];
    return one.kind === "trained" ? picture(one, "Trained y", `ρ = ${plain(one.eps)}`) : picture(one, row.attack_label, `δ = ${plain(one.eps)}\n${percent(row.robust_acc)} % right`);
  })));
}

/** Settings with the radius under the letter that the page has for it: ρ in training, δ in an attack. */
function renamed(settings, radius = "radius ρ") {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [name === "eps" ? `${radius} (eps)` : name, value]));
}

/** Where a method or an attack is written down: its code, where the page lies beside it, and its papers. */
function linksOf(kind, name) {
  const part = DATA.parts.find((each) => each.kind === kind && each.name === name);
  if (!part || (!part.code && !part.papers.length)) return null;
  const outward = (href, text) => h("a", { href, rel: "noreferrer" }, text);
  return block(kind === "trainer" ? "Method" : "Attack's origin", h("ul", { className: "links" },
    part.code ? h("li", {}, outward(part.code, part.code.replace("../", ""))) : null,
    part.papers.map(([text, href]) => h("li", {}, outward(href, text)))));
}

/** A small table of texts. */
function smallTable(label, head, body) {
  return h("div", { className: "scroller", tabIndex: 0, role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))),
      h("tbody", {}, body.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell)))))));
}

function networkDetails(table, inside, network) {
  const rows = network.rows.map((index) => ROWS[index]);
  const line = (name, radius, entry, origin) => [name, radius, `${percent(entry.mean, 2)}${entry.std === null ? "" : ` ± ${percent(entry.std, 2)}`}`,
    `${percent(entry.low, 1)} to ${percent(entry.high, 1)}`, entry.paper === null ? "–" : percent(entry.paper), String(entry.seeds), entry.images.toLocaleString("en"), origin];
  const attacked = inside.columns.filter((column) => `${column.attack}@${plain(column.eps)}` in network.attacks).map((column) => {
    const entry = network.attacks[`${column.attack}@${plain(column.eps)}`];
    const cells = { ...DEFAULTS, view: "runs", sort: "", table: table.stem, dataset: inside.dataset, norm: inside.norm, method: network.method, attack: column.attack, eps: plain(column.eps) };
    return line(column.title, plain(column.eps), entry, h("a", { href: `#${link(cells)}` }, entry.label === column.title ? "single runs" : entry.label));
  });
  const worst = Object.entries(network.worst).map(([radius, entry]) => line("Worst case", `≤ ${radius}`, entry, entry.label && `broken by this attack alone: ${entry.label} images`));
  const runs = unique(rows.map((row) => row.run_id));
  const own = DATA.pictures.filter((one) => network.rows.includes(one.row) && ROWS[one.row].run_id === runs[0]);
  return [
    h("p", {}, `${network.title} on ${title("dataset", inside.dataset)}, ${network.seeds} ${network.seeds === 1 ? "seed" : "seeds"}. Settings below are those of seed ${rows[0].seed}; the seeds share all but the seed.`),
    [smallTable("Every attack and radius", ["Attack", "δ", "Accuracy (%)", "95 % interval", "Paper", "Seeds", "Images", ""], [line("Clean", "0", network.clean, ""), ...attacked, ...worst]),
      h("div", { className: "columns" }, linksOf("trainer", network.method), trainingBlocks(rows[0]),
        block("Runs", h("ul", { className: "links" }, runs.map((id) => h("li", {}, h("a", { href: `#${link({ ...DEFAULTS, view: "runs", sort: "", table: "all", q: id })}` }, id))))), provenance(rows[0]), pictureBlock(own))],
  ];
}

function attackBlock(row) {
  const strong = JSON.parse(row.attack_params_json || "{}");
  return block("Attack", pairs({
    name: row.attack, norm: row.norm, ...renamed(strong, "radius δ"), universal: row.universal ? "yes" : "no", "attack seed": row.attack_seed,
    "test images": row.n_examples, "submitted by": row.submitter,
    "forward passes": row.attack_forwards, "backward passes": row.attack_backwards, "wall time": row.wall_s && `${plain(row.wall_s)} s`,
  }));
}

/** Who holds which labels: a line for each node, a square for each class, darker where it has more of the node's samples. */
function holdingsBlock(run) {
  if (!run.holdings) return null;
  const side = 14, left = 22, top = 14;
  const classes = run.holdings[0].length;
  const text = (x, y, words, anchor) => s("text", { x, y, "text-anchor": anchor, "font-size": 9, fill: "currentColor" }, words);
  const svg = s("svg", {
    class: "holdings", viewBox: `0 0 ${left + side * classes} ${top + side * run.holdings.length}`, width: left + side * classes, role: "img",
    "aria-label": `Labels of ${run.holdings.length} nodes: ${run.holdings.map((counts, node) => `node ${node} has ${counts.filter((count) => count).length} of ${classes} classes`).join(", ")}`,
  }, ...run.classes.map((_, label) => text(left + side * (label + 0.5), top - 4, String(label), "middle")));
  run.holdings.forEach((counts, node) => {
    const all = Math.max(1, counts.reduce((total, count) => total + count, 0));
    svg.append(text(left - 5, top + side * (node + 0.75), String(node), "end"), ...counts.map((count, label) =>
      s("rect", { x: left + side * label, y: top + side * node, width: side - 1, height: side - 1, fill: "currentColor", "fill-opacity": 0.06 + (0.94 * count) / all },
        s("title", {}, `node ${node}: ${count.toLocaleString("en")} of ${run.classes[label]}`))));
  });
  return block("Who holds which labels", svg, h("p", { className: "note" }, "Nodes below each other, classes side by side."));
}

function trainingBlocks(row) {
  const run = DATA.runs[row.run_id];
  if (!run) {
    return [block("Training", pairs({
      method: row.method, architecture: row.architecture, graph: row.topology, nodes: row.n_clients, "local steps": row.local_steps,
      "training radius ρ": row.train_delta, rounds: row.comm_rounds,
    }))];
  }
  const { problem, network, trainer } = run.settings;
  const { directed_edges, bytes_per_edge, sfo, sfo_x, sfo_y, rounds, exchanges, messages, all_reduces } = run.ledger;
  return [
    block("Trainer", pairs({ ...trainer, rounds: run.settings.rounds, seed: run.seed })),
    block("Problem", pairs({ ...renamed(problem), architecture: run.architecture, parameters: run.parameters })),
    block("Network", pairs({ ...network, "spectral rate p": run.spectral_rate })),
    block("Training cost", pairs({
      "SFO calls per node": sfo, "of x": sfo_x, "of y": sfo_y, rounds, exchanges, messages, "all-reduces": all_reduces,
      "payload": `${readable((bytes_per_edge * directed_edges) / 1e6)} MB`, "wall time": run.wall_s && `${plain(run.wall_s)} s`, threads: run.threads,
    })),
    block("Clean accuracy", pairs({
      "mean network": `${percent(run.clean.mean_model, 2)} % of all ${run.clean.n_examples.toLocaleString("en")} test images`,
      "worst to best node": `${percent(run.clean.node_min, 2)} to ${percent(run.clean.node_max, 2)} %`,
      "held-out images": run.clean.validation === null || run.clean.validation === undefined ? null : `${percent(run.clean.validation, 2)} %`,
    })),
    holdingsBlock(run),
  ];
}

function provenance(row) {
  const run = DATA.runs[row.run_id];
  const version = (index) => (index === undefined ? null : DATA.versions[index]);
  return block("Provenance", pairs({
    run: row.run_id, cell: row.cell, table: row.table, "checkpoint sha256": h("code", {}, row.checkpoint_sha256),
    "data sha256": run?.data_digest && h("code", {}, run.data_digest),
    "commit, attack": row.git_commit, "commit, training": run?.git_commit,
    "attacked": row.created_utc, "trained": run?.created_utc, "threads, attack": row.threads,
    versions: version(row.versions) ?? { torch: row.torch_version, "robustbench_dec": row.package_version },
    "versions, training": run && run.versions !== row.versions ? version(run.versions) : null,
  }));
}

function rowDetails(row) {
  const interval = `${percent(row.ci_low, 2)} to ${percent(row.ci_high, 2)} %`;
  const sentence = `${percent(row.robust_acc, 2)} % of ${row.n_examples.toLocaleString("en")} test images survive `
    + `${row.attack_label} at δ = ${plain(row.eps)} (${row.n_correct.toLocaleString("en")} images; 95 % interval ${interval}; clean ${percent(row.clean_acc, 2)} %).`;
  return [
    h("p", {}, sentence),
    [flagList(flagsOf(row)), h("div", { className: "columns" }, attackBlock(row), linksOf("attack", row.attack), trainingBlocks(row), linksOf("trainer", row.method), provenance(row), picturesOf(row))],
  ];
}

function groupDetails(group) {
  const rows = group.rows.map((index) => ROWS[index]);
  const table = smallTable("Single runs", ["Seed", "Robust (%)", "95 % interval", "Clean (%)", "Run"], rows.map((row) => [
    String(row.seed), percent(row.robust_acc, 2), `${percent(row.ci_low, 2)} to ${percent(row.ci_high, 2)}`, percent(row.clean_acc, 2),
    h("a", { href: `#${link({ ...DEFAULTS, view: "runs", sort: "", table: "all", dataset: row.dataset, open: row.id })}` }, row.run_id)]));
  const spread = group.robust_std === null ? "one seed" : `± ${percent(group.robust_std, 2)} over ${group.seeds} seeds`;
  return [
    h("p", {}, `${percent(group.robust, 2)} % (${spread}) under ${group.attack_label} at δ = ${plain(group.eps)}. Settings below are those of seed ${rows[0].seed}; the seeds share all but the seed.`),
    [flagList(group.flags), table, h("div", { className: "columns" }, attackBlock(rows[0]), linksOf("attack", rows[0].attack), trainingBlocks(rows[0]), linksOf("trainer", rows[0].method), provenance(rows[0]), picturesOf(rows[0]))],
  ];
}
