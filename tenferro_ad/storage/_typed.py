"""`TypedTensor`: `Tensor` with dtype and rank as static facts (contract G4).

The implementation is the erased family's, since Python has no specialised code to
select by type; see `_typed_view` for what the typed classes add.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, final, overload

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
from ._descriptor import CheckedDescriptor
from ._layout import CheckedLayout
from ._ranks import DynRank, TensorRank
from ._reinterpret import reinterpreted
from ._root import AllocationSpan
from ._tensor import Tensor
from ._traversal import PreparedHostRead, PreparedHostWrite
from ._typed_view import TypedTensorView
from ._typed_view_mut import TypedTensorViewMut
from ._typing import (
    D2,
    DT,
    R2,
    AnyKey,
    KeptKey,
    R,
    check_entry,
    check_rank,
    describe_typed,
    erased,
    ranked,
    refuse_changed_rank,
    same,
    selected_rank,
)


@final
class TypedTensor(MoveOnly, Generic[DT, R]):
    """An owner with static dtype and rank; it behaves as `Tensor` does."""

    __slots__ = ("_to_inner", "_to_rank")
    __array__ = as_array

    _to_inner: Tensor
    _to_rank: type[R]

    @staticmethod
    def _wrap(inner: Tensor, rank: type[R2]) -> TypedTensor[Any, R2]:
        typed: TypedTensor[Any, R2] = object.__new__(TypedTensor)
        typed._moved_by = None
        typed._to_inner = inner
        typed._to_rank = rank
        return typed

    @staticmethod
    def of(tensor: Tensor, dtype: type[D2], rank: type[R2]) -> TypedTensor[D2, R2]:
        """Use up an erased owner and return it with the dtype and rank checked here.

        Raises:
            LayoutError: The dtype or rank differs; `recovered` is the same owner.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; fixes the static dtype and rank, which are checked.
        """
        check_entry("of", tensor, tensor.descriptor(), dtype, rank)
        moved = Tensor._make(*tensor._part("of"))
        return TypedTensor._wrap(moved, rank)

    def erase(self) -> Tensor:
        """Use up the typed owner and return the erased one.

        Raises:
            UseAfterMoveError: the value was used up.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; the static rank is dropped, the value keeps its axes.
        """
        return Tensor._make(*self._to_inner._part("erase"))

    def as_rank(self, rank: type[R2]) -> TypedTensorView[DT, R2]:
        """Borrow the value shared at a rank that is checked here.

        Raises:
            LayoutError: The value does not have that rank.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; fixes the static rank, which is checked.
        """
        check_rank("as_rank", self.ndim, rank)
        return TypedTensorView._wrap(self._to_inner.as_view(), rank)

    @property
    def shape(self) -> tuple[int, ...]:
        """Erased `shape`. Cost: constant."""
        return self._to_inner.shape

    @property
    def dtype(self) -> np.dtype[DT]:
        """Erased `dtype`. Cost: constant."""
        return self._to_inner.dtype

    @property
    def ndim(self) -> int:
        """Erased `ndim`. Cost: constant."""
        return self._to_inner.ndim

    @property
    def size(self) -> int:
        """Erased `size`. Cost: O(rank)."""
        return self._to_inner.size

    @property
    def nbytes(self) -> int:
        """Erased `nbytes`. Cost: O(rank)."""
        return self._to_inner.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Erased `strides`. Cost: constant."""
        return self._to_inner.strides

    @property
    def span(self) -> AllocationSpan:
        """Erased `span`. Cost: constant."""
        return self._to_inner.span

    @property
    def device(self) -> Any:
        """Erased `device`. Cost: constant."""
        return self._to_inner.device

    @property
    def rank(self) -> type[R]:
        """The rank, which derived values of the same rank keep. Cost: constant."""
        return self._to_rank

    @property
    def _layout(self) -> CheckedLayout:
        return self._to_inner._layout

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing.

        Raises:
            UseAfterMoveError: the value was used up.

        Cost: constant.
        """
        return self._to_inner.descriptor()

    def as_view(self) -> TypedTensorView[DT, R]:
        """Erased `as_view`; keeps dtype and rank. Cost: as `TensorView.as_view`."""
        return TypedTensorView._wrap(self._to_inner.as_view(), self._to_rank)

    def as_view_mut(self) -> TypedTensorViewMut[DT, R]:
        """Erased `as_view_mut`; keeps dtype and rank.

        Cost: as `TensorViewMut.as_view_mut`.
        """
        return TypedTensorViewMut._wrap(self._to_inner.as_view_mut(), self._to_rank)

    @overload
    def __getitem__(  # type: ignore[overload-overlap] # both have the empty tuple
        self, key: KeptKey
    ) -> TypedTensorView[DT, R]: ...

    @overload
    def __getitem__(self, key: AnyKey) -> TypedTensorView[DT, DynRank]: ...

    def __getitem__(self, key: object) -> TypedTensorView[DT, Any]:
        """Erased `[...]`; slices keep the rank, other keys give `DynRank`.

        Cost: as `TensorView.__getitem__`.
        """
        return TypedTensorView._wrap(
            self._to_inner[key], selected_rank(key, self._to_rank)
        )

    def permute_dims(self, axes: Sequence[int]) -> TypedTensorView[DT, R]:
        """Erased `permute_dims`; keeps the rank. Cost: as `TensorView.permute_dims`."""
        return TypedTensorView._wrap(self._to_inner.permute_dims(axes), self._to_rank)

    def reshape(self, shape: tuple[int, ...]) -> TypedTensorView[DT, DynRank]:
        """Erased `reshape`; the result has `DynRank`. Cost: as `TensorView.reshape`."""
        return TypedTensorView._wrap(self._to_inner.reshape(shape), DynRank)

    def broadcast_to(self, shape: tuple[int, ...]) -> TypedTensorView[DT, DynRank]:
        """Erased `broadcast_to`; the result has `DynRank`.

        Cost: as `TensorView.broadcast_to`.
        """
        return TypedTensorView._wrap(self._to_inner.broadcast_to(shape), DynRank)

    def flip(self, axis: int) -> TypedTensorView[DT, R]:
        """Erased `flip`; keeps the rank. Cost: as `TensorView.flip`."""
        return TypedTensorView._wrap(self._to_inner.flip(axis), self._to_rank)

    @overload
    def reinterpret(self, dtype: type[D2]) -> TypedTensorView[D2, DynRank]: ...

    @overload
    def reinterpret(
        self, dtype: type[D2], rank: type[R2]
    ) -> TypedTensorView[D2, R2]: ...

    def reinterpret(
        self, dtype: type[Any], rank: type[TensorRank] = DynRank
    ) -> TypedTensorView[Any, Any]:
        """Erased `reinterpret`; the rank is the one that the caller names.

        Raises:
            LayoutError: As there; or the result does not have that rank.

        Cost: O(rank); no copy.
        """
        found = self._to_inner.reinterpret(dtype)
        return TypedTensorView._wrap(ranked("reinterpret", found, rank), rank)

    def get(self, index: tuple[int, ...]) -> DT:
        """Erased `get`. Cost: as `TensorView.get`."""
        element: DT = same(self, self._to_inner, lambda inner: inner.get(index))
        return element

    def numpy(self) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `numpy`. Cost: as `TensorView.numpy`."""
        return same(self, self._to_inner, Tensor.numpy)

    def prepare_host(self) -> PreparedHostRead:
        """Erased `prepare_host`. Cost: as `TensorView.prepare_host`."""
        return same(self, self._to_inner, Tensor.prepare_host)

    def prepare_device(self) -> PreparedDeviceRead:
        """Erased `prepare_device`.

        Cost: as `TensorView.prepare_device`.
        """
        return same(self, self._to_inner, Tensor.prepare_device)

    def checked_read(self) -> CheckedRead:
        """Erased `checked_read`.

        Cost: as `TensorView.checked_read`.
        """
        return self._to_inner.checked_read()

    def duplicate(self) -> TypedTensor[DT, R]:
        """Erased `duplicate`; keeps dtype and rank.

        Cost: as `TensorView.duplicate`.
        """
        return TypedTensor._wrap(
            same(self, self._to_inner, Tensor.duplicate), self._to_rank
        )

    def split_mut(self, keys: Sequence[KeptKey]) -> list[TypedTensorViewMut[DT, R]]:
        """Erased `split_mut`, for keys that keep the rank.

        Raises:
            IndexRangeError: A key changes the rank.

        Cost: O(n log n) for n parts; no map, no layout validation.
        """
        refuse_changed_rank("split_mut", keys)
        parts = self._to_inner.split_mut(keys)
        return [TypedTensorViewMut._wrap(part, self._to_rank) for part in parts]

    @overload
    def reinterpret_mut(self, dtype: type[D2]) -> TypedTensorViewMut[D2, DynRank]: ...

    @overload
    def reinterpret_mut(
        self, dtype: type[D2], rank: type[R2]
    ) -> TypedTensorViewMut[D2, R2]: ...

    def reinterpret_mut(
        self, dtype: type[Any], rank: type[TensorRank] = DynRank
    ) -> TypedTensorViewMut[Any, Any]:
        """Erased `reinterpret_mut`; the rank is the one that the caller names.

        Raises:
            LayoutError: As there; or the result does not have that rank.

        Cost: O(rank log rank) at most; no copy.
        """
        found = self._to_inner.reinterpret_mut(dtype)
        return TypedTensorViewMut._wrap(ranked("reinterpret_mut", found, rank), rank)

    def get_mut(self, index: tuple[int, ...]) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `get_mut`. Cost: as `TensorViewMut.get_mut`."""
        return same(self, self._to_inner, lambda inner: inner.get_mut(index))

    def write(self) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `write`. Cost: as `TensorViewMut.write`."""
        return same(self, self._to_inner, Tensor.write)

    def fill(self, value: complex) -> None:
        """Erased `fill`.

        Cost: as `TensorViewMut.fill`.
        """
        same(self, self._to_inner, lambda inner: inner.fill(value))

    def copy_from(self, source: TypedTensorView[DT, Any]) -> None:
        """Erased `copy_from`: one `ExplicitDuplicate`.

        Cost: as `TensorViewMut.copy_from`.
        """
        same(self, self._to_inner, lambda inner: inner.copy_from(erased(source)))

    def prepare_host_mut(self) -> PreparedHostWrite:
        """Erased `prepare_host_mut`. Cost: as `TensorViewMut.prepare_host_mut`."""
        return same(self, self._to_inner, Tensor.prepare_host_mut)

    def prepare_device_mut(self) -> PreparedDeviceWrite:
        """Erased `prepare_device_mut`.

        Cost: as `TensorViewMut.prepare_device_mut`.
        """
        return same(self, self._to_inner, Tensor.prepare_device_mut)

    def checked_write(self) -> CheckedWrite:
        """Erased `checked_write`.

        Cost: as `TensorViewMut.checked_write`.
        """
        return self._to_inner.checked_write()

    @overload
    def into_reinterpreted(self, dtype: type[D2]) -> TypedTensor[D2, DynRank]: ...

    @overload
    def into_reinterpreted(
        self, dtype: type[D2], rank: type[R2]
    ) -> TypedTensor[D2, R2]: ...

    def into_reinterpreted(
        self, dtype: type[Any], rank: type[TensorRank] = DynRank
    ) -> TypedTensor[Any, Any]:
        """Erased `into_reinterpreted`; the rank is the one that the caller names.

        Raises:
            LayoutError: As there, or the result does not have that rank; `recovered`
                is this same owner, unchanged.
            BorrowConflictError: A borrow is open; the owner is unchanged.

        Cost: O(rank); no allocation, copy or provider call.
        """
        operation = "into_reinterpreted"
        try:
            new = reinterpreted(operation, self._to_inner.descriptor(), dtype)
            check_rank(operation, len(new.shape), rank)
        except LayoutError as error:
            error.recovered = self
            raise
        return TypedTensor._wrap(self._to_inner.into_reinterpreted(dtype), rank)

    def __repr__(self) -> str:
        return describe_typed("TypedTensor", self._to_rank, self._to_inner.__repr__())
