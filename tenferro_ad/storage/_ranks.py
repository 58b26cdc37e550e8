"""Ranks as types: `TypedTensor[ta.float64, Rank2]` (contract G4).

A rank is a final class without instances. It travels in type parameters, and typed
values keep it at run time too. `DynRank` stands for any number of axes and is a rank
like the others: nothing is refused to it.
"""

from __future__ import annotations

from typing import Any, ClassVar, final

from ..errors import NotConstructibleError


class TensorRank:
    """Base of the ranks; `ndim` is the number of axes, None where it is open."""

    __slots__ = ()

    ndim: ClassVar[int | None] = None

    def __new__(cls, *args: object) -> Any:
        """Refuse instances: a rank is a name."""
        raise NotConstructibleError(
            operation=cls.__name__,
            kind=cls.__name__,
            fix="name the class itself: a rank has no instances",
        )

    @classmethod
    def admits(cls, ndim: int) -> bool:
        """Whether a value with `ndim` axes has it. Raises nothing. Cost: constant."""
        return cls.ndim is None or cls.ndim == ndim


@final
class DynRank(TensorRank):
    """Any number of axes, known at run time."""

    __slots__ = ()


@final
class Rank0(TensorRank):
    """No axis."""

    __slots__ = ()
    ndim = 0


@final
class Rank1(TensorRank):
    """One axis."""

    __slots__ = ()
    ndim = 1


@final
class Rank2(TensorRank):
    """Two axes."""

    __slots__ = ()
    ndim = 2


@final
class Rank3(TensorRank):
    """Three axes."""

    __slots__ = ()
    ndim = 3


@final
class Rank4(TensorRank):
    """Four axes."""

    __slots__ = ()
    ndim = 4


@final
class Rank5(TensorRank):
    """Five axes."""

    __slots__ = ()
    ndim = 5


@final
class Rank6(TensorRank):
    """Six axes."""

    __slots__ = ()
    ndim = 6


@final
class Rank7(TensorRank):
    """Seven axes."""

    __slots__ = ()
    ndim = 7


@final
class Rank8(TensorRank):
    """Eight axes."""

    __slots__ = ()
    ndim = 8


RANKS = (Rank0, Rank1, Rank2, Rank3, Rank4, Rank5, Rank6, Rank7, Rank8)
"""The fixed ranks, by number of axes."""
