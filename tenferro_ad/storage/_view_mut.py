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
    AccessTarget,
    CheckedWrite,
    PreparedDeviceWrite,
    PreparedWrite,
    prepare_write,
)
from ._capability import StorageMut
from ._descriptor import (
    CheckedDescriptor,
    CheckedInjectiveDescriptor,
    check_injective,
    host_array,
)
from ._disjoint import Request, prove_disjoint
from ._layout import WriteInjectivityProof, inherit_injective
from ._provider import HostArray
from ._root import AllocationSpan
from ._traversal import (
    PreparedContiguousWrite,
    PreparedHostWrite,
    PreparedStridedWrite,
)
from ._view import TensorView, describe, full_index, refuse_ended

if TYPE_CHECKING:
    from ._tensor import Tensor


@final
class TensorViewMut(MoveOnly):
    """The exclusive borrow of a value: everything that writes in place lives here."""

    __slots__ = ("_vm_descriptor", "_vm_mut", "_vm_proof")

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

    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor: metadata that opens nothing. Cost: constant."""
        return self._vm_descriptor

    def as_view(self) -> TensorView:
        """Lend this borrow for reading; writing waits until that view ends.

        Cost: constant; no allocation of storage, no strong count, no provider call.
        """
        ref = self._live("as_view")._reborrow_ref("as_view")
        return TensorView._make(ref, self._vm_descriptor)

    def as_view_mut(self) -> TensorViewMut:
        """Lend this borrow for writing; this view waits until that one ends.

        Cost: constant; no allocation of storage, no strong count, no provider call.
        """
        mut = self._live("as_view_mut")._reborrow_muts("as_view_mut")[0]
        return TensorViewMut._make(mut, self._vm_descriptor, self._vm_proof)

    def numpy(self) -> HostArray:
        """A read-only array, through `as_view`. Cost: as `TensorView.numpy`."""
        with self.as_view() as view:
            return view.numpy()

    def get(self, index: tuple[int, ...]) -> Any:
        """One element, through `as_view`. Cost: as `TensorView.get`."""
        with self.as_view() as view:
            return view.get(index)

    def duplicate(self) -> Tensor:
        """A new owner of a copy, through `as_view`. Cost: as `TensorView.duplicate`."""
        with self.as_view() as view:
            return view.duplicate()

    def __getitem__(self, key: object) -> TensorViewMut:
        """The writable part that a basic index selects; this view waits for it.

        Cost: O(rank); validates the new indices only.
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

    def _elements(self, operation: str) -> HostArray:
        """Host elements for one kernel call inside the package; nothing is lent."""
        mut = self._live(operation)
        self._whole(mut, operation)
        self._injective(operation)
        root = mut._mut_claim._root.value
        return host_array(self._vm_descriptor, root.allocation)

    @property
    def _device(self) -> Any:
        return self._vm_mut._mut_claim._root.value.provider.value.provider

    def write(self) -> HostArray:
        """A writable array over the same bytes; it holds the borrow while it lives.

        Until it is garbage, neither this view nor the owner can be used otherwise.

        Raises:
            LayoutError: Elements overlap, so the layout cannot be written.
            AccessError: The provider could not map; the view is unchanged.

        Cost: one map and wait where the provider needs them; no copy.
        """
        injective = self._injective("write")
        child = self._live("write")._reborrow_muts("write")[0]
        try:
            checked = CheckedWrite._join(child, injective)
            prepared = _host_write(prepare_write(checked, AccessTarget.Host))
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

        Cost: O(rank) bounds checks and one host access; not for loops.
        """
        with self[full_index("get_mut", index, self.ndim)] as element:
            return element.write()

    def fill(self, value: complex) -> None:
        """Set every element to `value`.

        Cost: writes `nbytes`; one map and wait where the provider needs them.
        """
        self.write()[...] = value

    def copy_from(self, source: TensorView) -> None:
        """Copy the elements of `source` here: one recorded `ExplicitDuplicate`.

        Cost: copies `nbytes`; allocates nothing.
        """
        from ._door import overwrite

        overwrite(self.write(), source.numpy(), "copy_from")

    def prepare_host_mut(self) -> PreparedHostWrite:
        """Consume the view and return host write access, contiguous or strided.

        Raises:
            LayoutError: Elements overlap; the view is unchanged.
            AccessError: The provider could not map; `recovered` is this same view.

        Cost: constant; one map and wait where the provider needs them.
        """
        return _host_write(self._prepare("prepare_host_mut", AccessTarget.Host))

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
        """Consume the view and return its opaque pairing. Cost: constant."""
        mut = self._live("checked_write")
        self._whole(mut, "checked_write")
        checked = CheckedWrite._join(mut, self._injective("checked_write"))
        self._moved_by = "checked_write"
        return checked

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
        """End this part of the borrow; closing twice does nothing. Cost: constant."""
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
