"""The checker of docs/contract.md: the page holds, and each fault is seen."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import script

CHECKER = script("check-contract-document")
PAGE = CHECKER.PAGE.read_text(encoding="utf-8")
REGISTER: dict[str, Any] = tomllib.loads(CHECKER.REGISTER.read_text(encoding="utf-8"))
ROW = next(c for c in REGISTER["clause"] if c["id"] == "g1-row-host-return")
RULE = next(c for c in REGISTER["clause"] if c["id"] == "g1-validate-once")
ANCHOR = '<a id="{}"></a>'


def test_the_page_holds(capsys: Any) -> None:
    assert CHECKER.main([]) == 0
    assert "clauses are stated" in capsys.readouterr().out


def test_every_clause_of_the_ledger_is_due() -> None:
    due = {clause["id"] for clause in CHECKER.finished(REGISTER)}
    ledger = {c["id"] for c in REGISTER["clause"] if c["id"].startswith("v2-")}
    assert ledger <= due


def statement(name: str) -> str:
    """The text of a statement as it stands on the page."""
    return PAGE.split(ANCHOR.format(name))[1].split("\n- <a")[0]


FAULTS = [
    ("E_ANCHOR_MISSING", ANCHOR.format("g1-validate-once"), ""),
    ("E_ANCHOR_REPEATED", "## G2. Groups", ANCHOR.format("g1-scope") + "\n" + "x" * 30),
    ("E_ANCHOR_UNKNOWN", "## G2. Groups", ANCHOR.format("g1-none") + "\n" + "x" * 30),
    ("E_STATEMENT", statement("g1-validate-once"), "\n  Short."),
    ("E_STATEMENT", statement("g1-validate-once"), "\n  " + RULE["text"]),
    ("E_ROW", ROW["reclaim"], "some other time"),
    ("E_AMENDMENT", "- **A2.", "- **A9."),
]


@pytest.mark.parametrize(("code", "old", "new"), FAULTS)
def test_each_fault_is_seen(code: str, old: str, new: str) -> None:
    assert old in PAGE
    found = CHECKER.faults(PAGE.replace(old, new), REGISTER)
    assert {line.partition(":")[0] for line in found} == {code}


def test_an_amendment_that_a_clause_cites_must_exist() -> None:
    cited = {"id": "new", "line": "A99", "kind": "rust-only", "stage": 9, "text": "x"}
    found = CHECKER.faults(PAGE, REGISTER | {"clause": [*REGISTER["clause"], cited]})
    assert found == ["E_AMENDMENT: `new` cites A99"]


def test_a_page_with_faults_fails_the_command(tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "contract.md"
    page.write_text(PAGE.replace("- **A2.", "- **A9."), encoding="utf-8")
    assert CHECKER.main([str(page)]) == 1
    assert capsys.readouterr().out.startswith("E_AMENDMENT")
