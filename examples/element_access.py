"""Reaching elements: by owner, by view and by exclusive view, with and without gaps.

    python examples/element_access.py

Each function walks the same matrix in another way and returns what it saw, so the
results can be compared. docs/guides/views-and-slicing.md explains what each way costs.
"""

from __future__ import annotations

import numpy as np

import tenferro_ad as ta
from tenferro_ad.storage import (
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
    Rank2,
    TypedTensor,
)


def matrix() -> ta.Tensor:
    """An owner of six numbers in two rows."""
    return ta.asarray(np.arange(6.0).reshape(2, 3)).into_value()


def by_owner(t: ta.Tensor) -> float:
    """An owner lends itself for one call: here the whole value, in bulk."""
    return float(t.numpy().sum())


def by_view(t: ta.Tensor) -> float:
    """Without gaps: one typed slice, resolved once."""
    with t.as_view() as view:
        match view.prepare_host():
            case PreparedContiguousRead() as access:
                total = float(access.as_slice().sum())  # bulk
                assert total == sum(access.iter_contiguous())  # element by element
                access.close()
                return total
            case PreparedStridedRead():
                raise AssertionError("a fresh matrix has no gaps")


def by_column(t: ta.Tensor) -> list[float]:
    """With gaps: a plan made once, and ready-made increments."""
    with t.as_view() as view:
        access = view[:, 1].prepare_host()
        assert isinstance(access, PreparedStridedRead)
        column = [float(x) for x in access.iter_strided()]
        access.close()
        return column


def double_by_view_mut(t: ta.Tensor) -> None:
    """In place, in bulk: only an exclusive view gives a writable array."""
    with t.as_view_mut() as view:
        access = view.prepare_host_mut()
        assert isinstance(access, PreparedContiguousWrite)
        elements = access.as_slice_mut()
        elements *= 2.0
        del elements  # the array keeps the borrow while it lives
        access.close()


def clear_column_by_view_mut(t: ta.Tensor) -> None:
    """In place, with gaps: each element is visited once."""
    with t.as_view_mut() as view:
        access = view[:, 0].prepare_host_mut()
        assert isinstance(access, PreparedStridedWrite)
        for element in access.iter_strided_mut():
            element[...] = 0.0
        access.close()
        del element


def keep_the_rank(t: ta.Tensor) -> ta.Tensor:
    """A typed view carries dtype and rank for the type checker; access is the same."""
    typed = TypedTensor.of(t, np.float64, Rank2)
    with typed.as_view() as view:
        assert view.flip(0).rank is Rank2
        assert view.get((1, 2)) == 10.0  # one element, once: that is what get is for
    return typed.erase()


def main() -> None:
    """Walk the matrix in every way; the results must agree and nothing is copied."""
    t = matrix()
    with ta.ledger() as led:
        print("sum by owner         ", by_owner(t))
        print("sum by view          ", by_view(t))
        assert by_owner(t) == by_view(t) == 15.0
        print("second column        ", by_column(t))
        assert by_column(t) == [1.0, 4.0]
        double_by_view_mut(t)
        print("doubled in place     ", t.numpy().tolist())
        clear_column_by_view_mut(t)
        print("first column cleared ", t.numpy().tolist())
        assert t.numpy().tolist() == [[0.0, 2.0, 4.0], [0.0, 8.0, 10.0]]
        t = keep_the_rank(t)
    led.expect(allocations={}, copies={})
    print("allocations", sum(led.allocations.values()))
    print("copies", sum(led.copies.values()))


if __name__ == "__main__":
    main()
