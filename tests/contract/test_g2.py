"""G2: `AllocationGroup`. One test for each clause of the host stage, named after it."""

from __future__ import annotations

import ast
import copy
import inspect
import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad.errors import (
    AccessError,
    BorrowConflictError,
    DisjointViewError,
    ExtractError,
    GroupConstructionError,
    InvalidExtractSlotError,
    InvalidSlotError,
    LayoutError,
    NonInjectiveError,
    NotCloneableError,
    NotProvablyDisjointError,
    OverlapError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    AllocationGroup,
    CheckedLayout,
    DescriptorRecord,
    DescriptorRequest,
    DescriptorSlot,
    OwnedSpanClaim,
    OwnedStorage,
    Tensor,
    TensorView,
    TensorViewMut,
    WriteInjectivityProof,
    validations,
)

SOURCES = Path(storage_package.__file__).parent
F8 = np.float64


def state(group: AllocationGroup) -> tuple[Any, ...]:
    """Everything that a refused operation must leave alone."""
    return (
        [owner and owner.span for owner in group._allocations],
        [None if r is None else id(r) for r in group._descriptors],
        group._cell.outstanding,
    )


def halves(kernel: Any) -> tuple[AllocationGroup, tuple[DescriptorSlot, ...]]:
    """Slots: the whole, its first half, its second half, evens, odds."""
    base = np.arange(8.0)
    return kernel.group(base, base, base[:4], base[4:], base[::2], base[1::2])


# ---- shapes


@pytest.mark.clause("g2-group-shape", "g2-record-shape")
def test_a_group_has_move_out_entries_and_append_only_records(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.storage(64)], [DescriptorRequest((4,), F8, strides=(16,), offset=0)]
    )
    assert [type(entry) for entry in group._allocations] == [OwnedStorage]
    assert [type(entry) for entry in group._descriptors] == [DescriptorRecord]
    record = group.record(slot)
    assert record.allocation == 0
    assert record.dtype == F8
    assert isinstance(record.layout, CheckedLayout)
    assert record.byte_range == range(56)
    assert record.placement == record.provider == "host"
    assert record.storage == group._allocations[0].span
    assert record.write_injectivity is None
    group.split_mut([slot])[0].close()
    assert isinstance(record.write_injectivity, WriteInjectivityProof)
    public = {name for name in dir(group) if not name.startswith("_")}
    assert not {"allocations", "descriptors", "storage", "owners"} & public


@pytest.mark.clause("g2-slot-shape")
def test_a_slot_is_a_copyable_key_that_opens_nothing_and_only_fits_its_group(
    kernel: Any,
) -> None:
    group, (slot, *_) = halves(kernel)
    twin = copy.copy(slot)
    assert twin == slot
    assert copy.deepcopy(slot) == slot
    assert group.view(twin).shape == (8,)
    assert not [name for name in dir(slot) if not name.startswith("_")]
    with pytest.raises(InvalidSlotError):
        DescriptorSlot()
    with pytest.raises(InvalidSlotError):
        pickle.dumps(slot)
    other, (theirs, *_) = halves(kernel)
    assert theirs != slot
    for call in (
        other.view,
        other.view_mut,
        other.remove,
        other.try_extract,
        lambda s: other.split_mut([s]),
        other.into_tensor,
    ):
        before = state(other)
        with pytest.raises(InvalidSlotError, match="another group"):
            call(slot)
        assert state(other) == before


# ---- construction


@pytest.mark.clause("g2-owner-in-one-entry")
def test_each_owner_sits_in_one_entry_only(kernel: Any) -> None:
    a, b = kernel.storage(16), kernel.storage(16)
    with pytest.raises(GroupConstructionError) as caught:
        AllocationGroup.of_owners([a, b, a], [])
    assert caught.value.reason == "duplicate-owner"
    assert caught.value.slots == (0, 2)
    group, _ = AllocationGroup.of_owners([a, b], [])
    assert len(group._allocations) == 2
    with pytest.raises(UseAfterMoveError):
        AllocationGroup.of_owners([a], [])
    t = kernel.owner((2,))
    with pytest.raises(GroupConstructionError):
        AllocationGroup.of_tensors([t, t])
    assert t.shape == (2,)


