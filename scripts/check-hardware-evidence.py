"""Verify the evidence of a machine with a card.

    python3 scripts/check-hardware-evidence.py [REPORT]

The report names the commit that ran, which belongs to this history, the card with its
driver, and what ran on it. Every required check is there, started something, and ended
well with nothing failed and nothing skipped: a required card is never proven by passing
over its tests. Every fault is printed with a stable code.

Its form is

    {"schema": "tenferro.hardware-evidence.v1", "path": "docs/testing/...json",
     "candidate_commit": "...",
     "device": {"name": "...", "driver": "...", "runtime": "..."},
     "environment": {"python": "...", "numpy": "...", "cupy": "..."},
     "checks": [{"name": "conformance", "exit_code": 0, "passed": 120, "failed": 0,
                 "skipped": 0, "seconds": 41.5}, ...]}
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = "docs/testing/hardware-evidence.json"
SCHEMA = "tenferro.hardware-evidence.v1"
REQUIRED = (
    "conformance",
    "operation-table",
    "equal-ledgers",
    "retirement",
    "pool-hazard",
    "benchmark",
)
TOLD = {
    "device": ("name", "driver", "runtime"),
    "environment": ("python", "numpy", "cupy"),
}
COUNTS = ("exit_code", "passed", "failed", "skipped")


def is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def faults(report: Any) -> Iterator[str]:
    """What is wrong with the content of a report, as `CODE: text`."""
    if not isinstance(report, dict):
        yield "E_SCHEMA: the report is no object"
        return
    if report.get("schema") != SCHEMA:
        yield f"E_SCHEMA: `schema` is not {SCHEMA}"
    if report.get("path") != REPORT:
        yield f"E_PATH: `path` is not {REPORT}"
    for part, fields in TOLD.items():
        held = report.get(part)
        for field in fields:
            value = held.get(field) if isinstance(held, dict) else None
            if not isinstance(value, str) or not value.strip():
                yield f"E_MACHINE: `{part}.{field}` is missing"
    yield from checks(report.get("checks"))


def checks(listed: Any) -> Iterator[str]:
    """Checks that are missing, misshapen, empty, failed or passed over."""
    if not isinstance(listed, list):
        yield "E_CHECK: there is no list of checks"
        return
    whole = [each for each in listed if isinstance(each, dict)]
    named = Counter(str(each.get("name")) for each in whole)
    for name in REQUIRED:
        if named[name] != 1:
            yield f"E_CHECK: `{name}` is listed {named[name]} times"
    for each in whole:
        name = str(each.get("name"))
        if not all(is_count(each.get(field)) for field in COUNTS):
            yield f"E_CHECK: `{name}` lacks a number"
        elif each["exit_code"] or each["failed"]:
            yield f"E_FAILED: `{name}` ended with {each['failed']} failures"
        elif each["skipped"] or not each["passed"]:
            yield f"E_SKIPPED: `{name}` passed {each['passed']}, left {each['skipped']}"


def provenance(report: Any) -> Iterator[str]:
    """Whether the candidate belongs to this history; a shallow copy cannot tell."""
    commit = report.get("candidate_commit") if isinstance(report, dict) else None
    if not isinstance(commit, str) or not commit:
        yield "E_COMMIT: no candidate is named"
        return
    shallow = git("rev-parse", "--is-shallow-repository")
    if shallow.returncode or shallow.stdout.strip() != "false":
        return
    if git("merge-base", "--is-ancestor", commit, "HEAD").returncode:
        yield f"E_COMMIT: {commit} is no ancestor of HEAD"


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["git", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Verify the evidence of a card.")
    parser.add_argument("report", nargs="?", type=Path, default=ROOT / REPORT)
    chosen = parser.parse_args(arguments)
    try:
        report = json.loads(chosen.report.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"E_REPORT: {error}")
        return 1
    found = [*faults(report), *provenance(report)]
    for fault in found:
        print(fault)
    if not found:
        device = report["device"]
        print(f"{device['name']} ({device['driver']}) ran every required check.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
