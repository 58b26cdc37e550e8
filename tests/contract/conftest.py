"""Providers that count what the kernel asks of them, and owners over their memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tenferro_ad.storage import AllocationGroup, OwnedStorage, Tensor
from tests import poison
from tests.contract.device_support import FakeDevice, StreamDevice


class HostProvider:
    """Plain NumPy memory; every call is counted."""

    name = "host"

    def __init__(self) -> None:
        self.given_back: list[Any] = []
        self.calls = 0
        self.refused_dtypes: set[str] = set()

    def supports_dtype(self, dtype: np.dtype[Any]) -> bool:
        return dtype.name not in self.refused_dtypes

    def allocate(self, shape: Any, dtype: Any, nbytes: int) -> np.ndarray[Any, Any]:
        return self.small(shape, dtype)

    def small(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        self.calls += 1
        return np.empty(shape, dtype)

    def write(self, target: np.ndarray[Any, Any], source: Any) -> None:
        self.calls += 1
        np.copyto(target, source)

    def give_back(self, buffer: Any) -> None:
        self.calls += 1
        self.given_back.append(buffer)


class Opaque:
    """A buffer that is not host memory: its bytes appear only through a mapping."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.shape = (nbytes,)
        self.dtype = np.dtype(np.uint8)
        self.hidden = np.zeros(nbytes, np.uint8)


class MappedProvider(HostProvider):
    """A provider whose bytes must be mapped; it can be told to fail."""

    name = "mapped"

    def __init__(self) -> None:
        super().__init__()
        self.maps = 0
        self.unmaps = 0
        self.bindings = 0
        self.fail = False
        self.short = False

    def map_host(self, buffer: Opaque, mode: str) -> np.ndarray[Any, Any]:
        if self.fail:
            raise OSError("the mapping failed")
        self.maps += 1
        return buffer.hidden[:1] if self.short else buffer.hidden

    def unmap_host(self, buffer: Opaque, mapped: Any, mode: str) -> None:
        self.unmaps += 1

    def prepare_device(self, buffer: Opaque, mode: str) -> object:
        if self.fail:
            raise OSError("the binding failed")
        self.bindings += 1
        return object()


class Account:
    """Hears of released roots."""

    def __init__(self) -> None:
        self.released: list[int] = []

    def release(self, nbytes: int) -> None:
        self.released.append(nbytes)


class Kernel:
    """Owners, groups and counters for one test."""

    def __init__(self) -> None:
        self.host = HostProvider()
        self.mapped = MappedProvider()
        self.account = Account()

    @property
    def released(self) -> list[int]:
        return self.account.released

    def storage(self, nbytes: int) -> OwnedStorage:
        memory = poison.memory(nbytes)
        return OwnedStorage._from_allocation(self.host, memory, self.account)

    def mapped_storage(self, nbytes: int) -> OwnedStorage:
        return OwnedStorage._from_allocation(self.mapped, Opaque(nbytes), self.account)

    def owner(self, shape: tuple[int, ...] = (3, 4), dtype: Any = np.float64) -> Tensor:
        count = np.arange(int(np.prod(shape)))
        array = poison.like(count.astype(dtype).reshape(shape))
        storage = OwnedStorage._from_allocation(self.host, array, self.account)
        return Tensor._seat(storage, array)

    def group(self, array: Any, *parts: Any) -> tuple[AllocationGroup, tuple[Any, ...]]:
        storage = OwnedStorage._from_allocation(self.host, array, self.account)
        return AllocationGroup._from_arrays(storage, list(parts) or [array])


@pytest.fixture
def kernel() -> Kernel:
    return Kernel()


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    """A fake device: nothing in flight ends before the test says so."""
    made = FakeDevice()
    yield made
    made.close()


@pytest.fixture
def impatient() -> Iterator[FakeDevice]:
    """A fake device whose engine takes missing proof for no proof very soon."""
    made = FakeDevice(deadline=0.1)
    yield made
    made.close()


@pytest.fixture(params=[FakeDevice, StreamDevice], ids=["fake", "stream"])
def asynchronous(request: pytest.FixtureRequest) -> Iterator[FakeDevice]:
    """Each asynchronous device that needs no hardware, held until told."""
    made = request.param()
    yield made
    made.close()
