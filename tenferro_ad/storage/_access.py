"""Prepared access: a capability joined to its own descriptor, made ready once (G1, G4).

`CheckedRead` and `CheckedWrite` join a borrow with the descriptor that was checked
against the same claim; only views and groups make them. `prepare_read` and
`prepare_write` use one up, do the provider work of this access (one map or one
binding) and publish exactly one payload: host contiguous, host strided, or device.
They repeat no static check. On failure the mapping is undone and
`AccessError.recovered` is the same pairing.

A provider may have to wait here for work that writes the bytes. That is a
synchronisation point and never a copy: no ledger counts it. What is prepared stays
ready until it is closed, bound or garbage, and every loop after it finds the bytes
where they are.

Host bytes are reachable only through the guard inside a host payload; arrays that it
hands out hold its borrow until they are garbage.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, assert_never, final

from .._ownership import MoveOnly, Shared
from ..errors import AccessError, InvalidArgumentError, TenferroError, a_kind
from ._capability import StorageMut, StorageRef
from ._descriptor import CheckedDescriptor, CheckedInjectiveDescriptor
from ._guard import HostReadGuard, HostWriteGuard
from ._layout import CheckedInjectiveStrided, CheckedStrided, Contiguous
from ._provider import Lease
from ._root import AllocationSpan
from ._traversal import (
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedHostRead,
    PreparedHostWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
)


@final
class AccessTarget(Enum):
    """Where the prepared access will be used."""

    Host = "host"
    Device = "device"


_HOST: Final = AccessTarget.Host  # reading an enum's member costs more than a name


@final
class CheckedRead(MoveOnly):
    """A shared borrow joined to its own descriptor; opaque."""

    __slots__ = ("_read_descriptor", "_read_ref")

    _read_descriptor: CheckedDescriptor
    _read_ref: StorageRef

    @classmethod
    def _join(cls, ref: StorageRef, descriptor: CheckedDescriptor) -> CheckedRead:
        pair: CheckedRead = object.__new__(cls)
        pair._moved_by = None
        pair._read_ref = ref
        pair._read_descriptor = descriptor
        return pair

    def _part(self, operation: str) -> tuple[StorageRef, CheckedDescriptor]:
        if self._moved_by is not None:
            self._require(operation)
        self._moved_by = operation
        return self._read_ref, self._read_descriptor


@final
class CheckedWrite(MoveOnly):
    """An exclusive borrow joined to its own injective descriptor; opaque."""

    __slots__ = ("_write_descriptor", "_write_mut")

    _write_descriptor: CheckedInjectiveDescriptor
    _write_mut: StorageMut

    @classmethod
    def _join(
        cls, mut: StorageMut, descriptor: CheckedInjectiveDescriptor
    ) -> CheckedWrite:
        pair: CheckedWrite = object.__new__(cls)
        pair._moved_by = None
        pair._write_mut = mut
        pair._write_descriptor = descriptor
        return pair

    def _part(self, operation: str) -> tuple[StorageMut, CheckedInjectiveDescriptor]:
        if self._moved_by is not None:
            self._require(operation)
        self._moved_by = operation
        return self._write_mut, self._write_descriptor


@final
class PreparedDeviceRead(MoveOnly):
    """Device read access: the checked pairing and the provider's opaque state."""

    __slots__ = ("_dr_checked", "_dr_state")

    _dr_checked: CheckedRead
    _dr_state: Shared[Lease]

    def close(self) -> None:
        """Give up the unadmitted access: the provider's state goes, then the borrow.

        Raises:
            UseAfterMoveError: it was bound, or closed before.

        Cost: constant; one provider release.
        """
        self._require("close")
        self._moved_by = "close"
        try:
            self._dr_state.release()
        finally:
            self._dr_checked._read_ref.close()


@final
class PreparedDeviceWrite(MoveOnly):
    """Device write access: the checked pairing and the provider's opaque state."""

    __slots__ = ("_dw_checked", "_dw_state")

    _dw_checked: CheckedWrite
    _dw_state: Shared[Lease]

    def close(self) -> None:
        """Give up the unadmitted access: the provider's state goes, then the borrow.

        Raises:
            UseAfterMoveError: it was bound, or closed before.

        Cost: constant; one provider release.
        """
        self._require("close")
        self._moved_by = "close"
        try:
            self._dw_state.release()
        finally:
            self._dw_checked._write_mut.close()


