"""Programs: the one recorded form (architecture, "Four choices").

A `Program` is a list of `Equation`s over numbered variables. A tape prints as one, a
checkpoint region stores one, a traced graph is one. Nothing here holds values, except
numbers that stand in the program's text (`literals`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .._aval import Aval
from .._ledger import RECOMPUTE_OUTPUT, STATE
from ..errors import InternalError
from ._call import Call
from ._evaluator import Evaluator

Mode = Literal["fresh", "over", "into"]


@dataclass(frozen=True, slots=True)
class Equation:
    """One recorded application: variables in, variables out, and what rules keep.

    Attributes:
        recompute: a checkpoint runs it again during backward.
        mode: where the output lives. "fresh": in memory of its own (or, for a view,
            its operand's). "over": written over the first operand, which nobody reads
            afterwards. "into": added to the first operand, which the call itself does
            not name; nobody reads it afterwards either.
    """

    call: Call | Any
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    saves: tuple[int, ...] = ()
    recompute: bool = False
    mode: Mode = "fresh"

    @property
    def operands(self) -> tuple[int, ...]:
        """What the call reads, without the variable that its result is added to."""
        return self.ins[1:] if self.mode == "into" else self.ins


@dataclass(slots=True)
class Program:
    """Equations in order, the variables they start from, and the ones they give.

    Attributes:
        literals: rootless scalars (records) by variable.
    """

    inputs: list[int] = field(default_factory=list)
    equations: list[Equation] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    avals: list[Aval] = field(default_factory=list)
    literals: dict[int, Any] = field(default_factory=dict)

    def variable(self, aval: Aval) -> int:
        self.avals.append(aval)
        return len(self.avals) - 1

    @property
    def has_select(self) -> bool:
        """Some equation chooses between values (see `strong_zero`)."""
        return any(eq.call.is_select for eq in self.equations)

    @property
    def has_rules(self) -> bool:
        """Some function in it has a reverse rule of its own (see `_custom`)."""
        return any(eq.call.has_rules for eq in self.equations)

    @property
    def in_avals(self) -> tuple[Aval, ...]:
        return tuple([self.avals[v] for v in self.inputs])

    @property
    def out_avals(self) -> tuple[Aval, ...]:
        return tuple([self.avals[v] for v in self.outputs])

    def check(self) -> None:
        """Check the program: each variable is defined once, before use, with the aval
        that its equation's call states, and memory is written over only where nobody
        reads it afterwards.

        Raises:
            InternalError: names the equation.
        """
        defined = {*self.inputs, *self.literals}
        for number, eq in enumerate(self.equations):
            for v, aval in zip(eq.operands, eq.call.ins, strict=True):
                if v not in defined or not self.avals[v].same(aval):
                    self._broken(number, eq, f"reads variable {v} wrongly")
            for v, aval in zip(eq.outs, eq.call.outs, strict=True):
                if v in defined or not self.avals[v].same(aval):
                    self._broken(number, eq, f"defines variable {v} wrongly")
                defined.add(v)
            if eq.mode != "fresh":
                first, out = self.avals[eq.ins[0]], self.avals[eq.outs[0]]
                if eq.ins[0] not in defined or not first.same(out):
                    self._broken(number, eq, f"writes over variable {eq.ins[0]}")
        for v in self.outputs:
            if v not in defined:
                raise InternalError(
                    operation="program",
                    argument="outputs",
                    found=f"variable {v}, which nothing defines",
                    fix="report this as a bug",
                )
        for number in writable(self).refused:
            self._broken(number, self.equations[number], "writes over a value in use")

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
            if eq.mode != "fresh":
                mark += f"  ({eq.mode} {self._short(eq.ins[:1])})"
            params = ", ".join(
                f"{a}={_shown(b)}"
                for a, b in zip(eq.call.op.params, eq.call.params, strict=True)
            )
            args = self._short(eq.operands) + (f"; {params}" if params else "")
            lines.append(
                f"  {self._names(eq.outs)} = {eq.call.op.name}({args}){keeps}{mark}"
            )
        lines.append("  out " + self._names(self.outputs))
        return "\n".join(lines)

    def _short(self, vs: Sequence[int]) -> str:
        return ", ".join(
            f"{self.literals[v].array}" if v in self.literals else f"v{v}" for v in vs
        )

    def _names(self, vs: Sequence[int]) -> str:
        return ", ".join(f"v{v}: {self.avals[v]!r}" for v in vs)

    __str__ = format
    __repr__ = format


def _shown(param: Any) -> str:
    if isinstance(param, Program):
        n = len(param.equations)
        return f"<program with {n} equation{'s' if n != 1 else ''}>"
    return repr(param)


# ---- liveness ------------------------------------------------------------------------


def last_uses(program: Program) -> dict[int, int]:
    """The last equation that reads each variable; outputs are read at the end."""
    last: dict[int, int] = {}
    for number, eq in enumerate(program.equations):
        for v in eq.ins:
            last[v] = number
    for v in program.outputs:
        last[v] = len(program.equations)
    return last


@dataclass(frozen=True, slots=True)
class Writable:
    """Which equations may write over their first operand as their mode says.

    Attributes:
        refused: numbers of those that may not: the operand's memory is an input's or
            a literal's, or somebody reads it (or a view of it) later.
        roots: for each variable, the variable that stands for its memory.
    """

    refused: list[int]
    roots: dict[int, int]


def writable(program: Program) -> Writable:
    """Whose memory each variable shares, and whether that memory may be reused."""
    roots: dict[int, int] = {v: v for v in (*program.inputs, *program.literals)}
    foreign = set(roots)

    def find(v: int) -> int:
        while roots[v] != v:
            roots[v] = roots[roots[v]]
            v = roots[v]
        return v

    for eq in program.equations:
        for v in eq.outs:
            roots[v] = v
        if eq.mode != "fresh":
            roots[find(eq.outs[0])] = find(eq.ins[0])
        elif may_alias(eq.call):
            top = find(eq.outs[0])
            for v in (*eq.outs, *eq.ins):
                other = find(v)
                if other != top:
                    if other in foreign:
                        foreign.add(top)
                    roots[other] = top
    # The end of a root's life is the last use of any variable over it.
    end: dict[int, int] = {}
    for v, number in last_uses(program).items():
        top = find(v)
        end[top] = max(end.get(top, -1), number)
    written: dict[int, list[int]] = {}
    refused = []
    for number, eq in enumerate(program.equations):
        if eq.mode != "fresh":
            top = find(eq.ins[0])
            written.setdefault(top, []).append(number)
            if top in foreign:
                refused.append(number)
    # A root that is written over lives on as the output: what was in it before must
    # not be read later, under any name it had.
    if written:
        refused += _read_late(program, written, find)
    return Writable(sorted(set(refused)), {v: find(v) for v in roots})


def _read_late(program: Program, written: dict[int, list[int]], find: Any) -> list[int]:
    names: dict[int, list[tuple[int, int]]] = {}  # root: (defined by, variable)
    for number, eq in enumerate(program.equations):
        for v in eq.outs:
            names.setdefault(find(v), []).append((number, v))
    last = last_uses(program)
    bad = []
    for top, writes in written.items():
        for number in writes:
            for made, v in names.get(top, ()):
                if made < number and last.get(v, -1) > number:
                    bad.append(number)
                    break
    return bad


def may_alias(call: Any) -> bool:
    """Whether an output may share memory with an operand."""
    return getattr(call.op, "kernel", None) is None or call.op.gives_views


# ---- evaluation ----------------------------------------------------------------------


def compute(F: Evaluator, call: Any, ins: Sequence[Any]) -> list[Any]:
    """One application on values of `F`; gives the outputs as a list."""
    if hasattr(call, "run"):
        return F.region(call, ins)
    fn = F[call.op]
    result = fn(ins, *call.params) if call.op.variadic else fn(*ins, *call.params)
    return [result] if len(call.outs) == 1 else list(result)


def _one(F: Evaluator, eq: Equation, ins: list[Any]) -> list[Any]:
    if eq.mode == "fresh":
        return compute(F, eq.call, ins)
    if F.inplace:
        return [F.write(eq.mode, eq.call, ins)]
    if eq.mode == "over":
        return compute(F, eq.call, ins)
    return [F.add(ins[0], *compute(F, eq.call, ins[1:]))]


def _again(F: Evaluator, eq: Equation, ins: list[Any]) -> Sequence[Any]:
    """The mark survives: what a checkpoint runs again allocates under its reason."""
    state = STATE.get()
    try:
        STATE.set(state.under(RECOMPUTE_OUTPUT))
        return _one(F, eq, ins)
    finally:
        STATE.set(state)


def evaluate(program: Program, F: Evaluator, inputs: Sequence[Any]) -> list[Any]:
    """The outputs for these inputs; each value is let go after its last use.

    Evaluators that own their values (`F.inplace`) reuse memory as the modes say; for
    the others every equation is a fresh one.
    """
    values: dict[int, Any] = dict(zip(program.inputs, inputs, strict=True))
    for v, literal in program.literals.items():
        values[v] = F.literal(literal)
    last = last_uses(program)
    for number, eq in enumerate(program.equations):
        ins = [values[v] for v in eq.ins]
        outs = _again(F, eq, ins) if eq.recompute else _one(F, eq, ins)
        del ins
        values.update(zip(eq.outs, outs, strict=True))
        for v in {*eq.ins, *eq.outs}:
            if last.get(v, -1) <= number:
                values.pop(v, None)
    return [values[v] for v in program.outputs]
