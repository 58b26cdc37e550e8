"""Indices out of range: an error wherever the host knows them, else a stated answer.

A lane cannot refuse an index that only its memory knows without waiting for it. It
reads NaN (or what stands for it in the dtype), writes nothing, and touches no other
memory, which `test_sanitizer.py` confirms.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import IndexRangeError
from tests.backends.lane_support import Lane
from tests.backends.out_of_range import CASES, NAN, Case, X

every_case = pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
FILLS = {
    "int8": -(2**7),
    "int32": -(2**31),
    "int64": -(2**63),
    "uint16": 2**16 - 1,
    "uint32": 2**32 - 1,
    "uint64": 2**64 - 1,
    "bool": True,
    "float64": NAN,
    "complex64": complex(NAN, 0),
}


def printed(lane: Lane) -> bool:
    """The fake device computes by kernels of the host, which look at indices."""
    return lane.name != "fake"


@every_case
def test_the_host_refuses(case: Case) -> None:
    with pytest.raises(IndexRangeError):
        case.run("cpu")


@every_case
def test_what_the_device_alone_knows_has_a_stated_answer(
    eager_lane: Lane, case: Case
) -> None:
    if printed(eager_lane):
        found = case.run(eager_lane.device)
        assert np.array_equal(found, np.asarray(case.wanted), equal_nan=True)


@every_case
def test_what_the_host_knows_is_refused(eager_lane: Lane, case: Case) -> None:
    if not printed(eager_lane):
        return
    x = ta.asarray(X, device=eager_lane.device)
    with pytest.raises(IndexRangeError, match="has size"):
        case.fn(x, np.asarray(case.indices))
    assert x.tolist() == X.tolist()


@pytest.mark.parametrize("kind", ["int8", "int32", "uint32", "int64", "uint64"])
def test_no_index_comes_back_into_range_by_its_width(
    eager_lane: Lane, kind: str
) -> None:
    """A device may count with 32 bits: 2**32 + 1 is not 1 there."""
    device = eager_lane.device
    if not printed(eager_lane) or not device.supports_dtype(np.dtype(kind)):
        return
    limits = np.iinfo(kind)
    far = [limits.min, limits.max, 1, 2**32 + 1, -(2**32), 2**31 + 1, 2**32 - 1]
    held = [i for i in far if limits.min <= i <= limits.max and not 0 <= i < 1]
    index = ta.asarray(np.array(held, kind), device=device)
    x = ta.asarray(np.array([5.0, 6.0, 7.0], np.float32), device=device)
    wanted = [6.0 if i == 1 else 5.0 if i == 0 else NAN for i in held]
    assert np.array_equal(ta.take(x, index).numpy(), wanted, equal_nan=True)
    added = ta.index_add(x, index, ta.ones(len(held), dtype=np.float32, device=device))
    assert added.tolist() == [5.0 + (0 in held), 6.0 + held.count(1), 7.0]


@pytest.mark.parametrize("kind", FILLS)
def test_what_is_read_out_of_range_depends_on_the_dtype(
    eager_lane: Lane, kind: str
) -> None:
    device = eager_lane.device
    if not printed(eager_lane) or not device.supports_dtype(np.dtype(kind)):
        return
    x = ta.asarray(np.ones(3, kind), device=device)
    index = ta.asarray(np.array([1, 3]), device=device)
    found: Any = ta.take(x, index).numpy()
    assert found.dtype == kind
    assert np.array_equal(found, np.array([1, FILLS[kind]], kind), equal_nan=True)


def test_the_page_says_so() -> None:
    from tests.scripts import ROOT

    text = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    (rule,) = re.findall(r"^On lanes, indices.*?\n\n", text, re.MULTILINE | re.DOTALL)
    for words in ("NaN", "least", "greatest", "`True`", "writes nothing", "elsewhere"):
        assert words in rule, words
