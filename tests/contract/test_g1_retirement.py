"""G1: provider use and retirement. One test for each clause, named after it."""

from __future__ import annotations

import ast
import dataclasses
import gc
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad._ownership import Shared
from tenferro_ad.backends.fake import FakeFailureError
from tenferro_ad.errors import (
    CompletionError,
    EngineLostError,
    ExecutionError,
    OutcomePendingError,
    SubmitRejected,
    UseAfterMoveError,
)
from tenferro_ad.runtime import (
    Completed,
    CompletionUnproven,
    RetiredFailed,
)
from tenferro_ad.storage import (
    AllocationSpan,
    ProviderContext,
    ProviderRetirementBinding,
    RetirementRecord,
    RootResource,
    bind_read,
    bind_write,
    retirements,
    validations,
)
from tests.contract.device_support import FakeDevice, strong, value_of

SOURCES = Path(storage_package.__file__).parent


# ---- the record


@pytest.mark.clause("g1-record-shape")
def test_a_record_holds_event_bindings_roots_and_context_until_proof(
    device: FakeDevice,
) -> None:
    tensor = device.tensor([1.0, 2.0])
    bound = bind_read(tensor.prepare_device())
    record = RetirementRecord._open([bound])
    try:
        assert {"event", "bindings", "roots", "context"} <= set(record.__slots__)
        (binding,), (root,) = record.bindings, record.roots
        assert isinstance(binding, ProviderRetirementBinding)
        assert isinstance(root, Shared)
        assert isinstance(root.value, RootResource)
        assert isinstance(record.context, Shared)
        assert isinstance(record.context.value, ProviderContext)
        assert record.context.value.provider is device.fake
        assert strong(tensor) == 2
        assert [span.serial for span in record.spans] == [tensor.span.serial]
    finally:
        assert record._release() == []
    assert (record.bindings, record.roots, record.event, record.context) == (
        (),
        (),
        None,
        None,
    )
    assert strong(tensor) == 1


@pytest.mark.clause("g1-enqueue-consumes")
def test_enqueue_turns_each_bound_access_into_a_retirement_binding(
    device: FakeDevice,
) -> None:
    source, target = device.tensor([1.0]), device.tensor([0.0])
    read = bind_read(source.prepare_device())
    write = bind_write(target.prepare_device_mut())
    held = device.fake.outstanding
    record = RetirementRecord._open([read, write])
    for spent in (read, write):
        with pytest.raises(UseAfterMoveError):
            spent._unbind()
        with pytest.raises(UseAfterMoveError):
            RetirementRecord._open([spent])
    assert device.fake.outstanding == held  # reservations and bindings live on
    assert held["bindings"] == held["reservations"] == 2
    assert record._release() == []
    assert set(device.fake.outstanding) == {"buffers"}


@pytest.mark.clause("g1-release-exactly-once")
def test_proof_releases_each_thing_once_and_then_publishes(device: FakeDevice) -> None:
    hang = device.fake.hang("release")
    handle = device.submit("exp", device.inputs([0.0, 1.0]))
    before = device.fake.counts
    device.finish()
    assert hang.reached.wait(30)  # the first release hangs: nothing is published yet
    assert not handle.is_done
    hang.let_go()
    outcome = handle.wait(30)
    made = device.fake.counts - before
    # Two accesses with a reservation and a binding each, and one event.
    assert made["release"] == 5
    assert set(device.fake.outstanding) == {"buffers"}
    assert device.records() == {"opened": 1, "released": 1}
    assert np.allclose(value_of(outcome), np.exp([0.0, 1.0]))
    del outcome
    assert device.fake.outstanding == {}


@pytest.mark.clause("g1-release-exactly-once")
def test_a_release_that_raises_stops_neither_the_others_nor_the_outcome(
    device: FakeDevice,
) -> None:
    inputs = device.inputs([0.0])
    device.fake.raise_("release", OSError("the driver is confused"))
    handle = device.submit("exp", inputs)
    device.finish()
    match handle.wait(30):
        case RetiredFailed(cause=ExecutionError() as cause, inputs=back):
            assert isinstance(cause.__cause__, OSError)
            assert back is inputs
        case other:
            raise AssertionError(other)
    assert device.records() == {"opened": 1, "released": 1}
    # All five were given back; the fake did not take the one whose call raised.
    assert device.fake.counts["release"] == 5
    assert sum(device.fake.outstanding.values()) == 2


