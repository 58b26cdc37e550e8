"""What traces must keep of derivatives: stops, and tracked values from outside.

A function is traced by many: `compile`, `trace`, loops, branches, `vmap`, checkpoints
with chosen places. Whoever differentiates afterwards finds the same derivative as in
eager work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta

X = np.array([1.0, 2.0, 3.0])
W = np.array([0.5, 0.6, 0.7])
Function = Callable[[Any], Any]


def _in_scan(f: Function) -> Function:
    return lambda x: ta.scan(lambda c, _: (f(x) + 0 * c, None), 0 * x, None, 1)[0]


def _in_fori(f: Function) -> Function:
    return lambda x: ta.fori_loop(0, 1, lambda i, c: f(c), x)


def _in_cond(f: Function) -> Function:
    return ta.compile(lambda x: ta.cond(x[0] > 0, f, lambda v: v, x))


def _in_vmap(f: Function) -> Function:
    return lambda x: ta.sum(
        ta.vmap(lambda s: s * f(x))(ta.asarray([0.25, 0.75])), axis=0
    )


def _summed(f: Function, **how: Any) -> Function:
    region = ta.checkpoint(lambda x: ta.sum(f(x)), **how)
    return lambda x: region(x)


ROUTES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda f: f,
    "compile": ta.compile,
    "compile twice": lambda f: ta.compile(ta.compile(f)),
    "trace": lambda f: ta.trace(f, ta.Spec((3,))),
    "scan": _in_scan,
    "fori_loop": _in_fori,
    "cond": _in_cond,
    "vmap": _in_vmap,
    "vmap of compiled": lambda f: _in_vmap(ta.compile(f)),
    "checkpoint": lambda f: _summed(f),
    "checkpoint at places": lambda f: _summed(f, boundaries="auto"),
    "checkpoint in a budget": lambda f: _summed(f, budget=10**6),
}


def _reverse(f: Function) -> Any:
    return ta.grad(lambda x: ta.sum(f(x)))


def _forward(f: Function) -> Any:
    def by_unit_vectors(x: Any) -> Any:
        def slope(t: Any) -> Any:
            return ta.sum(ta.jvp(f, (x,), (t,))[1])

        return ta.stack([slope(ta.asarray(row)) for row in np.eye(3)])

    return by_unit_vectors


def _tape(f: Function) -> Any:
    def gradient(x: Any) -> Any:
        with ta.Tape() as tape:
            v = ta.variable(x)
            loss = ta.sum(f(v))
        return tape.backward(loss)[v]

    return gradient


MODES = {"grad": _reverse, "jvp": _forward, "Tape": _tape}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", ROUTES)
def test_gradients_stop_where_they_are_told(route: str, mode: str) -> None:
    f = ROUTES[route](lambda x: ta.stop_gradient(x) * x)
    np.testing.assert_allclose(MODES[mode](f)(ta.asarray(X)).numpy(), X)


def _by_tape(w: Any) -> Any:
    with ta.Tape() as tape:
        v = ta.variable(ta.asarray(X))
        y = ta.sin(v)
    return tape.backward(y, cotangent=w)[v]


DERIVATIVES: dict[str, tuple[Function, Any]] = {
    "tangent of jvp": (lambda w: ta.jvp(ta.sin, (X,), (w,))[1], np.cos(X)),
    "cotangent of vjp": (lambda w: ta.vjp(ta.sin, X)[1](w)[0], np.cos(X)),
    "tangent of linearize": (lambda w: ta.linearize(ta.sin, X)[1](w), np.cos(X)),
    "vector of hvp": (
        lambda w: ta.hvp(lambda v: ta.sum(v**3), (X,), (w,))[1],
        6 * X,
    ),
    "cotangent of a tape": (_by_tape, np.cos(X)),
    "plain use": (lambda w: w * X, X),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("what", DERIVATIVES)
def test_values_from_outside_keep_their_derivative(
    what: str, route: str, mode: str
) -> None:
    derived, wanted = DERIVATIVES[what]

    def of_outside(w: Any) -> Any:
        inner = ROUTES[route](lambda s: s * derived(w))
        return inner(ta.ones(3))

    found = MODES[mode](of_outside)(ta.asarray(W))
    np.testing.assert_allclose(found.numpy(), wanted)


def test_a_padding_row_of_a_compiled_embedding_has_no_gradient() -> None:
    table = ta.asarray(np.ones((3, 2)))
    rows = ta.asarray(np.array([0, 1, 2]))
    f = ta.compile(lambda t: ta.sum(ta.nn.embedding(t, rows, padding_idx=1)))
    assert ta.grad(f)(table).tolist() == [[1, 1], [0, 0], [1, 1]]
