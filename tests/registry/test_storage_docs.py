"""The checker of stale language: nothing is stale, and each kind is seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scripts import script

CHECKER = script("check-storage-docs")


def found(capsys: Any, *arguments: str) -> list[str]:
    """Codes of a run; the place of each fault must be a file and a line."""
    status = CHECKER.main(list(arguments))
    lines = capsys.readouterr().out.splitlines()
    faults = [line.split(": ")[1] for line in lines if ": E_" in line]
    assert bool(faults) == bool(status)
    return faults


@pytest.mark.clause("g6-p12-stale-language")
def test_sources_say_nothing_stale(capsys: Any) -> None:
    assert CHECKER.main([]) == 0
    assert "nothing stale" in capsys.readouterr().out
    names = {CHECKER.relative(file) for file in CHECKER.sources()}
    assert {"README.md", "docs/contract.md", "tenferro_ad/storage/_view.py"} <= names
    assert "examples/element_access.py" in names


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("A shallow clone is made.", "E_WORD"),
        ("A shallow\nclone is made.", "E_WORD"),
        ("Its record goes to Quarantine.", "E_WORD"),
        ("A migration bridge remains.", "E_WORD"),
        ("Look at `ta.no_such_thing`.", "E_NAME"),
        ("Look at `storage.Tensor.no_such_call()`.", "E_NAME"),
        ("Raises `NoSuchThingError`.", "E_ERROR"),
        ("See `docs/no-such-page.md`.", "E_FILE"),
        ("Run `make no-such-target`.", "E_TARGET"),
    ],
)
@pytest.mark.parametrize("suffix", [".md", ".py"])
def test_each_kind_of_staleness_is_seen(
    tmp_path: Path, capsys: Any, text: str, code: str, suffix: str
) -> None:
    file = tmp_path / f"page{suffix}"
    good = "`ta.sum`, `storage.Tensor.as_view`, `tape.backward(loss)`, `LayoutError`,\n"
    good += "`docs/contract.md`, `make test`, `x.at[0].set(1.0)`: all of them exist.\n"
    body = f"{good}\n{text}\n"
    file.write_text(body if suffix == ".md" else f'"""{body}"""\n', encoding="utf-8")
    assert CHECKER.main([str(file)]) == 1
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"{file}:4: {code}: ")
    file.write_text(good if suffix == ".md" else f'"""{good}"""\n', encoding="utf-8")
    assert found(capsys, str(file)) == []


def test_ids_of_clauses_are_names_and_not_language(tmp_path: Path, capsys: Any) -> None:
    page = tmp_path / "page.md"
    page.write_text('<a id="conv-no-legacy-shape"></a> It says so.\n', encoding="utf-8")
    assert found(capsys, str(page)) == []
    page.write_text("`conv-no-legacy-shape`\n", encoding="utf-8")
    assert found(capsys, str(page)) == ["E_WORD"]


def test_names_inside_a_block_of_code_are_left_to_running_it(
    tmp_path: Path, capsys: Any
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```\n`ta.no_such_thing`\n```\n", encoding="utf-8")
    assert found(capsys, str(page)) == []


@pytest.mark.clause("g6-p12-stale-language")
def test_rendered_pages_are_read_as_a_browser_shows_them(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CHECKER, "RENDERED", tmp_path / "site")
    monkeypatch.setattr(CHECKER, "sources", lambda: [])
    assert found(capsys, "--include-rendered") == ["E_RENDERED"]
    page = tmp_path / "site" / "guide" / "index.html"
    page.parent.mkdir(parents=True)
    page.write_text("<p>Owners and views.</p>", encoding="utf-8")
    assert found(capsys, "--include-rendered") == []
    named = '<p><a class="clause reference" href="#x">no-legacy</a> Words.</p>'
    page.write_text(named, encoding="utf-8")
    assert found(capsys, "--include-rendered") == []
    hidden = "<script>shallow clone</script><p>A <b>shallow</b> <i>clone</i>.</p>"
    page.write_text(hidden, encoding="utf-8")
    assert found(capsys, "--include-rendered") == ["E_WORD"]
    assert found(capsys) == []