@pytest.mark.clause("g1-handle-drop-detaches")
def test_dropping_the_handle_ends_observation_and_nothing_else(
    asynchronous: FakeDevice,
) -> None:
    device = asynchronous
    handle = device.submit("exp", device.inputs([1.0]))
    del handle
    gc.collect()
    assert device.records() == {"opened": 1, "pending": 1}
    device.finish()
    assert device.engine.close(30)
    assert device.records() == {"opened": 1, "released": 1}
    assert not hasattr(device, "fake") or device.fake.outstanding == {}


@pytest.mark.clause("g1-unproven-ownerless")
def test_an_unproven_outcome_has_a_cause_and_keys_and_no_owner(
    device: FakeDevice,
) -> None:
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    device.fake.pending[0].lose()
    outcome = handle.wait(30)
    assert isinstance(outcome, CompletionUnproven)
    assert [f.name for f in dataclasses.fields(outcome)] == ["cause", "diagnostic_keys"]
    assert isinstance(outcome.cause, CompletionError)
    assert len(outcome.diagnostic_keys) == 2  # the input's root and the output's
    for key in outcome.diagnostic_keys:
        assert type(key) is AllocationSpan
        assert not any(
            callable(v) for k, v in vars(AllocationSpan).items() if k[0] != "_"
        )
    with pytest.raises(UseAfterMoveError):
        inputs.into_parts()


@pytest.mark.clause("g1-unproven-kept-forever")
def test_what_is_unproven_stays_for_good_and_nothing_takes_it_out(
    device: FakeDevice,
) -> None:
    handle = device.submit("exp", device.inputs([1.0]))
    (event,) = device.fake.pending
    held = device.fake.outstanding
    event.lose()
    outcome = handle.wait(30)
    assert isinstance(outcome, CompletionUnproven)
    del outcome, handle
    gc.collect()
    event.complete()  # too late: nobody asks any more
    device.fake.complete()
    assert device.engine.close(30)
    assert device.fake.outstanding == held
    assert device.fake.counts["release"] == device.fake.counts["deallocate"] == 0
    assert device.records() == {"opened": 1, "unproven": 1}
    # The list is appended to in one place and read in none; nothing retries.
    reads = []
    for file in SOURCES.parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Name) and node.id == "_RETAINED":
                reads.append((file.name, type(node.ctx).__name__))
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                name = node.name.lower()
                assert "quarantine" not in name
    assert reads == [("_retirement.py", "Store"), ("_retirement.py", "Load")]
    source = (SOURCES / "_retirement.py").read_text(encoding="utf-8")
    assert source.count("_RETAINED.append(") == 1


@pytest.mark.clause("g1-unproven-kept-forever", "g1-soundness-without-finalisers")
def test_a_record_that_is_dropped_undecided_keeps_itself(device: FakeDevice) -> None:
    tensor = device.tensor([1.0])
    record = RetirementRecord._open([bind_read(tensor.prepare_device())])
    held = device.fake.outstanding
    del record, tensor
    gc.collect()
    assert device.fake.outstanding == held
    assert device.records() == {"opened": 1, "unproven": 1}


@pytest.mark.clause("g1-exception-boundary")
@pytest.mark.parametrize(
    "error", [ValueError("a bug"), KeyboardInterrupt("now"), SystemExit(3)]
)
def test_an_exception_of_any_kind_ends_at_the_engine_and_drains(
    device: FakeDevice, error: BaseException
) -> None:
    inputs = device.inputs([1.0])
    device.fake.raise_("enqueue", error)
    handle = device.submit("exp", inputs)  # it may run: no error is raised here
    (event,) = device.fake.pending
    with pytest.raises(OutcomePendingError):
        handle.wait(0.01)
    event.complete()
    match handle.wait(30):
        case RetiredFailed(cause=cause, inputs=back):
            assert cause.__cause__ is error
            assert back is inputs
        case other:
            raise AssertionError(other)
    # The threads live on and serve the next job.
    again = device.submit("exp", inputs)
    device.finish()
    assert value_of(again.wait(30)) == np.exp(1.0)


@pytest.mark.clause("g1-exception-boundary")
def test_an_exception_in_place_of_proof_proves_nothing(device: FakeDevice) -> None:
    device.fake.raise_("event", MemoryError("in the driver"))
    handle = device.submit("exp", device.inputs([1.0]))
    outcome = handle.wait(30)
    assert isinstance(outcome, CompletionUnproven)
    assert isinstance(outcome.cause.__cause__, MemoryError)
    assert device.records() == {"opened": 1, "unproven": 1}


# ---- state rows: capability, borrow, synchronisation, failure, panic/drop, reclamation


