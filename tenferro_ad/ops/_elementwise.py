"""The elementwise rows: one line each; the derivative is an expression.

Read a row as: name, arguments, derivative with respect to each argument in terms of
`x`, `y`, `z` and the value `out`. A `gate` is written in terms of the cotangent `ct`
where a factor of zero must hold even against an infinite cotangent. Kinks follow the
conventions of the documentation: ties of max/min share equally, `clip` has slope 1 on
the closed interval, `abs` has slope 0 at 0, `sqrt` slope inf at 0, `x**0` slope 0.

Sources of the formulas: NIST Digital Library of Mathematical Functions, chapters 4, 7.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ..errors import PUBLIC
from . import _conventions as say
from ._expr import ZERO, Expr, call, conj, const, scalar_fn, select, var
from ._op import Op, register
from ._scalar import INTEGER_CLOSED, elementwise, of_kinds

x, y, z, out, ct = (var(n) for n in ("x", "y", "z", "out", "ct"))
_TWO_OVER_SQRT_PI: Final = 2.0 / math.sqrt(math.pi)

Derivative = Expr | float | None


def _row(
    name: str,
    *d: Derivative,
    args: tuple[str, ...] = ("x",),
    gate: tuple[Expr | None, ...] = (),
    pair: tuple[tuple[Expr, Expr], ...] = (),
    result: str = "same",
    singular: bool = False,
    ints: bool = False,
    kinds: str = "",
    public: str = "",
    kink: str = "",
) -> Op:
    derivs = tuple(
        None if e is None else (e if isinstance(e, Expr) else const(e)) for e in d
    )
    scalar_fn(
        name,
        len(args),
        d=derivs,
        gate=gate,
        pair=pair,
        result=result,
        singular=singular,
    )
    if ints:
        INTEGER_CLOSED.add(name)
    if public:
        PUBLIC[name] = public
    # `conj`, `real` and `imag` of a real operand simplify away; the row keeps them.
    expr = call(name, *(var(a, "c" if name in _PARTS else "r") for a in args))
    op = elementwise(name, expr, args, is_select=name == "select")
    op.kink = kink
    if kinds:
        op.infer = of_kinds(name, args, kinds, op.infer)
    return register(op)


_PARTS: Final = ("conj", "real", "imag")


def _binary(name: str, *d: Derivative, **kw: Any) -> Op:
    return _row(name, *d, args=("x", "y"), **kw)


# ---- arithmetic ----------------------------------------------------------------------
_binary("add", 1.0, 1.0, ints=True)
_binary("sub", 1.0, -1.0, ints=True, kinds="iufc", public="subtract")
_binary("mul", y, x, ints=True, public="multiply", singular=True)
_binary("div", 1.0 / y, call("neg", out) / y, singular=True, public="divide")
_row("neg", -1.0, ints=True, kinds="iufc", public="negative")
_row("reciprocal", call("neg", call("mul", out, out)), singular=True)
_row("square", 2.0 * x, ints=True, kinds="iufc")
_binary(
    "pow",
    select(call("equal", y, 0.0), 0.0, y * call("pow", x, y - 1.0)),
    select(
        call("logical_and", call("equal", x, 0.0), call("greater_equal", y, 0.0)),
        0.0,
        out * call("log", x),
    ),
    pair=(
        (select(call("equal", y, 0.0), 0.0, y * call("pow", x, y - 1.0)), ZERO),
        (select(call("equal", x, 0.0), 0.0, out * call("log", x)), ZERO),
    ),
    singular=True,
    ints=True,
    kinds="iufc",
    kink=say.POWERS,
)
_binary("floor_divide", None, None, ints=True, kinds="iuf", kink=say.STEPS)
_binary(
    "remainder", 1.0, call("neg", call("floor_divide", x, y)), ints=True, kinds="iuf"
)

# ---- exponentials and logarithms -----------------------------------------------------
_row("exp", out, singular=True)
_row("expm1", out + 1.0, singular=True)
_row("exp2", out * math.log(2.0), singular=True)
_row("log", 1.0 / x, singular=True)
_row("log1p", 1.0 / (x + 1.0), singular=True)
_row("log2", 1.0 / (x * math.log(2.0)), singular=True)
_row("log10", 1.0 / (x * math.log(10.0)), singular=True)
_row("sqrt", 0.5 / out, singular=True, kink=say.ROOT)
_row("rsqrt", -0.5 * (out * out * out), singular=True)
_row("cbrt", 1.0 / (3.0 * (out * out)), singular=True, kinds="biuf")


def _share(e: Expr) -> Expr:
    """The share of `e` in a sum of exponentials: in one of none or infinity, too."""
    finite = select(call("equal", e, math.inf), 1.0, call("exp", e - out))
    return select(call("equal", e, -math.inf), 0.0, finite)


_binary("logaddexp", _share(x), _share(y), singular=True, kinds="biuf")

# ---- trigonometric and hyperbolic ----------------------------------------------------
_row("sin", call("cos", x))
_row("cos", call("neg", call("sin", x)))
_row("tan", out * out + 1.0, singular=True)
_row("asin", 1.0 / call("sqrt", 1.0 - x * x), singular=True)
_row("acos", -1.0 / call("sqrt", 1.0 - x * x), singular=True)
_row("atan", 1.0 / (x * x + 1.0))
_binary(
    "atan2",
    y / (x * x + y * y),
    call("neg", x) / (x * x + y * y),
    singular=True,
    kinds="biuf",
)
_row("sinh", call("cosh", x), singular=True)
_row("cosh", call("sinh", x), singular=True)
_row("tanh", 1.0 - out * out)
_row("asinh", 1.0 / call("sqrt", x * x + 1.0))
_row("acosh", 1.0 / (call("sqrt", x - 1.0) * call("sqrt", x + 1.0)), singular=True)
_row("atanh", 1.0 / (1.0 - x * x), singular=True)
_binary(
    "hypot",
    select(call("equal", out, 0.0), 0.0, x / out),
    select(call("equal", out, 0.0), 0.0, y / out),
    singular=True,
    kinds="biuf",
    kink=say.MAGNITUDE,
)

# ---- special functions and activations -----------------------------------------------
_row("erf", _TWO_OVER_SQRT_PI * call("exp", call("neg", x * x)))
_row("erfc", -_TWO_OVER_SQRT_PI * call("exp", call("neg", x * x)))
_row("sigmoid", out * (1.0 - out), kinds="biuf")
_row(
    "relu",
    gate=(select(call("greater", x, 0.0), ct, 0.0),),
    ints=True,
    kinds="iuf",
    kink=say.HINGE,
)
_row("softplus", call("sigmoid", x), kinds="biuf")

# ---- complex numbers -----------------------------------------------------------------
_HALF = const(0.5)
_s = call("sign", x)
_row("conj", 1.0, pair=((ZERO, const(1.0)),), ints=True)
_row("real", 1.0, pair=((_HALF, _HALF),), result="r", ints=True)
_row("imag", None, pair=((const(-0.5j), const(0.5j)),), result="r", kinds="c")
_row(
    "abs",
    call("sign", x),
    pair=((conj(call("sign", var("x", "c"))) * 0.5, _s * 0.5),),
    result="r",
    ints=True,
    kink=say.MAGNITUDE,
)
# d sign(z) = (dz - sign(z)^2 conj(dz)) / (2 |z|); zero at the kink.
_inv_abs = select(call("equal", call("abs", x), 0.0), 0.0, 0.5 / call("abs", x))
_row(
    "sign",
    None,
    pair=((_inv_abs, call("neg", (out * out) * _inv_abs)),),
    ints=True,
    kinds="iufc",
    kink=say.DIRECTION,
)
_row(
    "angle",
    None,
    pair=(
        (
            const(-0.5j) / x,
            const(0.5j) / conj(var("x", "c")),
        ),
    ),
    result="r",
    singular=True,
)
_binary("complex", 1.0, const(1j), result="c", kinds="biuf")

# ---- comparison and selection --------------------------------------------------------
for _name in ("equal", "not_equal", "logical_and", "logical_or", "logical_xor"):
    _binary(_name, None, None, result="b")
for _name in ("less", "less_equal", "greater", "greater_equal"):
    _binary(_name, None, None, result="b", kinds="biuf")
for _name in ("logical_not", "isfinite", "isinf", "isnan"):
    _row(_name, None, result="b")
_row("signbit", None, result="b", kinds="biuf")
_row(
    "select",
    args=("condition", "x", "y"),
    gate=(None, select(x, ct, 0.0), select(x, 0.0, ct)),
    ints=True,
    public="where",
    kink=say.SELECT,
)
_share_x = select(call("greater", x, y), ct, select(call("equal", x, y), 0.5 * ct, 0.0))
_share_y = select(call("greater", y, x), ct, select(call("equal", x, y), 0.5 * ct, 0.0))
_binary("maximum", gate=(_share_x, _share_y), ints=True, kinds="biuf", kink=say.TIES)
_binary(
    "minimum",
    gate=(
        select(call("less", x, y), ct, select(call("equal", x, y), 0.5 * ct, 0.0)),
        select(call("less", y, x), ct, select(call("equal", x, y), 0.5 * ct, 0.0)),
    ),
    ints=True,
    kinds="biuf",
    kink=say.TIES,
)
# clip: slope 1 on the closed interval; a bound takes the slope only where it is active.
_row(
    "clip",
    args=("x", "lo", "hi"),
    gate=(
        select(
            call("logical_and", call("greater_equal", x, y), call("less_equal", x, z)),
            ct,
            0.0,
        ),
        select(
            call("logical_and", call("less", x, y), call("less_equal", y, z)), ct, 0.0
        ),
        select(call("greater", call("maximum", x, y), z), ct, 0.0),
    ),
    ints=True,
    kinds="iuf",
    kink=say.CLIP,
)

# ---- locally constant ----------------------------------------------------------------
for _name in ("floor", "ceil", "trunc"):
    _row(_name, None, ints=True, kinds="iuf", kink=say.STEPS)
_row("round", None, ints=True, kinds="iufc", kink=say.STEPS)
for _name in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    _binary(_name, None, None, ints=True, kinds="biu")
for _name in ("left_shift", "right_shift"):
    _binary(_name, None, None, ints=True, kinds="iu", public=f"bitwise_{_name}")
_row("bitwise_invert", None, ints=True, kinds="biu")
_binary(
    "copysign",
    call("copysign", 1.0, x) * call("copysign", 1.0, y),
    None,
    kinds="biuf",
    kink=say.SIGN,
)
# One unit in the last place is locally constant: the slope is that of `x` itself.
_binary("nextafter", 1.0, None, kinds="f", kink=say.NEIGHBOUR)

# ---- products in which an exact zero absorbs (strong_zero) ---------------------------
# szmul(a, b) is 0 where either factor is exactly 0, else a * b; szfactor(a, b) is its
# slope in a: b, but 0 where a is 0 and b is not finite; szgate(a, b, c) passes c where
# that slope is b.
_binary("szmul", call("szfactor", x, y), call("szfactor", y, x), singular=True)
_binary("szfactor", None, gate=(None, call("szgate", x, y, ct)))
_row("szgate", args=("a", "b", "c"), gate=(None, None, call("szgate", x, y, ct)))


# The sweep's way of giving a leaf a buffer of its own, and `+x`.
register(elementwise("accumulate", x, ("x",)))
PUBLIC["accumulate"] = "positive"


def integer_power(n: int) -> Op:
    """`x ** n` for a small integer n by repeated multiplication, as an operation."""
    found = _powers.get(n)
    if found is None:
        base, e, result = x, abs(n), None
        while e:
            if e & 1:
                result = base if result is None else call("mul", result, base)
            base, e = call("mul", base, base), e >> 1
        assert result is not None
        if n < 0:
            result = call("reciprocal", result)
        found = _powers[n] = elementwise(f"pow{n}", result, ("x",))
    return found


_powers: dict[int, Op] = {}
