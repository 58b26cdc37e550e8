"""What starts printed kernels: text, sizes, arguments, parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

Words = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class Strided:
    """Where the elements of an operand lie in its buffer, counted in elements.

    Attributes:
        output: the output whose buffer this is, for an operand of a language that binds
            a buffer once (see `Dialect.binds_once`); it has the same dtype.
    """

    offset: int
    strides: tuple[int, ...]
    output: int | None = None


class Scalar:
    """The layout of a 0-d operand that travels as a number, without a buffer."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "SCALAR"


SCALAR: Final = Scalar()
Layout = Strided | Scalar


@dataclass(frozen=True, slots=True)
class Argument:
    """One buffer of a kernel.

    Attributes:
        kind, index: which operand, output or scratch buffer of the lowered call.
        writes: the kernel writes it (an output or scratch may be read as well).
    """

    kind: Literal["in", "out", "scratch"]
    index: int
    writes: bool


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the number of operand `operand` goes among the parameters: its bytes in
    `dtype`, from word `word` on (`put_number`)."""

    operand: int
    word: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel with everything but its buffers.

    Attributes:
        source: the whole program text; equal texts are one program to build.
        entry: name of the kernel in it.
        threads: invocations that have work, at least 1; surplus ones return.
        group: invocations in a work group; launch `-(-threads // group)` groups.
        arguments: the buffers in the order of the kernel's parameters.
        params: 32-bit words (64-bit where an array has 2**31 elements or more), what
            follows the buffers: one struct by value (OpenCL, CUDA), one read-only
            storage buffer (WGSL).
        slots: words to fill with numbers at each launch, on a copy of `params`.
    """

    source: str
    entry: str
    threads: int
    group: int
    arguments: tuple[Argument, ...]
    params: Words
    slots: tuple[Slot, ...] = ()


@dataclass(frozen=True, slots=True)
class Lowered:
    """What computes one call: launches in order, each seeing what earlier ones wrote.

    Attributes:
        scratch: bytes of each scratch buffer; contents need not survive the call.
    """

    launches: tuple[Launch, ...]
    scratch: tuple[int, ...] = ()


def put_number(params: Words, slot: Slot, value: Any) -> None:
    """Write the bytes of a number into its words."""
    raw = np.asarray(value, slot.dtype).tobytes()
    at = slot.word * params.itemsize
    params.data.cast("B")[at : at + len(raw)] = raw
