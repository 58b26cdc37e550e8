"""G3: the state table of submission, one test for each row, on the CPU and the fake.

Each test asserts the six columns of its row: the capability, what is borrowed, what is
synchronised, what a failure gives back, what an exception or a drop leaves, and when
memory is reclaimed.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU
from tenferro_ad.errors import (
    BorrowConflictError,
    CompletionError,
    ExecutionError,
    NotEnqueuedError,
    NotUniqueError,
    OutcomePendingError,
    ScopedSubmitRejected,
    SubmitRejected,
    UnsupportedError,
    UseAfterMoveError,
)
from tests.contract.device_support import strong, until, upload, value_of
from tests.contract.g3_support import (
    PRODUCT,
    RUNS,
    CpuRun,
    FakeRun,
    Run,
    X,
    Y,
    product,
)


@pytest.fixture(params=RUNS, ids=[run.name for run in RUNS])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Each runtime, whose work waits for `finish`."""
    made: Run = request.param()
    yield made
    made.close()


def serials(inputs: ta.ExecutionInputs) -> list[int]:
    group = inputs._ei_group
    return [group.record(slot).storage.serial for slot in group.slots]


def pinned(serial: int, inputs: ta.ExecutionInputs) -> int:
    """Holders of a root that the inputs' group owns."""
    for owner in inputs._ei_group._allocations:
        if owner is not None and owner.span.serial == serial:
            return owner._claim._root.strong_count
    raise LookupError(serial)


@pytest.mark.clause("g3-row-prepared-to-submit")
def test_row_a_prepared_run_is_offered(run: Run) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    owners, live = serials(inputs), BASE.live
    group = inputs._ei_group
    run.fail("enqueue")
    with pytest.raises(SubmitRejected) as caught:
        run.runtime.submit(graph, inputs)
    cause, back = caught.value.into_parts()
    del caught
    assert isinstance(cause.__cause__, NotEnqueuedError)
    del cause
    assert back is inputs  # failure: the same package with the same owners
    assert inputs._ei_group is group
    assert serials(inputs) == owners
    assert group._cell.outstanding is None  # borrow: none
    # synchronisation: it was planned, and nothing waits or runs.
    assert run.records() == {"opened": 1, "undone": 1}
    assert BASE.live == live  # panic/drop: nothing admitted and nothing retained
    assert [pinned(serial, inputs) for serial in owners] == [1, 1]
    # reclamation: the owners are with the caller, to move as they please.
    moved, slots = inputs.into_parts()
    for slot in slots:
        moved.try_extract(slot)
    assert BASE.live == live - 2
    # capability: owning; what is offered and accepted is used up.
    inputs = run.inputs(X, Y)
    handle = run.runtime.submit(graph, inputs)
    with pytest.raises(UseAfterMoveError, match="submit"):
        inputs.into_parts()
    run.finish()
    assert value_of(handle.wait(30)).tolist() == PRODUCT.tolist()


@pytest.mark.clause("g3-row-admitted-to-running")
def test_row_an_admitted_run_starts(run: Run) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    owners, live = serials(inputs), BASE.live
    run.fail("enqueue", OSError("after the work was taken"))
    handle = run.runtime.submit(graph, inputs)
    # failure: it comes after the boundary, so it drains and is no rejection.
    with pytest.raises(OutcomePendingError):
        handle.wait(0.01)
    with pytest.raises(UseAfterMoveError):  # capability: owning, by the worker
        inputs.into_parts()
    assert inputs._ei_group._cell.outstanding is None  # borrow: none, they are its own
    # synchronisation: bindings crossed the call and are retirement bindings now.
    assert run.records() == {"opened": 1, "pending": 1}
    assert [pinned(serial, inputs) for serial in owners] == [2, 2]
    if isinstance(run, FakeRun):
        assert run.fake.outstanding["bindings"] == 3
    del handle, inputs, graph  # panic/drop: the reaper keeps everything
    gc.collect()
    assert BASE.live == live + 1
    assert run.records() == {"opened": 1, "pending": 1}
    run.finish()
    assert run.runtime.close(30)
    assert run.records() == {"opened": 1, "released": 1}
    until(lambda: BASE.live == live - 2)  # reclamation: at the terminal outcome


