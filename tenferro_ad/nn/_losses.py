"""Losses composed of public functions: PyTorch's semantics and names.

Arguments broadcast against each other where their shapes differ. `reduction` is "mean"
or "sum" over all elements, or "none".
"""

from __future__ import annotations

import math
from typing import Any, Literal

import tenferro_ad as ta
from tenferro_ad import special
from tenferro_ad.errors import named

from ._arguments import number, together

Reduction = Literal["mean", "sum", "none"]


def _reduced(operation: str, losses: ta.EagerTensor, reduction: str) -> ta.EagerTensor:
    match reduction:
        case "mean":
            return ta.mean(losses)
        case "sum":
            return ta.sum(losses)
        case "none":
            return losses
    raise ta.errors.InvalidArgumentError(
        operation=operation,
        argument="reduction",
        found=repr(reduction),
        fix='pass "mean", "sum" or "none"',
    )


def _distance(x: Any, target: Any) -> ta.EagerTensor:
    """|x - target|, with slope 0 where they are equal."""
    return ta.abs(ta.subtract(*together(x, target)))


# ---- distances -----------------------------------------------------------------------


@named(y="target")
def mse_loss(x: Any, target: Any, *, reduction: Reduction = "mean") -> ta.EagerTensor:
    """|x - target|^2.

    Args:
        x, target: values that broadcast against each other.
        reduction: "mean" or "sum" over all elements, or "none".

    Raises:
        ShapeError: the shapes do not fit.
        InvalidArgumentError: an unknown `reduction`.

    Cost: allocates difference, square and the reduced value.
    """
    difference = ta.subtract(*together(x, target))
    if ta.isdtype(difference.dtype, "complex floating"):
        difference = ta.abs(difference)
    return _reduced("mse_loss", ta.square(difference), reduction)


@named(y="target")
def l1_loss(x: Any, target: Any, *, reduction: Reduction = "mean") -> ta.EagerTensor:
    """|x - target|, with slope 0 where they are equal.

    Args:
        x, target: values that broadcast against each other.
        reduction: "mean" or "sum" over all elements, or "none".

    Raises:
        ShapeError: the shapes do not fit.
        InvalidArgumentError: an unknown `reduction`.

    Cost: allocates difference, distance and the reduced value.
    """
    return _reduced("l1_loss", _distance(x, target), reduction)


@named(y="target")
def huber_loss(
    x: Any, target: Any, *, delta: float = 1.0, reduction: Reduction = "mean"
) -> ta.EagerTensor:
    """d^2 / 2 for distances d = |x - target| up to `delta`, then delta (d - delta / 2).

    Args:
        x, target: values that broadcast against each other.
        delta: where the parabola goes over into a line; positive.
        reduction: "mean" or "sum" over all elements, or "none".

    Raises:
        ShapeError: the shapes do not fit.
        InvalidArgumentError: an unknown `reduction`, or `delta` is not positive.

    Cost: allocates six values of the size of the difference, and the reduced one.

    Source: P. J. Huber, Ann. Math. Statist. 35 (1964).
    """
    if not number("huber_loss", "delta", delta, 0.0):
        raise ta.errors.InvalidArgumentError(
            operation="huber_loss",
            argument="delta",
            found=f"{delta}",
            fix="pass a positive number",
        )
    d = _distance(x, target)
    near = ta.minimum(d, delta)
    return _reduced("huber_loss", near * (d - near * 0.5), reduction)


@named(y="target")
def smooth_l1_loss(
    x: Any, target: Any, *, beta: float = 1.0, reduction: Reduction = "mean"
) -> ta.EagerTensor:
    """`huber_loss` with `delta=beta`, divided by `beta`: slope 1 far away.

    Args:
        x, target: values that broadcast against each other.
        beta: where the parabola goes over into a line; 0 gives `l1_loss`.
        reduction: "mean" or "sum" over all elements, or "none".

    Raises:
        ShapeError: the shapes do not fit.
        InvalidArgumentError: an unknown `reduction`, or `beta` is negative.

    Cost: allocates seven values of the size of the difference, and the reduced one.
    """
    if not number("smooth_l1_loss", "beta", beta, 0.0):
        return l1_loss(x, target, reduction=reduction)
    losses = huber_loss(x, target, delta=beta, reduction="none") * (1.0 / beta)
    return _reduced("smooth_l1_loss", losses, reduction)


# ---- probabilities -------------------------------------------------------------------


