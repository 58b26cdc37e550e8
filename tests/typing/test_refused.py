"""Lines that must not type-check, each run as well: the checker's twin is the line.

`mypy --strict --warn-unused-ignores` reads this file: a line that becomes legal, or
fails for another reason, breaks the check. pytest runs it: the same line raises.
"""

from __future__ import annotations

import copy
import pickle
from typing import assert_never

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine._fn_reinterpret import view_as_real
from tenferro_ad.errors import (
    BorrowConflictError,
    ExpiredCapabilityError,
    GroupConstructionError,
    InvalidArgumentError,
    InvalidSlotError,
    LayoutError,
    NotCloneableError,
    NotUniqueError,
    OverlapError,
)
from tenferro_ad.runtime import CompiledGraph
from tenferro_ad.storage import (
    AccessTarget,
    AllocationGroup,
    PreparedContiguousRead,
    PreparedHostRead,
    PreparedStridedRead,
    PreparedWrite,
    Rank1,
    Rank2,
    Rank3,
    Tensor,
    TypedTensor,
    TypedTensorView,
    TypedTensorViewMut,
    prepare_read,
    prepare_write,
)


def matrix(dtype: type[np.generic] = np.float64) -> Tensor:
    return ta.asarray(np.arange(12).reshape(3, 4), dtype=dtype).into_value()


def typed() -> TypedTensor[np.float64, Rank2]:
    return TypedTensor.of(matrix(), np.float64, Rank2)


# ---- write preparation from shared access


def test_a_shared_view_prepares_no_write() -> None:
    with matrix().as_view() as view:
        with pytest.raises(AttributeError):
            view.prepare_host_mut()  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            view.prepare_device_mut()  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            view.checked_write()  # type: ignore[attr-defined]
    with typed().as_view() as shared, pytest.raises(AttributeError):
        shared.prepare_host_mut()  # type: ignore[attr-defined]


def test_a_shared_pairing_is_no_write_pairing() -> None:
    checked = matrix().as_view().checked_read()
    for target in AccessTarget:
        with pytest.raises(InvalidArgumentError):
            prepare_write(checked, target)  # type: ignore[arg-type]
    wrong: PreparedWrite = prepare_read(  # type: ignore[assignment]
        checked, AccessTarget.Host
    )
    assert isinstance(wrong, PreparedContiguousRead)
    wrong.close()


def test_a_read_payload_yields_no_writable_array() -> None:
    prepared = matrix().prepare_host()
    assert isinstance(prepared, PreparedContiguousRead)
    with pytest.raises(AttributeError):
        prepared.as_slice_mut()  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="read-only"):
        prepared.as_slice()[0] = 1.0
    prepared.close()


def test_a_shared_view_splits_fills_and_lends_nothing_writable() -> None:
    with typed().as_view() as view:
        with pytest.raises(AttributeError):
            view.split_mut([slice(0, 1)])  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            view.fill(0.0)  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            view.as_view_mut()  # type: ignore[attr-defined]
        with pytest.raises(AttributeError):
            view.reinterpret_mut(np.int64)  # type: ignore[attr-defined]


# ---- handles of retained values


def test_a_handle_gives_no_mutable_view_and_no_owner_it_does_not_have() -> None:
    x = ta.asarray(np.zeros(3))
    with pytest.raises(AttributeError):
        x.as_view_mut()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        x.view_mut()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        x.write()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        owner: Tensor = x  # type: ignore[assignment]
        owner.as_view_mut()
    y = x.clone()
    with pytest.raises(NotUniqueError):
        y.into_value()


def test_a_retained_value_has_no_mutable_reinterpretation() -> None:
    z = ta.asarray(np.zeros(3, np.complex128))
    with pytest.raises(AttributeError):
        view_as_real(z).fill(0.0)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        z.reinterpret_mut(np.float64)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        z.into_reinterpreted(np.float64)  # type: ignore[attr-defined]


# ---- dtype and rank


def test_a_rank_is_not_lost_or_mistaken() -> None:
    owner = typed()
    with pytest.raises(LayoutError):
        one: TypedTensor[np.float64, Rank1] = TypedTensor.of(
            owner.erase(),
            np.float64,
            Rank3,  # type: ignore[arg-type]
        )
        del one


