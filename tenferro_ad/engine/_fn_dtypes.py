"""Facts about dtypes, with the array API's names. None of them touches a value."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import InvalidArgumentError
from ._eager import EagerTensor

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
    return x.dtype if isinstance(x, EagerTensor) else x


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion allows a cast without losing kind or precision.

    Args:
        from_: a dtype or a tensor.
        to: a dtype.

    Raises:
        TypeError: not a dtype.

    Cost: none beyond a table lookup.
    """
    return bool(np.can_cast(_dtype(from_), to, casting="safe"))


def finfo(type: Any, /) -> Any:
    """Machine limits of a floating or complex dtype (or of a tensor's dtype).

    Raises:
        ValueError: not a floating dtype.

    Cost: none beyond a table lookup.
    """
    return np.finfo(_dtype(type))


def iinfo(type: Any, /) -> Any:
    """Machine limits of an integer dtype (or of a tensor's dtype).

    Raises:
        ValueError: not an integer dtype.

    Cost: none beyond a table lookup.
    """
    return np.iinfo(_dtype(type))


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
        return np.dtype(dtype).kind in _KINDS[kind]
    return bool(np.dtype(dtype) == np.dtype(kind))


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """The dtype that an operation on these would have; Python numbers are weak.

    Args:
        arrays_and_dtypes: tensors, dtypes and Python numbers.

    Raises:
        ValueError: no operand at all.
        TypeError: not a dtype.

    Cost: none beyond a table lookup.
    """
    return np.result_type(*[_dtype(x) for x in arrays_and_dtypes])
