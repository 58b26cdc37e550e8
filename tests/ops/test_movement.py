"""Movement: NumPy's values, JAX's derivatives, and no bytes where none are due."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors

jax.config.update("jax_enable_x64", True)

DTYPES = [np.float64, np.complex64]  # against JAX; the others against these
RNG = np.random.default_rng(7)


def sample(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    values = RNG.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.normal(size=shape)
    return np.asarray(values).astype(dtype)


def close(got: Any, want: Any) -> None:
    got, want = np.asarray(got), np.asarray(want)
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    tol = 2e-5 if got.dtype.itemsize <= 8 and got.dtype.kind in "fc" else 1e-10
    np.testing.assert_allclose(got, want, rtol=tol, atol=tol)


def agree(f: Callable[..., Any], g: Callable[..., Any], *xs: np.ndarray) -> None:
    """Value, VJP, JVP and the derivative of a VJP of `f` are those of JAX's `g`."""
    out, back = jax.vjp(g, *map(jnp.asarray, xs))
    vs = [ta.variable(x) for x in xs]
    with ta.Tape() as tape:
        y = f(*vs)
    ct = sample(out.shape, out.dtype)
    grads = tape.backward(y, cotangent=ta.asarray(ct))
    with y.value() as v:
        close(v.numpy(), out)
    for v, want in zip(vs, back(jnp.conj(ct)), strict=True):
        close(grads.grad(v).numpy(), jnp.conj(want))
    ts = [sample(x.shape, x.dtype) for x in xs]
    _, got = ta.jvp(f, xs, ts)
    close(got.numpy(), jax.jvp(g, tuple(map(jnp.asarray, xs)), tuple(ts))[1])
    if all(x.dtype == np.float64 for x in xs):
        # The derivative of a VJP.
        def loss(*vs: Any) -> Any:
            y = f(*vs)
            return ta.sum(y * y * y)

        def wanted(*vs: Any) -> Any:
            return jnp.sum(g(*vs) ** 3)

        n = tuple(range(len(xs)))
        _, got = ta.hvp(loss, xs, ts)
        _, want = jax.jvp(jax.grad(wanted, n), xs, tuple(ts))
        for a, b in zip(got if len(xs) > 1 else (got,), want, strict=True):
            close(a.numpy(), b)


