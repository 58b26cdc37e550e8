"""Replays of programs with loops or branches on asynchronous devices.

The host decides what runs next, and the memory is that of the schedule: a run allocates
the outputs and one arena for each reason, as the CPU does, and nothing in a step.
Carries, spare places and the values of bodies lie in the arenas. Loops and branches are
the statements of `_loops.py`, which are executed with places instead of arrays: a call
of a body appends its kernels to the launch that is being gathered, and a test launches
what was gathered and waits for its value.

A device that lets no buffer be read and written by one kernel (WebGPU) keeps each place
of an arena in memory of its own, those of bodies as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import State
from ..backends import Part, ProgramKernel, infer_call
from ..ops import OPS, Program, Region
from ..storage import (
    DeviceArray,
    ValueRecord,
    c_strides,
    count_copy,
    host_elements,
)
from ._chains import Chain, chains_of
from ._device_replay import DeviceReplay, PartsMaker, place_at, places_of, writes
from ._loops import FORMS
from ._places import Nested, Root, Schedule, Step, Strides

GATHERED: Final = 64
"""Kernels of one launch, about: a loop launches as often as it has made so many."""


def has_host_control(program: Program) -> bool:
    """Whether an equation decides on the host what runs next."""
    return any(isinstance(eq.call.op.kernel, Region) for eq in program.equations)


class StepReplay(DeviceReplay):
    """A program with loops or branches, in memory that is allocated once for a run."""

    __slots__ = ("_known", "_maker")

    def __init__(
        self, schedule: Schedule, device: Any, strides: Sequence[Strides]
    ) -> None:
        super().__init__(schedule, device, strides)
        self._known: dict[Any, Any] = {}  # kernels, chains and loops of steps
        self._maker = PartsMaker(self)

    def _find_chains(self) -> dict[int, Chain | None]:
        """None at this level: they know nothing of the places that loops write."""
        return {}

    def _places(self) -> Iterator[tuple[Root, Aval]]:
        """Those of bodies as well, which take the place of their arenas."""
        return _places_in(self.schedule)

    def kernel(self, state: State) -> object:
        """One run as `Steps`."""
        return Steps(self, state)

    def known(self, key: Any, make: Callable[[], Any]) -> Any:
        """What was made for `key`, which names a part of the schedule."""
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = make()
        return found

    def run(
        self, state: State, inputs: list[ValueRecord], spent: list[int] | None = None
    ) -> list[ValueRecord]:
        """One run. A loop or branch that asks for a value waits for it.

        Cost: an allocation for each output that takes over no input and for each arena
            (or each of its places), whatever the number of steps; a launch for about
            `GATHERED` kernels and for each question.
        """
        records = self._allocated(state)
        launch = self._launcher(inputs, records, spent)

        def read(at: int, start: int, aval: Aval, operation: str) -> Any:
            record = inputs[at] if at >= 0 else records[~at]
            array = record.array
            if type(array) is not np.ndarray:
                start += array.offset
                one = DeviceArray(array.allocation, (), aval.dtype, start, ())
                record = record.derive(one, aval)
            return host_elements(record, operation).item()

        Steps(self, state).run(launch, read)
        return [self._result(v, inputs, records) for v in self.schedule.program.outputs]

    def _of_program(self, root: Root) -> tuple[int, int, Strides]:
        strides = None
        if root.kind == "input":
            strides = self._strides.get(self.schedule.program.inputs[root.number])
        return *self._maker.where(root), strides


Read = Callable[[int, int, Aval, str], Any]
"""The element that begins so many bytes into an input (`k >= 0`) or what a run
allocates (`~k`), once what was launched has ended; the text names who asks."""


@final
class Steps:
    """One run: its kernels, as the host comes to know which."""

    def __init__(self, replay: StepReplay, state: State) -> None:
        self.replay, self.state = replay, state
        self.device = replay._device
        self.operation = "compiled function"
        self._parts: list[Part] = []

    def run(self, launch: Callable[[object], None], read: Read) -> None:
        """Launch the kernels in order, at least one time; each use makes one run.

        Args:
            launch: enqueues a kernel like that of a program without loops.
        """
        self._launch, self._read = launch, read
        self._launches = 0
        _Level(self, self.replay.schedule, self.replay._of_program).emit()
        if self._parts or not self._launches:
            self._send()

    def add(self, part: Part) -> None:
        self._parts.append(part)
        if len(self._parts) >= GATHERED:
            self._send()

    def _send(self) -> None:
        kernel = ProgramKernel("program", tuple(self._parts))
        self._parts = []
        self._launch(kernel)
        self._launches += 1

    def read(self, spot: Spot) -> Any:
        """The one element there; waits for it."""
        if spot.number is not None:
            return spot.number.item()
        if self._parts:
            self._send()
        at, behind = spot.at, ~spot.at - len(self.replay._memory)
        if behind >= 0:
            at = sorted(self.replay.schedule.donated)[behind]
        return self._read(at, spot.start, spot.aval, self.operation)


@final
class Spot:
    """A place as the statements of a loop see it: it has rows, and may be asked."""

    __slots__ = ("_steps", "at", "aval", "number", "start", "strides")

    def __init__(
        self,
        steps: Steps,
        at: int,
        start: int,
        aval: Aval,
        strides: Strides = None,
        number: Any = None,
    ) -> None:
        self._steps = steps
        self.at, self.start = at, start
        self.aval, self.strides = aval, strides
        self.number = number

    def __getitem__(self, key: Any) -> Spot:
        i = key[0] if type(key) is tuple else key
        aval = self.aval
        row = aval_of(aval.shape[1:], aval.dtype, aval.device)
        if self.number is not None:  # all elements are the same
            return Spot(self._steps, 0, 0, row, number=self.number)
        steps = self.strides or c_strides(aval.shape, aval.dtype.itemsize)
        start = self.start + i * steps[0]
        return Spot(self._steps, self.at, start, row, steps[1:])

    def __bool__(self) -> bool:
        return bool(self._steps.read(self))

    def __int__(self) -> int:
        return int(self._steps.read(self))

    def place(self) -> Any:
        """As an operand of a kernel."""
        if self.number is not None:
            return np.broadcast_to(self.number, self.aval.shape)
        domain = self._steps.device.name
        return place_at(self.at, self.start, self.aval, self.strides, domain)


@final
class _Level(PartsMaker):
    """One run of a program or a body: appends its kernels.

    `of_root` says where a root begins that belongs to the level around: the argument
    of the launch, the offset there, and the strides of an input.
    """

    def __init__(
        self,
        steps: Steps,
        schedule: Schedule,
        of_root: Callable[[Root], tuple[int, int, Strides] | Spot],
    ) -> None:
        self._steps, self._of = steps, of_root
        super().__init__(steps.replay)
        self.schedule = schedule

    def emit(self) -> None:
        replay, schedule = self._steps.replay, self.schedule
        chains = replay.known((id(schedule), "chains"), self._find_chains)
        for step in schedule.steps:
            kernel = step.equation.call.op.kernel
            if isinstance(kernel, Region):
                self._loop(step)
                continue
            chain = chains.get(step.number)
            if chain is None and step.number in chains:
                continue
            if step.copies:
                aval = schedule.avals[step.equation.outs[0]]
                count_copy(self._steps.state, aval, "compiled function")
            part = self._chained(chain) if chain is not None else self._part(step)
            if part is not None:
                self._add(part)
        for part in self._numbers():
            self._add(part)

    def _add(self, part: Part) -> None:
        if writes(part):
            self._steps.add(part)

    def _find_chains(self) -> dict[int, Chain | None]:
        s = self.schedule
        if s is self._steps.replay.schedule or has_host_control(s.program):
            return {}
        strided = [v for v in s.program.inputs if self._spot(v).strides is not None]
        return chains_of(
            s,
            self._device.prints,
            strided,
            shares_buffers=self._device.shares_buffers,
        )

    def _prepared(self, key: Any, make: Callable[[], Any]) -> Any:
        return self._steps.replay.known((id(self.schedule), key), make)

    # -- places ------------------------------------------------------------------------

    def _spot(self, v: int) -> Spot:
        s, steps = self.schedule, self._steps
        root, aval = s.roots[v], s.avals[v]
        if root.kind == "constant":
            return Spot(steps, 0, 0, aval, number=s.number(v))
        found = self._of(root)
        if type(found) is Spot:
            if found.number is not None:
                return Spot(steps, 0, 0, aval, number=found.number)
            at, start, strides = found.at, found.start, found.strides
        else:
            at, start, strides = found
        layout = s.layouts.get(v)
        if layout is not None:
            start, strides = start + s.offsets.get(v, 0), layout.strides
        return Spot(steps, at, start, aval, strides)

    def _place(self, v: int) -> Any:
        return self._spot(v).place()

    def where(self, root: Root) -> tuple[int, int]:
        found = self._of(root)
        if type(found) is Spot:
            return found.at, found.start
        return found[0], found[1]

    # -- loops and branches ------------------------------------------------------------

    def _loop(self, step: Step) -> None:
        steps, eq = self._steps, step.equation
        run = steps.replay.known(
            (id(self.schedule), step.number, "loop"), partial(_statements, step)
        )
        before, steps.operation = steps.operation, eq.call.op.name
        run(
            None,
            self._copy,
            [partial(self._body, nested) for nested in step.bodies],
            [self._spot(v) for v in eq.operands],
            [self._spot(v) for v in eq.outs],
            [self._spot(v) for v in step.registers],
        )
        steps.operation = before

    def _copy(self, target: Spot, source: Spot) -> None:
        aval = target.aval

        def make() -> Any:
            same = infer_call(OPS["accumulate"], (aval,), (), self._device)
            return self._device.prepare(same)

        kernel = self._steps.replay.known((aval, "copy"), make)
        self._add(Part(kernel, (source.place(),), (target.place(),)))

    def _body(self, nested: Nested, state: None, *given: Spot) -> None:
        """One run of a body: the spots of its inputs, then of its outputs."""
        s = nested.schedule
        count = len(s.program.inputs)
        outs = dict(
            zip([id(s.roots[v]) for v in s.program.outputs], given[count:], strict=True)
        )
        written = self._steps.replay._written
        arenas = {}
        if self._device.shares_buffers:
            arenas = {why: self._spot(v) for why, v in nested.arenas.items()}

        def of_root(root: Root) -> tuple[int, int, Strides] | Spot:
            if root.kind == "input":
                return given[root.number]
            if root.kind == "output":
                return outs[id(root)]
            place = written.get(id(root))
            if place is not None:
                return ~place, 0, None
            if not root.nbytes:  # it has no place
                return -1, 0, None
            arena = arenas[root.reason]
            return arena.at, arena.start + root.offset, None

        _Level(self._steps, s, of_root).emit()


def _places_in(schedule: Schedule) -> Iterator[tuple[Root, Aval]]:
    bodies = [nested for step in schedule.steps for nested in step.bodies]
    for nested in bodies:
        yield from _places_in(nested.schedule)
    arenas = {id(schedule.roots[v]) for n in bodies for v in n.arenas.values()}
    for root, aval in places_of(schedule):
        if id(root) not in arenas:
            yield root, aval


def _statements(step: Step) -> Callable[..., None]:
    """The statements of a loop or a branch as a function of places."""
    eq = step.equation
    names = {
        "bodies": [f"b{k}" for k in range(len(step.bodies))],
        "operands": [f"x{k}" for k in range(len(eq.operands))],
        "outs": [f"y{k}" for k in range(len(eq.outs))],
        "spares": [f"s{k}" for k in range(len(step.registers))],
    }
    lines = FORMS[eq.call.op.name].lines(eq.call, step.layouts, **names)
    given = [f"[{', '.join(group)}] = {name}" for name, group in names.items()]
    source = [
        "def loop(state, copyto, bodies, operands, outs, spares):",
        *(f"    {line}" for line in (*given, *lines)),
    ]
    space: dict[str, Any] = {}
    exec(compile("\n".join(source), "<tenferro_ad>", "exec"), space)
    return space["loop"]  # type: ignore[no-any-return]


__all__ = ["StepReplay", "Steps", "has_host_control"]
