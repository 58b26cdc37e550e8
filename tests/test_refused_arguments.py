"""Arguments that make no sense: a typed error in the name of the public call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn, optim
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import (
    DeviceMismatchError,
    DTypeError,
    ExpiredCapabilityError,
    IndexRangeError,
    InvalidArgumentError,
    TenferroError,
)

X = np.ones((2, 2))
HUGE = 10**5000  # Python refuses to write it down


def flipped(x: Any) -> Any:
    """In the other precision: no dtype can go round a loop."""
    return ta.astype(x, ta.float32 if x.dtype == ta.float64 else ta.float64)


# call, error, operation, argument
CASES: list[tuple[Callable[[], Any], type[TenferroError], str, str]] = [
    (lambda: ta.full(2, 10**400, dtype=ta.float64),
     InvalidArgumentError, "full", "fill_value"),
    (lambda: ta.full(2, HUGE, dtype=ta.int8),
     InvalidArgumentError, "full", "fill_value"),
    (lambda: ta.arange(0, np.inf), InvalidArgumentError, "arange", "step"),
    (lambda: ta.arange(np.nan), InvalidArgumentError, "arange", "step"),
    (lambda: ta.arange(0, HUGE, 1.0), InvalidArgumentError, "arange", "step"),
    (lambda: ta.linspace(0, 1, (3, 4)), DTypeError, "linspace", "num"),
    (lambda: ta.linspace(0, 1, -1), InvalidArgumentError, "linspace", "num"),
    (lambda: ta.einsum("i,i,i", *np.ones((3, 2)), optimize=lambda *_: None),
     InvalidArgumentError, "einsum", "optimize"),
    (lambda: ta.pad(X, [(1, 2), 3]), InvalidArgumentError, "pad", "pad_width"),
    (lambda: ta.tensordot(X, X, axes=([0],)),
     InvalidArgumentError, "tensordot", "axes"),
    (lambda: ta.tensordot(X, X, axes=-1), InvalidArgumentError, "tensordot", "axes"),
    (lambda: ta.vmap(lambda: ta.zeros(2), axis_size="3")(),
     DTypeError, "vmap", "axis_size"),
    (lambda: ta.vmap(lambda x: x * 2.0, in_axes=None, axis_size=-1)(1.0),
     InvalidArgumentError, "vmap", "axis_size"),
    (lambda: ta.vmap(ta.sin, in_axes=HUGE)(X),
     InvalidArgumentError, "vmap", "in_axes"),
    (lambda: ta.asarray(X)[HUGE], IndexRangeError, "x[key]", "key"),
    (lambda: ta.asarray(X) + HUGE, InvalidArgumentError, "promotion", "number"),
    (lambda: ta.sum(X, axis=HUGE), InvalidArgumentError, "sum", "axis"),
    (lambda: ta.var(X, correction=HUGE), DTypeError, "var", "correction"),
    (lambda: ta.quantile(X, HUGE), DTypeError, "quantile", "q"),
    (lambda: ta.Spec((HUGE,)), InvalidArgumentError, "Spec", "shape"),
    (lambda: ta.asarray(X)[[[0, 1], [1]]], DTypeError, "x[key]", "key"),
    (lambda: ta.grad(lambda a, b: ta.sum(a * b), (0, -2))(X, X),
     InvalidArgumentError, "grad", "argnums"),
    (lambda: ta.jacrev(ta.sin, (0, 0))(X), InvalidArgumentError, "jacrev", "argnums"),
    (lambda: ta.grad(ta.sum, strong_zero="no")(X),
     InvalidArgumentError, "grad", "strong_zero"),
    (lambda: ta.testing.check_grads(ta.sin, X),
     InvalidArgumentError, "check_grads", "args"),
    (lambda: ta.var(X, correction=np.nan), InvalidArgumentError, "var", "correction"),
    (lambda: ta.zeros_like([[1], [2, 3]]), DTypeError, "zeros_like", "x"),
    (lambda: ta.pow(2, np.array([1, -2])), InvalidArgumentError, "pow", "x2"),
    (lambda: ta.special.polygamma(171, X),
     InvalidArgumentError, "polygamma", "n"),
    (lambda: ta.plan(lambda: ta.zeros(3)), InvalidArgumentError, "plan", "f"),
    (lambda: ta.linear_transpose(lambda x: x, 3.0),
     InvalidArgumentError, "linear_transpose", "f"),
    (lambda: ta.take(ta.asarray(X, device=FakeProvider(auto=True)), [[1], [2, 3]],
                     axis=0), DTypeError, "take", "indices"),
    (lambda: ta.exclusive(X).__enter__(), DTypeError, "exclusive", "tensors"),
    (lambda: ta.fused(lambda E, x: E.nosuch(x)), InvalidArgumentError, "fused", "fn"),
    (lambda: ta.fused(max), DTypeError, "fused", "fn"),
    (lambda: ta.custom_vjp(3), DTypeError, "custom_vjp", "f"),
    (lambda: ta.custom_jvp(ta.sin, "a"),
     DTypeError, "custom_jvp", "nondiff_argnums"),
    (lambda: ta.custom_vjp(ta.sin).defvjp(ta.sin, 3), DTypeError, "defvjp", "bwd"),
    (lambda: ta.custom_jvp(ta.sin).defjvp(3), DTypeError, "defjvp", "rule"),
    (lambda: ta.asarray(ta.asarray(X), dtype=ta.float32, copy=False),
     InvalidArgumentError, "asarray", "copy"),
    (lambda: ta.scan(lambda c, _: (flipped(c), None), 1.0, length=3),
     DTypeError, "scan", "f"),
    (lambda: ta.while_loop(lambda c: c < 3, flipped, 1.0),
     DTypeError, "while_loop", "body_fun"),
    (lambda: ta.compile(lambda n: ta.while_loop(lambda c: c < n, flipped, 1.0))(X[0]),
     DTypeError, "while_loop", "body_fun"),
    (lambda: nn.nll_loss(-np.ones((1, 3)), np.array([-1])),
     IndexRangeError, "nll_loss", "target"),
    (lambda: nn.huber_loss(X, X, delta=-HUGE),
     InvalidArgumentError, "huber_loss", "delta"),
    (lambda: optim.Adam(betas=0.9),
     InvalidArgumentError, "Adam", "betas"),
    (lambda: optim.Adam(betas=(0.9,)),
     InvalidArgumentError, "Adam", "betas"),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[2]}-{case[3]}")
def test_it_is_refused_in_the_name_of_the_call(case: Any) -> None:
    call, error, operation, argument = case
    with pytest.raises(error) as caught:
        call()
    assert (caught.value.operation, caught.value.argument) == (operation, argument)


def test_a_tensor_goes_through_dlpack_to_the_device_that_is_asked_for() -> None:
    x, device = ta.asarray(X), FakeProvider(auto=True)
    assert ta.from_dlpack(x, device=device).device is device
    with ta.forbid(copies=True, allocations=True):
        assert ta.from_dlpack(x).device is x.device
        assert ta.from_dlpack(x) is not x


def test_an_update_needs_a_target_and_all_operands() -> None:
    w = ta.variable(np.ones(3))
    step = ta.fused(lambda E, p, g: p - g)
    with ta.exclusive(w) as (target,):
        for operands in ((), (1.0, 2.0)):
            with pytest.raises(InvalidArgumentError, match="expression of 2"):
                ta.update(target, step, *operands)
    with pytest.raises(ExpiredCapabilityError):
        ta.update(target, step, 1.0)
    with pytest.raises(InvalidArgumentError, match="Give p, g"):
        step(w)
    assert w.tolist() == [1.0, 1.0, 1.0]


def test_an_update_reads_no_view_of_another_device() -> None:
    w = ta.variable(np.ones(3))
    far = ta.asarray(np.ones(3), device=FakeProvider(auto=True)).into_value()
    step = ta.fused(lambda E, p, g: p - g)
    with (
        ta.exclusive(w) as (target,),
        far.as_view() as view,
        pytest.raises(DeviceMismatchError),
    ):
        ta.update(target, step, view)
    assert w.tolist() == [1.0, 1.0, 1.0]


def test_reshapes_without_a_copy_are_known_wherever_the_value_is() -> None:
    def flat(x: ta.EagerTensor) -> ta.EagerTensor:
        return ta.reshape(x, (4,), copy=False)

    far = ta.asarray(X, device=FakeProvider(auto=True))
    assert ta.compile(flat)(X).shape == flat(far).shape == (4,)
    for refused in (
        lambda: flat(far.T),
        lambda: ta.compile(lambda x: flat(x.T))(X),
    ):
        with pytest.raises(InvalidArgumentError, match="copy=False"):
            refused()
