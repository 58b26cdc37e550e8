"""Run what only a machine with a CUDA card can show; `gpu_check.sh` calls this.

Each check is a process of its own with a time of its own, so that one that hangs, or
poisons the card's context, costs only itself. Counts come from the report that pytest
writes, and a check that passed nothing has failed. The report has the form that
`check-hardware-evidence.py` verifies, and it is verified before the run ends.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata, util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OUT = ROOT / "build" / "hardware-evidence.json"
SECONDS = 470.0
TESTS = "tests/backends"


@dataclass(frozen=True)
class Check:
    """One check: what it runs, and the most seconds that it may take."""

    name: str
    command: tuple[str, ...]
    seconds: float
    counted: str = "tests"  # "figures": JSON on the last line, "rows": likewise


@dataclass(frozen=True)
class Result:
    """How a check ended, in the words of the evidence."""

    name: str
    exit_code: int
    passed: int
    failed: int
    skipped: int
    seconds: float
    note: str = ""


def by_pytest(name: str, seconds: float, *what: str, workers: int = 0) -> Check:
    """A check that pytest runs, on several processes if that is installed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *what]
    if workers and util.find_spec("xdist") is not None:
        command += ["-n", str(workers), "--dist", "worksteal"]
    return Check(name, tuple(command), seconds)


def checks() -> list[Check]:
    """The checks in order; `memcheck` only where the tool is installed."""
    workers = min(8, os.cpu_count() or 1)
    found = [
        by_pytest(
            "conformance",
            80,
            f"{TESTS}/test_conformance.py",
            f"{TESTS}/test_eager.py",
            f"{TESTS}/test_index_ranges.py",
        ),
        by_pytest(
            "retirement", 60, f"{TESTS}/test_cuda.py", "-k", "not pool and not hooks"
        ),
        by_pytest("pool-hazard", 40, f"{TESTS}/test_cuda.py", "-k", "pool or hooks"),
        by_pytest(
            "equal-ledgers",
            80,
            f"{TESTS}/test_equal_ledgers.py",
            f"{TESTS}/test_chains.py",
            workers=workers // 2,
        ),
        Check(
            "benchmark",
            (sys.executable, "benchmarks/device.py", "--device", "cuda:0", "--json"),
            60,
            "figures",
        ),
        by_pytest("operation-table", 200, f"{TESTS}/test_op_table.py", workers=workers),
    ]
    tool = shutil.which("compute-sanitizer")
    if tool is not None:
        memcheck = (tool, "--tool", "memcheck", "--error-exitcode", "9")
        run = ("-m", "tests.backends.sanitized", "--device", "cuda:0")
        found.append(Check("memcheck", (*memcheck, sys.executable, *run), 90, "rows"))
    return found


# ---- running


def run(check: Check, left: float, folder: Path) -> Result:
    """One check, ended after its time or what is left of the whole."""
    report = folder / f"{check.name}.xml"
    log = folder / f"{check.name}.log"
    command = list(check.command)
    if check.counted == "tests":
        command += [f"--junitxml={report}"]
    seconds = max(1.0, min(check.seconds, left))
    started = time.monotonic()
    note = ""
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, "TENFERRO_BACKENDS": "cuda"},
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            code, note = 124, f"ended after {seconds:.0f} s"
    counts = counted(check, report, log, code)
    took = round(time.monotonic() - started, 1)
    note = note or (f"see {log.name}" if code else "")
    return Result(check.name, code, *counts, took, note)


def counted(check: Check, report: Path, log: Path, code: int) -> tuple[int, int, int]:
    """Passed, failed and skipped."""
    if check.counted == "tests":
        return from_junit(report)
    try:
        found = json.loads(log.read_text(encoding="utf-8").splitlines()[-1])
    except (IndexError, ValueError):
        return 0, 1, 0
    many = found["rows"] if check.counted == "rows" else found
    return len(many), int(code != 0), 0


