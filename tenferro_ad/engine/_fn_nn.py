"""Network functions that have rows of their own: channels first, PyTorch's semantics.

`tenferro_ad.nn` offers them under the same names, beside functions composed of others.
"""

from __future__ import annotations

from typing import Any, Literal

from ..errors import IndexRangeError, InvalidArgumentError, ShapeError, named
from ._axes import axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._known_indices import check_known
from ._make import as_tensor, tensors
from ._numbers import real_of
from ._pytrees import stop_gradient

__all__ = [
    "embedding",
    "cross_entropy",
    "gelu",
    "silu",
]

Reduction = Literal["mean", "sum", "none"]


@named(x="weight")
def embedding(
    weight: Any, indices: Any, *, padding_idx: int | None = None
) -> EagerTensor:
    """Rows of a table.

    Args:
        weight: (entries, *shape).
        indices: integers of any shape; negative ones count from the end.
        padding_idx: the row of this number takes no gradient; None means every row
            does.

    Returns:
        (*indices.shape, *shape). Gradients of rows that are used several times add up.

    Raises:
        ShapeError: `weight` has no axis.
        DTypeError: `indices` are not integers.
        IndexRangeError: an index out of range.

    Cost: allocates the result; the derivative keeps `indices` only. With `padding_idx`
        four values of the size of `indices` and one more of the result's.
    """
    known = indices
    weight, indices = tensors(weight, indices)
    if not weight.ndim:
        raise ShapeError(
            operation="embedding",
            argument="weight",
            found="a 0-d value",
            fix="pass a table: (entries, *shape)",
        )
    check_known("embedding", known, weight, 0)
    rows: EagerTensor = HANDLES.take(weight, indices, 0)
    if padding_idx is None:
        return rows
    index, n = int_of("embedding", "padding_idx", padding_idx), weight.shape[0]
    if not -n <= index < n:
        raise IndexRangeError(
            operation="embedding",
            argument="padding_idx",
            found=f"row {index} of a table of {n}",
            fix="use the number of a row, or None",
        )
    entry = HANDLES.select(HANDLES.less(indices, 0), n, 0)
    mask = HANDLES.not_equal(HANDLES.add(indices, entry), index % n)
    mask = HANDLES.reshape(mask, indices.shape + (1,) * (weight.ndim - 1))
    return HANDLES.select(mask, rows, stop_gradient(rows))  # type: ignore[no-any-return]


@named(x="logits", indices="target")
def cross_entropy(
    logits: Any,
    target: Any,
    *,
    weight: Any = None,
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    axis: int | None = None,
    reduction: Reduction = "mean",
) -> EagerTensor:
    """Negative log-likelihood of the target classes under softmax.

    Args:
        logits: real scores, one axis of which runs over the classes.
        target: class numbers (the shape of `logits` without that axis), or
            probabilities (the shape of `logits`).
        weight: a factor for each class, or None.
        ignore_index: targets of this number have no loss and do not count. None (not
            -100, as in PyTorch) ignores nothing.
        label_smoothing: so much of each target's probability, from 0 to 1, is spread
            evenly over all classes.
        axis: the class axis; None means 1, or 0 for a single sample.
        reduction: "mean" or "sum" over samples, or "none". The mean of class numbers
            divides by the sum of their weights, that of probabilities by the number of
            samples.

    Raises:
        ShapeError, DTypeError: operands do not fit.
        IndexRangeError: a class number out of range.
        InvalidArgumentError: an unknown `reduction`, a smoothing out of range, or
            `ignore_index` with probabilities.

    Cost: allocates one number for each sample, and the reduced one. The derivative
        keeps `logits` and `target` and computes the softmax again. Probabilities and
        label smoothing allocate a few values of the size of `logits`; weights and
        ignored targets a few numbers for each sample.
    """
    logits, target = tensors(logits, target)
    if reduction not in ("mean", "sum", "none"):
        raise InvalidArgumentError(
            operation="cross_entropy",
            argument="reduction",
            found=repr(reduction),
            fix='pass "mean", "sum" or "none"',
        )
    label_smoothing = real_of("cross_entropy", "label_smoothing", label_smoothing, 0, 1)
    if axis is None:
        axis = min(1, logits.ndim - 1)
    at = axis_of("cross_entropy", axis, logits.ndim)
    weights = None if weight is None else _class_weights(weight, logits, at)
    if target.dtype.kind in "fc" and target.shape == logits.shape:
        return _soft_cross_entropy(
            logits, target, weights, ignore_index, label_smoothing, at, reduction
        )
    kept = None
    if ignore_index is not None:
        ignored = int_of("cross_entropy", "ignore_index", ignore_index)
        kept = HANDLES.not_equal(target, ignored)
        target = HANDLES.select(kept, target, 0)
    losses = HANDLES.cross_entropy(logits, target, at)
    scale = None if weights is None else _of_targets(weights, target)
    if scale is not None:
        losses = HANDLES.mul(losses, scale)
    if label_smoothing:
        spread = HANDLES.log_softmax(logits, (at,))
        if weights is not None:
            spread = HANDLES.mul(spread, weights)
        share = label_smoothing / logits.shape[at]
        spread = HANDLES.mul(HANDLES.sum(spread, (at,), False), share)
        losses = HANDLES.sub(HANDLES.mul(losses, 1.0 - label_smoothing), spread)
    if kept is not None:
        losses = HANDLES.select(kept, losses, 0.0)
        scale = HANDLES.select(kept, 1.0 if scale is None else scale, 0.0)
        scale = HANDLES.astype(scale, losses.dtype)
    return _over_samples(losses, scale, reduction)


