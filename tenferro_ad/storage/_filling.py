"""Writing whole values: every element set, or copied from another view.

What NumPy would refuse with an error of its own is refused here by name.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._ownership import MoveOnly
from ..errors import DTypeError, ShapeError, type_name
from ._provider import HostArray


def set_all(array: HostArray, value: Any) -> None:
    """Set every element of a writable array."""
    try:
        with np.errstate(all="ignore"):
            array[...] = value
    except (TypeError, ValueError) as error:
        raise DTypeError(
            operation="fill",
            argument="value",
            found=f"an object of type `{type_name(value)}`",
            fix=f"pass a number that {array.dtype} can hold",
        ) from error


def copy_all(target: Any, source: Any) -> None:
    """Copy the elements of one view into another, which is exclusive.

    Within one device that takes views nothing comes to the host.
    """
    from ._door import overwrite

    if not issubclass(type(source), MoveOnly):
        raise DTypeError(
            operation="copy_from",
            argument="source",
            found=f"an object of type `{type_name(source)}`",
            fix="pass a view of a value; outside data comes in with `ta.asarray`",
        )
    context = target._live("copy_from")._mut_claim._root.value._context
    if source.shape != target.shape:
        raise ShapeError(
            operation="copy_from",
            argument="source",
            found=f"shape {source.shape} for {target.shape}",
            fix="select or broadcast the source to the target's shape first",
        )
    if context.takes_views and source.device is context.provider:
        target._injective("copy_from")
        overwrite(target, source, "copy_from", context.provider)
        return
    try:
        overwrite(target.write(), source.numpy(), "copy_from")
    except TypeError as error:
        raise DTypeError(
            operation="copy_from",
            argument="source",
            found=f"elements of dtype {source.dtype}",
            fix=f"convert them to {target.dtype} first",
        ) from error
