"""Device forms of indexing, of what transposes it, and of orders.

Indices may be negative. Those that the host knows are checked before anything is
allocated. For an index out of range in device memory, reading gives NaN (the least
number of a signed dtype, the greatest of an unsigned one, True) and writing leaves
everything as it is. Such an element is itself out of range as an index. Sums at
repeated indices are one loop over all indices for each element of the result, so their
order is that of the indices.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._expr import Expr, call, select
from ._form import (
    INDEX,
    Array,
    Dtype,
    Index,
    Kernel,
    Nest,
    both,
    cast,
    quotient,
    rest,
    within,
)

_INT32 = np.dtype(np.int32)


def _as_index(index: Any, dtype: Dtype, size: Expr) -> Expr:
    """An index in the lane's width; out of range stays out of range."""
    if dtype.itemsize < 4 or dtype == _INT32:
        return cast(index, INDEX)
    held = call("minimum", index, cast(size, dtype))
    if dtype.kind == "i":
        held = call("maximum", held, cast(call("neg", size) - 1, dtype))
    return cast(held, INDEX)


def _wrapped(index: Any, dtype: Dtype, size: Expr) -> Expr:
    i = _as_index(index, dtype, size)
    return select(call("less", i, 0), i + size, i)


def _missing(x: Array) -> Any:
    match x.dtype.kind:
        case "i":
            return int(np.iinfo(x.dtype).min)
        case "u":
            return int(np.iinfo(x.dtype).max)
        case "b":
            return True
    return math.nan


def _picked(x: Array, places: Sequence[Index], bounds: Sequence[Expr | None]) -> Expr:
    return x.at(*places, where=both(*bounds), other=_missing(x))


def _is_at(index: Any, dtype: Dtype, place: Expr, size: Expr) -> Expr:
    """Whether an index, which may count from the end, is `place`."""
    i = _as_index(index, dtype, size)
    return call("logical_or", call("equal", i, place), call("equal", i, place - size))


# ---- one axis ------------------------------------------------------------------------


def take(k: Kernel, c: Any) -> None:
    (x, indices), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    axis, many = c.axis, len(indices.shape)
    size = n.size(x.shape[axis])
    i = _wrapped(indices.at(*index[axis : axis + many]), indices.dtype, size)
    places = [*index[:axis], i, *index[axis + many :]]
    n.store(out, index, _picked(x, places, [within(i, size)]))


def take_add(k: Kernel, c: Any) -> None:
    (ct, indices), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    axis = c.axis
    over = n.loops(indices.shape)
    batch = [loop.var for loop in over]
    size = n.size(out.shape[axis])
    hit = _is_at(indices.at(*batch), indices.dtype, index[axis], size)
    places = [*index[:axis], *batch, *index[axis + 1 :]]
    total = n.reduce("sum", over, ct.at(*places), out.dtype, where=hit)
    n.store(out, index, total)


# ---- several axes --------------------------------------------------------------------


def gather(k: Kernel, c: Any) -> None:
    (x, indices), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    many = len(indices.shape) - 1
    batch = index[c.at : c.at + many]
    others = iter([*index[: c.at], *index[c.at + many :]])
    places: list[Index] = []
    bounds = []
    for axis, size in enumerate(x.shape):
        if axis not in c.axes:
            places.append(next(others))
            continue
        limit = n.size(size)
        i = _wrapped(indices.at(c.axes.index(axis), *batch), indices.dtype, limit)
        places.append(i)
        bounds.append(within(i, limit))
    n.store(out, index, _picked(x, places, bounds))


def scatter_add(k: Kernel, c: Any) -> None:
    (ct, indices), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    over = n.loops(indices.shape[1:])
    batch = [loop.var for loop in over]
    hit = both(
        *[
            _is_at(indices.at(j, *batch), indices.dtype, index[a], n.size(out.shape[a]))
            for j, a in enumerate(c.axes)
        ]
    )
    others = [i for a, i in enumerate(index) if a not in c.axes]
    places = [*others[: c.at], *batch, *others[c.at :]]
    total = n.reduce("sum", over, ct.at(*places), out.dtype, where=hit)
    n.store(out, index, total)


# ---- one index for each element ------------------------------------------------------


def take_along_axis(k: Kernel, c: Any) -> None:
    (x, indices), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    size = n.size(x.shape[c.axis])
    i = _wrapped(indices.at(*index), indices.dtype, size)
    places: list[Index] = list(index)
    places[c.axis] = i
    n.store(out, index, _picked(x, places, [within(i, size)]))


def _meeting(
    k: Kernel, c: Any, values: Array, indices: Array
) -> tuple[Nest, tuple[Expr, ...], Any, Expr, Expr]:
    """For each place the loop over elements along the axis, and which of them are
    meant for it."""
    out = k.outs[0]
    n, index = k.nest(*out.shape)
    over = n.loops([indices.shape[c.axis]])
    there: list[Index] = list(index)
    there[c.axis] = over[0].var
    size = n.size(out.shape[c.axis])
    hit = _is_at(indices.at(*there), indices.dtype, index[c.axis], size)
    return n, index, over, values.at(*there), hit


