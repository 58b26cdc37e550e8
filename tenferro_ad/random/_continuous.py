"""Continuous distributions: smooth functions of uniform and normal numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import errors
from ..engine import HANDLES, EagerTensor, int_of, shape_of, tensors
from ..errors import named
from ..linalg import cholesky, diagonal, qr
from ..ops import broadcast_shapes
from ..special import betaincinv, gammaincinv, ndtr, ndtri
from ._draws import Shape, dtype_of, normal
from ._keys import key_of, split


def _inside(name: str, key: Any, shape: Shape, dtype: Any) -> EagerTensor:
    """Uniform numbers above 0 and below 1."""
    wanted, where = dtype_of(name, dtype, "dfe"), shape_of(name, shape)
    drawn = HANDLES.random_uniform(key_of(name, key), where, wanted)
    return HANDLES.maximum(drawn, float(np.finfo(wanted).eps) / 4)  # type: ignore[no-any-return]


def parameters(
    name: str, key: Any, shape: Shape | None, dtype: Any, **given: Any
) -> tuple[tuple[int, ...], Any, list[EagerTensor]]:
    """The shape of a draw, its dtype, and its parameters in that dtype.

    Args:
        shape: None means what the parameters broadcast to.
        dtype: None means what they promote to: float64, or what tensors have.
    """
    wanted, values = converted(name, key, dtype, **given)
    common = broadcast_shapes(name, *[v.shape for v in values])
    where = common if shape is None else shape_of(name, shape)
    ends = zip(reversed(common), reversed(where), strict=False)
    if len(common) > len(where) or any(a not in (1, b) for a, b in ends):
        raise errors.ShapeError(
            operation=name,
            argument="shape",
            found=f"{where} for parameters of shape {common}",
            fix="give a shape that the parameters broadcast to",
        )
    return where, wanted, values


def converted(
    name: str, key: Any, dtype: Any, **given: Any
) -> tuple[Any, list[EagerTensor]]:
    """Real parameters as tensors of one floating dtype, beside the key."""
    _, *values = tensors(key, *given.values())
    for argument, v in zip(given, values, strict=True):
        if v.dtype.kind not in "biuf":
            raise errors.DTypeError(
                operation=name,
                argument=argument,
                found=f"dtype {v.dtype}",
                fix="pass real numbers",
            )
    if dtype is None:
        found = np.result_type(*[v.dtype for v in values])
        dtype = found if found.kind == "f" else np.float64
    wanted = dtype_of(name, dtype, "dfe")
    return wanted, [
        v if v.dtype == wanted else HANDLES.astype(v, wanted) for v in values
    ]


# ---- without parameters --------------------------------------------------------------
# Scale and shift a draw by arithmetic: `mean + scale * laplace(key, shape)`.


@named()
def exponential(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with density exp(-x) from 0 on.

    Args:
        key: two words.
        shape: of the result.
        dtype: a real floating dtype.

    Raises:
        ShapeError: not a key. InvalidArgumentError: not a shape.
        DTypeError: another dtype.

    Cost: three allocations of the result's size.
    """
    wanted, where = (
        dtype_of("exponential", dtype, "dfe"),
        shape_of("exponential", shape),
    )
    drawn = HANDLES.random_uniform(key_of("exponential", key), where, wanted)
    return HANDLES.neg(HANDLES.log1p(HANDLES.neg(drawn)))  # type: ignore[no-any-return]


