"""The reverse sweep: one loop for eager gradients, nested derivatives and checkpoints.

`sweep` walks the recorded nodes once, from the seeds down, with the evaluator as an
argument: over bare records it computes; over handles it is itself recorded by the levels
outside, so any order of derivative works. It reads the recording and never changes it, so
an error leaves the tape exactly as it was and a retry is legal.

Ownership of cotangents is a property of the program: a rule's fresh output belongs to the
sweep; a cotangent handed on to several inputs, a view, or a seed does not. What the sweep
owns it may add into, or let the next elementwise rule write over; anything else that comes
to rest at a leaf goes through the `accumulate` kernel, so every gradient has one owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from .._ledger import STATE
from ..ops import OPS, Evaluator
from ._record import WIDTH, LeafSpec, TapeRecord


def sweep(
    tape: TapeRecord,
    seeds: Mapping[int, Any],
    F: Evaluator,
    *,
    strong: bool,
    materialise: bool = True,
) -> dict[int, Any]:
    """Cotangents of all leaves that the seeds depend on, by node.

    Args:
        tape: the recording; not changed.
        seeds: cotangent by node. The values stay the caller's.
        F: who computes; `F.inplace` allows reuse of cotangents that the sweep owns.
        strong: rules treat an exact zero cotangent as absorbing.
        materialise: give each leaf a buffer of its own; a region inside a larger sweep
            leaves that to the larger one.

    Cost: one rule for each live equation between seeds and leaves.
    """
    flat = tape.flat
    top = max(seeds) + 1
    cts: list[Any] = [None] * top
    owned = bytearray(top)
    multi = tape.multi
    inplace = F.inplace
    prepare: Any = getattr(F, "prepare", None)
    state = STATE.get()
    leaves: list[int] = []
    kind: int
    rule: Any
    shares: Any
    for node, seed in seeds.items():
        cts[node] = seed
    for i in range(top - 1, -1, -1):
        ct = cts[i]
        if ct is None and i not in multi:
            continue
        at = WIDTH * i
        spec = flat[at]
        if type(spec) is LeafSpec:
            leaves.append(i)
            continue
        if spec is None:
            continue  # a further output: its equation stands below
        ins = flat[at + 1]
        saved = flat[at + 2]
        own = owned[i]
        if spec.n_out > 1:
            ct = tuple(cts[i : i + spec.n_out])
            if not any(c is not None for c in ct):
                continue
            cts[i : i + spec.n_out] = [None] * spec.n_out
            own = 0
        else:
            cts[i] = None
        kind, rule = (spec.direct or prepare(spec))[strong] if inplace else _GENERAL
        if kind == 1:
            g = rule(state, ct, saved, own)
            j = ins[0]
            if cts[j] is None:
                cts[j] = g
                owned[j] = 1
                continue
            shares = ((j, g, 1),)
        elif kind == 2:
            g, h = rule(state, ct, saved, own)
            shares = ((ins[0], g, 1), (ins[1], h, 1))
            del h
        elif kind == 0:
            shares = ((ins[0], ct, own and _sole(ct)),)
        else:
            gs = (spec.strong if strong else spec.pull)(F, ct, saved)
            shares = _shares(ins, gs, ct, saved, own, inplace)
            del gs
        for j, g, mine in shares:
            held = cts[j]
            if g is None:
                continue
            if held is None:
                cts[j] = g
                owned[j] = mine
            elif owned[j]:
                F.add_into(held, g)
            elif mine:
                cts[j] = F.add_into(g, held)
                owned[j] = 1
            else:
                cts[j] = F.add(held, g)
                owned[j] = inplace
        held = g = ct = saved = shares = None
    if not (inplace and materialise):
        return {i: cts[i] for i in leaves}
    accumulate = F[OPS["accumulate"]]
    return {i: cts[i] if owned[i] else accumulate(cts[i]) for i in leaves}


_GENERAL: Final = (-1, None)


def _shares(
    ins: tuple[int, ...],
    gs: tuple[Any, ...],
    ct: Any,
    saved: tuple[Any, ...],
    own: int,
    inplace: bool,
) -> list[tuple[int, Any, bool]]:
    """Input node, cotangent and whether the sweep owns it, for a rule of several inputs."""
    out = []
    for j, g in zip(ins, gs, strict=True):
        if g is None:
            continue
        mine = False
        if inplace:
            once = sum([h is g for h in gs]) == 1
            if g is ct:
                mine = bool(own) and once and _sole(g)
            else:
                mine = once and _fresh(g, saved)
        out.append((j, g, mine))
    return out


def _sole(g: Any) -> bool:
    home = g.home
    return home is None or not home.tokens


def _fresh(g: Any, saved: tuple[Any, ...]) -> bool:
    """A rule's output that nothing else can see and that may be written."""
    if g is None:
        return False
    home = g.home
    if home is None:
        if g.account is None:
            return False
    elif home.tokens or 0 in g.array.strides:
        return False
    for s in saved:
        if s is g or (home is not None and s.home is home):
            return False
    return True
