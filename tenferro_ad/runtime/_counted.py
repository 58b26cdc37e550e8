"""What operations with bodies hold, where bytes are only counted.

The kernel of the row runs on symbolic values, as it does on others, so that what a step
holds is not modelled a second time. A loop of known length is run for a few steps; its
further steps allocate what the last of these does, and hold no more. Where values
decide, the largest branch counts, and one step of a loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, final

from .._aval import Aval
from ..ops import OPS, Body, Call, Region, evaluate
from ..storage import ValueRecord

if TYPE_CHECKING:
    from ._trace import Trace

STEPS: Final = 3  # by then every carry is a result of the body, like those after it


def counted(trace: Trace, call: Call, operands: Sequence[ValueRecord]) -> list[Any]:
    """The outputs of the call, everything inside counted by `trace.counting`."""
    kernel = call.op.kernel
    assert isinstance(kernel, Region)
    counts = trace.counting
    assert counts is not None
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


@final
class _Host:
    """What the kernel may ask for (see `ops.RegionHost`), on symbolic records.

    Attributes:
        begins: the allocations counted when each run of a body began.
    """

    def __init__(self, trace: Trace, call: Call) -> None:
        self._trace, self._call = trace, call
        self._asked = False
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
        """The largest branch; true once, for a loop."""
        if self._call.op.name == "cond":
            sizes = [_size(branch) for branch in self._call.branches]
            return sizes.index(max(sizes))
        self._asked = not self._asked
        return int(self._asked)

    def owned(self, outs: Sequence[Any], lent: Sequence[Any]) -> list[Any]:
        made: list[Any] = []
        for y in outs:
            shared = any(y is x for x in lent) or any(y is z for z in made)
            if shared or y.is_rootless or y.home is not None:
                y = self._trace.apply(OPS["accumulate"], (y,), ())
            made.append(y)
        return made


def _size(body: Body) -> int:
    """Bytes of everything that a body computes."""
    return sum(y.nbytes for eq in body.program.equations for y in eq.call.outs)
