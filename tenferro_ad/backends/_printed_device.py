"""What devices of printed kernels share, whichever library drives them.

One device is one allocation domain with bounded memory. A subclass supplies memory of
the library (`workspace`, and `recycle` for what comes back), host access (`read`,
`write_back`, `staged`) and a queue. Who waits, what counts as which call, and what
happens at a limit or after a fork stands here once.
"""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from .._aval import Aval
from ..errors import AllocationLimitError, ForkedProcessError
from ..ops import Call, Elementwise, Equation, Op, Write
from ._device import AsynchronousDevice, Target
from ._printed import application, chained, copying
from ._registry import LaneUnavailableError

Array = np.ndarray[Any, Any]


@final
class DeviceBuffer:
    """One allocation of a device.

    Attributes:
        raw: the library's memory, or None if there are no bytes.
        user, writer: execution records of the eager work that holds it, and of that
            which writes it.
        last, written: the last event of a queue that touches it, and that writes it.
    """

    __slots__ = (
        "dtype",
        "last",
        "nbytes",
        "raw",
        "shape",
        "user",
        "writer",
        "written",
    )

    def __init__(
        self, raw: Any, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> None:
        self.raw = raw
        self.shape = shape
        self.dtype = dtype
        self.nbytes = nbytes
        self.user: Any = None
        self.writer: Any = None
        self.last: Any = None
        self.written: Any = None

    def __repr__(self) -> str:
        return f"DeviceBuffer({self.dtype}{list(self.shape)})"


class PrintedDevice(AsynchronousDevice):
    """Base of the OpenCL, WebGPU and CUDA devices.

    Args:
        name: discovery name.
        printer: of the device's dialect.
        limit: most live bytes; None sets none of our own.
        largest: most bytes of one allocation; None knows no such limit.
        deadline: seconds without proof after which completion counts as unproven.

    Attributes:
        counts: calls so far: `allocate`, `upload`, `map`, `unmap`, `prepare`, `bind`,
            `build`.
        live_bytes: bytes of live roots.
    """

    def __init__(
        self,
        name: str,
        printer: Any,
        *,
        limit: int | None,
        largest: int | None,
        deadline: float,
    ) -> None:
        super().__init__(deadline)
        self.name = name
        self.limit = limit
        self.counts: Counter[str] = Counter()
        self.live_bytes = 0
        self._printer = printer
        self._largest = largest
        self._kept: list[Any] = []
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the device."""
        return os.getpid() != self._process

    def require_process(self, operation: str) -> None:
        """Refuse a forked child: the driver's state belongs to the parent.

        Raises:
            ForkedProcessError: this process was forked.
        """
        if self.is_inherited:
            raise ForkedProcessError(operation=operation)

    # -- what a subclass supplies ------------------------------------------------------

    @abstractmethod
    def supports_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether kernels can compute with the type."""

    @abstractmethod
    def workspace(self, nbytes: int) -> Any:
        """Memory of the library, at least one byte: no root, no hand-out.

        Raises:
            AllocationLimitError: the library has no more; see `too_much`.
        """

    @abstractmethod
    def read(self, buffer: DeviceBuffer, mode: str) -> Array:
        """The bytes of a buffer whose writers have ended; for mode `write`, nothing
        else uses it either."""

    @abstractmethod
    def write_back(self, buffer: DeviceBuffer, mapped: Array, mode: str) -> None:
        """Undo `read`; after mode `write` the device has the bytes."""

    @abstractmethod
    def staged(self, source: Array) -> object:
        """The launch that writes host elements; it owns a copy of them."""

    def recycle(self, raw: Any) -> None:
        """Memory of a root comes back; nothing uses it. The library frees it."""

    def stored_nbytes(self, dtype: np.dtype[Any], nbytes: int) -> int:
        """Bytes that a root of so many takes in device memory."""
        return nbytes

    # -- memory ------------------------------------------------------------------------

    def small(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> DeviceBuffer:
        """Unwritten memory for one root."""
        return self.allocate(shape, dtype, math.prod(shape) * dtype.itemsize)

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> DeviceBuffer:
        """Unwritten memory for one root.

        Raises:
            AllocationLimitError: a limit would be passed, or the library has no more;
                nothing happened. Work in flight is waited for first.
            ForkedProcessError: this process was forked.
        """
        self.require_process("allocate")
        if not self._fits(nbytes):
            self.drain()  # what was dropped in flight is given back
            if not self._fits(nbytes):
                raise self.too_much(nbytes)
        raw = self._memory(self.stored_nbytes(dtype, nbytes)) if nbytes else None
        self.counts["allocate"] += 1
        self.live_bytes += nbytes
        return DeviceBuffer(raw, tuple(shape), np.dtype(dtype), nbytes)

    def _memory(self, nbytes: int) -> Any:
        try:
            return self.workspace(nbytes)
        except AllocationLimitError:
            self.drain()
        return self.workspace(nbytes)

    def _fits(self, nbytes: int) -> bool:
        within = self.limit is None or self.live_bytes + nbytes <= self.limit
        return within and (self._largest is None or nbytes <= self._largest)

    def too_much(self, nbytes: int) -> AllocationLimitError:
        """The refusal of an allocation."""
        most = "" if self._largest is None else f", and at most {self._largest} at once"
        return AllocationLimitError(
            operation="allocate",
            argument="nbytes",
            engine=self.name,
            nbytes=nbytes,
            limit=self.limit,
            found=f"{nbytes} bytes with {self.live_bytes} live of {self.limit}{most}",
            fix="free values, checkpoint a region, or raise the limit",
        )

    def give_back(self, buffer: DeviceBuffer) -> None:
        """A root ends; nothing in flight uses its memory."""
        raw, buffer.raw = buffer.raw, None
        self.live_bytes -= buffer.nbytes
        if self.is_inherited:
            self._kept.append(raw)  # the driver's state belongs to the parent
        elif raw is not None:
            self.recycle(raw)

    # -- host access -------------------------------------------------------------------

    def map_host(self, buffer: DeviceBuffer, mode: str) -> Array:
        """Wait for the work that writes the buffer (for writing: all work), and read.

        Raises:
            ForkedProcessError: this process was forked.
            ExecutionError, CompletionError: that work did not end well.
        """
        self.require_process("map_host")
        if mode == "write" and buffer.user is not None:
            buffer.user.wait()
        if buffer.writer is not None:
            buffer.writer.settle("map_host")
        self.counts["map"] += 1
        return np.empty(0, np.uint8) if buffer.raw is None else self.read(buffer, mode)

    def unmap_host(self, buffer: DeviceBuffer, mapped: Array, mode: str) -> None:
        """Undo `map_host`; what was written is visible to launches from then on."""
        self.counts["unmap"] += 1
        if self.is_inherited:
            self._kept.append(mapped)
        elif buffer.raw is not None:
            self.write_back(buffer, mapped, mode)

    def upload(self, target: Target, source: Array) -> None:
        """Write host elements, as a launch that owns its staging memory."""
        self.counts["upload"] += 1
        self.executions.launch("transfer", self.staged(source), [], [target])

    # -- access ------------------------------------------------------------------------

    def prepare_device(self, buffer: DeviceBuffer, mode: str) -> object:
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
        forms = isinstance(op.kernel, Elementwise | Write)
        return forms and all(self.supports_dtype(np.dtype(d)) for d in dtypes)

    def prepare(self, call: Call) -> object:
        """The printed kernel of one application."""
        return application(self._printer, call, self.name)

    def prepare_sum(self, call: Call) -> object:
        """The printed kernel that adds an application's result to its output."""
        return application(self._printer, call, self.name, adds=True)

    def prints(self, call: Call) -> bool:
        """Whether a printed chain can hold the application."""
        return bool(self._printer.supports(call))

    def prepare_chain(
        self,
        equations: Sequence[Equation],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> object:
        """The printed kernel of a chain."""
        return chained(self._printer, equations, inputs, outputs)

    def prepare_copy(self, aval: Aval) -> object:
        """The printed kernel that copies elements."""
        return copying(self._printer, aval)


def checked_index(kind: str, index: int, count: int) -> None:
    """Refuse a discovery number that no device has.

    Raises:
        LaneUnavailableError: always tells how many there are.
    """
    if index >= count:
        raise LaneUnavailableError(
            f"there are {count} devices of the kind `{kind}`",
            f"see `ta.devices({kind!r})`",
        )


__all__ = ["DeviceBuffer", "PrintedDevice", "checked_index"]
