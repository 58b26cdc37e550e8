"""Who may touch which bytes: the host ownership kernel (contract G1, G2)."""

from ._access import (
    AccessTarget,
    CheckedRead,
    CheckedWrite,
    PreparedDeviceRead,
    PreparedDeviceWrite,
    PreparedRead,
    PreparedWrite,
    prepare_read,
    prepare_write,
)
from ._ad_record import AdValueRecord
from ._as_array import as_array as as_array
from ._binding import (
    DeviceArgument,
    DeviceRead,
    DeviceWrite,
    bind_read,
    bind_write,
)
from ._capability import StorageMut, StorageRef
from ._descriptor import (
    CheckedDescriptor,
    CheckedInjectiveDescriptor,
    RootBoundSpan,
    descriptor_at,
    host_array,
)
from ._device_array import DeviceAllocation, DeviceArray, Work, host_elements, land
from ._disjoint import prove_places
from ._door import (
    DOOR_NAMES,
    SMALL_ARRAY_SOURCE,
    SMALL_BARE_ARRAY_SOURCE,
    SMALL_BARE_SOURCE,
    SMALL_RECORD_SOURCE,
    SMALL_RELEASE_SOURCE,
    adopt,
    allocate,
    allocate_bare,
    bare,
    clothe,
    count_copy,
    duplicate,
    overwrite,
    release_bare,
    transfer,
)
from ._group import AllocationGroup
from ._guard import HostReadGuard, HostWriteGuard
from ._handover import records_of
from ._layout import (
    CheckedInjectiveStrided,
    CheckedLayout,
    CheckedStrided,
    Contiguous,
    WriteInjectivityProof,
    c_strides,
    validations,
)
from ._provider import Provider, ProviderContext
from ._ranks import (
    RANKS,
    DynRank,
    Rank0,
    Rank1,
    Rank2,
    Rank3,
    Rank4,
    Rank5,
    Rank6,
    Rank7,
    Rank8,
    TensorRank,
)
from ._record import (
    POOLED_FROM,
    RetentionContainer,
    ValueRecord,
    device_record,
    record_of,
)
from ._reinterpret import scalar_pairs
from ._retirement import (
    ProviderEvent,
    ProviderRetirementBinding,
    RetirementRecord,
    retain_unproven,
    retirements,
)
from ._root import (
    AllocationDiagnostics,
    AllocationSpan,
    OwnedSpanClaim,
    OwnedStorage,
    RootResource,
)
from ._slots import DescriptorRecord, DescriptorRequest, DescriptorSlot
from ._tensor import Tensor
from ._traversal import (
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedHostRead,
    PreparedHostWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
)
from ._typed import TypedTensor
from ._typed_view import TypedTensorView
from ._typed_view_mut import TypedTensorViewMut
from ._view import TensorView
from ._view_mut import TensorViewMut

__all__ = [
    # owners and their memory
    "AllocationDiagnostics",
    "AllocationSpan",
    "OwnedSpanClaim",
    "OwnedStorage",
    "Provider",
    "ProviderContext",
    "RootResource",
    # borrows
    "StorageMut",
    "StorageRef",
    # descriptors
    "CheckedDescriptor",
    "CheckedInjectiveDescriptor",
    "CheckedInjectiveStrided",
    "CheckedLayout",
    "CheckedStrided",
    "Contiguous",
    "RootBoundSpan",
    "WriteInjectivityProof",
    "prove_places",
    "validations",
    # prepared access
    "AccessTarget",
    "AdValueRecord",
    "CheckedRead",
    "CheckedWrite",
    "HostReadGuard",
    "HostWriteGuard",
    "PreparedContiguousRead",
    "PreparedContiguousWrite",
    "PreparedDeviceRead",
    "PreparedDeviceWrite",
    "PreparedHostRead",
    "PreparedHostWrite",
    "PreparedRead",
    "PreparedStridedRead",
    "PreparedStridedWrite",
    "PreparedWrite",
    "prepare_read",
    "prepare_write",
    # bound access and retirement
    "DeviceArgument",
    "DeviceRead",
    "DeviceWrite",
    "ProviderEvent",
    "ProviderRetirementBinding",
    "RetirementRecord",
    "bind_read",
    "bind_write",
    "c_strides",
    "host_array",
    "retain_unproven",
    "retirements",
    # tensors and groups
    "AllocationGroup",
    "DescriptorRecord",
    "DescriptorRequest",
    "DescriptorSlot",
    "Tensor",
    "TensorView",
    "TensorViewMut",
    "scalar_pairs",
    # typed tensors
    "RANKS",
    "DynRank",
    "Rank0",
    "Rank1",
    "Rank2",
    "Rank3",
    "Rank4",
    "Rank5",
    "Rank6",
    "Rank7",
    "Rank8",
    "TensorRank",
    "TypedTensor",
    "TypedTensorView",
    "TypedTensorViewMut",
    # records and doors
    "DOOR_NAMES",
    "DeviceAllocation",
    "DeviceArray",
    "POOLED_FROM",
    "RetentionContainer",
    "SMALL_ARRAY_SOURCE",
    "SMALL_BARE_ARRAY_SOURCE",
    "SMALL_BARE_SOURCE",
    "SMALL_RECORD_SOURCE",
    "SMALL_RELEASE_SOURCE",
    "ValueRecord",
    "Work",
    "adopt",
    "allocate",
    "allocate_bare",
    "bare",
    "clothe",
    "count_copy",
    "descriptor_at",
    "device_record",
    "duplicate",
    "host_elements",
    "land",
    "overwrite",
    "record_of",
    "records_of",
    "release_bare",
    "transfer",
]
