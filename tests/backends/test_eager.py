"""Eager operations on asynchronous lanes (amendment A3): records, waits, failures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import Engine
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import (
    CompletionError,
    DeviceMismatchError,
    EngineLostError,
    ExecutionError,
    NotUniqueError,
    SubmitRejected,
    UnsupportedError,
)
from tenferro_ad.storage import DeviceArray, retirements
from tests.backends.lane_support import SECONDS, Counts, Lane, Panicking
from tests.contract.device_support import until

X = np.asarray([0.5, 1.0, 2.0], np.float32)


def at_rest(lane: Lane, values: Any = X) -> ta.EagerTensor:
    x = ta.asarray(values, device=lane.device)
    lane.device.drain()
    return x


def root_of(x: ta.EagerTensor) -> Any:
    """One more holder of the root of a value."""
    group = x._record.container().group()
    return group._owner(group.record(group.slots[0]))._claim._root.clone()


@pytest.mark.clause("g3-eager-execution-record", "g7-lane-async")
def test_a_record_holds_what_is_read_and_written_until_retirement(
    eager_lane: Lane, records: Counts
) -> None:
    lane = eager_lane
    x = at_rest(lane)
    lane.hold()
    before = records()
    y = ta.exp(x)
    assert records()["pending"] == 1
    roots = [root_of(x), root_of(y)]
    held = [root.strong_count for root in roots]
    del x  # the record alone keeps the operand now
    assert [root.strong_count for root in roots] == held
    assert all(count > 2 for count in held)
    lane.let_go()
    lane.device.drain()
    assert [root.strong_count for root in roots] == [1, 2]  # this test; and `y`
    now = records()
    assert now["opened"] - before.get("opened", 0) == 1
    assert now["released"] - before.get("released", 0) == 1
    for root in roots:
        root.release()
    assert np.allclose(y.value().numpy(), np.exp(X), rtol=1e-6)


@pytest.mark.clause("g3-eager-unretired-output")
def test_an_unretired_value_shows_metadata_and_is_used_again_in_queue_order(
    eager_lane: Lane,
) -> None:
    lane = eager_lane
    x = at_rest(lane)
    lane.hold()
    y = ta.exp(x)
    assert (y.shape, y.dtype, y.device) == (X.shape, X.dtype, lane.device)
    assert "on" in repr(y)  # no wait, no transfer
    z = y * y + x
    with pytest.raises(NotUniqueError) as caught:
        y.into_value()
    assert caught.value.recovered is y
    with pytest.raises(NotUniqueError):
        x.into_value()
    del caught
    lane.let_go()
    assert np.allclose(z.value().numpy(), np.exp(X) ** 2 + X, rtol=1e-6)
    lane.device.drain()
    owner = y.into_value()
    assert np.allclose(owner.numpy(), np.exp(X), rtol=1e-6)


@pytest.mark.clause("g3-eager-unretired-output")
def test_every_read_and_every_move_waits(eager_lane: Lane) -> None:
    lane = eager_lane
    x = at_rest(lane)
    wanted = np.exp(X)
    for read in (
        lambda y: y.value().numpy(),
        lambda y: y.numpy(),
        lambda y: np.asarray(y),
        lambda y: np.asarray(y.tolist()),
        lambda y: y.to("cpu").numpy(),
        lambda y: y.duplicate_value().numpy(),
    ):
        with in_flight_for(lane, 0.05):
            y = ta.exp(x)
            assert np.allclose(read(y), wanted, rtol=1e-6)
        del y
    with in_flight_for(lane, 0.05):
        assert float(ta.sum(x)) == 3.5
    w = ta.variable(at_rest(lane))
    with in_flight_for(lane, 0.05):
        with ta.Tape() as tape:
            loss = ta.sum(w * w)
        taken = tape.backward(loss).take_grad(w)
        assert taken is not None
        assert np.allclose(taken.numpy(), 2 * X)


class in_flight_for:
    """Holds a lane, and lets it go from another thread a little later."""

    def __init__(self, lane: Lane, seconds: float) -> None:
        import threading

        self._lane = lane
        self._timer = threading.Timer(seconds, lane.let_go)

    def __enter__(self) -> None:
        self._lane.hold()
        self._timer.start()

    def __exit__(self, *exc: object) -> None:
        self._timer.join()


@pytest.mark.clause("g3-eager-unretired-output")
def test_a_failed_producer_is_a_typed_error_at_each_read_that_depends_on_it(
    eager_failing_lane: Lane, records: Counts
) -> None:
    lane = eager_failing_lane
    x, other = at_rest(lane), at_rest(lane)
    lane.hold()
    y = ta.exp(x)
    z = y + 1.0
    lane.break_off()
    for value in (y, z):
        for _ in range(2):
            with pytest.raises(ExecutionError, match="`exp` failed") as caught:
                value.value()
            assert caught.value.operation == "value"
    before = lane.launched
    late = z * 2.0  # nothing is enqueued behind work that has failed
    assert lane.launched == before
    with pytest.raises(ExecutionError, match="`exp` failed"):
        late.numpy()
    del caught
    assert ta.sum(other).item() == 3.5  # the lane goes on, and operands are intact
    assert x.tolist() == X.tolist()
    lane.device.drain()
    assert records()["opened"] == records()["released"]


def test_what_was_enqueued_behind_work_that_fails_later_has_failed_too() -> None:
    device = FakeProvider()
    x = ta.asarray(X, device=device)
    index = ta.asarray(np.asarray([9]), device=device)
    y = ta.take(x, index)  # fails when it runs, with everything behind it on its way
    z = ta.sum(y * 2.0)
    device.complete()
    for value in (y, z):
        with pytest.raises(ExecutionError, match="`take` failed"):
            value.numpy()
    assert x.tolist() == X.tolist()


def test_what_failed_work_should_have_written_is_not_submitted() -> None:
    device = FakeProvider(auto=True)
    x = ta.asarray(X, device=device)
    y = ta.take(x, ta.asarray(np.asarray([9]), device=device))
    device.drain()
    owner = y.into_value()  # a move asks for no bytes
    runtime = ta.Runtime(device)
    double = ta.trace(lambda v: v * 2.0, ta.Spec((1,), np.float32, device))
    inputs = ta.ExecutionInputs.of_tensors([owner])
    with pytest.raises(SubmitRejected, match="`take` failed") as caught:
        runtime.submit(runtime.compile(double), inputs)
    assert caught.value.recovered is inputs
    runtime.close()


def test_work_that_is_not_proven_is_a_typed_error_and_keeps_its_memory(
    eager_lane: Lane, records: Counts
) -> None:
    lane = eager_lane
    x = at_rest(lane)
    executions = lane.device.executions
    patient, executions.engine = executions.engine, Engine(lane.endpoint, 0.1)
    try:
        lane.hold()
        y = ta.exp(x)
        with pytest.raises(CompletionError, match="nobody can prove"):
            y.value()
        assert records()["unproven"] == 1
        with pytest.raises(NotUniqueError):
            y.into_value()
        with pytest.raises(NotUniqueError):
            x.into_value()
        lane.let_go()
        assert executions.engine.close(SECONDS)
    finally:
        executions.engine = patient
    assert records()["unproven"] == 1


def test_a_panic_after_the_boundary_fails_the_value_and_not_the_call(
    eager_lane: Lane, records: Counts
) -> None:
    lane = eager_lane
    x = at_rest(lane)
    executions = lane.device.executions
    panic = RuntimeError("a panic after the boundary")
    whole = executions.engine
    executions.engine = Engine(Panicking(lane.endpoint, "enqueued", panic), SECONDS)
    try:
        y = ta.exp(x)
        with pytest.raises(ExecutionError, match="a panic after the boundary"):
            y.value()
        assert executions.engine.close(SECONDS)
    finally:
        executions.engine = whole
    del panic
    assert records()["opened"] == records()["released"]
    assert x.tolist() == X.tolist()


def test_a_refusal_before_the_boundary_raises_and_changes_nothing(
    eager_lane: Lane, records: Counts
) -> None:
    lane = eager_lane
    x = at_rest(lane)
    executions = lane.device.executions
    whole = executions.engine
    executions.engine = Engine(lane.endpoint, SECONDS)
    executions.engine.close(SECONDS)
    before, launched = records(), lane.launched
    try:
        with ta.ledger() as led, pytest.raises(EngineLostError):
            ta.exp(x)
        assert led.live == 0
    finally:
        executions.engine = whole
    assert records() == before
    assert lane.launched == launched
    owner = x.into_value()
    assert owner.numpy().tolist() == X.tolist()


@pytest.mark.clause("g3-eager-exclusive-waits")
def test_exclusive_access_waits_for_the_engine_and_then_asks_for_uniqueness(
    eager_lane: Lane,
) -> None:
    lane = eager_lane
    w = ta.variable(at_rest(lane))
    step = ta.fused(lambda E, p, g: p - 0.5 * g)
    with in_flight_for(lane, 0.05):
        y = ta.exp(w)
        assert retirements.pending
        with ta.exclusive(w) as (m,):
            assert not retirements.pending
            ta.update(m, step, y)
    assert np.allclose(w.value().numpy(), X - 0.5 * np.exp(X), rtol=1e-6)
    holder = w.clone()
    with pytest.raises(NotUniqueError), ta.exclusive(w):
        pass
    del holder


def test_an_update_in_place_is_one_launch_and_no_allocation(eager_lane: Lane) -> None:
    lane = eager_lane
    w, g = ta.variable(at_rest(lane)), at_rest(lane)
    step = ta.fused(lambda E, p, g, lr: p - lr * g)
    before = lane.launched
    with ta.ledger() as led:
        with ta.exclusive(w) as (m,):
            ta.update(m, step, g, 0.5)
        lane.device.drain()
    led.expect(allocations={}, copies={})
    assert lane.launched == before + 1
    assert w.tolist() == (X * 0.5).tolist()


def test_uploads_own_their_staging_memory(eager_lane: Lane) -> None:
    lane = eager_lane
    source = X.copy()
    at_rest(lane)
    lane.hold() if lane.name != "fake" else None  # the fake device writes at once
    x = ta.asarray(source, device=lane.device)
    source[:] = 9.0
    lane.let_go()
    assert x.tolist() == X.tolist()


def test_views_are_second_descriptors_on_the_device(eager_lane: Lane) -> None:
    lane = eager_lane
    x = at_rest(lane, np.arange(12, dtype=np.float32).reshape(3, 4))
    with ta.ledger() as led:
        v = x.T[::-1, 1:]
        assert led.allocations == {}
        assert isinstance(v._record.array, DeviceArray)
        assert v._record.array.allocation is x._record.array.allocation
        sums = v + 0.0
    led.expect(allocations={"OperationOutput": 1}, copies={})
    wanted = np.arange(12, dtype=np.float32).reshape(3, 4).T[::-1, 1:]
    assert np.array_equal(sums.value().numpy(), wanted)
    assert np.array_equal(v.value().numpy(), wanted)
    whole = v.reshape((8,))  # strides cannot express it: one duplicate
    assert np.array_equal(whole.numpy(), wanted.reshape(-1))


def test_values_of_two_devices_do_not_meet(eager_lane: Lane) -> None:
    x = at_rest(eager_lane)
    with pytest.raises(DeviceMismatchError, match="`cpu`"):
        x + ta.asarray(X)
    assert (x + X).device is eager_lane.device  # outside data joins the operand


def test_what_a_lane_lacks_is_refused_before_anything_happens(
    eager_lane: Lane,
) -> None:
    lane = eager_lane
    if lane.name == "fake":
        lane.device.fail("supports")
    x = at_rest(lane, np.eye(3, dtype=np.float32))
    before = lane.launched
    with ta.ledger() as led, pytest.raises(UnsupportedError, match=lane.device.name):
        ta.linalg.det(x)  # nothing but the host computes it
    led.expect(allocations={}, copies={})
    assert lane.launched == before


def test_many_operations_in_flight_are_bounded(eager_lane: Lane) -> None:
    from tenferro_ad.backends import MOST_IN_FLIGHT

    lane = eager_lane
    x = at_rest(lane)
    y = x
    for _ in range(MOST_IN_FLIGHT + 50):
        y = y * 1.0
    assert lane.device.executions.count <= MOST_IN_FLIGHT
    assert y.tolist() == X.tolist()


@pytest.fixture
def small_limit(eager_lane: Lane) -> Iterator[Lane]:
    """A lane whose device may hold little more than it does."""
    lane = eager_lane
    lane.device.drain()
    before, lane.device.limit = lane.device.limit, lane.device.live_bytes + 8192
    yield lane
    lane.device.limit = before


def test_a_byte_limit_refuses_before_anything_is_enqueued(small_limit: Lane) -> None:
    lane = small_limit
    x = at_rest(lane, np.ones(1024, np.float32))
    before = lane.launched
    kept = []
    with ta.ledger() as led, pytest.raises(MemoryError):
        for _ in range(4):
            kept.append(ta.exp(x))
    assert len(kept) == 1  # the limit holds two values
    assert led.live == 1
    assert lane.launched == before + 1
    kept.clear()
    until(lambda: led.live == 0)
    assert ta.exp(x).shape == x.shape
