"""A compiled graph as the work of a task: what it reads, writes and gives out.

Outputs are slots of the group that was submitted: an identity is its input's slot, a
view another descriptor over the same allocation, a repeated output the same slot again,
a fresh one a new owner. Nothing is copied to make an output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from .._aval import Aval, mismatch
from .._ledger import STATE, State
from .._source import asked, asked_at
from ..errors import (
    DeviceMismatchError,
    InvalidArgumentError,
    ShapeError,
)
from ..storage import (
    AdValueRecord,
    AllocationGroup,
    DescriptorRequest,
    DescriptorSlot,
    Tensor,
    TensorView,
)
from ._graph import CompiledGraph
from ._package import (
    Binding,
    ExecutionBundle,
    ExecutionInputs,
    OutputMetadata,
    Owners,
    view_of,
)
from ._places import Root, Schedule
from ._work import Access, end

Array = np.ndarray[Any, Any]


@final
class GraphWork:
    """A compiled graph with the inputs' strides known."""

    __slots__ = ("graph", "name", "plan")

    def __init__(self, graph: CompiledGraph) -> None:
        self.graph = graph
        self.plan: Schedule = graph.plan
        self.name = "compiled graph"

    @property
    def constants(self) -> Sequence[AdValueRecord]:
        """What the program closed over."""
        return self.graph.held

    def memory(self) -> Sequence[tuple[Aval, int]]:
        """Outputs that take over no input, then arenas."""
        return self.graph.memory()

    def access(self, inputs: ExecutionInputs) -> Access:
        """Inputs are read; if some slots are donated, all are lent together for
        writing, because a group lends either to readers or to one writer."""
        bindings = inputs._ei_bindings
        donated = sorted(self.plan.donated)
        written = donated and [
            *donated,
            *[
                k
                for k, b in enumerate(bindings)
                if isinstance(b, DescriptorSlot) and k not in donated
            ],
        ]
        slots: list[Any] = [bindings[k] for k in written]
        writes = inputs._ei_group.split_mut(slots) if written else []
        behind = len(self.memory())
        operands = {k: ~(behind + j) for j, k in enumerate(written)}
        read = [k for k in range(len(bindings)) if k not in operands]
        operands |= {k: j for j, k in enumerate(read)}
        lenders = [lambda b=bindings[k]: view_of(inputs, b) for k in read]
        try:
            reads = self._lent(lenders)
        except BaseException:
            end(writes)
            raise
        order = [operands[k] for k in range(len(bindings))]
        return Access(reads, writes, [*order, *range(len(read), len(reads))])

    def access_of(self, views: Sequence[TensorView]) -> Access:
        """Lend views and constants for reading, under the borrows of the views."""
        return Access(self._lent([view.as_view for view in views]), [], None)

    def _lent(self, lenders: Sequence[Callable[[], TensorView]]) -> list[TensorView]:
        """A view from each lender and of each constant; all of them or none."""
        views: list[TensorView] = []
        try:
            for lend in (*lenders, *[held.view for held in self.constants]):
                views.append(lend())
        except BaseException:
            end(views)
            raise
        return views

    def kernel(self, endpoint: Any, state: State) -> object:
        """The run as one or several launches of its device; on the host as one function
        of arrays."""
        launched = self.graph.launched(state)
        if launched is not None:
            return launched
        return endpoint.prepare_program(self.host_kernel(state))

    def host_kernel(
        self, state: State
    ) -> Callable[[Sequence[Array], Sequence[Array]], None]:
        """`run(outs, ins)`: arrays of what `access` lends and `memory` lists. It keeps
        no value alive."""
        apply = self.graph.applied
        arenas, behind = len(self.graph.arenas), len(self.memory())
        line = asked()

        def run(outs: Sequence[Array], ins: Sequence[Array]) -> None:
            fresh = outs[: behind - arenas]
            places = [a.reshape(-1) for a in outs[behind - arenas : behind]]
            before = STATE.get()
            try:
                STATE.set(state)
                with asked_at(line):
                    apply(state, ins, fresh, places)
            finally:
                STATE.set(before)

        return run

    def bundle(self, owners: Owners, made: Sequence[Tensor]) -> ExecutionBundle:
        """Seat the fresh outputs and name every output; arenas are dropped."""
        plan, (group, bindings) = self.plan, owners
        slots = seats(plan, group, bindings, made)
        outputs = [
            slot_of(plan, group, v, slots, bindings) for v in plan.program.outputs
        ]
        return ExecutionBundle._make(group, named(outputs, self.graph.metadata))


