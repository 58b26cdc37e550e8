"""How operations with bodies run on bare records: loops, branches, custom rules.

A body runs as a list of steps whose plans are found once, when it first runs; each
value is let go after its last use. The values of a body are ordinary outputs: one
allocation each, under the reason of the operation (or as recomputed, where the body
says so), and no copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from .._aval import Aval
from .._ledger import RECOMPUTE_OUTPUT, STATE, State
from ..backends import Plan
from ..ops import OPS, Body, Call, Equation, Evaluator, Op, Program, Region, last_uses
from ..storage import ValueRecord, allocate, host_elements

PlanOf = Callable[[Op, tuple[Aval, ...], tuple[Any, ...]], Plan]


def region_plan(call: Call, plan_of: PlanOf, direct: Evaluator) -> Plan:
    """The plan of a row whose kernel is made of operations.

    Args:
        plan_of: finds the plans of those operations.
        direct: computes the regions among them.

    """
    kernel = call.op.kernel
    assert isinstance(kernel, Region)
    single = len(call.outs) == 1

    def execute(state: State, *xs: ValueRecord) -> Any:
        outs = kernel.fn(Host(state, call, plan_of, direct), call, xs)
        return outs[0] if single else tuple(outs)

    return Plan(call, execute)


@final
class Host:
    """What the kernel of one application may ask for (see `ops.RegionHost`)."""

    __slots__ = ("_call", "_direct", "_plan_of", "_state")

    def __init__(
        self, state: State, call: Call, plan_of: PlanOf, direct: Evaluator
    ) -> None:
        self._state, self._call = state, call
        self._plan_of, self._direct = plan_of, direct

    def run(self, body: Body, inputs: Sequence[Any]) -> list[Any]:
        runner = body.derived(
            "runner", lambda: Runner(body.program, self._plan_of, self._direct)
        )
        return runner(self._state, inputs)

    def output(self, j: int) -> ValueRecord:
        call = self._call
        return allocate(self._state, call.outs[j], call.op.name)

    def put(self, target: ValueRecord, i: int, value: ValueRecord) -> None:
        array = target.array
        if type(array) is np.ndarray:
            array[i] = value.array
        else:
            part = target.derive(array.row(i), value.aval)
            value.aval.device.write(part.array, value.array)

    def at(self, x: ValueRecord, i: int, aval: Aval) -> ValueRecord:
        array = x.array
        if type(array) is np.ndarray:
            # Lent for one step: the loop holds `x`, and `owned` lets no view escape.
            return ValueRecord(array[i, ...], aval, None)
        return x.derive(array.row(i), aval)

    def number(self, x: ValueRecord) -> Any:
        return host_elements(x, self._call.op.name).item()

    def owned(self, outs: Sequence[Any], lent: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        for y in outs:
            # All of a root, row-major, that nobody else has: it may leave as it is.
            shared = any(y is x for x in lent) or any(y is z for z in made)
            if shared or y.is_rootless or not y.is_whole:
                plan = self._plan_of(OPS["accumulate"], (y.aval,), ())
                y = plan.execute(self._state, y)
            made.append(y)
        return made


# One equation: `run(state, *operands)`, where its operands and outputs stand, whether
# it gives one record, whether it recomputes, and which values end with it.
_Step = tuple[
    Callable[..., Any], tuple[int, ...], tuple[int, ...], bool, bool, tuple[int, ...]
]


@final
class Runner:
    """A program on records: `runner(state, inputs)` gives its outputs.

    Cost: for each equation its plan, and one pass over its operands.
    """

    __slots__ = ("_inputs", "_outputs", "_start", "_steps")

    def __init__(self, program: Program, plan_of: PlanOf, direct: Evaluator) -> None:
        self._inputs, self._outputs = program.inputs, program.outputs
        self._start: list[Any] = [None] * len(program.avals)
        for v, record in program.literals.items():
            self._start[v] = record
        last = last_uses(program)
        self._steps: list[_Step] = []
        for number, eq in enumerate(program.equations):
            ends = tuple(
                {v for v in (*eq.ins, *eq.outs) if last.get(v, -1) <= number}
                - program.literals.keys()
            )
            run, single = _executed(eq, plan_of, direct)
            self._steps.append((run, eq.ins, eq.outs, single, eq.recompute, ends))

    def __call__(self, state: State, inputs: Sequence[Any]) -> list[Any]:
        values = self._start.copy()
        for v, x in zip(self._inputs, inputs, strict=True):
            values[v] = x
        again = State(state.account, RECOMPUTE_OUTPUT, state.level, state.trace)
        for run, ins, outs, single, recompute, ends in self._steps:
            found = run(again if recompute else state, *[values[v] for v in ins])
            if single:
                values[outs[0]] = found
            else:
                for v, y in zip(outs, found, strict=True):
                    values[v] = y
            found = y = None
            for v in ends:
                values[v] = None
        return [values[v] for v in self._outputs]


def _executed(
    eq: Equation, plan_of: PlanOf, direct: Evaluator
) -> tuple[Callable[..., Any], bool]:
    """How an equation runs, and whether that gives a single record."""
    call = eq.call
    if hasattr(call, "run"):

        def region(state: State, *xs: ValueRecord) -> Any:
            token = STATE.set(state)
            try:
                return call.run(direct, xs)
            finally:
                STATE.reset(token)

        return region, False
    plan = plan_of(call.op, call.ins, call.params)
    if eq.mode == "fresh":
        return plan.execute, len(call.outs) == 1
    if eq.mode == "over":
        write = plan.overwrite
        assert write is not None

        def over(state: State, *xs: ValueRecord) -> ValueRecord:
            write(*[x.array for x in xs], xs[0].array)
            return xs[0]

        return over, True
    add = plan.into
    assert add is not None

    def into(state: State, target: ValueRecord, *xs: ValueRecord) -> ValueRecord:
        add(state, *[x.array for x in xs], target.array)
        return target

    return into, True
