"""Elementwise functions and operators: values and dtypes against NumPy, derivatives
against differences, kinks, promotion, and what is refused.
"""

import operator

import numpy as np
import pytest
import scipy.special

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad.engine import _fn_elementwise as E
from tenferro_ad.engine import _fn_reductions as R
from tenferro_ad.engine import _operators  # noqa: F401

RNG = np.random.default_rng(11)

# ours -> NumPy's function, and whether it takes complex numbers
UNARY = {
    "negative": (np.negative, True),
    "positive": (np.positive, True),
    "square": (np.square, True),
    "sqrt": (np.sqrt, True),
    "rsqrt": (lambda x: 1 / np.sqrt(x), True),
    "reciprocal": (lambda x: 1 / x, True),
    "cbrt": (np.cbrt, False),
    "exp": (np.exp, True),
    "expm1": (np.expm1, True),
    "exp2": (np.exp2, True),
    "log": (np.log, True),
    "log1p": (np.log1p, True),
    "log2": (np.log2, True),
    "log10": (np.log10, True),
    "sin": (np.sin, True),
    "cos": (np.cos, True),
    "tan": (np.tan, True),
    "asin": (np.arcsin, True),
    "acos": (np.arccos, True),
    "atan": (np.arctan, True),
    "sinh": (np.sinh, True),
    "cosh": (np.cosh, True),
    "tanh": (np.tanh, True),
    "asinh": (np.arcsinh, True),
    "acosh": (np.arccosh, True),
    "atanh": (np.arctanh, True),
    "sigmoid": (scipy.special.expit, False),
    "relu": (lambda x: np.maximum(x, x.dtype.type(0)), False),
    "softplus": (lambda x: np.logaddexp(x.dtype.type(0), x), False),
    "erf": (scipy.special.erf, True),
    "erfc": (scipy.special.erfc, True),
    "abs": (np.abs, True),
    "sign": (np.sign, True),
    "floor": (np.floor, False),
    "ceil": (np.ceil, False),
    "trunc": (np.trunc, False),
    "round": (np.round, True),
    "conj": (np.conj, True),
    "real": (np.real, True),
    "imag": (np.imag, True),
    "angle": (np.angle, True),
}
BINARY = {
    "add": (np.add, True),
    "subtract": (np.subtract, True),
    "multiply": (np.multiply, True),
    "divide": (np.divide, True),
    "pow": (np.power, True),
    "floor_divide": (np.floor_divide, False),
    "remainder": (np.remainder, False),
    "atan2": (np.arctan2, False),
    "hypot": (np.hypot, False),
    "logaddexp": (np.logaddexp, False),
    "copysign": (np.copysign, False),
    "nextafter": (np.nextafter, False),
    "complex": (lambda x, y: x + 1j * y, False),
    "maximum": (np.maximum, False),
    "minimum": (np.minimum, False),
}
LOGIC = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
INTEGERS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
}
CASES = [
    pytest.param(name, ours, n, dtype, id=f"{name}-{dtype}")
    for table, n in ((UNARY, 1), (BINARY, 2))
    for name, ours in table.items()
    for dtype in ("f4", "f8", "c8", "c16")
    if ours[1] or dtype[0] == "f"
]


def point(shape, dtype, *, above=0.0):
    """Away from kinks and branch cuts."""
    x = RNG.uniform(0.15, 0.85, shape) + above
    if np.dtype(dtype).kind == "c":
        x = x * np.exp(1j * RNG.uniform(0.2, 1.2, shape))
    return x.astype(dtype)


def tensors(xs):
    return tuple(ta.asarray(x) for x in xs)


def grad(f, x):
    return np.asarray(ta.grad(lambda v: R.sum(E.real(f(v))))(ta.asarray(x)))


def pairing(a, b):
    return np.sum(np.real(np.conj(np.asarray(a)) * np.asarray(b)))


def test_every_function_has_a_test_and_a_docstring():
    tested = {*UNARY, *BINARY, *LOGIC, *INTEGERS, "where", "clip", "astype"}
    tested |= {"logical_not", "bitwise_invert", "isfinite", "isinf", "isnan", "signbit"}
    tested |= {"nextafter"}
    assert set(E.__all__) == tested
    for name in E.__all__:
        assert "Cost:" in getattr(E, name).__doc__
        assert getattr(E, name).__name__ == name


