"""A compiled graph as the work of a task: what it reads, writes and gives out.

On endpoints over host memory a whole run is one launch: a function over the arrays of
inputs, constants, outputs and arenas. Outputs are slots of the group that was
submitted: an identity is its input's slot, a view another descriptor over the same
allocation, a repeated output the same slot again, a fresh one a new owner. Nothing is
copied to make an output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from .._aval import Aval
from .._ledger import STATE, State
from ..errors import DeviceMismatchError, DTypeError, ShapeError
from ..storage import (
    AllocationGroup,
    DescriptorRequest,
    DescriptorSlot,
    Tensor,
    TensorView,
    TensorViewMut,
)
from ._graph import CompiledGraph
from ._package import ExecutionBundle, ExecutionInputs, OutputMetadata
from ._schedule import Root, Schedule

Array = np.ndarray[Any, Any]


@final
class GraphWork:
    """A compiled graph with the inputs' strides known."""

    __slots__ = ("_graph", "_plan", "name")

    def __init__(self, graph: CompiledGraph) -> None:
        self._graph = graph
        self._plan: Schedule = graph.plan
        self.name = "compiled graph"

    # -- memory ------------------------------------------------------------------------

    def memory(self) -> Sequence[tuple[Aval, int]]:
        """Outputs that take over no input, then arenas."""
        return self._graph.memory()

    def access(
        self, inputs: ExecutionInputs
    ) -> tuple[list[TensorView], list[TensorViewMut]]:
        """Inputs are read; if some are donated, all are lent together for writing,
        because a group lends either to readers or to one writer."""
        group, bindings = inputs._ei_group, inputs._ei_bindings
        if not self._plan.donated:
            reads = [group.view(slot) for slot in bindings]
            return [*reads, *self._constants()], []
        return self._constants(), group.split_mut(bindings)

    def _constants(self) -> list[TensorView]:
        views = []
        for record in self._graph.constants:
            home = record.container()
            views.append(home.group().view(home.slot(record.slot)))
        return views

    def kernel(self, endpoint: Any, state: State) -> object:
        """The run as a function of arrays, for the endpoint's host kernel; elsewhere as
        launches of the device."""
        if hasattr(endpoint, "prepare_program"):
            return endpoint.prepare_program(self.host_kernel(state))
        return self._graph.launched(state)

    def host_kernel(
        self, state: State
    ) -> Callable[[Sequence[Array], Sequence[Array]], None]:
        """`run(outs, ins)`: arrays in the order of `access` and `memory`."""
        plan, graph = self._plan, self._graph
        count = len(plan.program.inputs) - len(graph.constants)
        arenas = len(graph.arenas)

        def run(outs: Sequence[Array], ins: Sequence[Array]) -> None:
            given = list(ins)
            if plan.donated:
                given = [*outs[:count], *ins]
                outs = outs[count:]
            fresh = list(outs[: len(outs) - arenas])
            places = [a.reshape(-1) for a in outs[len(outs) - arenas :]]
            token = STATE.set(state)
            try:
                graph.apply(state, given, fresh, places)
            finally:
                STATE.reset(token)

        return run

    # -- outputs -----------------------------------------------------------------------

    def bundle(
        self,
        group: AllocationGroup,
        bindings: Sequence[DescriptorSlot],
        made: Sequence[Tensor],
    ) -> ExecutionBundle:
        """Seat the fresh outputs and name every output; arenas are dropped."""
        plan = self._plan
        slots = seats(plan, group, bindings, made)
        outputs = [
            slot_of(plan, group, v, slots, bindings) for v in plan.program.outputs
        ]
        return ExecutionBundle._make(group, named(outputs, self._graph.metadata))


def seats(
    plan: Schedule,
    group: AllocationGroup,
    bindings: Sequence[DescriptorSlot],
    made: Sequence[Tensor],
) -> dict[int, DescriptorSlot]:
    """The slot of each output root, by number."""
    fresh = iter(made)
    return {
        root.number: group._seat(next(fresh))
        if root.taken is None
        else bindings[root.taken]
        for root in plan.outputs
    }


def slot_of(
    plan: Schedule,
    group: AllocationGroup,
    v: int,
    slots: dict[int, DescriptorSlot],
    bindings: Sequence[DescriptorSlot],
) -> DescriptorSlot:
    """The slot of output variable `v`; views get a descriptor of their own."""
    root: Root = plan.numbers.get(v, plan.roots[v])
    base = bindings[root.number] if root.kind == "input" else slots[root.number]
    if v not in plan.layouts or v in plan.numbers:
        return base
    record = group.record(base)
    start = record.layout.offset - record.storage.start
    return group.insert(base, request_of(plan, v, start))


def request_of(plan: Schedule, v: int, start: int) -> DescriptorRequest:
    """The descriptor of a view whose root begins at byte `start` of its owner."""
    return DescriptorRequest(
        plan.avals[v].shape,
        plan.avals[v].dtype,
        strides=plan.layouts[v].strides,
        offset=start + plan.offsets[v],
    )


def named(outputs: Sequence[Any], metadata: dict[int, Any]) -> list[Any]:
    """Outputs in the order of the function's result, with those that are no tensors."""
    rest = iter(outputs)
    return [
        OutputMetadata(metadata[k]) if k in metadata else next(rest)
        for k in range(len(outputs) + len(metadata))
    ]


def check_inputs(
    graph: CompiledGraph, endpoint: Any, found: Sequence[Aval], operation: str
) -> None:
    """Refuse inputs that do not fit the graph.

    Raises:
        ShapeError: another number of inputs, or another shape.
        DTypeError: another dtype.
        DeviceMismatchError: memory of another device.
    """
    wanted = graph.in_avals
    if len(found) != len(wanted):
        raise ShapeError(
            operation=operation,
            argument="bindings",
            found=f"{len(found)} bound inputs",
            fix=f"bind {len(wanted)}: {', '.join(map(repr, wanted))}",
        )
    for k, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if mine.device is not endpoint.memory:
            raise DeviceMismatchError(
                operation=operation,
                argument=f"binding {k}",
                found=f"`{mine.device.name}`, for work on `{endpoint.name}`",
                fix="move the input to the memory of that endpoint first",
            )
        kind = ShapeError if mine.shape != theirs.shape else DTypeError
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise kind(
                operation=operation,
                argument=f"binding {k}",
                found=f"{mine!r} where the program takes {theirs!r}",
                fix="bind values of the traced shapes and dtypes",
            )
