"""`TypedTensorView`: `TensorView` with dtype and rank as static facts (contract G4).

The implementation is `TensorView`'s: a typed view holds one, forwards the canonical
calls of `_methods.READ` to it, and adds what a type checker can use. Dtype and rank are
checked when a value enters (`of`, `as_rank`) and kept by everything that keeps them. It
has no state of its own: borrow, end and identity are those of the view that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, final, overload

import numpy as np

from .._ownership import MoveOnly
from ._access import CheckedRead, PreparedDeviceRead
from ._as_array import as_array
from ._descriptor import CheckedDescriptor
from ._layout import CheckedLayout
from ._ranks import DynRank, TensorRank
from ._root import AllocationSpan
from ._traversal import PreparedHostRead
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
    ranked,
    same,
    selected_rank,
)
from ._view import TensorView

if TYPE_CHECKING:
    from ._typed import TypedTensor


@final
class TypedTensorView(MoveOnly, Generic[DT, R]):
    """A shared borrow with static dtype and rank; it reads as `TensorView` does."""

    __slots__ = ("_tv_inner", "_tv_rank")
    __array__ = as_array

    _tv_inner: TensorView
    _tv_rank: type[R]

    @staticmethod
    def _wrap(inner: TensorView, rank: type[R2]) -> TypedTensorView[Any, R2]:
        typed: TypedTensorView[Any, R2] = object.__new__(TypedTensorView)
        typed._moved_by = None
        typed._tv_inner = inner
        typed._tv_rank = rank
        return typed

    @staticmethod
    def of(
        view: TensorView, dtype: type[D2], rank: type[R2]
    ) -> TypedTensorView[D2, R2]:
        """Use up an erased view and return it with the dtype and rank checked here.

        Raises:
            LayoutError: The dtype or rank differs; `recovered` is the same view.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; fixes the static dtype and rank, which are checked.
        """
        check_entry("of", view, view.descriptor(), dtype, rank)
        moved = TensorView._make(view._live("of"), view.descriptor())
        view._moved_by = "of"
        return TypedTensorView._wrap(moved, rank)

    def erase(self) -> TensorView:
        """Use up the typed view and return the erased one.

        Raises:
            UseAfterMoveError: the value was used up.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; the static rank is dropped, the value keeps its axes.
        """
        ref = self._tv_inner._live("erase")
        self._tv_inner._moved_by = "erase"
        return TensorView._make(ref, self._tv_inner.descriptor())

    def as_rank(self, rank: type[R2]) -> TypedTensorView[DT, R2]:
        """Another view under the same borrow, of a rank that is checked here.

        Raises:
            LayoutError: The value does not have that rank.

        Cost: constant; no allocation of storage, provider call, wait or transfer;
        nothing for each element; fixes the static rank, which is checked.
        """
        check_rank("as_rank", self.ndim, rank)
        return TypedTensorView._wrap(self._tv_inner.as_view(), rank)

    @property
    def shape(self) -> tuple[int, ...]:
        """Erased `shape`. Cost: constant."""
        return self._tv_inner.shape

    @property
    def dtype(self) -> np.dtype[DT]:
        """Erased `dtype`. Cost: constant."""
        return self._tv_inner.dtype

    @property
    def ndim(self) -> int:
        """Erased `ndim`. Cost: constant."""
        return self._tv_inner.ndim

    @property
    def size(self) -> int:
        """Erased `size`. Cost: O(rank)."""
        return self._tv_inner.size

    @property
    def nbytes(self) -> int:
        """Erased `nbytes`. Cost: O(rank)."""
        return self._tv_inner.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Erased `strides`. Cost: constant."""
        return self._tv_inner.strides

    @property
    def span(self) -> AllocationSpan:
        """Erased `span`. Cost: constant."""
        return self._tv_inner.span

    @property
    def device(self) -> Any:
        """Erased `device`. Cost: constant."""
        return self._tv_inner.device

    @property
    def rank(self) -> type[R]:
        """The rank, which derived values of the same rank keep. Cost: constant."""
        return self._tv_rank

    @property
    def _layout(self) -> CheckedLayout:
        return self._tv_inner._layout

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing.

        Raises nothing. Cost: constant.
        """
        return self._tv_inner.descriptor()

    def as_view(self) -> TypedTensorView[DT, R]:
        """Erased `as_view`; keeps dtype and rank. Cost: as `TensorView.as_view`."""
        return TypedTensorView._wrap(self._tv_inner.as_view(), self._tv_rank)

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
            self._tv_inner[key], selected_rank(key, self._tv_rank)
        )

    def permute_dims(self, axes: Sequence[int]) -> TypedTensorView[DT, R]:
        """Erased `permute_dims`; keeps the rank. Cost: as `TensorView.permute_dims`."""
        return TypedTensorView._wrap(self._tv_inner.permute_dims(axes), self._tv_rank)

    def reshape(self, shape: tuple[int, ...]) -> TypedTensorView[DT, DynRank]:
        """Erased `reshape`; the result has `DynRank`. Cost: as `TensorView.reshape`."""
        return TypedTensorView._wrap(self._tv_inner.reshape(shape), DynRank)

    def broadcast_to(self, shape: tuple[int, ...]) -> TypedTensorView[DT, DynRank]:
        """Erased `broadcast_to`; the result has `DynRank`.

        Cost: as `TensorView.broadcast_to`.
        """
        return TypedTensorView._wrap(self._tv_inner.broadcast_to(shape), DynRank)

    def flip(self, axis: int) -> TypedTensorView[DT, R]:
        """Erased `flip`; keeps the rank. Cost: as `TensorView.flip`."""
        return TypedTensorView._wrap(self._tv_inner.flip(axis), self._tv_rank)

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
        found = self._tv_inner.reinterpret(dtype)
        return TypedTensorView._wrap(ranked("reinterpret", found, rank), rank)

    def get(self, index: tuple[int, ...]) -> DT:
        """Erased `get`. Cost: as `TensorView.get`."""
        element: DT = same(self, self._tv_inner, lambda inner: inner.get(index))
        return element

    def numpy(self) -> np.ndarray[Any, np.dtype[DT]]:
        """Erased `numpy`. Cost: as `TensorView.numpy`."""
        return same(self, self._tv_inner, TensorView.numpy)

    def prepare_host(self) -> PreparedHostRead:
        """Erased `prepare_host`. Cost: as `TensorView.prepare_host`."""
        return same(self, self._tv_inner, TensorView.prepare_host)

    def prepare_device(self) -> PreparedDeviceRead:
        """Erased `prepare_device`.

        Cost: as `TensorView.prepare_device`.
        """
        return same(self, self._tv_inner, TensorView.prepare_device)

    def checked_read(self) -> CheckedRead:
        """Erased `checked_read`.

        Cost: as `TensorView.checked_read`.
        """
        return self._tv_inner.checked_read()

    def duplicate(self) -> TypedTensor[DT, R]:
        """Erased `duplicate`; keeps dtype and rank.

        Cost: as `TensorView.duplicate`.
        """
        from ._typed import TypedTensor

        return TypedTensor._wrap(
            same(self, self._tv_inner, TensorView.duplicate), self._tv_rank
        )

    def close(self) -> None:
        """End the borrow; closing twice does nothing.

        Raises nothing. Cost: constant.
        """
        self._tv_inner.close()

    def __enter__(self) -> TypedTensorView[DT, R]:
        self._tv_inner.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self._tv_inner.__exit__(*exc)

    def __repr__(self) -> str:
        return describe_typed(
            "TypedTensorView", self._tv_rank, self._tv_inner.__repr__()
        )
