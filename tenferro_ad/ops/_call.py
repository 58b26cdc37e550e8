"""Applications without values, and how each is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .._aval import Aval

if TYPE_CHECKING:
    from ._evaluator import Evaluator
    from ._op import Op

Rule = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ArgRule:
    """The reverse rule of one argument: `fn(F, ct, *saved)` and what it keeps.

    `op` and `strong_op`: the rule is exactly this elementwise operation on the cotangent
    and the saved values. `passes`: the result is the cotangent itself.
    """

    saves: tuple[int, ...]
    fn: Rule
    strong: Rule
    op: Op | None = None
    strong_op: Op | None = None
    passes: bool = False


class Call:
    """One application of an operation, without values: what rules may branch on.

    Attributes:
        op, ins, outs, params: the operation, avals in and out, normalised parameters.
        Parameters are also attributes by name (`call.axis`).
    """

    __slots__ = (
        "__dict__",
        "_specs",
        "ins",
        "is_differentiable",
        "op",
        "outs",
        "params",
    )

    def __init__(
        self,
        op: Op,
        ins: tuple[Aval, ...],
        outs: tuple[Aval, ...],
        params: tuple[Any, ...],
    ) -> None:
        self.op, self.ins, self.outs, self.params = op, ins, outs, params
        self._specs: dict[int, RuleSpec] = {}
        # Integer and boolean results carry no derivative: they are never recorded.
        self.is_differentiable = any(a.dtype.kind in "fc" for a in outs)
        for name, value in zip(op.params, params, strict=True):
            setattr(self, name, value)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"operation `{self.op.name}` has no parameter `{name}`")

    @property
    def out(self) -> Aval:
        return self.outs[0]

    def spec(self, mask: int) -> RuleSpec:
        """The reverse rule for the tracked arguments in `mask` (bit i: argument i)."""
        found = self._specs.get(mask)
        if found is None:
            found = self._specs[mask] = RuleSpec(self, mask)
        return found

    def push(
        self, F: Evaluator, tangents: Sequence[Any], values: Sequence[Any]
    ) -> list[Any]:
        """Tangents of the outputs: the sum over arguments whose tangent is not None.

        Args:
            tangents: one for each argument, None where it is zero.
            values: the arguments, then the outputs.
        """
        n = len(self.ins)
        total: list[Any] = [None] * len(self.outs)
        for i, t in enumerate(tangents):
            if t is None:
                continue
            reads, fn = self.op.push_rule(self, i)
            found = fn(F, t, *[values[r] if r >= 0 else values[n + ~r] for r in reads])
            parts = found if len(total) > 1 else (found,)
            if found is None:
                continue
            for k, part in enumerate(parts):
                if part is not None:
                    total[k] = part if total[k] is None else F.add(total[k], part)
        return total

    def __repr__(self) -> str:
        params = ", ".join(
            f"{n}={v!r}" for n, v in zip(self.op.params, self.params, strict=True)
        )
        ins = ", ".join(map(repr, self.ins))
        outs = ", ".join(map(repr, self.outs))
        return f"{self.op.name}({ins}{'; ' + params if params else ''}) -> {outs}"


class RuleSpec:
    """How one application is differentiated for a given set of tracked arguments.

    Attributes:
        tracked: positions of the tracked arguments.
        saves: what is kept, as positions: i >= 0 input i, ~j output j.
        pull: `pull(F, ct, saved)` gives one cotangent for each tracked argument.
        strong: the same with zero-absorbing products, for programs with a select.
        kernels: for each tracked argument (plain op, strong op, positions in `saved`), or
            None for the cotangent itself, if every rule is one elementwise operation.
        code: which of the common forms `saves` is (`_CODES`), or -1.
        direct: what an evaluator prepared from `kernels` (plain, strong).
    """

    __slots__ = (
        "call",
        "code",
        "direct",
        "kernels",
        "mask",
        "n_out",
        "pull",
        "saves",
        "strong",
        "tracked",
    )

    def __init__(self, call: Call, mask: int) -> None:
        self.call, self.mask = call, mask
        self.n_out = len(call.outs)
        self.tracked = tuple(i for i in range(len(call.ins)) if mask >> i & 1)
        rules = [call.op.pull_rule(call, i) for i in self.tracked]
        self.saves = tuple(dict.fromkeys(s for r in rules for s in r.saves))
        at = [[self.saves.index(s) for s in r.saves] for r in rules]
        self.pull = _pull([(r.op, r.fn) for r in rules], at, len(self.saves))
        self.strong = _pull(
            [(r.strong_op, r.strong) for r in rules], at, len(self.saves)
        )
        self.code = _CODES.get(self.saves, -1) if self.n_out == 1 else -1
        self.direct: tuple[Any, Any] | None = None
        self.kernels: list[tuple[Op, Op, list[int]] | None] | None = None
        if all(r.op is not None or r.passes for r in rules):
            self.kernels = [
                None if r.op is None or r.strong_op is None else (r.op, r.strong_op, ix)
                for r, ix in zip(rules, at, strict=True)
            ]


_CODES: Final[dict[tuple[int, ...], int]] = {
    (): 0,
    (0,): 1,
    (1,): 2,
    (~0,): 3,
    (1, 0): 4,
    (0, 1): 5,
}

Pull = Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]]


def _pull(rules: list[tuple[Any, Rule]], at: list[list[int]], n: int) -> Pull:
    """`pull(F, ct, saved)` for the tracked arguments. The common small forms are written
    out: this call happens once for every equation of every backward pass."""
    if len(rules) == 1:
        (op, fn), (ix,) = rules[0], at
        if op is not None and n == 1:
            return lambda F, ct, saved: (F[op](ct, saved[0]),)
        if ix == list(range(n)):
            return lambda F, ct, saved: (fn(F, ct, *saved),)
    if len(rules) == 2 and [len(ix) for ix in at] == [1, 1]:
        ((op_x, _), (op_y, _)), ((i,), (j,)) = rules, at
        if op_x is not None and op_y is not None:
            return lambda F, ct, saved: (F[op_x](ct, saved[i]), F[op_y](ct, saved[j]))
    bound = [(fn, ix) for (_, fn), ix in zip(rules, at, strict=True)]
    return lambda F, ct, saved: tuple(
        [fn(F, ct, *[saved[k] for k in ix]) for fn, ix in bound]
    )
