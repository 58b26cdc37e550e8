"""What runs, and how a run may end."""

from ._arguments import shown
from ._batched import BatchEvaluator, Example, batched_program
from ._borrowed import BorrowedBindings, RetiredBorrowed, submit_borrowed
from ._chains import chains_of
from ._counted import STEPS, Counting, Taken, brought
from ._direct import (
    DEFAULT_DEVICE,
    DIRECT,
    PLAN_LIMIT,
    default_device,
    device_of,
    devices,
    direct,
    host_aval,
    pair_plan,
    plan_of,
    scalar_key,
    scalar_record,
)
from ._graph import (
    GRAPHS,
    Cache,
    CacheInfo,
    CompiledGraph,
    compile_program,
    forget_graphs,
    memory_of,
)
from ._outcome import Completed, CompletionUnproven, RetiredFailed
from ._package import ExecutionBundle, ExecutionInputs, OutputMetadata
from ._places import Schedule
from ._runtime import Runtime
from ._schedule import schedule
from ._scoped import (
    ScopedExecutionBundle,
    ScopedExecutionOutcome,
    ScopedReadInputs,
)
from ._submission import ExecutionHandle, ExecutionOutcome, Submission
from ._trace import Trace, is_symbolic, layout_of, strides_of, traced_error

__all__ = [
    "DEFAULT_DEVICE",
    "DIRECT",
    "BatchEvaluator",
    "GRAPHS",
    "BorrowedBindings",
    "Cache",
    "PLAN_LIMIT",
    "CacheInfo",
    "CompiledGraph",
    "Completed",
    "CompletionUnproven",
    "Counting",
    "STEPS",
    "Taken",
    "brought",
    "Example",
    "ExecutionBundle",
    "ExecutionHandle",
    "ExecutionInputs",
    "ExecutionOutcome",
    "RetiredBorrowed",
    "OutputMetadata",
    "RetiredFailed",
    "Runtime",
    "Schedule",
    "ScopedExecutionBundle",
    "ScopedExecutionOutcome",
    "ScopedReadInputs",
    "Submission",
    "Trace",
    "batched_program",
    "default_device",
    "chains_of",
    "compile_program",
    "device_of",
    "forget_graphs",
    "memory_of",
    "direct",
    "devices",
    "host_aval",
    "is_symbolic",
    "layout_of",
    "pair_plan",
    "plan_of",
    "scalar_key",
    "scalar_record",
    "schedule",
    "shown",
    "strides_of",
    "submit_borrowed",
    "traced_error",
]
