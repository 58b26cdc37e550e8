"""Linear algebra through its public functions.

Agreement with JAX for losses that no phase and no choice of basis changes, degenerate
points with their right values, one factorisation for the value and all derivatives, and
errors by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.linalg as jsl
import numpy as np
import pytest
import scipy.linalg

import tenferro_ad as ta
from tenferro_ad import linalg
from tenferro_ad.errors import (
    DTypeError,
    InvalidArgumentError,
    NoRuleError,
    ShapeError,
    TenferroError,
)
from tenferro_ad.ops import _lapack

jax.config.update("jax_enable_x64", True)
CHEAP = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
Array = np.ndarray[Any, Any]
F8, C16 = np.float64, np.complex128


def value(x: Any) -> Array:
    return np.array(x._record.array)


def draw(seed: int, *shape: int, dtype: Any = F8) -> Array:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=shape)
    return np.asarray(x, dtype)


def gradient(f: Callable[..., Any], *xs: Array) -> list[Array]:
    found = ta.grad(f, tuple(range(len(xs))))(*map(ta.asarray, xs))
    return [value(g) for g in found]


def close(seen: Any, wanted: Any, tolerance: float = 1e-9) -> None:
    seen = value(seen) if isinstance(seen, ta.EagerTensor) else np.asarray(seen)
    wanted = np.asarray(wanted)
    assert seen.shape == wanted.shape
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    gap = float(np.max(np.abs(seen - wanted), initial=0.0))
    assert gap <= tolerance * scale, f"{seen!r}\n  instead of\n{wanted!r}"


# ---- agreement with JAX --------------------------------------------------------------


def _square(xp: Any, y: Any) -> Any:
    return xp.sum(xp.real(xp.conj(y) * y) if y.dtype.kind == "c" else y * y)


def _weighed(xp: Any, y: Any) -> Any:
    """A real loss that tells all elements apart."""
    w = np.linspace(0.5, 1.5, int(np.prod(y.shape))).reshape(y.shape)
    w = ta.asarray(w) if xp is ta else jnp.asarray(w)
    if y.dtype.kind == "c":
        return xp.sum(w * xp.real(y)) + 0.7 * xp.sum(w * xp.imag(y)) + _square(xp, y)
    return xp.sum(w * y) + 0.3 * _square(xp, y)


def _t(xp: Any, x: Any) -> Any:
    x = xp.matrix_transpose(x)
    return xp.conj(x) if x.dtype.kind == "c" else x


def _hermitian(xp: Any, x: Any) -> Any:
    return (x + _t(xp, x)) * 0.5


def _of_eigh(xp: Any, la: Any, x: Any) -> Any:
    w, v = la.eigh(_hermitian(xp, x))
    low = v[..., :, :2]
    return _weighed(xp, low @ _t(xp, low)) + _weighed(xp, w)


def _of_svd(xp: Any, la: Any, x: Any) -> Any:
    u, s, vh = la.svd(x, full_matrices=False)
    one = u[..., :, :1] @ vh[..., :1, :]
    return _weighed(xp, one) + _weighed(xp, s) + _weighed(xp, u @ vh)


def _of_qr(xp: Any, la: Any, x: Any) -> Any:
    q, r = la.qr(x)
    return _weighed(xp, q) + _weighed(xp, r)


def _of_lu(xp: Any, la: Any, x: Any) -> Any:
    if xp is ta:
        _, low, up = la.lu(x)
    else:
        _, low, up = (jsl.lu if x.ndim == 2 else jax.vmap(jsl.lu))(x)
    return _weighed(xp, low) + _weighed(xp, up)


def _of_cho(xp: Any, la: Any, x: Any) -> Any:
    a = x @ _t(xp, x)
    b = x[..., :, :2]
    if xp is ta:
        return _weighed(xp, la.cho_solve(la.cholesky(a), b))
    return _weighed(xp, jnp.linalg.solve(_hermitian(xp, a), b))


def _of_slogdet(xp: Any, la: Any, x: Any) -> Any:
    sign, log = la.slogdet(x)
    return _weighed(xp, log) + _weighed(xp, sign)


def _of_expm(xp: Any, la: Any, x: Any) -> Any:
    return _weighed(xp, (la.expm if xp is ta else jsl.expm)(x * 0.4))


def _of_lstsq(xp: Any, la: Any, x: Any) -> Any:
    b = x[..., :, :1] * x[..., :, 1:2]
    if xp is ta:
        return _weighed(xp, la.lstsq(x, b))
    return _weighed(xp, jnp.linalg.pinv(x) @ b)


LOSSES: dict[str, tuple[Any, tuple[int, ...]]] = {
    "cholesky": (lambda xp, la, x: _weighed(xp, la.cholesky(x @ _t(xp, x))), (3, 3)),
    "eigh": (_of_eigh, (2, 4, 4)),
    "eigvalsh": (
        lambda xp, la, x: _weighed(xp, la.eigvalsh(_hermitian(xp, x))),
        (3, 3),
    ),
    "svd": (_of_svd, (2, 3, 3)),
    "svd tall": (_of_svd, (4, 3)),
    "svd wide": (_of_svd, (3, 4)),
    "svdvals": (
        lambda xp, la, x: _weighed(
            xp,
            la.svdvals(x) if xp is ta else jnp.linalg.svd(x, compute_uv=False),
        ),
        (3, 2),
    ),
    "qr": (_of_qr, (2, 3, 3)),
    "qr tall": (_of_qr, (4, 3)),
    "lu": (_of_lu, (3, 3)),
    "lu tall": (_of_lu, (4, 3)),
    "lu wide": (_of_lu, (3, 4)),
    "lu stack": (_of_lu, (2, 3, 3)),
    "solve": (lambda xp, la, x: _weighed(xp, la.solve(x, x[..., :2] * 0.5)), (2, 3, 3)),
    "solve vector": (lambda xp, la, x: _weighed(xp, la.solve(x, x[0])), (3, 3)),
    "cho_solve": (_of_cho, (3, 3)),
    "inv": (lambda xp, la, x: _weighed(xp, la.inv(x)), (2, 3, 3)),
    "pinv tall": (lambda xp, la, x: _weighed(xp, la.pinv(x)), (4, 3)),
    "pinv wide": (lambda xp, la, x: _weighed(xp, la.pinv(x)), (3, 4)),
    "lstsq tall": (_of_lstsq, (4, 3)),
    "lstsq wide": (_of_lstsq, (3, 4)),
    "det": (lambda xp, la, x: _weighed(xp, la.det(x)), (2, 3, 3)),
    "slogdet": (_of_slogdet, (2, 3, 3)),
    "expm": (_of_expm, (3, 3)),
    "matrix_power": (lambda xp, la, x: _weighed(xp, la.matrix_power(x, 5)), (3, 3)),
    "inverse power": (lambda xp, la, x: _weighed(xp, la.matrix_power(x, -2)), (3, 3)),
    "nuclear": (
        lambda xp, la, x: (
            la.matrix_norm(x, ord="nuc") if xp is ta else jnp.linalg.norm(x, "nuc")
        ),
        (4, 3),
    ),
    "spectral": (
        lambda xp, la, x: (
            la.matrix_norm(x, ord=2) if xp is ta else jnp.linalg.norm(x, 2)
        ),
        (4, 3),
    ),
    "frobenius": (
        lambda xp, la, x: la.matrix_norm(x) if xp is ta else jnp.linalg.norm(x),
        (4, 3),
    ),
    "norm 3": (
        lambda xp, la, x: (
            la.vector_norm(x, ord=3) if xp is ta else jnp.linalg.vector_norm(x, ord=3)
        ),
        (5,),
    ),
    "cross": (
        lambda xp, la, x: _weighed(
            xp, (la if xp is ta else jnp).cross(x[0], x[1] * x[2])
        ),
        (3, 3),
    ),
    "trace": (lambda xp, la, x: _weighed(xp, la.trace(x @ x)), (2, 3, 3)),
    "multi_dot": (
        lambda xp, la, x: _weighed(xp, la.multi_dot([x, _t(xp, x), x[:, :1]])),
        (3, 4),
    ),
    "tensordot": (
        lambda xp, la, x: _weighed(xp, la.tensordot(x, x, axes=((1, 0), (0, 1)))),
        (3, 3, 2),
    ),
    "kron": (
        lambda xp, la, x: _weighed(xp, (la if xp is ta else jnp).kron(x[:, :1], x[:2])),
        (3, 3),
    ),
    "outer": (lambda xp, la, x: _weighed(xp, la.outer(x[0], x[1])), (2, 3)),
    "vecdot": (lambda xp, la, x: _weighed(xp, la.vecdot(x, x * x, axis=0)), (3, 2)),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [F8, C16])
def test_value_gradient_and_curvature_agree_with_jax(name: str, dtype: Any) -> None:
    loss, shape = LOSSES[name]
    x = draw(len(name), *shape, dtype=dtype)
    t = draw(len(name) + 50, *shape, dtype=dtype)

    def ours(x: Any) -> Any:
        return loss(ta, linalg, x)

    def theirs(x: Any) -> Any:
        return loss(jnp, jnp.linalg, x)

    def slope(x: Any) -> Any:
        return jnp.conj(jax.grad(theirs)(x))

    def everything(x: Any, t: Any) -> Any:
        return theirs(x), *jax.jvp(slope, (x,), (t,))

    compiled = jax.jit(everything).lower(x, t).compile(compiler_options=CHEAP)
    total, wanted, curved = compiled(x, t)
    close(ours(ta.asarray(x)), total)
    (g,) = gradient(ours, x)
    close(g, wanted, 1e-8)
    assert g.dtype == dtype
    _, moved = ta.hvp(ours, (ta.asarray(x),), (ta.asarray(t),))
    moved = moved[0] if isinstance(moved, tuple) else moved
    close(moved, curved, 1e-7)


@pytest.mark.parametrize("dtype", [F8, C16])
def test_general_eigenvalues_against_functions_of_the_matrix(dtype: Any) -> None:
    """sum of f(eigenvalues) = trace f(A), and v f(w) v^-1 = f(A)."""
    x, t = draw(3, 3, 3, dtype=dtype), draw(4, 3, 3, dtype=dtype)

    def by_eig(x: Any) -> Any:
        w, v = linalg.eig(x)
        cube = (v * (w * w * w)) @ linalg.inv(v)
        return _weighed(ta, cube) + ta.sum(ta.real(linalg.eigvals(x) ** 2))

    def directly(x: Any) -> Any:
        cube = x @ x @ x
        if cube.dtype.kind != "c":
            cube = cube + 0j
        return _weighed(ta, cube) + ta.real(linalg.trace(x @ x) + 0j)

    (g,), (wanted,) = gradient(by_eig, x), gradient(directly, x)
    close(g, wanted, 1e-8)
    primal, tangent = (ta.asarray(x),), (ta.asarray(t),)
    close(
        ta.hvp(by_eig, primal, tangent)[1][0],
        value(ta.hvp(directly, primal, tangent)[1][0]),
        1e-7,
    )


@pytest.mark.parametrize("name", ["qr", "solve", "det", "expm", "inv", "cholesky"])
def test_third_derivatives(name: str) -> None:
    """Against differences of Hessian-vector products."""
    loss, shape = LOSSES[name]
    x, t, u = (draw(k, *shape) for k in (7, 8, 9))

    def ours(x: Any) -> Any:
        return loss(ta, linalg, x)

    def curved(x: Any) -> Any:
        found = ta.hvp(ours, (x,), (ta.asarray(t),))[1]
        return found[0] if isinstance(found, tuple) else found

    _, third = ta.jvp(curved, (ta.asarray(x),), (ta.asarray(u),))
    h = 2.0**-17
    up, down = (value(curved(ta.asarray(x + s * u))) for s in (h, -h))
    close(third, (up - down) / (2 * h), 1e-6)


# ---- values --------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, F8, np.complex64, C16])
@pytest.mark.parametrize("lead", [(), (2,), (0,), (2, 1)])
def test_values_of_stacks(dtype: Any, lead: tuple[int, ...]) -> None:
    a, b = draw(1, *lead, 3, 3, dtype=dtype), draw(2, *lead, 3, 2, dtype=dtype)
    near = 2e-4 if np.dtype(dtype).char in "fF" else 1e-10
    x, y = ta.asarray(a), ta.asarray(b)
    for seen, wanted in [
        (linalg.solve(x, y), np.linalg.solve(a, b)),
        (linalg.inv(x), np.linalg.inv(a)),
        (linalg.det(x), np.linalg.det(a)),
        (linalg.slogdet(x)[1], np.linalg.slogdet(a)[1]),
        (linalg.svdvals(x), np.linalg.svdvals(a)),
        (linalg.lstsq(x, y), np.linalg.solve(a, b)),
        (linalg.matrix_norm(x), np.linalg.matrix_norm(a)),
        (linalg.matrix_rank(x), np.linalg.matrix_rank(a)),
    ]:
        close(seen, wanted, near)
        assert value(seen).dtype == np.asarray(wanted).dtype
    rows, low, up = linalg.lu(x)
    close(low @ up, np.take_along_axis(a, value(rows)[..., None], -2), near)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4)])
def test_full_decompositions_have_values_and_no_derivative(
    shape: tuple[int, ...],
) -> None:
    a = draw(1, *shape)
    for seen, wanted in zip(linalg.svd(ta.asarray(a)), np.linalg.svd(a), strict=True):
        close(seen, wanted)
    with pytest.raises(NoRuleError, match="`svd`"):
        ta.grad(lambda x: ta.sum(linalg.svd(x).S))(ta.asarray(a))
    for seen, wanted in zip(
        linalg.qr(ta.asarray(a), mode="complete"),
        np.linalg.qr(a, "complete"),
        strict=True,
    ):
        close(seen, wanted)
    if shape[0] > shape[1]:
        with pytest.raises(NoRuleError, match="`qr`"):
            ta.grad(lambda x: ta.sum(linalg.qr(x, mode="complete").R))(ta.asarray(a))


@pytest.mark.parametrize("order", [None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf])
def test_norms_and_condition_numbers(order: Any) -> None:
    a = draw(1, 2, 3, 3)
    x = ta.asarray(a)
    wanted = np.linalg.norm(a, order, (1, 2))
    close(linalg.norm(x, ord=order, axis=(1, 2)), wanted)
    close(linalg.norm(x, ord=order, axis=(1, 2), keepdims=True), wanted[:, None, None])
    close(linalg.cond(x, ord=order), np.linalg.cond(a, order))
    if not isinstance(order, str):
        wanted = np.linalg.norm(a, order, 1)
        close(linalg.norm(x, ord=order, axis=1), wanted)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, -1, np.inf, -np.inf])
def test_vector_norms(order: float) -> None:
    a = draw(1, 3, 4)
    close(
        linalg.vector_norm(ta.asarray(a), axis=1, ord=order),
        np.linalg.norm(a, order, 1),
    )
    big = np.array([3e200, 4e200])
    close(value(linalg.vector_norm(ta.asarray(big))) / 1e200, 5.0)


def test_products() -> None:
    a, b = draw(1, 2, 3), draw(2, 4, 2)
    close(linalg.kron(ta.asarray(a), ta.asarray(b)), np.kron(a, b))
    c = draw(3, 2, 3, 4)
    close(linalg.tensordot(ta.asarray(c), ta.asarray(c), axes=3), np.tensordot(c, c, 3))
    close(linalg.cross(ta.asarray(a), ta.asarray(a * 2 + 1)), np.cross(a, a * 2 + 1))
    close(linalg.diagonal(ta.asarray(c), offset=1), np.linalg.diagonal(c, offset=1))
    close(linalg.trace(ta.asarray(c)), np.linalg.trace(c))
    chain = [draw(k, *s) for k, s in enumerate([(5,), (5, 3), (3, 9), (9, 2)])]
    close(linalg.multi_dot(list(map(ta.asarray, chain))), np.linalg.multi_dot(chain))


# ---- degenerate points ---------------------------------------------------------------


def test_determinant_at_singular_matrices() -> None:
    for a, wanted in [
        ([[1.0, 2.0], [2.0, 4.0]], [[4.0, -2.0], [-2.0, 1.0]]),
        ([[0.0]], [[1.0]]),
        ([[0.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]]),
    ]:
        (g,) = gradient(linalg.det, np.array(a))
        close(g, wanted, 1e-14)
    rank_one = np.outer(draw(1, 3), draw(2, 3))
    close(gradient(linalg.det, rank_one)[0], np.zeros((3, 3)), 1e-14)


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("dtype", [F8, C16])
def test_second_derivative_of_the_determinant_at_singular_matrices(
    rank: int, dtype: Any
) -> None:
    x = draw(1, 3, rank, dtype=dtype) @ draw(2, rank, 3, dtype=dtype)
    t = draw(3, 3, 3, dtype=dtype)

    def by_hand(x: Any) -> Any:
        i, j, k = x[0], x[1], x[2]
        return ta.sum(i * linalg.cross(j, k))

    def ours(f: Any) -> Any:
        return lambda x: ta.real(f(x) + 0j) + 0.5 * ta.imag(f(x) + 0j)

    primal, tangent = (ta.asarray(x),), (ta.asarray(t),)
    close(gradient(ours(linalg.det), x)[0], gradient(ours(by_hand), x)[0], 1e-12)
    seen = ta.hvp(ours(linalg.det), primal, tangent)[1][0]
    wanted = ta.hvp(ours(by_hand), primal, tangent)[1][0]
    close(seen, value(wanted), 1e-12)


def test_norms_at_zero() -> None:
    zero = np.zeros(2)
    for order in (1, 2, 3, 1.5, np.inf):
        (g,) = gradient(lambda x, n=order: linalg.vector_norm(x, ord=n), zero)
        close(g, zero)
    close(gradient(lambda x: linalg.norm(x) ** 2, zero)[0], zero)
    close(gradient(linalg.matrix_norm, np.zeros((2, 2)))[0], np.zeros((2, 2)))
    _, t = ta.jvp(linalg.norm, (ta.asarray(zero),), (ta.asarray(np.ones(2)),))
    close(t, 0.0)
    rows = np.array([[0.0, 0.0], [3.0, 4.0]])
    (g,) = gradient(lambda x: ta.sum(linalg.norm(x, axis=1)), rows)
    close(g, [[0.0, 0.0], [0.6, 0.8]])


def _matrix(values: list[float], dtype: Any, seed: int = 5) -> Array:
    n = len(values)
    q = np.linalg.qr(draw(seed, n, n, dtype=dtype))[0]
    return np.asarray((q * np.array(values)) @ q.conj().T)


SPECTRA = [
    [1.0, 1.0, 1.0],
    [1.0, 1.0, 3.0],
    [1.0, 1.0 + 1e-14, 3.0],
    [1.0, 1.0 + 1e-11, 3.0],
    [1.0, 1.0 + 1e-8, 3.0],
]


@pytest.mark.parametrize("values", SPECTRA)
@pytest.mark.parametrize("dtype", [F8, C16])
def test_eigh_at_equal_and_nearly_equal_values(values: Any, dtype: Any) -> None:
    """Functions of all values, and the projector on the space of close ones."""
    a = _matrix(values, dtype)
    c = draw(6, 3, 3, dtype=dtype)
    c = c + c.conj().T
    (g,) = gradient(lambda x: ta.sum(linalg.eigvalsh(x) ** 3), a)
    close(g, 3 * a @ a)
    (g,) = gradient(lambda x: ta.sum(ta.exp(linalg.eigh(x)[0])), a)
    close(g, scipy.linalg.expm(a))

    def projector(x: Any) -> Any:
        v = linalg.eigh(x)[1][:, :2]
        return ta.sum(ta.real((v @ _t(ta, v)) * ta.asarray(c.conj()) + 0j))

    if values[2] == 3.0:
        # By second-order perturbation: P moves by the part between the two spaces.
        w, v = np.linalg.eigh(a)
        m = v.conj().T @ c @ v
        wanted = np.zeros_like(m)
        for i in range(2):
            wanted[i, 2] = m[i, 2] / (w[i] - w[2])
            wanted[2, i] = m[2, i] / (w[i] - w[2])
        (g,) = gradient(projector, a)
        close(g, v @ wanted @ v.conj().T, 1e-8)


@pytest.mark.parametrize("values", SPECTRA)
@pytest.mark.parametrize("dtype", [F8, C16])
def test_svd_at_equal_and_nearly_equal_values(values: Any, dtype: Any) -> None:
    a = _matrix(values, dtype) @ np.linalg.qr(draw(8, 3, 3, dtype=dtype))[0]
    u, _, vh = np.linalg.svd(a)
    (g,) = gradient(lambda x: ta.sum(linalg.svdvals(x)), a)
    close(g, u @ vh)
    (g,) = gradient(lambda x: ta.sum(linalg.svdvals(x) ** 2), a)
    close(g, 2 * a)
    c = draw(9, 3, 3, dtype=dtype)

    def polar(x: Any) -> Any:
        u, _, vh = linalg.svd(x)
        return ta.sum(ta.real((u @ vh) * ta.asarray(c.conj()) + 0j))

    h = 2.0**-18
    t = draw(10, 3, 3, dtype=dtype)
    sides = [np.vdot(c, scipy.linalg.polar(a + s * t)[0]).real for s in (h, -h)]
    (g,) = gradient(polar, a)
    close(np.vdot(g, t).real, (sides[0] - sides[1]) / (2 * h), 1e-6)


def test_values_never_divide_by_gaps() -> None:
    """The largest gradient of values alone is 1, however close they are."""
    for gap in 10.0 ** -np.arange(0, 18):
        a = np.diag([1.0, 1.0 + gap, 1.0 + 2 * gap])
        for k in range(3):
            for fn in (linalg.svdvals, linalg.eigvalsh):
                (g,) = gradient(lambda x, fn=fn, k=k: fn(x)[k], a)
                close(np.linalg.norm(g), 1.0, 1e-12)


def test_a_zero_singular_value() -> None:
    a = np.diag([2.0, 1.0, 0.0])
    for loss in (
        lambda x: ta.sum(linalg.svdvals(x)),
        lambda x: ta.sum(linalg.svd(x).U[:, :1]),
    ):
        assert np.all(np.isfinite(gradient(loss, a)[0]))


def test_pinv_of_a_rank_deficient_matrix() -> None:
    """Within the matrices of that rank."""
    one, two = draw(1, 4, 2), draw(2, 2, 3)

    def f(p: Any, q: Any) -> Any:
        return _weighed(ta, linalg.pinv(p @ q, rtol=1e-10))

    g, _ = gradient(f, one, two)
    h, t = 2.0**-17, draw(3, 4, 2)
    up, down = (value(f(ta.asarray(one + s * t), ta.asarray(two))) for s in (h, -h))
    close(np.sum(g * t), (up - down) / (2 * h), 1e-6)


# ---- one factorisation ---------------------------------------------------------------

FACTORISATIONS = ("getrf", "potrf", "geqrf", "heevd", "gesdd", "geev")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    seen: Counter[str] = Counter()
    for name in FACTORISATIONS:
        fn = getattr(_lapack, name)

        def counted(*args: Any, name: str = name, fn: Any = fn, **kw: Any) -> Any:
            seen[name] += 1
            return fn(*args, **kw)

        monkeypatch.setattr(_lapack, name, counted)
    return seen


@pytest.mark.parametrize(
    ("loss", "used"),
    [
        (lambda x: _weighed(ta, linalg.solve(x, x[:, :1])), "getrf"),
        (lambda x: _weighed(ta, linalg.inv(x)), "getrf"),
        (lambda x: _weighed(ta, linalg.det(x)), "getrf"),
        (lambda x: _weighed(ta, linalg.slogdet(x)[1]), "getrf"),
        (lambda x: _weighed(ta, linalg.lu(x)[1]), "getrf"),
        (lambda x: _weighed(ta, linalg.cholesky(x @ _t(ta, x))), "potrf"),
        (lambda x: _weighed(ta, linalg.qr(x)[1]), "geqrf"),
        (lambda x: _weighed(ta, linalg.lstsq(x, x[:, :1])), "geqrf"),
        (lambda x: _weighed(ta, linalg.eigh(x)[1]), "heevd"),
        (lambda x: _weighed(ta, linalg.eigvalsh(x)), "heevd"),
        (lambda x: _weighed(ta, linalg.svd(x)[0]), "gesdd"),
        (lambda x: _weighed(ta, linalg.pinv(x)), "gesdd"),
        (lambda x: ta.real(ta.sum(linalg.eigvals(x))), "geev"),
    ],
)
def test_one_factorisation_for_value_gradient_and_curvature(
    loss: Any, used: str, calls: Counter[str]
) -> None:
    x = ta.variable(draw(1, 4, 4) + 3 * np.eye(4))
    ta.value_and_grad(loss)(x)
    # `eig` alone factors once more: its eigenvectors, for their inverse.
    extra = {"getrf": 1} if used == "geev" else {}
    assert calls == {used: 1, **extra}
    calls.clear()
    ta.hvp(loss, (x,), (ta.asarray(draw(2, 4, 4)),))
    assert calls[used] == 1


def test_solving_keeps_no_copy_and_no_second_factor() -> None:
    a, b = ta.variable(draw(1, 4, 4)), ta.variable(draw(2, 4, 2))
    with ta.ledger() as ledger:
        with ta.Tape() as tape:
            x = linalg.solve(a, b)
        names = sorted((k.operation, k.value) for k in tape.retained())
        assert names == [("lu_solve", k) for k in ("a", "lu", "out", "rows")]
        tape.backward(x, cotangent=ta.asarray(np.ones((4, 2))))
    assert ledger.copies.get("ExplicitDuplicate", 0) == 0


def test_products_of_permuted_operands_copy_nothing() -> None:
    x = ta.asarray(draw(1, 3, 4, 2))
    with ta.ledger() as ledger:
        ta.grad(lambda x: _weighed(ta, linalg.tensordot(x, x, axes=((1,), (1,)))))(x)
    assert "ExplicitDuplicate" not in ledger.copies


def test_a_leaf_through_several_decompositions() -> None:
    """The gradient of a sum is the sum of gradients (a leaf fed to qr, svd, plain)."""
    x = draw(1, 3, 3)
    parts = [
        lambda x: _of_qr(ta, linalg, x),
        lambda x: _of_svd(ta, linalg, x),
        lambda x: ta.sum(x * x),
    ]
    (together,) = gradient(lambda x: parts[0](x) + parts[1](x) + parts[2](x), x)
    close(together, sum(gradient(p, x)[0] for p in parts))


def test_checkpoints_recompute_the_same_bits() -> None:
    x = ta.asarray(draw(1, 3, 3))

    def loss(x: Any) -> Any:
        return _weighed(ta, linalg.solve(x, x)) + linalg.det(x) + _of_lu(ta, linalg, x)

    wanted = value(ta.grad(loss)(x))
    seen = value(ta.grad(ta.checkpoint(loss, verify="bitwise"))(x))
    assert seen.tobytes() == wanted.tobytes()


# ---- refusals ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "args", "error"),
    [
        ("cholesky", [np.ones((2, 3))], ShapeError),
        ("cholesky", [np.diag([1.0, -1.0])], InvalidArgumentError),
        ("cholesky", [np.ones((2, 2), np.float16)], DTypeError),
        ("solve", [np.ones((2, 2)), np.ones(2)], InvalidArgumentError),
        ("solve", [np.eye(2), np.ones(3)], ShapeError),
        ("solve", [np.ones((2, 2, 2)), np.ones((3, 2, 1))], ShapeError),
        ("inv", [np.ones((2, 2))], InvalidArgumentError),
        ("inv", [np.ones(3)], ShapeError),
        ("det", [np.ones((2, 3))], ShapeError),
        ("slogdet", [np.ones((2, 3))], ShapeError),
        ("eigh", [np.ones((2, 3))], ShapeError),
        ("eig", [np.ones((2, 3))], ShapeError),
        ("svd", [np.ones(3)], ShapeError),
        ("svd", [np.full((2, 2), np.nan)], InvalidArgumentError),
        ("qr", [np.ones(3)], ShapeError),
        ("expm", [np.ones((2, 3))], ShapeError),
        ("solve_triangular", [np.zeros((2, 2)), np.ones(2)], InvalidArgumentError),
        ("matrix_power", [np.ones((2, 3)), 2], ShapeError),
        ("cross", [np.ones(2), np.ones(2)], ShapeError),
        ("multi_dot", [[np.ones((2, 2))]], InvalidArgumentError),
        ("outer", [np.ones((2, 2)), np.ones(2)], ShapeError),
        ("tensordot", [np.ones((2, 3)), np.ones((3, 3))], ShapeError),
        ("trace", [np.ones(2)], ShapeError),
    ],
)
def test_refusals_name_the_function(name: str, args: Any, error: Any) -> None:
    with pytest.raises(error, match=f"`{name}`") as info:
        getattr(linalg, name)(*args)
    assert isinstance(info.value, TenferroError)
    assert info.value.fix


def test_rank_deficient_qr_has_no_derivative() -> None:
    a = np.array([[1.0, 0.0], [1.0, 0.0]])
    with pytest.raises(InvalidArgumentError, match="singular"):
        ta.grad(lambda x: ta.sum(linalg.qr(x).Q))(ta.asarray(a))


def test_a_singular_matrix_has_a_sign_of_zero() -> None:
    sign, log = linalg.slogdet(ta.asarray(np.zeros((2, 2))))
    assert value(sign) == 0
    assert value(log) == -np.inf


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_matrices_that_are_not_finite_have_no_eigenvalues(dtype: Any) -> None:
    """LAPACK gives [-sqrt 2, sqrt 2] for the second one."""
    x = np.array(
        [[[2, 1], [1, 2]], [[np.nan, 1], [1, 2]], [[2, 1], [1, np.inf]]], dtype
    )
    w, v = linalg.eigh(x)
    assert np.allclose(np.asarray(w)[0], [1.0, 3.0])
    for found in (np.asarray(w)[1:], np.asarray(v)[1:], linalg.eigvalsh(x[1])):
        assert np.isnan(np.asarray(found)).all()
