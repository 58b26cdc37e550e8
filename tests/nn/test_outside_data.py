"""Data from outside goes to the device of the first tensor, whatever place it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import nn
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import IndexRangeError

X = np.arange(1.0, 7.0).reshape(2, 3)
MASK = np.asarray([[True, False, True], [False, True, True]])
C = np.arange(3.0) + 0.5

CALLS: dict[str, Callable[[Any], Any]] = {
    "where_numbers": lambda x: ta.where(x > 2.0, 1.0, 2.0),
    "where_array": lambda x: ta.where(x > 2.0, X, 0.0),
    "where_mask": lambda x: ta.where(MASK, x, 0.0),
    "where_mask_last": lambda x: ta.where(MASK, 0.0, x),
    "einsum": lambda x: ta.einsum("ij,ij->i", X, x),
    "broadcast_arrays": lambda x: ta.broadcast_arrays(C, x)[0],
    "linear": lambda x: nn.linear(x, X, np.ones(2)),
    "linear_of_data": lambda x: nn.linear(X, x),
    "batch_norm": lambda x: nn.batch_norm(x, C, C, C, C),
    "batch_statistics": lambda x: nn.batch_statistics(x, C, C)[1],
    "attention": lambda x: nn.scaled_dot_product_attention(X, x, X, np.eye(2) > 0),
    "scores": lambda x: nn.scaled_dot_product_attention(x, X, X, np.eye(2)),
    "mse_loss": lambda x: nn.mse_loss(X, x),
}


@pytest.mark.parametrize("name", CALLS)
def test_it_is_computed_where_the_tensor_is(name: str) -> None:
    device = FakeProvider(auto=True)
    found = CALLS[name](ta.asarray(X, device=device))
    assert found.device is device
    assert np.allclose(found.numpy(), CALLS[name](ta.asarray(X)).numpy(), rtol=1e-14)


def test_a_choice_between_numbers_brings_in_nothing() -> None:
    x = ta.asarray(X)
    chosen = x > 2.0
    with ta.ledger() as led:
        ta.where(chosen, 1.0, 2.0)
    led.expect(allocations={"OperationOutput": 1}, copies={})


def test_rows_that_the_host_knows_are_looked_at_before_they_leave() -> None:
    table = ta.asarray(X, device=FakeProvider(auto=True))
    with pytest.raises(IndexRangeError, match="`embedding` refused `indices`"):
        nn.embedding(table, np.asarray([2]))


@pytest.mark.parametrize("log_target", [False, True])
def test_terms_with_target_0_are_0(log_target: bool) -> None:
    target = np.asarray([0.0, 0.25, 0.0])
    x = np.asarray([-1.0, -2.0, -np.inf])
    with np.errstate(divide="ignore"):
        given = np.log(target) if log_target else target

    def loss(x: Any) -> Any:
        return nn.kl_div(x, given, log_target=log_target, reduction="sum")

    assert np.isclose(loss(x).item(), 0.25 * (np.log(0.25) + 2.0))
    assert ta.grad(loss)(x).tolist() == [0.0, -0.25, 0.0]


def test_numbers_of_numpy_are_numbers() -> None:
    x = np.ones((1, 4, 2))
    assert nn.group_norm(x, np.int64(2)).shape == x.shape
    assert nn.huber_loss(x, x, delta=np.float32(1.0)).item() == 0.0
    assert nn.adaptive_avg_pool(x, np.int32(1)).shape == (1, 4, 1)
