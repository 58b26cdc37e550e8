"""How recordings take a function with a reverse rule of its own.

The innermost recording that tracks an argument gets one equation with the user's rule.
`fwd` runs as the recordings outside see it, so they differentiate its operations, and
those of `bwd`, like any others. Meanwhile a guard stands in the recording's place:
what `fwd` closes over and the recording tracks would lose its gradient, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

from .._aval import is_inexact
from .._ledger import STATE, State
from ..ops import CUSTOM_VJP, Call, closes_over
from ..storage import ValueRecord
from ..tape import NO_STEPS, Leaf, hold
from ._dispatch import (
    Chain,
    chain_of,
    inside,
    leave_level,
    living,
    open_level,
    value_at,
)
from ._eager import EagerTensor
from ._pytrees import relinked

Nodes = list[int | None]


def tracking_level(
    state: State, tensors: Sequence[EagerTensor], operation: str
) -> tuple[Any, list[EagerTensor], Nodes]:
    """The innermost level that tracks one of the tensors, or that records everything;
    the tensors as an open trace knows them, and their nodes there."""
    if state.trace is not None:
        tensors = [inside(state, x, operation) for x in tensors]
    chains = [living(chain_of(x), operation, "f") for x in tensors]
    level = open_level(state.level)
    while level is not None:
        if level.records_all:
            return level, list(tensors), [None] * len(chains)
        nodes = [
            None if c is None or not is_inexact(x.dtype) else _node(level, c, x)
            for c, x in zip(chains, tensors, strict=True)
        ]
        if any(n is not None for n in nodes):
            return level, list(tensors), nodes
        level = open_level(level.outer)
    return None, list(tensors), [None] * len(chains)


def _node(level: Any, chain: Any, x: EagerTensor) -> int | None:
    link = chain[0]
    if link is level.core:
        return chain[1]  # type: ignore[no-any-return]
    if type(link) is not Leaf:
        return None
    if level.watches:
        return level.core.leaf(link, x.aval)  # type: ignore[no-any-return]
    return level.core.leaves.get(link)  # type: ignore[no-any-return]


def outside(level: Any, x: EagerTensor) -> EagerTensor:
    """`x` as the levels around `level` know it."""
    chain = living(chain_of(x), "custom_vjp", "f")
    if chain is not None and chain[0] is level.core:
        chain = chain[2]
    elif chain is not None and type(chain[0]) is Leaf:
        chain = _leaf_chain(level.outer, chain[0], x)
    return value_at(x._record, chain)


def _leaf_chain(level: Any, leaf: Leaf, x: EagerTensor) -> Chain:
    """The nodes of a leaf on these levels: the guard must not take it for one of its
    own."""
    if level is None:
        return None
    rest = _leaf_chain(level.outer, leaf, x)
    node = None if level.closed else _node(level, (leaf,), x)
    return rest if node is None else (level.core, node, rest)


class _Guard:
    """In the place of a level whose rule the user supplies."""

    __slots__ = ("closed", "core", "name", "outer", "watches")
    opaque: Final = False
    pulls: Final = False
    records_all: Final = False
    is_simple: Final = False

    def __init__(self, level: Any, name: str) -> None:
        self.core, self.outer, self.watches = level.core, level.outer, level.watches
        self.closed, self.name = False, name

    def note(self, *facts: Any) -> list[int]:
        raise closes_over(self.name)


def guarded(level: Any, name: str, fn: Callable[[], Any]) -> Any:
    """`fn()` as the levels around `level` see it."""
    before = STATE.get()
    try:
        STATE.set(before.at(_Guard(level, name)))
        return fn()
    finally:
        leave_level(before)


@final
class CustomSpec:
    """The equation with the user's rule, as a tape keeps it.

    Attributes:
        names: of the residuals.
        lends: the rule's results may be values that somebody else holds.
    """

    __slots__ = ("_pull", "call", "n_out", "names", "tracked")
    kind: Final = -1
    steps: Final = NO_STEPS
    lends: Final = True
    takes: Final = False

    def __init__(
        self,
        call: Call,
        tracked: tuple[int, ...],
        names: tuple[str, ...],
        pull: Callable[[list[EagerTensor | None], list[EagerTensor]], list[Any]],
    ) -> None:
        self.call, self.tracked, self.names, self._pull = call, tracked, names, pull
        self.n_out = len(call.outs)

    def pull(self, F: Any, ct: Any, saved: tuple[Any, ...]) -> tuple[Any, ...]:
        """Cotangents of the tracked arguments."""
        cts = ct if self.n_out > 1 else (ct,)
        bare = not any(type(c) is EagerTensor for c in cts)
        seeds = [None if c is None else _dressed(c) for c in cts]
        state = STATE.get()
        try:
            # Bare records belong to no recording: neither does what is made of them.
            STATE.set(state.at(None) if bare else state)
            found = self._pull(seeds, [_dressed(x) for x in saved])
        finally:
            STATE.set(state)
        return tuple([x._record if bare and x is not None else x for x in found])

    strong = pull


def _dressed(x: Any) -> EagerTensor:
    if type(x) is ValueRecord:
        return value_at(x, None)
    return x  # type: ignore[no-any-return]


def recorded(
    level: Any,
    name: str,
    tensors: Sequence[EagerTensor],
    nodes: Nodes,
    outs: list[EagerTensor],
    residuals: Sequence[EagerTensor],
    names: Sequence[str],
    pull: Callable[[list[EagerTensor | None], list[EagerTensor]], list[Any]],
) -> list[EagerTensor]:
    """The outputs, known to `level` by one equation.

    Args:
        outs, residuals: as the levels around `level` know them.
        pull: `pull(cts, residuals)` gives a cotangent or None for each tensor; `cts`
            has an entry for each output that carries a derivative.
    """
    core, bare = level.core, level.outer is None
    for x in (*outs, *residuals):
        chain = living(chain_of(x), name, "fwd")
        if chain is not None and _is_mine(level, chain[0]):
            raise closes_over(name)
    smooth = [k for k, y in enumerate(outs) if is_inexact(y.dtype)]
    tracked = tuple(i for i, n in enumerate(nodes) if n is not None)
    if not smooth:
        return outs
    call = Call(
        CUSTOM_VJP,
        tuple([x.aval for x in tensors]),
        tuple([outs[k].aval for k in smooth]),
        (name, *[None] * (len(CUSTOM_VJP.params) - 1)),
    )
    spec = CustomSpec(
        call,
        tracked,
        tuple(names),
        lambda cts, saved: [g for i, g in enumerate(pull(cts, saved)) if i in tracked],
    )
    if bare:
        saved: Any = tuple([hold(x._record) for x in residuals])
    else:
        saved = tuple([value_at(x._record, chain_of(x)) for x in residuals])
    first = core.append(spec, tuple([nodes[i] for i in tracked]), saved)
    made = list(outs)
    for node, k in enumerate(smooth, first):
        made[k] = relinked(outs[k], core, node)
    return made


def _is_mine(level: Any, link: Any) -> bool:
    return link is level.core or (
        type(link) is Leaf and (level.watches or link in level.core.leaves)
    )
