"""Coefficients of approximations, computed or tabulated, as text for the library."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np


def horner(coefficients: Sequence[float], x: str = "x") -> str:
    """A polynomial, constant term first."""
    text = f"F({coefficients[-1]!r})"
    for c in reversed(coefficients[:-1]):
        text = f"({text} * {x} + F({c!r}))"
    return text


def horner_pairs(coefficients: Sequence[float]) -> str:
    """Statements that leave a polynomial of the complex `q` in `found`."""
    lines = [f"  var found: C = cx$(F({coefficients[-1]!r}), F(0));"]
    for c in reversed(coefficients[:-1]):
        lines.append("  found = cmul$(found, q);")
        lines.append(f"  found = cx$(found.x + F({c!r}), found.y);")
    return "\n".join(lines)


# ---- w(z) = exp(-z^2) erfc(-i z) as a series of rational functions -------------------
# Source: J. Weideman, "Computation of the complex error function" (1994).

_TERMS: Final = 40
FADDEEVA_L: Final = math.sqrt(_TERMS / math.sqrt(2))


def _faddeeva() -> tuple[float, ...]:
    m = 2 * _TERMS
    theta = np.arange(-m + 1, m) * math.pi / m
    t: Any = FADDEEVA_L * np.tan(theta / 2)
    f = np.exp(-t * t) * (FADDEEVA_L**2 + t * t)
    a = np.fft.fft(np.fft.fftshift(np.concatenate([[0.0], f]))).real / (2 * m)
    return tuple(float(c) for c in a[1 : _TERMS + 1])


FADDEEVA_TERMS: Final = _faddeeva()
