"""The script for a machine with a card, as far as it goes without one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import ROOT, script

CHECK = script("gpu_check")
VERIFIER = script("check-hardware-evidence")
CARD = {"name": "a card", "driver": "13.0", "runtime": "13.0"}


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(ROOT / "scripts" / "gpu_check.sh"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHON": sys.executable, **env},
        timeout=120,
    )


def results() -> list[Any]:
    names = [c.name for c in CHECK.checks()]
    return [CHECK.Result(name, 0, 12, 0, 0, 1.5) for name in names]


# ---- without a card


@pytest.mark.clause("g7-lane-no-fallback")
def test_without_a_card_the_run_fails_and_says_why(tmp_path: Path) -> None:
    """A stand-in for the library whose driver has no card."""
    package = tmp_path / "cupy"
    package.mkdir()
    (package / "__init__.py").write_text(
        "class CUDARuntimeError(RuntimeError): pass\n"
        "class cuda:\n"
        "    class runtime:\n"
        "        CUDARuntimeError = CUDARuntimeError\n"
        "        @staticmethod\n"
        "        def getDeviceCount(): raise CUDARuntimeError('no driver')\n"
    )
    done = run(PYTHONPATH=str(tmp_path), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3, done.stdout
    assert "there is no CUDA card: no driver" in done.stderr
    assert done.stdout == ""


def test_a_missing_package_is_named(tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    done = run(PYTHON=str(bare), PYTHONPATH="")
    assert done.returncode == 3
    assert "not installed: " in done.stderr
    assert "cupy" in done.stderr
    assert "--wheels" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--other"], "no argument '--other'"),
        (["--wheels"], "--wheels needs a value"),
        (["--wheels", "/nowhere/at/all"], "no folder '/nowhere/at/all'"),
        (["--out"], "--out needs a value"),
    ],
)
def test_wrong_arguments_are_refused(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in done.stderr


def test_the_help_is_the_text_at_the_top() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "--wheels" in done.stdout
    assert "set -euo" not in done.stdout


# ---- the report


@pytest.mark.clause("g6-p11-evidence")
def test_the_report_is_what_the_verifier_accepts(tmp_path: Path) -> None:
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    made = CHECK.document(head or "unknown", CARD, results())
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps(made), encoding="utf-8")
    assert list(VERIFIER.faults(json.loads(file.read_text(encoding="utf-8")))) == []
    assert list(VERIFIER.provenance(made)) == []
    assert made["environment"]["python"].startswith(f"{sys.version_info[0]}.")


def test_every_required_check_is_run_and_fits_into_the_time() -> None:
    made = CHECK.checks()
    assert {c.name for c in made} >= set(VERIFIER.REQUIRED)
    assert len({c.name for c in made}) == len(made)
    assert CHECK.SECONDS <= 480
    for check in made:
        for word in check.command:
            if word.startswith(("tests/", "benchmarks/")):
                assert (ROOT / word).exists(), word


@pytest.mark.parametrize(
    "change", [{"exit_code": 1}, {"failed": 1}, {"skipped": 1}, {"passed": 0}]
)
def test_a_check_that_did_not_pass_fails_the_run(change: dict[str, int]) -> None:
    bad = replace(results()[0], **change)
    assert not CHECK.is_good(bad)
    assert all(map(CHECK.is_good, results()))
    made = CHECK.document("unknown", CARD, [bad, *results()[1:]])
    assert list(VERIFIER.faults(made))
    lines = list(CHECK.table([bad], CARD, "0" * 40))
    assert "FAILED" in lines[-1]


def test_the_table_has_a_line_for_each_check() -> None:
    lines = list(CHECK.table(results(), CARD, "0123456789abcdef"))
    assert lines[0] == "a card, driver 13.0, commit 0123456789ab"
    assert [line.split()[0] for line in lines[2:]] == [r.name for r in results()]
    assert all(line.endswith("ok") for line in lines[2:])


# ---- running


def counting(name: str, code: str, seconds: float = 60, how: str = "tests") -> Any:
    return CHECK.Check(name, (sys.executable, "-c", code), seconds, how)


def test_counts_come_from_pytests_own_report(tmp_path: Path) -> None:
    tests = tmp_path / "test_three.py"
    tests.write_text(
        "import pytest\n"
        "def test_good(): pass\n"
        "def test_bad(): assert False\n"
        "@pytest.mark.skip\n"
        "def test_left(): pass\n"
    )
    check = CHECK.by_pytest("three", 60, str(tests), "-c", os.devnull)
    seen = CHECK.run(check, 60, tmp_path)
    assert (seen.passed, seen.failed, seen.skipped, seen.exit_code) == (1, 1, 1, 1)
    assert seen.note == "see three.log"


def test_a_check_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    slow = counting("slow", "import time; print('begun', flush=True); time.sleep(99)")
    seen = CHECK.run(slow, 1.0, tmp_path)
    assert seen.exit_code == 124
    assert seen.failed == 1
    assert seen.seconds < 20
    assert "ended after" in seen.note


def test_figures_are_counted_and_a_crash_is_a_failure(tmp_path: Path) -> None:
    good = counting("good", "print('x'); print('{\"a\": 1, \"b\": 2}')", 60, "figures")
    assert CHECK.run(good, 60, tmp_path).passed == 2
    bad = counting("bad", "raise SystemExit(3)", 60, "figures")
    seen = CHECK.run(bad, 60, tmp_path)
    assert (seen.exit_code, seen.passed, seen.failed) == (3, 0, 1)


def test_the_benchmark_prints_its_figures_as_json() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "benchmarks/device.py",
            "--device",
            "cpu",
            "--json",
            "--small",
        ],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {"eager_us", "product_gflops", "chain_compiled_ms"} <= set(found)
    assert all(value >= 0 for value in found.values())
