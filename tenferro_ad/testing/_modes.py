"""Checks that an operation is the same eager, checkpointed, traced, compiled, and for
many examples at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .._ledger import ledger
from ..engine import (
    HANDLES,
    TracedProgram,
    as_tensor,
    checkpoint,
    compile,
    conj,
    grad,
    program_of,
    real,
    vjp,
)
from ..engine import sum as total_of
from ..ops import Call, by_loop, evaluate
from ..runtime import DIRECT, plan_of
from ._agree import (
    ProviderCalls,
    close,
    ensure,
    is_double,
    like,
    weights_for,
)
from ._numeric import Array
from ._samples import Row, Sample, as_tuple, at, handle, numpy_of

TOLERANCE = {"e": 2e-3, "f": 1e-5, "F": 1e-5, "d": 1e-12, "D": 1e-12}
Work = Callable[[Row, Sample, Sequence[Any]], list[Any]]


def check_checkpoint(row: Row) -> None:
    """A checkpoint changes no bit of values and gradients, and verifies."""
    for sample in row.differentiable():
        with at(row.name, sample):
            f, primals = row.function(sample)
            found = []
            for g in (f, checkpoint(f), checkpoint(f, verify="bitwise")):
                out, pull = vjp(g, *primals)
                ws = weights_for(row, sample, as_tuple(out))
                arrays = [*as_tuple(out), *pull(like(out, ws))]
                found.append([numpy_of(y).tobytes() for y in arrays])
            same = found[0] == found[1] == found[2]
            ensure(same, row, "checkpointed", "other bits than without a checkpoint")


# ---- traced and compiled -------------------------------------------------------------


def values(row: Row, sample: Sample, xs: Sequence[Any]) -> list[Any]:
    return list(as_tuple(row.apply(sample, xs)))


def gradients(row: Row, sample: Sample, xs: Sequence[Any]) -> list[Any]:
    """Of the sum of the squares of the outputs, for each tracked operand."""
    tracked = row.tracked(sample)

    def loss(*moving: Any) -> Any:
        given = list(xs)
        for i, x in zip(tracked, moving, strict=True):
            given[i] = x
        outs = [y for y in values(row, sample, given) if y.dtype.kind in "fc"]
        parts = [total_of(real(y * conj(y))) for y in outs]
        return sum(parts[1:], parts[0])

    numbers = tuple(range(len(tracked)))
    return list(grad(loss, numbers)(*[xs[i] for i in tracked]))


def light(samples: Iterable[Sample]) -> list[Sample]:
    found = list(samples)
    return [s for s in found if not s.heavy] or found


def check_traced_and_compiled(row: Row) -> None:
    """Values and gradients of a trace are those of eager work, bit by bit; those of a
    compiled program up to rounding. A trace allocates no more, and a compiled program
    what its plan says."""
    _same_in_all_modes(row, light(row.samples), values)
    samples = light(row.differentiable())
    if samples:
        _same_in_all_modes(row, samples, gradients)


def _same_in_all_modes(row: Row, samples: list[Sample], work: Work) -> None:
    operands = [[handle(x) for x in s.operands] for s in samples]

    def f(given: list[list[Any]]) -> list[list[Any]]:
        return [work(row, s, xs) for s, xs in zip(samples, given, strict=True)]

    with ledger(detail=False) as eager:
        wanted = f(operands)
    flat = [(s, y) for s, ys in zip(samples, wanted, strict=True) for y in ys]
    traced = program_of(f, operands)
    assert isinstance(traced, TracedProgram)
    given = [x._record for xs in operands for x in xs]
    given += [x._record for x in traced.constants]
    with ledger(detail=False) as second:
        outs = evaluate(traced.program, DIRECT, given)
    for (sample, y), record in zip(flat, outs, strict=True):
        with at(row.name, sample):
            seen, array = record.array, numpy_of(y)
            same = np.array_equal(seen, array, equal_nan=seen.dtype.kind in "fc")
            ensure(same, row, "traced", f"other bits: {seen!r} for {array!r}")
    for mine, theirs in (
        (second.allocations, eager.allocations),
        (second.copies, eager.copies),
    ):
        ensure(mine <= theirs, row, "traced", f"{dict(mine)} for {dict(theirs)}")
    compiled = compile(f)
    plan = compiled.plan(operands)
    for _ in range(2):
        with ledger(detail=False) as third:
            found = compiled(operands)
        counts = dict(third.allocations), third.copies.total()
        planned = plan.allocations, sum(step.copies for step in plan.steps)
        ensure(counts == planned, row, "compiled", f"{counts}, planned {planned}")
    replayed = [y for ys in found for y in ys]
    for (sample, y), z in zip(flat, replayed, strict=True):
        with at(row.name, sample):
            a, b = numpy_of(z), numpy_of(y)
            ensure(a.dtype == b.dtype, row, "compiled", f"dtype {a.dtype}")
            tolerance = TOLERANCE.get(a.dtype.char, 0.0)
            close(row, "compiled", "a result", a, b, tolerance)


# ---- many examples -------------------------------------------------------------------

Vary = Callable[[Row, int, Array, int], Array]


def varied(row: Row, i: int, x: Array, k: int) -> Array:
    """Elements moved around: as far from kinks and out of range as the sample."""
    return np.roll(x, k, -1) if x.ndim and x.size else x


def patterns(n: int) -> list[tuple[bool, ...]]:
    """Every operand batched, and each alone."""
    alone = [tuple(k == i for k in range(n)) for i in range(n)]
    return [(True,) * n, *(alone if n > 1 else [])]


def examples(row: Row, sample: Sample, i: int, size: int, vary: Vary) -> Array:
    """Values for operand i, the sample's own among them: a stack of arrays as good as
    it, whose batch axis is not the slowest in memory."""
    x = sample.operands[i]
    stack = [x, *[vary(row, i, x, k) for k in range(1, size)]]
    found = np.stack(stack, -1) if size else np.zeros((*x.shape, 0), x.dtype)
    return np.moveaxis(found, -1, 0)


def operands_of(
    row: Row, sample: Sample, size: int, pattern: tuple[bool, ...], vary: Vary
) -> tuple[Call, list[Array], list[Any]]:
    """The call, and its operands, some of them with a batch, as arrays and values."""
    avals = tuple(handle(x).aval for x in sample.operands)
    call = plan_of(row.op, avals, sample.params).call
    arrays = [
        examples(row, sample, i, size, vary) if b else x
        for i, (x, b) in enumerate(zip(sample.operands, pattern, strict=True))
    ]
    given = [
        as_tensor(a) if b else handle(a) for a, b in zip(arrays, pattern, strict=True)
    ]
    return call, arrays, given


def check_batching(row: Row, vary: Vary = varied) -> None:
    """The batching rule gives the values of a loop over the examples."""
    for sample in row.samples:
        for pattern in patterns(len(sample.operands)):
            for size in (2 if sample.heavy else 3, 1):
                # Examples that do not belong together give no numbers, in a loop too.
                with at(row.name, sample), np.errstate(all="ignore"):
                    _compare_with_loop(row, sample, size, pattern, vary)


def _compare_with_loop(
    row: Row, sample: Sample, size: int, pattern: tuple[bool, ...], vary: Vary
) -> None:
    prop = "many examples"
    call, arrays, given = operands_of(row, sample, size, pattern, vary)
    outs = call.batch(HANDLES, size, given, pattern)
    tol = 1e-12 if is_double(row, sample) else 2e-5
    for i in range(size):
        one = [
            handle(np.array(a[i], order="C")) if b else handle(a)
            for a, b in zip(arrays, pattern, strict=True)
        ]
        wanted = as_tuple(row.apply(sample, one))
        for y, out, w in zip(outs, call.outs, wanted, strict=True):
            form = (y.aval.shape, y.aval.dtype)
            ensure(form == ((size, *out.shape), out.dtype), row, prop, f"{form}")
            what = f"example {i} of {size} (batched: {pattern})"
            close(row, prop, what, numpy_of(y)[i], numpy_of(w), tol)


def check_no_examples(row: Row, vary: Vary = varied) -> None:
    """No examples give outputs without examples."""
    sample = row.samples[0]
    pattern = patterns(len(sample.operands))[-1]
    call, _, given = operands_of(row, sample, 0, pattern, vary)
    outs = call.batch(HANDLES, 0, given, pattern)
    for y, wanted in zip(outs, row.expected(sample), strict=True):
        form = (y.shape, y.dtype)
        ok = form == ((0, *wanted.shape), wanted.dtype)
        ensure(ok, row, "no examples", f"{form}")


def check_batch_is_no_loop(
    row: Row,
    calls: ProviderCalls,
    vary: Vary = varied,
    copies: frozenset[str] = frozenset(),
) -> None:
    """As many outputs are made for five examples as for two, and no copy."""
    if row.op.batch is by_loop:
        return
    for sample in row.samples:
        for pattern in patterns(len(sample.operands)):
            counts = []
            for size in (2, 5):
                if sample.heavy:
                    continue
                with at(row.name, sample), np.errstate(all="ignore"):
                    call, _, given = operands_of(row, sample, size, pattern, vary)
                    calls.reset()
                    with ledger(detail=False) as led:
                        outs = call.batch(HANDLES, size, given, pattern)
                    del outs
                    counts.append(calls.total)
                    seen = set(led.copies)
                    ensure(seen <= copies, row, "many examples", f"copies {seen}")
            with at(row.name, sample):
                what = f"{counts} outputs for 2 and 5 examples (batched: {pattern})"
                ensure(len(set(counts)) <= 1, row, "many examples", what)


__all__ = [
    "check_batch_is_no_loop",
    "check_batching",
    "check_checkpoint",
    "check_no_examples",
    "check_traced_and_compiled",
    "examples",
    "operands_of",
    "patterns",
    "varied",
]
