"""G7: retention of values. One test for each clause of the eager stage.

The rows of the state table are in `test_g7_rows.py`. Execution records, the fourth kind
of holder, arrive with submission and are tested there.
"""

from __future__ import annotations

import copy
import inspect
import re
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine._ownership_views import (
    descriptor_of,
    from_group,
    record_of,
    retention_of,
)
from tenferro_ad.errors import (
    ExtractError,
    ExtractFailedError,
    InvalidSlotError,
    NotCloneableError,
    NotUniqueError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    AllocationGroup,
    CheckedDescriptor,
    DescriptorRequest,
    RetentionContainer,
    Tensor,
    TensorView,
    validations,
)
from tenferro_ad.tape import AdValueRecord, TapeRecord, TapeRetention
from tests.contract.g7_support import (
    HOLDERS,
    F,
    first_key,
    kept,
    leaf,
    no_extraction,
    read,
    region,
    state,
)

# ---- ownership root


@pytest.mark.clause("g7-no-blanket-duplicate", "g7-alias-no-event")
def test_tape_and_caller_share_values_and_sharing_costs_no_event() -> None:
    w = leaf()
    with ta.ledger() as led, ta.Tape() as tape:
        y = F.tanh(w * w)
        before = dict(led.allocations)
        with ta.forbid(copies=True, allocations=True):
            tape.retain(y)
            view = F.reshape(y, (3, 1))
            clones = [y.clone(), copy.copy(view), w.clone()]
            constant = ta.stop_gradient(y)
            with y.value() as guard:
                assert guard.view.shape == (3,)
            records = [retention_of(tape)[key] for key in retention_of(tape)]
            assert descriptor_of(view).shape == (3, 1)
        assert led.allocations == before == {"OperationOutput": 2}
        led.expect(copies={})
        y.duplicate_value()
        led.expect(copies={"ExplicitDuplicate": 1})
    assert record_of(y).shares(records[kept(tape).index(("tanh", "out"))])
    del clones, constant, records


@pytest.mark.clause(
    "g7-context-owns-group", "g7-retention-shapes", "g7-record-holds-container"
)
def test_tapes_and_regions_hold_records_whose_container_owns_a_group() -> None:
    w = leaf()
    with ta.Tape() as tape:
        y = F.tanh(w)
        out = ta.checkpoint(region)(y)
        view = F.reshape(y, (3, 1))
    retention = retention_of(tape)
    assert isinstance(retention, TapeRetention)
    assert isinstance(retention.tape, TapeRecord)
    for key in retention:
        record = retention[key]
        assert isinstance(record, AdValueRecord)
        assert isinstance(record.descriptor, CheckedDescriptor)
        assert isinstance(record.container, RetentionContainer)
        assert isinstance(record.container.group(), AllocationGroup)
        assert record.container.group() is record.container.group()
    # The caller's handle, the tape and the region share one record and one container.
    boundary = retention[first_key(tape, "checkpoint")]
    assert boundary.shares(retention[first_key(tape, "tanh")])
    assert boundary.shares(record_of(y))
    # The direct chain keeps the bytes: no checks again, no object for each element.
    proofs = validations.layout
    assert record_of(view).container is boundary.container
    assert len(boundary.container.group().slots) == 2
    assert validations.layout == proofs
    del y, view, w, out, tape, retention, record
    with boundary.view() as values:
        assert values.shape == (3,)


@pytest.mark.clause("g7-handle-content")
def test_a_clone_is_one_more_reference_to_the_same_record(provider_calls: Any) -> None:
    with ta.Tape():
        y = F.tanh(leaf())
        provider_calls.reset()
        z = y.clone()
        assert provider_calls.total == 0
    assert z is not y
    assert z._record is y._record
    assert record_of(z).descriptor is record_of(y).descriptor
    assert record_of(z).container is record_of(y).container
    assert not hasattr(z, "__dict__")
    with pytest.raises(NotUniqueError):
        y.into_value()
    del z
    assert isinstance(y.into_value(), Tensor)


