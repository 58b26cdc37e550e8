"""Eager tensors: cloneable, read-only handles on value records.

A handle is one strong reference to a value record plus where recordings know it: a
chain of (recording, node) from the innermost level outwards. It owns no bytes and gives
no write authority; `into_value` moves the owner out when nobody else holds the value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn, final

import numpy as np

from .._aval import Aval
from ..errors import (
    BorrowConflictError,
    ExtractError,
    ExtractFailedError,
    ImmutableTensorError,
    NotCloneableError,
    NotUniqueError,
    ShapeError,
    TracedConversionError,
    UseAfterMoveError,
)
from ..runtime import is_symbolic, traced_error
from ..storage import (
    DeviceArray,
    Tensor,
    ValueRecord,
    duplicate,
    host_elements,
)
from ..tape import Leaf
from ._moved_out import gone
from ._numbers import need_parts
from ._other_names import OtherNames
from ._value_guard import ValueGuard
from ._watched_sizes import WATCH, Watch

if TYPE_CHECKING:
    from ._operators import Operators
else:
    Operators = object


@final
class EagerTensor(OtherNames, Operators):
    """A handle on one immutable value.

    Made by `ta.asarray`, `ta.variable` and operations, not by calling the class.
    Cloning and dropping a handle copy and allocate nothing.
    """

    __slots__ = ("_link", "_node", "_outer", "_rec")

    def __init__(self, record: ValueRecord, link: Any, node: int, outer: Any) -> None:
        self._rec: ValueRecord = record
        self._link = link
        self._node = node
        self._outer = outer

    def __del__(self) -> None:
        try:
            tokens = self._rec.tokens
        except AttributeError:
            return  # moved out, or never finished
        if tokens:
            try:
                tokens.pop()
            except IndexError:
                pass  # another holder took the last token: we are the last
        link = self._link
        if link is not None:
            live = link.live
            if live is not None:
                node = self._node
                n = live[node] - 1
                live[node] = n
                if not n:
                    link.clear(node)
            outer = self._outer
            while outer is not None:
                outer[0].drop(outer[1])
                outer = outer[2]

    # -- facts -------------------------------------------------------------------------

    @property
    def _record(self) -> ValueRecord:
        """The value record (package use): descriptor and container of the value."""
        return self._live("read")

    @property
    def aval(self) -> Aval:
        """Shape, dtype and device together."""
        return self._live("aval").aval

    @property
    def shape(self) -> tuple[int, ...]:
        """The length of each axis."""
        record = self._live("shape")
        shape = record.aval.shape
        watch = _watch_of(record)
        return shape if watch is None else watch.sizes(shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements, one of NumPy's."""
        return self._live("dtype").aval.dtype

    @property
    def device(self) -> Any:
        """Where the value lives."""
        return self._live("device").aval.device

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self._live("ndim").aval.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        record = self._live("size")
        size = record.aval.size
        watch = _watch_of(record)
        return size if watch is None else watch.size(size)

    @property
    def nbytes(self) -> int:
        """The bytes of the elements; the memory under a view may be larger."""
        return self._live("nbytes").aval.nbytes

    @property
    def is_tracked(self) -> bool:
        """Recorded on a live tape (a variable outside any tape is not)."""
        link, outer = self._link, self._outer
        while link is not None:
            if link.live is not None:
                return True
            if outer is None:
                return False
            link, _, outer = outer
        return False

    @property
    def leaf(self) -> Any:
        """The bare token of a variable (what gradients are keyed by), or None."""
        link, outer = self._link, self._outer
        while link is not None:
            if type(link) is Leaf:
                return link
            if outer is None:
                return None
            link, _, outer = outer
        return None

    def _live(self, operation: str) -> ValueRecord:
        record: ValueRecord | None = self._rec
        if record is None:
            raise UseAfterMoveError(operation=operation, **gone(self._node))
        return record

    # -- ownership ---------------------------------------------------------------------

    def clone(self) -> EagerTensor:
        """Another handle on the same value.

        Raises:
            UseAfterMoveError: the value was moved out.

        Cost: one object; allocates nothing, copies nothing, no provider call.
        """
        record = self._live("clone")
        record.tokens.append(None)
        link, outer = self._link, self._outer
        if link is not None and link.live is not None:
            link.keep(self._node)
        while outer is not None:
            outer[0].keep(outer[1])
            outer = outer[2]
        return EagerTensor(record, link, self._node, self._outer)

    def value(self) -> ValueGuard:
        """Borrow the value: `with y.value() as v: v.view, v.numpy()`.

        Cost: metadata only; waits for the value on asynchronous lanes, copies nothing.

        Raises:
            UseAfterMoveError: the value was moved out.
            ExecutionError, CompletionError: on asynchronous lanes, the work that makes
                the value did not end well.
        """
        record = self._live("value")
        if type(record.array) is DeviceArray:
            record.array.settle("value")
        return ValueGuard(record)

    def duplicate_value(self) -> Tensor:
        """A new owner of a copy of the bytes (`ExplicitDuplicate`).

        Raises:
            UseAfterMoveError: the value was moved out.
            ForbiddenEventError: inside `ta.forbid`.
            AllocationLimitError: the device has no room.

        Cost: allocates and copies `nbytes`; synchronises with the producer.
        """
        record = self._live("duplicate_value")
        return duplicate(record.array, record.aval, "duplicate_value").into_tensor()

    def into_value(self) -> Tensor:
        """Move the owner out of this handle; the handle is empty afterwards.

        Cost: metadata only; never copies, allocates or waits.

        Raises:
            NotUniqueError: someone else still holds the value; `recovered` is this
                same, still usable handle.
            ExtractFailedError: another descriptor needs the allocation, or a guard or
                an exported array still reads it; `recovered` is this same handle.
            UseAfterMoveError: the value was moved out before.
        """
        record = self._live("into_value")
        if not record.is_unique or record.is_rootless:
            raise NotUniqueError(
                operation="into_value",
                found="someone else still holds this value",
                fix="drop the other holders, or use `duplicate_value()`",
                recovered=self,
            )
        try:
            tensor = record.into_tensor()
        except (ExtractError, BorrowConflictError) as error:
            raise ExtractFailedError(
                operation="into_value",
                found=error.found,
                fix="drop it first, or use `duplicate_value()`",
                recovered=self,
                cause=_extract_error(error),
            ) from None
        self._leave()
        return tensor

    def _leave(self) -> None:
        """Forget the record after it was emptied; recordings lose this handle."""
        link, outer = self._link, self._outer
        if link is not None:
            link.drop(self._node)
        while outer is not None:
            outer[0].drop(outer[1])
            outer = outer[2]
        self._link, self._node, self._outer = None, -1, None
        self._rec = None  # type: ignore[assignment]

    # -- leaving the framework ---------------------------------------------------------

    def _untracked(self, operation: str) -> ValueRecord:
        record = self._live(operation)
        if is_symbolic(record):
            raise traced_error(operation, record.array)
        if self._link is not None and self.is_tracked:
            raise TracedConversionError(
                operation=operation,
                argument="self",
                found=f"a tracked value of shape {record.aval.shape}",
                fix="use `with y.value() as v: v.numpy()` to read it"
                + (
                    "; a checkpoint records constants as well"
                    if self._link.is_region
                    else ", or `ta.stop_gradient(y)` to make it a constant"
                ),
            )
        return record

    def __array__(
        self, dtype: Any = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        record = self._untracked("numpy conversion")
        if dtype is not None:
            need_parts("numpy conversion", record.aval.dtype, np.dtype(dtype))
        if copy or (dtype is not None and np.dtype(dtype) != record.aval.dtype):
            if copy is False:
                raise TracedConversionError(
                    operation="numpy conversion",
                    argument="dtype",
                    found=f"a request for {np.dtype(dtype)} without a copy",
                    fix="pass `copy=None`, or convert with `ta.astype` first",
                )
            out = np.empty(record.aval.shape, dtype or record.aval.dtype)
            np.copyto(out, host_elements(record, "numpy conversion"), casting="unsafe")
            return out
        return self.value().numpy()

    def numpy(self) -> np.ndarray[Any, Any]:
        """The bytes as a read-only array, which borrows the value while it lives.

        Cost: no copy; waits for the value on asynchronous lanes.

        Raises:
            TracedConversionError: the value is tracked; the message names the fix.
        """
        self._untracked("numpy")
        return self.value().numpy()

    def _one(self, operation: str) -> np.ndarray[Any, Any]:
        """The bytes of a value with one element, for conversion to a Python number."""
        record = self._untracked(operation)
        if record.aval.size != 1:
            raise ShapeError(
                operation=operation,
                argument="self",
                found=f"shape {record.aval.shape}",
                fix="reduce it to one boolean (`ta.any`, `ta.all`), or choose by "
                "element with `ta.where`"
                if operation == "bool"
                else "reduce it to one element (`ta.sum`, indexing), or use `numpy()`",
            )
        return host_elements(record, operation).reshape(())

    def item(self) -> Any:
        """The one element as a Python number.

        Raises:
            TracedConversionError: the value is tracked.
            ShapeError: it has not exactly one element.

        Cost: as `EagerTensor.numpy`.
        """
        return self._one("item").item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers.

        Raises:
            TracedConversionError: the value is tracked.
            UseAfterMoveError: the value was moved out.

        Cost: as `EagerTensor.numpy`, and one Python number for each element.
        """
        return host_elements(self._untracked("tolist"), "tolist").tolist()

    def __float__(self) -> float:
        return float(self._one("float"))

    def __int__(self) -> int:
        return int(self._one("int"))

    def __complex__(self) -> complex:
        return complex(self._one("complex"))

    def __bool__(self) -> bool:
        return bool(self._one("bool"))

    def __index__(self) -> int:
        return self._one("index").__index__()

    def __format__(self, spec: str) -> str:
        return format(self._one("format").item(), spec) if spec else str(self)

    def __len__(self) -> int:
        shape = self.shape
        if not shape:
            raise TypeError("`len` of a 0-d tensor. It has no axis to count.")
        return shape[0]

    def __iter__(self) -> Any:
        if not self.shape:
            raise TypeError("iteration over a 0-d tensor. It has no axis to walk.")
        return (self[i] for i in range(self.shape[0]))

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise ImmutableTensorError(
            operation="item assignment",
            argument="key",
            found="an eager tensor, whose value never changes",
            fix="use `x = x.at[i].set(v)`",
        )

    def __hash__(self) -> int:
        return id(self) >> 4

    def __repr__(self) -> str:
        record: ValueRecord | None = self._rec
        if record is None:
            return "tensor(<moved out>)"
        aval = record.aval
        if type(record.array) is np.ndarray:
            with np.printoptions(threshold=20, edgeitems=3):
                body = np.array2string(record.array, separator=", ", prefix="tensor(")
        elif is_symbolic(record):
            body = "<traced>"
        else:  # showing a value never moves it, and never waits
            body = f"<on {aval.device.name}>"
        mark = ", tracked" if self.is_tracked else ", variable" if self.leaf else ""
        return f"tensor({body}, shape={aval.shape}, dtype={aval.dtype}{mark})"

    def __reduce__(self) -> NoReturn:
        raise NotCloneableError(
            operation="pickle",
            kind="EagerTensor",
            fix="save its bytes: `with y.value() as v: v.numpy()`",
        )

    def __copy__(self) -> EagerTensor:
        return self.clone()

    def __deepcopy__(self, memo: Any) -> EagerTensor:
        raise NotCloneableError(
            operation="copy.deepcopy",
            kind="EagerTensor",
            found="a deep copy would hide a copy of the bytes",
            fix="use `clone()` for another handle, or `duplicate_value()` for a copy",
        )


def _watch_of(record: ValueRecord) -> Watch | None:
    """Who watches what is asked of the sizes of a symbolic value."""
    if type(record.array) is np.ndarray:
        return None
    return WATCH.get() if is_symbolic(record) else None


def constant(record: ValueRecord) -> EagerTensor:
    """The handle of a value without history; it takes the caller's hold over."""
    return EagerTensor(record, None, -1, None)


def _extract_error(refusal: ExtractError | BorrowConflictError) -> ExtractError:
    """The group's refusal; an open borrow of it is one too."""
    if isinstance(refusal, ExtractError):
        return refusal
    return ExtractError(
        operation="into_value",
        found=refusal.found,
        fix=refusal.fix,
        reason="borrowed",
    )