@pytest.mark.clause("g2-overlapping-owners")
def test_owners_with_overlapping_spans_are_refused(kernel: Any) -> None:
    whole = kernel.storage(64)
    # Safe code cannot make overlapping claims; forge one to see that it is caught.
    forged = OwnedSpanClaim._make(whole._claim._root.clone(), 32, 64)
    overlapping = OwnedStorage._make(forged)
    with pytest.raises(GroupConstructionError) as caught:
        AllocationGroup.of_owners([whole, overlapping], [])
    assert caught.value.reason == "overlap"
    assert caught.value.recovered == (whole, overlapping)
    del caught, forged, overlapping
    first, second = whole.split(32)
    group, slots = AllocationGroup.of_owners(
        [second, first],
        [DescriptorRequest((4,), F8, 0), DescriptorRequest((4,), F8, 1)],
    )
    assert len(group.split_mut(slots)) == 2


@pytest.mark.clause("g2-stable-entries", "g2-slots-append-only")
def test_moving_out_and_removing_never_shift_or_reuse_an_index(kernel: Any) -> None:
    tensors = [kernel.owner((n,)) for n in (2, 3, 4)]
    group, (a, b, c) = AllocationGroup.of_tensors(tensors)
    moved = group.try_extract(b)
    assert moved.shape == (3,)
    assert [entry is None for entry in group._allocations] == [False, True, False]
    assert group.view(c).shape == (4,)
    group.remove(a)
    new = group.insert(c, DescriptorRequest((2,), F8))
    assert new not in (a, b, c)
    assert group.slots == (c, new)
    for vacant in (a, b):
        with pytest.raises(InvalidSlotError, match="vacant"):
            group.view(vacant)
    with pytest.raises(InvalidSlotError):
        group.remove(a)


@pytest.mark.clause("g2-validate-before-publish", "g2-test-construction")
def test_bad_facts_are_refused_while_building_and_kept_facts_are_not_recomputed(
    kernel: Any,
) -> None:
    storage = kernel.storage(64)
    kernel.host.refused_dtypes.add("float32")
    for field, facts in {
        "shape": {"shape": (-1,), "dtype": F8},
        "strides": {"shape": (2,), "dtype": F8, "strides": ()},
        "byte_range": {"shape": (9,), "dtype": F8},
        "alignment": {"shape": (1,), "dtype": F8, "offset": 4},
        "dtype": {"shape": (1,), "dtype": object},
        "provider": {"shape": (1,), "dtype": np.float32},
        "allocation": {"shape": (1,), "dtype": F8, "allocation": 1},
    }.items():
        good = DescriptorRequest((8,), F8)
        with pytest.raises(GroupConstructionError) as caught:
            AllocationGroup.of_owners([storage], [good, DescriptorRequest(**facts)])
        assert isinstance(caught.value.__cause__, LayoutError)
        assert caught.value.__cause__.field == field
        assert caught.value.slots == (1,)
        assert caught.value.recovered == (storage,)
        del caught
    group, (slot,) = AllocationGroup.of_owners([storage], [good])
    before = state(group)
    with pytest.raises(LayoutError):
        group.insert(slot, DescriptorRequest((9,), F8))
    assert state(group) == before
    proofs = validations.layout
    group.view(slot).close()
    group.view_mut(slot).close()
    group.split_mut([slot])[0].close()
    group.try_extract(slot)
    assert validations.layout == proofs