@pytest.mark.parametrize(("name", "row", "n", "dtype"), CASES)
def test_values_and_both_derivatives(name, row, n, dtype):
    f, expected = getattr(E, name), row[0]
    above = 1.0 if name == "acosh" and dtype[0] == "f" else 0.0
    xs = [point(s, dtype, above=above) for s in ((3, 4), (4,))[:n]]
    ts = [point(x.shape, dtype) for x in xs]
    y, reference = f(*tensors(xs)), expected(*xs)
    assert (y.shape, y.dtype) == (reference.shape, reference.dtype)
    fine = y.dtype.itemsize == (16 if y.dtype.kind == "c" else 8)
    tol = 1e-12 if fine else 2e-6
    np.testing.assert_allclose(np.asarray(y), reference, rtol=tol, atol=tol)

    dy = ta.jvp(f, tensors(xs), tensors(ts))[1]
    assert (dy.shape, dy.dtype) == (y.shape, y.dtype)
    if fine:
        h = 1e-6
        up, down = (
            expected(*[x + s * h * t for x, t in zip(xs, ts, strict=True)])
            for s in (1, -1)
        )
        np.testing.assert_allclose(
            np.asarray(dy), (up - down) / (2 * h), rtol=2e-7, atol=2e-8
        )
    ct = point(y.shape, y.dtype)
    back = ta.vjp(f, *tensors(xs))[1](ta.asarray(ct))
    back = back if isinstance(back, tuple) else (back,)
    for g, x in zip(back, xs, strict=True):
        assert (g.shape, g.dtype) == (x.shape, x.dtype)
    total = sum(pairing(g, t) for g, t in zip(back, ts, strict=True))
    assert pairing(ct, dy) == pytest.approx(total, rel=10 * tol, abs=10 * tol)


@pytest.mark.parametrize(
    ("name", "row", "n", "dtype"), [c for c in CASES if c.values[3] in ("f8", "c16")]
)
def test_second_derivatives(name, row, n, dtype):
    f = getattr(E, name)
    above = 1.0 if name == "acosh" and dtype[0] == "f" else 0.0
    xs = [point((3,), dtype, above=above) for _ in range(n)]
    ts = [point((3,), dtype) for _ in range(n)]
    w = ta.asarray(point((3,), f(*tensors(xs)).dtype))
    which = tuple(range(n))

    def slope(*vs):
        found = ta.grad(lambda *v: R.sum(E.real(f(*v) * w)), which)(*vs)
        return found if isinstance(found, tuple) else (found,)

    pushed = ta.jvp(slope, tensors(xs), tensors(ts))[1]
    h = 1e-6
    ends = [
        slope(*tensors([x + s * h * t for x, t in zip(xs, ts, strict=True)]))
        for s in (1, -1)
    ]
    for got, up, down in zip(pushed, *ends, strict=True):
        expected = (np.asarray(up) - np.asarray(down)) / (2 * h)
        np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6, atol=1e-7)


# ---- powers -------------------------------------------------------------------------


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 3, 7, 8, 9, 20, 0.5, -0.5, 2.5])
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
def test_powers_by_python_numbers(n, dtype):
    x = point((5,), dtype)
    tol = 3e-6 if dtype == "f4" else 1e-13
    y = ta.asarray(x) ** n
    assert y.dtype == x.dtype
    np.testing.assert_allclose(np.asarray(y), x**n, rtol=tol)
    slope = np.conj(n * x ** (n - 1)) if n else np.zeros_like(x)
    np.testing.assert_allclose(grad(lambda v: v**n, x), slope, rtol=10 * tol)


def test_powers_of_integers_stay_integers():
    x = ta.asarray([1, 2, 3])
    for n in (0, 1, 2, 3, 5, 9):
        assert (x**n).tolist() == [1, 2**n, 3**n]
        assert (x**n).dtype == np.int64
    assert (2**x).tolist() == [2, 4, 8]
    assert (x**-1.0).dtype == np.float64
    assert (x**0.5).dtype == np.float64
    for bad in (-1, -2, ta.asarray([-1, 1, 1])):
        with pytest.raises(errors.InvalidArgumentError, match="negative power"):
            x**bad


