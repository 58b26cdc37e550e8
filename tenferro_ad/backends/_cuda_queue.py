"""One CUDA stream as an endpoint, with event retirement.

All work of a device goes to one stream, allocation included, because CuPy's pool keeps
memory for each stream and gives it out again without asking any event: with one stream,
reuse is ordered by the stream itself. A second stream would need an event to wait for
and a record that holds the memory until that event is proven; there is none here.

The status of an event is the proof: success, or not ready. Any other status (an illegal
address, a failed launch) means that the context is poisoned: nothing that ran can be
proven any more, so the engine is lost and what it holds is kept for good. CuPy's
`Event.done` says False in that case, for ever, so the status itself is asked for.
Callbacks of the library prove nothing.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, final

import cupy as cp
import numpy as np
from cupy_backends.cuda.api import driver

from ..errors import CompletionError
from ..ops import Call
from ._backend import Launch, Proof
from ._cuda_library import Form
from ._printed import PrintedKernel, buffer_of, parameters
from ._printed_device import DeviceBuffer
from ._printed_queue import PrintedQueue, refused
from ._program_kernel import parts

_SHORTEST: Final = 10e-6  # seconds between two looks at an event, at first
_LONGEST: Final = 0.5e-3
_NOT_READY: Final = 600  # cudaErrorNotReady


@final
class CudaEvent:
    """One launch on its way; it keeps what the device may still read."""

    __slots__ = ("_kept", "_raw")

    def __init__(self, raw: Any, kept: object) -> None:
        self._raw = raw
        self._kept = kept

    @property
    def has_ended(self) -> bool:
        """Ask the driver.

        Raises:
            CUDARuntimeError: The context is poisoned: nobody knows.
        """
        if self._raw is None:
            return True
        status = int(cp.cuda.runtime.eventQuery(self._raw.ptr))
        if status not in (0, _NOT_READY):
            raise cp.cuda.runtime.CUDARuntimeError(status)
        return status == 0

    def give_back(self) -> None:
        """Drop the driver's event and what was kept for it; the work has ended."""
        self._raw = self._kept = None


@final
class Upload:
    """The kernel of an upload: pinned host memory that nobody else can change."""

    __slots__ = ("nbytes", "pinned")

    def __init__(self, source: np.ndarray[Any, Any]) -> None:
        self.nbytes = source.nbytes
        self.pinned: Any = None
        if source.nbytes:
            self.pinned = cp.cuda.alloc_pinned_memory(source.nbytes)
            staging = np.frombuffer(self.pinned, source.dtype, source.size)
            staging.reshape(source.shape)[...] = source


@final
class LibraryKernel:
    """An application that a library computes."""

    __slots__ = ("adds", "call", "form")

    def __init__(self, call: Call, form: Form, *, adds: bool) -> None:
        self.call = call
        self.form = form
        self.adds = adds


