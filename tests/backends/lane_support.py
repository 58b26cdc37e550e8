"""One harness for each lane: how its work is held in flight, and how it can fail.

Work is held by the lane itself (an OpenCL user event, a held stream or queue, the fake
device's events), never by sleeping. A lane that cannot report a failure of admitted
work says so in `can_fail`; tests of that outcome are parametrised over the lanes that
can, and `test_lanes.py` states which they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import CPU, Engine, HostStream, find_device
from tenferro_ad.backends._printed import PrintedKernel
from tenferro_ad.backends._program_kernel import parts
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import ExecutionHandle, ExecutionInputs, Submission
from tenferro_ad.storage import Tensor, retirements, transfer

SECONDS = 60.0


class Lane:
    """A device, an endpoint over its memory, and control over what is in flight."""

    name = ""
    can_fail = True
    works_eagerly = True

    def __init__(self, device: Any, endpoint: Any) -> None:
        self.device = device
        self.endpoint = endpoint
        self._engines: list[Engine] = []

    def hold(self) -> None:
        """Let nothing that is enqueued from now on begin."""
        self.endpoint.hold()

    def let_go(self) -> None:
        """Let everything begin."""
        self.endpoint.let_go()

    def break_off(self) -> None:
        """End what is held with a failure that the provider reports."""
        raise AssertionError(f"`{self.name}` cannot fail")

    @property
    def launched(self) -> int:
        """Launches that the endpoint took, by its own count."""
        return int(self.endpoint.launches)

    @property
    def accesses(self) -> tuple[int, int]:
        """Preparations and bindings, by the provider's own count."""
        counts = self.device.counts
        return counts["prepare"], counts["bind"]

    def engine(self, deadline: float = SECONDS, endpoint: Any = None) -> Engine:
        """An engine that the lane closes at its end."""
        engine = Engine(self.endpoint if endpoint is None else endpoint, deadline)
        self._engines.append(engine)
        return engine

    def tensor(self, values: Any) -> Tensor:
        """An owner in the lane's memory, at rest."""
        array = np.asarray(values, np.float32)
        aval = aval_of(array.shape, array.dtype, self.device)
        owner = transfer(array, aval, "upload").into_tensor()
        self.device.drain()
        return owner

    def inputs(self, *values: Any) -> ExecutionInputs:
        return ExecutionInputs.of_tensors([self.tensor(v) for v in values])

    def submit(
        self, engine: Engine, op: str, inputs: ExecutionInputs, *params: Any
    ) -> ExecutionHandle:
        return Submission(engine, OPS[op], params).submit_detached(inputs)

    def close(self) -> None:
        """Let everything end; engines too."""
        self.let_go()
        for engine in self._engines:
            assert engine.close(SECONDS)
        self.device.drain()


class CpuLane(Lane):
    """A stream of the host, over the memory of the CPU device."""

    name = "cpu"
    works_eagerly = False  # its eager operations are synchronous

    def __init__(self) -> None:
        super().__init__(CPU, _CountingStream())

    @property
    def accesses(self) -> tuple[int, int]:
        return 0, 0  # host bytes need neither

    def break_off(self) -> None:
        self.endpoint.fails = True
        self.let_go()


class _CountingStream:
    """A host stream that counts, and whose kernels can be told to raise."""

    is_synchronous = False
    is_lost = False

    def __init__(self) -> None:
        self._stream = HostStream()
        self.launches = 0
        self.fails = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def prepare(self, call: Any) -> object:
        kernel: Any = self._stream.prepare(call)

        def told(outs: Sequence[Any], ins: Sequence[Any]) -> None:
            if self.fails:
                self.fails = False
                raise ArithmeticError("told to fail")
            kernel(outs, ins)

        return told

    def enqueue(self, launch: Any) -> object:
        self.launches += 1
        return self._stream.enqueue(launch)


class FakeLane(Lane):
    """The fake device; events end when the lane lets go, by a thread of the lane."""

    name = "fake"

    def __init__(self) -> None:
        fake = FakeProvider()
        super().__init__(fake, fake)
        self._may_run = threading.Event()
        self._may_run.set()
        self._ended = threading.Event()
        self._cranking = threading.Thread(target=self._crank, daemon=True)
        self._cranking.start()

    def _crank(self) -> None:
        while not self._ended.is_set():
            self._may_run.wait()
            for event in self.device.pending:
                event.complete()
            self._ended.wait(0.0005)

    def hold(self) -> None:
        self._may_run.clear()

    def let_go(self) -> None:
        self._may_run.set()

    def break_off(self) -> None:
        for event in self.device.pending:
            event.fail()
        self.let_go()

    @property
    def launched(self) -> int:
        return int(self.device.counts["enqueue"])

    def close(self) -> None:
        super().close()
        self._ended.set()
        self._cranking.join(SECONDS)
        assert self.device.violations == []


