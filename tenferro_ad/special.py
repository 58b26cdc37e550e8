"""Special functions with SciPy's names, elementwise, differentiable to any order.

Operands are real; they broadcast, integers give float64 and Python numbers are weakly
typed. Each function allocates its result and nothing else. A derivative that has no
closed form (in the order of a Bessel function, in `a` of the incomplete gamma
functions) is refused with `NoRuleError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from . import errors
from .engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    cbrt,
    erf,
    erfc,
    exp2,
    expm1,
    log1p,
    tensors,
)
from .engine import log_softmax as _log_softmax
from .engine import logsumexp as _logsumexp
from .engine import sigmoid as expit
from .engine import softmax as _softmax
from .ops import polygamma as _polygamma_op

__all__ = [
    "betainc",
    "betaincinv",
    "betaln",
    "cbrt",
    "dawsn",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcinv",
    "erfcx",
    "erfinv",
    "exp2",
    "expit",
    "expm1",
    "gamma",
    "gammainc",
    "gammaincc",
    "gammaincinv",
    "gammaln",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "iv",
    "ive",
    "j0",
    "j1",
    "jv",
    "kl_div",
    "log1p",
    "log_expit",
    "log_ndtr",
    "log_softmax",
    "logit",
    "logsumexp",
    "ndtr",
    "ndtri",
    "polygamma",
    "psi",
    "rel_entr",
    "softmax",
    "xlog1py",
    "xlogy",
    "zeta",
]

Unary = Callable[[Any], EagerTensor]
Binary = Callable[[Any, Any], EagerTensor]
Axis = int | Sequence[int] | None

_NUMBERS: Final = (bool, int, float, complex)


def _documented(fn: Any, name: str, text: str, args: str) -> Any:
    shapes = "\n        ShapeError: they do not broadcast." if "," in args else ""
    fn.__name__ = fn.__qualname__ = name
    fn.__code__ = fn.__code__.replace(co_name=name, co_qualname=name)
    fn.__doc__ = f"""{text}.

    Args:
        {args}: real tensors, or what `asarray` takes.

    Raises:
        DTypeError: complex operands.{shapes}

    Cost: one allocation of the result's size, one pass.
    """
    return errors.named(**dict(zip("xy", args.split(", "), strict=False)))(fn)


def _unary(name: str, text: str) -> Unary:
    def fn(x: Any, /) -> EagerTensor:
        out: EagerTensor = getattr(HANDLES, name)(as_tensor(x))
        return out

    made: Unary = _documented(fn, name, text, "x")
    return made


def _binary(name: str, text: str, args: str = "x, y") -> Binary:
    def fn(x: Any, y: Any, /) -> EagerTensor:
        given = [v if isinstance(v, _NUMBERS) else as_tensor(v) for v in (x, y)]
        if all(isinstance(v, _NUMBERS) for v in given):
            given[0] = as_tensor(x)
        out: EagerTensor = getattr(HANDLES, name)(*given)
        return out

    made: Binary = _documented(fn, name, text, args)
    return made


# ---- error functions and the normal distribution -------------------------------------
erfinv = _unary("erfinv", "The inverse of `erf`")
erfcinv = _unary("erfcinv", "The inverse of `erfc`")
erfcx = _unary("erfcx", "exp(x^2) erfc(x)")
dawsn = _unary("dawsn", "Dawson's integral, exp(-x^2) times that of exp(t^2) up to `x`")
ndtr = _unary("ndtr", "The distribution function of the normal distribution")
ndtri = _unary("ndtri", "The inverse of `ndtr`")
log_ndtr = _unary("log_ndtr", "log(ndtr(x)), accurate for very negative `x`")

# ---- gamma and related functions -----------------------------------------------------
gamma = _unary("gamma", "The gamma function")
gammaln = _unary("gammaln", "log(|gamma(x)|)")
digamma = _unary("digamma", "The derivative of `gammaln`")
psi = digamma
betaln = _binary("betaln", "log(|B(a, b)|), the beta function", "a, b")
gammainc = _binary(
    "gammainc",
    "The regularised lower incomplete gamma function; no slope in `a`",
    "a, x",
)
gammaincc = _binary(
    "gammaincc", "1 - gammainc(a, x), accurate for large `x`; no slope in `a`", "a, x"
)
gammaincinv = _binary(
    "gammaincinv", "The inverse of `gammainc` in `x`; no slope in `a`", "a, y"
)


@errors.named(x="a", y="b", z="x")
def betainc(a: Any, b: Any, x: Any, /) -> EagerTensor:
    """The regularised incomplete beta function; no slope in `a` and `b`.

    Args:
        a, b: positive powers.
        x: numbers from 0 to 1.

    Raises:
        DTypeError: complex operands. ShapeError: they do not broadcast.
        NoRuleError: a derivative in `a` or `b`.

    Cost: one allocation of the result's size, one pass.
    """
    return HANDLES.betainc(*tensors(a, b, x))  # type: ignore[no-any-return]


@errors.named(x="a", y="b", z="y")
def betaincinv(a: Any, b: Any, y: Any, /) -> EagerTensor:
    """The inverse of `betainc` in `x`; no slope in `a` and `b`.

    Args:
        a, b: positive powers.
        y: numbers from 0 to 1.

    Raises:
        DTypeError: complex operands. ShapeError: they do not broadcast.
        NoRuleError: a derivative in `a` or `b`.

    Cost: one allocation of the result's size, one pass.
    """
    return HANDLES.betaincinv(*tensors(a, b, y))  # type: ignore[no-any-return]


_zeta = _binary("zeta", "")


def zeta(x: Any, q: Any = 1.0, /) -> EagerTensor:
    """The zeta function of Hurwitz, the sum of (n + q)^-x; that of Riemann for q = 1.

    Args:
        x: exponents above 1; there is no derivative in them.
        q: shifts.

    Raises:
        DTypeError: complex operands. ShapeError: they do not broadcast.
        NoRuleError: a derivative in `x`.

    Cost: one allocation of the result's size, one pass.
    """
    return _zeta(x, q)


def polygamma(n: int, x: Any, /) -> EagerTensor:
    """The derivative of order `n` of `digamma`.

    Args:
        n: a number from 0 on.
        x: real tensors, or what `asarray` takes.

    Raises:
        InvalidArgumentError: `n` is no integer from 0 to 170.
        DTypeError: complex operands.

    Cost: one allocation of the result's size, one pass.
    """
    if type(n) is not int or not 0 <= n <= 170:  # no double holds 171!
        raise errors.InvalidArgumentError(
            operation="polygamma",
            argument="n",
            found=errors.a_kind(n) if type(n) is not int else "a number out of range",
            fix="pass a Python int from 0 to 170",
        )
    out: EagerTensor = HANDLES[_polygamma_op(n)](as_tensor(x))
    return out


# ---- Bessel functions ----------------------------------------------------------------
j0 = _unary("j0", "The Bessel function of the first kind and order 0")
j1 = _unary("j1", "The Bessel function of the first kind and order 1")
jv = _binary(
    "jv", "The Bessel function of the first kind and order `v`; no slope in `v`", "v, x"
)
i0 = _unary("i0", "The modified Bessel function of order 0")
i1 = _unary("i1", "The modified Bessel function of order 1")
iv = _binary("iv", "The modified Bessel function of order `v`; no slope in `v`", "v, x")
i0e = _unary("i0e", "exp(-|x|) i0(x); slope 0 at 0")
i1e = _unary("i1e", "exp(-|x|) i1(x)")
ive = _binary("ive", "exp(-|x|) iv(v, x); no slope in `v`", "v, x")

# ---- products with logarithms, entropy -----------------------------------------------
xlogy = _binary("xlogy", "x log(y), 0 where `x` is 0")
xlog1py = _binary("xlog1py", "x log(1 + y), 0 where `x` is 0")
entr = _unary("entr", "-x log(x), 0 at 0, -inf below")
rel_entr = _binary("rel_entr", "x log(x / y), 0 where `x` is 0")
kl_div = _binary("kl_div", "x log(x / y) - x + y")

# ---- logistic functions --------------------------------------------------------------
logit = _unary("logit", "log(x / (1 - x))")
log_expit = _unary("log_expit", "log(expit(x)) without underflow")


# ---- along axes, with SciPy's defaults -----------------------------------------------


def logsumexp(x: Any, /, axis: Axis = None, *, keepdims: bool = False) -> EagerTensor:
    """log(sum(exp(x))) without overflow, over all axes by default.

    Raises: as `logsumexp` of the main namespace.

    Cost: one allocation of the result's size; see the function of the main namespace.
    """
    return _logsumexp(x, axis=axis, keepdims=keepdims)


def softmax(x: Any, /, axis: Axis = None) -> EagerTensor:
    """exp(x) / sum(exp(x)) without overflow, over all axes by default.

    Raises: as `softmax` of the main namespace.

    Cost: one allocation of the result's size; see the function of the main namespace.
    """
    return _softmax(x, axis=axis)


def log_softmax(x: Any, /, axis: Axis = None) -> EagerTensor:
    """log(softmax(x)) without cancellation, over all axes by default.

    Raises: as `log_softmax` of the main namespace.

    Cost: one allocation of the result's size; see the function of the main namespace.
    """
    return _log_softmax(x, axis=axis)
