"""Rows that combine the values which meet at one place along an axis.

`extreme_along_axis` and `multiply_along_axis` are what `add_along_axis` is for sums:
each element of a value goes to the place that its index says, and those that meet are
combined. Their order does not matter. Elements that are tied for an extremum, the one
already there included, share the slope equally; the slope of a product is the product
of the other factors, without a division, so zeros are points like any other.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from . import _conventions as say
from . import _forms_indexing as forms
from ._axes import DOUBLE, HALF, SINGLE, need_real
from ._batching import later, leading
from ._indexing import integers
from ._op import Call, Evaluator, Op, Write, register
from ._place import Key, span
from ._rows import INT, check_range, wrapped

Array = np.ndarray[Any, Any]
_INT64: Final = np.dtype(np.int64)


def _places(indices: Array, shape: tuple[int, ...], axis: int) -> Array:
    """Positions in the flattened result, one for each index, in one row."""
    size, inner = shape[axis], math.prod(shape[axis + 1 :])
    outer = math.prod(shape[:axis])
    index = wrapped(indices, size).reshape(outer, -1, inner)
    first = np.arange(outer).reshape(-1, 1, 1) * (size * inner)
    return (index * inner + first + np.arange(inner)).reshape(-1)


def _need_shape(name: str, values: Aval, indices: Aval) -> None:
    integers(name, indices)
    if values.shape != indices.shape:
        raise ShapeError(
            operation=name,
            argument="indices",
            found=f"shape {indices.shape} for values of shape {values.shape}",
            fix="give one index for each value",
        )


def _index_scratch(call: Call) -> int:
    """Places, and values in one row."""
    values, indices = call.ins[-2:]
    return values.nbytes + 5 * INT.itemsize * int(indices.size)


# ---- extrema -------------------------------------------------------------------------


def _extreme_infer(
    x: Aval, values: Aval, indices: Aval, axis: int, largest: bool
) -> tuple[Any, Any]:
    name = "extreme_along_axis"
    need_real(name, x)
    _need_shape(name, values, indices)
    want = (*x.shape[:axis], indices.shape[axis], *x.shape[axis + 1 :])
    if indices.shape != want or values.dtype != x.dtype:
        raise ShapeError(
            operation=name,
            argument="values",
            found=f"{values!r} for places in {x!r}",
            fix=f"make all axes but axis {axis}, and the dtypes, equal",
        )
    return x.shape, x.dtype


def _extreme_check(call: Call, ins: list[Array]) -> None:
    size = call.ins[0].shape[call.axis]
    check_range("extreme_along_axis", ins[2], call.axis, size)


def _extreme(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x, values, indices) = outs, ins
    np.copyto(out, x)
    if values.size:
        place = _places(indices, out.shape, call.axis)
        fn = np.maximum if call.largest else np.minimum
        fn.at(out.reshape(-1), place, values.reshape(-1))


def _is_top(F: Evaluator, v: Any, top: Any) -> Any:
    """Whether an element is the extremum; NaN always is."""
    return F.logical_or(F.equal(v, top), F.isnan(v))


def _width(aval: Aval) -> np.dtype[Any]:
    return SINGLE if aval.dtype.itemsize <= 4 else DOUBLE


def _count(
    F: Evaluator, call: Call, x: Any, values: Any, indices: Any, out: Any
) -> tuple[Any, Any, Any]:
    """Which of `x` and of `values` are extreme, and how many share each place."""
    axis = call.axis
    mine = _is_top(F, x, out)
    theirs = _is_top(F, values, F.take_along_axis(out, indices, axis))
    wide = _width(out.aval)
    sums = F.add_along_axis(F.astype(theirs, wide), indices, axis, out.aval.shape[axis])
    return mine, theirs, F.add(F.astype(mine, wide), sums)


def _shared(F: Evaluator, v: Any, count: Any, dtype: Any) -> Any:
    v = F.div(v, count)
    return v if v.aval.dtype == dtype else F.astype(v, dtype)


def _extreme_x(
    F: Evaluator, ct: Any, call: Call, *, x: Any, values: Any, indices: Any, out: Any
) -> Any:
    mine, _, count = _count(F, call, x, values, indices, out)
    return F.select(mine, _shared(F, ct, count, x.aval.dtype), 0.0)


def _extreme_values(
    F: Evaluator, ct: Any, call: Call, *, x: Any, values: Any, indices: Any, out: Any
) -> Any:
    _, theirs, count = _count(F, call, x, values, indices, out)
    share = _shared(F, ct, count, x.aval.dtype)
    return F.select(theirs, F.take_along_axis(share, indices, call.axis), 0.0)


def _extreme_push(
    F: Evaluator, t: Any, call: Call, *, x: Any, values: Any, indices: Any, out: Any
) -> Any:
    theirs, count = _count(F, call, x, values, indices, out)[1:]
    size = out.aval.shape[call.axis]
    met = F.add_along_axis(F.select(theirs, t, 0.0), indices, call.axis, size)
    return _shared(F, met, count, out.aval.dtype)


register(
    Op(
        "extreme_along_axis",
        ("x", "values", "indices"),
        params=("axis", "largest"),
        infer=_extreme_infer,
        kernel=Write(
            _extreme, _index_scratch, _extreme_check, form=forms.extreme_along_axis
        ),
        vjp={"x": _extreme_x, "values": _extreme_values},
        jvp={"x": _extreme_x, "values": _extreme_push},
        batch=leading(axis=later),
        kink=say.TIES,
    )
)


# ---- products ------------------------------------------------------------------------


def _multiply_infer(x: Aval, indices: Aval, axis: int, size: int) -> tuple[Any, Any]:
    _need_shape("multiply_along_axis", x, indices)
    return (*x.shape[:axis], size, *x.shape[axis + 1 :]), x.dtype


def _multiply_check(call: Call, ins: list[Array]) -> None:
    check_range("multiply_along_axis", ins[1], call.axis, call.size)


def _multiply(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (out,), (x, indices) = outs, ins
    total = np.empty(out.shape, SINGLE) if out.dtype == HALF else out
    total.fill(1)
    if x.size:
        place = _places(indices, out.shape, call.axis)
        np.multiply.at(total.reshape(-1), place, x.reshape(-1))
    if total is not out:
        out[...] = total


def _multiply_scratch(call: Call) -> int:
    half = 4 * call.out.size if call.out.dtype == HALF else 0
    return half + _index_scratch(call)


def _along(shape: tuple[int, ...], axis: int, start: int) -> Key:
    """All places along `axis` but the last, or from `start` = 1 but the first."""
    return tuple(
        span(start, n - 1, 1) if k == axis else span(0, n, 1)
        for k, n in enumerate(shape)
    )


def _others(F: Evaluator, call: Call, x: Any, indices: Any) -> Any:
    """For each element the product of those that meet it at its place.

    The elements are brought in the order of their places; there, the products of those
    before and of those behind in the same run are linear recurrences that begin anew
    with each run.
    """
    axis, shape = call.axis, x.aval.shape
    if x.aval.size == 0:
        return x
    index = F.astype(indices, _INT64)
    index = F.select(F.less(index, 0), F.add(index, call.size), index)
    order = F.argsort(index, axis, False, True)
    place, factor = (F.take_along_axis(v, order, axis) for v in (index, x))
    first, last = _along(shape, axis, 0), _along(shape, axis, 1)
    met = F.equal(F.slice(place, last), F.slice(place, first))
    start = F.astype(F.logical_not(met), x.aval.dtype)
    products = []
    for there, here, backwards in ((first, last, False), (last, first, True)):
        step = F.select(met, F.slice(factor, there), 0.0)
        products.append(
            F.linear_recurrence(
                F.place(step, shape, here, 0),
                F.place(start, shape, here, 1),
                axis,
                backwards,
            )
        )
    found = F.mul(*products)
    return F.add_along_axis(found, order, axis, shape[axis])


def _multiply_pull(F: Evaluator, ct: Any, call: Call, *, x: Any, indices: Any) -> Any:
    found = F.take_along_axis(ct, indices, call.axis)
    return F.mul(found, F.conj(_others(F, call, x, indices)))


def _multiply_push(F: Evaluator, t: Any, call: Call, *, x: Any, indices: Any) -> Any:
    t = F.mul(t, _others(F, call, x, indices))
    return F.add_along_axis(t, indices, call.axis, call.size)


register(
    Op(
        "multiply_along_axis",
        ("x", "indices"),
        params=("axis", "size"),
        infer=_multiply_infer,
        kernel=Write(
            _multiply,
            _multiply_scratch,
            _multiply_check,
            form=forms.multiply_along_axis,
        ),
        vjp={"x": _multiply_pull},
        jvp={"x": _multiply_push},
        batch=leading(axis=later),
        kink=say.FACTORS,
    )
)
