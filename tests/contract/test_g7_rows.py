"""G7: the state table of retained values, one test for each row.

Each test asserts the six columns of its row: the capability that the transition needs,
what it borrows, whether it waits (no host transition does: the provider is not called),
what a failure gives back, what dropping or an exception leaves, and when memory goes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU
from tenferro_ad.engine._ownership_views import from_group, record_of, retention_of
from tenferro_ad.errors import (
    AllocationLimitError,
    BorrowConflictError,
    ExtractError,
    ExtractFailedError,
    ForbiddenEventError,
    InvalidSlotError,
    NotUniqueError,
    ShapeError,
    UseAfterMoveError,
)
from tenferro_ad.storage import AllocationGroup, DescriptorRequest, Tensor
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


@pytest.mark.clause("g7-row-record-output")
def test_row_a_tape_records_an_operation_output(provider_calls: Any) -> None:
    w = leaf()
    with ta.ledger() as led, ta.Tape() as tape:
        provider_calls.reset()
        y = F.exp(w)
        # capability: owning; the one root's container belongs to tape and handle alike.
        record = retention_of(tape)[first_key(tape, "exp")]
        assert record.shares(record_of(y))
        # borrow: none is open on the container.
        assert not record.container.is_borrowed
        # synchronisation: one hand-out, and no other provider call.
        assert provider_calls.total == 1
        # failure: an operation error leaves no record.
        before = state(tape, y)
        with pytest.raises(ShapeError):
            w @ F.reshape(y, (1, 3))
        assert kept(tape) == [("exp", "out")]
        with pytest.raises(AllocationLimitError):
            limited(F.exp, y)
        assert state(y)[:2] == before[:2]
        # drop: what a refused operation half built is gone.
        assert led.live == 1
        # reclamation: by the container, when its last holder goes.
        del y, record
        assert led.live == 0


def limited(fn: Any, *args: Any) -> None:
    """Call `fn` while the device gives nothing more."""
    CPU.limit = 0
    try:
        fn(*args)
    finally:
        CPU.limit = None


@pytest.mark.clause("g7-row-clone-handle")
def test_row_a_handle_is_cloned(provider_calls: Any) -> None:
    with ta.ledger() as led:
        y = F.tanh(leaf())
        provider_calls.reset()
        first = record_of(y)
        z = y.clone()
        # capability: none; the clone reads the same record and cannot write.
        assert record_of(z).shares(first)
        assert not hasattr(z, "view_mut")
        # borrow: none.
        assert not first.container.is_borrowed
        # synchronisation: no provider call.
        assert provider_calls.total == 0
        # failure: none; even a device that gives nothing clones.
        limited(y.clone)
        # drop: a plain release of one reference.
        del first
        del y
        assert read(z)[0] == np.tanh(0.1)
        # reclamation: while any direct holder lives.
        assert led.live == 1
        del z
        assert led.live == 0


@pytest.mark.clause("g7-row-drop-handle")
def test_row_a_handle_goes_while_a_tape_retains_its_value(provider_calls: Any) -> None:
    w = leaf()
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = F.exp(w)
            z = F.sum(y, (0,), False)
            tape.retain(y)
        record = retention_of(tape)[first_key(tape, "exp")]
        provider_calls.reset()
        # capability and borrow: none is needed, and none is open.
        assert not record.container.is_borrowed
        del y
        # synchronisation: no provider call.
        assert provider_calls.total == 0
        # failure: none. drop: the tape's record is independent of the handle.
        with record.view() as view:
            assert view.get((0,)) == np.exp(0.1)
        del record
        # reclamation: the root stays with the container.
        assert led.live == 2
        assert read(tape.backward(z)[w]) == pytest.approx(np.exp([0.1, 0.2, 0.3]))
        del tape, z
        assert led.live == 0


@pytest.mark.clause("g7-row-tape-gone-handle-remains", "g7-row-tape-drop")
def test_row_the_tape_goes_while_a_handle_remains(provider_calls: Any) -> None:
    w = leaf()
    with ta.ledger(events=True) as led:
        with ta.Tape() as tape:
            y = F.exp(w)
            z = F.sin(F.sin(y))  # keeps y and sin(y)
            held = retention_of(tape)[first_key(tape, "exp")]
        assert led.live == 3
        provider_calls.reset()
        # capability: the tape's own reference; borrow: a reader does not stop the drop.
        with held.view() as view:
            del tape
            assert view.get((0,)) == np.exp(0.1)
        # synchronisation: no provider call. failure: none.
        assert provider_calls.total == 0
        # drop: sin(y), which the tape alone held, went once; handles keep the others.
        assert led.live == 2
        assert [e.kind for e in led.events].count("release") == 1
        del held
        assert read(y)[1] == np.exp(0.2)
        assert not y.is_tracked
        # reclamation: once, after the last direct holder.
        del y, z
        assert led.live == 0
        assert [e.kind for e in led.events].count("release") == 3


@pytest.mark.clause("g7-row-tape-record")
def test_row_a_tape_takes_and_releases_a_descriptor_record(provider_calls: Any) -> None:
    w = leaf()
    y = F.tanh(leaf())
    provider_calls.reset()
    with ta.ledger() as led:
        with ta.Tape() as tape:
            tape.retain(y)
            # capability: a reference on the owning container, counted like any other.
            with pytest.raises(NotUniqueError):
                y.into_value()
            key = first_key(tape, "retain")
            record = retention_of(tape)[key]
            # borrow: none.
            assert not record.container.is_borrowed
        # synchronisation: nothing was called, allocated or copied.
        assert provider_calls.total == 0
        led.expect(allocations={}, copies={})
        # failure: a key may be missing before anything is acquired; storage untouched.
        before = state(y, tape)
        with ta.Tape() as other:
            other_y = F.exp(w)
        with pytest.raises(InvalidSlotError):
            retention_of(other)[key]
        del other, other_y
        assert state(y, tape) == before
        # drop: an acquired record stays valid for its own lifetime.
        del tape
        assert key not in retention_of(ta.Tape())
        with record.view() as view:
            assert view.shape == (3,)
        # reclamation: when no direct holder is left.
        del record
        assert isinstance(y.into_value(), Tensor)


@pytest.mark.clause("g7-row-checkpoint-boundary")
def test_row_a_checkpoint_takes_and_releases_a_boundary_record(
    provider_calls: Any,
) -> None:
    w = leaf()
    with ta.ledger() as led:
        with ta.Tape() as tape:
            x = F.exp(w)
            y = ta.checkpoint(region)(x)
        # capability: a reference on the owning containers of inputs and outputs.
        keys = [k for k in retention_of(tape) if k.operation == "checkpoint"]
        assert [k.value for k in keys] == ["input 0", "output 0"]
        provider_calls.reset()
        records = [retention_of(tape)[k] for k in keys]
        assert records[0].shares(record_of(x))
        assert records[1].shares(record_of(y))
        # borrow: none. synchronisation: no provider call.
        assert not any(r.container.is_borrowed for r in records)
        assert provider_calls.total == 0
        # failure: a boundary key of another recording is missing; nothing acquired.
        with ta.Tape() as other:
            before = state(x, y, tape)
            with pytest.raises(InvalidSlotError):
                retention_of(other)[keys[0]]
            assert state(x, y, tape) == before
        # drop: an acquired record stays valid; interiors (2 of them) have none.
        assert led.live == 2
        del tape, x
        with records[0].view() as view:
            assert view.get((0,)) == np.exp(0.1)
        # reclamation: each boundary value follows its direct holders.
        del records[0]
        assert led.live == 1
        records.clear()
        del y
        assert led.live == 0


@pytest.mark.clause("g7-row-value-guard")
def test_row_value_lends_a_guard(provider_calls: Any) -> None:
    with ta.ledger() as led:
        y = F.tanh(leaf())
        provider_calls.reset()
        # capability: shared; further guards may be open beside it.
        with y.value() as guard, y.value() as second:
            assert guard.view.shape == second.view.shape == (3,)
            # borrow: record and container, while the guard lives.
            assert record_of(y).container.is_borrowed
            for refused in (y.into_value, ta.exclusive(y).__enter__):
                with pytest.raises(NotUniqueError):
                    refused()
            # synchronisation: a host read maps nothing and calls no provider.
            assert guard.numpy()[0] == np.tanh(0.1)
            assert provider_calls.total == 0
        # failure: an error leaves record and container as they were.
        before = state(y)
        with pytest.raises(KeyError), y.value() as guard:
            raise KeyError(guard.view.shape)
        with pytest.raises(IndexError), y.value() as guard:
            guard.view.get((3,))
        # drop: ending the guard ended the borrow.
        del guard, second
        assert state(y) == before
        assert not record_of(y).container.is_borrowed
        # reclamation: not affected.
        assert led.live == 1
        del y
        assert led.live == 0


@pytest.mark.clause("g7-row-backward")
def test_row_backward_runs_over_retained_values(provider_calls: Any) -> None:
    w = leaf()
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = F.exp(w)
            loss = F.sum(y * y, (0,), False)
        # capability: shared reads; a guard elsewhere does not disturb them.
        before = state(tape, y, w)
        # failure: typed, and the tape as before; fresh cotangents are dropped.
        with pytest.raises(ForbiddenEventError), ta.forbid(allocations=True):
            tape.backward(loss)
        assert state(tape, y, w) == before
        # borrow: the tape is held throughout and nothing in it changes.
        with y.value() as guard, guard.view:
            grads = tape.backward(loss, retain=True)
        assert state(tape, y, w)[2:] == before[2:]
        # synchronisation: on a host provider each hand-out is all it asks for.
        provider_calls.reset()
        with ta.ledger() as inner:
            again = tape.backward(loss)
        assert provider_calls.total == sum(inner.allocations.values())
        # drop: a pass that raised in the middle left no root behind.
        del y, loss, tape
        # reclamation: gradients are owned by their bundles.
        assert led.live == 2
        assert read(grads[w]) == read(again[w])
        del grads
        assert led.live == 1
        del again
        assert led.live == 0


@pytest.mark.clause("g7-row-take-grad")
def test_row_take_grad_moves_a_gradient_out(provider_calls: Any) -> None:
    w, v, unused = leaf(), leaf(), leaf()
    with ta.ledger() as led:
        with ta.Tape() as tape:
            loss = F.sum(w * v, (0,), False)
        grads = tape.backward(loss)
        del loss
        provider_calls.reset()
        # capability: exclusive on the bundle's gradient; an open view refuses it.
        before = state(grads)
        with grads.grad(w), pytest.raises(BorrowConflictError):
            grads.take_grad(w)
        assert state(grads) == before
        # failure: None, or an error with the bundle as before.
        assert grads.take_grad(unused) is None
        shared = grads[w]
        with pytest.raises(ExtractError):
            grads.take_grad(w)
        del shared
        assert state(grads) == before
        # drop: the owner leaves only after success.
        owner = grads.take_grad(w)
        # borrow: over with the call. synchronisation: none.
        with grads.grad(v) as view:
            assert view.shape == (3,)
        assert provider_calls.total == 0
        # reclamation: the moved owner's root follows the owner, not the bundle.
        del grads
        assert led.live == 1
        assert owner.numpy().tolist() == [0.1, 0.2, 0.3]
        del owner
        assert led.live == 0


@pytest.mark.clause("g7-row-into-value-shared")
@pytest.mark.parametrize("name", HOLDERS)
def test_row_into_value_while_another_holder_exists(
    name: str, provider_calls: Any
) -> None:
    with ta.ledger() as led:
        y = F.tanh(leaf())
        holder = HOLDERS[name](y)
        live = led.live
        before = state(y)
        provider_calls.reset()
        # capability: an owning attempt on one handle; extraction is never tried.
        with no_extraction(), pytest.raises(NotUniqueError) as caught:
            y.into_value()
        # borrow: none was taken. synchronisation: none.
        assert state(y) == before
        assert provider_calls.total == 0
        # failure: the same handle. drop: it and every other holder are intact.
        assert caught.value.recovered is y
        assert read(y)[2] == np.tanh(0.3)
        # reclamation: not affected.
        assert led.live == live
        del caught, holder
        y.into_value()


@pytest.mark.clause("g7-row-into-value-unique")
def test_row_into_value_on_a_unique_handle(provider_calls: Any) -> None:
    with ta.ledger() as led:
        group, (whole,) = AllocationGroup.of_tensors([F.tanh(leaf()).into_value()])
        group.insert(whole, DescriptorRequest((1,), np.float64))
        provider_calls.reset()
        y, part = from_group(group)
        with pytest.raises(UseAfterMoveError):
            group.view(whole)
        # failure: the group's own refusal, with handle and cause.
        del part
        again = (
            record_of(y)
            .container.group()
            .insert(record_of(y).container.slot(0), DescriptorRequest((2,), np.float64))
        )
        before = state(y)
        with pytest.raises(ExtractFailedError) as caught:
            y.into_value()
        assert caught.value.recovered is y
        assert isinstance(caught.value.cause, ExtractError)
        # drop: the handle was rebuilt as it was.
        assert state(y) == before
        assert read(y)[0] == np.tanh(0.1)
        del caught
        record_of(y).container.group().remove(again)
        # capability: owning; record and container are unwrapped, then the group.
        owner = y.into_value()
        assert isinstance(owner, Tensor)
        with pytest.raises(UseAfterMoveError):
            y.value()
        # borrow: none is left. synchronisation: none.
        with owner.as_view_mut() as mutable:
            mutable.fill(1.0)
        assert provider_calls.total == 0
        # reclamation: the moved owner's.
        del y
        assert led.live == 1
        del owner
        assert led.live == 0


@pytest.mark.clause("g7-row-checkpoint-record")
def test_row_a_checkpoint_region_is_recorded(provider_calls: Any) -> None:
    w = leaf()
    with ta.ledger(events=True) as led, ta.Tape() as tape:
        x = F.exp(w)
        provider_calls.reset()
        before = state(tape, x)

        def fails(t: Any) -> Any:
            t = F.sin(F.tanh(t))
            raise KeyError(t.shape)

        # failure: an error publishes no partial record.
        with pytest.raises(KeyError):
            ta.checkpoint(fails)(x)
        assert state(tape, x) == before
        # capability: boundary values only are owned by what the region keeps.
        provider_calls.reset()
        y = ta.checkpoint(region)(x)
        assert [v for op, v in kept(tape) if op == "checkpoint"] == [
            "input 0",
            "output 0",
        ]
        # borrow: none. synchronisation: the three hand-outs and nothing else.
        assert not record_of(x).container.is_borrowed
        assert provider_calls.total == 3
        # drop: interiors were never inserted and went in forward.
        assert led.live == 2
        # reclamation: boundary values after their direct holders.
        del x
        assert led.live == 2
        del y
        assert led.live == 0


@pytest.mark.clause("g7-row-checkpoint-recompute")
def test_row_backward_recomputes_a_checkpoint_region(provider_calls: Any) -> None:
    w = leaf()
    with ta.ledger(events=True) as led:
        with ta.Tape() as tape:
            x = F.exp(w)
            loss = F.sum(ta.checkpoint(region)(x), (0,), False)
        before = state(tape, x)
        # failure: typed, with everything as before; a retry works.
        with pytest.raises(ForbiddenEventError), ta.forbid(allocations=True):
            tape.backward(loss)
        assert state(tape, x) == before
        # capability: shared reads of the boundary, beside a reader of ours.
        at = len(led.events)
        provider_calls.reset()
        with x.value() as guard, guard.view as view:
            grads = tape.backward(loss, retain=True)
            # borrow: the boundary container, shared; its values are untouched.
            assert view.get((0,)) == np.exp(0.1)
        assert state(tape, x)[2:] == before[2:]
        # synchronisation: fresh owners are all that the provider was asked for.
        events = led.events[at:]
        fresh = [e for e in events if e.kind == "allocation"]
        assert provider_calls.total == len(fresh)
        again = [e for e in fresh if e.reason == "CheckpointRecomputeOutput"]
        assert [e.operation for e in again] == ["tanh", "mul"]
        # drop: x, the region's output, the loss and the gradient: no recomputed value.
        assert led.live == 4
        # reclamation: recomputed owners went at their last use.
        assert [e.kind for e in events].count("release") == len(fresh) - len(grads)
