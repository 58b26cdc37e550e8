"""How the contract may change, and that its tables and checkers are kept in step."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from tests.scripts import ROOT, SCRIPTS

PAGE = (ROOT / "docs" / "verification.md").read_text(encoding="utf-8")
CONTRACT = (ROOT / "docs" / "contract.md").read_text(encoding="utf-8")


def checkers() -> set[str]:
    return {f"scripts/{file.name}" for file in SCRIPTS.glob("check-*.py")}


@pytest.mark.clause("g6-table-follows-scripts")
def test_the_table_of_documents_names_every_checker_and_nothing_else() -> None:
    table = PAGE.split("## Who documents what")[1].split("\n## ")[0]
    named = set(re.findall(r"`((?:scripts|tests|examples)/[\w./-]+)`", table))
    assert checkers() <= named
    for path in named:
        assert (ROOT / path).is_file(), path
    units = set(
        re.findall(r"\bP\d+\b", "".join(re.findall(r"^\| (P[^|]+)\|", table, re.M)))
    )
    registry = tomllib.loads((SCRIPTS / "storage-ownership-contracts.toml").read_text())
    known = {unit["id"].partition("-")[0] for unit in registry["registry"]["units"]}
    assert units == known


@pytest.mark.clause("g6-table-follows-scripts")
def test_every_checker_runs_in_the_suite() -> None:
    texts = [f.read_text("utf-8") for f in (ROOT / "tests").rglob("test_*.py")]
    for path in checkers():
        name = Path(path).stem
        assert any(name in text for text in texts), name


@pytest.mark.clause("conv-change-control")
def test_a_change_of_meaning_is_open_and_complete() -> None:
    words = " ".join(CONTRACT.split())
    assert "changes this page, the register and a test together" in words
    amendments = re.findall(r"^- \*\*A\d+\. ([^*]+)\*\*", CONTRACT, re.MULTILINE)
    assert len(amendments) >= 7
    assert all(len(each.split()) > 3 for each in amendments)


@pytest.mark.clause("conv-state-table-columns")
def test_every_state_table_answers_six_questions_in_each_row() -> None:
    header = "| transition | capability | borrow | synchronisation | failure |"
    header += " exception or drop | reclamation |"
    tables = re.findall(r"^\| transition .*\n\|[-|]+\|\n((?:\|.*\n)+)", CONTRACT, re.M)
    assert CONTRACT.count(header) == len(tables) >= 4
    for table in tables:
        for row in table.splitlines():
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            assert len(cells) == 7
            assert all(cells), row


@pytest.mark.clause("conv-replaced-path-deleted")
def test_one_checker_and_one_manifest_of_one_version_exist() -> None:
    manifests = [
        file
        for folder in ("docs", "scripts", "tests")
        for file in (ROOT / folder).rglob("*.toml")
        if 'schema = "tenferro.storage-ownership-contracts.v' in file.read_text("utf-8")
    ]
    assert sorted(file.name for file in manifests) == [
        "storage-ownership-contracts.toml",
        "v1.toml",  # only a marker, to be refused
    ]
    for file in SCRIPTS.rglob("*.py"):
        assert "contracts.v1" not in file.read_text("utf-8")
