"""Integers to negative powers: an error wherever the host knows the exponent, else the
integer part of 1 / x**n, and 0 where that is no number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import InvalidArgumentError
from tests.backends.lane_support import Lane
from tests.backends.test_index_ranges import printed


def powers(kind: str) -> tuple[Any, Any, list[int]]:
    """Bases, negative exponents, and the stated answers."""
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    bases = [least, most, -2, -1, 0, 1, 2]
    exponents = [least, -most, -4, -3, -1]
    rows = [(x, y) for x in bases for y in exponents]
    wanted = [{1: 1, -1: 1 - 2 * (y % 2)}.get(x, 0) for x, y in rows]
    x, y = np.array(rows, kind).T
    return np.ascontiguousarray(x), np.ascontiguousarray(y), wanted


@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_what_the_device_alone_knows_has_a_stated_answer(
    eager_lane: Lane, kind: str
) -> None:
    device = eager_lane.device
    if not printed(eager_lane) or not device.supports_dtype(np.dtype(kind)):
        return
    base, exponent, wanted = powers(kind)
    x, y = (ta.asarray(v, device=device) for v in (base, exponent))
    assert ta.pow(x, y).tolist() == wanted
    assert (x**y).tolist() == wanted
    assert ta.compile(lambda x, y: x**y)(x, y).tolist() == wanted
    with pytest.raises(InvalidArgumentError):
        ta.pow(ta.asarray(base), ta.asarray(exponent))


KNOWN: dict[str, Callable[[Any], Any]] = {
    "number": lambda x: x**-1,
    "number of NumPy": lambda x: ta.pow(x, np.int32(-3)),
    "array": lambda x: ta.pow(x, np.array([-1, 2], np.int32)),
    "array, operator": lambda x: x ** np.array([2, -1], np.int32),
    "list": lambda x: ta.pow(x, [3, -2]),
    "at": lambda x: x.at[0].power(-1),
    "at, array": lambda x: x.at[:].power(np.array([2, -1], np.int32)),
    "compiled": lambda x: ta.compile(lambda x: x**-2)(x),
}


@pytest.mark.parametrize("fn", KNOWN.values(), ids=list(KNOWN))
def test_what_the_host_knows_is_refused(eager_lane: Lane, fn: Any) -> None:
    for device in (eager_lane.device, "cpu"):
        x = ta.asarray(np.array([1, 3], np.int32), device=device)
        with pytest.raises(InvalidArgumentError, match="negative power"):
            fn(x)


def test_outside_exponents_join_the_device_of_the_base(eager_lane: Lane) -> None:
    x = ta.asarray(np.array([2, 3], np.int32), device=eager_lane.device)
    found = ta.pow(x, np.array([3, 2], np.int32))
    assert found.device == x.device
    assert found.tolist() == [8, 9]
    assert ta.add(x, np.array([1, 1], np.int32)).tolist() == [3, 4]


def test_the_page_says_so() -> None:
    from tests.scripts import ROOT

    text = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    (rule,) = re.findall(r"^Integers to a negative.*?\n\n", text, re.M | re.DOTALL)
    for words in ("refused", "integer part", "0 at base 0", "parity"):
        assert words in rule, words
