"""What operations take besides tensors: numbers and NumPy arrays, as handles."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import DTypeError, InvalidArgumentError, type_name
from ..ops import Op
from ..runtime import PLAN_LIMIT, brought, host_aval, scalar_key, scalar_record
from ..storage import Tensor, TensorView, TensorViewMut
from ._eager import EagerTensor, constant


def as_handles(op: Op, operands: tuple[Any, ...]) -> tuple[EagerTensor, ...]:
    """Handles for all operands: Python numbers are weakly typed and have no root; NumPy
    arrays come in through a recorded `Transfer`."""
    known = [x for x in operands if type(x) is EagerTensor]
    if len(known) == len(operands):
        return operands
    device = known[0].device if known else None
    converted = [
        x if type(x) is EagerTensor else _from_outside(op, i, x, device)
        for i, x in enumerate(operands)
    ]
    avals = [x.aval for x in converted if type(x) is EagerTensor]
    if not avals:
        raise InvalidArgumentError(
            operation=op.name,
            argument=op.args[0],
            found="Python numbers only",
            fix="wrap one of them: `ta.asarray(x)`",
        )
    dtype = np.result_type(*[a.dtype for a in avals])
    device = avals[0].device
    return tuple(
        x if type(x) is EagerTensor else number_handle(x, dtype, device)
        for x in converted
    )


NUMBERS: Final = frozenset({bool, int, float, complex})
_numbers: dict[Any, EagerTensor] = {}


def number_handle(value: Any, dtype: np.dtype[Any], device: Any) -> EagerTensor:
    """A number as an operand beside values of `dtype`: rootless, without any event.

    Python numbers are weak (they take the other operand's dtype where its kind can hold
    them); NumPy scalars keep their own dtype (NEP 50).
    """
    key = scalar_key(value, dtype, device)
    found = _numbers.get(key)
    if found is None:
        own = value.dtype if isinstance(value, np.generic) else None
        record = scalar_record(value, own or np.result_type(dtype, value), device)
        found = constant(record)
        if len(_numbers) >= PLAN_LIMIT:
            _numbers.clear()
        _numbers[key] = found
    return found


def plain(x: Any) -> Any:
    """A Python number as it is: one of a subclass (an `IntEnum`, a watched size) is
    weak like the number that it is. Anything else comes back."""
    if type(x) in NUMBERS or isinstance(x, np.generic):
        return x
    if isinstance(x, int):
        return int(x)
    if isinstance(x, float):
        return float(x)
    return complex(x) if isinstance(x, complex) else x


def _from_outside(op: Op, i: int, x: Any, device: Any) -> Any:
    if type(x) in NUMBERS:
        return x
    if isinstance(x, np.generic) and x.dtype.kind in "biufc":
        return x
    if isinstance(x, np.ndarray) and x.dtype.kind in "biufc":
        record = brought(x, host_aval(x, device), op.name)
        return constant(record)
    if isinstance(x, int | float | complex):
        return plain(x)
    found = f"an object of type `{type_name(x)}`"
    fix = "pass a tensor (`ta.asarray`), a NumPy array or a Python number"
    if isinstance(x, Tensor):
        found = "a `Tensor`, which owns bytes and computes nothing"
        fix = "move it into a handle first: `ta.asarray(t)`"
    elif isinstance(x, TensorView | TensorViewMut):
        found = f"a `{type_name(x)}`, which borrows bytes and computes nothing"
        fix = "compute with the handle or its part, or copy: `v.duplicate()`"
    raise DTypeError(
        operation=op.name,
        argument=op.args[0] if op.variadic else op.args[i],
        found=found,
        fix=fix,
    )
