"""How a nest becomes kernels: long reductions are split, products are tiled.

A reduction over many elements with few results runs in two steps: partial results by
many invocations, each along an arithmetic sequence of elements, then what combines
them. Which elements go where depends on sizes only. Products of matrices (and windows)
compute a block of elements in each invocation, so that what they read is read once for
a whole row of the block; strips that no block covers are kernels of their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from ...ops import (
    Array,
    Expr,
    Loop,
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
from ._accesses import Access, Loops, mapped, rewritten

LONG: Final = 2048  # elements of a reduction that one invocation should not do alone
BUSY: Final = 1024  # invocations that are enough
MOST_PARTS: Final = 1024
PART: Final = 256  # elements of a partial result, at least
WORTH_TILES: Final = 1 << 15  # multiplications below which blocks do not pay


@dataclass(frozen=True, slots=True)
class Strip:
    """A reduction over every `step`-th element of its loops, from `first` on."""

    over: tuple[Loop, ...]
    parts: tuple[Part, ...]
    first: str
    step: int


@dataclass(frozen=True, slots=True)
class Tiled:
    """A reduction whose accumulators are a block of `rows` x `cols`."""

    over: tuple[Loop, ...]
    parts: tuple[Part, ...]
    rows: Loop
    cols: Loop


@dataclass(frozen=True, slots=True)
class Block:
    """A reduction whose accumulators are the elements of a block, written out."""

    over: tuple[Loop, ...]
    parts: tuple[Part, ...]


def count(over: tuple[Loop, ...]) -> int:
    return math.prod([loop.size for loop in over])


# ---- splitting -----------------------------------------------------------------------


class Splitter:
    """Splits the reductions of one nest; `scratch` receives the arrays it needs."""

    def __init__(self, loops: Loops, scratch: list[Array], dtype_of: Any) -> None:
        self.loops, self.scratch, self.dtype_of = loops, scratch, dtype_of
        self.found: list[Loops] = []
        self.threads = count(loops.space)

    def run(self) -> list[Loops]:
        body = self.loops.body
        reductions = [s for s in body if isinstance(s, Reduce)]
        longest = max((count(s.over) for s in reductions), default=0)
        is_scan = any(isinstance(s, Scan) for s in body)
        if longest < LONG or self.threads >= BUSY or is_scan or self.loops.tile:
            return [self.loops]
        done: list[Statement] = []
        for s in body:
            if isinstance(s, Reduce) and count(s.over) >= LONG:
                done.append(self._split(s, done))
            elif isinstance(s, Store) and s.over:
                done = self._finished(done)
                self._emit((*self.loops.space, *s.over), [*done, replace(s, over=())])
            else:
                done.append(s)
        if any(isinstance(s, Store) for s in done):
            self._emit(self.loops.space, done)
        return self.found

    def _emit(self, space: tuple[Loop, ...], body: list[Any]) -> None:
        self.found.append(replace(self.loops, space=space, body=list(body)))

    def _scratch(self, shape: tuple[int, ...], dtype: Any) -> Array:
        made = Array(f"s{len(self.scratch)}", shape, self.dtype_of(dtype))
        self.scratch.append(made)
        return made

    def _at(self, array: Array, inner: Loop | None) -> Expr:
        """Where a result of this invocation lies in scratch."""
        coefficients, n = {}, 1
        if inner is not None:
            coefficients[inner.var.name], n = 1, inner.size
        for loop in reversed(self.loops.space):
            coefficients[loop.var.name] = n
            n *= loop.size
        name = self.loops.new_access(Access(array, 0, coefficients))
        return new_node("at", (), name)

    def _split(self, s: Reduce, before: list[Statement]) -> Reduce:
        size = count(s.over)
        most = max(8, (1 << 16) // max(1, self.threads))
        parts = max(8, min(MOST_PARTS, most, size // PART))
        names = {loop.var.name for loop in self.loops.space}
        letter = f"k{len(self.scratch)}"
        assert letter not in names
        chunk = Loop(var(letter), parts)
        stores: list[Any] = []
        combined = []
        for p in s.parts:
            array = self._scratch((self.threads * parts,), p.dtype)
            place = self._at(array, chunk)
            stores.append(Store(array, (place,), var(p.name, p.value.kind), None, ()))
            held = new_node("at", (), place.name, p.value.kind)
            combined.append(replace(p, value=held, where=None))
        strip = Strip(s.over, s.parts, chunk.var.name, parts)
        known = [b for b in before if not isinstance(b, Store)]
        self._emit((*self.loops.space, chunk), [*known, strip, *stores])
        return Reduce((chunk,), tuple(combined))

    def _finished(self, done: list[Statement]) -> list[Statement]:
        """Results so far in scratch, so that a store over many elements reads them."""
        stores: list[Any] = []
        names: dict[Expr, Expr] = {}
        for s in done:
            for p in s.parts if isinstance(s, Reduce) else ():
                array = self._scratch((self.threads,), p.dtype)
                place = self._at(array, None)
                name = var(p.name, p.value.kind)
                stores.append(Store(array, (place,), name, None, ()))
                names[name] = new_node("at", (), place.name, p.value.kind)
        if not stores:
            return done
        self._emit(self.loops.space, [*done, *stores])
        return [Named(name.name, value) for name, value in names.items()]  # type: ignore[misc]


@dataclass(frozen=True, slots=True)
class Named:
    """A value with a name, for statements that follow."""

    name: str
    value: Expr


# ---- tiling --------------------------------------------------------------------------


def tiled(
    loops: Loops, rows: int, cols: int, least: int, *, unrolls: bool
) -> list[Loops]:
    """Blocks of `rows` x `cols` elements (narrower where there are fewer columns), and
    the strips that are left over; no blocks if they were fewer than `least`.

    Args:
        unrolls: elements of a block are variables; else an array, and loops over it.
    """
    if loops.tile is None:
        return [loops]
    plain = replace(loops, tile=None)
    m, n = (_loop(loops, name) for name in loops.tile)
    work = count(loops.space) * max(
        (count(s.over) for s in loops.body if isinstance(s, Reduce)), default=0
    )
    cols = max(1, min(cols, n.size))
    if n.size % cols and not n.size % (cols // 2 or 1):
        cols //= 2  # narrower blocks rather than a strip without any
    blocks = count(loops.space) // (rows * cols)
    if m.size < rows or work < WORTH_TILES or blocks < least:
        return [plain]
    blocked = _unrolled if unrolls else _blocks
    found = [blocked(loops, m, n, rows, cols)]
    below, right = m.size % rows, n.size % cols
    if below:
        found.append(_part(plain, {m: (m.size - below, below)}))
    if right:
        kept = (0, m.size - below)
        found.append(_part(plain, {m: kept, n: (n.size - right, right)}))
    return found


def _loop(loops: Loops, name: str) -> Loop:
    return next(loop for loop in loops.space if loop.var.name == name)


def _part(loops: Loops, bounds: dict[Loop, tuple[int, int]]) -> Loops:
    """The nest over a part of its space: loop -> (start, size)."""
    accesses = dict(loops.accesses)
    moved: dict[Expr, Expr] = {}
    sizes = dict(loops.sizes)
    for loop, (start, _) in bounds.items():
        name = loop.var.name
        for key, access in accesses.items():
            extra = access.coefficients.get(name, 0) * start
            accesses[key] = replace(access, constant=access.constant + extra)
        if start:
            shift = f"n_{name}"
            sizes[shift] = start
            moved[loop.var] = new_node("iadd", [loop.var, var(shift)])
    space = tuple(
        Loop(loop.var, bounds[loop][1]) if loop in bounds else loop
        for loop in loops.space
    )
    body = [mapped(s, lambda e: rewritten(e, moved)) for s in loops.body]
    return replace(
        loops, space=space, body=body, sizes=sizes, accesses=accesses, tile=None
    )


def _blocks(loops: Loops, m: Loop, n: Loop, rows: int, cols: int) -> Loops:
    """Each statement over the elements of a block: loops of fixed length inside."""
    i, j = (Loop(var(f"{v.var.name}_in"), size) for v, size in ((m, rows), (n, cols)))
    inside = {
        outer.var: new_node("iadd", [outer.var, inner.var])
        for outer, inner in ((m, i), (n, j))
    }
    out = replace(loops, body=[], accesses={}, tile=None)
    out.twins = {i.var.name: m.var.name, j.var.name: n.var.name}
    for key, access in loops.accesses.items():
        by = dict(access.coefficients)
        by |= {x: by[y] for x, y in out.twins.items() if y in by}
        out.accesses[key] = replace(access, coefficients=by)
    for s in loops.body:
        moved = mapped(s, lambda e: rewritten(e, inside))
        if isinstance(moved, Reduce):
            out.body.append(Tiled(moved.over, moved.parts, i, j))  # type: ignore[arg-type]
        else:
            assert isinstance(moved, Store)
            out.body.append(replace(moved, over=(i, j)))
    out.space = tuple(
        Loop(v.var, v.size // {m: rows, n: cols}.get(v, 1)) for v in loops.space
    )
    out.blocks = {m.var.name: rows, n.var.name: cols}
    return out


def _unrolled(loops: Loops, m: Loop, n: Loop, rows: int, cols: int) -> Loops:
    """Each statement once for each element of a block. Equal nodes are one node, so
    what depends on the row alone, or on the column alone, is computed once."""
    out = replace(loops, body=[], accesses=dict(loops.accesses), tile=None)
    names: dict[tuple[str, int], str] = {}

    def shifted(e: Expr, by: dict[str, int]) -> Expr:
        memo: dict[Expr, Expr] = {
            v.var: new_node("iadd", [v.var, const(by[v.var.name])])
            for v in (m, n)
            if by[v.var.name]
        }
        for node in topological(e):
            if node in memo or not (node.args or node.fn == "at"):
                memo.setdefault(node, node)
                continue
            name = node.name
            if node.fn in ("at", "at_if"):
                access = loops.accesses[name]
                delta = sum(access.coefficients.get(v, 0) * k for v, k in by.items())
                if delta and (name, delta) not in names:
                    beside = replace(access, constant=delta, beside=name)
                    names[name, delta] = out.new_access(beside)
                name = names[name, delta] if delta else name
            args = tuple(memo[a] for a in node.args)
            memo[node] = new_node(node.fn, args, name, node.kind)
        return memo[e]

    elements = [
        {m.var.name: r, n.var.name: c} for r in range(rows) for c in range(cols)
    ]
    for s in loops.body:
        copies = [mapped(s, partial(shifted, by=by)) for by in elements]
        if isinstance(s, Reduce):
            parts = [
                replace(p, name=f"{p.name}_{k}")
                for k, copy in enumerate(copies)
                for p in copy.parts  # type: ignore[union-attr]
            ]
            out.body.append(Block(s.over, tuple(parts)))  # type: ignore[arg-type]
            continue
        assert isinstance(s, Store)
        for k, copy in enumerate(copies):
            held = {
                node: var(f"{node.name}_{k}", node.kind)
                for node in topological(s.value)
                if node.fn == "var" and node.name in _results(loops)
            }
            value = rewritten(copy.value, held)  # type: ignore[union-attr]
            out.body.append(replace(copy, value=value))  # type: ignore[arg-type]
    out.space = tuple(
        Loop(v.var, v.size // {m: rows, n: cols}.get(v, 1)) for v in loops.space
    )
    out.blocks = {m.var.name: rows, n.var.name: cols}
    return out


def _results(loops: Loops) -> set[str]:
    """Names of what reductions give."""
    return {p.name for s in loops.body if isinstance(s, Reduce) for p in s.parts}
