"""Interpolation against dense matrices, built element by element."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.errors import InvalidArgumentError

RNG = np.random.default_rng(9)
X = RNG.standard_normal((2, 3, 5, 4))


def kernel(d: float) -> float:
    """Keys' cubic convolution with the parameter -3/4."""
    a, d = -0.75, abs(d)
    if d <= 1:
        return (a + 2) * d**3 - (a + 3) * d**2 + 1
    return a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a if d < 2 else 0.0


def triangle(d: float) -> float:
    return max(0.0, 1.0 - abs(d))


def matrix(
    n: int, k: int, step: float, corners: bool, weight: Callable[[float], float]
) -> Any:
    """What each of k results takes from each of n elements; edges repeat."""
    found = np.zeros((k, n))
    for i in range(k):
        at = i * (n - 1) / max(1, k - 1) if corners else (i + 0.5) * step - 0.5
        for j in range(math.floor(at) - 3, math.floor(at) + 5):
            found[i, min(max(j, 0), n - 1)] += weight(at - j)
    return found


def picked(n: int, k: int, place: Callable[[int], float]) -> Any:
    found = np.zeros((k, n))
    for i in range(k):
        found[i, min(math.floor(place(i)), n - 1)] = 1
    return found


def averaged(n: int, k: int) -> Any:
    found = np.zeros((k, n))
    for i in range(k):
        first, last = i * n // k, -(-(i + 1) * n // k)
        found[i, first:last] = 1 / (last - first)
    return found


def reference(mode: str, n: int, k: int, step: float, corners: bool) -> Any:
    match mode:
        case "nearest":
            return picked(n, k, lambda i: i * step)
        case "nearest-exact":
            return picked(n, k, lambda i: (i + 0.5) * step)
        case "area":
            return averaged(n, k)
    weight = kernel if "cubic" in mode else triangle
    return matrix(n, k, step, corners, weight)


CASES = [
    ("nearest", False),
    ("nearest-exact", False),
    ("linear", False),
    ("bilinear", True),
    ("cubic", False),
    ("bicubic", True),
    ("area", False),
]


@pytest.mark.parametrize(("mode", "corners"), CASES)
@pytest.mark.parametrize(
    "how",
    [
        {"size": (8, 3)},
        {"size": (1, 9)},
        {"size": (5, 4)},
        {"scale_factor": 1.75},
        {"scale_factor": (0.5, 2.0)},
    ],
    ids=str,
)
def test_interpolation_is_a_matrix_along_each_axis(
    mode: str, corners: bool, how: dict[str, Any]
) -> None:
    def f(x: Any) -> Any:
        return nn.interpolate(x, mode=mode, align_corners=corners, **how)

    if "size" in how:
        sizes, steps = (
            how["size"],
            [n / k for n, k in zip((5, 4), how["size"], strict=True)],
        )
    else:
        factors = np.broadcast_to(how["scale_factor"], 2)
        sizes = [math.floor(n * s) for n, s in zip((5, 4), factors, strict=True)]
        steps = [1 / s for s in factors]
    rows, columns = (
        reference(mode, n, k, step, corners)
        for n, k, step in zip((5, 4), sizes, steps, strict=True)
    )
    wanted = np.einsum("ia,bcaj,kj->bcik", rows, X, columns)
    seen = np.asarray(f(X))
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, 1e-12, 1e-12)
    # A linear map is its own derivative.
    ct = RNG.standard_normal(wanted.shape)
    back = np.einsum("ia,bcik,kj->bcaj", rows, ct, columns)
    g = ta.grad(lambda x: ta.sum(f(x) * ct))(X)
    np.testing.assert_allclose(np.asarray(g), back, 1e-12, 1e-12)


def test_other_dtypes_and_numbers_of_axes() -> None:
    line = RNG.standard_normal((1, 2, 6))
    rows = matrix(6, 9, 6 / 9, False, kernel)
    np.testing.assert_allclose(
        np.asarray(nn.interpolate(line, 9, mode="cubic")), line @ rows.T, 1e-12
    )
    half = nn.interpolate(line.astype("f4"), 9, mode="linear")
    assert half.dtype == np.float32
    for kind in ("f2", "c8", "c16"):
        assert nn.interpolate(line.astype(kind), 9, mode="cubic").dtype == np.dtype(
            kind
        )
    assert nn.interpolate(line.astype("i2"), 9, mode="linear").dtype == np.float64
    complex_ = nn.interpolate(line + 1j * line, 9, mode="cubic")
    np.testing.assert_allclose(np.asarray(complex_), (1 + 1j) * (line @ rows.T), 1e-12)
    cube = RNG.standard_normal((1, 1, 2, 3, 2))
    assert nn.interpolate(cube, (4, 3, 5), mode="trilinear").shape == (1, 1, 4, 3, 5)
    ta.testing.check_grads(
        lambda x: ta.sin(nn.interpolate(x, (4, 3, 5), mode="linear")), (cube,), order=2
    )


def test_refusals() -> None:
    for argument, how in (
        ("mode", {"size": 3, "mode": "lanczos"}),
        ("size", {}),
        ("size", {"size": 3, "scale_factor": 2.0}),
        ("size", {"size": (3, 3, 3)}),
        ("size", {"size": 0}),
        ("size", {"scale_factor": 0.01}),
        ("scale_factor", {"scale_factor": -1.0}),
        ("scale_factor", {"scale_factor": (2.0,)}),
        ("align_corners", {"size": 3, "align_corners": True}),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            nn.interpolate(X, **how)  # type: ignore[arg-type]
        assert caught.value.operation == "interpolate"
        assert caught.value.argument == argument


def test_nothing_is_copied() -> None:
    x = ta.asarray(X)
    with ta.ledger() as led:
        for mode, corners in CASES:
            nn.interpolate(x, (7, 6), mode=mode, align_corners=corners)
    assert led.copies == {}
