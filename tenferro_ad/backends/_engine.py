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
from collections.abc import Callable
from typing import Final, final

from ..errors import EngineLostError, ForkedProcessError, InternalError
from ..storage import RetirementRecord
from ._backend import BoundLaunch, Endpoint, enqueue, proof_of
from ._crossing import Condition, Job, Retiring, Run, contain, retained
from ._waiting import Latch, start

DEADLINE: Final = 600.0
"""Seconds without proof after which completion counts as unproven; long on purpose."""

Runs = queue.SimpleQueue[Run | None]


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
        self._condition = Condition(deadline)
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
        self._jobs.put(Run(job, self.endpoint, self._condition))

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
            run = Run(owner, self.endpoint, self._condition)
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
    loop: Callable[[Runs, Runs, Condition], None],
    jobs: Runs,
    drain: Runs,
    condition: Condition,
    ended: Latch,
) -> None:
    try:
        loop(jobs, drain, condition)
    finally:
        ended.open()


# ---- worker


def _work(jobs: Runs, drain: Runs, condition: Condition) -> None:
    while (run := jobs.get()) is not None:
        if condition.is_stuck:  # this thread came back too late
            _refuse(run)
            continue
        drain.put(run)
        run.cross()
        _settle(run)
        del run  # the last job's values must not live until the next one
    (jobs if condition.is_stuck else drain).put(None)  # the reaper ends too


def _settle(run: Run) -> None:
    if not run.take():
        return  # the reaper gave up on it
    run.crossing = None
    if not run.records:
        cause = run.failure or InternalError(
            operation="submit", invariant="a job has a launch"
        )
        run.job.reject(cause)
    run.entered.open()


def _refuse(run: Run) -> None:
    if run.take():
        run.job.reject(EngineLostError(operation="submit", engine=run.endpoint.name))


# ---- reaper


def _reap(jobs: Runs, drain: Runs, condition: Condition) -> None:
    while (run := drain.get()) is not None:
        if not _comes_back(run, condition) and _taken(run, condition):
            _abandon(run)
            del run
            break
        else:
            run.entered.wait()
            if run.records:
                _prove(run, condition)
        del run
    else:
        return
    while not drain.empty():  # eager work that was admitted meanwhile
        run = drain.get()
        if run is not None:
            _prove(run, condition)
        del run
    while (run := jobs.get()) is not None:  # until closed, in place of the worker
        _refuse(run)
        del run
    jobs.put(None)  # the worker, should it come back, ends too


def _comes_back(run: Run, condition: Condition) -> bool:
    """Wait for the worker; it is not stuck as long as it launches, or waits for proof
    and not for longer than it may."""
    launches = 0
    while not run.entered.wait(condition.deadline):
        is_waiting = time.monotonic() < run.patience + condition.deadline
        if run.launches == launches and not is_waiting:
            return False
        launches = run.launches
    return True


def _taken(run: Run, condition: Condition) -> bool:
    """Decide the end of a run that does not come back; the engine is lost with it."""
    with condition.gate:
        condition.is_stuck = run.take()
        return condition.is_stuck


def _prove(run: Run, condition: Condition) -> None:
    endpoint = run.endpoint
    deadline = time.monotonic() + condition.deadline
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
        condition.proved = time.monotonic()
        deadline = condition.proved + condition.deadline
        trouble = record._release()
        is_failed = is_failed or state == "failed" or bool(trouble)
        failure = failure or cause or next(iter(trouble), None)
    del records
    record = None  # type: ignore[assignment]
    if unproven:
        keys = retained(unproven)
        cause = doubt or failure
        run.job.lose(None if cause is None else contain(cause), keys)
        return
    if is_failed and failure is None:
        failure = RuntimeError("the provider reported a failure without a cause")
    _publish(run.job, None if failure is None else contain(failure))


def _abandon(run: Run) -> None:
    """The worker did not come back from the endpoint: nobody can say what runs."""
    endpoint = run.endpoint
    bound = run.crossing
    last = None if bound is None else bound.record
    records = [*run.records, *(() if last is None else (last,))]
    keys = retained(records)
    cause = EngineLostError(
        operation="submit",
        engine=endpoint.name,
        found=f"a call to `{endpoint.name}` did not return within the deadline",
    )
    run.job.lose(cause, keys)


def _publish(job: Retiring, cause: BaseException | None) -> None:
    try:
        job.retire(cause)
    except BaseException as error:  # an outcome is always published
        job.retire(contain(error))
