"""How bodies are made and what flows through them.

Loops carry values from step to step, so which of them depend on something (on a tracked
argument, on the batch) is a fixed point over the body: `settled`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Final

from .._aval import Aval, is_inexact
from ._body import BODY_LIMIT, Body, Tools
from ._evaluator import OPS, Evaluator
from ._passes import key_of, renumbered
from ._program import Program, compute

_bodies: Final[dict[Hashable, Body]] = {}


def body_of(program: Program, tools: Tools) -> Body:
    """The body that is this program: the same object for the same structure."""
    program = renumbered(program)
    key = key_of(program)
    found = _bodies.get(key)
    if found is None:
        if len(_bodies) >= BODY_LIMIT:
            _bodies.clear()
        found = _bodies[key] = Body(program, key, tools)
    return found


def forget_bodies() -> None:
    """Start the table afresh; bodies in use stay what they are."""
    _bodies.clear()


def rewritten(
    body: Body,
    fn: Callable[[Evaluator, list[Any]], Sequence[Any]],
    avals: Sequence[Aval],
) -> Body:
    """The body of `fn(F, values)`, with the tools of another."""
    return body_of(body.tools.traced(fn, avals), body.tools)


def with_inputs(
    program: Program, order: Sequence[int], outputs: Sequence[int] | None = None
) -> Program:
    """The program with its inputs (by position) in another order, and with other
    outputs (variables); inputs that it does not read may be left out."""
    return replace(
        program,
        inputs=[program.inputs[i] for i in order],
        outputs=program.outputs if outputs is None else tuple(outputs),
    )


def is_read(program: Program) -> list[bool]:
    """For each input, whether an equation reads it or it is an output."""
    read = {v for eq in program.equations for v in eq.ins} | set(program.outputs)
    return [v in read for v in program.inputs]


# ---- what depends on what ------------------------------------------------------------


def reached(program: Program, flags: Sequence[bool], *, smooth: bool) -> list[bool]:
    """Which outputs depend on the inputs that are flagged.

    Args:
        smooth: follow derivatives only: through differentiable applications, to values
            that can carry one.
    """
    found = {v for v, f in zip(program.inputs, flags, strict=True) if f}
    for eq in program.equations:
        if any(v in found for v in eq.ins):
            if smooth and not eq.call.is_differentiable:
                continue
            found.update(
                v for v in eq.outs if not smooth or is_inexact(program.avals[v].dtype)
            )
    return [v in found for v in program.outputs]


def settled(
    program: Program, flags: Sequence[bool], carry: int, *, smooth: bool
) -> list[bool]:
    """The flags of the inputs, once they have gone round a loop whose first `carry`
    outputs are its first inputs in the next step."""
    flags = list(flags)
    while True:
        outs = reached(program, flags, smooth=smooth)
        new = [f or y for f, y in zip(flags, outs[:carry], strict=False)]
        if new == flags[:carry]:
            return flags
        flags[:carry] = new


# ---- forward mode --------------------------------------------------------------------


def push_through(
    program: Program, F: Evaluator, values: Sequence[Any], tangents: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The outputs and their tangents (None where there is none), computed together."""
    primal = dict(zip(program.inputs, values, strict=True))
    primal.update((v, F.literal(x)) for v, x in program.literals.items())
    tangent = dict(zip(program.inputs, tangents, strict=True))
    for eq in program.equations:
        ins = [primal[v] for v in eq.ins]
        outs = compute(F, eq.call, ins)
        ts = [tangent.get(v) for v in eq.ins]
        if any(t is not None for t in ts) and eq.call.is_differentiable:
            pushed = eq.call.push(F, ts, [*ins, *outs])
            tangent.update(zip(eq.outs, pushed, strict=True))
        primal.update(zip(eq.outs, outs, strict=True))
    return (
        [primal[v] for v in program.outputs],
        [tangent.get(v) for v in program.outputs],
    )


def zeros(F: Evaluator, aval: Aval) -> Any:
    """A value of zeros."""
    return F.full(aval.shape, aval.dtype, 0, aval.device)


# ---- one more loop -------------------------------------------------------------------


def scanned(
    F: Evaluator,
    body: Body,
    carry: Sequence[Any],
    xs: Sequence[Any],
    consts: Sequence[Any],
    length: int,
    *,
    reverse: bool,
    keeps: tuple[int, ...] = (),
) -> list[Any]:
    """A loop on values of `F`: the carries, ys and stacks of the carries in `keeps`.

    A carry that the body hands on as it is becomes a constant of the loop.
    """
    k = len(carry)
    fixed = [body.program.inputs[j] == body.program.outputs[j] for j in range(k)]
    if any(fixed):
        body = body.derived(("fixed", k, len(xs)), lambda: _without(body, fixed, xs))
    at = {j: p for p, j in enumerate(j for j in range(k) if not fixed[j])}
    going = [carry[j] for j in at]
    consts = [*consts, *[x for x, f in zip(carry, fixed, strict=True) if f]]
    outs: list[Any] = []
    if body.program.outputs:
        params = (body, len(going), len(xs), length, reverse)
        moving = tuple(at[j] for j in keeps if j in at)
        found = F[OPS["scan"]]((*going, *xs, *consts), *params, moving)
        outs = list(found) if isinstance(found, tuple) else [found]
    rest = iter(outs[len(going) :])
    ys = [next(rest) for _ in range(len(body.program.outputs) - len(going))]
    return [
        *[outs[at[j]] if j in at else carry[j] for j in range(k)],
        *ys,
        *[
            next(rest)
            if j in at
            else F.broadcast_to(carry[j], (length, *carry[j].aval.shape))
            for j in keeps
        ],
    ]


def _without(body: Body, fixed: list[bool], xs: Sequence[Any]) -> Body:
    """The body with carries that do not change as constants."""
    program, k, n = body.program, len(fixed), len(body.program.inputs)
    moving = [j for j in range(k) if not fixed[j]]
    order = [*moving, *range(k, n), *[j for j in range(k) if fixed[j]]]
    outputs = [program.outputs[j] for j in (*moving, *range(k, len(program.outputs)))]
    return body_of(with_inputs(program, order, outputs), body.tools)


__all__ = [
    "body_of",
    "forget_bodies",
    "is_read",
    "push_through",
    "reached",
    "rewritten",
    "scanned",
    "settled",
    "with_inputs",
    "zeros",
]
