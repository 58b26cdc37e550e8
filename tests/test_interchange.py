"""Memory that crosses the border: DLPack both ways, and the named unsafe imports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import unsafe
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU
from tenferro_ad.engine._interchange import dlpack_device, from_dlpack, to_dlpack
from tenferro_ad.errors import (
    DeviceMismatchError,
    DTypeError,
    ExtractFailedError,
    InvalidArgumentError,
    TracedConversionError,
)


class Foreign:
    """Another library's array: DLPack is all it offers."""

    def __init__(self, array: np.ndarray[Any, Any], device: tuple[int, int] = (1, 0)):
        self.array = array
        self.device = device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(max_version=options.get("max_version"))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device


class Exported:
    """Our tensor as a consumer sees it that asks for no copy."""

    def __init__(self, x: Any, copy: bool | None) -> None:
        self.x, self.copy = x, copy

    def __dlpack__(self, **options: Any) -> Any:
        return to_dlpack(self.x, **{**options, "copy": self.copy})

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack_device(self.x)


# ---- in


def test_import_through_dlpack_is_one_transfer(provider_calls: Any) -> None:
    outside = np.arange(6.0).reshape(2, 3)
    with ta.ledger() as led:
        x = from_dlpack(Foreign(outside))
    outside[0, 0] = 99.0
    assert x.tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]
    led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})
    assert provider_calls.total == 1


def test_a_read_only_or_strided_export_is_copied_in_order() -> None:
    outside = np.arange(12.0).reshape(3, 4)[:, ::2]
    outside.flags.writeable = False
    assert from_dlpack(Foreign(outside)).tolist() == outside.tolist()


def test_our_own_tensor_comes_back_without_an_event() -> None:
    x = ta.asarray([1.0, 2.0])
    with ta.ledger() as led:
        same = from_dlpack(x)
        copied = from_dlpack(x, copy=True)
    assert same.tolist() == copied.tolist() == [1.0, 2.0]
    led.expect(
        allocations={"ExplicitDuplicateDestination": 1},
        copies={"ExplicitDuplicate": 1},
    )


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: from_dlpack([1.0]), DTypeError),
        (lambda: from_dlpack(Foreign(np.ones(2), (2, 0))), DeviceMismatchError),
        (lambda: from_dlpack(Foreign(np.ones(2)), copy=False), InvalidArgumentError),
        (lambda: from_dlpack(Foreign(np.array(["a"]))), InvalidArgumentError),
        (lambda: unsafe.import_array([1.0]), DTypeError),
        (lambda: unsafe.import_array(np.array(["a"])), DTypeError),
        (lambda: unsafe.import_array(np.ones(2, ">f8")), DTypeError),
        (lambda: unsafe.import_array(np.ones(2, np.longdouble)), DTypeError),
        (lambda: unsafe.import_array(np.ones((2, 2)).T[1:]), InvalidArgumentError),
        (lambda: unsafe.import_array(np.broadcast_to(1.0, 1)), InvalidArgumentError),
    ],
)
@pytest.mark.no_leaks
def test_what_cannot_come_in_is_a_typed_error(make: Any, error: type) -> None:
    with ta.ledger() as led, pytest.raises(error):
        make()
    led.expect(allocations={}, copies={})


# ---- out


def test_export_copies_once_and_the_consumer_may_write() -> None:
    x = ta.asarray([1.0, 2.0])
    with ta.ledger() as led:
        theirs = np.from_dlpack(Exported(x, copy=None))
        theirs[0] = 5.0
        assert led.live == 1  # the copy lives as long as its consumer
        del theirs
    led.expect(
        allocations={"ExplicitDuplicateDestination": 1},
        copies={"ExplicitDuplicate": 1},
    )
    assert led.live == 0
    assert x.tolist() == [1.0, 2.0]


def test_zero_copy_export_is_read_only_and_borrows_until_it_is_dropped() -> None:
    x = ta.asarray([1.0, 2.0])
    with ta.ledger() as led:
        theirs = np.from_dlpack(Exported(x, copy=False))
    led.expect(allocations={}, copies={})
    assert not theirs.flags.writeable
    part = theirs[1:]
    del theirs
    with pytest.raises((ExtractFailedError, RuntimeError)) as refused:
        x.into_value()
    del refused
    assert part.tolist() == [2.0]
    del part
    tensor = x.into_value()
    assert tensor.numpy().tolist() == [1.0, 2.0]


