"""A small registry in a repository of its own, and both tools run on it in-process."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from tests.scripts import script

NAME = "scripts/storage-ownership-contracts.toml"
CHECKER = "check-storage-ownership-contracts"
RUNNER = "run-storage-ownership-contracts"

TOOLS = {name: script(name) for name in (CHECKER, RUNNER)}


def toml(value: Any) -> str:
    """A TOML value; tables are written inline."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {toml(value[key])}" for key in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def document_text(document: dict[str, Any]) -> str:
    return "".join(f"{key} = {toml(value)}\n" for key, value in document.items())


def deferred(unit: str) -> dict[str, Any]:
    rule = {"mode": "activate-in-place"}
    return {"kind": "deferred", "activation_unit": unit, "promotion": rule}


def row(
    name: str, unit: str, argv: list[str], path: str, **more: Any
) -> dict[str, Any]:
    """An obligation; its command bears paths in all but the first word and options."""
    kinds = {"python3": "python-script", "pytest": "pytest", "mypy": "mypy"}
    bears = [i for i, word in enumerate(argv) if i and not word.startswith("-")]
    return {
        "id": name,
        "unit": unit,
        "gates": ["G1"],
        "artifact": {"id": f"artifact-{name}", "kind": "contract-test", "path": path},
        "command": {
            "id": f"cmd-{name}",
            "kind": kinds[argv[0]],
            "argv": argv,
            "cwd": ".",
            "path_args": bears,
            "artifact_id": f"artifact-{name}",
        },
        "state": {"kind": "active"},
        **more,
    }


DOCUMENT: dict[str, Any] = {
    "schema": "tenferro.storage-ownership-contracts.v2",
    "registry": {
        "revision": 1,
        "gates": [{"id": g, "name": g.lower()} for g in ("G1", "G2")],
        "units": [
            {"id": u, "name": u.lower()} for u in ("P0", "P1", "P2", "P3", "P9", "P6")
        ],
        "edges": [
            {"from": "P1", "to": "P2"},
            {"from": "P0", "to": "CUT"},
            {"from": "P2", "to": "CUT"},
            {"from": "CUT", "to": "P6"},
        ],
        "cohorts": [{"id": "CUT", "members": ["P3", "P9"]}],
    },
    "obligations": [
        row(
            "p0-a",
            "P0",
            ["pytest", "-q", "tests/test_a.py::test_one"],
            "tests/test_a.py",
        ),
        row("p1-a", "P1", ["python3", "tools/verify.py", "docs/r.json"], "docs/r.json"),
        row("p1-b", "P1", ["mypy", "--strict", "tests"], "tests/test_a.py"),
        row("p2-a", "P2", ["pytest", "tests/test_a.py"], "tests/test_a.py"),
        row("p3-a", "P3", ["pytest", "tests/test_c.py"], "tests/test_c.py"),
        row("p9-a", "P9", ["pytest", "tests/test_d.py"], "tests/test_d.py"),
        row("p9-b", "P9", ["pytest", "-x", "tests/test_d.py"], "tests/test_d.py"),
        row("p6-a", "P6", ["pytest", "tests/test_e.py"], "tests/test_e.py"),
    ],
}
for _row in DOCUMENT["obligations"][4:]:
    _row["state"] = deferred(_row["unit"])
ACTIVE = ["p0-a", "p1-a", "p1-b", "p2-a"]
FILES = {
    "tests/test_a.py": "def test_one():\n    pass\n\n\nclass TestB:\n"
    "    def test_two(self):\n        pass\n",
    "docs/r.json": '{"measured": {"ns": 1}}\n',
    "docs/page.md": "# Page\n\n## A heading\n\n" + '<a id="an-anchor"></a>\n',
    "tools/verify.py": "import json, sys\n"
    "sys.exit(json.load(open(sys.argv[1]))['measured']['ns'] != 1)\n",
}

Change = Callable[[dict[str, Any], Path], None]


class Said(NamedTuple):
    """What a tool did: status, the JSON on standard output, and standard error."""

    status: int
    told: Any
    error: str

    @property
    def codes(self) -> list[str]:
        return [each["code"] for each in self.told["diagnostics"]]


def run(tool: str, *arguments: str) -> Said:
    """One of the tools with these arguments; its output must be JSON or nothing."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        status = TOOLS[tool].main(list(arguments))
    text = out.getvalue()
    return Said(status, json.loads(text) if text else None, error.getvalue())


def git(folder: Path, *arguments: str) -> str:
    """Git without anybody's settings."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    quiet = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    who = ("-c", "user.name=A", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    return subprocess.run(
        ["git", *who, *arguments],
        cwd=folder,
        env=clean | quiet,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


class Ledger:
    """A folder with a manifest, and both tools on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.document = copy.deepcopy(DOCUMENT)

    def write(self) -> None:
        """The files of the small registry, and its manifest."""
        for name, text in FILES.items():
            self.put(name, text)
        self.save()

    def put(self, name: str, text: str) -> None:
        file = self.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def save(self) -> None:
        self.put(NAME, document_text(self.document))

    def row(self, name: str) -> dict[str, Any]:
        (found,) = (r for r in self.document["obligations"] if r["id"] == name)
        return found

    def activate(self, *names: str) -> None:
        for name in names:
            self.row(name)["state"] = {"kind": "active"}

    def commit(self) -> str:
        """Save, record everything, and give the commit."""
        self.save()
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-qm", "step", "--allow-empty")
        return self.head()

    def head(self) -> str:
        return git(self.folder, "rev-parse", "HEAD")

    def check(self, *arguments: str) -> Said:
        at = ("--root", str(self.folder), "--diagnostics-json")
        return run(CHECKER, *at, *arguments)

    def execute(self, out: Path, *arguments: str) -> Said:
        at = ("--root", str(self.folder), "--diagnostics-json")
        return run(RUNNER, *at, "--receipt-out", str(out), *arguments)


def only(said: Said, code: str, fields: dict[str, Any]) -> None:
    """Exactly one diagnostic, in exactly the envelope that the contract describes."""
    assert said.status == 1
    assert list(said.told) == ["schema", "diagnostics"]
    assert said.told["schema"] == "tenferro.storage-ownership-diagnostics.v1"
    (found,) = said.told["diagnostics"]
    assert list(found) == ["code", "fields", "message"]
    assert (found["code"], found["fields"]) == (code, fields)
    assert found["message"].strip()
    assert not said.error
