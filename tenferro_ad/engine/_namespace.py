"""What this package says of itself as an array API namespace, and its constants.

The standard (2025.12) lets a program ask a namespace for devices and dtypes instead of
guessing; the answers come from where values are made, so they cannot drift from it.
"""

from __future__ import annotations

import math
from typing import Any, Final, final

import numpy as np

from ..runtime import default_device, device_of, devices
from ._fn_dtypes import isdtype

__all__ = [
    "__array_api_version__",
    "__array_namespace_info__",
    "e",
    "inf",
    "nan",
    "newaxis",
    "pi",
]

__array_api_version__: Final = "2025.12"
VERSIONS: Final = ("2021.12", "2022.12", "2023.12", "2024.12", __array_api_version__)
"""What `__array_namespace__(api_version=)` accepts: later ones only add."""

e: Final = math.e
inf: Final = math.inf
nan: Final = math.nan
newaxis: Final = None
pi: Final = math.pi

_DTYPES: Final = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float32 float64 complex64 complex128"
).split()
_DEFAULTS: Final = {
    "real floating": "float64",
    "complex floating": "complex128",
    "integral": "int64",
    "indexing": "int64",
}


@final
class __array_namespace_info__:
    """Facts about this namespace: `ta.__array_namespace_info__().devices()`.

    Cost: table lookups; no method touches a value or a device.
    """

    __slots__ = ()

    def capabilities(self) -> dict[str, Any]:
        """Optional parts of the standard: masks and results whose shape depends on
        values are offered eagerly; NumPy limits the number of axes to 64.

        Raises nothing.

        Cost: a look-up.
        """
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": 64,
        }

    def default_device(self) -> Any:
        """The device of values that are made without one.

        Raises nothing. Cost: a look-up.
        """
        return default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, np.dtype[Any]]:
        """The dtypes of values that are made without one, by kind.

        Raises:
            InvalidArgumentError: no such device.

        Cost: a look-up.
        """
        device_of(device, "default_dtypes")
        return {kind: np.dtype(name) for kind, name in _DEFAULTS.items()}

    def devices(self) -> list[Any]:
        """The devices that values can live on. Raises nothing. Cost: a look-up."""
        return devices()

    def dtypes(
        self, *, device: Any = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, np.dtype[Any]]:
        """The standard's dtypes, by name; `float16` exists too, and is none of them.

        Args:
            device: a device or its name; the default device if None.
            kind: only those for which `isdtype` answers True.

        Raises:
            InvalidArgumentError: no such device, or no such kind.

        Cost: a look-up.
        """
        device_of(device, "dtypes")
        found = {name: np.dtype(name) for name in _DTYPES}
        if kind is None:
            return found
        return {name: d for name, d in found.items() if isdtype(d, kind)}
