"""No row hides memory: NumPy allocates what the ledger and the row's formula say.

Between operations the live bytes of the ledger and the pool are what is alive in
NumPy's domain of `tracemalloc`. During an operation the peak stays within the peak of
the ledger, the pool, and the workspace that the row declares (decision A4: scratch is
no value, has no event, and is bounded by a formula). For every sample of every row and
its reverse rule; for operands in other layouts, and large ones, because a formula that
is right for twelve elements may not be for a million.

Sizes are normalised: a root that comes from the pool is a multiple of 64 bytes, and one
without elements has memory all the same (`ROUNDING` for each root).
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS, Library, Op, Write
from tenferro_ad.runtime import plan_of
from tenferro_ad.testing._agree import weights_for
from tenferro_ad.testing._retained import recorded
from tests.numpy_memory import NumpyMemory, traced
from tests.ops.samples import Row, Sample, at, handle, load

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")
ROWS = load()
MEMORY = NumpyMemory()
ROUNDING = 80
LARGE = 40_000  # elements of a large operand
MOST = 1 << 24  # bytes of a result that is worth the time

Array = np.ndarray[Any, Any]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Large samples leave the points that samples are drawn at."""
    with np.errstate(all="ignore"):
        yield
    CPU.trim()


# ---- one measurement -----------------------------------------------------------------


class Measured:
    """What one piece of work took, by the ledger and by NumPy."""

    ledger: Any
    live: int  # of NumPy's domain, beyond what there was before
    peak: int
    pool: int

    @property
    def slack(self) -> int:
        return ROUNDING * max(sum(self.ledger.allocations.values()), 1)

    def check(self) -> None:
        """Raises: AssertionError: memory that neither ledger nor formula knows."""
        known = self.ledger.peak_bytes + self.pool + self.ledger.workspace
        assert self.peak <= known + self.slack, (
            f"the peak is {self.peak} bytes; values take {self.ledger.peak_bytes}, "
            f"the pool {self.pool}, and the declared workspace "
            f"{self.ledger.workspace}"
        )
        held = self.ledger.live_bytes + self.pool
        assert held <= self.live <= held + self.slack, (
            f"{self.live} bytes are alive; values take {self.ledger.live_bytes} and "
            f"the pool {self.pool}"
        )


@contextmanager
def measured() -> Iterator[Measured]:
    """Once everything that is made on first use exists."""
    CPU.trim()
    found = Measured()
    with ta.ledger(detail=False) as found.ledger, MEMORY.watching():
        before = MEMORY.live
        MEMORY.restart()
        yield found
        found.peak, found.live = MEMORY.peak - before, MEMORY.live - before
        found.pool = CPU.pool_bytes


def run_forward(row: Row, sample: Sample, operands: list[Any]) -> None:
    """The second time: the first one makes the plan."""
    with measured() as found:
        outs = row.apply(sample, operands)
    found.check()
    del outs


# ---- layouts and sizes ---------------------------------------------------------------


def as_given(x: Array) -> Array:
    return x


def strided(x: Array) -> Array:
    """Negative steps with gaps along every axis."""
    if not x.ndim or not x.size:
        return x
    view = np.zeros([2 * n for n in x.shape], x.dtype)[
        (slice(None, None, -2),) * x.ndim
    ]
    view[...] = x
    return view


def turned(x: Array) -> Array:
    """The first axis is the fastest."""
    return np.ascontiguousarray(x.T).T if x.ndim > 1 else x


def halves(x: Array) -> Array:
    """Real floating numbers as halves, which are computed with in single precision."""
    return x.astype(np.float16, order="C") if x.dtype.kind == "f" else x


LAYOUTS: list[Callable[[Array], Array]] = [as_given, strided, turned, halves]
# Rows that give views, and refuse the layouts that have none.
VIEWS_ONLY = {"view_as_complex"}


def also_halved(arrays: list[Array]) -> Iterator[list[Array]]:
    yield arrays
    if any(x.dtype.char == "f" for x in arrays):
        yield [halves(x) for x in arrays]


def enlarged(sample: Sample) -> list[Array] | None:
    """The operands repeated along every axis; None where nothing can grow."""
    axes = max([x.ndim for x in sample.operands], default=0)
    size = max([x.size for x in sample.operands], default=0)
    if not axes or not 0 < size <= LARGE:
        return None
    times = max(2, round((LARGE / size) ** (1 / axes)))
    return [np.tile(x, [times] * x.ndim) if x.ndim else x for x in sample.operands]


