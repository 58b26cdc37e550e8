"""Checkpoints within a budget: met by what is measured, or refused with what works.

Peaks are measured in two ways: by the ledger (values alone), and in NumPy's own domain,
which also sees the pool and the workspace of kernels. Budgets are fractions of what the
plain function is measured to hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU
from tenferro_ad.errors import BudgetTooSmallError, InvalidArgumentError
from tests.numpy_memory import NumpyMemory
from tests.trees import agree

RNG = np.random.default_rng(17)
REPETITIONS, LAYERS = 64, 24


def chain(x: Any, w: Any) -> Any:
    """The chain of the memory benchmark."""
    for _ in range(REPETITIONS):
        x = ta.tanh(x) * w + x
    return ta.sum(x)


def network(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = ta.tanh(x @ w)
    return ta.mean(x * x)


def rectified(x: Any, *weights: Any) -> Any:
    for w in weights:
        x = ta.relu(x @ w + 0.01)
    return ta.mean(x * x)


def weights(n: int) -> list[np.ndarray[Any, Any]]:
    return [RNG.normal(size=(n, n)) / n**0.5 for _ in range(LAYERS)]


# Function, arrays, and the smallest fraction that is met. Roots of the small ones come
# from NumPy's allocator one by one, those of the large ones from the pool.
MODELS: dict[str, tuple[Callable[..., Any], list[Any], float]] = {
    "chain": (chain, [RNG.normal(size=500) for _ in range(2)], 0.5),
    "large chain": (chain, [RNG.normal(size=20_000) for _ in range(2)], 0.5),
    "network": (network, [RNG.normal(size=(128, 16)), *weights(16)], 0.4),
    "large network": (network, [RNG.normal(size=(512, 64)), *weights(64)], 0.4),
    "rectified": (rectified, [RNG.normal(size=(128, 16)), *weights(16)], 0.4),
}
every_model = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(autouse=True)
def empty_pool() -> Iterator[None]:
    """No test counts another's memory."""
    CPU.trim()
    yield
    CPU.trim()


class Measured:
    """Both passes of a function: what they held, and the gradients."""

    memory = NumpyMemory()

    def __init__(self, f: Callable[..., Any], arrays: list[Any]) -> None:
        leaves = [ta.variable(a) for a in arrays]
        CPU.trim()
        memory = self.memory
        with memory.watching():
            memory.restart()
            before = memory.live
            with ta.ledger() as led:
                with ta.Tape() as tape:
                    out = f(*leaves)
                grads = tape.backward(out)
            self.bytes = memory.peak - before
            self.values = led.peak_bytes
            self.again = led.allocations["CheckpointRecomputeOutput"]
            self.copies = led.copies
            self.grads = [grads.grad(x).numpy().copy() for x in leaves]
            del grads, out, tape
            CPU.trim()


def fractions(least: float) -> list[float]:
    """From 1 down to the least, in steps of a twentieth."""
    return [k / 20 for k in range(20, round(least * 20) - 1, -1)]


@every_model
def test_budgets_are_met_by_what_is_measured(name: str) -> None:
    f, arrays, least = MODELS[name]
    plain = Measured(f, arrays)
    again = 0
    for fraction in fractions(least):
        budget = int(plain.bytes * fraction)
        seen = Measured(ta.checkpoint(f, budget=budget), arrays)
        assert seen.bytes <= budget, f"{fraction}: {seen.bytes} of {budget} bytes"
        assert seen.values <= budget
        assert seen.copies == {}
        assert seen.again >= again  # a larger budget never recomputes more
        again = seen.again
        for a, b in zip(seen.grads, plain.grads, strict=True):
            assert np.allclose(a, b, rtol=0, atol=1e-12 * max(1.0, np.abs(b).max()))
    assert again > 0


