"""Donated inputs of compiled functions: used, refused, and never half lost."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.errors import (
    BorrowConflictError,
    IndexRangeError,
    InvalidArgumentError,
    NotUniqueError,
    TenferroError,
    UseAfterMoveError,
)
from tests.trees import agree

RNG = np.random.default_rng(11)


def normal(*shape: int) -> ta.EagerTensor:
    return ta.asarray(RNG.normal(size=shape))


def address(x: ta.EagerTensor) -> int:
    with x.value() as guard:
        return int(guard.numpy().__array_interface__["data"][0])


def descend(params: Any, x: Any) -> Any:
    """A step of gradient descent."""

    def loss(params: Any) -> Any:
        w, b = params
        return ta.mean((ta.tanh(x @ w + b)) ** 2)

    grads = ta.grad(loss)(params)
    return [p - 0.1 * g for p, g in zip(params, grads, strict=True)]


# ---- used ----------------------------------------------------------------------------


def test_outputs_take_over_the_memory_of_donated_inputs(provider_calls: Any) -> None:
    step = ta.compile(descend, donate_argnums=0)
    params = [normal(4, 3), normal(3)]
    x = normal(5, 4)
    plain = [ta.asarray(np.asarray(p)) for p in params]
    places = [address(p) for p in params]
    for _ in range(4):
        params = step(params, x)
        plain = descend(plain, x)
        agree(params, plain, 1e-13)
        assert sorted(map(address, params)) == sorted(places)
    provider_calls.reset()
    with ta.ledger() as led:
        params = step(params, x)
    led.expect(allocations={"OperationOutput": 1}, copies={})  # the arena
    assert provider_calls.total == 1


def test_donated_handles_are_empty() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    p = normal(3)
    step(p)
    for use in (lambda: p + 1.0, lambda: p.shape, lambda: step(p), lambda: p.clone()):
        with pytest.raises(UseAfterMoveError):
            use()
    assert repr(p) == "tensor(<moved out>)"


def test_variables_are_donated_like_any_value() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    p = ta.variable(np.ones(3))
    place = address(p)
    q = step(p)
    assert address(q) == place
    agree(q, 2 * np.ones(3))


def test_only_some_arguments_are_donated() -> None:
    step = ta.compile(lambda a, b, k, c: (a + b, c * k), donate_argnums=(0, -1))
    a, b, c = normal(3), normal(3), normal(4)
    wanted = (a + b, c * 3)
    places = [address(a), address(c)]
    found = step(a, b, 3, c)
    agree(found, wanted)
    assert [address(y) for y in found] == places
    b + 1.0  # still there
    with pytest.raises(UseAfterMoveError):
        c + 1.0


def test_outside_arrays_may_be_donated() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    array = np.ones(3)
    with ta.ledger() as led:
        agree(step(array), 2 * np.ones(3))
    agree(array, np.ones(3))
    led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})


def test_memory_is_taken_over_where_the_kernel_reads_it_first() -> None:
    """The output may be written over an operand only as the first, elementwise one."""
    for f in (
        lambda p, x: x - p,  # the second operand
        lambda p, x: p @ p,  # a product reads all of it
        lambda p, x: p + p.T,  # a view of it is read too
        lambda p, x: (p * x) / ta.sum(p),  # read again afterwards
        lambda p, x: ta.cumulative_sum(p, axis=0),
    ):
        step = ta.compile(f, donate_argnums=0)
        p, x = normal(3, 3), normal(3, 3)
        wanted = f(p, x)
        with pytest.raises(InvalidArgumentError, match="of its shape and dtype after"):
            step(p, x)
        agree(f(p, x), wanted)  # nothing happened
    step = ta.compile(lambda p, x: p * x + 1.0, donate_argnums=0)
    p, x = normal(3, 3), normal(3, 3)
    wanted, place = p * x + 1.0, address(p)
    found = step(p, x)
    agree(found, wanted, 1e-14)
    assert address(found) == place


def test_a_later_output_may_take_over_what_an_earlier_one_cannot() -> None:
    def f(p: Any) -> Any:
        y = p @ p
        return y, ta.exp(y)

    step = ta.compile(f, donate_argnums=0)
    p = normal(3, 3)
    wanted, place = f(p), address(p)
    found = step(p)
    agree(found, wanted, 1e-13)
    assert place in [address(y) for y in found]


def test_pytrees_and_what_is_no_tensor_in_them() -> None:
    step = ta.compile(
        lambda s: {"n": s["n"] + 1, "w": s["w"] * 2.0, "how": s["how"]},
        donate_argnums=0,
    )
    state = {"n": 1, "w": normal(3), "how": "a"}
    place = address(state["w"])
    found = step(state)
    assert (found["n"], found["how"]) == (2, "a")
    assert address(found["w"]) == place


# ---- refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "f",
    [
        lambda p: ta.sum(p),
        lambda p: p[1:],
        lambda p: ta.astype(p, ta.float32),
        lambda p: (p, p * 2.0),
        lambda p: (p.T, p * 2.0),
        lambda p: (),
    ],
    ids=["sum", "slice", "dtype", "identity", "view", "nothing"],
)
def test_a_donation_that_nothing_can_use_is_refused(f: Any) -> None:
    step = ta.compile(f, donate_argnums=0)
    p = normal(3, 3)
    before = np.asarray(p).copy()
    with pytest.raises(InvalidArgumentError, match="donate"):
        step(p)
    agree(p, before, 0)


def test_more_donations_than_outputs_are_refused() -> None:
    step = ta.compile(lambda p, q: p + q, donate_argnums=(0, 1))
    p, q = normal(3), normal(3)
    with pytest.raises(InvalidArgumentError, match="input 1"):
        step(p, q)
    agree(p + q, p + q)


def test_values_that_others_hold_are_refused_and_come_back() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    p = normal(3)
    holders: list[Any] = [p.clone()]
    for make in (
        lambda: p.value().__enter__(),
        lambda: np.asarray(p),
        lambda: memoryview(np.asarray(p))[1:],
        lambda: p[1:],
        lambda: ta.reshape(p, (3, 1)),
    ):
        with pytest.raises((NotUniqueError, BorrowConflictError)) as caught:
            step(p)
        if isinstance(caught.value, NotUniqueError):
            assert caught.value.recovered is p
        del caught
        holders.clear()
        gc.collect()
        holders.append(make())
    with pytest.raises((NotUniqueError, BorrowConflictError)):
        step(p)
    holders.clear()
    gc.collect()
    step(p)


def test_a_view_of_something_larger_is_refused() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    whole = normal(4)
    part = whole[:2]
    del whole
    with pytest.raises(NotUniqueError, match="larger"):
        step(part)


def test_one_value_given_twice_is_refused() -> None:
    for step, args in (
        (ta.compile(lambda p, q: (p + 1.0, q * 2.0), donate_argnums=(0, 1)), 2),
        (ta.compile(lambda p, q: p + q, donate_argnums=0), 2),
        (ta.compile(lambda ps: [p * 2.0 for p in ps], donate_argnums=0), 0),
    ):
        p = normal(3)
        with pytest.raises(NotUniqueError, match="twice"):
            step(*[p] * args) if args else step([p, p])
        p + 1.0
        with pytest.raises(NotUniqueError):
            step(*[p, p.clone()]) if args else step([p, p.clone()])
        p + 1.0


def test_a_constant_of_the_function_is_refused() -> None:
    p = normal(3)
    step = ta.compile(lambda q: q + p, donate_argnums=0)
    with pytest.raises(NotUniqueError):
        step(p)
    agree(step(normal(3) * 0.0), p)


def test_a_value_that_a_tape_keeps_is_refused() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    p, w = normal(3), ta.variable(np.ones(3))
    with ta.Tape() as tape:
        y = ta.sum(w * p)
    with pytest.raises(NotUniqueError):
        step(p)
    tape.backward(y)
    step(p)


def test_recordings_and_traces_refuse_donations() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    p = normal(3)
    step(normal(3))
    for call in (
        lambda: ta.grad(lambda x: ta.sum(step(x)))(p),
        lambda: ta.trace(lambda x: step(x), p),
        lambda: ta.compile(lambda x: step(x))(p),
        lambda: ta.vmap(step)(p),
    ):
        with pytest.raises(InvalidArgumentError, match="keeps the operands"):
            call()
        p + 1.0
    with ta.Tape(), pytest.raises(InvalidArgumentError, match="keeps the operands"):
        step(p)
    p + 1.0


# ---- failures ------------------------------------------------------------------------


def take_after(p: Any, q: Any, x: Any, i: Any) -> Any:
    first = p * 2.0
    return first, q + ta.take(x, i, axis=0)


def test_what_was_not_written_over_comes_back_after_a_failure() -> None:
    step = ta.compile(take_after, donate_argnums=(0, 1))
    x, good, bad = normal(3, 2), ta.asarray([0, 1]), ta.asarray([0, 5])
    p, q = normal(2), normal(2, 2)
    step(normal(2), normal(2, 2), x, good)
    gc.collect()
    live = BASE.live
    with pytest.raises(IndexRangeError):
        step(p, q, x, bad)
    # The kernel that fails stands before the one that writes over q.
    wanted = take_after(normal(2), q, x, good)[1]
    agree(step(normal(2), q, x, good)[1], wanted)
    try:
        p + 1.0
    except UseAfterMoveError:
        del p  # its memory was written over
    gc.collect()
    assert BASE.live <= live


def test_forbidden_allocations_leave_donated_values_as_they_are() -> None:
    step = ta.compile(lambda p, x: p + ta.sum(ta.exp(x) @ x), donate_argnums=0)
    x = normal(3, 3)
    step(normal(3), x)
    p = normal(3)
    before = np.asarray(p).copy()
    with ta.forbid(allocations=True), pytest.raises(TenferroError):
        step(p, x)
    agree(p, before, 0)
    step(p, x)


def test_donation_and_sharing_meet_in_one_cache() -> None:
    """A replay with and one without donation are different entries."""

    def f(p: Any) -> Any:
        return ta.tanh(p) * 3.5

    one, two = ta.compile(f), ta.compile(f, donate_argnums=0)
    p = normal(3)
    kept = one(p)
    agree(two(p), kept)
    q = normal(3)
    one(q)
    q + 1.0
