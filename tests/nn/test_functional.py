"""Network functions: values, derivatives and refusals, against SciPy and JAX."""

import numpy as np
import pytest
from scipy import special

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.errors import (
    DTypeError,
    IndexRangeError,
    InvalidArgumentError,
    ShapeError,
)

RNG = np.random.default_rng(0)
X = RNG.standard_normal((5, 4, 3))
CLASSES = RNG.integers(0, 4, (5, 3))


def losses(x, target):
    """Cross-entropy with the classes on axis 1."""
    return -np.take_along_axis(special.log_softmax(x, 1), target[:, None], 1)[:, 0]


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    assert np.abs(a - b).max() <= tolerance * max(1.0, np.abs(b).max())


@pytest.mark.parametrize(
    ("reduction", "reduce"), [("none", lambda v: v), ("sum", np.sum), ("mean", np.mean)]
)
def test_cross_entropy_and_nll(reduction, reduce):
    expected = reduce(losses(X, CLASSES))
    close(nn.cross_entropy(X, CLASSES, reduction=reduction), expected)
    close(
        nn.nll_loss(special.log_softmax(X, 1), CLASSES, reduction=reduction), expected
    )
    turned = np.moveaxis(X, 1, -1)
    close(nn.cross_entropy(turned, CLASSES, axis=-1, reduction=reduction), expected)


def test_cross_entropy_of_one_sample_and_of_probabilities():
    close(
        nn.cross_entropy(X[0, :, 0], np.array(2)), -special.log_softmax(X[0, :, 0])[2]
    )
    p = special.softmax(RNG.standard_normal(X.shape), 1)
    expected = -(p * special.log_softmax(X, 1)).sum(1).mean()
    close(nn.cross_entropy(X, p), expected)


def test_cross_entropy_stays_finite_for_large_logits():
    x = np.array([[1000.0, -1000.0], [0.0, 1e4]])
    close(nn.cross_entropy(x, np.array([1, 1])), 1000.0)


def test_cross_entropy_derivatives_agree_with_jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    jnp = jax.numpy

    def reference(x):
        picked = jnp.take_along_axis(jax.nn.log_softmax(x, 1), CLASSES[:, None], 1)
        return -picked.mean()

    def ours(x):
        return nn.cross_entropy(x, CLASSES)

    t, u = RNG.standard_normal((2, *X.shape))
    close(ta.grad(ours)(ta.asarray(X)), jax.grad(reference)(X))
    _, tangent = ta.jvp(ours, (ta.asarray(X),), (ta.asarray(t),))
    close(tangent, jax.jvp(reference, (X,), (t,))[1])

    def hvp(grad, jvp, x, t):
        return jvp(grad, (x,), (t,))[1]

    close(
        hvp(ta.grad(ours), ta.jvp, ta.asarray(X), ta.asarray(t)),
        hvp(jax.grad(reference), jax.jvp, X, t),
    )

    # Third order, reverse over reverse over reverse.
    def directional(grad, total):
        inner = lambda x: total(grad(x) * t)
        return lambda x: total(_grad_of(inner, x) * u)

    def _grad_of(f, x):
        return ta.grad(f)(x) if isinstance(x, ta.EagerTensor) else jax.grad(f)(x)

    mine = ta.grad(directional(ta.grad(ours), ta.sum))(ta.asarray(X))
    close(mine, jax.grad(directional(jax.grad(reference), jnp.sum))(X))


def test_cross_entropy_keeps_logits_and_targets_only():
    x, target = ta.variable(X), ta.asarray(CLASSES)
    with ta.ledger() as led:
        with ta.Tape() as tape:
            loss = nn.cross_entropy(x, target)
        kept = tape.retained()
        tape.backward(loss)
    assert {k.operation for k in kept} == {"cross_entropy"}
    assert sum(k.nbytes for k in kept) == x.nbytes + target.nbytes
    # Losses and their mean; seed, its share and the gradient.
    led.expect(allocations={"OperationOutput": 5}, copies={})