@pytest.mark.clause("g2-aliases-allowed")
def test_descriptors_may_overlap_or_repeat_each_other(kernel: Any) -> None:
    group, (whole, half, *_) = halves(kernel)
    twin = group.insert(whole, DescriptorRequest((8,), F8))
    with group.view(whole) as a, group.view(twin) as b, group.view(half) as c:
        assert np.array_equal(a.numpy(), b.numpy())
        assert c.numpy().tolist() == [0, 1, 2, 3]
    assert whole != twin


@pytest.mark.clause("g2-lifetime-from-owners")
def test_bytes_live_as_long_as_the_owners_in_the_entries(kernel: Any) -> None:
    group, (whole, *rest) = halves(kernel)
    records = [group.record(slot) for slot in (whole, *rest)]
    assert group._allocations[0]._claim._root.strong_count == 1
    for slot in rest:
        group.remove(slot)
    assert kernel.released == []
    del group
    assert kernel.released == [64]
    assert records[0].byte_range == range(64)


@pytest.mark.clause("g2-mutation-needs-exclusive")
def test_changing_or_extracting_needs_the_exclusive_borrow(kernel: Any) -> None:
    group, (whole, half, *_) = halves(kernel)
    changes = [
        lambda: group.insert(whole, DescriptorRequest((1,), F8)),
        lambda: group.remove(half),
        lambda: group.try_extract(whole),
        lambda: group.into_tensor(whole),
        lambda: group.split_mut([half]),
        lambda: group.view_mut(half),
    ]
    with group.view(whole):
        before = state(group)
        for change in changes:
            with pytest.raises(BorrowConflictError):
                change()
            assert state(group) == before
    children = group.split_mut([half])
    for change in changes:
        with pytest.raises(BorrowConflictError):
            change()
    children[0].close()
    group.remove(half)


# ---- operations


@pytest.mark.clause("g2-view-signature")
def test_view_gives_any_number_of_overlapping_read_views(kernel: Any) -> None:
    group, slots = halves(kernel)
    views = [group.view(slot) for slot in (*slots, *slots)]
    assert all(isinstance(view, TensorView) for view in views)
    assert group._cell.shared_count == 10
    for view in views:
        view.close()
    assert group._cell.outstanding is None
    with pytest.raises(InvalidSlotError):
        group.view(halves(kernel)[1][0])


@pytest.mark.clause("g2-view-mut-signature")
def test_view_mut_is_the_one_view_and_locks_the_whole_group(kernel: Any) -> None:
    group, (_, first, second, *_) = halves(kernel)
    view = group.view_mut(first)
    assert isinstance(view, TensorViewMut)
    for call in (
        lambda: group.view(second),
        lambda: group.view_mut(second),
        lambda: group.split_mut([second]),
    ):
        with pytest.raises(BorrowConflictError) as caught:
            call()
        assert caught.value.outstanding == "exclusive"
    view.close()
    group.view(second).close()


@pytest.mark.clause("g2-split-mut-signature", "g2-children-hold-borrow")
def test_split_children_hold_the_one_borrow_until_the_last_of_them_ends(
    kernel: Any,
) -> None:
    group, (whole, first, second, *_) = halves(kernel)
    children = group.split_mut([first, second])
    assert [type(child) for child in children] == [TensorViewMut, TensorViewMut]
    for child in children:
        with pytest.raises(NotCloneableError):
            copy.copy(child)
    children[0].fill(1.0)
    children[1].fill(2.0)
    children.pop().close()
    for call in (group.view, group.view_mut, group.try_extract):
        with pytest.raises(BorrowConflictError):
            call(whole)
    lent = children[0].write()
    children.pop().close()
    with pytest.raises(BorrowConflictError):
        group.view(whole)
    del lent
    assert group.view(whole).numpy().tolist() == [1.0] * 4 + [2.0] * 4


