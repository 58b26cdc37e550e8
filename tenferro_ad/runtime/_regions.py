"""How operations with bodies run on bare records: loops, branches, custom rules.

A body runs as one function, written when it first runs from the plans of its equations;
each value is let go after its last use. The values of a body are ordinary outputs: one
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
Runner = Callable[..., list[ValueRecord]]


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

    __slots__ = ("_again", "_call", "_direct", "_plan_of", "_state")

    def __init__(
        self, state: State, call: Call, plan_of: PlanOf, direct: Evaluator
    ) -> None:
        self._state, self._call = state, call
        self._again = state.under(RECOMPUTE_OUTPUT)
        self._plan_of, self._direct = plan_of, direct

    def run(self, body: Body, inputs: Sequence[Any]) -> list[Any]:
        runner: Runner = body.derived(
            "runner", lambda: runner_of(body.program, self._plan_of, self._direct)
        )
        return runner(self._state, self._again, *inputs)

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


def runner_of(program: Program, plan_of: PlanOf, direct: Evaluator) -> Runner:
    """A program on records, `runner(state, again, *inputs)`, as one function: a call of
    its plan for each equation. `again` is the state of what runs again.

    Cost: a run is the plans'; to write the function, time for each equation.
    """
    last = last_uses(program)
    space: dict[str, Any] = {}
    lines = []
    for number, eq in enumerate(program.equations):
        run, single = _executed(eq, plan_of, direct)
        space[f"run{number}"] = run
        state = "again" if eq.recompute else "state"
        operands = "".join([f", v{v}" for v in eq.ins])
        targets = ", ".join([f"v{v}" for v in eq.outs])
        comma = "" if single or len(eq.outs) > 1 else ","
        lines.append(f"    {targets}{comma} = run{number}({state}{operands})")
        ends = {v for v in (*eq.ins, *eq.outs) if last.get(v, -1) <= number}
        lines += [f"    v{v} = None" for v in sorted(ends - program.literals.keys())]
    literals = {f"v{v}": record for v, record in program.literals.items()}
    inputs = "".join([f", v{v}" for v in program.inputs])
    outputs = ", ".join([f"v{v}" for v in program.outputs])
    source = "\n".join(
        [
            f"def make({', '.join(literals)}):",
            f"  def runner(state, again{inputs}):",
            *(lines or ["    pass"]),
            f"    return [{outputs}]",
            "  return runner",
        ]
    )
    exec(compile(source, "<tenferro_ad>", "exec"), space)
    return space["make"](*literals.values())  # type: ignore[no-any-return]


def _executed(
    eq: Equation, plan_of: PlanOf, direct: Evaluator
) -> tuple[Callable[..., Any], bool]:
    """How an equation runs, and whether that gives a single record."""
    call = eq.call
    if hasattr(call, "run"):

        def region(state: State, *xs: ValueRecord) -> Any:
            before = STATE.get()
            try:
                STATE.set(state)
                return call.run(direct, xs)
            finally:
                STATE.set(before)

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
