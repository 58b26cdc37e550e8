"""Borrowed submission: optional, and synchronous through retirement (contract G5).

The caller lends views, so the work must be over when the call returns or raises. Only
an endpoint that guarantees this takes it; every other one refuses before admission. The
bindings come back inside the outcome, or inside the rejection, unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from .._aval import aval_of
from .._ownership import MoveOnly
from ..backends import (
    BoundLaunch,
    Endpoint,
    PreparedLaunch,
    bind_launch,
    contain,
    run_synchronously,
)
from ..errors import (
    AccessError,
    BorrowedSubmitRejected,
    DTypeError,
    NotEnqueuedError,
    ShapeError,
    UnsupportedError,
    type_name,
)
from ..ops import Op
from ..storage import TensorView, TensorViewMut
from ._outcome import Completed, RetiredFailed, failure, rejection
from ._work import planned


@final
class BorrowedBindings(MoveOnly):
    """A bound operation on borrowed views: it reads some and writes others."""

    __slots__ = ("_bb_bound", "_bb_name")

    _bb_bound: BoundLaunch
    _bb_name: str

    @classmethod
    def of_views(
        cls,
        endpoint: Endpoint,
        op: Op,
        reads: Sequence[TensorView],
        writes: Sequence[TensorViewMut],
        params: tuple[Any, ...] = (),
    ) -> BorrowedBindings:
        """Use up views and bind them to an operation.

        Raises:
            AccessError: The provider could not prepare or bind; the views are usable.
            ShapeError: The operation's results do not fit `writes`.
            and what the row's shape rule raises; the views are usable.

        Cost: one preparation and one binding for each view; no allocation, no copy.
        """
        ins = tuple(aval_of(v.shape, v.dtype, v.device) for v in reads)
        call = planned(endpoint, op, ins, params)
        found = [(v.shape, v.dtype, v.device) for v in writes]
        if found != [(a.shape, a.dtype, a.device) for a in call.outs]:
            raise ShapeError(
                operation=op.name,
                argument="writes",
                found=f"{[(v.shape, str(v.dtype)) for v in writes]}",
                fix=f"lend views for {list(call.outs)} in the endpoint's memory",
            )
        kernel = endpoint.prepare(call)
        prepared = PreparedLaunch._of(endpoint, kernel, reads, writes)
        try:
            bound = bind_launch(prepared)
        except AccessError as error:
            prepared._undo((*reads, *writes))
            error.recovered = (*reads, *writes)
            raise
        bindings: BorrowedBindings = object.__new__(cls)
        bindings._moved_by = None
        bindings._bb_bound = bound
        bindings._bb_name = op.name
        return bindings

    def close(self) -> None:
        """Give the bindings up and end the borrows.

        Raises UseAfterMoveError. Cost: constant for each binding.
        """
        self._require("close")
        self._moved_by = "close"
        self._bb_bound.close()

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"BorrowedBindings(moved by {self._moved_by})"
        return f"BorrowedBindings({self._bb_name} on {self._bb_bound.endpoint.name!r})"


RetiredBorrowed = Completed[BorrowedBindings] | RetiredFailed[BorrowedBindings]


def submit_borrowed(bindings: BorrowedBindings) -> RetiredBorrowed:
    """Run a bound operation to its end and hand the bindings back.

    Raises:
        BorrowedSubmitRejected: The endpoint is asynchronous, or proves that nothing
            ran; `into_parts()` gives the cause and the exact bindings.

    Cost: waits for the work; no allocation, no copy, no validation.
    """
    if not isinstance(bindings, BorrowedBindings):
        raise DTypeError(
            operation="submit_borrowed",
            argument="bindings",
            found=f"an object of type `{type_name(bindings)}`",
            fix="bind views first: `ta.BorrowedBindings.of_views(...)`",
        )
    bindings._require("submit_borrowed")
    bound, name = bindings._bb_bound, bindings._bb_name
    endpoint = bound.endpoint
    if not endpoint.is_synchronous:
        raise _rejected(
            bindings,
            UnsupportedError(
                op="submit_borrowed",
                backend=endpoint.name,
                fix="submit owned inputs with `submit_detached`",
            ),
        )
    try:
        cause = run_synchronously(bound)
    except NotEnqueuedError as error:
        error.recovered = None
        raise _rejected(bindings, error) from error
    if cause is None:
        return Completed(bindings)
    return RetiredFailed(
        failure(
            name,
            contain(cause),
            "what the operation wrote is unspecified; write it again before reading",
        ),
        bindings,
    )


def _rejected(bindings: BorrowedBindings, error: Exception) -> BorrowedSubmitRejected:
    return rejection(
        BorrowedSubmitRejected, "submit_borrowed", bindings._bb_name, error, bindings
    )
