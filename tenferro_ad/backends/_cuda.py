"""The CUDA backend through CuPy: one device, one stream, one private memory pool.

Elementwise, indexing, reduction and similar kernels are printed and compiled by NVRTC;
products, transforms, factorisations and sorting are library calls (`_cuda_library.py`).
Memory comes from a pool of the device's own, on the device's one stream, so that nobody
else can be handed memory that work still uses.

Host access copies through pinned memory on a second stream, after the work that writes
the value is proven to have ended.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, final

import cupy as cp
import numpy as np

from ..errors import UnsupportedError
from ..ops import Call, Elementwise, Library, Op, Write
from ._cuda_library import FORMS, has_form
from ._cuda_queue import CudaQueue, LibraryKernel, Upload
from ._engine import DEADLINE
from ._printed import application, unsupported
from ._printed_device import DeviceBuffer, PrintedDevice, checked_index
from ._registry import DeviceInfo, LaneUnavailableError
from .printing import CudaPrinter

_DTYPES: Final = frozenset("?bhilqBHILQfdFD")


@final
class CudaDevice(PrintedDevice):
    """Memory and the stream of one card, and the programs compiled for it.

    Args:
        index: CUDA's number of the card.
        name: discovery name.
        limit: most live bytes; None takes what the card has.
        deadline: seconds without proof after which completion counts as unproven.

    Attributes:
        pool: the private pool; memory hooks of CuPy see its traffic.
    """

    def __init__(
        self,
        index: int,
        name: str,
        *,
        limit: int | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self.raw: Any = cp.cuda.Device(index)
        with self.raw:
            _, total = cp.cuda.runtime.memGetInfo()
        super().__init__(
            name,
            CudaPrinter(),
            limit=int(total) if limit is None else limit,
            largest=None,
            deadline=deadline,
        )
        self.pool: Any = cp.cuda.MemoryPool()
        self._modules: dict[str, Any] = {}
        self._functions: dict[tuple[str, str], Any] = {}
        self._queue = CudaQueue(name, self)
        with self.raw:
            self._host: Any = cp.cuda.Stream(non_blocking=True)

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

    def workspace(self, nbytes: int) -> Any:
        """Memory of the pool on the device's stream."""
        with self.raw, self._queue.stream:
            try:
                return self.pool.malloc(max(nbytes, 1))
            except cp.cuda.memory.OutOfMemoryError as error:
                raise self.too_much(nbytes) from error

    def trim(self) -> None:
        """Give the pool's free memory back to the driver. It may wait for the card."""
        with self.raw:
            self.pool.free_all_blocks()

    def read(self, buffer: DeviceBuffer, mode: str) -> np.ndarray[Any, Any]:
        """The bytes of the buffer, through pinned memory.

        Cost: one copy on a stream of host access, and a wait.
        """
        with self.raw, self._queue.poisoning("map_host"):
            pinned = cp.cuda.alloc_pinned_memory(buffer.nbytes)
            buffer.raw.copy_to_host_async(pinned.ptr, buffer.nbytes, self._host)
            self._host.synchronize()
        return np.frombuffer(pinned, np.uint8, buffer.nbytes)

    def write_back(
        self, buffer: DeviceBuffer, mapped: np.ndarray[Any, Any], mode: str
    ) -> None:
        """What was written goes back."""
        if mode == "write":
            with self.raw, self._queue.poisoning("unmap_host"):
                address = mapped.__array_interface__["data"][0]
                buffer.raw.copy_from_host_async(address, buffer.nbytes, self._host)
                self._host.synchronize()

    def staged(self, source: np.ndarray[Any, Any]) -> object:
        """The launch that writes host elements; it owns a pinned copy of them."""
        with self.raw:
            return Upload(source)

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
    checked_index("cuda", index, _count())
    return CudaDevice(index, f"cuda:{index}")
