"""Index arrays on the host: range checks, gathered rows and added rows.

Rows are gathered through a bounded buffer. Rows are added in the order of the indices,
in the dtype of the values, so that sums are the same on every run.

Reference: F. Gustavson, "Two fast algorithms for sparse matrices: multiplication and
permuted transposition", ACM TOMS 4 (1978), for sums of rows as a sparse product.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import scipy.sparse

from ..errors import IndexRangeError
from ._call import Call

Array = np.ndarray[Any, Any]
# Gathered rows pass through a buffer of at most this size when NumPy needs one.
CHUNK: Final = 1 << 18
INT: Final = np.dtype(np.intp)


# ---- checked indices -----------------------------------------------------------------


def check_range(operation: str, indices: Array, axis: int, size: int) -> None:
    """Refuse indices outside `-size .. size - 1`.

    Raises:
        IndexRangeError: names the axis, the first such index and the size.
    """
    if not indices.size or (indices.min() >= -size and indices.max() < size):
        return
    bad = indices[(indices < -size) | (indices >= size)]
    raise IndexRangeError(
        operation=operation,
        argument="indices",
        found=f"index {int(bad.flat[0])} for axis {axis}, which has size {size}",
        fix=f"use indices from {-size} to {size - 1}" if size else "the axis is empty",
    )


def wrapped(indices: Array, size: int) -> Array:
    """Checked indices as machine integers from 0 on, in one row."""
    flat = indices.astype(INT, copy=False).reshape(-1)
    if flat.size and flat.min() < 0:
        flat = np.where(flat < 0, flat + size, flat)
    return flat


# ---- gathering rows ------------------------------------------------------------------


def gather_into(
    out: Array, x: Array, columns: list[Array], axes: tuple[int, ...], at: int
) -> None:
    """`out[..., j, ...] = x[columns[0][j], columns[1][j], ...]` with `j` at axis `at`,
    where `out` has one axis for all indices."""
    rest = tuple(k for k in range(x.ndim) if k not in axes)
    rows = np.moveaxis(out, at, 0)
    source = x.transpose(axes + rest)
    n = len(columns[0])
    row_nbytes = max(1, out.nbytes // max(1, n))
    step = max(1, CHUNK // row_nbytes)
    for j in range(0, n, step):
        rows[j : j + step] = source[tuple(c[j : j + step] for c in columns)]


def joined(out: Array, at: int, batch: tuple[int, ...]) -> Array:
    """The fresh result with all index axes merged into one (a view)."""
    shape = out.shape
    n = math.prod(batch)
    return out.reshape((*shape[:at], n, *shape[at + len(batch) :]))


# ---- adding rows ---------------------------------------------------------------------


def _add_rows(rows: int, at: Array, values: Array) -> Array:
    """A fresh (rows, width) array: row r sums all `values[j]` with `at[j]` = r.

    In the order of j. The product with a sparse selection matrix adds whole rows, many
    times faster than `np.add.at`, and adds in the same order.
    """
    n, width = values.shape
    if width > 1 and values.size > 256 and values.dtype.kind in "fc":
        ones = np.ones(n, values.dtype)
        pick = scipy.sparse.csc_array((ones, at, np.arange(n + 1)), shape=(rows, n))
        return pick @ values  # type: ignore[no-any-return]
    out = np.zeros((rows, width), values.dtype)
    if width == 1:
        np.add.at(out.reshape(-1), at, values.reshape(-1))
    else:
        np.add.at(out, at, values)
    return out


def singles(call: Call) -> int:
    """Bytes of a cotangent and a sum in single precision, where they are halves."""
    ct, out = call.ins[0], call.out
    return int(8 * (ct.size + out.size)) if out.dtype == np.float16 else 0


def scatter_onto(
    out: Array, ct: Array, columns: list[Array], axes: tuple[int, ...], at: int
) -> None:
    """The transpose of `_gather_into`, added to `out`; halves in single precision."""
    if ct.size == 0 or out.size == 0:
        return
    if out.dtype == np.float16:
        summed = np.zeros(out.shape, np.float32)
        scatter_onto(summed, ct.astype(np.float32), columns, axes, at)
        np.add(out, summed, out, casting="unsafe")
        return
    rest = tuple(k for k in range(out.ndim) if k not in axes)
    dims = tuple(out.shape[a] for a in axes)
    place = columns[0]
    for column, size in zip(columns[1:], dims[1:], strict=True):
        place = place * size + column
    values = np.moveaxis(ct, at, 0).reshape(len(place), -1)
    leading = axes == tuple(range(len(axes)))
    if values.shape[1] == 1 and leading and out.flags.c_contiguous:
        np.add.at(out.reshape(-1), place, values.reshape(-1))
        return
    target = out.transpose(axes + rest)
    sums = _add_rows(math.prod(dims), place, values)
    np.add(target, sums.reshape(target.shape), target)
