"""The WebGPU backend: Vulkan, Metal and Direct3D 12 through wgpu.

The OpenGL fallback is refused: it runs a submission to its end inside the call, and so
is no asynchronous lane. Buffers are never destroyed by hand and empty values are never
bound, because the library ends the process over either; records drop references after
proof.

Kernels compute in 32-bit types everywhere and in 16- and 64-bit types where the device
has them. Booleans take a word each in device memory and a byte on the host, so host
access converts them. Reading is a copy into mappable memory, made by the device: a wait
and a mapping, and never a copy in a ledger.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, final

import numpy as np

from ._engine import DEADLINE
from ._printed_device import DeviceBuffer, PrintedDevice, checked_index
from ._registry import DeviceInfo, LaneUnavailableError
from .printing import WgslPrinter

os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())  # the library asks it

import wgpu
from wgpu.backends.wgpu_native.extras import set_instance_extras

from ._webgpu_queue import Upload, WebGpuQueue

_BACKENDS: Final = ("Vulkan", "Metal", "D3D12")
_FEATURES: Final = {"f16": "shader-f16", "f64": "shader-f64", "i64": "shader-int64"}
_NEEDS: Final = {"e": "f16", "d": "f64", "D": "f64", "l": "i64", "L": "i64"}
_DTYPES: Final = frozenset("?iIfF")
_CONSTANTS: Final = 4096  # parameter buffers that are kept


@final
class WebGpuDevice(PrintedDevice):
    """Memory and the queue of one adapter, and the pipelines made for it.

    Args:
        adapter: the library's adapter.
        name: discovery name.
        limit: most live bytes; None sets none of our own.
        deadline: seconds without proof after which completion counts as unproven.
    """

    shares_buffers = False

    def __init__(
        self,
        adapter: Any,
        name: str,
        *,
        limit: int | None = None,
        deadline: float = DEADLINE,
    ) -> None:
        self.features = {k for k, f in _FEATURES.items() if f in adapter.features}
        limits = adapter.limits
        super().__init__(
            name,
            WgslPrinter(sorted(self.features)),
            limit=limit,
            largest=int(limits["max-storage-buffer-binding-size"]),
            deadline=deadline,
        )
        self.raw: Any = adapter.request_device_sync(
            required_features=[_FEATURES[k] for k in sorted(self.features)],
            required_limits={
                name: limits[name]
                for name in (
                    "max-storage-buffer-binding-size",
                    "max-storage-buffers-per-shader-stage",
                    "max-buffer-size",
                )
            },
        )
        self._pipelines: dict[tuple[str, str], Any] = {}
        self._constants: dict[bytes, Any] = {}
        self._queue = WebGpuQueue(name, self)

    @property
    def endpoint(self) -> WebGpuQueue:
        """The one queue of the device."""
        return self._queue

    # -- memory ------------------------------------------------------------------------

    def supports_dtype(self, dtype: np.dtype[Any]) -> bool:
        """Whether kernels can compute with the type."""
        need = _NEEDS.get(dtype.char)
        return dtype.char in _DTYPES if need is None else need in self.features

    def stored_nbytes(self, dtype: np.dtype[Any], nbytes: int) -> int:
        """Booleans take a word each."""
        return 4 * nbytes if dtype == np.bool_ else nbytes

    def workspace(self, nbytes: int) -> Any:
        """Memory of whole words."""
        return self.raw.create_buffer(size=-(-max(nbytes, 1) // 4) * 4, usage=_STORAGE)

    def read(self, buffer: DeviceBuffer, mode: str) -> np.ndarray[Any, Any]:
        """The bytes of the buffer, converted."""
        found: list[np.ndarray[Any, Any]] = []
        raw = buffer.raw

        def read() -> None:
            found.append(np.frombuffer(self.raw.queue.read_buffer(raw), np.uint8))

        self._queue.run(read, self.deadline)
        if buffer.dtype == np.bool_:
            return found[0].view(np.uint32).astype(np.uint8)
        return found[0][: buffer.nbytes].copy()

    def write_back(
        self, buffer: DeviceBuffer, mapped: np.ndarray[Any, Any], mode: str
    ) -> None:
        """What was written goes back."""
        if mode == "write":
            dtype = buffer.dtype if buffer.dtype == np.bool_ else np.dtype(np.uint8)
            action = self.writing(buffer, stored(mapped.view(dtype)))
            if action is not None:
                self._queue.run(action, self.deadline)

    def writing(
        self, buffer: DeviceBuffer, staging: np.ndarray[Any, Any]
    ) -> Callable[[], None] | None:
        """The host work that writes stored bytes into a buffer."""
        raw = buffer.raw
        if raw is None:
            return None
        return lambda: self.raw.queue.write_buffer(raw, 0, staging)

    def staged(self, source: np.ndarray[Any, Any]) -> object:
        """The launch that writes host elements; it owns a copy of them."""
        return Upload(stored(source))

    # -- kernels -----------------------------------------------------------------------

    def pipeline(self, source: str, entry: str) -> Any:
        """A pipeline of a program text, made on first use."""
        key = (source, entry)
        found = self._pipelines.get(key)
        if found is None:
            self.counts["build"] += 1
            module = self.raw.create_shader_module(code=source)
            found = self._pipelines[key] = self.raw.create_compute_pipeline(
                layout="auto", compute={"module": module, "entry_point": entry}
            )
        return found

    def bind_group(self, pipeline: Any, buffers: Sequence[Any]) -> Any:
        """The buffers of one dispatch, in the order of its bindings."""
        return self.raw.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
                for i, b in enumerate(buffers)
            ],
        )

    def constants(self, params: np.ndarray[Any, Any]) -> Any:
        """A read-only buffer with these parameter words; equal words share one."""
        key = params.tobytes()
        found = self._constants.get(key)
        if found is None:
            if len(self._constants) >= _CONSTANTS:
                self._constants.clear()
            found = self._constants[key] = self.raw.create_buffer_with_data(
                data=key, usage=wgpu.BufferUsage.STORAGE
            )
        return found


_STORAGE: Final = (
    wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
)


def stored(source: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of host elements as the device stores them: whole words."""
    if source.dtype == np.bool_:
        return source.astype(np.uint32, order="C").reshape(-1)
    raw = np.array(source, order="C", copy=True).reshape(-1).view(np.uint8)
    missing = -raw.size % 4
    return np.pad(raw, (0, missing)) if missing else raw


