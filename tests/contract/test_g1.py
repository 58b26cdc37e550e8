"""G1: span access. One test for each clause of the host stage, named after it."""

from __future__ import annotations

import ast
import copy
import pickle
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad._ownership import Shared
from tenferro_ad.errors import (
    AccessError,
    BorrowConflictError,
    ExpiredCapabilityError,
    GroupConstructionError,
    IndexRangeError,
    LayoutError,
    NotCloneableError,
    NotConstructibleError,
    NotUniqueError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    AccessTarget,
    AllocationGroup,
    CheckedDescriptor,
    CheckedInjectiveDescriptor,
    CheckedLayout,
    CheckedRead,
    CheckedStrided,
    CheckedWrite,
    Contiguous,
    DescriptorRequest,
    OwnedSpanClaim,
    OwnedStorage,
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    PreparedHostRead,
    PreparedHostWrite,
    PreparedRead,
    PreparedStridedRead,
    PreparedStridedWrite,
    PreparedWrite,
    ProviderContext,
    RootResource,
    StorageMut,
    StorageRef,
    Tensor,
    prepare_read,
    prepare_write,
    validations,
)

SOURCES = Path(storage_package.__file__).parent


def strong(tensor: Tensor) -> int:
    return tensor._owner_storage._claim._root.strong_count


def refused(storage: OwnedStorage, **facts: Any) -> LayoutError:
    """The reason why a group over `storage` refuses a descriptor."""
    with pytest.raises(GroupConstructionError) as caught:
        AllocationGroup.of_owners([storage], [DescriptorRequest(**facts)])
    assert caught.value.recovered == (storage,)
    reason = caught.value.__cause__
    assert isinstance(reason, LayoutError)
    return reason


# ---- shapes of the graph


@pytest.mark.clause("g1-single-lifetime-graph")
def test_a_root_lives_by_one_chain_of_shared_references(kernel: Any) -> None:
    tensor = kernel.owner((4,))
    claim = tensor._owner_storage._claim
    kept = claim._root.clone()
    assert kept.strong_count == 2
    del tensor, claim
    assert kernel.released == []
    with pytest.raises(NotUniqueError) as caught:
        other = kept.clone()
        kept.try_unwrap()
    assert caught.value.recovered is kept
    other.release()
    kept.release()
    assert kernel.released == [32]
    assert len(kernel.host.given_back) == 1
    for file in SOURCES.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute | ast.Name):
                name = node.attr if isinstance(node, ast.Attribute) else node.id
                assert not name.startswith("Weak")
                assert name not in {"finalize", "getweakrefs"}


@pytest.mark.clause("g1-root-shape")
def test_root_claim_and_storage_hold_what_the_contract_sketches(kernel: Any) -> None:
    storage = kernel.storage(64)
    claim = storage._claim
    root = claim._root
    assert isinstance(storage, OwnedStorage)
    assert isinstance(claim, OwnedSpanClaim)
    assert isinstance(root, Shared)
    assert claim.byte_range == range(64)
    resource = root.value
    assert isinstance(resource, RootResource)
    assert isinstance(resource.provider, Shared)
    assert isinstance(resource.provider.value, ProviderContext)
    assert resource.provider.value.provider is kernel.host
    assert resource.allocation.nbytes == resource.capacity_bytes == 64
    assert resource.diagnostics.domain == "host"


@pytest.mark.clause("g1-borrow-shape", "g1-storage-ref-origin")
def test_borrows_name_root_and_range_under_their_claim_without_a_strong_reference(
    kernel: Any,
) -> None:
    storage = kernel.storage(64)
    root = storage._claim._root
    ref = storage.as_ref()
    again = storage.as_ref()
    assert root.strong_count == 1
    assert ref.span == storage.span
    with pytest.raises(BorrowConflictError):
        storage.as_mut()
    ref.close()
    again.close()
    mut = storage.as_mut()
    assert root.strong_count == 1
    assert mut.span == storage.span
    with pytest.raises(BorrowConflictError):
        storage.as_ref()
    mut.close()
    with pytest.raises(ExpiredCapabilityError):
        _ = mut.span
    storage.as_ref().close()


