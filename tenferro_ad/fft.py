"""Discrete Fourier transforms with the array API's names, over SciPy's pocketfft.

`n` (or `s`) cuts the operand along an axis or pads it with zeros before the transform.
`norm` says which direction carries the factor 1/n: "backward" (the inverse, the
default), "forward", or "ortho" for its root in both. float32 stays in single precision.
Every transform is linear and retains nothing; its derivative is another transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from . import errors
from .engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    asarray,
    astype,
    axes_of,
    conj,
    dtype_of,
    int_of,
    real_of,
    roll,
)
from .errors import named
from .ops import span

__all__ = [
    "fft",
    "ifft",
    "fftn",
    "ifftn",
    "fft2",
    "ifft2",
    "rfft",
    "irfft",
    "rfftn",
    "irfftn",
    "rfft2",
    "irfft2",
    "hfft",
    "ihfft",
    "fftfreq",
    "rfftfreq",
    "fftshift",
    "ifftshift",
]

Norm = Literal["backward", "ortho", "forward"]
Lengths = Sequence[int] | None
Axes = Sequence[int] | None

_SWAPPED: Final[dict[Norm, Norm]] = {
    "backward": "forward",
    "forward": "backward",
    "ortho": "ortho",
}


# ---- arguments -----------------------------------------------------------------------


def _bad(name: str, argument: str, found: Any, fix: str) -> Exception:
    return errors.InvalidArgumentError(
        operation=name, argument=argument, found=f"{found}", fix=fix
    )


def _where(
    operation: str, x: EagerTensor, s: Lengths, axes: Axes, *, least: int = 0
) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Axes from 0 on, and for each the length asked for."""
    s = None if s is None else _listed(operation, "s", s)
    if axes is None:
        count = x.ndim if s is None else len(s)
        if count > x.ndim:
            raise _bad(operation, "s", s, f"pass at most {x.ndim} lengths")
        axes = range(x.ndim - count, x.ndim)
    axes = _listed(operation, "axes", axes)
    found = axes_of(operation, axes, x.ndim, "axes")
    if len(found) < least:
        raise _bad(operation, "axes", axes, "name some axis")
    if s is None:
        return found, (None,) * len(found)
    if len(s) != len(found):
        raise _bad(operation, "s", s, f"pass {len(found)} lengths")
    return found, s


