"""Loops and branches as submitted work: several launches, one task, one outcome.

The worker of the engine decides what runs next; whoever submitted waits for the first
launch at most. WebGPU, whose kernels may not read and write one buffer, refuses them
before admission.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.storage import retirements
from tests.backends.lane_support import SECONDS, Counts, Lane, no_cpu_kernels
from tests.backends.test_device_loops import (
    FUNCTIONS,
    branched,
    data,
    gradient,
    leaves,
    places,
    scanned,
    until,
)


def graph_of(runtime: ta.Runtime, fn: Any, *arrays: Any) -> Any:
    device = runtime.endpoint.memory
    specs = [ta.Spec(a.shape, ta.float32, device=device) for a in arrays]
    return runtime.compile(ta.trace(fn, *specs))


def package(lane: Lane, *arrays: Any, donate: Any = ()) -> ta.ExecutionInputs:
    tensors = [lane.tensor(a) for a in arrays]
    return ta.ExecutionInputs.of_tensors(tensors, donate=donate)


def values(outcome: Any) -> list[Any]:
    assert isinstance(outcome, ta.Completed), outcome
    bundle = outcome.bundle
    return [np.array(bundle.output(k).numpy()) for k in range(len(bundle))]


@pytest.mark.clause("g3-row-draining-to-completed")
@pytest.mark.parametrize("mode", ["forward", "gradient"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_submitted_loop_makes_the_events_of_a_call(
    eager_lane: Lane, records: Counts, name: str, mode: str
) -> None:
    lane = eager_lane
    fn = FUNCTIONS[name] if mode == "forward" else gradient(FUNCTIONS[name])
    runtime = ta.Runtime(lane.device)
    fast, x = ta.compile(fn), ta.asarray(data(7), device=lane.device)
    wanted = [np.array(y) for y in leaves(fast(x))]
    with ta.ledger() as called:
        fast(x)
    lane.device.drain()
    graph, inputs = graph_of(runtime, fn, data(7)), package(lane, data(7))
    before = records()["opened"]
    with no_cpu_kernels(), ta.ledger() as led:
        outcome = runtime.submit(graph, inputs).wait(SECONDS)
    now = records()
    assert now["opened"] > before
    assert now["released"] == now["opened"]
    for found, expected in zip(values(outcome), wanted, strict=True):
        assert np.array_equal(found, expected)
    assert led.allocations == called.allocations
    assert led.copies == called.copies
    assert runtime.close(SECONDS)


def test_both_sides_of_a_branch_and_no_step_at_all(eager_lane: Lane) -> None:
    runtime = ta.Runtime(eager_lane.device)

    def none(x: Any) -> Any:
        return ta.while_loop(lambda s: ta.sum(s) < -1e6, lambda s: s + 1.0, x)

    for fn, sign in ((branched, 1.0), (branched, -1.0), (none, 1.0)):
        x = data(3, sign)
        found = runtime.submit(graph_of(runtime, fn, x), package(eager_lane, x))
        (y,) = values(found.wait(SECONDS))
        assert np.allclose(y, fn(ta.asarray(x)).numpy(), rtol=1e-5)
    assert runtime.close(SECONDS)


def test_a_test_that_is_an_input_needs_no_launch_before_it(eager_lane: Lane) -> None:
    """A constant, an input and a donated input are asked, and what is in between."""
    device, runtime = eager_lane.device, ta.Runtime(eager_lane.device)
    flag = ta.asarray(True, device=device)

    def fn(x: Any, k: Any) -> Any:
        x = ta.cond(flag, lambda x: x * 2.0, lambda x: x, x)
        x = ta.switch(k, [lambda x: x, lambda x: x + 1.0, lambda x: x + 2.0], x)
        return x, k + 1

    x, k = data(2), np.asarray(2, np.int32)
    specs = [ta.Spec(x.shape, ta.float32, device=device)]
    specs += [ta.Spec((), ta.int32, device=device)]
    graph = runtime.compile(ta.trace(fn, *specs))
    for donate in ((), (1,), (0, 1)):
        both = [ta.asarray(a, device=device) for a in (x, k)]
        device.drain()
        tensors = [both.pop(0).into_value() for _ in range(2)]
        inputs = ta.ExecutionInputs.of_tensors(tensors, donate=donate)
        y, more = values(runtime.submit(graph, inputs).wait(SECONDS))
        assert np.allclose(y, x * 2.0 + 2.0, rtol=1e-6)
        assert more == 3
    assert runtime.close(SECONDS)


def test_donated_inputs_of_a_loop_are_written_over(eager_lane: Lane) -> None:
    def fn(w: Any, x: Any) -> Any:
        found = ta.scan(lambda w, t: (w * 0.5 + t, None), w, x)[0]
        return ta.cumulative_sum(found)

    runtime = ta.Runtime(eager_lane.device)
    w, x = np.ones(5, np.float32), data(6)
    wanted = fn(ta.asarray(w), ta.asarray(x)).numpy()
    graph = graph_of(runtime, fn, w, x)
    for _ in range(2):
        inputs = package(eager_lane, w, x, donate=[0])
        with ta.ledger() as led:
            outcome = runtime.submit(graph, inputs).wait(SECONDS)
        assert led.allocations == {"OperationOutput": places(eager_lane)}
        assert np.allclose(values(outcome)[0], wanted, rtol=1e-5)
    assert runtime.close(SECONDS)


@pytest.mark.clause("g3-admission-transfers")
def test_the_caller_waits_for_the_first_launch_only(eager_lane: Lane) -> None:
    lane, runtime = eager_lane, ta.Runtime(eager_lane.device)
    x = data(200)
    graph = graph_of(runtime, scanned, x)
    first, behind = package(lane, x), package(lane, x)
    lane.hold()
    handles = [runtime.submit(graph, first), runtime.submit(graph, behind)]
    assert not any(handle.is_done for handle in handles)
    with pytest.raises(ta.errors.OutcomePendingError):
        handles[0].wait(0.01)
    lane.let_go()
    found = [values(handle.wait(SECONDS)) for handle in handles]
    wanted = leaves(scanned(ta.asarray(x)))
    for outputs in found:
        for y, expected in zip(outputs, wanted, strict=True):
            assert np.allclose(y, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert runtime.close(SECONDS)


def test_a_dropped_handle_changes_nothing_for_a_loop(
    eager_lane: Lane, records: Counts
) -> None:
    runtime = ta.Runtime(eager_lane.device)
    x = data(20)
    runtime.submit(graph_of(runtime, until, x), package(eager_lane, x))
    assert runtime.close(SECONDS)
    now = records()
    assert now["opened"] == now["released"] > 20  # a launch for each test, at least


def test_a_long_loop_keeps_the_records_of_its_last_launches(
    eager_lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    pending: list[int] = []
    enqueue = eager_lane.endpoint.enqueue

    def counting(launch: Any) -> object:
        pending.append(retirements.pending)
        return enqueue(launch)

    monkeypatch.setattr(eager_lane.endpoint, "enqueue", counting, raising=False)
    runtime = ta.Runtime(eager_lane.device)
    x = data(30)
    graph, inputs = graph_of(runtime, until, x), package(eager_lane, x)
    pending.clear()
    values(runtime.submit(graph, inputs).wait(SECONDS))
    assert len(pending) > 30
    assert max(pending) <= min(pending) + 2
    assert runtime.close(SECONDS)


@pytest.mark.clause("g3-row-draining-to-failed")
def test_a_launch_that_fails_ends_the_loop_and_gives_the_inputs_back(
    eager_lane: Lane, monkeypatch: pytest.MonkeyPatch, records: Counts
) -> None:
    lane, runtime = eager_lane, ta.Runtime(eager_lane.device)
    x = data(9)
    graph, inputs = graph_of(runtime, until, x), package(lane, x)
    enqueue, count = lane.endpoint.enqueue, [0]

    def broken(launch: Any) -> object:
        count[0] += 1
        if count[0] == 5:
            raise ArithmeticError("the fifth launch")
        return enqueue(launch)

    with monkeypatch.context() as patch:
        patch.setattr(lane.endpoint, "enqueue", broken, raising=False)
        outcome = runtime.submit(graph, inputs).wait(SECONDS)
    assert isinstance(outcome, ta.RetiredFailed)
    assert count[0] == 5  # nothing follows
    assert "the fifth launch" in str(outcome.cause)
    assert outcome.inputs is inputs
    found = values(runtime.submit(graph, inputs).wait(SECONDS))
    assert np.allclose(found[1], leaves(until(ta.asarray(x)))[1].numpy(), rtol=1e-5)
    del outcome
    assert runtime.close(SECONDS)
    assert records()["opened"] == records()["released"]


def test_a_launch_that_is_refused_before_any_rejects_the_loop(
    eager_lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane, runtime = eager_lane, ta.Runtime(eager_lane.device)
    x = data(4)
    graph, inputs = graph_of(runtime, until, x), package(lane, x)

    def refusing(launch: Any) -> object:
        raise ta.errors.NotEnqueuedError(operation="enqueue", found="no room")

    with monkeypatch.context() as patch:
        patch.setattr(lane.endpoint, "enqueue", refusing, raising=False)
        with pytest.raises(ta.errors.SubmitRejected) as caught:
            runtime.submit(graph, inputs)
    _, back = caught.value.into_parts()
    assert back is inputs
    values(runtime.submit(graph, inputs).wait(SECONDS))
    assert runtime.close(SECONDS)


@pytest.mark.clause("g3-row-draining-to-unproven")
def test_a_wait_without_proof_ends_the_loop_unproven(
    eager_lane: Lane, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = eager_lane
    runtime = ta.Runtime(lane.device, deadline=0.2)
    x = data(4)
    graph, inputs = graph_of(runtime, until, x), package(lane, x)
    with monkeypatch.context() as patch:
        patch.setattr(
            type(lane.endpoint), "await_event", lambda *args: "unproven", raising=True
        )
        outcome = runtime.submit(graph, inputs).wait(SECONDS)
    assert isinstance(outcome, ta.CompletionUnproven)
    assert outcome.diagnostic_keys
    lane.device.drain()
