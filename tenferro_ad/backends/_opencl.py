"""The OpenCL backend: any vendor's device through PyOpenCL, PoCL where there is none.

One device is one context, which is one allocation domain; queues are endpoints over it.
Kernels are printed from the operation table. Memory is bounded by a limit of our own,
because drivers hand out what they may not have. A forked child can use none of it.

Host access maps a buffer: a wait and a mapping, which on devices that share the host's
memory is no copy, and never one in a ledger. Uploads are copies that the doors record;
their staging memory is the launch's own until they have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, final

import numpy as np
import pyopencl as cl

from ..storage import POOLED_FROM
from ._engine import DEADLINE
from ._opencl_queue import OpenClQueue, Upload
from ._printed_device import DeviceBuffer, PrintedDevice, checked_index
from ._registry import DeviceInfo, LaneUnavailableError
from .printing import OpenCLPrinter, joined

_GRAIN: Final = 64
_DTYPES: Final = frozenset("?bhilqBHILQf")
_WIDE: Final = frozenset("dD")


@final
class OpenClDevice(PrintedDevice):
    """Memory of one context, its first queue, and the kernels built for it.

    Args:
        raw: the library's device.
        name: discovery name.
        limit: most live bytes; None takes what the device says it has.
        deadline: seconds without proof after which completion counts as unproven.

    Attributes:
        pool_bytes: bytes of freed roots that are kept for reuse.
    """

    def __init__(
        self,
        raw: Any,
        name: str,
        *,
        limit: int | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self.has_doubles = "cl_khr_fp64" in raw.extensions.split()
        self._has = int(raw.global_mem_size)
        super().__init__(
            name,
            OpenCLPrinter(["f64"] if self.has_doubles else []),
            limit=self._has if limit is None else limit,
            largest=int(raw.max_mem_alloc_size),
            deadline=deadline,
        )
        self.raw = raw
        self.context: Any = cl.Context([raw])
        self.pool_bytes = 0
        self._kernels_built: dict[tuple[str, str], Any] = {}
        self._programs: dict[str, Any] = {}
        self._pool: dict[int, list[Any]] = {}
        self._first = OpenClQueue(name, self)
        self._host: Any = cl.CommandQueue(self.context)  # maps wait for nothing else

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

    def workspace(self, nbytes: int) -> Any:
        """Memory of the context, a large one from the pool if it has some."""
        size = -(-max(nbytes, 1) // _GRAIN) * _GRAIN
        if size >= POOLED_FROM:
            try:
                raw = self._pool[size].pop()
            except (KeyError, IndexError):
                most = self._has if self.limit is None else self.limit
                if self.pool_bytes + self.live_bytes + size > most:
                    self.trim()
            else:
                self.pool_bytes -= size
                return raw
        try:
            return cl.Buffer(self.context, cl.mem_flags.READ_WRITE, size)
        except cl.Error as error:
            raise self.too_much(nbytes) from error

    def recycle(self, raw: Any) -> None:
        """Free a root's memory, or keep it for the next one of its size."""
        if raw.size >= POOLED_FROM:
            self._pool.setdefault(raw.size, []).append(raw)
            self.pool_bytes += raw.size

    def trim(self) -> None:
        """Give the pool's memory back to the driver."""
        self._pool.clear()
        self.pool_bytes = 0

    def read(self, buffer: DeviceBuffer, mode: str) -> np.ndarray[Any, Any]:
        """A mapping of the buffer."""
        event = buffer.last if mode == "write" else buffer.written
        if event is not None:
            event.queue.finish(event, self.deadline)
        flags: Any = cl.map_flags.READ if mode == "read" else _BOTH
        mapping: Any = cl.enqueue_map_buffer
        array, _ = mapping(self._host, buffer.raw, flags, 0, (buffer.nbytes,), np.uint8)
        found: np.ndarray[Any, Any] = array
        return found

    def write_back(
        self, buffer: DeviceBuffer, mapped: np.ndarray[Any, Any], mode: str
    ) -> None:
        """End the mapping."""
        mapped.base.release(self._host)  # type: ignore[union-attr]
        self._host.finish()

    def staged(self, source: np.ndarray[Any, Any]) -> object:
        """The launch that writes host elements; it owns a copy of them."""
        return Upload(source)

    # -- kernels -----------------------------------------------------------------------

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

    def build(self, kernels: Iterable[tuple[str, str]]) -> None:
        """Build kernels (program text and entry) together, those that are not built.

        Cost: one call of the driver's compiler for each head of a program text.
        """
        built = self._kernels_built
        entries = dict(kernels)
        new = [s for s, entry in entries.items() if (s, entry) not in built]
        if len(new) < 2:
            return
        for text, members in joined(new):
            self.counts["build"] += 1
            program: Any = cl.Program(self.context, text).build()
            for source in members:
                built[source, entries[source]] = cl.Kernel(program, entries[source])


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
    checked_index("opencl", index, len(found))
    return OpenClDevice(found[index], f"opencl:{index}")
