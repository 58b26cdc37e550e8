"""CuPy as the CUDA backend uses it, over host memory: the backend runs without a card.

`install()` puts a `cupy` into the process. Streams are threads that run what was
enqueued, in order; events have CUDA's status numbers; the pool hands freed memory out
again at once, as CuPy's does, so memory that is given back too early gets overwritten
here too. Printed CUDA kernels are compiled by the machine's C++ compiler, and launched
as the driver launches them: pointers and one struct, copied at the call.

What this shows is the backend's own code, its order of calls, and the values of its
kernels. It shows nothing of CUDA's behaviour.
"""

from __future__ import annotations

import ctypes
import itertools
import queue
import re
import subprocess
import sys
import tempfile
import threading
import types
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

_handles = itertools.count(1)
_here = threading.local()
NOT_READY, ILLEGAL_ADDRESS = 600, 700


class CUDARuntimeError(RuntimeError):
    """As CuPy's: a status in place of an answer."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class OutOfMemoryError(MemoryError):
    """As CuPy's."""


# ---- streams and events --------------------------------------------------------------


class Stream:
    """A thread that runs what was enqueued, in order; a step that raises poisons it."""

    known: ClassVar[dict[int, Stream]] = {}

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = next(_handles)
        self.status = 0
        self.steps: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        Stream.known[self.ptr] = self
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            step = self.steps.get()
            try:
                step()
            except Exception:
                self.status = ILLEGAL_ADDRESS  # for good
            del step

    def synchronize(self) -> None:
        event = Event()
        event.record(self)
        event.ended.wait()
        if event.status:
            raise CUDARuntimeError(event.status)

    def __enter__(self) -> Stream:
        _here.streams = [*getattr(_here, "streams", []), self]
        return self

    def __exit__(self, *error: object) -> None:
        _here.streams.pop()


NULL = types.SimpleNamespace(ptr=0)  # the stream of threads that entered none


def current() -> Stream:
    """The stream of this thread, which must have entered one."""
    found: Stream = _here.streams[-1]
    return found


class Event:
    """Ends when its stream comes to it."""

    known: ClassVar[dict[int, Event]] = {}

    def __init__(self, disable_timing: bool = False) -> None:
        self.ptr = next(_handles)
        self.status = NOT_READY
        self.ended = threading.Event()
        Event.known[self.ptr] = self

    def record(self, stream: Stream) -> None:
        def end() -> None:
            self.status = stream.status
            self.ended.set()

        stream.steps.put(end)


def event_query(pointer: int) -> int:
    """The status of an event; a poisoned stream poisons those behind it."""
    return Event.known[pointer].status


# ---- memory --------------------------------------------------------------------------


class Chunk:
    """Memory of a pool; it goes back when the last pointer to it is gone."""

    def __init__(self, pool: MemoryPool, raw: Any, stream: int) -> None:
        self.pool, self.raw, self.stream = pool, raw, stream
        self.ptr = raw.ctypes.data

    def __del__(self) -> None:
        self.pool.free[self.stream, self.raw.size].append(self.raw)


class MemoryPointer:
    def __init__(self, mem: Any, offset: int) -> None:
        self.mem = mem
        self.ptr = mem.ptr + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def copy_from_host_async(self, mem: int, size: int, stream: Stream) -> None:
        stream.steps.put(lambda: ctypes.memmove(self.ptr, mem, size) and None)

    def copy_to_host_async(self, mem: int, size: int, stream: Stream) -> None:
        stream.steps.put(lambda: ctypes.memmove(mem, self.ptr, size) and None)


