"""NumPy functions that are given tensors: `np.sin(x)`, `np.sum(x)`, `array + x`.

Operators between an array and a tensor are the tensor's. Everything else computes in
NumPy and gives NumPy's result, as `np.asarray(x)` would: for constants. A tracked value
would silently become a constant, so it is refused, and the error names the function
that records instead. (NumPy 2.4 loses a reference to an operand where a `reduce` method
is refused.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ..errors import TenferroError, TracedConversionError
from ..runtime import is_symbolic, traced_error
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_elementwise import pow
from ._other_names import public_name

_OPERATORS: Final[dict[Any, Callable[[Any, Any], Any]]] = {
    np.add: HANDLES.add,
    np.subtract: HANDLES.sub,
    np.multiply: HANDLES.mul,
    np.true_divide: HANDLES.div,
    np.floor_divide: HANDLES.floor_divide,
    np.remainder: HANDLES.remainder,
    np.power: pow,
    np.matmul: HANDLES.matmul,
    np.bitwise_and: HANDLES.bitwise_and,
    np.bitwise_or: HANDLES.bitwise_or,
    np.bitwise_xor: HANDLES.bitwise_xor,
    np.left_shift: HANDLES.left_shift,
    np.right_shift: HANDLES.right_shift,
    np.equal: HANDLES.equal,
    np.not_equal: HANDLES.not_equal,
    np.less: HANDLES.less,
    np.less_equal: HANDLES.less_equal,
    np.greater: HANDLES.greater,
    np.greater_equal: HANDLES.greater_equal,
}


def array_ufunc(
    self: EagerTensor, ufunc: Any, method: str, *inputs: Any, **kwargs: Any
) -> Any:
    """A ufunc of NumPy; becomes `EagerTensor.__array_ufunc__`.

    Raises:
        TracedConversionError: a value is tracked; names the function to use.

    Cost: an operator that of the operation; else NumPy's, without a copy of operands.
    """
    if method == "__call__" and not kwargs and ufunc in _OPERATORS:
        return _OPERATORS[ufunc](*inputs)
    name = ufunc.__name__
    arrays = _arrays(name, list(inputs))
    return getattr(ufunc, method)(*arrays, **_arrays(name, kwargs))


def array_function(
    self: EagerTensor, fn: Any, types: Any, args: Any, kwargs: Any
) -> Any:
    """A function of NumPy; becomes `EagerTensor.__array_function__`.

    Raises:
        TracedConversionError: a value is tracked; names the function to use.

    Cost: NumPy's, without a copy of operands.
    """
    name = fn.__name__
    return fn(*_arrays(name, list(args)), **_arrays(name, kwargs))


def _arrays(name: str, given: Any) -> Any:
    """Arguments with read-only arrays instead of tensors."""
    if isinstance(given, EagerTensor):
        if given.is_tracked or is_symbolic(given._record):
            raise _refused(name, given)
        return given.numpy()
    if type(given) in (list, tuple):
        return type(given)([_arrays(name, x) for x in given])
    if isinstance(given, dict):
        return {key: _arrays(name, x) for key, x in given.items()}
    return given


def _refused(name: str, x: EagerTensor) -> TenferroError:
    ours = public_name(name)
    instead = f"use `{ours}`, which records" if ours else "use functions of `ta`"
    operation = f"numpy.{name}"
    if is_symbolic(x._record):
        error = traced_error(operation, x._record.array)
        if isinstance(error, TracedConversionError):
            fix = f"{instead}, or compute this part outside the traced function"
            error = TracedConversionError(
                operation=operation, found=error.found, fix=fix
            )
        return error
    return TracedConversionError(
        operation=operation,
        found=f"a tracked value of shape {x.shape}, whose derivative would be lost",
        fix=f"{instead}, or take `ta.stop_gradient(x)` to make it a constant",
    )
