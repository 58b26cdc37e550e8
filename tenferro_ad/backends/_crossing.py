"""One job's way across the admission boundary, and who decides its end.

A job hands its launches over one at a time, in order: the first one admits it. A job
that has to know values in between (a loop whose test is on the device) waits for them
here, and what it held is released meanwhile, so that any number of launches keeps the
records of the last ones only.
"""

from __future__ import annotations

import atexit
import math
import os
import threading
import time
import traceback
from typing import Any, Final, Protocol, final

from .._ownership import MoveOnly
from ..errors import AccessError
from ..storage import AllocationSpan, RetirementRecord, retain_unproven
from ._backend import (
    BoundLaunch,
    Endpoint,
    PreparedLaunch,
    Proof,
    bind_launch,
    enqueue,
    proof_of,
)
from ._waiting import Latch

MOST_IN_FLIGHT: Final = 1024
"""Launches in flight at most, of a job or eager; the next one waits, so what they hold
gets released."""


class Retiring(Protocol):
    """Who hears how admitted work ended; one of the two, once."""

    def retire(self, cause: BaseException | None) -> None:
        """The end is proven and every record is released: publish the outcome."""
        ...

    def lose(
        self, cause: BaseException | None, keys: tuple[AllocationSpan, ...]
    ) -> None:
        """The end is not proven; the records are kept for good."""
        ...


class Boundary(Protocol):
    """What a job's launches cross, in the worker's thread."""

    def launch(self, prepared: PreparedLaunch) -> None:
        """Use up a prepared launch: bind it and enqueue it."""
        ...

    def wait(self) -> None:
        """Wait until what was launched has ended."""
        ...


class Job(Retiring, Protocol):
    """What an engine runs. Each call is made once, by one thread at a time."""

    def cross(self, boundary: Boundary) -> None:
        """Derive the launches and hand them over in order; owns what they reach."""
        ...

    def admitted(self) -> None:
        """The boundary was crossed: nothing is rejected any more."""
        ...

    def reject(self, cause: BaseException) -> None:
        """Nothing was enqueued: hand the exact inputs back."""
        ...


class OverError(BaseException):
    """Nothing of the job may follow. Not an `Exception`: a job lets it pass."""


@final
class Condition:
    """What worker, reaper and engine know together.

    Attributes:
        deadline: seconds without any proof after which there is none.
        proved: when the reaper last had proof of a launch; what was admitted behind it
            had to wait until then.
        gate: held while an eager operation is admitted, while the engine ends, and
            where worker and reaper might decide one run.
        calls: held by the worker while it may call the provider.
    """

    __slots__ = ("calls", "deadline", "gate", "is_stuck", "process", "proved")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.proved = -math.inf
        self.gate = threading.RLock()
        self.calls = threading.Lock()
        self.is_stuck = False
        self.process = os.getpid()

    def rest(self) -> None:
        """Let go of the provider for good, if the process ends."""
        if _OVER.is_open:
            self.calls.release()
            Latch().wait()


_OVER: Final = Latch()
_BUSY: Final[set[Condition]] = set()  # whose workers run a job
_LAST_CALL: Final = 5.0  # seconds that the end of the process waits for a call


@atexit.register
def _end_calls() -> None:
    """Let no worker be inside its provider when the interpreter ends: it takes threads
    away where they stand, which libraries in C++ answer by ending the process."""
    _OVER.open()
    here, until = os.getpid(), time.monotonic() + _LAST_CALL
    for condition in list(_BUSY):
        if condition.process == here and not condition.is_stuck:
            condition.calls.acquire(timeout=max(0.0, until - time.monotonic()))


