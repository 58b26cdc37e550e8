"""Runs the printed kernel of every row on tiny operands under Oclgrind.

    python -m tests.backends.sanitized [--wrong]

Oclgrind interprets kernels and writes a report to the standard error for each access
out of bounds and each race. `--wrong` runs a
kernel that writes out of bounds instead, to show that reports are made. Prints the
number of applications.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

import tenferro_ad as ta
from tenferro_ad.errors import UnsupportedError
from tenferro_ad.ops import Region
from tests.ops.samples import Row, Sample, as_tuple, load

LARGEST = 64  # elements of an operand

WRONG = """
__kernel void k(__global float *y) { y[get_global_id(0) + 1000] = 1.0f; }
"""


def simulator() -> Any:
    """The device that interprets kernels."""
    (name,) = [d.name for d in ta.devices("opencl") if "Oclgrind" in d.description]
    return ta.zeros(1, device=name).device


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


def main() -> int:
    device = simulator()
    if "--wrong" in sys.argv:
        x = ta.zeros(4, dtype=ta.float32, device=device)
        x.value()
        kernel = device.program(WRONG, "k")
        kernel(device.endpoint._queue, (4,), (4,), x._record.array.allocation.raw)
        device.endpoint._queue.finish()
        return 0
    count = 0
    for row in load().values():
        if isinstance(row.op.kernel, Region):
            continue
        for sample in tiny(row, device):
            operands = [ta.asarray(x, device=device) for x in sample.operands]
            try:
                outs = as_tuple(row.apply(sample, operands))
            except UnsupportedError:
                continue
            for out in outs:
                np.asarray(out.numpy())
            count += 1
    print(count)
    return 0


if __name__ == "__main__":
    sys.exit(main())
