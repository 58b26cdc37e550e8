"""Replays of programs with loops or branches on asynchronous devices.

The host decides what runs next, and the memory is that of the schedule: a run allocates
the outputs and one arena for each reason, as the CPU does, and nothing in a step.
Carries, spare places and the values of bodies lie in the arenas. Loops and branches are
the statements of `_loops.py`, which are executed with places instead of arrays: a call
of a body appends its kernels to the launch that is being gathered, and a test launches
what was gathered and waits for its value.

A device that lets no buffer be read and written by one kernel (WebGPU) has no arenas of
this kind; there each value of a loop is an allocation, as in eager work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import State
from ..backends import Part, ProgramKernel, infer_call
from ..errors import UnsupportedError
from ..ops import OPS, Program, Region
from ..storage import (
    DeviceArray,
    ValueRecord,
    allocate,
    c_strides,
    count_copy,
    host_elements,
)
from ._chains import Chain, chains_of
from ._device_replay import DeviceReplay, PartsMaker, place_at
from ._direct import DIRECT, plan_of
from ._loops import FORMS
from ._places import Nested, Root, Schedule, Step, Strides
from ._regions import recomputing, runner_of
from ._writer import under

GATHERED: Final = 64
"""Kernels of one launch, about: a loop launches as often as it has made so many."""


def has_host_control(program: Program) -> bool:
    """Whether an equation decides on the host what runs next."""
    return any(isinstance(eq.call.op.kernel, Region) for eq in program.equations)


class StepReplay(DeviceReplay):
    """A program with loops or branches, in memory that is allocated once for a run."""

    __slots__ = ("_known", "_maker", "_runner")

    def __init__(
        self, schedule: Schedule, device: Any, strides: Sequence[Strides]
    ) -> None:
        super().__init__(schedule, device, strides)
        self._known: dict[Any, Any] = {}  # kernels, chains and loops of steps
        self._maker = PartsMaker(self)
        self._runner: Callable[..., list[ValueRecord]] | None = None
        if not device.shares_buffers:
            self._runner = runner_of(schedule.program, plan_of, DIRECT)

    def _find_chains(self) -> dict[int, Chain | None]:
        """None at this level: they know nothing of the places that loops write."""
        return {} if self._device.shares_buffers else super()._find_chains()

    def kernel(self) -> ProgramKernel:
        """Refused: no single launch decides what runs next.

        Raises:
            UnsupportedError: always.
        """
        raise UnsupportedError(
            op="submission of loops and branches",
            backend=self.device_name,
            fix="call the compiled function instead of submitting its graph",
        )

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

        Cost: an allocation for each output that takes over no input and for each arena,
            whatever the number of steps; a launch for about `GATHERED` kernels and for
            each question. On devices whose kernels may not read and write one buffer:
            an allocation for each value, a launch for each equation.
        """
        if self._runner is not None:
            found = self._runner(state, recomputing(state), *inputs)
            if spent is not None:
                spent.extend(self.schedule.donated)
            return found
        records = [
            allocate(state if reason == state.reason else under(state, reason), aval, w)
            for reason, aval, w in self._memory
        ]
        gathering = _Gathering(self, state, inputs, records, spent)
        _Level(gathering, self.schedule, self._of_program).emit()
        gathering.launch()
        return [self._result(v, inputs, records) for v in self.schedule.program.outputs]

    def _of_program(self, root: Root) -> tuple[int, int, Strides]:
        strides = None
        if root.kind == "input":
            strides = self._strides.get(self.schedule.program.inputs[root.number])
        if root.kind == "arena" and not root.nbytes:  # it has no place
            return -1, 0, None
        return *self._maker.where(root), strides


@final
class _Gathering:
    """One run: its memory, and the kernels that were not launched yet."""

    def __init__(
        self,
        replay: StepReplay,
        state: State,
        inputs: list[ValueRecord],
        records: list[ValueRecord],
        spent: list[int] | None,
    ) -> None:
        self.replay, self.state = replay, state
        self.device = replay._device
        self.operation = "compiled function"
        given = sorted(replay.schedule.donated)
        self._given, self._spent = given, spent
        self._inputs = inputs
        self._written = [*records, *[inputs[k] for k in given]]
        self._ins = [
            np.zeros((), x.aval.dtype) if k in given else x.array
            for k, x in enumerate(inputs)
        ]
        self._parts: list[Part] = []

    def add(self, part: Part) -> None:
        self._parts.append(part)
        if len(self._parts) >= GATHERED:
            self.launch()

    def launch(self) -> None:
        """Enqueue what was gathered, after everything before it."""
        if not self._parts:
            return
        kernel = ProgramKernel("program", tuple(self._parts))
        self._parts = []
        outs = [r.array for r in self._written]
        self.device.executions.launch("compiled function", kernel, self._ins, outs)
        if self._spent is not None:
            self._spent.extend(self._given)
            self._spent = None

    def read(self, spot: Spot) -> Any:
        """The one element there; waits for it."""
        if spot.number is not None:
            return spot.number.item()
        self.launch()
        at = spot.at
        record = self._inputs[at] if at >= 0 else self._written[~at]
        array = record.array
        if type(array) is not np.ndarray:
            start = array.offset + spot.start
            aval = spot.aval
            steps = c_strides(aval.shape, aval.dtype.itemsize)
            found = DeviceArray(array.allocation, aval.shape, aval.dtype, start, steps)
            record = record.derive(found, aval)
        return host_elements(record, self.operation).item()


