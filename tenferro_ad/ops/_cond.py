"""The row of branches: one of several bodies runs, as a scalar says.

`cond` takes (index | operands) and gives what the chosen body gives for the operands.
The index is a boolean or an integer, brought into range.

A reverse rule keeps the index and the operands that the derivative of some branch
reads, and nothing from inside a branch: it is a `cond` of the branches' reverse forms,
which run the branch again. For a batch with one index the branches are batched; with an
index for each example all branches run, and `select` chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._aval import Aval, aval_of, is_inexact
from ._batching import with_rank
from ._body import Body, RegionHost
from ._call import Call
from ._evaluator import OPS, register
from ._op import Op, Region
from ._passes import without_reuse
from ._regions import body_of, is_read, push_through, with_inputs, zeros

if TYPE_CHECKING:
    from ._evaluator import Evaluator

Values = Sequence[Any]


# ---- meaning -------------------------------------------------------------------------


def _infer(avals: tuple[Aval, ...], branches: tuple[Body, ...]) -> list[Any]:
    return [(y.shape, y.dtype) for y in branches[0].program.out_avals]


def _kernel(host: RegionHost, call: Call, operands: Values) -> list[Any]:
    last = len(call.branches) - 1
    chosen = min(max(int(host.number(operands[0])), 0), last)
    return host.owned(host.run(call.branches[chosen], operands[1:]), operands)


def _sources(call: Call) -> list[tuple[Body, list[int | None]]]:
    operands: list[int | None] = list(range(1, len(call.ins)))
    return [(branch, operands) for branch in dict.fromkeys(call.branches)]


def branched(
    F: Evaluator, index: Any, branches: Sequence[Body], operands: Values
) -> list[Any]:
    """A further choice on values of `F`; branches without outputs are no operation."""
    if not branches[0].program.outputs:
        return []
    found = F[OPS["cond"]]((index, *operands), tuple(branches))
    return list(found) if isinstance(found, tuple) else [found]


# ---- derived branches ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Derived:
    """Branches made from branches.

    Attributes:
        gives: which derivatives they give, as positions.
        reads: which of the operands they read.
    """

    branches: tuple[Body, ...]
    gives: tuple[int, ...]
    reads: tuple[int, ...]


def _derive(call: Call, what: Any, extra: Sequence[Aval], zero: Any) -> _Derived:
    """Branches of `what(branch, F, values)`, which gives values or None by position.

    Where one branch gives a value and another None, that one gives zeros of the aval
    `zero(position)`. The operands are followed by `extra`.
    """
    first: Body = call.branches[0]
    avals = [*first.program.in_avals, *extra]
    gives: set[int] = set()

    def find(branch: Body, only: tuple[int, ...] | None) -> Any:
        def fn(F: Evaluator, values: list[Any]) -> list[Any]:
            found: dict[int, Any] = what(branch, F, values)
            if only is None:
                gives.update(i for i, x in found.items() if x is not None)
                return []
            return [
                zeros(F, zero(i)) if found.get(i) is None else found[i] for i in only
            ]

        return branch.tools.traced(fn, avals)

    for branch in call.branches:
        find(branch, None)
    order = tuple(sorted(gives))
    programs = [find(branch, order) for branch in call.branches]
    read = [any(flags) for flags in zip(*map(is_read, programs), strict=True)]
    n = len(avals) - len(extra)
    reads = tuple(i for i in range(n) if read[i])
    kept = [*reads, *range(n, len(avals))]
    return _Derived(
        tuple(body_of(with_inputs(p, kept), first.tools) for p in programs),
        order,
        reads,
    )


# ---- reverse mode --------------------------------------------------------------------


def _back(
    call: Call, tracked: tuple[int, ...], seeded: tuple[bool, ...], *, strong: bool
) -> _Derived:
    """The branches' reverse forms, for cotangents of these outputs. Positions are those
    of the branches' inputs."""
    first: Body = call.branches[0]
    ins, outs = first.program.in_avals, first.program.out_avals
    n = len(ins)

    def reverse(branch: Body, F: Evaluator, values: list[Any]) -> dict[int, Any]:
        rest = iter(values[n:])
        cts = [next(rest) if seed else None for seed in seeded]
        pulled = branch.tools.pulled(
            F, branch.program, tracked, cts, values[:n], {}, strong=strong
        )
        return dict(zip(tracked, pulled, strict=True))

    extra = [y for y, seed in zip(outs, seeded, strict=True) if seed]
    return first.derived(
        ("back", call.branches, tracked, seeded, strong),
        lambda: _derive(call, reverse, extra, lambda i: ins[i]),
    )


