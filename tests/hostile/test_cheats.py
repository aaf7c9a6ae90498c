"""Attacks that cheat: none gets an undeserved number, none stops the others."""

import contextlib
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from robustbench_dec import shelf
from robustbench_dec.attack import predictions, put_back
from robustbench_dec.attacking import attack_process
from robustbench_dec.attacking.evaluate import Failed, Limits, Outcome, evaluate
from robustbench_dec.attacking.find_attack import attack_handed_over, attack_named, in_file
from robustbench_dec.attacking.model_use import digest
from robustbench_dec.errors import BadInput

attack_module: Any = sys.modules["robustbench_dec.attack"]  # its name is that of a function too
FILE = Path(__file__).with_name("cheats.py")
EPS = 0.1

ASKS_TOO_OFTEN = (
    "TakesTooManyPasses", "CallsTheNetworkInside", "GoesBackForEver", "ForgesQuestions", "StopsInTime", "AsksACopy",
)  # fmt: skip
"""Attacks whose passes are limited to 20 an image."""

NEVER_END = ("NeverEnds", "StopsItsParent")
"""Attacks that have 2 seconds."""

IDLE: dict[str, tuple[str, ...]] = {
    "ZeroesWeights": ("model",),
    "SpoilsBuffers": ("model",),
    "LeavesHooks": ("model",),
    "TrainsMode": ("model",),
    "PatchesForward": ("model",),
    "FindsTheJudge": ("model",),
    "Reseeds": (),
    "LeavesThreads": ("model",),
    "ChangesSettings": (),
    "ReturnsSomeNaN": ("nan",),
    "Prints": (),
    "TakesTooManyPasses": ("passes",),
    "CallsTheNetworkInside": ("passes",),
    "GoesBackForEver": ("passes",),
    "ForgesQuestions": ("passes",),
    "AsksACopy": ("passes",),
}
"""Attacks that change no image: every image that was right stays right. With the flags that they must get."""

REFUSED = {
    "PatchesClass": r"replaced \w+\.forward, by which it is judged",
    "PatchesTorch": "replaced torch.clamp, by which it is judged|replaced Tensor.argmax, by which it is judged",
    "CallsExit": r"sys\.exit\(0\)",
    "CallsOsExit": "ended its own process with exit code 0, without an answer",
    "KillsItself": "ended its own process by signal 11",
    "NeverEnds": "took more than 2 seconds .--max-seconds., and was ended",
    "Grows": "took more than 1.5 GB of memory .--max-memory., and was ended",
    "ReturnsNaN": "NaN or infinity in every image",
    "FalseUniversal": "fit should return a Shift, one perturbation for all images, it returned FalseUniversal",
    "NoFit": "says universal = True, but has no fit that returns a Shift",
    "ShiftOfAnotherShape": r"a perturbation for these images has the shape \(1, 8, 8\), this one has \(200, 8, 8\)",
    "Empty": "Empty has no perturb",
    "Raises": r"raised ValueError: of my own \(cheats\.py, line \d+\)",
    "SetsItsOwnRadius": "SetsItsOwnRadius was asked for the radius 0.1 and sets its own, 0.3",
    "TellsAnotherRadius": "was asked for the radius 0.1 and sets its own, 0.01",
    "NormIsAProperty": r"tells no class, norm \(Linf, L2, L1, L0\) and settings",
    "ForgesNegativeCounts": "answered with something that is no answer",
    "ForgesInfiniteCounts": "answered with something that is no answer",
    "ForgesFlags": "answered with something that is no answer",
    "ForgesIntegers": "answered with something that is no answer",
    "ForgesPraise": "answered with something that is no answer",
    "ForgesSmallFloats": "answered with something that is no answer",
    "PraisesItself": "tells nothing of use about it",
    "ForgesDepth": "answered with bytes that are no message",
    "ForgesEndlessShapes": "answered with bytes that are no message",
    "SaysControlCharacters": r"ValueError: \\x1b\[2J\\x1b\[1;1H0\.0 % robust\\u202e\\x07",
    "CannotBeToldWhatItRaised": r"raised Mute",
    "KillsItsParent": "ended its own process by signal 9, without an answer",
    "GrowsInAChild": "took more than 1.5 GB of memory .--max-memory., and was ended",
}
"""Attacks that get no number, with the words of the refusal."""


