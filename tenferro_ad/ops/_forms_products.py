"""Device forms of products of matrices, convolutions and pooling.

A window reads `stride * p + dilation * t - padding` for its place p and tap t. The
transposed kernels ask the other way round: which p, if any, reads here with tap t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ._expr import Expr, call
from ._form import Array, Form, Index, Kernel, Nest, both, cast, quotient, rest

# ---- products of matrices ------------------------------------------------------------


def matmul(turned: int | None = None) -> Form:
    """The product; operand `turned` enters as its adjoint."""

    def form(k: Kernel, c: Any) -> None:
        (x, y), (out,) = k.ins, k.outs
        n, index = k.nest(*out.shape)
        column = index[-1:] if len(y.shape) > 1 else ()
        lead = index[: len(index) - len(column)]
        row = lead[-1:] if len(x.shape) > 1 else ()
        batch = lead[: len(lead) - len(row)]
        axis = -2 if turned == 0 and len(x.shape) > 1 else -1
        over = n.loops([x.shape[axis]])
        inner = (over[0].var,)
        left = (*row, *inner) if turned != 0 else (*inner, *row)
        right = (*inner, *column) if turned != 1 else (*column, *inner)
        a = _factor(x, batch, left, turned == 0, out.dtype)
        b = _factor(y, batch, right, turned == 1, out.dtype)
        if row and column:
            n.tile = (row[0], column[0])
        n.store(out, index, n.reduce("sum", over, a * b, out.dtype))

    return form


def _factor(
    x: Array, batch: Sequence[Expr], own: tuple[Expr, ...], adjoint: bool, dtype: Any
) -> Expr:
    many = len(x.shape) - len(own)
    lead = [
        0 if n == 1 else i
        for n, i in zip(x.shape[:many], batch[len(batch) - many :], strict=True)
    ]
    found = x.at(*lead, *own)
    return cast(call("conj", found) if adjoint else found, dtype)


# ---- windows -------------------------------------------------------------------------


class Taps:
    """Loops over the taps of a window and where they read."""

    def __init__(
        self,
        n: Nest,
        kernel: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
    ) -> None:
        self.n, self.loops = n, n.loops(kernel)
        self.at = [loop.var for loop in self.loops]
        self.how = list(zip(stride, padding, dilation, strict=True))

    def reads(
        self, place: Sequence[Expr], sizes: Sequence[int]
    ) -> tuple[list[Index], Expr | None]:
        """Where the window at `place` reads, and whether that is inside."""
        found: list[Index] = []
        inside: Expr | None = None
        n = self.n
        for p, t, (s, pad, d), size in zip(
            place, self.at, self.how, sizes, strict=True
        ):
            q = p * n.size(s) + t * n.size(d)
            if pad:
                q = q - n.size(pad)
                inside = both(inside, q >= 0, q < n.size(size))
            found.append(q)
        return found, inside

    def readers(
        self, place: Sequence[Expr], grid: Sequence[int]
    ) -> tuple[list[Index], Expr]:
        """Which window reads at `place` with these taps, and whether there is one."""
        found: list[Index] = []
        exists: Expr | None = None
        n = self.n
        for q, t, (s, pad, d), size in zip(place, self.at, self.how, grid, strict=True):
            r = q + n.size(pad) - t * n.size(d)
            exists = both(exists, r >= 0)
            if s > 1:
                step = n.size(s)
                exists = both(exists, call("equal", rest(r, step), 0))
                r = quotient(r, step)
            exists = both(exists, r < n.size(size))
            found.append(r)
        assert exists is not None
        return found, exists


def _conv_taps(n: Nest, c: Any, kernel: Sequence[int]) -> Taps:
    return Taps(n, kernel, c.stride, c.padding, c.dilation)


def conv(k: Kernel, c: Any) -> None:
    (x, w), (out,) = k.ins, k.outs
    groups, (outer, inner, *kernel) = c.groups, w.shape
    each = outer // groups
    n, (b, g, o, *place) = k.nest(out.shape[0], groups, each, *out.shape[2:])
    taps = _conv_taps(n, c, kernel)
    (channel,) = n.loops([inner])
    at, inside = taps.reads(place, x.shape[2:])
    value = cast(x.at(b, g * n.size(inner) + channel.var, *at, where=inside), out.dtype)
    o_all = g * n.size(each) + o
    weight = cast(w.at(o_all, channel.var, *taps.at), out.dtype)
    total = n.reduce("sum", (channel, *taps.loops), value * weight, out.dtype)
    n.tile = (o, place[-1])
    n.store(out, (b, o_all, *place), total)


def conv_input(k: Kernel, c: Any) -> None:
    (y, w), (out,) = k.ins, k.outs
    groups, (outer, inner, *kernel) = c.groups, w.shape
    each = outer // groups
    n, (b, g, i, *place) = k.nest(out.shape[0], groups, inner, *out.shape[2:])
    taps = _conv_taps(n, c, kernel)
    (channel,) = n.loops([each])
    at, exists = taps.readers(place, y.shape[2:])
    o_all = g * n.size(each) + channel.var
    value = cast(y.at(b, o_all, *at, where=exists), out.dtype)
    weight = cast(call("conj", w.at(o_all, i, *taps.at)), out.dtype)
    total = n.reduce("sum", (channel, *taps.loops), value * weight, out.dtype)
    n.tile = (i, place[-1])
    n.store(out, (b, g * n.size(inner) + i, *place), total)


def conv_weight(k: Kernel, c: Any) -> None:
    (x, y), (out,) = k.ins, k.outs
    groups, (outer, inner, *kernel) = c.groups, out.shape
    each = outer // groups
    n, (g, o, i, *tap) = k.nest(groups, each, inner, *kernel)
    over = n.loops([y.shape[0], *y.shape[2:]])
    b, *place = (loop.var for loop in over)
    taps = _conv_taps(n, c, kernel)
    taps.at = list(tap)
    at, inside = taps.reads(place, x.shape[2:])
    channel = g * n.size(inner) + i
    value = cast(call("conj", x.at(b, channel, *at, where=inside)), out.dtype)
    o_all = g * n.size(each) + o
    other = cast(y.at(b, o_all, *place), out.dtype)
    total = n.reduce("sum", over, value * other, out.dtype)
    n.tile = (i, o)
    n.store(out, (o_all, i, *tap), total)


# ---- pooling -------------------------------------------------------------------------


def _pool_taps(n: Nest, c: Any) -> Taps:
    return Taps(n, c.kernel, c.stride, c.padding, (1,) * len(c.kernel))


def _split(index: Sequence[Expr], c: Any) -> tuple[list[Expr], list[Expr]]:
    """Leading indices and those of the windows' axes."""
    many = len(index) - len(c.kernel)
    return list(index[:many]), list(index[many:])


