"""Continuous integration: one profile for the registry, and one place for a base."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import ROOT

BASE = "STORAGE_OWNERSHIP_BASE"
# What `make registry` needs beforehand, taken as done.
PREPARED = [
    word
    for name in (".venv/.test", ".venv/.lanes", ".venv/.kernels", "docs")
    for word in ("-o", name)
]
RECORDS = """#!/bin/sh
{ printf '[%s]\\n' "${0##*/}" "$@"; printf '\\n'; } >> "FOLDER/log"
"""


class Machine:
    """A copy of `.ci/run` and `Makefile` whose programs record how they are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".ci").mkdir(parents=True)
        shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
        shutil.copy(ROOT / "Makefile", folder / "Makefile")

    def record(self, *names: str) -> None:
        for name in names:
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(RECORDS.replace("FOLDER", str(self.folder)), "utf-8")
            file.chmod(0o755)

    def run(self, *argv: str, base: str | None = None) -> Any:
        inherited = {BASE, "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}
        clean = {k: v for k, v in os.environ.items() if k not in inherited}
        given = {} if base is None else {BASE: base}
        path = {"PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}"}
        return subprocess.run(
            argv,
            cwd=self.folder,
            env=clean | path | given,
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[list[str]]:
        log = self.folder / "log"
        if not log.exists():
            return []
        text = log.read_text("utf-8").removesuffix("\n\n")
        return [
            [line[1:-1] for line in block.split("\n")] for block in text.split("\n\n")
        ]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


@pytest.mark.clause("v2-ci-base")
@pytest.mark.parametrize(
    ("profiles", "targets"),
    [
        (
            [],
            [
                *("test", "test-poison", "test-lanes"),
                *("test-reference", "test-shared"),
                *("test-sanitizer", "test-cuda-static", "docs-browser", "registry"),
            ],
        ),
        (["tests"], ["test", "test-poison"]),
        (["lanes"], ["test-lanes"]),
        (["reference"], ["test-reference", "test-shared"]),
        (["kernels"], ["test-sanitizer", "test-cuda-static"]),
        (["docs"], ["docs-browser"]),
        (["ci-config"], ["registry"]),
    ],
)
def test_profiles_select_what_is_made(
    machine: Machine, profiles: list[str], targets: list[str]
) -> None:
    machine.record("bin/make")
    done = machine.run(".ci/run", *profiles)
    assert done.returncode == 0, done.stderr
    assert machine.calls() == [["make", target] for target in targets]


def test_lanes_run_every_test_that_takes_one() -> None:
    """`make test-lanes` collects some folders; no test of a lane is outside."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (line,) = re.findall("^LANE_TESTS := (.*)$", makefile, re.MULTILINE)
    listed = [ROOT / name for name in line.split()]
    assert all(path.exists() for path in listed)
    found = [file for file in (ROOT / "tests").rglob("test_*.py") if takes_lanes(file)]
    assert len(found) > 10
    outside = [
        str(file.relative_to(ROOT))
        for file in found
        if not any(file.is_relative_to(path) for path in listed)
    ]
    assert not outside


def takes_lanes(file: Path) -> bool:
    """Whether a test takes a lane from a fixture, or names of lanes as parameters."""
    nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    called = {ast.unparse(n.func) for n in nodes if isinstance(n, ast.Call)}
    if "lane_params" in called:
        return True
    tests = [
        n
        for n in nodes
        if isinstance(n, ast.FunctionDef) and n.name.startswith("test_")
    ]
    arguments = [a.arg for node in tests for a in node.args.args]
    return any(a == "lane" or a.endswith(("_lane", "_only")) for a in arguments)


@pytest.mark.clause("v2-ci-base")
@pytest.mark.parametrize("base", ["main", ""])
def test_a_base_without_the_profile_is_refused_before_anything(
    machine: Machine, base: str
) -> None:
    machine.record("bin/make")
    done = machine.run(".ci/run", "tests", base=base)
    assert done.returncode == 2
    assert BASE in done.stderr
    assert "ci-config" in done.stderr
    assert machine.calls() == []
    assert machine.run(".ci/run", "tests", "ci-config", base=base).returncode == 0


def test_an_unknown_profile_is_refused(machine: Machine) -> None:
    machine.record("bin/make")
    done = machine.run(".ci/run", "tests", "docs-site")
    assert done.returncode == 2
    assert "'docs-site'" in done.stderr
    assert machine.calls() == []


@pytest.mark.clause("v2-ci-base")
@pytest.mark.parametrize("base", [None, "abc def", ""])
def test_runner_and_checker_get_the_base_or_none(
    machine: Machine, base: str | None
) -> None:
    machine.record(".venv/bin/python")
    done = machine.run("make", *PREPARED, "registry", base=base)
    assert done.returncode == 0, done.stderr
    receipt = ".cache/storage-ownership-receipt.json"
    given = [] if base is None else ["--base-commit", base]
    script = "scripts/{}-storage-ownership-contracts.py".format
    assert [call for call in machine.calls() if call[1:2] != ["-c"]] == [
        ["python", script("run"), "--receipt-out", receipt, *given],
        ["python", script("check"), "--receipt", receipt, *given],
    ]
