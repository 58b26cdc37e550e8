"""Conventions of the contract that it takes several providers to show."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad import ledger
from tenferro_ad.backends import HostStream
from tenferro_ad.runtime import Completed, ExecutionHandle, ExecutionInputs
from tenferro_ad.storage import DeviceRead, DeviceWrite, bind_read, bind_write
from tests.contract.device_support import FakeDevice, strong, value_of

SOURCES = Path(storage_package.__file__).parent


@pytest.mark.clause("conv-one-kernel")
def test_one_set_of_ownership_types_serves_every_provider(kernel: Any) -> None:
    device = FakeDevice()
    stream = HostStream()
    owners = [kernel.owner((2,)), device.tensor([1.0, 2.0])]
    for owner in owners:
        read = bind_read(owner.prepare_device())
        assert type(read) is DeviceRead
        read.close()
        write = bind_write(owner.prepare_device_mut())
        assert type(write) is DeviceWrite
        write.close()
        assert strong(owner) == 1
    # Providers differ in waiting and mapping; none has a word for ownership.
    words = ("owner", "claim", "borrow", "tensor", "group", "shared", "record")
    for provider in (type(device.fake), type(stream), type(kernel.host)):
        for name in dir(provider):
            assert not any(word in name for word in words), name
    del owners, owner, read, write
    device.close()


@pytest.mark.clause("conv-no-bridge")
def test_there_is_one_path_to_a_device_and_no_adapter_beside_it() -> None:
    package = SOURCES.parent
    banned = ("compat", "legacy", "adapter", "bridge", "shim", "migrat", "deprecat")
    callers: dict[str, set[str]] = {}
    for file in package.rglob("*.py"):
        assert not any(word in file.stem.lower() for word in banned), file
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                    assert not any(word in name.lower() for word in banned), name
                case ast.Call(func=ast.Attribute(attr=called)) if called in {
                    "enqueue",
                    "prepare_device",
                    "await_event",
                    "_into_allocation",
                }:
                    callers.setdefault(called, set()).add(file.stem)
    assert callers["enqueue"] == {"_backend"}
    # Endpoints ask their own, to synchronise.
    endpoints = {"_host", "_opencl_queue", "_webgpu_queue", "_cuda_queue"}
    assert callers["await_event"] <= {"_backend", *endpoints}


@pytest.mark.clause("conv-term-retirement")
def test_an_access_is_retired_when_its_events_are_over_and_not_before(
    device: FakeDevice,
) -> None:
    first = device.submit("exp", device.inputs([0.0]))
    second = device.submit("exp", device.inputs([1.0]))
    one, two = device.fake.pending
    held = device.fake.outstanding
    assert device.records() == {"opened": 2, "pending": 2}
    one.complete()
    outcome = first.wait(30)
    assert device.records() == {"opened": 2, "released": 1, "pending": 1}
    assert held["events"] - device.fake.outstanding["events"] == 1
    assert not second.is_done
    two.complete()
    assert value_of(outcome) == 1.0
    assert value_of(second.wait(30)) == np.exp(1.0)


@pytest.mark.clause("conv-waits-not-copies")
def test_waiting_for_a_device_is_documented_and_is_no_copy(device: FakeDevice) -> None:
    for waits in (
        storage_package.TensorView.numpy,
        storage_package.TensorView.prepare_host,
        storage_package.TensorViewMut.write,
    ):
        assert "wait" in (inspect.getdoc(waits) or "")
    assert "synchronisation point" in (inspect.getdoc(ExecutionHandle.wait) or "")
    tensor = device.tensor([1.0, 2.0])
    with ledger() as led:
        handle = device.submit("exp", ExecutionInputs.of_tensors([tensor]))
        device.finish()
        outcome = handle.wait(30)
        assert isinstance(outcome, Completed)
        with outcome.bundle.output(0) as view:
            view.numpy()
    assert led.copies == {}
    assert led.allocations == {"OperationOutput": 1}
