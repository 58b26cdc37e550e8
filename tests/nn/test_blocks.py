"""Activations, normalisations, attention, resizing: PyTorch's or JAX's numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors, nn, random

jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(1)
X = RNG.normal(size=(3, 4, 5, 6))


def close(seen: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, tolerance, tolerance)


def agree(f: Callable[..., Any], g: Callable[..., Any], *xs: Any) -> None:
    """Value and all gradients of a weighted sum of sines are those of JAX."""
    out = g(*map(jnp.asarray, xs))
    close(f(*xs), out)
    w = RNG.normal(size=out.shape)
    numbers = tuple(range(len(xs)))
    ours = ta.grad(lambda *v: ta.sum(ta.sin(f(*v)) * ta.asarray(w)), numbers)
    theirs = jax.grad(lambda *v: jnp.sum(jnp.sin(g(*v)) * w), numbers)
    seen = ours(*[ta.variable(x) for x in xs])
    for a, b in zip(seen, theirs(*map(jnp.asarray, xs)), strict=True):
        close(a, b)


# ---- activations ---------------------------------------------------------------------


def test_elu_and_leaky_relu() -> None:
    agree(lambda x: nn.elu(x, alpha=1.7), lambda x: jax.nn.elu(x, 1.7), X)
    agree(
        lambda x: nn.leaky_relu(x, negative_slope=0.2),
        lambda x: jax.nn.leaky_relu(x, 0.2),
        X,
    )


def test_activations_at_the_kink_and_far_out() -> None:
    x = ta.variable(np.array([-1e4, 0.0, 1e4]))
    close(ta.grad(lambda v: ta.sum(nn.elu(v, alpha=0.5)))(x), [0.0, 0.5, 1.0])
    close(ta.grad(lambda v: ta.sum(nn.leaky_relu(v)))(x), [0.01, 0.01, 1.0])
    close(nn.elu(np.array([-1e4, 0.0, 1e4])), [-1.0, 0.0, 1e4])


# ---- normalisations ------------------------------------------------------------------


def test_rms_norm() -> None:
    def theirs(x: Any, w: Any) -> Any:
        squares = jnp.mean(x * x, axis=(1, 3), keepdims=True)
        return x / jnp.sqrt(squares + 1e-3) * w

    weight = RNG.normal(size=(4, 1, 6))
    agree(lambda x, w: nn.rms_norm(x, w, axis=(1, 3), eps=1e-3), theirs, X, weight)
    x = np.array([[3.0, 4.0]], np.float32)
    assert nn.rms_norm(x).dtype == np.float32
    close(nn.rms_norm(x), x / np.sqrt(12.5), 1e-6)
    # At 0 the slope is finite.
    grad = ta.grad(lambda v: ta.sum(nn.rms_norm(v)))(ta.variable(np.zeros(3)))
    assert np.all(np.isfinite(np.asarray(grad)))


def channels(v: Any) -> Any:
    return v.reshape(1, -1, 1, 1)


def test_batch_norm_by_the_batch() -> None:
    def theirs(x: Any, w: Any, b: Any) -> Any:
        mean = jnp.mean(x, (0, 2, 3), keepdims=True)
        variance = jnp.var(x, (0, 2, 3), keepdims=True)
        return (x - mean) / jnp.sqrt(variance + 1e-5) * channels(w) + channels(b)

    weight, bias = RNG.normal(size=(2, 4))

    def ours(x: Any, w: Any, b: Any) -> Any:
        return nn.batch_norm(x, weight=w, bias=b, training=True)

    agree(ours, theirs, X, weight, bias)


def test_batch_norm_by_running_statistics() -> None:
    mean, variance = RNG.normal(size=4), RNG.uniform(0.5, 2, 4)
    agree(
        nn.batch_norm,
        lambda x, m, v: (x - channels(m)) / jnp.sqrt(channels(v) + 1e-5),
        X,
        mean,
        variance,
    )
    new_mean, new_variance = nn.batch_statistics(X, mean, variance, momentum=0.25)
    close(new_mean, 0.75 * mean + 0.25 * X.mean((0, 2, 3)))
    close(new_variance, 0.75 * variance + 0.25 * X.var((0, 2, 3), ddof=1))
    with pytest.raises(errors.InvalidArgumentError, match="training=True"):
        nn.batch_norm(X)
    with pytest.raises(errors.ShapeError, match="4 channels"):
        nn.batch_norm(X, np.zeros(3), np.ones(3))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_group_norm(groups: int) -> None:
    def theirs(x: Any, w: Any, b: Any) -> Any:
        y = x.reshape(3, groups, -1)
        mean, variance = y.mean(2, keepdims=True), y.var(2, keepdims=True)
        y = ((y - mean) / jnp.sqrt(variance + 1e-5)).reshape(x.shape)
        return y * channels(w) + channels(b)

    weight, bias = RNG.normal(size=(2, 4))
    agree(lambda x, w, b: nn.group_norm(x, groups, w, b), theirs, X, weight, bias)
    with pytest.raises(errors.InvalidArgumentError, match="3 groups of 4"):
        nn.group_norm(X, 3)


def test_dropout() -> None:
    key = random.key(5)
    x = np.ones((50, 80))
    y = np.asarray(nn.dropout(x, key, rate=0.25))
    assert set(np.unique(y)) == {0.0, 1 / 0.75}
    assert abs(y.mean() - 1) < 0.05
    close(nn.dropout(x, key, rate=0.25), y)
    close(ta.grad(lambda v: ta.sum(nn.dropout(v, key, rate=0.25)))(ta.variable(x)), y)
    kept = ta.asarray(x)
    assert nn.dropout(kept, key, training=False) is kept
    assert nn.dropout(kept, key, rate=0.0) is kept
    close(nn.dropout(x, key, rate=1.0), np.zeros_like(x))
    with pytest.raises(errors.InvalidArgumentError, match="rate"):
        nn.dropout(x, key, rate=1.5)

    def block(v: Any) -> Any:
        return ta.sum(ta.exp(nn.dropout(v, key, rate=0.25)))

    plain = ta.grad(block)(ta.variable(x))
    again = ta.grad(ta.checkpoint(block, verify="bitwise"))(ta.variable(x))
    assert np.array_equal(np.asarray(plain), np.asarray(again))


# ---- attention -----------------------------------------------------------------------


def attention(q: Any, k: Any, v: Any, *, mask: Any = None, add: Any = 0.0) -> Any:
    scores = q @ jnp.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1]) + add
    if mask is not None:
        scores = jnp.where(mask, scores, -jnp.inf)
    return jax.nn.softmax(scores, -1) @ v


Q, K, V = (RNG.normal(size=s) for s in [(2, 3, 5, 4), (2, 3, 6, 4), (2, 3, 6, 7)])
SEEN = RNG.integers(0, 2, (3, 5, 6)).astype(bool) | np.eye(5, 6, dtype=bool)


def test_attention_is_jaxs() -> None:
    ours = nn.scaled_dot_product_attention
    agree(ours, attention, Q, K, V)
    agree(
        lambda q, k, v: ours(q, k, v, SEEN),
        lambda q, k, v: attention(q, k, v, mask=SEEN),
        Q,
        K,
        V,
    )
    causal = np.tri(5, 6, dtype=bool)
    agree(
        lambda q, k, v: ours(q, k, v, is_causal=True),
        lambda q, k, v: attention(q, k, v, mask=causal),
        Q,
        K,
        V,
    )
    agree(
        lambda q, k, v: ours(q, k, v, SEEN, is_causal=True),
        lambda q, k, v: attention(q, k, v, mask=causal & SEEN),
        Q,
        K,
        V,
    )
    added = RNG.normal(size=(5, 6))
    agree(
        lambda q, k, v, a: ours(q, k, v, a),
        lambda q, k, v, a: attention(q, k, v, add=a),
        Q,
        K,
        V,
        added,
    )
    close(ours(Q, K, V, scale=0.5), attention(Q, K * 0.5 * 2.0, V))


def test_a_query_that_sees_nothing_gives_zeros_with_slope_zero() -> None:
    mask = np.array([[True, True], [False, False]])
    q, k, v = RNG.normal(size=(3, 2, 2))
    out = np.asarray(nn.scaled_dot_product_attention(q, k, v, mask))
    assert not np.any(out[1])
    grads = ta.grad(
        lambda *xs: ta.sum(ta.square(nn.scaled_dot_product_attention(*xs, mask))),
        (0, 1, 2),
    )(*[ta.variable(x) for x in (q, k, v)])
    assert all(np.all(np.isfinite(np.asarray(g))) for g in grads)
    assert not np.any(np.asarray(grads[0])[1])


# ---- pooling to a size, interpolation ------------------------------------------------


@pytest.mark.parametrize("size", [(2, 3), (5, 4), (1, 1), (7, 6)])
def test_adaptive_pooling(size: tuple[int, int]) -> None:
    def windows(n: int, k: int) -> list[slice]:
        return [slice(i * n // k, -(-(i + 1) * n // k)) for i in range(k)]

    def pooled(x: Any, reduce: Any) -> Any:
        rows = [
            jnp.stack([reduce(x[..., a, b], (-2, -1)) for b in windows(6, size[1])], -1)
            for a in windows(5, size[0])
        ]
        return jnp.stack(rows, -2)

    agree(lambda x: nn.adaptive_max_pool(x, size), lambda x: pooled(x, jnp.max), X)
    agree(lambda x: nn.adaptive_avg_pool(x, size), lambda x: pooled(x, jnp.mean), X)


def test_interpolation() -> None:
    x = np.array([[[1.0, 2.0, 4.0]]])
    close(nn.interpolate(x, 6), [[[1, 1, 2, 2, 4, 4]]])
    close(nn.interpolate(x, 2), [[[1, 2]]])
    close(nn.interpolate(x, 6, mode="linear"), [[[1, 1.25, 1.75, 2.5, 3.5, 4]]])
    corners = nn.interpolate(x, 5, mode="linear", align_corners=True)
    close(corners, [[[1, 1.5, 2, 3, 4]]])
    for size in [(10, 12), (5, 3), (9, 7)]:

        def theirs(v: Any, size: Any = size) -> Any:
            shape = (*v.shape[:2], *size)
            return jax.image.resize(v, shape, "linear", antialias=False)

        agree(lambda v, s=size: nn.interpolate(v, s, mode="linear"), theirs, X)
    with pytest.raises(errors.InvalidArgumentError, match="mode"):
        nn.interpolate(x, 6, mode="lanczos")
    with pytest.raises(errors.InvalidArgumentError, match="size"):
        nn.adaptive_avg_pool(x, 0)
