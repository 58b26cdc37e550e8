"""Traced functions: a function of tensors as a `Program`.

The function runs once, on symbolic values; every operation on tensors becomes an
equation. Tensors that it closes over become constants: hidden inputs, not numbers
burnt into the program. Transforms inside the function (`grad`, `jvp`, checkpoints) are
traced like everything else, because they are made of operations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np
import optree

from .._aval import Aval, aval_of, mismatch
from .._ledger import OPERATION_OUTPUT, STATE, State
from ..errors import DTypeError, InvalidArgumentError, a_kind
from ..ops import Program, evaluate, optimise
from ..runtime import Taken, Trace, device_of, direct, host_aval
from ..storage import ValueRecord
from ..tape import hold
from ._axes import int_of
from ._dispatch import HANDLES, chain_of, inside, living
from ._eager import EagerTensor, constant
from ._make import as_tensor
from ._numbers import dtype_of
from ._pytrees import NAMESPACE, flatten
from ._watched_sizes import WATCH


@final
class Spec:
    """Shape, dtype and device of an argument that is not there yet.

    Args:
        shape: lengths of the axes. A name in place of a number stands for any length:
            `ta.Spec(("batch", 784))`; axes of one name have one length.
        dtype: NumPy name or dtype.
        device: discovery name or device; None is the default device.

    Raises:
        DTypeError, InvalidArgumentError: a length, dtype or device that there is not.
    """

    __slots__ = ("device", "dtype", "shape")

    def __init__(
        self,
        shape: Sequence[int | str] | int | str,
        dtype: Any = np.float64,
        device: Any = None,
    ) -> None:
        self.shape: tuple[int | str, ...] = tuple(
            n if isinstance(n, str) else int_of("Spec", "shape", n, 0)
            for n in lengths_of(shape)
        )
        self.dtype = dtype_of("Spec", dtype)
        self.device = device_of(device, "Spec")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of sizes, in order."""
        return tuple(dict.fromkeys(n for n in self.shape if isinstance(n, str)))

    def at(self, sizes: Mapping[str, int]) -> Aval:
        """The aval at these lengths of named axes.

        Raises:
            InvalidArgumentError: no mapping, or one that lacks a name.
            DTypeError, InvalidArgumentError: a length that is none.

        Cost: constant.
        """
        known = isinstance(sizes, Mapping)
        missing = [n for n in self.names if not known or n not in sizes]
        if not known or missing:
            raise InvalidArgumentError(
                operation="Spec.at",
                argument="sizes",
                found=f"no length for `{missing[0]}`" if known else a_kind(sizes),
                fix="give a mapping with a length for each name",
            )
        shape = tuple(
            int_of("Spec.at", "sizes", sizes[n], 0) if isinstance(n, str) else n
            for n in self.shape
        )
        return aval_of(shape, self.dtype, self.device)

    @property
    def aval(self) -> Aval:
        """Shape, dtype and device together.

        Raises:
            InvalidArgumentError: an axis has a name and no length.
        """
        if self.names:
            raise InvalidArgumentError(
                operation="Spec",
                argument="shape",
                found=f"the named size `{self.names[0]}` where a number is needed",
                fix="trace with names (`ta.trace`), or give the axis a length",
            )
        return self.at({})

    def __repr__(self) -> str:
        return f"Spec({self.dtype}[{', '.join(map(str, self.shape))}])"


def lengths_of(shape: Any) -> tuple[Any, ...]:
    """What may be lengths of axes, one by one."""
    if isinstance(shape, str | bytes) or not np.iterable(shape):
        return (shape,)
    return tuple(shape)


