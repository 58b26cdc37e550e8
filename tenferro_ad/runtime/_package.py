"""What a detached run takes in and gives out: move-only packages (contract G3).

`ExecutionInputs` is a group and what is bound to a program's inputs: slots of the
group, which the run owns, and retained values (`AdValueRecord`), which it reads while
others hold them too (G7). Submitting uses the package up; a rejection and a proven
failure hand back the very same object, usable again. `ExecutionBundle` is the group
afterwards and the slots of the outputs. Looking at an output borrows; moving one out
uses up the bundle. Nothing here copies bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, final

from .._aval import Aval, aval_of
from .._ownership import MoveOnly
from ..errors import (
    ExtractError,
    InvalidArgumentError,
    OutputAccessError,
    OutputExtractError,
    named,
)
from ..storage import (
    AdValueRecord,
    AllocationGroup,
    CheckedDescriptor,
    DescriptorSlot,
    Tensor,
    TensorView,
    ValueRecord,
)
from ._arguments import index_of, items_of, shown
from ._trace import is_symbolic, traced_error

Binding = DescriptorSlot | AdValueRecord
"""What one input of a program is bound to: a slot that is owned, or a retained value
that is only read."""


@final
@dataclass(frozen=True, slots=True)
class OutputMetadata:
    """A result that is no tensor: it has no storage."""

    value: Any


class Owners(NamedTuple):
    """What a used-up package gave to its task."""

    group: AllocationGroup
    bindings: tuple[Binding, ...]


@final
class ExecutionInputs(MoveOnly):
    """A group and what is bound to the inputs of a program, in order."""

    __slots__ = ("_ei_bindings", "_ei_donated", "_ei_group")

    _ei_bindings: tuple[Binding, ...]
    _ei_donated: tuple[int, ...]
    _ei_group: AllocationGroup

    @named("ExecutionInputs", slot="bindings")
    def __new__(
        cls,
        group: AllocationGroup,
        bindings: Sequence[Binding],
        *,
        donate: Sequence[int] = (),
    ) -> ExecutionInputs:
        """Use up a group and bind slots of it.

        Args:
            bindings: for each input a slot of the group, or a retained value, which
                is only read and stays with its other holders.
            donate: positions of slots whose memory a compiled graph's outputs take
                over. The bound slots of such a package must be writable and disjoint,
                because a group lends to readers or to one writer.

        Raises:
            InvalidSlotError: A slot is vacant or of another group; nothing changed.
            InvalidArgumentError: Something that is no group, a donated position that
                is no bound slot, or a value that was moved out; nothing changed.
            TracedConversionError: A traced value; nothing changed.
            BorrowConflictError: A view of the group is open; nothing changed.

        Cost: O(bindings); no allocation, copy or provider call.
        """
        if not isinstance(group, AllocationGroup):
            raise InvalidArgumentError(
                operation="ExecutionInputs",
                argument="group",
                found=shown(group),
                fix="pass an `AllocationGroup`, or use `ExecutionInputs.of_values`",
            )
        bound = items_of("ExecutionInputs", "bindings", bindings, _BIND)
        for binding in bound:
            if isinstance(binding, AdValueRecord):
                _require_bytes(binding._record)
            else:
                group.record(binding)
        donated = _donated("ExecutionInputs", bound, donate)
        inputs: ExecutionInputs = object.__new__(cls)
        inputs._ei_group = group._move("ExecutionInputs")
        inputs._ei_bindings = bound
        inputs._ei_donated = donated
        inputs._moved_by = None
        return inputs

    @classmethod
    @named("ExecutionInputs.of_tensors", bindings="tensors")
    def of_tensors(
        cls, tensors: Sequence[Tensor], *, donate: Sequence[int] = ()
    ) -> ExecutionInputs:
        """Use up tensors and bind them in order; see `of_values`.

        Raises:
            GroupConstructionError: A tensor appears twice, was moved, or is borrowed.
            InvalidArgumentError: Something that is no value, or a donated position
                that is not bound. In each case nothing changed.

        Cost: O(tensors); no allocation, copy or provider call.
        """
        return cls._of("ExecutionInputs.of_tensors", "tensors", tensors, donate)

    @classmethod
    @named("ExecutionInputs.of_values", bindings="values", tensors="values")
    def of_values(
        cls, values: Sequence[Any], *, donate: Sequence[int] = ()
    ) -> ExecutionInputs:
        """Bind values in order: tensors move in, handles are attached.

        An attached value (an eager tensor, or the record of a retained one) is read by
        the run and stays with its other holders. Until the run has retired it is not
        unique, so nobody can move it out or write it. No gradient flows through it.

        Args:
            donate: positions of tensors whose memory a compiled graph's outputs take
                over.

        Raises:
            GroupConstructionError: A tensor appears twice, was moved, or is borrowed.
            InvalidArgumentError: Something that is no value, or a donated position
                that is no tensor.
            TracedConversionError: A traced value. In each case nothing changed.

        Cost: O(values); no allocation, copy or provider call.
        """
        return cls._of("ExecutionInputs.of_values", "values", values, donate)

    @classmethod
    def _of(
        cls, operation: str, argument: str, values: Any, donate: Any
    ) -> ExecutionInputs:
        given = items_of(operation, argument, values, _GIVE)
        attached = {
            k: _retained(operation, f"{argument}[{k}]", value)
            for k, value in enumerate(given)
            if not isinstance(value, Tensor)
        }
        bound = [attached.get(k) for k in range(len(given))]
        donated = _donated(operation, bound, donate)
        for record in attached.values():
            _require_bytes(record._record)
        tensors = [value for value in given if isinstance(value, Tensor)]
        group, slots = AllocationGroup.of_tensors(tensors)
        rest: Iterator[Binding] = iter(slots)
        return cls(group, [b or next(rest) for b in bound], donate=donated)

    def __len__(self) -> int:
        return len(self._ei_bindings)

    @property
    def bindings(self) -> tuple[Binding, ...]:
        """What each input is bound to.

        Raises:
            UseAfterMoveError: the package was used up.

        Cost: constant.
        """
        self._require("bindings")
        return self._ei_bindings

    @property
    def donated(self) -> tuple[int, ...]:
        """Positions whose memory outputs take over.

        Raises:
            UseAfterMoveError: the package was used up.

        Cost: constant.
        """
        self._require("donated")
        return self._ei_donated

    def into_parts(self) -> tuple[AllocationGroup, tuple[Binding, ...]]:
        """Use up the package and return the group and what was bound.

        Raises:
            UseAfterMoveError: the package was used up before.

        Cost: constant.
        """
        self._require("into_parts")
        self._moved_by = "into_parts"
        return self._take()

    def _take(self) -> Owners:
        """Take everything out of a package that was used up: it keeps nothing alive."""
        owners = Owners(self._ei_group, self._ei_bindings)
        del self._ei_group
        self._ei_bindings = ()
        return owners

    def _give(self, owners: Owners) -> None:
        """Put back what `_take` took."""
        self._ei_group, self._ei_bindings = owners

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ExecutionInputs(moved by {self._moved_by})"
        return f"ExecutionInputs({len(self)} bound, {self._ei_group!r})"


_BIND: Final = "bind slots of the group, or records of retained values, in a sequence"
_GIVE: Final = (
    "give a sequence of tensors, eager tensors, or records of retained values"
)


def _retained(operation: str, argument: str, value: Any) -> AdValueRecord:
    """The record of a handle, counted once more."""
    if isinstance(value, AdValueRecord):
        return value
    # A handle (made above this folder) has an aval; a guard is a borrow and has none.
    record = getattr(value, "_record", None) if hasattr(value, "aval") else None
    if not isinstance(record, ValueRecord):
        raise InvalidArgumentError(
            operation=operation, argument=argument, found=shown(value), fix=_GIVE
        )
    return AdValueRecord(record)


def _require_bytes(record: ValueRecord) -> None:
    if is_symbolic(record):
        raise traced_error("ExecutionInputs", record.array)
    if record.is_rootless:
        raise InvalidArgumentError(
            operation="ExecutionInputs",
            argument="bindings",
            found="a value that was moved out, or a plain number",
            fix="bind a tensor with bytes of its own",
        )


def _donated(operation: str, bindings: Sequence[Any], donate: Any) -> tuple[int, ...]:
    fix = "name positions of tensors that were moved in, in a sequence"
    positions = []
    for given in items_of(operation, "donate", donate, fix):
        position = index_of(given)
        if position is None or not 0 <= position < len(bindings):
            found = f"position {shown(given)} of {len(bindings)} bindings"
        elif isinstance(bindings[position], AdValueRecord):
            found = f"position {position}, a value that others hold too"
        else:
            positions.append(position)
            continue
        raise InvalidArgumentError(
            operation=operation, argument="donate", found=found, fix=fix
        )
    return tuple(dict.fromkeys(positions))


# ---- what is bound, for the modules that run it


def descriptor_of(inputs: ExecutionInputs, binding: Binding) -> CheckedDescriptor:
    """The checked descriptor of what is bound. Cost: constant."""
    if isinstance(binding, AdValueRecord):
        return binding.descriptor
    return inputs._ei_group.record(binding).descriptor


def avals_of(inputs: ExecutionInputs) -> tuple[Aval, ...]:
    """Shape, dtype and memory of each bound input. Cost: O(bindings)."""
    found = []
    for binding in inputs._ei_bindings:
        if isinstance(binding, AdValueRecord):
            found.append(binding.aval)
            continue
        record = inputs._ei_group.record(binding)
        owner = inputs._ei_group._owner(record)
        device = owner._resource.provider.value.provider
        found.append(aval_of(record.layout.shape, record.dtype, device))
    return tuple(found)


def view_of(inputs: ExecutionInputs, binding: Binding) -> TensorView:
    """Borrow what is bound for reading. Cost: constant."""
    if isinstance(binding, AdValueRecord):
        return binding.view()
    return inputs._ei_group.view(binding)


# ---- results

ExecutionOutput = DescriptorSlot | OutputMetadata


def output_at(outputs: Sequence[Any], output: Any) -> Any:
    """One output; None where there is no such position."""
    at = index_of(output)
    return None if at is None or not 0 <= at < len(outputs) else outputs[at]


def no_output(outputs: Sequence[Any], output: Any) -> tuple[str, str]:
    """What was found in place of a position, and what to do."""
    last = len(outputs) - 1
    fix = f"use a position from 0 to {last}" if outputs else "there is no output to ask"
    return f"output {shown(output)} of {len(outputs)}", fix


def extracted(group: AllocationGroup, outputs: Sequence[Any], output: int) -> Tensor:
    """Use up the group for the tensor of one output.

    Raises:
        OutputExtractError: there is none; the caller says whose bundle it is.
        BorrowConflictError: a view of the group is open. In both cases the group is
            unchanged.
    """
    found = output_at(outputs, output)
    if found is None:
        what, fix = no_output(outputs, output)
        raise OutputExtractError(
            operation="into_output",
            argument="output",
            found=what,
            fix=fix,
            reason="invalid-output",
        )
    if isinstance(found, OutputMetadata):
        raise OutputExtractError(
            operation="into_output",
            argument="output",
            found=f"output {output}, which is metadata and has no storage",
            reason="metadata-output",
        )
    try:
        return group.into_tensor(found)
    except ExtractError as error:
        error.recovered = None  # the bundle goes back, and the group inside it
        raise OutputExtractError(
            operation="into_output",
            argument="output",
            found=str(error),
            reason="extract",
            cause=error,
        ) from error


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
        found = output_at(self._eb_outputs, output)
        if found is None:
            what, fix = no_output(self._eb_outputs, output)
            raise OutputAccessError(
                operation="output",
                argument="output",
                found=what,
                fix=fix,
                recovered=self,
            )
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
        try:
            tensor = extracted(self._eb_group, self._eb_outputs, output)
        except OutputExtractError as error:
            error.recovered = self
            raise
        self._moved_by = "into_output"
        self._eb_outputs = ()
        return tensor

    def __repr__(self) -> str:
        if self._moved_by is not None:
            return f"ExecutionBundle(moved by {self._moved_by})"
        return f"ExecutionBundle({len(self)} outputs, {self._eb_group!r})"