@pytest.mark.clause("g2-try-extract-signature", "g2-extract-aliased")
def test_try_extract_moves_the_owner_only_of_a_sole_descriptor(kernel: Any) -> None:
    base = np.zeros(4)
    group, (whole, half) = kernel.group(base, base, base[:2])
    before = state(group)
    with pytest.raises(ExtractError) as caught:
        group.try_extract(half)
    assert caught.value.reason == "aliased-allocation"
    assert caught.value.slots == (1, 0)
    assert state(group) == before
    assert kernel.host.calls == 0  # no copy stood in for the refusal
    group.remove(whole)
    tensor = group.try_extract(half)
    assert isinstance(tensor, Tensor)
    assert tensor.shape == (2,)
    assert group._allocations == [None]
    with pytest.raises(InvalidExtractSlotError):
        group.try_extract(half)


@pytest.mark.clause("g2-into-tensor-signature")
def test_into_tensor_uses_up_the_group_and_keeps_one_value(kernel: Any) -> None:
    group, (slot, other) = AllocationGroup.of_tensors(
        [kernel.owner((2,)), kernel.owner((4,))]
    )
    group.remove(other)
    with pytest.raises(ExtractError) as caught:
        group.into_tensor(other)
    assert caught.value.recovered is group
    del caught
    tensor = group.into_tensor(slot)
    assert tensor.numpy().tolist() == [0, 1]
    assert kernel.released == [32]  # the other owner went, openly
    assert group.is_moved
    with pytest.raises(UseAfterMoveError, match="into_tensor"):
        group.view(slot)


@pytest.mark.clause("g2-resolution-through-borrow")
def test_lookup_checks_position_and_occupancy_and_nothing_more(kernel: Any) -> None:
    group, slots = halves(kernel)
    proofs = validations.snapshot()
    for slot in slots:
        assert not hasattr(group.view(slot), "write")
    assert group.view_mut(slots[0]).write().flags.writeable
    assert validations.layout == proofs[0]
    group.remove(slots[1])
    for call in (group.view, group.view_mut, group.record, group.try_extract):
        with pytest.raises(InvalidSlotError) as caught:
            call(slots[1])
        assert caught.value.slots == (1,)
    with pytest.raises(InvalidSlotError, match="`int`"):
        group.view(0)  # type: ignore[arg-type]


@pytest.mark.clause("g2-split-no-revalidation", "g2-proof-injectivity-once")
def test_split_reuses_facts_and_settles_injectivity_once(kernel: Any) -> None:
    storage = kernel.mapped_storage(64)
    group, slots = AllocationGroup.of_owners(
        [storage],
        [
            DescriptorRequest((2,), F8, strides=(16,)),
            DescriptorRequest((4,), F8, offset=32),
        ],
    )
    layouts, injective, disjoint = validations.snapshot()
    for child in group.split_mut(slots):
        child.close()
    assert validations.snapshot() == (layouts, injective + 2, disjoint + 1)
    for _ in range(3):
        for child in group.split_mut(slots):
            child.close()
    assert validations.snapshot() == (layouts, injective + 2, disjoint + 4)
    assert (kernel.mapped.maps, kernel.mapped.bindings) == (0, 0)


