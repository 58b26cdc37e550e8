"""Cotangents and tangents belong where the value is: nothing is moved in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import DeviceMismatchError
from tests.backends.lane_support import Lane

X = np.asarray([0.5, 1.0, 2.0], np.float32)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "reversed": lambda x: x[::-1],
    "tanh": ta.tanh,
    "squared": lambda x: x * x,
}


def backward(f: Callable[[Any], Any], x: Any, ct: Any) -> Any:
    w = ta.variable(x)
    with ta.Tape() as tape:
        y = f(w)
    return tape.backward(y, cotangent=ct).grad(w)


def vjp(f: Callable[[Any], Any], x: Any, ct: Any) -> Any:
    return ta.vjp(f, x)[1](ct)[0]


def jvp(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
    return ta.jvp(f, (x,), (t,))[1]


def linearized(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
    return ta.linearize(f, x)[1](t)


CALLS = {"backward": backward, "vjp": vjp, "jvp": jvp, "linearize": linearized}


def both_ways(lane: Lane) -> list[tuple[Any, Any]]:
    here, there = ta.asarray(X, device=lane.device), ta.asarray(X)
    return [(here, there), (there, here)]


@pytest.mark.parametrize("f", FUNCTIONS.values(), ids=FUNCTIONS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_seed_of_another_device_is_refused(
    eager_lane: Lane, call: Any, f: Any
) -> None:
    for x, seed in both_ways(eager_lane):
        with pytest.raises(DeviceMismatchError, match=r"\.to\("):
            call(f, x, seed)


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_outside_data_becomes_a_seed_where_the_value_is(
    eager_lane: Lane, call: Any
) -> None:
    x = ta.asarray(X, device=eager_lane.device)
    found = call(lambda x: x * x, x, np.ones(3, np.float32))
    assert found.device is eager_lane.device
    assert np.array_equal(found.numpy(), 2 * X)


def reverse_rule(x: Any, given: Any) -> Any:
    """The gradient at `x` of a function whose rule gives `given`."""

    @ta.custom_vjp
    def f(x: Any) -> Any:
        return ta.sum(x)

    f.defvjp(lambda x: (ta.sum(x), None), lambda res, ct: (given,))
    return ta.grad(f)(x)


def forward_rule(x: Any, given: Any) -> Any:
    """The tangent at `x` of a function whose rule gives `given`."""

    @ta.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    f.defjvp(lambda primals, tangents: (primals[0] * 2, given))
    return ta.jvp(f, (x,), (x,))[1]


@pytest.mark.parametrize("rule", [reverse_rule, forward_rule])
def test_a_rule_of_the_users_own_stays_on_its_device(
    eager_lane: Lane, rule: Any
) -> None:
    for x, other in both_ways(eager_lane):
        with pytest.raises(DeviceMismatchError, match=f"`{other.device.name}`"):
            rule(x, other)
