"""What a type checker must keep: dtype and rank through every call that keeps them.

`assert_type` fails in mypy when a fact is lost, and the run-time rank is compared too.
"""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np

import tenferro_ad as ta
from tenferro_ad.storage import (
    DynRank,
    Rank1,
    Rank2,
    Rank3,
    Tensor,
    TensorView,
    TensorViewMut,
    TypedTensor,
    TypedTensorView,
    TypedTensorViewMut,
)


def complex_matrix() -> Tensor:
    return ta.asarray(np.arange(6).reshape(3, 2), dtype=np.complex128).into_value()


def test_reading_keeps_dtype_and_rank() -> None:
    owner = TypedTensor.of(complex_matrix(), np.complex128, Rank2)
    assert_type(owner, TypedTensor[np.complex128, Rank2])
    assert_type(owner.duplicate(), TypedTensor[np.complex128, Rank2])
    assert_type(owner.numpy(), np.ndarray[Any, np.dtype[np.complex128]])
    assert_type(owner.get((0, 1)), np.complex128)
    assert_type(owner.dtype, np.dtype[np.complex128])
    with owner.as_view() as view:
        assert_type(view, TypedTensorView[np.complex128, Rank2])
        assert_type(view.as_view(), TypedTensorView[np.complex128, Rank2])
        assert_type(view[1:], TypedTensorView[np.complex128, Rank2])
        assert_type(view[..., ::2], TypedTensorView[np.complex128, Rank2])
        assert_type(view[1:, ::2], TypedTensorView[np.complex128, Rank2])
        assert_type(view.flip(0), TypedTensorView[np.complex128, Rank2])
        assert_type(view.permute_dims((1, 0)), TypedTensorView[np.complex128, Rank2])
        assert_type(view[0], TypedTensorView[np.complex128, DynRank])
        assert_type(view[:, 0], TypedTensorView[np.complex128, DynRank])
        assert_type(view[0].as_rank(Rank1), TypedTensorView[np.complex128, Rank1])
        assert_type(view.reshape((6,)), TypedTensorView[np.complex128, DynRank])
        assert view[1:, ::2].rank is view.flip(0).rank is Rank2
        assert view[:, 0].rank is DynRank


def test_writing_keeps_dtype_and_rank() -> None:
    owner = TypedTensor.of(complex_matrix(), np.complex128, Rank2)
    with owner.as_view_mut() as m:
        assert_type(m, TypedTensorViewMut[np.complex128, Rank2])
        assert_type(m.write(), np.ndarray[Any, np.dtype[np.complex128]])
        with m[1:] as rows:
            assert_type(rows, TypedTensorViewMut[np.complex128, Rank2])
            assert rows.rank is Rank2
        with m[0] as row:
            assert_type(row, TypedTensorViewMut[np.complex128, DynRank])
        with m.as_view() as shared:
            assert_type(shared, TypedTensorView[np.complex128, Rank2])
        children = m.split_mut([slice(0, 1), slice(1, 3)])
        assert_type(children, list[TypedTensorViewMut[np.complex128, Rank2]])
        for child in children:
            child.close()


def test_reinterpretation_has_the_rank_that_the_caller_names() -> None:
    owner = TypedTensor.of(complex_matrix(), np.complex128, Rank2)
    with owner.as_view() as view:
        open_rank = view.reinterpret(np.float64)
        assert_type(open_rank, TypedTensorView[np.float64, DynRank])
        named = view.reinterpret(np.float64, Rank3)
        assert_type(named, TypedTensorView[np.float64, Rank3])
        assert (open_rank.rank, named.rank) == (DynRank, Rank3)
        del open_rank, named
    with owner.as_view_mut() as m, m.reinterpret_mut(np.float64, Rank3) as parts:
        assert_type(parts, TypedTensorViewMut[np.float64, Rank3])
    real = owner.into_reinterpreted(np.float64, Rank3)
    assert_type(real, TypedTensor[np.float64, Rank3])
    assert real.rank is Rank3


def test_the_erased_family_has_its_own_types() -> None:
    owner = complex_matrix()
    assert_type(owner.as_view(), TensorView)
    with owner.as_view_mut() as m:
        assert_type(m, TensorViewMut)
        with m[0] as row:
            assert_type(row, TensorViewMut)
    assert_type(TypedTensor.of(owner, np.complex128, Rank2).erase(), Tensor)
