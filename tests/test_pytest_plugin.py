"""The plugin as a user meets it: small suites run by pytest itself."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = ("pytester",)

PLUGIN = "tenferro_ad.pytest_plugin"
ROOT = Path(__file__).parents[1]

HEAD = """
    import numpy as np
    import pytest
    import tenferro_ad as ta

    @pytest.fixture
    def x():
        return ta.asarray(np.ones((3, 4)))
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write a test module under the usual head; run it in a process of its own."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    loaded = {point.value for point in entry_points(group="pytest11")}
    options = [] if PLUGIN in loaded else ["-p", PLUGIN]

    def run(body: str, *more: str) -> pytest.RunResult:
        pytester.makepyfile(test_suite=HEAD + body)
        return pytester.runpytest_subprocess(
            "--strict-markers", "-p", "no:cacheprovider", *options, *more
        )

    return run


def test_exact_marks_hold_and_fixtures_do_not_count(suite: Any) -> None:
    suite(
        """
    @pytest.mark.ledger(OperationOutput=2)
    def test_pinned(x, ledger):
        y = x * x
        z = y + y
        assert ledger.allocations == {"OperationOutput": 2}

    @pytest.mark.ledger(TransferDestination=1, Transfer=1)
    def test_a_copy_must_be_named():
        ta.asarray(np.ones(3))

    @pytest.mark.ledger()
    def test_nothing_at_all(x):
        x.clone()

    @pytest.mark.no_copies
    @pytest.mark.no_leaks
    @pytest.mark.peak("192 B")
    def test_bounded(x):
        return_nothing = x * x
        return_nothing = None
    """
    ).assert_outcomes(passed=4)


def test_a_broken_mark_shows_both_multisets_and_the_lines(suite: Any) -> None:
    result = suite(
        """
    @pytest.mark.ledger(OperationOutput=1)
    def test_pinned(x):
        y = x * x
        y = x.duplicate_value()
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "The ledger differs in *Destination, copy ExplicitDuplicate.",
            "*expected*seen",
            "  OperationOutput * 1 * 1",
            "! ExplicitDuplicateDestination * 0 * 1 * +1",
            "! copy ExplicitDuplicate * 0 * 1 * +1",
            "*ExplicitDuplicateDestination, seen in",
            "*1 x duplicate_value *float64[[]3, 4[]] *96 B *test_suite.py:12 "
            "*y = x.duplicate_value()",
        ]
    )
    # No line of the plugin's own machinery stands between the user and the report.
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_no_copies_names_the_copy(suite: Any) -> None:
    result = suite(
        """
    @pytest.mark.no_copies
    def test_copies(x):
        x.duplicate_value()
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["! copy ExplicitDuplicate * 0 * 1 * +1"])


def test_no_leaks_tells_what_is_held_from_what_is_cyclic(suite: Any) -> None:
    result = suite(
        """
    KEPT = []

    @pytest.mark.no_leaks
    def test_held(x):
        KEPT.append(x * x)

    @pytest.mark.no_leaks
    def test_cyclic(x):
        cycle = [x + x]
        cycle.append(cycle)

    @pytest.mark.no_leaks
    def test_in_a_thread(x):
        import threading
        thread = threading.Thread(target=lambda: KEPT.append(x - x))
        thread.start()
        thread.join()

    def test_clean_up():
        KEPT.clear()
    """
    )
    result.assert_outcomes(failed=3, passed=1)
    result.stdout.fnmatch_lines(
        [
            "*test_held*",
            "The test leaves 1 of its roots alive (96 B).",
            "Something outlives the test*",
            "*1 x mul *KEPT.append(x [*] x)",
            "*test_cyclic*",
            "The test leaves 1 of its roots alive (96 B).",
            "They hang in reference cycles*",
            "*test_in_a_thread*",
            "The test leaves 1 of its roots alive*",
        ]
    )


def test_the_peak_counts_live_bytes_and_names_the_largest(suite: Any) -> None:
    result = suite(
        """
    @pytest.mark.peak("0.1 KiB")
    def test_large(x):
        y = x * x
        z = y + x
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["The peak is 192 B, above 102 B*", "*1 x add *96 B*"])


def test_a_mark_that_makes_no_sense_fails_before_the_test(suite: Any) -> None:
    result = suite(
        """
    @pytest.mark.ledger(Outputs=1)
    def test_unknown_reason():
        raise SystemError

    @pytest.mark.peak("3 apples")
    def test_no_size():
        raise SystemError
    """
    )
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*got [[]'Outputs'[]]*OperationOutput*", "*'3 apples'*"]
    )
    result.stdout.no_fnmatch_line("*SystemError*")


def test_a_failing_test_reports_its_own_failure_only(suite: Any) -> None:
    result = suite(
        """
    @pytest.mark.ledger()
    def test_fails(x):
        y = x * x
        assert False, "mine"
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*AssertionError: mine*"])
    result.stdout.no_fnmatch_line("*The ledger differs*")


def test_expect_points_at_the_line_of_the_test(suite: Any) -> None:
    result = suite(
        """
    def test_expect(x, ledger):
        y = x * x
        ledger.expect(allocations={}, copies={})
    """
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [">*ledger.expect(allocations={}, copies={})", "E*! OperationOutput*0*1*+1"]
    )
    result.stdout.no_fnmatch_line("*_ledger.py*")


SNAPSHOT = """
    @pytest.mark.parametrize("n", [1, 2])
    def test_step(x, ledger, ledger_snapshot, n):
        for _ in range(n{more}):
            y = x * x
        ledger_snapshot(ledger)
"""


def test_snapshots_are_written_compared_and_updated(
    suite: Any, pytester: pytest.Pytester
) -> None:
    first = suite(SNAPSHOT.format(more=""))
    first.assert_outcomes(failed=2)
    first.stdout.fnmatch_lines(["No ledger is stored at *"])

    written = suite(SNAPSHOT.format(more=""), "--ledger-update")
    written.assert_outcomes(passed=2)
    written.stdout.fnmatch_lines(["*ledgers written*"])
    folder = pytester.path / "__ledgers__" / "test_suite"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["test_step_1.json", "test_step_2.json"]
    # Lines move with every edit, so they are not part of what is compared.
    assert "test_suite.py" not in (folder / names[0]).read_text(encoding="utf-8")
    suite("\n\n" + SNAPSHOT.format(more="")).assert_outcomes(passed=2)

    changed = suite(SNAPSHOT.format(more=" + 1"))
    changed.assert_outcomes(failed=2)
    changed.stdout.fnmatch_lines(
        [
            "The ledger differs from test_step_1.json.",
            "*stored*seen",
            "! allocation OperationOutput * 1 * 2 * +1",
            "! OperationOutput mul *1 -> 2 *+1 *test_suite.py:*y = x [*] x",
        ]
    )
    suite(SNAPSHOT.format(more=" + 1"), "--ledger-update").assert_outcomes(passed=2)
    suite(SNAPSHOT.format(more=" + 1")).assert_outcomes(passed=2)


def test_the_plugin_loads_only_pytest_beside_the_package() -> None:
    code = (
        "import sys, pytest, tenferro_ad\n"
        "before = set(sys.modules)\n"
        "import tenferro_ad.pytest_plugin\n"
        "print(sorted(set(sys.modules) - before))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    assert run.stdout.strip() == "['tenferro_ad.pytest_plugin']"
