"""Detached submission of one operation (contract G3, G5).

`submit_detached` takes inputs and nothing else. The task owns them from then on: it
allocates the outputs, derives its own prepared and bound access, and is admitted by the
endpoint's first enqueue. The call returns after that answer and not after completion.
Until then a failure is a `SubmitRejected` with the exact inputs; afterwards the handle
has the outcome, and dropping the handle only stops looking.

Allocations are counted in the ledger scopes that were open where the call was made.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, final

from .._aval import Aval, aval_of
from .._ledger import OPERATION_OUTPUT, STATE, State
from .._ownership import MoveOnly
from ..backends import Engine, PreparedLaunch, infer_call
from ..errors import (
    CompletionError,
    DeviceMismatchError,
    ExecutionError,
    InvalidArgumentError,
    OutcomePendingError,
    ShapeError,
    SubmitError,
    SubmitRejected,
    UnsupportedError,
)
from ..ops import Call, Op
from ..storage import (
    AllocationGroup,
    AllocationSpan,
    DescriptorSlot,
    Tensor,
    TensorView,
    TensorViewMut,
    allocate,
)
from ._outcome import Completed, CompletionUnproven, RetiredFailed
from ._package import ExecutionBundle, ExecutionInputs

ExecutionOutcome = (
    Completed[ExecutionBundle] | RetiredFailed[ExecutionInputs] | CompletionUnproven
)


@final
class _Answer:
    """Where a task leaves its outcome; the handle looks there, or nobody does."""

    __slots__ = ("admission", "ended", "outcome", "refusal")

    def __init__(self) -> None:
        self.admission = threading.Event()
        self.ended = threading.Event()
        self.refusal: BaseException | None = None
        self.outcome: ExecutionOutcome | None = None

    def publish(self, outcome: ExecutionOutcome) -> None:
        """Leave the outcome, once."""
        self.outcome = outcome
        self.ended.set()
        self.admission.set()


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
        return self._eh_answer.ended.is_set()

    def wait(self, timeout: float | None = None) -> ExecutionOutcome:
        """Use up the handle and return the outcome, once the work has retired.

        Raises:
            OutcomePendingError: Not within `timeout` seconds; the handle stays usable,
                as it does after an interrupt.

        Cost: a synchronisation point; no copy.
        """
        self._require("wait")
        answer = self._eh_answer
        if not answer.ended.wait(timeout):
            raise OutcomePendingError(operation="wait")
        outcome = answer.outcome
        assert outcome is not None
        self._moved_by = "wait"
        answer.outcome = None
        return outcome

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ExecutionHandle(moved by {self._moved_by})"
        return f"ExecutionHandle({'done' if self.is_done else 'in flight'})"


class Work(Protocol):
    """What a task runs: one operation, or a compiled graph.

    Attributes:
        name: for texts.
    """

    name: str

    def memory(self) -> Sequence[tuple[Aval, int]]:
        """What to allocate, each under its reason."""
        ...

    def kernel(self, endpoint: Any, state: State) -> object:
        """What the endpoint runs."""
        ...

    def access(
        self, inputs: ExecutionInputs
    ) -> tuple[list[TensorView], list[TensorViewMut]]:
        """Views that the kernel reads, and views of inputs that it writes."""
        ...

    def bundle(
        self,
        group: AllocationGroup,
        bindings: Sequence[DescriptorSlot],
        made: Sequence[Tensor],
    ) -> ExecutionBundle:
        """The outputs, after retirement."""
        ...


@final
class _OneCall:
    """A single operation."""

    __slots__ = ("_call", "name")

    def __init__(self, call: Call) -> None:
        self._call = call
        self.name = call.op.name

    def memory(self) -> Sequence[tuple[Aval, int]]:
        return [(aval, OPERATION_OUTPUT) for aval in self._call.outs]

    def kernel(self, endpoint: Any, state: State) -> object:
        return endpoint.prepare(self._call)

    def access(
        self, inputs: ExecutionInputs
    ) -> tuple[list[TensorView], list[TensorViewMut]]:
        return [inputs._ei_group.view(slot) for slot in inputs._ei_bindings], []

    def bundle(
        self,
        group: AllocationGroup,
        bindings: Sequence[DescriptorSlot],
        made: Sequence[Tensor],
    ) -> ExecutionBundle:
        return ExecutionBundle._make(group, [group._seat(t) for t in made])


@final
class Task:
    """One submission: owns the inputs and outputs, and publishes one outcome."""

    __slots__ = ("_answer", "_endpoint", "_inputs", "_outputs", "_state", "_work")

    def __init__(self, endpoint: Any, work: Work, inputs: ExecutionInputs) -> None:
        self._endpoint = endpoint
        self._work = work
        self._inputs: ExecutionInputs | None = inputs
        self._outputs: list[Tensor] = []
        self._answer = _Answer()
        self._state: State = STATE.get()

    def launches(self) -> Iterator[PreparedLaunch]:
        """Allocate the outputs and prepare access to them and to the inputs."""
        work, state = self._work, self._state
        kernel = work.kernel(self._endpoint, state)
        for aval, reason in work.memory():
            under = State(state.account, reason, state.level, state.trace)
            record = allocate(under, aval, work.name)
            self._outputs.append(record.into_tensor())
        yield self._prepared(kernel)

    def _prepared(self, kernel: object) -> PreparedLaunch:
        inputs = self._inputs
        assert inputs is not None
        reads, written = self._work.access(inputs)
        writes = [*written, *[tensor.as_view_mut() for tensor in self._outputs]]
        try:
            return PreparedLaunch._of(self._endpoint, kernel, reads, writes)
        except BaseException:
            for read in reads:
                read.close()
            for write in writes:
                write.close()
            raise

    def admitted(self) -> None:
        """The endpoint took the work."""
        self._answer.admission.set()

    def reject(self, cause: BaseException) -> None:
        """Nothing was enqueued: the inputs are as they were."""
        self._answer.refusal = cause
        self._publish_failure(cause)

    def retire(self, cause: BaseException | None) -> None:
        """Everything is released: publish the outputs, or the inputs with the cause."""
        if cause is not None:
            self._publish_failure(cause)
            return
        inputs, self._inputs = self._inputs, None
        outputs, self._outputs = self._outputs, []
        assert inputs is not None
        bundle = self._work.bundle(inputs._surrender(), inputs._ei_bindings, outputs)
        self._answer.publish(Completed(bundle))

    def lose(
        self, cause: BaseException | None, keys: tuple[AllocationSpan, ...]
    ) -> None:
        """Completion is not proven: let go of the owners and say so."""
        inputs, self._inputs = self._inputs, None
        self._outputs = []
        if inputs is not None:
            inputs._surrender()
        error = CompletionError(
            operation=self._work.name,
            found=_said(cause, "the endpoint gave no proof in time"),
            fix="treat the values as gone; their memory is kept for good",
        )
        error.__cause__ = cause
        self._answer.publish(CompletionUnproven(error, keys))

    def _publish_failure(self, cause: BaseException) -> None:
        inputs, self._inputs = self._inputs, None
        self._outputs = []
        assert inputs is not None
        inputs._moved_by = None
        error = ExecutionError(
            operation=self._work.name,
            found=_said(cause, ""),
            fix="the inputs are unchanged: correct the cause and submit them again",
        )
        error.__cause__ = cause
        self._answer.publish(RetiredFailed(error, inputs))


def _said(cause: BaseException | None, otherwise: str) -> str:
    return otherwise if cause is None else f"{type(cause).__name__}: {cause}"


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
                found=f"a `{type(inputs).__name__}`",
                fix="move the values into `ExecutionInputs`: a task owns what it uses",
            )
        inputs._require("submit_detached")

        def work() -> Work:
            return _OneCall(
                planned(self._engine.endpoint, self._op, avals_of(inputs), self._params)
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

    Raises:
        SubmitRejected: nothing was enqueued; it has the exact inputs.
    """
    try:
        task = Task(engine.endpoint, make(), inputs)
        inputs._moved_by = operation
        engine.post(task)
    except Exception as error:
        inputs._moved_by = None
        raise _rejected(operation, name, error, inputs) from error
    answer = task._answer
    del task  # it belongs to the engine now
    answer.admission.wait(engine.deadline)
    refusal = answer.refusal
    if refusal is None:
        return ExecutionHandle._make(answer)
    answer.outcome = None
    raise _rejected(operation, name, refusal, inputs) from refusal


