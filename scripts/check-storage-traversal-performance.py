"""Verify the report of traversal through the final API, and the baseline under it.

    python3 scripts/check-storage-traversal-performance.py [REPORT [BASELINE]]

The baseline is verified first, with its own verifier. The report must then name that
baseline by path and commit, quote its ratios as they are, come from the same
environment, be measured at a commit that follows the baseline's, and keep the bounds.
Every fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import importlib.util
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = "docs/testing/storage-traversal-performance.json"
BASELINE = "docs/testing/storage-element-access-baseline.json"
SCHEMA = "tenferro.storage-traversal-performance.v1"
BOUNDS = {"contiguous": 1.05, "strided": 1.1}
CASES = [
    f"{form}_{way}"
    for form in ("contiguous", "every_other_column", "reversed_rows", "inner_block")
    for way in ("read", "write")
] + ["transposed_read"]
COMPARED = {
    "contiguous_read": "contiguous_read",
    "contiguous_write": "contiguous_write",
    "strided_read": "every_other_column_read",
    "strided_write": "every_other_column_write",
}


def verifier() -> Any:
    """The verifier of the baseline, as a module."""
    file = ROOT / "scripts" / "check-element-access-baseline.py"
    spec = importlib.util.spec_from_file_location("element_access_baseline", file)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


FIRST = verifier()
at, is_time = FIRST.at, FIRST.is_time


def bound(case: str) -> float:
    return BOUNDS["contiguous" if case.startswith("contiguous") else "strided"]


def measures(report: Any) -> Iterator[str]:
    """Cases that are missing, do not follow from their times, or are too slow."""
    for case in CASES:
        found = at(report, ("cases", case))
        direct, ours, ratio = (
            at(found, (key,)) for key in ("direct_ns", "prepared_ns", "ratio")
        )
        if not (is_time(direct) and is_time(ours) and is_time(ratio)):
            yield f"E_MEASURE: `{case}` has no times"
        elif not math.isclose(ours / direct, ratio, rel_tol=1e-6):
            yield f"E_RATIO: `{case}` is not its times' quotient"
        elif ratio > bound(case):
            yield f"E_BOUND: `{case}` is {ratio:.3f}, above {bound(case)}"


def origin(report: Any, baseline: Any) -> Iterator[str]:
    """Whether the report rests on this baseline, in this environment."""
    for key in ("path", "commit"):
        if at(report, ("baseline", key)) != at(baseline, (key,)):
            yield f"E_BASELINE: the {key} is not that of the baseline"
    differ = [
        key
        for key in FIRST.ENVIRONMENT
        if at(report, ("environment", key)) != at(baseline, ("environment", key))
    ]
    if differ:
        yield f"E_INCOMPATIBLE: the environments differ in {', '.join(differ)}"
    if not follows(at(baseline, ("commit",)), at(report, ("commit",))):
        yield "E_ORDER: the report does not follow the baseline"


def follows(before: Any, after: Any) -> bool:
    """Whether one commit comes after another; a shallow copy cannot tell that not."""
    if not (isinstance(before, str) and isinstance(after, str)):
        return True  # another fault, and told as such
    shallow = FIRST.git("rev-parse", "--is-shallow-repository").stdout.strip()
    command = ("merge-base", "--is-ancestor", before, after)
    return bool(shallow != "false" or FIRST.git(*command).returncode == 0)


def comparison(report: Any, baseline: Any) -> Iterator[str]:
    """Whether the comparison is the one that the two reports make."""
    for then, now in COMPARED.items():
        found = at(report, ("compared", then))
        before, after = (at(found, (key,)) for key in ("baseline", "now"))
        if before != at(baseline, ("ratios", then)):
            yield f"E_COMPARED: `{then}` does not quote the baseline"
        elif at(found, ("case",)) != now or after != at(
            report, ("cases", now, "ratio")
        ):
            yield f"E_COMPARED: `{then}` does not quote the case `{now}`"
        elif after > before * FIRST.DRIFT:
            yield f"E_SLOWER: `{then}` went from {before:.3f} to {after:.3f}"


def faults(report: Any, baseline: Any) -> Iterator[str]:
    """What is wrong with a report on a baseline that holds, as `CODE: text`."""
    if at(report, ("schema",)) != SCHEMA:
        yield f"E_SCHEMA: `schema` is not {SCHEMA}"
    if at(report, ("path",)) != REPORT:
        yield f"E_PATH: `path` is not {REPORT}"
    if at(report, ("elements",)) != at(baseline, ("elements",)):
        yield "E_ELEMENTS: the reports measure different sizes"
    yield from FIRST.provenance(report)
    yield from origin(report, baseline)
    yield from measures(report)
    yield from comparison(report, baseline)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", type=Path, default=ROOT / REPORT)
    parser.add_argument("baseline", nargs="?", type=Path, default=ROOT / BASELINE)
    chosen = parser.parse_args(arguments)
    baseline = FIRST.read(chosen.baseline)
    found = [*FIRST.faults(baseline), *FIRST.provenance(baseline)]
    if found:
        found = [f"E_BASELINE: {fault}" for fault in found]
    else:
        found = list(faults(FIRST.read(chosen.report), baseline))
    for fault in found:
        print(fault)
    if not found:
        print("The traversal report holds, and so does its baseline.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
