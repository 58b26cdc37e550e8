"""Where values live: finding devices, choosing one, moving values between them.

Values never move by themselves: an operation on values of two devices is refused, and
`x.to(device)` is the one call that moves them, a recorded `Transfer`.
"""

from __future__ import annotations

from contextvars import Token
from typing import Any, final, overload

from ..backends import DeviceInfo
from ..backends import devices as found_devices
from ..errors import InvalidArgumentError, type_name
from ..ops import TO_DEVICE
from ..runtime import DEFAULT_DEVICE, device_of
from ._dispatch import HANDLES
from ._eager import EagerTensor

__all__ = ["default_device", "devices"]


def devices(kind: str | None = None) -> tuple[DeviceInfo, ...]:
    """What this machine offers: name, kind, description, driver and memory of each.

    Args:
        kind: "cpu", "opencl", "webgpu" or "cuda"; None asks all of them.

    Raises:
        InvalidArgumentError: no such kind.
        ForkedProcessError: the process that this one was forked from used the kind.

    Cost: imports the libraries of the kinds asked for; opens no device. A kind whose
        library is missing offers none: `python -m tenferro_ad doctor` says why.
    """
    return found_devices(kind)


@final
class DefaultDevice:
    """A `with` block inside which outside data goes to one device."""

    __slots__ = ("_device", "_token")

    def __init__(self, device: Any) -> None:
        self._device = device
        self._token: Token[Any] | None = None

    def __enter__(self) -> Any:
        self._token = DEFAULT_DEVICE.set(self._device)
        return self._device

    def __exit__(self, *exc: object) -> None:
        token, self._token = self._token, None
        if token is not None:
            DEFAULT_DEVICE.reset(token)

    def __repr__(self) -> str:
        return f"<default device {self._device!r}>"


@overload
def default_device() -> Any: ...
@overload
def default_device(device: Any) -> DefaultDevice: ...
def default_device(device: Any = None) -> Any:
    """Where outside data goes when no `device=` is given.

    Without an argument the current one; with one a block:

        with ta.default_device(device):
            x = ta.asarray(data)

    Args:
        device: a device or its discovery name.

    Raises:
        InvalidArgumentError: no such device.

    Cost: a name is looked up, and its device opened, by this call; the block itself
        sets one context variable. Operations follow their operands, not the block.
    """
    if device is None:
        return device_of(None, "default_device")
    return DefaultDevice(device_of(device, "default_device"))


def moved(x: EagerTensor, device: Any) -> EagerTensor:
    """The value on another device, as a recorded operation."""
    out: EagerTensor = HANDLES[TO_DEVICE](x, device)
    return out


def to(self: EagerTensor, device: Any) -> EagerTensor:
    """The value on `device`, which is a device or its discovery name.

    Becomes `EagerTensor.to`. Differentiable: a cotangent goes back the same way.

    Raises:
        InvalidArgumentError: no such device.
        ExecutionError: the work that makes the value failed.

    Cost: on the value's own device another handle; no allocation, no copy. Else one
        `Transfer`, which waits for the value.
    """
    record = self._live("to")
    target = device_of(device, "to")
    if target is record.aval.device:
        return self.clone()
    return moved(self, target)


def to_device(self: EagerTensor, device: Any, /, *, stream: Any = None) -> EagerTensor:
    """`to` by its array API name; becomes `EagerTensor.to_device`.

    Args:
        device: a device or its discovery name.
        stream: None; a transfer is ordered by the device that makes it.

    Raises:
        InvalidArgumentError: no such device, or a stream.

    Cost: as `to`.
    """
    if stream is not None:
        raise InvalidArgumentError(
            operation="to_device",
            argument="stream",
            found=f"an object of type `{type_name(stream)}`",
            fix="leave it out: transfers are ordered by their device",
        )
    return to(self, device)
