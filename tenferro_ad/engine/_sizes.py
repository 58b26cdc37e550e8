"""Numbers that follow from named sizes, found from their values at a few of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import Any, Final, final

# Sizes to trace at, two for each name, and checks: sizes of all kinds (prime, with many
# divisors, powers of two), in steps. What the first three checks say must hold.
_PROBES: Final = ((5, 11), (6, 19), (7, 31))
_CHECKS: Final = (
    (13, 23, 37),
    (16, 32, 64),
    (48, 60, 84),
    (128, 256, 512),
    (510, 601, 702),
    (2_520, 5_040, 7_560),
    (10_006, 10_030, 10_060),
    (100_003, 131_072, 100_043),
    (1_000_002, 1_000_034, 1_000_066),
)
NEEDED: Final = 3
MOST_NAMES: Final = len(_PROBES)


@final
@dataclass(frozen=True, slots=True)
class Size:
    """A number that follows from named sizes: a sum of products, or one over it.

    Attributes:
        terms: factor of each product of names.
        inverse: the number is one over the sum.
        is_float: the number is a float.
    """

    terms: tuple[tuple[frozenset[str], Fraction], ...]
    inverse: bool = False
    is_float: bool = False

    def at(self, sizes: Mapping[str, int]) -> Any:
        """The number at these sizes."""
        total = Fraction(0)
        for names, factor in self.terms:
            part = factor
            for name in names:
                part *= sizes[name]
            total += part
        if self.inverse:
            return 1.0 / float(total)
        return float(total) if self.is_float else int(total)

    def says(self, value: Any, sizes: Mapping[str, int]) -> bool:
        """Whether that is the number at these sizes."""
        try:
            return bool(self.at(sizes) == value)
        except ZeroDivisionError:
            return False

    def __repr__(self) -> str:
        parts = []
        for names, factor in self.terms:
            body = "*".join(sorted(names))
            if not body:
                parts.append(str(factor))
            else:
                parts.append(body if factor == 1 else f"{factor}*{body}")
        text = " + ".join(parts) or "0"
        return f"1/({text})" if self.inverse else text


def fitted(names: Sequence[str], values: Sequence[Any]) -> Any:
    """The number as a function of the sizes, from its value at each of the first
    `points`, the corners at least; None where there is none."""
    if all(v == values[0] and type(v) is type(values[0]) for v in values):
        return values[0]
    is_float = isinstance(values[0], float)
    known = points(names)
    count = 2 ** len(names)
    for inverse in (False, True) if is_float else (False,):
        try:
            exact = [Fraction(1 / v if inverse else v) for v in values]
        except (ZeroDivisionError, ValueError, OverflowError):
            continue
        if inverse:
            exact = [Fraction(round(x)) for x in exact]
        terms = _terms(list(names), exact[:count], 0)
        found = Size(
            tuple((k, c) for k, c in sorted(terms.items(), key=_order) if c),
            inverse,
            is_float,
        )
        if not is_float and any(c.denominator != 1 for _, c in found.terms):
            return None  # n // 2 is n / 2 for half of the sizes only
        if all(found.says(v, p) for v, p in zip(values, known, strict=False)):
            return found
    return None


def _order(term: tuple[frozenset[str], Fraction]) -> Any:
    return len(term[0]), sorted(term[0])


def _terms(
    names: list[str], values: list[Fraction], at: int
) -> dict[frozenset[str], Fraction]:
    """Interpolation by products: linear in each name."""
    if at == len(names):
        return {frozenset(): values[0]}
    half = len(values) // 2
    low, high = _PROBES[at]
    first = _terms(names, values[:half], at + 1)
    second = _terms(names, values[half:], at + 1)
    found: dict[frozenset[str], Fraction] = {}
    for key in {*first, *second}:
        a, b = first.get(key, Fraction(0)), second.get(key, Fraction(0))
        slope = (b - a) / (high - low)
        found[key | {names[at]}] = slope
        found[key] = a - slope * low
    return found


def points(names: Sequence[str]) -> list[dict[str, int]]:
    """Sizes to trace at: the corners, the first name varying slowest; then checks."""
    found = [*product(*_PROBES[: len(names)]), *_CHECKS]
    return [dict(zip(names, sizes, strict=False)) for sizes in found]


__all__ = ["MOST_NAMES", "NEEDED", "Size", "fitted", "points"]
