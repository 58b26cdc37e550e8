"""Nested derivatives: any order, any mix of tapes and transforms, no confusion."""

from __future__ import annotations

from collections.abc import Callable
from math import cos, exp, sin
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta

Fn = Callable[..., Any]


def number(x: Any) -> float:
    if isinstance(x, ta.TensorView):
        with x:
            return float(x.numpy())
    with x.value() as guard:
        return float(guard.numpy())


def forward(f: Fn) -> Fn:
    """The derivative of a scalar function in forward mode."""
    return lambda x: ta.jvp(f, (x,), (np.ones(()),))[1]


def by_vjp(f: Fn) -> Fn:
    def derivative(x: Any) -> Any:
        _, pull = ta.vjp(f, x)
        return pull(np.ones(()))[0]

    return derivative


def by_tape(f: Fn) -> Fn:
    def derivative(x: Any) -> Any:
        with ta.Tape() as tape:
            w = ta.variable(x) if not isinstance(x, ta.EagerTensor) else x
            y = f(w)
        return tape.backward(y)[w]

    return derivative


WAYS = {"grad": ta.grad, "jvp": forward, "vjp": by_vjp}


@pytest.mark.parametrize("first", WAYS)
@pytest.mark.parametrize("second", WAYS)
@pytest.mark.parametrize("third", WAYS)
def test_third_derivatives_agree_however_they_are_mixed(
    first: str, second: str, third: str
) -> None:
    def f(x: Any) -> Any:
        return ta.exp(x) * ta.sin(x)

    d3 = WAYS[third](WAYS[second](WAYS[first](f)))
    x = 0.7
    assert number(d3(np.array(x))) == pytest.approx(2 * exp(x) * (cos(x) - sin(x)))


@pytest.mark.parametrize("outer", WAYS)
@pytest.mark.parametrize("inner", WAYS)
def test_perturbations_of_two_levels_are_never_confused(outer: str, inner: str) -> None:
    # d/dx [x * d/dy (x + y)] = 1, and d/dx [x * d/dy (x * y)] = 2 x.
    def f(x: Any) -> Any:
        return x * WAYS[inner](lambda y: x + y)(np.array(2.0))

    def g(x: Any) -> Any:
        return x * WAYS[inner](lambda y: x * y)(np.array(2.0))

    assert number(WAYS[outer](f)(np.array(3.0))) == 1.0
    assert number(WAYS[outer](g)(np.array(3.0))) == 6.0


def test_tapes_nest_and_a_gradient_is_tracked_by_the_tape_outside() -> None:
    x = ta.variable(np.array(2.0))
    with ta.Tape() as outer:
        with ta.Tape() as inner:
            y = x * x * x
        slope = inner.backward(y)[x]
        assert number(slope) == 12.0
        assert slope.is_tracked
        loss = slope * x  # 3 x^3
    grads = outer.backward(loss)
    assert number(grads.grad(x)) == 36.0


def test_three_tapes_deep() -> None:
    x = ta.variable(np.array(0.3))
    with ta.Tape() as t1:
        with ta.Tape() as t2:
            with ta.Tape() as t3:
                y = ta.sin(x)
            first = t3.backward(y)[x]
        second = t2.backward(first)[x]
    third = t1.backward(second)[x]
    assert number(third) == pytest.approx(-cos(0.3))
    assert not third.is_tracked


def test_a_transform_inside_a_tape_is_tracked_by_it() -> None:
    w = ta.variable(np.array(3.0))
    with ta.Tape() as tape:
        loss = ta.grad(lambda x: x * x * w)(w)  # 2 x w at x = w, plus nothing from w
    # With x = w the inner derivative is 2 x w; its derivative in w is 2 w + 2 x.
    assert number(loss) == 18.0
    assert number(tape.backward(loss).grad(w)) == 12.0


def test_an_inner_tape_sees_values_of_the_outer_as_constants() -> None:
    a, b = ta.variable(np.array(2.0)), ta.variable(np.array(5.0))
    with ta.Tape() as outer:
        c = a * a
        with ta.Tape() as inner:
            y = c * b
        grads = inner.backward(y)
        assert grads.grad(a) is None
        db = grads[b]  # c
        loss = db * db  # a^4
    assert number(outer.backward(loss).grad(a)) == 32.0


def test_hvp_agrees_with_the_hessian_written_out() -> None:
    # f = sum(x^3) + x0 x1: Hessian diag(6 x) + offdiagonal ones.
    def f(x: Any) -> Any:
        first = ta.sum(x * np.array([1.0, 0.0]))
        second = ta.sum(x * np.array([0.0, 1.0]))
        return ta.sum(x * x * x) + first * second

    x, v = np.array([1.0, 2.0]), np.array([0.5, -1.0])
    expected = np.array([[6.0, 1.0], [1.0, 12.0]]) @ v
    found = ta.hvp(f, (x,), (v,))
    found = found[1] if isinstance(found, tuple) and len(found) == 2 else found
    found = found[0] if isinstance(found, tuple) else found
    assert np.asarray(found) == pytest.approx(expected)
    _, pushed = ta.jvp(ta.grad(f), (x,), (v,))
    assert np.asarray(pushed) == pytest.approx(expected)
    pulled = ta.grad(lambda t: ta.sum(ta.grad(f)(t) * v))(x)
    assert np.asarray(pulled) == pytest.approx(expected)


