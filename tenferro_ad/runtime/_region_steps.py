"""How operations with bodies run in compiled programs: over memory that is planned.

Each body has a schedule of its own. Its arenas, and two sets of memory for what it
gives (a loop reads one while it writes the other), are places in the arenas of the
program that the operation stands in. So a compiled loop allocates nothing, whatever its
number of steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import State
from ..ops import OPS, Body, Call, Equation, Program, Region, inlined
from ._direct import plan_of
from ._writer import ArrayWriter, arrays_of

if TYPE_CHECKING:
    from ._schedule import Schedule

Array = np.ndarray[Any, Any]
Strides = tuple[int, ...] | None
Scheduler = Callable[..., "Schedule"]


@final
class RegionStep:
    """One application of such an operation: `step(state, operands, outs, memory)`.

    Attributes:
        memory: form and reason of the memory that it needs besides.
    """

    __slots__ = ("_call", "_kernel", "_plans", "memory")

    def __init__(
        self, call: Call, layouts: Sequence[Array], schedule: Scheduler
    ) -> None:
        kernel = call.op.kernel
        assert isinstance(kernel, Region)
        self._call, self._kernel = call, kernel
        self._plans: dict[Body, BodyPlan] = {}
        self.memory: list[tuple[Aval, int]] = []
        for body, sources in kernel.sources(call):
            strides = tuple(_strides_of(layouts, at) for at in sources)
            carry = sources.count(None)
            plan = body.derived(
                ("compiled", strides, carry),
                lambda: BodyPlan(body, strides, carry, schedule),  # noqa: B023
            )
            self._plans[body] = plan
            self.memory += plan.memory

    def __call__(
        self,
        state: State,
        operands: Sequence[Array],
        outs: Sequence[Array],
        memory: Sequence[Array],
    ) -> None:
        rest = iter(memory)
        bodies = {body: plan.over(rest) for body, plan in self._plans.items()}
        self._kernel.fn(_ArrayHost(state, outs, bodies), self._call, operands)


def _strides_of(layouts: Sequence[Array], at: int | None) -> Strides:
    """Strides of an input of a body; None if it is row-major."""
    if at is None:
        return None
    if at >= 0:
        array = layouts[at]
        return None if array.flags.c_contiguous else array.strides
    whole = layouts[~at]
    entry = np.lib.stride_tricks.as_strided(
        whole, whole.shape[1:], whole.strides[1:], writeable=False
    )
    return None if entry.flags.c_contiguous else entry.strides


@final
class BodyPlan:
    """A body as a function over arrays.

    Attributes:
        memory: its arenas, then two sets of what it writes.
    """

    __slots__ = (
        "_carried",
        "_make",
        "_outs",
        "_static",
        "_transposed",
        "memory",
        "schedule",
    )

    def __init__(
        self,
        body: Body,
        strides: Sequence[Strides],
        carry: int,
        schedule: Scheduler,
    ) -> None:
        program = inlined(body.program)
        made = schedule(program, (), strides, 0)
        if carry:
            program = _apart(program, made, carry)
            made = schedule(program, (), strides, 0)
        self.schedule = made
        roots = [made.numbers.get(v, made.roots[v]) for v in program.outputs[:carry]]
        self._carried = [r.number for r in roots]
        writer = ArrayWriter(made)
        self._make = writer.written()
        self._static, self._transposed = writer.static, writer.transposed
        device = body.program.avals[0].device if body.program.avals else None
        written = [(made.avals[r.variables[0]], r.reason) for r in made.outputs]
        self._outs = len(written)
        self.memory = [
            *[
                (aval_of((nbytes,), np.dtype(np.uint8), device), reason)
                for reason, nbytes in made.arenas.items()
            ],
            *written,
            *written,
        ]

    def over(self, memory: Iterator[Array]) -> _Bound:
        """The function over this memory, of which it takes its part."""
        arenas = {reason: next(memory) for reason in self.schedule.arenas}
        sets = [[next(memory) for _ in range(self._outs)] for _ in range(2)]
        arrays = arrays_of(self.schedule, arenas)
        run = self._make(
            *[arrays[v] for v in self._static],
            *[arrays[v].T for v in self._transposed],
        )
        return _Bound(run, sets, self._carried)


def _apart(program: Program, made: Schedule, carry: int) -> Program:
    """The program whose first outputs are row-major, each in memory of its own."""
    avals, equations = list(program.avals), list(program.equations)
    outputs = list(program.outputs)
    for j, v in enumerate(outputs[:carry]):
        lent = made.roots[v].kind == "input" or v in made.layouts
        if lent or v in outputs[:j]:
            call = plan_of(OPS["accumulate"], (avals[v],), ()).call
            avals.append(avals[v])
            outputs[j] = len(avals) - 1
            equations.append(Equation(call, (v,), (outputs[j],)))
    return replace(program, equations=equations, outputs=tuple(outputs), avals=avals)


@final
class _Bound:
    """A body over memory of its own, in two sets that take turns."""

    __slots__ = ("_carried", "_run", "_sets", "_turn")

    def __init__(
        self, run: Callable[..., Any], sets: list[list[Array]], carried: list[int]
    ) -> None:
        self._run, self._sets, self._carried, self._turn = run, sets, carried, 0

    def run(self, state: State, inputs: Sequence[Array]) -> list[Array]:
        outs = self._sets[self._turn]
        self._turn ^= 1
        return self._run(state, *inputs, *outs)  # type: ignore[no-any-return]

    def carried(self, values: Sequence[Array]) -> list[Array]:
        """Row-major values; others go to the memory that the next run leaves alone."""
        spare = self._sets[1 - self._turn]
        found = []
        for x, at in zip(values, self._carried, strict=True):
            if not x.flags.c_contiguous:
                np.copyto(spare[at], x)
                x = spare[at]
            found.append(x)
        return found


@final
class _ArrayHost:
    """What the kernel may ask for (see `ops.RegionHost`), over arrays."""

    __slots__ = ("_bodies", "_outs", "_state")

    def __init__(
        self, state: State, outs: Sequence[Array], bodies: dict[Body, _Bound]
    ) -> None:
        self._state, self._outs, self._bodies = state, outs, bodies

    def run(self, body: Body, inputs: Sequence[Any]) -> list[Any]:
        return self._bodies[body].run(self._state, inputs)

    def output(self, j: int) -> Array:
        return self._outs[j]

    def carried(self, body: Body, values: Sequence[Any]) -> list[Any]:
        return self._bodies[body].carried(values)

    def put(self, target: Any, i: int, value: Any) -> None:
        target[i] = value

    def at(self, x: Any, i: int, aval: Aval) -> Any:
        return x[i, ...]

    def number(self, x: Any) -> Any:
        return x.item()

    def owned(self, outs: Sequence[Any], lent: Sequence[Any]) -> list[Any]:
        for target, value in zip(self._outs, outs, strict=False):
            np.copyto(target, value)
        return list(self._outs[: len(outs)])
