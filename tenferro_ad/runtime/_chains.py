"""Chains: elementwise equations of a program that a device runs as one kernel.

A chain ends in one equation, whose output is stored. The values before it are computed
for one element at a time; those that somebody reads after the chain are stored as well,
the others never reach memory. Which values a schedule has places for, and so what a run
allocates, does not change.

An equation joins the chain of its reader if nobody else reads its output before the
chain runs, if it has the shape of the chain (nothing is computed twice), and if memory
allows it: what it reads is still there, unchanged, when the chain runs, though places
may have been given to values in between; and what the chain stores lies apart from what
it reads, or element on element. A kernel reads everything before it stores anything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, Final, final

from ..ops import OPS, Call, Elementwise, Equation, View
from ._direct import plan_of
from ._places import Root, Schedule, Step

MOST_BUFFERS: Final = 7
"""Buffers that a chain reads and writes: with its parameters, every adapter of WebGPU
can bind them."""
MOST_EQUATIONS: Final = 64
MOST_BETWEEN: Final = 256
"""Equations between a part of a chain and its end; looking at more would take long."""


@final
@dataclass(frozen=True, slots=True)
class Chain:
    """Equations in order; the last one's output is stored, and what is read later.

    Attributes:
        equations: over their operands alone, whatever memory the schedule gave them; a
            sum into memory is an addition.
        inputs: variables that the chain reads from memory, and numbers.
        outputs: variables whose places are written, in order of definition.
    """

    equations: tuple[Equation, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def inside(self) -> tuple[int, ...]:
        """Values that never reach memory."""
        made = (eq.outs[0] for eq in self.equations)
        return tuple(v for v in made if v not in self.outputs)


def chains_of(
    schedule: Schedule,
    prints: Callable[[Call], bool],
    strided: Collection[int] = (),
    *,
    shares_buffers: bool,
) -> dict[int, Chain | None]:
    """The chains of two equations or more, by the number of their last one; None for
    equations that are inside one.

    Args:
        prints: whether the device has a printed kernel of an application.
        strided: inputs that are not row-major.
        shares_buffers: values of an arena share one buffer.

    Cost: time linear in the program, at most `MOST_BETWEEN` looks for each operand.
    """
    work = _Finding(schedule, prints, strided, shares_buffers)
    for step in reversed(schedule.steps):
        if step.number not in work.found and work.is_chained(step):
            work.grow(step)
    return work.found


class _Finding:
    def __init__(
        self,
        schedule: Schedule,
        prints: Callable[[Call], bool],
        strided: Collection[int],
        shares: bool,
    ) -> None:
        self.schedule, self.prints, self.shares = schedule, prints, shares
        self.displaced = {*schedule.layouts, *strided}  # not where their root begins
        self.found: dict[int, Chain | None] = {}
        self.readers: dict[int, set[int]] = {}
        self.makers: dict[int, Step] = {}
        self.parts: dict[int, tuple[Equation, ...]] = {}
        end = len(schedule.steps)
        for step in schedule.steps:
            for v in step.equation.ins:
                self.readers.setdefault(v, set()).add(step.number)
            self.makers.update(dict.fromkeys(step.equation.outs, step))
        for v in schedule.program.outputs:
            self.readers.setdefault(v, set()).add(end)

    def is_chained(self, step: Step) -> bool:
        """Whether an equation can be a part of a chain."""
        op = step.equation.call.op
        if not isinstance(op.kernel, Elementwise) and op.name != "astype":
            return False
        return all(self.prints(part.call) for part in self._parts(step))

    def _parts(self, step: Step) -> tuple[Equation, ...]:
        """The equation over its operands; a sum into memory is one more."""
        found = self.parts.get(step.number)
        if found is None:
            eq = step.equation
            found = (replace(eq, ins=eq.operands, mode="fresh"),)
            if eq.mode == "into":
                out, held = eq.call.out, -1 - step.number  # no variable of the program
                add = plan_of(OPS["add"], (out, out), ()).call
                found = (
                    replace(found[0], outs=(held,)),
                    Equation(add, (eq.ins[0], held), eq.outs),
                )
            self.parts[step.number] = found
        return found

    def grow(self, last: Step) -> None:
        """Take in equations before `last`, the nearest first, while any fits."""
        members = {last.number: last}
        waiting = self._makers(last.equation)
        while waiting and len(members) < MOST_EQUATIONS:
            number = max(waiting)
            step = waiting.pop(number)
            if number not in members and self._fits(step, last, members):
                members[number] = step
                waiting |= self._makers(step.equation)
        if len(members) == 1:
            return
        self.found |= dict.fromkeys(members)
        self.found[last.number] = self._chain(last, members)

    def _makers(self, eq: Equation) -> dict[int, Step]:
        steps = (self.makers.get(v) for v in eq.ins)
        return {step.number: step for step in steps if step is not None}

    def _fits(self, step: Step, last: Step, members: dict[int, Step]) -> bool:
        eq = step.equation
        if step.number in self.found or not self.is_chained(step):
            return False
        if last.number - step.number > MOST_BETWEEN:
            return False
        (v,) = eq.outs
        if eq.call.out.shape != last.equation.call.out.shape:
            return False
        many = members | {step.number: step}
        outside = self.readers.get(v, set()) - many.keys()
        if outside and (min(outside) < last.number or v in self.displaced):
            return False
        reads = [u for u in self._inputs(many) if not self._is_number(u)]
        outs = self._outputs(many, last)
        if len(reads) + len(outs) > MOST_BUFFERS:
            return False
        kept = all(self._is_kept(u, step, last, many) for u in eq.ins)
        return kept and self._are_apart(reads, outs)

    def _outputs(self, members: dict[int, Step], last: Step) -> list[int]:
        """What a chain stores."""
        made = ((n, members[n].equation.outs[0]) for n in sorted(members))
        return [
            v
            for n, v in made
            if n == last.number or self.readers.get(v, set()) - members.keys()
        ]

    def _inputs(self, members: dict[int, Step]) -> list[int]:
        made = {members[n].equation.outs[0] for n in members}
        read = (v for n in sorted(members) for v in members[n].equation.ins)
        return [v for v in dict.fromkeys(read) if v not in made]

    def _is_number(self, v: int) -> bool:
        return self.schedule.roots[v].kind == "constant"

    def _chain(self, last: Step, members: dict[int, Step]) -> Chain:
        parts = (part for n in sorted(members) for part in self._parts(members[n]))
        outs = self._outputs(members, last)
        return Chain(tuple(parts), tuple(self._inputs(members)), tuple(outs))

    # -- memory ------------------------------------------------------------------------

    def _is_kept(
        self, v: int, step: Step, last: Step, members: dict[int, Step]
    ) -> bool:
        """Whether nobody writes over `v` between `step`, which reads it, and `last`."""
        if self._is_number(v):
            return True
        root = self.schedule.roots[v]
        between = self.schedule.steps[step.number + 1 : last.number]
        others = (s for s in between if s.number not in members)
        return not any(self._writes(s, root) for s in others)

    def _are_apart(self, reads: list[int], outs: list[int]) -> bool:
        """Whether nothing is stored over what another element is computed from."""
        roots = self.schedule.roots
        for k, out in enumerate(outs):
            if any(self._meets(roots[out], roots[other]) for other in outs[:k]):
                return False
            for v in reads:
                if self._meets(roots[v], roots[out]) and not self._is_in_place(v, out):
                    return False
        return True

    def _writes(self, step: Step, root: Root) -> bool:
        eq = step.equation
        if isinstance(eq.call.op.kernel, View) and eq.outs[0] in self.schedule.layouts:
            return False
        return any(self._meets(root, self.schedule.roots[v]) for v in eq.outs)

    def _is_in_place(self, v: int, out: int) -> bool:
        """Whether each element of `v` lies where that of the output goes."""
        s = self.schedule
        root, target = s.roots[v], s.roots[out]
        return (
            v not in self.displaced
            and out not in self.displaced
            and s.avals[v].same(s.avals[out])
            and self._memory(root) == self._memory(target)
            and root.offset == target.offset
        )

    def _meets(self, a: Root, b: Root) -> bool:
        if self._memory(a) != self._memory(b):
            return False
        if a.kind != "arena" or b.kind != "arena":
            return True
        return a.offset < b.offset + b.nbytes and b.offset < a.offset + a.nbytes

    def _memory(self, root: Root) -> Any:
        """Roots with equal answers may lie over each other."""
        taken = root.number if root.kind == "input" else root.taken
        if taken is not None:
            return "input", taken
        if root.kind == "arena" and self.shares:
            return "arena", root.reason
        return "own", id(root)


__all__ = ["Chain", "chains_of"]
