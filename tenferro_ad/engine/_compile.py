"""`ta.compile`: trace once for each structure, shape and dtype, then replay."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, NoReturn, final

import numpy as np
import optree

from .._ledger import STATE
from ..errors import (
    BorrowConflictError,
    InvalidArgumentError,
    NotUniqueError,
    type_name,
)
from ..ops import evaluate
from ..runtime import (
    DEFAULT_DEVICE,
    Cache,
    CacheInfo,
    CompiledGraph,
    Schedule,
    compile_program,
    strides_of,
)
from ..storage import ValueRecord, land, record_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import device_in, tensors
from ._moved_out import DONATED
from ._pytrees import flatten, need_callable, numbers_of
from ._trace import aval_like, handles_on, merged, traced

LIMIT = 64  # signatures that one compiled function keeps


class _Entry:
    """One signature: the graph, the constants as tensors, the result's structure.

    Attributes:
        given_back: records of constants that the function returns as they are.
    """

    __slots__ = (
        "_constants",
        "_metadata",
        "_out_def",
        "donated",
        "given_back",
        "graph",
        "program",
    )

    def __init__(
        self,
        program: Any,
        constants: list[EagerTensor],
        result: tuple[Any, dict[int, Any]],
        donated: tuple[int, ...],
        strides: list[Any],
    ) -> None:
        self.program, self._constants = program, constants
        self._out_def, self._metadata = result
        self.donated = donated
        records = [c._record for c in constants]
        self.graph = compile_program(program, records, donated, strides)
        hidden = program.inputs[len(program.inputs) - len(records) :]
        self.given_back = [
            r for v, r in zip(hidden, records, strict=True) if v in program.outputs
        ]

    @property
    def constants(self) -> list[EagerTensor]:
        """One more handle on each."""
        return [c.clone() for c in self._constants]

    def result(self, outs: list[Any]) -> Any:
        """The function's result with these tensors."""
        return optree.tree_unflatten(self._out_def, merged(outs, self._metadata))


