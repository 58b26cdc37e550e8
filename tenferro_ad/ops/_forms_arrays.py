"""Device forms of values from parameters and of kernels that move elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._expr import Expr, call, const, select
from ._form import Form, Index, Kernel, cast

# ---- values from parameters ----------------------------------------------------------


def full(k: Kernel, c: Any) -> None:
    k.fill(c.value)
    k.nests[-1].is_background = False


def arange(k: Kernel, c: Any) -> None:
    (out,) = k.outs
    n, (i,) = k.nest(c.size)
    dtype = out.dtype
    start, step = n.number(c.start, dtype), n.number(c.step, dtype)
    n.store(out, (i,), start + cast(i, dtype) * step)


def linspace(k: Kernel, c: Any) -> None:
    """As NumPy: multiples of the step, and the last element is the end itself."""
    (out,) = k.outs
    n, (i,) = k.nest(c.num)
    dtype = out.dtype
    wide = dtype if dtype.kind in "fc" else k.wide
    start, stop = n.number(c.start, wide), n.number(c.stop, wide)
    steps = c.num - 1 if c.endpoint else c.num
    parts = n.number(max(steps, 1), _real(wide))
    value = start + cast(i, wide) * ((stop - start) / parts)
    if c.endpoint and c.num > 1:
        value = select(call("equal", i, n.size(c.num - 1)), stop, value)
    if dtype.kind not in "fc":
        value = call("floor", value)
    n.store(out, (i,), cast(value, dtype))


def _real(dtype: Any) -> Any:
    kind = f"f{dtype.itemsize // 2}"
    return kind if dtype.kind == "c" else dtype


def eye(k: Kernel, c: Any) -> None:
    (out,) = k.outs
    n, (i, j) = k.nest(c.rows, c.cols)
    hit = call("equal", j, i + n.size(c.k))
    n.store(out, (i, j), cast(hit, out.dtype))


# ---- conversion ----------------------------------------------------------------------


def astype(k: Kernel, c: Any) -> None:
    n, index = k.nest(*c.out.shape)
    n.store(k.outs[0], index, cast(k.ins[0].at(*index), c.out.dtype))


def pack_complex(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    n.store(out, index, call("complex", x.at(*index, 0), x.at(*index, 1)))


# ---- placing -------------------------------------------------------------------------


def place(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    if math.prod(x.shape) < math.prod(out.shape):
        k.fill(c.value)
    n, index = k.nest(*x.shape)
    axes = iter(index)
    target: list[Index] = []
    for entry in c.key:
        if entry is None:
            next(axes)
        elif isinstance(entry, tuple):
            start, _, step = entry
            target.append(next(axes) * n.size(step) + n.size(start))
        else:
            target.append(n.size(entry))
    n.store(out, target, x.at(*index))


def place_diagonal(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    k.fill(0)
    n, index = k.nest(*x.shape)
    *rest, d = index
    places: list[Index] = list(rest)
    at = {c.axis1: max(0, -c.offset), c.axis2: max(0, c.offset)}
    for axis in sorted(at):
        places.insert(axis, d + n.size(at[axis]))
    n.store(out, places, x.at(*index))


def concat(k: Kernel, c: Any) -> None:
    (out,), start = k.outs, 0
    for x in k.ins:
        n, index = k.nest(*x.shape)
        place: list[Index] = list(index)
        place[c.axis] = index[c.axis] + n.size(start)
        n.store(out, place, cast(x.at(*index), out.dtype))
        start += x.shape[c.axis]


# ---- rearranging ---------------------------------------------------------------------


def roll(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    n, index = k.nest(*x.shape)
    source: list[Index] = []
    for i, size, shift in zip(index, x.shape, c.shifts, strict=True):
        if not shift:
            source.append(i)
            continue
        back = n.size(size - shift)
        by = n.size(shift)
        source.append(select(call("less", i, by), i + back, i - by))
    n.store(out, index, x.at(*source))


def repeating(*, inner: bool) -> Form:
    """`repeat` (copies of an element stand together) and `tile`."""

    def form(k: Kernel, c: Any) -> None:
        (x,), (out,) = k.ins, k.outs
        pairs = [
            (n, r) if inner else (r, n) for n, r in zip(x.shape, c.reps, strict=True)
        ]
        n, index = k.nest(*[size for pair in pairs for size in pair])
        target, source = [], []
        for (_, fast), i, j in zip(pairs, index[::2], index[1::2], strict=True):
            target.append(i * n.size(fast) + j)
            source.append(i if inner else j)
        n.store(out, target, x.at(*source))

    return form


def triangle(*, upper: bool) -> Form:
    def form(k: Kernel, c: Any) -> None:
        (x,), (out,) = k.ins, k.outs
        n, index = k.nest(*x.shape)
        i, j = index[-2:]
        edge = i + n.size(c.k)
        keep = call("greater_equal" if upper else "less_equal", j, edge)
        n.store(out, index, select(keep, x.at(*index), 0))

    return form


# ---- lanes of a product --------------------------------------------------------------


def _flat(sizes: Sequence[int], index: Sequence[Expr], n: Any) -> Any:
    place: Any = const(0)
    for size, i in zip(sizes, index, strict=True):
        place = place * n.size(size) + i
    return place


def lanes(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    if math.prod([x.shape[a] for a in c.axes]) < out.shape[1]:
        k.fill(c.fill)
    n, index = k.nest(*x.shape)
    kept = [a for a in range(len(x.shape)) if a not in c.axes]
    row, col = (
        _flat([x.shape[a] for a in group], [index[a] for a in group], n)
        for group in (kept, c.axes)
    )
    n.store(out, (row, col), x.at(*index))


def unlanes(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    kept = [a for a in range(len(out.shape)) if a not in c.axes]
    row, col = (
        _flat([out.shape[a] for a in group], [index[a] for a in group], n)
        for group in (kept, c.axes)
    )
    n.store(out, index, x.at(row, col))
