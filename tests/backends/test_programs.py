"""Whole programs as users write them, on every lane: the same values as on the CPU.

Each program takes its device from `ta.default_device`, computes with everything the
package offers to it (loops, branches, checkpoints, batching, nested derivatives,
optimizers, random numbers), and is run as it is and compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tests.backends.lane_support import Lane, no_cpu_kernels

PROGRAMS: dict[str, Callable[..., Any]] = {}


def program(fn: Callable[..., Any]) -> Callable[..., Any]:
    PROGRAMS[fn.__name__] = fn
    return fn


def f4(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng([seed, *shape])
    return rng.standard_normal(shape).astype(np.float32)


@program
def nested_derivatives(x: Any, w: Any) -> Any:
    """A Hessian-vector product, and a gradient through a forward derivative."""

    def energy(x: Any) -> Any:
        return ta.sum(ta.tanh(x @ w) ** 2)

    def speed(x: Any) -> Any:
        return ta.sum(ta.square(ta.jvp(energy, (x,), (x,))[1]))

    return ta.hvp(energy, (x,), (x,)), ta.grad(speed)(x)


@program
def batches(x: Any, w: Any) -> Any:
    """A function of one row, its gradient and its Jacobian for each row."""

    def row(v: Any) -> Any:
        return ta.tanh(v @ w) * ta.sum(v)

    first = ta.vmap(lambda v: ta.grad(lambda v: ta.sum(row(v)))(v))(x)
    return ta.vmap(row)(x), first, ta.vmap(ta.jacfwd(row))(x)


@program
def loops_in_batches(x: Any, w: Any) -> Any:
    """A scan under a gradient under a batch, and a loop with a fixed length."""

    def rolled(v: Any) -> Any:
        def step(c: Any, t: Any) -> Any:
            c = ta.tanh(c * 0.9 + t)
            return c, c * c

        end, ys = ta.scan(step, v[0], v)
        return end + ta.sum(ys)

    powers = ta.fori_loop(0, 3, lambda i, m: m @ w * 0.3, w)
    return ta.vmap(ta.grad(rolled))(x), powers


@program
def branches(x: Any, w: Any) -> Any:
    """A branch on a value of the device, and one for each row."""

    def side(v: Any) -> Any:
        return ta.cond(ta.sum(v) > 0.0, ta.sin, lambda v: v * v * v, v)

    return side(x[0]), ta.grad(lambda x: ta.sum(side(x[1])))(x), ta.vmap(side)(x)


@program
def checkpoints(x: Any, w: Any) -> Any:
    """Regions, one inside another, and their gradients."""
    inner = ta.checkpoint(lambda h: ta.tanh(h @ w) * 0.7)
    outer = ta.checkpoint(lambda h: inner(inner(h)) + h @ w)
    return ta.grad(lambda x: ta.sum(ta.square(outer(x))))(x)


@program
def views_and_indices(x: Any, w: Any) -> Any:
    """Slices, broadcasting, advanced indices, functional updates, sorting by key."""
    y = x.at[1:, ::2].add(2.0).at[0].set(w[0])
    rows = ta.take(y, [2, 0, 2], axis=0)
    both = ta.concat([rows[:, ::-1], y[:2]], axis=0)

    def f(x: Any) -> Any:
        z = x.T[1:, None] * x.at[2].multiply(0.5)[None, :, 1:].sum(-1)
        return ta.sum(ta.where(z > 0, ta.sqrt(z), z))

    return both, ta.grad(f)(x), ta.max(y, axis=1), ta.argmax(y, axis=0)


@program
def networks(x: Any, w: Any) -> Any:
    """A convolution, pooling and a normalised loss."""
    image, kernel = ta.reshape(x, (1, 1, 4, 4)), ta.reshape(w[:, :3], (1, 1, 4, 3))

    def loss(kernel: Any) -> Any:
        h = nn.relu(nn.conv2d(image, kernel, padding=2))
        h = nn.max_pool2d(h, 2)
        labels = ta.zeros(1, dtype=ta.int32)
        return nn.cross_entropy(ta.reshape(h, (1, -1)), labels)

    return ta.grad(loss)(kernel)


@program
def complex_numbers(x: Any, w: Any) -> Any:
    """Real functions of complex values."""
    z = ta.complex(x, w)

    def f(z: Any) -> Any:
        return ta.sum(ta.square(ta.abs(ta.exp(z * 0.5j) @ ta.conj(z).T)))

    return ta.grad(f)(z), ta.angle(z), ta.einsum("ij,kj->ik", z, ta.conj(z))


@program
def random_numbers(x: Any, w: Any) -> Any:
    """The same bits everywhere; a gradient with respect to parameters of a draw."""
    key = ta.random.key(7)
    bits = ta.random.bits(key, (5,))

    def f(w: Any) -> Any:
        return ta.mean(
            ta.square(x + w * ta.random.normal(key, x.shape, dtype=ta.float32))
        )

    return bits, ta.grad(f)(w), ta.random.uniform(key, (4,), dtype=ta.float32)


@program
def optimizer_steps(x: Any, w: Any) -> Any:
    """Adam as a function, with its state on the device."""
    optimizer = ta.optim.Adam(lambda t: 0.05 / t)
    params, state = {"w": w}, optimizer.init({"w": w})
    for _ in range(3):
        grads = ta.grad(lambda p: ta.mean(ta.square(x @ p["w"] - 1.0)))(params)
        params, state = optimizer.apply(params, grads, state)
    return params, state["steps"]


def host(tree: Any) -> list[np.ndarray[Any, Any]]:
    leaves = optree.tree_leaves(tree)  # type: ignore[arg-type]
    return [np.array(leaf.numpy()) for leaf in leaves]


def on(device: Any, fn: Callable[..., Any], compiled: bool) -> Any:
    with ta.default_device(device):
        x, w = ta.asarray(f4(4, 4, seed=1)), ta.asarray(f4(4, 4, seed=2))
        run = ta.compile(fn) if compiled else fn
        run(x, w)  # kernels and plans are made
        return run(x, w)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_gives_what_it_gives_on_the_cpu(
    eager_lane: Lane, name: str, compiled: bool
) -> None:
    lane, fn = eager_lane, PROGRAMS[name]
    wanted = host(on("cpu", fn, compiled))
    with no_cpu_kernels():
        found = on(lane.device, fn, compiled)
    leaves = optree.tree_leaves(found)  # type: ignore[arg-type]
    assert {leaf.device for leaf in leaves} == {lane.device}
    for seen, expected in zip(host(found), wanted, strict=True):
        assert (seen.shape, seen.dtype) == (expected.shape, expected.dtype)
        scale = max(1.0, float(np.max(np.abs(expected), initial=0.0)))
        assert np.max(np.abs(seen - expected), initial=0.0) <= 2e-5 * scale


def test_training_in_place(eager_lane: Lane) -> None:
    """Variables, a tape, an optimizer that writes over parameters."""

    def trained(device: Any) -> Any:
        with ta.default_device(device):
            params = {"w": ta.variable(f4(4, 3)), "b": ta.variable(f4(3))}
            x, y = ta.asarray(f4(8, 4, seed=3)), ta.asarray(f4(8, 3, seed=4))
            optimizer = ta.optim.Adam(0.05)
            loss_of = ta.value_and_grad(
                lambda p: ta.mean(ta.square(ta.tanh(x @ p["w"] + p["b"]) - y))
            )
            for _ in range(4):
                loss, grads = loss_of(params)
                optimizer.update(params, grads)
            return [loss, ta.stop_gradient(params["w"]), ta.stop_gradient(params["b"])]

    wanted = host(trained("cpu"))
    with no_cpu_kernels():
        found = trained(eager_lane.device)
    for seen, expected in zip(host(found), wanted, strict=True):
        assert np.allclose(seen, expected, rtol=1e-5, atol=1e-5)


def test_a_compiled_step_takes_over_its_inputs(eager_lane: Lane) -> None:
    """Donated parameters and state: nothing is allocated for them."""
    lane, optimizer = eager_lane, ta.optim.Adam(0.05)

    def step(w: Any, state: Any, x: Any) -> Any:
        grads = ta.grad(lambda w: ta.mean(ta.square(x @ w - 1.0)))(w)
        return optimizer.apply(w, grads, state)

    def trained(device: Any, donate: Any) -> Any:
        with ta.default_device(device):
            run = ta.compile(step, donate_argnums=donate)
            x, w = ta.asarray(f4(8, 4, seed=5)), ta.asarray(f4(4, 4, seed=6))
            state = optimizer.init(w)
            for _ in range(3):
                lane.device.drain()
                with ta.ledger() as led:
                    w, state = run(w, state, x)
            lane.device.drain()
        assert led.copies == {}
        return led.allocations, state["steps"].item(), w.to("cpu").numpy()

    _, _, wanted = trained("cpu", ())
    for donate in ((0, 1), 0, 1):
        allocations, steps, found = trained(lane.device, donate)
        if lane.name != "webgpu" and donate == (0, 1):  # places are allocations there
            assert allocations == {"OperationOutput": 1}
        assert steps == 3
        assert np.allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_tracing_large_values_gives_nothing_back(eager_lane: Lane) -> None:
    """A symbolic value has no bytes that could return to a pool."""
    lane = eager_lane
    x = ta.asarray(np.ones(40_000, np.float32), device=lane.device)
    lane.device.drain()
    live, pooled = lane.device.live_bytes, getattr(lane.device, "pool_bytes", 0)
    traced = ta.trace(
        ta.grad(lambda x: ta.sum(ta.checkpoint(lambda x: ta.exp(x) * x)(x))), x
    )
    assert lane.device.live_bytes == live
    assert getattr(lane.device, "pool_bytes", 0) == pooled
    assert np.allclose(traced(x).numpy(), 2 * np.e, rtol=1e-6)


def test_a_runtime_over_the_lane_submits_traced_work(eager_lane: Lane) -> None:
    lane = eager_lane
    runtime = ta.Runtime(lane.device, name="of the caller")
    x = ta.asarray(f4(3, 3), device=lane.device)
    graph = runtime.compile(ta.trace(lambda a, b: (a @ b, ta.sum(a)), x, x))
    inputs = ta.ExecutionInputs.of_values([x, lane.tensor(f4(3, 3, seed=9))])
    lane.hold()
    handle = runtime.submit(graph, inputs)
    assert not handle.is_done
    lane.let_go()
    outcome = handle.wait(60)
    assert isinstance(outcome, ta.Completed)
    product = outcome.bundle.into_output(0).numpy()
    assert np.allclose(product, f4(3, 3) @ f4(3, 3, seed=9), rtol=1e-5, atol=1e-6)
    del outcome, handle
    runtime.close()


def test_a_result_is_written_over_a_view(eager_lane: Lane) -> None:
    """The cotangent of a product of vectors is a view, whose memory its rule takes."""

    def loss(v: Any, m: Any) -> Any:
        return ta.sum(ta.imag(m @ ta.sin(v)))

    rng = np.random.default_rng(0)
    arrays = [
        (rng.normal(size=s) + 1j * rng.normal(size=s)).astype(np.complex64)
        for s in ((4,), (3, 4))
    ]
    wanted = ta.grad(loss)(*map(ta.asarray, arrays)).numpy()
    v, m = (ta.asarray(a, device=eager_lane.device) for a in arrays)
    run = ta.compile(ta.grad(loss))
    assert any(eq.mode == "over" for eq in run.plan(v, m).program.equations)
    assert np.allclose(run(v, m).numpy(), wanted, rtol=1e-5)


EMPTY: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: ta.sum(ta.cumulative_sum(x)),
    "test": lambda x: ta.any(ta.cumulative_sum(x) > 0.0),
    "dtype": lambda x: ta.astype(ta.cumulative_sum(x), ta.int32),
    "gradient": ta.grad(lambda x: ta.sum(ta.cumulative_sum(ta.cumulative_sum(x)))),
    "loop": lambda x: ta.scan(
        lambda c, _: (ta.cumulative_sum(c), ta.any(ta.cumulative_sum(c) > 0.0)),
        x,
        None,
        3,
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_values_without_elements_need_no_place(eager_lane: Lane, name: str) -> None:
    """An arena of the host has no place for them, and neither has one of a device."""
    fn, x = EMPTY[name], np.zeros(0, np.float32)
    wanted = list(optree.tree_leaves(fn(ta.asarray(x))))
    run, given = ta.compile(fn), ta.asarray(x, device=eager_lane.device)
    for found in (run(given), run(given)):
        for seen, expected in zip(optree.tree_leaves(found), wanted, strict=True):
            assert seen.dtype == expected.dtype
            assert np.array_equal(seen.numpy(), expected.numpy())


def test_numbers_that_are_repeated_stay_numbers(eager_lane: Lane) -> None:
    """A view of a number of the text is an operand and a carry."""

    def fn(x: Any) -> Any:
        def counted(v: Any) -> Any:
            return ta.while_loop(
                lambda s: s[0] < v, lambda s: (s[0] + 1.0, s[1] * 2.0), (0.0, v)
            )

        return ta.vmap(counted)(x)

    x = np.array([0.5, 1.0, 2.0], np.float32)
    wanted = ta.compile(fn)(ta.asarray(x))
    found = ta.compile(fn)(ta.asarray(x, device=eager_lane.device))
    for y, expected in zip(found, wanted, strict=True):
        assert np.allclose(y.numpy(), expected.numpy(), rtol=1e-5)
