"""Quantiles, medians and uneven parts against NumPy and JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors

jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(3)
X = RNG.permutation(60).reshape(3, 4, 5) * 0.25 - 7.0
METHODS = ["linear", "lower", "higher", "nearest", "midpoint"]


def close(seen: Any, wanted: Any) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, 1e-13, 1e-13)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 2), (1, 0)], ids=str)
@pytest.mark.parametrize("q", [0, 1.0, 0.3, [0.25, 0.5], [[0.1], [0.9]]], ids=str)
def test_quantiles_are_those_of_numpy(q: Any, axis: Any, method: Any) -> None:
    for keepdims in (False, True):
        how = {"axis": axis, "method": method, "keepdims": keepdims}
        close(ta.quantile(X, q, **how), np.quantile(X, q, **how))


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_jax(method: Any) -> None:
    q, w = np.array([0.0, 0.37, 0.8]), RNG.standard_normal((3, 4))

    def loss(xp: Any) -> Any:
        return lambda x: xp.sum(xp.quantile(x, q, axis=(0, 2), method=method) ** 2 * w)

    close(ta.grad(loss(ta))(X), jax.grad(loss(jnp))(jnp.asarray(X)))
    ta.testing.check_grads(
        lambda x: ta.sin(ta.quantile(x, q, axis=0, method=method)), (X,), order=2
    )


def test_medians_and_their_gradients() -> None:
    close(ta.median(X), np.median(X))
    close(ta.median(X, axis=1), np.median(X, axis=1))
    close(ta.median(X, axis=(0, 2), keepdims=True), np.median(X, (0, 2), keepdims=True))
    g = ta.grad(ta.median)(np.array([4.0, 1.0, 3.0, 9.0]))
    assert g.tolist() == [0.5, 0.0, 0.5, 0.0]
    assert ta.median(np.array([1, 2], np.int32)).dtype == np.float64
    assert ta.median(X.astype("f4")).dtype == np.float32
    views = ta.asarray(X).mT[::-1]
    close(ta.median(views, axis=2), np.median(np.swapaxes(X, 1, 2)[::-1], axis=2))
    with ta.ledger() as led:
        ta.median(views, axis=2)
    assert led.copies == {}


def test_infinities_stay_and_one_nan_is_all_there_is() -> None:
    x = np.array([[-np.inf, 1.0, 2.0], [1.0, np.inf, np.inf], [np.nan, 1.0, 2.0]])
    seen = ta.quantile(x, [0.0, 0.25, 0.75], axis=1).numpy()
    wanted = [[-np.inf, 1.0, np.nan], [-np.inf, np.inf, np.nan], [1.5, np.inf, np.nan]]
    np.testing.assert_array_equal(seen, wanted)


def test_refusals() -> None:
    wrong: list[tuple[Any, Any, str]] = [
        (lambda: ta.quantile(X, 50), errors.InvalidArgumentError, "q"),
        (lambda: ta.quantile(X, [0.5, np.nan]), errors.InvalidArgumentError, "q"),
        (lambda: ta.quantile(X, 0.5, method="x"), errors.InvalidArgumentError,
         "method"),
        (lambda: ta.quantile(X + 0j, 0.5), errors.DTypeError, "x"),
        (lambda: ta.quantile(np.ones((0, 3)), 0.5, axis=0),
         errors.InvalidArgumentError, "x"),
        (lambda: ta.quantile(X, 0.5, axis=3), errors.IndexRangeError, "axis"),
    ]  # fmt: skip
    for call, kind, argument in wrong:
        with pytest.raises(kind) as caught:
            call()
        assert (caught.value.operation, caught.value.argument) == ("quantile", argument)
        del caught
    with pytest.raises(errors.IndexRangeError) as range_error:
        ta.median(X, axis=3)
    assert range_error.value.operation == "median"
    with pytest.raises(errors.TracedConversionError):
        ta.grad(lambda q: ta.quantile(X, q))(0.5)


@pytest.mark.parametrize("parts", [1, 2, 3, 7, [1, 3], [0, 0, 3]], ids=str)
def test_uneven_parts_are_those_of_numpy(parts: Any) -> None:
    for axis in (0, 1, -1):
        seen, wanted = (xp.array_split(X, parts, axis=axis) for xp in (ta, np))
        assert len(seen) == len(wanted)
        for a, b in zip(seen, wanted, strict=True):
            close(a, b)
    x = ta.asarray(X)
    with ta.ledger() as led:
        ta.array_split(x, parts, axis=1)
    assert not led.allocations
    ta.testing.check_grads(
        lambda x: [ta.sin(p) for p in ta.array_split(x, parts, axis=1)], (X,), order=2
    )
    with pytest.raises(errors.InvalidArgumentError) as caught:
        ta.array_split(X, 0)
    assert caught.value.operation == "array_split"
