"""The operation table on every lane, against NumPy: values and gradients.

Values are compared with the samples' own references, gradients with those of the CPU
for the same cotangents. Single precision is held to 2e-6 and double to 1e-12 (gradients
five times as much). What a lane lacks is a typed refusal, and `docs/devices.md` lists
the rows.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends._cuda_library import FORMS
from tenferro_ad.errors import UnsupportedError
from tenferro_ad.ops import OPS, Library, Region, Write
from tests.backends.lane_support import Lane, built_together
from tests.backends.printing_support import close
from tests.ops.samples import Row, Sample, as_tuple, at, load

ROWS = load()
Array = np.ndarray[Any, Any]
DOCS = Path(__file__).parents[2] / "docs" / "devices.md"
SINGLE = 2e-6


def listed() -> set[str]:
    """The rows that the page says printed lanes lack."""
    text = DOCS.read_text(encoding="utf-8").split("## What printed lanes lack")[1]
    return set(re.findall(r"`(\w+)`", text.split("\n## ")[0].split("Rows:")[1]))


@pytest.fixture
def lacking(eager_lane: Lane) -> set[str]:
    """Rows that the lane lacks."""
    if eager_lane.name == "fake":
        return set()
    return listed() - (COMPUTED if eager_lane.name == "cuda" else set())


COMPUTED = frozenset(FORMS)  # by CUDA's libraries


def test_the_page_says_which_of_them_cuda_computes() -> None:
    text = DOCS.read_text(encoding="utf-8").split("On CUDA, libraries compute")[1]
    assert set(re.findall(r"`(\w+)`", text.split(":")[1].split(".")[0])) == (
        listed() & COMPUTED
    )


def test_only_library_rows_are_listed_as_missing() -> None:
    """Rows that call a library of the host: transforms, factorisations."""
    for name in listed():
        op = OPS[name]
        factors = isinstance(op.kernel, Write) and name in FACTORISATIONS
        assert factors or isinstance(op.kernel, Library), name


FACTORISATIONS = frozenset(
    "eigh svd qr cholesky solve_triangular lu_factor lu_solve det slogdet cofactors "
    "cofactors_moved inv expm pinv eig".split()
)


def runs(lane: Lane, row: Row, samples: Any) -> list[Sample]:
    """Samples whose dtypes the lane has, parameters for its device."""
    found = []
    for sample in samples:
        known = getattr(lane.device, "supports_dtype", lambda dtype: True)
        if sample.heavy or not all(known(x.dtype) for x in sample.operands):
            continue
        if not all(known(x.dtype) for x in row.expected(sample)):
            continue
        params = tuple(
            lane.device if name == "device" else value
            for name, value in zip(row.op.params, sample.params, strict=True)
        )
        found.append(Sample(sample.label, sample.operands, params))
    return found


def in_one_precision(lane: Lane, samples: list[Sample]) -> list[Sample]:
    """One of each set of samples that differ in precision alone, and each combination
    of dtypes once: rules are made of rows whose values are tested in all of them.
    WebGPU promises single precision everywhere."""
    groups: dict[Any, list[Sample]] = {}
    for sample in samples:
        forms = [(x.shape, x.dtype.kind) for x in sample.operands]
        groups.setdefault((repr(forms), repr(sample.params)), []).append(sample)
    choose = min if lane.name == "webgpu" else max
    kept = [choose(group, key=precision) for group in groups.values()]
    seen = {dtypes(sample) for sample in kept}
    for sample in samples:
        if dtypes(sample) not in seen:
            seen.add(dtypes(sample))
            kept.append(sample)
    return kept


def dtypes(sample: Sample) -> str:
    return "".join(x.dtype.char for x in sample.operands)


def precision(sample: Sample) -> int:
    return max((x.dtype.itemsize for x in sample.operands), default=0)


def tolerance(*arrays: Array) -> float:
    if any(a.dtype.char in "fF" for a in arrays):
        return SINGLE
    return 1e-12


# Bodies of loops and branches are traced for one device: they have tests of their own.
TABLE = [name for name, op in OPS.items() if not isinstance(op.kernel, Region)]


@pytest.mark.parametrize("name", TABLE)
def test_values_on_the_lane(eager_lane: Lane, lacking: set[str], name: str) -> None:
    lane, row = eager_lane, ROWS[name]
    samples = runs(lane, row, row.samples)
    with built_together(lane):
        if lane.name == "opencl":
            for sample in samples:
                with suppress(UnsupportedError):
                    row.apply(sample, placed(sample, lane.device))
    for sample in samples:
        with at(name, sample):
            operands = placed(sample, lane.device)
            lane.device.drain()
            before = lane.launched
            if name in lacking:
                with pytest.raises(UnsupportedError, match=name):
                    row.apply(sample, operands)
                assert lane.launched == before
                continue
            outs = as_tuple(row.apply(sample, operands))
            wanted = row.expected(sample)
            for out, expected in zip(outs, wanted, strict=True):
                allowed = tolerance(*sample.operands, expected)
                close(np.array(out.numpy()), expected, allowed)
            made = any(y.size for y in wanted) and not row.view and not row.copies
            if made and any(x.size for x in sample.operands):
                assert lane.launched > before  # computed there, and nowhere else


@pytest.mark.parametrize(
    "name", [n for n in TABLE if n in ROWS and any(ROWS[n].differentiable())]
)
def test_gradients_on_the_lane(eager_lane: Lane, lacking: set[str], name: str) -> None:
    lane, row = eager_lane, ROWS[name]
    samples = in_one_precision(lane, runs(lane, row, row.differentiable()))
    with built_together(lane):
        if lane.name == "opencl":
            for sample in samples:
                with suppress(UnsupportedError):
                    gradients(row, sample, lane.device)
    for sample in samples:
        with at(name, sample):
            missing: list[str] = []
            found: list[Array] = []
            try:
                found = host(gradients(row, sample, lane.device))
            except UnsupportedError as error:
                missing.append(error.op)
            if missing:
                assert set(missing) <= lacking
                continue
            on_cpu = Sample(sample.label, sample.operands, plain(row, sample))
            for seen, wanted in zip(
                found, host(gradients(row, on_cpu, "cpu")), strict=True
            ):
                allowed = 5 * tolerance(*sample.operands, wanted)
                close(seen, wanted, allowed)


def plain(row: Row, sample: Sample) -> tuple[Any, ...]:
    """The parameters, for the CPU."""
    cpu = ta.default_device()
    names = row.op.params
    return tuple(
        cpu if n == "device" else v for n, v in zip(names, sample.params, strict=True)
    )


def placed(sample: Sample, device: Any) -> list[Any]:
    return [ta.asarray(x, device=device) for x in sample.operands]


def host(values: list[Any]) -> list[Array]:
    return [np.array(x if isinstance(x, np.ndarray) else x.numpy()) for x in values]


def gradients(row: Row, sample: Sample, device: Any) -> list[Any]:
    """Gradients of the last output, for one cotangent; zeros where there is none."""
    values = placed(sample, device)
    leaves = {i: ta.variable(values[i]) for i in row.tracked(sample)}
    operands = [leaves.get(i, x) for i, x in enumerate(values)]
    with ta.Tape() as tape:
        outs = as_tuple(row.apply(sample, operands))
    y = outs[-1]
    if not y.is_tracked:
        return []
    rng = np.random.default_rng(list(sample.label.encode()))
    ct = rng.uniform(-1, 1, y.shape)
    if y.dtype.kind == "c":
        ct = ct + 1j * rng.uniform(-1, 1, y.shape)
    seed = ta.asarray(np.asarray(ct, y.dtype), device=device)
    grads = tape.backward(y, cotangent=seed)
    found = []
    for leaf in leaves.values():
        g = grads[leaf]
        found.append(np.zeros(leaf.shape, leaf.dtype) if g is None else g)
    return found


@pytest.mark.parametrize("name", ["exp", "mul", "matmul", "sum", "sigmoid", "softmax"])
def test_gradients_agree_with_differences_in_double_precision(
    eager_lane: Lane, name: str
) -> None:
    """`check_grads` on the lane itself, where it has float64."""
    lane = eager_lane
    supports = getattr(lane.device, "supports_dtype", lambda dtype: True)
    if lane.name == "webgpu" or not supports(np.dtype(np.float64)):
        assert lane.name == "webgpu"  # its double precision is not a promise
        return
    rng = np.random.default_rng(7)
    x = ta.asarray(rng.uniform(0.5, 1.5, (3, 3)), device=lane.device)
    fns = {
        "exp": ta.exp,
        "mul": lambda x: x * x,
        "matmul": lambda x: x @ x,
        "sum": lambda x: ta.sum(x * x, axis=0),
        "sigmoid": ta.sigmoid,
        "softmax": lambda x: ta.softmax(x, axis=-1),
    }
    with ta.default_device(lane.device):
        ta.testing.check_grads(fns[name], (x,), order=2, modes=("fwd", "rev"))


# ---- loops and branches --------------------------------------------------------------


def looped(x: Any) -> Any:
    _, ys = ta.scan(lambda c, _: (ta.sin(c) * 1.5, c * c), x, None, length=4)
    return ta.sum(ys)


def branched(x: Any) -> Any:
    return ta.sum(ta.cond(ta.sum(x) > 1.0, lambda x: x * x, lambda x: -x, x))


def until_large(x: Any) -> Any:
    return ta.while_loop(lambda c: ta.sum(c) < 50.0, lambda c: c * 2.0, x)


@pytest.mark.parametrize("fn", [looped, branched], ids=["scan", "cond"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_loops_and_branches_on_the_lane(
    eager_lane: Lane, fn: Any, compiled: bool
) -> None:
    start = np.asarray([0.3, 0.5, 0.9], np.float32)
    x = ta.asarray(start, device=eager_lane.device)
    grad = ta.grad(fn)
    run = ta.compile(grad) if compiled else grad
    wanted = grad(ta.asarray(start)).numpy()
    allowed = 10 * SINGLE
    close(np.array(run(x).numpy()), wanted, allowed)


def test_a_while_loop_waits_for_its_condition(eager_lane: Lane) -> None:
    x = ta.asarray(np.asarray([1.0, 2.0], np.float32), device=eager_lane.device)
    before = eager_lane.device.counts["map"]
    assert until_large(x).tolist() == [32.0, 64.0]
    assert eager_lane.device.counts["map"] > before
