"""Batching rules of every row: the same values as a Python loop over the examples.

Over the samples beside this file: every operand batched, and each alone, with the batch
in a layout of its own. A row without a rule fails, and so does a loop that is not
listed here.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS, by_loop
from tenferro_ad.testing import _modes
from tenferro_ad.testing._agree import ProviderCalls
from tests.ops.samples import (
    Row,
    Sample,
    as_tuple,
    at,
    close,
    handle,
    is_double,
    load,
    numpy_of,
)

ROWS = load()
Array = np.ndarray[Any, Any]

batched_rows = pytest.mark.parametrize("name", [n for n in OPS if OPS[n].args])
# Rows that no kernel computes for many examples at once.
LOOPS = {"mask_indices"}
# Rows that duplicate where they must, as they do without a batch.
COPIES = {n: {"ExplicitDuplicate"} for n in ("reshape", "duplicate")}
# Names of operands that are functions of others: nothing to vary by itself.
FACTORED = {"lu", "rows", "top"}


def test_every_row_with_operands_has_a_rule() -> None:
    assert [n for n, op in OPS.items() if op.args and op.batch is None] == []
    assert {n for n, op in OPS.items() if op.batch is by_loop} == LOOPS


# ---- examples ------------------------------------------------------------------------


def scaled(x: Array, k: int) -> Array:
    """Another matrix of the same structure."""
    return np.asarray(x * (1 + k / 8), x.dtype)


VARIANTS: dict[tuple[str, str], Any] = {
    ("cholesky", "x"): scaled,
    ("searchsorted", "x"): lambda x, k: np.sort(np.asarray(x * (k + 1) / 3, x.dtype)),
}


def vary(row: Row, i: int, x: Array, k: int) -> Array:
    """A further example of operand i."""
    own = VARIANTS.get((row.name, row.argument(i)))
    return _modes.varied(row, i, x, k) if own is None else own(x, k)


def examples(row: Row, sample: Sample, i: int, size: int) -> Array:
    return _modes.examples(row, sample, i, size, vary)


@batched_rows
def test_values_of_a_loop(name: str) -> None:
    _modes.check_batching(ROWS[name], vary)


@batched_rows
def test_no_examples(name: str) -> None:
    _modes.check_no_examples(ROWS[name], vary)


@batched_rows
def test_operations_do_not_grow_with_the_batch(
    name: str, provider_calls: ProviderCalls
) -> None:
    """As many outputs are made for five examples as for two: no loop, and no copy that
    the program did not ask for."""
    copies = frozenset(COPIES.get(name, ()))
    _modes.check_batch_is_no_loop(ROWS[name], provider_calls, vary, copies)


Values = list[Any]


def gradients(
    apply: Any, values: Values, at: tuple[int, ...], weights: list[Array]
) -> Values:
    """Gradients of a weighted sum of outputs for the operands at some positions."""

    def loss(moving: Values) -> Any:
        xs = list(values)
        for i, v in zip(at, moving, strict=True):
            xs[i] = v
        terms = [
            ta.sum(ta.real(y) * w) for y, w in zip(apply(xs), weights, strict=True)
        ]
        return sum(terms[1:], start=terms[0])

    found: Values = ta.grad(loss)([values[i] for i in at])
    return found


def compare_gradients(row: Row, sample: Sample) -> None:
    tracked = row.tracked(sample)
    pattern = tuple(i in tracked for i in range(len(sample.operands)))
    call, arrays, values = _modes.operands_of(row, sample, 2, pattern, vary)
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.5, 1.0, (2, *out.shape)) for out in call.outs]
    found = gradients(
        lambda xs: call.batch(HANDLES, 2, xs, pattern), values, tracked, weights
    )
    for k in range(2):
        one = [
            handle(np.array(a[k], order="C")) if b else handle(a)
            for a, b in zip(arrays, pattern, strict=True)
        ]
        own = [w[k] for w in weights]
        wanted = gradients(
            lambda xs: as_tuple(row.apply(sample, xs)), one, tracked, own
        )
        for g, h in zip(found, wanted, strict=True):
            close(numpy_of(g)[k], numpy_of(h), 1e-9)


@batched_rows
def test_gradients_of_a_loop(name: str) -> None:
    """Rules differentiate: the gradient of each example is its own."""
    row = ROWS[name]
    if FACTORED & {*row.op.args}:
        return
    for sample in row.differentiable():
        if is_double(row, sample) and not sample.heavy:
            with at(name, sample), np.errstate(all="ignore"):
                compare_gradients(row, sample)


# ---- through `vmap` ------------------------------------------------------------------


def smooth_samples(row: Row) -> list[Sample]:
    """Small samples in double precision whose operands can be varied one by one."""
    if FACTORED & {*row.op.args}:
        return []
    return [s for s in row.differentiable() if is_double(row, s) and not s.heavy][:2]


def total_of(row: Row, sample: Sample, fixed: Values, tracked: tuple[int, ...]) -> Any:
    """A scalar function of the tracked operands that is not linear in the outputs."""

    def total(*moving: Any) -> Any:
        xs = list(fixed)
        for i, v in zip(tracked, moving, strict=True):
            xs[i] = v
        terms = [
            ta.sum(ta.sin(ta.real(y)) + (ta.imag(y) if y.dtype.kind == "c" else 0.0))
            for y in as_tuple(row.apply(sample, xs))
        ]
        return sum(terms[1:], start=terms[0])

    return total


# A view needs its last axis last in memory, with and without a batch.
INNER_AXIS = {"view_as_complex": 0}


@batched_rows
def test_nested_vmap(name: str) -> None:
    """Two batch axes of the first operand, at positions of their own."""
    row = ROWS[name]
    inner = INNER_AXIS.get(name, -1)
    for sample in row.samples[:3]:
        if sample.heavy:
            continue
        with at(name, sample), np.errstate(all="ignore"):
            values = [handle(x) for x in sample.operands]
            stack = examples(row, sample, 0, 6).reshape(2, 3, *sample.operands[0].shape)
            laid = np.stack([np.moveaxis(x, 0, inner) for x in stack], 1)

            def one(x: Any, row: Row = row, s: Any = sample, vs: Any = values) -> Any:
                return as_tuple(row.apply(s, [x, *vs[1:]]))

            found = ta.vmap(ta.vmap(one, in_axes=inner), in_axes=1, out_axes=1)(laid)
            for i, j in np.ndindex(2, 3):
                wanted = one(handle(np.array(stack[i, j], order="C")))
                for y, w in zip(found, wanted, strict=True):
                    tol = 1e-12 if is_double(row, sample) else 2e-5
                    close(numpy_of(y)[j, i], numpy_of(w), tol)


@batched_rows
def test_gradients_and_their_derivatives_for_each_example(name: str) -> None:
    """Rules of reverse and forward mode are made of operations that have rules: the
    gradient and a Hessian-vector product inside `vmap`."""
    row = ROWS[name]
    for sample in smooth_samples(row):
        tracked = row.tracked(sample)
        fixed = [handle(x) for x in sample.operands]
        total = total_of(row, sample, fixed, tracked)
        stacks = [examples(row, sample, i, 2) for i in tracked]

        def second(*xs: Any, total: Any = total) -> Any:
            numbers = tuple(range(len(xs)))
            return ta.jvp(ta.grad(total, numbers), xs, tuple(xs))

        with at(name, sample), np.errstate(all="ignore"):
            found = ta.vmap(second)(*stacks)
            for k in range(2):
                one = [ta.asarray(np.array(s[k], order="C")) for s in stacks]
                wanted = second(*one)
                for gs, ws in zip(found, wanted, strict=True):
                    for g, w in zip(gs, ws, strict=True):
                        close(numpy_of(g)[k], numpy_of(w), 1e-8)
