"""Network functions that have rows of their own: channels first, PyTorch's semantics.

`tenferro_ad.nn` offers them under the same names, beside functions composed of others.
"""

from __future__ import annotations

from typing import Any, Literal

from ..errors import InvalidArgumentError
from ._axes import axis_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, tensors

__all__ = [
    "embedding",
    "cross_entropy",
    "gelu",
    "silu",
]

Reduction = Literal["mean", "sum", "none"]


def embedding(weight: Any, indices: Any) -> EagerTensor:
    """Rows of a table.

    Args:
        weight: (entries, *shape).
        indices: integers of any shape; negative ones count from the end.

    Returns:
        (*indices.shape, *shape). Gradients of rows that are used several times add up.

    Raises:
        DTypeError: `indices` are not integers.
        IndexRangeError: an index out of range.

    Cost: allocates the result; the derivative keeps `indices` only.
    """
    weight, indices = tensors(weight, indices)
    flat = HANDLES.reshape(indices, (indices.size,))
    rows = HANDLES.take(weight, flat, 0)
    shape = indices.shape + weight.shape[1:]
    return HANDLES.reshape(rows, shape)  # type: ignore[no-any-return]


def cross_entropy(
    logits: Any,
    target: Any,
    *,
    axis: int | None = None,
    reduction: Reduction = "mean",
) -> EagerTensor:
    """Negative log-likelihood of the target classes under softmax.

    Args:
        logits: real scores, one axis of which runs over the classes.
        target: class numbers (the shape of `logits` without that axis), or
            probabilities (the shape of `logits`).
        axis: the class axis; None means 1, or 0 for a single sample.
        reduction: "mean" or "sum" over samples, or "none".

    Raises:
        ShapeError, DTypeError: operands do not fit.
        IndexRangeError: a class number out of range.
        InvalidArgumentError: an unknown `reduction`.

    Cost: allocates one number for each sample, and the reduced one. The derivative
        keeps `logits` and `target` and computes the softmax again.
    """
    logits, target = tensors(logits, target)
    if axis is None:
        axis = min(1, logits.ndim - 1)
    axis = axis_of("cross_entropy", axis, logits.ndim)
    if target.dtype.kind in "fc" and target.shape == logits.shape:
        terms = HANDLES.mul(target, HANDLES.log_softmax(logits, (axis,)))
        losses = HANDLES.neg(HANDLES.sum(terms, (axis,), False))
    else:
        losses = HANDLES.cross_entropy(logits, target, axis)
    axes = tuple(range(losses.ndim))
    match reduction:
        case "none":
            return losses  # type: ignore[no-any-return]
        case "sum":
            return HANDLES.sum(losses, axes, False)  # type: ignore[no-any-return]
        case "mean":
            return HANDLES.mean(losses, axes, False)  # type: ignore[no-any-return]
    raise InvalidArgumentError(
        operation="cross_entropy",
        argument="reduction",
        found=repr(reduction),
        fix='pass "mean", "sum" or "none"',
    )


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

    Cost: allocates the result.
    """
    return HANDLES.silu(as_tensor(x))  # type: ignore[no-any-return]