def _spatial(x: Array, c: Any) -> tuple[int, ...]:
    return x.shape[len(x.shape) - len(c.kernel) :]


def _mean_factor(n: Nest, c: Any, dtype: Any) -> Expr:
    real = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    return n.number(1 / math.prod(c.kernel), real)


def avg_pool(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    lead, place = _split(index, c)
    taps = _pool_taps(n, c)
    at, inside = taps.reads(place, _spatial(x, c))
    total = n.reduce("sum", taps.loops, x.at(*lead, *at, where=inside), out.dtype)
    n.store(out, index, total * _mean_factor(n, c, out.dtype))


def avg_pool_input(k: Kernel, c: Any) -> None:
    (y,), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    lead, place = _split(index, c)
    taps = _pool_taps(n, c)
    at, exists = taps.readers(place, _spatial(y, c))
    value = y.at(*lead, *at, where=exists)
    total = n.reduce("sum", taps.loops, value, out.dtype)
    n.store(out, index, total * _mean_factor(n, c, out.dtype))


def max_pool(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    lead, place = _split(index, c)
    taps = _pool_taps(n, c)
    at, inside = taps.reads(place, _spatial(x, c))
    top = n.reduce("max", taps.loops, x.at(*lead, *at), out.dtype, where=inside)
    n.store(out, index, top)


def _is_top(x: Expr, top: Expr) -> Expr:
    """Not less, rather than equal: true of NaN as well."""
    return call("logical_not", call("less", x, top))


def _shares(
    n: Nest, c: Any, index: Sequence[Expr], x: Array, top: Array
) -> tuple[Taps, list[Index], Expr | None, Expr, Expr]:
    """Taps of a window, which of its elements are largest, and how many."""
    lead, place = _split(index, c)
    taps = _pool_taps(n, c)
    at, inside = taps.reads(place, _spatial(x, c))
    where = [*lead, *at]
    is_top = _is_top(x.at(*where, where=inside), top.at(*index))
    hit = cast(is_top, top.dtype)
    count = n.reduce("sum", taps.loops, hit, top.dtype, where=inside)
    return taps, where, inside, is_top, count


def max_pool_input(k: Kernel, c: Any) -> None:
    (y, x, top), (out,) = k.ins, k.outs
    share = k.array(top.shape, _held(out.dtype))
    n, index = k.nest(*top.shape)
    *_, count = _shares(n, c, index, x, top)
    n.store(share, index, y.at(*index) / count)
    n, index = k.nest(*out.shape)
    lead, place = _split(index, c)
    taps = _pool_taps(n, c)
    at, exists = taps.readers(place, _spatial(top, c))
    where = [*lead, *at]
    hit = _is_top(x.at(*index), top.at(*where, where=exists))
    value = share.at(*where, where=both(exists, hit))
    n.store(out, index, n.reduce("sum", taps.loops, value, out.dtype))


def _held(dtype: Any) -> Any:
    """What holds intermediate values: halves are computed in single precision."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def max_pool_pick(k: Kernel, c: Any) -> None:
    (t, x, top), (out,) = k.ins, k.outs
    n, index = k.nest(*out.shape)
    taps, where, inside, is_top, count = _shares(n, c, index, x, top)
    value = t.at(*where)
    hit = both(inside, is_top)
    total = n.reduce("sum", taps.loops, value, out.dtype, where=hit)
    n.store(out, index, total / count)
