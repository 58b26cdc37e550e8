"""The doors: the only code that makes roots and the only code that copies bytes.

`allocate` hands out a fresh root for a kernel to write, `adopt` takes over a fresh
result of a library call, `duplicate` and `transfer` copy. Each physical allocation
passes exactly one of the first two and is counted there once; each byte-preserving copy
passes one of the last two and is counted there once (contract G7). Reasons have no
default: kernels allocate under the reason of the current `State`, the copies name
theirs.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import (
    ALLOCATION_REASONS,
    BASE,
    COPY_REASONS,
    DUPLICATE_DESTINATION,
    EXPLICIT_DUPLICATE,
    STATE,
    TRANSFER,
    TRANSFER_DESTINATION,
    Account,
    State,
)
from ..errors import InternalError
from ._record import POOLED_FROM, ValueRecord, device_record
from ._root import OwnedStorage


def allocate(state: State, aval: Aval, operation: str) -> ValueRecord:
    """A fresh, unwritten root for an output of `operation`, under `state.reason`.

    Raises:
        AllocationLimitError: the provider refuses; nothing was counted.
        ForbiddenEventError: an open `ta.forbid` scope refuses; nothing was allocated.

    Cost: one provider call, one event; no copy, no synchronisation.
    """
    account = state.account
    reason = state.reason
    nbytes = aval.nbytes
    if account.slow:
        account.refuse("allocation", ALLOCATION_REASONS[reason], operation, aval)
    device = aval.device
    if nbytes < POOLED_FROM:
        array = device.small(aval.shape, aval.dtype)
    else:
        array = device.allocate(aval.shape, aval.dtype, nbytes)
    if account.slow:
        account.detail("allocation", ALLOCATION_REASONS[reason], operation, aval)
    made = ValueRecord if type(array) is np.ndarray else device_record
    record = made(array, aval, account)
    account.allocated(reason, nbytes)
    return record


# The same doors as source, for functions that run once for every operation: the short
# way for a small output while no ledger is open (`state.is_plain`). They read `plan`,
# `state` and what `DOOR_NAMES` gives.
#
# `allocate` binds `array`, which the kernel then writes. Where the kernel is one NumPy
# function and nothing watches the hand-out (no limit, no test: `small` is NumPy's own
# `empty`), the function may make the array itself, as `adopt` takes it. Either way it
# is one physical allocation, and what follows counts it, once, and binds `out`.
SMALL_ARRAY_SOURCE: Final = """
        small = plan.device.small
        array = small(plan.shape, plan.dtype)
"""
SMALL_RECORD_SOURCE: Final = """
        out = new(ValueRecord)
        out.array = array
        out.aval = plan.aval
        out.account = BASE
        out.tokens = []
        out.home = None
        counts[state.reason] += 1
        BASE.live_bytes += plan.nbytes
