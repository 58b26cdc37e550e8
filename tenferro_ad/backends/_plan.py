"""Plans: how one application runs, fixed once and replayed.

`execute` is the only way from an application to its outputs that everybody may take.
The fast paths (eager functions of one and two operands, the steps of a reverse sweep)
write the same thing out from the facts that a plan shows, for small outputs.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from types import CodeType
from typing import Any, final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import State
from ..errors import AllocationLimitError
from ..ops import Call, Move, Op, RuleSpec
from ..storage import (
    DOOR_NAMES,
    POOLED_FROM,
    SMALL_ARRAY_SOURCE,
    SMALL_RECORD_SOURCE,
    ValueRecord,
    allocate,
    host_elements,
    transfer,
)
from ._numpy_printer import Printed
from ._quiet import loud, quiet


@final
class Plan:
    """How one application runs: `execute(state, *records)` gives a record or a tuple.

    Attributes:
        call: the application (structure only, no values).
        execute: allocates the outputs through the door and runs the kernel.
        run: `run(*arrays, out)`, the kernel alone; None unless it writes one output.
        source: the kernel as an expression over `run`, `{0}`, `{1}`, with a fresh array
            as its value, where that is one NumPy call or operator; else None.
        fresh: `fresh(*arrays)` gives the result of a small output as a fresh array, if
            one NumPy function makes it: row-major whenever the operands are. Else None.
        overwrite: `overwrite(*arrays, out)` computes into memory that may be the first
            operand's; elementwise only.
        into: `into(state, *arrays, acc)` adds the result to `acc`, through scratch; for
            kernels with one output.
        printed: the kernel's statements, for code that runs many of them; elementwise
            only.
        scratch_nbytes, into_nbytes: workspace of `run` and of `into`.
        layout: `layout(*arrays)` is the further workspace for the strides that these
            operands have, or None.
        aval, shape, dtype, nbytes, device: of the first output.
        is_small: steps may allocate the output themselves and call `run`.
        specs: reverse rules by mask of tracked arguments, filled on first use; None
            where the fast paths do not record.
    """

    __slots__ = (
        "aval",
        "call",
        "device",
        "dtype",
        "execute",
        "fresh",
        "into",
        "into_nbytes",
        "is_small",
        "layout",
        "nbytes",
        "overwrite",
        "printed",
        "run",
        "scratch_nbytes",
        "shape",
        "source",
        "specs",
    )

    def __init__(
        self,
        call: Call,
        execute: Callable[..., Any] | None = None,
        *,
        run: Callable[..., None] | None = None,
        source: str | None = None,
        fresh: Callable[..., Any] | None = None,
        overwrite: Callable[..., None] | None = None,
        into: Callable[..., None] | None = None,
        scratch_nbytes: int = 0,
        into_nbytes: int = 0,
        layout: Callable[..., int] | None = None,
        printed: Printed | None = None,
    ) -> None:
        self.call = call
        self.aval = aval = call.out
        self.shape, self.dtype, self.nbytes = aval.shape, aval.dtype, aval.nbytes
        self.device = aval.device
        self.run = run
        self.printed = printed
        self.source = source
        self.overwrite = overwrite
        self.into = into
        self.scratch_nbytes = scratch_nbytes
        self.into_nbytes = into_nbytes
        self.layout = layout
        self.is_small = run is not None and aval.nbytes < POOLED_FROM
        # NumPy's functions give scalars, not arrays, of no dimension.
        self.fresh = fresh if self.is_small and aval.ndim else None
        self.execute = _written_out(self) if execute is None else execute
        short = len(call.ins) <= 2 and len(call.outs) == 1
        self.specs: list[RuleSpec | None] | None = (
            [None] * 4 if short and call.is_differentiable else None
        )

    def registers(self, *, aliased: bool) -> tuple[Any, ...]:
        """Dtypes of the arrays that `printed` needs beside operands and output."""
        if self.printed is None:
            return ()
        return self.printed.aliased_temps if aliased else self.printed.temps

    def put_before(self, check: Callable[..., None]) -> None:
        """Let `check(call, arrays)` refuse values before anything is allocated."""
        call, checked = self.call, self.execute

        def execute(state: State, *xs: ValueRecord) -> ValueRecord:
            check(call, [x.array for x in xs])
            return checked(state, *xs)

        self.execute, self.run, self.fresh = execute, None, None
        self.is_small = False

    def spec(self, mask: int) -> RuleSpec:
        """The reverse rule for the tracked arguments in `mask`."""
        spec = self.call.spec(mask)
        if self.specs is not None:
            self.specs[mask] = spec
        return spec


def infer_call(
    op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...], device: Any
) -> Call:
    """Run the row's shape rule and intern the result avals.

    Raises:
        AllocationLimitError: a result is larger than any address space.
        and what the rule raises.
    """
    inferred = op.infer(*((ins,) if op.variadic else ins), *params)
    if isinstance(op.kernel, Move):
        device = params[0]
    if isinstance(inferred, list):
        outs = tuple(aval_of(s, np.dtype(d), device) for s, d in inferred)
    else:
        shape, dtype = inferred
        outs = (aval_of(tuple(shape), np.dtype(dtype), device),)
    for out in outs:
        _check_size(op, out)
    return Call(op, ins, outs, params)


def _check_size(op: Op, out: Aval) -> None:
    # Like NumPy, which looks past empty axes: strides must have room for the others.
    nbytes = math.prod(n for n in out.shape if n) * out.dtype.itemsize
    if nbytes > sys.maxsize:
        raise AllocationLimitError(
            operation=op.name,
            argument="shape",
            engine=out.device.name,
            nbytes=nbytes,
            limit=sys.maxsize,
            found=f"a result of shape {_said(out.shape)}, larger than any address "
            "space",
            fix="choose a smaller shape",
        )


def _said(shape: tuple[int, ...]) -> str:
    """A shape whose numbers may be too long for Python to print."""
    most = 10**30
    sizes = [str(n) if n < most else "more than 1e30" for n in shape]
    return f"({', '.join(sizes)})"


def move_plan(call: Call) -> Plan:
    """The plan that transfers a value to the device of the call's output."""
    aval, name = call.out, call.op.name

    def execute(state: State, x: ValueRecord) -> ValueRecord:
        return transfer(host_elements(x, name), aval, name)

    return Plan(call, execute)