def test_a_view_of_rank_two_is_none_of_rank_one() -> None:
    def needs_one(view: TypedTensorView[np.float64, Rank1]) -> None:
        view.as_rank(Rank1)

    with typed().as_view() as view, pytest.raises(LayoutError):
        needs_one(view)  # type: ignore[arg-type]
    with typed().as_view() as view, pytest.raises(LayoutError):
        needs_one(view[0:1])  # type: ignore[arg-type]
    with typed().as_view() as view, pytest.raises(LayoutError):
        needs_one(view.permute_dims((1, 0)))  # type: ignore[arg-type]


def test_a_dtype_is_not_lost_or_mistaken() -> None:
    def needs_single(view: TypedTensorView[np.float32, Rank2]) -> None:
        TypedTensorView.of(view.erase(), np.float32, Rank2)

    with typed().as_view() as view, pytest.raises(LayoutError):
        needs_single(view)  # type: ignore[arg-type]


def test_an_integer_key_drops_the_static_rank_and_splits_refuse_it() -> None:
    with typed().as_view() as view:
        row = view[0]
        with pytest.raises(LayoutError):
            kept: TypedTensorView[np.float64, Rank2] = row  # type: ignore[assignment]
            kept.as_rank(Rank2)
    with typed().as_view_mut() as m, pytest.raises(IndexError):
        m.split_mut([0, 1])  # type: ignore[list-item]


def test_a_class_is_no_dtype_and_a_number_no_rank() -> None:
    with pytest.raises(LayoutError):
        TypedTensor.of(matrix(), int, Rank2)  # type: ignore[type-var]
    with pytest.raises(LayoutError):
        TypedTensor.of(matrix(), np.float64, 2)  # type: ignore[arg-type]
    owner = typed()
    with pytest.raises(LayoutError):
        owner.into_reinterpreted(np.int64, 2)  # type: ignore[call-overload]


def test_consuming_calls_are_not_on_views() -> None:
    with typed().as_view() as view, pytest.raises(AttributeError):
        view.into_reinterpreted(np.int64)  # type: ignore[attr-defined]
    with typed().as_view_mut() as m, pytest.raises(AttributeError):
        m.into_reinterpreted(np.int64)  # type: ignore[attr-defined]


def test_members_of_one_family_are_not_each_other() -> None:
    def needs_mut(view: TypedTensorViewMut[np.float64, Rank2]) -> None:
        view.fill(0.0)

    with typed().as_view() as view, pytest.raises(AttributeError):
        needs_mut(view)  # type: ignore[arg-type]


# ---- cases of a match


def test_a_match_that_misses_a_case_is_seen() -> None:
    def total(prepared: PreparedHostRead) -> float:
        match prepared:
            case PreparedContiguousRead():
                return float(prepared.as_slice().sum())
        assert_never(prepared)  # type: ignore[arg-type]

    def both(prepared: PreparedHostRead) -> float:
        match prepared:
            case PreparedContiguousRead():
                return float(prepared.as_slice().sum())
            case PreparedStridedRead():
                return float(prepared.as_strided_array().sum())
        assert_never(prepared)

    prepared = matrix()[:, ::2].prepare_host()
    assert both(prepared) == 30.0
    with pytest.raises(AssertionError):
        total(prepared)
    prepared.close()


def test_a_match_that_misses_the_recovery_is_seen() -> None:
    def recovered(error: LayoutError | NotUniqueError) -> object:
        match error:
            case LayoutError(recovered=owner):
                return owner
        assert_never(error)  # type: ignore[arg-type]

    owner = matrix()
    with pytest.raises(LayoutError) as caught:
        owner.into_reinterpreted(np.complex128)
    assert recovered(caught.value) is owner
    x = ta.asarray(np.zeros(3))
    y = x.clone()
    with pytest.raises(NotUniqueError) as unique:
        y.into_value()
    with pytest.raises(AssertionError):
        recovered(unique.value)


# ---- copies, groups, children


def test_owners_and_capabilities_offer_no_copy() -> None:
    owner = typed()
    with pytest.raises(AttributeError):
        owner.clone()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        owner.copy()  # type: ignore[attr-defined]
    with owner.as_view_mut() as m, pytest.raises(AttributeError):
        m.clone()  # type: ignore[attr-defined]
    for refused in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(NotCloneableError):
            refused(owner)


