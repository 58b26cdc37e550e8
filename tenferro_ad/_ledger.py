"""Allocation and copy accounting (contract G7, "Copy and allocation accounting").

Guarantees: every physical allocation is counted once, with a reason, in each scope that
is active where it happens; every byte-preserving copy likewise; releases are charged to
the scopes that counted the allocation, wherever and whenever they happen. Retention has
no reason because it neither allocates nor copies.

A scope is an `Account`; accounts form a chain through `parent`, ending in `BASE`. The
current chain, the reason under which kernels allocate, and the innermost recording level
live in one immutable `State` behind one context variable, so that threads and tasks never
count into each other's scopes and the hot path reads a single variable.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from contextvars import ContextVar, Token
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from .errors import ForbiddenEventError, LedgerMismatchError


class AllocationReason(StrEnum):
    """Why a physical allocation happened."""

    OperationOutput = "OperationOutput"
    CheckpointRecomputeOutput = "CheckpointRecomputeOutput"
    ExplicitDuplicateDestination = "ExplicitDuplicateDestination"
    TransferDestination = "TransferDestination"


class CopyReason(StrEnum):
    """Why bytes were copied unchanged."""

    ExplicitDuplicate = "ExplicitDuplicate"
    Transfer = "Transfer"


ALLOCATION_REASONS: Final = tuple(AllocationReason)
COPY_REASONS: Final = tuple(CopyReason)
# The hot path indexes counters with plain integers: enum attribute access costs as much
# as a whole counter update.
OPERATION_OUTPUT, RECOMPUTE_OUTPUT, DUPLICATE_DESTINATION, TRANSFER_DESTINATION = range(
    4
)
EXPLICIT_DUPLICATE, TRANSFER = range(2)


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


class Account:
    """Counters of one scope. Updated by `storage`'s doors, read through `LedgerScope`."""

    __slots__ = (
        "copies",
        "counts",
        "events",
        "forbidden",
        "groups",
        "live_bytes",
        "parent",
        "peak_bytes",
        "released",
        "slow",
        "workspace",
    )

    def __init__(self, parent: Account | None) -> None:
        self.parent = parent
        self.counts = [0, 0, 0, 0]
        self.copies = [0, 0]
        self.released = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.workspace = 0
        self.groups: Counter[tuple[str, str, str, tuple[int, ...], str, str]] | None
        self.groups = None
        self.events: list[Event] | None = None
        self.forbidden: frozenset[str] = frozenset()
        # True when this scope or one around it wants more than counters.
        self.slow: bool = parent is not None and parent.slow

    @property
    def live(self) -> int:
        return sum(self.counts) - self.released

    def release(self, nbytes: int) -> None:
        """Charge the release of one root to every scope that counted it."""
        account: Account | None = self
        while account is not None:
            account.released += 1
            account.live_bytes -= nbytes
            if account.events is not None:
                account.events.append(
                    Event("release", "", "", (), "", nbytes, "", account.live_bytes)
                )
            account = account.parent

    def use_workspace(self, nbytes: int) -> None:
        """Report kernel scratch: not a value, no reason, kept as a maximum."""
        account: Account | None = self
        while account is not None:
            if nbytes > account.workspace:
                account.workspace = nbytes
            account = account.parent

    def copied(self, reason: int, operation: str, aval: Any) -> None:
        """Count one byte-preserving copy."""
        if self.slow:
            self.detail("copy", COPY_REASONS[reason], operation, aval)
        account: Account | None = self
        while account is not None:
            account.copies[reason] += 1
            account = account.parent

    def refuse(self, kind: str, reason: str, operation: str, aval: Any) -> None:
        """Raise before anything happens if a scope forbids this kind of event."""
        account: Account | None = self
        while account is not None:
            if kind in account.forbidden or reason in account.forbidden:
                raise ForbiddenEventError(
                    operation=operation,
                    argument=kind,
                    found=f"`{reason}` of {aval.nbytes} bytes, shape {aval.shape}",
                    fix="remove the call that makes it, or leave the `ta.forbid` scope",
                )
            account = account.parent

    def detail(self, kind: str, reason: str, operation: str, aval: Any) -> None:
        """Write event detail to the scopes that asked for it."""
        where = _source_line()
        dtype = str(aval.dtype)
        account: Account | None = self
        while account is not None:
            if account.groups is not None:
                account.groups[(kind, reason, operation, aval.shape, dtype, where)] += 1
            if account.events is not None:
                account.events.append(
                    Event(
                        kind,
                        reason,
                        operation,
                        aval.shape,
                        dtype,
                        aval.nbytes,
                        where,
                        account.live_bytes + (aval.nbytes if kind != "copy" else 0),
                    )
                )
            account = account.parent


