"""G5 and G6: what interoperation owes, and what the pages say of the CUDA lane.

The inventory reads the sources: every place that touches a raw pointer is known, and
those that show one to somebody outside document the duties that come with it.
"""

from __future__ import annotations

import inspect
import re

import pytest

import tenferro_ad as ta
from tests.contract.test_g6 import ROOT, read, sections, words
from tests.scripts import script

PACKAGE = ROOT / "tenferro_ad"
POINTER = re.compile(
    r"\.ptr\b|ctypes\.data\b|addressof|from_address|int_ptr|\.data_ptr"
    r"|__(?:cuda_)?array_interface__|\.__dlpack__\("
)
# Pointers that never leave the call: addresses are handed to a driver's launch or copy,
# compared, or looked at in a test's sample.
INSIDE = {
    "backends/_cuda.py",
    "backends/_cuda_queue.py",
    "backends/_device_plan.py",
    "runtime/_schedule.py",
    "storage/_descriptor.py",
    "testing/_samples.py",
}
# Calls that show a pointer, or take one from outside, with their duties.
SHOWN = {"engine/_interchange.py", "unsafe.py"}
NAMED = re.compile(r"ptr|pointer|address|raw_handle", re.IGNORECASE)


def touching() -> set[str]:
    return {
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*.py")
        if any(
            POINTER.search(line.partition("#")[0])
            for line in file.read_text(encoding="utf-8").splitlines()
        )
    }


@pytest.mark.clause("g5-interop-duties")
def test_every_place_that_touches_a_pointer_is_known() -> None:
    assert touching() == INSIDE | SHOWN


@pytest.mark.clause("g5-interop-duties")
def test_no_public_call_gives_or_takes_an_address() -> None:
    checker = script("check-public-error-docs")
    calls = checker.published()
    assert len(calls) > 500
    for name, call in calls.items():
        assert not NAMED.search(name), name
        assert not any(map(NAMED.search, inspect.signature(call).parameters)), name


@pytest.mark.clause("g5-interop-duties")
def test_calls_that_show_or_take_memory_document_the_duties() -> None:
    shown = words(inspect.getdoc(ta.EagerTensor.__dlpack__) or "")
    for duty in (
        "waited for first",
        "for as long as the pointer is used",
        "write nothing",
        "never use the pointer after the deleter ran",
    ):
        assert duty in shown, duty
    taken = words(inspect.getdoc(ta.unsafe) or "")
    for duty in (
        "nobody outside writes the memory",
        "until the last of them is gone",
        "no other tensor is made from it",
    ):
        assert duty in taken, duty
    for call in (ta.unsafe.import_array, ta.unsafe.from_dlpack):
        assert "Raises:" in (inspect.getdoc(call) or "")


@pytest.mark.clause("g6-p7-cuda")
def test_the_page_explains_the_cuda_lane() -> None:
    text = words(sections(read("docs/devices.md"))["CUDA"])
    for topic, told in {
        "design": "one stream and one private memory pool",
        "use": "pip install 'tenferro-ad[cuda",
        "waiting": "An event behind each launch is asked until it says done",
        "reclamation": "memory returns to the pool",
        "failure": "completion can no longer be proven",
        "duplication": "one ExplicitDuplicate, on x's own device",
        "interop": "Nothing here hands out a device pointer",
        "duties": "not to use the pointer once the borrow has ended",
    }.items():
        assert told in text, topic
    assert "```python" in text
    quickstart = words(sections(read("docs/tutorials/accelerators.md"))["CUDA"])
    assert "python fit.py NAME" in quickstart
