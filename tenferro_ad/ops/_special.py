"""Rows of special functions with SciPy's names: the derivative is an expression again.

A row whose derivative in some argument has no closed form refuses to be differentiated
there (`NoRuleError`); where such a function is part of a larger expression, the slope
in that argument is NaN, never 0. At 0, where `i0e`, `i1e` and `ive` have kinks, the
slope is the mean of both sides.

Bessel functions of order 1 and above differentiate to those of neighbouring orders,
which loses no digits near 0 (unlike the form that divides by the argument).

Sources of the formulas: NIST Digital Library of Mathematical Functions, chapters 5 to
8, 10 and 25.
"""

from __future__ import annotations

import math
from typing import Any, Final

from ._call import ArgRule, Call, Rule
from ._elementwise import _row, out, x, y, z
from ._expr import Expr, call, const, scalar_fn, select, var
from ._op import Op, register
from ._scalar import ElementwiseOp, elementwise, of_kinds

__all__ = ["polygamma"]

_SQRT_PI: Final = math.sqrt(math.pi)
_SQRT_2PI: Final = math.sqrt(2 * math.pi)
_REAL: Final = "biuf"
_NO_SLOPE: Final = const(math.nan)


class PartlyOp(ElementwiseOp):
    """Differentiable in some arguments only: in others it refuses, for all modes."""

    __slots__ = ("without",)
    without: tuple[str, ...]

    def pull_rule(self, call: Call, i: int) -> ArgRule:
        if self.args[i] in self.without:
            return Op.pull_rule(self, call, i)  # raises: there is no rule
        return super().pull_rule(call, i)

    def push_rule(self, call: Call, i: int) -> tuple[tuple[int, ...], Rule]:
        if self.args[i] in self.without:
            return Op.push_rule(self, call, i)
        return super().push_rule(call, i)


def _partly(
    name: str,
    args: tuple[str, ...],
    d: tuple[Expr, ...],
    without: tuple[str, ...],
) -> None:
    """A row without a rule for some arguments; `d` are the slopes in the others."""
    known = iter(d)
    partials = tuple(_NO_SLOPE if a in without else next(known) for a in args)
    scalar_fn(name, len(args), d=partials, singular=True)
    plain = elementwise(name, call(name, *map(var, args)), args)
    infer: Any = of_kinds(name, args, _REAL, plain.infer)
    row = PartlyOp(name, args, infer=infer, kernel=plain.kernel)
    row.without = without
    register(row)


def _real(name: str, *d: Expr, args: tuple[str, ...] = ("x",)) -> None:
    """A row over real numbers whose derivative can be infinite or NaN somewhere."""
    _row(name, *d, args=args, kinds=_REAL, singular=True)


def _exp(e: Expr) -> Expr:
    return call("exp", e)


# ---- error functions and the normal distribution -------------------------------------
_real("erfinv", (_SQRT_PI / 2) * _exp(out * out))
_real("erfcinv", (-_SQRT_PI / 2) * _exp(out * out))
_real("erfcx", 2.0 * (x * out) - 2.0 / _SQRT_PI)
_real("dawsn", 1.0 - 2.0 * (x * out))
_density = _exp(-0.5 * (x * x)) * (1 / _SQRT_2PI)
_real("ndtr", _density)
_real("ndtri", _SQRT_2PI * _exp(0.5 * (out * out)))
# The ratio of density and distribution, by what does not underflow to the left of 0 and
# by what does not overflow to the right.
_left = math.sqrt(2 / math.pi) / call("erfcx", x * -math.sqrt(0.5))
_right = _density / call("ndtr", x)
_real("log_ndtr", select(call("greater", x, 0.0), _right, _left))

