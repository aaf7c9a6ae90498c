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
  const own = DATA.pictures.filter((one) => (one.kind === "attack" ? one.row === row.index : ROWS[one.row].run_id === row.run_id));
  if (!own.length) return null;
  return block("Perturbations", h("div", { className: "line" }, own.map((one) =>
    picture(one, one.kind === "trained" ? "Trained y" : row.attack_label, `δ = ${plain(one.eps)}`))));
}

function attackBlock(row) {
  const strong = JSON.parse(row.attack_params_json || "{}");
  return block("Attack", pairs({
    name: row.attack, norm: row.norm, ...strong, universal: row.universal ? "yes" : "no", "attack seed": row.attack_seed,
    "test images": row.n_examples, "submitted by": row.submitter,
    "forward passes": row.attack_forwards, "backward passes": row.attack_backwards, "wall time": row.wall_s && `${plain(row.wall_s)} s`,
  }));
}

function trainingBlocks(row) {
  const run = DATA.runs[row.run_id];
  if (!run) {
    return [block("Training", pairs({
      method: row.method, architecture: row.architecture, graph: row.topology, nodes: row.n_clients, "local steps": row.local_steps,
      "training δ": row.train_delta, rounds: row.comm_rounds,
    }))];
  }
  const { problem, network, trainer } = run.settings;
  const { directed_edges, bytes_per_edge, sfo, sfo_x, sfo_y, rounds, exchanges, messages, all_reduces } = run.ledger;
  return [
    block("Trainer", pairs({ ...trainer, rounds: run.settings.rounds, seed: run.seed })),
    block("Problem", pairs({ ...problem, architecture: run.architecture, parameters: run.parameters })),
    block("Network", pairs({ ...network, "spectral rate p": run.spectral_rate })),
    block("Training cost", pairs({
      "SFO calls per node": sfo, "of x": sfo_x, "of y": sfo_y, rounds, exchanges, messages, "all-reduces": all_reduces,
      "payload": `${readable((bytes_per_edge * directed_edges) / 1e6)} MB`, "wall time": run.wall_s && `${plain(run.wall_s)} s`, threads: run.threads,
    })),
    block("Clean accuracy", pairs({
      "mean model": `${percent(run.clean.mean_model, 2)} %`,
      nodes: `${percent(run.clean.node_min, 2)} to ${percent(run.clean.node_max, 2)} %`,
      validation: run.clean.validation === null || run.clean.validation === undefined ? null : `${percent(run.clean.validation, 2)} %`,
    })),
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
    [flagList(flagsOf(row)), h("div", { className: "columns" }, attackBlock(row), trainingBlocks(row), provenance(row), picturesOf(row))],
  ];
}

function groupDetails(group) {
  const rows = group.rows.map((index) => ROWS[index]);
  const head = ["Seed", "Robust (%)", "95 % interval", "Clean (%)", "Run"];
  const body = rows.map((row) => h("tr", {},
    h("td", {}, String(row.seed)), h("td", {}, percent(row.robust_acc, 2)),
    h("td", {}, `${percent(row.ci_low, 2)} to ${percent(row.ci_high, 2)}`), h("td", {}, percent(row.clean_acc, 2)),
    h("td", {}, h("a", { href: `#${link({ ...DEFAULTS, view: "runs", dataset: row.dataset, open: row.id })}` }, row.run_id))));
  const table = h("div", { className: "scroller", tabIndex: 0, role: "region", "aria-label": "Single runs" },
    h("table", {}, h("thead", {}, h("tr", {}, head.map((name) => h("th", { scope: "col" }, name)))), h("tbody", {}, body)));
  const spread = group.robust_std === null ? "one seed" : `± ${percent(group.robust_std, 2)} over ${group.seeds} seeds`;
  return [
    h("p", {}, `${percent(group.robust, 2)} % (${spread}) under ${group.attack_label} at δ = ${plain(group.eps)}. Settings below are those of seed ${rows[0].seed}; the seeds share all but the seed.`),
    [flagList(group.flags), table, h("div", { className: "columns" }, attackBlock(rows[0]), trainingBlocks(rows[0]), provenance(rows[0]), picturesOf(rows[0]))],
  ];
}
