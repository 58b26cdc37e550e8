"""A ledger as one HTML page: live bytes over time, and the events of each reason below.

Time is the order of events, not seconds: the same program draws the same picture. The
page is plain HTML and SVG without scripts or outside files, follows the reader's light
or dark setting, and stays small: events are gathered into at most `_COLUMNS` columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from ._report import Facts, size_text


@dataclass(frozen=True, slots=True)
class Event:
    """One allocation, copy or release as seen by a scope that records events."""

    kind: str
    reason: str
    operation: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    where: str
    live_bytes: int


_COLUMNS: Final = 480
_LEFT, _WIDTH, _CURVE, _LANE = 200, 720, 180, 34
_LANES: Final = (
    ("OperationOutput", "a"),
    ("CheckpointRecomputeOutput", "b"),
    ("ExplicitDuplicateDestination", "c"),
    ("TransferDestination", "d"),
    ("ExplicitDuplicate", "c"),
    ("Transfer", "d"),
    ("release", "e"),
)

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1c2230; --soft: #667085; --line: #d9dee7;
  --ground: #ffffff; --card: #f6f8fb; --a: #2f6fde; --b: #d97706; --c: #c0266b;
  --d: #0f8a7a; --e: #98a2b3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9f0; --soft: #98a2b3;
  --line: #323a49; --ground: #12161f; --card: #1a202c; --a: #6ea0ff; --b: #f5a742;
  --c: #f472b0; --d: #3cc9b4; --e: #667085; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 60rem; background: var(--ground);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 1rem; }
h2 { font-size: 1rem; margin: 2rem 0 .5rem; }
p { color: var(--soft); margin: .25rem 0 .75rem; }
dl { display: flex; flex-wrap: wrap; gap: .75rem; margin: 0; }
dl div { background: var(--card); border: 1px solid var(--line); border-radius: 8px;
  padding: .5rem .9rem; }
dt { color: var(--soft); font-size: .8rem; } dd { margin: 0; font-size: 1.1rem;
  font-variant-numeric: tabular-nums; }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--soft);
  font: 12px system-ui, sans-serif; } svg .name { fill: var(--ink); }
.rule { stroke: var(--line); } .curve { fill: var(--a); fill-opacity: .16;
  stroke: var(--a); stroke-width: 1.5; } .peak { stroke: var(--b);
  stroke-dasharray: 4 4; }
.a { fill: var(--a); } .b { fill: var(--b); } .c { fill: var(--c); }
.d { fill: var(--d); } .e { fill: var(--e); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%;
  font-variant-numeric: tabular-nums; } th { text-align: left; color: var(--soft);
  font-weight: 500; } th, td { padding: .3rem .8rem .3rem 0;
  border-bottom: 1px solid var(--line); white-space: nowrap; }
.n { text-align: right; } i { display: inline-block; width: .7em; height: .7em;
  border-radius: 2px; margin-right: .5em; } i.a { background: var(--a); }
i.b { background: var(--b); } i.c { background: var(--c); }
i.d { background: var(--d); }
code { font: 13px ui-monospace, monospace; color: var(--soft); }
"""