# name: (function of the tensor, the same in JAX, shape, is a view)
UNARY: dict[str, tuple[Any, Any, tuple[int, ...], bool]] = {
    "reshape": (
        lambda x: ta.reshape(x, (3, -1)),
        lambda x: jnp.reshape(x, (3, -1)),
        (2, 3, 2),
        True,
    ),
    "reshape to 0-d": (
        lambda x: ta.reshape(x, ()),
        lambda x: x.reshape(()),
        (1, 1),
        True,
    ),
    "reshape empty": (
        lambda x: ta.reshape(x, (3, 0)),
        lambda x: x.reshape((3, 0)),
        (0, 2),
        True,
    ),
    "permute_dims": (
        lambda x: ta.permute_dims(x, (2, 0, -2)),
        lambda x: jnp.transpose(x, (2, 0, 1)),
        (2, 3, 4),
        True,
    ),
    "matrix_transpose": (ta.matrix_transpose, lambda x: x.mT, (2, 3, 4), True),
    "moveaxis": (
        lambda x: ta.moveaxis(x, (0, 1), (-1, 0)),
        lambda x: jnp.moveaxis(x, (0, 1), (-1, 0)),
        (2, 3, 4),
        True,
    ),
    "swapaxes": (
        lambda x: ta.swapaxes(x, 0, -1),
        lambda x: jnp.swapaxes(x, 0, -1),
        (2, 3, 4),
        True,
    ),
    "expand_dims": (
        lambda x: ta.expand_dims(x, axis=(0, -1)),
        lambda x: jnp.expand_dims(x, (0, -1)),
        (2, 3),
        True,
    ),
    "expand_dims 0-d": (
        lambda x: ta.expand_dims(x),
        lambda x: jnp.expand_dims(x, 0),
        (),
        True,
    ),
    "squeeze": (
        lambda x: ta.squeeze(x, axis=(0, -1)),
        lambda x: jnp.squeeze(x, (0, -1)),
        (1, 3, 1),
        True,
    ),
    "broadcast_to": (
        lambda x: ta.broadcast_to(x, (2, 3, 4)),
        lambda x: jnp.broadcast_to(x, (2, 3, 4)),
        (3, 1),
        True,
    ),
    "broadcast flipped": (
        lambda x: ta.broadcast_to(ta.flip(x), (2, 3)),
        lambda x: jnp.broadcast_to(x[::-1], (2, 3)),
        (3,),
        True,
    ),
    "flip": (
        lambda x: ta.flip(x, axis=1),
        lambda x: jnp.flip(x, 1),
        (2, 3),
        True,
    ),
    "flip all": (ta.flip, jnp.flip, (2, 3), True),
    "diagonal": (
        lambda x: ta.diagonal(x, offset=1, axis1=2, axis2=0),
        lambda x: jnp.diagonal(x, 1, 2, 0),
        (3, 2, 4),
        True,
    ),
    "diag of matrix": (
        lambda x: ta.diag(x, k=-1),
        lambda x: jnp.diag(x, -1),
        (3, 4),
        True,
    ),
    "diag of vector": (
        lambda x: ta.diag(x, k=2),
        lambda x: jnp.diag(x, 2),
        (3,),
        False,
    ),
    "split": (
        lambda x: ta.split(x, [1, -2], axis=1)[1],
        lambda x: jnp.split(x, [1, 3], axis=1)[1],
        (2, 5),
        True,
    ),
    "all parts": (
        lambda x: ta.concat(ta.split(x, 3, axis=0)[::-1]),
        lambda x: jnp.concatenate(jnp.split(x, 3)[::-1]),
        (6, 2),
        False,
    ),
    "some parts": (
        lambda x: ta.concat(ta.split(x, 3, axis=0)[:2]),
        lambda x: jnp.concatenate(jnp.split(x, 3)[:2]),
        (6, 2),
        False,
    ),
    "unstack": (
        lambda x: ta.unstack(x, axis=-1)[2],
        lambda x: x[..., 2],
        (2, 3),
        True,
    ),
    "roll": (
        lambda x: ta.roll(x, (1, -2), axis=(0, 1)),
        lambda x: jnp.roll(x, (1, -2), (0, 1)),
        (3, 4),
        False,
    ),
    "roll flat": (
        lambda x: ta.roll(x, 2),
        lambda x: jnp.roll(x, 2),
        (3, 4),
        False,
    ),
    "roll repeated axis": (
        lambda x: ta.roll(x, (1, 4), axis=(0, 0)),
        lambda x: jnp.roll(x, (1, 4), (0, 0)),
        (3, 2),
        False,
    ),
    "roll empty": (
        lambda x: ta.roll(x, 1, axis=0),
        lambda x: jnp.roll(x, 1, 0),
        (0, 2),
        False,
    ),
    "tile": (
        lambda x: ta.tile(x, (2, 1, 3)),
        lambda x: jnp.tile(x, (2, 1, 3)),
        (2, 3),
        False,
    ),
    "repeat": (
        lambda x: ta.repeat(x, 3, axis=0),
        lambda x: jnp.repeat(x, 3, 0),
        (2, 3),
        False,
    ),
    "repeat flat": (
        lambda x: ta.repeat(x, 2),
        lambda x: jnp.repeat(x, 2),
        (2, 3),
        False,
    ),
    "tril": (
        lambda x: ta.tril(x, k=-1),
        lambda x: jnp.tril(x, -1),
        (2, 3, 4),
        False,
    ),
    "triu": (lambda x: ta.triu(x, k=1), lambda x: jnp.triu(x, 1), (3, 4), False),
    "pad": (
        lambda x: ta.pad(x, ((1, 2), (0, 1)), constant_values=2),
        lambda x: jnp.pad(x, ((1, 2), (0, 1)), constant_values=2),
        (2, 3),
        False,
    ),
    **{
        f"pad {mode}": (
            lambda x, mode=mode: ta.pad(x, ((1, 2), (2, 0)), mode),
            lambda x, mode=mode: jnp.pad(x, ((1, 2), (2, 0)), mode),
            (3, 3),
            False,
        )
        for mode in ("edge", "reflect", "symmetric", "wrap")
    },
}


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("dtype", DTYPES)
def test_value_and_derivatives(name: str, dtype: Any) -> None:
    f, g, shape, _ = UNARY[name]
    agree(f, g, sample(shape, dtype))


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize(
    "pair", [(np.float64, np.float32), (np.complex64, np.complex128)]
)
def test_other_precisions(name: str, pair: tuple[Any, Any]) -> None:
    f, _, shape, _ = UNARY[name]
    x = sample(shape, pair[0])
    results = []
    for dtype in pair:
        v = ta.variable(x.astype(dtype))
        with ta.Tape() as tape:
            y = f(v)
        ct = np.arange(y.size).reshape(y.shape).astype(dtype)
        grad = tape.backward(y, cotangent=ct).grad(v).numpy()
        _, tangent = ta.jvp(f, (x.astype(dtype),), (x.astype(dtype),))
        assert y.dtype == grad.dtype == tangent.dtype == dtype
        results.append((grad, tangent.numpy()))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", UNARY)
