"""A required lane fails where it cannot start: it is never passed over."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARIES = {"opencl": "pyopencl", "webgpu": "wgpu"}


def outcome(required: str, folder: Path, *options: str) -> tuple[int, str]:
    """What two tests of lanes say where the libraries in `folder` come first."""
    path = f"{folder}{os.pathsep}{ROOT}"
    files = "tests/storage/test_lanes.py", "tests/backends/test_conformance.py"
    plain = "-p", "no:xdist", "-p", "no:cacheprovider", "-k", "same_rules or borrowed"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *files, *plain, *options],
        cwd=ROOT,
        env=os.environ | {"TENFERRO_BACKENDS": required, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    return done.returncode, done.stdout


@pytest.mark.clause("g7-lane-no-fallback")
@pytest.mark.parametrize("name", LIBRARIES)
def test_a_lane_whose_library_cannot_start_fails(name: str, tmp_path: Path) -> None:
    library = tmp_path / f"{LIBRARIES[name]}.py"
    library.write_text("raise ImportError('no driver here')\n", encoding="utf-8")
    code, said = outcome(f"cpu,{name}", tmp_path, "-m", name)
    assert code == 1
    assert "no driver here" in said
    last = said.splitlines()[-1]
    assert re.search(r"\b2 (?:errors|failed)\b|1 failed, 1 error", last), last
    assert "skipped" not in last
    assert "passed" not in last


@pytest.mark.clause("g7-lane-no-fallback")
def test_a_lane_that_nobody_knows_fails(tmp_path: Path) -> None:
    code, said = outcome("cpu,quantum", tmp_path)
    assert code == 1
    assert "quantum" in said
    assert "skipped" not in said.splitlines()[-1]
