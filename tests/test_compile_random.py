"""Random programs: eager, traced and compiled give the same, and so do their gradients.

Programs are drawn step by step; every step reads values that are there already, so that
views are read and written around, results are used several times, and anything may be
an output. Replays run twice, the second time with other inputs in other strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tenferro_ad as ta
from tests.trees import agree

N = 4  # every value has the shape (N,), (N, N) or ()
Value = Any
Step = Callable[[Callable[[int], Value], Callable[[int], Value]], Value]

UNARY: dict[str, Callable[[Value], Value]] = {
    "tanh": ta.tanh,
    "sin": ta.sin,
    "exp of bounded": lambda x: ta.exp(ta.sin(x)),
    "twice": lambda x: x * 2.0,
    "shifted": lambda x: 1.5 - x,
    "square": lambda x: ta.tanh(x) ** 2,
    "where": lambda x: ta.where(x > 0, x, 0.5 * x),
    "flip": lambda x: ta.flip(x, axis=0) if x.ndim else x,
    "reverse last": lambda x: x[..., ::-1] if x.ndim else x,
    "checkpoint": lambda x: ta.checkpoint(lambda y: ta.sin(ta.tanh(y)))(x),
    "loop": lambda x: ta.scan(lambda c, _: (ta.tanh(c) + x, None), x, None, 3)[0],
    "cumulative": lambda x: ta.cumulative_sum(x, axis=0) / N if x.ndim else x,
    "at": lambda x: x.at[0].set(x[1]) if x.ndim else x,
    "stop": ta.stop_gradient,
}
BINARY: dict[str, Callable[[Value, Value], Value]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: ta.tanh(x) * y,
    "maximum": ta.maximum,
}


class Drawn:
    """A function of (vector, matrix) and its text."""

    def __init__(self, draw: Any) -> None:
        self.steps: list[tuple[str, tuple[int, ...]]] = []
        kinds = ["v", "m"]
        for _ in range(draw(st.integers(1, 14))):
            matrices = [i for i, k in enumerate(kinds) if k == "m"]
            vectors = [i for i, k in enumerate(kinds) if k == "v"]
            choice = draw(
                st.sampled_from(["unary"] * 4 + ["binary"] * 4 + ["matrix"] * 4)
            )
            if choice == "unary":
                i = draw(st.integers(0, len(kinds) - 1))
                name = draw(st.sampled_from(sorted(UNARY)))
                self.steps.append((name, (i,)))
                kinds.append(kinds[i])
            elif choice == "binary":
                i, j = (draw(st.integers(0, len(kinds) - 1)) for _ in range(2))
                name = draw(st.sampled_from(sorted(BINARY)))
                self.steps.append((name, (i, j)))
                kinds.append(max(kinds[i], kinds[j], key="svm".index))
            else:
                name = draw(
                    st.sampled_from(
                        [
                            "product",
                            "transpose",
                            "row",
                            "column",
                            "outer",
                            "sum",
                            "mean",
                            "apply",
                            "flat",
                            "diagonal",
                        ]
                    )
                )
                m = draw(st.sampled_from(matrices))
                other = draw(st.sampled_from(matrices))
                v = draw(st.sampled_from(vectors))
                self.steps.append((name, (m, other, v)))
                kinds.append(
                    {
                        "product": "m",
                        "transpose": "m",
                        "outer": "m",
                        "sum": "s",
                        "mean": "v",
                        "row": "v",
                        "column": "v",
                        "apply": "v",
                        "flat": "m",
                        "diagonal": "v",
                    }[name]
                )
        count = draw(st.integers(1, 4))
        self.outputs = [draw(st.integers(0, len(kinds) - 1)) for _ in range(count)]

    def __call__(self, v: Value, m: Value) -> list[Value]:
        values = [v, m]
        for name, at in self.steps:
            xs = [values[i] for i in at]
            if name in UNARY:
                values.append(UNARY[name](xs[0]))
            elif name in BINARY:
                values.append(BINARY[name](*xs))
            else:
                values.append(matrix_step(name, *xs))
        return [values[i] for i in self.outputs]

    def __repr__(self) -> str:
        lines = [f"x{k + 2} = {name}{at}" for k, (name, at) in enumerate(self.steps)]
        return "\n".join([*lines, f"outputs {self.outputs}"])


def matrix_step(name: str, m: Value, other: Value, v: Value) -> Value:
    match name:
        case "product":
            return ta.tanh(m) @ other / N
        case "transpose":
            return m.T
        case "row":
            return m[1]
        case "column":
            return m[:, 2]
        case "outer":
            return v[:, None] * ta.tanh(m[0])[None, :]
        case "sum":
            return ta.sum(m) / N
        case "mean":
            return ta.mean(m, axis=1)
        case "apply":
            return ta.tanh(m) @ v
        case "flat":
            return ta.reshape(ta.reshape(m, (-1,))[::-1], (N, N))
        case _:
            return ta.linalg.diagonal(m)


drawn = st.composite(Drawn)()
RNG = np.random.default_rng(0)
QUICK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
THOROUGH = settings(QUICK, max_examples=1500)


def inputs() -> list[tuple[Value, Value]]:
    v, m = (ta.asarray(RNG.normal(size=s)) for s in ((N,), (N, N)))
    wide = ta.asarray(RNG.normal(size=(2 * N, N + 1)))
    return [(v, m), (2.0 * v, m + 1.0), (wide[::2, 1], wide[::2, 1:].T)]


def check(f: Any) -> None:
    pairs = inputs()
    traced = ta.trace(f, *pairs[0])
    traced.program.check()
    compiled = ta.compile(f)
    for v, m in pairs:
        wanted = f(v, m)
        agree(traced(v, m), wanted, 0)
        with ta.ledger() as led:
            found = compiled(v, m)
        agree(found, wanted, 1e-13)
        agree(compiled(v, m), wanted, 1e-13)
        assert dict(led.allocations) == compiled.plan(v, m).allocations
        with ta.ledger() as eager:
            f(v, m)
        assert led.copies.total() <= eager.copies.total()


def gradient(f: Drawn) -> Callable[[Value, Value], Any]:
    def loss(v: Value, m: Value) -> Value:
        parts = [ta.sum(ta.sin(y) * (k + 1)) for k, y in enumerate(f(v, m))]
        return sum(parts[1:], parts[0])

    return ta.grad(loss, (0, 1))


@given(drawn)
@QUICK
def test_values(f: Drawn) -> None:
    check(f)


@given(drawn)
@QUICK
def test_gradients(f: Drawn) -> None:
    check(gradient(f))


@pytest.mark.slow
@given(drawn)
@THOROUGH
def test_values_at_length(f: Drawn) -> None:
    check(f)


@pytest.mark.slow
@given(drawn)
@THOROUGH
def test_gradients_at_length(f: Drawn) -> None:
    check(gradient(f))


@pytest.mark.slow
@given(drawn)
@settings(THOROUGH, max_examples=300)
def test_forward_mode_of_gradients_at_length(f: Drawn) -> None:
    g = gradient(f)
    check(lambda v, m: ta.jvp(g, (v, m), (v, m)))
