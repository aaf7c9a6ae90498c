"""Do peers agree? FGSM and PGD accuracies of ours (torchattacks), Foolbox and ART on the same network and images.

PGD starts at the image itself (no random start) everywhere, with 20 steps of eps / 4, in [0, 1]. All libraries attack
all images; an image that is wrong without attack counts as wrong. Needs the extra `peers`. Writes peer_agreement.csv
beside this file and ends with exit code 1 if any accuracy differs by more than 0.3 points.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from attacks.fgsm import FGSM
from attacks.pgd import PGD
from robustbench_dec import files
from robustbench_dec.attack import as_floats, predictions
from robustbench_dec.attacking.evaluate import evaluate
from robustbench_dec.store import zoo

STEPS, REL_ALPHA, POINTS = 20, 0.25, 0.3


def by_foolbox(model: nn.Module, attack: str, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    import foolbox

    wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device="cpu")
    peer: Any
    if attack == "fgsm":
        peer = foolbox.attacks.LinfFastGradientAttack(random_start=False)
    else:
        peer = foolbox.attacks.LinfPGD(rel_stepsize=REL_ALPHA, steps=STEPS, random_start=False)
    _, clipped, _ = peer(wrapped, images, labels, epsilons=eps)
    return clipped


def by_art(model: nn.Module, attack: str, images: Tensor, labels: Tensor, eps: float) -> Tensor:
    from art.attacks.evasion import FastGradientMethod, ProjectedGradientDescentPyTorch
    from art.estimators.classification import PyTorchClassifier

    shape, classes = tuple(images.shape[1:]), model(images[:1]).shape[1]
    wrapped = PyTorchClassifier(model, nn.CrossEntropyLoss(), shape, classes, clip_values=(0, 1), device_type="cpu")
    peer: Any
    if attack == "fgsm":
        peer = FastGradientMethod(wrapped, eps=eps, batch_size=500)
    else:
        alpha = REL_ALPHA * eps
        peer = ProjectedGradientDescentPyTorch(
            wrapped, eps=eps, eps_step=alpha, max_iter=STEPS, num_random_init=0, batch_size=500, verbose=False
        )
    return torch.from_numpy(peer.generate(images.numpy(), labels.numpy()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=["mnist/dec_fedtrack", "cifar10/dec_fedtrack"])
    parser.add_argument("--n-examples", type=int, default=1000, help="first so many test images")
    arguments = parser.parse_args()
    radii = {"mnist": (0.05, 0.1, 0.15), "cifar10": (0.003, 0.005, 0.01)}
    rows = []
    for name in arguments.models:
        (entry,) = zoo.entries(name)
        model, data = entry.model(), entry.problem().images
        images, labels = as_floats(data.test_images[: arguments.n_examples]), data.test_labels[: arguments.n_examples]
        clean = predictions(model, images) == labels
        for attack, eps in tqdm([(a, e) for a in ("fgsm", "pgd") for e in radii[data.name]], desc=name, disable=None):
            own = FGSM(eps) if attack == "fgsm" else PGD(eps, STEPS, REL_ALPHA, random_start=False)
            right = {"ours": evaluate(own, model, images, labels).robust}
            for peer, by in (("foolbox", by_foolbox), ("art", by_art)):
                attacked = by(model, attack, images, labels, eps)
                assert (attacked - images).abs().max() <= eps + 1e-6, f"{peer} left the ball"
                right[peer] = clean & (predictions(model, attacked) == labels)
            row = {"model": name, "attack": attack, "eps": eps, "n_examples": len(labels)}
            row |= {f"{who}_acc": bits.double().mean().item() for who, bits in right.items()}
            for peer in ("foolbox", "art"):
                row[f"{peer}_points"] = round(100 * (row[f"{peer}_acc"] - row["ours_acc"]), 2)
                row[f"{peer}_images_differ"] = int((right[peer] != right["ours"]).sum())
            rows.append(row)
    frame = pd.DataFrame(rows)
    print(frame.to_string(index=False))
    files.write_text(Path(__file__).with_suffix(".csv"), frame.to_csv(index=False, lineterminator="\n"))
    worst = frame[["foolbox_points", "art_points"]].abs().max().max()
    print(f"largest difference: {worst:g} points (allowed: {POINTS:g})")
    sys.exit(int(worst > POINTS))


if __name__ == "__main__":
    main()