def test_slopes_of_powers_at_zero():
    zero = np.array([0.0, 2.0])
    np.testing.assert_array_equal(grad(lambda v: v**0, zero), [0, 0])
    np.testing.assert_array_equal(grad(lambda v: v**1, zero), [1, 1])
    np.testing.assert_array_equal(grad(lambda v: v**2, zero), [0, 4])
    base = ta.asarray(zero)
    exponent = np.array([0.0, 0.0])
    np.testing.assert_array_equal(grad(lambda v: base**v, exponent), [0, np.log(2.0)])


# ---- kinks --------------------------------------------------------------------------


def test_kinks():
    np.testing.assert_array_equal(grad(E.abs, np.array([-2.0, 0, 2])), [-1, 0, 1])
    np.testing.assert_array_equal(grad(E.abs, np.array([0j, 3 + 4j])), [0, 0.6 + 0.8j])
    np.testing.assert_array_equal(grad(E.relu, np.array([-1.0, 0, 1])), [0, 0, 1])
    np.testing.assert_array_equal(grad(E.sqrt, np.array([0.0, 1])), [np.inf, 0.5])
    zero = ta.asarray(0.0)
    np.testing.assert_array_equal(grad(lambda v: E.hypot(v, zero), np.zeros(1)), [0])
    for f in (E.maximum, E.minimum):
        x, y = np.array([1.0, 2, 3]), ta.asarray(np.array([1.0, 0, 5]))
        taken = x > np.asarray(y) if f is E.maximum else x < np.asarray(y)
        np.testing.assert_array_equal(
            grad(lambda v, f=f, y=y: f(v, y), x), [0.5, *taken[1:].astype(float)]
        )
    for f in (E.floor, E.ceil, E.trunc, E.round):
        np.testing.assert_array_equal(grad(f, np.array([0.5, 1.0])), [0, 0])


def test_logaddexp_at_infinities():
    """As in `logsumexp`: what is -inf has no share, not even of nothing."""
    inf = np.inf
    x, y = np.array([-inf, -inf, 0, inf, inf]), np.array([-inf, 0, inf, 0, -inf])
    by_x, by_y = ta.grad(lambda v, w: ta.sum(E.logaddexp(v, w)), argnums=(0, 1))(x, y)
    assert np.asarray(by_x).tolist() == [0, 0, 0, 1, 1]
    assert np.asarray(by_y).tolist() == [0, 1, 1, 0, 0]
    curve = ta.hvp(lambda v: ta.sum(E.logaddexp(v, y)), (x,), (np.ones(5),))[1]
    assert np.asarray(curve).tolist() == [0.0] * 5


def test_clip_has_slope_one_on_the_closed_interval():
    x = np.array([-1, 0, 0.5, 1, 2])
    inside = [0, 1, 1, 1, 0]
    np.testing.assert_array_equal(grad(lambda v: E.clip(v, 0.0, 1.0), x), inside)
    lo, hi = ta.asarray(0.0), ta.asarray(np.ones(5))
    np.testing.assert_array_equal(grad(lambda v: E.clip(v, lo, hi), x), inside)
    np.testing.assert_array_equal(
        grad(lambda v: E.clip(v, min=0.0), x), [0, 1, 1, 1, 1]
    )
    np.testing.assert_array_equal(
        grad(lambda v: E.clip(v, max=1.0), x), [1, 1, 1, 1, 0]
    )
    xs = ta.asarray(x)
    assert grad(lambda v: E.clip(xs, v, 1.0), np.array(0.0)) == 1
    assert grad(lambda v: E.clip(xs, 0.0, v), np.array(1.0)) == 1
    assert E.clip(xs) is xs
    y = E.clip(ta.asarray([1, 5, 9]), 2, 6)
    assert (y.tolist(), y.dtype) == ([2, 5, 6], np.int64)
    assert np.isnan(E.clip(ta.asarray(np.nan), 0.0, 1.0).item())


def test_where_lets_nothing_through_from_the_branch_not_taken():
    big = np.array([1000.0])
    got = grad(lambda v: E.where(v <= 0, E.exp(v), 1 + v), big)
    np.testing.assert_array_equal(got, [1])
    x = np.array([-1.0, -4, 4])
    got = grad(lambda v: E.where(v > 0, E.sqrt(v), v), x)
    np.testing.assert_array_equal(got, [1, 1, 0.25])
    x = np.array([-1.0, 2])
    np.testing.assert_array_equal(grad(lambda v: v * (v < 0), x), [1, 0])
    pushed = ta.jvp(lambda v: v * (v < 0), (ta.asarray(x),), (ta.asarray(x),))[1]
    assert pushed.tolist() == [-1, 0]


