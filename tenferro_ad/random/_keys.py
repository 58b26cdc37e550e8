"""Keys: made from numbers, split, and folded with numbers."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .. import errors
from ..engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    asarray,
    int_of,
    shape_of,
    unstack,
)
from ..errors import named
from ..ops import span

MASK: Final = 0xFFFFFFFF
UINT32: Final = np.dtype(np.uint32)
# The last word of the counter says what the bits are for.
DRAWS, SPLIT, FOLDED = 0, 1, 2


def key_of(operation: str, key: Any) -> EagerTensor:
    """One key; operations of the table take stacks of them too, for `vmap`."""
    found = as_tensor(key)
    if found.shape != (2,) or found.dtype != UINT32:
        raise errors.ShapeError(
            operation=operation,
            argument="key",
            found=f"shape {found.shape} and dtype {found.dtype}",
            fix="pass a key of `random.key(seed)`: two words of dtype uint32; draw "
            "from a stack of keys with `ta.vmap`",
        )
    return found


def key(seed: int, /) -> EagerTensor:
    """A key from a number.

    Args:
        seed: from 0 to 2^64 - 1; its lower word comes first.

    Raises:
        DTypeError: not an integer. InvalidArgumentError: another number.

    Cost: one allocation of 8 bytes, filled from outside (one `Transfer`).
    """
    found = int_of("key", "seed", seed, 0, 2**64)
    return asarray(np.array([found & MASK, found >> 32], UINT32))


@named()
def split(key: Any, num: Any = 2, /) -> Any:
    """Several keys from one; do not use it again.

    Args:
        key: two words.
        num: how many, or the shape of a stack of keys.

    Returns:
        A tuple of `num` keys; for a shape a value of shape (*num, 2), whose rows are
        the same keys, for `ta.vmap` and scans to take apart.

    Raises:
        ShapeError: not a key. DTypeError: not integers.
        InvalidArgumentError: a negative number.

    Cost: one allocation of 16 bytes for each key, which are views of it.
    """
    stack = isinstance(num, tuple | list)
    shape = shape_of("split", num, "num")
    words = HANDLES.random_bits(key_of("split", key), (*shape, 4), UINT32, SPLIT)
    whole = [span(0, n, 1) for n in shape]
    keys = HANDLES.slice(words, (*whole, span(0, 2, 1)))
    return keys if stack else unstack(keys)


@named()
def fold_in(key: Any, data: Any, /) -> EagerTensor:
    """A key from a key and a number, such as that of a step or of a layer.

    Args:
        key: two words.
        data: a Python int from 0 to 2^64 - 1, or a 0-d integer tensor (a loop counter),
            which counts modulo 2^64.

    Raises:
        ShapeError: not a key, or `data` is no 0-d tensor.
        DTypeError: `data` is no integer. InvalidArgumentError: out of that range.

    Cost: a few allocations of at most 16 bytes; no copy.
    """
    known = key_of("fold_in", key)
    low, high = _words_of(data, known.device)
    mark = HANDLES.full((1,), UINT32, FOLDED, known.device)
    tail = HANDLES.place(mark, (2,), (span(1, 1, 1),), 0)
    words = HANDLES.philox(known, HANDLES.concat((low, high, tail), 0))
    return HANDLES.slice(words, (span(0, 2, 1),))  # type: ignore[no-any-return]


def _words_of(data: Any, device: Any) -> tuple[EagerTensor, EagerTensor]:
    """The lower and the upper word of a number, each as one element."""
    if not isinstance(data, EagerTensor):
        found = int_of("fold_in", "data", data, 0, 2**64)
        parts = (found & MASK, found >> 32)
        low, high = (HANDLES.full((1,), UINT32, w, device) for w in parts)
        return low, high
    if data.ndim or data.dtype.kind not in "iu":
        kind = errors.DTypeError if data.ndim == 0 else errors.ShapeError
        raise kind(
            operation="fold_in",
            argument="data",
            found=f"{data.aval!r}",
            fix="pass one integer: a Python int or a 0-d integer tensor",
        )
    one = HANDLES.reshape(data, (1,))
    if data.dtype.itemsize < 8:
        one = HANDLES.astype(one, np.dtype(np.int64))
    low = HANDLES.astype(HANDLES.bitwise_and(one, MASK), UINT32)
    high = HANDLES.bitwise_and(HANDLES.right_shift(one, 32), MASK)
    return low, HANDLES.astype(high, UINT32)
