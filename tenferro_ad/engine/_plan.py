"""`ta.plan`: what a forward and a backward pass would hold, from shapes alone.

The step runs on symbolic values through the very code that eager work runs through, so
what is retained, when it dies and what is written over are not modelled a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import optree

from .._aval import Aval
from .._ledger import (
    ALLOCATION_REASONS,
    OPERATION_OUTPUT,
    STATE,
    TRANSFER_DESTINATION,
    AllocationReason,
    State,
)
from ..errors import InvalidArgumentError
from ..ops import OPS, Program
from ..runtime import Counting, Trace, direct
from ..tape import Retained
from ._eager import EagerTensor, constant
from ._make import as_tensor
from ._pytrees import flatten, need_callable, zeros_for
from ._trace import aval_like, traced
from ._transforms import Recording


@final
@dataclass(frozen=True, slots=True)
class Plan:
    """What one forward and one backward pass of a function hold.

    Attributes:
        peak_bytes: most bytes alive at once, of what the passes themselves allocate.
        workspace_bytes: of the kernel that needs most; it comes on top.
        retained_bytes: of the memory that is kept between the passes; memory that
            several values share counts once, and so do inputs.
        retained: what is kept between the passes: value, operation, shape, bytes.
        allocations: by reason, in both passes.
        recomputed: equations that checkpoints run again.
    """

    peak_bytes: int
    workspace_bytes: int
    retained_bytes: int
    retained: tuple[Retained, ...]
    allocations: dict[AllocationReason, int]
    recomputed: int

    def __str__(self) -> str:
        lines = [f"peak {self.peak_bytes} bytes, {self.recomputed} equations run again"]
        for reason, n in self.allocations.items():
            lines.append(f"  {reason.value}: {n} allocations")
        for r in self.retained:
            lines.append(
                f"  keeps {r.value} of {r.operation}: {r.dtype}{list(r.shape)}, "
                f"{r.nbytes} bytes"
            )
        return "\n".join(lines)


def plan(f: Callable[..., Any], *specs: Any) -> Plan:
    """What a forward and a backward pass of `f` would retain, allocate and hold.

        made = ta.plan(lambda w: ta.sum(ta.tanh(w)), ta.Spec((1000,), ta.float64))
        assert made.retained_bytes == 8000

    Args:
        f: a function of tensors and pytrees of tensors.
        specs: for each positional argument a `Spec`, a tensor or an array, or a pytree
            of them. Floating-point ones are differentiated, and so are variables that
            `f` closes over.

    Raises:
        TracedConversionError: Python control flow depends on values.
        NoRuleError: an operation has no reverse rule.
        InvalidArgumentError: `f` returns no tensor with a derivative.

    Cost: nothing is computed; time for each operation. NumPy arrays that `f` takes in
        are copied, as in a run, but no ledger sees it.
    """
    need_callable("plan", f)
    leaves, in_def = flatten(specs)
    avals = [aval_like(x) for x in leaves]
    tracked = [a is not None and a.dtype.kind in "fc" for a in avals]

    def called(*leaves: Any) -> Any:
        return f(*optree.tree_unflatten(in_def, leaves))

    return planned(called, leaves, avals, tracked)


def planned(
    f: Callable[..., Any],
    leaves: Sequence[Any],
    avals: Sequence[Aval | None],
    tracked: Sequence[bool],
    *,
    own: Sequence[bool] = (),
    forward: bool = False,
) -> Plan:
    """`plan` for leaves of which some are symbolic (those with an aval), and some of
    these differentiated.

    Args:
        own: leaves that the passes brought in themselves: their bytes count.
        forward: the result may depend on no differentiated leaf; there is no backward
            pass then.
    """
    state = STATE.get()
    counting = Counting()
    trace = Trace(state.trace, counting)
    token = STATE.set(State(state.account, OPERATION_OUTPUT, None, trace))
    try:
        rec = Recording("plan")
        rec.level.watches = True
        given = []
        x: Any = None
        for x, aval, mine, counts in zip(
            leaves, avals, tracked, own or [False] * len(leaves), strict=True
        ):
            if counts and aval is not None:
                x = constant(trace.fresh_record(aval, TRANSFER_DESTINATION))
            elif aval is not None:
                x = constant(trace.input(aval))
            given.append(rec.leaves(x, "specs")[0] if mine else x)
        del x
        return _passes(f, given, rec, trace, counting, forward=forward)
    finally:
        STATE.reset(token)
        trace.close()


def passes_of(
    f: Callable[..., Any], avals: Sequence[Aval], tracked: Sequence[bool]
) -> Program:
    """One forward and one backward pass as a program: results and cotangents (zeros
    where no result depends on what is differentiated)."""

    def passes(*xs: Any) -> Any:
        rec = Recording("plan")
        given, nodes = list(xs), {}
        for k, mine in enumerate(tracked):
            if mine:
                given[k], (nodes[k],), _ = rec.leaves(xs[k], "specs")
        outs = [as_tensor(y) for y in flatten(rec.call(f, given, {}))[0]]
        given.clear()
        seeds = _seeds(rec, outs)
        found = rec.cotangents(seeds, "auto")
        cts = [found[n] if n in found else zeros_for(xs[k]) for k, n in nodes.items()]
        return [rec.outside(y) for y in outs], cts

    leaves = list(range(len(avals)))
    return traced(passes, leaves, avals, flatten(tuple(leaves))[1])[0]


def _seeds(rec: Recording, outs: Sequence[EagerTensor]) -> dict[int, EagerTensor]:
    """A cotangent of ones for each output that has one."""
    seeds: dict[int, EagerTensor] = {}
    for y in outs:
        node = rec.node(y)
        if node is not None and node not in seeds:
            ones = direct()[OPS["full"]](y.shape, y.dtype, 1, y.device)
            seeds[node] = constant(ones)
    return seeds


def _passes(
    f: Any,
    given: list[Any],
    rec: Recording,
    trace: Trace,
    counting: Counting,
    *,
    forward: bool,
) -> Plan:
    outs = [as_tensor(y) for y in flatten(rec.call(f, given, {}))[0]]
    given.clear()
    retained = tuple(rec.core.retained())
    retained_bytes = rec.core.retained_nbytes
    seeds = _seeds(rec, outs)
    if seeds:
        rec.cotangents(seeds, "auto")
    elif not forward:
        raise InvalidArgumentError(
            operation="plan",
            argument="f",
            found="a function whose result depends on no differentiable input",
            fix="give floating-point specs, and return what is computed from them",
        )
    recomputed = sum(eq.recompute for eq in trace.program.equations)
    return Plan(
        counting.peak,
        counting.workspace,
        retained_bytes,
        retained,
        {ALLOCATION_REASONS[r]: n for r, n in sorted(counting.counts.items())},
        recomputed,
    )
