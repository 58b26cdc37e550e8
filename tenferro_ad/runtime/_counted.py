"""What eager work would allocate and hold, counted while it is traced.

Operations with bodies run the kernel of their row on symbolic values, as it runs on
others, so that what a step holds is not modelled a second time. A loop of known length
is run for a few steps; its further steps allocate what the last of these does, and hold
no more. Where values decide, the branch that holds most counts, and a few steps of a
loop.

Data from outside comes in for real, so that it can be read; its bytes count here, for
as long as eager work would hold them, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from .._aval import Aval
from .._ledger import STATE, TRANSFER_DESTINATION, State
from ..ops import OPS, Body, Call, Region, evaluate
from ..storage import ValueRecord, transfer

if TYPE_CHECKING:
    from ._trace import Trace

STEPS: Final = 3  # by then every carry is a result of the body, like those after it


class Counting:
    """The account of records whose bytes are only counted: what eager work would
    allocate and hold at each moment.

    Attributes:
        live, peak: bytes of values now, and most at once.
        workspace: of the kernel that needs most.
        counts: allocations by reason.
        supplied: what stands for data from outside, by the identity of its record.
    """

    __slots__ = ("counts", "live", "peak", "supplied", "workspace")

    def __init__(self) -> None:
        self.live = self.peak = self.workspace = 0
        self.counts: Counter[int] = Counter()
        self.supplied: dict[int, ValueRecord] = {}

    def allocated(self, nbytes: int, reason: int) -> None:
        """One more root."""
        self.counts[reason] += 1
        self.live += nbytes
        self.peak = max(self.peak, self.live)

    def release(self, nbytes: int) -> None:
        """One root less."""
        self.live -= nbytes

    def computes(self, nbytes: int) -> None:
        """A kernel runs with so much workspace."""
        self.workspace = max(self.workspace, nbytes)


# ---- data from outside ---------------------------------------------------------------


@final
class Taken:
    """Data from outside that came in while a trace was open.

    Attributes:
        ids: identities of the records, for as long as these live.
        nbytes: of all of them.
    """

    __slots__ = ("ids", "nbytes")

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.nbytes = 0


@final
class _Supply:
    """The account of one value from outside whose bytes are counted elsewhere: when the
    value is over, so is what holds its place there."""

    __slots__ = ("_counting", "at")
    slow: Final = False

    def __init__(self, counting: Counting) -> None:
        self._counting = counting
        self.at = 0

    def allocated(self, reason: int, nbytes: int) -> None:
        """Its place is counted."""

    def copied(self, reason: int, operation: str, aval: Any) -> None:
        """Plans say nothing of copies."""

    def release(self, nbytes: int) -> None:
        self._counting.supplied.pop(self.at, None)


def brought(source: Any, aval: Aval, operation: str) -> ValueRecord:
    """`transfer`, as the open traces see it.

    Raises: as `transfer`. Cost: as `transfer`.
    """
    state = STATE.get()
    trace = outer = state.trace
    while outer is not None and outer.counting is None:
        outer = outer.parent
    if outer is None:
        record = transfer(source, aval, operation)
    else:
        supply = _Supply(outer.counting)
        account: Any = supply
        token = STATE.set(State(account, state.reason, state.level, trace))
        try:
            record = transfer(source, aval, operation)
        finally:
            STATE.reset(token)
        supply.at = id(record)
        place = outer.fresh_record(aval, TRANSFER_DESTINATION)
        place.tokens.append(None)  # the value that it stands for holds it
        outer.counting.supplied[supply.at] = place
    while trace is not None and trace.counting is None:
        trace.taken.ids.add(id(record))
        trace.taken.nbytes += aval.nbytes
        trace = trace.parent
    return record


# ---- operations with bodies ----------------------------------------------------------


def counted(trace: Trace, call: Call, operands: Sequence[ValueRecord]) -> list[Any]:
    """The outputs of the call, everything inside counted by `trace.counting`."""
    kernel = call.op.kernel
    assert isinstance(kernel, Region)
    counts = trace.counting
    assert counts is not None
    if call.op.name == "cond":
        return _largest(trace, call, operands, kernel.fn)
    host = _Host(trace, call)
    length = getattr(call, "length", 0)
    if length <= STEPS:
        return kernel.fn(host, call, operands)
    params = tuple(
        [
            STEPS if name == "length" else value
            for name, value in zip(call.op.params, call.params, strict=True)
        ]
    )
    outs = kernel.fn(host, Call(call.op, call.ins, call.outs, params), operands)
    last, before = host.begins[-1], host.begins[-2]
    for reason, n in (last - before).items():
        counts.counts[reason] += n * (length - STEPS)
    return outs


def _largest(
    trace: Trace,
    call: Call,
    operands: Sequence[ValueRecord],
    run: Callable[..., list[Any]],
) -> list[Any]:
    """The outputs of the branch that holds most while it runs."""
    counts, equations = trace.counting, trace.program.equations
    assert counts is not None
    found = []
    for k in range(len(call.branches)):
        end = len(equations)
        before = counts.counts.copy(), counts.peak, counts.workspace
        counts.peak = counts.live
        run(_Host(trace, call, k), call, operands)
        found.append((counts.peak, counts.counts.total()))
        counts.counts, counts.peak, counts.workspace = before
        del equations[end:]
    best = found.index(max(found))
    return run(_Host(trace, call, best), call, operands)


@final
class _Host:
    """What the kernel may ask for (see `ops.RegionHost`), on symbolic records.

    Attributes:
        begins: the allocations counted when each run of a body began.
    """

    def __init__(self, trace: Trace, call: Call, branch: int | None = None) -> None:
        self._trace, self._call, self._branch = trace, call, branch
        self._asked = 0
        self.begins: list[Counter[int]] = []

    def run(self, body: Body, inputs: Sequence[Any]) -> list[Any]:
        assert self._trace.counting is not None
        self.begins.append(self._trace.counting.counts.copy())
        return evaluate(body.program, self._trace, inputs)

    def output(self, j: int) -> ValueRecord:
        return self._trace.fresh_record(self._call.outs[j])

    def put(self, target: ValueRecord, i: int, value: ValueRecord) -> None:
        """Nothing is allocated."""

    def at(self, x: ValueRecord, i: int, aval: Aval) -> ValueRecord:
        return self._trace.lent(aval)

    def number(self, x: ValueRecord) -> int:
        """The branch; for a loop, whether it goes on."""
        if self._branch is not None:
            return self._branch
        self._asked += 1
        return int(self._asked <= STEPS)

    def owned(self, outs: Sequence[Any], lent: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        for y in outs:
            shared = any(y is x for x in lent) or any(y is z for z in made)
            if shared or y.is_rootless or y.home is not None:
                y = self._trace.apply(OPS["accumulate"], (y,), ())
            made.append(y)
        return made