def test_losses_refuse_what_does_not_fit():
    with ta.ledger() as led:
        x = ta.asarray(X)
        before = led.live_bytes
        with pytest.raises(IndexRangeError, match="classes from"):
            nn.cross_entropy(x, CLASSES + 1)
        assert led.live_bytes == before
    with pytest.raises(ShapeError, match="target"):
        nn.cross_entropy(X, CLASSES[:2])
    with pytest.raises(DTypeError, match="target"):
        nn.cross_entropy(X, CLASSES.astype(float))
    with pytest.raises(DTypeError, match="logits"):
        nn.cross_entropy(X + 0j, CLASSES)
    with pytest.raises(IndexRangeError, match="axis"):
        nn.cross_entropy(X, CLASSES, axis=3)
    for fn, target in ((nn.cross_entropy, CLASSES), (nn.mse_loss, X)):
        with pytest.raises(InvalidArgumentError, match="reduction"):
            fn(X, target, reduction="median")


def test_mse_loss():
    y = RNG.standard_normal(X.shape)
    close(nn.mse_loss(X, y), np.mean((X - y) ** 2))
    close(
        nn.mse_loss(X + 1j * y, y, reduction="sum"), np.sum(np.abs(X + 1j * y - y) ** 2)
    )
    x = ta.variable(X)
    with ta.Tape() as tape:
        loss = nn.mse_loss(x, y, reduction="sum")
    close(tape.backward(loss).grad(x).numpy(), 2 * (X - y))


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        (nn.relu, lambda x: np.maximum(x, 0)),
        (nn.gelu, lambda x: x * special.ndtr(x)),
        (
            lambda x: nn.gelu(x, approximate="tanh"),
            lambda x: (
                0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
            ),
        ),
        (nn.silu, lambda x: x * special.expit(x)),
        (nn.softplus, lambda x: np.logaddexp(x, 0)),
    ],
    ids=["relu", "gelu", "gelu_tanh", "silu", "softplus"],
)
def test_activations(fn, expected):
    close(fn(X), expected(X))
    t = RNG.standard_normal(X.shape)
    _, tangent = ta.jvp(fn, (ta.asarray(X),), (ta.asarray(t),))
    step = (expected(X + 1e-6 * t) - expected(X - 1e-6 * t)) / 2e-6
    close(tangent, step, 1e-7)
    x = ta.variable(X)
    with ta.Tape() as tape:
        y = fn(x)
    assert len(tape.retained()) == 1
    g = tape.backward(y, cotangent=t).grad(x).numpy()
    close(np.sum(g * t), np.sum(t * np.asarray(tangent)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_gelu_is_straight_far_out(dtype):
    """Where the cube of the argument, or its slope, is more than the dtype holds."""
    far = np.finfo(dtype).max / 8

    def gelu(x):
        return ta.sum(nn.gelu(x, approximate="tanh"))

    x = ta.asarray(np.array([-far, -200.0, 200.0, far], dtype))
    assert np.asarray(ta.grad(gelu)(x)).tolist() == [0.0, 0.0, 1.0, 1.0]
    _, curve = ta.hvp(gelu, (x,), (ta.ones_like(x),))
    assert np.asarray(curve).tolist() == [0.0] * 4


def test_gelu_refuses_an_unknown_approximation():
    with pytest.raises(InvalidArgumentError, match="approximate"):
        nn.gelu(X, approximate="fast")


def test_layer_norm():
    w, b = RNG.standard_normal((2, 3))
    centred = X - X.mean(-1, keepdims=True)
    expected = centred / np.sqrt(X.var(-1, keepdims=True) + 1e-5)
    close(nn.layer_norm(X), expected)
    close(nn.layer_norm(X, w, b), expected * w + b)
    every = (X - X.mean((1, 2), keepdims=True)) / np.sqrt(
        X.var((1, 2), keepdims=True) + 1e-3
    )
    close(nn.layer_norm(X, axis=(1, 2), eps=1e-3), every)


def test_linear():
    w, b = RNG.standard_normal((6, 3)), RNG.standard_normal(6)
    close(nn.linear(X, w), X @ w.T)
    close(nn.linear(X, w, b), X @ w.T + b)


def test_embedding_gradients_accumulate():
    table = ta.variable(RNG.standard_normal((6, 2)))
    indices = np.array([[1, 1, 4], [0, 1, 5]])
    with ta.Tape() as tape:
        rows = nn.embedding(table, indices)
    assert rows.shape == (2, 3, 2)
    ct = RNG.standard_normal((2, 3, 2))
    expected = np.zeros((6, 2))
    np.add.at(expected, indices, ct)
    close(tape.backward(rows, cotangent=ct).grad(table).numpy(), expected)
    with pytest.raises(IndexRangeError):
        nn.embedding(table, np.array([6]))
    with pytest.raises(DTypeError):
        nn.embedding(table, np.array([0.5]))