@pytest.mark.clause("g1-row-pre-admission-rejection")
def test_row_prepared_device_access_is_refused_before_admission(
    device: FakeDevice,
) -> None:
    inputs = device.inputs([1.0])
    device.fake.fail("bind")
    with pytest.raises(SubmitRejected) as caught:
        device.submit("exp", inputs)
    cause, back = caught.value.into_parts()
    del caught
    assert back is inputs  # failure: the same package; capability: owning
    group = back._ei_group
    assert group._cell.outstanding is None  # borrow: none leaves the call
    assert device.fake.counts["enqueue"] == 0  # synchronisation: nothing enqueued
    assert device.records() == {}  # panic/drop: no record was made
    assert set(device.fake.outstanding) == {"buffers"}
    del back, inputs, group, cause
    assert device.fake.outstanding == {}  # reclamation: the caller's, at once


@pytest.mark.clause("g1-row-enqueue-to-draining")
def test_row_work_that_may_be_enqueued_moves_to_draining(device: FakeDevice) -> None:
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    with pytest.raises(UseAfterMoveError):  # capability: owned by the task
        inputs.into_parts()
    assert inputs._ei_group._cell.outstanding is None  # borrow: none of the caller
    with pytest.raises(OutcomePendingError):  # synchronisation: waits for the event
        handle.wait(0.01)
    assert not handle.is_done  # failure: nothing comes back at once
    del handle, inputs
    gc.collect()
    held = device.fake.outstanding  # panic/drop: the reaper keeps everything
    assert held == {"buffers": 2, "reservations": 2, "bindings": 2, "events": 1}
    assert device.records() == {"opened": 1, "pending": 1}
    assert device.fake.counts["deallocate"] == 0  # reclamation: not yet


@pytest.mark.clause("g1-row-draining-to-retired")
@pytest.mark.parametrize("ends_well", [True, False])
def test_row_draining_ends_with_proof(device: FakeDevice, ends_well: bool) -> None:
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    (event,) = device.fake.pending
    assert inputs._moved_by == "submit_detached"  # capability: owned by the task
    if ends_well:
        event.complete()
    else:
        event.fail()
    outcome = handle.wait(30)  # synchronisation: completion is shown
    assert device.records() == {"opened": 1, "released": 1}  # panic/drop: once
    assert set(device.fake.outstanding) == {"buffers"}
    match outcome:  # failure: a typed result, owners only now
        case Completed(bundle=bundle):
            assert ends_well
            with bundle.output(0) as view:
                assert view.get((0,)) == np.exp(1.0)
            group = bundle._eb_group
        case RetiredFailed(cause=cause, inputs=back):
            assert isinstance(cause.__cause__, FakeFailureError)
            assert not ends_well
            assert back is inputs
            group = back._ei_group
        case CompletionUnproven():
            raise AssertionError
    assert group._cell.outstanding is None  # borrow: none
    assert device.fake.counts["deallocate"] == (0 if ends_well else 1)
    del outcome, group, inputs, handle
    bundle = back = view = cause = None
    assert device.fake.outstanding == {}  # reclamation: with the owners


@pytest.mark.clause("g1-row-draining-to-unproven")
def test_row_draining_ends_without_proof(impatient: FakeDevice) -> None:
    device = impatient
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    held = device.fake.outstanding
    outcome = handle.wait(30)  # synchronisation: completion is not shown in time
    assert isinstance(outcome, CompletionUnproven)  # failure: diagnostics, no owner
    with pytest.raises(UseAfterMoveError):  # capability: nobody's any more
        inputs.into_parts()
    with pytest.raises(UseAfterMoveError):  # borrow: none to be had
        inputs._require("view")
    del outcome, inputs, handle
    gc.collect()
    device.fake.complete()  # it ends after all, and nobody asks
    assert device.fake.outstanding == held  # panic/drop: everything is kept
    assert device.records() == {"opened": 1, "unproven": 1}
    assert device.fake.counts["deallocate"] == 0  # reclamation: never by this outcome


# ---- evidence


@pytest.mark.clause("g1-test-constant-counts", "g4-resolve-once", "g2-test-no-rerun")
@pytest.mark.parametrize("size", [1, 1_000, 1_000_000])
def test_every_count_is_the_same_at_any_element_count(
    device: FakeDevice, size: int
) -> None:
    inputs = device.inputs(np.ones(size))
    calls, proofs = device.fake.counts, validations.snapshot()
    handle = device.submit("exp", inputs)
    device.finish()
    outcome = handle.wait(30)
    assert isinstance(outcome, Completed)
    # One lookup, one kernel, one output; each of two accesses is prepared and bound
    # once; one dispatch and one wait; five things are given back.
    assert device.fake.counts - calls == {
        "supports": 1,
        "compile": 1,
        "allocate": 1,
        "prepare": 2,
        "bind": 2,
        "enqueue": 1,
        "event": 1,
        "release": 5,
    }
    # The only proof is that the fresh output may be written; inputs keep theirs.
    layout, injectivity, disjointness = np.subtract(validations.snapshot(), proofs)
    assert (layout, disjointness) == (0, 0)
    assert injectivity <= 1
    calls, proofs = device.fake.counts, validations.snapshot()
    with outcome.bundle.output(0) as view:
        array = view.numpy()
        assert array[-1] == np.exp(1.0)
    del array
    assert device.fake.counts - calls == {"map": 1, "synchronise": 1, "unmap": 1}
    assert validations.snapshot() == proofs