PreparedRead = PreparedHostRead | PreparedDeviceRead
PreparedWrite = PreparedHostWrite | PreparedDeviceWrite


def prepare_read(checked: CheckedRead, target: AccessTarget) -> PreparedRead:
    """Use up a checked shared pairing and return the payload for `target`.

    Raises:
        AccessError: The provider could not; `recovered` is the same usable pairing.

    Cost: constant; at most one map or binding, which may wait (a synchronisation
    point); no validation, no copy.
    """
    ref, descriptor = checked._part("prepare_read")
    try:
        if target is _HOST:
            return _host_read(HostReadGuard._open(ref, descriptor), descriptor)
        root = ref._ref_claim._root.value
        state = root.provider.value.prepare_device(root.allocation, "read")
    except BaseException as error:
        checked._moved_by = None
        if not isinstance(error, Exception):
            raise
        span = ref.span
        raise _access_error("prepare_read", checked, span, error) from error
    device: PreparedDeviceRead = object.__new__(PreparedDeviceRead)
    device._moved_by = None
    device._dr_checked = checked
    device._dr_state = state
    return device


def prepare_write(checked: CheckedWrite, target: AccessTarget) -> PreparedWrite:
    """Use up a checked exclusive pairing and return the payload for `target`.

    Raises:
        AccessError: The provider could not; `recovered` is the same usable pairing.

    Cost: constant; at most one map or binding, which may wait (a synchronisation
    point); no validation, no copy.
    """
    if type(checked) is not CheckedWrite:
        raise InvalidArgumentError(
            operation="prepare_write",
            argument="checked",
            found=f"{a_kind(checked)}, which may not write",
            fix="take the exclusive view and its `checked_write()`",
        )
    mut, injective = checked._part("prepare_write")
    try:
        if target is _HOST:
            return _host_write(
                HostWriteGuard._open(mut, injective.descriptor), injective
            )
        root = mut._mut_claim._root.value
        state = root.provider.value.prepare_device(root.allocation, "write")
    except BaseException as error:
        checked._moved_by = None
        if not isinstance(error, Exception):
            raise
        span = mut.span
        raise _access_error("prepare_write", checked, span, error) from error
    device: PreparedDeviceWrite = object.__new__(PreparedDeviceWrite)
    device._moved_by = None
    device._dw_checked = checked
    device._dw_state = state
    return device


def _access_error(
    operation: str,
    checked: CheckedRead | CheckedWrite,
    span: AllocationSpan,
    error: Exception,
) -> AccessError:
    found = (
        error.found
        if isinstance(error, TenferroError)
        else f"the provider raised `{type(error).__name__}`"
    )
    return AccessError(operation=operation, found=found, recovered=checked, span=span)


def _host_read(guard: HostReadGuard, descriptor: CheckedDescriptor) -> PreparedHostRead:
    layout = descriptor.layout
    if isinstance(layout, Contiguous):
        dense: PreparedContiguousRead = object.__new__(PreparedContiguousRead)
        dense._moved_by = None
        dense.guard = guard
        dense.element_range = range(guard._rg_array.size)
        return dense
    if isinstance(layout, CheckedStrided):
        strided: PreparedStridedRead = object.__new__(PreparedStridedRead)
        strided._moved_by = None
        strided.guard = guard
        strided.plan = layout
        return strided
    assert_never(layout)


def _host_write(
    guard: HostWriteGuard, injective: CheckedInjectiveDescriptor
) -> PreparedHostWrite:
    layout = injective.descriptor.layout
    if isinstance(layout, Contiguous):
        dense: PreparedContiguousWrite = object.__new__(PreparedContiguousWrite)
        dense._moved_by = None
        dense.guard = guard
        dense.element_range = range(guard._wg_array.size)
        return dense
    if isinstance(layout, CheckedStrided):
        strided: PreparedStridedWrite = object.__new__(PreparedStridedWrite)
        strided._moved_by = None
        strided.guard = guard
        strided.plan = CheckedInjectiveStrided(layout, injective.injectivity)
        return strided
    assert_never(layout)
