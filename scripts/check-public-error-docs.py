"""Check that every public callable documents its errors and what it costs.

    python3 scripts/check-public-error-docs.py

Every function and method that the package publishes has a `Raises:` section with
classes that exist, or names them in a sentence ("Raises KeyError", "Raises nothing"),
and it has a `Cost:` line. A text that names no errors of its own may refer to a
callable that does ("see `sum`", "Cost: as `sum`", "`ta.sum` of this tensor"). Every
fault is printed with a stable code.
"""

from __future__ import annotations

import argparse
import builtins
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
FACES = "nn optim linalg fft special random testing unsafe".split()
PAYLOADS = "PreparedContiguousRead PreparedContiguousWrite PreparedStridedRead"
PAYLOADS += " PreparedStridedWrite PreparedDeviceRead PreparedDeviceWrite"
RAISES = re.compile(r"^ *Raises(?: \([\w ]+\))?:(.*\n(?:[ \t]+\S.*\n?)*)", re.MULTILINE)
INLINE = re.compile(r"\bRaises ([A-Z]\w+(?:(?:, | or )[A-Z]\w+)*)\b")
NOTHING = re.compile(r"\bRaises nothing\b")
CLASS = re.compile(r"^\s+((?:[A-Z]\w*(?:, |,\s+)?)+)[:.]", re.MULTILINE)
COST_AS = re.compile(r"Cost: (?:as|that of)\s+`([\w.]+)`")
OF_THIS = re.compile(r"^`ta\.(\w+)` of this tensor")
SEE = re.compile(r"\b[Ss]ee\s+`([\w.]+)`|Raises[^:]*: as `([\w.]+)`")


def published() -> dict[str, Callable[..., Any]]:
    """Public functions and methods by name; each object once, under its first name."""
    found: dict[str, Callable[..., Any]] = {}
    known: set[int] = set()
    for name in ("", *FACES, "storage"):
        module = importlib.import_module(".".join(filter(None, ("tenferro_ad", name))))
        names = PAYLOADS.split() if name == "storage" else module.__all__
        for public in names:
            thing = getattr(module, public)
            label = ".".join(filter(None, (name, public)))
            for path, call in _callables(label, thing):
                if id(call) not in known:
                    known.add(id(call))
                    found[path] = call
    return found


def _callables(label: str, thing: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    if inspect.isfunction(thing):
        yield label, thing
    elif inspect.isclass(thing) and not issubclass(thing, BaseException | tuple):
        if not thing.__module__.startswith("tenferro_ad"):
            return
        for base in thing.__mro__:
            if base.__module__.startswith("tenferro_ad"):
                for name, member in vars(base).items():
                    plain = getattr(member, "__func__", member)
                    if not name.startswith("_") and inspect.isfunction(plain):
                        yield f"{label}.{name}", plain


def texts(calls: dict[str, Callable[..., Any]]) -> dict[str, str]:
    return {name: (inspect.getdoc(call) or "") + "\n" for name, call in calls.items()}


def listed(word: str, name: str, docs: dict[str, str]) -> str | None:
    """The full name of a callable that the docstring of `name` mentions."""
    folder = name.rpartition(".")[0]
    for place in (folder, "", "storage", "linalg", "special", "fft"):
        full = ".".join(filter(None, (place, word)))
        if full in docs and full != name:
            return full
    return None


def references(patterns: tuple[re.Pattern[str], ...], text: str) -> list[str]:
    return [
        next(filter(None, found.groups()))
        for pattern in patterns
        for found in pattern.finditer(text)
    ]


def states_cost(name: str, docs: dict[str, str]) -> bool:
    text = docs[name]
    others = [listed(word, name, docs) for word in references((OF_THIS,), text)]
    return "Cost:" in text or any(other and "Cost:" in docs[other] for other in others)


def states_errors(name: str, docs: dict[str, str], seen: frozenset[str]) -> bool:
    text = docs[name]
    if (
        NOTHING.search(text)
        or INLINE.search(text)
        or any(map(CLASS.search, RAISES.findall(text)))
    ):
        return True
    words = references((COST_AS, OF_THIS, SEE), text)
    found = {listed(word, name, docs) for word in words}
    others = {other for other in found if other is not None and other not in seen}
    return any(states_errors(other, docs, seen | others) for other in others)


def classes(text: str) -> Iterator[str]:
    """Every class that a docstring says is raised."""
    for section in RAISES.findall(text):
        for group in CLASS.findall(section):
            yield from re.split(r",\s+", group.strip(", "))
    for group in INLINE.findall(text):
        yield from re.split(r", | or ", group)


def faults(docs: dict[str, str]) -> Iterator[str]:
    """Callables that leave something out, as `CODE: text`."""
    homes = [importlib.import_module(f"tenferro_ad.{n}") for n in ("errors", "testing")]
    homes.append(builtins)
    for name, text in docs.items():
        if not states_cost(name, docs):
            yield f"E_COST: `{name}` does not say what it costs"
        for word in references((COST_AS,), text):
            if listed(word, name, docs) is None:
                yield f"E_REFERENCE: `{name}` refers to `{word}`, which is not public"
        if not states_errors(name, docs, frozenset({name})):
            yield f"E_RAISES: `{name}` does not say what it raises"
        for kind in classes(text):
            if not any(hasattr(home, kind) for home in homes):
                yield f"E_CLASS: `{name}` raises `{kind}`, which does not exist"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.parse_args(arguments)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    docs = texts(published())
    found = list(faults(docs))
    for fault in found:
        print(fault)
    if not found:
        print(f"{len(docs)} public callables say what they raise and cost.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
