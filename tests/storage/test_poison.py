"""The poison lane sees what it is there to see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends.fake import FakeProvider
from tests import poison


@pytest.fixture
def clean() -> Iterator[None]:
    assert list(poison.found()) == []
    yield
    assert list(poison.found()) == []


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("shape", [(3,), (2, 5), (1000,)])
def test_released_memory_reads_as_signalling_nonsense(shape: tuple[int, ...]) -> None:
    array = poison.guarded(shape, np.float64)
    assert np.isnan(array).all()  # unwritten memory does not look like zeros
    array[...] = 1.0
    late = array[..., 1:]
    poison.freed(array)
    assert np.isnan(late).all()
    poison.freed(array)  # a second look finds nothing to do


@pytest.mark.parametrize(("at", "side"), [(-1, "before"), (24, "after")])
def test_a_write_outside_the_span_is_found(at: int, side: str) -> None:
    array = poison.guarded((3,), np.float64)
    block: Any = poison._blocks[poison._start(array)]
    block[poison.PAD + at] ^= 0xFF
    poison.freed(array)
    (what,) = poison.found()
    assert what == f"bytes {side} a root of 24 written"


@pytest.mark.usefixtures("clean")
def test_memory_that_was_not_made_here_is_left_alone() -> None:
    outside = np.ones(4)
    poison.freed(outside)
    poison.freed(None)
    assert outside.tolist() == [1.0] * 4


def test_a_device_that_fakes_shows_memory_freed_under_running_work() -> None:
    fake = FakeProvider()
    buffer = fake.allocate((2,), np.dtype(np.float64), 16)
    fake.map_host(buffer, "write")
    fake.give_back(buffer)
    fake.give_back(buffer)
    assert fake.violations == [
        "FakeBuffer(float64[2]) was freed while it was mapped",
        "FakeBuffer(float64[2], freed) was given back twice",
    ]
    with pytest.raises(TypeError, match="device memory"):
        np.asarray(buffer)


def test_the_lane_guards_every_small_and_large_root_of_the_cpu() -> None:
    small, large = ta.asarray([1.0, 2.0]), ta.asarray(np.ones(20_000))
    for value in (small + 1.0, large + 1.0):
        with value.value() as guard:
            is_guarded = poison._start(guard.numpy()) in poison._blocks
        assert is_guarded == poison.is_installed()
