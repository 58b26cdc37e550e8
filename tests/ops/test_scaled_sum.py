"""Sums with a scaled term over large arrays: one pass by a BLAS routine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends._scaled_sum import scaled_sum
from tenferro_ad.ops import call, var

N = 100_003  # more than the blocks in which other expressions are walked

FORMS: dict[str, Any] = {
    "p - c*g": lambda E, p, g, c: p - c * g,
    "p - g*c": lambda E, p, g, c: p - g * c,
    "p + c*g": lambda E, p, g, c: p + c * g,
    "c*g + p": lambda E, p, g, c: c * g + p,
}


def given(dtype: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    p, g = rng.normal(size=(2, N))
    if np.dtype(dtype).kind == "c":
        p, g = p + 1j * g, g - 2j * p
    return p.astype(dtype), g.astype(dtype), np.asarray(0.37, dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_large_sums_are_those_of_numpy_to_rounding(form: str, dtype: str) -> None:
    p, g, c = given(dtype)
    found = ta.fused(FORMS[form])(*map(ta.asarray, (p, g, c)))
    wanted = FORMS[form](None, p, g, c)
    size = np.abs(p) + np.abs(c * g)
    error = np.abs(found.numpy() - wanted)
    assert found.dtype == wanted.dtype
    assert np.all(error <= 2 * np.finfo(dtype).eps * size)


def test_in_place_steps_are_the_same_bits_as_fresh_ones() -> None:
    p, g, c = given("float64")
    step = ta.fused(FORMS["p - c*g"])
    fresh = step(*map(ta.asarray, (p, g, c))).numpy().copy()
    compiled = ta.compile(step, donate_argnums=0)
    x = ta.asarray(p.copy())
    np.testing.assert_array_equal(compiled(x, g, c).numpy(), fresh)
    y = ta.asarray(p.copy())
    with ta.exclusive(y) as (view,):
        ta.update(view, step, ta.asarray(g), ta.asarray(c))
    np.testing.assert_array_equal(y.numpy(), fresh)


@pytest.mark.parametrize("bad", [np.inf, np.nan])
def test_a_factor_of_zero_meets_what_is_not_finite(bad: float) -> None:
    p, g, _ = given("float64")
    g[5] = bad
    found = ta.fused(FORMS["p - c*g"])(*map(ta.asarray, (p, g, np.zeros(()))))
    assert np.flatnonzero(np.isnan(found.numpy())).tolist() == [5]


def test_what_the_routine_cannot_do_is_declined_before_anything_is_written() -> None:
    x, c, y = map(var, "xcy")
    run = scaled_sum(call("sub", x, call("mul", c, y)), "xcy", [np.dtype("f8")] * 3)
    assert run is not None
    p, g, factor = given("float64")
    out = np.full(N, 7.0)
    assert run(p, factor, g, out)
    assert not np.all(out == 7)
    for operands in ((p, g, g), (p, np.zeros(()), g), (factor, factor, g)):
        out[:] = 7
        assert not run(*operands, out)
        assert np.all(out == 7)
    assert not run(p, factor, g, g)  # it would read what it has written


@pytest.mark.parametrize(
    ("form", "dtypes"),
    [
        (lambda x, c, y: call("sub", x, call("mul", c, y)), ["f8", "f4", "f8"]),
        (lambda x, c, y: call("sub", x, call("mul", c, y)), ["i8"] * 3),
        (lambda x, c, y: call("sub", call("mul", c, y), x), ["f8"] * 3),
        (lambda x, c, y: call("mul", x, call("mul", c, y)), ["f8"] * 3),
        (lambda x, c, y: call("add", x, call("div", c, y)), ["f8"] * 3),
        (lambda x, c, y: call("add", x, call("mul", call("exp", c), y)), ["f8"] * 3),
    ],
)
def test_other_expressions_have_no_such_pass(form: Any, dtypes: list[str]) -> None:
    assert (
        scaled_sum(form(*map(var, "xcy")), "xcy", list(map(np.dtype, dtypes))) is None
    )
