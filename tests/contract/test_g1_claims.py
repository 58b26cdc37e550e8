"""G1: claims, import, layouts and the limits of prepared access, clause by clause."""

from __future__ import annotations

import ast
import inspect
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenferro_ad.storage as storage_package
from tenferro_ad.errors import (
    BorrowConflictError,
    ExpiredCapabilityError,
    GroupConstructionError,
    InvalidArgumentError,
    LayoutError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    AllocationGroup,
    DescriptorRequest,
    OwnedSpanClaim,
    OwnedStorage,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    PreparedStridedWrite,
    prepare_read,
    prepare_write,
    validations,
)
from tenferro_ad.storage import _traversal as traversal

SOURCES = Path(storage_package.__file__).parent


def trees() -> dict[str, ast.Module]:
    return {
        file.stem: ast.parse(file.read_text(encoding="utf-8"))
        for file in SOURCES.glob("*.py")
    }


# ---- claims


@pytest.mark.clause("g1-split-consumes-claim")
def test_splitting_empties_a_claim_and_nothing_public_widens_one(kernel: Any) -> None:
    storage = kernel.storage(64)
    claim, root = storage._claim, storage._claim._root
    first, second = storage.split(24)
    for used in (storage, claim):
        with pytest.raises(UseAfterMoveError, match="split"):
            used.split(0)
    assert root.strong_count == 2
    assert (first._claim.byte_range, second._claim.byte_range) == (
        range(24),
        range(24, 64),
    )
    for at in (-1, 25):  # a part reaches no byte of its neighbour
        with pytest.raises(InvalidArgumentError):
            first.split(at)
    assert first.nbytes == 24
    empty, rest = first.split(0)
    assert (empty.nbytes, rest.nbytes) == (0, 24)
    calls = {n for n in vars(OwnedSpanClaim) if not n.startswith("_")}
    assert calls == {"byte_range", "span", "split"}
    for name in ("byte_range", "span"):
        with pytest.raises(AttributeError):
            setattr(rest._claim, name, range(64))
    with pytest.raises(GroupConstructionError) as caught:
        AllocationGroup.of_owners([rest], [DescriptorRequest((4,), np.float64)])
    assert caught.value.recovered == (rest,)
    borrowed = second.as_ref()
    with pytest.raises(BorrowConflictError):
        second.split(8)
    borrowed.close()
    assert second.split(8)[1].nbytes == 32


@pytest.mark.clause("g1-import-audited")
def test_one_import_makes_every_root_and_states_its_preconditions() -> None:
    made = {
        (module, node.name)
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and any(
            isinstance(call, ast.Call)
            and ast.unparse(call.func) in {"RootResource", "OwnedSpanClaim._make"}
            for call in ast.walk(node)
        )
    }
    assert made == {
        ("_root", "_from_allocation"),  # the import
        ("_root", "split"),  # narrower claims
        ("_root", "_move"),  # the same claim
    }
    stated = inspect.getdoc(OwnedStorage._from_allocation) or ""
    for duty in ("capacity", "deallocation", "alignment", "provider", "device context"):
        assert duty in stated, duty
    importers = {
        (module, ast.unparse(node.func))
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("_from_allocation")
    }
    assert {module for module, _ in importers} == {"_record"}  # behind the doors


@pytest.mark.clause("g1-test-claims")
@pytest.mark.parametrize("order", [*itertools.permutations(range(4))])
def test_the_root_is_released_once_for_any_drop_order_of_its_parts(
    kernel: Any, order: tuple[int, ...]
) -> None:
    first, second = kernel.storage(64).split(32)
    parts: list[Any] = [*first.split(8), *second.split(8)]
    serials = {part.span.serial for part in parts}
    assert len(serials) == 1  # provenance: one root
    for at in order[:-1]:
        parts[at] = None
    assert kernel.released == []
    parts.clear()
    assert kernel.released == [64]
    assert len(kernel.host.given_back) == 1


@pytest.mark.clause("g1-test-claims")
def test_two_owners_of_overlapping_bytes_are_refused(kernel: Any) -> None:
    storage = kernel.storage(64)
    root = storage._claim._root
    first, second = storage.split(32)
    # No call makes such owners; the check that would see them is shown here.
    forged = OwnedStorage._make(OwnedSpanClaim._make(root.clone(), 24, 40))
    for pair in ([first, forged], [forged, second]):
        with pytest.raises(GroupConstructionError) as caught:
            AllocationGroup.of_owners(pair, [])
        assert caught.value.reason == "overlap"
        assert caught.value.recovered == tuple(pair)
    group, _ = AllocationGroup.of_owners([first, second], [])
    assert group.nbytes == 64


