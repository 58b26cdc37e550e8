"""Continuous distributions: smooth functions of uniform and normal numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..engine import HANDLES, EagerTensor, shape_of
from ..errors import named
from ..special import ndtr, ndtri
from ._draws import Shape, dtype_of, normal
from ._keys import key_of
from ._parameters import inside, parameters

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
    drawn = HANDLES.neg(HANDLES.log(inside("gumbel", key, shape, dtype)))
    return HANDLES.neg(HANDLES.log(drawn))  # type: ignore[no-any-return]


@named()
def logistic(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with distribution function 1 / (1 + exp(-x)); see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: three allocations of the result's size.
    """
    return HANDLES.logit(inside("logistic", key, shape, dtype))  # type: ignore[no-any-return]


@named()
def laplace(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with density exp(-|x|) / 2; see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: a few allocations of the result's size.
    """
    centred = HANDLES.sub(inside("laplace", key, shape, dtype), 0.5)
    far = HANDLES.log1p(HANDLES.mul(HANDLES.abs(centred), -2.0))
    return HANDLES.neg(HANDLES.mul(HANDLES.sign(centred), far))  # type: ignore[no-any-return]


@named()
def cauchy(key: Any, shape: Shape = (), *, dtype: Any = np.float64) -> EagerTensor:
    """Numbers with density 1 / (pi (1 + x^2)); see `exponential`.

    Raises:
        ShapeError, InvalidArgumentError, DTypeError: as `exponential`.

    Cost: a few allocations of the result's size.
    """
    centred = HANDLES.sub(inside("cauchy", key, shape, dtype), 0.5)
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
    u = inside("truncated_normal", key, where, wanted)
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
    u = inside("triangular", key, where, wanted)
    width, rise, fall = HANDLES.sub(b, a), HANDLES.sub(c, a), HANDLES.sub(b, c)
    low = HANDLES.sqrt(HANDLES.mul(HANDLES.mul(u, width), rise))
    rest = HANDLES.sub(1.0, u)
    high = HANDLES.sqrt(HANDLES.mul(HANDLES.mul(rest, width), fall))
    rising = HANDLES.less(HANDLES.mul(u, width), rise)
    return HANDLES.select(rising, HANDLES.add(a, low), HANDLES.sub(b, high))  # type: ignore[no-any-return]
