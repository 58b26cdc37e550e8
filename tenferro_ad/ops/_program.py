"""Programs: the one recorded form (architecture, "Four choices").

A `Program` is a list of `Equation`s over numbered variables. A tape prints as one, a
checkpoint region stores one, a traced graph is one. Nothing here holds values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .._aval import Aval
from ..errors import InternalError
from ._op import Call


@dataclass(frozen=True, slots=True)
class Equation:
    """One recorded application: variables in, variables out, and what rules keep.

    `recompute` marks equations that a checkpoint runs again during backward.
    """

    call: Call | Any
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    saves: tuple[int, ...] = ()
    recompute: bool = False


@dataclass(slots=True)
class Program:
    """Equations in order, the variables they start from, and the ones they give."""

    inputs: list[int] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    avals: list[Aval] = field(default_factory=list)

    def variable(self, aval: Aval) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    def check(self) -> None:
        """Check the program: each variable is defined once, before use, with the aval
        that its equation's call states.

        Raises:
            InternalError: names the equation.
        """
        defined = set(self.inputs)
        for number, eq in enumerate(self.equations):
            for v, aval in zip(eq.ins, eq.call.ins, strict=True):
                if v not in defined or not self.avals[v].same(aval):
                    self._broken(number, eq, f"reads variable {v} wrongly")
            for v, aval in zip(eq.outs, eq.call.outs, strict=True):
                if v in defined or not self.avals[v].same(aval):
                    self._broken(number, eq, f"defines variable {v} wrongly")
                defined.add(v)
        for v in self.outputs:
            if v not in defined:
                raise InternalError(
                    operation="program",
                    argument="outputs",
                    found=f"variable {v}, which nothing defines",
                    fix="report this as a bug",
                )

    def _broken(self, number: int, eq: Equation, what: str) -> None:
        raise InternalError(
            operation=eq.call.op.name,
            argument=f"equation {number}",
            found=f"an equation that {what}",
            fix="report this as a bug",
        )

    def format(self, limit: int = 40) -> str:
        """Readable text; programs longer than `limit` equations show both ends."""
        n = len(self.equations)
        head = f"program with {n} equation{'s' if n != 1 else ''}"
        lines = [head, "  in  " + self._names(self.inputs)]
        shown: Sequence[int | None] = range(n)
        if n > limit:
            half = limit // 2
            shown = [*range(half), None, *range(n - half, n)]
        for k in shown:
            if k is None:
                lines.append(f"  ... {n - 2 * (limit // 2)} more equations ...")
                continue
            eq = self.equations[k]
            keeps = f"  keeps {self._short(eq.saves)}" if eq.saves else ""
            mark = "  (recompute)" if eq.recompute else ""
            params = ", ".join(
                f"{a}={b!r}"
                for a, b in zip(eq.call.op.params, eq.call.params, strict=True)
            )
            args = self._short(eq.ins) + (f"; {params}" if params else "")
            lines.append(
                f"  {self._names(eq.outs)} = {eq.call.op.name}({args}){keeps}{mark}"
            )
        lines.append("  out " + self._names(self.outputs))
        return "\n".join(lines)

    def _short(self, vs: Sequence[int]) -> str:
        return ", ".join(f"v{v}" for v in vs)

    def _names(self, vs: Sequence[int]) -> str:
        return ", ".join(f"v{v}: {self.avals[v]!r}" for v in vs)

    __str__ = format
    __repr__ = format
