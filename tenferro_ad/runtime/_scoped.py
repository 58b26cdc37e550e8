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
from .._ledger import STATE
from .._ownership import MoveOnly
from ..backends import BoundLaunch, bind_launch, contain, run_synchronously
from ..errors import (
    AccessError,
    InvalidArgumentError,
    NotEnqueuedError,
    OutputAccessError,
    OutputExtractError,
    ScopedOutputExtractError,
    ScopedSubmitRejected,
    UnsupportedError,
    a_kind,
)
from ..storage import (
    AllocationGroup,
    Contiguous,
    DescriptorSlot,
    Tensor,
    TensorView,
)
from ._arguments import items_of, shown
from ._graph import CompiledGraph
from ._graph_work import (
    GraphWork,
    check_inputs,
    named,
    request_of,
    root_of,
    seats,
    slot_of,
)
from ._outcome import Completed, RetiredFailed, failure, rejection
from ._package import OutputMetadata, extracted, no_output, output_at
from ._work import allocated, prepared


@final
class ScopedReadInputs(MoveOnly):
    """Views bound to a program's inputs, in order; there is no writable form.

    The views stay the caller's: who ends one ends what was made from it.
    """

    __slots__ = ("_sr_views",)

    _sr_views: tuple[TensorView, ...]

    def __new__(cls, views: Sequence[TensorView]) -> ScopedReadInputs:
        """Bind views.

        Raises:
            InvalidArgumentError: something that is no `TensorView`.
            UseAfterMoveError, ExpiredCapabilityError: a view has ended.

        Cost: O(views); no allocation, copy or provider call.
        """
        fix = "lend `TensorView`s in a sequence: `tensor.as_view()`, or `guard.view`"
        lent = items_of("ScopedReadInputs", "views", views, fix)
        for k, view in enumerate(lent):
            if not isinstance(view, TensorView):
                raise InvalidArgumentError(
                    operation="ScopedReadInputs",
                    argument=f"views[{k}]",
                    found=shown(view),
                    fix=fix,
                )
            view._live("ScopedReadInputs")
        inputs: ScopedReadInputs = object.__new__(cls)
        inputs._moved_by = None
        inputs._sr_views = lent
        return inputs

    def __len__(self) -> int:
        return len(self._sr_views)

    def into_views(self) -> tuple[TensorView, ...]:
        """Use the package up for its views. Raises UseAfterMoveError. Cost: none."""
        self._require("into_views")
        self._moved_by = "into_views"
        return self._take()

    def close(self) -> None:
        """End the borrows. Raises UseAfterMoveError. Cost: constant for each view."""
        for view in self.into_views():
            view.close()

    def _take(self) -> tuple[TensorView, ...]:
        """Take the views out of a package that was used up: it keeps no borrow."""
        views, self._sr_views = self._sr_views, ()
        return views

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ScopedReadInputs(moved by {self._moved_by})"
        return f"ScopedReadInputs({len(self)} views)"


@final
class ScopedExecutionBundle(MoveOnly):
    """What a scoped run gives: views of inputs, owned results, metadata, in order."""

    __slots__ = ("_sb_group", "_sb_outputs", "_sb_views")

    _sb_group: AllocationGroup
    _sb_outputs: tuple[TensorView | DescriptorSlot | OutputMetadata, ...]
    _sb_views: tuple[TensorView, ...]

    def __len__(self) -> int:
        return len(self._sb_outputs)

    def output(self, output: int) -> TensorView | OutputMetadata:
        """Borrow one output, or look at its metadata.

        Raises:
            OutputAccessError: there is no such output; the bundle is unchanged.

        Cost: constant; no allocation, copy or provider call.
        """
        self._require("output")
        found = output_at(self._sb_outputs, output)
        if found is None:
            what, fix = no_output(self._sb_outputs, output)
            raise OutputAccessError(
                operation="output",
                argument="output",
                found=what,
                fix=fix,
                recovered=self,
            )
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
        if isinstance(output_at(self._sb_outputs, output), TensorView):
            raise ScopedOutputExtractError(
                operation="into_owned_output",
                argument="output",
                found=f"output {output}, which is a view of an input",
                fix="duplicate the view, or use the tensor that it was lent from",
                reason="borrowed-output",
                recovered=self,
            )
        try:
            tensor = extracted(self._sb_group, self._sb_outputs, output)
        except OutputExtractError as error:
            raise ScopedOutputExtractError(
                operation="into_owned_output",
                argument="output",
                found=error.found,
                fix=error.fix,
                reason="output",
                cause=error,
                recovered=self,
            ) from error
        self._moved_by = "into_owned_output"
        self._drop_borrows()
        return tensor

    def close(self) -> None:
        """Let go of the borrows and drop the owned results.

        Raises UseAfterMoveError. Cost: constant for each output.
        """
        self._require("close")
        self._moved_by = "close"
        self._drop_borrows()
        self._sb_group = AllocationGroup._make(())

    def _drop_borrows(self) -> None:
        """Let go of the views: a borrow that nobody else kept is over."""
        self._sb_outputs = self._sb_views = ()

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ScopedExecutionBundle(moved by {self._moved_by})"
        return f"ScopedExecutionBundle({len(self)} outputs)"


