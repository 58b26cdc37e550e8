"""The pytest plugin: tests that pin what a computation allocates, copies and keeps.

    @pytest.mark.ledger(OperationOutput=12)   # exactly these events, and no others
    @pytest.mark.no_copies                    # nothing is duplicated or transferred
    @pytest.mark.no_leaks                     # every root made in the test is released
    @pytest.mark.peak("3 MiB")                # live bytes and workspace stay below this
    def test_step(ledger): ...                # `ledger` counts the test function itself

    def test_layout(ledger, ledger_snapshot):
        step()
        ledger_snapshot(ledger)               # compared with the file beside the test

One ledger scope spans the call of the test function, so fixtures never count. Marks
are checked when the function has returned and its frame is gone; a test that failed by
itself reports its own failure only. `pytest --ledger-update` writes stored snapshots.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from ._ledger import ALLOCATION_REASONS, BASE, COPY_REASONS, LedgerScope
from ._report import (
    Facts,
    Group,
    Row,
    difference,
    mismatch,
    origins,
    parse_size,
    rows_of,
    size_text,
    table,
)
from .errors import InvalidArgumentError

_MARKS: Final = (
    "ledger(**reasons): exactly these allocations and copies happen in the test",
    "no_copies: nothing is duplicated or transferred in the test",
    "no_leaks: every root that the test makes is released by its end",
    "peak(size): live bytes and the largest workspace stay below this size",
)
_NAMES: Final = ("ledger", "no_copies", "no_leaks", "peak")
_REASONS: Final = (*ALLOCATION_REASONS, *COPY_REASONS)
_SCOPE: Final = pytest.StashKey[LedgerScope]()
_WRITTEN: Final = pytest.StashKey[list[str]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("tenferro_ad")
    group.addoption(
        "--ledger-update",
        action="store_true",
        help="write the stored ledgers of `ledger_snapshot` instead of comparing",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_WRITTEN] = []
    for line in _MARKS:
        config.addinivalue_line("markers", line)


def _scope_of(item: pytest.Item) -> LedgerScope:
    return item.stash.setdefault(_SCOPE, LedgerScope())


@pytest.fixture
def ledger(request: pytest.FixtureRequest) -> LedgerScope:
    """A ledger of what the test function does; fixtures are not counted."""
    return _scope_of(request.node)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Count around the test function, then check its marks."""
    marked = any(item.get_closest_marker(name) for name in _NAMES)
    if not marked and _SCOPE not in item.stash:
        return (yield)
    checks = _checks(item)
    scope = _scope_of(item)
    before = BASE.live
    try:
        with scope:
            result = yield
    finally:
        del item.stash[_SCOPE]  # a second run of the item counts afresh
    failures = [text for check in checks for text in check(scope, before)]
    if failures:
        pytest.fail("\n\n".join(failures), pytrace=False)
    return result


Check = Callable[[LedgerScope, int], Generator[str, None, None]]


def _checks(item: pytest.Item) -> list[Check]:
    """The item's marks as checks; a mark that makes no sense fails before the test."""
    checks: list[Check] = []
    exact = item.get_closest_marker("ledger")
    if exact is not None:
        unknown = sorted(set(exact.kwargs) - set(_REASONS))
        if unknown or exact.args:
            pytest.fail(
                f"`@pytest.mark.ledger` got {list(exact.args) + unknown}. "
                f"Name counts by reason: {', '.join(_REASONS)}.",
                pytrace=False,
            )
        checks.append(_exactly(exact.kwargs))
    elif item.get_closest_marker("no_copies") is not None:
        checks.append(_exactly(None))
    if item.get_closest_marker("no_leaks") is not None:
        checks.append(_no_leaks)
    peak = item.get_closest_marker("peak")
    if peak is not None:
        size = peak.args[0] if len(peak.args) == 1 else ""
        try:
            limit = parse_size(size, "pytest.mark.peak")
        except InvalidArgumentError as error:
            limit, wrong = -1, str(error)
        if limit < 0:
            pytest.fail(wrong, pytrace=False)
        checks.append(_below(limit))
    return checks


