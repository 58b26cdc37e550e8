"""Samples for every row of the operation table: where the suite evaluates it.

A `Row` says what a row should do, independently of the package: a NumPy or SciPy
function for its value, the names that the reverse rule of each argument keeps, whether
its outputs are views, and operands of several dtypes and layouts, away from kinks
(`test_kinks.py` has those). `test_table.py` and `tests/reference/test_jax.py` do the
rest; what users check their own operations with is the same (`tenferro_ad.testing`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tenferro_ad.ops import OPS
from tenferro_ad.testing._agree import gap, is_double
from tenferro_ad.testing._samples import (
    Row,
    Sample,
    as_tuple,
    at,
    handle,
    memory_of,
    numpy_of,
)

__all__ = [
    "Drawer",
    "Row",
    "Sample",
    "as_tuple",
    "at",
    "between",
    "close",
    "handle",
    "is_double",
    "load",
    "memory_of",
    "numpy_of",
    "off_integers",
    "outside",
    "row",
    "spread",
]

Array = np.ndarray[Any, Any]


ROWS: dict[str, Row] = {}


def row(
    name: str, reference: Callable[..., Any], samples: Sequence[Sample], **facts: Any
) -> None:
    """Enter the samples of one row."""
    assert name not in ROWS, name
    ROWS[name] = Row(OPS[name], reference, tuple(samples), **facts)


def load() -> dict[str, Row]:
    """All rows: those of every module `samples_*.py` beside this one."""
    for path in sorted(Path(__file__).parent.glob("samples_*.py")):
        import_module(f"{__package__}.{path.stem}")
    return ROWS


def close(seen: Any, wanted: Any, tolerance: float) -> None:
    """Equal to `tolerance` times the largest number of the reference, at least 1."""
    assert gap(seen, wanted) <= tolerance, f"{seen!r}\n  instead of\n{wanted!r}"


# ---- drawing -------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def between(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape)


def outside(gap: float, far: float = 2.5) -> Draw:
    """Of either sign, at least `gap` from zero."""
    return lambda rng, shape: (
        rng.choice([-1.0, 1.0], shape) * rng.uniform(gap, far, shape)
    )


def off_integers(low: int, high: int) -> Draw:
    """Not near an integer or a half."""
    return lambda rng, shape: (
        rng.integers(low, high, shape)
        + rng.choice([0.1, 0.6], shape)
        + rng.uniform(0.05, 0.3, shape)
    )


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Distinct numbers with a gap between any two, in random order."""
    n = int(np.prod(shape))
    return np.asarray(rng.permutation(n) / max(n, 1) * 4 - 2 + 0.01).reshape(shape)


class Drawer:
    """Arrays of one row, the same on every run."""

    def __init__(self, name: str, real: Draw, complex_: Draw | None = None) -> None:
        self.rng = np.random.default_rng(list(name.encode()))
        self.real = real
        self.complex = complex_ or between(0.4, 1.6)
        self.ints = (-4, 5)

    def __call__(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return np.asarray(self.rng.integers(0, 2, shape), dtype)
        if dtype.kind in "iu":
            low, high = self.ints
            low = max(low, 0) if dtype.kind == "u" else low
            return np.asarray(self.rng.integers(low, high, shape), dtype)
        if dtype.kind == "c":
            re = self.complex(self.rng, shape)
            im = self.rng.choice([-1.0, 1.0], shape) * self.complex(self.rng, shape)
            return np.asarray(re + 0.7j * im, dtype)
        return np.asarray(self.real(self.rng, shape), dtype)

    def flipped(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A view with a negative step along the first axis and gaps along the last."""
        if len(shape) == 1:
            return self((3 * shape[0],), dtype)[::-3]
        base = self((2 * shape[0], *shape[1:-1], 3 * shape[-1]), dtype)
        return base[::-2, ..., 1::3]

    def transposed(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A view with the axes in reverse order in memory."""
        return self(shape[::-1], dtype).transpose()

    def repeated(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A view with stride 0 along the first axis."""
        return np.broadcast_to(self(shape[1:], dtype), shape)