@named(x="log_probs", indices="target")
def nll_loss(
    log_probs: Any,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    axis: int | None = None,
    reduction: Reduction = "mean",
) -> ta.EagerTensor:
    """The negative log-probability of the target classes.

    Args:
        log_probs: log-probabilities, one axis of which runs over the classes.
        target: class numbers, the shape of `log_probs` without that axis.
        weight: a factor for each class, or None.
        ignore_index: targets of this number have no loss and do not count. None (not
            -100, as in PyTorch) ignores nothing.
        axis: the class axis; None means 1, or 0 for a single sample.
        reduction: "mean" (by the sum of the weights) or "sum" over samples, or "none".

    Raises:
        IndexRangeError: a class number or axis out of range.
        ShapeError, DTypeError: operands do not fit.
        InvalidArgumentError: an unknown `reduction`.

    Cost: allocates a few values for each sample and the reduced one; a few more with
        weights or ignored targets.
    """
    log_probs, target = together(log_probs, target)
    if axis is None:
        axis = min(1, log_probs.ndim - 1)
    number("nll_loss", "axis", axis, -math.inf, kind=int)
    if not -log_probs.ndim <= axis < log_probs.ndim:
        raise ta.errors.IndexRangeError(
            operation="nll_loss",
            argument="axis",
            found=f"axis {axis} of a value with {log_probs.ndim} axes",
            fix="name an axis of `log_probs`",
        )
    if target.shape != (*log_probs.shape[:axis], *log_probs.shape[axis:][1:]):
        raise ta.errors.ShapeError(
            operation="nll_loss",
            argument="target",
            found=f"shape {target.shape} for log-probabilities of shape "
            f"{log_probs.shape}, class axis {axis}",
            fix="give it their shape without the class axis",
        )
    kept = None
    if ignore_index is not None:
        kept = ta.not_equal(target, ignore_index)
        target = ta.where(kept, target, 0)
    if ta.isdtype(target.dtype, "signed integer"):  # none counts from the end
        wide = ta.astype(target, ta.int64, copy=False)
        target = ta.where(ta.less(wide, 0), log_probs.shape[axis], wide)
    index = ta.expand_dims(target, axis=axis)
    losses = -ta.squeeze(ta.take_along_axis(log_probs, index, axis=axis), axis=axis)
    scale = None
    if weight is not None:
        _, weight = together(log_probs, weight)
        scale = ta.take(weight, target, axis=0)
        losses = losses * scale
    if kept is not None:
        losses = ta.where(kept, losses, 0.0)
        scale = ta.astype(kept, losses.dtype) if scale is None else kept * scale
    if reduction == "mean" and scale is not None:
        return ta.sum(losses) / ta.sum(scale)
    return _reduced("nll_loss", losses, reduction)


@named(x="logits", y="target")
def binary_cross_entropy_with_logits(
    logits: Any,
    target: Any,
    *,
    weight: Any = None,
    pos_weight: Any = None,
    reduction: Reduction = "mean",
) -> ta.EagerTensor:
    """Minus the log-likelihood of `target` under independent logistic probabilities.

    Args:
        logits: real scores; the probability is their logistic function.
        target: probabilities from 0 to 1.
        weight: a factor for each element, which broadcasts; or None.
        pos_weight: a factor for the positive part alone, which broadcasts; or None.
        reduction: "mean" or "sum" over all elements, or "none".

    Raises:
        ShapeError: shapes do not fit. DTypeError: complex operands.
        InvalidArgumentError: an unknown `reduction`.

    Without overflow: (1 - y) x + (1 + (pos_weight - 1) y) softplus(-x).

    Cost: allocates a few values of the size of `logits`, and the reduced one.
    """
    x, y = together(logits, target)
    if not isinstance(pos_weight, float | int | None):
        _, pos_weight = together(x, pos_weight)
    below = ta.softplus(-x)
    if pos_weight is not None:
        below = below * ((pos_weight - 1.0) * y + 1.0)
    losses = (1.0 - y) * x + below
    losses = losses if weight is None else losses * weight
    return _reduced("binary_cross_entropy_with_logits", losses, reduction)


@named(x="target", y="x")
def kl_div(
    x: Any,
    target: Any,
    *,
    log_target: bool = False,
    reduction: Literal["mean", "sum", "none", "batchmean"] = "mean",
) -> ta.EagerTensor:
    """The terms of the divergence of `target` from exp(x): target (log target - x).

    Args:
        x: log-probabilities.
        target: probabilities, or their logarithms with `log_target`.
        log_target: what `target` is.
        reduction: "mean" or "sum" over all elements, "batchmean" (the sum divided by
            the length of the first axis, which is the divergence), or "none".

    Raises:
        ShapeError: shapes do not fit. DTypeError: complex operands.
        InvalidArgumentError: an unknown `reduction`.

    Terms with target 0 are 0.

    Cost: allocates a few values of the size of `x`, and the reduced one.
    """
    x, target = together(x, target)
    weight = ta.exp(target) if log_target else target
    if log_target:
        losses = weight * (target - x)
    else:
        losses = special.xlogy(target, target) - target * x
    # Where the target is 0, its logarithm or `x` may be infinite.
    losses = ta.where(ta.equal(weight, 0.0), 0.0, losses)
    if reduction == "batchmean":
        return ta.sum(losses) / (losses.shape[0] if losses.ndim else 1)
    return _reduced("kl_div", losses, reduction)