def test_integers_and_booleans(name: str) -> None:
    f, g, shape, _ = UNARY[name]
    for dtype in (np.int64, np.uint8):
        x = RNG.integers(0, 100, shape).astype(dtype)
        np.testing.assert_array_equal(f(ta.asarray(x)).numpy(), g(jnp.asarray(x)))
    x = RNG.random(shape) > 0.5
    assert f(ta.asarray(x)).dtype == np.bool_


@pytest.mark.parametrize("name", [n for n, row in UNARY.items() if row[3]])
def test_views_allocate_and_copy_nothing(name: str) -> None:
    f, _, shape, _ = UNARY[name]
    x = ta.asarray(sample(shape, np.float64))
    with ta.ledger() as led:
        y = f(x)
    assert not led.allocations
    assert not led.copies
    if y.size:
        assert np.shares_memory(y.numpy(), x.numpy())


def test_derivatives_of_one_to_one_views_are_views() -> None:
    x = ta.variable(sample((2, 3, 1), np.float64))
    with ta.Tape() as tape:
        y = ta.expand_dims(ta.squeeze(ta.flip(x, axis=0), axis=-1), axis=0)
        y = ta.permute_dims(y, (2, 0, 1))
    ct = ta.asarray(sample(y.shape, np.float64))
    with ta.ledger() as led:
        grads = tape.backward(y, cotangent=ct)
    assert led.allocations == {"OperationOutput": 1}  # the gradient's own buffer
    assert not led.copies
    want = np.flip(ct.numpy().transpose(1, 2, 0)[0], 0)[:, :, None]
    np.testing.assert_array_equal(grads.grad(x).numpy(), want)


# ---- copies --------------------------------------------------------------------------


def test_reshape_copies_only_as_told() -> None:
    x = ta.permute_dims(ta.asarray(np.arange(6.0).reshape(2, 3)), (1, 0))
    with ta.ledger() as led:
        flat = ta.reshape(x, (-1,))
    assert led.copies == {"ExplicitDuplicate": 1}
    assert flat.tolist() == [0, 3, 1, 4, 2, 5]
    with pytest.raises(errors.InvalidArgumentError, match="copy=None"):
        ta.reshape(x, (-1,), copy=False)
    base = ta.asarray(np.arange(6.0))
    with ta.ledger() as led:
        ta.reshape(base, (2, 3), copy=False)
    assert not led.copies
    with ta.ledger() as led:
        made = ta.reshape(base, (2, 3), copy=True)
    assert led.copies == {"ExplicitDuplicate": 1}
    assert sum(led.allocations.values()) == 1
    assert not np.shares_memory(made.numpy(), base.numpy())


def test_reshape_with_copy_stays_differentiable() -> None:
    x = ta.variable(np.arange(4.0))
    with ta.Tape() as tape:
        loss = ta.sum(ta.reshape(x, (2, 2), copy=True) * 3.0)
    assert tape.backward(loss).grad(x).numpy().tolist() == [3, 3, 3, 3]


def test_backward_of_a_view_never_copies() -> None:
    # The cotangent of the reshape is a transposed array: its strides cannot express the
    # flat shape, though the program itself copies nothing.
    x = ta.variable(np.arange(6.0))
    w = ta.asarray(sample((3, 2), np.float64))
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = ta.permute_dims(ta.reshape(x, (2, 3)), (1, 0))
            loss = ta.sum(y * w)
        grads = tape.backward(loss)
    assert not led.copies
    np.testing.assert_array_equal(grads.grad(x).numpy(), w.numpy().T.ravel())


