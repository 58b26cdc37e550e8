"""The page that maps the contract's sketches to our names is complete and true."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contract-mapping.md").read_text(encoding="utf-8")

# Names of the sketches, written out by hand from the contract.
TYPES = re.findall(
    r"\w+",
    """
RootResource OwnedSpanClaim OwnedStorage StorageRef StorageMut RootBoundSpan
CheckedLayout CheckedDescriptor CheckedInjectiveDescriptor CheckedRead CheckedWrite
AccessTarget PreparedRead PreparedWrite PreparedHostRead PreparedHostWrite
PreparedContiguousRead PreparedContiguousWrite PreparedStridedRead PreparedStridedWrite
PreparedDeviceRead PreparedDeviceWrite StrideCursor RankIndex CheckedStrided
CheckedInjectiveStrided PreparedStridedIter PreparedStridedIterMut HostReadGuard
HostWriteGuard WriteInjectivityProof AllocationSpan AllocationDiagnostics
ProviderContext AllocationGroup DescriptorSlot DescriptorRecord TypedTensor
TypedTensorView TypedTensorViewMut Tensor TensorView TensorViewMut TensorRank DynRank
AccessError GroupError DisjointViewError ExtractError
ExecutionInputs ExecutionHandle SubmitRejected ExecutionOutcome ExecutionBundle
DiagnosticKey Completed RetiredFailed CompletionUnproven OutputAccessError
OutputExtractError SubmitError ExecutionError CompletionError DeviceRead DeviceWrite
BindError ProviderPreparedRead ProviderPreparedWrite BorrowedBindings
BorrowedSubmitRejected RetiredBorrowed RetirementRecord ProviderEvent
ProviderRetirementBinding TapeRetention AdValueRecord RetentionContainer TapeRecord
ValueKey DescriptorRef EagerTensor ValueGuard IntoValueError NotUnique Extract Gradients
CopyReason AllocationReason ProviderAllocation DType CheckedReadBundle
CheckedWriteBundle CompiledGraph ExecutionOutput OutputMetadata OutputRef
ScopedReadInputs ScopedReadBinding ScopedSubmitRejected ScopedExecutionOutcome
ScopedExecutionBundle ScopedOutput ScopedOutputExtractError Placement AllocationSlot
ValidatedLayoutMetadata ValidatedRootBoundRange ValidatedStorageMetadata
ValidatedProviderMetadata TensorLayout TensorLayoutRef
""",
)
METHODS = re.findall(
    r"\w+",
    """
prepare_read prepare_write prepare_host prepare_host_mut as_slice as_slice_mut
iter_contiguous iter_contiguous_mut iter_strided iter_strided_mut get get_mut view
view_mut split_mut try_extract into_tensor as_view as_view_mut submit wait into_parts
output into_output execute_scoped_read_only into_owned_output bind_read bind_write
submit_detached submit_borrowed value duplicate_value into_value grad take_grad next
""",
)
ROW = re.compile(r"^\| (?P<sketch>[^|]+) \| (?P<ours>[^|]+) \|$", re.MULTILINE)


def rows() -> dict[str, str]:
    found = {m["sketch"].strip(): m["ours"] for m in ROW.finditer(PAGE)}
    return {sketch: ours for sketch, ours in found.items() if sketch != "Sketch"}


def resolve(name: str) -> Any:
    """`storage.X.y` as the object that it names in the package."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(("tenferro_ad", *parts[:end])))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise LookupError(name)


@pytest.mark.clause("g4-rename-mapping")
def test_every_sketch_has_a_row_and_every_name_of_ours_exists() -> None:
    sketched = {
        name for sketch in rows() for name in re.findall(r"`([A-Za-z_]+)`", sketch)
    }
    assert set(TYPES) | set(METHODS) <= sketched
    named = 0
    for sketch, ours in rows().items():
        for name in re.findall(r"`([\w./-]+)`", ours):
            named += 1
            if "/" in name:
                assert (ROOT / name).exists(), (sketch, name)
            else:
                assert resolve(name) is not None, (sketch, name)
    assert named >= len(TYPES) + len(METHODS)


@pytest.mark.clause("g4-rename-mapping")
def test_the_four_obligations_are_shown_by_files_that_exist() -> None:
    shown = {sketch.strip("`"): ours for sketch, ours in rows().items()}
    for obligation in (
        "p4-prepared-access-api",
        "p4-traversal-resolution-counts",
        "p10-element-hot-path-structure",
        "p10-static-rank-codegen",
    ):
        files = re.findall(r"`(tests/[\w./-]+)`", shown[obligation])
        assert files
        assert all((ROOT / file).is_file() for file in files)
