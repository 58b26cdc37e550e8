"""The documented kinks: points where a derivative is a convention.

One row each: what the convention is, a function that shows it, the point, our slope,
and what JAX and PyTorch give there. `tests/ops/test_kinks.py` holds us to it in both
modes, `tests/reference/test_jax.py` and `test_torch.py` hold the last columns to their
libraries. Elsewhere all agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, nan
from typing import Any

import numpy as np

SAME = "same"


@dataclass(frozen=True)
class Kink:
    """One convention.

    Attributes:
        rule: the sentence of the documentation.
        function: `function(xp, x)` for this package or `jax.numpy` as `xp`.
        point: where; a list of numbers.
        slope: gradient of the sum of the function's values.
        jax: the gradient by JAX 0.10, or SAME.
        torch: the gradient by PyTorch 2.13, or SAME.
    """

    name: str
    rule: str
    function: Callable[[Any, Any], Any]
    point: list[Any]
    slope: list[Any]
    jax: Any = SAME
    torch: Any = SAME


TIES = "Tied extrema share the slope equally."
CLIP = "Clip has slope 1 on the closed interval; a bound has slope where it is active."
ZERO = "The slope of a magnitude at zero is 0, the least subgradient."
STEPS = "Rounding and sign are locally constant, also at their steps."
WHERE = "A select lets nothing through from the branch that was not taken."
POWERS = "x ** 0 has slope 0 in x, and 0 ** y has slope 0 in y for y >= 0."
NANS = "NaN is the extremum wherever it occurs, and takes the slope."

KINKS = [
    Kink("maximum", TIES, lambda xp, x: xp.maximum(x[0], x[1]), [1, 1], [0.5, 0.5]),
    Kink("minimum", TIES, lambda xp, x: xp.minimum(x[0], x[1]), [1, 1], [0.5, 0.5]),
    Kink("max", TIES, lambda xp, x: xp.max(x), [1, 3, 3, 2], [0, 0.5, 0.5, 0]),
    Kink("min", TIES, lambda xp, x: xp.min(x), [1, 3, 1], [0.5, 0, 0.5]),
    Kink(
        "clip by numbers",
        CLIP,
        lambda xp, x: xp.clip(x, 0, 1),
        [-1, 0, 0.5, 1, 2],
        [0, 1, 1, 1, 0],
        [0, 0.5, 1, 0.5, 0],
    ),
    Kink(
        "clip by tensors",
        CLIP,
        lambda xp, x: xp.clip(x, x * 0, x * 0 + 1),
        [-1, 0, 0.5, 1, 2],
        [0, 1, 1, 1, 0],
        [0, 0.5, 1, 0.5, 0],
    ),
    Kink(
        "bounds of clip",
        CLIP,
        lambda xp, x: xp.clip(x[0], x[1], x[2]) + xp.clip(x[3], x[1], x[2]),
        [0, 0, 1, 2],
        [1, 0, 1, 0],
        [0.5, 0.5, 1, 0],
    ),
    Kink("abs", ZERO, lambda xp, x: xp.abs(x), [0, -2], [0, -1], [1, -1]),
    Kink(
        "abs of complex", ZERO, lambda xp, x: xp.abs(x), [0j, 3 - 4j], [0, 0.6 - 0.8j]
    ),
    Kink(
        "hypot", ZERO, lambda xp, x: xp.hypot(x[0], x[1]), [0, 0], [0, 0], [0.5, 0.5],
        [nan, nan],
    ),
    Kink("std", ZERO, lambda xp, x: xp.std(x), [2, 2], [0, 0], [nan, nan]),
    Kink("sign", STEPS, lambda xp, x: xp.sign(x), [0, 2], [0, 0]),
    Kink(
        "sign of complex",
        STEPS,
        lambda xp, x: xp.real(xp.sign(x)),
        [0j, 2j],
        [0, 0.5],
        [0, 0],
    ),
    Kink("floor", STEPS, lambda xp, x: xp.floor(x), [0, 1.5], [0, 0]),
    Kink("round", STEPS, lambda xp, x: xp.round(x), [0.5, 1], [0, 0]),
    Kink(
        "power of zero by zero",
        POWERS,
        lambda xp, x: xp.pow(x[0], x[1]),
        [0, 0],
        [0, 0],
        [nan, 0],
    ),
    Kink(
        "power of zero",
        POWERS,
        lambda xp, x: xp.pow(x[0], x[1]),
        [0, 2],
        [0, 0],
    ),
    Kink("sqrt", "The slope of a root at 0 is inf.",
         lambda xp, x: xp.sqrt(x), [0, 4], [inf, 0.25]),
    Kink("max of nan", NANS, lambda xp, x: xp.max(x), [1, nan, 2], [0, 1, 0],
         [nan, nan, nan], [nan, nan, nan]),
    Kink(
        "where with a root",
        WHERE,
        lambda xp, x: xp.where(x > 0, xp.sqrt(x), x),
        [-1, -4],
        [1, 1],
        [nan, nan],
        [nan, nan],
    ),
    Kink(
        "where with an overflow",
        WHERE,
        lambda xp, x: xp.where(x <= 0, xp.exp(x), 1 + x),
        [1000],
        [1],
        [nan],
        [nan],
    ),
    Kink(
        "where with a division",
        WHERE,
        lambda xp, x: xp.where(x == 0, x, 1 / x),
        [0, 2],
        [1, -0.25],
        [nan, -0.25],
        [nan, -0.25],
    ),
    Kink(
        "prod with a zero",
        "The slope of a product is the product of the other factors.",
        lambda xp, x: xp.prod(x),
        [0, 2, 3],
        [6, 0, 0],
    ),
    Kink(
        "prod with two zeros",
        "The slope of a product is the product of the other factors.",
        lambda xp, x: xp.prod(x),
        [0, 0, 3],
        [0, 0, 0],
    ),
]  # fmt: skip


def point_of(kink: Kink) -> Any:
    complex_ = any(isinstance(p, complex) for p in kink.point)
    return np.asarray(kink.point, np.complex128 if complex_ else np.float64)


def slope_of(kink: Kink) -> Any:
    return np.asarray(kink.slope, point_of(kink).dtype)
