"""The one queue of a WebGPU device as an endpoint, driven by a thread of its own.

Some drivers block inside a submission while the one before it runs, and hold up every
other call to the queue meanwhile. So one thread submits, waits for the proof of what it
submitted, and submits whatever has arrived in between as one batch. Callers only record
commands, which never waits, and whatever the library refuses it refuses there, before
anything is admitted.

The proof of completion is the library's work-done callback with status success, asked
for after the submission and delivered by a wait for exactly that submission. The answer
of a poll that does not wait proves nothing.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np
from wgpu.backends.wgpu_native import ffi, lib

from ._backend import Launch, Proof
from ._printed import PrintedKernel, buffer_of, parameters
from ._printed_device import DeviceBuffer
from ._printed_queue import PrintedQueue, refused
from ._program_kernel import parts
from ._waiting import Gate, Latch, start

MOST_GROUPS: Final = 65_535
"""Work groups along one axis of a dispatch; more are folded into the second axis."""


class WebGpuFailureError(RuntimeError):
    """The device or its library did not carry out admitted work."""


@final
class GpuEvent:
    """One piece of work for the submitting thread.

    Attributes:
        commands: recorded commands, until they are submitted.
        action: host work on the queue (an upload, a download) instead.
        kept: what the device may use until the end.
    """

    __slots__ = ("action", "cause", "commands", "ended", "kept", "state")

    def __init__(
        self, commands: Any, action: Callable[[], None] | None, kept: object
    ) -> None:
        self.commands = commands
        self.action = action
        self.kept = kept
        self.cause: BaseException | None = None
        self.state: Proof = "unproven"
        self.ended = Latch()

    def end(self, state: Proof, cause: BaseException | None) -> None:
        """Publish how it ended; the commands are used up."""
        self.state, self.cause = state, cause
        self.commands = self.action = None
        self.ended.open()


@final
class Upload:
    """The kernel of an upload: host elements that nobody else can change."""

    __slots__ = ("staging",)

    def __init__(self, staging: np.ndarray[Any, Any]) -> None:
        self.staging = staging


@final
class WebGpuQueue(PrintedQueue):
    """The queue of one device."""

    def __init__(self, name: str, memory: Any) -> None:
        super().__init__(name, memory)
        self._lost: list[BaseException] = []
        self._work: queue.SimpleQueue[GpuEvent | None] = queue.SimpleQueue()
        self._may_run = Gate()
        self._thread: threading.Thread | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the device failed: it accepts nothing more."""
        return bool(self._lost)

    # -- for tests and debugging -------------------------------------------------------

    def hold(self) -> None:
        """Submit nothing more until `let_go`: what is enqueued stays in flight."""
        self._may_run.close()

    def let_go(self) -> None:
        """Submit again."""
        self._may_run.open()

    # -- work --------------------------------------------------------------------------

    def enqueue(self, launch: Launch) -> object:
        """Record the dispatches of a launch and hand them to the submitting thread.

        Raises:
            NotEnqueuedError: The library refused to build or record them, or the device
                is lost; nothing was enqueued.
        """
        self.require_open(is_lost=self.is_lost)
        with self._lock:
            try:
                event = self._recorded(launch)
            except Exception as error:
                raise refused(error) from error
            for argument in (*launch.reads, *launch.writes):
                argument.binding.last = event  # type: ignore[attr-defined]
            self._post(event)
        return event

    def _recorded(self, launch: Launch) -> GpuEvent:
        kernel = launch.kernel
        if isinstance(kernel, Upload):
            (target,) = launch.writes
            assert isinstance(target.binding, DeviceBuffer)
            action = self.memory.writing(target.binding, kernel.staging)
            return GpuEvent(None, action, kernel)
        encoder = self.memory.raw.create_command_encoder()
        before = self.launches
        kept = [self._record(encoder, part) for part in parts(launch)]
        if self.launches == before:  # nothing to compute
            return GpuEvent(None, None, None)
        return GpuEvent(encoder.finish(), None, kept)

    def _record(self, encoder: Any, launch: Launch) -> list[Any]:
        """Record the dispatches of one kernel; gives what must be kept."""
        kernel = launch.kernel
        assert isinstance(kernel, PrintedKernel)
        lowered = kernel.lowered(launch)
        scratch = [self.memory.workspace(nbytes) for nbytes in lowered.scratch]
        for printed in lowered.launches:
            operands = [buffer_of(launch, a, scratch) for a in printed.arguments]
            buffers = [o.raw if isinstance(o, DeviceBuffer) else o for o in operands]
            buffers.append(self.memory.constants(parameters(launch, printed)))
            pipeline = self.memory.pipeline(printed.source, printed.entry)
            groups = -(-printed.threads // printed.group)
            rows = -(-groups // MOST_GROUPS)
            step = encoder.begin_compute_pass()
            step.set_pipeline(pipeline)
            step.set_bind_group(0, self.memory.bind_group(pipeline, buffers))
            step.dispatch_workgroups(min(groups, MOST_GROUPS), rows, 1)
            step.end()
            self.launches += 1
        return scratch

    def run(self, action: Callable[[], None], patience: float) -> None:
        """Let the submitting thread do host work on the queue, in order, and wait.

        Raises:
            WebGpuFailureError: The device is lost, or the library refused.
            TimeoutError: It has not ended in time.
        """
        if self.is_lost:
            raise WebGpuFailureError(f"`{self.name}` is lost") from self._lost[0]
        event = GpuEvent(None, action, None)
        self._post(event)
        if not event.ended.wait(patience):
            raise TimeoutError(f"work on `{self.name}` has not ended")
        if event.state != "done":
            raise WebGpuFailureError(
                f"host access on `{self.name}` failed"
            ) from event.cause

    def _post(self, event: GpuEvent) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=_submit,
                args=(self.memory.raw, self._work, self._lost, self._may_run),
                name=f"{self.name} submit",
                daemon=True,
            )
        if self._thread.ident is None:
            start([self._thread])
        self._work.put(event)

    def await_event(self, event: object, deadline: float) -> Proof:
        """Wait until the submitting thread has proof."""
        assert isinstance(event, GpuEvent)
        if not event.ended.wait(max(0.0, deadline - time.monotonic())):
            return "unproven"
        return event.state

    def failure(self, event: object) -> BaseException | None:
        """What the library raised."""
        assert isinstance(event, GpuEvent)
        return event.cause

    def synchronise(self, deadline: float) -> Proof:
        """Wait for everything that was enqueued."""
        marker = GpuEvent(None, None, None)
        self._post(marker)
        return self.await_event(marker, deadline)

    def release_event(self, event: object) -> None:
        """Take an event back: what was kept for the device goes."""
        assert isinstance(event, GpuEvent)
        event.kept = None

    def __del__(self) -> None:
        work = getattr(self, "_work", None)
        if work is not None:
            work.put(None)


# ---- the submitting thread


def _submit(
    device: Any,
    work: queue.SimpleQueue[GpuEvent | None],
    lost: list[BaseException],
    may_run: Gate,
) -> None:
    """Submit what arrived as one batch, wait for its proof, and so on.

    Host work waits for everything before it and is done before anything after it.
    """
    held: GpuEvent | None = None
    while True:
        event = held or work.get()
        held = None
        if event is None:
            return
        batch = [event]
        while event.action is None:
            try:
                found = work.get_nowait()
            except queue.Empty:
                break
            if found is None or found.action is not None:
                held = found
                if found is None:
                    work.put(None)
                break
            batch.append(found)
        may_run.wait()
        try:
            if lost:
                raise WebGpuFailureError("the device is lost") from lost[0]
            if event.action is not None:
                event.action()
            _proven(device, [e.commands for e in batch if e.commands is not None])
        except BaseException as error:
            # Nobody can say what of the batch runs: the device is given up.
            lost.append(error)
            for one in batch:
                one.end("unproven", error)
        else:
            for one in batch:
                one.end("done", None)
        del event, batch


def _proven(device: Any, commands: list[Any]) -> None:
    """Submit and wait for the library's proof.

    Raises:
        WebGpuFailureError: There is no proof.
    """
    handles = ffi.new("WGPUCommandBuffer[]", [c._internal for c in commands])
    internal = device.queue._internal
    index = lib.wgpuQueueSubmitForIndex(internal, len(commands), handles)
    done = _WorkDone(internal)
    lib.wgpuDevicePoll(device._internal, True, ffi.new("WGPUSubmissionIndex *", index))
    while done.status is None:  # the wait is over; the callback comes with a poll
        lib.wgpuDevicePoll(device._internal, False, ffi.NULL)
        time.sleep(20e-6)
    if done.status != 1:
        raise WebGpuFailureError(f"the queue reported status {done.status}")


@final
class _WorkDone:
    """The library's answer that everything submitted so far has ended."""

    __slots__ = ("_callback", "status")

    def __init__(self, internal: Any) -> None:
        self.status: int | None = None

        def answer(status: int, *more: object) -> None:
            self.status = int(status)

        self._callback = ffi.callback("WGPUQueueWorkDoneCallback", answer)
        info = ffi.new("WGPUQueueWorkDoneCallbackInfo *")
        info.mode = lib.WGPUCallbackMode_AllowProcessEvents
        info.callback = self._callback
        lib.wgpuQueueOnSubmittedWorkDone(internal, info[0])


__all__ = ["GpuEvent", "Upload", "WebGpuFailureError", "WebGpuQueue"]
