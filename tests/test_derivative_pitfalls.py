"""Where derivative rules of other systems went wrong: degenerate points, conventions.

Beside `test_field_reports.py` (reports by number), `tests/ops/test_kinks.py` (the table
of conventions) and `tests/ops/test_linalg.py` (agreement, degenerate spectra), this
holds the collection's pitfalls rule by rule, with values by hand or from polynomials.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import tenferro_ad as ta
from tenferro_ad import linalg
from tenferro_ad.testing import check_grads
from tests.ops.test_linalg import LOSSES, close, draw, gradient, value

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
F8, C16 = np.float64, np.complex128
DOUBLE = pytest.mark.parametrize("dtype", [F8, C16])


def curvature(f: Any, x: Any, t: Any) -> Any:
    """The Hessian of a real function times a tangent."""
    found = ta.hvp(f, (ta.asarray(x),), (ta.asarray(t),))[1]
    return found[0] if isinstance(found, tuple) else found


def pushed(f: Any, x: Any, t: Any) -> Any:
    return ta.jvp(f, (ta.asarray(x),), (ta.asarray(t),))[1]


# ---- linear algebra in every precision -----------------------------------------------


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("pair", [(np.float32, F8), (np.complex64, C16)])
def test_47_every_rule_keeps_single_precision(name: str, pair: Any) -> None:
    """The gradient in single precision is that in double, and stays single."""
    single, double = pair
    loss, shape = LOSSES[name]
    x = draw(len(name), *shape, dtype=single)

    def ours(x: Any) -> Any:
        # The weights of the loss are in double precision: they would widen it.
        return loss(ta, linalg, x)

    seen, wanted = gradient(ours, x)[0], gradient(ours, x.astype(double))[0]
    assert seen.dtype == single
    scale = max(1.0, float(np.max(np.abs(wanted))))
    assert np.max(np.abs(seen - wanted)) <= 5e-3 * scale


@pytest.mark.parametrize("dtype", [np.float32, F8, np.complex64, C16])
def test_47_vectors_move_orthogonally_to_themselves(dtype: Any) -> None:
    """A loss that depends on a phase has the derivative of vectors whose phase stands
    still: of `eigh` all of them, of `svd` those of `vh`, against which `u` turns."""
    near = 1e-4 if np.dtype(dtype).char in "fF" else 1e-12
    x, t = draw(1, 4, 4, dtype=dtype), draw(2, 4, 4, dtype=dtype)
    (_, v), (_, dv) = (map(value, z) for z in _with_tangent(linalg.eigh, x, t))
    assert np.max(np.abs(np.sum(v.conj() * dv, 0))) <= near
    (u, s, vh), (du, ds, dvh) = (map(value, z) for z in _with_tangent(_svd, x, t))
    assert np.max(np.abs(np.sum(vh.conj() * dvh, 1))) <= near
    # The factors keep multiplying to the matrix, so the tangents to its tangent.
    whole = (du * s) @ vh + (u * ds) @ vh + (u * s) @ dvh
    assert np.max(np.abs(whole - t)) <= 20 * near


def _svd(x: Any) -> Any:
    return linalg.svd(x, full_matrices=False)


def _with_tangent(f: Any, x: Any, t: Any) -> Any:
    return ta.jvp(lambda x: tuple(f(x)), (ta.asarray(x),), (ta.asarray(t),))


@DOUBLE
@pytest.mark.parametrize("fn", ["eigvalsh", "eigh", "cholesky"])
def test_a_hermitian_matrix_is_read_as_its_hermitian_part(fn: str, dtype: Any) -> None:
    """Gradients are Hermitian, and agree with differences along any direction."""
    a, t = draw(3, 3, 3, dtype=dtype), draw(4, 3, 3, dtype=dtype)
    a = a @ a.conj().T + 3 * np.eye(3) + 0.1 * (t - t.conj().T)

    def f(x: Any) -> Any:
        if fn == "eigvalsh":
            return ta.sum(linalg.eigvalsh(x) ** 3)
        if fn == "eigh":
            w, v = linalg.eigh(x)
            return ta.sum(w * ta.sum(ta.abs(v) ** 2, axis=0))
        return ta.sum(ta.abs(linalg.cholesky(x)) ** 3)

    close(f(ta.asarray(a)), value(f(ta.asarray((a + a.conj().T) / 2))))
    (g,) = gradient(f, a)
    close(g, g.conj().T, 1e-12)
    h = 2.0**-17
    up, down = (value(f(ta.asarray(a + s * t))) for s in (h, -h))
    close(np.vdot(g, t).real, (up - down) / (2 * h), 1e-6)


@DOUBLE
def test_unit_and_opposite_triangles_take_no_slope(dtype: Any) -> None:
    a, b = draw(5, 3, 3, dtype=dtype), draw(6, 3, dtype=dtype)

    def f(a: Any) -> Any:
        x = linalg.solve_triangular(a, ta.asarray(b), unit_diagonal=True)
        return ta.sum(ta.abs(x) ** 2)

    (g,) = gradient(f, a)
    assert np.all(np.triu(g) == 0)
    assert np.all(np.tril(g, -1)[np.tril_indices(3, -1)] != 0)


@DOUBLE
@pytest.mark.parametrize("shape", [(3,), (3, 2), (2, 3, 2)])
def test_a_solution_may_be_differentiated_again(shape: Any, dtype: Any) -> None:
    a = draw(7, 3, 3, dtype=dtype) + 3 * np.eye(3)
    check_grads(linalg.solve, [a, draw(8, *shape, dtype=dtype)], order=3)


@DOUBLE
def test_least_squares_counts_its_residual(dtype: Any) -> None:
    """The residual is not zero, so the matrix moves the solution by it as well."""
    a, b = draw(9, 5, 3, dtype=dtype), draw(10, 5, 2, dtype=dtype)
    check_grads(linalg.lstsq, [a, b], order=2)


SPECTRAL = {
    "eigvalsh": (
        lambda x: ta.sum(linalg.eigvalsh(x) ** 3),
        lambda a, t: 3 * (a @ t + t @ a),
    ),
    "svdvals": (
        lambda x: ta.sum(linalg.svdvals(x) ** 4),
        lambda a, t: 4 * (t @ a.T @ a + a @ t.T @ a + a @ a.T @ t),
    ),
}


@pytest.mark.parametrize("name", SPECTRAL)
@pytest.mark.parametrize("gap", [1e-2, 1e-5, 1e-8])
def test_curvature_at_nearly_equal_values(name: str, gap: float) -> None:
    """Right to as many digits as the gap has, and more where it is wider."""
    loss, wanted = SPECTRAL[name]
    q = np.linalg.qr(draw(31, 3, 3))[0]
    a, t = (q * [1.0, 1.0 + gap, 3.0]) @ q.T, draw(32, 3, 3)
    t = t + t.T
    close(curvature(loss, a, t), wanted(a, t), max(1e-9, 1e-15 / gap))


@pytest.mark.parametrize("name", SPECTRAL)
def test_curvature_at_equal_values_lacks_what_they_do_to_each_other(name: str) -> None:
    """The documented limit of second derivatives: all else is right."""
    loss, wanted = SPECTRAL[name]
    a, t = np.diag([1.0, 1.0, 3.0]), draw(33, 3, 3)
    t = t + t.T
    missing = np.zeros((3, 3))
    missing[[0, 1], [1, 0]] = wanted(a, t)[[0, 1], [1, 0]]
    assert np.abs(missing).max() > 1
    close(curvature(loss, a, t), wanted(a, t) - missing, 1e-12)


# ---- determinants --------------------------------------------------------------------


def by_hand(x: Any) -> Any:
    """The determinant of a 3 x 3 matrix as a polynomial."""
    return ta.sum(x[0] * linalg.cross(x[1], x[2]))


def real_of(f: Any) -> Any:
    """A real number of a complex one, that tells its parts apart."""
    return lambda x: ta.real(f(x) + 0j) + 0.5 * ta.imag(f(x) + 0j)


@DOUBLE
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_34_the_determinant_is_a_polynomial_to_fourth_order(
    rank: int, dtype: Any
) -> None:
    x = draw(1, 3, rank, dtype=dtype) @ draw(2, rank, 3, dtype=dtype)
    directions = [draw(k, 3, 3, dtype=dtype) for k in (3, 4, 5)]
    for order in range(4):
        seen, wanted = (
            value(along(ta.grad(real_of(f)), x, directions[:order]))
            for f in (linalg.det, by_hand)
        )
        close(seen, wanted, 1e-11)


def along(f: Any, x: Any, directions: Any) -> Any:
    """The derivative of `f` in all directions, one after another."""
    if not directions:
        return f(ta.asarray(x))
    *rest, last = directions
    primal, tangent = (ta.asarray(x),), (ta.asarray(last),)
    return ta.jvp(lambda x: along(f, x, rest), primal, tangent)[1]


@pytest.mark.parametrize("size", [1e-3, 1e-6, 1e-9, 1e-13, 1e-17, 0.0])
@pytest.mark.parametrize("many", [1, 2, 3])
def test_34_determinants_of_nearly_singular_matrices(size: float, many: int) -> None:
    """Singular values of every size, several at once, in stacks of 5 x 5."""
    s = np.array([2.0, 1.0, 0.7, 0.4, 0.2])
    s[5 - many :] *= size
    u, v = (np.linalg.qr(draw(k, 5, 5))[0] for k in (1, 2))
    x, ts = (u * s) @ v, [draw(k, 5, 5) for k in (3, 4, 5)]
    x, ts = np.stack([x, x.T]), [np.stack([t, t.T]) for t in ts]

    def expanded(x: Any) -> Any:
        """By minors of the first two rows."""
        found = 0.0
        for i in range(5):
            for j in range(i + 1, 5):
                rest = [k for k in range(5) if k not in (i, j)]
                two = x[:, 0, i] * x[:, 1, j] - x[:, 0, j] * x[:, 1, i]
                r = [[x[:, row, k] for k in rest] for row in (2, 3, 4)]
                three = (
                    r[0][0] * (r[1][1] * r[2][2] - r[1][2] * r[2][1])
                    - r[0][1] * (r[1][0] * r[2][2] - r[1][2] * r[2][0])
                    + r[0][2] * (r[1][0] * r[2][1] - r[1][1] * r[2][0])
                )
                found = found + (-1) ** (i + j + 1) * two * three
        return ta.sum(found)

    for order in range(4):
        seen, wanted = (
            value(along(ta.grad(f), x, ts[:order]))
            for f in (lambda x: ta.sum(linalg.det(x)), expanded)
        )
        close(seen, wanted, 1e-9)


def test_the_sign_of_a_real_determinant_has_no_slope() -> None:
    x = draw(11, 3, 3)
    (g,) = gradient(lambda x: linalg.slogdet(x)[0], x)
    assert np.all(g == 0)
    z = draw(11, 3, 3, dtype=C16)
    (g,) = gradient(lambda x: ta.real(linalg.slogdet(x)[0] * (1 - 2j)), z)
    assert np.all(g != 0)
    check_grads(lambda x: linalg.slogdet(x)[0], [z], order=2)


# ---- norms ---------------------------------------------------------------------------


def test_31_norms_share_what_ties_and_rest_at_zero() -> None:
    x = np.array([3.0, -3.0, 1.0])
    for order, wanted in [
        (0, [0, 0, 0]),
        (1, [1, -1, 1]),
        (np.inf, [0.5, -0.5, 0]),
        (-np.inf, [0, 0, 1]),
        (2, x / np.sqrt(19)),
    ]:
        (g,) = gradient(lambda x, n=order: linalg.vector_norm(x, ord=n), x)
        close(g, wanted, 1e-14)
    a = draw(12, 3, 3)
    (g,) = gradient(lambda x: linalg.matrix_norm(x, ord="nuc"), a)
    u, _, vh = np.linalg.svd(a)
    close(g, u @ vh)
    one = np.eye(3)
    (g,) = gradient(lambda x: linalg.matrix_norm(x, ord=2), one)
    close(g, one / 3)  # all three singular values tie
    (g,) = gradient(lambda x: linalg.matrix_norm(x, ord=1), np.ones((2, 2)))
    close(g, np.full((2, 2), 0.5))


@pytest.mark.parametrize(
    "f",
    [
        linalg.vector_norm,
        linalg.norm,
        lambda x: linalg.vector_norm(x, ord=3),
        lambda x: linalg.norm(x) ** 2,
        ta.std,
        lambda x: ta.std(x) ** 2,
        lambda x: ta.std(x) ** 3,
        lambda x: ta.sum(x - ta.std(x)),
        lambda x: ta.hypot(x[0], x[1]),
        lambda x: ta.sum(ta.abs(x)),
        lambda x: ta.sum(ta.abs(x * (1 + 1j))),
    ],
)
@pytest.mark.parametrize("x", [np.zeros(2), np.zeros(2) - 0.0])
def test_31_every_derivative_at_the_kink_is_finite(f: Any, x: Any) -> None:
    """First, second and third order, in both modes."""
    t, u = np.array([0.3, -0.7]), np.array([1.1, 0.2])
    primal, along = (ta.asarray(x),), (ta.asarray(u),)
    found = [
        pushed(f, x, t),
        ta.grad(f)(x),
        curvature(f, x, t),
        ta.jvp(lambda x: curvature(f, x, t), primal, along)[1],
        ta.jvp(lambda x: pushed(f, x, t), primal, along)[1],
        ta.grad(lambda x: ta.sum(ta.grad(f)(x) * ta.asarray(t)))(x),
    ]
    assert all(np.isfinite(value(y)).all() for y in found)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, F8])
@pytest.mark.parametrize("shape", [(3, 3), (1, 3), (3, 1)])
def test_a_deviation_of_equal_elements_is_exactly_zero(dtype: Any, shape: Any) -> None:
    """Also of numbers that their mean cannot represent."""
    x, t = np.full(shape, 1 / 3, dtype), np.ones(shape, dtype)
    t[0, 0] = -0.5

    def f(x: Any) -> Any:
        return ta.sum(x * ta.std(x, axis=0, keepdims=True))

    assert np.all(value(ta.std(ta.asarray(x), axis=0)) == 0)
    assert np.all(gradient(f, x)[0] == 0)
    assert np.all(value(pushed(f, x, t)) == 0)
    assert np.isfinite(value(curvature(f, x, t))).all()


# ---- products with zeros -------------------------------------------------------------


@DOUBLE
@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_products_are_polynomials_whatever_is_zero(zeros: int, dtype: Any) -> None:
    x, t = draw(13, 4, dtype=dtype), draw(14, 4, dtype=dtype)
    x[:zeros] = 0

    def chained(x: Any) -> Any:
        return x[0] * x[1] * x[2] * x[3]

    def running(x: Any) -> Any:
        return ta.sum(ta.cumulative_prod(x))

    def summed(x: Any) -> Any:
        return x[0] + x[0] * x[1] + x[0] * x[1] * x[2] + chained(x)

    for f, wanted in ((ta.prod, chained), (running, summed)):
        close(gradient(real_of(f), x)[0], gradient(real_of(wanted), x)[0], 1e-13)
        close(
            curvature(real_of(f), x, t), value(curvature(real_of(wanted), x, t)), 1e-12
        )


# ---- complex conventions -------------------------------------------------------------

HOLOMORPHIC = {
    name: getattr(ta, name)
    for name in (
        "exp expm1 log log1p log2 log10 sqrt square reciprocal sin cos tan sinh cosh "
        "tanh asinh atan negative"
    ).split()
} | {
    "pow": lambda x: ta.pow(x, 2.5),
    "pow3": lambda x: x**3,
    "inv": lambda x: linalg.inv(ta.reshape(x, (2, 2))),
    "fft": ta.fft.fft,
    "prod": ta.prod,
    "cumulative_prod": ta.cumulative_prod,
    "matmul": lambda x: ta.reshape(x, (2, 2)) @ ta.reshape(x, (2, 2)),
}


@pytest.mark.parametrize("name", HOLOMORPHIC)
def test_30_forward_mode_never_conjugates_and_reverse_mode_always(name: str) -> None:
    """For holomorphic f: J(i t) = i J(t), and the gradient is conj(f') times the
    cotangent: it turns with it against the other way."""
    f = HOLOMORPHIC[name]
    x, t = draw(15, 4, dtype=C16) + 2, draw(16, 4, dtype=C16)
    close(pushed(f, x, 1j * t), 1j * value(pushed(f, x, t)), 1e-12)
    out, pull = ta.vjp(f, ta.asarray(x))
    w = draw(17, *out.shape, dtype=C16)
    once, turned = pull(ta.asarray(w))[0], pull(ta.asarray(1j * w))[0]
    close(turned, 1j * value(once), 1e-12)
    # <w, J t> = <J* w, t>, with the plain complex product on both sides.
    left = np.vdot(w, value(pushed(f, x, t)))
    close(np.vdot(value(once), t), left, 1e-12)


@pytest.mark.parametrize("name", ["matmul", "prod"])
def test_30_complex_products_are_those_of_real_blocks(name: str) -> None:
    """z = a + b i as the matrix [[a, -b], [b, a]]: the same gradients."""
    z, w = draw(18, 3, 3, dtype=C16), draw(19, 3, 3, dtype=C16)

    def blocks(re: Any, im: Any) -> Any:
        top, low = ta.concat([re, -im], axis=-1), ta.concat([im, re], axis=-1)
        return ta.concat([top, low], axis=-2)

    def of_blocks(re: Any, im: Any) -> Any:
        if name == "matmul":
            found = blocks(re, im) @ blocks(re, im)
            return found[:3, :3], found[3:, :3]
        found = ta.eye(2)
        for k in range(3):
            found = found @ blocks(re[k : k + 1, 0:1], im[k : k + 1, 0:1])
        return found[0, 0], found[1, 0]

    def of_complex(z: Any) -> Any:
        found = z @ z if name == "matmul" else ta.prod(z[:, 0])
        return ta.real(found), ta.imag(found)

    def total(parts: Any) -> Any:
        re, im = parts
        u = w if name == "matmul" else w[0, 0]
        return ta.sum(re * u.real) + ta.sum(im * u.imag)

    (g,) = gradient(lambda z: total(of_complex(z)), z)
    re, im = gradient(lambda a, b: total(of_blocks(a, b)), z.real.copy(), z.imag.copy())
    close(g, re + 1j * im, 1e-12)


def test_a_real_operand_among_complex_ones_has_a_real_gradient() -> None:
    x, z = draw(20, 3), draw(21, 3, dtype=C16)
    for f in (
        lambda x, z: ta.sum(ta.abs(x * z) ** 2),
        lambda x, z: ta.real(ta.sum(x / z)),
        lambda x, z: ta.sum(ta.abs(ta.pow(z, ta.abs(x)))),
    ):
        gx, gz = gradient(f, x, z)
        assert gx.dtype == F8
        assert gz.dtype == C16
        check_grads(f, [x, z], order=2)


@DOUBLE
def test_powers_with_exponent_zero_and_at_zero(dtype: Any) -> None:
    x = np.array([0, 2, -1.5], dtype)
    # The exponent 0 has slope 0 everywhere, whatever kind of number it is.
    for zero in (0, 0.0, np.zeros(3)):
        (g,) = gradient(lambda x, n=zero: ta.sum(ta.real(ta.pow(x, n) + 0j)), x)
        close(g, np.zeros(3))
    (g,) = gradient(lambda x: ta.sum(ta.real(ta.pow(x, 2) + 0j)), x)
    close(g, 2 * x.conj())
    (g,) = gradient(
        lambda y: ta.sum(ta.real(ta.pow(ta.asarray(x), y) + 0j)), np.ones(3) * (2 + 0j)
    )
    assert g[0] == 0


def test_the_variance_is_that_of_the_population() -> None:
    for dtype in (F8, C16):
        x = draw(22, 5, dtype=dtype)
        close(ta.var(ta.asarray(x)), np.mean(np.abs(x - x.mean()) ** 2))
        (g,) = gradient(ta.var, x)
        close(g, 2 * (x - x.mean()) / 5)
        check_grads(ta.var, [x], order=2)


# ---- selections, indices, transforms of other lengths --------------------------------


# The branch that is not taken, at points where it is undefined, and the one taken.
UNTAKEN = {
    "root": (lambda x: x > 0.0, lambda x: ta.sqrt(x)),
    "quotient": (lambda x: x != 0.0, lambda x: 1.0 / x),
    "logarithm": (lambda x: x > 0.0, lambda x: ta.log(x)),
    "power": (lambda x: x > 0.0, lambda x: x**1.5),
    "overflow": (lambda x: x < -2.0, lambda x: ta.exp(1000.0 * x)),
    "norm": (lambda x: x > 9.0, lambda x: linalg.norm(x - x)),
    "entropy": (lambda x: x > 0.0, lambda x: x * ta.log(x)),
    "product": (lambda x: x > 0.0, lambda x: ta.exp(x) * ta.sqrt(x)),
    "angle": (lambda x: x > 0.0, lambda x: ta.atan2(x, x) / ta.hypot(x, x)),
}


@pytest.mark.parametrize("name", UNTAKEN)
def test_32_where_lets_nothing_through_in_any_order_or_mode(name: str) -> None:
    taken, undefined = UNTAKEN[name]
    x = np.array([-1.0, 0.0, 4.0])
    here = np.asarray(taken(ta.asarray(x)))
    ones = [np.ones(3)] * 3

    def f(x: Any) -> Any:
        return ta.sum(ta.where(taken(x), undefined(x), x**4))

    # Derivatives of x ** 4, from the first to the fourth.
    polynomial = [4 * x**3, 12 * x**2, 24 * x, np.full(3, 24.0)]
    for order, wanted in enumerate(polynomial):
        reverse = ta.grad(f)
        for _ in range(order):
            reverse = ta.grad(lambda x, g=reverse: ta.sum(g(x)))
        for seen in (
            along(ta.grad(f), x, ones[:order]),
            reverse(x),
            ta.grad(lambda x, n=order: along(f, x, ones[:n]))(x),
        ):
            assert np.isfinite(value(seen)).all()
            close(value(seen)[~here], wanted[~here], 1e-14)


def test_33_ties_in_half_precision_share_rightly() -> None:
    """70 000 is no number of half precision, and 1 / 70 000 is one."""
    for fn in (ta.max, ta.min):
        shares = value(ta.grad(fn)(np.ones(70_000, np.float16)))
        assert shares.dtype == np.float16
        assert np.all(shares == np.float16(1.4305e-5))
        out, pull = ta.vjp(lambda x, f=fn: f(x, axis=1), np.ones((2, 70_000), "f2"))
        (shares,) = pull(ta.asarray(np.array([1.0, 2.0], np.float16)))
        assert np.all(value(shares)[1] == np.float16(2 / 70_000))
        assert out.dtype == np.float16


@DOUBLE
def test_repeated_indices_add_up_in_every_order(dtype: Any) -> None:
    x, rows = draw(23, 4, 2, dtype=dtype), ta.asarray([2, 0, 2, 2, -2])

    def f(x: Any) -> Any:
        y = ta.take(x, rows, axis=0)
        z = ta.index_add(x, rows, y * y, axis=0)
        return ta.segment_sum(z[rows], ta.asarray([1, 0, 1, 1, 2]), num_segments=3)

    def dense(x: Any) -> Any:
        s = np.eye(4)[[2, 0, 2, 2, 2]]
        y = ta.asarray(s) @ x
        z = x + ta.asarray(s.T) @ (y * y)
        return ta.asarray(np.eye(3)[[1, 0, 1, 1, 2]].T @ s) @ z

    def energy(f: Any) -> Any:
        return lambda x: ta.sum(ta.abs(f(x)) ** 2)

    t = draw(24, 4, 2, dtype=dtype)
    close(gradient(energy(f), x)[0], gradient(energy(dense), x)[0], 1e-12)
    close(curvature(energy(f), x, t), value(curvature(energy(dense), x, t)), 1e-12)


@pytest.mark.parametrize("n", [3, 5, 8])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_54_transforms_of_another_length_than_the_axis(name: str, n: int) -> None:
    kind = F8 if name in ("rfft", "ihfft") else C16
    x = draw(25, 2, 5, dtype=kind)
    check_grads(lambda x: getattr(ta.fft, name)(x, n=n), [x], order=2)


@pytest.mark.parametrize("axes", [(0, 1), (2, 0), (1, 2), (-1, 0)])
def test_54_diagonals_along_other_axes(axes: Any) -> None:
    x = draw(26, 3, 4, 2)
    a, b = axes

    def f(x: Any) -> Any:
        return ta.diagonal(x, offset=1, axis1=a, axis2=b)

    close(f(ta.asarray(x)), np.diagonal(x, 1, a, b))
    check_grads(f, [x], order=2)


def test_48_a_leaf_that_branches_through_factors_and_plainly() -> None:
    x = draw(27, 3, 3) + 3 * np.eye(3)
    parts = [
        lambda x: ta.sum(linalg.qr(x).R ** 2 * np.arange(9.0).reshape(3, 3)),
        lambda x: ta.sum(linalg.svdvals(x) ** 3),
        lambda x: ta.sum(linalg.solve(x, x @ x)),
        lambda x: linalg.slogdet(x).logabsdet,
        lambda x: ta.sum(ta.exp(0.1 * x)),
    ]
    (whole,) = gradient(lambda x: sum(p(x) for p in parts[1:]) + parts[0](x), x)
    close(whole, sum(gradient(p, x)[0] for p in parts), 1e-10)


def test_exponentials_of_defective_matrices() -> None:
    a = np.array([[1.0, 1.0], [0.0, 1.0]])
    t = draw(28, 2, 2)
    close(linalg.expm(ta.asarray(a)), scipy.linalg.expm(a))
    close(pushed(linalg.expm, a, t), scipy.linalg.expm_frechet(a, t)[1])
    check_grads(linalg.expm, [a], order=2)


# ---- einsum --------------------------------------------------------------------------


@DOUBLE
@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("abcd->bd", [(3, 2, 3, 2)]),  # 35: labels that are only summed
        ("ii->", [(3, 3)]),  # 45
        ("ii->i", [(3, 3)]),
        ("i->ii", [(3,)]),
        ("iij->j", [(3, 3, 2)]),
        ("iji,jk->ik", [(3, 2, 3), (2, 2)]),  # 54: a label that is repeated
    ],
)
def test_35_44_45_54_einsum_between_other_functions(
    subscripts: str, shapes: Any, dtype: Any
) -> None:
    xs = [draw(30 + k, *s, dtype=dtype) for k, s in enumerate(shapes)]

    def f(*xs: Any) -> Any:
        return ta.sum(ta.exp(0.3 * ta.einsum(subscripts, *xs)))

    check_grads(f, xs, order=2)
    if subscripts == "abcd->bd":
        y = np.einsum(subscripts, xs[0])
        (g,) = gradient(lambda x: ta.sum(ta.abs(ta.einsum(subscripts, x)) ** 2), xs[0])
        close(g, np.broadcast_to(2 * y[None, :, None, :], xs[0].shape))
    if subscripts == "ii->":
        (g,) = gradient(lambda x: ta.real(ta.einsum("ii->", x) + 0j), xs[0])
        close(g, np.eye(3))
