"""Public accumulations along an axis and their inverse, `diff`: array API names,
log-sum-exps beside them.

Derivatives are right at zeros of a product and without overflow for log-sum-exps.
"""

from __future__ import annotations

from typing import Any

from ..errors import DTypeError, InvalidArgumentError
from ..ops import span
from ._axes import axis_of, int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_joining import concat
from ._make import as_tensor, cast

__all__ = ["cumulative_sum", "cumulative_prod", "cumulative_logsumexp", "diff"]


def _accumulated(
    name: str, x: Any, axis: int | None, dtype: Any, initial: float | None
) -> EagerTensor:
    x = cast(name, x, dtype)
    if axis is None and x.ndim != 1:
        raise InvalidArgumentError(
            operation=name,
            argument="axis",
            found=f"None for a value with {x.ndim} axes",
            fix="name the axis; it may be left out where there is one only",
        )
    at = axis_of(name, 0 if axis is None else axis, x.ndim)
    out: EagerTensor = getattr(HANDLES, name)(x, at, False)
    if initial is None:
        return out
    shape = tuple(n + (k == at) for k, n in enumerate(out.shape))
    key = tuple(span(int(k == at), n, 1) for k, n in enumerate(out.shape))
    out = HANDLES.place(out, shape, key, initial)
    return out


def cumulative_sum(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> EagerTensor:
    """The sum of all elements up to each one, along an axis.

    Args:
        x: the elements; small integers and booleans add up in 64 bits.
        axis: needed where there are several.
        dtype: convert to this dtype first.
        include_initial: begin with 0, for one more element.

    Raises:
        InvalidArgumentError: no `axis` for a value with other than one axis.
        IndexRangeError: not an axis of `x`.

    Cost: one allocation of the result's size, another for `dtype` and for
        `include_initial`; retains nothing.
    """
    initial = 0 if include_initial else None
    return _accumulated("cumulative_sum", x, axis, dtype, initial)


def cumulative_prod(
    x: Any,
    /,
    *,
    axis: int | None = None,
    dtype: Any = None,
    include_initial: bool = False,
) -> EagerTensor:
    """The product of all elements up to each one; see `cumulative_sum`.

    Raises: as `cumulative_sum`.

    Cost: one allocation of the result's size; retains `x` and the result; the
        derivative is a recurrence along the axis, one multiplication and one addition
        for each element and no division.
    """
    initial = 1 if include_initial else None
    return _accumulated("cumulative_prod", x, axis, dtype, initial)


def cumulative_logsumexp(x: Any, /, *, axis: int | None = None) -> EagerTensor:
    """log(cumulative_sum(exp(x))) without overflow, along an axis.

    Args:
        x: real numbers; integers give float64.
        axis: needed where there are several.

    Raises:
        InvalidArgumentError, IndexRangeError: as for `cumulative_sum`.
        DTypeError: complex operands.

    Cost: one allocation of the result's size; retains `x` and the result.
    """
    return _accumulated("cumulative_logsumexp", x, axis, None, None)


def diff(
    x: Any,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Any = None,
    append: Any = None,
) -> EagerTensor:
    """The differences of neighbours along an axis, `n` times.

    Args:
        x: numbers.
        axis: the axis; the result is shorter by `n` along it.
        n: how often; 0 gives `x` itself.
        prepend, append: values put before and after `x` first; the other axes equal.

    Raises:
        InvalidArgumentError: a negative `n`.
        IndexRangeError: not an axis of `x`.
        DTypeError: booleans, which have no difference.
        ShapeError: `prepend` or `append` does not fit.

    Cost: one allocation for each time, one more to put values before or after; retains
        nothing.
    """
    x = as_tensor(x)
    at, times = axis_of("diff", axis, x.ndim), int_of("diff", "n", n)
    if times < 0:
        raise InvalidArgumentError(
            operation="diff", argument="n", found=f"{times}", fix="use 0 or more"
        )
    if x.dtype.kind == "b":
        raise DTypeError(
            operation="diff",
            argument="x",
            found="booleans",
            fix="convert them: `ta.astype(x, ta.int64)`",
        )
    parts = [v for v in (prepend, x, append) if v is not None]
    if times and len(parts) > 1:
        x = concat(parts, axis=at)
    for _ in range(times):
        shape = x.shape
        count = max(shape[at] - 1, 0)
        low, high = (
            tuple(
                span(first, count, 1) if k == at else span(0, m, 1)
                for k, m in enumerate(shape)
            )
            for first in (0, min(1, shape[at]))
        )
        x = HANDLES.sub(HANDLES.slice(x, high), HANDLES.slice(x, low))
    return x  # type: ignore[no-any-return]
