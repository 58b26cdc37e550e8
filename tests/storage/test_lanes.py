"""Every required lane keeps the same ownership rules over its own memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenferro_ad import ledger
from tenferro_ad._aval import aval_of
from tenferro_ad.errors import BorrowConflictError
from tenferro_ad.storage import AllocationGroup, Tensor, transfer


def upload(array: np.ndarray[Any, Any], lane: Any) -> Tensor:
    aval = aval_of(array.shape, array.dtype, lane)
    return transfer(array, aval, "upload").into_tensor()


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.array(2 + 3j),
        np.zeros((0, 4), np.int32),
        np.ones(40_000, np.float32),
    ],
    ids=["matrix", "scalar", "empty", "pooled"],
)
def test_values_go_to_a_lane_and_come_back(
    lane: Any, array: np.ndarray[Any, Any]
) -> None:
    with ledger() as led:
        tensor = upload(array, lane)
    led.expect(allocations={"TransferDestination": 1}, copies={"Transfer": 1})
    assert tensor.device is lane
    assert tensor.dtype == array.dtype
    assert np.array_equal(tensor.numpy(), array)
    copy = tensor.as_view().duplicate()
    assert copy.device is lane
    assert np.array_equal(copy.numpy(), array)
    assert led.live == 1
    del tensor
    assert led.live == 0


def test_views_and_writes_follow_the_same_rules_on_every_lane(lane: Any) -> None:
    group, (slot,) = AllocationGroup.of_tensors(
        [upload(np.arange(12.0).reshape(3, 4), lane)]
    )
    with group.view(slot) as view:
        assert view[::-1, 1:3].permute_dims((1, 0)).numpy().tolist() == [
            [9.0, 5.0, 1.0],
            [10.0, 6.0, 2.0],
        ]
        with pytest.raises(BorrowConflictError):
            group.view_mut(slot)
    with group.view_mut(slot) as m:
        upper, lower = m.split_mut([slice(0, 1), slice(1, 3)])
        upper.fill(-1.0)
        lower.write()[:, 0] = 7.0
        upper.close()
        lower.close()
    tensor = group.into_tensor(slot)
    assert tensor.numpy()[:, 0].tolist() == [-1.0, 7.0, 7.0]
    tensor.prepare_device().close()
    tensor.prepare_device_mut().close()
