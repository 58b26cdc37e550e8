"""Loops and branches: values, derivatives and memory, in every mode and nested.

The rows themselves are checked with all others (`tests/ops/samples_control.py`). Here
are whole programs beside JAX's, and what the public functions promise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import (
    DTypeError,
    InvalidArgumentError,
    NoRuleError,
    ShapeError,
    TracedConversionError,
)
from tenferro_ad.ops import OPS
from tenferro_ad.testing import check_grads

jax.config.update("jax_enable_x64", True)
Array = np.ndarray[Any, Any]
rng = np.random.default_rng(11)


class Ours:
    """Our names, as the programs below use them."""

    scan, cond, switch, while_loop = ta.scan, ta.cond, ta.switch, ta.while_loop
    fori_loop, checkpoint = ta.fori_loop, ta.checkpoint
    np = ta


class Theirs:
    scan, cond, switch = jax.lax.scan, jax.lax.cond, jax.lax.switch
    while_loop, fori_loop = jax.lax.while_loop, jax.lax.fori_loop
    checkpoint = jax.checkpoint
    np = jnp


def leaves(tree: Any) -> list[Array]:
    if isinstance(tree, tuple):
        return [y for x in tree for y in leaves(x)]
    if isinstance(tree, ta.EagerTensor):
        tree = ta.stop_gradient(tree).tolist()
    return [np.asarray(tree)]


def agree(ours: Any, theirs: Any, tolerance: float = 1e-10) -> None:
    a, b = leaves(ours), leaves(theirs)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert x.shape == y.shape
        scale = max(1.0, float(np.max(np.abs(y), initial=0)))
        assert float(np.max(np.abs(x - y), initial=0)) <= tolerance * scale


# ---- programs ------------------------------------------------------------------------
def rnn(m: Any) -> Callable[..., Any]:
    """A gated recurrent network over a sequence; the loss reads states and carry."""

    def loss(w: Any, u: Any, h: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            gate = 1 / (1 + m.np.exp(-(m.np.matmul(h, u) + x)))
            h = (1 - gate) * h + gate * m.np.tanh(m.np.matmul(h, w) + x)
            return h, m.np.sum(h * h)

        h, ys = m.scan(cell, h, xs)
        return m.np.sum(ys * ys) + m.np.sum(h)

    return loss


def ode(m: Any) -> Callable[..., Any]:
    """The pendulum by Runge and Kutta's method; energy at the end and on the way."""

    def energy(state: Any, g: Any) -> Any:
        angle, speed = state
        return speed * speed / 2 - g * m.np.cos(angle)

    def loss(angle: Any, speed: Any, g: Any) -> Any:
        def slope(state: Any) -> Any:
            return state[1], -g * m.np.sin(state[0])

        def moved(state: Any, k: Any, h: float) -> Any:
            return tuple(s + h * d for s, d in zip(state, k, strict=True))

        def step(state: Any, _: Any) -> Any:
            k1 = slope(state)
            k2 = slope(moved(state, k1, 0.05))
            k3 = slope(moved(state, k2, 0.05))
            k4 = slope(moved(state, k3, 0.1))
            state = tuple(
                s + 0.1 / 6 * (a + 2 * b + 2 * c + d)
                for s, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True)
            )
            return state, energy(state, g)

        state, ys = m.scan(step, (angle, speed), None, 12)
        return energy(state, g) + m.np.sum(ys * ys)

    return loss


def horner(m: Any) -> Callable[..., Any]:
    """A counted loop over coefficients that the body closes over."""

    def value(c: Any, x: Any) -> Any:
        def step(i: Any, y: Any) -> Any:
            return y * x + m.np.sum(m.np.where(m.np.arange(4) == i, c, 0.0))

        return m.np.sum(m.fori_loop(0, 4, step, x * 0))

    return value


