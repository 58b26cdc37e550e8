"""The CUDA backend through CuPy: one device, one stream, one private memory pool.

Elementwise, indexing, reduction and similar kernels are printed and compiled by NVRTC;
products, transforms, factorisations and sorting are library calls (`_cuda_library.py`).
Memory comes from a pool of the device's own, on the device's one stream, so that nobody
else can be handed memory that work still uses.

Host access copies through pinned memory on a second stream, after the work that writes
the value is proven to have ended.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, final

import cupy as cp
import numpy as np

from .._aval import Aval
from ..errors import AllocationLimitError, ForkedProcessError, UnsupportedError
from ..ops import Call, Elementwise, Library, Op, Write
from ._cuda_library import FORMS, has_form
from ._cuda_queue import CudaBuffer, CudaQueue, LibraryKernel, Upload
from ._device import AsynchronousDevice, Target
from ._engine import DEADLINE
from ._printed import application, copying, unsupported
from ._registry import DeviceInfo, LaneUnavailableError
from .printing import CudaPrinter

_DTYPES: Final = frozenset("?bhilqBHILQfdFD")


@final
class CudaDevice(AsynchronousDevice):
    """Memory and the stream of one card, and the programs compiled for it.

    Args:
        index: CUDA's number of the card.
        name: discovery name.
        limit: most live bytes; None takes what the card has.
        deadline: seconds without proof after which completion counts as unproven.

    Attributes:
        counts: calls so far: `allocate`, `upload`, `map`, `unmap`, `prepare`, `bind`,
            `build`.
        pool: the private pool; memory hooks of CuPy see its traffic.
        live_bytes: bytes of live roots.
    """

    def __init__(
        self,
        index: int,
        name: str,
        *,
        limit: int | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        super().__init__(deadline)
        self.name = name
        self.raw: Any = cp.cuda.Device(index)
        with self.raw:
            _, total = cp.cuda.runtime.memGetInfo()
        self.limit = int(total) if limit is None else limit
        self.counts: Counter[str] = Counter()
        self.live_bytes = 0
        self.pool: Any = cp.cuda.MemoryPool()
        self._printer = CudaPrinter()
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._kept: list[Any] = []
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._queue = CudaQueue(name, self)
        with self.raw:
            self._host: Any = cp.cuda.Stream(non_blocking=True)

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    @property
    def endpoint(self) -> CudaQueue:
        """The one stream of the device."""
        return self._queue

    def pooled(self) -> AbstractContextManager[Any]:
        """Inside, CuPy allocates from the device's own pool (in this thread)."""
        found: AbstractContextManager[Any] = cp.cuda.using_allocator(self.pool.malloc)
        return found

    # -- memory ------------------------------------------------------------------------

    def supports_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether kernels can compute with the type."""
        return dtype.char in _DTYPES

    def small(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> CudaBuffer:
        """Unwritten memory for one root."""
        size = int(np.prod(shape, dtype=np.int64))
        return self.allocate(shape, dtype, size * dtype.itemsize)

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> CudaBuffer:
        """Unwritten memory for one root, from the pool.

        Raises:
            AllocationLimitError: the limit would be passed, or the card has no more;
                nothing happened. Work in flight is waited for first.
            ForkedProcessError: this process was forked.
        """
        if os.getpid() != self._process:
            raise ForkedProcessError(operation="allocate")
        if self.live_bytes + nbytes > self.limit:
            self.drain()  # what was dropped in flight is given back
            if self.live_bytes + nbytes > self.limit:
                raise self._too_much(nbytes)
        raw = self._from_pool(nbytes) if nbytes else None
        self.counts["allocate"] += 1
        self.live_bytes += nbytes
        return CudaBuffer(raw, tuple(shape), np.dtype(dtype), nbytes)

    def _from_pool(self, nbytes: int) -> Any:
        try:
            return self.workspace(nbytes)
        except AllocationLimitError:
            self.drain()
        return self.workspace(nbytes)

    def workspace(self, nbytes: int) -> Any:
        """Memory of the pool on the device's stream: no root, no hand-out."""
        with self.raw, self._queue.stream:
            try:
                return self.pool.malloc(max(nbytes, 1))
            except cp.cuda.memory.OutOfMemoryError as error:
                raise self._too_much(nbytes) from error

    def _too_much(self, nbytes: int) -> AllocationLimitError:
        return AllocationLimitError(
            operation="allocate",
            argument="nbytes",
            engine=self.name,
            nbytes=nbytes,
            limit=self.limit,
            found=f"{nbytes} bytes with {self.live_bytes} live of {self.limit}",
            fix="free values, checkpoint a region, or raise the limit",
        )

    def give_back(self, buffer: CudaBuffer) -> None:
        """Return a root's memory to the pool; nothing in flight uses it."""
        raw, buffer.raw = buffer.raw, None
        self.live_bytes -= buffer.nbytes
        if os.getpid() != self._process:
            self._kept.append(raw)  # the driver's state belongs to the parent

    def trim(self) -> None:
        """Give the pool's free memory back to the driver. It may wait for the card."""
        with self.raw:
            self.pool.free_all_blocks()

    def map_host(self, buffer: CudaBuffer, mode: str) -> np.ndarray[Any, Any]:
        """Wait for the work that writes the buffer (for writing: all work), and read.

        Raises:
            ExecutionError, CompletionError: that work did not end well.

        Cost: one copy through pinned memory, on a stream of host access, and a wait.
        """
        if mode == "write" and buffer.user is not None:
            buffer.user.wait()
        if buffer.writer is not None:
            buffer.writer.settle("map_host")
        self.counts["map"] += 1
        if buffer.raw is None:
            return np.empty(0, np.uint8)
        with self.raw, self._queue.poisoning("map_host"):
            pinned = cp.cuda.alloc_pinned_memory(buffer.nbytes)
            buffer.raw.copy_to_host_async(pinned.ptr, buffer.nbytes, self._host)
            self._host.synchronize()
        return np.frombuffer(pinned, np.uint8, buffer.nbytes)

    def unmap_host(
        self, buffer: CudaBuffer, mapped: np.ndarray[Any, Any], mode: str
    ) -> None:
        """Undo `map_host`: what was written goes back."""
        self.counts["unmap"] += 1
        if mode == "write" and buffer.raw is not None:
            with self.raw, self._queue.poisoning("unmap_host"):
                address = mapped.__array_interface__["data"][0]
                buffer.raw.copy_from_host_async(address, buffer.nbytes, self._host)
                self._host.synchronize()

    def upload(self, target: Target, source: np.ndarray[Any, Any]) -> None:
        """Write host elements, as a launch that owns its pinned staging memory."""
        self.counts["upload"] += 1
        with self.raw:
            staged = Upload(source)
        self.executions.launch("transfer", staged, [], [target])

    # -- access ------------------------------------------------------------------------

    def prepare_device(self, buffer: CudaBuffer, mode: str) -> object:
        """A launch takes the allocation as it is: nothing is reserved."""
        self.counts["prepare"] += 1
        return buffer

    def bind(self, state: object) -> object:
        """The binding of a prepared access is its allocation."""
        self.counts["bind"] += 1
        return state

    # -- kernels -----------------------------------------------------------------------

    def supports(self, op: Op, dtypes: Sequence[Any]) -> bool:
        """Whether the device may have a kernel for operands of these types."""
        forms = op.name in FORMS or isinstance(op.kernel, Elementwise | Write | Library)
        return forms and all(self.supports_dtype(np.dtype(d)) for d in dtypes)

    def prepare(self, call: Call) -> object:
        """The kernel of one application: a library's, or a printed one."""
        return self._prepared_for(call, adds=False)

    def prepare_sum(self, call: Call) -> object:
        """The kernel that adds an application's result to its output."""
        return self._prepared_for(call, adds=True)

    def _prepared_for(self, call: Call, *, adds: bool) -> object:
        if has_form(call):
            return LibraryKernel(call, FORMS[call.op.name], adds=adds)
        try:
            return application(self._printer, call, self.name, adds=adds)
        except UnsupportedError as error:
            raise unsupported(call, self.name) from error

    def prepare_copy(self, aval: Aval) -> object:
        """The printed kernel that copies elements."""
        return copying(self._printer, aval)

    def function(self, source: str, entry: str) -> Any:
        """A function of a program text, compiled on first use."""
        key = (source, entry)
        found = self._functions.get(key)
        if found is None:
            module = self._modules.get(source)
            if module is None:
                self.counts["build"] += 1
                module = cp.cuda.Module()
                module.load(machine_code(source))
                self._modules[source] = module
            found = self._functions[key] = module.get_function(entry)
        return found


