"""Derivatives of elementwise rows beside operands that are integers or booleans.

Integer arithmetic wraps around, and booleans have no minus: neither may show in a
derivative, which is the one of the same numbers as floats.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine._dispatch import HANDLES
from tenferro_ad.errors import TenferroError
from tenferro_ad.ops import OPS, Elementwise

OTHERS: dict[str, Any] = {
    "bool": np.array([True, False, True]),
    "int8": np.array([100, 2, -120], np.int8),
    "uint8": np.array([200, 2, 0], np.uint8),
    "int64": np.array([2**40, 3, -(2**62)]),
    "uint64": np.array([2**63, 3, 2**64 - 1], np.uint64),
}
FLOATS = np.array([0.5, 0.25, 0.75])
ROWS = [
    (name, at)
    for name, op in OPS.items()
    if isinstance(op.kernel, Elementwise) and len(op.args) == 2 and not op.params
    for at in range(2)
]


def derivatives(f: Callable[[Any], Any], x: Any) -> list[Any]:
    first = ta.grad(f)
    return [
        first(x),
        ta.compile(first)(x),
        ta.jvp(f, (x,), (ta.ones(3, dtype=x.dtype),))[1],
        ta.grad(lambda x: ta.sum(first(x)))(x),
    ]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize(("name", "at"), ROWS)
def test_derivatives_are_those_of_floats(name: str, at: int, other: str) -> None:
    x, y = ta.asarray(FLOATS), ta.asarray(OTHERS[other])

    def of(value: Any) -> Callable[[Any], Any]:
        return lambda x: ta.sum(HANDLES[OPS[name]](*((x, value), (value, x))[at]))

    try:
        of(y)(x)
    except TenferroError:
        return  # the row refuses such operands, which is another test
    try:
        found = derivatives(of(y), x)
    except TenferroError as refusal:
        with pytest.raises(type(refusal)):
            derivatives(of(ta.astype(y, ta.float64)), x)
        return
    wanted = derivatives(of(ta.astype(y, ta.float64)), x)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float32", "complex64"])
@pytest.mark.parametrize("other", ["bool", "int8"])
def test_compiled_gradients_have_the_dtype_of_their_value(
    dtype: str, other: str
) -> None:
    x, y = ta.ones(3, dtype=dtype), ta.asarray(OTHERS[other][:1])
    small = ta.asarray(np.array([2], np.int8))
    for f in (lambda x: x / y, lambda x: x**small, lambda x: x * y):
        gradient = ta.grad(lambda x, f=f: ta.sum(ta.real(f(x))))
        assert gradient(x).dtype == ta.compile(gradient)(x).dtype == x.dtype
