"""Property tests of layouts: what is accepted lies inside, and agrees with NumPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tenferro_ad.errors import (
    DisjointViewError,
    GroupConstructionError,
    IndexRangeError,
    LayoutError,
    ShapeError,
)
from tenferro_ad.storage import (
    AllocationGroup,
    DescriptorRequest,
    PreparedContiguousRead,
    PreparedStridedRead,
)

DTYPES = [np.bool_, np.int8, np.uint16, np.int32, np.float32, np.float64, np.complex128]
ITEM = 8
SPAN = 256

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


@st.composite
def requests(draw: st.DrawFn) -> DescriptorRequest:
    """Any facts at all: most are wrong in one way or another."""
    shape = draw(st.lists(st.integers(-1, 6), max_size=3))
    steps = st.one_of(
        st.integers(-6, 6).map(lambda n: n * ITEM),
        st.sampled_from([3, 12, 2**61, 2**63, -(2**62)]),
    )
    strides = draw(
        st.none() | st.lists(steps, min_size=len(shape), max_size=len(shape))
    )
    offset = draw(st.integers(-1, 34).map(lambda n: n * ITEM) | st.sampled_from([4]))
    return DescriptorRequest(
        tuple(shape), np.float64, 0, None if strides is None else tuple(strides), offset
    )


def addresses(request: DescriptorRequest) -> list[int]:
    """First byte of every element, by enumeration: the model of the arithmetic."""
    strides = request.strides
    if strides is None:
        strides = tuple(np.zeros(request.shape, np.float64).strides)
    return [
        request.offset + sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, request.shape))
    ]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda v: v.permute_dims(("a", "b")), ShapeError),
        (lambda v: v.permute_dims((0.0, 1.0)), ShapeError),
        (lambda v: v.permute_dims(1), ShapeError),
        (lambda v: v.reshape((3.0, 2.0)), ShapeError),
        (lambda v: v.reshape(6), ShapeError),
        (lambda v: v.broadcast_to("ab"), ShapeError),
        (lambda v: v.broadcast_to(3), ShapeError),
        (lambda v: v.flip("a"), IndexRangeError),
        (lambda v: v.flip(None), IndexRangeError),
        (lambda v: v.flip(2), IndexRangeError),
        (lambda v: v[np.array([0, 1])], IndexRangeError),
        (lambda v: v[True], IndexRangeError),
    ],
)
def test_facts_that_are_no_integers_are_refused_by_name(
    host: Any, call: Any, error: type
) -> None:
    with host.tensor(np.zeros((2, 3))).as_view() as view:
        with pytest.raises(error) as caught:
            call(view)
        assert type(caught.value) is error


def test_shapes_are_tuples_of_python_integers_whatever_was_given(host: Any) -> None:
    with host.tensor(np.zeros((2, 3))).as_view() as view:
        for found in (
            view.reshape([3, 2]),  # type: ignore[arg-type]
            view.reshape(tuple(np.array([3, 2]))),
            view.broadcast_to([4, 2, 3]),  # type: ignore[arg-type]
        ):
            assert type(found.shape) is tuple
            assert all(type(n) is int for n in found.shape)


@given(request=requests())
def test_a_layout_is_accepted_exactly_when_every_element_fits(
    hosts: Any, request: DescriptorRequest
) -> None:
    storage = hosts().storage(SPAN)
    sane = all(n >= 0 for n in request.shape) and request.offset >= 0
    places = addresses(request) if sane else []
    whole_steps = all(
        stride % ITEM == 0
        for extent, stride in zip(request.shape, request.strides or (), strict=False)
        if extent > 1
    )
    fits = (
        sane
        and request.offset % ITEM == 0
        and whole_steps
        and all(0 <= at <= SPAN - ITEM for at in places)
        and (bool(places) or request.offset <= SPAN)
        and all(abs(stride) < 2**63 for stride in request.strides or ())
    )
    if not fits:
        with pytest.raises(GroupConstructionError) as caught:
            AllocationGroup.of_owners([storage], [request])
        assert isinstance(caught.value.__cause__, LayoutError)
        assert caught.value.recovered == (storage,)
        return
    group, (slot,) = AllocationGroup.of_owners([storage], [request])
    reach = group.record(slot).byte_range
    if places:
        assert (reach.start, reach.stop) == (min(places), max(places) + ITEM)
    else:
        assert len(reach) == 0
    view = group.view(slot)
    assert view.shape == request.shape
    assert view.numpy().size == len(places)


@given(request=requests())
def test_write_access_never_reaches_one_byte_twice(
    hosts: Any, request: DescriptorRequest
) -> None:
    try:
        group, (slot,) = AllocationGroup.of_owners([hosts().storage(SPAN)], [request])
    except GroupConstructionError:
        return
    places = addresses(request)
    try:
        group.view_mut(slot).fill(1.0)
    except LayoutError:
        return
    assert len(set(places)) == len(places)


@st.composite
def keys(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[Any, ...]:
    bound = st.none() | st.integers(-7, 7)
    step = st.none() | st.integers(-3, 3).filter(bool)
    part = [
        draw(st.integers(-6, 6) | st.builds(slice, bound, bound, step)) for _ in shape
    ]
    if draw(st.booleans()):
        part.insert(draw(st.integers(0, len(part))), None)
    return tuple(part)


@given(data=st.data(), shape=shapes, dtype=st.sampled_from(DTYPES))
def test_derived_views_agree_with_numpy(
    hosts: Any, data: st.DataObject, shape: tuple[int, ...], dtype: Any
) -> None:
    array = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    view = hosts().tensor(array.copy()).as_view()
    axes = data.draw(st.permutations(range(len(shape))))
    turned, expected = view.permute_dims(axes), array.transpose(axes)
    key = data.draw(keys(expected.shape))
    try:
        expected = expected[key]
    except IndexError:
        with pytest.raises(IndexRangeError):
            turned[key]
        return
    part = turned[key]
    assert part.shape == expected.shape
    assert np.array_equal(part.numpy(), expected)
    flat = (expected.size,)
    try:
        reshaped = part.reshape(flat)
    except LayoutError:
        return
    assert np.array_equal(reshaped.numpy(), expected.reshape(flat))


@given(data=st.data(), shape=shapes)
def test_reshape_without_copy_agrees_with_numpy(
    hosts: Any, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    array = np.arange(float(math.prod(shape))).reshape(shape)
    view = hosts().tensor(array.copy()).as_view()
    key = data.draw(keys(shape))
    try:
        expected = array[key]
    except IndexError:
        return
    new = data.draw(st.permutations([n for n in expected.shape for _ in (0,)] + [1]))
    part = view[key]
    try:
        ours = part.reshape(tuple(new))
    except LayoutError:
        with pytest.raises(ValueError, match="copy"):
            np.reshape(expected, tuple(new), copy=False)
        return
    assert np.array_equal(ours.numpy(), expected.reshape(tuple(new)))
    with pytest.raises(ShapeError):
        part.reshape((expected.size + 1,))


@given(data=st.data(), shape=shapes)
def test_both_traversals_visit_every_element_in_c_order(
    hosts: Any, data: st.DataObject, shape: tuple[int, ...]
) -> None:
    array = np.arange(float(math.prod(shape))).reshape(shape)
    tensor = hosts().tensor(array.copy())
    axes = data.draw(st.permutations(range(len(shape))))
    key = data.draw(keys(tuple(shape[axis] for axis in axes)))
    try:
        expected = array.transpose(axes)[key]
    except IndexError:
        return
    prepared = tensor.as_view().permute_dims(axes)[key].prepare_host()
    match prepared:
        case PreparedContiguousRead():
            seen = list(prepared.iter_contiguous())
        case PreparedStridedRead():
            seen = list(prepared.iter_strided())
    assert seen == expected.ravel().tolist()


def test_reading_a_broadcast_repeats_elements(host: Any) -> None:
    tensor = host.tensor(np.arange(3.0))
    prepared = tensor.as_view().broadcast_to((2, 3)).prepare_host()
    assert isinstance(prepared, PreparedStridedRead)
    assert list(prepared.iter_strided()) == [0, 1, 2, 0, 1, 2]


@given(
    bounds=st.lists(
        st.tuples(
            st.integers(0, 16), st.integers(0, 16), st.sampled_from([-2, -1, 1, 2])
        ),
        max_size=5,
    ),
    order=st.randoms(use_true_random=False),
)
def test_splits_are_disjoint_and_their_verdict_ignores_the_order(
    hosts: Any, bounds: list[tuple[int, int, int]], order: Any
) -> None:
    parts = [slice(*sorted(pair)) for *pair, _ in bounds]
    keys = [
        range(16)[part][::step]
        for part, (_, _, step) in zip(parts, bounds, strict=True)
    ]
    requests = [
        DescriptorRequest(
            (len(key),),
            np.float64,
            0,
            (key.step * ITEM,),
            key.start * ITEM if key else 0,
        )
        for key in keys
    ]
    group, slots = AllocationGroup.of_owners([hosts().storage(128)], requests)
    shuffled = list(slots)
    order.shuffle(shuffled)
    verdicts = []
    for chosen in (slots, shuffled):
        try:
            children = group.split_mut(chosen)
        except DisjointViewError as error:
            verdicts.append((type(error), error.slots))
            continue
        verdicts.append((None, ()))
        for number, child in enumerate(children):
            child.fill(number)
        for number, child in enumerate(children):
            assert (child.numpy() == number).all()
            child.close()
    assert verdicts[0] == verdicts[1]
    if verdicts[0][0] is None:
        members = [set(key) for key in keys]
        assert sum(map(len, members)) == len(set().union(*members))
