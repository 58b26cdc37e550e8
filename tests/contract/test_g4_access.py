"""G4: prepared host access and traversal. One test for each clause, named after it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad.errors import (
    AccessError,
    BorrowConflictError,
    ExpiredCapabilityError,
    GroupConstructionError,
    IndexRangeError,
    LayoutError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    AllocationGroup,
    CheckedInjectiveStrided,
    CheckedRead,
    CheckedStrided,
    CheckedWrite,
    DescriptorRequest,
    HostReadGuard,
    HostWriteGuard,
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    PreparedHostRead,
    PreparedHostWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
    Rank1,
    Rank2,
    Tensor,
    TypedTensor,
    TypedTensorView,
    TypedTensorViewMut,
    WriteInjectivityProof,
    validations,
)
from tenferro_ad.storage import _traversal as traversal

SOURCES = Path(storage_package.__file__).parent


def mapped(kernel: Any, size: int) -> Tensor:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(size * 8)], [DescriptorRequest((size,), np.float64)]
    )
    return group.into_tensor(slot)


def function(source: Any) -> ast.FunctionDef:
    found = ast.parse(textwrap.dedent(inspect.getsource(source))).body[0]
    assert isinstance(found, ast.FunctionDef)
    return found


def calls(source: Any) -> set[str]:
    return {
        ast.unparse(node.func)
        for node in ast.walk(function(source))
        if isinstance(node, ast.Call)
    }


# ---- element access


@pytest.mark.clause("g4-random-access-cost")
def test_indexed_get_and_set_check_bounds_each_time(kernel: Any) -> None:
    for owner in (
        kernel.owner((3, 4)),
        TypedTensor.of(kernel.owner((3, 4)), np.float64, Rank2),
    ):
        assert owner.get((1, 2)) == owner.get((-2, -2)) == 6.0
        for wrong in ((3, 0), (0, -5), (0,), (0, 0, 0)):
            with pytest.raises(IndexRangeError):
                owner.get(wrong)
            with pytest.raises(IndexRangeError):
                owner.get_mut(wrong)
        owner.get_mut((2, 3))[...] = -1.0
        assert owner.get((2, 3)) == -1.0
    tensor = mapped(kernel, 4)
    tensor.get((0,))
    tensor.get((1,))
    assert kernel.mapped.maps == 2  # work for each call: not the loop interface


@pytest.mark.clause("g4-resolve-once")
@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_each_traversal_resolves_once_for_all_its_elements(
    kernel: Any, size: int
) -> None:
    tensor = mapped(kernel, size)
    proofs = validations.snapshot()
    strong = tensor._owner_storage._resource.provider.strong_count
    whole = tensor.as_view().prepare_host()
    assert isinstance(whole, PreparedContiguousRead)
    assert float(whole.as_slice().sum()) == 0.0
    whole.close()
    some = tensor[::-1].prepare_host()
    if size > 1:
        assert isinstance(some, PreparedStridedRead)
        assert some.as_strided_array().size == size
        if size <= 1000:
            assert sum(1 for _ in some.iter_strided()) == size
    some.close()
    assert (kernel.mapped.maps, kernel.mapped.unmaps) == (2, 2)
    tensor.as_view().prepare_device().close()
    assert kernel.mapped.bindings == 1
    assert validations.snapshot() == proofs
    assert tensor._owner_storage._resource.provider.strong_count == strong


@pytest.mark.clause("g4-one-hierarchy")
def test_view_methods_wrap_the_one_preparation_and_give_back_the_same_view(
    kernel: Any,
) -> None:
    kernel.mapped.fail = True
    tensor = mapped(kernel, 4)
    for target in ("prepare_host", "prepare_device"):
        view = tensor.as_view()
        with pytest.raises(AccessError) as caught:
            getattr(view, target)()
        assert caught.value.recovered is view
        assert view.shape == (4,)
        view.close()
        entered = TypedTensorView.of(tensor.as_view(), np.float64, Rank1)
        with pytest.raises(AccessError) as caught:
            getattr(entered, target)()
        assert caught.value.recovered is entered
        entered.close()
        with pytest.raises(AccessError) as caught:
            getattr(tensor, target)()
        assert caught.value.recovered is tensor
        m = TypedTensorViewMut.of(tensor.as_view_mut(), np.float64, Rank1)
        with pytest.raises(AccessError) as caught:
            getattr(m, f"{target}_mut")()
        assert caught.value.recovered is m
        kernel.mapped.fail = False
        prepared = getattr(m, f"{target}_mut")()
        assert isinstance(prepared, PreparedContiguousWrite | PreparedDeviceWrite)
        with pytest.raises(UseAfterMoveError, match=target):
            m.fill(0.0)
        prepared.close()
        kernel.mapped.fail = True
    with tensor.as_view_mut() as m:
        repeated = m[:1].broadcast_to((3,)).descriptor()
        lent = m._live("test")._reborrow_muts("test")[0]
        overlapping = storage_package.TensorViewMut._make(lent, repeated, None)
        with pytest.raises(LayoutError):
            overlapping.prepare_host_mut()
        overlapping.close()
    assert kernel.mapped.maps == kernel.mapped.unmaps


@pytest.mark.clause("g4-payload-shapes")
def test_payloads_hold_a_guard_and_one_plan_or_the_checked_pairing(kernel: Any) -> None:
    assert get_args(PreparedHostRead) == (PreparedContiguousRead, PreparedStridedRead)
    assert get_args(PreparedHostWrite) == (
        PreparedContiguousWrite,
        PreparedStridedWrite,
    )
    owner = kernel.owner((3, 4))
    dense = owner.prepare_host()
    assert isinstance(dense.guard, HostReadGuard)
    assert dense.element_range == range(12)
    dense.close()
    gapped = owner[:, ::2].prepare_host()
    assert isinstance(gapped, PreparedStridedRead)
    assert isinstance(gapped.plan, CheckedStrided)
    gapped.close()
    written = owner.prepare_host_mut()
    assert isinstance(written.guard, HostWriteGuard)
    assert written.element_range == range(12)
    written.close()
    with owner.as_view_mut() as m:
        apart = m[:, ::2].prepare_host_mut()
        assert isinstance(apart, PreparedStridedWrite)
        assert isinstance(apart.plan, CheckedInjectiveStrided)
        assert isinstance(apart.plan.injectivity, WriteInjectivityProof)
        apart.close()
    tensor = mapped(kernel, 4)
    read = tensor.prepare_device()
    assert type(read) is PreparedDeviceRead
    assert isinstance(read._dr_checked, CheckedRead)
    read.close()
    write = tensor.prepare_device_mut()
    assert isinstance(write._dw_checked, CheckedWrite)
    write.close()


@pytest.mark.clause("g4-cursor-shapes")
def test_making_an_iterator_does_no_check_map_or_provider_call(kernel: Any) -> None:
    tensor = mapped(kernel, 12)
    prepared = tensor.as_view().reshape((3, 4)).permute_dims((1, 0)).prepare_host()
    assert isinstance(prepared, PreparedStridedRead)
    before = (kernel.mapped.maps, kernel.mapped.calls, validations.snapshot())
    first, second = prepared.iter_strided(), prepared.iter_strided()
    assert before == (kernel.mapped.maps, kernel.mapped.calls, validations.snapshot())
    assert (first._index, first._at, first._remaining) == ([0, 0], 0, 12)
    next(first)
    assert (first._index, first._at, first._remaining) == ([0, 1], 4, 11)
    assert second._remaining == 12  # each has its own cursor
    prepared.close()
    with pytest.raises(ExpiredCapabilityError):
        prepared.iter_strided()


@pytest.mark.clause("g4-traversal-methods")
def test_each_payload_has_its_array_and_iterator_in_one_form(kernel: Any) -> None:
    wanted = {
        PreparedContiguousRead: {"as_slice", "iter_contiguous"},
        PreparedContiguousWrite: {"as_slice_mut", "iter_contiguous_mut"},
        PreparedStridedRead: {"as_strided_array", "iter_strided"},
        PreparedStridedWrite: {"as_strided_array_mut", "iter_strided_mut"},
    }
    for kind, names in wanted.items():
        found = {n for n in vars(kind) if n.startswith(("as_", "iter_"))}
        assert found == names
    owner = kernel.owner((3, 4))
    dense = owner.prepare_host()
    assert dense.as_slice().shape == (12,)
    assert [*dense.iter_contiguous()] == [*range(12)]
    dense.close()
    columns = owner.permute_dims((1, 0)).prepare_host()
    assert [*columns.iter_strided()] == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
    assert not columns.as_strided_array().flags.writeable
    columns.close()


@pytest.mark.clause("g4-plan-content")
def test_a_plan_is_arithmetic_alone_and_writing_needs_the_proof(kernel: Any) -> None:
    plan = kernel.owner((3, 4))[::2, ::-1].descriptor().layout
    assert isinstance(plan, CheckedStrided)
    assert (plan.offset, plan.shape, plan.strides) == (24, (2, 4), (64, -8))
    assert (plan.size, plan.itemsize, plan.carries) == (8, 8, (88, -8))
    assert set(CheckedStrided.__slots__) == {
        "offset",
        "shape",
        "strides",
        "itemsize",
        "carries",
    }
    assert set(CheckedInjectiveStrided.__slots__) == {"plan", "injectivity"}
    with pytest.raises(LayoutError):
        WriteInjectivityProof()
    before = validations.snapshot()
    match plan:  # choosing by type asks nobody
        case CheckedStrided():
            assert validations.snapshot() == before


@pytest.mark.clause("g4-exhaustion")
def test_nothing_but_the_remaining_count_ends_an_iteration(kernel: Any) -> None:
    prepared = kernel.owner((2, 3)).permute_dims((1, 0)).prepare_host()
    iterator = prepared.iter_strided()
    assert len([*iterator]) == 6
    at, index = iterator._at, list(iterator._index)
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)
    assert (iterator._at, iterator._index, iterator._remaining) == (at, index, 0)
    raises = [
        node
        for node in ast.walk(function(traversal.PreparedStridedIter.__next__))
        if isinstance(node, ast.Raise)
    ]
    assert len(raises) == 1
    prepared.close()


@pytest.mark.clause("g4-item-lifetime")
def test_yielded_elements_hold_the_borrow_of_their_guard(kernel: Any) -> None:
    owner = kernel.owner((2, 2))
    prepared = owner.prepare_host_mut()
    cells = prepared.iter_contiguous_mut()
    cell = next(cells)
    prepared.close()
    del cells, prepared
    with pytest.raises(BorrowConflictError):  # nobody reads while it can be written
        owner.numpy()
    cell[...] = 7.0
    del cell
    assert owner.numpy()[0, 0] == 7.0
    turned = owner.permute_dims((1, 0)).prepare_host()
    iterator = turned.iter_strided()
    turned.close()
    with pytest.raises(BorrowConflictError):
        owner.fill(0.0)
    assert [float(x) for x in iterator] == [7.0, 2.0, 1.0, 3.0]
    del iterator
    owner.fill(0.0)


@pytest.mark.clause("g4-raw-access-private")
def test_one_private_function_turns_a_plan_into_buffer_access() -> None:
    raw = "as_strided"
    users = {
        file.stem: [
            node.name
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.FunctionDef)
            and any(
                isinstance(n, ast.Attribute) and n.attr == raw for n in ast.walk(node)
            )
        ]
        for file in SOURCES.glob("*.py")
    }
    assert {k: v for k, v in users.items() if v} == {"_traversal": ["_envelope"]}
    assert not {"_envelope", "PreparedStridedIter"} & set(storage_package.__all__)


CASES: dict[str, tuple[tuple[int, ...], Any]] = {
    "empty": ((0, 3), np.s_[:, ::-1]),
    "one element": ((1, 1), np.s_[:, ::-1]),
    "reversed": ((6,), np.s_[::-1]),
    "gapped": ((4, 6), np.s_[1::2, ::3]),
    "reversed and gapped": ((5, 6), np.s_[::-2, ::-2]),
    "no axis": ((2, 2), np.s_[1, 1]),
}


@pytest.mark.clause("g4-test-iterator-cases")
@pytest.mark.parametrize("case", [*CASES])
def test_iterators_agree_with_numpy_on_every_kind_of_plan(
    kernel: Any, case: str
) -> None:
    shape, key = CASES[case]
    owner = kernel.owner(shape)
    wanted = np.arange(float(np.prod(shape))).reshape(shape)[key]
    prepared = owner[key].prepare_host()
    if isinstance(prepared, PreparedStridedRead):
        assert [*prepared.iter_strided()] == wanted.reshape(-1).tolist()
    else:
        assert [*prepared.iter_contiguous()] == wanted.reshape(-1).tolist()
    prepared.close()
    with owner.as_view_mut() as m:
        writing = m[key].prepare_host_mut()
        cells = (
            writing.iter_strided_mut()
            if isinstance(writing, PreparedStridedWrite)
            else writing.iter_contiguous_mut()
        )
        for cell in cells:
            cell[...] = cell[()] + 100.0
        del cells
        writing.close()
        if wanted.size:
            del cell
    expected = np.arange(float(np.prod(shape))).reshape(shape)
    expected[key] += 100.0  # each element once
    assert np.array_equal(owner.numpy(), expected)


@pytest.mark.clause("g4-test-iterator-cases")
def test_overflowing_plans_are_refused_before_an_iterator_exists(kernel: Any) -> None:
    for facts in (
        {"shape": (2**62, 4)},
        {"shape": (3,), "strides": (2**62,)},
        {"shape": (2,), "strides": (2**63,)},
    ):
        storage = kernel.storage(64)
        with pytest.raises(GroupConstructionError):
            AllocationGroup.of_owners(
                [storage], [DescriptorRequest(dtype="f8", **facts)]
            )


@pytest.mark.clause("g4-prepared-artifact")
def test_source_of_preparation_and_loops_keeps_to_the_boundary() -> None:
    step = traversal.PreparedStridedIter.__next__
    assert calls(step) == set()  # no lookup, dispatch, check, allocation or decoding
    operators = {
        type(node.op)
        for node in ast.walk(function(step))
        if isinstance(node, ast.BinOp | ast.AugAssign)
    }
    assert operators == {ast.Add, ast.Sub}
    assert calls(PreparedContiguousRead.iter_contiguous) == {"iter", "self.as_slice"}
    proofs = {"check_layout", "check_descriptor", "prove_injective", "check_injective"}
    for module in ("_access", "_guard", "_traversal"):
        tree = ast.parse((SOURCES / f"{module}.py").read_text(encoding="utf-8"))
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        assert not proofs & used, module  # proofs are kept, never recomputed
    for call in (storage_package.prepare_read, storage_package.prepare_write):
        source = inspect.getsource(call)  # provider work comes before any payload
        assert source.index("prepare_device(") < source.index("object.__new__")
        assert source.index("Guard._open(") < source.index("object.__new__")
        assert list(inspect.signature(call).parameters) == ["checked", "target"]


@pytest.mark.clause("g4-prepared-artifact", "g1-state-by-type")
def test_no_boolean_repeats_what_a_class_says() -> None:
    repeated = ("checked", "mapped", "contiguous", "writable", "prepared", "bound")
    for file in SOURCES.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            stem = name.lstrip("_").removeprefix("is_")
            assert not (stem in repeated and name != stem), (file.name, name)
            if (
                isinstance(node, ast.AnnAssign)
                and ast.unparse(node.annotation) == "bool"
            ):
                raise AssertionError(f"{file.name}: {ast.unparse(node)}")
