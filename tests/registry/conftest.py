"""Temporary registries, with and without Git, and stand-ins that record their argv."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.registry.support import Ledger, git

STAND_IN = """#!/bin/sh
{ printf '%s\\n' "$(pwd)" "${0##*/}" "$@"; printf '\\n'; } >> "FOLDER/log"
exit "$(cat "FOLDER/status.${0##*/}" 2>/dev/null || echo 0)"
"""


@pytest.fixture
def plain(tmp_path: Path) -> Ledger:
    """A registry in a folder that is no repository."""
    made = Ledger(tmp_path / "plain")
    made.write()
    return made


@pytest.fixture(scope="session")
def _committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template") / "repository"
    folder.mkdir()
    made = Ledger(folder)
    git(folder, "init", "-q", "--template=", "-b", "main")
    made.write()
    made.commit()
    return folder


@pytest.fixture
def ledger(tmp_path: Path, _committed: Path) -> Ledger:
    """A registry in a repository with one commit."""
    shutil.copytree(_committed, tmp_path / "repository")
    return Ledger(tmp_path / "repository")


class StandIns:
    """`pytest` and `mypy` of a temporary folder: they record, and end as told.

    `python3` beside them is the interpreter that runs the suite.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def make(self, *names: str) -> None:
        for name in names:
            file = self.folder / name
            text = STAND_IN.replace("FOLDER", str(self.folder))
            file.write_text(text, encoding="utf-8")
            file.chmod(0o755)

    def ends(self, name: str, status: int) -> None:
        (self.folder / f"status.{name}").write_text(str(status), encoding="utf-8")

    def calls(self) -> list[tuple[str, list[str]]]:
        """Working folder and argv of every call, in order."""
        log = self.folder / "log"
        if not log.exists():
            return []
        blocks = log.read_text(encoding="utf-8").rstrip("\n").split("\n\n")
        return [(lines[0], lines[1:]) for lines in (b.split("\n") for b in blocks)]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIns:
    folder = tmp_path / "bin"
    folder.mkdir()
    made = StandIns(folder)
    made.make("pytest", "mypy")
    python = folder / "python3"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    return made
