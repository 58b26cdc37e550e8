"""The row of loops with a known number of steps.

`scan` carries values from step to step and stacks what the steps give. One row stands
for the whole loop; its body is a program over (carry | one entry of each xs | consts)
that gives (carry | ys).

What a reverse rule keeps: the carries, xs and consts that the body's derivative reads,
and nothing from inside the body. Carries that it reads are stacked, as they were before
each step; a recording asks for the stacks (`keeps`), and they are further outputs. The
reverse rule is a `scan` of the body's reverse form in the other direction, which runs
the body again (`_scan_back`); the forward rule is a `scan` of values and tangents
together. So any order of derivative is again this row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .._aval import Aval, aval_of
from ._batching import moved
from ._body import Body, RegionHost
from ._call import Call
from ._evaluator import Evaluator, register
from ._op import Op, Region
from ._passes import without_reuse
from ._regions import push_through, rewritten, scanned, settled, zeros
from ._scan_back import back_joint, back_joint_strong, back_keeps, back_recorded

Values = Sequence[Any]


# ---- meaning -------------------------------------------------------------------------


def _infer(
    avals: tuple[Aval, ...],
    body: Body,
    carry: int,
    xs: int,
    length: int,
    reverse: bool,
    keeps: tuple[int, ...],
) -> list[tuple[Any, Any]]:
    ins, outs = body.program.in_avals, body.program.out_avals
    stacks = (*outs[carry:], *[ins[j] for j in keeps])
    return [
        *[(y.shape, y.dtype) for y in outs[:carry]],
        *[((length, *y.shape), y.dtype) for y in stacks],
    ]


def _kernel(host: RegionHost, call: Call, operands: Values) -> list[Any]:
    body, k, m = call.body, call.carry, call.carry + call.xs
    carry, rows, consts = list(operands[:k]), operands[k:m], operands[m:]
    avals = body.program.in_avals[k:m]
    stacks = [host.output(j) for j in range(k, len(call.outs))]
    ys = len(stacks) - len(call.keeps)
    order = range(call.length)
    for i in reversed(order) if call.reverse else order:
        for stack, j in zip(stacks[ys:], call.keeps, strict=True):
            host.put(stack, i, carry[j])
        row = [host.at(x, i, aval) for x, aval in zip(rows, avals, strict=True)]
        outs = host.run(body, [*carry, *row, *consts])
        carry = outs[:k]
        for stack, y in zip(stacks[:ys], outs[k:], strict=True):
            host.put(stack, i, y)
        del outs, row
    return [*host.owned(carry, operands), *stacks]


def _sources(call: Call) -> list[tuple[Body, list[int | None]]]:
    k, m, n = call.carry, call.carry + call.xs, len(call.ins)
    return [(call.body, [*[None] * k, *[~i for i in range(k, m)], *range(m, n)])]


# ---- forward mode --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Ahead:
    """The body of values and tangents together: (carry, tangents | xs, tangents |
    consts, tangents) to (carry, tangents | tangents of ys).

    Attributes:
        moving: which inputs have a tangent, once it has gone round.
        ys: which ys have one.
    """

    body: Body
    moving: tuple[bool, ...]
    ys: tuple[int, ...]


def _ahead(call: Call, given: tuple[bool, ...]) -> _Ahead:
    body: Body = call.body
    flags = tuple(settled(body.program, given, call.carry, smooth=True))
    key = ("ahead", call.carry, call.xs, flags)
    return body.derived(key, lambda: _make_ahead(call, flags))


def _make_ahead(call: Call, flags: tuple[bool, ...]) -> _Ahead:
    program = without_reuse(call.body.program)
    k, m = call.carry, call.carry + call.xs
    ins = program.in_avals
    n = len(ins)
    # (input, whether this is its tangent) in order.
    layout = [
        (i, slope)
        for group in (range(k), range(k, m), range(m, n))
        for slope in (False, True)
        for i in group
        if flags[i] or not slope
    ]
    with_tangent: list[int] = []

    def forward(F: Evaluator, values: list[Any]) -> list[Any]:
        known = dict(zip(layout, values, strict=True))
        outs, ts = push_through(
            program,
            F,
            [known[i, False] for i in range(n)],
            [known.get((i, True)) for i in range(n)],
        )
        slopes = [
            zeros(F, outs[i].aval) if ts[i] is None else ts[i]
            for i in range(k)
            if flags[i]
        ]
        with_tangent[:] = [j for j, t in enumerate(ts[k:]) if t is not None]
        return [*outs[:k], *slopes, *[ts[k + j] for j in with_tangent]]

    body = rewritten(call.body, forward, [ins[i] for i, _ in layout])
    return _Ahead(body, flags, tuple(with_tangent))


def _push(F: Evaluator, ts: Values, call: Call, *, operands: Values) -> Any:
    k, m = call.carry, call.carry + call.xs
    ahead = _ahead(call, tuple(t is not None for t in ts))
    ins = call.body.program.in_avals
    slopes = [
        zeros(F, ins[i]) if t is None and ahead.moving[i] else t
        for i, t in enumerate(ts)
    ]

    def both(start: int, stop: int) -> list[Any]:
        known = [t for t in slopes[start:stop] if t is not None]
        return [*operands[start:stop], *known]

    moving = [j for j in range(k) if ahead.moving[j]]
    kept = [j for j in call.keeps if j in moving]
    result = iter(
        scanned(
            F,
            ahead.body,
            both(0, k),
            both(k, m),
            both(m, len(operands)),
            call.length,
            reverse=call.reverse,
            keeps=tuple(k + moving.index(j) for j in kept),
        )[k:]
    )
    first = len(call.outs) - len(call.keeps)
    found: list[Any] = [None] * len(call.outs)
    for at in [
        *moving,
        *[k + j for j in ahead.ys],
        *[first + p for p, j in enumerate(call.keeps) if j in moving],
    ]:
        found[at] = next(result)
    return tuple(found) if len(found) > 1 else found[0]


# ---- batches -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Many:
    """The body for many examples; which inputs and ys have the batch axis."""

    body: Body
    flags: tuple[bool, ...]
    ys: tuple[bool, ...]


def _many(call: Call, size: int, batched: Sequence[bool]) -> _Many:
    body: Body = call.body
    flags = tuple(settled(body.program, batched, call.carry, smooth=False))
    key = ("many", call.carry, call.xs, size, flags)
    return body.derived(key, lambda: _make_many(call, size, flags))


def _make_many(call: Call, size: int, flags: tuple[bool, ...]) -> _Many:
    body: Body = call.body
    k = call.carry
    ys: list[bool] = []

    def batch(F: Evaluator, values: list[Any]) -> list[Any]:
        outs = body.tools.batched(F, body.program, size, values, flags)
        ys[:] = [many for _, many in outs[k:]]
        return [
            F.broadcast_to(y, (size, *y.aval.shape)) if flags[j] and not many else y
            for j, (y, many) in enumerate(outs[:k])
        ] + [y for y, _ in outs[k:]]

    avals = [
        aval_of((size, *a.shape), a.dtype, a.device) if flag else a
        for a, flag in zip(body.program.in_avals, flags, strict=True)
    ]
    return _Many(rewritten(body, batch, avals), flags, tuple(ys))


def _batch(
    F: Evaluator, call: Call, size: int, xs: Values, batched: Sequence[bool]
) -> Any:
    k, m = call.carry, call.carry + call.xs
    many = _many(call, size, batched)

    def spread(y: Any) -> Any:
        return F.broadcast_to(y, (size, *y.aval.shape))

    result = scanned(
        F,
        many.body,
        [
            spread(x) if flag and not b else x
            for x, flag, b in zip(xs[:k], many.flags, batched, strict=False)
        ],
        [
            moved(F, x, 0, 1) if b else x
            for x, b in zip(xs[k:m], batched[k:m], strict=True)
        ],
        xs[m:],
        call.length,
        reverse=call.reverse,
        keeps=call.keeps,
    )
    stacked = [*many.ys, *[many.flags[j] for j in call.keeps]]
    found = [
        y if flag else spread(y)
        for y, flag in zip(result[:k], many.flags, strict=False)
    ]
    found += [
        moved(F, y, 1, 0) if flag else spread(y)
        for y, flag in zip(result[k:], stacked, strict=True)
    ]
    return tuple(found) if len(found) > 1 else found[0]


register(
    Op(
        "scan",
        ("operands",),
        params=("body", "carry", "xs", "length", "reverse", "keeps"),
        outs=("outs",),
        variadic=True,
        many_outs=True,
        infer=_infer,
        kernel=Region(_kernel, _sources),
        joint=back_joint,
        joint_strong=back_joint_strong,
        joint_keeps=back_keeps,
        joint_jvp=_push,
        recorded=back_recorded,
        batch=_batch,
    )
)
