"""What CUDA computes by its libraries: products by cuBLAS, transforms by cuFFT, and
factorisations and sorting by cuSOLVER and CuPy.

Each form is `form(xp, call, outs, ins)` in the words of the array API, so that a test
runs it with NumPy as `xp` against the row's own kernel. It takes temporaries from the
allocator of its caller, which is the engine's pool, and asks nothing of the host:
nothing here waits, and no value is read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from ..ops import Call

Form = Callable[[Any, Call, Sequence[Any], Sequence[Any]], None]


def _adjoint(xp: Any, x: Any) -> Any:
    return xp.swapaxes(x.conj() if x.dtype.kind == "c" else x, -1, -2)


def _matmul(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    xp.matmul(ins[0], ins[1], out=outs[0])


def _matmul_nt(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    xp.matmul(ins[0], _adjoint(xp, ins[1]), out=outs[0])


def _matmul_tn(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    xp.matmul(_adjoint(xp, ins[0]), ins[1], out=outs[0])


# ---- transforms


def _fftn(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...] = xp.fft.fftn(ins[0], axes=call.axes, norm=call.norm)


def _ifftn(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...] = xp.fft.ifftn(ins[0], axes=call.axes, norm=call.norm)


def _rfftn(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...] = xp.fft.rfftn(ins[0], axes=call.axes, norm=call.norm)


def _irfftn(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    lengths = (*[ins[0].shape[a] for a in call.axes[:-1]], call.n)
    outs[0][...] = xp.fft.irfftn(ins[0], lengths, call.axes, call.norm)


# ---- factorisations


def _hermitian(xp: Any, x: Any) -> Any:
    return (x + _adjoint(xp, x)) / 2


def _cholesky(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...] = xp.linalg.cholesky(_hermitian(xp, ins[0]))


def _eigh(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...], outs[1][...] = xp.linalg.eigh(_hermitian(xp, ins[0]))


def _svd(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    found = xp.linalg.svd(ins[0], full_matrices=call.full)
    for out, part in zip(outs, found, strict=True):
        out[...] = part


def _qr(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...], outs[1][...] = xp.linalg.qr(
        ins[0], "complete" if call.complete else "reduced"
    )


def _inv(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...] = xp.linalg.inv(ins[0])


def _solve_triangular(
    xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]
) -> None:
    a, b = ins
    part = xp.triu(a) if call.upper else xp.tril(a)
    if call.unit:
        one = xp.ones((), dtype=a.dtype)  # whatever stands on the diagonal
        part = xp.where(xp.eye(a.shape[-1], dtype=bool), one, part)
    outs[0][...] = xp.linalg.solve(_adjoint(xp, part) if call.adj else part, b)


# ---- order


def _sort(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    found = xp.sort(ins[0], axis=call.axis)
    outs[0][...] = xp.flip(found, call.axis) if call.descending else found


def _argsort(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    x, axis = ins[0], call.axis
    if not call.descending:
        outs[0][...] = xp.argsort(x, axis=axis, kind="stable")
        return
    order = xp.argsort(xp.flip(x, axis), axis=axis, kind="stable")
    outs[0][...] = x.shape[axis] - 1 - xp.flip(order, axis)


def _searchsorted(xp: Any, call: Call, outs: Sequence[Any], ins: Sequence[Any]) -> None:
    outs[0][...] = xp.searchsorted(ins[0], ins[1], side=call.side)


FORMS: Final[dict[str, Form]] = {
    "matmul": _matmul,
    "matmul_nt": _matmul_nt,
    "matmul_tn": _matmul_tn,
    "fftn": _fftn,
    "ifftn": _ifftn,
    "rfftn": _rfftn,
    "irfftn": _irfftn,
    "cholesky": _cholesky,
    "eigh": _eigh,
    "svd": _svd,
    "qr": _qr,
    "inv": _inv,
    "solve_triangular": _solve_triangular,
    "sort": _sort,
    "argsort": _argsort,
    "searchsorted": _searchsorted,
}
"""Rows computed by a library, where that beats a printed kernel or none is printed."""

DTYPES: Final[dict[str, str]] = {
    **dict.fromkeys(("sort", "argsort", "searchsorted"), "?bhilqBHILQfd"),
    **dict.fromkeys(("fftn", "ifftn", "rfftn"), "?bhilqBHILQfdFD"),
}
"""Dtypes of a form's operands, as NumPy's characters; single and double otherwise."""


def has_form(call: Call) -> bool:
    """Whether a library computes this application."""
    known = DTYPES.get(call.op.name, "fdFD")
    return call.op.name in FORMS and all(a.dtype.char in known for a in call.ins)
