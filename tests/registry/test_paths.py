"""Confinement: what leads out of the repository is refused before anything else.

The same rules hold for active and deferred rows, and for every place where a path
stands.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.registry.support import NAME, Ledger, only

ESCAPES = ["../outside.py", "tests/../../outside.py", "/outside.py", "out/outside.py"]
DETOURS = [
    "./tests/test_a.py",
    "tests//test_a.py",
    "tests/../tests/test_a.py",
    "tests\\test_a.py",
    "tests/test_a.py\0",
    "tests/test_a.py\n",
    "",
]


@pytest.fixture
def leaky(plain: Ledger, tmp_path: Path) -> Ledger:
    """A registry beside an outside folder, with a link that leads there."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "outside.py").write_text("", encoding="utf-8")
    (plain.folder / "out").symlink_to(tmp_path / "elsewhere")
    (plain.folder / "inside").symlink_to("tests")
    (plain.folder / "round").symlink_to("round")
    return plain


@pytest.mark.clause("v2-path-confinement")
@pytest.mark.parametrize("name", ["p0-a", "p3-a"])
@pytest.mark.parametrize("path", [*ESCAPES, "round/x.py"])
def test_an_artifact_that_leads_out_is_refused(
    leaky: Ledger, name: str, path: str
) -> None:
    leaky.row(name)["artifact"]["path"] = path
    leaky.save()
    fields = {"subject": f"artifact-{name}", "field": "path", "path": path}
    only(leaky.check(), "E_PATH_ESCAPE", fields)


@pytest.mark.clause("v2-path-confinement")
@pytest.mark.parametrize("path", DETOURS)
def test_a_path_that_is_not_exact_is_refused(leaky: Ledger, path: str) -> None:
    leaky.row("p0-a")["artifact"]["path"] = path
    leaky.save()
    fields = {"subject": "artifact-p0-a", "field": "path", "path": path}
    only(leaky.check(), "E_PATH_FORM", fields)


@pytest.mark.clause("v2-path-confinement")
def test_further_paths_and_folders_of_commands_are_confined_too(leaky: Ledger) -> None:
    leaky.row("p0-a")["artifact"]["more_paths"] = ["docs/r.json", "../x"]
    leaky.save()
    fields = {"subject": "artifact-p0-a", "field": "more_paths[1]", "path": "../x"}
    only(leaky.check(), "E_PATH_ESCAPE", fields)
    del leaky.row("p0-a")["artifact"]["more_paths"]
    leaky.row("p0-a")["command"]["cwd"] = "out"
    leaky.save()
    fields = {"subject": "cmd-p0-a", "field": "cwd", "path": "out"}
    only(leaky.check(), "E_PATH_ESCAPE", fields)


@pytest.mark.clause("v2-path-confinement")
@pytest.mark.parametrize("path", ESCAPES)
@pytest.mark.parametrize(
    ("name", "index", "node"), [("p0-a", 2, "::test_one"), ("p1-a", 2, "")]
)
def test_an_argument_that_leads_out_is_refused(
    leaky: Ledger, name: str, index: int, node: str, path: str
) -> None:
    leaky.row(name)["command"]["argv"][index] = path + node
    leaky.save()
    fields = {"subject": f"cmd-{name}", "field": f"argv[{index}]", "path": path}
    only(leaky.check(), "E_PATH_ESCAPE", fields)


@pytest.mark.clause("v2-path-confinement")
def test_an_argument_is_seen_from_its_working_folder(leaky: Ledger) -> None:
    command = leaky.row("p2-a")["command"]
    command |= {"argv": ["pytest", "test_a.py"], "cwd": "tests"}
    leaky.save()
    assert leaky.check().status == 0
    command["argv"][1] = "../../outside.py"
    leaky.save()
    fields = {"subject": "cmd-p2-a", "field": "argv[1]", "path": "../../outside.py"}
    only(leaky.check(), "E_PATH_ESCAPE", fields)


@pytest.mark.clause("v2-path-confinement")
def test_a_link_that_stays_inside_is_an_ordinary_path(leaky: Ledger) -> None:
    leaky.row("p0-a")["artifact"]["path"] = "inside/test_a.py"
    leaky.save()
    assert leaky.check().status == 0


@pytest.mark.clause("v2-path-confinement")
@pytest.mark.parametrize("path", ["../plain/" + NAME, "out/m.toml", "/etc/m.toml"])
def test_the_manifest_is_named_from_the_root(leaky: Ledger, path: str) -> None:
    said = leaky.check("--manifest", path)
    code = "E_PATH_FORM" if path.startswith("../plain") else "E_PATH_ESCAPE"
    only(said, code, {"subject": "manifest", "field": "--manifest", "path": path})


OTHER_FAULTS: list[dict[str, Any]] = [
    {"argv": ["sh", "../x.py"]},  # another executable
    {"kind": "shell"},  # another kind
    {"artifact_id": "artifact-p2-a"},  # another artifact
    {"path_args": []},  # another list of paths
]


@pytest.mark.clause("v2-diagnostics-path-first")
@pytest.mark.parametrize("other", OTHER_FAULTS)
def test_a_path_is_reported_before_commands_are_compared(
    leaky: Ledger, other: dict[str, Any]
) -> None:
    command = leaky.row("p0-a")["command"]
    command |= {"argv": ["pytest", "../x.py"], "path_args": [1]} | other
    leaky.save()
    fields = {"subject": "cmd-p0-a", "field": "argv[1]", "path": "../x.py"}
    only(leaky.check(), "E_PATH_ESCAPE", fields)


@pytest.mark.clause("v2-diagnostics-path-first")
def test_a_path_is_reported_before_two_values_of_one_id(leaky: Ledger) -> None:
    leaky.row("p9-b")["command"] = dict(
        leaky.row("p9-a")["command"],
        argv=["pytest", "../x.py"],
        artifact_id="artifact-p9-b",
    )
    leaky.save()
    fields = {"subject": "cmd-p9-a", "field": "argv[1]", "path": "../x.py"}
    only(leaky.check(), "E_PATH_ESCAPE", fields)
