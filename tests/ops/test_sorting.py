"""Sorting, searching, selecting, accumulating and adding at indices: NumPy's values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad.engine import _fn_cumulative as cum
from tenferro_ad.engine import _fn_scatter as scatter
from tenferro_ad.engine import _fn_sorting as fn

RNG = np.random.default_rng(3)
NAN = np.nan
TIES = np.array([[2.0, 1.0, 2.0, NAN, 1.0], [0.0, -0.0, 3.0, 3.0, NAN]])


def same(seen: Any, wanted: Any) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.dtype == wanted.dtype
    np.testing.assert_array_equal(seen, wanted)


def close(seen: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(seen), wanted, 1e-12, 1e-12)


# ---- sorting -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int8, np.uint16, bool])
@pytest.mark.parametrize("axis", [0, -1])
def test_sort_and_argsort(axis: int, dtype: Any) -> None:
    x = RNG.integers(0, 4, (6, 7)).astype(dtype)
    same(fn.sort(x, axis=axis), np.sort(x, axis))
    same(fn.argsort(x, axis=axis), np.argsort(x, axis, kind="stable"))
    same(fn.sort(x, axis=axis, descending=True), np.flip(np.sort(x, axis), axis))
    order = np.asarray(fn.argsort(x, axis=axis, descending=True))
    same(order, np.argsort(-x.astype(float), axis, kind="stable"))
    loose = np.asarray(fn.argsort(x, axis=axis, stable=False))
    same(np.take_along_axis(x, loose, axis), np.sort(x, axis))


def test_nan_is_last_and_first_when_descending() -> None:
    same(fn.sort(TIES), np.sort(TIES))
    same(fn.sort(TIES, descending=True), np.sort(TIES)[:, ::-1])
    same(fn.argsort(TIES)[0], np.array([1, 4, 0, 2, 3]))
    same(fn.argsort(TIES, descending=True)[0], np.array([3, 0, 2, 1, 4]))


@pytest.mark.parametrize("descending", [False, True])
def test_the_derivative_of_sort_follows_the_stable_order(descending: bool) -> None:
    x = np.array([2.0, 1.0, 2.0, 1.0])
    w = ta.asarray(np.array([1.0, 10.0, 100.0, 1000.0]))
    f = lambda v: ta.sum(fn.sort(v, descending=descending) * w)
    wanted = [1.0, 100.0, 10.0, 1000.0] if descending else [100.0, 1.0, 1000.0, 10.0]
    same(ta.grad(f)(ta.variable(x)), np.array(wanted))


def test_topk() -> None:
    x = RNG.permutation(24).reshape(4, 6).astype(float)
    values, places = fn.topk(x, 2)
    same(values, np.sort(x)[:, :-3:-1])
    same(np.take_along_axis(x, np.asarray(places), 1), np.asarray(values))
    values, places = fn.topk(x, 3, axis=0, largest=False)
    same(values, np.sort(x, 0)[:3])
    assert fn.topk(x, 0)[0].shape == (4, 0)
    same(fn.topk(np.array([1, 3, 3, 2]), 2)[1], np.array([1, 2]))
    grad = ta.grad(lambda v: ta.sum(ta.square(fn.topk(v, 2)[0])))(ta.variable(x))
    same(grad, np.where(x >= np.sort(x)[:, -2:-1], 2 * x, 0))
    with pytest.raises(errors.InvalidArgumentError, match="topk"):
        fn.topk(x, 7)


# ---- searching -----------------------------------------------------------------------


def test_searchsorted() -> None:
    x = np.sort(RNG.integers(0, 9, 20)).astype(float)
    v = RNG.uniform(-1, 10, (3, 4))
    for side in ("left", "right"):
        for values in (v, np.round(v), 4.0):
            same(
                fn.searchsorted(x, values, side=side), np.searchsorted(x, values, side)
            )
    mixed = RNG.permutation(x)
    sorter = np.argsort(mixed)
    wanted = np.searchsorted(mixed, v, sorter=sorter)
    same(fn.searchsorted(mixed, v, sorter=sorter), wanted)
    with pytest.raises(errors.InvalidArgumentError, match="side"):
        fn.searchsorted(x, v, side="both")
    with pytest.raises(errors.ShapeError, match="searchsorted"):
        fn.searchsorted(v, v)


def test_isin() -> None:
    x, y = RNG.integers(0, 9, (4, 5)), RNG.integers(0, 5, (2, 2))
    same(fn.isin(x, y), np.isin(x, y))
    same(fn.isin(x, y, invert=True), np.isin(x, y, invert=True))
    same(fn.isin(x, y + 0.5), np.isin(x, y + 0.5))
    same(fn.isin(np.array([NAN, 1.0]), np.array([NAN, 1.0])), np.array([False, True]))
    same(fn.isin(x, []), np.isin(x, []))


def test_nonzero_and_argwhere() -> None:
    x = RNG.integers(0, 2, (3, 4, 2))
    for value in (x, x.astype(float) * 0.5, x.astype(bool), x[:0], x[::-1, ::2]):
        found = fn.nonzero(value)
        for seen, wanted in zip(found, np.nonzero(value), strict=True):
            same(seen, wanted)
        same(fn.argwhere(value), np.argwhere(value))
    with pytest.raises(errors.InvalidArgumentError, match="0-d"):
        fn.nonzero(3)


@pytest.mark.parametrize(
    "x",
    [
        np.array([[3, 1, 2], [1, 3, 3]]),
        np.array([2.5, -1.0, 2.5, 0.0, -0.0]),
        np.array([1 + 2j, 1 - 2j, 1 + 2j]),
        np.array([True, True]),
        np.array(4.0),
        np.zeros((0, 2)),
    ],
)
def test_unique(x: np.ndarray) -> None:
    values, indices, inverse, counts = fn.unique_all(x)
    wanted = np.unique_all(x)
    same(values, wanted.values)
    same(indices, wanted.indices)
    same(inverse, wanted.inverse_indices.reshape(x.shape))
    same(counts, wanted.counts)
    same(fn.unique_values(x), np.sort(np.unique_values(x)))
    same(fn.unique_counts(x).counts, wanted.counts)
    same(fn.unique_inverse(x).inverse_indices, np.asarray(inverse))


def test_unique_keeps_each_nan_and_carries_derivatives() -> None:
    x = np.array([NAN, 2.0, NAN, 1.0, 2.0])
    same(fn.unique_values(x), np.array([1.0, 2.0, NAN, NAN]))
    same(fn.unique_counts(x).counts, np.array([1, 2, 1, 1]))
    v = ta.variable(np.array([3.0, 2.0, 3.0]))
    grad = ta.grad(lambda u: ta.sum(ta.square(fn.unique_values(u))))(v)
    same(grad, np.array([6.0, 4.0, 0.0]))


# ---- accumulating --------------------------------------------------------------------


def test_accumulations() -> None:
    x = RNG.uniform(0.5, 1.5, (3, 4))
    for axis in (0, -1):
        close(cum.cumulative_sum(x, axis=axis), np.cumsum(x, axis))
        close(cum.cumulative_prod(x, axis=axis), np.cumprod(x, axis))
        wanted = np.logaddexp.accumulate(x, axis)
        close(cum.cumulative_logsumexp(x, axis=axis), wanted)
        wanted = np.cumulative_sum(x, axis=axis, include_initial=True)
        close(cum.cumulative_sum(x, axis=axis, include_initial=True), wanted)
        wanted = np.cumulative_prod(x, axis=axis, include_initial=True)
        close(cum.cumulative_prod(x, axis=axis, include_initial=True), wanted)
    ones = np.ones(3, np.int8)
    assert cum.cumulative_sum(ones).dtype == np.int64
    assert cum.cumulative_sum(ones, dtype=np.float32).dtype == np.float32
    with pytest.raises(errors.InvalidArgumentError, match="axis"):
        cum.cumulative_sum(x)
    with pytest.raises(errors.IndexRangeError, match="cumulative_prod"):
        cum.cumulative_prod(x, axis=2)


def test_half_precision_accumulates_in_single() -> None:
    x = np.full(4000, 1.0, np.float16)
    assert float(np.asarray(cum.cumulative_sum(x))[-1]) == 4000.0


def test_products_with_zeros_have_exact_derivatives() -> None:
    """First and second order, one zero and two, against the sums of products."""
    for x in ([2.0, 0.0, 3.0, 5.0], [0.0, 2.0, 0.0, 5.0], [0.0, 0.0, 0.0, 1.0]):
        w = np.array([1.0, 10.0, 100.0, 1000.0])
        grad, hess = np.zeros(4), np.zeros((4, 4))
        for j in range(4):
            for a in range(j + 1):
                rest = [x[i] for i in range(j + 1) if i != a]
                grad[a] += w[j] * np.prod(rest)
                for b in range(j + 1):
                    if a != b:
                        rest = [x[i] for i in range(j + 1) if i not in (a, b)]
                        hess[a, b] += w[j] * np.prod(rest)
        weights = ta.asarray(w)
        f = lambda v, w=weights: ta.sum(cum.cumulative_prod(v) * w)
        v = ta.variable(np.array(x))
        close(ta.grad(f)(v), grad)
        for b in range(4):
            _, seen = ta.hvp(f, (v,), (ta.asarray(np.eye(4)[b]),))
            close(seen[0] if isinstance(seen, tuple) else seen, hess[:, b])


def test_logsumexps_do_not_overflow_and_take_minus_infinity() -> None:
    x = np.array([-np.inf, 1000.0, -1000.0, 1000.0])
    close(cum.cumulative_logsumexp(x)[1:], [1000.0, 1000.0, 1000.0 + np.log(2)])
    grad = ta.grad(lambda v: ta.sum(cum.cumulative_logsumexp(v)[1:]))(ta.variable(x))
    close(grad, [0.0, 2.5, 0.0, 0.5])
    # Nor does the second derivative, that of a softmax, or forward mode.
    t = ta.asarray(np.array([1.0, 1.0, 0.0, 0.0]))
    _, pushed = ta.jvp(cum.cumulative_logsumexp, (x,), (t,))
    close(pushed, [0.0, 1.0, 1.0, 0.5])
    last = lambda v: cum.cumulative_logsumexp(v)[-1]
    close(ta.hvp(last, (x,), (t,))[1], [0.0, 0.25, 0.0, -0.25])
    # What is beside plus infinity has no weight, as in `logsumexp`.
    y = np.array([np.inf, 1.0])
    close(ta.grad(last)(y), [np.nan, 0.0])
    close(ta.grad(ta.logsumexp)(y), [np.nan, 0.0])


# ---- adding at indices ---------------------------------------------------------------


def test_sums_at_indices() -> None:
    x, rows = RNG.normal(size=(5, 3)), np.array([2, 0, 2, 2, 1])
    wanted = np.zeros((4, 3))
    np.add.at(wanted, rows, x)
    close(scatter.segment_sum(x, rows, num_segments=4), wanted)
    close(scatter.segment_sum(x.T, rows, num_segments=4, axis=-1), wanted.T)
    base = RNG.normal(size=(4, 3))
    close(scatter.index_add(base, rows, x), base + wanted)
    columns = RNG.integers(0, 3, (4, 6))
    source = RNG.normal(size=(4, 6))
    wanted = base.copy()
    np.add.at(wanted, (np.arange(4)[:, None], columns), source)
    close(scatter.scatter_add(base, columns, source), wanted)
    grad = ta.grad(lambda s: ta.sum(ta.square(scatter.index_add(base, rows, s))))
    out = np.asarray(scatter.index_add(base, rows, x))
    close(grad(ta.variable(x)), 2 * out[rows])


def test_refusals_at_indices() -> None:
    x = np.ones((5, 3))
    with pytest.raises(errors.IndexRangeError, match="index 4"):
        scatter.segment_sum(x, np.array([0, 1, 4, 0, 0]), num_segments=4)
    with pytest.raises(errors.ShapeError, match="segments"):
        scatter.segment_sum(x, np.zeros(4, int), num_segments=4)
    with pytest.raises(errors.ShapeError, match="source"):
        scatter.index_add(x, np.zeros(2, int), np.ones((2, 4)))
    with pytest.raises(errors.ShapeError, match="source"):
        scatter.scatter_add(x, np.zeros((5, 2), int), np.ones((5, 3)))
