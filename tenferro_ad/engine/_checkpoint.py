"""`ta.checkpoint`: run a function, keep its boundary, run it again in backward."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final, Literal

import optree

from .._ledger import BASE, STATE
from ..backends import CPU
from ..errors import InvalidArgumentError
from ..ops import Call, Equation, Program, key_of
from ..runtime import Cache, Taken
from ..storage import ValueRecord
from ..tape import RegionCall, digest, hold
from ._budget import (
    Division,
    balanced,
    bytes_of,
    candidates,
    chosen,
    held_compiled,
    held_eager,
)
from ._dispatch import (
    HANDLES,
    Chain,
    apply_region,
    chain_of,
    emit,
    enter_level,
    handles,
    leave_level,
    living,
    value_at,
)
from ._eager import EagerTensor
from ._levels import WholeRecord
from ._pytrees import flatten, need_callable
from ._trace import merged, traced


class RegionRecord(WholeRecord):
    """What handles inside a region link to; holds the program, no values but inputs.
    A variable used inside is an input of the region like any other value."""

    __slots__ = ("inputs", "known", "program")
    is_region = True

    def __init__(self) -> None:
        super().__init__()
        self.program = Program()
        # Inputs in order: record and what the levels outside know of it. `known` finds
        # an input again by its record; the inputs hold those records, so ids stay
        # unique.
        self.inputs: list[tuple[EagerTensor, ValueRecord, Chain]] = []
        self.known: dict[int, int] = {}

    def capture(self, record: ValueRecord, chain: Chain) -> int:
        """The variable of a value from outside; it becomes an input of the region."""
        found = self.known.get(id(record))
        if found is None:
            found = self.program.variable(record.aval)
            self.program.inputs.append(found)
            self.inputs.append((value_at(record, chain), record, chain))
            self.known[id(record)] = found
        return found


class RegionLevel:
    """Records every equation of the region, tracked or not; opaque from outside."""

    __slots__ = ("core", "digests", "outer")
    opaque: Final = True
    pulls: Final = False
    records_all: Final = True
    is_simple: Final = False
    watches: Final = False
    closed: Final = False

    def __init__(self, core: RegionRecord, outer: Any, verify: bool) -> None:
        self.core = core
        self.outer = outer
        self.digests: dict[int, bytes] | None = {} if verify else None

    def note(
        self,
        call: Call,
        nodes: list[int],
        records: tuple[ValueRecord, ...],
        chains: list[Chain],
        outs: list[ValueRecord],
        above: list[Chain],
    ) -> list[int]:
        core = self.core
        program = core.program
        ins = tuple(
            n if n >= 0 else core.capture(r, c)
            for n, r, c in zip(nodes, records, chains, strict=True)
        )
        made = tuple(program.variable(a) for a in call.outs)
        if self.digests is not None:
            self.digests[len(program.equations)] = digest(outs)
        program.equations.append(Equation(call, ins, made))
        core.has_select = core.has_select or call.is_select
        return list(made)


def checkpoint(
    f: Callable[..., Any],
    *,
    verify: Literal["bitwise"] | None = None,
    budget: int | str | None = None,
    boundaries: Literal["auto"] | None = None,
) -> Callable[..., Any]:
    """`f`, keeping only inputs and outputs of each call for backward.

        block = ta.checkpoint(lambda x: ta.sin(ta.sin(x)))
        g = ta.grad(lambda x: ta.sum(block(x)))(np.ones(3))

    Backward runs the region again from the retained inputs (closed-over values are
    inputs too); fresh buffers of that run are `CheckpointRecomputeOutput`s. Keyword
    arguments and non-tensor arguments are passed through.

    Args:
        f: any function of tensors and pytrees of tensors; must not depend on values
            that change between forward and backward.
        verify: "bitwise" compares every recomputed value with the forward pass.
        budget: bytes (a number, or text like "64 MiB") that a forward and a backward
            pass of `f` may hold: `f` is cut into as many regions as that needs, and no
            more is run again than that needs. With a loss of `f` outside, allow for its
            cotangents.
        boundaries: "auto" cuts `f` into about sqrt(n) regions for n places where few
            bytes cross.

    Raises:
        BudgetTooSmallError: before anything runs; `minimum` is a budget that works.

    Raises (in backward):
        CheckpointMismatchError: with `verify`, names the first operation that differs.

    Cost: no memory for interior values between forward and backward; one more forward
        run of the equations whose values rules read; `verify` hashes every value.
    """
    need_callable("checkpoint", f)
    if budget is not None or boundaries is not None:
        return _in_regions(f, budget, boundaries, verify)
    if verify not in (None, "bitwise"):
        raise InvalidArgumentError(
            operation="checkpoint",
            argument="verify",
            found=f"{verify!r}",
            fix='use "bitwise" or None',
        )

    @functools.wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is not None and state.trace.counting is None:
            return _traced_region(f, args, kwargs, verify)
        outer = state.level
        if outer is None:
            return f(*args, **kwargs)
        core = RegionRecord()
        leaves, treedef = flatten((args, kwargs))
        inner = []
        for x in leaves:
            if isinstance(x, EagerTensor):
                chain = living(chain_of(x), "checkpoint", "arguments")
                var = core.capture(x._record, chain)
                x = EagerTensor(hold(x._record), core, var, None)
            inner.append(x)
        verifies = verify is not None and state.trace is None
        level = RegionLevel(core, outer, verifies)
        inner_args, inner_kwargs = optree.tree_unflatten(treedef, inner)
        del inner
        before = STATE.get()
        try:
            enter_level(level)
            result = f(*inner_args, **inner_kwargs)
        finally:
            leave_level(before)
        del inner_args, inner_kwargs
        try:
            return _close(core, level, outer, result)
        finally:
            core.live = None  # values that escaped know no recording from here on

    return checkpointed


DIVISIONS: Final[Cache[list[Division]]] = Cache(64)


def _in_regions(
    f: Callable[..., Any], budget: Any, boundaries: Any, verify: Any
) -> Callable[..., Any]:
    """`f` cut into regions, by a budget or by number."""
    limit = None if budget is None else bytes_of(budget)
    for name, given, wrong in (
        ("verify", verify, verify is not None),
        ("boundaries", boundaries, boundaries not in (None, "auto")),
        ("boundaries", boundaries, boundaries is not None and limit is not None),
    ):
        if wrong:
            raise InvalidArgumentError(
                operation="checkpoint",
                argument=name,
                found=f"{given!r}" + ("" if limit is None else " beside a budget"),
                fix='give a budget, or `boundaries="auto"`, or `verify="bitwise"`',
            )

    @functools.wraps(f)
    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        state = STATE.get()
        if state.trace is None and state.level is None:
            return f(*args, **kwargs)
        leaves, treedef = flatten((args, kwargs))
        avals = [x.aval if isinstance(x, EagerTensor) else None for x in leaves]
        taken = Taken()
        metadata: dict[int, Any] = {}
        program, constants, out_def = traced(
            lambda args, kwargs: f(*args, **kwargs),
            leaves,
            avals,
            treedef,
            metadata,
            taken,
        )
        if not program.outputs:
            return optree.tree_unflatten(out_def, merged((), metadata))
        given = [x for x in leaves if isinstance(x, EagerTensor)] + constants
        tracked = tuple(
            x.dtype.kind in "fc" and (x.is_tracked or x.leaf is not None) for x in given
        )
        own = tuple(id(x._record) in taken.ids for x in given)
        make = balanced if limit is None else candidates
        tried = DIVISIONS.get(
            (key_of(program), make, tracked, own), lambda: make(program, tracked, own)
        )
        division = tried[0]
        if limit is not None:
            here = state.trace is None
            planning = not here and state.trace.counting is not None
            eager = held_eager(taken.nbytes)
            nbytes = eager if here or planning else held_compiled(tracked)
            division = chosen(tried, limit, nbytes)
            if here:
                mine = {
                    id(x._record): x.nbytes
                    for x, o in zip(given, own, strict=True)
                    if o
                }
                known = BASE.live_bytes - sum(mine.values())
                CPU.keep_within(known + limit - division.workspace)
        outs = division.run(given)
        return optree.tree_unflatten(out_def, merged(outs, metadata))

    return checkpointed


def _traced_region(
    f: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], verify: Any
) -> Any:
    """The region as a program of its own, and one equation of the trace outside."""
    if verify is not None:
        raise InvalidArgumentError(
            operation="checkpoint",
            argument="verify",
            found=f"{verify!r} in a traced function",
            fix="verify in eager mode, where there are values to compare",
        )
    leaves, treedef = flatten((args, kwargs))
    avals = [x.aval if isinstance(x, EagerTensor) else None for x in leaves]
    metadata: dict[int, Any] = {}
    program, constants, out_def = traced(
        lambda args, kwargs: f(*args, **kwargs), leaves, avals, treedef, metadata
    )
    given = [x for x in leaves if isinstance(x, EagerTensor)] + constants
    # Each produced variable is one output, however often it is returned; inputs that
    # are returned pass by unchanged.
    at = program.outputs
    made: dict[int, EagerTensor] = dict(zip(program.inputs, given, strict=True))
    made.update((v, HANDLES.literal(record)) for v, record in program.literals.items())
    produced = tuple(dict.fromkeys(v for v in at if v not in made))
    if produced:
        program.outputs = produced
        outs = apply_region(RegionCall(program), given)
        made.update(zip(produced, outs, strict=True))
    return optree.tree_unflatten(out_def, merged([made[v] for v in at], metadata))


def _close(core: RegionRecord, level: RegionLevel, outer: Any, result: Any) -> Any:
    """Turn the finished region into one equation of the levels outside."""
    outs, treedef = flatten(result)
    program = core.program
    at: list[int | None] = []
    for y in outs:  # what is no tensor passes by, as it does outside recordings
        is_tensor = isinstance(y, EagerTensor)
        chain = living(chain_of(y), "checkpoint", "f") if is_tensor else None
        at.append(chain[1] if chain is not None and chain[0] is core else None)
    # Each produced variable is one output of the region, however often it is returned;
    # inputs and captured values that are returned pass by unchanged.
    produced = list(
        dict.fromkeys(v for v in at if v is not None and v not in program.inputs)
    )
    program.outputs = tuple(produced)
    records = {v: y._record for v, y in zip(at, outs, strict=True) if v is not None}
    made: dict[int, EagerTensor] = {}
    if produced:
        call = RegionCall(program, level.digests)
        out_records = [records[v] for v in produced]
        chains = emit(
            outer,
            call,  # type: ignore[arg-type]
            tuple(r for _, r, _ in core.inputs),
            [c for _, _, c in core.inputs],
            out_records,
        )
        for r in out_records:
            hold(r)
        made = dict(zip(produced, handles(out_records, chains), strict=True))
    final: list[Any] = []
    for y, v in zip(outs, at, strict=True):
        if v is None:
            final.append(y)
        elif v in made:
            final.append(made[v])
        else:
            final.append(core.inputs[program.inputs.index(v)][0])
    return optree.tree_unflatten(treedef, final)
