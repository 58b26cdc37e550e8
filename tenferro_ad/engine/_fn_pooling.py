"""Pooling over windows of one, two or three spatial axes: channels first."""

from __future__ import annotations

from typing import Any

from ..errors import named
from ._axes import Extent, extents, need_spatial
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor

__all__ = [
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


def _window(
    name: str, n: int, kernel_size: Extent, stride: Extent | None, padding: Extent
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    kernel = extents(name, "kernel_size", kernel_size, n, 1)
    steps = kernel if stride is None else extents(name, "stride", stride, n, 1)
    return kernel, steps, extents(name, "padding", padding, n, 0)


# ---- maxima --------------------------------------------------------------------------


def _max_pool(
    name: str,
    n: int,
    x: Any,
    kernel_size: Extent,
    stride: Extent | None,
    padding: Extent,
) -> EagerTensor:
    x = as_tensor(x)
    need_spatial(name, x.shape, n)
    window = _window(name, n, kernel_size, stride, padding)
    return HANDLES.max_pool(x, *window)  # type: ignore[no-any-return]


@named()
def max_pool1d(
    x: Any, kernel_size: Extent, *, stride: Extent | None = None, padding: Extent = 0
) -> EagerTensor:
    """`max_pool2d` over one spatial axis.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `max_pool2d`.

    Cost: as `max_pool2d`.
    """
    return _max_pool("max_pool1d", 1, x, kernel_size, stride, padding)


@named()
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
    return _max_pool("max_pool2d", 2, x, kernel_size, stride, padding)


@named()
def max_pool3d(
    x: Any, kernel_size: Extent, *, stride: Extent | None = None, padding: Extent = 0
) -> EagerTensor:
    """`max_pool2d` over three spatial axes.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `max_pool2d`.

    Cost: as `max_pool2d`.
    """
    return _max_pool("max_pool3d", 3, x, kernel_size, stride, padding)


# ---- means ---------------------------------------------------------------------------


def _avg_pool(
    name: str,
    n: int,
    x: Any,
    kernel_size: Extent,
    stride: Extent | None,
    padding: Extent,
    count_include_pad: bool,
) -> EagerTensor:
    x = as_tensor(x)
    need_spatial(name, x.shape, n)
    window = _window(name, n, kernel_size, stride, padding)
    y: EagerTensor = HANDLES.avg_pool(x, *window)
    if count_include_pad or not any(window[2]):
        return y
    ones = HANDLES.full((1, 1, *x.shape[2:]), x.dtype, 1, x.device)
    return HANDLES.div(y, HANDLES.avg_pool(ones, *window))  # type: ignore[no-any-return]


@named()
def avg_pool1d(
    x: Any,
    kernel_size: Extent,
    *,
    stride: Extent | None = None,
    padding: Extent = 0,
    count_include_pad: bool = True,
) -> EagerTensor:
    """`avg_pool2d` over one spatial axis.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `avg_pool2d`.

    Cost: as `avg_pool2d`.
    """
    how = kernel_size, stride, padding, count_include_pad
    return _avg_pool("avg_pool1d", 1, x, *how)


@named()
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
    how = kernel_size, stride, padding, count_include_pad
    return _avg_pool("avg_pool2d", 2, x, *how)


@named()
def avg_pool3d(
    x: Any,
    kernel_size: Extent,
    *,
    stride: Extent | None = None,
    padding: Extent = 0,
    count_include_pad: bool = True,
) -> EagerTensor:
    """`avg_pool2d` over three spatial axes.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `avg_pool2d`.

    Cost: as `avg_pool2d`.
    """
    how = kernel_size, stride, padding, count_include_pad
    return _avg_pool("avg_pool3d", 3, x, *how)
