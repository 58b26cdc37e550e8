"""The checker of the worklog: the page holds, and each fault is seen."""

from __future__ import annotations

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import script

CHECKER = script("check-worklog")
PAGE = CHECKER.PAGE.read_text(encoding="utf-8")
REGISTRY: dict[str, Any] = tomllib.loads(CHECKER.REGISTRY.read_text(encoding="utf-8"))
LAST = CHECKER.CLOSURE


def codes(found: Any) -> set[str]:
    return {line.partition(":")[0] for line in found}


def test_the_page_agrees_with_the_registry(capsys: Any) -> None:
    assert CHECKER.main([]) == 0
    assert "agrees" in capsys.readouterr().out


def line_of(name: str) -> str:
    (found,) = (line for line in PAGE.splitlines() if line.startswith(f"- `{name}`:"))
    return found


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("E_SECTION", "## Scaffolding", "## Something else"),
        ("E_DEFERRED", line_of(LAST), ""),
        ("E_DEFERRED", line_of(LAST), line_of(LAST) + "\n- `p1-ledger`: some reason."),
        ("E_REASON", line_of(LAST), f"- `{LAST}`: later"),
    ],
)
def test_each_fault_is_seen(code: str, old: str, new: str) -> None:
    assert codes(CHECKER.faults(PAGE.replace(old, new), REGISTRY)) == {code}


def test_a_promotion_must_take_its_row_off_the_list(capsys: Any) -> None:
    promoted = copy.deepcopy(REGISTRY)
    promoted["obligations"][-1]["state"] = {"kind": "active"}
    assert codes(CHECKER.faults(PAGE, promoted)) == {"E_DEFERRED"}


@pytest.fixture
def closed(monkeypatch: pytest.MonkeyPatch) -> tuple[str, dict[str, Any]]:
    """A page and a registry at the end, in a history that has the candidate."""
    registry = copy.deepcopy(REGISTRY)
    for row in registry["obligations"]:
        row["state"] = {"kind": "active"}
    links = "\n".join(f"- [the {name} report](worklog.md)" for name in CHECKER.REPORTS)
    page = f"{PAGE}\n## Closure\n\nCandidate: `abc123`\n\n{links}\n"
    monkeypatch.setattr(CHECKER, "is_ancestor", lambda commit: commit == "abc123")
    return page, registry


@pytest.mark.clause("g6-p13-closure")
@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("E_CANDIDATE", "`abc123`", "`def456`"),
        ("E_CANDIDATE", "Candidate: ", "Some commit: "),
        ("E_REPORT", "[the hardware report]", "the hardware report"),
        ("E_REPORT", "audit report](worklog.md)", "audit report](none.md)"),
    ],
)
def test_closing_needs_a_candidate_and_three_reports(
    closed: tuple[str, dict[str, Any]], code: str, old: str, new: str
) -> None:
    page, registry = closed
    folder = CHECKER.PAGE.parent
    assert codes(CHECKER.closing(page, registry, folder)) == set()
    assert codes(CHECKER.closing(page.replace(old, new), registry, folder)) == {code}


@pytest.mark.clause("g6-p13-closure")
def test_closing_needs_everything_else_to_be_active(
    closed: tuple[str, dict[str, Any]],
) -> None:
    page, registry = closed
    registry["obligations"][0]["state"] = {"kind": "deferred"}
    found = list(CHECKER.closing(page, registry, CHECKER.PAGE.parent))
    assert found == [f"E_OPEN: `{registry['obligations'][0]['id']}` is still deferred"]


def test_an_ancestor_is_a_commit_of_this_history(tmp_path: Path) -> None:
    assert not CHECKER.is_ancestor("0" * 40)
