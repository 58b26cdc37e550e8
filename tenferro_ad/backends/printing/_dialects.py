"""How the three languages spell types, literals, conversions, memory and kernels.

Types have one set of names everywhere: `f32`, `i64`, `cf` (a pair of `f32`), `bool`.
Half precision is a storage format: it is read into and computed as `f32`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import numpy as np

Dtype = np.dtype[Any]

HALF: Final = np.dtype(np.float16)
SINGLE: Final = np.dtype(np.float32)
DOUBLE: Final = np.dtype(np.float64)
BOOL: Final = np.dtype(np.bool_)
_START: Final = re.compile(r"^fn (\w+)\$", re.MULTILINE)

_SHORT: Final = {
    "bool": "bool",
    "float16": "f32",
    "float32": "f32",
    "float64": "f64",
    "complex64": "cf",
    "complex128": "cd",
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}


def computed(dtype: Dtype) -> Dtype:
    """The dtype in which values of a storage dtype are computed."""
    return SINGLE if dtype == HALF else dtype


def type_name(dtype: Dtype) -> str:
    """The name of the type that values of a dtype have in kernels."""
    return _SHORT[dtype.name]


def suffix(dtype: Dtype) -> str:
    """What names of library functions end in."""
    name = type_name(dtype)
    return {"f32": "f", "f64": "d", "cf": "f", "cd": "d"}.get(name, name)


class Dialect:
    """What differs between languages; texts are expressions and statements."""

    name: ClassVar[str]
    group: ClassVar[int] = 64
    tile: ClassVar[tuple[int, int]] = (4, 4)
    unrolls: ClassVar[bool] = False  # whether a block is variables, and no array
    binds_once: ClassVar[bool] = False  # whether arguments are different buffers
    least_blocks: ClassVar[int] = 32  # fewer of them leave the device idle
    # Functions that the language has, by our name of them, for f32 and f64.
    builtins: ClassVar[dict[str, str]] = {}
    # Library names that every program defines.
    macros: ClassVar[frozenset[str]] = frozenset()

    def let(self, dtype: Dtype, name: str, value: str) -> str:
        raise NotImplementedError

    def variable(self, dtype: Dtype, name: str, value: str) -> str:
        raise NotImplementedError

    def block(self, dtype: Dtype, name: str, size: int) -> str:
        """An array of variables."""
        raise NotImplementedError

    def loop(self, name: str, first: str, end: str, step: str) -> str:
        raise NotImplementedError

    def literal(self, value: Any, dtype: Dtype) -> str:
        raise NotImplementedError

    def cast(self, code: str, source: Dtype, target: Dtype) -> str:
        raise NotImplementedError

    def select(self, condition: str, a: str, b: str) -> str:
        raise NotImplementedError

    def load(self, array: str, at: str, dtype: Dtype) -> str:
        raise NotImplementedError

    def store(self, array: str, at: str, value: str, dtype: Dtype) -> str:
        raise NotImplementedError

    def param(self, word: int) -> str:
        raise NotImplementedError

    def number(self, word: int, dtype: Dtype, wide: bool) -> str:
        """A number from parameter words (of 64 bits if `wide`)."""
        raise NotImplementedError

    def kernel(
        self,
        entry: str,
        arrays: Sequence[tuple[str, Dtype, bool]],
        words: int,
        index: Dtype,
        body: Sequence[str],
        library: str,
    ) -> str:
        """The program: `arrays` are (name, dtype, is written); `body` reads `gid`."""
        raise NotImplementedError

    def function(self, text: str) -> str:
        """A library function in this language."""
        raise NotImplementedError

    def own_functions(self, dtype: Dtype) -> Mapping[str, str]:
        """Functions that this language needs in the library's dialect."""
        return {}

    def wrapping(self, text: str, dtype: Dtype) -> str:
        """A function of integers that may overflow, such that it wraps around."""
        return text


def parts_of(value: Any, dtype: Dtype) -> tuple[Any, Any]:
    """Real and imaginary part of a literal, and the dtype of each."""
    return complex(value), np.dtype(f"f{dtype.itemsize // 2}")


def real_text(value: float, dtype: Dtype) -> str:
    """Decimal digits that read back as the same number."""
    if dtype == DOUBLE:
        text = repr(float(value))
    else:
        text = np.format_float_scientific(np.float32(value), trim="0")
    return text if any(c in text for c in ".en") else text + ".0"


def bounded(value: Any, dtype: Dtype) -> Any:
    """Infinities as the limits of integers and booleans."""
    if dtype == BOOL or not isinstance(value, float) or not math.isinf(value):
        return value if dtype != BOOL or not isinstance(value, float) else value > 0
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.max if value > 0 else limits.min)
    return value


def functions(text: str) -> dict[str, str]:
    """The functions of a text of the library, by name."""
    starts = [(m[1], m.start()) for m in _START.finditer(text)]
    ends = [*[at for _, at in starts], len(text)][1:]
    return {
        name: text[at:end].rstrip() + "\n"
        for (name, at), end in zip(starts, ends, strict=True)
    }
