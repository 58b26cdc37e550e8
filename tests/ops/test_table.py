"""Properties of every row of the operation table, over the samples beside this file.

Values are checked against NumPy and SciPy, first derivatives against differences of
those, reverse mode against forward mode, second derivatives against each other and
against differences of gradients; retention, allocations and ownership against what the
samples say by hand. A row without samples fails, and so do samples without a row.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import plan_of
from tests.ops.samples import (
    Row,
    Sample,
    as_tuple,
    at,
    handle,
    load,
    memory_of,
    numpy_of,
)

ROWS = load()
Array = np.ndarray[Any, Any]

every_row = pytest.mark.parametrize("name", list(OPS))


def row_of(name: str) -> Row:
    if name not in ROWS:
        pytest.fail(f"row `{name}` has no samples (tests/ops/samples_*.py)", False)
    return ROWS[name]


def test_every_sample_has_a_row() -> None:
    assert sorted(set(ROWS) - set(OPS)) == []


def test_samples_cover_what_they_should() -> None:
    """Each row has samples; a differentiable one in float64 among them."""
    for name, row in ROWS.items():
        assert row.samples, name
        assert len({s.label for s in row.samples}) == len(row.samples), name
        if row.keeps:
            assert any(is_double(row, s) for s in row.differentiable()), name


# ---- numbers -------------------------------------------------------------------------


def precision(*arrays: Array) -> str:
    """The narrowest floating dtype among them."""
    narrow = any(a.dtype.char in "fF" for a in arrays)
    return "single" if narrow else "double"


def is_double(row: Row, sample: Sample) -> bool:
    outs = row.expected(sample)
    floats = [x for x in (*sample.operands, *outs) if x.dtype.kind in "fc"]
    return precision(*floats) == "double"


def close(seen: Any, wanted: Any, tolerance: float) -> None:
    """Equal to `tolerance` times the largest number of the reference, at least 1."""
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    if not wanted.size:
        return
    if wanted.dtype.kind not in "fc":
        assert np.array_equal(seen, wanted), f"{seen!r}\n  instead of\n{wanted!r}"
        return
    finite = np.isfinite(wanted)
    assert np.array_equal(seen[~finite], wanted[~finite], equal_nan=True)
    scale = max(1.0, float(np.max(np.abs(wanted[finite]), initial=0.0)))
    gap = float(np.max(np.abs(seen[finite] - wanted[finite]), initial=0.0))
    assert gap <= tolerance * scale, f"{seen!r}\n  instead of\n{wanted!r}"


def direction(rng: np.random.Generator, like: Array) -> Array:
    v = rng.uniform(-1, 1, like.shape)
    if like.dtype.kind == "c":
        v = v + 1j * rng.uniform(-1, 1, like.shape)
    return np.asarray(v, like.dtype)


def directions(sample: Sample, arrays: list[Array]) -> list[Array]:
    rng = np.random.default_rng(list(sample.label.encode()))
    return [direction(rng, a) for a in arrays]


def pair(a: Array, b: Array) -> float:
    """Re <a, b>: complex numbers are pairs of reals."""
    wide = np.complex128 if "c" in (a.dtype.kind, b.dtype.kind) else np.float64
    return float(np.vdot(a.astype(wide), b.astype(wide)).real)


def widened(x: Array) -> Array:
    return x.astype(np.result_type(x, np.float64)) if x.dtype.kind in "fc" else x


def differences(
    row: Row, sample: Sample, tangents: dict[int, Array], h: float = 2.0**-17
) -> list[Array]:
    """Central differences of the reference in double precision."""
    fn = row.smooth or row.reference
    sides = []
    for sign in (h, -h):
        moved = [
            widened(x) + sign * widened(tangents[i]) if i in tangents else widened(x)
            for i, x in enumerate(sample.operands)
        ]
        sides.append([np.asarray(y) for y in as_tuple(fn(*moved, *sample.params))])
    return [(a - b) / (2 * h) for a, b in zip(*sides, strict=True)]


def tensors(arrays: list[Array]) -> tuple[Any, ...]:
    return tuple(ta.asarray(a) for a in arrays)


def weights_for(row: Row, sample: Sample, outs: tuple[Any, ...]) -> list[Array]:
    """Cotangents, drawn apart from the tangents."""
    rng = np.random.default_rng(list((sample.label + " weights").encode()))
    return [direction(rng, numpy_of(y)) for y in outs]


def like(out: Any, weights: list[Array]) -> Any:
    found = tensors(weights)
    return found if isinstance(out, tuple) else found[0]


# ---- values --------------------------------------------------------------------------


@every_row
def test_value_shape_and_dtype(name: str) -> None:
    """The value is NumPy's; so are shape and dtype, and `infer` foretold both."""
    row = row_of(name)
    for sample in row.samples:
        with at(name, sample):
            operands = [handle(x) for x in sample.operands]
            wanted = row.expected(sample)
            outs = as_tuple(row.apply(sample, operands))
            avals = tuple(x.aval for x in operands)
            inferred = plan_of(row.op, avals, sample.params).call.outs
            assert len(outs) == len(wanted) == len(inferred)
            for y, reference, aval in zip(outs, wanted, inferred, strict=True):
                value = numpy_of(y)
                assert value.dtype == reference.dtype == aval.dtype == y.dtype
                assert value.shape == reference.shape == aval.shape == y.shape
                close(value, reference, 5e-6 if value.dtype.char in "fF" else 1e-12)