class State:
    """What the current context computes under. Immutable; replaced, never edited."""

    __slots__ = ("account", "level", "reason")

    def __init__(self, account: Account, reason: int, level: Any) -> None:
        self.account = account
        self.reason = reason
        self.level = level


BASE: Final = Account(None)
STATE: Final[ContextVar[State]] = ContextVar(
    "tenferro_ad_state", default=State(BASE, OPERATION_OUTPUT, None)
)

_PACKAGE: Final = __name__.rpartition(".")[0]


def _source_line() -> str:
    """File and line of the nearest frame outside the package."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name != _PACKAGE and not name.startswith(_PACKAGE + "."):
            file = frame.f_code.co_filename.rpartition("/")[2]
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "?"


class LedgerScope:
    """Counts what happens inside one `with ta.ledger()` block (and only there).

    Scopes nest; each counts on its own, peaks included. The object stays readable after
    the block, and releases of roots that it counted keep lowering `live`.

    Cost: entering and leaving set one context variable; each event inside costs a counter
    update for every open scope, and with detail one walk up the Python stack.
    """

    __slots__ = ("_account", "_token")

    def __init__(
        self,
        *,
        detail: bool = True,
        events: bool = False,
        forbidden: frozenset[str] = frozenset(),
    ) -> None:
        self._account = Account(None)
        self._account.groups = Counter() if detail else None
        self._account.events = [] if events else None
        self._account.forbidden = forbidden
        self._account.slow = detail or events or bool(forbidden)
        self._token: Token[State] | None = None

    def __enter__(self) -> LedgerScope:
        if self._token is not None or self._account.parent is not None:
            raise RuntimeError(
                "`ta.ledger()` was entered twice. Open a new `ta.ledger()` for each block."
            )
        state = STATE.get()
        self._account.parent = state.account
        self._account.slow = self._account.slow or state.account.slow
        self._token = STATE.set(State(self._account, state.reason, state.level))
        return self

    def __exit__(self, *exc: object) -> None:
        assert self._token is not None
        STATE.reset(self._token)
        self._token = None

    @property
    def allocations(self) -> Counter[str]:
        """Allocations by `AllocationReason`; reasons without events are absent."""
        return Counter(
            {
                r: n
                for r, n in zip(ALLOCATION_REASONS, self._account.counts, strict=True)
                if n
            }
        )

    @property
    def copies(self) -> Counter[str]:
        """Copies by `CopyReason`; reasons without events are absent."""
        return Counter(
            {r: n for r, n in zip(COPY_REASONS, self._account.copies, strict=True) if n}
        )

    @property
    def live(self) -> int:
        """Roots allocated in this scope that still exist."""
        return self._account.live

    @property
    def live_bytes(self) -> int:
        """Bytes of the roots allocated in this scope that still exist."""
        return self._account.live_bytes

    @property
    def peak_bytes(self) -> int:
        """Largest `live_bytes` so far."""
        return self._account.peak_bytes

    @property
    def workspace(self) -> int:
        """Largest kernel scratch (bytes) any one operation used; not part of `live`."""
        return self._account.workspace

    @property
    def events(self) -> tuple[Event, ...]:
        """Every event in order; empty unless the scope was opened with `events=True`."""
        return tuple(self._account.events or ())

    def expect(
        self,
        *,
        allocations: Mapping[str, int] | None = None,
        copies: Mapping[str, int] | None = None,
        peak_bytes: int | None = None,
    ) -> None:
        """Assert exact multisets (a missing reason means zero) and a bound on the peak.

        Args:
            allocations: expected count for each `AllocationReason`, or None not to check.
            copies: expected count for each `CopyReason`, or None not to check.
            peak_bytes: largest allowed `peak_bytes`.

        Raises:
            LedgerMismatchError: with both multisets side by side and, for each reason that
                differs, the operations, shapes, bytes and source lines seen.
            ValueError: an unknown reason.
        """
        lines: list[str] = []
        wrong: list[str] = []
        for kind, want, seen, names in (
            ("allocations", allocations, self.allocations, ALLOCATION_REASONS),
            ("copies", copies, self.copies, COPY_REASONS),
        ):
            if want is None:
                continue
            unknown = set(want) - set(names)
            if unknown:
                raise ValueError(
                    f"`expect` got unknown {kind} reasons {sorted(unknown)}; "
                    f"use {', '.join(names)}."
                )
            for name in names:
                expected, found = want.get(name, 0), seen[name]
                mark = "  " if expected == found else "! "
                if expected or found:
                    lines.append(f"{mark}{name:<30}{expected:>10}{found:>10}")
                if expected != found:
                    wrong.append(name)
        if peak_bytes is not None and self.peak_bytes > peak_bytes:
            lines.append(f"! {'peak bytes':<30}{peak_bytes:>10}{self.peak_bytes:>10}")
            wrong.append("peak_bytes")
        if wrong:
            head = f"  {'reason':<30}{'expected':>10}{'seen':>10}"
            text = [
                f"The ledger differs in {', '.join(wrong)}.",
                head,
                *lines,
                *self._rows(wrong),
            ]
            raise LedgerMismatchError(
                "\n".join(text),
                expected={"allocations": allocations, "copies": copies},
                seen={"allocations": self.allocations, "copies": self.copies},
            )

    def _rows(self, reasons: list[str]) -> Iterator[str]:
        groups = self._account.groups
        if not groups:
            return
        yield "  seen by operation:"
        for (_, reason, op, shape, dtype, where), n in sorted(
            groups.items(), key=lambda kv: (-kv[1], kv[0])
        ):
            if reason in reasons:
                yield f"    {n:>5} x {op:<22}{dtype}{list(shape)}  {where}  ({reason})"

    def report(self) -> str:
        """A table of allocations and copies by reason, live and peak bytes, workspace."""
        rows = [(str(r), n) for r, n in self.allocations.items()]
        rows += [(f"copy {r}", n) for r, n in self.copies.items()]
        if not self.copies:
            rows.append(("copies", 0))
        rows += [
            ("live roots", self.live),
            ("live bytes", self.live_bytes),
            ("peak bytes", self.peak_bytes),
            ("workspace bytes", self.workspace),
        ]
        return "\n".join(f"{name:<32}{value:>14,}" for name, value in rows)

    def to_json(self) -> str:
        """The same facts as JSON, for `python -m tenferro_ad ledger diff`."""
        groups = self._account.groups or Counter()
        return json.dumps(
            {
                "allocations": dict(sorted(self.allocations.items())),
                "copies": dict(sorted(self.copies.items())),
                "live": self.live,
                "live_bytes": self.live_bytes,
                "peak_bytes": self.peak_bytes,
                "workspace": self.workspace,
                "groups": [
                    {
                        "kind": k,
                        "reason": r,
                        "operation": o,
                        "shape": list(s),
                        "dtype": d,
                        "where": w,
                        "count": n,
                    }
                    for (k, r, o, s, d, w), n in sorted(groups.items())
                ],
            },
            indent=2,
        )

    def __repr__(self) -> str:
        return (
            f"<ledger allocations={dict(self.allocations)} copies={dict(self.copies)} "
            f"live={self.live} peak_bytes={self.peak_bytes}>"
        )


def ledger(*, detail: bool = True, events: bool = False) -> LedgerScope:
    """Open a ledger scope: `with ta.ledger() as led: ...`.

    Args:
        detail: group events by operation, shape, dtype and source line for `expect`'s
            message; switch it off to count only.
        events: also keep every single event in order (`led.events`).

    Cost: allocates nothing on a device, copies nothing, never synchronises.
    """
    return LedgerScope(detail=detail, events=events)


def forbid(*, copies: bool = False, allocations: bool = False) -> LedgerScope:
    """Refuse events: the offending call raises before anything happens.

    Raises (at the offending call):
        ForbiddenEventError: names the operation, the reason and the size.

    Cost: as `ledger`.
    """
    kinds = {"copy"} if copies else set()
    if allocations:
        kinds.add("allocation")
    return LedgerScope(detail=False, forbidden=frozenset(kinds))
