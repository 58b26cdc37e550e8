"""G5: raw handles and reclamation. One test for each clause, named after it."""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import tenferro_ad
from tenferro_ad import backends, runtime, storage
from tenferro_ad._ownership import MoveOnly
from tenferro_ad.backends import BoundLaunch, PreparedLaunch, bind_launch, enqueue
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import (
    AllocationLimitError,
    BindError,
    BorrowConflictError,
    BorrowedSubmitRejected,
    DeviceMismatchError,
    ExecutionError,
    InvalidArgumentError,
    NotEnqueuedError,
    OutcomePendingError,
    ShapeError,
    SubmitError,
    SubmitRejected,
    UnsupportedError,
    UseAfterMoveError,
)
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import (
    BorrowedBindings,
    Completed,
    CompletionUnproven,
    ExecutionHandle,
    ExecutionInputs,
    ExecutionOutcome,
    RetiredBorrowed,
    RetiredFailed,
    Submission,
    submit_borrowed,
)
from tenferro_ad.storage import (
    AllocationGroup,
    DeviceRead,
    DeviceWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    RetirementRecord,
    Tensor,
    bind_read,
    bind_write,
    validations,
)
from tests.contract.device_support import (
    BorrowDevice,
    Counts,
    FakeDevice,
    strong,
    upload,
    value_of,
)

PACKAGE = Path(tenferro_ad.__file__).parent


@pytest.fixture
def host() -> BorrowDevice:
    return BorrowDevice()


def parameters(call: Any) -> list[str]:
    return [p for p in inspect.signature(call).parameters if p != "self"]


def hints(call: Any) -> dict[str, str]:
    return {n: str(t) for n, t in inspect.get_annotations(call).items()}


# ---- binding


@pytest.mark.clause("g5-bind-signature")
def test_binding_uses_up_the_payload_and_a_failure_carries_it_back(
    device: FakeDevice,
) -> None:
    assert hints(bind_read) == {
        "prepared": "PreparedDeviceRead",
        "return": "DeviceRead",
    }
    assert hints(bind_write) == {
        "prepared": "PreparedDeviceWrite",
        "return": "DeviceWrite",
    }
    tensor = device.tensor([1.0])
    for prepare, bind, kind in (
        (tensor.prepare_device, bind_read, DeviceRead),
        (tensor.prepare_device_mut, bind_write, DeviceWrite),
    ):
        payload = prepare()
        for fault in ("fail", "raise"):
            if fault == "fail":
                device.fake.fail("bind")
            else:
                device.fake.raise_("bind", OSError("driver"))
            with pytest.raises(BindError) as caught:
                bind(payload)
            assert caught.value.recovered is payload
            del caught
        bound = bind(payload)
        assert type(bound) is kind
        with pytest.raises(UseAfterMoveError):
            bind(payload)
        bound.close()
    with pytest.raises(InvalidArgumentError, match="PreparedDeviceWrite"):
        bind_write(tensor.prepare_device())  # type: ignore[arg-type]


@pytest.mark.clause("g5-bind-no-provider-argument")
def test_binding_reaches_the_provider_through_the_root_and_counts_nothing(
    device: FakeDevice,
) -> None:
    assert parameters(bind_read) == parameters(bind_write) == ["prepared"]
    tensor = device.tensor([1.0])
    context = tensor._owner_storage._resource.provider
    bound = bind_read(tensor.prepare_device())
    assert strong(tensor) == context.strong_count == 1
    assert device.fake.counts["bind"] == 1
    assert tensor._owner_storage._borrow.outstanding == "shared"
    bound.close()
    source = (PACKAGE / "storage" / "_binding.py").read_text(encoding="utf-8")
    assert "clone" not in source


