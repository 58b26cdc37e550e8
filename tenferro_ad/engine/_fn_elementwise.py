"""Public elementwise functions: array API names, a few of NumPy's and of networks too.

Operands broadcast; dtypes promote as in the array API, Python numbers are weak. Every
function allocates its result and nothing else, unless its text says otherwise; what it
retains for a derivative is declared by its row. Kinks: ties of `maximum` and `minimum`
share equally, `clip` has slope 1 on the closed interval, `abs` and `hypot` have slope 0
at 0, `sqrt` slope inf at 0, `x**0` slope 0. `where` lets nothing through from the
branch not taken.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..errors import DTypeError, InvalidArgumentError, TenferroError, named
from ..ops import integer_power
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, device_in
from ._numbers import dtype_of, need_parts

__all__ = [
    "negative",
    "positive",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "cbrt",
    "exp",
    "expm1",
    "exp2",
    "log",
    "log1p",
    "log2",
    "log10",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "tanh",
    "asinh",
    "acosh",
    "atanh",
    "sigmoid",
    "relu",
    "softplus",
    "erf",
    "erfc",
    "abs",
    "sign",
    "floor",
    "ceil",
    "trunc",
    "round",
    "isfinite",
    "isinf",
    "isnan",
    "signbit",
    "logical_not",
    "bitwise_invert",
    "conj",
    "real",
    "angle",
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "atan2",
    "hypot",
    "logaddexp",
    "copysign",
    "nextafter",
    "complex",
    "maximum",
    "minimum",
    "equal",
    "not_equal",
    "less",
    "less_equal",
    "greater",
    "greater_equal",
    "logical_and",
    "logical_or",
    "logical_xor",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "imag",
    "pow",
    "clip",
    "where",
    "astype",
]

Unary = Callable[[Any], EagerTensor]
Binary = Callable[[Any, Any], EagerTensor]

_NUMBERS: Final = (int, float, builtins.complex)


def _documented(fn: Any, name: str, text: str, args: str, what: str) -> Any:
    fn.__name__ = fn.__qualname__ = name
    fn.__code__ = fn.__code__.replace(co_name=name, co_qualname=name)
    shapes = "\n        ShapeError: they do not broadcast." if "," in args else ""
    fn.__doc__ = f"""{text}.

    Args:
        {args}: {what}

    Raises:
        DTypeError: operands of a kind that it does not take.{shapes}

    Cost: one allocation of the result's size, one pass.
    """
    return named(**({"x": "x1", "y": "x2"} if "," in args else {}))(fn)


def _unary(name: str, text: str, row: str | None = None) -> Unary:
    op = getattr(HANDLES, row or name)

    def fn(x: Any, /) -> EagerTensor:
        return op(x if type(x) is EagerTensor else as_tensor(x))  # type: ignore[no-any-return]

    what = "a tensor, or what `asarray` takes."
    return _documented(fn, name, text, "x", what)  # type: ignore[no-any-return]


def _binary(name: str, text: str, row: str | None = None) -> Binary:
    op = getattr(HANDLES, row or name)

    def fn(x1: Any, x2: Any, /) -> EagerTensor:
        if type(x1) is EagerTensor and type(x2) is EagerTensor:
            return op(x1, x2)  # type: ignore[no-any-return]
        return op(*operands(x1, x2))  # type: ignore[no-any-return]

    what = "tensors, or what `asarray` takes; a Python number is weakly typed."
    return _documented(fn, name, text, "x1, x2", what)  # type: ignore[no-any-return]


def operands(*xs: Any) -> list[Any]:
    """Tensors of all but Python numbers, which stay weakly typed beside a tensor;
    outside data goes to the device of the first tensor."""
    device = device_in(xs)
    made = [x if isinstance(x, _NUMBERS) else as_tensor(x, device) for x in xs]
    if not any(type(x) is EagerTensor for x in made):
        made[0] = as_tensor(made[0])
    return made


negative = _unary("negative", "-x", "neg")
positive = _unary("positive", "+x: the same value in a buffer of its own", "accumulate")
square = _unary("square", "x * x")
sqrt = _unary("sqrt", "The square root; slope inf at 0")
rsqrt = _unary("rsqrt", "1 / sqrt(x)")
reciprocal = _unary("reciprocal", "1 / x; integers give float64")
cbrt = _unary("cbrt", "The real cube root")
exp = _unary("exp", "e to the power of `x`")
expm1 = _unary("expm1", "exp(x) - 1, accurate near 0")
exp2 = _unary("exp2", "2 to the power of `x`")
log = _unary("log", "The natural logarithm")
log1p = _unary("log1p", "log(1 + x), accurate near 0")
log2 = _unary("log2", "The logarithm of base 2")
log10 = _unary("log10", "The logarithm of base 10")
sin = _unary("sin", "The sine of `x` in radians")
cos = _unary("cos", "The cosine of `x` in radians")
tan = _unary("tan", "The tangent of `x` in radians")
asin = _unary("asin", "The inverse sine")
acos = _unary("acos", "The inverse cosine")
atan = _unary("atan", "The inverse tangent")
sinh = _unary("sinh", "The hyperbolic sine")
cosh = _unary("cosh", "The hyperbolic cosine")
tanh = _unary("tanh", "The hyperbolic tangent")
asinh = _unary("asinh", "The inverse hyperbolic sine")
acosh = _unary("acosh", "The inverse hyperbolic cosine")
atanh = _unary("atanh", "The inverse hyperbolic tangent")
sigmoid = _unary("sigmoid", "1 / (1 + exp(-x)) without overflow; real")
relu = _unary("relu", "max(x, 0), with slope 0 at 0")
softplus = _unary("softplus", "log(1 + exp(x)) without overflow; real")
erf = _unary("erf", "2/sqrt(pi) times the integral of exp(-t^2) from 0 to `x`")
erfc = _unary("erfc", "1 - erf(x), accurate for large `x`")
abs = _unary("abs", "The absolute value, real for complex `x`; slope 0 at 0")
sign = _unary("sign", "-1, 0 or 1; x / |x| for complex `x`, with slope 0 at 0")
floor = _unary("floor", "The largest integer that is not above `x`; slope 0")
ceil = _unary("ceil", "The smallest integer that is not below `x`; slope 0")
trunc = _unary("trunc", "The integer part; slope 0")
round = _unary("round", "The nearest integer, halves to even; slope 0")
isfinite = _unary("isfinite", "Whether `x` is neither infinite nor NaN")
isinf = _unary("isinf", "Whether `x` is infinite")
isnan = _unary("isnan", "Whether `x` is NaN")
signbit = _unary("signbit", "Whether the sign bit is set (also for -0.0)")
logical_not = _unary("logical_not", "Whether `x` is zero")
bitwise_invert = _unary("bitwise_invert", "~x")
conj = _unary("conj", "The complex conjugate")
real = _unary("real", "The real part")
angle = _unary("angle", "The argument of a complex number, from -pi to pi")

add = _binary("add", "x1 + x2")
subtract = _binary("subtract", "x1 - x2", "sub")
multiply = _binary("multiply", "x1 * x2", "mul")
divide = _binary("divide", "x1 / x2; integers give float64", "div")
floor_divide = _binary("floor_divide", "floor(x1 / x2); slope 0")
remainder = _binary("remainder", "x1 - x2 * floor(x1 / x2), with the sign of `x2`")
atan2 = _binary("atan2", "The angle of the point (x2, x1), from -pi to pi")
hypot = _binary("hypot", "sqrt(x1^2 + x2^2) without overflow; slope 0 at the origin")
logaddexp = _binary("logaddexp", "log(exp(x1) + exp(x2)) without overflow")
copysign = _binary("copysign", "|x1| with the sign of `x2`; no slope in `x2`")
nextafter = _binary(
    "nextafter", "The next float after x1 towards `x2`; slope 1 in `x1`"
)
complex = _binary("complex", "x1 + i * x2 from real parts")
maximum = _binary(
    "maximum", "The larger of both, NaN where either is; ties share the slope"
)
minimum = _binary(
    "minimum", "The smaller of both, NaN where either is; ties share the slope"
)
equal = _binary("equal", "x1 == x2")
not_equal = _binary("not_equal", "x1 != x2")
less = _binary("less", "x1 < x2; real")
less_equal = _binary("less_equal", "x1 <= x2; real")
greater = _binary("greater", "x1 > x2; real")
greater_equal = _binary("greater_equal", "x1 >= x2; real")
logical_and = _binary("logical_and", "Whether neither is zero")
logical_or = _binary("logical_or", "Whether some is not zero")
logical_xor = _binary("logical_xor", "Whether exactly one is not zero")
bitwise_and = _binary("bitwise_and", "x1 & x2")
bitwise_or = _binary("bitwise_or", "x1 | x2")
bitwise_xor = _binary("bitwise_xor", "x1 ^ x2")
bitwise_left_shift = _binary("bitwise_left_shift", "x1 << x2", "left_shift")
bitwise_right_shift = _binary("bitwise_right_shift", "x1 >> x2", "right_shift")


def imag(x: Any, /) -> EagerTensor:
    """The imaginary part; zeros for real operands.

    Raises:
        DTypeError: not made of numbers.

    Cost: one allocation of the result's size, one pass.
    """
    x = as_tensor(x)
    if x.dtype.kind == "c":
        return HANDLES.imag(x)  # type: ignore[no-any-return]
    return HANDLES.full(x.shape, x.dtype, 0, x.device)  # type: ignore[no-any-return]


_POWERS: Final = 8  # up to here repeated multiplication is exact enough, and fast


@named(x="x1", y="x2")
def pow(x1: Any, x2: Any, /) -> EagerTensor:
    """x1 ** x2. Small Python integers multiply; 0.5 and -1 are `sqrt`, `reciprocal`.

    Args:
        x1, x2: tensors, or what `asarray` takes; a Python number is weakly typed. The
            slope of `x**0` is 0; the slope in the exponent is 0 at base 0.

    Raises:
        DTypeError: booleans.
        InvalidArgumentError: integers to a negative power, where the host knows the
            exponent. Of exponents that only a device knows, a negative one gives the
            integer part of 1 / x**n, and 0 at base 0.
        ShapeError: operands do not broadcast.

    Cost: one allocation of the result's size, one pass.
    """
    if type(x1) is not EagerTensor or type(x2) is not EagerTensor:
        known = None if type(x2) is EagerTensor else x2
        x1, x2 = operands(x1, x2)
        if known is not None and type(x1) is EagerTensor:
            refuse_negative_power(x1, known)
    if type(x2) is int and type(x1) is EagerTensor:
        if x2 == 2:
            return HANDLES.square(x1)  # type: ignore[no-any-return]
        if x2 == -1:
            return HANDLES.reciprocal(x1)  # type: ignore[no-any-return]
        if x2 and -_POWERS <= x2 <= _POWERS and x1.dtype.kind != "b":
            return HANDLES[integer_power(x2)](x1)  # type: ignore[no-any-return]
    elif type(x2) is float and x2 == 0.5 and type(x1) is EagerTensor:
        return HANDLES.sqrt(x1)  # type: ignore[no-any-return]
    try:
        return HANDLES.pow(x1, x2)  # type: ignore[no-any-return]
    except ValueError as error:
        if isinstance(error, TenferroError):
            raise
        raise _negative_power() from None


def refuse_negative_power(x: EagerTensor, exponent: Any) -> None:
    """Refuse a negative exponent that the host knows, of integers on any device.

    Raises:
        InvalidArgumentError: one of them is negative.
    """
    if x.dtype.kind in "biu" and x.size and type(exponent) is not EagerTensor:
        known = np.asarray(exponent)
        if known.dtype.kind == "i" and (known < 0).any():
            raise _negative_power()


def _negative_power() -> InvalidArgumentError:
    return InvalidArgumentError(
        operation="pow",
        argument="x2",
        found="integers to a negative power",
        fix="convert the base first: `ta.astype(x, ta.float64)`",
    )


@named(lo="min", hi="max")
def clip(x: Any, /, min: Any = None, max: Any = None) -> EagerTensor:
    """min(max(x, min), max); slope 1 on the closed interval, for a bound where it acts.

    Args:
        x: real numbers.
        min, max: bounds that broadcast with `x`, or None for no bound.

    Raises:
        DTypeError: complex numbers or booleans. ShapeError: bounds do not broadcast.

    Cost: one allocation of the result's size, one pass; the value itself if no bound.
    """
    x = as_tensor(x)
    if min is None and max is None:
        return x  # type: ignore[no-any-return]
    if x.dtype.kind in "iu":
        least, most = np.iinfo(x.dtype).min, np.iinfo(x.dtype).max
    else:
        least, most = -np.inf, np.inf  # type: ignore[assignment]
    lo, hi = operands(x, least if min is None else min, most if max is None else max)[
        1:
    ]
    return HANDLES.clip(x, lo, hi)  # type: ignore[no-any-return]


@named(x="x1", y="x2")
def where(condition: Any, x1: Any, x2: Any, /) -> EagerTensor:
    """`x1` where `condition`, else `x2`.

    Neither NaN nor infinity comes from the branch that is not taken, in values or in
    derivatives (`strong_zero="auto"`).

    Args:
        condition: booleans.
        x1, x2: tensors, or what `asarray` takes; a Python number is weakly typed.

    Raises:
        DTypeError: `condition` is not boolean. ShapeError: operands do not broadcast.

    Cost: one allocation of the result's size, one pass; retains `condition` only.
    """
    if type(condition) is not EagerTensor:
        condition = as_tensor(condition, device_in((x1, x2)))
    if condition.dtype.kind != "b":
        raise DTypeError(
            operation="where",
            argument="condition",
            found=f"dtype {condition.dtype}",
            fix="compare first: `condition != 0`",
        )
    if type(x1) is not EagerTensor or type(x2) is not EagerTensor:
        x1, x2 = operands(condition, x1, x2)[1:]
    return HANDLES.select(condition, x1, x2)  # type: ignore[no-any-return]


def astype(
    x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None
) -> EagerTensor:
    """`x` converted to `dtype`; what is complex becomes real by `real` or `imag` only.

    Args:
        x: a tensor, or what `asarray` takes.
        dtype: the new dtype.
        copy: False gives `x` itself where nothing changes.
        device: where the result lives; None: where `x` does.

    Raises:
        DTypeError: `dtype` is not numeric or boolean, or real for complex `x`.
        InvalidArgumentError: no such device.

    Cost: one allocation of the result's size, one pass; on another device a transfer
        before it.
    """
    x = as_tensor(x)
    if device is not None:
        x = x.to(device)
    wanted = dtype_of("astype", dtype)
    if not copy and x.dtype == wanted:
        return x  # type: ignore[no-any-return]
    need_parts("astype", x.dtype, wanted)
    return HANDLES.astype(x, wanted)  # type: ignore[no-any-return]
