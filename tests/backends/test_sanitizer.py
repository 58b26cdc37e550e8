"""Every printed kernel is clean under Oclgrind: bounds and races.

Collected where `TENFERRO_OCLGRIND` is set, as `.ci/run` does after installing it; there
a missing simulator is a failure.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WANTED = ["oclgrind"] if os.environ.get("TENFERRO_OCLGRIND") else []
sanitizer = pytest.mark.parametrize("simulator", WANTED)


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.backends.sanitized", *options],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=900,
        env={
            **os.environ,
            "OCLGRIND_DATA_RACES": "1",
            "PYOPENCL_NO_CACHE": "1",
        },
    )


@sanitizer
def test_the_sanitizer_reports_a_kernel_that_is_wrong(simulator: str) -> None:
    assert "Invalid write" in run("--wrong").stderr


@sanitizer
def test_every_printed_kernel_is_clean(simulator: str) -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 300
    reports = [line for line in done.stderr.splitlines() if line.strip()]
    assert reports == []