ScopedExecutionOutcome = (
    Completed[ScopedExecutionBundle] | RetiredFailed[ScopedReadInputs]
)


def execute_scoped(
    endpoint: Any, graph: CompiledGraph, inputs: ScopedReadInputs
) -> ScopedExecutionOutcome:
    """`Runtime.execute_scoped_read_only`; see there.

    Nothing of the work is left when this returns or raises, because the endpoint ends
    it inside the call. What is caught here only gives the caller's package back.
    """
    if not isinstance(inputs, ScopedReadInputs):
        raise InvalidArgumentError(
            operation="execute_scoped_read_only",
            argument="inputs",
            found=a_kind(inputs),
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
    try:
        work, made, bound = _bound(endpoint, graph, inputs._sr_views)
    except Exception as error:
        raise _rejected(inputs, error) from error
    inputs._moved_by = "execute_scoped_read_only"
    try:
        cause = run_synchronously(bound)
    except NotEnqueuedError as error:
        inputs._moved_by = None
        error.recovered = None
        raise _rejected(inputs, error) from error
    except BaseException:  # an interrupt: the work is over, as always
        inputs._moved_by = None
        raise
    finally:
        bound.close()
    if cause is not None:
        inputs._moved_by = None
        fix = "the inputs are unchanged: correct the cause and run again"
        return RetiredFailed(failure(work.name, contain(cause), fix), inputs)
    return Completed(_bundle(work, inputs._take(), made))


def strides_of_view(view: TensorView) -> tuple[int, ...] | None:
    """Byte strides of a view, None if it is row-major."""
    return None if isinstance(view._layout, Contiguous) else view.strides


def _bound(
    endpoint: Any, graph: CompiledGraph, views: Sequence[TensorView]
) -> tuple[GraphWork, list[Tensor], BoundLaunch]:
    """Check, allocate, prepare and bind; a failure ends every borrow made here."""
    avals = [aval_of(v.shape, v.dtype, v.device) for v in views]
    check_inputs(graph, endpoint, avals, "execute_scoped_read_only")
    work = GraphWork(graph.variant((), [strides_of_view(v) for v in views]))
    state = STATE.get()
    kernel = work.kernel(endpoint, state)
    made = allocated(work, endpoint, state)
    try:
        launch = prepared(endpoint, kernel, work.access_of(views), made)
        try:
            return work, made, bind_launch(launch)
        except BaseException:
            launch.close()
            raise
    except BaseException as error:
        made.clear()  # the error keeps this frame
        if isinstance(error, AccessError):
            error.recovered = None
        raise


def _bundle(
    work: GraphWork, views: tuple[TensorView, ...], made: Sequence[Tensor]
) -> ScopedExecutionBundle:
    plan = work.plan
    group = AllocationGroup._make(())
    slots = seats(plan, group, (), made)
    outputs: list[Any] = []
    for v in plan.program.outputs:
        root = root_of(plan, v)
        if root.kind != "input":
            outputs.append(slot_of(plan, group, v, slots, ()))
            continue
        view = views[root.number]
        if v in plan.layouts:
            start = view._view_descriptor.layout.offset - view.span.start
            outputs.append(view._described(request_of(plan, v, start)))
        else:
            outputs.append(view)
    bundle: ScopedExecutionBundle = object.__new__(ScopedExecutionBundle)
    bundle._moved_by = None
    bundle._sb_group = group
    bundle._sb_outputs = tuple(named(outputs, work.graph.metadata))
    bundle._sb_views = views
    return bundle


def _rejected(inputs: ScopedReadInputs, error: Exception) -> ScopedSubmitRejected:
    operation = "execute_scoped_read_only"
    return rejection(ScopedSubmitRejected, operation, operation, error, inputs)
