"""Kernels give IEEE results and say nothing: 1/0 is inf, sqrt(-1) NaN, on every lane.

NumPy's floating-point error state (`np.errstate`, `np.seterr`) belongs to the user's
own NumPy code. Kernels neither follow it (nobody wants an exception out of the middle
of a backward pass) nor change it:

    before = quiet()
    try:
        ...  # kernels
    finally:
        loud(before)

`np.errstate` costs more than a small kernel. NumPy keeps its state in a context
variable, which is found here as the one that `np.seterr` sets; setting and resetting it
costs two calls. Where NumPy had none, `np.seterr` would be used.
"""

from __future__ import annotations

import contextvars
import functools
from collections.abc import Callable
from typing import Any, Final, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])


def _switch() -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    here = contextvars.copy_context()
    there = here.copy()
    there.run(np.seterr, all="ignore")
    for variable, value in there.items():
        if here.get(variable) is not value:
            return functools.partial(variable.set, value), variable.reset
    return functools.partial(np.seterr, all="ignore"), lambda old: np.seterr(**old)


quiet, loud = _switch()


def quietly(fn: F) -> F:
    """`fn` with kernels that say nothing."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = quiet()
        try:
            return fn(*args, **kwargs)
        finally:
            loud(before)

    return call  # type: ignore[return-value]


__all__: Final = ["loud", "quiet", "quietly"]
