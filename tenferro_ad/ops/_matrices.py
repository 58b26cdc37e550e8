"""What rules of linear algebra do with stacks of matrices, written over `F` only."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .._aval import Aval
from ._expr import call as fn
from ._expr import select, var
from ._op import Evaluator
from ._scalar import elementwise

Axes = tuple[int, ...]


def turned(F: Evaluator, v: Any) -> Any:
    """The transpose (a view)."""
    n = v.aval.ndim
    return F.permute_dims(v, (*range(n - 2), n - 1, n - 2))


def adjoint(F: Evaluator, v: Any) -> Any:
    """The conjugate transpose: a view of real values, one output for complex ones."""
    return turned(F, F.conj(v) if v.aval.dtype.kind == "c" else v)


def hermitian(F: Evaluator, v: Any) -> Any:
    return F.mul(F.add(v, adjoint(F, v)), 0.5)


def diagonal(F: Evaluator, v: Any) -> Any:
    n = v.aval.ndim
    return F.diagonal(v, 0, n - 2, n - 1)


def on_diagonal(F: Evaluator, v: Any) -> Any:
    """Diagonal matrices."""
    *lead, n = v.aval.shape
    k = len(lead)
    return F.place_diagonal(v, (*lead, n, n), 0, k, k + 1)


def column(F: Evaluator, v: Any) -> Any:
    """A stack of vectors as columns (a view)."""
    return F.reshape(v, (*v.aval.shape, 1))


def row(F: Evaluator, v: Any) -> Any:
    """A stack of vectors as rows (a view)."""
    return F.reshape(v, (*v.aval.shape[:-1], 1, v.aval.shape[-1]))


def matmuls(F: Evaluator, *vs: Any) -> Any:
    """The product from left to right."""
    found = vs[0]
    for v in vs[1:]:
        found = F.matmul(found, v)
    return found


def real(F: Evaluator, v: Any) -> Any:
    return F.real(v) if v.aval.dtype.kind == "c" else v


def zeros(F: Evaluator, aval: Aval) -> Any:
    """One zero, broadcast."""
    return F.broadcast_to(F.full((), aval.dtype, 0, aval.device), aval.shape)


def identity(F: Evaluator, aval: Aval) -> Any:
    """The identity for a stack of square matrices (a broadcast view)."""
    n = aval.shape[-1]
    eye = F.eye(n, n, 0, aval.dtype, aval.device)
    return F.broadcast_to(eye, aval.shape)


def plus(F: Evaluator, x: Any, y: Any) -> Any:
    """The sum of contributions, of which either may be None."""
    if x is None:
        return y
    return x if y is None else F.add(x, y)


# ---- quotients by differences of spectral values -------------------------------------
# A gap below rounding is none: its quotient is 0. Where a gap is merely small, so is
# the quotient of a numerator that is rounding noise, as it is for every quantity that
# does not depend on the choice of basis.

_x, _d, _lo, _hi, _noise = (var(n) for n in ("x", "d", "lo", "hi", "noise"))
_size = fn("abs", _d)
_masked = fn(
    "logical_or",
    fn("less_equal", _size, _lo),
    fn(
        "logical_and",
        fn("less_equal", _size, _hi),
        fn("less_equal", fn("abs", _x), _noise),
    ),
)
_QUOTIENT = elementwise(
    "gap_quotient", select(_masked, 0.0, _x / _d), ("x", "d", "lo", "hi", "noise")
)
_RECIPROCAL = elementwise(
    "safe_reciprocal", select(fn("equal", _x, 0.0), 0.0, 1.0 / _x), ("x",)
)


def largest(F: Evaluator, v: Any, axes: int) -> Any:
    """The largest modulus along the last `axes` axes, kept; a constant."""
    n = v.aval.ndim
    size = F.abs(F.stop_gradient(v))
    return F.max(size, tuple(range(n - axes, n)), True)


def gaps(F: Evaluator, w: Any) -> Any:
    """The matrices `w[j] - w[i]`."""
    return F.sub(row(F, w), column(F, w))


def over_gaps(
    F: Evaluator, x: Any, gap: Any, values: Any, terms: Any, least: float
) -> Any:
    """`x / gap`, 0 where the gap is none or small beside noise.

    Args:
        values: the spectral values, whose size says what is rounding.
        terms: what `x` was computed from.
        least: the gap that is none, in units of rounding of the largest value.
    """
    eps = float(np.finfo(values.aval.dtype).eps)
    n = max(1, values.aval.shape[-1])
    scale = column(F, largest(F, values, 1))
    lo, hi = F.mul(scale, least * eps), F.mul(scale, math.sqrt(eps))
    noise = F.mul(largest(F, terms, 2), 16 * n * eps)
    return F[_QUOTIENT](x, gap, lo, hi, noise)


def reciprocal(F: Evaluator, v: Any) -> Any:
    """1 / v, and 0 where v is 0."""
    return F[_RECIPROCAL](v)
