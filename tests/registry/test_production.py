"""The registry of this repository: it is sound, it says what the contract asks for, and
its real verifiers run.

Everything that can be counted is taken from the manifest. What is written out here is
what the contract names: the graph, and obligations by name.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.registry.support import (
    CHECKER,
    NAME,
    Ledger,
    deferred,
    git,
    only,
    run,
)
from tests.scripts import ROOT, SCRIPTS

TEXT = (ROOT / NAME).read_text(encoding="utf-8")
DOCUMENT: dict[str, Any] = tomllib.loads(TEXT)
ROWS: list[dict[str, Any]] = DOCUMENT["obligations"]
REGISTRY = DOCUMENT["registry"]
ACTIVE = sorted(
    (r for r in ROWS if r["state"]["kind"] == "active"), key=lambda r: r["id"]
)

# The graph of the contract: what each node follows directly.
FOLLOWS = {
    "P0": set(),
    "P1": set(),
    "P2": {"P1"},
    "P4": {"P2"},
    "P5": {"P4"},
    "CUTOVER": {"P0", "P5"},
    "P6": {"CUTOVER"},
    "P7": {"P6"},
    "P8": {"P6"},
    "P10": {"P7", "P8"},
    "P13-freeze": {"P10"},
    "P11": {"P13-freeze"},
    "P12": {"P13-freeze"},
    "P13-closure": {"P11", "P12"},
}
# Obligations that the contract names, with their unit and at least these gates.
NAMED = {
    "p0-control-plane": ("P0", set()),
    "p1-ledger": ("P1", set()),
    "p1-contract-document": ("P1", set()),
    "p1-api-parity": ("P1", {"G4"}),
    "p1-element-access-baseline": ("P1", {"G4"}),
    "p2-root-claims": ("P2", {"G1"}),
    "p3-host-ownership": ("P3", {"G1", "G4"}),
    "p3-static-rank-preservation": ("P3", {"G4"}),
    "p3-as-view-zero-allocation": ("P3", {"G4"}),
    "p4-access-retirement": ("P4", {"G1"}),
    "p4-prepared-borrow-recovery": ("P4", {"G1", "G4"}),
    "p4-event-retirement": ("P4", {"G1", "G3"}),
    "p4-traversal-resolution-counts": ("P4", {"G4"}),
    "p4-prepared-access-api": ("P4", {"G4"}),
    "p5-allocation-group": ("P5", {"G2"}),
    "p6-reinterpret": ("P6", {"G4"}),
    "p6-reinterpret-rank-policy": ("P6", {"G4"}),
    "p10-element-hot-path-structure": ("P10", {"G4"}),
    "p10-storage-traversal-performance": ("P10", {"G4"}),
    "p10-static-rank-codegen": ("P10", {"G4"}),
    "p12-element-access-guide": ("P12", {"G6"}),
    "p12-element-access-examples": ("P12", {"G6"}),
}


def row(name: str) -> dict[str, Any]:
    (found,) = (r for r in ROWS if r["id"] == name)
    return found


@pytest.mark.clause("v2-suite-derives-counts", "v2-sole-authority")
def test_the_manifest_is_sound_and_counts_follow_from_it() -> None:
    said = run(CHECKER, "--summary-json")
    assert said.status == 0
    told = said.told
    assert told["obligations"] == len(ROWS)
    assert told["active"] == len(ACTIVE)
    assert told["revision"] == REGISTRY["revision"]
    assert list(told["units"]) == [unit["id"] for unit in REGISTRY["units"]]
    for name, unit in told["units"].items():
        owned = [r["id"] for r in ROWS if r["unit"] == name]
        assert sorted(unit["active"] + unit["deferred"]) == sorted(owned)
    assert told["terminal"] is False  # no receipt was shown


@pytest.mark.clause("v2-sole-authority")
def test_the_tools_name_no_obligation_unit_or_gate() -> None:
    names = {r["id"] for r in ROWS} | {u["id"] for u in REGISTRY["units"]}
    names |= {g["id"] for g in REGISTRY["gates"]} | {"CUTOVER"}
    for file in [*SCRIPTS.glob("*-storage-ownership-*.py"), *SCRIPTS.glob("*/*.py")]:
        used = set(re.findall(r"[\w-]+", file.read_text(encoding="utf-8")))
        assert not used & names, file


@pytest.mark.clause("v2-graph-edges")
def test_the_graph_is_that_of_the_contract() -> None:
    (cohort,) = REGISTRY["cohorts"]
    assert (cohort["id"], set(cohort["members"])) == ("CUTOVER", {"P3", "P9"})
    units = {unit["id"] for unit in REGISTRY["units"]}
    assert units - {"P3", "P9"} | {"CUTOVER"} == FOLLOWS.keys()
    edges = Counter((edge["from"], edge["to"]) for edge in REGISTRY["edges"])
    assert edges == Counter((s, t) for t, sources in FOLLOWS.items() for s in sources)


@pytest.mark.clause("v2-registry-once")
def test_ids_stand_once_and_rows_repeat_nothing() -> None:
    names = [u["id"] for u in REGISTRY["units"]]
    assert sorted(names) == sorted(
        [f"P{n}" for n in range(13)] + ["P13-freeze", "P13-closure"]
    )
    assert [g["id"] for g in REGISTRY["gates"]] == [f"G{n}" for n in range(1, 8)]
    assert {gate for r in ROWS for gate in r["gates"]} == {f"G{n}" for n in range(1, 8)}
    assert not re.search(r"#\d|issue|phase", TEXT.replace("# ----", ""), re.IGNORECASE)


# The twelve of them that are about reaching elements.
ABOUT_ACCESS = """
p1-element-access-baseline p3-static-rank-preservation p3-as-view-zero-allocation
p4-traversal-resolution-counts p4-prepared-access-api p6-reinterpret
p6-reinterpret-rank-policy p10-element-hot-path-structure
p10-storage-traversal-performance p10-static-rank-codegen p12-element-access-guide
p12-element-access-examples
""".split()


@pytest.mark.clause("g4-ledger-rows")
def test_the_twelve_obligations_about_access_are_rows_with_real_artifacts() -> None:
    assert len(ABOUT_ACCESS) == 12
    assert set(ABOUT_ACCESS) <= NAMED.keys()
    for name in ABOUT_ACCESS:
        found = row(name)
        unit = name.partition("-")[0].upper()
        assert found["unit"] == unit
        assert (ROOT / found["artifact"]["path"]).is_file(), name
        assert found["command"]["artifact_id"] == found["artifact"]["id"]


@pytest.mark.clause("v2-canonical-rows")
@pytest.mark.parametrize("name", NAMED)
def test_what_the_contract_names_is_a_row(name: str) -> None:
    unit, gates = NAMED[name]
    assert row(name)["unit"] == unit
    assert gates <= set(row(name)["gates"])


@pytest.mark.clause("v2-p1-rows-active")
def test_the_first_rows_are_active() -> None:
    first = {r["id"]: r["state"]["kind"] for r in ROWS if r["unit"] == "P1"}
    assert first == dict.fromkeys(
        (name for name, (unit, _) in NAMED.items() if unit == "P1"), "active"
    )


@pytest.mark.clause("v2-no-fabricated-artifact", "v2-canonical-rows")
@pytest.mark.parametrize("each", ACTIVE, ids=lambda each: each["id"])
def test_evidence_is_about_this_package(each: dict[str, Any]) -> None:
    """Files of a row are there; none is a fixture; tests among them use the package."""
    artifact = each["artifact"]
    files = [
        ROOT / path for path in [artifact["path"], *artifact.get("more_paths", [])]
    ]
    for file in files:
        assert file.stat().st_size > 0
        assert "fixtures" not in file.parts
    tests = [
        file.read_text(encoding="utf-8") for file in files if "tests" in file.parts
    ]
    assert not tests or any(
        "import tenferro_ad" in text or "from tenferro_ad" in text for text in tests
    )


# ---- in a repository of its own, with the real verifiers


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This repository as one commit.

    Its history begins there, as in a shallow clone; verifiers that look for an earlier
    commit can tell.
    """
    folder = tmp_path_factory.mktemp("production") / "repository"
    folder.mkdir()
    for name in ("benchmarks", "docs", "examples", "scripts", "tenferro_ad", "tests"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignore)
    for name in ("README.md", "Makefile", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, folder / name)
    site = folder / "build" / "docs"  # not built here: one page stands for it
    site.mkdir(parents=True)
    (site / "index.html").write_text("<p>A page.</p>\n", encoding="utf-8")
    git(folder, "init", "-q", "--template=", "-b", "main")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "everything")
    head = git(folder, "rev-parse", "HEAD")
    (folder / ".git" / "shallow").write_text(head + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def production(copied: Path, tmp_path: Path) -> Ledger:
    shutil.copytree(copied, tmp_path / "repository")
    made = Ledger(tmp_path / "repository")
    made.document = copy.deepcopy(DOCUMENT)
    return made


@pytest.mark.clause("v2-runner-argv-test", "v2-suite-derives-counts")
def test_real_verifiers_run_and_every_other_argv_is_started_as_it_is_written(
    copied: Path, stand_ins: Any, tmp_path: Path
) -> None:
    production, out = Ledger(copied), tmp_path / "receipt.json"
    said = production.execute(out)
    assert (said.status, said.codes) == (0, [])
    expected = [
        r["command"]["argv"] for r in ACTIVE if r["command"]["kind"] != "python-script"
    ]
    once = [argv for n, argv in enumerate(expected) if argv not in expected[:n]]
    assert [argv for _, argv in stand_ins.calls()] == once
    log = json.loads(out.read_text(encoding="utf-8"))
    assert [e["obligation_id"] for e in log["executions"]] == [r["id"] for r in ACTIVE]
    assert production.check("--receipt", str(out)).status == 0


@pytest.mark.clause("v2-diagnostics-binding", "v2-promotion-only-state")
def test_each_edit_of_an_active_row_is_told_exactly(production: Ledger) -> None:
    base = production.head()
    name = ACTIVE[-1]["id"]
    original = copy.deepcopy(production.document)

    def edited(change: Any) -> Any:
        production.document = copy.deepcopy(original)
        change(production.row(name))
        production.commit()
        return production.check("--base-commit", base)

    argv = ACTIVE[-1]["command"]["argv"]
    fields = {"command_id": ACTIVE[-1]["command"]["id"], "index": len(argv)}
    said = edited(lambda r: r["command"]["argv"].append("-x"))
    only(said, "E_COMMAND_ARGV", fields | {"expected": None, "actual": "-x"})
    for field, old, new in (
        ("artifact.path", ACTIVE[-1]["artifact"]["path"], "README.md"),
        ("unit", ACTIVE[-1]["unit"], "P0"),
        ("gates", ACTIVE[-1]["gates"], ["G6", "G7"]),
    ):

        def change(r: dict[str, Any], field: str = field, new: Any = new) -> None:
            *above, last = field.split(".")
            for key in above:
                r = r[key]
            r[last] = new

        said = edited(change)
        told = {"field": field, "expected": old, "actual": new}
        assert said.codes in (["E_OBLIGATION_CHANGED"], ["E_PREREQUISITE"])
        if said.codes == ["E_OBLIGATION_CHANGED"]:
            only(said, "E_OBLIGATION_CHANGED", {"obligation_id": name} | told)


@pytest.mark.clause("v2-cutover-cohort", "v2-direct-prerequisite")
def test_states_of_the_real_graph_are_held_to_it(production: Ledger) -> None:
    members = [r["id"] for r in ROWS if r["unit"] in {"P3", "P9"}]
    for unit in ("P0", "P1", "P2", "P4", "P5"):
        production.activate(*(r["id"] for r in ROWS if r["unit"] == unit))
    for r in production.document["obligations"]:
        if r["unit"] not in {"P0", "P1", "P2", "P4", "P5"}:
            r["state"] = deferred(r["unit"])
    production.activate(members[0])
    production.save()
    split = {"active": members[:1], "deferred": sorted(members[1:])}
    said = production.check()
    only(said, "E_COHORT_PARTIAL", {"cohort_id": "CUTOVER"} | split)
    production.activate(*members)
    production.row("p0-control-plane")["state"] = deferred("P0")
    production.save()
    only(production.check(), "E_PREREQUISITE", {"target": "CUTOVER", "source": "P0"})
