"""Facts of CUDA that the backend rests on, on a machine with a card.

`scripts/gpu_check.sh` runs these. What any provider must do is in
`test_conformance.py`; what can be known without a card is in `test_cuda_static.py`.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import Completed
from tests.backends.lane_support import (
    SECONDS,
    Counts,
    Lane,
    is_in_flight_after_submission,
    started,
)
from tests.scripts import ROOT

X = np.asarray([0.5, 1.0, 2.0], np.float32)


@pytest.fixture
def cuda(cuda_only: str) -> Iterator[Any]:
    made = started(cuda_only)
    yield made
    made.close()


def cupy() -> Any:
    return import_module("cupy")


def pointer(x: Any) -> int:
    return int(x._record.array.allocation.raw.ptr)


# ---- retirement on real work


def test_a_long_kernel_is_not_complete_right_after_submission(cuda: Lane) -> None:
    assert any(is_in_flight_after_submission(cuda, n) for n in (6000, 12_000))


def test_memory_in_flight_is_handed_to_nobody(cuda: Lane, records: Counts) -> None:
    """The operand is dropped while its launch waits: only proof gives it back."""
    x = ta.asarray(X, device=cuda.device)
    cuda.device.drain()
    there = pointer(x)
    cuda.hold()
    y = ta.exp(x)
    del x
    others = [ta.asarray(X, device=cuda.device) for _ in range(8)]
    assert there not in {pointer(o) for o in others}
    cuda.let_go()
    assert np.allclose(y.value().numpy(), np.exp(X), rtol=1e-6)
    cuda.device.drain()
    after = [ta.asarray(X, device=cuda.device) for _ in range(8)]
    assert there in {pointer(o) for o in after}  # and then it is used again
    cuda.device.drain()
    assert records()["opened"] == records()["released"]


def test_an_event_is_asked_for_its_status(cuda: Lane) -> None:
    queue = cuda.endpoint
    launch, held = launch_of(cuda)
    cuda.hold()
    event = queue.enqueue(launch)
    assert not event.has_ended
    assert queue.await_event(event, time.monotonic() + 0.05) == "unproven"
    cuda.let_go()
    assert queue.await_event(event, time.monotonic() + SECONDS) == "done"
    queue.release_event(event)
    assert held[1].numpy().tolist() == (-X).tolist()


def launch_of(cuda: Lane) -> tuple[Any, list[Any]]:
    """A negation, bound as an engine binds it, and the values that it works on."""
    from tenferro_ad._aval import aval_of
    from tenferro_ad.backends import PreparedLaunch, bind_launch, infer_call

    aval = aval_of(X.shape, X.dtype, cuda.device)
    kernel = cuda.endpoint.prepare(infer_call(OPS["neg"], (aval,), (), cuda.device))
    source, target = cuda.tensor(X), cuda.tensor(X)
    bound = bind_launch(
        PreparedLaunch._of(
            cuda.endpoint, kernel, [source.as_view()], [target.as_view_mut()]
        )
    )
    made = bound._launch("enqueue")
    bound.close()  # nobody else uses the two meanwhile
    return made, [source, target]


def test_uploads_are_snapshots_in_pinned_memory(cuda: Lane) -> None:
    source = X.copy()
    cuda.hold()
    x = ta.asarray(source, device=cuda.device)
    source[:] = -1
    cuda.let_go()
    assert x.value().numpy().tolist() == X.tolist()


STICKY = """
import cupy as cp, numpy as np
import tenferro_ad as ta
from tenferro_ad.backends import find_device, Engine
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import CompletionUnproven, ExecutionInputs, Submission
from tenferro_ad.errors import CompletionError, SubmitRejected
from tenferro_ad.storage import retirements
from tests.contract.device_support import upload
device = find_device("cuda:0", "test")
x = ta.asarray(np.ones(3, np.float32), device=device)
ta.exp(x).numpy()
tensor = upload(np.ones(3, np.float32), device)
device.drain()
bad = cp.RawKernel(
    'extern "C" __global__ void bad(double *y) { y[1LL << 40] = 1.0; }', "bad")