@final
class Run:
    """One job on its way: who decides its end, and what it may have running.

    It brings its endpoint along: an idle thread must keep no device alive.

    Attributes:
        records: of launches whose end is not known; never empty after the first one,
            because the last record stands for the memory of all.
        launches: how many crossed so far.
        patience: until when `wait` waits for proof.
        entered: open when the worker is done with it.
    """

    __slots__ = (
        "_condition",
        "_turn",
        "crossing",
        "endpoint",
        "entered",
        "failure",
        "job",
        "launches",
        "patience",
        "records",
    )

    def __init__(self, job: Any, endpoint: Endpoint, condition: Condition) -> None:
        self.job = job
        self.endpoint = endpoint
        self.records: list[RetirementRecord] = []
        self.launches = 0
        self.patience = -math.inf
        self.crossing: BoundLaunch | None = None
        self.failure: BaseException | None = None
        self.entered = Latch()
        self._turn: list[None] = [None]
        self._condition = condition

    @property
    def is_open(self) -> bool:
        """Whether nobody has decided the run's end yet."""
        return bool(self._turn)

    def take(self) -> bool:
        """Decide the run's end; worker or reaper gets True, and only the first."""
        try:
            self._turn.pop()
        except IndexError:
            return False
        return True

    def cross(self) -> None:
        """Let the job hand its launches over; what it raises is the run's failure."""
        with self._condition.calls:
            _BUSY.add(self._condition)
            self._condition.rest()
            try:
                self.job.cross(self)
            except OverError:
                pass
            except BaseException as error:  # the job, or binding, or a refusal
                self.failure = _closed(error)
            _BUSY.discard(self._condition)

    def launch(self, prepared: PreparedLaunch) -> None:
        """Use up a prepared launch: bind it and cross the boundary.

        Raises:
            OverError: the run's end is decided, or the endpoint raised without proof.
            BindError, NotEnqueuedError: nothing of this launch was enqueued.
        """
        self._condition.rest()
        if len(self.records) >= MOST_IN_FLIGHT:
            self.wait()
        bound = bind_launch(prepared)
        if not self.is_open:
            bound.close()
            raise OverError
        self.crossing = bound
        record = enqueue(bound)
        self.records.append(record)
        self.launches += 1
        self.crossing = None
        if not self.is_open:
            retained([record])
            raise OverError
        if self.launches == 1:
            self.job.admitted()
        if record.cause is not None:
            self.failure = contain(record.cause)
            raise OverError

    def wait(self) -> None:
        """Wait until what was launched has ended well, and release all but the last.

        Raises:
            OverError: it has not, or the run's end is decided.

        Cost: a synchronisation point.
        """
        began = time.monotonic()
        for record in self.records:
            self._condition.calls.release()
            try:
                state, cause = self._proof_of(record, began)
            finally:
                self._condition.calls.acquire()
            began = time.monotonic()
            if state != "done":
                cause = cause or RuntimeError("the provider gave no proof of success")
                self.failure = contain(cause)
                raise OverError
        with self._condition.gate:
            if not self.is_open:
                raise OverError
            ended, self.records = self.records[:-1], self.records[-1:]
        trouble = [error for record in ended for error in record._release()]
        if trouble:
            self.failure = contain(trouble[0])
            raise OverError

    def _proof_of(
        self, record: RetirementRecord, began: float
    ) -> tuple[Proof, BaseException | None]:
        """Proof, for which there is patience from when the work before it is over."""
        while True:
            proved = self._condition.proved
            self.patience = max(began, proved) + self._condition.deadline
            state, cause = proof_of(self.endpoint, record, self.patience)
            is_late = state == "unproven" and cause is None
            if not is_late or self._condition.proved == proved:
                return state, cause


def contain(error: BaseException) -> BaseException:
    """Keep what an exception says, as notes, and drop the frames that it keeps alive.

    Frames hold owners and borrows, which must be free when an outcome is published.
    """
    seen: set[int] = set()
    chain: list[BaseException | None] = [error]
    while chain:
        found = chain.pop()
        if found is None or id(found) in seen:
            continue
        seen.add(id(found))
        if found.__traceback__ is not None:
            where = "".join(traceback.format_tb(found.__traceback__, limit=-3))
            found.add_note(f"Raised while the work ran:\n{where.rstrip()}")
            found.__traceback__ = None
        if isinstance(found, AccessError):
            found.recovered = None
        chain += [found.__cause__, found.__context__]
    return error


def _closed(error: BaseException) -> BaseException:
    """End the access that a failed step handed back, and keep its message."""
    if isinstance(error, AccessError):
        held: Any = error.recovered
        if isinstance(held, MoveOnly) and held._moved_by is None:
            held.close()  # type: ignore[attr-defined]
    return contain(error)


def retained(records: list[RetirementRecord]) -> tuple[AllocationSpan, ...]:
    """Keep for good what the records hold; the spans that this concerns."""
    kept = [record for record in records if record._moved_by is None]
    spans = (span for record in kept for span in retain_unproven(record))
    return tuple(dict.fromkeys(spans))
