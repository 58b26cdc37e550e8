"""What both tools offer: the handshake, options, and the table of diagnostics."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.registry.support import CHECKER, NAME, RUNNER, Ledger, only, run
from tests.registry.test_manifest import CASES
from tests.scripts import SCRIPTS

FOLDER = Path(__file__).parent
SHARED = ["--root", "--manifest", "--base-commit"]
CONTRACTS: dict[str, dict[str, Any]] = {
    CHECKER: {
        "schema": "tenferro.storage-ownership-cli-contract.v1",
        "tool": "check-storage-ownership-contracts",
        "role": "checker",
        "manifest_schema": "tenferro.storage-ownership-contracts.v2",
        "probe": "--contract-schema",
        "options": [*SHARED, "--receipt", "--summary-json", "--diagnostics-json"],
    },
    RUNNER: {
        "schema": "tenferro.storage-ownership-cli-contract.v1",
        "tool": "run-storage-ownership-contracts",
        "role": "runner",
        "manifest_schema": "tenferro.storage-ownership-contracts.v2",
        "probe": "--contract-schema",
        "options": [*SHARED, "--receipt-out", "--diagnostics-json"],
    },
}


def available(script: Path, contract: dict[str, Any], cwd: Path) -> bool:
    """Whether a script answers the probe exactly as its contract says."""
    done = subprocess.run(
        [sys.executable, str(script), "--contract-schema"],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return False
    return (done.returncode, done.stderr, answer) == (0, "", contract)


@pytest.mark.clause("v2-handshake", "v2-handshake-objects")
@pytest.mark.parametrize("tool", [CHECKER, RUNNER])
def test_a_tool_says_what_it_is_wherever_it_is_called(
    tool: str, tmp_path: Path
) -> None:
    script = SCRIPTS / f"{tool}.py"
    assert available(script, CONTRACTS[tool], tmp_path)
    done = subprocess.run(
        [sys.executable, str(script), "--contract-schema", "--root", "/nowhere"],
        capture_output=True,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout.decode() == json.dumps(CONTRACTS[tool], indent=2) + "\n"
    assert done.stderr == b""


SAYS = "import json\nprint(json.dumps({}))\n"


@pytest.mark.clause("v2-handshake-strict")
@pytest.mark.parametrize(
    "source",
    [
        "",  # there, and silent
        f"# {json.dumps(CONTRACTS[CHECKER])}\n",
        f"CONTRACT = {CONTRACTS[CHECKER]!r}\nprint('usage')\n",
        SAYS.format(CONTRACTS[CHECKER] | {"more": 1}),
        SAYS.format(CONTRACTS[CHECKER] | {"options": SHARED}),
        SAYS.format(CONTRACTS[CHECKER] | {"schema": "other"}),
        SAYS.format(CONTRACTS[RUNNER]),
        SAYS.format(CONTRACTS[CHECKER]) + "import sys\nsys.stderr.write('noise')\n",
        SAYS.format(CONTRACTS[CHECKER]) + "raise SystemExit(1)\n",
        SAYS.format(CONTRACTS[CHECKER]) + "print('{}')\n",
    ],
)
def test_anything_else_than_the_exact_answer_is_no_tool(
    tmp_path: Path, source: str
) -> None:
    script = tmp_path / f"{CHECKER}.py"
    script.write_text(source, encoding="utf-8")
    assert not available(script, CONTRACTS[CHECKER], tmp_path)
    script.write_text(SAYS.format(CONTRACTS[CHECKER]), encoding="utf-8")
    assert available(script, CONTRACTS[CHECKER], tmp_path)


@pytest.mark.clause("v2-handshake")
@pytest.mark.parametrize("tool", [CHECKER, RUNNER])
def test_the_probe_reads_no_manifest_and_runs_nothing(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(Path, "read_text", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)
    assert run(tool, "--contract-schema").told == CONTRACTS[tool]


@pytest.mark.clause("v2-cli-options", "v2-candidate-is-head")
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (CHECKER, ["--candidate-commit", "HEAD"]),
        (RUNNER, ["--candidate-commit", "HEAD"]),
        (CHECKER, ["--receipt-out", "x"]),
        (RUNNER, ["--receipt", "x"]),
        (RUNNER, ["--receipt-out", "x", "--summary-json"]),
        (CHECKER, ["--base", "HEAD"]),  # no abbreviations
        (CHECKER, [NAME]),
        (CHECKER, ["--base-commit", "HEAD", "--base-commit=HEAD"]),  # one base
        (RUNNER, ["--receipt-out", "a", "--receipt-out", "b"]),
        (CHECKER, ["--base-commit"]),
        (RUNNER, []),  # a run whose proof is thrown away
    ],
)
def test_there_are_no_other_options(tool: str, arguments: list[str]) -> None:
    said = run(tool, "--diagnostics-json", *arguments)
    assert said.status == 2
    only(said._replace(status=1), "E_USAGE", {"tool": tool})


@pytest.mark.clause("v2-cli-options")
@pytest.mark.parametrize("tool", [CHECKER, RUNNER])
def test_all_options_are_those_of_the_handshake(tool: str) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPTS / f"{tool}.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    offered = {
        w.strip("[],") for w in done.stdout.split() if w.startswith(("--", "[--"))
    }
    assert offered - {"--help"} == set(CONTRACTS[tool]["options"])


@pytest.mark.clause("v2-candidate-is-head")
def test_the_current_folder_decides_nothing(
    ledger: Ledger, plain: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.document["obligations"].clear()
    plain.save()
    monkeypatch.chdir(plain.folder)
    assert ledger.check().status == 0
    said = run(CHECKER, "--summary-json")  # this script's own repository
    assert said.told["obligations"] > len(ledger.document["obligations"])


@pytest.mark.clause("v2-diagnostics-envelope")
def test_people_get_sentences_and_programs_get_an_envelope(plain: Ledger) -> None:
    plain.row("p0-a")["unit"] = "P7"
    plain.row("p0-a")["gates"] = ["G7"]
    plain.save()
    root = ("--root", str(plain.folder))
    said = run(CHECKER, *root)
    assert (said.status, said.told) == (1, None)
    assert [line.split(":")[0] for line in said.error.splitlines()] == [
        "E_UNIT_UNKNOWN",
        "E_GATE_UNKNOWN",
        "E_UNIT_EMPTY",
    ]
    both = run(CHECKER, *root, "--diagnostics-json", "--summary-json")
    assert both.codes == ["E_UNIT_UNKNOWN", "E_GATE_UNKNOWN", "E_UNIT_EMPTY"]
    plain.document = Ledger(plain.folder).document
    plain.save()
    assert "4 of 8 obligations are active" in run(CHECKER, *root).error
    said = run(CHECKER, *root, "--diagnostics-json", "--summary-json")
    assert said.told["schema"] == "tenferro.storage-ownership-summary.v1"


# ---- the table


def registered() -> dict[str, tuple[str, ...]]:
    from storage_ownership.diagnostics import FIELDS

    return FIELDS


@pytest.mark.clause("v2-diagnostics-coverage")
def test_every_code_has_a_case_of_its_own() -> None:
    """Codes that the suite asserts, in tables and in calls, are all that there are."""
    asserted = {case[0] for case in CASES}
    for file in FOLDER.glob("test_*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(func=ast.Name(id="only"), args=[_, code, _]):
                    names = [
                        n.value for n in ast.walk(code) if isinstance(n, ast.Constant)
                    ]
                    asserted |= {n for n in names if str(n).startswith("E_")}
                case ast.Set(elts=[ast.Constant(value=str(value))]):
                    asserted |= {value} if value.startswith("E_") else set()
    assert asserted >= set(registered())


@pytest.mark.clause("v2-diagnostics-envelope", "v2-diagnostics-coverage")
def test_a_diagnostic_has_its_registered_fields_or_cannot_be_made() -> None:
    from storage_ownership.diagnostics import fault

    assert fault("E_USAGE", "said", tool="x").fields == {"tool": "x"}
    for code, message, fields in (
        ("E_USAGE", "said", {}),
        ("E_USAGE", "said", {"tool": "x", "more": 1}),
        ("E_USAGE", "", {"tool": "x"}),
    ):
        with pytest.raises(ValueError, match="registered"):
            fault(code, message, **fields)
    with pytest.raises(KeyError):
        fault("E_OTHER", "said", tool="x")


@pytest.mark.clause("v2-diagnostics-binding")
def test_the_fields_that_the_contract_names_are_those() -> None:
    fields = registered()
    assert fields["E_RECEIPT_INCOMPLETE"] == ("obligation_id",)
    argv = ("command_id", "index", "expected", "actual")
    assert fields["E_COMMAND_ARGV"] == argv
    binding = ("obligation_id", "field", "expected", "actual")
    assert fields["E_RECEIPT_BINDING"] == binding


def test_the_tools_need_the_standard_library_only() -> None:
    for file in [
        *SCRIPTS.glob("*-storage-ownership-*.py"),
        *SCRIPTS.glob("storage_*/*.py"),
    ]:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names | {"storage_ownership"}, file


def test_no_file_is_longer_than_two_ideas() -> None:
    for file in [*SCRIPTS.glob("*.py"), *SCRIPTS.glob("*/*.py"), *FOLDER.glob("*.py")]:
        lines = len(file.read_text(encoding="utf-8").splitlines())
        assert lines <= 450, (file, lines)


def test_the_page_lists_every_code_with_its_fields() -> None:
    from storage_ownership.diagnostics import REGISTERED

    page = (SCRIPTS.parent / "docs" / "verification.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `E_")]
    assert rows == [
        f"| `{code}` | {', '.join(f'`{f}`' for f in entry['fields'])} |"
        f" {entry['means']} |"
        for code, entry in REGISTERED["codes"].items()
    ]


def test_the_row_of_the_page_is_a_row() -> None:
    page = (SCRIPTS.parent / "docs" / "verification.md").read_text(encoding="utf-8")
    shown = tomllib.loads(page.split("```toml\n")[1].split("```")[0])["obligations"][0]
    rows = tomllib.loads((SCRIPTS.parent / NAME).read_text("utf-8"))["obligations"]
    assert shown in rows
