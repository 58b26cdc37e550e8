"""Everything that the CUDA printer prints, and machine code of it without a card.

`programs()` has the kernels of every row of the table on all its samples, of every
elementwise row in every dtype that the backend claims, sums onto values, copies between
layouts, split reductions, blocks of products, chains, and indices of 64 bits.

Thousands of programs one by one would take minutes, most of it for scalar functions
that they share. `units()` puts the kernels of many programs into one text with each
function once; kernels and functions are unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import CPU, infer_call
from tenferro_ad.backends.printing import (
    SCALAR,
    CudaPrinter,
    Layout,
    Lowered,
    Strided,
    contiguous,
)
from tenferro_ad.errors import TenferroError
from tenferro_ad.ops import OPS, Call, Elementwise, Equation
from tests.backends.printing_support import call_of, layout_of
from tests.ops.samples import load

DTYPES = "?bhilqBHILQfdFD"  # what `CudaDevice` holds
UNIT = 400  # kernels in one text
SUMS = 3  # samples of a row that are also added to a value


@dataclass(frozen=True)
class Program:
    """One program text: where it comes from, and its kernel's name."""

    row: str
    kind: str
    entry: str
    source: str


class _Collector:
    def __init__(self) -> None:
        self.printer = CudaPrinter()
        self.found: dict[str, Program] = {}

    def take(self, lowered: Lowered, row: str, kind: str) -> None:
        for launch in lowered.launches:
            made = Program(row, kind, launch.entry, launch.source)
            self.found.setdefault(launch.source, made)

    def apply(
        self, call: Call, kind: str, ins: Sequence[Layout], *, adds: bool = False
    ) -> None:
        """The kernels of a call that the printer supports; none may be refused."""
        outs = [Strided(0, contiguous(a.shape)) for a in call.outs]
        made = self.printer.lower(call, ins, outs, accumulate=adds)
        self.take(made, call.op.name, kind)


@cache
def programs() -> list[Program]:
    """Each text once, in the order in which they are found."""
    work = _Collector()
    _samples(work)
    _every_dtype(work)
    _large(work)
    _copies(work)
    _chains(work)
    return list(work.found.values())


def _samples(work: _Collector) -> None:
    for row in load().values():
        for number, sample in enumerate(row.samples):
            call = call_of(row.op, sample.operands, sample.params)
            if not work.printer.supports(call):
                continue
            places = [layout_of(x)[1] for x in sample.operands]
            work.apply(call, "row", places)
            if len(call.outs) == 1 and not call.op.variadic and number < SUMS:
                work.apply(call, "sum onto a value", places, adds=True)
            numbers: list[Layout] = [
                SCALAR if x.ndim == 0 else place
                for x, place in zip(sample.operands, places, strict=True)
            ]
            if SCALAR in numbers and isinstance(row.op.kernel, Elementwise):
                work.apply(call, "numbers", numbers)


def claimed() -> Iterator[Call]:
    """Every elementwise row on operands of one dtype, for each dtype that it takes."""
    for op in OPS.values():
        if not isinstance(op.kernel, Elementwise):
            continue
        for char in DTYPES:
            try:
                yield call_of(op, [np.zeros(3, char)] * len(op.args))
            except TenferroError:
                continue  # the row refuses the dtype on every device


def _every_dtype(work: _Collector) -> None:
    for call in claimed():
        if work.printer.supports(call):
            work.apply(call, "dtype", [Strided(0, (1,))] * len(call.ins))


def _large(work: _Collector) -> None:
    """Splits, blocks and wide indices: they depend on sizes."""
    wide = 2**31
    for name, shapes, params in (
        ("sum", [(3001, 300)], ((0,), False)),
        ("mean", [(3001, 300)], ((0, 1), True)),
        ("std", [(3001, 300)], ((0, 1), 1.0, False)),
        ("argmax", [(3001, 300)], (None, False)),
        ("logsumexp", [(3001, 300)], ((0,), False)),
        ("softmax", [(3, 30_000)], ((1,),)),
        ("log_softmax", [(3, 30_000)], ((1,),)),
        ("matmul", [(130, 257), (257, 70)], ()),
        ("matmul_nt", [(130, 257), (70, 257)], ()),
        ("matmul_tn", [(257, 130), (257, 70)], ()),
        ("add", [(3, wide), (3, 1)], ()),
        ("sum", [(3, wide)], ((1,), False)),
    ):
        for char in "fdFD":
            avals = [aval_of(shape, np.dtype(char), CPU) for shape in shapes]
            try:
                call = infer_call(OPS[name], tuple(avals), params, CPU)
            except TenferroError:
                assert char in "FD"  # no order among complex numbers
                continue
            if work.printer.supports(call):
                places = [Strided(0, contiguous(a.shape)) for a in avals]
                work.apply(call, "large", places)


