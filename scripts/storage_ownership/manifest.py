"""The manifest: its exact shape, and the values that it becomes.

A document is read in two steps. `shape` names everything that does not have the form of
version 2; `Manifest.of` may then take the document at its word. What the values mean to
each other is decided in `registry`, `commands` and `paths`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from .diagnostics import Diagnostic, Faults, Found, fault, require

SCHEMA = "tenferro.storage-ownership-contracts.v2"
PROMOTION = "activate-in-place"
TOPOLOGY = ("units", "gates", "edges", "cohorts")
ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Artifact:
    """What proves: one file, perhaps with others, perhaps one place in it."""

    id: str
    kind: str
    path: str
    more_paths: tuple[str, ...]
    selector: str | None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path, *self.more_paths)


@dataclass(frozen=True)
class Command:
    """How it is run: an argv, and which of its elements are paths."""

    id: str
    kind: str
    argv: tuple[str, ...]
    cwd: str
    path_args: tuple[int, ...]
    artifact_id: str


@dataclass(frozen=True)
class Obligation:
    """One row: what a unit owes, and whether it is due."""

    id: str
    unit: str
    gates: tuple[str, ...]
    artifact: Artifact
    command: Command
    state: dict[str, Any]

    @property
    def is_active(self) -> bool:
        return bool(self.state["kind"] == "active")


@dataclass(frozen=True)
class Manifest:
    """The whole: a graph, written once, and the rows that point into it."""

    revision: int
    registry: dict[str, Any]
    obligations: tuple[Obligation, ...]

    @classmethod
    def of(cls, document: dict[str, Any]) -> Manifest:
        """The values of a document that has the right shape."""
        registry = document["registry"]
        return cls(
            registry.get("revision", 1),
            {field: registry.get(field, []) for field in TOPOLOGY},
            tuple(_obligation(row) for row in document["obligations"]),
        )

    @property
    def units(self) -> list[str]:
        return [unit["id"] for unit in self.registry["units"]]

    @property
    def gates(self) -> list[str]:
        return [gate["id"] for gate in self.registry["gates"]]

    @property
    def cohorts(self) -> dict[str, list[str]]:
        return {each["id"]: each["members"] for each in self.registry["cohorts"]}

    @property
    def edges(self) -> list[tuple[str, str]]:
        return [(edge["from"], edge["to"]) for edge in self.registry["edges"]]

    @property
    def active(self) -> list[Obligation]:
        return sorted((o for o in self.obligations if o.is_active), key=lambda o: o.id)


def _obligation(row: dict[str, Any]) -> Obligation:
    artifact, command = row["artifact"], row["command"]
    return Obligation(
        row["id"],
        row["unit"],
        tuple(row["gates"]),
        Artifact(
            artifact["id"],
            artifact["kind"],
            artifact["path"],
            tuple(artifact.get("more_paths", ())),
            artifact.get("selector"),
        ),
        Command(
            command["id"],
            command["kind"],
            tuple(command["argv"]),
            command["cwd"],
            tuple(command["path_args"]),
            command["artifact_id"],
        ),
        row["state"],
    )


# ---- Shape ----


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _list_of(kind: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(kind, value))


def _is_string(value: Any) -> bool:
    return isinstance(value, str)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


TYPES: dict[str, Callable[[Any], bool]] = {
    "string": _is_string,
    "integer": _is_integer,
    "table": _is_table,
    "list of strings": _list_of(_is_string),
    "list of integers": _list_of(_is_integer),
    "list of tables": _list_of(_is_table),
}

# Fields of each table by name and type; a question mark makes one optional.
Shape = dict[str, str]
DOCUMENT: Shape = {
    "schema": "string",
    "registry": "table",
    "obligations": "list of tables",
}
REGISTRY: Shape = {
    "revision?": "integer",
    "gates": "list of tables",
    "units": "list of tables",
    "edges": "list of tables",
    "cohorts?": "list of tables",
}
NAMED: Shape = {"id": "string", "name": "string"}
EDGE: Shape = {"from": "string", "to": "string"}
COHORT: Shape = {"id": "string", "members": "list of strings"}
OBLIGATION: Shape = {
    "id": "string",
    "unit": "string",
    "gates": "list of strings",
    "artifact": "table",
    "command": "table",
    "state": "table",
}
ARTIFACT: Shape = {
    "id": "string",
    "kind": "string",
    "path": "string",
    "more_paths?": "list of strings",
    "selector?": "string",
}
COMMAND: Shape = {
    "id": "string",
    "kind": "string",
    "argv": "list of strings",
    "cwd": "string",
    "path_args": "list of integers",
    "artifact_id": "string",
}
ACTIVE: Shape = {"kind": "string"}
DEFERRED: Shape = {"kind": "string", "activation_unit": "string", "promotion": "table"}
RULE: Shape = {"mode": "string"}


def fields(table: dict[str, Any], shape: Shape, where: str) -> Found:
    """Missing, unknown and mistyped fields of one table, and unusable ids."""
    known = {name.rstrip("?"): (name, kind) for name, kind in shape.items()}
    for field, (name, kind) in known.items():
        if field not in table:
            if not name.endswith("?"):
                message = f"`{where}` has no field `{field}`."
                yield fault("E_FIELD_MISSING", message, location=where, field=field)
        elif not TYPES[kind](table[field]):
            message = f"`{field}` of `{where}` is not a {kind}."
            yield fault(
                "E_FIELD_TYPE", message, location=where, field=field, expected=kind
            )
        elif field == "id" and not ID.fullmatch(table[field]):
            yield value(where, field, table[field])
    for field in table.keys() - known.keys():
        message = f"`{where}` has a field `{field}`, which means nothing there."
        yield fault("E_FIELD_UNKNOWN", message, location=where, field=field)


def value(where: str, field: str, actual: Any) -> Diagnostic:
    message = f"`{field}` of `{where}` cannot be {actual!r}."
    return fault("E_FIELD_VALUE", message, location=where, field=field, actual=actual)


def _registry(registry: dict[str, Any]) -> Found:
    if registry.get("revision", 1) < 1:
        yield value("registry", "revision", registry["revision"])
    shapes = {"units": NAMED, "gates": NAMED, "edges": EDGE, "cohorts": COHORT}
    for field, shape in shapes.items():
        for number, table in enumerate(registry.get(field, [])):
            where = f"registry.{field}[{number}]"
            found = list(fields(table, shape, where))
            yield from found
            if field == "cohorts" and not found and len(set(table["members"])) < 2:
                yield value(where, "members", table["members"])


def _row(row: dict[str, Any], where: str) -> Found:
    if not row["gates"]:
        yield value(where, "gates", [])
    yield from fields(row["artifact"], ARTIFACT, f"{where}.artifact")
    yield from fields(row["command"], COMMAND, f"{where}.command")
    yield from _state(row, f"{where}.state")


def _state(row: dict[str, Any], where: str) -> Found:
    state = row["state"]
    if not isinstance(state.get("kind"), str):
        tag = {name: state[name] for name in state if name == "kind"}
        yield from fields(tag, ACTIVE, where)
        return
    match state["kind"]:
        case "active":
            yield from fields(state, ACTIVE, where)
        case "deferred":
            found = list(fields(state, DEFERRED, where))
            yield from found or fields(state["promotion"], RULE, f"{where}.promotion")
        case other:
            message = f"`{row['id']}` is {other!r}, neither active nor deferred."
            yield fault("E_STATE_KIND", message, obligation_id=row["id"], actual=other)


def parse(text: str, name: str) -> Manifest:
    """The manifest in a text, or every fault of its form."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        message = f"`{name}` is not TOML: {error}."
        raise Faults([fault("E_MANIFEST_SYNTAX", message, manifest=name)]) from None
    stated = document.get("schema")
    if stated != SCHEMA:
        actual = stated if isinstance(stated, str) else None
        message = f"`{name}` states the schema {stated!r}; only {SCHEMA!r} is read."
        told = {"manifest": name, "expected": SCHEMA, "actual": actual}
        raise Faults([fault("E_MANIFEST_SCHEMA", message, **told)])
    require(fields(document, DOCUMENT, "manifest"))
    require(fields(document["registry"], REGISTRY, "registry"))
    require(_registry(document["registry"]))
    rows = [
        (row, f"obligations[{number}]")
        for number, row in enumerate(document["obligations"])
    ]
    require(*(fields(row, OBLIGATION, where) for row, where in rows))
    require(*(_row(row, where) for row, where in rows))
    return Manifest.of(document)
