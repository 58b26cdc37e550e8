"""Lanes and the process around them: exit with work in flight, and forks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.lanes import OWN_PROCESS, lane_params, required_lanes

ROOT = Path(__file__).parents[2]
START = """
import os, sys
import numpy as np
import tenferro_ad as ta
from tenferro_ad.backends import find_device
from tenferro_ad.errors import ForkedProcessError
device = find_device({name!r}, "test")
x = ta.asarray(np.ones(1000, np.float32), device=device)
device.drain()
"""


def run(code: str, lane: str) -> subprocess.CompletedProcess[str]:
    program = START.format(name=f"{lane}:0") + code
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
    )


DRIVERS = [name for name in required_lanes() if name in OWN_PROCESS]
driver = pytest.mark.parametrize("driver_name", lane_params(DRIVERS))


@driver
@pytest.mark.parametrize("state", ["running", "held"])
def test_a_process_ends_with_work_in_flight(driver_name: str, state: str) -> None:
    held = "device.endpoint.hold()\n" if state == "held" else ""
    done = run(held + "ys = [ta.exp(x) for _ in range(20)]; print('bye')", driver_name)
    assert (done.returncode, done.stdout.strip()) == (0, "bye"), done.stderr


@driver
def test_a_forked_child_is_refused_and_the_parent_goes_on(driver_name: str) -> None:
    done = run(
        """
sys.stdout.flush()
child = os.fork()
if not child:
    try:
        ta.exp(x)
    except ForkedProcessError as error:
        os._exit(17 if "spawn" in str(error) else 1)
    except BaseException:
        os._exit(2)
    os._exit(3)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), float(ta.sum(x)))
""",
        driver_name,
    )
    assert done.stdout.split() == ["17", "1000.0"], done.stderr
