"""Automatic differentiation for people who must know where every byte goes.

    import tenferro_ad as ta

Eager tensors with gradients, checkpoints and transforms over one ownership kernel: every
allocation has one owner and a reason, every copy is counted, retention costs nothing.
"""

from numpy import (
    bool as bool,  # noqa: A004
)
from numpy import (
    complex64,
    complex128,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)

from . import engine, errors
from ._ledger import (
    AllocationReason,
    CopyReason,
    LedgerScope,
    forbid,
    ledger,
)
from .engine import *
from .storage import (
    AllocationGroup,
    DescriptorSlot,
    Tensor,
    TensorView,
    TensorViewMut,
)
from .tape import Gradients, Retained

__version__ = "0.1.0"

__all__ = [
    # ownership
    "AllocationGroup",
    "DescriptorSlot",
    "Gradients",
    "Retained",
    "Tensor",
    "TensorView",
    "TensorViewMut",
    # accounting
    "AllocationReason",
    "CopyReason",
    "LedgerScope",
    "forbid",
    "ledger",
    # dtypes
    "bool",
    "complex64",
    "complex128",
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    # rooms
    "errors",
]
__all__ += engine.__all__

from . import nn, optim  # noqa: E402  (written with the public names above)

__all__ += ["nn", "optim"]
