"""Receipts: the log of a trusted run, and what a checker believes of it.

A receipt says what was run for which commit and how it ended. It is no attestation: it
has no checksum, and it cannot say that anything is complete. That follows from the
manifest.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

from .diagnostics import Diagnostic, Faults, Found, fault, require
from .manifest import Manifest, Obligation

SCHEMA = "tenferro.storage-ownership-receipt.v1"
TOP = {
    "schema": lambda value: isinstance(value, str),
    "candidate_commit": lambda value: isinstance(value, str),
    "base_commit": lambda value: value is None or isinstance(value, str),
    "executions": lambda value: isinstance(value, list),
}
EXECUTION = {
    "obligation_id": lambda value: isinstance(value, str),
    "argv": lambda value: (
        isinstance(value, list) and all(isinstance(word, str) for word in value)
    ),
    "cwd": lambda value: isinstance(value, str),
    "artifact_path": lambda value: isinstance(value, str),
    "exit_code": lambda value: isinstance(value, int) and not isinstance(value, bool),
}
DERIVED = {"terminal", "terminality", "complete", "completed", "state", "status"}


def execution(row: Obligation, exit_code: int) -> dict[str, Any]:
    """One entry: the row's id, its canonical argv, where it ran, and how it ended."""
    return {**_bound(row), "exit_code": exit_code}


def _bound(row: Obligation) -> dict[str, Any]:
    return {
        "obligation_id": row.id,
        "argv": list(row.command.argv),
        "cwd": row.command.cwd,
        "artifact_path": row.artifact.path,
    }


def receipt(
    candidate: str, base: str | None, executions: list[dict[str, Any]]
) -> dict[str, Any]:
    """The whole log, in its fixed form."""
    return {
        "schema": SCHEMA,
        "candidate_commit": candidate,
        "base_commit": base,
        "executions": sorted(executions, key=lambda each: str(each["obligation_id"])),
    }


def read(file: Path) -> dict[str, Any]:
    """A receipt of the right schema and shape."""
    try:
        text = file.read_text(encoding="utf-8")
        found = json.loads(text, object_pairs_hook=_once)
    except (OSError, ValueError, RecursionError) as error:
        message = f"The receipt `{file}` cannot be read: {error}."
        raise Faults(
            [fault("E_RECEIPT_UNREADABLE", message, receipt=str(file))]
        ) from None
    if not isinstance(found, dict):
        raise Faults([_misshapen("receipt", "")])
    stated = found.get("schema")
    if isinstance(stated, str) and stated != SCHEMA:
        message = f"The receipt states the schema {stated!r}."
        told = {"expected": SCHEMA, "actual": stated}
        raise Faults([fault("E_RECEIPT_SCHEMA", message, **told)])
    require(_shape(found, TOP, "receipt"))
    for number, each in enumerate(found["executions"]):
        require(_shape(each, EXECUTION, f"executions[{number}]"))
    return found


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once; JSON itself would let the last one win."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key stands twice")
    return dict(pairs)


def _shape(table: Any, shape: dict[str, Any], where: str) -> Found:
    if not isinstance(table, dict):
        yield _misshapen(where, "")
        return
    for field, fits in shape.items():
        if field not in table or not fits(table[field]):
            yield _misshapen(where, field)
    for field in sorted(table.keys() - shape.keys()):
        if field in DERIVED:
            message = f"`{field}` of `{where}` is derived, and never declared."
            yield fault("E_RECEIPT_TERMINALITY", message, location=where, field=field)
        else:
            yield _misshapen(where, field)


def _misshapen(where: str, field: str) -> Diagnostic:
    message = f"`{where}` does not have the form of a receipt" + (
        f": see `{field}`." if field else "."
    )
    return fault("E_RECEIPT_SHAPE", message, location=where, field=field)


def binding(
    found: dict[str, Any], manifest: Manifest, candidate: str, base: str | None
) -> Found:
    """Whether a receipt is that of this candidate, this base and these active rows."""
    for code, field, expected in (
        ("E_RECEIPT_CANDIDATE", "candidate_commit", candidate),
        ("E_RECEIPT_BASE", "base_commit", base),
    ):
        if found[field] != expected:
            message = f"`{field}` is {found[field]}, not {expected}."
            yield fault(code, message, expected=expected, actual=found[field])
    names = [each["obligation_id"] for each in found["executions"]]
    for before, after in pairwise(names):
        if after < before:
            message = f"`{after}` stands after `{before}`."
            yield fault("E_RECEIPT_ORDER", message, obligation_id=after)
    for name, count in Counter(names).items():
        if count > 1:
            message = f"`{name}` has {count} executions."
            yield fault("E_RECEIPT_DUPLICATE", message, obligation_id=name)
    active = {row.id: row for row in manifest.active}
    for name in sorted(set(names) - active.keys()):
        message = f"`{name}` is no active row, and was executed."
        yield fault("E_RECEIPT_UNEXPECTED", message, obligation_id=name)
    for name in sorted(active.keys() - set(names)):
        message = f"`{name}` is active, and has no execution."
        yield fault("E_RECEIPT_INCOMPLETE", message, obligation_id=name)
    for each in found["executions"]:
        if each["obligation_id"] in active:
            yield from _execution(active[each["obligation_id"]], each)


def _execution(row: Obligation, each: dict[str, Any]) -> Found:
    for field, expected in _bound(row).items():
        if each[field] != expected:
            message = f"`{field}` of `{row.id}` is {each[field]!r}, not {expected!r}."
            told = {"field": field, "expected": expected, "actual": each[field]}
            yield fault("E_RECEIPT_BINDING", message, obligation_id=row.id, **told)
    yield from failed(row.id, each["exit_code"])


def failed(row: str, exit_code: int) -> Found:
    """The diagnostic of a command that did not end well."""
    if exit_code:
        message = f"The command of `{row}` ended with status {exit_code}."
        told = {"obligation_id": row, "exit_code": exit_code}
        yield fault("E_COMMAND_EXIT", message, **told)


def summary(
    manifest: Manifest, candidate: str | None, base: str | None, proven: bool
) -> dict[str, Any]:
    """What follows from the tags, and from a believed receipt if there was one."""
    units = {}
    for unit in manifest.units:
        owned = [row for row in manifest.obligations if row.unit == unit]
        active = [row.id for row in owned if row.is_active]
        units[unit] = {
            "active": sorted(active),
            "deferred": sorted(row.id for row in owned if not row.is_active),
            "complete": proven and len(active) == len(owned),
        }
    return {
        "schema": "tenferro.storage-ownership-summary.v1",
        "revision": manifest.revision,
        "candidate_commit": candidate,
        "base_commit": base,
        "obligations": len(manifest.obligations),
        "active": len(manifest.active),
        "units": units,
        "terminal": all(unit["complete"] for unit in units.values()),
    }
