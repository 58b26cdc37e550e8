"""Rows that count: quantiles of the Poisson and of the binomial distribution.

A count is the least integer below or at which a share `u` of the distribution lies; of
uniform shares they are random counts. They carry no derivative.

The inverse of the continuous extension gives a candidate, and the distribution function
decides between it and the integer below, as in SciPy's discrete distributions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import scipy.special

from .._aval import Aval
from ..errors import DTypeError
from ._batching import aligned
from ._forms_random import quantile
from ._op import Call, Op, Write, broadcast_shapes, register

Array = np.ndarray[Any, Any]
_INT64: Final = np.dtype(np.int64)


def _least(u: Array, guess: Array, below: Callable[[Array], Array]) -> Array:
    """The least integer k with `below(k)` >= u, near `guess`."""
    k = np.ceil(np.nan_to_num(guess, nan=0.0, posinf=0.0))
    k = np.maximum(k, 0.0)
    lower = np.maximum(k - 1.0, 0.0)
    found: Array = np.where(below(lower) >= u, lower, k)
    return found


def _poisson(u: Array, mean: Array) -> Array:
    found = _least(
        u, scipy.special.pdtrik(u, mean), lambda k: scipy.special.pdtr(k, mean)
    )
    return np.where(mean > 0.0, found, 0.0)


def _binomial(u: Array, n: Array, p: Array) -> Array:
    whole = n.astype(_INT64)  # SciPy's function of counts takes integers
    found = _least(
        u, scipy.special.bdtrik(u, n, p), lambda k: scipy.special.bdtr(k, whole, p)
    )
    return np.where(p >= 1.0, n, np.where(p > 0.0, np.minimum(found, n), 0.0))


def _scratch(call: Call) -> int:
    """Operands in double precision, and what the steps of `_least` compute."""
    return 80 * call.out.size + 9 * sum(x.size for x in call.ins) + 64


def _counting(name: str, args: tuple[str, ...], fn: Callable[..., Array]) -> None:
    def infer(*xs: Aval) -> Any:
        for arg, x in zip(args, xs, strict=True):
            if x.dtype.kind not in "fiu":
                raise DTypeError(
                    operation=name,
                    argument=arg,
                    found=f"dtype {x.dtype}",
                    fix="pass real numbers",
                )
        return broadcast_shapes(name, *[x.shape for x in xs]), _INT64

    def kernel(call: Call, outs: list[Array], ins: list[Array]) -> None:
        outs[0][...] = fn(*[x.astype(np.float64) for x in ins])

    register(
        Op(
            name,
            args,
            infer=infer,
            kernel=Write(kernel, _scratch, form=quantile(name)),
            batch=aligned,
        )
    )


_counting("poisson_quantile", ("u", "mean"), _poisson)
_counting("binomial_quantile", ("u", "n", "p"), _binomial)
