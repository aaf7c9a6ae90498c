"""The protocol of Table 2: its words and its numbers say the same, and what it fixes is fixed."""

import dataclasses
import re
from pathlib import Path

import pytest

from attacks.pgd import PGD
from attacks.uap import UAP
from attacks.uap_annealed import COOL, HOT, MOMENTUM, WARM, UAPAnnealed
from robustbench_dec.errors import BadInput
from robustbench_dec.specs import protocol as protocols
from robustbench_dec.specs import table as specs
from tests.support import ROOT

PROTOCOL = protocols.read(ROOT / "tables" / "protocol.toml")
WORDS = " ".join((ROOT / "tables" / "protocol.md").read_text().split())


def test_the_words_have_the_numbers_of_the_file() -> None:
    mnist, cifar10 = PROTOCOL.blocks
    for words in (
        f"Seed {PROTOCOL.seed} is for choosing",
        f"the first {PROTOCOL.candidate_trials} points of step 2's sequence",
        f"within {100 * mnist.near:.1f} points (MNIST) or {100 * cifar10.near:.1f} points (CIFAR-10)",
        f"normalised | {mnist.rounds} |",
        f"without | {cifar10.rounds} |",
        f"{PROTOCOL.trials} trials for each method on each data set",
        f"seed {PROTOCOL.sequence_seed}) in four dimensions",
        f"rounded to {PROTOCOL.digits} digits",
        f"best {PROTOCOL.best} of each method",
        f"at least c - {100 * PROTOCOL.clean_within:g} point",
        f"{PROTOCOL.table_seeds[0]} to {PROTOCOL.table_seeds[-1]} for both methods",
        f"{PROTOCOL.radius_seeds[0]} to {PROTOCOL.radius_seeds[-1]} for `table2-radius`",
        f"All trials are in `tables/{PROTOCOL.trials_file}`",
        *(f"| {name} | {low:g} to {high:g}, log-uniform |" for name, (low, high) in PROTOCOL.box.items()),
    ):
        assert words in WORDS, words
    assert PROTOCOL.short == 0.25 and "a quarter of the rounds" in WORDS
    assert PROTOCOL.methods.keys() == {"k_gt", "dec_fedtrack"}
    for method in PROTOCOL.methods.values():
        assert (method["K"], method["batch"]) == (5, 128)
    for block in PROTOCOL.blocks:
        for candidate in block.candidates:
            assert candidate.title.partition(",")[0] in WORDS


def test_the_words_have_the_strengths_of_the_attacks() -> None:
    uap = {field.name: field.default for field in dataclasses.fields(UAP)}
    for words in (
        f"{uap['search']} momentum steps towards each class",
        f"four times an ascent of {uap['steps']} momentum steps",
        f"judged {uap['looks']} times on {uap['judged']:,} training images",
        f"Steps of {uap['rel_alpha']} delta",
        f"minibatches of {uap['batch']}",
        "20 steps of delta/4",
    ):
        assert words in WORDS, words
    assert uap["step"] == "momentum" and uap["decay"] and uap["restarts"] == 4 and uap["sga"] == 1
    pgd = PGD(0.1)
    assert pgd.steps == 20 and pgd.step_size == pytest.approx(0.025) and pgd.random_start
    for block in PROTOCOL.blocks:
        fgsm, by_pgd, by_uap = block.attacks
        assert [attack.name for attack in block.attacks] == ["fgsm", "pgd", "uap"]
        assert not fgsm.model_extra and not by_pgd.model_extra
        assert by_uap.model_extra == {"anchor": by_uap.eps[1]}  # the middle radius
        radii = {eps for attack in block.attacks for eps in attack.eps}
        assert {*block.radii} == {round(eps, 9) for eps in radii} | {round(eps / 2, 9) for eps in radii}
        of_fgsm, of_pgd, of_uap = block.tuning
        assert (of_fgsm.images, of_pgd.images, of_uap.images) == (2000, 500, 2000)
        assert of_pgd.model_extra == {"steps": 10}
        usual = {"search": 5, "steps": 60, "batch": 64, "restarts": 1, "sga": 0, "looks": 2, "judged": 1000}
        assert of_uap.model_extra == usual | {"anchor": of_uap.eps[1]}
        assert [attack.eps for attack in block.tuning] == [attack.eps for attack in block.attacks]


