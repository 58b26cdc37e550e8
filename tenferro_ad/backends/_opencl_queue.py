"""One in-order OpenCL queue as an endpoint, and what OpenCL can prove of its commands.

The status of a command's event is the proof: 0 says complete, a negative number says
terminated with an error, and both say that nothing runs any more. Callbacks prove
nothing (on some drivers they never come for a failed command), so events are polled.

Nothing is enqueued behind a command that is known to have failed: some drivers would
keep it queued for ever, and the queue with it. Across queues a launch waits for the
events of the buffers that it touches; within one, order does that.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any, Final, final

import numpy as np
import pyopencl as cl

from ._backend import Launch, Proof
from ._printed import PrintedKernel, buffer_of, parameters
from ._printed_device import DeviceBuffer
from ._printed_queue import PrintedQueue, refused
from ._program_kernel import parts

_SHORTEST: Final = 20e-6  # seconds between two looks at an event, at first
_LONGEST: Final = 1e-3


class OpenClFailureError(RuntimeError):
    """A command ended with an error that the driver reported."""


@final
class ClEvent:
    """One launch on its way; it keeps what the driver may still read."""

    __slots__ = ("_kept", "_raw", "queue", "status")

    def __init__(self, raw: Any, queue: OpenClQueue, kept: object) -> None:
        self._raw = raw
        self._kept = kept
        self.queue = queue
        self.status: int | None = None  # the final one, once it is known

    def look(self) -> int:
        """The status now: positive while the command may run."""
        raw = self._raw  # before the status: another thread may give the event back
        status = self.status
        if status is None:
            status = int(raw.command_execution_status)
            if status <= 0:
                self.status = status
        return status

    @property
    def raw(self) -> Any:
        """The driver's event, or None when it has ended and was given back."""
        return self._raw

    def give_back(self) -> None:
        """Drop the driver's event and what was kept for it; the work has ended."""
        self.look()
        self._raw = self._kept = None


@final
class Upload:
    """The kernel of an upload: host elements that nobody else can change."""

    __slots__ = ("staging",)

    def __init__(self, source: np.ndarray[Any, Any]) -> None:
        self.staging = np.array(source, order="C", copy=True)


