"""Agreement with JAX in double precision mode, over the samples of the operation table.

Value, reverse mode, forward mode and Hessian-vector products. JAX's reverse mode gives
the conjugate of ours for complex arguments: our gradient of |z|^2 is 2 z. The error is
at most `tolerance * max(1, largest number of JAX's result)`. Kinks are documented apart
(`tests/reference/kinks.py`): the samples avoid them.
"""

from __future__ import annotations

import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS
from tests.ops.samples import Row, Sample, as_tuple, at, handle, load, numpy_of
from tests.reference.jax_rows import COSTLY, JAX, NO_COUNTERPART, NOT_AT
from tests.reference.kinks import KINKS, SAME, Kink, point_of, slope_of
from tests.reference.programs import FUNCTIONS, Program

jax.config.update("jax_enable_x64", True)
# Each comparison compiles once and runs once: XLA's optimisations would cost more.
CHEAP = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}

ROWS = load()
# Further rows may stand in modules of their own beside `jax_rows.py`.
for _path in sorted(Path(__file__).parent.glob("jax_rows_*.py")):
    import_module(f"tests.reference.{_path.stem}")
Array = np.ndarray[Any, Any]
DOUBLE, SINGLE = 1e-10, 2e-5


def test_every_row_has_a_counterpart_or_a_reason() -> None:
    assert sorted(set(OPS) - set(JAX) - set(NO_COUNTERPART)) == []
    assert sorted(set(JAX) & set(NO_COUNTERPART)) == []
    assert sorted((set(JAX) | set(NO_COUNTERPART)) - set(OPS)) == []
    assert all(NO_COUNTERPART.values())
    assert all(reason and name in JAX for (name, _), reason in NOT_AT.items())


def compile_and_run(fn: Any, *args: Any) -> Any:
    return jax.jit(fn).lower(*args).compile(compiler_options=CHEAP)(*args)


def close(seen: Array, wanted: Any, *, single: bool = False) -> None:
    """Args: `single`: some operand is in single precision, whatever the result is."""
    wanted = np.asarray(wanted)
    assert seen.shape == wanted.shape
    assert seen.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc":
        assert np.array_equal(seen, wanted)
    elif wanted.size:
        finite = np.isfinite(wanted)
        assert np.array_equal(seen[~finite], wanted[~finite], equal_nan=True)
        scale = max(1.0, float(np.max(np.abs(wanted[finite]), initial=0.0)))
        gap = float(np.max(np.abs(seen[finite] - wanted[finite]), initial=0.0))
        tolerance = SINGLE if single or wanted.dtype.char in "fF" else DOUBLE
        assert gap <= tolerance * scale, f"{seen!r}\n  instead of\n{wanted!r}"


def draw(rng: np.random.Generator, shape: Any, dtype: Any) -> Array:
    v = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        v = v + 1j * rng.uniform(-1, 1, shape)
    return np.asarray(v, dtype)


def comparable(row: Row) -> list[Sample]:
    """Samples that JAX can compute. It knows no layouts: of samples that differ only in
    layout it sees one (`test_table.py` compares all of them with NumPy)."""
    kinds = [kind for name, kind in NOT_AT if name == row.name]
    found: dict[Any, Sample] = {}
    for s in row.samples:
        lacks = "complex" in kinds and any(x.dtype.kind == "c" for x in s.operands)
        if not (s.heavy or lacks):
            key = (*((x.shape, x.dtype) for x in s.operands), s.params)
            found.setdefault(repr(key), s)
    if row.name in COSTLY:
        singles = [any(x.dtype.char in "fF" for x in s.operands) for s in row.samples]
        return [row.samples[singles.index(single)] for single in (False, True)]
    return list(found.values())


@pytest.mark.parametrize("name", [n for n in OPS if n in JAX])
def test_row(name: str) -> None:
    row = ROWS[name]
    points = []
    for sample in comparable(row):
        outs = row.expected(sample)
        if row.tracked(sample) and all(y.dtype.kind in "fc" for y in outs):
            points.append(Point(row, sample, outs))
        else:
            with at(name, sample):
                compare_values(row, sample)
    if points:
        # One compilation for all samples of the row.
        wanted = compile_and_run(
            lambda args: [p.theirs(*a) for p, a in zip(points, args, strict=True)],
            [p.arguments for p in points],
        )
        for point, reference in zip(points, wanted, strict=True):
            with at(name, point.sample):
                point.compare(reference)


def compare_values(row: Row, sample: Sample) -> None:
    ours = as_tuple(row.apply(sample, [handle(x) for x in sample.operands]))
    fn = JAX[row.name]
    theirs = as_tuple(fn(*map(jnp.asarray, sample.operands), *sample.params))
    for a, b in zip(ours, theirs, strict=True):
        close(numpy_of(a), b)


