"""`ta.plan` and the plans of compiled programs: exact predictions of what runs hold.

The peak that a plan predicts is the one that a ledger sees, to the byte; what compiled
programs take from NumPy is what their plan says, and their declared scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU
from tenferro_ad.errors import (
    GradientError,
    IntegerInputError,
    InvalidArgumentError,
    TenferroError,
    TracedConversionError,
)
from tests.numpy_memory import NumpyMemory
from tests.test_exact_ledgers import CASES, Functional, no_checkpoint

RNG = np.random.default_rng(13)
ways = pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "regions"])


def ran(f: Callable[..., Any], arrays: Any) -> tuple[ta.LedgerScope, list[Any], int]:
    """Both passes: the ledger, what was retained between them, and its bytes."""
    leaves = [ta.variable(a) for a in arrays]
    with ta.ledger() as led:
        with ta.Tape() as tape:
            out = f(*leaves)
            kept = list(tape.retained())
            nbytes = tape._core.retained_nbytes
        tape.backward(out)
    return led, kept, nbytes


def like(arrays: Any) -> list[ta.Spec]:
    return [ta.Spec(np.shape(a), np.asarray(a).dtype) for a in arrays]


def agrees_with_a_run(f: Callable[..., Any], arrays: Any) -> ta.Plan:
    led, kept, nbytes = ran(f, arrays)
    plan = ta.plan(f, *like(arrays))
    assert plan.peak_bytes == led.peak_bytes
    assert plan.allocations == dict(led.allocations)
    assert list(plan.retained) == kept
    assert plan.retained_bytes == nbytes
    return plan


# ---- both passes ---------------------------------------------------------------------


@ways
@pytest.mark.parametrize("name", CASES)
def test_the_plan_is_what_the_ledger_sees(name: str, checkpointed: bool) -> None:
    scenario = CASES[name][0]
    wrap = ta.checkpoint if checkpointed else no_checkpoint
    inputs = {k: ta.asarray(v) for k, v in scenario.inputs.items()}

    def f(*leaves: Any) -> Any:
        return scenario.loss(wrap, *leaves, **inputs)

    plan = agrees_with_a_run(f, scenario.leaves)
    assert (plan.recomputed > 0) == checkpointed


def chain(n: int) -> Callable[..., Any]:
    def f(x: Any, w: Any) -> Any:
        for _ in range(n):
            x = ta.tanh(x) * w + x
        return ta.sum(x)

    return f


def nested(x: Any, w: Any) -> Any:
    inner = ta.checkpoint(lambda x: ta.sin(ta.tanh(x) * w))
    return ta.sum(ta.checkpoint(lambda x: inner(inner(x)) * x)(x))


def recurrent(x: Any, w: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        return ta.tanh(c @ ta.eye(4) * w[0] + row), ta.sum(c)

    c, ys = ta.scan(step, ta.zeros(4), x)
    return ta.sum(c) + ta.sum(ys * ys)


def with_views(x: Any, w: Any) -> Any:
    flat = ta.reshape(x.T, (-1,))
    return ta.sum(ta.exp(flat[::2]) * ta.broadcast_to(w[:1, 0], (10,))) + ta.sum(x[0])


def with_libraries(x: Any, w: Any) -> Any:
    q, r = ta.linalg.qr(x)
    return ta.sum(q * w) + ta.sum(ta.linalg.det(r @ r.T + 3.0 * ta.eye(4)))


def dropping(x: Any, w: Any) -> Any:
    ta.exp(x) * w  # nobody reads it
    y = ta.sin(x)
    z = ta.stop_gradient(ta.tanh(y)) * w
    return ta.sum(z) + ta.max(y)


FUNCTIONS = {
    "chain": chain(12),
    "nested": nested,
    "loop": recurrent,
    "views": with_views,
    "libraries": with_libraries,
    "dropping": dropping,
    "untracked": lambda x, w: ta.sum(ta.round(x) * w),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_plans_of_other_functions(name: str) -> None:
    agrees_with_a_run(FUNCTIONS[name], [RNG.normal(size=(5, 4))] * 2)


def test_large_values_are_planned_alike() -> None:
    """From the pool's size on, sums into memory go through scratch of their own."""
    agrees_with_a_run(chain(6), [RNG.normal(size=(100, 100))] * 2)


