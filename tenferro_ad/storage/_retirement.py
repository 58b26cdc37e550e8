"""What work on a device owns until its end is proven (contract G1, G5).

A `RetirementRecord` is opened before the call that may enqueue and owns the provider's
event, the bindings, one `Shared` of each root and one of the provider context. Proven
completion releases each of them once, in that order, before anybody hears of the
outcome. Without proof, `retain_unproven` keeps the record for the life of the process:
freeing anything would be a guess. Nothing reads what is kept, and nothing takes it out.

Whoever waits for retirement waits at a synchronisation point, which is never a copy:
results are where the work wrote them.

Safety needs no finaliser to run. A record that is dropped undecided keeps itself, so a
forgotten one costs memory and never frees memory in use.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterable
from typing import Any, Final, Protocol, final

from .._ownership import MoveOnly, Shared
from ._binding import DeviceRead, DeviceWrite
from ._provider import ProviderContext
from ._root import AllocationSpan, RootResource


class EventSource(Protocol):
    """Who made an event and takes it back."""

    def release_event(self, event: object) -> None:
        """Take an event back, once, when its work is proven to have ended."""
        ...


@final
class ProviderEvent:
    """The provider's own event; the last holder of its `Shared` gives it back."""

    __slots__ = ("_source", "raw")

    def __init__(self, source: EventSource, raw: object) -> None:
        self._source = source
        self.raw = raw

    def _release(self) -> None:
        raw, self.raw = self.raw, None
        self._source.release_event(raw)


@final
class ProviderRetirementBinding(MoveOnly):
    """What one enqueued access still needs of its provider, and no right to bytes."""

    __slots__ = ("_rb_access",)

    _rb_access: DeviceRead | DeviceWrite

    @classmethod
    def _of(cls, access: DeviceRead | DeviceWrite) -> ProviderRetirementBinding:
        access._require("enqueue")
        binding: ProviderRetirementBinding = object.__new__(cls)
        binding._moved_by = None
        binding._rb_access = access
        access._moved_by = "enqueue"
        return binding

    def _undo(self) -> None:
        """Nothing was enqueued: the bound access is as it was."""
        self._moved_by = "undo"
        self._rb_access._moved_by = None

    def _end_borrow(self) -> None:
        """Work may run now: the task's package keeps the bytes, the borrow is over."""
        self._rb_access._capability.close("enqueue")

    def _release(self) -> list[BaseException]:
        """Give the binding and then the prepared state back, once each."""
        self._require("release")
        self._moved_by = "release"
        trouble = _release_each(self._rb_access._leases())
        self._rb_access._capability.close("retirement")
        return trouble


