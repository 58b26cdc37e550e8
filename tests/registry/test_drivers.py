"""What `scripts/install-drivers.sh` does on machines that lack something."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import SCRIPTS

LOCK = "DPkg::Lock::Timeout=300"
MESA = ["mesa-vulkan-drivers", "libvulkan1"]
PYTHON = """#!/bin/sh
[ -e "FOLDER/works" ] || { echo "none: no adapter"; exit 1; }
"""
APT = """#!/bin/sh
echo "$*" >> "FOLDER/log"
case "$*" in *install*) RESULT ;; esac
"""


class Bare:
    """A machine with nothing on its path but what a test puts there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir(parents=True)
        for name in ("bash", "uname"):
            found = shutil.which(name)
            assert found is not None
            (folder / "bin" / name).symlink_to(found)
        self.put("python", PYTHON)
        self.put("id", "#!/bin/sh\necho 0\n")

    def put(self, name: str, text: str) -> None:
        file = self.folder / "bin" / name
        file.write_text(text.replace("FOLDER", str(self.folder)), encoding="utf-8")
        file.chmod(0o755)

    def works(self) -> None:
        (self.folder / "works").touch()

    def apt(self, result: str = 'touch "FOLDER/works"') -> None:
        touch = shutil.which("touch")
        self.put("apt-get", APT.replace("RESULT", result.replace("touch", str(touch))))

    def run(self) -> Any:
        bash = str(self.folder / "bin" / "bash")
        return subprocess.run(
            [bash, str(SCRIPTS / "install-drivers.sh"), "python"],
            env={"PATH": str(self.folder / "bin")},
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def calls(self) -> list[list[str]]:
        log = self.folder / "log"
        return [line.split() for line in log.read_text().splitlines()]


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    return Bare(tmp_path / "machine")


def test_nothing_is_installed_where_nothing_is_missing(bare: Bare) -> None:
    bare.put("ld", "#!/bin/sh\n")
    bare.works()
    assert bare.run().returncode == 0


def test_root_installs_what_is_missing(bare: Bare) -> None:
    bare.apt()
    done = bare.run()
    assert done.returncode == 0, done.stderr
    update, install = bare.calls
    assert update == ["-o", LOCK, "-qq", "update"]
    assert install[:3] == ["-o", LOCK, "-qq"]
    assert install[3:] == [
        *("install", "-y", "--no-install-recommends"),
        "binutils",
        *MESA,
    ]


def test_others_install_by_a_sudo_that_asks_nothing(bare: Bare) -> None:
    bare.apt()
    bare.put("ld", "#!/bin/sh\n")
    bare.put("id", "#!/bin/sh\necho 1000\n")
    bare.put("true", "#!/bin/sh\n")
    bare.put("sudo", '#!/bin/sh\nshift\nexec "$@"\n')
    done = bare.run()
    assert done.returncode == 0, done.stderr
    assert bare.calls[1][-2:] == MESA


@pytest.mark.parametrize("case", ["no apt-get", "no sudo", "a password", "apt-get"])
def test_what_cannot_be_installed_is_named(bare: Bare, case: str) -> None:
    bare.put("ld", "#!/bin/sh\n")
    if case != "no apt-get":
        bare.apt("exit 100")
    if case in ("no sudo", "a password"):
        bare.put("id", "#!/bin/sh\necho 1000\n")
    if case == "a password":
        bare.put("sudo", "#!/bin/sh\nexit 1\n")
    done = bare.run()
    assert done.returncode == 1
    assert "mesa-vulkan-drivers libvulkan1" in done.stderr
    assert case.removeprefix("no ") in done.stderr


def test_a_lane_that_still_has_no_device_is_a_failure(bare: Bare) -> None:
    bare.apt(":")
    done = bare.run()
    assert done.returncode == 1
    assert "no adapter" in done.stderr
