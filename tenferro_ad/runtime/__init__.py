"""What runs, and how a run may end."""

from ._borrowed import BorrowedBindings, RetiredBorrowed, submit_borrowed
from ._direct import (
    DIRECT,
    DirectEvaluator,
    as_records,
    device_of,
    host_aval,
    pair_plan,
    plan_of,
    scalar_record,
)
from ._outcome import Completed, CompletionUnproven, RetiredFailed
from ._package import ExecutionBundle, ExecutionInputs
from ._submission import ExecutionHandle, ExecutionOutcome, Submission

__all__ = [
    "DIRECT",
    "BorrowedBindings",
    "Completed",
    "CompletionUnproven",
    "DirectEvaluator",
    "ExecutionBundle",
    "ExecutionHandle",
    "ExecutionInputs",
    "ExecutionOutcome",
    "RetiredBorrowed",
    "RetiredFailed",
    "Submission",
    "as_records",
    "device_of",
    "host_aval",
    "pair_plan",
    "plan_of",
    "scalar_record",
    "submit_borrowed",
]
