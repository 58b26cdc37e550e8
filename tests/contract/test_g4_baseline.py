"""G4: the measured report of element access and its verifier."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs/testing/storage-element-access-baseline.json"
SCRIPT = ROOT / "scripts/check-element-access-baseline.py"


def verifier() -> Any:
    spec = importlib.util.spec_from_file_location("element_access_baseline", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def codes(capsys: Any) -> set[str]:
    lines = capsys.readouterr().out.splitlines()
    return {line.partition(":")[0] for line in lines if line.startswith("E_")}


@pytest.fixture
def changed(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the report with one value replaced or, with None, removed."""

    def change(*path: str, to: Any = None) -> Path:
        report = json.loads(REPORT.read_text(encoding="utf-8"))
        place = report
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to
        if to is None:
            del place[path[-1]]
        file = tmp_path / "report.json"
        file.write_text(json.dumps(report), encoding="utf-8")
        return file

    return change


@pytest.mark.clause("g4-baseline")
def test_the_tracked_report_is_complete_and_keeps_its_bounds(capsys: Any) -> None:
    assert verifier().main([]) == 0
    assert codes(capsys) == set()
    report = json.loads(REPORT.read_text(encoding="utf-8"))
    assert report["ratios"]["contiguous_read"] <= 1.05
    assert report["ratios"]["contiguous_write"] <= 1.05
    assert report["ratios"]["strided_read"] <= 1.1
    assert report["ratios"]["strided_write"] <= 1.1
    assert report["guard"]["multiples"]["guard"] <= 10
    assert report["path"] == REPORT.relative_to(ROOT).as_posix()
    assert "/" not in json.dumps(report["environment"])  # no path of a machine


FAULTS: list[tuple[tuple[str, ...], Any, str]] = [
    (("schema",), "other", "E_SCHEMA"),
    (("path",), "elsewhere.json", "E_PATH"),
    (("commit",), None, "E_COMMIT"),
    (("elements",), 1000, "E_ELEMENTS"),
    (("environment", "numpy"), None, "E_ENVIRONMENT"),
    (("environment", "processor"), "unknown", "E_ENVIRONMENT"),
    (("bulk", "reading_ns", "direct_strided"), None, "E_MEASURE"),
    (("element_ns", "prepared_strided"), -1.0, "E_MEASURE"),
    (("guard", "multiples", "guard"), 10.5, "E_BOUND"),
    (("ratios", "contiguous_read"), 0.5, "E_RATIO"),
]


@pytest.mark.clause("g4-baseline")
@pytest.mark.parametrize(("path", "value", "code"), FAULTS)
def test_the_verifier_sees_each_fault(
    changed: Callable[..., Path],
    capsys: Any,
    path: tuple[str, ...],
    value: Any,
    code: str,
) -> None:
    assert verifier().main([str(changed(*path, to=value))]) == 1
    assert codes(capsys) == {code}


@pytest.mark.clause("g4-baseline")
def test_reports_are_compared_only_within_one_environment(
    changed: Callable[..., Path], capsys: Any
) -> None:
    check = verifier().main
    other = changed("environment", "numpy", to="1.0")
    assert check(["--compare", str(other)]) == 1
    assert codes(capsys) == {"E_INCOMPATIBLE"}
    assert check(["--compare", str(REPORT)]) == 0
    guard = json.loads(REPORT.read_text(encoding="utf-8"))["guard"]["multiples"]
    slower = changed("guard", "multiples", "guard", to=guard["guard"] * 1.3)
    assert check(["--compare", str(slower)]) == 1
    assert "E_SLOWER" in codes(capsys)
