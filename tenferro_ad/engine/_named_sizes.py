"""`ta.trace`, and programs for any length of named axes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import optree

from ..errors import InvalidArgumentError, TenferroError
from ..ops import Program
from ..storage import host_elements
from ._axes import int_of
from ._eager import EagerTensor
from ._pytrees import flatten, need_callable
from ._symbolic import refuse, sizes_of, template_of
from ._trace import Spec, TracedProgram, argument_of, aval_like, concrete
from ._watched_sizes import Watch, watching


@final
class SymbolicProgram:
    """A function traced for any length of named axes.

    What the function asks of their lengths (`if n == m`) is a guard: where the answer
    would be another one, it is traced anew.

    Calling it evaluates the program for the lengths of the arguments; every transform
    and `ta.compile` take it like any function. Lengths outside `range` are traced on
    their own (1 broadcasts, 0 has no element, `x[:100]` is something else from 100 on).

    Attributes:
        names: the named sizes.
        range: for each name the lengths that the program is known to hold for.
        constants: tensors that the function closed over.
    """

    __slots__ = (
        "_fn",
        "_found",
        "_in_def",
        "_is_plain",
        "_leaves",
        "_metadata",
        "_out_def",
        "_template",
        "constants",
        "range",
        "names",
    )

    def __init__(self, fn: Callable[..., Any], specs: tuple[Any, ...]) -> None:
        leaves, self._in_def = flatten(specs)
        self._fn = fn
        self._leaves = leaves
        self.names = tuple(
            dict.fromkeys(n for x in leaves if isinstance(x, Spec) for n in x.names)
        )
        made: list[TracedProgram] = []

        def at(sizes: Mapping[str, int]) -> tuple[Program, Watch]:
            with watching() as watch:
                made.append(self._traced(sizes))
            if made[-1].metadata == made[0].metadata:
                _same_constants(made[0].constants, made[-1].constants)
            return made[-1].program, watch

        self._template, self.range = template_of(self.names, at)
        self.constants, self._out_def = made[0].constants, made[0].out_def
        # What varies with the sizes among the other leaves is made anew.
        self._metadata = made[0].metadata
        self._is_plain = all(t.metadata == self._metadata for t in made)
        self._found: dict[tuple[int, ...], TracedProgram] = {}

    def _traced(self, sizes: Mapping[str, int]) -> TracedProgram:
        def sized(x: Any) -> Any:
            if not isinstance(x, Spec):
                return x
            aval = x.at(sizes)
            return Spec(aval.shape, aval.dtype, aval.device)

        specs = optree.tree_unflatten(self._in_def, [sized(x) for x in self._leaves])
        return concrete(self._fn, *specs)

    def at(self, **sizes: int) -> TracedProgram:
        """The program where the named axes have these lengths.

        Raises:
            InvalidArgumentError: other names than those of the specs.

        Cost: the first time a shape rule for each equation; lengths outside `range`
            trace the function again.
        """
        if sorted(sizes) != sorted(self.names):
            raise InvalidArgumentError(
                operation="SymbolicProgram.at",
                argument="sizes",
                found=f"{', '.join(sizes) or 'no name'}",
                fix=f"give a length for each of {', '.join(self.names)}",
            )
        sizes = {
            n: int_of("SymbolicProgram.at", n, m, 0, sys.maxsize)
            for n, m in sizes.items()
        }
        key = tuple(sizes[n] for n in self.names)
        found = self._found.get(key)
        if found is None:
            if len(self._found) >= 64:
                self._found.clear()
            found = self._found[key] = self._sized(sizes)
        return found

    def _sized(self, sizes: dict[str, int]) -> TracedProgram:
        leaves = self._leaves
        known = all(n in self.range[name] for name, n in sizes.items())
        if not known or not self._template.holds_at(sizes) or not self._is_plain:
            return self._traced(sizes)
        avals = [x.at(sizes) if isinstance(x, Spec) else aval_like(x) for x in leaves]
        given = [a for a in avals if a is not None]
        given += [c.aval for c in self.constants]
        try:
            program = self._template.at(sizes, given)
        except TenferroError:  # which a trace explains
            return self._traced(sizes)
        static = [x if a is None else None for x, a in zip(leaves, avals, strict=True)]
        return TracedProgram(
            program,
            self.constants,
            self._in_def,
            avals,
            static,
            self._out_def,
            self._metadata,
        )

    def __call__(self, *args: Any) -> Any:
        """Evaluate for tensors of any lengths along the named axes.

        Raises:
            ShapeError: axes of one name differ in length.
            DTypeError, InvalidArgumentError: an argument differs from what was traced.

        Cost: the program's equations, each as an eager operation.
        """
        found = flatten(args)[0]
        shapes, given = [], []
        for k, (x, spec) in enumerate(zip(found, self._leaves, strict=False)):
            if isinstance(spec, Spec):
                shapes.append(spec.shape)
                given.append(argument_of(x, k).shape)
        if len(found) != len(self._leaves):  # refused there, by structure
            return self.at(**dict.fromkeys(self.names, 2))(*args)
        return self.at(**sizes_of(self.names, shapes, given))(*args)

    def __str__(self) -> str:
        return self._template.format()

    __repr__ = __str__


def _same_constants(first: Sequence[EagerTensor], other: Sequence[EagerTensor]) -> None:
    """Constants of traces at two sizes are the same values.

    Raises:
        InvalidArgumentError: a tensor that was made from a size.
    """
    for x, y in zip(first, other, strict=False):
        a, b = x._record, y._record
        if a is b:
            continue
        if not a.aval.same(b.aval) or x.is_tracked or y.is_tracked:
            refuse("constant", "a tensor that is made from a size")
        p, q = (host_elements(record, "trace") for record in (a, b))
        if p.tobytes() != q.tobytes():
            refuse("constant", "a tensor that is made from a size")


def trace(fn: Callable[..., Any], *specs: Any) -> TracedProgram | SymbolicProgram:
    """The program of `fn` for arguments like `specs`.

        program = ta.trace(lambda x: ta.sum(ta.exp(x)), ta.Spec((3,), ta.float64))
        print(program)

    Args:
        fn: a function of tensors and pytrees of tensors; called once, or about ten
            times where axes have names.
        specs: for each positional argument a `Spec`, a tensor or an array, or a pytree
            of them. Other leaves (numbers, strings) are fixed at their value.

    Returns:
        A `TracedProgram`; a `SymbolicProgram` where a spec has named axes.

    Raises:
        InvalidArgumentError: a named size decides which operations run, or enters as
            something else than a sum of products.
        TracedConversionError: Python control flow asks for a traced value's bytes; the
            message shows the line.
        EscapedTracerError: a value of an ended trace is used.

    Cost: nothing is computed, allocated or copied; time for each operation (about ten
        times where axes have names).
    """
    need_callable("trace", fn, "fn")
    leaves = flatten(specs)[0]
    if any(isinstance(x, Spec) and x.names for x in leaves):
        return SymbolicProgram(fn, specs)
    return concrete(fn, *specs)


__all__ = ["SymbolicProgram", "trace"]