with device.raw, device.endpoint.stream:
    bad((1,), (1,), (np.uint64(8),))
engine = Engine(device.endpoint, 30.0)
try:
    handle = Submission(engine, OPS["exp"]).submit_detached(
        ExecutionInputs.of_tensors([tensor]))
except SubmitRejected:  # the driver reports the fault at the launch itself
    print("rejected")
else:
    outcome = handle.wait(60.0)
    assert isinstance(outcome, CompletionUnproven), outcome
    assert retirements.unproven >= 1
    print("unproven")
try:
    y = ta.exp(x)
    y.numpy()
except Exception as error:
    print(type(error).__name__)
print(device.endpoint.is_lost)
import os; os._exit(0)
"""


def test_an_illegal_access_is_unproven_and_costs_the_engine(cuda: Lane) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STICKY],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    said = done.stdout.split()
    assert said[-1:] == ["True"], done.stderr
    assert said[0] in ("unproven", "rejected")


# ---- the pool


def test_hooks_see_one_hand_out_for_each_root_and_each_scratch(cuda: Lane) -> None:
    """An independent count of the ledger's: the pool's own traffic in this thread."""
    cp = cupy()

    class Counting(cp.cuda.MemoryHook):  # type: ignore[misc]
        name = "test"
        seen = 0

        def malloc_postprocess(self, **facts: Any) -> None:
            self.seen += 1

    x = ta.asarray(np.ones(100, np.float32), device=cuda.device)
    for fn in (ta.exp, lambda x: x + x, lambda x: x * 2.0):
        fn(x)  # compiled
        cuda.device.drain()
        before = cuda.device.counts["allocate"]
        with Counting() as hook, ta.ledger() as led:
            fn(x)
            cuda.device.drain()
        assert hook.seen == cuda.device.counts["allocate"] - before
        assert sum(led.allocations.values()) == hook.seen


HAZARD = 666.0
SPIN = """
extern "C" __global__ void spin(double *y, long long n, double v) {
    for (long long k = 0; k < n; ++k) { __nanosleep(1000); }
    y[0] = v;
}
"""


def test_the_librarys_pool_reuses_memory_across_streams_too_early(cuda: Lane) -> None:
    """Why a device has one stream: shown without the package, on two of CuPy's."""
    cp = cupy()
    spin = cp.RawKernel(SPIN, "spin")
    first, second = (cp.cuda.Stream(non_blocking=True) for _ in range(2))
    pool = cp.cuda.MemoryPool()
    with cp.cuda.using_allocator(pool.malloc):
        with first:
            warm = cp.empty(1)
            spin((1,), (1,), (warm, 1, 0.0))
            x = cp.empty(1)
        first.synchronize()
        there = x.data.ptr
        with second:
            spin((1,), (1,), (x, 200_000, HAZARD))
        del x  # work on the second stream still uses it
        with first:
            z = cp.full(1, 7.0)
        assert z.data.ptr == there  # handed out again at once
        second.synchronize()
        assert float(z.get(stream=first)[0]) == HAZARD  # and overwritten


def test_the_packages_own_pool_does_not(cuda: Lane) -> None:
    """The same story through the package: values stay what they are."""
    for _ in range(20):
        x = ta.asarray(X, device=cuda.device)
        cuda.device.drain()
        cuda.hold()
        y = ta.exp(x)
        del x
        z = ta.asarray(np.full(3, 7.0, np.float32), device=cuda.device) * 2.0
        cuda.let_go()
        assert np.allclose(y.numpy(), np.exp(X), rtol=1e-6)
        assert z.tolist() == [14.0] * 3


def test_there_is_one_stream_and_everything_is_on_it(cuda: Lane) -> None:
    cp = cupy()
    x = ta.asarray(X, device=cuda.device)
    with cuda.device.raw:
        before = cp.cuda.get_current_stream()
        ta.exp(x) @ x
        assert cp.cuda.get_current_stream() == before  # the caller's is as it was
    outcome = cuda.submit(cuda.engine(), "exp", cuda.inputs(X)).wait(SECONDS)
    assert isinstance(outcome, Completed)
    assert cuda.endpoint.stream.ptr not in (0, before.ptr)