@given(cuts=st.lists(st.integers(0, 64), max_size=6), order=st.randoms())
def test_any_split_keeps_every_byte_once_and_releases_once(
    cuts: list[int], order: Any
) -> None:
    released: list[int] = []

    class Host:
        name = "host"

        def give_back(self, buffer: Any) -> None:
            released.append(buffer.nbytes)

    parts = [OwnedStorage._from_allocation(Host(), np.zeros(64, np.uint8), None)]
    for cut in cuts:
        for at, part in enumerate(parts):
            if part.span.start <= cut <= part.span.stop:
                parts[at : at + 1] = part.split(cut - part.span.start)
                break
        part = None
    covered = [byte for part in parts for byte in part._claim.byte_range]
    assert covered == [*range(64)]
    order.shuffle(parts)
    while parts:
        assert released == []
        parts.pop()
    assert released == [64]


# ---- prepared access


@pytest.mark.clause("g1-prepare-access-time-only")
def test_preparation_proves_nothing_and_shares_no_context(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    context = group._allocations[0]._resource.provider  # type: ignore[union-attr]
    with group.view_mut(slot) as m:
        m.as_view_mut().checked_write()  # the proof of injectivity, once
        before, holders = validations.snapshot(), context.strong_count
        m.prepare_host().close()
        m.prepare_device().close()
        m._injective("test")
        again = validations.snapshot()
        m.as_view_mut().prepare_device_mut().close()
        m.as_view_mut().prepare_host_mut().close()
    assert again[0] == before[0]
    assert validations.snapshot() == again
    assert context.strong_count == holders == 1
    assert kernel.mapped.maps == kernel.mapped.bindings == 2


@pytest.mark.clause("g1-device-payload-no-host")
def test_a_device_payload_offers_no_guard_pointer_array_or_iterator(
    kernel: Any,
) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    read = group.view(slot).prepare_device()
    layout = read._dr_checked._read_descriptor.layout
    assert layout is group.record(slot).layout
    read.close()
    write = group.view_mut(slot).prepare_device_mut()
    assert write._dw_checked._write_descriptor.descriptor.layout is layout
    assert kernel.mapped.maps == 0
    for payload in (read, write):
        public = {n for n in dir(payload) if not n.startswith("_")}
        assert public == {"close"}
        assert not hasattr(payload, "__array__")
        assert not hasattr(payload, "__array_interface__")
        with pytest.raises(TypeError):
            iter(payload)  # type: ignore[call-overload]
        with pytest.raises(TypeError):
            memoryview(payload)  # type: ignore[arg-type]
    write.close()


@pytest.mark.clause("g1-no-replacement-arguments")
def test_preparation_takes_the_pairing_and_a_target_and_nothing_else() -> None:
    for call in (prepare_read, prepare_write):
        assert list(inspect.signature(call).parameters) == ["checked", "target"]
    forbidden = {"descriptor", "layout", "range", "key", "provider", "mode", "dtype"}
    for kind in (PreparedDeviceRead, PreparedDeviceWrite):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            if not name.startswith("_"):
                assert not forbidden & set(inspect.signature(member).parameters)
    pairing = {  # nothing joins an access with a descriptor that came from elsewhere
        (module, ast.unparse(node.args[1]))
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in {"CheckedRead._join", "CheckedWrite._join"}
    }
    assert {argument for module, argument in pairing if module == "_view"} == {
        "self._view_descriptor"
    }
    assert {module for module, _ in pairing} == {"_view", "_view_mut"}


@pytest.mark.clause("g1-strided-loop")
def test_a_strided_step_ends_reads_and_advances_and_does_nothing_else(
    kernel: Any,
) -> None:
    source = inspect.getsource(traversal.PreparedStridedIter.__next__)
    step = ast.parse(source.replace("    def", "def", 1)).body[0]
    kinds = {type(node) for node in ast.walk(step)}
    assert not kinds & {ast.Call, ast.Try, ast.With, ast.List, ast.Dict, ast.Lambda}
    assert not kinds & {ast.FloorDiv, ast.Mod, ast.Div, ast.Mult}  # no flat index
    attributes = {n.attr for n in ast.walk(step) if isinstance(n, ast.Attribute)}
    assert attributes <= {"_at", "_axes", "_flat", "_index", "_remaining"}
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(480)],
        [DescriptorRequest((5, 6), np.float64, strides=(96, 16))],
    )
    prepared = group.view(slot).prepare_host()
    iterator = prepared.iter_strided()
    proofs, calls = validations.snapshot(), kernel.mapped.maps
    assert sum(1 for _ in iterator) == 30
    assert (validations.snapshot(), kernel.mapped.maps) == (proofs, calls)
    prepared.close()