def test_children_offer_no_way_to_their_group() -> None:
    group, (slot,) = AllocationGroup.of_tensors([matrix()])
    (child,) = group.split_mut([slot])
    with pytest.raises(AttributeError):
        child.group  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        child.owner  # type: ignore[attr-defined]
    with pytest.raises(BorrowConflictError):  # what no type checker can see
        group.view(slot)
    child.close()
    group.view(slot).close()


def test_parts_are_named_by_keys_and_overlap_is_refused() -> None:
    with typed().as_view_mut() as m:
        with pytest.raises(TypeError):
            m.split_mut(slice(0, 2), slice(2, 3))  # type: ignore[call-arg,arg-type]
        with pytest.raises(OverlapError):
            m.split_mut([slice(0, 2), slice(1, 3)])


def test_a_guard_does_not_outlive_its_block() -> None:
    owner = typed()
    with owner.as_view() as view:
        pass
    with pytest.raises(ExpiredCapabilityError):
        view.numpy()
    prepared = owner.prepare_host()
    prepared.close()
    assert isinstance(prepared, PreparedContiguousRead)
    with pytest.raises(ExpiredCapabilityError):
        prepared.as_slice()
    with pytest.raises(AttributeError):
        prepared.guard.reopen()  # type: ignore[attr-defined]


# ---- borrows across submission


def runtime_and_graph() -> tuple[ta.Runtime, CompiledGraph]:
    runtime = ta.Runtime("cpu")
    spec = ta.Spec((3, 4))
    return runtime, runtime.compile(ta.trace(lambda x: x * x, spec))


def test_a_view_is_no_input_of_detached_work() -> None:
    runtime, graph = runtime_and_graph()
    owner = matrix()
    with owner.as_view() as view:
        with pytest.raises(InvalidArgumentError):
            ta.ExecutionInputs.of_tensors([view])  # type: ignore[list-item]
        with pytest.raises(InvalidArgumentError):
            runtime.submit(graph, [view])  # type: ignore[arg-type]
        with pytest.raises(InvalidArgumentError):
            runtime.submit(graph, ta.ScopedReadInputs([view]))  # type: ignore[arg-type]
        group, _ = AllocationGroup.of_tensors([matrix()])
        with pytest.raises(InvalidSlotError):
            ta.ExecutionInputs(group, [view])  # type: ignore[list-item]
        # The owner of what is held cannot be submitted either.
        with pytest.raises(GroupConstructionError):
            ta.ExecutionInputs.of_tensors([owner])
    assert len(ta.ExecutionInputs.of_tensors([owner])) == 1


def test_a_host_guard_is_not_held_across_submission() -> None:
    owner = matrix()
    prepared = owner.prepare_host()
    assert isinstance(prepared, PreparedContiguousRead)
    array = prepared.as_slice()
    with pytest.raises(InvalidArgumentError):
        ta.ExecutionInputs.of_tensors([prepared])  # type: ignore[list-item]
    with pytest.raises(GroupConstructionError):
        ta.ExecutionInputs.of_tensors([owner])  # while it is held
    prepared.close()
    with pytest.raises(GroupConstructionError):
        ta.ExecutionInputs.of_tensors([owner])  # or an array that it gave out
    del array
    group, (slot,) = AllocationGroup.of_tensors([owner])
    with group.view_mut(slot) as mut:
        with pytest.raises(InvalidSlotError):
            ta.ExecutionInputs(group, [mut])  # type: ignore[list-item]
        with pytest.raises(BorrowConflictError):
            ta.ExecutionInputs(group, [slot])
    assert len(ta.ExecutionInputs(group, [slot])) == 1


def test_scoped_execution_lends_no_writable_view() -> None:
    runtime, graph = runtime_and_graph()
    owner = matrix()
    with owner.as_view_mut() as mut, pytest.raises(InvalidArgumentError):
        ta.ScopedReadInputs([mut])  # type: ignore[list-item]
    with pytest.raises(InvalidArgumentError):
        ta.ScopedReadInputs([owner])  # type: ignore[list-item]
    inputs = ta.ExecutionInputs.of_tensors([owner])
    with pytest.raises(InvalidArgumentError):
        runtime.execute_scoped_read_only(graph, inputs)  # type: ignore[arg-type]


def test_a_guard_of_a_handle_is_no_value_to_attach() -> None:
    x = ta.asarray(np.zeros((3, 4)))
    with x.value() as guard, pytest.raises(InvalidArgumentError):
        ta.ExecutionInputs.of_tensors([guard])  # type: ignore[list-item]
