"""What can be known about the CUDA backend without a card.

Always: library forms against the rows' own kernels, with NumPy in CuPy's place; and a
scan of the sources for calls that would wait for the card. Where CuPy is installed and
`TENFERRO_CUDA_STATIC` is set (as `.ci/run` does; a missing package is a failure there):
names and signatures of everything used, every printed kernel compiled to machine code
by NVRTC, and view arithmetic on pointers that are never followed. `host_cuda.py` runs
the backend's code over host memory. What only a card shows: `scripts/gpu_check.sh`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU, infer_call
from tenferro_ad.backends._cuda_library import DTYPES as FORM_DTYPES
from tenferro_ad.backends._cuda_library import FORMS, has_form
from tenferro_ad.backends.printing import CudaPrinter
from tenferro_ad.errors import CompletionError, NotEnqueuedError
from tenferro_ad.ops import OPS, Elementwise, Write
from tenferro_ad.storage import descriptor_at
from tests.backends.cuda_programs import (
    DTYPES,
    claimed,
    machine_code,
    programs,
    units,
)
from tests.ops.samples import Row, Sample, at, load

SOURCES = Path(ta.__file__).parent / "backends"
FILES = ("_cuda.py", "_cuda_queue.py", "_cuda_library.py")
ROWS = load()
WANTED = ["cupy"] if os.environ.get("TENFERRO_CUDA_STATIC") else []
with_cupy = pytest.mark.parametrize("library", WANTED)


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
    assert set(FORM_DTYPES) <= set(FORMS)


# ---- nothing waits for the card by accident

WAITS = {
    *("get", "item", "tolist", "asnumpy", "nonzero", "unique", "synchronize"),
    *("copy_from_host", "copy_to_host", "copy_from", "copy_from_device"),
}
MAY_WAIT = {"read", "write_back"}  # host access: `map_host` says that it waits


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


def backend(name: str) -> Any:
    return importlib.import_module(f"tenferro_ad.backends.{name}")


def chains(file: str, root: str) -> Iterator[str]:
    """Attribute chains that begin at a name, such as `cp.cuda.Event`."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Attribute):
            text = ast.unparse(node)
            if re.fullmatch(rf"{root}(\.\w+)+", text):
                yield text.split(".", 1)[1]


def named(root: Any, path: str) -> Any:
    for part in path.split("."):
        root = getattr(root, part)
    return root


@with_cupy
def test_every_name_that_is_used_exists(library: str) -> None:
    cp = cupy()
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    used = {name for file in FILES for name in chains(file, "cp")}
    used |= set(chains("_cuda_library.py", "xp"))
    assert len(used) > 25
    for name in sorted(used):
        named(cp, name)
    for name in chains("_cuda_queue.py", "driver"):
        assert hasattr(driver, name)
    for kind, names in ATTRIBUTES.items():
        for name in names.split():
            assert hasattr(named(cp, kind), name), (kind, name)


ATTRIBUTES = {
    "cuda.Event": "record",
    "cuda.Stream": "synchronize __enter__",
    "cuda.Device": "__enter__",
    "cuda.MemoryPool": "malloc free_all_blocks",
    "cuda.MemoryPointer": "copy_from_host_async copy_to_host_async ptr __add__",
    "cuda.PinnedMemoryPointer": "ptr",
    "cuda.Module": "load get_function",
    "cuda.Function": "ptr",
}
"""What is used of objects, by the class that has it."""

METHODS = {
    "copy_from_host_async": "cuda.MemoryPointer",
    "copy_to_host_async": "cuda.MemoryPointer",
    "free_all_blocks": "cuda.MemoryPool",
    "get_function": "cuda.Module",
    "load": "cuda.Module",
}


def parameters(found: Any) -> inspect.Signature:
    """The signature of a Python function, or of a compiled one by its first line."""
    try:
        return inspect.signature(found)
    except (TypeError, ValueError):
        line = (found.__doc__ or "").strip().splitlines()[0]
        listed = re.findall(r"\(([^)]*)\)", line)[0]
        given = [part.split("=")[0].split()[-1] for part in listed.split(",") if part]
        optional = {p.split("=")[0].split()[-1] for p in listed.split(",") if "=" in p}
        empty, kind = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                inspect.Parameter(n, kind, default=None if n in optional else empty)
                for n in given
            ]
        )