def test_a_branch_counts_as_its_largest() -> None:
    def f(x: Any) -> Any:
        def big(x: Any) -> Any:
            return ta.tanh(ta.sin(ta.cos(x)))

        return ta.sum(ta.cond(ta.sum(x) > 0, lambda x: x * 2.0, big, x))

    def taken(x: Any) -> Any:
        return ta.sum(ta.tanh(ta.sin(ta.cos(x))))

    x = ta.Spec((8, 8))
    assert ta.plan(f, x).peak_bytes >= ta.plan(taken, x).peak_bytes - 8 * 64


def test_closed_over_variables_are_differentiated() -> None:
    w = ta.variable(RNG.normal(size=(4, 4)))
    x = ta.asarray(RNG.normal(size=(4, 4)))

    def f(x: Any) -> Any:
        return ta.sum(ta.tanh(x @ w))

    plan = ta.plan(f, ta.Spec((4, 4)))
    led, kept, _ = ran(f, [np.asarray(x)])
    assert plan.peak_bytes == led.peak_bytes
    assert list(plan.retained) == kept


def test_specs_tensors_and_arrays_are_alike_and_nothing_runs(
    provider_calls: Any,
) -> None:
    f = chain(3)
    arrays = [RNG.normal(size=(5, 4))] * 2
    tensors = [ta.asarray(a) for a in arrays]
    provider_calls.reset()
    found = [ta.plan(f, *given) for given in (arrays, tensors, like(arrays))]
    assert found[0] == found[1] == found[2]
    assert provider_calls.total == 0


def test_the_text_lists_what_is_kept() -> None:
    plan = ta.plan(chain(2), *[ta.Spec((2, 3))] * 2)
    text = str(plan)
    assert text.startswith(f"peak {plan.peak_bytes} bytes, 0 equations run again\n")
    assert text.count("keeps out of tanh: float64[2, 3], 48 bytes") == 2


def test_pytrees_and_other_leaves() -> None:
    def f(tree: Any, k: int, i: Any) -> Any:
        return ta.sum(ta.take(tree["x"], i, axis=0) * tree["w"][0] * k)

    specs = {"x": ta.Spec((5, 4)), "w": [ta.Spec((4,))]}
    plan = ta.plan(f, specs, 3, ta.Spec((2,), np.int64))
    assert plan.peak_bytes > 0
    assert {r.operation for r in plan.retained} >= {"mul"}


@pytest.mark.parametrize(
    ("f", "error"),
    [
        (lambda x: x if x > 0 else -x, TracedConversionError),
        (lambda x: ta.round(ta.stop_gradient(x)), InvalidArgumentError),
        (lambda x: 3, InvalidArgumentError),
        (lambda x: ta.while_loop(lambda c: c < 9, lambda c: c * 2, x), TenferroError),
        (lambda x: x @ x, TenferroError),
    ],
)
def test_mistakes_have_names(f: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ta.plan(f, ta.Spec(()))
    assert issubclass(IntegerInputError, GradientError)


# ---- compiled programs ---------------------------------------------------------------

MODELS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "mlp": (
        lambda x, w, v: ta.mean(ta.tanh(ta.tanh(x @ w) @ v) ** 2),
        [(128, 100), (100, 120), (120, 80)],
    ),
    "chain": (chain(8), [(200, 200)] * 2),
    "convolutions": (
        lambda x, k, c: ta.sum(
            ta.max_pool2d(ta.relu(ta.conv2d(x, k, c, padding=1)), 2) ** 2
        ),
        [(8, 3, 16, 16), (6, 3, 3, 3), (6,)],
    ),
    "loop": (
        lambda w, xs: ta.sum(
            ta.scan(lambda c, x: (ta.tanh(c @ w + x), None), ta.zeros((100, 100)), xs)[
                0
            ]
        ),
        [(100, 100), (9, 100, 100)],
    ),
    "libraries": (
        lambda x, y: ta.sum(ta.linalg.solve(x @ x.T + 200.0 * ta.eye(120), y) ** 2),
        [(120, 120), (120, 5)],
    ),
    "embedding": (
        lambda e, w: ta.sum(ta.tanh(ta.take(e, ta.arange(60) % 7, axis=0) @ w)),
        [(200, 100), (100, 150)],
    ),
}
# A root is a multiple of 64 bytes; one without elements has memory all the same.
ROUNDING = 64


