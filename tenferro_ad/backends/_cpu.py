"""The CPU backend: NumPy memory, NumPy and SciPy kernels.

One allocation domain. `small` and `allocate` are the hand-out: each call is one
physical allocation. `small` is NumPy's own `empty` unless a limit is set, so that the
hot path pays nothing for the seam; tests count calls by replacing both. Large buffers
come from a pool and return to it, because fresh pages cost as much as the arithmetic
that fills them; pool bytes are reported apart from live bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from .._aval import Aval
from .._ledger import BASE
from ..errors import AllocationLimitError
from ..ops import Op
from ..storage import POOLED_FROM
from ._host_plan import host_plan
from ._plan import Plan, infer_call

Array = np.ndarray[Any, Any]
_SPARE: Final = 2 * POOLED_FROM  # for small roots, until a large one comes or goes
_GRAIN: Final = 64  # sizes in the pool: multiples of a cache line


@final
class CpuDevice:
    """Host memory and kernels. `name` is for discovery; compare devices by identity."""

    def __init__(self, name: str = "cpu") -> None:
        self.name = name
        # Hand-out below `POOLED_FROM` bytes: `small(shape, dtype)`.
        self.small: Callable[[tuple[int, ...], Any], Array] = np.empty
        self.pool_limit = 1 << 31
        self.pool_bytes = 0
        # Live and pooled bytes together, while a budget is in force (`keep_within`).
        self._ceiling: int | None = None
        self._limit: int | None = None
        self._pool: dict[int, list[Array]] = {}
        # Functions over arrays in pooled memory, for runs that get that memory again;
        # forgotten when it is trimmed.
        self.remembered: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    # -- memory --------------------------------------------------------------------

    @property
    def limit(self) -> int | None:
        """Most live bytes that `allocate` will hand out, or None."""
        return self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        self._limit = nbytes
        self.small = np.empty if nbytes is None else self._limited

    def _limited(self, shape: tuple[int, ...], dtype: Any) -> Array:
        self._check_limit(math.prod(shape) * dtype.itemsize)
        return np.empty(shape, dtype)

    def allocate(self, shape: tuple[int, ...], dtype: Any, nbytes: int) -> Array:
        """Unwritten memory for one root, from the pool if it has some.

        Raises:
            AllocationLimitError: `limit` would be passed, or the operating system has
                no more; nothing happened.
        """
        if self._limit is not None:
            self._check_limit(nbytes)
        return np.ndarray(shape, dtype, self._take(nbytes))

    def _take(self, nbytes: int) -> Array:
        size = -(-nbytes // _GRAIN) * _GRAIN
        held = self._pool.get(size)
        if held:
            try:
                raw = held.pop()
            except IndexError:
                return self._fresh(size)
            self.pool_bytes -= size
            return raw
        if self._ceiling is not None:
            self._make_room(size, self._ceiling)
        return self._fresh(size)

    def _fresh(self, size: int) -> Array:
        """Memory of the operating system; if it has no more, the pool's goes back."""
        try:
            return np.empty(size, np.uint8)
        except MemoryError:
            self.trim()
        try:
            return np.empty(size, np.uint8)
        except MemoryError:
            raise AllocationLimitError(
                operation="allocate",
                argument="nbytes",
                engine=self.name,
                nbytes=size,
                found=f"{size} bytes with {BASE.live_bytes} live, which the operating "
                "system does not give",
                fix="free values, checkpoint a region, or choose a smaller problem",
            ) from None

    def keep_within(self, nbytes: int) -> None:
        """Let live and pooled bytes together stay within `nbytes` from now on: pooled
        memory that fits nothing goes back to the operating system. This ends when live
        bytes alone are more, or with `trim`.

        Cost: constant.
        """
        self._ceiling = nbytes

    def _make_room(self, size: int, ceiling: int) -> None:
        if BASE.live_bytes + size > ceiling:
            self._ceiling = None
            return
        for held in list(self._pool):
            while BASE.live_bytes + self.pool_bytes + size > ceiling:
                blocks = self._pool.get(held)
                if not blocks:
                    break
                self.pool_bytes -= blocks.pop().nbytes
                self.remembered.clear()

    def scratch(self, aval: Aval) -> Array:
        """Workspace of a kernel: no value, no event; return it with `give_back`."""
        if aval.nbytes < POOLED_FROM:
            return np.empty(aval.shape, aval.dtype)
        return np.ndarray(aval.shape, aval.dtype, self._take(aval.nbytes))

    def adopted(self, nbytes: int) -> None:
        """A library call allocated `nbytes` for a root: seen here like a hand-out."""
        if self._limit is not None:
            self._check_limit(nbytes)

    def give_back(self, buffer: Array) -> None:
        """A released root of at least `POOLED_FROM` bytes returns to the pool."""
        if buffer.nbytes < POOLED_FROM:
            return
        raw = buffer.base if buffer.base is not None else buffer
        if raw.dtype != np.uint8 or raw.ndim != 1 or raw.nbytes % _GRAIN:
            return  # adopted from a library: its own allocator takes it back
        if self.pool_bytes + raw.nbytes > self.pool_limit:
            self.trim()
        self._pool.setdefault(raw.nbytes, []).append(raw)
        self.pool_bytes += raw.nbytes
        if self._ceiling is not None:
            self._make_room(_SPARE, self._ceiling)

    def drain(self) -> None:
        """Nothing runs on after an eager operation here: no wait."""

    def trim(self) -> None:
        """Give the pool's memory back to the operating system."""
        self.remembered.clear()
        self._pool.clear()
        self.pool_bytes = 0
        self._ceiling = None

    def write(self, target: Array, source: Any) -> None:
        """Copy host bytes into `target`; called by the copy doors only."""
        np.copyto(target, source)

    def _check_limit(self, nbytes: int) -> None:
        assert self._limit is not None
        if BASE.live_bytes + nbytes > self._limit:
            raise AllocationLimitError(
                operation="allocate",
                argument="nbytes",
                engine=self.name,
                nbytes=nbytes,
                limit=self._limit,
                found=f"{nbytes} bytes with {BASE.live_bytes} live of {self._limit}",
                fix="free values, checkpoint a region, or raise the limit",
            )

    # -- kernels -------------------------------------------------------------------

    def plan(self, op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]) -> Plan:
        """Infer once, choose the kernel once; replays only follow the plan.

        Raises:
            what the row's `infer` raises for bad shapes, dtypes or parameters.
        """
        return host_plan(infer_call(op, ins, params, self), self.name)


CPU: Final = CpuDevice()
