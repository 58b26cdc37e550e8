"""Operations: one row each, holding meaning, kernel, derivatives and retention.

An `Op` says what an operation is: its arguments, how the result's aval follows from theirs
(`infer`), its kernel as data (a kind that every backend implements), and one VJP and one
JVP for each argument. The keyword-only parameters of an argument's rule *are* what that
rule keeps: nothing else declares retention, so retention cannot drift from the rule.

An `Evaluator` computes operations: on bare records (runtime), through the tapes that are
recording (engine), or into a program. Rules take it as their first argument `F`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import numpy as np

from .._aval import Aval
from ..errors import InternalError, NoRuleError, ShapeError
from ._expr import Expr, pull, push, substitute, topological, var, variables

Value = Any
Rule = Callable[..., Any]


# ---- kernel kinds: what a backend implements ------------------------------------------


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One scalar expression at every index; operands broadcast."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Write:
    """A host kernel that writes its outputs: `fn(call, outs, ins, scratch)`.

    `scratch(shape, dtype)` hands out workspace; `scratch_nbytes(call)` bounds it.
    """

    fn: Callable[..., None]
    scratch_nbytes: Callable[[Any], int] = field(default=lambda call: 0)


@dataclass(frozen=True, slots=True)
class View:
    """A descriptor change: `fn(array, call)` gives an array over the same memory, or None
    where strides cannot express it (then the operation needs an explicit duplicate)."""

    fn: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Library:
    """A library call that returns fresh arrays: `fn(call, *ins)`; results are adopted."""

    fn: Callable[..., Any]


Kernel = Elementwise | Write | View | Library


# ---- one application ------------------------------------------------------------------


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
        self, op: Op, ins: tuple[Aval, ...], outs: tuple[Aval, ...], params: tuple[Any, ...]
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


class Op:
    """One row of the operation table."""

    __slots__ = (
        "_fused",
        "args",
        "infer",
        "is_select",
        "jvp",
        "kernel",
        "name",
        "outs",
        "params",
        "plans",
        "sample",
        "variadic",
        "vjp",
    )

    def __init__(
        self,
        name: str,
        args: Sequence[str],
        *,
        infer: Callable[..., Any],
        kernel: Kernel,
        params: Sequence[str] = (),
        outs: Sequence[str] = ("out",),
        vjp: dict[str, Rule] | None = None,
        jvp: dict[str, Rule] | None = None,
        variadic: bool = False,
        is_select: bool = False,
    ) -> None:
        self.name = name
        self.args = tuple(args)
        self.params = tuple(params)
        self.outs = tuple(outs)
        self.infer = infer
        self.kernel = kernel
        self.vjp = vjp or {}
        self.jvp = jvp or {}
        self.variadic = variadic
        self.is_select = is_select
        self.plans: dict[Any, Any] = {}
        self._fused: dict[Any, Op | None] = {}

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    def _arg_name(self, i: int) -> str:
        return self.args[0] if self.variadic else self.args[i]

    # -- reverse ------------------------------------------------------------------------

    def pull_rule(self, call: Call, i: int) -> ArgRule:
        """The reverse rule of argument i for this application.

        Raises:
            NoRuleError: the row declares none.
        """
        if isinstance(self.kernel, Elementwise):
            return self._pull_elementwise(call, i)
        rule = self.vjp.get(self._arg_name(i))
        if rule is None:
            raise NoRuleError(
                operation=self.name,
                argument=self._arg_name(i),
                found="no reverse rule",
                fix="wrap the argument in `ta.stop_gradient`, or give the operation a "
                "rule with `ta.custom_vjp`",
            )
        names = _keywords(rule)
        saves = tuple(self._position(n, i) for n in names)
        extra = (i,) if self.variadic else ()

        def fn(F: Evaluator, ct: Any, *saved: Any) -> Any:
            return rule(F, ct, call, *extra, **dict(zip(names, saved, strict=True)))

        return ArgRule(saves, fn, fn)

    def _position(self, name: str, i: int) -> int:
        if name in self.outs:
            return ~self.outs.index(name)
        if self.variadic and name == self.args[0]:
            return i
        if name in self.args:
            return self.args.index(name)
        raise InternalError(
            operation=self.name,
            argument=name,
            found="a rule that keeps a name which is neither argument nor output",
            fix=f"name one of {self.args + self.outs}",
        )

    def _pull_elementwise(self, call: Call, i: int) -> ArgRule:
        plain = self._fused_rule(call, i, "pull", strong=False)
        if plain is None:
            return ArgRule((), _no_dependence, _no_dependence)
        strong = self._fused_rule(call, i, "pull", strong=True)
        assert strong is not None
        target, out = call.ins[i], call.out
        saves = tuple(self._position(n, i) for n in plain.args[1:])
        if plain.kernel.expr.fn == "var":  # the cotangent itself: no kernel at all

            def passing(F: Evaluator, ct: Any) -> Any:
                return project(F, ct, target)

            return ArgRule(
                (), passing, passing, passes=target.same(out)
            )
        # The strong form may name its operands in another order; it reads no others.
        order = [strong.args[1:].index(n) for n in plain.args[1:]]
        if order != list(range(len(order))):
            raise InternalError(
                operation=strong.name,
                argument="saves",
                found="operands in another order than the plain rule's",
                fix="report this as a bug",
            )
        if target.shape != out.shape or target.dtype != out.dtype:

            def fn(F: Evaluator, ct: Any, *saved: Any) -> Any:
                return project(F, F[plain](ct, *saved), target)

            def fn_strong(F: Evaluator, ct: Any, *saved: Any) -> Any:
                return project(F, F[strong](ct, *saved), target)

            return ArgRule(saves, fn, fn_strong)

        return ArgRule(
            saves,
            lambda F, ct, *saved: F[plain](ct, *saved),
            lambda F, ct, *saved: F[strong](ct, *saved),
            plain,
            strong,
        )

    def _fused_rule(self, call: Call, i: int, mode: str, *, strong: bool) -> Any:
        """The derivative kernel of argument i as an operation of its own (it has rules
        again, derived the same way), or None where the derivative is zero."""
        assert isinstance(self.kernel, Elementwise)
        kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in call.ins)
        out_kind = "c" if call.out.dtype.kind == "c" else "r"
        key = (mode, i, kinds, strong)
        if key not in self._fused:
            name = self.args[i]
            expr = self.expr_of(kinds)
            row = expr.fn == self.name
            if mode == "pull":
                e = pull(expr, name, out_kind, strong=strong, keep_out=row)
            else:
                e = push(expr, name, kinds[i], keep_out=row)
            made = None
            if e is not None:
                # `ct` is the cotangent of whoever differentiates next: rename ours.
                own = "g"
                while own in self.args:
                    own += "g"
                kind = out_kind if mode == "pull" else kinds[i]
                e = substitute(e, {"ct": var(own, kind)})
                names = (own, *sorted(n for n in variables(e) if n != own))
                suffix = "" if mode == "jvp" else (".strong" if strong else "")
                made = elementwise(
                    f"{self.name}.{'vjp' if mode == 'pull' else 'jvp'}.{name}{suffix}",
                    e,
                    names,
                )
            self._fused[key] = made
        return self._fused[key]

    def expr_of(self, kinds: tuple[str, ...]) -> Expr:
        """The kernel's expression with the kinds (real, complex) of actual operands."""
        assert isinstance(self.kernel, Elementwise)
        return substitute(
            self.kernel.expr,
            {n: var(n, k) for n, k in zip(self.args, kinds, strict=True)},
        )

    # -- forward ------------------------------------------------------------------------

    def push_rule(self, call: Call, i: int) -> tuple[tuple[int, ...], Rule]:
        """The forward rule of argument i: what it reads and `fn(F, t, *read)`.

        `fn` gives the contribution of that argument's tangent to each output's tangent.
        """
        if isinstance(self.kernel, Elementwise):
            fused = self._fused_rule(call, i, "push", strong=False)
            if fused is None:
                return (), _no_dependence
            out = call.out
            if fused.kernel.expr.fn == "var":
                return (), lambda F, t: expand(F, t, out)
            reads = tuple(self._position(n, i) for n in fused.args[1:])
            return reads, lambda F, t, *read: expand(F, F[fused](t, *read), out)
        rule = self.jvp.get(self._arg_name(i))
        if rule is None:
            raise NoRuleError(
                operation=self.name,
                argument=self._arg_name(i),
                found="no forward rule",
                fix="use reverse mode, or give the operation a rule with `ta.custom_jvp`",
            )
        names = _keywords(rule)
        extra = (i,) if self.variadic else ()
        reads = tuple(self._position(n, i) for n in names)
        return reads, lambda F, t, *read: rule(
            F, t, call, *extra, **dict(zip(names, read, strict=True))
        )


