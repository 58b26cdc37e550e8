"""`ta.trace`: programs, their checks and passes, and every transform on them."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.errors import (
    DTypeError,
    EscapedTracerError,
    InternalError,
    InvalidArgumentError,
    ShapeError,
    TracedConversionError,
)
from tenferro_ad.ops import Program, inlined, optimise
from tests.trees import agree

RNG = np.random.default_rng(3)
X, W = (ta.asarray(RNG.normal(size=shape)) for shape in ((2, 3), (3, 2)))


def loss(x: Any, w: Any) -> Any:
    return ta.sum(ta.tanh(x @ w + 1.0) ** 2)


def program_of(f: Callable[..., Any], *specs: Any) -> Program:
    found = ta.trace(f, *specs).program
    assert isinstance(found, Program)
    found.check()
    return found


def names(program: Program) -> list[str]:
    return [eq.call.op.name for eq in program.equations]


# ---- text ----------------------------------------------------------------------------


def test_a_program_prints_its_equations_with_shapes() -> None:
    assert str(ta.trace(loss, ta.Spec((2, 3)), ta.Spec((3, 2)))) == (
        "program with 5 equations\n"
        "  in  v0: float64[2, 3], v1: float64[3, 2]\n"
        "  v3: float64[2, 2] = matmul(v0, v1)\n"
        "  v4: float64[2, 2] = add(v3, 1.0)\n"
        "  v5: float64[2, 2] = tanh(v4)\n"
        "  v6: float64[2, 2] = square(v5)\n"
        "  v7: float64[] = sum(v6; axes=(0, 1), keepdims=False)\n"
        "  out v7: float64[]"
    )


def test_marks_say_what_is_recomputed_and_written_over() -> None:
    def f(x: Any) -> Any:
        return ta.sum(ta.checkpoint(lambda x: ta.sin(ta.sin(x)))(x))

    text = str(ta.trace(ta.grad(f), ta.Spec((3,))))
    assert "v3: float64[3] = sin(v0)  (recompute)" in text
    assert "v5: float64[3] = sin.vjp.x(v4, v0)  (over v4)" in text


def test_a_long_program_shows_both_ends() -> None:
    def f(x: Any) -> Any:
        for _ in range(100):
            x = ta.sin(x)
        return x

    text = program_of(f, ta.Spec(())).format(limit=10)
    assert "... 90 more equations ..." in text
    assert len(text.splitlines()) == 14


def test_the_same_function_gives_the_same_text() -> None:
    specs = ta.Spec((2, 3)), ta.Spec((3, 2))
    f = ta.grad(loss, (0, 1))
    assert (
        str(ta.trace(f, *specs)) == str(ta.trace(f, *specs)) == str(ta.trace(f, X, W))
    )


# ---- checks --------------------------------------------------------------------------


def broken(change: Callable[[Program], None]) -> str:
    program = program_of(ta.grad(loss, (0, 1)), X, W)
    change(program)
    with pytest.raises(InternalError) as caught:
        program.check()
    return str(caught.value)


def test_a_program_that_reads_what_is_not_there_is_refused() -> None:
    def swap(program: Program) -> None:
        eqs = program.equations
        eqs[0], eqs[1] = eqs[1], eqs[0]

    assert "`add`" in broken(swap)


def test_a_program_that_defines_a_variable_twice_is_refused() -> None:
    def twice(program: Program) -> None:
        program.equations.append(program.equations[0])

    assert "defines variable 3 wrongly" in broken(twice)


def test_a_program_with_another_aval_than_its_call_is_refused() -> None:
    def other(program: Program) -> None:
        program.avals[3] = program.avals[0]

    assert "wrongly" in broken(other)


def test_an_output_that_nothing_defines_is_refused() -> None:
    def out(program: Program) -> None:
        program.outputs = (program.variable(program.avals[0]),)

    assert "which nothing defines" in broken(out)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_writing_over_what_is_still_read_is_refused(number: int) -> None:
    """v4 = v3 + 1 over v3 is read by nobody else; make it read, an input, a literal."""
    f = ta.trace(lambda x: ta.tanh(ta.exp(x) * 2.0) + 1.0, ta.Spec((3,))).program
    eq = f.equations[number]
    f.equations[number] = replace(eq, mode="over")
    f.check()  # nobody reads it afterwards
    f.outputs = (*f.outputs, eq.ins[0])
    with pytest.raises(InternalError, match="writes over a value in use"):
        f.check()


def test_writing_over_an_input_is_refused() -> None:
    f = program_of(lambda x: ta.exp(x), ta.Spec((3,)))
    f.equations[0] = replace(f.equations[0], mode="over")
    with pytest.raises(InternalError, match="writes over a value in use"):
        f.check()


def test_writing_over_a_value_whose_view_is_read_is_refused() -> None:
    f = program_of(lambda x: (ta.exp(ta.sin(x)), ta.reshape(ta.sin(x), (3, 1))), X[0])
    at = names(f).index("exp")
    f.equations[at] = replace(f.equations[at], mode="over")
    with pytest.raises(InternalError, match="writes over a value in use"):
        f.check()


# ---- passes --------------------------------------------------------------------------


def test_dead_and_repeated_equations_go() -> None:
    def f(x: Any) -> Any:
        ta.exp(x)
        a, b = ta.sin(x) * 2.0, ta.sin(x) * 2.0
        return a + b, ta.sum(ta.sin(x))

    assert names(program_of(f, X)) == ["sin", "mul", "add", "sum"]


def test_equal_calls_with_other_parameters_stay_apart() -> None:
    def f(x: Any) -> Any:
        return ta.sum(x, axis=0, keepdims=True) + ta.sum(x, axis=1, keepdims=True)

    assert names(program_of(f, X)) == ["sum", "sum", "add"]


def test_literals_are_told_apart_by_their_bits() -> None:
    program = program_of(lambda x: (x * 0.0, x * -0.0, x * float("nan"), x * 0.0), X)
    assert names(program) == ["mul"] * 3
    assert len(program.literals) == 3


def test_what_a_checkpoint_runs_again_is_not_merged_with_the_first_run() -> None:
    def f(x: Any) -> Any:
        y = ta.checkpoint(lambda x: ta.cos(ta.sin(x)))(x)
        return ta.sum(y * y)

    program = inlined(program_of(ta.grad(lambda x: f(x) * ta.sum(x)), X))
    runs = [eq.recompute for eq in program.equations if eq.call.op.name == "sin"]
    assert sorted(runs) == [False, True]


def test_passes_keep_their_result_as_it_is() -> None:
    program = program_of(ta.grad(loss, (0, 1)), X, W)
    again = optimise(program)
    assert str(again) == str(program)


def test_constants_that_end_up_unused_are_let_go() -> None:
    live = BASE.live
    big = [ta.ones((1000,))]
    traced = ta.trace(lambda x: (x, ta.sum(big[0] + x))[0], ta.Spec(()))
    assert traced.constants == []
    big.clear()
    assert BASE.live == live


# ---- control flow on values ----------------------------------------------------------

READS: dict[str, Callable[[Any], Any]] = {
    "bool": lambda x: 1 if x > 0 else 2,
    "while": lambda x: [x := x - 1 for _ in iter(lambda: bool(x), False)],
    "float": lambda x: float(x),
    "int": lambda x: int(x),
    "complex": lambda x: complex(x),
    "index": lambda x: [1, 2, 3][ta.astype(x, ta.int64)],
    "range": lambda x: range(ta.astype(x, ta.int64)),
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: np.asarray(x),
    "ufunc": lambda x: np.sin(x),
    "dlpack": lambda x: x.__dlpack__(),
    "boolean mask": lambda x: ta.ones(3)[ta.broadcast_to(x > 0, (3,))],
    "nonzero": lambda x: ta.nonzero(ta.reshape(x, (1,))),
    "shape": lambda x: ta.ones(int(x)),
    "list of tensors": lambda x: ta.asarray([x, x]),
    "guard": lambda x: x.value().numpy(),
    "duplicate_value": lambda x: x.duplicate_value(),
}


INSTEAD = {"ufunc": "ta.sin", "list of tensors": "ta.stack"}


@pytest.mark.parametrize("how", READS)
def test_reading_a_traced_value_is_refused_and_shows_the_line(how: str) -> None:
    read = READS[how]
    line = inspect.getsourcelines(read)[1]
    for enter in (ta.trace, lambda f, spec: ta.compile(f).graph(spec)):
        with pytest.raises(TracedConversionError) as caught:
            enter(lambda x: read(x * 2.0), ta.Spec(()))
        assert f"test_trace.py, line {line}" in str(caught.value)
        assert INSTEAD.get(how, "ta.where") in str(caught.value)


def test_control_flow_in_transforms_is_refused_alike() -> None:
    def f(x: Any) -> Any:
        return x if x > 0 else -x

    for transform in (ta.grad(f), lambda x: ta.jvp(f, (x,), (x,)), ta.checkpoint(f)):
        with pytest.raises(TracedConversionError, match="test_trace.py, line"):
            ta.trace(transform, ta.Spec(()))


def test_python_control_flow_on_shapes_is_free() -> None:
    def f(x: Any) -> Any:
        for _ in range(x.shape[0]):
            x = x + 1.0
        return x if x.ndim == 1 else ta.sum(x)

    assert names(program_of(f, ta.Spec((3,)))) == ["add"] * 3


def test_a_failed_trace_leaves_nothing_open() -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            ta.trace(lambda x: x / (1 // 0), ta.Spec(()))
    assert ta.sin(ta.asarray(0.0)).item() == 0.0


# ---- values that leave ---------------------------------------------------------------


def leaked() -> Any:
    kept: list[Any] = []
    ta.trace(lambda x: kept.append(x * 2.0), ta.Spec((3,)))
    return kept[0]


@pytest.mark.parametrize(
    "use",
    [
        lambda y: y + 1.0,
        lambda y: ta.sum(y),
        lambda y: np.asarray(y),
        lambda y: y.item(),
        lambda y: y.value().numpy(),
        lambda y: ta.trace(lambda x: x + y, ta.Spec((3,))),
        lambda y: ta.grad(lambda x: ta.sum(x * y))(np.ones(3)),
        lambda y: ta.compile(lambda x: x)(y),
        lambda y: ta.compile(lambda x: x + y)(np.ones(3)),
    ],
)
def test_a_value_that_left_its_trace_is_refused(use: Callable[[Any], Any]) -> None:
    y = leaked()
    with pytest.raises(EscapedTracerError, match="Return it from the traced"):
        use(y)


def test_a_value_that_left_its_trace_shows_what_it_was() -> None:
    assert repr(leaked()) == "tensor(<traced>, shape=(3,), dtype=float64)"


def test_traces_are_apart() -> None:
    inner: list[Any] = []

    def f(x: Any) -> Any:
        ta.trace(lambda y: inner.append(y + x), ta.Spec((3,)))
        return x + inner[0]

    with pytest.raises(EscapedTracerError):
        ta.trace(f, ta.Spec((3,)))


# ---- what a function closes over -----------------------------------------------------


def test_closed_over_tensors_are_hidden_inputs() -> None:
    traced = ta.trace(lambda x: x @ W, ta.Spec((2, 3)))
    assert len(traced.program.inputs) == 2
    assert len(traced.constants) == 1
    agree(traced(X), X @ W)
    agree(traced(2 * X), 2 * X @ W)


def test_numbers_are_part_of_the_text() -> None:
    traced = ta.trace(lambda x: x * 3.0 + ta.asarray(2.0), ta.Spec((2,)))
    assert len(traced.constants) == 1
    assert len(traced.program.literals) == 1


def test_arrays_come_in_by_a_recorded_transfer_while_tracing() -> None:
    with ta.ledger() as led:
        traced = ta.trace(lambda x: x + np.ones(3), ta.Spec((3,)))
    led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})
    with ta.ledger() as led:
        traced(np.zeros(3))
    assert led.copies == {"Transfer": 1}  # of the argument


def test_a_closed_over_variable_keeps_its_gradient() -> None:
    v = ta.variable(np.asarray(W))
    wanted = ta.grad(loss, 1)(X, W)
    with ta.Tape() as tape:
        out = ta.trace(lambda x: loss(x, v), X)(X)
    agree(tape.backward(out).take_grad(v), wanted)


def test_a_closed_over_intermediate_keeps_its_gradient() -> None:
    v = ta.variable(np.asarray(W))
    with ta.Tape() as tape:
        twice = v * 2.0
        out = ta.trace(lambda x: loss(x, twice), X)(X)
    agree(tape.backward(out).take_grad(v), ta.grad(lambda w: loss(X, w * 2.0))(W))


@pytest.mark.parametrize(
    "through",
    [
        lambda f, *xs: ta.trace(f, *xs)(*xs),
        lambda f, *xs: ta.compile(f)(*xs),
        lambda f, *xs: ta.trace(ta.trace(f, *xs), *xs)(*xs),
        lambda f, *xs: ta.compile(ta.compile(f))(*xs),
        lambda f, *xs: ta.compile(ta.trace(f, *xs))(*xs),
    ],
    ids=[
        "trace",
        "compile",
        "trace of trace",
        "compile of compile",
        "compile of trace",
    ],
)
def test_tracing_inside_a_transform_closes_over_its_values(through: Any) -> None:
    def plain(w: Any) -> Any:
        return loss(X, w * 2.0)

    def inner(w: Any) -> Any:
        twice = w * 2.0
        return through(lambda x: loss(x, twice), X)

    agree(inner(W), plain(W))
    agree(ta.grad(inner)(W), ta.grad(plain)(W))
    agree(ta.jvp(inner, (W,), (W,)), ta.jvp(plain, (W,), (W,)))
    agree(
        ta.grad(lambda w: ta.sum(ta.grad(inner)(w) ** 2))(W),
        ta.grad(lambda w: ta.sum(ta.grad(plain)(w) ** 2))(W),
    )
    many = ta.stack([W, 2.0 * W])
    agree(ta.vmap(inner)(many), ta.vmap(plain)(many))
    agree(ta.grad(ta.checkpoint(inner))(W), ta.grad(plain)(W))
    agree(ta.trace(inner, W)(W), plain(W))
    agree(ta.trace(ta.grad(inner), W)(W), ta.grad(plain)(W))


# ---- transforms of programs ----------------------------------------------------------

TRANSFORMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "grad": lambda f: ta.grad(f, (0, 1)),
    "vjp": lambda f: lambda x, w: ta.vjp(f, x, w)[1](ta.asarray(2.0)),
    "jvp": lambda f: lambda x, w: ta.jvp(f, (x, w), (w.T, x.T)),
    "hvp": lambda f: lambda x, w: ta.hvp(lambda w: f(x, w), (w,), (w,)),
    "linearize": lambda f: lambda x, w: ta.linearize(f, x, w)[1](x, w),
    "jacfwd": lambda f: ta.jacfwd(f, (0, 1)),
    "jacrev": lambda f: ta.jacrev(f, (0, 1)),
    "hessian": lambda f: ta.hessian(f, 1),
    "vmap": lambda f: lambda x, w: ta.vmap(f, (0, None))(ta.stack([x, 2.0 * x]), w),
    "checkpoint": lambda f: ta.grad(ta.checkpoint(f), (0, 1)),
    "third": lambda f: ta.grad(
        lambda x, w: ta.sum(ta.grad(lambda w: ta.sum(ta.grad(f)(x, w) ** 2))(w) ** 2), 1
    ),
}
every_transform = pytest.mark.parametrize("name", TRANSFORMS)


@every_transform
def test_a_traced_program_transforms_like_its_function(name: str) -> None:
    transform = TRANSFORMS[name]
    traced = ta.trace(loss, X, W)
    agree(transform(traced)(X, W), transform(loss)(X, W))


@every_transform
def test_a_transform_is_traced_and_transformed_again(name: str) -> None:
    transform = TRANSFORMS[name]
    wanted = transform(loss)(X, W)
    for f in (loss, ta.trace(loss, X, W)):
        traced = ta.trace(transform(f), X, W)
        traced.program.check()
        agree(traced(X, W), wanted)
        agree(ta.compile(traced)(X, W), wanted, 1e-11)

    def total(f: Any) -> Any:
        def sum_of(x: Any, w: Any) -> Any:
            leaves = ta.trace(lambda *a: f(*a), x, w)(x, w)
            return sum(ta.sum(y * y) for y in flat(leaves))

        return sum_of

    agree(ta.grad(total(traced))(X, W), ta.grad(total(transform(loss)))(X, W), 1e-10)


def flat(tree: Any) -> list[Any]:
    if isinstance(tree, tuple | list):
        return [y for part in tree for y in flat(part)]
    return [tree]


def test_transforms_nest_in_one_trace_as_they_do_outside() -> None:
    def f(x: Any, w: Any) -> Any:
        def inner(w: Any) -> Any:
            return ta.sum(
                ta.vmap(lambda row: ta.grad(lambda r: loss(r[None], w))(row))(x)
            )

        return ta.jvp(inner, (w,), (w,))[1], ta.grad(inner)(w)

    traced = ta.trace(f, X, W)
    agree(traced(X, W), f(X, W))


# ---- calls ---------------------------------------------------------------------------


def test_calls_are_held_to_what_was_traced() -> None:
    traced = ta.trace(
        lambda d, k: d["a"] * k + d["b"][0],
        {"a": ta.Spec((2,)), "b": [ta.Spec((2,))]},
        3,
    )
    ones = np.ones(2)
    agree(traced({"a": ones, "b": [ones]}, 3), 4 * ones)
    for args, error, text in (
        (({"a": ones}, 3), InvalidArgumentError, "the traced structure"),
        (({"a": np.ones(3), "b": [ones]}, 3), ShapeError, "float64[3]"),
        (({"a": np.ones(2, "f4"), "b": [ones]}, 3), DTypeError, "float32[2]"),
        (({"a": ones, "b": [ones]}, 4), InvalidArgumentError, "4 where 3 was traced"),
        (({"a": ones, "b": [ones]}, 3.0), InvalidArgumentError, "3.0 where 3"),
    ):
        with pytest.raises(error) as caught:
            traced(*args)
        assert text in str(caught.value)


def test_results_keep_their_structure_and_what_is_no_tensor() -> None:
    def f(x: Any) -> Any:
        return {"x": x, "again": [x, x.T], "n": 7, "text": "a", "none": None}

    for call in (ta.trace(f, X), ta.compile(f)):
        out = call(X)
        assert (out["n"], out["text"], out["none"]) == (7, "a", None)
        agree([out["x"], out["again"]], [X, [X, X.T]])


def test_tracing_computes_and_allocates_nothing(provider_calls: Any) -> None:
    provider_calls.reset()
    ta.trace(ta.grad(loss, (0, 1)), X, W)
    assert provider_calls.total == 0


def test_a_trace_needs_no_cyclic_collector() -> None:
    gc.collect()
    gc.disable()
    try:
        ta.trace(ta.grad(lambda x: loss(x, W * 2.0)), X)
        live = BASE.live
        ta.trace(ta.grad(lambda x: loss(x, ta.exp(W))), X)
        assert BASE.live == live
        assert gc.collect() < 100
    finally:
        gc.enable()


def test_mistakes_in_specs_have_names() -> None:
    for call, error in (
        (lambda: ta.Spec((2, -1)), InvalidArgumentError),
        (lambda: ta.Spec((2.5,)), DTypeError),
        (lambda: ta.Spec((2,), "no dtype"), DTypeError),
        (lambda: ta.Spec((2,), device="nowhere"), InvalidArgumentError),
        (lambda: ta.Spec(("n",)).aval, InvalidArgumentError),
    ):
        with pytest.raises(error):
            call()
    assert ta.Spec(3).shape == (3,)
    assert ta.Spec("batch").names == ("batch",)
