"""Bound device access: prepared access joined to a provider binding (contract G5).

`bind_read` and `bind_write` use up one prepared payload and nothing else: the provider
is reached through the root that the payload borrows, and no descriptor, range, key or
mode can be given again. On failure the error carries the very same payload. A bound
access that is never enqueued gives everything back when it goes, without touching
ownership.

A binding is lifetime only. It keeps a provider resource usable and turns into no owner,
no borrow and no other kind of binding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from .._ownership import MoveOnly, Shared
from ..errors import BindError, InvalidArgumentError, a_kind
from ._access import PreparedDeviceRead, PreparedDeviceWrite
from ._capability import StorageMut, StorageRef
from ._descriptor import CheckedDescriptor
from ._provider import Lease
from ._root import AllocationSpan, RootResource


@final
@dataclass(frozen=True, slots=True)
class DeviceArgument:
    """What a launch gets of one bound access: the provider's binding and the layout."""

    binding: object
    descriptor: CheckedDescriptor


@final
class DeviceRead(MoveOnly):
    """Bound shared access: one read argument of a launch."""

    __slots__ = ("_br_lease", "_br_prepared")

    _br_lease: Shared[Lease]
    _br_prepared: PreparedDeviceRead

    @property
    def _capability(self) -> StorageRef:
        return self._br_prepared._dr_checked._read_ref

    @property
    def _root(self) -> Shared[RootResource]:
        return self._capability._ref_claim._root

    def _argument(self) -> DeviceArgument:
        descriptor = self._br_prepared._dr_checked._read_descriptor
        return DeviceArgument(self._br_lease.value.lent, descriptor)

    def _leases(self) -> tuple[Shared[Lease], Shared[Lease]]:
        return self._br_lease, self._br_prepared._dr_state

    def _unbind(self) -> PreparedDeviceRead:
        """Undo the binding and return the exact payload that it was made from."""
        self._require("unbind")
        self._moved_by = "unbind"
        self._br_prepared._moved_by = None
        self._br_lease.release()
        return self._br_prepared

    def close(self) -> None:
        """Give up the unadmitted binding: provider resources, then the borrow."""
        self._unbind().close()


@final
class DeviceWrite(MoveOnly):
    """Bound exclusive access: one write argument of a launch."""

    __slots__ = ("_bw_lease", "_bw_prepared")

    _bw_lease: Shared[Lease]
    _bw_prepared: PreparedDeviceWrite

    @property
    def _capability(self) -> StorageMut:
        return self._bw_prepared._dw_checked._write_mut

    @property
    def _root(self) -> Shared[RootResource]:
        return self._capability._mut_claim._root

    def _argument(self) -> DeviceArgument:
        injective = self._bw_prepared._dw_checked._write_descriptor
        return DeviceArgument(self._bw_lease.value.lent, injective.descriptor)

    def _leases(self) -> tuple[Shared[Lease], Shared[Lease]]:
        return self._bw_lease, self._bw_prepared._dw_state

    def _unbind(self) -> PreparedDeviceWrite:
        """Undo the binding and return the exact payload that it was made from."""
        self._require("unbind")
        self._moved_by = "unbind"
        self._bw_prepared._moved_by = None
        self._bw_lease.release()
        return self._bw_prepared

    def close(self) -> None:
        """Give up the unadmitted binding: provider resources, then the borrow."""
        self._unbind().close()


def bind_read(prepared: PreparedDeviceRead) -> DeviceRead:
    """Use up prepared read access and return its binding.

    Raises:
        BindError: The provider could not; `recovered` is the same usable payload.

    Cost: constant; one provider binding; no validation, no strong count.
    """
    _expect(prepared, PreparedDeviceRead, "bind_read")
    prepared._require("bind_read")
    ref = prepared._dr_checked._read_ref
    root = ref._ref_claim._root.value
    prepared._moved_by = "bind_read"
    try:
        lease = root._context.bind(root.allocation, prepared._dr_state)
    except BaseException as error:
        prepared._moved_by = None
        if not isinstance(error, Exception):
            raise
        raise _bind_error("bind_read", prepared, ref.span, error) from error
    bound: DeviceRead = object.__new__(DeviceRead)
    bound._moved_by = None
    bound._br_lease = lease
    bound._br_prepared = prepared
    return bound


def bind_write(prepared: PreparedDeviceWrite) -> DeviceWrite:
    """Use up prepared write access and return its binding.

    Raises:
        BindError: The provider could not; `recovered` is the same usable payload.

    Cost: constant; one provider binding; no validation, no strong count.
    """
    _expect(prepared, PreparedDeviceWrite, "bind_write")
    prepared._require("bind_write")
    mut = prepared._dw_checked._write_mut
    root = mut._mut_claim._root.value
    prepared._moved_by = "bind_write"
    try:
        lease = root._context.bind(root.allocation, prepared._dw_state)
    except BaseException as error:
        prepared._moved_by = None
        if not isinstance(error, Exception):
            raise
        raise _bind_error("bind_write", prepared, mut.span, error) from error
    bound: DeviceWrite = object.__new__(DeviceWrite)
    bound._moved_by = None
    bound._bw_lease = lease
    bound._bw_prepared = prepared
    return bound


def _expect(prepared: object, kind: type[MoveOnly], operation: str) -> None:
    if type(prepared) is not kind:
        raise InvalidArgumentError(
            operation=operation,
            argument="prepared",
            found=a_kind(prepared),
            fix=f"give a `{kind.__name__}`, which only prepared access of its kind is",
        )


def _bind_error(
    operation: str,
    prepared: PreparedDeviceRead | PreparedDeviceWrite,
    span: AllocationSpan,
    error: Exception,
) -> BindError:
    return BindError(
        operation=operation,
        found=f"the provider raised `{type(error).__name__}`",
        recovered=prepared,
        span=span,
    )
