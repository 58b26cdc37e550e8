"""Facts of OpenCL that the backend rests on, each held by a test, so that an upgrade of
a driver that changes one of them shows.

What any provider must do is in `test_conformance.py`; here is what is OpenCL's own:
status as proof, gates and failures by user events, several queues over one memory, and
a processor device that must really be asynchronous.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import Engine
from tenferro_ad.errors import ExecutionError, NotEnqueuedError
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import Completed, ExecutionInputs, Submission
from tests.backends.lane_support import (
    SECONDS,
    OpenClLane,
    is_in_flight_after_submission,
)
from tests.contract.device_support import value_of

X = np.asarray([0.5, 1.0, 2.0], np.float32)


@pytest.fixture
def opencl(opencl_only: str) -> Iterator[OpenClLane]:
    made = OpenClLane()
    yield made
    made.close()


def test_the_device_is_one_that_works_beside_the_host(opencl: OpenClLane) -> None:
    """PoCL has a device that runs inside the call; the lane's is a pool of threads."""
    if "Portable" in opencl.device.raw.platform.name:
        assert opencl.device.raw.name.startswith("pthread-")
    assert opencl.device.has_doubles


def test_a_long_kernel_is_not_complete_right_after_submission(
    opencl: OpenClLane,
) -> None:
    assert any(is_in_flight_after_submission(opencl, n) for n in (640, 1280))


def test_status_is_the_proof_and_the_gate_holds_it(opencl: OpenClLane) -> None:
    x = ta.asarray(X, device=opencl.device)
    opencl.device.drain()
    opencl.hold()
    y = ta.exp(x)
    event = y._record.array.allocation.written
    for _ in range(3):
        assert event.look() > 0
    opencl.let_go()
    y.value()
    assert event.look() == 0


def test_a_failed_gate_ends_it_and_its_successors_and_touches_nothing(
    opencl: OpenClLane,
) -> None:
    device = opencl.device
    w = ta.variable(ta.asarray(X, device=device))
    step = ta.fused(lambda E, p: p * 2.0)
    device.drain()
    raw = w._record.array.allocation.raw
    opencl.hold()
    with ta.exclusive(w) as (m,):
        ta.update(m, step)
    y = ta.exp(ta.asarray(X, device=device))  # an in-order successor
    opencl.break_off()
    for value in (w, y):
        with pytest.raises(ExecutionError, match="status -"):
            value.value()
    import pyopencl as cl

    found = np.empty_like(X)
    cl.enqueue_copy(device._host, found, raw)
    assert found.tolist() == X.tolist()  # the failed kernel wrote nothing
    assert ta.exp(ta.asarray(X, device=device)).shape == X.shape
    device.drain()


def test_nothing_is_enqueued_behind_a_command_that_has_failed(
    opencl: OpenClLane,
) -> None:
    """The driver would keep such a command for ever, and its queue with it."""
    x = ta.asarray(X, device=opencl.device)
    opencl.device.drain()
    opencl.hold()
    y = ta.exp(x)
    opencl.break_off()
    with pytest.raises(ExecutionError):
        y.value()
    allocation = y._record.array.allocation
    allocation.writer = None  # what eager work would have noticed first
    before = opencl.launched
    with pytest.raises(NotEnqueuedError, match="ended with -"):
        ta.sin(y)
    assert opencl.launched == before
    assert ta.sin(x).shape == X.shape


def test_the_kernels_of_a_program_are_built_together(opencl: OpenClLane) -> None:
    device = opencl.device
    x = ta.asarray(np.ones((3, 3), np.float32), device=device)
    run = ta.compile(
        lambda x: (
            [f(x @ x) for f in (ta.asinh, ta.erf, ta.cbrt)]
            + [ta.cumulative_sum(x, axis=k) * ta.max(x, axis=1) for k in (0, 1)]
        )
    )
    before, launched = device.counts["build"], opencl.launched
    found = run(x)
    assert opencl.launched - launched >= 8
    assert device.counts["build"] - before <= 1
    assert np.allclose(found[0].numpy(), np.arcsinh(3.0))
    device.drain()


def test_one_owner_behind_two_queues(opencl: OpenClLane) -> None:
    """A launch on one queue waits for what another still does to its operands."""
    device = opencl.device
    other = device.open_queue("opencl:0 second")
    engine = Engine(other, SECONDS, id="second")
    x = ta.asarray(X, device=device)
    device.drain()
    opencl.hold()
    moved = ta.exp(x).duplicate_value()  # an owner that the first queue still writes
    span = moved.span
    handle = Submission(engine, OPS["neg"]).submit_detached(
        ExecutionInputs.of_tensors([moved])
    )
    assert not handle.is_done
    opencl.let_go()
    outcome = handle.wait(SECONDS)
    assert isinstance(outcome, Completed)
    group = outcome.bundle._eb_group
    assert group.record(group.slots[0]).storage == span  # the same allocation
    assert np.allclose(value_of(outcome), -np.exp(X), rtol=1e-6)
    assert engine.close(SECONDS)


def test_an_event_that_is_given_back_meanwhile_is_waited_for(
    opencl: OpenClLane,
) -> None:
    """The reaper of another queue may do so between two looks at it."""

    class Ending:
        queue: object = None
        raw: Any = "the driver's"

        def look(self) -> int:
            self.raw = None
            return 1

    buffer = SimpleNamespace(written=None, last=Ending())
    assert opencl.device.endpoint._waits([buffer]) == ["the driver's"]


def test_empty_values_have_no_buffer_and_ordinary_records(opencl: OpenClLane) -> None:
    x = ta.asarray(np.zeros((0, 3), np.float32), device=opencl.device)
    assert x._record.array.allocation.raw is None
    y = ta.exp(x) + 1.0
    assert y._record.array.allocation.raw is None
    assert y.value().numpy().shape == (0, 3)
    assert ta.sum(y).item() == 0.0


def test_large_memory_comes_back_to_the_pool_and_small_to_the_driver(
    opencl: OpenClLane,
) -> None:
    device = opencl.device
    device.drain()
    device.trim()
    x = ta.asarray(np.ones(100_000, np.float32), device=device)
    x.value()
    device.drain()
    raw = x._record.array.allocation.raw
    live = device.live_bytes
    del x
    assert device.live_bytes == live - 400_000
    assert device.pool_bytes >= 400_000
    y = ta.zeros(100_000, dtype=np.float32, device=device)
    assert y._record.array.allocation.raw is raw
    assert device.pool_bytes == 0
    device.drain()


def test_four_threads_share_a_device(opencl: OpenClLane) -> None:
    from concurrent.futures import ThreadPoolExecutor

    device = opencl.device

    def work(k: int) -> float:
        x = ta.asarray(np.full(16, k, np.float32), device=device)
        for _ in range(50):
            x = x + 1.0
        return float(ta.sum(x))

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [16 * (50.0 + k) for k in range(4)]
    device.drain()