def _exactly(wanted: Mapping[str, int] | None) -> Check:
    """Exact multisets; None checks the copies alone, all of them zero."""

    def check(scope: LedgerScope, before: int) -> Generator[str, None, None]:
        facts = scope.facts
        rows = rows_of(wanted, facts.allocations, ALLOCATION_REASONS)
        rows += rows_of(wanted or {}, facts.copies, COPY_REASONS, "copy ")
        if any(row.differs for row in rows):
            yield mismatch(rows, facts.groups)

    return check


def _no_leaks(scope: LedgerScope, before: int) -> Generator[str, None, None]:
    """Roots of this test that are alive, wherever (in which thread) they were made."""
    alive = max(scope.live, BASE.live - before)
    if alive <= 0:
        return
    nbytes, facts = scope.live_bytes, scope.facts
    gc.collect()
    freed = alive - max(scope.live, BASE.live - before, 0)
    if freed == alive:
        why = (
            "They hang in reference cycles: only the cyclic collector frees them.\n"
            "Look for an object that refers to itself, or a caught exception whose "
            "traceback holds the frame that holds it (`del` the name of the exception)."
        )
    else:
        why = (
            "Something outlives the test: a global, a cache, a fixture, an open view "
            "or exported array, or a saved exception with its traceback."
        )
        if freed:
            why += f"\nOf these, {freed} hung in reference cycles only."
    allocated = [row for row in facts.groups.items() if row[0].kind == "allocation"]
    yield "\n".join(
        [
            f"The test leaves {alive} of its roots alive ({size_text(nbytes)}).",
            why,
            *origins(dict(allocated), ALLOCATION_REASONS),
        ]
    )


def _below(limit: int) -> Check:
    def check(scope: LedgerScope, before: int) -> Generator[str, None, None]:
        total = scope.peak_bytes + scope.workspace
        if total <= limit:
            return
        largest = sorted(scope.facts.groups.items(), key=_footprint, reverse=True)
        rows = [Row("live bytes and workspace", limit, total)]
        yield "\n".join(
            [
                f"The peak is {size_text(total)}, above {size_text(limit)}: "
                f"{size_text(scope.peak_bytes)} live and {size_text(scope.workspace)} "
                "workspace.",
                "",
                *table(rows, "limit", "seen"),
                *origins(dict(largest[:12]), ALLOCATION_REASONS),
            ]
        )

    return check


def _footprint(row: tuple[Group, int]) -> int:
    group, n = row
    return group.nbytes * n


# ---- stored snapshots


@pytest.fixture
def ledger_snapshot(request: pytest.FixtureRequest) -> Callable[..., None]:
    """Compare a ledger with the one stored beside the test: `ledger_snapshot(led)`.

    The file is `__ledgers__/<module>/<test>.json`; a test with several ledgers names
    them, `ledger_snapshot(led, "backward")`. It holds counts by reason, the peak, and
    operations with shapes and dtypes, but no source lines, which move with every edit.
    """

    def check(led: LedgerScope, name: str = "") -> None:
        __tracebackhide__ = True
        path = _path_of(request.node, name)
        text = led.facts.to_json(places=False) + "\n"
        if request.config.getoption("--ledger-update"):
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
                request.config.stash[_WRITTEN].append(str(path))
            return
        _compare(path, led.facts)

    return check


def _path_of(node: pytest.Item, name: str) -> Path:
    label = "-".join(filter(None, (node.name, name)))
    # Class and parameters are part of the name; other signs do not fit a file system.
    owner = getattr(node, "cls", None)
    label = f"{owner.__name__}.{label}" if owner is not None else label
    safe = re.sub(r"[^A-Za-z0-9_.,=+-]+", "_", label).strip("_")
    return node.path.parent / "__ledgers__" / node.path.stem / f"{safe}.json"


def _compare(path: Path, seen: Facts) -> None:
    __tracebackhide__ = True
    if not path.exists():
        pytest.fail(
            f"No ledger is stored at {path}.\n"
            "Run `pytest --ledger-update`, read the file, and commit it.",
            pytrace=False,
        )
    stored = Facts.from_json(path.read_text(encoding="utf-8"), str(path))
    found = difference(stored, seen, "stored", "seen")
    if found.exists:
        pytest.fail(
            f"The ledger differs from {path.name}.\n\n{found}\n\n"
            "If the change is meant, run `pytest --ledger-update` and commit the file.",
            pytrace=False,
        )


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    written = config.stash[_WRITTEN]
    if written:
        terminalreporter.section("ledgers written")
        for path in written:
            terminalreporter.line(path)
