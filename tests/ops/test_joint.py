"""Joint rules: all arguments of a row differentiated by one computation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES
from tenferro_ad.errors import InternalError, NoRuleError
from tenferro_ad.ops import Op, Write
from tenferro_ad.testing import check_grads

Array = np.ndarray[Any, Any]
calls: list[Any] = []


# ---- rows of these tests -------------------------------------------------------------
def _prod_kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
    np.copyto(outs[0], np.prod(np.stack(ins), axis=0))


def _prod_back(F: Any, ct: Any, call: Any, tracked: Any, *, xs: Any) -> Any:
    """Products of all others: from the left, from the right, each in one pass."""
    calls.append((tracked, tuple(x is not None for x in xs)))
    found = []
    for i in tracked:
        g = ct
        for k, x in enumerate(xs):
            g = g if k == i else F.mul(g, F.conj(x))
        found.append(g)
    return found


def _prod_push(F: Any, ts: Any, call: Any, *, xs: Any, out: Any) -> Any:
    calls.append(tuple(t is not None for t in ts))
    value, slope = None, None
    for x, t in zip(xs, ts, strict=True):
        grown = None if slope is None else F.mul(slope, x)
        if t is not None:
            term = t if value is None else F.mul(value, t)
            grown = term if grown is None else F.add(grown, term)
        value, slope = x if value is None else F.mul(value, x), grown
    return slope


def _others(call: Any, tracked: tuple[int, ...]) -> set[int]:
    everything = range(len(call.ins))
    return {k for k in everything if any(i != k for i in tracked)}


def _first(*avals: Any) -> Any:
    return avals[0].shape, avals[0].dtype


PRODUCT = Op(
    "product_of_all",
    ("xs",),
    variadic=True,
    infer=lambda xs: _first(*xs),
    kernel=Write(_prod_kernel),
    joint=_prod_back,
    joint_keeps=_others,
    joint_jvp=_prod_push,
)


def _polar_kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
    np.multiply(ins[0], np.cos(ins[1]), outs[0])
    np.multiply(ins[0], np.sin(ins[1]), outs[1])


def _polar_back(
    F: Any, cts: Any, call: Any, tracked: Any, *, angle: Any, x: Any, y: Any
) -> Any:
    a, b = cts
    radial: Any = None
    turned: Any = None
    if a is not None:
        radial, turned = F.mul(a, F.cos(angle)), F.neg(F.mul(a, y))
    if b is not None:
        one, two = F.mul(b, F.sin(angle)), F.mul(b, x)
        radial = one if radial is None else F.add(radial, one)
        turned = two if turned is None else F.add(turned, two)
    return [(radial, turned)[i] for i in tracked]


def _polar_push(F: Any, ts: Any, call: Any, *, angle: Any, x: Any, y: Any) -> Any:
    r, turn = ts
    if turn is None:
        return F.mul(r, F.cos(angle)), F.mul(r, F.sin(angle))
    a, b = F.neg(F.mul(turn, y)), F.mul(turn, x)
    if r is None:
        return a, b
    return F.add(a, F.mul(r, F.cos(angle))), F.add(b, F.mul(r, F.sin(angle)))


POLAR = Op(
    "from_polar",
    ("radius", "angle"),
    outs=("x", "y"),
    infer=lambda r, t: [(r.shape, r.dtype), (t.shape, t.dtype)],
    kernel=Write(_polar_kernel),
    joint=_polar_back,
    joint_jvp=_polar_push,
)


@pytest.fixture(autouse=True)
def no_calls() -> None:
    calls.clear()


def draw(n: int, dtype: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(3)
    x = rng.uniform(0.5, 1.5, (n, 4))
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.uniform(0.5, 1.5, (n, 4))
    return [np.asarray(row, dtype) for row in x]


# ---- values --------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_joint_rules_are_right_in_both_modes_and_to_third_order(
    n: int, dtype: Any
) -> None:
    order = 3 if dtype == np.float64 else 2
    check_grads(lambda *xs: HANDLES[PRODUCT](xs), draw(n, dtype), order=order)


def test_joint_rules_of_two_outputs_are_right_whatever_is_used_of_them() -> None:
    point = [np.array([1.5, 0.7]), np.array([0.3, -2.0])]

    def both(r: Any, t: Any) -> Any:
        x, y = HANDLES[POLAR](r, t)
        return x * x * y

    check_grads(both, point, order=3)
    check_grads(lambda r, t: HANDLES[POLAR](r, t)[0], point, order=2)
    check_grads(lambda r, t: HANDLES[POLAR](r, t)[1], point, order=2)
    check_grads(lambda r: HANDLES[POLAR](r, r)[1], point[:1], order=2)


def test_one_computation_serves_all_arguments_in_either_mode() -> None:
    xs = draw(5)
    ta.grad(lambda *xs: ta.sum(HANDLES[PRODUCT](xs)), argnums=(0, 1, 2, 3, 4))(*xs)
    assert calls == [((0, 1, 2, 3, 4), (True,) * 5)]
    calls.clear()
    fixed = ta.asarray(xs[1])
    ta.jvp(lambda a, c: HANDLES[PRODUCT]((a, fixed, c)), (xs[0], xs[2]), (xs[0], xs[2]))
    assert calls == [(True, False, True)]


def test_a_checkpoint_changes_no_bit() -> None:
    xs = draw(3)

    def f(*xs: Any) -> Any:
        return ta.sum(HANDLES[PRODUCT](xs) * 2.0)

    plain = ta.grad(f, argnums=(0, 1, 2))(*xs)
    again = ta.grad(ta.checkpoint(f), argnums=(0, 1, 2))(*xs)
    assert [g.tolist() for g in plain] == [g.tolist() for g in again]


# ---- retention -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("tracked", "kept"),
    [((0,), [1, 2]), ((2,), [0, 1]), ((0, 2), [0, 1, 2]), ((0, 1, 2), [0, 1, 2])],
)
def test_a_joint_rule_keeps_the_operands_that_it_says_it_reads(
    tracked: tuple[int, ...], kept: list[int]
) -> None:
    xs: list[Any] = [ta.asarray(x) for x in draw(3)]
    for i in tracked:
        xs[i] = ta.variable(xs[i])
    with ta.Tape() as tape:
        y = ta.sum(HANDLES[PRODUCT](tuple(xs)))
    of_it = [k for k in tape.retained() if k.operation == "product_of_all"]
    assert [k.value for k in of_it] == [f"xs[{i}]" for i in kept]
    tape.backward(y)
    assert calls == [(tracked, tuple(i in kept for i in range(3)))]


def test_names_of_arguments_and_outputs_are_the_retention() -> None:
    r, t = ta.variable(np.ones(2)), ta.variable(np.ones(2))
    with ta.ledger() as ledger, ta.Tape() as tape:
        x, y = HANDLES[POLAR](r, t)
        assert {k.value for k in tape.retained()} == {"angle", "x", "y"}
        assert ledger.live == 2
        del x, y  # nothing can be asked of the equation any more
        assert ledger.live == 0
        assert tape.retained() == []


# ---- faults --------------------------------------------------------------------------
def test_a_row_has_joint_rules_or_rules_for_arguments_not_both() -> None:
    rules: Any = {"infer": lambda x: _first(x), "kernel": Write(_prod_kernel)}
    both: Any = {"x": lambda F, ct, call: ct}
    with pytest.raises(InternalError, match="joint"):
        Op("wrong", ("x",), joint=_prod_back, vjp=both, **rules)
    with pytest.raises(InternalError, match="joint"):
        Op("wrong", ("x",), joint_jvp=_prod_push, jvp=both, **rules)


def test_a_joint_rule_may_not_keep_what_the_row_has_not() -> None:
    op = Op(
        "wrong",
        ("x",),
        infer=lambda x: _first(x),
        kernel=Write(_prod_kernel),
        joint=lambda F, ct, call, tracked, *, z: [ct],
    )
    x = ta.variable(np.ones(2))
    with ta.Tape(), pytest.raises(InternalError, match="`?z`?"):
        HANDLES[op](x)


def test_a_row_with_a_joint_reverse_rule_only_refuses_forward_mode() -> None:
    op = Op(
        "reverse_only",
        ("x",),
        infer=lambda x: _first(x),
        kernel=Write(_prod_kernel),
        joint=lambda F, ct, call, tracked: [ct],
    )
    x = np.ones(2)
    assert ta.grad(lambda x: ta.sum(HANDLES[op](x)))(x).tolist() == [1.0, 1.0]
    with pytest.raises(NoRuleError, match="reverse_only"):
        ta.jvp(lambda x: HANDLES[op](x), (x,), (x,))
