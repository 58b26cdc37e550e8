"""Chains of elementwise equations are one kernel on devices, and change nothing else.

Launches are counted by the endpoint. Values are compared with the same program run one
kernel at a time, and with eager work of the CPU, over random programs too: their
temporaries share places, so a chain that ran too late would read something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.ops import Elementwise
from tenferro_ad.runtime import chains_of, compile_program, forget_graphs
from tests.backends.lane_support import Lane

Array = np.ndarray[Any, Any]


@contextmanager
def one_by_one(lane: Lane) -> Iterator[None]:
    """Inside, the lane's device runs each equation by a kernel of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(lane.device), "prints", lambda device, call: False)
        forget_graphs()
        yield
    forget_graphs()


def prints(lane: Lane) -> bool:
    """The fake device has kernels of the host: it runs equations one by one."""
    return lane.name != "fake"


def f4(*shape: int, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    return rng.uniform(-1, 1, shape).astype(np.float32)


def launches(lane: Lane, fn: Callable[..., Any], *args: Any) -> tuple[int, Any]:
    """Launches of one run, once everything is made, and its result."""
    fast = ta.compile(fn)
    fast(*args)
    lane.device.drain()
    before = lane.launched
    found = fast(*args)
    lane.device.drain()
    return lane.launched - before, found


def plain(x: Any) -> Any:
    return ta.exp(-ta.square(ta.tanh(x * 2.0 + 1.0)))


def broadcasting(x: Any, b: Any) -> Any:
    h = ta.tanh(x * 2.0 + b)
    return ta.exp(-h * h) * h + 1.0


def viewed(x: Any, b: Any) -> Any:
    return ta.where(x.T[::-1] > 0.0, x.T * b[:, None], ta.sin(x[:, ::-1].T))


def split(x: Any, b: Any) -> Any:
    """A reduction between two chains, and a value that both sides read."""
    h = ta.exp(x + b)
    return ta.square(h / ta.sum(h, axis=1, keepdims=True)) + 1.0


def mixed(x: Any) -> Any:
    return ta.astype(ta.astype(x * 3.0, np.int32) * 2, np.float32) + x


def stored(x: Any) -> Any:
    """Two values of one chain leave; one of them lies where an operand was."""
    h = ta.cumulative_sum(x, axis=0) * 2.0
    return h, ta.sin(h) + x


def complicated(x: Any) -> Any:
    z = ta.exp(x * 1j) * (1 + 2j)
    return ta.abs(z * ta.conj(z)) + ta.real(z)


X, B = f4(5, 7), f4(7, seed=1)
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Array, ...], int, int]] = {
    # What is computed, operands, launches with chains, and without.
    "plain": (plain, (X,), 1, 6),
    "broadcasting": (broadcasting, (X, B), 1, 8),
    "viewed": (viewed, (X, B), 1, 4),
    "split": (split, (X, B), 3, 6),
    "mixed": (mixed, (X,), 1, 5),
    "complicated": (complicated, (X,), 1, 8),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_chain_is_one_launch(eager_lane: Lane, name: str) -> None:
    fn, arrays, chained, alone = PROGRAMS[name]
    values = [ta.asarray(a, device=eager_lane.device) for a in arrays]
    with one_by_one(eager_lane):
        many, wanted = launches(eager_lane, fn, *values)
    few, found = launches(eager_lane, fn, *values)
    if prints(eager_lane):  # the fake counts a run as one
        assert (few, many) == (chained, alone)
    on_cpu = np.asarray(fn(*[ta.asarray(a) for a in arrays]).numpy())
    for other in (np.asarray(wanted.numpy()), on_cpu):
        assert np.allclose(found.numpy(), other, rtol=4e-6, atol=4e-6)


def test_a_value_that_is_read_later_is_stored_by_the_chain(eager_lane: Lane) -> None:
    x = ta.asarray(X, device=eager_lane.device)
    with one_by_one(eager_lane):
        many, wanted = launches(eager_lane, stored, x)
    few, found = launches(eager_lane, stored, x)
    if prints(eager_lane):
        assert (few, many) == (2, 4)
    for one, other in zip(found, wanted, strict=True):
        assert np.allclose(one.numpy(), other.numpy(), rtol=4e-6, atol=4e-6)


def test_sums_of_products_are_left_as_they_are_rounded(eager_lane: Lane) -> None:
    """Without products the same operations round in the same way: bit for bit."""
    x = ta.asarray(X, device=eager_lane.device)

    def fn(x: Any) -> Any:
        return ta.maximum(ta.abs(x) + x, ta.sqrt(ta.abs(x)) - 0.25)

    with one_by_one(eager_lane):
        _, wanted = launches(eager_lane, fn, x)
    _, found = launches(eager_lane, fn, x)
    assert np.array_equal(found.numpy(), wanted.numpy())


def test_a_run_allocates_what_it_did(eager_lane: Lane) -> None:
    """Chains leave places and outputs alone (on WebGPU, whose multiset is its own,
    values inside a chain need no memory)."""
    x = ta.asarray(X, device=eager_lane.device)
    seen = []
    for alone in (True, False):
        fast = ta.compile(plain)
        if alone:
            with one_by_one(eager_lane):
                fast(x)
        else:
            fast(x)
        with ta.ledger() as led:
            fast(x)
        seen.append(sum(led.allocations.values()))
    assert seen[0] >= seen[1] if eager_lane.name == "webgpu" else seen[0] == seen[1]
    if eager_lane.name == "webgpu":
        assert seen[1] == 1


def test_results_are_added_to_gradients_inside_the_chain(eager_lane: Lane) -> None:
    """Backward passes add to memory: the sum is the last equation of a chain."""
    x = ta.asarray(X, device=eager_lane.device)

    def loss(x: Any) -> Any:
        return ta.sum(x * ta.tanh(x) + ta.exp(x) * 0.5)

    few, found = launches(eager_lane, ta.grad(loss), x)
    with one_by_one(eager_lane):
        many, _ = launches(eager_lane, ta.grad(loss), x)
    wanted = ta.grad(loss)(ta.asarray(X)).numpy()
    assert np.allclose(found.numpy(), wanted, rtol=4e-6, atol=4e-6)
    assert few < many if prints(eager_lane) else few == many


def test_a_donated_input_is_read_before_it_is_written(eager_lane: Lane) -> None:
    b = ta.asarray(B, device=eager_lane.device)

    def fn(x: Any, b: Any) -> Any:
        return ta.exp(x[::-1] * b) - x, ta.sin(x) + b

    fast = ta.compile(fn, donate_argnums=(0,))
    wanted = [y.numpy() for y in fn(ta.asarray(X), ta.asarray(B))]
    for _ in range(2):
        found = fast(ta.asarray(X, device=eager_lane.device), b)
        for y, other in zip(found, wanted, strict=True):
            assert np.allclose(y.numpy(), other, rtol=4e-6, atol=4e-6)


# ---- random programs -----------------------------------------------------------------

UNARY = (ta.tanh, ta.sin, ta.abs, lambda x: x * 0.5, lambda x: x + 1.0)
BINARY = (ta.add, ta.subtract, ta.multiply, ta.maximum)
OTHERS = (
    lambda x: x.T,
    lambda x: x[::-1],
    lambda x: ta.sum(x, axis=0) * 0.25,  # a row: it broadcasts
    lambda x: x - ta.mean(x, axis=1, keepdims=True),
    lambda x: ta.cumulative_sum(x, axis=0) * 0.25,
)


def drawn(seed: int) -> Callable[..., Any]:
    """A random program over two square matrices with two outputs."""

    def fn(*given: Any) -> Any:
        rng = np.random.default_rng(seed)
        values = list(given)
        for _ in range(24):
            kind = rng.uniform()
            recent = [
                values[-1 - int(k)] for k in rng.integers(0, min(5, len(values)), 2)
            ]
            if kind < 0.35:
                values.append(UNARY[int(rng.integers(len(UNARY)))](recent[0]))
            elif kind < 0.8:
                values.append(BINARY[int(rng.integers(len(BINARY)))](*recent))
            elif recent[0].ndim == 2:
                values.append(OTHERS[int(rng.integers(len(OTHERS)))](recent[0]))
            values[-1] = ta.tanh(values[-1]) if kind > 0.5 else values[-1]
        return values[-1] + given[0], values[len(values) // 2] * 1.0

    return fn


# Sums into the memory of a value that is inside the chain: 3 and 6.
@pytest.mark.parametrize("seed", range(8))
def test_random_programs_and_their_gradients(eager_lane: Lane, seed: int) -> None:
    fn = drawn(seed)

    def loss(a: Any, b: Any) -> Any:
        return sum(ta.mean(ta.square(y)) for y in fn(a, b))

    arrays = f4(6, 6, seed=seed), f4(6, 6, seed=seed + 100)
    there = [ta.asarray(a, device=eager_lane.device) for a in arrays]
    here = [ta.asarray(a) for a in arrays]
    for made in (fn, ta.grad(loss, argnums=(0, 1))):
        fast = ta.compile(made)
        for found, wanted in zip(fast(*there), made(*here), strict=True):
            assert np.allclose(found.numpy(), wanted.numpy(), rtol=2e-4, atol=2e-5)


# ---- what joins a chain --------------------------------------------------------------


def found_in(fn: Callable[..., Any], *arrays: Array) -> list[list[str]]:
    """Names of the equations of each chain, were the CPU's schedule a device's."""
    traced = ta.trace(fn, *[ta.Spec(a.shape, a.dtype) for a in arrays])
    graph = compile_program(traced.program, [x._record for x in traced.constants])

    def printed(call: Any) -> bool:
        return isinstance(call.op.kernel, Elementwise) or call.op.name == "astype"

    chains = chains_of(graph.plan, printed, shares_buffers=True)
    return [
        [eq.call.op.name for eq in chain.equations]
        for _, chain in sorted(chains.items())
        if chain is not None
    ]


def test_what_is_read_after_the_chain_is_stored_by_it() -> None:
    def fn(x: Any) -> Any:
        h = ta.exp(x)
        return ta.sin(h), ta.cos(h)

    assert found_in(fn, X) == [["exp", "sin"]]


def test_what_leaves_is_stored_by_the_chain() -> None:
    def fn(x: Any) -> Any:
        h = ta.exp(x)
        return h, ta.sin(h)

    assert found_in(fn, X) == [["exp", "sin"]]


def test_what_is_read_before_the_chain_runs_is_not_in_it() -> None:
    def fn(x: Any) -> Any:
        h = ta.exp(x)
        return ta.sin(h) + ta.sum(h)

    assert found_in(fn, X) == [["sin", "add"]]  # the sum is between


def test_nothing_is_computed_again_for_elements_of_a_larger_shape() -> None:
    def fn(x: Any, b: Any) -> Any:
        return x * ta.exp(ta.sin(b))

    assert found_in(fn, X, B) == [["sin", "exp"]]


def test_a_chain_reads_as_many_buffers_as_every_adapter_binds() -> None:
    def fn(*xs: Any) -> Any:
        return sum(xs[1:], xs[0])

    made = found_in(fn, *[f4(3, seed=k) for k in range(12)])
    assert [len(names) for names in made] == [5, 5]  # the twelfth is left