@every_model
def test_smaller_budgets_are_met_or_refused_with_a_minimum_that_works(
    name: str,
) -> None:
    f, arrays, least = MODELS[name]
    plain = Measured(f, arrays)
    leaves = [ta.variable(a) for a in arrays]

    def refused(budget: int) -> int:
        with (
            pytest.raises(BudgetTooSmallError) as caught,
            ta.Tape(),
            ta.ledger() as led,
        ):
            ta.checkpoint(f, budget=budget)(*leaves)
        assert led.allocations == {}  # before anything ran
        assert str(caught.value.minimum) in str(caught.value)
        return int(caught.value.minimum)

    minimum = refused(1)
    assert minimum <= least * plain.bytes
    for fraction in (0.9 * least, 0.7 * least, 0.4 * least, 0.1 * least):
        budget = int(plain.bytes * fraction)
        if budget < minimum:
            assert refused(budget) == minimum
        else:
            seen = Measured(ta.checkpoint(f, budget=budget), arrays)
            assert seen.bytes <= budget
    assert refused(minimum - 1) == minimum
    assert Measured(ta.checkpoint(f, budget=minimum), arrays).bytes <= minimum


def test_the_plan_of_a_budgeted_function_is_within_it() -> None:
    f, arrays, _ = MODELS["network"]
    specs = [ta.Spec(a.shape) for a in arrays]
    plain = ta.plan(f, *specs)
    for fraction in (1.0, 0.7, 0.45):
        budget = int(fraction * (plain.peak_bytes + plain.workspace_bytes))
        plan = ta.plan(ta.checkpoint(f, budget=budget), *specs)
        assert (plan.recomputed == 0) == (fraction == 1)
        assert plan.peak_bytes + plan.workspace_bytes <= budget
        assert (
            plan.peak_bytes == Measured(ta.checkpoint(f, budget=budget), arrays).values
        )


@pytest.mark.parametrize("length", [16, 64, 256, 1024])
def test_automatic_boundaries_grow_like_the_root_of_the_length(length: int) -> None:
    def f(x: Any, w: Any) -> Any:
        for _ in range(length):
            x = ta.tanh(x) * w + x
        return ta.sum(x)

    arrays = [RNG.normal(size=10) for _ in range(2)]
    leaves = [ta.variable(a) for a in arrays]
    with ta.Tape() as tape:
        out = ta.checkpoint(f, boundaries="auto")(*leaves)
        kept = tape._core.retained_nbytes // leaves[0].nbytes - len(leaves)
    assert 0 < kept <= 4 * length**0.5
    grads = tape.backward(out)
    wanted = ta.grad(f, (0, 1))(*arrays)
    agree([grads.take_grad(x) for x in leaves], wanted, 1e-9)
    plan = ta.plan(ta.checkpoint(f, boundaries="auto"), *[ta.Spec(10)] * 2)
    assert plan.retained_bytes // 80 - len(leaves) <= 4 * length**0.5
    assert plan.recomputed <= 3 * length


# ---- traced and compiled -------------------------------------------------------------


@pytest.mark.parametrize("name", ["large chain", "large network"])
def test_budgets_hold_in_compiled_functions(name: str) -> None:
    f, arrays, _ = MODELS[name]
    numbers = tuple(range(len(arrays)))
    xs = [ta.asarray(a) for a in arrays]
    wanted = ta.grad(f, numbers)(*xs)
    plain = ta.compile(ta.grad(f, numbers)).plan(*xs).peak
    again = 0
    for fraction in (0.9, 0.7, 0.5):
        budget = int(plain * fraction)
        step = ta.compile(ta.grad(ta.checkpoint(f, budget=budget), numbers))
        step(*xs)
        with ta.ledger() as led:
            found = step(*xs)
        agree(found, wanted, 1e-12)
        assert led.peak_bytes + led.workspace <= budget
        assert led.copies == {}
        runs = sum(s.equation.recompute for s in step.plan(*xs).steps)
        assert runs >= again
        again = runs
    assert again > 0
    with pytest.raises(BudgetTooSmallError) as caught:
        ta.compile(ta.grad(ta.checkpoint(f, budget=1000), numbers)).plan(*xs)
    budget = caught.value.minimum
    assert ta.compile(ta.grad(ta.checkpoint(f, budget=budget), numbers)).plan(*xs)


