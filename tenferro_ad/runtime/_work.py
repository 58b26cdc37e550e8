"""What a task runs, and the steps that all work shares (contract G3).

A launch reads what `access` lends and writes fresh memory first, then what is lent for
writing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, final

from .._aval import Aval, aval_of
from .._ledger import OPERATION_OUTPUT, State
from ..backends import Operand, PreparedLaunch, infer_call
from ..errors import DeviceMismatchError, ShapeError, UnsupportedError
from ..ops import Call, Op
from ..storage import (
    AdValueRecord,
    DescriptorRequest,
    Tensor,
    TensorView,
    TensorViewMut,
    allocate,
)
from ._package import ExecutionBundle, ExecutionInputs, Owners, view_of


class Access(NamedTuple):
    """How a launch reaches what its task was given.

    Attributes:
        reads, writes: views of inputs and constants; `writes` come after the memory
            that the task allocates.
        operands: where each operand is found, see `Launch`; the reads in order if None.
    """

    reads: list[TensorView]
    writes: list[TensorViewMut]
    operands: Sequence[Operand] | None


class Work(Protocol):
    """What a task runs.

    Attributes:
        name: for texts.
        constants: retained values that every run reads.
    """

    name: str

    @property
    def constants(self) -> Sequence[AdValueRecord]: ...

    def memory(self) -> Sequence[tuple[Aval, int]]:
        """What to allocate, each under its reason."""
        ...

    def kernel(self, endpoint: Any, state: State) -> object:
        """What the endpoint runs, or the `Steps` that launch what it runs."""
        ...

    def access(self, inputs: ExecutionInputs) -> Access:
        """Lend inputs and constants to the launch."""
        ...

    def bundle(self, owners: Owners, made: Sequence[Tensor]) -> ExecutionBundle:
        """The outputs, after retirement."""
        ...


# ---- steps that detached and scoped runs share


def allocated(work: Work, endpoint: Any, state: State) -> list[Tensor]:
    """The memory of a run, in the endpoint's domain; counted in the scopes of `state`.

    Raises:
        AllocationLimitError, ForbiddenEventError: nothing is kept.
    """
    made = []
    for aval, reason in work.memory():
        here = aval_of(aval.shape, aval.dtype, endpoint.memory)
        made.append(allocate(state.under(reason), here, work.name).into_tensor())
    return made


def prepared(
    endpoint: Any, kernel: object, access: Access, made: Sequence[Tensor]
) -> PreparedLaunch:
    """Use up the access for a launch that writes what was made.

    Raises:
        AccessError: the provider could not; every borrow has ended.
    """
    reads, lent, operands = access
    writes = [*lent]
    try:
        writes = [*[tensor.as_view_mut() for tensor in made], *lent]
        return PreparedLaunch._of(endpoint, kernel, reads, writes, operands)
    except BaseException:
        end(reads, writes)
        raise


def element(
    work: Work,
    inputs: ExecutionInputs,
    made: Sequence[Tensor],
    at: int,
    start: int,
    aval: Aval,
) -> Any:
    """The one element that begins `start` bytes into input `at`, or into `made[~at]`.

    Cost: a mapping of the element; nothing is waited for.
    """
    bindings = inputs._ei_bindings
    if at < 0:
        view = made[~at].as_view()
    elif at < len(bindings):
        view = view_of(inputs, bindings[at])
    else:
        view = work.constants[at - len(bindings)].view()
    with view:
        begin = view.descriptor().layout.offset - view.span.start
        request = DescriptorRequest((), aval.dtype, offset=begin + start)
        with view._described(request) as one:
            return one.numpy().item()


def end(*lent: Sequence[TensorView | TensorViewMut]) -> None:
    """End every view."""
    for views in lent:
        for view in views:
            view.close()


# ---- one operation


@final
class OneCall:
    """A single operation."""

    __slots__ = ("_call", "name")
    constants: Sequence[AdValueRecord] = ()

    def __init__(self, call: Call) -> None:
        self._call = call
        self.name = call.op.name

    def memory(self) -> Sequence[tuple[Aval, int]]:
        """The outputs."""
        return [(aval, OPERATION_OUTPUT) for aval in self._call.outs]

    def kernel(self, endpoint: Any, state: State) -> object:
        """The endpoint's own kernel."""
        return endpoint.prepare(self._call)

    def access(self, inputs: ExecutionInputs) -> Access:
        """Every input is read."""
        return Access([view_of(inputs, b) for b in inputs._ei_bindings], [], None)

    def bundle(self, owners: Owners, made: Sequence[Tensor]) -> ExecutionBundle:
        """Seat the outputs."""
        group = owners.group
        return ExecutionBundle._make(group, [group._seat(t) for t in made])


def planned(
    endpoint: Any, op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]
) -> Call:
    """The application of `op` on an endpoint, with everything that can be known now.

    Raises:
        DeviceMismatchError: An input is not in the endpoint's memory.
        UnsupportedError: The endpoint has no kernel.
        and what the row's shape rule raises.
    """
    for aval in ins:
        if aval.device is not endpoint.memory:
            raise DeviceMismatchError(
                operation=op.name,
                found=f"an input on `{aval.device.name}`, work on `{endpoint.name}`",
                fix="move the input to the memory of that endpoint first",
            )
    if not op.variadic and len(ins) != len(op.args):
        raise ShapeError(
            operation=op.name,
            found=f"{len(ins)} inputs",
            fix=f"bind {len(op.args)}: {', '.join(op.args)}",
        )
    if not endpoint.supports(op, [aval.dtype for aval in ins]):
        raise UnsupportedError(op=op.name, backend=endpoint.name)
    return infer_call(op, ins, params, endpoint.memory)


__all__ = [
    "Access",
    "OneCall",
    "Work",
    "allocated",
    "element",
    "end",
    "planned",
    "prepared",
]
