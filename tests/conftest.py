"""What every test of the suite is held to, and what tests share.

Seals: a test leaves no root, no pending retirement, no open scope or tape, no changed
NumPy error state and no device limit behind. Roots whose completion is unproven are
kept for good by design; the seals know how many. They are checked after all its other
fixtures are gone. Only a test that passed is asked about roots, because a failed one
keeps its frame for the report.
A reference cycle of the test itself (`pytest.raises(...) as caught` makes one) is
collected first; a test where that would hide something has `@pytest.mark.no_leaks`.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenferro_ad._ledger import BASE, OPERATION_OUTPUT, STATE
from tenferro_ad.backends import CPU, find_device
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.storage import retirements
from tenferro_ad.testing._agree import ProviderCalls, counted_calls
from tests import poison
from tests.lanes import lane_params, required_lanes

ROOT = Path(__file__).parents[1]
PASSED = pytest.StashKey[bool]()

if os.environ.get("TENFERRO_POISON"):
    poison.install()


# ---- seals


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(autouse=True)
def seals(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compare the state of the process before and after the test."""
    roots, numpy_errors = BASE.live, np.geterr()
    pending, kept = retirements.pending, retirements.unproven_roots
    yield
    request.node.funcargs.clear()  # the values of fixtures that are finished
    broken = list(broken_seals(numpy_errors))
    if request.node.stash.get(PASSED, False):
        broken += left_roots(roots + retirements.unproven_roots - kept)
        if retirements.pending != pending:
            broken.append(f"{retirements.pending - pending} pending retirements")
    broken += poison.found()
    if broken:
        pytest.fail("The test leaves behind: " + "; ".join(broken), pytrace=False)


def broken_seals(numpy_errors: Any) -> Iterator[str]:
    """Context and settings that differ, put right for the tests that follow."""
    state = STATE.get()
    if state.account is not BASE:
        yield "an open ledger scope"
    if state.level is not None:
        yield "an open tape or checkpoint region"
    if state.reason != OPERATION_OUTPUT:
        yield "another allocation reason"
    if np.geterr() != numpy_errors:
        yield f"NumPy's error state {np.geterr()}"
        np.seterr(**numpy_errors)
    if CPU.limit is not None:
        yield f"a device limit of {CPU.limit} bytes"
        CPU.limit = None


def left_roots(allowed: int) -> Iterator[str]:
    if BASE.live > allowed:
        gc.collect()
    if BASE.live > allowed:
        yield f"{BASE.live - allowed} live roots"


# ---- independent counts


@pytest.fixture
def provider_calls() -> Iterator[ProviderCalls]:
    """Counts every hand-out of the CPU provider while the test runs."""
    with counted_calls() as calls:
        yield calls


# ---- lanes


def _cpu() -> Any:
    return CPU


def _fake() -> Any:
    return FakeProvider(auto=True)


def _named(kind: str) -> Callable[[], Any]:
    return lambda: find_device(f"{kind}:0", "lane")


STARTERS: dict[str, Callable[[], Any]] = {
    "cpu": _cpu,
    "fake": _fake,
    "opencl": _named("opencl"),
    "webgpu": _named("webgpu"),
    "cuda": _named("cuda"),
}
"""How each lane starts; a lane joins by adding its line."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lane" in metafunc.fixturenames:
        lanes = lane_params(required_lanes("cpu"))
        metafunc.parametrize("lane", lanes, indirect=True)


@pytest.fixture
def lane(request: pytest.FixtureRequest) -> Iterator[Any]:
    """The device of each required lane in turn; one that cannot start is a failure."""
    name: str = request.param
    starter = STARTERS.get(name)
    if starter is None:
        pytest.fail(
            f"TENFERRO_BACKENDS asks for the lane `{name}`, which this suite cannot "
            f"start. It knows: {', '.join(STARTERS)}.",
            pytrace=False,
        )
    device = starter()
    yield device
    device.drain()


# ---- data


@pytest.fixture(scope="session")
def shared_data() -> Callable[..., Path]:
    """A path in the folder of shared files: `shared_data("cases", "x.md")`.

    The folder is `$TENFERRO_SHARED`, else `../shared` beside the repository. Tests that
    use it carry the mark `shared`.
    """
    folder = Path(os.environ.get("TENFERRO_SHARED", ROOT.parent / "shared"))

    def find(*parts: str) -> Path:
        path = folder.joinpath(*parts)
        if not path.exists():
            pytest.fail(
                f"{path} does not exist. Set TENFERRO_SHARED to the folder of shared "
                "files, or put it beside the repository.",
                pytrace=False,
            )
        return path

    return find
