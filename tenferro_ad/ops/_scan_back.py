"""The reverse rule of `scan`: the loop over the body's reverse form, backwards.

The carries of that loop are the cotangents of carries and the sums of the cotangents of
consts. A step adds to the sums in the memory of its own part, so that a sum costs one
output for each step, like the part itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._aval import is_inexact
from ._body import Body
from ._call import Call
from ._regions import body_of, is_read, scanned, settled, with_inputs, zeros

if TYPE_CHECKING:
    from ._evaluator import Evaluator
    from ._op import Op

Values = Sequence[Any]


@dataclass(frozen=True, slots=True)
class _Back:
    """The reverse form of a loop's body.

    Its inputs are (cotangents of carries, sums for consts | carries and entries of xs
    that it reads, cotangents of ys and of stacked carries | consts that it reads). It
    gives (cotangents of carries, sums | cotangents of entries of xs). Positions are
    those of the forward body's inputs.

    Attributes:
        carries, sums, xs: whose cotangents it gives.
        reads: which of the forward body's inputs it reads.
        stacks: stacked carries whose cotangents it takes.
    """

    body: Body
    carries: tuple[int, ...]
    sums: tuple[int, ...]
    xs: tuple[int, ...]
    reads: tuple[int, ...]
    stacks: tuple[int, ...]


def _back(
    call: Call, tracked: Sequence[int], seeded: tuple[bool, ...], *, strong: bool
) -> _Back:
    """The reverse form, for cotangents of these ys and stacks."""
    body: Body = call.body
    n = len(body.program.inputs)
    given = [i in tracked for i in range(n)]
    flags = tuple(settled(body.program, given, call.carry, smooth=True))
    key = ("back", call.carry, call.xs, call.keeps, flags, seeded, strong)
    return body.derived(key, lambda: _make(call, flags, seeded, strong=strong))


def _make(
    call: Call, flags: tuple[bool, ...], seeded: tuple[bool, ...], *, strong: bool
) -> _Back:
    body: Body = call.body
    program, k, m = body.program, call.carry, call.carry + call.xs
    ins, outs = program.in_avals, program.out_avals
    n = len(ins)
    tracked = [i for i in range(n) if flags[i]]
    carries = [i for i in tracked if i < k]
    others = [i for i in tracked if i >= k]
    consts = [i for i in tracked if i >= m]
    ys = [j for j in range(k, len(outs)) if seeded[j - k]]
    ends = seeded[len(outs) - k :]
    stacks = [j for j, s in zip(call.keeps, ends, strict=True) if s and flags[j]]
    gives: list[int] = []

    def reverse(F: Evaluator, values: list[Any]) -> list[Any]:
        rest = iter(values[n:])
        cts: list[Any] = [None] * len(outs)
        for i in carries:
            cts[i] = next(rest)
        addends = {i: next(rest) for i in consts}
        for j in ys:
            cts[j] = next(rest)
        addends.update((j, next(rest)) for j in stacks)
        pulled = body.tools.pulled(
            F, program, tracked, cts, values[:n], addends, strong=strong
        )
        found = dict(zip(tracked, pulled, strict=True))
        gives[:] = [
            i for i in others if found[i] is not None and found[i] is not addends.get(i)
        ]
        return [
            *[zeros(F, ins[i]) if found[i] is None else found[i] for i in carries],
            *[found[i] for i in sorted(gives, key=lambda i: (i < m, i))],
        ]

    avals = [*ins, *[ins[i] for i in (*carries, *consts)]]
    avals += [*[outs[j] for j in ys], *[ins[j] for j in stacks]]
    made = body.tools.traced(reverse, avals)
    reads = [i for i, read in enumerate(is_read(made)[:n]) if read]
    sums = [i for i in consts if i in gives]
    at = n + len(carries)
    order = [
        *range(n, at),
        *[at + consts.index(i) for i in sums],
        *[i for i in reads if i < m],
        *range(at + len(consts), len(avals)),
        *[i for i in reads if i >= m],
    ]
    return _Back(
        body_of(with_inputs(made, order), body.tools),
        tuple(carries),
        tuple(sums),
        tuple(i for i in gives if i < m),
        tuple(reads),
        tuple(stacks),
    )


def _everything(call: Call, tracked: Sequence[int]) -> _Back:
    """The reverse form for cotangents of all outputs: no other one reads more."""
    seeded = tuple(is_inexact(y.dtype) for y in call.outs[call.carry :])
    return _back(call, tracked, seeded, strong=False)


def back_keeps(call: Call, tracked: tuple[int, ...]) -> list[int]:
    """Positions of what the reverse rule reads."""
    first = len(call.outs) - len(call.keeps)
    return [
        i if i >= call.carry else ~(first + call.keeps.index(i))
        for i in _everything(call, tracked).reads
    ]


def back_recorded(call: Call, mask: int) -> tuple[Op, tuple[Any, ...]]:
    """The loop with stacks of the carries that its reverse rule reads."""
    tracked = [i for i in range(len(call.ins)) if mask >> i & 1]
    reads = _everything(call, tracked).reads
    more = [i for i in reads if i < call.carry and i not in call.keeps]
    return call.op, (*call.params[:-1], (*call.keeps, *more))


def _pull(
    F: Evaluator,
    cts: Any,
    call: Call,
    tracked: tuple[int, ...],
    operands: Values,
    outs: Values,
    *,
    strong: bool,
) -> list[Any]:
    k, m = call.carry, call.carry + call.xs
    cts = cts if len(call.outs) > 1 else (cts,)
    seeded = tuple(ct is not None for ct in cts[k:])
    back = _back(call, tracked, seeded, strong=strong)
    ins = call.body.program.in_avals
    first = len(call.outs) - len(call.keeps)
    stacks = dict(zip(call.keeps, outs[first:], strict=True))
    ends = dict(zip(call.keeps, cts[first:], strict=True))
    result = scanned(
        F,
        back.body,
        [
            *[zeros(F, ins[i]) if cts[i] is None else cts[i] for i in back.carries],
            *[zeros(F, ins[i]) for i in back.sums],
        ],
        [
            *[stacks[i] if i < k else operands[i] for i in back.reads if i < m],
            *[ct for ct in cts[k:first] if ct is not None],
            *[ends[j] for j in back.stacks],
        ],
        [operands[i] for i in back.reads if i >= m],
        call.length,
        reverse=not call.reverse,
    )
    found = dict(zip((*back.carries, *back.sums, *back.xs), result, strict=True))
    return [found.get(i) for i in tracked]


def back_joint(
    F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any, outs: Any
) -> list[Any]:
    """The joint rule; keeps what `back_keeps` says."""
    return _pull(F, cts, call, tracked, operands, outs, strong=False)


def back_joint_strong(
    F: Evaluator, cts: Any, call: Call, tracked: Any, *, operands: Any, outs: Any
) -> list[Any]:
    """The same with zero cotangents that absorb."""
    return _pull(F, cts, call, tracked, operands, outs, strong=True)
