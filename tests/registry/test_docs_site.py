"""The checker of the built site sees each kind of fault, in sites made for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.scripts import script

CHECKER = script("check-docs-site")
SAID = "words " * 30
PAGE = "<main><article><h1>Title</h1><p>{said}</p>{more}</article></main>"


def anchored(names: set[str]) -> str:
    return "".join(f'<span id="{name}"></span>' for name in sorted(names))


@pytest.fixture
def site(tmp_path: Path) -> dict[str, Path]:
    """A small site without a fault, and its sources."""
    pages = {
        "index.html": '<a href="guide.html#part">guide</a> <a href="errors.html">e</a>'
        '<a href="contract.html">c</a> <a href="api/all.html">a</a>'
        '<a href="https://example.org/">elsewhere</a>',
        "guide.html": '<h2 id="part">Part</h2><img src="_images/a.svg">'
        '<a href="index.html?q=1">back</a> <a href="#part">here</a>',
        "errors.html": anchored(CHECKER.errors()),
        "contract.html": anchored(CHECKER.clauses()),
        "api/all.html": anchored(CHECKER.public()),
    }
    built, sources = tmp_path / "site", tmp_path / "docs"
    for name, more in pages.items():
        for place, text in (
            (built / name, PAGE.format(said=SAID, more=more)),
            ((sources / name).with_suffix(".md"), "# Title"),
        ):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
    (built / "_images").mkdir()
    (built / "_images" / "a.svg").write_text("<svg/>", encoding="utf-8")
    return {"site": built, "sources": sources}


def codes(site: dict[str, Path]) -> list[str]:
    return [fault.partition(":")[0] for fault in CHECKER.faults(**site)]


def edit(page: Path, old: str, new: str) -> None:
    text = page.read_text(encoding="utf-8")
    assert old in text
    page.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.clause("g6-docs-site")
def test_a_site_without_a_fault_passes(site: dict[str, Path], capsys: Any) -> None:
    assert codes(site) == []
    assert CHECKER.main([str(site["site"])]) == 1  # our own pages are not there
    assert "E_PAGE: getting-started.html" in capsys.readouterr().out


@pytest.mark.clause("g6-docs-site")
@pytest.mark.parametrize(
    ("page", "old", "new", "code"),
    [
        ("index.html", "guide.html#part", "guide.html#other", "E_ANCHOR"),
        ("guide.html", '"#part"', '"#other"', "E_ANCHOR"),
        ("guide.html", "index.html?q=1", "no-such.html", "E_LINK"),
        ("guide.html", "_images/a.svg", "_images/b.svg", "E_LINK"),
        ("guide.html", "index.html?q=1", "../../outside.html", "E_LINK"),
        ("guide.html", SAID, "", "E_EMPTY"),
        ("guide.html", "<h1>Title</h1>", "", "E_TITLE"),
        ("guide.html", "<h1>Title</h1>", "<h1>A</h1><h1>B</h1>", "E_TITLE"),
        ("index.html", '<a href="api/all.html">a</a>', "", "E_LOST"),
        ("errors.html", 'id="notuniqueerror"', 'id="other"', "E_NAME"),
        ("contract.html", 'id="g1-scope"', 'id="other"', "E_NAME"),
        ("api/all.html", 'id="tenferro_ad.logaddexp"', 'id="other"', "E_NAME"),
        ("api/all.html", 'id="tenferro_ad.Tape.backward"', 'id="o"', "E_NAME"),
        ("api/all.html", 'id="tenferro_ad.nn.conv1d"', 'id="other"', "E_NAME"),
    ],
)
def test_each_fault_is_seen_by_itself(
    site: dict[str, Path], page: str, old: str, new: str, code: str
) -> None:
    edit(site["site"] / page, old, new)
    assert codes(site) == [code]


@pytest.mark.clause("g6-docs-site")
def test_missing_pages_and_a_missing_site_are_seen(site: dict[str, Path]) -> None:
    (site["sources"] / "new.md").write_text("# New", encoding="utf-8")
    assert codes(site) == ["E_PAGE"]
    (site["site"] / "index.html").unlink()
    assert codes(site) == ["E_SITE"]
