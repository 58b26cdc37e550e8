"""Ownership primitives, and a walk over the package's owners and capabilities."""

from __future__ import annotations

import copy
import gc
import importlib
import pickle
import pkgutil
import threading
from typing import Any

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad._ownership import Borrow, MoveOnly, Shared
from tenferro_ad.errors import (
    BorrowConflictError,
    NotCloneableError,
    NotConstructibleError,
    NotUniqueError,
    UseAfterMoveError,
)
from tenferro_ad.storage import OwnedStorage, Tensor, TensorView, TensorViewMut


class Value:
    def __init__(self) -> None:
        self.released = 0

    def _release(self) -> None:
        self.released += 1


def move_only_classes() -> list[type]:
    for module in pkgutil.iter_modules(
        storage_package.__path__, "tenferro_ad.storage."
    ):
        importlib.import_module(module.name)
    return sorted(MoveOnly.__subclasses__(), key=lambda kind: kind.__name__)


def instances(host: Any) -> dict[type, MoveOnly]:
    """One live object of every class that the kernel's own calls return."""
    made: list[MoveOnly] = [host.storage(64).as_ref(), host.storage(64).as_mut()]
    made += [host.storage(64), host.storage(64)._claim, host.storage(8)._claim._root]
    make = lambda: host.tensor(np.zeros((4, 4)))
    made += [make(), make().as_view(), make().as_view_mut()]
    made += [make().as_view().checked_read(), make().as_view_mut().checked_write()]
    for key in (slice(None), (slice(None), slice(0, 2))):
        read = make().as_view()[key].prepare_host()
        write = make().as_view_mut()[key].prepare_host_mut()
        made += [read, write, read.guard, write.guard]
    host.prepare_device = lambda buffer, mode: object()
    made += [
        make().as_view().prepare_device(),
        make().as_view_mut().prepare_device_mut(),
    ]
    read, write = (
        make().as_view().prepare_device(),
        make().as_view_mut().prepare_device_mut(),
    )
    made += [storage_package.bind_read(read), storage_package.bind_write(write)]
    last = make().as_view().prepare_device()
    record = storage_package.RetirementRecord._open([storage_package.bind_read(last)])
    made += [record, *record.bindings]
    del host.prepare_device
    pair = (storage_package.Rank2,)
    made += [
        storage_package.TypedTensor.of(make(), np.float64, *pair),
        storage_package.TypedTensorView.of(make().as_view(), np.float64, *pair),
        storage_package.TypedTensorViewMut.of(make().as_view_mut(), np.float64, *pair),
    ]
    array = np.zeros(4)
    whole = OwnedStorage._from_allocation(host, array, host)
    made.append(storage_package.AllocationGroup._from_arrays(whole, [array])[0])
    return {type(thing): thing for thing in made}


def test_every_owner_and_capability_refuses_copies_construction_and_subclasses(
    host: Any,
) -> None:
    live = instances(host)
    package = {k for k in move_only_classes() if k.__module__.startswith("tenferro_ad")}
    kernel = {
        k
        for k in package
        if "storage" in k.__module__ or k.__module__.endswith("_ownership")
    }
    assert kernel == set(live)
    for kind, thing in live.items():
        assert "__dict__" not in dir(thing), kind
        assert getattr(kind, "__final__", False), kind
        for clone in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(NotCloneableError):
                clone(thing)
        with pytest.raises(NotConstructibleError):
            kind()
        with pytest.raises(TypeError, match="final"):
            type("Child", (kind,), {})
        for other in live:
            with pytest.raises(TypeError):
                thing.__class__ = other
            with pytest.raises(TypeError):
                object.__setattr__(thing, "__class__", other)
        assert type(thing) is kind
        assert "0x" not in repr(thing) or type(thing).__repr__ is object.__repr__
    assert live[storage_package.RetirementRecord]._release() == []


def test_owner_view_and_exclusive_view_have_different_slots(host: Any) -> None:
    layouts = [set(kind.__slots__) for kind in (Tensor, TensorView, TensorViewMut)]
    for a in range(3):
        for b in range(a):
            assert not layouts[a] & layouts[b]
    owner = host.tensor(np.zeros(2))
    setter = object.__dict__["__class__"].__set__
    for other in (TensorView, TensorViewMut):
        with pytest.raises(TypeError, match="layout"):
            setter(owner, other)


def test_shared_releases_its_value_once_with_the_last_holder() -> None:
    value = Value()
    first = Shared._new(value)
    second = first.clone()
    assert (first.strong_count, second.value) == (2, value)
    first.release()
    with pytest.raises(UseAfterMoveError, match="release"):
        first.clone()
    with pytest.raises(UseAfterMoveError):
        first.release()
    assert value.released == 0
    del second  # forgotten, not released
    assert value.released == 1


