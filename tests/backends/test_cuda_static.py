"""What can be known about the CUDA backend without a card.

Always: library forms against the rows' own kernels, with NumPy in CuPy's place; and a
scan of the sources for calls that would wait for the card. Where CuPy is installed and
`TENFERRO_CUDA_STATIC` is set (as `.ci/run` does; a missing package is a failure there):
names and signatures of everything used, every printed kernel compiled to machine code
by NVRTC, and view arithmetic on pointers that are never followed. What only a card can
show is `scripts/gpu_check.sh`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU, infer_call
from tenferro_ad.backends._cuda_library import DTYPES, FORMS, has_form
from tenferro_ad.errors import UnsupportedError
from tenferro_ad.ops import OPS
from tenferro_ad.storage import c_strides, descriptor_at
from tests.ops.samples import Row, Sample, at, load

SOURCES = Path(ta.__file__).parent / "backends"
FILES = ("_cuda.py", "_cuda_queue.py", "_cuda_library.py")
ROWS = load()
WANTED = ["cupy"] if os.environ.get("TENFERRO_CUDA_STATIC") else []
with_cupy = pytest.mark.parametrize("library", WANTED)
ARCHITECTURE = "sm_90"


def tree(file: str) -> ast.Module:
    return ast.parse((SOURCES / file).read_text(encoding="utf-8"))


def avals(row: Row, sample: Sample) -> tuple[Any, ...]:
    return tuple(ta.asarray(x).aval for x in sample.operands)


def params(row: Row, sample: Sample) -> tuple[Any, ...]:
    names = row.op.params
    return tuple(
        CPU if n == "device" else v for n, v in zip(names, sample.params, strict=True)
    )


# ---- library forms


@pytest.mark.parametrize("name", list(FORMS))
def test_a_library_form_gives_what_the_row_gives(name: str) -> None:
    row, count = ROWS[name], 0
    for sample in row.samples:
        call = infer_call(row.op, avals(row, sample), params(row, sample), CPU)
        if sample.heavy or not has_form(call) or not call.out.size:
            continue
        with at(name, sample):
            outs = [np.empty(a.shape, a.dtype) for a in call.outs]
            FORMS[name](np, call, outs, list(sample.operands))
            expected: list[Any] = list(row.expected(sample))
            if name in ("svd", "qr", "eigh"):  # unique up to phases: multiply back
                outs, expected = rebuilt(name, outs), rebuilt(name, expected)
            single = any(x.dtype.char in "fF" for x in (*sample.operands, *outs))
            for seen, wanted in zip(outs, expected, strict=True):
                if wanted.dtype.kind not in "fc":
                    assert np.array_equal(seen, wanted)
                    continue
                assert np.array_equal(np.isnan(seen), np.isnan(wanted))
                seen, wanted = np.nan_to_num(seen), np.nan_to_num(wanted)
                scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
                gap = np.max(np.abs(seen - wanted), initial=0.0)
                assert gap <= (2e-5 if single else 1e-11) * scale
            count += 1
    assert count


def rebuilt(name: str, parts: list[Any]) -> list[Any]:
    if name == "svd":
        u, s, vh = parts
        k = s.shape[-1]
        return [(u[..., :k] * s[..., None, :]) @ vh[..., :k, :], s]
    if name == "qr":
        return [parts[0] @ parts[1]]
    w, v = parts
    return [(v * w[..., None, :]) @ np.conj(np.swapaxes(v, -1, -2)), w]


def test_forms_stand_for_rows_of_the_table() -> None:
    assert set(FORMS) <= set(OPS)
    assert set(DTYPES) <= set(FORMS)


# ---- nothing waits for the card by accident

WAITS = {
    *("get", "item", "tolist", "asnumpy", "nonzero", "unique", "synchronize"),
    *("copy_from_host", "copy_to_host", "copy_from", "copy_from_device"),
}
MAY_WAIT = {"map_host", "unmap_host"}  # a synchronisation point, and says so


@pytest.mark.parametrize("file", FILES)
def test_no_call_waits_for_the_card_but_host_access(file: str) -> None:
    for function in ast.walk(tree(file)):
        if not isinstance(function, ast.FunctionDef) or function.name in MAY_WAIT:
            continue
        for node in ast.walk(function):
            if not isinstance(node, ast.Call):
                continue
            called = node.func
            if isinstance(called, ast.Attribute) and called.attr in WAITS:
                owner = ast.unparse(called.value)
                known = {"self._functions", "self._modules", "DTYPES"}  # dictionaries
                assert called.attr == "get", ast.unparse(node)
                assert owner in known, ast.unparse(node)


def test_there_is_one_stream_for_work_and_memory() -> None:
    """A second stream would need an event and a record for what the pool hands out."""
    made = [
        (file, ast.unparse(node))
        for file in FILES
        for node in ast.walk(tree(file))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Stream")
    ]
    assert [file for file, _ in made] == ["_cuda.py", "_cuda_queue.py"]
    queue = (SOURCES / "_cuda_queue.py").read_text(encoding="utf-8")
    assert "memory._host" not in queue  # work never goes to the one of host access


# ---- with CuPy


def cupy() -> Any:
    return importlib.import_module("cupy")


def chains(file: str, root: str) -> Iterator[str]:
    """Attribute chains that begin at a name, such as `cp.cuda.Event`."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if re.fullmatch(rf"{root}(\.\w+)+", text):
                yield text.split(".", 1)[1]


