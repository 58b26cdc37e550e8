"""Where the windows of a convolution lie, and the scratch that unfolds them.

A block of images becomes columns, one for each window, so that a convolution is one
matrix product; the block bounds the scratch, whose formula is `Geometry.nbytes`.
Unfolding is channel-major: groups are then a batch of products and a whole block is
one wide matrix. At stride 1 the images lie end to end with a zero gap that neighbours
share, so each kernel tap is one long contiguous run instead of many short rows, at the
price of columns that belong to no output (not copied out forward, zero in a
cotangent). Where they would be too many, and for other strides, windows are gathered
exactly; on small maps with the images innermost, which makes the runs long again at
the price of transposing images and outputs.

A zero times a non-finite number is NaN, so infinities near a border may spread further
in derivatives than the formula says.

Source: K. Chellapilla, S. Puri, P. Simard, "High performance convolutional neural
networks for document processing" (2006), for unfolding.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import mul
from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]

# Columns of one block: as much as stays near the core, and at least one image.
BLOCK_NBYTES: Final = 1 << 20
# Columns computed for each column used, up to which contiguous runs are faster: than
# gathering one image, and than gathering with several images innermost.
MOST_COLUMNS: Final = 1.7
MOST_BESIDE_INNER: Final = 1.2
# Products for each element of image and output from which transposing those pays.
LEAST_WORK: Final = 48
LINE_NBYTES: Final = 64
# Scratch up to this size stays with its thread.
KEPT_NBYTES: Final = 1 << 24


def buffers(size: int, itemsize: int) -> int:
    """Bytes that NumPy may buffer in a strided in-place sum of `size` elements."""
    return 2 * min(size, 8192) * itemsize


def pitch(size: int, itemsize: int) -> int:
    """Elements from one row of `size` elements to the next: an odd number of cache
    lines, so that the same column of many rows does not share a few places in the
    cache (which makes a matrix product up to twice as slow)."""
    return (-(-size * itemsize // LINE_NBYTES) | 1) * LINE_NBYTES // itemsize


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes of one convolution and of the scratch of a block of `block` images.

    Attributes:
        x, w, out: shapes of input, weight and output.
        groups, block: number of groups; images in a block.
        runs: tap by contiguous runs (stride 1), else by gathering windows.
        inner: images lie innermost, not outside the spatial axes (never with `runs`).
        row: spatial extents of one image in the scratch, gap or padding included.
        tap, step: elements between taps, and between neighbouring outputs, by axis.
        front, back: zeros before the first and after the last image of a block.
        origin: where an image begins inside its `row`.
        grid: spatial extents of one image's columns: `row` with runs, else `out`'s.
    """

    x: Ints
    w: Ints
    out: Ints
    groups: int
    block: int
    runs: bool
    inner: bool
    row: Ints
    tap: Ints
    step: Ints
    front: int
    back: int
    origin: Ints
    grid: Ints

    @property
    def taps(self) -> int:
        return math.prod(self.w[2:])

    def nbytes(self, itemsize: int) -> int:
        """Scratch of one call: images, columns, one operand or result, two weights,
        and what NumPy buffers while it adds in place with strides."""
        image = self.front + self.block * math.prod(self.row) + self.back
        columns = self.block * math.prod(self.grid)
        rows = self.x[1] * self.taps + self.w[0]
        elements = self.x[1] * pitch(image, itemsize) + rows * pitch(columns, itemsize)
        elements += 2 * math.prod(self.w)
        return elements * itemsize + buffers(columns * self.x[1], itemsize)


