"""Faults that a fake provider can be told to have: each enters at one of its steps.

A step fails (the documented way), raises (any exception, proving nothing) or hangs
until it is let go. Faults are used up in the order in which they were given.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from dataclasses import dataclass
from typing import Final, Literal, final

from ..errors import InvalidArgumentError
from ._waiting import Latch

Step = Literal[
    "supports",
    "compile",
    "allocate",
    "prepare",
    "map",
    "unmap",
    "bind",
    "enqueue",
    "event",
    "synchronise",
    "transfer",
    "release",
    "deallocate",
]
STEPS: Final[tuple[str, ...]] = Step.__args__  # type: ignore[attr-defined]


@final
class FakeFailureError(RuntimeError):
    """A step failed because it was told to."""


@final
@dataclass(frozen=True, slots=True)
class Fails:
    """The step fails in its documented way."""


@final
@dataclass(frozen=True, slots=True)
class Raises:
    """The step raises this, at the moment that proves least."""

    error: BaseException


@final
class Hang:
    """The step does not come back until `let_go`."""

    __slots__ = ("_free", "reached")

    def __init__(self) -> None:
        self._free = Latch()
        self.reached = Latch()

    def let_go(self) -> None:
        """Let the step go on as if nothing had been."""
        self._free.open()

    def wait(self, deadline: float | None = None) -> bool:
        """Hang; whether it was let go before `deadline`."""
        self.reached.open()
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        return self._free.wait(left)


Fault = Fails | Raises | Hang


@final
class Faults:
    """What is still to go wrong, and how often each step was called."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._due: defaultdict[str, deque[Fault | None]] = defaultdict(deque)
        self._lock = threading.RLock()  # finalisers call steps, at any time

    def add(self, step: str, fault: Fault, after: int, times: int) -> None:
        """Queue a fault for `step`, behind `after` calls that go well."""
        if step not in STEPS:
            raise InvalidArgumentError(
                operation="fault",
                argument="step",
                found=f"`{step}`",
                fix=f"use one of {', '.join(STEPS)}",
            )
        with self._lock:
            due = self._due[step]
            due.extend([None] * after)
            due.extend([fault] * times)

    def take(self, step: str) -> Fault | None:
        """Count one call of `step` and return what is to happen to it."""
        with self._lock:
            self.counts[step] += 1
            due = self._due[step]
            return due.popleft() if due else None

    @property
    def left(self) -> dict[str, int]:
        """Faults that no call has met yet, by step."""
        with self._lock:
            return {
                step: found
                for step, due in self._due.items()
                if (found := sum(fault is not None for fault in due))
            }