@final
class OpenClQueue(PrintedQueue):
    """An in-order queue over the memory of one context; queues of a device share it."""

    def __init__(self, name: str, memory: Any) -> None:
        super().__init__(name, memory)
        self.is_lost = False
        self._queue: Any = cl.CommandQueue(memory.context)
        self._gate: Any = None

    # -- for tests and debugging -------------------------------------------------------

    def hold(self) -> None:
        """Let nothing that is enqueued from now on begin, until `let_go`."""
        with self._lock:
            self._gate = cl.UserEvent(self.memory.context)

    def let_go(self) -> None:
        """Let everything begin again."""
        self._open_gate(cl.command_execution_status.COMPLETE)

    def break_off(self, status: int = -9999) -> None:
        """End everything that was enqueued since `hold` with an error."""
        self._open_gate(status)

    def _open_gate(self, status: int) -> None:
        with self._lock:
            gate, self._gate = self._gate, None
        if gate is not None:
            gate.set_status(status)

    # -- work --------------------------------------------------------------------------

    def enqueue(self, launch: Launch) -> object:
        """Enqueue the commands of a launch; the last one's event stands for all.

        Raises:
            NotEnqueuedError: The program does not build, an operand's work has failed,
                or the driver refused the first command: nothing was enqueued.
        """
        self.require_open(is_lost=self.is_lost)
        buffers: list[Any] = [a.binding for a in (*launch.reads, *launch.writes)]
        with self._lock:
            try:
                waits = self._waits(buffers)
                steps = self._steps(launch)
            except Exception as error:
                raise refused(error) from error
            event = self._run(steps, waits)
        for buffer in buffers:
            buffer.last = event
        for argument in launch.writes:
            argument.binding.written = event  # type: ignore[attr-defined]
        return event

    def _waits(self, buffers: Iterable[Any]) -> list[Any]:
        """Events to wait for: of other queues, and the gate."""
        waits = []
        for buffer in buffers:
            written, last = buffer.written, buffer.last
            if written is not None and written.look() < 0:
                raise OpenClFailureError(
                    f"the command that writes an operand ended with {written.look()}"
                )
            if last is not None and last.queue is not self:
                raw = last.raw  # before the look, like there
                if last.look() > 0:
                    waits.append(raw)
        if self._gate is not None:
            waits.append(self._gate)
        return waits

    def _steps(self, launch: Launch) -> list[Any]:
        """What to enqueue, as calls that take the events to wait for."""
        found = list(parts(launch))
        if len(found) > 1:
            self.memory.build(
                (printed.source, printed.entry)
                for part in found
                if isinstance(part.kernel, PrintedKernel)
                for printed in part.kernel.lowered(part).launches
            )
        return [step for part in found for step in self._part(part)]

    def _part(self, launch: Launch) -> list[Any]:
        kernel = launch.kernel
        if isinstance(kernel, Upload):
            return self._upload(kernel, launch)
        assert isinstance(kernel, PrintedKernel)
        lowered = kernel.lowered(launch)
        scratch = [self.memory.workspace(nbytes) for nbytes in lowered.scratch]
        steps = []
        for printed in lowered.launches:
            program = self.memory.program(printed.source, printed.entry)
            operands = [buffer_of(launch, a, scratch) for a in printed.arguments]
            raws = [b.raw if isinstance(b, DeviceBuffer) else b for b in operands]
            params = parameters(launch, printed)
            groups = -(-printed.threads // printed.group)
            size, group = (groups * printed.group,), (printed.group,)
            steps.append(
                (_launching(program, raws, params, size, group), (scratch, params))
            )
        return steps

    def _upload(self, kernel: Upload, launch: Launch) -> list[Any]:
        (target,) = launch.writes
        buffer, staging = target.binding, kernel.staging
        assert isinstance(buffer, DeviceBuffer)
        if buffer.raw is None or not staging.nbytes:
            return []

        def copy(queue: Any, waits: list[Any]) -> Any:
            return cl.enqueue_copy(
                queue,
                buffer.raw,
                staging,
                dst_offset=target.descriptor.layout.offset,
                is_blocking=False,
                wait_for=waits,
            )

        return [(copy, staging)]

    def _run(self, steps: list[Any], waits: list[Any]) -> ClEvent:
        """Cross the boundary. After the first command, an exception proves nothing."""
        raw: Any = None
        for number, (step, _) in enumerate(steps):
            try:
                raw = step(self._queue, waits)
            except cl.Error as error:
                if number:
                    raise
                raise refused(error) from error
            self.launches += 1
        if raw is None:  # nothing to compute: the event of everything before it
            raw = cl.enqueue_marker(self._queue, wait_for=waits)
        self._queue.flush()
        return ClEvent(raw, self, [kept for _, kept in steps])

    def await_event(self, event: object, deadline: float) -> Proof:
        """Look at the event until it has ended or time is up."""
        assert isinstance(event, ClEvent)
        pause = _SHORTEST
        while (status := event.look()) > 0:
            left = deadline - time.monotonic()
            if left <= 0:
                return "unproven"
            time.sleep(min(pause, left))
            pause = min(1.5 * pause, _LONGEST)
        return "done" if status == 0 else "failed"

    def finish(self, event: ClEvent, patience: float) -> None:
        """Wait for a command on behalf of host access to what it touches.

        Raises:
            OpenClFailureError: It failed.
            TimeoutError: It has not ended in time.
        """
        state = self.await_event(event, time.monotonic() + patience)
        if state == "unproven":
            raise TimeoutError(f"a command on `{self.name}` has not ended")
        cause = self.failure(event)
        if cause is not None:
            raise cause

    def failure(self, event: object) -> BaseException | None:
        """The status that the driver gave."""
        assert isinstance(event, ClEvent)
        status = event.look()
        if status >= 0:
            return None
        return OpenClFailureError(f"the command ended with status {status}")

    def synchronise(self, deadline: float) -> Proof:
        """Wait for a marker behind everything that was enqueued."""
        with self._lock:
            marker = ClEvent(cl.enqueue_marker(self._queue), self, None)
            self._queue.flush()
        state = self.await_event(marker, deadline)
        return "unproven" if state == "unproven" else "done"

    def release_event(self, event: object) -> None:
        """Take an event back: the driver's handle and what it kept alive go."""
        assert isinstance(event, ClEvent)
        event.give_back()


def _launching(
    kernel: Any,
    buffers: Sequence[Any],
    params: np.ndarray[Any, Any],
    size: tuple[int, ...],
    group: tuple[int, ...],
) -> Any:
    def launch(queue: Any, waits: list[Any]) -> Any:
        kernel.set_args(*buffers, params)
        return cl.enqueue_nd_range_kernel(queue, kernel, size, group, wait_for=waits)

    return launch


__all__ = ["ClEvent", "OpenClFailureError", "OpenClQueue", "Upload"]
