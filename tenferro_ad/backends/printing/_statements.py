"""Statements of a nest as blocks of a kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from ...ops import (
    COMBINES,
    INDEX,
    Expr,
    Loop,
    Part,
    Reduce,
    Scan,
    Store,
    topological,
)
from ._accesses import Loops, expressions
from ._dialects import BOOL, Dialect, Dtype, computed
from ._schedule import Block, Named, Strip, Tiled, count
from ._writer import Writer

# Floating summands that are added apart before they join the sum: rounding grows with
# the length of the block and the number of blocks, not with their product.
BLOCK: Final = 32


_NAME: Final = re.compile(r"\b([var])(\d+)(?=\b|_)")


def _renumbered(lines: Sequence[str]) -> list[str]:
    """Variables numbered as they come: their names say nothing about axes that are
    not there any more."""
    found: dict[str, str] = {}

    def renamed(m: re.Match[str]) -> str:
        return found.setdefault(m[0], f"{m[1]}{len(found)}")

    return [_NAME.sub(renamed, line) for line in lines]


class Body(Writer):
    """Writes a whole nest: `threads` invocations, each finding its place by `gid`."""

    def __init__(self, dialect: Dialect, loops: Loops, index: Dtype) -> None:
        super().__init__(dialect, loops, index)
        self.threads = count(loops.space)
        self._place()
        self._read_first()
        for s in loops.body:
            self.statement(s)
        self.lines = _renumbered(self.lines)

    def _place(self) -> None:
        """The variables of the space from the number of the invocation."""
        end = self.param("threads", self.threads)
        self.line(f"if (gid >= {end}) {{ return; }}")
        self.unravel("gid", self.loops.space)

    def _read_first(self) -> None:
        """Where a nest only stores, several values may lie where others are read: the
        element of each is read before any is written."""
        body = self.loops.body
        plain = [s for s in body if isinstance(s, Store) and not s.over]
        if 1 < len(plain) == len(body) and not any(s.where for s in plain):
            self.hoist([s.value for s in plain], set(), reads=True)

    def unravel(self, place: str, over: Sequence[Loop]) -> None:
        """The variables of loops from a position in row-major order."""
        rest = place
        for k, loop in reversed(list(enumerate(over))):
            name = loop.var.name
            block = self.loops.blocks.get(name, 1)
            own = rest
            if k:
                size = self.size(loop)
                own, left = f"{rest} % {size}", f"{rest} / {size}"
                rest = self.declare(("rest", name), self.index, left)
            own = f"({own}) * {block}" if block > 1 else own
            self.line(self.dialect.let(self.index, name, own))

    def statement(self, s: Any) -> None:
        match s:
            case Named():
                dtype = self.dtype(s.value)
                self.names[s.name] = (self.value(s.value, dtype), dtype)
            case Reduce() | Strip():
                self._reduce(s)
            case Tiled():
                self._tiled(s)
            case Block():
                self._block(s)
            case Scan():
                self._scan(s)
            case Store():
                self._store(s)

    # -- in front of loops -------------------------------------------------------------

    def hoist(self, roots: Iterable[Expr], inner: set[str], *, reads: bool) -> None:
        """Compute what does not depend on the variables `inner`; elements only if
        nothing guards them (`reads`)."""
        moving: set[Expr] = set()
        for root in roots:
            for node in topological(root):
                depends = any(a in moving for a in node.args)
                if node.fn == "var":
                    depends = node.name in inner
                elif node.fn in ("at", "at_if"):
                    access = self.loops.accesses[node.name]
                    depends |= bool(inner & access.coefficients.keys())
                    depends |= node.fn == "at" and not reads
                if depends:
                    moving.add(node)
                else:
                    self.atom(node)

    def open_loops(self, over: Sequence[Loop]) -> None:
        for loop in over:
            self.open(self.dialect.loop(loop.var.name, "0", self.size(loop), "1"))

    def close_loops(self, n: int) -> None:
        for _ in range(n):
            self.close()

    # -- reductions --------------------------------------------------------------------

    def _reduce(self, s: Reduce | Strip) -> None:
        totals = [self._start(p, "") for p in s.parts]
        for p, (name, dtype) in zip(s.parts, totals, strict=True):
            self.names[p.name] = (name, dtype)
        size = count(s.over)
        if not size:
            return
        inner = {loop.var.name for loop in s.over}
        guarded = any(p.where is not None for p in s.parts)
        roots = [e for p in s.parts for e in (p.value, p.where) if e is not None]
        self.hoist(roots, inner, reads=not guarded)
        ranges = self._ranges(s)
        is_sum = len(s.parts) == 1 and s.parts[0].how == "sum" and ranges
        if is_sum and size > 2 * BLOCK and totals[0][1].kind in "fc":
            self._blocks(s, ranges, totals[0])
            return
        for r in ranges:
            self.open(self.dialect.loop(*r))
        self._place_in(s)
        self._accumulate(s.parts, totals)
        self.close_loops(len(ranges))

    def _ranges(self, s: Reduce | Strip) -> list[tuple[str, str, str, str]]:
        """Name, first, end and step of each loop. A strip takes a run of neighbours,
        then skips the runs of others."""
        if isinstance(s, Reduce):
            return [(v.var.name, "0", self.size(v), "1") for v in s.over]
        total = self.param(("total", s.first), count(s.over))
        step = self.param(("step", s.first), s.step)
        name = s.over[0].var.name if len(s.over) == 1 else f"{s.first}_at"
        return [
            (f"{name}_block", f"{s.first} * {BLOCK}", total, f"{BLOCK} * {step}"),
            (name, f"{name}_block", self._stop(name, total), "1"),
        ]

    def _stop(self, name: str, end: str, step: str = str(BLOCK)) -> str:
        """The end of a block."""
        text = f"minimum$({name}_block + {step}, {end})"
        return self.library.resolved(text, self.index)

    def _place_in(self, s: Reduce | Strip) -> None:
        """The variables of a strip over several loops."""
        if isinstance(s, Strip) and len(s.over) > 1:
            self.unravel(f"{s.first}_at", s.over)

    def _blocks(
        self,
        s: Reduce | Strip,
        ranges: Sequence[tuple[str, str, str, str]],
        total: tuple[str, Dtype],
    ) -> None:
        *outer, (name, first, end, step) = ranges
        for r in outer:
            self.open(self.dialect.loop(*r))
        if isinstance(s, Reduce):
            self.open(self.dialect.loop(f"{name}_block", first, end, str(BLOCK)))
            first, end = f"{name}_block", self._stop(name, end)
        part, dtype = self._start(s.parts[0], "_part")
        end = self.declare(("stop", name), self.index, end)
        self.open(self.dialect.loop(name, first, end, step))
        self._place_in(s)
        self._accumulate(s.parts, [(part, dtype)])
        self.close()
        self.line(f"{total[0]} = {self._sum(total[0], part, dtype)};")
        self.close_loops(len(ranges) - isinstance(s, Strip))

    def _tiled(self, s: Tiled) -> None:
        i, j = s.rows.var.name, s.cols.var.name
        totals = [self._accumulators(s, p, "") for p in s.parts]
        for p, total in zip(s.parts, totals, strict=True):
            self.names[p.name] = total
        if not count(s.over):
            return
        roots = [e for p in s.parts for e in (p.value, p.where) if e is not None]
        reads = all(p.where is None for p in s.parts)
        inner = {loop.var.name for loop in s.over}
        self.hoist(roots, inner | {i, j}, reads=reads)
        outer, block = self._summed_apart(s)
        if len(s.parts) > 1:
            outer, block = s.over, ()
        held = totals
        self.open_loops(outer)
        if block:
            self._open_blocks(block)
            held = [self._accumulators(s, s.parts[0], "_part")]
            self._open_inside(block)
        self.hoist(roots, {i, j}, reads=reads)
        self.open_loops([s.rows])
        self.hoist(roots, {j}, reads=reads)
        self.open_loops([s.cols])
        self._accumulate(s.parts, held)
        self.close_loops(2 + len(block))
        if block:
            (whole, dtype), (part, _) = totals[0], held[0]
            self.open_loops([s.rows, s.cols])
            self.line(f"{whole} = {self._sum(whole, part, dtype)};")
            self.close_loops(3)
        self.close_loops(len(outer))

    def _accumulators(self, s: Tiled, p: Part, tail: str) -> tuple[str, Dtype]:
        """One for each element of the block, at their start; the element's own."""
        dtype, name = self._dtype_of(p), f"{p.name}{tail}"
        size = s.rows.size * s.cols.size
        start = self.dialect.literal(COMBINES[p.how][1], dtype)
        self.line(self.dialect.block(dtype, name, size))
        self.open(self.dialect.loop(f"{name}_at", "0", str(size), "1"))
        self.line(f"{name}[{name}_at] = {start};")
        self.close()
        at = f"{s.rows.var.name} * {s.cols.size} + {s.cols.var.name}"
        return f"{name}[{at}]", dtype

    def _block(self, s: Block) -> None:
        totals = [self._start(p, "") for p in s.parts]
        for p, total in zip(s.parts, totals, strict=True):
            self.names[p.name] = total
        if not count(s.over):
            return
        roots = [e for p in s.parts for e in (p.value, p.where) if e is not None]
        reads = all(p.where is None for p in s.parts)
        self.hoist(roots, {loop.var.name for loop in s.over}, reads=reads)
        outer, block = self._summed_apart(s)
        held = totals
        self.open_loops(outer)
        if block:
            self._open_blocks(block)
            held = [self._start(p, "_part") for p in s.parts]
            self._open_inside(block)
        self._accumulate(s.parts, held)
        self.close_loops(len(block))
        if block:
            for (whole, dtype), (part, _) in zip(totals, held, strict=True):
                self.line(f"{whole} = {self._sum(whole, part, dtype)};")
            self.close()
        self.close_loops(len(outer))

    def _summed_apart(
        self, s: Tiled | Block
    ) -> tuple[tuple[Loop, ...], tuple[Loop, ...]]:
        """The loops outside and inside of what is added apart; all outside if nothing
        is. A whole loop is inside, or as much of the first as makes a block."""
        k = len(s.over) - 1
        is_sum = all(p.how == "sum" and self._dtype_of(p).kind in "fc" for p in s.parts)
        if not is_sum or count(s.over) <= 2 * BLOCK:
            return s.over, ()
        while k and count(s.over[k:]) < BLOCK:
            k -= 1
        return s.over[:k], s.over[k:]

    def _open_blocks(self, block: tuple[Loop, ...]) -> None:
        """The loop over blocks of what is added apart."""
        name = block[0].var.name
        step = self.param(("block", name), max(1, BLOCK // count(block[1:])))
        size = self.size(block[0])
        self.open(self.dialect.loop(f"{name}_block", "0", size, step))

    def _open_inside(self, block: tuple[Loop, ...]) -> None:
        """The loops inside of one block."""
        name, size = block[0].var.name, self.size(block[0])
        step = self.param(("block", name), max(1, BLOCK // count(block[1:])))
        stop = self.declare(("stop", name), self.index, self._stop(name, size, step))
        self.open(self.dialect.loop(name, f"{name}_block", stop, "1"))
        self.open_loops(block[1:])

    def _sum(self, a: str, b: str, dtype: Dtype) -> str:
        if dtype.kind == "c":
            return self.library.resolved(f"cadd$({a}, {b})", dtype)
        return f"{a} + {b}"

    def _dtype_of(self, p: Part) -> Dtype:
        return self.index if p.dtype == INDEX else computed(np.dtype(p.dtype))

    def _start(self, p: Part, tail: str) -> tuple[str, Dtype]:
        dtype = self._dtype_of(p)
        start = self.dialect.literal(COMBINES[p.how][1], dtype)
        name = f"{p.name}{tail}"
        self.line(self.dialect.variable(dtype, name, start))
        return name, dtype

    def _accumulate(
        self, parts: Sequence[Part], totals: Sequence[tuple[str, Dtype]]
    ) -> None:
        for p, (name, dtype) in zip(parts, totals, strict=True):
            if p.where is not None:
                self.open(f"if ({self.value(p.where, BOOL)}) {{")
            value = self.value(p.value, dtype)
            self.line(f"{name} = {self._combined(p.how, name, value, dtype)};")
            if p.where is not None:
                self.close()

    def _combined(self, how: str, total: str, value: str, dtype: Dtype) -> str:
        fn = COMBINES[how][0]
        if how == "sum" and dtype.kind in "fc":
            return self._sum(total, value, dtype)
        return self.applied(fn, [total, value], dtype)

    # -- scans and stores --------------------------------------------------------------

    def _scan(self, s: Scan) -> None:
        inner = {s.loop.var.name, *(name for name, _, _ in s.carry)}
        for name, wanted, start in s.carry:
            dtype = self.index if wanted == INDEX else computed(np.dtype(wanted))
            self.line(self.dialect.variable(dtype, name, self.value(start, dtype)))
            self.names[name] = (name, dtype)
        if not s.loop.size:
            return
        self.hoist(s.step, inner, reads=True)
        self.open_loops([s.loop])
        held = []
        for (name, _, _), new in zip(s.carry, s.step, strict=True):
            dtype = self.names[name][1]
            self.temps += 1
            self.line(self.dialect.let(dtype, f"t{self.temps}", self.value(new, dtype)))
            held.append((name, f"t{self.temps}"))
        for name, made in held:
            self.line(f"{name} = {made};")
        # What was computed from old values is not what it was.
        self.scopes[-1] = {}
        for store in s.stores:
            self._store(store)
        self.close()

    def _store(self, s: Store) -> None:
        if not count(s.over):
            return
        inner = {loop.var.name for loop in s.over}
        if s.over:
            self.hoist(expressions(s), inner, reads=s.where is None)
        self.open_loops(s.over)
        if s.where is not None:
            self.open(f"if ({self.value(s.where, BOOL)}) {{")
        dtype = s.array.dtype
        value = self.value(s.value, dtype)
        (place,) = s.index
        for other in place.args:
            self.value(other, self.index)
        at = self.offset(place)
        self.line(self.dialect.store(self.array(s.array, True), at, value, dtype))
        self.close_loops(len(s.over) + (s.where is not None))
