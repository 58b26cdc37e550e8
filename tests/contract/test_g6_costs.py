"""G6: what a `Cost:` line promises is counted.

Every call of the storage classes that says "no allocation of storage, provider call,
wait or transfer" is made here, between two readings of the ledger and of a provider
that counts what it is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.storage import Rank2, Tensor, TypedTensor
from tests.scripts import script

CHECKER = script("check-storage-element-access-docs")
FREE = "no allocation of storage, provider call, wait or transfer"

READING: dict[str, Callable[[Any], Any]] = {
    "as_view": lambda v: v.as_view(),
    "__getitem__": lambda v: v[0],
    "permute_dims": lambda v: v.permute_dims((1, 0)),
    "reshape": lambda v: v.reshape((4, 3)),
    "broadcast_to": lambda v: v.broadcast_to((2, 3, 4)),
    "flip": lambda v: v.flip(0),
}
WRITING: dict[str, Callable[[Any], Any]] = {
    "as_view_mut": lambda v: v.as_view_mut(),
}
RANKS: dict[str, Callable[[Any], Any]] = {
    "erase": lambda v: v.erase(),
    "as_rank": lambda v: v.as_rank(Rank2),
}


def typed(owner: Tensor) -> TypedTensor[Any, Any]:
    return TypedTensor.of(owner, np.float64, Rank2)


STARTS: dict[str, Callable[[Tensor], Any]] = {
    "Tensor": lambda t: t,
    "TensorView": lambda t: t.as_view(),
    "TensorViewMut": lambda t: t.as_view_mut(),
    "TypedTensor": typed,
    "TypedTensorView": lambda t: typed(t).as_view(),
    "TypedTensorViewMut": lambda t: typed(t).as_view_mut(),
    "PreparedContiguousRead": lambda t: t.prepare_host(),
    "PreparedContiguousWrite": lambda t: t.prepare_host_mut(),
    "PreparedStridedRead": lambda t: t[:, 1].prepare_host(),
    "PreparedStridedWrite": lambda t: t.as_view_mut()[:, 1].prepare_host_mut(),
}
# Constructors of typed views take a view that somebody has.
OF = {
    "TypedTensor": lambda t: t,
    "TypedTensorView": lambda t: t.as_view(),
    "TypedTensorViewMut": lambda t: t.as_view_mut(),
}
PAYLOADS = {
    "PreparedContiguousRead": ("as_slice", "iter_contiguous"),
    "PreparedContiguousWrite": ("as_slice_mut", "iter_contiguous_mut"),
    "PreparedStridedRead": ("as_strided_array", "iter_strided"),
    "PreparedStridedWrite": ("as_strided_array_mut", "iter_strided_mut"),
}


def claims() -> Iterator[str]:
    """Calls that say so, directly or through the call that they name."""
    known = CHECKER.costs()
    for owner, methods in CHECKER.CALLS.items():
        for name in methods.split():
            text = known[f"{owner}.{name}"]
            if text.startswith("as `"):
                text = known[text.split("`")[1]]
            if FREE in text:
                yield f"{owner}.{name}"


def call(owner: str, name: str, start: Any) -> Any:
    if name == "of":
        kind = type(STARTS[owner](start))
        return lambda held: kind.of(held, np.float64, Rank2)
    for table in (READING, WRITING, RANKS):
        if name in table:
            return table[name]
    assert name in PAYLOADS[owner]
    return lambda held: getattr(held, name)()


@pytest.mark.clause("g6-cost-line", "g4-as-view-counters")
@pytest.mark.parametrize("claim", sorted(claims()))
def test_a_call_that_costs_no_storage_is_counted(claim: str, kernel: Any) -> None:
    owner, name = claim.split(".")
    make = (
        call(owner, name, kernel.owner()) if name == "of" else call(owner, name, None)
    )
    held = (OF if name == "of" else STARTS)[owner](kernel.owner())
    before = kernel.host.calls
    with ta.ledger() as led:
        made = make(held)
    assert kernel.host.calls == before
    assert not led.allocations
    assert not led.copies
    del made, held


def test_the_claims_are_many_and_reading_bytes_is_none_of_them() -> None:
    found = set(claims())
    assert {
        f"{kind}.as_view" for kind in ("Tensor", "TensorView", "TypedTensor")
    } <= found
    assert not {name for name in found if name.endswith((".get", ".numpy", ".write"))}
    assert len(found) == len(list(claims())) > 40