def test_parts_share_their_backward() -> None:
    x = ta.variable(np.arange(12.0).reshape(6, 2))
    with ta.Tape() as tape:
        parts = ta.unstack(x)
        loss = ta.sum(ta.stack([p * float(k) for k, p in enumerate(parts)]))
    with ta.ledger() as led:
        grads = tape.backward(loss)
    assert not led.copies
    want = np.repeat(np.arange(6.0), 2).reshape(6, 2)
    np.testing.assert_array_equal(grads.grad(x).numpy(), want)
    # Seed, one product for each part, one concat of the parts.
    assert sum(led.allocations.values()) == 1 + 6 + 1


# ---- joining -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_joining(dtype: Any) -> None:
    a, b, c = (sample((2, n), dtype) for n in (3, 1, 2))
    agree(
        lambda *xs: ta.concat(xs, axis=-1),
        lambda *xs: jnp.concatenate(xs, -1),
        *(a, b, c),
    )
    agree(
        lambda *xs: ta.concat(xs, axis=None),
        lambda *xs: jnp.concatenate(xs, None),
        *(a, b),
    )
    d = sample((2, 3), dtype)
    agree(lambda *xs: ta.stack(xs, axis=1), lambda *xs: jnp.stack(xs, 1), *(a, d, d))
    agree(lambda *xs: ta.hstack(xs), lambda *xs: jnp.hstack(xs), *(a, b))
    agree(lambda *xs: ta.vstack(xs), lambda *xs: jnp.vstack(xs), *(a, a[0]))


def test_one_value_joined_to_itself() -> None:
    x = sample((2, 3), np.float64)
    agree(lambda x: ta.concat([x, x, x]), lambda x: jnp.concatenate([x, x, x]), x)


def test_concat_promotes_and_gives_each_its_own_dtype_back() -> None:
    x, z = ta.variable(np.ones(2, np.float32)), ta.variable(np.ones(1, np.complex128))
    with ta.Tape() as tape:
        y = ta.concat([x, z])
    assert y.dtype == np.complex128
    grads = tape.backward(y, cotangent=np.array([1 + 2j, 3, 4 + 5j]))
    assert grads.grad(x).dtype == np.float32
    assert grads.grad(x).numpy().tolist() == [1, 3]
    assert grads.grad(z).numpy().tolist() == [4 + 5j]


def test_concat_is_one_output_and_views_backwards() -> None:
    xs = [ta.variable(sample((2, 3), np.float64)) for _ in range(3)]
    with ta.ledger() as led, ta.Tape() as tape:
        y = ta.concat(xs, axis=1)
    assert led.allocations == {"OperationOutput": 1}
    ct = ta.asarray(sample((2, 9), np.float64))
    with ta.ledger() as led:
        tape.backward(y, cotangent=ct)
    assert led.allocations == {"OperationOutput": 3}  # each gradient owns its buffer
    assert not led.copies


def test_broadcast_arrays_and_meshgrid() -> None:
    a, b = ta.asarray(np.arange(3.0)), ta.asarray(np.arange(2.0))
    with ta.ledger() as led:
        x, y = ta.broadcast_arrays(a, ta.reshape(b, (2, 1)))
        grids = ta.meshgrid(a, b), ta.meshgrid(a, b, indexing="ij")
    assert not led.allocations
    assert not led.copies
    assert x.shape == y.shape == (2, 3)
    for got, indexing in zip(grids, ("xy", "ij"), strict=True):
        want = np.meshgrid(np.arange(3.0), np.arange(2.0), indexing=indexing)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g.numpy(), w)


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)])
def test_broadcast_cotangents_of_nothing_are_added(shape: tuple[int, ...]) -> None:
    def loss(x: Any) -> Any:
        return ta.sum(ta.mean(x * 1.0, axis=0)) + ta.sum(ta.mean(x, axis=1))

    x = ta.asarray(np.zeros(shape))
    for gradient in (ta.grad(loss), ta.trace(ta.grad(loss), x)):
        assert gradient(x).shape == shape


# ---- creation ------------------------------------------------------------------------


