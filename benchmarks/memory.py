"""Peak memory of a long chain: 64 times `y = tanh(y) * w + y` on 10^6 doubles.

    python benchmarks/memory.py [--json PATH] [--repetitions N] [--size N]

Two figures for forward + backward. First our own peak as `tracemalloc` sees it (NumPy
registers its buffers there), against what the rules need: each tanh keeps its output
and each product keeps `w`, so the minimum is one buffer for each repetition plus `w`
and `x`; the passes may use three buffers more. `tracemalloc` gives one peak for
Python's objects and NumPy's buffers together, so the peak is measured at two sizes:
buffers grow with the size, objects and the blocks inside a kernel do not. Then resident
sizes beside PyTorch, each in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import resource
import subprocess
import sys
import tracemalloc
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tenferro_ad.backends import CPU as cpu

REPETITIONS = 64
SIZE = 1_000_000
REGION = 8
SPARE_BUFFERS = 3
MOST_WITH_CHECKPOINT = 0.5
RESOLUTION = 0.005  # of a buffer: Python's objects differ a little between runs
MIB = 1 << 20


# ---- the chain ----------------------------------------------------------------------


def ours(repetitions: int, size: int, region: int | None) -> None:
    """Forward and backward with our tape, a checkpoint for each `region` of them."""
    import numpy as np

    import tenferro_ad as ta

    rng = np.random.default_rng(0)
    x = ta.variable(ta.asarray(rng.random(size), copy=True).into_value())
    w = ta.variable(ta.asarray(rng.random(size), copy=True).into_value())

    def block(y: Any, count: int) -> Any:
        for _ in range(count):
            y = ta.tanh(y) * w + y
        return y

    with ta.Tape() as tape:
        if region is None:
            y = block(x, repetitions)
        else:
            y = x
            for _ in range(repetitions // region):
                y = ta.checkpoint(lambda v: block(v, region))(y)
        loss = ta.sum(y)
        del y
        tape.backward(loss)


def torch(repetitions: int, size: int, region: int | None) -> None:
    """The same with PyTorch."""
    import torch
    from torch.utils.checkpoint import checkpoint

    torch.set_num_threads(1)
    x = torch.rand(size, dtype=torch.float64, requires_grad=True)
    w = torch.rand(size, dtype=torch.float64, requires_grad=True)

    def block(y: Any, count: int) -> Any:
        for _ in range(count):
            y = torch.tanh(y) * w + y
        return y

    if region is None:
        y = block(x, repetitions)
    else:
        y = x
        for _ in range(repetitions // region):
            y = checkpoint(block, y, region, use_reentrant=False)
    torch.autograd.grad(y.sum(), (x, w))


ENGINES = {"ours": ours, "torch": torch}


# ---- figures ------------------------------------------------------------------------


@dataclass(frozen=True)
class Traced:
    """A traced peak in bytes, and how many buffers of values are in it."""

    peak: int
    buffers: float


def traced_peak(repetitions: int, size: int, region: int | None) -> Traced:
    """Our peak, measured at `size` and at a tenth of it."""
    fewer = size // 10
    for numbers in (fewer, size):  # imports and plans
        ours(2 * REGION, numbers, region)
    small, large = (_traced(repetitions, n, region) for n in (fewer, size))
    return Traced(large, (large - small) / (8 * (size - fewer)))


def _traced(repetitions: int, size: int, region: int | None) -> int:
    cpu.trim()  # what the pool holds would not be seen
    gc.collect()
    tracemalloc.start()
    try:
        ours(repetitions, size, region)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def minimum(repetitions: int) -> int:
    """Buffers that the rules of the chain must keep: tanh's outputs, `w` and `x`."""
    return repetitions + 2


def resident(engine: str, repetitions: int, size: int, region: int | None) -> int:
    """Growth of the resident size of a fresh process, after its imports."""
    command = [sys.executable, __file__, "--child", engine, str(repetitions), str(size)]
    if region is not None:
        command.append(str(region))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout)


def child(engine: str, repetitions: int, size: int, region: int | None) -> None:
    run = ENGINES[engine]
    run(2, 16, region and 1)
    before = high_water()
    run(repetitions, size, region)
    print(high_water() - before)


def high_water() -> int:
    """Largest resident size of this process in bytes. `ru_maxrss` of a child begins at
    its parent's, so Linux is asked for its own figure."""
    status = Path("/proc/self/status")
    if status.exists():
        found = re.search(r"VmHWM:\s*(\d+) kB", status.read_text())
        if found:
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--size", type=int, default=SIZE)
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        engine, *numbers = args.child
        repetitions, size, *region = map(int, numbers)
        child(engine, repetitions, size, region[0] if region else None)
        return 0
    n, size = args.repetitions, args.size
    plain, regions = (traced_peak(n, size, region) for region in (None, REGION))
    bound = minimum(n) + SPARE_BUFFERS
    ratio = regions.buffers / plain.buffers
    holds = plain.buffers <= bound + RESOLUTION, ratio <= MOST_WITH_CHECKPOINT
    figures: dict[str, Any] = {
        "minimum buffers": minimum(n),
        "most buffers": bound,
        "peak": asdict(plain),
        "peak with checkpoints": asdict(regions),
        "checkpoint ratio": ratio,
    }
    print(f"{n} repetitions on {size} doubles, forward + backward (tracemalloc)")
    print(f"  the rules need {minimum(n)} buffers of {size * 8 / MIB:.2f} MiB")
    for name, traced in (("peak", plain), (f"checkpoint every {REGION}", regions)):
        print(f"  {name:<30}{traced.buffers:8.2f} buffers", end="")
        print(f" {traced.peak / MIB:8.1f} MiB with everything")
    print(f"  peak at most {bound} buffers: {_word(holds[0])}")
    print(f"  checkpoint ratio {ratio:.2f}, at most {MOST_WITH_CHECKPOINT}:", end=" ")
    print(_word(holds[1]))
    print("growth of resident size, a process each")
    for engine in ENGINES:
        for region in (None, REGION):
            name = engine + ("" if region is None else f", checkpoint every {region}")
            try:
                grown = resident(engine, n, size, region)
            except subprocess.CalledProcessError as error:
                print(f"  {name:<30} not measured: {error.stderr.splitlines()[-1]}")
                continue
            figures[f"resident {name}"] = grown
            print(f"  {name:<30}{grown / MIB:8.1f} MiB")
    if args.json:
        args.json.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    return 0 if all(holds) else 1


def _word(holds: bool) -> str:
    return "pass" if holds else "FAIL"


if __name__ == "__main__":
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")
    sys.exit(main())