class OpenClLane(Lane):
    """The first OpenCL device, on a queue of the lane's own device."""

    name = "opencl"

    def __init__(self) -> None:
        device = find_device("opencl:0", "lane")
        super().__init__(device, device.endpoint)

    def break_off(self) -> None:
        self.endpoint.break_off()


class WebGpuLane(Lane):
    """The first WebGPU device. Its library ends well or ends the process."""

    name = "webgpu"
    can_fail = False

    def __init__(self) -> None:
        device = find_device("webgpu:0", "lane")
        super().__init__(device, device.endpoint)


class _Cuda:
    """Makes the harness of the first CUDA card; its module imports the library.

    On the host, an emulation of the library takes its place: it runs the backend's own
    code and its kernels, and shows nothing of CUDA.
    """

    name, can_fail, works_eagerly = "cuda", False, True

    def __init__(self, on_host: bool) -> None:
        self.on_host = on_host

    def __call__(self) -> Lane:
        if self.on_host:
            import_module("tests.backends.host_cuda").install()
        found: Lane = import_module("tests.backends.cuda_lane").CudaLane()
        return found


HARNESSES: dict[str, Any] = {
    "cpu": CpuLane,
    "fake": FakeLane,
    "opencl": OpenClLane,
    "webgpu": WebGpuLane,
    "cuda": _Cuda(on_host=False),
    "cuda_on_host": _Cuda(on_host=True),
}


def started(name: str) -> Lane:
    """The harness of a lane; one that cannot start is a failure, never a skip."""
    make = HARNESSES.get(name)
    if make is None:
        pytest.fail(f"there is no lane `{name}`: {', '.join(HARNESSES)}", pytrace=False)
    found: Lane = make()
    return found


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


class Panicking:
    """An endpoint that raises around the inner one's calls."""

    def __init__(self, inner: Any, when: str, error: BaseException) -> None:
        self._inner, self._when, self._error = inner, when, error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _meet(self, when: str) -> None:
        if self._when == when:
            self._when = ""
            raise self._error

    def prepare(self, call: Any) -> object:
        self._meet("prepare")
        return self._inner.prepare(call)

    def enqueue(self, launch: Any) -> object:
        self._meet("enqueue")
        event = self._inner.enqueue(launch)
        self._meet("enqueued")
        return event

    def await_event(self, event: object, deadline: float) -> Any:
        self._meet("await")
        return self._inner.await_event(event, deadline)


def is_in_flight_after_submission(lane: Lane, n: int) -> bool:
    """Whether a product of two n x n matrices is not complete when submission returns.

    The second of two is asked: the first makes what kernels need.
    """
    engine = lane.engine()
    inputs = [lane.tensor(np.ones((n, n), np.float32)) for _ in range(2)]
    for _ in range(2):
        handle = Submission(engine, OPS["matmul"]).submit_detached(
            ExecutionInputs.of_tensors(inputs)
        )
        is_done = handle.is_done
        outcome: Any = handle.wait(SECONDS)
        group = outcome.bundle._eb_group
        inputs = [group.try_extract(slot) for slot in group.slots[:2]]
    return not is_done


@contextmanager
def built_together(lane: Lane) -> Iterator[None]:
    """Inside, nothing runs on an OpenCL lane; afterwards its kernels are built.

    A driver's compiler reads the same declarations for each program: kernels of many
    tests cost a fraction when a test's are one program. Results inside are no values.
    """
    if lane.name != "opencl":
        yield
        return
    kernels: list[tuple[str, str]] = []

    def gathered(queue: Any, launch: Any) -> list[Any]:
        for part in parts(launch):
            if isinstance(part.kernel, PrintedKernel):
                lowered = part.kernel.lowered(part)
                kernels.extend((p.source, p.entry) for p in lowered.launches)
        return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(lane.endpoint), "_steps", gathered)
        yield
        lane.device.drain()
    lane.device.build(kernels)


@contextmanager
def no_cpu_kernels() -> Iterator[None]:
    """While a lane runs, nothing may be computed on the CPU: its kernels raise."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("the CPU computed while a lane was under test")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(CPU), "plan", refuse)
        patch.setitem(vars(CPU), "small", refuse)
        yield
