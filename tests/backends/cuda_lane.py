"""The harness of the CUDA lane, which needs a card: work is held by a kernel that waits
for a flag in host memory, at the head of the stream.

The kernel gives up by itself after a while, so that no test can hang a card. What a
held lane launches must have been compiled and loaded before: loading a module may wait
for kernels that run.
"""

from __future__ import annotations

from typing import Any

import cupy as cp
import numpy as np

import tenferro_ad as ta
from tenferro_ad.backends import find_device
from tests.backends.lane_support import Lane

GATE = """
extern "C" __global__ void gate(volatile int *flag, long long most) {
    for (long long k = 0; k < most && *flag == 0; ++k) { __nanosleep(10000); }
}
"""
MOST = 3_000_000  # looks at the flag: about 30 seconds


class CudaLane(Lane):
    """The first card. A failure of one piece of work poisons its context: there is no
    failure that leaves the lane usable."""

    name = "cuda"
    can_fail = False

    def __init__(self) -> None:
        device = find_device("cuda:0", "lane")
        super().__init__(device, device.endpoint)
        self._flag: Any = None
        with device.raw:
            self._gate = cp.RawKernel(GATE, "gate")
            self._memory = cp.cuda.alloc_pinned_memory(4)
        self._value = np.frombuffer(self._memory, np.int32, 1)
        self._warm()

    def _warm(self) -> None:
        """Compile and load what tests launch behind the gate."""
        self._value[0] = 1
        self._start()
        x = ta.asarray(np.ones(3, np.float32), device=self.device)
        for y in (ta.exp(x), ta.sin(x), -x, x + 1.0, x * 2.0, x.value()):
            np.asarray(y.numpy())
        self.device.drain()

    def _start(self) -> None:
        with self.device.raw, self.endpoint.stream:
            self._gate((1,), (1,), (np.uint64(self._memory.ptr), np.int64(MOST)))

    def hold(self) -> None:
        if self._value[0]:
            self._value[0] = 0
            self._start()

    def let_go(self) -> None:
        self._value[0] = 1