def _keeps(call: Call, tracked: tuple[int, ...]) -> list[int]:
    seeded = tuple(is_inexact(y.dtype) for y in call.outs)
    back = _back(call, tuple(i - 1 for i in tracked), seeded, strong=False)
    return [0, *[i + 1 for i in back.reads]]


def _pull(
    F: Evaluator,
    cts: Any,
    call: Call,
    tracked: tuple[int, ...],
    operands: Values,
    *,
    strong: bool,
) -> list[Any]:
    cts = cts if len(call.outs) > 1 else (cts,)
    seeded = tuple(ct is not None for ct in cts)
    back = _back(call, tuple(i - 1 for i in tracked), seeded, strong=strong)
    given = [operands[i + 1] for i in back.reads]
    given += [ct for ct in cts if ct is not None]
    result = branched(F, operands[0], back.branches, given)
    found = dict(zip(back.gives, result, strict=True))
    return [found.get(i - 1) for i in tracked]


def _joint(F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any) -> Any:
    return _pull(F, cts, call, tracked, operands, strong=False)


def _joint_strong(
    F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any
) -> Any:
    return _pull(F, cts, call, tracked, operands, strong=True)


# ---- forward mode --------------------------------------------------------------------


def _push(F: Evaluator, ts: Values, call: Call, *, operands: Values) -> Any:
    first: Body = call.branches[0]
    ins = first.program.in_avals
    n = len(ins)
    moving = tuple(i for i in range(n) if ts[i + 1] is not None)

    def forward(branch: Body, G: Evaluator, values: list[Any]) -> dict[int, Any]:
        slopes = dict(zip(moving, values[n:], strict=True))
        _, found = push_through(
            without_reuse(branch.program),
            G,
            values[:n],
            [slopes.get(i) for i in range(n)],
        )
        return dict(enumerate(found))

    outs = first.program.out_avals
    ahead: _Derived = first.derived(
        ("ahead", call.branches, moving),
        lambda: _derive(call, forward, [ins[i] for i in moving], lambda j: outs[j]),
    )
    given = [operands[i + 1] for i in ahead.reads] + [ts[i + 1] for i in moving]
    result = branched(F, operands[0], ahead.branches, given)
    tangents = dict(zip(ahead.gives, result, strict=True))
    found = [tangents.get(j) for j in range(len(outs))]
    return tuple(found) if len(found) > 1 else found[0]


# ---- batches -------------------------------------------------------------------------


def _batch(
    F: Evaluator, call: Call, size: int, xs: Values, batched: Sequence[bool]
) -> Any:
    flags = tuple(batched[1:])
    if not batched[0]:
        found = branched(F, xs[0], _many(call, size, flags), xs[1:])
    else:
        found = _chosen(F, call, size, xs, flags)
    return tuple(found) if len(found) > 1 else found[0]


def _spread(F: Evaluator, size: int, outs: Sequence[tuple[Any, bool]]) -> list[Any]:
    return [y if many else F.broadcast_to(y, (size, *y.aval.shape)) for y, many in outs]


def _many(call: Call, size: int, flags: tuple[bool, ...]) -> tuple[Body, ...]:
    """The branches for many examples that all take the same one."""
    avals = [
        aval_of((size, *a.shape), a.dtype, a.device) if flag else a
        for a, flag in zip(call.ins[1:], flags, strict=True)
    ]

    def made(branch: Body) -> Body:
        def batch(F: Evaluator, values: list[Any]) -> list[Any]:
            outs = branch.tools.batched(F, branch.program, size, values, flags)
            return _spread(F, size, outs)

        return branch.derived(
            ("many", size, flags),
            lambda: body_of(branch.tools.traced(batch, avals), branch.tools),
        )

    return tuple(made(branch) for branch in call.branches)


def _chosen(
    F: Evaluator, call: Call, size: int, xs: Values, flags: tuple[bool, ...]
) -> list[Any]:
    """All branches, and for each example what its own one gives."""
    index = xs[0]
    found: list[Any] = []
    for number, branch in enumerate(call.branches):
        outs = _spread(
            F, size, branch.tools.batched(F, branch.program, size, xs[1:], flags)
        )
        if number:
            is_bool = call.ins[0].dtype.kind == "b"
            here = index if is_bool else F.greater_equal(index, number)
            outs = [
                F.select(with_rank(F, here, y.aval.ndim - 1), y, before)
                for y, before in zip(outs, found, strict=True)
            ]
        found = outs
    return found


register(
    Op(
        "cond",
        ("operands",),
        params=("branches",),
        outs=("outs",),
        variadic=True,
        many_outs=True,
        infer=_infer,
        kernel=Region(_kernel, _sources),
        joint=_joint,
        joint_strong=_joint_strong,
        joint_keeps=_keeps,
        joint_jvp=_push,
        batch=_batch,
    )
)
