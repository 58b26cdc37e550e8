"""Applications without values, and how each is differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from .._aval import Aval
from ._body import Body
from ._joint import Pull, joint_pull, joint_push, joint_reads

if TYPE_CHECKING:
    from ._evaluator import Evaluator
    from ._op import Op

Rule = Callable[..., Any]
UNPREPARED: Final = -2  # `kind` and `steps` of a rule whose plans are not fixed yet


@dataclass(frozen=True, slots=True)
class Applied:
    """One operation on the cotangent (-1) and the rule's saved values (their index)."""

    op: Op
    operands: tuple[int, ...]
    params: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ArgRule:
    """The reverse rule of one argument: `fn(F, ct, *saved)` and what it keeps.

    Attributes:
        strong: `fn` with zero-absorbing products.
        applied, strong_applied: the rule is exactly this one operation, so an evaluator
            may fix its plan beforehand.
        passes: the result is the cotangent itself.
    """

    saves: tuple[int, ...]
    fn: Rule
    strong: Rule
    applied: Applied | None = None
    strong_applied: Applied | None = None
    passes: bool = False

    @staticmethod
    def of(saves: tuple[int, ...], plain: Applied, strong: Applied) -> ArgRule:
        """The rule that applies one operation."""

        def bound(applied: Applied) -> Rule:
            op, operands, params = applied.op, applied.operands, applied.params
            if operands == tuple(range(-1, len(operands) - 1)) and not params:
                return lambda F, ct, *saved: F[op](ct, *saved)
            return lambda F, ct, *saved: F[op](
                *[ct if k < 0 else saved[k] for k in operands], *params
            )

        return ArgRule(saves, bound(plain), bound(strong), plain, strong)


class Call:
    """One application of an operation, without values: what rules may branch on.

    Parameters are also attributes by name (`call.axis`).

    Attributes:
        op, ins, outs, params: the operation, avals in and out, normalised parameters.
        is_select: it chooses between values (see `strong_zero`), or a body of it does.
        has_rules: it is a function with a reverse rule of its own, or a body of it has
            one.
    """

    __slots__ = (
        "__dict__",
        "_outside",
        "_specs",
        "has_rules",
        "ins",
        "is_differentiable",
        "is_select",
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
        self.is_differentiable = not op.stops and any(
            a.dtype.kind in "fc" for a in outs
        )
        self.is_select, self.has_rules = op.is_select, op.unruled is not None
        self._outside: Call | None = None
        for name, value in zip(op.params, params, strict=True):
            setattr(self, name, value)
            for part in value if type(value) is tuple else (value,):
                if type(part) is Body:
                    self.is_select = self.is_select or part.is_select
                    self.has_rules = self.has_rules or part.has_rules

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"operation `{self.op.name}` has no parameter `{name}`")

    @property
    def out(self) -> Aval:
        return self.outs[0]

    def outside(self) -> Call:
        """The application as recordings see it around the one that takes the user's
        rules: the operations of `fwd` are in the place of functions that have one."""
        if not self.has_rules:
            return self
        if self._outside is None:
            self._outside = Call(
                self.op, self.ins, self.outs, tuple(map(_unruled, self.params))
            )
        return self._outside

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
        if self.op.joint_jvp is not None:
            return joint_push(F, self, tangents, values)
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

    def push_reads(self, tracked: Sequence[int]) -> list[int]:
        """Which values `push` reads if these arguments have tangents: i >= 0 input i,
        ~j output j."""
        if self.op.joint_jvp is not None:
            return joint_reads(self)
        found = [r for i in tracked for r in self.op.push_rule(self, i)[0]]
        return list(dict.fromkeys(found))

    def batch(
        self, F: Evaluator, size: int, xs: Sequence[Any], batched: Sequence[bool]
    ) -> tuple[Any, ...]:
        """The outputs for `size` examples, each along a new leading axis 0.

        Args:
            xs: the operands; `batched[i]` says that `xs[i]` carries the examples along
                its axis 0. At least one does.

        Raises:
            NoRuleError: the row has no batching rule.
        """
        rule = self.op.batch_rule()
        if not size:
            return tuple(F.full((0, *y.shape), y.dtype, 0, y.device) for y in self.outs)
        found = rule(F, self, size, xs, batched)
        return found if len(self.outs) > 1 else (found,)

    def __repr__(self) -> str:
        params = ", ".join(
            f"{n}={v!r}" for n, v in zip(self.op.params, self.params, strict=True)
        )
        ins = ", ".join(map(repr, self.ins))
        outs = ", ".join(map(repr, self.outs))
        return f"{self.op.name}({ins}{'; ' + params if params else ''}) -> {outs}"


