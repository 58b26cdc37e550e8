"""Ledgers: what a scope counts, what it says, and what leaves it."""

from __future__ import annotations

import json
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.__main__ import main
from tenferro_ad._ledger import BASE, STATE
from tenferro_ad._report import Facts, parse_size, size_text
from tenferro_ad.errors import (
    ForbiddenEventError,
    InvalidArgumentError,
    LedgerMismatchError,
)

N = 64  # bytes of one value below


@pytest.fixture
def x() -> Any:
    return ta.asarray(np.ones(8))


def test_counts_equal_the_provider_s_own(x: Any, provider_calls: Any) -> None:
    w = ta.variable(np.ones((8, 8)))
    large = ta.asarray(np.ones(100_000))
    provider_calls.reset()
    with ta.ledger() as led:
        with ta.Tape() as tape:
            loss = ta.sum(ta.tanh(x @ w))
        tape.backward(loss)
        large = large * large
        x.duplicate_value()
    # matmul, tanh, sum; seed, tanh's cotangent, gradient; the large product.
    led.expect(
        allocations={"OperationOutput": 7, "ExplicitDuplicateDestination": 1},
        copies={"ExplicitDuplicate": 1},
    )
    assert provider_calls.total == 8
    assert provider_calls.pooled == 1


def test_nested_scopes_have_peaks_of_their_own(x: Any) -> None:
    # Field report: the outer scope sees 3, the inner one 1, both at once.
    with ta.ledger() as outer:
        a, b = x + 1.0, x + 2.0
        with ta.ledger() as inner:
            c = x + 3.0
        assert (outer.peak_bytes, inner.peak_bytes) == (3 * N, N)
        del a, b, c
        assert (outer.live, inner.live) == (0, 0)
        assert (outer.peak_bytes, inner.peak_bytes) == (3 * N, N)
    assert (outer.allocations.total(), inner.allocations.total()) == (3, 1)


def test_live_counts_what_was_not_dropped(x: Any) -> None:
    # Field report: ten allocations, four dropped, six left.
    with ta.ledger() as led:
        values = [x + float(i) for i in range(10)]
        del values[:4]
        assert (led.live, led.live_bytes) == (6, 6 * N)
    del values
    assert (led.live, led.live_bytes) == (0, 0)  # releases find their scope later too


def test_only_the_scope_that_counted_a_root_hears_of_its_release(x: Any) -> None:
    with ta.ledger() as before:
        y = x + 1.0
    with ta.ledger() as after:
        del y
    assert (before.live, after.live) == (0, 0)
    assert before.allocations == {"OperationOutput": 1}
    assert not after.allocations


def test_handles_views_and_retention_are_no_events(x: Any) -> None:
    y = x + 1.0
    with ta.ledger() as led:
        held = [y.clone() for _ in range(5)]
        with y.value() as v:
            assert v.numpy().sum() == 16.0
    led.expect(allocations={}, copies={}, peak_bytes=0)
    assert len(held) == 5