@final
class TracedProgram:
    """A traced function: its program, the constants it closed over, its pytrees.

    Calling it evaluates the program on tensors; every transform takes it like any
    function.

    Attributes:
        program: equations only, no values.
        constants: tensors that the function closed over, in the order of the program's
            last inputs.
        out_def: the structure of the result.
        metadata: leaves of the result that are no tensors, by position.
    """

    __slots__ = (
        "_avals",
        "_in_def",
        "_static",
        "constants",
        "metadata",
        "out_def",
        "program",
    )

    def __init__(
        self,
        program: Program,
        constants: list[Any],
        in_def: Any,
        avals: list[Aval | None],
        static: list[Any],
        out_def: Any,
        metadata: dict[int, Any],
    ) -> None:
        self.program = program
        self.metadata = metadata
        self.constants = constants
        self._in_def, self._avals, self._static = in_def, avals, static
        self.out_def = out_def

    @property
    def specs(self) -> tuple[Aval, ...]:
        """Avals of the arguments' tensors, in order."""
        return tuple(a for a in self._avals if a is not None)

    def __call__(self, *args: Any) -> Any:
        """Evaluate on tensors of the traced shapes and dtypes.

        Raises:
            ShapeError, DTypeError, InvalidArgumentError: an argument differs from what
                was traced.

        Cost: the program's equations, each as an eager operation. Outside recordings
            and traces, memory is used again as the program says.
        """
        given, constants = self.bind(args), self.constants
        state = STATE.get()
        if state.level is None and state.trace is None:
            records = [x._live("traced program") for x in (*given, *constants)]
            outs = handles_on(evaluate(self.program, direct(), records), records)
        else:
            given += [c.clone() for c in constants]  # the result may have them
            outs = evaluate(self.program, HANDLES, given)
        return optree.tree_unflatten(self.out_def, merged(outs, self.metadata))

    def bind(self, args: tuple[Any, ...]) -> list[EagerTensor]:
        """The tensors of a call's arguments, checked against the trace.

        Raises InvalidArgumentError, ShapeError or DTypeError. Cost: O(arguments).
        """
        leaves, in_def = flatten(args)
        if in_def != self._in_def:
            raise InvalidArgumentError(
                operation="traced program",
                argument="args",
                found=f"the structure {in_def}",
                fix=f"give the arguments the traced structure, {self._in_def}",
            )
        tensors = []
        for k, (x, aval, known) in enumerate(
            zip(leaves, self._avals, self._static, strict=True)
        ):
            if aval is None:
                if type(x) is not type(known) or x != known:
                    raise InvalidArgumentError(
                        operation="traced program",
                        argument=f"args (leaf {k})",
                        found=f"{x!r} where {known!r} was traced",
                        fix="trace again, or pass a tensor where values differ",
                    )
                continue
            t = argument_of(x, k)
            if not t.aval.same(aval):
                raise mismatch(
                    t,
                    aval,
                    operation="traced program",
                    argument=f"args (leaf {k})",
                    found=f"{t.aval!r} where {aval!r} was traced",
                    fix="trace again for these shapes, or convert the argument",
                )
            tensors.append(t)
        return tensors

    def __str__(self) -> str:
        return self.program.format(limit=10_000)

    __repr__ = __str__


def argument_of(x: Any, k: int) -> EagerTensor:
    """Leaf `k` of a program's arguments as a tensor.

    Raises:
        DTypeError: outside data that makes none.
    """
    try:
        return as_tensor(x)
    except DTypeError as error:
        raise DTypeError(
            operation="traced program",
            argument=f"args (leaf {k})",
            found=error.found,
            fix=error.fix,
        ) from None


def concrete(fn: Callable[..., Any], *specs: Any) -> TracedProgram:
    """`trace` where every axis has a length."""
    leaves, in_def = flatten(specs)
    avals = [aval_like(x) for x in leaves]
    metadata: dict[int, Any] = {}
    program, constants, out_def = traced(fn, leaves, avals, in_def, metadata)
    static = [x if a is None else None for x, a in zip(leaves, avals, strict=True)]
    return TracedProgram(program, constants, in_def, avals, static, out_def, metadata)


