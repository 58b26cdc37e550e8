"""Device forms: what a kernel computes, as loop nests over scalar expressions.

A `Write` row has a NumPy function for the host and a form for every other lane: a
function `form(k, call)` that describes its loops to a `Kernel`. A nest has a space (one
invocation for each index), then statements: reductions over further loops, a scan along
one loop, and stores. Values are expressions over elements of arrays at indices, which
are expressions of loop variables: sums of products where possible, which become strides
of any layout. Nests follow each other; what one writes the next ones see, also through
scratch arrays. Printers turn nests into OpenCL C, CUDA C and WGSL; sizes are parameters
of what they print, so a form must not depend on them in other ways than `if` something
is empty, 1, or a whole.

Additions happen in an order that depends on sizes only: results are the same on every
run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from ._expr import Expr, as_expr, call, var

Dtype = np.dtype[Any]
Index = Expr | int
Form = Callable[["Kernel", Any], None]

INDEX: Final = "index"  # dtype of loop variables and sizes: the lane chooses its width

# What a reduction applies, and where it starts from.
COMBINES: Final = {
    "sum": ("add", 0),
    "prod": ("mul", 1),
    "max": ("maximum", -np.inf),
    "min": ("minimum", np.inf),
    "any": ("logical_or", False),
    "all": ("logical_and", True),
}


def node(fn: str, args: Sequence[Expr], name: str = "", kind: str = "r") -> Expr:
    """A node of a function that only printers know: without simplification."""
    return Expr._make(fn, tuple(args), name, 0, kind)


def kind_of(dtype: Any) -> str:
    return "c" if dtype != INDEX and dtype.kind == "c" else "r"


def cast(e: Any, dtype: Any) -> Expr:
    """`e` converted to a dtype (or to `INDEX`)."""
    name = dtype if dtype == INDEX else np.dtype(dtype).str
    kind = kind_of(dtype if dtype == INDEX else np.dtype(dtype))
    return node("cast", [as_expr(e)], name, kind)


def quotient(a: Any, b: Any) -> Expr:
    """a // b for indices, which are not negative."""
    return node("idiv", [as_expr(a), as_expr(b)])


def rest(a: Any, b: Any) -> Expr:
    """a % b for indices, which are not negative."""
    return node("imod", [as_expr(a), as_expr(b)])


def both(*conditions: Expr | None) -> Expr | None:
    """All of them; None holds always."""
    found: Expr | None = None
    for c in conditions:
        if c is not None:
            found = c if found is None else call("logical_and", found, c)
    return found


def within(index: Any, size: Any) -> Expr:
    """0 <= index < size."""
    i = as_expr(index)
    return call("logical_and", i >= 0, i < size)


