"""The answers of the source-blind audit run, copy nothing, and are where they say."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

import tenferro_ad as ta

PAGE = Path(__file__).parents[1] / "docs" / "testing" / "source-blind-audit.md"
TEXT = PAGE.read_text(encoding="utf-8")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)#([^)\s]+)\)")
COUNT = re.compile(r"^Copies (\d+), allocations (\d+)[.:]", re.MULTILINE)
NUMPY = {"sum", "shape"}  # of arrays
TITLES, BODIES = (
    re.split(r"^## (.+)$", TEXT, flags=re.MULTILINE)[k::2] for k in (1, 2)
)


def given() -> dict[str, Any]:
    """What the page gives its reader."""
    names: dict[str, Any] = {}
    block = BLOCK.search(TEXT)
    assert block is not None
    exec(block[1], names)
    return names


def section(page: str, anchor: str) -> str:
    """The text of a section, and of what it contains, by its anchor."""
    text = (PAGE.parent / page).read_text(encoding="utf-8")
    parts = re.split(r"^(#+) (.+)$", text, flags=re.MULTILINE)
    for k in range(1, len(parts), 3):
        level, title = parts[k], parts[k + 1]
        if title.lower().replace(" ", "-") == anchor:
            found = parts[k + 2]
            for j in range(k + 3, len(parts), 3):
                if len(parts[j]) <= len(level):
                    break
                found += parts[j + 2]
            return found
    raise LookupError(anchor)


def test_there_are_five_tasks() -> None:
    assert [title.split(".")[0] for title in TITLES] == ["1", "2", "3", "4", "5"]


@pytest.mark.clause("g6-source-blind")
def test_every_answer_costs_what_the_page_says() -> None:
    names = given()
    for title, body in zip(TITLES, BODIES, strict=True):
        answer, stated = BLOCK.search(body), COUNT.search(body)
        assert answer is not None, title
        assert stated is not None, title
        with ta.ledger() as led:
            exec(compile(answer[1], title, "exec"), names)
        counted = (sum(led.copies.values()), sum(led.allocations.values()))
        assert counted == (int(stated[1]), int(stated[2])), title
        assert counted[0] == 0, title
    names.clear()


@pytest.mark.clause("g6-source-blind")
@pytest.mark.parametrize("number", range(5))
def test_the_sections_that_are_cited_name_every_call(number: int) -> None:
    body = BODIES[number]
    before = body.split("```python")[0]
    cited = "\n".join(section(page, anchor) for page, anchor in LINK.findall(before))
    answer = BLOCK.search(body)
    assert answer is not None
    tree = ast.parse(answer[1])
    used = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert used - NUMPY
    for name in used - NUMPY:
        assert re.search(rf"\b{name}\b", cited), f"{name} is not in the cited sections"
