"""`TensorViewMut`: the exclusive borrow; everything that writes in place lives here.

It reads by lending itself as a `TensorView`, and it waits while any part of its borrow
is lent. Children of a split or a slice hold what they came from, so the owner stays
inaccessible until the last of them ends (contract G2, G4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, assert_never, final

import numpy as np

from .._ownership import MoveOnly
from ..errors import AccessError, InternalError
from . import _selection
from ._access import (
    _HOST,
    AccessTarget,
    CheckedRead,
    CheckedWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    PreparedWrite,
    prepare_write,
)
from ._as_array import as_array
from ._capability import StorageMut
from ._descriptor import (
    CheckedDescriptor,
    CheckedInjectiveDescriptor,
    check_injective,
    host_array,
)
from ._disjoint import Request, prove_disjoint
from ._filling import copy_all, set_all
from ._layout import CheckedLayout, WriteInjectivityProof, inherit_injective
from ._provider import HostArray
from ._reinterpret import reinterpreted
from ._root import AllocationSpan
from ._traversal import (
    PreparedContiguousWrite,
    PreparedHostRead,
    PreparedHostWrite,
    PreparedStridedWrite,
)
from ._view import TensorView, describe, full_index, refuse_ended, through

if TYPE_CHECKING:
    from ._tensor import Tensor


@final
class TensorViewMut(MoveOnly):
    """The exclusive borrow of a value: everything that writes in place lives here."""

    __slots__ = ("_vm_descriptor", "_vm_mut", "_vm_proof")
    __array__ = as_array

    _vm_descriptor: CheckedDescriptor
    _vm_mut: StorageMut
    _vm_proof: WriteInjectivityProof | None

    @classmethod
    def _make(
        cls,
        mut: StorageMut,
        descriptor: CheckedDescriptor,
        proof: WriteInjectivityProof | None,
    ) -> TensorViewMut:
        view: TensorViewMut = object.__new__(cls)
        view._moved_by = None
        view._vm_mut = mut
        view._vm_descriptor = descriptor
        view._vm_proof = proof
        return view

    def _live(self, operation: str) -> StorageMut:
        ended = self._moved_by
        if ended is not None:
            refuse_ended("TensorViewMut", operation, ended, ended in ("close", "with"))
        return self._vm_mut

    def _injective(self, operation: str) -> CheckedInjectiveDescriptor:
        if self._vm_proof is None:
            self._vm_proof = check_injective(operation, self._vm_descriptor).injectivity
        return CheckedInjectiveDescriptor(self._vm_descriptor, self._vm_proof)

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents. Cost: constant."""
        return self._vm_descriptor.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type. Cost: constant."""
        return self._vm_descriptor.dtype

    @property
    def ndim(self) -> int:
        """Number of axes. Cost: constant."""
        return len(self._vm_descriptor.shape)

    @property
    def size(self) -> int:
        """Number of elements. Cost: O(rank)."""
        return self._vm_descriptor.size

    @property
    def nbytes(self) -> int:
        """Bytes of the elements. Cost: O(rank)."""
        return self._vm_descriptor.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides. Cost: constant."""
        return self._vm_descriptor.strides

    @property
    def span(self) -> AllocationSpan:
        """Identity of the borrowed bytes. Cost: constant."""
        return self._live("span").span

    @property
    def device(self) -> Any:
        """The provider that holds the bytes. Cost: constant."""
        return self._live("device")._mut_claim._root.value._context.provider

    @property
    def _layout(self) -> CheckedLayout:
        return self._vm_descriptor.layout

    @property
    def _allocation(self) -> Any:
        return self._live("allocation")._mut_claim._root.value.allocation

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor, metadata only. Raises nothing. Cost: constant."""
        return self._vm_descriptor

    def as_view(self) -> TensorView:
        """Lend this borrow for reading; writing waits until that view ends.

        Raises:
            OwnershipError: the view is gone, or another borrow is open.

        Cost: constant; no strong count; no allocation of storage, provider call, wait
        or transfer; nothing for each element; keeps the rank.
        """
        ref = self._live("as_view")._reborrow_ref("as_view")
        return TensorView._make(ref, self._vm_descriptor)

    def as_view_mut(self) -> TensorViewMut:
        """Lend this borrow for writing; this view waits until that one ends.

        Raises:
            OwnershipError: the view is gone, or another borrow is open.

        Cost: constant; no strong count; no allocation of storage, provider call, wait
        or transfer; nothing for each element; keeps the rank.
        """
        mut = self._live("as_view_mut")._reborrow_muts("as_view_mut")[0]
        return TensorViewMut._make(mut, self._vm_descriptor, self._vm_proof)

    def numpy(self) -> HostArray:
        """A read-only array, through `as_view`. Cost: as `TensorView.numpy`."""
        return through(self, self.as_view(), TensorView.numpy)

    def get(self, index: tuple[int, ...]) -> Any:
        """One element, through `as_view`. Cost: as `TensorView.get`."""
        return through(self, self.as_view(), lambda view: view.get(index))

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
        """The same bytes as another type. Cost: as `TensorView.reinterpret`."""
        return through(self, self.as_view(), lambda view: view.reinterpret(dtype))

    def prepare_host(self) -> PreparedHostRead:
        """Host read access, through `as_view`. Cost: as `TensorView.prepare_host`."""
        return through(self, self.as_view(), TensorView.prepare_host)

    def prepare_device(self) -> PreparedDeviceRead:
        """Device read access. Cost: as `TensorView.prepare_device`."""
        return through(self, self.as_view(), TensorView.prepare_device)

    def checked_read(self) -> CheckedRead:
        """The opaque read pairing. Cost: as `TensorView.checked_read`."""
        return through(self, self.as_view(), TensorView.checked_read)

    def duplicate(self) -> Tensor:
        """A new owner of a copy, through `as_view`. Cost: as `TensorView.duplicate`."""
        return through(self, self.as_view(), TensorView.duplicate)

    def __getitem__(self, key: object) -> TensorViewMut:
        """The writable part that a basic index selects; this view waits for it.

        Cost: O(rank): the new indices are validated; no allocation of storage, provider
        call, wait or transfer; nothing for each element; integers and None change the
        rank.
        """
        mut = self._live("getitem")
        descriptor = self._selected("getitem", key)
        proof = inherit_injective(self._vm_proof, descriptor.layout)
        child = mut._reborrow_muts("getitem")[0]
        return TensorViewMut._make(child, descriptor, proof)

    def _selected(self, operation: str, key: object) -> CheckedDescriptor:
        old = self._vm_descriptor
        return old._with_layout(_selection.select(operation, old.layout, key))

    def split_mut(self, keys: Sequence[object]) -> list[TensorViewMut]:
        """Divide this borrow among the parts that `keys` select, proven disjoint.

        Raises:
            DisjointViewError: The parts overlap or cannot be proven separate; nothing
                was handed out.

        Cost: O(n log n) for n parts; no map, no enqueue, no layout validation.
        """
        mut = self._live("split_mut")
        requests = []
        for position, key in enumerate(keys):
            descriptor = self._selected("split_mut", key)
            proof = inherit_injective(self._vm_proof, descriptor.layout)
            requests.append(Request(position, 0, descriptor, proof))
        proven = prove_disjoint("split_mut", requests)
        children = mut._reborrow_muts("split_mut", len(proven))
        return [
            TensorViewMut._make(child, part.descriptor, part.injectivity)
            for child, part in zip(children, proven, strict=True)
        ]

    def reinterpret_mut(self, dtype: Any) -> TensorViewMut:
        """The same bytes as another listed type, for writing; this view waits for it.

        Raises:
            LayoutError: The pair is not listed, the layout does not fit it, or its
                elements overlap.

        Cost: O(rank log rank) at most; no allocation, copy or provider call.
        """
        mut = self._live("reinterpret_mut")
        new = reinterpreted("reinterpret_mut", self._vm_descriptor, dtype)
        self._injective("reinterpret_mut")
        # Cutting distinct elements into parts, or joining them, keeps them distinct.
        proof = inherit_injective(self._vm_proof, new.layout)
        child = mut._reborrow_muts("reinterpret_mut")[0]
        return TensorViewMut._make(child, new, proof)

    def _elements(self, operation: str) -> HostArray:
        """Host elements for one kernel call inside the package; nothing is lent."""
        mut = self._live(operation)
        self._whole(mut, operation)
        self._injective(operation)
        root = mut._mut_claim._root.value
        return host_array(self._vm_descriptor, root.allocation)

    def write(self) -> HostArray:
        """A writable array over the same bytes; it holds the borrow while it lives.

        Until it is garbage, neither this view nor the owner can be used otherwise.

        Raises:
            LayoutError: Elements overlap, so the layout cannot be written.
            AccessError: The provider could not map; the view is unchanged.

        Cost: one map by the provider, and a wait, where it needs them; no allocation of
        storage, no transfer; nothing for each element; keeps the rank.
        """
        injective = self._injective("write")
        child = self._live("write")._reborrow_muts("write")[0]
        try:
            checked = CheckedWrite._join(child, injective)
            prepared = _host_write(prepare_write(checked, _HOST))
        except AccessError as error:
            child.close()
            error.recovered = self
            raise
        if isinstance(prepared, PreparedContiguousWrite):
            array = prepared.as_slice_mut().reshape(self.shape)
        else:
            array = prepared.as_strided_array_mut()
        prepared.close()
        return array

    def get_mut(self, index: tuple[int, ...]) -> HostArray:
        """One writable element, as an array of rank 0: `m.get_mut(i)[...] = v`.

        Raises:
            IndexRangeError: an index is missing or out of range.
            AccessError: the provider could not map; the view is unchanged.
            OwnershipError: the view is gone, or another borrow is open.

        Cost: for each element O(rank) bounds checks and one host access through the
        provider, which may wait; allocates a small array, transfers nothing, has no
        rank. Not for loops.
        """
        with self[full_index("get_mut", index, self.ndim)] as element:
            return element.write()

    def fill(self, value: complex) -> None:
        """Set every element to `value`.

        Raises:
            DTypeError: `value` cannot become an element.
            AccessError: the provider could not map; the view is unchanged.
            OwnershipError: the view is gone, or another borrow is open.

        Cost: writes `nbytes`; one map and wait where the provider needs them.
        """
        set_all(self.write(), value)

    def copy_from(self, source: TensorView) -> None:
        """Copy the elements of `source` here: one recorded `ExplicitDuplicate`.

        Raises:
            ShapeError: the shapes differ.
            DTypeError: elements would lose their kind.
            AccessError: the provider could not map; the view is unchanged.
            ForbiddenEventError: inside `ta.forbid`, before anything happens.
            OwnershipError: the view is gone, or another borrow is open.

        Cost: copies `nbytes`; allocates nothing. Within one device it does not wait.
        """
        copy_all(self, source)

    def prepare_host_mut(self) -> PreparedHostWrite:
        """Consume the view and return host write access, contiguous or strided.

        Raises:
            LayoutError: Elements overlap; the view is unchanged.
            AccessError: The provider could not map; `recovered` is this same view.

        Cost: constant; one map by the provider, and a wait, where it needs them; no
        allocation of storage, no transfer; nothing for each element; keeps the rank.
        """
        return _host_write(self._prepare("prepare_host_mut", _HOST))

    def prepare_device_mut(self) -> PreparedDeviceWrite:
        """Consume the view and return device write access.

        Raises:
            LayoutError: Elements overlap; the view is unchanged.
            AccessError: The provider binds nothing; `recovered` is this same view.

        Cost: constant; one provider preparation.
        """
        prepared = self._prepare("prepare_device_mut", AccessTarget.Device)
        assert isinstance(prepared, PreparedDeviceWrite)
        return prepared

    def checked_write(self) -> CheckedWrite:
        """Consume the view and return its opaque pairing.

        Raises:
            LayoutError: elements overlap; the view is unchanged.
            OwnershipError: the view is gone.

        Cost: constant.
        """
        mut = self._live("checked_write")
        self._whole(mut, "checked_write")
        checked = CheckedWrite._join(mut, self._injective("checked_write"))
        self._moved_by = "checked_write"
        return checked

    def _whole_of(self, operation: str) -> StorageMut:
        """The live borrow, none of it lent; the caller moves it on."""
        mut = self._live(operation)
        self._whole(mut, operation)
        return mut

    def _whole(self, mut: StorageMut, operation: str) -> None:
        """Refuse while a part of this borrow is lent: consuming needs all of it."""
        mut._mut_cell.acquire_exclusive(operation, mut)
        mut._mut_cell.release("exclusive")

    def _prepare(self, operation: str, target: AccessTarget) -> PreparedWrite:
        mut = self._live(operation)
        self._whole(mut, operation)
        checked = CheckedWrite._join(mut, self._injective(operation))
        try:
            prepared = prepare_write(checked, target)
        except AccessError as error:
            error.recovered = self
            raise
        self._moved_by = operation
        return prepared

    def close(self) -> None:
        """End this part of the borrow; closing twice does nothing.

        Raises nothing. Cost: constant.
        """
        self._end("close")

    def _end(self, by: str) -> None:
        if self._moved_by is None:
            self._moved_by = by
            self._vm_mut.close(by)

    def __enter__(self) -> TensorViewMut:
        self._live("with")
        return self

    def __exit__(self, *exc: object) -> None:
        self._end("with")

    def __repr__(self) -> str:
        return describe("TensorViewMut", self._vm_descriptor, self._moved_by)


def _host_write(prepared: PreparedWrite) -> PreparedHostWrite:
    match prepared:
        case PreparedContiguousWrite() | PreparedStridedWrite():
            return prepared
        case PreparedDeviceWrite():
            raise InternalError(operation="prepare_host", invariant="host payload")
    assert_never(prepared)
