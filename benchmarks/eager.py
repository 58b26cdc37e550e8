"""Small eager operations: forward and backward, beside the peers, in one run.

    make bench        (or: python benchmarks/eager.py [--repeats N] [--json])

Chains of 200 operations in float64: 16 elements (mul, add, tanh, mul) and 4x4 matrices
(matmul, tanh). Both the running value and one weight, used all along, are
differentiated. Engines take turns within every repetition, so that a busy machine
disturbs all of them alike; figures are medians over the repetitions, in microseconds
for one operation, forward and backward together. One thread. Ours runs with its ledger
and ownership semantics on.
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS", "OMP", "MKL"):
    os.environ[f"{_name}_NUM_THREADS"] = "1"

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np

import tenferro_ad as ta

LENGTH = 200
TARGETS = {"torch": 0.6, "numpy": 3.0}  # ours / peer, at most

Run = Callable[[], object]


def _start(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random(shape), 0.5 * rng.random(shape)


def ours_vector() -> Run:
    x, w = map(ta.variable, _start((16,)))

    def run() -> object:
        with ta.Tape() as tape:
            y = x
            for _ in range(LENGTH // 4):
                y = ta.tanh(y * w + w) * w
            loss = ta.sum(y)
        return tape.backward(loss)

    return run


def ours_matrix() -> Run:
    x, w = map(ta.variable, _start((4, 4)))

    def run() -> object:
        with ta.Tape() as tape:
            y = x
            for _ in range(LENGTH // 2):
                y = ta.tanh(y @ w)
            loss = ta.sum(y)
        return tape.backward(loss)

    return run


def torch_vector() -> Run:
    import torch

    torch.set_num_threads(1)
    x, w = (torch.tensor(a, requires_grad=True) for a in _start((16,)))

    def run() -> object:
        y = x
        for _ in range(LENGTH // 4):
            y = torch.tanh(y * w + w) * w
        return torch.autograd.grad(y.sum(), (x, w))

    return run


def torch_matrix() -> Run:
    import torch

    torch.set_num_threads(1)
    x, w = (torch.tensor(a, requires_grad=True) for a in _start((4, 4)))

    def run() -> object:
        y = x
        for _ in range(LENGTH // 2):
            y = torch.tanh(y @ w)
        return torch.autograd.grad(y.sum(), (x, w))

    return run


def autograd_vector() -> Run:
    import autograd.numpy as anp
    from autograd import grad

    x, w = _start((16,))

    def loss(xw: tuple[np.ndarray, np.ndarray]) -> object:
        y, v = xw
        for _ in range(LENGTH // 4):
            y = anp.tanh(y * v + v) * v
        return anp.sum(y)

    return lambda: grad(loss)((x, w))


def autograd_matrix() -> Run:
    import autograd.numpy as anp
    from autograd import grad

    x, w = _start((4, 4))

    def loss(xw: tuple[np.ndarray, np.ndarray]) -> object:
        y, v = xw
        for _ in range(LENGTH // 2):
            y = anp.tanh(y @ v)
        return anp.sum(y)

    return lambda: grad(loss)((x, w))


def numpy_vector() -> Run:
    x, w = _start((16,))

    def run() -> object:
        y, kept = x, []
        for _ in range(LENGTH // 4):
            t = np.tanh(y * w + w)
            kept.append((y, t))
            y = t * w
        np.add.reduce(y)
        g, gw = np.ones_like(y), np.zeros_like(w)
        for a, t in reversed(kept):
            gw += g * t
            g = g * w * (1 - t * t)
            gw += g
            gw += g * a
            g = g * w
        return g, gw

    return run


def numpy_matrix() -> Run:
    x, w = _start((4, 4))

    def run() -> object:
        y, kept = x, []
        for _ in range(LENGTH // 2):
            t = np.tanh(np.dot(y, w))
            kept.append((y, t))
            y = t
        np.add.reduce(y, None)
        g, gw, wt = np.ones_like(y), np.zeros_like(w), w.T
        for a, t in reversed(kept):
            g = g * (1 - t * t)
            gw += np.dot(a.T, g)
            g = np.dot(g, wt)
        return g, gw

    return run


CHAINS: dict[str, dict[str, Callable[[], Run]]] = {
    "16 elements": {
        "tenferro_ad": ours_vector,
        "torch": torch_vector,
        "autograd": autograd_vector,
        "numpy": numpy_vector,
    },
    "4x4": {
        "tenferro_ad": ours_matrix,
        "torch": torch_matrix,
        "autograd": autograd_matrix,
        "numpy": numpy_matrix,
    },
}


def measure(engines: dict[str, Run], repeats: int) -> dict[str, float]:
    """Median microseconds per operation of each engine, taking turns."""
    times: dict[str, list[float]] = {name: [] for name in engines}
    for run in engines.values():
        run()
        run()
    for _ in range(repeats):
        for name, run in engines.items():
            start = time.perf_counter()
            run()
            times[name].append(time.perf_counter() - start)
    return {n: 1e6 * statistics.median(t) / LENGTH for n, t in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    args = parser.parse_args()
    results = {
        chain: measure({n: make() for n, make in engines.items()}, args.repeats)
        for chain, engines in CHAINS.items()
    }
    if args.json:
        print(json.dumps(results, indent=2))
        return 0
    print("microseconds per operation, forward + backward (medians)\n")
    names = list(next(iter(results.values())))
    print(f"{'chain':<14}" + "".join(f"{n:>14}" for n in names))
    for chain, found in results.items():
        print(f"{chain:<14}" + "".join(f"{found[n]:>14.2f}" for n in names))
    print("\nours / peer")
    for chain, found in results.items():
        for peer in ("torch", "autograd", "numpy"):
            ratio = found["tenferro_ad"] / found[peer]
            bound = TARGETS.get(peer)
            verdict = ""
            if bound is not None:
                verdict = f"  target {bound:g}: " + (
                    "met" if ratio <= bound else "missed"
                )
            print(f"  {chain:<14}{peer:<10}{ratio:>6.2f}{verdict}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
