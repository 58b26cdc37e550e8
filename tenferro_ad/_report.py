"""How the facts of a ledger are told: sizes, tables, comparisons, JSON.

Plain data in, text out. A live scope, a stored snapshot and the command line all speak
through these functions, so the same difference reads the same wherever it is found.
"""

from __future__ import annotations

import json
import linecache
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from .errors import InvalidArgumentError

T = TypeVar("T")

_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DECIMAL: Final = {"kB": 10**3, "MB": 10**6, "GB": 10**9}
_ROWS: Final = 12  # of one reason; the rest is summed up in one line


def parse_size(size: int | str, operation: str, argument: str = "size") -> int:
    """Bytes in `3145728` or `"3 MiB"` (B, KiB, MiB, GiB, kB, MB, GB).

    Raises:
        InvalidArgumentError: not a size.
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(size))
    factor = (_UNITS | _DECIMAL).get((found[2] or "B") if found else "")
    if found is None or factor is None:
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"{size!r}",
            fix='give bytes as a number, or a text such as `"3 MiB"`',
        )
    return int(float(found[1]) * factor) if "." in found[1] else int(found[1]) * factor


def size_text(nbytes: int) -> str:
    """`"96 B"`, `"3.0 MiB"`."""
    unit = max((u for u, n in _UNITS.items() if n <= max(abs(nbytes), 1)), key=_order)
    return f"{nbytes} B" if unit == "B" else f"{nbytes / _UNITS[unit]:.1f} {unit}"


def _order(unit: str) -> int:
    return _UNITS[unit]


class Group(NamedTuple):
    """Events that look the same: what, why, by whom, how large, from which line."""

    kind: str
    reason: str
    operation: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    file: str = ""
    line: int = 0

    @property
    def where(self) -> str:
        """`"model.py:12"`, or nothing in a stored snapshot."""
        return f"{_base(self.file)}:{self.line}" if self.file else ""

    @property
    def code(self) -> str:
        """The source line itself, if it can be read."""
        return linecache.getline(self.file, self.line).strip() if self.line else ""

    @property
    def placeless(self) -> Group:
        """The same without its source line, which moves with every edit."""
        return self._replace(file="", line=0)


def _base(file: str) -> str:
    return re.split(r"[/\\]", file)[-1]


@dataclass(frozen=True, slots=True)
class Facts:
    """Everything a ledger scope knows, as plain data."""

    allocations: dict[str, int]
    copies: dict[str, int]
    live: int = 0
    live_bytes: int = 0
    peak_bytes: int = 0
    workspace: int = 0
    groups: Counter[Group] = field(default_factory=Counter)

    def to_json(self, *, places: bool = True) -> str:
        """JSON text; `places=False` leaves source lines out."""
        groups: Counter[Group] = Counter()
        for group, n in self.groups.items():
            groups[group if places else group.placeless] += n
        rows = [
            {
                "kind": g.kind,
                "reason": g.reason,
                "operation": g.operation,
                "shape": list(g.shape),
                "dtype": g.dtype,
                "nbytes": g.nbytes,
                **({"where": g.where} if places else {}),
                "count": n,
            }
            for g, n in sorted(groups.items())
        ]
        facts = {
            "allocations": dict(sorted(self.allocations.items())),
            "copies": dict(sorted(self.copies.items())),
            "live": self.live,
            "live_bytes": self.live_bytes,
            "peak_bytes": self.peak_bytes,
            "workspace": self.workspace,
        }
        # One group a line: a change of the ledger is a readable change of the file.
        head = json.dumps(facts, indent=2).removesuffix("\n}")
        body = ",\n".join(f"    {json.dumps(row)}" for row in rows)
        return f'{head},\n  "groups": [' + (f"\n{body}\n  ]\n}}" if rows else "]\n}")

    @classmethod
    def from_json(cls, text: str, source: str = "text") -> Facts:
        """Read `to_json`'s text back.

        Raises:
            InvalidArgumentError: `text` is not the JSON of a ledger.
        """
        try:
            data: dict[str, Any] = json.loads(text)
            groups: Counter[Group] = Counter()
            for row in data.pop("groups"):
                file, _, line = row.get("where", "").rpartition(":")
                group = Group(
                    _a(str, row["kind"]),
                    _a(str, row["reason"]),
                    _a(str, row["operation"]),
                    tuple(_a(int, length) for length in row["shape"]),
                    _a(str, row["dtype"]),
                    _a(int, row["nbytes"]),
                    file,
                    int(line or 0),
                )
                groups[group] += _a(int, row["count"])
            allocations, copies = (
                {reason: _a(int, n) for reason, n in data.pop(name).items()}
                for name in ("allocations", "copies")
            )
            numbers = {name: _a(int, n) for name, n in data.items()}
            return cls(allocations, copies, groups=groups, **numbers)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise InvalidArgumentError(
                operation="from_json",
                argument=source,
                found=f"text that is not the JSON of a ledger ({error})",
                fix="write it with `led.to_json()`",
            ) from None


def _a(kind: type[T], value: object) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value


def summary(facts: Facts) -> str:
    """A table of allocations and copies by reason, live and peak bytes, workspace."""
    rows = list(facts.allocations.items())
    rows += [(f"copy {r}", n) for r, n in facts.copies.items()]
    if not facts.copies:
        rows.append(("copies", 0))
    rows += [
        ("live roots", facts.live),
        ("live bytes", facts.live_bytes),
        ("peak bytes", facts.peak_bytes),
        ("workspace bytes", facts.workspace),
    ]
    return "\n".join(f"{name:<32}{value:>14,}" for name, value in rows)


class Row(NamedTuple):
    """One line of a comparison: a name and its two numbers."""

    name: str
    left: int
    right: int

    @property
    def differs(self) -> bool:
        return self.left != self.right


def rows_of(
    left: Mapping[str, int] | None,
    right: Mapping[str, int],
    names: Sequence[str],
    prefix: str = "",
) -> list[Row]:
    """Counts side by side, zeros on both sides left out; none where `left` is None."""
    if left is None:
        return []
    pairs = [Row(prefix + n, left.get(n, 0), right.get(n, 0)) for n in names]
    return [row for row in pairs if row.left or row.right]


def table(rows: Sequence[Row], left: str, right: str) -> Iterator[str]:
    """Two columns; lines that differ are marked and say by how much."""
    width = max([30, *(len(row.name) + 2 for row in rows)])
    yield f"  {'':<{width}}{left:>12}{right:>12}"
    for row in rows:
        mark, by = ("!", f"{row.right - row.left:>+10,}") if row.differs else (" ", "")
        yield f"{mark} {row.name:<{width}}{row.left:>12,}{row.right:>12,}{by}"


def origins(groups: Mapping[Group, int], reasons: Sequence[str]) -> Iterator[str]:
    """For each reason: operations, shapes, bytes, source lines; most frequent first."""
    for reason in reasons:
        chosen = [(g, n) for g, n in groups.items() if g.reason == reason]
        if not chosen:
            continue
        chosen.sort(key=lambda pair: (-pair[1], pair[0]))
        yield ""
        yield f"  {reason}, seen in"
        shown = chosen[:_ROWS]
        name = max(len(g.operation) for g, _ in shown)
        kind = max(len(f"{g.dtype}{list(g.shape)}") for g, _ in shown)
        for g, n in shown:
            what = f"{g.dtype}{list(g.shape)}"
            place = f"{size_text(g.nbytes):>11}   {g.where:<24}{g.code}".rstrip()
            yield f"  {n:>6} x {g.operation:<{name}}  {what:<{kind}}{place}"
        rest = chosen[_ROWS:]
        if rest:
            events = sum(n for _, n in rest)
            yield f"  {events:>6} more, in {len(rest)} other places"


def mismatch(rows: Sequence[Row], groups: Mapping[Group, int] | None) -> str:
    """The whole report of an `expect` that did not hold."""
    wrong = [row.name for row in rows if row.differs]
    lines = [f"The ledger differs in {', '.join(wrong)}.", ""]
    lines += table(rows, "expected", "seen")
    reasons = [name.removeprefix("copy ") for name in wrong]
    if groups is None:
        lines += [
            "",
            "  Open the scope with `detail=True` to see where they come from.",
        ]
    else:
        lines += origins(groups, reasons)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed between two sets of facts."""

    rows: list[Row]
    groups: list[tuple[Group, int, int, str]]
    left: str
    right: str

    @property
    def exists(self) -> bool:
        return any(row.differs for row in self.rows) or bool(self.groups)

    @property
    def new_copies(self) -> int:
        """Copies that were added, over all reasons."""
        return self._added("copy ")

    @property
    def new_allocations(self) -> int:
        """Allocations that were added, over all reasons."""
        return self._added("allocation ")

    def _added(self, prefix: str) -> int:
        return sum(
            max(row.right - row.left, 0)
            for row in self.rows
            if row.name.startswith(prefix)
        )

    def __str__(self) -> str:
        lines = list(table(self.rows, self.left, self.right))
        if self.groups:
            name = max(len(f"{g.reason} {g.operation}") for g, *_ in self.groups)
            kind = max(len(f"{g.dtype}{list(g.shape)}") for g, *_ in self.groups)
            lines += ["", "operations that changed"]
            for g, a, b, place in self.groups:
                label = f"{g.reason} {g.operation}"
                what = f"{g.dtype}{list(g.shape)}"
                lines.append(
                    f"! {label:<{name}}  {what:<{kind}}{a:>7} -> {b:<5}"
                    f"{b - a:>+5}   {place}".rstrip()
                )
        return "\n".join(lines)