@pytest.mark.clause("g1-no-replacement-arguments", "g5-bind-signature")
def test_nothing_on_the_way_to_a_device_takes_a_second_description() -> None:
    steps = {
        bind_read: ["prepared"],
        bind_write: ["prepared"],
        bind_launch: ["prepared"],
        enqueue: ["bound"],
        backends.run_synchronously: ["bound"],
        submit_borrowed: ["bindings"],
        Submission.submit_detached: ["inputs"],
    }
    for step, names in steps.items():
        assert parameters(step) == names, step
    # No constructor pairs an access with a descriptor: these cannot be made at all, and
    # what joins them inside takes both from one place.
    for kind in (PreparedDeviceRead, PreparedDeviceWrite, DeviceRead, DeviceWrite):
        assert issubclass(kind, MoveOnly)
        assert kind.__new__ is MoveOnly.__new__
    for kind in (PreparedLaunch, BoundLaunch, RetirementRecord, BorrowedBindings):
        assert kind.__new__ is MoveOnly.__new__
    joins = []
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Attribute(value=ast.Name(id=kind), attr="_join"):
                    if kind in {"CheckedRead", "CheckedWrite"}:
                        joins.append(file.stem)
    assert set(joins) == {"_view", "_view_mut"}


# ---- detached submission


@pytest.mark.clause("g5-task-derives-bindings")
def test_a_task_derives_its_own_bindings_from_what_it_owns(device: FakeDevice) -> None:
    threads: list[str] = []
    fake = device.fake
    prepare = fake.prepare_device

    def seen(buffer: Any, mode: str) -> object:
        threads.append(f"{threading.current_thread().name} {mode}")
        return prepare(buffer, mode)

    fake.prepare_device = seen  # type: ignore[method-assign]
    handle = device.submit("exp", device.inputs([1.0]))
    assert threads == ["fake:0 work read", "fake:0 work write"]
    tensor = device.tensor([1.0])
    bound = bind_read(tensor.prepare_device())
    for lent in (bound, tensor, [bound], (tensor,)):
        with pytest.raises(InvalidArgumentError, match="ExecutionInputs"):
            Submission(device.engine, OPS["exp"]).submit_detached(lent)  # type: ignore
    bound.close()
    group, slots = AllocationGroup.of_tensors([tensor])
    view = group.view(slots[0])
    with pytest.raises(BorrowConflictError):  # a caller's borrow cannot come along
        ExecutionInputs(group, slots)
    view.close()
    inputs = ExecutionInputs(group, slots)
    with pytest.raises(UseAfterMoveError):
        group.view(slots[0])
    del inputs
    device.finish()
    assert value_of(handle.wait(30)) == np.exp(1.0)


@pytest.mark.clause("g5-submit-detached-signature")
def test_submit_detached_takes_inputs_and_gives_a_handle_or_a_rejection(
    device: FakeDevice,
) -> None:
    call = Submission.submit_detached
    assert hints(call) == {"inputs": "ExecutionInputs", "return": "ExecutionHandle"}
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    assert type(handle) is ExecutionHandle
    kinds = {getattr(kind, "__origin__", kind) for kind in get_args(ExecutionOutcome)}
    assert kinds == {Completed, RetiredFailed, CompletionUnproven}
    device.finish()
    assert value_of(handle.wait(30)) == np.exp(1.0)
    with pytest.raises(UseAfterMoveError):
        device.submit("exp", inputs)
    device.fake.fail("supports")
    fresh = device.inputs([1.0])
    with pytest.raises(SubmitRejected) as caught:
        device.submit("exp", fresh)
    cause, back = caught.value.into_parts()
    assert isinstance(cause, SubmitError)
    assert isinstance(cause.__cause__, UnsupportedError)
    assert back is fresh


def before_the_boundary() -> Iterator[Any]:
    for step in ("supports", "compile", "allocate", "prepare", "bind", "enqueue"):
        yield pytest.param(step, None, id=f"{step} fails")
    for step in ("supports", "compile", "allocate", "prepare", "bind"):
        yield pytest.param(step, ZeroDivisionError("driver"), id=f"{step} raises")


