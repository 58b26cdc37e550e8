"""Prepare, bind, enqueue: one launch on any endpoint, written once (contract G1, G5).

An `Endpoint` is what a device library must offer; everything about ownership happens
here. A launch passes through `PreparedLaunch`, `BoundLaunch` and a `RetirementRecord`.
Each step uses up the object before it and takes nothing else, so nothing can be
replaced on the way.

The admission boundary is the endpoint's `enqueue`. Up to it, and when the endpoint
proves that nothing was enqueued, a failure hands back the exact object. From then on a
record owns everything, whatever happened, until `proof_of` has an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, final

import numpy as np

from .._ownership import MoveOnly, Shared
from ..errors import BindError, InternalError, NotEnqueuedError
from ..ops import Call, Op
from ..storage import (
    DeviceArgument,
    DeviceRead,
    DeviceWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    ProviderEvent,
    RetirementRecord,
    TensorView,
    TensorViewMut,
    bind_read,
    bind_write,
)

Proof = Literal["done", "failed", "unproven"]
"""What an endpoint can say of work: it ended well, it ended badly, or nobody knows."""


Operand = int | np.ndarray[Any, Any]
"""Where a launch finds one operand: `k >= 0` among its reads, `~k` among its writes
(the kernel works in place), or a number (a host array of one value)."""


@final
@dataclass(frozen=True, slots=True)
class Launch:
    """What an endpoint enqueues: its own kernel and the bound arguments.

    A binding shows a provider's memory, and its duties are the endpoint's: it keeps the
    binding alive until the event is proven (the record does, if the endpoint keeps
    nothing else), obeys synchronisation in its own queue, and does not use the pointer
    after retirement, which `release_event` announces.

    Attributes:
        operands: one entry for each operand of the kernel's call.
    """

    kernel: object
    reads: tuple[DeviceArgument, ...]
    writes: tuple[DeviceArgument, ...]
    operands: tuple[Operand, ...]

    def ins(self) -> list[DeviceArgument | np.ndarray[Any, Any]]:
        """The operands in the order of the kernel's call."""
        return [
            k
            if isinstance(k, np.ndarray)
            else self.reads[k]
            if k >= 0
            else self.writes[~k]
            for k in self.operands
        ]


class Endpoint(Protocol):
    """One in-order queue of a device library, and what it can prove.

    Attributes:
        name: Discovery name, for texts.
        memory: Provider of the memory that its launches read and write.
        is_synchronous: `enqueue` ends its work before it returns or raises.
        is_lost: It accepts nothing more.
    """

    name: str
    memory: Any
    is_synchronous: bool
    is_lost: bool

    def supports(self, op: Op, dtypes: Sequence[Any]) -> bool:
        """Whether `prepare` can succeed for this operation on these types."""
        ...

    def prepare(self, call: Call) -> object:
        """The kernel of one application: pipelines are compiled here."""
        ...

    def enqueue(self, launch: Launch) -> object:
        """Enqueue and return an event.

        Raises:
            NotEnqueuedError: The library proves that nothing was enqueued. Any other
                exception proves nothing.
        """
        ...

    def await_event(self, event: object, deadline: float) -> Proof:
        """Wait for an event until `deadline` (seconds of `time.monotonic`)."""
        ...

    def failure(self, event: object) -> BaseException | None:
        """Why a failed event failed, if the library says so."""
        ...

    def synchronise(self, deadline: float) -> Proof:
        """Wait until nothing that was enqueued can be running any more."""
        ...

    def release_event(self, event: object) -> None:
        """Take an event back, once."""
        ...


@final
class PreparedLaunch(MoveOnly):
    """A kernel and prepared access to each of its arguments."""

    __slots__ = (
        "_pl_endpoint",
        "_pl_kernel",
        "_pl_operands",
        "_pl_reads",
        "_pl_writes",
    )

    _pl_endpoint: Endpoint
    _pl_kernel: object
    _pl_operands: tuple[Operand, ...]
    _pl_reads: tuple[PreparedDeviceRead, ...]
    _pl_writes: tuple[PreparedDeviceWrite, ...]

    @classmethod
    def _of(
        cls,
        endpoint: Endpoint,
        kernel: object,
        reads: Sequence[TensorView],
        writes: Sequence[TensorViewMut],
        operands: Sequence[Operand] | None = None,
    ) -> PreparedLaunch:
        """Use up views and prepare each of them on the device.

        Args:
            operands: where each operand is found; the reads in order if None.

        Raises:
            AccessError: The provider could not; `recovered` is the view at fault. All
                views are usable again.
        """
        prepared: PreparedLaunch = object.__new__(cls)
        prepared._moved_by = None
        prepared._pl_endpoint = endpoint
        prepared._pl_kernel = kernel
        prepared._pl_operands = tuple(
            range(len(reads)) if operands is None else operands
        )
        done: list[PreparedDeviceRead | PreparedDeviceWrite] = []
        try:
            for view in reads:
                done.append(view.prepare_device())
            for mut in writes:
                done.append(mut.prepare_device_mut())
        except BaseException:
            _return_to(done, (*reads, *writes))
            raise
        count = len(reads)
        prepared._pl_reads = tuple(done[:count])  # type: ignore[arg-type]
        prepared._pl_writes = tuple(done[count:])  # type: ignore[arg-type]
        return prepared

    def _undo(self, views: Sequence[TensorView | TensorViewMut]) -> None:
        """Use up the launch and make the views that it came from usable again."""
        self._require("undo")
        self._moved_by = "undo"
        _return_to((*self._pl_reads, *self._pl_writes), views)

    def close(self) -> None:
        """Give up the unadmitted launch: every access ends."""
        self._require("close")
        self._moved_by = "close"
        for read in self._pl_reads:
            read.close()
        for write in self._pl_writes:
            write.close()


