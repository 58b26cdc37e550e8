"""Check docs/contract.md against the register of clauses.

    python3 scripts/check-contract-document.py [PAGE]

Every clause that is finished is stated there once, under its anchor and in words of its
own, those without a meaning in Python included; others of the register may be. Every
state row has its six columns to the letter; amendments are numbered without a gap, and
each one that the register cites exists. Every fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "contract.md"
REGISTER = ROOT / "tests" / "contract" / "clauses.toml"
COLUMNS = ("cap", "borrow", "sync", "fail", "drop", "reclaim")
SHORTEST = 20  # characters of a statement that says anything


def finished(register: dict[str, Any]) -> list[dict[str, Any]]:
    """Clauses that are due: those of finished stages and of finished groups."""
    return [
        clause
        for clause in register["clause"]
        if clause["stage"] <= register["finished_stage"]
        or clause["id"].partition("-")[0] in register["finished_groups"]
    ]


def words(text: str) -> str:
    return " ".join(text.split())


def statements(page: str) -> dict[str, str]:
    """The text below each anchor, up to the next anchor."""
    parts = re.split(r'<a id="([^"]+)"></a>', page)
    return dict(zip(parts[1::2], map(words, parts[2::2]), strict=True))


def anchors(page: str, register: dict[str, Any]) -> Iterator[str]:
    """Anchors that are missing, unknown or repeated, and idle statements."""
    stated = Counter(re.findall(r'<a id="([^"]+)"></a>', page))
    known = {clause["id"]: clause for clause in register["clause"]}
    for name in {clause["id"] for clause in finished(register)} - stated.keys():
        yield f"E_ANCHOR_MISSING: `{name}` is not stated"
    for name, count in stated.items():
        if name not in known:
            yield f"E_ANCHOR_UNKNOWN: `{name}` is no clause of the register"
        if count > 1:
            yield f"E_ANCHOR_REPEATED: `{name}` is stated {count} times"
    for name, text in statements(page).items():
        clause = known.get(name, {})
        if "cap" in clause:
            continue
        if len(text) < SHORTEST:
            yield f"E_STATEMENT: `{name}` is stated in {len(text)} characters"
        if text.startswith(words(clause.get("text", "\0"))):
            yield f"E_STATEMENT: `{name}` repeats the register"


def tables(page: str, due: list[dict[str, Any]]) -> Iterator[str]:
    """State rows that do not equal the register."""
    for clause in due:
        if "cap" in clause:
            first = f'<a id="{clause["id"]}"></a>{clause["text"]}'
            cells = [first, *(clause[column] for column in COLUMNS)]
            if f"\n| {' | '.join(cells)} |\n" not in page:
                yield f"E_ROW: `{clause['id']}` differs from the register"


def amendments(page: str, register: dict[str, Any]) -> Iterator[str]:
    """Numbers that are left out, and amendments that clauses cite in vain."""
    numbers = [int(n) for n in re.findall(r"^- \*\*A(\d+)\.", page, re.MULTILINE)]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"E_AMENDMENT: the amendments are numbered {numbers}"
    for clause in register["clause"]:
        cited = re.fullmatch(r"A(\d+)", clause["line"])
        if cited and int(cited[1]) not in numbers:
            yield f"E_AMENDMENT: `{clause['id']}` cites {clause['line']}"


def faults(page: str, register: dict[str, Any]) -> list[str]:
    """Everything that is wrong with the page, as `CODE: text`."""
    return [
        *anchors(page, register),
        *tables(page, finished(register)),
        *amendments(page, register),
    ]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", nargs="?", type=Path, default=PAGE)
    chosen = parser.parse_args(arguments)
    register = tomllib.loads(REGISTER.read_text(encoding="utf-8"))
    found = faults(chosen.page.read_text(encoding="utf-8"), register)
    for fault in found:
        print(fault)
    if not found:
        print(f"{len(finished(register))} clauses are stated as the register has them.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