@named()
def gumbel(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with distribution function exp(-exp(-x)); see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: a few allocations of the result's size.
    """
    drawn = HANDLES.neg(HANDLES.log(_inside("gumbel", key, shape, dtype)))
    return HANDLES.neg(HANDLES.log(drawn))  # type: ignore[no-any-return]


@named()
def logistic(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with distribution function 1 / (1 + exp(-x)); see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: three allocations of the result's size.
    """
    return HANDLES.logit(_inside("logistic", key, shape, dtype))  # type: ignore[no-any-return]


@named()
def laplace(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with density exp(-|x|) / 2; see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: a few allocations of the result's size.
    """
    centred = HANDLES.sub(_inside("laplace", key, shape, dtype), 0.5)
    far = HANDLES.log1p(HANDLES.mul(HANDLES.abs(centred), -2.0))
    return HANDLES.neg(HANDLES.mul(HANDLES.sign(centred), far))  # type: ignore[no-any-return]


@named()
def cauchy(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with density 1 / (pi (1 + x^2)); see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: a few allocations of the result's size.
    """
    centred = HANDLES.sub(_inside("cauchy", key, shape, dtype), 0.5)
    return HANDLES.tan(HANDLES.mul(centred, math.pi))  # type: ignore[no-any-return]


# ---- with parameters -----------------------------------------------------------------


@named()
def truncated_normal(
    key: Any,
    lower: Any = -2.0,
    upper: Any = 2.0,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
) -> EagerTensor:
    """Normal numbers given that they lie between two bounds, in which they are smooth.

    Args:
        key: two words.
        lower, upper: bounds that broadcast to `shape`; may be infinite.
        shape: of the result; None means that of the bounds.
        dtype: a real floating dtype; None means that of the bounds, or float64.

    Raises:
        ShapeError: not a key, or bounds do not broadcast.
        InvalidArgumentError: not a shape. DTypeError: another dtype.

    Bounds far on one side lose precision, because the distribution function does.

    Cost: a few allocations of the result's size.
    """
    where, wanted, (low, high) = parameters(
        "truncated_normal", key, shape, dtype, lower=lower, upper=upper
    )
    u = _inside("truncated_normal", key, where, wanted)
    first, last = ndtr(low), ndtr(high)
    drawn = ndtri(HANDLES.add(first, HANDLES.mul(HANDLES.sub(last, first), u)))
    return HANDLES.minimum(HANDLES.maximum(drawn, low), high)  # type: ignore[no-any-return]


@named()
def lognormal(
    key: Any, sigma: Any = 1.0, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """exp(sigma z) for normal z.

    Args:
        key: two words.
        sigma: scales that broadcast to `shape`; differentiable.
        shape: of the result; None means that of `sigma`.
        dtype: a real floating dtype; None means that of `sigma`, or float64.

    Raises:
        ShapeError: not a key, or `sigma` does not broadcast.
        InvalidArgumentError: not a shape. DTypeError: another dtype.

    Cost: three allocations of the result's size.
    """
    where, wanted, (scale,) = parameters("lognormal", key, shape, dtype, sigma=sigma)
    z = normal(key, where, dtype=wanted)
    return HANDLES.exp(HANDLES.mul(z, scale))  # type: ignore[no-any-return]


@named()
def rayleigh(
    key: Any, scale: Any = 1.0, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Lengths of vectors of two normal numbers of deviation `scale`; see `lognormal`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `lognormal`.

    Cost: a few allocations of the result's size.
    """
    where, wanted, (factor,) = parameters("rayleigh", key, shape, dtype, scale=scale)
    twice = HANDLES.mul(exponential(key, where, dtype=wanted), 2.0)
    return HANDLES.mul(HANDLES.sqrt(twice), factor)  # type: ignore[no-any-return]


@named()
def weibull(
    key: Any, k: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Numbers with distribution function 1 - exp(-x^k) from 0 on; see `lognormal`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `lognormal`.

    Cost: a few allocations of the result's size.
    """
    where, wanted, (power,) = parameters("weibull", key, shape, dtype, k=k)
    drawn = exponential(key, where, dtype=wanted)
    return HANDLES.pow(drawn, HANDLES.reciprocal(power))  # type: ignore[no-any-return]


@named()
def pareto(
    key: Any, b: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Numbers with density b x^(-b - 1) from 1 on; see `lognormal`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `lognormal`.

    Cost: a few allocations of the result's size.
    """
    where, wanted, (power,) = parameters("pareto", key, shape, dtype, b=b)
    drawn = exponential(key, where, dtype=wanted)
    return HANDLES.exp(HANDLES.div(drawn, power))  # type: ignore[no-any-return]


@named()
def triangular(
    key: Any,
    left: Any,
    mode: Any,
    right: Any,
    shape: Shape | None = None,
    *,
    dtype: Any = None,
) -> EagerTensor:
    """Numbers whose density rises from `left` to `mode` and falls to `right`.

    Args:
        key: two words.
        left, mode, right: in this order; broadcast to `shape`; differentiable.
        shape: of the result; None means that of the parameters.
        dtype: a real floating dtype; None means that of the parameters, or float64.

    Raises:
        ShapeError: not a key, or parameters do not broadcast.
        InvalidArgumentError: not a shape. DTypeError: another dtype.

    Cost: a few allocations of the result's size.
    """
    where, wanted, (a, c, b) = parameters(
        "triangular", key, shape, dtype, left=left, mode=mode, right=right
    )
    u = _inside("triangular", key, where, wanted)
    width, rise, fall = HANDLES.sub(b, a), HANDLES.sub(c, a), HANDLES.sub(b, c)
    low = HANDLES.sqrt(HANDLES.mul(HANDLES.mul(u, width), rise))
    rest = HANDLES.sub(1.0, u)
    high = HANDLES.sqrt(HANDLES.mul(HANDLES.mul(rest, width), fall))
    rising = HANDLES.less(HANDLES.mul(u, width), rise)
    return HANDLES.select(rising, HANDLES.add(a, low), HANDLES.sub(b, high))  # type: ignore[no-any-return]


# ---- gamma and its relatives ---------------------------------------------------------


@named(y="a", x="a")
def loggamma(
    key: Any, a: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """The logarithm of `gamma`, which does not underflow for small `a`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `gamma`.
        NoRuleError: a derivative in `a`.

    Cost: a few allocations of the result's size, and an inversion for each number.
    """
    where, wanted, (power,) = parameters("loggamma", key, shape, dtype, a=a)
    first, second = split(key)
    # gamma(a) is gamma(a + 1) u^(1 / a), and large parameters invert well.
    u = _inside("loggamma", first, where, wanted)
    larger = HANDLES.log(gammaincinv(HANDLES.add(power, 1.0), u))
    smaller = HANDLES.log(_inside("loggamma", second, where, wanted))
    return HANDLES.add(larger, HANDLES.div(smaller, power))  # type: ignore[no-any-return]


@named()
def gamma(
    key: Any, a: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Numbers with density x^(a - 1) exp(-x) / gamma(a) from 0 on.

    Args:
        key: two words.
        a: positive powers that broadcast to `shape`. There is no derivative in them.
        shape: of the result; None means that of `a`.
        dtype: a real floating dtype; None means that of `a`, or float64.

    Raises:
        ShapeError: not a key, or `a` does not broadcast.
        InvalidArgumentError: not a shape. DTypeError: another dtype.
        NoRuleError: a derivative in `a`.

    Cost: a few allocations of the result's size, and an inversion of the incomplete
        gamma function for each number.
    """
    return HANDLES.exp(loggamma(key, a, shape, dtype=dtype))  # type: ignore[no-any-return]


@named()
def chisquare(
    key: Any, df: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Sums of `df` squares of normal numbers: twice `gamma` of df / 2; see `gamma`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError, NoRuleError: as `gamma`.

    Cost: as `gamma`.
    """
    where, wanted, (degrees,) = parameters("chisquare", key, shape, dtype, df=df)
    half = HANDLES.mul(degrees, 0.5)
    return HANDLES.mul(gamma(key, half, where, dtype=wanted), 2.0)  # type: ignore[no-any-return]


@named()
def t(
    key: Any, df: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Student's t with `df` degrees of freedom; see `gamma`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError, NoRuleError: as `gamma`.

    Cost: as `gamma`.
    """
    where, wanted, (degrees,) = parameters("t", key, shape, dtype, df=df)
    first, second = split(key)
    z = normal(first, where, dtype=wanted)
    squares = HANDLES.div(chisquare(second, degrees, where, dtype=wanted), degrees)
    return HANDLES.div(z, HANDLES.sqrt(squares))  # type: ignore[no-any-return]


@named()
def f(
    key: Any, dfnum: Any, dfden: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Fisher's F: the quotient of two means of squares of normal numbers; see `gamma`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError, NoRuleError: as `gamma`.

    Cost: twice that of `gamma`.
    """
    where, wanted, (num, den) = parameters(
        "f", key, shape, dtype, dfnum=dfnum, dfden=dfden
    )
    first, second = split(key)
    above = HANDLES.div(chisquare(first, num, where, dtype=wanted), num)
    below = HANDLES.div(chisquare(second, den, where, dtype=wanted), den)
    return HANDLES.div(above, below)  # type: ignore[no-any-return]


@named(x="a", y="b")
def beta(
    key: Any, a: Any, b: Any, shape: Shape | None = None, *, dtype: Any = None
) -> EagerTensor:
    """Numbers from 0 to 1 with density x^(a - 1) (1 - x)^(b - 1) / B(a, b).

    See `gamma` for arguments.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError, NoRuleError: as `gamma`.

    Cost: a few allocations of the result's size, and an inversion of the incomplete
        beta function for each number.
    """
    where, wanted, (first, second) = parameters("beta", key, shape, dtype, a=a, b=b)
    u = _inside("beta", key, where, wanted)
    return betaincinv(first, second, u)


@named()
def dirichlet(
    key: Any, alpha: Any, shape: Shape = (), *, dtype: Any = None
) -> EagerTensor:
    """Shares that add up to 1: `gamma` of `alpha`, divided by the sum of the last axis.

    Args:
        key: two words.
        alpha: positive powers, at least one axis. There is no derivative in them.
        shape: how many draws; the result has the shape (*shape, *alpha.shape).
        dtype: a real floating dtype; None means that of `alpha`, or float64.

    Raises:
        ShapeError: not a key, or a 0-d `alpha`. InvalidArgumentError: not a shape.
        DTypeError: another dtype. NoRuleError: a derivative in `alpha`.

    Cost: as `gamma`.
    """
    common, wanted, (power,) = parameters("dirichlet", key, None, dtype, alpha=alpha)
    if not common:
        raise errors.ShapeError(
            operation="dirichlet",
            argument="alpha",
            found="a 0-d value",
            fix="pass a power for each share, along the last axis",
        )
    where = (*shape_of("dirichlet", shape), *common)
    logs = loggamma(key, power, where, dtype=wanted)
    return HANDLES.softmax(logs, (len(where) - 1,))  # type: ignore[no-any-return]


# ---- vectors and matrices ------------------------------------------------------------


@named(x="cov")
def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Shape = (), *, dtype: Any = None
) -> EagerTensor:
    """Normal vectors of the given mean and covariance.

    Args:
        key: two words.
        mean: (..., n); differentiable.
        cov: (..., n, n), symmetric and positive definite; differentiable.
        shape: how many draws; the result has the shape (*shape, ..., n).
        dtype: a real floating dtype; None means that of the parameters.

    Raises:
        ShapeError: not a key, or parameters do not fit.
        InvalidArgumentError: not a shape, or `cov` is not positive definite.
        DTypeError: another dtype.

    Cost: a Cholesky factorisation, and a few allocations of the result's size.
    """
    wanted, (centre, square) = converted(
        "multivariate_normal", key, dtype, mean=mean, cov=cov
    )
    n = square.shape[-1] if square.ndim > 1 else 0
    if square.shape[-2:] != (n, n) or centre.shape[-1:] != (n,):
        raise errors.ShapeError(
            operation="multivariate_normal",
            argument="cov",
            found=f"shape {square.shape} for a mean of shape {centre.shape}",
            fix="pass a mean (..., n) and a covariance (..., n, n)",
        )
    lead = broadcast_shapes("multivariate_normal", centre.shape[:-1], square.shape[:-2])
    where = (*shape_of("multivariate_normal", shape), *lead, n)
    z = HANDLES.reshape(normal(key, where, dtype=wanted), (*where, 1))
    moved = HANDLES.reshape(HANDLES.matmul(cholesky(square), z), where)
    return HANDLES.add(moved, centre)  # type: ignore[no-any-return]


@named()
def orthogonal(
    key: Any, n: int, shape: Shape = (), *, dtype: Any = np.float64
) -> EagerTensor:
    """Orthogonal (or unitary) matrices, no direction more likely than another.

    Args:
        key: two words.
        n: rows and columns.
        shape: how many draws; the result has the shape (*shape, n, n).
        dtype: a real floating dtype, or a complex one, of single precision at least.

    Raises:
        ShapeError: not a key. DTypeError: another dtype, or `n` is no integer.
        InvalidArgumentError: not a shape, or a negative `n`.

    Cost: a QR factorisation, and a few allocations of the result's size.

    Source: F. Mezzadri, Notices Amer. Math. Soc. 54 (2007).
    """
    wanted = dtype_of("orthogonal", dtype, "dfDF")
    size = int_of("orthogonal", "n", n, 0)
    where = (*shape_of("orthogonal", shape), size, size)
    q, r = qr(normal(key, where, dtype=wanted))
    signs = HANDLES.sign(diagonal(r))
    return HANDLES.mul(q, HANDLES.reshape(signs, (*where[:-2], 1, size)))  # type: ignore[no-any-return]
