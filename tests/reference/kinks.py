"""The documented kinks: points where a derivative is a convention.

Rows of the operation table declare their convention (`kink`); here is a function that
shows it, the point, our slope, and what JAX and PyTorch give there.
`tests/ops/test_kinks.py` holds us to it in both modes, `tests/reference/test_jax.py`
and `test_torch.py` hold the last columns to their libraries. Elsewhere all agree.
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
        row: the row of the operation table whose convention it is.
        function: `function(xp, x)` for this package or `jax.numpy` as `xp`.
        point: where; a list of numbers.
        slope: gradient of the sum of the function's values.
        jax: the gradient by JAX 0.10, or SAME.
        torch: the gradient by PyTorch 2.13, or SAME.
    """

    name: str
    row: str
    function: Callable[[Any, Any], Any]
    point: list[Any]
    slope: list[Any]
    jax: Any = SAME
    torch: Any = SAME


KINKS = [
    Kink(
        "maximum", "maximum", lambda xp, x: xp.maximum(x[0], x[1]), [1, 1], [0.5, 0.5]
    ),
    Kink(
        "minimum", "minimum", lambda xp, x: xp.minimum(x[0], x[1]), [1, 1], [0.5, 0.5]
    ),
    Kink("max", "max", lambda xp, x: xp.max(x), [1, 3, 3, 2], [0, 0.5, 0.5, 0]),
    Kink("min", "min", lambda xp, x: xp.min(x), [1, 3, 1], [0.5, 0, 0.5]),
    Kink(
        "clip by numbers",
        "clip",
        lambda xp, x: xp.clip(x, 0, 1),
        [-1, 0, 0.5, 1, 2],
        [0, 1, 1, 1, 0],
        [0, 0.5, 1, 0.5, 0],
    ),
    Kink(
        "clip by tensors",
        "clip",
        lambda xp, x: xp.clip(x, x * 0, x * 0 + 1),
        [-1, 0, 0.5, 1, 2],
        [0, 1, 1, 1, 0],
        [0, 0.5, 1, 0.5, 0],
    ),
    Kink(
        "bounds of clip",
        "clip",
        lambda xp, x: xp.clip(x[0], x[1], x[2]) + xp.clip(x[3], x[1], x[2]),
        [0, 0, 1, 2],
        [1, 0, 1, 0],
        [0.5, 0.5, 1, 0],
    ),
    Kink("abs", "abs", lambda xp, x: xp.abs(x), [0, -2], [0, -1], [1, -1]),
    Kink(
        "abs of complex", "abs", lambda xp, x: xp.abs(x), [0j, 3 - 4j], [0, 0.6 - 0.8j]
    ),
    Kink(
        "hypot",
        "hypot",
        lambda xp, x: xp.hypot(x[0], x[1]),
        [0, 0],
        [0, 0],
        [0.5, 0.5],
        [nan, nan],
    ),
    Kink("std", "std", lambda xp, x: xp.std(x), [2, 2], [0, 0], [nan, nan]),
    Kink("sign", "sign", lambda xp, x: xp.sign(x), [0, 2], [0, 0]),
    Kink(
        "sign of complex",
        "sign",
        lambda xp, x: xp.real(xp.sign(x)),
        [0j, 2j],
        [0, 0.5],
        [0, 0],
    ),
    Kink("floor", "floor", lambda xp, x: xp.floor(x), [0, 1.5], [0, 0]),
    Kink("ceil", "ceil", lambda xp, x: xp.ceil(x), [0, 1.5], [0, 0]),
    Kink("trunc", "trunc", lambda xp, x: xp.trunc(x), [1, 1.5], [0, 0]),
    Kink(
        "norm",
        "vector_norm",
        lambda xp, x: xp.linalg.vector_norm(x),
        [0, 0],
        [0, 0],
        [nan, nan],
    ),
    Kink(
        "copysign",
        "copysign",
        lambda xp, x: xp.copysign(x[0], x[1]),
        [2, -0.0],
        [-1, 0],
    ),
    Kink(
        "sort",
        "sort",
        lambda xp, x: xp.sort(x) * xp.arange(1.0, 4.0),
        [1, 1, 0],
        [2, 3, 1],
    ),
    Kink(
        "running product",
        "cumulative_prod",
        lambda xp, x: xp.cumulative_prod(x),
        [0, 2, 0],
        [3, 0, 0],
    ),
    Kink("round", "round", lambda xp, x: xp.round(x), [0.5, 1], [0, 0]),
    Kink(
        "power of zero by zero",
        "pow",
        lambda xp, x: xp.pow(x[0], x[1]),
        [0, 0],
        [0, 0],
        [nan, 0],
    ),
    Kink(
        "power of zero",
        "pow",
        lambda xp, x: xp.pow(x[0], x[1]),
        [0, 2],
        [0, 0],
    ),
    Kink("sqrt", "sqrt", lambda xp, x: xp.sqrt(x), [0, 4], [inf, 0.25]),
    Kink(
        "max of nan",
        "max",
        lambda xp, x: xp.max(x),
        [1, nan, 2],
        [0, 1, 0],
        [nan, nan, nan],
        [nan, nan, nan],
    ),
    Kink(
        "where with a root",
        "select",
        lambda xp, x: xp.where(x > 0, xp.sqrt(x), x),
        [-1, -4],
        [1, 1],
        [nan, nan],
        [nan, nan],
    ),
    Kink(
        "where with an overflow",
        "select",
        lambda xp, x: xp.where(x <= 0, xp.exp(x), 1 + x),
        [1000],
        [1],
        [nan],
        [nan],
    ),
    Kink(
        "where with a division",
        "select",
        lambda xp, x: xp.where(x == 0, x, 1 / x),
        [0, 2],
        [1, -0.25],
        [nan, -0.25],
        [nan, -0.25],
    ),
    Kink(
        "prod with a zero",
        "prod",
        lambda xp, x: xp.prod(x),
        [0, 2, 3],
        [6, 0, 0],
    ),
    Kink(
        "prod with two zeros",
        "prod",
        lambda xp, x: xp.prod(x),
        [0, 0, 3],
        [0, 0, 0],
    ),
]


SHOWN: dict[str, str] = {
    "det": "test_derivative_pitfalls.py::"
    "test_34_the_determinant_is_a_polynomial_to_fourth_order",
    "eigh": "ops/test_linalg.py::test_eigh_at_equal_and_nearly_equal_values",
    "extreme_along_axis": "ops/test_kinks.py::test_places_share_ties",
    "floor_divide": "ops/test_kinks.py::test_a_floored_quotient_is_locally_constant",
    "lu_factor": "ops/test_linalg.py::test_value_gradient_and_curvature_agree_with_jax",
    "max_pool": "ops/test_kinks.py::test_windows_share_ties",
    "multiply_along_axis": "ops/test_kinks.py::test_places_multiply_their_others",
    "nextafter": "ops/test_kinks.py::test_the_next_number_follows_its_neighbour",
    "pinv": "ops/test_linalg.py::test_pinv_of_a_rank_deficient_matrix",
    "relu": "ops/test_kinks.py::test_a_hinge_has_slope_zero",
    "svd": "ops/test_linalg.py::test_svd_at_equal_and_nearly_equal_values",
}
"""Further rows with a convention, and the test below `tests/` that shows it."""


def point_of(kink: Kink) -> Any:
    complex_ = any(isinstance(p, complex) for p in kink.point)
    return np.asarray(kink.point, np.complex128 if complex_ else np.float64)


def slope_of(kink: Kink) -> Any:
    return np.asarray(kink.slope, point_of(kink).dtype)
