"""A unit test of attacks (Zimmermann, Brendel, Tramer, Carlini 2022): an adversarial image that is known to exist.

The last layer of a trained network is replaced, for one image a at a time, by a binary head on its features phi:

    s(a') = c (w . phi(a') - t),      class 1 where s > 0, class 0 elsewhere

w separates the features of points drawn inside the ball around a, and of a itself (class 0), from those of points drawn
on its boundary (class 1); t lies half-way between the highest score inside and the lowest on the boundary. So the
boundary points are adversarial by construction, and no draw inside is. An attack that follows the loss finds one; an
attack that does not, whatever the accuracy that it reports elsewhere, cannot be trusted to have tried.
"""

from dataclasses import dataclass

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from robustbench_dec.attack import Attack, distances
from robustbench_dec.attacking.evaluate import evaluate

INSIDE, BOUNDARY = 400, 1
"""Points that are drawn for each class."""

MARGIN = 2.0
"""What s is at the image itself, negative: losses that are all but flat would test the numbers' precision."""

FOUND = 0.9
"""The share of heads that an attack must see through."""


class BinaryHead(nn.Module):
    """Logits (0, s) on the features of another network."""

    def __init__(self, features: nn.Module, w: Tensor, t: Tensor) -> None:
        super().__init__()
        self.features, self.head = features, nn.Linear(len(w), 2)
        with torch.no_grad():
            self.head.weight.copy_(torch.stack([torch.zeros_like(w), w]))
            self.head.bias.copy_(torch.stack([torch.zeros_like(t), -t]))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits


@dataclass(frozen=True)
class Tried:
    """How many heads there were, and how many of them an attack saw through."""

    heads: int
    found: int

    @property
    def passed(self) -> bool:
        return self.found >= FOUND * self.heads


def tried(attack: Attack, features: nn.Module, images: Tensor, seed: int = 0) -> Tried:
    """The attack on a binary head for each image; a universal one learns its perturbation on that image alone."""
    heads = found = 0
    for number, image in enumerate(images):
        head = constructed(features, image, attack.norm, attack.eps, seed + number)
        if head is None:
            continue
        label = torch.zeros(1, dtype=torch.int64)
        training = image[None].expand(8, -1, -1, -1), label.expand(8)
        outcome = evaluate(attack, head, image[None], label, train=training, seed=seed + number)
        heads, found = heads + 1, found + int(not outcome.robust.item())
    return Tried(heads, found)


def constructed(features: nn.Module, image: Tensor, norm: str, eps: float, seed: int) -> BinaryHead | None:
    """The head of one image (C, H, W); None where no line separates its boundary points from the others."""
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        inside = _drawn(image, norm, eps, INSIDE, boundary=False)
        edge = _drawn(image, norm, eps, BOUNDARY, boundary=True)
        phi = features(torch.cat([image[None], inside, edge])).double()
    scale = phi.std(0).clamp_min(1e-9)
    side = torch.arange(len(phi)) >= len(phi) - BOUNDARY
    fitted = LogisticRegression(C=100.0, class_weight="balanced", max_iter=1000).fit(
        (phi / scale).numpy(), side.numpy()
    )
    w = torch.from_numpy(fitted.coef_[0]) / scale
    score = phi @ w
    inner, outer = score[~side].max(), score[side].min()
    if not outer > inner:
        return None
    t = (inner + outer) / 2
    c = MARGIN / (t - score[0])
    return BinaryHead(features, (c * w).float(), (c * t).float())


def _drawn(image: Tensor, norm: str, eps: float, count: int, *, boundary: bool) -> Tensor:
    """Points (count, C, H, W) of the ball around an image and of [0, 1]; on the boundary, as far out as that allows."""
    shape = (count, *image.shape)
    if norm == "Linf":
        moved = (torch.rand(shape) * 2 - 1) * eps
        return (image + (moved.sign() * eps if boundary else moved)).clamp(0, 1)
    if norm == "L0":
        order = torch.rand(count, image[0].numel()).argsort(1).argsort(1)
        most = max(1, int(eps))
        chosen = (order < (most if boundary else max(1, most // 2))).view(count, 1, *image.shape[1:])
        value = (image < 0.5).to(image) if boundary else torch.rand(shape)
        return torch.where(chosen, value, image)
    direction = torch.randn(shape)
    direction = direction * ((image + 1e-3 * direction.sign()).clamp(0, 1) != image)  # where the box leaves room
    length = torch.full((count,), eps) if boundary else eps * torch.rand(count)
    direction = direction * (length / distances(direction, norm).clamp_min(1e-12)).view(-1, 1, 1, 1)
    return (image + direction).clamp(0, 1)
