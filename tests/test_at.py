"""`x.at[key]` against NumPy's item assignment, and its derivatives."""

from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta

X = np.arange(12.0).reshape(3, 4)
KEYS = [
    1,
    (1, 2),
    slice(None, None, -2),
    (slice(None), slice(1, 3)),
    (..., 0),
    np.array([2, 0]),
    (np.array([0, 1]), np.array([3, 3])),
    X > 6,
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_set_and_add_are_numpy_assignment_on_a_copy(key: Any) -> None:
    x = ta.asarray(X)
    wanted = X.copy()
    wanted[key] = 7.5
    assert np.array_equal(x.at[key].set(7.5).numpy(), wanted)
    wanted = X.copy()
    np.add.at(wanted, key, 0.5)
    assert np.array_equal(x.at[key].add(0.5).numpy(), wanted)
    assert np.array_equal(x.numpy(), X)


def test_repeated_indices_add_up_and_the_last_one_is_set() -> None:
    x = ta.asarray(np.zeros(3))
    at = np.array([1, 1, 2])
    v = np.array([1.0, 2.0, 4.0])
    assert x.at[at].add(v).tolist() == [0.0, 3.0, 4.0]
    assert x.at[at].set(v).tolist() == [0.0, 2.0, 4.0]


def test_gradients_of_what_is_replaced_and_what_replaces() -> None:
    weights = np.arange(1.0, 13.0).reshape(3, 4)

    def loss(x: Any, v: Any) -> Any:
        return ta.sum(x.at[1, ::2].set(v) * weights)

    gx, gv = ta.grad(loss, (0, 1))(X, np.array([5.0, 6.0]))
    wanted = weights.copy()
    wanted[1, ::2] = 0
    assert np.array_equal(gx.numpy(), wanted)
    assert gv.tolist() == weights[1, ::2].tolist()
    ta.testing.check_grads(loss, (X, np.array([5.0, 6.0])), order=2)


def test_item_assignment_names_the_way() -> None:
    x = ta.asarray(X)
    with pytest.raises(ta.errors.ImmutableTensorError, match=r"x\.at\[i\]\.set"):
        x[0] = 1.0


def test_a_value_on_its_own_device_is_another_handle() -> None:
    x = ta.asarray(X)
    with ta.ledger() as led:
        y = x.to("cpu")
        z = x.to(x.device)
    assert not led.allocations
    assert not led.copies
    assert np.shares_memory(y.numpy(), z.numpy())
    with pytest.raises(ta.errors.InvalidArgumentError, match="nowhere:0"):
        x.to("nowhere:0")
