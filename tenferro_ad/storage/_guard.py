"""Host guards: the only way to the host bytes of a checked span (contract G1, G4).

A guard covers exactly one validated descriptor, holds its borrow and at most one
provider mapping, and lends arrays that hold both until they are garbage.
"""

from __future__ import annotations

from typing import final

import numpy as np

from .._ownership import MoveOnly, Shared
from ..errors import AccessError, ExpiredCapabilityError
from ._capability import StorageMut, StorageRef
from ._descriptor import CheckedDescriptor, host_array
from ._provider import AccessMode, HostArray, HostMapping
from ._root import RootResource, lend


def _open_host(
    root: RootResource, descriptor: CheckedDescriptor, mode: AccessMode
) -> tuple[HostArray, Shared[HostMapping] | None]:
    """The descriptor's host elements, and the one mapping that this access made."""
    context = root._context
    if not context.maps_host:
        if not isinstance(root.allocation, np.ndarray):
            raise AccessError(
                operation="prepare",
                found=f"`{context.name}` offers no host mapping",
                fix="transfer the value to a host device",
            )
        return host_array(descriptor, root.allocation), None
    mapping = Shared._new(HostMapping(context.provider, root.allocation, mode))
    try:
        return host_array(descriptor, mapping.value.array), mapping
    except BaseException:
        # Released here and not by a finaliser: the error keeps this frame alive.
        mapping.release()
        raise


@final
class HostReadGuard(MoveOnly):
    """Shared host access to one checked span; ends with the last array that it lent."""

    __slots__ = ("_rg_array", "_rg_mapping", "_rg_ref")

    _rg_array: HostArray
    _rg_mapping: Shared[HostMapping] | None
    _rg_ref: StorageRef

    @classmethod
    def _open(cls, ref: StorageRef, descriptor: CheckedDescriptor) -> HostReadGuard:
        guard: HostReadGuard = object.__new__(cls)
        guard._moved_by = None
        root = ref._ref_claim._root.value
        guard._rg_array, guard._rg_mapping = _open_host(root, descriptor, "read")
        guard._rg_ref = ref
        return guard

    def _elements(self, operation: str) -> HostArray:
        if self._moved_by is not None:
            raise ExpiredCapabilityError(operation=operation, kind="HostReadGuard")
        return self._rg_array

    def _lend(self, array: HostArray) -> HostArray:
        mapping = None if self._rg_mapping is None else self._rg_mapping.clone()
        return lend(array, self._rg_ref._share("read"), mapping)

    def close(self) -> None:
        """End this holder's access; closing twice does nothing."""
        if self._moved_by is None:
            self._moved_by = "close"
            del self._rg_array, self._rg_mapping
            self._rg_ref.close()


@final
class HostWriteGuard(MoveOnly):
    """Exclusive host access to one checked span; the only source of writable arrays."""

    __slots__ = ("_wg_array", "_wg_mapping", "_wg_mut")

    _wg_array: HostArray
    _wg_mapping: Shared[HostMapping] | None
    _wg_mut: StorageMut

    @classmethod
    def _open(cls, mut: StorageMut, descriptor: CheckedDescriptor) -> HostWriteGuard:
        guard: HostWriteGuard = object.__new__(cls)
        guard._moved_by = None
        root = mut._mut_claim._root.value
        guard._wg_array, guard._wg_mapping = _open_host(root, descriptor, "write")
        guard._wg_mut = mut
        return guard

    def _elements(self, operation: str) -> HostArray:
        if self._moved_by is not None:
            raise ExpiredCapabilityError(operation=operation, kind="HostWriteGuard")
        return self._wg_array

    def _lend(self, array: HostArray) -> HostArray:
        child = self._wg_mut._reborrow_muts("write")[0]
        mapping = None if self._wg_mapping is None else self._wg_mapping.clone()
        return lend(array, child, mapping)

    def close(self) -> None:
        """End this holder's access; closing twice does nothing."""
        if self._moved_by is None:
            self._moved_by = "close"
            del self._wg_array, self._wg_mapping
            self._wg_mut.close()
