"""Public accumulations along an axis: array API names, log-sum-exps beside them.

Derivatives are right at zeros of a product and without overflow for log-sum-exps.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import InvalidArgumentError
from ..ops import span
from ._axes import axis_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor

__all__ = ["cumulative_sum", "cumulative_prod", "cumulative_logsumexp"]


def _accumulated(
    name: str, x: Any, axis: int | None, dtype: Any, initial: float | None
) -> EagerTensor:
    x = as_tensor(x)
    if dtype is not None and x.dtype != (wanted := np.dtype(dtype)):
        x = HANDLES.astype(x, wanted)
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
