"""The script that finds or installs a browser, with stand-ins for what it calls."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "scripts" / "install-browser.sh"
RECORD = 'echo "${0##*/} $*" >> "$LOG"\n'
WORKS, FAILS = RECORD + "exit 0\n", RECORD + "exit 1\n"
# Installing with this one brings a browser.
BRINGS = RECORD + 'case "$1" in install) cp "$BIN/true" "$BIN/chromium" ;; esac\n'


class Machine:
    """A search path with nothing on it but stand-ins."""

    def __init__(self, folder: Path) -> None:
        self.bin = folder / "bin"
        self.log = folder / "log"
        self.bin.mkdir()
        for name in ("id", "cp", "true", "sh"):
            found = shutil.which(name)
            assert found is not None
            (self.bin / name).symlink_to(found)

    def has(self, name: str, does: str) -> None:
        file = self.bin / name
        file.write_text("#!/bin/sh\n" + does, encoding="utf-8")
        file.chmod(0o755)

    def run(self, **more: str) -> tuple[int, list[str]]:
        known = {"PATH": str(self.bin), "LOG": str(self.log), "BIN": str(self.bin)}
        done = subprocess.run(
            [str(self.bin / "sh"), str(SCRIPT)],
            env=known | more,
            capture_output=True,
            check=False,
        )
        said = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        if done.returncode:
            assert done.stderr
        return done.returncode, said


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("name", ["chromium", "chromium-browser", "google-chrome"])
def test_a_browser_on_the_path_is_enough(machine: Machine, name: str) -> None:
    machine.has(name, WORKS)
    machine.has("apt-get", FAILS)
    assert machine.run() == (0, [f"{name} --version"])


def test_a_named_browser_is_the_one_or_none(machine: Machine) -> None:
    machine.has("chromium", WORKS)
    machine.has("mine", WORKS)
    assert machine.run(TENFERRO_BROWSER="mine") == (0, ["mine --version"])
    machine.log.unlink()
    assert machine.run(TENFERRO_BROWSER="other") == (1, [])


def test_without_one_the_package_is_installed(machine: Machine) -> None:
    machine.has("apt-get", BRINGS)
    machine.has("sudo", RECORD + 'shift; exec "$@"\n')
    status, said = machine.run()
    assert status == 0
    expected = ["update -qq", "install -qq -y --no-install-recommends chromium"]
    calls = [line for line in said if line.startswith("apt-get")]
    assert len(calls) == 2
    assert all(want in call for want, call in zip(expected, calls, strict=True))
    asked = [line for line in said if line.startswith("sudo -n ")]
    assert len(asked) == (0 if os.getuid() == 0 else 2)


@pytest.mark.parametrize("apt", [None, FAILS, WORKS], ids=["none", "fails", "empty"])
def test_then_playwright_downloads_its_own(machine: Machine, apt: str | None) -> None:
    if apt is not None:
        machine.has("apt-get", apt)
        machine.has("sudo", RECORD + 'shift; exec "$@"\n')
    machine.has("chromium-browser", FAILS)  # a stub that starts nothing
    machine.has("python", WORKS)
    status, said = machine.run()
    assert status == 0
    assert said[-1] == "python -m playwright install chromium"


def test_no_browser_at_all_is_a_failure(machine: Machine) -> None:
    machine.has("python", FAILS)
    status, said = machine.run()
    assert status == 1
    assert said == ["python -m playwright install chromium"]
