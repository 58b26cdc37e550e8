"""Engines at their edges: many threads, forks, closing, and the end of the process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tenferro_ad import ledger
from tenferro_ad.backends._crossing import Condition, OverError, Run
from tenferro_ad.backends._engine import _comes_back, _prove
from tenferro_ad.errors import EngineLostError, ForkedProcessError, SubmitRejected
from tenferro_ad.runtime import Completed
from tests.contract.device_support import FakeDevice, StreamDevice, value_of

DEVICES = [FakeDevice, StreamDevice]


@pytest.mark.parametrize("kind", DEVICES)
def test_threads_submit_together_and_each_gets_its_own_result(
    kind: type[FakeDevice],
) -> None:
    device = kind()
    if hasattr(device, "fake"):
        device.fake.auto = True
    device.finish()
    wrong: list[object] = []

    def work(start: int) -> None:
        for k in range(start, start + 20):
            outcome = device.submit("exp", device.inputs([float(k)])).wait(30)
            if value_of(outcome)[0] != np.exp(float(k)):
                wrong.append(outcome)

    threads = [threading.Thread(target=work, args=(20 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    device.close()
    assert device.records() == {"opened": 80, "released": 80}


@pytest.mark.parametrize("kind", DEVICES)
def test_a_closed_engine_ends_what_it_has_and_takes_nothing_more(
    kind: type[FakeDevice],
) -> None:
    device = kind()
    handle = device.submit("exp", device.inputs([0.0]))
    assert not device.engine.close(0.01)
    inputs = device.inputs([1.0])
    with pytest.raises(SubmitRejected) as caught:
        device.submit("exp", inputs)
    assert caught.value.recovered is inputs
    assert isinstance(caught.value.cause.__cause__, EngineLostError)
    device.finish()
    assert value_of(handle.wait(30)) == 1.0
    device.close()


def test_a_lost_device_is_refused_at_submission() -> None:
    device = FakeDevice()
    device.fake.is_lost = True
    with pytest.raises(SubmitRejected, match="EngineLostError"):
        device.submit("exp", device.inputs([1.0]))
    device.close()


def test_a_forked_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    device = FakeDevice()
    here = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: here + 1)  # what a child would see
    with pytest.raises(SubmitRejected) as caught:
        device.submit("exp", device.inputs([1.0]))
    assert isinstance(caught.value.cause.__cause__, ForkedProcessError)
    monkeypatch.undo()
    device.close()


@pytest.mark.parametrize("kind", DEVICES)
def test_submitted_work_is_counted_where_it_was_submitted(
    kind: type[FakeDevice],
) -> None:
    device = kind()
    inputs = device.inputs([1.0, 2.0])
    with ledger() as led:
        handle = device.submit("exp", inputs)
    with ledger() as later:
        device.finish()
        outcome = handle.wait(30)
    assert led.allocations == {"OperationOutput": 1}
    assert led.live_bytes == 16
    assert later.allocations == {}
    del outcome
    device.close()
    assert led.live == 0


def test_large_outputs_go_back_to_the_pool_like_any_other() -> None:
    device = StreamDevice()
    device.finish()
    outcome = device.submit("exp", device.inputs(np.zeros(20_000))).wait(30)
    assert isinstance(outcome, Completed)
    assert value_of(outcome).sum() == 20_000.0
    del outcome
    device.close()


SCRIPT = """
from tests.contract.device_support import FakeDevice, StreamDevice
kept = []
for kind in (FakeDevice, StreamDevice):
    device = kind()
    kept.append((device, device.submit("exp", device.inputs([1.0]))))
    device.submit("exp", device.inputs([1.0]))
