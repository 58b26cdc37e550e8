"""Passes over programs: dead equations go, repeated ones are computed once.

Every pass gives a new program that passes `check`. Variables are numbered anew in order
of definition, so programs of one structure have one `key`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ._call import Call
from ._evaluator import OPS
from ._program import Equation, Program, last_uses, writable


def optimise(program: Program) -> Program:
    """Without repeated and dead equations, checked.

    A repeated equation has the same operation, operands and parameters as an earlier
    one. What a checkpoint runs again is never merged, neither with the first run nor
    with another one (a region inside a region runs twice), and what is written over
    keeps a value of its own.

    Cost: work for each equation; nothing is computed.
    """
    made = renumbered(_live(_merged(program)))
    made.check()
    return made


def _live(program: Program) -> Program:
    needed = set(program.outputs)
    kept: list[Equation] = []
    for eq in reversed(program.equations):
        if any(v in needed for v in eq.outs):
            kept.append(eq)
            needed.update(eq.ins)
    kept.reverse()
    literals = {v: x for v, x in program.literals.items() if v in needed}
    return Program(list(program.inputs), kept, program.outputs, program.avals, literals)


def _merged(program: Program) -> Program:
    """Common subexpressions merged, in one walk."""
    same: dict[int, int] = {}
    seen: dict[Hashable, tuple[int, ...]] = {}
    literals: dict[int, Any] = {}
    # Memory that somebody writes over belongs to one value only.
    roots = writable(program).roots
    single = {
        roots[v]
        for eq in program.equations
        if eq.mode != "fresh"
        for v in (eq.ins[0], eq.outs[0])
    }
    for v, record in program.literals.items():
        key: Hashable = (record.aval, record.array.tobytes())
        found = seen.get(key)
        if found is None:
            seen[key] = (v,)
            literals[v] = record
        else:
            same[v] = found[0]
    equations: list[Equation] = []
    for eq in program.equations:
        ins = tuple([same.get(v, v) for v in eq.ins])
        eq = replace(eq, ins=ins)
        shared = any(roots[v] in single for v in eq.outs)
        if eq.mode == "fresh" and not eq.recompute and not shared:
            call = eq.call
            own: Any = () if hasattr(call, "run") else (call.op, call.params)
            key = (own or call, ins)
            found = seen.get(key)
            if found is not None:
                same.update(zip(eq.outs, found, strict=True))
                continue
            seen[key] = eq.outs
        equations.append(eq)
    outputs = tuple([same.get(v, v) for v in program.outputs])
    return Program(list(program.inputs), equations, outputs, program.avals, literals)


def renumbered(program: Program, *, fresh: bool = False) -> Program:
    """The same program, its variables numbered in order of definition.

    Permissions to write over an operand that no longer hold are taken back; with
    `fresh`, all of them.
    """
    refused = set(writable(program).refused)
    if fresh:
        refused = {k for k, eq in enumerate(program.equations) if eq.mode != "fresh"}
    made = Program()
    at: dict[int, int] = {}

    def define(vs: Sequence[int]) -> tuple[int, ...]:
        for v in vs:
            at[v] = made.variable(program.avals[v])
        return tuple([at[v] for v in vs])

    made.inputs = list(define(program.inputs))
    for v, record in program.literals.items():
        define((v,))
        made.literals[at[v]] = record
    for number, eq in enumerate(program.equations):
        ins = tuple([at[v] for v in eq.ins])
        if number in refused:
            eq, ins = _unshared(eq, ins, made)
        saves = tuple([at[v] for v in eq.saves if v in at])
        made.equations.append(replace(eq, ins=ins, outs=define(eq.outs), saves=saves))
    made.outputs = tuple([at[v] for v in program.outputs])
    return made


def without_reuse(program: Program) -> Program:
    """Every equation in memory of its own: what recordings are made of."""
    if all(eq.mode == "fresh" for eq in program.equations):
        return program
    return renumbered(program, fresh=True)


def inlined(program: Program) -> Program:
    """The equations of regions in place of the regions' calls, and those of functions
    with a rule of their own in place of the functions."""

    def instead(eq: Equation) -> Program | None:
        call = eq.call
        if hasattr(call, "run"):
            return inlined(call.program)
        return inlined(call.op.inlines(call)) if call.op.inlines else None

    return expanded(program, instead)


def expanded(
    program: Program, instead: Callable[[Equation], Program | None]
) -> Program:
    """The program with other programs, which have the same inputs and outputs, instead
    of some equations."""
    bodies = [instead(eq) for eq in program.equations]
    if not any(body is not None for body in bodies):
        return program
    made = Program(list(program.inputs), [], (), list(program.avals))
    made.literals = dict(program.literals)
    same: dict[int, int] = {}
    for eq, body in zip(program.equations, bodies, strict=True):
        ins = tuple([same.get(v, v) for v in eq.ins])
        if body is None:
            made.equations.append(replace(eq, ins=ins))
            continue
        at = dict(zip(body.inputs, ins, strict=True))
        for v, record in body.literals.items():
            at[v] = made.variable(record.aval)
            made.literals[at[v]] = record
        for inner in body.equations:
            for v in inner.outs:
                at[v] = made.variable(body.avals[v])
            made.equations.append(
                replace(
                    inner,
                    ins=tuple([at[v] for v in inner.ins]),
                    outs=tuple([at[v] for v in inner.outs]),
                    recompute=inner.recompute or eq.recompute,
                )
            )
        same.update(zip(eq.outs, [at[v] for v in body.outputs], strict=True))
    made.outputs = tuple([same.get(v, v) for v in program.outputs])
    return optimise(made)


def _unshared(
    eq: Equation, ins: tuple[int, ...], made: Program
) -> tuple[Equation, tuple[int, ...]]:
    """The equation in memory of its own; a sum into memory becomes two equations."""
    if eq.mode == "over":
        return replace(eq, mode="fresh"), ins
    part = made.variable(eq.call.out)
    made.equations.append(replace(eq, ins=ins[1:], outs=(part,), mode="fresh"))
    aval = eq.call.out
    total = Call(OPS["add"], (aval, aval), (aval,), ())
    return replace(eq, call=total, mode="fresh"), (ins[0], part)


def key_of(program: Program) -> Hashable:
    """Equal for programs that compute the same thing by the same equations.

    The program must have been renumbered.
    """
    return (
        program.in_avals,
        tuple((v, r.aval, r.array.tobytes()) for v, r in program.literals.items()),
        tuple(
            (
                _call_key(eq.call),
                eq.ins,
                eq.recompute,
                eq.mode,
            )
            for eq in program.equations
        ),
        program.outputs,
    )


def _call_key(call: Any) -> Hashable:
    if hasattr(call, "run"):
        return key_of(call.program)
    return (call.op, call.params)


def subprogram(
    program: Program, outputs: Sequence[int], inputs: Sequence[int] | None = None
) -> Program:
    """The part that computes `outputs`, from the given variables on (default: the
    program's own inputs)."""
    given = list(program.inputs if inputs is None else inputs)
    needed, kept = set(outputs), []
    for eq in reversed(program.equations):
        if any(v in needed and v not in given for v in eq.outs):
            kept.append(eq)
            needed.update(eq.ins)
    kept.reverse()
    part = Program(given, kept, tuple(outputs), program.avals, dict(program.literals))
    return optimise(part)


__all__ = [
    "expanded",
    "inlined",
    "key_of",
    "last_uses",
    "optimise",
    "renumbered",
    "subprogram",
    "without_reuse",
]
