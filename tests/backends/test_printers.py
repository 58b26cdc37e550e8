"""Printed kernels as text in three languages: complete, typed, shared between sizes.

These tests need no device. `test_samples` runs what the tests of the lanes leave out of
the table; `test_printed_kernels.py` has what the table has not.
"""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import CPU, infer_call
from tenferro_ad.backends.printing import (
    CudaPrinter,
    OpenCLPrinter,
    Strided,
    WgslPrinter,
    contiguous,
    joined,
)
from tenferro_ad.errors import UnsupportedError
from tenferro_ad.ops import (
    OPS,
    Elementwise,
    Equation,
    Library,
    Op,
    Write,
    elementwise,
    var,
)
from tests.backends.printing_support import PrintingLane, call_of, compute, layout_of
from tests.ops.samples import Row, Sample, at, load

Array = np.ndarray[Any, Any]
ROWS = load()
PRINTERS = {
    "opencl": OpenCLPrinter(["f64"]),
    "cuda": CudaPrinter(),
    "webgpu": WgslPrinter(["f16", "f64", "i64"]),
}


def is_printed(op: Op) -> bool:
    kernel = op.kernel
    return isinstance(kernel, Elementwise) or (
        isinstance(kernel, Write) and kernel.form is not None
    )


PRINTED = [name for name, op in OPS.items() if is_printed(op)]
every_printer = pytest.mark.parametrize("language", list(PRINTERS))


# ---- text ----------------------------------------------------------------------------


def test_only_calls_of_libraries_have_no_device_form() -> None:
    """Transforms, and what LAPACK computes."""
    without = {
        name
        for name, op in OPS.items()
        if isinstance(op.kernel, Library)
        or (isinstance(op.kernel, Write) and op.kernel.form is None)
    }
    transforms = {"fftn", "ifftn", "rfftn", "irfftn"}
    solving = {"cholesky", "solve_triangular", "lu_factor", "lu_solve", "inv"}
    spectra = {"qr", "eigh", "svd", "eig", "expm", "pinv"}
    determinants = {"det", "slogdet", "cofactors", "cofactors_moved"}
    assert without == transforms | solving | spectra | determinants


@every_printer
@pytest.mark.parametrize("name", PRINTED)
def test_every_row_is_printed_in_every_language(name: str, language: str) -> None:
    printer, row = PRINTERS[language], ROWS[name]
    for sample in row.samples:
        with at(name, sample):
            call = call_of(row.op, sample.operands, sample.params)
            ins = [layout_of(x)[1] for x in sample.operands]
            outs = [Strided(0, contiguous(a.shape)) for a in call.outs]
            dtypes = [a.dtype for a in (*call.ins, *call.outs)]
            if not all(printer.has_dtype(d) for d in dtypes):
                assert not printer.supports(call)
                with pytest.raises(UnsupportedError, match="no dtype"):
                    printer.lower(call, ins, outs)
                continue
            lowered = printer.lower(call, ins, outs)
            assert bool(lowered.launches) == any(a.size for a in call.outs)
            for launch in lowered.launches:
                assert launch.threads > 0
                assert f" {launch.entry}(" in launch.source
                assert launch.source.count("{") == launch.source.count("}")


def test_loops_over_more_elements_than_32_bits_count_have_wide_indices() -> None:
    """Also where all elements lie at one place."""
    x = np.broadcast_to(np.float32(1), (2**16, 2**16))
    call = call_of(OPS["sum"], [x], ((0, 1), False))
    layouts = [layout_of(x)[1]], [Strided(0, ())]
    for language in ("opencl", "cuda"):
        lowered = PRINTERS[language].lower(call, *layouts)
        assert {launch.params.dtype for launch in lowered.launches} == {np.dtype("i8")}
    with pytest.raises(UnsupportedError, match="2\\*\\*31"):
        PRINTERS["webgpu"].lower(call, *layouts)


WGSL_LACKS = {"int8", "uint8", "int16", "uint16"}


@pytest.mark.parametrize("kind", ["int8", "int64", "float16", "float64", "complex128"])
def test_a_lane_refuses_what_its_device_has_not(kind: str) -> None:
    call = call_of(OPS["add"], [np.zeros(2, kind), np.zeros(2, kind)])
    flat = Strided(0, (1,))
    least, most = WgslPrinter(), PRINTERS["webgpu"]
    with pytest.raises(UnsupportedError, match=kind):
        least.lower(call, [flat, flat], [flat])
    assert most.supports(call) == (kind not in WGSL_LACKS)
    no_double = OpenCLPrinter()
    assert no_double.supports(call) == (kind not in ("float64", "complex128"))


def sources(language: str, name: str, *operands: Array, **params: Any) -> list[str]:
    op = OPS[name]
    call = call_of(op, operands, tuple(params[p] for p in op.params))
    lowered = PRINTERS[language].lower(
        call,
        [layout_of(x)[1] for x in operands],
        [Strided(0, contiguous(a.shape)) for a in call.outs],
    )
    return [launch.source for launch in lowered.launches]