def _copies(work: _Collector) -> None:
    for char in DTYPES:
        for shape, source, target in (
            ((6,), (1,), (1,)),
            ((4, 5), (1, 4), (5, 1)),
            ((4, 5), (-5, 2), (1, 9)),
        ):
            aval = aval_of(shape, np.dtype(char), CPU)
            made = work.printer.lower_copy(
                aval, Strided(20, source), Strided(0, target)
            )
            work.take(made, "copy", "copy")


def _chains(work: _Collector) -> None:
    """Chains as compiled programs print them."""
    for char in "fdFD":
        shape, dtype = (5, 7), np.dtype(char)
        avals = [aval_of(s, dtype, CPU) for s in (shape, (7,))]
        steps: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = [
            ("tanh", (0,), ()),
            ("broadcast_to", (1,), (shape,)),
            ("mul", (2, 3), ()),
            ("exp", (4,), ()),
            ("add", (5, 0), ()),
        ]
        equations = []
        for name, ins, params in steps:
            call = infer_call(OPS[name], tuple(avals[v] for v in ins), params, CPU)
            equations.append(Equation(call, ins, (len(avals),)))
            avals.append(call.out)
        flat = Strided(0, contiguous(shape))
        made = work.printer.lower_chain(
            equations, (0, 1), (6,), (flat, Strided(0, (1,))), (flat,)
        )
        work.take(made, "chain", "chain")


# ---- machine code --------------------------------------------------------------------

_INDEX = re.compile(r"^typedef (\w+) ix;\n", re.MULTILINE)
_PARAMS = re.compile(r"typedef struct \{ ix v\[(\d+)\]; \} Params;\n")
_INLINE = "static __device__ __forceinline__"
_FUNCTION = re.compile(rf"^{_INLINE} \w+ (\w+)\(.*?^}}\n", re.MULTILINE | re.DOTALL)


def units(some: Sequence[Program]) -> Iterator[tuple[str, list[Program]]]:
    """Texts with many kernels each, and whose kernels they are."""
    for start in range(0, len(some), UNIT):
        part = list(some[start : start + UNIT])
        yield _unit(part), part


def _unit(part: list[Program]) -> str:
    structs: dict[str, str] = {}
    functions: dict[str, str] = {}
    kernels = []
    for program in part:
        index = _INDEX.search(program.source)
        assert index is not None
        head, rest = program.source[: index.start()], program.source[index.end() :]
        library, kernel = rest.split('extern "C"')
        found = _PARAMS.match(library)
        if found is not None:
            name = f"Params_{index[1]}_{found[1]}"
            structs[name] = f"typedef struct {{ {index[1]} v[{found[1]}]; }} {name};\n"
            kernel = kernel.replace("const Params p", f"const {name} p")
        for function in _FUNCTION.finditer(library):
            known = functions.setdefault(function[1], function[0])
            assert known == function[0], function[1]  # one text for each name
        kernels.append('extern "C"' + re.sub(r"\bix\b", index[1], kernel))
    shared = "".join([*structs.values(), *functions.values()])
    return head + shared.replace("__forceinline__ ", "") + "".join(kernels)


def machine_code(source: str, name: str = "kernel", *options: str) -> bytes:
    """The code of a text for a card that need not be there.

    Raises:
        AssertionError: the compiler refuses it; has the compiler's log.
    """
    nvrtc: Any = import_module("cupy_backends.cuda.libs.nvrtc")
    program = nvrtc.createProgram(source, f"{name}.cu", (), ())
    try:
        nvrtc.compileProgram(program, ("--gpu-architecture=sm_90", *options))
        code: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        raise AssertionError(f"{name}:\n{nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)
    return code
