"""G6: pages about devices, quickstarts and namespaces. One test for each clause."""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest

from tenferro_ad.backends import KINDS, AsynchronousDevice, Endpoint
from tenferro_ad.backends.fake import FakeProvider
from tests.contract.test_g6 import DOCS, PAGES, ROOT, read, sections, words

FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
NUMBERED = re.compile(r"\b(?:opencl|webgpu|cuda):\d")
NAMESPACES = "linalg fft special random nn optim extension testing unsafe".split()


def told(page: str, heading: str, *phrases: str) -> str:
    """The text of a section, which speaks of each phrase."""
    text = words(sections(read(page))[heading])
    for phrase in phrases:
        assert phrase in text, (page, heading, phrase)
    return text


@pytest.mark.clause("g6-p0-engines")
def test_discovery_ids_and_endpoints_are_explained() -> None:
    told(
        "docs/devices.md",
        "Finding a device",
        "`ta.devices()`",
        "discovery name of an endpoint",
        "no program should assume that device 0 exists",
        "```python",
    )
    text = told(
        "docs/devices.md",
        "Engines, endpoints and memory",
        "allocation domain",
        "under an id of the caller's choice",
        "One owner can be reached through several endpoints",
    )
    ids = re.findall(r'ta\.Runtime\([^)]*name="(\w+)"', text)
    assert len(ids) > 1
    assert len(set(ids)) == len(ids)


@pytest.mark.clause("g6-p0-engines")
def test_no_example_takes_a_number_of_a_device_for_granted() -> None:
    shown = {page: FENCE.findall(page.read_text("utf-8")) for page in PAGES}
    shown[ROOT / "README.md"] = FENCE.findall(read("README.md"))
    for file in (ROOT / "examples").rglob("*.py"):
        shown[file] = [file.read_text(encoding="utf-8")]
    assert sum(map(len, shown.values())) > 100
    wrong = [
        f"{place.name}: {found[0]}"
        for place, blocks in shown.items()
        for block in blocks
        for found in NUMBERED.finditer(block)
    ]
    assert not wrong


@pytest.mark.clause("g6-p8-webgpu")
def test_pages_on_gpus_tell_waits_and_maps_from_transfers() -> None:
    told(
        "docs/devices.md",
        "Waiting, mapping, moving",
        "A mapping is not a copy in the ledger",
        "one `Transfer`",
    )
    told(
        "docs/devices.md",
        "WebGPU, and through it Apple's Metal",
        "Metal",
        "lane of Macs",
        "wait and a map",
        "not a transfer",
    )
    told(
        "docs/devices.md",
        "Engines, endpoints and memory",
        "both reach the same memory",
        "```python",
    )
    told(
        "docs/tutorials/accelerators.md",
        "WebGPU: Apple, and every other desktop card",
        "On a Mac this is Metal",
        "a wait and a map",
        "pip install 'tenferro-ad[webgpu]'",
    )


@pytest.mark.clause("g6-p10-quickstarts")
def test_each_gpu_lane_has_a_quickstart() -> None:
    named = sections(read("docs/tutorials/accelerators.md"))
    for kind in KINDS[1:]:
        (text,) = (t for title, t in named.items() if title.lower().startswith(kind))
        assert f"pip install 'tenferro-ad[{kind}" in text
        assert "python -m tenferro_ad doctor" in text
        assert "python fit.py NAME" in text


@pytest.mark.clause("g6-p10-quickstarts")
def test_the_provider_matrix_has_every_lane() -> None:
    text = sections(read("docs/devices.md"))["The lanes"]
    rows = [line for line in text.splitlines() if line.startswith("|")]
    head = [cell.strip() for cell in rows[0].strip("|").split("|")]
    assert head == ["", *KINDS]
    facts = [row.strip("|").split("|") for row in rows[2:]]
    assert len(facts) > 8
    assert all(
        len(cells) == len(head) and all(map(str.strip, cells)) for cells in facts
    )


@pytest.mark.clause("g6-p10-quickstarts")
@pytest.mark.parametrize("name", NAMESPACES)
def test_each_namespace_says_what_holds_for_all_of_it(name: str) -> None:
    module = import_module(f"tenferro_ad.{name}")
    text = inspect.getdoc(module) or ""
    assert len(words(text)) > 150
    assert module.__all__
    # The pages are written by this extension when the site is built.
    made = (DOCS / "generated_pages.py").read_text(encoding="utf-8")
    assert "automodule" in made
    assert f'"{name}"' in made


def test_the_page_on_backends_names_every_call_that_one_must_have() -> None:
    text = read("docs/guides/adding-a-backend.md")
    named = set(re.findall(r"`(\w+)`", text)) | set(re.findall(r"def (\w+)", text))
    protocol = {
        name
        for name, member in vars(Endpoint).items()
        if inspect.isfunction(member) and not name.startswith("_")
    }
    assert protocol == {
        *("supports", "prepare", "enqueue", "await_event", "failure", "synchronise"),
        "release_event",
    }
    assert protocol <= named
    assert AsynchronousDevice.__abstractmethods__ <= named
    # What the smallest device has beside what is for tests to move.
    memory = {"small", "allocate", "give_back", "map_host", "unmap_host"}
    memory |= {"prepare_device", "bind", "release_binding"}
    assert memory <= vars(FakeProvider).keys()
    assert memory <= named
