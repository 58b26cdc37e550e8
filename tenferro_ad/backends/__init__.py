"""How operations run: providers of memory and kernels."""

from ._backend import (
    BoundLaunch,
    Endpoint,
    Launch,
    PreparedLaunch,
    Proof,
    bind_launch,
    enqueue,
    run_synchronously,
)
from ._cpu import CPU, CpuDevice, infer_call
from ._engine import DEADLINE, Engine, Job
from ._host import HostEndpoint, HostStream
from ._plan import Plan, compiled

__all__ = [
    "CPU",
    "DEADLINE",
    "BoundLaunch",
    "CpuDevice",
    "Endpoint",
    "Engine",
    "HostEndpoint",
    "HostStream",
    "Job",
    "Launch",
    "Plan",
    "PreparedLaunch",
    "Proof",
    "bind_launch",
    "compiled",
    "enqueue",
    "infer_call",
    "run_synchronously",
]