@final
class Compiled:
    """A compiled function; see `ta.compile`."""

    def __init__(self, fn: Callable[..., Any], donate: tuple[int, ...]) -> None:
        self._fn = fn
        self._donate = donate
        self._entries: Cache[_Entry] = Cache(LIMIT)
        functools.update_wrapper(self, fn)

    @property
    def cache(self) -> CacheInfo:
        """Hits, misses and evictions of this function's signatures."""
        return self._entries.info

    def graph(self, *args: Any, **kwargs: Any) -> CompiledGraph:
        """The graph for arguments like these (`Spec`s, tensors or arrays); `graph.plan`
        says what a run allocates.

        Raises: as `compile`.

        Cost: traces and plans at the first call of a signature; then a look-up.
        """
        leaves, treedef = flatten((args, kwargs))
        return self._entry(leaves, treedef).graph

    def plan(self, *args: Any, **kwargs: Any) -> Schedule:
        """Arenas, places and outputs for arguments like these.

        Raises: as `compile`.

        Cost: as `Compiled.graph`.
        """
        return self.graph(*args, **kwargs).plan

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """A compiled method passes its object as the first argument."""
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        leaves, treedef = flatten((args, kwargs))
        entry = self._entry(leaves, treedef)
        given = leaves
        if not all(type(x) is EagerTensor for x in leaves):
            given = list(tensors(*[x for x in leaves if _is_array(x)]))
        state = STATE.get()
        if state.level is not None or state.trace is not None:
            # Recorded like any other work, one operation at a time.
            if entry.donated:
                _refuse_donation()
            outs = evaluate(entry.program, HANDLES, [*given, *entry.constants])
            return entry.result(outs)
        records = [x._rec for x in given]
        if not entry.donated:
            found = entry.graph.run(state, records)
            return entry.result(handles_on(found, [*records, *entry.given_back]))
        return self._donating(entry, given, records)

    def _donating(
        self, entry: _Entry, given: list[EagerTensor], records: list[ValueRecord]
    ) -> Any:
        distinct = len(set(map(id, records))) == len(records)
        if not distinct or not all(records[k].is_spare for k in entry.donated):
            counts = Counter(map(id, records))
            for k in entry.donated:
                _check_donation(given[k], records[k], counts)
            for k in entry.donated:
                _make_inline(given[k], k, records)
        spent: list[int] = []
        for x in [given[k] for k in entry.donated]:
            x._rec = None  # type: ignore[assignment]
        try:
            found = entry.graph.run(STATE.get(), records, spent)
        except BaseException:
            for k in entry.donated:
                if k not in spent:  # nothing wrote over it
                    given[k]._rec = records[k]
                else:
                    given[k]._node = DONATED
            raise
        for k in entry.donated:
            given[k]._node = DONATED
        kept = [r for k, r in enumerate(records) if k not in entry.donated]
        return entry.result(handles_on(found, [*kept, *entry.given_back]))

    def _entry(self, leaves: list[Any], treedef: Any) -> _Entry:
        key: list[Any] = [treedef, DEFAULT_DEVICE.get()]  # `fn` may make tensors
        for x in leaves:
            if type(x) is EagerTensor:
                record = x._live("compiled function")
                key.append(record.aval)
                array = record.array
                if type(array) is np.ndarray and array.flags.c_contiguous:
                    continue
                if (steps := strides_of(record)) is not None:
                    key.append(steps)
            else:
                aval = aval_like(x, device_in(leaves))
                key.append(_static(x) if aval is None else aval)
        try:
            return self._entries.get(tuple(key), lambda: self._made(leaves, treedef))
        except TypeError as error:
            if "unhashable" not in str(error):
                raise
            raise InvalidArgumentError(
                operation="compile",
                argument="args",
                found="an argument that is neither a tensor nor hashable",
                fix="pass tensors, arrays, numbers, strings or pytrees of them",
            ) from None

    def _made(self, leaves: list[Any], treedef: Any) -> _Entry:
        device = device_in(leaves)
        avals = [aval_like(x, device) for x in leaves]
        metadata: dict[int, Any] = {}
        program, constants, out_def = traced(
            lambda args, kwargs: self._fn(*args, **kwargs),
            leaves,
            avals,
            treedef,
            metadata,
        )
        donated = self._donated(leaves, treedef)
        strides = [
            strides_of(x._record) if type(x) is EagerTensor else None
            for x in leaves
            if _is_array(x)
        ]
        return _Entry(program, constants, (out_def, metadata), donated, strides)

    def _donated(self, leaves: list[Any], treedef: Any) -> tuple[int, ...]:
        """Positions among the tensors of the leaves that are donated."""
        if not self._donate:
            return ()
        numbered: Any = optree.tree_unflatten(treedef, list(range(len(leaves))))
        args = numbered[0]
        wanted: set[int] = set()
        for n in self._donate:
            if not -len(args) <= n < len(args):
                raise InvalidArgumentError(
                    operation="compile",
                    argument="donate_argnums",
                    found=f"{n} for a call with {len(args)} positional arguments",
                    fix="name positional arguments that the call passes",
                )
            wanted.update(flatten(args[n])[0])
        at, found = 0, []
        for k, x in enumerate(leaves):
            if _is_array(x):
                if k in wanted:
                    found.append(at)
                at += 1
        return tuple(found)


def _static(x: Any) -> Any:
    """A leaf that is no array, as part of a signature: equal numbers of other types or
    signs of zero are others.

    Raises:
        InvalidArgumentError: an object that is equal to itself alone. What it holds may
            change unseen, and the signature would keep it.
    """
    if isinstance(x, float | complex):
        return type(x), repr(x)
    by_identity: bool = getattr(type(x), "__hash__") is object.__hash__  # noqa: B009
    if by_identity and not _is_fixed(x):
        raise InvalidArgumentError(
            operation="compile",
            argument="args",
            found=f"an object of type `{type_name(x)}`, which is compared by "
            "identity: a run would not see what changes in it",
            fix="pass its tensors, register its type as a pytree node (`optree`), or "
            "let the function close over it",
        )
    return type(x), x


