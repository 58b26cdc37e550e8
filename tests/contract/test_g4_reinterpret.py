"""G4, G7: reinterpretation of storage and of retained values, clause by clause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine._fn_reinterpret import view_as_complex, view_as_real
from tenferro_ad.errors import (
    BorrowConflictError,
    DTypeError,
    ExpiredCapabilityError,
    LayoutError,
    NotUniqueError,
    ShapeError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    RANKS,
    AllocationGroup,
    DescriptorRequest,
    DynRank,
    Rank1,
    Rank2,
    Rank3,
    TypedTensor,
    TypedTensorView,
    TypedTensorViewMut,
    scalar_pairs,
    validations,
)

PAIRS = scalar_pairs()


def facts(dtype: str) -> np.ndarray[Any, Any]:
    """A (3, 2) array whose every element has other bytes."""
    array = np.zeros((3, 2), dtype)
    size = array.dtype.itemsize
    raw = array.view(np.uint8).reshape(6, size)
    for part in range(0, size, max(size // 2, 1)):
        raw[:, part] = np.arange(1, 7) + part
    return array


def seen_as(array: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    """What NumPy reads from the same bytes, with the documented change of rank."""
    size, new = array.dtype.itemsize, np.dtype(dtype)
    if new.itemsize == size:
        return array.view(new)
    if new.itemsize < size:
        return array.view(new).reshape(*array.shape, 2)
    return array.view(new)[..., 0]


def same_bits(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()


def test_the_list_of_pairs_is_symmetric_and_leaves_booleans_out() -> None:
    assert {(b, a) for a, b in PAIRS} == set(PAIRS)
    assert len(PAIRS) == 4 + 2 + 3 * 6
    assert not any("bool" in pair for pair in PAIRS)
    for a, b in PAIRS:
        ratio = np.dtype(a).itemsize / np.dtype(b).itemsize
        assert ratio == (1 if "complex" not in a + b else 2 if "complex" in a else 0.5)


@pytest.mark.clause("g4-reinterpret-test", "g4-reinterpret-same-root")
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_every_pair_reads_and_writes_the_same_root_without_copy_or_event(
    kernel: Any, source: str, target: str
) -> None:
    array = facts(source)
    wanted = seen_as(array.copy(), target)
    owner = kernel.owner((3, 2), source)
    with owner.as_view_mut() as m:
        m.write()[...] = array
    span, diagnostics = owner.span, owner._owner_storage._resource.diagnostics
    placement = owner.descriptor().placement
    strong = owner._owner_storage._claim._root
    calls = kernel.host.calls
    with ta.ledger() as seen:
        with owner.as_view() as view:  # read-only
            read = view.reinterpret(np.dtype(target).type)
            assert same_bits(read.numpy(), wanted)
            assert np.shares_memory(read.numpy(), owner.numpy())
            read.close()
        with owner.as_view_mut() as m:  # exclusive
            changed = m.reinterpret_mut(np.dtype(target).type)
            with pytest.raises(BorrowConflictError):
                m.fill(0)  # it waits for the reinterpretation
            changed.write()[...] = wanted[::-1]
            changed.close()
        assert strong.strong_count == 1
        moved = owner.into_reinterpreted(np.dtype(target).type)  # consuming
        assert same_bits(moved.numpy(), np.ascontiguousarray(wanted[::-1]))
        assert moved._owner_storage._resource.diagnostics is diagnostics
        assert (moved.span, moved.descriptor().placement) == (span, placement)
        back = moved.into_reinterpreted(np.dtype(source).type)
        assert same_bits(back.numpy(), np.ascontiguousarray(array[::-1]))
    assert (seen.allocations, seen.copies) == ({}, {})
    assert kernel.host.calls == calls
    with pytest.raises(UseAfterMoveError, match="into_reinterpreted"):
        owner.numpy()
    assert kernel.released == []


@pytest.mark.clause("g4-reinterpret-validation")
@pytest.mark.parametrize(
    ("dtype", "target", "field"),
    [
        ("float64", np.bool_, "dtype"),
        ("float64", np.float32, "dtype"),
        ("bool", np.uint8, "dtype"),
        ("float64", np.complex64, "dtype"),
        ("complex128", np.int64, "dtype"),
        ("float64", np.dtype(">i8"), "dtype"),
        ("float64", "no such type", "dtype"),
    ],
)
def test_a_pair_that_is_not_listed_is_refused(
    kernel: Any, dtype: str, target: Any, field: str
) -> None:
    owner = kernel.owner((4, 2), dtype)
    with owner.as_view() as view, pytest.raises(LayoutError) as caught:
        view.reinterpret(target)
    assert caught.value.field == field
    assert dtype in str(caught.value)


@pytest.mark.clause("g4-reinterpret-validation")
def test_arithmetic_of_the_new_layout_is_checked_before_it_appears(kernel: Any) -> None:
    group, slots = AllocationGroup.of_owners(
        [kernel.storage(64)],
        [
            DescriptorRequest((4, 2), np.float64),
            DescriptorRequest((2, 3), np.float64),
            DescriptorRequest((2, 2), np.float64, strides=(24, 8)),
            DescriptorRequest((2, 2), np.float64, strides=(8, 16)),
            DescriptorRequest((2, 2), np.float64, strides=(16, -8), offset=8),
            DescriptorRequest((3, 2), np.float32, offset=4),
            DescriptorRequest((), np.float64),
            DescriptorRequest((0, 2), np.float64),
        ],
    )
    wrong = {1: "shape", 2: "alignment", 3: "strides", 4: "strides", 6: "shape"}
    for at, slot in enumerate(slots):
        target = np.complex64 if at == 5 else np.complex128
        with group.view(slot) as view:
            before = validations.layout
            if at in wrong:
                with pytest.raises(LayoutError) as caught:
                    view.reinterpret(target)
                assert caught.value.field == wrong[at]
                continue
            with view.reinterpret(target) as found:
                assert validations.layout == before + 1  # only the new facts
                inside = set(found.descriptor().span.byte_range)
                assert inside <= set(view.descriptor().span.byte_range)
                assert found.shape == view.shape[:-1]


@pytest.mark.clause("g4-reinterpret-recovery")
def test_a_failed_form_gives_back_its_owner_or_stays_under_its_borrow(
    kernel: Any,
) -> None:
    owner = kernel.owner((4, 3))
    for target in (np.complex128, np.bool_):
        with pytest.raises(LayoutError) as caught:
            owner.into_reinterpreted(target)
        assert caught.value.recovered is owner
    entered = TypedTensor.of(owner, np.float64, Rank2)
    with pytest.raises(LayoutError) as caught:
        entered.into_reinterpreted(np.int64, Rank1)  # the rank that was named is wrong
    assert caught.value.recovered is entered
    assert caught.value.field == "rank"
    assert entered.numpy().shape == (4, 3)
    view = entered.as_view()
    bits = view.reinterpret(np.int64)
    view.close()
    with pytest.raises(BorrowConflictError):  # tied to the borrow it came from
        entered.fill(0.0)
    with pytest.raises(BorrowConflictError) as conflict:
        entered.into_reinterpreted(np.int64)
    assert conflict.value.requested == "owning"
    bits.close()
    with pytest.raises(ExpiredCapabilityError):
        bits.numpy()
    assert entered.into_reinterpreted(np.int64, Rank2).shape == (4, 3)


@pytest.mark.clause("g4-reinterpret-mutable")
def test_writing_needs_the_exclusive_borrow_and_distinct_elements(kernel: Any) -> None:
    owner = kernel.owner((4, 2))
    with owner.as_view() as view:
        assert not hasattr(view, "reinterpret_mut")
        with pytest.raises(BorrowConflictError):
            owner.reinterpret_mut(np.complex128)
    with owner.reinterpret_mut(np.complex128) as pairs:
        pairs.fill(1 + 2j)
        with pytest.raises(BorrowConflictError):
            owner.as_view()
    assert owner.numpy().tolist() == [[1, 2]] * 4
    group, (slot, alias) = AllocationGroup.of_owners(
        [kernel.storage(64)],
        [DescriptorRequest((3, 2), np.float64, strides=(0, 8))] * 2,
    )
    kept = group.view(alias)
    with pytest.raises(BorrowConflictError):  # a reader stands in the way
        group.view_mut(slot)
    kept.close()
    with group.view_mut(slot) as m:
        with pytest.raises(LayoutError) as caught:
            m.reinterpret_mut(np.complex128)
        assert caught.value.field == "injectivity"
        assert m.shape == (3, 2)


@pytest.mark.clause("g4-rank-change-policy")
@pytest.mark.parametrize("form", ["view", "mut", "owner"])
@pytest.mark.parametrize(
    ("source", "target", "change"),
    [
        (np.complex128, np.float64, +1),
        (np.float32, np.complex64, -1),
        (np.float64, np.int64, 0),
    ],
)
def test_the_caller_names_the_rank_of_the_result_or_gets_a_dynamic_one(
    kernel: Any, source: Any, target: Any, change: int, form: str
) -> None:
    def results(*rank: Any) -> Iterator[Any]:
        owner = TypedTensor.of(kernel.owner((3, 2), source), source, Rank2)
        if form == "owner":
            yield owner.into_reinterpreted(target, *rank)
        elif form == "view":
            with owner.as_view() as view, view.reinterpret(target, *rank) as found:
                yield found
        else:
            with owner.as_view_mut() as m, m.reinterpret_mut(target, *rank) as found:
                yield found

    (found,) = results()
    assert found.rank is DynRank
    right = RANKS[2 + change]
    for found in results(right):
        assert found.rank is right
        assert found.ndim == right.ndim
        assert found.dtype == target
    for rank in (Rank1, Rank2, Rank3):
        if rank is not right:
            with pytest.raises(LayoutError) as caught:
                [*results(rank)]
            assert caught.value.field == "rank"


@pytest.mark.clause("g4-rank-change-policy")
@pytest.mark.parametrize("form", ["owner", "view", "mut"])
def test_a_refused_rank_leaves_no_borrow_behind(kernel: Any, form: str) -> None:
    """The error keeps the frames that it passed alive, and so what they hold."""
    typed = TypedTensor.of(kernel.owner((3, 2)), np.float64, Rank2)
    if form == "view":
        with typed.as_view() as view, pytest.raises(LayoutError) as caught:
            view.reinterpret(np.int64, Rank1)
    elif form == "mut":
        with typed.as_view_mut() as m, pytest.raises(LayoutError) as caught:
            m.reinterpret_mut(np.int64, Rank1)
    else:
        with pytest.raises(LayoutError) as caught:
            typed.reinterpret(np.int64, Rank1)
        typed.fill(1.0)  # nobody reads
        with pytest.raises(LayoutError) as caught:
            typed.reinterpret_mut(np.int64, Rank1)
    typed.fill(2.0)  # nobody reads or writes
    assert typed.numpy().tolist() == [[2.0, 2.0]] * 3
    assert caught.value.field == "rank"


@pytest.mark.clause("g4-rank-change-policy")
def test_a_policy_for_reinterpretation_erases_no_rank_elsewhere(kernel: Any) -> None:
    owner = TypedTensor.of(kernel.owner((3, 2), np.complex128), np.complex128, Rank2)
    with owner.as_view() as view, view.reinterpret(np.float64) as open_rank:
        assert open_rank.rank is DynRank
        assert view.rank is view[1:].rank is view.flip(0).rank is Rank2
        with open_rank.as_rank(Rank3) as fixed:
            assert fixed.rank is Rank3
    assert isinstance(view, TypedTensorView)
    assert owner.rank is owner.duplicate().rank is Rank2
    with owner.as_view_mut() as m:
        assert isinstance(m, TypedTensorViewMut)
        assert m.rank is Rank2


# ---- retained values


@pytest.mark.clause("g7-reinterpret-alias", "g4-reinterpret-same-root")
def test_a_retained_value_seen_as_complex_or_real_is_one_more_descriptor() -> None:
    x = ta.asarray(np.arange(8.0).reshape(4, 2))
    with ta.ledger() as seen:
        z = view_as_complex(x)
        r = view_as_real(z)
    assert (seen.allocations, seen.copies) == ({}, {})
    assert z._record.container() is x._record.container() is r._record.container()
    assert z._record.root_nbytes == 64
    group = x._record.container().group()
    assert len(group.slots) == 3
    assert len({group.record(slot).allocation for slot in group.slots}) == 1
    assert np.array_equal(z.numpy(), x.numpy()[:, 0] + 1j * x.numpy()[:, 1])
    assert np.array_equal(r.numpy(), x.numpy())
    assert not z.numpy().flags.writeable
    with pytest.raises(NotUniqueError):
        z.into_value()


@pytest.mark.clause("g7-reinterpret-alias")
def test_a_value_that_does_not_fit_is_refused_with_its_cause() -> None:
    for wrong, error in (
        (lambda: view_as_real(ta.asarray(np.zeros(2))), DTypeError),
        (lambda: view_as_complex(ta.asarray(np.zeros(2, np.int64))), DTypeError),
        (lambda: view_as_complex(ta.asarray(np.zeros((2, 3)))), ShapeError),
        (lambda: view_as_complex(ta.asarray(np.zeros((2, 3))).T), LayoutError),
    ):
        with pytest.raises(error):
            wrong()


@pytest.mark.clause("g7-reinterpret-alias")
def test_the_two_views_are_each_others_adjoint() -> None:
    random = np.random.default_rng(7)
    x = random.standard_normal((3, 2))
    z = random.standard_normal(3) + 1j * random.standard_normal(3)
    bar_z = random.standard_normal(3) - 1j * random.standard_normal(3)
    bar_x = random.standard_normal((3, 2))
    for f, at, seed in ((view_as_complex, x, bar_z), (view_as_real, z, bar_x)):
        out, pull = ta.vjp(f, ta.asarray(at))
        (back,) = pull(ta.asarray(seed))
        assert back.dtype == at.dtype
        tangent = random.standard_normal(at.shape).astype(at.dtype)
        pushed = ta.jvp(f, (ta.asarray(at),), (ta.asarray(tangent),))[1]
        ours = np.vdot(seed, pushed.numpy()).real
        assert np.isclose(ours, np.vdot(back.numpy(), tangent).real)
        assert out.shape == pushed.shape


@pytest.mark.clause("g4-reinterpret-test")
def test_a_backward_pass_through_both_views_copies_nothing() -> None:
    x = ta.variable(np.arange(6.0).reshape(3, 2))
    with ta.Tape() as tape:
        loss = ta.sum(view_as_real(view_as_complex(x) * 2.0))
    with ta.ledger() as seen:
        gradients = tape.backward(loss)
    assert seen.copies == {}  # the cotangent of a sum has strides of zero
    assert np.array_equal(gradients[x].numpy(), np.full((3, 2), 2.0))
