"""What the checks of an operation compare: numbers, directions, counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..backends import CPU
from ..errors import PromiseError
from ._numeric import Array, tensors
from ._samples import Row, Sample, numpy_of


class OperationCheckError(PromiseError, AssertionError):
    """An operation does not do what its declaration, or its sample, says.

    Attributes:
        argument: the property.
        expected, seen: what was compared, where there is something to compare.
    """

    _fix = "correct the operation's declaration, or what the sample says of it"


def ensure(
    holds: Any, row: Row, prop: str, found: str, *, seen: Any = None, wanted: Any = None
) -> None:
    """Raises:
    OperationCheckError: it does not hold.
    """
    if not holds:
        raise OperationCheckError(
            operation=row.name, argument=prop, found=found, seen=seen, expected=wanted
        )


# ---- numbers -------------------------------------------------------------------------


def precision(*arrays: Array) -> str:
    """The narrowest floating dtype among them."""
    narrow = any(a.dtype.char in "efF" for a in arrays)
    return "single" if narrow else "double"


def is_double(row: Row, sample: Sample) -> bool:
    outs = row.expected(sample)
    floats = [x for x in (*sample.operands, *outs) if x.dtype.kind in "fc"]
    return precision(*floats) == "double"


def gap(seen: Any, wanted: Any) -> float:
    """The largest difference, in units of the largest number of the reference or 1;
    infinite where shapes, integers or what is not finite differ."""
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    if seen.shape != wanted.shape:
        return float("inf")
    if not wanted.size:
        return 0.0
    if wanted.dtype.kind not in "fc":
        return 0.0 if np.array_equal(seen, wanted) else float("inf")
    finite = np.isfinite(wanted)
    if not np.array_equal(seen[~finite], wanted[~finite], equal_nan=True):
        return float("inf")
    scale = max(1.0, float(np.max(np.abs(wanted[finite]), initial=0.0)))
    with np.errstate(invalid="ignore"):
        found = np.abs(seen[finite] - wanted[finite])
    return float(np.nan_to_num(np.max(found, initial=0.0), nan=np.inf)) / scale


def close(
    row: Row, prop: str, what: str, seen: Any, wanted: Any, tolerance: float
) -> None:
    """Raises:
    OperationCheckError: they differ by more than the tolerance, relative to the
        largest number of the reference, at least 1.
    """
    found = gap(seen, wanted)
    if not found <= tolerance:
        raise OperationCheckError(
            operation=row.name,
            argument=prop,
            found=f"{what} differs by {found:.3g}, allowed is {tolerance:.3g}:\n"
            f"{np.asarray(seen)!r}\n  instead of\n{np.asarray(wanted)!r}\n",
            seen=seen,
            expected=wanted,
        )


def direction(rng: np.random.Generator, like: Array) -> Array:
    v: Array = np.asarray(rng.uniform(-1, 1, like.shape))
    if like.dtype.kind == "c":
        v = v + 1j * rng.uniform(-1, 1, like.shape)
    return np.asarray(v, like.dtype)


def directions(sample: Sample, arrays: Sequence[Array]) -> list[Array]:
    rng = np.random.default_rng(list(sample.label.encode()))
    return [direction(rng, a) for a in arrays]


def widened(x: Array) -> Array:
    return x.astype(np.result_type(x, np.float64)) if x.dtype.kind in "fc" else x


def differences(
    row: Row, sample: Sample, tangents: dict[int, Array], h: float = 2.0**-17
) -> list[Array]:
    """Central differences of the reference in double precision."""
    sides = []
    for sign in (h, -h):
        moved = [
            widened(x) + sign * widened(tangents[i]) if i in tangents else widened(x)
            for i, x in enumerate(sample.operands)
        ]
        sides.append(row.valued(moved, sample.params, smooth=True))
    return [(a - b) / (2 * h) for a, b in zip(*sides, strict=True)]


def weights_for(row: Row, sample: Sample, outs: Sequence[Any]) -> list[Array]:
    """Cotangents, drawn apart from the tangents."""
    rng = np.random.default_rng(list((sample.label + " weights").encode()))
    return [direction(rng, numpy_of(y)) for y in outs]


def like(out: Any, weights: Sequence[Array]) -> Any:
    found = tensors(weights)
    return found if isinstance(out, tuple) else found[0]


# ---- independent counts --------------------------------------------------------------


class ProviderCalls:
    """What the CPU provider handed out, counted at its own calls and by no ledger."""

    def __init__(self) -> None:
        self.small = 0
        self.pooled = 0
        self.adopted = 0

    @property
    def total(self) -> int:
        """Physical allocations."""
        return self.small + self.pooled + self.adopted

    def reset(self) -> None:
        self.small = self.pooled = self.adopted = 0


@contextmanager
def counted_calls() -> Iterator[ProviderCalls]:
    """Counts every hand-out of the CPU provider in the block, in all threads.

    Setting `CPU.limit` in the block replaces `small`, which then counts nothing.
    """
    calls = ProviderCalls()
    small: Callable[..., Any] = CPU.small
    allocate, adopted = CPU.allocate, CPU.adopted

    def count_small(*args: Any) -> Any:
        array = small(*args)
        calls.small += 1
        return array

    def count_pooled(*args: Any) -> Any:
        array = allocate(*args)
        calls.pooled += 1
        return array

    def count_adopted(nbytes: int) -> None:
        adopted(nbytes)
        calls.adopted += 1

    own = vars(CPU)
    before = {name: own.get(name) for name in ("small", "allocate", "adopted")}
    own.update(small=count_small, allocate=count_pooled, adopted=count_adopted)
    try:
        yield calls
    finally:
        for name, value in before.items():
            if value is None:
                del own[name]
            else:
                own[name] = value
