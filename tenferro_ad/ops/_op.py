"""Operations: one row each, holding meaning, kernel, derivatives and retention.

An `Op` says what an operation is: its arguments, how the result's aval follows from
theirs (`infer`), its kernel as data (a kind that every backend implements), one VJP and
one JVP for each argument (or one for all of them, see `_joint`), and how many
applications become one (`batch`, see `_batching`). The keyword-only parameters of an
argument's rule *are* what that rule keeps: nothing else declares retention, so
retention cannot drift from the rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..errors import InternalError, NoRuleError, ShapeError
from ._batching import BatchRule
from ._body import Body, RegionHost
from ._call import Applied, ArgRule, Call, Rule, RuleSpec
from ._evaluator import OPS, Evaluator, expand, project, register
from ._expr import Expr
from ._form import Form
from ._joint import keywords

if TYPE_CHECKING:
    from ._program import Program

__all__ = [
    "OPS",
    "Call",
    "Elementwise",
    "Evaluator",
    "Kernel",
    "Library",
    "Move",
    "Op",
    "Region",
    "RuleSpec",
    "View",
    "Write",
    "broadcast_shapes",
    "expand",
    "project",
    "register",
]


@dataclass(frozen=True, slots=True)
class Elementwise:
    """One scalar expression at every index; operands broadcast."""

    expr: Expr


@dataclass(frozen=True, slots=True)
class Write:
    """A host kernel that writes its outputs: `fn(call, outs, ins)`.

    `scratch_nbytes(call)` bounds its workspace. `check(call, ins)` refuses values (an
    index out of range) before anything is allocated. `add(call, target, ins)` adds the
    only output to an array, for kernels that need not visit all of it. `source(call)`
    gives the kernel as one NumPy call over `{0}`, `{1}` that also takes the output as
    its last argument, or None where it is more than that. `added(call)` gives the call
    that adds the output to `{t}`, and its function `{f}`, for row-major operands and
    targets; or None. `layout_nbytes(*arrays)` is the further workspace for operands
    whose strides its library cannot read.
    `form(k, call)` describes the kernel for devices (`_form`); calls of LAPACK have
    none.
    """

    fn: Callable[..., None]
    scratch_nbytes: Callable[[Any], int] = field(default=lambda call: 0)
    check: Callable[..., None] | None = None
    add: Callable[..., None] | None = None
    source: Callable[[Any], str | None] = field(default=lambda call: None)
    added: Callable[[Any], tuple[str, Any] | None] = field(default=lambda call: None)
    layout_nbytes: Callable[..., int] | None = None
    form: Form | None = None


@dataclass(frozen=True, slots=True)
class View:
    """A descriptor change: `fn(array, call)` gives an array over the bytes (a tuple
    of them for several outputs), or None where strides cannot express it. Then the
    elements are laid out in row-major order by an explicit duplicate or, if the row
    says so, by writing an ordinary output."""

    fn: Callable[..., Any]
    otherwise: Literal["duplicate", "write"] = "duplicate"


@dataclass(frozen=True, slots=True)
class Move:
    """The elements go to another device, which the row's one parameter names: an
    explicit, recorded transfer."""


@dataclass(frozen=True, slots=True)
class Library:
    """A library call giving fresh arrays: `fn(call, *ins)`; results are adopted.

    `scratch_nbytes(call)` bounds what else the library allocates.
    """

    fn: Callable[..., Any]
    scratch_nbytes: Callable[[Any], int] = field(default=lambda call: 0)


@dataclass(frozen=True, slots=True)
class Region:
    """A kernel made of operations: `fn(host, call, operands) -> outputs`.

    It runs bodies (programs that are parameters) with the operations of the device;
    `host` is what it may ask of the run time (see `RegionHost`). `sources(call)` lists
    the bodies and where their inputs come from: i >= 0 operand i, ~i one entry of
    operand i, None an operand or an output of the body's last run, in row-major order.
    """

    fn: Callable[[RegionHost, Call, Sequence[Any]], list[Any]]
    sources: Callable[[Call], list[tuple[Body, list[int | None]]]]


Kernel = Elementwise | Write | View | Library | Move | Region


class Op:
    """One row of the operation table."""

    __slots__ = (
        "args",
        "batch",
        "infer",
        "inlines",
        "is_select",
        "joint",
        "joint_jvp",
        "joint_keeps",
        "joint_strong",
        "jvp",
        "kernel",
        "kink",
        "many_outs",
        "name",
        "outs",
        "params",
        "plans",
        "recorded",
        "short",
        "stops",
        "unruled",
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
        joint: Rule | None = None,
        joint_keeps: Callable[[Call, tuple[int, ...]], Iterable[int]] | None = None,
        joint_strong: Rule | None = None,
        joint_jvp: Rule | None = None,
        recorded: Callable[[Call, int], tuple[Op, tuple[Any, ...]]] | None = None,
        batch: BatchRule | None = None,
        variadic: bool = False,
        many_outs: bool = False,
        is_select: bool = False,
        stops: bool = False,
        unruled: Callable[[Call], Program | None] | None = None,
        inlines: Callable[[Call], Program] | None = None,
        short: Callable[[Call, str], Any] | None = None,
        kink: str = "",
    ) -> None:
        self.name = name
        self.args = tuple(args)
        self.params = tuple(params)
        self.outs = tuple(outs)
        self.infer = infer
        self.kernel = kernel
        self.vjp = vjp or {}
        self.jvp = jvp or {}
        # Rules for all arguments together, in the place of `vjp` and `jvp` (`_joint`).
        self.joint, self.joint_keeps, self.joint_jvp = joint, joint_keeps, joint_jvp
        self.joint_strong = joint_strong
        if (joint and vjp) or (joint_jvp and jvp):
            raise InternalError(
                operation=name,
                argument="joint",
                found="a joint rule and rules for single arguments",
                fix="declare one of them",
            )
        # `recorded(call, mask)`: operation and parameters of the application that a
        # reverse recording of the arguments in `mask` computes instead. Its outputs are
        # the call's and, after them, what the rules read besides.
        self.recorded = recorded
        # `unruled(call)`, for functions with a rule of their own: the program whose
        # operations recordings see around the one that takes the rule.
        # `inlines(call)`: the program that compiled programs have in its place.
        self.unruled, self.inlines = unruled, inlines
        self.batch = batch
        # Variadic: the one name of `args` stands for all operands; `many_outs`: that of
        # `outs` for all outputs, however many there are.
        self.variadic, self.many_outs = variadic, many_outs
        self.is_select = is_select
        # No recording follows a derivative through it: the result is a constant.
        self.stops = stops
        # `short(call, arg)`: where an argument's rule is a single operation with
        # nothing to adjust, its name, operands ("ct" or saved names) and parameters.
        self.short = short
        # Where the derivative is a convention, and which (`_conventions`).
        self.kink = kink
        self.plans: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"<op {self.name}>"

    @property
    def gives_views(self) -> bool:
        """Outputs may share memory with operands."""
        return isinstance(self.kernel, View)

    def _arg_name(self, i: int) -> str:
        return self.args[0] if self.variadic else self.args[i]

    # -- reverse -----------------------------------------------------------------------

    def pull_rule(self, call: Call, i: int) -> ArgRule:
        """The reverse rule of argument i for this application.

        Raises:
            NoRuleError: the row declares none.
        """
        short = None if self.short is None else self.short(call, self._arg_name(i))
        if short is not None:
            return self._short_rule(i, *short)
        rule = self.vjp.get(self._arg_name(i))
        if rule is None:
            raise NoRuleError(
                operation=self.name,
                argument=self._arg_name(i),
                found="no reverse rule",
                fix="wrap the argument in `ta.stop_gradient` if it is meant to be a "
                "constant",
            )
        names = keywords(rule)
        saves = tuple(self.position(n, i) for n in names)
        extra = (i,) if self.variadic else ()

        def fn(F: Evaluator, ct: Any, *saved: Any) -> Any:
            return rule(F, ct, call, *extra, **dict(zip(names, saved, strict=True)))

        return ArgRule(saves, fn, fn)

    def _short_rule(
        self, i: int, name: str, operands: tuple[str, ...], params: tuple[Any, ...] = ()
    ) -> ArgRule:
        kept = [n for n in operands if n != "ct"]
        applied = Applied(
            OPS[name],
            tuple(-1 if n == "ct" else kept.index(n) for n in operands),
            params,
        )
        return ArgRule.of(tuple(self.position(n, i) for n in kept), applied, applied)

    def position(self, name: str, i: int) -> int:
        """Where the rule of argument i finds a name: i >= 0 input i, ~j output j."""
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

    # -- forward -----------------------------------------------------------------------

    def push_rule(self, call: Call, i: int) -> tuple[tuple[int, ...], Rule]:
        """The forward rule of argument i: what it reads and `fn(F, t, *read)`.

        `fn` gives the contribution of that argument's tangent to each output's tangent.
        """
        rule = self.jvp.get(self._arg_name(i))
        if rule is None:
            raise NoRuleError(
                operation=self.name,
                argument=self._arg_name(i),
                found="no forward rule",
                fix="use reverse mode, or take `ta.stop_gradient` of the argument",
            )
        names = keywords(rule)
        extra = (i,) if self.variadic else ()
        reads = tuple(self.position(n, i) for n in names)
        return reads, lambda F, t, *read: rule(
            F, t, call, *extra, **dict(zip(names, read, strict=True))
        )

    # -- batches -----------------------------------------------------------------------

    def batch_rule(self) -> BatchRule:
        """How many applications are computed as one (see `_batching`).

        Raises:
            NoRuleError: the row declares none.
        """
        if self.batch is None:
            raise NoRuleError(
                operation=self.name,
                argument="batch",
                found="no batching rule",
                fix="map over the examples in Python, or register the operation with "
                "`batch=`",
            )
        return self.batch


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
                        found="shapes " + " and ".join(map(str, shapes)),
                        fix="make them equal, or 1, along each axis counted from the "
                        "right (`reshape`, `expand_dims`)",
                    )
                out[-k] = n
    return tuple(out)
