"""Every row eager, traced and compiled: equal values and ledgers, over the samples.

Traced work allocates what eager work does, less dead and repeated equations; compiled
work allocates its outputs and at most one arena for each reason. Values of a trace are
bitwise those of eager work; a compiled kernel may meet operands in another layout and
round differently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.ops import OPS, evaluate
from tenferro_ad.runtime import DIRECT
from tests.ops.samples import Row, Sample, as_tuple, at, handle, load, numpy_of

ROWS = load()
TOLERANCE = {"e": 2e-3, "f": 1e-5, "F": 1e-5, "d": 1e-12, "D": 1e-12}

every_row = pytest.mark.parametrize("name", list(OPS))


def values(row: Row, sample: Sample, xs: list[Any]) -> list[Any]:
    return list(as_tuple(row.apply(sample, xs)))


def gradients(row: Row, sample: Sample, xs: list[Any]) -> list[Any]:
    """Of the sum of the squares of the outputs, for each tracked operand."""
    tracked = row.tracked(sample)

    def loss(*moving: Any) -> Any:
        given = list(xs)
        for i, x in zip(tracked, moving, strict=True):
            given[i] = x
        outs = [y for y in values(row, sample, given) if y.dtype.kind in "fc"]
        parts = [ta.sum(ta.real(y * ta.conj(y))) for y in outs]
        return sum(parts[1:], parts[0])

    numbers = tuple(range(len(tracked)))
    return list(ta.grad(loss, numbers)(*[xs[i] for i in tracked]))


def equal(seen: Any, wanted: Any) -> None:
    a, b = numpy_of(seen), numpy_of(wanted)
    assert (a.dtype, a.shape) == (b.dtype, b.shape)
    if a.dtype.kind not in "fc":
        assert np.array_equal(a, b)
        return
    finite = np.isfinite(b)
    scale = max(1.0, float(np.max(np.abs(b[finite]), initial=0.0)))
    assert np.array_equal(a[~finite], b[~finite], equal_nan=True)
    gap = float(np.max(np.abs(a[finite] - b[finite]), initial=0.0))
    assert gap <= TOLERANCE[a.dtype.char] * scale, f"{a!r}\n  instead of\n{b!r}"


def check(row: Row, samples: list[Sample], work: Callable[..., list[Any]]) -> None:
    """All samples as one function: eager, traced, compiled."""
    operands = [[handle(x) for x in s.operands] for s in samples]

    def f(given: list[list[Any]]) -> list[list[Any]]:
        return [work(row, s, xs) for s, xs in zip(samples, given, strict=True)]

    with ta.ledger() as eager:
        wanted = f(operands)
    traced = ta.trace(f, operands)
    given = [x._record for xs in operands for x in xs]
    given += [x._record for x in traced.constants]
    with ta.ledger() as second:
        outs = evaluate(traced.program, DIRECT, given)
    at_out = iter(outs)
    for sample, ys in zip(samples, wanted, strict=True):
        with at(row.name, sample):
            for y in ys:
                seen = next(at_out).array
                assert np.array_equal(
                    seen, numpy_of(y), equal_nan=seen.dtype.kind in "fc"
                )
    for reason, count in second.allocations.items():
        assert count <= eager.allocations[reason], reason
    assert second.copies == eager.copies or second.copies < eager.copies
    compiled = ta.compile(f)
    plan = compiled.plan(operands)
    for _ in range(2):
        with ta.ledger() as third:
            found = compiled(operands)
        assert dict(third.allocations) == plan.allocations
        assert third.copies.total() == sum(step.copies for step in plan.steps)
    for sample, ys, zs in zip(samples, found, wanted, strict=True):
        with at(row.name, sample):
            for y, z in zip(ys, zs, strict=True):
                equal(y, z)


def light(samples: Iterable[Sample]) -> list[Sample]:
    found = list(samples)
    return [s for s in found if not s.heavy] or found


@every_row
def test_values_are_the_same_traced_and_compiled(name: str) -> None:
    row = ROWS[name]
    check(row, light(row.samples), values)


@every_row
def test_gradients_are_the_same_traced_and_compiled(name: str) -> None:
    row = ROWS[name]
    samples = light(row.differentiable())
    if row.keeps:
        assert samples
        check(row, samples, gradients)
