"""What callers pass to the functions here: numbers, and data beside tensors."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import tenferro_ad as ta
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
    is_number = isinstance(value, Integral if kind is int else Real)
    if isinstance(value, bool) or not is_number:
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"an object of type `{type_name(value)}`",
            fix=f"pass a {word}",
        )
    try:
        value = kind(value)
    except OverflowError:
        value = math.inf if value > 0 else -math.inf
    if not value >= low or (high is not None and value > high):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{value}",
            fix=f"pass a {word} from {low:g}"
            + (" on" if high is None else f" to {high:g}"),
        )
    return value


def together(*xs: Any) -> list[ta.EagerTensor]:
    """Operands as tensors: outside data goes to the device of the first tensor."""
    device = next((x.device for x in xs if isinstance(x, ta.EagerTensor)), None)
    return [
        x if isinstance(x, ta.EagerTensor) else ta.asarray(x, device=device) for x in xs
    ]
