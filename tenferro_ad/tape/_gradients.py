"""Gradients: the bundle that owns the results of a backward pass.

One owner for each gradient, keyed by the bare token of the leaf, so a bundle never
makes a parameter non-unique. `grad` lends, `take_grad` moves out, `into_group` turns
the whole bundle into an ordinary `AllocationGroup`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from ..errors import (
    ExtractError,
    InvalidArgumentError,
    NotALeafError,
    a_kind,
    named,
)
from ..runtime import is_symbolic
from ..storage import (
    AllocationGroup,
    DescriptorSlot,
    Tensor,
    TensorView,
    ValueRecord,
    land,
)
from ._record import Leaf, hold, let_go


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

    def __del__(self) -> None:
        for token, record in self._records.items():
            # A handle in `_chains` gives its own hold back.
            if record.tokens and self._chains.get(token) is None:
                let_go((record,))

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
        if token not in self._records:
            self._refuse_taken(token, "grads[...]")
            return None
        return self._handle(token)

    def _handle(self, token: Leaf) -> Any:
        return self._wrap(self._records[token], self._chains.get(token))

    def __contains__(self, key: Any) -> bool:
        return self._token(key, "in") in self._records

    def __len__(self) -> int:
        return len(self._records)

    @named()
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

    @named()
    def into_group(self) -> tuple[AllocationGroup, dict[Any, DescriptorSlot]]:
        """Give all gradients to one `AllocationGroup`; the bundle is empty afterwards.

        Returns:
            The group and each leaf token's slot.

        Raises:
            ExtractError: some gradient is held elsewhere; the bundle is unchanged.

        Cost: metadata only; no allocation, no copy.
        """
        for record in self._records.values():
            _require_alone(record, "into_group")
        tokens = list(self._records)
        tensors = [self._records.pop(t).into_tensor() for t in tokens]
        self._taken.update(tokens)
        self._chains.clear()
        group, slots = AllocationGroup.of_tensors(tensors)
        return group, dict(zip(tokens, slots, strict=True))

    @named()
    def accumulate(self, other: Gradients) -> None:
        """Add `other` to this bundle in place (gradients of several passes).

        A gradient that only `other` has is shared with it until either is dropped.

        Raises:
            InvalidArgumentError: `other` is no bundle.
            ExtractError: a gradient to be added to is held elsewhere; nothing changed.

        Cost: one in-place addition for each common gradient; no allocation, no copy.
            Gradients that tapes around track, and traced ones, are added by a recorded
            operation instead, which gives one output each.
        """
        if not isinstance(other, Gradients):
            raise InvalidArgumentError(
                operation="accumulate",
                argument="other",
                found=a_kind(other),
                fix="pass the `Gradients` of `ta.value_and_grad` or `tape.backward`",
            )
        common = [t for t in other._records if t in self._records]
        recorded = [t for t in common if self._is_recorded(t, other)]
        for token in {*common}.difference(recorded):
            _require_alone(self._records[token], "accumulate")
        sums = {t: self._handle(t) + other._handle(t) for t in recorded}
        for token, record in other._records.items():
            chain, mine = other._chains.get(token), self._records.get(token)
            if mine is None:
                self._records[token] = record if chain is not None else hold(record)
                self._chains[token] = None if chain is None else chain.clone()
            elif token in sums:
                self._chains[token] = total = sums[token]
                self._records[token] = total._record
            else:
                np.add(mine.array, record.array, mine.array)

    def _is_recorded(self, token: Leaf, other: Gradients) -> bool:
        """A sum of both gradients is an operation that somebody records."""
        chains = self._chains.get(token), other._chains.get(token)
        is_tracked = any(c is not None and c.is_tracked for c in chains)
        return is_tracked or is_symbolic(other._records[token])

    def __repr__(self) -> str:
        return f"<gradients of {len(self._records)} variables>"


def _require_alone(record: ValueRecord, operation: str) -> None:
    """Refuse a gradient that somebody else may read.

    Raises:
        ExtractError: a handle, another bundle or a view has it.
    """
    land(record)
    if not record.is_unique or (record.home and record.home.is_borrowed):
        raise ExtractError(
            operation=operation,
            argument="self",
            found="a gradient that a handle or view still reads",
            fix="drop it first",
        )
