"""Random programs: what plans and budgets say is what ledgers see.

Chains of operations with loops, branches, arrays that the function reads, views and
values used twice are planned, run and compared to the byte and to the allocation. Each
budget is met by what is measured, or refused with one that then is met.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import BudgetTooSmallError
from tests.trees import agree

Array = np.ndarray[Any, Any]
Step = Callable[[Any, Any, Array, int, bool], Any]


def _scanned(x: Any, w: Any, k: Array, a: int, b: bool) -> Any:
    c, ys = ta.scan(lambda c, _: (ta.tanh(c) * w, c * c), x, None, a + 1)
    return c + ta.sum(ys, axis=0)


def _rows(x: Any, w: Any, k: Array, a: int, b: bool) -> Any:
    xs = ta.stack([x, w, x * w])
    c, ys = ta.scan(lambda c, r: (c * r, ta.sin(r)), x, xs, reverse=bool(a % 2))
    return ta.tanh(c) + ys[0]


def _branch(x: Any, w: Any, k: Array, a: int, b: bool) -> Any:
    big = lambda q: ta.sin(ta.sin(q) * w)
    return ta.cond(ta.asarray(b), big, lambda q: q if a % 2 else ta.round(q), x)


def _switched(x: Any, w: Any, k: Array, a: int, b: bool) -> Any:
    branches = [lambda q: q * 2.0, lambda q: ta.tanh(q - q) + ta.sin(q * k)]
    return ta.switch(ta.asarray(int(b)), branches, x)


def _ended(x: Any, w: Any, k: Array, a: int, b: bool) -> Any:
    zeros = ta.stop_gradient(x * 0.0)
    return x * ta.while_loop(lambda c: c[0] < 2.5, lambda c: c + 1.0, zeros)


STEPS: dict[str, Step] = {
    "tanh": lambda x, w, k, a, b: ta.tanh(x),
    "product": lambda x, w, k, a, b: x * w,
    "differences": lambda x, w, k, a, b: ta.tanh(x) - x + (x - x),
    "square": lambda x, w, k, a, b: ta.tanh(x * x) + x / (1.0 + x * x),
    "twice": lambda x, w, k, a, b: x + x,
    "array": lambda x, w, k, a, b: ta.tanh(x * k),
    "array and view": lambda x, w, k, a, b: x * (c := ta.asarray(k)) + c[::-1],
    "where": lambda x, w, k, a, b: ta.where(k > 0, x, ta.sin(x)),
    "scan": lambda x, w, k, a, b: ta.scan(
        lambda c, _: (ta.sin(c * k), None), x, None, a
    )[0],
    "stacks": _scanned,
    "rows": _rows,
    "counted": lambda x, w, k, a, b: ta.fori_loop(
        0, a, lambda i, c: ta.tanh(c) - c * w, x
    ),
    "ended": _ended,
    "cond": _branch,
    "switch": _switched,
    "reverse": lambda x, w, k, a, b: ta.sin(x[::-1]),
    "transpose": lambda x, w, k, a, b: ta.reshape(ta.reshape(x, (2, -1)).T, (-1,)) * w,
    "broadcast": lambda x, w, k, a, b: x + ta.broadcast_to(ta.sum(x * 0.01), x.shape),
    "take": lambda x, w, k, a, b: ta.take(x, np.argsort(k)),
    "stop": lambda x, w, k, a, b: ta.stop_gradient(ta.tanh(x)) * x,
    "copy": lambda x, w, k, a, b: ta.asarray(x, copy=True) * w,
    "region": lambda x, w, k, a, b: ta.checkpoint(lambda q: ta.sin(q * k) * q - w)(x),
    "join": lambda x, w, k, a, b: ta.concat([x[1:], x[:1]]),
}
BRANCHES = {"cond", "switch"}


class Random:
    """A random chain over two vectors.

    Attributes:
        names: of its steps.
        arrays: what it is run at.
    """

    def __init__(self, seed: int, names: list[str] | None = None) -> None:
        rng = np.random.default_rng(seed)
        n = int(rng.choice([50, 1000, 10_000]))
        count = int(rng.integers(3, 8))
        self.names = names or [str(s) for s in rng.choice(list(STEPS), count)]
        self.facts = [
            (int(rng.integers(0, 5)), rng.normal(size=n) * 0.5) for _ in self.names
        ]
        self.arrays = [rng.normal(size=n) * 0.3 for _ in range(2)]
        self.specs = [ta.Spec(n)] * 2

    def function(self, *taken: bool) -> Callable[..., Any]:
        """The function; `taken` says which way its branches go, in turn."""

        def f(x: Any, w: Any) -> Any:
            ways = itertools.cycle(taken or (True,))
            for name, (a, k) in zip(self.names, self.facts, strict=True):
                x = STEPS[name](x, w, k, a, name in BRANCHES and next(ways))
            return ta.sum(x * 0.5)

        return f

    @property
    def ways(self) -> list[tuple[bool, ...]]:
        count = sum(name in BRANCHES for name in self.names)
        return list(itertools.product((False, True), repeat=min(count, 3)))


def passes(f: Callable[..., Any], arrays: list[Array]) -> tuple[Any, int]:
    """The ledger of both passes, and the bytes kept between them."""
    leaves = [ta.variable(a) for a in arrays]
    with ta.ledger() as led:
        with ta.Tape() as tape:
            out = f(*leaves)
            kept = tape._core.retained_nbytes
        tape.backward(out)
    return led, kept


def is_foretold(made: Random, wrap: Callable[[Any], Any]) -> None:
    plan = ta.plan(wrap(made.function()), *made.specs)
    runs = [passes(wrap(made.function(*way)), made.arrays) for way in made.ways]
    assert plan.peak_bytes == max(led.peak_bytes for led, _ in runs)
    found = [
        (plan.allocations, plan.retained_bytes)
        == (dict(led.allocations), kept if led.peak_bytes == plan.peak_bytes else -1)
        for led, kept in runs
    ]
    assert any(found)


def in_regions(f: Callable[..., Any]) -> Callable[..., Any]:
    return ta.checkpoint(f, boundaries="auto")


SEEDS = range(40)
BUDGETED = range(40, 52)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs_hold_what_their_plan_says(seed: int) -> None:
    made = Random(seed)
    is_foretold(made, lambda f: f)
    is_foretold(made, in_regions)


@pytest.mark.parametrize("name", STEPS)
def test_each_step_holds_what_its_plan_says(name: str) -> None:
    made = Random(7, [name, "tanh", name])
    is_foretold(made, lambda f: f)
    is_foretold(made, in_regions)
    f, xs = made.function(), [ta.asarray(x) for x in made.arrays]
    wanted = ta.grad(f, (0, 1))(*xs)
    agree(ta.grad(in_regions(f), (0, 1))(*xs), wanted, 1e-12)
    agree(ta.compile(ta.grad(in_regions(f), (0, 1)))(*xs), wanted, 1e-12)


def test_a_plan_leaves_the_ledger_alone() -> None:
    made = Random(3, ["array", "array and view", "scan", "switch", "region"])
    with ta.ledger() as led:
        plan = ta.plan(made.function(), *made.specs)
    counts = {reason.value: n for reason, n in plan.allocations.items()}
    assert counts["TransferDestination"] >= 4
    assert (led.allocations, led.copies, led.peak_bytes) == ({}, {}, 0)


def within(budget: int, run: Callable[[int], Any]) -> bool:
    """Run within the budget, or else within the one that the refusal names."""
    minimum = budget
    try:
        led = run(budget)
    except BudgetTooSmallError as error:
        minimum = error.minimum or 0
        led = run(minimum)
        assert minimum > budget
    assert led.peak_bytes + led.workspace <= minimum
    return minimum > budget


@pytest.mark.parametrize("seed", BUDGETED)
def test_random_programs_keep_their_budgets(seed: int) -> None:
    made = Random(seed)
    f, xs = made.function(), [ta.asarray(x) for x in made.arrays]

    def eager(budget: int) -> Any:
        return passes(ta.checkpoint(f, budget=budget), made.arrays)[0]

    def compiled(budget: int) -> Any:
        step = ta.compile(ta.grad(ta.checkpoint(f, budget=budget), (0, 1)))
        step(*xs)
        with ta.ledger() as led:
            step(*xs)
        return led

    led = passes(f, made.arrays)[0]
    # Arrays that come in are held throughout from here on.
    full = 2 * (led.peak_bytes + led.workspace)
    refused = [within(int(full * part), eager) for part in (1, 0.4, 0.25, 0.01)]
    assert (refused[0], refused[-1]) == (False, True)
    plain = ta.compile(ta.grad(f, (0, 1)))
    plain(*xs)
    with ta.ledger() as led:
        plain(*xs)
    full = 2 * (led.peak_bytes + led.workspace)
    refused = [within(int(full * part), compiled) for part in (1, 0.4, 0.2, 0.01)]
    assert (refused[0], refused[-1]) == (False, True)
