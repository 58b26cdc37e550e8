"""Handles whose value is elsewhere: who has it, and what to do instead.

The node of an empty handle says where its value went; other nodes are places on tapes.
"""

from __future__ import annotations

from typing import Any, Final

DONATED: Final = -2
"""A compiled function took the value over."""
LENT: Final = -3
"""An exclusive block has the value until it ends."""


def gone(node: int) -> dict[str, Any]:
    """The facts of the error for the use of such a handle."""
    if node == LENT:
        return {
            "kind": "EagerTensor",
            "consumed_by": "exclusive",
            "found": "an exclusive block has the value of this `EagerTensor`",
            "fix": "use the view that the block gives, or wait until it ends",
        }
    if node == DONATED:
        return {
            "kind": "EagerTensor",
            "consumed_by": "compiled function",
            "fix": "use what that call returned, or donate `ta.asarray(x, copy=True)`",
        }
    return {
        "kind": "EagerTensor",
        "consumed_by": "into_value",
        "fix": "use what `into_value` returned, or `duplicate_value()` before moving",
    }
