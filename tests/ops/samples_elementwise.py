"""Samples of the elementwise rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from .samples import (
    Draw,
    Drawer,
    Sample,
    between,
    off_integers,
    outside,
    row,
    spread,
)

F8, F4, C16, C8, I8, I4, U1, B = (
    np.float64,
    np.float32,
    np.complex128,
    np.complex64,
    np.int64,
    np.int32,
    np.uint8,
    np.bool_,
)
ANY = outside(0.2, 2.0)


def unary(
    name: str,
    reference: Callable[..., Any],
    keeps: str | None,
    real: Draw | None = ANY,
    complex_: Draw | bool = False,
    *,
    ints: tuple[int, int] | None = (-4, 5),
    small: tuple[Any, ...] = (),
    keeps_complex: str | None = None,
) -> None:
    """A function of one argument.

    Args:
        real: draws real points; None: none are taken.
        complex_: draws parts of complex points; True for the usual ones.
        ints: range of integers; None: none are taken.
        small: further dtypes.
    """
    draw = Drawer(name, real or ANY, complex_ if callable(complex_) else None)
    found = []

    def add(label: str, x: Any, heavy: bool = False) -> None:
        found.append(Sample(label, (x,), (), heavy))

    if real is not None:
        add("float64", draw((3, 4)))
        add("float32", draw((5,), F4))
        add("0-d", draw(()))
        add("empty", draw((0, 3)))
        add("flipped view", draw.flipped((3, 4)))
        add("transposed view", draw.transposed((3, 2), F4))
        add("stride 0", draw.repeated((3, 4)))
        add("many blocks", draw((2, 9001)), heavy=True)
        add("many blocks, view", draw.flipped((3, 9001)), heavy=True)
    if complex_:
        add("complex128", draw((2, 3), C16))
        add("complex64", draw((4,), C8))
        add("complex view", draw.flipped((2, 3), C16))
        add("complex 0-d", draw((), C16))
        add("complex blocks", draw((17_000,), C16), heavy=True)
    if ints is not None:
        draw.ints = ints
        add("int64", draw((2, 3), I8))
        add("int32 view", draw.flipped((2, 3), I4))
    for dtype in small:
        add(np.dtype(dtype).name, draw((4,), dtype))
    row(
        name,
        reference,
        found,
        keeps={} if keeps is None else {"x": keeps},
        keeps_complex=None if keeps_complex is None else {"x": keeps_complex},
    )


def binary(
    name: str,
    reference: Callable[..., Any],
    keeps: tuple[str, str] | None,
    first: Draw = ANY,
    second: Draw | None = None,
    *,
    complex_: bool = False,
    ints: tuple[int, int] | None = (-4, 5),
    second_ints: tuple[int, int] | None = None,
    floats: bool = True,
    small: tuple[Any, ...] = (),
    keeps_complex: tuple[str, str] | None = None,
    special: tuple[Sample, ...] = (),
) -> None:
    """A function of two arguments, with broadcasting and promotion."""
    xs, ys = Drawer(name, first), Drawer(name + " second", second or first)
    if ints is not None:
        xs.ints, ys.ints = ints, second_ints or ints
    found = []

    def add(label: str, x: Any, y: Any, heavy: bool = False) -> None:
        found.append(Sample(label, (x, y), (), heavy))

    if floats:
        add("float64", xs((3, 4)), ys((3, 4)))
        add("row and column", xs((3, 1)), ys((4,)))
        add("1 against many", xs((1,)), ys((5, 4)))
        add("0-d first", xs(()), ys((2, 3)))
        add("0-d both", xs(()), ys(()))
        add("empty", xs((0, 3)), ys((3,)))
        add("float32", xs((5,), F4), ys((5,), F4))
        add("promoted", xs((2, 3), F4), ys((3,)))
        add("views", xs.flipped((3, 4)), ys.transposed((3, 4)))
        add("stride 0", xs.repeated((3, 4)), ys((3, 4)))
        add("blocks", xs((2, 9001)), ys((2, 9001)), heavy=True)
        add("broadcast blocks", xs((2, 9001)), ys((9001,)), heavy=True)
    if complex_:
        add("complex128", xs((2, 3), C16), ys((2, 3), C16))
        add("complex row", xs((3, 1), C16), ys((4,), C16))
        add("complex64", xs((4,), C8), ys((4,), C8))
        add("complex and real", xs((2, 3), C16), ys((3,)))
        add("real and complex", xs((2, 3)), ys((3,), C16))
        add("complex view", xs.flipped((2, 3), C16), ys.transposed((2, 3), C16))
    if ints is not None:
        add("int64", xs((2, 3), I8), ys((3,), I8))
        add("int32", xs((2, 3), I4), ys((2, 3), I4))
        if floats:
            add("int64 and float64", xs((2, 3), I8), ys((2, 3)))
    for dtype in small:
        add(np.dtype(dtype).name, xs((2, 3), dtype), ys((3,), dtype))

    def named(pair: tuple[str, str] | None) -> dict[str, str] | None:
        return None if pair is None else dict(zip(("x", "y"), pair, strict=True))

    row(
        name,
        reference,
        found,
        keeps=named(keeps) or {},
        keeps_complex=named(keeps_complex),
        special=special,
    )


def doubled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """NumPy's function, integers taken as float64 whatever their width."""

    def reference(*xs: Any) -> Any:
        return fn(*[x.astype(F8) if x.dtype.kind in "biu" else x for x in xs])

    return reference