def _unruled(param: Any) -> Any:
    if type(param) is tuple:
        return tuple(map(_unruled, param))
    return param.unruled() if type(param) is Body else param


class RuleSpec:
    """How one application is differentiated for a given set of tracked arguments.

    Attributes:
        tracked: positions of the tracked arguments.
        saves: what is kept, as positions: i >= 0 input i, ~j output j.
        pull: `pull(F, ct, saved)` gives one cotangent for each tracked argument.
        strong: the same with zero-absorbing products, for programs with a select.
        kernels: for each tracked argument (plain op, strong op, positions in `saved`),
            or None for the cotangent itself, if every rule is one elementwise
            operation.
        code: which of the common forms `saves` is (`_CODES`), or -1.
        kind, rules, steps: what the direct evaluator prepared from `kernels` (see its
            `prepare`); they hold the plain and the strong form, `steps` also None for
            evaluators without steps.
    """

    __slots__ = (
        "call",
        "code",
        "kernels",
        "kind",
        "n_out",
        "pull",
        "rules",
        "saves",
        "steps",
        "strong",
        "tracked",
    )
    lends: Final = False  # results that are no operand or cotangent are fresh
    takes: Final = False  # the caller keeps the cotangent while the rule runs

    def __init__(self, call: Call, mask: int) -> None:
        self.call = call
        self.n_out = len(call.outs)
        self.tracked = tuple(i for i in range(len(call.ins)) if mask >> i & 1)
        # Filled by the evaluator that fixes plans.
        self.kind = UNPREPARED
        self.rules: tuple[Any, Any] = (None, None)
        self.steps: tuple[Any, Any, None] = (UNPREPARED, UNPREPARED, None)
        self.kernels: list[tuple[Applied, Applied, list[int]] | None] | None = None
        op = call.op
        if op.joint is None:
            self._each()
        else:
            self.saves, self.pull = joint_pull(call, self.tracked, op.joint)
            self.strong = self.pull
            if op.joint_strong is not None:
                _, self.strong = joint_pull(call, self.tracked, op.joint_strong)
        self.code = _CODES.get(self.saves, -1) if self.n_out == 1 else -1

    def _each(self) -> None:
        """One rule for each argument."""
        call = self.call
        rules = [call.op.pull_rule(call, i) for i in self.tracked]
        self.saves = tuple(dict.fromkeys(s for r in rules for s in r.saves))
        at = [[self.saves.index(s) for s in r.saves] for r in rules]
        self.pull = _pull([r.fn for r in rules], at)
        self.strong = _pull([r.strong for r in rules], at)
        if all(r.applied is not None or r.passes for r in rules):
            self.kernels = [
                None
                if r.applied is None or r.strong_applied is None
                else (r.applied, r.strong_applied, ix)
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


def _pull(rules: list[Rule], at: list[list[int]]) -> Pull:
    """`pull(F, ct, saved)` for the tracked arguments."""
    bound = list(zip(rules, at, strict=True))
    return lambda F, ct, saved: tuple(
        [fn(F, ct, *[saved[k] for k in ix]) for fn, ix in bound]
    )