@pytest.mark.clause("g1-mut-iter-yields-once")
def test_a_mutable_iteration_is_alone_and_visits_each_element_once(
    kernel: Any,
) -> None:
    owner = kernel.owner((4, 6))
    with owner.as_view_mut() as m:
        prepared = m[:, ::-2].prepare_host_mut()
        assert isinstance(prepared, PreparedStridedWrite)
        iterator = prepared.iter_strided_mut()
        for other in (prepared.iter_strided_mut, prepared.as_strided_array_mut):
            with pytest.raises(BorrowConflictError):  # the only mutable borrow
                other()
        visited = []
        for cell in iterator:
            visited.append(cell.__array_interface__["data"][0])
            cell[...] = -1.0
        assert len(set(visited)) == len(visited) == 12
        assert max(visited) - min(visited) < owner.nbytes
        del cell, iterator
        prepared.close()
    assert (owner.numpy() == -1.0).sum() == 12


# ---- layouts (the poison lane repeats this file)


@pytest.mark.clause("g1-test-layouts")
@given(
    shape=st.lists(st.integers(0, 4), max_size=3),
    steps=st.lists(st.integers(-5, 5), min_size=3, max_size=3),
    offset=st.integers(0, 260),
    dtype=st.sampled_from(["i1", "f4", "f8", "c16", ">f8", "O"]),
    scale=st.sampled_from([1, 4, 8, 2**60]),
)
def test_a_bad_layout_is_refused_before_any_preparation(
    shape: list[int], steps: list[int], offset: int, dtype: str, scale: int
) -> None:
    class Host:
        name = "host"

        def give_back(self, buffer: Any) -> None: ...

    memory = np.zeros(256, np.uint8)
    storage = OwnedStorage._from_allocation(Host(), memory, None)
    strides = tuple(step * scale for step in steps[: len(shape)])
    request = DescriptorRequest(tuple(shape), dtype, 0, strides, offset)
    refusal = None
    try:
        group, (slot,) = AllocationGroup.of_owners([storage], [request])
    except GroupConstructionError as error:
        refusal = error
    if refusal is not None:
        assert isinstance(refusal.__cause__, LayoutError)
        assert refusal.recovered == (storage,)
        return
    array = group.view(slot).numpy()
    model = np.ndarray(tuple(shape), dtype, memory, offset, strides)
    assert array.shape == model.shape
    if array.size:
        assert array.strides == model.strides or array.flags.c_contiguous
        assert np.shares_memory(array, memory)
    del array
    addresses = sorted(
        sum(i * s for i, s in zip(index, strides, strict=True))
        for index in np.ndindex(*shape)
    )
    m = group.view_mut(slot)
    try:
        m.prepare_host_mut().close()
    except LayoutError as error:
        field = error.field
    else:
        field = ""
        gaps = np.diff(addresses)
        assert not len(gaps) or min(gaps) >= np.dtype(dtype).itemsize
    assert field in ("", "injectivity")


@pytest.mark.clause("g1-state-by-type")
def test_expired_and_moved_are_told_by_the_object_that_ended(kernel: Any) -> None:
    owner = kernel.owner((4,))
    prepared = owner.prepare_host()
    prepared.close()
    with pytest.raises(ExpiredCapabilityError):
        prepared.as_slice()
    for name in ("is_checked", "is_mapped", "is_contiguous", "is_writable"):
        for kind in vars(storage_package).values():
            if inspect.isclass(kind):
                assert not hasattr(kind, name), kind


@pytest.mark.clause("g1-host-sync")
def test_borrowed_host_access_is_over_before_the_call_returns(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    with group.view_mut(slot) as m:
        m.fill(2.0)
        assert kernel.mapped.maps == kernel.mapped.unmaps == 1
        assert m.get((3,)) == 2.0
        assert kernel.mapped.maps == kernel.mapped.unmaps == 2
    assert group._cell.outstanding is None


@pytest.mark.clause("g2-test-no-rerun")
def test_mapping_and_binding_group_views_repeats_no_validation(kernel: Any) -> None:
    group, slots = AllocationGroup.of_owners(
        [kernel.mapped_storage(128)],
        [
            DescriptorRequest((8,), np.float64),
            DescriptorRequest((8,), np.float64, offset=64),
        ],
    )
    children = group.split_mut(slots)
    proofs = validations.snapshot()
    for child in children:
        child.prepare_host().close()
        child.as_view_mut().prepare_host_mut().close()
        child.as_view_mut().prepare_device_mut().close()
        child.close()
    assert validations.snapshot() == proofs
    assert (kernel.mapped.maps, kernel.mapped.bindings) == (4, 2)