def test_where_takes_numbers_and_broadcasts():
    c = ta.asarray([[True], [False]])
    x = ta.asarray(np.array([1, 2, 3], "f4"))
    y = E.where(c, x, 0.0)
    assert y.dtype == np.float32
    assert y.tolist() == [[1, 2, 3], [0, 0, 0]]
    assert E.where(True, x, x).shape == (3,)
    with pytest.raises(errors.DTypeError, match="`where` refused `condition`"):
        E.where(x, x, x)


# ---- promotion ----------------------------------------------------------------------


REAL_VALUED = ["sqrt", "exp", "log", "sin", "atan", "rsqrt", "reciprocal"]
REAL_VALUED += ["sigmoid", "softplus", "erf"]


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i2", "i4", "i8"])
def test_integers_give_double_precision_where_a_value_is_real(dtype):
    x = np.array([1, 1, 1] if dtype == "?" else [1, 3, 5], dtype)
    for name in REAL_VALUED:
        y = getattr(E, name)(ta.asarray(x))
        expected = UNARY[name][0](x.astype("f8"))
        assert y.dtype == np.float64
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-15)
    for name in ("divide", "atan2", "hypot", "logaddexp"):
        y = getattr(E, name)(ta.asarray(x), ta.asarray(x))
        expected = BINARY[name][0](x.astype("f8"), x.astype("f8"))
        assert y.dtype == np.float64
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-15)


def test_python_numbers_are_weak():
    single, integers = ta.asarray(np.ones(2, "f4")), ta.asarray([1, 2])
    for y in (single * 2.0, 2 - single, single / 3, E.maximum(single, 0.0)):
        assert y.dtype == np.float32
    assert (single * 1j).dtype == np.complex64
    assert (integers + 1).dtype == np.int64
    assert (integers * 1.5).dtype == np.float64
    assert (single + np.ones(2)).dtype == np.float64
    assert E.add(1, 2).item() == 3
    assert E.add([1, 2], single).dtype == np.float64


def test_gradients_have_the_shape_and_dtype_of_their_leaf():
    a, b = np.ones(1), RNG.standard_normal((5, 4))
    g = grad(lambda v: v * ta.asarray(b), a)
    assert g.shape == (1,)
    np.testing.assert_allclose(g, [b.sum()])
    g = grad(lambda v: v * ta.asarray(b), np.array(2.0))
    assert g.shape == ()
    g = grad(lambda v: v * ta.asarray(b.astype("f4")), np.ones(1, "f4"))
    assert g.dtype == np.float32


# ---- comparison, logic, bits --------------------------------------------------------


def test_logic_and_bits():
    x, y = np.array([0, 1, 2, 3]), np.array([3, 1, 0, 2])
    for table in (LOGIC, INTEGERS):
        for name, expected in table.items():
            got = getattr(E, name)(ta.asarray(x), ta.asarray(y))
            assert got.dtype == expected(x, y).dtype
            np.testing.assert_array_equal(np.asarray(got), expected(x, y))
    z = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1])
    for name in ("isfinite", "isinf", "isnan", "signbit", "logical_not"):
        got = getattr(E, name)(ta.asarray(z))
        np.testing.assert_array_equal(np.asarray(got), getattr(np, name)(z))
    assert E.bitwise_invert(ta.asarray(x)).tolist() == [-1, -2, -3, -4]
    assert E.logical_not(ta.asarray([True, False])).tolist() == [False, True]


# ---- operators ----------------------------------------------------------------------

OPERATORS = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow"]
OPERATORS += ["lt", "le", "gt", "ge", "eq", "ne"]