print("in flight")
"""


UNPROVEN = """
import os
from tests.contract.device_support import FakeDevice
device = FakeDevice()
handle = device.submit("exp", device.inputs([1.0]))
device.fake.pending[0].lose()
print(type(handle.wait(30)).__name__, flush=True)
device.fake.give_back = lambda buffer, write=os.write: write(1, b"freed")
del device, handle
"""


@pytest.mark.parametrize(
    ("script", "said"), [(SCRIPT, "in flight"), (UNPROVEN, "CompletionUnproven")]
)
def test_a_process_ends_cleanly_and_frees_nothing_that_may_be_in_use(
    script: str, said: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{said}\n", "")


def test_a_worker_that_goes_on_launching_is_not_stuck() -> None:
    """A loop may take any time; what counts is the time without a launch."""
    condition = Condition(deadline=0.001)

    def comes_back(launches_in_time: list[int], enters: bool) -> bool:
        run = Run(None, FakeDevice().engine.endpoint, condition)

        class Entered:
            def wait(self, seconds: float) -> bool:
                assert seconds == condition.deadline
                if not launches_in_time:
                    return enters
                run.launches += launches_in_time.pop(0)
                return False

        run.entered = Entered()  # type: ignore[assignment]
        return _comes_back(run, condition)

    assert comes_back([], enters=True)
    assert comes_back([1, 3, 1, 1], enters=True)
    assert not comes_back([0], enters=True)
    assert not comes_back([1, 1, 0], enters=True)


def test_a_worker_that_waits_for_proof_is_not_stuck() -> None:
    """Its wait has an end of its own, which says more than that it did not return."""
    condition = Condition(deadline=60.0)
    patience = [time.monotonic() + more for more in (600.0, -30.0, -600.0)]
    run = Run(None, FakeDevice().engine.endpoint, condition)

    class Entered:
        def wait(self, seconds: float) -> bool:
            run.patience = patience.pop(0)
            return False

    run.entered = Entered()  # type: ignore[assignment]
    assert not _comes_back(run, condition)
    assert not patience


class Late:
    """An endpoint that has no answer in time; `said` are its answers in order."""

    def __init__(self, condition: Condition, *said: str) -> None:
        self.condition, self.said = condition, list(said)
        self.deadlines: list[float] = []

    def await_event(self, event: object, deadline: float) -> str:
        self.deadlines.append(deadline)
        self.condition.proved += event  # type: ignore[operator]
        return self.said.pop(0)


def record(event: float) -> Any:
    raw = SimpleNamespace(value=SimpleNamespace(raw=event))
    return SimpleNamespace(event=raw, _release=list, _moved_by="a test")


def test_a_loop_is_patient_while_work_before_it_ends() -> None:
    """Seconds without proof begin when what was admitted before is over."""
    condition = Condition(deadline=5.0)
    condition.proved = time.monotonic() + 1000.0
    endpoint = Late(condition, "unproven", "unproven", "done")
    run = Run(None, endpoint, condition)  # type: ignore[arg-type]
    run.records = [record(100.0)]
    with condition.calls:
        run.wait()
    first, second, third = endpoint.deadlines
    assert second == pytest.approx(first + 100.0)
    assert third == pytest.approx(second + 100.0)
    assert run.failure is None


def test_a_loop_is_not_patient_for_ever() -> None:
    condition = Condition(deadline=5.0)
    endpoint = Late(condition, "unproven")
    run = Run(None, endpoint, condition)  # type: ignore[arg-type]
    run.records = [record(0.0)]
    with condition.calls, pytest.raises(OverError):
        run.wait()
    assert run.failure is not None


def test_each_launch_has_its_own_patience() -> None:
    """A long loop is proven launch by launch, however long all of them take."""
    condition = Condition(deadline=5.0)
    endpoint = Late(condition, "done", "done", "unproven", "unproven")
    job = SimpleNamespace(lose=lambda cause, keys: None)
    run = Run(job, endpoint, condition)  # type: ignore[arg-type]
    run.records = [record(0.0) for _ in range(4)]
    _prove(run, condition)
    assert sorted(set(endpoint.deadlines)) == endpoint.deadlines[:3]
    assert endpoint.deadlines[2] == endpoint.deadlines[3]  # a hung queue costs one
