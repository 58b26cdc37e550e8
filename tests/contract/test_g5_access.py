"""G5: what handles and shared access can never become, and device preparation."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad
import tenferro_ad.storage as storage_package
from tenferro_ad._ownership import MoveOnly, Shared
from tenferro_ad.errors import (
    AccessError,
    BorrowConflictError,
    InvalidArgumentError,
    NotConstructibleError,
)
from tenferro_ad.storage import (
    AccessTarget,
    AllocationGroup,
    CheckedWrite,
    DescriptorRequest,
    OwnedSpanClaim,
    OwnedStorage,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    StorageMut,
    StorageRef,
    Tensor,
    TensorViewMut,
    prepare_write,
    validations,
)

PACKAGE = Path(tenferro_ad.__file__).parent
SOURCES = Path(storage_package.__file__).parent


@pytest.fixture
def lent(kernel: Any) -> Any:
    """A group over device memory whose provider hears of what it gets back."""
    returned: list[Any] = []
    kernel.mapped.release_binding = returned.append
    kernel.returned = returned
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    return [group, slot]


@pytest.mark.clause("g5-handles-lifetime-only")
def test_no_handle_count_or_shared_access_turns_into_a_right(
    kernel: Any, lent: Any
) -> None:
    group, slot = lent
    prepared = group.view(slot).prepare_device()
    evidence = [
        group._allocations[0]._claim._root,
        group._allocations[0]._resource,
        group._allocations[0]._resource.allocation,
        group._allocations[0]._resource.provider,
        prepared,
        prepared._dr_state,
        prepared._dr_checked,
        group.record(slot),
        group.view(slot),
    ]
    for thing in evidence:
        for kind in (StorageRef, StorageMut, OwnedStorage, OwnedSpanClaim, Tensor):
            with pytest.raises(NotConstructibleError):
                kind(thing)
        with pytest.raises(InvalidArgumentError):
            prepare_write(thing, AccessTarget.Device)  # type: ignore[arg-type]
    prepared.close()
    # The inventory of the source: who makes a write capability, and out of what.
    makers: dict[str, set[str]] = {}
    for file in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                if called in {"StorageMut._of", "StorageMut._make", "cls._make"}:
                    first = ast.unparse(node.args[0]) if node.args else ""
                    if called != "cls._make" or file.stem == "_capability":
                        makers.setdefault(file.stem, set()).add(first)
    assert makers.keys() <= {"_capability", "_group", "_root", "_tensor"}
    for given in makers.values():
        assert given <= {"claim", "self._claim", "storage._claim"} | {
            "self._owner(record)._claim"
        }


@pytest.mark.clause("g5-write-needs-exclusive")
def test_shared_access_prepares_a_read_and_only_exclusive_access_a_write(
    kernel: Any, lent: Any
) -> None:
    group, slot = lent
    view = group.view(slot)
    assert not {n for n in dir(view) if n.endswith("_mut") or "write" in n}
    with pytest.raises(BorrowConflictError):
        group.view_mut(slot)
    read = view.prepare_device()
    assert type(read) is PreparedDeviceRead
    with pytest.raises(BorrowConflictError):
        group.view_mut(slot)
    read.close()
    tensor = group.into_tensor(slot)
    write = tensor.prepare_device_mut()  # an exclusive borrow of the owner
    assert type(write) is PreparedDeviceWrite
    with pytest.raises(BorrowConflictError):
        tensor.as_view()
    write.close()
    returns = {
        f"{kind.__name__}.{name}"
        for kind in vars(storage_package).values()
        if inspect.isclass(kind) and issubclass(kind, MoveOnly)
        for name, member in inspect.getmembers(kind, inspect.isfunction)
        if "PreparedDeviceWrite" in str(inspect.signature(member).return_annotation)
        and not name.startswith("_")
    }
    assert returns == {
        "Tensor.prepare_device_mut",
        "TensorViewMut.prepare_device_mut",
        "TypedTensor.prepare_device_mut",
        "TypedTensorViewMut.prepare_device_mut",
    }


@pytest.mark.clause("g5-no-escaping-pointer")
def test_no_safe_call_gives_a_raw_pointer() -> None:
    pointers = ("ptr", "address", "data_ptr", "device_ptr", "ctypes", "raw_handle")
    for kind in vars(storage_package).values():
        if inspect.isclass(kind) and issubclass(kind, MoveOnly | Shared):
            public = {n for n in dir(kind) if not n.startswith("_")}
            assert not {n for n in public if n.endswith(pointers)}, kind
            assert not {"__array_interface__", "__cuda_array_interface__"} & {
                *dir(kind)
            }
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                assert not node.name.endswith(("_ptr", "_pointer")), file.name


@pytest.mark.clause("g5-row-prepare-read")
def test_row_prepare_device_read(kernel: Any, lent: Any) -> None:
    group, slot = lent
    lent.clear()
    root = group._allocations[0]._claim._root
    context = root.value.provider
    kernel.mapped.fail = True
    view = group.view(slot)
    with pytest.raises(AccessError) as caught:
        view.prepare_device()
    assert caught.value.recovered is view  # failure: the same pairing, no payload
    assert kernel.returned == []
    del caught
    kernel.mapped.fail = False
    proofs = validations.snapshot()
    prepared = view.prepare_device()
    assert group._cell.outstanding == "shared"  # capability
    checked = prepared._dr_checked  # borrow and descriptor sit inside the payload
    assert checked._read_descriptor is group.record(slot).descriptor
    assert (root.strong_count, context.strong_count) == (1, 1)  # through the root
    assert (kernel.mapped.bindings, kernel.mapped.maps) == (1, 0)  # synchronisation
    assert validations.snapshot() == proofs
    del prepared, checked, view
    assert len(kernel.returned) == 1  # panic/drop: provider state is released
    assert group._cell.outstanding is None
    assert kernel.released == []
    del group, root, context
    assert kernel.released == [64]  # reclamation: with the owner, under G1


@pytest.mark.clause("g5-row-prepare-write")
def test_row_prepare_device_write(kernel: Any, lent: Any) -> None:
    group, slot = lent
    tensor = group.into_tensor(slot)
    root = tensor._owner_storage._claim._root
    kernel.mapped.fail = True
    m = tensor.as_view_mut()
    with pytest.raises(AccessError) as caught:
        m.prepare_device_mut()
    assert caught.value.recovered is m  # failure: the same pairing, no payload
    assert kernel.returned == []
    del caught
    kernel.mapped.fail = False
    assert isinstance(m, TensorViewMut)
    proofs = validations.snapshot()  # the proof of injectivity is kept by now
    prepared = m.prepare_device_mut()
    assert tensor._owner_storage._borrow.outstanding == "exclusive"  # capability
    checked = prepared._dw_checked  # borrow and injective descriptor inside
    assert isinstance(checked, CheckedWrite)
    assert checked._write_descriptor.descriptor is tensor.descriptor()
    assert (root.strong_count, root.value.provider.strong_count) == (1, 1)
    assert (kernel.mapped.bindings, kernel.mapped.maps) == (1, 0)  # synchronisation
    assert validations.snapshot() == proofs
    del prepared, checked, m
    assert len(kernel.returned) == 1  # panic/drop: provider state is released
    assert tensor._owner_storage._borrow.outstanding is None
    assert kernel.released == []
    del tensor, root
    assert kernel.released == [64]  # reclamation: with the owner, under G1
