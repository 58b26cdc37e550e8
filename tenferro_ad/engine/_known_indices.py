"""Indices that the host knows are refused before they go to a device; others nobody
knows while a function is traced."""

from __future__ import annotations

from typing import Any

from ..ops import check_range
from ..runtime import is_symbolic
from ._eager import EagerTensor
from ._make import outside


def check_known(
    operation: str, indices: Any, x: EagerTensor, axis: int, size: int | None = None
) -> None:
    """Refuse indices out of range that the host knows, where `x` is on a lane.

    Kernels of the host look at their indices anyway. Those of a lane cannot refuse; its
    memory would have to be waited for.

    Raises:
        IndexRangeError: names axis, index and size.
    """
    if isinstance(indices, EagerTensor) or not getattr(x.device, "takes_views", False):
        return
    known = outside(indices, None, operation, "indices")
    if known.dtype.kind in "iu":
        check_range(operation, known, axis, x.shape[axis] if size is None else size)


def is_traced(entry: Any) -> bool:
    """Whether an entry of a key is a tensor that has no bytes yet."""
    return isinstance(entry, EagerTensor) and is_symbolic(entry._record)


__all__ = ["check_known", "is_traced"]