@pytest.mark.clause("g2-no-ad-bookkeeping")
def test_group_code_knows_nothing_of_derivatives() -> None:
    words = {"tape", "grad", "gradient", "eager", "record_of", "tokens", "handle"}
    for name in ("_group.py", "_slots.py", "_disjoint.py", "_capability.py"):
        tree = ast.parse((SOURCES / name).read_text(encoding="utf-8"))
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        used |= {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                used |= {(node.module or "").strip("_")}
        assert not words & used, name


# ---- the disjointness proof


@pytest.mark.clause("g2-proof-module-and-order")
def test_one_module_proves_disjointness_before_any_child_exists(kernel: Any) -> None:
    from tenferro_ad.storage import _disjoint

    source = inspect.getsource(_disjoint)
    order = ["request.proof", "prove_injective(", "partitions", ".size", "span.start"]
    places = [source.index(step, source.index("def prove_disjoint")) for step in order]
    assert places == sorted(places)
    raisers = {
        file.name
        for file in SOURCES.glob("*.py")
        if "raise OverlapError" in (text := file.read_text(encoding="utf-8"))
        or "raise NotProvablyDisjointError" in text
    }
    assert raisers == {"_disjoint.py"}
    group, (whole, first, *_) = halves(kernel)
    with pytest.raises(OverlapError):
        group.split_mut([whole, first])
    assert group._cell.outstanding is None
    group.view(whole).close()


@pytest.mark.clause("g2-proof-partition")
def test_entries_are_compared_apart_and_empty_descriptors_overlap_nothing(
    kernel: Any,
) -> None:
    a, b = kernel.storage(64).split(32)
    group, slots = AllocationGroup.of_owners(
        [a, b, kernel.storage(32)],
        [
            DescriptorRequest((4,), F8, 0),
            DescriptorRequest((4,), F8, 1),
            DescriptorRequest((4,), F8, 2),
            DescriptorRequest((0,), F8, 0, offset=8),
            DescriptorRequest((3, 0), F8, 1),
            DescriptorRequest((2,), F8, 0, offset=16),
        ],
    )
    children = group.split_mut(slots[:5])
    assert [child.size for child in children] == [4, 4, 4, 0, 0]
    for child in children:
        child.close()
    with pytest.raises(OverlapError) as caught:
        group.split_mut([*slots[1:5], slots[5], slots[0]])
    assert caught.value.slots == (0, 5)


@pytest.mark.clause("g2-conservative-rejection")
def test_interleaved_strides_are_refused_without_enumerating_elements(
    kernel: Any,
) -> None:
    group, (_, _, _, evens, odds) = halves(kernel)
    with pytest.raises(NotProvablyDisjointError) as caught:
        group.split_mut([evens, odds])
    assert caught.value.slots == (3, 4)
    assert caught.value.reason == "not-provably-disjoint"
    big = 1 << 40  # enumerating would never end
    huge = AllocationGroup.of_owners
    storage = kernel.mapped_storage(64)
    storage._resource.capacity_bytes = big * 16
    storage._claim._stop = big * 16
    group, slots = huge(
        [storage],
        [
            DescriptorRequest((big,), F8, strides=(16,)),
            DescriptorRequest((big,), F8, strides=(16,), offset=8),
        ],
    )
    with pytest.raises(NotProvablyDisjointError):
        group.split_mut(slots)


@pytest.mark.clause("g2-split-errors")
def test_split_fails_for_four_reasons_and_leaves_the_group_as_it_was(
    kernel: Any,
) -> None:
    base = np.arange(8.0)
    twice = np.lib.stride_tricks.as_strided(base, (2, 4), (0, 8))
    group, (whole, first, evens, odds, bad, gone) = kernel.group(
        base, base, base[:4], base[::2], base[1::2], twice, base
    )
    group.remove(gone)
    for slots, error in (
        ([first, gone], InvalidSlotError),
        ([kernel.group(np.zeros(1))[1][0]], InvalidSlotError),
        ([bad], NonInjectiveError),
        ([whole, first], OverlapError),
        ([first, first], OverlapError),
        ([evens, odds], NotProvablyDisjointError),
    ):
        before = state(group)
        with pytest.raises(error):
            group.split_mut(slots)
        assert state(group) == before
    allowed = {NonInjectiveError, OverlapError, NotProvablyDisjointError}
    assert set(DisjointViewError.__subclasses__()) == allowed


@pytest.mark.clause("g2-test-n-way")
def test_splits_of_no_one_and_many_members_agree_in_every_order(kernel: Any) -> None:
    base = np.zeros(12)
    parts = [base[9:], base[:3], base[8:5:-1], base[4:4], base[3:6], base[11:11]]
    group, slots = kernel.group(base, base, *parts)
    layouts = validations.layout
    assert group.split_mut([]) == []
    assert group._cell.outstanding is None
    for count in range(1, len(parts) + 1):
        children = group.split_mut(slots[1 : count + 1])
        for value, child in enumerate(children):
            child.fill(value + 1.0)
        for value, child in enumerate(children):
            assert child.numpy().tolist() == [value + 1.0] * child.size
        for child in children:
            child.close()
        del child
    assert validations.layout == layouts
    for chosen in itertools.permutations([slots[0], slots[2], slots[3]]):
        with pytest.raises(OverlapError) as caught:
            group.split_mut(chosen)
        assert caught.value.slots == (0, 2, 3)


@pytest.mark.clause("g2-test-extraction")
def test_counted_extraction_cases(kernel: Any) -> None:
    for descriptors in (1, 2, 3):
        released = len(kernel.released)
        base = np.zeros(4)
        group, slots = kernel.group(
            base, *[base[:n] for n in range(1, descriptors + 1)]
        )
        if descriptors > 1:
            with pytest.raises(ExtractError) as caught:
                group.try_extract(slots[0])
            assert len(caught.value.slots) == descriptors
            del caught
            tensor = group.into_tensor(slots[0])
        else:
            tensor = group.try_extract(slots[0])
            assert group.slots == ()
        assert tensor.shape == (1,)
        assert len(kernel.released) == released  # one owner moved, none released
        del group, tensor
        assert len(kernel.released) == released + 1
    assert kernel.host.calls == 3  # the releases; extraction asked nobody


# ---- state rows: capability, borrow, synchronisation, failure, panic/drop, reclamation


@pytest.mark.clause("g2-row-construct")
def test_row_construct(kernel: Any) -> None:
    owners = [kernel.mapped_storage(16), kernel.mapped_storage(32)]
    bad = DescriptorRequest((99,), F8)
    with pytest.raises(GroupConstructionError) as caught:
        AllocationGroup.of_owners(owners, [DescriptorRequest((2,), F8), bad])
    assert [*caught.value.recovered] == owners  # failure: all owners come back
    assert [owner.nbytes for owner in owners] == [16, 32]  # panic/drop: no half group
    del caught
    borrowed = owners[0].as_ref()
    with pytest.raises(GroupConstructionError):  # capability: owning
        AllocationGroup.of_owners(owners, [])
    borrowed.close()
    group, _ = AllocationGroup.of_owners(owners, [DescriptorRequest((2,), F8)])
    with pytest.raises(UseAfterMoveError):
        _ = owners[0].nbytes
    assert group._cell.outstanding is None  # borrow: none
    assert kernel.mapped.maps == 0  # synchronisation: none
    assert kernel.released == []
    del group
    assert sorted(kernel.released) == [16, 32]  # reclamation: by the owners


@pytest.mark.clause("g2-row-view")
def test_row_view(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), F8)]
    )
    view = group.view(slot)
    assert group._cell.outstanding == "shared"  # capability
    assert group._cell.shared_count == 1  # borrow: for the view
    assert kernel.mapped.maps == 0  # synchronisation: none; host bytes by a guard
    kernel.mapped.fail = True
    with pytest.raises(AccessError):
        view.numpy()
    before = state(group)
    stranger = halves(kernel)[1][0]
    with pytest.raises(InvalidSlotError):  # failure: slot error, group as before
        group.view(stranger)
    assert state(group) == before
    del view
    assert group._cell.outstanding is None  # panic/drop: the borrow ends
    assert kernel.released == [64]  # reclamation: only the stranger's group went
    assert group.nbytes == 64


