"""Numbers that remember what a traced function asked of them.

While a function with named sizes is traced, the sizes that it reads (`x.shape`,
`x.size`) are integers that record comparisons: `if n == 77` is no operation, and yet it
decides which ones run. What was asked, and the answer, becomes a guard of the program.
Arithmetic gives such numbers again. The package's own comparisons are no questions of
the function; neither can conversions be seen that leave plain numbers (`len(x)`,
`np.prod(x.shape)`).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, final

PACKAGE: Final = __name__.partition(".")[0]


@final
class Watch:
    """What one run of a function asked of its sizes.

    Attributes:
        asked: comparison, both numbers and answer, in order.
        equations: that the run made, the unused ones too.
    """

    __slots__ = ("asked", "equations", "is_open")

    def __init__(self) -> None:
        self.asked: list[tuple[str, Any, Any, bool]] = []
        self.equations = 0
        self.is_open = True

    def sizes(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The lengths, watched."""
        return tuple([_watched(n, self) for n in shape])

    def size(self, n: int) -> int:
        return _watched(n, self)  # type: ignore[no-any-return]

    def note(
        self, comparison: str, mine: Any, theirs: Any, answer: bool, asking: Any
    ) -> None:
        """Remember a question and its answer.

        Args:
            asking: global names of the code that asked.
        """
        outside = asking.get("__name__", "").partition(".")[0] != PACKAGE
        if self.is_open and outside:
            self.asked.append((comparison, mine, theirs, answer))


WATCH: Final[ContextVar[Watch | None]] = ContextVar("tenferro_ad_watch", default=None)


@contextmanager
def watching() -> Iterator[Watch]:
    """Sizes that are read inside are watched."""
    watch = Watch()
    token = WATCH.set(watch)
    try:
        yield watch
    finally:
        WATCH.reset(token)
        watch.is_open = False


def _watched(value: Any, watch: Watch) -> Any:
    if type(value) is int:
        found: Any = _WatchedInt(value)
    elif type(value) is float:
        found = _WatchedFloat(value)
    else:
        return value
    found.watch = watch
    return found


def _plain(x: Any) -> Any:
    if isinstance(x, _WatchedInt):
        return int(x)
    return float(x) if isinstance(x, _WatchedFloat) else x


def _comparing(name: str) -> Callable[[Any, Any], Any]:
    plain = getattr(operator, name)

    def compare(self: Any, other: Any) -> Any:
        mine, theirs = _plain(self), _plain(other)
        if not isinstance(theirs, int | float):
            return NotImplemented
        answer = plain(mine, theirs)
        self.watch.note(name, mine, theirs, answer, sys._getframe(1).f_globals)
        return answer

    return compare


def _computing(name: str, *, swapped: bool) -> Callable[[Any, Any], Any]:
    plain = getattr(operator, name)

    def compute(self: Any, other: Any) -> Any:
        mine, theirs = _plain(self), _plain(other)
        if not isinstance(theirs, int | float):
            return NotImplemented
        return _watched(
            plain(theirs, mine) if swapped else plain(mine, theirs), self.watch
        )

    return compute


def _truth(self: Any) -> bool:
    value = _plain(self)
    self.watch.note("ne", value, 0, bool(value), sys._getframe(1).f_globals)
    return bool(value)


_METHODS: Final[dict[str, Any]] = {
    **{f"__{n}__": _comparing(n) for n in ("eq", "ne", "lt", "le", "gt", "ge")},
    **{
        f"__{side}{n}__": _computing(n, swapped=bool(side))
        for n in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow")
        for side in ("", "r")
    },
    "__neg__": lambda self: _watched(-_plain(self), self.watch),
    "__bool__": _truth,
}
_WatchedInt: Final[Any] = type("size", (int,), {**_METHODS, "__hash__": int.__hash__})
_WatchedFloat: Final[Any] = type(
    "size", (float,), {**_METHODS, "__hash__": float.__hash__}
)

__all__ = ["WATCH", "Watch", "watching"]
