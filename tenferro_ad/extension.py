"""What operations of users are made of: `ta.register_op` takes these.

Kernels: `Write` (a function that writes its outputs, with scratch and checks),
`Library` (a call that gives fresh arrays), `View` (another look at the operand's
bytes).

Rules: `project` brings a cotangent back to an operand that was broadcast or promoted,
`expand` a tangent to the result.

Batching: `leading` is the rule of operations that treat a further leading axis as they
do others; `longer`, `later`, `before` say what becomes of parameters that are shapes,
axes, or tuples with an entry for each axis; `by_loop` applies the operation to one
example after the other; `moved` moves an axis (a view).
"""

from __future__ import annotations

from .engine import Operation, forget_op, register_op
from .ops import (
    Call,
    Library,
    View,
    Write,
    before,
    broadcast_shapes,
    by_loop,
    expand,
    later,
    leading,
    longer,
    moved,
    project,
)

__all__ = [
    "Call",
    "Library",
    "Operation",
    "View",
    "Write",
    "before",
    "broadcast_shapes",
    "by_loop",
    "expand",
    "forget_op",
    "later",
    "leading",
    "longer",
    "moved",
    "project",
    "register_op",
]
