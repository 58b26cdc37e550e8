"""Every report of the collection that concerns derivatives has a test by its number.

A test that shows a report bears its number: `test_07_...`, `test_27_49_...`; where one
says the same under another name, `ELSEWHERE` points to it. The collection is a shared
file, so this runs by name only (`make test-shared`).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
ELSEWHERE = {37: "test_testing.py::test_sin_passes_in_every_precision"}
# Headings of the sections whose reports must all have a test, and of those, the numbers
# that are about speed, the order of device work, or a runtime's construction.
SECTIONS = ("### 2g.", "### 2h.", "## Reports against tenferro-rs")
OTHER_MATTERS = {52, 57, 59, 60, 61, 62}


def named_by_file() -> dict[str, set[str]]:
    found = {}
    for path in sorted(TESTS.rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        found[path.relative_to(TESTS).as_posix()] = {
            node.name
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        }
    return found


def numbers_of(name: str) -> set[int]:
    """The leading numbers of a test's name."""
    lead = re.match(r"test_((?:\d\d_)+)", name)
    return {int(n) for n in lead[1].split("_")[:-1]} if lead else set()


def reported(text: str) -> set[int]:
    """Numbers of the tables below the headings of `SECTIONS`."""
    found: set[int] = set()
    inside = False
    for line in text.splitlines():
        if line.startswith("#"):
            inside = line.startswith(SECTIONS)
        row = re.match(r"\| (\d+) \|", line)
        if inside and row:
            found.add(int(row[1]))
    return found


@pytest.mark.shared
def test_every_report_about_derivatives_has_a_test(
    shared_data: Callable[..., Path],
) -> None:
    text = shared_data("cases", "field-reports.md").read_text(encoding="utf-8")
    asked = reported(text) - OTHER_MATTERS
    assert {25, 34, 37, 44, 54} <= asked
    names = set.union(*named_by_file().values())
    shown = set.union(*map(numbers_of, names)) | set(ELSEWHERE)
    assert asked - shown == set()


def test_what_is_shown_elsewhere_exists() -> None:
    known = named_by_file()
    for place in ELSEWHERE.values():
        file, name = place.split("::")
        assert name in known[file]


def test_numbers_are_read_from_names_and_tables() -> None:
    assert numbers_of("test_27_49_two_passes") == {27, 49}
    assert numbers_of("test_a_gradient_of_12_parts") == set()
    text = (
        "### 2g. A\n| 7 | x |\n### 2i. B\n| 8 | y |\n## Reports against tenferro-rs\n"
    )
    text += "## Reports against tenferro-rs\n| 44 | z |\n"
    assert reported(text) == {7, 44}
