"""From one commit to the next: promotions, revisions, and everything else refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.registry.support import NAME, Ledger, deferred, git, only, row

CUTOVER = ("p3-a", "p9-a", "p9-b")


@pytest.fixture
def step(ledger: Ledger) -> Any:
    """Commit what was changed and compare it with the commit before."""
    base = ledger.head()
    for file in ("test_c", "test_d", "test_e"):
        ledger.put(f"tests/{file}.py", "def test_three():\n    pass\n")

    def compare(revision: str = base) -> Any:
        ledger.commit()
        return ledger.check("--base-commit", revision)

    return compare


@pytest.mark.clause("v2-promotion-only-state")
def test_a_promotion_flips_tags_and_nothing_else(ledger: Ledger, step: Any) -> None:
    ledger.activate(*CUTOVER)
    assert step().status == 0


@pytest.mark.clause("v2-cutover-cohort", "v2-cutover-evidence")
def test_a_unit_and_what_follows_it_may_be_promoted_together(
    ledger: Ledger, step: Any
) -> None:
    ledger.activate(*CUTOVER, "p6-a")
    assert step().status == 0


@pytest.mark.clause("v2-cutover-cohort")
def test_one_member_of_a_cohort_is_not_promoted_alone(
    ledger: Ledger, step: Any
) -> None:
    ledger.activate("p9-a", "p9-b")
    split = {"active": ["p9-a", "p9-b"], "deferred": ["p3-a"]}
    only(step(), "E_COHORT_PARTIAL", {"cohort_id": "CUT"} | split)


@pytest.mark.clause("v2-direct-prerequisite")
def test_a_unit_is_not_promoted_before_its_direct_source(
    ledger: Ledger, step: Any
) -> None:
    ledger.activate("p6-a")
    only(step(), "E_PREREQUISITE", {"target": "P6", "source": "CUT"})


def test_nothing_at_all_may_change(ledger: Ledger, step: Any) -> None:
    assert step().status == 0


CHANGES: list[tuple[str, tuple[str, ...], Any, Any]] = [
    ("gates", ("gates",), ["G1"], ["G2"]),
    ("artifact.path", ("artifact", "path"), "tests/test_a.py", "docs/page.md"),
    ("artifact.more_paths", ("artifact", "more_paths"), [], ["docs/page.md"]),
    ("artifact.kind", ("artifact", "kind"), "contract-test", "report"),
    ("artifact.selector", ("artifact", "selector"), None, "test_one"),
    ("command.cwd", ("command", "cwd"), ".", "tests"),
]


@pytest.mark.clause("v2-promotion-only-state")
@pytest.mark.parametrize(("field", "path", "old", "new"), CHANGES)
def test_a_value_of_an_active_row_is_never_rewritten(
    ledger: Ledger,
    step: Any,
    field: str,
    path: tuple[str, ...],
    old: Any,
    new: Any,
) -> None:
    place = ledger.row("p0-a")
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = new
    if field == "command.cwd":  # the same file from there
        ledger.put("tests/tests/test_a.py", "def test_one():\n    pass\n")
    fields = {"obligation_id": "p0-a", "field": field, "expected": old, "actual": new}
    only(step(), "E_OBLIGATION_CHANGED", fields)


@pytest.mark.clause("v2-promotion-only-state")
def test_a_row_does_not_move_to_another_unit(ledger: Ledger, step: Any) -> None:
    ledger.row("p1-b")["unit"] = "P2"
    changed = {"field": "unit", "expected": "P1", "actual": "P2"}
    only(step(), "E_OBLIGATION_CHANGED", {"obligation_id": "p1-b"} | changed)


@pytest.mark.clause("v2-diagnostics-binding", "v2-promotion-only-state")
@pytest.mark.parametrize(
    ("argv", "index", "expected", "actual"),
    [
        (["pytest", "-x", "tests/test_a.py::test_one"], 1, "-q", "-x"),
        (["pytest", "-q", "tests/test_a.py"], 2, "tests/test_a.py::test_one", None),
        (["pytest", "-q", "tests/test_a.py::test_one", "-x"], 3, None, "-x"),
    ],
)
def test_an_argv_names_the_first_element_that_differs(
    ledger: Ledger, step: Any, argv: list[str], index: int, expected: Any, actual: Any
) -> None:
    ledger.row("p0-a")["command"]["argv"] = argv
    fields = {
        "command_id": "cmd-p0-a",
        "index": index,
        "expected": expected,
        "actual": actual or "tests/test_a.py",
    }
    only(step(), "E_COMMAND_ARGV", fields)


@pytest.mark.clause("v2-promotion-only-state")
def test_a_promoted_row_keeps_the_value_that_it_promised(
    ledger: Ledger, step: Any
) -> None:
    ledger.activate(*CUTOVER)
    ledger.row("p3-a")["artifact"]["path"] = "tests/test_e.py"
    changed = {"expected": "tests/test_c.py", "actual": "tests/test_e.py"}
    fields = {"obligation_id": "p3-a", "field": "artifact.path"} | changed
    only(step(), "E_OBLIGATION_CHANGED", fields)


@pytest.mark.clause("v2-revision-scope")
def test_a_deferred_row_does_not_change_within_a_revision(
    ledger: Ledger, step: Any
) -> None:
    ledger.row("p3-a")["gates"] = ["G2"]
    changed = {"field": "gates", "expected": ["G1"], "actual": ["G2"]}
    only(step(), "E_OBLIGATION_CHANGED", {"obligation_id": "p3-a"} | changed)


@pytest.mark.clause("v2-promotion-only-state")
def test_an_active_row_does_not_become_deferred(ledger: Ledger, step: Any) -> None:
    ledger.row("p2-a")["state"] = deferred("P2")
    only(step(), "E_DEMOTION", {"obligation_id": "p2-a"})


@pytest.mark.clause("v2-promotion-only-state", "v2-revision-scope")
@pytest.mark.parametrize("revision", [1, 2])
def test_rows_are_neither_added_nor_removed(
    ledger: Ledger, step: Any, revision: int
) -> None:
    ledger.document["registry"]["revision"] = revision
    more = row("p6-b", "P6", ["pytest", "t.py"], "t.py", state=deferred("P6"))
    ledger.document["obligations"].append(more)
    only(step(), "E_MEMBERSHIP", {"obligation_id": "p6-b", "change": "added"})
    ledger.document["obligations"].remove(more)
    ledger.document["obligations"].remove(ledger.row("p9-b"))
    only(step(), "E_MEMBERSHIP", {"obligation_id": "p9-b", "change": "removed"})


@pytest.mark.clause("v2-promotion-only-state")
def test_another_id_is_another_obligation(ledger: Ledger, step: Any) -> None:
    ledger.row("p9-b")["id"] = "p9-c"
    said = step()
    assert said.codes == ["E_MEMBERSHIP", "E_MEMBERSHIP"]
    assert [each["fields"] for each in said.told["diagnostics"]] == [
        {"obligation_id": "p9-b", "change": "removed"},
        {"obligation_id": "p9-c", "change": "added"},
    ]


@pytest.mark.clause("v2-promotion-only-state", "v2-revision-scope")
@pytest.mark.parametrize("revision", [1, 2])
@pytest.mark.parametrize("field", ["units", "gates", "edges", "cohorts"])
def test_the_graph_is_frozen(
    ledger: Ledger, step: Any, field: str, revision: int
) -> None:
    registry = ledger.document["registry"]
    registry["revision"] = revision
    match field:
        case "units":
            registry["units"][0]["name"] = "another"
        case "gates":
            registry["gates"].append({"id": "G3", "name": "third"})
        case "edges":
            registry["edges"].append({"from": "P0", "to": "P6"})
        case "cohorts":
            registry["cohorts"][0]["members"].reverse()
    only(step(), "E_REGISTRY_CHANGED", {"field": field})


@pytest.mark.clause("v2-revision-scope", "v2-revision-number")
def test_a_revision_rewrites_what_is_deferred(ledger: Ledger, step: Any) -> None:
    ledger.document["registry"]["revision"] = 2
    later = ledger.row("p3-a")
    later["gates"] = ["G1", "G2"]
    later["artifact"] = {"id": "new", "kind": "report", "path": "docs/new.json"}
    later["command"] |= {"id": "c", "argv": ["pytest", "t/n.py"], "artifact_id": "new"}
    assert step().status == 0


@pytest.mark.clause("v2-revision-scope")
@pytest.mark.parametrize(
    ("name", "field", "old", "new"),
    [("p0-a", "gates", ["G1"], ["G2"]), ("p9-b", "unit", "P9", "P3")],
)
def test_a_revision_rewrites_no_evidence_and_no_ownership(
    ledger: Ledger, step: Any, name: str, field: str, old: Any, new: Any
) -> None:
    ledger.document["registry"]["revision"] = 2
    ledger.row(name)[field] = new
    if field == "unit":
        ledger.row(name)["state"]["activation_unit"] = new
    fields = {"obligation_id": name, "field": field, "expected": old, "actual": new}
    only(step(), "E_OBLIGATION_CHANGED", fields)


@pytest.mark.clause("v2-revision-number")
@pytest.mark.parametrize("revision", [3, 4])
def test_a_revision_rises_by_one(ledger: Ledger, step: Any, revision: int) -> None:
    ledger.document["registry"]["revision"] = revision
    fields = {"base_revision": 1, "candidate_revision": revision}
    only(step(), "E_REVISION_STEP", fields)


@pytest.mark.clause("v2-revision-number")
def test_a_revision_does_not_fall(ledger: Ledger) -> None:
    ledger.document["registry"]["revision"] = 2
    ledger.commit()
    del ledger.document["registry"]["revision"]  # 1
    ledger.commit()
    said = ledger.check("--base-commit", "HEAD~1")
    fields = {"base_revision": 2, "candidate_revision": 1}
    only(said, "E_REVISION_STEP", fields)


@pytest.mark.clause("v2-revision-number")
def test_a_revision_does_not_promote(ledger: Ledger) -> None:
    ledger.row("p2-a")["state"] = deferred("P2")
    base = ledger.commit()
    ledger.document["registry"]["revision"] = 2
    ledger.activate("p2-a")
    ledger.commit()
    said = ledger.check("--base-commit", base)
    only(said, "E_REVISION_PROMOTES", {"obligation_id": "p2-a"})


# ---- the base


@pytest.mark.clause("v2-base-revision")
@pytest.mark.parametrize("revision", ["main", "HEAD", "HEAD~0", "some-tag"])
def test_a_base_is_any_name_of_a_commit(ledger: Ledger, revision: str) -> None:
    git(ledger.folder, "tag", "-am", "annotated", "some-tag")
    said = ledger.check("--base-commit", revision)
    assert said.status == 0


@pytest.mark.clause("v2-base-revision")
@pytest.mark.parametrize("revision", ["", "0" * 40, "nothing", "HEAD:docs/r.json"])
def test_a_base_that_names_no_commit(ledger: Ledger, revision: str) -> None:
    said = ledger.check("--base-commit", revision)
    only(said, "E_BASE_UNRESOLVED", {"revision": revision})


@pytest.mark.clause("v2-base-revision")
def test_a_base_beside_the_candidate(ledger: Ledger) -> None:
    git(ledger.folder, "checkout", "-qb", "side")
    side = ledger.commit()
    git(ledger.folder, "checkout", "-q", "main")
    fields = {"base_commit": side, "candidate_commit": ledger.head()}
    only(ledger.check("--base-commit", "side"), "E_BASE_NOT_ANCESTOR", fields)


@pytest.mark.clause("v2-base-revision")
def test_a_base_without_a_manifest_has_its_own_code(ledger: Ledger) -> None:
    git(ledger.folder, "rm", "-q", NAME)
    git(ledger.folder, "commit", "-qm", "none")
    base = ledger.head()
    ledger.commit()
    said = ledger.check("--base-commit", base)
    only(said, "E_BASE_MANIFEST_MISSING", {"base_commit": base, "manifest": NAME})


@pytest.mark.clause("v2-base-revision", "v2-v1-rejected")
@pytest.mark.parametrize("state", ["old", "partial"])
def test_a_base_whose_manifest_is_not_valid(ledger: Ledger, state: str) -> None:
    if state == "old":
        ledger.document["schema"] = "tenferro.storage-ownership-contracts.v1"
    else:
        ledger.activate("p3-a")
    base = ledger.commit()
    fresh = Ledger(ledger.folder)
    fresh.commit()
    said = fresh.check("--base-commit", base)
    only(said, "E_BASE_MANIFEST_INVALID", {"base_commit": base, "manifest": NAME})
