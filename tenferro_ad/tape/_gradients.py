"""Gradients: the bundle that owns the results of a backward pass.

One owner for each gradient, keyed by the bare token of the leaf, so a bundle never
makes a parameter non-unique. `grad` lends, `take_grad` moves out, `into_group` turns
the whole bundle into an ordinary `AllocationGroup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from ..errors import ExtractError, NotALeafError, a_kind
from ..storage import (
    AllocationGroup,
    DescriptorSlot,
    Tensor,
    TensorView,
    ValueRecord,
    land,
)
from ._record import Leaf, hold


@final
class Gradients:
    """Gradients by variable. Made by `tape.backward` and `ta.value_and_grad`.

    `grads.grad(w)` and `grads.take_grad(w)` answer None for a variable without
    gradient; `grads[w]` gives a handle, which nested derivatives track.
    """

    __slots__ = ("_chains", "_records", "_taken", "_tree", "_wrap")

    def __init__(
        self,
        records: dict[Leaf, ValueRecord],
        chains: dict[Leaf, Any],
        wrap: Callable[[ValueRecord, Any], Any],
        tree: Callable[[Any, Callable[[Any], Any]], Any],
    ) -> None:
        self._records = records
        self._chains = chains
        self._wrap = wrap
        self._tree = tree
        self._taken: set[Leaf] = set()

    def _token(self, key: Any, operation: str) -> Leaf:
        token = getattr(key, "_link", None)
        outer = getattr(key, "_outer", None)
        while outer is not None and type(token) is not Leaf:
            token, _, outer = outer
        if type(token) is not Leaf:
            raise NotALeafError(
                operation=operation,
                argument="key",
                found=f"{a_kind(key)} that is no variable",
                fix="use the tensor that `ta.variable` returned (or a clone of it)",
            )
        return token

    def grad(self, key: Any) -> TensorView | None:
        """Borrow the gradient of variable `key`, or None if it has none.

        Raises:
            NotALeafError: `key` is not a variable.
            ExtractError: it was taken before.

        Cost: metadata only; no storage allocation, no copy.
        """
        token = self._token(key, "grad")
        record = self._records.get(token)
        if record is None:
            self._refuse_taken(token, "grad")
            return None
        home = record.container()
        return home.group().view(home.slot(record.slot))

    def __getitem__(self, key: Any) -> Any:
        """A handle on the gradient of `key`, tracked by the tapes around, or None.

        The bundle and the handle then share the value: `take_grad` is refused until the
        handle is dropped.
        """
        token = self._token(key, "grads[...]")
        record = self._records.get(token)
        if record is None:
            self._refuse_taken(token, "grads[...]")
            return None
        return self._wrap(record, self._chains.get(token))

    def __contains__(self, key: Any) -> bool:
        return self._token(key, "in") in self._records

    def __len__(self) -> int:
        return len(self._records)

    def take_grad(self, key: Any) -> Tensor | None:
        """Move the gradient of `key` out, or None if it has none.

        Raises:
            NotALeafError: `key` is not a variable.
            ExtractError: it was taken before, a handle holds it, or another descriptor
                needs its allocation; the bundle is unchanged.
            BorrowConflictError: a view of it is still open; the bundle is unchanged.

        Cost: metadata only, and no copy; on asynchronous lanes it waits for work in
            flight on that gradient.
        """
        token = self._token(key, "take_grad")
        record = self._records.get(token)
        if record is None:
            self._refuse_taken(token, "take_grad")
            return None
        land(record)
        if not record.is_unique:
            raise ExtractError(
                operation="take_grad",
                argument="key",
                found="a handle or another bundle still holds this gradient",
                fix="drop it first, or `duplicate()` the view that `grad` lends",
            )
        tensor = record.into_tensor()
        del self._records[token]
        self._chains.pop(token, None)
        self._taken.add(token)
        return tensor

    def _refuse_taken(self, token: Leaf, operation: str) -> None:
        if token in self._taken:
            raise ExtractError(
                operation=operation,
                argument="key",
                found="a gradient that was taken before",
                fix="use the tensor that `take_grad` returned",
                reason="taken",
            )

    def tree(self, params: Any) -> Any:
        """Handles of the gradients over a pytree of variables (None where none is).

        Raises:
            NotALeafError: the pytree has something that is no variable.

        Cost: metadata only.
        """
        return self._tree(params, self.__getitem__)

    def into_group(self) -> tuple[AllocationGroup, dict[Any, DescriptorSlot]]:
        """Give all gradients to one `AllocationGroup`; the bundle is empty afterwards.

        Returns:
            The group and each leaf token's slot.

        Raises:
            ExtractError: some gradient is held elsewhere; the bundle is unchanged.

        Cost: metadata only; no allocation, no copy.
        """
        for record in self._records.values():
            land(record)
            if not record.is_unique:
                raise ExtractError(
                    operation="into_group",
                    argument="self",
                    found="a gradient that a handle still holds",
                    fix="drop the handle first",
                )
        tokens = list(self._records)
        tensors = [self._records.pop(t).into_tensor() for t in tokens]
        self._taken.update(tokens)
        group, slots = AllocationGroup.of_tensors(tensors)
        return group, dict(zip(tokens, slots, strict=True))

    def accumulate(self, other: Gradients) -> None:
        """Add `other` to this bundle in place (gradients of several passes).

        A gradient that only `other` has is shared with it until either is dropped.

        Raises:
            ExtractError: a gradient to be added to is held elsewhere; nothing changed.

        Cost: one in-place addition for each common gradient; no allocation, no copy.
        """
        common = [t for t in other._records if t in self._records]
        for token in common:
            record = self._records[token]
            land(record)
            if not record.is_unique or (record.home and record.home.is_borrowed):
                raise ExtractError(
                    operation="accumulate",
                    argument="self",
                    found="a gradient that a handle or view still reads",
                    fix="drop it first",
                )
        for token, record in other._records.items():
            mine = self._records.get(token)
            if mine is None:
                self._records[token] = hold(record)
            else:
                np.add(mine.array, record.array, mine.array)

    def __repr__(self) -> str:
        return f"<gradients of {len(self._records)} variables>"
