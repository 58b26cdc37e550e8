"""What a detached run takes in and gives out: move-only packages (contract G3).

`ExecutionInputs` is a group and the slots bound to a program's inputs. Submitting uses
it up; a rejection and a proven failure hand back the very same object, usable again.
`ExecutionBundle` is the group afterwards and the slots of the outputs. Looking at an
output borrows; moving one out uses up the bundle. Nothing here copies bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from .._ownership import MoveOnly
from ..errors import (
    ExtractError,
    InvalidArgumentError,
    OutputAccessError,
    OutputExtractError,
)
from ..storage import AllocationGroup, DescriptorSlot, Tensor, TensorView


@final
@dataclass(frozen=True, slots=True)
class OutputMetadata:
    """A result that is no tensor: it has no storage."""

    value: Any


@final
class ExecutionInputs(MoveOnly):
    """A group and the slots of it that are bound to the inputs, in order."""

    __slots__ = ("_ei_bindings", "_ei_donated", "_ei_group")

    _ei_bindings: tuple[DescriptorSlot, ...]
    _ei_donated: tuple[int, ...]
    _ei_group: AllocationGroup

    def __new__(
        cls,
        group: AllocationGroup,
        bindings: Sequence[DescriptorSlot],
        *,
        donate: Sequence[int] = (),
    ) -> ExecutionInputs:
        """Use up a group and bind slots of it.

        Args:
            donate: positions of bindings whose memory a compiled graph's outputs take
                over.

        Raises:
            InvalidSlotError: A slot is vacant or of another group; nothing changed.
            InvalidArgumentError: A donated position that is not bound; nothing changed.
            BorrowConflictError: A view of the group is open; nothing changed.

        Cost: O(bindings); no allocation, copy or provider call.
        """
        for slot in bindings:
            group.record(slot)
        for position in donate:
            if not 0 <= position < len(bindings):
                raise InvalidArgumentError(
                    operation="ExecutionInputs",
                    argument="donate",
                    found=f"position {position} of {len(bindings)} bindings",
                    fix="name bound positions",
                )
        inputs: ExecutionInputs = object.__new__(cls)
        inputs._ei_group = group._move("ExecutionInputs")
        inputs._ei_bindings = tuple(bindings)
        inputs._ei_donated = tuple(dict.fromkeys(donate))
        inputs._moved_by = None
        return inputs

    @classmethod
    def of_tensors(cls, tensors: Sequence[Tensor]) -> ExecutionInputs:
        """Use up tensors and bind them in order.

        Raises:
            UseAfterMoveError: a tensor was used up before.

        Cost: O(tensors).
        """
        return cls(*AllocationGroup.of_tensors(tensors))

    def __len__(self) -> int:
        return len(self._ei_bindings)

    def into_parts(self) -> tuple[AllocationGroup, tuple[DescriptorSlot, ...]]:
        """Use up the package and return the group and the bound slots.

        Raises:
            UseAfterMoveError: the package was used up before.

        Cost: constant.
        """
        self._require("into_parts")
        self._moved_by = "into_parts"
        return self._surrender(), self._ei_bindings

    def _surrender(self) -> AllocationGroup:
        """Take the group out of a package that was used up: it keeps nothing alive."""
        group = self._ei_group
        del self._ei_group
        return group

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ExecutionInputs(moved by {self._moved_by})"
        return f"ExecutionInputs({len(self)} bound, {self._ei_group!r})"


ExecutionOutput = DescriptorSlot | OutputMetadata


def extracted(
    group: AllocationGroup, outputs: Sequence[Any], output: int
) -> tuple[Tensor | None, ExtractError | None, str]:
    """The tensor of one output, or why there is none."""
    if not 0 <= output < len(outputs):
        return None, None, f"output {output} of {len(outputs)}"
    found = outputs[output]
    if isinstance(found, OutputMetadata):
        return None, None, f"output {output}, which is metadata and has no storage"
    try:
        return group.into_tensor(found), None, ""
    except ExtractError as error:
        error.recovered = None  # the bundle goes back, and the group inside it
        return None, error, str(error)


@final
class ExecutionBundle(MoveOnly):
    """A retired group and its outputs in order: slots, or metadata."""

    __slots__ = ("_eb_group", "_eb_outputs")

    _eb_group: AllocationGroup
    _eb_outputs: tuple[ExecutionOutput, ...]

    @classmethod
    def _make(
        cls, group: AllocationGroup, outputs: Sequence[ExecutionOutput]
    ) -> ExecutionBundle:
        bundle: ExecutionBundle = object.__new__(cls)
        bundle._moved_by = None
        bundle._eb_group = group
        bundle._eb_outputs = tuple(outputs)
        return bundle

    def __len__(self) -> int:
        return len(self._eb_outputs)

    def output(self, output: int) -> TensorView | OutputMetadata:
        """Borrow one output, or look at its metadata.

        Raises:
            OutputAccessError: There is no such output; the bundle is unchanged.

        Cost: constant; no allocation, copy or provider call.
        """
        self._require("output")
        if not 0 <= output < len(self):
            raise OutputAccessError(
                operation="output",
                argument="output",
                found=f"output {output} of {len(self)}",
                recovered=self,
            )
        found = self._eb_outputs[output]
        if isinstance(found, OutputMetadata):
            return found
        return self._eb_group.view(found)

    def into_output(self, output: int) -> Tensor:
        """Use up the bundle and move one output out; everything else is dropped.

        Raises:
            OutputExtractError: There is no such output, it is metadata, or the group
                refuses; `recovered` is this same bundle.
            BorrowConflictError: A view of the bundle is open; it is unchanged.

        Cost: O(owners); no allocation, copy or provider call.
        """
        self._require("into_output")
        tensor, cause, why = extracted(self._eb_group, self._eb_outputs, output)
        if tensor is not None:
            self._moved_by = "into_output"
            return tensor
        raise OutputExtractError(
            operation="into_output",
            argument="output",
            found=why,
            cause=cause,
            recovered=self,
        )

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ExecutionBundle(moved by {self._moved_by})"
        return f"ExecutionBundle({len(self)} outputs, {self._eb_group!r})"
