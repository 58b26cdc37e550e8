"""Conventions of the contract: terms, capabilities, failures, errors."""

from __future__ import annotations

import ast
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad import errors
from tenferro_ad._ownership import Borrow, MoveOnly, Shared
from tenferro_ad.errors import (
    AccessError,
    BorrowConflictError,
    ExpiredCapabilityError,
    ExtractError,
    GroupConstructionError,
    InvalidSlotError,
    LayoutError,
    TenferroError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    AccessTarget,
    AllocationGroup,
    AllocationSpan,
    CheckedDescriptor,
    DescriptorRequest,
    OwnedSpanClaim,
    OwnedStorage,
    RootResource,
    StorageMut,
    StorageRef,
    Tensor,
    TensorView,
    prepare_read,
)

PACKAGE = Path(storage_package.__file__).parents[1]


def package_trees() -> dict[str, ast.Module]:
    files = [PACKAGE / "_ownership.py", *sorted((PACKAGE / "storage").glob("*.py"))]
    return {f.name: ast.parse(f.read_text(encoding="utf-8")) for f in files}


@pytest.mark.clause("conv-signature-shape")
def test_each_call_keeps_its_capability_its_borrow_and_its_failure_carrier(
    kernel: Any,
) -> None:
    base = np.zeros((4, 4))
    group, (whole, top) = kernel.group(base, base, base[:2])
    shared = {"view": lambda: group.view(whole)}
    exclusive = {
        "view_mut": lambda: group.view_mut(whole),
        "split_mut": lambda: group.split_mut([top]),
        "remove": lambda: group.remove(top),
        "try_extract": lambda: group.try_extract(whole),
    }
    owning = {"into_tensor": lambda: group.into_tensor(whole)}
    with group.view(whole):
        for call in shared.values():
            call().close()
        for requested, calls in (("exclusive", exclusive), ("owning", owning)):
            for call in calls.values():
                with pytest.raises(BorrowConflictError) as caught:
                    call()
                assert caught.value.requested == requested
                assert caught.value.outstanding == "shared"
                del caught
    view = group.view(whole)
    prepared = view.prepare_host()  # consumes the view, keeps its borrow
    with pytest.raises(UseAfterMoveError, match="prepare_host"):
        view.numpy()
    with pytest.raises(BorrowConflictError):
        group.view_mut(whole)
    prepared.close()
    with pytest.raises(ExtractError) as caught:
        AllocationGroup.into_tensor(group, kernel.group(np.zeros(2))[1][0])
    assert caught.value.recovered is group


@pytest.mark.clause("conv-four-concepts")
def test_claim_capability_root_and_descriptor_are_four_classes_that_do_not_mix(
    kernel: Any,
) -> None:
    concepts = [OwnedSpanClaim, StorageRef, StorageMut, RootResource, CheckedDescriptor]
    for a in concepts:
        for b in concepts:
            assert a is b or not issubclass(a, b)
    owner = kernel.owner()
    claim = owner._owner_storage._claim
    with owner.as_view() as view:
        ref = view._view_ref
        opens = {"as_ref", "as_mut", "as_view", "as_view_mut", "numpy", "write"}
        for other in (claim, claim._root, claim._root.value, owner.descriptor(), ref):
            assert not opens & set(dir(other))
        for impostor in (claim, claim._root, owner.descriptor(), 7):
            with pytest.raises((TypeError, AttributeError)):
                TensorView._make(impostor, owner.descriptor()).numpy()


@pytest.mark.clause("conv-no-recovered-authority")
def test_no_code_reads_a_count_or_the_interpreter_to_decide_about_a_right() -> None:
    counted: list[str] = []
    made: dict[str, set[str]] = {"StorageMut": set(), "StorageRef": set()}
    for name, tree in package_trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = {alias.name for alias in node.names}
                if name == "_retirement.py":
                    names -= {"ctypes"}  # see below: it adds one reference, for good
                assert not names & {"gc", "sys", "getrefcount", "ctypes"}, name
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"getrefcount", "_refcount"}, name
                if node.attr == "strong_count":
                    counted.append(name)
            match node:
                case ast.Call(func=ast.Name(id=called)):
                    assert called not in {"id", "globals", "vars"}, name
                case ast.Call(func=ast.Attribute(value=ast.Name(id=kind))):
                    made.get(kind, set()).add(name)
    assert counted == []
    reaches = [
        ast.unparse(node)
        for node in ast.walk(package_trees()["_retirement.py"])
        if isinstance(node, ast.Call) and "ctypes" in ast.unparse(node.func)
    ]
    assert reaches == [
        "ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))",
        "ctypes.py_object(record)",
    ]
    # Capabilities come out of a borrow cell only, in these modules, each of which
    # names the claim that stands beside the cell.
    homes = {"_capability.py", "_group.py", "_root.py", "_tensor.py"}
    assert made == {"StorageMut": homes, "StorageRef": homes}