@pytest.mark.clause("g1-owner-not-cloneable")
def test_storage_and_claims_refuse_copy_deepcopy_and_pickle(kernel: Any) -> None:
    storage = kernel.storage(8)
    for owner in (storage, storage._claim, kernel.owner()):
        for clone in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(NotCloneableError) as caught:
                clone(owner)
            assert caught.value.kind == type(owner).__name__


@pytest.mark.clause("g1-root-share-limited")
def test_a_clone_of_the_root_brings_neither_ownership_nor_write_permission(
    kernel: Any,
) -> None:
    tensor = kernel.owner((4,))
    kept = tensor._owner_storage._claim._root.clone()
    public = {name for name in dir(kept) if not name.startswith("_")}
    assert public == {"clone", "release", "strong_count", "try_unwrap", "value"}
    with tensor.as_view_mut() as m:  # a strong reference takes no borrow
        m.fill(1.0)
    cloned: dict[str, list[str]] = {}
    for file in sorted(SOURCES.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=value, attr="clone")):
                    cloned.setdefault(file.name, []).append(ast.unparse(value))
    # Splitting a claim, mappings, and work that may be running; nothing else shares.
    assert cloned == {
        "_guard.py": ["self._rg_mapping", "self._wg_mapping"],
        "_retirement.py": ["access._root", "root.value.provider"],
        "_root.py": ["self._root"],
    }
    kept.release()


@pytest.mark.clause("g1-capability-unforgeable")
def test_nothing_but_a_borrow_makes_a_capability(kernel: Any) -> None:
    storage = kernel.storage(8)
    evidence = [
        storage.span,
        storage.span.serial,
        storage._resource.diagnostics,
        storage._resource.allocation,
        storage._claim._root,
        storage._resource.provider.value,
        storage.as_ref(),
    ]
    for kind in (StorageRef, StorageMut, OwnedStorage, OwnedSpanClaim, Tensor):
        for thing in evidence:
            with pytest.raises(NotConstructibleError):
                kind(thing)
    ref = evidence[-1]
    assert not {"write", "as_mut", "as_view_mut"} & set(dir(ref))


@pytest.mark.clause("g1-temporary-split")
def test_a_temporary_split_shares_one_exclusive_borrow_and_moves_nothing(
    kernel: Any,
) -> None:
    tensor = kernel.owner((4, 2))
    with tensor.as_view_mut() as m:
        top, bottom = m.split_mut([slice(0, 2), slice(2, 4)])
    assert strong(tensor) == 1
    top.fill(1.0)
    bottom.fill(2.0)
    top.close()
    with pytest.raises(BorrowConflictError):  # the last child still holds it
        tensor.as_view()
    bottom.close()
    assert tensor.numpy().tolist() == [[1, 1], [1, 1], [2, 2], [2, 2]]


# ---- validation


@pytest.mark.clause("g1-validate-once", "g1-checked-opaque")
def test_later_steps_check_nothing_again_and_pairs_have_no_constructor(
    kernel: Any,
) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    before = validations.snapshot()
    read = group.view(slot).checked_read()
    prepare_read(read, AccessTarget.Host).close()
    write = group.view_mut(slot).checked_write()
    at_write = validations.snapshot()
    prepare_write(write, AccessTarget.Host).close()
    group.view(slot).numpy()
    assert validations.snapshot()[0] == before[0]
    assert validations.snapshot() == at_write
    for pair in (read, write):
        assert not [name for name in dir(pair) if not name.startswith("_")]
        with pytest.raises(NotConstructibleError):
            type(pair)(group, slot)
        with pytest.raises(UseAfterMoveError):
            pair._part("again")
    for kind in (CheckedRead, CheckedWrite):
        assert not [name for name in vars(kind) if not name.startswith("_")]


@pytest.mark.clause("g1-descriptor-shape")
def test_a_descriptor_has_span_layout_and_placement_and_an_injective_form(
    kernel: Any,
) -> None:
    with kernel.owner((3, 4)).as_view_mut() as m:
        descriptor = m.descriptor()
        assert descriptor.span.byte_range == range(96)
        assert descriptor.span.dtype == np.float64
        assert set(get_args(CheckedLayout)) == {Contiguous, CheckedStrided}
        assert isinstance(descriptor.layout, Contiguous)
        assert descriptor.layout.element_range == range(12)
        assert isinstance(m[:, ::2].descriptor().layout, CheckedStrided)
        assert descriptor.placement == "host"
        injective = m._injective("test")
        assert isinstance(injective, CheckedInjectiveDescriptor)
        assert injective.descriptor is descriptor
    with pytest.raises(LayoutError):
        CheckedDescriptor()


