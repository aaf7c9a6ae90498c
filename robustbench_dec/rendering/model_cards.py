"""Model cards of the zoo in Hugging Face's format: Markdown whose head is YAML, with the results as a model-index.

Everything in a card is read from the network's own record and from its stored cells; nothing is asked of any server.
"""

import json
from collections.abc import Sequence

from robustbench_dec import titles
from robustbench_dec.leaderboard import references
from robustbench_dec.store.records import CellRecord
from robustbench_dec.store.results import Results
from robustbench_dec.store.zoo import Entry


def cells(entry: Entry, stored: Results) -> list[CellRecord]:
    """The suite's own stored attacks on all images that it was attacked with, by attack and radius."""
    run = stored.run(entry.record.id)
    found = [cell.record for cell in run.cells()] if run.exists else []
    own = [record for record in found if not record.submitted and record.part == "test"]
    return sorted(own, key=lambda record: (record.attack, record.eps, -record.n_examples))


def card(entry: Entry, attacked: Sequence[CellRecord]) -> str:
    """The card of one network."""
    record, classifier = entry.record, entry.record.classifier
    assert classifier is not None  # zoo.add takes no others
    method, data = titles.method(record.method), titles.dataset(record.dataset)
    settings = record.settings
    trainer = ", ".join(f"{name} = {value}" for name, value in settings.trainer.items() if name != "name")
    rows = [f"| none | 0 | {100 * classifier.clean.mean_model:.2f} | {classifier.clean.n_examples:,} |"]
    rows += [f"| {c.attack} ({c.norm}) | {c.eps:g} | {100 * c.robust_acc:.2f} | {c.n_examples:,} |" for c in attacked]
    papers = [f"- {p.authors}: {p.title}. {p.venue}" for p in references.of("trainer", record.method)]
    return "\n".join(
        [
            "---",
            _yaml(_head(entry, attacked)),
            "---",
            "",
            f"# {entry.name}",
            "",
            f"An image classifier ({classifier.architecture.name}, {record.parameters:,} parameters) for {data}, "
            f"trained by {method} on {settings.network['nodes']} nodes without a server (graph: "
            f"{settings.network['graph']}). The weights are the mean of the nodes'.",
            "",
            "## Use",
            "",
            "```python",
            "from robustbench_dec import benchmark, load_model",
            "",
            f'model = load_model("{entry.name}")  # images in [0, 1] in, logits out',
            "```",
            "",
            f"Classes, in the logits' order: {', '.join(map(str, classifier.classes))}.",
            "",
            "## Training",
            "",
            f"{record.ledger.rounds:,} rounds, {record.ledger.sfo:,} oracle calls per node, "
            f"{record.ledger.exchanges:,} exchanges with the neighbours, seed {record.seed}. Settings of {method}: "
            f"{trainer}.",
            "",
            "## Test accuracy in percent",
            "",
            "| attack | radius | accuracy | images |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
            "## Limits",
            "",
            "A small network for research on training without a server. The radii above are the only ones that were "
            "tried; a stronger attack may find more.",
            "",
            "## References",
            "",
            *(papers or ["None."]),
            "",
            f"Run `{record.id}`; sha256 of the weights: `{entry.sha256}`.",
            "",
        ]
    )


def _head(entry: Entry, attacked: Sequence[CellRecord]) -> dict[str, object]:
    """The metadata as Hugging Face reads it."""
    record, classifier = entry.record, entry.record.classifier
    assert classifier is not None
    data = {"name": titles.dataset(record.dataset), "type": record.dataset, "split": "test"}
    values = [("Test accuracy", classifier.clean.mean_model)]
    values += [(f"Test accuracy under {c.attack} ({c.norm}, {c.eps:g})", c.robust_acc) for c in attacked]
    metrics = [{"type": "accuracy", "name": name, "value": round(100 * value, 2)} for name, value in values]
    task = {"type": "image-classification", "name": "Image classification"}
    return {
        "license": "mit",
        "library_name": "robustbench-dec",
        "pipeline_tag": "image-classification",
        "tags": ["adversarial-robustness", "decentralized-learning", record.method],
        "datasets": [record.dataset],
        "metrics": ["accuracy"],
        "model-index": [{"name": entry.name, "results": [{"task": task, "dataset": data, "metrics": metrics}]}],
    }


def _yaml(head: dict[str, object]) -> str:
    """JSON is YAML: a line per key, and no library is needed to write it."""
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in head.items())
