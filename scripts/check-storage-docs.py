"""Find stale language about storage: words of other designs, and names that are gone.

    python3 scripts/check-storage-docs.py [--include-rendered] [FILE ...]

Pages, the README, docstrings and examples may not use words for things that this
package does not have, and every name, error, file and make target that they put in
backquotes must exist. With --include-rendered the pages of the built site are read as
well, as a browser shows them. Every fault is printed with its place and a stable code.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import importlib
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
RENDERED = ROOT / "build" / "docs"
STALE = {  # what nobody may say, and what there is instead
    r"\bBuffer<|\bpublic\s+buffer\s+type": "storage has owners and views",
    r"\bshallow[-\s]+(?:clone|copy|copies)": "a handle is cloned, bytes are duplicated",
    r"\bquarantin\w*": "what is unproven is retained for good",
    r"\bcopy[-\s]+on[-\s]+write\b": "writing needs the exclusive borrow",
    r"\bArc<|\bArc::|\bGradSlot\b|\bRefCell\b": "our names are in contract-mapping.md",
    r"\bmaterialized\(": "a value is lent by `value()`",
    r"\b(?:compatibility|migration)\s+(?:layer|bridge|adapter)": "there is one path",
    r"\bretention\s+adapter\b": "records are kept as they are",
    r"\blegacy\b": "there was no earlier form",
    r"\baccess\s+(?:table|registry)\b": "rights are borrows",
    r"\bcounts?\s+(?:prove|grant)s?\b": "a count proves and grants nothing",
}
ROOTS: tuple[str, ...] = ("ta", "storage", "errors", "runtime", "tape", "engine")
ROOTS += ("backends", "ops", "_ledger", "_ownership", "_aval", "tenferro_ad")
INSTANCES = {"tape": "ta.Tape"}  # a variable that pages use for an object
FOLDERS = ("tests/", "docs/", "scripts/", "examples/", "benchmarks/", "tenferro_ad/")
QUOTED = re.compile(r"`([^`\n]+)`")
ANCHOR = re.compile(r'<a id="[^"\n]+"></a>')
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


class Text(NamedTuple):
    """A piece of writing: where it stands, and from which line."""

    place: str
    line: int
    text: str


def relative(file: Path) -> str:
    return str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else str(file)


def written(file: Path) -> Iterator[Text]:
    """What people read in one file: a page, or the docstrings of a module."""
    source = file.read_text(encoding="utf-8")
    if file.suffix != ".py":
        yield Text(relative(file), 1, source)
        return
    for node in ast.walk(ast.parse(source)):
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False):
            docstring = node.body[0]
            assert isinstance(docstring, ast.Expr)
            text = ast.get_docstring(node, clean=False) or ""
            yield Text(relative(file), docstring.lineno, text)


def sources() -> list[Path]:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    code = [*ROOT.glob("tenferro_ad/**/*.py"), *ROOT.glob("examples/*.py")]
    return sorted(pages) + sorted(code)


def stale_words(piece: Text) -> Iterator[str]:
    blank = ANCHOR.sub("", piece.text)  # ids of clauses are names, not language
    for pattern, instead in STALE.items():
        for found in re.finditer(pattern, blank, re.IGNORECASE):
            line = piece.line + blank.count("\n", 0, found.start())
            said = " ".join(found[0].split())
            yield f"{piece.place}:{line}: E_WORD: `{said}`; {instead}"


def stale_names(piece: Text) -> Iterator[str]:
    """Quoted names that resolve to nothing, outside blocks of code."""
    blank = FENCE.sub(lambda block: "\n" * block[0].count("\n"), piece.text)
    for found in QUOTED.finditer(blank):
        problem = missing(found[1])
        if problem:
            line = piece.line + blank.count("\n", 0, found.start())
            yield f"{piece.place}:{line}: {problem}"


def missing(quoted: str) -> str | None:
    """What a quoted word names in vain, if it is a name of ours at all."""
    if quoted.startswith("make "):
        target = quoted.split()[1]
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        rule = rf"^{re.escape(target)}( [\w-]+)*:"
        made = re.search(rule, makefile, re.MULTILINE)
        return None if made or "=" in quoted else f"E_TARGET: `make {target}`"
    if quoted.startswith(FOLDERS) and re.fullmatch(r"[\w./-]+", quoted):
        return None if (ROOT / quoted).exists() else f"E_FILE: `{quoted}`"
    call = re.match(r"([A-Za-z_][\w.]*)(?:\(|$)", quoted)
    if call is None:
        return None
    name = call[1].rstrip(".")
    if re.fullmatch(r"[A-Z]\w+(?:Error|Rejected)", name):
        known = hasattr(builtins, name) or resolves(f"errors.{name}")
        return None if known else f"E_ERROR: `{name}`"
    first, _, rest = name.partition(".")
    if first not in ROOTS or not rest:
        return None
    known = resolves(name) or resolves(f"{INSTANCES.get(first, first)}.{rest}")
    return None if known else f"E_NAME: `{name}`"


def resolves(name: str) -> bool:
    """Whether a dotted name leads to something in the package."""
    parts = name.split(".")
    if parts[0] == "tenferro_ad":
        parts = parts[1:]
    parts = ["tenferro_ad", *(parts[1:] if parts[:1] == ["ta"] else parts)]
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ImportError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part) and part not in fields(found):
                return False
            found = getattr(found, part, None)
        return True
    return False


def fields(kind: Any) -> set[str]:
    """Names that only instances of a class have."""
    return {name for base in getattr(kind, "__mro__", ()) for name in named(base)}


def named(base: type) -> set[str]:
    return {*getattr(base, "__annotations__", {}), *getattr(base, "__slots__", ())}


class Shown(HTMLParser):
    """The text of a rendered page."""

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.hidden = 0
        self.clause = False  # inside the shown id of a clause

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        is_clause = tag == "a" and "clause" in (dict(attrs).get("class") or "").split()
        self.hidden += tag in {"script", "style"}
        self.clause = self.clause or is_clause

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in {"script", "style"}
        self.clause = self.clause and tag != "a"

    def handle_data(self, data: str) -> None:
        if not self.hidden and not self.clause:
            self.parts.append(data)


def rendered(folder: Path) -> Iterator[str]:
    """Stale words as a browser shows them: tags do not hide a phrase."""
    pages = sorted(folder.rglob("*.html")) if folder.is_dir() else []
    if not pages:
        yield f"{relative(folder)}:1: E_RENDERED: there is no page of the built site"
    for page in pages:
        shown = Shown()
        shown.feed(page.read_text(encoding="utf-8"))
        yield from stale_words(Text(relative(page), 1, " ".join(shown.parts)))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--include-rendered", action="store_true")
    chosen = parser.parse_args(arguments)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    files = [file.resolve() for file in chosen.files] or sources()
    pieces = [piece for file in files for piece in written(file)]
    found = [f for piece in pieces for f in (*stale_words(piece), *stale_names(piece))]
    if chosen.include_rendered:
        found += rendered(RENDERED)
    for fault in found:
        print(fault)
    if not found:
        print(f"{len(files)} files say nothing stale about storage.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