@pytest.mark.clause("g2-row-view-mut")
def test_row_view_mut(kernel: Any) -> None:
    group, (whole, half, *_) = halves(kernel)
    view = group.view_mut(half)
    assert group._cell.outstanding == "exclusive"  # capability
    with pytest.raises(BorrowConflictError):  # borrow: the group, for the view
        group.view(whole)
    assert kernel.host.calls == 0  # synchronisation: none
    view.close()
    before = state(group)
    with pytest.raises(InvalidSlotError):  # failure: slot error, group as before
        group.view_mut(kernel.group(np.zeros(1))[1][0])
    assert state(group) == before
    with pytest.raises(RuntimeError, match="inside"), group.view_mut(half) as m:
        m.fill(9.0)
        raise RuntimeError("inside")
    del m
    assert group._cell.outstanding is None  # panic/drop: borrow ends, bytes stay
    assert group.view(whole).numpy().tolist() == [9, 9, 9, 9, 4, 5, 6, 7]
    assert 64 not in kernel.released  # reclamation: not affected


@pytest.mark.clause("g2-row-split-mut")
def test_row_split_mut(kernel: Any) -> None:
    group, (whole, first, second, *_) = halves(kernel)
    proofs = validations.layout
    children = group.split_mut([first, second])
    assert group._cell.outstanding == "exclusive"  # capability
    assert group._allocations[0]._claim._root.strong_count == 1  # borrow: divided
    assert group._allocations[0]._borrow.outstanding is None
    assert kernel.host.calls == 0  # synchronisation: none, nothing rechecked
    assert validations.layout == proofs
    del children
    before = state(group)
    with pytest.raises(OverlapError):  # failure: typed, group as before
        group.split_mut([second, first, whole])
    assert state(group) == before  # panic/drop: no partial set of children
    assert group._cell.outstanding is None
    assert kernel.released == []  # reclamation: not affected


