"""G7 on every lane: the same records, events and refusals, over real asynchronous work.

`lane` is each device that `TENFERRO_BACKENDS` names in turn. Multisets are written by
hand, as for the CPU in `test_g7.py`; `tests/backends/test_equal_ledgers.py` compares
whole programs between lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU
from tenferro_ad.engine._ownership_views import record_of, retention_of
from tenferro_ad.errors import ExtractError, NotUniqueError
from tenferro_ad.storage import Tensor
from tests.contract.device_support import Counts
from tests.contract.g7_support import F, first_key, kept, region

X = np.array([0.1, 0.2, 0.3], np.float32)


def leaf(lane: Any, values: Any = X) -> ta.EagerTensor:
    made = ta.variable(ta.asarray(values, device=lane))
    lane.drain()
    return made


def staged(lane: Any) -> list[int]:
    """Uploads and mappings so far, by the provider's own count."""
    if lane is CPU:
        return []
    return [lane.counts[name] for name in ("upload", "transfer", "map")]


@pytest.mark.clause("g7-lane-async", "g7-acceptance-multisets")
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpoint"])
def test_both_passes_match_their_multisets_on_the_lane(
    lane: Any, checkpointed: bool
) -> None:
    w = leaf(lane)
    f = ta.checkpoint(region) if checkpointed else region
    before, records = staged(lane), Counts()
    for _ in range(2):  # the same again
        with ta.ledger() as led:
            with ta.Tape() as tape:
                loss = F.sum(f(w), (0,), False)
            grads = tape.backward(loss)
        expected = {"OperationOutput": 7}  # as test_g7.py counts them
        if checkpointed:
            expected["CheckpointRecomputeOutput"] = 2
        led.expect(allocations=expected, copies={})
    lane.drain()
    now = records()
    assert now.get("opened", 0) == now.get("released", 0)
    assert "pending" not in now
    if lane is not CPU:
        # One launch retires for each allocation, and for each value written over.
        assert now["opened"] >= 2 * sum(expected.values())
    assert staged(lane) == before
    t = np.tanh(X)
    wanted = np.cos(t * X) * (t + X * (1 - t * t))
    owner = grads.take_grad(w)
    assert isinstance(owner, Tensor)
    assert owner.device is lane
    assert np.allclose(owner.numpy(), wanted, rtol=1e-5)


@pytest.mark.clause("g7-lane-async", "g7-retained-iff-declared")
def test_the_lane_retains_what_rules_declare(lane: Any) -> None:
    w, c = leaf(lane), leaf(lane, X + 1)
    with ta.Tape() as tape:
        b = (w + c) * ta.stop_gradient(c)
        y = F.sin(F.exp(b))
        out = ta.checkpoint(region)(y)
    assert kept(tape) == [
        ("mul", "y"),
        ("exp", "out"),
        ("sin", "x"),
        ("checkpoint", "input 0"),
        ("checkpoint", "output 0"),
    ]
    record = retention_of(tape)[first_key(tape, "checkpoint")]
    assert record.shares(record_of(y))
    del out
    lane.drain()
    with record.view() as view:
        assert view.device is lane
        assert np.allclose(view.numpy(), np.sin(np.exp((2 * X + 1) * (X + 1))))


@pytest.mark.clause("g7-lane-async", "g7-standalone-paths")
def test_an_owner_leaves_the_lane_by_uniqueness_or_by_a_recorded_copy(
    lane: Any,
) -> None:
    w = leaf(lane)
    with ta.Tape() as tape:
        y = F.tanh(w)
    lane.drain()
    with pytest.raises(NotUniqueError) as caught:
        y.into_value()
    assert caught.value.recovered is y
    with ta.ledger() as led:
        copied = y.duplicate_value()
    led.expect(
        allocations={"ExplicitDuplicateDestination": 1},
        copies={"ExplicitDuplicate": 1},
    )
    lane.drain()
    del tape, caught
    with ta.forbid(copies=True, allocations=True):
        moved = y.into_value()
    assert copied.device is moved.device is lane
    assert np.array_equal(copied.numpy(), moved.numpy())
    assert copied.span.serial != moved.span.serial


@pytest.mark.clause("g7-lane-async", "g7-take-grad-outcomes")
def test_gradients_on_the_lane_have_one_owner_each(lane: Any) -> None:
    u, v, unused = leaf(lane), leaf(lane), leaf(lane)
    with ta.Tape() as tape:
        loss = F.sum(u + v, (0,), False)
    grads = tape.backward(loss)
    assert grads.take_grad(unused) is None
    held = grads[u]
    with pytest.raises(ExtractError):
        grads.take_grad(u)
    del held
    lane.drain()
    a, b = grads.take_grad(u), grads.take_grad(v)
    assert a is not None
    assert b is not None
    assert a.span.serial != b.span.serial
    assert a.numpy().tolist() == b.numpy().tolist() == [1.0] * 3


@pytest.mark.clause("g7-lane-async", "g7-handle-outlives-tape")
def test_the_last_holder_gives_the_lanes_memory_back(lane: Any) -> None:
    w = leaf(lane)
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = w * w
            loss = F.tanh(ta.checkpoint(region)(y))
        clone = y.clone()
        del y, loss, tape
        lane.drain()
        assert led.live == 1
        assert np.allclose(clone.numpy(), X * X)
        del clone
        lane.drain()
        assert led.live == 0
