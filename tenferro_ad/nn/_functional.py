"""Network functions composed of public ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import tenferro_ad as ta

Reduction = Literal["mean", "sum", "none"]


def _reduced(
    operation: str, losses: ta.EagerTensor, reduction: Reduction
) -> ta.EagerTensor:
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


def linear(x: Any, w: Any, b: Any = None) -> ta.EagerTensor:
    """x w^T + b.

    Args:
        x: (..., in features).
        w: (out features, in features).
        b: (out features,), or None.

    Raises:
        ShapeError: operands do not fit.

    Cost: allocates the product, and the sum if there is `b`.
    """
    y = ta.matmul(x, ta.permute_dims(w, (1, 0)))
    return y if b is None else y + b


def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> ta.EagerTensor:
    """`x` shifted and scaled to mean 0 and variance 1 along `axis`.

    Args:
        x: real or complex values.
        weight, bias: factor and summand, broadcast against `x`; or None.
        axis: what is normalised; one axis or several.
        eps: added to the variance.

    Raises:
        IndexRangeError: an axis out of range.
        ShapeError: `weight` or `bias` does not fit.

    Cost: allocates a few values of the size of `x`.

    Source: J. L. Ba, J. R. Kiros, G. E. Hinton, arXiv:1607.06450.
    """
    axes = axis if isinstance(axis, int) else tuple(axis)
    x = ta.asarray(x)
    centred: ta.EagerTensor = x - ta.mean(x, axis=axes, keepdims=True)
    variance = ta.mean(ta.square(ta.abs(centred)), axis=axes, keepdims=True)
    y: ta.EagerTensor = centred * ta.rsqrt(variance + eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


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
    difference = ta.asarray(x) - target
    if ta.isdtype(difference.dtype, "complex floating"):
        difference = ta.abs(difference)
    return _reduced("mse_loss", ta.square(difference), reduction)


def nll_loss(
    log_probs: Any,
    target: Any,
    *,
    axis: int | None = None,
    reduction: Reduction = "mean",
) -> ta.EagerTensor:
    """The negative log-probability of the target classes.

    Args:
        log_probs: log-probabilities, one axis of which runs over the classes.
        target: class numbers, the shape of `log_probs` without that axis.
        axis: the class axis; None means 1, or 0 for a single sample.
        reduction: "mean" or "sum" over samples, or "none".

    Raises:
        IndexRangeError: a class number or axis out of range.
        InvalidArgumentError: an unknown `reduction`.

    Cost: allocates two values for each sample and the reduced one.
    """
    log_probs = ta.asarray(log_probs)
    if axis is None:
        axis = min(1, log_probs.ndim - 1)
    index = ta.expand_dims(ta.asarray(target), axis=axis)
    chosen = ta.take_along_axis(log_probs, index, axis=axis)
    return _reduced("nll_loss", -ta.squeeze(chosen, axis=axis), reduction)
