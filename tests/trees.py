"""Results as pytrees, compared leaf by leaf."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree

import tenferro_ad as ta


def leaves(tree: Any) -> list[np.ndarray[Any, Any]]:
    """The leaves as arrays: tensors, views and owners, arrays, numbers."""
    found = []
    for x in optree.tree_leaves(tree, namespace="tenferro_ad"):
        if isinstance(x, ta.EagerTensor):
            x = ta.stop_gradient(x)
        elif hasattr(x, "numpy"):
            x = x.numpy()
        found.append(np.asarray(x))
    return found


def agree(seen: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    """Same shapes and dtypes; errors within `tolerance * max(1, largest wanted)`."""
    a, b = leaves(seen), leaves(wanted)
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        assert (x.shape, x.dtype) == (y.shape, y.dtype)
        if x.dtype.kind not in "fc":
            assert np.array_equal(x, y)
            continue
        finite = np.isfinite(y)
        assert np.array_equal(x[~finite], y[~finite], equal_nan=True)
        scale = max(1.0, float(np.max(np.abs(y[finite]), initial=0.0)))
        gap = float(np.max(np.abs(x[finite] - y[finite]), initial=0.0))
        assert gap <= tolerance * scale, f"{x!r}\n  instead of\n{y!r}"
