"""The checker of the guide to element access: it holds, and each fault is seen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import ROOT, script

CHECKER = script("check-storage-element-access-docs")
PAGE = CHECKER.PAGE.read_text(encoding="utf-8")


def codes(found: Any) -> set[str]:
    return {line.partition(":")[0] for line in found}


@pytest.mark.clause("g6-cost-line", "g6-p12-guide")
def test_the_guide_and_the_cost_lines_hold(capsys: Any) -> None:
    assert CHECKER.main([]) == 0
    assert "calls state what they cost" in capsys.readouterr().out


@pytest.mark.clause("g6-four-access-costs", "g6-host-device-download")
@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("E_SECTION", f"## {CHECKER.HEADING}", "## Something else"),
        *(("E_PART", f"### {name}", "### Other") for name in CHECKER.WAYS),
        *(("E_PART", f"### {name}", "### Other") for name in CHECKER.OTHERS),
        ("E_CONTENT", "does O(rank) arithmetic", "does arithmetic"),
        ("E_CONTENT", "or a prepared strided plan is", "is"),
        ("E_CONTENT", '.to("cpu")', '.away("cpu")'),
        ("E_CONTENT", "one recorded `Transfer`", "recorded"),
    ],
)
def test_each_gap_of_the_guide_is_seen(code: str, old: str, new: str) -> None:
    assert old in PAGE
    assert codes(CHECKER.guide(PAGE)) == set()
    page = PAGE.replace("Transfer", "move") if "Transfer" in old else PAGE
    assert codes(CHECKER.guide(page.replace(old, new))) == {code}


def test_an_example_that_fails_is_named_by_its_line(
    tmp_path: Path, capsys: Any
) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE + "\n```python\nassert t is None\n```\n", encoding="utf-8")
    assert CHECKER.main([str(page)]) == 1
    line = PAGE.count("\n") + 3
    assert capsys.readouterr().out == f"E_EXAMPLE: line {line}: AssertionError: \n"


@pytest.mark.parametrize("aspect", CHECKER.ASPECTS)
def test_every_aspect_of_a_cost_is_asked_for(aspect: str) -> None:
    stated = {
        "allocation": "no allocation",
        "provider": "no provider call",
        "waiting": "no wait",
        "element": "nothing for each element",
        "rank": "keeps the rank",
        "transfer": "no transfer",
    }
    known = CHECKER.costs()
    assert codes(CHECKER.cost_lines(known)) == set()
    whole = "; ".join(text for name, text in stated.items() if name != aspect)
    found = list(CHECKER.cost_lines(known | {"TensorView.as_view": whole}))
    names = {line.split("`")[1] for line in found}
    assert all(line.endswith(f"does not state its {aspect}") for line in found)
    assert {"TensorView.as_view", "TypedTensorView.as_view"} <= names  # by reference


def test_a_call_that_is_gone_is_seen() -> None:
    known = CHECKER.costs()
    del known["TensorViewMut.get_mut"]
    assert "E_CALL: there is no `TensorViewMut.get_mut`" in list(
        CHECKER.cost_lines(known)
    )


@pytest.mark.clause("g6-p12-examples")
def test_the_tutorial_walks_by_owner_view_and_exclusive_view() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / "element_access.py")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "sum by owner          15.0",
        "sum by view           15.0",
        "second column         [1.0, 4.0]",
        "doubled in place      [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]",
        "first column cleared  [[0.0, 2.0, 4.0], [0.0, 8.0, 10.0]]",
        "allocations 0",
        "copies 0",
    ]
