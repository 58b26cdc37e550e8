"""Devices for tests of provider use: one can submit to them and move their events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import Engine, HostEndpoint, HostStream
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import (
    BorrowedBindings,
    Completed,
    ExecutionBundle,
    ExecutionHandle,
    ExecutionInputs,
    Submission,
)
from tenferro_ad.storage import Tensor, retirements, transfer

SECONDS = 30.0


def upload(values: Any, memory: Any) -> Tensor:
    """An owner of these values in some provider's memory."""
    array = np.asarray(values)
    aval = aval_of(array.shape, array.dtype, memory)
    return transfer(array, aval, "upload").into_tensor()


def strong(tensor: Tensor) -> int:
    """Holders of the tensor's root."""
    return tensor._owner_storage._claim._root.strong_count


def value_of(outcome: object) -> np.ndarray[Any, Any]:
    """The first output of a completed run, on the host."""
    match outcome:
        case Completed(bundle=ExecutionBundle() as bundle):
            array = bundle.into_output(0).numpy()
            return array.copy()
    raise AssertionError(outcome)


def until(is_true: Callable[[], bool]) -> None:
    """Wait for another thread, and fail rather than wait for ever."""
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.001)


class Counts:
    """Retirement records since the beginning of a test."""

    def __init__(self) -> None:
        self._before = self._now()

    def _now(self) -> dict[str, int]:
        names = ("opened", "released", "undone", "unproven", "pending")
        return {name: getattr(retirements, name) for name in names}

    def __call__(self) -> dict[str, int]:
        """What changed, without zeros."""
        now = self._now()
        return {n: now[n] - k for n, k in self._before.items() if now[n] != k}


class FakeDevice:
    """The fake provider behind an engine; its events wait for `finish`."""

    name = "fake"

    def __init__(self, deadline: float = SECONDS) -> None:
        self.fake = FakeProvider()
        self.endpoint: Any = self.fake
        self.engine = Engine(self.fake, deadline)
        self.records = Counts()
        self.may_violate = False

    def tensor(self, values: Any) -> Tensor:
        return upload(values, self.endpoint.memory)

    def inputs(self, *values: Any) -> ExecutionInputs:
        return ExecutionInputs.of_tensors([self.tensor(v) for v in values])

    def submit(self, op: str, inputs: ExecutionInputs, *params: Any) -> ExecutionHandle:
        return Submission(self.engine, OPS[op], params).submit_detached(inputs)

    def finish(self) -> None:
        """Let everything that is in flight end."""
        self.fake.complete()

    def close(self) -> None:
        """End the engine; nothing may be left that the test did not lose."""
        self.finish()
        assert self.engine.close(SECONDS)
        assert self.fake.violations == []
        assert self.fake.faults_left == {}


class StreamDevice(FakeDevice):
    """A host stream behind an engine, held until `finish`."""

    name = "stream"

    def __init__(self, deadline: float = SECONDS) -> None:
        self.stream = HostStream()
        self.stream.hold()
        self.endpoint = self.stream
        self.engine = Engine(self.stream, deadline)
        self.records = Counts()

    def finish(self) -> None:
        self.stream.let_go()

    def close(self) -> None:
        self.finish()
        assert self.engine.close(SECONDS)


class BorrowDevice:
    """The synchronous host endpoint."""

    def __init__(self) -> None:
        self.endpoint = HostEndpoint()

    def tensor(self, values: Any) -> Tensor:
        return upload(values, self.endpoint.memory)

    def bindings(self, op: str, source: Tensor, target: Tensor) -> BorrowedBindings:
        reads, writes = [source.as_view()], [target.as_view_mut()]
        return BorrowedBindings.of_views(self.endpoint, OPS[op], reads, writes)
