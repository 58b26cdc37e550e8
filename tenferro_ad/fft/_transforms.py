"""The transforms themselves: complex ones, those of real samples, real spectra."""

from __future__ import annotations

from typing import Any

from ..engine import (
    EagerTensor,
    as_tensor,
    conj,
)
from ..errors import named
from ._arguments import (
    SWAPPED,
    Axes,
    Lengths,
    Norm,
    full,
    half,
    norm_of,
    one,
    unhalf,
)

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
    return full("fft", "fftn", x, one(n), (axis,), norm)


@named(axes="axis", s="n")
def ifft(
    x: Any, /, *, n: int | None = None, axis: int = -1, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `fft`; see there for arguments and errors.

    Raises: as `fft`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return full("ifft", "ifftn", x, one(n), (axis,), norm)


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
    return full("fftn", "fftn", x, s, axes, norm)


def ifftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `fftn`; see there for arguments and errors.

    Raises: as `fftn`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return full("ifftn", "ifftn", x, s, axes, norm)


def fft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`fftn` along two axes.

    Cost: that of `fftn`.
    """
    return full("fft2", "fftn", x, s, axes, norm)


def ifft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`ifftn` along two axes.

    Cost: that of `ifftn`.
    """
    return full("ifft2", "ifftn", x, s, axes, norm)


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
    return half("rfft", x, one(n), (axis,), norm)


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
    return unhalf("irfft", x, one(n), (axis,), norm)


def rfftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """`rfft` along the last of several axes and `fft` along the others; see `fftn`.

    Raises:
        DTypeError: complex samples. Others as for `fftn`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return half("rfftn", x, s, axes, norm)


def irfftn(
    x: Any, /, *, s: Lengths = None, axes: Axes = None, norm: Norm = "backward"
) -> EagerTensor:
    """The inverse of `rfftn`; the last of `s` is the length of the result.

    Raises: as `rfftn`.

    Cost: one allocation of the result's size, one more where `x` is padded.
    """
    return unhalf("irfftn", x, s, axes, norm)


def rfft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`rfftn` along two axes.

    Cost: that of `rfftn`.
    """
    return half("rfft2", x, s, axes, norm)


def irfft2(
    x: Any, /, *, s: Lengths = None, axes: Axes = (-2, -1), norm: Norm = "backward"
) -> EagerTensor:
    """`irfftn` along two axes.

    Cost: that of `irfftn`.
    """
    return unhalf("irfft2", x, s, axes, norm)


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
    swapped = SWAPPED[norm_of("hfft", norm)]
    return unhalf("hfft", conj(as_tensor(x)), one(n), (axis,), swapped)


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
    swapped = SWAPPED[norm_of("ihfft", norm)]
    return conj(half("ihfft", x, one(n), (axis,), swapped))
