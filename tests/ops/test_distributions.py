"""Distributions against SciPy's, by Kolmogorov-Smirnov and chi-squared tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.stats as stats

import tenferro_ad as ta
from tenferro_ad import errors, random

N = 20_000
KEY = random.key(31)

# Name, draw of N numbers, SciPy's distribution.
CONTINUOUS: dict[str, tuple[Callable[..., Any], Any]] = {
    "exponential": (lambda k: random.exponential(k, N), stats.expon()),
    "gumbel": (lambda k: random.gumbel(k, N), stats.gumbel_r()),
    "logistic": (lambda k: random.logistic(k, N), stats.logistic()),
    "laplace": (lambda k: random.laplace(k, N), stats.laplace()),
    "cauchy": (lambda k: random.cauchy(k, N), stats.cauchy()),
    "truncated_normal": (
        lambda k: random.truncated_normal(k, -0.5, 1.5, N),
        stats.truncnorm(-0.5, 1.5),
    ),
    "truncated on one side": (
        lambda k: random.truncated_normal(k, 1.0, np.inf, N),
        stats.truncnorm(1.0, np.inf),
    ),
    "lognormal": (lambda k: random.lognormal(k, 0.7, N), stats.lognorm(0.7)),
    "rayleigh": (lambda k: random.rayleigh(k, 2.0, N), stats.rayleigh(scale=2.0)),
    "weibull": (lambda k: random.weibull(k, 1.7, N), stats.weibull_min(1.7)),
    "pareto": (lambda k: random.pareto(k, 2.5, N), stats.pareto(2.5)),
    "triangular": (
        lambda k: random.triangular(k, -1.0, 0.5, 4.0, N),
        stats.triang(0.3, -1.0, 5.0),
    ),
    "gamma": (lambda k: random.gamma(k, 2.3, N), stats.gamma(2.3)),
    "gamma of a small power": (lambda k: random.gamma(k, 0.2, N), stats.gamma(0.2)),
    "loggamma": (lambda k: random.loggamma(k, 0.05, N), stats.loggamma(0.05)),
    "chisquare": (lambda k: random.chisquare(k, 3, N), stats.chi2(3)),
    "t": (lambda k: random.t(k, 4.0, N), stats.t(4.0)),
    "f": (lambda k: random.f(k, 3.0, 7.0, N), stats.f(3.0, 7.0)),
    "beta": (lambda k: random.beta(k, 0.6, 2.0, N), stats.beta(0.6, 2.0)),
    "one share": (
        lambda k: random.dirichlet(k, [1.0, 2.0, 0.5], N)[:, 1],
        stats.beta(2.0, 1.5),
    ),
    "one coordinate": (
        lambda k: random.multivariate_normal(
            k, [1.0, -2.0], [[4.0, 1.0], [1.0, 2.0]], N
        )[:, 1],
        stats.norm(-2.0, 2**0.5),
    ),
}


@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous_draws_fit_their_distribution(name: str) -> None:
    draw, wanted = CONTINUOUS[name]
    drawn = np.asarray(draw(KEY))
    assert drawn.shape == (N,)
    assert stats.kstest(drawn, wanted.cdf).pvalue > 1e-3
    assert np.array_equal(drawn, np.asarray(draw(KEY)))
    assert not np.array_equal(drawn, np.asarray(draw(random.key(32))))


DISCRETE: dict[str, tuple[Callable[..., Any], Any]] = {
    "poisson": (lambda k: random.poisson(k, 3.5, N), stats.poisson(3.5)),
    "poisson of a large mean": (
        lambda k: random.poisson(k, 4e6, N),
        stats.poisson(4e6),
    ),
    "binomial": (lambda k: random.binomial(k, 12, 0.3, N), stats.binom(12, 0.3)),
    "geometric": (lambda k: random.geometric(k, 0.4, N), stats.geom(0.4)),
    "one outcome": (
        lambda k: random.multinomial(k, 9, [0.2, 0.5, 0.3], N)[:, 1],
        stats.binom(9, 0.5),
    ),
    "the last outcome": (
        lambda k: random.multinomial(k, 9, [0.2, 0.5, 0.3], N)[:, 2],
        stats.binom(9, 0.3),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_counts_fit_their_distribution(name: str) -> None:
    draw, wanted = DISCRETE[name]
    drawn = np.asarray(draw(KEY))
    assert drawn.dtype == np.int64
    # Shares at twelve quantiles, the tails among them.
    edges = np.unique(wanted.ppf(np.linspace(0, 1, 13)[1:-1]))
    shares = np.diff(wanted.cdf(edges), prepend=0.0, append=1.0)
    counts = np.bincount(np.searchsorted(edges, drawn), minlength=shares.size)
    few = shares * N < 5
    assert not np.any(counts[few] > 30)
    assert stats.chisquare(counts[~few], shares[~few] / shares[~few].sum()
                           * counts[~few].sum()).pvalue > 1e-3  # fmt: skip


def test_choices() -> None:
    weights = np.array([1.0, 0.0, 3.0, 4.0])
    for p, wanted in ((None, np.full(4, 0.25)), (weights, weights / 8)):
        drawn = np.asarray(random.choice(KEY, 4, (N,), p=p))
        counts = np.bincount(drawn, minlength=4)
        assert not counts[wanted == 0].any()
        some = wanted > 0
        assert stats.chisquare(counts[some], wanted[some] * N).pvalue > 1e-3
    logits = np.log(np.array([[1.0, 3.0], [2.0, 2.0]]))
    drawn = np.asarray(random.categorical(KEY, logits, (N,), axis=1))
    assert drawn.shape == (N, 2)
    assert abs(drawn[:, 0].mean() - 0.75) < 0.02
    assert abs(drawn[:, 1].mean() - 0.5) < 0.02
    keys = random.split(KEY, 3000)
    pairs = [tuple(np.asarray(random.choice(k, 3, (2,), replace=False))) for k in keys]
    found, counts = np.unique(pairs, axis=0, return_counts=True)
    assert len(found) == 6
    assert stats.chisquare(counts).pvalue > 1e-3
    firsts = [
        int(random.choice(k, 3, (1,), replace=False, p=[1.0, 2.0, 5.0])[0])
        for k in keys
    ]
    assert stats.chisquare(np.bincount(firsts), np.array([1, 2, 5]) * 375).pvalue > 1e-3
    signs = np.asarray(random.rademacher(KEY, N, dtype=np.float32))
    assert signs.dtype == np.float32
    assert set(signs.tolist()) == {-1.0, 1.0}
    assert abs(signs.mean()) < 0.03
    x = np.arange(12.0).reshape(3, 4)
    some = np.asarray(random.choice(KEY, x, (2, 5), axis=1))
    assert some.shape == (3, 2, 5)
    g = ta.grad(lambda x: ta.sum(random.choice(KEY, x, (5,))))(x)
    assert np.asarray(g).sum() == 20.0


def test_vectors_and_matrices() -> None:
    cov = np.array([[2.0, 0.6], [0.6, 1.0]])
    drawn = np.asarray(random.multivariate_normal(KEY, np.zeros(2), cov, (N,)))
    assert np.abs(np.cov(drawn.T) - cov).max() < 0.06
    q = np.asarray(random.orthogonal(KEY, 3, (200,)))
    assert np.abs(q.mT @ q - np.eye(3)).max() < 1e-12
    assert stats.kstest(q[:, 0, 0], "uniform", (-1, 2)).pvalue > 1e-3
    u = np.asarray(random.orthogonal(KEY, 2, dtype=np.complex128))
    assert np.abs(u.conj().T @ u - np.eye(2)).max() < 1e-12
    shares = np.asarray(random.dirichlet(KEY, np.full((2, 3), 1e-3), 50))
    assert shares.shape == (50, 2, 3)
    assert np.all(np.isfinite(shares))
    assert np.allclose(shares.sum(-1), 1.0)
    counts = np.asarray(random.multinomial(KEY, 7, np.full((2, 4), 0.25), (3,)))
    assert counts.shape == (3, 2, 4)
    assert np.all(counts.sum(-1) == 7)


@pytest.mark.parametrize(
    ("draw", "points"),
    [
        (lambda a, b: random.truncated_normal(KEY, a, b, 4), (-1.0, 2.0)),
        (lambda s: random.lognormal(KEY, s, 4), (0.7,)),
        (lambda s: random.rayleigh(KEY, s, 4), (0.7,)),
        (lambda k: random.weibull(KEY, k, 4), (1.7,)),
        (lambda b: random.pareto(KEY, b, 4), (2.5,)),
        (lambda a, c, b: random.triangular(KEY, a, c, b, 4), (-1.0, 0.5, 2.0)),
        (
            lambda m, c: random.multivariate_normal(KEY, m, (c + c.mT) * 0.5, 2),
            (np.array([1.0, 2.0]), np.array([[2.0, 0.3], [0.3, 1.0]])),
        ),
    ],
)
def test_draws_are_smooth_in_their_parameters(draw: Any, points: Any) -> None:
    ta.testing.check_grads(draw, points, order=2)


def test_no_slope_in_a_shape_is_refused_and_never_zero() -> None:
    for draw in (
        lambda a: random.gamma(KEY, a, 3),
        lambda a: random.chisquare(KEY, a, 3),
        lambda a: random.t(KEY, a, 3),
        lambda a: random.beta(KEY, a, 2.0, 3),
        lambda a: random.dirichlet(KEY, ta.stack([a, a])),
    ):
        with pytest.raises(errors.NoRuleError):
            ta.grad(lambda a, d=draw: ta.sum(d(a)))(1.5)


def test_precisions_and_shapes() -> None:
    for kind in (np.float64, np.float32, np.float16):
        for draw in (random.exponential, random.gumbel, random.laplace,
                     random.logistic, random.cauchy):  # fmt: skip
            x = draw(KEY, (400,), dtype=kind)
            assert x.dtype == kind
            assert np.all(np.isfinite(np.asarray(x)))
        assert random.gamma(KEY, np.ones(3, kind)).dtype == kind
    assert random.gamma(KEY, 2).dtype == np.float64
    assert random.beta(KEY, np.ones((3, 1)), np.ones(2)).shape == (3, 2)
    assert random.poisson(KEY, np.ones(3), (4, 3)).shape == (4, 3)
    assert random.poisson(KEY, 0.0, 5).tolist() == [0] * 5
    assert random.binomial(KEY, 5, 1.0, 3).tolist() == [5] * 3
    assert random.geometric(KEY, 1.0, 3).tolist() == [1] * 3


def test_refusals_name_the_distribution() -> None:
    wrong: list[tuple[Callable[[], Any], Any, str, str]] = [
        (lambda: random.gamma(KEY, 1j), errors.DTypeError, "gamma", "a"),
        (lambda: random.gamma(KEY, np.ones(3), (2,)), errors.ShapeError, "gamma",
         "shape"),
        (lambda: random.exponential(np.zeros(2)), errors.ShapeError, "exponential",
         "key"),
        (lambda: random.exponential(KEY, dtype=int), errors.DTypeError,
         "exponential", "dtype"),
        (lambda: random.dirichlet(KEY, 1.0), errors.ShapeError, "dirichlet", "alpha"),
        (lambda: random.multivariate_normal(KEY, np.ones(2), np.ones((3, 3))),
         errors.ShapeError, "multivariate_normal", "cov"),
        (lambda: random.choice(KEY, 3, (4,), replace=False),
         errors.InvalidArgumentError, "choice", "shape"),
        (lambda: random.choice(KEY, 0, (1,)), errors.InvalidArgumentError, "choice",
         "shape"),
        (lambda: random.choice(KEY, 3, (1,), p=np.ones(2)), errors.ShapeError,
         "choice", "p"),
        (lambda: random.choice(KEY, np.ones((2, 2)), (1,), axis=2),
         errors.IndexRangeError, "choice", "axis"),
        (lambda: random.categorical(KEY, np.ones(3), axis=1), errors.IndexRangeError,
         "categorical", "axis"),
        (lambda: random.rademacher(KEY, 3, dtype=np.uint8), errors.DTypeError,
         "rademacher", "dtype"),
        (lambda: random.multinomial(KEY, 3, 0.5), errors.ShapeError, "multinomial",
         "p"),
        (lambda: random.orthogonal(KEY, 2.5), errors.DTypeError, "orthogonal", "n"),
        (lambda: random.fold_in(KEY, np.float64(1.0)), errors.DTypeError, "fold_in",
         "data"),
        (lambda: random.fold_in(KEY, ta.asarray([1, 2])), errors.ShapeError,
         "fold_in", "data"),
    ]  # fmt: skip
    for call, kind, operation, argument in wrong:
        with pytest.raises(kind) as caught:
            call()
        seen = (caught.value.operation, caught.value.argument)
        assert seen == (operation, argument), str(caught.value)
        del caught


def test_keys_fold_counters_and_stack() -> None:
    for number in (0, 7, 2**40 + 3):
        wanted = np.asarray(random.fold_in(KEY, number))
        for kind in (np.int64, np.uint64, np.int32):
            if number < 2**31 or np.dtype(kind).itemsize == 8:
                counter = ta.asarray(np.array(number, kind))
                assert np.array_equal(np.asarray(random.fold_in(KEY, counter)), wanted)
    stack = random.split(KEY, (2, 3))
    assert stack.shape == (2, 3, 2)
    one_by_one = [np.asarray(k) for k in random.split(KEY, 6)]
    assert np.array_equal(np.asarray(stack).reshape(6, 2), one_by_one)
    rows = ta.vmap(lambda k: random.normal(k, (4,)))(random.split(KEY, (3,)))
    alone = [np.asarray(random.normal(k, (4,))) for k in random.split(KEY, 3)]
    assert np.array_equal(np.asarray(rows), alone)
    mapped = ta.vmap(lambda i: random.fold_in(KEY, i))(ta.arange(3))
    folded = [np.asarray(random.fold_in(KEY, i)) for i in range(3)]
    assert np.array_equal(np.asarray(mapped), folded)
    with ta.ledger() as led:
        random.fold_in(KEY, 5)
    assert led.copies == {}
