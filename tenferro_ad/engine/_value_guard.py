"""A shared borrow of a handle's value: its view, and its bytes as an array."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from ..errors import ExpiredCapabilityError
from ..storage import TensorView, ValueRecord, as_array
from ..tape import hold, let_go


@final
class ValueGuard:
    """A shared borrow of a value: `view` (a `TensorView`) and `numpy()`.

    Ends at the end of the `with` block, on `close()`, or with its last reference.
    """

    __slots__ = ("_record", "_view")
    __array__ = as_array

    def __init__(self, record: ValueRecord) -> None:
        self._record: ValueRecord | None = record
        hold(record)
        self._view: TensorView | None = None

    @property
    def view(self) -> TensorView:
        """The borrowed `TensorView`.

        Raises:
            ExpiredCapabilityError: the guard has ended.
        """
        return self._lent("view")

    def _lent(self, operation: str) -> TensorView:
        if self._record is None:
            raise ExpiredCapabilityError(
                operation=operation,
                kind="ValueGuard",
                fix="read inside the `with` block, or call `value()` again",
            )
        if self._view is None:
            home = self._record.container()
            self._view = home.group().view(home.slot(self._record.slot))
        return self._view

    def numpy(self) -> np.ndarray[Any, Any]:
        """Read-only array over the value's bytes; it keeps the borrow while alive.

        Raises:
            ExpiredCapabilityError: the guard has ended.

        Cost: no copy; waits for the value on asynchronous lanes.
        """
        return self._lent("numpy").numpy()

    def close(self) -> None:
        """End the borrow; arrays handed out keep theirs.

        Raises nothing. Cost: constant.
        """
        view, self._view = self._view, None
        if view is not None:
            view.close()
        record, self._record = self._record, None
        let_go((record,))

    def __enter__(self) -> ValueGuard:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()
