"""Equations of contractions: their terms, lengths, and operands made ready for pairs.

An equation is text such as `ab,bc->ac`, with one symbol for each axis of each operand
and an explicit output. Making an operand ready drops axes of length 1 that broadcast,
takes diagonals of repeated symbols and sums over symbols that nobody else has, so that
in a pair each symbol of one side belongs to the other side or to the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from opt_einsum import get_symbol

from ..errors import ShapeError

DType = np.dtype[Any]
Shape = tuple[int, ...]

HALF: Final = np.dtype(np.float16)
SINGLE: Final = np.dtype(np.float32)


def wide(dtype: DType) -> DType:
    """The dtype that sums of this dtype are computed in."""
    return SINGLE if dtype == HALF else dtype


@lru_cache(maxsize=4096)
def terms_of(equation: str) -> tuple[tuple[str, ...], str]:
    """The symbols of the operands and of the output."""
    left, _, out = equation.partition("->")
    return tuple(left.split(",")), out


@lru_cache(maxsize=16384)
def canonical(*terms: str) -> str:
    """The equation of these operands (the last term is the output), with symbols named
    in the order in which they occur: equal contractions have equal text."""
    names: dict[str, str] = {}
    for term in terms:
        for c in term:
            if c not in names:
                names[c] = get_symbol(len(names))
    renamed = ["".join([names[c] for c in term]) for term in terms]
    return ",".join(renamed[:-1]) + "->" + renamed[-1]


def sizes_of(
    operation: str, terms: tuple[str, ...], shapes: tuple[Shape, ...]
) -> dict[str, int]:
    """The length of each symbol; axes of length 1 broadcast.

    Raises:
        ShapeError: a number of axes or two lengths disagree.
    """
    sizes: dict[str, int] = {}
    giver: dict[str, int] = {}
    for k, (term, shape) in enumerate(zip(terms, shapes, strict=True)):
        if len(term) != len(shape):
            raise ShapeError(
                operation=operation,
                argument=f"operand {k}",
                found=f"shape {shape} for the {len(term)} axes of `{term}`",
                fix="write one symbol for each axis, or an ellipsis for several",
            )
        own: dict[str, int] = {}
        for c, n in zip(term, shape, strict=True):
            if own.setdefault(c, n) != n:
                _unequal(operation, k, c, n, "along another axis of it", own[c])
            known = sizes.get(c, 1)
            if known == 1:
                sizes[c], giver[c] = n, k
            elif n not in (1, known):
                _unequal(operation, k, c, n, f"in operand {giver[c]}", known)
    return sizes


def _unequal(
    operation: str, k: int, symbol: str, n: int, where: str, other: int
) -> None:
    raise ShapeError(
        operation=operation,
        argument=f"operand {k}",
        found=f"`{symbol}` of length {n}, which has length {other} {where}",
        fix="give axes with one symbol equal lengths",
    )


@dataclass(frozen=True, slots=True)
class Ready:
    """What brings one operand to distinct symbols that others have too.

    Attributes:
        shape: of the operand.
        squeezed: axes of length 1 that broadcast; they are dropped first.
        term: symbols after that; one may be repeated (its diagonal is taken).
        distinct: each symbol once, in the order of the axes; diagonals come last.
        summed: positions in `distinct` that are summed over.
        symbols: what is left.
    """

    shape: Shape
    squeezed: Shape
    term: str
    distinct: str
    summed: Shape
    symbols: str

    @property
    def is_trivial(self) -> bool:
        """Nothing is to be done."""
        return len(self.symbols) == len(self.shape)

    @property
    def is_distinct(self) -> bool:
        """There are no diagonals to take."""
        return len(self.distinct) == len(self.term)


def made_ready(
    terms: tuple[str, ...], out: str, shapes: tuple[Shape, ...], sizes: dict[str, int]
) -> tuple[Ready, ...]:
    """What each operand needs."""
    squeezed = [
        tuple([k for k, c in enumerate(term) if shape[k] == 1 != sizes[c]])
        for term, shape in zip(terms, shapes, strict=True)
    ]
    left = [
        "".join([c for k, c in enumerate(term) if k not in dropped])
        for term, dropped in zip(terms, squeezed, strict=True)
    ]
    owners = dict.fromkeys(sizes, 0)
    for term in (*left, out):
        for c in set(term):
            owners[c] += 1
    found = []
    for term, shape, dropped in zip(left, shapes, squeezed, strict=True):
        once = [c for c in term if term.count(c) == 1]
        distinct = "".join([*once, *dict.fromkeys(c for c in term if c not in once)])
        summed = tuple([k for k, c in enumerate(distinct) if owners[c] == 1])
        symbols = "".join([c for c in distinct if owners[c] > 1])
        found.append(Ready(shape, dropped, term, distinct, summed, symbols))
    return tuple(found)
