"""Runtimes for the tests of gate 3: work that waits for the test, steps that fail.

`FakeRun` stands on the fake provider, whose events end when told. `CpuRun` is
`Runtime("cpu")`, whose stream is held until `finish`; what the CPU's provider cannot be
told, a test puts in its place.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import NotEnqueuedError, SubmitError, SubmitRejected
from tenferro_ad.runtime import CompiledGraph, ExecutionHandle
from tenferro_ad.storage import Tensor
from tests.contract.device_support import SECONDS, Counts, until, upload

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])
Y = np.array([[2.0, 3.0, 4.0], [-1.0, 8.0, 0.5]])


def product(x: Any, y: Any) -> Any:
    """One fresh output; `tanh(x)` has a place in the arena."""
    return ta.tanh(x) * y


PRODUCT = np.tanh(X) * Y


class Run(ABC):
    """A runtime, what it runs on, and the records opened since the test began.

    Attributes:
        device: whose memory it works on.
    """

    name: str
    device: Any
    runtime: ta.Runtime

    def __init__(self) -> None:
        self.records = Counts()

    def graph(self, fn: Callable[..., Any], *values: Any) -> CompiledGraph:
        """A compiled graph for arguments like these arrays."""
        return self.runtime.compile(self.trace(fn, *values))

    def trace(self, fn: Callable[..., Any], *values: Any) -> Any:
        arrays = map(np.asarray, values)
        specs = [ta.Spec(a.shape, a.dtype, self.device) for a in arrays]
        return ta.trace(fn, *specs)

    def tensor(self, values: Any) -> Tensor:
        return upload(values, self.device)

    def handle_of(self, values: Any) -> ta.EagerTensor:
        """An eager tensor on the device."""
        return ta.asarray(self.tensor(values))

    def inputs(self, *values: Any, donate: Any = ()) -> ta.ExecutionInputs:
        return ta.ExecutionInputs.of_tensors(
            [self.tensor(v) for v in values], donate=donate
        )

    def submit(self, fn: Callable[..., Any], *values: Any) -> ExecutionHandle:
        return self.runtime.submit(self.graph(fn, *values), self.inputs(*values))

    @abstractmethod
    def finish(self) -> None:
        """Let everything in flight end."""

    @abstractmethod
    def fail(self, step: str, error: BaseException | None = None) -> None:
        """Make the coming call of a step fail, or raise `error` and prove nothing."""

    def close(self) -> None:
        self.finish()
        assert self.runtime.close(SECONDS)


class FakeRun(Run):
    name = "fake"

    def __init__(self, deadline: float = SECONDS) -> None:
        super().__init__()
        self.device = self.fake = FakeProvider()
        self.runtime = ta.Runtime(self.fake, deadline=deadline)

    def finish(self) -> None:
        self.fake.complete()

    def fail(self, step: str, error: BaseException | None = None) -> None:
        if step == "kernel":
            until(lambda: bool(self.fake.pending))
            self.fake.pending[0].fail(error)
        elif error is None:
            self.fake.fail(step)  # type: ignore[arg-type]
        else:
            self.fake.raise_(step, error)  # type: ignore[arg-type]

    def close(self) -> None:
        super().close()
        assert self.fake.violations == []
        assert self.fake.faults_left == {}


class CpuRun(Run):
    name = "cpu"

    def __init__(self, deadline: float = SECONDS) -> None:
        super().__init__()
        self.device = CPU
        self.runtime = ta.Runtime("cpu", deadline=deadline)
        self.stream = self.runtime.endpoint
        self.stream.hold()
        self._patches = pytest.MonkeyPatch()

    def finish(self) -> None:
        self.stream.let_go()

    def fail(self, step: str, error: BaseException | None = None) -> None:
        match step:
            case "allocate" if error is None:
                CPU.limit = 0
            case "kernel":
                self._break_kernel(error or ArithmeticError("in the kernel"))
            case "enqueue":
                self._break_enqueue(error)
            case "compile":
                self._once(self.stream, "prepare_program", error)
            case "allocate":
                self._once(CPU, "small", error)
            case "prepare":
                self._once(CPU, "prepare_device", error)
            case "bind":
                self._once(CPU, "bind", error)

    def _once(self, holder: Any, name: str, error: BaseException | None) -> None:
        raised = error or OSError("told to fail")

        def fails(*args: Any) -> Any:
            self._patches.undo()
            raise raised

        self._patches.setitem(vars(holder), name, fails)

    def _break_enqueue(self, error: BaseException | None) -> None:
        enqueue = self.stream.enqueue

        def fails(launch: Any) -> Any:
            self._patches.undo()
            if error is None:
                raise NotEnqueuedError(operation="enqueue", found="told to refuse")
            enqueue(launch)
            raise error

        self._patches.setitem(vars(self.stream), "enqueue", fails)

    def _break_kernel(self, error: BaseException) -> None:
        """The next program that is prepared raises when it runs."""

        def prepared(run: Any) -> Any:
            self._patches.undo()

            def broken(outs: Any, ins: Any) -> None:
                raise error

            return broken

        self._patches.setitem(vars(self.stream), "prepare_program", prepared)

    def relax(self) -> None:
        """Undo a lasting failure."""
        CPU.limit = None

    def close(self) -> None:
        self._patches.undo()
        CPU.limit = None
        super().close()


RUNS = [CpuRun, FakeRun]


def rejected(run: Run, graph: CompiledGraph, inputs: ta.ExecutionInputs) -> Exception:
    """The cause of a rejection, after the exact inputs came back usable."""
    with pytest.raises(SubmitRejected) as caught:
        run.runtime.submit(graph, inputs)
    cause, back = caught.value.into_parts()
    del caught  # with its frames
    assert back is inputs
    assert len(inputs.bindings) == len(inputs)  # still usable
    assert isinstance(cause, SubmitError)
    found = cause.__cause__
    assert isinstance(found, Exception)
    return found
