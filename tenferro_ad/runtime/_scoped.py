"""Scoped read-only execution: borrowed inputs, over when the call returns (G3).

Only an endpoint that ends its work inside the call takes it; every other one refuses
before admission. Inputs are views, so nothing of theirs can be written or moved.
Identity and repeated outputs are the caller's views again; fresh ones belong to a group
that is handed out after retirement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from .._aval import aval_of
from .._ledger import STATE, State
from .._ownership import MoveOnly
from ..backends import PreparedLaunch, bind_launch, run_synchronously
from ..errors import (
    ExecutionError,
    InvalidArgumentError,
    NotEnqueuedError,
    OutputAccessError,
    ScopedOutputExtractError,
    ScopedSubmitRejected,
    SubmitError,
    TenferroError,
    UnsupportedError,
)
from ..storage import (
    AllocationGroup,
    Contiguous,
    DescriptorSlot,
    Tensor,
    TensorView,
    allocate,
)
from ._graph import CompiledGraph
from ._outcome import Completed, RetiredFailed
from ._package import OutputMetadata, extracted
from ._submission import _said
from ._work import GraphWork, check_inputs, named, request_of, seats, slot_of


@final
class ScopedReadInputs(MoveOnly):
    """Views bound to a program's inputs, in order; there is no writable form."""

    __slots__ = ("_sr_views",)

    _sr_views: tuple[TensorView, ...]

    def __new__(cls, views: Sequence[TensorView]) -> ScopedReadInputs:
        """Use up views.

        Raises:
            InvalidArgumentError: something that is no `TensorView`; nothing changed.
            UseAfterMoveError, ExpiredCapabilityError: a view has ended.

        Cost: O(views); no allocation, copy or provider call.
        """
        for k, view in enumerate(views):
            if not isinstance(view, TensorView):
                raise InvalidArgumentError(
                    operation="ScopedReadInputs",
                    argument=f"views[{k}]",
                    found=f"a `{type(view).__name__}`",
                    fix="lend `TensorView`s: `tensor.as_view()`, or `guard.view`",
                )
            view._live("ScopedReadInputs")
        inputs: ScopedReadInputs = object.__new__(cls)
        inputs._moved_by = None
        inputs._sr_views = tuple(views)
        return inputs

    def __len__(self) -> int:
        return len(self._sr_views)

    def into_views(self) -> tuple[TensorView, ...]:
        """Use the package up for its views. Raises UseAfterMoveError. Cost: none."""
        self._require("into_views")
        self._moved_by = "into_views"
        return self._sr_views

    def close(self) -> None:
        """End the borrows. Raises UseAfterMoveError. Cost: constant for each view."""
        for view in self.into_views():
            view.close()


@final
class ScopedExecutionBundle(MoveOnly):
    """What a scoped run gives: views of inputs, owned results, metadata, in order."""

    __slots__ = ("_sb_group", "_sb_inputs", "_sb_outputs")

    _sb_group: AllocationGroup
    _sb_inputs: ScopedReadInputs
    _sb_outputs: tuple[TensorView | DescriptorSlot | OutputMetadata, ...]

    def __len__(self) -> int:
        return len(self._sb_outputs)

    def output(self, output: int) -> TensorView | OutputMetadata:
        """Borrow one output, or look at its metadata.

        Raises:
            OutputAccessError: there is no such output; the bundle is unchanged.

        Cost: constant; no allocation, copy or provider call.
        """
        self._require("output")
        if not 0 <= output < len(self):
            raise OutputAccessError(
                operation="output",
                argument="output",
                found=f"output {output} of {len(self)}",
                recovered=self,
            )
        found = self._sb_outputs[output]
        if isinstance(found, OutputMetadata):
            return found
        if isinstance(found, TensorView):
            return found.as_view()
        return self._sb_group.view(found)

    def into_owned_output(self, output: int) -> Tensor:
        """Use up the bundle and move one owned output out; everything else is dropped.

        Raises:
            ScopedOutputExtractError: there is no such output, it is borrowed or
                metadata, or the group refuses; `recovered` is this same bundle.
            BorrowConflictError: a view of the bundle is open; it is unchanged.

        Cost: O(owners); no allocation, copy or provider call.
        """
        self._require("into_owned_output")
        is_known = 0 <= output < len(self)
        if is_known and isinstance(self._sb_outputs[output], TensorView):
            why = f"output {output}, which is a view of an input"
            tensor, cause = None, None
        else:
            tensor, cause, why = extracted(self._sb_group, self._sb_outputs, output)
        if tensor is None:
            raise ScopedOutputExtractError(
                operation="into_owned_output",
                argument="output",
                found=why,
                cause=cause,
                recovered=self,
            )
        self._moved_by = "into_owned_output"
        for view in self._views():
            view.close()
        return tensor

    def close(self) -> None:
        """End the borrows and drop the owned results.

        Raises UseAfterMoveError. Cost: constant for each output.
        """
        self._require("close")
        self._moved_by = "close"
        for view in self._views():
            view.close()
        self._sb_group = AllocationGroup._make(())

    def _views(self) -> list[TensorView]:
        views = [v for v in self._sb_outputs if isinstance(v, TensorView)]
        return list({id(v): v for v in (*views, *self._sb_inputs._sr_views)}.values())

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ScopedExecutionBundle(moved by {self._moved_by})"
        return f"ScopedExecutionBundle({len(self)} outputs)"