def test_the_words_of_the_amendment_have_the_strengths_of_its_attack() -> None:
    said = " ".join((ROOT / "tables" / "protocol-uap.md").read_text().split())
    usual = UAPAnnealed(0.1)
    for words in (
        f"a momentum of {MOMENTUM}",
        f"a pull of {usual.pull} towards each class; rho = {HOT:g}, T = {usual.search}, minibatches of {usual.batch}",
        f"the same {usual.starts} times towards each of the {usual.classes} classes that left the fewest right; "
        f"T = {usual.steps}",
        f"the best {usual.kept} of these go on; rho = {WARM}, T = {2 * usual.steps:,}",
        f"down the mean probability of the true label, with rho = {HOT:g}, {WARM} and {COOL} in turn; "
        f"T = {2 * usual.steps:,}, minibatches of {2 * usual.batch}",
        f"once; rho = {COOL}, T = {usual.steps // 5}, inner gradients of {8 * usual.batch} images",
        f"on {usual.judged:,} training images",
        f"(`search` = {2 * usual.search}, `steps` = {2 * usual.steps:,})",
    ):
        assert words in said, words
    assert usual.rounds == usual.sga == 1 and usual.looks == 2 and "refining and SGA twice" in said
    table = specs.read(ROOT / "tables" / "table2.toml")
    assert table.redefined == {"uap_annealed": "protocol-uap.md"} and table.protocol == "protocol.md"
    for block in table.blocks:
        (uap,) = (attack for attack in block.attacks if attack.name == "uap_annealed")
        assert uap.model_extra == {"anchor": uap.eps[1]}  # the middle radius
        shared = [attack for attack in block.attacks if attack is not uap]
        (asked,) = (each for each in PROTOCOL.blocks if each.title == block.title)
        assert shared == asked.attacks[:2] and uap.eps == asked.attacks[2].eps


def test_only_attacks_of_a_table_under_a_protocol_are_redefined(tmp_path: Path) -> None:
    text = (ROOT / "tables" / "table2.toml").read_text()
    for name in ("protocol.md", "protocol-uap.md"):
        (tmp_path / name).write_text(name)
    path = tmp_path / "table2.toml"

    def refused(old: str, new: str) -> str:
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(BadInput) as error:
            specs.read(path)
        return str(error.value)

    assert "it names none" in refused('protocol = "protocol.md"\n', "")
    assert "['fgsn'], its blocks have the attacks ['fgsm', 'pgd', 'uap_annealed']" in refused(
        "redefined = { uap_annealed", "redefined = { fgsn"
    )
    assert "protocol-pgd.md, which is not there" in refused('"protocol-uap.md"', '"protocol-pgd.md"')


def test_both_methods_try_the_same_points() -> None:
    for block in PROTOCOL.blocks:
        plain, robust = (PROTOCOL.points(block, method, PROTOCOL.trials) for method in PROTOCOL.methods)
        assert len(plain) == len(robust) == 16 and len({tuple(point.items()) for point in robust}) == 16
        assert [(p["eta_c"], p["eta_s"]) for p in plain] == [(p["eta_c"], p["eta_s"]) for p in robust]


def test_a_trial_looks_at_no_test_image_and_has_a_seed_of_its_own() -> None:
    block = PROTOCOL.blocks[1]
    run = PROTOCOL.trial(
        block, block.candidates[0], "dec_fedtrack", PROTOCOL.points(block, "dec_fedtrack", 1)[0], False
    )
    assert run.blind and run.seed not in PROTOCOL.table_seeds and run.curve == [] and run.rounds == 40
    assert re.fullmatch("[0-9a-f]{64}", run.protocol_sha256 or "")


def test_a_protocol_is_no_table() -> None:
    with pytest.raises(BadInput, match="is a protocol, not a table"):
        specs.read(ROOT / "tables" / "protocol.toml")


def test_a_profile_may_change_step_sizes_and_leaves_the_table_as_it_is() -> None:
    table = specs.read(ROOT / "tables" / "table2.toml")
    quick = table.with_profile("quick")
    for full, short in zip(table.blocks, quick.blocks, strict=True):
        for name, settings in short.trainers.items():
            changed = {key for key in settings if settings[key] != full.trainers[name][key]}
            assert changed <= {"eta_c", "eta_s", "eta_d"} and settings["eta_c"] == 0.1
            assert full.trainers[name]["eta_c"] != 0.1
    assert quick.protocol is None and not quick.redefined_sha256 and table.protocol == "protocol.md"
