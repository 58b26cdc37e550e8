"""Random numbers: published vectors, reproducibility, distributions, checkpoints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.stats

import tenferro_ad as ta
from tenferro_ad import errors, random
from tenferro_ad.engine import HANDLES

# Lines "philox4x32 10" of Random123's known answers (tests/kat_vectors).
VECTORS = [
    (
        "00000000 00000000 00000000 00000000",
        "00000000 00000000",
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8",
    ),
    (
        "ffffffff ffffffff ffffffff ffffffff",
        "ffffffff ffffffff",
        "408f276d 41c83b0e a20bc7c6 6d5451fd",
    ),
    (
        "243f6a88 85a308d3 13198a2e 03707344",
        "a4093822 299f31d0",
        "d16cfe09 94fdcceb 5001e420 24126ea1",
    ),
]


def words(text: str) -> np.ndarray:
    return np.array([int(w, 16) for w in text.split()], np.uint32)


@pytest.mark.parametrize(("counter", "key", "result"), VECTORS)
def test_published_vectors(counter: str, key: str, result: str) -> None:
    found = HANDLES.philox(ta.asarray(words(key)), ta.asarray(words(counter)))
    assert np.array_equal(np.asarray(found), words(result))


def test_the_first_draw_of_key_0_is_the_published_one() -> None:
    found = random.bits(random.key(0), 4)
    assert np.array_equal(np.asarray(found), words(VECTORS[0][2]))


def test_keys() -> None:
    assert np.array_equal(np.asarray(random.key(5 + (7 << 32))), [5, 7])
    key = random.key(1)
    parts = [np.asarray(k).tolist() for k in random.split(key, 50)]
    folded = [np.asarray(random.fold_in(key, i)).tolist() for i in range(50)]
    assert len({tuple(k) for k in [*parts, *folded]}) == 100
    # Splitting into more keys keeps the first ones; a derived key is no draw.
    assert [np.asarray(k).tolist() for k in random.split(key, 3)] == parts[:3]
    drawn = np.asarray(random.bits(key, (100,))).reshape(-1, 2).tolist()
    assert not {tuple(k) for k in [*parts, *folded]} & {tuple(k) for k in drawn}
    assert np.array_equal(
        np.asarray(random.fold_in(key, 3 << 32)),
        np.asarray(random.fold_in(random.key(1), 3 << 32)),
    )
    assert random.split(key, 0) == ()


@pytest.mark.parametrize(
    "draw",
    [
        lambda key, n: random.bits(key, n),
        lambda key, n: random.bits(key, n, dtype=np.uint64),
        lambda key, n: random.uniform(key, n),
        lambda key, n: random.uniform(key, n, dtype=np.float32),
        lambda key, n: random.normal(key, n),
        lambda key, n: random.normal(key, n, dtype=np.complex64),
        lambda key, n: random.randint(key, n, -3, 9),
        lambda key, n: random.bernoulli(key, 0.3, n),
    ],
)
def test_draws_depend_on_key_and_position_alone(draw: Any) -> None:
    key = random.key(42)
    long = np.asarray(draw(key, 20_001))
    assert np.array_equal(np.asarray(draw(key, 20_001)), long)
    assert np.array_equal(np.asarray(draw(key, 777)), long[:777])
    assert not np.array_equal(np.asarray(draw(random.key(43), 777)), long[:777])


def test_distributions() -> None:
    keys = iter(random.split(random.key(2026), 12))
    n = 40_000

    def fits(sample: Any, name: str) -> None:
        assert scipy.stats.kstest(np.asarray(sample), name).pvalue > 1e-3

    for dtype in (np.float64, np.float32):
        u = random.uniform(next(keys), n, dtype=dtype)
        assert u.dtype == dtype
        assert np.asarray(u).min() >= 0
        assert np.asarray(u).max() < 1
        fits(u, "uniform")
        z = random.normal(next(keys), n, dtype=dtype)
        assert z.dtype == dtype
        fits(z, "norm")
    w = np.asarray(random.normal(next(keys), n, dtype=np.complex128))
    fits(w.real * 2**0.5, "norm")
    assert abs(np.mean(w.real * w.imag)) < 0.02
    counts = np.bincount(np.asarray(random.randint(next(keys), n, 0, 7)), minlength=7)
    assert scipy.stats.chisquare(counts).pvalue > 1e-3
    assert abs(np.mean(np.asarray(random.bernoulli(next(keys), 0.2, n))) - 0.2) < 0.01
    # Pairs of neighbours are independent.
    z = np.asarray(random.normal(next(keys), n))
    assert abs(np.corrcoef(z[::2], z[1::2])[0, 1]) < 0.03
    # All orders of four are equally likely.
    orders: dict[tuple[int, ...], int] = {}
    for key in random.split(next(keys), 2400):
        order = tuple(np.asarray(random.permutation(key, 4)).tolist())
        orders[order] = orders.get(order, 0) + 1
    assert len(orders) == 24
    assert scipy.stats.chisquare(list(orders.values())).pvalue > 1e-3


def test_bounds() -> None:
    key = random.key(9)
    low, high = ta.variable(np.array(-2.0)), ta.variable(np.array([1.0, 3.0, 4.0]))
    x = np.asarray(random.uniform(key, 3, minval=-2.0, maxval=4.0))
    u = np.asarray(random.uniform(key, 3))
    assert np.allclose(x, -2 + 6 * u)
    grads = ta.grad(
        lambda a, b: ta.sum(random.uniform(key, 3, minval=a, maxval=b)), (0, 1)
    )(low, high)
    assert np.allclose(np.asarray(grads[0]), np.sum(1 - u))
    assert np.allclose(np.asarray(grads[1]), u)
    extremes = np.asarray(random.randint(key, 200, 254, 256, dtype=np.uint8))
    assert set(extremes.tolist()) == {254, 255}


def test_permutation_of_values() -> None:
    x = np.arange(12.0).reshape(4, 3)
    key = random.key(3)
    order = np.asarray(random.permutation(key, 4))
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert np.array_equal(np.asarray(random.permutation(key, x)), x[order])
    across = np.asarray(random.permutation(key, x, axis=1))
    assert np.array_equal(across, x[:, np.asarray(random.permutation(key, 3))])
    weights = ta.asarray(x)
    grad = ta.grad(lambda v: ta.sum(random.permutation(key, v) * weights))
    assert np.array_equal(np.asarray(grad(ta.variable(x))), x[np.argsort(order)])


def test_a_checkpoint_draws_the_same_again() -> None:
    key = random.key(7)

    def noisy(x: Any) -> Any:
        keep = random.bernoulli(random.fold_in(key, 1), 0.5, x.shape)
        return ta.sum(ta.exp(ta.where(keep, x, 0.0) * random.normal(key, x.shape)))

    x = ta.variable(np.linspace(0, 1, 50))
    plain = np.asarray(ta.grad(noisy)(x))
    assert np.array_equal(plain, np.asarray(ta.grad(ta.checkpoint(noisy))(x)))
    again = ta.grad(ta.checkpoint(noisy, verify="bitwise"))(x)
    assert np.array_equal(plain, np.asarray(again))


def test_refusals() -> None:
    key = random.key(0)
    for bad in (-1, 2**64):
        with pytest.raises(errors.InvalidArgumentError, match="seed"):
            random.key(bad)
    for bad in (0.5, None, True):
        with pytest.raises(errors.DTypeError, match="seed"):
            random.key(bad)
    for bad in (np.zeros(2), np.zeros(3, np.uint32), np.zeros((1, 2), np.uint32)):
        with pytest.raises(errors.ShapeError, match="key"):
            random.normal(bad, 3)
    with pytest.raises(errors.DTypeError, match="bits"):
        random.bits(key, 3, dtype=np.int32)
    with pytest.raises(errors.DTypeError, match="normal"):
        random.normal(key, 3, dtype=np.int32)
    with pytest.raises(errors.InvalidArgumentError, match="shape"):
        random.uniform(key, -1)
    with pytest.raises(errors.InvalidArgumentError, match="maxval"):
        random.randint(key, 3, 5, 5)
    with pytest.raises(errors.InvalidArgumentError, match="minval"):
        random.randint(key, 3, -1, 5, dtype=np.uint8)
    with pytest.raises(errors.InvalidArgumentError, match="0-d"):
        random.permutation(key, np.array(1.0))
    with pytest.raises(errors.IndexRangeError, match="axis 2"):
        random.permutation(key, np.ones((2, 2)), axis=2)


def test_allocations() -> None:
    key = random.key(0)
    with ta.ledger(detail=False) as ledger:
        x = random.normal(key, (3, 4))
    assert sum(ledger.allocations.values()) == 1
    assert ledger.copies == {}
    del x
