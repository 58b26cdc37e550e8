"""Runs printed kernels on tiny operands under Oclgrind.

    python -m tests.backends.sanitized [--device NAME] [--wrong bounds | --wrong race]

Oclgrind interprets kernels and writes a report to the standard error for each access
out of bounds and each race. What runs: every row of the table with its gradients, so
that sums onto values and what transposes indexing run too; indices far out of range;
and compiled programs with their chains. `--wrong` runs a kernel that is wrong instead,
to show that reports are made. Prints what ran, as JSON. On another device the same
work runs under the tool that belongs to it (compute-sanitizer on CUDA).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any

import numpy as np

import tenferro_ad as ta
from tenferro_ad.errors import UnsupportedError
from tenferro_ad.ops import Region
from tests.backends.out_of_range import CASES
from tests.ops.samples import Row, Sample, as_tuple, load

LARGEST = 64  # elements of an operand

WRONG = {
    "bounds": "__kernel void k(__global float *y) { y[get_global_id(0) + 1000] = 1; }",
    "race": "__kernel void k(__global float *y) { y[0] = get_global_id(0); }",
}


def simulator() -> str:
    """The name of the device that interprets kernels."""
    (name,) = [d.name for d in ta.devices("opencl") if "Oclgrind" in d.description]
    return name


def run_wrong(device: Any, fault: str) -> None:
    x = ta.zeros(4, dtype=ta.float32, device=device)
    x.value()
    kernel = device.program(WRONG[fault], "k")
    kernel(device.endpoint._queue, (4,), (4,), x._record.array.allocation.raw)
    device.endpoint._queue.finish()


def tiny(row: Row, device: Any) -> list[Sample]:
    """Two small samples of a row, of types that the device has."""
    found = []
    for sample in row.samples:
        arrays = (*sample.operands, *row.expected(sample))
        known = all(device.supports_dtype(x.dtype) for x in arrays)
        if not sample.heavy and known and all(x.size <= LARGEST for x in arrays):
            params = tuple(
                device if name == "device" else value
                for name, value in zip(row.op.params, sample.params, strict=True)
            )
            found.append(Sample(sample.label, sample.operands, params))
    return found[:2]


def run_row(row: Row, device: Any, seen: Counter[str]) -> None:
    for sample in tiny(row, device):
        operands = [ta.asarray(x, device=device) for x in sample.operands]
        tracked = set(row.tracked(sample))
        leaves = {i: ta.variable(x) for i, x in enumerate(operands) if i in tracked}
        mixed = [leaves.get(i, x) for i, x in enumerate(operands)]
        try:
            with ta.Tape() as tape:
                outs = as_tuple(row.apply(sample, mixed))
        except UnsupportedError:
            continue
        seen[row.op.name] += 1
        for out in outs:
            np.asarray(ta.stop_gradient(out).numpy())
        if outs[-1].is_tracked:
            run_gradient(tape, outs[-1], leaves, device)


def run_gradient(tape: Any, y: Any, leaves: Any, device: Any) -> None:
    seed = ta.asarray(np.ones(y.shape, y.dtype), device=device)
    try:
        grads = tape.backward(y, cotangent=seed)
    except UnsupportedError:
        return  # the rule has a row that is a call into a library
    for leaf in leaves.values():
        if grads[leaf] is not None:
            np.asarray(grads[leaf].numpy())


def run_compiled(device: Any) -> None:
    """A chain with broadcasting and views, and its gradient."""
    x = ta.asarray(
        np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4), device=device
    )
    b = ta.asarray(np.linspace(0, 1, 3, dtype=np.float32), device=device)

    def loss(x: Any, b: Any) -> Any:
        h = ta.tanh(x.T[::-1] * 2.0 + b)
        return ta.sum(ta.exp(-h * h) * h[:, :1])

    def fn(x: Any, b: Any) -> Any:
        h = ta.cumulative_sum(x, axis=0) * 2.0
        return h, ta.sin(h) + x, *ta.grad(loss, argnums=(0, 1))(x, b)

    for g in ta.compile(fn)(x, b):
        np.asarray(g.numpy())


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Run printed kernels on tiny operands."
    )
    parser.add_argument("--device", help="Oclgrind's, if none is named")
    parser.add_argument("--wrong", choices=WRONG)
    chosen = parser.parse_args()
    device = ta.zeros(1, device=chosen.device or simulator()).device
    if chosen.wrong:
        run_wrong(device, chosen.wrong)
        return 0
    seen: Counter[str] = Counter()
    for row in load().values():
        if not isinstance(row.op.kernel, Region):
            run_row(row, device, seen)
    for case in CASES.values():
        case.run(device)
    run_compiled(device)
    print(json.dumps({"rows": sorted(seen), "applications": sum(seen.values())}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