@pytest.mark.clause("g7-handle-no-authority")
def test_no_method_of_a_handle_yields_an_owner_or_a_mutable_view() -> None:
    owning = {}
    for name, member in inspect.getmembers(ta.EagerTensor, inspect.isfunction):
        answer = str(inspect.get_annotations(member).get("return"))
        if {"Tensor", "TensorViewMut", "StorageMut", "OwnedStorage"} & {
            *re.findall(r"\w+", answer)
        } or "Group" in answer:
            owning[name] = answer
    assert owning == {"into_value": "Tensor", "duplicate_value": "Tensor"}
    y = leaf()
    for name in ("as_view_mut", "view_mut", "split_mut", "as_mut", "fill", "copy_from"):
        assert not hasattr(y, name)
    owner = y.duplicate_value()
    with owner.as_view_mut() as mutable:
        for capability in (owner, mutable):
            for clone in (copy.copy, copy.deepcopy):
                with pytest.raises(NotCloneableError):
                    clone(capability)


@pytest.mark.clause("g7-value-key-local")
def test_a_key_only_looks_up_in_its_own_recording() -> None:
    w = leaf()
    with ta.Tape() as one:
        a = F.tanh(w)
    with ta.Tape() as two:
        b = F.tanh(w)
    key = first_key(one, "tanh")
    assert {n for n in dir(key) if not n.startswith("_")} == {"operation", "value"}
    assert key in retention_of(one)
    assert key not in retention_of(two)
    before = state(one, two, a, b)
    with pytest.raises(InvalidSlotError):
        retention_of(two)[key]
    assert state(one, two, a, b) == before
    with pytest.raises(NotUniqueError):  # having the key makes nobody the only holder
        a.into_value()


@pytest.mark.clause("g7-handle-outlives-tape")
def test_a_handle_reads_after_its_tape_is_gone_and_the_last_holder_releases() -> None:
    w = leaf([1.0, 2.0])
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = w * w
            z = ta.checkpoint(lambda t: F.exp(t) * t)(y)
            loss = F.tanh(z)
        clone = y.clone()
        del y, loss, z
        assert led.live == 1  # what no handle reaches was cleared, z and tanh(z) too
        del tape
        assert read(clone) == [1.0, 4.0]
        other = clone.clone()
        del clone
        assert led.live == 1
        assert read(other) == [1.0, 4.0]
        del other
        assert led.live == 0


@pytest.mark.clause("g7-mutation-exclusive")
def test_writing_a_value_needs_every_other_holder_gone() -> None:
    y = F.tanh(leaf())
    for name, hold in HOLDERS.items():
        holder = hold(y)
        before = state(y)
        with (
            ta.forbid(copies=True, allocations=True),
            pytest.raises(NotUniqueError) as caught,
            ta.exclusive(y),
        ):
            pytest.fail(f"exclusive access beside the {name}")
        assert caught.value.recovered is y
        assert state(y) == before
        del holder, caught
    with ta.exclusive(y) as (mutable,):
        mutable.fill(2.0)
    assert read(y) == [2.0, 2.0, 2.0]


@pytest.mark.clause("g7-retained-iff-declared")
def test_what_rules_declare_is_kept_and_nothing_else() -> None:
    w, c = leaf(), ta.asarray([1.0, 2.0, 3.0])
    with ta.Tape() as tape:
        a = w + c  # addition needs nothing
        b = a * c  # only what the tracked side's rule reads
        d = F.exp(b)  # the output
        e = F.sin(d)  # the input
        m = F.mean(e, (0,), False)  # nothing: a mean needs shapes only
        mask = e > 0.0  # no derivative, not recorded
    declared = [("mul", "y"), ("exp", "out"), ("sin", "x")]
    assert kept(tape) == declared
    tape.retain(a)
    assert kept(tape) == [*declared, ("retain", "value")]
    del mask, m


@pytest.mark.clause("g7-standalone-paths")
def test_an_owner_comes_from_the_unique_handle_or_from_a_duplicate() -> None:
    w = leaf()
    with ta.Tape() as tape:
        y = F.tanh(w)
    with pytest.raises(NotUniqueError):
        y.into_value()
    with ta.ledger() as led:
        copied = y.duplicate_value()
        led.expect(copies={"ExplicitDuplicate": 1})
    del tape
    with ta.forbid(copies=True, allocations=True):
        moved = y.into_value()
    assert np.array_equal(copied.numpy(), moved.numpy())
    with copied.as_view_mut() as mutable:
        mutable.fill(0.0)
    assert moved.numpy()[2] == np.tanh(0.3)


