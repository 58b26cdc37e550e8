"""`contract`: the sum of products of two operands over named axes.

What `einsum` and its derivatives are made of. In its equation each symbol occurs once
in a term, and each symbol of one operand occurs in the other one or in the result. So
the derivative in an operand is a contraction of the cotangent with the other operand,
with operands conjugated where needed, and the row is closed under differentiation.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
from opt_einsum import get_symbol

from .._aval import Aval, complex_dtype
from . import _forms_einsum as forms
from ._equations import canonical, sizes_of, terms_of, wide
from ._op import Call, Evaluator, Op, Write, project, register
from ._pairs import Array, DType, Layout, layout_of, multiply, scratch_of


def _infer(
    x: Aval, y: Aval, equation: str, conj_x: bool, conj_y: bool, dtype: DType
) -> tuple[Any, Any]:
    terms, out = terms_of(equation)
    sizes = sizes_of("contract", terms, (x.shape, y.shape))
    return tuple([sizes[c] for c in out]), dtype


def _how(call: Call) -> tuple[Layout, DType]:
    """The layout and the dtype that a pair is computed in, found once."""
    found: tuple[Layout, DType] | None = call.__dict__.get("how")
    if found is None:
        x, y = call.ins
        dtype = wide(np.result_type(call.dtype, x.dtype, y.dtype))
        found = layout_of(call.equation, x.shape, y.shape), dtype
        call.__dict__["how"] = found
    return found


def _contract(call: Call, outs: list[Array], ins: list[Array]) -> None:
    x, y = ins
    layout, dtype = _how(call)
    # BLAS has no form that conjugates without transposing.
    x = x.conj() if call.conj_x else x
    y = y.conj() if call.conj_y else y
    multiply(layout, x, y, outs[0], dtype)


def _scratch(call: Call) -> int:
    x, y = call.ins
    layout, dtype = _how(call)
    turned: int = x.nbytes * call.conj_x + y.nbytes * call.conj_y
    return turned + scratch_of(layout, dtype, plain=call.out.dtype == dtype)


def pair(
    F: Evaluator, x: Any, y: Any, equation: str, bar_x: bool, bar_y: bool, dtype: DType
) -> Any:
    """`contract` of values; conjugation means nothing for what is real."""
    return F.contract(
        x,
        y,
        equation,
        bar_x and x.aval.dtype.kind == "c",
        bar_y and y.aval.dtype.kind == "c",
        dtype,
    )


def pulled_dtype(target: DType, *factors: DType) -> DType:
    """The dtype to compute a cotangent for `target` in: that one itself, unless the
    product is complex and only its real part belongs there."""
    if target.kind != "c" and any(f.kind == "c" for f in factors):
        return complex_dtype(wide(target))
    return target


def _back_x(F: Evaluator, ct: Any, call: Call, *, y: Any) -> Any:
    (x_term, y_term), out = terms_of(call.equation)
    target = call.ins[0]
    dtype = pulled_dtype(target.dtype, ct.aval.dtype, y.aval.dtype)
    equation = canonical(out, y_term, x_term)
    bar_y = call.conj_y if call.conj_x else not call.conj_y
    return project(F, pair(F, ct, y, equation, call.conj_x, bar_y, dtype), target)


def _back_y(F: Evaluator, ct: Any, call: Call, *, x: Any) -> Any:
    (x_term, y_term), out = terms_of(call.equation)
    target = call.ins[1]
    dtype = pulled_dtype(target.dtype, ct.aval.dtype, x.aval.dtype)
    equation = canonical(x_term, out, y_term)
    bar_x = call.conj_x if call.conj_y else not call.conj_x
    return project(F, pair(F, x, ct, equation, bar_x, call.conj_y, dtype), target)


def unused(equation: str) -> str:
    """A symbol that the equation has not."""
    free: str = next(c for c in map(get_symbol, count()) if c not in equation)
    return free


def with_batch(equation: str, batched: Any) -> str:
    """The equation with one more axis in front of batched operands and the result."""
    terms, out = terms_of(equation)
    new = unused(equation)
    moved = [new + t if b else t for t, b in zip(terms, batched, strict=True)]
    return canonical(*moved, new + out)


register(
    Op(
        "contract",
        ("x", "y"),
        params=("equation", "conj_x", "conj_y", "dtype"),
        infer=_infer,
        kernel=Write(_contract, _scratch, form=forms.contract),
        vjp={"x": _back_x, "y": _back_y},
        jvp={
            "x": lambda F, t, call, *, y: F.contract(t, y, *call.params),
            "y": lambda F, t, call, *, x: F.contract(x, t, *call.params),
        },
        batch=lambda F, call, size, xs, batched: F.contract(
            *xs,
            with_batch(call.equation, batched),
            *call.params[1:],
        ),
    )
)
