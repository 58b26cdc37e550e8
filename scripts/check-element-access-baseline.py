"""Verify the measured report of element access, or compare two of them.

    python scripts/check-element-access-baseline.py [REPORT] [--compare OTHER]

The report must be complete, name a commit of this history and its own tracked path, and
keep the bounds below. Two reports are compared only if their environments are the same
in everything that changes times. Every fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = "docs/testing/storage-element-access-baseline.json"
SCHEMA = "tenferro.element-access-baseline.v1"

BOUNDS = {
    ("ratios", "contiguous_read"): 1.05,
    ("ratios", "contiguous_write"): 1.05,
    ("ratios", "strided_read"): 1.1,
    ("ratios", "strided_write"): 1.1,
    ("guard", "multiples", "guard"): 10.0,
}
ENVIRONMENT = (
    "python",
    "implementation",
    "numpy",
    "system",
    "machine",
    "processor",
    "cores",
    "threads",
)
BULK = (
    "direct_contiguous",
    "prepared_contiguous",
    "direct_strided",
    "prepared_strided",
)
TIMES = (
    *(("bulk", way, case) for way in ("reading_ns", "writing_ns") for case in BULK),
    ("element_ns", "direct_slice"),
    ("element_ns", "prepared_contiguous"),
    ("element_ns", "prepared_strided"),
    ("guard", "unit_ns"),
    ("guard", "multiples", "guard_and_array"),
)
DRIFT = 1.25  # how much slower than the baseline a later report may be


def at(report: Any, path: tuple[str, ...]) -> Any:
    for key in path:
        report = report.get(key) if isinstance(report, dict) else None
    return report


def is_time(value: Any) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and math.isfinite(value) and value > 0


def faults(report: Any) -> Iterator[str]:
    """What is wrong with the content of a report, as `CODE: text`."""
    if at(report, ("schema",)) != SCHEMA:
        yield f"E_SCHEMA: `schema` is not {SCHEMA}"
    if at(report, ("path",)) != REPORT:
        yield f"E_PATH: `path` is not {REPORT}"
    if at(report, ("elements",)) != 1_000_000:
        yield "E_ELEMENTS: bulk access is measured at 10^6 elements"
    for key in ENVIRONMENT:
        if at(report, ("environment", key)) in (None, "", "unknown"):
            yield f"E_ENVIRONMENT: `{key}` is missing"
    for path in TIMES:
        if not is_time(at(report, path)):
            yield f"E_MEASURE: `{'.'.join(path)}` is no positive number"
    for path, bound in BOUNDS.items():
        found = at(report, path)
        if not is_time(found):
            yield f"E_MEASURE: `{'.'.join(path)}` is no positive number"
        elif found > bound:
            yield f"E_BOUND: `{'.'.join(path)}` is {found:.3f}, above {bound}"
    yield from mismatches(report)


def mismatches(report: Any) -> Iterator[str]:
    """Ratios that do not follow from the times beside them."""
    for way, times in (("read", "reading_ns"), ("write", "writing_ns")):
        for form in ("contiguous", "strided"):
            ours = at(report, ("bulk", times, f"prepared_{form}"))
            theirs = at(report, ("bulk", times, f"direct_{form}"))
            stated = at(report, ("ratios", f"{form}_{way}"))
            known = is_time(ours) and is_time(theirs) and is_time(stated)
            if known and not math.isclose(ours / theirs, stated, rel_tol=1e-6):
                yield f"E_RATIO: `ratios.{form}_{way}` is not its times' quotient"


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def provenance(report: Any) -> Iterator[str]:
    """Whether the commit belongs to this history; a shallow copy cannot tell."""
    commit = at(report, ("commit",))
    if not isinstance(commit, str) or not commit:
        yield "E_COMMIT: no commit is named"
        return
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow.returncode or shallow.stdout.strip() != "false":
        return
    if git("merge-base", "--is-ancestor", commit, "HEAD").returncode:
        yield f"E_COMMIT: {commit} is no ancestor of HEAD"


def comparison(base: Any, other: Any) -> Iterator[str]:
    """Whether `other` may be compared with `base`, and how it fares."""
    differ = [
        key
        for key in ENVIRONMENT
        if at(base, ("environment", key)) != at(other, ("environment", key))
    ]
    if differ:
        yield f"E_INCOMPATIBLE: the environments differ in {', '.join(differ)}"
        return
    for path in BOUNDS:
        before, after = at(base, path), at(other, path)
        if is_time(before) and is_time(after) and after > before * DRIFT:
            yield f"E_SLOWER: `{'.'.join(path)}` went from {before:.3f} to {after:.3f}"


def read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        return {"unreadable": str(error)}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", type=Path, default=ROOT / REPORT)
    parser.add_argument("--compare", type=Path, help="a later report")
    chosen = parser.parse_args(arguments)
    report = read(chosen.report)
    found = [*faults(report), *provenance(report)]
    if chosen.compare is not None:
        later = read(chosen.compare)
        found += [*faults(later), *comparison(report, later)]
    for fault in found:
        print(fault)
    if not found:
        print("The element access report holds.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
