"""Public reductions: array API names and signatures, NumPy's extras beside them.

Axes are normalised here, once: operations see sorted tuples of non-negative numbers.
Derivatives: ties of `max` and `min` share equally, `std` has slope 0 where it is 0,
`prod` is right at zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ._axes import axis_of, reduced_axes
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, cast
from ._numbers import real_of

__all__ = [
    "sum",
    "prod",
    "mean",
    "var",
    "std",
    "max",
    "min",
    "argmax",
    "argmin",
    "any",
    "all",
    "count_nonzero",
    "logsumexp",
    "softmax",
    "log_softmax",
]

Axis = int | Sequence[int] | None


def sum(
    x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False
) -> EagerTensor:
    """Sum of elements. Small integers and booleans add up in 64 bits; float16 in 32.

    Args:
        x: the elements.
        axis: an axis, several, or None for all.
        dtype: convert to this dtype first.
        keepdims: keep reduced axes with length 1.

    Raises:
        IndexRangeError, InvalidArgumentError, DTypeError: bad axes.

    Cost: one allocation of the result's size (one more for another `dtype`); retains
        nothing; work linear in `x`.
    """
    x = x if dtype is None and type(x) is EagerTensor else cast("sum", x, dtype)
    axes = reduced_axes("sum", axis, x.ndim)
    return HANDLES.sum(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def prod(
    x: Any, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False
) -> EagerTensor:
    """Product of elements; see `sum` for arguments and errors.

    Cost: one allocation of the result's size; retains `x`; the derivative takes O(n)
        multiplications and no division, so it is exact where elements are zero.
    """
    x = cast("prod", x, dtype)
    axes = reduced_axes("prod", axis, x.ndim)
    return HANDLES.prod(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def mean(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> EagerTensor:
    """Arithmetic mean; integers give float64. See `sum` for arguments and errors.

    Cost: one allocation of the result's size; retains nothing; work linear in `x`.
    """
    x = as_tensor(x)
    axes = reduced_axes("mean", axis, x.ndim)
    return HANDLES.mean(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def var(
    x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> EagerTensor:
    """Variance: the mean of |x - mean(x)|^2 with divisor `n - correction`.

    Args:
        x: the elements; complex ones give a real result, integers float64.
        axis, keepdims: see `sum`.
        correction: 0 for the population's variance, 1 for the unbiased estimate.

    Raises:
        IndexRangeError, InvalidArgumentError, DTypeError: bad axes.

    Cost: one allocation of the result's size; retains `x`; two passes.
    """
    x = as_tensor(x)
    axes = reduced_axes("var", axis, x.ndim)
    less = real_of("var", "correction", correction)
    return HANDLES.var(x, axes, less, bool(keepdims))  # type: ignore[no-any-return]


def std(
    x: Any, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> EagerTensor:
    """Standard deviation, the square root of `var`; its slope is 0 where it is 0.

    Raises: as `sum`.

    Cost: one allocation of the result's size; retains `x` and the result; two passes.
    """
    x = as_tensor(x)
    axes = reduced_axes("std", axis, x.ndim)
    less = real_of("std", "correction", correction)
    return HANDLES.std(x, axes, less, bool(keepdims))  # type: ignore[no-any-return]


def max(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> EagerTensor:
    """Largest element; NaN where there is one. Equal largest elements share the slope.

    Raises:
        InvalidArgumentError: no elements; bad axes as for `sum`.
        DTypeError: complex operands.

    Cost: one allocation of the result's size; retains `x` and the result.
    """
    x = as_tensor(x)
    axes = reduced_axes("max", axis, x.ndim)
    return HANDLES.max(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def min(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> EagerTensor:
    """Smallest element; see `max`.

    Raises: as `max`.

    Cost: one allocation of the result's size; retains `x` and the result.
    """
    x = as_tensor(x)
    axes = reduced_axes("min", axis, x.ndim)
    return HANDLES.min(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def argmax(
    x: Any, /, *, axis: int | None = None, keepdims: bool = False
) -> EagerTensor:
    """Position of the first largest element, as int64; NaN counts as largest.

    Args:
        x: the elements.
        axis: one axis, or None for the position in the flattened value.
        keepdims: keep reduced axes with length 1.

    Raises:
        InvalidArgumentError: no elements. DTypeError: complex operands.

    Cost: one allocation of the result's size; never tracked.
    """
    x = as_tensor(x)
    where = None if axis is None else axis_of("argmax", axis, x.ndim)
    return HANDLES.argmax(x, where, bool(keepdims))  # type: ignore[no-any-return]


def argmin(
    x: Any, /, *, axis: int | None = None, keepdims: bool = False
) -> EagerTensor:
    """Position of the first smallest element; see `argmax`.

    Raises: as `argmax`.

    Cost: one allocation of the result's size; never tracked.
    """
    x = as_tensor(x)
    where = None if axis is None else axis_of("argmin", axis, x.ndim)
    return HANDLES.argmin(x, where, bool(keepdims))  # type: ignore[no-any-return]


def any(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> EagerTensor:
    """Whether some element is not zero; see `sum` for arguments and errors.

    Cost: one allocation of the result's size; never tracked.
    """
    x = as_tensor(x)
    axes = reduced_axes("any", axis, x.ndim)
    return HANDLES.any(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def all(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> EagerTensor:
    """Whether no element is zero; see `sum` for arguments and errors.

    Cost: one allocation of the result's size; never tracked.
    """
    x = as_tensor(x)
    axes = reduced_axes("all", axis, x.ndim)
    return HANDLES.all(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def count_nonzero(
    x: Any, /, *, axis: Axis = None, keepdims: bool = False
) -> EagerTensor:
    """How many elements are not zero, as int64; see `sum` for arguments and errors.

    Cost: one allocation of the result's size; never tracked.
    """
    x = as_tensor(x)
    axes = reduced_axes("count_nonzero", axis, x.ndim)
    return HANDLES.count_nonzero(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def logsumexp(x: Any, /, *, axis: Axis = None, keepdims: bool = False) -> EagerTensor:
    """log(sum(exp(x))) without overflow; -inf where all elements are -inf.

    See `sum` for arguments and errors; complex operands raise DTypeError.

    Cost: one allocation of the result's size; retains `x` and the result.
    """
    x = as_tensor(x)
    axes = reduced_axes("logsumexp", axis, x.ndim)
    return HANDLES.logsumexp(x, axes, bool(keepdims))  # type: ignore[no-any-return]


def softmax(x: Any, /, *, axis: Axis = -1) -> EagerTensor:
    """exp(x) / sum(exp(x)) along `axis`; see `sum` for errors.

    Args:
        x: real elements.
        axis: an axis, several, or None for all.

    Cost: one allocation of the size of `x`; retains the result only.
    """
    x = as_tensor(x)
    return HANDLES.softmax(x, reduced_axes("softmax", axis, x.ndim))  # type: ignore[no-any-return]


def log_softmax(x: Any, /, *, axis: Axis = -1) -> EagerTensor:
    """x - logsumexp(x) along `axis`; see `softmax`.

    Raises: as `softmax`.

    Cost: one allocation of the size of `x`; retains the result only.
    """
    x = as_tensor(x)
    return HANDLES.log_softmax(x, reduced_axes("log_softmax", axis, x.ndim))  # type: ignore[no-any-return]