def draw(*shape: int, dtype: Any = np.float64, seed: int = 0) -> Array:
    rng = np.random.default_rng([seed, *shape])
    if np.dtype(dtype).kind in "iu":
        return np.asarray(rng.integers(0, 7, shape), dtype)
    x = rng.uniform(-1, 1, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.uniform(-1, 1, shape)
    return np.asarray(x, dtype)


def regular(*shape: int, dtype: Any = np.float64) -> Array:
    """Hermitian and positive definite."""
    x = draw(*shape, dtype=dtype)
    return np.asarray(
        x @ np.conj(np.swapaxes(x, -1, -2)) + shape[-1] * np.eye(shape[-1]), dtype
    )


F8, F4, F2 = np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16)
C16, I8 = np.dtype(np.complex128), np.dtype(np.int64)
KEY = np.array([1, 2], np.uint32)
POOL = ((2, 3), (2, 2), (0, 1))
CONV = ((1, 2), (1, 0), (1, 1), 2)
_DTYPES = (F8, F4, C16, np.dtype(np.complex64))
# Operands and parameters of rows whose parameters say shapes, or whose operands must
# fit each other: what `enlarged` cannot make.
BY_HAND: dict[str, list[tuple[tuple[Array, ...], tuple[Any, ...]]]] = {
    "full": [((), ((300, 200), d, "0.5", CPU)) for d in (F8, F2, I8)],
    "arange": [((), ("0", "60000", "1", 60_000, d, CPU)) for d in (F8, F4, I8)],
    "linspace": [((), ("0", "1", 60_000, True, d, CPU)) for d in (F8, F4, C16)],
    "eye": [((), (300, 200, 1, d, CPU)) for d in (F8, F4, I8)],
    "place": [
        ((draw(150, 200),), ((300, 200), ((0, 150, 2), (0, 200, 1)), v)) for v in (0, 1)
    ],
    "place_diagonal": [((draw(3, 150),), ((3, 150, 150), 0, 1, 2))],
    "pack_complex": [((draw(300, 100, 2).T.copy().T,), ())],
    "gather": [((draw(300, 200), draw(2, 9000, dtype=I8)), ((0, 1), 0))],
    "scatter_add": [
        ((draw(9000, dtype=d), draw(2, 9000, dtype=I8)), ((300, 200), (0, 1), 0))
        for d in (F8, F4, F2, C16)
    ],
    "cholesky": [((regular(*s, dtype=d),), ()) for s in ((90, 90), (3, 40, 40))
                 for d in _DTYPES],
    "inv": [((regular(*s, dtype=d),), ()) for s in ((90, 90), (3, 40, 40))
            for d in _DTYPES],
    "conv_input": [((draw(2, 4, 20, 9), draw(4, 3, 3, 2)), ((2, 6, 20, 19), *CONV))],
    "conv_weight": [((draw(2, 6, 20, 19), draw(2, 4, 20, 9)), ((4, 3, 3, 2), *CONV))],
    "avg_pool_input": [((draw(5, 4, 20, 21),), ((5, 4, 41, 41), *POOL))],
    "random_bits": [((KEY,), ((300, 100), np.dtype(np.uint32), 0))],
    "random_uniform": [((KEY,), ((300, 100), d)) for d in (F8, F4)],
    "random_normal": [((KEY,), ((300, 100), d)) for d in (F8, F4)],
    "random_integers": [((KEY,), ((300, 100), I8, 0, 9))],
    "philox": [((KEY, draw(3000, 4, dtype=np.uint32)), ())],
    "tie_count": [
        ((draw(300, 200, dtype=d), draw(1, 200, dtype=d)), ((0,),)) for d in (F8, F2)
    ],
    "lanes": [((draw(300, 200),), ((0,), 512, 1))],
    "unlanes": [((draw(200, 512),), ((300, 200), (0,)))],
}  # fmt: skip


def is_grown(row: Row) -> bool:
    """Elementwise rows have large samples already; views and regions of operations
    have no formula of their own."""
    return isinstance(row.op.kernel, Write | Library)


def grown(row: Row) -> Iterator[tuple[Sample, list[Array]]]:
    """Samples of the row with large operands."""
    for operands, params in BY_HAND.get(row.name, []):
        for arrays in also_halved(list(operands)):
            yield Sample("by hand", operands, params), arrays
    if row.name in BY_HAND:
        return
    for sample in row.samples:
        arrays = enlarged(sample)
        if arrays is not None:
            for given in also_halved(arrays):
                yield sample, given


# ---- every row -----------------------------------------------------------------------


@pytest.mark.parametrize("name", list(OPS))
def test_an_operation_stays_within_its_outputs_and_its_formula(name: str) -> None:
    row = ROWS[name]
    for sample in row.samples:
        for layout in LAYOUTS[:1] if name in VIEWS_ONLY else LAYOUTS:
            with at(name, sample):
                operands = [handle(layout(x)) for x in sample.operands]
                try:
                    row.apply(sample, operands)
                except ta.errors.TenferroError:
                    assert layout is halves  # a row without halves
                    continue
                run_forward(row, sample, operands)


