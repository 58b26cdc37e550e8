"""Every printed kernel is clean under Oclgrind: bounds and races.

Collected where `TENFERRO_OCLGRIND` is set, as `.ci/run` does after installing it; there
a missing simulator is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tenferro_ad.ops import OPS, Elementwise, Write

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
@pytest.mark.parametrize(
    ("fault", "said"), [("bounds", "Invalid write"), ("race", "data race")]
)
def test_the_sanitizer_reports_a_kernel_that_is_wrong(
    simulator: str, fault: str, said: str
) -> None:
    """The harness sees both kinds: a broken kernel could not pass unnoticed."""
    done = run("--wrong", fault)
    assert done.returncode == 0, done.stderr
    assert said in done.stderr


@sanitizer
def test_every_printed_kernel_is_clean(simulator: str) -> None:
    done = run()
    assert done.returncode == 0, done.stderr
    ran = set(json.loads(done.stdout.splitlines()[-1])["rows"])
    assert not printed() - ran
    reports = [line for line in done.stderr.splitlines() if line.strip()]
    assert reports == []


def printed() -> set[str]:
    """Rows with a kernel of their own on the device."""
    return {
        name
        for name, op in OPS.items()
        if isinstance(op.kernel, Elementwise)
        or (isinstance(op.kernel, Write) and op.kernel.form is not None)
    }
