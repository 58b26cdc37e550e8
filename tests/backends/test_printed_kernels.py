"""What printed kernels compute, on each lane that can compile or run them.

`printing_lane` is each lane of `printing_support` that `TENFERRO_BACKENDS` names. Split
reductions, blocks of products, sums onto a value, chains, the limits of integers, and
what IEEE arithmetic says about special values; the table itself runs on the lanes
(`test_op_table.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import scipy.special

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import CPU, infer_call
from tenferro_ad.backends.printing import Strided, contiguous
from tenferro_ad.ops import OPS, Elementwise, Equation, Write
from tests.backends.printing_support import (
    PrintingLane,
    call_of,
    compute,
    compute_each,
    layout_of,
)
from tests.ops.samples import load

Array = np.ndarray[Any, Any]
ROWS = load()
F2, F4, F8 = map(np.dtype, (np.float16, np.float32, np.float64))


# ---- reductions and products ---------------------------------------------------------


def draw(shape: tuple[int, ...], dtype: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal(shape), dtype)


def wide(fn: Callable[..., Any], *xs: Array) -> Any:
    """The reference, in double precision."""
    return fn(*[x.astype(np.result_type(x.dtype, F8)) for x in xs])


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_long_reductions_are_split_and_stay_accurate(
    printing_lane: PrintingLane, dtype: Any, axes: tuple[int, ...]
) -> None:
    lane = printing_lane
    if not lane.has(dtype):
        return
    x = draw((90, 61) if lane.is_slow else (3001, 300), dtype)[::-1, ::2]

    cases: list[tuple[str, Any, tuple[Any, ...]]] = []

    def check(name: str, wanted: Any, *params: Any) -> None:
        cases.append((name, wanted, params))

    check("sum", wide(lambda v: v.sum(axes), x), axes, False)
    check("mean", wide(lambda v: v.mean(axes, keepdims=True), x), axes, True)
    check("max", x.max(axes), axes, False)
    check("std", wide(lambda v: v.std(axes, ddof=1), x), axes, 1.0, False)
    norm = wide(lambda v: (np.abs(v) ** 3).sum(axes) ** (1 / 3), x)
    check("vector_norm", norm, 3.0, axes, False)
    log = wide(lambda v: scipy.special.logsumexp(v, axes), x)
    check("logsumexp", log, axes, False)
    check("softmax", wide(lambda v: scipy.special.softmax(v, axes), x), axes)
    check("log_softmax", wide(lambda v: scipy.special.log_softmax(v, axes), x), axes)
    check("argmax", np.argmax(x), None, False)
    found = compute_each(lane, [(OPS[name], [x], params) for name, _, params in cases])
    for (_, wanted, _), seen in zip(cases, found, strict=True):
        lane.close(seen, wanted)
    if lane.computes and axes == (0, 1):
        first = compute(lane, OPS["sum"], [x], (axes, False))[0]
        assert first == compute(lane, OPS["sum"], [x], (axes, False))[0]


SHAPES = [(64, 64, 64), (130, 257, 40), (3, 16, 5000), (1, 1, 5000), (200, 10, 784)]


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
@pytest.mark.parametrize("kind", ["float32", "complex64", "float64"])
def test_products_in_blocks_and_strips(
    printing_lane: PrintingLane, m: int, n: int, k: int, kind: str
) -> None:
    lane = printing_lane
    if not lane.has(np.dtype(kind)):
        return
    if lane.is_slow:
        m, n, k = min(m, 34), min(n, 66), min(k, 33)
    x, y = draw((m, k), kind), draw((n, k), kind, 1).T
    if kind[0] == "c":
        x, y = x * (1 + 0.5j), np.conj(y * (0.3 - 1j))
    bar = np.conj(y).T
    wanted = wide(np.matmul, x, y)
    for op, a, b in (("matmul", x, y), ("matmul_nt", x, bar), ("matmul_tn", None, y)):
        left = np.conj(x).T.copy() if a is None else a
        (seen,) = compute(lane, OPS[op], [left, b])
        lane.close(seen, wanted)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("stride", "padding", "dilation"),
    [((1, 1), (1, 1), (1, 1)), ((2, 1), (0, 2), (1, 2))],
)
def test_convolutions_and_their_adjoints(
    printing_lane: PrintingLane,
    groups: int,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
) -> None:
    lane, how = printing_lane, (stride, padding, dilation, groups)
    side = 7 if lane.is_slow else 28
    x, w = draw((2, 6, side, side), F4), draw((8, 6 // groups, 3, 3), F4, 1)

    def check(name: str, a: Array, b: Array, *params: Any) -> Array:
        op, double = OPS[name], [a.astype(F8), b.astype(F8)]
        call = call_of(op, double, params)
        wanted = np.empty(call.out.shape)
        assert isinstance(op.kernel, Write)
        op.kernel.fn(call, [wanted], double)
        (seen,) = compute(lane, op, [a, b], params)
        lane.close(seen, wanted)
        return wanted.astype(F4)

    y = check("conv", x, w, *how)
    check("conv_input", y, w, x.shape, *how)
    check("conv_weight", x, y, w.shape, *how)


def test_convolutions_of_narrow_images_are_blocks_too(
    printing_lane: PrintingLane,
) -> None:
    """Blocks are no wider than an image; long sums stay as accurate as elsewhere."""
    lane, how = printing_lane, ((1, 1), (1, 1), (1, 1), 1)
    b, o, i = (4, 8, 8) if lane.is_slow else (64, 24, 16)
    x, w, y = draw((b, i, 8, 8), F4), draw((o, i, 3, 3), F4, 1), draw((b, o, 8, 8), F4)
    for name, ins, params in (
        ("conv", (x, w), how),
        ("conv_input", (y, w), (x.shape, *how)),
        ("conv_weight", (x, y), (w.shape, *how)),
    ):
        op, double = OPS[name], [a.astype(F8) for a in ins]
        call = call_of(op, double, params)
        wanted = np.empty(call.out.shape)
        assert isinstance(op.kernel, Write)
        op.kernel.fn(call, [wanted], double)
        (seen,) = compute(lane, op, ins, params)
        lane.close(seen, wanted, 1e-6)


def test_long_products_add_up_in_parts(printing_lane: PrintingLane) -> None:
    lane = printing_lane
    k = 200 if lane.is_slow else 20_000
    x, y = abs(draw((32, k), F4)), abs(draw((k, 64), F4, 1))
    (seen,) = compute(lane, OPS["matmul"], [x, y])
    lane.close(seen, wide(np.matmul, x, y))


def test_results_are_added_to_what_is_there(printing_lane: PrintingLane) -> None:
    lane = printing_lane
    a, b, onto = draw((40, 30), F4), draw((30, 50), F4, 1), draw((40, 50), F4, 2)
    (seen,) = compute(lane, OPS["matmul"], [a, b], onto=onto)
    lane.close(seen, onto + wide(np.matmul, a, b))
    part, onto = draw((2, 3), F4), draw((4, 5), F4, 3)
    key = ((1, 2, 1), (0, 3, 2))
    (seen,) = compute(lane, OPS["place"], [part], ((4, 5), key, 0), onto=onto)
    wanted = onto.copy()
    wanted[1:3, ::2] += part
    lane.close(seen, wanted)
    (seen,) = compute(lane, OPS["softmax"], [onto], ((1,),), onto=onto)
    lane.close(seen, onto + scipy.special.softmax(onto, 1))
    (seen,) = compute(lane, OPS["cumulative_sum"], [onto], (0, False), onto=onto)
    lane.close(seen, onto + np.cumsum(onto, 0))


# ---- chains and copies ---------------------------------------------------------------


def chained(
    lane: PrintingLane,
    steps: Sequence[tuple[str, tuple[int, ...], tuple[Any, ...]]],
    operands: Sequence[Array],
    outputs: Sequence[int],
) -> list[Array]:
    """Equations over variables 0, 1, ... (operands first) as one kernel."""
    avals = [aval_of(x.shape, x.dtype, CPU) for x in operands]
    equations = []
    for name, ins, params in steps:
        call = infer_call(OPS[name], tuple(avals[v] for v in ins), params, CPU)
        equations.append(Equation(call, ins, (len(avals),)))
        avals.append(call.out)
    bases, layouts = zip(*[layout_of(x) for x in operands], strict=True)
    outs = [np.empty(avals[v].shape, avals[v].dtype) for v in outputs]
    lowered = lane.printer.lower_chain(
        equations,
        range(len(operands)),
        outputs,
        layouts,
        [Strided(0, contiguous(y.shape)) for y in outs],
    )
    assert len(lowered.launches) == 1
    return lane.run(lowered, list(bases), outs, {})


def test_a_chain_is_one_kernel(printing_lane: PrintingLane) -> None:
    lane = printing_lane
    x, y = draw((5, 7), F4), draw((7,), F4, 1)
    steps: list[tuple[str, tuple[int, ...], tuple[Any, ...]]] = [
        ("tanh", (0,), ()),
        ("broadcast_to", (1,), ((5, 7),)),
        ("mul", (2, 3), ()),
        ("greater", (4, 0), ()),
        ("astype", (5,), (F4,)),
        ("select", (5, 4, 0), ()),
        ("add", (7, 6), ()),
    ]
    seen = chained(lane, steps, [x.copy().T.copy().T, y], [4, 8])
    product = np.tanh(x) * y
    lane.close(seen[0], product)
    larger = product > x
    lane.close(seen[1], np.where(larger, product, x) + larger)


def test_views_are_laid_out_in_order(printing_lane: PrintingLane) -> None:
    lane = printing_lane
    for kind in ("float32", "int32", "bool", "complex64", "float64", "int64"):
        if not lane.has(np.dtype(kind)):
            continue
        view = (draw((6, 8), F8) * 3).astype(kind)[::-2, 1::3].T
        base, place = layout_of(view)
        aval = aval_of(view.shape, view.dtype, CPU)
        target = Strided(0, contiguous(view.shape))
        lowered = lane.printer.lower_copy(aval, place, target)
        (seen,) = lane.run(lowered, [base], [np.empty(view.shape, kind)], {})
        lane.close(seen, view)


# ---- numbers -------------------------------------------------------------------------

INTEGERS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floor_divide": np.floor_divide,
    "remainder": np.remainder,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    "maximum": np.maximum,
    "less": np.less,
    "not_equal": np.not_equal,
    "bitwise_xor": np.bitwise_xor,
}
OF_ONE_INTEGER = {
    "neg": np.negative,
    "sign": np.sign,
    "square": np.square,
    "abs": np.abs,
    "bitwise_invert": np.invert,
    "signbit": np.signbit,
}


@pytest.mark.parametrize("kind", "int8 int16 int32 int64 uint8 uint32 uint64".split())
def test_integers_wrap_and_divide_as_numpy_has_it(
    printing_lane: PrintingLane, kind: str
) -> None:
    lane = printing_lane
    if not lane.has(np.dtype(kind)):
        return
    least, most = np.iinfo(kind).min, np.iinfo(kind).max
    values = np.array([least, most, 0, 1, 3, 7, 100, most - 1, least + 1], kind)
    x, y = (np.ascontiguousarray(v) for v in np.meshgrid(values, values))
    cases: list[tuple[str, Any, list[Array]]] = [
        *[(name, fn, [x, y]) for name, fn in INTEGERS.items()],
        *[(name, fn, [values]) for name, fn in OF_ONE_INTEGER.items()],
    ]
    found = compute_each(lane, [(OPS[name], xs, ()) for name, _, xs in cases])
    with np.errstate(all="ignore"):
        for (_, fn, xs), seen in zip(cases, found, strict=True):
            lane.close(seen, fn(*xs))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 25.0, -20.0, 300.0, -700.0, 1e-30, 3e38]
SPECIAL += [math.inf, -math.inf, math.nan]
IEEE = "neg abs sign sqrt exp expm1 exp2 log log1p log2 log10 sin cos atan tanh sinh "
IEEE += "cosh asin acos asinh acosh atanh cbrt floor ceil trunc round reciprocal erf "
IEEE += "erfc sigmoid softplus relu isnan isinf isfinite signbit square"
PAIRS = "add sub mul div pow maximum minimum atan2 hypot copysign logaddexp less "
PAIRS += "greater_equal equal not_equal remainder floor_divide szmul nextafter"


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_special_values(printing_lane: PrintingLane, dtype: Any) -> None:
    """NaN, infinities and signed zeros, for every function that IEEE speaks of."""
    lane = printing_lane
    if not lane.has(dtype):
        return
    x = np.array(SPECIAL, dtype)
    a, b = (np.ascontiguousarray(v) for v in np.meshgrid(x, x))
    names = (*IEEE.split(), *PAIRS.split())
    cases = [[x] if len(OPS[name].args) == 1 else [a, b] for name in names]
    given = [(OPS[name], xs, ()) for name, xs in zip(names, cases, strict=True)]
    found = compute_each(lane, given)
    with np.errstate(all="ignore"):
        for name, operands, seen in zip(names, cases, found, strict=True):
            wanted = np.asarray(ROWS[name].reference(*operands))
            special_agrees(lane, name, seen, wanted.astype(seen.dtype))


def test_the_next_half(printing_lane: PrintingLane) -> None:
    """Halves are computed in single precision, which has other numbers between them."""
    lane = printing_lane
    if not lane.has(F2):
        return
    every = np.arange(0, 2**16, 61 if lane.is_slow else 1, dtype=np.uint16)
    x = every.view(np.float16)
    with np.errstate(all="ignore"):
        for towards in (math.inf, 0.0, -math.inf):
            y = np.full(x.shape, towards, np.float16)
            (seen,) = compute(lane, OPS["nextafter"], [x, y])
            if lane.computes:
                wanted = np.nextafter(x, y)
                assert np.array_equal(seen, wanted, equal_nan=True)
                other = (x != y) & ~np.isnan(x)
                signs = np.signbit(wanted[other])
                assert np.array_equal(np.signbit(seen[other]), signs)


ODD = (
    "neg sin tan asin atan sinh tanh asinh atanh cbrt expm1 log1p erf erfinv dawsn j1 "
)
ODD += "floor ceil trunc round sqrt"


@pytest.mark.parametrize("dtype", [F4, F8], ids=str)
def test_zero_keeps_its_sign(printing_lane: PrintingLane, dtype: Any) -> None:
    """What goes through zero gives a zero of the same sign."""
    lane = printing_lane
    if not lane.has(dtype):
        return
    x = np.array([0.0, -0.0], dtype)
    names = ODD.split()
    found = compute_each(lane, [(OPS[name], [x], ()) for name in names])
    for name, seen in zip(names, found, strict=True):
        if lane.computes:
            wanted = np.signbit(-x) if name == "neg" else np.signbit(x)
            assert np.all(seen == 0), name
            assert np.array_equal(np.signbit(seen), wanted), name


def special_agrees(lane: PrintingLane, name: str, seen: Array, wanted: Array) -> None:
    """Equal, up to rounding relative to each value."""
    if not lane.computes:
        return
    assert np.array_equal(np.isnan(seen), np.isnan(wanted)), name
    if seen.dtype.kind != "f":
        assert np.array_equal(seen, wanted), name
        return
    real = ~np.isnan(wanted)
    allowed = 64 if "pow" not in name else 1024
    close_by = np.isclose(
        seen[real], wanted[real], rtol=allowed * np.finfo(seen.dtype).eps, atol=1e-37
    )
    assert np.all(close_by), (name, seen[real][~close_by], wanted[real][~close_by])
    if name not in ("relu", "maximum", "minimum"):  # of two zeros either is largest
        assert np.array_equal(np.signbit(seen[real]), np.signbit(wanted[real])), name


def test_complex_functions_agree_off_their_cuts(printing_lane: PrintingLane) -> None:
    lane = printing_lane
    parts = np.array([-3.0, -0.4, 0.3, 2.0, 5.0], F4)
    z = np.ascontiguousarray((parts[:, None] + 1j * parts).astype(np.complex64))
    names = [
        name
        for name, op in OPS.items()
        if isinstance(op.kernel, Elementwise)
        and len(op.args) == 1
        and any(s.operands[0].dtype.kind == "c" for s in ROWS[name].samples)
    ]
    assert len(names) > 30
    for name in names:
        (seen,) = compute(lane, OPS[name], [z])
        wanted = np.asarray(wide(ROWS[name].reference, z)).astype(seen.dtype)
        if lane.computes:
            assert np.allclose(seen, wanted, rtol=2e-5, atol=2e-6), name