def _no_dependence(F: Evaluator, ct: Any, *saved: Any) -> None:
    return None


def _keywords(rule: Rule) -> tuple[str, ...]:
    return tuple(
        n
        for n, p in inspect.signature(rule).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    )


# ---- evaluators -----------------------------------------------------------------------

OPS: Final[dict[str, Op]] = {}


def register(op: Op) -> Op:
    """Enter a row into the table; names are unique."""
    if op.name in OPS:
        raise InternalError(
            operation=op.name,
            argument="name",
            found="a second row of that name",
            fix="choose another name",
        )
    OPS[op.name] = op
    return op


class Evaluator(dict[Op, Callable[..., Any]]):
    """Computes operations: `F[op](*args, *params)`, or `F.name(...)` for table rows.

    A mapping so that rules reach a bound operation with one lookup; subclasses supply
    `bind`. `inplace` tells the sweep that it may add into cotangents that it owns.
    """

    inplace: ClassVar[bool] = False

    def bind(self, op: Op) -> Callable[..., Any]:
        """A callable that computes `op` on this evaluator's values."""
        raise NotImplementedError

    def __missing__(self, op: Op) -> Callable[..., Any]:
        fn = self[op] = self.bind(op)
        return fn

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            fn = self[OPS[name]]
        except KeyError:
            raise AttributeError(f"no operation is called `{name}`") from None
        setattr(self, name, fn)
        return fn