@pytest.mark.clause("g5-admission-boundary", "g5-rejection-reserved")
@pytest.mark.parametrize(("step", "error"), list(before_the_boundary()))
@pytest.mark.parametrize("after", [0, 1])
def test_a_failure_before_the_boundary_hands_the_exact_package_back(
    device: FakeDevice, step: str, error: BaseException | None, after: int
) -> None:
    inputs = device.inputs([1.0], [2.0])
    if step not in ("prepare", "bind"):
        after = 0  # one call of these steps comes before the boundary
    if error is None:
        device.fake.fail(step, after=after)  # type: ignore[arg-type]
    else:
        device.fake.raise_(step, error, after=after)  # type: ignore[arg-type]
    with pytest.raises(SubmitRejected) as caught:
        device.submit("add", inputs)
    assert caught.value.recovered is inputs
    del caught
    assert device.records() in ({}, {"opened": 1, "undone": 1})
    assert device.fake.pending == ()
    assert device.fake.outstanding == {"buffers": 2}
    handle = device.submit("add", inputs)  # the very same package, nothing lost
    device.finish()
    assert value_of(handle.wait(30)) == 3.0


@pytest.mark.clause("g5-rejection-reserved")
def test_what_can_be_known_at_once_is_refused_at_once(device: FakeDevice) -> None:
    def cause_of(op: str, inputs: ExecutionInputs, *params: Any) -> BaseException:
        with pytest.raises(SubmitRejected) as caught:
            device.submit(op, inputs, *params)
        cause, back = caught.value.into_parts()
        assert back is inputs
        assert isinstance(cause.__cause__, Exception)
        return cause.__cause__

    assert isinstance(cause_of("add", device.inputs([1.0])), ShapeError)
    assert isinstance(
        cause_of("add", device.inputs([1.0, 2.0], [1.0, 2.0, 3.0])), ShapeError
    )
    elsewhere = ExecutionInputs.of_tensors([upload([1.0], backends.CPU)])
    assert isinstance(cause_of("exp", elsewhere), DeviceMismatchError)
    assert isinstance(
        cause_of("reshape", device.inputs([1.0]), (1, 1)), UnsupportedError
    )
    inputs = device.inputs([1.0])
    device.fake.limit = 0
    refusal = cause_of("exp", inputs)
    assert isinstance(refusal, AllocationLimitError)
    assert isinstance(refusal, MemoryError)
    assert device.fake.counts["enqueue"] == 0
    assert device.records() == {}


@pytest.mark.clause("g5-post-boundary-drains")
def test_after_a_possible_enqueue_ownership_comes_back_only_with_proof(
    device: FakeDevice,
) -> None:
    inputs = device.inputs([1.0])
    device.fake.raise_("enqueue", OSError("the connection broke"))
    handle = device.submit("exp", inputs)  # no error here: the work may be running
    assert len(device.fake.pending) == 1
    with pytest.raises(UseAfterMoveError):
        inputs.into_parts()
    assert not handle.is_done
    device.finish()  # now the queue is known to be empty
    match handle.wait(30):
        case RetiredFailed(cause=ExecutionError() as cause, inputs=back):
            assert isinstance(cause.__cause__, OSError)
            assert back is inputs
        case other:
            raise AssertionError(other)
    assert device.fake.counts["synchronise"] == 1
    assert device.records() == {"opened": 1, "released": 1}
    assert device.fake.outstanding == {"buffers": 1}


@pytest.mark.clause("g5-post-boundary-drains")
@pytest.mark.parametrize("answer", ["fail", "raise", "hang"])
def test_without_an_event_and_without_a_drained_queue_nothing_comes_back(
    impatient: FakeDevice, answer: str
) -> None:
    device = impatient
    device.fake.raise_("enqueue", OSError("the connection broke"))
    if answer == "fail":
        device.fake.fail("synchronise")
    elif answer == "raise":
        device.fake.raise_("synchronise", OSError("still broken"))
    else:
        device.fake.hang("synchronise")
    handle = device.submit("exp", device.inputs([1.0]))
    outcome = handle.wait(30)
    assert isinstance(outcome, CompletionUnproven)
    assert isinstance(outcome.cause.__cause__, OSError)
    assert device.records() == {"opened": 1, "unproven": 1}
    assert device.fake.counts["release"] == 0


# ---- borrowed submission


