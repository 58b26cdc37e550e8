"""`Tensor`: the one owner of a value (contract G4).

`Tensor` owns, `TensorView` reads, `TensorViewMut` writes. Reading is implemented once,
on the view, and writing once, on the exclusive view; the owner delegates to both by
reborrowing and keeps the consuming calls. None inherits from another or forwards
attributes, and none hands out its storage, so bytes and their description cannot be
taken apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from .._ownership import MoveOnly
from ..errors import LayoutError
from ._access import (
    CheckedRead,
    CheckedWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
)
from ._as_array import as_array
from ._capability import StorageMut, StorageRef
from ._descriptor import CheckedDescriptor
from ._device_array import array_over
from ._layout import CheckedLayout, WriteInjectivityProof, inherit_injective
from ._provider import Buffer, HostArray
from ._reinterpret import reinterpreted
from ._root import AllocationSpan, OwnedStorage
from ._traversal import PreparedHostRead, PreparedHostWrite
from ._view import TensorView, describe, through
from ._view_mut import TensorViewMut


@final
class Tensor(MoveOnly):
    """The one owner of a value; it moves, and is never copied by accident."""

    __slots__ = ("_owner_descriptor", "_owner_proof", "_owner_storage")
    __array__ = as_array

    _owner_descriptor: CheckedDescriptor
    _owner_proof: WriteInjectivityProof | None
    _owner_storage: OwnedStorage

    @classmethod
    def _make(
        cls,
        storage: OwnedStorage,
        descriptor: CheckedDescriptor,
        proof: WriteInjectivityProof | None = None,
    ) -> Tensor:
        """Join storage with a descriptor that was checked against its claim."""
        tensor: Tensor = object.__new__(cls)
        tensor._moved_by = None
        tensor._owner_storage = storage
        tensor._owner_descriptor = descriptor
        tensor._owner_proof = proof
        return tensor

    @classmethod
    def _seat(cls, storage: OwnedStorage, array: Buffer) -> Tensor:
        """Join storage with an array that its provider made over it; uses it up."""
        moved = storage._move("_seat")
        root = moved._resource
        return cls._make(moved, CheckedDescriptor._of_array(array, root))

    def _unseat(self, operation: str) -> tuple[OwnedStorage, Buffer]:
        """Consume the tensor into its storage and an array over it."""
        storage, descriptor, _ = self._part(operation)
        return storage, array_over(descriptor, storage._resource.allocation)

    def _part(
        self, operation: str
    ) -> tuple[OwnedStorage, CheckedDescriptor, WriteInjectivityProof | None]:
        """Consume the tensor; refused while anything is borrowed."""
        self._require(operation)
        storage = self._owner_storage._move(operation)
        self._moved_by = operation
        del self._owner_storage
        return storage, self._owner_descriptor, self._owner_proof

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents. Cost: constant."""
        self._require("shape")
        return self._owner_descriptor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type. Cost: constant."""
        self._require("dtype")
        return self._owner_descriptor.dtype

    @property
    def ndim(self) -> int:
        """Number of axes. Cost: constant."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements. Cost: O(rank)."""
        self._require("size")
        return self._owner_descriptor.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements. Cost: O(rank)."""
        self._require("nbytes")
        return self._owner_descriptor.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides. Cost: constant."""
        self._require("strides")
        return self._owner_descriptor.strides

    @property
    def span(self) -> AllocationSpan:
        """Identity of the owned bytes. Cost: constant."""
        self._require("span")
        return self._owner_storage.span

    @property
    def device(self) -> Any:
        """The provider that holds the bytes. Cost: constant."""
        self._require("device")
        return self._owner_storage._resource._context.provider

    @property
    def _layout(self) -> CheckedLayout:
        self._require("layout")
        return self._owner_descriptor.layout

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing.

        Raises:
            UseAfterMoveError: the value was used up.

        Cost: constant.
        """
        self._require("descriptor")
        return self._owner_descriptor

    def as_view(self) -> TensorView:
        """Borrow the value shared.

        Raises:
            BorrowConflictError: The exclusive borrow is taken.

        Cost: constant; no strong count; no allocation of storage, provider call, wait
        or transfer; nothing for each element; keeps the rank.
        """
        if self._moved_by is not None:
            self._require("as_view")
        storage = self._owner_storage
        ref = StorageRef._of(storage._claim, storage._borrow, "as_view")
        return TensorView._make(ref, self._owner_descriptor)

    def as_view_mut(self) -> TensorViewMut:
        """Borrow the value exclusively.

        Raises:
            BorrowConflictError: Any borrow is open.

        Cost: constant; no strong count; no allocation of storage, provider call, wait
        or transfer; nothing for each element; keeps the rank.
        """
        if self._moved_by is not None:
            self._require("as_view_mut")
        storage = self._owner_storage
        mut = StorageMut._of(storage._claim, storage._borrow, "as_view_mut")
        return TensorViewMut._make(mut, self._owner_descriptor, self._owner_proof)

    def numpy(self) -> HostArray:
        """A read-only array, through `as_view`. Cost: as `TensorView.numpy`."""
        return through(self, self.as_view(), TensorView.numpy)

    def get(self, index: tuple[int, ...]) -> Any:
        """One element, through `as_view`. Cost: as `TensorView.get`."""
        return through(self, self.as_view(), lambda view: view.get(index))

    def __getitem__(self, key: object) -> TensorView:
        """A part of the value, through `as_view`. Cost: as `TensorView.__getitem__`."""
        return through(self, self.as_view(), lambda view: view[key])

    def permute_dims(self, axes: Sequence[int]) -> TensorView:
        """Axes reordered, through `as_view`. Cost: as `TensorView.permute_dims`."""
        return through(self, self.as_view(), lambda view: view.permute_dims(axes))

    def reshape(self, shape: tuple[int, ...]) -> TensorView:
        """Elements regrouped, through `as_view`. Cost: as `TensorView.reshape`."""
        return through(self, self.as_view(), lambda view: view.reshape(shape))

    def broadcast_to(self, shape: tuple[int, ...]) -> TensorView:
        """Elements repeated, through `as_view`. Cost: as `TensorView.broadcast_to`."""
        return through(self, self.as_view(), lambda view: view.broadcast_to(shape))

    def flip(self, axis: int) -> TensorView:
        """One axis reversed, through `as_view`. Cost: as `TensorView.flip`."""
        return through(self, self.as_view(), lambda view: view.flip(axis))

    def reinterpret(self, dtype: Any) -> TensorView:
        """The same bytes as another type, through `as_view`.

        Cost: as `TensorView.reinterpret`.
        """
        return through(self, self.as_view(), lambda view: view.reinterpret(dtype))

    def prepare_host(self) -> PreparedHostRead:
        """Host read access, through `as_view`. Cost: as `TensorView.prepare_host`."""
        return through(self, self.as_view(), TensorView.prepare_host)

    def prepare_device(self) -> PreparedDeviceRead:
        """Device read access, through `as_view`.

        Cost: as `TensorView.prepare_device`.
        """
        return through(self, self.as_view(), TensorView.prepare_device)

    def checked_read(self) -> CheckedRead:
        """The opaque read pairing, through `as_view`.

        Cost: as `TensorView.checked_read`.
        """
        return through(self, self.as_view(), TensorView.checked_read)

    def duplicate(self) -> Tensor:
        """A new owner of a copy, through `as_view`. Cost: as `TensorView.duplicate`."""
        return through(self, self.as_view(), TensorView.duplicate)

    def write(self) -> HostArray:
        """A writable array, through `as_view_mut`. Cost: as `TensorViewMut.write`."""
        return through(self, self.as_view_mut(), TensorViewMut.write)

    def get_mut(self, index: tuple[int, ...]) -> HostArray:
        """One writable element, through `as_view_mut`.

        Cost: as `TensorViewMut.get_mut`.
        """
        return through(self, self.as_view_mut(), lambda mut: mut.get_mut(index))

    def fill(self, value: complex) -> None:
        """Set every element, through `as_view_mut`.

        Cost: as `TensorViewMut.fill`.
        """
        through(self, self.as_view_mut(), lambda mut: mut.fill(value))

    def copy_from(self, source: TensorView) -> None:
        """Copy elements in, through `as_view_mut`: one `ExplicitDuplicate`.

        Cost: as `TensorViewMut.copy_from`.
        """
        through(self, self.as_view_mut(), lambda mut: mut.copy_from(source))

    def split_mut(self, keys: Sequence[object]) -> list[TensorViewMut]:
        """Disjoint writable parts, through `as_view_mut`.

        Cost: as `TensorViewMut.split_mut`.
        """
        return through(self, self.as_view_mut(), lambda mut: mut.split_mut(keys))

    def reinterpret_mut(self, dtype: Any) -> TensorViewMut:
        """Write the same bytes as another type, through `as_view_mut`.

        Cost: as `TensorViewMut.reinterpret_mut`; no copy.
        """
        return through(self, self.as_view_mut(), lambda mut: mut.reinterpret_mut(dtype))

    def prepare_host_mut(self) -> PreparedHostWrite:
        """Host write access, through `as_view_mut`.

        Cost: as `TensorViewMut.prepare_host_mut`.
        """
        return through(self, self.as_view_mut(), TensorViewMut.prepare_host_mut)

    def prepare_device_mut(self) -> PreparedDeviceWrite:
        """Device write access, through `as_view_mut`.

        Cost: as `TensorViewMut.prepare_device_mut`.
        """
        return through(self, self.as_view_mut(), TensorViewMut.prepare_device_mut)

    def checked_write(self) -> CheckedWrite:
        """The opaque write pairing, through `as_view_mut`.

        Cost: as `TensorViewMut.checked_write`.
        """
        return through(self, self.as_view_mut(), TensorViewMut.checked_write)

    def into_reinterpreted(self, dtype: Any) -> Tensor:
        """Use up the owner and return one that reads the same bytes as another type.

        Complex to real adds a last axis of two; real to complex uses one up; numbers of
        one size keep their shape. See `scalar_pairs` for the list.

        Raises:
            LayoutError: The pair is not listed, or the layout does not fit it;
                `recovered` is this same owner, unchanged.
            BorrowConflictError: A borrow is open; the owner is unchanged.

        Cost: O(rank); no allocation, copy or provider call.
        """
        self._require("into_reinterpreted")
        try:
            new = reinterpreted("into_reinterpreted", self._owner_descriptor, dtype)
        except LayoutError as error:
            error.recovered = self
            raise
        storage, _, proof = self._part("into_reinterpreted")
        return Tensor._make(storage, new, inherit_injective(proof, new.layout))

    def __repr__(self) -> str:
        return describe("Tensor", self._owner_descriptor, self._moved_by)