@pytest.mark.clause("g1-test-events")
@pytest.mark.parametrize("handle_is", ["kept", "dropped"])
def test_work_completes_with_and_without_an_observer(
    asynchronous: FakeDevice, handle_is: str
) -> None:
    device = asynchronous
    handle = device.submit("add", device.inputs([1.0, 2.0], [3.0, 4.0]))
    assert not handle.is_done
    if handle_is == "kept":
        device.finish()
        assert value_of(handle.wait(30)).tolist() == [4.0, 6.0]
        with pytest.raises(UseAfterMoveError):
            handle.wait()
    del handle
    device.finish()
    assert device.engine.close(30)
    assert device.records() == {"opened": 1, "released": 1}


@pytest.mark.clause("g1-test-events")
def test_a_kernel_that_raises_is_a_proven_failure(asynchronous: FakeDevice) -> None:
    device = asynchronous

    def broken(outs: Any, ins: Any) -> None:
        raise FloatingPointError("in the kernel")

    device.endpoint.prepare = lambda call: broken
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    device.finish()
    match handle.wait(30):
        case RetiredFailed(cause=cause, inputs=back):
            assert isinstance(cause.__cause__, FloatingPointError)
            assert back is inputs
        case other:
            raise AssertionError(other)
    assert device.records() == {"opened": 1, "released": 1}


@pytest.mark.clause("g1-test-events")
def test_an_enqueue_that_never_returns_costs_the_engine_and_keeps_everything(
    impatient: FakeDevice,
) -> None:
    device = impatient
    hang = device.fake.hang("enqueue")
    behind = device.inputs([3.0])
    refusals: list[SubmitRejected] = []

    def submit_behind() -> None:
        assert hang.reached.wait(30)
        try:
            device.submit("exp", behind)
        except SubmitRejected as refusal:
            refusals.append(refusal)

    queued = threading.Thread(target=submit_behind)
    queued.start()
    handle = device.submit("exp", device.inputs([1.0]))
    outcome = handle.wait(30)
    queued.join(30)
    # Of the job behind it nothing was enqueued: refused, or retired with its inputs.
    assert not refusals or refusals.pop().recovered is behind
    assert isinstance(outcome, CompletionUnproven)
    assert isinstance(outcome.cause.__cause__, EngineLostError)
    assert len(outcome.diagnostic_keys) == 2
    assert device.engine.is_lost
    inputs = device.inputs([2.0])
    with pytest.raises(SubmitRejected) as caught:
        device.submit("exp", inputs)
    assert caught.value.recovered is inputs
    assert isinstance(caught.value.cause.__cause__, EngineLostError)
    del caught
    hang.let_go()  # the worker comes back and finds that it is too late
    assert device.engine.close(30)
    assert device.records() == {"opened": 1, "unproven": 1}
    assert device.fake.counts["release"] == 0


@pytest.mark.clause("g1-test-events")
def test_an_interrupted_or_impatient_wait_leaves_the_handle_usable(
    device: FakeDevice,
) -> None:
    handle = device.submit("exp", device.inputs([0.0]))
    for patience in (0.0, 0.01):
        with pytest.raises(OutcomePendingError, match="has not retired"):
            handle.wait(patience)
    waiter: list[object] = []
    thread = threading.Thread(target=lambda: waiter.append(handle.wait(30)))
    thread.start()
    device.finish()
    thread.join(30)
    assert value_of(waiter.pop()) == 1.0


@pytest.mark.clause("g1-test-events")
def test_seals_know_what_is_kept_for_good(device: FakeDevice) -> None:
    kept = retirements.unproven_roots
    handle = device.submit("add", device.inputs([1.0], [2.0]))
    device.fake.pending[0].lose()
    outcome = handle.wait(30)
    assert isinstance(outcome, CompletionUnproven)
    assert retirements.unproven_roots - kept == len(outcome.diagnostic_keys) == 3
