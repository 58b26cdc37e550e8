"""`argnums` and `donate_argnums` are integers, or a sequence of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors

CALLS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "grad": ("argnums", lambda n, x: ta.grad(ta.sum, n)(x)),
    "value_and_grad": ("argnums", lambda n, x: ta.value_and_grad(ta.sum, n)(x)),
    "jacrev": ("argnums", lambda n, x: ta.jacrev(ta.sin, n)(x)),
    "jacfwd": ("argnums", lambda n, x: ta.jacfwd(ta.sin, n)(x)),
    "compile": ("donate_argnums", lambda n, x: ta.compile(ta.sin, donate_argnums=n)),
}


@pytest.mark.parametrize("wrong", ["a", 0.5, (0, "a"), None, True])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_position_is_refused_by_name(call: str, wrong: Any) -> None:
    argument, make = CALLS[call]
    with pytest.raises(errors.DTypeError, match=f"`{call}` refused `{argument}`"):
        make(wrong, ta.asarray([1.0, 2.0]))


def test_a_position_may_be_a_numpy_integer() -> None:
    position: Any = np.int64(0)
    x = ta.asarray([1.0, 2.0])
    assert ta.grad(ta.sum, position)(x).tolist() == [1.0, 1.0]
    assert ta.jacfwd(ta.square, position)(x).tolist() == [[2.0, 0.0], [0.0, 4.0]]
    twice = ta.compile(lambda x: x * 2.0, donate_argnums=position)
    assert twice(ta.asarray([1.0, 2.0])).tolist() == [2.0, 4.0]