@ways
@pytest.mark.parametrize("name", MODELS)
def test_a_compiled_step_takes_what_its_plan_says(
    name: str, checkpointed: bool
) -> None:
    """Arenas and outputs to the byte; the measured peak within the declared scratch."""
    f, shapes = MODELS[name]
    xs = [ta.asarray(RNG.normal(size=s)) for s in shapes]
    numbers = tuple(range(len(xs)))
    step = ta.compile(ta.grad(ta.checkpoint(f) if checkpointed else f, numbers))
    plan = step.plan(*xs)
    step(*xs)
    CPU.trim()
    memory = NumpyMemory()
    with memory.watching():
        with ta.ledger() as led:
            found = step(*xs)
        roots = led.allocations.total()
        assert led.peak_bytes == plan.peak
        arenas = sum(plan.arenas.values())
        held = sum({id(g._record): g.nbytes for g in found}.values())
        assert plan.peak - arenas == led.live_bytes == held
        assert memory.peak >= plan.peak
        assert memory.peak <= plan.peak + led.workspace + ROUNDING * roots
        # Places in arenas: again, from the pool.
        memory.restart()
        before = memory.live
        again = step(*xs)
        assert memory.live - before <= held + ROUNDING * roots
        del found, again
        CPU.trim()


def test_the_exact_scenarios_compiled() -> None:
    for scenario, _, _ in CASES.values():
        for wrap in (no_checkpoint, ta.checkpoint):
            work = Functional(scenario, wrap)
            step = ta.compile(work.gradients)
            plan = step.plan(*work.given)
            with ta.ledger() as led:
                step(*work.given)
            assert led.peak_bytes == plan.peak
            assert dict(led.allocations) == plan.allocations


def test_places_are_reused_and_disjoint_while_they_live() -> None:
    def f(x: Any) -> Any:
        for _ in range(50):
            x = ta.tanh(x) @ x
        return x

    plan = ta.compile(f).plan(ta.Spec((100, 100)))
    (arena,) = plan.arenas.values()
    assert arena <= 3 * 80_000 + 192  # not 99 values
    text = str(plan)
    assert "schedule of 100 equations" in text
    assert "output v100: 80000 bytes, fresh" in text
    assert "equations 0-1" in text


def test_the_plan_says_what_a_donation_saves() -> None:
    def f(p: Any, g: Any) -> Any:
        return p - 0.1 * g

    spec = ta.Spec((100, 100))
    plain = ta.compile(f).plan(spec, spec)
    donated = ta.compile(f, donate_argnums=0).plan(spec, spec)
    assert plain.peak - donated.peak == 80_000
    assert "in input 0" in str(donated)


def test_a_compiled_loop_holds_as_much_for_any_number_of_steps() -> None:
    def f(n: int) -> Any:
        def run(x: Any) -> Any:
            return ta.scan(lambda c, _: (ta.tanh(c) @ c, None), x, None, n)[0]

        return ta.compile(run).plan(ta.Spec((100, 100))).peak

    assert f(3) == f(30) == f(3000)
