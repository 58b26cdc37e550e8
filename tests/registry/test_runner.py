"""The runner: what it starts, what it writes, and what it refuses to begin.

Real Python verifiers run; `pytest` and `mypy` are stand-ins on the search path that
record their argv. The tools know nothing of them.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.registry.support import ACTIVE, NAME, Ledger, only


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "receipt.json"


def read(out: Path) -> Any:
    return json.loads(out.read_text(encoding="utf-8"))


@pytest.mark.clause("v2-runner-argv-test")
def test_every_active_argv_is_started_once_and_no_deferred_one(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    said = ledger.execute(out)
    assert (said.status, said.codes) == (0, [])
    there = str(ledger.folder.resolve())
    assert stand_ins.calls() == [
        (there, ["pytest", "-q", "tests/test_a.py::test_one"]),
        (there, ["mypy", "--strict", "tests"]),
        (there, ["pytest", "tests/test_a.py"]),
    ]


@pytest.mark.clause("v2-receipt-top-level", "v2-receipt-executions")
def test_the_log_is_exact_and_the_checker_believes_it(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    ledger.execute(out)
    log = read(out)
    assert list(log) == ["schema", "candidate_commit", "base_commit", "executions"]
    assert log["schema"] == "tenferro.storage-ownership-receipt.v1"
    assert log["candidate_commit"] == ledger.head()
    assert log["base_commit"] is None
    assert [each["obligation_id"] for each in log["executions"]] == ACTIVE
    assert log["executions"][1] == {
        "obligation_id": "p1-a",
        "argv": ["python3", "tools/verify.py", "docs/r.json"],
        "cwd": ".",
        "artifact_path": "docs/r.json",
        "exit_code": 0,
    }
    assert ledger.check("--receipt", str(out)).status == 0


@pytest.mark.clause("v2-runner-argv-test")
@pytest.mark.parametrize("status", [1, 2, 5, 127])
def test_an_exit_status_is_logged_and_reported_as_it_was(
    ledger: Ledger, stand_ins: Any, out: Path, status: int
) -> None:
    stand_ins.ends("mypy", status)
    said = ledger.execute(out)
    fields = {"obligation_id": "p1-b", "exit_code": status}
    only(said, "E_COMMAND_EXIT", fields)
    codes = [each["exit_code"] for each in read(out)["executions"]]
    assert codes == [0, 0, status, 0]  # the others ran all the same
    only(ledger.check("--receipt", str(out)), "E_COMMAND_EXIT", fields)


def test_a_real_verifier_that_fails_is_seen(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    ledger.put("docs/r.json", '{"measured": {"ns": 2}}\n')
    ledger.commit()
    fields = {"obligation_id": "p1-a", "exit_code": 1}
    only(ledger.execute(out), "E_COMMAND_EXIT", fields)


def test_what_commands_print_stays_out_of_the_answer(
    ledger: Ledger, stand_ins: Any, out: Path, capfd: Any
) -> None:
    ledger.put("tools/verify.py", "print('noise')\n")
    ledger.commit()
    assert ledger.execute(out).status == 0  # its answer was JSON
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "noise\n")


@pytest.mark.clause("v2-command-sharing", "v2-runner-argv-test")
def test_a_shared_command_runs_once_for_all_its_rows(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    for part in ("artifact", "command"):
        ledger.row("p2-a")[part] = ledger.row("p0-a")[part]
    ledger.commit()
    assert ledger.execute(out).status == 0
    started = [argv[0] for _, argv in stand_ins.calls()]
    assert started == ["pytest", "mypy"]
    assert [each["obligation_id"] for each in read(out)["executions"]] == ACTIVE
    assert ledger.check("--receipt", str(out)).status == 0


def test_a_command_runs_in_its_folder(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    ledger.row("p2-a")["command"] |= {"argv": ["pytest", "test_a.py"], "cwd": "tests"}
    ledger.commit()
    assert ledger.execute(out).status == 0
    assert stand_ins.calls()[-1] == (
        str((ledger.folder / "tests").resolve()),
        ["pytest", "test_a.py"],
    )
    assert read(out)["executions"][3]["cwd"] == "tests"


def test_an_executable_that_cannot_start_leaves_a_gap_in_the_log(
    ledger: Ledger, stand_ins: Any, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing else on the path, where another one of that name might be found.
    (stand_ins.folder / "git").symlink_to(str(shutil.which("git")))
    monkeypatch.setenv("PATH", str(stand_ins.folder))
    (stand_ins.folder / "mypy").write_text("no interpreter\n", encoding="utf-8")
    fields = {"command_id": "cmd-p1-b", "executable": "mypy"}
    only(ledger.execute(out), "E_COMMAND_START", fields)
    said = ledger.check("--receipt", str(out))
    only(said, "E_RECEIPT_INCOMPLETE", {"obligation_id": "p1-b"})


@pytest.mark.clause("v2-base-revision")
def test_the_base_enters_the_log_as_an_object_id(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    base = ledger.head()
    ledger.commit()
    assert ledger.execute(out, "--base-commit", "HEAD~1").status == 0
    assert read(out)["base_commit"] == base
    said = ledger.check("--receipt", str(out), "--base-commit", base)
    assert said.status == 0


@pytest.mark.clause("v2-clean-tracked-tree")
def test_nothing_runs_on_a_tree_that_is_not_head(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    ledger.put("docs/page.md", "other\n")
    only(ledger.execute(out), "E_TREE_DIRTY", {"paths": ["docs/page.md"]})
    assert stand_ins.calls() == []
    assert not out.exists()


@pytest.mark.clause("v2-path-confinement", "v2-diagnostics-path-first")
def test_nothing_runs_if_any_row_is_refused(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    ledger.row("p6-a")["artifact"]["path"] = "../x"  # deferred, and yet
    ledger.commit()
    fields = {"subject": "artifact-p6-a", "field": "path", "path": "../x"}
    only(ledger.execute(out), "E_PATH_ESCAPE", fields)
    assert stand_ins.calls() == []


def test_nothing_runs_after_a_change_that_the_base_does_not_allow(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    ledger.row("p0-a")["gates"] = ["G2"]
    ledger.commit()
    said = ledger.execute(out, "--base-commit", "HEAD~1")
    assert said.codes == ["E_OBLIGATION_CHANGED"]
    assert stand_ins.calls() == []


def test_a_receipt_is_no_part_of_the_candidate(
    ledger: Ledger, stand_ins: Any, tmp_path: Path
) -> None:
    for place in (ledger.folder / NAME, tmp_path, tmp_path / "none" / "receipt"):
        only(ledger.execute(place), "E_RECEIPT_OUT", {"receipt": str(place)})
    assert stand_ins.calls() == []


@pytest.mark.clause("v2-clean-tracked-tree")
def test_a_receipt_may_lie_in_the_repository_untracked(
    ledger: Ledger, stand_ins: Any
) -> None:
    out = ledger.folder / "receipt.json"
    assert ledger.execute(out).status == 0
    assert ledger.execute(out).status == 0
    assert ledger.check("--receipt", str(out)).status == 0


def test_an_old_receipt_does_not_survive_a_run_that_was_refused(
    ledger: Ledger, stand_ins: Any, out: Path
) -> None:
    assert ledger.execute(out).status == 0
    stand_ins.ends("pytest", 1)
    ledger.execute(out)
    assert [each["exit_code"] for each in read(out)["executions"]] == [1, 0, 0, 1]
