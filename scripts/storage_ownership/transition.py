"""From the base manifest to the candidate: a promotion, a revision, or nothing.

At the same revision rows may become active and nothing else may change. A step of the
revision by one may rewrite gates, artifact and command of rows that are still deferred,
and changes no state. Graph and membership are the same in both cases.
"""

from __future__ import annotations

from typing import Any

from .commands import differing, unequal_argv
from .diagnostics import Diagnostic, Found, fault
from .manifest import TOPOLOGY, Manifest, Obligation

REVISABLE = {"gates", "artifact", "command"}


def transition(base: Manifest, candidate: Manifest) -> Found:
    """Everything between the two that neither a promotion nor a revision allows."""
    step = candidate.revision - base.revision
    if step not in (0, 1):
        message = f"Revision {base.revision} is followed by {candidate.revision}."
        told = {
            "base_revision": base.revision,
            "candidate_revision": candidate.revision,
        }
        yield fault("E_REVISION_STEP", message, **told)
    for field in TOPOLOGY:
        if base.registry[field] != candidate.registry[field]:
            message = f"`{field}` of the registry differ from the base."
            yield fault("E_REGISTRY_CHANGED", message, field=field)
    before = {row.id: row for row in base.obligations}
    after = {row.id: row for row in candidate.obligations}
    for name in sorted(before.keys() ^ after.keys()):
        change = "removed" if name in before else "added"
        message = f"`{name}` was {change}; a transition keeps the rows."
        yield fault("E_MEMBERSHIP", message, obligation_id=name, change=change)
    for name in sorted(before.keys() & after.keys()):
        yield from _row(before[name], after[name], step)


def _row(before: Obligation, after: Obligation, step: int) -> Found:
    if before.is_active and not after.is_active:
        message = f"`{after.id}` was active; evidence is not taken back."
        yield fault("E_DEMOTION", message, obligation_id=after.id)
    if after.is_active and not before.is_active and step:
        message = f"`{after.id}` is promoted by a change of the revision."
        yield fault("E_REVISION_PROMOTES", message, obligation_id=after.id)
    may_revise = step == 1 and not before.is_active and not after.is_active
    for field in differing(before, after):
        if field != "state" and not (may_revise and field in REVISABLE):
            old, new = getattr(before, field), getattr(after, field)
            if field in ("artifact", "command"):
                yield from _parts(after.id, field, old, new)
            else:
                yield _changed(after.id, field, old, new)


def _parts(row: str, field: str, old: Any, new: Any) -> Found:
    for part in differing(old, new):
        if (field, part) == ("command", "argv"):
            yield from unequal_argv(old.id, old.argv, new.argv)
        else:
            yield _changed(
                row, f"{field}.{part}", getattr(old, part), getattr(new, part)
            )


def _changed(row: str, field: str, old: Any, new: Any) -> Diagnostic:
    message = f"`{field}` of `{row}` was {old!r} and is {new!r}: a new obligation."
    expected, actual = (
        list(value) if isinstance(value, tuple) else value for value in (old, new)
    )
    told = {"field": field, "expected": expected, "actual": actual}
    return fault("E_OBLIGATION_CHANGED", message, obligation_id=row, **told)
