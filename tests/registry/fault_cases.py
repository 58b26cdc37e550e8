"""One fault each in form, graph or states: an edit, and the diagnostic that it gives.

A case names its code and the exact fields. The edits are small functions of the
registry in `support`, put together from `put`, `drop`, `add` and `of`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.registry.support import DOCUMENT, NAME, Ledger, deferred, row

Change = Callable[[Ledger], None]
Case = tuple[str, dict[str, Any], Change]


def put(*path: Any, to: Any) -> Change:
    """Set one value; numbers and names lead to it through lists and tables."""

    def change(ledger: Ledger) -> None:
        place: Any = ledger.document
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def drop(*path: Any) -> Change:
    def change(ledger: Ledger) -> None:
        place: Any = ledger.document
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


def add(*path: Any, what: Any) -> Change:
    def change(ledger: Ledger) -> None:
        place: Any = ledger.document
        for key in path:
            place = place[key]
        place.append(what)

    return change


def of(name: str, *path: Any, to: Any) -> Change:
    """Set one value of a row that is found by its id."""

    def change(ledger: Ledger) -> None:
        put("obligations", number(name), *path, to=to)(ledger)

    return change


def number(name: str) -> int:
    return [each["id"] for each in DOCUMENT["obligations"]].index(name)


def where(name: str, part: str = "") -> str:
    return f"obligations[{number(name)}]{part}"


def both(*changes: Change) -> Change:
    """Several edits that make up one fault."""

    def change(ledger: Ledger) -> None:
        for each in changes:
            each(ledger)

    return change


SHAPE: list[Case] = [
    (
        "E_MANIFEST_SCHEMA",
        {"manifest": NAME, "expected": DOCUMENT["schema"], "actual": None},
        drop("schema"),
    ),
    (
        "E_MANIFEST_SCHEMA",
        {"manifest": NAME, "expected": DOCUMENT["schema"], "actual": None},
        put("schema", to=2),
    ),
    (
        "E_FIELD_MISSING",
        {"location": "manifest", "field": "obligations"},
        drop("obligations"),
    ),
    (
        "E_FIELD_MISSING",
        {"location": "registry", "field": "edges"},
        drop("registry", "edges"),
    ),
    (
        "E_FIELD_MISSING",
        {"location": where("p1-a", ".artifact"), "field": "path"},
        drop("obligations", number("p1-a"), "artifact", "path"),
    ),
    (
        "E_FIELD_MISSING",
        {"location": where("p3-a", ".state"), "field": "promotion"},
        drop("obligations", number("p3-a"), "state", "promotion"),
    ),
    (
        "E_FIELD_MISSING",
        {"location": where("p3-a", ".state"), "field": "kind"},
        drop("obligations", number("p3-a"), "state", "kind"),
    ),
    (
        "E_FIELD_UNKNOWN",  # a second table of active rows
        {"location": "manifest", "field": "active"},
        put("active", to=["p0-a"]),
    ),
    (
        "E_FIELD_UNKNOWN",  # a status string beside the tag
        {"location": where("p0-a"), "field": "status"},
        of("p0-a", "status", to="active"),
    ),
    (
        "E_FIELD_UNKNOWN",  # a terminal flag
        {"location": "registry", "field": "terminal"},
        put("registry", "terminal", to=True),
    ),
    (
        "E_FIELD_UNKNOWN",  # an issue number
        {"location": "registry.units[0]", "field": "issue"},
        put("registry", "units", 0, "issue", to=1556),
    ),
    (
        "E_FIELD_UNKNOWN",  # an active row carries nothing of a deferred one
        {"location": where("p0-a", ".state"), "field": "activation_unit"},
        of("p0-a", "state", "activation_unit", to="P0"),
    ),
    (
        "E_FIELD_UNKNOWN",
        {"location": where("p3-a", ".state.promotion"), "field": "after"},
        of("p3-a", "state", "promotion", "after", to="P2"),
    ),
    (
        "E_FIELD_TYPE",
        {"location": where("p0-a"), "field": "gates", "expected": "list of strings"},
        of("p0-a", "gates", to="G1"),
    ),
    (
        "E_FIELD_TYPE",  # a shell string
        {
            "location": where("p0-a", ".command"),
            "field": "argv",
            "expected": "list of strings",
        },
        of("p0-a", "command", "argv", to="pytest -q tests/test_a.py"),
    ),
    (
        "E_FIELD_TYPE",
        {
            "location": where("p0-a", ".command"),
            "field": "path_args",
            "expected": "list of integers",
        },
        of("p0-a", "command", "path_args", to=[True]),
    ),
    (
        "E_FIELD_TYPE",
        {"location": where("p0-a", ".state"), "field": "kind", "expected": "string"},
        of("p0-a", "state", "kind", to=True),
    ),
    (
        "E_FIELD_TYPE",
        {"location": "registry", "field": "revision", "expected": "integer"},
        put("registry", "revision", to="1"),
    ),
    (
        "E_FIELD_VALUE",
        {"location": "registry", "field": "revision", "actual": 0},
        put("registry", "revision", to=0),
    ),
    (
        "E_FIELD_VALUE",
        {"location": where("p0-a"), "field": "gates", "actual": []},
        of("p0-a", "gates", to=[]),
    ),
    (
        "E_FIELD_VALUE",
        {"location": where("p0-a"), "field": "id", "actual": "p0 a"},
        of("p0-a", "id", to="p0 a"),
    ),
    (
        "E_FIELD_VALUE",
        {"location": "registry.cohorts[0]", "field": "members", "actual": ["P3"]},
        put("registry", "cohorts", 0, "members", to=["P3"]),
    ),
    (
        "E_STATE_KIND",
        {"obligation_id": "p0-a", "actual": "done"},
        of("p0-a", "state", to={"kind": "done"}),
    ),
    (
        "E_STATE_UNIT",
        {"obligation_id": "p3-a", "expected": "P3", "actual": "P9"},
        of("p3-a", "state", "activation_unit", to="P9"),
    ),
    (
        "E_STATE_PROMOTION",
        {
            "obligation_id": "p3-a",
            "expected": "activate-in-place",
            "actual": "replace",
        },
        of("p3-a", "state", "promotion", "mode", to="replace"),
    ),
]

GRAPH: list[Case] = [
    (
        "E_ID_DUPLICATE",
        {"table": "nodes", "id": "P1"},
        add("registry", "units", what={"id": "P1", "name": "again"}),
    ),
    (
        "E_ID_DUPLICATE",
        {"table": "gates", "id": "G1"},
        add("registry", "gates", what={"id": "G1", "name": "again"}),
    ),
    (
        "E_ID_DUPLICATE",
        {"table": "edges", "id": "P1 -> P2"},
        add("registry", "edges", what={"from": "P1", "to": "P2"}),
    ),
    (
        "E_ID_DUPLICATE",
        {"table": "p0-a.gates", "id": "G1"},
        of("p0-a", "gates", to=["G1", "G1"]),
    ),
    (
        "E_ID_DUPLICATE",
        {"table": "obligations", "id": "p0-a"},
        add(
            "obligations",
            what=row("p0-a", "P6", ["pytest", "t.py"], "t.py", state=deferred("P6")),
        ),
    ),
    (
        "E_UNIT_UNKNOWN",
        {"obligation_id": "p1-b", "unit_id": "P7"},
        of("p1-b", "unit", to="P7"),
    ),
    (
        "E_GATE_UNKNOWN",
        {"obligation_id": "p1-b", "gate_id": "G8"},
        of("p1-b", "gates", to=["G1", "G8"]),
    ),
    (
        "E_UNIT_EMPTY",
        {"unit_id": "P7"},
        add("registry", "units", what={"id": "P7", "name": "seven"}),
    ),
    (
        "E_EDGE_ENDPOINT",
        {"edge": "P6 -> P7", "endpoint": "P7"},
        add("registry", "edges", what={"from": "P6", "to": "P7"}),
    ),
    (
        "E_GRAPH_CYCLE",
        {"nodes": ["CUT", "P1", "P2", "P6"]},
        add("registry", "edges", what={"from": "P6", "to": "P1"}),
    ),
    (
        "E_GRAPH_CYCLE",
        {"nodes": ["P6"]},
        add("registry", "edges", what={"from": "P6", "to": "P6"}),
    ),
    (
        "E_COHORT_MEMBER",
        {"cohort_id": "CUT", "unit_id": "P7"},
        add("registry", "cohorts", 0, "members", what="P7"),
    ),
    (
        "E_COHORT_OVERLAP",
        {"unit_id": "P3", "cohort_ids": ["CUT", "TWO"]},
        both(
            add("registry", "units", what={"id": "P7", "name": "seven"}),
            add("registry", "cohorts", what={"id": "TWO", "members": ["P3", "P7"]}),
        ),
    ),
    (
        "E_COHORT_EDGE",
        {"cohort_id": "CUT", "edge": "P1 -> P3"},
        add("registry", "edges", what={"from": "P1", "to": "P3"}),
    ),
]

STATES: list[Case] = [
    (
        "E_COHORT_PARTIAL",
        {"cohort_id": "CUT", "active": ["p3-a"], "deferred": ["p9-a", "p9-b"]},
        lambda ledger: ledger.activate("p3-a"),
    ),
    (
        "E_COHORT_PARTIAL",  # one row of one member is missing
        {"cohort_id": "CUT", "active": ["p3-a", "p9-a"], "deferred": ["p9-b"]},
        lambda ledger: ledger.activate("p3-a", "p9-a"),
    ),
    (
        "E_PREREQUISITE",
        {"target": "P6", "source": "CUT"},
        lambda ledger: ledger.activate("p6-a"),
    ),
    (
        "E_PREREQUISITE",  # one of two rows of the source is deferred
        {"target": "P2", "source": "P1"},
        of("p1-b", "state", to=deferred("P1")),
    ),
    (
        "E_PREREQUISITE",  # to be named as a source proves nothing
        {"target": "CUT", "source": "P0"},
        both(
            of("p0-a", "state", to=deferred("P0")),
            lambda ledger: ledger.activate("p3-a", "p9-a", "p9-b"),
        ),
    ),
]
