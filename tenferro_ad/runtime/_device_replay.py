"""Replays on asynchronous devices: a run is one launch of the whole program.

The schedule is the CPU's: the same outputs, the same arena for each reason, the same
places. What differs is who runs it: the device gets every step with the places of its
operands, so that a run costs one admission and one retirement record. Chains of
elementwise equations are one step (see `_chains.py`).

A device that lets no buffer be read and written by one kernel (WebGPU) keeps each place
of an arena in memory of its own; its multiset has one allocation for each of them that
a kernel touches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import State
from ..backends import Part, Place, ProgramKernel, infer_call
from ..ops import OPS, Equation, View
from ..storage import (
    DeviceArray,
    ValueRecord,
    allocate,
    count_copy,
    descriptor_at,
)
from ._chains import Chain, chains_of
from ._places import Root, Schedule, Step, Strides, distinct


class DeviceReplay:
    """A program that runs on records of one device, as one launch for each run."""

    __slots__ = (
        "_chains",
        "_copied",
        "_device",
        "_kernel",
        "_memory",
        "_strides",
        "_written",
        "arenas",
        "schedule",
    )

    def __init__(
        self, schedule: Schedule, device: Any, strides: Sequence[Strides]
    ) -> None:
        self.schedule = schedule
        self._device = device
        self._strides = dict(zip(schedule.program.inputs, strides, strict=False))
        self.arenas = [
            (reason, aval_of((nbytes,), np.dtype(np.uint8), device))
            for reason, nbytes in schedule.arenas.items()
        ]
        # What a run allocates and writes, in order: reason, form and text of each.
        self._memory: list[tuple[int, Aval, str]] = []
        self._written: dict[int, int] = {}  # by id of a root, or reason of an arena
        self._chains: dict[int, Chain | None] = self._find_chains()
        self._place_roots()
        self._copied = [
            schedule.avals[step.equation.outs[0]]
            for step in schedule.steps
            if step.copies
        ]
        self._kernel: ProgramKernel | None = None

    def _find_chains(self) -> dict[int, Chain | None]:
        strided = [v for v, steps in self._strides.items() if steps is not None]
        return chains_of(
            self.schedule,
            self._device.prints,
            strided,
            shares_buffers=self._device.shares_buffers,
        )

    # -- memory ------------------------------------------------------------------------

    def _place_roots(self) -> None:
        s = self.schedule
        for root in s.outputs:
            aval = s.avals[root.variables[0]]
            if root.taken is None:
                self._written[id(root)] = len(self._memory)
                self._memory.append((root.reason, aval, "output"))
        if self._device.shares_buffers:
            for reason, aval in self.arenas:
                self._written[reason] = len(self._memory)
                self._memory.append((reason, aval, "arena"))
            return
        chains = (chain for chain in self._chains.values() if chain is not None)
        inside = {v for chain in chains for v in chain.inside}
        for root, aval in self._places():
            if not inside.issuperset(root.variables):
                self._written[id(root)] = len(self._memory)
                self._memory.append((root.reason, aval, "arena"))

    def _places(self) -> Iterator[tuple[Root, Aval]]:
        """Places that have memory of their own."""
        return places_of(self.schedule)

    def memory(self) -> list[tuple[Aval, int]]:
        """Form and reason of what a run allocates."""
        return [(aval, reason) for reason, aval, _ in self._memory]

    def kernel(self, state: State) -> object:
        """One run: the kernel of a launch that writes what `memory` lists and then the
        donated inputs, in order. Its explicit duplicates are counted in `state`."""
        for aval in self._copied:
            count_copy(state, aval, "compiled function")
        if self._kernel is None:
            self._kernel = ProgramKernel("program", tuple(PartsMaker(self).all()))
        return self._kernel

    @property
    def device_name(self) -> str:
        """Name of the device, for texts."""
        return str(self._device.name)

    # -- runs --------------------------------------------------------------------------

    def run(
        self, state: State, inputs: list[ValueRecord], spent: list[int] | None = None
    ) -> list[ValueRecord]:
        """One run; donated inputs are used up.

        Args:
            spent: gets the position of each donated input when it is written over.

        Cost: an allocation for each output that takes over no input and each arena (or
            each of its places); no copy; one launch, and no wait.
        """
        kernel = self.kernel(state)
        records = self._allocated(state)
        self._launcher(inputs, records, spent)(kernel)
        return [self._result(v, inputs, records) for v in self.schedule.program.outputs]

    def _allocated(self, state: State) -> list[ValueRecord]:
        return [
            allocate(state.under(reason), aval, w) for reason, aval, w in self._memory
        ]

    def _launcher(
        self,
        inputs: list[ValueRecord],
        records: list[ValueRecord],
        spent: list[int] | None,
    ) -> Callable[[object], None]:
        """Launches kernels over these values; the first one uses up donated inputs."""
        given = sorted(self.schedule.donated)
        ins = [
            np.zeros((), x.aval.dtype) if k in given else x.array
            for k, x in enumerate(inputs)
        ]
        outs = [r.array for r in (*records, *[inputs[k] for k in given])]
        unspent = [] if spent is None else [*given]

        def launch(kernel: object) -> None:
            self._device.executions.launch("compiled function", kernel, ins, outs)
            if spent is not None:
                spent.extend(unspent)
                unspent.clear()

        return launch

    def _result(
        self, v: int, inputs: list[ValueRecord], records: list[ValueRecord]
    ) -> ValueRecord:
        """The record of output variable `v`."""
        s = self.schedule
        root = s.numbers.get(v, s.roots[v])
        if root.kind == "input":
            record = inputs[root.number]
        elif root.taken is not None:
            record = inputs[root.taken]
        else:
            record = records[self._written[id(root)]]
        layout = s.layouts.get(v)
        if layout is None:
            return record
        array, aval = record.array, s.avals[v]
        if type(array) is np.ndarray:  # a number as an input
            return record.derive(np.broadcast_to(array, aval.shape), aval)
        offset = array.offset + s.offsets.get(v, 0)
        found = DeviceArray(
            array.allocation, aval.shape, aval.dtype, offset, layout.strides
        )
        return record.derive(found, aval)


class PartsMaker:
    """Makes the steps of a kernel."""

    def __init__(self, replay: DeviceReplay) -> None:
        self._replay = replay
        self._device = replay._device
        self.schedule = replay.schedule
        self._donated = sorted(replay.schedule.donated)

    def all(self) -> list[Part]:
        made = []
        chains = self._replay._chains
        for step in self.schedule.steps:
            chain = chains.get(step.number)
            if chain is not None:
                made.append(self._chained(chain))
            elif step.number not in chains:
                part = self._part(step)
                if part is not None:
                    made.append(part)
        return [part for part in (*made, *self._numbers()) if writes(part)]

    def _numbers(self) -> list[Part]:
        """Outputs that are numbers of the program's text."""
        made = []
        for v, root in self.schedule.numbers.items():
            aval = self.schedule.avals[v]
            same = infer_call(OPS["accumulate"], (aval,), (), self._device)
            kernel = self._device.prepare(same)
            number = np.broadcast_to(self.schedule.number(v), aval.shape)
            made.append(Part(kernel, (number,), (self._of_root(root, aval),)))
        return made

    def _prepared(self, key: Any, make: Callable[[], Any]) -> Any:
        """The kernel of a part, which `key` names in its schedule."""
        return make()

    def _part(self, step: Step) -> Part | None:
        eq, device = step.equation, self._device
        call = eq.call
        kernel = call.op.kernel
        if isinstance(kernel, View):
            if eq.outs[0] in self.schedule.layouts:
                return None
            source = self._place(eq.ins[0])
            root = self.schedule.roots[eq.outs[0]]
            target = self._of_root(root, call.ins[0])
            copy = self._prepared(step.number, lambda: device.prepare_copy(call.ins[0]))
            return Part(copy, (source,), (target,))
        adds = eq.mode == "into"
        make = device.prepare_sum if adds else device.prepare
        prepared = self._prepared(step.number, lambda: make(call))
        outs = tuple(self._place(v) for v in eq.outs)
        in_place = frozenset(k for k in range(len(eq.operands)) if self._is_over(eq, k))
        return Part(prepared, tuple(map(self._place, eq.operands)), outs, in_place)

    def _is_over(self, eq: Equation, k: int) -> bool:
        """Whether the result is written over operand `k`, element on element."""
        if eq.mode == "over" and k == 0:
            return True  # a view or not: the result has its layout
        s, v = self.schedule, eq.operands[k]
        root, target = s.roots[v], s.roots[eq.outs[0]]
        is_taken = root.kind == "input" and target.taken == root.number
        is_same = root is target or is_taken
        return eq.mode != "into" and is_same and v not in s.layouts

    def _chained(self, chain: Chain) -> Part:
        prepared = self._prepared(
            chain.outputs,
            lambda: self._device.prepare_chain(
                chain.equations, chain.inputs, chain.outputs
            ),
        )
        ins, outs = (
            tuple(map(self._place, vs)) for vs in (chain.inputs, chain.outputs)
        )
        return Part(prepared, ins, outs)

    def _place(self, v: int) -> Any:
        s = self.schedule
        root = s.roots[v]
        if root.kind == "constant":
            return np.broadcast_to(s.number(v), s.avals[v].shape)
        at, start = self.where(root)
        layout = s.layouts.get(v)
        aval = s.avals[v]
        strides = layout.strides if layout is not None else self._replay._strides.get(v)
        start += s.offsets.get(v, 0)
        return place_at(at, start, aval, strides, self._device.name)

    def _of_root(self, root: Root, aval: Aval) -> Place:
        at, start = self.where(root)
        return place_at(at, start, aval, None, self._device.name)

    def where(self, root: Root) -> tuple[int, int]:
        """The argument that a root is (see `Place`), and its offset there."""
        taken = root.number if root.kind == "input" else root.taken
        if taken is not None:
            donated = self._donated
            if taken not in donated:
                return taken, 0
            return ~(len(self._replay._memory) + donated.index(taken)), 0
        written = self._replay._written
        if id(root) in written:
            return ~written[id(root)], 0
        if not root.nbytes:  # it has no place
            return -1, 0
        return ~written[root.reason], root.offset


def places_of(schedule: Schedule) -> Iterator[tuple[Root, Aval]]:
    """Places of the arenas of one level, each with the form of its memory."""
    for root in distinct(schedule.roots):
        if root.kind == "arena":
            yield root, schedule.avals[root.variables[0]]


def writes(part: Part) -> bool:
    """Whether there is an element to write: else the arena may have no place."""
    return any(x.descriptor.layout.size for x in part.outs)


def place_at(
    at: int, start: int, aval: Aval, strides: Strides, placement: str
) -> Place:
    """Elements that begin `start` bytes into argument `at` of a launch."""
    found = descriptor_at(start, aval.shape, aval.dtype, strides, placement)
    return Place(at, found)


__all__ = ["DeviceReplay", "PartsMaker", "place_at", "places_of", "writes"]
