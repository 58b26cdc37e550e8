"""Every clause of a finished stage has a test, and every mark names a real clause.

The marks are read from the source, so this holds whichever tests were selected.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

MOST_IDS = 3

FOLDER = Path(__file__).parent


class Marked(NamedTuple):
    """One test with the ids of its marks; None stands for an id that is not literal."""

    name: str
    ids: list[str | None]


def read() -> dict[str, Any]:
    with (FOLDER / "clauses.toml").open("rb") as file:
        return tomllib.load(file)


def register() -> dict[str, dict[str, Any]]:
    return {clause["id"]: clause for clause in read()["clause"]}


def is_due(clause: dict[str, Any], everything: dict[str, Any]) -> bool:
    """Whether a clause belongs to a finished stage or a finished group."""
    return (
        clause["stage"] <= everything["finished_stage"]
        or clause["id"].partition("-")[0] in everything["finished_groups"]
    )


def ids_of(marks: list[ast.expr]) -> list[str | None]:
    """The arguments of each `....clause(...)` among the expressions."""
    return [
        argument.value
        if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        else None
        for mark in marks
        for node in ast.walk(mark)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "clause"
        for argument in node.args
    ]


def marked_tests(tree: ast.Module, file: str) -> Iterator[Marked]:
    """Tests of a module: their own marks and those of their class and module."""
    around = ids_of(
        [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign)
            and any(
                isinstance(t, ast.Name) and t.id == "pytestmark" for t in node.targets
            )
        ]
    )
    yield from _marked(tree.body, file, around)


def _marked(
    body: list[ast.stmt], where: str, around: list[str | None]
) -> Iterator[Marked]:
    for node in body:
        match node:
            case ast.ClassDef(name=name) if name.startswith("Test"):
                inner = around + ids_of(node.decorator_list)
                yield from _marked(node.body, f"{where}::{name}", inner)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name.startswith("test"):
                    ids = around + ids_of(node.decorator_list)
                    yield Marked(f"{where}::{name}", ids)


@cache
def suite() -> list[Marked]:
    """Every test that is marked, wherever it stands."""
    texts = {file: file.read_text("utf-8") for file in FOLDER.parent.rglob("test_*.py")}
    return [
        marked
        for file, text in sorted(texts.items())
        if ".clause(" in text
        for marked in marked_tests(ast.parse(text), file.name)
    ]


def test_every_clause_of_a_finished_stage_has_a_test() -> None:
    proven = {clause for test in suite() for clause in test.ids}
    everything = read()
    missing = [
        f"{name} ({clause['kind']}): {clause['text']}"
        for name, clause in register().items()
        if clause["kind"] != "rust-only"
        and name not in proven
        and is_due(clause, everything)
    ]
    assert not missing, f"{len(missing)} clauses without a test:\n" + "\n".join(missing)


def test_every_mark_names_a_clause_of_the_register() -> None:
    known = register()
    wrong = [
        f"{test.name}: {clause or 'an id that is not a literal string'}"
        for test in suite()
        for clause in test.ids
        if clause not in known
    ]
    assert not wrong, "\n".join(wrong)


def test_no_test_carries_more_ids_than_a_reader_can_check() -> None:
    crowded = [f"{t.name}: {t.ids}" for t in suite() if len(set(t.ids)) > MOST_IDS]
    assert not crowded, "\n".join(crowded)


@pytest.mark.parametrize(
    ("source", "ids"),
    [
        ('@pytest.mark.clause("a", "b")\ndef test_x(): ...', ["a", "b"]),
        ("@mark.clause(NAME)\ndef test_x(): ...", [None]),
        (
            'pytestmark = mark.clause("m")\n@mark.clause("a")\ndef test_x(): ...',
            ["m", "a"],
        ),
        ('@mark.clause("c")\nclass TestX:\n def test_x(self): ...', ["c"]),
        (
            '@mark.parametrize("p", [param(1, marks=mark.clause("p"))])\n'
            "async def test_x(p): ...",
            ["p"],
        ),
        ("@mark.slow\ndef test_x(): ...", []),
    ],
)
def test_marks_are_found_wherever_pytest_allows_them(
    source: str, ids: list[str | None]
) -> None:
    (found,) = marked_tests(ast.parse(source), "file")
    assert found.ids == ids


def test_the_lists_of_the_register_are_sound() -> None:
    clauses = read()["clause"]
    assert len({clause["id"] for clause in clauses}) == len(clauses)
    columns = {"cap", "borrow", "sync", "fail", "drop", "reclaim"}
    for clause in clauses:
        assert (columns <= clause.keys()) == (clause["kind"] == "state-row"), clause
