"""A test that pins what a training step allocates, and its failure when that changes.

Both tests below are real and are run by pytest here. The second step duplicates a value
that it could have borrowed; the failure names the line. Run it with
`python examples/compare_ledgers.py`; it needs pytest.
"""

import subprocess
import sys
import tempfile
from importlib.metadata import entry_points
from pathlib import Path

TESTS = """
import numpy as np
import pytest
import tenferro_ad as ta


@pytest.fixture
def data():
    return ta.asarray(np.ones((32, 8))), ta.variable(np.full((8, 4), 0.1))


def step(x, w):
    with ta.Tape() as tape:
        loss = ta.sum(ta.tanh(x @ w))
    return tape.backward(loss)


def wasteful_step(x, w):
    with ta.Tape() as tape:
        h = ta.tanh(x @ w)
        seen = h.duplicate_value()  # only to look at it: `h.value()` would do
        loss = ta.sum(h)
    return tape.backward(loss)


# Forward: matmul, tanh, sum. Backward: the seed of ones (the sum only broadcasts it),
# the cotangent of tanh, the gradient of w. Nothing else, and no copies.
@pytest.mark.ledger(OperationOutput=6)
@pytest.mark.no_leaks
def test_step(data):
    step(*data)


@pytest.mark.ledger(OperationOutput=6)
@pytest.mark.no_leaks
def test_wasteful_step(data):
    wasteful_step(*data)
"""


def run(name: str, folder: Path) -> int:
    """Run one of the tests and print what pytest says."""
    print(f"\n=== pytest {name} ===", flush=True)
    known = {point.value for point in entry_points(group="pytest11")}
    plugin = "tenferro_ad.pytest_plugin"
    options = [] if plugin in known else ["-p", plugin]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += [*options, f"test_ledger.py::{name}"]
    return subprocess.run(command, cwd=folder, check=False).returncode


with tempfile.TemporaryDirectory() as place:
    folder = Path(place)
    (folder / "test_ledger.py").write_text(TESTS, encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    statuses = run("test_step", folder), run("test_wasteful_step", folder)

print("\nThe first test passes, the second fails and shows the two extra events.")
sys.exit(0 if statuses == (0, 1) else 1)
