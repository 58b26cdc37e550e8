"""Halves in compositions: computed in single precision and rounded once.

Squares of large halves are no halves, and a mean square near zero is none either.
"""

from __future__ import annotations

from typing import Any

import tenferro_ad as ta


def in_single(x: ta.EagerTensor) -> ta.EagerTensor:
    """Halves as singles; anything else as it is."""
    return ta.astype(x, ta.float32) if x.dtype == ta.float16 else x


def rounded(y: ta.EagerTensor, given: ta.EagerTensor, *others: Any) -> ta.EagerTensor:
    """What became of halves, in the dtype that all operands ask for together; None
    among the others is no operand, and data without a dtype is in double precision."""
    if given.dtype != ta.float16:
        return y
    dtypes = [getattr(v, "dtype", ta.float64) for v in others if v is not None]
    return ta.astype(y, ta.result_type(given, *dtypes), copy=False)