@pytest.mark.parametrize("name", [n for n in OPS if is_grown(ROWS[n])])
def test_a_large_operation_stays_within_its_formula(name: str) -> None:
    row, ran = ROWS[name], 0
    for sample, arrays in grown(row):
        operands = [handle(x) for x in arrays]
        try:
            call = plan_of(row.op, tuple(x.aval for x in operands), sample.params).call
            if sum(y.nbytes for y in call.outs) > MOST:
                continue
            row.apply(sample, operands)
        except (ta.errors.TenferroError, ValueError):
            # Repeated operands need not make sense together; some sample's do.
            assert name not in BY_HAND or any(x.dtype == F2 for x in arrays)
            continue
        with at(name, sample):
            run_forward(row, sample, operands)
        ran += 1
    assert ran


@pytest.mark.parametrize("name", [n for n in OPS if any(ROWS[n].differentiable())])
def test_a_reverse_rule_stays_within_its_outputs_and_formulas(name: str) -> None:
    row = ROWS[name]
    for sample in row.differentiable():
        with at(name, sample):
            tape, leaves, outs = recorded(row, sample, row.tracked(sample))
            seed = ta.asarray(weights_for(row, sample, outs)[0])
            tape.backward(outs[0], cotangent=seed, retain=True)
            with measured() as found:
                grads = tape.backward(outs[0], cotangent=seed, retain=True)
            found.check()
            del grads, leaves, outs, seed, tape


@pytest.mark.parametrize("name", list(OPS))
def test_between_operations_tracemalloc_sees_values_and_pool(name: str) -> None:
    """What is alive after an operation and after its derivative, and nothing once all
    is dropped."""
    row = ROWS[name]
    sample = max(row.samples, key=lambda s: sum(x.nbytes for x in s.operands))
    with at(name, sample):
        row.apply(sample, [handle(x) for x in sample.operands])
        CPU.trim()
        before = BASE.live_bytes
        tracemalloc.start()
        try:
            operands = [handle(x) for x in sample.operands]
            bases = sum(x._record.array.nbytes for x in operands)
            outs: Any = row.apply(sample, operands)
            seen, held = traced(), BASE.live_bytes - before + CPU.pool_bytes
            roots = ROUNDING * (1 + len(operands) + len(row.op.outs) * len(operands))
            assert held <= seen <= held + roots, (seen, held, bases)
            del outs, operands
            seen, held = traced(), BASE.live_bytes - before + CPU.pool_bytes
            assert held <= seen <= held + ROUNDING
            CPU.trim()
            assert traced() <= ROUNDING
        finally:
            tracemalloc.stop()


# ---- the measurement can fail --------------------------------------------------------


def planted(kernel: Callable[..., None], declared: int = 0) -> Callable[..., Any]:
    op = Op(
        "planted",
        ("x",),
        infer=lambda x: (x.shape, x.dtype),
        kernel=Write(kernel, lambda call: declared),
    )
    return HANDLES[op]


def honest(call: Any, outs: list[Array], ins: list[Array]) -> None:
    np.add(ins[0], 1.0, outs[0])


def copying(call: Any, outs: list[Array], ins: list[Array]) -> None:
    np.add(ins[0].copy(), 1.0, outs[0])


KEPT: list[Array] = []


def keeping(call: Any, outs: list[Array], ins: list[Array]) -> None:
    honest(call, outs, ins)
    KEPT.append(ins[0][:100].copy())


@pytest.mark.parametrize("size", [200, 50_000])
def test_a_hidden_temporary_is_seen_and_a_declared_one_is_not(size: int) -> None:
    x = ta.asarray(np.ones(size))
    for kernel, declared, fine in (
        (honest, 0, True),
        (copying, 0, False),
        (copying, 8 * size - 200, False),
        (copying, 8 * size, True),
    ):
        fn = planted(kernel, declared)
        with measured() as found:
            out = fn(x)
        if fine:
            found.check()
        else:
            with pytest.raises(AssertionError, match="declared workspace"):
                found.check()
        del out


def test_memory_that_stays_is_seen() -> None:
    x, fn = ta.asarray(np.ones(200)), planted(keeping, 8000)
    with measured() as found:
        out = fn(x)
    KEPT.clear()
    with pytest.raises(AssertionError, match="alive"):
        found.check()
    del out


def test_the_two_measures_of_numpy_agree() -> None:
    """The handler counts what `tracemalloc` counts."""
    tracemalloc.start()
    try:
        with MEMORY.watching():
            before = MEMORY.live, traced()
            held = [np.ones(1000), np.zeros((3, 50)), np.arange(7)]
            held.append(held[0] * 2.0)
            assert MEMORY.live - before[0] == traced() - before[1] == 16_000 + 1200 + 56
            del held
            assert MEMORY.live == before[0]
    finally:
        tracemalloc.stop()


def test_rows_by_hand_exist() -> None:
    assert set(BY_HAND) <= set(OPS)
