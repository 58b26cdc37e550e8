"""What operations cost on a device: calls, products, chains, a training step.

    python benchmarks/device.py --device NAME [--json] [--small]

Medians over repetitions, after everything was compiled. `eager_us` are microseconds of
the caller for one operation, with the device kept busy; the others are milliseconds
from the call to the proven end.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import tenferro_ad as ta


def medians(run: Callable[[], object], drain: Callable[[], None], times: int) -> float:
    """Seconds from the call to the end of the work."""
    seen = []
    for _ in range(times + 1):
        started = time.perf_counter()
        run()
        drain()
        seen.append(time.perf_counter() - started)
    return statistics.median(seen[1:])


def calls(device: Any, count: int) -> float:
    """Seconds of the caller for one eager operation."""
    x = ta.asarray(np.ones(16, np.float32), device=device)
    seen = []
    for _ in range(6):
        y = x
        started = time.perf_counter()
        for _ in range(count):
            y = y * 0.5
        seen.append((time.perf_counter() - started) / count)
        device.drain()
    return statistics.median(seen[1:])


def product(device: Any, n: int, times: int) -> float:
    a = ta.asarray(np.ones((n, n), np.float32), device=device)
    return medians(lambda: a @ a, device.drain, times)


def chain(x: Any) -> Any:
    for _ in range(4):
        x = ta.tanh(x * 1.5 + 0.25) - x * 0.125
    return x


def chains(device: Any, n: int, times: int) -> tuple[float, float]:
    """Seconds of a chain, eager and compiled."""
    x = ta.asarray(np.linspace(-1, 1, n, dtype=np.float32), device=device)
    fast = ta.compile(chain)
    return (
        medians(lambda: chain(x), device.drain, times),
        medians(lambda: fast(x), device.drain, times),
    )


def training(device: Any, width: int, times: int) -> tuple[float, float]:
    """Seconds of one step of a network of three layers, eager and compiled."""
    rng = np.random.default_rng(0)
    ws = [
        ta.asarray(rng.normal(0, 0.1, (width, width)).astype(np.float32), device=device)
        for _ in range(3)
    ]
    x = ta.asarray(rng.normal(size=(64, width)).astype(np.float32), device=device)

    def loss(ws: Any, x: Any) -> Any:
        for w in ws:
            x = ta.tanh(x @ w)
        return ta.mean(ta.square(x))

    step = ta.grad(loss)
    fast = ta.compile(lambda ws, x: ta.grad(loss)(ws, x))
    return (
        medians(lambda: step(ws, x), device.drain, times),
        medians(lambda: fast(ws, x), device.drain, times),
    )


def figures(name: str, *, small: bool = False) -> dict[str, float]:
    """Everything, by name and unit."""
    device: Any = ta.zeros(1, dtype=np.float32, device=name).device
    times, n = (3, 128) if small else (9, 4096)
    size, width = (1 << 12, 32) if small else (1 << 24, 1024)
    found = {"eager_us": 1e6 * calls(device, 50 if small else 300)}
    seconds = product(device, n, times)
    found |= {"product_ms": 1e3 * seconds, "product_gflops": 2e-9 * n**3 / seconds}
    for what, pair in (
        ("chain", chains(device, size, times)),
        ("training", training(device, width, times)),
    ):
        for how, value in zip(("eager", "compiled"), pair, strict=True):
            found[f"{what}_{how}_ms"] = 1e3 * value
    return {key: round(value, 3) for key, value in found.items()}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", required=True, help="see `ta.devices()`")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--small", action="store_true", help="sizes for a processor")
    chosen = parser.parse_args(arguments)
    found = figures(chosen.device, small=chosen.small)
    if chosen.json:
        print(json.dumps(found))
    else:
        for key, value in found.items():
            print(f"{key:24} {value:12.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
