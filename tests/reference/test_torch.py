"""Agreement with PyTorch in double precision: values, gradients, curvature.

The rows of the operation table over their samples, the public functions beside them,
random programs, and the documented kinks. PyTorch's conjugate convention is ours: the
gradient of |z|^2 is 2 z. The error is at most `1e-10 * max(1, largest number)`.

These tests need the extra `reference` and run by name only: `make test-reference`.
"""

from __future__ import annotations

import inspect
import zlib
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS, Region
from tests.ops.samples import Row, Sample, as_tuple, at, handle, load, numpy_of
from tests.reference.kinks import KINKS, SAME, Kink, point_of, slope_of
from tests.reference.programs import Program

pytestmark = [
    pytest.mark.reference,
    pytest.mark.filterwarnings("ignore"),
]
Array = np.ndarray[Any, Any]
ROWS = load()
NEAR = 1e-10
DOUBLE = "dDlq?"


@pytest.fixture(scope="module")
def torch() -> Any:
    found = import_module("torch")
    found.set_num_threads(1)
    return found


@pytest.fixture(scope="module")
def rows(torch: Any) -> Any:
    return import_module("tests.reference.torch_rows")


def close(seen: Any, wanted: Any, near: float = NEAR) -> None:
    """Equal to `near` times the largest number of the reference, at least 1."""
    seen, wanted = numpy_of(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    assert seen.dtype == wanted.dtype
    if wanted.dtype.kind not in "fc":
        assert np.array_equal(seen, wanted)
    elif wanted.size:
        finite = np.isfinite(wanted)
        assert np.array_equal(seen[~finite], wanted[~finite], equal_nan=True)
        scale = max(1.0, float(np.max(np.abs(wanted[finite]), initial=0.0)))
        gap = float(np.max(np.abs(seen[finite] - wanted[finite]), initial=0.0))
        assert gap <= near * scale, f"{seen!r}\n  instead of\n{wanted!r}"


def tensor(torch: Any, x: Any) -> Any:
    return torch.from_numpy(np.array(x))


def host(x: Any) -> Array:
    return np.asarray(x.detach().resolve_conj().resolve_neg().numpy(force=True))


def draw(rng: np.random.Generator, like: Array) -> Array:
    v = rng.uniform(-1, 1, like.shape)
    if like.dtype.kind == "c":
        v = v + 1j * rng.uniform(-1, 1, like.shape)
    return np.asarray(v, like.dtype)


# Loops and branches of other operations: nothing of their own to compare.
WITH_BODIES = {name for name, op in OPS.items() if isinstance(op.kernel, Region)}
# PyTorch draws other random numbers.
ROOMS = ("nn", "linalg", "fft", "special", "")

# ---- rows ----------------------------------------------------------------------------


def test_every_row_has_a_counterpart_or_a_reason(rows: Any) -> None:
    missing = set(OPS) - set(rows.TORCH) - set(rows.NO_COUNTERPART)
    assert sorted(missing - WITH_BODIES) == []
    assert sorted(set(rows.TORCH) & set(rows.NO_COUNTERPART)) == []
    assert sorted((set(rows.TORCH) | set(rows.NO_COUNTERPART)) - set(OPS)) == []
    assert all(rows.NO_COUNTERPART.values())
    assert all(reason and n in rows.TORCH for n, reason in rows.NO_DERIVATIVE.items())
    assert all(reason and n in rows.TORCH for (n, _), reason in rows.NOT_AT.items())
    assert all(reason and n in rows.TORCH for n, (_, reason) in rows.LOOSE.items())


def words_of(sample: Sample) -> set[str]:
    """What `NOT_AT` may say of a sample."""
    found = {sample.label}
    if any(x.dtype.kind == "c" for x in sample.operands):
        found.add("complex")
    if any(x.size == 0 for x in sample.operands):
        found.add("empty")
    if sample.operands and sample.operands[0].dtype.kind in "biu":
        found.add("integer")
    return found


def comparable(rows: Any, row: Row) -> list[Sample]:
    """Double precision samples that PyTorch can compute; one for each set of shapes,
    dtypes and parameters, since it knows no layouts of ours."""
    refused = {word for name, word in rows.NOT_AT if name == row.name}
    found: dict[str, Sample] = {}
    for s in row.samples:
        arrays = [*s.operands, *row.expected(s)]
        if s.heavy or refused & words_of(s):
            continue
        if all(x.dtype.char in DOUBLE for x in arrays):
            key = (*((x.shape, x.dtype) for x in s.operands), s.params)
            found.setdefault(repr(key), s)
    return list(found.values())


@pytest.mark.parametrize("name", list(OPS))
def test_row(name: str, torch: Any, rows: Any) -> None:
    if name in rows.NO_COUNTERPART or name in WITH_BODIES:
        return
    row = ROWS[name]
    samples = comparable(rows, row)
    assert samples
    near, _ = rows.LOOSE.get(name, (NEAR, ""))
    for sample in samples:
        with at(name, sample):
            outs = row.expected(sample)
            moves = row.tracked(sample) and all(y.dtype.kind in "fc" for y in outs)
            if moves and name not in rows.NO_DERIVATIVE:
                compare_derivatives(torch, rows.TORCH[name], row, sample, near)
            else:
                compare_values(torch, rows.TORCH[name], row, sample, near)


def compare_values(torch: Any, fn: Any, row: Row, sample: Sample, near: float) -> None:
    ours = as_tuple(row.apply(sample, [handle(x) for x in sample.operands]))
    theirs = as_tuple(fn(*[tensor(torch, x) for x in sample.operands], *sample.params))
    for a, b in zip(ours, theirs, strict=True):
        close(a, host(b), near)


def compare_derivatives(
    torch: Any, fn: Any, row: Row, sample: Sample, near: float
) -> None:
    f, primals = row.function(sample)
    moving = row.tracked(sample)

    def g(*xs: Any) -> Any:
        operands = [tensor(torch, x) for x in sample.operands]
        for i, x in zip(moving, xs, strict=True):
            operands[i] = x
        return as_tuple(fn(*operands, *sample.params))

    seed = f"{row.name} {sample.label}"
    compare(torch, f, g, primals, [sample.operands[i] for i in moving], seed, near)


def compare(
    torch: Any,
    ours: Any,
    theirs: Any,
    primals: Any,
    points: list[Array],
    seed: str,
    near: float = NEAR,
) -> None:
    """Values, gradients of random weights, and curvature of an energy."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    leaves = [tensor(torch, x).requires_grad_() for x in points]
    wanted = theirs(*leaves)
    out, pull = ta.vjp(ours, *primals)
    for a, b in zip(as_tuple(out), wanted, strict=True):
        close(a, host(b), near)
    ws = [draw(rng, host(y)) for y in wanted]
    ts = [draw(rng, x) for x in points]
    weights = tuple(map(ta.asarray, ws))
    pulled = pull(weights if isinstance(out, tuple) else weights[0])
    for a, b in zip(pulled, gradients(torch, wanted, leaves, ws), strict=True):
        try:
            close(a, host(b), near)
        except AssertionError as error:
            error.add_note("in the gradient")
            raise
    tangents = tuple(map(ta.asarray, ts))
    curved = as_tuple(ta.hvp(energy(ours, weights), primals, tangents)[1])
    for a, b in zip(curved, curvature(torch, theirs, leaves, ws, ts), strict=True):
        try:
            close(a, host(b), near)
        except AssertionError as error:
            error.add_note("in the curvature")
            raise


def gradients(torch: Any, outs: Any, leaves: Any, ws: list[Array]) -> list[Any]:
    """Zeros where an output does not depend on a leaf."""
    pairs = [(y, tensor(torch, w)) for y, w in zip(outs, ws, strict=True)]
    pairs = [(y, w) for y, w in pairs if y.requires_grad]
    if not pairs:
        return [torch.zeros_like(x) for x in leaves]
    ys, seeds = zip(*pairs, strict=True)
    found = torch.autograd.grad(ys, leaves, seeds, allow_unused=True)
    return [
        torch.zeros_like(x) if g is None else g
        for x, g in zip(leaves, found, strict=True)
    ]


def energy(f: Any, weights: tuple[Any, ...]) -> Any:
    """Re <w, f> + |f|^2 / 2."""
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


def curvature(
    torch: Any, f: Any, points: Any, ws: list[Array], ts: list[Array]
) -> list[Any]:
    """The Hessian of the energy times a tangent, by reverse mode twice: the gradient of
    Re <gradient, t>."""
    leaves = [x.detach().requires_grad_() for x in points]
    total = 0.0
    for y, w in zip(f(*leaves), ws, strict=True):
        term = tensor(torch, w).conj() * y + y * y.conj() / 2
        total = total + torch.real(term).sum()
    if not total.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    first = torch.autograd.grad(total, leaves, create_graph=True, allow_unused=True)
    slope = 0.0
    for g, t in zip(first, ts, strict=True):
        if g is not None:
            slope = slope + torch.real(g * tensor(torch, t).conj()).sum()
    if not slope.requires_grad:
        return [torch.zeros_like(x) for x in leaves]
    found = torch.autograd.grad(slope, leaves, allow_unused=True)
    return [
        torch.zeros_like(x) if g is None else g
        for x, g in zip(leaves, found, strict=True)
    ]


# ---- public functions ----------------------------------------------------------------


@pytest.fixture(scope="module")
def functions(torch: Any) -> Any:
    return import_module("tests.reference.torch_functions")


def public_functions() -> dict[str, Any]:
    """Each public function once, by the room that it stands in."""
    found: dict[str, Any] = {}
    for room in ROOMS:
        module = getattr(ta, room) if room else ta
        for name in module.__all__:
            fn = getattr(module, name)
            plain = callable(fn) and not inspect.isclass(fn)
            if plain and not any(fn is g for g in found.values()):
                found[f"{room}.{name}" if room else name] = fn
    return found


PUBLIC = public_functions()


def test_every_public_function_has_a_counterpart_or_a_reason(
    rows: Any, functions: Any
) -> None:
    """Those that are a row of the table by name are compared there, or have their
    reason there; decompositions, whose signs are not determined, are compared here."""
    compared, without = set(functions.FUNCTIONS), set(functions.WITHOUT)
    known = {*rows.TORCH, *rows.NO_COUNTERPART}
    elsewhere = {n for n in PUBLIC if n.split(".")[-1] in known}
    factors = {"linalg.qr", "linalg.eigh", "linalg.svd", "linalg.eig", "linalg.lu"}
    assert factors <= compared
    assert sorted(set(PUBLIC) - compared - without - elsewhere) == []
    assert sorted((compared | without) - set(PUBLIC)) == []
    assert sorted(without & compared) == []
    assert all(functions.WITHOUT.values())
    assert all(name in compared for name in functions.LOOSE)


@pytest.mark.parametrize("name", list(PUBLIC))
def test_function(name: str, torch: Any, functions: Any) -> None:
    for k, case in enumerate(functions.FUNCTIONS.get(name, ())):
        try:
            compare(
                torch,
                case.ours,
                lambda *xs, c=case: as_tuple(c.theirs(*xs)),
                [ta.asarray(x) for x in case.arrays],
                list(case.arrays),
                f"{name} {k}",
                functions.LOOSE.get(name, NEAR),
            )
        except Exception as error:
            error.add_note(f"`{name}`, case {k}")
            raise


def test_the_comparison_sees_a_wrong_convention(torch: Any) -> None:
    """A gradient that is conjugated, and one that is lost."""
    z = np.array([0.3 + 0.4j, -1.2 + 0.1j])
    right = lambda x: (x * x,)
    compare(torch, lambda x: x * x, right, [ta.asarray(z)], [z], "right")
    for wrong in (lambda x: (x * x.conj(),), lambda x: (x * x.detach(),)):
        with pytest.raises(AssertionError):
            compare(torch, lambda x: x * x, wrong, [ta.asarray(z)], [z], "wrong")


# ---- random programs -----------------------------------------------------------------


@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(0, 200, 20)])
def test_random_programs(seeds: range, torch: Any, functions: Any) -> None:
    """Compositions of 3 to 12 public functions: value, gradient, curvature."""
    for seed in seeds:
        program = Program.random(seed)
        try:
            compare(
                torch,
                lambda *xs, p=program: p.run(ta, xs),
                lambda *xs, p=program: (p.run(functions.NAMESPACE, xs),),
                [ta.asarray(x) for x in program.inputs],
                list(program.inputs),
                f"program {seed}",
            )
        except Exception as error:
            error.add_note(f"seed {seed}:\n{program}")
            raise


# ---- kinks ---------------------------------------------------------------------------


@pytest.mark.parametrize("kink", KINKS, ids=lambda kink: kink.name)
def test_kink(kink: Kink, torch: Any, functions: Any) -> None:
    """The table of kinks says what PyTorch gives, so that a difference is a decision; a
    later PyTorch may have come round to our convention."""
    x = tensor(torch, point_of(kink)).requires_grad_()
    value = kink.function(functions.NAMESPACE, x).sum()
    seen = host(torch.autograd.grad(value, x)[0])
    allowed = [slope_of(kink)] if kink.torch == SAME else [kink.torch, slope_of(kink)]
    assert any(np.allclose(seen, w, 1e-12, 0, equal_nan=True) for w in allowed)