def test_an_exported_value_outlives_its_tensor_and_is_not_reused() -> None:
    x = ta.asarray(np.full(20_000, 3.0))  # large enough for the pool
    theirs = np.from_dlpack(Exported(x, copy=False))
    copy = np.from_dlpack(Exported(x, copy=True))
    del x
    other = ta.asarray(np.zeros(20_000))
    assert theirs.min() == copy.min() == 3.0
    assert other.shape == (20_000,)


@pytest.mark.reference
def test_torch_reads_both_kinds_of_export() -> None:
    import torch

    x = ta.asarray([1.0, 2.0])
    for copy in (None, False):
        theirs = torch.from_dlpack(Exported(x, copy))
        assert theirs.tolist() == [1.0, 2.0]
        del theirs
    assert from_dlpack(torch.arange(3)).tolist() == [0, 1, 2]
    assert x.into_value().numpy().tolist() == [1.0, 2.0]


def test_an_old_consumer_gets_a_copy_or_a_refusal() -> None:
    x = ta.asarray([1.0])
    assert to_dlpack(x) is not None
    with pytest.raises(BufferError, match="read-only"):
        to_dlpack(x, copy=False)
    with pytest.raises(BufferError, match="host memory"):
        to_dlpack(x, dl_device=(2, 0))


def test_a_tracked_value_is_not_exported_as_a_silent_constant() -> None:
    w = ta.variable([1.0])
    with ta.Tape():
        y = w * w
        with pytest.raises(TracedConversionError):
            to_dlpack(y)


# ---- unsafe


@pytest.mark.ledger
@pytest.mark.no_leaks
def test_unsafe_import_is_no_event_and_shares_memory() -> None:
    outside = np.arange(4.0)
    live = BASE.live
    x = unsafe.import_array(outside)
    assert BASE.live == live
    outside[1] = 9.0
    assert x.tolist() == [0.0, 9.0, 2.0, 3.0]


def test_results_from_imported_memory_are_ordinary_roots() -> None:
    x = unsafe.import_array(np.arange(3.0))
    with ta.ledger() as led:
        y = x * x
    led.expect(allocations={"OperationOutput": 1}, copies={})
    assert y.tolist() == [0.0, 1.0, 4.0]


def test_imported_memory_moves_out_and_in_and_is_written_in_place() -> None:
    outside = np.zeros(3)
    tensor = unsafe.import_array(outside).into_value()
    tensor.fill(2.0)
    assert outside.tolist() == [2.0, 2.0, 2.0]
    x = ta.variable(tensor)
    assert x.tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("dtype", [np.uint8, np.float64])
def test_outside_memory_never_enters_the_pool(dtype: Any) -> None:
    # Exactly what a pool buffer looks like: flat bytes, whole pages.
    outside = np.zeros(1 << 17, np.uint8)
    before = CPU.pool_bytes
    x = unsafe.import_array(outside.view(dtype))
    view = x[:10] if hasattr(type(x), "__getitem__") else x.clone()
    del x, view
    tensor = unsafe.import_array(outside).into_value()
    del tensor
    assert CPU.pool_bytes == before
    fresh = [ta.asarray(np.ones(1 << 17, np.uint8)) for _ in range(3)]
    assert outside.sum() == 0
    assert len(fresh) == 3


def test_an_import_keeps_the_outside_object_alive() -> None:
    released = []

    class Owner(np.ndarray[Any, Any]):
        def __del__(self) -> None:
            if self.base is None:
                released.append(1)

    outside = Owner((3,), np.float64)
    outside[:] = 7.0
    x = unsafe.import_array(outside)
    del outside
    assert not released
    assert x.tolist() == [7.0, 7.0, 7.0]
    del x
    assert released


def test_unsafe_dlpack_import_shares_memory() -> None:
    outside = np.zeros(3)
    x = unsafe.from_dlpack(Foreign(outside))
    outside[0] = 1.0
    assert x.tolist() == [1.0, 0.0, 0.0]


def test_a_value_of_one_element_has_a_format() -> None:
    loss = ta.asarray(0.123456)
    assert f"{loss:.3f}" == "0.123"
    assert f"{ta.asarray([7]):>4d}" == "   7"
    assert f"{loss}" == str(loss)  # without one it is shown like every tensor
    with ta.Tape():
        tracked = ta.variable(2.0) * 2.0
        with pytest.raises(ta.errors.TracedConversionError, match="`format` refused"):
            f"{tracked:.1f}"
