"""Convolutions and their transposes: channels first, PyTorch's semantics."""

from __future__ import annotations

from typing import Any, Literal

from ..errors import InvalidArgumentError, ShapeError, named
from ..ops import span
from ._axes import Extent, extents, int_of, need_spatial
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, tensors

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
]


Padding = Extent | Literal["same", "valid"]

# ---- convolutions --------------------------------------------------------------------


def _conv(
    name: str,
    n: int,
    x: Any,
    w: Any,
    b: Any,
    stride: Extent,
    padding: Padding,
    dilation: Extent,
    groups: int,
) -> EagerTensor:
    x, w = tensors(x, w)
    need_spatial(name, x.shape, n)
    steps = extents(name, "stride", stride, n, 1)
    apart = extents(name, "dilation", dilation, n, 1)
    if isinstance(padding, str):
        x, zeros = _by_name(name, x, w, steps, padding, apart)
    else:
        zeros = extents(name, "padding", padding, n, 0)
    y: EagerTensor = HANDLES.conv(
        x, w, steps, zeros, apart, int_of(name, "groups", groups)
    )
    return _biased(name, y, b, n)


def _by_name(
    name: str,
    x: EagerTensor,
    w: EagerTensor,
    steps: tuple[int, ...],
    padding: str,
    apart: tuple[int, ...],
) -> tuple[EagerTensor, tuple[int, ...]]:
    """Images, and the zeros at both ends of each axis. What "same" has left over for
    one end is put to the later one beforehand."""
    if padding == "valid" or w.ndim != x.ndim:
        return x, (0,) * len(steps)
    if padding != "same" or set(steps) != {1}:
        strided = f'"same" for a stride of {steps}'
        raise InvalidArgumentError(
            operation=name,
            argument="padding",
            found=strided if padding == "same" else repr(padding),
            fix='pass numbers of zeros, "valid", or "same" with a stride of 1',
        )
    lost = [d * max(k - 1, 0) for d, k in zip(apart, w.shape[2:], strict=True)]
    if any(m % 2 for m in lost):
        longer = [size + m % 2 for size, m in zip(x.shape[2:], lost, strict=True)]
        whole = tuple([span(0, size, 1) for size in x.shape])
        x = HANDLES.place(x, (*x.shape[:2], *longer), whole, 0)
    return x, tuple([m // 2 for m in lost])


def _biased(name: str, y: EagerTensor, b: Any, n: int) -> EagerTensor:
    """A number added to each channel."""
    if b is None:
        return y
    b = as_tensor(b, y.device)
    channels = y.shape[1]
    if b.shape != (channels,):
        raise ShapeError(
            operation=name,
            argument="b",
            found=f"shape {b.shape} for {channels} output channels",
            fix=f"give it the shape ({channels},)",
        )
    return HANDLES.add(y, HANDLES.reshape(b, (channels,) + (1,) * n))  # type: ignore[no-any-return]


@named()
def conv1d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Convolution over one spatial axis; see `conv2d`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `conv2d`.

    Cost: as `conv2d`.
    """
    return _conv("conv1d", 1, x, w, b, stride, padding, dilation, groups)


@named()
def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Convolution (cross-correlation) over two spatial axes.

    Args:
        x: (batch, channels, height, width).
        w: (out channels, channels / groups, kernel height, kernel width).
        b: one number for each output channel, or None.
        stride: distance of neighbouring windows; one integer or one for each axis.
        padding: zeros at both ends of each axis; "valid" for none, "same" for so many
            that the result has the size of the images, for a stride of 1 (of an odd
            number the later end gets one more).
        dilation: distance of neighbouring kernel elements.
        groups: channels and output channels fall into so many independent groups.

    Returns:
        (batch, out channels, height', width').

    Raises:
        ShapeError: operands do not fit, or the kernel exceeds the padded image.
        InvalidArgumentError, DTypeError: a parameter is out of range or no integer.

    Cost: allocates the result (twice with `b`: product and sum), and the images again
        where "same" needs an odd number of zeros; no copies. Scratch for the unfolded
        windows of a block of images, about 1 MiB or one image, kept by the
        thread.
    """
    return _conv("conv2d", 2, x, w, b, stride, padding, dilation, groups)


@named()
def conv3d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Padding = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Convolution over three spatial axes; see `conv2d`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `conv2d`.

    Cost: as `conv2d`.
    """
    return _conv("conv3d", 3, x, w, b, stride, padding, dilation, groups)


# ---- transposed convolutions ---------------------------------------------------------


def _transposed(
    name: str,
    n: int,
    x: Any,
    w: Any,
    b: Any,
    stride: Extent,
    padding: Extent,
    output_padding: Extent,
    dilation: Extent,
    groups: int,
) -> EagerTensor:
    x, w = tensors(x, w)
    need_spatial(name, x.shape, n)
    if w.ndim != n + 2 or w.shape[0] != x.shape[1]:
        raise ShapeError(
            operation=name,
            argument="w",
            found=f"shape {w.shape} for {x.shape[1]} channels",
            fix=f"give it the shape ({x.shape[1]}, out channels / groups, *kernel) "
            f"with {n} kernel axes",
        )
    steps = extents(name, "stride", stride, n, 1)
    pads = extents(name, "padding", padding, n, 0)
    gaps = extents(name, "dilation", dilation, n, 1)
    more = extents(name, "output_padding", output_padding, n)
    for extra, s, d in zip(more, steps, gaps, strict=True):
        if not 0 <= extra < max(s, d):
            raise InvalidArgumentError(
                operation=name,
                argument="output_padding",
                found=f"{more} for stride {steps} and dilation {gaps}",
                fix="use numbers from 0 on, below the stride or the dilation",
            )
    sizes = tuple(
        (m - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for m, s, p, d, k, extra in zip(
            x.shape[2:], steps, pads, gaps, w.shape[2:], more, strict=True
        )
    )
    if any(size < 1 for size in sizes):
        raise ShapeError(
            operation=name,
            argument="x",
            found=f"images of {x.shape[2:]}, which would become {sizes}",
            fix="use less padding, or larger images",
        )
    part = int_of(name, "groups", groups, 1)
    # Windows that begin beyond the image read zeros.
    beyond = tuple(extra // s for extra, s in zip(more, steps, strict=True))
    if any(beyond):
        key = tuple(span(0, m, 1) for m in x.shape)
        spatial = [m + k for m, k in zip(x.shape[2:], beyond, strict=True)]
        x = HANDLES.place(x, (*x.shape[:2], *spatial), key, 0)
    # The row is the adjoint of a convolution, which conjugates.
    kernel = HANDLES.conj(w) if w.dtype.kind == "c" else w
    shape = (x.shape[0], w.shape[1] * part, *sizes)
    y = HANDLES.conv_input(x, kernel, shape, steps, pads, gaps, part)
    return _biased(name, y, b, n)


@named(y="x")
def conv_transpose1d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Extent = 0,
    output_padding: Extent = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Transposed convolution over one spatial axis; see `conv_transpose2d`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `conv_transpose2d`.

    Cost: as `conv_transpose2d`.
    """
    return _transposed(
        "conv_transpose1d",
        1,
        *(x, w, b, stride, padding, output_padding, dilation, groups),
    )


@named(y="x")
def conv_transpose2d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Extent = 0,
    output_padding: Extent = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """The transpose of `conv2d` as a linear map of images, with the same parameters.

    Each element of `x` adds `w` times itself to a window of the result. For real `w`,
    `conv_transpose2d(y, w, ...)` is the derivative of `conv2d(x, w, ...)` in `x`,
    applied to `y`.

    Args:
        x: (batch, channels, height, width).
        w: (channels, out channels / groups, kernel height, kernel width).
        b: one number for each output channel, or None.
        stride: distance of neighbouring windows; one integer or one for each axis.
        padding: so many elements are cut off at both ends of each axis.
        output_padding: so many elements more at the end of each axis, below the stride
            or the dilation: several images have the same convolution.
        dilation: distance of neighbouring kernel elements.
        groups: channels and output channels fall into so many independent groups.

    Returns:
        (batch, out channels, height', width'), where height' is (height - 1) stride
        - 2 padding + dilation (kernel height - 1) + output_padding + 1.

    Raises:
        ShapeError: operands do not fit, or nothing would be left.
        InvalidArgumentError, DTypeError: a parameter is out of range or no integer.

    Cost: allocates the result (twice with `b`: product and sum), and the padded `x` if
        `output_padding` exceeds the stride; no copies. Scratch as `conv2d`.

    Source: V. Dumoulin, F. Visin, arXiv:1603.07285.
    """
    return _transposed(
        "conv_transpose2d",
        2,
        *(x, w, b, stride, padding, output_padding, dilation, groups),
    )


@named(y="x")
def conv_transpose3d(
    x: Any,
    w: Any,
    b: Any = None,
    *,
    stride: Extent = 1,
    padding: Extent = 0,
    output_padding: Extent = 0,
    dilation: Extent = 1,
    groups: int = 1,
) -> EagerTensor:
    """Transposed convolution over three spatial axes; see `conv_transpose2d`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `conv_transpose2d`.

    Cost: as `conv_transpose2d`.
    """
    return _transposed(
        "conv_transpose3d",
        3,
        *(x, w, b, stride, padding, output_padding, dilation, groups),
    )
