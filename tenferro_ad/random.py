"""Random numbers from explicit keys: Philox4x32-10, the same bits everywhere.

There is no hidden state. A key is two words of dtype uint32; the same key gives the
same numbers, so a checkpoint that runs again draws what it drew before. Use each key
for one draw and make others with `split` and `fold_in`:

    key = ta.random.key(0)
    first, second = ta.random.split(key)
    x = ta.random.normal(first, (3, 4))

Element k of a draw depends on the key and on k alone: a longer draw of one axis begins
with the shorter one. Draws carry no derivative; bounds and scales do.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC11 (2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from . import errors
from .engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    asarray,
    axis_of,
    int_of,
    less,
    shape_of,
    take,
    unstack,
)
from .ops import span

__all__ = [
    "bernoulli",
    "bits",
    "fold_in",
    "key",
    "normal",
    "permutation",
    "randint",
    "split",
    "uniform",
]

Shape = int | Sequence[int]

_MASK: Final = 0xFFFFFFFF
_UINT32: Final = np.dtype(np.uint32)
_UINT64: Final = np.dtype(np.uint64)
# The last word of the counter says what the bits are for.
_DRAWS, _SPLIT, _FOLDED = 0, 1, 2


# ---- arguments -----------------------------------------------------------------------


def _dtype(operation: str, dtype: Any, allowed: str) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(dtype)
    if found.char not in allowed:
        names = ", ".join(dict.fromkeys(np.dtype(c).name for c in allowed))
        raise errors.DTypeError(
            operation=operation,
            argument="dtype",
            found=f"dtype {found}",
            fix=f"pass one of {names}",
        )
    return found


def _key_of(operation: str, key: Any) -> EagerTensor:
    """One key; operations of the table take stacks of them too, for `vmap`."""
    found = as_tensor(key)
    if found.shape != (2,) or found.dtype != _UINT32:
        raise errors.ShapeError(
            operation=operation,
            argument="key",
            found=f"shape {found.shape} and dtype {found.dtype}",
            fix="pass a key of `random.key(seed)`: two words of dtype uint32",
        )
    return found


# ---- keys ----------------------------------------------------------------------------


def key(seed: int, /) -> EagerTensor:
    """A key from a number.

    Args:
        seed: from 0 to 2^64 - 1; its lower word comes first.

    Raises:
        InvalidArgumentError: another number.

    Cost: one allocation of 8 bytes, filled from outside.
    """
    found = int_of("key", "seed", seed, 0, 2**64)
    return asarray(np.array([found & _MASK, found >> 32], _UINT32))


def split(key: Any, num: int = 2, /) -> tuple[EagerTensor, ...]:
    """Several keys from one; do not use it again.

    Args:
        key: two words.
        num: how many.

    Raises:
        ShapeError: not a key. InvalidArgumentError: a negative number.

    Cost: one allocation of 16 bytes for each key, which are views of it.
    """
    count = int_of("split", "num", num, 0, 2**31)
    words = HANDLES.random_bits(_key_of("split", key), (count, 4), _UINT32, _SPLIT)
    return unstack(HANDLES.slice(words, (span(0, count, 1), span(0, 2, 1))))


def fold_in(key: Any, data: int, /) -> EagerTensor:
    """A key from a key and a number, such as that of a step or of a layer.

    Args:
        key: two words.
        data: from 0 to 2^64 - 1.

    Raises:
        ShapeError: not a key. InvalidArgumentError: another number.

    Cost: two allocations of 16 bytes.
    """
    found = int_of("fold_in", "data", data, 0, 2**64)
    counter = [found & _MASK, found >> 32, 0, _FOLDED]
    words = _key_of("fold_in", key)
    counters = asarray(np.array(counter, _UINT32), device=words.device)
    words = HANDLES.philox(words, counters)
    out: EagerTensor = HANDLES.slice(words, (span(0, 2, 1),))
    return out


# ---- draws ---------------------------------------------------------------------------


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
    wanted = _dtype("bits", dtype, _UINT32.char + _UINT64.char)
    where = shape_of("bits", shape)
    out: EagerTensor = HANDLES.random_bits(_key_of("bits", key), where, wanted, _DRAWS)
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
    wanted = _dtype("uniform", dtype, "dfe")
    where = shape_of("uniform", shape)
    out: EagerTensor = HANDLES.random_uniform(_key_of("uniform", key), where, wanted)
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
    wanted, where = _dtype("normal", dtype, "dfeDF"), shape_of("normal", shape)
    if wanted.kind != "c":
        out: EagerTensor = HANDLES.random_normal(_key_of("normal", key), where, wanted)
        return out
    real = np.dtype(f"f{wanted.itemsize // 2}")
    parts = HANDLES.random_normal(_key_of("normal", key), (*where, 2), real)
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
    wanted = _dtype("randint", dtype, "bBhHiIlLqQ")
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
        _key_of("randint", key), where, wanted, low, high
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
        _key_of("bernoulli", key), where, np.dtype(np.float64)
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
    drawn = HANDLES.random_bits(_key_of("permutation", key), (n,), _UINT64, _DRAWS)
    out: EagerTensor = HANDLES.argsort(drawn, 0, False, True)
    return out