def difference(
    before: Facts, after: Facts, left: str = "before", right: str = "after"
) -> Difference:
    """Compare by reason, peak, and operation with shape and dtype (never by line)."""
    rows: list[Row] = []
    for kind in ("allocations", "copies"):
        a, b = getattr(before, kind), getattr(after, kind)
        prefix = "allocation " if kind == "allocations" else "copy "
        rows += rows_of(a, b, sorted({*a, *b}), prefix)
    rows.append(Row("peak bytes", before.peak_bytes, after.peak_bytes))
    old, new = _placeless(before.groups), _placeless(after.groups)
    changed = [
        (g, old[g], new[g], _place(after.groups if new[g] else before.groups, g))
        for g in sorted({*old, *new})
        if old[g] != new[g]
    ]
    return Difference(rows, changed, left, right)


def _placeless(groups: Mapping[Group, int]) -> Counter[Group]:
    found: Counter[Group] = Counter()
    for group, n in groups.items():
        found[group.placeless] += n
    return found


def _place(groups: Mapping[Group, int], wanted: Group) -> str:
    """The most frequent source line of a group, and how many others there are."""
    places = [(n, g) for g, n in groups.items() if g.placeless == wanted and g.file]
    if not places:
        return ""
    _, best = max(places, key=lambda pair: (pair[0], pair[1]))
    more = f" (and {len(places) - 1} more)" if len(places) > 1 else ""
    return f"{best.where}{more}  {best.code}".rstrip()
