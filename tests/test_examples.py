"""The examples run as a user runs them, and say what their pages promise."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import lane_params, required_lanes

ROOT = Path(__file__).parents[1]


def run(name: str, *options: str, is_quiet: bool = True) -> str:
    """Output of an example, run in a process of its own; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *options],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    if is_quiet:
        assert done.stderr == ""
    return done.stdout


def test_the_quickstart_shows_copies_and_what_a_checkpoint_saves() -> None:
    said = run("quickstart.py")
    last = {line.split()[0]: line.split() for line in said.splitlines() if line}
    assert last["copies"] == ["copies", "0"]
    assert "someone else still holds this value" in said
    kept, again = (int(last[k][1].replace(",", "")) for k in ("kept", "recomputed"))
    assert again < kept / 4


def test_the_quickstart_is_a_page_long() -> None:
    text = (ROOT / "examples" / "quickstart.py").read_text(encoding="utf-8")
    assert len(text.splitlines()) < 60


def test_comparing_ledgers_shows_a_real_failure() -> None:
    said = run("compare_ledgers.py")
    assert "1 passed" in said
    assert "1 failed" in said
    assert "! copy ExplicitDuplicate                   0           1        +1" in said
    assert "seen = h.duplicate_value()" in said


DIGITS = [n for n in required_lanes() if n in ("cpu", "opencl", "webgpu")]


# On a processor, WebGPU needs minutes; the CPU runs it in `make demo` as well.
@pytest.mark.parametrize("name", lane_params(DIGITS, slow=("cpu", "webgpu")))
def test_digits_are_learnt_on_every_lane(name: str) -> None:
    """One bound for all, and a step that makes the CPU's allocations."""
    device = name if name == "cpu" else f"{name}:0"
    said = run("train_digits.py", "--device", device, is_quiet=False)
    (percent,) = re.findall(r"test accuracy: ([\d.]+) % \(shuffled split\)", said)
    assert float(percent) >= 97.5
    table = {
        line[:42].strip(): line[42:].split()
        for line in said.splitlines()
        if line.startswith(("allocations", "copies"))
    }
    assert table == {
        "allocations: CheckpointRecomputeOutput": ["10", "0"],
        "allocations: OperationOutput": ["44", "42"],
        "copies": ["none", "none"],
    }
