"""One worker and one reaper for an endpoint: how detached work runs (contract G3, G5).

The worker derives a job's launches, binds them and crosses the admission boundary; the
reaper waits for proof, releases each record once, and only then lets the job publish
its outcome. Both belong to the engine and not to whoever submitted, so a dropped handle
changes nothing. An exception of any kind ends at these two loops: before a possible
enqueue it rejects the job with its exact inputs, after it the job drains.

The reaper watches a job from its first provider call on. A worker that does not come
back in time costs its engine, which is then lost: that job ends unproven, and the jobs
behind it, of which nothing was enqueued, are rejected.

Eager operations cross the boundary in their caller's thread (`launch`), because they
have one launch each and their caller waits for nothing; the same reaper retires them.
"""

from __future__ import annotations

import os
import queue
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol, final

from .._ownership import MoveOnly
from ..errors import AccessError, EngineLostError, ForkedProcessError, InternalError
from ..storage import AllocationSpan, RetirementRecord, retain_unproven
from ._backend import (
    BoundLaunch,
    Endpoint,
    PreparedLaunch,
    bind_launch,
    enqueue,
    proof_of,
)
from ._waiting import Latch, start

DEADLINE: Final = 600.0
"""Seconds without proof after which completion counts as unproven; long on purpose."""


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


class Job(Retiring, Protocol):
    """What an engine runs. Each call is made once, by one thread at a time."""

    def launches(self) -> Iterator[PreparedLaunch]:
        """Derive the launches, one at a time, in order; owns what they reach."""
        ...

    def admitted(self) -> None:
        """The boundary was crossed: nothing is rejected any more."""
        ...

    def reject(self, cause: BaseException) -> None:
        """Nothing was enqueued: hand the exact inputs back."""
        ...


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


@final
class _Run:
    """One job on its way: who decides its end, and what it may have running.

    It brings its endpoint along: an idle thread must keep no device alive.
    """

    __slots__ = (
        "_turn",
        "crossing",
        "endpoint",
        "entered",
        "failure",
        "job",
        "records",
    )

    def __init__(self, job: Any, endpoint: Endpoint) -> None:
        self.job = job
        self.endpoint = endpoint
        self.records: list[RetirementRecord] = []
        self.crossing: BoundLaunch | None = None
        self.failure: BaseException | None = None
        self.entered = Latch()
        self._turn: list[None] = [None]

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


Runs = queue.SimpleQueue[_Run | None]


@final
class _Condition:
    """What worker, reaper and engine know together.

    Attributes:
        gate: held while an eager operation is admitted, and while the engine ends.
    """

    __slots__ = ("deadline", "gate", "is_stuck")

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self.gate = threading.RLock()
        self.is_stuck = False


