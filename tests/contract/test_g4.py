"""G4: the tensor families. One test for each clause, named after it."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import tenferro_ad.storage as storage_package
from tenferro_ad._ownership import MoveOnly, Shared
from tenferro_ad.errors import (
    BorrowConflictError,
    IndexRangeError,
    LayoutError,
    ShapeError,
    UseAfterMoveError,
)
from tenferro_ad.storage import (
    RANKS,
    AllocationGroup,
    DynRank,
    OwnedStorage,
    Rank1,
    Rank2,
    StorageMut,
    StorageRef,
    Tensor,
    TensorView,
    TensorViewMut,
    TypedTensor,
    TypedTensorView,
    TypedTensorViewMut,
    validations,
)
from tenferro_ad.storage._methods import BORROWED, CONSUME, READ, TYPED, WRITE

SOURCES = Path(storage_package.__file__).parent

ERASED = (Tensor, TensorView, TensorViewMut)
TYPED_FAMILY = (TypedTensor, TypedTensorView, TypedTensorViewMut)
MODULES = {
    Tensor: "_tensor",
    TensorView: "_view",
    TensorViewMut: "_view_mut",
    TypedTensor: "_typed",
    TypedTensorView: "_typed_view",
    TypedTensorViewMut: "_typed_view_mut",
}
DUNDERS = {"__getitem__", "__repr__", "__enter__", "__exit__"}
ROLES: dict[type, set[str]] = {
    Tensor: {*READ, *WRITE, *CONSUME},
    TensorView: {*READ, *BORROWED},
    TensorViewMut: {*READ, *WRITE, *BORROWED},
}


def expected(kind: type) -> set[str]:
    if kind in ERASED:
        return ROLES[kind]
    return ROLES[ERASED[TYPED_FAMILY.index(kind)]] | {*TYPED}


def surface(kind: type) -> set[str]:
    """Public names and operators that a class defines itself."""
    return {name for name in vars(kind) if not name.startswith("_") or name in DUNDERS}


def drift(kind: type, wanted: set[str]) -> set[str]:
    return surface(kind) ^ wanted


def parameters(kind: type, name: str) -> list[str]:
    found = vars(kind)[name]
    if isinstance(found, property):
        return ["property"]
    # The typed forms of a reinterpretation take the result's rank as well.
    return [p for p in inspect.signature(found).parameters if p != "rank"]


def body_of(kind: type, name: str) -> ast.FunctionDef:
    tree = ast.parse((SOURCES / f"{MODULES[kind]}.py").read_text(encoding="utf-8"))
    (family,) = [
        n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == kind.__name__
    ]
    found = [n for n in family.body if getattr(n, "name", "") == name]
    assert isinstance(found[-1], ast.FunctionDef)  # after its overloads
    return found[-1]


def statements(function: ast.FunctionDef) -> str:
    """The code of a function without its docstring."""
    body = [
        n
        for n in function.body
        if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))
    ]
    return "\n".join(ast.unparse(n) for n in body)


def typed(kernel: Any, shape: tuple[int, ...] = (3, 4)) -> TypedTensor[Any, Any]:
    return TypedTensor.of(kernel.owner(shape), np.float64, RANKS[len(shape)])


# ---- one home for each class of method


@pytest.mark.clause("g4-parity")
@pytest.mark.parametrize("kind", [*ERASED, *TYPED_FAMILY])
def test_every_class_has_exactly_the_calls_of_the_canonical_list(kind: type) -> None:
    assert drift(kind, expected(kind)) == set()
    for name in expected(kind) - {*TYPED}:
        peers = [k for k in MODULES if name in expected(k)]
        assert {tuple(parameters(peer, name)) for peer in peers} == {
            tuple(parameters(kind, name))
        }, name


@pytest.mark.clause("g4-parity")
@pytest.mark.parametrize("change", ["missing", "added"])
def test_the_parity_check_sees_a_class_that_drifts(change: str) -> None:
    members = dict(vars(TensorView))
    if change == "missing":
        del members["flip"]
    else:
        members["extra"] = lambda self: None
    members.pop("__slots__")
    names = {k: v for k, v in members.items() if not k.startswith("_view_")}
    drifted = type("Drifted", (), names)
    assert drift(drifted, expected(TensorView)) == (
        {"flip"} if change == "missing" else {"extra"}
    )


@pytest.mark.clause("g4-read-once-on-view")
def test_owner_and_exclusive_view_read_through_their_shared_view(kernel: Any) -> None:
    metadata = {"shape", "dtype", "ndim", "size", "nbytes", "strides", "span"}
    metadata |= {"device", "descriptor", "__repr__", "as_view"}
    for kind in (Tensor, TensorViewMut):
        for name in set(READ) - metadata:
            if kind is TensorViewMut and name == "__getitem__":
                continue  # a writable part
            assert "self.as_view()" in statements(body_of(kind, name)), name
    owner = kernel.owner((3, 4))
    array = owner.numpy()
    with owner.as_view() as view:
        assert np.array_equal(view.numpy(), array)
        assert view.get((1, 2)) == owner.get((1, 2)) == 6.0
        assert repr(view).removeprefix("TensorView") == repr(owner).removeprefix(
            "Tensor"
        )
    del array
    held = owner.as_view_mut()
    with pytest.raises(BorrowConflictError):  # no second way in
        owner.numpy()
    assert np.array_equal(held.numpy(), np.arange(12.0).reshape(3, 4))


@pytest.mark.clause("g4-mutation-once-on-view-mut")
def test_the_owner_writes_through_its_exclusive_view(kernel: Any) -> None:
    for name in set(WRITE) - {"as_view_mut"}:
        assert "self.as_view_mut()" in statements(body_of(Tensor, name)), name
    owner = kernel.owner((2, 2))
    owner.fill(1.0)
    owner.get_mut((0, 1))[...] = 2.0
    first, second = owner.split_mut([slice(0, 1), slice(1, 2)])
    second.fill(5.0)
    with pytest.raises(BorrowConflictError):
        owner.fill(0.0)
    first.close()
    second.close()
    assert owner.numpy().tolist() == [[1, 2], [5, 5]]
    source = kernel.owner((2, 2))
    with source.as_view() as view:
        owner.copy_from(view)
    array = owner.write()
    array += 1.0
    del array
    assert owner.numpy().tolist() == [[1, 2], [3, 4]]


@pytest.mark.clause("g4-consuming-on-owners")
def test_only_owners_and_groups_can_be_used_up_into_something(kernel: Any) -> None:
    for kind in MODULES:
        consuming = {n for n in surface(kind) if n.startswith(("into_", "take_"))}
        assert consuming == (set(CONSUME) if kind in (Tensor, TypedTensor) else set())
    assert "into_tensor" in surface(AllocationGroup)
    owner = kernel.owner((4,))
    moved = owner.into_reinterpreted(np.int64)
    with pytest.raises(UseAfterMoveError, match="into_reinterpreted"):
        owner.numpy()
    assert "duplicate_storage" in statements(body_of(TensorView, "duplicate"))
    with moved.as_view() as view:
        copy = view.duplicate()
    assert type(copy) is Tensor
    assert copy.span.serial != moved.span.serial


@pytest.mark.clause("g4-erased-triad")
def test_erased_and_typed_classes_mirror_each_other(kernel: Any) -> None:
    for erased, typed_kind in zip(ERASED, TYPED_FAMILY, strict=True):
        assert surface(typed_kind) - {*TYPED} == surface(erased)
        inner = "self._t" + {"TypedTensor": "o", "TypedTensorView": "v"}.get(
            typed_kind.__name__, "m"
        )
        for name in surface(erased) - {"as_view", "__enter__"}:
            found = vars(typed_kind)[name]
            if isinstance(found, property):
                assert inspect.getsource(found.fget).strip().endswith(f".{name}")
            else:  # no second implementation: it hands over to the erased object
                assert f"{inner}_inner" in statements(body_of(typed_kind, name)), name
    erased_owner, typed_owner = kernel.owner(), typed(kernel)
    for name in ("shape", "dtype", "ndim", "size", "nbytes", "strides", "device"):
        assert getattr(erased_owner, name) == getattr(typed_owner, name)
    back = typed_owner.erase()
    assert type(back) is Tensor
    with pytest.raises(UseAfterMoveError, match="erase"):
        typed_owner.numpy()


@pytest.mark.clause("g4-no-forwarding")
def test_families_neither_inherit_nor_forward_nor_share_a_header() -> None:
    for kind in MODULES:
        bases = {base.__name__ for base in kind.__mro__[1:]}
        assert bases <= {"MoveOnly", "Generic", "object"}, kind
        assert not {"__getattr__", "__getattribute__"} & {
            name for base in kind.__mro__ for name in vars(base) if base is not object
        }
        for other in MODULES:
            if other is not kind:
                assert not set(kind.__slots__) & set(other.__slots__)
    for file in SOURCES.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        names = {getattr(node, "name", "") for node in ast.walk(tree)}
        assert not {"__getattr__", "__getattribute__"} & names, file.name


@pytest.mark.clause("g4-no-owner-projection")
def test_no_public_name_gives_an_owner_or_allocation_to_write_to(kernel: Any) -> None:
    owner = kernel.owner((4,))
    backing = owner._owner_storage._resource.allocation
    typed_owner = typed(kernel)
    for thing in (
        owner,
        owner.as_view(),
        typed_owner,
        typed_owner.as_view(),
        kernel.owner().as_view_mut(),
        typed(kernel).as_view_mut(),
    ):
        for name in dir(thing):
            if name.startswith("_") or callable(getattr(type(thing), name)):
                continue
            value = getattr(thing, name)
            assert value is not backing, name
            assert not isinstance(value, MoveOnly | Shared | np.ndarray), name
        assert not {n for n in dir(thing) if "downcast" in n or n.startswith("as_any")}
    for kind in MODULES:  # nothing but the class's own views, arrays and payloads
        for name in surface(kind):
            found = vars(kind)[name]
            function = found.fget if isinstance(found, property) else found
            hints = str(inspect.signature(function).return_annotation)
            assert not any(
                secret in hints
                for secret in ("OwnedStorage", "RootResource", "Claim", "Buffer")
            ), name


@pytest.mark.clause("g4-layout-change-validated")
def test_a_layout_changes_only_by_a_checked_step(kernel: Any) -> None:
    owner = kernel.owner((3, 4))
    for name in ("shape", "strides", "dtype", "_layout"):
        with pytest.raises(AttributeError):
            setattr(owner, name, (12,))
    with owner.as_view() as view, pytest.raises(AttributeError):
        view.shape = (12,)  # type: ignore[misc]
    with owner.as_view() as view:
        for wrong in (
            lambda: view.reshape((13,)),
            lambda: view[3],
            lambda: view.broadcast_to((2, 4)),
            lambda: view.reinterpret(np.float32),
        ):
            with pytest.raises((ShapeError, IndexRangeError, LayoutError)):
                wrong()
        assert view.shape == (3, 4)
        reached = view[1:, ::2].permute_dims((1, 0)).descriptor().span.byte_range
        assert set(reached) <= set(view.descriptor().span.byte_range)


# ---- rank


@pytest.mark.clause("g4-rank-preserved", "g4-dynamic-rank-first-class")
@pytest.mark.parametrize("rank", [Rank2, DynRank])
def test_rank_preserving_calls_keep_fixed_and_dynamic_rank(
    kernel: Any, rank: Any
) -> None:
    owner = TypedTensor.of(kernel.owner((3, 4)), np.float64, rank)
    assert owner.rank is rank
    assert owner.duplicate().rank is rank
    with owner.as_view() as view:
        for kept in (view, view.as_view(), view[1:], view[..., ::2], view.flip(0)):
            assert kept.rank is rank
            assert kept.dtype == np.float64
        assert view.permute_dims((1, 0)).rank is rank
        assert view[0].rank is DynRank  # and only what changes the rank loses it
        assert view[0].as_rank(Rank1).rank is Rank1
        del kept
    with owner.as_view_mut() as m:
        assert m.rank is rank
        with m[1:] as part:
            assert part.rank is rank
            part.fill(0.0)
        for child in m.split_mut([slice(0, 1), slice(1, 3)]):
            assert child.rank is rank
            child.close()
        with m.as_view_mut() as again:
            assert again.rank is rank
        with m.as_view() as shared:
            assert shared.rank is rank
    assert owner.numpy().tolist()[0] == [0, 1, 2, 3]


@pytest.mark.clause("g4-rank-preserved")
def test_static_facts_are_checked_on_entry_and_a_refusal_gives_the_value_back(
    kernel: Any,
) -> None:
    owner = kernel.owner((3, 4))
    for dtype, rank, field in (
        (np.float32, Rank2, "dtype"),
        ("no dtype", Rank2, "dtype"),
        (np.float64, Rank1, "rank"),
    ):
        with pytest.raises(LayoutError) as caught:
            TypedTensor.of(owner, dtype, rank)
        assert caught.value.field == field
        assert caught.value.recovered is owner
    view = owner.as_view()
    with pytest.raises(LayoutError) as caught:
        TypedTensorView.of(view, np.float64, Rank1)
    assert caught.value.recovered is view
    entered = TypedTensorView.of(view, np.float64, Rank2)
    with pytest.raises(UseAfterMoveError, match="of"):
        view.numpy()
    with pytest.raises(LayoutError):
        entered.as_rank(Rank1)
    entered.erase().close()
    m = owner.as_view_mut()
    with pytest.raises(LayoutError) as caught:
        TypedTensorViewMut.of(m, np.int64, Rank2)
    assert caught.value.recovered is m
    m.close()
    assert np.array_equal(owner.numpy(), np.arange(12.0).reshape(3, 4))


@pytest.mark.clause("g4-family-shapes")
def test_owners_hold_storage_and_views_hold_borrows_of_the_same_layout(
    kernel: Any,
) -> None:
    hints = {kind: get_type_hints(kind, vars(storage_package)) for kind in ROLES}
    assert hints[Tensor]["_owner_storage"] is OwnedStorage
    assert hints[TensorView]["_view_ref"] is StorageRef
    assert hints[TensorViewMut]["_vm_mut"] is StorageMut
    assert not {OwnedStorage, Shared} & {
        hint for kind in (TensorView, TensorViewMut) for hint in hints[kind].values()
    }
    for owner in (kernel.owner(), typed(kernel)):
        with owner.as_view() as view:
            assert view._layout is owner._layout
            assert view.descriptor() is owner.descriptor()
            assert view.descriptor().placement == "host"
        with owner.as_view_mut() as m:
            assert m._layout is owner._layout
            with m.as_view() as view:
                assert view._layout is owner._layout


def blocks(call: Callable[[], Any]) -> int:
    """Interpreter blocks that one warmed call keeps while its result lives."""
    for _ in range(3):
        call().close()
    before = sys.getallocatedblocks()
    kept = call()
    grown = sys.getallocatedblocks() - before
    kept.close()
    return grown


@pytest.mark.clause("g4-as-view-counters")
def test_reborrows_allocate_nothing_that_grows_and_count_nothing(kernel: Any) -> None:
    costs: dict[str, set[int]] = {}
    for ndim in (0, 1, 3, 8):
        shape = (2,) * ndim
        fixed = typed(kernel, shape)
        dynamic = TypedTensor.of(kernel.owner(shape), np.float64, DynRank)
        for label, owner in (
            ("erased", kernel.owner(shape)),
            ("typed", fixed),
            ("typed", dynamic),
        ):
            inner = owner._to_inner if label == "typed" else owner
            root = inner._owner_storage._claim._root
            before = (root.strong_count, kernel.host.calls, validations.snapshot())
            provider = root.value.provider.strong_count
            lent = owner.as_view_mut()
            for name, call in (
                ("as_view of mut", lent.as_view),
                ("as_view_mut of mut", lent.as_view_mut),
            ):
                costs.setdefault(f"{label} {name}", set()).add(blocks(call))
            lent.close()
            for name, call in (
                ("as_view", owner.as_view),
                ("as_view_mut", owner.as_view_mut),
            ):
                costs.setdefault(f"{label} {name}", set()).add(blocks(call))
            assert before == (
                root.strong_count,
                kernel.host.calls,
                validations.snapshot(),
            )
            assert provider == root.value.provider.strong_count
            del call, lent, inner, root  # the next owner starts alone
    assert len(costs) == 8
    for label, seen in costs.items():  # the same at every rank
        assert len(seen) == 1, (label, seen)


@pytest.mark.clause("g4-as-view-counters")
def test_the_source_of_reborrows_clones_and_copies_nothing() -> None:
    for kind in MODULES:
        for name in {"as_view", "as_view_mut"} & surface(kind):
            code = statements(body_of(kind, name))
            for word in ("clone", "tuple(", "list(", "shape", "strides", "_new"):
                assert word not in code, (kind, name)