def _class_weights(weight: Any, logits: EagerTensor, axis: int) -> EagerTensor:
    """A factor for each class, to broadcast against the logits."""
    weight = as_tensor(weight, logits.device)
    if weight.shape != (logits.shape[axis],):
        raise ShapeError(
            operation="cross_entropy",
            argument="weight",
            found=f"shape {weight.shape} for {logits.shape[axis]} classes",
            fix="pass one number for each class",
        )
    shape = (weight.size,) + (1,) * (logits.ndim - axis - 1)
    return HANDLES.reshape(weight, shape)  # type: ignore[no-any-return]


def _of_targets(weights: EagerTensor, target: EagerTensor) -> EagerTensor:
    """The weight of each target class."""
    return HANDLES.take(HANDLES.reshape(weights, (weights.size,)), target, 0)  # type: ignore[no-any-return]


def _soft_cross_entropy(
    logits: EagerTensor,
    target: EagerTensor,
    weights: EagerTensor | None,
    ignore_index: int | None,
    label_smoothing: float,
    axis: int,
    reduction: Reduction,
) -> EagerTensor:
    if ignore_index is not None:
        raise InvalidArgumentError(
            operation="cross_entropy",
            argument="ignore_index",
            found="probabilities as targets, which name no class",
            fix="leave it out, and give ignored samples probabilities of zero",
        )
    if label_smoothing:
        even = label_smoothing / logits.shape[axis]
        target = HANDLES.add(HANDLES.mul(target, 1.0 - label_smoothing), even)
    terms = HANDLES.mul(target, HANDLES.log_softmax(logits, (axis,)))
    if weights is not None:
        terms = HANDLES.mul(terms, weights)
    losses = HANDLES.neg(HANDLES.sum(terms, (axis,), False))
    return _over_samples(losses, None, reduction)


def _over_samples(
    losses: EagerTensor, scale: EagerTensor | None, reduction: Reduction
) -> EagerTensor:
    """Reduced losses; `scale` is how much each sample counts in the mean."""
    axes = tuple(range(losses.ndim))
    if reduction == "none":
        return losses
    if reduction == "mean" and scale is None:
        return HANDLES.mean(losses, axes, False)  # type: ignore[no-any-return]
    total: EagerTensor = HANDLES.sum(losses, axes, False)
    if reduction == "sum":
        return total
    return HANDLES.div(total, HANDLES.sum(scale, axes, False))  # type: ignore[no-any-return]


@named()
def gelu(x: Any, /, *, approximate: Literal["none", "tanh"] = "none") -> EagerTensor:
    """x times the normal distribution function of x.

    Args:
        approximate: "tanh" uses the usual approximation by tanh.

    Raises:
        InvalidArgumentError: another `approximate`.

    Cost: allocates the result.
    """
    if approximate not in ("none", "tanh"):
        raise InvalidArgumentError(
            operation="gelu",
            argument="approximate",
            found=repr(approximate),
            fix='pass "none" or "tanh"',
        )
    fn = HANDLES.gelu if approximate == "none" else HANDLES.gelu_tanh
    return fn(as_tensor(x))  # type: ignore[no-any-return]


def silu(x: Any, /) -> EagerTensor:
    """x times the logistic function of x.

    Raises: as `sigmoid`.

    Cost: allocates the result.
    """
    return HANDLES.silu(as_tensor(x))  # type: ignore[no-any-return]
