"""Compiled graphs: a program with its schedule, its replay and its constants.

Replays hold structure only and are shared: programs of one structure, wherever they
were traced, run the same one. A graph owns the records of its constants.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, final

from .._ledger import State
from ..ops import Program, inlined, key_of
from ..storage import ValueRecord
from ._replay import Replay
from ._schedule import Schedule, Strides, schedule
from ._trace import strides_of

T = TypeVar("T")


@final
@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What a cache did: entries found, made, given up, and held now."""

    hits: int
    misses: int
    evictions: int
    size: int
    limit: int


class Cache(Generic[T]):
    """The most recently used entries, at most `limit`. Thread-safe."""

    __slots__ = ("_entries", "_evictions", "_hits", "_lock", "_misses", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = threading.RLock()
        self._hits = self._misses = self._evictions = 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The entry of `key`, made on first use; the oldest one goes when it is full.

        If `make` raises, nothing is kept.
        """
        entries = self._entries
        try:
            found = entries[key]
            entries.move_to_end(key)
            self._hits += 1
            return found
        except KeyError:
            pass
        made = make()
        with self._lock:
            self._misses += 1
            entries[key] = made
            while len(entries) > self.limit:
                entries.popitem(last=False)
                self._evictions += 1
        return made

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()

    @property
    def info(self) -> CacheInfo:
        return CacheInfo(
            self._hits, self._misses, self._evictions, len(self._entries), self.limit
        )


GRAPHS: Final[Cache[Replay]] = Cache(256)
"""Replays by program structure and donated inputs."""


@final
class CompiledGraph:
    """A program that is ready to run.

    Attributes:
        program: its equations, regions in place.
        constants: the records that it owns: the program's last inputs.

    Cost: constant; replays are shared between graphs of one structure.
    """

    __slots__ = ("_replay", "constants", "program")

    def __init__(
        self, program: Program, constants: Sequence[ValueRecord], replay: Replay
    ) -> None:
        self.program = program
        self.constants = tuple(constants)
        self._replay = replay

    @property
    def plan(self) -> Schedule:
        """Arenas, places, lifetimes and outputs; it prints as a table."""
        return self._replay.schedule

    def run(
        self,
        state: State,
        inputs: Sequence[ValueRecord],
        spent: list[int] | None = None,
    ) -> list[ValueRecord]:
        """Output records for these inputs (without the constants).

        Cost: as `plan.allocations` says; no copies but those that the program makes.
        """
        return self._replay.run(state, [*inputs, *self.constants], spent)

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"<compiled graph: {len(plan.steps)} equations, {plan.peak} bytes of "
            f"arenas and outputs>"
        )


def compile_program(
    program: Program,
    constants: Sequence[ValueRecord],
    donated: Sequence[int] = (),
    strides: Sequence[Strides] = (),
) -> CompiledGraph:
    """The graph of a traced program.

    Args:
        constants: records for the program's last inputs.
        strides: of the other inputs, None for row-major ones; empty if all are.
        donated: positions of inputs whose memory outputs may take over.

    Raises:
        InvalidArgumentError: a donated input cannot be used.

    Cost: time linear in the program; nothing is allocated.
    """
    program = inlined(program)
    given = tuple(donated)
    count = len(program.inputs) - len(constants)
    steps = (*(strides or (None,) * count), *map(strides_of, constants))
    replay = GRAPHS.get(
        (key_of(program), given, steps),
        lambda: Replay(schedule(program, given, steps)),
    )
    return CompiledGraph(program, constants, replay)


__all__ = ["GRAPHS", "Cache", "CacheInfo", "CompiledGraph", "compile_program"]