def called() -> Iterator[tuple[ast.Call, str, bool]]:
    """Calls into CuPy: the node, the path of what is called, whether it is a method."""
    for file in FILES:
        for node in ast.walk(tree(file)):
            if not isinstance(node, ast.Call):
                continue
            name = ast.unparse(node.func)
            if re.fullmatch(r"(cp|xp)(\.\w+)+", name):
                yield node, name.split(".", 1)[1], False
            elif isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
                yield node, f"{METHODS[node.func.attr]}.{node.func.attr}", True


@with_cupy
def test_every_call_fits_its_signature(library: str) -> None:
    cp, seen = cupy(), []
    for node, path, is_method in called():
        found = named(cp, path)
        keywords = {k.arg: None for k in node.keywords if k.arg is not None}
        seen.append(path)
        if isinstance(found, cp.ufunc):
            assert set(keywords) <= {"out"}
            assert len(node.args) == found.nin
            continue
        if path in ("ndarray", "cuda.Device", "cuda.MemoryPool"):
            continue  # compiled classes: `test_objects_that_need_no_driver`
        given = [None] * (len(node.args) + is_method)
        parameters(found).bind(*given, **keywords)
    assert len(seen) > 40
    assert set(METHODS) <= {path.rpartition(".")[2] for path in seen}


@with_cupy
def test_objects_that_need_no_driver_are_made_as_the_backend_makes_them(
    library: str,
) -> None:
    cp = cupy()
    assert cp.cuda.MemoryPool().malloc is not None
    assert cp.cuda.Device(0).id == 0
    memory = cp.cuda.UnownedMemory(1 << 20, 64, object(), 0)
    pointer = cp.cuda.MemoryPointer(memory, 0)
    array = cp.ndarray((2, 3), np.float32, memptr=pointer + 8, strides=(12, 4))
    assert array.data.ptr == (1 << 20) + 8
    driver = importlib.import_module("cupy_backends.cuda.api.driver")
    arguments = re.findall(r"\(([^)]*)\)", driver.launchKernel.__doc__)[0].split(",")
    (launched,) = [
        node
        for node in ast.walk(tree("_cuda_queue.py"))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) == "driver.launchKernel"
    ]
    assert len(arguments) == len(launched.args) == 11


# ---- proof of completion


@with_cupy
@pytest.mark.parametrize(
    ("status", "ended"), [(0, True), (600, False), (700, None), (35, None)]
)
def test_only_a_status_of_success_is_proof(
    library: str, monkeypatch: pytest.MonkeyPatch, status: int, ended: bool | None
) -> None:
    """600 says not ready. Anything else poisons the context: the engine is lost."""
    cp, queue = cupy(), backend("_cuda_queue")
    monkeypatch.setattr(cp.cuda.runtime, "eventQuery", lambda pointer: status)
    event = queue.CudaEvent(SimpleNamespace(ptr=0), None)
    made = object.__new__(queue.CudaQueue)
    made.is_lost = False
    if ended is None:
        with pytest.raises(cp.cuda.runtime.CUDARuntimeError):
            made.await_event(event, time.monotonic() + 60)
    else:
        proof = made.await_event(event, time.monotonic() + 0.01)
        assert proof == ("done" if ended else "unproven")
    assert made.is_lost == (ended is None)
    event.give_back()
    assert event.has_ended


@with_cupy
def test_the_library_itself_does_not_raise_for_a_poisoned_event(library: str) -> None:
    """Why `Event.done` is not asked: it would say False for ever."""
    cp = cupy()
    if not cp.cuda.is_available():
        assert cp.cuda.runtime.eventQuery(0) not in (0, 600)
    used = {a for file in FILES for a in chains(file, "self._raw")}
    assert "done" not in used