# ---- discovery


def _cards() -> list[Any]:
    """Adapters whose submissions are asynchronous."""
    try:
        set_instance_extras(backends=["Vulkan", "Metal", "DX12"])
    except RuntimeError:
        pass  # the instance exists already
    try:
        found = wgpu.gpu.enumerate_adapters_sync()
    except Exception as error:
        raise LaneUnavailableError(
            f"the adapters cannot be listed ({error})", _INSTALL
        ) from error
    found = [a for a in found if a.info["backend_type"] in _BACKENDS]
    if not found:
        raise LaneUnavailableError(
            "no Vulkan, Metal or Direct3D 12 adapter was found (OpenGL is refused: it "
            "is synchronous)",
            _INSTALL,
        )
    return found


_INSTALL: Final = (
    "install the driver of your device, or Mesa's: `apt-get install "
    "mesa-vulkan-drivers libvulkan1`"
)


def discover() -> Iterator[DeviceInfo]:
    """What wgpu finds, in its own order."""
    for index, adapter in enumerate(_cards()):
        info = adapter.info
        name = f"webgpu:{index}"
        version = f"{info['description'] or info['vendor']}, {info['backend_type']}"
        yield DeviceInfo(name, "webgpu", info["device"], version, name)


def open_device(index: int) -> WebGpuDevice:
    """The device of a discovery number."""
    found = _cards()
    checked_index("webgpu", index, len(found))
    return WebGpuDevice(found[index], f"webgpu:{index}")
