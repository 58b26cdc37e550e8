"""A whole program as one launch: its steps share one binding for each operand.

Ownership is settled once for each run: the launch reads the program's inputs and writes
its outputs and arenas. Inside, every step finds its operands at places whose layouts
are facts of the program. An endpoint enqueues the steps in order and gives one event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import final

import numpy as np

from ..storage import CheckedDescriptor, DeviceArgument
from ._backend import Launch, Operand


@final
@dataclass(frozen=True, slots=True)
class Place:
    """Where a step finds elements.

    Attributes:
        at: operand `k >= 0` of the program's launch, or `~k` of what it writes.
        descriptor: the elements, counted from where that operand begins.
    """

    at: int
    descriptor: CheckedDescriptor


@final
@dataclass(frozen=True, slots=True)
class Part:
    """One step: a kernel and its places; a host array among operands is a number."""

    kernel: object
    ins: tuple[Place | np.ndarray[tuple[int, ...], np.dtype[np.generic]], ...]
    outs: tuple[Place, ...]
    in_place: frozenset[int] = frozenset()


@final
@dataclass(frozen=True, slots=True)
class ProgramKernel:
    """The steps of a program, in order."""

    name: str
    parts: tuple[Part, ...]


def parts(launch: Launch) -> Iterator[Launch]:
    """The launches that a launch stands for: itself, or the steps of its program."""
    kernel = launch.kernel
    if not isinstance(kernel, ProgramKernel):
        yield launch
        return
    given = launch.ins()
    for part in kernel.parts:
        reads: list[DeviceArgument] = []
        operands: list[Operand] = []
        for number, place in enumerate(part.ins):
            if number in part.in_place:
                operands.append(~0)
                continue
            if isinstance(place, np.ndarray):
                operands.append(place)
                continue
            source = given[place.at] if place.at >= 0 else launch.writes[~place.at]
            if isinstance(source, np.ndarray):
                operands.append(source)
                continue
            operands.append(len(reads))
            reads.append(_argument(place, source))
        writes = []
        for place in part.outs:
            target = launch.writes[~place.at]
            writes.append(_argument(place, target))
        yield Launch(part.kernel, tuple(reads), tuple(writes), tuple(operands))


def _argument(place: Place, source: DeviceArgument) -> DeviceArgument:
    start = source.descriptor.layout.offset
    found = place.descriptor if not start else place.descriptor.moved(start)
    return DeviceArgument(source.binding, found)


__all__ = ["Part", "Place", "ProgramKernel", "parts"]
