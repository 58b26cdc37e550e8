"""Scalar functions of expressions as NumPy calls with a positional output.

Most are ufuncs themselves. The others are short functions of the same form; all that
they allocate is masks, and `MASKS` says how many at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
import scipy.special

Array = np.ndarray[Any, Any]


def _select(c: Array, a: Any, b: Any, out: Array) -> None:
    if out is not b:
        np.copyto(out, b)
    np.copyto(out, a, where=c if c.dtype == np.bool_ else c.astype(np.bool_))


# NumPy takes the output of these two by keyword only.
def _maximum(x: Any, y: Any, out: Array) -> None:
    np.maximum(x, y, out=out)


def _minimum(x: Any, y: Any, out: Array) -> None:
    np.minimum(x, y, out=out)


def _clip(x: Any, lo: Any, hi: Any, out: Array) -> None:
    np.maximum(x, lo, out=out)
    np.minimum(out, hi, out=out)


def _round(x: Array, out: Array) -> None:
    if x.dtype.kind in "biu":
        np.copyto(out, x)
    else:
        np.rint(x, out)


def _real(x: Array, out: Array) -> None:
    np.copyto(out, x.real)


def _imag(x: Array, out: Array) -> None:
    np.copyto(out, x.imag)


def _angle(x: Array, out: Array) -> None:
    if x.dtype.kind == "c":
        np.arctan2(x.imag, x.real, out)
    else:  # the imaginary part of real numbers would be an array of zeros
        np.arctan2(out.dtype.type(0), x, out)


def _complex(x: Any, y: Any, out: Array) -> None:
    np.copyto(out.real, x)
    np.copyto(out.imag, y)


def _relu(x: Array, out: Array) -> None:
    np.maximum(x, x.dtype.type(0), out=out)


def _softplus(x: Array, out: Array) -> None:
    np.logaddexp(out.dtype.type(0), x, out)


def _rsqrt(x: Array, out: Array) -> None:
    np.sqrt(x, out, dtype=out.dtype)
    np.reciprocal(out, out)


def _zeta(x: Any, y: Any, out: Array) -> None:
    # SciPy's is no ufunc: it would take single precision for small integers.
    if all(np.asarray(a).dtype.kind in "biu" for a in (x, y)):
        np.copyto(out, x)
        x = out
    scipy.special.zeta(x, y, out)


def _szmul(a: Any, b: Any, out: Array) -> None:
    np.multiply(a, b, out)
    np.copyto(out, 0, where=np.equal(a, 0))
    np.copyto(out, 0, where=np.equal(b, 0))


def _szfactor(a: Any, b: Any, out: Array) -> None:
    np.copyto(out, b)
    np.copyto(out, 0, where=np.equal(a, 0) & ~np.isfinite(b))


def _szgate(a: Any, b: Any, c: Any, out: Array) -> None:
    np.copyto(out, c)
    np.copyto(out, 0, where=np.equal(a, 0) & ~np.isfinite(b))


# Masks, of one byte for each element, that a function has at a time.
MASKS: Final[dict[str, int]] = {"szmul": 1, "szfactor": 3, "szgate": 3, "select": 1}

# name -> (function with positional output, whether the output may alias an operand)
FUNCTIONS: Final[dict[str, tuple[Callable[..., Any], bool]]] = {
    **{
        ours: (getattr(np, theirs), True)
        for ours, theirs in {
            "add": "add",
            "sub": "subtract",
            "mul": "multiply",
            "div": "true_divide",
            "neg": "negative",
            "reciprocal": "reciprocal",
            "square": "square",
            "pow": "power",
            "floor_divide": "floor_divide",
            "remainder": "remainder",
            "log": "log",
            "exp": "exp",
            "expm1": "expm1",
            "exp2": "exp2",
            "log1p": "log1p",
            "log2": "log2",
            "log10": "log10",
            "sqrt": "sqrt",
            "cbrt": "cbrt",
            "logaddexp": "logaddexp",
            "sin": "sin",
            "cos": "cos",
            "tan": "tan",
            "asin": "arcsin",
            "acos": "arccos",
            "atan": "arctan",
            "atan2": "arctan2",
            "sinh": "sinh",
            "cosh": "cosh",
            "tanh": "tanh",
            "asinh": "arcsinh",
            "acosh": "arccosh",
            "atanh": "arctanh",
            "hypot": "hypot",
            "conj": "conjugate",
            "abs": "absolute",
            "sign": "sign",
            "equal": "equal",
            "not_equal": "not_equal",
            "less": "less",
            "less_equal": "less_equal",
            "greater": "greater",
            "greater_equal": "greater_equal",
            "logical_and": "logical_and",
            "logical_or": "logical_or",
            "logical_xor": "logical_xor",
            "logical_not": "logical_not",
            "isfinite": "isfinite",
            "isinf": "isinf",
            "isnan": "isnan",
            "signbit": "signbit",
            "floor": "floor",
            "ceil": "ceil",
            "trunc": "trunc",
            "bitwise_and": "bitwise_and",
            "bitwise_or": "bitwise_or",
            "bitwise_xor": "bitwise_xor",
            "left_shift": "left_shift",
            "right_shift": "right_shift",
            "bitwise_invert": "invert",
            "copysign": "copysign",
            "nextafter": "nextafter",
        }.items()
    },
    "round": (_round, True),
    "erf": (scipy.special.erf, True),
    "erfc": (scipy.special.erfc, True),
    "sigmoid": (scipy.special.expit, True),
    **{
        name: (getattr(scipy.special, name), True)
        for name in (
            "erfinv erfcinv erfcx dawsn ndtr ndtri log_ndtr digamma gammaln gamma "
            "betaln gammainc gammaincc gammaincinv betainc betaincinv jv iv ive j0 j1 "
            "i0 i1 i0e i1e xlogy xlog1py entr rel_entr kl_div logit log_expit"
        ).split()
    },
    "zeta": (_zeta, True),
    "rsqrt": (_rsqrt, True),
    "maximum": (_maximum, True),
    "minimum": (_minimum, True),
    "relu": (_relu, True),
    "softplus": (_softplus, True),
    "select": (_select, False),
    "clip": (_clip, False),
    "real": (_real, False),
    "imag": (_imag, False),
    "angle": (_angle, False),
    "complex": (_complex, False),
    "szmul": (_szmul, False),
    "szfactor": (_szfactor, False),
    "szgate": (_szgate, False),
}


def on_integers(fn: Any, dtypes: Sequence[Any], result: Any) -> Any:
    """Let a NumPy function of integers compute in the dtype of its result: by itself it
    would take half precision for small integers, and `reciprocal` would truncate."""
    known = [d for d in dtypes if isinstance(d, np.dtype)]
    if (
        isinstance(fn, np.ufunc)
        and isinstance(result, np.dtype)
        and result.kind in "fc"
        and known
        and all(d.kind in "biu" for d in known)
    ):
        return partial(fn, dtype=result)
    return fn
