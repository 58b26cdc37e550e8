"""Indexing: NumPy's selections, JAX's derivatives, exact sums at repeated indices."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import tenferro_ad as ta
from tenferro_ad import errors

jax.config.update("jax_enable_x64", True)

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
RNG = np.random.default_rng(11)


def sample(shape: tuple[int, ...], dtype: Any = np.float64) -> np.ndarray:
    values = RNG.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * RNG.normal(size=shape)
    return np.asarray(values).astype(dtype)


def outcome(f: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Value, gradient for the cotangent 1, 2, 3, ..., and the tangent for such one."""
    v = ta.variable(x)
    with ta.Tape() as tape:
        y = f(v)
    ct = (np.arange(y.size) + 1).reshape(y.shape).astype(x.dtype)
    grads = tape.backward(y, cotangent=ct)
    t = (np.arange(x.size) + 1).reshape(x.shape).astype(x.dtype)
    _, tangent = ta.jvp(f, (x,), (t,))
    with y.value() as guard:
        return guard.numpy().copy(), grads.grad(v).numpy(), tangent.numpy()


def expected(key: Any, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    y = x[key]
    back = np.zeros_like(x)
    np.add.at(back, key, (np.arange(y.size) + 1).reshape(y.shape).astype(x.dtype))
    t = (np.arange(x.size) + 1).reshape(x.shape).astype(x.dtype)
    return np.asarray(y), back, t[key]


def check(key: Any, x: np.ndarray, own: Any = None) -> None:
    got = outcome(lambda v: v[key if own is None else own], x)
    for a, b in zip(got, expected(key, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert a.dtype == b.dtype


BASIC = [
    0,
    -1,
    slice(None),
    slice(1, None),
    slice(None, None, -1),
    slice(-1, -4, -2),
    slice(3, 1),
    slice(0, 100, 3),
    ...,
    None,
    (),
    (slice(None), 1),
    (..., -1),
    (0, ..., None, slice(None, None, -2)),
    (1, 2, 3),
    (None, 1, ..., None),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_basic_keys(key: Any, dtype: Any) -> None:
    check(key, sample((4, 3, 5), dtype))


@pytest.mark.parametrize("key", BASIC, ids=repr)
def test_basic_keys_are_views(key: Any) -> None:
    x = ta.asarray(sample((4, 3, 5)))
    with ta.ledger() as led:
        y = x[key]
    assert not led.allocations
    assert not led.copies
    assert y.size == 0 or np.shares_memory(y.numpy(), x.numpy())


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_basic_key(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    key = data.draw(hnp.basic_indices(shape, allow_newaxis=True, max_dims=6))
    check(key, np.arange(float(np.prod(shape, dtype=int))).reshape(shape))


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_integer_key(data: st.DataObject) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=4, max_side=4))
    key = data.draw(hnp.integer_array_indices(shape))
    check(key, np.arange(float(np.prod(shape))).reshape(shape))


def ints(*values: Any) -> np.ndarray:
    return np.array(values)


FANCY = [
    ints(0, 0, 3, -1),
    ints([0, 1], [2, 2]),
    (slice(None), ints(1, 1)),
    (ints(0, 1), ints(2, 0)),
    (ints([0], [1]), ints(2, 0)),
    (ints(0, 1), slice(None), ints(2, 0)),
    (0, slice(None), ints(2, 0)),
    (slice(None), 0, ints(2, 0)),
    (None, ints(2, 0), slice(None, None, -1)),
    (..., ints(4, 4), None),
    (slice(None), ints(1, 0), ints(3, 3)),
    (slice(1, 3), ints(1, 0), 2),
    ints().astype(int),
]


@pytest.mark.parametrize("key", FANCY, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.complex128])
def test_index_arrays(key: Any, dtype: Any) -> None:
    x = sample((4, 3, 5), dtype)
    check(key, x)
    parts = key if isinstance(key, tuple) else (key,)
    tensors = tuple(
        ta.asarray(p.astype(np.int16)) if isinstance(p, np.ndarray) else p
        for p in parts
    )
    check(key, x, tensors)


MASKS = [
    np.array([True, False, True, True]),
    RNG.random((4, 3)) > 0.5,
    RNG.random((4, 3, 5)) > 0.5,
    (slice(None), np.array([True, False, True])),
    (slice(None), np.array([False, False, False])),
    (ints(0, 1), np.array([True, False, True])),
    (0, RNG.random((3, 5)) > 0.3),
    np.array(True),
    np.array(False),
]


@pytest.mark.parametrize("key", MASKS, ids=range(len(MASKS)))
def test_masks(key: Any) -> None:
    x = sample((4, 3, 5))
    check(key, x)
    parts = key if isinstance(key, tuple) else (key,)
    tensors = tuple(ta.asarray(p) if isinstance(p, np.ndarray) else p for p in parts)
    check(key, x, tensors)


def test_python_booleans_and_lists_are_masks_and_indices() -> None:
    x = sample((4, 3))
    check(True, x)
    check(False, x)
    check([1, 1, 0], x)
    check([True, False, False, True], x)
    check([], x)


def test_integers_of_every_kind() -> None:
    x = ta.asarray(np.arange(10))
    for i in (3, np.int8(3), np.array(3), ta.asarray(3)):
        with ta.ledger() as led:
            assert x[i].item() == 3
        assert led.allocations.get("OperationOutput", 0) == 0
    assert x[-1].item() == 9


# ---- what one-to-one slices give back ------------------------------------------------


def test_a_slice_is_placed_into_one_fresh_output() -> None:
    x = ta.variable(sample((1000, 3)))
    with ta.Tape() as tape:
        y = x[10:20]
    ct = ta.asarray(sample((10, 3)))
    with ta.ledger() as led:
        tape.backward(y, cotangent=ct)
    assert led.allocations == {"OperationOutput": 1}
    assert not led.copies


def test_many_slices_of_one_value_add_into_one_buffer() -> None:
    x = ta.variable(sample((50, 40)))
    with ta.Tape() as tape:
        loss = ta.sum(ta.stack([ta.sum(x[i] * float(i)) for i in range(50)]))
    with ta.ledger() as led:
        grads = tape.backward(loss)
    want = np.broadcast_to(np.arange(50.0)[:, None], (50, 40))
    np.testing.assert_array_equal(grads.grad(x).numpy(), want)
    assert led.peak_bytes < 2 * x.nbytes


def test_index_arrays_of_one_value_add_into_one_buffer() -> None:
    for turned in (False, True):
        x = ta.variable(sample((30, 30)))
        i = np.array([1, 1, 5])
        with ta.Tape() as tape:
            y = ta.matrix_transpose(x) if turned else x
            parts = [y[i], y[i, i], ta.take_along_axis(y, i[None], axis=1), y[i]]
            loss = ta.sum(ta.concat(parts, axis=None))
        got = tape.backward(loss).grad(x).numpy()
        want = np.zeros((30, 30))
        np.add.at(want, i, 2.0)
        np.add.at(want, (i, i), 1.0)
        np.add.at(want, (slice(None), i), 1.0)
        np.testing.assert_array_equal(got.T if turned else got, want)


def test_a_slice_keeps_nothing() -> None:
    x = ta.variable(sample((4, 3)))
    with ta.Tape() as tape:
        x[1:, ::-1]
        assert tape.retained() == []


# ---- take and its transpose ----------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shape", [(7,), (2, 4), (), (0,)])
def test_take(axis: int, shape: tuple[int, ...], dtype: Any) -> None:
    x = sample((5, 4, 3), dtype)
    indices = RNG.integers(-3, 3, shape)
    key = (slice(None),) * (axis % 3) + (indices,)
    got = outcome(lambda v: ta.take(v, indices, axis=axis), x)
    for a, b in zip(got, expected(key, x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("dtype", [*DTYPES, np.int32, np.bool_])
def test_take_from_strided_values(dtype: Any) -> None:
    x = (RNG.normal(size=(6, 8)) * 5).astype(dtype)
    indices = RNG.integers(-6, 6, (3, 5))
    view = ta.permute_dims(ta.asarray(x), (1, 0))
    np.testing.assert_array_equal(
        ta.take(view, indices, axis=1).numpy(), np.take(x.T, indices, 1)
    )


def test_large_gathers_pass_in_pieces() -> None:
    x = np.arange(200_000.0).reshape(500, 400)
    rows, cols = RNG.integers(0, 400, 60_000), RNG.integers(0, 500, 60_000)
    view = ta.permute_dims(ta.asarray(x), (1, 0))
    np.testing.assert_array_equal(view[rows, cols].numpy(), x.T[rows, cols])
    with ta.ledger() as led:
        got = ta.take(view, rows[:300], axis=0)
    assert led.workspace < got.nbytes
    np.testing.assert_array_equal(got.numpy(), x.T[rows[:300]])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [3, 5000])
@pytest.mark.parametrize("width", [1, 16])
def test_repeated_indices_add_exactly(dtype: Any, n: int, width: int) -> None:
    x = np.zeros((10, width), dtype)
    indices = RNG.integers(0, 10, n)
    v = ta.variable(x)
    with ta.Tape() as tape:
        y = ta.take(v, indices, axis=0)
    ct = RNG.integers(-8, 8, (n, width)).astype(dtype)  # sums are exact
    want = np.zeros_like(x)
    np.add.at(want, indices, ct)
    np.testing.assert_array_equal(tape.backward(y, cotangent=ct).grad(v).numpy(), want)


def test_sums_are_the_same_on_every_run() -> None:
    x, indices = np.zeros((50, 8), np.float32), RNG.integers(0, 50, 4000)
    ct = sample((4000, 8), np.float32)

    def once() -> bytes:
        v = ta.variable(x)
        with ta.Tape() as tape:
            y = v[indices]
        return tape.backward(y, cotangent=ct).grad(v).numpy().tobytes()

    first = once()
    want = np.zeros_like(x)
    np.add.at(want, indices, ct)
    assert first == want.tobytes()  # in the order of the indices
    assert once() == first


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_take_along_axis(axis: int, dtype: Any) -> None:
    x = sample((3, 4, 5), dtype)
    shape = list(x.shape)
    shape[axis] = 6
    indices = RNG.integers(-3, 3, shape)
    v, t = ta.variable(x), sample(x.shape, dtype)
    ct = sample(tuple(shape), dtype)

    def jf(x: Any) -> Any:
        return jnp.take_along_axis(x, jnp.asarray(indices), axis)

    out, back = jax.vjp(jf, x)
    with ta.Tape() as tape:
        y = ta.take_along_axis(v, indices, axis=axis)
    grad = tape.backward(y, cotangent=ct).grad(v).numpy()
    tol = 1e-5 if np.dtype(dtype).itemsize <= 8 else 1e-12
    with y.value() as guard:
        np.testing.assert_array_equal(guard.numpy(), out)
    want = np.conj(back(jnp.conj(ct))[0])
    np.testing.assert_allclose(grad, want, rtol=tol, atol=tol)
    _, tangent = ta.jvp(lambda v: ta.take_along_axis(v, indices, axis=axis), (x,), (t,))
    np.testing.assert_array_equal(tangent.numpy(), jf(t))


def test_take_along_axis_broadcasts_the_other_axes() -> None:
    x, indices = sample((3, 1, 5)), RNG.integers(0, 5, (1, 4, 2))
    got = outcome(lambda v: ta.take_along_axis(v, indices), x)
    wide = np.broadcast_to(x, (3, 4, 5))
    full = np.broadcast_to(indices, (3, 4, 2))
    np.testing.assert_array_equal(got[0], np.take_along_axis(wide, full, -1))
    back = np.zeros((3, 4, 5))
    ct = (np.arange(24.0) + 1).reshape(3, 4, 2)
    grid = np.indices((3, 4, 2))
    np.add.at(back, (grid[0], grid[1], full), ct)
    np.testing.assert_allclose(got[1], back.sum(1, keepdims=True))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x[1:, ::-2],
        lambda x: x[np.array([0, 0, 2])],
        lambda x: x[np.array([0, 0, 2]), np.array([1, 1, -1])],
        lambda x: ta.take_along_axis(x, np.array([[0, 0], [1, 2], [3, 3]]), axis=1),
        lambda x: x[np.arange(12).reshape(3, 4) % 3 == 0],
    ],
)
def test_second_derivatives(f: Any) -> None:
    x, t = sample((3, 4)), sample((3, 4))
    # sum(f(x)^3) has the Hessian 6 J' diag(f(x)) J.
    _, got = ta.hvp(lambda x: ta.sum(f(x) * f(x) * f(x)), (x,), (t,))
    picked = f(ta.asarray(np.arange(12).reshape(3, 4))).numpy().ravel()
    count = np.bincount(picked, minlength=12).reshape(3, 4)
    np.testing.assert_allclose(got.numpy(), 6 * x * t * count, rtol=1e-10, atol=1e-12)


def test_rules_keep_the_indices_only() -> None:
    x = ta.variable(sample((100, 10)))
    indices = ta.asarray(np.array([1, 2, 3]))
    with ta.Tape() as tape:
        y = ta.take(x, indices, axis=0)
        assert [r.shape for r in tape.retained()] == [(3,)]
    del y


# ---- refusals ------------------------------------------------------------------------

OUT_OF_RANGE: list[tuple[Any, str]] = [
    (lambda x: x[4], r"index 4 for axis 0, which has size 4"),
    (lambda x: x[:, -4], r"index -4 for axis 1, which has size 3"),
    (lambda x: x[np.array([0, 4])], r"index 4 for axis 0, which has size 4"),
    (
        lambda x: x[np.array([0, 1]), np.array([0, -4])],
        r"index -4 for axis 1, which has size 3",
    ),
    (lambda x: ta.take(x, [0, 3], axis=1), r"index 3 for axis 1, which has size 3"),
    (
        lambda x: ta.take_along_axis(x, np.array([[3]]), axis=1),
        r"index 3 for axis 1, which has size 3",
    ),
    (lambda x: x[0, 0, 0], r"3 indices for a value with 2 axes"),
    (lambda x: ta.take(x, [0], axis=2), r"axis 2 of a value with 2 axes"),
]


@pytest.mark.parametrize(("call", "text"), OUT_OF_RANGE)
def test_out_of_range(call: Any, text: str) -> None:
    x = ta.asarray(sample((4, 3)))
    with ta.ledger() as led, pytest.raises(errors.IndexRangeError, match=text):
        call(x)
    assert "OperationOutput" not in led.allocations  # nothing was started
    with pytest.raises(IndexError):
        call(x)


REFUSED: list[tuple[Any, type]] = [
    (lambda x: x[1.0], errors.DTypeError),
    (lambda x: x["a"], errors.DTypeError),
    (lambda x: x[np.array([1.0])], errors.DTypeError),
    (lambda x: x[ta.asarray(1.0)], errors.DTypeError),
    (lambda x: x[..., ...], errors.InvalidArgumentError),
    (lambda x: x[::0], errors.InvalidArgumentError),
    (lambda x: x[1.5:], errors.InvalidArgumentError),
    (lambda x: x[np.array([True, False])], errors.ShapeError),
    (lambda x: x[np.array([0, 1]), np.array([0, 1, 2])], errors.ShapeError),
    (lambda x: ta.take(x, [0]), errors.InvalidArgumentError),
    (lambda x: ta.take(x, [0.5], axis=0), errors.DTypeError),
    (lambda x: ta.take_along_axis(x, np.array([0])), errors.ShapeError),
]


@pytest.mark.parametrize(("call", "error"), REFUSED)
def test_refusals(call: Any, error: type) -> None:
    with pytest.raises(error, match="refused"):
        call(ta.asarray(sample((4, 3))))
