"""Threads: one leaf shared by many, ledgers for each context, tapes that are joined."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import InactiveTapeError, NotUniqueError, TapeConsumedError

THREADS = 6
ROUNDS = 60


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Run `work(number)` in so many threads at once; raise what one of them raised."""
    barrier = threading.Barrier(threads)
    raised: list[BaseException] = []

    def run(number: int) -> None:
        barrier.wait()
        try:
            work(number)
        except BaseException as error:
            raised.append(error)

    running = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(timeout=60)
    if raised:
        raise raised.pop(0)
    assert not any(thread.is_alive() for thread in running)


def elements(view: Any) -> list[float]:
    with view:
        return view.numpy().tolist()  # type: ignore[no-any-return]


def test_every_thread_gets_its_full_gradient_of_a_shared_leaf() -> None:
    w = ta.variable(np.array([1.0, 2.0]))

    def work(number: int) -> None:
        for k in range(ROUNDS):
            with ta.Tape() as tape:
                y = w * float(number + 1)
                loss = ta.sum(y * y * float(k))
            grads = tape.backward(loss)
            factor = 2.0 * k * (number + 1) ** 2
            assert elements(grads.grad(w)) == [factor, 2.0 * factor]

    together(work)
    assert isinstance(w.into_value(), ta.Tensor)  # every holder gave its token back


def test_each_context_counts_its_own_events_and_nobody_elses() -> None:
    w = ta.variable(np.array([1.0, 2.0]))
    counts: list[Any] = [None] * THREADS

    def work(number: int) -> None:
        with ta.ledger() as led:
            for _ in range(ROUNDS):
                y = w
                for _ in range(number + 1):
                    y = ta.tanh(y)
                del y
            counts[number] = (dict(led.allocations), led.live, led.peak_bytes)

    with ta.ledger() as outside:
        together(work)
        outside.expect(allocations={}, copies={})
    # Two values of 16 bytes are alive at the peak: the operand and the result.
    assert counts == [
        ({"OperationOutput": ROUNDS * (n + 1)}, 0, 16 if n == 0 else 32)
        for n in range(THREADS)
    ]


def test_clones_and_drops_in_many_threads_leave_exact_counts() -> None:
    y = ta.tanh(ta.asarray([1.0]))

    def work(number: int) -> None:
        for _ in range(20 * ROUNDS):
            a = y.clone()
            b = a.clone()
            del a
            assert b._record is y._record
            del b

    with ta.forbid(copies=True, allocations=True):
        together(work)
    kept = y.clone()
    with pytest.raises(NotUniqueError):
        y.into_value()
    del kept
    assert isinstance(y.into_value(), ta.Tensor)


def test_a_value_may_die_in_another_thread_and_is_charged_to_its_own_scope() -> None:
    box: list[Any] = []
    with ta.ledger() as led:
        box.append(ta.tanh(ta.asarray([1.0])))
        assert led.live == 1
        together(lambda n: box.clear(), threads=1)
        assert led.live == 0


def test_a_thread_does_not_see_the_tape_of_another_until_it_attaches() -> None:
    w = ta.variable(np.array([1.0, 2.0]))
    made: list[Any] = []
    with ta.Tape() as tape:
        y = w * w

        def unattached(number: int) -> None:
            made.append(ta.sin(w))  # a leaf outside any tape computes untracked
            with pytest.raises(InactiveTapeError):
                ta.sin(y)

        together(unattached, threads=1)
        assert not made.pop().is_tracked

        def attached(number: int) -> None:
            with tape.attach():
                made.append(ta.sin(y))
            with pytest.raises(InactiveTapeError):
                ta.sin(y)

        together(attached, threads=1)
        loss = ta.sum(made.pop())
    grads = tape.backward(loss)
    expected = np.cos([1.0, 4.0]) * [2.0, 4.0]
    assert elements(grads.grad(w)) == pytest.approx(expected)


def test_attach_needs_a_tape_that_records() -> None:
    tape = ta.Tape()
    with pytest.raises(InactiveTapeError), tape.attach():
        pass
    w = ta.variable([1.0])
    with tape:
        loss = ta.sum(w)
    tape.backward(loss)
    with pytest.raises((InactiveTapeError, TapeConsumedError)), tape.attach():
        pass


def test_transforms_run_side_by_side() -> None:
    def work(number: int) -> None:
        x = np.array([0.1 * (number + 1)])
        for _ in range(ROUNDS // 3):
            third = ta.grad(ta.grad(ta.grad(lambda t: t * t * t * t)))
            value = third(ta.asarray(x[0]))
            assert float(value) == pytest.approx(24.0 * x[0])

    together(work)
