"""Prepared host access: a typed slice, or a strided plan, chosen once (contract G4).

A contiguous payload offers slice access and nothing else, a strided one its plan and
nothing else. Loops do typed access and precomputed increments; every check, map and
wait happened before the payload existed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from .._ownership import MoveOnly
from ._guard import HostReadGuard, HostWriteGuard
from ._layout import CheckedInjectiveStrided, CheckedStrided
from ._provider import HostArray


@final
class PreparedStridedIter(Iterator[Any]):
    """One element for each step: typed access, stride and carry increments, an end."""

    __slots__ = ("_at", "_axes", "_flat", "_index", "_remaining")

    def __init__(self, flat: HostArray, plan: CheckedStrided, start: int) -> None:
        size = plan.itemsize
        self._flat = flat
        self._at = start
        self._remaining = plan.size
        self._index = [0] * len(plan.shape)
        self._axes = [
            (k, extent - 1, carry // size)
            for k, (extent, carry) in reversed(
                list(enumerate(zip(plan.shape, plan.carries, strict=True)))
            )
        ]

    def __next__(self) -> Any:
        if not self._remaining:
            raise StopIteration
        item = self._flat[self._at]
        self._remaining -= 1
        if self._remaining:
            index = self._index
            for k, last, carry in self._axes:
                if index[k] < last:
                    index[k] += 1
                    self._at += carry
                    break
                index[k] = 0
        return item


def _envelope(array: HostArray, plan: CheckedStrided) -> tuple[HostArray, int]:
    """The typed elements between the plan's lowest and highest byte, and the start."""
    reach = plan.byte_range
    count = len(reach) // plan.itemsize
    first = array
    for axis, stride in enumerate(array.strides):
        if stride < 0:
            first = np.flip(first, axis)
    low = first[tuple(slice(0, 1) for _ in first.shape)]
    flat = np.lib.stride_tricks.as_strided(
        low.reshape(()), (count,), (plan.itemsize,), writeable=array.flags.writeable
    )
    return flat, (plan.offset - reach.start) // plan.itemsize


@final
class PreparedContiguousRead(MoveOnly):
    """Host read access to elements without gaps: one typed slice."""

    __slots__ = ("element_range", "guard")

    guard: HostReadGuard
    element_range: range

    def as_slice(self) -> HostArray:
        """The elements as one read-only 1-D array, for one bulk call or plain access.

        Raises:
            ExpiredCapabilityError: the access has ended.

        Cost: a few small objects; no allocation of storage, provider call, wait or
        transfer; nothing for each element; the slice has rank 1.
        """
        return self.guard._lend(self.guard._elements("as_slice").reshape(-1))

    def iter_contiguous(self) -> Iterator[Any]:
        """Iterate the typed slice.

        Cost: as `PreparedContiguousRead.as_slice`; then plain access for each element.
        """
        return iter(self.as_slice())

    def close(self) -> None:
        """End the access.

        Raises nothing. Cost: constant; the borrow ends, at once or with the last array.
        """
        self.guard.close()


@final
class PreparedStridedRead(MoveOnly):
    """Host read access to strided elements: one typed array and an incremental plan."""

    __slots__ = ("guard", "plan")

    guard: HostReadGuard
    plan: CheckedStrided

    def as_strided_array(self) -> HostArray:
        """The elements as one read-only strided array.

        Raises:
            ExpiredCapabilityError: the access has ended.

        Cost: a few small objects; no allocation of storage, provider call, wait or
        transfer; nothing for each element; keeps the rank.
        """
        return self.guard._lend(self.guard._elements("as_strided_array"))

    def iter_strided(self) -> PreparedStridedIter:
        """Iterate in C order by precomputed stride and carry increments.

        Raises:
            ExpiredCapabilityError: the access has ended.

        Cost: one cursor of O(rank) is made; no allocation of storage, provider call,
        wait or transfer; then a typed access and ready-made increments for each
        element.
        """
        flat, start = _envelope(self.guard._elements("iter_strided"), self.plan)
        return PreparedStridedIter(self.guard._lend(flat), self.plan, start)

    def close(self) -> None:
        """End the access.

        Raises nothing. Cost: constant; the borrow ends, at once or with the last array.
        """
        self.guard.close()


@final
class PreparedContiguousWrite(MoveOnly):
    """Host write access to elements without gaps: one typed slice."""

    __slots__ = ("element_range", "guard")

    guard: HostWriteGuard
    element_range: range

    def as_slice_mut(self) -> HostArray:
        """The elements as one writable 1-D array; one at a time.

        Raises:
            ExpiredCapabilityError: the access has ended.
            BorrowConflictError: an array of this access is still alive.

        Cost: a few small objects; no allocation of storage, provider call, wait or
        transfer; nothing for each element; the slice has rank 1.
        """
        return self.guard._lend(self.guard._elements("as_slice_mut").reshape(-1))

    def iter_contiguous_mut(self) -> Iterator[HostArray]:
        """Iterate writable elements: `e[...] = v` writes one.

        Cost: as `PreparedContiguousWrite.as_slice_mut`; then plain access for each
        element.
        """
        array = self.as_slice_mut()
        return (array[k, ...] for k in range(len(array)))

    def close(self) -> None:
        """End the access.

        Raises nothing. Cost: constant; the borrow ends, at once or with the last array.
        """
        self.guard.close()


@final
class PreparedStridedWrite(MoveOnly):
    """Host write access to strided elements, each proven distinct."""

    __slots__ = ("guard", "plan")

    guard: HostWriteGuard
    plan: CheckedInjectiveStrided

    def as_strided_array_mut(self) -> HostArray:
        """The elements as one writable strided array; one at a time.

        Raises:
            ExpiredCapabilityError: the access has ended.
            BorrowConflictError: an array of this access is still alive.

        Cost: a few small objects; no allocation of storage, provider call, wait or
        transfer; nothing for each element; keeps the rank.
        """
        return self.guard._lend(self.guard._elements("as_strided_array_mut"))

    def iter_strided_mut(self) -> Iterator[HostArray]:
        """Iterate writable elements in C order, each at most once.

        Raises:
            ExpiredCapabilityError: the access has ended.
            BorrowConflictError: an array of this access is still alive.

        Cost: one cursor of O(rank) is made; no allocation of storage, provider call,
        wait or transfer; then a typed access and ready-made increments for each
        element.
        """
        plan = self.plan.plan
        flat, start = _envelope(self.guard._elements("iter_strided_mut"), plan)
        cells = self.guard._lend(flat).reshape(-1, 1)
        return (cell.reshape(()) for cell in PreparedStridedIter(cells, plan, start))

    def close(self) -> None:
        """End the access.

        Raises nothing. Cost: constant; the borrow ends, at once or with the last array.
        """
        self.guard.close()


PreparedHostRead = PreparedContiguousRead | PreparedStridedRead
PreparedHostWrite = PreparedContiguousWrite | PreparedStridedWrite
