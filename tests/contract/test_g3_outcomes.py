"""G3: how detached runs end, whatever goes wrong at whichever step."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.backends.fake import FakeFailureError
from tenferro_ad.errors import (
    AllocationLimitError,
    CompletionError,
    EngineLostError,
    ExecutionError,
    ForbiddenEventError,
    ForkedProcessError,
    InvalidArgumentError,
    NotEnqueuedError,
    NotUniqueError,
    OutcomePendingError,
    SubmitError,
    SubmitRejected,
    UseAfterMoveError,
)
from tenferro_ad.runtime import ExecutionBundle
from tenferro_ad.storage import AllocationSpan
from tests.contract.device_support import until, value_of
from tests.contract.g3_support import (
    PRODUCT,
    RUNS,
    CpuRun,
    FakeRun,
    Run,
    X,
    Y,
    product,
    rejected,
)

WRONG = [ZeroDivisionError("a bug"), KeyboardInterrupt("now"), SystemExit(3)]


@pytest.fixture(params=RUNS, ids=[run.name for run in RUNS])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Each runtime, whose work waits for `finish`."""
    made: Run = request.param()
    yield made
    made.close()


@pytest.fixture(params=RUNS, ids=[run.name for run in RUNS])
def impatient(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Each runtime, taking missing proof for no proof very soon."""
    made: Run = request.param(deadline=0.2)
    yield made
    made.close()


def failed(run: Run, handle: ta.ExecutionHandle) -> tuple[BaseException, Any]:
    """The cause and the inputs of a run that fails, once everything was let go."""
    run.finish()
    match handle.wait(30):
        case ta.RetiredFailed(cause=cause, inputs=inputs):
            assert type(cause) is ExecutionError
            assert cause.__cause__ is not None
            return cause.__cause__, inputs
        case other:
            raise AssertionError(other)


def works(run: Run, inputs: ta.ExecutionInputs) -> None:
    """The very same package runs well now."""
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    run.finish()
    assert value_of(handle.wait(30)).tolist() == PRODUCT.tolist()


def closing_over(run: Run, values: Any) -> Any:
    """The graph of `x -> x * w`; it alone holds `w`."""
    w = run.handle_of(values)
    return run.graph(lambda x: x * w, X)


# ---- lifecycle


@pytest.mark.clause("g3-lifecycle")
def test_a_run_goes_from_prepared_to_running_to_draining_to_an_end() -> None:
    run = FakeRun()
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    # Prepared: refused, and prepared again.
    run.fail("enqueue")
    assert isinstance(rejected(run, graph, inputs), NotEnqueuedError)
    assert run.records() == {"opened": 1, "undone": 1}
    # Admitted, running.
    handle = run.runtime.submit(graph, inputs)
    assert run.records() == {"opened": 2, "undone": 1, "pending": 1}
    # Draining: the work has ended, and not everything was given back.
    hang = run.fake.hang("release")
    run.finish()
    assert hang.reached.wait(30)
    assert run.records()["pending"] == 1
    assert not handle.is_done
    # Retired.
    hang.let_go()
    assert isinstance(handle.wait(30), ta.Completed)
    assert run.records() == {"opened": 2, "undone": 1, "released": 1}
    # And the two other ends.
    handle = run.submit(product, X, Y)
    run.fail("kernel", OSError("bad address"))
    assert isinstance(handle.wait(30), ta.RetiredFailed)
    handle = run.submit(product, X, Y)
    run.fake.pending[0].lose()
    assert isinstance(handle.wait(30), ta.CompletionUnproven)
    assert run.records() == {"opened": 4, "undone": 1, "released": 2, "unproven": 1}
    run.close()


@pytest.mark.clause("g3-admission-transfers")
def test_admission_empties_the_inputs_and_the_engine_owns_all_of_it() -> None:
    run = FakeRun()
    graph, inputs = closing_over(run, Y), run.inputs(X)
    handle = run.runtime.submit(graph, inputs)
    for use in ("into_parts", "bindings", "donated"):
        with pytest.raises(UseAfterMoveError, match="submit"):
            getattr(inputs, use)()
    with pytest.raises(UseAfterMoveError):
        run.runtime.submit(graph, inputs)
    # Input, constant and output: for each a root, a reservation and a binding.
    held = run.fake.outstanding
    assert held == {"buffers": 3, "reservations": 3, "bindings": 3, "events": 1}
    del inputs, graph, handle
    gc.collect()
    assert run.fake.outstanding == held  # nobody is left but worker and reaper
    run.finish()
    assert run.runtime.close(30)
    assert run.fake.outstanding == {}
    assert run.records() == {"opened": 1, "released": 1}
    run.close()


# ---- failure before the boundary


def before_the_boundary() -> Iterator[Any]:
    for step in ("compile", "allocate", "prepare", "bind", "enqueue"):
        yield pytest.param(step, None, id=f"{step} fails")
    for step in ("compile", "allocate", "prepare", "bind"):
        for error in WRONG:
            name = type(error).__name__
            yield pytest.param(step, error, id=f"{step} raises {name}")


@pytest.mark.clause("g3-rejected-shape", "g3-worker-exception")
@pytest.mark.parametrize(("step", "error"), list(before_the_boundary()))
def test_a_failure_before_the_boundary_is_a_rejection_with_the_exact_inputs(
    run: Run, step: str, error: BaseException | None
) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    live = BASE.live
    run.fail(step, error)
    with pytest.raises(SubmitRejected) as caught:
        run.runtime.submit(graph, inputs)
    cause, back = caught.value.into_parts()
    del caught
    assert back is inputs
    assert type(cause) is SubmitError
    if error is not None:
        root: BaseException | None = cause
        while root is not error:
            assert root is not None
            root = root.__cause__
        error.__traceback__ = error.__context__ = None
    del cause
    assert run.records() in ({}, {"opened": 1, "undone": 1})
    assert BASE.live == live  # what was allocated for the run is gone
    if isinstance(run, CpuRun):
        run.relax()
    works(run, inputs)


@pytest.mark.clause("g3-rejected-shape")
def test_a_limit_of_bytes_is_kept_before_anything_is_enqueued(run: Run) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    run.device.limit = 0
    found = rejected(run, graph, inputs)
    run.device.limit = None
    assert isinstance(found, AllocationLimitError)
    assert isinstance(found, MemoryError)
    assert run.records() == {}
    works(run, inputs)


@pytest.mark.clause("g3-rejected-shape")
def test_a_lost_engine_answers_with_a_rejection() -> None:
    run = FakeRun()
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    run.fake.is_lost = True
    assert isinstance(rejected(run, graph, inputs), EngineLostError)
    run.fake.is_lost = False
    works(run, inputs)
    run.close()


def test_a_forked_process_is_refused_with_the_exact_inputs() -> None:
    run = CpuRun()
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    works(run, run.inputs(X, Y))  # the threads exist in this process only
    child = os.fork()
    if child == 0:
        code = 1
        try:
            run.runtime.submit(graph, inputs)
        except SubmitRejected as error:
            is_fork = isinstance(error.cause.__cause__, ForkedProcessError)
            code = 0 if is_fork and error.recovered is inputs else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    works(run, inputs)
    run.close()


# ---- failure behind the boundary


@pytest.mark.clause("g3-worker-exception")
@pytest.mark.parametrize("error", WRONG, ids=lambda error: type(error).__name__)
def test_an_exception_in_the_enqueueing_call_drains_and_then_fails(
    run: Run, error: BaseException
) -> None:
    inputs = run.inputs(X, Y)
    live = BASE.live
    run.fail("enqueue", error)
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)  # it may run
    with pytest.raises(OutcomePendingError):
        handle.wait(0.01)
    assert run.records() == {"opened": 1, "pending": 1}
    cause, back = failed(run, handle)
    assert cause is error
    assert back is inputs
    assert run.records() == {"opened": 1, "released": 1}
    assert BASE.live == live
    works(run, inputs)  # and the threads live on


@pytest.mark.clause("g3-worker-exception")
@pytest.mark.parametrize(
    "error", [*WRONG, GeneratorExit(), StopIteration()], ids=lambda e: type(e).__name__
)
def test_a_kernel_that_fails_is_a_proven_failure(
    run: Run, error: BaseException
) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    if isinstance(run, CpuRun):
        run.fail("kernel", error)
    handle = run.runtime.submit(graph, inputs)
    if isinstance(run, FakeRun):
        run.fail("kernel", error)
    cause, back = failed(run, handle)
    assert cause is error
    assert back is inputs
    assert inputs._ei_group._cell.outstanding is None
    works(run, inputs)  # the stream lives on
    error.__traceback__ = error.__context__ = None


@pytest.mark.clause("g3-worker-exception")
def test_a_check_of_values_that_fails_is_a_proven_failure(run: Run) -> None:
    bad = -np.eye(2)
    graph, inputs = run.graph(ta.linalg.cholesky, bad), run.inputs(bad)
    handle = run.runtime.submit(graph, inputs)
    cause, back = failed(run, handle)
    assert isinstance(cause, InvalidArgumentError)
    assert back is inputs


@pytest.mark.clause("g3-worker-exception")
@pytest.mark.parametrize("error", WRONG, ids=lambda error: type(error).__name__)
def test_a_panic_while_results_are_seated_fails_with_the_exact_inputs(
    run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    graph, inputs = run.graph(lambda x, y: (x.T, x * y), X, Y), run.inputs(X, Y)
    slots, live = inputs._ei_group.slots, BASE.live
    make = ExecutionBundle._make

    def broken(*args: Any) -> Any:
        monkeypatch.setattr(ExecutionBundle, "_make", make)
        raise error

    monkeypatch.setattr(ExecutionBundle, "_make", broken)
    cause, back = failed(run, run.runtime.submit(graph, inputs))
    assert cause is error
    assert back is inputs
    assert run.records() == {"opened": 1, "released": 1}
    assert inputs._ei_group.slots == slots  # no slot of a half-made bundle is left
    assert BASE.live == live
    works(run, inputs)


@pytest.mark.clause("g3-worker-exception")
@pytest.mark.parametrize("step", ["event", "synchronise"])
def test_an_exception_in_place_of_proof_leaves_no_owner(step: str) -> None:
    run = FakeRun()
    if step == "synchronise":
        run.fail("enqueue", OSError("the connection broke"))
    run.fail(step, MemoryError("in the driver"))
    inputs = run.inputs(X, Y)
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    outcome = handle.wait(30)
    assert isinstance(outcome, ta.CompletionUnproven)
    assert isinstance(outcome.cause.__cause__, MemoryError)
    with pytest.raises(UseAfterMoveError):
        inputs.into_parts()
    assert not hasattr(inputs, "_ei_group")
    assert run.records() == {"opened": 1, "unproven": 1}
    run.close()


# ---- unproven completion


@pytest.mark.clause("g3-outcome-shape", "g3-worker-exception")
def test_without_proof_in_time_everything_is_kept_for_good(impatient: Run) -> None:
    run = impatient
    w = run.handle_of(Y)
    graph, inputs = run.graph(lambda x: ta.tanh(x) * w, X), run.inputs(X)
    mine = inputs._ei_group.record(inputs.bindings[0]).storage.serial
    before = BASE.live
    outcome = run.runtime.submit(graph, inputs).wait(30)
    assert isinstance(outcome, ta.CompletionUnproven)
    assert type(outcome.cause) is CompletionError
    assert "kept for good" in str(outcome.cause)
    keys = outcome.diagnostic_keys
    assert all(type(key) is AllocationSpan for key in keys)
    assert len(keys) == 3  # the input's root, the constant's and the output's
    assert mine in {key.serial for key in keys}
    with pytest.raises(UseAfterMoveError):
        inputs.into_parts()
    del inputs, graph
    gc.collect()
    assert BASE.live == before + 1  # the output's root, too, is nobody's and kept
    run.finish()  # too late: the work ends, and nobody asks
    # The constant was read by work that nobody can see the end of. It can still be
    # read, and is never again anybody's alone.
    with w.value() as guard, guard.view as view:
        assert view.get((0, 0)) == Y[0, 0]
    with pytest.raises(NotUniqueError):
        w.into_value()
    assert run.runtime.close(30)
    assert run.records() == {"opened": 1, "unproven": 1}
    assert BASE.live == before + 1


@pytest.mark.clause("g3-outcome-shape")
def test_an_engine_that_is_lost_midway_keeps_what_it_may_touch() -> None:
    run = FakeRun(deadline=0.2)
    hang = run.fake.hang("enqueue")
    outcome = run.submit(product, X, Y).wait(30)
    assert isinstance(outcome, ta.CompletionUnproven)
    assert isinstance(outcome.cause.__cause__, EngineLostError)
    assert len(outcome.diagnostic_keys) == 3
    inputs = run.inputs(X, Y)
    found = rejected(run, run.graph(product, X, Y), inputs)
    assert isinstance(found, EngineLostError)
    hang.let_go()
    assert run.runtime.close(30)
    assert run.records() == {"opened": 1, "unproven": 1}
    assert run.fake.counts["release"] == 0
    run.close()


# ---- waiting


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT interrupts, also where a shell in the background had it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_leaves_the_handle_usable(run: Run) -> None:
    handle = run.submit(product, X, Y)
    for patience in (0.0, 0.01):
        with pytest.raises(OutcomePendingError):
            handle.wait(patience)
    main = threading.get_ident()
    timer = threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        handle.wait(30)
    timer.join()
    assert not handle.is_done
    run.finish()
    assert value_of(handle.wait(30)).tolist() == PRODUCT.tolist()
    with pytest.raises(UseAfterMoveError):
        handle.wait()


EXIT = """
import tenferro_ad as ta
rt = ta.Runtime("cpu")
rt.endpoint.hold()
graph = rt.compile(ta.trace(lambda x: x * x, ta.Spec((1000, 1000))))
x = ta.ones((1000, 1000)).into_value()
handle = rt.submit(graph, ta.ExecutionInputs.of_tensors([x]))
print(handle.is_done)
"""


def test_a_process_ends_cleanly_with_work_in_flight() -> None:
    env = dict(os.environ, PYTHONPATH=str(Path(ta.__file__).parents[1]))
    done = subprocess.run(
        [sys.executable, "-c", EXIT],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")


# ---- handles dropped, every end reached


ENDS = ["completed", "failed", "unproven"]


@pytest.mark.clause("g3-test-terminal-suites")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("dropped", ["running", "draining", "ended", "never"])
def test_every_end_is_reached_wherever_the_handle_was_dropped(
    dropped: str, end: str
) -> None:
    run = FakeRun()
    handle: ta.ExecutionHandle | None = run.submit(product, X, Y)
    (event,) = run.fake.pending
    if dropped == "running":
        handle = None
    hang = run.fake.hang("release") if end != "unproven" else None
    {"completed": event.complete, "failed": event.fail, "unproven": event.lose}[end]()
    if hang is not None:
        assert hang.reached.wait(30)
        if dropped == "draining":
            handle = None
        hang.let_go()
    elif dropped == "draining":
        handle = None
    until(lambda: run.records().get("pending") is None)
    if dropped == "ended":
        assert handle is not None
        until(lambda: handle.is_done)
        handle = None
    if handle is not None:
        kinds = [ta.Completed, ta.RetiredFailed, ta.CompletionUnproven]
        assert type(handle.wait(30)) is kinds[ENDS.index(end)]
    del event
    assert run.runtime.close(30)
    if end == "unproven":
        assert run.records() == {"opened": 1, "unproven": 1}
        held = {"buffers": 3, "reservations": 3, "bindings": 3, "events": 1}
        assert run.fake.outstanding == held
        assert run.fake.counts["release"] == 0
    else:  # once each: three reservations, three bindings, one event
        assert run.records() == {"opened": 1, "released": 1}
        assert run.fake.counts["release"] == 7
        assert run.fake.outstanding == {}  # the outcome went with its last observer
    run.close()


@pytest.mark.clause("g3-test-terminal-suites")
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("dropped", ["running", "ended", "never"])
def test_every_end_is_reached_on_the_cpu(dropped: str, end: str) -> None:
    run = CpuRun(deadline=0.2 if end == "unproven" else 30)
    live = BASE.live
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    if end == "failed":
        run.fail("kernel")
    handle: ta.ExecutionHandle | None = run.runtime.submit(graph, inputs)
    del inputs
    if dropped == "running":
        handle = None
    if end != "unproven":
        run.finish()
    until(lambda: run.records().get("pending") is None)
    if handle is not None:
        until(lambda: handle.is_done)  # type: ignore[union-attr]
    if dropped == "never":
        assert handle is not None
        kinds = [ta.Completed, ta.RetiredFailed, ta.CompletionUnproven]
        assert type(handle.wait(30)) is kinds[ENDS.index(end)]
    handle = None
    run.finish()
    assert run.runtime.close(30)
    proof = "unproven" if end == "unproven" else "released"
    assert run.records() == {"opened": 1, proof: 1}
    until(lambda: BASE.live == live + (3 if end == "unproven" else 0))
    run.close()


# ---- many at once


def test_runs_of_many_threads_end_each_with_its_own_values(run: Run) -> None:
    graph = run.graph(lambda x: ta.tanh(x) + 1, X)
    found: dict[int, Any] = {}

    def submit(k: int) -> None:
        handle = run.runtime.submit(graph, run.inputs(X * k))
        found[k] = handle

    threads = [threading.Thread(target=submit, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(found) == 8
    end = time.monotonic() + 30
    while not all(handle.is_done for handle in found.values()):
        run.finish()
        assert time.monotonic() < end
        time.sleep(0.001)
    for k, handle in found.items():
        assert np.allclose(value_of(handle.wait(30)), np.tanh(X * k) + 1)
    assert run.records() == {"opened": 8, "released": 8}


# ---- what a run counts


def test_events_belong_to_the_scopes_and_the_line_of_the_submission(run: Run) -> None:
    graph, inputs = (
        run.graph(lambda x, y: ta.tanh(x @ y.T).sum(), X, Y),
        run.inputs(X, Y),
    )
    with ta.ledger(events=True) as led:
        handle = run.runtime.submit(graph, inputs)
    with ta.ledger() as later:
        run.finish()
        outcome = handle.wait(30)
    # One output, and one arena for what comes before it.
    led.expect(allocations={"OperationOutput": 2}, copies={})
    later.expect(allocations={}, copies={})
    assert {
        Path(event.where[0]).name for event in led.events if event.kind != "release"
    }
    assert all(
        Path(__file__).name in str(event.where)
        for event in led.events
        if event.kind == "allocation"
    )
    assert led.live == 1  # the arena went with the run, and was charged here
    del outcome, handle
    gc.collect()
    assert led.live == 0


def test_a_scope_that_forbids_allocation_refuses_the_run(run: Run) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    with ta.forbid(allocations=True):
        found = rejected(run, graph, inputs)
    assert isinstance(found, ForbiddenEventError)
    works(run, inputs)


# ---- donation


def step(w: Any, g: Any) -> Any:
    return w - 0.5 * g


def test_a_donated_input_becomes_the_output(run: Run) -> None:
    graph, inputs = run.graph(step, X, Y), run.inputs(X, Y, donate=[0])
    mine = inputs._ei_group.record(inputs.bindings[0]).storage.serial
    with ta.ledger() as led:
        handle = run.runtime.submit(graph, inputs)
        run.finish()
        outcome = handle.wait(30)
        assert isinstance(outcome, ta.Completed)
        tensor = outcome.bundle.into_output(0)
    led.expect(allocations={"OperationOutput": 1}, copies={})  # the arena, for 0.5 g
    assert led.live == 0
    assert tensor.span.serial == mine
    assert np.allclose(tensor.numpy(), X - 0.5 * Y)


def test_a_failed_run_returns_donated_inputs_and_says_what_they_are_worth(
    run: Run,
) -> None:
    graph, inputs = run.graph(step, X, Y), run.inputs(X, Y, donate=[0])
    error = ArithmeticError("halfway")
    if isinstance(run, CpuRun):
        run.fail("kernel", error)
    handle = run.runtime.submit(graph, inputs)
    if isinstance(run, FakeRun):
        run.fail("kernel", error)
    run.finish()
    outcome = handle.wait(30)
    assert isinstance(outcome, ta.RetiredFailed)
    assert outcome.inputs is inputs
    assert "write donated inputs again" in str(outcome.cause)
    group, (w, g) = inputs.into_parts()
    with group.view_mut(w) as mut:  # the exact owner, free to be written
        mut.fill(0.0)
    assert np.array_equal(group.view(g).numpy(), Y)


def test_donation_refuses_before_anything_runs(run: Run) -> None:
    graph = run.graph(step, X, Y)
    inputs = run.inputs(X, Y, donate=[0, 1])  # one output cannot take over both
    found = rejected(run, graph, inputs)
    assert "donate" in str(found)
    assert isinstance(rejected(run, graph, inputs), type(found))  # as often as asked
    assert run.records() == {}


# ---- constants


def test_constants_live_as_long_as_graph_and_runs_need_them(run: Run) -> None:
    live = BASE.live
    graph = closing_over(run, Y)
    assert BASE.live == live + 1
    handle = run.runtime.submit(graph, run.inputs(X))
    del graph  # the run goes on
    gc.collect()
    assert BASE.live == live + 3
    run.finish()
    outcome = handle.wait(30)
    assert BASE.live == live + 2  # the constant went before the outcome was published
    assert np.allclose(value_of(outcome), X * Y)


def test_constants_are_free_again_when_the_outcome_is_published(run: Run) -> None:
    w = run.handle_of(Y)
    graph = run.graph(lambda x: x * w, X)
    handle = run.runtime.submit(graph, run.inputs(X))
    del graph
    with pytest.raises(NotUniqueError):
        w.into_value()
    run.finish()
    outcome = handle.wait(30)
    assert np.array_equal(w.into_value().numpy(), Y)
    assert np.allclose(value_of(outcome), X * Y)


def test_a_program_that_returns_a_constant_is_refused_when_compiled(run: Run) -> None:
    w = run.handle_of(Y)
    for fn in (lambda x: w, lambda x: (x, w.T), lambda x: (x * w, w)):
        with pytest.raises(InvalidArgumentError, match="closed over"):
            run.graph(fn, X)
    assert w.into_value().shape == Y.shape


def test_a_told_failure_is_the_cause_of_the_outcome() -> None:
    run = FakeRun()
    handle = run.submit(product, X, Y)
    run.fake.pending[0].fail()
    cause, _ = failed(run, handle)
    assert isinstance(cause, FakeFailureError)
    run.close()