# ---- first derivatives ---------------------------------------------------------------


@every_row
def test_forward_mode_against_differences(name: str) -> None:
    row = row_of(name)
    for sample in row.differentiable():
        with at(name, sample):
            f, primals = row.function(sample)
            positions = row.tracked(sample)
            ts = directions(sample, [sample.operands[i] for i in positions])
            _, pushed = ta.jvp(f, primals, tensors(ts))
            moved = differences(row, sample, dict(zip(positions, ts, strict=True)))
            single = not is_double(row, sample)
            for t, wanted, y in zip(
                as_tuple(pushed), moved, row.expected(sample), strict=True
            ):
                assert t.dtype == y.dtype
                close(numpy_of(t), wanted, 1e-4 if single else 1e-7)


@every_row
def test_reverse_mode_is_the_adjoint_of_forward_mode(name: str) -> None:
    """<w, J t> = <J^H w, t> in the real pairing; gradients fit their arguments."""
    row = row_of(name)
    for sample in row.differentiable():
        with at(name, sample):
            f, primals = row.function(sample)
            points = [sample.operands[i] for i in row.tracked(sample)]
            ts = directions(sample, points)
            out, pull = ta.vjp(f, *primals)
            ws = weights_for(row, sample, as_tuple(out))
            pulled = [numpy_of(g) for g in pull(like(out, ws))]
            for g, x in zip(pulled, points, strict=True):
                assert g.shape == x.shape
                assert g.dtype == x.dtype
            _, pushed = ta.jvp(f, primals, tensors(ts))
            forward = [numpy_of(t) for t in as_tuple(pushed)]
            seen = sum(map(pair, pulled, ts))
            wanted = sum(map(pair, ws, forward))
            size = sum(np.linalg.norm(w) * np.linalg.norm(y)
                       for w, y in zip(ws, forward, strict=True))  # fmt: skip
            size += sum(np.linalg.norm(g) * np.linalg.norm(t)
                        for g, t in zip(pulled, ts, strict=True))  # fmt: skip
            rounding = 1e-12 if is_double(row, sample) else 1e-5
            assert abs(seen - wanted) <= rounding * max(1.0, float(size))


# ---- second derivatives --------------------------------------------------------------


