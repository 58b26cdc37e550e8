"""Where to cut a function into checkpointed regions.

The function is traced; its program is cut into consecutive parts of about equal
retained bytes, at places where few bytes cross. The first parts become checkpointed
regions, the last ones stay plain. If that is not enough, regions have regions inside:
boundaries inside a region are let go one by one as backward passes them, so the first
ones inside are the longest. Candidates differ in how many parts there are, how many of
them are regions, and how many those have inside; what each would hold is found by
running it on symbolic values (`ta.plan`), and the one that runs least again within the
budget is taken. The list of candidates does not depend on the budget, so a larger
budget never recomputes more.

Source of the idea: A. Griewank, Optim. Methods Softw. 1 (1992); T. Chen et al.,
arXiv:1604.06174 (sqrt(n) regions).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final, final

from ..errors import BudgetTooSmallError, InvalidArgumentError
from ..ops import (
    Equation,
    Program,
    evaluate,
    last_uses,
    renumbered,
    subprogram,
    without_reuse,
)
from ..runtime import memory_of
from ..tape import RegionCall, followed
from ._dispatch import HANDLES
from ._plan import passes_of, planned

_UNITS: Final = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}


def bytes_of(budget: Any) -> int:
    """Bytes of a budget: a number, or text such as "64 MiB".

    Raises:
        InvalidArgumentError: neither, or not positive.
    """
    if isinstance(budget, int) and not isinstance(budget, bool) and budget > 0:
        return budget
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?i?b)\s*", budget.lower())
        if found and found[2] in _UNITS and float(found[1]) > 0:
            return int(float(found[1]) * _UNITS[found[2]])
    raise InvalidArgumentError(
        operation="checkpoint",
        argument="budget",
        found=f"{budget!r}",
        fix='pass a number of bytes, or text like "64 MiB"',
    )


@final
@dataclass(frozen=True, slots=True)
class Shape:
    """How many parts there are, how many of them (the first ones) are regions, and how
    many regions those have inside, and those inside."""

    parts: int
    regions: int
    inside: tuple[int, ...] = ()


PLAIN: Final = Shape(1, 0)


@final
@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive equations: a checkpointed region's call, or a plain program."""

    program: Program
    region: RegionCall | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]


