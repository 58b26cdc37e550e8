"""The OpenCL backend: any vendor's device through PyOpenCL, PoCL where there is none.

One device is one context, which is one allocation domain; queues are endpoints over it.
Kernels are printed from the operation table. Memory is bounded by a limit of our own,
because drivers hand out what they may not have. A forked child can use none of it.

Host access maps a buffer: a wait and a mapping, which on devices that share the host's
memory is no copy, and never one in a ledger. Uploads are copies that the doors record;
their staging memory is the launch's own until they have ended.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import numpy as np
import pyopencl as cl

from .._aval import Aval
from ..errors import AllocationLimitError, ForkedProcessError
from ..ops import Call, Op
from ..storage import POOLED_FROM
from ._device import AsynchronousDevice, Target
from ._engine import DEADLINE
from ._opencl_queue import ClBuffer, OpenClQueue, Upload
from ._printed import application, copying
from ._registry import DeviceInfo, LaneUnavailableError
from .printing import OpenCLPrinter

_GRAIN: Final = 64
_DTYPES: Final = frozenset("?bhilqBHILQf")
_WIDE: Final = frozenset("dD")


@final
class OpenClDevice(AsynchronousDevice):
    """Memory of one context, its first queue, and the kernels built for it.

    Args:
        raw: the library's device.
        name: discovery name.
        limit: most live bytes; None takes what the device says it has.
        deadline: seconds without proof after which completion counts as unproven.

    Attributes:
        counts: calls so far: `allocate`, `upload`, `map`, `unmap`, `prepare`, `bind`,
            `build`.
        live_bytes, pool_bytes: bytes of live roots, and of freed ones kept for reuse.
    """

    def __init__(
        self,
        raw: Any,
        name: str,
        *,
        limit: int | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        super().__init__(deadline)
        self.name = name
        self.raw = raw
        self.context: Any = cl.Context([raw])
        self.limit = int(raw.global_mem_size) if limit is None else limit
        self.has_doubles = "cl_khr_fp64" in raw.extensions.split()
        self.counts: Counter[str] = Counter()
        self.live_bytes = 0
        self.pool_bytes = 0
        self._largest = int(raw.max_mem_alloc_size)
        self._printer = OpenCLPrinter(["f64"] if self.has_doubles else [])
        self._kernels_built: dict[tuple[str, str], Any] = {}
        self._programs: dict[str, Any] = {}
        self._pool: dict[int, list[Any]] = {}
        self._kept: list[Any] = []
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._first = OpenClQueue(name, self)
        self._host: Any = cl.CommandQueue(self.context)  # maps wait for nothing else

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    # -- queues ------------------------------------------------------------------------

    @property
    def endpoint(self) -> OpenClQueue:
        """The queue that eager operations use."""
        return self._first

    def open_queue(self, name: str) -> OpenClQueue:
        """Another endpoint over the same memory, under a name of the caller's choice.

        Cost: one queue of the driver.
        """
        return OpenClQueue(name, self)

    # -- memory ------------------------------------------------------------------------

    def supports_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether kernels can compute with the type."""
        return (
            dtype.char in _DTYPES
            or dtype == np.complex64
            or (self.has_doubles and dtype.char in _WIDE)
        )

    def small(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> ClBuffer:
        """Unwritten memory for one root."""
        size = int(np.prod(shape, dtype=np.int64))
        return self.allocate(shape, dtype, size * dtype.itemsize)

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> ClBuffer:
        """Unwritten memory for one root; large ones from the pool if it has some.

        Raises:
            AllocationLimitError: the limit would be passed, or the driver refuses;
                nothing happened. Work in flight is waited for first.
            ForkedProcessError: this process was forked.
        """
        if os.getpid() != self._process:
            raise ForkedProcessError(operation="allocate")
        if self.live_bytes + nbytes > self.limit or nbytes > self._largest:
            self.drain()  # what was dropped in flight is given back
            if self.live_bytes + nbytes > self.limit or nbytes > self._largest:
                raise self._too_much(nbytes)
        raw = self._take(nbytes)
        self.counts["allocate"] += 1
        self.live_bytes += nbytes
        return ClBuffer(raw, tuple(shape), np.dtype(dtype), nbytes)

    def workspace(self, nbytes: int) -> Any:
        """Scratch of one launch: no root, no hand-out."""
        return self._take(max(nbytes, 4))

    def _too_much(self, nbytes: int) -> AllocationLimitError:
        return AllocationLimitError(
            operation="allocate",
            argument="nbytes",
            engine=self.name,
            nbytes=nbytes,
            limit=self.limit,
            found=f"{nbytes} bytes with {self.live_bytes} live of {self.limit}, and at "
            f"most {self._largest} at once",
            fix="free values, checkpoint a region, or raise the limit",
        )

    def _take(self, nbytes: int) -> Any:
        if not nbytes:
            return None
        size = -(-nbytes // _GRAIN) * _GRAIN
        if size >= POOLED_FROM:
            try:
                raw = self._pool[size].pop()
            except (KeyError, IndexError):
                if self.pool_bytes + self.live_bytes + size > self.limit:
                    self.trim()
            else:
                self.pool_bytes -= size
                return raw
        try:
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
        except cl.Error as error:
            raise self._too_much(nbytes) from error

    def give_back(self, buffer: ClBuffer) -> None:
        """Free a root's memory, or keep it for the next one of its size."""
        raw, buffer.raw = buffer.raw, None
        self.live_bytes -= buffer.nbytes
        if os.getpid() != self._process:
            self._kept.append(raw)  # the driver's state belongs to the parent
        elif raw is not None and raw.size >= POOLED_FROM:
            self._pool.setdefault(raw.size, []).append(raw)
            self.pool_bytes += raw.size

    def trim(self) -> None:
        """Give the pool's memory back to the driver."""
        self._pool.clear()
        self.pool_bytes = 0

    def map_host(self, buffer: ClBuffer, mode: str) -> np.ndarray[Any, Any]:
        """Wait for the work that writes the buffer (for writing: all work), and map.

        Raises:
            ExecutionError, CompletionError: that work did not end well.
        """
        if mode == "write" and buffer.user is not None:
            buffer.user.wait()
        if buffer.writer is not None:
            buffer.writer.settle("map_host")
        event = buffer.last if mode == "write" else buffer.written
        if event is not None:
            event.queue.finish(event, self.deadline)
        self.counts["map"] += 1
        if buffer.raw is None:
            return np.empty(0, np.uint8)
        flags: Any = cl.map_flags.READ if mode == "read" else _BOTH
        mapping: Any = cl.enqueue_map_buffer
        array, _ = mapping(self._host, buffer.raw, flags, 0, (buffer.nbytes,), np.uint8)
        found: np.ndarray[Any, Any] = array
        return found

    def unmap_host(
        self, buffer: ClBuffer, mapped: np.ndarray[Any, Any], mode: str
    ) -> None:
        """Undo `map_host`; what was written is visible to launches from then on."""
        self.counts["unmap"] += 1
        if mapped.size:
            mapped.base.release(self._host)  # type: ignore[union-attr]
            self._host.finish()

    def upload(self, target: Target, source: np.ndarray[Any, Any]) -> None:
        """Write host elements, as a launch that owns its staging memory."""
        self.counts["upload"] += 1
        self.executions.launch("transfer", Upload(source), [], [target])

    # -- access ------------------------------------------------------------------------

    def prepare_device(self, buffer: ClBuffer, mode: str) -> object:
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
        return self._first.supports(op, dtypes)

    def prepare(self, call: Call) -> object:
        """The printed kernel of one application."""
        return application(self._printer, call, self.name)

    def prepare_sum(self, call: Call) -> object:
        """The printed kernel that adds an application's result to its output."""
        return application(self._printer, call, self.name, adds=True)

    def prepare_copy(self, aval: Aval) -> object:
        """The printed kernel that copies elements."""
        return copying(self._printer, aval)

    def program(self, source: str, entry: str) -> Any:
        """A kernel of a program text, built on first use."""
        key = (source, entry)
        kernel = self._kernels_built.get(key)
        if kernel is None:
            program = self._programs.get(source)
            if program is None:
                self.counts["build"] += 1
                program = self._programs[source] = cl.Program(
                    self.context, source
                ).build()
            kernel = self._kernels_built[key] = cl.Kernel(program, entry)
        return kernel


_BOTH: Final = cl.map_flags.READ | cl.map_flags.WRITE


# ---- discovery


def _raw_devices() -> list[Any]:
    """The devices of all platforms. Simulators that interpret kernels come last."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise LaneUnavailableError(
            f"no OpenCL platform was found ({error})",
            "install a driver of your device, or PoCL: "
            "`pip install 'tenferro-ad[opencl]'`",
        ) from error
    platforms = sorted(platforms, key=lambda p: "oclgrind" in p.name.lower())
    found = [device for platform in platforms for device in platform.get_devices()]
    if not found:
        raise LaneUnavailableError(
            "the OpenCL platforms offer no device",
            "install a driver of your device, or PoCL: "
            "`pip install 'tenferro-ad[opencl]'`",
        )
    return found


def discover() -> Iterator[DeviceInfo]:
    """What PyOpenCL finds, in its own order."""
    for index, raw in enumerate(_raw_devices()):
        name = f"opencl:{index}"
        version = f"{raw.platform.version} ({raw.platform.name})"
        yield DeviceInfo(name, "opencl", raw.name.strip(), version, name)


def open_device(index: int) -> OpenClDevice:
    """The device of a discovery number."""
    found = _raw_devices()
    if index >= len(found):
        raise LaneUnavailableError(
            f"there are {len(found)} OpenCL devices", "see `ta.devices('opencl')`"
        )
    return OpenClDevice(found[index], f"opencl:{index}")
