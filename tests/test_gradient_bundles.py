"""`Gradients`: all or nothing, and sums that whoever records sees."""

from __future__ import annotations

from typing import Any

import pytest

import tenferro_ad as ta
from tenferro_ad.errors import ExtractError, InvalidArgumentError


def of(x: ta.EagerTensor, factor: float = 1.0) -> ta.Gradients:
    """Gradients of `factor` times the sum of the cubes."""
    return ta.value_and_grad(lambda v: ta.sum(v * v * v) * factor)(x)[1]


def read(grads: ta.Gradients, x: ta.EagerTensor) -> Any:
    with grads.grad(x) as view:
        return view.numpy().tolist()


def test_a_group_is_made_of_all_gradients_or_of_none() -> None:
    a, b = ta.variable([1.0]), ta.variable([2.0])
    grads = of(a)
    grads.accumulate(of(b))
    view = grads.grad(b)
    with pytest.raises(ExtractError, match="still reads"):
        grads.into_group()
    assert (len(grads), read(grads, a)) == (2, [3.0])
    view.close()
    group, slots = grads.into_group()
    assert (len(grads), len(slots)) == (0, 2)
    del group


def test_sums_of_tracked_gradients_are_recorded() -> None:
    x, y = ta.variable(2.0), ta.variable(3.0)
    with ta.Tape() as tape:
        grads = of(x)
        grads.accumulate(of(x))
        grads.accumulate(of(y))  # which the bundle has not
        total = grads[x] + grads[y]
    assert total.is_tracked
    second = tape.backward(total)
    assert (read(second, x), read(second, y)) == (24.0, 18.0)


def test_sums_of_traced_gradients_are_traced() -> None:
    x = ta.variable([1.0, 2.0])

    def summed(factor: ta.EagerTensor) -> Any:
        grads = of(x, factor)
        grads.accumulate(of(x, factor))
        return grads[x]

    assert ta.compile(summed)(ta.asarray(1.0)).tolist() == [6.0, 24.0]


def test_sums_of_other_gradients_are_made_in_place() -> None:
    x = ta.variable([1.0, 2.0])
    grads, more = of(x), of(x)
    with ta.ledger() as led:
        grads.accumulate(more)
    led.expect(allocations={}, copies={})
    assert read(grads, x) == [6.0, 24.0]


@pytest.mark.parametrize("dropped", ["first", "second"])
def test_a_gradient_is_shared_until_one_bundle_is_dropped(dropped: str) -> None:
    a, b = ta.variable([1.0]), ta.variable([2.0])
    bundles = {"first": of(a), "second": of(b)}
    bundles["first"].accumulate(bundles["second"])
    for grads in bundles.values():
        with pytest.raises(ExtractError, match="another bundle"):
            grads.take_grad(b)
    del grads, bundles[dropped]
    (grads,) = bundles.values()
    assert grads.take_grad(b).numpy().tolist() == [12.0]


def test_something_else_than_a_bundle_is_refused() -> None:
    grads = of(ta.variable([1.0]))
    with pytest.raises(InvalidArgumentError, match="`accumulate` refused `other`"):
        grads.accumulate({})  # type: ignore[arg-type]
