"""Dtypes and numbers as users write them, brought to the form that rows take."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DTypeError, InvalidArgumentError, type_name


def dtype_of(operation: str, dtype: Any, argument: str = "dtype") -> np.dtype[Any]:
    """A numeric or boolean dtype.

    Raises:
        DTypeError: another one, or no dtype at all.
    """
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        found = np.dtype(object)
    if found.kind not in "biufc" or found.char in "gG":
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"`{dtype}`"
            if isinstance(dtype, str | type | np.dtype)
            else f"an object of type `{type_name(dtype)}`",
            fix="pass a numeric or boolean dtype such as `ta.float32`",
        )
    made: np.dtype[Any] = found
    return made


def need_parts(operation: str, dtype: np.dtype[Any], wanted: np.dtype[Any]) -> None:
    """Refuse a conversion that would drop imaginary parts.

    Raises:
        DTypeError: complex numbers to real ones.
    """
    if dtype.kind == "c" and wanted.kind not in "cb":
        raise DTypeError(
            operation=operation,
            argument="dtype",
            found=f"{wanted} for {dtype} values, whose imaginary parts would be lost",
            fix="take `ta.real(x)`, `ta.imag(x)` or `ta.abs(x)`",
        )


def real_of(
    operation: str,
    argument: str,
    value: Any,
    low: float | None = None,
    high: float | None = None,
) -> float:
    """A Python float from `low` to `high`.

    Raises:
        DTypeError: not a real number.
        InvalidArgumentError: NaN, or out of that range.
    """
    try:
        if isinstance(value, str | bytes):
            raise TypeError
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"an object of type `{type_name(value)}`",
            fix="pass a real number that a float can hold",
        ) from None
    below, above = low is not None and found < low, high is not None and found > high
    if below or above or found != found:
        limits = {"from": low, "to": high}
        bounds = [f"{word} {n:g}" for word, n in limits.items() if n is not None]
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{found}",
            fix=" ".join(["pass a number", *bounds]),
        )
    return found
