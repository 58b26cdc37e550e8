"""Numbers and arrays that bodies give: weakly typed, and on the device of the rest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends.fake import FakeProvider

ROWS = np.arange(6.0, dtype=np.float32).reshape(2, 3)
FIRST = np.ones(3, np.float32)
Functions = dict[str, Callable[[Any, Any, Any], Any]]

# Each takes the library's loops, the array of the carry, and rows.
LOOPS: Functions = {
    "a number as the carry": lambda L, c, xs: L.scan(
        lambda c, t: (0.5, t * c), c[0], xs
    ),
    "a number to stack": lambda L, c, xs: L.scan(lambda c, t: (c + t, 2.0), c, xs),
    "an array as the carry": lambda L, c, xs: L.scan(lambda c, t: (FIRST, c), c, xs),
    "an array to stack": lambda L, c, xs: L.scan(lambda c, t: (c * t, FIRST), c, xs),
    "rows from outside": lambda L, c, xs: L.scan(lambda c, t: (c + t, c), c, ROWS),
    "a start from outside": lambda L, c, xs: L.scan(lambda c, t: (c + t, c), FIRST, xs),
    "fori": lambda L, c, xs: L.fori_loop(0, 3, lambda i, c: 7.0, c[0]),
    "while": lambda L, c, xs: L.while_loop(
        lambda s: s[0] < 9.0, lambda s: (10.0, s[0]), (c[0], c[1])
    ),
    "cond": lambda L, c, xs: L.cond(c[0] > 0.0, lambda c: 3.0, lambda c: 4.0, c),
    "switch": lambda L, c, xs: L.switch(
        1, [lambda c: (c, 3.0), lambda c: (c * 2.0, 4.0)], c
    ),
}


BESIDE_NOTHING = {"a number to stack", "cond", "switch"}


def outputs(found: Any) -> list[Any]:
    return (
        [y for part in found for y in outputs(part)]
        if type(found) is tuple
        else [found]
    )


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("name", LOOPS)
def test_numbers_and_arrays_of_bodies_are_those_of_jax(name: str, traced: bool) -> None:
    fn = LOOPS[name]

    def ours(c: Any, xs: Any) -> Any:
        return fn(ta, c, xs)

    with jax.enable_x64(False):  # other tests may have enabled it
        wanted = outputs(fn(jax.lax, jnp.asarray(FIRST), jnp.asarray(ROWS)))
    run = ta.compile(ours) if traced else ours
    for device in ("cpu", FakeProvider(auto=True)):
        c, xs = (ta.asarray(a, device=device) for a in (FIRST, ROWS))
        found = outputs(run(c, xs))
        for y, expected in zip(found, wanted, strict=True):
            assert y.device is c.device
            assert np.allclose(y.numpy(), expected)
            free = expected.weak_type and name in BESIDE_NOTHING
            assert y.dtype == (np.float64 if free else expected.dtype)


def test_a_number_of_another_kind_does_not_go_round() -> None:
    with pytest.raises(ta.errors.DTypeError, match=r"float64\[\] for `init`"):
        ta.scan(lambda c, t: (1.5, t), ta.asarray(1), ta.asarray(ROWS))
    total, _ = ta.scan(lambda c, t: (1, t), 0.5, ta.asarray(ROWS))
    assert total.dtype == np.float64  # a whole number fits into a carry of reals
    bounded = ta.while_loop(
        lambda s: s < 3.0, lambda s: 5, ta.asarray(np.float32(1.0)), max_steps=2
    )
    assert bounded.dtype == np.float32
    assert bounded.item() == 5.0


@pytest.mark.parametrize("end", ["lower", "upper"])
def test_one_bound_of_a_counted_loop_may_be_a_number(end: str) -> None:
    """The other one says on which device they are compared."""

    def fn(n: Any, x: Any) -> Any:
        bounds = (n, 5) if end == "lower" else (1, n)
        return ta.fori_loop(*bounds, lambda i, c: c * 2.0, x)

    for device in ("cpu", FakeProvider(auto=True)):
        n = ta.asarray(3, device=device)
        x = ta.asarray(FIRST, device=device)
        for run in (fn, ta.compile(fn)):
            assert run(n, x).numpy().tolist() == [4.0, 4.0, 4.0]


DECIDED: dict[str, Callable[[Any], Any]] = {
    "test": lambda x: ta.while_loop(lambda s: False, lambda s: s * 2.0, x),
    "array": lambda x: ta.while_loop(lambda s: np.asarray(False), ta.sin, x),
    "bounded": lambda x: ta.while_loop(lambda s: False, lambda s: s * 2.0, x, 3),
    "cond": lambda x: ta.cond(np.asarray(False), ta.sin, lambda x: x, x),
    "switch": lambda x: ta.switch(np.asarray(1), [ta.sin, lambda x: x], x),
    "bounds": lambda x: ta.fori_loop(np.asarray(2), np.int64(2), lambda i, c: c * 2, x),
}


@pytest.mark.parametrize("name", DECIDED)
def test_what_decides_may_come_from_outside(name: str) -> None:
    fn = DECIDED[name]
    for device in ("cpu", FakeProvider(auto=True)):
        x = ta.asarray(FIRST, device=device)
        for run in (fn, ta.compile(fn)):
            assert run(x).device is x.device
            assert np.array_equal(run(x).numpy(), FIRST)
