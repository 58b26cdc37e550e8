"""Philox4x32-10: 128 random bits from a counter of 128 bits and a key of 64 bits.

A function without state: the same counter and key give the same bits wherever and
whenever they are asked for, so nothing needs to be kept to compute them again.

Source: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random numbers: as
easy as 1, 2, 3", SC11 (2011).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

Array = np.ndarray[Any, Any]

BLOCKS: Final = 4096  # counters at a time
# The working set for one counter: products, words and keys as 64-bit integers.
BLOCK_NBYTES: Final = 16 * 8

ROUNDS: Final = 10
_MASK: Final = 0xFFFFFFFF
MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_SHIFT: Final = np.uint64(32)
_LOW: Final = np.uint64(_MASK)


def philox4x32(counter: Array, key: Array) -> Array:
    """The four words of each counter.

    Args:
        counter: (n, 4) words, least significant first.
        key: (n, 2) words, or (1, 2) for all counters.
    """
    c0, c1, c2, c3 = counter.astype(np.uint64).T
    k0, k1 = key.astype(np.uint64).T
    for _ in range(ROUNDS):
        first = c0 * np.uint64(MULTIPLIERS[0])
        second = c2 * np.uint64(MULTIPLIERS[1])
        c0 = (second >> _SHIFT) ^ c1 ^ k0
        c2 = (first >> _SHIFT) ^ c3 ^ k1
        c1, c3 = second & _LOW, first & _LOW
        k0, k1 = (k0 + WEYL[0]) & _LOW, (k1 + WEYL[1]) & _LOW
    return np.stack([c0, c1, c2, c3], -1).astype(np.uint32)


def words(keys: Array, start: int, count: int, domain: int) -> Array:
    """The words (n * count, 4) of counters `start`, `start + 1`, ... of a domain, for
    each of `keys` (n, 2).

    The upper half of the counter is the domain: what is drawn from a key and the keys
    that are derived from it never share a counter.
    """
    index = np.arange(start, start + count, dtype=np.uint64)
    counter = np.zeros((len(keys), count, 4), np.uint32)
    counter[:, :, 0] = index & _LOW
    counter[:, :, 1] = index >> _SHIFT
    counter[:, :, 3] = domain
    if len(keys) > 1:
        keys = np.repeat(keys, count, 0)
    return philox4x32(counter.reshape(-1, 4), keys)
