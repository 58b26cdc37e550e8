"""Check the built documentation site: every page, link, anchor and name is there.

    python3 scripts/check-docs-site.py [FOLDER]

Reads the HTML of `make docs` as it is served. Each page of the sources has been built,
can be reached from the start page by following links, has one title and says something.
Every link and picture inside the site leads to a file, and every fragment to an anchor.
Each error class, each public name with its members, and each clause of the contract
that is stated has its anchor. Every fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urlsplit

ROOT = Path(__file__).resolve().parents[1]
SITE = ROOT / "build" / "docs"
SOURCES = ROOT / "docs"
START = "index.html"
FACES = "linalg fft special random nn optim extension testing unsafe".split()
SHORTEST = 80  # characters of an article that says anything
# Sphinx makes these. No page leads to the list of sources; a script fills the search.
MADE = {"genindex.html", "search.html", "_modules/index.html"}


class Page(HTMLParser):
    """What matters of one page: its anchors, links, titles and the article's text."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.titles = 0
        self.text = ""
        self._article = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if given.get("id"):
            self.ids.add(str(given["id"]))
        self._article += tag == "article"
        self.titles += tag == "h1" and bool(self._article)
        for name in ("href", "src"):
            if given.get(name):
                self.links.append(str(given[name]))

    def handle_endtag(self, tag: str) -> None:
        self._article -= tag == "article"

    def handle_data(self, data: str) -> None:
        if self._article:
            self.text += data


@cache
def read(file: Path) -> Page:
    page = Page()
    page.feed(file.read_text(encoding="utf-8"))
    return page


def expected(sources: Path) -> Iterator[str]:
    """Pages that the sources promise."""
    for page in sorted(sources.rglob("*.md")):
        yield page.relative_to(sources).with_suffix(".html").as_posix()


def targets(site: Path, name: str) -> Iterator[tuple[str, str, str]]:
    """Links inside the site from one page: as written, the file, the fragment."""
    for link in read(site / name).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc or link.startswith("data:"):
            continue
        path, fragment = urldefrag(parts._replace(query="").geturl())
        place = (site / name).parent / unquote(path) if path else site / name
        yield link, _inside(site, place), unquote(fragment)


def _inside(site: Path, place: Path) -> str:
    resolved = place.resolve()
    root = site.resolve()
    return (
        resolved.relative_to(root).as_posix() if resolved.is_relative_to(root) else ""
    )


def pages(site: Path, sources: Path) -> Iterator[str]:
    """Pages that are missing, lost, without a title or empty."""
    built = {file.relative_to(site).as_posix() for file in site.rglob("*.html")}
    for name in expected(sources):
        if name not in built:
            yield f"E_PAGE: {name} was not built"
    if START not in built:
        return
    seen, ahead = {START}, [START]
    while ahead:
        for _, place, _ in targets(site, ahead.pop()):
            if place in built and place not in seen:
                seen.add(place)
                ahead.append(place)
    for name in sorted(built - seen - MADE):
        yield f"E_LOST: {name} cannot be reached from {START}"
    for name in sorted(built - MADE):
        page = read(site / name)
        if page.titles != 1:
            yield f"E_TITLE: {name} has {page.titles} titles"
        if len(" ".join(page.text.split())) < SHORTEST:
            yield f"E_EMPTY: {name} says nothing"


def links(site: Path) -> Iterator[str]:
    """Links that lead nowhere."""
    for file in sorted(site.rglob("*.html")):
        name = file.relative_to(site).as_posix()
        for link, place, fragment in dict.fromkeys(targets(site, name)):
            target = site / place
            if not place or not target.is_file():
                yield f"E_LINK: {name}: {link} leads to no file"
            elif place.endswith(".html") and fragment not in {"", *read(target).ids}:
                yield f"E_ANCHOR: {name}: {link} leads to no anchor"


def names(site: Path) -> Iterator[str]:
    """Anchors that the package and the contract promise and the site lacks."""
    reference = [read(file) for file in sorted((site / "api").glob("*.html"))]
    known = {anchor for page in reference for anchor in page.ids}
    for name in sorted(public()):
        if name not in known:
            yield f"E_NAME: {name} has no entry in the reference"
    for page, wanted in {"errors.html": errors(), "contract.html": clauses()}.items():
        found = read(site / page).ids if (site / page).is_file() else set()
        for anchor in sorted(wanted - found):
            yield f"E_NAME: {page} has no anchor {anchor}"


def public() -> set[str]:
    """Public functions, classes and constants, and the members of classes."""
    found: set[str] = set()
    for face in ["", *FACES]:
        path = ".".join(filter(None, ("tenferro_ad", face)))
        module = import_module(path)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.ismodule(thing):
                continue
            found.add(f"{path}.{name}")
            found |= {f"{path}.{name}.{member}" for member in members(thing)}
    return found


def members(thing: Any) -> Iterator[str]:
    if not inspect.isclass(thing) or issubclass(thing, BaseException):
        return
    for name in dir(thing):
        owners = [base for base in thing.__mro__ if name in vars(base)]
        if name[0] == "_" or not hasattr(thing, name):
            continue
        if owners[0].__module__.startswith("tenferro_ad"):
            yield name


def errors() -> set[str]:
    """Anchors to which errors lead."""
    root = import_module("tenferro_ad.errors").TenferroError
    import_module("tenferro_ad.testing")
    kinds, found = [root], set()
    while kinds:
        kind = kinds.pop()
        kinds += kind.__subclasses__()
        if kind.__module__.startswith("tenferro_ad") and kind.__name__[0] != "_":
            found.add(kind.link.partition("#")[2])
    return found


def clauses() -> set[str]:
    page = (SOURCES / "contract.md").read_text(encoding="utf-8")
    return set(re.findall(r'<a id="([^"]+)"></a>', page))


def faults(site: Path, sources: Path = SOURCES) -> list[str]:
    """Everything that is wrong with the site, as `CODE: text`."""
    read.cache_clear()
    if not (site / START).is_file():
        return [f"E_SITE: there is no {START} in {site.name}; run `make docs`"]
    return [*pages(site, sources), *links(site), *names(site)]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=SITE)
    chosen = parser.parse_args(arguments)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    found = faults(chosen.folder)
    for fault in found:
        print(fault)
    if not found:
        built = sum(1 for _ in chosen.folder.rglob("*.html"))
        print(f"{built} pages hold together, and every name has its place.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
