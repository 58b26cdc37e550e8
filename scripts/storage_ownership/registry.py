"""The graph and the tagged states: what units, gates, edges and cohorts mean.

A node is a unit or a cohort. An edge leads from a node to a node, and a cohort's edges
are written on the cohort, once for all its members. Every rule about what may be active
is computed from the edges and the tags of the rows; nothing else says what is active.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from .diagnostics import Found, fault
from .manifest import PROMOTION, Manifest, Obligation


def graph(manifest: Manifest) -> Found:
    """Ids that stand twice, edges and members that lead nowhere, circles."""
    yield from _twice(
        "nodes",
        [*manifest.units, *(each["id"] for each in manifest.registry["cohorts"])],
    )
    yield from _twice("gates", manifest.gates)
    yield from _twice("edges", [_named(edge) for edge in manifest.edges])
    yield from _twice("obligations", [row.id for row in manifest.obligations])
    yield from _cohorts(manifest)
    nodes = {*manifest.units, *manifest.cohorts}
    for edge in manifest.edges:
        for end in dict.fromkeys(edge):
            if end not in nodes:
                name = _named(edge)
                message = f"The edge {name} ends at `{end}`, which is no node."
                yield fault("E_EDGE_ENDPOINT", message, edge=name, endpoint=end)
    if circle := _circle(manifest):
        message = f"The edges run in a circle through {', '.join(circle)}."
        yield fault("E_GRAPH_CYCLE", message, nodes=circle)


def _named(edge: tuple[str, str]) -> str:
    return " -> ".join(edge)


def _twice(table: str, ids: list[str]) -> Found:
    for each, count in Counter(ids).items():
        if count > 1:
            message = f"`{each}` stands {count} times in {table}."
            yield fault("E_ID_DUPLICATE", message, table=table, id=each)


def _cohorts(manifest: Manifest) -> Found:
    holders: dict[str, list[str]] = {}
    for cohort, members in manifest.cohorts.items():
        for unit in dict.fromkeys(members):
            holders.setdefault(unit, []).append(cohort)
            if unit not in manifest.units:
                message = f"`{unit}` in the cohort `{cohort}` is no unit."
                yield fault("E_COHORT_MEMBER", message, cohort_id=cohort, unit_id=unit)
    for unit, several in holders.items():
        if len(several) > 1:
            message = f"`{unit}` is in the cohorts {', '.join(several)}."
            yield fault("E_COHORT_OVERLAP", message, unit_id=unit, cohort_ids=several)
    for edge in manifest.edges:
        if inside := [end for end in edge if end in holders]:
            cohort, name = holders[inside[0]][0], _named(edge)
            message = f"The edge {name} bypasses the cohort `{cohort}`."
            yield fault("E_COHORT_EDGE", message, cohort_id=cohort, edge=name)


def _circle(manifest: Manifest) -> list[str]:
    """The nodes that remain when those without incoming edges are taken away."""
    left = set(manifest.edges)
    while left:
        targets = {target for _, target in left}
        kept = {edge for edge in left if edge[0] in targets}
        if kept == left:
            return sorted({source for source, _ in left} & targets)
        left = kept
    return []


def rows(manifest: Manifest) -> Found:
    """Rows that point at nothing, units that own nothing, states that contradict."""
    units, gates = set(manifest.units), set(manifest.gates)
    for row in manifest.obligations:
        if row.unit not in units:
            message = f"`{row.id}` belongs to `{row.unit}`, which is no unit."
            yield fault(
                "E_UNIT_UNKNOWN", message, obligation_id=row.id, unit_id=row.unit
            )
        for gate in row.gates:
            if gate not in gates:
                message = f"`{row.id}` names the gate `{gate}`, which there is not."
                yield fault(
                    "E_GATE_UNKNOWN", message, obligation_id=row.id, gate_id=gate
                )
        yield from _twice(f"{row.id}.gates", list(row.gates))
        yield from _deferred(row)
    for unit in units - {row.unit for row in manifest.obligations}:
        message = f"`{unit}` owns no obligation, so it could never be incomplete."
        yield fault("E_UNIT_EMPTY", message, unit_id=unit)


def _deferred(row: Obligation) -> Found:
    if row.is_active:
        return
    state: dict[str, Any] = row.state
    for code, expected, actual in (
        ("E_STATE_UNIT", row.unit, state["activation_unit"]),
        ("E_STATE_PROMOTION", PROMOTION, state["promotion"]["mode"]),
    ):
        if actual != expected:
            message = f"`{row.id}` would be activated by {actual!r}, not {expected!r}."
            told = {"obligation_id": row.id, "expected": expected, "actual": actual}
            yield fault(code, message, **told)


def states(manifest: Manifest) -> Found:
    """Cohorts that are half active, and nodes that run ahead of a direct source."""
    owned = {node: _owned(manifest, node) for node in _nodes(manifest)}
    active = {node for node, held in owned.items() if any(o.is_active for o in held)}
    waiting = {
        node for node, held in owned.items() if any(not o.is_active for o in held)
    }
    for cohort in manifest.cohorts:
        if cohort in active & waiting:
            split = {
                "active": sorted(o.id for o in owned[cohort] if o.is_active),
                "deferred": sorted(o.id for o in owned[cohort] if not o.is_active),
            }
            message = f"`{cohort}` is atomic, and only a part of it is active."
            yield fault("E_COHORT_PARTIAL", message, cohort_id=cohort, **split)
    for source, target in manifest.edges:
        if target in active and source in waiting:
            message = f"`{target}` is active before its prerequisite `{source}`."
            yield fault("E_PREREQUISITE", message, target=target, source=source)


def _nodes(manifest: Manifest) -> Iterable[str]:
    return (*manifest.units, *manifest.cohorts)


def _owned(manifest: Manifest, node: str) -> list[Obligation]:
    """The obligations of a unit, or of all members of a cohort."""
    units = manifest.cohorts.get(node, [node])
    return [row for row in manifest.obligations if row.unit in units]
