"""Structure of the eager hot path: objects, calls, depth and leaks; never times."""

import gc
import sys
from collections.abc import Iterator

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_an_output_costs_a_handle_and_a_record(no_collector: None) -> None:
    x = ta.asarray(np.ones(16))
    kinds = ("EagerTensor", "ValueRecord")

    def count() -> dict[str, int]:
        found = dict.fromkeys(kinds, 0)
        others = 0
        for thing in gc.get_objects():
            kind = type(thing)
            if str(kind.__module__).startswith("tenferro_ad"):
                if kind.__name__ in found:
                    found[kind.__name__] += 1
                else:
                    others += 1
        return {**found, "others": others}

    held = [ta.tanh(x * x)]  # plans are made
    before = count()
    held += [x * x for _ in range(100)]
    after = count()
    made = {k: after[k] - before[k] for k in after}
    assert made["EagerTensor"] == made["ValueRecord"] == 100
    # A worker of an engine may come or go meanwhile; a third object each would be 100.
    assert abs(made["others"]) < 50


def _calls_of_backward(spectators: int) -> int:
    x = ta.variable(np.linspace(0.1, 0.9, 8))
    others = [ta.variable(np.ones(2)) for _ in range(spectators)]
    with ta.Tape() as tape:
        loss = ta.sum(ta.tanh(x * x) * ta.exp(x))
    tape.backward(loss, retain=True)  # rules are prepared
    calls = 0

    def profile(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    gc.disable()  # what other tests left would run its finalisers
    sys.setprofile(profile)
    try:
        tape.backward(loss)
    finally:
        sys.setprofile(None)
        gc.enable()
    assert len(others) == spectators
    return calls


def test_unrelated_variables_cost_backward_nothing(no_collector: None) -> None:
    assert _calls_of_backward(10_000) == _calls_of_backward(0)


def _chain(length: int) -> None:
    x = ta.variable(np.array([0.5, 2.0]))
    with ta.Tape() as tape:
        y = x
        for _ in range(length):
            y = y * 1.0
        loss = ta.sum(y)
    text = tape.program().format()
    assert f"program with {length + 1} equations" in text
    assert text.count("\n") < 60  # summarised
    grads = tape.backward(loss)
    view = grads.grad(x)
    assert view is not None
    assert view.numpy().tolist() == [1.0, 1.0]


def test_a_long_chain_needs_no_recursion(no_collector: None) -> None:
    _chain(100_000)


@pytest.mark.slow
def test_a_chain_of_a_million_needs_no_recursion(no_collector: None) -> None:
    _chain(1_000_000)


def test_a_long_chain_is_dropped_without_recursion(no_collector: None) -> None:
    live = BASE.live
    x = ta.variable(np.ones(4))
    tape = ta.Tape()
    with tape:
        y = x
        for _ in range(100_000):
            y = ta.tanh(y)
    del y  # nobody can reach the chain: it goes at once, link by link
    assert tape.retained() == []
    del tape, x
    assert live == BASE.live


def test_a_thousand_steps_leave_nothing_behind(no_collector: None) -> None:
    before = BASE.live, BASE.live_bytes
    rng = np.random.default_rng(0)
    params = {
        "w": ta.variable(rng.standard_normal((8, 4)) * 0.3),
        "b": ta.variable(np.zeros(4)),
        "v": ta.variable(rng.standard_normal((4, 1)) * 0.3),
    }
    x = ta.asarray(rng.standard_normal((16, 8)))
    target = ta.asarray(rng.standard_normal((16, 1)))
    optimizer = ta.optim.Adam(1e-2)

    def loss_of(
        p: dict[str, ta.EagerTensor], x: ta.EagerTensor, target: ta.EagerTensor
    ) -> ta.EagerTensor:
        block = ta.checkpoint(lambda h, w, b: ta.tanh(h @ w + b))
        error = block(x, p["w"], p["b"]) @ p["v"] - target
        return ta.mean(error * error)

    step = ta.value_and_grad(loss_of)
    seen = set()
    for number in range(1000):
        loss, grads = step(params, x, target)
        optimizer.update(params, grads)
        del loss, grads
        if number >= 1:
            seen.add((BASE.live, BASE.live_bytes))
    assert len(seen) == 1  # flat from the second step on
    del params, x, target, optimizer, step, loss_of
    assert (BASE.live, BASE.live_bytes) == before