def _is_fixed(x: Any) -> bool:
    """Functions, classes, modules, devices, and what the package makes."""
    fixed = (type, FunctionType, BuiltinFunctionType, ModuleType, np.ufunc, partial)
    package = type(x).__module__.partition(".")[0] == __name__.partition(".")[0]
    return package or isinstance(x, fixed)


def _is_array(x: Any) -> bool:
    return type(x) is EagerTensor or aval_like(x) is not None


def _refuse_donation() -> NoReturn:
    raise InvalidArgumentError(
        operation="compiled function",
        argument="donate_argnums",
        found="a call inside a recording or a trace, which keeps the operands",
        fix="compile it without donation, or donate where the outermost function is "
        "compiled",
    )


def _check_donation(x: EagerTensor, record: ValueRecord, counts: Counter[int]) -> None:
    if counts[id(record)] > 1:
        raise _shared(x, "a donated value that is passed twice")
    land(record)  # it moves into the run
    if not record.is_unique or record.is_rootless:
        raise _shared(x, "a donated value that someone else holds")


def _make_inline(x: EagerTensor, k: int, records: list[ValueRecord]) -> None:
    """Move the value out of the container that a guard or a view once made.

    Raises:
        BorrowConflictError: a guard or an exported array still reads it.
        NotUniqueError: it is a part of its root.
    """
    record = records[k]
    if record.home is not None and type(record.array) is np.ndarray:
        try:
            tensor = record.into_tensor()
        except BorrowConflictError as error:
            raise BorrowConflictError(
                operation="compiled function",
                argument="donate_argnums",
                requested=error.requested,
                outstanding=error.outstanding,
                count=error.count,
            ) from None
        x._rec = records[k] = record = record_of(
            tensor, record.aval, "compiled function"
        )
    if not record.is_whole:
        raise _shared(x, "a donated value that is part of a larger allocation")


def _shared(x: EagerTensor, found: str) -> NotUniqueError:
    return NotUniqueError(
        operation="compiled function",
        argument="donate_argnums",
        found=found,
        fix="drop the other holders, donate another value, or do not donate",
        recovered=x,
    )


def compile(
    fn: Callable[..., Any], *, donate_argnums: int | Sequence[int] = ()
) -> Compiled:
    """`fn`, traced once for each structure, shape and dtype, then replayed.

    Where outside data goes (`ta.default_device`) is part of it, as `fn` may make some.

        step = ta.compile(lambda w: w - 0.1 * w, donate_argnums=0)
        weights = ta.asarray([1.0, 2.0])
        weights = step(weights)  # in the old weights' memory

    A replay runs the kernels one after another in arenas whose places were chosen
    beforehand; nothing is traced, checked or recorded. Under a tape or another
    transform, the traced operations are recorded like eager ones.

    Args:
        fn: a function of tensors and pytrees of tensors; of a method, the object is the
            first argument. Leaves that are no arrays (numbers, strings, functions) must
            be hashable by what they are; each value is a signature of its own.
            Tensors that `fn` closes over become constants of the compiled graph.
        donate_argnums: positional arguments whose memory the outputs take over; their
            handles are empty afterwards.

    Returns:
        A function with `cache` (hits, misses, evictions), `graph(*args)`, and
        `plan(*args)`.

    Raises (when called):
        TracedConversionError: Python control flow depends on values.
        NotUniqueError, BorrowConflictError: somebody else holds or reads a donated
            value; nothing ran.
        InvalidArgumentError: a donated argument that no output can use; a donation
            inside a recording or a trace, which keeps operands.
        UnsupportedError: `fn` moves a value to another device; a compiled program
            stays on one.

    Cost: the first call of a signature traces and plans; a replay allocates one arena
        for each reason and one buffer for each output, copies nothing by itself.
    """
    need_callable("compile", fn, "fn")
    return Compiled(fn, numbers_of(donate_argnums, "compile", "donate_argnums"))
