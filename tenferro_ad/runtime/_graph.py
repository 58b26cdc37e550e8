"""Compiled graphs: a program with its schedule, its replay and its constants.

Replays hold structure only and are shared: programs of one structure, wherever they
were traced, run the same one. A graph owns the records of its constants.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, final

from .._aval import Aval
from .._ledger import State
from ..backends import CPU, AsynchronousDevice
from ..errors import UnsupportedError
from ..ops import Move, Program, Region, inlined, key_of
from ..storage import AdValueRecord, ValueRecord
from ._device_replay import DeviceReplay
from ._places import Schedule, Strides
from ._replay import Replay
from ._schedule import schedule
from ._step_replay import StepReplay, has_host_control
from ._trace import strides_of
from ._writer import Writer

T = TypeVar("T")
Applied = Callable[[State, Sequence[Any], Sequence[Any], Sequence[Any]], None]


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
        constants: the records of what it reads as the program's last inputs.
        held: its references to them: while it lives they are not unique.
        metadata: results that are no tensors, by position among all results.

    Cost: constant; replays are shared between graphs of one structure.
    """

    __slots__ = ("_replay", "constants", "held", "metadata", "program")

    def __init__(
        self,
        program: Program,
        constants: Sequence[ValueRecord],
        replay: Replay | DeviceReplay,
        metadata: Mapping[int, Any],
    ) -> None:
        self.program = program
        self.constants = tuple(constants)
        self.held = tuple(map(AdValueRecord, constants))
        self.metadata = dict(metadata)
        self._replay = replay

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        """Of the inputs that a run is given (not of the constants)."""
        avals = self.program.in_avals
        return avals[: len(avals) - len(self.held)]

    @property
    def arenas(self) -> list[tuple[int, Aval]]:
        """Reason and bytes of each arena."""
        return self._replay.arenas

    def memory(self) -> list[tuple[Aval, int]]:
        """Form and reason of what a run allocates: outputs that take over no input,
        then arenas (or each of their places, see `DeviceReplay`)."""
        return self._replay.memory()

    def launched(self, state: State) -> object | None:
        """The run as a kernel of its device, or as `Steps` that launch several; None
        on the host. The explicit duplicates that the run makes are counted in `state`.

        Operands are the program's inputs. A launch writes what `memory` lists, then
        the donated inputs in order.
        """
        replay = self._replay
        return replay.kernel(state) if isinstance(replay, DeviceReplay) else None

    @property
    def applied(self) -> Applied:
        """One run over host arrays: inputs and constants, memory of fresh outputs,
        bytes of arenas. It holds the structure and no value.

        Raises:
            UnsupportedError: the program is another device's.

        Cost: the kernels; no allocation of values, no copy.
        """
        if isinstance(self._replay, DeviceReplay):
            raise UnsupportedError(op="applied", backend=self._replay.device_name)
        return self._replay.apply

    def variant(
        self, donated: Sequence[int], strides: Sequence[Strides]
    ) -> CompiledGraph:
        """The same graph for inputs laid out like these, some of them donated.

        Raises:
            InvalidArgumentError: a donated input cannot be used.
        """
        replay = _replay_of(self.program, self.constants, donated, strides)
        return CompiledGraph(self.program, self.constants, replay, self.metadata)

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
    *,
    operation: str = "compile",
) -> CompiledGraph:
    """The graph of a traced program.

    Args:
        constants: records for the program's last inputs.
        strides: of the other inputs, None for row-major ones; empty if all are.
        donated: positions of inputs whose memory outputs may take over.
        operation: the public call, for texts.

    Raises:
        InvalidArgumentError: a donated input cannot be used.
        UnsupportedError: the program moves a value to another device: its arenas are
            one device's.

    Cost: time linear in the program; nothing is allocated.
    """
    program = inlined(program)
    _refuse_moves(program, operation)
    replay = _replay_of(program, constants, donated, strides)
    return CompiledGraph(program, constants, replay, metadata or {})


def _refuse_moves(program: Program, operation: str) -> None:
    """A program that is compiled stays on one device, its bodies as well."""
    for eq in program.equations:
        kernel = eq.call.op.kernel
        if isinstance(kernel, Move):
            source, target = eq.call.ins[0].device, eq.call.device
            raise UnsupportedError(
                op="to",
                backend=source.name,
                operation=operation,
                found=f"`to({target.name!r})` of a value on `{source.name}` inside a "
                "program that is compiled, which runs on one device",
                fix="move the value with `x.to(device)` before or after the compiled "
                "function",
            )
        if isinstance(kernel, Region):
            for body, _ in kernel.sources(eq.call):
                _refuse_moves(inlined(body.program), operation)


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

    def make() -> Replay | DeviceReplay:
        found = schedule(program, given, steps)
        if not launches:
            return Replay(found)
        kind = StepReplay if has_host_control(program) else DeviceReplay
        return kind(found, device, steps)

    key = (key_of(program), given, steps, device if launches else None)
    return GRAPHS.get(key, make)


def memory_of(program: Program) -> int:
    """Bytes that one run of the program, compiled for the host, needs: arenas of at
    least the size that they have in a run (see `schedule`), outputs, and workspace of
    kernels.

    Cost: time linear in the program; nothing is allocated.
    """
    found = schedule(inlined(program))
    return found.peak + Writer(found).written().scratch


def forget_graphs() -> None:
    """Start the tables of replays afresh; graphs in use stay what they are."""
    GRAPHS.clear()
    CPU.remembered.clear()


__all__ = [
    "GRAPHS",
    "Cache",
    "CacheInfo",
    "CompiledGraph",
    "compile_program",
    "forget_graphs",
    "memory_of",
]
