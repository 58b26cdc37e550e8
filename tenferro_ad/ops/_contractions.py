"""Contraction rows: matmul over stacks of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.linalg import blas

from .._aval import Aval, aval_of
from ..errors import ShapeError
from . import _forms_products as forms
from ._batching import new_axis, with_rank
from ._matrices import turned
from ._op import Call, Evaluator, Op, Write, broadcast_shapes, project, register

Array = np.ndarray[Any, Any]


def _matmul_infer(x: Aval, y: Aval) -> tuple[Any, Any]:
    if x.ndim < 1 or y.ndim < 1:
        raise ShapeError(
            operation="matmul",
            argument="x" if x.ndim < 1 else "y",
            found="a 0-d value",
            fix="use `*` to scale by a scalar",
        )
    a = (1, *x.shape) if x.ndim == 1 else x.shape
    b = (*y.shape, 1) if y.ndim == 1 else y.shape
    if a[-1] != b[-2]:
        raise ShapeError(
            operation="matmul",
            argument="y",
            found=f"shapes {x.shape} and {y.shape}: {a[-1]} columns against "
            f"{b[-2]} rows",
            fix="make the last axis of `x` and the last but one of `y` equal",
        )
    batch = broadcast_shapes("matmul", a[:-2], b[:-2])
    rows = () if x.ndim == 1 else (a[-2],)
    cols = () if y.ndim == 1 else (b[-1],)
    return (*batch, *rows, *cols), np.result_type(x.dtype, y.dtype)


def _matmul(call: Call, outs: list[Array], ins: list[Array]) -> None:
    x, y = ins
    # `np.dot` has half the call cost of `np.matmul` for plain matrices.
    if x.ndim == 2 and y.ndim == 2 and x.dtype == y.dtype:
        np.dot(x, y, outs[0])
    else:
        np.matmul(x, y, outs[0])


def _matmul_nt_infer(x: Aval, y: Aval) -> tuple[Any, Any]:
    return _matmul_infer(x, _swapped(y))


def _matmul_tn_infer(x: Aval, y: Aval) -> tuple[Any, Any]:
    return _matmul_infer(_swapped(x), y)


def _swapped(x: Aval) -> Aval:
    return aval_of((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype, x.device)


def _adjoint(x: Array) -> Array:
    # BLAS has no mixed conjugate form: conjugating is scratch of the size of `x`.
    return (x.conj() if x.dtype.kind == "c" else x).swapaxes(-1, -2)


def _scratch(conjugated: int | None) -> Any:
    """Operands of another dtype than the product, and the one that is conjugated."""

    def nbytes(call: Call) -> int:
        total = 0
        for k, x in enumerate(call.ins):
            if k == conjugated and x.dtype.kind == "c":
                total += x.nbytes
            if x.dtype != call.out.dtype:
                total += x.size * call.out.dtype.itemsize
        return total

    return nbytes


def _layout(*arrays: Array) -> int:
    """BLAS reads matrices with unit stride on one of two axes; NumPy copies others."""
    return sum(0 if _is_readable(x) else x.nbytes for x in arrays)


def _is_readable(x: Array) -> bool:
    if x.flags.forc or x.ndim < 2:
        return x.ndim != 1 or x.strides[0] > 0
    (m, n), (down, right) = x.shape[-2:], x.strides[-2:]
    size = x.itemsize
    return (right == size and down >= n * size) or (down == size and right >= m * size)


def _matmul_nt(call: Call, outs: list[Array], ins: list[Array]) -> None:
    _matmul(call, outs, [ins[0], _adjoint(ins[1])])


def _matmul_tn(call: Call, outs: list[Array], ins: list[Array]) -> None:
    _matmul(call, outs, [_adjoint(ins[0]), ins[1]])


def _dot(form: str) -> Any:
    """Two real matrices of one dtype: the method call costs a third of `np.matmul`."""

    def source(call: Call) -> str | None:
        x, y = call.ins
        plain = x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.dtype.kind == "f"
        return form if plain else None

    return source


def _gemm(turned_x: int, turned_y: int) -> Any:
    """The product of real matrices, as BLAS adds it to a target in one pass.

    BLAS counts columns first, so it gets the transposes, which are views, in the other
    order: t^T = y^T x^T for t = x y. It writes row-major targets without a copy.
    """
    source = f"{{f}}(1.0, {{1}}.T, {{0}}.T, 1.0, {{t}}.T, {turned_y}, {turned_x}, 1)"

    def added(call: Call) -> tuple[str, Any] | None:
        x, y = call.ins
        gemm = {"f": blas.sgemm, "d": blas.dgemm}.get(x.dtype.char)
        plain = x.ndim == y.ndim == 2 and x.dtype == y.dtype and x.size and y.size
        return (source, gemm) if plain and gemm is not None else None

    return added


def _lifted(F: Evaluator, ct: Any, call: Call) -> Any:
    """The cotangent with the axes that 1-d operands lost."""
    x, y = call.ins
    if x.ndim > 1 and y.ndim > 1:
        return ct
    shape = ct.aval.shape
    if y.ndim == 1:
        shape = (*shape, 1)
    if x.ndim == 1:
        shape = (*shape[:-1], 1, shape[-1])
    return F.reshape(ct, shape)


def _as_matrix(F: Evaluator, v: Any, *, row: bool) -> Any:
    if v.aval.ndim > 1:
        return v
    n = v.aval.shape[0]
    return F.reshape(v, (1, n) if row else (n, 1))


def _matmul_x(F: Evaluator, ct: Any, call: Call, *, y: Any) -> Any:
    g = F.matmul_nt(_lifted(F, ct, call), _as_matrix(F, y, row=False))
    return _settled(F, g, call.ins[0])


def _matmul_y(F: Evaluator, ct: Any, call: Call, *, x: Any) -> Any:
    target = call.ins[1]
    x, ct = _as_matrix(F, x, row=True), _lifted(F, ct, call)
    if target.ndim <= 2 < x.aval.ndim and x.aval.shape[:-1] == ct.aval.shape[:-1]:
        # One product over all batches instead of a batch of small ones and a sum.
        rows = math.prod(x.aval.shape[:-1])
        x = F.regroup(x, (rows, x.aval.shape[-1]))
        ct = F.regroup(ct, (rows, ct.aval.shape[-1]))
    return _settled(F, F.matmul_tn(x, ct), target)


def _settled(F: Evaluator, g: Any, target: Aval) -> Any:
    """Sum over broadcast batches and drop the axis that a 1-d operand gained."""
    aval = g.aval
    if aval.shape == target.shape and aval.dtype == target.dtype:
        return g
    if target.ndim == 1:
        lead = tuple(range(aval.ndim - 2))
        g = F.reshape(F.sum(g, lead, False) if lead else g, target.shape)
    return project(F, g, target)


def _plain(call: Call) -> bool:
    """Equal stacks of matrices of one dtype: rules have nothing to adjust."""
    x, y = call.ins
    same = x.dtype == y.dtype and x.shape[:-2] == y.shape[:-2]
    return same and x.ndim > 1 and y.ndim > 1


def _short(**forms: tuple[str, tuple[str, ...]]) -> Any:
    return lambda call, arg: forms[arg] if _plain(call) else None


def _matmul_batch(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    """One product of all rows where `y` is one matrix; otherwise one more stack."""
    (x, y), (a, b), op = xs, call.ins, call.op
    shape = (size, *call.out.shape)
    if not batched[1] and b.ndim <= 2 and op.name != "matmul_tn":
        if a.ndim > 1:
            x = F.regroup(x, (math.prod(x.aval.shape[:-1]), a.shape[-1]))
        return _shaped(F, F[op](x, y), shape)
    if not batched[0] and a.ndim <= 2 and b.ndim == 1:
        if a.ndim == 1:
            return F.matmul(y, x)
        return F.matmul(y, turned(F, x) if op.name == "matmul" else F.conj(x))
    rank = max(a.ndim, b.ndim, 2)
    if a.ndim == 1:
        x = new_axis(F, x, x.aval.ndim - 1)
    if b.ndim == 1:
        y = new_axis(F, y, y.aval.ndim)
    x = with_rank(F, x, rank) if batched[0] else x
    y = with_rank(F, y, rank) if batched[1] else y
    return _shaped(F, F[op](x, y), shape)


def _shaped(F: Evaluator, v: Any, shape: tuple[int, ...]) -> Any:
    return v if v.aval.shape == shape else F.regroup(v, shape)


register(
    Op(
        "matmul",
        ("x", "y"),
        short=_short(x=("matmul_nt", ("ct", "y")), y=("matmul_tn", ("x", "ct"))),
        infer=_matmul_infer,
        kernel=Write(
            _matmul,
            _scratch(None),
            source=_dot("{0}.dot({1})"),
            added=_gemm(0, 0),
            layout_nbytes=_layout,
            form=forms.matmul(),
        ),
        vjp={"x": _matmul_x, "y": _matmul_y},
        jvp={
            "x": lambda F, t, call, *, y: F.matmul(t, y),
            "y": lambda F, t, call, *, x: F.matmul(x, t),
        },
        batch=_matmul_batch,
    )
)
# x @ y^H and x^H @ y: the two products that derivatives of products need. Together with
# matmul they are closed under differentiation, and no transposed copy is ever made.
register(
    Op(
        "matmul_nt",
        ("x", "y"),
        short=_short(x=("matmul", ("ct", "y")), y=("matmul_tn", ("ct", "x"))),
        infer=_matmul_nt_infer,
        kernel=Write(
            _matmul_nt,
            _scratch(1),
            source=_dot("{0}.dot({1}.T)"),
            added=_gemm(0, 1),
            layout_nbytes=_layout,
            form=forms.matmul(turned=1),
        ),
        vjp={
            "x": lambda F, ct, call, *, y: project(F, F.matmul(ct, y), call.ins[0]),
            "y": lambda F, ct, call, *, x: project(F, F.matmul_tn(ct, x), call.ins[1]),
        },
        jvp={
            "x": lambda F, t, call, *, y: F.matmul_nt(t, y),
            "y": lambda F, t, call, *, x: F.matmul_nt(x, t),
        },
        batch=_matmul_batch,
    )
)
register(
    Op(
        "matmul_tn",
        ("x", "y"),
        short=_short(x=("matmul_nt", ("y", "ct")), y=("matmul", ("x", "ct"))),
        infer=_matmul_tn_infer,
        kernel=Write(
            _matmul_tn,
            _scratch(0),
            source=_dot("{0}.T.dot({1})"),
            added=_gemm(1, 0),
            layout_nbytes=_layout,
            form=forms.matmul(turned=0),
        ),
        vjp={
            "x": lambda F, ct, call, *, y: project(F, F.matmul_nt(y, ct), call.ins[0]),
            "y": lambda F, ct, call, *, x: project(F, F.matmul(x, ct), call.ins[1]),
        },
        jvp={
            "x": lambda F, t, call, *, y: F.matmul_tn(t, y),
            "y": lambda F, t, call, *, x: F.matmul_tn(x, t),
        },
        batch=_matmul_batch,
    )
)