def _rejected(
    operation: str, name: str, error: BaseException, inputs: ExecutionInputs
) -> SubmitRejected:
    cause = SubmitError(
        operation=name,
        found=_said(error, ""),
        fix="nothing was enqueued: correct it and submit the inputs again",
    )
    cause.__cause__ = error
    return SubmitRejected(
        operation=operation,
        found=cause.found,
        cause=cause,
        recovered=inputs,
    )


def avals_of(inputs: ExecutionInputs) -> tuple[Aval, ...]:
    """Shape, dtype and memory of each bound input. Cost: O(bindings)."""
    found = []
    for slot in inputs._ei_bindings:
        record = inputs._ei_group.record(slot)
        owner = inputs._ei_group._owner(record)
        device = owner._resource.provider.value.provider
        found.append(aval_of(record.layout.shape, record.dtype, device))
    return tuple(found)


def planned(
    endpoint: Any, op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]
) -> Call:
    """The application of `op` on an endpoint, with everything that can be known now.

    Raises:
        DeviceMismatchError: An input is not in the endpoint's memory.
        UnsupportedError: The endpoint has no kernel.
        and what the row's shape rule raises.
    """
    for aval in ins:
        if aval.device is not endpoint.memory:
            raise DeviceMismatchError(
                operation=op.name,
                found=f"an input on `{aval.device.name}`, work on `{endpoint.name}`",
                fix="move the input to the memory of that endpoint first",
            )
    if not op.variadic and len(ins) != len(op.args):
        raise ShapeError(
            operation=op.name,
            found=f"{len(ins)} inputs",
            fix=f"bind {len(op.args)}: {', '.join(op.args)}",
        )
    if not endpoint.supports(op, [aval.dtype for aval in ins]):
        raise UnsupportedError(op=op.name, backend=endpoint.name)
    return infer_call(op, ins, params, endpoint.memory)
