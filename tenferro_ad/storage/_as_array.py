"""`np.asarray` of an owner or a view: the array of `numpy()`, or one of its own.

Without this NumPy would wrap the object itself, as an array of one Python object.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import DTypeError
from ._provider import HostArray


def as_array(self: Any, dtype: Any = None, copy: bool | None = None) -> HostArray:
    """`numpy()`, which keeps the borrow, or NumPy's copy where one is asked for.

    Raises:
        DTypeError: complex numbers as real ones, or another dtype without a copy.

    Cost: as `TensorView.numpy`; another dtype or `copy=True` copies into memory of
    NumPy, which no ledger counts.
    """
    lent: HostArray = self.numpy()
    wanted = lent.dtype if dtype is None else np.dtype(dtype)
    loses = lent.dtype.kind == "c" and wanted.kind != "c"
    if loses or (wanted != lent.dtype and copy is False):
        raise DTypeError(
            operation="np.asarray",
            argument="dtype",
            found=f"`{wanted}` for values of dtype {lent.dtype}",
            fix="take a part of the numbers first" if loses else "pass `copy=None`",
        )
    if wanted != lent.dtype or copy:
        return lent.astype(wanted)
    return lent
