"""`Tensor`: the one owner of a value (contract G4).

`Tensor` owns, `TensorView` reads, `TensorViewMut` writes. Reading is implemented once,
on the view, and writing once, on the exclusive view; the owner delegates to both by
reborrowing and keeps the consuming calls. None inherits from another or forwards
attributes, and none hands out its storage, so bytes and their description cannot be
taken apart.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np

from .._ownership import MoveOnly
from ..errors import InternalError
from ._capability import StorageMut, StorageRef
from ._descriptor import CheckedDescriptor, host_array
from ._layout import WriteInjectivityProof
from ._provider import Buffer, HostArray
from ._root import AllocationSpan, OwnedStorage
from ._view import TensorView, describe
from ._view_mut import TensorViewMut


@final
class Tensor(MoveOnly):
    """The one owner of a value; it moves, and is never copied by accident."""

    __slots__ = ("_owner_descriptor", "_owner_proof", "_owner_storage")

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
        base = storage._resource.allocation
        if isinstance(base, np.ndarray):
            return storage, host_array(descriptor, base)
        if descriptor.layout.byte_range != range(base.nbytes):
            raise InternalError(
                operation=operation, invariant="device tensors cover their allocation"
            )
        return storage, base

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
        return self._owner_storage._resource.provider.value.provider

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing. Cost: constant."""
        self._require("descriptor")
        return self._owner_descriptor

    def as_view(self) -> TensorView:
        """Borrow the value shared.

        Raises:
            BorrowConflictError: The exclusive borrow is taken.

        Cost: constant; no allocation of storage, no strong count, no provider call.
        """
        self._require("as_view")
        storage = self._owner_storage
        ref = StorageRef._of(storage._claim, storage._borrow, "as_view")
        return TensorView._make(ref, self._owner_descriptor)

    def as_view_mut(self) -> TensorViewMut:
        """Borrow the value exclusively.

        Raises:
            BorrowConflictError: Any borrow is open.

        Cost: constant; no allocation of storage, no strong count, no provider call.
        """
        self._require("as_view_mut")
        storage = self._owner_storage
        mut = StorageMut._of(storage._claim, storage._borrow, "as_view_mut")
        return TensorViewMut._make(mut, self._owner_descriptor, self._owner_proof)

    def numpy(self) -> HostArray:
        """A read-only array, through `as_view`. Cost: as `TensorView.numpy`."""
        with self.as_view() as view:
            return view.numpy()

    def get(self, index: tuple[int, ...]) -> Any:
        """One element, through `as_view`. Cost: as `TensorView.get`."""
        with self.as_view() as view:
            return view.get(index)

    def __getitem__(self, key: object) -> TensorView:
        """A part of the value, through `as_view`. Cost: as `TensorView[...]`."""
        with self.as_view() as view:
            return view[key]

    def duplicate(self) -> Tensor:
        """A new owner of a copy, through `as_view`. Cost: as `TensorView.duplicate`."""
        with self.as_view() as view:
            return view.duplicate()

    def fill(self, value: complex) -> None:
        """Set every element, through `as_view_mut`. Cost: writes `nbytes`."""
        with self.as_view_mut() as view:
            view.fill(value)

    def __repr__(self) -> str:
        return describe("Tensor", self._owner_descriptor, self._moved_by)