@pytest.mark.clause("conv-term-allocation")
def test_an_allocation_span_is_metadata_that_neither_opens_bytes_nor_owns(
    kernel: Any,
) -> None:
    owner = kernel.owner((4,))
    span = owner.span
    assert span == AllocationSpan("host", span.serial, 0, 32)
    assert pickle.loads(pickle.dumps(span)) == span
    public = {name for name in dir(span) if not name.startswith("_")}
    assert public == {"domain", "serial", "start", "stop"}
    del owner
    assert kernel.released == [32]  # the span kept nothing alive


@pytest.mark.clause("conv-term-owner")
def test_every_span_has_exactly_one_owner_token_wherever_it_sits(kernel: Any) -> None:
    storage = kernel.storage(32)
    tensor = Tensor._seat(storage, storage._resource.allocation)
    with pytest.raises(UseAfterMoveError):
        _ = storage.nbytes
    group, (slot,) = AllocationGroup.of_tensors([tensor])
    with pytest.raises(UseAfterMoveError):
        tensor.as_view()
    again = group.into_tensor(slot)
    with pytest.raises(UseAfterMoveError):
        group.view(slot)
    first, second = again._part("test")[0].split(8)
    assert first.span.stop == second.span.start == 8
    assert kernel.released == []
    del first
    assert kernel.released == []
    del second
    assert kernel.released == [32]


@pytest.mark.clause("conv-term-capability")
def test_a_right_is_shared_exclusive_or_owning_and_only_exclusive_writes(
    kernel: Any,
) -> None:
    owner = kernel.owner()
    cell = owner._owner_storage._borrow
    assert cell.outstanding is None
    a, b = owner.as_view(), owner.as_view()
    assert (cell.outstanding, cell.shared_count) == ("shared", 2)
    assert not hasattr(a, "write")
    assert not a.numpy().flags.writeable
    for call in (owner.as_view_mut, lambda: owner._part("move")):
        with pytest.raises(BorrowConflictError):
            call()
    a.close()
    b.close()
    with owner.as_view_mut() as m:
        assert cell.outstanding == "exclusive"
        assert m.write().flags.writeable
        for call in (owner.as_view, owner.as_view_mut, lambda: owner._part("move")):
            with pytest.raises(BorrowConflictError):
                call()
    owner._part("move")


@pytest.mark.clause("conv-term-descriptor")
def test_a_descriptor_interprets_an_allocation_and_keeps_no_bytes(kernel: Any) -> None:
    owner = kernel.owner((2, 3))
    descriptor = owner.descriptor()
    assert descriptor.dtype == np.float64
    assert descriptor.shape == (2, 3)
    assert descriptor.placement == "host"
    held = [descriptor.span, descriptor.layout, descriptor.placement]
    assert not any(isinstance(part, np.ndarray | MoveOnly) for part in held)
    del owner
    assert kernel.released == [48]
    assert descriptor.nbytes == 48


@pytest.mark.clause("conv-term-group")
def test_a_group_is_the_only_form_of_several_values_over_one_allocation(
    kernel: Any,
) -> None:
    base = np.arange(6.0)
    group, (whole, half) = kernel.group(base, base, base[:3])
    assert group.view(half).numpy().tolist() == [0, 1, 2]
    assert group.view(whole).shape == (6,)
    with pytest.raises(ExtractError, match="1 other"):
        group.try_extract(half)
    storage = kernel.storage(16)
    Tensor._seat(storage, storage._resource.allocation)
    with pytest.raises(UseAfterMoveError):  # no second tensor over the same storage
        Tensor._seat(storage, np.zeros(2))


@pytest.mark.clause("conv-term-guard")
def test_host_bytes_come_only_from_a_guard_that_keeps_its_borrow(kernel: Any) -> None:
    lenders = set()
    for name, tree in package_trees().items():
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name(id="lend")):
                    lenders.add(name)
    assert lenders == {"_guard.py"}
    owner = kernel.owner()
    array = owner.numpy()
    part = array[1:, ::2]
    window = memoryview(part)
    del array, part
    with pytest.raises(BorrowConflictError):
        owner.as_view_mut()
    del window
    with owner.as_view_mut() as m:
        written = m.write()
    corner = written[:1]
    del written
    with pytest.raises(BorrowConflictError):  # it outlived its view
        owner.as_view()
    del corner
    owner.as_view().close()
    guarded = owner.as_view().prepare_host()
    guarded.close()
    with pytest.raises(ExpiredCapabilityError):
        guarded.as_slice()