@pytest.mark.clause("g1-validate-arithmetic")
@pytest.mark.parametrize(
    ("facts", "field"),
    [
        ({"shape": (2**62, 4)}, "shape"),
        ({"shape": (2**63, 0)}, "shape"),
        ({"shape": (-1,)}, "shape"),
        ({"shape": (1.5,)}, "shape"),
        ({"shape": (2,), "strides": (8, 8)}, "strides"),
        ({"shape": (2,), "strides": (2**63,)}, "byte_range"),
        ({"shape": (3,), "strides": (2**62,)}, "byte_range"),
        ({"shape": (1,), "offset": -8}, "offset"),
        ({"shape": (1,), "offset": 2**63}, "byte_range"),
    ],
)
def test_overflowing_or_inconsistent_arithmetic_is_refused(
    kernel: Any, facts: dict[str, Any], field: str
) -> None:
    assert refused(kernel.storage(64), dtype=np.float64, **facts).field == field


@pytest.mark.clause("g1-validate-bounds")
def test_reaching_outside_the_span_is_refused(kernel: Any) -> None:
    storage = kernel.storage(64)
    for facts in (
        {"shape": (9,)},
        {"shape": (8,), "offset": 8},
        {"shape": (2,), "strides": (-8,)},
        {"shape": (3,), "strides": (32,)},
        {"shape": (0,), "offset": 72},
    ):
        reason = refused(storage, dtype=np.float64, **facts)
        assert reason.field == "byte_range"
        assert reason.limit == "0..64"
    first, second = storage.split(32)  # the span is the claim's, not the root's
    assert refused(second, dtype=np.float64, shape=(5,)).limit == "0..32"
    assert refused(first, dtype=np.float64, shape=(5,)).limit == "0..32"
    group, (slot,) = AllocationGroup.of_owners(
        [second],
        [DescriptorRequest((4,), np.float64, strides=(-8,), offset=24)],
    )
    assert group.record(slot).byte_range == range(32, 64)
    with pytest.raises(IndexRangeError):
        _ = group.view(slot)[4]


@pytest.mark.clause("g1-validate-dtype")
def test_a_dtype_that_does_not_fit_the_bytes_is_refused(kernel: Any) -> None:
    storage = kernel.storage(64)
    for dtype in (object, "U4", "M8[s]", ">f8", [("a", "f8")], "no such type"):
        assert refused(storage, shape=(1,), dtype=dtype).field == "dtype"
    assert refused(storage, shape=(8,), dtype=np.complex128).field == "byte_range"


@pytest.mark.clause("g1-validate-alignment")
def test_a_start_or_stride_that_breaks_alignment_is_refused(kernel: Any) -> None:
    storage = kernel.storage(64)
    for facts in (
        {"shape": (1,), "offset": 4},
        {"shape": (2,), "strides": (12,)},
        {"shape": (2, 2), "strides": (16, 4)},
    ):
        assert refused(storage, dtype=np.float64, **facts).field == "alignment"
    AllocationGroup.of_owners(
        [storage],
        [DescriptorRequest((2,), np.float32, offset=4, strides=(12,))],
    )


@pytest.mark.clause("g1-validate-compatibility")
def test_what_the_provider_cannot_serve_is_refused(kernel: Any) -> None:
    kernel.host.refused_dtypes.add("float64")
    reason = refused(kernel.storage(64), shape=(1,), dtype=np.float64)
    assert reason.field == "provider"
    assert "host" in str(reason.limit)
    AllocationGroup.of_owners(
        [kernel.storage(64)], [DescriptorRequest((1,), np.float32)]
    )


@pytest.mark.clause("g1-validate-injective")
def test_a_write_layout_with_overlapping_elements_is_refused(kernel: Any) -> None:
    group, slots = AllocationGroup.of_owners(
        [kernel.storage(64)],
        [
            DescriptorRequest((2, 2), np.float64, strides=(0, 8)),
            DescriptorRequest((3, 3), np.float64, strides=(8, 8)),
        ],
    )
    for slot in slots:
        group.view(slot).numpy()
        m = group.view_mut(slot)
        for write in (m.write, m.prepare_host_mut, m.checked_write):
            with pytest.raises(LayoutError) as caught:
                write()
            assert caught.value.field == "injectivity"
        assert m.shape == group.record(slot).layout.shape  # still the caller's
        m.close()


