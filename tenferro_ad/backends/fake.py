"""A small asynchronous device whose time is moved by hand.

`FakeProvider` has memory that the host cannot read, one in-order queue, and events that
end when they are told to: nothing runs before. It computes with real kernels on its own
bytes, so results can be compared, and it counts every call. Any step can be made to
fail, to raise or to hang. It needs no hardware and no other package, so tests of code
that submits work can use it as any other device.

    device = FakeProvider()
    x = ta.asarray([1.0, 2.0], device=device)
    y = ta.exp(x)
    assert len(device.pending) == 1  # `exp`, which has not run
    device.complete()
    y.tolist()

It watches its callers: memory freed, mapped or used again while work may touch it, and
anything given back twice, is a `violation`. With `auto=True` it completes work as soon
as somebody waits for it.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from .._aval import Aval
from ..errors import AllocationLimitError, NotEnqueuedError
from ..ops import OPS, Call, Op
from ..storage import DeviceArray, host_array
from ._backend import Launch, Proof
from ._device import AsynchronousDevice, Target
from ._engine import DEADLINE
from ._fake_queue import (
    FREED,
    Bytes,
    EventState,
    FakeBuffer,
    FakeEvent,
    FakeQueue,
    Lent,
)
from ._faults import (
    STEPS,
    Fails,
    FakeFailureError,
    Fault,
    Faults,
    Hang,
    Raises,
    Step,
)
from ._kernels import has_host_kernel, host_kernel, host_sum
from ._plan import infer_call

__all__ = [
    "STEPS",
    "FakeBuffer",
    "FakeEvent",
    "FakeFailureError",
    "FakeProvider",
    "Hang",
    "Step",
]


@final
class FakeProvider(AsynchronousDevice):
    """Memory and one queue of a device that does what it is told.

    Args:
        name: Discovery name.
        auto: Complete pending work as soon as somebody waits for it.
        limit: Most live bytes, or None.
        patience: Seconds that a mapping waits for pending work before it gives up.
        deadline: Seconds without proof after which eager work counts as unproven.

    Attributes:
        violations: What callers did that no device would survive.
        is_lost: Set it to make the endpoint accept nothing more.
    """

    def __init__(
        self,
        name: str = "fake:0",
        *,
        auto: bool = False,
        limit: int | None = None,
        patience: float = 30.0,
        deadline: float = DEADLINE,
    ) -> None:
        super().__init__(deadline)
        self.name = name
        self.auto = auto
        self.limit = limit
        self.patience = patience
        self.is_lost = False
        self.violations: list[str] = []
        self.live_bytes = 0
        self.out: Counter[str] = Counter()
        self._faults = Faults()
        self._queue = FakeQueue()
        self._lock = threading.RLock()  # finalisers give things back, at any time

    def __repr__(self) -> str:
        return f"FakeProvider({self.name!r}, pending={len(self.pending)})"

    # -- what a test does --------------------------------------------------------------

    @property
    def counts(self) -> Counter[str]:
        """Calls so far, by step."""
        return Counter(self._faults.counts)

    @property
    def pending(self) -> tuple[FakeEvent, ...]:
        """Events that have not ended, oldest first."""
        return self._queue.pending

    @property
    def outstanding(self) -> dict[str, int]:
        """What callers hold: buffers, mappings, reservations, bindings, events."""
        with self._lock:
            return {kind: n for kind, n in self.out.items() if n}

    def complete(self) -> None:
        """Complete everything that is pending."""
        for event in self.pending:
            event.complete()

    def fail(self, step: Step, *, after: int = 0, times: int = 1) -> None:
        """Make a coming call of `step` fail in its documented way."""
        self._faults.add(step, Fails(), after, times)

    def raise_(
        self, step: Step, error: BaseException, *, after: int = 0, times: int = 1
    ) -> None:
        """Make a coming call of `step` raise `error`, proving nothing."""
        self._faults.add(step, Raises(error), after, times)

    def hang(self, step: Step, *, after: int = 0) -> Hang:
        """Make a coming call of `step` hang until the returned object is let go."""
        hang = Hang()
        self._faults.add(step, hang, after, 1)
        return hang

    @property
    def faults_left(self) -> dict[str, int]:
        """Faults that no call has met yet."""
        return self._faults.left

    # -- memory ------------------------------------------------------------------------

    def small(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> FakeBuffer:
        """Unwritten memory for one root."""
        return self.allocate(shape, dtype, 0)

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> FakeBuffer:
        """Unwritten memory for one root."""
        fault = self._meet("allocate")
        buffer = FakeBuffer(tuple(shape), np.dtype(dtype))
        over = self.limit is not None and self.live_bytes + buffer.nbytes > self.limit
        if fault is not None or over:
            raise AllocationLimitError(
                operation="allocate",
                engine=self.name,
                nbytes=buffer.nbytes,
                limit=self.limit,
            )
        self._count("buffers", 1)
        self.live_bytes += buffer.nbytes
        return buffer

    def give_back(self, buffer: FakeBuffer) -> None:
        """Free a root's memory: its bytes become nonsense."""
        fault = self._meet("deallocate")
        if not buffer.is_live:
            self._violation(f"{buffer} was given back twice")
            return
        if self._queue.touches(buffer):
            self._violation(f"{buffer} was freed while work may use it")
        if buffer._mappings:
            self._violation(f"{buffer} was freed while it was mapped")
        buffer.is_live = False
        buffer._bytes.fill(FREED)
        self.live_bytes -= buffer.nbytes
        self._count("buffers", -1)
        self._failed(fault, "deallocate")

    def upload(self, target: Target, source: np.ndarray[Any, Any]) -> None:
        """Write host elements at once, after work on the memory."""
        self._failed(self._meet("transfer"), "transfer")
        if isinstance(target, DeviceArray):
            buffer, view = target.allocation, target.view_mut()
        else:
            buffer, view = target._allocation, target.as_view_mut()
        with view:
            self._wait_for(buffer)
            host_array(view.descriptor(), buffer._bytes)[...] = source

    def map_host(self, buffer: FakeBuffer, mode: str) -> Bytes:
        """Wait for work on the buffer, then show its bytes."""
        self._failed(self._meet("map"), "map")
        self._failed(self._meet("synchronise"), "synchronise")
        if buffer.writer is not None:
            buffer.writer.settle("map_host")
        self._wait_for(buffer)
        if not buffer.is_live:
            self._violation(f"{buffer} was mapped after it was freed")
        buffer._mappings += 1
        self._count("mappings", 1)
        return buffer._bytes

    def unmap_host(self, buffer: FakeBuffer, mapped: Bytes, mode: str) -> None:
        """Hide the bytes again."""
        fault = self._meet("unmap")
        if not buffer._mappings:
            self._violation(f"{buffer} was unmapped twice")
        buffer._mappings -= 1
        self._count("mappings", -1)
        self._failed(fault, "unmap")

    # -- access ------------------------------------------------------------------------

    def prepare_device(self, buffer: FakeBuffer, mode: str) -> object:
        """Reserve the buffer for one access."""
        self._failed(self._meet("prepare"), "prepare")
        return self._lend("reservations", buffer)

    def bind(self, state: object) -> object:
        """Make a raw binding of a reservation."""
        self._failed(self._meet("bind"), "bind")
        assert isinstance(state, Lent)
        if not state.is_out:
            self._violation("a reservation was bound after it was given back")
        return self._lend("bindings", state.buffer)

    def release_binding(self, lent: object) -> None:
        """Take a reservation or a binding back."""
        assert isinstance(lent, Lent)
        fault = self._meet("release")
        if self._queue.uses(lent):
            self._violation(f"one of the {lent.kind} came back while work may use it")
        self._take_back(lent)
        self._failed(fault, "release")

    # -- work --------------------------------------------------------------------------

    def supports(self, op: Op, dtypes: Sequence[Any]) -> bool:
        """Whether the row has a kernel here."""
        fault = self._meet("supports")
        return fault is None and has_host_kernel(op)

    def prepare(self, call: Call) -> object:
        """The kernel of one application."""
        self._failed(self._meet("compile"), "compile")
        return host_kernel(call, self.name)

    def prepare_sum(self, call: Call) -> object:
        """The kernel that adds an application's result to its only output."""
        self._failed(self._meet("compile"), "compile")
        return host_sum(call, self.name)

    def prepare_copy(self, aval: Aval) -> object:
        """The kernel that copies elements."""
        self._failed(self._meet("compile"), "compile")
        return host_kernel(infer_call(OPS["accumulate"], (aval,), (), self), self.name)

    def enqueue(self, launch: Launch) -> object:
        """Take a launch; it runs when its event is told to complete.

        A told failure proves that nothing was enqueued. A told exception comes after
        the launch was taken, which is what a crash inside a driver looks like.
        """
        fault = self._faults.take("enqueue")
        if isinstance(fault, Hang):
            fault.wait()
        if isinstance(fault, Fails):
            raise NotEnqueuedError(
                operation="enqueue",
                found=f"`{self.name}` was told to refuse the launch",
            )
        event = self._queue.take(launch)
        for buffer in event._buffers():
            if buffer._mappings or not buffer.is_live:
                self._violation(f"{buffer} was launched while mapped or freed")
        if isinstance(fault, Raises):
            raise fault.error
        self._count("events", 1)
        return event

    def await_event(self, event: object, deadline: float) -> Proof:
        """Wait until the event was told how to end."""
        assert isinstance(event, FakeEvent)
        fault = self._faults.take("event")
        if isinstance(fault, Raises):
            raise fault.error
        if isinstance(fault, Hang) and not fault.wait(deadline):
            return "unproven"
        if isinstance(fault, Fails):
            event.fail()
        elif self.auto:
            event.complete()
        self._queue.wait(lambda: event.state != "pending", deadline)
        return _proof(event.state)

    def failure(self, event: object) -> BaseException | None:
        """What the event was told, or what its kernel raised."""
        assert isinstance(event, FakeEvent)
        return event.cause

    def synchronise(self, deadline: float) -> Proof:
        """Wait until nothing is pending; a told failure answers that nobody knows."""
        fault = self._faults.take("synchronise")
        if isinstance(fault, Raises):
            raise fault.error
        if isinstance(fault, Hang) and not fault.wait(deadline):
            return "unproven"
        if isinstance(fault, Fails):
            return "unproven"
        if self.auto:
            self.complete()
        self._queue.wait(lambda: not self.pending, deadline)
        return "done" if self._queue.is_drained() else "unproven"

    def release_event(self, event: object) -> None:
        """Take an event back."""
        assert isinstance(event, FakeEvent)
        fault = self._meet("release")
        if event.state == "pending":
            self._violation("an event came back before it ended")
        self._take_back(event._lent)
        self._failed(fault, "release")

    # -- inside ------------------------------------------------------------------------

    def _meet(self, step: str) -> Fails | None:
        """Count a call and let its fault happen; a failure is left to the caller."""
        fault: Fault | None = self._faults.take(step)
        if isinstance(fault, Hang):
            fault.wait()
        if isinstance(fault, Raises):
            raise fault.error
        return fault if isinstance(fault, Fails) else None

    def _failed(self, fault: Fails | None, step: str) -> None:
        if fault is not None:
            raise FakeFailureError(f"`{step}` was told to fail")

    def _lend(self, kind: str, buffer: FakeBuffer | None) -> Lent:
        self._count(kind, 1)
        return Lent(kind, buffer)

    def _take_back(self, lent: Lent) -> None:
        if not lent.is_out:
            self._violation(f"one of the {lent.kind} was given back twice")
            return
        lent.is_out = False
        self._count(lent.kind, -1)

    def _count(self, kind: str, change: int) -> None:
        with self._lock:
            self.out[kind] += change

    def _violation(self, what: str) -> None:
        self.violations.append(what)

    def _wait_for(self, buffer: FakeBuffer) -> None:
        """A host access waits for every event that may touch the buffer."""
        deadline = time.monotonic() + self.patience
        for event in self._queue.touches(buffer):
            if self.auto:
                event.complete()
            ended = event.state != "lost" and self._queue.wait(
                lambda event=event: event.state in ("done", "failed", "lost"),  # type: ignore[misc]
                deadline,
            )
            if not ended or event.state == "lost":
                raise TimeoutError(f"work on {buffer} has not ended")


def _proof(state: EventState) -> Proof:
    return state if state == "done" or state == "failed" else "unproven"