@pytest.mark.clause("conv-failure-accounts-for-ownership")
def test_after_a_failed_transition_ownership_is_returned_or_still_held(
    kernel: Any,
) -> None:
    owners = (kernel.storage(16), kernel.storage(16))
    with pytest.raises(GroupConstructionError) as caught:
        AllocationGroup.of_owners(owners, [DescriptorRequest((99,), np.float64)])
    assert caught.value.recovered[0] is owners[0]
    assert caught.value.recovered[1] is owners[1]
    del caught
    _kept, (slot,) = AllocationGroup.of_owners(
        owners, [DescriptorRequest((2,), np.float64)]
    )
    stranger, _ = kernel.group(np.zeros(1))
    with pytest.raises(ExtractError) as failed:
        stranger.into_tensor(slot)
    assert failed.value.recovered is stranger
    del failed
    assert stranger.view(stranger.slots[0]).shape == (1,)
    storage = kernel.mapped_storage(16)
    kernel.mapped.fail = True
    lone, (at,) = AllocationGroup.of_owners(
        [storage], [DescriptorRequest((2,), np.float64)]
    )
    checked = lone.view(at).checked_read()
    with pytest.raises(AccessError) as refused:
        prepare_read(checked, AccessTarget.Host)
    assert refused.value.recovered is checked
    kernel.mapped.fail = False
    prepare_read(checked, AccessTarget.Host).close()
    assert kernel.released == []


@pytest.mark.clause("conv-structured-errors")
def test_every_failure_has_typed_fields_and_shows_no_address(kernel: Any) -> None:
    base = np.zeros(8)
    group, (slot, _) = kernel.group(base, base, base[::2])
    owner = kernel.owner((2, 2))
    view = owner.as_view()
    cases = [
        lambda: owner.as_view_mut(),
        lambda: view[5],
        lambda: view.reshape((3,)),
        lambda: view.get((0,)),
        lambda: group.split_mut([slot, slot]),
        lambda: group.try_extract(slot),
        lambda: group.view(kernel.group(np.zeros(1))[1][0]),
        lambda: group.insert(slot, DescriptorRequest((99,), np.float64)),
        lambda: Tensor(),
        lambda: setattr(owner, "__class__", TensorView),
    ]
    address = re.compile(r"0x[0-9a-f]+| at \d{6,}")
    for case in cases:
        with pytest.raises(TenferroError) as caught:
            case()
        error = caught.value
        assert error.operation
        assert error.fix
        for value in (str(error), repr(error), *map(repr, vars(error).values())):
            assert not address.search(value), value
    with pytest.raises(BorrowConflictError) as conflict:
        owner.as_view_mut()
    assert isinstance(conflict.value.span, AllocationSpan)
    assert conflict.value.span == owner.span
    with pytest.raises(LayoutError) as layout:
        group.insert(slot, DescriptorRequest((99,), np.float64))
    assert layout.value.field == "byte_range"
    assert layout.value.requested == (0, 792)
    assert isinstance(layout.value.span, AllocationSpan)


@pytest.mark.clause("conv-structured-errors")
def test_every_error_class_has_one_root_a_builtin_and_survives_pickling() -> None:
    builtin = (Exception, BaseException, object)
    for name, kind in vars(errors).items():
        if not isinstance(kind, type) or not issubclass(kind, TenferroError):
            continue
        assert name.endswith(("Error", "Rejected")) or name.startswith("_")
        if kind.__subclasses__() == [] and kind is not errors.BudgetTooSmallError:
            assert any(
                base.__module__ == "builtins" and base not in builtin
                for base in kind.__mro__
            ), name
    error = InvalidSlotError(operation="view", found="slot 3 is vacant", slots=(3,))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is InvalidSlotError
    assert str(again) == str(error)
    assert again.slots == (3,)
    carrier = AccessError(operation="prepare", found="no", recovered=object())
    assert pickle.loads(pickle.dumps(carrier)).recovered is None


def test_the_ownership_words_are_exported_where_the_tests_expect_them() -> None:
    for kind in (Shared, OwnedStorage, AllocationGroup, Tensor):
        assert issubclass(kind, MoveOnly)
    assert not issubclass(Borrow, MoveOnly)
