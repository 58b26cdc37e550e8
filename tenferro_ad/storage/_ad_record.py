"""`AdValueRecord`: one counted, read-only reference to a retained value (contract G7).

It is how a value that several parties hold is passed on: to a tape, to the constants of
a compiled graph, to the inputs of submitted work. It lends read views and nothing else.
While one lives the value is not unique, so nobody can move it out or write it.
"""

from __future__ import annotations

from typing import final

from .._aval import Aval
from ._descriptor import CheckedDescriptor
from ._record import RetentionContainer, ValueRecord
from ._view import TensorView


@final
class AdValueRecord:
    """One strong reference to a value's record: read-only descriptor and container.

    While it lives the value is not unique. It lends read views only; `clone` counts one
    more reference to the same record.
    """

    __slots__ = ("_record",)

    def __init__(self, record: ValueRecord) -> None:
        self._record = record
        record.tokens.append(None)

    def __del__(self) -> None:
        try:
            self._record.tokens.pop()
        except (AttributeError, IndexError):
            pass  # never counted, or another holder took the last token

    @property
    def aval(self) -> Aval:
        """Shape, dtype and device together. Cost: constant."""
        return self._record.aval

    @property
    def descriptor(self) -> CheckedDescriptor:
        """The checked descriptor. Cost: metadata on first use; no event."""
        home = self.container
        return home.group().record(home.slot(self._record.slot)).descriptor

    @property
    def container(self) -> RetentionContainer:
        """The container whose group owns the root. Cost: one small object at first."""
        return self._record.container()

    def shares(self, other: AdValueRecord) -> bool:
        """Whether both are references to one record. Raises nothing. Cost: constant."""
        return self._record is other._record

    def view(self) -> TensorView:
        """Borrow the value for reading. Cost: metadata only; no event."""
        home = self.container
        return home.group().view(home.slot(self._record.slot))

    def clone(self) -> AdValueRecord:
        """One more reference to the same record. Cost: one object; no event."""
        return AdValueRecord(self._record)

    def keep_for_good(self) -> None:
        """Leave a reference that nobody gives back: work that may read the value cannot
        be proven to have ended, so it must never be written or moved again.

        Raises nothing. Cost: constant; no owner is kept.
        """
        self._record.tokens.append(None)

    def __repr__(self) -> str:
        return f"<record of {self._record.aval!r}>"


__all__ = ["AdValueRecord"]
