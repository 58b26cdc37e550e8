"""Kernels give IEEE results and say nothing, whatever NumPy's error state is.

The policy of PyTorch and JAX, and the same on every lane. The suite turns warnings into
errors, and here NumPy's own state raises too; it belongs to the user's NumPy code and
is the same afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import loud, quiet


@pytest.fixture(autouse=True)
def numpy_raises() -> Iterator[None]:
    with np.errstate(all="raise"):
        yield


X = ta.asarray([0.0, -1.0, 1e300, 2.0])
HALF = ta.asarray(np.array([1.0, -2.0], np.float16))
SINGLE = ta.asarray(np.array([1e38, 1e-45, -1.0], np.float32))

VALUES: dict[str, tuple[Callable[[], Any], list[float]]] = {
    "division": (lambda: 1.0 / X, [np.inf, -1.0, 1e-300, 0.5]),
    "logarithm": (lambda: ta.log(X)[:2], [-np.inf, np.nan]),
    "root": (lambda: ta.sqrt(X)[1:2], [np.nan]),
    "overflow": (lambda: (X * X)[2:], [np.inf, 4.0]),
    "overflow of an exponential": (lambda: ta.exp(X)[2:3], [np.inf]),
    "infinity less infinity": (lambda: (1 / X - 1 / X)[:1], [np.nan]),
    "a sum": (lambda: ta.sum(ta.stack([X * 1e8, X * 1e8]), axis=0)[2:3], [2e308]),
    "a product of matrices": (lambda: (X[None] * 1e8) @ (X[:, None] * 1e8), [np.inf]),
    "a power": (lambda: ta.pow(X, -1.5)[:2], [np.inf, np.nan]),
    "a cast": (lambda: ta.astype(X, ta.float32)[2:3], [np.inf]),
    "single precision": (lambda: SINGLE * 1e10, [np.inf, 1.4013e-35, -1e10]),
    "a library call": (lambda: ta.linalg.inv(ta.asarray([[1e-320]])), [np.inf]),
    "a determinant": (
        lambda: ta.linalg.slogdet(ta.asarray([[0.0]])).logabsdet,
        [-np.inf],
    ),
    "a variance": (lambda: ta.var(ta.asarray([1.0]), correction=1.0), [np.nan]),
    "a number that a half cannot hold": (lambda: HALF * 1e10, [np.inf, -np.inf]),
    "a bound that a half cannot hold": (lambda: ta.clip(HALF, -1.0, 1e10), [1, -1]),
    "a literal that a half cannot hold": (
        lambda: ta.fused(lambda E, x: x + 1e10)(HALF),
        [np.inf, np.inf],
    ),
    "outside numbers": (lambda: ta.asarray([-1e10, 1], dtype="float16"), [-np.inf, 1]),
    "outside data": (lambda: ta.asarray(np.array([1e300]), dtype="float32"), [np.inf]),
    "a special function": (lambda: ta.special.gammaln(X)[:1], [np.inf]),
}


def same(seen: Any, wanted: Any) -> None:
    np.testing.assert_allclose(np.asarray(seen).reshape(-1), wanted, 1e-4)


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    call, wanted = VALUES[name]
    same(call(), wanted)
    same(ta.checkpoint(call)(), wanted)


def roots(x: Any) -> Any:
    return ta.sum(ta.where(x > 0, ta.sqrt(x), x))


def test_derivatives_of_every_kind() -> None:
    x = np.array([-1.0, -4.0, 0.0, 4.0])
    wanted = [1.0, 1.0, 1.0, 0.25]
    same(ta.grad(roots)(x), wanted)
    same(ta.grad(ta.checkpoint(roots))(x), wanted)
    same(ta.jvp(roots, (x,), (np.array([1.0, 1.0, 1.0, 4.0]),))[1], [4.0])
    w = ta.variable(x)
    with ta.Tape() as tape:
        loss = ta.sum(ta.log(w) * ta.sqrt(w))
    tape.backward(loss, retain=True)
    tape.backward(loss, strong_zero=True)
    same(ta.hvp(lambda x: ta.sum(1.0 / x), (np.array([0.0]),), (np.array([1.0]),))[1],
         [np.inf])  # fmt: skip
    same(ta.vmap(lambda x: 1.0 / x)(np.array([0.0])), [np.inf])


def test_compiled_programs_and_updates_in_place() -> None:
    step = ta.compile(lambda x: (1.0 / x, ta.grad(roots)(x)))
    for _ in range(2):
        value, g = step(ta.asarray([0.0, -1.0]))
        same(value, [np.inf, -1.0])
        same(g, [1.0, 1.0])
    owner = (ta.asarray([1.0, -2.0]) * 1.0).into_value()
    divided = ta.fused(lambda E, x, y: x / y)
    with owner.as_view_mut() as view:
        ta.update(view, divided, 0.0)
    with owner.as_view() as view:
        same(view.numpy(), [np.inf, -np.inf])
    same(divided(ta.asarray([-1.0]), 0.0), [-np.inf])
    half = HALF.duplicate_value()
    with half.as_view_mut() as view:
        view.fill(1e10)
    same(half.numpy(), [np.inf, np.inf])


def test_every_lane_says_nothing(lane: Any) -> None:
    x = ta.asarray([0.0, -1.0], device=lane)
    y = 1.0 / x
    z = ta.sqrt(x)
    same(y.to("cpu"), [np.inf, -1.0])
    same(z.to("cpu"), [0.0, np.nan])


def test_the_users_state_is_untouched() -> None:
    before = np.geterr()
    ta.grad(roots)(np.array([-1.0, 0.0]))
    with pytest.raises(ta.errors.ShapeError):
        ta.asarray([0.0, 1.0]) / ta.asarray([0.0, 1.0, 2.0])
    assert np.geterr() == before
    with pytest.raises(FloatingPointError):
        np.divide(1.0, np.zeros(1))
    token = quiet()
    try:
        assert np.geterr() == dict.fromkeys(before, "ignore")
        assert np.divide(1.0, np.zeros(1))[0] == np.inf
    finally:
        loud(token)
    assert np.geterr() == before


def test_an_interrupted_kernel_leaves_the_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from tenferro_ad.backends import CPU

    before = np.geterr()
    big = ta.asarray(np.ones(100_000))
    CPU.limit = 1
    try:
        with pytest.raises(MemoryError):
            big * 2.0
    finally:
        CPU.limit = None
    assert np.geterr() == before