# ---- the public calls


@pytest.mark.clause("g7-value-signature")
def test_value_lends_a_guard_without_an_owner_or_a_check(provider_calls: Any) -> None:
    y = F.tanh(leaf())
    provider_calls.reset()
    proofs = validations.layout
    before = state(y)
    guard = y.value()
    assert isinstance(guard, ta.ValueGuard)
    assert isinstance(guard.view, TensorView)
    array = guard.numpy()
    assert not array.flags.writeable
    with pytest.raises(ValueError, match="WRITEABLE"):
        array.flags.writeable = True
    assert validations.layout == proofs
    assert provider_calls.total == 0
    with pytest.raises(NotUniqueError):
        y.into_value()
    del array
    guard.close()
    assert state(y)[:4] == before[:4]
    assert isinstance(y.into_value(), Tensor)
    with pytest.raises(UseAfterMoveError):
        y.value()


@pytest.mark.clause(
    "g7-duplicate-value-signature", "g7-duplicate-two-events", "g7-one-copy-event"
)
def test_a_duplicate_is_one_copy_and_one_allocation_each_with_its_reason() -> None:
    with ta.ledger() as led:
        y = ta.asarray([1.0, 2.0])
        led.expect(
            allocations={"TransferDestination": 1},
            copies={"Transfer": 1},
        )
    with ta.ledger() as led:
        owner = y.duplicate_value()
        assert isinstance(owner, Tensor)
        led.expect(
            allocations={"ExplicitDuplicateDestination": 1},
            copies={"ExplicitDuplicate": 1},
        )
    with ta.ledger() as led, owner.as_view_mut() as target, y.value() as guard:
        target.copy_from(guard.view)  # into memory that exists
        led.expect(allocations={}, copies={"ExplicitDuplicate": 1})


@pytest.mark.clause("g7-into-value-signature", "g7-test-uniqueness")
@pytest.mark.parametrize("name", HOLDERS)
def test_into_value_beside_another_holder_is_refused_before_extraction(
    name: str,
) -> None:
    y = F.tanh(leaf())
    holder = HOLDERS[name](y)
    before = state(y)
    with (
        ta.forbid(copies=True, allocations=True),
        no_extraction(),
        pytest.raises(NotUniqueError) as caught,
    ):
        y.into_value()
    assert caught.value.recovered is y
    assert state(y) == before
    assert (y + 1.0).shape == (3,)
    del caught, holder
    assert isinstance(y.into_value(), Tensor)


@pytest.mark.clause("g7-into-value-signature", "g7-test-uniqueness")
def test_into_value_of_a_unique_handle_moves_one_owner_or_gives_the_cause() -> None:
    owner = ta.asarray(np.arange(4.0)).duplicate_value()
    group, (whole,) = AllocationGroup.of_tensors([owner])
    half = group.insert(whole, DescriptorRequest((2,), np.float64))
    (y,) = from_group(group, [whole])  # `half` stays in the container's group
    before = state(y)
    with pytest.raises(ExtractFailedError) as caught:
        y.into_value()
    assert caught.value.recovered is y
    assert isinstance(caught.value.cause, ExtractError)
    assert state(y) == before
    del caught
    record_of(y).container.group().remove(half)
    with ta.ledger() as led:
        moved = y.into_value()
        led.expect(allocations={}, copies={})
    assert moved.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    with pytest.raises(UseAfterMoveError) as spent:
        y.into_value()
    assert spent.value.consumed_by == "into_value"


@pytest.mark.clause("g7-into-value-signature")
def test_into_value_has_two_errors_only_even_beside_an_exported_array() -> None:
    y = F.tanh(leaf())
    array = y.value().numpy()
    before = state(y)
    with pytest.raises(ExtractFailedError) as caught:
        y.into_value()
    assert caught.value.recovered is y
    assert isinstance(caught.value.cause, ExtractError)
    assert state(y) == before
    del caught, array
    assert isinstance(y.into_value(), Tensor)


