"""The verifier of the traversal report: it reads the baseline and sees each fault."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import ROOT, script

VERIFIER = script("check-storage-traversal-performance")
BASELINE: dict[str, Any] = json.loads((ROOT / VERIFIER.BASELINE).read_text("utf-8"))


def report() -> dict[str, Any]:
    """A report that holds: as fast as NumPy everywhere, at the baseline's commit."""
    even = {"direct_ns": 100.0, "prepared_ns": 100.0, "ratio": 1.0}
    return {
        "schema": VERIFIER.SCHEMA,
        "path": VERIFIER.REPORT,
        "commit": BASELINE["commit"],
        "environment": dict(BASELINE["environment"]),
        "baseline": {"path": BASELINE["path"], "commit": BASELINE["commit"]},
        "elements": BASELINE["elements"],
        "cases": {case: dict(even) for case in VERIFIER.CASES},
        "compared": {
            then: {"baseline": BASELINE["ratios"][then], "case": now, "now": 1.0}
            for then, now in VERIFIER.COMPARED.items()
        },
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], str]:
    def put(name: str, content: Any) -> str:
        file = tmp_path / name
        file.write_text(json.dumps(content), encoding="utf-8")
        return str(file)

    return put


def codes(capsys: Any) -> set[str]:
    lines = capsys.readouterr().out.splitlines()
    return {line.partition(":")[0] for line in lines if line.startswith("E_")}


@pytest.mark.clause("g4-traversal-performance")
def test_the_tracked_report_holds_and_so_does_its_baseline(capsys: Any) -> None:
    assert VERIFIER.main([]) == 0
    assert "so does its baseline" in capsys.readouterr().out


def test_a_report_that_holds(write: Any, capsys: Any) -> None:
    assert VERIFIER.main([write("r.json", report())]) == 0
    assert codes(capsys) == set()


FAULTS: list[tuple[tuple[str, ...], Any, str]] = [
    (("schema",), "other", "E_SCHEMA"),
    (("path",), "elsewhere.json", "E_PATH"),
    (("elements",), 10, "E_ELEMENTS"),
    (("commit",), None, "E_COMMIT"),
    (("baseline", "commit"), "0" * 40, "E_BASELINE"),
    (("baseline", "path"), "elsewhere.json", "E_BASELINE"),
    (("environment", "numpy"), "1.0", "E_INCOMPATIBLE"),
    (("cases", "reversed_rows_read"), {}, "E_MEASURE"),
    (("cases", "reversed_rows_read", "direct_ns"), -1.0, "E_MEASURE"),
    (("cases", "inner_block_write", "ratio"), 0.5, "E_RATIO"),
    (("compared", "strided_read", "baseline"), 2.0, "E_COMPARED"),
    (("compared", "strided_read", "case"), "transposed_read", "E_COMPARED"),
    (("compared", "strided_read", "now"), 0.1, "E_COMPARED"),
]


@pytest.mark.parametrize(("path", "value", "code"), FAULTS)
def test_each_fault_is_seen(
    write: Any, capsys: Any, path: tuple[str, ...], value: Any, code: str
) -> None:
    changed = report()
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert VERIFIER.main([write("r.json", changed)]) == 1
    assert codes(capsys) == {code}


@pytest.mark.parametrize(
    ("case", "slow"), [("contiguous_read", 1.06), ("transposed_read", 1.11)]
)
def test_a_case_above_its_bound_is_seen(
    write: Any, capsys: Any, case: str, slow: float
) -> None:
    changed = report()
    changed["cases"][case] = {"direct_ns": 1.0, "prepared_ns": slow, "ratio": slow}
    if case in VERIFIER.COMPARED:
        changed["compared"][case]["now"] = slow
    assert VERIFIER.main([write("r.json", changed)]) == 1
    assert codes(capsys) == {"E_BOUND"}


def test_a_case_that_became_slower_is_seen() -> None:
    changed, old = report(), copy.deepcopy(BASELINE)
    old["ratios"]["strided_read"] = 0.7
    changed["compared"]["strided_read"]["baseline"] = 0.7
    found = list(VERIFIER.comparison(changed, old))
    assert found == ["E_SLOWER: `strided_read` went from 0.700 to 1.000"]


def test_the_baseline_is_verified_first(write: Any, capsys: Any) -> None:
    old = copy.deepcopy(BASELINE)
    old["guard"]["multiples"]["guard"] = 99.0
    arguments = [write("r.json", {"no": "report"}), write("b.json", old)]
    assert VERIFIER.main(arguments) == 1
    assert capsys.readouterr().out.startswith("E_BASELINE: E_BOUND")


def test_a_report_from_before_the_baseline_is_seen(monkeypatch: Any) -> None:
    monkeypatch.setattr(VERIFIER, "follows", lambda before, after: before == after)
    assert list(VERIFIER.origin(report(), BASELINE)) == []
    earlier = report() | {"commit": "0" * 40}
    found = list(VERIFIER.origin(earlier, BASELINE))
    assert found == ["E_ORDER: the report does not follow the baseline"]