def _listed(operation: str, argument: str, value: Any) -> tuple[Any, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(value)
    raise errors.DTypeError(
        operation=operation,
        argument=argument,
        found=f"an object of type `{type(value).__name__}`",
        fix="pass a sequence of integers",
    )


def _sizes(operation: str, x: EagerTensor, axes: Any, lengths: Any) -> list[int]:
    """A length for each axis: its own where none is given."""
    given = zip(axes, lengths, strict=True)
    return [int_of(operation, "s", x.shape[a] if n is None else n, 1) for a, n in given]


def _norm(operation: str, norm: Any) -> Norm:
    if norm not in _SWAPPED:
        fix = 'pass "backward", "ortho" or "forward"'
        raise _bad(operation, "norm", repr(norm), fix)
    found: Norm = norm
    return found


def _resized(x: EagerTensor, axes: tuple[int, ...], lengths: list[int]) -> EagerTensor:
    """`x` cut and then padded with zeros to the lengths given: a view where it is only
    cut, itself where nothing changes."""
    shape = list(x.shape)
    for a, n in zip(axes, lengths, strict=True):
        shape[a] = n
    key = tuple(span(0, min(m, n), 1) for m, n in zip(x.shape, shape, strict=True))
    if any(n < m for m, n in zip(x.shape, shape, strict=True)):
        x = HANDLES.slice(x, key)
    if x.shape != tuple(shape):
        x = HANDLES.place(x, tuple(shape), key, 0)
    return x


def _full(
    operation: str, row: str, x: Any, s: Lengths, axes: Axes, norm: Any
) -> EagerTensor:
    x, norm = as_tensor(x), _norm(operation, norm)
    at, lengths = _where(operation, x, s, axes)
    if not at:
        return astype(x, np.result_type(x.dtype, np.complex64))
    sizes = _sizes(operation, x, at, lengths)
    out: EagerTensor = getattr(HANDLES, row)(_resized(x, at, sizes), at, norm)
    return out


def _half(operation: str, x: Any, s: Lengths, axes: Axes, norm: Any) -> EagerTensor:
    x, norm = as_tensor(x), _norm(operation, norm)
    if x.dtype.kind == "c":
        raise errors.DTypeError(
            operation=operation,
            argument="x",
            found=f"dtype {x.dtype}, where it takes real numbers",
            fix="use the complex transform of the same name without `r`",
        )
    at, lengths = _where(operation, x, s, axes, least=1)
    sizes = _sizes(operation, x, at, lengths)
    out: EagerTensor = HANDLES.rfftn(_resized(x, at, sizes), at, norm)
    return out


def _unhalf(operation: str, x: Any, s: Lengths, axes: Axes, norm: Any) -> EagerTensor:
    x, norm = as_tensor(x), _norm(operation, norm)
    at, lengths = _where(operation, x, s, axes, least=1)
    last = lengths[-1]
    n = 2 * (x.shape[at[-1]] - 1) if last is None else last
    n = int_of(operation, "s", n, 1)
    sizes = _sizes(operation, x, at[:-1], lengths[:-1])
    x = _resized(x, at, [*sizes, n // 2 + 1])
    out: EagerTensor = HANDLES.irfftn(x, at, n, norm)
    return out


def _one(n: int | None) -> Lengths:
    return None if n is None else (n,)


# ---- complex transforms --------------------------------------------------------------


@named(axes="axis", s="n")
def fft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """The transform along one axis: sums of x[j] exp(-2 pi i j k / n).

    Args:
        x: real or complex samples; real ones give the full spectrum.
        n: the length to cut or pad to; None keeps it.
        axis: one axis.
        norm: which direction carries the factor 1/n.

    Raises:
        IndexRangeError: not an axis of `x`.
        InvalidArgumentError: a length below 1, an unknown `norm`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _full("fft", "fftn", x, _one(n), (axis,), norm)


@named(axes="axis", s="n")
def ifft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `fft`; see there for arguments and errors.

    Raises: as `fft`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _full("ifft", "ifftn", x, _one(n), (axis,), norm)


def fftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """The transform along several axes; see `fft`.

    Args:
        x: real or complex samples.
        s: a length for each axis; None keeps them.
        axes: the axes; None means the last ones that `s` has lengths for, or all.
        norm: which direction carries the factor 1/n.

    Raises:
        IndexRangeError: not an axis of `x`.
        InvalidArgumentError: an axis named twice, a length below 1, another number of
            lengths than of axes, an unknown `norm`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _full("fftn", "fftn", x, s, axes, norm)


def ifftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `fftn`; see there for arguments and errors.

    Raises: as `fftn`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _full("ifftn", "ifftn", x, s, axes, norm)


def fft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`fftn` along two axes.

    Cost: that of `fftn`.
    """
    return _full("fft2", "fftn", x, s, axes, norm)


def ifft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`ifftn` along two axes.

    Cost: that of `ifftn`.
    """
    return _full("ifft2", "ifftn", x, s, axes, norm)


# ---- transforms of real samples ------------------------------------------------------


@named(axes="axis", s="n")
def rfft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """The first n // 2 + 1 coefficients of `fft` for real samples.

    Args:
        x: real samples.
        n, axis, norm: see `fft`.

    Raises:
        DTypeError: complex samples. Others as for `fft`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _half("rfft", x, _one(n), (axis,), norm)


@named(axes="axis", s="n")
def irfft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """Real samples from the first half of their spectrum, the inverse of `rfft`.

    Args:
        x: coefficients; imaginary parts at frequency 0 and at the highest of an even
            length are ignored, and have slope 0.
        n: the length of the result; None means 2 (m - 1) for m coefficients.
        axis, norm: see `fft`.

    Raises:
        IndexRangeError, InvalidArgumentError: as for `fft`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _unhalf("irfft", x, _one(n), (axis,), norm)


def rfftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """`rfft` along the last of several axes and `fft` along the others; see `fftn`.

    Raises:
        DTypeError: complex samples. Others as for `fftn`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _half("rfftn", x, s, axes, norm)


def irfftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `rfftn`; the last of `s` is the length of the result.

    Raises: as `rfftn`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return _unhalf("irfftn", x, s, axes, norm)


def rfft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`rfftn` along two axes.

    Cost: that of `rfftn`.
    """
    return _half("rfft2", x, s, axes, norm)


def irfft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`irfftn` along two axes.

    Cost: that of `irfftn`.
    """
    return _unhalf("irfft2", x, s, axes, norm)


# ---- real spectra --------------------------------------------------------------------


@named(axes="axis", s="n")
def hfft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """The real spectrum of samples with Hermitian symmetry, from their first half.

    Args:
        x: the first half of the samples.
        n: the length of the result; None means 2 (m - 1) for m samples.
        axis, norm: see `fft`.

    Raises:
        IndexRangeError, InvalidArgumentError: as for `fft`.

    Cost: two allocations, one more where `x` is padded.
    """
    swapped = _SWAPPED[_norm("hfft", norm)]
    return _unhalf("hfft", conj(as_tensor(x)), _one(n), (axis,), swapped)


@named(axes="axis", s="n")
def ihfft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `hfft`: the first half of the samples with a real spectrum `x`.

    Raises:
        DTypeError: `x` is complex.
        IndexRangeError: there is no such axis.
        InvalidArgumentError: a length or `norm` that there is not.

    Cost: two allocations, one more where `x` is padded.
    """
    swapped = _SWAPPED[_norm("ihfft", norm)]
    return conj(_half("ihfft", x, _one(n), (axis,), swapped))


# ---- frequencies ---------------------------------------------------------------------


def _frequencies(name: str, n: Any, d: float, dtype: Any, device: Any) -> EagerTensor:
    found = getattr(np.fft, name)(int_of(name, "n", n, 1), real_of(name, "d", d))
    wanted = dtype_of(name, np.float64 if dtype is None else dtype)
    if wanted.kind != "f":
        raise errors.DTypeError(
            operation=name,
            argument="dtype",
            found=f"dtype {wanted}",
            fix="pass a real floating dtype",
        )
    return asarray(found, dtype=wanted, device=device)


def fftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """The frequencies of the coefficients of `fft`, in cycles per unit of `d`.

    Args:
        n: the length of the transform.
        d: the distance between samples.
        dtype: a real floating dtype, by default float64.
        device: where the result lives.

    Raises:
        InvalidArgumentError: a length below 1. DTypeError: another kind of dtype.

    Cost: one allocation, filled from outside.
    """
    return _frequencies("fftfreq", n, d, dtype, device)


def rfftfreq(
    n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None
) -> EagerTensor:
    """The frequencies of the coefficients of `rfft`; see `fftfreq`.

    Cost: one allocation, filled from outside.
    """
    return _frequencies("rfftfreq", n, d, dtype, device)


def _rolled(operation: str, x: Any, axes: int | Axes, *, back: bool) -> EagerTensor:
    value: EagerTensor = as_tensor(x)
    given = axes if isinstance(axes, Sequence | None) else (axes,)
    at, _ = _where(operation, value, None, given)
    if not at:
        return value
    halves = [-(value.shape[a] // 2) if back else value.shape[a] // 2 for a in at]
    return roll(value, tuple(halves), axis=at)


def fftshift(x: Any, /, *, axes: int | Axes = None) -> EagerTensor:
    """Frequency 0 moved to the middle of each axis.

    Args:
        x: coefficients in the order of `fft`.
        axes: one axis, several, or None for all.

    Raises:
        IndexRangeError: not an axis. InvalidArgumentError: an axis named twice.

    Cost: one allocation of the result's size.
    """
    return _rolled("fftshift", x, axes, back=False)


def ifftshift(x: Any, /, *, axes: int | Axes = None) -> EagerTensor:
    """The inverse of `fftshift`.

    Raises: as `fftshift`.

    Cost: one allocation of the result's size.
    """
    return _rolled("ifftshift", x, axes, back=True)
