"""Equal ledgers: a program makes the same events on every lane (contract G7).

Forward and backward of three models in each mode, once on the CPU and once on the lane:
literally the same multisets, whatever ran them. Values come in before and are read
after; in between nothing is staged, nothing is computed on the CPU, and every
retirement record that was opened is released.

A compiled program may differ on WebGPU, which lets no kernel read and write one buffer:
each place of an arena is an allocation of its own there, and the test says how many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tests.backends.lane_support import Counts, Lane, no_cpu_kernels

Array = np.ndarray[Any, Any]
Leaves = list[ta.EagerTensor]


# ---- models --------------------------------------------------------------------------


@dataclass(frozen=True)
class Model:
    """A loss of parameters and data, and arrays to start from.

    Attributes:
        loss: `loss(block, params, data)`; `block` wraps what a checkpoint would hold.
        tolerance: of values against the CPU, relative to their largest.
    """

    params: tuple[Array, ...]
    data: tuple[Array, ...]
    loss: Callable[..., Any]
    tolerance: float


def f4(*shape: int, seed: int = 0, scale: float = 0.5) -> Array:
    rng = np.random.default_rng([seed, *shape])
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def mlp(block: Callable[..., Any], params: Leaves, data: Leaves) -> Any:
    def layer(h: Any, w: Any, b: Any) -> Any:
        return ta.tanh(h @ w + b)

    w1, b1, w2, b2, w3, b3 = params
    x, y = data
    h = block(layer)(x, w1, b1)
    h = block(layer)(h, w2, b2)
    return ta.mean(ta.square(h @ w3 + b3 - y))


def digits(block: Callable[..., Any], params: Leaves, data: Leaves) -> Any:
    """The network of `examples/train_digits.py`, smaller."""
    w1, b1, w2, b2, w3, b3 = params
    x, onehot = data

    def two(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        h = nn.relu(nn.conv2d(x, w1, b1, padding=1))
        return nn.relu(nn.conv2d(h, w2, b2, padding=1))

    h = nn.max_pool2d(block(two)(x, w1, b1, w2, b2), 2)
    logits = nn.linear(ta.reshape(h, (h.shape[0], -1)), w3, b3)
    return -ta.mean(ta.sum(ta.log_softmax(logits, axis=-1) * onehot, axis=-1))


def chain(block: Callable[..., Any], params: Leaves, data: Leaves) -> Any:
    """A chain of complex values with views: transposes, slices, broadcasting."""
    (z, w), (shift,) = params, data

    def step(z: Any, w: Any) -> Any:
        z = ta.exp(z * 0.1j) * w + shift
        return ta.conj(z.T)[::-1].T

    for _ in range(4):
        z = block(step)(z, w)
    return ta.sum(ta.square(ta.abs(z)))


def c8(*shape: int, seed: int) -> Array:
    return (f4(*shape, seed=seed) + 1j * f4(*shape, seed=seed + 1)).astype(np.complex64)


MODELS = {
    "mlp": Model(
        (
            f4(12, 16, seed=1),
            f4(16, seed=2),
            f4(16, 16, seed=3),
            f4(16, seed=4),
            f4(16, 3, seed=5),
            f4(3, seed=6),
        ),
        (f4(8, 12, seed=7), f4(8, 3, seed=8)),
        mlp,
        1e-5,
    ),
    "digits": Model(
        (
            f4(4, 1, 3, 3, seed=11),
            f4(4, seed=12),
            f4(4, 4, 3, 3, seed=13),
            f4(4, seed=14),
            f4(5, 4 * 16, seed=15),
            f4(5, seed=16),
        ),
        (f4(6, 1, 8, 8, seed=17), np.eye(5, dtype=np.float32)[[0, 1, 2, 3, 4, 0]]),
        digits,
        1e-5,
    ),
    "chain": Model(
        (c8(4, 6, seed=21), c8(6, seed=23)), (c8(1, 6, seed=25),), chain, 1e-5
    ),
}


# ---- modes ---------------------------------------------------------------------------


def plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    return fn


def eager(model: Model, block: Any = plain) -> Callable[..., Any]:
    def run(params: Leaves, data: Leaves) -> Leaves:
        with ta.Tape() as tape:
            loss = model.loss(block, params, data)
        grads = tape.backward(loss)
        return [loss, *[grads[p] for p in params]]

    return run


def checkpointed(model: Model) -> Callable[..., Any]:
    return eager(model, ta.checkpoint)


def compiled(model: Model) -> Callable[..., Any]:
    def step(params: Any, data: Any) -> Any:
        return ta.grad(lambda params: model.loss(plain, params, data))(params)

    fast = ta.compile(step)

    def run(params: Leaves, data: Leaves) -> Leaves:
        found: Leaves = fast(list(params), list(data))
        return found

    return run


MODES = {"eager": eager, "checkpointed": checkpointed, "compiled": compiled}


# ---- the test ------------------------------------------------------------------------


@dataclass
class Seen:
    """What one run made: events, and results on the host."""

    allocations: Counter[str]
    copies: Counter[str]
    results: list[Array]


def placed(arrays: tuple[Array, ...], device: Any, make: Any = ta.asarray) -> Leaves:
    values = [ta.asarray(a, device=device) for a in arrays]
    return [make(v) for v in values]


def on_cpu(model: Model, run: Callable[..., Any]) -> Seen:
    params, data = placed(model.params, "cpu", ta.variable), placed(model.data, "cpu")
    with ta.ledger() as led:
        results = run(params, data)
    return Seen(led.allocations, led.copies, [np.array(r) for r in results])


# Outputs, and each place of the arena that a kernel writes: 6, 6 and 2 are outputs.
WEBGPU_COMPILED = {"mlp": 15, "digits": 25, "chain": 39}


@pytest.mark.clause("g7-lane-async", "g7-lane-no-fallback")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_a_program_makes_the_same_events_on_the_lane_as_on_the_cpu(
    eager_lane: Lane, records: Counts, name: str, mode: str
) -> None:
    lane, model = eager_lane, MODELS[name]
    device = lane.device
    wanted = on_cpu(model, MODES[mode](model))
    run = MODES[mode](model)
    params = placed(model.params, device, ta.variable)
    data = placed(model.data, device)
    run(params, data)  # kernels and plans are made, as in any loop
    device.drain()
    before, launched, opened = staging(lane), lane.launched, records()
    with no_cpu_kernels(), ta.ledger() as led:
        results = run(params, data)
        device.drain()
    assert staging(lane) == before  # nothing came in or went out
    assert lane.launched > launched
    now = records()
    assert now["opened"] - opened["opened"] == now["released"] - opened["released"] > 0
    assert "pending" not in now
    assert led.copies == wanted.copies
    if lane.name == "webgpu" and mode == "compiled":
        assert led.allocations == {"OperationOutput": WEBGPU_COMPILED[name]}
    else:
        assert led.allocations == wanted.allocations
    for result, expected in zip(results, wanted.results, strict=True):
        found = np.array(result)
        scale = max(1.0, float(np.max(np.abs(expected))))
        assert np.max(np.abs(found - expected)) <= model.tolerance * scale


def staging(lane: Lane) -> tuple[int, ...]:
    """Uploads and mappings so far, by the provider's own count."""
    counts = lane.device.counts
    return counts["upload"], counts["transfer"], counts["map"]


