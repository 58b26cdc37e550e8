"""The tools that rules of operations with bodies need (see `ops/_body.py`).

A derived body is traced on bare symbolic records: nothing outside it is captured, so it
depends on the structure of the body alone. What its reverse form computes again from
the inputs carries the recompute mark, like a checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from .._aval import Aval
from .._ledger import OPERATION_OUTPUT, STATE, State
from ..ops import (
    Body,
    Evaluator,
    Program,
    Tools,
    body_of,
    evaluate,
    optimise,
    unruled,
)
from ..runtime import BatchEvaluator, Trace
from ._checkpoint import RegionCall


class _Tools:
    """See `ops.Tools`."""

    __slots__ = ()

    def traced(
        self, fn: Callable[[Evaluator, list[Any]], Sequence[Any]], avals: Sequence[Aval]
    ) -> Program:
        state = STATE.get()
        trace = Trace(state.trace)
        try:
            STATE.set(State(state.account, OPERATION_OUTPUT, None, trace))
            outs = fn(trace, [trace.input(a) for a in avals])
            trace.program.outputs = tuple([y.array.variable for y in outs])
        finally:
            STATE.set(state)
            trace.close()
        return optimise(trace.program)

    def pulled(
        self,
        F: Evaluator,
        program: Program,
        tracked: Sequence[int],
        cts: Sequence[Any],
        values: Sequence[Any],
        addends: Mapping[int, Any],
        *,
        strong: bool,
    ) -> list[Any]:
        mask = sum(1 << i for i in tracked)
        spec = RegionCall(program, keeps_outputs=False).spec(mask)
        return list(spec.rerun(F, list(cts), values, addends, strong=strong))

    def batched(
        self,
        F: Evaluator,
        program: Program,
        size: int,
        values: Sequence[Any],
        flags: Sequence[bool],
    ) -> list[tuple[Any, bool]]:
        many = BatchEvaluator(F, size)
        inputs = [
            many.each(x) if flag else many.shared(x)
            for x, flag in zip(values, flags, strict=True)
        ]
        outs = evaluate(program, many, inputs)
        return [(y.value, y.batched) for y in outs]

    def unruled(self, body: Body) -> Body:
        return body_of(unruled(body.program), self)


TOOLS: Final[Tools] = _Tools()
