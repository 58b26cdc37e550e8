"""Programs for any length of named axes: values, guards, refusals."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.errors import (
    DTypeError,
    InvalidArgumentError,
    ShapeError,
)
from tests.trees import agree

RNG = np.random.default_rng(5)
N, V = ta.Spec(("n", 4)), ta.Spec(("n",))
LABELS = ta.Spec(("n",), np.int64)


class Counted:
    """A function that counts its calls."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f, self.calls = f, 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        return self.f(*args)


def values(specs: tuple[Any, ...], sizes: dict[str, int]) -> list[Any]:
    made = []
    for spec in specs:
        shape = tuple(sizes.get(n, n) for n in spec.shape)
        if spec.dtype.kind == "f":
            made.append(ta.asarray(RNG.normal(size=shape)))
        else:
            made.append(ta.asarray(RNG.integers(0, 3, shape)))
    return made


def recurrent(x: Any) -> Any:
    def step(c: Any, row: Any) -> Any:
        return ta.tanh(c + row), ta.sum(c)

    return ta.scan(step, ta.zeros(4), x)


# Functions that have one program for (almost) all sizes.
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mean": (lambda x: ta.mean(x, axis=0), (N,)),
    "variance": (lambda x: ta.var(x, axis=0, correction=1), (N,)),
    "gradient of a mean": (ta.grad(lambda x: ta.mean(x * x)), (N,)),
    "differences": (lambda x: x[1:] - x[:-1], (N,)),
    "last": (lambda x: x[-1] + x[x.shape[0] - 2], (N,)),
    "all in one": (lambda x: ta.reshape(x, (-1,)), (N,)),
    "pairs": (lambda x: ta.reshape(x, (2, -1)), (N,)),
    "numbered": (lambda x: x * ta.arange(x.shape[0])[:, None], (N,)),
    "size as a number": (lambda x: x * x.shape[0] / (x.shape[0] - 1), (N,)),
    "joined": (lambda x: ta.concat([x, ta.flip(x, axis=0), ta.zeros((1, 4))]), (N,)),
    "identity": (lambda x: ta.eye(x.shape[0]) @ x, (N,)),
    "softmax": (lambda x: nn.softmax(x, axis=0), (N,)),
    "loss": (ta.grad(lambda x, y: ta.cross_entropy(x, y)), (N, LABELS)),
    "loop over rows": (recurrent, (N,)),
    "its gradient": (ta.grad(lambda x: ta.sum(recurrent(x)[0])), (N,)),
    "loop that carries rows": (
        lambda x: ta.scan(lambda c, _: (ta.tanh(c + x), None), x * 0, None, 3)[0],
        (V,),
    ),
    "branch": (
        lambda x: ta.cond(ta.sum(x) > 0, lambda x: x * 2, ta.sin, x),
        (V,),
    ),
    "examples": (ta.vmap(ta.grad(lambda r: ta.sum(ta.tanh(r)))), (N,)),
    "checkpoint": (
        ta.grad(lambda x: ta.mean(ta.checkpoint(lambda x: ta.sin(ta.sin(x)))(x))),
        (N,),
    ),
    "einsum": (lambda x: ta.einsum("ij,kj->ik", x, x), (N,)),
    "sorted": (lambda x: ta.cumulative_sum(ta.sort(x, axis=0), axis=0), (N,)),
    "padded": (lambda x: ta.pad(ta.roll(x, 1, axis=0), ((1, 2), (0, 0))), (N,)),
    "images": (
        lambda x: ta.max_pool2d(ta.conv2d(x, ta.ones((3, 1, 3, 3)), padding=1), 2),
        (ta.Spec(("n", 1, 8, 8)),),
    ),
    "matrices": (ta.linalg.inv, (ta.Spec(("n", 3, 3)),)),
    "one matrix": (
        ta.grad(lambda x: ta.linalg.det(x + 10 * ta.eye(x.shape[0]))),
        (ta.Spec(("n", "n")),),
    ),
    "rows by number": (
        ta.grad(lambda x, i: ta.sum(ta.take(x, i, axis=0) ** 2)),
        (ta.Spec((5, 4)), LABELS),
    ),
    "spectrum": (lambda x: ta.abs(ta.fft.fft(x, axis=0)), (N,)),
    "second order": (lambda x: ta.hessian(lambda x: ta.sum(x**3))(x), (V,)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_trace_serves_every_size(name: str) -> None:
    plain, specs = FUNCTIONS[name]
    f = Counted(plain)
    traced = ta.trace(f, *specs)
    assert isinstance(traced, ta.SymbolicProgram)
    compiled = ta.compile(traced)
    calls = f.calls
    for n in (8, 12, 16, 30):
        xs = values(specs, {"n": n})
        wanted = plain(*xs)
        agree(traced(*xs), wanted)
        agree(compiled(*xs), wanted, 1e-11)
    assert f.calls == calls  # never traced again


@pytest.mark.parametrize("name", ["mean", "all in one", "loss", "images", "numbered"])
def test_sizes_that_broadcast_or_are_empty_are_traced_on_their_own(name: str) -> None:
    plain, specs = FUNCTIONS[name]
    traced = ta.trace(plain, *specs)
    for n in (1, 2, 3):
        xs = values(specs, {"n": n})
        agree(traced(*xs), plain(*xs))
        agree(ta.compile(traced)(*xs), plain(*xs), 1e-11)
    x = ta.zeros((0, 4))
    twice = ta.trace(lambda x: x * 2.0, N)
    assert twice(x).shape == ta.compile(twice)(x).shape == (0, 4)


def test_names_in_common_and_apart() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return ta.reshape(a[:, None] * b[None, :], (-1,)), c + b

    specs = (V, ta.Spec(("m",)), ta.Spec((2, "m")))
    counted = Counted(f)
    traced = ta.trace(counted, *specs)
    assert traced.names == ("n", "m")
    calls = counted.calls
    for n, m in ((5, 6), (6, 5 + 6), (20, 9)):
        xs = values(specs, {"n": n, "m": m})
        agree(traced(*xs), f(*xs))
    assert counted.calls == calls
    for n, m in ((0, 3), (1, 1), (4, 1)):
        xs = values(specs, {"n": n, "m": m})
        agree(traced(*xs), f(*xs))
    with pytest.raises(ShapeError, match="m = 4"):
        traced(np.ones(3), np.ones(4), np.ones((2, 5)))


def test_three_names_at_once() -> None:
    def f(a: Any, b: Any, c: Any) -> Any:
        return ta.sum(a[:, None, None] * b[:, None] * c), ta.concat([a, b, c])

    specs = tuple(ta.Spec((name,)) for name in "abc")
    traced = ta.trace(f, *specs)
    for sizes in ((7, 9, 11), (40, 8, 7), (2, 3, 4)):
        xs = values(specs, dict(zip("abc", sizes, strict=True)))
        agree(traced(*xs), f(*xs))
    with pytest.raises(InvalidArgumentError, match="4 named sizes"):
        ta.trace(lambda *xs: xs, *[ta.Spec((name,)) for name in "abcd"])


def test_the_text_has_the_names() -> None:
    text = str(
        ta.trace(lambda x, y: ta.concat([x, y]) / x.shape[0], V, ta.Spec(("m",)))
    )
    assert "in  v0: float64[n], v1: float64[m]" in text
    assert "float64[m + n]" in text
    program = ta.trace(lambda x: ta.mean(x, axis=0), N)
    assert "float64[n, 4]" in str(program)


def test_transforms_take_programs_of_any_size() -> None:
    def f(x: Any) -> Any:
        return ta.mean(ta.tanh(x) ** 2)

    traced = ta.trace(f, N)
    for n in (3, 9, 21):
        (x,) = values((N,), {"n": n})
        agree(ta.grad(traced)(x), ta.grad(f)(x))
        agree(ta.jvp(traced, (x,), (x,)), ta.jvp(f, (x,), (x,)))
        agree(ta.trace(ta.grad(traced), x)(x), ta.grad(f)(x))
        agree(ta.vmap(traced)(ta.stack([x, 2 * x])), ta.vmap(f)(ta.stack([x, 2 * x])))
    again = ta.trace(ta.grad(traced), N)
    agree(again(x), ta.grad(f)(x))


def test_a_compiled_step_is_traced_once_for_all_batches() -> None:
    def loss(w: Any, x: Any, y: Any) -> Any:
        return ta.cross_entropy(ta.tanh(x @ w), y)

    f = Counted(ta.grad(loss))
    w = ta.asarray(RNG.normal(size=(4, 3)))
    step = ta.compile(ta.trace(f, w, N, LABELS))
    calls = f.calls
    for n in (8, 9, 10, 8, 9):
        x, y = values((N, LABELS), {"n": n})
        agree(step(w, x, y), ta.grad(loss)(w, x, y))
    assert f.calls == calls
    assert (step.cache.misses, step.cache.hits) == (3, 2)


# ---- guards --------------------------------------------------------------------------


def test_a_size_from_which_on_something_changes_is_found() -> None:
    def f(x: Any) -> Any:
        return x[:100] * 2

    traced = ta.trace(f, V)
    assert 101 not in traced.range["n"]
    for n in (8, 99, 100, 101, 300, 5000):
        (x,) = values((V,), {"n": n})
        agree(traced(x), f(x))
    g = ta.trace(lambda x: x if x.shape[0] < 1000 else -x, V)
    assert 999 not in g.range["n"]
    for n in (10, 999, 1000, 2000):
        (x,) = values((V,), {"n": n})
        agree(g(x), x if n < 1000 else -x)


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (lambda x: x if x.shape[0] > 10 else -x, "operations at another size"),
        (lambda x: x * 2 if x.shape[0] % 4 == 0 else x, "operations at another size"),
        (lambda x: -x if x.shape[0] & (x.shape[0] - 1) else x, "another size"),
        (lambda x: [x for _ in range(x.shape[0])], "another size"),
        (lambda x: sum(x[i] for i in range(x.shape[0])), "number of operations"),
        (lambda x: x[: x.shape[0] // 2], "no simple rule"),
        (lambda x: x[::2], "no simple rule"),
        (lambda x: x * x.shape[0] ** 2, "no simple rule"),
        (lambda x: x / x.shape[0] ** 0.5, "no simple rule"),
        (lambda x: x * int(x.shape[0] * 0.5), "no simple rule"),
        (lambda x: x * ta.asarray(1.0 / x.shape[0]), "made from a size"),
        (lambda x: x * np.arange(x.shape[0]), "made from a size"),
    ],
)
def test_what_follows_no_rule_is_refused(f: Callable[..., Any], text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        ta.trace(f, V)
    assert text in str(caught.value)
    assert "give this axis a number" in str(caught.value)


QUESTIONS: dict[str, tuple[Any, list[Any]]] = {
    "equal sizes": (
        lambda x, y: x * 2 if x.shape == y.shape else x,
        [(7, 7), (8, 7), (700, 700)],
    ),
    "one size": (lambda x, y: x * 2 if x.shape[0] == 77 else x, [(77, 9), (78, 9)]),
    "one of some": (
        lambda x, y: x * 2 if y.size in (77, 99) else x,
        [(9, 77), (9, 99), (9, 98)],
    ),
    "a multiple": (
        lambda x, y: x * 2 if x.shape[0] % 1009 == 0 else x,
        [(1009, 9), (1010, 9), (2018, 9)],
    ),
    "an inequality": (
        lambda x, y: x * 2 if x.shape[0] < 3 * y.shape[0] else x * 3,
        [(100, 20), (10, 20), (60, 20), (59, 20)],
    ),
    "half of a size": (
        lambda x, y: x * 2 if x.shape[0] / 2 > 50.3 else x,
        [(100, 9), (101, 9), (1000, 9)],
    ),
    "a difference": (
        lambda x, y: x * 2 if x.shape[0] - 77 else x,
        [(77, 9), (76, 9)],
    ),
    "the larger one": (
        lambda x, y: ta.zeros(max(x.shape[0], 50)),
        [(20, 9), (60, 9), (50, 9)],
    ),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_is_asked_of_sizes_guards_the_program(question: str) -> None:
    f, calls = QUESTIONS[question]
    traced = ta.trace(f, ta.Spec(("n",)), ta.Spec(("m",)))
    for n, m in calls:
        x, y = np.arange(1.0, n + 1), np.arange(1.0, m + 1)
        agree(traced(x, y), f(ta.asarray(x), ta.asarray(y)))
        agree(ta.compile(traced)(x, y), f(ta.asarray(x), ta.asarray(y)))


def test_guards_do_not_count_what_the_package_asks_itself() -> None:
    traced = ta.trace(lambda x: ta.reshape(x, x.shape) + ta.zeros(x.shape), N)
    assert traced._template.guards == []


def test_python_loops_over_a_size_are_refused_at_once() -> None:
    with pytest.raises(InvalidArgumentError, match="another number of operations"):
        ta.trace(lambda x: [x[i] for i in range(x.shape[0])][-1], ta.Spec(("n",)))


def test_results_that_are_no_tensors_follow_the_size() -> None:
    traced = ta.trace(lambda x: (x * 2, x.shape[0], str(x.shape)), V)
    for n in (3, 9):
        _, size, text = traced(np.ones(n))
        assert (size, text) == (n, f"({n},)")


def test_equal_arrays_made_while_tracing_are_constants() -> None:
    traced = ta.trace(lambda x: x + np.arange(4.0), N)
    agree(traced(np.zeros((9, 4))), np.tile(np.arange(4.0), (9, 1)))


def test_closed_over_variables_keep_their_gradient() -> None:
    w = ta.variable(RNG.normal(size=(4, 3)))
    traced = ta.trace(lambda x: ta.sum(ta.tanh(x @ w)), N)
    for n in (3, 8, 9):
        x = ta.asarray(RNG.normal(size=(n, 4)))
        with ta.Tape() as tape:
            y = traced(x)
        wanted = ta.grad(lambda w, x: ta.sum(ta.tanh(x @ w)))(ta.stop_gradient(w), x)
        agree(tape.backward(y).take_grad(w), wanted)


def test_calls_are_held_to_what_was_traced() -> None:
    traced = ta.trace(lambda x, y: x + y, N, N)
    ones = np.ones((3, 4))
    for args, error in (
        ((ones, np.ones((3, 5))), ShapeError),
        ((ones, np.ones((2, 4))), ShapeError),
        ((ones, np.ones(4)), ShapeError),
        ((ones, ones.astype("f4")), DTypeError),
        ((ones,), InvalidArgumentError),
        ((ones, ones, ones), InvalidArgumentError),
    ):
        with pytest.raises(error):
            traced(*args)


def test_one_size_at_a_time() -> None:
    traced = ta.trace(lambda x: ta.mean(x, axis=0), N)
    program = traced.at(n=12)
    assert program.specs[0].shape == (12, 4)
    assert traced.at(n=12) is program
    program.program.check()
    for wrong in ({}, {"m": 3}, {"n": 3, "m": 4}):
        with pytest.raises(InvalidArgumentError, match="a length for each of n"):
            traced.at(**wrong)
    with pytest.raises(InvalidArgumentError, match="named size"):
        ta.plan(lambda x: ta.sum(x), N)


def test_mistakes_in_traces_show_through() -> None:
    with pytest.raises(ShapeError):
        ta.trace(lambda x: x @ ta.ones((5, 2)), N)
    with pytest.raises(ZeroDivisionError):
        ta.trace(lambda x: x / (1 // 0), N)


SIZED: dict[str, Any] = {
    "product": lambda x: x * x.shape[0],
    "mean": lambda x: ta.sum(x) / x.size,
    "float": lambda x: x * (x.shape[0] * 2.0),
    "where": lambda x: ta.where(x > 0, x.shape[0], x),
    "set": lambda x: x.at[0].set(x.shape[0]),
    "einsum": lambda x: ta.einsum(",i->i", x.shape[0], x),
    "carry": lambda x: ta.scan(lambda c, t: (c + t, None), x.shape[0], x)[0],
    "loop": lambda x: ta.scan(lambda c, t: (c + x.shape[0], c), x[0], x)[1],
}


@pytest.mark.parametrize("name", SIZED)
def test_a_size_is_a_number_like_any_other(name: str) -> None:
    """It is weak: single precision stays what it is."""
    fn, x = SIZED[name], ta.asarray(np.arange(1, 8, dtype=np.float32))
    traced = ta.trace(fn, ta.Spec(("n",), np.float32))
    agree(traced(x), fn(x), 1e-6)


class Count(enum.IntEnum):
    THREE = 3


@pytest.mark.parametrize("name", ["product", "where", "set", "einsum", "carry", "loop"])
def test_numbers_of_other_classes_are_weak(name: str) -> None:
    x = ta.asarray(np.arange(1, 4, dtype=np.float32))
    fns: dict[str, Any] = {
        "product": lambda n: x * n,
        "where": lambda n: ta.where(x > 0, n, x),
        "set": lambda n: x.at[0].set(n),
        "einsum": lambda n: ta.einsum(",i->i", n, x),
        "carry": lambda n: ta.scan(lambda c, t: (c + t, None), n, x)[0],
        "loop": lambda n: ta.scan(lambda c, t: (c + n, c), x[0], x)[1],
    }
    agree(fns[name](Count.THREE), fns[name](3), 0)