def test_creation_is_one_output_each() -> None:
    x = ta.asarray(np.ones((2, 3), np.float32))
    cases: list[tuple[Any, np.ndarray]] = [
        (lambda: ta.zeros((2, 3)), np.zeros((2, 3))),
        (lambda: ta.ones(3, dtype=np.int8), np.ones(3, np.int8)),
        (lambda: ta.full((), 2j), np.full((), 2j)),
        (lambda: ta.full((2,), True), np.full(2, True)),
        (lambda: ta.zeros_like(x), np.zeros((2, 3), np.float32)),
        (lambda: ta.ones_like(x, dtype=np.int64), np.ones((2, 3), np.int64)),
        (lambda: ta.full_like(x, 7), np.full((2, 3), 7, np.float32)),
        (lambda: ta.arange(5), np.arange(5)),
        (lambda: ta.arange(1, 2, 0.3), np.arange(1, 2, 0.3)),
        (lambda: ta.arange(5, 0, -2), np.arange(5, 0, -2)),
        (lambda: ta.arange(5, 0), np.arange(5, 0)),
        (lambda: ta.linspace(0, 1, 5), np.linspace(0, 1, 5)),
        (lambda: ta.linspace(0, 1j, 4, endpoint=False), np.linspace(0, 1j, 4, False)),
        (lambda: ta.eye(3, 4, k=1), np.eye(3, 4, 1)),
        (lambda: ta.eye(3, 2, k=-2), np.eye(3, 2, -2)),
        (lambda: ta.eye(2, 5, k=-4), np.eye(2, 5, -4)),
    ]
    for make, want in cases:
        with ta.ledger() as led:
            got = make()
        assert led.allocations == {"OperationOutput": 1}
        assert not led.copies
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.numpy(), want)


def test_constants_keep_sign_and_nan() -> None:
    assert ta.full((), 0.0).item() == 0.0
    assert np.signbit(ta.full((), -0.0).item())
    assert not np.signbit(ta.full((), 0.0).item())
    assert np.isnan(ta.full((), float("nan")).item())
    padded = ta.pad(ta.asarray([1.0]), 1, constant_values=-0.0).numpy()
    assert np.signbit(padded).tolist() == [True, False, True]


# ---- refusals ------------------------------------------------------------------------

REFUSED: list[tuple[str, Callable[[Any], Any], type[Exception]]] = [
    ("sizes", lambda x: ta.reshape(x, (4, 2)), errors.ShapeError),
    ("two unknown", lambda x: ta.reshape(x, (-1, -1)), errors.ShapeError),
    ("indivisible", lambda x: ta.reshape(x, (-1, 4)), errors.ShapeError),
    ("short", lambda x: ta.permute_dims(x, (0,)), errors.ShapeError),
    ("repeated", lambda x: ta.permute_dims(x, (0, 0)), errors.InvalidArgumentError),
    ("axis", lambda x: ta.flip(x, axis=2), errors.IndexRangeError),
    ("long axis", lambda x: ta.squeeze(x, axis=0), errors.ShapeError),
    ("broadcast", lambda x: ta.broadcast_to(x, (3, 3)), errors.ShapeError),
    ("concat", lambda x: ta.concat([x, x[:, :1]], axis=0), errors.ShapeError),
    ("nothing", lambda x: ta.concat([]), errors.InvalidArgumentError),
    ("stack", lambda x: ta.stack([x, x[0]]), errors.ShapeError),
    ("split", lambda x: ta.split(x, 2, axis=1), errors.ShapeError),
    ("split index", lambda x: ta.split(x, [4], axis=1), errors.IndexRangeError),
    ("negative pad", lambda x: ta.pad(x, -1), errors.InvalidArgumentError),
    ("wide reflect", lambda x: ta.pad(x, 3, "reflect"), errors.InvalidArgumentError),
    ("shifts", lambda x: ta.roll(x, (1, 2), axis=0), errors.InvalidArgumentError),
    ("repeats", lambda x: ta.repeat(x, -1), errors.InvalidArgumentError),
    ("vector", lambda x: ta.tril(x[0]), errors.ShapeError),
    ("fill", lambda x: ta.full(2, 300, dtype=np.uint8), errors.InvalidArgumentError),
    ("complex fill", lambda x: ta.full_like(x, 1j), errors.DTypeError),
    ("length", lambda x: ta.zeros((-1,)), errors.InvalidArgumentError),
    ("step", lambda x: ta.arange(1, 2, 0), errors.InvalidArgumentError),
]


@pytest.mark.parametrize(("name", "call", "error"), REFUSED)
def test_refusals(name: str, call: Callable[[Any], Any], error: type) -> None:
    x = ta.asarray(np.ones((2, 3)))
    with ta.ledger() as led, pytest.raises(error, match="refused"):
        call(x)
    assert not led.allocations
    assert not led.copies