@pytest.mark.clause("g7-not-unique-silent")
def test_the_uniqueness_error_is_the_same_whoever_holds_the_value() -> None:
    y = F.tanh(leaf())
    seen = []
    for hold in HOLDERS.values():
        holder = hold(y)
        with pytest.raises(NotUniqueError) as caught:
            y.into_value()
        facts = {k: v for k, v in vars(caught.value).items() if k != "recovered"}
        seen.append((type(caught.value), str(caught.value), facts))
        del caught, holder
    assert all(one == seen[0] for one in seen)
    for word in ("tape", "checkpoint", "guard", "clone", "execution", "count"):
        assert word not in seen[0][1]


@pytest.mark.clause("g7-gradients-signature")
def test_gradients_are_a_group_with_one_owner_for_each_allocation() -> None:
    u, v, unused = leaf(), leaf(), leaf()
    with ta.Tape() as tape:
        loss = F.sum(u + v, (0,), False)  # one cotangent reaches both leaves
    grads = tape.backward(loss)
    with grads.grad(u) as a, grads.grad(v) as b:
        assert isinstance(a, TensorView)
        assert a.span.serial != b.span.serial
    assert grads.grad(unused) is None
    group, slots = grads.into_group()
    assert isinstance(group, AllocationGroup)
    assert set(slots) == {u.leaf, v.leaf}
    children = group.split_mut(list(slots.values()))
    assert [c.numpy().tolist() for c in children] == [[1.0] * 3] * 2
    del children
    assert isinstance(group.try_extract(slots[u.leaf]), Tensor)
    assert len(grads) == 0


@pytest.mark.clause("g7-take-grad-outcomes")
def test_take_grad_gives_none_an_owner_or_an_error_that_changes_nothing() -> None:
    w, unused = leaf([1.0, 2.0]), leaf()
    with ta.Tape() as tape:
        loss = F.sum(w * w, (0,), False)
    grads = tape.backward(loss)
    assert grads.take_grad(unused) is None
    shared = grads[w]
    before = state(grads)
    with pytest.raises(ExtractError) as caught:
        grads.take_grad(w)
    assert state(grads) == before
    assert read(shared) == [2.0, 4.0]
    del caught, shared
    owner = grads.take_grad(w)
    assert isinstance(owner, Tensor)
    assert owner.numpy().tolist() == [2.0, 4.0]
    with pytest.raises(ExtractError, match="taken before"):
        grads.take_grad(w)


# ---- checkpoints


@pytest.mark.clause("g7-checkpoint-boundary", "g7-checkpoint-interior")
def test_a_region_keeps_its_boundary_and_its_interior_dies_after_forward() -> None:
    x = F.tanh(leaf())
    w = leaf()
    with ta.ledger(events=True) as led, ta.Tape() as tape:
        y = ta.checkpoint(lambda w, x: F.sin(F.tanh(x * w) * w))(w, x)
        assert kept(tape) == [
            ("checkpoint", "input 0"),
            ("checkpoint", "input 1"),
            ("checkpoint", "output 0"),
        ]
        # x * w, tanh, product and the output were made; the three interiors are gone.
        led.expect(allocations={"OperationOutput": 4})
        assert led.live == 1
        record = retention_of(tape)[list(retention_of(tape))[1]]
        assert record.shares(record_of(x))
        del y, x
        assert led.live == 0  # nobody reaches the region: its record was cleared
        with record.view() as view:
            assert view.shape == (3,)
        loss = F.sum(ta.checkpoint(region)(w), (0,), False)
        made = len([e for e in led.events if e.kind == "allocation"])
        tape.backward(loss)
    fresh = [e for e in led.events if e.kind == "allocation"][made:]
    again = [e.operation for e in fresh if e.reason == "CheckpointRecomputeOutput"]
    assert again == ["tanh", "mul"]  # new owners; nobody reads what `sin` gives


