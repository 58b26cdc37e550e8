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
from dataclasses import replace
from typing import Any

import numpy as np

from .._aval import Aval
from .._ledger import (
    DUPLICATE_DESTINATION,
    OPERATION_OUTPUT,
    RECOMPUTE_OUTPUT,
)
from ..errors import InvalidArgumentError
from ..ops import (
    OPS,
    Equation,
    Program,
    Region,
    View,
    Write,
    inlined,
    last_uses,
    may_alias,
    renumbered,
)
from ..storage import POOLED_FROM, prove_places
from ._direct import plan_of
from ._loops import FORMS, bodies_of
from ._places import Nested, Root, Schedule, Step, Strides, distinct
from ._placing import placed
from ._trace import layout_of

Array = np.ndarray[Any, Any]
_BYTE = np.dtype(np.uint8)


def schedule(
    program: Program,
    donated: Sequence[int] = (),
    strides: Sequence[Strides] = (),
) -> Schedule:
    """Place every value of `program`, whose regions were inlined.

    Arenas have a least size, so that they come from the pool and the next run finds the
    same memory again.

    Args:
        strides: of the inputs, None for row-major ones; empty if all are.
        donated: positions of inputs whose memory outputs may take over.

    Raises:
        InvalidArgumentError: no output can use a donated input.

    Cost: time linear in the program and quadratic in the values alive at once;
        nothing is computed or allocated.
    """
    work = _Work(program, donated, strides)
    work.use_donations()
    work.place()
    for reason, nbytes in work.arenas.items():
        work.arenas[reason] = max(nbytes, POOLED_FROM)
    return work.result()


def _body_schedule(
    program: Program, strides: Sequence[Strides], *, recompute: bool
) -> Schedule:
    """Places of a body, whose outputs stand anywhere outside."""
    work = _Work(_with_own_outputs(inlined(program), recompute=recompute), (), strides)
    work.place()
    return work.result()


def _with_own_outputs(program: Program, *, recompute: bool) -> Program:
    """The program with each output a row-major root of its own."""
    made = renumbered(program)
    own: set[int] = set()  # variables that are the whole of memory of their own
    for eq in made.equations:
        if eq.ins[0] in own if eq.mode != "fresh" else not may_alias(eq.call):
            own.update(eq.outs)
    outputs: list[int] = []
    for v in made.outputs:
        if v not in own or v in outputs:
            call = plan_of(OPS["accumulate"], (made.avals[v],), ()).call
            copied = made.variable(made.avals[v])
            made.equations.append(Equation(call, (v,), (copied,)))
            v = copied
        outputs.append(v)
    made.outputs = tuple(outputs)
    if recompute:
        made.equations = [replace(eq, recompute=True) for eq in made.equations]
    return made


class _Work:
    def __init__(
        self, program: Program, donated: Sequence[int], strides: Sequence[Strides]
    ) -> None:
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
        for v, steps in zip(program.inputs, strides, strict=False):
            if steps is not None:
                self.given[v] = layout_of(program.avals[v], steps)
        self.walk()
        self.give_outputs_their_roots()

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
            step.layouts = tuple([self._layout(v) for v in eq.ins])
            self._add_bodies(step)
        else:
            layouts = [self._layout(v) for v in eq.operands]
            if plan.layout is not None:
                step.layout_nbytes = plan.layout(*layouts)
            if eq.mode == "into" and isinstance(kernel, Write):
                target = self._layout(eq.ins[0])
                if all(x.flags.c_contiguous for x in (*layouts, target)):
                    step.added = kernel.added(call)
            if step.added is None:
                step.registers = self._registers(
                    number, eq, plan, over=self._is_over(eq)
                )
        return step

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

    def _registers(
        self, number: int, eq: Equation, plan: Any, *, over: bool
    ) -> tuple[int, ...]:
        """Scratch of small kernels as places of the arena; the result of a sum into
        memory is one, too. `over`: the kernel writes over its first operand."""
        reason = RECOMPUTE_OUTPUT if eq.recompute else OPERATION_OUTPUT
        aval = eq.call.out if eq.call.outs else None
        if aval is None or aval.nbytes >= POOLED_FROM:
            return ()
        dtypes = []
        if eq.mode == "into":
            dtypes.append(aval.dtype)
        dtypes += plan.registers(aliased=over)
        return tuple(
            self._register(number, reason, Aval(aval.shape, dtype, aval.device))
            for dtype in dtypes
        )

    def _register(self, number: int, reason: int, aval: Aval) -> int:
        """A place that one step uses."""
        self.avals.append(aval)
        v = len(self.avals) - 1
        self._put(v, Root("arena", reason, aval.nbytes, number, number))
        return v

    def _add_bodies(self, step: Step) -> None:
        """Places and bodies of a loop or a branch. Its bodies run one at a time, so
        they share their places."""
        number, eq, layouts = step.number, step.equation, step.layouts
        call, form = eq.call, FORMS[eq.call.op.name]
        reason = RECOMPUTE_OUTPUT if eq.recompute else OPERATION_OUTPUT
        step.registers = tuple(
            self._register(number, reason, aval) for aval in form.spares(call, layouts)
        )
        schedules = [
            _body_schedule(body.program, strides, recompute=eq.recompute)
            for body, strides in bodies_of(call, layouts)
        ]
        needed: dict[int, int] = {}
        for made in schedules:
            for why, nbytes in made.arenas.items():
                needed[why] = max(needed.get(why, 0), nbytes)
        device = call.out.device
        places = {
            why: self._register(number, why, Aval((nbytes,), _BYTE, device))
            for why, nbytes in needed.items()
        }
        step.bodies = tuple(Nested(made, places) for made in schedules)

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
            if not self._takes_over(number, set()):
                self._refuse(number, "has no output of its shape and dtype after it")
        for root in self.outputs:
            if root.taken is None or root.start == len(self.steps):
                continue
            step = self.steps[root.start]
            if self.inputs[root.taken].stop == root.start:  # written over
                for v in step.registers:
                    del self.roots[v]
                step.registers = self._registers(
                    step.number, step.equation, step.plan, over=True
                )

    def _takes_over(self, number: int, tried: set[int]) -> bool:
        """Give the memory of a donated input to an output; others move if that helps
        (augmenting paths)."""
        fitting = [r for r in self.outputs if self._fits(self.inputs[number], r)]
        for root in fitting:
            if root.taken is None:
                root.taken = number
                return True
        for root in fitting:
            if root.number not in tried:
                tried.add(root.number)
                other = root.taken
                assert other is not None
                if self._takes_over(other, tried):
                    root.taken = number
                    return True
        return False

    def _refuse(self, number: int, why: str) -> None:
        aval = self.program.avals[self.program.inputs[number]]
        raise InvalidArgumentError(
            operation="compile",
            argument="donate_argnums",
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
        mine = [r for r in distinct(self.roots) if r.kind == "arena" and r.nbytes]
        for reason in sorted({r.reason for r in mine}):
            here = sorted(
                (r for r in mine if r.reason == reason),
                key=lambda r: (r.start, -r.nbytes),
            )
            self.arenas[reason] = placed(here)
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


__all__ = ["schedule"]
