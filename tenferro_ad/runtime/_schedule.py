"""Schedules: where every value of a program lives while it runs.

Computed from shapes alone. Each variable belongs to a *root*: memory of an input, of a
constant, of an output (allocated when it is first written, moved out at the end), or a
place in an arena. There is one arena for each allocation reason; places of values that
are alive at the same time are disjoint, which the central proof confirms for every
equation. Values whose last reader is the equation that makes the next one give their
place to it where the kernel allows that.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .._aval import Aval
from .._ledger import (
    ALLOCATION_REASONS,
    DUPLICATE_DESTINATION,
    OPERATION_OUTPUT,
    RECOMPUTE_OUTPUT,
    AllocationReason,
)
from ..errors import InvalidArgumentError
from ..ops import Equation, Program, Region, View, last_uses
from ..storage import POOLED_FROM, prove_places
from ._direct import plan_of
from ._placing import placed
from ._region_steps import RegionStep
from ._trace import layout_of

Array = np.ndarray[Any, Any]
Kind = Literal["input", "constant", "output", "arena"]


@dataclass(slots=True, eq=False)
class Root:
    """Memory of one or more variables.

    Attributes:
        kind: whose memory it is; `number` counts inputs and outputs.
        reason: under which it is allocated (arena and output).
        nbytes, start, stop: its size, its first definition and its last use.
        offset: its place in the arena of its reason.
        taken: the input whose memory it takes over, or None.
        variables: over it, in order of definition.
    """

    kind: Kind
    reason: int
    nbytes: int
    start: int
    stop: int = -1
    number: int = -1
    offset: int = -1
    taken: int | None = None
    variables: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Step:
    """One equation with its plan, and the registers that its kernel writes.

    Attributes:
        equation: number and equation.
        plan: of the application.
        registers: variables (beyond the program's) of the kernel's scratch.
        region: how bodies run, if the kernel is made of them.
        copies: a view that strides cannot express: an explicit duplicate.
    """

    number: int
    equation: Equation
    plan: Any
    registers: tuple[int, ...] = ()
    copies: bool = False
    region: RegionStep | None = None


@dataclass(slots=True)
class Schedule:
    """See the module text.

    Attributes:
        avals: of the program's variables, then of registers.
        roots: the root of each variable.
        layouts: for views, an array that must not be read, with the strides.
        offsets: for views, bytes from the beginning of their root.
        numbers: outputs that are numbers of the program's text, with their roots.
        arenas: bytes of the arena of each reason that has one.
        outputs: roots that leave, in the order they are first written.
        peak: most bytes of arenas and outputs together.
    """

    program: Program
    avals: list[Aval]
    roots: dict[int, Root]
    layouts: dict[int, Array]
    offsets: dict[int, int]
    numbers: dict[int, Root]
    steps: list[Step]
    arenas: dict[int, int]
    outputs: list[Root]
    donated: tuple[int, ...]

    @property
    def peak(self) -> int:
        return sum(self.arenas.values()) + sum(
            r.nbytes for r in self.outputs if r.taken is None
        )

    @property
    def allocations(self) -> dict[AllocationReason, int]:
        """What one run allocates, by reason."""
        found: dict[int, int] = dict.fromkeys(self.arenas, 1)
        for root in self.outputs:
            if root.taken is None:
                found[root.reason] = found.get(root.reason, 0) + 1
        return {ALLOCATION_REASONS[r]: n for r, n in sorted(found.items())}

    def __str__(self) -> str:
        lines = [f"schedule of {len(self.steps)} equations"]
        for reason, nbytes in self.arenas.items():
            lines.append(f"  arena {ALLOCATION_REASONS[reason].value}: {nbytes} bytes")
        for root in self.outputs:
            where = "fresh" if root.taken is None else f"in input {root.taken}"
            lines.append(f"  output v{root.variables[0]}: {root.nbytes} bytes, {where}")
        for root in _distinct(self.roots):
            if root.kind == "arena":
                names = ", ".join(f"v{v}" for v in root.variables)
                lines.append(
                    f"  {root.offset:>10} +{root.nbytes:<10} equations "
                    f"{root.start}-{root.stop}: {names}"
                )
        return "\n".join(lines)


def _distinct(roots: dict[int, Root]) -> list[Root]:
    return list({id(r): r for r in roots.values()}.values())


Strides = tuple[int, ...] | None


def schedule(
    program: Program,
    donated: Sequence[int] = (),
    strides: Sequence[Strides] = (),
    smallest: int = POOLED_FROM,
) -> Schedule:
    """Place every value of `program`, whose regions were inlined.

    Args:
        strides: of the inputs, None for row-major ones; empty if all are.
        donated: positions of inputs whose memory outputs may take over.
        smallest: arenas have at least so many bytes, so that they come from the pool
            and the next run finds the same memory again.

    Raises:
        InvalidArgumentError: no output can use a donated input.

    Cost: time linear in the program and quadratic in the values alive at once;
        nothing is computed or allocated.
    """
    work = _Work(program, donated)
    work.smallest = smallest
    for v, steps in zip(program.inputs, strides, strict=False):
        if steps is not None:
            work.given[v] = layout_of(program.avals[v], steps)
    work.walk()
    work.give_outputs_their_roots()
    work.use_donations()
    work.place()
    return work.result()


class _Work:
    def __init__(self, program: Program, donated: Sequence[int]) -> None:
        self.program = program
        self.donated = tuple(donated)
        self.avals = list(program.avals)
        self.roots: dict[int, Root] = {}
        self.layouts: dict[int, Array] = {}
        self.offsets: dict[int, int] = {}
        self.numbers: dict[int, Root] = {}
        self.given: dict[int, Array] = {}  # of inputs that are not row-major
        self.steps: list[Step] = []
        self.inputs: list[Root] = []
        self.outputs: list[Root] = []
        self.arenas: dict[int, int] = {}
        self.smallest = POOLED_FROM

    # -- roots -------------------------------------------------------------------------

    def walk(self) -> None:
        program = self.program
        for number, v in enumerate(program.inputs):
            root = Root("input", OPERATION_OUTPUT, program.avals[v].nbytes, -1)
            root.number = number
            self.inputs.append(root)
            self._put(v, root)
        for v in program.literals:
            self._put(v, Root("constant", OPERATION_OUTPUT, 0, -1))
        for number, eq in enumerate(program.equations):
            self.steps.append(self._step(number, eq))
            for v in eq.ins:
                self.roots[v].stop = number
            for v in eq.outs:
                self.roots[v].stop = max(self.roots[v].stop, number)
        end = len(program.equations)
        for v in program.outputs:
            self.roots[v].stop = end

    def _put(self, v: int, root: Root) -> None:
        self.roots[v] = root
        root.variables.append(v)

    def _step(self, number: int, eq: Equation) -> Step:
        call = eq.call
        plan = plan_of(call.op, call.ins, call.params)
        reason = RECOMPUTE_OUTPUT if eq.recompute else OPERATION_OUTPUT
        kernel = call.op.kernel
        step = Step(number, eq, plan)
        if eq.mode != "fresh":
            first, out = eq.ins[0], eq.outs[0]
            self._put(out, self.roots[first])
            if first in self.layouts:  # written over a view
                self.layouts[out] = self.layouts[first]
                self.offsets[out] = self.offsets[first]
        elif isinstance(kernel, View) and self._views(eq, kernel):
            return step
        else:
            if isinstance(kernel, View) and kernel.otherwise == "duplicate":
                step.copies, reason = True, DUPLICATE_DESTINATION
            over = self._overwritten(number, eq, plan)
            for v in eq.outs:
                if over is not None:
                    self._put(v, over)
                else:
                    self._put(v, Root("arena", reason, self.avals[v].nbytes, number))
        if isinstance(kernel, Region):
            layouts = [self._layout(v) for v in eq.ins]
            step.region = RegionStep(eq.call, layouts, schedule)
            step.registers = self._region_registers(number, step.region, reason)
        else:
            step.registers = self._registers(number, eq, plan)
        return step

    def _region_registers(
        self, number: int, region: RegionStep, reason: int
    ) -> tuple[int, ...]:
        """Memory of the bodies: their arenas, and what goes round a loop."""
        made = []
        for aval, own in region.memory:
            own = reason if reason == RECOMPUTE_OUTPUT else own
            root = Root("arena", own, aval.nbytes, number, number)
            self.avals.append(aval)
            made.append(len(self.avals) - 1)
            self._put(made[-1], root)
        return tuple(made)

    def _views(self, eq: Equation, kernel: View) -> bool:
        """Join the outputs of a view to their operand; False if it must be laid out."""
        source = eq.ins[0]
        base = self._layout(source)
        layouts = kernel.fn(base, eq.call)
        if layouts is None:
            return False
        if len(eq.outs) == 1:
            layouts = (layouts,)
        for v, layout in zip(eq.outs, layouts, strict=True):
            self.layouts[v] = layout
            moved = layout.ctypes.data - base.ctypes.data if layout.size else 0
            self.offsets[v] = self.offsets.get(source, 0) + moved
            self._put(v, self.roots[source])
        return True

    def _layout(self, v: int) -> Array:
        found = self.layouts.get(v, self.given.get(v))
        return layout_of(self.avals[v]) if found is None else found

    def _overwritten(self, number: int, eq: Equation, plan: Any) -> Root | None:
        """The first operand's root, if the output may be written over it."""
        if plan.overwrite is None or not eq.ins:
            return None
        first = eq.ins[0]
        root = self.roots[first]
        reason = RECOMPUTE_OUTPUT if eq.recompute else OPERATION_OUTPUT
        if (
            root.kind != "arena"
            or root.reason != reason
            or first in self.layouts
            or not self.avals[first].same(self.avals[eq.outs[0]])
            or any(self.roots[v] is root for v in eq.ins[1:])
            or self._is_read_after(root, number)
        ):
            return None
        return root

    def _is_read_after(self, root: Root, number: int) -> bool:
        last = self._last()
        return any(last.get(v, -1) > number for v in root.variables)

    def _last(self) -> dict[int, int]:
        found: dict[int, int] | None = getattr(self, "_last_uses", None)
        if found is None:
            found = self._last_uses = last_uses(self.program)
        return found

    def _registers(self, number: int, eq: Equation, plan: Any) -> tuple[int, ...]:
        """Scratch of small kernels as places of the arena; the result of a sum into
        memory is one, too."""
        reason = RECOMPUTE_OUTPUT if eq.recompute else OPERATION_OUTPUT
        aval = eq.call.out if eq.call.outs else None
        if aval is None or aval.nbytes >= POOLED_FROM:
            return ()
        dtypes = []
        if eq.mode == "into":
            dtypes.append(aval.dtype)
        dtypes += plan.registers(aliased=self._is_over(eq))
        made = []
        for dtype in dtypes:
            self.avals.append(Aval(aval.shape, dtype, aval.device))
            v = len(self.avals) - 1
            root = Root("arena", reason, self.avals[v].nbytes, number, number)
            self._put(v, root)
            made.append(v)
        return tuple(made)

    def _is_over(self, eq: Equation) -> bool:
        """The kernel writes over its first operand."""
        return eq.mode == "over" or (
            eq.mode == "fresh"
            and len(eq.outs) == 1
            and bool(eq.ins)
            and self.roots[eq.outs[0]] is self.roots[eq.ins[0]]
            and eq.outs[0] not in self.layouts
        )

    # -- outputs -----------------------------------------------------------------------

    def give_outputs_their_roots(self) -> None:
        """Memory that an output needs leaves with it: a root of its own."""
        for v in self.program.outputs:
            root = self.roots[v]
            if root.kind == "arena":
                root.kind = "output"
                self.outputs.append(root)
            elif root.kind == "constant" and v not in self.numbers:
                end = len(self.program.equations)
                made = Root("output", OPERATION_OUTPUT, self.avals[v].nbytes, end, end)
                made.variables.append(v)
                self.numbers[v] = made
                self.outputs.append(made)
        self.outputs.sort(key=lambda r: r.start)
        for number, root in enumerate(self.outputs):
            root.number = number

    def use_donations(self) -> None:
        """Let each donated input's memory become an output's."""
        for number in self.donated:
            given = self.inputs[number]
            if given.stop == len(self.program.equations):
                self._refuse(number, "is an output itself, or a view of it is")
            for root in self.outputs:
                if root.taken is None and self._fits(given, root):
                    root.taken = number
                    break
            else:
                self._refuse(number, "has no output of its shape and dtype after it")

    def _refuse(self, number: int, why: str) -> None:
        aval = self.program.avals[self.program.inputs[number]]
        raise InvalidArgumentError(
            operation="compile",
            argument="donate",
            found=f"input {number} ({aval!r}), which {why}",
            fix="donate only inputs whose memory an output can take over",
        )

    def _fits(self, given: Root, root: Root) -> bool:
        first = self.avals[root.variables[0]]
        mine = self.avals[given.variables[0]]
        if not first.same(mine) or given.stop > root.start:
            return False
        if root.start == len(self.steps):  # a number
            return True
        if given.stop < root.start:
            return True
        # Read by the equation that writes the output: as its first operand only.
        step = self.steps[root.start]
        eq = step.equation
        return (
            step.plan.overwrite is not None
            and eq.mode == "fresh"
            and bool(eq.ins)
            and eq.ins[0] == given.variables[0]
            and eq.ins[0] not in self.given
            and not any(self.roots[v] is given for v in eq.ins[1:])
        )

    # -- places ------------------------------------------------------------------------

    def place(self) -> None:
        """Lowest free place for each value, in order of definition."""
        mine = [r for r in _distinct(self.roots) if r.kind == "arena" and r.nbytes]
        for reason in sorted({r.reason for r in mine}):
            here = sorted(
                (r for r in mine if r.reason == reason),
                key=lambda r: (r.start, -r.nbytes),
            )
            self.arenas[reason] = max(placed(here), self.smallest)
            prove_places([(r.start, r.stop, r.offset, r.nbytes) for r in here])

    def result(self) -> Schedule:
        return Schedule(
            self.program,
            self.avals,
            self.roots,
            self.layouts,
            self.offsets,
            self.numbers,
            self.steps,
            self.arenas,
            self.outputs,
            self.donated,
        )


__all__ = ["Root", "Schedule", "Step", "schedule"]
