"""What storage needs of a device library: memory in, memory back, access when asked.

A provider whose allocations are NumPy arrays needs no hooks beyond memory, because its
bytes are host bytes and host work addresses them as they are. Others offer
`map_host`/`unmap_host` and the device hooks; what a provider lacks is refused with a
typed error and never worked around. Whatever a provider lends to one access (a mapping,
a reservation, a raw binding) is given back once, by its last holder. Nothing that a
provider lends grants a right to bytes (contract G5).
"""

from __future__ import annotations

from typing import Any, Final, Literal, Protocol, final

import numpy as np

from .._ownership import Shared
from ..errors import UnsupportedError

Buffer = Any
"""A provider's allocation: a NumPy array on host providers, opaque elsewhere."""

HostArray = np.ndarray[Any, np.dtype[Any]]
AccessMode = Literal["read", "write"]


class Provider(Protocol):
    """Memory of one allocation domain."""

    @property
    def name(self) -> str:
        """Name of the domain, used in texts and diagnostics."""
        ...

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], nbytes: int
    ) -> Buffer:
        """Return a fresh allocation; raise `AllocationLimitError` before anything."""
        ...

    def give_back(self, buffer: Buffer) -> None:
        """Take an allocation back, once, when nothing can reach it any more."""
        ...


class MappingProvider(Provider, Protocol):
    """A provider whose bytes need work before they are host bytes."""

    def map_host(self, buffer: Buffer, mode: AccessMode) -> HostArray:
        """Wait and map, once; the array covers every byte of `buffer`."""
        ...

    def unmap_host(self, buffer: Buffer, mapped: HostArray, mode: AccessMode) -> None:
        """Undo `map_host`, once."""
        ...


class DeviceProvider(Provider, Protocol):
    """A provider that binds allocations to device work."""

    def prepare_device(self, buffer: Buffer, mode: AccessMode) -> object:
        """Return the provider's opaque state for one access, once for each access."""
        ...

    def bind(self, state: object) -> object:
        """Turn one prepared state into what a launch takes, once for each access."""
        ...

    def release_binding(self, lent: object) -> None:
        """Take back, once, what `prepare_device` or `bind` returned."""
        ...


class AccountLike(Protocol):
    """Who counted an allocation and hears of its release."""

    def release(self, nbytes: int) -> None:
        """Charge the release of `nbytes`."""
        ...


@final
class HostMapping:
    """One host mapping; the last holder of its `Shared` unmaps it."""

    __slots__ = ("_buffer", "_mode", "_provider", "array")

    def __init__(
        self, provider: MappingProvider, buffer: Buffer, mode: AccessMode
    ) -> None:
        self._provider = provider
        self._buffer = buffer
        self._mode: Final = mode
        self.array = provider.map_host(buffer, mode)

    def _release(self) -> None:
        self._provider.unmap_host(self._buffer, self.array, self._mode)


@final
class Lease:
    """What a provider lent to one access; the last `Shared` of it returns it."""

    __slots__ = ("_provider", "lent")

    def __init__(self, provider: Any, lent: object) -> None:
        self._provider = provider
        self.lent = lent

    def _release(self) -> None:
        lent, self.lent = self.lent, None
        hook = getattr(self._provider, "release_binding", None)
        if hook is not None:
            hook(lent)


@final
class ProviderContext:
    """The provider as roots keep it alive: one `Shared` of it in each root."""

    __slots__ = ("_provider", "maps_host", "takes_views")

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        # Facts of the provider, asked once: whether host access maps and unmaps, and
        # whether its `write` copies between views of its memory, without the host.
        self.maps_host = hasattr(provider, "map_host")
        self.takes_views = getattr(provider, "takes_views", False)

    @property
    def provider(self) -> Any:
        """The provider itself."""
        return self._provider

    @property
    def name(self) -> str:
        """Name of the allocation domain."""
        return str(getattr(self._provider, "name", type(self._provider).__name__))

    def prepare_device(self, buffer: Buffer, mode: AccessMode) -> Shared[Lease]:
        """Ask the provider for its state of one device access; host bytes need none.

        Raises:
            UnsupportedError: The provider binds no device work.
        """
        hook = getattr(self._provider, "prepare_device", None)
        if hook is None and not isinstance(buffer, np.ndarray):
            raise UnsupportedError(
                op="prepare_device",
                backend=self.name,
                fix="use the host access of this provider",
            )
        state = None if hook is None else hook(buffer, mode)
        return Shared._new(Lease(self._provider, state))

    def bind(self, buffer: Buffer, state: Shared[Lease]) -> Shared[Lease]:
        """Ask the provider for the binding of one prepared access.

        Where the provider has no hook, a launch takes the allocation as it is.
        """
        hook = getattr(self._provider, "bind", None)
        binding = buffer if hook is None else hook(state.value.lent)
        return Shared._new(Lease(self._provider, binding))

    def _release(self) -> None:
        """The context itself owns nothing; providers outlive the process's roots."""
