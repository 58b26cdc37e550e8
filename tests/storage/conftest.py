"""Host memory for property tests: roots that hear of their release."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenferro_ad.storage import OwnedStorage, Tensor
from tests import poison


class Host:
    """A provider and an account in one: it keeps what comes back."""

    name = "host"

    def __init__(self) -> None:
        self.given_back = 0
        self.released = 0

    def allocate(self, shape: Any, dtype: Any, nbytes: int) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype)

    def small(self, shape: Any, dtype: Any) -> np.ndarray[Any, Any]:
        return np.empty(shape, dtype)

    def write(self, target: np.ndarray[Any, Any], source: Any) -> None:
        np.copyto(target, source)

    def give_back(self, buffer: Any) -> None:
        self.given_back += 1

    def release(self, nbytes: int) -> None:
        self.released += nbytes

    def storage(self, nbytes: int) -> OwnedStorage:
        return OwnedStorage._from_allocation(self, poison.memory(nbytes), self)

    def tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return Tensor._seat(OwnedStorage._from_allocation(self, array, self), array)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture(scope="session")
def hosts() -> type[Host]:
    """The class, for property tests that need a fresh one in each example."""
    return Host
