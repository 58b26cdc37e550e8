"""The row of loops whose number of steps the values decide.

`while_loop` takes (carry | consts of the test | consts of the body) and gives the carry
for which the test, a body with a boolean scalar, is false. Forward mode is the loop of
values and tangents together. Reverse mode would have to keep a carry for each step, and
nothing bounds their number: it is refused. For a batch whose examples stop at different
steps, the loop runs until the last one stops, and those that have stopped keep their
carry.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from .._aval import Aval, aval_of
from ..errors import NoRuleError
from ._batching import with_rank
from ._body import Body, RegionHost
from ._call import Call
from ._evaluator import OPS, register
from ._op import Op, Region
from ._passes import without_reuse
from ._program import evaluate
from ._regions import push_through, reached, rewritten, settled, zeros

if TYPE_CHECKING:
    from ._evaluator import Evaluator

Values = Sequence[Any]


def _infer(
    avals: tuple[Aval, ...], test: Body, body: Body, carry: int, test_consts: int
) -> list[Any]:
    return [(y.shape, y.dtype) for y in body.program.out_avals]


def _kernel(host: RegionHost, call: Call, operands: Values) -> list[Any]:
    k, m = call.carry, call.carry + call.test_consts
    carry, tested, consts = list(operands[:k]), operands[k:m], operands[m:]
    while host.number(host.run(call.test, [*carry, *tested])[0]):
        carry = host.run(call.body, [*carry, *consts])
    return host.owned(carry, operands)


def _sources(call: Call) -> list[tuple[Body, list[int | None]]]:
    k, m, n = call.carry, call.carry + call.test_consts, len(call.ins)
    return [
        (call.test, [*[None] * k, *range(k, m)]),
        (call.body, [*[None] * k, *range(m, n)]),
    ]


def looped_while(
    F: Evaluator, test: Body, body: Body, carry: Values, tested: Values, consts: Values
) -> list[Any]:
    """A further loop on values of `F`."""
    operands = (*carry, *tested, *consts)
    found = F[OPS["while_loop"]](operands, test, body, len(carry), len(tested))
    return list(found) if isinstance(found, tuple) else [found]


# ---- derivatives ---------------------------------------------------------------------


def refused_reverse(operation: str) -> NoRuleError:
    """Reverse mode through a loop without a bound."""
    return NoRuleError(
        operation=operation,
        argument="max_steps",
        found="reverse mode through a loop without a bound on its steps",
        fix="use `ta.while_loop` with `max_steps=`, or forward mode (`ta.jvp`), or "
        "take `ta.stop_gradient` of what the loop reads",
    )


def _keeps(call: Call, tracked: tuple[int, ...]) -> NoReturn:
    raise refused_reverse("while_loop")


def _joint(F: Evaluator, ct: Any, call: Call, tracked: Any) -> NoReturn:
    raise refused_reverse("while_loop")


def _push(F: Evaluator, ts: Values, call: Call, *, operands: Values) -> Any:
    k, m = call.carry, call.carry + call.test_consts
    body: Body = call.body
    given = [t is not None for t in (*ts[:k], *ts[m:])]
    flags = tuple(settled(body.program, given, k, smooth=True))
    moving = [j for j in range(k) if flags[j]]
    if not moving:
        return (None,) * k if k > 1 else None
    ahead: Body = body.derived(("ahead", k, flags), lambda: _ahead(body, k, flags))
    slopes = [zeros(F, call.ins[j]) if ts[j] is None else ts[j] for j in moving]
    result = looped_while(
        F,
        _tested_first(call.test, k, [call.ins[j] for j in moving]),
        ahead,
        [*operands[:k], *slopes],
        operands[k:m],
        [*operands[m:], *[t for t in ts[m:] if t is not None]],
    )
    found = dict(zip(moving, result[k:], strict=True))
    return tuple([found.get(j) for j in range(k)]) if k > 1 else found[0]


def _ahead(body: Body, k: int, flags: tuple[bool, ...]) -> Body:
    """The body of values and tangents: (carry, tangents | consts, tangents)."""
    program = without_reuse(body.program)
    ins = program.in_avals
    layout = [
        (i, slope)
        for group in (range(k), range(k, len(ins)))
        for slope in (False, True)
        for i in group
        if flags[i] or not slope
    ]

    def forward(F: Evaluator, values: list[Any]) -> list[Any]:
        known = dict(zip(layout, values, strict=True))
        outs, ts = push_through(
            program,
            F,
            [known[i, False] for i in range(len(ins))],
            [known.get((i, True)) for i in range(len(ins))],
        )
        return [
            *outs,
            *[
                zeros(F, outs[j].aval) if ts[j] is None else ts[j]
                for j in range(k)
                if flags[j]
            ],
        ]

    return rewritten(body, forward, [ins[i] for i, _ in layout])


def _tested_first(test: Body, k: int, more: Sequence[Aval]) -> Body:
    """The test of a carry with more values at its end."""
    ins = test.program.in_avals

    def fn(F: Evaluator, values: list[Any]) -> list[Any]:
        return evaluate(test.program, F, [*values[:k], *values[k + len(more) :]])

    avals = [*ins[:k], *more, *ins[k:]]
    return test.derived(("first", k, tuple(more)), lambda: rewritten(test, fn, avals))


# ---- batches -------------------------------------------------------------------------


def _batch(
    F: Evaluator, call: Call, size: int, xs: Values, batched: Sequence[bool]
) -> Any:
    k, m = call.carry, call.carry + call.test_consts
    test: Body = call.test
    body: Body = call.body
    flags = settled(body.program, [*batched[:k], *batched[m:]], k, smooth=False)
    seen = [*flags[:k], *batched[k:m]]
    differ = reached(test.program, seen, smooth=False)[0]
    if differ:  # each example stops by itself, and so may differ in every carry
        flags[:k] = seen[:k] = [True] * k
    carry = [
        F.broadcast_to(x, (size, *x.aval.shape)) if flag and not b else x
        for x, flag, b in zip(xs[:k], flags, batched, strict=False)
    ]
    key = ("many", k, m, size, tuple(flags), tuple(seen))
    if differ:
        (going, _), *_ = test.tools.batched(
            F, test.program, size, [*carry, *xs[k:m]], seen
        )
        again, step = body.derived(
            (*key, test), lambda: _stopping(test, body, k, size, flags, seen)
        )
        outs = looped_while(F, again, step, [going, *carry], [], xs[k:])[1:]
    else:
        again, step = body.derived(
            (*key, test), lambda: _together(test, body, k, size, flags, seen)
        )
        outs = looped_while(F, again, step, carry, xs[k:m], xs[m:])
    outs = [
        y if flag else F.broadcast_to(y, (size, *y.aval.shape))
        for y, flag in zip(outs, flags, strict=False)
    ]
    return tuple(outs) if k > 1 else outs[0]


def _avals(body: Body, size: int, flags: Sequence[bool]) -> list[Aval]:
    return [
        aval_of((size, *a.shape), a.dtype, a.device) if flag else a
        for a, flag in zip(body.program.in_avals, flags, strict=True)
    ]


def _stepped(
    F: Evaluator, body: Body, k: int, size: int, values: Values, flags: list[bool]
) -> list[Any]:
    """One step of the body for many examples."""
    outs = body.tools.batched(F, body.program, size, values, flags)
    return [
        F.broadcast_to(y, (size, *y.aval.shape)) if flag and not many else y
        for (y, many), flag in zip(outs, flags[:k], strict=True)
    ]


def _together(
    test: Body, body: Body, k: int, size: int, flags: list[bool], seen: list[bool]
) -> tuple[Body, Body]:
    """Test and body for examples that stop at the same step."""

    def tested(F: Evaluator, values: list[Any]) -> list[Any]:
        return [test.tools.batched(F, test.program, size, values, seen)[0][0]]

    def step(F: Evaluator, values: list[Any]) -> list[Any]:
        return _stepped(F, body, k, size, values, flags)

    return (
        rewritten(test, tested, _avals(test, size, seen)),
        rewritten(body, step, _avals(body, size, flags)),
    )


def _stopping(
    test: Body, body: Body, k: int, size: int, flags: list[bool], seen: list[bool]
) -> tuple[Body, Body]:
    """Test and body over (who goes on, carry | consts of test and body)."""
    carry = _avals(body, size, flags)[:k]
    consts = _avals(test, size, seen)[k:]
    going = aval_of((size,), test.program.out_avals[0].dtype, carry[0].device)

    def tested(F: Evaluator, values: list[Any]) -> list[Any]:
        return [F.any(values[0], (0,), False)]

    def step(F: Evaluator, values: list[Any]) -> list[Any]:
        on, old, rest = values[0], values[1 : k + 1], values[k + 1 :]
        constants = rest[len(consts) :]
        made = _stepped(F, body, k, size, [*old, *constants], flags)
        new = [
            F.select(with_rank(F, on, y.aval.ndim - 1), y, x)
            for x, y in zip(old, made, strict=True)
        ]
        again = test.tools.batched(
            F, test.program, size, [*new, *rest[: len(consts)]], seen
        )
        return [F.logical_and(on, again[0][0]), *new]

    return (
        rewritten(test, tested, [going, *carry]),
        rewritten(body, step, [going, *carry, *consts, *_avals(body, size, flags)[k:]]),
    )


register(
    Op(
        "while_loop",
        ("operands",),
        params=("test", "body", "carry", "test_consts"),
        outs=("outs",),
        variadic=True,
        many_outs=True,
        infer=_infer,
        kernel=Region(_kernel, _sources),
        joint=_joint,
        joint_keeps=_keeps,
        joint_jvp=_push,
        batch=_batch,
    )
)