def test_stop_gradient_stops_every_level() -> None:
    def f(x: Any) -> Any:
        return ta.stop_gradient(x * x) * x

    assert number(ta.grad(f)(np.array(3.0))) == 9.0
    assert number(ta.grad(ta.grad(f))(np.array(3.0))) == 0.0
    assert number(forward(ta.grad(f))(np.array(3.0))) == 0.0


def test_second_derivatives_go_through_a_checkpoint() -> None:
    def f(x: Any) -> Any:
        return ta.checkpoint(lambda t: ta.exp(ta.sin(t) * t))(x)

    def plain(x: Any) -> Any:
        return ta.exp(ta.sin(x) * x)

    x = np.array(0.6)
    for way in WAYS.values():
        for other in WAYS.values():
            assert number(way(other(f))(x)) == pytest.approx(
                number(ta.grad(ta.grad(plain))(x))
            )


def test_a_gradient_that_does_not_depend_on_a_leaf_has_none_there() -> None:
    a, b = ta.variable(np.array(1.0)), ta.variable(np.array(1.0))
    with ta.Tape() as outer:
        with ta.Tape() as inner:
            y = a * b
        da = inner.backward(y)[a]  # b
    grads = outer.backward(da)
    assert number(grads.grad(b)) == 1.0
    assert grads.grad(a) is None


def test_nested_passes_leave_nothing_behind() -> None:
    x = ta.variable(np.array(0.3))
    with ta.ledger() as led:
        for _ in range(3):
            with ta.Tape() as outer:
                with ta.Tape() as inner:
                    y = ta.sin(x) * x
                slope = inner.backward(y, retain=True)[x]
                del y
            grads = outer.backward(slope)
            assert len(grads) == 1
            del slope, grads, inner, outer
            assert led.live == 0
    assert isinstance(x.into_value(), ta.Tensor)


@pytest.mark.parametrize("transform", [ta.grad, ta.value_and_grad])
def test_a_function_that_raises_leaves_its_arguments_unique(transform: Any) -> None:
    w = ta.variable(np.array([1.0, 2.0]))

    def f(x: Any) -> Any:
        y = ta.sin(x) * x
        raise LookupError(y.shape)

    with pytest.raises(LookupError):
        transform(f)(w)
    assert isinstance(w.into_value(), ta.Tensor)


def test_complex_second_derivatives_of_a_real_function() -> None:
    # f(z) = |z|^4 has gradient 4 |z|^2 z; along v the change of that is
    # 4 (2 Re(conj(z) v) z + |z|^2 v).
    def f(z: Any) -> Any:
        return ta.sum(ta.abs(z) ** 4)

    z, v = np.array([1.0 + 2.0j]), np.array([0.5 - 1.0j])
    expected = 4 * (2 * np.real(np.conj(z) * v) * z + np.abs(z) ** 2 * v)
    _, found = ta.jvp(ta.grad(f), (z,), (v,))
    assert np.asarray(found) == pytest.approx(expected)


def with_aux(x: Any) -> Any:
    return ta.sum(x**3), {"twice": 2.0 * x, "said": "so"}


AUXILIARY: dict[str, Fn] = {
    "vjp": lambda x: ta.vjp(with_aux, x, has_aux=True)[2],
    "jvp": lambda x: ta.jvp(with_aux, (x,), (x,), has_aux=True)[2],
    "linearize": lambda x: ta.linearize(with_aux, x, has_aux=True)[2],
}


@pytest.mark.parametrize("name", AUXILIARY)
def test_what_a_transform_gives_beside_its_value_keeps_the_derivatives_outside(
    name: str,
) -> None:
    x = np.array([1.0, 2.0])
    found = AUXILIARY[name](x)
    assert found["said"] == "so"
    assert found["twice"].tolist() == [2.0, 4.0]

    def f(x: Any) -> Any:
        return AUXILIARY[name](x)["twice"]

    assert ta.grad(lambda x: ta.sum(f(x) * x))(x).tolist() == [4.0, 8.0]
    assert ta.jvp(f, (x,), (x,))[1].tolist() == [2.0, 4.0]
    assert ta.vmap(f)(x).tolist() == ta.compile(f)(x).tolist() == [2.0, 4.0]


def test_the_value_and_the_derivative_stay_those_of_the_first_result() -> None:
    x = np.array([1.0, 2.0])
    y, pull, aux = ta.vjp(with_aux, x, has_aux=True)
    assert (y.item(), pull(1.0)[0].tolist()) == (9.0, [3.0, 12.0])
    assert (2.0 * aux["twice"]).tolist() == [4.0, 8.0]  # while `pull` is still there
    y, dy, _ = ta.jvp(with_aux, (x,), (x,), has_aux=True)
    assert (y.item(), dy.item()) == (9.0, 27.0)
    y, push, _ = ta.linearize(with_aux, x, has_aux=True)
    assert (y.item(), push(x).item()) == (9.0, 27.0)
    for run in (
        lambda f: ta.vjp(f, x, has_aux=True),
        lambda f: ta.jvp(f, (x,), (x,), has_aux=True),
        lambda f: ta.linearize(f, x, has_aux=True),
    ):
        with pytest.raises(ta.errors.InvalidArgumentError, match="has_aux"):
            run(ta.sum)
