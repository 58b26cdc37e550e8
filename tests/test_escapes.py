"""Values that leave a recording, and blocks that are left in another order."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import InactiveTapeError, InvalidArgumentError

A = np.array([1.0, 2.0])


def test_a_value_leaked_from_a_region_is_refused_not_taken_as_a_constant() -> None:
    a = ta.variable(A)
    seen: list[Any] = []

    def region(q: Any) -> Any:
        seen.append(q)
        seen.append(ta.tanh(q))
        return seen[1] * 2.0

    with ta.Tape() as tape:
        out = ta.checkpoint(region)(a)
        for leaked in seen:
            for use in (lambda v: out * v, ta.tanh, lambda v: v + 1.0):
                with pytest.raises(InactiveTapeError, match="without being returned"):
                    use(leaked)
        loss = ta.sum(out)
    assert np.allclose(tape.backward(loss)[a].numpy(), 2 * (1 - np.tanh(A) ** 2))
    assert np.allclose(seen[1].numpy(), np.tanh(A))  # to look at, it is a constant


@pytest.mark.parametrize("transform", ["grad", "jvp", "vjp", "value_and_grad"])
def test_a_leaked_value_cannot_be_the_result_either(transform: str) -> None:
    def outer(x: Any) -> Any:
        seen: list[Any] = []
        ta.checkpoint(lambda q: (seen.append(q * q), q)[1])(x)
        return seen[0]

    x = ta.variable(3.0)
    calls = {
        "grad": lambda: ta.grad(outer)(x),
        "jvp": lambda: ta.jvp(outer, (x,), (1.0,)),
        "vjp": lambda: ta.vjp(outer, x),
        "value_and_grad": lambda: ta.value_and_grad(outer)(x),
    }
    with pytest.raises(InactiveTapeError, match="without being returned"):
        calls[transform]()


def test_what_leaves_an_inner_gradient_stays_tracked_outside() -> None:
    def outer(x: Any) -> Any:
        seen: list[Any] = []
        ta.grad(lambda y: (seen.append(y * x), ta.sum(y * x))[1])(ta.variable(2.0))
        return seen[0] * x

    assert ta.grad(outer)(3.0).item() == 12.0
    assert ta.jvp(outer, (np.array(3.0),), (np.array(1.0),))[1].item() == 12.0


def test_generators_may_leave_tapes_in_any_order() -> None:
    a = ta.variable(A)

    def steps() -> Iterator[Any]:
        with ta.Tape() as tape:
            y = a * 2.0
            yield None
            loss = ta.sum(y)
        yield tape.backward(loss)

    running = steps()
    next(running)
    with ta.Tape() as tape:
        k = ta.sum(a * a)
        grads = next(running)
    assert np.array_equal(grads[a].numpy(), [2.0, 2.0])
    assert not (a * 2.0).is_tracked
    assert np.array_equal(tape.backward(k)[a].numpy(), 2 * A)
    assert ta.grad(lambda v: ta.sum(v * v))(A).tolist() == [2.0, 4.0]


def test_a_closed_tape_is_never_active_again() -> None:
    a = ta.variable(A)
    first, second = ta.Tape(), ta.Tape()
    first.__enter__()
    y = a * 2.0
    second.__enter__()
    first.__exit__(None, None, None)
    second.__exit__(None, None, None)
    assert not (a * 2.0).is_tracked
    grads = first.backward(y, cotangent=np.ones(2))
    assert np.array_equal(grads[a].numpy(), [2, 2])
    del first, second, y
    assert ta.grad(lambda v: ta.sum(v * v))(a).tolist() == [2.0, 4.0]


def test_a_ledger_that_outlives_a_tape_block_does_not_reopen_it() -> None:
    a = ta.variable(A)
    tape, scope = ta.Tape(), ta.ledger()
    tape.__enter__()
    scope.__enter__()
    tape.__exit__(None, None, None)
    assert not (a * 2.0).is_tracked
    scope.__exit__(None, None, None)
    assert not (a * 2.0).is_tracked


def test_ledgers_may_be_left_in_any_order() -> None:
    x = ta.asarray(A)
    first, second = ta.ledger(), ta.ledger()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    ta.tanh(x)
    second.__exit__(None, None, None)
    ta.tanh(x)
    assert second.allocations == {"OperationOutput": 1}
    assert first.live == second.live == 0


def test_a_variable_depends_on_itself() -> None:
    s = ta.variable(2.0)
    with ta.Tape() as tape:
        pass
    assert tape.backward(s)[s].item() == 1.0


def test_primals_that_are_no_tuple_are_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="tuple"):
        ta.jvp(ta.tanh, ta.asarray(A), (A,))
