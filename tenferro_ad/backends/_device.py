"""What an asynchronous device computes with: plans whose kernels are launched.

`AsynchronousDevice` turns an endpoint with its memory into a device on which eager
tensors work. Outputs come through the same door as on the CPU and are written by one
launch; views are second descriptors; what rules add to or write over is computed in
place. Which events a program makes is decided above and is the same on every device.

A subclass is an `Endpoint` (see `_backend.py`) whose memory it is itself. It supplies
allocations, kernels (`prepare`) and `upload`; nothing here knows how they are made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Final

import numpy as np

from .._aval import Aval, aval_of
from ..errors import InternalError
from ..ops import OPS, Call, Equation, Move, Op, View
from ..storage import DeviceArray, TensorView, TensorViewMut
from ._device_plan import launch_plan, view_plan
from ._engine import DEADLINE
from ._execution import Executions
from ._plan import Plan, infer_call, move_plan
from ._printed import unsupported

Target = DeviceArray | TensorViewMut
_KERNELS: Final = 1024  # kernels that are no plan's own; a larger cache starts afresh


class AsynchronousDevice(ABC):
    """Base of devices whose operations are launched and retired.

    Args:
        deadline: seconds without proof after which completion counts as unproven.
    """

    takes_views: ClassVar[bool] = True
    # Whether a kernel may read and write one buffer, at different places.
    shares_buffers: ClassVar[bool] = True
    is_synchronous: ClassVar[bool] = False
    name: str

    def __init__(self, deadline: float = DEADLINE) -> None:
        self.deadline = deadline
        self._executions: Executions | None = None
        self._kernels: dict[Any, object] = {}

    # -- what a subclass supplies ------------------------------------------------------

    @abstractmethod
    def supports(self, op: Op, dtypes: Sequence[Any]) -> bool:
        """Whether the device has a kernel for operands of these types."""

    @abstractmethod
    def prepare(self, call: Call) -> object:
        """The kernel of one application."""

    @abstractmethod
    def prepare_sum(self, call: Call) -> object:
        """The kernel that adds an application's result to its only output."""

    @abstractmethod
    def prepare_copy(self, aval: Aval) -> object:
        """The kernel that copies elements between views of the device's memory."""

    def prints(self, call: Call) -> bool:
        """Whether an application can be a part of a printed chain."""
        return False

    def prepare_chain(
        self,
        equations: Sequence[Equation],
        inputs: Sequence[int],
        outputs: Sequence[int],
    ) -> object:
        """The kernel of elementwise equations, each of which `prints`."""
        raise InternalError(operation="prepare_chain", invariant="`prints` said so")

    @abstractmethod
    def upload(self, target: Target, source: np.ndarray[Any, Any]) -> None:
        """Write host elements. The caller may change `source` afterwards."""

    # -- eager work --------------------------------------------------------------------

    @property
    def memory(self) -> Any:
        """The endpoint works on its own memory."""
        return self

    @property
    def endpoint(self) -> Any:
        """Where eager operations are enqueued: the device itself, or a queue of it."""
        return self

    @property
    def executions(self) -> Executions:
        """Eager operations on this device."""
        if self._executions is None:
            self._executions = Executions(self.endpoint, self.deadline)
        return self._executions

    def drain(self) -> None:
        """Wait until every eager operation so far has retired.

        Cost: a synchronisation point; no copy.
        """
        if self._executions is not None:
            self._executions.drain()

    def plan(self, op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]) -> Plan:
        """Infer once, choose the kernel once; replays only follow the plan.

        Raises:
            UnsupportedError: The device has no kernel for the row and these types.
            and what the row's `infer` raises.
        """
        call = infer_call(op, ins, params, self)
        if isinstance(op.kernel, View):
            return view_plan(call, op.kernel)
        if isinstance(op.kernel, Move):
            return move_plan(call)
        return launch_plan(self, call, self._prepared(call))

    def _prepared(self, call: Call) -> object:
        if not self.supports(call.op, [a.dtype for a in (*call.ins, *call.outs)]):
            raise unsupported(call, self.name)
        return self.prepare(call)

    def _cached(self, key: Any, make: Any, made_of: Any) -> object:
        """A kernel that is no plan's own, kept by what it was made for."""
        found = self._kernels.get(key)
        if found is None:
            found = make(made_of)
            if len(self._kernels) >= _KERNELS:
                self._kernels.clear()
            self._kernels[key] = found
        return found

    def write(self, target: Target, source: Any) -> None:
        """Copy elements in; called by the copy doors only.

        Args:
            source: host elements, or elements in this device's own memory, which are
                copied there without the host.

        Cost: one launch; no wait.
        """
        if isinstance(source, DeviceArray | TensorView | TensorViewMut):
            aval = aval_of(target.shape, target.dtype, self)
            kernel = self._cached(("copy", aval), self.prepare_copy, aval)
            self.executions.launch("copy", kernel, [source], [target])
        else:
            self.upload(target, np.asarray(source))

    def add_into(self, target: DeviceArray, other: DeviceArray) -> None:
        """`target += other` in memory that the caller owns.

        Cost: one launch; no allocation, no wait.
        """
        aval = aval_of(target.shape, target.dtype, self)
        kernel = self._kernels.get(("sum", aval))
        if kernel is None:
            same = infer_call(OPS["accumulate"], (aval,), (), self)
            kernel = self._cached(("sum", aval), self.prepare_sum, same)
        self.executions.launch("add", kernel, [other], [target])
