"""Functions as bodies of loops and branches: traced once, and held to their promises.

What flows round a loop keeps its structure, shapes and dtypes, and branches give the
same; where they do not, a typed error names the place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, final

import numpy as np
import optree

from .._aval import Aval, mismatch
from ..errors import InvalidArgumentError
from ..ops import Program
from ..runtime import default_device
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, device_in
from ._operands import number_handle, plain
from ._pytrees import flatten
from ._trace import traced

NUMBERS: Final = (bool, int, float, complex)


def unflatten(treedef: Any, leaves: Sequence[Any]) -> Any:
    return optree.tree_unflatten(treedef, list(leaves))


def structure_of(tree: Any) -> Any:
    return flatten(tree)[1]


def rooted(x: EagerTensor) -> EagerTensor:
    """A number as a value of its own."""
    made: EagerTensor = HANDLES.accumulate(x) if x._record.is_rootless else x
    return made


def placed(x: Any, device: Any, beside: np.dtype[Any] | None = None) -> EagerTensor:
    """What a body gives, as a tensor: outside data goes to the device of the rest, and
    numbers are weak beside a value of a dtype."""
    x = plain(x)
    if type(x) not in NUMBERS:
        return as_tensor(x, device)
    return number_handle(x, np.dtype(type(x)) if beside is None else beside, device)


@final
class Carry:
    """What a loop starts with: tensors, and Python numbers whose dtype the loop says.

    Attributes:
        treedef: its structure.
    """

    __slots__ = ("_dtypes", "_leaves", "_turns", "device", "names", "treedef")

    def __init__(self, tree: Any, argument: str, others: Sequence[EagerTensor]) -> None:
        leaves, self.treedef = flatten(tree)
        leaves = [plain(x) for x in leaves]
        self.device = device_in([*leaves, *others]) or default_device()
        self._leaves = [
            x if type(x) in NUMBERS else as_tensor(x, self.device) for x in leaves
        ]
        self._dtypes = [
            np.asarray(x).dtype if type(x) in NUMBERS else None for x in self._leaves
        ]
        self._turns = 8 * len(leaves)  # promotion is over by then
        self.names = [
            argument + "".join(f"[{part!r}]" for part in path)
            for path in self.treedef.paths()
        ]

    def __len__(self) -> int:
        return len(self._leaves)

    @property
    def tensors(self) -> list[EagerTensor]:
        """Numbers are rootless operands: no event."""
        return [
            x if dtype is None else number_handle(x, dtype, self.device)
            for x, dtype in zip(self._leaves, self._dtypes, strict=True)
        ]

    @property
    def avals(self) -> list[Aval]:
        return [x.aval for x in self.tensors]

    def taken(self, leaves: Sequence[Any]) -> list[EagerTensor]:
        """What a step gives for the next one: numbers are weakly typed, and outside
        data goes to the loop's device."""
        return [
            placed(x, self.device, mine.dtype)
            for x, mine in zip(leaves, self.avals, strict=True)
        ]

    def adopt(self, avals: Sequence[Aval]) -> bool:
        """Let numbers take the dtypes that a step gave; says whether one did. A step
        that changes them for ever is refused by `check_avals` in the end."""
        adopted, self._turns = False, self._turns - 1
        if self._turns < 0:
            return False
        for i, (known, aval) in enumerate(zip(self._dtypes, avals, strict=True)):
            if known is not None and aval.shape == () and aval.dtype != known:
                self._dtypes[i] = aval.dtype
                adopted = True
        return adopted

    def check_structure(self, operation: str, argument: str, tree: Any) -> None:
        """A step must give the structure that it takes.

        Raises:
            InvalidArgumentError: shows both.
        """
        found = structure_of(tree)
        if found != self.treedef:
            raise InvalidArgumentError(
                operation=operation,
                argument=argument,
                found=f"a carry of the structure {found}, where it takes "
                f"{self.treedef}",
                fix="return the carry in the structure of the initial value",
            )

    def check_avals(self, operation: str, argument: str, avals: Sequence[Aval]) -> None:
        """A step must give the shapes and dtypes that it takes.

        Raises:
            ShapeError, DTypeError: names the leaf.
        """
        for name, aval, known in zip(self.names, avals, self.avals, strict=True):
            if not aval.same(known):
                raise mismatch(
                    aval,
                    known,
                    operation=operation,
                    argument=argument,
                    found=f"{aval!r} for `{name}`, which is {known!r} before the step",
                    fix="keep the shapes and dtypes of what goes round the loop "
                    "(`ta.astype`, `ta.broadcast_to`)",
                )


Traced = tuple[Program, list[EagerTensor], Any]


def traced_step(
    operation: str,
    argument: str,
    step: Callable[..., tuple[Any, Any]],
    carry: Carry,
    trees: tuple[Any, ...],
    more: Sequence[Aval] = (),
) -> Traced:
    """The program of `step(*trees)`, which gives a pair: the next carry, and the rest.

    Numbers among the carry take the dtype that a step gives them; that takes a second
    trace.

    Args:
        trees: the carry, and what else a step takes; their structure only matters.
        more: avals of the latter's tensors.
    """

    def pair(*given: Any) -> tuple[Any, Any]:
        after, rest = step(*given)
        carry.check_structure(operation, argument, after)
        rest, rest_def = flatten(rest)
        rest = [placed(y, carry.device) for y in rest]
        leaves = carry.taken(flatten(after)[0])
        return unflatten(carry.treedef, leaves), unflatten(rest_def, rest)

    in_def = structure_of(trees)
    k = len(carry)
    while True:
        avals = [*carry.avals, *more]
        found = traced(pair, [None] * len(avals), avals, in_def)
        if not carry.adopt(found[0].out_avals[:k]):
            break
    carry.check_avals(operation, argument, found[0].out_avals[:k])
    return found


# ---- operands of several bodies ------------------------------------------------------


def joined(
    parts: list[list[EagerTensor]],
) -> tuple[list[EagerTensor], list[list[int]]]:
    """The constants of several bodies, each once, and where those of each stand."""
    found: dict[Any, int] = {}
    constants: list[EagerTensor] = []
    places = []
    for part in parts:
        at = []
        for x in part:
            key = (id(x._record), id(x._link), x._node)
            if key not in found:
                found[key] = len(constants)
                constants.append(x)
            at.append(found[key])
        places.append(at)
    return constants, places


def unused(at: list[int], constants: list[EagerTensor], first: int) -> list[int | Aval]:
    """Inputs for all constants: from `first` on the body's own, which stand at `at`,
    and forms of the others."""
    mine = {k: first + p for p, k in enumerate(at)}
    return [mine.get(k, x.aval) for k, x in enumerate(constants)]


def taking(program: Program, order: Sequence[int | Aval]) -> Program:
    """The program with its inputs (by position) in another order, among them some that
    it does not read (their form)."""
    avals = list(program.avals)
    inputs = []
    for entry in order:
        if isinstance(entry, Aval):
            avals.append(entry)
            inputs.append(len(avals) - 1)
        else:
            inputs.append(program.inputs[entry])
    return replace(program, inputs=inputs, avals=avals)


__all__ = [
    "Carry",
    "Traced",
    "joined",
    "placed",
    "rooted",
    "structure_of",
    "taking",
    "traced_step",
    "unflatten",
    "unused",
]
