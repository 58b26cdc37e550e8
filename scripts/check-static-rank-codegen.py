"""Verify the report of machine code for a printed contiguous kernel of fixed rank.

    python3 scripts/check-static-rank-codegen.py [REPORT]

The kernel in the report must be what the package prints today. The code that was made
of it may consist of loads, arithmetic, stores, positions, the tests of its loop and its
frame, and must be that of the reference over plain arrays, instruction for instruction.
Every fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
REPORT = "docs/testing/static-rank-codegen.json"
SCHEMA = "tenferro.static-rank-codegen.v1"
RANK = 2
SHAPE = (1_000, 1_000)
CLASSES = {  # x86-64 mnemonics, by what an instruction is for
    "load or store": r"v?mov[a-z]*|vmaskmovp[ds]|vbroadcasts[ds]",
    "arithmetic": r"v?(mul|add|sub)[sp][ds]",
    "position": r"lea|add[lq]?|inc[lq]?|sub[lq]?|dec[lq]?|sh[lr][lq]?|cltq|nop[lw]?"
    r"|or[lq]?|xor[lq]?|and[lq]?|vp(or|addd|addq|broadcast[dq]|mov[sz]xdq)|vinsertf128",
    "test": r"cmp[lq]?|test[lq]?|j(mp|[a-z]{1,3})|vpcmpgt[dq]|set[a-z]{1,2}",
    "frame": r"push|pop|ret|vzeroupper",
}
STORAGE = ("storage", "provider", "owner", "borrow", "descriptor", "claim", "guard")


def printed() -> Any:
    """The launch that the package prints for `a * b + a` on contiguous operands."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    import numpy as np

    import tenferro_ad as ta
    from tenferro_ad._aval import aval_of
    from tenferro_ad.backends.printing import OpenCLPrinter, Strided
    from tenferro_ad.ops import Call

    kernel = ta.fused(lambda E, a, b: a * b + a, "muladd")
    aval = aval_of(SHAPE, np.dtype(np.float64), None)
    call = Call(kernel.op, (aval, aval), (aval,), ())
    dense = Strided(0, (SHAPE[1], 1))
    lowered = OpenCLPrinter({"f64"}).lower(call, [dense, dense], [dense])
    (launch,) = lowered.launches
    return launch


def kernel(source: str) -> str:
    """What is computed: the kernel itself, whatever it is called and defined before."""
    body = "__kernel" + source.partition("__kernel")[2]
    return re.sub(r"\bvoid \w+", "void kernel", body, count=1)


def kind(mnemonic: str) -> str | None:
    for name, pattern in CLASSES.items():
        if re.fullmatch(pattern, mnemonic):
            return name
    return None


def listing(report: Any, name: str) -> list[str]:
    """The instructions of one function of the report; none if it has another form."""
    held = report.get("code")
    text = held.get(name) if isinstance(held, dict) else None
    return text.split("\n") if isinstance(text, str) and text else []


def faults(report: Any, source: str) -> Iterator[str]:
    """What is wrong with a report about `source`, as `CODE: text`."""
    if not isinstance(report, dict):
        yield "E_SCHEMA: the report is no object"
        return
    for code, field, expected in (
        ("E_SCHEMA", "schema", SCHEMA),
        ("E_PATH", "path", REPORT),
        ("E_RANK", "rank", RANK),
    ):
        if report.get(field) != expected:
            yield f"{code}: `{field}` is not {expected}"
    environment = report.get("environment")
    for field in ("machine", "system", "compiler"):
        if not (isinstance(environment, dict) and environment.get(field)):
            yield f"E_ENVIRONMENT: `{field}` is missing"
    if kernel(str(report.get("source"))) != kernel(source):
        yield "E_SOURCE: the package prints another source today; measure again"
    for word in STORAGE:
        if word in str(report.get("source")).lower():
            yield f"E_STORAGE: the source speaks of `{word}`"
    ours, theirs = listing(report, "printed"), listing(report, "reference")
    if not (ours and theirs):
        yield "E_CODE: the code of one function is missing"
        return
    yield from instructions(ours)
    yield from difference(ours, theirs)


def mnemonics(lines: list[str]) -> list[str]:
    return [line.split()[0] if line.split() else "" for line in lines]


def instructions(ours: list[str]) -> Iterator[str]:
    """Instructions that serve no element, and kinds that are missing."""
    kinds = [kind(mnemonic) for mnemonic in mnemonics(ours)]
    for line, found in zip(ours, kinds, strict=True):
        if found is None:
            yield f"E_INSTRUCTION: `{line}` is not part of such a loop"
    for name in ("load or store", "arithmetic", "test"):
        if name not in kinds:
            yield f"E_CODE: there is no {name}"


def difference(ours: list[str], theirs: list[str]) -> Iterator[str]:
    """The same instructions in the same order; registers may be named differently."""
    a, b = mnemonics(ours), mnemonics(theirs)
    if a != b:
        yield f"E_REFERENCE: {len(a)} instructions, where plain arrays have {len(b)}"


def provenance(report: Any) -> Iterator[str]:
    """Whether the commit belongs to this history; a shallow copy cannot tell."""
    commit = report.get("commit") if isinstance(report, dict) else None
    if not isinstance(commit, str) or not commit:
        yield "E_COMMIT: no commit is named"
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", nargs="?", type=Path, default=ROOT / REPORT)
    chosen = parser.parse_args(arguments)
    report = json.loads(chosen.report.read_text(encoding="utf-8"))
    found = [*faults(report, printed().source), *provenance(report)]
    for fault in found:
        print(fault)
    if not found:
        print("The code is that of a plain loop over arrays.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
