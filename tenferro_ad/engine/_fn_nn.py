"""Network functions that have rows of their own: channels first, PyTorch's semantics.

`tenferro_ad.nn` offers them under the same names, beside functions composed of others.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Literal

from ..errors import DTypeError, InvalidArgumentError, ShapeError
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_reductions import normal_axis
from ._make import as_tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "max_pool2d",
    "avg_pool2d",
    "embedding",
    "cross_entropy",
    "gelu",
    "silu",
]

Extent = int | Sequence[int]
Reduction = Literal["mean", "sum", "none"]


def _extents(operation: str, argument: str, value: Any, n: int) -> tuple[int, ...]:
    """One integer for each of `n` axes.

    Raises:
        DTypeError: something else than integers.
        InvalidArgumentError: another number of integers.
    """
    try:
        if isinstance(value, Sequence):
            found = tuple([index(v) for v in value])
        else:
            found = (index(value),) * n
    except TypeError:
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"{value!r}",
            fix=f"pass one integer, or {n} of them",
        ) from None
    if len(found) != n:
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{value!r} for {n} spatial axes",
            fix=f"pass one integer, or {n} of them",
        )
    return found


def _spatial(operation: str, x: EagerTensor, n: int) -> None:
    if x.ndim != n + 2:
        raise ShapeError(
            operation=operation,
            argument="x",
            found=f"shape {x.shape}",
            fix=f"pass {n + 2} axes: (batch, channels, *spatial)",
        )


def _conv(
    name: str,
    n: int,
    x: Any,
    w: Any,
    b: Any,
    stride: Extent,
    padding: Extent,
    dilation: Extent,
    groups: int,
) -> EagerTensor:
    x, w = as_tensor(x), as_tensor(w)
    _spatial(name, x, n)
    y: EagerTensor = HANDLES.conv(
        x,
        w,
        _extents(name, "stride", stride, n),
        _extents(name, "padding", padding, n),
        _extents(name, "dilation", dilation, n),
        _extents(name, "groups", groups, 1)[0],
    )
    if b is None:
        return y
    b = as_tensor(b)
    if b.shape != (w.shape[0],):
        raise ShapeError(
            operation=name,
            argument="b",
            found=f"shape {b.shape} for {w.shape[0]} output channels",
            fix=f"give it the shape ({w.shape[0]},)",
        )
    return HANDLES.add(y, HANDLES.reshape(b, (w.shape[0],) + (1,) * n))  # type: ignore[no-any-return]


def conv1d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Extent = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Convolution over one spatial axis; see `conv2d`.

    Cost: as `conv2d`.
    """
    return _conv("conv1d", 1, x, w, b, stride, padding, dilation, groups)


def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Extent = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Convolution (cross-correlation) over two spatial axes.

    Args:
        x: (batch, channels, height, width).
        w: (out channels, channels / groups, kernel height, kernel width).
        b: one number for each output channel, or None.
        stride: distance of neighbouring windows; one integer or one for each axis.
        padding: zeros at both ends of each axis.
        dilation: distance of neighbouring kernel elements.
        groups: channels and output channels fall into so many independent groups.

    Returns:
        (batch, out channels, height', width').

    Raises:
        ShapeError: operands do not fit, or the kernel exceeds the padded image.
        InvalidArgumentError, DTypeError: a parameter is out of range or no integer.

    Cost: allocates the result (twice with `b`: product and sum); no copies. Scratch for
        the unfolded windows of a block of images, about 1 MiB or one image, kept by the
        thread.
    """
    return _conv("conv2d", 2, x, w, b, stride, padding, dilation, groups)


def conv3d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Extent = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Convolution over three spatial axes; see `conv2d`.

    Cost: as `conv2d`.
    """
    return _conv("conv3d", 3, x, w, b, stride, padding, dilation, groups)


def _windows(
    name: str, kernel_size: Extent, stride: Extent | None, padding: Extent
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    kernel = _extents(name, "kernel_size", kernel_size, 2)
    steps = kernel if stride is None else _extents(name, "stride", stride, 2)
    return kernel, steps, _extents(name, "padding", padding, 2)


def max_pool2d(
    x: Any, kernel_size: Extent, *, stride: Extent | None = None, padding: Extent = 0
) -> EagerTensor:
    """The largest element of each window; tied elements share the derivative equally.

    Args:
        x: (batch, channels, height, width), real.
        kernel_size: window; one integer or one for each axis.
        stride: distance of neighbouring windows; the window's size if None.
        padding: places around the image that are never the largest.

    Raises:
        ShapeError: the window exceeds the padded image.
        InvalidArgumentError, DTypeError: a parameter or dtype does not fit.

    Cost: allocates the result; its derivative keeps `x` and the result.
    """
    x = as_tensor(x)
    _spatial("max_pool2d", x, 2)
    window = _windows("max_pool2d", kernel_size, stride, padding)
    return HANDLES.max_pool(x, *window)  # type: ignore[no-any-return]


def avg_pool2d(
    x: Any,
    kernel_size: Extent,
    *,
    stride: Extent | None = None,
    padding: Extent = 0,
    count_include_pad: bool = True,
) -> EagerTensor:
    """The mean of each window.

    Args:
        x: (batch, channels, height, width).
        kernel_size: window; one integer or one for each axis.
        stride: distance of neighbouring windows; the window's size if None.
        padding: zeros around the image.
        count_include_pad: padding counts as elements of its window.

    Raises:
        ShapeError: the window exceeds the padded image.
        InvalidArgumentError, DTypeError: a parameter or dtype does not fit.

    Cost: allocates the result; its derivative keeps nothing. Without
        `count_include_pad`, three small values and the quotient more.
    """
    x = as_tensor(x)
    _spatial("avg_pool2d", x, 2)
    window = _windows("avg_pool2d", kernel_size, stride, padding)
    y: EagerTensor = HANDLES.avg_pool(x, *window)
    if count_include_pad or not any(window[2]):
        return y
    ones = HANDLES.full((1, 1, *x.shape[2:]), x.dtype, 1, x.device)
    return HANDLES.div(y, HANDLES.avg_pool(ones, *window))  # type: ignore[no-any-return]


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
    weight, indices = as_tensor(weight), as_tensor(indices)
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
    logits, target = as_tensor(logits), as_tensor(target)
    if axis is None:
        axis = min(1, logits.ndim - 1)
    axis = normal_axis("cross_entropy", axis, logits.ndim)
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