def judged(name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Any, **options: Any) -> Outcome:
    """As a user's file is judged: in a process of its own."""
    attack = shelf.make(attack_named(f"{FILE}:{name}"), {"eps": EPS})
    passes = 20 if name in ASKS_TOO_OFTEN else None
    limits = Limits(passes, seconds=2.0 if name in NEVER_END else 60.0, gigabytes=1.5)
    return evaluate(attack, model, images, labels, train=training, limits=limits, **options)


def surroundings() -> tuple[Any, ...]:
    """All of this process that an attack must not reach."""
    return (
        torch.get_rng_state().tolist(),
        random.getstate(),
        [np.asarray(part).tolist() for part in np.random.get_state()],
        torch.get_default_dtype(),
        torch.get_num_threads(),
        torch.is_grad_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        threading.active_count(),
        torch.Tensor.argmax,
        torch.clamp,
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", IDLE)
def test_who_changes_no_image_breaks_none(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    before, sha256 = surroundings(), digest(model)
    outcome = judged(name, model, images, labels, training)
    assert outcome.robust.equal(outcome.clean) and outcome.clean.equal(predictions(model, images) == labels)
    assert outcome.flags == IDLE[name]
    assert surroundings() == before and digest(model) == sha256
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
@pytest.mark.parametrize("name", REFUSED)
def test_who_breaks_the_rules_gets_no_number(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Any
) -> None:
    before = surroundings()
    with pytest.raises(BadInput, match=REFUSED[name]):
        judged(name, model, images, labels, training)
    assert surroundings() == before
    fair = judged("Honest", model, images, labels, training)  # the next one is not stopped
    assert fair.flags == () and fair.robust_accuracy < fair.clean_accuracy


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SwapsImages", "LeavesTheBall", "WritesInPlace", "ReturnsItsOwnTensor"])
def test_who_leaves_the_ball_is_put_back_and_flagged(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Any
) -> None:
    outcome = judged(name, model, images, labels, training)
    assert outcome.flags == ("budget",)
    right = outcome.clean
    a, moved = images[right], {"SwapsImages": images[right].roll(1, 0), "WritesInPlace": 0 * images[right]}
    proposed = a + (moved.get(name, 1 - a) - a).clamp(-EPS, EPS)
    assert outcome.robust[right].equal(predictions(model, proposed) == labels[right])


def test_rounding_is_no_offence_and_no_gain(model: nn.Module, images: Tensor, labels: Tensor, training: Any) -> None:
    honest, rounded = (judged(name, model, images, labels, training) for name in ("Honest", "RoundsUp"))
    assert rounded.flags == () and rounded.robust.equal(honest.robust)


@pytest.mark.slow
def test_a_limit_of_passes_can_be_kept(model: nn.Module, images: Tensor, labels: Tensor, training: Any) -> None:
    honest, stopped = (judged(name, model, images, labels, training) for name in ("Honest", "StopsInTime"))
    assert stopped.flags == () and stopped.robust.equal(honest.robust)
    assert stopped.forwards + stopped.backwards <= 20 * len(images)


@pytest.mark.slow
def test_a_shift_is_its_y_and_nothing_else(model: nn.Module, images: Tensor, labels: Tensor, training: Any) -> None:
    clever = judged("ReturnsCleverShift", model, images, labels, training)
    assert clever.robust.equal(clever.clean)  # its y is 0
    wide = judged("WideShift", model, images, labels, training)
    assert wide.flags == ("budget",)
    assert wide.robust.equal(predictions(model, (images + EPS).clamp(0, 1)) == labels)


@pytest.mark.slow
def test_a_process_of_its_own_changes_no_number(
    model: nn.Module, images: Tensor, labels: Tensor, training: Any
) -> None:
    class Wrapped(nn.Module):
        """A network that cannot be sent, and stays here."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, images: Tensor) -> Tensor:
            logits: Tensor = self.inner(images)
            return logits

    here = evaluate(in_file(f"{FILE}:Honest").make({"eps": EPS}), model, images, labels, batch_size=25)
    for network in (model, Wrapped()):
        there = judged("Honest", network, images, labels, training, batch_size=25)
        assert there.robust.equal(here.robust) and there.flags == here.flags == ()
        assert (there.forwards, there.backwards) == (here.forwards, here.backwards)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ZeroesWeights", "PatchesClass", "PatchesTorch", "CallsExit", "FindsTheJudge"])
def test_objects_handed_over_in_python_are_judged_by_a_copy_too(
    name: str, model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    before = surroundings()
    attack, sha256 = in_file(f"{FILE}:{name}").make({"eps": EPS}), digest(model)
    if name == "ZeroesWeights":
        outcome = evaluate(attack, model, images, labels)
        assert outcome.robust.equal(outcome.clean) and outcome.flags == ("model",)
    else:
        words = {"CallsExit": "sys.exit", "FindsTheJudge": "network that judges was changed"}
        with pytest.raises((BadInput, RuntimeError), match=words.get(name, "by which it is judged")):
            evaluate(attack, model, images, labels)
    assert surroundings() == before
    assert name == "FindsTheJudge" or digest(model) == sha256
    assert predictions(model, images).shape == labels.shape


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CallsOsExit", "NeverEnds"])
def test_an_attack_that_ends_in_one_batch_is_tried_on_the_next_ones(
    name: str, model: nn.Module, images: Tensor, labels: Tensor, training: Any
) -> None:
    with pytest.raises(Failed, match=rf"{name} failed on batch 1 of 2 \(and on 1 more\): it "):
        judged(name, model, images, labels, training, batch_size=30, parts={})


def test_no_process_is_left_over(model: nn.Module, images: Tensor, labels: Tensor, training: Any) -> None:
    judged("LeavesThreads", model, images, labels, training)
    nursery = attack_process.nursery(os.getpid()).process.pid
    children = Path(f"/proc/{nursery}/task/{nursery}/children").read_text().split()
    assert children == []


@pytest.mark.parametrize(
    "content, words",
    [
        ("import sys; sys.exit(0)", "cannot be imported: SystemExit: 0"),
        ("import os; os._exit(3)", "ended its own process with exit code 3"),
        ("x = 1 +", "cannot be imported: SyntaxError"),
        ("import torch; torch.zeros(2) @ torch.zeros(3)", r"cannot be imported: RuntimeError: .*file\.py, line 1"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_sentence(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "file.py").write_text(content)
    with pytest.raises(BadInput, match=words):
        attack_named(str(tmp_path / "file.py"))


def test_a_norm_is_the_classs_whatever_the_radius() -> None:
    cls = attack_named(f"{FILE}:NormByRadius")
    assert cls.make({"eps": 0.1}).norm == "Linf"
    with pytest.raises(BadInput, match=r"has the norm 'L0', its class says 'Linf'"):
        cls.make({"eps": 0})


@pytest.mark.parametrize("name", ["SetsItsOwnRadius", "NormByRadius"])
def test_classes_handed_over_in_python_have_the_radius_they_are_asked_for(name: str) -> None:
    with pytest.raises(BadInput, match=r"sets its own, 0\.3|has the norm 'L0'"):
        in_file(f"{FILE}:{name}").make({"eps": 0.1 if name == "SetsItsOwnRadius" else 0})


def test_the_ball_is_read_before_the_attack_is_asked(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    outcome = evaluate(in_file(f"{FILE}:GrowingRadius").make({"eps": EPS}), model, images, labels)
    right = outcome.clean
    a = images[right]
    assert outcome.flags == ("budget",) and outcome.ball == ("Linf", EPS)
    proposed = (a + (1 - 2 * a).clamp(-EPS, EPS)).clamp(0, 1)
    assert outcome.robust[right].equal(predictions(model, proposed) == labels[right])


@pytest.mark.slow
def test_a_universal_attack_is_judged_in_its_own_norm(
    model: nn.Module, images: Tensor, labels: Tensor, training: Any
) -> None:
    attack = attack_named(f"{FILE}:UniversalInAnotherNorm").make({"eps": 0.9})
    outcome = evaluate(attack, model, images, labels, train=training)
    assert outcome.flags == ("budget",) and outcome.ball == ("L2", 0.9)
    assert outcome.robust.equal(predictions(model, (images + 0.9 / 8).clamp(0, 1)) == labels)


@pytest.mark.slow
def test_a_shift_handed_over_is_its_y(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    clever = in_file(f"{FILE}:CleverShift").make({"y": torch.zeros(1, 8, 8), "eps": EPS})
    outcome = evaluate(clever, model, images, labels)
    assert outcome.robust.equal(outcome.clean)


@pytest.mark.slow
def test_a_limit_of_passes_is_held_here(model: nn.Module, images: Tensor, labels: Tensor, training: Any) -> None:
    """An attack whose passes are limited does not get the weights, and is not asked how many it took."""
    for name in ASKS_TOO_OFTEN:
        outcome = judged(name, model, images, labels, training)
        assert 0 < outcome.forwards + outcome.backwards <= 20 * len(images), name
    for name in ("CallsTheNetworkInside", "GoesBackForEver", "AsksACopy"):  # an object in this process
        attack = in_file(f"{FILE}:{name}").make({"eps": EPS})
        outcome = evaluate(attack, model, images, labels, limits=Limits(passes=20))
        assert outcome.flags == ("passes",) and outcome.robust.equal(outcome.clean)
        assert outcome.forwards + outcome.backwards <= 20 * len(images)


@pytest.mark.slow
def test_who_stops_the_process_that_starts_attacks_stops_nobody_else(
    model: nn.Module, images: Tensor, labels: Tensor, training: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_process, "UNHEARD", 2.0)
    with pytest.raises(BadInput, match=r"took more than 2 seconds .--max-seconds., and was ended"):
        judged("StopsItsParent", model, images, labels, training)
    assert judged("Honest", model, images, labels, training).flags == ()


@pytest.mark.slow
def test_a_daemon_of_an_attack_ends_with_it(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    training: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    attack_process.nursery.cache_clear()  # the next one gets the variable
    monkeypatch.setenv("HOSTILE_DAEMON", str(tmp_path / "pid"))
    judged("LeavesADaemon", model, images, labels, training)
    daemon = int((tmp_path / "pid").read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(daemon, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "PatchesAProperty",
        "PatchesEquality",
        "PatchesTheSuite",
        "SwapsCode",
        "PatchesDigests",
        "LeavesAMode",
        "RegistersAKernel",
    ],
)
def test_what_judges_is_put_back_in_the_callers_process(
    name: str, model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    attack = in_file(f"{FILE}:{name}").make({"eps": EPS})
    with pytest.raises(BadInput, match=r"it (replaced \w+|left a mode)[\w./ ]*, by which it is judged; that was"):
        evaluate(attack, model, images, labels)
    fair = evaluate(in_file(f"{FILE}:Honest").make({"eps": EPS}), model, images, labels)
    assert fair.flags == () and fair.clean.equal(predictions(model, images) == labels)


@pytest.mark.slow
def test_threads_and_labels_of_the_callers_process(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    images, labels = images[:37].clone(), labels[:37].clone()
    true = labels.tolist()  # as no tensor, so that nobody finds them
    for name, words in (("StartsAThread", "left 1 thread"), ("FindsTheLabels", "labels that judge were changed")):
        with pytest.raises(BadInput, match=words):
            evaluate(in_file(f"{FILE}:{name}").make({"eps": EPS}), model, images, labels)
    labels = torch.tensor(true)
    with pytest.raises(BadInput, match="labels that judge were changed"):
        evaluate(in_file(f"{FILE}:FindsLaterLabels").make({"eps": EPS}), model, images, labels, batch_size=20)


class Flat(nn.Module):
    """A network that takes every 64 numbers for an image."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.linear(images.reshape(-1, 64))
        return logits


def test_images_are_counted_however_they_are_asked(images: Tensor, labels: Tensor) -> None:
    torch.manual_seed(0)
    network, limits = Flat(), Limits(passes=20)
    many = evaluate(in_file(f"{FILE}:AsksManyAtOnce").make({"eps": EPS}), network, images, labels, limits=limits)
    assert many.flags == ("passes",) and many.robust.equal(many.clean)
    for passes in (None, 20):
        with pytest.raises(BadInput, match=r"images have the shape \(N, 1, 8, 8\), not \(1, 100, 8, 8\)"):
            attack = attack_named(f"{FILE}:AsksInTheShapeOfOne").make({"eps": EPS})
            evaluate(attack, network, images, labels, limits=Limits(passes))


def test_only_plain_numbers_come_back(model: nn.Module, images: Tensor, labels: Tensor, training: Any) -> None:
    honest = judged("Honest", model, images, labels, training)
    doubles = judged("ReturnsDoubles", model, images, labels, training)
    assert doubles.flags == () and doubles.robust.equal(honest.robust)
    wrapped = evaluate(in_file(f"{FILE}:ReturnsAWrapper").make({"eps": EPS}), model, images, labels)
    assert wrapped.flags == ("budget",) and type(wrapped.robust) is Tensor


def test_what_does_not_count_as_a_change_is_none(images: Tensor) -> None:
    moved = in_file(f"{FILE}:ManySmallSteps").make({"eps": 1}).perturb(nn.Identity(), images, images)
    assert not moved.equal(images) and put_back(images, moved, 1, "L0").equal(images)


def test_a_file_that_changes_itself_is_not_run_on(
    model: nn.Module, images: Tensor, labels: Tensor, tmp_path: Path
) -> None:
    file = tmp_path / "edits.py"
    file.write_bytes(FILE.read_bytes())
    attack = attack_named(f"{file}:Edits").make({"eps": EPS})
    with pytest.raises(BadInput, match=r"ended its own process with exit code 1|was edited while it was in use"):
        evaluate(attack, model, images, labels, batch_size=30, parts={})
    with pytest.raises(BadInput, match="was edited while it was in use"):
        evaluate(attack, model, images, labels)


def sets_a_constant() -> None:
    attack_module.TOLERANCE = 1e3


def sets_a_field() -> None:
    attack_module.Ball.eps = property(lambda _: 1.0)


def sets_what_is_wrapped() -> None:
    def nothing(_: nn.Module) -> Iterator[None]:
        yield

    attack_module.eval_mode.__closure__[0].cell_contents = nothing


def sets_an_alarm() -> None:
    signal.signal(signal.SIGVTALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_VIRTUAL, 100)


def sets_a_profile() -> None:
    sys.setprofile(lambda *_: None)


@pytest.mark.parametrize(
    "trick, words",
    [
        (sets_a_constant, "replaced robustbench_dec.attack.TOLERANCE"),
        (sets_a_field, "replaced Ball.eps"),
        (sets_what_is_wrapped, "replaced robustbench_dec.attack.eval_mode"),
        (sets_an_alarm, "left a handler of SIGVTALRM"),
        (sets_a_profile, None),
    ],
)
def test_what_a_function_in_python_sets_is_put_back(
    trick: Callable[[], None], words: str | None, model: nn.Module, images: Tensor, labels: Tensor
) -> None:
    def mine(model: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Tensor:
        trick()
        return images

    def state() -> list[object]:
        module = attack_module
        wrapped = module.eval_mode.__closure__[0].cell_contents
        timers = signal.getsignal(signal.SIGVTALRM), signal.getitimer(signal.ITIMER_VIRTUAL)
        return [module.TOLERANCE, vars(module.Ball)["eps"], wrapped, *timers, sys.getprofile()]

    before = state()
    attack = attack_handed_over(mine, model)[0].make({"eps": EPS})
    with pytest.raises(BadInput, match=words) if words else contextlib.nullcontext():
        evaluate(attack, model, images, labels)
    assert state() == before