def machine_code(source: str) -> bytes:
    """What NVRTC makes of a program text for the current device.

    `RawModule` would compile with `-ftz=true`, which takes the smallest float32 numbers
    for zero; NumPy and the other lanes do not.
    """
    found: bytes
    found, _ = cp.cuda.compiler.compile_using_nvrtc(source, cache_in_memory=True)
    return found


# ---- discovery


def _count() -> int:
    try:
        found = int(cp.cuda.runtime.getDeviceCount())
    except cp.cuda.runtime.CUDARuntimeError as error:
        raise LaneUnavailableError(
            f"CUDA offers no card ({error})", "install NVIDIA's driver"
        ) from error
    if not found:
        raise LaneUnavailableError("CUDA offers no card", "install NVIDIA's driver")
    return found


def discover() -> Iterator[DeviceInfo]:
    """The cards that CUDA finds, in its own order."""
    for index in range(_count()):
        facts = cp.cuda.runtime.getDeviceProperties(index)
        name = f"cuda:{index}"
        version = f"CUDA driver {cp.cuda.runtime.driverGetVersion()}"
        yield DeviceInfo(name, "cuda", facts["name"].decode(), version, name)


def open_device(index: int) -> CudaDevice:
    """The card of a discovery number."""
    if index >= _count():
        raise LaneUnavailableError(
            f"there are {_count()} CUDA cards", "see `ta.devices('cuda')`"
        )
    return CudaDevice(index, f"cuda:{index}")
