"""G6: a call whose `Cost:` line begins with "one allocation" makes one, and copies
nothing, or what comes from outside, if it says so.

Each of them is called here on small tensors of doubles, or as `CASES` says where it
takes something else, and counted by the ledger and at the CPU provider's own hand-outs.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.testing._agree import counted_calls
from tests.scripts import script

CHECKER = script("check-public-error-docs")
CALLS = CHECKER.published()
SAID = {
    name: " ".join(text.partition("Cost:")[2].split())
    for name, text in CHECKER.texts(CALLS).items()
}
CLAIMS = sorted(name for name, cost in SAID.items() if cost.startswith("one alloc"))


def number() -> Any:
    return ta.asarray(np.linspace(0.2, 0.8, 9).reshape(3, 3))


def integer() -> Any:
    return ta.asarray(np.arange(1, 4))


def vector() -> Any:
    return ta.asarray(np.array([0.25, 0.5, 0.75]))


def key() -> Any:
    return ta.random.key(0)


# Arguments of those that do not take doubles only: made before counting begins.
CASES: dict[str, Callable[[], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "arange": lambda: ((5.0,), {}),
    "clip": lambda: ((number(), 0.3, 0.6), {}),
    "empty": lambda: ((3,), {}),
    "eye": lambda: ((3,), {}),
    "full": lambda: ((3, 2.0), {}),
    "full_like": lambda: ((number(), 2.0), {}),
    "linspace": lambda: ((0.0, 1.0, 5), {}),
    "ones": lambda: ((3,), {}),
    "zeros": lambda: ((3,), {}),
    "outer": lambda: ((vector(), vector()), {}),
    "searchsorted": lambda: ((vector(), vector()), {}),
    "segment_prod": lambda: ((vector(), integer()), {"num_segments": 4}),
    "segment_sum": lambda: ((vector(), integer()), {"num_segments": 4}),
    "where": lambda: ((number() > 0.5, number(), number()), {}),
    "fft.fftfreq": lambda: ((4,), {}),
    "fft.rfftfreq": lambda: ((4,), {}),
    "special.polygamma": lambda: ((1, number()), {}),
    "random.bits": lambda: ((key(), (3,)), {}),
    "random.key": lambda: ((7,), {}),
    "random.normal": lambda: ((key(), (3,)), {}),
    "random.randint": lambda: ((key(), (3,), 0, 9), {}),
    "random.split": lambda: ((key(),), {}),
    "random.uniform": lambda: ((key(), (3,)), {}),
    **dict.fromkeys(
        ("cumulative_logsumexp", "cumulative_prod", "cumulative_sum"),
        lambda: ((vector(),), {}),
    ),
    **dict.fromkeys(
        [
            f"bitwise_{what}"
            for what in ("and", "or", "xor", "left_shift", "right_shift")
        ],
        lambda: ((integer(), integer()), {}),
    ),
    "bitwise_invert": lambda: ((integer(),), {}),
}
# They compare with zero first, as their lines say.
WITH_A_COMPARISON = {"argwhere", "nonzero"}


def arguments(name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if name in CASES:
        return CASES[name]()
    positional = [
        p
        for p in inspect.signature(CALLS[name]).parameters.values()
        if p.default is p.empty and p.kind <= p.POSITIONAL_OR_KEYWORD
    ]
    return tuple(number() for _ in positional), {}


def test_there_are_many_and_every_case_is_one_of_them() -> None:
    assert len(CLAIMS) > 150
    assert CASES.keys() <= set(CLAIMS)
    for name in WITH_A_COMPARISON:
        assert "and the comparison with zero" in SAID[name]


@pytest.mark.clause("g6-cost-line")
@pytest.mark.parametrize("name", CLAIMS)
def test_a_call_that_says_one_allocation_makes_one(name: str) -> None:
    positional, named = arguments(name)
    with counted_calls() as calls, ta.ledger() as led:
        made = CALLS[name](*positional, **named)
    count = 2 if name in WITH_A_COMPARISON else 1
    if "filled from outside (one `Transfer`)" in SAID[name]:
        led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})
    else:
        led.expect(allocations={"OperationOutput": count}, copies={})
    assert calls.total == count
    del made, positional, named
