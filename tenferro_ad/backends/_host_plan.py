"""How rows run on the host: a plan for each kind of kernel, NumPy's and SciPy's calls.

A plan takes its outputs through the doors and shows the fast paths what they may write
out themselves (`_plan.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from .._ledger import State
from ..errors import UnsupportedError
from ..ops import Call, Elementwise, ElementwiseOp, Library, Move, View, Write
from ..storage import ValueRecord, adopt, allocate, duplicate
from ._numpy_printer import Printed, print_numpy
from ._plan import Plan, compiled, move_plan
from ._quiet import quietly

Array = np.ndarray[Any, Any]


def host_plan(call: Call, backend: str) -> Plan:
    """The plan of one application.

    Raises:
        UnsupportedError: the row has another kind of kernel.
    """
    kernel = call.op.kernel
    match kernel:
        case Elementwise():
            return _plan_elementwise(call, kernel)
        case Write():
            return _plan_write(call, kernel)
        case View():
            return _plan_view(call, kernel)
        case Library():
            return _plan_library(call, kernel)
        case Move():
            return move_plan(call)
    raise UnsupportedError(op=call.op.name, backend=backend)


# A Python operator costs less than the call of the function that it stands for.
_OPERATORS: Final[dict[Any, str]] = {
    np.add: "{0} + {1}",
    np.multiply: "{0} * {1}",
    np.subtract: "{0} - {1}",
}


def _plan_elementwise(call: Call, kernel: Elementwise) -> Plan:
    kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in call.ins)
    assert isinstance(call.op, ElementwiseOp)
    expr = call.op.expr_of(kinds)
    printed: Printed = print_numpy(expr, call.op.args, [a.dtype for a in call.ins])
    shape = call.out.shape
    even = all(a.shape == shape and a.dtype == call.out.dtype for a in call.ins)
    run, add = printed.runner(shape, even=even), printed.adder(shape)
    needed = printed.adder_scratch_nbytes(shape)

    def into(state: State, *arrays: Array) -> None:
        if not state.is_plain:
            state.account.use_workspace(needed)
        add(*arrays)

    source = _OPERATORS.get(run)
    if source is None and isinstance(run, np.ufunc) and len(call.ins) <= 2:
        source = "run({0})" if len(call.ins) == 1 else "run({0}, {1})"
    return Plan(
        call,
        run=run,
        source=source,
        fresh=run if _makes(run, call) else None,
        overwrite=printed.overwriter(shape, even=even),
        into=into,
        scratch_nbytes=printed.scratch_nbytes(shape),
        into_nbytes=needed,
        printed=printed,
    )


def _makes(run: Any, call: Call) -> bool:
    """Whether `run` by itself gives an array of the output's dtype."""
    if not isinstance(run, np.ufunc):
        return False
    dtypes = run.resolve_dtypes((*[a.dtype for a in call.ins], None))
    return bool(dtypes[-1] == call.out.dtype)


def _plan_write(call: Call, kernel: Write) -> Plan:
    one = len(call.outs) == 1 and not call.op.variadic
    plan = _plan_one(call, kernel) if one else _plan_several(call, kernel)
    if kernel.check is not None:
        plan.put_before(kernel.check)
    return plan


def _plan_one(call: Call, kernel: Write) -> Plan:
    """One output of a fixed number of operands: steps and sums may write it out."""
    fn, scratch, source = kernel.fn, kernel.scratch_nbytes(call), kernel.source(call)
    run, fresh = _functions(call, fn, source)
    into, needed = _adding(call, fn, scratch), scratch + call.out.nbytes
    if kernel.add is not None:
        into, needed = _adding_in_place(call, kernel.add, scratch), scratch
    return Plan(
        call,
        run=run,
        source=source,
        fresh=fresh,
        into=into,
        scratch_nbytes=scratch,
        into_nbytes=needed,
        layout=kernel.layout_nbytes,
    )


def _plan_several(call: Call, kernel: Write) -> Plan:
    outs, name, scratch = call.outs, call.op.name, kernel.scratch_nbytes(call)
    single, fn = len(outs) == 1, quietly(kernel.fn)

    def execute(state: State, *xs: ValueRecord) -> Any:
        records = [allocate(state, a, name) for a in outs]
        if scratch:
            state.account.use_workspace(scratch)
        fn(call, [r.array for r in records], [x.array for x in xs])
        return records[0] if single else tuple(records)

    return Plan(call, execute, scratch_nbytes=scratch)


def _functions(
    call: Call, fn: Callable[..., None], source: str | None
) -> tuple[Callable[..., None], Callable[..., Any] | None]:
    """`run(*arrays, out)` of a kernel that writes one output, and `fresh(*arrays)`."""
    if source is None:
        return lambda *arrays: fn(call, arrays[-1:], arrays[:-1]), None
    names = [f"x{i}" for i in range(len(call.ins))]
    value, params = source.format(*names), ", ".join(names)
    written = f"""
def run({params}, out):
    {value.removesuffix(")")}, out)

def fresh({params}):
    return {value}
"""
    space: dict[str, Any] = {}
    exec(compiled(written), space)
    return space["run"], space["fresh"]


def _adding(call: Call, fn: Callable[..., None], scratch: int) -> Callable[..., None]:
    aval, kernel = call.out, call.op.kernel
    device = aval.device
    layout = kernel.layout_nbytes if isinstance(kernel, Write) else None

    def into(state: State, *arrays: Array) -> None:
        if not state.is_plain:
            more = 0 if layout is None else layout(*arrays[:-1])
            state.account.use_workspace(scratch + aval.nbytes + more)
        held = device.scratch(aval)
        fn(call, (held,), arrays[:-1])
        np.add(arrays[-1], held, arrays[-1])
        device.give_back(held)

    return into


def _adding_in_place(
    call: Call, add: Callable[..., None], scratch: int
) -> Callable[..., None]:
    def into(state: State, *arrays: Array) -> None:
        if not state.is_plain:
            state.account.use_workspace(scratch)
        add(call, arrays[-1], arrays[:-1])

    return into


def _plan_view(call: Call, kernel: View) -> Plan:
    aval, name, fn = call.out, call.op.name, kernel.fn
    if len(call.outs) > 1:

        def several(state: State, x: ValueRecord) -> Any:
            arrays = fn(x.array, call)
            return tuple(x.derive(a, v) for a, v in zip(arrays, call.outs, strict=True))

        return Plan(call, several)
    writes = kernel.otherwise == "write"

    def execute(state: State, x: ValueRecord) -> ValueRecord:
        array = fn(x.array, call)
        if array is not None:
            return x.derive(array, aval)
        if writes:
            record = allocate(state, aval, name)
            np.copyto(record.array.reshape(x.aval.shape), x.array)
            return record
        # The array API allows a copy here, and it is an explicit, recorded one.
        base = duplicate(x.array, x.aval, name)
        if aval.shape == base.aval.shape:
            return base
        return base.derive(base.array.reshape(aval.shape), aval)

    return Plan(call, execute)


def _plan_library(call: Call, kernel: Library) -> Plan:
    outs, name, fn = call.outs, call.op.name, quietly(kernel.fn)
    scratch = kernel.scratch_nbytes(call)

    def execute(state: State, *xs: ValueRecord) -> Any:
        if scratch:
            state.account.use_workspace(scratch)
        results = fn(call, *[x.array for x in xs])
        if len(outs) == 1:
            return adopt(state, results, outs[0], name)
        return tuple(
            adopt(state, r, a, name) for r, a in zip(results, outs, strict=True)
        )

    return Plan(call, execute, scratch_nbytes=scratch)
