"""Where to cut a function into checkpointed regions.

The function is traced; its program is cut into consecutive parts of about equal
retained bytes, at places where few bytes cross. The first parts become checkpointed
regions, the last ones stay plain. Candidates differ in how many parts there are and how
many of them are regions; what each would hold is found by running it on symbolic values
(`ta.plan`), and the one that runs least again within the budget is taken. The list of
candidates does not depend on the budget, so a larger budget never recomputes more.

Source of the idea: A. Griewank, Optim. Methods Softw. 1 (1992); T. Chen et al.,
arXiv:1604.06174 (sqrt(n) regions).
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

from ..errors import BudgetTooSmallError, InvalidArgumentError
from ..ops import Program, evaluate, last_uses, renumbered, subprogram, without_reuse
from ..tape import RegionCall
from ._dispatch import HANDLES
from ._plan import planned

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
class Part:
    """Consecutive equations: a checkpointed region's call, or a plain program."""

    program: Program
    region: RegionCall | None
    ins: tuple[int, ...]
    outs: tuple[int, ...]


@final
@dataclass(frozen=True, slots=True)
class Division:
    """A program in parts.

    Attributes:
        peak_bytes: what a forward and a backward pass hold at most.
        recomputed: equations that run again.
    """

    program: Program
    parts: tuple[Part, ...]
    peak_bytes: int = 0
    recomputed: int = 0

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


def balanced(program: Program, tracked: Sequence[bool]) -> list[Division]:
    """The division into about sqrt(n) regions for n places to cut, alone."""
    work = _Cuts(renumbered(without_reuse(program)), tracked)
    return [work.division(max(1, math.isqrt(max(1, len(work.narrow)))), None)]


def candidates(program: Program, tracked: Sequence[bool]) -> list[Division]:
    """Divisions to choose from, each with what it holds and what it runs again.

    Args:
        tracked: which inputs are differentiated.

    Cost: both passes on symbolic values for each of some dozens of divisions; nothing
        is computed.
    """
    work = _Cuts(renumbered(without_reuse(program)), tracked)
    return [work.tried(count, regions) for count, regions in work.candidates()]


def chosen(tried: Sequence[Division], budget: int) -> Division:
    """The division that recomputes least within `budget` bytes.

    Raises:
        BudgetTooSmallError: no candidate fits; names the smallest budget that works.
    """
    fitting = [d for d in tried if d.peak_bytes <= budget]
    if not fitting:
        minimum = min(d.peak_bytes for d in tried)
        raise BudgetTooSmallError(
            operation="checkpoint",
            argument="budget",
            found=f"a budget of {budget} bytes",
            fix=f"allow {minimum} bytes, or make the function smaller",
            minimum=minimum,
        )
    return min(fitting, key=lambda d: (d.recomputed, d.peak_bytes))


class _Cuts:
    """Places where the program may be cut, and how good each is."""

    def __init__(self, program: Program, tracked: Sequence[bool]) -> None:
        self.program = program
        self.tracked = tracked
        n = len(program.equations)
        last = last_uses(program)
        given = {*program.inputs, *program.literals}
        # Bytes that cross each place: defined before it, used after it.
        change = [0] * (n + 2)
        grows: list[int] = []
        for number, eq in enumerate(program.equations):
            for v in eq.outs:
                end = last.get(v, number)
                nbytes = program.avals[v].nbytes
                change[number + 1] += nbytes
                change[end + 1] -= nbytes
            grows.append(sum(program.avals[v].nbytes for v in eq.outs))
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

    def candidates(self) -> Iterator[tuple[int, int]]:
        """Numbers of parts, and of regions among them."""
        most = len(self.narrow) + 1
        yield 1, 0
        counts, count = [], 2.0
        while count < most:
            counts.append(round(count))
            count *= 1.4
        for parts in dict.fromkeys([*counts, most] if most > 1 else [1]):
            step = max(1, parts // 12)
            for regions in dict.fromkeys([*range(step, parts, step), parts - 1, parts]):
                if regions > 0:
                    yield parts, regions

    def tried(self, count: int, regions: int) -> Division:
        division = self.division(count, regions)
        program = self.program
        avals = program.in_avals
        found = planned(lambda *xs: division.run(xs), avals, avals, self.tracked)
        return Division(program, division.parts, found.peak_bytes, found.recomputed)

    def division(self, count: int, regions: int | None) -> Division:
        """`count` parts of about equal bytes, the first `regions` of them (default:
        all) checkpointed."""
        ends = self._ends(count)
        regions = len(ends) if regions is None else min(regions, len(ends))
        # Plain parts need no cut between them.
        ends = ends[:regions] + ends[-1:] if regions < len(ends) else ends
        parts, start = [], 0
        for number, end in enumerate(dict.fromkeys(ends)):
            parts.append(self._part(start, end, checkpointed=number < regions))
            start = end
        return Division(self.program, tuple(parts))

    def _ends(self, count: int) -> list[int]:
        n, total = len(self.program.equations), self.made[-1]
        ends: list[int] = []
        for i in range(1, count):
            at = bisect_left(self.made, total * i / count)
            k = bisect_left(self.narrow, at)
            near = self.narrow[max(k - 1, 0) : k + 1]
            if near:
                ends.append(min(near, key=lambda p: abs(p - at)))
        return [*dict.fromkeys(ends), n]

    def _part(self, start: int, end: int, *, checkpointed: bool) -> Part:
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
