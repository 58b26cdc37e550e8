"""`ta.checkpoint`: the same numbers, the boundary kept, every shape of region."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import (
    CheckpointMismatchError,
    InvalidArgumentError,
    TracedConversionError,
)

X = np.array([0.1, -0.2, 0.3])


def run(f: Any, *arrays: Any) -> tuple[list[Any], list[Any], ta.LedgerScope]:
    """Value and gradients of `sum(f(*leaves))`, and the ledger of both passes."""
    leaves = [ta.variable(a) for a in arrays]
    with ta.ledger() as led:
        with ta.Tape() as tape:
            out = f(*leaves)
            loss = ta.sum(out)
        grads = tape.backward(loss)
    found = []
    for leaf in leaves:
        view = grads.grad(leaf)
        if view is None:
            found.append(None)
        else:
            with view:
                found.append(view.numpy().tolist())
    with out.value() as guard:
        return guard.numpy().tolist(), found, led


def body(x: Any, w: Any) -> Any:
    return ta.sin(ta.tanh(x * w) * w) + x


@pytest.mark.parametrize("verify", [None, "bitwise"])
def test_value_and_gradients_are_bitwise_those_without_it(verify: Any) -> None:
    plain = run(body, X, X + 1)
    kept = run(ta.checkpoint(body, verify=verify), X, X + 1)
    assert kept[:2] == plain[:2]
    assert not kept[2].copies
    # x * w, tanh and the product; sin and the sum only if their bytes are checked.
    again = kept[2].allocations["CheckpointRecomputeOutput"]
    assert again == (5 if verify else 3)


def test_outside_any_tape_the_function_simply_runs() -> None:
    with ta.ledger() as led:
        y = ta.checkpoint(body)(ta.asarray(X), ta.asarray(X))
        assert led.allocations["OperationOutput"] == 5
    assert not y.is_tracked


def test_an_unknown_way_to_verify_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="bitwise"):
        ta.checkpoint(body, verify="loosely")


def test_pytrees_keywords_and_plain_arguments_pass_through() -> None:
    def f(tree: Any, power: int, *, scale: Any, note: str) -> Any:
        assert note == "hello"
        y = tree["a"] * scale
        for _ in range(power):
            y = ta.tanh(y)
        return {"y": y, "b": tree["b"][0] * 2.0}

    a, b, s = ta.variable(X), ta.variable(X), ta.variable(X)
    for g in (f, ta.checkpoint(f)):
        with ta.Tape() as tape:
            out = g({"a": a, "b": [b]}, 2, scale=s, note="hello")
            loss = ta.sum(out["y"] + out["b"])
        grads = tape.backward(loss)
        seen = [read(grads, leaf) for leaf in (a, b, s)]
        first = seen if g is f else first  # noqa: F821
        assert seen == first


def read(grads: Any, leaf: Any) -> list[float]:
    with grads.grad(leaf) as view:
        return view.numpy().tolist()  # type: ignore[no-any-return]


def test_closed_over_values_are_inputs_of_the_region() -> None:
    w, c = ta.variable(X), ta.asarray(X + 1)
    with ta.Tape() as tape:
        h = ta.exp(w)
        loss = ta.sum(ta.checkpoint(lambda x: ta.sin(x * h) * c * w)(w))
        kept = [r.value for r in tape.retained() if r.operation == "checkpoint"]
    assert kept == ["input 0", "input 1", "input 2", "output 0"]
    a = read(tape.backward(loss), w)
    with ta.Tape() as tape:
        h = ta.exp(w)
        loss = ta.sum(ta.sin(w * h) * c * w)
    assert a == read(tape.backward(loss), w)


def test_a_variable_used_inside_only_is_differentiated() -> None:
    w = ta.variable(X)
    x = ta.asarray(X + 1)  # an input without a gradient
    with ta.Tape() as tape:
        loss = ta.sum(ta.checkpoint(lambda t: ta.sin(t * w))(x))
    assert read(tape.backward(loss), w) == (np.cos(X * (X + 1)) * (X + 1)).tolist()


def test_regions_nest_and_recompute_the_inner_one_within_the_outer() -> None:
    inner = ta.checkpoint(lambda x: ta.sin(ta.tanh(x)))

    def nested(x: Any) -> Any:
        return inner(ta.exp(x)) * x

    plain = run(lambda x: ta.sin(ta.tanh(ta.exp(x))) * x, X)
    kept = run(ta.checkpoint(nested), X)
    assert kept[:2] == plain[:2]
    # exp, tanh and sin again for the outer region, tanh once more for the inner one.
    assert kept[2].allocations["CheckpointRecomputeOutput"] == 4


def test_several_outputs_one_of_them_unused_or_returned_twice() -> None:
    def f(x: Any) -> Any:
        s, t = ta.sin(x), ta.tanh(x)
        return s, t, s, x

    def use(g: Any) -> Any:
        def h(x: Any) -> Any:
            s, _, again, same = g(x)
            return s * again + same

        return h

    assert run(use(ta.checkpoint(f)), X)[:2] == run(use(f), X)[:2]


def test_an_output_may_be_an_input_or_a_constant() -> None:
    w = ta.variable(X)
    with ta.Tape() as tape:
        same, constant = ta.checkpoint(lambda x: (x, ta.asarray(2.0)))(w)
        loss = ta.sum(same * constant)
    assert read(tape.backward(loss), w) == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("set_", [False, True])
def test_an_integer_computed_inside_may_be_an_index(set_: bool) -> None:
    """Outside it is read as a number; a region has it computed again."""

    def f(x: Any) -> Any:
        i = ta.argmax(x)
        return x.at[i].set(0.5) * x if set_ else x[i] * x[0]

    assert run(ta.checkpoint(f), X)[:2] == run(f, X)[:2]


def test_a_value_read_inside_a_region_is_refused_with_what_helps() -> None:
    def f(x: Any) -> Any:
        return x * float(ta.stop_gradient(ta.sum(x)))

    with pytest.raises(TracedConversionError, match="value") as caught:
        run(ta.checkpoint(f), X)
    assert "stop_gradient" not in str(caught.value)

    def g(x: Any) -> Any:
        with ta.sum(x).value() as v:
            return x * float(v.numpy())

    assert run(ta.checkpoint(g), X)[1] == [[sum(X)] * 3]


def test_views_inside_a_region_copy_nothing() -> None:
    def f(x: Any) -> Any:
        return ta.reshape(ta.tanh(ta.reshape(x, (3, 1))) * ta.reshape(x, (3, 1)), (3,))

    plain, kept = run(f, X), run(ta.checkpoint(f), X)
    assert kept[:2] == plain[:2]
    assert not kept[2].copies


def test_stop_gradient_inside_stops_on_recompute_too() -> None:
    def f(x: Any) -> Any:
        return ta.stop_gradient(ta.sin(x)) * ta.sin(x)

    assert run(ta.checkpoint(f), X)[:2] == run(f, X)[:2]


def test_a_select_inside_absorbs_zeros_as_outside() -> None:
    def f(x: Any) -> Any:
        return ta.where(x > 0.0, ta.sqrt(x), x)

    assert run(ta.checkpoint(f), np.array([-1.0, -4.0]))[1] == [[1.0, 1.0]]
    assert run(f, np.array([-1.0, -4.0]))[1] == [[1.0, 1.0]]


def test_an_exception_inside_publishes_nothing_and_closes_the_region() -> None:
    w = ta.variable(X)

    def f(x: Any) -> Any:
        ta.sin(x)
        raise LookupError("inside")

    with ta.Tape() as tape:
        y = ta.exp(w)
        before = len(tape), tape.retained()
        with pytest.raises(LookupError):
            ta.checkpoint(f)(y)
        assert (len(tape), tape.retained()) == before
        loss = ta.sum(ta.tanh(y))  # the tape still records, outside the region
    assert len(tape.backward(loss)) == 1


def test_a_value_of_a_region_that_escapes_is_a_constant_or_refused() -> None:
    w = ta.variable(X)
    escaped: list[Any] = []

    def f(x: Any) -> Any:
        y = ta.sin(x)
        escaped.append(y)
        return y * 2.0

    with ta.Tape() as tape:
        loss = ta.sum(ta.checkpoint(f)(w))
    assert not escaped[0].is_tracked
    grads = tape.backward(loss)
    assert read(grads, w) == (2.0 * np.cos(X)).tolist()


def test_bitwise_verification_names_the_first_operation_that_differs() -> None:
    from tenferro_ad import unsafe

    memory = X.copy()
    x = unsafe.import_array(memory)
    w = ta.variable(X)
    with ta.Tape() as tape:
        f = ta.checkpoint(lambda w: ta.sin(ta.exp(w) * x), verify="bitwise")
        loss = ta.sum(f(w))
    memory[0] = 7.0  # breaks the duty that `import_array` documents
    before = len(tape), tape.retained()
    with pytest.raises(CheckpointMismatchError, match="equation 1") as caught:
        tape.backward(loss)
    assert caught.value.operation == "multiply"
    assert (len(tape), tape.retained()) == before
    memory[0] = X[0]
    assert len(tape.backward(loss)) == 1  # the tape was unchanged: a retry works


def test_a_checkpointed_chain_keeps_boundaries_only() -> None:
    w = ta.variable(np.full(1000, 0.5))

    def block(y: Any) -> Any:
        for _ in range(8):
            y = ta.tanh(y) * w
        return y

    def peak(f: Any) -> int:
        with ta.ledger() as led:
            with ta.Tape() as tape:
                y = w * 1.0
                for _ in range(8):
                    y = f(y)
                loss = ta.sum(y)
            del y
            tape.backward(loss)
        return led.peak_bytes

    # Kept by rules: the 8 results of tanh of each of 8 blocks. With checkpoints: one
    # boundary for each block, and the values of one block at a time.
    assert peak(block) >= 8 * 8 * 8000
    assert peak(ta.checkpoint(block)) <= (8 + 8 + 6) * 8000
