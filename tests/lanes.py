"""Which lanes a test runs on: those that `TENFERRO_BACKENDS` names.

A lane whose library may end the process (and so has processes of its own in continuous
integration) is a mark of its tests as well: `-m opencl`, `-m webgpu`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

import pytest

OWN_PROCESS = ("opencl", "webgpu")


def required_lanes(default: str = "cpu,fake") -> list[str]:
    """Lanes named by `TENFERRO_BACKENDS` (comma-separated), else `default`."""
    named = os.environ.get("TENFERRO_BACKENDS", default).split(",")
    return [name.strip() for name in named if name.strip()]


def lane_params(names: Iterable[str], slow: Iterable[str] = ()) -> list[Any]:
    """Parameters of a test, with the marks of their lanes; `slow` are slow as well."""
    found = []
    for name in names:
        marks = [getattr(pytest.mark, name)] if name in OWN_PROCESS else []
        if name in slow:
            marks.append(pytest.mark.slow)
        found.append(pytest.param(name, marks=marks))
    return found
