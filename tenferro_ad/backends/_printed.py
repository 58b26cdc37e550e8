"""Kernels of devices that run printed source: lowered once for each set of layouts.

What a launch brings (bindings, descriptors, numbers) is turned into the layouts that a
printer knows; the printer's answer is kept for as long as the kernel lives. Layouts are
counted in elements over the whole allocation, so views cost no copy and no new program.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np

from .._aval import Aval
from ..errors import UnsupportedError
from ..ops import Call, Equation
from ..storage import DeviceArgument, c_strides
from ._backend import Launch
from .printing import SCALAR, Argument, Layout, Lowered, Strided, put_number
from .printing import Launch as PrintedLaunch

_LAYOUTS: Final = 1024  # sets of layouts that one kernel remembers: rows of a loop


@final
class PrintedKernel:
    """One application (or copy) on a device: `lowered(launch)` gives what to start.

    Args:
        lower: `lower(ins, outs)` asks the printer.
        binds_once: its arguments must be different buffers.
    """

    __slots__ = ("_binds_once", "_known", "_lock", "_lower", "name")

    def __init__(
        self,
        name: str,
        lower: Callable[[list[Layout], list[Layout]], Lowered],
        *,
        binds_once: bool,
    ) -> None:
        self.name = name
        self._lower = lower
        self._binds_once = binds_once
        self._known: dict[Any, Lowered] = {}
        self._lock = threading.Lock()

    def print_row_major(self, call: Call) -> None:
        """Print for row-major operands that begin where their memory does: what the
        first launch asks for, most often.

        Raises:
            UnsupportedError: The printer lacks a part of it.
        """
        steps = [
            [c_strides(a.shape, a.dtype.itemsize) for a in avals]
            for avals in (call.ins, call.outs)
        ]
        ins, outs = (
            [
                Strided(0, tuple(n // a.dtype.itemsize for n in strides))
                for a, strides in zip(avals, found, strict=True)
            ]
            for avals, found in zip((call.ins, call.outs), steps, strict=True)
        )
        key = tuple((0, strides, None) for strides in (*steps[0], *steps[1]))
        self._known[key] = self._lower(list(ins), list(outs))

    def lowered(self, launch: Launch) -> Lowered:
        """The printed launches for the layouts of a launch.

        Raises:
            UnsupportedError: The device has no kernel for them.
        """
        given = [
            None if isinstance(a, np.ndarray) else (a, self._output(a, launch))
            for a in launch.ins()
        ]
        places = [*given, *[(a, None) for a in launch.writes]]
        key = tuple(None if p is None else _place(*p) for p in places)
        with self._lock:
            found = self._known.get(key)
        if found is None:
            ins = [SCALAR if p is None else _strided(*p) for p in given]
            outs: list[Layout] = [_strided(a, None) for a in launch.writes]
            found = _with_shared_texts(self._lower(ins, outs))
            with self._lock:
                if len(self._known) >= _LAYOUTS:
                    self._known.clear()
                self._known[key] = found
        return found

    def _output(self, operand: DeviceArgument, launch: Launch) -> int | None:
        """The output in whose buffer the operand lies, where that matters."""
        if not self._binds_once:
            return None
        for k, a in enumerate(launch.writes):
            if a.binding is operand.binding:
                alike = a.descriptor.dtype == operand.descriptor.dtype
                return k if alike else None
        return None


def _with_shared_texts(found: Lowered) -> Lowered:
    """Rows of an operand differ in parameters alone: their texts are one string."""
    launches = [replace(p, source=sys.intern(p.source)) for p in found.launches]
    return replace(found, launches=tuple(launches))


def _place(
    argument: DeviceArgument, output: int | None
) -> tuple[int, tuple[int, ...], int | None]:
    layout = argument.descriptor.layout
    return layout.offset, layout.strides, output


def _strided(argument: DeviceArgument, output: int | None) -> Strided:
    layout, size = argument.descriptor.layout, argument.descriptor.dtype.itemsize
    strides = tuple(s // size for s in layout.strides)
    return Strided(layout.offset // size, strides, output)


def application(
    printer: Any, call: Call, backend: str, *, adds: bool = False
) -> PrintedKernel:
    """The kernel of an application; `adds` makes it add to its only output.

    Raises:
        UnsupportedError: The printer has none for the row and these types.
    """
    if not printer.supports(call):
        raise unsupported(call, backend)
    kernel = PrintedKernel(
        call.op.name,
        lambda ins, outs: printer.lower(call, ins, outs, accumulate=adds),
        binds_once=printer.binds_once,
    )
    try:
        kernel.print_row_major(call)
    except (KeyError, UnsupportedError) as error:  # a scalar function is not written
        raise unsupported(call, backend) from error
    return kernel


def unsupported(call: Call, backend: str) -> UnsupportedError:
    """The refusal of an application: row, types and lane."""
    dtypes = dict.fromkeys(str(a.dtype) for a in (*call.ins, *call.outs))
    return UnsupportedError(
        op=call.op.name,
        backend=backend,
        found=f"backend `{backend}` does not offer `{call.op.name}` of "
        f"{', '.join(dtypes)}",
        fix="compute it on the CPU: `x.to('cpu')`",
    )


def copying(printer: Any, aval: Aval) -> PrintedKernel:
    """The kernel that copies elements from one layout to another."""
    return PrintedKernel(
        "copy",
        lambda ins, outs: printer.lower_copy(aval, ins[0], outs[0]),
        binds_once=printer.binds_once,
    )


def chained(
    printer: Any,
    equations: Sequence[Equation],
    inputs: Sequence[int],
    outputs: Sequence[int],
) -> PrintedKernel:
    """The kernel of a chain of elementwise equations."""
    return PrintedKernel(
        "chain",
        lambda ins, outs: printer.lower_chain(equations, inputs, outputs, ins, outs),
        binds_once=printer.binds_once,
    )


def buffer_of(launch: Launch, argument: Argument, scratch: list[Any]) -> Any:
    """The binding that a printed argument stands for."""
    if argument.kind == "scratch":
        return scratch[argument.index]
    if argument.kind == "out":
        return launch.writes[argument.index].binding
    operand = launch.operands[argument.index]
    assert isinstance(operand, int)
    return (launch.reads[operand] if operand >= 0 else launch.writes[~operand]).binding


def parameters(launch: Launch, printed: PrintedLaunch) -> np.ndarray[Any, Any]:
    """The parameter words, with the launch's numbers in their slots."""
    if not printed.slots:
        return printed.params
    params = printed.params.copy()
    for slot in printed.slots:
        number = launch.operands[slot.operand]
        assert isinstance(number, np.ndarray)
        if number.size:  # all its elements are the same
            put_number(params, slot, number[(0,) * number.ndim])
    return params


__all__ = [
    "PrintedKernel",
    "application",
    "buffer_of",
    "chained",
    "copying",
    "parameters",
    "unsupported",
]
