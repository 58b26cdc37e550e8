"""Tracing: the evaluator that adds operations to a program instead of computing them.

Records inside a trace are *symbolic*: their array is a `Symbol`, which stands for a
variable of the program. Everything else (handles, recording levels, the reverse sweep,
checkpoints) is what eager work uses, so every transform means the same in a trace.
While a trace is open nothing is computed, also not on values from outside: those become
constants of the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from .._aval import Aval
from .._ledger import DUPLICATE_DESTINATION, RECOMPUTE_OUTPUT, STATE
from .._source import source_line
from ..backends import Plan
from ..errors import EscapedTracerError, TenferroError, TracedConversionError
from ..ops import OPS, Equation, Op, Program, Region, View
from ..storage import DeviceArray, ValueRecord
from ._counted import Counting, Taken, counted
from ._direct import DirectEvaluator, as_records, plan_of
from ._steps import InputRule

Array = np.ndarray[Any, Any]


class _Nowhere:
    """The account of symbolic records: they have no bytes."""

    __slots__ = ()

    def release(self, nbytes: int) -> None:
        """Nothing was allocated."""


NOWHERE: Final = _Nowhere()


class Symbol:
    """What a symbolic record has in place of an array: a variable of a trace."""

    __slots__ = ("_layout", "trace", "variable")
    nbytes: Final = 0  # nothing for a pool to take back

    def __init__(self, trace: Trace, variable: int, layout: Array | None) -> None:
        self.trace, self.variable, self._layout = trace, variable, layout

    @property
    def layout(self) -> Array:
        """Shape, dtype and strides of the value, as an array that must not be read."""
        if self._layout is None:
            self._layout = layout_of(self.trace.program.avals[self.variable])
        return self._layout

    @property
    def strides(self) -> tuple[int, ...]:
        return self.layout.strides

    def _refuse(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise traced_error("read", self)

    __array__ = __array_ufunc__ = __array_function__ = __getattr__ = _refuse


def layout_of(aval: Aval, strides: tuple[int, ...] | None = None) -> Array:
    """An array of this shape, dtype and strides (default: row-major) that must not be
    read."""
    if strides is None:
        steps, step = [], aval.dtype.itemsize
        for n in reversed(aval.shape):
            steps.append(step)
            step *= max(n, 1)
        strides = tuple(steps[::-1])
    one = np.empty(1, aval.dtype)
    return np.lib.stride_tricks.as_strided(one, aval.shape, strides, writeable=False)


def strides_of(record: ValueRecord) -> tuple[int, ...] | None:
    """Strides of a value in memory; None for a row-major one.

    Raises:
        EscapedTracerError: a symbolic value whose trace has ended.
    """
    array = record.array
    if type(array) is DeviceArray:
        return None if array.is_row_major else array.strides
    if type(array) is np.ndarray:
        return None if array.flags.c_contiguous else array.strides
    if type(array) is Symbol and not array.trace.is_open:
        raise escaped_error("compiled function")
    return None


def is_symbolic(record: ValueRecord) -> bool:
    return type(record.array) is Symbol


def traced_error(operation: str, symbol: Symbol) -> TenferroError:
    """Somebody asked for the bytes of a symbolic value, which has none (yet)."""
    if not symbol.trace.is_open:
        return escaped_error(operation)
    file, line = source_line()
    return TracedConversionError(
        operation=operation,
        argument="x",
        found=f"a traced value, which has no bytes yet ({file}, line {line})",
        fix="choose between values with `ta.where` or `ta.cond`, loop with `ta.scan` "
        "or `ta.while_loop`, or compute this part outside the traced function",
    )


def escaped_error(operation: str) -> EscapedTracerError:
    """A symbolic value was used after its trace."""
    return EscapedTracerError(
        operation=operation,
        argument="x",
        found="a value of a trace that has ended",
        fix="return it from the traced function instead of keeping it outside",
    )


class Trace(DirectEvaluator):
    """An open trace: `F` over symbolic records.

    Attributes:
        program: what was traced so far.
        constants: for each captured value its variable, and what the capturing code
            keeps to supply the value later.
        parent: the trace outside, or None.
        taken: data from outside that came in while it was open.
        counting: counts the bytes that eager work would hold, or None.
    """

    is_symbolic = True

    def __init__(self, parent: Trace | None, counting: Counting | None = None) -> None:
        super().__init__()
        self.counting = counting
        self.program = Program()
        self.parent = parent
        self.taken = Taken()
        self.is_open = True
        self.constants: list[tuple[int, Any]] = []
        self._captured: dict[Any, ValueRecord] = {}
        self._literals: dict[Any, ValueRecord] = {}

    def close(self) -> None:
        """The trace has ended. It lets go of all values: symbols point to their trace,
        and nothing here may need the cyclic collector."""
        self.is_open = False
        self.constants, self._captured, self._literals = [], {}, {}
        self.clear()  # bound operations refer to the trace
        for name in OPS.keys() & vars(self).keys():
            delattr(self, name)

    # -- values ------------------------------------------------------------------------

    def input(self, aval: Aval) -> ValueRecord:
        symbol = Symbol(self, self.program.variable(aval), None)
        record = ValueRecord(symbol, aval, NOWHERE)
        self.program.inputs.append(symbol.variable)
        record.tokens.append(None)  # the caller of the program holds it too
        return record

    def fresh_record(self, aval: Aval, reason: int | None = None) -> ValueRecord:
        """The record of an output, under the reason of the state or another."""
        symbol = Symbol(self, self.program.variable(aval), None)
        counting = self.counting
        if counting is None:
            return ValueRecord(symbol, aval, NOWHERE)
        counting.allocated(
            aval.nbytes, STATE.get().reason if reason is None else reason
        )
        return ValueRecord(symbol, aval, counting)

    def lent(self, aval: Aval) -> ValueRecord:
        """A record whose bytes belong to somebody else."""
        symbol = Symbol(self, self.program.variable(aval), None)
        return ValueRecord(symbol, aval, None)

    def owns(self, record: ValueRecord) -> bool:
        array = record.array
        return type(array) is Symbol and array.trace is self

    def lift(self, record: ValueRecord) -> ValueRecord:
        """The record as a value of this trace."""
        return record if self.owns(record) else self.capture(record, None, None)

    def capture(self, record: ValueRecord, key: Any, supply: Any) -> ValueRecord:
        """A value from outside becomes a constant of the program; a number is part of
        its text.

        Args:
            key: tells apart constants that share a record.
            supply: what to keep for it; None keeps the record itself.
        """
        if record.is_rootless and not is_symbolic(record):
            return self.literal(record)
        array = record.array
        if type(array) is Symbol and not array.trace.is_open:
            raise escaped_error("trace")
        if self.counting is not None:
            supplied = self.counting.supplied.get(id(record))
            if supplied is not None:
                return supplied
        at = (id(record), key)
        found = self._captured.get(at)
        if found is None:
            found = self.input(record.aval)
            self._captured[at] = found
            kept = record if supply is None else supply()
            self.constants.append((found.array.variable, (record, kept)))
        return found

    def literal(self, record: ValueRecord) -> ValueRecord:
        """A number as an operand."""
        found = self._literals.get(id(record))
        if found is None:
            symbol = Symbol(self, self.program.variable(record.aval), None)
            found = ValueRecord(symbol, record.aval, None)
            found.tokens.append(None)
            self.program.literals[symbol.variable] = record
            self._literals[id(record)] = found
        return found

    # -- operations --------------------------------------------------------------------

    def bind(self, op: Op) -> Callable[..., Any]:
        if op.variadic:
            return lambda xs, *params: self.apply(op, tuple(xs), params)
        n = len(op.args)

        def bound(*operands: Any) -> Any:
            xs = operands[:n]
            if not all(isinstance(x, ValueRecord) for x in xs):
                xs = as_records(op, xs)
            return self.apply(op, xs, operands[n:])

        return bound

    def apply(
        self, op: Op, operands: Sequence[ValueRecord], params: tuple[Any, ...]
    ) -> Any:
        """Add one equation; gives its output record or a tuple of them."""
        xs = [self.lift(x) for x in operands]
        plan = plan_of(op, tuple([x.aval for x in xs]), params)
        call = plan.call
        if isinstance(op.kernel, Region) and self.counting is not None:
            outs = counted(self, call, xs)
            return outs[0] if len(outs) == 1 else tuple(outs)
        if isinstance(op.kernel, View):
            outs = self._views(op.kernel, call, xs[0])
        else:
            outs = [self.fresh_record(a) for a in call.outs]
        if self.counting is not None:
            self._computes(plan, xs, plan.scratch_nbytes)
        self._append(call, xs, outs)
        return outs[0] if len(outs) == 1 else tuple(outs)

    def _computes(self, plan: Plan, xs: Sequence[ValueRecord], nbytes: int) -> None:
        assert self.counting is not None
        if plan.layout is not None:
            nbytes += plan.layout(*[x.array.layout for x in xs])
        self.counting.computes(nbytes)

    def apply_call(self, call: Any, operands: Sequence[ValueRecord]) -> list[Any]:
        """Add one equation of a call that is no row of the table (a region)."""
        xs = [self.lift(x) for x in operands]
        if self.counting is not None:  # what happens inside is counted, too
            return list(call.run(self, xs))
        outs = [self.fresh_record(a) for a in call.outs]
        self._append(call, xs, outs)
        return outs

    def _views(self, kernel: View, call: Any, x: ValueRecord) -> list[ValueRecord]:
        """Outputs over the operand's memory, laid out as they will be."""
        layouts = kernel.fn(x.array.layout, call)
        if layouts is None:  # laid out anew, in memory of its own
            copies = kernel.otherwise == "duplicate"
            return [
                self.fresh_record(call.out, DUPLICATE_DESTINATION if copies else None)
            ]
        if len(call.outs) == 1:
            layouts = (layouts,)
        return [
            x.derive(Symbol(self, self.program.variable(aval), layout), aval)
            for aval, layout in zip(call.outs, layouts, strict=True)
        ]

    def _append(
        self, call: Any, xs: Sequence[ValueRecord], outs: Sequence[ValueRecord]
    ) -> None:
        self.program.equations.append(
            Equation(
                call,
                tuple([x.array.variable for x in xs]),
                tuple([y.array.variable for y in outs]),
                recompute=STATE.get().reason == RECOMPUTE_OUTPUT,
            )
        )

    # -- memory that is used again -----------------------------------------------------

    def write(
        self, mode: Any, call: Any, operands: Sequence[ValueRecord]
    ) -> ValueRecord:
        """An equation that writes over, or adds to, its first operand; that record is
        the result from now on."""
        xs = [self.lift(x) for x in operands]
        target = xs[0]
        if self.counting is not None:
            plan = plan_of(call.op, call.ins, call.params)
            adds = mode == "into"
            needed = plan.into_nbytes if adds else plan.scratch_nbytes
            self._computes(plan, xs[adds:], needed)
        symbol = Symbol(self, self.program.variable(target.aval), target.array.layout)
        self.program.equations.append(
            Equation(
                call,
                tuple([x.array.variable for x in xs]),
                (symbol.variable,),
                recompute=STATE.get().reason == RECOMPUTE_OUTPUT,
                mode=mode,
            )
        )
        target.array = symbol
        return target

    def add_into(self, target: Any, other: Any) -> Any:
        other = self.lift(other)
        call = plan_of(OPS["add"], (target.aval, other.aval), ()).call
        return self.write("over", call, (target, other))

    def fresh(self, rule: InputRule, ct: Any, saved: Sequence[Any]) -> Any:
        return self.apply(*_operation(rule, ct, saved))

    def into(self, rule: InputRule, ct: Any, saved: Sequence[Any], target: Any) -> Any:
        _, xs, _ = _operation(rule, ct, saved)
        return self.write("into", rule.plan.call, (target, *xs))

    def over(self, rule: InputRule, ct: Any, saved: Sequence[Any]) -> Any:
        _, xs, _ = _operation(rule, ct, saved)
        return self.write("over", rule.plan.call, xs)


def _operation(
    rule: InputRule, ct: Any, saved: Sequence[Any]
) -> tuple[Op, list[ValueRecord], tuple[Any, ...]]:
    call = rule.plan.call
    return call.op, [ct if k < 0 else saved[k] for k in rule.positions], call.params


__all__ = [
    "NOWHERE",
    "Symbol",
    "Trace",
    "is_symbolic",
    "layout_of",
    "strides_of",
    "traced_error",
]
