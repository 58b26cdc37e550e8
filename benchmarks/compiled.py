"""Compiled steps beside the peers, in one run.

    python benchmarks/compiled.py [--repeats N] [--json]

Chains of 200 small operations in float64, forward and backward: 16 elements (mul, add,
tanh, mul) and 4x4 matrices (matmul, tanh); microseconds for one operation. And a whole
training step (loss, gradients, gradient descent) of a network 784-256-256-10 on a batch
of 128 in float64; milliseconds for one step. Engines take turns within every
repetition, so that a busy machine disturbs all of them alike; a turn is a few steps in
a row, as in training. Figures are medians over the repetitions. One thread.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
)

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

import tenferro_ad as ta

LENGTH = 200
IN_A_ROW = 5
SIZES, BATCH, RATE = (784, 256, 256, 10), 128, 0.01

Run = Callable[[], object]
Array = np.ndarray[Any, Any]


def start(shape: tuple[int, ...]) -> tuple[Array, Array]:
    rng = np.random.default_rng(0)
    return rng.random(shape), 0.5 * rng.random(shape)


def network() -> tuple[list[Array], Array, Array]:
    """Weights and biases in turn, images, labels."""
    rng = np.random.default_rng(0)
    params = []
    for n, m in pairwise(SIZES):
        params += [rng.normal(size=(n, m)) / n**0.5, np.zeros(m)]
    return params, rng.random((BATCH, SIZES[0])), rng.integers(0, SIZES[-1], BATCH)


# ---- ours ----------------------------------------------------------------------------


def ours_vector() -> Run:
    def loss(x: Any, w: Any) -> Any:
        y = x
        for _ in range(LENGTH // 4):
            y = ta.tanh(y * w + w) * w
        return ta.sum(y)

    step, (x, w) = ta.compile(ta.grad(loss, (0, 1))), map(ta.asarray, start((16,)))
    return lambda: step(x, w)


def ours_matrix() -> Run:
    def loss(x: Any, w: Any) -> Any:
        y = x
        for _ in range(LENGTH // 2):
            y = ta.tanh(y @ w)
        return ta.sum(y)

    step, (x, w) = ta.compile(ta.grad(loss, (0, 1))), map(ta.asarray, start((4, 4)))
    return lambda: step(x, w)


def ours_network() -> Run:
    def loss(params: Any, x: Any, labels: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = params
        h = ta.tanh(ta.tanh(x @ w1 + b1) @ w2 + b2)
        return ta.cross_entropy(h @ w3 + b3, labels)

    opt = ta.optim.SGD(RATE)

    def step(params: Any, x: Any, labels: Any) -> Any:
        return opt.apply(params, ta.grad(loss)(params, x, labels), state)[0]

    compiled = ta.compile(step, donate_argnums=0)
    params, *data = network()
    held = [ta.asarray(p) for p in params]
    state = opt.init(held)
    x, labels = map(ta.asarray, data)

    def run() -> object:
        nonlocal held
        held = compiled(held, x, labels)
        return held

    return run


# ---- PyTorch -------------------------------------------------------------------------


def torch_chain(shape: tuple[int, ...], chain: Any, *, compiled: bool) -> Run:
    import torch

    torch.set_num_threads(1)
    x, w = (torch.tensor(a, requires_grad=True) for a in start(shape))
    forward = torch.compile(chain) if compiled else chain
    return lambda: torch.autograd.grad(forward(torch, x, w), (x, w))


def vector_chain(lib: Any, x: Any, w: Any) -> Any:
    for _ in range(LENGTH // 4):
        x = lib.tanh(x * w + w) * w
    return x.sum()


def matrix_chain(lib: Any, x: Any, w: Any) -> Any:
    for _ in range(LENGTH // 2):
        x = lib.tanh(x @ w)
    return x.sum()


def torch_network(*, compiled: bool) -> Run:
    import torch

    torch.set_num_threads(1)
    params, *data = network()
    held = [torch.tensor(p, requires_grad=True) for p in params]
    x, labels = map(torch.tensor, data)

    def loss(w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any) -> Any:
        h = torch.tanh(torch.tanh(x @ w1 + b1) @ w2 + b2)
        return torch.nn.functional.cross_entropy(h @ w3 + b3, labels)

    forward = torch.compile(loss) if compiled else loss
    descent = torch.optim.SGD(held, RATE)

    def run() -> object:
        descent.zero_grad()
        forward(*held).backward()
        descent.step()
        return held

    return run


# ---- JAX -----------------------------------------------------------------------------


def jax_chain(shape: tuple[int, ...], chain: Any) -> Run:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)
    step = jax.jit(jax.grad(lambda x, w: chain(jnp, x, w), (0, 1)))
    x, w = map(jnp.asarray, start(shape))
    return lambda: jax.block_until_ready(step(x, w))


def jax_network() -> Run:
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_enable_x64", True)

    def loss(params: Any, x: Any, labels: Any) -> Any:
        w1, b1, w2, b2, w3, b3 = params
        h = jnp.tanh(jnp.tanh(x @ w1 + b1) @ w2 + b2)
        scores = jax.nn.log_softmax(h @ w3 + b3)
        return -jnp.take_along_axis(scores, labels[:, None], 1).mean()

    def step(params: Any, x: Any, labels: Any) -> Any:
        grads = jax.grad(loss)(params, x, labels)
        return [p - RATE * g for p, g in zip(params, grads, strict=True)]

    compiled = jax.jit(step, donate_argnums=0)
    params, *data = network()
    held = [jnp.asarray(p) for p in params]
    x, labels = map(jnp.asarray, data)

    def run() -> object:
        nonlocal held
        held = jax.block_until_ready(compiled(held, x, labels))
        return held

    return run


# ---- measurement ---------------------------------------------------------------------

WORK: dict[str, dict[str, Callable[[], Run]]] = {
    "16 elements": {
        "tenferro_ad": ours_vector,
        "torch": lambda: torch_chain((16,), vector_chain, compiled=False),
        "torch.compile": lambda: torch_chain((16,), vector_chain, compiled=True),
        "jax.jit": lambda: jax_chain((16,), vector_chain),
    },
    "4x4": {
        "tenferro_ad": ours_matrix,
        "torch": lambda: torch_chain((4, 4), matrix_chain, compiled=False),
        "torch.compile": lambda: torch_chain((4, 4), matrix_chain, compiled=True),
        "jax.jit": lambda: jax_chain((4, 4), matrix_chain),
    },
    "network": {
        "tenferro_ad": ours_network,
        "torch": lambda: torch_network(compiled=False),
        "torch.compile": lambda: torch_network(compiled=True),
        "jax.jit": jax_network,
    },
}
# Ours over the peer's, at most.
TARGETS = {
    ("16 elements", "torch"): 0.25,
    ("4x4", "torch"): 0.25,
    ("network", "torch"): 0.85,
    ("network", "jax.jit"): 1.0,
}


def measure(engines: dict[str, Callable[[], Run]], repeats: int) -> dict[str, float]:
    """Median seconds of a run of each engine that starts, taking turns."""
    runs: dict[str, Run] = {}
    for name, make in engines.items():
        try:
            run = make()
            run()
            run()
        except Exception as error:  # a peer without its compiler
            if name == "tenferro_ad":
                raise
            print(f"{name} left out: {type(error).__name__}", file=sys.stderr)
            continue
        runs[name] = run
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            begun = time.perf_counter()
            for _ in range(IN_A_ROW):
                run()
            times[name].append((time.perf_counter() - begun) / IN_A_ROW)
    return {name: statistics.median(t) for name, t in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print seconds as JSON")
    args = parser.parse_args()
    results = {work: measure(engines, args.repeats) for work, engines in WORK.items()}
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    names = list(WORK["network"])
    print("us per operation for chains, ms per step for the network (medians)\n")
    print(f"{'':<14}" + "".join(f"{n:>15}" for n in names))
    for work, found in results.items():
        unit = 1e3 if work == "network" else 1e6 / LENGTH
        row = [f"{unit * found[n]:.2f}" if n in found else "-" for n in names]
        print(f"{work:<14}" + "".join(f"{cell:>15}" for cell in row))
    print("\nours / peer")
    for work, found in results.items():
        for peer in names[1:]:
            if peer not in found:
                continue
            ratio, bound = (
                found["tenferro_ad"] / found[peer],
                TARGETS.get((work, peer)),
            )
            verdict = ""
            if bound is not None:
                verdict = f"  target {bound:g}: " + (
                    "met" if ratio <= bound else "missed"
                )
            print(f"  {work:<14}{peer:<15}{ratio:>6.2f}{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