ScopedOutcome = Completed[ScopedExecutionBundle] | RetiredFailed[ScopedReadInputs]


def execute_scoped(
    endpoint: Any, graph: CompiledGraph, inputs: ScopedReadInputs
) -> ScopedOutcome:
    """`Runtime.execute_scoped_read_only`; see there."""
    if not isinstance(inputs, ScopedReadInputs):
        raise InvalidArgumentError(
            operation="execute_scoped_read_only",
            argument="inputs",
            found=f"a `{type(inputs).__name__}`",
            fix="lend views: `ta.ScopedReadInputs([tensor.as_view(), ...])`",
        )
    inputs._require("execute_scoped_read_only")
    if not endpoint.is_synchronous:
        raise _rejected(
            inputs,
            UnsupportedError(
                op="execute_scoped_read_only",
                backend=endpoint.name,
                fix="submit owned inputs with `submit`",
            ),
        )
    views = inputs._sr_views
    try:
        avals = [aval_of(v.shape, v.dtype, v.device) for v in views]
        check_inputs(graph, endpoint, avals, "execute_scoped_read_only")
        steps = [strides_of_view(v) for v in views]
        work = GraphWork(graph.variant((), steps))
        made, bound = _bound(endpoint, work, views)
    except TenferroError as error:
        raise _rejected(inputs, error) from error
    inputs._moved_by = "execute_scoped_read_only"
    try:
        cause = run_synchronously(bound)
    except NotEnqueuedError as error:
        inputs._moved_by = None
        error.recovered = None
        bound.close()
        raise _rejected(inputs, error) from error
    bound.close()
    if cause is not None:
        inputs._moved_by = None
        failure = ExecutionError(
            operation=work.name,
            found=_said(cause, ""),
            fix="the inputs are unchanged: correct the cause and run again",
        )
        failure.__cause__ = cause
        return RetiredFailed(failure, inputs)
    return Completed(_bundle(work, inputs, made))


def strides_of_view(view: TensorView) -> tuple[int, ...] | None:
    """Byte strides of a view, None if it is row-major."""
    return None if isinstance(view._layout, Contiguous) else view.strides


def _bound(
    endpoint: Any, work: GraphWork, views: Sequence[TensorView]
) -> tuple[list[Tensor], Any]:
    state = STATE.get()
    made: list[Tensor] = []
    for aval, reason in work.memory():
        under = State(state.account, reason, state.level, state.trace)
        made.append(allocate(under, aval, work.name).into_tensor())
    reads = [*[v.as_view() for v in views], *work._constants()]
    writes = [t.as_view_mut() for t in made]
    try:
        prepared = PreparedLaunch._of(
            endpoint, work.kernel(endpoint, state), reads, writes
        )
        return made, bind_launch(prepared)
    except BaseException:
        for read in reads:
            if read._moved_by is None:
                read.close()
        for write in writes:
            if write._moved_by is None:
                write.close()
        raise


def _bundle(
    work: GraphWork, inputs: ScopedReadInputs, made: Sequence[Tensor]
) -> ScopedExecutionBundle:
    plan = work._plan
    group = AllocationGroup._make(())
    slots = seats(plan, group, (), made)
    outputs: list[Any] = []
    for v in plan.program.outputs:
        root = plan.numbers.get(v, plan.roots[v])
        if root.kind != "input":
            outputs.append(slot_of(plan, group, v, slots, ()))
            continue
        view = inputs._sr_views[root.number]
        if v in plan.layouts:
            start = view._view_descriptor.layout.offset - view.span.start
            outputs.append(view._described(request_of(plan, v, start)))
        else:
            outputs.append(view)
    bundle: ScopedExecutionBundle = object.__new__(ScopedExecutionBundle)
    bundle._moved_by = None
    bundle._sb_group = group
    bundle._sb_inputs = inputs
    bundle._sb_outputs = tuple(named(outputs, work._graph.metadata))
    return bundle


def _rejected(inputs: ScopedReadInputs, error: Exception) -> ScopedSubmitRejected:
    cause = SubmitError(
        operation="execute_scoped_read_only",
        found=_said(error, ""),
        fix="nothing ran: correct it and use the inputs again",
    )
    cause.__cause__ = error
    return ScopedSubmitRejected(
        operation="execute_scoped_read_only",
        found=cause.found,
        cause=cause,
        recovered=inputs,
    )
