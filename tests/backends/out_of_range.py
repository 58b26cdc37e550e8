"""Indices far out of range in the memory of a device, and what each operation makes of
them: nothing is read or written elsewhere, and the answer is the documented one.

The host refuses all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tenferro_ad as ta

Array = np.ndarray[Any, Any]
NAN = np.nan
X: Array = np.arange(6, dtype=np.float32).reshape(2, 3)


@dataclass(frozen=True)
class Case:
    """`fn(x, index)` on `X` and indices; what it gives on a device.

    Attributes:
        indices: out of range, all but those that `wanted` shows.
    """

    fn: Callable[[Any, Any], Any]
    indices: Any
    wanted: Any

    def run(self, device: Any, kind: Any = np.int64) -> Array:
        x = ta.asarray(X, device=device)
        index = ta.asarray(np.asarray(self.indices, kind), device=device)
        return np.array(self.fn(x, index).numpy())


COLUMNS = [7, 1, -9]  # of an axis of 3
V: Array = np.full((2, 3), 10, np.float32)


def values(x: Any) -> Any:
    return ta.asarray(V, device=x.device)


CASES: dict[str, Case] = {
    "take": Case(
        lambda x, i: ta.take(x, i, axis=1), COLUMNS, [[NAN, 1, NAN], [NAN, 4, NAN]]
    ),
    "x[i]": Case(lambda x, i: x[i], [5, 1], [[NAN] * 3, [3, 4, 5]]),
    "x[:, i]": Case(lambda x, i: x[:, i], COLUMNS, [[NAN, 1, NAN], [NAN, 4, NAN]]),
    "x[i, i]": Case(lambda x, i: x[i, i], [2, 1], [NAN, 4]),
    "take_along_axis": Case(
        lambda x, i: ta.take_along_axis(x, i, axis=1), [[7, 2], [1, -9]],
        [[NAN, 2], [4, NAN]],
    ),
    "gather": Case(
        lambda x, i: ta.gather(x, i, axis=1), [[7, 2], [1, -9]], [[NAN, 2], [4, NAN]]
    ),
    "scatter_add": Case(
        lambda x, i: ta.scatter_add(x, i, values(x)[:, :2], axis=1),
        [[7, 2], [1, -9]], [[0, 1, 12], [3, 14, 5]],
    ),
    "scatter": Case(
        lambda x, i: ta.scatter(x, i, values(x)[:, :2], axis=1),
        [[7, 2], [1, -9]], [[0, 1, 10], [3, 10, 5]],
    ),
    "scatter max": Case(
        lambda x, i: ta.scatter(x, i, values(x)[:, :2], axis=1, reduce="max"),
        [[7, 2], [1, -9]], [[0, 1, 10], [3, 10, 5]],
    ),
    "index_add": Case(
        lambda x, i: ta.index_add(x, i, values(x), axis=1),
        COLUMNS, [[0, 11, 2], [3, 14, 5]],
    ),
    "segment_sum": Case(
        lambda x, i: ta.segment_sum(x, i, num_segments=2),
        [5, 1], [[0, 0, 0], [3, 4, 5]],
    ),
    "segment_max": Case(
        lambda x, i: ta.segment_max(x, i, num_segments=2),
        [5, 1], [[-np.inf] * 3, [3, 4, 5]],
    ),
    "at set": Case(lambda x, i: x.at[i].set(9.0), [5, 1], [[0, 1, 2], [9, 9, 9]]),
    "at add": Case(lambda x, i: x.at[i].add(9.0), [5, 1], [[0, 1, 2], [12, 13, 14]]),
    "at multiply": Case(
        lambda x, i: x.at[:, i].multiply(2.0), COLUMNS, [[0, 2, 2], [3, 8, 5]]
    ),
    "at max": Case(
        lambda x, i: x.at[:, i].max(9.0), COLUMNS, [[0, 9, 2], [3, 9, 5]]
    ),
    "at two": Case(
        lambda x, i: x.at[i, i].set(9.0), [2, 1], [[0, 1, 2], [3, 9, 5]]
    ),
    "at two add": Case(
        lambda x, i: x.at[i, i].add(9.0), [2, 1], [[0, 1, 2], [3, 13, 5]]
    ),
}  # fmt: skip
