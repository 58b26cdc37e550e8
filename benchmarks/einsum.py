"""Contractions of the public einsum benchmark beside opt_einsum on NumPy and PyTorch.

    python benchmarks/einsum.py [--json PATH] [--repetitions N] [NAME ...]

Reads the instances in `$TENFERRO_SHARED/data/einsum` (else `../shared` beside the
repository) and follows the path of fewest operations that comes with each. Best times
in milliseconds, one thread: the value by all three, then value and gradients in all
operands by PyTorch and by us, and our part of PyTorch's time. NumPy is left out where
opt_einsum would take long on it (arrays of many short axes).
"""

from __future__ import annotations

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import torch

import tenferro_ad as ta

ROOT = Path(__file__).parents[1]
FOLDER = Path(os.environ.get("TENFERRO_SHARED", ROOT.parent / "shared"))
LONG_ON_NUMPY = {"tensornetwork_permutation_light_415"}
AT_LEAST = 0.2  # seconds for each figure


def best(fn: Callable[[], Any], repetitions: int) -> float:
    """The shortest time in milliseconds."""
    fn()
    times: list[float] = []
    while len(times) < repetitions or sum(times) < AT_LEAST:
        start = time.perf_counter()
        fn()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def operands(shapes: list[list[int]]) -> list[Any]:
    rng = np.random.default_rng(1)
    drawn = [rng.uniform(-0.2, 1.0, shape) for shape in shapes]
    return [x / max(1.0, float(np.sqrt(np.sum(x * x)) / 1.2)) for x in drawn]


def figures(path: Path, repetitions: int) -> dict[str, float]:
    instance = json.loads(path.read_text())
    equation = instance["format_string"]
    steps = [tuple(step) for step in instance["paths"]["opt_flops"]["path"]]
    xs = operands(instance["shapes"])
    constants = [torch.tensor(x) for x in xs]
    leaves = [torch.tensor(x, requires_grad=True) for x in xs]
    variables = [ta.variable(x) for x in xs]
    everything = tuple(range(len(xs)))

    def theirs(values: list[Any]) -> Any:
        return opt_einsum.contract(equation, *values, optimize=steps)

    def both() -> Any:
        return torch.autograd.grad(theirs(leaves).sum(), leaves)

    def loss(*values: Any) -> Any:
        return ta.sum(ta.einsum(equation, *values, optimize=steps))

    ours = ta.value_and_grad(loss, argnums=everything)
    found = {}
    if path.stem not in LONG_ON_NUMPY:
        found["numpy"] = best(lambda: theirs(xs), repetitions)
    found["torch"] = best(lambda: theirs(constants), repetitions)
    found["ours"] = best(
        lambda: ta.einsum(equation, *variables, optimize=steps), repetitions
    )
    found["torch_gradients"] = best(both, repetitions)
    found["our_gradients"] = best(lambda: ours(*variables), repetitions)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Contractions beside their peers.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="instances; all")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--repetitions", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted((FOLDER / "data" / "einsum").glob("*.json"))
    if options.names:
        paths = [p for p in paths if p.stem in options.names]
    if not paths:
        parser.error(f"no such instance in {FOLDER}/data/einsum")
    every: dict[str, dict[str, float]] = {}
    print(f"{'':36}{'numpy':>9}{'torch':>9}{'ours':>9}   +grad{'torch':>9}{'ours':>9}")
    for path in paths:
        row = every[path.stem] = figures(path, options.repetitions)
        numpy = f"{row['numpy']:9.2f}" if "numpy" in row else f"{'-':>9}"
        ratio = row["our_gradients"] / row["torch_gradients"]
        print(
            f"{path.stem:36}{numpy}{row['torch']:9.2f}{row['ours']:9.2f}        "
            f"{row['torch_gradients']:9.2f}{row['our_gradients']:9.2f}{ratio:7.2f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(every, indent=2) + "\n")


if __name__ == "__main__":
    main()