@pytest.mark.clause("g3-row-running-to-draining")
@pytest.mark.parametrize("error", [None, KeyboardInterrupt("in the provider")])
def test_row_a_running_program_drains(run: Run, error: BaseException | None) -> None:
    live = BASE.live
    inputs = run.inputs(X, Y)
    if error is not None:
        run.fail("enqueue", error)
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    # capability and panic/drop: worker or reaper owns it, an exception changes nothing
    with pytest.raises(UseAfterMoveError):
        inputs.into_parts()
    assert inputs._ei_group._cell.outstanding is None  # borrow: none
    # synchronisation: everything enqueued, and without an event the whole queue.
    with pytest.raises(OutcomePendingError):
        handle.wait(0.05)
    assert BASE.live == live + 3  # reclamation: not yet
    assert run.records() == {"opened": 1, "pending": 1}
    run.finish()
    outcome = handle.wait(30)
    if error is None:
        assert isinstance(outcome, ta.Completed)
    else:  # failure: an exception leads here too, and is typed at its boundary
        assert isinstance(outcome, ta.RetiredFailed)
        assert type(outcome.cause) is ExecutionError
        assert outcome.cause.__cause__ is error
        assert outcome.inputs is inputs
    if isinstance(run, FakeRun):
        assert run.fake.counts["synchronise"] == (0 if error is None else 1)


@pytest.mark.clause("g3-row-draining-to-completed")
def test_row_a_drained_run_completes(run: Run) -> None:
    live = BASE.live
    inputs = run.inputs(X, Y)
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    run.finish()
    outcome = handle.wait(30)  # synchronisation: completion is shown
    assert isinstance(outcome, ta.Completed)  # failure column: a bundle, no failure
    assert type(outcome.bundle) is ta.ExecutionBundle
    with pytest.raises(UseAfterMoveError):  # capability: the engine's until now
        inputs.into_parts()
    group = outcome.bundle._eb_group
    assert group._cell.outstanding is None  # borrow: none
    # panic/drop: not applicable; everything that was retained is released, once.
    assert run.records() == {"opened": 1, "released": 1}
    owners = [owner for owner in group._allocations if owner is not None]
    assert [owner._claim._root.strong_count for owner in owners] == [1, 1, 1]
    del owners, group
    # reclamation: as any group.
    tensor = outcome.bundle.into_output(0)
    assert strong(tensor) == 1
    assert BASE.live == live + 1
    del tensor
    assert BASE.live == live


@pytest.mark.clause("g3-row-draining-to-failed")
def test_row_a_drained_run_fails_with_proof(run: Run) -> None:
    live = BASE.live
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    owners = serials(inputs)
    error = OSError("bad address")
    if isinstance(run, CpuRun):
        run.fail("kernel", error)
    handle = run.runtime.submit(graph, inputs)
    if isinstance(run, FakeRun):
        run.fail("kernel", error)
    run.finish()
    outcome = handle.wait(30)  # synchronisation: completion is shown
    assert isinstance(outcome, ta.RetiredFailed)
    assert type(outcome.cause) is ExecutionError  # failure: a typed cause
    assert outcome.cause.__cause__ is error
    assert outcome.inputs is inputs  # and the same owners
    assert serials(inputs) == owners
    assert inputs._ei_group._cell.outstanding is None  # borrow: none
    # capability: the reaper's until proof, then nobody's but the caller's.
    assert [pinned(serial, inputs) for serial in owners] == [1, 1]
    # panic/drop: not applicable; what was retained is released, once.
    assert run.records() == {"opened": 1, "released": 1}
    assert BASE.live == live + 2  # the output that was never one is gone
    group, slots = inputs.into_parts()  # reclamation: owners as ever
    with group.view_mut(slots[0]) as mut:
        mut.fill(0.0)
    del outcome, inputs, group, mut, handle
    assert BASE.live == live


@pytest.mark.clause("g3-row-draining-to-unproven")
@pytest.mark.parametrize("kind", RUNS, ids=[run.name for run in RUNS])
def test_row_a_drained_run_ends_without_proof(kind: Any) -> None:
    run = kind(deadline=0.2)
    live = BASE.live
    inputs = run.inputs(X, Y)
    owners = serials(inputs)
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    outcome = handle.wait(30)  # synchronisation: completion is not shown
    assert isinstance(outcome, ta.CompletionUnproven)
    # failure: a typed cause and diagnostics, no owner
    assert type(outcome.cause) is CompletionError
    assert {key.serial for key in outcome.diagnostic_keys} > set(owners)
    for key in outcome.diagnostic_keys:
        assert {
            type(getattr(key, f)) for f in ("domain", "serial", "start", "stop")
        } <= {
            str,
            int,
        }
    # capability: none public; borrow: none to be had
    for use in ("into_parts", "bindings"):
        with pytest.raises(UseAfterMoveError):
            getattr(inputs, use)()
    assert not hasattr(inputs, "_ei_group")
    assert run.records() == {"opened": 1, "unproven": 1}
    del outcome, inputs, handle  # panic/drop: nothing that anybody drops matters
    gc.collect()
    run.finish()
    assert run.runtime.close(30)
    if isinstance(run, FakeRun):
        held = {"buffers": 3, "reservations": 3, "bindings": 3, "events": 1}
        assert run.fake.outstanding == held
        assert run.fake.counts["deallocate"] == 0
    assert BASE.live == live + 3  # reclamation: never
    run.close()