@every_printer
def test_text_depends_on_structure_and_not_on_sizes(language: str) -> None:
    small, large = np.zeros((3, 4)), np.zeros((50, 60))
    for name, params in {
        "exp": {},
        "softmax": {"axes": (1,)},
        "cumulative_sum": {"axis": 0, "reverse": True},
        "place": {"shape": (100, 90), "key": ((1, 3, 2), (0, 4, 1)), "value": 7.0},
    }.items():
        mine = dict(params)
        first = sources(language, name, small, **mine)
        if name == "place":
            mine |= {"shape": (80, 70), "key": ((5, 50, 1), (2, 60, 1)), "value": 0.5}
        assert first == sources(language, name, large, **mine)
    # One contiguous loop whatever the rank; strides are parameters, whatever they are.
    assert sources(language, "exp", small) == sources(language, "exp", np.zeros(9))
    turned, gaps = np.zeros((9, 8)).T, np.zeros((9, 9))[::2, ::-3]
    assert sources(language, "exp", turned[:5]) == sources(language, "exp", gaps)


@every_printer
def test_equal_values_are_computed_once(language: str) -> None:
    x = var("x")
    twice = elementwise("twice", (x * x + 1.0) * (x * x + 1.0), ("x",))
    call = call_of(twice, [np.zeros(3)])
    lowered = PRINTERS[language].lower(call, [Strided(0, (1,))], [Strided(0, (1,))])
    (launch,) = lowered.launches
    assert launch.source.count("x0[") == 1
    assert launch.source.count(" + 1.0") == 1


@every_printer
def test_a_chain_reads_everything_before_it_stores_anything(language: str) -> None:
    """What it stores may lie where another operand of the same element was."""
    avals = [aval_of((3,), np.dtype(np.float32), CPU)] * 2
    equations = []
    for name, ins in (("exp", (0,)), ("sin", (2,)), ("add", (3, 1))):
        call = infer_call(OPS[name], tuple(avals[v] for v in ins), (), CPU)
        equations.append(Equation(call, ins, (len(avals),)))
        avals.append(call.out)
    flat = Strided(0, (1,))
    lowered = PRINTERS[language].lower_chain(
        equations, (0, 1), (2, 4), (flat, flat), (flat, flat)
    )
    (launch,) = lowered.launches
    body = launch.source.split(f" {launch.entry}(")[1]
    reads = [m.start() for m in re.finditer(r"\bx\d\[", body)]
    writes = [m.start() for m in re.finditer(r"\by\d\[", body)]
    assert len(reads) == len(writes) == 2
    assert max(reads) < min(writes)


def test_large_arrays_have_wide_indices() -> None:
    call = call_of(OPS["neg"], [np.zeros(3)])
    far = Strided(2**31, (1,))
    lowered = PRINTERS["opencl"].lower(call, [far], [Strided(0, (1,))])
    assert lowered.launches[0].params.dtype == np.int64
    with pytest.raises(UnsupportedError, match="2"):
        PRINTERS["webgpu"].lower(call, [far], [Strided(0, (1,))])


def test_joined_programs_hold_each_function_once() -> None:
    printer = OpenCLPrinter(["f64"])
    sources, entries = [], []
    for name, kind in itertools.product(("gammaln", "digamma", "exp"), "fd"):
        aval = aval_of((3, 4), np.dtype(kind), CPU)
        call = infer_call(OPS[name], (aval,), (), CPU)
        place = Strided(0, contiguous((3, 4)))
        (launch,) = printer.lower(call, [place], [place]).launches
        sources.append(launch.source)
        entries.append(launch.entry)
    programs = joined(sources)
    assert len(programs) == 2  # with and without double precision in the head
    assert sorted(s for _, members in programs for s in members) == sorted(sources)
    whole = "\n".join(text for text, _ in programs)
    for source, entry in zip(sources, entries, strict=True):
        assert whole.count(f"__kernel void {entry}(") == 1
        assert source[source.index("__kernel") :].strip() in whole
    for text, _ in programs:
        defined = re.findall(r"^static \w+ (\w+)\(", text, re.MULTILINE)
        assert len(defined) == len(set(defined)) > 3
        assert text.count("#define ix") == text.count("#undef ix") == 3


# ---- the table -----------------------------------------------------------------------


def chosen(lane: PrintingLane, row: Row) -> list[Sample]:
    """Samples that the tests of the lanes leave out: large ones, numbers."""
    if not lane.computes or lane.is_slow:
        return []
    return [
        s
        for s in row.samples
        if (s.heavy or any(x.ndim == 0 for x in s.operands))
        and lane.has(*[x.dtype for x in (*s.operands, *row.expected(s))])
    ]


@pytest.mark.parametrize("name", PRINTED)
def test_samples(printing_lane: PrintingLane, name: str) -> None:
    lane, row = printing_lane, ROWS[name]
    for sample in chosen(lane, row):
        with at(name, sample):
            seen = compute(
                lane, row.op, sample.operands, sample.params, as_numbers=True
            )
            single = any(x.dtype.char in "fF" for x in sample.operands)
            for out, wanted in zip(seen, row.expected(sample), strict=True):
                lane.close(out, wanted, 2e-6 if single else 0)