class Point:
    """One sample with directions and cotangents."""

    def __init__(self, row: Row, sample: Sample, outs: list[Array]) -> None:
        rng = np.random.default_rng(zlib.crc32(f"{row.name} {sample.label}".encode()))
        self.row, self.sample = row, sample
        self.moving = row.tracked(sample)
        points = tuple(sample.operands[i] for i in self.moving)
        self.ts = tuple(draw(rng, x.shape, x.dtype) for x in points)
        self.ws = tuple(draw(rng, y.shape, y.dtype) for y in outs)
        self.arguments = (points, self.ts, self.ws)

    def theirs(self, xs: Any, ts: Any, ws: Any) -> Any:
        """JAX's value, reverse mode, forward mode and Hessian-vector product."""

        def f(*xs: Any) -> Any:
            operands = list(map(jnp.asarray, self.sample.operands))
            for i, x in zip(self.moving, xs, strict=True):
                operands[i] = x
            return as_tuple(JAX[self.row.name](*operands, *self.sample.params))

        def phi(*xs: Any) -> Any:
            return sum(
                jnp.sum(jnp.real(jnp.conj(w) * y) + jnp.real(y * jnp.conj(y)) / 2)
                for y, w in zip(f(*xs), ws, strict=True)
            )

        def slope(*xs: Any) -> Any:
            value, pull = jax.vjp(phi, *xs)
            return tuple(map(jnp.conj, pull(jnp.ones_like(value))))

        ys, pull = jax.vjp(f, *xs)
        pulled = tuple(map(jnp.conj, pull(tuple(map(jnp.conj, ws)))))
        pushed = jax.jvp(f, xs, ts)[1]
        curved = jax.jvp(slope, xs, ts)[1]
        return ys, pulled, pushed, curved

    def ours(self) -> Any:
        f, primals = self.row.function(self.sample)
        tensors = tuple(map(ta.asarray, self.ts))
        out, pull = ta.vjp(f, *primals)
        weights = tuple(map(ta.asarray, self.ws))
        pulled = pull(weights if isinstance(out, tuple) else weights[0])
        _, pushed = ta.jvp(f, primals, tensors)
        _, curved = ta.hvp(energy(f, weights), primals, tensors)
        return as_tuple(out), pulled, as_tuple(pushed), as_tuple(curved)

    def compare(self, wanted: Any) -> None:
        single = any(x.dtype.char in "fF" for x in self.sample.operands)
        for what, ours, theirs in zip(
            ("value", "vjp", "jvp", "hvp"), self.ours(), wanted, strict=True
        ):
            try:
                for a, b in zip(ours, theirs, strict=True):
                    close(numpy_of(a), b, single=single)
            except AssertionError as error:
                error.add_note(f"in the {what}")
                raise


def energy(f: Any, weights: tuple[Any, ...]) -> Any:
    """Re <w, f> + |f|^2 / 2, summed in the precision of each output."""
    F = HANDLES

    def phi(*xs: Any) -> Any:
        total = None
        for y, w in zip(as_tuple(f(*xs)), weights, strict=True):
            term = F.add(F.mul(F.conj(w), y), F.mul(F.mul(y, F.conj(y)), 0.5))
            term = F.real(term) if y.dtype.kind == "c" else term
            term = F.sum(term, tuple(range(len(term.shape))), False)
            total = term if total is None else F.add(total, term)
        return total

    return phi


# ---- random programs -----------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(0, 200, 20)])
def test_random_programs(seeds: range) -> None:
    """Compositions of 3 to 12 public functions: value, gradient, ledger."""
    found = [Program.random(seed) for seed in seeds]

    def theirs(inputs: Any) -> Any:
        return [
            jax.value_and_grad(lambda xs, p=p: p.run(jnp, xs))(xs)
            for p, xs in zip(found, inputs, strict=True)
        ]

    wanted = compile_and_run(theirs, [p.inputs for p in found])
    for seed, program, reference in zip(seeds, found, wanted, strict=True):
        try:
            compare_program(program, *reference)
        except Exception as error:
            error.add_note(f"seed {seed}:\n{program}")
            raise


def compare_program(program: Program, value: Any, gradients: Any) -> None:
    assert np.isfinite(value)
    ledgers = []
    for _ in range(2):
        leaves = [ta.variable(x) for x in program.inputs]
        with ta.ledger(detail=False) as ledger:
            with ta.Tape() as tape:
                loss = program.run(ta, leaves)
            close(numpy_of(loss), value)
            grads = tape.backward(loss)
            for leaf, wanted in zip(leaves, gradients, strict=True):
                g = grads[leaf]
                if g is None:
                    assert not np.any(wanted)
                else:
                    close(numpy_of(g), wanted)
                del g
            del loss, tape, grads, leaf
        assert ledger.copies == {}
        assert ledger.live == 0
        ledgers.append(ledger.allocations)
    assert ledgers[0] == ledgers[1]
    assert ledgers[0]


def test_the_programs_use_all_of_their_functions() -> None:
    used = {name for seed in range(200) for name in Program.random(seed).names}
    assert used == set(FUNCTIONS)


# ---- kinks ---------------------------------------------------------------------------


@pytest.mark.parametrize("kink", KINKS, ids=lambda kink: kink.name)
def test_kink(kink: Kink) -> None:
    """The table of kinks says what JAX gives, so that a difference is a decision; a
    later JAX may have come round to our convention."""
    value, pull = jax.vjp(lambda x: jnp.sum(kink.function(jnp, x)), point_of(kink))
    seen = np.conj(pull(jnp.ones_like(value))[0])
    allowed = [slope_of(kink)] if kink.jax == SAME else [kink.jax, slope_of(kink)]
    assert any(np.allclose(seen, w, 1e-12, 0, equal_nan=True) for w in allowed)
