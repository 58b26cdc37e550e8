"""What transforms give out: every handle counts, so a move takes no value away."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import ExtractFailedError, NotUniqueError

ONES = np.ones(3)

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda x: x,
    "shifted": lambda x: x + 1.0,
    "twice": lambda x: (ta.sin(x),) * 2,
    "several": lambda x: (x, x * 2.0, x + 2.0),
    "branch": lambda x: ta.cond(True, lambda y: y, lambda y: 2.0 * y, x),
    "loop": lambda x: ta.scan(lambda c, _: (c, c), x, None, 2)[0],
    "region": ta.checkpoint(lambda x: (x, x + 1.0)),
}


def jvp(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
    return ta.jvp(f, (x,), (t,))


def recorded_jvp(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
    with ta.Tape():
        return jvp(f, x, t)


def compiled(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
    return ta.compile(lambda x: (f(x), t, t))(x)


def traced(f: Callable[[Any], Any], x: Any, t: Any) -> Any:
    program = ta.trace(lambda x: (f(x), t), ta.Spec((3,)))
    with ta.Tape():
        recorded = program(x)
    return recorded, program(x)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", [jvp, recorded_jvp, compiled, traced])
def test_moving_one_value_out_takes_no_other_one_away(
    transform: Callable[..., Any], name: str
) -> None:
    wanted: list[Any] = []
    moved = 0
    while True:
        x, t = ta.asarray(ONES), ta.asarray(ONES)
        held = [x, t, *optree.tree_leaves(transform(FUNCTIONS[name], x, t))]
        wanted = wanted or [y.tolist() for y in held]
        y = held.pop(moved)
        try:
            y.into_value()
        except (NotUniqueError, ExtractFailedError):
            pass
        del x, t
        others = wanted[:moved] + wanted[moved + 1 :]
        for z, w in zip(held, others, strict=True):
            assert z is y or z.tolist() == w
        moved += 1
        if moved == len(wanted):
            return


def test_a_compiled_function_keeps_the_constants_that_it_returns() -> None:
    kept = ta.asarray(ONES)
    f = ta.compile(lambda x: (x + 1.0, kept))
    for _ in range(3):
        f(ONES)
    with pytest.raises(NotUniqueError):
        kept.into_value()
    assert f(ONES)[1].tolist() == [1.0, 1.0, 1.0]


def test_a_traced_program_keeps_the_constants_that_it_returns() -> None:
    def traced() -> Any:
        kept = ta.asarray(ONES)  # which the program alone holds afterwards
        return ta.trace(lambda x: (x + 1.0, kept), ta.Spec((3,)))

    program = traced()
    with ta.Tape(), pytest.raises(NotUniqueError):
        program(ONES)[1].into_value()
    assert program(ONES)[1].tolist() == [1.0, 1.0, 1.0]


def test_a_plan_keeps_nothing_that_the_function_closes_over() -> None:
    gc.collect()
    gc.disable()
    try:
        w = ta.asarray(ONES)
        ta.plan(lambda x: ta.sum(x * w), ta.Spec((3,)))
        assert w.into_value().shape == (3,)
    finally:
        gc.enable()


def test_a_tangent_is_given_back_when_the_function_raises() -> None:
    t = ta.asarray(ONES)

    def fails(x: Any) -> Any:
        y = x * 2.0
        raise RuntimeError(f"after {y.shape}")

    for tangents in ((t,), (t, np.ones(2))):
        with pytest.raises((RuntimeError, ta.errors.ShapeError)):
            ta.jvp(fails, (ONES,) * len(tangents), tangents)
    assert t.into_value().shape == (3,)


def test_a_function_may_give_nothing() -> None:
    out, pull = ta.vjp(lambda x: None, ONES)
    assert out is None
    assert pull(None)[0].tolist() == [0.0, 0.0, 0.0]
    assert ta.jvp(lambda x: {}, (ONES,), (ONES,)) == ({}, {})


def test_what_is_no_tensor_leaves_a_region_as_it_is() -> None:
    def f(x: Any) -> Any:
        return {"y": x * 2.0, "n": 3, "name": "f"}

    x = ta.variable(ONES)
    ways: list[Any] = [{}, {"budget": 10**6}, {"boundaries": "auto"}]
    for how in ways:
        region = ta.checkpoint(f, **how)
        alone = ta.checkpoint(lambda x: 3, **how)
        assert ta.compile(lambda x, alone=alone: (x, alone(x)))(x)[1] == 3
        with ta.Tape():
            recorded = region(x)
        traced = ta.trace(region, ta.Spec((3,)))(x)
        for found in (recorded, traced, region(x)):
            assert (found["n"], found["name"]) == (3, "f")
            assert found["y"].tolist() == [2.0, 2.0, 2.0]


def test_a_function_may_take_nothing() -> None:
    def f() -> Any:
        return ta.zeros(())

    assert ta.vjp(f)[1](1.0) == ()
    assert ta.grad(f, ())() == ()
    assert ta.jvp(f, (), ())[1].item() == ta.linearize(f)[1]().item() == 0.0


def test_numbers_to_the_power_of_outside_data() -> None:
    assert ta.pow(2.0, np.array([1.0, 2.0])).tolist() == [2.0, 4.0]
    assert ta.pow(2, np.array([1, 2])).tolist() == [2, 4]
    assert ta.pow(2, 3).tolist() == 8
