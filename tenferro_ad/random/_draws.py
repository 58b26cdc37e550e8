"""Bits, uniform and normal numbers, integers, and orders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .. import errors
from ..engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    axis_of,
    int_of,
    less,
    shape_of,
    take,
)
from ..engine import dtype_of as numeric_dtype
from ._keys import DRAWS, UINT32, key_of

Shape = int | Sequence[int]
UINT64: Final = np.dtype(np.uint64)


def dtype_of(operation: str, dtype: Any, allowed: str) -> np.dtype[Any]:
    found = numeric_dtype(operation, dtype)
    if found.char not in allowed:
        names = ", ".join(dict.fromkeys(np.dtype(c).name for c in allowed))
        raise errors.DTypeError(
            operation=operation,
            argument="dtype",
            found=f"dtype {found}",
            fix=f"pass one of {names}",
        )
    return found


def bits(key: Any, shape: Shape = (), *, dtype: Any = np.uint32) -> EagerTensor:
    """Random bits.

    Args:
        key: two words.
        shape: of the result.
        dtype: uint32, or uint64 (of two words the lower comes first).

    Raises:
        ShapeError: not a key. InvalidArgumentError: not a shape.
        DTypeError: another dtype.

    Cost: one allocation of the result's size; never tracked.
    """
    wanted = dtype_of("bits", dtype, UINT32.char + UINT64.char)
    where = shape_of("bits", shape)
    out: EagerTensor = HANDLES.random_bits(key_of("bits", key), where, wanted, DRAWS)
    return out


def uniform(
    key: Any,
    shape: Shape = (),
    *,
    dtype: Any = np.float64,
    minval: Any = 0.0,
    maxval: Any = 1.0,
) -> EagerTensor:
    """Numbers from `minval` on and below `maxval`, equally spaced and equally likely.

    Args:
        key: two words.
        shape: of the draw.
        dtype: float64 (53 random bits), float32 (24) or float16 (11).
        minval, maxval: bounds that broadcast with the draw; differentiable. The sum may
            round up to `maxval`.

    Raises:
        ShapeError: not a key, bounds do not broadcast. InvalidArgumentError: not a
            shape. DTypeError: another dtype.

    Cost: one allocation of the result's size; for other bounds than 0 and 1 the
        difference, the product and the sum too.
    """
    wanted = dtype_of("uniform", dtype, "dfe")
    where = shape_of("uniform", shape)
    out: EagerTensor = HANDLES.random_uniform(key_of("uniform", key), where, wanted)
    numbers = isinstance(minval, int | float) and isinstance(maxval, int | float)
    if numbers and (minval, maxval) == (0, 1):
        return out
    width = maxval - minval if numbers else as_tensor(maxval) - minval
    out = HANDLES.add(HANDLES.mul(out, width), minval)
    return out


def normal(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Normal numbers with mean 0 and variance 1.

    Args:
        key: two words.
        shape: of the result.
        dtype: a real floating dtype, or a complex one (variance 1/2 in each part).

    Raises:
        ShapeError: not a key. InvalidArgumentError: not a shape.
        DTypeError: another dtype.

    Cost: one allocation of the result's size, for complex numbers one more.
    """
    wanted, where = dtype_of("normal", dtype, "dfeDF"), shape_of("normal", shape)
    if wanted.kind != "c":
        out: EagerTensor = HANDLES.random_normal(key_of("normal", key), where, wanted)
        return out
    real = np.dtype(f"f{wanted.itemsize // 2}")
    parts = HANDLES.random_normal(key_of("normal", key), (*where, 2), real)
    out = HANDLES.view_as_complex(HANDLES.mul(parts, 0.5**0.5))
    return out


def randint(
    key: Any, shape: Shape, minval: int, maxval: int, *, dtype: Any = np.int64
) -> EagerTensor:
    """Integers from `minval` to `maxval - 1`.

    Args:
        key: two words.
        shape: of the result.
        minval, maxval: bounds that the dtype holds (`maxval - 1`, that is).
        dtype: an integer dtype.

    Raises:
        ShapeError: not a key. DTypeError: not an integer dtype.
        InvalidArgumentError: not a shape, an empty range or one that does not fit.

    Cost: one allocation of the result's size; never tracked. Each integer is the
        remainder of 64 bits: its probability is off by less than 2^-64.
    """
    wanted = dtype_of("randint", dtype, "bBhHiIlLqQ")
    where = shape_of("randint", shape)
    limits = np.iinfo(wanted)
    low = int_of("randint", "minval", minval, int(limits.min), int(limits.max) + 1)
    high = int_of("randint", "maxval", maxval, low + 1, int(limits.max) + 2)
    if high - low >= 2**64:
        raise errors.InvalidArgumentError(
            operation="randint",
            argument="maxval",
            found="all integers of 64 bits",
            fix="use `bits` with dtype uint64",
        )
    out: EagerTensor = HANDLES.random_integers(
        key_of("randint", key), where, wanted, low, high
    )
    return out


def bernoulli(key: Any, p: Any = 0.5, shape: Shape | None = None) -> EagerTensor:
    """True with probability `p`.

    Args:
        key: two words.
        p: probabilities.
        shape: of the result, to which `p` broadcasts; None means that of `p`.

    Raises:
        ShapeError: not a key, `p` does not broadcast.
        InvalidArgumentError: not a shape.

    Cost: two allocations of the result's size (the numbers to compare, the result);
        never tracked.
    """
    p = as_tensor(p)
    where = p.shape if shape is None else shape_of("bernoulli", shape)
    drawn = HANDLES.random_uniform(
        key_of("bernoulli", key), where, np.dtype(np.float64)
    )
    return less(drawn, p)


def permutation(key: Any, x: Any, /, *, axis: int = 0) -> EagerTensor:
    """The slices of `x` along an axis in random order, or the integers below a number.

    Args:
        key: two words.
        x: a tensor with at least one axis, or a Python int.
        axis: which axis.

    Raises:
        ShapeError: not a key. InvalidArgumentError: a negative number, a 0-d value.
        IndexRangeError: not an axis of `x`.

    Cost: sorts 64 random bits for each slice, so that two orders differ in probability
        by less than n^2 2^-64; allocates those, positions and the result; retains the
        positions.
    """
    if isinstance(x, int):
        return _order(key, int_of("permutation", "x", x, 0, 2**31))
    x = as_tensor(x)
    if x.ndim == 0:
        raise errors.InvalidArgumentError(
            operation="permutation",
            argument="x",
            found="a 0-d value",
            fix="pass a Python int, or a value with at least one axis",
        )
    at = axis_of("permutation", axis, x.ndim)
    return take(x, _order(key, x.shape[at]), axis=at)


def _order(key: Any, n: int) -> EagerTensor:
    drawn = HANDLES.random_bits(key_of("permutation", key), (n,), UINT64, DRAWS)
    out: EagerTensor = HANDLES.argsort(drawn, 0, False, True)
    return out
