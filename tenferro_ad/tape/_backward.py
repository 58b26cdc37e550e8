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
from typing import Any

from .._ledger import STATE
from ..ops import OPS, Evaluator
from ._record import LEAF, PAD, WIDTH, TapeRecord


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
    add_into: Any = getattr(F, "add_into", None)
    state = STATE.get()
    leaves: list[int] = []
    ct: Any
    g: Any
    h: Any
    shares: Any
    for node, seed in seeds.items():
        cts[node] = seed
    for i in range(top - 1, -1, -1):
        ct = cts[i]
        if ct is None and i not in multi:
            continue
        at = WIDTH * i
        spec = flat[at]
        kind = spec.kind
        if kind < 0:
            if kind == LEAF:
                leaves.append(i)
                continue
            if kind == PAD:
                continue  # a further output: its equation stands below
            if kind == -2 and inplace:
                kind = prepare(spec)
        ins = flat[at + 1]
        # One and two inputs with a kernel each are most of all equations.
        if kind == 1 and inplace:
            cts[i] = None
            rule = spec.rules[strong][0]
            j = ins[0]
            h = cts[j]
            if h is None:
                cts[j] = (
                    rule.over(ct, flat[at + 2])
                    if owned[i] and rule.over is not None
                    else rule.fresh(state, ct, flat[at + 2])
                )
                owned[j] = 1
            elif owned[j]:
                rule.into(state, ct, flat[at + 2], h)
            else:
                cts[j] = add_into(rule.fresh(state, ct, flat[at + 2]), h)
                owned[j] = 1
            ct = h = None
            continue
        if kind == 2 and inplace:
            cts[i] = None
            saved = flat[at + 2]
            first, second = spec.rules[strong]
            j, k = ins
            # The input that only adds to what it has goes first, so that the other one
            # may write over the cotangent.
            if owned[k] and cts[k] is not None:
                first, second, j, k = second, first, k, j
            h = cts[j]
            if h is None:
                cts[j] = first.fresh(state, ct, saved)
            elif owned[j]:
                first.into(state, ct, saved, h)
            else:
                cts[j] = add_into(first.fresh(state, ct, saved), h)
            owned[j] = 1
            h = cts[k]
            if h is None:
                cts[k] = (
                    second.over(ct, saved)
                    if owned[i] and second.over is not None
                    else second.fresh(state, ct, saved)
                )
            elif owned[k]:
                second.into(state, ct, saved, h)
            else:
                cts[k] = add_into(second.fresh(state, ct, saved), h)
            owned[k] = 1
            ct = h = saved = None
            continue
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
        if not inplace or kind < 0:
            gs = (spec.strong if strong else spec.pull)(F, ct, saved)
            shares = _shares(ins, gs, ct, saved, inplace)
            del gs
        elif kind == 0:
            shares = [(ins[0], ct, False)]
        else:
            shares = [
                (j, ct, False)
                if rule is None
                else (j, rule.fresh(state, ct, saved), True)
                for j, rule in zip(ins, spec.rules[strong], strict=True)
            ]
        # Inputs that already have a cotangent of their own take the sum into it; only
        # what is left can alias `ct`, and a single alias inherits its ownership.
        alias = None
        for j, g, mine in shares:
            h = cts[j]
            if h is None:
                if g is ct and own:
                    mine = alias is None and _sole(g)
                    if alias is not None:
                        owned[alias] = 0
                    alias = j
                cts[j] = g
                owned[j] = mine
            elif owned[j]:
                add_into(h, g)
            elif mine:
                cts[j] = add_into(g, h)
                owned[j] = 1
            else:
                cts[j] = F.add(h, g)
                owned[j] = inplace
        h = g = ct = saved = shares = None
    if not (inplace and materialise):
        return {i: cts[i] for i in leaves}
    accumulate = F[OPS["accumulate"]]
    return {i: cts[i] if owned[i] else accumulate(cts[i]) for i in leaves}


def _shares(
    ins: tuple[int, ...],
    gs: tuple[Any, ...],
    ct: Any,
    saved: tuple[Any, ...],
    inplace: bool,
) -> list[tuple[int, Any, bool]]:
    """Input node, cotangent and whether it is fresh, for a rule of any form."""
    out = []
    for j, g in zip(ins, gs, strict=True):
        if g is not None:
            mine = (
                inplace
                and g is not ct
                and (len(gs) == 1 or sum([h is g for h in gs]) == 1)
                and _fresh(g, saved)
            )
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