def test_try_unwrap_moves_out_of_the_only_holder_and_releases_nothing() -> None:
    value = Value()
    shared = Shared._new(value)
    other = shared.clone()
    with pytest.raises(NotUniqueError) as caught:
        shared.try_unwrap("into")
    assert caught.value.recovered is shared
    del caught, other
    assert shared.try_unwrap("into") is value
    with pytest.raises(UseAfterMoveError, match="into"):
        _ = shared.value
    del shared
    assert value.released == 0


def test_shared_counts_right_from_many_threads() -> None:
    value = Value()
    shared = Shared._new(value)

    def work() -> None:
        for _ in range(2000):
            shared.clone().release()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (shared.strong_count, value.released) == (1, 0)
    shared.release()
    assert value.released == 1


def test_a_borrow_is_shared_or_exclusive_and_refusals_change_nothing() -> None:
    cell = Borrow()
    cell.acquire_shared("read")
    cell.acquire_shared("read")
    with pytest.raises(BorrowConflictError) as caught:
        cell.acquire_exclusive("write")
    assert (caught.value.outstanding, caught.value.count) == ("shared", 2)
    cell.release("shared")
    cell.release("shared")
    cell.acquire_exclusive("write")
    cell.retain("exclusive")
    for acquire in (cell.acquire_shared, cell.acquire_exclusive):
        with pytest.raises(BorrowConflictError) as caught:
            acquire("other")
        assert (caught.value.outstanding, caught.value.count) == ("exclusive", 2)
    cell.release("exclusive")
    assert cell.is_exclusive
    cell.release("exclusive")
    assert cell.outstanding is None


def test_two_threads_are_never_both_admitted() -> None:
    cell = Borrow()
    inside: list[int] = []
    clashes: list[int] = []

    def work(number: int) -> None:
        for _ in range(2000):
            try:
                cell.acquire_exclusive("write")
            except BorrowConflictError:
                continue
            inside.append(number)
            if len(inside) != 1:
                clashes.append(number)
            inside.remove(number)
            cell.release("exclusive")

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clashes == []
    assert cell.outstanding is None


@pytest.mark.parametrize("dtype", ["f2", "f4", "c8", "?", "i1", "u8", "V2"])
def test_lent_arrays_of_every_dtype_keep_dtype_bytes_and_borrow(
    host: Any, dtype: str
) -> None:
    array = np.frombuffer(bytes(range(64)), np.uint8).copy()
    owner = host.tensor((array % 2 if dtype == "?" else array).view(dtype).copy())
    expected = owner.numpy().tobytes()
    lent = owner.numpy()
    assert lent.dtype == np.dtype(dtype)
    assert not lent.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        lent.flags.writeable = True
    derived = [
        lent[::2],
        lent.reshape(2, -1),
        memoryview(lent.view(np.uint8)),
        lent.base,
    ]
    del lent
    while derived:
        with pytest.raises(BorrowConflictError):
            owner.as_view_mut()
        derived.pop()
    owner.as_view_mut().close()
    assert owner.numpy().tobytes() == expected


def test_the_root_returns_once_and_without_the_collector(host: Any) -> None:
    gc.collect()
    gc.disable()
    try:
        owner = host.tensor(np.arange(8.0))
        with owner.as_view_mut() as m:
            a, b = m.split_mut([slice(0, 4), slice(4, 8)])
            a.fill(1.0)
            b.get_mut((0,))[...] = 2.0
            a.close()
            b.close()
        array = owner[::2].numpy()
        del owner, m, a, b
        assert host.given_back == 0
        assert array.tolist() == [1.0, 1.0, 2.0, 6.0]
        del array
        assert (host.given_back, host.released) == (1, 64)
    finally:
        gc.enable()


def test_a_collected_cycle_of_owner_and_view_releases_the_root(host: Any) -> None:
    ring: list[Any] = [host.tensor(np.zeros(4))]
    ring += [ring[0].as_view(), ring[0].numpy(), ring]
    del ring
    gc.collect()
    assert host.given_back <= 1


def test_storage_moves_out_whole_and_in_again_without_a_release(host: Any) -> None:
    array = np.zeros((2, 3), order="F")
    tensor = host.tensor(array)
    storage, same = tensor._unseat("test")
    assert same is array
    with pytest.raises(UseAfterMoveError, match="test"):
        tensor.as_view()
    other = storage._claim._root.clone()
    assert storage._into_allocation() is None
    other.release()
    moved = storage._into_allocation()
    assert moved is not None
    assert moved[1] is array
    assert (host.given_back, host.released) == (0, 0)
    part, rest = host.storage(64).split(16)
    assert part._into_allocation() is None
    del rest
    assert part._into_allocation() is None


def test_parts_of_a_permuted_root_are_seen_through_its_bytes(host: Any) -> None:
    array = np.arange(24.0).reshape(2, 3, 4).transpose(2, 0, 1).copy(order="K")
    group, slots = storage_package.AllocationGroup._from_arrays(
        OwnedStorage._from_allocation(host, array, host),
        [array, array[1:, ::-1], array[..., 2]],
    )
    for slot, part in zip(slots, (array, array[1:, ::-1], array[..., 2]), strict=True):
        assert np.array_equal(group.view(slot).numpy(), part)