@pytest.mark.clause("g7-checkpoint-recompute")
def test_recomputation_has_its_own_reason_and_is_no_copy() -> None:
    w = leaf()
    with ta.Tape() as tape:
        loss = F.sum(ta.checkpoint(region)(w), (0,), False)
    with ta.ledger() as led:
        grads = tape.backward(loss)
        led.expect(copies={})
        assert led.allocations["CheckpointRecomputeOutput"] == 2  # tanh, product
        assert led.live == len(grads) == 1  # recomputed values died at their last use


# ---- the two ledgers


@pytest.mark.clause("g7-ledger-reasons")
def test_the_two_ledgers_have_exactly_these_reasons() -> None:
    assert {r.value for r in ta.CopyReason} == {"ExplicitDuplicate", "Transfer"}
    assert {r.value for r in ta.AllocationReason} == {
        "OperationOutput",
        "CheckpointRecomputeOutput",
        "ExplicitDuplicateDestination",
        "TransferDestination",
    }
    with ta.ledger() as led:
        ta.asarray([1.0])
    assert led.copies == {"Transfer": 1}
    assert led.allocations == {"TransferDestination": 1}


@pytest.mark.clause("g7-kernel-no-copy")
def test_kernels_fills_and_reductions_are_never_copies() -> None:
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    with ta.forbid(copies=True), ta.ledger() as led:
        total = F.sum(x @ x + x, (0, 1), False)
        zeros = F.full((2, 2), np.dtype(np.float64), 0.0, x.device)
        same = F.accumulate(zeros)  # equal bytes, freshly computed
        with ta.exclusive(same) as (mutable,):
            mutable.fill(1.0)
            ta.update(mutable, ta.fused(lambda E, a, b: a + b), x)
        led.expect(allocations={"OperationOutput": 5}, copies={})
    assert total.shape == ()
    assert float(F.sum(same, (0, 1), False)) == 14.0


@pytest.mark.clause("g7-one-allocation-event")
def test_every_hand_out_of_the_provider_is_one_event(provider_calls: Any) -> None:
    with ta.ledger() as led:
        w = leaf(np.ones((100, 100)))  # 80,000 bytes: from the pool
        small = leaf()
        with ta.Tape() as tape:
            y = ta.checkpoint(lambda w: F.tanh(w @ w) * w)(w)
            loss = F.sum(y, (0, 1), False) + F.sum(F.exp(small), (0,), False)
        tape.backward(loss)
        w.duplicate_value()
        assert sum(led.allocations.values()) == provider_calls.total
    assert provider_calls.pooled > 0
    assert provider_calls.small > 0


@pytest.mark.clause("g7-acceptance-multisets")
@pytest.mark.parametrize("checkpointed", [False, True])
def test_forward_and_backward_match_their_multisets(
    checkpointed: bool, provider_calls: Any
) -> None:
    w = leaf()
    f = ta.checkpoint(region) if checkpointed else region
    for _ in range(2):  # the same again
        provider_calls.reset()
        with ta.ledger() as led:
            with ta.Tape() as tape:
                loss = F.sum(f(w), (0,), False)
            tape.backward(loss)
        # Forward: tanh, product, sin, sum (4). Backward: the seed (1); sum's rule
        # broadcasts the seed, a view; sin's rule (1); the product's share for tanh (1),
        # its share for w, written over sin's cotangent; tanh's rule adds into that.
        expected = {"OperationOutput": 7}
        if checkpointed:
            expected["CheckpointRecomputeOutput"] = 2  # tanh and the product again
        led.expect(allocations=expected, copies={})
        assert sum(led.allocations.values()) == provider_calls.total


@pytest.mark.clause("g7-test-key-miss")
def test_an_acquired_record_outlives_its_tape_and_a_missing_key_touches_nothing() -> (
    None
):
    w = leaf()
    with ta.Tape() as tape:
        loss = F.sum(F.tanh(w), (0,), False)
    retention = retention_of(tape)
    key = first_key(tape, "tanh")
    record = retention[key]
    tape.backward(loss)
    assert key not in retention
    before = state(w, tape)
    for missing in (key, "tanh", 0):
        with pytest.raises(InvalidSlotError):
            retention[missing]
    assert state(w, tape) == before
    del tape, loss
    with record.view() as view:
        assert np.array_equal(view.numpy(), np.tanh([0.1, 0.2, 0.3]))