"""

DOOR_NAMES: Final[dict[str, Any]] = {
    "BASE": BASE,
    "ValueRecord": ValueRecord,
    "counts": BASE.counts,
    "empty": np.empty,
    "new": object.__new__,
}


# Bare roots: a reverse sweep owns most cotangents for one step only, and a record for
# each would cost as much as its arithmetic. They pass the same door and are released
# through `release_bare`; a bare root that outlives the sweep gets its record from
# `clothe`.


def allocate_bare(state: State, aval: Aval, operation: str) -> Any:
    """`allocate` for a caller that keeps the account itself and must release or clothe.

    Cost: as `allocate`.
    """
    record = allocate(state, aval, operation)
    record.account = None
    return record.array


def release_bare(account: Account, aval: Aval, array: Any) -> None:
    """Release a bare root: the ledger event and, for large ones, the pool.

    Cost: one event; nothing is copied.
    """
    account.release(aval.nbytes)
    if aval.nbytes >= POOLED_FROM:
        aval.device.give_back(array)


def clothe(account: Account, aval: Aval, array: Any) -> ValueRecord:
    """A record that owns the bare root from now on; no event.

    Cost: one object.
    """
    return ValueRecord(array, aval, account)


def bare(record: ValueRecord, account: Account) -> Any:
    """The bare root of a record that nobody else holds, or None if it has none of its
    own in that account; no event. The record is empty after.

    Cost: metadata only.
    """
    if record.account is not account or record.tokens:
        return None
    array = record.array
    record.account = None
    return array


# `allocate_bare` and `release_bare` as source, for small roots while no ledger is open.
# `{k}` ends the names of the facts that they read.
SMALL_BARE_ARRAY_SOURCE: Final = """
small = device{k}.small
array = small(shape{k}, dtype{k})
"""
SMALL_BARE_SOURCE: Final = """
counts[state.reason] += 1
BASE.live_bytes += nbytes{k}
"""
SMALL_RELEASE_SOURCE: Final = """
BASE.released += 1
BASE.live_bytes -= nbytes{k}
"""


def adopt(state: State, array: Any, aval: Aval, operation: str) -> ValueRecord:
    """Take over a fresh array that a library call returned, as one allocation.

    The array must own its data and have no base: anything else could share memory with
    the outside, and no reason would be true of it.

    Raises:
        InternalError: the array is not fresh (a kernel row is declared wrongly).

    Cost: one provider call (accounting), one event; no copy.
    """
    if array.base is not None or not array.flags.owndata:
        raise InternalError(
            operation=operation,
            argument="kernel",
            found="a library result that does not own its memory",
            fix="declare the row as a kernel that writes its outputs",
        )
    account, reason = state.account, state.reason
    if account.slow:
        account.refuse("allocation", ALLOCATION_REASONS[reason], operation, aval)
    aval.device.adopted(aval.nbytes)
    if account.slow:
        account.detail("allocation", ALLOCATION_REASONS[reason], operation, aval)
    account.allocated(reason, aval.nbytes)
    record = ValueRecord(array, aval, account)
    if not array.flags.c_contiguous:
        record.container()  # inline records are row-major
    return record


def _copy(
    source: Any, aval: Aval, allocation: int, copy: int, operation: str
) -> ValueRecord:
    state = STATE.get()
    if state.account.slow:
        state.account.refuse("copy", COPY_REASONS[copy], operation, aval)
    record = allocate(State(state.account, allocation, None), aval, operation)
    record.aval.device.write(record.array, source)
    state.account.copied(copy, operation, aval)
    return record


def duplicate(source: Any, aval: Aval, operation: str) -> ValueRecord:
    """An explicit copy on the same device: one `ExplicitDuplicate` and its destination.

    Cost: allocates and copies `aval.nbytes`; waits for the source on asynchronous
    lanes.
    """
    return _copy(source, aval, DUPLICATE_DESTINATION, EXPLICIT_DUPLICATE, operation)


def transfer(source: Any, aval: Aval, operation: str) -> ValueRecord:
    """A copy from another place (outside memory, another device): one `Transfer`.

    Cost: allocates and copies `aval.nbytes`.
    """
    return _copy(source, aval, TRANSFER_DESTINATION, TRANSFER, operation)


def overwrite(target: Any, source: Any, operation: str, device: Any = None) -> None:
    """Copy bytes into memory that exists already: a copy event, no allocation event.

    Args:
        target: a host array, or a writable view in the memory of `device`.
    """
    state = STATE.get()
    aval = aval_of(target.shape, target.dtype, None)
    if state.account.slow:
        state.account.refuse("copy", COPY_REASONS[EXPLICIT_DUPLICATE], operation, aval)
    if device is None:
        np.copyto(target, source)
    else:
        device.write(target, source)
    state.account.copied(EXPLICIT_DUPLICATE, operation, aval)


def count_copy(state: State, aval: Aval, operation: str) -> None:
    """An explicit duplicate inside a launch, into memory that passed `allocate`: its
    copy event.

    Raises:
        ForbiddenEventError: an open `ta.forbid` scope refuses; nothing was counted.
    """
    if state.account.slow:
        state.account.refuse("copy", COPY_REASONS[EXPLICIT_DUPLICATE], operation, aval)
    state.account.copied(EXPLICIT_DUPLICATE, operation, aval)


def duplicate_storage(
    source: Any, device: Any, operation: str
) -> tuple[OwnedStorage, Any]:
    """`duplicate` for a storage-level view, or its host elements: a new owner and the
    array over it."""
    aval = aval_of(source.shape, source.dtype, device)
    return duplicate(source, aval, operation).into_tensor()._unseat(operation)
