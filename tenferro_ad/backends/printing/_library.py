"""The library of scalar functions: one text for all languages.

Functions are written in a small common dialect (WGSL without its special forms), for
any real type: `T` is the type at hand, `C` its pair, `B`, `I`, `U` are bool and 32-bit
integers, `F(0.5)` and `N(3)` literals of `T`, `name$` another function for the same
type. A kernel's text holds the functions that it calls, and those that they call.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from ._dialects import (
    DOUBLE,
    SINGLE,
    Dialect,
    Dtype,
    functions,
    suffix,
    type_name,
)
from ._library_complex import COMPLEX
from ._library_integers import INTEGERS, SIGNED, UNSIGNED, WRAPPING
from ._library_inverse import INVERSE
from ._library_real import REAL
from ._library_special import SPECIAL

_NAME: Final = re.compile(r"\b([a-z]\w*)\$")
_LITERAL: Final = re.compile(r"\b([FN])\(([^()]*)\)")
_TYPE: Final = re.compile(r"\b([TCBIU])\b")


_REAL: Final = (
    functions(REAL) | functions(SPECIAL) | functions(COMPLEX) | functions(INVERSE)
)
_INTEGERS: Final = functions(INTEGERS)
_SIGNED: Final = _INTEGERS | functions(SIGNED)
_UNSIGNED: Final = _INTEGERS | functions(UNSIGNED)
_WRAPPING: Final = functions(WRAPPING)
# `F(EPS)`: the distance of 1 to the next number; sums of two squares whose roots lie
# between `F(LEAST)` and `F(HUGE)` keep their digits once a root is taken.
_LIMITS: Final[dict[str, Callable[[Any], float]]] = {
    "EPS": lambda limits: float(limits.eps),
    "HUGE": lambda limits: float(limits.max) / 8,
    "LEAST": lambda limits: float(limits.tiny) / float(limits.eps),
}


class Library:
    """The functions that one kernel uses."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.texts: dict[str, str] = {}

    def resolved(self, text: str, dtype: Dtype) -> str:
        """A text with the names of functions for a dtype; they join the library."""
        if "$" not in text:
            return text
        if dtype.kind == "c":
            dtype = DOUBLE if dtype.itemsize == 16 else SINGLE
        return _NAME.sub(lambda m: self._named(m[1], dtype), text)

    def missing(self, text: str, dtype: Dtype) -> str | None:
        """The name of a function in a text that does not exist for a dtype."""
        if dtype.kind == "c":
            dtype = DOUBLE if dtype.itemsize == 16 else SINGLE
        for name in _NAME.findall(text):
            is_known = name in self.dialect.macros or (
                dtype.kind == "f" and name in self.dialect.builtins
            )
            if not is_known and self._source(name, dtype) is None:
                return str(name)
        return None

    def _named(self, name: str, dtype: Dtype) -> str:
        if dtype.kind == "f" and name in self.dialect.builtins:
            return self.dialect.builtins[name]
        made = f"{name}_{suffix(dtype)}"
        if name in self.dialect.macros or made in self.texts:
            return made
        self.texts[made] = ""  # reserves the name; those that it calls come first
        source = self._source(name, dtype)
        assert source is not None, name
        text = self._written(source, dtype)
        del self.texts[made]
        self.texts[made] = self.dialect.function(text)
        return made

    def _source(self, name: str, dtype: Dtype) -> str | None:
        own = self.dialect.own_functions(dtype)
        if name in own:
            return own[name]
        if dtype.kind == "f":
            return _REAL.get(name)
        if name in _WRAPPING:
            return self.dialect.wrapping(_WRAPPING[name], dtype)
        return (_SIGNED if dtype.kind == "i" else _UNSIGNED).get(name)

    def _written(self, text: str, dtype: Dtype) -> str:
        name = type_name(dtype)
        pair = {"f32": "cf", "f64": "cd"}.get(name, "")
        types = {"T": name, "C": pair, "B": "bool", "I": "i32", "U": "u32"}

        def literal(m: re.Match[str]) -> str:
            if m[2] == "BITS":
                return self.dialect.literal(8 * dtype.itemsize, dtype)
            if m[2] in _LIMITS:
                return self.dialect.literal(_LIMITS[m[2]](np.finfo(dtype)), dtype)
            value = float(m[2]) if m[1] == "F" else int(m[2], 0)
            return self.dialect.literal(value, dtype)

        text = self.resolved(text, dtype)
        text = _LITERAL.sub(literal, text)
        return _TYPE.sub(lambda m: types[m[1]], text)

    def text(self) -> str:
        return "".join(self.texts.values())