@pytest.mark.clause("g2-row-try-extract")
def test_row_try_extract(kernel: Any) -> None:
    group, (a, b) = AllocationGroup.of_tensors([kernel.owner((2,)), kernel.owner((4,))])
    view = group.view(b)
    with pytest.raises(BorrowConflictError):  # capability: exclusive, during the call
        group.try_extract(a)
    view.close()
    twin = group.insert(a, DescriptorRequest((2,), F8))
    before = state(group)
    with pytest.raises(ExtractError):  # failure: alias reason, group as before
        group.try_extract(a)
    assert state(group) == before
    group.remove(twin)
    tensor = group.try_extract(a)  # borrow: the local descriptor count decided
    assert group._cell.outstanding is None
    assert kernel.host.calls == 0  # synchronisation: none
    with pytest.raises(InvalidSlotError):  # panic/drop: both entries stay vacant
        group.view(a)
    assert group._allocations[0] is None
    assert group.view(b).shape == (4,)
    del tensor
    assert kernel.released == [16]  # reclamation: the moved owner's own


@pytest.mark.clause("g2-row-into-tensor")
def test_row_into_tensor(kernel: Any) -> None:
    group, (a, b) = AllocationGroup.of_tensors([kernel.owner((2,)), kernel.owner((4,))])
    with group.view(a), pytest.raises(BorrowConflictError) as caught:
        group.into_tensor(a)
    assert caught.value.requested == "owning"  # capability
    del caught
    stranger = kernel.group(np.zeros(1))[1][0]
    before = state(group)
    with pytest.raises(ExtractError) as failed:  # failure: the same group, unchanged
        group.into_tensor(stranger)
    assert failed.value.recovered is group
    assert state(group) == before
    del failed
    released = len(kernel.released)
    calls = kernel.host.calls
    tensor = group.into_tensor(a)
    assert group.is_moved  # borrow: none remains, the group is used up
    assert kernel.host.calls == calls + 1  # synchronisation: none, one release
    assert kernel.released[released:] == [32]  # panic/drop: other claims, once
    assert not group._allocations
    with pytest.raises(UseAfterMoveError):
        group.view(b)
    del tensor
    assert kernel.released[released:] == [32, 16]  # reclamation: chosen owner under G1
