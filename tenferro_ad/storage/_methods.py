"""The canonical method lists of the tensor families (contract G4).

Six classes carry them: owner, view and exclusive view, erased (`Tensor`, `TensorView`,
`TensorViewMut`) and typed (`TypedTensor`, `TypedTensorView`, `TypedTensorViewMut`).
Reading is written once, on `TensorView`; writing once, on `TensorViewMut`; using up is
for owners (and groups). The owner reaches reading and writing by reborrowing, and the
typed classes add the static dtype and rank to the one implementation. A test compares
every class with these lists, so none can drift.
"""

from __future__ import annotations

from typing import Final

READ: Final = (
    "shape",
    "dtype",
    "ndim",
    "size",
    "nbytes",
    "strides",
    "span",
    "device",
    "descriptor",
    "as_view",
    "__getitem__",
    "permute_dims",
    "reshape",
    "broadcast_to",
    "flip",
    "reinterpret",
    "get",
    "numpy",
    "prepare_host",
    "prepare_device",
    "checked_read",
    "duplicate",
    "__repr__",
)
"""On all six classes. On exclusive views `__getitem__` gives a writable part."""

WRITE: Final = (
    "as_view_mut",
    "split_mut",
    "reinterpret_mut",
    "get_mut",
    "write",
    "fill",
    "copy_from",
    "prepare_host_mut",
    "prepare_device_mut",
    "checked_write",
)
"""On owners and exclusive views."""

CONSUME: Final = ("into_reinterpreted",)
"""On owners only."""

BORROWED: Final = ("close", "__enter__", "__exit__")
"""On views only: they end."""

TYPED: Final = ("rank", "of", "erase", "as_rank")
"""On the typed classes only: the way in, the way out, and what they add."""
