"""Which line of the caller's program an event belongs to.

That is the nearest frame outside the package; for work that another thread does, the
line that asked for it, which the thread is told with `asked_at`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Final

Line = tuple[str, int]

_PACKAGE: Final = __name__.rpartition(".")[0]
_ASKED: Final[ContextVar[Line | None]] = ContextVar("tenferro_ad_asked", default=None)


def source_line() -> Line:
    """File and line of the nearest frame outside the package.

    Generated kernels have no module name; they belong to the package.
    """
    asked = _ASKED.get()
    if asked is not None:
        return asked
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", _PACKAGE)
        if name != _PACKAGE and not name.startswith(_PACKAGE + "."):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return "?", 0


def asked() -> Line | None:
    """The line that asked for the work of this thread, if it was told."""
    return _ASKED.get()


@contextmanager
def asked_at(line: Line | None) -> Iterator[None]:
    """What happens inside belongs to `line`."""
    before = _ASKED.get()
    try:
        _ASKED.set(line)
        yield
    finally:
        _ASKED.set(before)


__all__ = ["Line", "asked", "asked_at", "source_line"]
