"""Losses against their formulas, written out for one element after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.errors import (
    DTypeError,
    IndexRangeError,
    InvalidArgumentError,
    ShapeError,
    TenferroError,
)

RNG = np.random.default_rng(6)
X = RNG.standard_normal((5, 4, 3))
Y = RNG.standard_normal((5, 4, 3))
LOGP = special.log_softmax(X, 1)
CLASSES = RNG.integers(0, 4, (5, 3))
CLASSES[1, 2] = CLASSES[4, 0] = 3
WEIGHT = np.array([0.5, 2.0, 1.25, 0.75])
P = special.softmax(Y, 1)


def close(seen: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, tolerance, tolerance)


# ---- classes -------------------------------------------------------------------------


def of_classes(
    weight: Any, ignore: int | None, smoothing: float, reduction: str
) -> Any:
    """Cross-entropy sample by sample, as PyTorch's documentation defines it."""
    w = np.ones(4) if weight is None else weight
    losses, counts = np.zeros(CLASSES.shape), np.zeros(CLASSES.shape)
    for sample in np.ndindex(CLASSES.shape):
        c = CLASSES[sample]
        if c == ignore:
            continue
        logp = LOGP[sample[0], :, sample[1]]
        even = sum(w[k] * logp[k] for k in range(4)) / 4
        losses[sample] = -(1 - smoothing) * w[c] * logp[c] - smoothing * even
        counts[sample] = w[c]
    match reduction:
        case "none":
            return losses
        case "sum":
            return losses.sum()
    return losses.sum() / counts.sum()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("weight", [None, WEIGHT], ids=["even", "weighed"])
@pytest.mark.parametrize("ignore", [None, 3])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy(
    weight: Any, ignore: int | None, smoothing: float, reduction: Any
) -> None:
    def f(x: Any, **more: Any) -> Any:
        return nn.cross_entropy(
            x,
            CLASSES,
            weight=weight,
            ignore_index=ignore,
            label_smoothing=smoothing,
            reduction=reduction,
            **more,
        )

    close(f(X), of_classes(weight, ignore, smoothing, reduction))
    turned = nn.cross_entropy(
        np.moveaxis(X, 1, -1),
        CLASSES,
        weight=weight,
        ignore_index=ignore,
        label_smoothing=smoothing,
        reduction=reduction,
        axis=-1,
    )
    close(turned, of_classes(weight, ignore, smoothing, reduction))
    ta.testing.check_grads(f, (X,), order=2)
    if not smoothing:
        nll = nn.nll_loss(
            LOGP, CLASSES, weight=weight, ignore_index=ignore, reduction=reduction
        )
        close(nll, of_classes(weight, ignore, 0.0, reduction))


def test_ignored_targets_need_not_be_classes() -> None:
    target = np.where(CLASSES == 3, -100, CLASSES)
    wanted = of_classes(None, 3, 0.0, "mean")
    close(nn.cross_entropy(X, target, ignore_index=-100), wanted)
    close(nn.nll_loss(LOGP, target, ignore_index=-100), wanted)
    g = ta.grad(lambda x: nn.cross_entropy(x, target, ignore_index=-100))(X)
    assert np.all(np.moveaxis(np.asarray(g), 1, -1)[target == -100] == 0)
    with pytest.raises(IndexRangeError, match="target"):
        nn.cross_entropy(X, target)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("smoothing", [0.0, 0.3])
def test_cross_entropy_of_probabilities(smoothing: float, reduction: Any) -> None:
    p = P * (1 - smoothing) + smoothing / 4
    losses = -np.sum(p * LOGP * WEIGHT[:, None], 1)
    wanted = {"mean": losses.mean(), "sum": losses.sum(), "none": losses}[reduction]

    def f(x: Any, p: Any) -> Any:
        return nn.cross_entropy(
            x, p, weight=WEIGHT, label_smoothing=smoothing, reduction=reduction
        )

    close(f(X, P), wanted)
    ta.testing.check_grads(f, (X, P), order=2)


# ---- elements ------------------------------------------------------------------------

Scalar = Callable[[float, float], float]


def huber(delta: float) -> Scalar:
    def loss(x: float, y: float) -> float:
        d = abs(x - y)
        return d * d / 2 if d <= delta else delta * (d - delta / 2)

    return loss


def kl(x: float, y: float) -> float:
    return 0.0 if y == 0 else y * (math.log(y) - x)


def bce(x: float, y: float, pos: float = 1.0) -> float:
    p = 1 / (1 + math.exp(-x))
    return -(pos * y * math.log(p) + (1 - y) * math.log(1 - p))


ELEMENTS: dict[str, tuple[Callable[..., Any], Scalar, Any]] = {
    "mse": (nn.mse_loss, lambda x, y: (x - y) ** 2, Y),
    "l1": (nn.l1_loss, lambda x, y: abs(x - y), Y),
    "huber": (nn.huber_loss, huber(1.0), Y),
    "huber, narrow": (
        lambda *xs, **how: nn.huber_loss(*xs, delta=0.3, **how),
        huber(0.3),
        Y,
    ),
    "smooth_l1": (nn.smooth_l1_loss, huber(1.0), Y),
    "smooth_l1, narrow": (
        lambda *xs, **how: nn.smooth_l1_loss(*xs, beta=0.4, **how),
        lambda x, y: huber(0.4)(x, y) / 0.4,
        Y,
    ),
    "smooth_l1 at 0": (
        lambda *xs, **how: nn.smooth_l1_loss(*xs, beta=0.0, **how),
        lambda x, y: abs(x - y),
        Y,
    ),
    "kl_div": (nn.kl_div, kl, P),
    "kl_div of logarithms": (
        lambda *xs, **how: nn.kl_div(*xs, log_target=True, **how),
        lambda x, y: math.exp(y) * (y - x),
        np.log(P),
    ),
    "binary_cross_entropy_with_logits": (
        nn.binary_cross_entropy_with_logits,
        bce,
        P,
    ),
    "binary_cross_entropy_with_logits, positive": (
        lambda *xs, **how: nn.binary_cross_entropy_with_logits(
            *xs, pos_weight=3.0, **how
        ),
        lambda x, y: bce(x, y, 3.0),
        P,
    ),
}


