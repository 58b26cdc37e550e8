"""Tape records: what a recording level keeps, in the form the hot path appends.

A `TapeRecord` is the reverse-mode recording of one level: three fields for each node in
one flat list (rule, input nodes, saved values) and one count of live outputs for each
node. Equations, descriptors and groups are made from it on demand.

Handles refer to the `TapeRecord` (it is the tape's one link cell) but never the other
way round, so there are no cycles; dropping the tape empties the record and the handles
that remain become constants. A node whose outputs nobody can reach any more (no handle,
no later live equation) gives its retained records back at once, through an iterative
work list.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from .._aval import Aval
from ..ops import Call, Equation, Program, RuleSpec
from ..storage import ValueRecord

WIDTH: Final = 3
# Kinds of nodes that are no equations; equations have the `kind` of their rule.
LEAF: Final = -3
PAD: Final = -4
NO_STEPS: Final = (None, None, None)


@final
class Leaf:
    """The bare token of a differentiable leaf: identity only, owns nothing."""

    __slots__ = ()
    # A leaf is never a recording: `live` says so to code that asks every link.
    live: Final = None
    is_region: Final = False

    def drop(self, node: int) -> None:
        """Handles keep and release their node; a leaf has none."""

    keep = drop


@final
class LeafSpec:
    """Node rule of a leaf: where cotangents come to rest."""

    __slots__ = ("aval",)
    n_out: Final = 1
    kind: Final = LEAF
    steps: Final = NO_STEPS

    def __init__(self, aval: Aval) -> None:
        self.aval = aval


@dataclass(frozen=True, slots=True)
class Retained:
    """One retained value, as `tape.retained()` lists it.

    Attributes:
        value: name of the argument or output that is kept.
        operation: the operation whose rule declared it (or `retain`, `checkpoint`).
        shape, dtype: of the value.
        nbytes: bytes of the value itself.
        root_nbytes: bytes of the allocation it pins.
    """

    value: str
    operation: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    root_nbytes: int


def hold(record: Any) -> Any:
    """Become a further strong holder of a record."""
    record.tokens.append(None)
    return record


def let_go(saved: Any) -> None:
    """Stop holding saved values. Handles (nested levels) look after themselves."""
    for value in saved:
        if type(value) is ValueRecord and value.tokens:
            try:
                value.tokens.pop()
            except IndexError:
                pass  # another holder took the last token: we are the last


@final
class TapeRecord:
    """See the module text. `live is None` means consumed or dropped."""

    __slots__ = (
        "consumed",
        "extra",
        "flat",
        "has_select",
        "leaves",
        "live",
        "multi",
        "outer",
    )
    is_region: Final = False

    def __init__(self) -> None:
        self.flat: list[Any] = []
        self.live: list[int] | None = []
        self.leaves: dict[Leaf, int] = {}
        self.multi: set[int] = set()
        self.extra: list[ValueRecord] = []
        self.has_select = False
        self.consumed = False
        # The level outside when recording began; set by the level that uses this
        # record.
        self.outer: Any = None

    def __len__(self) -> int:
        return len(self.flat) // WIDTH

    # -- recording ---------------------------------------------------------------------

    def leaf(self, token: Leaf | None, aval: Aval) -> int:
        """The node of a leaf; made on first use."""
        if token is not None:
            found = self.leaves.get(token)
            if found is not None:
                return found
        live = self.live
        assert live is not None
        node = len(live)
        self.flat += (LeafSpec(aval), (), ())
        live.append(1)
        if token is not None:
            self.leaves[token] = node
        return node

    def append(self, spec: Any, ins: tuple[int, ...], saved: tuple[Any, ...]) -> int:
        """Record one equation; gives the node of its first output.

        Args:
            spec: the rule (`RuleSpec`, or a checkpoint's).
            ins: nodes of the tracked arguments, in the rule's order.
            saved: values in the order of `spec.saves`, already held.
        """
        live = self.live
        assert live is not None
        node = len(live)
        self.flat += (spec, ins, saved)
        live.append(1)
        for i in ins:
            live[i] += 1
        if spec.n_out > 1:
            self.multi.add(node)
            for _ in range(spec.n_out - 1):
                self.flat += (_PAD, node, ())
                live.append(1)
        return node

    # -- liveness ----------------------------------------------------------------------

    def drop(self, node: int) -> None:
        """A handle on `node` is gone."""
        live = self.live
        if live is not None:
            n = live[node] - 1
            live[node] = n
            if not n:
                self.clear(node)

    def keep(self, node: int) -> None:
        """One more handle on `node`."""
        if self.live is not None:
            self.live[node] += 1

    def clear(self, node: int) -> None:
        """Nobody can reach `node`: give back what it retains, and so on upwards."""
        flat, live = self.flat, self.live
        assert live is not None
        work = [node]
        while work:
            i = work.pop()
            spec = flat[WIDTH * i]
            if spec is _PAD:
                i = flat[WIDTH * i + 1]
                spec = flat[WIDTH * i]
            if type(spec) is LeafSpec or spec is _CLEARED:
                continue
            if spec.n_out > 1 and any(live[i : i + spec.n_out]):
                continue
            at = WIDTH * i
            ins, saved = flat[at + 1], flat[at + 2]
            flat[at], flat[at + 1], flat[at + 2] = _CLEARED, (), ()
            let_go(saved)
            for j in ins:
                n = live[j] - 1
                live[j] = n
                if not n:
                    work.append(j)

    def close(self) -> None:
        """Give everything back: the tape was consumed or dropped."""
        flat, self.live = self.flat, None
        self.flat = []
        self.leaves = {}
        self.multi = set()
        let_go(self.extra)
        self.extra = []
        for saved in flat[2::WIDTH]:
            for value in saved:
                if type(value) is ValueRecord and value.tokens:
                    try:
                        value.tokens.pop()
                    except IndexError:
                        pass  # another holder took the last token

    # -- reading -----------------------------------------------------------------------

    def retained(self) -> Iterator[Retained]:
        """What is kept, in the order it was recorded."""
        for at in range(0, len(self.flat), WIDTH):
            spec = self.flat[at]
            for name, value in zip(_names(spec), self.flat[at + 2], strict=True):
                yield _describe(name, spec.call.op.name, value)
        for value in self.extra:
            yield _describe("value", "retain", value)

    @property
    def retained_nbytes(self) -> int:
        """Bytes of the roots that are kept; a root that several values share counts
        once."""
        roots: dict[int, int] = {}
        for value in (
            *[v for saved in self.flat[2::WIDTH] for v in saved],
            *self.extra,
        ):
            record = value if type(value) is ValueRecord else value._record
            owner = record if record.home is None else record.home
            roots[id(owner)] = record.root_nbytes
        return sum(roots.values())

    def program(self) -> Program:
        """The recording as a program (tracked inputs only; constants are not nodes)."""
        program = Program()
        for at in range(0, len(self.flat), WIDTH):
            node = at // WIDTH
            spec = self.flat[at]
            if spec is _PAD:
                main = self.flat[WIDTH * self.flat[at + 1]]
                program.avals.append(
                    main.call.outs[node - self.flat[at + 1]]
                    if main is not _CLEARED
                    else _NOTHING
                )
            elif spec is _CLEARED:
                program.avals.append(_NOTHING)
            elif type(spec) is LeafSpec:
                program.avals.append(spec.aval)
                program.inputs.append(node)
            else:
                program.avals.append(spec.call.outs[0])
                call = spec.call
                program.equations.append(
                    Equation(
                        Call(
                            call.op,
                            tuple(call.ins[i] for i in spec.tracked),
                            call.outs,
                            call.params,
                        ),
                        self.flat[at + 1],
                        tuple(range(node, node + spec.n_out)),
                    )
                )
        return program


class _Cleared:
    """What is left of an equation that nobody can reach any more."""

    n_out: Final = 1
    tracked: Final = ()
    kind: Final = PAD
    steps: Final = NO_STEPS


class _Pad:
    """A further output of the equation whose node stands in the second field."""

    n_out: Final = 1
    kind: Final = PAD
    steps: Final = NO_STEPS


_PAD: Final = _Pad()


_CLEARED: Final = _Cleared()
_NOTHING: Final = Aval((), np.dtype(np.float64), None)


def _names(spec: Any) -> tuple[str, ...]:
    if isinstance(spec, RuleSpec):
        op = spec.call.op
        return tuple(_name(op, s) for s in spec.saves)
    return getattr(spec, "names", ())


def _name(op: Any, at: int) -> str:
    if at < 0:
        return f"{op.outs[0]}[{~at}]" if op.many_outs else op.outs[~at]
    return f"{op.args[0]}[{at}]" if op.variadic else op.args[at]


def _describe(name: str, operation: str, value: Any) -> Retained:
    record = value if type(value) is ValueRecord else value._record
    aval = record.aval
    return Retained(
        name,
        operation,
        aval.shape,
        str(aval.dtype),
        0 if record.is_rootless else aval.nbytes,
        record.root_nbytes,
    )
