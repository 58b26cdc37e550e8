"""Where loops read and write: indices become offsets that are linear in loop variables.

`prepare` rewrites a nest for given layouts: each element of an array becomes an access,
`constant + sum(coefficient * variable) + sum(coefficient * other index)`, in elements
of its buffer. `coalesce` then joins neighbouring loops wherever every access would not
see the difference, so that contiguous operands are one loop whatever their rank, and
drops loops of one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...ops import (
    Array,
    Expr,
    Loop,
    Nest,
    Part,
    Reduce,
    Scan,
    Statement,
    Store,
    const,
    topological,
    var,
)
from ...ops import node as new_node
from ._launch import Layout, Scalar, Strided


@dataclass(frozen=True, slots=True)
class Access:
    """The offset of an element: a constant, coefficients of variables, and those of
    other index expressions (which the node `at` carries as arguments). With `beside`
    the constant counts from the offset of the access of that name."""

    array: Array
    constant: int
    coefficients: Mapping[str, int]
    others: tuple[int, ...] = ()
    beside: str = ""


@dataclass(slots=True)
class Loops:
    """A nest whose accesses are offsets.

    Attributes:
        accesses: by the name that nodes `at` and `at_if` refer to; the place of a store
            is a node `at` too.
        tile: variables of the space along which to form blocks.
        slots: names of numbers that come with the launch, and which operand they are.
        blocks: variables of the space that advance by more than 1.
        twins: variables inside a block, and those of the space that they add to.
    """

    space: tuple[Loop, ...]
    body: list[Statement]
    sizes: dict[str, int]
    numbers: dict[str, tuple[Any, Any]]
    accesses: dict[str, Access]
    tile: tuple[str, str] | None = None
    slots: dict[str, int] = field(default_factory=dict)
    blocks: dict[str, int] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)

    def new_access(self, access: Access) -> str:
        name = f"{access.array.name}.{len(self.accesses)}"
        self.accesses[name] = access
        return name


# ---- linear forms --------------------------------------------------------------------


@dataclass(slots=True)
class Linear:
    constant: int = 0
    terms: dict[str, int] = field(default_factory=dict)
    others: dict[Expr, int] = field(default_factory=dict)

    def add(self, other: Linear, times: int) -> None:
        self.constant += times * other.constant
        for name, n in other.terms.items():
            self.terms[name] = self.terms.get(name, 0) + times * n
        for e, n in other.others.items():
            self.others[e] = self.others.get(e, 0) + times * n

    @property
    def is_constant(self) -> bool:
        return not self.terms and not self.others


def linear(e: Expr, loops: frozenset[str], sizes: Mapping[str, int]) -> Linear:
    """`e` as a linear form of loop variables; what is not linear stays whole."""
    if e.fn == "const" and isinstance(e.value, int):
        return Linear(int(e.value))
    if e.fn == "var" and e.name in sizes:
        return Linear(sizes[e.name])
    if e.fn == "var" and e.name in loops:
        return Linear(0, {e.name: 1})
    found = Linear()
    if e.fn in ("add", "sub"):
        a, b = (linear(x, loops, sizes) for x in e.args)
        found.add(a, 1)
        found.add(b, 1 if e.fn == "add" else -1)
        return found
    if e.fn == "neg":
        found.add(linear(e.args[0], loops, sizes), -1)
        return found
    if e.fn == "mul":
        a, b = (linear(x, loops, sizes) for x in e.args)
        if a.is_constant:
            a, b = b, a
        if b.is_constant:
            found.add(a, b.constant)
            return found
    found.others[e] = 1
    return found


# ---- from a nest to loops ------------------------------------------------------------


class _Preparing:
    def __init__(self, nest: Nest, layouts: Mapping[str, Layout]) -> None:
        self.nest, self.layouts = nest, layouts
        names = [loop.var.name for loop in nest.space]
        for s in nest.body:
            over = (s.loop,) if isinstance(s, Scan) else s.over
            names += [loop.var.name for loop in over]
        self.variables = frozenset(names)
        self.out = Loops(nest.space, [], dict(nest.sizes), dict(nest.numbers), {}, None)
        if nest.tile is not None:
            self.out.tile = (nest.tile[0].name, nest.tile[1].name)
        self.memo: dict[Expr, Expr] = {}

    def access(
        self, name: str, array: Array, index: tuple[Expr, ...]
    ) -> tuple[Access, Any]:
        layout = self.layouts[name]
        assert isinstance(layout, Strided)
        total = Linear(layout.offset)
        for place, stride in zip(index, layout.strides, strict=True):
            total.add(linear(place, self.variables, self.out.sizes), stride)
        others = {e: n for e, n in total.others.items() if n}
        terms = {v: n for v, n in total.terms.items() if n}
        made = Access(array, total.constant, terms, tuple(others.values()))
        return made, tuple(self.expr(e) for e in others)

    def expr(self, e: Expr) -> Expr:
        for node in topological(e):
            if node not in self.memo:
                self.memo[node] = self._node(node)
        return self.memo[e]

    def _node(self, node: Expr) -> Expr:
        if node.fn in ("var", "const"):
            return node
        if node.fn in ("load", "load_if"):
            return self._load(node)
        args = tuple(self.memo[a] for a in node.args)
        return new_node(node.fn, args, node.name, node.kind)

    def _load(self, node: Expr) -> Expr:
        array = self.arrays[node.name]
        if isinstance(self.layouts[node.name], Scalar):
            name = f"v{node.name}"
            self.out.numbers[name] = (0, array.dtype)
            self.out.slots[name] = int(node.name[1:])
            return var(name, node.kind)
        guarded = node.fn == "load_if"
        access, others = self.access(node.name, array, node.args[2 * guarded :])
        name = self.out.new_access(access)
        lead = tuple(self.memo[a] for a in node.args[: 2 * guarded])
        fn = "at_if" if guarded else "at"
        return new_node(fn, (*lead, *others), name, node.kind)

    def statement(self, s: Statement) -> Statement:
        match s:
            case Reduce():
                return Reduce(s.over, tuple(self._part(p) for p in s.parts))
            case Store():
                access, others = self.access(s.array.name, s.array, s.index)
                name = self.out.new_access(access)
                place = new_node("at", others, name)
                where = None if s.where is None else self.expr(s.where)
                return Store(s.array, (place,), self.expr(s.value), where, s.over)
            case Scan():
                carry = tuple((n, t, self.expr(e)) for n, t, e in s.carry)
                stores = tuple(self.statement(x) for x in s.stores)
                step = tuple(self.expr(e) for e in s.step)
                return Scan(s.loop, carry, step, stores)  # type: ignore[arg-type]

    def _part(self, p: Part) -> Part:
        where = None if p.where is None else self.expr(p.where)
        return replace(p, value=self.expr(p.value), where=where)

    arrays: Mapping[str, Array]


def prepare(
    nest: Nest, arrays: Mapping[str, Array], layouts: Mapping[str, Layout]
) -> Loops:
    """The nest over offsets into buffers of those layouts.

    Args:
        arrays: in whose buffer the elements of each name lie: its own, or that of an
            output of the same dtype.
    """
    work = _Preparing(nest, layouts)
    work.arrays = arrays
    work.out.body = [work.statement(s) for s in nest.body]
    return work.out


# ---- what a statement reads ----------------------------------------------------------


def expressions(s: Statement) -> tuple[Expr, ...]:
    """Every expression of a statement."""
    match s:
        case Reduce():
            found = [(p.value, p.where) for p in s.parts]
            return tuple(e for pair in found for e in pair if e is not None)
        case Store():
            where = () if s.where is None else (s.where,)
            return (*s.index, s.value, *where)
        case Scan():
            inner = tuple(e for x in s.stores for e in expressions(x))
            return (*(e for _, _, e in s.carry), *s.step, *inner)


def mapped(s: Statement, fn: Callable[[Expr], Expr]) -> Statement:
    """A statement with its expressions replaced."""
    match s:
        case Reduce():
            parts = tuple(
                replace(
                    p,
                    value=fn(p.value),
                    where=None if p.where is None else fn(p.where),
                )
                for p in s.parts
            )
            return Reduce(s.over, parts)
        case Store():
            where = None if s.where is None else fn(s.where)
            return Store(s.array, tuple(map(fn, s.index)), fn(s.value), where, s.over)
        case Scan():
            carry = tuple((n, t, fn(e)) for n, t, e in s.carry)
            stores = tuple(mapped(x, fn) for x in s.stores)
            step = tuple(map(fn, s.step))
            return Scan(s.loop, carry, step, stores)  # type: ignore[arg-type]


def rewritten(e: Expr, replacements: Mapping[Expr, Expr]) -> Expr:
    """`e` with nodes replaced, without simplification."""
    memo: dict[Expr, Expr] = dict(replacements)
    for node in topological(e):
        if node not in memo:
            args = tuple(memo[a] for a in node.args)
            memo[node] = new_node(node.fn, args, node.name, node.kind) if args else node
    return memo[e]


# ---- joining loops -------------------------------------------------------------------


def coalesce(loops: Loops) -> None:
    """Drop loops of one step and join neighbours that every access sees as one."""
    opaque = {
        node.name
        for s in loops.body
        for e in expressions(s)
        for node in topological(e)
        if node.fn == "var"
    }
    kept = set(loops.tile or ())
    gone: dict[str, int] = {}

    def joined(group: tuple[Loop, ...]) -> tuple[Loop, ...]:
        found: list[Loop] = []
        for loop in group:
            if loop.size == 1 and loop.var.name not in kept:
                gone[loop.var.name] = 0
            elif found and _join(loops, found[-1], loop, opaque | kept):
                merged = found.pop()
                gone[merged.var.name] = 0
                found.append(Loop(loop.var, merged.size * loop.size))
            else:
                found.append(loop)
        return tuple(found)

    groups: dict[tuple[Loop, ...], tuple[Loop, ...]] = {}
    for s in loops.body:
        if not isinstance(s, Scan) and s.over not in groups:
            groups[s.over] = joined(s.over)
    loops.space = joined(loops.space)
    for k, s in enumerate(loops.body):
        if not isinstance(s, Scan):
            loops.body[k] = replace(s, over=groups[s.over])
    for name, access in loops.accesses.items():
        left = {v: n for v, n in access.coefficients.items() if v not in gone}
        loops.accesses[name] = replace(access, coefficients=left)
    zero = {var(v): const(0) for v in gone if v in opaque}
    if zero:
        loops.body = [mapped(s, lambda e: rewritten(e, zero)) for s in loops.body]


def _join(loops: Loops, outer: Loop, inner: Loop, opaque: set[str]) -> bool:
    a, b = outer.var.name, inner.var.name
    if a in opaque or b in opaque:
        return False
    for access in loops.accesses.values():
        n = access.coefficients
        if n.get(a, 0) != n.get(b, 0) * inner.size:
            return False
    return True
