"""Half and single precision: what is summed is summed in at least single precision.

Every function that adds or multiplies many elements is called with halves, at sizes
where a half precision accumulator would stop counting or overflow; value, gradient
and tangent are those of double precision, rounded once (and a few units for what a
composition rounds between its operations). Single precision is asked for its own digits
at sizes and offsets where plain summation loses them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.errors import DTypeError
from tenferro_ad.testing import GradientCheckError, check_grads

Array = np.ndarray[Any, Any]
F2, F4, F8 = np.float16, np.float32, np.float64
UNIT = 2.0**-10  # between halves, relative to the smaller one


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    return rng(seed).normal(size=shape) * scale


@dataclass(frozen=True)
class Case:
    """A function of arrays.

    Attributes:
        arrays: the operands, in double precision; halves of them are taken first.
        units: how far value and gradient may be, in units of the last place of the
            largest number.
        slope: the same for the gradient alone, where it differs.
        push: the same for the tangent of halves alone, where it differs.
    """

    fn: Callable[..., Any]
    arrays: tuple[Array, ...]
    units: float = 1.0
    slope: float | None = None
    push: float | None = None


def window(fn: Any, size: int) -> Callable[[Any], Any]:
    return lambda x: fn(x, size)


TARGET = rng(3).integers(0, 3000, 4)
ROWS = rng(4).integers(0, 3, 20_000)
CASES: dict[str, Case] = {
    # A half precision sum of hundredths stops at 32.
    "sum": Case(ta.sum, (np.full(20_000, 0.01),)),
    "sum of rows": Case(lambda x: ta.sum(x, axis=0), (np.full((20_000, 3), 0.01),)),
    "mean": Case(ta.mean, (normal(20_000) + 3,)),
    "mean of rows": Case(lambda x: ta.mean(x, axis=0), (normal(20_000, 3) + 3,)),
    "var": Case(ta.var, (normal(20_000, scale=100),)),
    "std": Case(ta.std, (normal(20_000, scale=100),)),
    # Products of factors near one, whose running product is not a half.
    "prod": Case(ta.prod, (1 + normal(3000, scale=2e-2),), 2),
    # Squares of 300 are no halves.
    "norm": Case(ta.linalg.vector_norm, (np.full(400, 300.0),)),
    # Powers of one, of which a half precision sum counts 2048.
    "norm of rows": Case(
        lambda x: ta.linalg.vector_norm(x, axis=0), (np.full((20_000, 3), 0.01),)
    ),
    "norm 3": Case(
        lambda x: ta.linalg.vector_norm(x, ord=3), (np.full(400, 300.0),), 2
    ),
    "norm 1": Case(lambda x: ta.linalg.vector_norm(x, ord=1), (np.full(20_000, 0.01),)),
    "frobenius": Case(ta.linalg.matrix_norm, (np.full((20, 20), 300.0),)),
    # A tangent knows the sum of exponentials as a half of about 9.
    "logsumexp": Case(ta.logsumexp, (normal(5000),), 2, push=4),
    "softmax": Case(ta.softmax, (normal(4, 5000),), 2),
    "log_softmax": Case(ta.log_softmax, (normal(4, 5000),), 2, push=6),
    "cumulative_sum": Case(ta.cumulative_sum, (np.full(5000, 0.01),)),
    "cumulative_prod": Case(ta.cumulative_prod, (1 + normal(1000, scale=2e-2),), 2),
    "cumulative_logsumexp": Case(ta.cumulative_logsumexp, (normal(2000),), 4, push=6),
    "matmul": Case(ta.matmul, (normal(3, 5000), normal(5000, 2, seed=1)), push=2),
    "matmul of vectors": Case(ta.matmul, (np.full(20_000, 0.1), np.full(20_000, 0.1))),
    "matmul of stacks": Case(
        ta.matmul, (normal(2, 3, 5000), normal(2, 5000, 2, seed=1))
    ),
    "vecdot": Case(ta.vecdot, (np.full(20_000, 0.1), np.full(20_000, 0.1))),
    "tensordot": Case(ta.tensordot, (normal(3, 50, 60), normal(50, 60, 2, seed=1))),
    "einsum": Case(
        lambda x, y: ta.einsum("abc,bcd->ad", x, y),
        (normal(3, 50, 60), normal(50, 60, 2, seed=1)),
    ),
    "conv2d": Case(
        nn.conv2d, (normal(2, 200, 6, 6), normal(3, 200, 3, 3, seed=1, scale=0.1))
    ),
    "conv_transpose2d": Case(
        nn.conv_transpose2d,
        (normal(2, 200, 4, 4), normal(200, 3, 3, 3, seed=1, scale=0.1)),
    ),
    "avg_pool2d": Case(window(nn.avg_pool2d, 60), (normal(1, 2, 60, 60) + 5,)),
    # All of them tie: 3600 share.
    "max_pool2d": Case(window(nn.max_pool2d, 60), (np.full((1, 2, 60, 60), 5.0),)),
    "adaptive_avg_pool": Case(
        lambda x: nn.adaptive_avg_pool(x, 1), (normal(1, 2, 60, 60) + 5,), 2
    ),
    "layer_norm": Case(nn.layer_norm, (normal(3, 3000, scale=100) + 5,), 4),
    "rms_norm": Case(nn.rms_norm, (normal(3, 3000, scale=300),), 4),
    "group_norm": Case(
        lambda x: nn.group_norm(x, 2), (normal(2, 4, 30, 30, scale=100) + 5,), 4
    ),
    "batch_norm": Case(
        lambda x: nn.batch_norm(x, training=True), (normal(3000, 2, scale=100) + 5,), 4
    ),
    "attention": Case(
        nn.scaled_dot_product_attention,
        (normal(3, 64), normal(2000, 64, seed=1), normal(2000, 2, seed=2)),
        4,
    ),
    "cross_entropy": Case(
        lambda x: nn.cross_entropy(x, ta.asarray(TARGET)), (normal(4, 3000),), 2
    ),
    "mse_loss": Case(nn.mse_loss, (normal(2000), normal(2000, seed=1)), 2),
    "segment_prod": Case(
        lambda x: ta.segment_prod(x, ta.asarray(ROWS[:3000]), num_segments=3),
        (1 + normal(3000, scale=2e-2),),
        2,
    ),
    "segment_sum": Case(
        lambda x: ta.segment_sum(x, ta.asarray(ROWS), num_segments=3),
        (np.full(20_000, 0.01),),
    ),
    "index_add": Case(
        lambda x, s: ta.index_add(x, ta.asarray(ROWS), s),
        (normal(3), np.full(20_000, 0.01)),
    ),
    # Their gradients are the sums.
    "broadcast": Case(lambda x, y: x + y, (normal(3), np.full((5000, 3), 0.01))),
    "product with a row": Case(
        lambda x, y: x * y, (np.full(3, 0.1), np.full((5000, 3), 0.1))
    ),
    "take": Case(lambda x: ta.take(x, ta.asarray(ROWS)), (normal(3),)),
    "repeat": Case(lambda x: ta.repeat(x, 5000), (normal(3),)),
    "tile": Case(lambda x: ta.tile(x, (5000,)), (normal(3),)),
    "linear": Case(nn.linear, (normal(5000, 4), normal(3, 4, seed=1), normal(3))),
}


def evaluated(case: Case, dtype: Any) -> list[Array]:
    """The value, the gradient for a cotangent of hundredths, and the tangent for
    tangents up to two hundredths."""
    halves = [np.asarray(x, F2) for x in case.arrays]
    xs = [ta.asarray(x.astype(dtype)) for x in halves]
    out, pull = ta.vjp(case.fn, *xs)
    weight = np.full(out.shape, 0.01, F2).astype(dtype)
    ramps = [np.linspace(0, 0.02, x.size).reshape(x.shape).astype(F2) for x in halves]
    ts = tuple(ta.asarray(t.astype(dtype)) for t in ramps)
    _, pushed = ta.jvp(case.fn, tuple(xs), ts)
    found = [out, *pull(ta.asarray(weight)), pushed]
    assert all(y.dtype == dtype for y in found)
    return [np.array(y) for y in found]


@pytest.mark.parametrize("name", CASES)
def test_halves_are_rounded_once(name: str) -> None:
    case = CASES[name]
    pairs = list(zip(evaluated(case, F2), evaluated(case, F8), strict=True))
    units = [case.units] * (len(pairs) - 1) + [case.push or case.units]
    for (seen, exact), most in zip(pairs, units, strict=True):
        assert np.isfinite(seen).all()
        largest = float(np.max(np.abs(exact)))
        # A number below the least normal half is rounded to a multiple of 2 ** -24.
        allowed = most * (UNIT * largest + 2.0**-24)
        gap = float(np.max(np.abs(seen.astype(F8) - exact)))
        assert gap <= allowed, f"{gap / (UNIT * largest):.1f} units"


MANY: dict[str, Callable[[Any], Any]] = {
    "logsumexp": ta.logsumexp,
    "log_softmax": lambda x: -ta.log_softmax(x)[0],
    "cumulative_logsumexp": lambda x: ta.cumulative_logsumexp(x)[-1],
    "cross_entropy": lambda x: nn.cross_entropy(x[None], ta.asarray([0])),
}


@pytest.mark.parametrize("name", MANY)
def test_the_tangent_of_many_terms_is_not_lost(name: str) -> None:
    """Each term is a thousandth of 2 ** -16, which no half holds."""
    x, t = np.zeros(2**16, F2), np.full(2**16, 0.001, F2)
    t[0] = 0
    _, pushed = ta.jvp(MANY[name], (ta.asarray(x),), (ta.asarray(t),))
    assert pushed.dtype == F2
    assert float(pushed) == pytest.approx(0.001, rel=8 * UNIT)


def test_probabilities_of_more_classes_than_halves_count() -> None:
    """The sum of exponentials is 2 ** 16, which is no half."""
    x = ta.asarray(np.zeros((1, 2**16), F2))
    loss = nn.cross_entropy(x, ta.asarray([0]))
    g = ta.grad(lambda x: nn.cross_entropy(x, ta.asarray([0])))(x)
    assert float(loss) == pytest.approx(16 * np.log(2), rel=2 * UNIT)
    assert np.asarray(g)[0, 1] == F2(2.0**-16)


def test_products_of_halves_have_finite_tangents() -> None:
    """The product of the other factors may be more than a half can hold."""
    x = ta.asarray(np.array([300.0, 400.0, 1 / 400, 1.0], F2))
    slopes = []
    for k in (0, 1, 3):
        t = ta.asarray(np.eye(4, dtype=F2)[k])
        slopes.append(float(ta.jvp(ta.prod, (x,), (t,))[1]))
    assert slopes == pytest.approx([1.0, 0.75, 300.0], rel=2 * UNIT)


def test_a_half_precision_accumulator_would_not_pass() -> None:
    """What the cases above are there for."""
    x = np.full(20_000, 0.01, F2)
    total = F2(0)
    for v in x:
        total = F2(total + v)
    exact = float(np.sum(x.astype(F8)))
    assert abs(float(total) - exact) > 100 * UNIT * exact
    with np.errstate(over="ignore"):
        assert np.isinf(np.sum(np.full(400, 300.0, F2) ** 2))


def test_there_is_no_bfloat16() -> None:
    assert not hasattr(ta, "bfloat16")
    for call in (
        lambda: ta.asarray([1.0], dtype="bfloat16"),
        lambda: ta.zeros(2, dtype="bfloat16"),
        lambda: ta.astype(ta.asarray([1.0]), "bfloat16"),
    ):
        with pytest.raises(DTypeError, match="bfloat16"):
            call()


# ---- single precision ----------------------------------------------------------------

SINGLE: dict[str, Case] = {
    "sum": Case(ta.sum, (np.full(2_000_000, 0.1),)),
    "sum of columns": Case(lambda x: ta.sum(x, axis=0), (np.full((400_000, 3), 0.1),)),
    "mean of columns": Case(lambda x: ta.mean(x, axis=0), (normal(400_000, 3) + 100,)),
    "mean of rows and columns": Case(
        lambda x: ta.mean(x, axis=(0, 1)), (normal(400, 1000, 3) + 100,)
    ),
    # A variance of 1 at a mean of 10 000, whose square has no digit left for it. The
    # gradient has the digits of the distances from the mean.
    "var": Case(ta.var, (normal(50_000) + 1e4,), 4, 4e3),
    "var of columns": Case(
        lambda x: ta.var(x, axis=0), (normal(50_000, 3) + 1e4,), 4, 4e3
    ),
    "norm": Case(ta.linalg.vector_norm, (normal(1_000_000),)),
    "large norm": Case(ta.linalg.vector_norm, (np.full(100, 1e25),)),
    "small norm": Case(ta.linalg.vector_norm, (np.full(100, 1e-25),)),
    "logsumexp": Case(ta.logsumexp, (normal(1_000_000),), 1, 8),
    "softmax": Case(ta.softmax, (normal(2, 300_000),), 2),
    "matmul": Case(ta.matmul, (normal(2, 100_000), normal(100_000, 2, seed=1)), 16),
    "layer_norm": Case(nn.layer_norm, (normal(2, 20_000) + 10,), 8, 100),
}


@pytest.mark.parametrize("name", SINGLE)
def test_single_precision_keeps_its_digits(name: str) -> None:
    case = SINGLE[name]
    unit = 2.0**-23
    singles = [ta.asarray(x.astype(F4)) for x in case.arrays]
    doubles = [ta.asarray(x.astype(F4).astype(F8)) for x in case.arrays]
    seen, pull = ta.vjp(case.fn, *singles)
    exact, push = ta.vjp(case.fn, *doubles)
    weights = np.linspace(0.5, 1.5, max(exact.size, 1), dtype=F4).reshape(exact.shape)
    seeds = (weights, weights.astype(F8))
    pairs = [(seen, exact)]
    pairs += zip(pull(ta.asarray(seeds[0])), push(ta.asarray(seeds[1])), strict=True)
    allowed = [case.units, *[case.slope or case.units] * len(singles)]
    for (a, b), units in zip(pairs, allowed, strict=True):
        a, b = np.array(a), np.array(b)
        assert a.dtype == F4
        gap = float(np.max(np.abs(a.astype(F8) - b)))
        largest = float(np.max(np.abs(b)))
        assert gap <= units * unit * largest, f"{gap / (unit * largest):.1f} units"


# ---- the checker ---------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [F2, F4, F8, np.complex64, np.complex128])
def test_the_gradient_checker_knows_each_precision(dtype: Any) -> None:
    """Right rules pass; a rule that is wrong by a fifth fails in every precision, and
    the failure says where, both numbers, and what would have passed."""
    x = normal(4, 3, seed=5, scale=0.5).astype(dtype)

    def right(x: Any) -> Any:
        return ta.sin(x) * x

    def wrong(x: Any) -> Any:
        return ta.stop_gradient(0.2 * ta.sin(x)) * x + ta.sin(x) * x * 0.8

    def slightly(x: Any) -> Any:
        return ta.exp(x) * 0.8 + 0.2 * ta.stop_gradient(ta.exp(x))

    check_grads(right, [x], order=1)
    for mode in ("fwd", "rev"):
        for f in (wrong, slightly):
            with pytest.raises(GradientCheckError) as caught:
                check_grads(f, [x], order=1, modes=[mode])
            error = caught.value
            assert error.tolerance < 0.5
            for part in (f"{error.expected:.9g}", f"{error.seen:.9g}", "allowed"):
                assert part in str(error)
            assert error.index is None or f"at index {error.index}" in str(error)


def test_the_checker_passes_right_rules_of_halves_to_second_order() -> None:
    x = normal(5, seed=6, scale=0.5).astype(F2)
    for f in (ta.exp, ta.sin, ta.softmax, lambda x: x * x, ta.logsumexp):
        check_grads(f, [x], order=2)
