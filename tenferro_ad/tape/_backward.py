"""The reverse sweep: one loop for eager gradients, nested derivatives and checkpoints.

`sweep` walks the recorded nodes once, from the seeds down, with the evaluator as an
argument: over bare records it computes; over handles it is itself recorded by the
levels outside, so any order of derivative works. It reads the recording and never
changes it, so an error leaves the tape exactly as it was and a retry is legal.

Ownership of cotangents is a property of the program: a rule's fresh output belongs to
the sweep; a cotangent handed on to several inputs, a view, or a seed does not. What the
sweep owns it may add into, or let the next elementwise rule write over; anything else
that comes to rest at a leaf goes through the `accumulate` kernel, so every gradient has
one owner.

Most of what the sweep owns lives for one equation. It is kept as a bare root (an array
in the list of cotangents, see `runtime/_steps.py`) and gets a record when a rule of
general form reads it or when it is a result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._aval import Aval, is_row_major
from .._ledger import STATE
from ..backends import loud, quiet
from ..ops import OPS, UNPREPARED, Evaluator
from ..storage import bare, clothe, release_bare
from ._record import LEAF, PAD, WIDTH, TapeRecord

_ndarray = np.ndarray


def sweep(
    tape: TapeRecord,
    seeds: dict[int, Any],
    F: Evaluator,
    *,
    strong: bool,
    materialise: bool = True,
    spends: bool = False,
) -> dict[int, Any]:
    """Cotangents of all leaves that the seeds depend on, by node.

    Args:
        tape: the recording; not changed, unless it is spent.
        seeds: cotangent by node. The values stay the caller's.
        F: who computes; `F.inplace` allows reuse of cotangents that the sweep owns.
        strong: rules treat an exact zero cotangent as absorbing.
        materialise: give each leaf a buffer of its own; a region inside a larger sweep
            leaves that to the larger one.
        spends: let go of the seeds, and of what an equation saved, once a rule has read
            them: a recording that is the sweep's own.

    Cost: one rule for each live equation between seeds and leaves.
    """
    kind = _TracedSweep if getattr(F, "is_symbolic", False) else _Sweep
    run = kind(tape, seeds, F, strong)
    if spends:
        seeds.clear()
    before = quiet()
    try:
        leaves = run.walk(spends)
        return {i: run.result(i, materialise) for i in leaves}
    except BaseException:
        run.abandon()
        raise
    finally:
        loud(before)


class _Sweep:
    """The state of one sweep: `cts` holds the cotangent of each node, `owned` whether a
    record there belongs to the sweep (a bare root always does)."""

    __slots__ = (
        "F",
        "account",
        "add_into",
        "cts",
        "flat",
        "inplace",
        "multi",
        "owned",
        "state",
        "takes_steps",
        "which",
    )

    def __init__(
        self, tape: TapeRecord, seeds: Mapping[int, Any], F: Evaluator, strong: bool
    ) -> None:
        self.flat, self.multi = tape.flat, tape.multi
        last = max(seeds)
        if self.flat[WIDTH * last].kind == PAD:  # a further output: go to its equation
            last = self.flat[WIDTH * last + 1]
        top = last + self.flat[WIDTH * last].n_out
        self.F, self.inplace = F, F.inplace
        self.takes_steps = F.inplace
        self.add_into: Any = getattr(F, "add_into", None)
        self.which = 1 if strong else 0
        self.state = STATE.get()
        self.account = self.state.account
        self.cts: list[Any] = [None] * top
        self.owned = bytearray(top)
        for node, seed in seeds.items():
            self.cts[node] = seed

    def walk(self, spends: bool) -> list[int]:
        """Visit the equations; gives the leaves that have a cotangent."""
        flat, cts, owned, multi = self.flat, self.cts, self.owned, self.multi
        # Steps compute over records; the last entry of a rule's steps is none.
        state, which = self.state, self.which if self.takes_steps else -1
        prepare: Any = getattr(self.F, "prepare", None)
        leaves: list[int] = []
        for i in range(len(cts) - 1, -1, -1):
            ct = cts[i]
            at = WIDTH * i
            if ct is None and i not in multi:
                if spends:
                    flat[at + 2] = ()
                continue
            spec = flat[at]
            step = spec.steps[which]
            if step is UNPREPARED:
                prepare(spec)
                step = spec.steps[which]
            if step is not None and step(
                state, cts, owned, i, ct, flat[at + 1], flat[at + 2]
            ):
                cts[i] = None
                if spends:
                    flat[at + 2] = ()
                continue
            kind = spec.kind
            if kind == LEAF:
                leaves.append(i)
            elif kind != PAD:  # a further output: its equation stands below
                del ct
                self.general(i, spec, flat[at + 1], flat[at + 2])
                if spends:
                    flat[at + 2] = ()
        return leaves

    def general(self, i: int, spec: Any, ins: tuple[int, ...], saved: Any) -> None:
        """One equation whose rule is of general form, or meets records on its way."""
        cts, inplace = self.cts, self.inplace
        outs = spec.call.outs
        own = bool(self.owned[i]) or type(cts[i]) is _ndarray
        ct: Any
        if spec.n_out > 1:
            ct = tuple([self.take(i + k, aval) for k, aval in enumerate(outs)])
            if all(c is None for c in ct):
                return
            own = False
        else:
            ct = self.take(i, outs[0])
        if inplace and spec.kind >= 0:
            self.kernels(spec.rules[self.which], ins, ct, own, saved)
        elif spec.takes:
            given = [ct]
            del ct  # dies in the region, at its last use
            self.region(spec, ins, given, own, saved)
        else:
            rule = spec.strong if self.which else spec.pull
            owns = inplace and not spec.lends
            gs = rule(self.F, ct, saved)
            same = [any(g is c for c in _several(ct)) for g in gs]
            spent = ct if own else None
            self.share(_shares(ins, gs, same, saved, owns, spent), own)
        if inplace:
            self.strip(ins)

    def region(
        self, spec: Any, ins: tuple[int, ...], given: list[Any], own: bool, saved: Any
    ) -> None:
        """The rule of a region, which takes the cotangent out of `given`."""
        # It may die inside, so that another value gets its identity; its list of tokens
        # stays.
        cts = _several(given[0]) if self.inplace else ()
        came = [c.tokens for c in cts if c is not None]
        del cts
        gs = spec.taken(self.F, given, saved, strong=bool(self.which))
        same = [g is not None and any(g.tokens is t for t in came) for g in gs]
        self.share(_shares(ins, gs, same, saved, self.inplace, None), own)

    def take(self, i: int, aval: Aval) -> Any:
        """The cotangent of node `i` as a record; the node has none afterwards."""
        ct, self.cts[i] = self.cts[i], None
        return clothe(self.account, aval, ct) if type(ct) is _ndarray else ct

    def strip(self, ins: tuple[int, ...]) -> None:
        """Keep what the sweep owns as bare roots, where it is a root of its own."""
        for j in ins:
            h = self.cts[j]
            if not self.owned[j] or h is None or type(h) is _ndarray:
                continue
            if type(h.array) is _ndarray:  # not the buffer of another provider
                array = bare(h, self.account)
                if array is not None:
                    self.cts[j] = array

    def kernels(
        self,
        rules: tuple[Any, ...],
        ins: tuple[int, ...],
        ct: Any,
        own: bool,
        saved: Any,
    ) -> None:
        """Rules that are one kernel each, or None for the cotangent itself.

        Inputs that have a cotangent of their own add to it first; of the others the
        last one may write over `ct`, or a single one, also last, take it as it is.
        """
        cts, owned = self.cts, self.owned
        both = list(zip(ins, rules, strict=True))
        first = [pair for pair in both if self.target(pair[0]) is not None]
        rest = [pair for pair in both if self.target(pair[0]) is None]
        rest.sort(key=lambda pair: pair[1] is None)
        alias = None
        for number, (j, rule) in enumerate(first + rest):
            acc, h = self.target(j), cts[j]
            if acc is not None:
                if rule is None:
                    self.add(acc, ct)
                else:
                    self.into(rule, ct, saved, acc)
            elif rule is not None:
                final = own and alias is None and number == len(both) - 1
                if final and rule.over is not None:
                    g = self.over(rule, ct, saved)
                else:
                    g = self.fresh(rule, ct, saved)
                cts[j], owned[j] = g if h is None else self.add_into(g, h), True
            elif h is None:
                cts[j], owned[j] = ct, own and alias is None and _sole(ct)
                if alias is not None:
                    owned[alias] = False
                alias = j
            else:
                cts[j], owned[j] = self.F.add(h, ct), True

    def share(self, shares: list[tuple[int, Any, bool, bool]], own: bool) -> None:
        """Add the results of a general rule to what their nodes have."""
        cts, owned = self.cts, self.owned
        alias = None
        for j, g, fresh, same in shares:
            mine = fresh
            acc, h = self.target(j), cts[j]
            if h is None:
                if same and own:  # a single alias of `ct` inherits its ownership
                    mine = alias is None and _sole(g)
                    if alias is not None:
                        owned[alias] = False
                    alias = j
                cts[j], owned[j] = g, mine
            elif acc is not None:
                self.add(acc, g)
            elif mine:
                cts[j], owned[j] = self.add_into(g, h), True
            else:
                cts[j], owned[j] = self.F.add(h, g), self.inplace

    def add(self, acc: Any, g: Any) -> None:
        np.add(acc, g.array, acc)

    def into(self, rule: Any, ct: Any, saved: Any, acc: Any) -> None:
        rule.into(self.state, ct, saved, acc)

    def over(self, rule: Any, ct: Any, saved: Any) -> Any:
        return rule.over(ct, saved)

    def fresh(self, rule: Any, ct: Any, saved: Any) -> Any:
        return rule.fresh(self.state, ct, saved)

    def target(self, j: int) -> Any:
        """The array that node `j` may add into, or None."""
        h = self.cts[j]
        if type(h) is _ndarray:
            return h
        return h.array if h is not None and self.owned[j] else None

    def result(self, i: int, materialise: bool) -> Any:
        """The cotangent of leaf `i`, as a record or handle of its own."""
        is_bare = type(self.cts[i]) is _ndarray
        ct = self.take(i, self.flat[WIDTH * i].aval)
        if is_bare or self.owned[i] or not (self.inplace and materialise):
            return ct
        return self.F[OPS["accumulate"]](ct)

    def abandon(self) -> None:
        """The sweep failed: release what it owns."""
        for i, ct in enumerate(self.cts):
            if type(ct) is _ndarray:
                release_bare(self.account, self.aval_at(i), ct)
        self.cts.clear()

    def aval_at(self, i: int) -> Aval:
        spec, first = self.flat[WIDTH * i], i
        if spec.kind == LEAF:
            return spec.aval  # type: ignore[no-any-return]
        if spec.kind == PAD:
            first = self.flat[WIDTH * i + 1]
            spec = self.flat[WIDTH * first]
        return spec.call.outs[i - first]  # type: ignore[no-any-return]


class _TracedSweep(_Sweep):
    """The same decisions over symbolic records: they become equations that say whose
    memory they write. There are no bare roots and no arrays."""

    __slots__ = ()

    def __init__(
        self, tape: TapeRecord, seeds: Mapping[int, Any], F: Evaluator, strong: bool
    ) -> None:
        super().__init__(tape, seeds, F, strong)
        self.takes_steps = False

    def general(self, i: int, spec: Any, ins: tuple[int, ...], saved: Any) -> None:
        if spec.kind == UNPREPARED:
            self.F.prepare(spec)
        super().general(i, spec, ins, saved)

    def target(self, j: int) -> Any:
        h = self.cts[j]
        return h if h is not None and self.owned[j] else None

    def add(self, acc: Any, g: Any) -> None:
        self.F.add_into(acc, g)

    def into(self, rule: Any, ct: Any, saved: Any, acc: Any) -> None:
        self.F.into(rule, ct, saved, acc)

    def over(self, rule: Any, ct: Any, saved: Any) -> Any:
        return self.F.over(rule, ct, saved)

    def fresh(self, rule: Any, ct: Any, saved: Any) -> Any:
        return self.F.fresh(rule, ct, saved)

    def strip(self, ins: tuple[int, ...]) -> None:
        """Symbolic records have no bare roots."""


def _several(ct: Any) -> tuple[Any, ...]:
    return ct if type(ct) is tuple else (ct,)


def _shares(
    ins: tuple[int, ...],
    gs: Sequence[Any],
    same: Sequence[bool],
    saved: tuple[Any, ...],
    inplace: bool,
    spent: Any,
) -> list[tuple[int, Any, bool, bool]]:
    """Input node, cotangent, whether it is fresh, and whether it is the one that came
    in, for a rule of any form.

    Args:
        spent: that one, where the sweep owns it and gives it up after the rule.
    """
    out = []
    for j, g, handed_on in zip(ins, gs, same, strict=True):
        if g is not None:
            mine = (
                inplace
                and not handed_on
                and (len(gs) == 1 or sum([h is g for h in gs]) == 1)
                and _fresh(g, saved, spent)
            )
            out.append((j, g, mine, handed_on))
    return out


def _is_all_of(g: Any, spent: Any) -> bool:
    """A row-major view of all elements of a cotangent that nobody else sees."""
    return (
        spent is not None
        and spent.home is g.home
        and len(g.home.tokens) == 1
        and not spent.tokens
        and g.aval.size == spent.aval.size != 0  # strides of nothing say nothing
        and is_row_major(g.aval, g.array.strides)
        and is_row_major(spent.aval, spent.array.strides)
    )


def _sole(g: Any) -> bool:
    home = g.home
    return home is None or not home.tokens


def _fresh(g: Any, saved: tuple[Any, ...], spent: Any) -> bool:
    """A rule's output that nothing else can see and that may be written: a root of its
    own, or the spent cotangent under another shape."""
    if g.tokens:
        return False
    home = g.home
    if home is None:
        if g.account is None:
            return False
    elif home.tokens and not _is_all_of(g, spent):
        return False
    elif g.aval.size == 0:  # the strides of nothing say nothing
        if home.nbytes:
            return False
    elif 0 in g.array.strides:
        return False
    for s in saved:
        if s is g or (home is not None and s.home is home):
            return False
    return True