def seats(
    plan: Schedule,
    group: AllocationGroup,
    bindings: Sequence[Binding],
    made: Sequence[Tensor],
) -> dict[int, Any]:
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
    slots: dict[int, Any],
    bindings: Sequence[Binding],
) -> DescriptorSlot:
    """The slot of output variable `v`; views get a descriptor of their own."""
    root = root_of(plan, v)
    base: Any = bindings[root.number] if root.kind == "input" else slots[root.number]
    if v not in plan.layouts or v in plan.numbers:
        return base  # type: ignore[no-any-return]
    record = group.record(base)
    start = record.layout.offset - record.storage.start
    return group.insert(base, request_of(plan, v, start))


def root_of(plan: Schedule, v: int) -> Root:
    """Whose memory output variable `v` is."""
    return plan.numbers.get(v, plan.roots[v])


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


# ---- what can be known before anything runs


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
    for traced in (*wanted, *[held.aval for held in graph.held]):
        if traced.device is not endpoint.memory:
            raise DeviceMismatchError(
                operation=operation,
                argument="graph",
                found=f"a program traced for `{traced.device.name}`, for work on "
                f"`{endpoint.name}`",
                fix="trace with specs of that endpoint's device",
            )
    for k, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        if mine.device is not endpoint.memory:
            raise DeviceMismatchError(
                operation=operation,
                argument=f"binding {k}",
                found=f"`{mine.device.name}`, for work on `{endpoint.name}`",
                fix="move the input to the memory of that endpoint first",
            )
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            raise mismatch(
                mine,
                theirs,
                operation=operation,
                argument=f"binding {k}",
                found=f"{mine!r} where the program takes {theirs!r}",
                fix="bind values of the traced shapes and dtypes",
            )


def check_bindings(work: GraphWork, bindings: Sequence[Binding]) -> None:
    """Refuse bindings that no outcome could name.

    Raises:
        InvalidArgumentError: a slot bound twice; an attached value that the program
            returns.
    """
    slots = [b for b in bindings if isinstance(b, DescriptorSlot)]
    if len(set(slots)) < len(slots):
        raise InvalidArgumentError(
            operation="submit",
            argument="bindings",
            found="one slot bound to two inputs",
            fix="bind each slot once; trace the function with one argument",
        )
    for v in work.plan.program.outputs:
        root = root_of(work.plan, v)
        if root.kind == "input" and isinstance(bindings[root.number], AdValueRecord):
            raise InvalidArgumentError(
                operation="submit",
                argument="bindings",
                found=f"attached value {root.number}, which the program returns",
                fix="move a tensor in, because the outcome owns what it returns",
            )


def settle(
    inputs: ExecutionInputs, held: Sequence[AdValueRecord], operation: str
) -> None:
    """Wait for eager work that still writes what is bound or held.

    Raises:
        ExecutionError, CompletionError: that work did not end well.

    Cost: nothing for values in host memory; elsewhere a synchronisation point.
    """
    group = inputs._ei_group
    for binding in (*inputs._ei_bindings, *held):
        if isinstance(binding, AdValueRecord):
            memory = getattr(binding._record.array, "allocation", None)
        else:
            memory = group._owner(group.record(binding))._resource.allocation
        writer = getattr(memory, "writer", None)
        if writer is not None:
            writer.settle(operation)


__all__ = [
    "GraphWork",
    "check_bindings",
    "check_inputs",
    "named",
    "request_of",
    "root_of",
    "seats",
    "settle",
    "slot_of",
]
