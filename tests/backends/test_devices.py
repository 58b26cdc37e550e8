"""Finding devices, choosing one, moving values: what users type."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.__main__ import main
from tenferro_ad.backends import CPU, Engine, HostStream, _registry, reports
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import (
    AllocationLimitError,
    DeviceMismatchError,
    InvalidArgumentError,
    SubmitRejected,
    UnsupportedError,
)
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import ExecutionInputs, Submission
from tests.backends.lane_support import Lane
from tests.contract.device_support import upload

ROOT = Path(__file__).parents[2]
LIBRARIES = ("pyopencl", "wgpu", "cupy")


@pytest.fixture
def other() -> FakeProvider:
    """A second device; it completes work as soon as somebody waits."""
    return FakeProvider("fake:7", auto=True)


# ---- discovery


def test_importing_the_package_imports_no_device_library() -> None:
    code = (
        "import sys, tenferro_ad as ta; ta.devices('cpu'); ta.asarray([1.0]) + 1; "
        f"print([n for n in {LIBRARIES!r} if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_the_cpu_is_one_memory_with_two_endpoints() -> None:
    first, second = ta.devices("cpu")
    assert (first.name, second.name) == ("cpu", "cpu:stream")
    assert first.memory == second.memory == "cpu"
    assert first.is_synchronous
    assert not second.is_synchronous


def test_a_kind_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="opencl") as caught:
        ta.devices("openc1")
    assert caught.value.operation == "devices"


@pytest.mark.parametrize("name", ["quantum:0", "opencl:x", "", "cpu:1"])
def test_a_name_that_means_nothing_says_what_does(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="ta.devices") as caught:
        ta.asarray([1.0], device=name)
    assert (caught.value.operation, caught.value.argument) == ("asarray", "device")
    with pytest.raises(InvalidArgumentError):
        ta.asarray([1.0]).to(name)


@pytest.mark.parametrize("kind", ["opencl", "webgpu", "cuda"])
def test_a_missing_library_says_how_to_install_it(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_registry, "_opened", {})
    monkeypatch.setattr(_registry.util, "find_spec", lambda name: None)
    assert ta.devices(kind) == ()
    (report,) = reports(kind)
    assert "not installed" in report.problem
    assert "pip install" in report.fix
    with pytest.raises(InvalidArgumentError, match="pip install"):
        ta.zeros(3, device=f"{kind}:0")


def test_an_object_that_is_no_device_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="`int`"):
        ta.asarray([1.0], device=0)


# ---- choosing


def test_the_default_device_is_where_outside_data_goes(other: FakeProvider) -> None:
    assert ta.default_device() is CPU
    x = ta.asarray([1.0])
    with ta.default_device(other) as chosen:
        assert chosen is other is ta.default_device()
        made = [ta.asarray([1.0]), ta.zeros(2), ta.variable([1.0]), ta.arange(3)]
        assert all(value.device is other for value in made)
        assert ta.asarray([1.0], device="cpu").device is CPU
        assert (x + 1.0).device is CPU  # operations follow their operands
        with ta.default_device("cpu"):
            assert ta.ones(1).device is CPU
        assert ta.ones(1).device is other
    assert ta.default_device() is CPU
    other.drain()


# ---- moving


def test_moving_is_one_transfer_and_nothing_else(other: FakeProvider) -> None:
    x = ta.asarray([1.0, 2.0])
    with ta.ledger() as led:
        y = x.to(other)
    led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})
    assert y.device is other
    with ta.ledger() as led:
        assert y.to(other).device is other
        assert x.to("cpu").device is CPU
    led.expect(allocations={}, copies={})
    with ta.ledger() as led:
        back = y.to("cpu")
    led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})
    assert back.tolist() == [1.0, 2.0]
    assert y.to_device("cpu").tolist() == [1.0, 2.0]
    assert ta.asarray(y, device="cpu").tolist() == [1.0, 2.0]
    other.drain()


def test_a_program_that_moves_values_is_refused_when_it_is_compiled(
    other: FakeProvider,
) -> None:
    def there(x: Any) -> Any:
        return x.to(other) * 2.0

    def body(c: Any, t: Any) -> Any:
        return c.to(other).to("cpu") + t, t

    def inside(x: Any) -> Any:
        return ta.scan(body, x[0], x)[0]

    x = ta.asarray([1.0, 2.0])
    far = x.to(other)
    cases: list[tuple[Any, Any]] = [
        (there, x),
        (inside, x),
        (lambda x: x.to("cpu") + 1.0, far),
        (ta.grad(lambda x: ta.sum(there(x).to("cpu"))), x),
    ]
    for fn, given in cases:
        fast = ta.compile(fn)
        for call in (fast, fast.plan):
            with ta.ledger() as led, pytest.raises(UnsupportedError) as caught:
                call(given)
            led.expect(allocations={}, copies={})
            assert caught.value.op == "to"
            assert "before or after the compiled function" in caught.value.fix
        with pytest.raises(UnsupportedError, match="runs on one device") as caught:
            ta.Runtime("cpu").compile(ta.trace(fn, given))
        assert caught.value.operation == "Runtime.compile"
    traced = ta.trace(there, x)
    with ta.ledger() as led:
        y = traced(x)
    led.expect(
        allocations={"TransferDestination": 1, "OperationOutput": 1},
        copies={"Transfer": 1},
    )
    assert y.device is other
    assert y.tolist() == [2.0, 4.0]


def test_moving_is_differentiable_in_both_modes(other: FakeProvider) -> None:
    w = ta.variable([1.0, 2.0, 3.0])
    with ta.Tape() as tape:
        there = (w * 2.0).to(other)
        loss = ta.sum(there * there).to("cpu")
    with ta.ledger() as led:
        grads = tape.backward(loss)
    assert led.copies == {"Transfer": 2}  # the cotangent goes there, and comes back
    found = grads.grad(w)
    assert found is not None
    assert found.device is CPU
    assert found.numpy().tolist() == [8.0, 16.0, 24.0]
    found.close()

    def f(x: Any) -> Any:
        return (x * 3.0).to(other)

    out, tangent = ta.jvp(f, (w,), (ta.asarray([1.0, 0.0, 1.0]),))
    assert out.device is tangent.device is other
    assert tangent.tolist() == [3.0, 0.0, 3.0]
    other.drain()


# ---- endpoints, engines and allocation identity


@pytest.mark.clause("conv-term-endpoint")
def test_another_endpoint_changes_no_allocation() -> None:
    streams = HostStream("cpu:left"), HostStream("cpu:right")
    engines = [Engine(stream, id=f"engine {k}") for k, stream in enumerate(streams)]
    tensor = upload([1.0, 2.0], CPU)
    span = tensor.span
    for engine in engines:
        inputs = ExecutionInputs.of_tensors([tensor])
        outcome: Any = Submission(engine, OPS["neg"]).submit_detached(inputs).wait()
        group = outcome.bundle._eb_group
        assert group.record(group.slots[0]).storage == span
        tensor = group.try_extract(group.slots[0])
    assert tensor.span == span
    assert tensor.span.domain == "cpu"
    for engine in engines:
        assert engine.close(30.0)


def test_engine_ids_are_the_callers_and_name_the_engine_in_errors() -> None:
    engine = Engine(HostStream(), id="the left one")
    assert engine.id == "the left one"
    assert Engine(HostStream("cpu:a")).id == "cpu:a"
    assert engine.close(30.0)
    inputs = ExecutionInputs.of_tensors([upload([1.0], CPU)])
    with pytest.raises(SubmitRejected, match="the left one") as caught:
        Submission(engine, OPS["neg"]).submit_detached(inputs)
    assert caught.value.into_parts()[1] is inputs


# ---- doctor


def test_doctor_lists_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    for kind in ("cpu", "opencl", "webgpu", "cuda"):
        assert f"\n{kind}: " in said
    assert "numpy" in said


def test_doctor_fails_when_a_required_lane_is_missing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_registry.util, "find_spec", lambda name: None)
    assert main(["doctor", "--require", "cpu"]) == 0
    assert main(["doctor", "--require", "opencl,cpu"]) == 1
    assert "MISSING: opencl" in capsys.readouterr().out
    with pytest.raises(SystemExit) as caught:
        main(["doctor", "--require", "quantum"])
    assert caught.value.code == 2


def test_imported_memory_stays_on_the_host_whatever_the_default_device(
    any_lane: Lane,
) -> None:
    outside = np.ones(2, np.float32)
    with ta.default_device(any_lane.device):
        imported = [ta.unsafe.import_array(outside), ta.unsafe.from_dlpack(outside + 0)]
    for x in imported:
        assert x.device is CPU
        with ta.ledger() as ledger:
            assert (x + 1).device is CPU
        assert ledger.copies == {}


def test_host_memory_is_no_memory_of_another_device(eager_lane: Lane) -> None:
    outside = np.ones(2, np.float32)
    for take in (ta.unsafe.import_array, ta.unsafe.from_dlpack):
        with pytest.raises(DeviceMismatchError, match="host memory for"):
            take(outside, device=eager_lane.device)


def test_every_name_that_discovery_shows_is_taken() -> None:
    for info in ta.devices("cpu"):
        x = ta.asarray([1.0], device=info.name)
        assert x.device is CPU
        assert x.to(info.name).device is CPU
        with ta.default_device(info.name):
            assert ta.zeros(2).device is CPU
        assert ta.Runtime(info.name).endpoint.memory is CPU


@pytest.mark.parametrize("number", ["", ":", ":00", ":+1", ":-1", ":\u0660", ": 0"])
def test_a_name_that_discovery_never_shows_opens_nothing(number: str) -> None:
    with pytest.raises(InvalidArgumentError, match="opencl:0"):
        ta.zeros(1, device=f"opencl{number}")


@pytest.mark.parametrize(
    "shape", [(1 << 40, 1 << 40), (1 << 62,), (1 << 63,), (1 << 40, 1 << 40, 0)]
)
def test_a_value_larger_than_any_address_space_is_refused(
    any_lane: Lane, shape: tuple[int, ...]
) -> None:
    small = ta.ones((), dtype=ta.float32, device=any_lane.device)
    for make in (
        lambda: ta.ones(shape, dtype=ta.float32, device=any_lane.device),
        lambda: ta.broadcast_to(small, shape),
    ):
        with pytest.raises(AllocationLimitError, match="smaller shape"):
            make()
    with pytest.raises(AllocationLimitError, match="`ones` refused"):
        ta.ones(shape, dtype=ta.float32, device=any_lane.device)
    with pytest.raises(InvalidArgumentError, match="`ones` refused `shape`.*65 bits"):
        ta.ones((1 << 64,), dtype=ta.float32, device=any_lane.device)
