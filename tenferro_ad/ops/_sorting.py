"""Rows that order elements: sorted values, sorting permutations, places to insert.

Sorting moves elements, so its derivative moves cotangents back along the same
permutation, which the rule computes again from the kept argument. NaN goes last in
ascending order; complex numbers are ordered by real part, then by imaginary part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import ShapeError
from . import _conventions as say
from . import _forms_indexing as forms
from ._batching import later, leading, whole
from ._op import Call, Evaluator, Op, Write, register
from ._place import span
from ._rows import INT

Array = np.ndarray[Any, Any]


def _kind(call: Call) -> Any:
    return "stable" if call.stable else "quicksort"


def _lane_nbytes(call: Call) -> int:
    """NumPy copies a lane that is not contiguous, and merges through another."""
    x = call.ins[0]
    return int(3 * x.shape[call.axis] * max(INT.itemsize, x.dtype.itemsize))


# ---- sorted values -------------------------------------------------------------------


def _sort(call: Call, outs: list[Array], ins: list[Array]) -> None:
    out = np.flip(outs[0], call.axis) if call.descending else outs[0]
    np.copyto(out, ins[0])
    out.sort(call.axis, _kind(call))


def _sort_pull(F: Evaluator, ct: Any, call: Call, *, x: Any) -> Any:
    order = F.argsort(x, call.axis, call.descending, True)
    return F.add_along_axis(ct, order, call.axis, call.ins[0].shape[call.axis])


def _sort_push(F: Evaluator, t: Any, call: Call, *, x: Any) -> Any:
    order = F.argsort(x, call.axis, call.descending, True)
    return F.take_along_axis(t, order, call.axis)


register(
    Op(
        "sort",
        ("x",),
        params=("axis", "descending", "stable"),
        infer=lambda x, axis, descending, stable: (x.shape, x.dtype),
        kernel=Write(_sort, _lane_nbytes, form=forms.sort),
        vjp={"x": _sort_pull},
        jvp={"x": _sort_push},
        batch=leading(axis=later),
        kink=say.ORDER,
    )
)


# ---- the permutation that sorts ------------------------------------------------------


def _argsort(call: Call, outs: list[Array], ins: list[Array]) -> None:
    (x,), (out,), axis = ins, outs, call.axis
    if not call.descending:
        out[...] = np.argsort(x, axis, _kind(call))
        return
    # Equal elements keep their order: they are reversed before and after.
    order = np.argsort(np.flip(x, axis), axis, _kind(call))
    np.subtract(x.shape[axis] - 1, np.flip(order, axis), out)


register(
    Op(
        "argsort",
        ("x",),
        params=("axis", "descending", "stable"),
        infer=lambda x, axis, descending, stable: (x.shape, INT),
        kernel=Write(
            _argsort,
            lambda call: call.out.nbytes + _lane_nbytes(call),
            form=forms.argsort,
        ),
        batch=leading(axis=later),
    )
)


# ---- places in a sorted sequence -----------------------------------------------------


def _search_infer(x: Aval, values: Aval, side: str) -> tuple[Any, Any]:
    if x.ndim != 1:
        raise ShapeError(
            operation="searchsorted",
            argument="x1",
            found=f"shape {x.shape}",
            fix="pass one axis of ascending elements",
        )
    return values.shape, INT


def _search(call: Call, outs: list[Array], ins: list[Array]) -> None:
    outs[0][...] = np.searchsorted(ins[0], ins[1], call.side)


def _search_scratch(call: Call) -> int:
    """NumPy converts both operands to one dtype and lays them out in order."""
    x, values = call.ins
    width = np.result_type(x.dtype, values.dtype).itemsize
    return call.out.nbytes + width * (x.size + values.size)


def _search_batch(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    """A value's place among `x` is its place among both, less its place among its
    equals: sequences of their own are merged by one stable sort."""
    (x, values), (n, m) = xs, (a.size for a in call.ins)
    if not batched[0]:
        return F.searchsorted(x, values, call.side)
    if batched[1]:
        values = F.regroup(values, (size, m))
    else:
        values = F.broadcast_to(F.regroup(values, (m,)), (size, m))
    is_left = call.side == "left"
    both = F.concat((values, x) if is_left else (x, values), 1)
    key = (whole(size), span(0 if is_left else n, m, 1))
    found = F.sub(F.slice(_ranks(F, both), key), _ranks(F, values))
    return F.regroup(found, (size, *call.out.shape))


def _ranks(F: Evaluator, v: Any) -> Any:
    """The place of each element in its sorted row, equal ones in their order."""
    return F.argsort(F.argsort(v, 1, False, True), 1, False, True)


register(
    Op(
        "searchsorted",
        ("x", "values"),
        params=("side",),
        infer=_search_infer,
        kernel=Write(_search, _search_scratch, form=forms.searchsorted),
        batch=_search_batch,
    )
)
