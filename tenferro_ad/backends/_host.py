"""The two endpoints of host memory: one runs at once, one is a stream (contract G3).

`HostEndpoint` runs a launch inside `enqueue` and leaves nothing running, which is what
borrowed work needs. `HostStream` hands launches to a thread of its own and answers with
an event, so detached work is asynchronous on a machine without any accelerator. Both
work on the memory of the CPU device: an endpoint is not an allocation domain.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from typing import Any, final

from ..errors import EngineLostError, NotEnqueuedError
from ..ops import Call, Op
from ._backend import Launch, Proof
from ._cpu import CPU, CpuDevice
from ._kernels import HostKernel, has_host_kernel, host_kernel, host_operands
from ._program_kernel import parts
from ._quiet import loud, quiet
from ._waiting import Gate, Latch, start


@final
class HostEvent:
    """Ends once, well or with a cause."""

    __slots__ = ("cause", "ended")

    def __init__(self) -> None:
        self.ended = Latch()
        self.cause: BaseException | None = None


def _run(launch: Launch) -> None:
    before = quiet()
    try:
        for part in parts(launch):
            kernel: HostKernel = part.kernel  # type: ignore[assignment]
            kernel(*host_operands(part, lambda binding: binding))
    finally:
        loud(before)


class _OnHost:
    """What both endpoints answer alike."""

    is_synchronous: bool
    is_lost = False

    def __init__(self, name: str, memory: CpuDevice) -> None:
        self.name = name
        self.memory: Any = memory

    def supports(self, op: Op, dtypes: Sequence[Any]) -> bool:
        """Whether the row has a host kernel."""
        return has_host_kernel(op)

    def prepare(self, call: Call) -> object:
        """The host kernel of one application."""
        return host_kernel(call, self.name)

    def prepare_program(self, run: HostKernel) -> object:
        """A whole program as one kernel over host memory."""
        return run

    def await_event(self, event: object, deadline: float) -> Proof:
        """Wait for the event's own flag."""
        assert isinstance(event, HostEvent)
        if not event.ended.wait(max(0.0, deadline - time.monotonic())):
            return "unproven"
        return "done" if event.cause is None else "failed"

    def failure(self, event: object) -> BaseException | None:
        """What the kernel raised."""
        assert isinstance(event, HostEvent)
        return event.cause

    def release_event(self, event: object) -> None:
        """Host events hold nothing."""

    def __repr__(self) -> str:
        return f"endpoint({self.name!r})"


@final
class HostEndpoint(_OnHost):
    """Runs each launch to its end inside `enqueue`."""

    is_synchronous = True

    def __init__(self, name: str = "cpu", memory: CpuDevice = CPU) -> None:
        super().__init__(name, memory)

    def enqueue(self, launch: Launch) -> object:
        """Run the launch. An interrupt passes through with nothing left running."""
        event = HostEvent()
        try:
            _run(launch)
        except Exception as error:
            event.cause = error
        event.ended.open()
        return event

    def synchronise(self, deadline: float) -> Proof:
        """Nothing ever runs on after a call."""
        return "done"


@final
class HostStream(_OnHost):
    """One thread that runs launches in order.

    Cost: a thread from the first launch on; it ends with the stream.
    """

    is_synchronous = False

    def __init__(self, name: str = "cpu:stream", memory: CpuDevice = CPU) -> None:
        super().__init__(name, memory)
        self._launches: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._may_run = Gate()
        self._thread: threading.Thread | None = None

    def hold(self) -> None:
        """Begin no further launch until `let_go`: for tests and for debugging."""
        self._may_run.close()

    def let_go(self) -> None:
        """Begin launches again."""
        self._may_run.open()

    def enqueue(self, launch: Launch) -> object:
        """Hand the launch to the stream's thread and return its event."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=_stream,
                args=(self._launches, self._may_run),
                name=self.name,
                daemon=True,
            )
        if self._thread.ident is None:
            start([self._thread])
        elif not self._thread.is_alive():
            lost = EngineLostError(operation="enqueue", engine=self.name)
            raise NotEnqueuedError(operation="enqueue", found=str(lost)) from lost
        event = HostEvent()
        self._launches.put((launch, event))
        return event

    def synchronise(self, deadline: float) -> Proof:
        """Wait for a marker behind everything that was enqueued."""
        if self._thread is None:
            return "done"
        marker = HostEvent()
        self._launches.put((None, marker))
        return self.await_event(marker, deadline)

    def __del__(self) -> None:
        launches = getattr(self, "_launches", None)
        if launches is not None:
            launches.put(None)


def _stream(launches: queue.SimpleQueue[Any], may_run: Gate) -> None:
    while (item := launches.get()) is not None:
        launch, event = item
        del item
        may_run.wait()
        try:
            if launch is not None:
                _run(launch)
        except BaseException as error:  # whatever a kernel raises is its own failure
            event.cause = error
        event.ended.open()
        del launch, event  # the last launch's memory must not live until the next
