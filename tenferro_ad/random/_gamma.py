"""The gamma distribution and its relatives, by inversion of incomplete functions."""

from __future__ import annotations

from typing import Any

from .. import errors
from ..engine import HANDLES, EagerTensor, shape_of
from ..errors import named
from ..special import betaincinv, gammaincinv
from ._draws import Shape, normal
from ._keys import split
from ._parameters import inside, parameters


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
    u = inside("loggamma", first, where, wanted)
    larger = HANDLES.log(gammaincinv(HANDLES.add(power, 1.0), u))
    smaller = HANDLES.log(inside("loggamma", second, where, wanted))
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
    u = inside("beta", key, where, wanted)
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
