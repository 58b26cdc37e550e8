"""Samples of matrix products, convolution, pooling and cross-entropy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from .samples import Drawer, Sample, between, row, spread
from .samples_arrays import ANY, C8, C16, F4, F8, I4, I8, moves


# ---- contractions --------------------------------------------------------------------
def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def products(name: str, reference: Callable[..., Any], swap: str) -> None:
    """Matrix products; `swap` says which operand is given as its adjoint."""
    draws = Drawer(name, ANY)
    found = []

    def turn(shape: tuple[int, ...], which: str) -> tuple[int, ...]:
        return (*shape[:-2], shape[-1], shape[-2]) if which in swap else shape

    def add(label: str, a: tuple[int, ...], b: tuple[int, ...], *kinds: Any) -> None:
        one, two = kinds or (F8, F8)
        x, y = draws(turn(a, "x"), one), draws(turn(b, "y"), two)
        found.append(Sample(label, (x, y)))

    add("matrices", (2, 3), (3, 4))
    add("stacks", (5, 2, 3), (5, 3, 4))
    add("broadcast stacks", (5, 1, 2, 3), (2, 3, 4))
    add("stack by matrix", (5, 2, 3), (3, 4))
    add("matrix by stack", (2, 3), (5, 3, 4))
    if not swap:
        add("vectors", (3,), (3,))
        add("vector by matrix", (3,), (3, 4))
        add("matrix by vector", (2, 3), (3,))
        add("stack by vector", (5, 2, 3), (3,))
        add("vector by stack", (3,), (5, 3, 4))
        add("int64", (2, 3), (3, 2), I8, I8)
    add("nothing to sum", (2, 0), (0, 4))
    add("no rows", (0, 3), (3, 4))
    add("float32", (2, 3), (3, 2), F4, F4)
    add("promoted", (2, 3), (3, 2), F4, F8)
    add("complex128", (2, 3), (3, 4), C16, C16)
    add("complex64", (2, 3), (3, 4), C8, C8)
    add("complex stacks", (4, 2, 3), (4, 3, 2), C16, C16)
    add("complex and real", (2, 3), (3, 4), C16, F8)
    add("real and complex", (2, 3), (3, 4), F8, C16)
    a, b = turn((2, 3), "x"), turn((3, 4), "y")
    found.append(Sample("views", (draws.flipped(a), draws.transposed(b))))
    found.append(
        Sample("complex views", (draws.flipped(a, C16), draws.flipped(b, C16)))
    )
    found.append(Sample("stride 0", (draws.repeated(a), draws(b))))
    row(name, reference, found, keeps={"x": "y", "y": "x"})


products("matmul", np.matmul, "")
products("matmul_nt", lambda x, y: np.matmul(x, _adjoint(y)), "y")
products("matmul_tn", lambda x, y: np.matmul(_adjoint(x), y), "x")


# ---- convolution and pooling ---------------------------------------------------------
def _taps(shape: Any, w: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    """For each tap and output position, the place in the padded input."""
    grid = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, k, s, p, d in zip(
            shape[2:], w[2:], stride, padding, dilation, strict=True
        )
    ]
    for tap in np.ndindex(*w[2:]):
        yield (
            tap,
            tuple(
                slice(t * d, t * d + (m - 1) * s + 1, s)
                for t, d, m, s in zip(tap, dilation, grid, stride, strict=True)
            ),
            grid,
        )


def _conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """The definition, summed tap by tap."""
    wide = np.pad(x, [(0, 0), (0, 0), *[(p, p) for p in padding]])
    n, o = x.shape[0], w.shape[0]
    out: Any = 0
    for tap, at, grid in _taps(x.shape, w.shape, stride, padding, dilation):
        part = wide[(..., *at)].reshape(n, groups, w.shape[1], *grid)
        kernel = w[(..., *tap)].reshape(groups, o // groups, w.shape[1])
        out = out + np.einsum("ngi...,goi->ngo...", part, kernel)
    return out.reshape(n, o, *out.shape[3:])


def _conv_input(y: Any, w: Any, shape: Any, *how: Any) -> Any:
    """The adjoint in the input, read off the definition at unit inputs."""
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    found = [np.sum(np.conj(_conv(u, w, *how)) * y) for u in units]
    return np.asarray(found, np.result_type(y, w)).reshape(shape)


def _conv_weight(x: Any, y: Any, shape: Any, *how: Any) -> Any:
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    found = [np.sum(np.conj(_conv(x, u, *how)) * y) for u in units]
    return np.asarray(found, np.result_type(x, y)).reshape(shape)


_CONVOLUTIONS: list[Any] = [
    ((2, 2, 4, 5), (3, 2, 3, 2), ((1, 1), (1, 1), (1, 1), 1)),
    ((2, 4, 5, 4), (4, 2, 2, 2), ((2, 1), (1, 0), (1, 2), 2)),
    ((1, 2, 7), (3, 2, 3), ((2,), (0,), (2,), 1)),
    ((2, 1, 3, 3), (2, 1, 1, 1), ((1, 1), (0, 0), (1, 1), 1)),
]


def convolutions(
    name: str, reference: Callable[..., Any], keeps: dict[str, str]
) -> None:
    draws = Drawer(name, ANY)
    found = []

    def add(case: Any, a: Any, b: Any, label: str = "", turn: bool = False) -> None:
        shape, kernel, how = case
        out = _conv(np.zeros(shape), np.zeros(kernel), *how).shape
        first, second, extra = {
            "conv": (shape, kernel, ()),
            "conv_input": (out, kernel, (shape,)),
            "conv_weight": (shape, out, (kernel,)),
        }[name]
        one = draws.flipped(first, a) if turn else draws(first, a)
        two = draws.transposed(second, b) if turn else draws(second, b)
        found.append(Sample(f"{shape} by {kernel} {label}", (one, two), (*extra, *how)))

    for case in _CONVOLUTIONS:
        add(case, F8, F8)
        add(case, F8, F8, "views", turn=True)
    for case in _CONVOLUTIONS[:2]:
        add(case, C16, C16, "complex")
    add(_CONVOLUTIONS[0], F4, F4, "float32")
    add(_CONVOLUTIONS[0], C8, C8, "complex64")
    add(_CONVOLUTIONS[0], F4, F8, "promoted")
    add(_CONVOLUTIONS[0], C16, F8, "complex and real")
    row(name, reference, found, keeps=keeps)


convolutions("conv", _conv, {"x": "w", "w": "x"})
convolutions("conv_input", _conv_input, {"y": "w", "w": "y"})
convolutions("conv_weight", _conv_weight, {"x": "y", "y": "x"})


def _windows(x: Any, kernel: Any, stride: Any, padding: Any, fill: float) -> Any:
    """All windows, with the elements of each along the last axis."""
    spatial = len(kernel)
    lead = x.ndim - spatial
    wide = np.pad(x, [(0, 0)] * lead + [(p, p) for p in padding], constant_values=fill)
    found = np.lib.stride_tricks.sliding_window_view(
        wide, kernel, tuple(range(lead, x.ndim))
    )
    step = (..., *[slice(None, None, s) for s in stride], *[slice(None)] * spatial)
    return found[step].reshape(*found[step].shape[:-spatial], -1)


def _avg_pool(x: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    return _windows(x, kernel, stride, padding, 0).mean(-1)


def _max_pool(x: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _windows(x, kernel, stride, padding, low).max(-1)


def _avg_pool_input(y: Any, shape: Any, *how: Any) -> Any:
    units = np.eye(int(np.prod(shape))).reshape(-1, *shape)
    found = [np.sum(_avg_pool(u, *how) * y) for u in units]
    return np.asarray(found, y.dtype).reshape(shape)


def _max_pool_pick(t: Any, x: Any, top: Any, *how: Any) -> Any:
    """The mean of `t` over the largest elements of each window."""
    hit = _windows(x, *how, -np.inf) == top[..., None]
    picked = _windows(t, *how, 0) * hit
    return (picked.sum(-1) / hit.sum(-1)).astype(t.dtype)


def _max_pool_input(y: Any, x: Any, top: Any, *how: Any) -> Any:
    units = np.eye(x.size).reshape(-1, *x.shape)
    found = [np.sum(_max_pool_pick(u, x, top, *how) * y) for u in units]
    return np.asarray(found, y.dtype).reshape(x.shape)


_POOLS: list[Any] = [
    ((2, 2, 4, 6), ((2, 2), (2, 2), (0, 0))),
    ((1, 2, 5, 5), ((3, 2), (2, 1), (1, 1))),
    ((2, 1, 7), ((3,), (2,), (1,))),
]
moves("avg_pool", _avg_pool, _POOLS, kinds=(F8, F4, C16, C8))
moves(
    "avg_pool_input",
    _avg_pool_input,
    [(_avg_pool(np.zeros(s), *how).shape, (s, *how)) for s, how in _POOLS],
    kinds=(F8, F4, C16, C8),
    argument="y",
)
moves(
    "max_pool", _max_pool, _POOLS, kinds=(F8, F4, I8), draw=spread, keeps="x top"
)  # fmt: skip


def pool_adjoint(name: str, reference: Callable[..., Any], argument: str) -> None:
    draws = Drawer(name, spread)
    found = []
    for shape, how in _POOLS:
        for kind in (F8, F4):
            x = draws(shape, kind)
            top = _max_pool(x, *how)
            first = draws(top.shape if argument == "y" else shape, kind)
            label = f"{shape} {how} {np.dtype(kind).name}"
            found.append(Sample(label, (first, x, top), how))
        tied = np.round(draws(shape))
        top = _max_pool(tied, *how)
        first = draws.flipped(top.shape if argument == "y" else shape)
        found.append(Sample(f"{shape} {how} ties", (first, tied, top), how))
    row(name, reference, found, keeps={argument: "x top"})


pool_adjoint("max_pool_input", _max_pool_input, "y")
pool_adjoint("max_pool_pick", _max_pool_pick, "t")


# ---- cross-entropy -------------------------------------------------------------------
def _one_hot(x: Any, target: Any, axis: int) -> Any:
    classes = np.arange(x.shape[axis]).reshape(
        [-1 if k == axis else 1 for k in range(x.ndim)]
    )
    return classes == np.expand_dims(target, axis)


def _cross_entropy(x: Any, target: Any, axis: int) -> Any:
    lost = -scipy.special.log_softmax(x, axis) * _one_hot(x, target, axis)
    return lost.sum(axis).astype(x.dtype)


def _cross_entropy_input(ct: Any, x: Any, target: Any, axis: int) -> Any:
    slope = scipy.special.softmax(x, axis) - _one_hot(x, target, axis)
    return (np.expand_dims(ct, axis) * slope).astype(x.dtype)


_draw = Drawer("cross_entropy", between(-2, 2))
_LOGITS: list[Any] = [
    ("last axis", _draw((3, 4)), np.array([0, 3, 1]), 1),
    ("first axis", _draw((4, 3)), np.array([2, 2, 0]), 0),
    ("middle", _draw((2, 3, 2)), np.array([[0, 1], [2, 2]]), 1),
    ("no samples", _draw((0, 3)), np.zeros(0, I8), 1),
    ("one sample", _draw((3,)), np.array(1), 0),
    ("float32", _draw((3, 4), F4), np.array([0, 3, 1], I4), 1),
    ("view", _draw.flipped((3, 4)), np.array([1, 0, 2]), 1),
]
row(
    "cross_entropy",
    _cross_entropy,
    [Sample(label, (x, t), (axis,)) for label, x, t, axis in _LOGITS],
    keeps={"x": "x target"},
)
row(
    "cross_entropy_input",
    _cross_entropy_input,
    [
        Sample(label, (_draw(t.shape, x.dtype), x, t), (axis,))
        for label, x, t, axis in _LOGITS
    ],
    keeps={"ct": "x target", "x": "ct x"},
)
