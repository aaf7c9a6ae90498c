"""The convolution of few colours: PyTorch's own layer, to rounding, whatever the sizes."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from robustbench_dec import convolution
from robustbench_dec.architecture import Architecture


@st.composite
def layers(draw: Any) -> tuple[tuple[int, int, int, int], tuple[int, int, int, int], int]:
    """The shapes of images and of a kernel, and a padding, that leave at least one pooled place."""
    kernel, padding = draw(st.integers(1, 7)), draw(st.integers(0, 4))
    smallest = max(1, kernel + 1 - 2 * padding)
    sizes = draw(st.integers(smallest, smallest + 9)), draw(st.integers(smallest, smallest + 9))
    images, colours, channels = draw(st.integers(1, 5)), draw(st.integers(1, 4)), draw(st.integers(1, 6))
    return (images, colours, *sizes), (channels, colours, kernel, kernel), padding


def gradients(layer: Any, inputs: list[Tensor], padding: int, gradient: Tensor) -> list[Tensor]:
    """The layer's values, and the gradients of images, weights and biases."""
    values = layer(*inputs, padding)
    return [values.detach(), *torch.autograd.grad(values, inputs, gradient)]


def inputs(shapes: Any, dtype: torch.dtype, seed: int, *, steps: int | None = None) -> tuple[list[Tensor], Tensor]:
    """Images, weights, biases and a gradient: normal numbers, or a few multiples of 1/8, whose sums are exact."""
    generator = torch.Generator().manual_seed(seed)
    (images, kernel, padding) = shapes
    pooled = [(size + 2 * padding - kernel[-1] + 1) // 2 for size in images[2:]]

    def tensor(*shape: int) -> Tensor:
        if steps is None:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)
        return (torch.randint(-steps, steps + 1, shape, generator=generator) / 8).to(dtype)

    leaves = [tensor(*images), tensor(*kernel), tensor(kernel[0])]
    return [leaf.requires_grad_() for leaf in leaves], tensor(images[0], kernel[0], *pooled)


def close(found: list[Tensor], expected: list[Tensor], tolerance: float) -> bool:
    return all(
        a.shape == b.shape and (a - b).norm() <= tolerance * b.norm() for a, b in zip(found, expected, strict=True)
    )


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(layers(), st.integers(0, 2**31))
def test_values_and_gradients_are_those_of_the_plain_layer(shapes: Any, seed: int) -> None:
    leaves, gradient = inputs(shapes, torch.float64, seed)
    own = gradients(convolution._PooledConvolution.apply, leaves, shapes[2], gradient)
    assert close(own, gradients(convolution.plain, leaves, shapes[2], gradient), 1e-12)


@settings(max_examples=60, deadline=None)
@given(layers(), st.integers(0, 2**31), st.integers(0, 2))
def test_the_first_of_equal_values_gets_the_gradient_as_in_the_plain_layer(shapes: Any, seed: int, steps: int) -> None:
    # Sums of so few multiples of 1/8 do not round: many of the four values under a pooled one are equal.
    leaves, gradient = inputs(shapes, torch.float32, seed, steps=steps)
    own = gradients(convolution._PooledConvolution.apply, leaves, shapes[2], gradient)
    assert close(own, gradients(convolution.plain, leaves, shapes[2], gradient), 1e-5)


def test_single_precision_differs_by_rounding_alone_on_the_suites_own_layer() -> None:
    leaves, gradient = inputs(((128, 1, 28, 28), (16, 1, 5, 5), 2), torch.float32, 0)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    own = gradients(convolution._PooledConvolution.apply, leaves, 2, gradient)
    for found, expected in zip(own, gradients(convolution.plain, exact, 2, gradient.double()), strict=True):
        assert (found.double() - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (1, 2), (0, 2)])
def test_only_the_gradients_that_are_asked_for_are_computed(wanted: tuple[int, ...]) -> None:
    leaves, gradient = inputs(((3, 1, 9, 8), (2, 1, 3, 3), 1), torch.float64, 1)
    expected = gradients(convolution.plain, leaves, 1, gradient)[1:]
    for place, leaf in enumerate(leaves):
        leaf.requires_grad_(place in wanted)
    images, weight, bias = leaves
    values = convolution.pooled_convolution(images, weight, bias, 1)
    found = torch.autograd.grad(values, [leaves[place] for place in wanted], gradient)
    assert close(list(found), [expected[place] for place in wanted], 1e-12)


@pytest.mark.slow
def test_it_can_be_differentiated_twice() -> None:
    leaves, _ = inputs(((2, 1, 6, 7), (2, 1, 3, 3), 1), torch.float64, 2)

    def layer(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return convolution.pooled_convolution(images, weight, bias, 1)

    assert torch.autograd.gradcheck(layer, leaves)
    assert torch.autograd.gradgradcheck(layer, leaves)


def test_an_images_result_does_not_depend_on_the_images_beside_it() -> None:
    (images, weight, bias), gradient = inputs(((150, 1, 28, 28), (16, 1, 5, 5), 2), torch.float32, 3)
    values = convolution.pooled_convolution(images, weight, bias, 2)
    whole = torch.autograd.grad(values, images, gradient)[0]
    for some in (slice(0, 1), slice(7, 40), slice(60, 150)):
        alone = convolution.pooled_convolution(images[some], weight, bias, 2)
        assert torch.equal(alone, values[some])
        assert torch.equal(torch.autograd.grad(alone, images, gradient[some])[0][some], whole[some])


@pytest.mark.slow
def test_the_network_takes_it_for_one_colour_and_works_under_torch_func() -> None:
    model = Architecture(name="cnn2", shape=(1, 28, 28), classes=10, mean=(0.1,), std=(0.3,)).build()
    images = torch.rand(2, 1, 28, 28, requires_grad=True)
    names = set()

    def walk(node: Any) -> None:
        if node is not None:
            names.add(node.name())
            for former, _ in node.next_functions:
                walk(former)

    logits = model(images)
    walk(logits.grad_fn)
    assert any("_PooledConvolution" in name for name in names)
    own = torch.autograd.grad(logits.sum(), images)[0]
    by_func = torch.func.grad(lambda batch: model(batch).sum())(images.detach())
    assert torch.allclose(own, by_func, rtol=1e-4, atol=1e-6)