def page(facts: Facts, events: Sequence[Event]) -> str:
    """The whole page."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Ledger</title>',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Ledger</h1>",
        *_cards(facts),
        "<h2>Live bytes and events</h2>",
        *(_timeline(facts, events) if events else _no_events()),
        *_table(facts),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _cards(facts: Facts) -> Iterator[str]:
    yield "<dl>"
    cards = [
        ("allocations", f"{sum(facts.allocations.values()):,}"),
        ("copies", f"{sum(facts.copies.values()):,}"),
        ("live roots", f"{facts.live:,}"),
        ("live", size_text(facts.live_bytes)),
        ("peak", size_text(facts.peak_bytes)),
        ("workspace", size_text(facts.workspace)),
    ]
    for name, value in cards:
        yield f"<div><dt>{name}</dt><dd>{value}</dd></div>"
    yield "</dl>"


def _no_events() -> Iterator[str]:
    yield "<p>No events were kept. Open the scope with "
    yield "<code>ta.ledger(events=True)</code> to see them here.</p>"


def _lane_of(event: Event) -> str:
    return event.reason or event.kind


def _columns(events: Sequence[Event]) -> list[Sequence[Event]]:
    """Events in order, gathered evenly."""
    n = min(len(events), _COLUMNS)
    bounds = [len(events) * k // n for k in range(n + 1)]
    return [events[bounds[k] : bounds[k + 1]] for k in range(n)]


def _timeline(facts: Facts, events: Sequence[Event]) -> Iterator[str]:
    columns = _columns(events)
    each = len(events) / len(columns)
    gathered = f", about {each:.1f} in each column" if each > 1 else ""
    yield f"<p>{len(events):,} events in order{gathered}.</p>"
    seen = {_lane_of(event) for event in events}
    lanes = [(name, color) for name, color in _LANES if name in seen]
    height = _CURVE + _LANE * len(lanes) + 40
    yield f'<svg viewBox="0 0 {_LEFT + _WIDTH + 10} {height}" role="img"'
    yield ' aria-label="Live bytes over the order of events">'
    yield from _curve(facts, columns)
    for row, (name, color) in enumerate(lanes):
        yield from _lane(name, color, _CURVE + 30 + row * _LANE, columns)
    yield "</svg>"


def _curve(facts: Facts, columns: list[Sequence[Event]]) -> Iterator[str]:
    top = max(facts.peak_bytes, 1)
    step = _WIDTH / len(columns)

    def y_of(nbytes: int) -> float:
        return 20 + (_CURVE - 20) * (1 - nbytes / top)

    points = [f"{_LEFT},{_CURVE}"]
    for k, column in enumerate(columns):
        y = y_of(max(event.live_bytes for event in column))
        points += [
            f"{_LEFT + k * step:.1f},{y:.1f}",
            f"{_LEFT + (k + 1) * step:.1f},{y:.1f}",
        ]
    points.append(f"{_LEFT + _WIDTH},{_CURVE}")
    for part in (0.0, 0.5, 1.0):
        y = y_of(int(top * part))
        kind = "peak" if part == 1.0 else "rule"
        label = size_text(int(top * part)) + (" peak" if part == 1.0 else "")
        yield f'<line class="{kind}" x1="{_LEFT}" x2="{_LEFT + _WIDTH}"'
        yield f' y1="{y:.1f}" y2="{y:.1f}"/>'
        yield f'<text x="{_LEFT - 10}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
    yield f'<polygon class="curve" points="{" ".join(points)}"/>'


def _lane(
    name: str, color: str, y: int, columns: list[Sequence[Event]]
) -> Iterator[str]:
    mine = [[e for e in column if _lane_of(e) == name] for column in columns]
    sizes = [sum(e.nbytes for e in column) for column in mine]
    tallest = max([*sizes, 1])
    step = _WIDTH / len(columns)
    total = sum(len(column) for column in mine)
    copied = name in ("ExplicitDuplicate", "Transfer")
    # The longest reason is "ExplicitDuplicateDestination".
    label = f"copy {name}" if copied else name
    yield f'<text class="name" x="{_LEFT - 10}" y="{y + 14}" text-anchor="end">'
    yield f"{label}</text>"
    yield f'<text x="{_LEFT - 10}" y="{y + 27}" text-anchor="end">{total:,}</text>'
    yield f'<line class="rule" x1="{_LEFT}" x2="{_LEFT + _WIDTH}"'
    yield f' y1="{y + 28}" y2="{y + 28}"/>'
    for k, (column, size) in enumerate(zip(mine, sizes, strict=True)):
        if not column:
            continue
        high = 4 + 20 * size / tallest
        # Neighbours stay apart as long as there is room for a gap.
        wide = min(max(step * 0.8, 1.0), 24.0)
        x = _LEFT + (k + 0.5) * step - wide / 2
        yield f'<rect class="{color}" x="{x:.1f}" y="{y + 28 - high:.1f}"'
        yield f' width="{wide:.1f}" height="{high:.1f}"><title>'
        yield f"{escape(_tip(column, size))}</title></rect>"


def _tip(column: Sequence[Event], size: int) -> str:
    if len(column) > 1:
        return f"{len(column)} events, {size_text(size)}"
    event = column[0]
    if event.kind == "release":
        return f"release of {size_text(size)}, then {size_text(event.live_bytes)} live"
    what = f"{event.operation} {event.dtype}{list(event.shape)}, {size_text(size)}"
    return f"{what}, {event.where}" if event.where else what


def _table(facts: Facts) -> Iterator[str]:
    if not facts.groups:
        return
    color = dict(_LANES)
    yield '<h2>By operation</h2><div class="scroll"><table>'
    yield '<tr><th>reason</th><th>operation</th><th>value</th><th class="n">each</th>'
    yield '<th class="n">count</th><th>line</th></tr>'
    for g, n in sorted(facts.groups.items(), key=lambda pair: (-pair[1], pair[0])):
        reason = f"copy {g.reason}" if g.kind == "copy" else g.reason
        line = f"{escape(g.where)} <code>{escape(g.code)}</code>"
        yield f'<tr><td><i class="{color.get(g.reason, "e")}"></i>{reason}</td>'
        yield f"<td>{escape(g.operation)}</td><td>{g.dtype}{list(g.shape)}</td>"
        yield f'<td class="n">{size_text(g.nbytes)}</td><td class="n">{n:,}</td>'
        yield f"<td>{line}</td></tr>"
    yield "</table></div>"
