"""Where the values of a program live: roots, steps, schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from .._aval import Aval
from .._ledger import ALLOCATION_REASONS, AllocationReason
from ..ops import Equation, Program

Array = np.ndarray[Any, Any]
Kind = Literal["input", "constant", "output", "arena"]
Strides = tuple[int, ...] | None


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
        copies: a view that strides cannot express: an explicit duplicate.
        added: the call that adds the result to memory, and its function, if the kernel
            has one for these layouts (see `Write.added`).
        layout_nbytes: workspace for the strides of the operands.
        bodies: of a loop or a branch; `layouts` of its operands.
    """

    number: int
    equation: Equation
    plan: Any
    registers: tuple[int, ...] = ()
    copies: bool = False
    added: tuple[str, Any] | None = None
    layout_nbytes: int = 0
    bodies: tuple[Nested, ...] = ()
    layouts: tuple[Array, ...] = ()


@dataclass(slots=True)
class Nested:
    """The body of a loop or a branch, in places of the arenas around it.

    Attributes:
        schedule: of the body; each output has a root of its own.
        arenas: for each reason the variable (of the schedule outside) whose bytes are
            the body's arena.
    """

    schedule: Schedule
    arenas: dict[int, int]


@dataclass(slots=True, repr=False)
class Schedule:
    """Where every value of a program lives while it runs; prints as a table.

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

    def place_of(self, v: int) -> tuple[Any, ...] | None:
        """Reason, offset, shape and dtype, if `v` is a place of an arena and no view:
        equal for variables that one array can stand for."""
        root = self.roots[v]
        if root.kind != "arena" or v in self.layouts:
            return None
        aval = self.avals[v]
        return root.reason, root.offset, aval.shape, aval.dtype

    def number(self, v: int) -> Array:
        """The number of the program's text that `v` is, or repeats as a view of it."""
        found: Array = self.program.literals[self.roots[v].variables[0]].array
        return found

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
        for root in distinct(self.roots):
            if root.kind == "arena":
                names = ", ".join(f"v{v}" for v in root.variables)
                lines.append(
                    f"  {root.offset:>10} +{root.nbytes:<10} equations "
                    f"{root.start}-{root.stop}: {names}"
                )
        return "\n".join(lines)

    __repr__ = __str__


def distinct(roots: dict[int, Root]) -> list[Root]:
    """Each root once, in the order of its first variable."""
    return list({id(r): r for r in roots.values()}.values())


__all__ = ["Nested", "Root", "Schedule", "Step", "Strides", "distinct"]