@with_cupy
def test_every_name_that_is_used_exists(library: str) -> None:
    cp = cupy()
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    used = {name for file in FILES for name in chains(file, "cp")}
    used |= set(chains("_cuda_library.py", "xp"))
    assert len(used) > 25
    for name in sorted(used):
        found: Any = cp
        for part in name.split("."):
            found = getattr(found, part)
    for name in chains("_cuda_queue.py", "driver"):
        assert hasattr(driver, name)
    for kind, names in {
        cp.cuda.Event: ("record", "done"),
        cp.cuda.Stream: ("synchronize", "use"),
        cp.cuda.MemoryPool: ("malloc", "free_all_blocks"),
        cp.cuda.MemoryPointer: ("copy_from_host_async", "copy_to_host_async", "ptr"),
        cp.cuda.Function: ("ptr",),
        cp.RawModule: ("get_function",),
        cp.RawKernel: ("kernel",),
        cp.cuda.MemoryHook: ("malloc_postprocess", "free_postprocess"),
    }.items():
        for name in names:
            assert hasattr(kind, name), (kind, name)


@with_cupy
def test_every_call_fits_its_signature(library: str) -> None:
    cp = cupy()
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    arguments = re.findall(r"\(([^)]*)\)", driver.launchKernel.__doc__)[0].split(",")
    assert len(arguments) == 11
    (launched,) = [
        node
        for node in ast.walk(tree("_cuda_queue.py"))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "driver.launchKernel"
    ]
    assert len(launched.args) == 11
    for node in ast.walk(tree("_cuda_library.py")):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if not name.startswith("xp."):
            continue
        found: Any = cp
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        if isinstance(found, cp.ufunc):
            assert not node.keywords
            continue
        keywords = {k.arg: None for k in node.keywords if k.arg is not None}
        inspect.signature(found).bind(*[None] * len(node.args), **keywords)
    assert cp.cuda.MemoryPool() is not None  # what needs no driver can be made
    assert cp.RawModule(code="").get_function is not None


def programs() -> dict[str, tuple[str, str]]:
    """Every text that the CUDA printer prints for the samples: entry and row of it."""
    from tenferro_ad.backends.printing import CudaPrinter, Strided

    printer, found = CudaPrinter(), {}
    for name, row in ROWS.items():
        for sample in row.samples[:2]:
            if sample.heavy:
                continue
            call = infer_call(row.op, avals(row, sample), params(row, sample), CPU)
            if not printer.supports(call):
                continue
            ins, outs = (
                [
                    Strided(
                        0,
                        tuple(
                            s // a.dtype.itemsize
                            for s in c_strides(a.shape, a.dtype.itemsize)
                        ),
                    )
                    for a in some
                ]
                for some in (call.ins, call.outs)
            )
            try:
                lowered = printer.lower(call, ins, outs)
            except (KeyError, UnsupportedError):
                continue
            for launch in lowered.launches:
                found[launch.source] = (launch.entry, name)
    return found


@with_cupy
def test_every_printed_kernel_compiles_to_machine_code(library: str) -> None:
    cupy()
    nvrtc = importlib.import_module("cupy_backends.cuda.libs.nvrtc")
    texts = programs()
    assert len(texts) > 200
    assert len({row for _, row in texts.values()}) > 150
    for source, (entry, row) in texts.items():
        program = nvrtc.createProgram(source, f"{row}.cu", (), ())
        try:
            nvrtc.compileProgram(program, (f"--gpu-architecture={ARCHITECTURE}",))
        except Exception as error:
            log = nvrtc.getProgramLog(program)
            raise AssertionError(f"{row} ({entry}):\n{log}\n{source}") from error
        assert len(nvrtc.getCUBIN(program)) > 500
        nvrtc.destroyProgram(program)


@with_cupy
@pytest.mark.parametrize(
    "key",
    [np.s_[1:, ::2], np.s_[::-1], np.s_[2, 1], np.s_[:, None, 3:0:-1]],
    ids=str,
)
def test_views_are_arithmetic_on_pointers(library: str, key: Any) -> None:
    cp = cupy()
    queue = importlib.import_module("tenferro_ad.backends._cuda_queue")
    base = 1 << 20
    memory = cp.cuda.UnownedMemory(base, 480, object(), 0)
    binding = SimpleNamespace(raw=cp.cuda.MemoryPointer(memory, 0))
    host = np.zeros((4, 5))[key]
    start = host.__array_interface__["data"][0]
    whole = host if host.base is None else host.base
    origin = whole.__array_interface__["data"][0]
    there = queue._array(
        binding,
        descriptor_at(start - origin, host.shape, host.dtype, host.strides, "cuda:0"),
    )
    assert there.shape == host.shape
    assert there.strides == host.strides
    assert there.data.ptr - base == start - origin


@with_cupy
def test_without_a_card_the_lane_says_what_is_missing(library: str) -> None:
    cp = cupy()
    if cp.cuda.is_available():
        assert ta.devices("cuda")
        return
    assert ta.devices("cuda") == ()
    with pytest.raises(ta.errors.InvalidArgumentError, match="driver"):
        ta.zeros(1, device="cuda:0")
