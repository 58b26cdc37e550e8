"""Rows of discrete Fourier transforms, over SciPy's pocketfft.

Every transform is linear, and the adjoint of each is another one with "backward" and
"forward" scaling exchanged. Only half of a real signal's spectrum is stored, so between
the real transforms the stored coefficients are weighted by how many coefficients of the
full spectrum each stands for: 1 at frequency 0 and at the highest of an even length, 2
in between. Lengths are those of the operands: callers cut or pad before.

Source: M. Frigo, S. G. Johnson, "The design and implementation of FFTW3", Proc. IEEE 93
(2005), for the half-complex layout; the adjoints follow from the sums.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import scipy.fft

from .._aval import Aval
from ._batching import later, leading
from ._op import Call, Evaluator, Library, Op, project, register
from ._place import span
from ._scalar import of_kinds

Array = np.ndarray[Any, Any]
Axes = tuple[int, ...]

_SWAPPED: Final = {"backward": "forward", "forward": "backward", "ortho": "ortho"}
_SINGLE: Final = "efF"


def _complex(x: Aval) -> np.dtype[Any]:
    return np.dtype(np.complex64 if x.dtype.char in _SINGLE else np.complex128)


def _real(x: Aval) -> np.dtype[Any]:
    return np.dtype(np.float32 if x.dtype.char in _SINGLE else np.float64)


def _with(shape: tuple[int, ...], axis: int, n: int) -> tuple[int, ...]:
    return (*shape[:axis], n, *shape[axis + 1 :])


def _scratch(call: Call) -> int:
    """Integers and halves as floats, and the value between two axes of an inverse real
    transform: SciPy makes a copy for each."""
    x = call.ins[0]
    wide = _real(x).itemsize * (2 if x.dtype.kind == "c" else 1)
    casts = x.size * wide if x.dtype.char not in "fdFD" else 0
    between = 0
    if call.op.name == "irfftn" and len(call.axes) > 1:
        between = x.size * 2 * _real(x).itemsize
    return casts + between


# ---- complex transforms --------------------------------------------------------------


def _full(name: str, adjoint: str) -> None:
    transform = getattr(scipy.fft, name)

    def fn(call: Call, x: Array) -> Array:
        if not x.size:
            return np.empty(call.out.shape, call.out.dtype)
        return transform(x, axes=call.axes, norm=call.norm)  # type: ignore[no-any-return]

    def pull(F: Evaluator, ct: Any, call: Call) -> Any:
        back = getattr(F, adjoint)(ct, call.axes, _SWAPPED[call.norm])
        return project(F, back, call.ins[0])

    def push(F: Evaluator, t: Any, call: Call) -> Any:
        return getattr(F, name)(t, call.axes, call.norm)

    register(
        Op(
            name,
            ("x",),
            params=("axes", "norm"),
            infer=lambda x, axes, norm: (x.shape, _complex(x)),
            kernel=Library(fn, _scratch),
            vjp={"x": pull},
            jvp={"x": push},
            batch=leading(axes=later),
        )
    )


_full("fftn", "ifftn")
_full("ifftn", "fftn")


# ---- real transforms -----------------------------------------------------------------


def _weighted(F: Evaluator, v: Any, axis: int, n: int, weight: float) -> Any:
    """The half spectrum of `n` samples, `weight` times what stands for two."""
    inner = (n - 1) // 2
    if inner < 1:
        return v
    aval = v.aval
    real = _real(aval)
    middle = F.full((inner,), real, weight, aval.device)
    weights = F.place(middle, (n // 2 + 1,), (span(1, inner, 1),), 1)
    shape = [1] * aval.ndim
    shape[axis] = n // 2 + 1
    return F.mul(v, F.reshape(weights, tuple(shape)))


def _rfftn(call: Call, x: Array) -> Array:
    if not x.size:
        return np.empty(call.out.shape, call.out.dtype)
    return scipy.fft.rfftn(x, axes=call.axes, norm=call.norm)  # type: ignore[no-any-return]


def _rfftn_infer(x: Aval, axes: Axes, norm: str) -> tuple[Any, Any]:
    return _with(x.shape, axes[-1], x.shape[axes[-1]] // 2 + 1), _complex(x)


def _rfftn_pull(F: Evaluator, ct: Any, call: Call) -> Any:
    axes, x = call.axes, call.ins[0]
    n = x.shape[axes[-1]]
    halves = _weighted(F, ct, axes[-1], n, 0.5)
    return project(F, F.irfftn(halves, axes, n, _SWAPPED[call.norm]), x)


register(
    Op(
        "rfftn",
        ("x",),
        params=("axes", "norm"),
        infer=of_kinds("rfftn", ("x",), "biuf", _rfftn_infer),
        kernel=Library(_rfftn, _scratch),
        vjp={"x": _rfftn_pull},
        jvp={"x": lambda F, t, call: F.rfftn(t, call.axes, call.norm)},
        batch=leading(axes=later),
    )
)


def _irfftn(call: Call, x: Array) -> Array:
    if not x.size:
        return np.empty(call.out.shape, call.out.dtype)
    lengths = (*[x.shape[a] for a in call.axes[:-1]], call.n)
    return scipy.fft.irfftn(x, lengths, call.axes, call.norm)  # type: ignore[no-any-return]


def _irfftn_pull(F: Evaluator, ct: Any, call: Call) -> Any:
    axes = call.axes
    spectrum = F.rfftn(ct, axes, _SWAPPED[call.norm])
    return project(F, _weighted(F, spectrum, axes[-1], call.n, 2), call.ins[0])


# `n` is the length of the result along the last of `axes`, whose length is n // 2 + 1.
register(
    Op(
        "irfftn",
        ("x",),
        params=("axes", "n", "norm"),
        infer=lambda x, axes, n, norm: (_with(x.shape, axes[-1], n), _real(x)),
        kernel=Library(_irfftn, _scratch),
        vjp={"x": _irfftn_pull},
        jvp={"x": lambda F, t, call: F.irfftn(t, call.axes, call.n, call.norm)},
        batch=leading(axes=later),
    )
)
