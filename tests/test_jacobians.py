"""`jacfwd`, `jacrev`, `hessian`, `linearize`, `linear_transpose`.

Values by hand and by differences here; agreement with JAX in
`tests/reference/test_jax_transforms.py`.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad.backends import CPU

RNG = np.random.default_rng(11)
A = RNG.normal(size=(3, 4))
POINT = RNG.normal(size=4)
BOTH = pytest.mark.parametrize("jac", [ta.jacfwd, ta.jacrev])


def array(x: Any) -> Any:
    return np.array(np.asarray(x))


def f(x: Any) -> Any:
    return ta.tanh(ta.asarray(A) @ x) * ta.sum(x)


def matrix(x: Any) -> Any:
    t = np.tanh(A @ x)
    return (1 - t**2)[:, None] * A * x.sum() + t[:, None]


# ---- values --------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("chunk_size", [None, 1, 2, 3, 4, 100])
def test_jacobian(jac: Any, chunk_size: int | None) -> None:
    found = jac(f, chunk_size=chunk_size)(POINT)
    assert np.allclose(array(found), matrix(POINT))


@BOTH
def test_axes_of_outputs_come_first(jac: Any) -> None:
    x = RNG.normal(size=(2, 3))
    found = jac(lambda x: ta.matrix_transpose(x) ** 2)(x)
    assert found.shape == (3, 2, 2, 3)
    wanted = np.zeros((3, 2, 2, 3))
    for i, j in np.ndindex(2, 3):
        wanted[j, i, i, j] = 2 * x[i, j]
    assert np.allclose(array(found), wanted)


@BOTH
def test_pytrees_in_and_out(jac: Any) -> None:
    params = {"w": RNG.normal(size=(2, 2)), "b": [RNG.normal(size=2), None]}

    def g(p: Any, x: Any) -> Any:
        y = p["w"] @ x + p["b"][0]
        return (y, {"sum": ta.sum(x) * 2.0, "none": None})

    x = RNG.normal(size=2)
    found = jac(g, argnums=(0, 1))(params, x)
    (by_p, by_x), rest = found
    assert rest["none"] is None
    assert np.allclose(array(by_p["b"][0]), np.eye(2))
    assert by_p["b"][1] is None
    w = np.zeros((2, 2, 2))
    w[0, 0] = w[1, 1] = x
    assert np.allclose(array(by_p["w"]), w)
    assert np.allclose(array(by_x), params["w"])
    # What an output does not depend on has zeros.
    assert array(rest["sum"][0]["w"]).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert array(rest["sum"][1]).tolist() == [2.0, 2.0]
    constants = jac(lambda x, y: (x * 2.0, y, 3.0))(x, x)
    assert [array(c).any() for c in constants] == [True, False, False]
    (single, _) = jac(g, argnums=-1)(params, x)
    assert np.allclose(array(single), params["w"])


@BOTH
def test_auxiliary_results(jac: Any) -> None:
    def g(x: Any, *, name: str) -> Any:
        y = f(x)
        return y, {"y": y, "name": name}

    found, aux = jac(g, has_aux=True, chunk_size=2)(POINT, name="kept")
    assert np.allclose(array(found), matrix(POINT))
    assert aux["name"] == "kept"
    assert np.allclose(array(aux["y"]), array(f(POINT)))


def test_hessian() -> None:
    x = np.array([1.0, -2.0, 3.0])
    found = ta.hessian(lambda x: ta.prod(x))(x)
    assert np.allclose(array(found), [[0, 3, -2], [3, 0, 1], [-2, 1, 0]])
    pair, aux = ta.hessian(lambda x: (ta.sum(x**3), x), has_aux=True, chunk_size=2)(x)
    assert np.allclose(array(pair), np.diag(6 * x))
    assert np.array_equal(array(aux), x)
    blocks = ta.hessian(lambda x, y: ta.sum(x * x * y), argnums=(0, 1))(x, x)
    assert np.allclose(array(blocks[0][0]), np.diag(2 * x))
    assert np.allclose(array(blocks[0][1]), np.diag(2 * x))
    assert np.allclose(array(blocks[1][1]), np.zeros((3, 3)))
    vector = ta.hessian(lambda x: x**3)(x)
    assert vector.shape == (3, 3, 3)


@BOTH
def test_no_elements(jac: Any) -> None:
    assert jac(lambda x: x * 2.0)(np.ones((0,))).shape == (0, 0)
    assert jac(lambda x: ())(np.ones(3)) == ()
    assert jac(lambda x: ta.sum(x))(np.ones((2, 0))).shape == (2, 0)
    assert jac(lambda x: ta.concat([x, x])[:0])(np.ones(3)).shape == (0, 3)


@BOTH
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_narrow_dtypes(jac: Any, dtype: Any) -> None:
    found = jac(lambda x: x * x)(np.array([1.5, 2.0], dtype))
    assert found.dtype == dtype
    assert array(found).tolist() == [[3.0, 0.0], [0.0, 4.0]]


def test_through_a_traced_function() -> None:
    """Field report 25: the Hessian of x ** 3 at 2 is 12, not a constant."""
    cube = ta.trace(lambda x: x**3, ta.Spec(()))
    assert array(ta.hessian(cube)(np.array(2.0))).item() == 12.0
    traced = ta.trace(ta.hessian(lambda x: x**3), ta.Spec(()))
    assert array(traced(np.array(2.0))).item() == 12.0
    pieces = ta.trace(ta.jacrev(f, chunk_size=2), ta.Spec((4,)))
    assert np.allclose(array(pieces(POINT)), matrix(POINT))


# ---- nesting -------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("chunk_size", [None, 2])
def test_jacobians_are_differentiable(jac: Any, chunk_size: int | None) -> None:
    def total(x: Any) -> Any:
        return ta.sum(jac(f, chunk_size=chunk_size)(x) ** 2)

    found = array(ta.grad(total)(POINT))
    _, tangent = ta.jvp(total, (POINT,), (POINT,))
    h = 1e-6
    steps = h * np.eye(4)
    wanted = [
        (np.sum(matrix(POINT + e) ** 2) - np.sum(matrix(POINT - e) ** 2)) / (2 * h)
        for e in steps
    ]
    assert np.allclose(found, wanted, atol=1e-6)
    assert np.isclose(array(tangent), found @ POINT)


@BOTH
def test_closed_over_variables_keep_their_gradients(jac: Any) -> None:
    w = ta.variable(A)
    with ta.Tape() as tape:
        value = ta.sum(jac(lambda x: ta.sin(w @ x))(POINT))
    found = tape.backward(value)[w]

    def by_hand(a: Any) -> Any:
        return ta.sum(ta.cos(a @ POINT)[:, None] * a)

    assert np.allclose(array(found), array(ta.grad(by_hand)(A)))


@BOTH
def test_python_control_flow_on_values(jac: Any) -> None:
    """The function runs on values; only its derivative is mapped."""

    def branching(x: Any) -> Any:
        return x**2 if float(ta.stop_gradient(x[0])) > 0 else x**3

    for sign, slope in ((1.0, 2.0), (-1.0, 3.0)):
        found = array(jac(branching)(np.array([sign, 2.0])))
        assert found[1, 1] == slope * 2.0 ** (slope - 1)


def test_third_derivatives() -> None:
    x = np.array([0.3, -0.7])
    wanted = np.zeros((2, 2, 2))
    wanted[0, 0, 0], wanted[1, 1, 1] = np.exp(x)
    for third in (
        ta.jacfwd(ta.hessian(lambda x: ta.sum(ta.exp(x)))),
        ta.jacrev(ta.jacrev(ta.grad(lambda x: ta.sum(ta.exp(x))))),
        ta.jacfwd(ta.jacfwd(ta.jacfwd(lambda x: ta.sum(ta.exp(x))))),
        ta.jacrev(ta.hessian(lambda x: ta.sum(ta.exp(x)), chunk_size=1), chunk_size=3),
    ):
        assert np.allclose(array(third(x)), wanted)


@BOTH
def test_selects_absorb_zeros(jac: Any) -> None:
    with np.errstate(invalid="ignore", divide="ignore"):
        found = jac(lambda x: ta.where(x > 0, ta.sqrt(x), x))(np.array([-1.0, 4.0]))
    assert array(found).tolist() == [[1.0, 0.0], [0.0, 0.25]]


# ---- complex numbers -----------------------------------------------------------------


@BOTH
def test_complex_outputs_of_real_arguments(jac: Any) -> None:
    x = RNG.normal(size=3)
    found = jac(lambda x: ta.exp(1j * x))(x)
    assert np.allclose(array(found), np.diag(1j * np.exp(1j * x)))


@BOTH
def test_real_outputs_of_complex_arguments_have_gradients(jac: Any) -> None:
    z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    found = jac(lambda z: ta.abs(z) ** 2)(z)
    assert np.allclose(array(found), np.diag(2 * z))
    row = jac(lambda z: ta.sum(ta.abs(z) ** 2))(z)
    assert np.allclose(array(row), array(ta.grad(lambda z: ta.sum(ta.abs(z) ** 2))(z)))


@BOTH
def test_complex_derivatives(jac: Any) -> None:
    m = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
    z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    found = jac(lambda z: ta.asarray(m) @ z**2, holomorphic=True, chunk_size=2)(z)
    assert np.allclose(array(found), m * (2 * z))
    second = ta.hessian(lambda z: ta.sum(z**3), holomorphic=True)(z)
    assert np.allclose(array(second), np.diag(6 * z))
    with pytest.raises(errors.DTypeError, match="no one Jacobian"):
        jac(lambda z: z * 2)(z)
    with pytest.raises(errors.DTypeError, match="holomorphic"):
        jac(lambda z: ta.abs(z), holomorphic=True)(z)
    with pytest.raises(errors.DTypeError, match="holomorphic"):
        jac(lambda z: z, holomorphic=True)(z.real.copy())


# ---- linear maps ---------------------------------------------------------------------


def test_linearize() -> None:
    runs = []

    def g(x: Any, p: Any) -> Any:
        runs.append(1)
        return {"y": f(x) * p["s"], "x": x, "c": ta.asarray(1.0)}

    primals = (POINT, {"s": np.array(2.0)})
    out, push = ta.linearize(g, *primals)
    for k in range(3):
        tangents = (RNG.normal(size=4), {"s": np.array(0.5 * k)})
        value, wanted = ta.jvp(g, primals, tangents)
        found = push(*tangents)
        for name in ("y", "x", "c"):
            assert np.allclose(array(out[name]), array(value[name]))
            assert np.allclose(array(found[name]), array(wanted[name]))
    assert len(runs) == 1 + 3
    rows = ta.vmap(lambda t: push(t, {"s": np.array(0.0)})["y"])(np.eye(4))
    assert np.allclose(array(rows).T, 2 * matrix(POINT))
    back = ta.grad(lambda t: ta.sum(push(t, {"s": np.array(0.0)})["y"]))(POINT)
    assert np.allclose(array(back), 2 * matrix(POINT).sum(0))


def test_linearize_is_differentiable_where_it_was_taken() -> None:
    def slope(x: Any) -> Any:
        _, push = ta.linearize(ta.sin, x)
        return push(np.ones(()))

    x = np.array(0.4)
    assert np.isclose(array(ta.grad(slope)(x)), -np.sin(0.4))
    assert np.isclose(array(ta.jvp(slope, (x,), (np.ones(()),))[1]), -np.sin(0.4))
    points = np.linspace(0, 1, 5)
    assert np.allclose(array(ta.vmap(slope)(points)), np.cos(points))


def test_linearize_keeps_what_rules_read_until_it_is_dropped() -> None:
    x = ta.asarray(POINT)
    with ta.ledger(detail=False) as ledger:
        _, push = ta.linearize(lambda x: ta.sum(ta.exp(ta.sin(x) + 1.0) * 2.0), x)
        # The value, exp's output and sin's argument: the sum in between is read by
        # nobody.
        assert ledger.live == 2
        push(POINT)
        assert ledger.live <= 3  # the tangent's transfer may still be in a cache
        del _, push
    assert ledger.live == 0


def test_linear_transpose() -> None:
    m = ta.asarray(A)
    back = ta.linear_transpose(lambda x, y: {"r": m @ x - 2.0 * y}, POINT, np.ones(3))
    ct = RNG.normal(size=3)
    by_x, by_y = back({"r": ct})
    assert np.allclose(array(by_x), A.T @ ct)
    assert np.allclose(array(by_y), -2 * ct)
    _, push = ta.linearize(f, POINT)
    (found,) = ta.linear_transpose(push, ta.Spec((4,)))(ct)
    assert np.allclose(array(found), matrix(POINT).T @ ct)
    g = ta.grad(lambda ct: ta.sum(back({"r": ct})[0] ** 2))(ct)
    assert np.allclose(array(g), 2 * A @ A.T @ ct)
    many = ta.vmap(lambda ct: back({"r": ct})[0])(np.eye(3))
    assert np.allclose(array(many), A)


def test_linear_transpose_does_not_conjugate() -> None:
    m = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
    ct = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    back = ta.linear_transpose(lambda z: ta.asarray(m) @ z, ta.Spec((4,), "complex128"))
    assert np.allclose(array(back(ct)[0]), m.T @ ct)


# ---- memory --------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    yield
    CPU.trim()


def peak(fn: Any) -> int:
    """The largest number of bytes alive at once, in NumPy's domain, beside the pool's
    leftovers and the result of a first run."""
    fn()
    CPU.trim()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fn()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        CPU.trim()


@BOTH
def test_report_42_the_peak_grows_with_the_chunk(jac: Any) -> None:
    """A Jacobian of 64 x 64 through 200 000 hidden numbers: what one direction needs
    (1.6 MB for each hidden value) is alive for one chunk of directions only."""
    n, hidden = 64, 200_000
    x = ta.asarray(RNG.normal(size=n))
    into = ta.asarray(RNG.integers(0, n, hidden))

    def wide(x: Any) -> Any:
        y = ta.tanh(x[into])
        return ta.segment_sum(y * y, into, num_segments=n)

    one = 8 * hidden
    peaks = {c: peak(lambda c=c: jac(wide, chunk_size=c)(x)) for c in (2, 4, 16)}
    slopes = [(peaks[b] - peaks[a]) / (one * (b - a)) for a, b in ((2, 4), (4, 16))]
    # A few hidden values for each direction of a chunk, the same for every chunk size.
    assert 1 <= slopes[0] <= 6
    assert slopes[1] == pytest.approx(slopes[0], rel=0.02)
    # All directions at once need four times what chunks of 16 need.
    assert peak(lambda: jac(wide)(x)) > 3 * peaks[16]


@BOTH
def test_chunks_are_written_where_the_jacobian_stands(jac: Any) -> None:
    """The Jacobian exists once, not as chunks and as a whole."""
    n = 1500
    x = ta.asarray(RNG.normal(size=n))
    found = peak(lambda: jac(lambda x: ta.sin(x) * 2.0, chunk_size=10)(x))
    assert found <= 1.1 * 8 * n * n


def test_no_copies() -> None:
    x = ta.asarray(POINT)
    with ta.ledger(detail=False) as ledger:
        for transform in (ta.jacfwd, ta.jacrev, ta.hessian):
            for chunk_size in (None, 2):
                found = transform(f, chunk_size=chunk_size)(x)
                del found
        assert set(ledger.copies) <= {"Transfer"}
    assert ledger.live == 0


# ---- refusals ------------------------------------------------------------------------


@BOTH
def test_refusals(jac: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="chunk_size"):
        jac(f, chunk_size=0)
    with pytest.raises(errors.InvalidArgumentError, match="chunk_size"):
        jac(f, chunk_size=2.5)
    with pytest.raises(errors.InvalidArgumentError, match="argnums"):
        jac(f, argnums=1)(POINT)
    with pytest.raises(errors.IntegerInputError, match="argument 0"):
        jac(f)(np.arange(4))
    with pytest.raises(errors.DTypeError, match="int64"):
        jac(lambda x: ta.argmax(x))(POINT)
    with pytest.raises(errors.InvalidArgumentError, match="has_aux"):
        jac(f, has_aux=True)(POINT)
    with pytest.raises(errors.DTypeError, match="<U4"):
        jac(lambda x: "text")(POINT)


def test_refusals_of_linear_maps() -> None:
    _, push = ta.linearize(f, POINT)
    with pytest.raises(errors.ShapeError, match="2 tangents for 1"):
        push(POINT, POINT)
    with pytest.raises(errors.ShapeError, match="tangent 0"):
        push(POINT[:3])
    with pytest.raises(errors.DTypeError, match="tangent 0"):
        push(POINT.astype(np.float32))
    with pytest.raises(errors.ShapeError, match="structure"):
        push([POINT])
    with pytest.raises(errors.InvalidArgumentError, match="not linear.*mul"):
        ta.linear_transpose(lambda x: x * x, ta.Spec((3,)))
    with pytest.raises(errors.ShapeError, match="ct"):
        ta.linear_transpose(lambda x: 2.0 * x, ta.Spec((3,)))(np.ones(4))
