"""Reductions: values and dtypes against NumPy, derivatives against differences, and the
points where careless rules break (zeros, ties, constants, infinities, half precision).
"""

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad.engine import _fn_elementwise as E
from tenferro_ad.engine import _fn_reductions as R

RNG = np.random.default_rng(7)
SMOOTH = ("sum", "mean", "prod", "max", "min", "var", "std", "logsumexp")
REAL_ONLY = ("max", "min", "logsumexp")
FORMS = [
    ((3, 4), {}),
    ((3, 4), {"axis": 0}),
    ((3, 4), {"axis": (-1,), "keepdims": True}),
    ((2, 3, 5), {"axis": (2, 0)}),
    ((2, 3), {"axis": ()}),
    ((), {}),
]


def sample(shape, dtype):
    x = RNG.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * RNG.standard_normal(shape)
    return np.asarray(x, dtype)


def reference(name, x, axis=None, keepdims=False):
    if name == "logsumexp":
        return np.log(np.sum(np.exp(x), axis=axis, keepdims=keepdims))
    return getattr(np, name)(x, axis=axis, keepdims=keepdims)


def grad(f, x):
    return np.asarray(ta.grad(lambda v: R.sum(E.real(f(v))))(ta.asarray(x)))


def product(f, x, t):
    """Hessian times `t` of the sum of `f`."""
    g = ta.grad(lambda v: R.sum(E.real(f(v))))
    return np.asarray(ta.jvp(g, (ta.asarray(x),), (ta.asarray(t),))[1])


def pairing(a, b):
    return np.sum(np.real(np.conj(np.asarray(a)) * np.asarray(b)))


CASES = [
    pytest.param(name, shape, form, dtype, id=f"{name}-{shape}-{form}-{dtype}")
    for name in SMOOTH
    for shape, form in FORMS
    for dtype in ("f4", "f8", "c8", "c16")
    if not (dtype[0] == "c" and name in REAL_ONLY)
    # The kink of `std` has a test of its own.
    if not (name == "std" and (shape == () or form.get("axis") == ()))
]


@pytest.mark.parametrize(("name", "shape", "form", "dtype"), CASES)
def test_values_and_both_derivatives(name, shape, form, dtype):
    x, t = sample(shape, dtype), sample(shape, dtype)
    fine = x.dtype.itemsize // (2 if x.dtype.kind == "c" else 1) == 8
    tol = 1e-12 if fine else 1e-5

    def f(v):
        return getattr(R, name)(v, **form)

    y = f(ta.asarray(x))
    expected = reference(name, x, **form)
    assert y.dtype == expected.dtype
    assert y.shape == expected.shape
    np.testing.assert_allclose(np.asarray(y), expected, rtol=tol, atol=tol)

    dy = ta.jvp(f, (ta.asarray(x),), (ta.asarray(t),))[1]
    assert (dy.shape, dy.dtype) == (y.shape, y.dtype)
    if fine:
        h = 1e-6
        ends = [reference(name, x + s * h * t, **form) for s in (1, -1)]
        slope = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(np.asarray(dy), slope, rtol=1e-6, atol=1e-6)
    ct = np.asarray(sample(y.shape, y.dtype))
    (dx,) = np.atleast_1d(ta.vjp(f, ta.asarray(x))[1](ta.asarray(ct)))[:1]
    assert (dx.shape, dx.dtype) == (x.shape, x.dtype)
    assert pairing(ct, dy) == pytest.approx(pairing(dx, t), rel=50 * tol, abs=50 * tol)


