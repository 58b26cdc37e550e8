"""The memory and the in-order queue of the fake device.

Events end in order and only when told. A launch holds its bindings, so the queue knows
which buffers unfinished work may touch; the provider asks it before it lets anything be
freed, mapped or launched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Literal, final

import numpy as np

from ._backend import Launch
from ._faults import FakeFailureError
from ._kernels import HostKernel, host_operands
from ._program_kernel import parts
from ._quiet import loud, quiet
from ._waiting import Changes

FREED: Final = 0xDB
"""Every byte of a deallocated buffer, so that a late reader sees nonsense."""

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
EventState = Literal["pending", "done", "failed", "lost"]


@final
class FakeBuffer:
    """Device memory: shape and size are known, its bytes are not the host's."""

    __slots__ = (
        "_bytes",
        "_mappings",
        "dtype",
        "is_live",
        "nbytes",
        "shape",
        "user",
        "writer",
    )

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        self.is_live = True
        self._bytes: Bytes = np.full(self.nbytes, FREED, np.uint8)
        self._mappings = 0
        self.user: Any = None
        self.writer: Any = None

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides, in C order."""
        strides, step = [], self.dtype.itemsize
        for extent in reversed(self.shape):
            strides.append(step)
            step *= max(extent, 1)
        return tuple(reversed(strides))

    def __array__(self, *args: object, **kwargs: object) -> Any:
        raise TypeError("a `FakeBuffer` is device memory: map or download the value")

    def __repr__(self) -> str:
        state = "" if self.is_live else ", freed"
        return f"FakeBuffer({self.dtype}{list(self.shape)}{state})"


@final
class Lent:
    """A reservation, a binding or an event as it is handed out: it comes back once."""

    __slots__ = ("buffer", "is_out", "kind")

    def __init__(self, kind: str, buffer: FakeBuffer | None) -> None:
        self.kind = kind
        self.buffer = buffer
        self.is_out = True


@final
class FakeEvent:
    """One enqueued launch; it ends when it is told to, after those before it."""

    __slots__ = ("_launch", "_lent", "_queue", "cause", "state")

    def __init__(self, queue: FakeQueue, launch: Launch) -> None:
        self._queue = queue
        self._launch: Launch | None = launch
        self._lent = Lent("events", None)
        self.state: EventState = "pending"
        self.cause: BaseException | None = None

    def complete(self) -> None:
        """Run everything up to here, in order."""
        self._queue.finish(self, "done", None)

    def fail(self, cause: BaseException | None = None) -> None:
        """End without running; what was enqueued later fails too, as on real queues."""
        self._queue.finish(self, "failed", cause or FakeFailureError("told to fail"))

    def lose(self) -> None:
        """Answer, whenever asked, that nobody knows whether this has ended."""
        self._queue.finish(self, "lost", None)

    def _bindings(self) -> list[Lent]:
        launch = self._launch
        if launch is None:
            return []
        found = [argument.binding for argument in (*launch.reads, *launch.writes)]
        return [lent for lent in found if isinstance(lent, Lent)]

    def _buffers(self) -> list[FakeBuffer]:
        return [lent.buffer for lent in self._bindings() if lent.buffer is not None]

    def _run(self) -> None:
        launch = self._launch
        if self.state != "pending" or launch is None:
            return
        before = quiet()
        try:
            for part in parts(launch):
                kernel: HostKernel = part.kernel  # type: ignore[assignment]
                kernel(*host_operands(part, _memory))
        except BaseException as error:  # the device's failure, not the caller's
            self._end("failed", error)
        else:
            self._end("done", None)
        finally:
            loud(before)

    def _end(self, state: EventState, cause: BaseException | None) -> None:
        if self.state == "pending":
            self.state = state
            self.cause = cause
            self._launch = None

    def __repr__(self) -> str:
        return f"FakeEvent({self.state})"


def _memory(binding: object) -> Bytes:
    assert isinstance(binding, Lent)
    assert binding.buffer is not None
    return binding.buffer._bytes


@final
class FakeQueue:
    """Launches in the order in which they were taken; lost ones stay for good."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._changes = Changes()
        self._events: list[FakeEvent] = []

    @property
    def pending(self) -> tuple[FakeEvent, ...]:
        """Events that have not ended, oldest first."""
        with self._lock:
            return tuple(e for e in self._events if e.state == "pending")

    def take(self, launch: Launch) -> FakeEvent:
        """Append a launch."""
        event = FakeEvent(self, launch)
        with self._lock:
            self._events.append(event)
        self._changes.tell()
        return event

    def touches(self, buffer: FakeBuffer) -> list[FakeEvent]:
        """Events whose work may touch the buffer."""
        with self._lock:
            return [e for e in self._events if buffer in e._buffers()]

    def uses(self, lent: object) -> bool:
        """Whether unfinished work holds the binding."""
        with self._lock:
            return any(lent in event._bindings() for event in self._events)

    def wait(self, is_true: Callable[[], bool], deadline: float) -> bool:
        """Wait until something holds, or until `deadline`; whether it holds."""

        def look() -> bool:
            with self._lock:
                return is_true()

        return self._changes.wait_for(look, deadline)

    def is_drained(self) -> bool:
        """Whether everything that was taken has ended."""
        with self._lock:
            return not self._events

    def finish(
        self, event: FakeEvent, state: EventState, cause: BaseException | None
    ) -> None:
        """End an event, those before it if it completes, those after it if it fails."""
        with self._lock:
            if event.state != "pending" or event not in self._events:
                return
            at = self._events.index(event)
            if state == "done":
                for earlier in self._events[: at + 1]:
                    earlier._run()
            elif state == "failed":
                for later in self._events[at:]:
                    later._end("failed", cause)
            else:
                event.state = "lost"
            self._events = [e for e in self._events if e.state in ("pending", "lost")]
        self._changes.tell()
