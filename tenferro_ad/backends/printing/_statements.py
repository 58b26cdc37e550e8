"""Statements of a nest as blocks of a kernel."""

from __future__ import annotations

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
from ._schedule import Named, Strip, count
from ._writer import Writer

# Floating summands that are added apart before they join the sum: rounding grows with
# the length of the block and the number of blocks, not with their product.
BLOCK: Final = 64


class Body(Writer):
    """Writes a whole nest: `threads` invocations, each finding its place by `gid`."""

    def __init__(self, dialect: Dialect, loops: Loops, index: Dtype) -> None:
        super().__init__(dialect, loops, index)
        self.threads = count(loops.space)
        self._place()
        for s in loops.body:
            self.statement(s)

    def _place(self) -> None:
        """The variables of the space from the number of the invocation."""
        end = self.param("threads", self.threads)
        self.line(f"if (gid >= {end}) {{ return; }}")
        rest = "gid"
        for k, loop in reversed(list(enumerate(self.loops.space))):
            name = loop.var.name
            block = self.loops.blocks.get(name, 1)
            place = rest
            if k:
                size = self.size(loop)
                place, left = f"{rest} % {size}", f"{rest} / {size}"
                rest = self.declare(("rest", name), self.index, left)
            place = f"({place}) * {block}" if block > 1 else place
            self.line(self.dialect.let(self.index, name, place))

    def statement(self, s: Any) -> None:
        match s:
            case Named():
                dtype = self.dtype(s.value)
                self.names[s.name] = (self.value(s.value, dtype), dtype)
            case Reduce() | Strip():
                self._reduce(s)
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

    def open_strip(self, s: Strip) -> None:
        """One loop over every `step`-th element, wherever it lies among the loops."""
        total = self.param(("total", s.first), count(s.over))
        step = self.param(("step", s.first), s.step)
        if len(s.over) == 1:
            name = s.over[0].var.name
            self.open(self.dialect.loop(name, s.first, total, step))
            return
        self.open(self.dialect.loop(f"{s.first}_at", s.first, total, step))
        rest = f"{s.first}_at"
        for k, loop in reversed(list(enumerate(s.over))):
            place = rest
            if k:
                size = self.size(loop)
                place, left = f"{rest} % {size}", f"{rest} / {size}"
                rest = self.declare(("rest", loop.var.name), self.index, left)
            self.line(self.dialect.let(self.index, loop.var.name, place))

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
        if isinstance(s, Strip):
            self.open_strip(s)
            self._accumulate(s.parts, totals)
            self.close()
            return
        if self._is_blocked(s):
            self._blocks(s, totals)
            return
        self.open_loops(s.over)
        self._accumulate(s.parts, totals)
        self.close_loops(len(s.over))

    def _is_blocked(self, s: Reduce) -> bool:
        return (
            bool(s.over)
            and s.over[-1].size > 2 * BLOCK
            and len(s.parts) == 1
            and s.parts[0].how == "sum"
            and self._dtype_of(s.parts[0]).kind in "fc"
        )

    def _blocks(self, s: Reduce, totals: list[tuple[str, Dtype]]) -> None:
        *outer, last = s.over
        name, end = last.var.name, self.size(last)
        self.open_loops(outer)
        self.open(self.dialect.loop(f"{name}_at", "0", end, str(BLOCK)))
        held = [self._start(p, "_part") for p in s.parts]
        limit = self.library.resolved(
            f"minimum$({name}_at + {BLOCK}, {end})", self.index
        )
        stop = self.declare(("stop", name), self.index, limit)
        self.open(self.dialect.loop(name, f"{name}_at", stop, "1"))
        self._accumulate(s.parts, held)
        self.close()
        for (total, dtype), (part, _) in zip(totals, held, strict=True):
            self.line(f"{total} = {self._sum(total, part, dtype)};")
        self.close_loops(1 + len(outer))

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