BITS = ["and_", "or_", "xor", "lshift", "rshift"]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [(n, "i8") for n in OPERATORS + BITS] + [(n, "f4") for n in OPERATORS],
)
def test_operators_in_both_orders(name, dtype):
    f = getattr(operator, name)
    x = np.array([1, 2, 3], dtype)
    for other in (2, np.array([2, 1, 3], dtype)):
        there = ta.asarray(other) if isinstance(other, np.ndarray) else other
        for got, expected in (
            (f(ta.asarray(x), there), f(x, other)),
            (f(there, ta.asarray(x)), f(other, x)),
            (f(ta.asarray(x), other), f(x, other)),
            (f(other, ta.asarray(x)), f(other, x)),
        ):
            assert isinstance(got, ta.EagerTensor)
            assert got.dtype == expected.dtype
            np.testing.assert_allclose(np.asarray(got), expected, rtol=1e-6)


def test_unary_operators_matmul_and_rebinding():
    x = ta.asarray([[1.0, -2.0], [3.0, 4.0]])
    assert (-x).tolist() == [[-1, 2], [-3, -4]]
    assert abs(x).tolist() == [[1, 2], [3, 4]]
    assert (+x).tolist() == x.tolist()
    assert (~ta.asarray([True, False])).tolist() == [False, True]
    assert (x @ x).tolist() == (np.asarray(x) @ np.asarray(x)).tolist()
    assert (np.asarray(x) @ x).tolist() == (x @ x).tolist()
    y = x
    y += 1
    assert (x.tolist(), y.tolist()) == ([[1, -2], [3, 4]], [[2, -1], [4, 5]])
    assert len({x, y, x}) == 2


def test_methods_are_the_functions():
    a = RNG.standard_normal((2, 3))
    x = ta.asarray(a)
    for name in ("sum", "mean", "prod", "max", "min", "var", "std", "argmax", "argmin"):
        got, expected = getattr(x, name)(1), getattr(a, name)(1)
        np.testing.assert_allclose(np.asarray(got), expected)
    assert (x.any().item(), x.all(axis=0).shape) == (True, (3,))
    assert x.astype("f4").dtype == np.float32
    assert x.astype("f8", copy=False) is x
    z = ta.asarray([1 + 2j])
    assert (z.real.item(), z.imag.item(), z.conj().item()) == (1, 2, 1 - 2j)
    assert E.imag(x.astype("f4")).dtype == np.float32
    assert x.__array_namespace__() is ta


def test_backward_of_a_value():
    x = ta.variable([1.0, 2.0])
    with ta.Tape():
        loss = R.sum(x * x)
    # The tape is gone with its `with` block's name: the value says what is wrong.
    with pytest.raises(errors.GradientError):
        loss.backward()
    with ta.Tape() as tape:
        loss = R.sum(x * x)
    grads = loss.backward()
    with grads.grad(x) as view:
        np.testing.assert_array_equal(view.numpy(), [2, 4])
    with pytest.raises(errors.TapeConsumedError):
        tape.backward(loss)
    with pytest.raises(errors.InactiveTapeError, match="no tape recorded"):
        x.backward()


# ---- refusals -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        lambda x, b, z: x + "a",
        lambda x, b, z: object() * x,
        lambda x, b, z: b - b,
        lambda x, b, z: -b,
        lambda x, b, z: b**2,
        lambda x, b, z: x & 1,
        lambda x, b, z: x << 1,
        lambda x, b, z: ~x,
        lambda x, b, z: z < 1,
        lambda x, b, z: z // 2,
        lambda x, b, z: E.maximum(z, z),
        lambda x, b, z: E.floor(z),
        lambda x, b, z: E.atan2(z, z),
        lambda x, b, z: E.clip(z, 0, 1),
        lambda x, b, z: E.exp("a"),
        lambda x, b, z: x.astype("U"),
    ],
)
def test_operands_that_make_no_sense_are_refused(act):
    operands = [ta.asarray(v) for v in ([1.0, 2.0], [True, False], [1j, 2j])]
    with ta.ledger() as led, pytest.raises(errors.DTypeError):
        act(*operands)
    assert not led.allocations


def test_shapes_that_do_not_broadcast():
    with pytest.raises(errors.ShapeError, match=r"\(3,\) and \(2,\)"):
        ta.asarray(np.ones(3)) + ta.asarray(np.ones(2))


def test_the_next_number_of_the_dtype():
    x = np.array([0.0, 1.0, -1.0, np.inf], np.float32)
    seen = E.nextafter(ta.asarray(x), ta.asarray(np.float32(2)))
    np.testing.assert_array_equal(np.asarray(seen), np.nextafter(x, np.float32(2)))
    assert seen.dtype == np.float32