@final
class RetirementRecord(MoveOnly):
    """Event, bindings, roots and provider context of work that may be running.

    Attributes:
        event: None while the enqueueing call has not returned one.
        cause: What the enqueueing call raised, if it raised without proof.
    """

    __slots__ = ("bindings", "cause", "context", "event", "roots")

    event: Shared[ProviderEvent] | None
    bindings: tuple[ProviderRetirementBinding, ...]
    roots: tuple[Shared[RootResource], ...]
    context: Shared[ProviderContext] | None
    cause: BaseException | None

    @classmethod
    def _open(
        cls,
        accesses: Iterable[DeviceRead | DeviceWrite],
        into: list[RetirementRecord] | None = None,
    ) -> RetirementRecord:
        """Take over bound accesses just before the call that may enqueue them.

        An interrupt leaves every access as it was, or the record in `into`.
        """
        given = tuple(accesses)
        for access in given:
            access._require("enqueue")
        record: RetirementRecord = object.__new__(cls)
        record._moved_by = "opening"  # dropped now, it has nothing to keep
        record.event = None
        record.cause = None
        try:
            record.roots = tuple([access._root.clone() for access in given])
            record.context = next(
                (root.value.provider.clone() for root in record.roots), None
            )
            record.bindings = tuple(map(ProviderRetirementBinding._of, given))
            retirements._opened(record, [] if into is None else into)
        except BaseException:
            if record._moved_by is not None:
                for access in given:  # required above: this call alone moved it
                    if access._moved_by == "enqueue":
                        access._moved_by = None
            raise
        return record

    @property
    def spans(self) -> tuple[AllocationSpan, ...]:
        """Identity of the roots: diagnostics that open nothing."""
        return tuple(
            AllocationSpan(at.domain, at.serial, 0, root.value.capacity_bytes)
            for root in self.roots
            for at in (root.value.diagnostics,)
        )

    def _undo(self) -> None:
        """The provider proves that nothing was enqueued: everything is as it was."""
        self._require("undo")
        self._moved_by = "undo"
        for binding in self.bindings:
            binding._undo()
        self.bindings = ()
        self._drop_counts()
        retirements._count(undone=1)

    def _end_borrows(self) -> None:
        for binding in self.bindings:
            binding._end_borrow()

    def _release(self) -> list[BaseException]:
        """Completion is proven: release bindings, event, roots and context, once each.

        Returns:
            What the provider raised meanwhile; the rest was released all the same.
        """
        self._require("release")
        self._moved_by = "release"
        bindings, self.bindings = self.bindings, ()
        event, self.event = self.event, None
        trouble = [error for binding in bindings for error in binding._release()]
        if event is not None:
            trouble += _release_each((event,))
        trouble += self._drop_counts()
        retirements._count(released=1)
        return trouble

    def _drop_counts(self) -> list[BaseException]:
        roots, self.roots = self.roots, ()
        context, self.context = self.context, None
        trouble = _release_each(roots)
        if context is not None:
            trouble += _release_each((context,))
        return trouble

    def __del__(self) -> None:
        if getattr(self, "_moved_by", "unmade") is None:
            retain_unproven(self)


def _release_each(holders: Iterable[Shared[Any]]) -> list[BaseException]:
    trouble: list[BaseException] = []
    for holder in holders:
        try:
            holder.release()
        except BaseException as error:  # the other holders must still be released
            trouble.append(error)
    return trouble


# Kept for the life of the process: appended to, and never read.
_RETAINED: Final[list[RetirementRecord]] = []


@final
class Retirements:
    """Counts of records in this process, for reports, tests and their seals."""

    __slots__ = ("_lock", "_seen", "opened", "released", "undone", "unproven")

    def __init__(self) -> None:
        # Re-entrant: a finaliser that keeps a dropped record may interrupt a count.
        self._lock = threading.RLock()
        self._seen: set[int] = set()
        self.opened = 0
        self.released = 0
        self.undone = 0
        self.unproven = 0

    @property
    def pending(self) -> int:
        """Records whose work is neither proven complete nor given up as unproven."""
        return self.opened - self.released - self.undone - self.unproven

    @property
    def unproven_roots(self) -> int:
        """Distinct roots that are kept for good."""
        return len(self._seen)

    def _opened(self, record: RetirementRecord, into: list[RetirementRecord]) -> None:
        """Count a whole record. No interrupt can arrive between these three."""
        with self._lock:
            into += (record,)
            record._moved_by = None
            self.opened += 1

    def _count(
        self,
        *,
        released: int = 0,
        undone: int = 0,
        unproven: tuple[AllocationSpan, ...] | None = None,
    ) -> None:
        with self._lock:
            self.released += released
            self.undone += undone
            if unproven is not None:
                self.unproven += 1
                self._seen.update(span.serial for span in unproven)


retirements: Final = Retirements()


def retain_unproven(record: RetirementRecord) -> tuple[AllocationSpan, ...]:
    """Keep everything that `record` owns for the life of the process.

    Returns:
        The identity of the roots concerned, for diagnostics.

    Cost: constant; the memory is never given back.
    """
    record._require("retain_unproven")
    record._moved_by = "retain_unproven"
    spans = record.spans
    _RETAINED.append(record)
    # The end of the interpreter empties every list, and work may still be running: a
    # reference that nobody holds keeps the record beyond that.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(record))
    retirements._count(unproven=spans)
    return spans