@final
class Engine:
    """Runs detached work on one endpoint, in order.

    Args:
        id: the caller's name for it, in texts; the endpoint's name if None. Nothing is
            found by it: an engine is the object that its maker holds.

    Attributes:
        endpoint: Where the work runs.

    Cost: two threads, started by the first job and ended by `close` or with the engine.
    """

    def __init__(
        self, endpoint: Endpoint, deadline: float = DEADLINE, *, id: str | None = None
    ) -> None:
        self.endpoint = endpoint
        self.id = endpoint.name if id is None else id
        self._condition = _Condition(deadline)
        self._jobs: Runs = queue.SimpleQueue()
        self._drain: Runs = queue.SimpleQueue()
        self._threads: tuple[threading.Thread, ...] = ()
        self._is_running = False
        self._ended = (Latch(), Latch())
        self._process = os.getpid()
        self._is_closed = False

    @property
    def deadline(self) -> float:
        """Seconds after which missing proof counts as unproven."""
        return self._condition.deadline

    @property
    def is_lost(self) -> bool:
        """Whether the engine accepts nothing more."""
        return self._is_closed or self._condition.is_stuck or self.endpoint.is_lost

    def post(self, job: Job) -> None:
        """Hand a job to the worker; it owns its inputs from here on.

        Raises:
            EngineLostError: The engine is closed, stuck or lost; nothing happened.
            ForkedProcessError: This process was forked; nothing happened.

        Cost: two thread-safe queue operations; no wait, no provider call.
        """
        self._require("submit")
        with self._condition.gate:
            self._start()
        self._jobs.put(_Run(job, self.endpoint))

    def launch(self, bound: BoundLaunch, owner: Retiring) -> BaseException | None:
        """Use up a bound launch: enqueue it in this thread; the reaper retires it.

        Whatever the endpoint raises without proof belongs to the work's outcome; an
        interrupt is returned as well, for the caller to go on with.

        Raises:
            NotEnqueuedError: The endpoint proves that nothing was enqueued; the launch
                is unchanged.
            EngineLostError: The engine is closed, stuck or lost; likewise.
            ForkedProcessError: This process was forked; likewise.

        Cost: one provider call and one thread-safe queue operation; no wait.
        """
        self._require("launch")  # first: a child may have inherited a closed gate
        with self._condition.gate:
            self._require("launch")
            self._start()
            run = _Run(owner, self.endpoint)
            run.take()
            run.entered.open()
            record = enqueue(bound)
            run.records.append(record)
            if record.cause is not None:
                run.failure = contain(record.cause)
            self._drain.put(run)
            return None if isinstance(record.cause, Exception) else record.cause

    def _require(self, operation: str) -> None:
        if os.getpid() != self._process:
            raise ForkedProcessError(operation=operation)
        if self.is_lost:
            raise EngineLostError(operation=operation, engine=self.id)

    def _start(self) -> None:
        if self._is_running:
            return
        if not self._threads:
            # They know the queues and not the engine, so that dropping it ends them.
            self._threads = tuple(
                threading.Thread(
                    target=_looped,
                    args=(loop, self._jobs, self._drain, self._condition, ended),
                    name=f"{self.endpoint.name} {loop.__name__[1:]}",
                    daemon=True,
                )
                for loop, ended in zip((_work, _reap), self._ended, strict=True)
            )
        start(self._threads)
        self._is_running = True

    def close(self, timeout: float | None = None) -> bool:
        """Accept nothing more and wait until everything posted has ended.

        Returns:
            Whether it all ended within `timeout` seconds.
        """
        with self._condition.gate:
            if self._threads:
                self._start()  # an interrupt may have broken it off
            self._end()
        deadline = None if timeout is None else time.monotonic() + timeout
        for ended in self._ended if self._threads else ():
            ended.wait(None if deadline is None else deadline - time.monotonic())
        return not self._threads or all(ended.is_open for ended in self._ended)

    def _end(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._jobs.put(None)

    def __del__(self) -> None:
        if hasattr(self, "_is_closed"):
            self._end()

    def __repr__(self) -> str:
        return f"Engine({self.id!r} on {self.endpoint.name!r})"


def _looped(
    loop: Callable[[Runs, Runs, _Condition], None],
    jobs: Runs,
    drain: Runs,
    condition: _Condition,
    ended: Latch,
) -> None:
    try:
        loop(jobs, drain, condition)
    finally:
        ended.open()


# ---- worker


def _work(jobs: Runs, drain: Runs, condition: _Condition) -> None:
    while (run := jobs.get()) is not None:
        if condition.is_stuck:  # this thread came back too late
            _refuse(run)
            continue
        drain.put(run)
        try:
            _cross(run)
        except BaseException as error:  # launches() raised, or binding, or a refusal
            run.failure = _closed(error)
        _settle(run)
        del run  # the last job's values must not live until the next one
    (jobs if condition.is_stuck else drain).put(None)  # the reaper ends too


def _cross(run: _Run) -> None:
    for prepared in run.job.launches():
        bound = bind_launch(prepared)
        del prepared
        if not run.is_open:
            bound.close()
            return
        run.crossing = bound
        record = enqueue(bound)
        run.records.append(record)
        run.crossing = None
        if not run.is_open:
            _retain([record])
            return
        cause = record.cause
        del bound, record
        if len(run.records) == 1:
            run.job.admitted()
        if cause is not None:
            run.failure = contain(cause)
            return


def _closed(error: BaseException) -> BaseException:
    """End the access that a failed step handed back, and keep its message."""
    if isinstance(error, AccessError):
        held: Any = error.recovered
        if isinstance(held, MoveOnly) and held._moved_by is None:
            held.close()  # type: ignore[attr-defined]
    return contain(error)


def _settle(run: _Run) -> None:
    if not run.take():
        return  # the reaper gave up on it
    run.crossing = None
    if not run.records:
        cause = run.failure or InternalError(
            operation="submit", invariant="a job has a launch"
        )
        run.job.reject(cause)
    run.entered.open()


def _refuse(run: _Run) -> None:
    if run.take():
        run.job.reject(EngineLostError(operation="submit", engine=run.endpoint.name))


# ---- reaper


def _reap(jobs: Runs, drain: Runs, condition: _Condition) -> None:
    while (run := drain.get()) is not None:
        if not run.entered.wait(condition.deadline) and run.take():
            with condition.gate:
                condition.is_stuck = True
            _abandon(run)
            del run
            break
        else:
            run.entered.wait()
            if run.records:
                _prove(run, condition.deadline)
        del run
    else:
        return
    while not drain.empty():  # eager work that was admitted meanwhile
        run = drain.get()
        if run is not None:
            _prove(run, condition.deadline)
        del run
    while (run := jobs.get()) is not None:  # until closed, in place of the worker
        _refuse(run)
        del run
    jobs.put(None)  # the worker, should it come back, ends too


def _prove(run: _Run, patience: float) -> None:
    endpoint = run.endpoint
    deadline = time.monotonic() + patience
    failure = run.failure
    is_failed = failure is not None
    doubt: BaseException | None = None
    unproven: list[RetirementRecord] = []
    records, run.records = run.records, []
    for record in records:
        state, cause = proof_of(endpoint, record, deadline)
        if state == "unproven":
            unproven.append(record)
            doubt = doubt or cause
            continue
        trouble = record._release()
        is_failed = is_failed or state == "failed" or bool(trouble)
        failure = failure or cause or next(iter(trouble), None)
    del records
    record = None  # type: ignore[assignment]
    if unproven:
        keys = _retain(unproven)
        cause = doubt or failure
        run.job.lose(None if cause is None else contain(cause), keys)
        return
    if is_failed and failure is None:
        failure = RuntimeError("the provider reported a failure without a cause")
    _publish(run.job, None if failure is None else contain(failure))


def _abandon(run: _Run) -> None:
    """The worker did not come back from the endpoint: nobody can say what runs."""
    endpoint = run.endpoint
    bound = run.crossing
    last = None if bound is None else bound.record
    records = [*run.records, *(() if last is None else (last,))]
    keys = _retain(records)
    cause = EngineLostError(
        operation="submit",
        engine=endpoint.name,
        found=f"a call to `{endpoint.name}` did not return within the deadline",
    )
    run.job.lose(cause, keys)


def _retain(records: list[RetirementRecord]) -> tuple[AllocationSpan, ...]:
    kept = [record for record in records if record._moved_by is None]
    spans = (span for record in kept for span in retain_unproven(record))
    return tuple(dict.fromkeys(spans))


def _publish(job: Retiring, cause: BaseException | None) -> None:
    try:
        job.retire(cause)
    except BaseException as error:  # an outcome is always published
        job.retire(contain(error))
