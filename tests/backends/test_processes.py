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
def test_a_process_ends_while_a_submitted_loop_goes_on(driver_name: str) -> None:
    """The worker calls its provider no more: libraries in C++ would not survive the
    end of their thread."""
    done = run(
        """
def forever(x):
    return ta.while_loop(lambda s: ta.all(s > -2.0), lambda s: ta.tanh(s) + 0.5, x)
runtime = ta.Runtime(device)
graph = runtime.compile(ta.trace(forever, x))
handle = runtime.submit(graph, ta.ExecutionInputs.of_tensors([x.into_value()]))
try:
    handle.wait(0.5)
except ta.errors.OutcomePendingError:
    print("bye")
""",
        driver_name,
    )
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


IN_CHILD = {
    "numpy": "x.numpy()",
    "tolist": "x.tolist()",
    "item": "ta.sum(x).item()",
    "to": "x.to('cpu')",
    "operation": "x + 1",
    "written over": "owner.as_view_mut().write()",
    "owned bytes": "owner.numpy()",
    "creation": "ta.ones(3, device=device)",
    "upload": "ta.asarray([1.0], dtype=ta.float32, device={name!r})",
    "duplicate": "x.duplicate_value()",
    "default_device": "ta.default_device({name!r})",
    "devices": "ta.devices({kind!r})",
    "Runtime by name": "ta.Runtime({name!r}, name='child')",
    "Runtime by device": "ta.Runtime(device, name='child')",
    "outcome": "handle.wait()",
    "close": "rt.close()",
}


@driver
@pytest.mark.parametrize("state", ["at rest", "in flight"])
def test_no_use_of_a_device_hangs_in_a_forked_child(
    driver_name: str, state: str
) -> None:
    facts = {"name": f"{driver_name}:0", "kind": driver_name}
    uses = {name: code.format(**facts) for name, code in IN_CHILD.items()}
    done = run(
        f"""
import signal
def owned():
    value = ta.asarray(np.ones(3, np.float32), device=device)
    device.drain()
    return value.into_value()
owner, given = owned(), owned()
rt = ta.Runtime(device, name="parent")
graph = rt.compile(ta.trace(lambda a: a * 2, ta.Spec((3,), ta.float32, device)))
if {state == "in flight"}:
    device.endpoint.hold()
    x = x * 1
handle = rt.submit(graph, ta.ExecutionInputs.of_tensors([given]))
for name, code in {uses!r}.items():
    sys.stdout.flush()
    child = os.fork()
    if not child:
        signal.alarm(60)  # a hang ends the child, and fails the test
        try:
            eval(code)
        except ForkedProcessError:
            os._exit(17)
        except BaseException as error:
            # An access that hands its object back names what the provider raised.
            if isinstance(error.__cause__, ForkedProcessError):
                os._exit(17)
            print(name, repr(error), flush=True)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    print(name + ":", os.waitstatus_to_exitcode(status))
device.endpoint.let_go()
print(float(ta.sum(x)))
""",
        driver_name,
    )
    wanted = [f"{name}: 17" for name in IN_CHILD]
    if state == "at rest":
        # The work may have ended before the fork: then its outcome is known here too.
        wanted.remove("outcome: 17")
        lines = done.stdout.splitlines()
        found = [line for line in lines if not line.startswith("outcome")]
    else:
        found = done.stdout.splitlines()
    assert found == [*wanted, "1000.0"], done.stdout + done.stderr


@driver
def test_a_forked_child_computes_on_the_cpu(driver_name: str) -> None:
    done = run(
        """
y = ta.exp(x).numpy()
sys.stdout.flush()
child = os.fork()
if not child:
    ok = float(ta.sum(ta.ones(4) + 1)) == 8.0 and "1000" in repr(x)
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status))
""",
        driver_name,
    )
    assert done.stdout.split() == ["0"], done.stderr
