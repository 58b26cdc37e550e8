"""Transposed convolution and pooling over any number of axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.errors import DTypeError, InvalidArgumentError, ShapeError

RNG = np.random.default_rng(4)
TRANSPOSED = {1: nn.conv_transpose1d, 2: nn.conv_transpose2d, 3: nn.conv_transpose3d}
FORWARD = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}

# (batch, channels, out channels, groups), image, kernel, stride, padding,
# output_padding, dilation
CASES = {
    "plain": ((2, 3, 5, 1), (4, 5), (3, 2), (1, 1), (0, 0), (0, 0), (1, 1)),
    "strides": ((2, 4, 6, 2), (3, 4), (3, 3), (2, 3), (1, 0), (1, 2), (1, 1)),
    "depthwise": ((2, 4, 4, 4), (4, 3), (2, 2), (2, 1), (0, 1), (0, 0), (1, 1)),
    "dilation": ((1, 2, 3, 1), (4, 4), (3, 2), (2, 1), (2, 1), (1, 0), (2, 3)),
    "beyond": ((2, 2, 3, 1), (3, 3), (2, 2), (1, 2), (0, 0), (2, 3), (3, 4)),
    "one axis": ((3, 2, 4, 2), (5,), (4,), (3,), (2,), (1,), (1,)),
    "three axes": ((2, 2, 2, 1), (2, 3, 2), (2, 1, 3), (2, 1, 2), (0, 0, 1),
                   (1, 0, 0), (1, 1, 1)),
    "no images": ((0, 2, 3, 1), (3, 3), (2, 2), (1, 1), (0, 0), (0, 0), (1, 1)),
}  # fmt: skip
cases = pytest.mark.parametrize("case", CASES)


def draw(shape: Any, kind: Any = float) -> Any:
    values = RNG.standard_normal(shape)
    return values + 1j * RNG.standard_normal(shape) if kind is complex else values


def operands(case: str, kind: Any = float) -> tuple[Any, Any, Any, dict[str, Any]]:
    (n, c, o, groups), spatial, kernel, *how = CASES[case]
    names = ("stride", "padding", "output_padding", "dilation")
    params = dict(zip(names, how, strict=True)) | {"groups": groups}
    x, w = draw((n, c, *spatial), kind), draw((c, o // groups, *kernel), kind)
    return x, w, draw(o, kind), params


def by_definition(x: Any, w: Any, b: Any, p: dict[str, Any]) -> Any:
    """Each element adds the kernel times itself to a window; then the edges go."""
    groups, (batch, channels, *spatial) = p["groups"], x.shape
    outs = w.shape[1] * groups
    whole = [
        (m - 1) * s + d * (k - 1) + 1 + extra
        for m, s, d, k, extra in zip(
            spatial, p["stride"], p["dilation"], w.shape[2:], p["output_padding"],
            strict=True,
        )
    ]  # fmt: skip
    # Where padding is cut off, the additional elements may be ones that windows reach.
    out = np.zeros((batch, outs, *whole), np.result_type(x, w))
    for c in range(channels):
        group = c // (channels // groups)
        rows = slice(group * w.shape[1], (group + 1) * w.shape[1])
        for at in np.ndindex(*spatial):
            for tap in np.ndindex(*w.shape[2:]):
                place = [
                    i * s + t * d
                    for i, t, s, d in zip(
                        at, tap, p["stride"], p["dilation"], strict=True
                    )
                ]
                term = x[(slice(None), c, *at)][:, None] * w[(c, slice(None), *tap)]
                out[(slice(None), rows, *place)] += term
    inside = tuple(slice(q, n - q) for q, n in zip(p["padding"], whole, strict=True))
    return out[(..., *inside)] + b.reshape(-1, *[1] * len(spatial))


def close(seen: Any, wanted: Any, tolerance: float = 1e-11) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    assert np.max(np.abs(seen - wanted), initial=0.0) <= tolerance * scale


@cases
@pytest.mark.parametrize("kind", [float, complex])
def test_transposed_convolution_follows_its_definition(case: str, kind: Any) -> None:
    x, w, b, params = operands(case, kind)
    fn = TRANSPOSED[x.ndim - 2]
    close(fn(x, w, b, **params), by_definition(x, w, b, params))
    narrow = fn(x.astype("f4"), w.astype("f4"), **params) if kind is float else None
    if narrow is not None:
        assert narrow.dtype == np.float32
        close(narrow, by_definition(x, w, 0 * b, params), 1e-5)


@cases
def test_it_is_the_adjoint_of_the_convolution(case: str) -> None:
    x, w, _, params = operands(case)
    n = x.ndim - 2
    y = np.asarray(TRANSPOSED[n](x, w, **params))
    u = draw(y.shape)
    how = {k: v for k, v in params.items() if k != "output_padding"}
    back = np.asarray(FORWARD[n](u, w, **how))
    back = back[tuple(slice(m) for m in x.shape)]
    close(np.sum(back * x), np.sum(u * y), 1e-10)


@cases
@pytest.mark.parametrize("kind", [float, complex])
def test_derivatives_of_every_order(case: str, kind: Any) -> None:
    x, w, b, params = operands(case, kind)
    fn = TRANSPOSED[x.ndim - 2]

    def f(x: Any, w: Any, b: Any) -> Any:
        y = fn(x, w, b, **params)
        return ta.real(y * ta.conj(y)) if kind is complex else ta.sin(y)

    ta.testing.check_grads(f, (x, w, b), order=2)


def test_refusals_name_the_call_and_the_parameter() -> None:
    x, w = np.ones((1, 2, 3, 3)), np.ones((2, 1, 2, 2))
    wrong = [
        (lambda: nn.conv_transpose2d(x, np.ones((3, 1, 2, 2))), ShapeError, "w"),
        (lambda: nn.conv_transpose2d(x, np.ones((2, 1, 2))), ShapeError, "w"),
        (lambda: nn.conv_transpose1d(x, w), ShapeError, "x"),
        (lambda: nn.conv_transpose2d(x, w, padding=3), ShapeError, "x"),
        (lambda: nn.conv_transpose2d(x, w, np.ones(3)), ShapeError, "b"),
        (lambda: nn.conv_transpose2d(x, w, groups=3), ShapeError, "w"),
        (lambda: nn.conv_transpose2d(x, w, groups=0), InvalidArgumentError, "groups"),
        (lambda: nn.conv_transpose2d(x, w, stride=0), InvalidArgumentError, "stride"),
        (
            lambda: nn.conv_transpose2d(x, w, output_padding=1),
            InvalidArgumentError,
            "output_padding",
        ),
        (lambda: nn.conv_transpose2d(x, w, stride=1.5), DTypeError, "stride"),
        (lambda: nn.conv_transpose2d(x, w, stride=(1, 2, 3)), InvalidArgumentError,
         "stride"),
    ]  # fmt: skip
    for call, kind, argument in wrong:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.operation.startswith("conv_transpose")
        assert caught.value.argument == argument


def test_it_allocates_its_result_alone() -> None:
    x, w = ta.asarray(np.ones((1, 2, 3, 3))), ta.asarray(np.ones((2, 1, 2, 2)))
    with ta.ledger() as led:
        y = nn.conv_transpose2d(x, w, stride=2, output_padding=1)
    led.expect(allocations={"OperationOutput": 1}, copies={})
    assert y.shape == (1, 1, 7, 7)


# ---- pooling -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "largest", "mean"),
    [
        (1, nn.max_pool1d, nn.avg_pool1d),
        (2, nn.max_pool2d, nn.avg_pool2d),
        (3, nn.max_pool3d, nn.avg_pool3d),
    ],
)
def test_pooling_over_any_number_of_axes(n: int, largest: Any, mean: Any) -> None:
    x = RNG.permutation(2 * 3 * 5**n).reshape(2, 3, *[5] * n) * 0.01
    padded = np.pad(x, [(0, 0)] * 2 + [(1, 1)] * n, constant_values=np.nan)
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, [3] * n, axis=tuple(range(2, n + 2))
    )[(slice(None), slice(None), *[slice(None, None, 2)] * n)]
    axes = tuple(range(-n, 0))
    how = {"stride": 2, "padding": 1}
    close(largest(x, 3, **how), np.nanmax(windows, axes))
    close(mean(x, 3, **how), np.nansum(windows, axes) / 3**n)
    close(mean(x, 3, count_include_pad=False, **how), np.nanmean(windows, axes))
    ta.testing.check_grads(lambda v: ta.sin(largest(v, 3, **how)), (x,), order=2)
    ta.testing.check_grads(lambda v: ta.sin(mean(v, 3, **how)), (x,), order=2)
    with pytest.raises(ShapeError) as caught:
        largest(np.ones((2, 2)), 3)
    assert caught.value.operation == largest.__name__
