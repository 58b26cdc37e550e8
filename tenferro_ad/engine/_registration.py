"""`ta.register_op`: operations of users, in the form of the package's own.

A registered operation is a row like those of the operation table: recorded, traced,
compiled, batched and accounted by the same code. Its rules are held to one promise more
while they run: they compute from what they name and from the cotangent or tangent that
they are given, so that nothing is kept but what they declare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace as replaced
from functools import wraps
from typing import Any, Final, final

import numpy as np

from .._ledger import STATE
from ..errors import DTypeError, InvalidArgumentError, a_kind
from ..ops import Library, Op, View, Write, forget_bodies, keywords
from ..runtime import DIRECT, forget_graphs
from ._dispatch import HANDLES
from ._user_rules import Rule, guarded, shape_rule

_registered: Final[dict[str, Operation]] = {}


@final
class Operation:
    """A registered operation: a function of tensors.

    Attributes:
        op: the row; rules of other operations apply it as `F[operation.op](...)`.
        name: its name.
        doc: what it says of itself.
    """

    __slots__ = ("_count", "_defaults", "_fn", "doc", "name", "op")

    def __init__(self, op: Op, defaults: Mapping[str, Any], doc: str | None) -> None:
        self.op, self.name, self._defaults = op, op.name, defaults
        self._fn = HANDLES[op]
        self._count = 1 if op.variadic else len(op.args)
        self.doc = doc

    def __call__(self, *args: Any, **params: Any) -> Any:
        """Apply it: operands, then parameters by position or name.

        Raises:
            InvalidArgumentError: operands or parameters that it has not, or a parameter
                that cannot be compared.
            and what its shape rule and kernel raise.

        Cost: as its kernel; no copies but those it makes.
        """
        if not self.op.params and not params and len(args) == self._count:
            return self._fn(*args)
        return self._fn(*args[: self._count], *self._parameters(args, params))

    def _parameters(
        self, args: tuple[Any, ...], params: dict[str, Any]
    ) -> tuple[Any, ...]:
        names = self.op.params
        given = dict(zip(names, args[self._count :], strict=False))
        unknown = [n for n in params if n not in names or n in given]
        missing = [
            n
            for n in names
            if n not in given and n not in params and n not in self._defaults
        ]
        if not self._count <= len(args) <= self._count + len(names):
            found = f"{len(args)} positional arguments"
        elif unknown:
            found = f"the parameter `{unknown[0]}`, which it has not, or has already"
        elif missing:
            found = f"no parameter `{missing[0]}`"
        else:
            full = {**self._defaults, **given, **params}
            return tuple([_comparable(self.name, n, full[n]) for n in names])
        operands = ", ".join(self.op.args) + (", ..." if self.op.variadic else "")
        raise InvalidArgumentError(
            operation=self.name,
            argument="arguments",
            found=found,
            fix=f"call it with ({operands}{''.join(f', {n}=' for n in names)})",
        )

    def __repr__(self) -> str:
        return f"<operation {self.name}>"


def _comparable(operation: str, name: str, value: Any) -> Any:
    """A parameter in the form in which plans find it again.

    Raises:
        InvalidArgumentError: it cannot be compared by value.
    """
    if isinstance(value, list | tuple):
        return tuple([_comparable(operation, name, v) for v in value])
    if isinstance(value, np.generic):
        return value.item()
    try:
        hash(value)
    except TypeError:
        raise InvalidArgumentError(
            operation=operation,
            argument=name,
            found=f"{a_kind(value)}, which is no parameter",
            fix="pass numbers, strings, dtypes or tuples; arrays are operands",
        ) from None
    return value


def register_op(
    name: str,
    args: Sequence[str],
    *,
    shapes: Callable[..., Any],
    kernel: Any,
    params: Sequence[str] | Mapping[str, Any] = (),
    outs: Sequence[str] = ("out",),
    vjp: Mapping[str, Rule] | None = None,
    jvp: Mapping[str, Rule] | None = None,
    joint: Rule | None = None,
    joint_keeps: Callable[..., Any] | None = None,
    joint_jvp: Rule | None = None,
    batch: Callable[..., Any] | None = None,
    variadic: bool = False,
    doc: str | None = None,
    replace: bool = False,
) -> Operation:
    """A new operation, as a function of tensors.

    It is recorded by tapes, traced, compiled, checkpointed and mapped over examples
    like every other operation; `ta.testing.check_op` checks all of its promises.

    Args:
        name: `library.operation`; unique.
        args: names of the operands. With `variadic` one name for any number of them.
        shapes: `shapes(*operands, *params) -> (shape, dtype)`, or a list of such pairs
            for several outputs. Operands have `shape`, `dtype`, `ndim` and `size`;
            raises a `ta.errors` class for those that it does not take.
        kernel: `kernel(call, outs, ins)` writes NumPy arrays `outs`, which are given
            unwritten; or a kernel of `ta.extension` (`Write` with scratch, `Library`,
            `View`). `call` has the forms `ins` and `outs`, and each parameter by name.
        params: names of the parameters, or a mapping of names to defaults. They are
            compared by value: numbers, strings, dtypes, tuples.
        outs: names of the outputs.
        vjp: for each differentiable operand a rule `rule(F, ct, call, *, names)` that
            gives its cotangent: operations of `F` on values, so that it can be
            differentiated again. The keyword-only names, of operands and outputs, are
            what the rule reads, and so what a tape keeps (`saves`). `ct` is a tuple
            with None entries where there are several outputs. With `variadic` the rule
            also gets the position of its operand, after `call`.
        jvp: the same forward: `rule(F, t, call, *, names)` gives the operand's
            contribution to the outputs' tangents.
        joint, joint_jvp: one rule for all operands in their place:
            `rule(F, cts, call, tracked, *, names)` and `rule(F, ts, call, *, names)`.
        joint_keeps: `joint_keeps(call, tracked)` gives the positions (i an operand, ~j
            an output) that a variadic joint rule reads for these operands, where it
            does not read all that it names.
        batch: `rule(F, call, size, xs, batched)` for many examples at once; see
            `ta.extension`.
        variadic: the operation takes one sequence of operands.
        doc: what `operation.doc` says.
        replace: take the place of an operation of this name.

    Raises:
        DTypeError: an argument of another type than named here.
        InvalidArgumentError: a name without a library, or one that is taken; rules for
            operands, or names in rules, that the operation has not; joint rules beside
            others.

    Raises (when a derivative is taken):
        UndeclaredSaveError: a rule reads a value that it does not name.
        NoRuleError: the operation has no such rule.

    Cost: constant. A call costs its kernel and what every operation costs; rules cost a
        look at each operand besides.
    """
    _check_name(name, replace=replace)
    args, outs = _names_of(args, "args"), _names_of(outs, "outs")
    if not isinstance(params, Mapping):
        params = _names_of(params, "params")
    for argument, table in (("vjp", vjp), ("jvp", jvp)):
        if table is not None and not isinstance(table, Mapping):
            raise _wrong(argument, table, "give a mapping of operands to rules")
    functions = {
        "shapes": shapes,
        "joint": joint,
        "joint_keeps": joint_keeps,
        "joint_jvp": joint_jvp,
        "batch": batch,
    }
    for argument, found in functions.items():
        needed = argument == "shapes"
        if not callable(found) and (needed or found is not None):
            raise _wrong(argument, found, "give a function")
    rules = {"vjp": dict(vjp or {}), "jvp": dict(jvp or {})}
    for kind, table in rules.items():
        for arg, rule in table.items():
            _check_rule(name, f"{kind}[{arg!r}]", arg, rule, args, outs)
            table[arg] = guarded(name, f"{kind}[{arg!r}]", rule)
    together = {"joint": joint, "joint_jvp": joint_jvp}
    for kind, found in together.items():
        if found is not None:
            _check_rule(name, kind, args[0], found, args, outs)
            together[kind] = guarded(name, kind, found)
    if (joint and vjp) or (joint_jvp and jvp):
        raise InvalidArgumentError(
            operation="register_op",
            argument="joint",
            found="a joint rule and rules for single operands",
            fix="give one of them",
        )
    defaults = dict(params) if isinstance(params, Mapping) else {}
    op = Op(
        name,
        args,
        infer=shape_rule(name, shapes, len(outs)),
        kernel=_kernel_of(kernel),
        params=tuple(params),
        outs=outs,
        vjp=rules["vjp"],
        jvp=rules["jvp"],
        joint=together["joint"],
        joint_keeps=joint_keeps,
        joint_jvp=together["joint_jvp"],
        batch=batch,
        variadic=variadic,
    )
    if name in _registered:
        forget_op(name)
    made = _registered[name] = Operation(op, defaults, doc)
    return made


def _names_of(given: Any, argument: str) -> tuple[str, ...]:
    """Names as a tuple.

    Raises:
        DTypeError: something else than a sequence of strings.
    """
    if isinstance(given, list | tuple) and all(isinstance(n, str) for n in given):
        return tuple(given)
    raise _wrong(argument, given, "give a tuple of names")


def _wrong(argument: str, given: Any, fix: str) -> DTypeError:
    return DTypeError(
        operation="register_op",
        argument=argument,
        found=a_kind(given),
        fix=fix,
    )


def forget_op(name: str) -> None:
    """Let go of a registered operation; who holds it may go on using it.

    Raises:
        InvalidArgumentError: no operation of this name.

    Cost: constant; compiled programs of any function are made again when they are used.
    """
    made = _registered.pop(name, None)
    if made is None:
        raise InvalidArgumentError(
            operation="forget_op",
            argument="name",
            found=f"{name!r}, which is not registered",
            fix="give the name of `ta.register_op`",
        )
    for evaluator in (HANDLES, DIRECT):
        evaluator.pop(made.op, None)
    # Programs that apply it are found again by their structure; they can be made again.
    forget_graphs()
    forget_bodies()


def operation_of(x: Any) -> Op:
    """The row of a registered operation.

    Raises:
        InvalidArgumentError: no operation.
    """
    if isinstance(x, Operation):
        return x.op
    if isinstance(x, Op):
        return x
    raise InvalidArgumentError(
        operation="check_op",
        argument="op",
        found=a_kind(x),
        fix="pass what `ta.register_op` gave",
    )


def _kernel_of(kernel: Any) -> Any:
    if isinstance(kernel, View):
        return kernel
    if isinstance(kernel, Write | Library):
        return replaced(kernel, fn=_apart(kernel.fn))
    if not callable(kernel):
        raise InvalidArgumentError(
            operation="register_op",
            argument="kernel",
            found=a_kind(kernel),
            fix="give a function `kernel(call, outs, ins)`, or a kernel of "
            "`ta.extension`",
        )
    return Write(_apart(kernel))


def _apart(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that may apply operations: no recording sees them."""

    @wraps(fn)
    def run(*facts: Any) -> Any:
        state = STATE.get()
        try:
            STATE.set(state.at(None))
            return fn(*facts)
        finally:
            STATE.set(state)

    return run


def _check_name(name: str, *, replace: bool) -> None:
    if not isinstance(name, str):
        raise _wrong("name", name, "give a string: `library.operation`")
    parts = name.split(".")
    if len(parts) < 2 or not all(part.isidentifier() for part in parts):
        raise InvalidArgumentError(
            operation="register_op",
            argument="name",
            found=f"{name!r}",
            fix="name it after its library: `library.operation`",
        )
    if name in _registered and not replace:
        raise InvalidArgumentError(
            operation="register_op",
            argument="name",
            found=f"{name!r}, which is registered already",
            fix="choose another name, or pass `replace=True`",
        )


def _check_rule(
    name: str,
    where: str,
    arg: str,
    rule: Rule,
    args: tuple[str, ...],
    outs: tuple[str, ...],
) -> None:
    known = (*args, *outs)
    wrong = [n for n in keywords(rule) if n not in known]
    if arg not in args or wrong:
        raise InvalidArgumentError(
            operation="register_op",
            argument=where,
            found=f"a rule of `{name}` that names `{(wrong or [arg])[0]}`",
            fix=f"name operands and outputs: {', '.join(known)}",
        )