@dataclass(frozen=True, slots=True)
class Array:
    """An operand, an output or scratch, as seen by a form."""

    name: str
    shape: tuple[int, ...]
    dtype: Dtype

    def at(self, *index: Index, where: Expr | None = None, other: Any = 0) -> Expr:
        """The element; where `where` is false, `other` (and nothing is read)."""
        places = tuple(as_expr(i) for i in index)
        kind = kind_of(self.dtype)
        if where is None:
            return node("load", places, self.name, kind)
        return node("load_if", (where, as_expr(other), *places), self.name, kind)


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop variable that runs from 0 to `size` - 1."""

    var: Expr
    size: int


@dataclass(frozen=True, slots=True)
class Part:
    """One accumulator of a reduction: `how` is a key of `COMBINES`."""

    name: str
    how: str
    dtype: Any
    value: Expr
    where: Expr | None


@dataclass(frozen=True, slots=True)
class Reduce:
    """Accumulators over common loops."""

    over: tuple[Loop, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Store:
    """`array[index] = value` where `where` holds, for each index of `over`."""

    array: Array
    index: tuple[Expr, ...]
    value: Expr
    where: Expr | None
    over: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class Scan:
    """A loop in order: carried values are replaced in each step, then stored.

    `carry` holds name, dtype and start of each carried value, `step` what replaces it
    (in terms of old values); stores read the new ones.
    """

    loop: Loop
    carry: tuple[tuple[str, Any, Expr], ...]
    step: tuple[Expr, ...]
    stores: tuple[Store, ...]


Statement = Reduce | Store | Scan


@dataclass(slots=True)
class Nest:
    """One kernel: a space of invocations and what each of them does.

    Attributes:
        sizes, numbers: values of parameters by name; numbers have a dtype.
        is_background: writes zeros that another nest writes over; nothing to do where
            the result is added to an output.
        tile: two variables of the space along which elements share what they read.
    """

    space: tuple[Loop, ...] = ()
    body: list[Statement] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    numbers: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    is_background: bool = False
    tile: tuple[Expr, Expr] | None = None
    names: int = 0

    def _name(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def size(self, n: int) -> Expr:
        """A size as a parameter."""
        name = self._name("n")
        self.sizes[name] = n
        return var(name)

    def number(self, value: Any, dtype: Any) -> Expr:
        """A number as a parameter."""
        name = self._name("c")
        self.numbers[name] = (value, np.dtype(dtype))
        return var(name, kind_of(np.dtype(dtype)))

    def loops(self, sizes: Sequence[int]) -> tuple[Loop, ...]:
        return tuple(Loop(var(self._name("v")), n) for n in sizes)

    def reduce(
        self,
        how: str,
        over: Sequence[Loop],
        value: Any,
        dtype: Any,
        where: Expr | None = None,
    ) -> Expr:
        """The reduced value, for statements that follow."""
        name = self._name("r")
        part = Part(name, how, dtype, as_expr(value), where)
        self.body.append(Reduce(tuple(over), (part,)))
        return var(name, kind_of(dtype))

    def store(
        self,
        array: Array,
        index: Sequence[Index],
        value: Any,
        where: Expr | None = None,
        over: Sequence[Loop] = (),
    ) -> None:
        self.body.append(_stored(array, index, value, where, over))

    def scan(
        self,
        loop: Loop,
        carry: Sequence[tuple[Any, Any]],
        step: Callable[..., Sequence[Any]],
        stores: Callable[..., Sequence[tuple[Any, ...]]],
    ) -> None:
        """A loop in order.

        Args:
            carry: dtype and start of each carried value.
            step: `step(*old)` gives the new values.
            stores: `stores(*new)` gives (array, index, value) or, with a condition,
                (array, index, value, where).
        """
        names = [self._name("a") for _ in carry]
        held = [
            var(n, kind_of(dtype)) for n, (dtype, _) in zip(names, carry, strict=True)
        ]
        new = tuple(as_expr(e) for e in step(*held))
        found = []
        for array, index, value, *where in stores(*held):
            found.append(_stored(array, index, value, where[0] if where else None, ()))
        starts = tuple(
            (n, dtype, as_expr(start))
            for n, (dtype, start) in zip(names, carry, strict=True)
        )
        self.body.append(Scan(loop, starts, new, tuple(found)))


def _stored(
    array: Array,
    index: Sequence[Index],
    value: Any,
    where: Expr | None,
    over: Sequence[Loop],
) -> Store:
    places = tuple(as_expr(i) for i in index)
    return Store(array, places, as_expr(value), where, tuple(over))


@dataclass(slots=True)
class Kernel:
    """What a form describes: arrays and nests.

    Attributes:
        wide: the widest floating dtype of the lane.
        has_int64: the lane computes with integers of 64 bits.
    """

    ins: tuple[Array, ...]
    outs: tuple[Array, ...]
    wide: Dtype
    has_int64: bool
    nests: list[Nest] = field(default_factory=list)
    scratch: list[Array] = field(default_factory=list)

    def nest(self, *sizes: int) -> tuple[Nest, tuple[Expr, ...]]:
        """A nest with one invocation for each index, and its variables."""
        made = Nest()
        made.space = made.loops(sizes)
        self.nests.append(made)
        return made, tuple(loop.var for loop in made.space)

    def array(self, shape: tuple[int, ...], dtype: Any) -> Array:
        """Scratch, for nests that follow."""
        made = Array(f"s{len(self.scratch)}", shape, np.dtype(dtype))
        self.scratch.append(made)
        return made

    def fill(self, value: Any = 0) -> None:
        """Fill the output: a background where the value is 0."""
        out = self.outs[0]
        n, index = self.nest(*out.shape)
        n.is_background = value == 0 and not isinstance(value, str)
        n.store(out, index, n.number(value, out.dtype))

    def lines(
        self, shape: tuple[int, ...], axes: Sequence[int], *, keepdims: bool = True
    ) -> Lines:
        """A nest with one invocation for each line along `axes`."""
        kept = [k for k in range(len(shape)) if k not in axes]
        n, found = self.nest(*[shape[k] for k in kept])
        along = n.loops([shape[k] for k in axes])
        place: list[Index] = [0] * len(shape)
        for k, v in zip(kept, found, strict=True):
            place[k] = v
        line = tuple(place) if keepdims else found
        start = tuple(place)
        for k, loop in zip(axes, along, strict=True):
            place[k] = loop.var
        return Lines(n, along, tuple(place), line, start)


@dataclass(frozen=True, slots=True)
class Lines:
    """A nest over lines.

    Attributes:
        along: loops along the line.
        at: indices of an element, in terms of `along`.
        line: indices of the line's result.
        start: indices of its first element.
    """

    nest: Nest
    along: tuple[Loop, ...]
    at: tuple[Index, ...]
    line: tuple[Index, ...]
    start: tuple[Index, ...]

    def reduce(
        self, how: str, value: Any, dtype: Any, where: Expr | None = None
    ) -> Expr:
        return self.nest.reduce(how, self.along, value, dtype, where)
