"""Samples of the rows of Fourier transforms."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.fft

from .samples import Drawer, Sample, row
from .samples_elementwise import ANY, C8, C16, F4, F8, I8

_NORMS = ("backward", "ortho", "forward")
_CASES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (1,)),
    ((5, 2), (0,)),
    ((3, 4, 5), (2, 0)),
    ((2, 1), (1,)),
    ((4,), (0,)),
    ((0, 3), (1,)),
]


def _samples(name: str, kinds: tuple[Any, ...], *more: Any) -> list[Sample]:
    """Each case with each scaling for the first kind, others for one of them."""
    draw = Drawer(name, ANY)
    found = [
        Sample(f"{shape} {axes} {norm}", (draw(shape, kinds[0]),), (axes, norm))
        for shape, axes in _CASES
        for norm in _NORMS
    ]
    for kind in kinds:
        label = np.dtype(kind).name
        how = ((0, 1), "backward")
        found.append(Sample(label, (draw((3, 4), kind),), how))
        found.append(Sample(f"{label} flipped", (draw.flipped((3, 4), kind),), how))
        turned = draw.transposed((3, 4), kind)
        found.append(Sample(f"{label} turned", (turned,), how))
    return found


for _name in ("fftn", "ifftn"):
    _transform = getattr(scipy.fft, _name)
    row(
        _name,
        lambda x, axes, norm, fn=_transform: (
            fn(x, axes=axes, norm=norm) if x.size else x.astype(C16)
        ),
        _samples(_name, (C16, C8, F8, F4, I8)),
        keeps={"x": ""},
    )


def _rfftn(x: Any, axes: Any, norm: str) -> Any:
    if x.size:
        return scipy.fft.rfftn(x, axes=axes, norm=norm)
    shape = list(x.shape)
    shape[axes[-1]] = shape[axes[-1]] // 2 + 1
    return np.zeros(shape, C16)


row("rfftn", _rfftn, _samples("rfftn", (F8, F4, I8)), keeps={"x": ""})


def _irfftn(x: Any, axes: Any, n: int, norm: str) -> Any:
    shape = list(x.shape)
    shape[axes[-1]] = n
    if not x.size:
        return np.zeros(shape)
    lengths = [shape[a] for a in axes]
    return scipy.fft.irfftn(x, lengths, axes, norm)


_draw = Drawer("irfftn", ANY)
row(
    "irfftn",
    _irfftn,
    [
        Sample(f"{shape} {axes} {n} {norm}", (_draw(shape, C16),), (axes, n, norm))
        for shape, axes in _CASES
        for half in [shape[axes[-1]]]
        for n in (2 * half - 2, 2 * half - 1)
        if n
        for norm in _NORMS
    ]
    + [
        Sample(label, (x,), ((0, 1), 5, "backward"))
        for label, x in [
            ("complex64", _draw((4, 3), C8)),
            ("float64", _draw((4, 3))),
            ("float32", _draw((4, 3), F4)),
            ("view", _draw.flipped((4, 3), C16)),
            ("turned", _draw.transposed((4, 3), C16)),
        ]
    ],
    keeps={"x": ""},
)
