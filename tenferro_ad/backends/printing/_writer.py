"""The one walk over expressions that all languages share.

Each node becomes one constant of the kernel, declared in the block at hand; equal nodes
are one node already. Sizes, strides and offsets are words of the parameters, numbered
in the order of first use, so that the text depends on the structure of a nest alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops import (
    INDEX,
    Array,
    Expr,
    Loop,
    Reduce,
    Store,
    node_dtype,
    topological,
)
from ._accesses import Access, Loops
from ._dialects import BOOL, Dialect, Dtype, computed
from ._functions import INDICES, WORD, WORDS, name_of, operand_dtype, template
from ._library import Library
from ._schedule import Block, Strip, Tiled


class Writer:
    """Writes the body of one kernel."""

    def __init__(self, dialect: Dialect, loops: Loops, index: Dtype) -> None:
        self.dialect, self.loops, self.index = dialect, loops, index
        self.library = Library(dialect)
        self.lines: list[str] = []
        self.depth = 0
        self.scopes: list[dict[Any, str]] = [{}]
        self.words: list[tuple[int, Any, Dtype | None]] = []
        self.used = 0  # words of the parameters
        self.word_of: dict[Any, int] = {}
        self.arrays: dict[str, list[Any]] = {}  # name -> [array, is written]
        self.names: dict[str, tuple[str, Dtype]] = {}
        self.dtypes: dict[Expr, Any] = {}
        self.temps = 0
        self.fast = {loop.var.name for loop in loops.space[-1:]}
        for s in loops.body:
            if isinstance(s, Reduce | Strip | Tiled | Block | Store):
                self.fast |= {loop.var.name for loop in s.over[-1:]}
        self.fast |= {x for x, y in loops.twins.items() if y in self.fast}

    # -- lines and scopes --------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def open(self, text: str) -> None:
        self.line(text)
        self.depth += 1
        self.scopes.append({})

    def close(self) -> None:
        self.depth -= 1
        self.scopes.pop()
        self.line("}")

    def find(self, key: Any) -> str | None:
        found = (scope[key] for scope in reversed(self.scopes) if key in scope)
        return next(found, None)

    def declare(self, key: Any, dtype: Dtype, code: str) -> str:
        self.temps += 1
        name = f"t{self.temps}"
        self.line(self.dialect.let(computed(dtype), name, code))
        self.scopes[-1][key] = name
        return name

    # -- parameters --------------------------------------------------------------------

    def param(self, key: Any, value: int) -> str:
        return self.dialect.param(self._word(key, value, None))

    def number(self, name: str) -> str:
        value, dtype = self.loops.numbers[name]
        word = self._word(name, value, computed(dtype))
        return self.dialect.number(word, computed(dtype), self.index.itemsize == 8)

    def _word(self, key: Any, value: Any, dtype: Dtype | None) -> int:
        if key not in self.word_of:
            self.word_of[key] = self.used
            self.words.append((self.used, value, dtype))
            size = self.index.itemsize
            self.used += 1 if dtype is None else -(-dtype.itemsize // size)
        return self.word_of[key]

    def size(self, loop: Loop) -> str:
        if loop.var.name in self.loops.twins:
            return str(loop.size)
        return self.param(("extent", loop.var.name), loop.size)

    # -- dtypes ------------------------------------------------------------------------

    def dtype(self, e: Expr) -> Any:
        """The dtype of a node, or the number of a literal."""
        if e not in self.dtypes:
            for node in topological(e):
                if node not in self.dtypes:
                    self.dtypes[node] = self._dtype(node)
        return self.dtypes[e]

    def _dtype(self, e: Expr) -> Any:
        if e.fn == "const":
            return e.value
        if e.fn == "var":
            if e.name in self.loops.numbers:
                return self.loops.numbers[e.name][1]
            return self.names[e.name][1] if e.name in self.names else self.index
        if e.fn in ("at", "at_if"):
            return self.loops.accesses[e.name].array.dtype
        if e.fn == "cast":
            return self.index if e.name == INDEX else np.dtype(e.name)
        if e.fn in INDICES:
            return self.index
        if e.fn in WORDS:
            return WORD
        return node_dtype(e, [self.dtypes[a] for a in e.args])

    # -- expressions -------------------------------------------------------------------

    def value(self, e: Expr, dtype: Dtype) -> str:
        """Code of `e` converted to a dtype; everything it needs is declared."""
        for node in topological(e):
            self.atom(node)
        return self.operand(e, dtype)

    def operand(self, e: Expr, dtype: Dtype) -> str:
        if e.fn == "const":
            return self.dialect.literal(e.value, dtype)
        own = self.dtype(e)
        if not isinstance(own, np.dtype):  # a function of literals
            own = np.result_type(own)
        return self.dialect.cast(self.atom(e), computed(own), computed(dtype))

    def atom(self, e: Expr) -> str:
        if e.fn == "const":
            return ""
        if e.fn == "var":
            return self._variable(e.name)
        found = self.find(e)
        if found is not None:
            return found
        if e.fn == "at":
            return self._load(e)
        if e.fn == "at_if":
            return self._guarded(e)
        dtype = self.dtype(e)
        if not isinstance(dtype, np.dtype):
            dtype = np.result_type(dtype)
        return self.declare(e, dtype, self._applied(e, dtype))

    def _variable(self, name: str) -> str:
        if name in self.loops.sizes:
            return self.param(("size", name), self.loops.sizes[name])
        if name in self.loops.numbers:
            return self.number(name)
        return self.names[name][0] if name in self.names else name

    def _applied(self, e: Expr, dtype: Dtype) -> str:
        if e.fn == "cast":
            return self.operand(e.args[0], dtype)
        if e.fn == "select":
            condition, a, b = e.args
            return self.dialect.select(
                self.operand(condition, BOOL),
                self.operand(a, dtype),
                self.operand(b, dtype),
            )
        takes = operand_dtype(e.fn, [self.dtype(a) for a in e.args], dtype)
        fn, takes = name_of(e.fn, takes), computed(takes)
        return self.applied(fn, [self.operand(a, takes) for a in e.args], takes)

    def applied(self, fn: str, operands: list[str], dtype: Dtype) -> str:
        """A scalar function of operands of one dtype."""
        text = template(fn, dtype, len(operands)).format(*operands)
        return self.library.resolved(text, dtype)

    # -- elements ----------------------------------------------------------------------

    def array(self, array: Array, written: bool) -> str:
        entry = self.arrays.setdefault(array.name, [array, False])
        entry[1] = entry[1] or written
        return array.name

    def offset(self, e: Expr) -> str:
        access = self.loops.accesses[e.name]
        text = self._linear(e.name, access)
        others = e.args[len(e.args) - len(access.others) :]
        for k, (other, n) in enumerate(zip(others, access.others, strict=True)):
            step = self.param(("other", e.name, k), n)
            text += f" + {self.operand(other, self.index)} * {step}"
        return text

    def _linear(self, name: str, access: Access) -> str:
        found = self.find(("offset", name))
        if found is None:
            code = self.param(("constant", name), access.constant)
            if access.beside:
                base = self._linear(access.beside, self.loops.accesses[access.beside])
                return self.declare(("offset", name), self.index, f"{base} + {code}")
            for v in access.coefficients:
                step = self._stride(name, access, v)
                code += f" + {v} * {step}" if step else f" + {v}"
            found = self.declare(("offset", name), self.index, code)
        return found

    def _stride(self, name: str, access: Access, v: str) -> str:
        """The stride of a variable, or nothing where it is 1 in the fastest loop."""
        n = access.coefficients[v]
        if n == 1 and v in self.fast:
            return ""
        return self.param(("stride", name, self.loops.twins.get(v, v)), n)

    def _load(self, e: Expr) -> str:
        array = self.loops.accesses[e.name].array
        at = self.offset(e)
        code = self.dialect.load(self.array(array, False), at, array.dtype)
        return self.declare(e, array.dtype, code)

    def _guarded(self, e: Expr) -> str:
        array = self.loops.accesses[e.name].array
        dtype = computed(array.dtype)
        at = self.offset(e)
        where = self.operand(e.args[0], BOOL)
        self.temps += 1
        name = f"t{self.temps}"
        self.line(self.dialect.variable(dtype, name, self.operand(e.args[1], dtype)))
        code = self.dialect.load(self.array(array, False), at, array.dtype)
        self.line(f"if ({where}) {{ {name} = {code}; }}")
        self.scopes[-1][e] = name
        return name