def _block(x: Ints, columns: int) -> int:
    """Images in a block, for so many bytes of columns of one channel of an image: as
    equal blocks as the images allow."""
    most = max(1, BLOCK_NBYTES // max(1, x[1] * columns))
    blocks = max(1, -(-x[0] // most))
    return max(1, -(-x[0] // blocks))


@lru_cache(maxsize=1024)
def geometry(
    x: Ints,
    w: Ints,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
    size: int,
) -> Geometry:
    """The geometry for those shapes; `size` is the bytes of an element."""
    kernel, spatial = w[2:], x[2:]
    reach = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
    full = [s + 2 * p - r for s, p, r in zip(spatial, padding, reach, strict=True)]
    grid = tuple((f - 1) // s + 1 for f, s in zip(full, stride, strict=True))
    # A gap of one padding serves the end of a row and the start of the next.
    row = tuple(max(s + p, f) for s, p, f in zip(spatial, padding, full, strict=True))
    out, taps = (x[0], w[0], *grid), math.prod(kernel)
    # With images innermost a run is as long as they are many, times a row at stride 1.
    images = _block(x, taps * math.prod(grid) * size)
    longer = images > 1 and (stride[-1] == 1 or images >= 2 * grid[-1])
    work = taps * w[0] * w[1]
    inner = longer and work >= LEAST_WORK * (x[1] + w[0]) and taps > 1
    most = MOST_BESIDE_INNER if inner else MOST_COLUMNS
    runs = set(stride) == {1} and math.prod(row) <= most * math.prod(grid)
    inner = inner and not runs
    if runs:
        grid, origin = row, (0,) * len(row)
    else:
        row = tuple(s + 2 * p for s, p in zip(spatial, padding, strict=True))
        origin = padding
    unit = [math.prod(row[k + 1 :]) for k in range(len(row))]
    front = sum(p * u for p, u in zip(padding, unit, strict=True)) if runs else 0
    ahead = sum(r * u for r, u in zip(reach, unit, strict=True)) if runs else 0
    return Geometry(
        x=x,
        w=w,
        out=out,
        groups=groups,
        block=_block(x, taps * math.prod(grid) * size),
        runs=runs,
        inner=inner,
        row=row,
        tap=tuple(d * u for d, u in zip(dilation, unit, strict=True)),
        step=tuple(s * u for s, u in zip(stride, unit, strict=True)),
        front=front,
        back=max(0, ahead - front),
        origin=origin,
        grid=grid,
    )


class _Memory(threading.local):
    """Scratch of the calling thread, kept between calls: fresh pages cost as much as
    the arithmetic. A kernel is done with it before the next one begins."""

    raw: Array = np.empty(0, np.uint8)

    def take(self, nbytes: int) -> Array:
        if nbytes > KEPT_NBYTES:
            return np.empty(nbytes, np.uint8)
        if self.raw.nbytes < nbytes:
            self.raw = np.empty(nbytes, np.uint8)
        return self.raw


_MEMORY: Final = _Memory()


def _steps(extents: Ints, unit: int) -> list[int]:
    """Strides of a row-major array whose last axis has stride `unit`."""
    steps = [unit]
    for n in extents[:0:-1]:
        steps.append(steps[-1] * n)
    return steps[::-1]


class Block:
    """Scratch for `b` images: the zero-padded images, their columns, a channel matrix.

    Attributes:
        images: (channels, b, *spatial), the part of the scratch that holds `x`.
        padded: all of it; zero outside `images`.
        windows: (channels, *kernel, columns...), overlapping windows of `padded`.
        columns: (groups, channels / groups * taps, columns), what products read.
        values: (out channels, b, *out), the part of `matrix` that belongs to outputs.
        matrix: (groups, out channels / groups, columns).
    """

    __slots__ = (
        "columns",
        "images",
        "kernel_ndim",
        "matrix",
        "padded",
        "unfolded",
        "values",
        "windows",
    )

    def __init__(self, g: Geometry, b: int, dtype: Any) -> None:
        c, o, size = g.x[1], g.w[0], dtype.itemsize
        kernel, each = g.w[2:], c // g.groups * g.taps
        self.kernel_ndim = len(kernel)
        image, cells = math.prod(g.row), math.prod(g.grid)
        count = b * cells
        long = pitch(g.front + b * image + g.back, size) * size
        wide = pitch(count, size) * size
        unfolds = g.taps > 1 or not g.runs
        values_at = c * long
        columns_at = values_at + o * wide
        raw = _MEMORY.take(columns_at + (c * g.taps * wide if unfolds else 0))
        # Columns of no output count as zero in a cotangent.
        raw[: columns_at if g.runs else values_at].fill(0)
        # Bytes between images, and between neighbours along the last axis.
        unit = size * b if g.inner else size
        image, cells = (size, size) if g.inner else (image * size, cells * size)
        steps = _steps(g.row, unit)
        first = sum(map(mul, g.origin, steps)) + g.front * size

        def new(shape: Ints, at: int = 0, steps: Sequence[int] | None = None) -> Array:
            return np.ndarray(shape, dtype, raw, at, steps)

        self.padded = new((c, long // size))
        self.images = new((c, b, *g.x[2:]), first, (long, image, *steps))
        self.values = new(
            (o, b, *g.out[2:]),
            values_at,
            (wide, cells, *_steps(g.grid, unit)),
        )
        self.matrix = new(
            (g.groups, o // g.groups, count),
            values_at,
            (o // g.groups * wide, wide, size),
        )
        taps = [t * unit for t in g.tap]
        apart = [s * unit for s in g.step]
        ends: Ints = (count,)
        strides = [size]
        if g.inner:
            ends, strides = (*g.grid, b), [*apart, size]
        elif not g.runs:
            ends, strides = (b, *g.grid), [image, *apart]
        self.windows = new((c, *kernel, *ends), 0, (long, *taps, *strides))
        if not unfolds:
            self.unfolded = self.windows
            self.columns = self.windows.reshape(g.groups, each, count)
            return
        columns = new((c * g.taps, count), columns_at, (wide, size))
        self.unfolded = columns.reshape(self.windows.shape)
        self.columns = columns.reshape(g.groups, each, count)

    def unfold(self) -> None:
        """Columns from images."""
        if self.unfolded is not self.windows:
            np.copyto(self.unfolded, self.windows)

    def fold(self) -> None:
        """Images from columns, the adjoint of `unfold`: each window adds up."""
        if self.unfolded is self.windows:
            return
        self.padded.fill(0)
        for k in np.ndindex(self.windows.shape[1 : 1 + self.kernel_ndim]):
            at = (slice(None), *k)
            np.add(self.windows[at], self.unfolded[at], self.windows[at])


def blocks(g: Geometry, dtype: Any) -> Iterator[tuple[slice, Block]]:
    """Slices of the batch with scratch for each; equal blocks share theirs."""
    scratch: Block | None = None
    for start in range(0, g.x[0], g.block):
        b = min(g.block, g.x[0] - start)
        if scratch is None or scratch.images.shape[1] != b:
            scratch = None  # gives the memory back before taking the smaller one
            scratch = Block(g, b, dtype)
        yield slice(start, start + b), scratch
