"""Device forms of reductions: sums, extrema, places, variances, log-sum-exps, norms."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ._expr import Expr, call, const, select
from ._form import INDEX, Form, Kernel, Lines, cast

_INT32 = np.dtype(np.int32)


def _lines(k: Kernel, c: Any) -> Lines:
    """One invocation for each result of a row with `axes` and `keepdims`."""
    keepdims = c.keepdims if "keepdims" in c.op.params else True
    return k.lines(c.ins[0].shape, c.axes, keepdims=keepdims)


def _count(c: Any) -> int:
    return math.prod([c.ins[0].shape[a] for a in c.axes])


def _is_nan(e: Expr) -> Expr:
    return call("isnan", e)


def _finite(e: Expr) -> Expr:
    """`e`, and 0 where it is not finite."""
    return select(call("isfinite", e), e, 0.0)


# ---- one reduction -------------------------------------------------------------------


def reduction(how: str, term: Callable[[Expr], Expr] = lambda x: x) -> Form:
    """The reduction of `term(x)` in the dtype of the result."""

    def form(k: Kernel, c: Any) -> None:
        (x,), (out,) = k.ins, k.outs
        lines = _lines(k, c)
        value = cast(term(x.at(*lines.at)), out.dtype)
        found = lines.reduce(how, value, out.dtype)
        lines.nest.store(out, lines.line, found)

    return form


def count_nonzero(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    lines = _lines(k, c)
    found = lines.reduce("sum", cast(cast(x.at(*lines.at), bool), out.dtype), out.dtype)
    lines.nest.store(out, lines.line, found)


def mean(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    lines = _lines(k, c)
    total = lines.reduce("sum", cast(x.at(*lines.at), out.dtype), out.dtype)
    n = lines.nest.number(_count(c), _real(out.dtype))
    lines.nest.store(out, lines.line, total / n)


def _real(dtype: Any) -> Any:
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def tie_count(k: Kernel, c: Any) -> None:
    (x, extremum), (out,) = k.ins, k.outs
    lines = k.lines(x.shape, c.axes)
    element, top = x.at(*lines.at), extremum.at(*lines.line)
    tied = call("equal", element, top)
    if x.dtype.kind == "f":
        tied = call("logical_or", tied, _is_nan(element) & _is_nan(top))
    found = lines.reduce("sum", cast(tied, out.dtype), out.dtype)
    lines.nest.store(out, lines.line, found)


def position(how: str) -> Form:
    """The first place of an extremum, as NumPy has it: the first NaN wins."""

    def form(k: Kernel, c: Any) -> None:
        (x,), (out,) = k.ins, k.outs
        axes = tuple(range(len(x.shape))) if c.axis is None else (c.axis,)
        lines = k.lines(x.shape, axes, keepdims=c.keepdims)
        n = lines.nest
        element = x.at(*lines.at)
        if x.dtype == np.bool_:
            element = cast(element, _INT32)
        dtype = _INT32 if x.dtype == np.bool_ else x.dtype
        top = lines.reduce(how, element, dtype)
        tied = call("equal", element, top)
        if x.dtype.kind == "f":
            tied = call("logical_or", tied, _is_nan(element) & _is_nan(top))
        place: Any = 0
        for loop in lines.along:
            place = place * n.size(loop.size) + loop.var
        first = lines.reduce("min", place, INDEX, where=tied)
        n.store(out, lines.line, cast(first, out.dtype))

    return form


# ---- variance ------------------------------------------------------------------------


def variance(*, root: bool) -> Form:
    def form(k: Kernel, c: Any) -> None:
        (x,), (out,) = k.ins, k.outs
        lines = _lines(k, c)
        n, count = lines.nest, _count(c)
        wide = _widened(x.dtype, k)
        real = _real(wide)
        total: Any = const(0.0)
        if count:
            element = cast(x.at(*lines.at), wide)
            first = cast(x.at(*lines.start), wide)
            shift = lines.reduce("sum", element - first, wide)
            centre = first + shift / n.number(count, real)
            d = element - centre
            if wide.kind == "c":
                re, im = call("real", d), call("imag", d)
                square = re * re + im * im
            else:
                square = d * d
            total = lines.reduce("sum", square, real)
        freedom = max(count - float(c.correction), 0.0)
        found = cast(total, real) / n.number(freedom, real)
        if root:
            found = call("sqrt", found)
        n.store(out, lines.line, cast(found, out.dtype))

    return form


def _widened(dtype: Any, k: Kernel) -> Any:
    """A floating dtype in which elements are summed."""
    if dtype.kind in "fc":
        return np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    return k.wide


# ---- log-sum-exp ---------------------------------------------------------------------


def logsumexp(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    lines = _lines(k, c)
    element = cast(x.at(*lines.at), out.dtype)
    if not _count(c):
        lines.nest.store(out, lines.line, lines.nest.number(-math.inf, out.dtype))
        return
    top = _finite(lines.reduce("max", element, out.dtype))
    total = lines.reduce("sum", call("exp", element - top), out.dtype)
    lines.nest.store(out, lines.line, call("log", total) + top)


def softmax(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    lines = _lines(k, c)
    element = cast(x.at(*lines.at), out.dtype)
    top = lines.reduce("max", element, out.dtype)
    value = call("exp", element - top)
    total = lines.reduce("sum", value, out.dtype)
    lines.nest.store(out, lines.at, value / total, over=lines.along)


def log_softmax(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    lines = _lines(k, c)
    element = cast(x.at(*lines.at), out.dtype)
    top = _finite(lines.reduce("max", element, out.dtype))
    total = lines.reduce("sum", call("exp", element - top), out.dtype)
    value = element - top - call("log", total)
    lines.nest.store(out, lines.at, value, over=lines.along)


# ---- cross-entropy -------------------------------------------------------------------


def _classes(k: Kernel, c: Any) -> tuple[Lines, Expr, Expr, Expr]:
    """Lines of logits; an element, the largest one, and the sum of exponentials."""
    x, out = k.ins[-2], k.outs[0]
    lines = k.lines(x.shape, (c.axis,), keepdims=False)
    element = cast(x.at(*lines.at), out.dtype)
    top = lines.reduce("max", element, out.dtype)
    total = lines.reduce("sum", call("exp", element - top), out.dtype)
    return lines, element, top, total


def cross_entropy(k: Kernel, c: Any) -> None:
    (x, target), (out,) = k.ins, k.outs
    lines, _, top, total = _classes(k, c)
    n = lines.nest
    chosen = cast(target.at(*lines.line), INDEX)
    at = list(lines.at)
    at[c.axis] = chosen
    valid = (chosen >= 0) & (chosen < n.size(x.shape[c.axis]))
    logit = cast(x.at(*at, where=valid, other=math.nan), out.dtype)
    n.store(out, lines.line, call("log", total) - (logit - top))


def cross_entropy_input(k: Kernel, c: Any) -> None:
    (ct, _, target), (out,) = k.ins, k.outs
    lines, element, top, total = _classes(k, c)
    chosen = cast(target.at(*lines.line), INDEX)
    (loop,) = lines.along
    p = call("exp", element - top) / total
    hit = cast(call("equal", loop.var, chosen), out.dtype)
    value = cast(ct.at(*lines.line), out.dtype) * (p - hit)
    lines.nest.store(out, lines.at, value, over=lines.along)


# ---- vector norms --------------------------------------------------------------------


def vector_norm(k: Kernel, c: Any) -> None:
    (x,), (out,) = k.ins, k.outs
    lines = _lines(k, c)
    n = lines.nest
    size = cast(call("abs", _as_kind(x.at(*lines.at), x.dtype)), out.dtype)
    if not _count(c):
        n.store(out, lines.line, 0.0)
        return
    top = lines.reduce("max", size, out.dtype)
    infinite = call("logical_not", call("isfinite", top))
    plain = call("logical_or", call("equal", top, 0.0), infinite)
    scale = select(plain, 1.0, top)
    part = size / scale
    if c.order == 1:
        total = lines.reduce("sum", part, out.dtype)
        found = scale * total
    elif c.order == 2:
        total = lines.reduce("sum", part * part, out.dtype)
        found = scale * call("sqrt", total)
    else:
        power = n.number(c.order, out.dtype)
        total = lines.reduce("sum", call("pow", part, power), out.dtype)
        found = scale * call("pow", total, n.number(1 / c.order, out.dtype))
    n.store(out, lines.line, found)


def _as_kind(e: Expr, dtype: Any) -> Expr:
    return cast(e, dtype) if dtype.kind != "b" else cast(e, _INT32)
