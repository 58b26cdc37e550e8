"""Retention in the contract's own nouns (G7): built on demand, for reading.

A recording keeps bare `ValueRecord`s in its flat list, which is the inline form of the
shapes that the contract sketches. `TapeRetention` shows that list as a map from
`ValueKey` to `AdValueRecord`. Looking is free of events: it allocates and copies
nothing, and nothing here can write, move or prove anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

from ..errors import InvalidSlotError
from ..storage import AdValueRecord, ValueRecord
from ._record import WIDTH, TapeRecord, _names


@final
@dataclass(frozen=True, slots=True)
class ValueKey:
    """Where one retained value stands in one recording. It looks up and nothing else.

    Attributes:
        operation: whose rule declared the value (`retain`: the user did).
        value: name of the argument or output.
    """

    operation: str
    value: str
    _tape: TapeRecord
    _node: int  # -1: kept by `tape.retain`
    _position: int


@final
class TapeRetention:
    """What one recording retains now, by key: `retention[key]` acquires the record.

    A live view on the recording. It is no holder: a tape that is consumed or dropped
    retains nothing, and records acquired before stay valid.
    """

    __slots__ = ("tape",)

    def __init__(self, tape: TapeRecord) -> None:
        self.tape = tape

    def __iter__(self) -> Iterator[ValueKey]:
        tape = self.tape
        for at in range(0, len(tape.flat), WIDTH):
            spec = tape.flat[at]
            for k, name in enumerate(_names(spec)):
                yield ValueKey(spec.call.op.name, name, tape, at // WIDTH, k)
        for k in range(len(tape.extra)):
            yield ValueKey("retain", "value", tape, -1, k)

    def __len__(self) -> int:
        tape = self.tape
        kept = range(2, len(tape.flat), WIDTH)
        return sum(len(tape.flat[at]) for at in kept) + len(tape.extra)

    def __contains__(self, key: object) -> bool:
        return isinstance(key, ValueKey) and self._found(key) is not None

    def __getitem__(self, key: ValueKey) -> AdValueRecord:
        """Acquire the record of `key`: it stays valid as long as the caller keeps it.

        Raises:
            InvalidSlotError: no such value here, or not any more; nothing was touched.

        Cost: one small object; no event.
        """
        record = self._found(key) if isinstance(key, ValueKey) else None
        if record is None:
            raise InvalidSlotError(
                operation="retention[...]",
                argument="key",
                found="a key of a value that this recording does not retain",
                fix="use a key from iterating over it while its value is retained",
                reason="missing-key",
            )
        return AdValueRecord(record)

    def _found(self, key: ValueKey) -> ValueRecord | None:
        tape = self.tape
        if key._tape is not tape:
            return None
        if key._node < 0:
            kept: Any = tape.extra
        else:
            at = WIDTH * key._node + 2
            kept = tape.flat[at] if at < len(tape.flat) else ()
        if key._position >= len(kept):
            return None
        value = kept[key._position]
        return value if type(value) is ValueRecord else value._record

    def __repr__(self) -> str:
        return f"<retention of {len(self)} values>"


__all__ = ["AdValueRecord", "TapeRetention", "ValueKey"]
