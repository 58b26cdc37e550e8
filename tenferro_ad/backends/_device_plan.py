"""Plans of asynchronous devices: outputs through the door, then one launch.

The decisions that make ledger events (what is fresh, what is added to or written over)
are the plan's attributes and stand above; they are the ones of the CPU's plans.

Views are computed once for each layout of the operand: the row's own function runs on
an array of that layout which must not be read, and what it returns says where the
elements are.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from .._ledger import State
from ..ops import Call, ElementwiseOp, View
from ..storage import DeviceArray, ValueRecord, allocate, duplicate
from ._numpy_printer import print_numpy
from ._plan import Plan


class LaunchingDevice(Protocol):
    """What a plan asks of its device."""

    name: str

    @property
    def executions(self) -> Any:
        """Eager operations on the device."""
        ...

    def prepare_sum(self, call: Call) -> object:
        """The kernel that adds an application's result to its only output."""
        ...


def launch_plan(device: LaunchingDevice, call: Call, kernel: object) -> Plan:
    """The plan that allocates the outputs and launches `kernel`."""
    outs, name = call.outs, call.op.name
    single = len(outs) == 1

    def execute(state: State, *xs: ValueRecord) -> Any:
        records = [allocate(state, aval, name) for aval in outs]
        device.executions.launch(
            name, kernel, [x.array for x in xs], [r.array for r in records]
        )
        return records[0] if single else tuple(records)

    if not single or call.op.variadic:
        return Plan(call, execute)
    adding: list[object] = []  # made when it is first needed

    def into(state: State, *arrays: Any) -> None:
        if not adding:
            adding.append(device.prepare_sum(call))
        device.executions.launch(name, adding[0], arrays[:-1], arrays[-1:])

    def overwrite(*arrays: Any) -> None:
        device.executions.launch(name, kernel, arrays[:-1], arrays[-1:])

    if not isinstance(call.op, ElementwiseOp):
        return Plan(call, execute, into=into)
    # The registers of host kernels have places in arenas: schedules are the same.
    kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in call.ins)
    dtypes = [a.dtype for a in call.ins]
    printed = print_numpy(call.op.expr_of(kinds), call.op.args, dtypes)
    return Plan(call, execute, into=into, overwrite=overwrite, printed=printed)


# ---- views

Layout = tuple[int, tuple[int, ...], tuple[int, ...]]


def view_plan(call: Call, kernel: View) -> Plan:
    """The plan of a row that only describes memory anew."""
    aval, name, fn, outs = call.out, call.op.name, kernel.fn, call.outs
    known: dict[tuple[int, tuple[int, ...]], list[Layout] | None] = {}
    single = len(outs) == 1

    def views(array: DeviceArray) -> list[DeviceArray] | None:
        key = (array.offset, array.strides)
        if key not in known:
            known[key] = _layouts(fn, array, call)
        found = known[key]
        if found is None:
            return None
        return [
            DeviceArray(array.allocation, shape, out.dtype, offset, strides)
            for out, (offset, shape, strides) in zip(outs, found, strict=True)
        ]

    def execute(state: State, x: ValueRecord) -> Any:
        array = x.array
        if type(array) is np.ndarray:  # a number
            result = fn(array, call)
            found = [result] if single and result is not None else result
        else:
            found = views(array)
        if found is None:
            return _laid_out(state, x)
        records = [x.derive(a, v) for a, v in zip(found, outs, strict=True)]
        return records[0] if single else tuple(records)

    def _laid_out(state: State, x: ValueRecord) -> ValueRecord:
        """Elements in row-major order, as the row says: by an explicit copy or a
        kernel's output."""
        if kernel.otherwise == "write":
            record = allocate(state, aval, name)
            as_x = DeviceArray.whole(record.array.allocation, x.aval.shape, aval.dtype)
            target = record.derive(as_x, x.aval)  # seated for as long as it is held
            aval.device.write(target.array, x.array)
            return record
        base = duplicate(x.array, x.aval, name)
        if aval.shape == base.aval.shape:
            return base
        shaped = DeviceArray.whole(base.array.allocation, aval.shape, aval.dtype)
        return base.derive(shaped, aval)

    return Plan(call, execute)


def _layouts(fn: Any, array: DeviceArray, call: Call) -> list[Layout] | None:
    """What the row's function makes of an array of this layout, in bytes."""
    stand_in = unread(array.shape, array.dtype, array.strides)
    made = fn(stand_in, call)
    if made is None:
        return None
    start = stand_in.__array_interface__["data"][0]
    return [
        (
            array.offset + (v.__array_interface__["data"][0] - start if v.size else 0),
            v.shape,
            v.strides,
        )
        for v in (made if len(call.outs) > 1 else (made,))
    ]


def unread(
    shape: tuple[int, ...], dtype: np.dtype[Any], strides: tuple[int, ...]
) -> np.ndarray[Any, Any]:
    """An array of this layout over one element of memory: it must not be read."""
    one = np.empty(1, dtype)
    return np.lib.stride_tricks.as_strided(one, shape, strides, writeable=False)
