"""Arguments of submission, checked one by one: each refusal names its argument."""

from __future__ import annotations

import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import Any

from ..errors import InvalidArgumentError, type_name


def shown(value: Any) -> str:
    """Something of the caller's, in few words and without an address."""
    is_plain = isinstance(value, str | int | float | complex | None)
    if is_plain and not (isinstance(value, int) and value.bit_length() > 64):
        text = repr(value)
        if len(text) <= 60:
            return text
    return f"an object of type `{type_name(value)}`"


def seconds_of(operation: str, argument: str, value: Any) -> float | None:
    """A number of seconds; None stays.

    Raises:
        InvalidArgumentError: no number, or not a number (nan).
    """
    if value is None:
        return None
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            found = float(value)
        except OverflowError:
            number: Any = value  # beyond all floats
            found = math.inf if number > 0 else -math.inf
        if not math.isnan(found):
            return found
    raise InvalidArgumentError(
        operation=operation,
        argument=argument,
        found=shown(value),
        fix="give a number of seconds, or None to wait for ever",
    )


def deadline_of(operation: str, argument: str, value: Any) -> float:
    """A number of seconds above 0.

    Raises:
        InvalidArgumentError: anything else.
    """
    try:
        found = seconds_of(operation, argument, value)
    except InvalidArgumentError:
        found = None
    if found is None or found <= 0:
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=shown(value),
            fix="give a number of seconds above 0",
        )
    return found


def index_of(value: Any) -> int | None:
    """A Python int; None where it is no integer (a truth value is none)."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    return None


def items_of(operation: str, argument: str, value: Any, fix: str) -> tuple[Any, ...]:
    """The items of a sequence.

    Raises:
        InvalidArgumentError: no sequence; a text or an array is none.
    """
    whole = isinstance(value, str | bytes) or hasattr(value, "__dlpack__")
    if isinstance(value, Iterable) and not whole:
        try:
            return tuple(value)
        except TypeError:  # it only says that it can be iterated over
            pass
    raise InvalidArgumentError(
        operation=operation, argument=argument, found=shown(value), fix=fix
    )


__all__ = ["deadline_of", "index_of", "items_of", "seconds_of", "shown"]
