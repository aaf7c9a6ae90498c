// One row per network: clean, each attack, the worst case, seeds, images; a table for each data set and norm.

const idOf = (table, block, network) => `${table.stem}/${block.dataset}/${block.norm}/${network.setup}`;

/** The radii of an attack that a step shows: its smallest, its middle one, its largest, or all. */
function stepOf(radii) {
  const place = { small: 0, middle: Math.floor((radii.length - 1) / 2), large: radii.length - 1 }[state.step];
  return place === undefined ? radii : [radii[place]];
}

/** The attacked columns of a block that are shown, and the radii of its worst cases. */
function shownColumns(block) {
  const attacks = [...Map.groupBy(block.columns, (column) => column.attack).values()];
  const shown = attacks.flatMap((columns) => {
    const radii = stepOf(columns.map((column) => column.eps));
    return columns.filter((column) => radii.includes(column.eps));
  });
  const single = shown.filter((column) => !column.universal);
  const radii = unique((single.length ? single : shown).map((column) => column.eps)).sort((a, b) => a - b);
  return [shown, state.step === "all" ? radii : radii.slice(-1)];
}

function networkColumns(block) {
  const [shown, radii] = shownColumns(block);
  const many = state.step === "all";
  const entry = (of) => ({ number: true, high: true, value: (network) => of(network)?.mean ?? null, show: (network) => entryCell(of(network)) });
  const rates = unique(block.networks.map((network) => network.spectral_rate));
  const images = (network) => unique(network.images).map((count) => count.toLocaleString("en")).join(" to ");
  return [
    { key: "network", name: "Network", value: (network) => network.title },
    ...(rates.length > 1 ? [{ key: "rate", name: "p", hint: "Spectral rate of the mixing matrix before any fault: 1 is the exact mean", number: true, minor: true, value: (network) => network.spectral_rate, show: (network) => (network.spectral_rate ?? 0).toFixed(3) }] : []),
    { key: "clean", name: "Clean", below: "no attack", ...entry((network) => network.clean) },
    ...(rates.length > 1 ? [{ key: "node", name: "Worst node", below: "clean, all images", hint: "Clean accuracy of the worst node of the worst seed, on all test images", number: true, high: true, minor: true, value: (network) => network.worst_node, show: (network) => (network.worst_node === null ? "–" : percent(network.worst_node)) }] : []),
    ...shown.map((column) => ({
      key: many ? `${column.attack}#${plain(column.eps)}` : column.attack, name: column.title, below: `δ = ${plain(column.eps)}`,
      hint: `${column.title}: ${column.universal ? "one perturbation for all images" : "a perturbation for each image"}, radius ${plain(column.eps)} in ${normTitle(block.norm)}`,
      ...entry((network) => network.attacks[`${column.attack}@${plain(column.eps)}`]),
    })),
    ...radii.map((radius) => ({
      key: many ? `worst#${plain(radius)}` : "worst", name: "Worst case", below: `δ ≤ ${plain(radius)}`,
      hint: `Images that survive every stored attack of radius ${plain(radius)} or less in ${normTitle(block.norm)}`,
      ...entry((network) => network.worst[plain(radius)]),
    })),
    { key: "seeds", name: "Seeds", number: true, minor: true, value: (network) => network.seeds },
    { key: "images", name: "Images", number: true, minor: true, value: (network) => network.images[1], show: images },
  ];
}

/** An accuracy with its deviation, the paper's number below it. */
function entryCell(entry) {
  if (!entry) return "–";
  const spread = entry.std === null ? null : h("span", { className: "spread" }, state.step === "all" ? `±${percent(entry.std)}` : ` ± ${percent(entry.std)}`);
  const hint = [`95 % interval ${percent(entry.low)} to ${percent(entry.high)}`, `${entry.seeds} ${entry.seeds === 1 ? "seed" : "seeds"}, ${entry.images.toLocaleString("en")} images`, entry.label, entry.flags.join(", ")];
  return h("span", { className: "entry", title: hint.filter(Boolean).join("; ") },
    h("span", { className: entry.best ? "best" : "" }, percent(entry.mean)), spread, entry.flags.length ? h("span", { className: "mark" }, "†") : null,
    entry.paper === null ? null : h("span", { className: "paper" }, h("span", {}, "paper "), percent(entry.paper)));
}

/** The tables and blocks that are chosen, each with its networks in order. */
function chosenBlocks() {
  return DATA.tables.filter((table) => state.table === "all" || table.stem === state.table).flatMap((table) =>
    table.blocks.filter((block) => (!state.dataset || block.dataset === state.dataset) && (!state.norm || block.norm === state.norm)).map((block) => {
      const columns = networkColumns(block);
      const text = (network) => [network.title, network.method, title("method", network.method), title("dataset", block.dataset), block.norm,
        ...(state.q ? network.rows.flatMap((index) => rowWords(ROWS[index])) : [])].join(" ");
      return { table, block, columns, networks: sorted(block.networks.filter((network) => !state.q || found(text(network))), columns) };
    }));
}

function drawNetworks() {
  const blocks = chosenBlocks();
  const parts = blocks.flatMap(({ table, block, columns, networks }, place) => {
    const heading = place === 0 || blocks[place - 1].table !== table ? [h("p", { className: "caption" }, h("b", {}, table.title), table.caption ? ` ${table.caption}` : "")] : [];
    const body = networks.flatMap((network) => networkRow(table, block, network, columns));
    if (!networks.length) body.push(h("tr", {}, h("td", { className: "empty", colSpan: columns.length }, "No network has all of this. Reset brings Table 2 back.")));
    const name = `${title("dataset", block.dataset)}, ${normTitle(block.norm)}`;
    return [...heading, h("h3", { className: "block" }, title("dataset", block.dataset), h("span", {}, ` attacks in ${normTitle(block.norm)}, accuracy in %`)),
      h("div", { className: "scroller", tabIndex: 0, role: "region", "aria-label": `${name}, scrolls sideways` },
        h("table", { className: state.step === "all" ? "board dense" : "board" }, h("thead", {}, h("tr", {}, columns.map(headCell))), h("tbody", {}, body)))];
  });
  if (!parts.length) parts.push(h("p", { className: "empty" }, "No table has all of this. Reset brings the first one back."));
  find("#rows").replaceChildren(...parts);
  const count = blocks.reduce((sum, { networks }) => sum + networks.length, 0);
  const total = DATA.tables.reduce((sum, table) => sum + table.blocks.reduce((inner, block) => inner + block.networks.length, 0), 0);
  find("#count").textContent = `${count} of ${total} networks, means over seeds ± standard deviation. Bold: ahead of all others by the 95 % interval of the difference, over seeds and images. Small: the paper's number.`;
}

function networkRow(table, block, network, columns) {
  const id = idOf(table, block, network);
  const seeds = `${network.seeds} ${network.seeds === 1 ? "seed" : "seeds"}`;
  const cells = columns.map((column) => h("td", { className: classes(column) },
    column.key === "network" ? opener(id, DATA.colours[network.method], network.title, seeds)
      : column.show ? column.show(network) : String(column.value(network))));
  return openRow(id, network.title, cells, columns.length, () => networkDetails(table, block, network));
}

/** The groups of cells behind the networks that are shown, for downloads. */
function groupsOfNetworks() {
  const rows = new Set(chosenBlocks().flatMap(({ networks }) => networks.flatMap((network) => network.rows)));
  return DATA.groups.filter((group) => group.rows.some((index) => rows.has(index)));
}
