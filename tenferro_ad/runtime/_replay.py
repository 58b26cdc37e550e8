"""Replays: a schedule as one straight-line function over arrays.

The function is written once for a program. Arrays over an arena are made when its
memory is first handed out and found again while the pool hands out the same memory;
then a run costs its kernels, an allocation for each output, and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import State
from ..backends import loud, quiet, quietly
from ..storage import ValueRecord, allocate
from ._places import Schedule
from ._writer import ArrayWriter, Writer
from ._written import Written

Array = np.ndarray[Any, Any]
FRAMES: Final = 256  # functions over arenas that a device remembers


class Replay:
    """A program that runs on records: `run(state, records)` gives output records.

    Thread-safe: each run has arenas of its own.
    """

    __slots__ = (
        "_over_arrays",
        "_remembered",
        "_token",
        "arenas",
        "_written",
        "schedule",
    )

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule
        device = _device_of(schedule)
        self.arenas = [
            (reason, aval_of((nbytes,), np.dtype(np.uint8), device))
            for reason, nbytes in schedule.arenas.items()
        ]
        self._over_arrays: Written | None = None
        self._written = Writer(schedule).written()
        self._token = object()
        self._remembered: dict[Any, Any] = {} if device is None else device.remembered

    def memory(self) -> list[tuple[Aval, int]]:
        """Form and reason of what a run allocates: outputs that take over no input,
        then arenas."""
        s = self.schedule
        fresh = [r for r in s.outputs if r.taken is None]
        return [
            *[(s.avals[r.variables[0]], r.reason) for r in fresh],
            *[(aval, reason) for reason, aval in self.arenas],
        ]

    def run(
        self, state: State, inputs: list[ValueRecord], spent: list[int] | None = None
    ) -> list[ValueRecord]:
        """One run; donated inputs are used up.

        Args:
            spent: gets the position of each donated input when it is written over.

        Cost: an allocation for each arena and each output that takes over no input; no
            copy; the kernels.
        """
        held = []
        for reason, aval in self.arenas:
            held.append(allocate(state.under(reason), aval, "arena"))
        key = (self._token, *[id(r.array.base) for r in held])
        frame = self._remembered.get(key)
        if frame is None:
            frame = self._bound(key, held)
        before = quiet()
        try:
            return frame[1](state, spent, *inputs)  # type: ignore[no-any-return]
        finally:
            loud(before)

    @quietly
    def apply(
        self,
        state: State,
        inputs: Sequence[Array],
        outputs: Sequence[Array],
        arenas: Sequence[Array],
    ) -> None:
        """One run over given memory: that of each output root that takes over no
        input, and bytes for each arena.

        Cost: the kernels, and an array for each place of the arenas; no allocation of
            values.
        """
        if self._over_arrays is None:
            self._over_arrays = ArrayWriter(self.schedule).written()
        memory = {
            reason: arena
            for (reason, _), arena in zip(self.arenas, arenas, strict=True)
        }
        self._over_arrays.bound(memory)(state, *inputs, *outputs)

    def _bound(
        self, key: tuple[Any, ...], held: list[ValueRecord]
    ) -> tuple[list[Any], Any]:
        """The function over these arenas."""
        memory = {
            reason: r.array for (reason, _), r in zip(self.arenas, held, strict=True)
        }
        known = list(self._remembered)  # other threads add and forget meanwhile
        for old in known[: max(0, len(known) - FRAMES + 1)]:
            self._remembered.pop(old, None)
        # The key is an identity: what it names is kept as long as the entry.
        frame = [r.array.base for r in held], self._written.bound(memory)
        self._remembered[key] = frame
        return frame


def _device_of(schedule: Schedule) -> Any:
    return schedule.avals[0].device if schedule.avals else None


__all__ = ["Replay"]
