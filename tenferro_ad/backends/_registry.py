"""Discovery: which devices this machine offers, by name, and opening one of them.

A name such as `"opencl:0"` is the discovery name of an endpoint: the kind of lane and a
number that means something on this machine today. It is neither an allocation domain
nor an engine: engines are made on an endpoint, by whoever runs work, under an id of the
caller's choice. Importing the package imports no device library; asking for a kind
imports that kind's library and no other.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module, metadata, util
from typing import Any, Final, final

from ..errors import ForkedProcessError, InvalidArgumentError
from ._cpu import CPU


@final
@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One endpoint as discovery shows it.

    Attributes:
        name: discovery name, for `x.to(name)` and `device=name`.
        kind: "cpu", "opencl", "webgpu" or "cuda".
        description: what the library calls the device.
        version: of the driver behind it.
        memory: name of its allocation domain; endpoints may share one.
        is_synchronous: work ends before the call that starts it.
    """

    name: str
    kind: str
    description: str
    version: str
    memory: str
    is_synchronous: bool = False


@final
@dataclass(frozen=True, slots=True)
class LaneReport:
    """What is there of one kind, or what is missing and how to get it.

    Attributes:
        package: distribution that the lane needs, with its version if it is installed.
        devices: what it found.
        problem: why there are none, in one sentence; empty if there are some.
        fix: what to do about it.
    """

    kind: str
    package: str
    devices: tuple[DeviceInfo, ...]
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True, slots=True)
class _Lane:
    module: str  # of this folder; it has `discover()` and `open_device(index)`
    library: str  # import name
    distributions: tuple[str, ...]
    extra: str


_LANES: Final[dict[str, _Lane]] = {
    "opencl": _Lane("_opencl", "pyopencl", ("pyopencl",), "opencl"),
    "webgpu": _Lane("_webgpu", "wgpu", ("wgpu",), "webgpu"),
    "cuda": _Lane("_cuda", "cupy", ("cupy-cuda13x", "cupy-cuda12x"), "cuda13"),
}
KINDS: Final = ("cpu", *_LANES)

_CPU_INFO: Final = (
    DeviceInfo("cpu", "cpu", "NumPy", metadata.version("numpy"), "cpu", True),
    DeviceInfo(
        "cpu:stream", "cpu", "a thread of NumPy", metadata.version("numpy"), "cpu"
    ),
)
_opened: dict[str, Any] = {}
_process_of: dict[str, int] = {}  # who uses a library: no driver survives a fork
_lock = threading.Lock()


class LaneUnavailableError(Exception):
    """Raised by a lane's module: why it has no device, and what to do."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__(problem)
        self.problem, self.fix = problem, fix


def find_device(name: str, operation: str) -> Any:
    """The device of a discovery name; the same object for the same name.

    Raises:
        InvalidArgumentError: no such name, or the lane is not there; says what to do.
        ForkedProcessError: the process that this one was forked from used the kind.

    Cost: the first call for a kind imports its library and opens the device.
    """
    if name in (CPU.name, "cpu:stream"):  # two endpoints of one memory
        return CPU
    found = _opened.get(name)
    if found is not None:
        found.require_process(operation)
        return found
    kind, _, number = name.partition(":")
    lane = _LANES.get(kind)
    if lane is None or not re.fullmatch("0|[1-9][0-9]{0,8}", number):
        known = ", ".join(f"`{k}`" if k == "cpu" else f"`{k}:0`" for k in KINDS)
        raise _no_device(operation, f"`{name}`", f"use {known} (see `ta.devices()`)")
    with _lock:
        name = f"{kind}:{int(number)}"
        if name not in _opened:
            try:
                module = _module(lane, operation)
                _opened[name] = module.open_device(int(number))
            except LaneUnavailableError as error:
                found = f"`{name}`, but {error.problem}"
                raise _no_device(operation, found, error.fix) from error
        return _opened[name]


def opened_devices() -> list[Any]:
    """The devices that were opened by name so far."""
    return list(_opened.values())


def _no_device(operation: str, found: str, fix: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        operation=operation, argument="device", found=found, fix=fix
    )


def _module(lane: _Lane, operation: str) -> Any:
    if util.find_spec(lane.library) is None:
        raise LaneUnavailableError(
            f"the package `{lane.library}` is not installed",
            f"install it: `pip install 'tenferro-ad[{lane.extra}]'`",
        )
    try:
        import_module(lane.library)
    except (ImportError, OSError) as error:
        raise LaneUnavailableError(
            f"`{lane.library}` cannot be imported ({error})",
            f"repair it: `pip install --force-reinstall 'tenferro-ad[{lane.extra}]'`",
        ) from error
    if _process_of.setdefault(lane.library, os.getpid()) != os.getpid():
        raise ForkedProcessError(operation=operation)
    return import_module(f".{lane.module}", __package__)


def devices(kind: str | None = None) -> tuple[DeviceInfo, ...]:
    """What this machine offers, of one kind or of all."""
    return tuple(info for report in reports(kind) for info in report.devices)


def reports(kind: str | None = None) -> Iterator[LaneReport]:
    """One report for each kind asked for, the CPU first.

    Raises:
        InvalidArgumentError: no such kind.
        ForkedProcessError: the process that this one was forked from used the kind.
    """
    if kind is not None and kind not in KINDS:
        raise InvalidArgumentError(
            operation="devices",
            argument="kind",
            found=f"`{kind}`",
            fix=f"use one of {', '.join(KINDS)}",
        )
    if kind in (None, "cpu"):
        yield LaneReport("cpu", f"numpy {metadata.version('numpy')}", _CPU_INFO)
    for name, lane in _LANES.items():
        if kind in (None, name):
            yield _report(name, lane)


def _report(kind: str, lane: _Lane) -> LaneReport:
    package = _installed(lane)
    try:
        found = tuple(_module(lane, "devices").discover())
    except LaneUnavailableError as error:
        return LaneReport(kind, package, (), error.problem, error.fix)
    return LaneReport(kind, package, found)


def _installed(lane: _Lane) -> str:
    for name in lane.distributions:
        try:
            return f"{name} {metadata.version(name)}"
        except metadata.PackageNotFoundError:
            continue
    return lane.distributions[0]


__all__ = [
    "KINDS",
    "DeviceInfo",
    "LaneReport",
    "LaneUnavailableError",
    "devices",
    "find_device",
    "opened_devices",
    "reports",
]
