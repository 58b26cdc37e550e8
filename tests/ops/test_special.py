"""Special functions: SciPy's values, edges, refusals, third derivatives."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import scipy.special
import scipy.stats

import tenferro_ad as ta
from tenferro_ad import errors, special
from tenferro_ad.engine import HANDLES

UNARY = [
    name
    for name in special.__all__
    if name not in ("logsumexp", "softmax", "log_softmax", "polygamma", "zeta")
    and len(inspect.signature(getattr(special, name)).parameters) == 1
]
OF_ORDER = {"jv", "iv", "ive", "gammainc", "gammaincc", "zeta"}
INSIDE = np.array([0.2, 0.45, 0.7])


def close(seen: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    np.testing.assert_allclose(np.asarray(seen), wanted, tolerance, tolerance)


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_argument_are_scipys(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    close(ours(INSIDE), theirs(INSIDE))
    single = ours(INSIDE.astype(np.float32))
    assert single.dtype == np.float32
    close(single, theirs(INSIDE.astype(np.float32)), 1e-6)
    close(ours(0.3), theirs(0.3))


@pytest.mark.parametrize(
    "name", ["betaln", "xlogy", "xlog1py", "rel_entr", "kl_div", *sorted(OF_ORDER)]
)
def test_functions_of_two_arguments_are_scipys(name: str) -> None:
    ours, theirs = getattr(special, name), getattr(scipy.special, name)
    x, y = INSIDE[:, None] + 1, INSIDE + 0.5
    close(ours(x, y), theirs(x, y))
    close(ours(2.0, y), theirs(2.0, y))
    close(ours(x, 1.5), theirs(x, 1.5))
    close(ours(2.0, 1.5), theirs(2.0, 1.5))
    small = np.array([2, 3, 5], np.int8)  # double precision, as of every integer
    close(ours(small, 2 * small), theirs(small * 1.0, small * 2.0))


def test_riemann_zeta_and_logsumexp() -> None:
    close(special.zeta(2.0), np.pi**2 / 6)
    x = np.arange(6.0).reshape(2, 3)
    close(special.logsumexp(x), scipy.special.logsumexp(x))
    close(special.softmax(x, 1), scipy.special.softmax(x, 1))
    close(special.softmax(x), scipy.special.softmax(x))
    close(special.log_softmax(x), scipy.special.log_softmax(x))


@pytest.mark.parametrize("n", range(5))
def test_polygamma_and_its_derivatives(n: int) -> None:
    close(special.polygamma(n, INSIDE), scipy.special.polygamma(n, INSIDE))
    whole = special.polygamma(n, np.array([1, 2, 3]))
    close(whole, scipy.special.polygamma(n, np.array([1, 2, 3])))
    ones = np.ones(3)
    _, slope = ta.jvp(lambda x: special.polygamma(n, x), (INSIDE,), (ones,))
    close(slope, scipy.special.polygamma(n + 1, INSIDE))


@pytest.mark.parametrize("n", [-1, 1.0, True, None])
def test_polygamma_refuses_other_orders(n: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="polygamma"):
        special.polygamma(n, 1.0)


@pytest.mark.parametrize("name", sorted(OF_ORDER))
def test_what_has_no_rule_refuses_in_every_mode(name: str) -> None:
    """Never a silent zero: not in reverse mode, forward mode or nested."""
    fn = getattr(special, name)
    order = ta.variable(np.array([2.0, 3.0]))
    y = ta.variable(np.array([0.5, 0.8]))
    with pytest.raises(errors.NoRuleError, match=name):
        ta.grad(lambda v: ta.sum(fn(v, y)))(order)
    with pytest.raises(errors.NoRuleError, match=name):
        ta.jvp(lambda v: fn(v, y), (order,), (y,))
    with pytest.raises(errors.NoRuleError, match=name):
        ta.grad(lambda v: ta.sum(ta.grad(lambda u: ta.sum(fn(v, u)))(y)))(order)
    # The other argument alone is fine.
    grad = ta.grad(lambda u: ta.sum(fn(order, u)))(y)
    assert np.all(np.isfinite(np.asarray(grad)))


def test_third_derivatives() -> None:
    """The table's rows are closed: here at points where naive forms lose all digits."""

    def third(f: Any, x: float) -> float:
        g = ta.grad(ta.grad(ta.grad(f)))
        return float(np.asarray(g(ta.variable(np.array(x)))))

    close(third(special.j1, 1e-6), -3 / 8, 1e-9)
    close(third(special.i1, 1e-6), 3 / 8, 1e-9)
    close(third(special.gammaln, 1.5), scipy.special.polygamma(2, 1.5))
    close(third(special.entr, 0.5), 4.0)
    x = 0.3
    u = scipy.special.erfinv(x)
    slope = np.sqrt(np.pi) / 2 * np.exp(u * u)
    close(third(special.erfinv, x), slope**3 * (2 + 8 * u * u))


def test_log_ndtr_far_out() -> None:
    x = np.array([-1e4, -100.0, -40.0, 0.0, 40.0])
    grad = np.asarray(ta.grad(lambda v: ta.sum(special.log_ndtr(v)))(ta.variable(x)))
    wanted = [1e4 + 1e-4, 100.00999800099926, 40.02496884702038, 0.797884560802865, 0]
    close(grad, wanted, 1e-10)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_log_ndtr_curves_less_and_less_to_the_right(dtype: Any) -> None:
    def slope(v: Any) -> Any:
        return ta.grad(lambda v: ta.sum(special.log_ndtr(v)))(v)

    x = np.array([1.0, 5.0, 9.0, 14.0, 40.0, 200.0], dtype)
    ratio = scipy.stats.norm.pdf(x.astype(float)) / scipy.stats.norm.cdf(
        x.astype(float)
    )
    curve = np.asarray(ta.grad(lambda v: ta.sum(slope(v)))(ta.variable(x)))
    assert np.allclose(
        curve, -ratio * (x + ratio), 1e-2 if dtype is np.float16 else 1e-5
    )


def test_points_where_a_product_meets_a_singular_logarithm() -> None:
    zero = ta.variable(np.array(0.0))
    at = ta.variable(np.array(2.0))
    close(special.xlogy(0.0, 0.0), 0.0)
    assert float(np.asarray(ta.grad(lambda y: special.xlogy(0.0, y))(zero))) == 0.0
    # The mixed derivative of x log(y) at x = 0 is 1 / y, not 0.
    mixed = ta.grad(lambda x: ta.grad(lambda y: special.xlogy(x, y))(at))(zero)
    close(mixed, 0.5)
    mixed = ta.grad(lambda x: ta.grad(lambda y: special.xlog1py(x, y))(at))(zero)
    close(mixed, 1 / 3)
    close(special.entr(np.array([-1.0, 0.0])), [-np.inf, 0.0])


def test_complex_operands_are_refused() -> None:
    with pytest.raises(errors.DTypeError, match="gammaln"):
        special.gammaln(np.array(1j))
    with pytest.raises(errors.DTypeError, match="jv"):
        special.jv(1.0, np.array(1j))


def test_an_unknown_slope_inside_a_fused_expression_is_nan() -> None:
    """A fused kernel differentiates its expression: it must not find a zero there."""
    from tenferro_ad.ops import call, elementwise, var

    op = elementwise("twice_jv", call("mul", 2.0, call("jv", var("x"), var("y"))), "xy")
    y = ta.asarray(np.array(0.5))
    grad = ta.grad(lambda v: HANDLES[op](v, y))(ta.variable(np.array(2.0)))
    assert np.isnan(np.asarray(grad))
