"""`TypedTensorViewMut`: `TensorViewMut` with dtype and rank as static facts (G4).

The implementation is `TensorViewMut`'s; see `_typed_view` for what the typed classes
add. Splitting takes only keys that keep the rank, so that every part has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, final, overload

import numpy as np

from .._ownership import MoveOnly
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
from ._root import AllocationSpan
from ._traversal import PreparedHostRead, PreparedHostWrite
from ._typed_view import TypedTensorView
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
from ._view_mut import TensorViewMut

if TYPE_CHECKING:
    from ._typed import TypedTensor


@final
class TypedTensorViewMut(MoveOnly, Generic[DT, R]):
    """An exclusive borrow with static dtype and rank; it writes as the erased does."""

    __slots__ = ("_tm_inner", "_tm_rank")
    __array__ = as_array

    _tm_inner: TensorViewMut
    _tm_rank: type[R]

    @staticmethod
    def _wrap(inner: TensorViewMut, rank: type[R2]) -> TypedTensorViewMut[Any, R2]:
        typed: TypedTensorViewMut[Any, R2] = object.__new__(TypedTensorViewMut)
        typed._moved_by = None
        typed._tm_inner = inner
        typed._tm_rank = rank
        return typed

    @staticmethod
    def of(
        view: TensorViewMut, dtype: type[D2], rank: type[R2]
    ) -> TypedTensorViewMut[D2, R2]:
        """Use up an erased view and return it with the dtype and rank checked here.

        Raises:
            LayoutError: The dtype or rank differs; `recovered` is the same view.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; fixes the static dtype and rank, which are checked.
        """
        check_entry("of", view, view.descriptor(), dtype, rank)
        moved = TensorViewMut._make(
            view._whole_of("of"), view.descriptor(), view._vm_proof
        )
        view._moved_by = "of"
        return TypedTensorViewMut._wrap(moved, rank)

    def erase(self) -> TensorViewMut:
        """Use up the typed view and return the erased one.

        Raises:
            UseAfterMoveError: the value was used up.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; the static rank is dropped, the value keeps its axes.
        """
        mut = self._tm_inner._whole_of("erase")
        self._tm_inner._moved_by = "erase"
        return TensorViewMut._make(
            mut, self._tm_inner.descriptor(), self._tm_inner._vm_proof
        )

    def as_rank(self, rank: type[R2]) -> TypedTensorViewMut[DT, R2]:
        """Lend this borrow for writing at a rank that is checked here.

        Raises:
            LayoutError: The value does not have that rank.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; fixes the static rank, which is checked.
        """
        check_rank("as_rank", self.ndim, rank)
        return TypedTensorViewMut._wrap(self._tm_inner.as_view_mut(), rank)

    @property
    def shape(self) -> tuple[int, ...]:
        """Erased `shape`. Cost: constant."""
        return self._tm_inner.shape

    @property
    def dtype(self) -> np.dtype[DT]:
        """Erased `dtype`. Cost: constant."""
        return self._tm_inner.dtype

    @property
    def ndim(self) -> int:
        """Erased `ndim`. Cost: constant."""
        return self._tm_inner.ndim

    @property
    def size(self) -> int:
        """Erased `size`. Cost: O(rank)."""
        return self._tm_inner.size

    @property
    def nbytes(self) -> int:
        """Erased `nbytes`. Cost: O(rank)."""
        return self._tm_inner.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Erased `strides`. Cost: constant."""
        return self._tm_inner.strides

    @property
    def span(self) -> AllocationSpan:
        """Erased `span`. Cost: constant."""
        return self._tm_inner.span

    @property
    def device(self) -> Any:
        """Erased `device`. Cost: constant."""
        return self._tm_inner.device

    @property
    def rank(self) -> type[R]:
        """The rank, which derived values of the same rank keep. Cost: constant."""
        return self._tm_rank

    @property
    def _layout(self) -> CheckedLayout:
        return self._tm_inner._layout

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing.

        Raises nothing. Cost: constant.
        """
        return self._tm_inner.descriptor()

    def as_view(self) -> TypedTensorView[DT, R]:
        """Erased `as_view`; keeps dtype and rank. Cost: as `TensorView.as_view`."""
        return TypedTensorView._wrap(self._tm_inner.as_view(), self._tm_rank)

    def as_view_mut(self) -> TypedTensorViewMut[DT, R]:
        """Erased `as_view_mut`; keeps dtype and rank.

        Cost: as `TensorViewMut.as_view_mut`.
        """
        return TypedTensorViewMut._wrap(self._tm_inner.as_view_mut(), self._tm_rank)

    @overload
    def __getitem__(  # type: ignore[overload-overlap] # both have the empty tuple
        self, key: KeptKey
    ) -> TypedTensorViewMut[DT, R]: ...

    @overload
    def __getitem__(self, key: AnyKey) -> TypedTensorViewMut[DT, DynRank]: ...

    def __getitem__(self, key: object) -> TypedTensorViewMut[DT, Any]:
        """Erased `[...]`; slices keep the rank, other keys give `DynRank`.

        Cost: as `TensorViewMut.__getitem__`.
        """
        return TypedTensorViewMut._wrap(
            self._tm_inner[key], selected_rank(key, self._tm_rank)
        )

    def permute_dims(self, axes: Sequence[int]) -> TypedTensorView[DT, R]:
        """Erased `permute_dims`; keeps the rank. Cost: as `TensorView.permute_dims`."""
        return TypedTensorView._wrap(self._tm_inner.permute_dims(axes), self._tm_rank)

    def reshape(self, shape: tuple[int, ...]) -> TypedTensorView[DT, DynRank]:
        """Erased `reshape`; the result has `DynRank`. Cost: as `TensorView.reshape`."""
        return TypedTensorView._wrap(self._tm_inner.reshape(shape), DynRank)

    def broadcast_to(self, shape: tuple[int, ...]) -> TypedTensorView[DT, DynRank]:
        """Erased `broadcast_to`; the result has `DynRank`.

        Cost: as `TensorView.broadcast_to`.
        """
        return TypedTensorView._wrap(self._tm_inner.broadcast_to(shape), DynRank)

    def flip(self, axis: int) -> TypedTensorView[DT, R]:
        """Erased `flip`; keeps the rank. Cost: as `TensorView.flip`."""
        return TypedTensorView._wrap(self._tm_inner.flip(axis), self._tm_rank)

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
        found = self._tm_inner.reinterpret(dtype)
        return TypedTensorView._wrap(ranked("reinterpret", found, rank), rank)

    def get(self, index: tuple[int, ...]) -> DT:
        """Erased `get`. Cost: as `TensorView.get`."""
        element: DT = same(self, self._tm_inner, lambda inner: inner.get(index))
        return element

    def numpy(self) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `numpy`. Cost: as `TensorView.numpy`."""
        return same(self, self._tm_inner, TensorViewMut.numpy)

    def prepare_host(self) -> PreparedHostRead:
        """Erased `prepare_host`. Cost: as `TensorView.prepare_host`."""
        return same(self, self._tm_inner, TensorViewMut.prepare_host)

    def prepare_device(self) -> PreparedDeviceRead:
        """Erased `prepare_device`.

        Cost: as `TensorView.prepare_device`.
        """
        return same(self, self._tm_inner, TensorViewMut.prepare_device)

    def checked_read(self) -> CheckedRead:
        """Erased `checked_read`.

        Cost: as `TensorView.checked_read`.
        """
        return self._tm_inner.checked_read()

    def duplicate(self) -> TypedTensor[DT, R]:
        """Erased `duplicate`; keeps dtype and rank.

        Cost: as `TensorView.duplicate`.
        """
        from ._typed import TypedTensor

        return TypedTensor._wrap(
            same(self, self._tm_inner, TensorViewMut.duplicate), self._tm_rank
        )

    def split_mut(self, keys: Sequence[KeptKey]) -> list[TypedTensorViewMut[DT, R]]:
        """Erased `split_mut`, for keys that keep the rank.

        Raises:
            IndexRangeError: A key changes the rank.

        Cost: O(n log n) for n parts; no map, no layout validation.
        """
        refuse_changed_rank("split_mut", keys)
        parts = self._tm_inner.split_mut(keys)
        return [TypedTensorViewMut._wrap(part, self._tm_rank) for part in parts]

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
        found = self._tm_inner.reinterpret_mut(dtype)
        return TypedTensorViewMut._wrap(ranked("reinterpret_mut", found, rank), rank)

    def get_mut(self, index: tuple[int, ...]) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `get_mut`. Cost: as `TensorViewMut.get_mut`."""
        return same(self, self._tm_inner, lambda inner: inner.get_mut(index))

    def write(self) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `write`. Cost: as `TensorViewMut.write`."""
        return same(self, self._tm_inner, TensorViewMut.write)

    def fill(self, value: complex) -> None:
        """Erased `fill`.

        Cost: as `TensorViewMut.fill`.
        """
        same(self, self._tm_inner, lambda inner: inner.fill(value))

    def copy_from(self, source: TypedTensorView[DT, Any]) -> None:
        """Erased `copy_from`: one `ExplicitDuplicate`.

        Cost: as `TensorViewMut.copy_from`.
        """
        same(self, self._tm_inner, lambda inner: inner.copy_from(erased(source)))

    def prepare_host_mut(self) -> PreparedHostWrite:
        """Erased `prepare_host_mut`. Cost: as `TensorViewMut.prepare_host_mut`."""
        return same(self, self._tm_inner, TensorViewMut.prepare_host_mut)

    def prepare_device_mut(self) -> PreparedDeviceWrite:
        """Erased `prepare_device_mut`.

        Cost: as `TensorViewMut.prepare_device_mut`.
        """
        return same(self, self._tm_inner, TensorViewMut.prepare_device_mut)

    def checked_write(self) -> CheckedWrite:
        """Erased `checked_write`.

        Cost: as `TensorViewMut.checked_write`.
        """
        return self._tm_inner.checked_write()

    def close(self) -> None:
        """End the borrow; closing twice does nothing.

        Raises nothing. Cost: constant.
        """
        self._tm_inner.close()

    def __enter__(self) -> TypedTensorViewMut[DT, R]:
        self._tm_inner.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._tm_inner.__exit__(*exc)

    def __repr__(self) -> str:
        return describe_typed(
            "TypedTensorViewMut", self._tm_rank, self._tm_inner.__repr__()
        )