@pytest.mark.clause("g1-derive-validates-new-facts")
def test_deriving_checks_the_new_facts_and_carries_the_old_proofs(kernel: Any) -> None:
    tensor = kernel.owner((4, 6))
    with tensor.as_view() as view:
        before = validations.snapshot()
        derived = view[::-1, 1:5:2].permute_dims((1, 0))
        flat = view.reshape((24,)).reshape((2, 12))
        wide = view[:1].broadcast_to((3, 6))
        assert validations.snapshot() == before
        array = np.arange(24.0).reshape(4, 6)
        assert np.array_equal(derived.numpy(), array[::-1, 1:5:2].T)
        assert np.array_equal(flat.numpy(), array.reshape(2, 12))
        assert np.array_equal(wide.numpy(), np.broadcast_to(array[:1], (3, 6)))
        for wrong in (
            lambda: view[4],
            lambda: view[0, 0, 0],
            lambda: view.permute_dims((0, 0)),
            lambda: view.reshape((5, 5)),
            lambda: view.broadcast_to((4, 7)),
            lambda: view.permute_dims((1, 0)).reshape((24,)),
        ):
            with pytest.raises((IndexRangeError, ValueError)):
                wrong()
        del derived, flat, wide
    with tensor.as_view_mut() as m:
        m.fill(0.0)
        after = validations.injectivity
        m[1:, ::2].fill(1.0)  # the proof came along
        assert validations.injectivity == after


# ---- prepared access


@pytest.mark.clause("g1-prepared-shape", "g1-prepare-signature")
def test_preparation_gives_a_closed_union_and_returns_the_same_pairing_on_failure(
    kernel: Any,
) -> None:
    assert get_args(PreparedRead) == (*get_args(PreparedHostRead), PreparedDeviceRead)
    assert get_args(PreparedWrite) == (
        *get_args(PreparedHostWrite),
        PreparedDeviceWrite,
    )
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    for target, kind in (
        (AccessTarget.Host, PreparedContiguousRead),
        (AccessTarget.Device, PreparedDeviceRead),
    ):
        prepared = prepare_read(group.view(slot).checked_read(), target)
        assert type(prepared) is kind
        prepared.close()
    kernel.mapped.short = True  # mapping works, using it fails: it must be undone
    pair = group.view(slot).checked_read()
    maps = kernel.mapped.maps
    with pytest.raises(AccessError) as caught:
        prepare_read(pair, AccessTarget.Host)
    assert caught.value.recovered is pair
    assert kernel.mapped.maps == maps + 1
    assert kernel.mapped.unmaps == kernel.mapped.maps
    kernel.mapped.short = False
    prepare_read(pair, AccessTarget.Host).close()
    kernel.mapped.fail = True
    write = group.view_mut(slot).checked_write()
    for target in AccessTarget:
        with pytest.raises(AccessError) as caught:
            prepare_write(write, target)
        assert caught.value.recovered is write
    del write, caught
    m = group.view_mut(slot)
    with pytest.raises(AccessError) as caught:
        m.prepare_host_mut()
    assert caught.value.recovered is m
    kernel.mapped.fail = False
    m.prepare_host_mut().close()
    assert kernel.mapped.unmaps == kernel.mapped.maps


@pytest.mark.clause("g1-traversal-chosen-once", "g1-contiguous-loop")
def test_host_preparation_picks_one_traversal_and_offers_no_other(kernel: Any) -> None:
    owner = kernel.owner((3, 4))
    dense = owner.as_view().prepare_host()
    strided = owner.as_view()[:, ::-2].prepare_host()
    assert isinstance(dense, PreparedContiguousRead)
    assert isinstance(strided, PreparedStridedRead)
    surface = {"as_slice", "iter_contiguous", "as_strided_array", "iter_strided"}
    assert surface & set(dir(dense)) == {"as_slice", "iter_contiguous"}
    assert surface & set(dir(strided)) == {"as_strided_array", "iter_strided"}
    flat = dense.as_slice()
    assert (flat.ndim, flat.dtype, flat.flags.writeable) == (1, np.float64, False)
    assert [*dense.iter_contiguous()] == [*range(12)]
    assert [*strided.iter_strided()] == [3, 1, 7, 5, 11, 9]
    del flat
    dense.close()
    strided.close()
    with owner.as_view_mut() as m:
        cells = m.as_view_mut().prepare_host_mut()
        assert isinstance(cells, PreparedContiguousWrite)
        for k, cell in enumerate(cells.iter_contiguous_mut()):
            cell[...] = -k
        del cell
        cells.close()
        some = m[1:, ::3].prepare_host_mut()
        assert isinstance(some, PreparedStridedWrite)
        for cell in some.iter_strided_mut():
            cell[...] = 9
        del cell
        some.close()
    assert owner.numpy().tolist() == [[0, -1, -2, -3], [9, -5, -6, 9], [9, -9, -10, 9]]