def _return_to(
    done: Sequence[PreparedDeviceRead | PreparedDeviceWrite],
    views: Sequence[TensorView | TensorViewMut],
) -> None:
    """Return the provider's states and leave the borrows to their views."""
    for access, view in zip(done, views, strict=False):
        access._moved_by = "undo"
        view._moved_by = None
        if isinstance(access, PreparedDeviceRead):
            access._dr_state.release()
        else:
            access._dw_state.release()


@final
class BoundLaunch(MoveOnly):
    """A launch whose arguments are bound: the next call may enqueue it.

    Attributes:
        record: The retirement record, from just before that call on.
    """

    __slots__ = ("_bl_prepared", "_bl_reads", "_bl_writes", "record")

    _bl_prepared: PreparedLaunch
    _bl_reads: tuple[DeviceRead, ...]
    _bl_writes: tuple[DeviceWrite, ...]
    record: RetirementRecord | None

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that the launch was prepared for."""
        return self._bl_prepared._pl_endpoint

    def _launch(self, operation: str) -> Launch:
        self._require(operation)
        return Launch(
            self._bl_prepared._pl_kernel,
            tuple(access._argument() for access in self._bl_reads),
            tuple(access._argument() for access in self._bl_writes),
            self._bl_prepared._pl_operands,
        )

    def close(self) -> None:
        """Give up the unadmitted launch: bindings, prepared state, then borrows."""
        self._require("close")
        self._moved_by = "close"
        for read in self._bl_reads:
            read.close()
        for write in self._bl_writes:
            write.close()


def bind_launch(prepared: PreparedLaunch) -> BoundLaunch:
    """Use up a prepared launch and bind each argument.

    Raises:
        BindError: The provider could not; `recovered` is the same usable launch.

    Cost: one provider binding for each argument; no validation.
    """
    prepared._require("bind_launch")
    prepared._moved_by = "bind_launch"
    done: list[DeviceRead | DeviceWrite] = []
    try:
        for read in prepared._pl_reads:
            done.append(bind_read(read))
        for write in prepared._pl_writes:
            done.append(bind_write(write))
    except BaseException as error:
        for access in done:
            access._unbind()
        prepared._moved_by = None
        if isinstance(error, BindError):
            error.recovered = prepared
        raise
    bound: BoundLaunch = object.__new__(BoundLaunch)
    bound._moved_by = None
    bound._bl_prepared = prepared
    count = len(prepared._pl_reads)
    bound._bl_reads = tuple(done[:count])  # type: ignore[arg-type]
    bound._bl_writes = tuple(done[count:])  # type: ignore[arg-type]
    bound.record = None
    return bound


def enqueue(bound: BoundLaunch) -> RetirementRecord:
    """Use up a bound launch and cross the admission boundary.

    Returns:
        The record that owns everything now. Without an event, its `cause` says what the
        endpoint raised: the work may be running.

    Raises:
        NotEnqueuedError: The endpoint proves that nothing was enqueued; `recovered` is
            the same usable launch.

    Cost: one provider call and one more holder of each root; no validation, no wait.
    """
    launch = bound._launch("enqueue")
    endpoint = bound.endpoint
    opened: list[RetirementRecord] = []
    try:
        RetirementRecord._open((*bound._bl_reads, *bound._bl_writes), opened)
        record = opened[0]
        bound._moved_by = "enqueue"
        bound.record = record
    except BaseException:  # an interrupt
        bound.record = None
        bound._moved_by = None
        for record in opened:
            record._undo()
        raise
    try:
        raw = endpoint.enqueue(launch)
        record.event = Shared._new(ProviderEvent(endpoint, raw))
    except NotEnqueuedError as error:
        bound.record = None
        bound._moved_by = None
        record._undo()
        error.recovered = bound
        raise
    except BaseException as error:  # no proof: the work may be on the device
        record.cause = error
    record._end_borrows()
    bound.record = None
    return record


def proof_of(
    endpoint: Endpoint, record: RetirementRecord, deadline: float
) -> tuple[Proof, BaseException | None]:
    """What can be proven of the record's work, and the failure that goes with it.

    Without an event the whole queue has to drain, and the work counts as failed. An
    exception in place of an answer proves nothing.
    """
    try:
        event = record.event
        if event is None:
            state = endpoint.synchronise(deadline)
            return ("unproven" if state == "unproven" else "failed"), record.cause
        state = endpoint.await_event(event.value.raw, deadline)
        if state == "failed":
            return state, endpoint.failure(event.value.raw)
        return state, None
    except BaseException as error:
        return "unproven", error


def run_synchronously(bound: BoundLaunch) -> BaseException | None:
    """Run a bound launch to its end on a synchronous endpoint; the bindings stay.

    Returns:
        Why it failed, or None.

    Raises:
        NotEnqueuedError: The endpoint proves that nothing ran.

    Cost: one provider call that lasts until the work has ended; no validation.
    """
    endpoint = bound.endpoint
    if not endpoint.is_synchronous:
        raise InternalError(
            operation="run_synchronously", invariant="a synchronous endpoint"
        )
    launch = bound._launch("run_synchronously")
    try:
        event = endpoint.enqueue(launch)
    except NotEnqueuedError as error:
        error.recovered = bound
        raise
    except Exception as error:  # by its contract the endpoint left nothing running
        return error
    try:
        state = endpoint.await_event(event, 0.0)
        if state == "unproven":
            raise InternalError(
                operation="run_synchronously", invariant="work ends inside `enqueue`"
            )
        return endpoint.failure(event) if state == "failed" else None
    finally:
        endpoint.release_event(event)
