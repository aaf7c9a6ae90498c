"""What a table under a protocol must not have: runs and attacks that the protocol does not give, cells older than it.

The settings that it gives are those of the trials' rows (running/trials.py): the way to handle the data that suits the
baseline, and each method's chosen point, for the rounds and the network of the protocol; a table by training radius has
that point at other radii. Cells of an attack that later rules redefine are held against those.
"""

import datetime
import hashlib
import subprocess
from collections.abc import Sequence
from pathlib import Path

from robustbench_dec.errors import BadInput
from robustbench_dec.running import trials
from robustbench_dec.running.suite import Work
from robustbench_dec.specs import protocol as protocols
from robustbench_dec.specs.protocol import RADIUS, Protocol
from robustbench_dec.specs.run import RunSpec
from robustbench_dec.specs.table import Spec
from robustbench_dec.store.records import RunSettings
from robustbench_dec.store.results import Results


def findings(table: Spec, path: Path, work: Sequence[Work], results: Results) -> list[str]:
    """A sentence for each run and each cell of a table that its protocol does not allow."""
    if table.protocol is None:
        return []
    rules = path.with_name(table.protocol)
    protocol = protocols.read(rules.with_suffix(".toml"))
    rows = path.with_name(protocol.trials_file)
    try:
        choice = trials.choice(protocol, trials.read(rows))
    except BadInput as error:
        return [f"{path} is a table under {rules}, but {error}"]
    chosen = committed(rows)
    governing = {name: path.with_name(text) for name, text in table.redefined.items()}
    since = {text: committed(text) for text in (rules, *governing.values())}
    found = _other_attacks(protocol, table)
    for text, when in {**since, rows: chosen}.items():
        if when is None and under_git(text):
            found.append(f"{text}: git does not know what it says now, so nothing can be younger than it; commit it")
    for item in work:
        run = results.find(item.run.id)
        if run is None:
            continue
        record = run.record
        expected = _given(protocol, choice, table, item)
        if expected is None or _decisive(expected.settings) != _decisive(record.settings):
            found.append(f"{run.id}: the protocol does not give its settings, or not its seed")
        if record.protocol_sha256 != protocol.sha256:
            found.append(f"{run.id}: it was not made under {rules.name} as it is now")
        for request in item.cells:
            cell, text = run.cell(request.key), governing.get(request.name, rules)
            if not cell.exists:
                continue
            made = datetime.datetime.fromisoformat(cell.record.created_utc)
            if cell.record.protocol_sha256 != request.protocol_sha256:
                found.append(f"{run.id}, {cell.stem}: it was not made under {text.name} as it is now")
            for what, when in ((text.name, since[text]), (rows.name, chosen)):
                if when is not None and made < when:
                    found.append(f"{run.id}, {cell.stem}: it is older than {what}")
    return found


def _given(protocol: Protocol, choice: trials.Choices, table: Spec, item: Work) -> RunSpec | None:
    """The run that a protocol gives for a place of a table: the chosen point, or, in a table by training radius, that
    point at one of the radii that were drawn from; None where it gives none."""
    by_radius = table.layout == "radius"
    block = next((each for each in protocol.blocks if each.title == item.block.title), None)
    seeds = protocol.radius_seeds if by_radius else protocol.table_seeds
    if block is None or item.run.trainer not in protocol.methods or item.run.seed not in seeds:
        return None
    taken = choice[block.title, item.run.trainer]
    point = dict(taken.point)
    if by_radius and RADIUS in point:
        if (radius := item.run.problem.get("eps")) not in block.radii:
            return None
        point[RADIUS] = float(radius)
    return protocol.run(block, taken.candidate, item.run.trainer, point, item.run.seed, block.rounds)


def _other_attacks(protocol: Protocol, table: Spec) -> list[str]:
    """Attacks of a table that the protocol does not have so, and those of the protocol that the table lacks.

    What later rules define has the settings of its class; only the radius from which others start is free.
    """
    found = []
    for block in table.blocks:
        rules = next((each for each in protocol.blocks if each.title == block.title), None)
        given = {} if rules is None else {attack.name: attack for attack in rules.attacks}
        for attack in block.attacks:
            if attack.name in table.redefined:
                others = sorted({*(attack.model_extra or {})} - {"anchor"})
                if others:
                    found.append(f"{block.title}, {attack.name}: its rules do not give the settings {others}")
            elif attack != given.get(attack.name):
                found.append(
                    f"{block.title}, {attack.name}: the protocol does not give it with these settings and radii"
                )
        missing = len(given) - len(block.attacks)
        if missing > 0:
            found.append(f"{block.title}: it has {missing} attacks fewer than the protocol")
    return found


def _decisive(settings: RunSettings) -> object:
    """All but the curve, which is a picture."""
    return settings.model_dump(mode="json", exclude={"curve"})


def committed(path: Path) -> datetime.datetime | None:
    """When a file was first committed with the content that it has now; None where git does not know that."""
    try:
        asked = subprocess.run(
            ["git", "log", "--reverse", "--format=%cI", f"--find-object={_blob(path)}", "--", path.name],
            cwd=path.parent.resolve(),
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        return None
    said = asked.stdout.split()
    return datetime.datetime.fromisoformat(said[0]) if asked.returncode == 0 and said else None


def under_git(path: Path) -> bool:
    """Whether it lies in a checkout."""
    try:
        asked = subprocess.run(
            ["git", "rev-parse", "--is-inside-work-tree"], cwd=path.parent.resolve(), capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    return asked.returncode == 0


def _blob(path: Path) -> str:
    """By what name git knows a content."""
    content = path.read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
