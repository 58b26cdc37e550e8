"""Waiting that survives interrupts: an exception in a waiter leaves nothing held.

`threading.Event` and `Condition` are Python code around an inner lock, and an interrupt
between two of their lines can leave that lock held for good, so that everybody else
hangs. Here no waiter holds anything that others need: each waits on a lock of its own,
in one C call, and who sets only releases. Locks that `with` takes directly
(`threading.Lock`, `RLock`) are C objects and safe. A forked child has none of the
threads that open what its parent waits for, so there waiting is refused.
"""

from __future__ import annotations

import _thread
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from ..errors import ForkedProcessError

_STARTING: Final = threading.Lock()


@final
class Latch:
    """Open or not; once open it stays so. Thread-safe.

    Cost: waiting on an open latch takes one look; otherwise one lock for each waiter.
    """

    __slots__ = ("_process", "_waiters", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._process = os.getpid()
        self._waiters: list[Any] = []

    def open(self) -> None:
        """Open it and wake everybody. Setting it again changes nothing."""
        self.is_open = True
        waiters = self._waiters
        while waiters:
            try:
                waiter = waiters.pop()
            except IndexError:
                return  # another thread woke it
            waiter.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is open, at most `timeout` seconds; whether it is.

        Raises:
            ForkedProcessError: whoever would open it is in the parent process.
        """
        if self.is_open:
            return True
        if os.getpid() != self._process:
            raise ForkedProcessError(operation="wait")
        if timeout is not None and timeout <= 0:
            return False
        mine = _thread.allocate_lock()
        mine.acquire()
        self._waiters.append(mine)
        # Who sets it after this look finds the waiter in the list.
        if not self.is_open:
            mine.acquire(True, _patience(timeout))
        try:
            self._waiters.remove(mine)  # polling must not pile waiters up
        except ValueError:
            pass  # it was woken
        return self.is_open


def _patience(timeout: float | None) -> float:
    """Seconds as locks take them: -1 is for ever, as is more than they can count."""
    if timeout is None or timeout >= threading.TIMEOUT_MAX:
        return -1
    return timeout


@final
class Gate:
    """Open or closed, again and again: for work that tests hold."""

    __slots__ = ("_latch",)

    def __init__(self) -> None:
        self._latch = Latch()
        self._latch.open()

    def close(self) -> None:
        """Let nobody through until `open`."""
        if self._latch.is_open:
            self._latch = Latch()

    def open(self) -> None:
        """Let everybody through."""
        self._latch.open()

    def wait(self) -> None:
        """Go through, once it is open."""
        self._latch.wait()


@final
class Changes:
    """Wakes those who wait for something to become true."""

    __slots__ = ("_latches",)

    def __init__(self) -> None:
        self._latches: list[Latch] = []

    def tell(self) -> None:
        """Let everybody look again."""
        latches = self._latches
        while latches:
            try:
                latch = latches.pop()
            except IndexError:
                return
            latch.open()

    def wait_for(self, is_true: Callable[[], bool], deadline: float) -> bool:
        """Wait until something holds, or until `deadline` (of `time.monotonic`)."""
        while True:
            latch = Latch()
            self._latches.append(latch)  # before the look: no change is missed
            found = is_true()
            left = deadline - time.monotonic()
            if not found and left > 0:
                latch.wait(left)
            try:
                self._latches.remove(latch)
            except ValueError:
                pass
            if found or left <= 0:
                return found


def start(threads: Sequence[threading.Thread]) -> None:
    """Start threads, each of them once, also where an interrupt broke off an earlier
    call: `Thread.start` waits on a condition, so it is called in a thread that gets no
    interrupts.

    Raises:
        RuntimeError: the system gives no more threads.
    """
    trouble: list[BaseException] = []
    done = Latch()

    def begin() -> None:
        try:
            with _STARTING:
                for thread in threads:
                    if thread.ident is None:
                        thread.start()
        except BaseException as error:
            trouble.append(error)
        done.open()

    _thread.start_new_thread(begin, ())
    done.wait()
    if trouble:
        raise trouble[0]


__all__ = ["Changes", "Gate", "Latch", "start"]
