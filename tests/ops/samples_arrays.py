"""Samples of the rows that make and move arrays."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro_ad.backends import CPU

from .samples import Draw, Drawer, Sample, outside, row, spread

F8, F4, C16, C8, I8, I4, B = (
    np.float64,
    np.float32,
    np.complex128,
    np.complex64,
    np.int64,
    np.int32,
    np.bool_,
)
ANY = outside(0.2, 2.0)


def dtype_of(kind: Any) -> Any:
    return np.dtype(kind)


# ---- values from parameters ----------------------------------------------------------
row(
    "full",
    lambda shape, dtype, value, device: (
        np.full(shape, complex(value), dtype)
        if dtype.kind == "c"
        else np.full(shape, float(value), dtype)
    ),
    [
        Sample("float64", (), ((2, 3), dtype_of(F8), 1.5, CPU)),
        Sample("0-d", (), ((), dtype_of(F4), 2, CPU)),
        Sample("empty", (), ((0, 2), dtype_of(F8), 1.0, CPU)),
        Sample("complex", (), ((4,), dtype_of(C16), 1 - 2j, CPU)),
        Sample("negative zero", (), ((2,), dtype_of(F8), "-0.0", CPU)),
        Sample("nan", (), ((2,), dtype_of(F8), "nan", CPU)),
        Sample("bool", (), ((2,), dtype_of(B), True, CPU)),
    ],
)
row(
    "arange",
    lambda start, stop, step, size, dtype, device: np.arange(
        start, stop, step, dtype=dtype
    ),
    [
        Sample("int64", (), (0, 7, 2, 4, dtype_of(I8), CPU)),
        Sample("backwards", (), (5, 0, -1, 5, dtype_of(I4), CPU)),
        Sample("float64", (), (0.5, 2.1, 0.25, 7, dtype_of(F8), CPU)),
        Sample("empty", (), (3, 3, 1, 0, dtype_of(F8), CPU)),
    ],
)
row(
    "linspace",
    lambda start, stop, num, endpoint, dtype, device: np.linspace(
        start, stop, num, endpoint=endpoint, dtype=dtype
    ),
    [
        Sample("float64", (), (0.0, 1.0, 5, True, dtype_of(F8), CPU)),
        Sample("open end", (), (-1.0, 1.0, 4, False, dtype_of(F4), CPU)),
        Sample("empty", (), (0.0, 1.0, 0, True, dtype_of(F8), CPU)),
        Sample("complex", (), (0.0, 1 + 1j, 3, True, dtype_of(C16), CPU)),
    ],
)
row(
    "eye",
    lambda rows, cols, k, dtype, device: np.eye(rows, cols, k, dtype),
    [
        Sample(f"{n} by {m}, {k}", (), (n, m, k, dtype_of(t), CPU))
        for n, m, k, t in [(3, 3, 0, F8), (2, 4, 1, F4), (4, 2, -3, I8), (2, 2, 5, C8)]
    ],
)


# ---- one argument, several parameters ------------------------------------------------
def moves(
    name: str,
    reference: Callable[..., Any],
    cases: list[tuple[tuple[int, ...], tuple[Any, ...]]],
    *,
    kinds: tuple[Any, ...] = (F8, F4, C16, I8),
    draw: Draw = ANY,
    views: bool = True,
    keeps: str | None = "",
    argument: str = "x",
    **facts: Any,
) -> None:
    """Each case for float64, the first one for every dtype, others for views."""
    draws = Drawer(name, draw)
    found = []
    ties = draw is spread or name == "std"  # repeated elements would be a kink
    for shape, params in cases:
        label = f"{shape} {params}"
        found.append(Sample(label, (draws(shape),), params))
        if views and len(shape) > 1 and 0 not in shape:
            found.append(Sample(f"{label} flipped", (draws.flipped(shape),), params))
            found.append(Sample(f"{label} turned", (draws.transposed(shape),), params))
            if not ties:
                repeated = draws.repeated(shape)
                found.append(Sample(f"{label} stride 0", (repeated,), params))
    shape, params = cases[0]
    for kind in kinds[1:]:
        found.append(Sample(np.dtype(kind).name, (draws(shape, kind),), params))
    if C16 in kinds and views and len(shape) > 1:
        found.append(Sample("complex view", (draws.flipped(shape, C16),), params))
    row(
        name,
        reference,
        found,
        keeps={} if keeps is None else {argument: keeps},
        **facts,
    )


def _real_part(x: Any, dtype: Any) -> Any:
    return x.real if x.dtype.kind == "c" and dtype.kind != "c" else x


_draw = Drawer("astype", ANY)
row(
    "astype",
    lambda x, dtype: _real_part(x, dtype).astype(dtype),
    [
        Sample(f"{np.dtype(a).name} to {np.dtype(b).name}", (_draw((2, 3), a),), (t,))
        for a, b in itertools.product((F8, F4, C16, C8, I8, B), repeat=2)
        for t in [np.dtype(b)]
    ]
    + [
        Sample("view", (_draw.flipped((3, 4)),), (np.dtype(F4),)),
        Sample("empty", (_draw((0, 2)),), (np.dtype(F4),)),
    ],
    keeps={"x": ""},
    smooth=lambda x, dtype: _real_part(x, dtype),
)
_draw = Drawer("reshape", ANY)
row(
    "reshape",
    lambda x, shape: np.reshape(x, shape),
    [
        Sample("split", (_draw((3, 4)),), ((2, 6),)),
        Sample("to 0-d", (_draw((1, 1)),), ((),)),
        Sample("from 0-d", (_draw(()),), ((1, 1),)),
        Sample("empty", (_draw((0, 3)),), ((3, 0, 2),)),
        Sample("float32", (_draw((4,), F4),), ((2, 2),)),
        Sample("complex", (_draw((2, 3), C16),), ((6,),)),
        Sample("int64", (_draw((2, 3), I8),), ((6,),)),
        Sample("view that allows it", (_draw.flipped((4, 3)),), ((2, 2, 3),)),
        Sample("turned view that allows it", (_draw.transposed((4, 3)),), ((2, 2, 3),)),
        Sample(
            "view that does not", (_draw.transposed((4, 3)),), ((12,),), False, 1, 1
        ),
    ],
    keeps={"x": ""},
    view=True,
)
row(
    "regroup",
    lambda x, shape: np.reshape(x, shape),
    [
        Sample("split", (_draw((3, 4)),), ((2, 6),)),
        Sample("complex", (_draw((2, 3), C16),), ((6,),)),
        Sample("view that allows it", (_draw.flipped((4, 3)),), ((2, 2, 3),)),
        Sample("view that does not", (_draw.transposed((4, 3)),), ((12,),), False, 1),
    ],
    keeps={"x": ""},
    view=True,
)
moves(
    "broadcast_to",
    np.broadcast_to,
    [((3, 1), ((2, 3, 4),)), ((), ((2, 2),)), ((4,), ((4,),)), ((1, 3), ((0, 3),))],
    view=True,
)
moves(
    "permute_dims",
    np.transpose,
    [((2, 3, 4), ((2, 0, 1),)), ((), ((),)), ((0, 2), ((1, 0),))],
    view=True,
)
moves(
    "stop_gradient",
    lambda x: x,
    [((2, 3), ()), ((), ()), ((0, 2), ())],
    keeps=None,
    view=True,
)
moves("twin", np.flip, [((2, 3), ((1,),)), ((2, 3), ((0, 1),))], view=True)
moves(
    "duplicate", lambda x: x, [((2, 3), ()), ((), ()), ((0, 2), ())], copies=1
)  # fmt: skip


def _sliced(x: Any, key: Any) -> Any:
    """One axis at a time, with plain index lists."""
    axis = 0
    for entry in key:
        if entry is None:
            x, axis = np.expand_dims(x, axis), axis + 1
        elif isinstance(entry, tuple):
            start, count, step = entry
            at = [start + k * step for k in range(count)]
            x, axis = np.take(x, np.asarray(at, int), axis), axis + 1
        else:
            x = np.take(x, entry, axis)
    return x


def _placed(x: Any, shape: Any, key: Any, value: Any) -> Any:
    out = np.full(shape, value, x.dtype)
    places = np.arange(out.size).reshape(shape)
    out.reshape(-1)[_sliced(places, key)] = x
    return out


_SLICES: list[tuple[tuple[int, ...], tuple[Any, ...]]] = [
    ((4, 5), ((1, (4, 3, -2)),)),
    ((4, 5), (((1, 2, 1), None, (0, 5, 1)),)),
    ((4, 5), (((3, 4, -1), (4, 5, -1)),)),
    ((4, 5), (((0, 0, 1), (0, 2, 2)),)),
    ((1, 5), ((0, None, (0, 5, 1)),)),
    ((3,), ((2,),)),
]
moves("slice", _sliced, _SLICES, view=True)
moves(
    "place",
    _placed,
    [
        ((3,), ((4, 5), (1, (4, 3, -2)), 0)),
        ((2, 3), ((4, 5), ((1, 2, 2), (0, 3, 2)), 1.5)),
        ((2, 1, 5), ((4, 5), ((1, 2, 1), None, (0, 5, 1)), 0)),
        ((0, 2), ((4, 5), ((0, 0, 1), (0, 2, 2)), 2)),
        ((), ((3,), (2,), 0)),
    ],
    kinds=(F8, F4, C16, C8),
)


def _rolled(x: Any, shifts: Any) -> Any:
    return np.roll(x, shifts, tuple(range(x.ndim))) if x.ndim else x


def _repeated(x: Any, reps: Any) -> Any:
    for axis, n in enumerate(reps):
        x = np.repeat(x, n, axis)
    return x


moves(
    "roll",
    _rolled,
    [((3, 4), ((1, 3),)), ((3, 4), ((0, 2),)), ((0, 2), ((0, 1),)), ((), ((),))],
)
_TILED: list[Any] = [((2, 3), ((2, 3),)), ((2, 3), ((1, 0),)), ((), ((),))]
moves("tile", np.tile, _TILED)
moves("repeat", _repeated, _TILED)
_TRIANGLES: list[Any] = [((3, 4), (k,)) for k in (0, 1, -2)] + [((2, 3, 2), (0,))]
moves("tril", np.tril, _TRIANGLES)
moves("triu", np.triu, _TRIANGLES)
_DIAGONALS: list[Any] = [
    ((3, 4), (0, 0, 1)),
    ((3, 4), (-1, 0, 1)),
    ((3, 4), (2, 1, 0)),
    ((3, 2, 4), (1, 0, 2)),
    ((3, 2), (5, 0, 1)),
]
moves("diagonal", np.diagonal, _DIAGONALS, view=True)


def _placed_diagonal(x: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    out = np.zeros(shape, x.dtype)
    places = np.arange(out.size).reshape(shape)
    out.reshape(-1)[np.diagonal(places, offset, axis1, axis2)] = x
    return out


moves(
    "place_diagonal",
    _placed_diagonal,
    [
        ((3,), ((3, 4), 0, 0, 1)),
        ((2,), ((3, 4), -1, 0, 1)),
        ((2, 3), ((3, 2, 4), 1, 0, 2)),
        ((0,), ((3, 2), 5, 0, 1)),
    ],
)
_draw = Drawer("concat", ANY)
row(
    "concat",
    lambda *xs: np.concatenate(xs[:-1], xs[-1]),
    [
        Sample("two", (_draw((2, 3)), _draw((4, 3))), (0,)),
        Sample("three", (_draw((2, 1)), _draw((2, 3)), _draw((2, 0))), (1,)),
        Sample("one", (_draw((3,)),), (0,)),
        Sample("views", (_draw.flipped((2, 3)), _draw.transposed((2, 3))), (1,)),
        Sample("float32", (_draw((2,), F4), _draw((1,), F4)), (0,)),
        Sample("promoted", (_draw((2,), F4), _draw((1,))), (0,)),
        Sample("complex and real", (_draw((2,), C16), _draw((3,))), (0,)),
        Sample("int64 and float64", (_draw((2,), I8), _draw((3,))), (0,)),
        Sample("int64", (_draw((2,), I8), _draw((3,), I4)), (0,)),
    ],
    keeps={"arrays": ""},
)


def _split(x: Any, sizes: Any, axis: int) -> Any:
    return tuple(np.split(x, np.cumsum(sizes)[:-1], axis))


moves("split", _split, [((2, 5), ((2, 0, 3), 1)), ((4,), ((1, 3), 0))], view=True)


_draw = Drawer("view_as_real", ANY)
row(
    "view_as_real",
    lambda x: np.stack([x.real, x.imag], -1),
    [
        Sample("complex128", (_draw((2, 3), C16),)),
        Sample("complex64", (_draw((4,), C8),)),
        Sample("0-d", (_draw((), C16),)),
        Sample("empty", (_draw((0, 2), C16),)),
        Sample("view", (_draw.flipped((2, 3), C16),)),
        Sample("turned", (_draw.transposed((2, 3), C16),)),
    ],
    keeps={"x": ""},
    view=True,
)
_PARTS = [
    Sample("float64", (_draw((3, 2)),)),
    Sample("float32", (_draw((2,), F4),)),
    Sample("empty", (_draw((0, 2)),)),
    Sample("view", (_draw((6, 3, 2))[::-2],)),
]
row(
    "view_as_complex",
    lambda x: x[..., 0] + np.asarray(1j, np.complex64) * x[..., 1],
    _PARTS,
    keeps={"x": ""},
    view=True,
)
row(
    "pack_complex",
    lambda x: x[..., 0] + np.asarray(1j, np.complex64) * x[..., 1],
    [
        *_PARTS,
        Sample("turned", (_draw.transposed((3, 2)),)),
        Sample("gaps", (_draw.flipped((3, 2)),)),
    ],
    keeps={"x": ""},
)