class MemoryPool:
    """Free chunks of a stream are handed out again at once, without any event."""

    def __init__(self) -> None:
        self.free: defaultdict[tuple[int, int], list[Any]] = defaultdict(list)

    def malloc(self, size: int) -> MemoryPointer:
        rounded = -(-size // 512) * 512
        free = self.free[current().ptr, rounded]
        raw = free.pop() if free else np.empty(rounded, np.uint8)
        for hook in getattr(_here, "hooks", []):
            hook.malloc_postprocess(size=size)
        return MemoryPointer(Chunk(self, raw, current().ptr), 0)

    def free_all_blocks(self) -> None:
        self.free.clear()


class MemoryHook:
    def __enter__(self) -> MemoryHook:
        _here.hooks = [*getattr(_here, "hooks", []), self]
        return self

    def __exit__(self, *error: object) -> None:
        _here.hooks.pop()


class Pinned(bytearray):
    @property
    def ptr(self) -> int:
        return ctypes.addressof((ctypes.c_char * len(self)).from_buffer(self))


# ---- kernels -------------------------------------------------------------------------

SHIM = Path(__file__).with_name("host_cuda.h")
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\) \{')
_HALF = re.compile(
    r"^static __device__ __forceinline__ \w+ (?:from|to)_half.*?\}\n",
    re.MULTILINE | re.DOTALL,
)
COMPILER = "g++ -x c++ -std=c++17 -O1 -w -shared -fPIC -fno-builtin -o"


class Function:
    """A kernel: its address, and how long each argument is (None for a pointer)."""

    known: ClassVar[dict[int, Function]] = {}

    def __init__(self, run: Any, sizes: list[int | None]) -> None:
        self.run, self.sizes = run, sizes
        self.ptr = next(_handles)
        Function.known[self.ptr] = self

    def start(self, blocks: int, group: int, values: list[Any], stream: Stream) -> None:
        """Enqueue; `values` are what the arguments point to, copied already."""
        table = (ctypes.c_void_p * max(1, len(values)))(
            *[ctypes.addressof(value) for value in values]
        )

        def launch() -> None:
            self.run(ctypes.c_long(blocks), ctypes.c_long(group), table)
            assert values is not None

        stream.steps.put(launch)


class Module:
    def __init__(self) -> None:
        self.functions: dict[str, Function] = {}

    def load(self, code: bytes) -> None:
        """Compile; the code is the text."""
        text = _HALF.sub("", code.decode())
        sizes: dict[str, list[int | None]] = {}
        runs = []
        for kernel in _KERNEL.finditer(text):
            listed = kernel[2].split(", ")
            sizes[kernel[1]] = [_size(text, a) for a in listed]
            given = [f"*({_type(a)} *)args[{k}]" for k, a in enumerate(listed)]
            runs.append(RUN.format(name=kernel[1], given=", ".join(given)))
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
            source.write_text(f'#include "{SHIM}"\n{text}\n{"".join(runs)}')
            command = [*COMPILER.split(), str(made), str(source), "-lm"]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{done.stderr}\n{text}"
            library = ctypes.CDLL(str(made))
        for name, many in sizes.items():
            self.functions[name] = Function(library[f"run_{name}"], many)

    def get_function(self, name: str) -> Function:
        return self.functions[name]


RUN = """
extern "C" void run_{name}(long blocks, long group, void **args) {{
    blockDim.x = group;
    for (long b = 0; b < blocks; ++b)
        for (long t = 0; t < group; ++t) {{
            blockIdx.x = b; threadIdx.x = t;
            {name}({given});
        }}
}}
"""


def _type(parameter: str) -> str:
    return re.sub(r"\s*\b\w+$", "", parameter.strip())


def _size(text: str, parameter: str) -> int | None:
    """Bytes of a parameter that is no pointer."""
    if "*" in parameter:
        return None
    if "Params" not in parameter:
        return 8
    (words,) = re.findall(r"struct \{ ix v\[(\d+)\]; \} Params", text)
    return int(words) * (8 if "typedef i64 ix" in text else 4)


def launch_kernel(
    f: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int,
    stream: int, table: int, extra: int,
) -> None:  # fmt: skip
    """As the driver's: what the table points to is read before this returns."""
    assert (gy, gz, by, bz, shared, extra) == (1, 1, 1, 1, 0, 0)
    function = Function.known[f]
    places = (ctypes.c_void_p * len(function.sizes)).from_address(table)
    values = [
        (ctypes.c_char * (size or 8)).from_buffer_copy(
            (ctypes.c_char * (size or 8)).from_address(place)
        )
        for place, size in zip(places, function.sizes, strict=True)
    ]
    function.start(gx, bx, values, Stream.known[stream])


class RawKernel:
    """Of the harness: pointers and 64-bit integers."""

    def __init__(self, code: str, name: str) -> None:
        module = Module()
        module.load(code.encode())
        self.function = module.get_function(name)

    def __call__(self, grid: Any, block: Any, args: Sequence[Any]) -> None:
        numbers = [np.int64(a).tobytes() for a in args]
        values = [(ctypes.c_char * 8).from_buffer_copy(n) for n in numbers]
        self.function.start(grid[0], block[0], values, current())


# ---- arrays --------------------------------------------------------------------------


def array_over(
    shape: tuple[int, ...], dtype: Any, memptr: Any, strides: tuple[int, ...]
) -> Any:
    """NumPy's array over memory of the pool; it keeps the memory."""
    spans = [s * (n - 1) for n, s in zip(shape, strides, strict=True) if n]
    low, high = sum(min(0, s) for s in spans), sum(max(0, s) for s in spans)
    size = high - low + np.dtype(dtype).itemsize
    raw = (ctypes.c_char * size).from_address(memptr.ptr + low)
    raw.keep = memptr
    return np.ndarray(shape, dtype, raw, -low, strides)


def in_order(fn: Any) -> Any:
    """A function of NumPy in the place of CuPy's: after everything before it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        current().synchronize()
        return fn(*args, **kwargs)

    return call


class Functions(types.ModuleType):
    """Functions of a namespace of NumPy, in stream order."""

    def __init__(self, name: str, source: Any) -> None:
        super().__init__(name)
        self.__spec__ = ModuleSpec(name, None)
        self._source = source

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return in_order(getattr(self._source, name))


@contextmanager
def using_allocator(allocator: Any) -> Iterator[None]:
    yield


class Device:
    def __init__(self, index: int) -> None:
        self.id = index

    def __enter__(self) -> Device:
        return self

    def __exit__(self, *error: object) -> None:
        pass


def install() -> None:
    """Make `import cupy` find this. A real one must not have been imported.

    Raises:
        RuntimeError: it was.
    """
    found = sys.modules.get("cupy")
    if isinstance(found, Functions):
        return
    if found is not None:
        raise RuntimeError("CuPy itself was imported")
    cupy = Functions("cupy", np)
    cupy.linalg = Functions("cupy.linalg", np.linalg)  # type: ignore[attr-defined]
    cupy.fft = Functions("cupy.fft", np.fft)  # type: ignore[attr-defined]
    cupy.ndarray = in_order(array_over)  # type: ignore[attr-defined]
    runtime = types.SimpleNamespace(
        CUDARuntimeError=CUDARuntimeError,
        driverGetVersion=lambda: 0,
        eventQuery=event_query,
        getDeviceCount=lambda: 1,
        runtimeGetVersion=lambda: 13000,
        getDeviceProperties=lambda index: {"name": b"a processor, emulating"},
        streamQuery=lambda pointer: Stream.known[pointer].status,
        memGetInfo=lambda: (1 << 31, 1 << 31),
    )
    compiler = types.SimpleNamespace(
        compile_using_nvrtc=lambda source, **options: (source.encode(), None)
    )
    cupy.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        Device=Device,
        Event=Event,
        MemoryHook=MemoryHook,
        MemoryPool=MemoryPool,
        Module=Module,
        Stream=Stream,
        alloc_pinned_memory=Pinned,
        compiler=compiler,
        get_current_stream=lambda: (getattr(_here, "streams", []) or [NULL])[-1],
        memory=types.SimpleNamespace(OutOfMemoryError=OutOfMemoryError),
        runtime=runtime,
        using_allocator=using_allocator,
    )
    cupy.RawKernel = RawKernel  # type: ignore[attr-defined]
    sys.modules["cupy"] = cupy
    driver = types.ModuleType("cupy_backends.cuda.api.driver")
    driver.launchKernel = launch_kernel  # type: ignore[attr-defined]
    for name in ("cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.api"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["cupy_backends.cuda.api"].driver = driver  # type: ignore[attr-defined]
    sys.modules[driver.__name__] = driver
