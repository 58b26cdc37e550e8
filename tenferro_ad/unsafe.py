"""Zero-copy import of outside memory: named unsafe, because duties replace proofs.

What the package cannot check is the caller's duty, as long as the tensor or any value
that shares its memory lives (views do, and so do arrays and capsules handed out):

* keep the binding alive: it stays where it is, mapped and allocated, until the last of
  them is gone;
* obey synchronisation: whoever produces the memory has finished, nobody outside writes
  the memory from then on or relies on what is in it, and no other tensor is made from
  it, or from memory that overlaps it;
* do not use the pointer after retirement: once the last of them is gone, what the
  outside object says of the memory holds again, and nothing of ours does.

Breaking a duty gives wrong numbers, never a wrong ledger: in-place updates and
`view_mut` write this memory as they write any root's.

The ledger counts what this package allocates and copies. Outside memory is neither, so
an import records no event, belongs to no scope, and is in no `live` or `peak_bytes`.
Its release is no event either: the last holder drops the outside object, and the pool
never sees it.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from .backends import CPU
from .engine import EagerTensor, host_array_of
from .errors import DeviceMismatchError, DTypeError, InvalidArgumentError, type_name
from .runtime import device_of, host_aval
from .storage import ValueRecord


@final
class _NotOurs:
    """The account of roots that no scope counted."""

    __slots__ = ()
    slow = True  # releases go through the method, and not into counters

    def release(self, nbytes: int) -> None:
        """Nothing was counted, so nothing is given back."""


_NOT_OURS: Final = _NotOurs()


@final
class _Outside:
    """Holds the outside object, and is what the root's array has as its base.

    A provider recognises its own memory by its base. NumPy would replace a base that
    is an array by that array's base, which may look like pool memory; it keeps this.
    """

    __slots__ = ("__array_interface__", "owner")

    # Read by providers where a base would be an array: nothing of theirs.
    dtype = None

    def __init__(self, owner: np.ndarray[Any, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = owner.__array_interface__


def import_array(array: np.ndarray[Any, Any], *, device: Any = None) -> EagerTensor:
    """A constant over the memory of `array`, without a copy; its duties are the
    module's.

    `ta.variable(ta.unsafe.import_array(a))` makes a variable of it; `opt.update` then
    writes `a` itself.

    Args:
        array: a writable, aligned, C-contiguous array of numbers or booleans.
            Writable, because whoever owns the value may write it; a read-only array
            must be copied (`ta.asarray`).
        device: a host device; the CPU if None, whatever the default device is.

    Raises:
        DTypeError: not an array of numbers (of at most double precision) or booleans in
            the machine's byte order.
        InvalidArgumentError: the memory does not meet the conditions above.
        DeviceMismatchError: `device` is not the host's.

    Cost: constant; allocates nothing, copies nothing, records nothing.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(
            operation="import_array",
            argument="array",
            found=f"an object of type `{type_name(array)}`",
            fix="pass a NumPy array, or use `ta.unsafe.from_dlpack`",
        )
    return _import(array, device, "import_array", "array")


def from_dlpack(x: Any, /, *, device: Any = None) -> EagerTensor:
    """A constant over another library's memory, without a copy; see `import_array`. Its
    duties are the module's.

    Raises:
        DTypeError, InvalidArgumentError: as `import_array`; libraries whose arrays are
            read-only (JAX) are refused, because the owner of a value may write it.
        DeviceMismatchError: the memory, or `device`, is not the host's.

    Cost: constant; allocates nothing, copies nothing, records nothing.
    """
    return _import(host_array_of(x, "from_dlpack"), device, "from_dlpack", "x")


def _import(
    array: np.ndarray[Any, Any], device: Any, operation: str, argument: str
) -> EagerTensor:
    dtype = array.dtype
    if dtype.kind not in "biufc" or dtype.char in "gG" or not dtype.isnative:
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"data of dtype {dtype}",
            fix="pass numbers of at most double precision, or booleans, in the "
            "machine's byte order",
        )
    for flag, fix in _CONDITIONS.items():
        if not getattr(array.flags, flag):
            raise InvalidArgumentError(
                operation=operation,
                argument=argument,
                found=f"an array that is not {flag.replace('_', '-')}",
                fix=fix,
            )
    place = CPU if device is None else device_of(device, operation)
    if place is not CPU:
        raise DeviceMismatchError(
            operation=operation,
            argument="device",
            found=f"host memory for `{place.name}`",
            fix="leave `device` out and move the value (`x.to(device)`), or copy it "
            "there (`ta.asarray`)",
        )
    root = np.asarray(_Outside(array))
    return EagerTensor(
        ValueRecord(root, host_aval(root, CPU), _NOT_OURS), None, -1, None
    )


_CONDITIONS: Final = {
    "c_contiguous": "copy it (`ta.asarray`), or import its base and slice the tensor",
    "aligned": "copy it (`ta.asarray`)",
    "writeable": "copy it (`ta.asarray`); open a file with `np.memmap(..., mode='c')`",
}


__all__ = ["from_dlpack", "import_array"]