@with_cupy
@pytest.mark.parametrize("status", [0, 600, 700])
def test_a_refusal_by_a_poisoned_context_costs_the_engine(
    library: str, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    cp, queue = cupy(), backend("_cuda_queue")
    monkeypatch.setattr(cp.cuda.runtime, "streamQuery", lambda pointer: status)
    made = object.__new__(queue.CudaQueue)
    made.name, made.is_lost, made._process = "cuda:0", False, os.getpid()
    made._lock = made.stream = contextlib.nullcontext()
    made.stream.ptr = 1
    made.memory = SimpleNamespace(raw=made._lock, pooled=contextlib.nullcontext)
    with pytest.raises(NotEnqueuedError):
        made.enqueue(None)  # no launch: it fails before anything is enqueued
    assert made.is_lost == (status == 700)


@with_cupy
def test_an_error_of_host_access_costs_the_engine(library: str) -> None:
    cp, queue = cupy(), backend("_cuda_queue")
    made = object.__new__(queue.CudaQueue)
    made.name, made.is_lost = "cuda:0", False
    with (
        pytest.raises(CompletionError, match="illegal memory access"),
        made.poisoning("map_host"),
    ):
        raise cp.cuda.runtime.CUDARuntimeError(700)
    assert made.is_lost
    with pytest.raises(NotEnqueuedError, match="lost"):
        made._process = os.getpid()
        made.enqueue(None)


# ---- machine code


@with_cupy
def test_every_printed_kernel_compiles_to_machine_code(library: str) -> None:
    cupy()
    every = programs()
    kinds = Counter(program.kind for program in every)
    assert kinds["row"] > 1500
    assert {"sum onto a value", "dtype", "numbers", "large", "copy", "chain"} <= set(
        kinds
    )
    printable = {name for name, op in OPS.items() if is_printed(op)}
    assert {program.row for program in every} - {"copy", "chain"} == printable
    for text, part in units(every):
        try:
            code = machine_code(text, "unit", "--device-debug")
        except AssertionError:
            for program in part:  # which one it is
                machine_code(program.source, program.row, "--device-debug")
            raise
        assert all(program.entry.encode() in code for program in part)


def is_printed(op: Any) -> bool:
    kernel = op.kernel
    return isinstance(kernel, Elementwise) or (
        isinstance(kernel, Write) and kernel.form is not None
    )


@with_cupy
def test_every_dtype_that_the_backend_claims_has_every_elementwise_row(
    library: str,
) -> None:
    """Rows take a dtype by their own rule; what they take, the printer prints."""
    assert frozenset(DTYPES) == backend("_cuda")._DTYPES
    printer, seen = CudaPrinter(), Counter[Any]()
    for call in claimed():
        seen[call.ins[0].dtype] += 1
        assert printer.supports(call), (call.op.name, call.ins[0].dtype)
    assert set(seen) == set(map(np.dtype, DTYPES))
    assert min(seen.values()) > 20


@with_cupy
def test_a_wrong_kernel_is_refused_with_the_compilers_words(library: str) -> None:
    (first, *_) = programs()
    with pytest.raises(AssertionError, match="undefined"):
        machine_code(first.source.replace("gid >=", "unknown >="), first.row)


SHARED = "exp tanh erf matmul softmax sum gather scatter_add conv cumulative_sum place"


@with_cupy
def test_the_backend_compiles_kernels_itself_and_keeps_the_smallest_numbers(
    library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the device does it; only the architecture is told instead of asked for."""
    cp, cuda = cupy(), backend("_cuda")
    compiler = cp.cuda.compiler
    answer = ("-arch=sm_90", "cubin")
    monkeypatch.setattr(
        compiler, "_get_arch_for_options_for_nvrtc", lambda arch=None: answer
    )
    rows = {p.row: p for p in programs() if p.row in SHARED.split()}
    assert set(rows) == set(SHARED.split())
    for program in rows.values():
        assert program.entry.encode() in cuda.machine_code(program.source)
    answer = ("-arch=compute_90", "ptx")
    assert b".ftz" not in cuda.machine_code(rows["exp"].source)


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
