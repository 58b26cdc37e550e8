"""The verifier of hardware evidence: skipping proves nothing; each fault is seen."""

from __future__ import annotations

import copy
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import ROOT, script

VERIFIER = script("check-hardware-evidence")


def report() -> dict[str, Any]:
    """Evidence that holds, of the commit at hand."""
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    counts = {"exit_code": 0, "passed": 3, "failed": 0, "skipped": 0, "seconds": 1.0}
    return {
        "schema": VERIFIER.SCHEMA,
        "path": VERIFIER.REPORT,
        "candidate_commit": head or "unknown",
        "device": {"name": "card", "driver": "1.0", "runtime": "13.0"},
        "environment": {"python": "3.12", "numpy": "2.4", "cupy": "14.2"},
        "checks": [{"name": name, **counts} for name in VERIFIER.REQUIRED],
    }


@pytest.mark.clause("g6-p11-evidence")
def test_evidence_that_holds(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "evidence.json"
    file.write_text(json.dumps(report()), encoding="utf-8")
    assert VERIFIER.main([str(file)]) == 0
    assert "ran every required check" in capsys.readouterr().out


@pytest.mark.clause("g6-p11-evidence")
@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("schema",), "other", "E_SCHEMA"),
        (("path",), "elsewhere.json", "E_PATH"),
        (("device", "driver"), " ", "E_MACHINE"),
        (("environment",), None, "E_MACHINE"),
        (("checks",), {}, "E_CHECK"),
        (("checks", 0, "name"), "another", "E_CHECK"),
        (("checks", 1, "name"), "conformance", "E_CHECK"),
        (("checks", 0, "passed"), True, "E_CHECK"),
        (("checks", 2, "exit_code"), 1, "E_FAILED"),
        (("checks", 2, "failed"), 1, "E_FAILED"),
        (("checks", 3, "skipped"), 1, "E_SKIPPED"),
        (("checks", 3, "passed"), 0, "E_SKIPPED"),
        (("candidate_commit",), "", "E_COMMIT"),
    ],
)
def test_each_fault_is_seen(path: tuple[Any, ...], value: Any, code: str) -> None:
    changed: Any = copy.deepcopy(report())
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    found = [*VERIFIER.faults(changed), *VERIFIER.provenance(changed)]
    assert {line.partition(":")[0] for line in found} == {code}


def test_what_cannot_be_read_is_no_evidence(tmp_path: Path, capsys: Any) -> None:
    assert VERIFIER.main([str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().out.startswith("E_REPORT")
    assert list(VERIFIER.faults([])) == ["E_SCHEMA: the report is no object"]
