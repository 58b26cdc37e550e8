"""Numbers that callers pass to the functions here."""

from __future__ import annotations

from typing import Any

from tenferro_ad.errors import DTypeError, InvalidArgumentError, type_name


def number(
    operation: str,
    argument: str,
    value: Any,
    low: float,
    high: float | None = None,
    *,
    kind: type[int] | type[float] = float,
) -> Any:
    """A number of that kind, from `low` to `high`.

    Raises:
        DTypeError: something else. InvalidArgumentError: out of that range.
    """
    word = "integer" if kind is int else "number"
    kinds = (int,) if kind is int else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds):
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"an object of type `{type_name(value)}`",
            fix=f"pass a Python {word}",
        )
    if not value >= low or (high is not None and value > high):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{value}",
            fix=f"pass a {word} from {low:g}"
            + (" on" if high is None else f" to {high:g}"),
        )
    return value
