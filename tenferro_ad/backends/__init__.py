"""How operations run: providers of memory and kernels."""

from ._backend import (
    BoundLaunch,
    Endpoint,
    Launch,
    Operand,
    PreparedLaunch,
    Proof,
    bind_launch,
    enqueue,
    run_synchronously,
)
from ._cpu import CPU, CpuDevice
from ._crossing import MOST_IN_FLIGHT, Boundary, Job, contain
from ._device import AsynchronousDevice
from ._doctor import doctor
from ._engine import DEADLINE, Engine
from ._execution import ExecutionRecord, Executions
from ._host import HostEndpoint, HostStream
from ._plan import Plan, compiled, infer_call
from ._program_kernel import Part, Place, ProgramKernel
from ._quiet import loud, quiet, quietly
from ._registry import (
    KINDS,
    DeviceInfo,
    LaneReport,
    devices,
    find_device,
    opened_devices,
    reports,
)
from ._waiting import Latch

__all__ = [
    "CPU",
    "DEADLINE",
    "KINDS",
    "MOST_IN_FLIGHT",
    "AsynchronousDevice",
    "Boundary",
    "BoundLaunch",
    "CpuDevice",
    "DeviceInfo",
    "Endpoint",
    "Engine",
    "ExecutionRecord",
    "Executions",
    "HostEndpoint",
    "HostStream",
    "Job",
    "LaneReport",
    "Latch",
    "Launch",
    "Operand",
    "Part",
    "Place",
    "Plan",
    "PreparedLaunch",
    "ProgramKernel",
    "Proof",
    "bind_launch",
    "compiled",
    "contain",
    "devices",
    "doctor",
    "enqueue",
    "find_device",
    "infer_call",
    "loud",
    "opened_devices",
    "quiet",
    "quietly",
    "reports",
    "run_synchronously",
]