@pytest.mark.parametrize("name", ELEMENTS)
def test_losses_of_elements(name: str) -> None:
    fn, scalar, target = ELEMENTS[name]
    losses = np.vectorize(scalar)(X, target)
    close(fn(X, target, reduction="none"), losses)
    close(fn(X, target), losses.mean())
    close(fn(X, target, reduction="sum"), losses.sum())
    ta.testing.check_grads(lambda x, y: fn(x, y), (X, target), order=2, rtol=1e-6)
    # Broadcast, and at the precision of the arguments.
    close(fn(X, target[:1], reduction="none"), np.vectorize(scalar)(X, target[:1]))
    assert fn(X.astype("f4"), target.astype("f4")).dtype == np.float32


def test_what_is_special_about_some() -> None:
    close(nn.kl_div(LOGP, P, reduction="batchmean"), np.sum(P * (np.log(P) - LOGP)) / 5)
    assert nn.kl_div(np.array([-1.0]), np.array([0.0])).item() == 0.0
    weighed = nn.binary_cross_entropy_with_logits(X, P, weight=WEIGHT[:, None])
    close(weighed, np.mean(np.vectorize(bce)(X, P) * WEIGHT[:, None]))
    far = nn.binary_cross_entropy_with_logits(np.array([1e4, -1e4]), np.array([0.0, 0]))
    close(far, 5e3)
    g = ta.grad(lambda x: nn.l1_loss(x, np.array([1.0, 2.0]), reduction="sum"))
    assert g(np.array([1.0, 5.0])).tolist() == [0.0, 1.0]


def test_refusals_name_the_loss() -> None:
    wrong: list[tuple[Callable[[], Any], type[TenferroError], str, str | None]] = [
        (lambda: nn.cross_entropy(X, CLASSES, weight=np.ones(3)), ShapeError,
         "cross_entropy", "weight"),
        (lambda: nn.cross_entropy(X, CLASSES, label_smoothing=1.5),
         InvalidArgumentError, "cross_entropy", "label_smoothing"),
        (lambda: nn.cross_entropy(X, P, ignore_index=1), InvalidArgumentError,
         "cross_entropy", "ignore_index"),
        (lambda: nn.cross_entropy(X, CLASSES, reduction="median"),
         InvalidArgumentError, "cross_entropy", "reduction"),
        (lambda: nn.nll_loss(LOGP, CLASSES[:2]), ShapeError, "nll_loss", "target"),
        (lambda: nn.nll_loss(LOGP, CLASSES, axis=7), IndexRangeError, "nll_loss",
         "axis"),
        (lambda: nn.nll_loss(LOGP, CLASSES + 1), IndexRangeError, "nll_loss",
         "target"),
        (lambda: nn.mse_loss(X, np.ones(7)), ShapeError, "mse_loss", None),
        (lambda: nn.l1_loss(X, np.ones(7)), ShapeError, "l1_loss", None),
        (lambda: nn.huber_loss(X, Y, delta=0.0), InvalidArgumentError, "huber_loss",
         "delta"),
        (lambda: nn.smooth_l1_loss(X, Y, beta=-1.0), InvalidArgumentError,
         "smooth_l1_loss", "beta"),
        (lambda: nn.kl_div(X, P + 0j), DTypeError, "kl_div", "target"),
        (lambda: nn.kl_div(X, P, reduction="most"),  # type: ignore[arg-type]
         InvalidArgumentError, "kl_div", "reduction"),
        (lambda: nn.binary_cross_entropy_with_logits(X + 0j, P), DTypeError,
         "binary_cross_entropy_with_logits", "logits"),
        (lambda: nn.embedding(np.ones((3, 2)), np.array([3])), IndexRangeError,
         "embedding", "indices"),
        (lambda: nn.embedding(np.array(1.0), np.array([3])), ShapeError, "embedding",
         "weight"),
        (lambda: nn.embedding(np.ones((3, 2)), np.array([1]), padding_idx=3),
         IndexRangeError, "embedding", "padding_idx"),
    ]  # fmt: skip
    for call, kind, operation, argument in wrong:
        with pytest.raises(kind) as caught:
            call()
        seen = (caught.value.operation, caught.value.argument)
        assert seen == (operation, argument), str(caught.value)
        del caught


def test_the_padding_row_of_a_table_takes_no_gradient() -> None:
    table, index = RNG.standard_normal((4, 2)), np.array([[1, 3, -1], [0, 1, 3]])
    g = ta.grad(lambda w: ta.sum(ta.square(nn.embedding(w, index, padding_idx=-1))))(
        table
    )
    wanted = 2 * table * np.array([1, 2, 0, 0])[:, None]
    close(g, wanted)
    close(nn.embedding(table, index, padding_idx=3), table[index])