@pytest.mark.clause("g5-submit-borrowed-signature")
def test_submit_borrowed_takes_bindings_and_gives_them_back_either_way(
    host: BorrowDevice, device: FakeDevice
) -> None:
    assert hints(submit_borrowed) == {
        "bindings": "BorrowedBindings",
        "return": "RetiredBorrowed",
    }
    kinds = {getattr(kind, "__origin__", kind) for kind in get_args(RetiredBorrowed)}
    assert kinds == {Completed, RetiredFailed}
    source, target = host.tensor([0.0, 1.0]), host.tensor([9.0, 9.0])
    bindings = host.bindings("exp", source, target)
    match submit_borrowed(bindings):
        case Completed(bundle=back):
            assert back is bindings
        case other:
            raise AssertionError(other)
    bindings.close()
    assert np.allclose(target.numpy(), np.exp([0.0, 1.0]))
    with pytest.raises(UseAfterMoveError):
        submit_borrowed(bindings)


@pytest.mark.clause("g5-borrowed-optional")
def test_borrowed_work_is_over_when_the_call_returns_or_raises(
    host: BorrowDevice,
) -> None:
    running = threading.active_count()
    source, target = host.tensor([1.0]), host.tensor([0.0])
    for error in (ArithmeticError("in the kernel"), KeyboardInterrupt()):

        def broken(outs: Any, ins: Any, error: BaseException = error) -> None:
            outs[0][...] = -1.0
            raise error

        host.endpoint.prepare = lambda call, broken=broken: broken  # type: ignore
        bindings = host.bindings("exp", source, target)
        if isinstance(error, Exception):
            outcome = submit_borrowed(bindings)
            assert isinstance(outcome, RetiredFailed)
            assert outcome.cause.__cause__ is error
            assert outcome.inputs is bindings
        else:
            with pytest.raises(KeyboardInterrupt):
                submit_borrowed(bindings)
        bindings.close()  # still the caller's, whatever happened
        assert target._owner_storage._borrow.outstanding is None
        assert target.numpy()[0] == -1.0
        target.fill(0.0)
    assert threading.active_count() == running
    offered = [
        kind
        for kind in (
            backends.HostEndpoint,
            backends.HostStream,
            FakeProvider,
        )
        if kind.is_synchronous  # type: ignore[attr-defined]
    ]
    assert offered == [backends.HostEndpoint]
    error.__traceback__ = None


# ---- state rows: capability, borrow, synchronisation, failure, panic/drop, reclamation


@pytest.mark.clause("g5-row-bind")
def test_row_a_prepared_payload_becomes_a_binding(device: FakeDevice) -> None:
    tensor = device.tensor([1.0])
    borrow = tensor._owner_storage._borrow
    payload = tensor.prepare_device_mut()
    proofs = validations.snapshot()
    device.fake.fail("bind")
    with pytest.raises(BindError) as caught:
        bind_write(payload)
    assert caught.value.recovered is payload  # failure: the same payload
    del caught
    bound = bind_write(payload)
    assert borrow.outstanding == "exclusive"  # capability: what was prepared
    for call in (tensor.as_view, tensor.as_view_mut):  # borrow: kept by the binding
        with pytest.raises(BorrowConflictError):
            call()
    assert device.fake.counts["bind"] == 2  # synchronisation: bind work only
    assert device.fake.counts["synchronise"] == device.fake.counts["map"] == 0
    assert validations.snapshot() == proofs
    assert device.fake.outstanding["bindings"] == 1
    del bound, payload, call  # panic/drop: an unadmitted binding just goes
    assert borrow.outstanding is None
    assert device.fake.outstanding == {"buffers": 1}
    kept = bind_read(tensor.prepare_device())
    del tensor
    assert device.fake.counts["deallocate"] == 0  # reclamation: not before it
    kept.close()
    del kept, borrow
    assert device.fake.outstanding == {}


