"""Every row eager, traced and compiled: equal values and ledgers, over the samples.

Traced work allocates what eager work does, less dead and repeated equations; compiled
work allocates its outputs and at most one arena for each reason. Values of a trace are
bitwise those of eager work; a compiled kernel may meet operands in another layout and
round differently. (`ta.testing.check_op` checks the same.)
"""

from __future__ import annotations

from typing import Any

import pytest

import tenferro_ad as ta
from tenferro_ad.engine import _trace
from tenferro_ad.ops import OPS, evaluate
from tenferro_ad.runtime import DIRECT
from tenferro_ad.testing._modes import (
    check_traced_and_compiled,
    gradients,
    light,
    values,
)
from tests.ops.samples import Row, Sample, at, handle, load

ROWS = load()
every_row = pytest.mark.parametrize("name", list(OPS))


@every_row
def test_values_and_gradients_are_the_same_traced_and_compiled(name: str) -> None:
    row = ROWS[name]
    if row.keeps:
        assert light(row.differentiable())
    check_traced_and_compiled(row)


@every_row
def test_a_trace_allocates_and_copies_what_eager_work_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Event for event, before the passes that drop dead and repeated equations."""
    monkeypatch.setattr(_trace, "optimise", lambda program: program)
    row = ROWS[name]
    cases: list[tuple[Sample, Any]] = [(s, values) for s in light(row.samples)]
    cases += [(s, gradients) for s in light(row.differentiable())]
    for sample, work in cases:
        with at(name, sample):
            eager, traced = events(row, sample, work)
            assert (traced.allocations, traced.copies) == (
                eager.allocations,
                eager.copies,
            )


def events(row: Row, sample: Sample, work: Any) -> tuple[Any, Any]:
    """The ledgers of eager and of traced work."""
    xs = [handle(x) for x in sample.operands]
    with ta.ledger() as eager:
        work(row, sample, xs)
    traced = ta.trace(lambda xs: work(row, sample, xs), xs)
    given = [x._record for x in (*xs, *traced.constants)]
    with ta.ledger() as again:
        evaluate(traced.program, DIRECT, given)
    return eager, again
