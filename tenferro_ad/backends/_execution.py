"""Eager operations on an asynchronous provider (amendment A3).

Each operation is one launch, admitted in its caller's thread. Its `ExecutionRecord`
holds the containers of what it reads and of what it writes until the ordinary
retirement record is released; then waiters go on. Shape and dtype of a result are
facts at once, later operations use it in queue order, and whoever wants its bytes waits
for its record.

Nothing is enqueued behind work that is known to have failed: the result of such an
operation has failed too, and names the operation where it began.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, final

import numpy as np

from ..errors import AccessError, CompletionError, ExecutionError, UseAfterMoveError
from ..storage import (
    AllocationSpan,
    DeviceArray,
    RetentionContainer,
    TensorView,
    TensorViewMut,
)
from ._backend import Endpoint, Operand, PreparedLaunch, bind_launch
from ._crossing import MOST_IN_FLIGHT
from ._engine import DEADLINE, Engine
from ._waiting import Latch

Read = DeviceArray | TensorView | TensorViewMut | np.ndarray[Any, Any]
Write = DeviceArray | TensorViewMut


@final
class ExecutionRecord:
    """One eager operation in flight: it holds values and knows how the work ended.

    Attributes:
        operation: Name, for texts.
        is_released: The end is proven: nobody holds the values any more.
        origin: The operation whose own work failed, or None.
    """

    __slots__ = (
        "_end_known",
        "_held",
        "_needs",
        "_on",
        "cause",
        "is_released",
        "operation",
        "origin",
    )

    def __init__(
        self,
        operation: str,
        on: str,
        held: list[RetentionContainer],
        needs: list[ExecutionRecord],
    ) -> None:
        self.operation = operation
        self._on = on
        self._held = held
        self._needs = needs
        self._end_known = Latch()
        self.is_released = False
        self.cause: BaseException | None = None
        self.origin: ExecutionRecord | None = None

    @property
    def ended(self) -> bool:
        """Whether the outcome is known."""
        return self._end_known.is_open

    @property
    def has_failed(self) -> bool:
        """Whether it is known that the results are none."""
        return self.ended and self.origin is not None

    def retire(self, cause: BaseException | None) -> None:
        """The end is proven: let go of the values, then tell who waits. Work that read
        what a failed one should have written has failed too, whatever it did."""
        failed = next((n.origin for n in self._needs if n.has_failed), None)
        if failed is not None or cause is not None:
            self.origin, self.cause = failed or self, cause
        self._end(is_released=True)

    def lose(
        self, cause: BaseException | None, keys: tuple[AllocationSpan, ...]
    ) -> None:
        """The end is not proven: the values stay in flight for good."""
        self.cause = cause
        self.origin = self
        self._end(is_released=False)

    def _end(self, *, is_released: bool) -> None:
        self._held, self._needs = [], []
        self.is_released = is_released
        self._end_known.open()

    def wait(self) -> None:
        """Wait for the outcome, however it is. An interrupt changes nothing."""
        self._end_known.wait()

    def settle(self, operation: str) -> None:
        """Wait for the outcome.

        Raises:
            ExecutionError: The work failed, or work that it depends on did.
            CompletionError: Nobody can say whether it has ended.
        """
        self.wait()
        origin = self.origin
        if origin is None:
            return
        cause = origin.cause
        said = "" if cause is None else f" ({type(cause).__name__}: {cause})"
        if origin.is_released:
            raise ExecutionError(
                operation=operation,
                found=f"a value that has none, because `{origin.operation}` failed on "
                f"`{self._on}`{said}",
                fix="correct the cause and compute the value again",
            ) from cause
        raise CompletionError(
            operation=operation,
            found=f"a value of `{origin.operation}` on `{self._on}`, whose end nobody "
            f"can prove{said}",
            fix="treat the value as gone; its memory is kept for good",
        ) from cause


@final
class Executions:
    """The eager operations of one endpoint.

    Cost: starts the engine's two threads with the first operation.
    """

    def __init__(self, endpoint: Endpoint, deadline: float = DEADLINE) -> None:
        self.engine = Engine(endpoint, deadline)
        self._in_flight: list[ExecutionRecord] = []

    def launch(
        self,
        operation: str,
        kernel: object,
        ins: Sequence[Read],
        outs: Sequence[Write],
    ) -> None:
        """Run a kernel from `ins` into `outs`, after everything before it.

        An operand that is one of `outs` is computed in place. Views are lent for the
        call; host arrays among `ins` are numbers.

        Raises:
            NotEnqueuedError, EngineLostError, ForkedProcessError, BindError,
            AccessError: Nothing was enqueued, and no value changed.

        Cost: one provider call; no wait, unless `MOST_IN_FLIGHT` operations are.
        """
        reads, operands = _operands(ins, outs)
        touched = [_allocation(x) for x in (*reads, *outs)]
        writers = (a.writer for a in touched)
        needs = [w for w in dict.fromkeys(writers) if isinstance(w, ExecutionRecord)]
        failed = next((w for w in needs if w.has_failed), None)
        if failed is not None:
            for out in outs:
                _allocation(out).writer = failed
            return
        self._make_room()
        endpoint = self.engine.endpoint
        held = [x.home for x in (*reads, *outs) if type(x) is DeviceArray]
        needs = [w for w in needs if not w.ended or w.has_failed]
        record = ExecutionRecord(
            operation, endpoint.name, list(dict.fromkeys(held)), needs
        )
        interrupt = self._admit(record, kernel, reads, outs, operands)
        for allocation in touched:
            allocation.user = record
        for out in outs:
            _allocation(out).writer = record
        if interrupt is not None:  # one of its own: that one is the work's cause
            raise type(interrupt)(*interrupt.args)

    def _admit(
        self,
        record: ExecutionRecord,
        kernel: object,
        reads: Sequence[Any],
        outs: Sequence[Write],
        operands: tuple[Operand, ...],
    ) -> BaseException | None:
        """Prepare, bind and enqueue, with every lent view ended whatever happens."""
        views: list[TensorView] = []
        muts: list[TensorViewMut] = []
        try:
            for x in reads:
                views.append(x.view() if type(x) is DeviceArray else x.as_view())
            for y in outs:
                lend: Any = y.view_mut if type(y) is DeviceArray else y.as_view_mut
                muts.append(lend())
            prepared = PreparedLaunch._of(
                self.engine.endpoint, kernel, views, muts, operands
            )
        except BaseException as error:
            _forget_recovered(error)
            _give_up(error, *views, *muts)
            raise
        unadmitted: Any = prepared
        try:
            self._in_flight.append(record)
            bound = unadmitted = bind_launch(prepared)
            return self.engine.launch(bound, record)
        except BaseException as error:
            _forget_recovered(error)
            if record in self._in_flight:
                self._in_flight.remove(record)
            if unadmitted._moved_by is None:
                _give_up(error, unadmitted)
            raise

    def _make_room(self) -> None:
        if len(self._in_flight) >= MOST_IN_FLIGHT:
            self._in_flight[0].wait()
        self._forget()

    def _forget(self) -> None:
        """Forget what has ended; the list is in the order of admission."""
        flying = self._in_flight
        while flying:
            try:
                if not flying[0].ended:
                    return
                flying.pop(0)
            except IndexError:
                return  # another thread forgot it

    @property
    def count(self) -> int:
        """Operations whose outcome is not known yet."""
        self._forget()
        return sum(not record.ended for record in tuple(self._in_flight))

    def drain(self) -> None:
        """Wait until every operation so far has an outcome.

        Cost: a synchronisation point.
        """
        for record in tuple(self._in_flight):
            record.wait()
        self._forget()


def _give_up(error: BaseException, *holders: Any) -> None:
    """End what was not admitted, without hiding an interrupt.

    An interrupt may leave a holder half moved: what it has given away by then ends with
    the objects that have it.
    """
    for holder in holders:
        try:
            holder.close()
        except UseAfterMoveError:
            if isinstance(error, Exception):
                raise


def _forget_recovered(error: BaseException) -> None:
    """The caller of an eager operation lent values, not access: none goes back."""
    if isinstance(error, AccessError):
        error.recovered = None


def _operands(
    ins: Iterable[Read], outs: Sequence[Write]
) -> tuple[list[Any], tuple[Operand, ...]]:
    """What is read, each once, and where each operand is found."""
    reads: list[Any] = []
    operands: list[Operand] = []
    for x in ins:
        if isinstance(x, np.ndarray):
            operands.append(x)
            continue
        at = _index(outs, x)
        if at is not None:
            operands.append(~at)
            continue
        at = _index(reads, x)
        if at is None:
            at = len(reads)
            reads.append(x)
        operands.append(at)
    return reads, tuple(operands)


def _index(values: Sequence[Any], x: object) -> int | None:
    for at, value in enumerate(values):
        if value is x:
            return at
    return None


def _allocation(x: Any) -> Any:
    return x.allocation if type(x) is DeviceArray else x._allocation
