"""The derivative of one call of a function as a linear map, for forward mode.

The function runs once, and for each operation that depends on its arguments the values
that the forward rule reads are kept. The map applies the forward rules in that order,
any number of times. It is made of operations on tensors, so that it can be batched,
traced and differentiated like any function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import optree

from .._ledger import STATE
from ..ops import Call
from ..storage import ValueRecord
from ._dispatch import (
    HANDLES,
    Chain,
    chain_of,
    enter_level,
    leave_level,
    living,
    value_at,
)
from ._eager import EagerTensor
from ._levels import WholeRecord
from ._make import as_tensor
from ._pytrees import flatten, relinked, tensors_of


class Step:
    """One recorded equation: nodes in and out, and what its forward rules read.

    Attributes:
        ins, outs: nodes; -1 where a value carries no tangent.
        values: the arguments, then the outputs; None where no rule reads them.
    """

    __slots__ = ("call", "ins", "outs", "values")

    def __init__(
        self, call: Any, ins: list[int], outs: list[int], values: list[Any]
    ) -> None:
        self.call, self.ins, self.outs, self.values = call, ins, outs, values


class LinearRecord(WholeRecord):
    """What handles link to while the function runs."""

    __slots__ = ("nodes", "steps")

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.nodes = 0

    def node(self) -> int:
        self.nodes += 1
        return self.nodes - 1


class LinearLevel:
    """Records the equations whose inputs it tracks."""

    __slots__ = ("core", "outer")
    opaque: Final = False
    pulls: Final = False
    records_all: Final = False
    is_simple: Final = False
    watches: Final = False
    closed: Final = False

    def __init__(self, core: LinearRecord, outer: Any) -> None:
        self.core, self.outer = core, outer

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
        n = len(nodes)
        values: list[Any] = [None] * (n + len(outs))
        for r in call.push_reads([i for i, node in enumerate(nodes) if node >= 0]):
            at = r if r >= 0 else n + ~r
            record, chain = (records[r], chains[r]) if r >= 0 else (outs[~r], above[~r])
            values[at] = value_at(record, chain)
        made = [core.node() if a.dtype.kind in "fc" else -1 for a in call.outs]
        core.steps.append(Step(call, list(nodes), made, values))
        core.has_select = core.has_select or call.is_select
        return made


@final
class LinearMap:
    """The derivative of a call of `f` at its arguments.

    Attributes:
        values: the outputs of `f`, in order, as levels outside know them.
        out_def: their structure.
        leaves: for each argument named, its tensors, their nodes and its structure.
    """

    __slots__ = ("_dies", "leaves", "out_def", "out_nodes", "steps", "values")

    def __init__(
        self,
        operation: str,
        f: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
        numbers: Sequence[int],
    ) -> None:
        outer = STATE.get().level
        core = LinearRecord()
        given = list(args)
        self.leaves: list[tuple[list[EagerTensor], list[int], Any]] = []
        for n in numbers:
            tensors, treedef = tensors_of(args[n], operation, f"argument {n}")
            nodes = [core.node() for _ in tensors]
            linked = [relinked(x, core, k) for x, k in zip(tensors, nodes, strict=True)]
            given[n] = optree.tree_unflatten(treedef, linked)
            self.leaves.append((tensors, nodes, treedef))
            del linked
        before = STATE.get()
        try:
            enter_level(LinearLevel(core, outer))
            out = f(*given, **kwargs)
        finally:
            leave_level(before)
        del given
        outs, self.out_def = flatten(out)
        del out
        self.values: list[EagerTensor] = []
        self.out_nodes: list[int] = []
        y: EagerTensor | None = None
        for y in map(as_tensor, outs):
            chain = living(chain_of(y), operation, "f")
            mine = chain is not None and chain[0] is core
            self.out_nodes.append(chain[1] if mine else -1)
            outside = chain[2] if mine else chain
            self.values.append(value_at(y._record, outside))
        del outs, y
        core.live = None
        self.steps = _needed(core.steps, self.out_nodes)
        core.steps = []  # handles that the function let escape keep the record
        self._dies = _deaths(self.steps, self.out_nodes)

    def push(self, tangents: dict[int, Any]) -> list[Any]:
        """Tangents of the outputs, None where there is none, for those of some nodes.

        Cost: one forward rule for each equation that a tangent reaches.
        """
        found = dict(tangents)
        for step, dies in zip(self.steps, self._dies, strict=True):
            ts = [found.get(n) for n in step.ins]
            if any(t is not None for t in ts):
                pushed = step.call.push(HANDLES, ts, step.values)
                del ts
                for node, t in zip(step.outs, pushed, strict=True):
                    if node >= 0 and t is not None:
                        found[node] = t
                del pushed, t
            for node in dies:
                found.pop(node, None)
        return [found.get(n) for n in self.out_nodes]


def _needed(steps: list[Step], nodes: Sequence[int]) -> list[Step]:
    """The steps that the given nodes depend on."""
    needed = set(nodes)
    kept = []
    for step in reversed(steps):
        if any(n in needed for n in step.outs if n >= 0):
            kept.append(step)
            needed.update(step.ins)
    return kept[::-1]


def _deaths(steps: list[Step], nodes: Sequence[int]) -> list[list[int]]:
    """For each step the nodes whose tangents nobody reads after it."""
    seen = set(nodes)
    dies = []
    for step in reversed(steps):
        own = {n for n in (*step.ins, *step.outs) if n >= 0} - seen
        dies.append(sorted(own))
        seen |= own
    return dies[::-1]
