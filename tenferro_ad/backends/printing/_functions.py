"""What each scalar function is in a kernel, by the dtype of its operands.

Templates have operands as `{0}`, `{1}`; `name$` is a function of the language or of the
library (`_library`), for the dtype at hand. What has no template is a library function
of the same name, with a `c` before it for complex numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from ...ops import Expr, node_dtype, topological
from ._dialects import BOOL, DOUBLE, HALF, Dtype, computed
from ._library import Library

PARTS: Final = ("real", "imag", "abs", "angle")  # real values of complex numbers

COMPARISONS: Final = {
    "equal": "{0} == {1}",
    "not_equal": "!({0} == {1})",  # NaN differs from itself in every language
    "less": "{0} < {1}",
    "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}",
    "greater_equal": "{0} >= {1}",
}
# Their operands are truth values.
LOGICAL: Final = {
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "logical_xor": "{0} != {1}",
    "logical_not": "!{0}",
}
# Indices: small, not negative where it matters.
INDICES: Final = {
    "iadd": "{0} + {1}",
    "imul": "{0} * {1}",
    "idiv": "{0} / {1}",
    "imod": "{0} % {1}",
}
# Functions of 32-bit words that only forms use.
WORDS: Final = ("mulhi", "mod64")
WORD: Final = np.dtype(np.uint32)
_SAME: Final = "{0}"
REAL: Final = {
    **COMPARISONS,
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "neg": "-{0}",
    "square": "{0} * {0}",
    "conj": _SAME,
    "real": _SAME,
    "accumulate": _SAME,
    "clip": "minimum$(maximum$({0}, {1}), {2})",
}
INTEGER: Final = {
    **COMPARISONS,
    "add": "wadd$({0}, {1})",
    "sub": "wsub$({0}, {1})",
    "mul": "wmul$({0}, {1})",
    "neg": "wneg$({0})",
    "square": "wmul$({0}, {0})",
    "conj": _SAME,
    "real": _SAME,
    "floor": _SAME,
    "ceil": _SAME,
    "trunc": _SAME,
    "round": _SAME,
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "bitwise_invert": "~{0}",
    "isnan": "false",
    "isinf": "false",
    "isfinite": "true",
    "clip": "minimum$(maximum$({0}, {1}), {2})",
}
UNSIGNED: Final = {"abs": _SAME, "signbit": "false", "relu": _SAME}
BOOLEAN: Final = {
    **LOGICAL,
    "equal": "{0} == {1}",
    "not_equal": "{0} != {1}",
    "less": "!{0} && {1}",
    "less_equal": "!{0} || {1}",
    "greater": "{0} && !{1}",
    "greater_equal": "{0} || !{1}",
    "add": "{0} || {1}",
    "mul": "{0} && {1}",
    "maximum": "{0} || {1}",
    "minimum": "{0} && {1}",
    "bitwise_and": "{0} && {1}",
    "bitwise_or": "{0} || {1}",
    "bitwise_xor": "{0} != {1}",
    "bitwise_invert": "!{0}",
    "square": _SAME,
    "abs": _SAME,
    "conj": _SAME,
    "real": _SAME,
    "isnan": "false",
    "isinf": "false",
    "isfinite": "true",
    "signbit": "false",
}
COMPLEX: Final = {
    "real": "{0}.x",
    "imag": "{0}.y",
    "abs": "hypot$({0}.x, {0}.y)",
    "angle": "atan2$({0}.y, {0}.x)",
    "square": "cmul$({0}, {0})",
    "equal": "{0}.x == {1}.x && {0}.y == {1}.y",
    "not_equal": "!({0}.x == {1}.x && {0}.y == {1}.y)",
    "isnan": "isnan$({0}.x) || isnan$({0}.y)",
    "isinf": "isinf$({0}.x) || isinf$({0}.y)",
    "isfinite": "isfinite$({0}.x) && isfinite$({0}.y)",
    "accumulate": _SAME,
}


def template(fn: str, operands: Dtype, nargs: int) -> str:
    """The template of a scalar function.

    Args:
        operands: the dtype that operands are converted to.
    """
    if fn in INDICES:
        return INDICES[fn]
    if fn in LOGICAL:
        return LOGICAL[fn]
    if operands.kind == "c":
        return COMPLEX.get(fn) or _called(f"c{fn}", nargs)
    if fn == "complex":
        return "cx$({0}, {1})"
    if operands == BOOL:
        table = BOOLEAN
    elif operands.kind == "f":
        table = REAL
    else:
        table = INTEGER | (UNSIGNED if operands.kind == "u" else {})
    return table.get(fn) or _called(fn, nargs)


def _called(name: str, nargs: int) -> str:
    return f"{name}$({', '.join(f'{{{k}}}' for k in range(nargs))})"


def operand_dtype(fn: str, operands: Sequence[Any], result: Dtype) -> Dtype:
    """The dtype in which a function takes its operands; Python numbers are weak."""
    if fn in LOGICAL:
        return BOOL
    known = [d for d in operands if isinstance(d, np.dtype)]
    if result == BOOL:
        return np.result_type(*operands) if known else DOUBLE
    if fn in PARTS and known and known[0].kind == "c":
        return known[0]
    if fn == "complex":
        return np.dtype(f"f{result.itemsize // 2}")
    return result


def name_of(fn: str, takes: Dtype) -> str:
    """The function to look up: halves are computed in single precision, whose next
    number is not theirs."""
    return "nexthalf" if fn == "nextafter" and takes == HALF else fn


def missing_function(expr: Expr, dtypes: Mapping[str, Any], library: Library) -> str:
    """The first scalar function of an expression that the library lacks for its
    operands, or nothing. `dtypes` are those of the variables."""
    known: dict[Expr, Any] = {}
    for node in topological(expr):
        if node.fn == "var":
            known[node] = dtypes[node.name]
        elif node.fn == "const":
            known[node] = node.value
        else:
            operands = [known[a] for a in node.args]
            known[node] = node_dtype(node, operands)
            dtype = known[node]
            if node.fn == "select" or not isinstance(dtype, np.dtype):
                continue
            takes = operand_dtype(node.fn, operands, dtype)
            fn, takes = name_of(node.fn, takes), computed(takes)
            if library.missing(template(fn, takes, len(operands)), takes):
                return f"{node.fn} of {takes}"
    return ""
