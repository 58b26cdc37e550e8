"""`ta.vmap`: axes, pytrees, nesting with every transform, sharing, refusals.

Values are compared with Python loops over the examples here, and with JAX in
`tests/reference/test_jax_transforms.py`; `tests/ops/test_batching.py` visits every row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors
from tenferro_ad.ops import OPS, Op, View, register

RNG = np.random.default_rng(7)
X = RNG.normal(size=(5, 4))
W = RNG.normal(size=(4, 3))


def array(x: Any) -> Any:
    return np.array(np.asarray(x))


def loss(w: Any, x: Any) -> Any:
    return ta.sum(ta.tanh(x @ w) ** 2)


def loop(f: Any, *stacks: Any) -> Any:
    return np.stack([array(f(*xs)) for xs in zip(*stacks, strict=True)])


# ---- axes and pytrees ----------------------------------------------------------------


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("out", [0, 1, -1, -2])
def test_axes_of_arguments_and_outputs(axis: int, out: int) -> None:
    stack = np.moveaxis(X, 0, axis)
    found = ta.vmap(lambda x: x @ W, in_axes=axis, out_axes=out)(stack)
    assert np.allclose(array(found), np.moveaxis(X @ W, 0, out))


def test_pytrees_with_prefixes_of_axes() -> None:
    def f(params: Any, batch: Any) -> Any:
        return {"y": batch[0] @ params["w"] + params["b"], "n": (batch[1], None)}

    params = {"w": W, "b": np.ones(3)}
    batch = (X, np.arange(10.0).reshape(2, 5))
    found = ta.vmap(f, in_axes=(None, (0, 1)), out_axes={"y": 1, "n": 0})(params, batch)
    assert np.allclose(array(found["y"]), (X @ W + 1.0).T)
    assert np.array_equal(array(found["n"][0]), batch[1].T)
    assert found["n"][1] is None
    stacked = {"w": np.stack([W] * 5), "b": np.ones(3)}
    found = ta.vmap(f, in_axes=[{"w": 0, "b": None}, (0, 1)])(stacked, batch)
    assert np.allclose(array(found["y"]), X @ W + 1.0)


def test_a_missing_argument_stays_missing() -> None:
    found = ta.vmap(lambda x, bias: x if bias is None else x + bias)(X, None)
    assert np.array_equal(array(found), X)


def test_keyword_arguments_are_shared() -> None:
    def f(x: Any, *, scale: Any, name: str) -> Any:
        return x * scale if name == "times" else x

    found = ta.vmap(f)(X, scale=ta.asarray(np.arange(4.0)), name="times")
    assert np.allclose(array(found), X * np.arange(4.0))


def test_what_is_not_an_array_passes_where_no_axis_is_named() -> None:
    found = ta.vmap(lambda x, n, how: x**n if how else x, in_axes=(0, None, None))
    assert np.allclose(array(found(X, 3, "power")), X**3)


def test_outputs_that_are_the_same_for_all_examples() -> None:
    f = ta.vmap(lambda x: (x, 2.0 * ta.asarray(W)), out_axes=(0, None))
    _, w = f(X)
    assert np.array_equal(array(w), 2 * W)
    _, w = ta.vmap(lambda x: (x, ta.asarray(W)))(X)
    assert w.shape == (5, 4, 3)
    assert np.array_equal(array(w), np.stack([W] * 5))
    made = ta.vmap(lambda: ta.asarray(W) + 1.0, in_axes=(), axis_size=2)()
    assert np.array_equal(array(made), np.stack([W + 1.0] * 2))


@pytest.mark.parametrize("size", [0, 1])
def test_no_example_and_one_example(size: int) -> None:
    found = ta.vmap(ta.grad(loss), in_axes=(None, 0))(W, X[:size])
    assert found.shape == (size, 4, 3)
    for k in range(size):
        assert np.allclose(array(found)[k], array(ta.grad(loss)(W, X[k])))
    total = ta.grad(lambda w: ta.sum(ta.vmap(lambda x: loss(w, x))(X[:size])))(W)
    assert np.allclose(array(total), sum(array(ta.grad(loss)(W, x)) for x in X[:size]))


# ---- nesting -------------------------------------------------------------------------


def test_gradients_of_each_example() -> None:
    found = ta.vmap(ta.grad(loss), in_axes=(None, 0))(W, X)
    assert np.allclose(array(found), loop(lambda x: ta.grad(loss)(W, x), X))
    both = ta.vmap(ta.grad(loss, argnums=(0, 1)), in_axes=(None, 0))(W, X)
    assert np.allclose(array(both[1]), loop(lambda x: ta.grad(loss, 1)(W, x), X))


def test_the_gradient_of_a_mapped_function() -> None:
    for mapped in (
        lambda w: ta.vmap(lambda x: loss(w, x))(X),  # closed over
        lambda w: ta.vmap(loss, in_axes=(None, 0))(w, X),  # shared
    ):
        found = ta.grad(lambda w, m=mapped: ta.sum(m(w) ** 2))(W)

        def by_hand(w: Any) -> Any:
            return sum(loss(w, x) ** 2 for x in X)

        assert np.allclose(array(found), array(ta.grad(by_hand)(W)))


def test_jvp_and_vjp_inside_and_outside() -> None:
    def push(x: Any) -> Any:
        return ta.jvp(lambda w: loss(w, x), (W,), (W,))[1]

    assert np.allclose(array(ta.vmap(push)(X)), loop(push, X))
    _, t = ta.jvp(lambda w: ta.vmap(loss, in_axes=(None, 0))(w, X), (W,), (W,))
    assert np.allclose(array(t), loop(push, X))
    _, pull = ta.vjp(lambda x: ta.vmap(loss, in_axes=(None, 0))(W, x), X)
    (found,) = pull(np.arange(5.0))
    wanted = loop(lambda c, x: c * ta.grad(loss, 1)(W, x), np.arange(5.0), X)
    assert np.allclose(array(found), wanted)


def test_a_pullback_maps_over_cotangents() -> None:
    out, pull = ta.vjp(lambda x: ta.tanh(x @ W), X[0])
    rows = ta.vmap(lambda ct: pull(ct)[0])(np.eye(3))
    assert np.allclose(array(rows), ((1 - array(out) ** 2) * W).T)


def test_a_pullback_is_differentiable_in_its_cotangent() -> None:
    _, pull = ta.vjp(ta.sin, X)
    found = ta.grad(lambda ct: ta.sum(pull(ct)[0] * X))(X)
    assert np.allclose(array(found), np.cos(X) * X)
    _, t = ta.jvp(lambda ct: pull(ct)[0], (X,), (2.0 * X,))
    assert np.allclose(array(t), 2 * np.cos(X) * X)
    twice = ta.grad(lambda ct: ta.sum(ta.vmap(lambda c: pull(c)[0])(ct) * X[0]))
    assert np.allclose(array(twice(np.stack([X, X]))), np.cos(X) * X[0])


def test_mapped_twice() -> None:
    Y = RNG.normal(size=(6, 4))

    def f(x: Any, y: Any) -> Any:
        return ta.sum(ta.exp(x) * y)

    pairs = ta.vmap(ta.vmap(f, in_axes=(None, 0)), in_axes=(0, None))(X, Y)
    assert np.allclose(array(pairs), np.exp(X) @ Y.T)
    other = ta.vmap(ta.vmap(f, in_axes=(0, None)), in_axes=(None, 0), out_axes=1)(X, Y)
    assert np.allclose(array(other), np.exp(X) @ Y.T)
    # The inner function closes over the outer example.
    closed = ta.vmap(lambda x: ta.vmap(lambda y: f(x, y))(Y))(X)
    assert np.allclose(array(closed), np.exp(X) @ Y.T)
    g = ta.grad(lambda x: ta.sum(ta.vmap(lambda r: ta.vmap(lambda y: f(r, y))(Y))(x)))
    assert np.allclose(array(g(X)), np.exp(X) * Y.sum(0))


def test_hessians_of_each_example() -> None:
    def second(x: Any) -> Any:
        return ta.hessian(lambda v: loss(W, v))(x)

    assert np.allclose(array(ta.vmap(second)(X)), loop(second, X))


def test_a_tape_outside_keeps_what_is_closed_over() -> None:
    w = ta.variable(W)
    with ta.Tape() as tape:
        value = ta.sum(ta.vmap(lambda x: loss(w, x))(X))
    found = tape.backward(value)[w]
    assert found is not None
    wanted = sum(array(ta.grad(loss)(W, x)) for x in X)
    assert np.allclose(found.tolist(), wanted)


def test_a_tape_inside() -> None:
    w = ta.variable(W)

    def one(x: Any) -> Any:
        with ta.Tape() as tape:
            value = loss(w, x)
        return tape.backward(value)[w]

    assert np.allclose(array(ta.vmap(one)(X)), loop(lambda x: ta.grad(loss)(W, x), X))


def test_selects_absorb_zeros_in_each_example() -> None:
    def f(x: Any) -> Any:
        return ta.where(x > 0, ta.sqrt(x), x)

    points = np.array([-1.0, -4.0, 4.0])
    with np.errstate(invalid="ignore"):
        inside = ta.vmap(ta.grad(f))(points)
        outside = ta.grad(lambda x: ta.sum(ta.vmap(f)(x)))(points)
    assert array(inside).tolist() == [1.0, 1.0, 0.25]
    assert array(outside).tolist() == [1.0, 1.0, 0.25]


def test_a_traced_program_maps_and_is_mapped() -> None:
    program = ta.trace(lambda x: ta.sin(x) * x, ta.Spec((4,)))
    assert np.allclose(array(ta.vmap(program)(X)), np.sin(X) * X)
    again = ta.trace(ta.vmap(lambda x: ta.sin(x) * x), ta.Spec((5, 4)))
    assert np.allclose(array(again(X)), np.sin(X) * X)
    assert [eq.call.op.name for eq in again.program.equations] == ["sin", "mul"]


# ---- checkpoints ---------------------------------------------------------------------


def test_checkpoints_stay_checkpoints() -> None:
    def block(w: Any, x: Any) -> Any:
        return ta.tanh(ta.sin(x @ w) @ ta.matrix_transpose(w))

    region = ta.checkpoint(block)
    w = ta.variable(W)
    found = []
    for body in (block, region):
        with ta.ledger(detail=False) as ledger:
            with ta.Tape() as tape:
                y = ta.vmap(lambda x, b=body: b(w, x))(X)
                value = ta.sum(y * y)
            names = [eq.call.op.name for eq in tape.program().equations]
            grads = tape.backward(value)
            found.append(np.array(grads[w].tolist()))
            del grads, value, y, tape
        found.append((names.count("checkpoint"), dict(ledger.allocations)))
    plain, (none, _), again, (one, allocations) = found
    assert np.allclose(plain, again)
    assert (none, one) == (0, 1)
    assert allocations["CheckpointRecomputeOutput"] > 0


def test_gradients_through_a_checkpoint_inside() -> None:
    region = ta.checkpoint(lambda w, x: ta.tanh(x @ w))
    each = ta.vmap(ta.grad(lambda w, x: ta.sum(region(w, x) ** 2)), in_axes=(None, 0))
    assert np.allclose(array(each(W, X)), loop(lambda x: ta.grad(loss)(W, x), X))
    twice = ta.vmap(ta.hessian(lambda x: ta.sum(region(W, x) ** 2)))(X)
    assert np.allclose(array(twice), loop(ta.hessian(lambda x: loss(W, x)), X))


# ---- random numbers ------------------------------------------------------------------


def test_each_example_draws_from_its_own_key() -> None:
    keys = ta.random.split(ta.random.key(3), 6)
    stack = ta.stack(keys)

    def draw(key: Any) -> Any:
        a, b = ta.random.split(key)
        folded = ta.random.fold_in(b, 9)
        return (
            ta.random.normal(a, (3, 5)),
            ta.random.uniform(folded, 7, dtype=np.float32),
            ta.random.randint(b, 4, -3, 11),
            ta.random.permutation(a, 5),
        )

    found = ta.vmap(draw)(stack)
    for k, key in enumerate(keys):
        for y, w in zip(found, draw(key), strict=True):
            assert np.array_equal(array(y)[k], array(w))


def test_many_keys_and_long_draws_have_the_same_bits() -> None:
    for count, n in ((9000, 1), (3, 20_000), (700, 13)):
        keys = ta.asarray(RNG.integers(0, 2**32, (count, 2), dtype=np.uint32))
        found = array(ta.vmap(lambda k, n=n: ta.random.bits(k, n))(keys))
        for i in (0, 1, count // 2, count - 1):
            assert np.array_equal(found[i], array(ta.random.bits(keys[i], n)))


def test_a_shared_key_gives_every_example_the_same_numbers() -> None:
    key = ta.random.key(1)
    found = array(ta.vmap(lambda x: x * 0.0 + ta.random.normal(key, 4))(X))
    assert np.array_equal(found, np.stack([array(ta.random.normal(key, 4))] * 5))


# ---- work and memory -----------------------------------------------------------------


def test_what_examples_share_is_computed_once() -> None:
    base = ta.asarray(RNG.normal(size=(50, 50)))

    def f(x: Any) -> Any:
        return x * ta.sum(ta.linalg.inv(base))

    traced = ta.trace(ta.vmap(f), ta.Spec((5, 4)))
    shapes = {eq.call.op.name: eq.call.out.shape for eq in traced.program.equations}
    assert shapes["inv"] == (50, 50)
    assert shapes["sum"] == ()


def test_no_copies_and_nothing_left() -> None:
    with ta.ledger(detail=False) as ledger:
        x, w = ta.asarray(X), ta.asarray(W)
        before = ledger.live
        found = ta.vmap(ta.grad(loss), in_axes=(None, 0))(w, x)
        assert set(ledger.copies) <= {"Transfer"}
        assert ledger.live == before + 1
        del found
        assert ledger.live == before
    del x, w


# ---- indices of each example ---------------------------------------------------------


def test_indices_of_each_example() -> None:
    """An integer of an example indexes as an array does, also where nothing is known of
    it when the function runs."""
    table = RNG.normal(size=(5, 4, 3))
    i, j = np.array([3, 0, -1, 2, 1]), np.array([1, 2, 0, -3, 1])
    calls = (
        (lambda x, i, j: x[i], lambda k: table[k][i[k]]),
        (lambda x, i, j: x[:, j], lambda k: table[k][:, j[k]]),
        (lambda x, i, j: x[i, j], lambda k: table[k][i[k], j[k]]),
        (lambda x, i, j: x[..., i - i, j], lambda k: table[k][0, j[k]]),
        (lambda x, i, j: x[None, i, 1:], lambda k: table[k][None, i[k], 1:]),
        (lambda x, i, j: x[1, j], lambda k: table[k][1, j[k]]),
        (lambda x, i, j: x[[0, 2], j], lambda k: table[k][[0, 2], j[k]]),
    )
    for ours, numpy in calls:
        found = ta.vmap(ours)(table, i, j)
        assert np.array_equal(array(found), np.stack([numpy(k) for k in range(5)]))
        shared = ta.vmap(ours, in_axes=(None, 0, 0))(table[2], i, j)
        assert shared.shape == found.shape
    slopes = ta.vmap(ta.grad(lambda x, i: x[i] ** 2))(X, i)
    wanted = np.zeros_like(X)
    rows = np.arange(5)
    wanted[rows, i] = 2 * X[rows, i]
    assert np.allclose(array(slopes), wanted)
    placed = ta.vmap(lambda x, i, v: x.at[i].set(v))(X, i, np.arange(5.0))
    wanted = X.copy()
    wanted[rows, i] = np.arange(5.0)
    assert np.array_equal(array(placed), wanted)
    with pytest.raises(errors.IndexRangeError):
        ta.vmap(lambda x, i: x[i])(X, i + 3)
    with pytest.raises(errors.TracedConversionError):
        ta.vmap(lambda x, i: x[:i])(X, i)


# ---- refusals ------------------------------------------------------------------------


def test_refusals_of_axes() -> None:
    def f(x: Any, y: Any) -> Any:
        return x + y

    with pytest.raises(errors.ShapeError, match=r"args\[1\].*4 examples.*args\[0\].*5"):
        ta.vmap(f)(X, W)
    with pytest.raises(errors.ShapeError, match="axis_size.*7 examples"):
        ta.vmap(f, axis_size=7)(X, X)
    with pytest.raises(errors.InvalidArgumentError, match="no argument with examples"):
        ta.vmap(f, in_axes=None)(X, X)
    with pytest.raises(errors.IndexRangeError, match="axis 2 of a value with 2 axes"):
        ta.vmap(f, in_axes=2)(X, X)
    with pytest.raises(errors.IndexRangeError, match="axis 0 of a value with 0 axes"):
        ta.vmap(f)(X, 1.0)
    with pytest.raises(errors.InvalidArgumentError, match="in_axes"):
        ta.vmap(f, in_axes=(0, 0, 0))(X, X)
    with pytest.raises(errors.InvalidArgumentError, match="in_axes"):
        ta.vmap(f, in_axes=({"a": 0}, 0))(X, X)
    with pytest.raises(errors.InvalidArgumentError, match=r"in_axes.*0\.5"):
        ta.vmap(f, in_axes=0.5)(X, X)
    with pytest.raises(errors.IndexRangeError, match="axis 3 of an output with 2 axes"):
        ta.vmap(f, out_axes=3)(X, X)
    with pytest.raises(errors.InvalidArgumentError, match="out_axes.*differs"):
        ta.vmap(f, out_axes=None)(X, X)
    with pytest.raises(errors.InvalidArgumentError, match="out_axes"):
        ta.vmap(f, out_axes=(0, 0))(X, X)


def test_control_flow_on_values_is_refused() -> None:
    with pytest.raises(errors.TracedConversionError, match="test_vmap.py"):
        ta.vmap(lambda x: x if x[0] > 0 else -x)(X)
    with pytest.raises(errors.TracedConversionError):
        ta.vmap(lambda x: x[x > 0])(X)
    with pytest.raises(errors.TracedConversionError):
        ta.vmap(lambda x: np.asarray(x))(X)


def test_a_row_without_a_rule_is_named() -> None:
    op = register(
        Op(
            "mystery",
            ("x",),
            infer=lambda x: (x.shape, x.dtype),
            kernel=View(lambda array, call: array),
        )
    )
    try:
        from tenferro_ad.engine import HANDLES

        with pytest.raises(errors.NoRuleError, match="mystery.*no batching rule"):
            ta.vmap(HANDLES[op])(X)
        # Of a value that all examples share it needs none.
        found = ta.vmap(lambda x: x + HANDLES[op](ta.asarray(X[0])))(X)
        assert np.array_equal(array(found), X + X[0])
    finally:
        del OPS["mystery"]


def test_a_value_must_not_escape() -> None:
    kept = []
    ta.vmap(lambda x: kept.append(x) or x)(X)
    with pytest.raises(errors.TenferroError):
        kept[0] + 1.0