def test_threads_count_into_their_own_scopes(x: Any) -> None:
    counts = {}

    def work(name: int) -> None:
        with ta.ledger() as led:
            for _ in range(name):
                x + 1.0
        counts[name] = led.allocations.total()

    with ta.ledger() as mine:
        threads = [threading.Thread(target=work, args=(n,)) for n in (3, 30)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert counts == {3: 3, 30: 30}
    assert not mine.allocations


def test_a_scope_closes_when_its_block_fails(x: Any) -> None:
    with pytest.raises(ZeroDivisionError), ta.ledger() as led:
        y = x + 1.0
        del y
        raise ZeroDivisionError
    assert STATE.get().account is BASE
    assert led.allocations == {"OperationOutput": 1}
    with pytest.raises(RuntimeError, match="entered twice"), led:
        pass


# ---- expect and forbid


def test_expect_shows_two_columns_and_where_the_difference_comes_from(x: Any) -> None:
    with ta.ledger() as led:
        y = x + 1.0
        y.duplicate_value()
    with pytest.raises(LedgerMismatchError) as caught:
        led.expect(allocations={"OperationOutput": 3}, copies={}, peak_bytes="100 B")
    said = str(caught.value)
    assert isinstance(caught.value, AssertionError)
    for pattern in (
        r"^! OperationOutput +3 +1 +-2$",
        r"^! ExplicitDuplicateDestination +0 +1 +\+1$",
        r"^! copy ExplicitDuplicate +0 +1 +\+1$",
        r"^! peak bytes +100 +128 +\+28$",
        r"^ +1 x add +float64\[8\] +64 B +test_ledger\.py:\d+ +y = x \+ 1\.0$",
    ):
        assert re.search(pattern, said, re.MULTILINE), said
    assert caught.value.seen["copies"] == {"ExplicitDuplicate": 1}


def test_expect_checks_only_what_is_given(x: Any) -> None:
    with ta.ledger(detail=False) as led:
        x.duplicate_value()
    led.expect()
    led.expect(allocations={"ExplicitDuplicateDestination": 1})
    led.expect(copies={"ExplicitDuplicate": 1}, peak_bytes="1 KiB")
    with pytest.raises(LedgerMismatchError, match="detail=True"):
        led.expect(copies={})


def test_expect_refuses_unknown_reasons(x: Any) -> None:
    with ta.ledger() as led, pytest.raises(InvalidArgumentError, match="Output"):
        led.expect(allocations={"Output": 1})


def test_many_places_are_summed_up(x: Any) -> None:
    with ta.ledger() as led:
        for n in range(1, 31):
            ta.asarray(np.ones(n))
    with pytest.raises(LedgerMismatchError, match=r"18 more, in 18 other places"):
        led.expect(copies={})


def test_forbid_refuses_before_anything_happens(x: Any, provider_calls: Any) -> None:
    with ta.ledger() as led:
        with ta.forbid(copies=True):
            y = x + 1.0
            with pytest.raises(ForbiddenEventError, match="duplicate_value"):
                y.duplicate_value()
        with ta.forbid(allocations=True), pytest.raises(ForbiddenEventError):
            y + 1.0
    led.expect(allocations={"OperationOutput": 1}, copies={})
    assert provider_calls.total == 1


# ---- reports


def test_the_report_is_a_table(x: Any) -> None:
    with ta.ledger() as led:
        x + 1.0
    rows = dict(re.findall(r"^(.+?) {2,}([\d,]+)$", led.report(), re.MULTILINE))
    assert rows == {
        "OperationOutput": "1",
        "copies": "0",
        "live roots": "0",
        "live bytes": "0",
        "peak bytes": "64",
        "workspace bytes": "0",
    }


def test_json_holds_the_same_facts_and_reads_back(x: Any) -> None:
    with ta.ledger() as led:
        y = x + 1.0
        y.duplicate_value()
    data = json.loads(led.to_json())
    assert data["allocations"] == dict(led.allocations)
    assert data["copies"] == {"ExplicitDuplicate": 1}
    assert data["live"] == 1
    assert {row["operation"] for row in data["groups"]} == {"add", "duplicate_value"}
    assert all(row["where"].startswith("test_ledger.py:") for row in data["groups"])
    assert Facts.from_json(led.to_json()).to_json() == led.to_json()
    assert "where" not in led.facts.to_json(places=False)


class Page(HTMLParser):
    """Checks that tags close, and gathers what the page would load."""

    VOID = frozenset({"meta", "line", "polygon"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        self.loads += [v for k, v in attrs if k in ("src", "href", "xlink:href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_self_contained_and_small(x: Any) -> None:
    with ta.ledger(events=True) as led:
        for _ in range(2000):
            x + 1.0
        x.duplicate_value()
    text = led.to_html()
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert "script" not in page.tags
    assert "prefers-color-scheme: dark" in text
    assert {"OperationOutput", "ExplicitDuplicateDestination", "release"} <= set(
        re.findall(r"[A-Za-z]+", text)
    )
    assert len(text) < 200_000


def test_the_page_without_events_says_how_to_get_them() -> None:
    with ta.ledger() as led:
        pass
    assert "ta.ledger(events=True)" in led.to_html()


def test_events_are_kept_in_order(x: Any) -> None:
    with ta.ledger(events=True) as led:
        y = x + 1.0
        z = y.duplicate_value()
        del y, z
    seen = [(e.kind, e.operation, e.live_bytes) for e in led.events]
    assert seen == [
        ("allocation", "add", N),
        ("allocation", "duplicate_value", 2 * N),
        ("copy", "duplicate_value", 2 * N),
        ("release", "", N),
        ("release", "", 0),
    ]


# ---- sizes and the command


@pytest.mark.parametrize(
    ("text", "nbytes"),
    [(96, 96), ("96", 96), ("3 MiB", 3 << 20), ("1.5KiB", 1536), ("2 MB", 2_000_000)],
)
def test_sizes_are_read(text: int | str, nbytes: int) -> None:
    assert parse_size(text, "test") == nbytes


@pytest.mark.parametrize("text", ["", "many", "3 apples", "-1 B", "1 2"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="3 MiB"):
        parse_size(text, "test")


def test_sizes_are_written() -> None:
    found = [size_text(n) for n in (0, 96, 1024, 3 << 20, 5 << 30)]
    assert found == ["0 B", "96 B", "1.0 KiB", "3.0 MiB", "5.0 GiB"]


def store(path: Path, led: Any) -> str:
    path.write_text(led.to_json(), encoding="utf-8")
    return str(path)


@pytest.fixture
def ledgers(tmp_path: Path, x: Any) -> list[str]:
    """Stored ledgers: a base, one with another allocation, one with a copy more."""
    found = []
    for name in ("base", "allocates", "copies"):
        with ta.ledger() as led:
            x + 1.0
            if name != "base":
                x * 2.0
            if name == "copies":
                x.duplicate_value()
        found.append(store(tmp_path / f"{name}.json", led))
    return found


def test_the_diff_command_tells_and_fails_on_request(
    ledgers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    base, allocates, copies = ledgers
    diff = ["ledger", "diff"]
    assert main([*diff, base, base, "--fail-on", "new-copies"]) == 0
    assert capsys.readouterr().out == "The ledgers agree.\n"
    assert main([*diff, base, copies]) == 0
    said = capsys.readouterr().out
    assert re.search(r"^! allocation OperationOutput +1 +2 +\+1$", said, re.MULTILINE)
    assert re.search(r"^! OperationOutput mul .*0 -> 1", said, re.MULTILINE)
    assert main([*diff, base, allocates, "--fail-on", "new-copies"]) == 0
    assert main([*diff, base, allocates, "--fail-on", "new-allocations"]) == 1
    assert main([*diff, copies, base, "--fail-on", "new-copies"]) == 0
    capsys.readouterr()
    both = ["--fail-on", "new-copies", "--fail-on", "new-allocations"]
    assert main([*diff, base, copies, *both]) == 1
    assert "FAIL: 1 new copies\nFAIL: 2 new allocations\n" in capsys.readouterr().out


def test_the_diff_command_says_what_it_cannot_read(
    tmp_path: Path, ledgers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = json.loads(Path(ledgers[0]).read_text(encoding="utf-8"))
    (row, *_) = whole["groups"]
    edits: list[dict[str, Any]] = [
        {"allocations": 3},
        {**whole, "allocations": []},
        {**whole, "copies": {"Transfer": "1"}},
        {**whole, "peak_bytes": None},
        {**whole, "groups": [{**row, "reason": None}]},
        {**whole, "groups": [{**row, "shape": ["8"]}]},
        {**whole, "groups": [{**row, "count": 1.5}]},
    ]
    files = [tmp_path / f"broken{i}.json" for i in range(len(edits))]
    for file, edit in zip(files, edits, strict=True):
        file.write_text(json.dumps(edit), encoding="utf-8")
    for bad in (tmp_path / "absent.json", *files):
        assert main(["ledger", "diff", ledgers[0], str(bad)]) == 2
        assert bad.name in capsys.readouterr().err
    with pytest.raises(SystemExit) as stopped:
        main(["ledger", "diff", *ledgers[:2], "--fail-on", "everything"])
    assert stopped.value.code == 2