@final
class CudaQueue(PrintedQueue):
    """The stream of one device.

    Attributes:
        stream: CuPy's stream; it does not wait for the default one.
    """

    def __init__(self, name: str, memory: Any) -> None:
        super().__init__(name, memory)
        self.is_lost = False
        with memory.raw:
            self.stream: Any = cp.cuda.Stream(non_blocking=True)

    def enqueue(self, launch: Launch) -> object:
        """Enqueue a launch and an event behind it.

        Raises:
            NotEnqueuedError: The program does not build, or the device is lost; nothing
                was enqueued.
        """
        self.require_open(is_lost=self.is_lost)
        with self._lock, self.memory.raw, self.stream, self.memory.pooled():
            try:
                steps = self._steps(launch)
                event = cp.cuda.Event(disable_timing=True)
            except Exception as error:
                self.is_lost = self._is_poisoned()
                raise refused(error) from error
            # From here on an exception proves nothing.
            kept = [step() for step in steps]
            event.record(self.stream)
        self.launches += max(1, len(steps))
        return CudaEvent(event, kept)

    def _is_poisoned(self) -> bool:
        """Whether the context answers with an error, whatever it is asked."""
        status = int(cp.cuda.runtime.streamQuery(self.stream.ptr))
        return status not in (0, _NOT_READY)

    def _steps(self, launch: Launch) -> list[Any]:
        """What to enqueue, as calls that return what must be kept."""
        return [step for part in parts(launch) for step in self._part(part)]

    def _part(self, launch: Launch) -> list[Any]:
        kernel = launch.kernel
        if isinstance(kernel, Upload):
            return self._upload(kernel, launch)
        if isinstance(kernel, LibraryKernel):
            if not any(a.size for a in kernel.call.outs):
                return []
            return [lambda: self._library(kernel, launch)]
        assert isinstance(kernel, PrintedKernel)
        lowered = kernel.lowered(launch)
        scratch = [self.memory.workspace(nbytes) for nbytes in lowered.scratch]
        steps = []
        for printed in lowered.launches:
            function = self.memory.function(printed.source, printed.entry)
            operands = [buffer_of(launch, a, scratch) for a in printed.arguments]
            raws = [b.raw if isinstance(b, DeviceBuffer) else b for b in operands]
            addresses = [0 if raw is None else raw.ptr for raw in raws]
            params = parameters(launch, printed)
            blocks = -(-printed.threads // printed.group)
            steps.append(
                self._launching(
                    function, addresses, params, blocks, printed.group, scratch
                )
            )
        return steps

    def _launching(
        self,
        function: Any,
        addresses: list[int],
        params: np.ndarray[Any, Any],
        blocks: int,
        group: int,
        scratch: list[Any],
    ) -> Any:
        """A kernel with pointers and one struct by value, as the driver takes them."""
        pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        size = ctypes.sizeof(ctypes.c_void_p)
        places = [ctypes.addressof(pointers) + k * size for k in range(len(addresses))]
        places.append(params.ctypes.data)
        table = (ctypes.c_void_p * len(places))(*places)

        def launch() -> object:
            driver.launchKernel(
                function.ptr,
                blocks,
                1,
                1,
                group,
                1,
                1,
                0,
                self.stream.ptr,
                ctypes.addressof(table),
                0,
            )
            return table, pointers, params, scratch

        return launch

    def _upload(self, kernel: Upload, launch: Launch) -> list[Any]:
        (target,) = launch.writes
        buffer = target.binding
        assert isinstance(buffer, DeviceBuffer)
        if buffer.raw is None or kernel.pinned is None:
            return []

        def copy() -> object:
            at = buffer.raw + target.descriptor.layout.offset
            at.copy_from_host_async(kernel.pinned.ptr, kernel.nbytes, self.stream)
            return kernel

        return [copy]

    def _library(self, kernel: LibraryKernel, launch: Launch) -> object:
        outs = [_array(a.binding, a.descriptor) for a in launch.writes]
        ins = [
            cp.asarray(a)
            if isinstance(a, np.ndarray)
            else _array(a.binding, a.descriptor)
            for a in launch.ins()
        ]
        if kernel.adds:
            held = cp.empty(outs[0].shape, outs[0].dtype)
            kernel.form(cp, kernel.call, [held], ins)
            cp.add(outs[0], held, out=outs[0])
            return ins, outs, held
        kernel.form(cp, kernel.call, outs, ins)
        return ins, outs

    def await_event(self, event: object, deadline: float) -> Proof:
        """Look at the event until it has ended or time is up.

        Raises:
            CUDARuntimeError: The context is poisoned; the engine is lost.
        """
        assert isinstance(event, CudaEvent)
        pause = _SHORTEST
        try:
            while not event.has_ended:
                left = deadline - time.monotonic()
                if left <= 0:
                    return "unproven"
                time.sleep(min(pause, left))
                pause = min(1.5 * pause, _LONGEST)
        except Exception:
            self.is_lost = True
            raise
        return "done"

    @contextmanager
    def poisoning(self, operation: str) -> Iterator[None]:
        """Inside, an error of the runtime costs the engine and says so.

        Raises:
            CompletionError: in place of that error.
        """
        try:
            yield
        except cp.cuda.runtime.CUDARuntimeError as error:
            self.is_lost = True
            raise CompletionError(
                operation=operation,
                found=f"`{self.name}` in a state that proves nothing ({error})",
                fix="start a new process; what was in flight is kept for good",
            ) from error

    def failure(self, event: object) -> BaseException | None:
        """CUDA reports no failure of single work: a fault poisons everything."""
        return None

    def synchronise(self, deadline: float) -> Proof:
        """Wait for an event behind everything that was enqueued.

        Raises:
            CUDARuntimeError: The context is poisoned; the engine is lost.
        """
        try:
            with self._lock, self.memory.raw:
                marker = cp.cuda.Event(disable_timing=True)
                marker.record(self.stream)
        except Exception:
            self.is_lost = True
            raise
        return self.await_event(CudaEvent(marker, None), deadline)

    def release_event(self, event: object) -> None:
        """Take an event back: the driver's handle and what it kept alive go."""
        assert isinstance(event, CudaEvent)
        event.give_back()


def _array(binding: Any, descriptor: Any) -> Any:
    """CuPy's array over a part of an allocation; it owns nothing."""
    layout = descriptor.layout
    if binding.raw is None:
        return cp.empty(layout.shape, descriptor.dtype)
    return cp.ndarray(
        layout.shape,
        descriptor.dtype,
        memptr=binding.raw + layout.offset,
        strides=layout.strides,
    )


__all__ = ["CudaEvent", "CudaQueue", "LibraryKernel", "Upload"]
