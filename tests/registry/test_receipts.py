"""Receipts: what a checker believes, field by field, and for which tree."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from tests.registry.support import ACTIVE, CHECKER, NAME, Ledger, git, only, run

SCHEMA = "tenferro.storage-ownership-receipt.v1"


class Log:
    """The receipt that a runner would have written for this registry."""

    def __init__(self, ledger: Ledger, file: Path) -> None:
        self.ledger, self.file, self.base = ledger, file, None
        self.log: Any = {
            "schema": SCHEMA,
            "candidate_commit": ledger.head(),
            "base_commit": None,
            "executions": [self.execution(name) for name in ACTIVE],
        }

    def execution(self, name: str) -> dict[str, Any]:
        row = self.ledger.row(name)
        return {
            "obligation_id": name,
            "argv": list(row["command"]["argv"]),
            "cwd": row["command"]["cwd"],
            "artifact_path": row["artifact"]["path"],
            "exit_code": 0,
        }

    def check(self, *arguments: str) -> Any:
        text = self.log if isinstance(self.log, str) else json.dumps(self.log)
        self.file.write_text(text, encoding="utf-8")
        return self.ledger.check("--receipt", str(self.file), *arguments)


@pytest.fixture
def log(ledger: Ledger, tmp_path: Path) -> Log:
    return Log(ledger, tmp_path / "receipt.json")


@pytest.mark.clause("v2-receipt-top-level", "v2-receipt-executions")
def test_a_receipt_of_this_candidate_is_believed(log: Log) -> None:
    said = log.check()
    assert (said.status, said.codes) == (0, [])


@pytest.mark.clause("v2-unit-complete", "v2-terminality-derived")
def test_units_are_complete_by_tags_and_successful_executions(log: Log) -> None:
    log.check()
    root = ("--root", str(log.ledger.folder), "--receipt", str(log.file))
    told = run(CHECKER, *root, "--summary-json").told
    complete = {name for name, unit in told["units"].items() if unit["complete"]}
    assert complete == {"P0", "P1", "P2"}
    assert told["terminal"] is False
    assert told["candidate_commit"] == log.ledger.head()
    assert told["base_commit"] is None


@pytest.mark.clause("v2-terminality-derived")
def test_a_ledger_is_terminal_when_every_row_is_active_and_ran(
    ledger: Ledger, tmp_path: Path
) -> None:
    for file in ("test_c", "test_d", "test_e"):
        ledger.put(f"tests/{file}.py", "def test_three():\n    pass\n")
    names = [row["id"] for row in ledger.document["obligations"]]
    ledger.activate(*names)
    ledger.commit()
    log = Log(ledger, tmp_path / "receipt.json")
    log.log["executions"] = [log.execution(name) for name in sorted(names)]
    assert log.check().status == 0
    root = ("--root", str(ledger.folder), "--receipt", str(log.file))
    assert run(CHECKER, *root, "--summary-json").told["terminal"] is True


@pytest.mark.clause("v2-receipt-top-level")
@pytest.mark.parametrize(
    "field", ["schema", "candidate_commit", "base_commit", "executions"]
)
@pytest.mark.parametrize("how", ["missing", "mistyped"])
def test_every_field_of_the_top_is_there_with_its_type(
    log: Log, field: str, how: str
) -> None:
    if how == "missing":
        del log.log[field]
    else:
        log.log[field] = 7
    only(log.check(), "E_RECEIPT_SHAPE", {"location": "receipt", "field": field})


@pytest.mark.clause("v2-receipt-executions")
@pytest.mark.parametrize(
    "field", ["obligation_id", "argv", "cwd", "artifact_path", "exit_code"]
)
@pytest.mark.parametrize("how", ["missing", "mistyped"])
def test_every_field_of_an_execution_is_there_with_its_type(
    log: Log, field: str, how: str
) -> None:
    each = log.log["executions"][1]
    if how == "missing":
        del each[field]
    else:
        each[field] = True
    only(log.check(), "E_RECEIPT_SHAPE", {"location": "executions[1]", "field": field})


@pytest.mark.clause("v2-receipt-top-level", "v2-receipt-executions")
def test_ids_that_the_row_holds_are_not_repeated(log: Log) -> None:
    good = copy.deepcopy(log.log)
    log.log["executions"][0]["command_id"] = "cmd-p0-a"
    fields = {"location": "executions[0]", "field": "command_id"}
    only(log.check(), "E_RECEIPT_SHAPE", fields)
    log.log = good | {"checksum": "0"}
    fields = {"location": "receipt", "field": "checksum"}
    only(log.check(), "E_RECEIPT_SHAPE", fields)


@pytest.mark.clause("v2-terminality-derived")
@pytest.mark.parametrize("field", ["terminal", "status", "complete"])
def test_a_receipt_cannot_declare_that_anything_is_final(log: Log, field: str) -> None:
    good = copy.deepcopy(log.log)
    log.log[field] = True
    fields = {"location": "receipt", "field": field}
    only(log.check(), "E_RECEIPT_TERMINALITY", fields)
    log.log = good
    log.log["executions"][2][field] = True
    fields = {"location": "executions[2]", "field": field}
    only(log.check(), "E_RECEIPT_TERMINALITY", fields)


@pytest.mark.parametrize("text", ["[]", '{"schema": 1}', '{"executions": [1]}'])
def test_something_else_is_no_receipt(log: Log, text: str) -> None:
    log.log = text
    assert set(log.check().codes) == {"E_RECEIPT_SHAPE"}


def test_another_schema_or_no_json_is_refused(log: Log, ledger: Ledger) -> None:
    log.log["schema"] = "tenferro.storage-ownership-receipt.v2"
    fields = {"expected": SCHEMA, "actual": log.log["schema"]}
    only(log.check(), "E_RECEIPT_SCHEMA", fields)
    for text in ("{", "", "[" * 100_000, '{"executions": [], "executions": []}'):
        log.log = text
        only(log.check(), "E_RECEIPT_UNREADABLE", {"receipt": str(log.file)})
    log.file.unlink()
    said = ledger.check("--receipt", str(log.file))
    only(said, "E_RECEIPT_UNREADABLE", {"receipt": str(log.file)})


@pytest.mark.clause("v2-receipt-top-level", "v2-candidate-is-head")
@pytest.mark.parametrize("commit", ["HEAD", "main", "0" * 40])
def test_a_receipt_is_bound_to_the_object_of_head(log: Log, commit: str) -> None:
    head = log.log["candidate_commit"]
    log.log["candidate_commit"] = commit
    only(log.check(), "E_RECEIPT_CANDIDATE", {"expected": head, "actual": commit})


@pytest.mark.clause("v2-candidate-is-head")
def test_a_receipt_of_the_commit_before_is_worth_nothing(log: Log) -> None:
    before = log.log["candidate_commit"]
    head = log.ledger.commit()
    only(log.check(), "E_RECEIPT_CANDIDATE", {"expected": head, "actual": before})


@pytest.mark.clause("v2-base-revision")
def test_a_receipt_is_bound_to_the_object_of_its_base(log: Log) -> None:
    base = log.ledger.head()
    log.log |= {"candidate_commit": log.ledger.commit(), "base_commit": base}
    assert log.check("--base-commit", "HEAD~1").status == 0
    only(log.check(), "E_RECEIPT_BASE", {"expected": None, "actual": base})
    log.log["base_commit"] = "HEAD~1"  # an alias is no object id
    fields = {"expected": base, "actual": "HEAD~1"}
    only(log.check("--base-commit", "HEAD~1"), "E_RECEIPT_BASE", fields)
    log.log["base_commit"] = None
    fields = {"expected": base, "actual": None}
    only(log.check("--base-commit", "HEAD~1"), "E_RECEIPT_BASE", fields)


@pytest.mark.clause("v2-diagnostics-binding")
@pytest.mark.parametrize(
    ("field", "actual"),
    [
        ("argv", ["pytest", "-q", "tests/test_a.py"]),
        ("argv", ["pytest", "-q", "tests/test_a.py::test_one", "-x"]),
        ("cwd", "tests"),
        ("artifact_path", "docs/r.json"),
    ],
)
def test_each_field_of_an_execution_is_that_of_its_row(
    log: Log, field: str, actual: Any
) -> None:
    expected = log.log["executions"][0][field]
    log.log["executions"][0][field] = actual
    told = {"field": field, "expected": expected, "actual": actual}
    only(log.check(), "E_RECEIPT_BINDING", {"obligation_id": "p0-a"} | told)


@pytest.mark.clause("v2-receipt-executions", "v2-unit-complete")
@pytest.mark.parametrize("name", ACTIVE)
def test_every_active_row_was_executed(log: Log, name: str) -> None:
    log.log["executions"].remove(log.execution(name))
    only(log.check(), "E_RECEIPT_INCOMPLETE", {"obligation_id": name})


@pytest.mark.clause("v2-receipt-executions")
@pytest.mark.parametrize("name", ["p3-a", "p6-a"])
def test_no_deferred_row_was_executed(log: Log, name: str) -> None:
    log.log["executions"].append(log.execution(name))
    only(log.check(), "E_RECEIPT_UNEXPECTED", {"obligation_id": name})


@pytest.mark.clause("v2-receipt-executions")
def test_executions_are_sorted_and_there_is_one_of_each(log: Log) -> None:
    good = copy.deepcopy(log.log)
    log.log["executions"][:2] = reversed(log.log["executions"][:2])
    only(log.check(), "E_RECEIPT_ORDER", {"obligation_id": "p0-a"})
    log.log = good
    log.log["executions"].insert(0, log.execution("p0-a"))
    only(log.check(), "E_RECEIPT_DUPLICATE", {"obligation_id": "p0-a"})


@pytest.mark.clause("v2-unit-complete")
@pytest.mark.parametrize("status", [1, 5, -9])
def test_a_command_that_failed_proves_nothing(log: Log, status: int) -> None:
    log.log["executions"][3]["exit_code"] = status
    fields = {"obligation_id": "p2-a", "exit_code": status}
    only(log.check(), "E_COMMAND_EXIT", fields)


# ---- the tree


@pytest.mark.clause("v2-clean-tracked-tree")
@pytest.mark.parametrize("how", ["changed", "staged", "deleted"])
def test_a_receipt_needs_the_tracked_tree_to_be_head(log: Log, how: str) -> None:
    page = log.ledger.folder / "docs/page.md"
    page.write_text("other\n", encoding="utf-8")
    if how == "staged":
        git(log.ledger.folder, "add", "docs/page.md")
    if how == "deleted":
        page.unlink()
    only(log.check(), "E_TREE_DIRTY", {"paths": ["docs/page.md"]})


@pytest.mark.clause("v2-clean-tracked-tree")
@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_file_that_git_does_not_look_at_is_no_evidence(log: Log, flag: str) -> None:
    git(log.ledger.folder, "update-index", flag, "docs/page.md")
    (log.ledger.folder / "docs/page.md").write_text("other\n", encoding="utf-8")
    only(log.check(), "E_TREE_DIRTY", {"paths": ["docs/page.md"]})


@pytest.mark.clause("v2-clean-tracked-tree")
def test_a_comparison_needs_it_too_and_a_check_of_the_form_does_not(
    ledger: Ledger,
) -> None:
    ledger.put("docs/page.md", "other\n")
    only(
        ledger.check("--base-commit", "HEAD"),
        "E_TREE_DIRTY",
        {"paths": ["docs/page.md"]},
    )
    assert ledger.check().status == 0


@pytest.mark.clause("v2-clean-tracked-tree")
def test_untracked_and_ignored_files_never_matter(log: Log) -> None:
    log.ledger.put("notes.txt", "mine\n")
    log.ledger.put("build/receipt.json", "{}\n")
    log.ledger.put(".git/info/exclude", "build/\n")
    log.file = log.ledger.folder / "receipt.json"
    assert log.check().status == 0


@pytest.mark.clause("v2-no-fabricated-artifact", "v2-trusted-log")
@pytest.mark.parametrize(
    ("path", "subject"),
    [
        (NAME, "manifest"),
        ("docs/r.json", "artifact-p1-a"),
        ("tools/verify.py", "cmd-p1-a"),
    ],
)
def test_what_decides_is_part_of_the_candidate(
    log: Log, path: str, subject: str
) -> None:
    git(log.ledger.folder, "rm", "-q", "--cached", path)
    git(log.ledger.folder, "commit", "-qm", "untracked")
    said = log.check()
    found = {each["fields"]["subject"] for each in said.told["diagnostics"]}
    assert set(said.codes) == {"E_UNTRACKED"}
    assert subject in found
    assert {each["fields"]["path"] for each in said.told["diagnostics"]} == {path}


def test_an_untracked_manifest_is_no_candidate_by_itself(log: Log) -> None:
    git(log.ledger.folder, "rm", "-q", "--cached", NAME)
    git(log.ledger.folder, "commit", "-qm", "untracked")
    only(log.check(), "E_UNTRACKED", {"subject": "manifest", "path": NAME})


def test_a_receipt_needs_a_repository_with_its_top_at_the_root(
    plain: Ledger, ledger: Ledger, tmp_path: Path
) -> None:
    said = plain.check("--receipt", "none.json")
    only(said, "E_REPOSITORY", {"root": str(plain.folder)})
    git(plain.folder, "init", "-q", "--template=")  # and no commit
    said = plain.check("--receipt", "none.json")
    only(said, "E_REPOSITORY", {"root": str(plain.folder)})
    below = Ledger(ledger.folder / "below")
    below.write()
    said = below.check("--base-commit", "HEAD")
    only(said, "E_REPOSITORY", {"root": str(below.folder)})


def test_variables_of_another_repository_do_not_mislead(
    log: Log, plain: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(plain.folder, "init", "-q", "--template=")
    monkeypatch.setenv("GIT_DIR", str(plain.folder / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(plain.folder / "none"))
    assert log.check().status == 0