@pytest.mark.clause("g5-row-pre-admission-rejection")
def test_row_a_submission_is_refused_with_proof_that_nothing_ran(
    device: FakeDevice,
) -> None:
    inputs = device.inputs([1.0])
    device.fake.fail("enqueue")
    with pytest.raises(SubmitRejected) as caught:
        device.submit("exp", inputs)
    cause, back = caught.value.into_parts()
    assert isinstance(cause.__cause__, NotEnqueuedError)
    assert back is inputs  # failure: the same package; capability: owning
    assert back._ei_group._cell.outstanding is None  # borrow: nothing crossed
    assert device.fake.pending == ()  # synchronisation: nothing enqueued
    # panic/drop: the record that was opened for the call is gone again.
    assert device.records() == {"opened": 1, "undone": 1}
    assert device.fake.outstanding == {"buffers": 1}
    group, (slot,) = back.into_parts()  # reclamation: the caller keeps ownership
    with group.view(slot) as view:
        assert view.get((0,)) == 1.0
    tensor = group.into_tensor(slot)
    assert strong(tensor) == 1


@pytest.mark.clause("g5-row-pre-admission-rejection", "g5-rejection-reserved")
def test_a_refused_launch_is_the_same_launch_again(device: FakeDevice) -> None:
    source, target = device.tensor([1.0]), device.tensor([0.0])
    call = runtime._submission.planned(
        device.fake, OPS["exp"], (upload_aval(source),), ()
    )
    prepared = PreparedLaunch._of(
        device.fake,
        device.fake.prepare(call),
        [source.as_view()],
        [target.as_view_mut()],
    )
    bound = bind_launch(prepared)
    device.fake.fail("enqueue", times=2)
    for _ in range(2):
        with pytest.raises(NotEnqueuedError) as caught:
            enqueue(bound)
        assert caught.value.recovered is bound
        del caught
    record = enqueue(bound)
    device.finish()
    assert record._release() == []
    assert target.numpy()[0] == np.exp(1.0)


def upload_aval(tensor: Tensor) -> Any:
    from tenferro_ad._aval import aval_of

    return aval_of(tensor.shape, tensor.dtype, tensor.device)


@pytest.mark.clause("g5-row-enqueue-to-draining")
def test_row_a_possible_enqueue_enters_draining(device: FakeDevice) -> None:
    inputs = device.inputs([1.0])
    device.fake.raise_("enqueue", OSError("after the launch was taken"))
    handle = device.submit("exp", inputs)
    with pytest.raises(UseAfterMoveError):  # capability: owning, by the task
        inputs.into_parts()
    assert inputs._ei_group._cell.outstanding is None  # borrow: local to the task
    with pytest.raises(OutcomePendingError):  # synchronisation: waits for the queue
        handle.wait(0.01)
    assert not handle.is_done  # failure: nothing back at once
    del handle  # panic/drop: worker or reaper keeps package, bindings, roots, context
    assert device.fake.outstanding == {"buffers": 2, "reservations": 2, "bindings": 2}
    assert device.records() == {"opened": 1, "pending": 1}
    device.finish()
    assert device.engine.close(30)
    assert device.records() == {"opened": 1, "released": 1}
    del inputs
    assert device.fake.outstanding == {}  # reclamation: after proof only


@pytest.mark.clause("g5-row-draining-to-failed")
def test_row_draining_ends_in_a_proven_failure(device: FakeDevice) -> None:
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    (event,) = device.fake.pending
    event.fail(OSError("bad address"))
    outcome = handle.wait(30)  # synchronisation: completion is shown
    assert isinstance(outcome, RetiredFailed)  # failure: owners, with a typed cause
    assert isinstance(outcome.cause.__cause__, OSError)
    assert outcome.inputs is inputs  # capability: the worker's until now
    assert inputs._ei_group._cell.outstanding is None  # borrow: none
    assert device.records() == {"opened": 1, "released": 1}  # panic/drop: once each
    assert device.fake.counts["release"] == 5
    assert device.fake.outstanding == {"buffers": 1}
    group, (slot,) = inputs.into_parts()  # reclamation: owners under G1
    assert group.view(slot).numpy()[0] == 1.0