def energy(f: Callable[..., Any], ws: list[Array]) -> Callable[..., Any]:
    """A real number with a Hessian even for linear `f`: Re <w, f> + |f|^2 / 2."""
    F = HANDLES

    def phi(*xs: Any) -> Any:
        total = None
        for y, w in zip(as_tuple(f(*xs)), ws, strict=True):
            weight = ta.asarray(w)
            term = F.add(F.mul(F.conj(weight), y), F.mul(F.mul(y, F.conj(y)), 0.5))
            if y.dtype.kind == "c":
                term = F.real(term)
            term = F.sum(term, tuple(range(len(term.shape))), False)
            total = term if total is None else F.add(total, term)
        return total

    return phi


@every_row
def test_second_derivatives(name: str) -> None:
    """Forward over reverse = reverse over reverse = differences of gradients."""
    row = row_of(name)
    for sample in row.differentiable():
        if sample.heavy:
            continue
        with at(name, sample):
            f, primals = row.function(sample)
            points = [sample.operands[i] for i in row.tracked(sample)]
            numbers = tuple(range(len(points)))
            ts = directions(sample, points)
            ws = weights_for(row, sample, as_tuple(f(*primals)))
            phi = energy(f, ws)
            g = ta.grad(phi, numbers)

            def slope(*xs: Any, g: Any = g, ts: list[Array] = ts) -> Any:
                total = None
                for gi, t in zip(g(*xs), ts, strict=True):
                    term = HANDLES.mul(HANDLES.conj(ta.asarray(t)), gi)
                    term = HANDLES.real(term) if term.dtype.kind == "c" else term
                    if term.dtype != np.float64:
                        term = HANDLES.astype(term, np.dtype(np.float64))
                    term = HANDLES.sum(term, tuple(range(len(term.shape))), False)
                    total = term if total is None else HANDLES.add(total, term)
                return total

            _, forward = ta.hvp(phi, primals, tensors(ts))
            reverse = ta.grad(slope, numbers)(*primals)
            double = is_double(row, sample)
            for a, b in zip(as_tuple(forward), reverse, strict=True):
                close(numpy_of(a), numpy_of(b), 1e-9 if double else 1e-3)
            if double:
                h = 2.0**-17
                sides = []
                for sign in (h, -h):
                    moved = [
                        handle(np.asarray(x + sign * t))
                        for x, t in zip(points, ts, strict=True)
                    ]
                    sides.append([numpy_of(y) for y in g(*moved)])
                for a, up, down in zip(as_tuple(forward), *sides, strict=True):
                    close(numpy_of(a), (up - down) / (2 * h), 1e-6)


# ---- checkpoints ---------------------------------------------------------------------


@every_row
def test_a_checkpoint_changes_no_bit(name: str) -> None:
    row = row_of(name)
    for sample in row.differentiable():
        with at(name, sample):
            f, primals = row.function(sample)
            found = []
            for g in (f, ta.checkpoint(f), ta.checkpoint(f, verify="bitwise")):
                out, pull = ta.vjp(g, *primals)
                ws = weights_for(row, sample, as_tuple(out))
                arrays = [*as_tuple(out), *pull(like(out, ws))]
                found.append([numpy_of(y).tobytes() for y in arrays])
            assert found[0] == found[1] == found[2]


# ---- retention -----------------------------------------------------------------------


