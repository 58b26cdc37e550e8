"""Compiled programs that write over a view and then look at what was written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta

X = np.arange(1.0, 10.0).reshape(3, 3) / 7.0

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "a broadcast of a product over a reshaped sum": lambda x: (
        ta.broadcast_to(ta.reshape(ta.sum(x, axis=0), (1, 3)) * 0.3, (3, 3)) + x
    ),
    "a slice of it": lambda x: ta.reshape(ta.sin(x), (9,))[::-1][2:5] * 2.0,
    "a chain of it": lambda x: ta.sum(
        ta.broadcast_to(
            ta.sin(ta.exp(ta.reshape(ta.sum(x, axis=1), (3, 1))) * 0.5).mT, (3, 3)
        ).mT
        * x,
        axis=0,
    ),
    "a sum with kept axes": lambda x: ta.grad(
        lambda y: ta.sum(ta.sin(ta.sum(y, axis=0, keepdims=True) * 0.3 + y) ** 2)
    )(ta.roll(x, 1, axis=1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_seen_is_what_was_written(name: str) -> None:
    f = PROGRAMS[name]
    compiled = ta.compile(f)
    for scale in (1.0, -2.0):
        x = ta.asarray(X * scale)
        with ta.ledger() as led:
            found = compiled(x)
        assert not led.copies
        assert np.array_equal(np.asarray(found), np.asarray(f(x)))
    del found
    with ta.ledger() as led:
        compiled(x)
    assert dict(led.allocations) == {
        reason: n for reason, n in compiled.plan(x).allocations.items() if n
    }