@pytest.mark.clause("g5-row-draining-to-completed")
def test_row_draining_ends_completed(device: FakeDevice) -> None:
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    device.finish()
    outcome = handle.wait(30)  # synchronisation: completion is shown
    assert isinstance(outcome, Completed)  # failure: none, a completed bundle
    with pytest.raises(UseAfterMoveError):  # capability: the package became the bundle
        inputs.into_parts()
    assert outcome.bundle._eb_group._cell.outstanding is None  # borrow: none
    assert device.records() == {"opened": 1, "released": 1}  # panic/drop: once each
    assert device.fake.counts["release"] == 5
    tensor = outcome.bundle.into_output(0)  # reclamation: the bundle under G1
    assert strong(tensor) == 1
    assert device.fake.outstanding == {"buffers": 1}
    assert tensor.numpy()[0] == np.exp(1.0)


@pytest.mark.clause("g5-row-async-refuses-borrowed")
def test_row_an_asynchronous_provider_refuses_borrowed_submission(
    asynchronous: FakeDevice,
) -> None:
    device = asynchronous
    source, target = device.tensor([1.0]), device.tensor([0.0])
    bindings = BorrowedBindings.of_views(
        device.endpoint, OPS["exp"], [source.as_view()], [target.as_view_mut()]
    )
    before = Counts()
    with pytest.raises(BorrowedSubmitRejected) as caught:
        submit_borrowed(bindings)
    cause, back = caught.value.into_parts()
    assert back is bindings  # failure: unsupported, with the same bindings
    assert isinstance(cause.__cause__, UnsupportedError)
    borrow = target._owner_storage._borrow
    assert borrow.outstanding == "exclusive"  # capability and borrow: untouched
    assert before() == {}  # synchronisation: none, refused before admission
    if hasattr(device, "fake"):
        assert device.fake.counts["enqueue"] == 0  # panic/drop: nothing runs
    back.close()  # reclamation: the caller keeps the bindings, and ends them
    assert borrow.outstanding is None
    assert (strong(source), strong(target)) == (1, 1)


@pytest.mark.clause("g5-row-borrowed-retired")
def test_row_an_admitted_borrowed_operation_retires(host: BorrowDevice) -> None:
    source, target = host.tensor([1.0]), host.tensor([0.0])
    read, write = source._owner_storage._borrow, target._owner_storage._borrow
    records = Counts()
    bindings = host.bindings("exp", source, target)
    # capability: shared for what is read, exclusive for what is written
    assert (read.outstanding, write.outstanding) == ("shared", "exclusive")
    outcome = submit_borrowed(bindings)
    assert isinstance(outcome, Completed)
    assert outcome.bundle is bindings  # failure: bindings come inside an outcome only
    assert write.outstanding == "exclusive"  # borrow: until the bindings go
    assert records() == {}  # synchronisation: over inside the call, no record needed
    assert submit_borrowed(bindings).bundle is bindings  # type: ignore[union-attr]
    del outcome, bindings  # panic/drop: nothing is running that could care
    assert (read.outstanding, write.outstanding) == (None, None)
    assert target.numpy()[0] == np.exp(1.0)  # reclamation: after the call, the owner's
    assert (strong(source), strong(target)) == (1, 1)


@pytest.mark.clause("g5-row-unproven")
def test_row_retirement_cannot_be_proven(device: FakeDevice) -> None:
    inputs = device.inputs([1.0])
    handle = device.submit("exp", inputs)
    held = device.fake.outstanding
    device.fake.pending[0].lose()
    outcome = handle.wait(30)  # synchronisation: completion is not shown
    assert isinstance(outcome, CompletionUnproven)  # failure: diagnostics, no owner
    assert {key.domain for key in outcome.diagnostic_keys} == {"fake:0"}
    with pytest.raises(UseAfterMoveError):  # capability: a private record's
        inputs.into_parts()
    del outcome, handle, inputs  # borrow: none public
    assert device.engine.close(30)
    assert device.records() == {"opened": 1, "unproven": 1}
    assert device.fake.outstanding == held  # panic/drop: all of it is kept for good
    assert device.fake.counts["deallocate"] == 0  # reclamation: never
    # Nothing public names what is kept.
    for module in (storage, backends, runtime, tenferro_ad):
        assert not {n for n in dir(module) if "retained" in n.lower()} - {"Retained"}
