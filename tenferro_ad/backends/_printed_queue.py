"""What the queues of devices with printed kernels share, whichever library drives them.

A queue is an endpoint over the memory of its device. It refuses to enqueue in a forked
child, whose driver state belongs to the parent, and when it is lost; whatever a library
refuses before anything is enqueued becomes the one refusal that engines know.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, ClassVar

from ..errors import EngineLostError, ForkedProcessError, NotEnqueuedError
from ..ops import Call, Op


class PrintedQueue:
    """Base of the OpenCL, WebGPU and CUDA queues.

    Attributes:
        memory: the device whose memory it works on.
        launches: what was enqueued so far, counted as the library does.
    """

    is_synchronous: ClassVar[bool] = False

    def __init__(self, name: str, memory: Any) -> None:
        self.name = name
        self.memory = memory
        self.launches = 0
        self._lock = threading.RLock()
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"endpoint({self.name!r})"

    def supports(self, op: Op, dtypes: Sequence[Any]) -> bool:
        """Whether the device may have a kernel for operands of these types."""
        return bool(self.memory.supports(op, dtypes))

    def prepare(self, call: Call) -> object:
        """The device's kernel of one application."""
        return self.memory.prepare(call)

    def require_open(self, *, is_lost: bool) -> None:
        """Refuse to enqueue in a forked child, and when the queue is lost.

        Raises:
            NotEnqueuedError: nothing was enqueued.
        """
        if os.getpid() != self._process:
            raise refused(ForkedProcessError(operation="enqueue"))
        if is_lost:
            raise refused(EngineLostError(operation="enqueue", engine=self.name))


def refused(error: BaseException) -> NotEnqueuedError:
    """The proof that nothing was enqueued, with its cause."""
    refusal = NotEnqueuedError(
        operation="enqueue", found=f"{type(error).__name__}: {error}"
    )
    refusal.__cause__ = error
    return refusal


__all__ = ["PrintedQueue", "refused"]