def _written_out(plan: Plan) -> Callable[..., ValueRecord]:
    """`execute` for one output: the door and the kernel as one function, because rules
    run it for every operation that they compute."""
    names = [f"x{i}" for i in range(len(plan.call.ins))]
    arrays = "".join(f"{n}.array, " for n in names)
    needed = "scratch" if plan.layout is None else f"scratch + layout({arrays})"
    source = f"""
def execute(state, {", ".join(names)}):
    if state.is_plain and is_small:{SMALL_ARRAY_SOURCE}{SMALL_RECORD_SOURCE}
    else:
        out = allocate(state, aval, name)
        array = out.array
        needed = {needed}
        if needed:
            state.account.use_workspace(needed)
    before = quiet()
    try:
        run({arrays}array)
    finally:
        loud(before)
    return out
"""
    space = {
        **DOOR_NAMES,
        "allocate": allocate,
        "aval": plan.aval,
        "is_small": plan.is_small,
        "layout": plan.layout,
        "loud": loud,
        "name": plan.call.op.name,
        "plan": plan,
        "quiet": quiet,
        "run": plan.run,
        "scratch": plan.scratch_nbytes,
    }
    exec(compiled(source), space)
    return space["execute"]  # type: ignore[no-any-return]


@cache
def compiled(source: str) -> CodeType:
    """Generated source as code; shapes and kernels are names in it: there are few."""
    return compile(source, "<tenferro_ad>", "exec")
