"""Facts about dtypes, with the array API's names. None of them touches a value."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import InvalidArgumentError
from ._eager import EagerTensor
from ._numbers import dtype_of

__all__ = ["can_cast", "finfo", "iinfo", "isdtype", "result_type"]

_KINDS: Final = {
    "bool": "b",
    "signed integer": "i",
    "unsigned integer": "u",
    "integral": "iu",
    "real floating": "f",
    "complex floating": "c",
    "numeric": "iufc",
}


def _dtype(x: Any) -> Any:
    return x.dtype if isinstance(x, EagerTensor | np.ndarray | np.generic) else x


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion allows a cast without losing kind or precision.

    Args:
        from_: a dtype or a tensor.
        to: a dtype.

    Raises:
        DTypeError: not a dtype.

    Cost: none beyond a table lookup.
    """
    target = dtype_of("can_cast", _dtype(to), "to")
    origin = dtype_of("can_cast", _dtype(from_), "from_")
    return bool(np.can_cast(origin, target, casting="safe"))


def finfo(type: Any, /) -> Any:
    """Machine limits of a floating or complex dtype (or of a tensor's dtype).

    Raises:
        DTypeError: not a dtype. InvalidArgumentError: not a floating one.

    Cost: none beyond a table lookup.
    """
    found = dtype_of("finfo", _dtype(type), "type")
    if found.kind not in "fc":
        raise _other("finfo", found, "floating or complex", "iinfo")
    return np.finfo(found)


def iinfo(type: Any, /) -> Any:
    """Machine limits of an integer dtype (or of a tensor's dtype).

    Raises:
        DTypeError: not a dtype. InvalidArgumentError: not an integer one.

    Cost: none beyond a table lookup.
    """
    found = dtype_of("iinfo", _dtype(type), "type")
    if found.kind not in "iu":
        raise _other("iinfo", found, "integer", "finfo")
    return np.iinfo(found)


def _other(operation: str, found: Any, kind: str, instead: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        operation=operation,
        argument="type",
        found=f"dtype {found}",
        fix=f"pass a {kind} dtype, or use `{instead}`",
    )


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether `dtype` is, or belongs to, `kind`.

    Args:
        dtype: a dtype.
        kind: a dtype, one of "bool", "signed integer", "unsigned integer", "integral",
            "real floating", "complex floating", "numeric", or a tuple of those.

    Raises:
        InvalidArgumentError: an unknown kind.

    Cost: none beyond a table lookup.
    """
    if isinstance(kind, tuple):
        return any(isdtype(dtype, k) for k in kind)
    if isinstance(kind, str):
        if kind not in _KINDS:
            raise InvalidArgumentError(
                operation="isdtype",
                argument="kind",
                found=f"`{kind}`",
                fix=f"use one of {', '.join(_KINDS)}, or a dtype",
            )
        return dtype_of("isdtype", dtype).kind in _KINDS[kind]
    return dtype_of("isdtype", dtype) == dtype_of("isdtype", kind, "kind")


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype that an operation on these would have; Python numbers are weak.

    Args:
        arrays_and_dtypes: tensors, dtypes and Python numbers.

    Raises:
        InvalidArgumentError: no operand at all.
        DTypeError: not a dtype.

    Cost: none beyond a table lookup.
    """
    if not arrays_and_dtypes:
        raise InvalidArgumentError(
            operation="result_type",
            argument="arrays_and_dtypes",
            found="nothing",
            fix="pass at least one tensor or dtype",
        )
    found = [_dtype(x) for x in arrays_and_dtypes]
    numbers = (bool, int, float, complex)
    return np.result_type(
        *[x if isinstance(x, numbers) else dtype_of("result_type", x) for x in found]
    )
