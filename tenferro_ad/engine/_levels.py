"""Recording levels: reverse (tapes) and forward (tangents).

A level is what `State.level` points to. Both kinds see the same equations through
`note`; a reverse level keeps what rules declare, a forward level computes tangents at
once and keeps nothing else.
"""

from __future__ import annotations

from typing import Any, Final

from .._ledger import STATE
from ..ops import Call
from ..runtime import direct
from ..storage import ValueRecord
from ..tape import TapeRecord, hold, let_go
from ._dispatch import HANDLES, Chain, open_level, value_at


class ReverseLevel:
    """A tape's level: appends equations whose inputs it tracks."""

    __slots__ = ("closed", "core", "is_simple", "outer", "watches")
    opaque: Final = False
    pulls: Final = True
    records_all: Final = False

    def __init__(self, core: TapeRecord, outer: Any, *, watches: bool) -> None:
        self.core = core
        self.closed = False
        core.outer = outer
        self.outer = outer
        self.watches = watches
        self.is_simple = outer is None

    def note(
        self,
        call: Call,
        nodes: list[int],
        records: tuple[ValueRecord, ...],
        chains: list[Chain],
        outs: list[ValueRecord],
        above: list[Chain],
    ) -> list[int]:
        core = self.core
        mask = 0
        for i, n in enumerate(nodes):
            if n >= 0:
                mask |= 1 << i
        spec = call.spec(mask)
        kept = [
            (outs[~s], above[~s]) if s < 0 else (records[s], chains[s])
            for s in spec.saves
        ]
        if self.outer is None:
            saved: Any = tuple([hold(r) for r, _ in kept])
        else:
            saved = tuple([value_at(r, c) for r, c in kept])
        if call.is_select:
            core.has_select = True
        first = core.append(spec, tuple([nodes[i] for i in spec.tracked]), saved)
        return [
            first + k if a.dtype.kind in "fc" else -1 for k, a in enumerate(call.outs)
        ]


class _Uncounted:
    """Live counts of nodes that live as long as their recording."""

    __slots__ = ()

    def __getitem__(self, node: int) -> int:
        return 2

    def __setitem__(self, node: int, count: int) -> None:
        """Nothing to count."""


class WholeRecord:
    """What handles link to where a recording keeps all of its nodes to its end.

    Attributes:
        live: None once it has ended.
        has_select: something in it chooses between values.
    """

    __slots__ = ("has_select", "live")
    leaves: Final[dict[Any, int]] = {}
    is_region = False

    def __init__(self) -> None:
        self.live: _Uncounted | None = _Uncounted()
        self.has_select = False

    def keep(self, node: int) -> None:
        """Nodes are never given up one by one."""

    drop = clear = keep


class ForwardRecord:
    """Tangents by node; a tangent goes as soon as nobody can use its node any more.

    It is one holder of each node's tangent.
    """

    __slots__ = ("has_select", "live", "tangents")
    # Forward levels differentiate their arguments only: a variable is a constant.
    leaves: Final[dict[Any, int]] = {}
    is_region: Final = False

    def __init__(self) -> None:
        self.live: list[int] | None = []
        self.tangents: list[Any] = []
        self.has_select = False

    def seed(self, tangent: Any) -> int:
        """A new node, whose tangent is held already."""
        assert self.live is not None
        self.tangents.append(tangent)
        self.live.append(1)
        return len(self.live) - 1

    def keep(self, node: int) -> None:
        if self.live is not None:
            self.live[node] += 1

    def drop(self, node: int) -> None:
        if self.live is not None:
            self.live[node] -= 1
            if not self.live[node]:
                self.clear(node)

    def clear(self, node: int) -> None:
        let_go((self.tangents[node],))
        self.tangents[node] = None

    def close(self) -> None:
        self.live = None
        let_go(self.tangents)
        self.tangents = []

    __del__ = close  # the function may have raised


class ForwardLevel:
    """Computes the tangent of every equation whose inputs it tracks, at once."""

    __slots__ = ("core", "outer")
    opaque: Final = False
    pulls: Final = False
    records_all: Final = False
    is_simple: Final = False
    watches: Final = False
    closed: Final = False

    def __init__(self, core: ForwardRecord, outer: Any) -> None:
        self.core = core
        self.outer = outer

    def note(
        self,
        call: Call,
        nodes: list[int],
        records: tuple[ValueRecord, ...],
        chains: list[Chain],
        outs: list[ValueRecord],
        above: list[Chain],
    ) -> list[int]:
        bare = self.outer is None
        values: list[Any] = [*records, *outs]
        if not bare:
            values = [
                value_at(r, c) for r, c in zip(values, [*chains, *above], strict=True)
            ]
        tangents = [None if n < 0 else self.core.tangents[n] for n in nodes]
        state = STATE.get()
        outer = open_level(self.outer)
        try:
            STATE.set(state.at(outer))
            pushed = call.push(direct() if bare else HANDLES, tangents, values)
        finally:
            STATE.set(state)
        if call.is_select:
            self.core.has_select = True
        if bare:
            _hold_given(pushed, (*values, *tangents))
        return [-1 if t is None else self.core.seed(t) for t in pushed]


def _hold_given(pushed: list[Any], given: tuple[Any, ...]) -> None:
    """Hold tangents that a rule handed on from what it was given, or gave twice."""
    for k, t in enumerate(pushed):
        if t is not None and any(t is x for x in (*given, *pushed[:k])):
            hold(t)
