"""The evaluator that computes many examples at once: values of a program, each with or
without a batch axis.

An equation none of whose operands has the batch is computed once, for all examples; the
others are computed by their rows' batching rules. So `evaluate(program, BatchEvaluator(
F, size), ...)` is the program for `size` examples, in operations of `F`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._aval import Aval, aval_of
from ..ops import OPS, Evaluator, Op, Program, evaluate
from ._direct import plan_of
from ._trace import Trace


class Example:
    """A value of a program for one example.

    Attributes:
        value: what `F` computes with. If `batched`, it has the examples along axis 0.
        aval: of one example.
    """

    __slots__ = ("aval", "batched", "value")

    def __init__(self, value: Any, aval: Aval, *, batched: bool) -> None:
        self.value, self.aval, self.batched = value, aval, batched


class BatchEvaluator(Evaluator):
    """`F` over `Example`s.

    Args:
        F: computes with their values.
        size: how many examples there are.
    """

    def __init__(self, F: Evaluator, size: int) -> None:
        super().__init__()
        self.F, self.size = F, size

    def shared(self, value: Any) -> Example:
        """A value that is the same for all examples."""
        return Example(value, value.aval, batched=False)

    def each(self, value: Any) -> Example:
        """A value with one example after the other along axis 0."""
        aval = value.aval
        return Example(
            value, aval_of(aval.shape[1:], aval.dtype, aval.device), batched=True
        )

    def __missing__(self, op: Op) -> Callable[..., Any]:
        return self.bind(op)  # kept, it would be a cycle

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return self.bind(OPS[name])

    def literal(self, record: Any) -> Example:
        return self.shared(self.F.literal(record))

    def bind(self, op: Op) -> Callable[..., Any]:
        if op.variadic:
            return lambda xs, *params: self._apply(op, xs, params)
        n = len(op.args)
        return lambda *operands: self._apply(op, operands[:n], operands[n:])

    def _apply(
        self, op: Op, xs: Sequence[Example], params: tuple[Any, ...]
    ) -> Example | tuple[Example, ...]:
        if not any(x.batched for x in xs):
            values = [x.value for x in xs]
            fn = self.F[op]
            made = fn(values, *params) if op.variadic else fn(*values, *params)
            outs = made if isinstance(made, tuple) else (made,)
            found = tuple([self.shared(y) for y in outs])
        else:
            call = plan_of(op, tuple([x.aval for x in xs]), params).call
            found = self._many(call, xs)
        return found if len(found) > 1 else found[0]

    def region(self, call: Any, operands: Sequence[Example]) -> list[Any]:
        if any(x.batched for x in operands):
            return list(self._many(call, operands))
        return [
            self.shared(y) for y in self.F.region(call, [x.value for x in operands])
        ]

    def _many(self, call: Any, xs: Sequence[Example]) -> tuple[Example, ...]:
        outs = call.batch(
            self.F, self.size, [x.value for x in xs], [x.batched for x in xs]
        )
        return tuple(
            [
                Example(y, aval, batched=True)
                for y, aval in zip(outs, call.outs, strict=True)
            ]
        )

    def with_batch(self, x: Example) -> Any:
        """The value with the batch axis; one that all examples share is broadcast (a
        view)."""
        if x.batched:
            return x.value
        return self.F.broadcast_to(x.value, (self.size, *x.aval.shape))


def batched_program(program: Program, size: int, batched: Sequence[bool]) -> Program:
    """The program for `size` examples.

    Args:
        batched: which inputs have the examples along a new leading axis 0; all outputs
            do.

    Raises:
        NoRuleError: names an operation without a batching rule.
    """
    trace = Trace(None)
    F = BatchEvaluator(trace, size)
    inputs = []
    for aval, many in zip(program.in_avals, batched, strict=True):
        if many:
            aval = aval_of((size, *aval.shape), aval.dtype, aval.device)
        record = trace.input(aval)
        inputs.append(F.each(record) if many else F.shared(record))
    outs = [F.with_batch(y) for y in evaluate(program, F, inputs)]
    trace.program.outputs = tuple([y.array.variable for y in outs])
    trace.close()
    return trace.program
