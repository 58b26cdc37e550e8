"""Values made from parameters: each call is one `OperationOutput`, with no copy."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from ..errors import DTypeError, InvalidArgumentError, ShapeError, named, type_name
from ..ops import exact
from ..runtime import device_of, shown
from ._axes import int_of, shape_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_movement import broadcast_to, reshape
from ._make import outside, tensors
from ._numbers import dtype_of

__all__ = [
    "arange",
    "empty",
    "empty_like",
    "eye",
    "full",
    "full_like",
    "linspace",
    "meshgrid",
    "ones",
    "ones_like",
    "zeros",
    "zeros_like",
]

_FLOAT = np.dtype(np.float64)


def _dtype(operation: str, dtype: Any, default: np.dtype[Any]) -> np.dtype[Any]:
    return dtype_of(operation, default if dtype is None else dtype)


def _natural(value: Any) -> np.dtype[Any]:
    return np.asarray(value).dtype


def _scalar(operation: str, argument: str, value: Any) -> bool | int | float | complex:
    if isinstance(value, EagerTensor | np.ndarray | np.generic) and value.size == 1:
        value = value.item()
    if isinstance(value, bool | int | float | complex):
        return value
    raise InvalidArgumentError(
        operation=operation,
        argument=argument,
        found=f"an object of type `{type_name(value)}`",
        fix="pass a number",
    )


def number_of(
    operation: str, argument: str, value: Any, dtype: np.dtype[Any]
) -> bool | int | float | complex:
    """A number that `dtype` can hold.

    Raises:
        InvalidArgumentError: not a number, or out of the range of an integer dtype or
            of all floats.
        DTypeError: a complex number for a real dtype.
    """
    found = _scalar(operation, argument, value)
    if isinstance(found, complex):
        if dtype.kind != "c":
            raise DTypeError(
                operation=operation,
                argument=argument,
                found=f"the complex number {found!r} for dtype {dtype}",
                fix="use a complex dtype",
            )
    elif dtype.kind in "iu" or isinstance(found, int):
        info = np.iinfo(dtype) if dtype.kind in "iu" else None
        most = info.max if info else sys.float_info.max
        least = info.min if info else -most
        if not least <= found <= most:
            raise InvalidArgumentError(
                operation=operation,
                argument=argument,
                found=f"{shown(found)} for dtype {dtype}",
                fix="use a number that the dtype can hold",
            )
    return found


def _filled(
    operation: str, shape: Any, fill_value: Any, dtype: np.dtype[Any], device: Any
) -> EagerTensor:
    value = number_of(operation, "fill_value", fill_value, dtype)
    out: EagerTensor = HANDLES.full(
        shape_of(operation, shape), dtype, exact(value), device_of(device, operation)
    )
    return out


def full(
    shape: int | tuple[int, ...],
    fill_value: complex,
    *,
    dtype: Any = None,
    device: Any = None,
) -> EagerTensor:
    """A value of `shape`, all elements equal to `fill_value`.

    Args:
        shape: the lengths of the axes.
        fill_value: a number.
        dtype: by default what the number asks for (bool, int64, float64, complex128).

    Raises:
        InvalidArgumentError: a negative length, or a number the dtype cannot hold.

    Cost: one allocation; work for each element; no copy.
    """
    value = _scalar("full", "fill_value", fill_value)
    found = _dtype("full", dtype, _natural(value))
    return _filled("full", shape, value, found, device)


def zeros(
    shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """All zero; float64 by default.

    Raises:
        InvalidArgumentError: a negative length, or no such device.
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.

    Cost: one allocation; no copy.
    """
    return _filled("zeros", shape, 0, _dtype("zeros", dtype, _FLOAT), device)


def ones(
    shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """All one; float64 by default.

    Raises:
        InvalidArgumentError: a negative length, or no such device.
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.

    Cost: one allocation; no copy.
    """
    return _filled("ones", shape, 1, _dtype("ones", dtype, _FLOAT), device)


def _like(operation: str, x: Any, value: Any, dtype: Any, device: Any) -> EagerTensor:
    if isinstance(x, EagerTensor):
        aval = x.aval
        shape, own, place = aval.shape, aval.dtype, aval.device
    else:  # only the form matters: nothing is transferred
        form = outside(x, None, operation, "x")
        shape, own, place = form.shape, form.dtype, None
    found = _dtype(operation, dtype, own)
    return _filled(operation, shape, value, found, place if device is None else device)


def full_like(
    x: Any, /, fill_value: complex, *, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """A constant of the shape, dtype and device of `x`, filled with a number.

    Raises:
        InvalidArgumentError: `fill_value` is no number, or no such device.
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.

    Cost: one allocation; no copy. Reads no element of `x`.
    """
    value = _scalar("full_like", "fill_value", fill_value)
    return _like("full_like", x, value, dtype, device)


def zeros_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> EagerTensor:
    """Zeros of the shape, dtype and device of `x`.

    Raises:
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.
        InvalidArgumentError: no such device.

    Cost: one allocation; no copy. Reads no element of `x`.
    """
    return _like("zeros_like", x, 0, dtype, device)


def ones_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> EagerTensor:
    """Ones of the shape, dtype and device of `x`.

    Raises:
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.
        InvalidArgumentError: no such device.

    Cost: one allocation; no copy. Reads no element of `x`.
    """
    return _like("ones_like", x, 1, dtype, device)


def empty(
    shape: int | tuple[int, ...], *, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """A value whose content nobody may rely on.

    An eager tensor can never be filled, so memory that holds anything would only make
    programs irreproducible: the content is zero. Outputs of operations are allocated
    unwritten; use `ta.Tensor` with `as_view_mut` to fill memory by hand.

    Raises:
        InvalidArgumentError: a negative length, or no such device.
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.

    Cost: one allocation, one pass; no copy.
    """
    return _filled("empty", shape, 0, _dtype("empty", dtype, _FLOAT), device)


def empty_like(x: Any, /, *, dtype: Any = None, device: Any = None) -> EagerTensor:
    """`empty` with the shape, dtype and device of `x`.

    Raises:
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.
        InvalidArgumentError: no such device.

    Cost: one allocation, one pass; no copy. Reads no element of `x`.
    """
    return _like("empty_like", x, 0, dtype, device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> EagerTensor:
    """The numbers `start, start + step, ...` before `stop`.

    Args:
        start: first number; if `stop` is missing, the end, and the first number is 0.
        stop: end, not included.
        step: distance; may be negative.
        dtype: int64 for integers, float64 otherwise.

    Raises:
        InvalidArgumentError: a step of zero, or a number that is not finite.

    Cost: one allocation and scratch of its size; no copy.
    """
    if stop is None:
        start, stop = 0, start
    numbers = [
        _scalar("arange", n, v)
        for n, v in (("start", start), ("stop", stop), ("step", step))
    ]
    size = None if numbers[2] == 0 else _steps(*numbers)
    if size is None:
        raise InvalidArgumentError(
            operation="arange",
            argument="step",
            found=f"start, stop and step ({', '.join(map(shown, numbers))})",
            fix="use finite real numbers and a step other than zero",
        )
    default = np.result_type(*[_natural(v) for v in numbers])
    found = _dtype("arange", dtype, _natural(0) if default.kind == "b" else default)
    params = [exact(v) for v in numbers]
    out: EagerTensor = HANDLES.arange(
        *params, max(0, size), found, device_of(device, "arange")
    )
    return out


def _steps(first: Any, end: Any, gap: Any) -> int | None:
    """How many numbers that is; None if these are no finite real numbers."""
    if all(isinstance(v, int) for v in (first, end, gap)):
        return -((first - end) // gap)  # type: ignore[no-any-return]
    try:
        return math.ceil((end - first) / gap)  # type: ignore[no-any-return]
    except (TypeError, ValueError, OverflowError):
        return None


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> EagerTensor:
    """`num` evenly spaced numbers from `start` to `stop`.

    Args:
        start: first number.
        stop: last number, or the one after the last with `endpoint=False`.
        num: how many.
        dtype: float64, or complex128 for complex ends.

    Raises:
        DTypeError: `num` is no integer. InvalidArgumentError: it is negative.

    Cost: one allocation and scratch of its size; no copy.
    """
    ends = (_scalar("linspace", "start", start), _scalar("linspace", "stop", stop))
    count = int_of("linspace", "num", num, 0)
    default = np.result_type(*[_natural(v) for v in ends], _FLOAT)
    found = _dtype("linspace", dtype, default)
    out: EagerTensor = HANDLES.linspace(
        *[exact(v) for v in ends],
        count,
        bool(endpoint),
        found,
        device_of(device, "linspace"),
    )
    return out


@named(shape="n_rows")
def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> EagerTensor:
    """Ones on diagonal `k` (above the main one if positive), zeros elsewhere.

    Raises:
        InvalidArgumentError: a negative length, or no such device.
        DTypeError: no dtype that a value can have.
        AllocationLimitError: the device has no room.

    Cost: one allocation; no copy.
    """
    rows, cols = shape_of("eye", (n_rows, n_rows if n_cols is None else n_cols))
    found = _dtype("eye", dtype, _FLOAT)
    offset = int_of("eye", "k", k)
    out: EagerTensor = HANDLES.eye(rows, cols, offset, found, device_of(device, "eye"))
    return out


def meshgrid(*arrays: Any, indexing: str = "xy") -> list[EagerTensor]:
    """Coordinate grids of 1-d coordinates, as broadcast views.

    Args:
        arrays: 1-d values.
        indexing: `"ij"` keeps the order of axes, `"xy"` exchanges the first two.

    Raises:
        ShapeError: a value is not 1-d.
        InvalidArgumentError: another `indexing`.

    Cost: views; allocates and copies nothing.
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgumentError(
            operation="meshgrid",
            argument="indexing",
            found=repr(indexing),
            fix='use "xy" or "ij"',
        )
    xs = tensors(*arrays)
    for x in xs:
        if x.ndim != 1:
            raise ShapeError(
                operation="meshgrid",
                argument="arrays",
                found=f"a value of shape {x.shape}",
                fix="pass 1-d coordinates",
            )
    n = len(xs)
    order = [1, 0, *range(2, n)] if indexing == "xy" and n > 1 else list(range(n))
    shape = [0] * n
    for k, x in zip(order, xs, strict=True):
        shape[k] = x.size
    grids = []
    for k, x in zip(order, xs, strict=True):
        own = tuple(x.size if j == k else 1 for j in range(n))
        grids.append(broadcast_to(reshape(x, own), tuple(shape)))
    return grids
