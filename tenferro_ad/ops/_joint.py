"""Joint rules: one computation for the derivatives of all arguments together.

Most rows have a rule for each argument. Where what the arguments share is most of the
work (a contraction of many operands, a loop, a solution), a row declares instead

    def joint(F, cts, call, tracked, *, names): ...
    def joint_jvp(F, tangents, call, *, names): ...

`joint` gives a cotangent or None for each of `tracked`, `joint_jvp` the outputs'
tangents.
`cts` is the cotangent, or for several outputs a tuple with None where nothing depends
on one; `tracked` are positions of arguments. `tangents` has an entry for each argument,
None where it is zero. A single output's tangent is returned as it is, those of several
as a tuple; None is a zero. As everywhere, keyword-only names are what a rule reads, and
for `joint` what it keeps. A variadic row's argument stands for the tuple of all
operands, and with `many_outs` that of the outputs for the tuple of those;
`joint_keeps(call, tracked)` may say which positions the rule reads, and the others are
None in the tuples. A row may have a `joint_strong` beside its `joint`, with the same
names, for zero cotangents that absorb.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._call import Call
    from ._evaluator import Evaluator

Pull = Callable[[Any, Any, tuple[Any, ...]], tuple[Any, ...]]
Read = dict[str, int | tuple[int | None, ...]]


def keywords(rule: Callable[..., Any]) -> tuple[str, ...]:
    """The keyword-only names of a rule: what it reads."""
    return tuple(
        n
        for n, p in inspect.signature(rule).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    )


def joint_pull(
    call: Call, tracked: tuple[int, ...], rule: Callable[..., Any]
) -> tuple[tuple[int, ...], Pull]:
    """What the row's joint rule keeps, and `pull(F, ct, saved)`."""
    op = call.op
    kept = None if op.joint_keeps is None else frozenset(op.joint_keeps(call, tracked))
    read = _positions(call, rule, kept)
    flat: dict[int, None] = {}
    for at in read.values():
        places = at if isinstance(at, tuple) else (at,)
        flat.update((p, None) for p in places if p is not None)
    saves = tuple(flat)
    index = {p: k for k, p in enumerate(saves)}
    where = _mapped(read, index.__getitem__)

    def pull(F: Evaluator, ct: Any, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(rule(F, ct, call, tracked, **_mapped(where, saved.__getitem__)))

    return saves, pull


def joint_push(
    F: Evaluator, call: Call, tangents: Sequence[Any], values: Sequence[Any]
) -> list[Any]:
    """Tangents of the outputs by the row's joint rule; `values` as for `Call.push`."""
    rule = call.op.joint_jvp
    assert rule is not None
    n = len(call.ins)
    read = _mapped(
        _positions(call, rule, None), lambda p: values[p if p >= 0 else n + ~p]
    )
    found = rule(F, tuple(tangents), call, **read)
    return list(found) if len(call.outs) > 1 else [found]


def joint_reads(call: Call) -> list[int]:
    """Positions of what the row's joint forward rule reads."""
    rule = call.op.joint_jvp
    assert rule is not None
    found: dict[int, None] = {}
    for at in _positions(call, rule, None).values():
        places = at if isinstance(at, tuple) else (at,)
        found.update((p, None) for p in places if p is not None)
    return list(found)


def _positions(
    call: Call, rule: Callable[..., Any], kept: frozenset[int] | None
) -> Read:
    """For each name that a rule reads its position, or those of all operands."""
    op = call.op
    found: Read = {}
    for name in keywords(rule):
        if op.variadic and name == op.args[0]:
            found[name] = tuple(
                i if kept is None or i in kept else None for i in range(len(call.ins))
            )
        elif op.many_outs and name == op.outs[0]:
            found[name] = tuple(
                ~j if kept is None or ~j in kept else None
                for j in range(len(call.outs))
            )
        else:
            found[name] = op.position(name, 0)
    return found


def _mapped(read: Read, fn: Callable[[int], Any]) -> dict[str, Any]:
    return {
        name: tuple([None if p is None else fn(p) for p in at])
        if isinstance(at, tuple)
        else fn(at)
        for name, at in read.items()
    }