@pytest.mark.clause("g1-as-view-no-work")
def test_views_of_an_owner_allocate_nothing_and_ask_nobody(kernel: Any) -> None:
    storage = kernel.mapped_storage(1 << 16)
    group, (slot,) = AllocationGroup.of_owners(
        [storage], [DescriptorRequest((1 << 13,), np.float64)]
    )
    owner = group.into_tensor(slot)
    before = validations.snapshot()
    descriptor = owner.descriptor()
    with owner.as_view() as v, v.as_view() as w:
        assert v.descriptor() is w.descriptor() is descriptor
        assert strong(owner) == 1
    with owner.as_view_mut() as m:
        assert m.descriptor() is descriptor
        assert strong(owner) == 1
        with m.as_view() as r, pytest.raises(BorrowConflictError):
            assert r.descriptor() is descriptor
            m.as_view_mut()
    assert (kernel.mapped.calls, kernel.mapped.maps, kernel.mapped.bindings) == (0,) * 3
    assert validations.snapshot() == before


@pytest.mark.clause("g1-soundness-without-finalisers")
def test_an_object_that_is_never_collected_costs_memory_and_never_safety(
    kernel: Any,
) -> None:
    owner = kernel.owner((4,))
    forgotten = [owner.as_view()]
    forgotten.append(forgotten)  # only a cycle keeps it
    with pytest.raises(BorrowConflictError):
        owner.as_view_mut()
    with pytest.raises(BorrowConflictError):
        owner._part("move")
    forgotten[0].close()
    array = owner.numpy()
    del owner
    assert kernel.released == []  # the lent array keeps its root
    assert array.tolist() == [0, 1, 2, 3]
    del array
    assert kernel.released == [32]


# ---- state rows: capability, borrow, synchronisation, failure, panic/drop, reclamation


@pytest.mark.clause("g1-row-owner-to-shared-view")
def test_row_owner_to_shared_view(kernel: Any) -> None:
    owner = kernel.owner((4,))
    cell = owner._owner_storage._borrow
    view = owner.as_view()
    assert cell.outstanding == "shared"  # capability
    assert cell.shared_count == 1  # borrow: lasts while the view lives
    view.as_view().close()
    assert cell.shared_count == 1
    assert kernel.host.calls == 0  # synchronisation: none
    with owner.as_view():  # failure: none once borrows allow it
        pass
    with pytest.raises(BorrowConflictError):  # panic/drop: borrow rules still hold
        owner.as_view_mut()
    with pytest.raises(RuntimeError, match="inside"), view:
        raise RuntimeError("inside")
    assert cell.outstanding is None
    kept = owner.as_view()
    del owner
    assert kernel.released == []
    del kept
    assert kernel.released == [32]  # reclamation: with owner and root


@pytest.mark.clause("g1-row-owner-to-mut-view")
def test_row_owner_to_mutable_view(kernel: Any) -> None:
    owner = kernel.owner((4,))
    cell = owner._owner_storage._borrow
    view = owner.as_view_mut()
    assert cell.outstanding == "exclusive"  # capability
    for call in (owner.as_view, owner.as_view_mut):  # borrow: while the view lives
        with pytest.raises(BorrowConflictError):
            call()
    assert kernel.host.calls == 0  # synchronisation: none
    assert not view._moved_by  # failure: none once borrows allow it
    with pytest.raises(RuntimeError, match="inside"), view:
        view.fill(5.0)
        raise RuntimeError("inside")
    assert cell.outstanding is None  # panic/drop: the borrow ended, bytes stay
    assert owner.numpy().tolist() == [5.0] * 4
    kept = owner.as_view_mut()
    del owner, call
    assert kernel.released == []
    del kept, view
    assert kernel.released == [32]  # reclamation: with owner and root