def kept(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A reference that computes in its own dtype; the result has the operands' one."""

    def reference(*xs: Any) -> Any:
        wide = [x.astype(F8) if x.dtype.kind in "biu" else x for x in xs]
        return np.asarray(fn(*wide)).astype(np.result_type(*wide))

    return reference


# ---- arithmetic ----------------------------------------------------------------------
POSITIVE = between(0.3, 2.0)
binary("add", np.add, ("", ""), complex_=True, small=(B, U1))
binary("sub", np.subtract, ("", ""), complex_=True)
binary("mul", np.multiply, ("y", "x"), complex_=True, small=(B, U1))
binary("div", doubled(np.true_divide), ("y", "y out"), complex_=True, ints=(1, 6))
unary("neg", np.negative, "", complex_=True)
unary("reciprocal", doubled(np.reciprocal), "out", complex_=True, ints=(1, 6))
unary("square", np.square, "x", complex_=True)
binary(
    "pow",
    np.power,
    ("x y", "x y out"),
    POSITIVE,
    outside(0.3, 2.2),
    complex_=True,
    ints=(1, 4),
    keeps_complex=("x y", "x out"),
    # The slope in y is 0 at x = 0 for y >= 0 only.
    special=(Sample("zero base", (np.zeros(2), np.array([2.0, 0.5]))),),
)
binary(
    "floor_divide",
    np.floor_divide,
    ("", ""),
    between(2.1, 2.4),
    between(0.9, 1.0),
    ints=(1, 9),
)
binary(
    "remainder",
    np.remainder,
    ("", "x y"),
    between(2.1, 2.4),
    between(0.9, 1.0),
    ints=(1, 9),
)

# ---- exponentials and logarithms -----------------------------------------------------
unary("exp", doubled(np.exp), "out", complex_=True)
unary("expm1", doubled(np.expm1), "out", complex_=True)
unary("exp2", doubled(np.exp2), "out", complex_=True)
unary("log", doubled(np.log), "x", POSITIVE, True, ints=(1, 9))
unary("log1p", doubled(np.log1p), "x", between(-0.6, 2.0), True, ints=(0, 9))
unary("log2", doubled(np.log2), "x", POSITIVE, True, ints=(1, 9))
unary("log10", doubled(np.log10), "x", POSITIVE, True, ints=(1, 9))
unary("sqrt", doubled(np.sqrt), "out", POSITIVE, True, ints=(1, 9))
unary("rsqrt", doubled(lambda x: 1 / np.sqrt(x)), "out", POSITIVE, True, ints=(1, 9))
unary("cbrt", doubled(np.cbrt), "out")
binary("logaddexp", doubled(np.logaddexp), ("x out", "y out"))

# ---- trigonometric and hyperbolic ----------------------------------------------------
unary("sin", doubled(np.sin), "x", complex_=True)
unary("cos", doubled(np.cos), "x", complex_=True)
unary("tan", doubled(np.tan), "out", between(-1.2, 1.2), True)
unary("asin", doubled(np.arcsin), "x", between(-0.8, 0.8), True, ints=(0, 1))
unary("acos", doubled(np.arccos), "x", between(-0.8, 0.8), True, ints=(0, 1))
unary("atan", doubled(np.arctan), "x", complex_=True)
binary("atan2", doubled(np.arctan2), ("x y", "x y"))
unary("sinh", doubled(np.sinh), "x", complex_=True)
unary("cosh", doubled(np.cosh), "x", complex_=True)
unary("tanh", doubled(np.tanh), "out", complex_=True)
unary("asinh", doubled(np.arcsinh), "x", complex_=True)
unary("acosh", doubled(np.arccosh), "x", between(1.2, 3.0), True, ints=(2, 9))
unary("atanh", doubled(np.arctanh), "x", between(-0.8, 0.8), True, ints=(0, 1))
binary("hypot", doubled(np.hypot), ("x out", "y out"))

# ---- special functions and activations -----------------------------------------------
unary("erf", doubled(scipy.special.erf), "x", complex_=True)
unary("erfc", doubled(scipy.special.erfc), "x", complex_=True)
unary("sigmoid", doubled(scipy.special.expit), "out")
unary("relu", lambda x: np.maximum(x, x.dtype.type(0)), "x")
unary("softplus", doubled(lambda x: np.logaddexp(x.dtype.type(0), x)), "x")
unary("gelu", kept(lambda x: x * scipy.special.ndtr(x)), "x")
unary(
    "gelu_tanh",
    kept(lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    "x",
)
unary("silu", kept(lambda x: x * scipy.special.expit(x)), "x")

# ---- complex numbers -----------------------------------------------------------------
unary("conj", np.conj, "", complex_=True)
unary("real", np.real, "", complex_=True)
unary("imag", np.imag, "", None, True, ints=None)
unary("abs", np.abs, "x", complex_=True)
unary("sign", np.sign, "", complex_=True, keeps_complex="x out")
unary("angle", doubled(np.angle), "", complex_=True, keeps_complex="x")
binary(
    "complex",
    lambda x, y: x + np.asarray(1j, np.complex64) * y,
    ("", ""),
    ints=None,
)

# ---- comparison and selection --------------------------------------------------------
for _name, _fn in {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}.items():
    _complex = _name in ("equal", "not_equal")
    binary(_name, _fn, None, complex_=_complex, small=(B, U1), ints=(0, 3))
for _name, _fn in {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}.items():
    binary(_name, _fn, None, floats=False, ints=None, small=(B,))
unary("logical_not", np.logical_not, None, None, ints=None, small=(B,))
for _name, _fn in {
    "isfinite": np.isfinite,
    "isinf": np.isinf,
    "isnan": np.isnan,
}.items():
    unary(_name, _fn, None, complex_=True)
unary("signbit", np.signbit, None, ints=None)


def _three(
    name: str,
    reference: Any,
    keeps: dict[str, str],
    draws: tuple[Draw, Draw, Draw],
    kinds: tuple[Any, ...],
    first: Any = None,
    **facts: Any,
) -> None:
    """A function of three arguments; `first` is the dtype of the first one."""
    x, y, z = (Drawer(name + str(k), d) for k, d in enumerate(draws))
    found = []
    for dtype in kinds:
        a = first or dtype
        label = np.dtype(dtype).name
        found += [
            Sample(label, (x((3, 4), a), y((3, 4), dtype), z((3, 4), dtype))),
            Sample(f"{label} broadcast", (x((3, 1), a), y((4,), dtype), z((), dtype))),
            Sample(
                f"{label} views",
                (
                    x.flipped((3, 4), a),
                    y.transposed((3, 4), dtype),
                    z.repeated((3, 4), dtype),
                ),
            ),
            Sample(f"{label} empty", (x((0, 2), a), y((2,), dtype), z((), dtype))),
        ]
    a = first or F8
    found.append(Sample("promoted", (x((2, 3), a), y((3,), F4), z((2, 1)))))
    found.append(
        Sample("blocks", (x((2, 9001), a), y((2, 9001)), z((2, 9001))), (), True)
    )
    row(name, reference, found, keeps=keeps, **facts)


_three(
    "select",
    np.where,
    {"x": "condition", "y": "condition"},
    (ANY, ANY, ANY),
    (F8, F4, C16, C8, I8, B),
    first=B,
)
_three(
    "clip",
    lambda x, lo, hi: np.minimum(np.maximum(x, lo), hi),
    {"x": "x lo hi", "lo": "x lo hi", "hi": "x lo hi"},
    (spread, between(-1.05, -0.95), between(0.95, 1.05)),
    (F8, F4, I8),
)
binary("maximum", np.maximum, ("x y", "x y"), small=(B,))
binary("minimum", np.minimum, ("x y", "x y"), small=(B,))

# ---- locally constant ----------------------------------------------------------------
STEPS = off_integers(-3, 3)
unary("floor", np.floor, "", STEPS)
unary("ceil", np.ceil, "", STEPS)
unary("trunc", np.trunc, "", STEPS)
unary("round", np.round, "", STEPS, STEPS)
for _name, _fn in {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}.items():
    binary(_name, _fn, None, floats=False, small=(B, U1))
binary("left_shift", np.left_shift, None, floats=False, ints=(0, 5), small=(U1,))
binary("right_shift", np.right_shift, None, floats=False, ints=(0, 5), small=(U1,))
unary("bitwise_invert", np.invert, None, None, small=(B, U1))
binary("copysign", doubled(np.copysign), ("x y", ""))
binary("nextafter", np.nextafter, ("", ""), ints=None)


# ---- products in which an exact zero absorbs -----------------------------------------
def _szmul(x: Any, y: Any) -> Any:
    product = x * y
    return np.where((x == 0) | (y == 0), product.dtype.type(0), product)


def _szgate(a: Any, b: Any, c: Any) -> Any:
    dtype = np.result_type(a, b, c)
    return np.where((a == 0) & ~np.isfinite(b), dtype.type(0), c)


# An exact zero meets what is not finite.
_ZERO = (np.array([0.0, 1.0]), np.array([np.inf, 2.0]))
_ABSORBED = (
    Sample("zero and infinity", _ZERO),
    Sample("infinity and zero", _ZERO[::-1]),
)
binary(
    "szmul",
    _szmul,
    ("x y", "x y"),
    complex_=True,
    ints=None,
    special=_ABSORBED,
)
binary(
    "szfactor",
    lambda x, y: _szgate(x, y, y),
    ("", "x y"),
    complex_=True,
    ints=None,
    special=_ABSORBED,
)
_three(
    "szgate",
    _szgate,
    {"c": "a b"},
    (ANY, ANY, ANY),
    (F8, F4, C16, C8),
    special=(Sample("zero and infinity", (*_ZERO, np.ones(2))),),
)
unary("accumulate", np.positive, "", complex_=True)