@pytest.mark.parametrize("name", [*SMOOTH, "softmax", "log_softmax"])
def test_second_derivatives(name):
    x, t, w = (sample((3, 4), "f8") for _ in range(3))

    def f(v):
        y = getattr(R, name)(v, axis=-1)
        return E.sin(y) * ta.asarray(w if y.ndim == 2 else w[:, 0].copy())

    h = 1e-5
    expected = (grad(f, x + h * t) - grad(f, x - h * t)) / (2 * h)
    np.testing.assert_allclose(product(f, x, t), expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("axis", [0, -1, (0, 1), None])
def test_softmax_family(axis):
    x = sample((3, 4), "f8") * 30
    e = np.exp(x - x.max())
    p = e / e.sum(axis=axis, keepdims=True)
    np.testing.assert_allclose(np.asarray(R.softmax(ta.asarray(x), axis=axis)), p)
    np.testing.assert_allclose(
        np.asarray(R.log_softmax(ta.asarray(x), axis=axis)), np.log(p), atol=1e-12
    )
    ct = sample((3, 4), "f8")
    w = ta.asarray(ct)
    np.testing.assert_allclose(
        grad(lambda v: R.softmax(v, axis=axis) * w, x),
        p * (ct - (p * ct).sum(axis=axis, keepdims=True)),
        atol=1e-12,
    )
    np.testing.assert_allclose(
        grad(lambda v: R.log_softmax(v, axis=axis) * w, x),
        ct - p * ct.sum(axis=axis, keepdims=True),
        atol=1e-12,
    )


# ---- dtypes -------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u4", "f2", "f4"])
def test_result_dtypes(dtype):
    x = ta.asarray(np.array([[1, 0, 1], [1, 1, 1]], dtype))
    kind = np.dtype(dtype).kind
    total = {"b": "i8", "i": "i8", "u": "u8"}.get(kind, dtype)
    floating = dtype if kind == "f" else "f8"
    for name, expected in {
        "sum": total,
        "prod": total,
        "mean": floating,
        "var": floating,
        "std": floating,
        "logsumexp": floating,
        "softmax": floating,
        "max": dtype,
        "min": dtype,
        "argmax": "i8",
        "argmin": "i8",
        "any": "?",
        "all": "?",
        "count_nonzero": "i8",
    }.items():
        y = getattr(R, name)(x)
        assert y.dtype == np.dtype(expected), name
    assert R.sum(x).item() == 5
    assert R.prod(x).item() == 0
    assert R.count_nonzero(x).item() == 5
    assert (R.any(x).item(), R.all(x).item()) == (True, False)
    assert (R.argmin(x).item(), R.argmax(x).item()) == (1, 0)
    assert R.sum(x, dtype="f8").dtype == np.float64


def test_small_integers_do_not_overflow():
    assert R.sum(ta.asarray(np.full(100, 100, "i1"))).item() == 10_000
    x = ta.asarray(np.array([-128, 127], "i1"))
    np.testing.assert_allclose(np.asarray(R.softmax(x)), [np.exp(-255), 1])
    assert R.var(x).item() == 127.5**2


def test_half_precision_accumulates_wide():
    ones = np.ones(70_000, "f2")
    x = ta.asarray(ones)
    assert R.mean(x).item() == 1
    assert R.sum(ta.asarray(np.full(3_000, 1, "f2"))).item() == 3_000
    share = np.float16(1 / 70_000)
    for f in (R.max, R.min, R.mean):
        g = grad(f, ones)
        assert g.dtype == np.float16
        assert (g == share).all()
        pushed = ta.jvp(f, (x,), (x,))[1]
        assert pushed.item() == 1


def test_single_precision_sums_are_accurate_along_any_axis():
    tall = RNG.random((200_000, 3)).astype("f4")
    for x, axis in ((tall, 0), (tall.T.copy(), 1), (tall, None)):
        exact = x.sum(axis=axis, dtype="f8")
        got = np.asarray(R.sum(ta.asarray(x), axis=axis), "f8")
        assert np.abs(got / exact - 1).max() < 3e-7
    far = tall + np.float32(1000)
    got = np.asarray(R.var(ta.asarray(far), axis=0), "f8")
    assert np.abs(got / far.var(axis=0, dtype="f8") - 1).max() < 1e-6


# ---- kinks and degenerate points ----------------------------------------------------


def test_ties_share_equally_in_both_modes():
    x = np.array([[1.0, 3, 3], [2, 2, 2]])
    shares = [[0, 0.5, 0.5], [1 / 3] * 3]
    np.testing.assert_allclose(grad(lambda v: R.max(v, axis=1), x), shares)
    np.testing.assert_allclose(grad(lambda v: R.min(v, axis=1), -x), shares)
    t = np.array([[1.0, 2, 4], [3, 6, 9]])
    pushed = ta.jvp(lambda v: R.max(v, axis=1), (ta.asarray(x),), (ta.asarray(t),))[1]
    np.testing.assert_allclose(np.asarray(pushed), [3, 6])


def test_nan_is_the_extremum_and_takes_the_slope():
    x = np.array([1.0, np.nan, 3])
    assert np.isnan(R.max(ta.asarray(x)).item())
    assert np.isnan(R.min(ta.asarray(x)).item())
    np.testing.assert_array_equal(grad(R.max, x), [0, 1, 0])


def test_products_with_zeros():
    np.testing.assert_array_equal(grad(R.prod, np.array([0.0, 2, 3])), [6, 0, 0])
    np.testing.assert_array_equal(grad(R.prod, np.array([0.0, 0, 3])), [0, 0, 0])
    x = np.array([0.0, 0, 3, 5, 7])
    hessian = np.array([product(R.prod, x, row) for row in np.eye(5)])
    expected = np.zeros((5, 5))
    expected[0, 1] = expected[1, 0] = 105
    np.testing.assert_array_equal(hessian, expected)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_product_slope_is_the_product_of_the_others(n):
    x = sample((2, n, 3), "c16")
    w = sample((2, 3), "c16")
    others = np.stack(
        [np.prod(np.delete(x, k, axis=1), axis=1) for k in range(n)], axis=1
    )
    got = grad(lambda v: R.prod(v, axis=1) * ta.asarray(w), x)
    np.testing.assert_allclose(got, np.conj(others * w[:, None]), rtol=1e-12)


def test_constants_have_no_spread_and_no_slope():
    x = np.full(10, 0.1)
    assert R.std(ta.asarray(x)).item() == 0
    np.testing.assert_array_equal(grad(R.std, x), np.zeros(10))
    np.testing.assert_array_equal(product(R.std, x, np.arange(10.0)), np.zeros(10))
    pushed = ta.jvp(R.std, (ta.asarray(x),), (ta.asarray(np.arange(10.0)),))[1]
    assert pushed.item() == 0


def test_correction():
    x = sample((4, 5), "f8")
    for c in (0, 1, 1.5):
        got = R.var(ta.asarray(x), axis=1, correction=c)
        np.testing.assert_allclose(np.asarray(got), x.var(axis=1, ddof=c))
        got = grad(lambda v, c=c: R.std(v, axis=1, correction=c), x)
        d = x - x.mean(axis=1, keepdims=True)
        expected = d / ((5 - c) * x.std(axis=1, ddof=c, keepdims=True))
        np.testing.assert_allclose(got, expected)


def test_logsumexp_at_infinities():
    x = np.array([-np.inf, 0.0, 1.0])
    p = np.exp(x) / np.exp(x).sum()
    np.testing.assert_allclose(grad(R.logsumexp, x), p)
    assert np.isfinite(product(R.logsumexp, x, np.ones(3))).all()
    none = np.full(3, -np.inf)
    assert R.logsumexp(ta.asarray(none)).item() == -np.inf
    np.testing.assert_array_equal(grad(R.logsumexp, none), np.zeros(3))
    assert R.logsumexp(ta.asarray(np.array([1e4, 1e4]))).item() == 1e4 + np.log(2)
    assert R.logsumexp(ta.asarray(np.array([np.inf, 0]))).item() == np.inf


def test_empty_values_have_neutral_elements():
    e = ta.asarray(np.zeros((0, 3)))
    for name, neutral in {
        "sum": 0,
        "prod": 1,
        "any": False,
        "all": True,
        "count_nonzero": 0,
        "logsumexp": -np.inf,
    }.items():
        y = np.asarray(getattr(R, name)(e, axis=0))
        np.testing.assert_array_equal(y, np.full(3, neutral))
    assert R.softmax(e, axis=0).shape == (0, 3)
    assert grad(lambda v: R.prod(v) * 2.0, np.zeros((0, 3))).shape == (0, 3)


@pytest.mark.parametrize(("shape", "axis"), [((0, 3), 1), ((3, 0), 0), ((0, 0), 0)])
@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "logsumexp", "prod"])
def test_gradients_without_elements_come_through_an_axis(name, shape, axis):
    """The slope of what is below the reduction may be written over its cotangent, which
    a broadcast gave."""
    reduce = getattr(R, name)
    x = np.zeros(shape)
    assert grad(lambda v: ta.exp(reduce(ta.exp(v), axis=axis)), x).shape == shape
    assert product(lambda v: reduce(ta.exp(v), axis=axis), x, x).shape == shape


