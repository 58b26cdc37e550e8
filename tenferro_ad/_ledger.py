"""Allocation and copy accounting (contract G7, "Copy and allocation accounting").

Guarantees: every physical allocation is counted once, with a reason, in each scope that
is active where it happens; every byte-preserving copy likewise; releases are charged to
the scopes that counted the allocation, wherever and whenever they happen. Retention has
no reason because it neither allocates nor copies.

A scope is an `Account`; accounts form a chain through `parent`, ending in `BASE`. The
current chain, the reason under which kernels allocate, and the innermost recording
level live in one immutable `State` behind one context variable, so that threads and
tasks never count into each other's scopes and the hot path reads a single variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextvars import ContextVar
from enum import StrEnum
from typing import Any, Final

from . import _report, _timeline
from ._source import source_line
from ._timeline import Event
from .errors import ForbiddenEventError, InvalidArgumentError, LedgerMismatchError


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


class Account:
    """Counters of one scope, updated by `storage`'s doors, read by `LedgerScope`."""

    __slots__ = (
        "closed",
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
        self.closed = False
        self.counts = [0, 0, 0, 0]
        self.copies = [0, 0]
        self.released = 0
        self.live_bytes = 0
        self.peak_bytes = 0
        self.workspace = 0
        self.groups: Counter[_report.Group] | None = None
        self.events: list[Event] | None = None
        self.forbidden: frozenset[str] = frozenset()
        # True when this scope or one around it wants more than counters.
        self.slow: bool = parent is not None and parent.slow

    @property
    def live(self) -> int:
        return sum(self.counts) - self.released

    def allocated(self, reason: int, nbytes: int) -> None:
        """Count one allocation here and in every scope around."""
        account: Account = self
        while account.parent is not None:
            account.counts[reason] += 1
            live = account.live_bytes + nbytes
            account.live_bytes = live
            if live > account.peak_bytes:
                account.peak_bytes = live
            account = account.parent
        # The process account keeps no peak: nobody opened it, so nobody can reset it.
        account.counts[reason] += 1
        account.live_bytes += nbytes

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
        facts = (kind, reason, operation, aval.shape, str(aval.dtype), aval.nbytes)
        group = _report.Group(*facts, *source_line())
        grown = aval.nbytes if kind != "copy" else 0
        account: Account | None = self
        while account is not None:
            if account.groups is not None:
                account.groups[group] += 1
            if account.events is not None:
                live = account.live_bytes + grown
                account.events.append(Event(*facts, group.where, live))
            account = account.parent


class State:
    """What the current context computes under. Immutable; replaced, never edited.

    Attributes:
        account: the innermost ledger scope.
        reason: under which kernels allocate.
        level: the innermost recording level, or None.
        core: what `level` records into if it is a tape with no level outside; the fast
            paths ask this one question.
        trace: the program that operations are added to instead of being computed, or
            None.
        is_plain: no ledger is open (only the process account counts) and nothing is
            traced.
    """

    __slots__ = ("account", "core", "is_plain", "level", "reason", "trace")

    def __init__(
        self, account: Account, reason: int, level: Any, trace: Any = None
    ) -> None:
        self.account = account
        self.reason = reason
        self.level = level
        self.trace = trace
        self.core = level.core if level is not None and level.is_simple else None
        self.is_plain = account is BASE and trace is None

    def at(self, level: Any) -> State:
        """The same, with `level` as the innermost one."""
        return State(self.account, self.reason, level, self.trace)

    def under(self, reason: int) -> State:
        """The same, with another reason for allocations."""
        if reason == self.reason:
            return self
        return State(self.account, reason, self.level, self.trace)


BASE: Final = Account(None)
# A `State` is never edited, so one default may serve every context.
STATE: Final[ContextVar[State]] = ContextVar(
    "tenferro_ad_state",
    default=State(BASE, OPERATION_OUTPUT, None),  # noqa: B039
)


class LedgerScope:
    """Counts what happens inside one `with ta.ledger()` block (and only there).

    Scopes nest; each counts on its own, peaks included. The object stays readable after
    the block, and releases of roots that it counted keep lowering `live`.

    Cost: entering and leaving set one context variable; each event inside costs a
    counter update for every open scope, and with detail one walk up the Python stack.
    """

    __slots__ = ("_account",)

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

    def __enter__(self) -> LedgerScope:
        if self._account.parent is not None:
            raise RuntimeError(
                "`ta.ledger()` was entered twice. Open a new one for each block."
            )
        state = STATE.get()
        self._account.parent = state.account
        self._account.slow = self._account.slow or state.account.slow
        try:
            STATE.set(State(self._account, state.reason, state.level, state.trace))
            return self
        except BaseException:  # an interrupt: nobody will call `__exit__`
            STATE.set(state)
            self._account.parent = None
            raise

    def __exit__(self, *exc: object) -> None:
        # Only this scope ends: a tape that was left meanwhile stays left, and a scope
        # opened inside that is still open goes on (and counts here until it ends).
        self._account.closed = True
        state = STATE.get()
        if state.account is self._account:
            account = self._account
            while account.closed and account.parent is not None:
                account = account.parent
            STATE.set(State(account, state.reason, state.level, state.trace))

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
        """Every event in order; kept only if the scope has `events=True`."""
        return tuple(self._account.events or ())

    @property
    def facts(self) -> _report.Facts:
        """Everything above as plain data, detached from the scope."""
        account = self._account
        return _report.Facts(
            dict(self.allocations),
            dict(self.copies),
            account.live,
            account.live_bytes,
            account.peak_bytes,
            account.workspace,
            Counter(account.groups or {}),
        )

    def expect(
        self,
        *,
        allocations: Mapping[str, int] | None = None,
        copies: Mapping[str, int] | None = None,
        peak_bytes: int | str | None = None,
    ) -> None:
        """Assert exact multisets (a missing reason means zero) and a bound on the peak.

        Args:
            allocations: expected count for each `AllocationReason`; None: any.
            copies: expected count for each `CopyReason`; None: any.
            peak_bytes: largest allowed `peak_bytes`, as a number or as `"3 MiB"`.

        Raises:
            LedgerMismatchError: with both multisets side by side and, for each reason
                that differs, the operations, shapes, bytes and source lines seen.
            InvalidArgumentError: an unknown reason.

        Cost: compares counts; measures nothing again.
        """
        __tracebackhide__ = True  # pytest shows the caller's line instead
        rows: list[_report.Row] = []
        for kind, want, seen, names, prefix in (
            ("allocations", allocations, self.allocations, ALLOCATION_REASONS, ""),
            ("copies", copies, self.copies, COPY_REASONS, "copy "),
        ):
            unknown = sorted(set(want or ()) - set(names))
            if unknown:
                raise InvalidArgumentError(
                    operation="expect",
                    argument=kind,
                    found=f"unknown reasons {unknown}",
                    fix=f"use {', '.join(names)}",
                )
            rows += _report.rows_of(want, seen, names, prefix)
        if peak_bytes is not None:
            limit = _report.parse_size(peak_bytes, "expect", "peak_bytes")
            if self.peak_bytes > limit:
                rows.append(_report.Row("peak bytes", limit, self.peak_bytes))
        if any(row.differs for row in rows):
            raise LedgerMismatchError(
                _report.mismatch(rows, self._account.groups),
                expected={"allocations": allocations, "copies": copies},
                seen={"allocations": self.allocations, "copies": self.copies},
            )

    def report(self) -> str:
        """A table: allocations and copies by reason, live and peak bytes, workspace.

        Raises nothing. Cost: one line for each reason.
        """
        return _report.summary(self.facts)

    def to_json(self) -> str:
        """The same facts as JSON, for `python -m tenferro_ad ledger diff`.

        Raises nothing. Cost: one entry for each reason, group and event.
        """
        return self.facts.to_json()

    def to_html(self) -> str:
        """A page that shows live bytes over time and the events of each reason.

        The page needs nothing else: no script, no network. The timeline needs
        `ta.ledger(events=True)`; without events the page has the tables only.

        Raises nothing.

        Cost: one mark for each event.
        """
        return _timeline.page(self.facts, self.events)

    def __repr__(self) -> str:
        return (
            f"<ledger allocations={dict(self.allocations)} copies={dict(self.copies)} "
            f"live={self.live} peak_bytes={self.peak_bytes}>"
        )


def ledger(*, detail: bool = True, events: bool = False) -> LedgerScope:
    """A scope that counts allocations and copies, for a `with` block.

        with ta.ledger() as led:
            y = ta.exp(x)
        led.expect(allocations={"OperationOutput": 1}, copies={})

    Args:
        detail: group events by operation, shape, dtype and source line for `expect`'s
            message; switch it off to count only.
        events: also keep every single event in order (`led.events`).

    Raises nothing.

    Cost: allocates nothing on a device, copies nothing, never synchronises.
    """
    return LedgerScope(detail=detail, events=events)


def forbid(
    *, copies: bool | None = None, allocations: bool | None = None
) -> LedgerScope:
    """Refuse events: the offending call raises before anything happens.

        with ta.forbid(copies=True):
            y = ta.exp(x)

    Raises:
        InvalidArgumentError: neither is named.

    Raises (at the offending call):
        ForbiddenEventError: names the operation, the reason and the size.

    Cost: as `ledger`.
    """
    if copies is None and allocations is None:
        raise InvalidArgumentError(
            operation="forbid",
            argument="copies",
            found="nothing to forbid",
            fix="say what: `copies=True`, `allocations=True`, or both",
        )
    kinds = {"copy"} if copies else set()
    if allocations:
        kinds.add("allocation")
    return LedgerScope(detail=False, forbidden=frozenset(kinds))
