"""What runs printed kernels directly: no device of the package, no engine, no queue.

`TENFERRO_BACKENDS` names the lanes: `opencl` (PoCL, or any other platform), `webgpu`,
and two that only this suite has: `oclgrind` interprets OpenCL kernels and reports
accesses out of bounds and races, `nvrtc` compiles CUDA kernels for a card that need not
be there. A lane that is named and cannot start is a failure.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import CPU, infer_call
from tenferro_ad.backends.printing import (
    SCALAR,
    CudaPrinter,
    Layout,
    Lowered,
    OpenCLPrinter,
    Printer,
    Strided,
    WgslPrinter,
    contiguous,
    joined,
    put_number,
)
from tenferro_ad.ops import Call, Op

Array = np.ndarray[Any, Any]


def close(seen: Array, wanted: Array, allowed: float) -> None:
    """Agreement within `allowed` of the largest number; infinities and NaN where they
    should be."""
    assert seen.shape == wanted.shape
    if wanted.dtype.kind not in "fc":
        assert np.array_equal(seen, wanted)
        return
    finite = np.isfinite(wanted)
    assert np.array_equal(seen[~finite], wanted[~finite], equal_nan=True)
    scale = max(1.0, float(np.max(np.abs(wanted[finite]), initial=0.0)))
    gap = float(np.max(np.abs(seen[finite] - wanted[finite]), initial=0.0))
    assert gap <= allowed * scale, gap


def buffers_of(
    make: Callable[[Any], Any],
    lowered: Lowered,
    ins: Sequence[Array | None],
    outs: Sequence[Array],
) -> dict[str, list[Any]]:
    """Memory of a device for what the launches of a call read and write."""
    return {
        "in": [make(x) for x in ins],
        "out": [make(x) for x in outs],
        "scratch": [make(np.zeros(n, np.uint8)) for n in lowered.scratch],
    }


class PrintingLane:
    """Starts launches on arrays.

    Attributes:
        printer: of the lane's language.
        computes: results come back; else kernels are only compiled.
        is_slow: an interpreter: give it little to do.
    """

    computes = True
    is_slow = False
    printer: Printer

    def run(
        self,
        lowered: Lowered,
        ins: Sequence[Array | None],
        outs: Sequence[Array],
        numbers: Mapping[int, Any],
    ) -> list[Array]:
        """The outputs after the launches; operands without a buffer are None."""
        raise NotImplementedError

    def build(self, found: Sequence[Lowered]) -> None:
        """Build kernels together, where that is quicker; `run` builds what it lacks."""

    def has(self, *dtypes: np.dtype[Any]) -> bool:
        return all(self.printer.has_dtype(d) for d in dtypes)

    def close(self, seen: Array, wanted: Any, allowed: float = 0) -> None:
        """Agreement within `allowed`, by default the precision of the dtype;
        infinities and NaN where they should be."""
        if not self.computes:
            return
        wanted = np.asarray(wanted).astype(seen.dtype)
        if not allowed:
            allowed = 1e-12 if seen.dtype.char in "dD" else 2e-6
        close(seen, wanted, allowed)


def address(x: Array) -> int:
    found: int = x.__array_interface__["data"][0]
    return found


def layout_of(x: Array) -> tuple[Array, Strided]:
    """The memory under a view, and where its elements lie."""
    base = x
    while isinstance(base.base, np.ndarray):
        base = base.base
    base = base if base.flags.c_contiguous else base.T
    assert base.flags.c_contiguous
    offset = (address(x) - address(base)) // x.itemsize
    return base, Strided(offset, tuple(s // x.itemsize for s in x.strides))


def call_of(op: Op, operands: Sequence[Array], params: tuple[Any, ...] = ()) -> Call:
    avals = tuple(aval_of(x.shape, x.dtype, CPU) for x in operands)
    return infer_call(op, avals, params, CPU)


def prepared(
    lane: PrintingLane,
    op: Op,
    operands: Sequence[Array],
    params: tuple[Any, ...] = (),
    *,
    onto: Array | None = None,
    as_numbers: bool = False,
) -> tuple[Lowered, list[Array | None], list[Array], dict[int, Any]]:
    """What `run` takes for an operation over the layouts of the operands.

    Args:
        onto: what the result is added to.
        as_numbers: 0-d operands travel as parameters.
    """
    call = call_of(op, operands, params)
    numbers = {k: x[()] for k, x in enumerate(operands) if as_numbers and x.ndim == 0}
    ins: list[Array | None] = []
    layouts: list[Layout] = []
    for k, x in enumerate(operands):
        base, place = layout_of(x)
        ins.append(None if k in numbers else base)
        layouts.append(SCALAR if k in numbers else place)
    lowered = lane.printer.lower(
        call,
        layouts,
        [Strided(0, contiguous(a.shape)) for a in call.outs],
        accumulate=onto is not None,
    )
    outs = [np.full(a.shape, 77, a.dtype) for a in call.outs]
    return lowered, ins, outs if onto is None else [onto.copy()], numbers


def compute(lane: PrintingLane, *case: Any, **how: Any) -> list[Array]:
    """An operation on a lane; see `prepared`."""
    return lane.run(*prepared(lane, *case, **how))


Case = tuple[Op, Sequence[Array], tuple[Any, ...]]


def compute_each(lane: PrintingLane, cases: Sequence[Case]) -> list[Array]:
    """The only output of each operation; their kernels are built together, because a
    compiler takes as long for one as for many."""
    made = [prepared(lane, *case) for case in cases]
    lane.build([lowered for lowered, *_ in made])
    return [seen for one in made for seen in lane.run(*one)]


# ---- OpenCL --------------------------------------------------------------------------


class OpenClPrintingLane(PrintingLane):
    """A platform whose name contains `wanted`, or one that is no interpreter."""

    def __init__(self, wanted: str = "") -> None:
        self.cl: Any = import_module("pyopencl")
        found = [
            p
            for p in self.cl.get_platforms()
            if ("oclgrind" in p.name.lower()) == bool(wanted)
        ]
        if not found:
            pytest.fail(f"no OpenCL platform {wanted or 'that computes'}", False)
        (device, *_) = found[0].get_devices()
        self.context = self.cl.Context([device])
        self.queue = self.cl.CommandQueue(self.context)
        wide = ["f64"] if "cl_khr_fp64" in device.extensions else []
        self.printer = OpenCLPrinter(wide)
        self._built: dict[str, Any] = {}

    def run(
        self,
        lowered: Lowered,
        ins: Sequence[Array | None],
        outs: Sequence[Array],
        numbers: Mapping[int, Any],
    ) -> list[Array]:
        buffers = buffers_of(self._buffer, lowered, ins, outs)
        for launch in lowered.launches:
            kernel = self._kernel(launch.source, launch.entry)
            for k, a in enumerate(launch.arguments):
                kernel.set_arg(k, buffers[a.kind][a.index])
            params = launch.params.copy()
            for slot in launch.slots:
                put_number(params, slot, numbers[slot.operand])
            kernel.set_arg(len(launch.arguments), params)
            groups = -(-launch.threads // launch.group)
            self.cl.enqueue_nd_range_kernel(
                self.queue, kernel, (groups * launch.group,), (launch.group,)
            )
        found = []
        for x, buffer in zip(outs, buffers["out"], strict=True):
            back = np.empty_like(x)
            if buffer is not None:
                self.cl.enqueue_copy(self.queue, back, buffer).wait()
            found.append(back)
        return found

    def _buffer(self, x: Array | None) -> Any:
        if x is None or not x.size:
            return None
        flags = self.cl.mem_flags
        mode = flags.READ_WRITE | flags.COPY_HOST_PTR
        return self.cl.Buffer(self.context, mode, hostbuf=np.ascontiguousarray(x))

    def build(self, found: Sequence[Lowered]) -> None:
        launches = [p for x in found for p in x.launches]
        entries = {p.source: p.entry for p in launches if p.source not in self._built}
        for text, members in joined(entries):
            program = self.cl.Program(self.context, text).build()
            for source in members:
                self._built[source] = self.cl.Kernel(program, entries[source])

    def _kernel(self, source: str, entry: str) -> Any:
        if source not in self._built:
            program = self.cl.Program(self.context, source).build()
            self._built[source] = self.cl.Kernel(program, entry)
        return self._built[source]


class OclgrindLane(OpenClPrintingLane):
    """Kernels are interpreted; whatever the interpreter reports is a failure."""

    is_slow = True

    def __init__(self, log: Path) -> None:
        os.environ["OCLGRIND_DATA_RACES"] = "1"
        os.environ["OCLGRIND_LOG"] = str(log)
        self.log = log
        super().__init__("oclgrind")

    def run(self, *args: Any) -> list[Array]:
        before = self._said()
        found = super().run(*args)
        report = self._said()[len(before) :]
        assert not report.strip(), report
        return found

    def _said(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


# ---- WebGPU --------------------------------------------------------------------------


FEATURES = {"shader-f16": "f16", "shader-f64": "f64", "shader-int64": "i64"}


class WebGpuPrintingLane(PrintingLane):
    """The Vulkan adapter; the OpenGL fallback is refused."""

    def __init__(self) -> None:
        self.wgpu: Any = import_module("wgpu")
        extras: Any = import_module("wgpu.backends.wgpu_native.extras")
        with suppress(RuntimeError):  # the package's backend made the instance already
            extras.set_instance_extras(backends=["Vulkan"])
        adapter = self.wgpu.gpu.request_adapter_sync(power_preference="low-power")
        assert adapter.info["backend_type"] == "Vulkan"
        there = [f for f in FEATURES if f in adapter.features]
        self.device = adapter.request_device_sync(required_features=there)
        self.printer = WgslPrinter([FEATURES[f] for f in there])
        self._built: dict[str, Any] = {}

    def run(
        self,
        lowered: Lowered,
        ins: Sequence[Array | None],
        outs: Sequence[Array],
        numbers: Mapping[int, Any],
    ) -> list[Array]:
        buffers = buffers_of(self._buffer, lowered, ins, outs)
        encoder = self.device.create_command_encoder()
        for launch in lowered.launches:
            params = launch.params.copy()
            for slot in launch.slots:
                put_number(params, slot, numbers[slot.operand])
            bound = [buffers[a.kind][a.index] for a in launch.arguments]
            self._record(encoder, launch, [*bound, self._buffer(params)])
        self.device.queue.submit([encoder.finish()])
        return [self._read(x, b) for x, b in zip(outs, buffers["out"], strict=True)]

    def _buffer(self, x: Array | None) -> Any:
        if x is None or not x.size:
            return None
        x = x.astype(np.uint32) if x.dtype == np.bool_ else np.ascontiguousarray(x)
        raw = x.reshape(-1).view(np.uint8)
        raw = np.concatenate([raw, np.zeros(-raw.size % 4, np.uint8)])
        use = self.wgpu.BufferUsage
        return self.device.create_buffer_with_data(
            data=raw, usage=use.STORAGE | use.COPY_SRC
        )

    def _record(self, encoder: Any, launch: Any, bound: Sequence[Any]) -> None:
        if launch.source not in self._built:
            module = self.device.create_shader_module(code=launch.source)
            self._built[launch.source] = self.device.create_compute_pipeline(
                layout="auto",
                compute={"module": module, "entry_point": launch.entry},
            )
        pipeline = self._built[launch.source]
        group = self.device.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": k, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for k, b in enumerate(bound)
            ],
        )
        groups = -(-launch.threads // launch.group)
        across = min(groups, 65535)
        work = encoder.begin_compute_pass()
        work.set_pipeline(pipeline)
        work.set_bind_group(0, group)
        work.dispatch_workgroups(across, -(-groups // across), 1)
        work.end()

    def _read(self, x: Array, buffer: Any) -> Array:
        if buffer is None:
            return x
        raw = np.frombuffer(self.device.queue.read_buffer(buffer), np.uint8)
        if x.dtype == np.bool_:
            return raw.view(np.uint32).astype(np.bool_).reshape(x.shape)
        return raw[: x.nbytes].view(x.dtype).reshape(x.shape)


# ---- CUDA without a card -------------------------------------------------------------


class NvrtcLane(PrintingLane):
    """Compiles each program to machine code (sm_90); nothing runs."""

    computes = False

    def __init__(self) -> None:
        places = import_module("nvidia.cu13").__path__
        (folder, *_) = [Path(p) / "lib" for p in places]
        (builtins,) = folder.glob("libnvrtc-builtins.so.*")
        (library,) = folder.glob("libnvrtc.so.*")
        ctypes.CDLL(str(builtins), ctypes.RTLD_GLOBAL)
        self.library = ctypes.CDLL(str(library))
        self.printer = CudaPrinter()
        self._built: set[str] = set()

    def run(
        self,
        lowered: Lowered,
        ins: Sequence[Array | None],
        outs: Sequence[Array],
        numbers: Mapping[int, Any],
    ) -> list[Array]:
        for launch in lowered.launches:
            if launch.source not in self._built:
                assert self._compiled(launch.source) > 0
                self._built.add(launch.source)
        return list(outs)

    def _compiled(self, source: str) -> int:
        """Bytes of machine code."""
        nvrtc, program = self.library, ctypes.c_void_p()
        made = nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None
        )
        assert made == 0
        options = (ctypes.c_char_p * 1)(b"--gpu-architecture=sm_90")
        failed = nvrtc.nvrtcCompileProgram(program, 1, options)
        size = ctypes.c_size_t()
        if failed:
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            text = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, text)
            pytest.fail(f"{text.value.decode()}\n{source}")
        nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
        return size.value


PRINTING_LANES: dict[str, Callable[[Path], PrintingLane]] = {
    "opencl": lambda folder: OpenClPrintingLane(),
    "oclgrind": lambda folder: OclgrindLane(folder / "oclgrind.log"),
    "webgpu": lambda folder: WebGpuPrintingLane(),
    "nvrtc": lambda folder: NvrtcLane(),
}