@final
class Spot:
    """A place as the statements of a loop see it: it has rows, and may be asked."""

    __slots__ = ("_gathering", "at", "aval", "number", "start", "strides")

    def __init__(
        self,
        gathering: _Gathering,
        at: int,
        start: int,
        aval: Aval,
        strides: Strides = None,
        number: Any = None,
    ) -> None:
        self._gathering = gathering
        self.at, self.start = at, start
        self.aval, self.strides = aval, strides
        self.number = number

    def __getitem__(self, key: Any) -> Spot:
        i = key[0] if type(key) is tuple else key
        if self.number is not None:
            return self
        aval = self.aval
        steps = self.strides or c_strides(aval.shape, aval.dtype.itemsize)
        row = aval_of(aval.shape[1:], aval.dtype, aval.device)
        start = self.start + i * steps[0]
        return Spot(self._gathering, self.at, start, row, steps[1:])

    def __bool__(self) -> bool:
        return bool(self._gathering.read(self))

    def __int__(self) -> int:
        return int(self._gathering.read(self))

    def place(self) -> Any:
        """As an operand of a kernel."""
        if self.number is not None:
            return self.number
        domain = self._gathering.device.name
        return place_at(self.at, self.start, self.aval, self.strides, domain)


@final
class _Level(PartsMaker):
    """One run of a program or a body: appends its kernels.

    `of_root` says where a root begins that belongs to the level around: the argument
    of the launch, the offset there, and the strides of an input.
    """

    def __init__(
        self,
        gathering: _Gathering,
        schedule: Schedule,
        of_root: Callable[[Root], tuple[int, int, Strides] | Spot],
    ) -> None:
        self._gathering, self._of = gathering, of_root
        super().__init__(gathering.replay)
        self.schedule = schedule

    def emit(self) -> None:
        replay, schedule = self._gathering.replay, self.schedule
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
                count_copy(self._gathering.state, aval, "compiled function")
            part = self._chained(chain) if chain is not None else self._part(step)
            if part is not None:
                self._add(part)
        for part in self._numbers():
            self._add(part)

    def _add(self, part: Part) -> None:
        if any(x.descriptor.layout.size for x in part.outs):
            self._gathering.add(part)

    def _find_chains(self) -> dict[int, Chain | None]:
        s = self.schedule
        if s is self._gathering.replay.schedule or has_host_control(s.program):
            return {}
        strided = [v for v in s.program.inputs if self._spot(v).strides is not None]
        return chains_of(s, self._device.prints, strided, shares_buffers=True)

    def _prepared(self, key: Any, make: Callable[[], Any]) -> Any:
        return self._gathering.replay.known((id(self.schedule), key), make)

    # -- places ------------------------------------------------------------------------

    def _spot(self, v: int) -> Spot:
        s, gathering = self.schedule, self._gathering
        root, aval = s.roots[v], s.avals[v]
        if root.kind == "constant":
            number = s.program.literals[v].array
            return Spot(gathering, 0, 0, aval, number=number)
        found = self._of(root)
        if type(found) is Spot:
            if found.number is not None:
                return found
            at, start, strides = found.at, found.start, found.strides
        else:
            at, start, strides = found
        layout = s.layouts.get(v)
        if layout is not None:
            start, strides = start + s.offsets.get(v, 0), layout.strides
        return Spot(gathering, at, start, aval, strides)

    def _place(self, v: int) -> Any:
        return self._spot(v).place()

    def where(self, root: Root) -> tuple[int, int]:
        found = self._of(root)
        if type(found) is Spot:
            return found.at, found.start
        return found[0], found[1]

    # -- loops and branches ------------------------------------------------------------

    def _loop(self, step: Step) -> None:
        gathering, eq = self._gathering, step.equation
        run = gathering.replay.known(
            (id(self.schedule), step.number, "loop"), partial(_statements, step)
        )
        before, gathering.operation = gathering.operation, eq.call.op.name
        run(
            None,
            self._copy,
            [partial(self._body, nested) for nested in step.bodies],
            [self._spot(v) for v in eq.operands],
            [self._spot(v) for v in eq.outs],
            [self._spot(v) for v in step.registers],
        )
        gathering.operation = before

    def _copy(self, target: Spot, source: Spot) -> None:
        aval = target.aval

        def make() -> Any:
            same = infer_call(OPS["accumulate"], (aval,), (), self._device)
            return self._device.prepare(same)

        kernel = self._gathering.replay.known((aval, "copy"), make)
        self._add(Part(kernel, (source.place(),), (target.place(),)))

    def _body(self, nested: Nested, state: None, *given: Spot) -> None:
        """One run of a body: the spots of its inputs, then of its outputs."""
        s = nested.schedule
        count = len(s.program.inputs)
        outs = dict(
            zip([id(s.roots[v]) for v in s.program.outputs], given[count:], strict=True)
        )
        arenas = {why: self._spot(v) for why, v in nested.arenas.items()}

        def of_root(root: Root) -> tuple[int, int, Strides] | Spot:
            if root.kind == "input":
                return given[root.number]
            if root.kind == "output":
                return outs[id(root)]
            if not root.nbytes:
                return -1, 0, None
            arena = arenas[root.reason]
            return arena.at, arena.start + root.offset, None

        _Level(self._gathering, s, of_root).emit()


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


__all__ = ["StepReplay", "has_host_control"]
