"""The lanes that `TENFERRO_BACKENDS` names, as fixtures; a missing one is a failure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.backends.lane_support import HARNESSES, Counts, Lane, started
from tests.backends.printing_support import PRINTING_LANES, PrintingLane
from tests.lanes import lane_params, required_lanes


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for fixture, keeps in (
        ("any_lane", lambda lane: True),
        ("eager_lane", lambda lane: lane.works_eagerly),
        ("failing_lane", lambda lane: lane.can_fail),
        ("eager_failing_lane", lambda lane: lane.can_fail and lane.works_eagerly),
        ("opencl_only", lambda lane: lane.name == "opencl"),
        ("webgpu_only", lambda lane: lane.name == "webgpu"),
        ("cuda_only", lambda lane: lane.name == "cuda"),
    ):
        if fixture in metafunc.fixturenames:
            names = [
                name
                for name in required_lanes()
                if name not in HARNESSES or keeps(HARNESSES[name])
            ]
            metafunc.parametrize(
                fixture, lane_params(names), indirect=fixture.endswith("_lane")
            )
    if "printing_lane" in metafunc.fixturenames:
        names = [name for name in required_lanes() if name in PRINTING_LANES]
        metafunc.parametrize(
            "printing_lane", lane_params(names), indirect=True, scope="session"
        )


def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """A test that none of the required lanes is meant for is no skipped test."""
    none = [item for item in items if _has_no_lane(item)]
    items[:] = [item for item in items if item not in none]
    config.hook.pytest_deselected(items=none)


def _has_no_lane(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("skip")
    reason = "" if mark is None else str(mark.kwargs.get("reason", ""))
    return "empty parameter set" in reason


def _lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    lane = started(request.param)
    yield lane
    lane.close()


@pytest.fixture
def any_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Each required lane in turn."""
    yield from _lane(request)


@pytest.fixture
def eager_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Each required lane whose eager operations are asynchronous."""
    yield from _lane(request)


@pytest.fixture
def failing_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Each required lane that reports failures of admitted work."""
    yield from _lane(request)


@pytest.fixture
def eager_failing_lane(request: pytest.FixtureRequest) -> Iterator[Lane]:
    """Each required lane with asynchronous eager operations that can fail."""
    yield from _lane(request)


@pytest.fixture(scope="session")
def printing_lane(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> PrintingLane:
    """Each required lane that runs or compiles printed kernels; they keep programs."""
    return PRINTING_LANES[request.param](tmp_path_factory.mktemp("printing"))


@pytest.fixture
def records() -> Any:
    """Retirement records since the beginning of the test."""
    return Counts()