def from_junit(report: Path) -> tuple[int, int, int]:
    """What the report of pytest says; one that was never written has a failure."""
    try:
        suites = list(ET.parse(report).getroot().iter("testsuite"))
    except (OSError, ET.ParseError):
        return 0, 1, 0
    total, failed, skipped = (
        sum(int(s.get(key, "0")) for s in suites for key in keys.split())
        for keys in ("tests", "failures errors", "skipped")
    )
    return total - failed - skipped, failed, skipped


# ---- the report


def card() -> dict[str, str]:
    """The card with its driver.

    Raises:
        RuntimeError: there is none; says why.
    """
    import cupy as cp  # type: ignore[import-not-found,unused-ignore]

    runtime = cp.cuda.runtime
    try:
        count = runtime.getDeviceCount()
    except runtime.CUDARuntimeError as error:
        raise RuntimeError(str(error)) from error
    if not count:
        raise RuntimeError("the driver lists no card")
    return {
        "name": runtime.getDeviceProperties(0)["name"].decode(),
        "driver": dotted(runtime.driverGetVersion()),
        "runtime": dotted(runtime.runtimeGetVersion()),
    }


def dotted(version: int) -> str:
    """CUDA's number of a version: 13000 is 13.0."""
    return f"{version // 1000}.{version % 1000 // 10}"


def commit() -> str:
    """The commit of a clean checkout.

    Raises:
        RuntimeError: there is none, or tracked files differ from it.
    """
    head, state = (
        subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
        for arguments in (
            ("rev-parse", "HEAD"),
            ("status", "--porcelain", "--untracked-files=no"),
        )
    )
    if head.returncode:
        raise RuntimeError("this is no checkout: name the commit by --commit")
    if state.stdout.strip():
        raise RuntimeError("tracked files differ from HEAD: commit them first")
    return head.stdout.strip()


def document(
    of: str, device: dict[str, str], results: Sequence[Result]
) -> dict[str, Any]:
    """The evidence of a run."""
    return {
        "schema": "tenferro.hardware-evidence.v1",
        "path": "docs/testing/hardware-evidence.json",
        "candidate_commit": of,
        "device": device,
        "environment": {
            "python": platform.python_version(),
            "numpy": metadata.version("numpy"),
            "cupy": version_of("cupy-cuda13x", "cupy-cuda12x", "cupy"),
        },
        "checks": [asdict(result) for result in results],
    }


def version_of(*names: str) -> str:
    """The version of the first distribution that is installed."""
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def table(results: Sequence[Result], device: dict[str, str], of: str) -> Iterator[str]:
    """What is printed at the end, a line each."""
    yield f"{device['name']}, driver {device['driver']}, commit {of[:12]}"
    yield f"{'check':17} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8}"
    for r in results:
        state = "ok" if is_good(r) else "FAILED"
        yield (
            f"{r.name:17} {r.passed:7} {r.failed:7} {r.skipped:8} {r.seconds:8.1f}  "
            f"{state}  {r.note}".rstrip()
        )


def is_good(r: Result) -> bool:
    """Whether a check ran, passed, and passed over nothing."""
    return not (r.exit_code or r.failed or r.skipped) and r.passed > 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check a machine with a card.")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--commit")
    parser.add_argument("--seconds", type=float, default=SECONDS)
    chosen = parser.parse_args(arguments)
    end = time.monotonic() + chosen.seconds
    try:
        device = card()
    except (ImportError, RuntimeError) as error:
        print(f"gpu_check: there is no CUDA card: {error}", file=sys.stderr)
        return 3
    try:
        of = chosen.commit or commit()
    except RuntimeError as error:
        print(f"gpu_check: {error}", file=sys.stderr)
        return 2
    folder = chosen.out.parent / "gpu_check"
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for check in checks():
        results.append(run(check, end - time.monotonic(), folder))
        print(f"{check.name}: {results[-1].seconds} s", flush=True)
    chosen.out.write_text(json.dumps(document(of, device, results), indent=1) + "\n")
    print("\n".join(["", *table(results, device, of), f"report: {chosen.out}"]))
    figures = folder / "benchmark.log"
    if figures.exists():
        print(f"benchmark: {figures.read_text(encoding='utf-8').strip()}")
    return 0 if all(map(is_good, results)) else 1


if __name__ == "__main__":
    sys.exit(main())