def subsets(positions: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each argument alone, and all together."""
    found = [(i,) for i in positions]
    return found if len(found) == 1 else [*found, positions]


def recorded(row: Row, sample: Sample, tracked: tuple[int, ...]) -> Any:
    """Tape, variables and outputs of one application."""
    operands = [handle(x) for x in sample.operands]
    leaves = [ta.variable(operands[i]) for i in tracked]
    for i, x in zip(tracked, leaves, strict=True):
        operands[i] = x
    with ta.Tape() as tape:
        outs = as_tuple(row.apply(sample, operands))
    return tape, leaves, outs


@every_row
def test_a_tape_keeps_what_the_rules_name_and_nothing_else(name: str) -> None:
    """By hand (samples), by signature (keyword-only names), and by the tape."""
    row = row_of(name)
    for sample in row.differentiable():
        with at(name, sample):
            for tracked in subsets(row.tracked(sample)):
                tape, _, outs = recorded(row, sample, tracked)
                kept = tape.retained()
                wanted = row.retained(sample, tracked)
                for i in tracked:
                    rule = row.op.vjp.get(row.argument(i))
                    if rule is not None:
                        assert row.kept_by(sample, i) == keyword_only(rule)
                assert sorted(k.value for k in kept) == sorted(wanted)
                assert all(k.operation == name for k in kept)
                del outs


def keyword_only(rule: Any) -> set[str]:
    return {
        n
        for n, p in inspect.signature(rule).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }


def poisons(array: Array) -> list[Array]:
    """Other contents for a kept value, legal as far as that can be known."""
    if array.dtype.kind == "b":
        return [~array]
    if array.dtype.kind in "iu":
        last = -1 if array.ndim else None
        rolled, flipped = np.roll(array, 1, last), np.flip(array, last)
        return [rolled, flipped.copy(), np.zeros_like(array)]
    return [array * 0.875 + 0.0625, -array, np.full_like(array, 0.5)]


@every_row
def test_every_kept_value_is_read(name: str) -> None:
    """Poisoning a kept value changes a gradient, for some sample of the row."""
    row = row_of(name)
    kept: set[tuple[int, str]] = set()
    read: set[tuple[int, str]] = set()
    for sample in row.differentiable(special=True):
        if sample.heavy or not all(x.size for x in sample.operands):
            continue
        with at(name, sample):
            for i in row.tracked(sample):
                tape, (leaf,), outs = recorded(row, sample, (i,))
                names = [k.value for k in tape.retained()]
                cotangent = weights_for(row, sample, outs)
                clean = pulled(tape, leaf, outs, cotangent)
                values = [v for s in tape._core.flat[2::3] for v in s]
                position = 0 if row.op.variadic else i
                for k, value in zip(names, values, strict=True):
                    kept.add((position, k))
                    record = getattr(value, "record", value)
                    content = record.array
                    for poison in poisons(content):
                        record.array = np.asarray(poison)
                        with np.errstate(all="ignore"):
                            dirty = pulled(tape, leaf, outs, cotangent)
                        if not np.array_equal(clean, dirty, equal_nan=True):
                            read.add((position, k))
                    record.array = content
                    again = pulled(tape, leaf, outs, cotangent)
                    assert np.array_equal(clean, again, equal_nan=True)
                del values
    assert kept == read


def pulled(tape: Any, leaf: Any, outs: tuple[Any, ...], ws: list[Array]) -> Array:
    """The gradient for the last output's cotangent; rows keep all of their outputs."""
    found = tape.backward(outs[-1], cotangent=ta.asarray(ws[-1]), retain=True)
    view = found[leaf]
    return np.zeros(()) if view is None else numpy_of(view)


# ---- memory --------------------------------------------------------------------------


@every_row
def test_allocations_and_copies(name: str, provider_calls: Any) -> None:
    """One allocation for each output, none for views, no copy; the provider counts the
    same."""
    row = row_of(name)
    for sample in row.samples:
        with at(name, sample):
            copies = row.copies if sample.copies is None else sample.copies
            n = 0 if row.view else len(row.expected(sample))
            n = n if sample.fresh is None else sample.fresh
            operands = [handle(x) for x in sample.operands]
            provider_calls.reset()
            with ta.ledger(detail=False) as ledger:
                outs = row.apply(sample, operands)
            seen = sum(ledger.allocations.values())
            assert seen == provider_calls.total == n
            assert ledger.copies == ({"ExplicitDuplicate": copies} if copies else {})
            if not copies:
                assert set(ledger.allocations) <= {"OperationOutput"}
            del outs, operands
            assert ledger.live == 0


@every_row
def test_backward_allocates_what_its_ledger_says(
    name: str, provider_calls: Any
) -> None:
    row = row_of(name)
    for sample in row.differentiable():
        with at(name, sample):
            tape, leaves, outs = recorded(row, sample, row.tracked(sample))
            seed = ta.asarray(weights_for(row, sample, outs)[0])
            counts = []
            for _ in range(2):
                provider_calls.reset()
                with ta.ledger(detail=False) as ledger:
                    grads = tape.backward(outs[0], cotangent=seed, retain=True)
                assert sum(ledger.allocations.values()) == provider_calls.total
                again = {"CheckpointRecomputeOutput"} if row.reruns else set()
                assert set(ledger.allocations) <= {"OperationOutput"} | again
                assert ledger.copies == {}
                # What is left is the gradients: one root for each of them.
                assert ledger.live == len(grads)
                counts.append(ledger.allocations)
                del grads
                assert ledger.live == 0
            assert counts[0] == counts[1]
            del leaves


@every_row
def test_gradients_own_their_buffers(name: str) -> None:
    """No two gradients share memory, nor with operands, outputs or the cotangent."""
    row = row_of(name)
    for sample in row.differentiable():
        with at(name, sample):
            tape, leaves, outs = recorded(row, sample, row.tracked(sample))
            seed = ta.asarray(weights_for(row, sample, outs)[0])
            found = tape.backward(outs[0], cotangent=seed)
            others = [memory_of(x) for x in (*leaves, *outs, seed)]
            for leaf in leaves:
                if leaf not in found:
                    continue
                owner = found.take_grad(leaf)
                with owner.as_view() as view:
                    mine = view.numpy()
                    assert not any(np.may_share_memory(mine, x) for x in others)
                    others.append(mine)
                    del mine
                others.pop()
                del owner


@every_row
def test_operands_outputs_and_cotangents_are_not_written(name: str) -> None:
    row = row_of(name)
    for sample in row.samples:
        with at(name, sample):
            operands = [handle(x) for x in sample.operands]
            before = [numpy_of(x).tobytes() for x in operands]
            outs = row.apply(sample, operands)
            assert [numpy_of(x).tobytes() for x in operands] == before
            assert before == [x.tobytes() for x in sample.operands]
            del outs
    for sample in row.differentiable():
        with at(name, sample):
            f, primals = row.function(sample)
            out, pull = ta.vjp(f, *primals)
            seed = like(out, weights_for(row, sample, as_tuple(out)))
            watched = [*primals, *as_tuple(out), *as_tuple(seed)]
            before = [numpy_of(x).tobytes() for x in watched]
            first = [numpy_of(g).tobytes() for g in pull(seed)]
            second = [numpy_of(g).tobytes() for g in pull(seed)]
            ta.jvp(f, primals, tuple(primals))
            assert first == second
            assert [numpy_of(x).tobytes() for x in watched] == before


# ---- what has no derivative ----------------------------------------------------------


def test_integers_and_booleans_are_never_recorded() -> None:
    """Whatever comes in, an integer or boolean result carries no derivative."""
    for name, row in ROWS.items():
        for sample in row.samples:
            floating = [x.dtype.kind in "fc" for x in sample.operands]
            if any(y.dtype.kind in "fc" for y in row.expected(sample)):
                continue
            with at(name, sample):
                tracked = tuple(i for i, real in enumerate(floating) if real)
                tape, leaves, outs = recorded(row, sample, tracked)
                assert not any(y.is_tracked for y in outs)
                assert tape.retained() == []
                del leaves, outs


def test_stop_gradient_is_a_constant() -> None:
    for sample in ROWS["stop_gradient"].samples:
        if sample.operands[0].dtype.kind not in "fc":
            continue
        x = ta.variable(handle(sample.operands[0]))
        out, pull = ta.vjp(HANDLES.stop_gradient, x)
        (g,) = pull(out)
        assert not np.any(numpy_of(g))
        _, t = ta.jvp(HANDLES.stop_gradient, (x,), (out,))
        assert not np.any(numpy_of(t))
