"""Public reinterpretations: complex values as real parts, and back, without a copy."""

from __future__ import annotations

from typing import Any

from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor

__all__ = ["view_as_complex", "view_as_real"]


def view_as_real(x: Any, /) -> EagerTensor:
    """The real and imaginary parts of a complex tensor, in a new last axis of two.

    The result is one more read-only descriptor of the same container. Unlike `real`
    and `imag` it makes no new value; unlike `astype` it changes no number. Result rank:
    one more than the argument's.

    Args:
        x: complex tensor.

    Returns:
        A real tensor of shape `(*x.shape, 2)` over the same bytes.

    Raises:
        DTypeError: `x` is not complex.

    Cost: O(rank); no allocation, copy or event. Its reverse rule makes one output.
    """
    result: EagerTensor = HANDLES.view_as_real(as_tensor(x))
    return result


def view_as_complex(x: Any, /) -> EagerTensor:
    """Pairs of real numbers, in a last axis of two, as complex numbers.

    The result is one more read-only descriptor of the same container; `complex(re, im)`
    makes a new value instead. Result rank: one less than the argument's.

    Args:
        x: float32 or float64 tensor whose last axis has extent 2.

    Returns:
        A complex tensor of shape `x.shape[:-1]` over the same bytes.

    Raises:
        DTypeError: `x` has another dtype.
        ShapeError: the last axis is not of extent 2.
        LayoutError: the parts do not lie beside each other in memory.

    Cost: O(rank); no allocation, copy or event; neither does its reverse rule.
    """
    result: EagerTensor = HANDLES.view_as_complex(as_tensor(x))
    return result