# ---- scoped rows


def lent() -> tuple[Any, Any]:
    return upload(X, CPU), upload(Y, CPU)


def borrow_of(tensor: Any) -> str | None:
    found: str | None = tensor._owner_storage._borrow.outstanding
    return found


@pytest.mark.clause("g3-row-scoped-rejected")
def test_row_a_scoped_call_is_refused(run: Run) -> None:
    live = BASE.live
    # On the CPU's own runtime the inputs are at fault; the fake is no such provider.
    x, y = run.tensor(X), run.tensor(Y)
    graph = run.graph(product, X, Y)
    views = [x.as_view(), y.as_view()]
    given = views if isinstance(run, FakeRun) else views[:1]
    inputs = ta.ScopedReadInputs(given)
    with pytest.raises(ScopedSubmitRejected) as caught:
        run.runtime.execute_scoped_read_only(graph, inputs)
    cause, back = caught.value.into_parts()
    del caught
    assert back is inputs  # failure: the same borrowed package
    if isinstance(run, FakeRun):
        assert isinstance(cause.__cause__, UnsupportedError)  # others: unsupported
        assert run.fake.counts["enqueue"] == run.fake.counts["prepare"] == 0
    del cause
    assert run.records() == {}  # synchronisation: none
    assert BASE.live == live + 2  # panic/drop: nothing was admitted or is left
    # capability and borrow: shared, and the caller's own
    assert [borrow_of(t) for t in (x, y)] == ["shared", "shared"]
    assert len(inputs) == len(given)
    for view in views:
        view._live("test")
    with pytest.raises(BorrowConflictError):
        x.as_view_mut()
    for view in views:  # reclamation: the borrows end when the caller ends them
        view.close()
    assert [borrow_of(t) for t in (x, y)] == [None, None]
    assert (strong(x), strong(y)) == (1, 1)


@pytest.mark.clause("g3-row-scoped-admitted")
@pytest.mark.parametrize("ends_well", [True, False])
def test_row_a_scoped_call_runs(
    monkeypatch: pytest.MonkeyPatch, ends_well: bool
) -> None:
    live = BASE.live
    runtime = ta.Runtime("cpu")
    x, y = lent()
    specs = [ta.Spec(X.shape), ta.Spec(Y.shape)]
    graph = runtime.compile(ta.trace(lambda x, y: (ta.tanh(x) * y, x), *specs))
    inside: list[str | None] = []

    def watched(run: Any) -> Any:
        def kernel(outs: Any, ins: Any) -> None:
            inside.extend(borrow_of(t) for t in (x, y))
            if not ends_well:
                raise ArithmeticError("inside")
            run(outs, ins)

        return kernel

    monkeypatch.setitem(vars(runtime._scoped), "prepare_program", watched)
    inputs = ta.ScopedReadInputs([x.as_view(), y.as_view()])
    outcome = runtime.execute_scoped_read_only(graph, inputs)
    # capability: shared, throughout; synchronisation: it ran before the call returned
    assert inside == ["shared", "shared"]
    if not ends_well:
        assert isinstance(outcome, ta.RetiredFailed)  # failure: after retirement
        assert outcome.inputs is inputs
        assert [borrow_of(t) for t in (x, y)] == ["shared", "shared"]
        assert BASE.live == live + 2  # panic/drop: nothing runs, nothing is left
        inputs.close()
        assert [borrow_of(t) for t in (x, y)] == [None, None]
        return
    assert isinstance(outcome, ta.Completed)
    bundle = outcome.bundle
    # borrow: for the whole environment of the bundle, and tied to the inputs' borrows
    assert [borrow_of(t) for t in (x, y)] == ["shared", "shared"]
    with bundle.output(1) as same:
        assert same.span.serial == x.span.serial
    tensor = bundle.into_owned_output(0)  # reclamation: owned outputs as any owner
    assert [borrow_of(t) for t in (x, y)] == [None, None]
    assert np.array_equal(tensor.numpy(), PRODUCT)
    assert strong(tensor) == 1
    del tensor
    assert BASE.live == live + 2


def test_row_attached_values_follow_the_same_rows(run: Run) -> None:
    """A retained value is shared until the run has retired, and then as before."""
    w = run.handle_of(Y)
    inputs = ta.ExecutionInputs.of_values([run.tensor(X), w])
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    with pytest.raises(NotUniqueError):
        w.into_value()
    run.finish()
    outcome = handle.wait(30)
    assert w.into_value().shape == Y.shape
    assert value_of(outcome).tolist() == PRODUCT.tolist()