@pytest.mark.clause("g1-row-prepare-read")
def test_row_prepare_read(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    pair = group.view(slot).checked_read()
    kernel.mapped.fail = True
    with pytest.raises(AccessError) as caught:
        prepare_read(pair, AccessTarget.Host)
    assert caught.value.recovered is pair  # failure: the same pairing
    del caught
    kernel.mapped.fail = False
    proofs = validations.snapshot()
    prepared = prepare_read(pair, AccessTarget.Host)
    assert group._cell.outstanding == "shared"  # capability, inside the payload
    with pytest.raises(BorrowConflictError):  # borrow travels with the payload
        group.view_mut(slot)
    assert kernel.mapped.maps == 1  # synchronisation: one map, no proof again
    assert validations.snapshot() == proofs
    del prepared, pair
    assert kernel.mapped.unmaps == 1  # panic/drop: provider state is released
    assert group._cell.outstanding is None
    assert kernel.released == []
    del group
    assert kernel.released == [64]  # reclamation: with owner and root


@pytest.mark.clause("g1-row-prepare-write")
def test_row_prepare_write(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    pair = group.view_mut(slot).checked_write()
    kernel.mapped.fail = True
    with pytest.raises(AccessError) as caught:
        prepare_write(pair, AccessTarget.Host)
    assert caught.value.recovered is pair  # failure: the same pairing
    del caught
    kernel.mapped.fail = False
    proofs = validations.snapshot()
    prepared = prepare_write(pair, AccessTarget.Host)
    assert group._cell.outstanding == "exclusive"  # capability, inside the payload
    with pytest.raises(BorrowConflictError):  # borrow travels with the payload
        group.view(slot)
    assert kernel.mapped.maps == 1  # synchronisation: one map, no proof again
    assert validations.snapshot() == proofs
    assert isinstance(prepared, PreparedContiguousWrite)
    prepared.as_slice_mut()[...] = 3.0
    del prepared, pair
    assert kernel.mapped.unmaps == 1  # panic/drop: provider state is released
    assert group._cell.outstanding is None
    assert group.view(slot).numpy().tolist() == [3.0] * 8
    assert kernel.released == []
    del group
    assert kernel.released == [64]  # reclamation: with owner and root


@pytest.mark.clause("g1-row-host-return")
def test_row_host_access_ends_inside_the_call_that_used_it(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )

    def total(group: AllocationGroup, fail: bool = False) -> float:
        prepared = group.view(slot).prepare_host()
        assert isinstance(prepared, PreparedContiguousRead)
        assert group._cell.outstanding == "shared"  # capability and borrow: the call
        if fail:
            raise RuntimeError("inside")
        return float(prepared.as_slice().sum())

    assert total(group) == 0.0
    assert kernel.mapped.maps == kernel.mapped.unmaps == 1  # synchronisation: over
    with pytest.raises(RuntimeError, match="inside") as caught:  # failure: after it
        total(group, fail=True)
    del caught
    assert kernel.mapped.maps == kernel.mapped.unmaps == 2  # panic/drop: nothing left
    assert group._cell.outstanding is None
    m = group.view_mut(slot)
    m.fill(1.0)
    m.close()
    assert kernel.mapped.maps == kernel.mapped.unmaps == 3
    array = group.view(slot).numpy()
    del group
    assert kernel.released == []
    del array, m
    assert kernel.released == [64]  # reclamation: guard and owner are gone
    assert kernel.mapped.maps == kernel.mapped.unmaps == 4


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.clause("g1-validate-once", "g1-contiguous-loop")
def test_provider_and_proof_counts_do_not_depend_on_the_element_count(
    kernel: Any, size: int
) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(size * 8)], [DescriptorRequest((size,), np.float64)]
    )
    proofs = validations.snapshot()
    prepared = group.view(slot).prepare_host()
    assert isinstance(prepared, PreparedContiguousRead)
    assert sum(1 for _ in prepared.iter_contiguous()) == size
    prepared.close()
    assert (kernel.mapped.maps, kernel.mapped.unmaps) == (1, 1)
    assert validations.snapshot() == proofs