@pytest.mark.clause("g7-lane-no-fallback")
def test_cpu_kernels_really_raise_while_a_lane_is_tested() -> None:
    x = ta.asarray([1.0])
    with no_cpu_kernels(), pytest.raises(AssertionError, match="the CPU computed"):
        ta.asinh(ta.asarray([[2.0, 3.0, 4.0]]))
    assert x.tolist() == [1.0]


EMPTY: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "sort": ((0,), lambda x: ta.sum(ta.sort(x))),
    "logsumexp": ((0,), ta.logsumexp),
    "std": ((0,), ta.std),
    "max": ((2, 0, 3), lambda x: ta.sum(ta.max(x, axis=0))),
    "min": ((2, 0, 3), lambda x: ta.sum(ta.min(x, axis=0))),
    "product": ((0, 3), lambda x: ta.sum(ta.tanh(x @ x.T))),
    "views": ((0, 3), lambda x: ta.sum(ta.square(x.T[::-1]) * 2.0)),
    "broadcast": ((0, 3), lambda x: ta.mean(x + x[:, :1])),
    "joined": ((0,), lambda x: ta.sum(ta.concat([x, x * 2.0]))),
}


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("case", EMPTY.values(), ids=list(EMPTY))
def test_gradients_of_nothing_allocate_the_same(
    eager_lane: Lane, case: tuple[tuple[int, ...], Callable[[Any], Any]], mode: str
) -> None:
    shape, loss = case
    fn = ta.grad(loss) if mode == "eager" else ta.compile(ta.grad(loss))
    seen = []
    for device in ("cpu", eager_lane.device):
        x = ta.asarray(np.zeros(shape, np.float32), device=device)
        fn(x)
        with ta.ledger() as led:
            assert fn(x).shape == shape
        seen.append((led.allocations, led.copies))
    if mode == "eager" or eager_lane.name != "webgpu":
        assert seen[0] == seen[1]
    assert seen[0][1] == seen[1][1] == {}
