"""Discrete Fourier transforms with the array API's names, over SciPy's pocketfft.

`n` (or `s`) cuts the operand along an axis or pads it with zeros before the transform.
`norm` says which direction carries the factor 1/n: "backward" (the inverse, the
default), "forward", or "ortho" for its root in both. float32 stays in single precision.
Every transform is linear and retains nothing; its derivative is another transform.
"""

from ._frequencies import fftfreq, fftshift, ifftshift, rfftfreq
from ._transforms import (
    fft,
    fft2,
    fftn,
    hfft,
    ifft,
    ifft2,
    ifftn,
    ihfft,
    irfft,
    irfft2,
    irfftn,
    rfft,
    rfft2,
    rfftn,
)

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
