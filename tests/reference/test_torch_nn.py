"""Network functions against PyTorch in double precision: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn

pytestmark = [
    pytest.mark.reference,
    pytest.mark.filterwarnings("ignore:reduction:UserWarning"),  # PyTorch's advice
]

RNG = np.random.default_rng(12)


def agree(ours: Any, theirs: Any, *arrays: Any) -> None:
    """The value, and the gradients of a weighted sum of sines."""
    import torch

    leaves = [torch.tensor(a, requires_grad=True) for a in arrays]
    out = theirs(torch, *leaves)
    weights = RNG.standard_normal(tuple(out.shape))
    (torch.sin(out) * torch.tensor(weights)).sum().backward()
    seen = np.asarray(ours(*arrays))
    wanted = out.detach().numpy()
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, 1e-10, 1e-10)
    numbers = tuple(range(len(arrays)))
    found = ta.grad(lambda *xs: ta.sum(ta.sin(ours(*xs)) * weights), numbers)(*arrays)
    for g, leaf in zip(found, leaves, strict=True):
        np.testing.assert_allclose(np.asarray(g), leaf.grad.numpy(), 1e-9, 1e-10)


def draw(*shape: int) -> Any:
    return RNG.standard_normal(shape)


@pytest.mark.parametrize(
    ("n", "how"),
    [
        (1, {"stride": 3, "padding": 1, "output_padding": 2}),
        (2, {"stride": (2, 3), "padding": (1, 2), "output_padding": (1, 0)}),
        (2, {"dilation": (2, 3), "output_padding": (1, 2), "groups": 2}),
        (2, {"stride": 2, "dilation": 4, "output_padding": 3}),
        (3, {"stride": 2, "padding": 1, "groups": 2}),
    ],
)
def test_transposed_convolution(n: int, how: dict[str, Any]) -> None:
    groups = how.get("groups", 1)
    x, w = draw(2, 4, *[5, 4, 3][:n]), draw(4, 6 // groups, *[3, 3, 2][:n])
    ours = getattr(nn, f"conv_transpose{n}d")
    agree(
        lambda x, w, b: ours(x, w, b, **how),
        lambda torch, x, w, b: getattr(torch.nn.functional, f"conv_transpose{n}d")(
            x, w, b, **how
        ),
        *(x, w, draw(6)),
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_pooling(kind: str, n: int) -> None:
    name, how = f"{kind}_pool{n}d", {"stride": 2, "padding": 1}
    x = draw(2, 3, *[7, 6, 5][:n])
    agree(
        lambda x: getattr(nn, name)(x, 3, **how),
        lambda torch, x: getattr(torch.nn.functional, name)(x, 3, **how),
        x,
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, np.array([0.5, 2.0, 1.25, 0.75])])
@pytest.mark.parametrize("ignore", [-100, 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_cross_entropy(
    reduction: Any, weight: Any, ignore: int, smoothing: float
) -> None:
    target = RNG.integers(0, 4, (5, 3))
    target[0, 0] = 3

    def theirs(torch: Any, x: Any) -> Any:
        return torch.nn.functional.cross_entropy(
            x,
            torch.tensor(target),
            weight=None if weight is None else torch.tensor(weight),
            ignore_index=ignore,
            label_smoothing=smoothing,
            reduction=reduction,
        )

    how = {"weight": weight, "ignore_index": ignore, "reduction": reduction}
    agree(
        lambda x: nn.cross_entropy(x, target, label_smoothing=smoothing, **how),
        theirs,
        draw(5, 4, 3),
    )
    if not smoothing:
        agree(
            lambda x: nn.nll_loss(ta.log_softmax(x, axis=1), target, **how),
            theirs,
            draw(5, 4, 3),
        )


def test_cross_entropy_of_probabilities() -> None:
    weight = np.array([0.5, 2.0, 1.25, 0.75])
    agree(
        lambda x, p: nn.cross_entropy(x, p, weight=weight, label_smoothing=0.1),
        lambda torch, x, p: torch.nn.functional.cross_entropy(
            x, p, weight=torch.tensor(weight), label_smoothing=0.1
        ),
        *(draw(5, 4, 3), RNG.uniform(0, 1, (5, 4, 3))),
    )


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("mse_loss", {}),
        ("l1_loss", {}),
        ("huber_loss", {"delta": 0.7}),
        ("smooth_l1_loss", {"beta": 0.7}),
        ("kl_div", {"log_target": True}),
        ("kl_div", {}),
        ("binary_cross_entropy_with_logits", {}),
    ],
)
def test_losses_of_elements(name: str, how: dict[str, Any], reduction: Any) -> None:
    target = (
        RNG.uniform(0.1, 0.9, (4, 3)) if name[0] in "kb" and not how else draw(4, 3)
    )
    agree(
        lambda x, y: getattr(nn, name)(x, y, reduction=reduction, **how),
        lambda torch, x, y: getattr(torch.nn.functional, name)(
            x, y, reduction=reduction, **how
        ),
        *(draw(4, 3), target),
    )


def test_weighed_binary_cross_entropy() -> None:
    weight, positive = RNG.uniform(0.5, 2, (2, 3))
    agree(
        lambda x, y: nn.binary_cross_entropy_with_logits(
            x, y, weight=weight, pos_weight=positive
        ),
        lambda torch, x, y: torch.nn.functional.binary_cross_entropy_with_logits(
            x, y, weight=torch.tensor(weight), pos_weight=torch.tensor(positive)
        ),
        *(draw(4, 3), RNG.uniform(0, 1, (4, 3))),
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("how", [{"size": (8, 3, 5)}, {"scale_factor": 1.7}], ids=str)
def test_interpolation(n: int, how: dict[str, Any]) -> None:
    if "size" in how:
        how = {"size": how["size"][:n]}
    linear = {1: "linear", 2: "bilinear", 3: "trilinear"}[n]
    modes = [(m, None) for m in ("nearest", "nearest-exact", "area")]
    smooth = [linear] + ["bicubic"] * (n == 2)
    modes += [(m, corners) for m in smooth for corners in (False, True)]
    x = draw(2, 3, *[5, 6, 4][:n])
    for mode, corners in modes:
        agree(
            lambda x, m=mode, c=corners: nn.interpolate(
                x, mode=m, align_corners=bool(c), **how
            ),
            lambda torch, x, m=mode, c=corners: torch.nn.functional.interpolate(
                x, mode=m, align_corners=c, **how
            ),
            x,
        )


def test_gather_and_scatter() -> None:
    index = RNG.integers(0, 4, (2, 3))
    x, source = draw(4, 5), draw(2, 3)
    agree(
        lambda x: ta.gather(x, index, axis=0),
        lambda torch, x: torch.gather(x, 0, torch.tensor(index)),
        x,
    )
    agree(
        lambda x, s: ta.scatter_add(x, index, s, axis=0),
        lambda torch, x, s: torch.scatter_add(x, 0, torch.tensor(index), s),
        *(x, source),
    )
    for ours, theirs in (("max", "amax"), ("min", "amin"), ("multiply", "prod")):
        agree(
            lambda x, s, r=ours: ta.scatter(x, index, s, axis=0, reduce=r),
            lambda torch, x, s, r=theirs: torch.scatter_reduce(
                x, 0, torch.tensor(index), s, r
            ),
            *(x, source),
        )
