"""Diagnostics with stable codes and exact fields.

`diagnostics.toml` registers every code with the keys that identify a fault. A
diagnostic that does not match its registration cannot be made, so the published table
and what the tools emit never differ.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

REGISTERED = tomllib.loads(
    Path(__file__).with_name("diagnostics.toml").read_text(encoding="utf-8")
)
SCHEMA: str = REGISTERED["schema"]
FIELDS: dict[str, tuple[str, ...]] = {
    code: tuple(entry["fields"]) for code, entry in REGISTERED["codes"].items()
}


class Diagnostic(NamedTuple):
    """One fault: what it is, what it is about, and a sentence for people."""

    code: str
    fields: dict[str, Any]
    message: str


Found = Iterator[Diagnostic]


class Faults(Exception):
    """Everything that one stage of checking found."""

    def __init__(self, diagnostics: list[Diagnostic]) -> None:
        super().__init__(f"{len(diagnostics)} faults")
        self.diagnostics = diagnostics


def fault(code: str, message: str, /, **fields: Any) -> Diagnostic:
    """A diagnostic whose code and field keys are registered."""
    if tuple(fields) != FIELDS[code] or not message:
        raise ValueError(f"{code} is registered with {FIELDS[code]}, not {fields}")
    return Diagnostic(code, fields, message)


def require(*found: Iterable[Diagnostic]) -> None:
    """End here, with all of them, if there are any."""
    diagnostics = [diagnostic for each in found for diagnostic in each]
    if diagnostics:
        raise Faults(diagnostics)


def envelope(diagnostics: list[Diagnostic]) -> str:
    """The machine-readable form of some diagnostics, or of none."""
    listed = [diagnostic._asdict() for diagnostic in diagnostics]
    return json.dumps({"schema": SCHEMA, "diagnostics": listed}, indent=2)


def sentences(diagnostics: list[Diagnostic]) -> str:
    """The form for people: a line for each."""
    return "\n".join(f"{each.code}: {each.message}" for each in diagnostics)
