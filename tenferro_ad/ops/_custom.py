"""Functions with rules of their own as operations, as traced programs hold them.

Operands are (arguments | what the function and its rules close over). `custom_vjp` has
three bodies: the function, `fwd` (operands to outputs and residuals) and `bwd`
(operands, residuals and cotangents of the outputs to cotangents of arguments).
`custom_jvp` has the function and its rule (operands and tangents to outputs and their
tangents), which must be linear in the tangents: reverse mode transposes it.

Recordings that take a rule run `fwd` in the place of the function and keep residuals:
handles in `engine/_custom.py`, regions that run again by `FORWARD`. Recordings around
them see the operations of `fwd` and `bwd`. Operands that are closed over have no
derivative; where they would need one, a typed error says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .._aval import Aval, aval_of, is_inexact
from ..errors import InvalidArgumentError, NoRuleError
from ._body import Body, RegionHost
from ._call import Call
from ._op import Op, Region
from ._passes import expanded, optimise, without_reuse
from ._program import Program, evaluate
from ._regions import body_of, is_read, rewritten, with_inputs, zeros

if TYPE_CHECKING:
    from ._evaluator import Evaluator

Values = Sequence[Any]


def closes_over(name: str) -> InvalidArgumentError:
    """A function with its own rule closes over what is differentiated."""
    return InvalidArgumentError(
        operation=name,
        argument="f",
        found="a function with a rule of its own that closes over a value to "
        "differentiate",
        fix="pass the value as an argument, or take `ta.stop_gradient` of it",
    )


def beyond(name: str) -> NoRuleError:
    """A derivative of higher order than rules were traced for."""
    return NoRuleError(
        operation=name,
        argument="f",
        found="a derivative of higher order than its rule was traced for, because the "
        "rule applies the function itself",
        fix="let the rule compute the value without calling the function",
    )


def _infer(avals: tuple[Aval, ...], name: str, primal: Body, *rest: Any) -> list[Any]:
    return [(y.shape, y.dtype) for y in primal.program.out_avals]


def _kernel(host: RegionHost, call: Call, operands: Values) -> list[Any]:
    return host.owned(host.run(call.primal, operands), operands)


def _sources(call: Call) -> list[tuple[Body, list[int | None]]]:
    operands: list[int | None] = list(range(len(call.ins)))
    return [(call.primal, operands)]


def _arguments(call: Call, tracked: Sequence[int]) -> None:
    if any(i >= call.args for i in tracked):
        raise closes_over(call.name)


def _spread(F: Evaluator, size: int, y: Any, *, many: bool) -> Any:
    return y if many else F.broadcast_to(y, (size, *y.aval.shape))


def _batched_avals(
    avals: Sequence[Aval], size: int, flags: Sequence[bool]
) -> list[Aval]:
    return [
        aval_of((size, *a.shape), a.dtype, a.device) if flag else a
        for a, flag in zip(avals, flags, strict=True)
    ]


def _many(body: Body, size: int, flags: tuple[bool, ...], first: int) -> Any:
    """The body for many examples, whose first outputs have the batch axis, and which of
    all outputs have it."""

    def make() -> tuple[Body, tuple[bool, ...]]:
        given: list[bool] = []

        def batch(F: Evaluator, values: list[Any]) -> list[Any]:
            outs = body.tools.batched(F, body.program, size, values, flags)
            given[:] = [many or j < first for j, (_, many) in enumerate(outs)]
            return [
                _spread(F, size, y, many=many or j >= first)
                for j, (y, many) in enumerate(outs)
            ]

        avals = _batched_avals(body.program.in_avals, size, flags)
        return rewritten(body, batch, avals), tuple(given)

    return body.derived(("many", size, flags, first), make)


# ---- custom_vjp ----------------------------------------------------------------------


def _seeds(F: Evaluator, call: Call, cts: Any) -> list[Any]:
    """Cotangents of the outputs that have one, zeros where nothing depends on it."""
    cts = cts if len(call.outs) > 1 else (cts,)
    return [
        zeros(F, y) if ct is None else ct
        for y, ct in zip(call.outs, cts, strict=True)
        if is_inexact(y.dtype)
    ]


def _vjp_recorded(call: Call, mask: int) -> tuple[Op, tuple[Any, ...]]:
    _arguments(call, [i for i in range(len(call.ins)) if mask >> i & 1])
    if call.fwd is None:
        raise beyond(call.name)
    return FORWARD, (call.name, call.fwd, call.bwd, len(call.outs), call.gives)


def _vjp_push(F: Evaluator, ts: Values, call: Call) -> Any:
    raise no_forward(call.name)


def no_forward(name: str) -> NoRuleError:
    """Forward mode of a function with a reverse rule."""
    return NoRuleError(
        operation=name,
        argument="f",
        found="forward mode of a function that `custom_vjp` gave a reverse rule",
        fix="use reverse mode, or give it a forward rule with `ta.custom_jvp`",
    )


def _vjp_batch(
    F: Evaluator, call: Call, size: int, xs: Values, batched: Sequence[bool]
) -> Any:
    flags = tuple(batched)
    n_out = len(call.outs)
    primal, _ = _many(call.primal, size, flags, n_out)
    if call.fwd is None:
        return F[call.op](
            tuple(xs), call.name, primal, None, None, call.args, call.gives
        )
    fwd, given = _many(call.fwd, size, flags, n_out)
    bwd = _many_back(call, size, flags, given[n_out:])
    return F[call.op](tuple(xs), call.name, primal, fwd, bwd, call.args, call.gives)


def _many_back(
    call: Call, size: int, flags: tuple[bool, ...], residuals: tuple[bool, ...]
) -> Body:
    """`bwd` for many examples: what they share gets the sum of its cotangents."""
    body: Body = call.bwd
    seeds = sum(is_inexact(y.dtype) for y in call.outs)
    seen = (*flags, *residuals, *[True] * seeds)

    def batch(F: Evaluator, values: list[Any]) -> list[Any]:
        outs = body.tools.batched(F, body.program, size, values, seen)
        found = []
        for i, (y, many) in zip(call.gives, outs, strict=True):
            y = _spread(F, size, y, many=many)
            found.append(y if flags[i] else F.sum(y, (0,), False))
        return found

    avals = _batched_avals(body.program.in_avals, size, seen)
    key = ("many back", size, seen, call.gives)
    return body.derived(key, lambda: rewritten(body, batch, avals))


def _vjp_unruled(call: Call) -> Program | None:
    if call.fwd is None:
        return None
    program: Program = call.fwd.program
    return replace(program, outputs=program.outputs[: len(call.outs)])


def unruled(program: Program) -> Program:
    """The program with the operations of `fwd` in the place of functions that have a
    reverse rule. (Where `fwd` applies such a function again, that one keeps its rule.)
    """
    equations = [
        replace(eq, call=eq.call.outside())
        if eq.call.has_rules and eq.call.op.unruled is None
        else eq
        for eq in program.equations
    ]
    return expanded(
        replace(program, equations=equations),
        lambda eq: None if eq.call.op.unruled is None else eq.call.op.unruled(eq.call),
    )


def _fwd_infer(
    avals: tuple[Aval, ...], name: str, fwd: Body, bwd: Body, outs: int, gives: Any
) -> list[Any]:
    return [(y.shape, y.dtype) for y in fwd.program.out_avals]


def _fwd_kernel(host: RegionHost, call: Call, operands: Values) -> list[Any]:
    return host.owned(host.run(call.fwd, operands), operands)


def _fwd_sources(call: Call) -> list[tuple[Body, list[int | None]]]:
    operands: list[int | None] = list(range(len(call.ins)))
    return [(call.fwd, operands)]


def _fwd_keeps(call: Call, tracked: tuple[int, ...]) -> list[int]:
    """Residuals, and what `bwd` closes over."""
    read = is_read(call.bwd.program)
    n, k = len(call.ins), len(call.outs) - call.results
    kept = [i for i in range(n) if read[i]]
    return kept + [~(call.results + j) for j in range(k) if read[n + j]]


def _fwd(
    F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any, outs: Any
) -> Any:
    cts = (cts if len(call.outs) > 1 else (cts,))[: call.results]
    seeds = [
        zeros(F, y) if ct is None else ct
        for y, ct in zip(call.outs, cts, strict=False)
        if is_inexact(y.dtype)
    ]
    residuals = outs[call.results :]
    gs = evaluate(call.bwd.program, F, [*operands, *residuals, *seeds])
    given = dict(zip(call.gives, gs, strict=True))
    return [given.get(i) for i in tracked]


FORWARD = Op(
    "custom_vjp",
    ("operands",),
    params=("name", "fwd", "bwd", "results", "gives"),
    outs=("outs",),
    variadic=True,
    many_outs=True,
    infer=_fwd_infer,
    kernel=Region(_fwd_kernel, _fwd_sources),
    joint=_fwd,
    joint_keeps=_fwd_keeps,
    unruled=lambda call: call.fwd.program,
    inlines=lambda call: call.fwd.program,
)
"""`fwd` with the rule, as regions record it that run again."""

CUSTOM_VJP = Op(
    "custom_vjp",
    ("operands",),
    params=("name", "primal", "fwd", "bwd", "args", "gives"),
    outs=("outs",),
    variadic=True,
    many_outs=True,
    infer=_infer,
    kernel=Region(_kernel, _sources),
    joint_jvp=_vjp_push,
    recorded=_vjp_recorded,
    unruled=_vjp_unruled,
    inlines=lambda call: call.primal.program,
    batch=_vjp_batch,
)


# ---- custom_jvp ----------------------------------------------------------------------


def _moving(call: Call) -> list[int]:
    """Arguments that have a tangent."""
    return [i for i in range(call.args) if is_inexact(call.ins[i].dtype)]


def _slopes(call: Call) -> Program:
    """The rule, without the outputs that it gives besides their tangents."""

    rule: Body | None = call.rule
    if rule is None:
        raise beyond(call.name)

    def make() -> Program:
        program = without_reuse(rule.program)
        kept = program.outputs[len(call.outs) :]
        return optimise(replace(program, outputs=kept))

    return rule.derived(("slopes", len(call.outs)), make)


def _jvp(F: Evaluator, ts: Values, call: Call, *, operands: Values) -> Any:
    _arguments(call, [i for i, t in enumerate(ts) if t is not None])
    given = [zeros(F, call.ins[i]) if ts[i] is None else ts[i] for i in _moving(call)]
    found = iter(evaluate(_slopes(call), F, [*operands, *given]))
    pushed = [next(found) if is_inexact(y.dtype) else None for y in call.outs]
    return tuple(pushed) if len(pushed) > 1 else pushed[0]


def _transposed(call: Call, tracked: tuple[int, ...], *, strong: bool) -> Body:
    """The rule's transpose: (operands, cotangents) to cotangents of `tracked`.

    Raises:
        InvalidArgumentError: the rule is not linear in the tangents.
    """
    rule: Body | None = call.rule
    if rule is None:
        raise beyond(call.name)
    return rule.derived(
        ("transposed", len(call.outs), tracked, strong),
        lambda: _transpose(call, tracked, strong=strong),
    )


def _transpose(call: Call, tracked: tuple[int, ...], *, strong: bool) -> Body:
    rule: Body = call.rule
    program, n = _slopes(call), len(call.ins)
    moving = _moving(call)
    at = [n + moving.index(i) for i in tracked]
    seeds = program.out_avals

    def reverse(F: Evaluator, values: list[Any]) -> list[Any]:
        known = values[: n + len(moving)]
        cts = values[n + len(moving) :]
        pulled = rule.tools.pulled(F, program, at, cts, known, {}, strong=strong)
        return [
            zeros(F, call.ins[i]) if g is None else g
            for i, g in zip(tracked, pulled, strict=True)
        ]

    made = rule.tools.traced(reverse, [*program.in_avals, *seeds])
    read = is_read(made)
    if any(read[n : n + len(moving)]):
        raise InvalidArgumentError(
            operation=call.name,
            argument="defjvp",
            found="a rule that is not linear in the tangents",
            fix="give tangents that are sums of products of tangents and primals",
        )
    kept = [*range(n), *range(n + len(moving), len(made.inputs))]
    return body_of(with_inputs(made, kept), rule.tools)


def _jvp_keeps(call: Call, tracked: tuple[int, ...]) -> list[int]:
    _arguments(call, tracked)
    read = is_read(_transposed(call, tracked, strong=False).program)
    return [i for i in range(len(call.ins)) if read[i]]


def _pull(
    F: Evaluator, cts: Any, call: Call, tracked: Any, operands: Values, *, strong: bool
) -> list[Any]:
    body = _transposed(call, tuple(tracked), strong=strong)
    return evaluate(body.program, F, [*operands, *_seeds(F, call, cts)])


def _jvp_joint(
    F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any
) -> Any:
    return _pull(F, cts, call, tracked, operands, strong=False)


def _jvp_strong(
    F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any
) -> Any:
    return _pull(F, cts, call, tracked, operands, strong=True)


def _jvp_batch(
    F: Evaluator, call: Call, size: int, xs: Values, batched: Sequence[bool]
) -> Any:
    flags = tuple(batched)
    n_out = len(call.outs)
    primal, _ = _many(call.primal, size, flags, n_out)
    if call.rule is None:
        return F[call.op](tuple(xs), call.name, primal, None, call.args)
    seen = (*flags, *[flags[i] for i in _moving(call)])
    rule, _ = _many(call.rule, size, seen, len(call.rule.program.outputs))
    return F[call.op](tuple(xs), call.name, primal, rule, call.args)


CUSTOM_JVP = Op(
    "custom_jvp",
    ("operands",),
    params=("name", "primal", "rule", "args"),
    outs=("outs",),
    variadic=True,
    many_outs=True,
    infer=_infer,
    kernel=Region(_kernel, _sources),
    joint=_jvp_joint,
    joint_strong=_jvp_strong,
    joint_keeps=_jvp_keeps,
    joint_jvp=_jvp,
    inlines=lambda call: call.primal.program,
    batch=_jvp_batch,
)
