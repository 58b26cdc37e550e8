"""The CPU backend: NumPy memory, NumPy and SciPy kernels.

One allocation domain. `small` and `allocate` are the hand-out: each call is one
physical allocation. `small` is NumPy's own `empty` unless a limit is set, so that the
hot path pays nothing for the seam; tests count calls by replacing both. Large buffers
come from a pool and return to it, because fresh pages cost as much as the arithmetic
that fills them; pool bytes are reported apart from live bytes.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import BASE, State
from ..errors import AllocationLimitError, UnsupportedError
from ..ops import (
    Call,
    Elementwise,
    ElementwiseOp,
    Library,
    Move,
    Op,
    View,
    Write,
)
from ..storage import (
    POOLED_FROM,
    ValueRecord,
    adopt,
    allocate,
    duplicate,
)
from ._numpy_printer import Printed, print_numpy
from ._plan import Plan, compiled, move_plan
from ._quiet import quietly

Array = np.ndarray[Any, Any]
_SPARE: Final = 2 * POOLED_FROM  # for small roots, until a large one comes or goes
_GRAIN: Final = 64  # sizes in the pool: multiples of a cache line


@final
class CpuDevice:
    """Host memory and kernels. `name` is for discovery; compare devices by identity."""

    def __init__(self, name: str = "cpu") -> None:
        self.name = name
        # Hand-out below `POOLED_FROM` bytes: `small(shape, dtype)`.
        self.small: Callable[[tuple[int, ...], Any], Array] = np.empty
        self.pool_limit = 1 << 31
        self.pool_bytes = 0
        # Live and pooled bytes together, while a budget is in force (`keep_within`).
        self._ceiling: int | None = None
        self._limit: int | None = None
        self._pool: dict[int, list[Array]] = {}
        # Functions over arrays in pooled memory, for runs that get that memory again;
        # forgotten when it is trimmed.
        self.remembered: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return f"device({self.name!r})"

    # -- memory --------------------------------------------------------------------

    @property
    def limit(self) -> int | None:
        """Most live bytes that `allocate` will hand out, or None."""
        return self._limit

    @limit.setter
    def limit(self, nbytes: int | None) -> None:
        self._limit = nbytes
        self.small = np.empty if nbytes is None else self._limited

    def _limited(self, shape: tuple[int, ...], dtype: Any) -> Array:
        self._check_limit(math.prod(shape) * dtype.itemsize)
        return np.empty(shape, dtype)

    def allocate(self, shape: tuple[int, ...], dtype: Any, nbytes: int) -> Array:
        """Unwritten memory for one root, from the pool if it has some.

        Raises:
            AllocationLimitError: `limit` would be passed; nothing happened.
        """
        if self._limit is not None:
            self._check_limit(nbytes)
        return np.ndarray(shape, dtype, self._take(nbytes))

    def _take(self, nbytes: int) -> Array:
        size = -(-nbytes // _GRAIN) * _GRAIN
        held = self._pool.get(size)
        if held:
            try:
                raw = held.pop()
            except IndexError:
                return np.empty(size, np.uint8)
            self.pool_bytes -= size
            return raw
        if self._ceiling is not None:
            self._make_room(size, self._ceiling)
        return np.empty(size, np.uint8)

    def keep_within(self, nbytes: int) -> None:
        """Let live and pooled bytes together stay within `nbytes` from now on: pooled
        memory that fits nothing goes back to the operating system. This ends when live
        bytes alone are more, or with `trim`.

        Cost: constant.
        """
        self._ceiling = nbytes

    def _make_room(self, size: int, ceiling: int) -> None:
        if BASE.live_bytes + size > ceiling:
            self._ceiling = None
            return
        for held in list(self._pool):
            while BASE.live_bytes + self.pool_bytes + size > ceiling:
                blocks = self._pool.get(held)
                if not blocks:
                    break
                self.pool_bytes -= blocks.pop().nbytes
                self.remembered.clear()

    def scratch(self, aval: Aval) -> Array:
        """Workspace of a kernel: no value, no event; return it with `give_back`."""
        if aval.nbytes < POOLED_FROM:
            return np.empty(aval.shape, aval.dtype)
        return np.ndarray(aval.shape, aval.dtype, self._take(aval.nbytes))

    def adopted(self, nbytes: int) -> None:
        """A library call allocated `nbytes` for a root: seen here like a hand-out."""
        if self._limit is not None:
            self._check_limit(nbytes)

    def give_back(self, buffer: Array) -> None:
        """A released root of at least `POOLED_FROM` bytes returns to the pool."""
        if buffer.nbytes < POOLED_FROM:
            return
        raw = buffer.base if buffer.base is not None else buffer
        if raw.dtype != np.uint8 or raw.ndim != 1 or raw.nbytes % _GRAIN:
            return  # adopted from a library: its own allocator takes it back
        if self.pool_bytes + raw.nbytes > self.pool_limit:
            self.trim()
        self._pool.setdefault(raw.nbytes, []).append(raw)
        self.pool_bytes += raw.nbytes
        if self._ceiling is not None:
            self._make_room(_SPARE, self._ceiling)

    def drain(self) -> None:
        """Nothing runs on after an eager operation here: no wait."""

    def trim(self) -> None:
        """Give the pool's memory back to the operating system."""
        self.remembered.clear()
        self._pool.clear()
        self.pool_bytes = 0
        self._ceiling = None

    def write(self, target: Array, source: Any) -> None:
        """Copy host bytes into `target`; called by the copy doors only."""
        np.copyto(target, source)

    def _check_limit(self, nbytes: int) -> None:
        assert self._limit is not None
        if BASE.live_bytes + nbytes > self._limit:
            raise AllocationLimitError(
                operation="allocate",
                argument="nbytes",
                engine=self.name,
                nbytes=nbytes,
                limit=self._limit,
                found=f"{nbytes} bytes with {BASE.live_bytes} live of {self._limit}",
                fix="free values, checkpoint a region, or raise the limit",
            )

    # -- kernels -------------------------------------------------------------------

    def supports(self, op: Op) -> bool:
        return isinstance(op.kernel, Elementwise | Write | View | Library | Move)

    def plan(self, op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]) -> Plan:
        """Infer once, choose the kernel once; replays only follow the plan.

        Raises:
            what the row's `infer` raises for bad shapes, dtypes or parameters.
        """
        call = infer_call(op, ins, params, self)
        kernel = op.kernel
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
        raise UnsupportedError(
            operation=op.name,
            argument="kernel",
            found=f"kernel kind `{type(kernel).__name__}` on `{self.name}`",
            fix="use another device for this operation",
        )


CPU: Final = CpuDevice()


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
    outs, name, fn = call.outs, call.op.name, kernel.fn
    scratch = kernel.scratch_nbytes(call)
    if len(outs) == 1 and not call.op.variadic:
        source = kernel.source(call)
        run, fresh = _functions(call, fn, source)
        into, needed = _adding(call, fn, scratch), scratch + call.out.nbytes
        if kernel.add is not None:
            into, needed = _adding_in_place(call, kernel.add, scratch), scratch
        plan = Plan(
            call,
            run=run,
            source=source,
            fresh=fresh,
            into=into,
            scratch_nbytes=scratch,
            into_nbytes=needed,
            layout=kernel.layout_nbytes,
        )
        if kernel.check is not None:
            plan.put_before(kernel.check)
        return plan
    single, fn = len(outs) == 1, quietly(fn)

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