# ---- gamma and related functions -----------------------------------------------------
_partly("zeta", ("x", "y"), (call("neg", x) * call("zeta", x + 1.0, y),), ("x",))
_real("digamma", call("zeta", 2.0, x))
_real("gammaln", call("digamma", x))
_real("gamma", out * call("digamma", x))
_both = call("digamma", x + y)
_real("betaln", call("digamma", x) - _both, call("digamma", y) - _both, args=("x", "y"))
_density = _exp((x - 1.0) * call("log", y) - y - call("gammaln", x))
_partly("gammainc", ("x", "y"), (_density,), ("x",))
_partly("gammaincc", ("x", "y"), (call("neg", _density),), ("x",))

_slope = _exp(out + call("gammaln", x) - call("xlogy", x - 1.0, out))
_partly("gammaincinv", ("x", "y"), (_slope,), ("x",))


def _beta_density(at: Expr) -> Expr:
    """The logarithm of the density of the beta distribution, parameters `x`, `y`."""
    powers = call("xlogy", x - 1.0, at) + call("xlog1py", y - 1.0, call("neg", at))
    return powers - call("betaln", x, y)


_partly("betainc", ("x", "y", "z"), (_exp(_beta_density(z)),), ("x", "y"))
_slope = _exp(call("neg", _beta_density(out)))
_partly("betaincinv", ("x", "y", "z"), (_slope,), ("x", "y"))

# ---- Bessel functions ----------------------------------------------------------------


def _orders(name: str) -> tuple[Expr, Expr]:
    return call(name, x - 1.0, y), call(name, x + 1.0, y)


_below, _above = _orders("jv")
_partly("jv", ("x", "y"), (0.5 * (_below - _above),), ("x",))
_below, _above = _orders("iv")
_partly("iv", ("x", "y"), (0.5 * (_below + _above),), ("x",))
_below, _above = _orders("ive")
_damped = call("sign", y) * out
_partly("ive", ("x", "y"), (0.5 * (_below + _above) - _damped,), ("x",))
_real("j0", call("neg", call("j1", x)))
_real("j1", 0.5 * (call("j0", x) - call("jv", 2.0, x)))
_real("i0", call("i1", x))
_real("i1", 0.5 * (call("i0", x) + call("iv", 2.0, x)))
_real("i0e", call("i1e", x) - call("sign", x) * out)
_real("i1e", 0.5 * (call("i0e", x) + call("ive", 2.0, x)) - call("sign", x) * out)

# ---- products with logarithms, entropy -----------------------------------------------


def _quotient(a: Expr, b: Expr) -> Expr:
    """a / b, but 0 at 0 / 0 alone: elsewhere its slope in `a` is 1 / b."""
    none = call("logical_and", call("equal", a, 0.0), call("equal", b, 0.0))
    return select(none, 0.0, a / b)


_real("xlogy", call("log", y), _quotient(x, y), args=("x", "y"))
_real("xlog1py", call("log1p", y), _quotient(x, y + 1.0), args=("x", "y"))
_real("entr", call("neg", call("log", x)) - 1.0)
_real(
    "rel_entr",
    call("log", x / y) + 1.0,
    call("neg", _quotient(x, y)),
    args=("x", "y"),
)
_real("kl_div", call("log", x / y), 1.0 - _quotient(x, y), args=("x", "y"))

# ---- logistic functions --------------------------------------------------------------
_real("logit", 1.0 / (x * (1.0 - x)))
_real("log_expit", call("sigmoid", call("neg", x)))


# ---- derivatives of digamma ----------------------------------------------------------


def polygamma(n: int) -> Op:
    """The derivative of order `n` >= 0 of `digamma`, as an operation.

    Source: DLMF 25.11.12 and 5.15.1, by the Hurwitz zeta function.
    """
    found = _polygammas.get(n)
    if found is None:
        if n == 0:
            expr = call("digamma", x)
        else:
            factor = (-1.0) ** (n + 1) * math.gamma(n + 1.0)
            expr = factor * call("zeta", n + 1.0, x)
        made = elementwise(f"polygamma{n}", expr, ("x",))
        made.infer = of_kinds(made.name, ("x",), _REAL, made.infer)
        found = _polygammas[n] = made
    return found


_polygammas: dict[int, Op] = {}
