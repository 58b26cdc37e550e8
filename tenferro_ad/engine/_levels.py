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
from ..tape import TapeRecord
from ._dispatch import HANDLES, Chain, open_level, value_at


def handle_at(record: ValueRecord, chain: Chain, *, bare: bool) -> Any:
    """A value as the level outside computes with it: a record if there is no level."""
    return record if bare else value_at(record, chain, bare=False)


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
        bare = self.outer is None
        saved = tuple(
            [
                value_at(outs[~s], above[~s], bare=bare)
                if s < 0
                else value_at(records[s], chains[s], bare=bare)
                for s in spec.saves
            ]
        )
        if call.is_select:
            core.has_select = True
        first = core.append(spec, tuple([nodes[i] for i in spec.tracked]), saved)
        return [
            first + k if a.dtype.kind in "fc" else -1 for k, a in enumerate(call.outs)
        ]


class ForwardRecord:
    """Tangents by node; a tangent goes as soon as nobody can use its node any more."""

    __slots__ = ("has_select", "live", "tangents")
    # Forward levels differentiate their arguments only: a variable is a constant.
    leaves: Final[dict[Any, int]] = {}
    is_region: Final = False

    def __init__(self) -> None:
        self.live: list[int] | None = []
        self.tangents: list[Any] = []
        self.has_select = False

    def seed(self, tangent: Any) -> int:
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
        self.tangents[node] = None

    def close(self) -> None:
        self.live = None
        self.tangents = []


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
        values = [
            handle_at(r, c, bare=bare) for r, c in zip(records, chains, strict=True)
        ]
        values += [handle_at(r, c, bare=bare) for r, c in zip(outs, above, strict=True)]
        tangents = [None if n < 0 else self.core.tangents[n] for n in nodes]
        state = STATE.get()
        outer = open_level(self.outer)
        token = STATE.set(state.at(outer))
        try:
            pushed = call.push(direct() if bare else HANDLES, tangents, values)
        finally:
            STATE.reset(token)
        if call.is_select:
            self.core.has_select = True
        return [-1 if t is None else self.core.seed(t) for t in pushed]
