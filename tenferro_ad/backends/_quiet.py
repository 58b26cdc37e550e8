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


Function = Callable[..., Any]


def _switch() -> tuple[Function, Function, Function, Function]:
    here = contextvars.copy_context()
    there = here.copy()
    there.run(np.seterr, all="ignore")
    for variable, value in there.items():
        if here.get(variable) is not value:
            quiet = functools.partial(variable.set, value)
            return quiet, variable.reset, variable.get, variable.set
    restore = _restore_errors
    return functools.partial(np.seterr, all="ignore"), restore, np.geterr, restore


def _restore_errors(state: dict[str, Any]) -> None:
    np.seterr(**state)


quiet, loud, _state, _restore = _switch()


def quietly(fn: F) -> F:
    """`fn` with kernels that say nothing."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        # Asked for first, and left after the result has its name: an interrupt finds
        # no place between a change and the block that takes it back.
        before = _state()
        try:
            quiet()
            result = fn(*args, **kwargs)
        finally:
            _restore(before)
        return result

    return call  # type: ignore[return-value]


__all__: Final = ["loud", "quiet", "quietly"]