# ---- helpers that rules share ---------------------------------------------------------


def project(F: Evaluator, g: Any, target: Aval) -> Any:
    """Bring a cotangent back to the aval of the argument: the adjoint of broadcasting and
    of promotion (sum over broadcast axes, real part, cast)."""
    if g is None:
        return None
    aval = g.aval
    if aval.shape != target.shape:
        lead = aval.ndim - target.ndim
        axes = tuple(range(lead)) + tuple(
            lead + k
            for k, n in enumerate(target.shape)
            if n == 1 and aval.shape[lead + k] != 1
        )
        if axes:
            g = F.sum(g, axes, False)
        if g.aval.shape != target.shape:
            g = F.reshape(g, target.shape)
    if aval.dtype != target.dtype:
        if aval.dtype.kind == "c" and target.dtype.kind != "c":
            g = F.real(g)
        if g.aval.dtype != target.dtype:
            g = F.astype(g, target.dtype)
    return g


def expand(F: Evaluator, t: Any, out: Aval) -> Any:
    """Bring a tangent to the aval of the result: broadcasting and promotion."""
    if t.aval.dtype != out.dtype:
        t = F.astype(t, out.dtype)
    if t.aval.shape != out.shape:
        t = F.broadcast_to(t, out.shape)
    return t


# ---- elementwise rows -----------------------------------------------------------------


def elementwise(
    name: str, expr: Expr, args: Sequence[str], *, is_select: bool = False
) -> Op:
    """An elementwise operation: its derivatives follow from the expression."""

    def infer(*ins: Aval) -> tuple[tuple[int, ...], np.dtype[Any]]:
        shape = broadcast_shapes(name, *(a.shape for a in ins))
        kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in ins)
        return shape, expr_dtype(op.expr_of(kinds), dict(zip(args, ins, strict=True)))

    # A derivative kernel may read an operand called `out`, the value it belongs to.
    op = Op(
        name,
        args,
        infer=infer,
        kernel=Elementwise(expr),
        outs=("value",) if "out" in args else ("out",),
        is_select=is_select,
    )
    return op


def broadcast_shapes(name: str, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of operands.

    Raises:
        ShapeError: names the operation and both shapes.
    """
    out: list[int] = []
    for shape in shapes:
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        for k in range(1, len(shape) + 1):
            n = shape[-k]
            if n != 1 and n != out[-k]:
                if out[-k] != 1:

                    raise ShapeError(
                        operation=name,
                        argument="shapes",
                        found=" and ".join(map(str, shapes)),
                        fix="make them equal, or 1, along each axis counted from the "
                        "right (`reshape`, `expand_dims`)",
                    )
                out[-k] = n
    return tuple(out)


_INT_TO_FLOAT: Final = np.dtype(np.float64)
_BOOL: Final = np.dtype(np.bool_)
# Functions whose value on integers is an integer.
INTEGER_CLOSED: Final[set[str]] = set()


def expr_dtype(expr: Expr, ins: dict[str, Aval]) -> np.dtype[Any]:
    """Result dtype: promotion of the operands that the value is made of."""
    dtypes: dict[Expr, Any] = {}

    for node in topological(expr):
        if node.fn == "var":
            dtypes[node] = ins[node.name].dtype
        elif node.fn == "const":
            dtypes[node] = node.value
        else:
            dtypes[node] = node_dtype(node, [dtypes[a] for a in node.args])
    found = dtypes[expr]
    return found if isinstance(found, np.dtype) else np.result_type(found)


def node_dtype(node: Expr, dtypes: list[Any]) -> Any:
    """Dtype of one scalar function; Python numbers among `dtypes` are weak."""
    if node.kind == "b":
        return _BOOL
    if node.fn == "select":
        dtypes = dtypes[1:]
    weak = [d for d in dtypes if not isinstance(d, np.dtype)]
    if len(weak) == len(dtypes):
        return sum(weak) if weak else 0.0
    dtype = np.result_type(*dtypes)
    if node.fn not in INTEGER_CLOSED and dtype.kind in "biu":
        dtype = _INT_TO_FLOAT
    if node.kind == "r" and dtype.kind == "c":
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    elif node.kind == "c" and dtype.kind != "c":
        dtype = np.result_type(dtype, np.complex64)
    return dtype


