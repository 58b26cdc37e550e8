"""What reductions share: shapes, counts, and walking large operands in blocks.

Blocks bound the scratch whatever the size, and partial sums are kept in double
precision between blocks, so that sums of float32 stay accurate along any axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import DTypeError, InvalidArgumentError
from ._op import Call, Evaluator

Array = np.ndarray[Any, Any]
Axes = tuple[int, ...]

BLOCK: Final = 16_384
# Reductions with positional arguments, `(x, axes, dtype, out, keepdims)`: keywords cost
# more than the sum of a small array, and NumPy's type stubs know only them.
add_reduce: Final[Any] = np.add.reduce
max_reduce: Final[Any] = np.maximum.reduce
multiply_reduce: Final[Any] = np.multiply.reduce
HALF: Final = np.dtype(np.float16)
SINGLE: Final = np.dtype(np.float32)
DOUBLE: Final = np.dtype(np.float64)


# ---- shapes and dtypes ---------------------------------------------------------------


def reduced_shape(shape: Axes, axes: Axes, keepdims: bool) -> Axes:
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def count(call: Call) -> int:
    """How many elements go into one result."""
    shape = call.ins[0].shape
    return math.prod([shape[a] for a in call.axes])


def as_float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype if dtype.kind in "fc" else DOUBLE


def need_real(operation: str, x: Aval) -> None:
    """Refuse complex operands, which have no order."""
    if x.dtype.kind == "c":
        raise DTypeError(
            operation=operation,
            argument="x",
            found=f"dtype {x.dtype}, which has no order",
            fix="use `ta.real(x)`, `ta.imag(x)` or `ta.abs(x)`",
        )


def need_elements(operation: str, x: Aval, axes: Axes) -> None:
    """Refuse to reduce nothing where no neutral element exists."""
    if any(x.shape[a] == 0 for a in axes):
        raise InvalidArgumentError(
            operation=operation,
            argument="axis",
            found=f"no elements along axis {axes} of shape {x.shape}",
            fix="reduce an axis that has elements",
        )


# ---- what rules do with reduced values -----------------------------------------------


def kept(F: Evaluator, v: Any, call: Call) -> Any:
    """A reduced value with its lost axes as axes of length 1 (a view)."""
    shape = reduced_shape(call.ins[0].shape, call.axes, True)
    return v if v.aval.shape == shape else F.reshape(v, shape)


def widen(F: Evaluator, ct: Any, call: Call) -> Any:
    """A reduced value at the shape of the argument (a view)."""
    shape = call.ins[0].shape
    if ct.aval.shape == shape:
        return ct
    # Leading axes come back by broadcasting alone.
    if call.keepdims or call.axes != tuple(range(len(call.axes))):
        ct = kept(F, ct, call)
    return F.broadcast_to(ct, shape) if ct.aval.shape != shape else ct


def divided(F: Evaluator, v: Any, n: float) -> Any:
    """`v / n`, also where half precision cannot hold `n`."""
    if v.aval.dtype != HALF:
        return F.div(v, n)
    return F.astype(F.div(F.astype(v, SINGLE), n), HALF)


def single(F: Evaluator, v: Any) -> Any:
    """Halves as singles: of many terms, each may be less than a half can hold."""
    return F.astype(v, SINGLE) if v.aval.dtype == HALF else v


def nothing(F: Evaluator, ct: Any, call: Call) -> None:
    """The rule of a result that is locally constant."""


# ---- walking in blocks ---------------------------------------------------------------


def blocks(shape: Axes) -> Iterator[tuple[Any, ...]]:
    """Slices, one for each axis, that cover `shape` in blocks of about `BLOCK`."""
    inner, cut = 1, len(shape)
    while cut and inner * shape[cut - 1] <= BLOCK:
        cut -= 1
        inner *= shape[cut]
    rest = (slice(None),) * (len(shape) - cut)
    if not cut:
        yield rest
        return
    step = max(1, BLOCK // inner)
    for lead in np.ndindex(shape[: cut - 1]):
        first = tuple([slice(i, i + 1) for i in lead])
        for at in range(0, shape[cut - 1], step):
            yield (*first, slice(at, at + step), *rest)


def within(index: tuple[Any, ...], axes: Axes) -> tuple[Any, ...]:
    """Where the results of a block lie in a reduced array with its axes kept."""
    return (*[slice(None) if k in axes else s for k, s in enumerate(index)], ...)


def in_blocks(x: Array | Aval, axes: Axes, dtype: np.dtype[Any]) -> bool:
    """Whether a sum in this dtype needs blocks to keep its digits: NumPy adds pairwise
    along the last axis only."""
    large = x.size > 2 * BLOCK and dtype.char in "fF"
    return large and bool(axes) and axes[-1] != x.ndim - 1


def block_sum(
    x: Array, axes: Axes, term: Callable[[Array, Any], Any] | None = None
) -> Array:
    """Sums along `axes`, axes kept, of `term(part, where)` for every part of `x`."""
    complex_sum = x.dtype.kind == "c" and term is None
    shape = reduced_shape(x.shape, axes, True)
    total = np.zeros(shape, np.complex128 if complex_sum else DOUBLE)
    for index in blocks(x.shape):
        at = within(index, axes)
        part: Any = x[(*index, ...)]
        if term is not None:
            part = term(part, at)
        # NumPy adds one after another along all axes but the last.
        total[at] += add_reduce(part, axes, total.dtype, None, True)
    return total


def block_scratch(call: Call) -> int:
    """Bytes of the blocks and double sums that `block_sum` takes."""
    size = call.ins[0].size
    return 16 * (2 * min(size, 2 * BLOCK) + 2 * size // max(count(call), 1))
