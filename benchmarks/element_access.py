"""Element access through the storage kernel, beside NumPy on the same bytes.

One run measures, on one allocation and in alternation: a direct NumPy slice, the
prepared contiguous slice and the prepared strided array, each after preparation, and
apart from them what the guard costs. `--write` stores the report that
`scripts/check-element-access-baseline.py` verifies; it names the commit, so the tracked
tree must be clean.

    python benchmarks/element_access.py [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np

import tenferro_ad as ta
from tenferro_ad.storage import (
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
    Tensor,
)

ROOT = Path(__file__).parents[1]
REPORT = "docs/testing/storage-element-access-baseline.json"
SCHEMA = "tenferro.element-access-baseline.v1"
SIZE = 1_000_000
SMALL = 16
ROUNDS = 400
LOOPS = 200


Times = dict[str, float]


def owner(size: int) -> Tensor:
    return ta.asarray(np.arange(size, dtype=np.float64)).into_value()


def alternate(
    cases: dict[str, Callable[[], Any]], rounds: int, loops: int = 1
) -> Times:
    """Nanoseconds of one call: the best of `rounds`, every case in every round."""
    best = dict.fromkeys(cases, float("inf"))
    names = list(cases)
    for turn in range(rounds):
        for name in names if turn % 2 else reversed(names):
            call = cases[name]
            call()  # whoever came before leaves other bytes in the cache
            start = perf_counter_ns()
            for _ in range(loops):
                call()
            best[name] = min(best[name], (perf_counter_ns() - start) / loops)
    return best


Array = np.ndarray[Any, np.dtype[Any]]


def pair(base: Array, every: Array, whole: Array, some: Array, way: str) -> Times:
    """One bulk operation on 10^6 elements, direct and prepared, over the same bytes."""
    assert np.shares_memory(base, whole)
    assert (some.strides, some.shape) == (every.strides, every.shape)
    full, half = np.zeros(base.size), np.zeros(every.size)
    times: Times = {}
    for form, direct, prepared, other in (
        ("contiguous", base, whole, full),
        ("strided", every, some, half),
    ):
        cases = {}
        for name, array in (("direct", direct), ("prepared", prepared)):
            given = (array, 2.0, other) if way == "read" else (other, 2.0, array)
            cases[f"{name}_{form}"] = partial(np.multiply, *given)
        times |= alternate(cases, ROUNDS)
    return times


def bulk() -> dict[str, Times]:
    """Reading and writing in bulk; the guards are open before the clock starts."""
    tensor = owner(SIZE)
    base = tensor._owner_storage._resource.allocation  # what NumPy itself would hold
    dense, gapped = tensor.prepare_host(), tensor[::2].prepare_host()
    assert isinstance(dense, PreparedContiguousRead)
    assert isinstance(gapped, PreparedStridedRead)
    arrays = dense.as_slice(), gapped.as_strided_array()
    reading = pair(base[:], base[::2], *arrays, "read")
    del arrays
    dense.close()
    gapped.close()
    # Exclusive access is one at a time, so two owners stand beside each other.
    second = owner(SIZE)
    filled = tensor.prepare_host_mut()
    with second.as_view_mut() as m:
        apart = m[::2].prepare_host_mut()
    assert isinstance(filled, PreparedContiguousWrite)
    assert isinstance(apart, PreparedStridedWrite)
    there = second._owner_storage._resource.allocation[::2]
    arrays = filled.as_slice_mut(), apart.as_strided_array_mut()
    writing = pair(base[:], there, *arrays, "write")
    del arrays
    filled.close()
    apart.close()
    return {"reading_ns": reading, "writing_ns": writing}


def elements() -> Times:
    """Nanoseconds for each element of a Python loop, after preparation."""
    count = 20_000
    tensor = owner(count)
    base = tensor._owner_storage._resource.allocation
    dense = tensor.prepare_host()
    assert isinstance(dense, PreparedContiguousRead)
    gapped = tensor[::2].prepare_host()
    assert isinstance(gapped, PreparedStridedRead)

    def run(items: Any) -> None:
        for _ in items:
            pass

    times = alternate(
        {
            "direct_slice": lambda: run(base[:]),
            "prepared_contiguous": lambda: run(dense.iter_contiguous()),
            "numpy_flat_strided": lambda: run(base[::2].flat),
            "prepared_strided": lambda: run(gapped.iter_strided()),
        },
        20,
    )
    dense.close()
    gapped.close()
    halves = {"numpy_flat_strided", "prepared_strided"}
    return {
        name: time / (count // 2 if name in halves else count)
        for name, time in times.items()
    }


def guard() -> dict[str, Any]:
    """What a guard costs by itself, in multiples of a small NumPy operation."""
    tensor = owner(SMALL)
    a, b, out = np.ones(SMALL), np.ones(SMALL), np.empty(SMALL)

    def opened() -> None:
        tensor.as_view().prepare_host().close()

    def exported() -> None:
        prepared = tensor.as_view().prepare_host()
        prepared.as_slice()  # type: ignore[union-attr]
        prepared.close()

    times = alternate(
        {
            "np.multiply": lambda: np.multiply(a, b, out),
            "guard": opened,
            "guard_and_array": exported,
            "numpy": tensor.numpy,
        },
        ROUNDS,
        LOOPS,
    )
    unit = times["np.multiply"]
    return {
        "definition": {
            "guard": "view, prepare_host and close: open and end host access",
            "guard_and_array": "the same with one exported array, made and dropped",
            "numpy": "Tensor.numpy() and the drop of its array",
        },
        "unit": f"np.multiply on {SMALL} float64 elements with an output",
        "unit_ns": unit,
        "multiples": {
            name: times[name] / unit for name in ("guard", "guard_and_array", "numpy")
        },
    }


def environment() -> dict[str, Any]:
    """Everything that a comparison of two reports depends on."""
    return {
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "numpy": np.__version__,
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": 1,  # elementwise NumPy uses one
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.strip()


def report() -> dict[str, Any]:
    measured = bulk()
    ratios = {
        f"{form}_{way}": times[f"prepared_{form}"] / times[f"direct_{form}"]
        for way, times in (
            ("read", measured["reading_ns"]),
            ("write", measured["writing_ns"]),
        )
        for form in ("contiguous", "strided")
    }
    return {
        "schema": SCHEMA,
        "path": REPORT,
        "commit": git("rev-parse", "HEAD"),
        "environment": environment(),
        "elements": SIZE,
        "dtype": "float64",
        "bulk": measured,
        "ratios": ratios,
        "element_ns": elements(),
        "guard": guard(),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the report")
    chosen = parser.parse_args()
    if chosen.write and git("status", "--porcelain", "--untracked-files=no"):
        print("The tracked tree differs from HEAD: commit first.", file=sys.stderr)
        return 2
    text = json.dumps(report(), indent=2) + "\n"
    if chosen.write:
        (ROOT / REPORT).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / REPORT).write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
