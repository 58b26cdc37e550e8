"""Traversal through the final API beside NumPy, compared with the first measurement.

One run verifies the element access report (the baseline) and its provenance, refuses to
go on if this environment is not the one that it was measured in, measures contiguous
and representative strided traversal, and sets both side by side. `--write` stores the
report that `scripts/check-storage-traversal-performance.py` verifies; it names the
commit, so the tracked tree must be clean.

    python benchmarks/storage_traversal.py [--write]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tenferro_ad as ta
from tenferro_ad.storage import (
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
    Tensor,
    TensorView,
    TensorViewMut,
)

ROOT = Path(__file__).parents[1]
REPORT = "docs/testing/storage-traversal-performance.json"
SCHEMA = "tenferro.storage-traversal-performance.v1"
SIDE = 1_000
ROUNDS = 200

Array = np.ndarray[Any, np.dtype[Any]]
Select = Callable[[Any], Any]
CASES: dict[str, Select] = {  # of a square matrix
    "contiguous": lambda m: m[...],
    "every_other_column": lambda m: m[:, ::2],
    "reversed_rows": lambda m: m[::-1],
    "inner_block": lambda m: m[1:-1, 1:-1],
    "transposed": lambda m: (
        m.T if isinstance(m, np.ndarray) else m.permute_dims((1, 0))
    ),
}
READ_ONLY = {"transposed"}  # an exclusive view gives parts to write, not other orders


def module(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem.replace("-", "_"), path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


first = module(ROOT / "benchmarks" / "element_access.py")
verifier = module(ROOT / "scripts" / "check-element-access-baseline.py")


def owner() -> Tensor:
    values = np.arange(SIDE * SIDE, dtype=np.float64).reshape(SIDE, SIDE)
    return ta.asarray(values).into_value()


def reading(view: TensorView) -> tuple[Any, Array]:
    """A prepared read, and its elements as an array with the axes of the view."""
    shape = view.shape
    access = view.prepare_host()
    if isinstance(access, PreparedContiguousRead):
        return access, access.as_slice().reshape(shape)
    assert isinstance(access, PreparedStridedRead)
    return access, access.as_strided_array()


def writing(view: TensorViewMut) -> tuple[Any, Array]:
    shape = view.shape
    access = view.prepare_host_mut()
    if isinstance(access, PreparedContiguousWrite):
        return access, access.as_slice_mut().reshape(shape)
    assert isinstance(access, PreparedStridedWrite)
    return access, access.as_strided_array_mut()


def measured() -> dict[str, dict[str, float]]:
    """Times of one bulk operation, direct and prepared, over the same bytes."""
    found: dict[str, dict[str, float]] = {}
    tensor = owner()
    base = tensor._owner_storage._resource.allocation  # what NumPy itself would hold
    for name, select in CASES.items():
        direct = select(base)
        other = np.zeros(direct.shape)
        with tensor.as_view() as view:
            access, array = reading(select(view))
        found[f"{name}_read"] = ratio(direct, array, other, "read")
        del array
        access.close()
        if name not in READ_ONLY:
            with tensor.as_view_mut() as writable:
                access, array = writing(select(writable))
            found[f"{name}_write"] = ratio(direct, array, other, "write")
            del array
            access.close()
    return found


def ratio(direct: Array, prepared: Array, other: Array, way: str) -> dict[str, float]:
    assert np.shares_memory(direct, prepared)
    assert (direct.shape, direct.strides) == (prepared.shape, prepared.strides)
    cases = {}
    for name, array in (("direct_ns", direct), ("prepared_ns", prepared)):
        given = (array, 2.0, other) if way == "read" else (other, 2.0, array)
        cases[name] = partial(np.multiply, *given)
    times: dict[str, float] = first.alternate(cases, ROUNDS)
    return times | {"ratio": times["prepared_ns"] / times["direct_ns"]}


def report(baseline: dict[str, Any]) -> dict[str, Any]:
    cases = measured()
    pairs = {
        "contiguous_read": "contiguous_read",
        "contiguous_write": "contiguous_write",
        "strided_read": "every_other_column_read",
        "strided_write": "every_other_column_write",
    }
    return {
        "schema": SCHEMA,
        "path": REPORT,
        "commit": first.git("rev-parse", "HEAD"),
        "environment": first.environment(),
        "baseline": {"path": baseline["path"], "commit": baseline["commit"]},
        "elements": SIDE * SIDE,
        "cases": cases,
        "compared": {
            then: {
                "baseline": baseline["ratios"][then],
                "case": now,
                "now": cases[now]["ratio"],
            }
            for then, now in pairs.items()
        },
    }


def refusal(baseline: dict[str, Any]) -> str | None:
    """Why the baseline may not be compared with, if it may not."""
    for fault in (*verifier.faults(baseline), *verifier.provenance(baseline)):
        return f"The baseline does not hold: {fault}"
    here = {"environment": first.environment()}
    differ = [
        key
        for key in verifier.ENVIRONMENT
        if verifier.at(baseline, ("environment", key)) != here["environment"][key]
    ]
    return f"Another environment: {', '.join(differ)} differ." if differ else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the report")
    chosen = parser.parse_args()
    if chosen.write and first.git("status", "--porcelain", "--untracked-files=no"):
        print("The tracked tree differs from HEAD: commit first.", file=sys.stderr)
        return 2
    baseline = json.loads((ROOT / verifier.REPORT).read_text(encoding="utf-8"))
    if why := refusal(baseline):
        print(why, file=sys.stderr)
        return 2
    text = json.dumps(report(baseline), indent=2) + "\n"
    if chosen.write:
        (ROOT / REPORT).write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
