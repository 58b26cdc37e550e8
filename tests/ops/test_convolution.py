"""Convolution and pooling: values, adjoints, closed derivatives, scratch, ledgers."""

import tracemalloc

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import DTypeError, InvalidArgumentError, ShapeError

# (batch, channels, out channels, groups), image, kernel, stride, padding, dilation. The
# first part runs along contiguous taps, the second gathers windows, the third gathers
# them with the images innermost.
CONVOLUTIONS = {
    "same": ((3, 4, 6, 1), (8, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    "valid": ((3, 2, 3, 1), (9, 9), (2, 3), (1, 1), (0, 0), (1, 1)),
    "groups": ((2, 4, 6, 2), (8, 7), (3, 2), (1, 1), (1, 0), (1, 1)),
    "depthwise": ((2, 4, 8, 4), (6, 7), (3, 3), (1, 1), (1, 1), (1, 1)),
    "blocks": ((90, 3, 5, 1), (12, 12), (3, 3), (1, 1), (1, 1), (1, 1)),
    "pointwise": ((2, 3, 5, 1), (6, 6), (1, 1), (1, 1), (0, 0), (1, 1)),
    "many out": ((2, 2, 9, 1), (6, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    "one axis": ((4, 3, 5, 1), (30,), (3,), (1,), (1,), (1,)),
    "three axes": ((2, 2, 3, 1), (4, 5, 6), (3, 2, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1)),
    "strides": ((3, 4, 6, 2), (9, 7), (3, 3), (2, 2), (1, 1), (1, 1)),
    "uneven": ((3, 4, 6, 1), (9, 7), (3, 3), (2, 1), (2, 1), (1, 2)),
    "skipping": ((2, 3, 5, 1), (6, 6), (1, 1), (2, 2), (0, 0), (1, 1)),
    "wide padding": ((2, 3, 5, 1), (4, 4), (2, 2), (1, 1), (3, 3), (1, 1)),
    "big kernel": ((2, 3, 5, 1), (8, 8), (6, 6), (1, 1), (0, 0), (1, 1)),
    "remainder": ((2, 3, 5, 1), (8, 8), (3, 3), (3, 3), (0, 0), (1, 1)),
    "no images": ((0, 3, 5, 1), (6, 6), (3, 3), (1, 1), (1, 1), (1, 1)),
    "small": ((3, 16, 16, 1), (4, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    "small groups": ((2, 16, 32, 2), (3, 3), (3, 3), (1, 1), (1, 1), (1, 1)),
    "small strides": ((5, 16, 16, 1), (4, 4), (3, 3), (2, 2), (1, 1), (1, 1)),
    "small blocks": ((60, 16, 16, 1), (4, 4), (3, 3), (1, 1), (1, 1), (1, 1)),
}
cases = pytest.mark.parametrize("case", CONVOLUTIONS)


def draw(shape, dtype, seed):
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * rng.standard_normal(shape)
    return values.astype(dtype)


def operands(case, dtype):
    (n, c, o, groups), spatial, kernel, *how = CONVOLUTIONS[case]
    x = draw((n, c, *spatial), dtype, 1)
    w = draw((o, c // groups, *kernel), dtype, 2)
    return x, w, (*how, groups)


def by_definition(x, w, stride, padding, dilation, groups):
    """Sum over taps, straight from the definition."""
    spatial = x.ndim - 2
    x = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    grid = [
        (x.shape[2 + k] - dilation[k] * (w.shape[2 + k] - 1) - 1) // stride[k] + 1
        for k in range(spatial)
    ]
    x = x.reshape(x.shape[0], groups, w.shape[1], *x.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    out = np.zeros((x.shape[0], groups, w.shape[1], *grid), np.result_type(x, w))
    for tap in np.ndindex(*w.shape[3:]):
        at = [
            slice(t * d, t * d + (m - 1) * s + 1, s)
            for t, d, m, s in zip(tap, dilation, grid, stride, strict=True)
        ]
        part = x[(..., *at)]
        out += np.einsum("ngi...,goi->ngo...", part, w[(..., *tap)])
    return out.reshape(out.shape[0], groups * w.shape[1], *grid)


def pairing(a, b):
    return np.real(np.vdot(a, b))


def close(a, b, tolerance=1e-10):
    a, b = np.asarray(a), np.asarray(b)
    assert a.shape == b.shape
    scale = max(1.0, np.abs(b).max(initial=0))
    assert np.abs(a - b).max(initial=0) <= tolerance * scale


CONV = ta.engine.HANDLES.conv
BACK = ta.engine.HANDLES.conv_input, ta.engine.HANDLES.conv_weight


@cases
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex128"])
def test_convolution_is_its_definition(case, dtype):
    x, w, how = operands(case, dtype)
    y = CONV(ta.asarray(x), ta.asarray(w), *how)
    assert y.dtype == dtype
    close(y, by_definition(x, w, *how), 2e-5 if dtype == "float32" else 1e-10)


@cases
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_transposes_are_adjoint(case, dtype):
    x, w, how = operands(case, dtype)
    y = by_definition(x, w, *how)
    ct = draw(y.shape, dtype, 3)
    gx = ta.engine.HANDLES.conv_input(ta.asarray(ct), ta.asarray(w), x.shape, *how)
    gw = ta.engine.HANDLES.conv_weight(ta.asarray(x), ta.asarray(ct), w.shape, *how)
    expected = pairing(ct, y)
    assert pairing(gx, x) == pytest.approx(expected, rel=1e-10, abs=1e-10)
    assert pairing(gw, w) == pytest.approx(expected, rel=1e-10, abs=1e-10)


def rows(case):
    """Each row as a function of its two operands, with their shapes."""
    x, w, how = operands(case, "float64")
    y = by_definition(x, w, *how)
    h = ta.engine.HANDLES
    return {
        "conv": (lambda a, b: h.conv(a, b, *how), x.shape, w.shape),
        "conv_input": (
            lambda a, b: h.conv_input(a, b, x.shape, *how),
            y.shape,
            w.shape,
        ),
        "conv_weight": (
            lambda a, b: h.conv_weight(a, b, w.shape, *how),
            x.shape,
            y.shape,
        ),
    }


@pytest.mark.parametrize("case", ["same", "groups", "uneven", "wide padding"])
@pytest.mark.parametrize("row", ["conv", "conv_input", "conv_weight"])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_the_three_rows_are_closed_under_differentiation(case, row, dtype):
    fn, *shapes = rows(case)[row]
    a, b = (draw(s, dtype, k) for k, s in enumerate(shapes))
    ta_, tb = (draw(s, dtype, 5 + k) for k, s in enumerate(shapes))
    A, B, TA, TB = map(ta.asarray, (a, b, ta_, tb))
    # Bilinear, so the tangent is exact.
    out, tangent = ta.jvp(fn, (A, B), (TA, TB))
    close(tangent, np.asarray(fn(TA, B)) + np.asarray(fn(A, TB)))
    va, vb = ta.variable(a), ta.variable(b)
    with ta.Tape() as tape:
        y = fn(va, vb)
    ct = draw(out.shape, dtype, 9)
    grads = tape.backward(y, cotangent=ct)
    ga, gb = grads.grad(va).numpy(), grads.grad(vb).numpy()
    both = pairing(ga, ta_) + pairing(gb, tb)
    assert both == pytest.approx(pairing(ct, tangent), rel=1e-10)
    # Second order: the derivative of <ga, u> in b, once more by the pairing.

    def inner(b):
        with ta.Tape() as tape:
            leaf = ta.variable(ta.asarray(a))
            y = fn(leaf, b)
        return tape.backward(y, cotangent=ct).grad(leaf)

    moved = ta.asarray(b + 1e-3 * tb)
    step = (inner(moved).numpy() - inner(B).numpy()) / 1e-3
    _, pull = ta.vjp(lambda b: ta.vjp(lambda a: fn(a, b), A)[1](ta.asarray(ct))[0], B)
    (second,) = pull(TA)
    assert pairing(second, tb) == pytest.approx(pairing(ta_, step), rel=1e-6)


def test_real_image_and_complex_kernel():
    x, w, how = operands("same", "float64")
    w = w + 1j * draw(w.shape, "float64", 7)
    vx, vw = ta.variable(x), ta.variable(w)
    with ta.Tape() as tape:
        y = CONV(vx, vw, *how)
    close(ta.stop_gradient(y), by_definition(x, w, *how))
    ct = draw(y.shape, "complex128", 8)
    grads = tape.backward(y, cotangent=ct)
    assert grads.grad(vx).dtype == np.float64
    expected = pairing(ct, by_definition(x, w, *how))
    assert pairing(grads.grad(vx).numpy(), x) == pytest.approx(expected)
    assert pairing(grads.grad(vw).numpy(), w) == pytest.approx(expected)


def test_operands_may_have_any_strides():
    x, w, how = operands("same", "float64")
    turned = ta.asarray(np.ascontiguousarray(x.transpose(3, 2, 1, 0)))
    view = ta.permute_dims(turned, (3, 2, 1, 0))
    flipped = ta.permute_dims(
        ta.asarray(np.ascontiguousarray(w.transpose(1, 0, 3, 2))), (1, 0, 3, 2)
    )
    with ta.ledger() as led:
        y = CONV(view, flipped, *how)
    led.expect(allocations={"OperationOutput": 1}, copies={})
    close(y, by_definition(x, w, *how))


@pytest.mark.parametrize(
    "case",
    ["same", "groups", "blocks", "strides", "many out", "small", "small blocks"],
)
def test_scratch_stays_below_its_formula(case):
    from tenferro_ad.ops import _windows

    x, w, how = operands(case, "complex128")
    y = by_definition(x, w, *how)
    X, W, Y = map(ta.asarray, (x, w, y))
    calls = [
        lambda: ta.engine.HANDLES.conv(X, W, *how),
        lambda: ta.engine.HANDLES.conv_input(Y, W, x.shape, *how),
        lambda: ta.engine.HANDLES.conv_weight(X, Y, w.shape, *how),
    ]
    for call in calls:
        result = call().nbytes
        _windows._MEMORY.raw = np.empty(0, np.uint8)
        with ta.ledger() as led:
            tracemalloc.start()
            before = tracemalloc.get_traced_memory()[0]
            call()
            peak = tracemalloc.get_traced_memory()[1] - before
            tracemalloc.stop()
        assert led.workspace > 0
        assert peak <= led.workspace + result + 32_000


@pytest.mark.parametrize("dtype", ["float32", "complex128"])
def test_small_maps_lie_with_their_images_innermost(dtype):
    from tenferro_ad.ops._windows import geometry

    size = np.dtype(dtype).itemsize
    for case in (
        "small",
        "small groups",
        "small strides",
        "same",
        "depthwise",
        "strides",
    ):
        x, w, how = operands(case, dtype)
        assert geometry(x.shape, w.shape, *how, size).inner == ("small" in case), case
    x, w, how = operands("small blocks", dtype)
    found = geometry(x.shape, w.shape, *how, size)
    assert found.inner
    assert found.block == (60 if dtype == "float32" else 20)


@pytest.mark.parametrize("itemsize", [1, 4, 8, 16])
def test_rows_of_scratch_spread_over_the_cache(itemsize):
    from tenferro_ad.ops._windows import pitch

    found = [pitch(n, itemsize) for n in range(300)]
    assert all(n <= p <= n + 128 // itemsize for n, p in enumerate(found))
    assert all(p * itemsize // 64 % 2 == 1 for p in found)
    assert found == sorted(found)


def test_ledger_of_forward_and_backward():
    x, w, _ = operands("same", "float64")
    vx, vw = ta.variable(x), ta.variable(w)
    for _ in range(2):
        with ta.ledger() as led:
            with ta.Tape() as tape:
                y = ta.sum(ta.conv2d(vx, vw, padding=1))
            assert {r.operation for r in tape.retained()} == {"conv"}
            grads = tape.backward(y)
        # Product, sum and seed; two gradients.
        led.expect(allocations={"OperationOutput": 5}, copies={})
        del tape, grads, y


def test_bias_is_added_to_every_channel():
    x, w, how = operands("same", "float64")
    b = draw((6,), "float64", 4)
    close(
        ta.conv2d(x, w, b, padding=1),
        by_definition(x, w, *how) + b[:, None, None],
    )


@pytest.mark.parametrize("kernel", [(1, 2), (3, 4), (4, 1)])
@pytest.mark.parametrize("dilation", [1, 2])
def test_padding_by_name(kernel, dilation):
    """As many zeros as keep the size; of an odd number the later end gets one more."""
    rng = np.random.default_rng(3)
    x, w = rng.standard_normal((2, 4, 7, 6)), rng.standard_normal((6, 2, *kernel))
    lost = [dilation * (k - 1) for k in kernel]
    padded = np.pad(x, ((0, 0), (0, 0), *[(m // 2, m - m // 2) for m in lost]))

    def same(x, w):
        return ta.conv2d(x, w, padding="same", dilation=dilation, groups=2)

    y = np.asarray(same(x, w))
    assert y.shape == (2, 6, 7, 6)
    bare = ta.conv2d(padded, w, dilation=dilation, groups=2)
    np.testing.assert_allclose(y, np.asarray(bare), rtol=1e-12, atol=1e-12)
    valid = ta.conv2d(padded, w, padding="valid", dilation=dilation, groups=2)
    assert np.array_equal(np.asarray(valid), np.asarray(bare))
    ta.testing.check_grads(lambda x, w: ta.sin(same(x, w)), (x, w), order=1)


@pytest.mark.parametrize(
    "given", [{"padding": "SAME"}, {"padding": "same", "stride": 2}]
)
def test_padding_by_name_refuses_what_has_no_answer(given):
    with pytest.raises(InvalidArgumentError, match="`conv1d` refused `padding`"):
        ta.conv1d(np.ones((1, 1, 5)), np.ones((1, 1, 2)), **given)


def test_conv_refuses_what_does_not_fit():
    x, w, _ = operands("same", "float64")
    with pytest.raises(ShapeError, match="groups"):
        ta.conv2d(x, w[:, :3])
    with pytest.raises(ShapeError, match="groups"):
        ta.conv2d(x, w, groups=3)
    with pytest.raises(ShapeError, match="a window of"):
        ta.conv2d(x, w, dilation=4)
    with pytest.raises(ShapeError, match="4 axes"):
        ta.conv2d(x[0], w)
    with pytest.raises(ShapeError, match="output channels"):
        ta.conv2d(x, w, np.ones(5))
    with pytest.raises(InvalidArgumentError, match="stride"):
        ta.conv2d(x, w, stride=0)
    with pytest.raises(InvalidArgumentError, match="padding"):
        ta.conv2d(x, w, padding=(1, 1, 1))
    with pytest.raises(DTypeError, match="dilation"):
        ta.conv2d(x, w, dilation=1.5)


# ---- pooling -------------------------------------------------------------------------

POOLS = {
    "halves": ((8, 6), (2, 2), (2, 2), (0, 0)),
    "overlapping": ((7, 8), (3, 2), (1, 2), (0, 0)),
    "padded": ((7, 8), (3, 3), (2, 2), (1, 1)),
    "remainder": ((7, 5), (2, 3), (2, 3), (0, 0)),
    "gaps": ((9, 9), (2, 2), (3, 3), (1, 0)),
}
pools = pytest.mark.parametrize("pool", POOLS)


def pooled(x, kernel, stride, padding, reduce, fill):
    widths = [(0, 0), (0, 0), *[(p, p) for p in padding]]
    x = np.pad(x, widths, constant_values=fill)
    views = np.lib.stride_tricks.sliding_window_view(x, kernel, (2, 3))
    return reduce(views[:, :, :: stride[0], :: stride[1]], (4, 5))


def image(pool, ties=False):
    spatial, *window = POOLS[pool]
    x = draw((2, 3, *spatial), "float64", 6)
    return np.round(x) if ties else x, window


@pools
def test_pools_are_their_definition(pool):
    x, (kernel, stride, padding) = image(pool)
    how = {"stride": stride, "padding": padding}
    close(ta.max_pool2d(x, kernel, **how), pooled(x, *image(pool)[1], np.max, -np.inf))
    close(ta.avg_pool2d(x, kernel, **how), pooled(x, *image(pool)[1], np.mean, 0))
    inside = pooled(np.ones_like(x), kernel, stride, padding, np.mean, 0)
    close(
        ta.avg_pool2d(x, kernel, **how, count_include_pad=False),
        pooled(x, kernel, stride, padding, np.mean, 0) / inside,
    )


@pools
@pytest.mark.parametrize("fn", [ta.max_pool2d, ta.avg_pool2d])
@pytest.mark.parametrize("ties", [False, True])
def test_pool_derivatives_pair(pool, fn, ties):
    x, (kernel, stride, padding) = image(pool, ties)
    t = ta.asarray(draw(x.shape, "float64", 7))

    def f(x):
        return fn(x, kernel, stride=stride, padding=padding)

    X = ta.asarray(x)
    y, tangent = ta.jvp(f, (X,), (t,))
    ct = ta.asarray(draw(y.shape, "float64", 8))
    _, pull = ta.vjp(f, X)
    (g,) = pull(ct)
    assert pairing(g, t) == pytest.approx(pairing(ct, tangent), rel=1e-12)
    # The rules of the rules: linear in the cotangent, constant in the argument.
    _, again = ta.vjp(lambda ct: ta.vjp(f, X)[1](ct)[0], ct)
    close(again(t)[0], tangent)
    _, of_x = ta.vjp(lambda x: ta.vjp(f, x)[1](ct)[0], X)
    assert not np.asarray(of_x(t)[0]).any()
    if not ties:
        step = (
            np.asarray(f(ta.asarray(x + 1e-7 * np.asarray(t)))) - np.asarray(y)
        ) / 1e-7
        close(tangent, step, 1e-6)


def test_tied_maxima_share_equally():
    x = ta.variable(np.array([[[[1.0, 1.0], [0.0, 1.0]]]]))
    with ta.Tape() as tape:
        y = ta.sum(ta.max_pool2d(x, 2))
    g = tape.backward(y).grad(x).numpy()
    np.testing.assert_allclose(g, [[[[1 / 3, 1 / 3], [0, 1 / 3]]]])


def test_maxima_of_nan_and_of_integers():
    x = np.arange(16.0).reshape(1, 1, 4, 4)
    x[0, 0, 0, 0] = np.nan
    v = ta.variable(x)
    with ta.Tape() as tape:
        y = ta.max_pool2d(v, 2)
        total = ta.sum(y)
    out = np.asarray(ta.stop_gradient(y))
    assert np.isnan(out[0, 0, 0, 0])
    assert np.isfinite(out.ravel()[1:]).all()
    assert np.isfinite(tape.backward(total).grad(v).numpy()).all()
    ints = np.arange(-20, -4).reshape(1, 1, 4, 4)
    np.testing.assert_array_equal(
        np.asarray(ta.max_pool2d(ints, 3, padding=1, stride=2)).ravel(),
        [-15, -13, -7, -5],
    )


@pytest.mark.parametrize(
    ("fn", "allocations"), [(ta.max_pool2d, 4), (ta.avg_pool2d, 4)]
)
def test_pool_ledger(fn, allocations):
    x = ta.variable(image("padded")[0])
    with ta.ledger() as led:
        with ta.Tape() as tape:
            y = ta.sum(fn(x, 3, stride=2, padding=1))
        tape.backward(y)
    led.expect(allocations={"OperationOutput": allocations}, copies={})


def test_pools_refuse_what_does_not_fit():
    x, _ = image("halves")
    for fn in (ta.max_pool2d, ta.avg_pool2d):
        with pytest.raises(ShapeError, match="windows"):
            fn(x, 9)
        with pytest.raises(InvalidArgumentError, match="half"):
            fn(x, 2, padding=2)
        with pytest.raises(InvalidArgumentError, match="stride"):
            fn(x, 2, stride=0)
        with pytest.raises(ShapeError, match="4 axes"):
            fn(x[0], 2)
    with pytest.raises(DTypeError, match="order"):
        ta.max_pool2d(x + 0j, 2)
    with pytest.raises(DTypeError, match="floating"):
        ta.avg_pool2d(np.ones((1, 1, 4, 4), int), 2)


def test_agreement_with_jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    for case in ("same", "groups", "strides", "uneven"):
        x, w, (stride, padding, dilation, groups) = operands(case, "float64")

        def conv(x, w, how=(stride, padding, dilation, groups)):
            return jax.lax.conv_general_dilated(
                x,
                w,
                how[0],
                [(p, p) for p in how[1]],
                rhs_dilation=how[2],
                feature_group_count=how[3],
            )

        y, pull = jax.vjp(conv, x, w)
        ct = draw(y.shape, "float64", 3)
        vx, vw = ta.variable(x), ta.variable(w)
        with ta.Tape() as tape:
            out = CONV(vx, vw, stride, padding, dilation, groups)
        grads = tape.backward(out, cotangent=ct)
        for leaf, expected in zip((vx, vw), pull(ct), strict=True):
            close(grads.grad(leaf).numpy(), expected)