def test_sums_of_sums():
    g = grad(lambda v: R.sum(R.sum(v, axis=0)), np.ones((4, 3)))
    np.testing.assert_array_equal(g, np.ones((4, 3)))


# ---- retention and allocations ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("sum", set()),
        ("mean", set()),
        ("softmax", {"out"}),
        ("log_softmax", {"out"}),
        ("var", {"x"}),
        ("prod", {"x"}),
        ("std", {"x", "out"}),
        ("max", {"x", "out"}),
        ("logsumexp", {"x", "out"}),
    ],
)
def test_retention_and_one_allocation(name, kept):
    x = ta.variable(sample((3, 4), "f8"))
    with ta.Tape() as tape:
        with ta.ledger() as led:
            y = getattr(R, name)(x)
        assert {r.value for r in tape.retained()} == kept
    led.expect(allocations={"OperationOutput": 1}, copies={})
    assert y.shape in ((), (3, 4))


@pytest.mark.parametrize("name", [*SMOOTH, "softmax", "log_softmax"])
def test_derivatives_copy_nothing(name):
    x = ta.variable(sample((4, 6), "f8"))
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = R.sum(getattr(R, name)(x, axis=0) * 2.0)
        tape.backward(y)
    assert not led.copies


# ---- bad input ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("axis", "error"),
    [
        (2, errors.IndexRangeError),
        (-3, errors.IndexRangeError),
        ((0, 0), errors.InvalidArgumentError),
        ((0, -2), errors.InvalidArgumentError),
        (1.0, errors.DTypeError),
        (True, errors.DTypeError),
        ("x", errors.DTypeError),
    ],
)
def test_bad_axes(axis, error):
    x = ta.asarray(np.ones((2, 3)))
    for name in ("sum", "mean", "max", "var", "softmax", "any"):
        with pytest.raises(error, match=f"`{name}` refused `axis`"):
            getattr(R, name)(x, axis=axis)


def test_what_has_no_answer_is_refused():
    empty, z = ta.asarray(np.zeros((0, 3))), ta.asarray(1j)
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(errors.InvalidArgumentError, match="no elements"):
            getattr(R, name)(empty, axis=0)
        with pytest.raises(errors.DTypeError, match="no order"):
            getattr(R, name)(z)
    for name in ("logsumexp", "softmax", "log_softmax"):
        with pytest.raises(errors.DTypeError, match="no order"):
            getattr(R, name)(z if name == "logsumexp" else ta.asarray([1j]))
    with pytest.raises(errors.IndexRangeError):
        R.argmax(ta.asarray(np.ones(3)), axis=1)