def test_budgets_in_other_transforms() -> None:
    def f(x: Any, w: Any) -> Any:
        for _ in range(12):
            x = ta.tanh(x) * w + x
        return ta.sum(x)

    budget = "300 KiB"
    x, w = (ta.asarray(RNG.normal(size=2000)) for _ in range(2))
    g = ta.checkpoint(f, budget=budget)
    agree(g(x, w), f(x, w), 0)
    agree(ta.jvp(g, (x, w), (w, x)), ta.jvp(f, (x, w), (w, x)))
    agree(ta.vjp(g, x, w)[1](ta.asarray(2.0)), ta.vjp(f, x, w)[1](ta.asarray(2.0)))
    agree(ta.trace(ta.grad(g), x, w)(x, w), ta.grad(f)(x, w))
    many = ta.stack([x, 2 * x])
    agree(ta.vmap(g, (0, None))(many, w), ta.vmap(f, (0, None))(many, w))
    agree(
        ta.grad(lambda x: ta.sum(ta.grad(g)(x, w) ** 2))(x),
        ta.grad(lambda x: ta.sum(ta.grad(f)(x, w) ** 2))(x),
        1e-9,
    )


def test_a_region_in_a_region_runs_twice_and_gives_the_same_bits() -> None:
    """What was let go of inside a region is what the outside no longer needs."""

    def f(x: Any) -> Any:
        inner = ta.checkpoint(lambda x: ta.tanh(ta.sin(2.0 * ta.cos(x))))
        return ta.sum(ta.checkpoint(lambda x: inner(inner(inner(x))))(x))

    def plain(x: Any) -> Any:
        for _ in range(3):
            x = ta.tanh(ta.sin(2.0 * ta.cos(x)))
        return ta.sum(x)

    x = ta.asarray(RNG.normal(size=50))
    agree(ta.grad(f)(x), ta.grad(plain)(x), 0)
    with ta.ledger() as led:
        ta.grad(f)(x)
    # Outside the first two regions, four operations each: the last result is the
    # boundary's. Inside each region the cosine and its double, which rules read.
    assert led.allocations["CheckpointRecomputeOutput"] == 2 * 4 + 3 * 2
    traced = ta.trace(ta.grad(f), x)
    agree(traced(x), ta.grad(plain)(x), 0)


# ---- arguments -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [
        ("100 KiB", 102_400),
        ("0.1 mb", 100_000),
        ("100kB", 100_000),
        ("102400B", 102_400),
        (102_400, 102_400),
    ],
)
def test_budgets_are_bytes_or_text(text: Any, nbytes: int) -> None:
    from tenferro_ad.engine._budget import bytes_of

    assert bytes_of(text) == nbytes


@pytest.mark.parametrize(
    "options",
    [
        {"budget": 0},
        {"budget": -1},
        {"budget": True},
        {"budget": 1.5},
        {"budget": "64"},
        {"budget": "64 parsecs"},
        {"budget": "0 MiB"},
        {"budget": 100, "verify": "bitwise"},
        {"budget": 100, "boundaries": "auto"},
        {"boundaries": "some"},
        {"boundaries": "auto", "verify": "bitwise"},
    ],
)
def test_mistakes_have_names(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgumentError):
        ta.checkpoint(chain, **options)


def test_outside_recordings_a_budget_says_nothing() -> None:
    x = ta.asarray(np.ones(3))
    agree(ta.checkpoint(chain, budget=1)(x, x), chain(x, x), 0)


def test_functions_without_places_to_cut() -> None:
    for f in (lambda x: ta.sum(x), lambda x: ta.sum(ta.exp(x))):
        x = ta.variable(RNG.normal(size=100))
        with ta.Tape() as tape:
            y = ta.checkpoint(f, budget="1 MiB")(x)
        tape.backward(y)
        with ta.Tape(), pytest.raises(BudgetTooSmallError):
            ta.checkpoint(f, budget=8)(x)
        with ta.Tape() as tape:
            y = ta.checkpoint(f, boundaries="auto")(x)
        tape.backward(y)
