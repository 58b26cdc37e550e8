"""`x + c * y` of large arrays in one pass over memory, by the BLAS routine `axpy`.

Straight NumPy reads and writes such arrays twice, and takes steps of gradient descent
about twice as long. The routine may round once where NumPy rounds twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
from scipy.linalg.blas import get_blas_funcs

from ..ops import Expr

Array = np.ndarray[Any, Any]
Run = Callable[..., bool]
LIMIT: Final = 2**31  # the routine counts elements in C integers


def scaled_sum(
    expr: Expr, args: Sequence[str], dtypes: Sequence[np.dtype[Any]]
) -> Run | None:
    """`run(*ins, out)`, where the expression is a variable plus or minus a product of
    two others, one of them a single number; None where it is anything else.

    It expects contiguous operands of the output's size or of one element, `out` not
    partly overlapping `x`, and tells whether it did the work. Where it says no, nothing
    was written.
    """
    if expr.fn not in ("add", "sub") or len(set(dtypes)) != 1:
        return None
    if dtypes[0].char not in "fdFD":
        return None
    x, product = expr.args
    if expr.fn == "add" and x.fn == "mul":
        x, product = product, x
    if product.fn != "mul" or any(a.fn != "var" for a in (x, *product.args)):
        return None
    at, first, second = (list(args).index(a.name) for a in (x, *product.args))
    axpy = get_blas_funcs("axpy", dtype=dtypes[0])
    sign = -1 if expr.fn == "sub" else 1

    def run(*operands: Array) -> bool:
        out, x, c, y = operands[-1], operands[at], operands[first], operands[second]
        if c.size != 1:
            c, y = y, c
        sizes = c.size == 1 and x.size == y.size == out.size < LIMIT
        # A factor of zero leaves the routine before it meets infinities in `y`.
        if not sizes or not c.any() or np.may_share_memory(y, out):
            return False
        if not np.may_share_memory(x, out):
            np.copyto(out, x)
        axpy(y.reshape(-1), out.reshape(-1), a=sign * c.item())
        return True

    return run


__all__ = ["scaled_sum"]