def add_along_axis(k: Kernel, c: Any) -> None:
    ct, indices = k.ins
    n, index, over, value, hit = _meeting(k, c, ct, indices)
    out = k.outs[0]
    n.store(out, index, n.reduce("sum", over, value, out.dtype, where=hit))


def multiply_along_axis(k: Kernel, c: Any) -> None:
    x, indices = k.ins
    n, index, over, value, hit = _meeting(k, c, x, indices)
    out = k.outs[0]
    n.store(out, index, n.reduce("prod", over, value, out.dtype, where=hit))


def extreme_along_axis(k: Kernel, c: Any) -> None:
    x, values, indices = k.ins
    n, index, over, value, hit = _meeting(k, c, values, indices)
    out = k.outs[0]
    how = "max" if c.largest else "min"
    met = n.reduce(how, over, value, out.dtype, where=hit)
    fn = "maximum" if c.largest else "minimum"
    n.store(out, index, call(fn, x.at(*index), met))


# ---- masks ---------------------------------------------------------------------------


def mask_indices(k: Kernel, c: Any) -> None:
    """One invocation walks the mask: places come in row-major order."""
    (mask,), (out,) = k.ins, k.outs
    n, _ = k.nest()
    (loop,) = n.loops([math.prod(mask.shape)])
    place: list[Expr] = []
    left: Expr = loop.var
    for size in reversed(mask.shape[1:]):
        place.append(rest(left, n.size(size)))
        left = quotient(left, n.size(size))
    places = [left, *reversed(place)] if mask.shape else []
    hit = cast(mask.at(*places), bool)

    def step(count: Expr) -> tuple[Expr]:
        return (count + cast(hit, INDEX),)

    def stores(count: Expr) -> list[tuple[Any, ...]]:
        fits = both(hit, call("less_equal", count, n.size(c.count)))
        return [
            (out, (axis, count - 1), cast(p, out.dtype), fits)
            for axis, p in enumerate(places)
        ]

    n.scan(loop, [(INDEX, 0)], step, stores)


# ---- orders --------------------------------------------------------------------------


def _before(a: Expr, b: Expr, dtype: Any) -> tuple[Expr, Expr]:
    """Whether a comes before b, and whether neither comes before the other: NumPy's
    order, NaN last, complex numbers by real part, then by imaginary part."""
    if dtype.kind == "c":
        keys = [
            (_rank(a), _rank(b)),
            (call("real", a), call("real", b)),
            (call("imag", a), call("imag", b)),
        ]
    elif dtype.kind == "f":
        nan = [cast(call("isnan", e), "i4") for e in (a, b)]
        keys = [(nan[0], nan[1]), (a, b)]
    else:
        keys = [(a, b)]
    less: Expr | None = None
    same: Expr | None = None
    for x, y in keys:
        under, over = call("less", x, y), call("less", y, x)
        here = call("logical_not", call("logical_or", under, over))
        less = under if less is None else call("logical_or", less, both(same, under))
        same = both(same, here)
    assert less is not None
    assert same is not None
    return less, same


def _rank(z: Expr) -> Expr:
    """Complex numbers with a NaN come last, those with a NaN in front behind."""
    re, im = (call("isnan", call(p, z)) for p in ("real", "imag"))
    return cast(re, "i4") * 2 + cast(im, "i4")


def _ordering(k: Kernel, c: Any) -> Any:
    """A nest over elements, with the place of each in the order of its line."""
    (x,) = k.ins
    n, index = k.nest(*x.shape)
    (loop,) = n.loops([x.shape[c.axis]])
    other: list[Index] = list(index)
    other[c.axis] = loop.var
    mine, theirs = _key(x.at(*index), x.dtype), _key(x.at(*other), x.dtype)
    less, same = _before(theirs, mine, x.dtype)
    if c.descending:
        less = _before(mine, theirs, x.dtype)[0]
    earlier = call("less", loop.var, index[c.axis])
    first = call("logical_or", less, both(same, earlier))
    rank = n.reduce("sum", [loop], cast(first, INDEX), INDEX)
    target: list[Index] = list(index)
    target[c.axis] = rank
    return n, index, target


def _key(e: Expr, dtype: Any) -> Expr:
    return cast(e, "i4") if dtype.kind == "b" else e


def sort(k: Kernel, c: Any) -> None:
    n, index, target = _ordering(k, c)
    n.store(k.outs[0], target, k.ins[0].at(*index))


def argsort(k: Kernel, c: Any) -> None:
    n, index, target = _ordering(k, c)
    out = k.outs[0]
    n.store(out, target, cast(index[c.axis], out.dtype))


def searchsorted(k: Kernel, c: Any) -> None:
    (x, values), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    (loop,) = n.loops(x.shape)
    dtype = np.result_type(x.dtype, values.dtype)
    mine, theirs = (
        _key(cast(e, dtype), dtype) for e in (values.at(*index), x.at(loop.var))
    )
    less, same = _before(theirs, mine, dtype)
    if c.side == "right":
        less = call("logical_or", less, same)
    found = n.reduce("sum", [loop], cast(less, INDEX), INDEX)
    n.store(out, index, cast(found, out.dtype))