def aval_like(x: Any, device: Any = None) -> Aval | None:
    """The aval that a leaf asks for (outside data on `device`); None for no array."""
    if isinstance(x, Spec | EagerTensor):
        return x.aval
    if isinstance(x, np.ndarray | np.generic):
        return host_aval(np.asarray(x), device)
    foreign = hasattr(x, "__dlpack__") or hasattr(x, "__array__")
    if foreign and not isinstance(x, type):
        return host_aval(np.asarray(x), device)
    return None


def traced(
    fn: Callable[..., Any],
    leaves: list[Any],
    avals: Sequence[Aval | None],
    in_def: Any,
    metadata: dict[int, Any] | None = None,
    taken: Taken | None = None,
) -> tuple[Program, list[Any], Any]:
    """Run `fn` on symbols for the leaves that have an aval.

    Gives the optimised program, the captured constants (its last inputs) and the
    structure of the result.

    Args:
        metadata: gets the leaves of the result that are no tensors (numbers, strings),
            by position; without it they become tensors.
        taken: learns of data from outside that came in meanwhile.
    """
    state = STATE.get()
    trace = Trace(state.trace)
    trace.taken = taken or trace.taken
    symbols = []
    for x, aval in zip(leaves, avals, strict=True):
        if aval is not None:
            x = constant(trace.input(aval))
        symbols.append(x)
    try:
        STATE.set(State(state.account, OPERATION_OUTPUT, None, trace))
        out = fn(*optree.tree_unflatten(in_def, symbols))
        del symbols
        outs, out_def = flatten(out)
        del out
        program = trace.program
        here = STATE.get()
        records = []
        for k, y in enumerate(outs):
            if metadata is not None and not isinstance(y, EagerTensor | np.ndarray):
                metadata[k] = y
                continue
            y = as_tensor(y)
            living(chain_of(y), "trace", "fn")
            records.append(inside(here, y, "trace")._record)
        program.outputs = tuple([r.array.variable for r in records])
        del outs, records
    finally:
        STATE.set(state)
        if (watch := WATCH.get()) is not None:
            watch.equations += len(trace.program.equations)
        constants = dict(trace.constants)
        trace.close()
    return (*_closed(program, constants), out_def)


def _closed(program: Program, constants: dict[int, Any]) -> tuple[Program, list[Any]]:
    """The optimised program, with the constants that it still reads as last inputs."""
    used = {v for eq in program.equations for v in eq.ins} | set(program.outputs)
    arguments = [v for v in program.inputs if v not in constants]
    program.inputs = arguments + [v for v in constants if v in used]
    made = optimise(program)
    read = {v for eq in made.equations for v in eq.ins} | set(made.outputs)
    kept: list[Any] = []
    for v, c in zip(
        made.inputs[len(arguments) :],
        [constants[v] for v in program.inputs[len(arguments) :]],
        strict=True,
    ):
        if v in read:
            kept.append(c[1])
        else:
            made.inputs.remove(v)
    return made, [as_handle(c) for c in kept]


def handles_on(
    found: Sequence[ValueRecord], records: Sequence[ValueRecord]
) -> list[EagerTensor]:
    """Handles on output records: inputs and repeated ones get one more holder."""
    seen = {id(r) for r in records}
    made = []
    for r in found:
        if id(r) in seen:
            hold(r)
        seen.add(id(r))
        made.append(constant(r))
    return made


def merged(outs: Sequence[Any], metadata: Mapping[int, Any]) -> list[Any]:
    """Leaves of a result: computed ones, with those that are no tensors between."""
    if not metadata:
        return list(outs)
    rest = iter(outs)
    return [
        metadata[k] if k in metadata else next(rest)
        for k in range(len(outs) + len(metadata))
    ]


def as_handle(x: Any) -> EagerTensor:
    """A captured constant as a tensor."""
    return x if isinstance(x, EagerTensor) else constant(hold(x))


__all__ = [
    "NAMESPACE",
    "Spec",
    "TracedProgram",
    "argument_of",
    "as_handle",
    "aval_like",
    "concrete",
    "merged",
    "traced",
]
