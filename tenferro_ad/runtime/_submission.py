"""Detached submission: one task for one package of inputs (contract G3, G5).

A task owns its inputs from submission on. It allocates the outputs, derives its own
prepared and bound access, and is admitted by the endpoint's first enqueue. The call
returns after that answer and not after completion. Until then a failure is a
`SubmitRejected` with the exact inputs; afterwards the handle has the outcome, and
dropping the handle only stops looking.

Events are counted in the ledger scopes that were open where the call was made, and
belong to its line.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from .._aval import Aval
from .._ledger import STATE, State
from .._ownership import MoveOnly
from .._source import Line, asked_at, source_line
from ..backends import Boundary, Engine, Latch
from ..errors import (
    CompletionError,
    InvalidArgumentError,
    OutcomePendingError,
    SubmitRejected,
    a_kind,
)
from ..ops import Op
from ..storage import AdValueRecord, AllocationSpan, Tensor
from ._arguments import seconds_of
from ._outcome import (
    Completed,
    CompletionUnproven,
    RetiredFailed,
    failure,
    rejection,
    said,
)
from ._package import ExecutionBundle, ExecutionInputs, avals_of
from ._step_replay import Steps
from ._work import OneCall, Work, allocated, element, planned, prepared

ExecutionOutcome = (
    Completed[ExecutionBundle] | RetiredFailed[ExecutionInputs] | CompletionUnproven
)


@final
class _Answer:
    """Where a task leaves its outcome; the handle looks there, or nobody does.

    Whoever asks first gets it. A claim is given back by name, so an interrupt between
    taking the outcome and handing it out loses nothing.
    """

    __slots__ = ("_claims", "admission", "ended", "outcome", "refusal")

    def __init__(self) -> None:
        self.admission = Latch()
        self.ended = Latch()
        self.refusal: BaseException | None = None
        self.outcome: ExecutionOutcome | None = None
        self._claims: list[object] = []

    def publish(self, outcome: ExecutionOutcome) -> None:
        """Leave the outcome, once."""
        self.outcome = outcome
        self.ended.open()
        self.admission.open()

    def claim(self, mine: object) -> bool:
        """Whether `mine` is the first to ask for the outcome."""
        self._claims.append(mine)
        return self._claims[0] is mine

    def unclaim(self, mine: object) -> bool:
        """Give up the claim, if it is the first; whether it was."""
        if self._claims[:1] != [mine]:
            return False
        self._claims.clear()
        return True


@final
class ExecutionHandle(MoveOnly):
    """A look at detached work. Dropping it changes nothing for the work."""

    __slots__ = ("_eh_answer",)

    _eh_answer: _Answer

    @classmethod
    def _make(cls, answer: _Answer) -> ExecutionHandle:
        handle: ExecutionHandle = object.__new__(cls)
        handle._moved_by = None
        handle._eh_answer = answer
        return handle

    @property
    def is_done(self) -> bool:
        """Whether `wait` would return at once. Cost: constant; no provider call."""
        self._require("is_done")
        return self._eh_answer.ended.is_open

    def wait(self, timeout: float | None = None) -> ExecutionOutcome:
        """Use up the handle and return the outcome, once the work has retired.

        Args:
            timeout: seconds to wait at most; None is for ever, 0 or less only looks.

        Raises:
            OutcomePendingError: Not within `timeout` seconds; the handle stays usable,
                as it does after an interrupt.
            UseAfterMoveError: The outcome was taken before.
            InvalidArgumentError: `timeout` is no number of seconds.

        Cost: a synchronisation point; no copy.
        """
        self._require("wait")
        answer = self._eh_answer
        if not answer.ended.wait(seconds_of("wait", "timeout", timeout)):
            raise OutcomePendingError(operation="wait")
        mine, outcome = object(), None
        try:
            first = answer.claim(mine)
            self._moved_by = "wait"
            if not first:  # another thread was
                self._require("wait")
            outcome, answer.outcome = answer.outcome, None
            return outcome  # type: ignore[return-value]
        except BaseException as error:
            is_interrupt = not isinstance(error, Exception)
            if is_interrupt and answer.unclaim(mine):  # not taken after all
                answer.outcome = outcome or answer.outcome
                self._moved_by = None
            raise

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ExecutionHandle(moved by {self._moved_by})"
        return f"ExecutionHandle({'done' if self.is_done else 'in flight'})"


@final
class Task:
    """One submission: owns the inputs and outputs, and publishes one outcome."""

    __slots__ = (
        "_asked",
        "_begun",
        "_endpoint",
        "_inputs",
        "_name",
        "_outputs",
        "_state",
        "_turn",
        "_work",
        "answer",
    )

    def __init__(self, endpoint: Any, work: Work, inputs: ExecutionInputs) -> None:
        self._endpoint = endpoint
        self._name = work.name
        self._work: Work | None = work
        self._inputs: ExecutionInputs | None = inputs
        self._outputs: list[Tensor] = []
        self._turn: list[None] = [None]
        self._begun = False
        self._state: State = STATE.get()
        slow = self._state.account.slow
        self._asked: Line | None = source_line() if slow else None
        self.answer = _Answer()

    def _is_ours(self) -> bool:
        """Whether the engine has the task, or gets it now: nobody took it back."""
        if not self._begun:
            try:
                self._turn.pop()
            except IndexError:
                return False
            self._begun = True
        return True

    def withdraw(self) -> bool:
        """Take the inputs back, if the engine has not begun: for a submitter who was
        interrupted and does not know whether the task was posted."""
        try:
            self._turn.pop()
        except IndexError:
            return False
        self._forget()
        return True

    def cross(self, boundary: Boundary) -> None:
        """Allocate the outputs, and prepare access to them and to the inputs for each
        launch; nothing if the task was taken back."""
        if not self._is_ours():
            return
        work, inputs, endpoint = self._work, self._inputs, self._endpoint
        assert work is not None
        assert inputs is not None

        def launch(kernel: object) -> None:
            access = work.access(inputs)
            boundary.launch(prepared(endpoint, kernel, access, self._outputs))

        def read(at: int, start: int, aval: Aval, operation: str) -> Any:
            boundary.wait()
            return element(work, inputs, self._outputs, at, start, aval)

        with asked_at(self._asked):
            kernel = work.kernel(endpoint, self._state)
            self._outputs = allocated(work, endpoint, self._state)
            if isinstance(kernel, Steps):
                kernel.run(launch, read)
            else:
                launch(kernel)

    def admitted(self) -> None:
        """The endpoint took the work."""
        self.answer.admission.open()

    def reject(self, cause: BaseException) -> None:
        """Nothing was enqueued: the inputs are as they were."""
        if self._is_ours():
            self.answer.refusal = cause
            self._publish_failure(cause)

    def retire(self, cause: BaseException | None) -> None:
        """Everything is released: publish the outputs, or the inputs with the cause."""
        if cause is not None:
            self._publish_failure(cause)
            return
        work, inputs = self._work, self._inputs
        assert work is not None
        assert inputs is not None
        owners = inputs._take()
        mark = owners.group._mark()
        try:
            bundle = work.bundle(owners, self._outputs)
        except BaseException:
            owners.group._restore(mark)
            inputs._give(owners)
            raise
        del owners, work  # what was attached is free before anybody hears of it
        self._forget()
        self.answer.publish(Completed(bundle))

    def lose(
        self, cause: BaseException | None, keys: tuple[AllocationSpan, ...]
    ) -> None:
        """Completion is not proven: let go of the owners and say so. What others hold
        too may still be read, and so is never unique again."""
        if not self._is_ours():
            return
        assert self._inputs is not None
        assert self._work is not None
        for attached in (*self._inputs._take().bindings, *self._work.constants):
            if isinstance(attached, AdValueRecord):
                attached.keep_for_good()
        error = CompletionError(
            operation=self._name,
            found=said(cause, "the endpoint gave no proof in time"),
            fix="treat the values as gone; their memory is kept for good",
        )
        error.__cause__ = cause
        self._forget()
        self.answer.publish(CompletionUnproven(error, keys))

    def _publish_failure(self, cause: BaseException) -> None:
        inputs = self._inputs
        assert inputs is not None
        fix = "the inputs are unchanged: correct the cause and submit them again"
        if inputs._ei_donated:
            fix = "correct the cause; write donated inputs again before reading them"
        self._forget()
        inputs._moved_by = None
        self.answer.publish(RetiredFailed(failure(self._name, cause, fix), inputs))

    def _forget(self) -> None:
        self._work = self._inputs = None
        self._outputs = []


@final
class Submission:
    """One operation with its parameters, to be run on an engine.

    Cost: constant; it holds no value and starts nothing.
    """

    __slots__ = ("_engine", "_op", "_params")

    def __init__(self, engine: Engine, op: Op, params: tuple[Any, ...] = ()) -> None:
        self._engine = engine
        self._op = op
        self._params = params

    def submit_detached(self, inputs: ExecutionInputs) -> ExecutionHandle:
        """Use up the inputs and run the operation on them.

        Raises:
            SubmitRejected: Nothing was enqueued; `into_parts()` gives the cause and
                the exact inputs.

        Cost: allocates the outputs, copies nothing, and waits for the endpoint's
        answer to the first enqueue, not for the work.
        """
        if not isinstance(inputs, ExecutionInputs):
            raise InvalidArgumentError(
                operation="submit_detached",
                argument="inputs",
                found=a_kind(inputs),
                fix="move the values into `ExecutionInputs`: a task owns what it uses",
            )

        def work() -> Work:
            found = avals_of(inputs)
            return OneCall(
                planned(self._engine.endpoint, self._op, found, self._params)
            )

        return submitted(self._engine, inputs, work, "submit_detached", self._op.name)

    def __repr__(self) -> str:
        return f"Submission({self._op.name} on {self._engine!r})"


def submitted(
    engine: Engine,
    inputs: ExecutionInputs,
    make: Callable[[], Work],
    operation: str,
    name: str,
) -> ExecutionHandle:
    """Use up the inputs and post the work that `make` derives from them.

    An interrupt leaves the inputs usable if the engine has not begun; otherwise the
    work goes on, as if its handle had been dropped.

    Raises:
        SubmitRejected: nothing was enqueued; it has the exact inputs.
        UseAfterMoveError: the inputs were used up before.
    """
    inputs._require(operation)
    task: Task | None = None
    try:
        inputs._moved_by = operation
        task = Task(engine.endpoint, make(), inputs)
        answer = task.answer
        engine.post(task)
        answer.admission.wait(engine.deadline)
    except BaseException as error:
        if task is None or task.withdraw():
            inputs._moved_by = None
        if not isinstance(error, Exception):
            raise
        raise rejection(SubmitRejected, operation, name, error, inputs) from error
    finally:
        task = None  # it belongs to the engine now, or to nobody
    refusal = answer.refusal
    if refusal is None:
        return ExecutionHandle._make(answer)
    answer.outcome = None
    raise rejection(SubmitRejected, operation, name, refusal, inputs) from refusal
