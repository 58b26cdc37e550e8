"""Arrays over device memory: where elements lie in an allocation, and no bytes.

A `DeviceArray` stands where host values have a NumPy array. It is metadata: reading and
writing go through the group of its container, as views that a launch uses up. It always
belongs to a container, because a value on a device has no inline form: launches hold
its root, and a root that others may hold is counted by `Shared`.

What lies behind (`DeviceAllocation`) knows the last work that writes it and the last
that touches it, so that host access can wait for exactly that.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, final

import numpy as np

from ..errors import TracedConversionError
from ._descriptor import CheckedDescriptor, host_array
from ._layout import Contiguous, c_strides, trusted_layout
from ._provider import Buffer

if TYPE_CHECKING:
    from ._record import RetentionContainer
    from ._view import TensorView
    from ._view_mut import TensorViewMut


class Work(Protocol):
    """Work in flight, as an allocation refers to it."""

    @property
    def is_released(self) -> bool:
        """Whether its end is proven, so that it holds no value any more."""
        ...

    def wait(self) -> None:
        """Wait until its outcome is known."""
        ...

    def settle(self, operation: str) -> None:
        """Wait until it has retired; raise its typed failure."""
        ...


class DeviceAllocation(Protocol):
    """What an asynchronous provider hands out for one root.

    Attributes:
        writer: The last work that writes it, or None.
        user: The last work that reads or writes it, or None.
    """

    nbytes: int
    writer: Work | None
    user: Work | None


@final
class DeviceArray:
    """Shape, dtype, offset and strides (bytes) of elements in a device allocation."""

    __slots__ = ("allocation", "dtype", "home", "offset", "shape", "slot", "strides")

    allocation: Any
    home: RetentionContainer
    slot: int

    def __init__(
        self,
        allocation: Any,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        offset: int,
        strides: tuple[int, ...],
    ) -> None:
        self.allocation = allocation
        self.shape = shape
        self.dtype = dtype
        self.offset = offset
        self.strides = strides

    @classmethod
    def whole(
        cls, allocation: Any, shape: tuple[int, ...], dtype: np.dtype[Any]
    ) -> DeviceArray:
        """All of an allocation, in C order."""
        return cls(allocation, shape, dtype, 0, c_strides(shape, dtype.itemsize))

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return self.size * self.dtype.itemsize

    @property
    def is_row_major(self) -> bool:
        """Whether the elements lie in C order without gaps."""
        layout = trusted_layout(0, self.shape, self.strides, self.dtype.itemsize)
        return isinstance(layout, Contiguous)

    @property
    def is_whole(self) -> bool:
        """Whether it is all of its allocation, in C order."""
        return self.nbytes == self.allocation.nbytes and self.is_row_major

    def row(self, i: int) -> DeviceArray:
        """The elements at index `i` of the first axis, not seated in a container."""
        return DeviceArray(
            self.allocation,
            self.shape[1:],
            self.dtype,
            self.offset + i * self.strides[0],
            self.strides[1:],
        )

    def view(self) -> TensorView:
        """Lend the elements for reading.

        Raises:
            BorrowConflictError: They are lent for writing.
        """
        return self.home.group().view(self.home.slot(self.slot))

    def view_mut(self) -> TensorViewMut:
        """Lend the elements for writing to a kernel whose caller owns them.

        Raises:
            BorrowConflictError: They are lent.
        """
        return self.home.group().view_mut(self.home.slot(self.slot))

    @property
    def is_in_flight(self) -> bool:
        """Whether an execution record may still hold the container."""
        user = self.allocation.user
        return user is not None and not user.is_released

    def land(self) -> None:
        """Wait until no execution record holds the container, or for good does.

        Cost: a synchronisation point; no copy.
        """
        user = self.allocation.user
        if user is not None:
            user.wait()

    def settle(self, operation: str) -> None:
        """Wait until the work that writes the elements has retired.

        Raises:
            ExecutionError: That work, or work that it depends on, failed.
            CompletionError: Nobody can say whether it has ended.

        Cost: a synchronisation point; no copy.
        """
        writer = self.allocation.writer
        if writer is not None:
            writer.settle(operation)

    def __array_ufunc__(
        self, ufunc: Any, method: str, *inputs: Any, out: Any = (), **options: Any
    ) -> Any:
        """`numpy.add(x, y, x)` runs on the device: sums in memory that a caller owns.

        Everything else would be host work on device memory, and is refused.
        """
        if (
            ufunc is np.add
            and method == "__call__"
            and not options
            and len(out) == 1
            and out[0] is inputs[0]
        ):
            target: DeviceArray = inputs[0]
            target.home.device.add_into(target, inputs[1])
            return target
        self._refuse(f"numpy.{ufunc.__name__}")

    def __array__(self, *args: object, **kwargs: object) -> Any:
        self._refuse("numpy conversion")

    def _refuse(self, operation: str) -> NoReturn:
        raise TracedConversionError(
            operation=operation,
            argument="x",
            found=f"elements in the memory of `{self.home.device.name}`",
            fix="read the value through `value()`, or move it with `to('cpu')`",
        )

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)} at {self.offset})"


def array_over(descriptor: CheckedDescriptor, allocation: Buffer) -> Any:
    """The descriptor's elements over its allocation: host elements or a device array.

    Cost: O(rank); no copy, no provider call.
    """
    if isinstance(allocation, np.ndarray):
        return host_array(descriptor, allocation)
    layout = descriptor.layout
    return DeviceArray(
        allocation, layout.shape, descriptor.dtype, layout.offset, layout.strides
    )


def land(record: Any) -> None:
    """Wait for work in flight before a value moves, or is changed in place (A3).

    Cost: nothing for host values; elsewhere a synchronisation point.
    """
    array = record.array
    if type(array) is DeviceArray:
        array.land()


def host_elements(record: Any, operation: str) -> np.ndarray[Any, Any]:
    """A value's elements on the host, read-only where they had to be mapped.

    Raises:
        ExecutionError, CompletionError: The work that writes them did not end well.

    Cost: nothing for host values; elsewhere a synchronisation point and a mapping,
    which ends with the array.
    """
    array = record.array
    if type(array) is np.ndarray:
        return array
    if type(array) is not DeviceArray:
        return np.asarray(array)  # a traced value refuses, and says so
    array.settle(operation)
    view = array.view()
    try:
        return view.numpy()
    finally:
        view.close()


__all__ = [
    "DeviceAllocation",
    "DeviceArray",
    "Work",
    "array_over",
    "host_elements",
    "land",
]
