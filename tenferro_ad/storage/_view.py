"""`TensorView`: the shared borrow of a value; everything that reads lives here (G4).

A view is open until its `with` block ends, `close()` is called, or its last reference
goes; using it later raises `ExpiredCapabilityError`. `repr` and the metadata properties
take no borrow.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar, assert_never, final

import numpy as np

from .._ownership import MoveOnly
from ..errors import (
    AccessError,
    ExpiredCapabilityError,
    IndexRangeError,
    InternalError,
    LayoutError,
    UseAfterMoveError,
)
from . import _selection
from ._access import (
    _HOST,
    AccessTarget,
    CheckedRead,
    PreparedDeviceRead,
    PreparedRead,
    prepare_read,
)
from ._as_array import as_array
from ._capability import StorageRef
from ._descriptor import CheckedDescriptor, check_descriptor, host_array
from ._layout import CheckedLayout
from ._provider import HostArray
from ._reinterpret import reinterpreted
from ._root import AllocationSpan
from ._traversal import (
    PreparedContiguousRead,
    PreparedHostRead,
    PreparedStridedRead,
)

if TYPE_CHECKING:
    from ._slots import DescriptorRequest
    from ._tensor import Tensor


def describe(kind: str, descriptor: CheckedDescriptor, state: str | None) -> str:
    shape = list(descriptor.shape)
    ended = "" if state is None else f", ended by {state}"
    return f"{kind}({descriptor.dtype}{shape} on `{descriptor.placement}`{ended})"


def refuse_ended(kind: str, operation: str, by: str, expired: bool) -> NoReturn:
    if expired:
        raise ExpiredCapabilityError(operation=operation, kind=kind, ended_by=by)
    raise UseAfterMoveError(operation=operation, kind=kind, consumed_by=by)


V = TypeVar("V", bound="Lent")
T = TypeVar("T")


class Lent(Protocol):
    """A view that a delegating call takes for its own length."""

    def close(self) -> None: ...


def through(holder: object, view: V, call: Callable[[V], T]) -> T:
    """Run one call of `holder` on a view of it; a failure names `holder` again."""
    try:
        return call(view)
    except (AccessError, LayoutError) as error:
        if error.recovered is view:
            error.recovered = holder
        raise
    finally:
        view.close()


def full_index(operation: str, index: tuple[int, ...], ndim: int) -> tuple[int, ...]:
    key = index if isinstance(index, tuple) else (index,)
    if len(key) != ndim:
        raise IndexRangeError(
            operation=operation,
            argument="index",
            found=f"{len(key)} indices for {ndim} axes",
            fix="give one integer for each axis",
        )
    return key


@final
class TensorView(MoveOnly):
    """A shared borrow of a value: everything that reads lives here."""

    __slots__ = ("_view_descriptor", "_view_ref")
    __array__ = as_array

    _view_descriptor: CheckedDescriptor
    _view_ref: StorageRef

    @classmethod
    def _make(cls, ref: StorageRef, descriptor: CheckedDescriptor) -> TensorView:
        view: TensorView = object.__new__(cls)
        view._moved_by = None
        view._view_ref = ref
        view._view_descriptor = descriptor
        return view

    def _live(self, operation: str) -> StorageRef:
        ended = self._moved_by
        if ended is not None:
            refuse_ended("TensorView", operation, ended, ended in ("close", "with"))
        return self._view_ref

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents. Cost: constant."""
        return self._view_descriptor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type. Cost: constant."""
        return self._view_descriptor.dtype

    @property
    def ndim(self) -> int:
        """Number of axes. Cost: constant."""
        return len(self._view_descriptor.shape)

    @property
    def size(self) -> int:
        """Number of elements. Cost: O(rank)."""
        return self._view_descriptor.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements. Cost: O(rank)."""
        return self._view_descriptor.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides. Cost: constant."""
        return self._view_descriptor.strides

    @property
    def span(self) -> AllocationSpan:
        """Identity of the borrowed bytes. Cost: constant."""
        return self._live("span").span

    @property
    def device(self) -> Any:
        """The provider that holds the bytes. Cost: constant."""
        return self._live("device")._ref_claim._root.value._context.provider

    @property
    def _layout(self) -> CheckedLayout:
        return self._view_descriptor.layout

    @property
    def _allocation(self) -> Any:
        return self._live("allocation")._ref_claim._root.value.allocation

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing.

        Raises nothing. Cost: constant.
        """
        return self._view_descriptor

    def as_view(self) -> TensorView:
        """Another view under the same borrow.

        Raises:
            OwnershipError: the view is gone.

        Cost: constant; no strong count; no allocation of storage, provider call, wait
        or transfer; nothing for each element; keeps the rank.
        """
        ref = self._live("as_view")._share("as_view")
        return TensorView._make(ref, self._view_descriptor)

    def _described(self, request: DescriptorRequest) -> TensorView:
        """A checked descriptor over the borrowed owner's bytes, under this borrow."""
        ref = self._live("output")
        new = check_descriptor(
            "output",
            ref._ref_claim,
            request.shape,
            request.dtype,
            strides=request.strides,
            offset=request.offset,
        )
        return TensorView._make(ref._share("output"), new)

    def __getitem__(self, key: object) -> TensorView:
        """The part that integers, slices, `...` and None select, without a copy.

        Cost: O(rank): the new indices are validated; no allocation of storage, provider
        call, wait or transfer; nothing for each element; integers and None change the
        rank.
        """
        return self._derive("getitem", _selection.select, key)

    def permute_dims(self, axes: Sequence[int]) -> TensorView:
        """The same elements with axes reordered.

        Raises:
            ShapeError: `axes` does not name each axis once.
            OwnershipError: the view is gone.

        Cost: O(rank); no allocation of storage, provider call, wait or transfer;
        nothing for each element; keeps the rank.
        """
        return self._derive("permute_dims", _selection.permute, axes)

    def reshape(self, shape: tuple[int, ...]) -> TensorView:
        """The same elements regrouped; raises where strides cannot.

        Raises:
            ShapeError: the view cannot have that shape.
            OwnershipError: the view is gone.

        Cost: O(rank); no allocation of storage, provider call, wait or transfer;
        nothing for each element; the rank is that of `shape`.
        """
        return self._derive("reshape", _selection.reshape, shape)

    def broadcast_to(self, shape: tuple[int, ...]) -> TensorView:
        """The same elements repeated without a copy.

        Raises:
            ShapeError: the view cannot have that shape.
            OwnershipError: the view is gone.

        Cost: O(rank); no allocation of storage, provider call, wait or transfer;
        nothing for each element; the rank is that of `shape`.
        """
        return self._derive("broadcast_to", _selection.broadcast, shape)

    def flip(self, axis: int) -> TensorView:
        """The same elements with one axis reversed.

        Raises:
            IndexRangeError: there is no such axis.
            OwnershipError: the view is gone.

        Cost: O(rank); no allocation of storage, provider call, wait or transfer;
        nothing for each element; keeps the rank.
        """
        return self._derive("flip", _selection.reverse, axis)

    def reinterpret(self, dtype: Any) -> TensorView:
        """The same bytes as another listed type, under the same borrow.

        Complex to real adds a last axis of two; real to complex uses one up; numbers of
        one size keep their shape. See `scalar_pairs` for the list.

        Raises:
            LayoutError: The pair is not listed, or the layout does not fit it.

        Cost: O(rank); no allocation, copy or provider call.
        """
        ref = self._live("reinterpret")
        new = reinterpreted("reinterpret", self._view_descriptor, dtype)
        return TensorView._make(ref._share("reinterpret"), new)

    def _derive(self, operation: str, rule: Any, fact: object) -> TensorView:
        ref = self._live(operation)
        old = self._view_descriptor
        new = old._with_layout(rule(operation, old.layout, fact))
        return TensorView._make(ref._share(operation), new)

    def get(self, index: tuple[int, ...]) -> Any:
        """One element, as a NumPy scalar.

        Raises:
            IndexRangeError: an index is missing or out of range.
            AccessError: the provider could not map; the view is unchanged.
            OwnershipError: the view is gone.

        Cost: for each element O(rank) bounds checks and one host access through the
        provider, which may wait; allocates a scalar, transfers nothing, has no rank.
        Not for loops.
        """
        with self[full_index("get", index, self.ndim)] as element:
            return element.numpy()[()]

    def numpy(self) -> HostArray:
        """A read-only array over the same bytes; it holds the borrow while it lives.

        Raises:
            AccessError: The provider could not map; the view is unchanged.

        Cost: one map by the provider, and a wait, where it needs them; no allocation of
        storage, no transfer; nothing for each element; keeps the rank.
        """
        ref = self._live("numpy")._share("numpy")
        checked = CheckedRead._join(ref, self._view_descriptor)
        try:
            prepared = _host_read(prepare_read(checked, _HOST))
        except AccessError as error:
            ref.close()
            error.recovered = self
            raise
        if isinstance(prepared, PreparedContiguousRead):
            array = prepared.as_slice().reshape(self.shape)
        else:
            array = prepared.as_strided_array()
        prepared.close()
        return array

    def _elements(self, operation: str) -> HostArray:
        """Host elements for one kernel call inside the package; nothing is lent."""
        root = self._live(operation)._ref_claim._root.value
        return host_array(self._view_descriptor, root.allocation)

    def prepare_host(self) -> PreparedHostRead:
        """Consume the view and return host access, contiguous or strided.

        Raises:
            AccessError: The provider could not map; `recovered` is this same view.

        Cost: constant; one map by the provider, and a wait, where it needs them; no
        allocation of storage, no transfer; nothing for each element; keeps the rank.
        """
        return _host_read(self._prepare("prepare_host", _HOST))

    def prepare_device(self) -> PreparedDeviceRead:
        """Consume the view and return device access.

        Raises:
            AccessError: The provider binds nothing; `recovered` is this same view.

        Cost: constant; one provider preparation.
        """
        prepared = self._prepare("prepare_device", AccessTarget.Device)
        assert isinstance(prepared, PreparedDeviceRead)
        return prepared

    def checked_read(self) -> CheckedRead:
        """Consume the view and return its opaque pairing.

        Raises:
            OwnershipError: the view is gone.

        Cost: constant.
        """
        ref = self._live("checked_read")
        self._moved_by = "checked_read"
        return CheckedRead._join(ref, self._view_descriptor)

    def _prepare(self, operation: str, target: AccessTarget) -> PreparedRead:
        checked = CheckedRead._join(self._live(operation), self._view_descriptor)
        try:
            prepared = prepare_read(checked, target)
        except AccessError as error:
            error.recovered = self
            raise
        self._moved_by = operation
        return prepared

    def duplicate(self) -> Tensor:
        """A new owner of a copy of these elements: one recorded `ExplicitDuplicate`.

        Raises:
            ForbiddenEventError: inside `ta.forbid`, before anything happens.
            AllocationLimitError: the device has no room.
            OwnershipError: the view is gone.

        Cost: allocates and copies `nbytes`; waits for the source where it must.
        """
        from ._door import duplicate_storage
        from ._tensor import Tensor

        context = self._live("duplicate")._ref_claim._root.value._context
        source = self if context.takes_views else self.numpy()
        storage, array = duplicate_storage(source, context.provider, "duplicate")
        return Tensor._seat(storage, array)

    def close(self) -> None:
        """End the borrow; closing twice does nothing.

        Raises nothing. Cost: constant.
        """
        self._end("close")

    def _end(self, by: str) -> None:
        if self._moved_by is None:
            self._moved_by = by
            self._view_ref.close(by)

    def __enter__(self) -> TensorView:
        self._live("with")
        return self

    def __exit__(self, *exc: object) -> None:
        self._end("with")

    def __repr__(self) -> str:
        return describe("TensorView", self._view_descriptor, self._moved_by)


def _host_read(prepared: PreparedRead) -> PreparedHostRead:
    match prepared:
        case PreparedContiguousRead() | PreparedStridedRead():
            return prepared
        case PreparedDeviceRead():
            raise InternalError(operation="prepare_host", invariant="host payload")
    assert_never(prepared)