def pieces(m: Any) -> Callable[..., Any]:
    """A branch in each step of a loop, which the carry decides."""

    def loss(x: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            c = m.cond(
                m.np.sum(c) > 0,
                lambda c: m.np.sin(c) * x,
                lambda c: c * c - x,
                c,
            )
            return c, c

        c, ys = m.scan(step, x, xs)
        return m.np.sum(ys * ys) + m.np.sum(c)

    return loss


def nested(m: Any) -> Callable[..., Any]:
    """A checkpointed loop inside a loop, both closing over what is differentiated."""

    def loss(w: Any, x: Any) -> Any:
        def outer(c: Any, _: Any) -> Any:
            def inner(d: Any, row: Any) -> Any:
                d = m.checkpoint(lambda d, row: m.np.tanh(d * row + x))(d, row)
                return d, d * row

            d, ds = m.scan(inner, c, w, reverse=True)
            return d + m.np.sum(ds, axis=0) / 4, m.np.sum(d)

        c, ys = m.scan(outer, x, None, 3)
        return m.np.sum(c * c) + m.np.sum(ys)

    return loss


def choice(m: Any) -> Callable[..., Any]:
    def loss(x: Any, y: Any) -> Any:
        def step(c: Any, i: Any) -> Any:
            c = m.switch(
                i, [lambda c: c * y, lambda c: m.np.exp(-c * c), lambda c: c + y], c
            )
            return c, None

        return m.np.sum(m.scan(step, x, m.np.asarray([0, 1, 2, 1, 0]))[0])

    return loss


def points(*shapes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(np.asarray(rng.uniform(-0.8, 0.8, s)) for s in shapes)


PROGRAMS: dict[str, tuple[Any, tuple[Array, ...]]] = {
    "rnn": (rnn, points((3, 3), (3, 3), (3,), (5, 3))),
    "ode": (ode, points((), (), ())),
    "horner": (horner, points((4,), (2,))),
    "pieces": (pieces, points((2,), (4, 2))),
    "nested": (nested, points((4, 2), (2,))),
    "choice": (choice, points((3,), (3,))),
}
every_program = pytest.mark.parametrize("name", list(PROGRAMS))


def in_modes(f: Any, at: tuple[Array, ...]) -> dict[str, Any]:
    return {
        "eager": f,
        "checkpointed": ta.checkpoint(f),
        "traced": ta.trace(f, *at),
    }


@every_program
def test_values_and_derivatives_are_those_of_jax(name: str) -> None:
    program, at = PROGRAMS[name]
    theirs = program(Theirs)
    numbers = tuple(range(len(at)))
    ts = tuple(np.ones_like(x) for x in at)
    value = theirs(*at)
    gradient = jax.grad(theirs, numbers)(*at)
    pushed = jax.jvp(theirs, at, ts)[1]
    hessian = jax.jvp(jax.grad(theirs, numbers), at, ts)[1]
    for mode, f in in_modes(program(Ours), at).items():
        agree(f(*at), value)
        agree(ta.grad(f, numbers)(*at), gradient)
        agree(ta.jvp(f, at, ts)[1], pushed)
        agree(ta.hvp(f, at, ts)[1], hessian)
        assert mode


@every_program
def test_derivatives_of_any_order_and_mix(name: str) -> None:
    program, at = PROGRAMS[name]
    check_grads(program(Ours), at, order=2)


@pytest.mark.parametrize("name", ["ode", "choice"])
def test_third_derivatives(name: str) -> None:
    program, at = PROGRAMS[name]
    check_grads(program(Ours), at, order=3)


@every_program
def test_transforms_are_traced_like_everything_else(name: str) -> None:
    """A traced gradient is the eager one, bit by bit."""
    program, at = PROGRAMS[name]
    numbers = tuple(range(len(at)))
    g = ta.grad(program(Ours), numbers)
    agree(ta.trace(g, *at)(*at), g(*at), 0)
    h = lambda *xs: ta.hvp(program(Ours), xs, xs)
    agree(ta.trace(h, *at)(*at), h(*at), 0)


@every_program
def test_examples_at_once(name: str) -> None:
    """`vmap` gives what a loop gives, for values and gradients, whatever is mapped."""
    program, at = PROGRAMS[name]
    f = program(Ours)
    numbers = tuple(range(len(at)))
    many = tuple(np.stack([x, x * 0.5, -x]) for x in at)
    g = ta.grad(f, numbers)
    for mapped in (numbers, (0,), (len(at) - 1,)):
        axes = tuple(0 if k in mapped else None for k in numbers)
        xs = tuple(many[k] if k in mapped else at[k] for k in numbers)
        found = leaves(ta.vmap(g, axes)(*xs))
        for i in range(3):
            one = [x[i] if k in mapped else x for k, x in enumerate(xs)]
            agree(tuple(y[i] for y in found), g(*one))
        # The gradient of the mapped function is that of all examples together.
        batched = ta.vmap(f, axes)
        total = ta.grad(lambda *v, b=batched: ta.sum(b(*v)), numbers)(*xs)
        for k, (y, part) in enumerate(zip(leaves(total), found, strict=True)):
            agree(y, part if k in mapped else part.sum(0))


# ---- while ---------------------------------------------------------------------------
def newton(m: Any, *bound: int) -> Callable[..., Any]:
    """A square root; the test closes over the argument."""

    def root(a: Any) -> Any:
        return m.while_loop(
            lambda s: m.np.abs(s[0] * s[0] - a) > 1e-13,
            lambda s: ((s[0] + a / s[0]) / 2, s[1] + 1),
            (a, 0),
            *bound,
        )[0]

    return root


@pytest.mark.parametrize("traced", [False, True])
def test_forward_mode_goes_through_any_loop(traced: bool) -> None:
    at = np.float64(3.0)
    f = newton(Ours)
    f = ta.trace(f, at) if traced else f
    theirs = newton(Theirs)
    one = np.float64(1.0)
    agree(ta.jvp(f, (at,), (one,)), jax.jvp(theirs, (at,), (one,)))
    slope = lambda a: ta.jvp(f, (a,), (one,))[1]
    wanted = lambda a: jax.jvp(theirs, (a,), (one,))[1]
    agree(ta.jvp(slope, (at,), (one,)), jax.jvp(wanted, (at,), (one,)))


@pytest.mark.parametrize("traced", [False, True])
def test_reverse_mode_needs_a_bound_and_says_so(traced: bool) -> None:
    at = np.float64(3.0)
    f = newton(Ours)
    f = ta.trace(f, at) if traced else f
    with pytest.raises(NoRuleError, match="max_steps"):
        ta.grad(f)(at)
    x = ta.variable(at)
    with ta.Tape(), pytest.raises(NoRuleError, match="max_steps"):
        f(x)
    # What the loop closes over counts too, once a step has read it.
    with ta.Tape(), pytest.raises(NoRuleError, match="max_steps"):
        ta.while_loop(lambda n: n < 3.0, lambda n: n + x, np.float64(0))
    # A constant is no reason to refuse.
    assert float(ta.grad(lambda a: a * f(ta.stop_gradient(a)))(at)) > 0


@pytest.mark.parametrize("traced", [False, True])
def test_a_bounded_loop_has_every_derivative(traced: bool) -> None:
    at = np.float64(3.0)
    f = newton(Ours, 12)
    f = ta.trace(f, at) if traced else f
    agree(f(at), np.sqrt(at))
    agree(ta.grad(f)(at), 0.5 / np.sqrt(at))
    check_grads(f, (at,), order=3)


def test_a_bound_ends_the_loop() -> None:
    count = lambda n, bound: ta.while_loop(lambda i: i < n, lambda i: i + 1, 0, bound)
    assert int(count(5, 3)) == 3
    assert int(count(2, 3)) == 2
    assert int(count(2, 0)) == 0


def test_steps_after_the_last_are_not_run() -> None:
    """Where the body would divide by zero, the gradient is still a number."""
    f = lambda x: ta.while_loop(lambda v: v[1] > 0, lambda v: (v[0] / v[1], v[1] - 1),
                                (x, np.float64(3)), 6)[0]  # fmt: skip
    agree(f(np.float64(6)), 1.0)
    agree(ta.grad(f)(np.float64(6)), 1 / 6)


def test_examples_stop_by_themselves() -> None:
    at = np.array([2.0, 9.0, 0.5, 400.0])
    f, theirs = newton(Ours), newton(Theirs)
    agree(ta.vmap(f)(at), jax.vmap(theirs)(at))
    push = lambda a: ta.jvp(f, (a,), (a,))[1]
    agree(ta.vmap(push)(at), jax.vmap(lambda a: jax.jvp(theirs, (a,), (a,))[1])(at))
    agree(ta.jvp(ta.vmap(f), (at,), (at,))[1], ta.vmap(push)(at))
    agree(ta.vmap(ta.grad(newton(Ours, 20)))(at), 0.5 / np.sqrt(at))
    # One number of steps for all: what the test reads is not batched.
    double = lambda n, x: ta.while_loop(
        lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * 2), (0, x)
    )
    agree(ta.vmap(double, (None, 0))(ta.asarray(3), at), (np.full(4, 3), at * 8))


def test_bounds_that_a_trace_computes_make_it_a_while_loop() -> None:
    def f(n: Any, x: Any) -> Any:
        return ta.fori_loop(1, n, lambda i, v: ta.sin(v) * i + x, x)

    x = np.array([0.3, -0.2])
    program = ta.trace(f, np.int64(4), x)
    assert [eq.call.op.name for eq in program.program.equations][-1] == "while_loop"
    for n in (4, 2, 0):
        agree(program(np.int64(n), x), f(n, x))
    agree(f(ta.asarray(4), x), f(4, x))


# ---- branches ------------------------------------------------------------------------
def test_only_the_branch_that_is_taken_runs() -> None:
    x = ta.variable(np.array([1.0, 2.0]))
    ran: list[str] = []

    def one(x: Any) -> Any:
        ran.append("one")
        return ta.exp(x)

    def two(x: Any) -> Any:
        ran.append("two")
        return (ta.sin(x), x)

    with ta.ledger() as ledger, ta.Tape() as tape:
        y = ta.cond(ta.sum(x) > 0, one, two, x)
        assert ran == ["one"]
        kept = [(k.operation, k.value) for k in tape.retained()]
        assert kept == [("exp", "out")]
    ledger.expect(allocations={"OperationOutput": 3}, copies={})  # sum, greater, exp
    agree(y, np.exp([1.0, 2.0]))
    for pred in (True, np.bool_(True), 1, 0.5, np.float64(2), ta.asarray(3)):
        ta.cond(pred, one, two, x)
    ta.cond(0, one, two, x)
    assert ran == ["one"] * 7 + ["two"]


def test_an_index_out_of_range_is_brought_to_its_end() -> None:
    fns = [lambda x: x, lambda x: x * 10.0, lambda x: x * 100.0]
    x = np.float64(1.5)
    program = ta.trace(lambda i, x: ta.switch(i, fns, x), np.int64(0), x)
    for index, wanted in ((-5, 1.5), (0, 1.5), (1, 15.0), (2, 150.0), (9, 150.0)):
        assert float(ta.switch(index, fns, x)) == wanted
        assert float(ta.switch(ta.asarray(index), fns, x)) == wanted
        assert float(program(np.int64(index), x)) == wanted
    assert float(ta.switch(ta.asarray(7), fns[1:2], x)) == 15.0


def test_a_branch_keeps_operands_and_nothing_from_inside() -> None:
    def f(x: Any) -> Any:
        deep = lambda x: ta.exp(ta.sin(ta.exp(x)))
        return ta.cond(ta.sum(x) > 0, deep, lambda x: x * 2.0, x)

    at = np.array([0.1, 0.2])
    x = ta.variable(at)
    program = ta.trace(f, at)
    with ta.Tape() as tape:
        y = program(x)
        kept = [(k.operation, k.value) for k in tape.retained()]
    assert kept == [("cond", "operands[0]"), ("cond", "operands[1]")]
    seed = ta.asarray(np.ones(2))
    with ta.ledger() as ledger:
        grads = tape.backward(y, cotangent=seed)
    # The branch again (the outer exp too: its derivative is its value), then three
    # products, of which the first one's memory serves all.
    ledger.expect(
        allocations={"CheckpointRecomputeOutput": 3, "OperationOutput": 1}, copies={}
    )
    inner = np.exp(at)
    wanted = np.exp(np.sin(inner)) * np.cos(inner) * inner
    agree(grads.take_grad(x).as_view().numpy(), wanted)


def test_a_predicate_that_differs_between_examples_selects() -> None:
    """And what the other branch would divide by zero reaches no gradient."""
    f = lambda x: ta.cond(x > 0, ta.sqrt, lambda x: x * 3.0, x)
    at = np.array([4.0, -1.0, 0.0])
    agree(ta.vmap(f)(at), np.array([2.0, -3.0, 0.0]))
    agree(ta.vmap(ta.grad(f))(at), np.array([0.25, 3.0, 3.0]))


# ---- memory --------------------------------------------------------------------------
def growth(h: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = ta.sin(h) * x
        return h, h

    return ta.scan(step, h, xs)


@pytest.mark.clause("g7-checkpoint-recompute")
def test_allocations_of_a_loop_by_hand(provider_calls: Any) -> None:
    n = 4
    h, xs = np.array([0.3, 0.4]), rng.uniform(0.5, 1, (n, 2))
    a, b = ta.asarray(h), ta.asarray(xs)
    provider_calls.reset()
    with ta.ledger() as ledger:
        growth(a, b)
    # A sine and a product for each step, and the stack of ys.
    ledger.expect(allocations={"OperationOutput": 2 * n + 1}, copies={})
    assert provider_calls.total == 2 * n + 1
    h, xs = ta.variable(a), ta.variable(b)
    seed = ta.asarray(np.ones(2))
    with ta.ledger() as ledger, ta.Tape() as tape:
        last, _ = growth(h, xs)
    # And the stack of carries.
    ledger.expect(allocations={"OperationOutput": 2 * n + 2}, copies={})
    provider_calls.reset()
    with ta.ledger() as ledger:
        grads = tape.backward(last, cotangent=seed)
    # For each step the sine again, and ct * x and ct * sine; the first one's memory
    # takes the product with the cosine. Then the stack of gradients.
    ledger.expect(
        allocations={"CheckpointRecomputeOutput": n, "OperationOutput": 2 * n + 1},
        copies={},
    )
    assert provider_calls.total == 3 * n + 1
    assert ledger.live == len(grads) == 2


def test_sums_for_constants_take_one_output_a_step() -> None:
    n = 5
    w, h = ta.variable(np.eye(2) / 2), ta.asarray(np.ones(2))
    with ta.Tape() as tape:
        last, _ = ta.scan(lambda h, _: (ta.matmul(w, h), None), h, None, n)
    seed = ta.asarray(np.ones(2))
    with ta.ledger() as ledger:
        grads = tape.backward(last, cotangent=seed)
    # Zeros to start from; each step a part of the sum and the next cotangent, which is
    # a view of a column: the last one gets memory of its own.
    ledger.expect(allocations={"OperationOutput": 2 + 2 * n}, copies={})
    del grads
    assert ledger.live == 0


def test_a_thousand_steps_keep_only_their_carries() -> None:
    n, k = 1000, 16
    w = ta.variable(rng.normal(size=(k, k)) / k)
    xs, h = ta.asarray(rng.normal(size=(n, k))), ta.asarray(np.zeros(k))

    def cell(h: Any, x: Any) -> Any:
        z = ta.matmul(w, h) + x
        return ta.tanh(z) * ta.exp(-z * z), None

    with ta.ledger(detail=False) as ledger, ta.Tape() as tape:
        last, _ = ta.scan(cell, h, xs)
        loss = ta.sum(last)
        kept = {(r.value, r.nbytes) for r in tape.retained() if r.operation == "scan"}
        stack = 8 * n * k
        # xs, w, and the carries as they were before each step.
        assert kept == {
            ("operands[1]", stack),
            ("operands[2]", 8 * k * k),
            ("outs[1]", stack),
        }
        # The stack, the carry and the loss are all that is there.
        assert ledger.live_bytes == stack + 8 * k + 8
    assert ledger.peak_bytes < stack + 16 * 8 * k
    with ta.ledger(detail=False) as ledger:
        grads = tape.backward(loss)
    # A step's own values and two sums of the size of w, whatever the number of steps.
    assert ledger.peak_bytes < 4 * 8 * k * k + 32 * 8 * k
    assert ledger.live == len(grads) == 1


def test_a_loop_that_reads_no_carry_keeps_none() -> None:
    a = ta.asarray(np.array([0.5, 0.9]))
    xs = ta.variable(np.ones((6, 2)))
    with ta.Tape() as tape:
        last, ys = ta.scan(lambda h, x: (a * h + x, h), np.zeros(2), xs)
        assert [r.value for r in tape.retained()] == ["operands[2]"]
        loss = ta.sum(last) + ta.sum(ys)
    grads = tape.backward(loss)
    assert grads.grad(xs) is not None


def test_what_goes_round_unchanged_is_no_carry() -> None:
    """It is not stacked, and comes back as the same value."""
    w, h = ta.variable(np.ones((50, 50))), ta.asarray(np.ones(50))

    def step(carry: Any, _: Any) -> Any:
        w, h = carry
        return (w, ta.sin(ta.matmul(w, h))), None

    with ta.ledger(detail=False) as ledger, ta.Tape() as tape:
        (same, h), _ = ta.scan(step, (w, h), None, 20)
        assert {r.nbytes for r in tape.retained()} == {8 * 50 * 50, 20 * 8 * 50}
        loss = ta.sum(h) + ta.sum(same)
    assert ledger.peak_bytes < 8 * 50 * 50 + 20 * 8 * 50
    ((theirs, _), _) = jax.lax.scan(
        lambda c, _: ((c[0], jnp.sin(c[0] @ c[1])), None),
        (np.ones((50, 50)), np.ones(50)), None, 20,
    )  # fmt: skip
    agree(same, theirs)
    tape.backward(loss)


def test_the_same_loop_finds_its_plans_again() -> None:
    xs = np.ones((3, 2))

    def run() -> None:
        w = ta.variable(rng.normal(size=2))
        with ta.Tape() as tape:
            c, _ = ta.scan(lambda c, x: (ta.sin(c * w) + x, None), np.zeros(2), xs)
            loss = ta.sum(c)
        tape.backward(loss)
        ta.jvp(lambda w: ta.scan(lambda c, x: (c * w, None), w, xs)[0], (xs[0],),
               (xs[1],))  # fmt: skip

    run()
    counts = [len(OPS[name].plans) for name in ("scan", "sin", "mul", "add")]
    for _ in range(3):
        run()
    assert counts == [len(OPS[name].plans) for name in ("scan", "sin", "mul", "add")]


def test_a_cotangent_that_is_handed_through_stays_the_callers() -> None:
    """The sweep owns no cotangent that a rule of several outputs passes on."""
    x = ta.variable(np.ones(3))
    seed = ta.asarray(np.array([1.0, 2.0, 3.0]))
    with ta.Tape() as tape:
        y = ta.exp(x)
        last, _ = ta.scan(lambda c, r: (c + r, c), y, np.ones((2, 3)))
    tape.backward(last, cotangent=seed)
    assert seed.tolist() == [1.0, 2.0, 3.0]


# ---- what loops take and give --------------------------------------------------------
def test_pytrees_and_numbers() -> None:
    def step(carry: Any, x: Any) -> Any:
        total, (count, seen) = carry["total"], carry["rest"]
        carry = {"total": total + x["a"] * x["b"], "rest": (count + 1, seen)}
        return carry, [carry["total"], None]

    xs = {"a": np.arange(3.0), "b": np.array([2, 2, 2])}
    last, ys = ta.scan(step, {"total": 0, "rest": (0, np.float32(7))}, xs)
    assert float(last["total"]) == 6.0
    assert last["total"].dtype == np.float64
    assert int(last["rest"][0]) == 3
    assert last["rest"][1].dtype == np.float32
    assert ys[0].tolist() == [0.0, 2.0, 6.0]
    assert ys[1] is None


def test_a_number_takes_the_dtype_of_the_loop() -> None:
    xs = np.ones((3,), np.float32)
    c, _ = ta.scan(lambda c, x: (x + ta.astype(c, np.float32), None), 0, xs)
    assert c.dtype == np.float32
    assert ta.fori_loop(0, 3, lambda i, v: v + 0.5, 0).dtype == np.float64
    assert ta.while_loop(lambda v: v < 3, lambda v: v + 0.5, 0).dtype == np.float64
    assert float(ta.while_loop(lambda v: v < 0, lambda v: v + 0.5, 2)) == 2.0


def test_ys_are_stacked_in_the_order_of_xs() -> None:
    step = lambda c, x: (c + x, (c, x))
    xs = np.arange(4.0)
    for reverse in (False, True):
        agree(
            ta.scan(step, 0.0, xs, reverse=reverse),
            jax.lax.scan(step, 0.0, xs, reverse=reverse),
        )


def test_no_steps_give_what_they_began_with() -> None:
    x = ta.variable(np.array([1.0, 2.0]))
    with ta.Tape() as tape:
        last, ys = ta.scan(lambda c, x: (ta.sin(c) * x, c), x, np.ones((0, 2)))
        assert ys.shape == (0, 2)
        loss = ta.sum(last * last)
    grads = tape.backward(loss)
    agree(grads.take_grad(x).as_view().numpy(), np.array([2.0, 4.0]))
    assert ta.fori_loop(3, 1, lambda i, v: v * i, x) is not None
    agree(
        ta.scan(lambda c, x: (c, c + x), np.ones(2), np.ones((0, 2)))[1].shape, (0, 2)
    )


def test_integers_go_along() -> None:
    """A counter beside what is differentiated: kept where it is read, never tracked."""

    def f(x: Any) -> Any:
        def step(carry: Any, _: Any) -> Any:
            v, n = carry
            return (ta.sin(v) * ta.astype(n, np.float64), n + 1), n

        (v, n), ns = ta.scan(step, (x, 1), None, 3)
        assert n.dtype == ns.dtype == np.int64
        return ta.sum(v)

    at = np.array([0.3, 0.8])
    check_grads(f, (at,), order=2)
    step = lambda c, _: ((c[0] * 2.0, c[1] + 1), c[1])
    (_, n), ns = ta.scan(step, (at, 1), None, 3)
    assert (int(n), ns.tolist()) == (4, [1, 2, 3])


def test_a_select_in_a_body_makes_zero_cotangents_absorb() -> None:
    def f(x: Any) -> Any:
        step = lambda c, _: (ta.where(c > 0, ta.sqrt(c), c * 2.0), None)
        return ta.sum(ta.scan(step, x, None, 2)[0])

    at = np.array([16.0, -1.0, 0.0])
    for g in (f, ta.trace(f, at), ta.checkpoint(f)):
        agree(ta.grad(g)(at), np.array([1 / 32, 4.0, 4.0]))


def test_a_loop_closes_over_values_of_every_level() -> None:
    """Two levels of derivative with respect to what the body only sees."""

    def power(a: Any) -> Any:
        return ta.scan(lambda c, _: (c * a, None), ta.ones_like(a), None, 3)[0]

    at = np.float64(1.7)
    agree(ta.grad(ta.grad(power))(at), 6 * at)
    agree(ta.grad(ta.grad(ta.grad(power)))(at), 6.0)
    agree(ta.jvp(lambda a: ta.grad(power)(a), (at,), (np.float64(1),))[1], 6 * at)
    mixed = ta.grad(lambda a: ta.grad(lambda b: power(a) * power(b))(a))
    agree(mixed(at), 9 * at**4 + 6 * at**4)


def test_programs_show_their_bodies() -> None:
    program = ta.trace(
        lambda x: ta.scan(lambda c, x: (c + x, c * x), 0.0, x), np.ones(3)
    )
    assert "body=<program with 2 equations>" in str(program)


# ---- faults --------------------------------------------------------------------------
X = np.ones((3, 2))
FAULTS: list[tuple[str, Any, type[Exception], str]] = [
    ("no pair", lambda: ta.scan(lambda c, x: c, 0.0, X), InvalidArgumentError, "pair"),
    ("structure", lambda: ta.scan(lambda c, x: ((c, c), x), 0.0, X),
     InvalidArgumentError, "structure"),
    ("shape", lambda: ta.scan(lambda c, x: (c + x, x), np.zeros(1), X),
     ShapeError, r"init.*float64\[1\]"),
    ("dtype", lambda: ta.scan(lambda c, x: ({"a": c["a"] > 0}, x),
                              {"a": np.zeros(2)}, X), DTypeError, r"init\['a'\]"),
    ("lengths", lambda: ta.scan(lambda c, x: (c, x), 0.0, {"a": X, "b": X[1:]}),
     ShapeError, r"2 steps, where `xs\['a'\]` has 3"),
    ("given length", lambda: ta.scan(lambda c, x: (c, x), 0.0, X, 4), ShapeError, "4"),
    ("no length", lambda: ta.scan(lambda c, x: (c, x), 0.0), InvalidArgumentError,
     "length"),
    ("negative", lambda: ta.scan(lambda c, x: (c, x), 0.0, None, -1),
     InvalidArgumentError, "length"),
    ("real length", lambda: ta.scan(lambda c, x: (c, x), 0.0, None, 1.5), DTypeError,
     "length"),
    ("no axis", lambda: ta.scan(lambda c, x: (c, x), 0.0, 1.0), ShapeError, "axes"),
    ("body asks", lambda: ta.scan(lambda c, x: (c if c > 0 else x, x), 0.0, X[0]),
     TracedConversionError, "ta.cond"),
    ("no branches", lambda: ta.switch(0, []), InvalidArgumentError, "branches"),
    ("many predicates", lambda: ta.cond(ta.asarray(X > 0), abs, abs, X), ShapeError,
     "ta.where"),
    ("complex", lambda: ta.cond(ta.asarray(1j), abs, abs, X), DTypeError, "pred"),
    ("real index", lambda: ta.switch(ta.asarray(0.5), [abs, abs], X), DTypeError,
     "index"),
    ("while structure", lambda: ta.while_loop(lambda v: v < 1, lambda v: (v,), 0.0),
     InvalidArgumentError, "structure"),
    ("while shape", lambda: ta.while_loop(lambda v: ta.sum(v) < 9,
                                          lambda v: ta.sum(v), X), ShapeError, "shape"),
    ("while test", lambda: ta.while_loop(lambda v: v < 3, lambda v: v, X), ShapeError,
     "cond_fun"),
    ("while bound", lambda: ta.while_loop(lambda v: v < 3, lambda v: v, 0.0, -1),
     InvalidArgumentError, "max_steps"),
    ("bounded", lambda: ta.while_loop(lambda v: v < 3, lambda v: (v, v), 0.0, 4),
     InvalidArgumentError, "body_fun"),
    ("counted", lambda: ta.fori_loop(0, 2.5, lambda i, v: v, X), DTypeError, "upper"),
    ("counted body", lambda: ta.fori_loop(0, 2, lambda i, v: v[0], X), ShapeError,
     "fori_loop"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "error", "text"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_mistakes_have_names(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


BRANCHES: list[tuple[str, Any, type[Exception], str]] = [
    ("structure", lambda x: (x, x), InvalidArgumentError, "structure"),
    ("shape", lambda x: x[:1], ShapeError, r"float64\[1\]"),
    ("dtype", lambda x: x > 0, DTypeError, "bool"),
]


@pytest.mark.parametrize(
    ("other", "error", "text"), [b[1:] for b in BRANCHES], ids=[b[0] for b in BRANCHES]
)
def test_branches_give_the_same(other: Any, error: type[Exception], text: str) -> None:
    def f(x: Any) -> Any:
        return ta.cond(ta.sum(x) > 0, other, lambda x: x, x)

    with pytest.raises(error, match=text):
        ta.trace(f, X[0])
    f(X[0])  # only one branch is there to look at


def test_faults_in_traces_are_found_while_tracing() -> None:
    turned = lambda v: ta.while_loop(lambda v: ta.sum(v) < 1, lambda v: v[0], v)
    with pytest.raises(ShapeError, match="while_loop"):
        ta.trace(turned, X)


def test_a_row_of_the_table_is_one_equation() -> None:
    """Whatever its number of steps."""
    x = ta.variable(np.ones(2))
    with ta.Tape() as tape:
        y, _ = ta.scan(lambda c, x: (ta.sin(c), None), x, None, 100)
        assert y.is_tracked
        assert [eq.call.op.name for eq in tape.program().equations] == ["scan"]
    with ta.Tape() as tape:
        ta.scan(lambda c, x: (ta.sin(c), c), np.ones(2), None, 100)
        assert len(tape) == 0


# ---- compiled ------------------------------------------------------------------------
@every_program
def test_compiled_programs_plan_the_memory_of_their_bodies(name: str) -> None:
    """Whatever the number of steps: the outputs, and an arena for each reason."""
    program, at = PROGRAMS[name]
    numbers = tuple(range(len(at)))
    for f in (program(Ours), ta.grad(program(Ours), numbers)):
        compiled = ta.compile(f)
        xs = [ta.asarray(x) for x in at]
        agree(compiled(*xs), f(*xs), 1e-12)
        with ta.ledger() as ledger:
            found = compiled(*xs)
        outs = len(found) if isinstance(found, tuple) else 1
        again = ledger.allocations.pop("CheckpointRecomputeOutput", 0)
        assert again <= 1
        assert ledger.allocations["OperationOutput"] <= outs + 1
        assert ledger.copies == {}
        agree(found, f(*xs), 1e-12)


def test_a_compiled_loop_reads_and_writes_apart() -> None:
    """Carries that change places, come from views, or are handed on by reference."""
    w = rng.normal(size=(3, 3))

    def f(a: Any, b: Any, xs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            a, b, c = carry
            return (b, a + b * x, ta.reshape(c, (3, 3)).T), (a, c[0], b)

        start = (a.T[0], b[::-1], ta.asarray(w).T)
        return ta.scan(step, start, xs[:, ::2].T)

    a, b, xs = w * 2, np.arange(3.0), rng.normal(size=(3, 8))
    agree(ta.compile(f)(a, b, xs), f(*map(ta.asarray, (a, b, xs))), 1e-14)
    g = ta.grad(lambda *v: ta.sum(f(*v)[0][1]) + ta.sum(f(*v)[1][1]), (0, 1, 2))
    agree(ta.compile(g)(a, b, xs), g(*map(ta.asarray, (a, b, xs))), 1e-13)


def test_a_compiled_loop_that_values_end() -> None:
    f = newton(Ours)
    compiled = ta.compile(f)
    for a in (2.0, 9.0, 100.0):
        agree(compiled(np.float64(a)), np.sqrt(a))
    push = ta.compile(lambda a: ta.jvp(f, (a,), (np.float64(1),))[1])
    agree(push(np.float64(9.0)), 1 / 6)
    many = ta.compile(ta.vmap(f))
    agree(many(np.array([2.0, 9.0, 0.3])), np.sqrt([2.0, 9.0, 0.3]))


# ---- plans ---------------------------------------------------------------------------
def passes(f: Any, at: tuple[Array, ...]) -> tuple[Any, int]:
    """Allocations and peak of an eager forward and backward pass."""
    xs = [ta.variable(x) for x in at]
    with ta.ledger(detail=False) as ledger:
        with ta.Tape() as tape:
            loss = f(*xs)
        grads = tape.backward(loss)
    assert len(grads) == len(xs)
    return dict(ledger.allocations), ledger.peak_bytes


@pytest.mark.parametrize("steps", [1, 2, 30])
def test_a_plan_foretells_a_loop(steps: int) -> None:
    """Its allocations, step by step, and the most that is alive at once."""

    def loss(w: Any, h: Any, xs: Any) -> Any:
        def cell(h: Any, x: Any) -> Any:
            z = ta.matmul(w, h) + x
            h = ta.tanh(z) * ta.exp(-z * z)
            return h, ta.sum(h)

        h, ys = ta.scan(cell, h, xs)
        return ta.sum(ys * ys) + ta.sum(h)

    at = points((8, 8), (8,), (steps, 8))
    plan = ta.plan(loss, *at)
    allocations, peak = passes(loss, at)
    assert plan.allocations == allocations
    assert plan.peak_bytes == peak


def test_a_plan_takes_the_branch_that_holds_most() -> None:
    def loss(x: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            big = lambda c: ta.sin(ta.exp(ta.cos(c)))
            c = ta.cond(ta.sum(c) > 0, big, lambda c: c * 0.5, c)
            return c, None

        return ta.sum(ta.scan(step, x, None, 4)[0])

    at = (np.full(100, 0.1),)
    plan = ta.plan(loss, *at)
    allocations, peak = passes(loss, at)
    assert plan.allocations == allocations
    assert plan.peak_bytes == peak
    assert passes(loss, (np.full(100, -0.1),))[1] < peak


def test_a_plan_counts_three_steps_of_a_loop_that_values_end() -> None:
    """Further ones hold no more."""

    def loss(x: Any, n: Any) -> Any:
        _, v = ta.while_loop(
            lambda s: s[0] < n, lambda s: (s[0] + 1.0, ta.sin(s[1])), (0.0, n)
        )
        return ta.sum(x * v)

    n, x = ta.asarray(3.0), np.ones(50)
    plan = ta.plan(lambda x: loss(x, n), x)
    # Four times compare, three times count and sine; the product and the sum; backward:
    # the seed and a product, of a cotangent that is a view.
    for f in (lambda x: loss(x, n), ta.trace(lambda x: loss(x, n), x)):
        allocations, peak = passes(f, (x,))
        assert plan.allocations == allocations == {"OperationOutput": 14}
        assert plan.peak_bytes == peak
    many = ta.asarray(9.0)
    _, peak = passes(lambda x: loss(x, many), (x,))
    assert plan.peak_bytes == peak
