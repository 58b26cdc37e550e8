"""Functions over arrays that are written out and wait for memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ._places import Schedule

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Written:
    """A function that is written out, for a schedule whose places are not known yet.

    Attributes:
        make: `make(*static, *transposed, *bodies)` gives the function.
        static: variables whose arrays it refers to; `transposed`: by their transpose.
        bodies: functions that it calls, with the places of their arenas.
        scratch: workspace of its kernels.
    """

    schedule: Schedule
    make: Callable[..., Callable[..., Any]]
    static: tuple[int, ...]
    transposed: tuple[int, ...]
    bodies: tuple[tuple[Written, dict[int, int]], ...]
    scratch: int

    def bound(self, memory: dict[int, Array]) -> Callable[..., Any]:
        """The function over these arenas, by reason."""
        arrays = arrays_of(self.schedule, memory)
        return self.make(
            *[arrays[v] for v in self.static],
            *[arrays[v].T for v in self.transposed],
            *[
                body.bound({reason: arrays[v] for reason, v in places.items()})
                for body, places in self.bodies
            ],
        )


def stand_ins(schedule: Schedule) -> dict[int, int]:
    """For variables that are the same array, the first one."""
    found: dict[int, int] = {}
    first: dict[Any, int] = {}
    for v, root in schedule.roots.items():
        key = schedule.place_of(v)
        if key is not None:
            found[v] = first.setdefault(key, v)
        elif root.kind == "output" and v not in schedule.layouts:
            found[v] = root.variables[0]
    for step in schedule.steps:
        eq = step.equation
        if eq.mode != "fresh" and eq.outs[0] in schedule.layouts:
            found[eq.outs[0]] = found.get(eq.ins[0], eq.ins[0])
    return found


def arrays_of(schedule: Schedule, memory: dict[int, Array]) -> dict[int, Array]:
    """Arrays of the variables whose memory is known before a run: places of arenas,
    constants, and views of both.

    Args:
        memory: bytes of the arena of each reason.
    """
    arrays: dict[int, Array] = {
        v: record.array for v, record in schedule.program.literals.items()
    }
    made: dict[Any, Array] = {}
    for v in schedule.roots:
        key = schedule.place_of(v)
        if key is None:
            continue
        found = made.get(key)
        if found is None:
            reason, offset, shape, dtype = key
            if schedule.avals[v].nbytes:
                found = np.ndarray(shape, dtype, memory[reason], offset)
            else:
                found = np.empty(shape, dtype)
            made[key] = found
        arrays[v] = found
    for step in schedule.steps:
        eq = step.equation
        source = eq.ins[0] if eq.ins else -1
        if eq.outs[0] not in schedule.layouts or source not in arrays:
            continue
        if eq.mode != "fresh":  # written over a view: the same array, views follow
            arrays[eq.outs[0]] = arrays[source]
        else:
            kernel: Any = eq.call.op.kernel
            views = kernel.fn(arrays[source], eq.call)
            outs = views if len(eq.outs) > 1 else (views,)
            arrays.update(zip(eq.outs, outs, strict=True))
    return arrays


__all__ = ["Written", "arrays_of", "stand_ins"]
