"""Checkpoint regions: a stored sub-program that backward runs again (contract G7).

A region keeps its boundary (inputs and outputs) and nothing inside. `RegionCall` is the
one equation that outer recordings see. Its reverse rule replays the program from the
retained inputs, under the reason `CheckpointRecomputeOutput`, into a recording of its
own, and sweeps that; equations whose outputs no rule reads, or which the boundary has
kept, are not run again.

Source of the idea: A. Griewank, Optim. Methods Softw. 1 (1992); T. Chen et al.,
arXiv:1604.06174.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from .._aval import Aval, is_inexact
from .._ledger import RECOMPUTE_OUTPUT, STATE
from ..errors import CheckpointMismatchError
from ..ops import (
    Evaluator,
    Program,
    compute,
    evaluate,
    last_uses,
    push_through,
    unruled,
    without_reuse,
)
from ..runtime import batched_program, plan_of
from ..storage import host_elements
from ._backward import sweep
from ._record import NO_STEPS, TapeRecord


class RegionOp:
    """What stands where other equations have an `Op`."""

    __slots__ = ("is_select",)
    name: Final = "checkpoint"
    params: Final = ()
    variadic: Final = True
    args: Final = ("inputs",)
    unruled: Final = None
    stops: Final = False
    outs: Final = ("outputs",)

    def __init__(self, is_select: bool) -> None:
        self.is_select = is_select


class RegionCall:
    """One run of a checkpointed region, as outer recordings see it."""

    is_differentiable: Final = True
    params: Final = ()

    def __init__(
        self,
        program: Program,
        digests: dict[int, bytes] | None = None,
        *,
        keeps_outputs: bool = True,
    ) -> None:
        # Recomputation reads the outputs that the boundary keeps, unless it verifies.
        self.keeps_outputs = keeps_outputs and digests is None
        self.program = program = without_reuse(program)
        self.digests = digests
        self.is_select, self.has_rules = program.has_select, program.has_rules
        self._outside: RegionCall | None = None
        self.op = RegionOp(self.is_select)
        avals = program.avals
        self.ins: tuple[Aval, ...] = tuple(avals[v] for v in program.inputs)
        self.outs: tuple[Aval, ...] = tuple(avals[v] for v in program.outputs)
        self._specs: dict[int, RegionSpec] = {}
        self._batches: dict[Any, RegionCall] = {}

    def spec(self, mask: int) -> RegionSpec:
        found = self._specs.get(mask)
        if found is None:
            found = self._specs[mask] = RegionSpec(self, mask)
        return found

    def outside(self) -> RegionCall:
        """See `Call.outside`."""
        if not self.has_rules:
            return self
        if self._outside is None:
            self._outside = RegionCall(unruled(self.program))
        return self._outside

    def run(self, F: Evaluator, inputs: Sequence[Any]) -> list[Any]:
        """Compute the outputs again, keeping nothing."""
        return evaluate(self.program, F, inputs)

    def batch(
        self, F: Evaluator, size: int, xs: Sequence[Any], batched: Sequence[bool]
    ) -> list[Any]:
        """The outputs for `size` examples (see `Call.batch`): a region again."""
        key = (size, *batched)
        found = self._batches.get(key)
        if found is None:
            found = RegionCall(batched_program(self.program, size, batched))
            self._batches[key] = found
        return F.region(found, xs)

    def push_reads(self, tracked: Sequence[int]) -> list[int]:
        """`push` runs the region again: it reads the inputs."""
        return list(range(len(self.ins)))

    def push(
        self, F: Evaluator, tangents: Sequence[Any], values: Sequence[Any]
    ) -> list[Any]:
        """Tangents of the outputs: the region runs again beside its tangents."""
        return push_through(self.program, F, values[: len(self.ins)], tangents)[1]


class RegionSpec:
    """The reverse rule of a region for the tracked inputs in `mask`.

    Keeps every input and every output: the contract's boundary.
    """

    kind: Final = -1
    steps: Final = NO_STEPS
    lends: Final = False
    takes: Final = True

    def __init__(self, call: RegionCall, mask: int) -> None:
        prog = call.program
        n = len(prog.inputs)
        self.call, self.program = call, prog
        self.n_out = len(prog.outputs)
        self.tracked = tuple(i for i in range(n) if mask >> i & 1)
        self.saves = (*range(n), *(~j for j in range(self.n_out)))
        self.names = (
            *(f"input {i}" for i in range(n)),
            *(f"output {j}" for j in range(self.n_out)),
        )
        # What runs again: applications that a recording computes in another form are.
        prog, self._masks, _ = followed(prog, [prog.inputs[i] for i in self.tracked])
        self.program = prog
        needed: set[int] = set()
        known = set(prog.outputs) if call.keeps_outputs else set()
        self._run: list[bool] = [False] * len(prog.equations)
        for number in range(len(prog.equations) - 1, -1, -1):
            eq, m = prog.equations[number], self._masks[number]
            if m:
                needed.update(
                    eq.outs[~s] if s < 0 else eq.ins[s] for s in eq.call.spec(m).saves
                )
            if call.digests is not None or any(v in needed - known for v in eq.outs):
                self._run[number] = True
                needed.update(eq.ins)
        self._last = last_uses(prog)

    def taken(
        self, F: Evaluator, given: list[Any], saved: tuple[Any, ...], *, strong: bool
    ) -> tuple[Any, ...]:
        """The rule for the cotangent in `given`, which is taken out of it."""
        ct = given.pop()
        cts = list(ct) if self.n_out > 1 else [ct]
        del ct
        return self.rerun(F, cts, saved, {}, strong=strong)

    def rerun(
        self,
        F: Evaluator,
        cts: list[Any],
        saved: Sequence[Any],
        addends: Mapping[int, Any],
        *,
        strong: bool,
    ) -> tuple[Any, ...]:
        """Cotangents of the tracked inputs: run the region again and sweep.

        Args:
            cts: one for each output, or None; they are taken out.
            saved: the inputs, and then what else was kept.
            addends: by input, what to add to its cotangent.
        """
        prog = self.program
        state = STATE.get()
        try:
            STATE.set(state.under(RECOMPUTE_OUTPUT))
            tape, nodes = self._replay(F, saved)
        finally:
            STATE.set(state)
        seeds = {nodes[prog.inputs[i]]: x for i, x in addends.items()}
        cts.reverse()
        for v in prog.outputs:
            c = cts.pop()
            if c is not None and v in nodes:
                at = nodes[v]
                seeds[at] = F.add(seeds[at], c) if at in seeds else c
            del c
        if not seeds:
            return (None,) * len(self.tracked)
        found = sweep(tape, seeds, F, strong=strong, materialise=False, spends=True)
        return tuple(found.get(nodes[prog.inputs[i]]) for i in self.tracked)

    def _replay(
        self, F: Evaluator, saved: Sequence[Any]
    ) -> tuple[TapeRecord, dict[int, int]]:
        """Run the region again, recording it."""
        prog = self.program
        values: dict[int, Any] = dict(zip(prog.inputs, saved, strict=False))
        if self.call.keeps_outputs:
            kept = saved[len(prog.inputs) :]
            values.update(zip(prog.outputs, kept, strict=True))
        values.update((v, F.literal(x)) for v, x in prog.literals.items())
        tape = TapeRecord()
        nodes = {
            prog.inputs[i]: tape.leaf(None, self.call.ins[i]) for i in self.tracked
        }
        for number, eq in enumerate(prog.equations):
            if self._run[number]:
                outs = self._computed(F, number, [values[v] for v in eq.ins])
                known = len(self.call.program.equations[number].outs)
                self._verify(number, eq.call, outs[:known])
                values.update(zip(eq.outs, outs, strict=True))
            m = self._masks[number]
            if m:
                spec = eq.call.spec(m)
                base = tape.append(
                    spec,
                    tuple(nodes[eq.ins[k]] for k in spec.tracked),
                    tuple(
                        values[eq.outs[~s] if s < 0 else eq.ins[s]] for s in spec.saves
                    ),
                )
                nodes.update((v, base + k) for k, v in enumerate(eq.outs))
            for v in {*eq.ins, *eq.outs}:
                if self._last.get(v, -1) <= number:
                    values.pop(v, None)
        return tape, nodes

    def _computed(self, F: Evaluator, number: int, ins: list[Any]) -> list[Any]:
        """One equation; recordings around see no rule that this one takes."""
        call = self.program.equations[number].call
        if self._masks[number] and call.has_rules:
            program = call.op.unruled and call.op.unruled(call)
            if program:
                return evaluate(program, F, ins)
            call = call.outside()
        return compute(F, call, ins)

    def _verify(self, number: int, call: Any, outs: list[Any]) -> None:
        digests = self.call.digests
        if digests is None or number not in digests:
            return
        if digest(outs) != digests[number]:
            raise CheckpointMismatchError(
                operation=call.op.name,
                argument=f"equation {number} of the region",
                found="another result on recompute than in the forward pass",
                fix="make the region deterministic and leave memory that it reads "
                "unchanged until backward",
                expected=digests[number].hex(),
                seen=digest(outs).hex(),
            )


def followed(
    program: Program, tracked: Sequence[int]
) -> tuple[Program, list[int], set[int]]:
    """How a recording that tracks some variables takes a program.

    Gives the program with the applications that a recording computes instead (these
    have further outputs), for each equation which operands are tracked (bit k: operand
    k), and the variables that have a cotangent.
    """
    moving = set(tracked)
    masks = []
    for eq in program.equations:
        mask = sum(1 << k for k, v in enumerate(eq.ins) if v in moving)
        if not eq.call.is_differentiable:
            mask = 0
        masks.append(mask)
        if mask:
            moving.update(v for v in eq.outs if is_inexact(program.avals[v].dtype))
    return _recorded(program, masks), masks, moving


def _recorded(program: Program, masks: list[int]) -> Program:
    """The program with the applications that a recording computes instead."""
    avals = list(program.avals)
    equations = []
    for eq, m in zip(program.equations, masks, strict=True):
        recorded = getattr(eq.call.op, "recorded", None)
        if m and recorded is not None:
            call = eq.call
            op, params = recorded(call, m)
            call = plan_of(op, call.ins, params).call
            more = call.outs[len(eq.outs) :]
            new = range(len(avals), len(avals) + len(more))
            avals += more
            eq = replace(eq, call=call, outs=(*eq.outs, *new))
        equations.append(eq)
    return replace(program, equations=equations, avals=avals)


def digest(values: Sequence[Any]) -> bytes:
    """A fingerprint of the exact bytes of some values."""
    h = hashlib.blake2b(digest_size=16)
    for value in values:
        record = getattr(value, "_record", value)
        h.update(
            np.ascontiguousarray(host_elements(record, "checkpoint"))
            .view(np.uint8)
            .data
        )
    return h.digest()
