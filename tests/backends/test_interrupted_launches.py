"""An interrupt in an eager operation of a device is what its caller sees."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.storage import retirements
from tests.backends.lane_support import SECONDS, Lane, Panicking
from tests.test_interrupts import MANY, interrupted

X = np.asarray([0.5, 1.0], np.float32)


def test_an_interrupt_at_any_place_of_a_launch_is_an_interrupt() -> None:
    device = FakeProvider(auto=True)
    x = ta.asarray(X, device=device)
    pending = retirements.pending
    for at in range(MANY):
        y = ta.asarray(X, device=device)
        target, other = y._record.array, x._record.array
        add = functools.partial(device.add_into, target, other)
        where, _ = interrupted(add, at)  # raises whatever else it meets
        if not where:
            break
    assert at > 100
    assert y.tolist() == (2 * X).tolist()
    device.drain()
    assert retirements.pending == pending
    assert x.tolist() == X.tolist()


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_that_leaves_no_proof_reaches_the_caller(
    eager_lane: Lane, kind: type[BaseException]
) -> None:
    lane = eager_lane
    x = ta.asarray(X, device=lane.device)
    lane.device.drain()
    executions, first = lane.device.executions, lane.device.executions.engine
    endpoint = Panicking(lane.endpoint, "enqueued", kind("stop"))
    executions.engine = type(first)(endpoint, SECONDS)
    try:
        with pytest.raises(kind, match="stop"):
            ta.exp(x)
        lane.device.drain()
        assert x.tolist() == X.tolist()
        assert np.allclose(ta.exp(x).numpy(), np.exp(X))
    finally:
        assert executions.engine.close(SECONDS)
        executions.engine = first
