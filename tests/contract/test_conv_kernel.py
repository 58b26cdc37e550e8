"""Conventions of the kernel: one for every provider, no bridge, waits are no copies."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ownership import MoveOnly, Shared
from tenferro_ad.errors import TenferroError
from tenferro_ad.storage import (
    AllocationGroup,
    DescriptorRequest,
    OwnedStorage,
    PreparedContiguousRead,
    PreparedHostRead,
    StorageMut,
    StorageRef,
    TensorView,
    TensorViewMut,
    prepare_read,
    prepare_write,
)

PACKAGE = Path(ta.__file__).parent


def definitions() -> dict[str, set[str]]:
    """Names of the classes and functions of every module."""
    return {
        file.relative_to(PACKAGE).as_posix(): {
            node.name
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        }
        for file in PACKAGE.rglob("*.py")
    }


def transcript(storage: OwnedStorage) -> list[str]:
    """What every ownership word means, as one run of answers and refusals."""
    told: list[str] = []

    def note(call: Any) -> Any:
        try:
            result = call()
        except TenferroError as error:
            told.append(f"{type(error).__name__} {getattr(error, 'reason', '')}")
            return None
        told.append(type(result).__name__)
        return result

    group, slots = AllocationGroup.of_owners(
        [storage],
        [
            DescriptorRequest((4,), np.float64),
            DescriptorRequest((4,), np.float64, offset=32),
            DescriptorRequest((8,), np.float64),
        ],
    )
    note(storage.as_ref)
    first = note(lambda: group.view(slots[0]))
    note(lambda: group.view_mut(slots[1]))
    first.close()
    note(first.numpy)
    note(lambda: group.split_mut([slots[0], slots[2]]))
    left, right = group.split_mut(slots[:2])
    note(left.prepare_host_mut).close()
    note(left.numpy)
    note(lambda: group.view(slots[2]))
    right.fill(2.0)
    note(right.prepare_device)
    right.close()
    note(lambda: group.try_extract(slots[0]))
    group.remove(slots[0])
    group.remove(slots[1])
    tensor = note(lambda: group.try_extract(slots[2]))
    told.append(str(tensor.numpy().tolist()))
    note(lambda: tensor.into_reinterpreted(np.complex128))
    moved = note(lambda: tensor.into_reinterpreted(np.int64))
    note(tensor.as_view)
    with moved.as_view() as view:
        prepared = note(view.prepare_host)
        note(moved.as_view_mut)
        prepared.close()
    return told


@pytest.mark.clause("conv-one-kernel")
def test_every_ownership_word_means_the_same_on_every_provider(kernel: Any) -> None:
    kernel.host.prepare_device = lambda buffer, mode: object()
    on_host, mapped = (
        transcript(kernel.storage(64)),
        transcript(kernel.mapped_storage(64)),
    )
    assert on_host == mapped
    assert len(on_host) >= 16
    assert kernel.mapped.maps == kernel.mapped.unmaps > 0  # only the work differs
    words = {"OwnedStorage", "OwnedSpanClaim", "StorageRef", "StorageMut", "Borrow"}
    words |= {"RootResource", "AllocationGroup", "CheckedDescriptor", "Shared"}
    homes = {
        word: [file for file, names in definitions().items() if word in names]
        for word in words
    }
    for word, files in homes.items():
        assert len(files) == 1, word
        assert files[0].startswith(("storage/", "_ownership")), word
    for file, names in definitions().items():
        if not file.startswith(("storage/", "_ownership")):
            assert not {n for n in names if n.endswith(("Claim", "StorageRef"))}, file


@pytest.mark.clause("conv-no-bridge")
def test_nothing_beside_the_one_ownership_path_is_shipped() -> None:
    refused = ("legacy", "compat", "bridge", "shim", "adapter", "migrat", "fallback")
    for file, names in definitions().items():
        for name in (file, *names):
            assert not any(word in name.lower() for word in refused), (file, name)
    # Neither does any call turn one family's object into a second owner of its bytes.
    for kind in (TensorView, TensorViewMut, StorageRef, StorageMut):
        for name, member in inspect.getmembers(kind, inspect.isfunction):
            returned = str(inspect.signature(member).return_annotation)
            if returned in ("Tensor", "OwnedStorage"):
                assert name == "duplicate", (kind, name)
    assert issubclass(Shared, MoveOnly)


@pytest.mark.clause("conv-waits-not-copies")
def test_a_provider_wait_is_documented_and_is_no_copy(kernel: Any) -> None:
    group, (slot,) = AllocationGroup.of_owners(
        [kernel.mapped_storage(64)], [DescriptorRequest((8,), np.float64)]
    )
    with ta.ledger() as seen:
        with group.view(slot) as view:
            assert view.numpy().sum() == 0.0
            prepared: PreparedHostRead = view.as_view().prepare_host()
            assert isinstance(prepared, PreparedContiguousRead)
            prepared.close()
        with group.view_mut(slot) as m:
            m.fill(1.0)
    assert kernel.mapped.maps == 3
    assert (seen.copies, seen.allocations) == ({}, {})
    for call in (
        TensorView.numpy,
        TensorView.prepare_host,
        TensorViewMut.write,
        TensorViewMut.fill,
        TensorViewMut.prepare_host_mut,
        prepare_read,
        prepare_write,
    ):
        assert "wait" in (inspect.getdoc(call) or ""), call
