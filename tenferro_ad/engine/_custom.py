"""`ta.custom_vjp` and `ta.custom_jvp`: functions with derivative rules of their own.

In eager work the user's functions run as they are. The innermost recording that tracks
an argument takes the rule; recordings outside see the operations that the rule is made
of, so any order of derivative works. In traced functions and checkpointed regions the
function and its rules are traced into one operation (`ops/_custom.py`).
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial, reduce, update_wrapper
from typing import Any, final

import optree

from .._aval import Aval, is_inexact
from .._ledger import STATE
from ..errors import InvalidArgumentError
from ..ops import CUSTOM_VJP, Body, beyond, closes_over, evaluate, is_read, no_forward
from ._bodies import unflatten
from ._custom_arguments import Arguments
from ._custom_levels import guarded, outside, recorded, tracking_level
from ._custom_rows import Residuals, jvp_row, pair_of, vjp_row
from ._dispatch import HANDLES, apply
from ._eager import EagerTensor
from ._make import as_tensor
from ._pytrees import NAMESPACE, flatten, need_callable, numbers_of, zeros_for

Function = Callable[..., Any]


class _Custom(ABC):
    """A function, and which of its positional arguments are fixed."""

    def __init__(self, f: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        kind = type(self).__name__
        need_callable(kind, f)
        update_wrapper(self, f)
        self._f = f
        self._fixed = numbers_of(nondiff_argnums, kind, "nondiff_argnums")
        self.name = getattr(f, "__name__", type(f).__name__)
        self._signature = _signature(f)

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Apply the function."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else partial(self, instance)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
        full = self._positional(args, kwargs)
        fixed = {n % len(full) for n in self._fixed if -len(full) <= n < len(full)}
        if len(fixed) != len(self._fixed):
            raise InvalidArgumentError(
                operation=self.name,
                argument="nondiff_argnums",
                found=f"{self._fixed} for a call with {len(full)} arguments",
                fix="name positional arguments of the function",
            )
        return Arguments(self.name, full, fixed)

    def _positional(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        """All arguments by position, defaults filled in."""
        if self._signature is None:
            return list(args)
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.kwargs:
            raise InvalidArgumentError(
                operation=self.name,
                argument=next(iter(bound.kwargs)),
                found="a keyword-only argument of a function with a rule of its own",
                fix="make it positional, so that the rule can name it",
            )
        return list(bound.args)

    def _missing(self, how: str) -> InvalidArgumentError:
        return InvalidArgumentError(
            operation=self.name,
            argument=how,
            found="a function whose rule was not given",
            fix=f"call `{self.name}.{how}(...)` first",
        )


def _signature(f: Function) -> inspect.Signature | None:
    try:
        return inspect.signature(f)
    except (TypeError, ValueError):
        return None


@final
class custom_vjp(_Custom):
    """A function with a reverse rule of its own.

        @ta.custom_vjp
        def f(x, y):
            return x * x + ta.floor(y)

        def fwd(x, y):
            return f(x, y), (x,)  # the value, and what `bwd` needs

        def bwd(res, ct):
            return 2.0 * ct * res[0], None  # one for each argument; None is zero

        f.defvjp(fwd, bwd)

    Args:
        f: a function of tensors and pytrees of tensors.
        nondiff_argnums: positional argument(s) that have no derivative and may be
            anything; `bwd` gets them first.

    Raises:
        DTypeError: `f` cannot be called, or a position is no integer.

    Raises (when called):
        InvalidArgumentError: no rule was given; `fwd` gives no pair, or another
            structure than `f`; `bwd` gives no tuple with one entry for each argument,
            or an entry of another structure; the function closes over a value that is
            differentiated.
        ShapeError, DTypeError: what a rule gives has another shape or dtype.
        NoRuleError: forward mode.

    A gradient of a complex argument follows Re(conj(a) b), as everywhere.

    Cost: nothing but what the functions do. A recording keeps the tensors among the
        residuals. In traced functions and checkpoints all three are traced.
    """

    def __init__(self, f: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(f, nondiff_argnums)
        self._rules: tuple[Function, Function] | None = None

    def defvjp(self, fwd: Function, bwd: Function) -> None:
        """Give the rule: `fwd(*args) -> (out, residuals)`, `bwd(residuals, ct)`.

        Raises:
            DTypeError: one of them cannot be called. What they give is checked when
                they run.

        Cost: constant.
        """
        need_callable("defvjp", fwd, "fwd")
        need_callable("defvjp", bwd, "bwd")
        self._rules = fwd, bwd

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rules is None:
            raise self._missing("defvjp")
        fwd, bwd = self._rules
        given = self._given(args, kwargs)
        state = STATE.get()
        level, tensors, nodes = tracking_level(state, given.tensors, self.name)
        if level is None and state.trace is None:
            return self._f(*given.all(given.tensors))
        if level is None or level.records_all:
            return vjp_row(self.name, self._f, fwd, bwd, given)
        if not level.pulls:
            raise no_forward(self.name)
        return self._recorded(level, tensors, nodes, given)

    def _recorded(
        self, level: Any, tensors: list[Any], nodes: list[Any], given: Arguments
    ) -> Any:
        """One equation of `level`."""
        assert self._rules is not None
        fwd, bwd = self._rules
        name, forms = self.name, given.forms
        inner = given.all([outside(level, x) for x in tensors])

        def forward() -> Any:
            out, res = pair_of(name, "fwd", fwd(*inner))
            outs, out_def = flatten(out)
            return [as_tensor(y) for y in outs], out_def, Residuals(res)

        outs, out_def, residuals = guarded(level, name, forward)
        inner.clear()
        avals = [y.aval for y in outs]

        def pull(cts: list[Any], saved: list[Any]) -> list[Any]:
            tree = unflatten(out_def, _filled(avals, cts))
            return forms.cotangents(bwd(*forms.fixed, residuals.tree(saved), tree))

        made = recorded(
            level, name, tensors, nodes, outs, residuals.take(), residuals.names, pull
        )
        return unflatten(out_def, made)


def _filled(avals: list[Aval], cts: list[Any]) -> list[Any]:
    """A cotangent for each output: zeros where nothing depends on it, None where it
    carries no derivative."""
    rest = iter(cts)
    found: list[Any] = []
    for a in avals:
        ct = next(rest) if is_inexact(a.dtype) else None
        if ct is None and is_inexact(a.dtype):
            ct = HANDLES.full(a.shape, a.dtype, 0, a.device)
        found.append(ct)
    return found


def _on_handles(
    operands: tuple[EagerTensor, ...],
    name: str,
    primal: Body,
    fwd: Body | None,
    bwd: Body | None,
    args: int,
    gives: tuple[int, ...],
) -> Any:
    """The row on handles: recordings take the rule as they do in eager work."""
    params = (name, primal, fwd, bwd, args, gives)
    level, tensors, nodes = tracking_level(STATE.get(), operands, name)
    if level is None or level.records_all:
        return apply(CUSTOM_VJP, operands, params)
    if not level.pulls:
        raise no_forward(name)
    if any(n is not None for n in nodes[args:]):
        raise closes_over(name)
    if fwd is None or bwd is None:
        raise beyond(name)
    inner = [outside(level, x) for x in tensors]
    found = guarded(level, name, partial(evaluate, fwd.program, HANDLES, inner))
    k = len(primal.program.outputs)
    avals = primal.program.out_avals
    # What `bwd` reads: residuals, and what it closes over.
    read = [i for i, r in enumerate(is_read(bwd.program)[: len(inner)]) if r]
    residuals = [*found[k:], *[inner[i] for i in read]]
    names = [f"residual {j}" for j in range(len(found) - k)]
    names += [f"operands[{i}]" for i in read]
    outs, n, m = found[:k], len(inner), len(found) - k
    del found, inner

    def pull(cts: list[Any], saved: list[Any]) -> list[Any]:
        known: list[Any] = [None] * n
        for i, x in zip(read, saved[m:], strict=True):
            known[i] = x
        seeds = [ct for ct in _filled(list(avals), cts) if ct is not None]
        gs = evaluate(bwd.program, HANDLES, [*known, *saved[:m], *seeds])
        by_place = dict(zip(gives, gs, strict=True))
        return [by_place.get(i) for i in range(n)]

    made = recorded(level, name, tensors, nodes, outs, residuals, names, pull)
    return tuple(made) if k > 1 else made[0]


HANDLES[CUSTOM_VJP] = _on_handles


# ---- forward rules -------------------------------------------------------------------


@final
class custom_jvp(_Custom):
    """A function with a forward rule of its own; reverse mode transposes it.

        @ta.custom_jvp
        def f(x, y):
            return ta.sin(x) + ta.floor(y)

        @f.defjvp
        def rule(primals, tangents):
            x, y = primals
            return f(x, y), tangents[0] * ta.cos(x)

    Args:
        f: a function of tensors and pytrees of tensors.
        nondiff_argnums: positional argument(s) that have no derivative and may be
            anything; the rule gets them first.

    The rule gives the output and its tangent, which must be linear in the tangents. It
    gets a tangent for each argument (zeros where nothing depends on it, None for
    integers).

    Raises:
        DTypeError: `f` cannot be called, or a position is no integer.

    Raises (when called):
        InvalidArgumentError: no rule was given; it gives no pair, another structure
            than `f`, or tangents that are not linear; the function closes over a value
            that is differentiated.
        ShapeError, DTypeError: what the rule gives has another shape or dtype.
        TracedConversionError: under a derivative, Python asks for a value inside.

    Cost: nothing but what the function does. Under a derivative the function and its
        rule are traced; a recording keeps the operands that the transposed rule reads,
        and backward computes from them.
    """

    def __init__(self, f: Function, nondiff_argnums: int | Sequence[int] = ()) -> None:
        super().__init__(f, nondiff_argnums)
        self._rule: Function | None = None

    def defjvp(self, rule: Function) -> Function:
        """Give the rule: `rule(primals, tangents) -> (out, tangent_out)`; returns it.

        Raises:
            DTypeError: it cannot be called. What it gives is checked when it runs.

        Cost: constant.
        """
        need_callable("defjvp", rule, "rule")
        self._rule = rule
        return rule

    def defjvps(self, *rules: Function | None) -> None:
        """Give a rule for each argument: `rule(tangent, out, *primals)` is what its
        tangent adds to that of the output; None where nothing depends on it.

        Raises:
            DTypeError: one of them cannot be called. What they give is checked when
                they run.
            InvalidArgumentError: some argument is fixed (`nondiff_argnums`).

        Cost: constant.
        """
        for k, each in enumerate(rules):
            if each is not None:
                need_callable("defjvps", each, f"rules[{k}]")
        if self._fixed:
            raise InvalidArgumentError(
                operation=self.name,
                argument="defjvps",
                found=f"fixed arguments (`nondiff_argnums={self._fixed}`)",
                fix="give one rule for all: `defjvp`",
            )

        def rule(primals: Any, tangents: Any) -> Any:
            out = self(*primals)
            if len(rules) != len(primals):
                raise InvalidArgumentError(
                    operation=self.name,
                    argument="defjvps",
                    found=f"{len(rules)} rules for {len(primals)} arguments",
                    fix="give one for each argument, or None",
                )
            parts = [
                each(t, out, *primals)
                for each, t in zip(rules, tangents, strict=True)
                if each is not None and t is not None
            ]
            if not parts:
                outs, out_def = flatten(out)
                return out, unflatten(out_def, [zeros_for(as_tensor(y)) for y in outs])
            add = partial(optree.tree_map, HANDLES.add, namespace=NAMESPACE)
            return out, reduce(add, parts)

        self._rule = rule

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._rule is None:
            raise self._missing("defjvp")
        given = self._given(args, kwargs)
        state = STATE.get()
        level, _, _ = tracking_level(state, given.tensors, self.name)
        if level is None and state.trace is None:
            return self._f(*given.all(given.tensors))
        return jvp_row(self.name, self._f, self._rule, given)
