"""Check the worklog against the registry.

    python3 scripts/check-worklog.py [--closing] [PAGE]

Its list of what is deferred must be that of the registry, each with a reason, and it
must say what became of scaffolding. To close, nothing but the closure itself may be
deferred, the candidate must be a commit of this history, and the reports on hardware,
documentation and the audit must be linked and exist. Every fault is printed with a
stable code.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "testing" / "worklog.md"
REGISTRY = ROOT / "scripts" / "storage-ownership-contracts.toml"
SECTIONS = ("Evidence", "Hardware", "Deferred", "Scaffolding")
REPORTS = ("hardware", "documentation", "audit")
CLOSURE = "p13-closure"
ITEM = re.compile(r"^- `([^`]+)`: *(.*)$", re.MULTILINE)


def sections(page: str) -> dict[str, str]:
    parts = re.split(r"^## (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def deferred(registry: dict[str, Any]) -> list[str]:
    rows = registry["obligations"]
    return [row["id"] for row in rows if row["state"]["kind"] == "deferred"]


def faults(page: str, registry: dict[str, Any]) -> Iterator[str]:
    """What every version of the worklog must have, as `CODE: text`."""
    found = sections(page)
    for name in SECTIONS:
        if len(found.get(name, "").split()) < 3:
            yield f"E_SECTION: `{name}` says nothing"
    listed = dict(ITEM.findall(found.get("Deferred", "")))
    waiting = deferred(registry)
    for name in waiting:
        if name not in listed:
            yield f"E_DEFERRED: `{name}` is deferred and not listed"
        elif len(listed[name]) < 10:
            yield f"E_REASON: `{name}` is listed without a reason"
    for name in listed:
        if name not in waiting:
            yield f"E_DEFERRED: `{name}` is listed and not deferred"


def closing(page: str, registry: dict[str, Any], folder: Path) -> Iterator[str]:
    """What the last version must have besides."""
    for name in deferred(registry):
        if name != CLOSURE:
            yield f"E_OPEN: `{name}` is still deferred"
    text = sections(page).get("Closure", "")
    commit = re.search(r"^Candidate: `(\w+)`$", text, re.MULTILINE)
    if commit is None or not is_ancestor(commit[1]):
        yield "E_CANDIDATE: no commit of this history is named as the candidate"
    for name in REPORTS:
        link = re.search(rf"\[[^\]]*{name}[^\]]*\]\(([^)#]+)", text)
        if link is None or not (folder / link[1]).is_file():
            yield f"E_REPORT: the {name} report is not linked"


def is_ancestor(commit: str) -> bool:
    command = ["git", "merge-base", "--is-ancestor", commit, "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return done.returncode == 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    parser.add_argument("--closing", action="store_true")
    chosen = parser.parse_args(arguments)
    page = chosen.page.read_text(encoding="utf-8")
    registry = tomllib.loads(REGISTRY.read_text(encoding="utf-8"))
    found = list(faults(page, registry))
    if chosen.closing:
        found += closing(page, registry, chosen.page.resolve().parent)
    for fault in found:
        print(fault)
    if not found:
        print("The worklog agrees with the registry.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
