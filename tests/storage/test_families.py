"""The same properties of the erased and the typed family, against NumPy as the model.

A program of random steps runs on both families at once: every value, error class and
error field must agree, and both must agree with NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tenferro_ad as ta
from tenferro_ad.errors import LayoutError, TenferroError
from tenferro_ad.storage import (
    RANKS,
    DynRank,
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedStridedRead,
    Tensor,
    TypedTensor,
)

DTYPES = [np.int32, np.float32, np.float64, np.complex64, np.complex128]
BITS = [np.int32, np.uint32, np.int64, np.uint64, *DTYPES[1:]]

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
parts = st.one_of(
    st.integers(-5, 5),
    st.builds(
        slice,
        st.none() | st.integers(-4, 4),
        st.none() | st.integers(-4, 4),
        st.none() | st.sampled_from([-3, -2, -1, 1, 2, 3]),
    ),
    st.just(Ellipsis),
    st.none(),
)
keys = st.lists(parts, max_size=4).map(tuple)
steps = st.one_of(
    st.tuples(st.just("getitem"), keys),
    st.tuples(st.just("permute_dims"), st.permutations(range(3)).map(tuple)),
    st.tuples(st.just("reshape"), shapes),
    st.tuples(st.just("broadcast_to"), shapes),
    st.tuples(st.just("flip"), st.integers(-4, 3)),
    st.tuples(st.just("reinterpret"), st.sampled_from(BITS)),
)
FAMILIES = ["erased", "typed", "dynamic"]


def enter(tensor: Tensor, family: str) -> Any:
    if family == "erased":
        return tensor
    rank = DynRank if family == "dynamic" else RANKS[tensor.ndim]
    return TypedTensor.of(tensor, tensor.dtype.type, rank)


def apply(view: Any, step: tuple[str, Any]) -> Any:
    name, fact = step
    if name == "getitem":
        return view[fact]
    return getattr(view, name)(fact)


def model(array: np.ndarray[Any, Any], step: tuple[str, Any]) -> np.ndarray[Any, Any]:
    """The same step in NumPy, for steps that the family accepted."""
    match step:
        case "getitem", key:
            found = array[key]
            return found if isinstance(found, np.ndarray) else np.asarray(found)
        case "permute_dims", axes:
            return array.transpose(axes)
        case "reshape", shape:
            return array.reshape(shape)
        case "broadcast_to", shape:
            return np.broadcast_to(array, shape)
        case "flip", axis:
            return np.flip(array, axis)
        case "reinterpret", dtype:
            return bits(array, np.dtype(dtype))
    raise AssertionError(step)


def bits(array: np.ndarray[Any, Any], new: np.dtype[Any]) -> np.ndarray[Any, Any]:
    size = array.dtype.itemsize
    dense = np.ascontiguousarray(array).reshape(array.shape)
    if new.itemsize == size:
        return dense.view(new)
    raw = np.frombuffer(dense.tobytes(), new)
    shape = array.shape[:-1] if new.itemsize > size else (*array.shape, 2)
    return raw.reshape(shape)


def outcome(call: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", call()
    except TenferroError as error:
        facts = {k: v for k, v in vars(error).items() if k not in ("recovered", "span")}
        return type(error).__name__, {k: str(v) for k, v in facts.items()}


@given(shape=shapes, dtype=st.sampled_from(DTYPES), program=st.lists(steps, max_size=4))
def test_views_agree_with_numpy_and_between_families(
    hosts: Any, shape: tuple[int, ...], dtype: Any, program: list[tuple[str, Any]]
) -> None:
    count = int(np.prod(shape, dtype=np.int64))
    array = np.arange(1, count + 1).reshape(shape).astype(dtype)
    host = hosts()
    views = [enter(host.tensor(array.copy()), f).as_view() for f in FAMILIES]
    wanted = array
    for step in program:
        found = [outcome(partial(apply, view, step)) for view in views]
        kinds = {kind for kind, _ in found}
        assert len(kinds) == 1, found  # the same error or none
        if kinds != {"value"}:
            assert found[0] == found[1] == found[2]
            continue
        views = [view for _, view in found]
        wanted = model(wanted, step)
    for view in views:
        assert (view.shape, view.ndim, view.size) == (
            wanted.shape,
            wanted.ndim,
            wanted.size,
        )
        assert (view.dtype, view.nbytes) == (wanted.dtype, wanted.nbytes)
        assert view.numpy().tobytes() == wanted.tobytes()
        if wanted.size:
            index = tuple(n - 1 for n in wanted.shape)
            assert view.get(index).tobytes() == wanted[index].tobytes()
    assert len({view.strides for view in views}) == 1
    assert len({repr(view).split("(", 1)[1] for view in views}) == 1
    copies = [view.prepare_host() for view in views]
    for prepared in copies:
        if isinstance(prepared, PreparedContiguousRead):
            elements = [*prepared.iter_contiguous()]
        else:
            assert isinstance(prepared, PreparedStridedRead)
            elements = [*prepared.iter_strided()]
        assert len(elements) == wanted.size
        assert b"".join(e.tobytes() for e in elements) == wanted.tobytes()
        prepared.close()


cuts = st.lists(st.integers(0, 6), max_size=3).map(sorted)


@given(
    rows=st.integers(1, 6),
    cut=cuts,
    step=st.sampled_from([1, 2, -1]),
    family=st.sampled_from(FAMILIES),
)
def test_writing_through_every_family_changes_exactly_the_named_elements(
    hosts: Any, rows: int, cut: list[int], step: int, family: str
) -> None:
    array = np.zeros((rows, 4))
    wanted = array.copy()
    owner = enter(hosts().tensor(array), family)
    edges = [0, *(min(at, rows) for at in cut), rows]
    rows_of = [slice(a, b) for a, b in pairwise(edges)]
    with owner.as_view_mut() as m:
        for number, child in enumerate(m.split_mut(rows_of), start=1):
            child.fill(number)
            child.close()
            wanted[rows_of[number - 1]] = number
        with m[:, ::step] as part:
            part.write()[...] += 10.0
        wanted[:, ::step] += 10.0
        m.get_mut((rows - 1, 3))[...] = -1.0
        wanted[rows - 1, 3] = -1.0
    assert np.array_equal(owner.numpy(), wanted)
    prepared = owner.prepare_host_mut()
    assert isinstance(prepared, PreparedContiguousWrite)
    prepared.as_slice_mut()[0] = 99.0
    prepared.close()
    wanted[0, 0] = 99.0
    copy = owner.duplicate()
    assert type(copy) is type(owner)
    with copy.as_view() as source:
        owner.fill(0.0)
        assert not owner.numpy().any()
        owner.copy_from(source)
    assert np.array_equal(owner.numpy(), wanted)


@given(shape=shapes, dtype=st.sampled_from(DTYPES), target=st.sampled_from(BITS))
def test_consuming_reinterpretation_agrees_and_gives_the_owner_back(
    hosts: Any, shape: tuple[int, ...], dtype: Any, target: Any
) -> None:
    host = hosts()
    results = []
    for family in FAMILIES:
        owner = enter(host.tensor(np.zeros(shape, dtype)), family)
        recovered = None
        try:
            moved = owner.into_reinterpreted(target)
        except LayoutError as error:
            recovered = error.recovered
            results.append(error.field)
        else:
            results.append(f"{moved.shape} {moved.dtype}")
            assert moved.nbytes == np.zeros(shape, dtype).nbytes
        if recovered is not None:
            assert recovered is owner
            assert owner.shape == shape
    assert len(set(results)) == 1


@pytest.mark.parametrize("family", FAMILIES)
def test_a_moved_reinterpretation_may_become_a_retained_value(
    family: str,
) -> None:
    for count in (6, 1 << 14):  # small, and from the pool
        z = ta.asarray(np.arange(count, dtype=np.complex128))
        owner = enter(z.into_value(), family).into_reinterpreted(np.float64)
        erased = owner if family == "erased" else owner.erase()
        live = ta.variable(erased)
        assert live.shape == (count, 2)
        assert live.numpy()[1].tolist() == [1.0, 0.0]
        again = live.into_value().into_reinterpreted(np.complex128)
        assert again.shape == (count,)
        assert again.get((3,)) == 3.0
