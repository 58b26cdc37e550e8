"""The product of two arrays over named axes, on the host: one (batched) GEMM.

Each symbol of a pair is shared (in both operands and in the result), inner (in both and
summed), or belongs to one side and the result. The operands become stacks of matrices
and `np.matmul` multiplies them; where nothing is summed the product is elementwise. An
operand is written out (in scratch) only where its axes do not merge into those of a
matrix; `layout_of` chooses orders of merged axes for which that costs least.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from ._equations import terms_of

Array = np.ndarray[Any, Any]
DType = np.dtype[Any]
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Side:
    """One array as a stack of matrices.

    Attributes:
        axes: its axes in the order shared, rows, columns.
        split: where the columns begin in that order; the rows begin at `lead`.
        shape: with rows and columns merged.
        fits: a row-major array merges; else it is written out, with the columns first
            if it `turns`.
        direct: a row-major array needs to be reshaped only, to this shape; then rows
            and columns are exchanged if it `swaps`. None if it needs more.
    """

    axes: Shape
    lead: int
    split: int
    shape: Shape
    fits: bool
    turns: bool
    direct: Shape | None
    swaps: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """How one pair becomes a product of stacks of matrices.

    Attributes:
        x, y, out: the three arrays; None where nothing is summed.
        aligned: then, for x and y, their axes in the order of the result, with None for
            those that one lacks.
    """

    sides: tuple[Side, Side, Side] | None
    aligned: tuple[tuple[int | None, ...], tuple[int | None, ...]]


# ---- planning ------------------------------------------------------------------------


@lru_cache(maxsize=8192)
def layout_of(equation: str, x_shape: Shape, y_shape: Shape) -> Layout:
    """The cheapest layout for operands that lie in row-major order."""
    (x, y), out = terms_of(equation)
    sizes = {**dict(zip(x, x_shape, strict=True)), **dict(zip(y, y_shape, strict=True))}
    inner = [c for c in x if c in y and c not in out]
    if not inner:
        places = [tuple([t.find(c) for c in out]) for t in (x, y)]
        one, two = (tuple([None if k < 0 else k for k in p]) for p in places)
        return Layout(None, (one, two))
    shared = [c for c in x if c in y and c in out]
    left, right = [c for c in x if c not in y], [c for c in y if c not in x]
    best: tuple[Side, Side, Side] | None = None
    least = -1
    for rows, mid, cols in product(
        _orders(left, x, out), _orders(inner, x, y), _orders(right, y, out)
    ):
        sides = (
            _side(x, shared, rows, mid, sizes),
            _side(y, shared, mid, cols, sizes),
            _side(out, shared, rows, cols, sizes),
        )
        cost = sum(math.prod(s.shape) for s in sides if not s.fits)
        if best is None or cost < least:
            best, least = sides, cost
    return Layout(best, ((), ()))


def _orders(group: list[str], *terms: str) -> Iterator[list[str]]:
    """The orders in which the group occurs in the terms, each once."""
    seen: list[list[str]] = []
    for term in terms:
        order = [c for c in term if c in group]
        if order not in seen:
            seen.append(order)
            yield order


def _side(
    term: str,
    shared: list[str],
    rows: list[str],
    cols: list[str],
    sizes: dict[str, int],
) -> Side:
    order = [*shared, *rows, *cols]
    stack = tuple([sizes[c] for c in shared])
    m, n = math.prod([sizes[c] for c in rows]), math.prod([sizes[c] for c in cols])
    real = [c for c in term if sizes[c] != 1]
    straight, swapped = "".join(order), "".join([*shared, *cols, *rows])
    swaps = term == swapped != straight
    return Side(
        tuple([term.index(c) for c in order]),
        len(shared),
        len(shared) + len(rows),
        (*stack, m, n),
        merges(term, rows, cols, sizes),
        bool(real) and real[-1] in rows,
        (*stack, n, m) if swaps else (*stack, m, n) if term == straight else None,
        swaps,
    )


def merges(term: str, rows: list[str], cols: list[str], sizes: dict[str, int]) -> bool:
    """Whether rows and columns of a row-major array merge into a matrix for BLAS."""
    strides, step = {}, 1
    for c in reversed(term):
        strides[c] = step
        step *= sizes[c]
    ends = []
    for group in (rows, cols):
        real = [c for c in group if sizes[c] != 1]
        if any(strides[a] != strides[b] * sizes[b] for a, b in pairwise(real)):
            return False
        ends.append(strides[real[-1]] if real else 1)
    return 1 in ends


def scratch_of(layout: Layout, dtype: DType, *, plain: bool) -> int:
    """Bytes that `multiply` may take beside its operands and its result, which is
    `plain` if it is row-major and of the dtype that is computed in."""
    if layout.sides is None:
        return 0
    x, y, z = (math.prod(s.shape) for s in layout.sides)
    stored = not (plain and layout.sides[2].fits)
    return dtype.itemsize * (x + y + (z if stored else 0))


# ---- running -------------------------------------------------------------------------


def multiply(layout: Layout, x: Array, y: Array, out: Array, dtype: DType) -> None:
    """Write the pair's result into `out`, computed in `dtype`."""
    if layout.sides is None:
        one, two = (_aligned(v, a) for v, a in zip((x, y), layout.aligned, strict=True))
        np.multiply(one, two, out, dtype=dtype, casting="unsafe")
        return
    left, right, result = layout.sides
    a, b = _matrices(x, left, dtype), _matrices(y, right, dtype)
    if out.dtype == dtype:
        target = _as_matrices(out, result)
        if target is not None:
            np.matmul(a, b, target)
            return
    held = np.matmul(a, b)
    view = out.transpose(result.axes)
    np.copyto(view, held.reshape(view.shape), casting="unsafe")


def _aligned(v: Array, axes: tuple[int | None, ...]) -> Array:
    key = tuple([None if a is None else slice(None) for a in axes])
    found: Array = v.transpose([a for a in axes if a is not None])[(*key, ...)]
    return found


def _matrices(v: Array, side: Side, dtype: DType) -> Array:
    """The operand as a stack of matrices that BLAS can read, written out if need be."""
    if v.dtype == dtype:
        found = _as_matrices(v, side)
        if found is not None:
            return found
    seen = v.transpose(side.axes)
    if not side.turns:
        held = np.empty(side.shape, dtype)
        np.copyto(held.reshape(seen.shape), seen, casting="unsafe")
        return held
    lead, split, ndim = side.lead, side.split, seen.ndim
    *stack, m, n = side.shape
    order = (*range(lead), *range(split, ndim), *range(lead, split))
    seen = seen.transpose(order)
    held = np.empty((*stack, n, m), dtype)
    np.copyto(held.reshape(seen.shape), seen, casting="unsafe")
    return held.swapaxes(-1, -2)


def _as_matrices(v: Array, side: Side) -> Array | None:
    """A view of the array as matrices that BLAS can work on, if there is one."""
    if side.direct is not None and v.flags.c_contiguous:
        found = v if v.shape == side.direct else v.reshape(side.direct)
        return found.swapaxes(-1, -2) if side.swaps else found
    try:
        found = v.transpose(side.axes).reshape(side.shape, copy=False)
    except ValueError:
        return None
    return found if _for_blas(found) else None


def _for_blas(v: Array) -> bool:
    """Whether each matrix of the stack has unit steps along one axis, and along the
    other at least its length."""
    rows, cols = v.shape[-2:]
    down, across = v.strides[-2:]
    item = v.itemsize
    if across == item:
        return down >= cols * item and down % item == 0
    return down == item and across >= rows * item and across % item == 0
