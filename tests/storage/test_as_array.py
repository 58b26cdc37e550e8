"""`np.asarray` of what owns or lends a value: its elements, never the object itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import (
    BorrowConflictError,
    DTypeError,
    ExpiredCapabilityError,
    InvalidArgumentError,
    UseAfterMoveError,
)
from tenferro_ad.storage import Rank1, TypedTensor


def typed(t: ta.Tensor) -> TypedTensor[np.float64, Rank1]:
    return TypedTensor.of(t, np.float64, Rank1)


KINDS: dict[str, Callable[[ta.Tensor], Any]] = {
    "owner": lambda t: t,
    "view": lambda t: t.as_view(),
    "exclusive view": lambda t: t.as_view_mut(),
    "typed owner": lambda t: TypedTensor.of(t, np.float64, Rank1),
    "typed view": lambda t: TypedTensor.of(t, np.float64, Rank1).as_view(),
    "typed exclusive view": lambda t: TypedTensor.of(
        t, np.float64, Rank1
    ).as_view_mut(),
}


def owner() -> ta.Tensor:
    return ta.asarray([1.0, 2.0, 3.0]).into_value()


@pytest.mark.parametrize("kind", KINDS)
def test_it_lends_the_elements_and_copies_nothing(kind: str) -> None:
    thing = KINDS[kind](owner())
    with ta.ledger() as led:
        array = np.asarray(thing)
    assert not led.copies
    assert array.dtype == np.float64
    assert array.tolist() == [1.0, 2.0, 3.0]
    assert not array.flags.writeable
    assert np.sum(thing) == 6.0
    np.testing.assert_array_equal(thing, array)


def test_the_array_keeps_the_borrow() -> None:
    t = owner()
    array = np.asarray(t)
    with pytest.raises(BorrowConflictError):
        t.as_view_mut()
    del array
    t.as_view_mut().close()


def test_a_copy_is_free_of_it() -> None:
    t = owner()
    for array in (np.array(t), np.asarray(t, dtype=np.float32)):
        assert array.flags.writeable
        t.as_view_mut().close()


def test_what_would_lose_something_is_refused() -> None:
    z = ta.asarray([1j]).into_value()
    with pytest.raises(DTypeError, match="complex128"):
        np.asarray(z, dtype=np.float64)
    with pytest.raises(DTypeError, match="copy=None"):
        np.asarray(owner(), dtype=np.float32, copy=False)
    assert np.asarray(z, dtype=np.complex64).tolist() == [1j]


def test_a_guard_lends_its_value_until_it_ends() -> None:
    x = ta.asarray([1.0, 2.0])
    with x.value() as guard:
        assert np.asarray(guard).tolist() == [1.0, 2.0]
    with pytest.raises(ExpiredCapabilityError):
        np.asarray(guard)


@pytest.mark.parametrize("kind", [k for k in KINDS if "view" in k])
def test_a_view_is_not_taken_for_outside_data(kind: str) -> None:
    with pytest.raises(DTypeError, match="a borrowed view"):
        ta.asarray(KINDS[kind](owner()))


@pytest.mark.parametrize("kind", ["owner", "typed owner"])
def test_owners_move_in_as_they_are_or_stay(kind: str) -> None:
    thing = KINDS[kind](owner())
    with pytest.raises(InvalidArgumentError, match="`asarray` refused `dtype`"):
        ta.asarray(thing, dtype=np.float32)
    with ta.ledger() as led:
        copied = ta.asarray(thing, copy=True)
    assert led.copies == {"ExplicitDuplicate": 1}
    with ta.ledger() as led:
        moved = ta.asarray(thing, dtype=np.float64)
    assert not led.copies
    assert moved.tolist() == copied.tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(UseAfterMoveError):
        thing.as_view()
