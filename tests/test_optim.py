"""Optimisers: the formulas, in place under exclusive access, all or nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import optree
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import (
    BorrowConflictError,
    IntegerInputError,
    InvalidArgumentError,
    NotALeafError,
    NotUniqueError,
    ShapeError,
    UseAfterMoveError,
)
from tests.trees import agree

GRADS = [np.array([0.5, -1.0, 2.0]), np.array([0.1, 0.2, -0.3]), np.array([3.0, 0, 1])]
START = np.array([1.0, -2.0, 0.5])


def values(w: Any) -> list[float]:
    with w.value() as guard:
        return guard.numpy().tolist()  # type: ignore[no-any-return]


def bundle(w: Any, g: Any) -> ta.Gradients:
    """Gradients whose entry for `w` is exactly `g`."""
    with ta.Tape() as tape:
        loss = ta.sum(w * ta.asarray(g))
    return tape.backward(loss)


# PyTorch's documented update formulas, written out with NumPy.


def torch_sgd(
    lr: float, mu: float = 0.0, nesterov: bool = False, decay: float = 0.0
) -> np.ndarray[Any, Any]:
    p, b = START.copy(), None
    for g in GRADS:
        g = g + decay * p
        if mu:
            b = g if b is None else mu * b + g
            g = g + mu * b if nesterov else b
        p = p - lr * g
    return p


def torch_adam(
    lr: float, b1: float, b2: float, eps: float, decay: float
) -> np.ndarray[Any, Any]:
    p, m, v = START.copy(), np.zeros(3), np.zeros(3)
    for t, g in enumerate(GRADS, 1):
        g = g + decay * p
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        bias1, bias2 = 1 - b1**t, 1 - b2**t
        p = p - (lr / bias1) * m / (np.sqrt(v) / np.sqrt(bias2) + eps)
    return p


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"decay": 0.1},
        {"mu": 0.9},
        {"mu": 0.9, "decay": 0.1},
        {"mu": 0.9, "nesterov": True},
        {"mu": 0.9, "nesterov": True, "decay": 0.1},
    ],
)
def test_sgd_follows_the_formulas_of_torch(options: dict[str, Any]) -> None:
    w = ta.variable(START)
    names = {"mu": "momentum", "decay": "weight_decay", "nesterov": "nesterov"}
    opt = ta.optim.SGD(0.1, **{names[k]: v for k, v in options.items()})
    for g in GRADS:
        opt.update([w], bundle(w, g))
    assert values(w) == pytest.approx(torch_sgd(0.1, **options), abs=1e-14)


@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_adam_follows_the_formulas_of_torch(decay: float) -> None:
    w = ta.variable(START)
    opt = ta.optim.Adam(0.05, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay)
    for g in GRADS:
        opt.update([w], bundle(w, g))
    expected = torch_adam(0.05, 0.8, 0.95, 1e-6, decay)
    assert values(w) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("how", ["update", "apply", "compiled"])
def test_adam_in_single_precision_loses_a_few_roundings_only(how: str) -> None:
    """The first step is the rate, whatever the gradient: 1 - 0.999 has all digits."""
    opt, g, n = ta.optim.Adam(1e-3), np.array([1.0, -3e3, 2e-3], np.float32), 3
    w = ta.variable(np.zeros(n, np.float32))
    if how == "update":
        opt.update([w], bundle(w, g))
    else:
        step = ta.compile(opt.apply) if how == "compiled" else opt.apply
        (w,), _ = step([w], [ta.asarray(g)], opt.init([w]))
    wanted = 1e-3 / (1.0 + 1e-8 / np.abs(g))
    assert np.allclose(np.abs(values(w)), wanted, rtol=5e-7, atol=0.0)


def test_gradients_may_be_worked_on_before_the_update() -> None:
    """A pytree like the parameters stands for the bundle, and None for no gradient."""
    start = {"a": START, "b": [np.ones(2, np.float32), np.ones(())]}
    params, plain = (optree.tree_map(ta.variable, start) for _ in range(2))
    before = values(params["b"][1])

    def loss(p: Any) -> Any:
        return ta.sum(ta.sin(p["a"])) + ta.sum(p["b"][0] ** 3)

    one, other = ta.optim.Adam(0.1), ta.optim.Adam(0.1)
    for _ in range(3):
        for opt, w in ((one, params), (other, plain)):
            grads = ta.value_and_grad(loss)(w)[1]
            opt.update(w, grads.tree(w) if opt is one else grads)
        parts = ta.value_and_grad(loss)(params)[1].tree(params)
        assert parts["b"][1] is None
    assert values(params["b"][1]) == before
    for w, v in zip(optree.tree_leaves(params), optree.tree_leaves(plain), strict=True):
        assert values(w) == values(v)
    clipped = optree.tree_map(lambda g: np.clip(np.asarray(g), -0.1, 0.1), parts)
    ta.optim.SGD(1.0).update(params["a"], clipped["a"])
    moved = np.asarray(plain["a"]) - clipped["a"]
    assert np.array_equal(values(params["a"]), moved)


def test_numbers_may_be_parameters_of_a_step_as_a_function() -> None:
    opt = ta.optim.Adam(0.1)
    state = opt.init({"a": 1.0, "b": [START]})
    moved, _ = opt.apply({"a": 1.0, "b": [START]}, {"a": 2.0, "b": [START]}, state)
    assert moved["a"].item() == pytest.approx(0.9)
    assert moved["b"][0].shape == (3,)


@pytest.mark.parametrize("how", ["eager", "compiled"])
def test_a_step_as_a_function_refuses_what_does_not_fit(how: str) -> None:
    """A gradient of another shape would broadcast, and give the parameter its own."""
    opt = ta.optim.SGD(0.1)
    step = ta.compile(opt.apply) if how == "compiled" else opt.apply
    for grad in (np.ones((2, 3)), np.ones(1), np.ones(())):
        with pytest.raises(ShapeError, match="`apply` refused `grads`"):
            step([START], [grad], opt.init([START]))
    whole = np.ones(3, np.int64)
    with pytest.raises(IntegerInputError, match="`init` refused `params`"):
        opt.init([whole])
    with pytest.raises(IntegerInputError, match="`apply` refused `params`"):
        step([whole], [START], opt.init([START]))


def test_gradients_that_do_not_fit_change_nothing() -> None:
    a, b = ta.variable(START), ta.variable(np.float32(1.0))
    opt = ta.optim.Adam(0.1)
    good = np.ones(3)
    for params, grads in (
        ({"a": a}, {"b": good}),
        ([a, b], [good]),
        ([a, b], [good, np.float64(1.0)]),
        ([a, b], [np.ones(4), np.float32(1.0)]),
        ([a, b], [good * 1j, None]),
        ([a, a], [good, good]),
        ([a], None),
    ):
        with pytest.raises(InvalidArgumentError, match="`update` refused `grads`"):
            opt.update(params, grads)
    with pytest.raises(NotALeafError):
        opt.update([START], [good])
    assert values(a) == START.tolist()
    assert opt.steps == 0


def test_a_complex_parameter_moves_against_its_gradient() -> None:
    # d|z|^2 = 2 Re(conj(z) dz): the step z - lr * 2 z shrinks z.
    w = ta.variable(np.array([1 + 1j, -2j]))
    for opt in (ta.optim.SGD(0.25), ta.optim.Adam(0.01)):
        before = np.abs(values(w))
        with ta.Tape() as tape:
            loss = ta.sum(ta.abs(w) ** 2)
        opt.update([w], tape.backward(loss))
        assert (np.abs(values(w)) < before).all()


def test_a_rate_may_depend_on_the_number_of_steps() -> None:
    w = ta.variable(START)
    seen = []

    def rate(step: int) -> float:
        seen.append(step)
        return 1.0 / step

    opt = ta.optim.SGD(rate)
    for g in GRADS[:2]:
        opt.update({"w": w}, bundle(w, g))
    assert seen == [1, 2]
    assert values(w) == pytest.approx(START - GRADS[0] - GRADS[1] / 2)


@pytest.mark.parametrize(
    "opt",
    [
        ta.optim.SGD(0.1),
        ta.optim.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.1),
        ta.optim.Adam(0.1, weight_decay=0.1),
    ],
    ids=["sgd", "nesterov", "adam"],
)
def test_in_the_steady_state_nothing_is_allocated_or_copied(
    opt: Any, provider_calls: Any
) -> None:
    params = {"w": ta.variable(np.ones((40, 300))), "b": [ta.variable(START)]}
    records = [params["w"]._record, params["b"][0]._record]
    for step in range(3):
        grads = bundle(params["w"], np.full((40, 300), 0.1))
        more = bundle(params["b"][0], START)
        grads.accumulate(more)
        del more
        provider_calls.reset()
        with ta.ledger() as led, ta.forbid(copies=True, allocations=step > 0):
            opt.update(params, grads)
        if step:
            led.expect(allocations={}, copies={})
            assert provider_calls.total == 0
    assert [params["w"]._record, params["b"][0]._record] == records  # the same values
    opt._state.clear()


def holders(w: Any) -> dict[str, Any]:
    with ta.Tape() as tape:
        y = ta.sin(w)
    return {
        "clone": w.clone(),
        "tape": (tape, y),
        "guard": w.value(),
    }


@pytest.mark.parametrize("kind", ["clone", "tape", "guard"])
@pytest.mark.parametrize("make", [ta.optim.SGD, ta.optim.Adam])
def test_a_parameter_that_somebody_holds_is_refused_and_nothing_changes(
    make: Any, kind: str
) -> None:
    a, b = ta.variable(START), ta.variable(START)
    opt = make(0.1)
    for _ in range(2):
        grads = bundle(a, GRADS[0])
        grads.accumulate(bundle(b, GRADS[1]))
        held = holders(b)
        keep = held.pop(kind)
        held.clear()
        before = values(a), values(b), opt.steps, len(opt._state)
        moments = [[values(t) for t in s] for s in opt._state.values()]
        with pytest.raises(NotUniqueError) as caught:
            opt.update([a, b], grads)
        assert caught.value.recovered is b
        assert (values(a), values(b), opt.steps, len(opt._state)) == before
        assert [[values(t) for t in s] for s in opt._state.values()] == moments
        del keep, caught
        opt.update([a, b], grads)  # the same call works once the holder is gone
        assert opt.steps == before[2] + 1


def test_an_exported_array_is_a_borrow_conflict_and_nothing_changes() -> None:
    w = ta.variable(START)
    opt = ta.optim.Adam(0.1)
    grads = bundle(w, GRADS[0])
    array = w.numpy()
    with pytest.raises(BorrowConflictError):
        opt.update([w], grads)
    assert array.tolist() == START.tolist()
    assert opt.steps == 0
    del array
    opt.update([w], grads)
    assert opt.steps == 1


def test_a_failing_rate_changes_nothing() -> None:
    w = ta.variable(START)

    def rate(step: int) -> float:
        if step == 2:
            raise LookupError("no rate")
        return 0.1

    opt = ta.optim.Adam(rate)
    opt.update([w], bundle(w, GRADS[0]))
    before = values(w), opt.steps, [[values(t) for t in s] for s in opt._state.values()]
    grads = bundle(w, GRADS[1])
    with pytest.raises(LookupError):
        opt.update([w], grads)
    after = values(w), opt.steps, [[values(t) for t in s] for s in opt._state.values()]
    assert after == before


def test_only_variables_are_parameters_and_those_without_gradient_stay() -> None:
    w, unused = ta.variable(START), ta.variable(START)
    opt = ta.optim.SGD(0.1)
    with pytest.raises(NotALeafError):
        opt.update([w, ta.asarray(START)], bundle(w, GRADS[0]))
    assert values(w) == START.tolist()
    opt.update([w, unused], bundle(w, GRADS[0]))
    assert values(unused) == START.tolist()


def test_handles_stay_the_same_objects_and_their_records_too() -> None:
    w = ta.variable(START)
    record = w._record
    grads = bundle(w, GRADS[0])
    ta.optim.SGD(0.1).update([w], grads)
    assert w._record is record
    assert isinstance(w.into_value(), ta.Tensor)


def test_fused_kernels_conjugate_complex_operands() -> None:
    norm = ta.fused(lambda E, z: z * E.conj(z))
    z = ta.asarray(np.array([1 + 2j, -3j]))
    assert norm(z).tolist() == [5, 9]
    assert norm(ta.asarray([1.0, -2.0])).tolist() == [1.0, 4.0]


def test_fused_kernels_know_their_selects() -> None:
    safe = ta.fused(lambda E, x: E.select(x > 0.0, E.sqrt(x), x))
    slope = ta.grad(lambda x: ta.sum(safe(x)))(np.array([-1.0, 0.0, 4.0]))
    assert slope.tolist() == [1.0, 1.0, 0.25]


@pytest.mark.parametrize(
    "make",
    [
        lambda: ta.optim.SGD(float("nan")),
        lambda: ta.optim.SGD(-1.0),
        lambda: ta.optim.SGD(0.1, momentum=1.5),
        lambda: ta.optim.Adam("x"),
        lambda: ta.optim.Adam(1e-3, betas=(2.0, 0.9)),
        lambda: ta.optim.Adam(1e-3, weight_decay=float("nan")),
    ],
)
def test_settings_that_cannot_work_are_refused_at_once(make: Any) -> None:
    with pytest.raises(ta.errors.InvalidArgumentError, match="`(SGD|Adam)` refused"):
        make()


def test_a_tied_parameter_is_updated_once() -> None:
    w = ta.variable(np.array([1.0, 2.0]))
    params = {"encoder": w, "decoder": w}
    step = ta.value_and_grad(lambda p: ta.sum(p["encoder"] * p["decoder"]))
    _, grads = step(params)
    ta.optim.SGD(0.25).update(params, grads)
    assert w.tolist() == [0.5, 1.0]
    with pytest.raises(ta.errors.InvalidArgumentError, match="Gradients"):
        ta.optim.SGD(0.25).update(params, {"w": np.ones(2)})  # type: ignore[arg-type]


# ---- as functions --------------------------------------------------------------------

OPTIMIZERS = {
    "sgd": lambda: ta.optim.SGD(0.1, weight_decay=0.1),
    "nesterov": lambda: ta.optim.SGD(0.1, momentum=0.9, nesterov=True),
    "adam": lambda: ta.optim.Adam(0.1, weight_decay=0.1),
    "schedule": lambda: ta.optim.Adam(lambda t: 0.1 / (1.0 + t)),
}
every_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)


def params_of(dtype: Any) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(2)
    shapes: tuple[tuple[int, ...], ...] = ((3, 2), (3,), ())
    return [np.asarray(rng.normal(size=s)).astype(dtype) for s in shapes]


def size(params: Any) -> Any:
    w, b, s = params
    y = ta.tanh(ta.asarray([1.0, 2.0, 3.0], dtype=b.dtype) @ w) * s
    return ta.sum(ta.real(y * ta.conj(y))) + ta.sum(ta.real(b * ta.conj(b)))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@every_optimizer
def test_the_function_takes_the_steps_that_update_takes(name: str, dtype: Any) -> None:
    opt, arrays = OPTIMIZERS[name](), params_of(dtype)
    variables = [ta.variable(a) for a in arrays]
    for _ in range(4):
        _, grads = ta.value_and_grad(size)(variables)
        opt.update(variables, grads)
    params = [ta.asarray(a) for a in arrays]
    state = opt.init(params)
    for _ in range(4):
        params, state = opt.apply(params, ta.grad(size)(params), state)
    tolerance = 1e-5 if dtype is np.float32 else 1e-13
    agree(params, [ta.stop_gradient(v) for v in variables], tolerance)
    assert state["steps"].item() == 4
    assert opt.steps == 4  # of `update` alone: the function keeps nothing


@every_optimizer
def test_a_compiled_step_writes_over_parameters_and_state(
    name: str, provider_calls: Any
) -> None:
    opt = OPTIMIZERS[name]()

    def step(params: Any, state: Any) -> Any:
        return opt.apply(params, ta.grad(size)(params), state)

    compiled = ta.compile(step, donate_argnums=(0, 1))
    params = [ta.asarray(a) for a in params_of(np.float64)]
    plain = [ta.asarray(a) for a in params_of(np.float64)]
    state, kept = opt.init(params), opt.init(plain)
    for _ in range(3):
        params, state = compiled(params, state)
        plain, kept = step(plain, kept)
    agree((params, state), (plain, kept), 1e-12)
    provider_calls.reset()
    with ta.ledger() as led:
        params, state = compiled(params, state)
    led.expect(allocations={"OperationOutput": 1}, copies={})  # the arena
    assert provider_calls.total == 1
    assert compiled.cache.misses == 1


def test_a_rate_may_be_an_input_of_the_step() -> None:
    opt = ta.optim.SGD(5.0)
    step = ta.compile(lambda p, g, s, rate: opt.apply(p, g, s, rate))
    p, g = [ta.asarray(np.ones(2))], [ta.asarray(np.ones(2))]
    for rate in (0.1, 0.2):
        found, _ = step(p, g, opt.init(p), np.float64(rate))
        agree(found, [np.ones(2) - rate])
    assert step.cache.misses == 1
    agree(opt.apply(p, g, opt.init(p), 0.3)[0], [np.full(2, 0.7)])


def test_structures_of_parameters_and_gradients_are_one() -> None:
    opt = ta.optim.Adam()
    params = {"w": ta.ones(2), "b": None}
    made, _ = opt.apply(params, params, opt.init(params))
    assert made["b"] is None
    with pytest.raises(InvalidArgumentError, match="the structure"):
        opt.apply(params, {"w": ta.ones(2), "b": ta.ones(2)}, opt.init(params))
    assert opt.apply([], [], opt.init([]))[0] == []


KINDS = {
    "sgd": lambda: ta.optim.SGD(0.1),
    "momentum": lambda: ta.optim.SGD(0.1, momentum=0.9),
    "adam": lambda: ta.optim.Adam(0.1),
}


def two() -> dict[str, Any]:
    return {"a": ta.variable(np.ones((2, 3))), "b": [ta.variable(np.float32(2.0))]}


def walk(opt: Any, params: Any, steps: int) -> None:
    for _ in range(steps):
        loss = lambda p: ta.sum(p["a"] ** 2) * p["b"][0]
        _, grads = ta.value_and_grad(loss)(params)
        opt.update(params, grads)


@pytest.mark.parametrize("name", KINDS)
def test_a_state_that_was_saved_goes_on_as_if_nobody_had_stopped(name: str) -> None:
    opt, params = KINDS[name](), two()
    walk(opt, params, 3)
    state = opt.state(params)
    copies = {
        "a": ta.variable(np.array(params["a"])),
        "b": [ta.variable(np.array(params["b"][0]))],
    }
    outside = ta.optim.SGD(0.1).state({})  # nothing is a state, too
    assert outside["slots"] == []
    walk(opt, params, 2)  # the state is a copy: it stays what it was
    later = KINDS[name]()
    later.restore(copies, state)
    assert later.steps == 3
    walk(later, copies, 2)
    for mine, theirs in ((params["a"], copies["a"]), (params["b"][0], copies["b"][0])):
        assert np.array_equal(np.asarray(mine), np.asarray(theirs))
        assert mine.dtype == theirs.dtype
    walk(later, copies, 1)  # and nothing else holds the moments


def test_the_state_has_the_form_of_the_function() -> None:
    opt, params = ta.optim.Adam(0.1), two()
    fresh, state = opt.init(params), opt.state(params)
    assert optree.tree_structure(fresh) == optree.tree_structure(state)
    for a, b in zip(optree.tree_leaves(fresh), optree.tree_leaves(state), strict=True):
        assert (a.shape, a.dtype, a.tolist()) == (b.shape, b.dtype, b.tolist())
    with ta.ledger() as led:
        opt.state(params)
    assert not led.copies  # zeros, while nothing was updated
    walk(opt, params, 1)
    with ta.ledger() as led:
        opt.state(params)
    assert dict(led.copies) == {"ExplicitDuplicate": 4}


def test_a_state_that_does_not_fit_is_refused_and_nothing_changes() -> None:
    opt, params = ta.optim.Adam(0.1), two()
    walk(opt, params, 1)
    state = opt.state(params)
    before = [x.tolist() for x in optree.tree_leaves(state)]
    small = {"a": np.ones(2), "b": [np.ones(())]}
    for wrong, said in (
        ({}, "the structure"),
        ({**state, "slots": state["slots"][:1]}, "the structure"),
        ({**state, "slots": [state["slots"][0], small]}, "a moment of shape (2,)"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            opt.restore(params, wrong)
        assert (caught.value.operation, caught.value.argument) == ("restore", "state")
        assert said in caught.value.found
    with pytest.raises(NotALeafError, match="`restore` refused `params`"):
        opt.restore([np.ones(2)], {"steps": 1, "slots": [[np.ones(2)]] * 2})
    with pytest.raises(NotALeafError, match="`state` refused `params`"):
        opt.state([np.ones(2)])
    assert [x.tolist() for x in optree.tree_leaves(opt.state(params))] == before


def test_errors_name_the_call_and_the_argument_that_users_wrote() -> None:
    w = ta.variable(START)
    opt, other = ta.optim.SGD(0.1), w.clone()
    with pytest.raises(
        NotUniqueError, match="`update` refused `params`.*shape \\(3,\\)"
    ):
        opt.update([w], bundle(w, GRADS[0]))
    del other
    with pytest.raises(NotALeafError, match="`update` refused `params`: a `numpy.nda"):
        opt.update([START], bundle(w, GRADS[0]))
    with pytest.raises(
        InvalidArgumentError, match="`Adam` refused `lr`: found a `list`"
    ):
        ta.optim.Adam([w])  # type: ignore[arg-type]
    with (
        ta.exclusive(w),
        pytest.raises(UseAfterMoveError, match="block has"),
    ):
        w.shape
    assert w.tolist() == START.tolist()
