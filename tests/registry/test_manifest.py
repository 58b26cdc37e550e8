"""One fault each in the manifest itself: the exact code, with the exact fields.

These need no commit: a manifest is checked by itself first, whatever Git says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.registry.command_cases import ARTIFACTS, COMMANDS
from tests.registry.fault_cases import GRAPH, SHAPE, STATES, Change
from tests.registry.support import ACTIVE, CHECKER, DOCUMENT, NAME, Ledger, only, run

CASES = [*SHAPE, *GRAPH, *STATES, *COMMANDS, *ARTIFACTS]


@pytest.mark.clause("v2-diagnostics-one-fault", "v2-diagnostics-coverage")
@pytest.mark.parametrize(
    ("code", "fields", "change"),
    CASES,
    ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)],
)
def test_one_fault_gives_one_code_with_its_exact_fields(
    plain: Ledger, code: str, fields: dict[str, Any], change: Change
) -> None:
    change(plain)
    plain.save()
    only(plain.check(), code, fields)


@pytest.mark.clause("v2-row-shape", "v2-state-tag", "v2-artifact-spec")
def test_a_sound_manifest_gives_no_diagnostic(plain: Ledger) -> None:
    plain.row("p0-a")["artifact"]["selector"] = "TestB.test_two"
    plain.row("p2-a")["artifact"] |= {"path": "docs/page.md", "selector": "an-anchor"}
    plain.row("p1-a")["artifact"] |= {
        "selector": "measured.ns",
        "more_paths": ["docs/page.md"],
    }
    plain.save()
    said = plain.check()
    assert (said.status, said.told["diagnostics"], said.error) == (0, [], "")


@pytest.mark.clause("v2-command-spec", "v2-command-sharing")
def test_rows_may_share_a_command_whose_whole_value_is_the_same(plain: Ledger) -> None:
    for part in ("artifact", "command"):
        plain.row("p2-a")[part] = plain.row("p0-a")[part]
    plain.save()
    assert plain.check().status == 0


@pytest.mark.clause("v2-no-fabricated-artifact")
def test_a_deferred_row_needs_no_file_and_an_active_one_does(plain: Ledger) -> None:
    assert not (plain.folder / "tests/test_c.py").exists()
    assert plain.check().status == 0
    plain.activate("p3-a", "p9-a", "p9-b")
    plain.save()
    said = plain.check()
    assert set(said.codes) == {"E_ARTIFACT_MISSING"}
    assert [each["fields"]["path"] for each in said.told["diagnostics"]] == [
        "tests/test_c.py",
        "tests/test_d.py",
        "tests/test_d.py",
    ]


@pytest.mark.clause("v2-v1-rejected")
def test_a_manifest_of_version_1_is_refused_by_its_marker(plain: Ledger) -> None:
    old = Path(__file__).with_name("fixtures") / "v1.toml"
    assert old.read_text(encoding="utf-8").count("=") == 1
    plain.put(NAME, old.read_text(encoding="utf-8"))
    only(
        plain.check(),
        "E_MANIFEST_SCHEMA",
        {
            "manifest": NAME,
            "expected": DOCUMENT["schema"],
            "actual": "tenferro.storage-ownership-contracts.v1",
        },
    )


@pytest.mark.parametrize(
    "content",
    [b"obligations = [", b"\xff\xfe", b"a = 1\na = 2", b"a = " + b"[" * 100_000],
)
def test_what_is_no_toml_is_said_to_be_none(plain: Ledger, content: bytes) -> None:
    (plain.folder / NAME).write_bytes(content)
    only(plain.check(), "E_MANIFEST_SYNTAX", {"manifest": NAME})


def test_a_manifest_or_a_root_that_is_not_there(plain: Ledger, tmp_path: Path) -> None:
    fields = {"manifest": "scripts/other.toml"}
    only(plain.check("--manifest", "scripts/other.toml"), "E_MANIFEST_MISSING", fields)
    nowhere = str(tmp_path / "nowhere")
    said = run(CHECKER, "--root", nowhere, "--diagnostics-json")
    only(said, "E_ROOT", {"root": nowhere})


@pytest.mark.clause("v2-revision-number")
def test_a_manifest_without_a_revision_is_the_first(plain: Ledger) -> None:
    del plain.document["registry"]["revision"]
    plain.save()
    said = run(CHECKER, "--root", str(plain.folder), "--summary-json")
    assert said.status == 0
    assert said.told["revision"] == 1


@pytest.mark.clause("v2-terminality-derived", "v2-unit-complete")
def test_without_a_receipt_nothing_is_complete(plain: Ledger) -> None:
    said = run(CHECKER, "--root", str(plain.folder), "--summary-json")
    units = said.told["units"]
    assert sorted(n for unit in units.values() for n in unit["active"]) == ACTIVE
    assert said.told["active"] == len(ACTIVE)
    assert not any(unit["complete"] for unit in units.values())
    assert said.told["terminal"] is False
