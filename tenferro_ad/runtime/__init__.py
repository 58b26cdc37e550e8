"""What runs, and how a run may end."""

from ._direct import (
    DIRECT,
    DirectEvaluator,
    as_records,
    device_of,
    host_aval,
    plan_of,
    release_scalars,
    scalar_record,
)

__all__ = [
    "DIRECT",
    "DirectEvaluator",
    "as_records",
    "device_of",
    "host_aval",
    "plan_of",
    "release_scalars",
    "scalar_record",
]
