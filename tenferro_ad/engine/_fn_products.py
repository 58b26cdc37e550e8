"""Products of matrices."""

from __future__ import annotations

from typing import Any

from ..ops import OPS
from ._dispatch import HANDLES
from ._eager import EagerTensor

__all__ = ["matmul"]

_matmul = HANDLES[OPS["matmul"]]


def matmul(x1: Any, x2: Any, /) -> EagerTensor:
    """Matrix product over stacks of matrices; 1-d operands are rows and columns.

    Args:
        x1: shape `(..., M, K)` or `(K,)`.
        x2: shape `(..., K, N)` or `(K,)`; leading axes broadcast.

    Returns:
        Shape `(..., M, N)`, without the axes of 1-d operands.

    Raises:
        ShapeError: an operand is 0-d, or the inner axes differ.

    Cost: one allocation, one GEMM for each matrix; keeps both operands if both are
        tracked, else the untracked one. Backward makes no transposed copies.
    """
    return _matmul(x1, x2)  # type: ignore[no-any-return]
