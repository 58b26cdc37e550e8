"""DLPack in and out: copies that the ledger shows, and one zero-copy export by name.

`from_dlpack` copies in (one `Transfer`), `x.__dlpack__()` copies out (one
`ExplicitDuplicate`, whose destination lives until the consumer drops it).
`x.__dlpack__(copy=False)` hands out the value's own bytes: read-only, and holding a
shared borrow until the consumer's deleter has run. A consumer that ignores the
read-only flag (PyTorch does) breaks a promise that Python cannot enforce. Zero-copy
import is in `ta.unsafe`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import DeviceMismatchError, DTypeError, InvalidArgumentError, type_name
from ..runtime import brought, host_aval
from ..storage import duplicate
from ._eager import EagerTensor, constant
from ._make import asarray

HOST: Final = (1, 0)
"""DLPack's name of host memory: `kDLCPU`, device 0."""


def from_dlpack(
    x: Any, /, *, device: Any = None, copy: bool | None = None
) -> EagerTensor:
    """A constant from another library's array.

    Args:
        x: an object with `__dlpack__` in host memory. One of our own tensors is taken
            as it is, since its value never changes.
        device: where the result lives. If None, the default device, and of our own
            tensors the one where they are.
        copy: True and None copy. False is refused for outside memory, which somebody
            else may write.

    Raises:
        DTypeError: no DLPack object, or a dtype without a counterpart here.
        DeviceMismatchError: the memory is not host memory.
        InvalidArgumentError: `copy=False` where a copy is needed, an array that cannot
            be exported, or no such device.

    Cost: allocates and copies once (`Transfer`); our own tensors are free unless
        `copy=True` (`ExplicitDuplicate`) or the device is another one (`Transfer`).
    """
    if isinstance(x, EagerTensor):
        found = asarray(x, device=device, copy=copy)
        return x.clone() if found is x else found
    array = host_array_of(x, "from_dlpack")
    if copy is False:
        raise InvalidArgumentError(
            operation="from_dlpack",
            argument="copy",
            found="`copy=False` for memory that somebody else may write",
            fix="pass `copy=None`, or use `ta.unsafe.from_dlpack` and keep its duties",
        )
    record = brought(array, host_aval(array, device), "from_dlpack")
    return constant(record)


def host_array_of(x: Any, operation: str) -> np.ndarray[Any, Any]:
    """NumPy's view of a DLPack object in host memory, without a copy."""
    if not hasattr(x, "__dlpack__") or not hasattr(x, "__dlpack_device__"):
        raise DTypeError(
            operation=operation,
            argument="x",
            found=f"an object of type `{type_name(x)}` without `__dlpack__`",
            fix="pass an array of a library that speaks DLPack",
        )
    kind, index = x.__dlpack_device__()
    if int(kind) != HOST[0]:
        raise DeviceMismatchError(
            operation=operation,
            argument="x",
            found=f"memory of DLPack device ({int(kind)}, {index})",
            fix="move it to the host with its own library first",
        )
    try:
        array = np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError) as error:
        raise InvalidArgumentError(
            operation=operation,
            argument="x",
            found=f"an array that cannot be read through DLPack ({error})",
            fix="convert its dtype or layout with its own library first",
        ) from None
    if array.dtype.kind not in "biufc":
        raise DTypeError(
            operation=operation,
            argument="x",
            found=f"data of dtype {array.dtype}",
            fix="pass numbers or booleans",
        )
    return array


def to_dlpack(
    self: EagerTensor,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """A DLPack capsule of the value; becomes `EagerTensor.__dlpack__`.

    Args:
        stream: None; host memory has no streams.
        max_version: newest DLPack version that the consumer reads.
        dl_device: None or host memory.
        copy: True and None hand out a writable copy of the consumer's own. False hands
            out the value itself, read-only, under a shared borrow.

    The work that makes the value is waited for first, so the bytes are there. With
    `copy=False` the capsule shows a pointer into memory that others read, and its
    consumer has three duties: keep the binding alive (the capsule, or the array made of
    it) for as long as the pointer is used, since the borrow ends with its deleter; obey
    synchronisation, that is, write nothing; and never use the pointer after the deleter
    ran (after retirement), for the memory may then be another value's.

    Raises:
        TracedConversionError: the value is tracked.
        BufferError: another device, or `copy=False` for a consumer that cannot be told
            that the bytes are read-only (DLPack before 1.0).

    Cost: one `ExplicitDuplicate`; with `copy=False` no allocation and no copy.
    """
    record = self._untracked("__dlpack__")
    if stream is not None or (dl_device is not None and tuple(dl_device) != HOST):
        raise BufferError(
            f"`__dlpack__` was asked for stream {stream} on device {dl_device}, and "
            "the value is in host memory. Ask for no stream and no other device."
        )
    if copy is False:
        if max_version is None or max_version < (1, 0):
            raise BufferError(
                "`__dlpack__(copy=False)` exports read-only bytes, which DLPack before "
                "1.0 cannot say. Pass `max_version=(1, 0)` or let it copy."
            )
        return self.value().numpy().__dlpack__(max_version=max_version)
    tensor = duplicate(record.array, record.aval, "__dlpack__").into_tensor()
    # The array holds the copy's exclusive borrow, and so its root, until the capsule's
    # deleter runs.
    with tensor.as_view_mut() as view:
        array = view.write()
    return array.__dlpack__(max_version=max_version)


def dlpack_device(self: EagerTensor) -> tuple[int, int]:
    """Where the bytes are; becomes `EagerTensor.__dlpack_device__`."""
    self._live("__dlpack_device__")
    return HOST


__all__ = ["dlpack_device", "from_dlpack", "to_dlpack"]