@final
@dataclass(slots=True, eq=False)
class Division:
    """A program in parts.

    Attributes:
        peak_bytes: what a forward and a backward pass hold at most, with workspace.
        workspace: what of it is workspace.
        recomputed: equations that run again.
        compiled_bytes: what a compiled program holds, once somebody asked.
    """

    program: Program
    parts: tuple[Part, ...]
    peak_bytes: int = 0
    workspace: int = 0
    recomputed: int = 0
    compiled_bytes: int = 0

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for handles, as recorded by the levels of the context."""
        program = self.program
        values: dict[int, Any] = dict(zip(program.inputs, inputs, strict=True))
        for v, record in program.literals.items():
            values[v] = HANDLES.literal(record)
        needed = [set(program.outputs)]
        for part in reversed(self.parts):
            needed.append(needed[-1] | set(part.ins))
        needed.reverse()
        for part, later in zip(self.parts, needed[1:], strict=True):
            ins = [values[v] for v in part.ins]
            if part.region is None:
                outs = evaluate(part.program, HANDLES, ins)
            else:
                outs = HANDLES.region(part.region, ins)
            values.update(zip(part.outs, outs, strict=True))
            values = {v: x for v, x in values.items() if v in later}
            del ins, outs
        return [values[v] for v in program.outputs]


def balanced(
    program: Program, tracked: Sequence[bool], own: Sequence[bool]
) -> list[Division]:
    """The division into about sqrt(n) regions for n places to cut, alone."""
    work = _Cuts(renumbered(without_reuse(program)), tracked, own)
    count = max(1, math.isqrt(max(1, len(work.narrow))))
    return [work.division(Shape(count, count))]


def candidates(
    program: Program, tracked: Sequence[bool], own: Sequence[bool]
) -> list[Division]:
    """Divisions to choose from, each with what it holds and what it runs again.

    Args:
        tracked: which inputs are differentiated.
        own: which inputs the function brought in itself: their bytes count.

    Cost: both passes on symbolic values for each of some dozens of divisions; nothing
        is computed.
    """
    work = _Cuts(renumbered(without_reuse(program)), tracked, own)
    shapes = work.shapes() if work.is_differentiated else [PLAIN]
    return [work.tried(shape) for shape in shapes]


def chosen(
    tried: Sequence[Division], budget: int, nbytes: Callable[[Division], int]
) -> Division:
    """The division that recomputes least within `budget` bytes.

    Args:
        nbytes: what a division holds; asked for in the order of what it recomputes.

    Raises:
        BudgetTooSmallError: no candidate fits; names the smallest budget that works.
    """
    order = sorted(tried, key=lambda d: (d.recomputed, d.peak_bytes))
    minimum = 0
    for division in order:
        found = nbytes(division)
        if found <= budget:
            return division
        minimum = min(minimum or found, found)
    raise BudgetTooSmallError(
        operation="checkpoint",
        argument="budget",
        found=f"a budget of {budget} bytes",
        fix=f"allow {minimum} bytes, or make the function smaller",
        minimum=minimum,
    )


def held_eager(taken: int) -> Callable[[Division], int]:
    """What both passes hold, one operation at a time.

    Args:
        taken: bytes of data from outside that came in beforehand.
    """
    return lambda division: max(division.peak_bytes, taken)


def held_compiled(tracked: Sequence[bool]) -> Callable[[Division], int]:
    """What both passes hold in one compiled program."""

    def nbytes(division: Division) -> int:
        found = division.compiled_bytes
        if not found:
            avals = division.program.in_avals
            program = passes_of(lambda *xs: division.run(xs), avals, tracked)
            found = memory_of(program)
            division.compiled_bytes = found
        return found

    return nbytes


def _kept(program: Program, masks: Sequence[int]) -> set[int]:
    """Variables that reverse rules read."""
    kept: set[int] = set()
    for eq, mask in zip(program.equations, masks, strict=True):
        if mask:
            saves = eq.call.spec(mask).saves
            kept.update(eq.outs[~s] if s < 0 else eq.ins[s] for s in saves)
    return kept


class _Cuts:
    """Places where the program may be cut, and how good each is."""

    def __init__(
        self, program: Program, tracked: Sequence[bool], own: Sequence[bool]
    ) -> None:
        self.program = program
        self.tracked, self.own = tracked, own
        self._parts: dict[tuple[int, int, bool], Part] = {}
        n = len(program.equations)
        last = last_uses(program)
        given = {*program.inputs, *program.literals}
        inputs = [v for v, t in zip(program.inputs, tracked, strict=True) if t]
        # Loops with stacks where a recording asks for them: equation for equation.
        taken, masks, self._moving = followed(program, inputs)
        kept = _kept(taken, masks)
        # Bytes that cross each place: defined before it, used after it. What rules keep
        # anyway costs less than what only the boundary needs.
        change = [0] * (n + 2)
        grows: list[int] = []
        for number, eq in enumerate(taken.equations):
            for v in eq.outs:
                end = last.get(v, number)
                nbytes = taken.avals[v].nbytes * (1 if v in kept else 2)
                change[number + 1] += nbytes
                change[end + 1] -= nbytes
            grows.append(sum(taken.avals[v].nbytes for v in eq.outs))
        self.crossing: list[int] = []
        total = 0
        for k in range(n + 1):
            total += change[k]
            self.crossing.append(total)
        self.made = [0]
        for nbytes in grows:
            self.made.append(self.made[-1] + nbytes)
        self.given = given
        inner = self.crossing[1:n]
        low = min(inner, default=0)
        # Places that carry about as little as any other near them.
        self.narrow = [
            k for k in range(1, n) if self.crossing[k] <= max(low, self._near(k))
        ]

    def _near(self, k: int) -> int:
        lo, hi = max(1, k - 4), min(len(self.program.equations), k + 5)
        return min(self.crossing[lo:hi])

    def shapes(self) -> Iterator[Shape]:
        """Candidates, those that hold most first."""
        most = len(self.narrow) + 1
        yield PLAIN
        counts, count = [], 2.0
        while count < most:
            counts.append(round(count))
            count *= 1.4
        for parts in dict.fromkeys([*counts, most] if most > 1 else [1]):
            step = max(1, parts // 8)
            for regions in dict.fromkeys([*range(step, parts, step), parts - 1, parts]):
                if regions > 0:
                    yield Shape(parts, regions)
        for parts, *inside in product((1, 2, 3, 4, 6), (3, 4, 5, 6, 8, 11)):
            if parts * math.prod(inside) <= most:
                yield Shape(parts, parts, tuple(inside))
        for parts, *inside in product((1, 2, 3), (2, 3, 4, 6), (3, 4)):
            if parts * math.prod(inside) <= most:
                yield Shape(parts, parts, tuple(inside))

    @property
    def is_differentiated(self) -> bool:
        """A result depends on what is differentiated."""
        return any(v in self._moving for v in self.program.outputs)

    def tried(self, shape: Shape) -> Division:
        division = self.division(shape)
        program = self.program
        avals = program.in_avals
        found = planned(
            lambda *xs: division.run(xs),
            avals,
            avals,
            self.tracked,
            own=self.own,
            forward=not self.is_differentiated,
        )
        return Division(
            program,
            division.parts,
            found.peak_bytes + found.workspace_bytes,
            found.workspace_bytes,
            found.recomputed,
        )

    def division(self, shape: Shape) -> Division:
        ends = self._ends(0, len(self.program.equations), [1] * shape.parts)
        regions = min(shape.regions, len(ends))
        # Plain parts need no cut between them.
        ends = ends[:regions] + ends[-1:] if regions < len(ends) else ends
        parts, start = [], 0
        for number, end in enumerate(dict.fromkeys(ends)):
            if number < regions:
                parts.append(self._region(start, end, shape.inside))
            else:
                parts.append(self._part(start, end, checkpointed=False))
            start = end
        return Division(self.program, tuple(parts))

    def _region(self, start: int, end: int, inside: tuple[int, ...]) -> Part:
        """A region with regions inside, the first of them the longest."""
        part = self._part(start, end, checkpointed=True)
        ends = self._ends(start, end, range(inside[0], 0, -1)) if inside else []
        if len(ends) < 2:
            return part
        equations, at = [], start
        for stop in ends:
            inner = self._region(at, stop, inside[1:])
            equations.append(Equation(inner.region, inner.ins, inner.outs))
            at = stop
        program = self.program
        body = Program(
            list(part.ins), equations, part.outs, program.avals, program.literals
        )
        whole = renumbered(body)
        return Part(whole, RegionCall(whole), part.ins, part.outs)

    def _ends(self, start: int, end: int, sizes: Sequence[int]) -> list[int]:
        """Where parts of about these sizes end, at narrow places."""
        first, total = self.made[start], self.made[end] - self.made[start]
        ends: list[int] = []
        done, whole = 0, sum(sizes)
        for size in sizes[:-1]:
            done += size
            at = bisect_left(self.made, first + total * done / whole)
            k = bisect_left(self.narrow, at)
            near = [p for p in self.narrow[max(k - 1, 0) : k + 1] if start < p < end]
            if near:
                ends.append(min(near, key=lambda p: abs(p - at)))
        return [*dict.fromkeys(ends), end]

    def _part(self, start: int, end: int, *, checkpointed: bool) -> Part:
        key = start, end, checkpointed
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = self._cut(start, end, checkpointed=checkpointed)
        return found

    def _cut(self, start: int, end: int, *, checkpointed: bool) -> Part:
        program = self.program
        equations = program.equations[start:end]
        defined = {v for eq in equations for v in eq.outs}
        later = {v for eq in program.equations[end:] for v in eq.ins}
        later |= set(program.outputs)
        ins = tuple(
            dict.fromkeys(
                v
                for eq in equations
                for v in eq.ins
                if v not in defined and v not in program.literals
            )
        )
        outs = tuple(v for eq in equations for v in eq.outs if v in later)
        body = Program(
            list(program.inputs), equations, outs, program.avals, program.literals
        )
        part = subprogram(body, outs, ins)
        return Part(part, RegionCall(part) if checkpointed else None, ins, outs)
