"""Compiled graphs: a program with its schedule, its replay and its constants.

Replays hold structure only and are shared: programs of one structure, wherever they
were traced, run the same one. A graph owns the records of its constants.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar, final

from .._aval import Aval, aval_of
from .._ledger import State
from ..backends import CPU, AsynchronousDevice
from ..ops import Program, inlined, key_of
from ..storage import ValueRecord
from ._device_replay import DeviceReplay
from ._direct import plan_of
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


GRAPHS: Final[Cache[Replay | DeviceReplay]] = Cache(256)
"""Replays by program structure and donated inputs."""


@final
class CompiledGraph:
    """A program that is ready to run.

    Attributes:
        program: its equations, regions in place.
        constants: the records that it owns: the program's last inputs.
        metadata: results that are no tensors, by position among all results.

    Cost: constant; replays are shared between graphs of one structure.
    """

    __slots__ = ("_replay", "constants", "metadata", "program")

    def __init__(
        self,
        program: Program,
        constants: Sequence[ValueRecord],
        replay: Replay | DeviceReplay,
        metadata: Mapping[int, Any],
    ) -> None:
        self.program = program
        self.constants = tuple(constants)
        self.metadata = dict(metadata)
        self._replay = replay

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Of the inputs that a run is given (not of the constants)."""
        avals = self.program.in_avals
        return avals[: len(avals) - len(self.constants)]

    @property
    def arenas(self) -> list[tuple[int, Aval]]:
        """Reason and bytes of each arena."""
        return self._replay.arenas

    def memory(self) -> list[tuple[Aval, int]]:
        """Form and reason of what a run allocates: outputs that take over no input,
        then arenas (or each of their places, see `DeviceReplay`)."""
        return self._replay.memory()

    def launched(self, state: State) -> object | None:
        """The run as a kernel of its device, for an endpoint there; None on the host.
        The explicit duplicates that the run makes are counted here.

        Its launch reads inputs and constants and writes what `memory` lists; if some
        inputs are donated, it writes all inputs first and reads the constants.
        """
        replay = self._replay
        if isinstance(replay, DeviceReplay):
            replay.count_copies(state)
            return replay.kernel_of_group(len(self.in_avals))
        return None

    def variant(
        self, donated: Sequence[int], strides: Sequence[Strides]
    ) -> CompiledGraph:
        """The same graph for inputs laid out like these, some of them donated.

        Raises:
            InvalidArgumentError: a donated input cannot be used.
        """
        replay = _replay_of(self.program, self.constants, donated, strides)
        return CompiledGraph(self.program, self.constants, replay, self.metadata)

    def apply(
        self,
        state: State,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        arenas: Sequence[Any],
    ) -> None:
        """One run over arrays: inputs and constants, memory of fresh outputs, bytes of
        arenas.

        Cost: the kernels; no allocation of values, no copy.
        """
        self._replay.apply(state, inputs, outputs, arenas)

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
    metadata: Mapping[int, Any] | None = None,
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
    replay = _replay_of(program, constants, donated, strides)
    return CompiledGraph(program, constants, replay, metadata or {})


def _replay_of(
    program: Program,
    constants: Sequence[ValueRecord],
    donated: Sequence[int],
    strides: Sequence[Strides],
) -> Replay | DeviceReplay:
    given = tuple(donated)
    count = len(program.inputs) - len(constants)
    steps = (*(strides or (None,) * count), *map(strides_of, constants))
    device = program.avals[0].device if program.avals else None
    launches = isinstance(device, AsynchronousDevice)

    def on_host() -> Replay:
        # Places and kernels are the host's: other memory that the host can reach is
        # laid out alike.
        return Replay(schedule(on_device(program, CPU), given, steps))

    def make() -> Replay | DeviceReplay:
        if launches:
            return DeviceReplay(schedule(program, given, steps), device, steps, on_host)
        return on_host()

    key = (key_of(program), given, steps, device if launches else None)
    return GRAPHS.get(key, make)


def on_device(program: Program, device: Any) -> Program:
    """The same program for values in another place."""
    if all(a.device is device for a in program.avals):
        return program
    made = Program(list(program.inputs), [], program.outputs)
    made.avals = [aval_of(a.shape, a.dtype, device) for a in program.avals]
    for v, record in program.literals.items():
        made.literals[v] = ValueRecord(record.array, made.avals[v], None)
    for eq in program.equations:
        ins = tuple([made.avals[v] for v in eq.operands])
        params = tuple(
            [
                device if name == "device" else value
                for name, value in zip(eq.call.op.params, eq.call.params, strict=True)
            ]
        )
        made.equations.append(replace(eq, call=plan_of(eq.call.op, ins, params).call))
    return made


__all__ = ["GRAPHS", "Cache", "CacheInfo", "CompiledGraph", "compile_program"]
