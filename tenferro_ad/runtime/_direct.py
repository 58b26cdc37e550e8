"""The direct evaluator: operations on bare value records, without handles or tapes.

`plan_of` is the one place where an application finds its plan; everything that computes
(eager handles, the sweeps, checkpoint recomputation) goes through it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, ClassVar, Final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import STATE
from ..backends import (
    CPU,
    Plan,
    find_device,
    infer_call,
    loud,
    opened_devices,
    quiet,
)
from ..errors import DeviceMismatchError, InternalError, InvalidArgumentError, a_kind
from ..ops import Applied, Call, Evaluator, Op, Region, RuleSpec
from ..storage import ValueRecord
from ._arguments import shown
from ._regions import region_plan
from ._steps import InputRule, step_of

# Plans hold structure only; a cache that grew past this is started afresh.
PLAN_LIMIT: Final = 4096


def plan_of(op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]) -> Plan:
    """The plan for operands of these avals; made once, then found again.

    Raises:
        DeviceMismatchError: operands live on different devices.
        and whatever the row's shape rule raises.
    """
    key = (ins, params)
    plan: Plan | None = op.plans.get(key)
    if plan is None:
        plan = _make(op, ins, params)
        if len(op.plans) >= PLAN_LIMIT:
            op.plans.clear()
        op.plans[key] = plan
    return plan


def pair_plan(op: Op, x: Aval, y: Aval) -> Plan:
    """`plan_of` for two operands and no parameters, entered where the fast paths look:
    `op.plans[x][y]`, two lookups by identity."""
    plan = plan_of(op, (x, y), ())
    inner = op.plans.setdefault(x, {})
    if len(inner) >= PLAN_LIMIT:
        inner.clear()
    inner[y] = plan
    return plan


def _make(op: Op, ins: tuple[Aval, ...], params: tuple[Any, ...]) -> Plan:
    device: Any = None
    for i, aval in enumerate(ins):
        if device is None:
            device = aval.device
        elif aval.device is not device:
            raise DeviceMismatchError(
                operation=op.name,
                argument=op.args[0] if op.variadic else op.args[i],
                found=f"`{device.name}` and `{aval.device.name}`",
                fix="compute both on one device; values do not move by themselves",
            )
    if device is None:
        device = dict(zip(op.params, params, strict=True)).get("device", CPU)
    if isinstance(op.kernel, Region):
        return region_plan(infer_call(op, ins, params, device), plan_of, DIRECT)
    plan: Plan = device.plan(op, ins, params)
    return plan


class DirectEvaluator(Evaluator):
    """`F` over records. Values it returns are owned by whoever holds them."""

    inplace: ClassVar[bool] = True
    is_symbolic: ClassVar[bool] = False

    def prepare(self, spec: RuleSpec) -> None:
        """Fix the plans of a rule, once for each application form.

        kind 0: every input's rule is one kernel or the cotangent itself; `spec.rules`
        holds an `InputRule` or None for each, `spec.steps` the steps. kind -1: the
        general path.
        """
        if spec.kernels is None or spec.n_out > 1:
            spec.kind, spec.steps = -1, (None, None, None)
            return
        call = spec.call
        saved = [call.outs[~s] if s < 0 else call.ins[s] for s in spec.saves]

        def rule(kernel: tuple[Applied, Applied, list[int]] | None, which: int) -> Any:
            if kernel is None:
                return None
            plain, strong, at = kernel
            applied = strong if which else plain
            operands = [k if k < 0 else at[k] for k in applied.operands]
            avals = tuple(call.out if k < 0 else saved[k] for k in operands)
            plan = plan_of(applied.op, avals, applied.params)
            return InputRule(plan, operands, call.out)

        first, second = (
            tuple([rule(kernel, which) for kernel in spec.kernels]) for which in (0, 1)
        )
        spec.rules = (first, second)
        spec.kind = 0
        spec.steps = (step_of(first, call.out), step_of(second, call.out), None)

    def bind(self, op: Op) -> Callable[..., Any]:
        if op.variadic:

            def variadic(xs: Any, *params: Any) -> Any:
                plan = plan_of(op, tuple(x.aval for x in xs), params)
                return plan.execute(STATE.get(), *xs)

            return variadic
        n = len(op.args)
        plans = op.plans
        if n == 1 and not op.params:

            def unary(x: Any) -> Any:
                plan = plans.get(x.aval)
                if plan is None:
                    plan = plans[x.aval] = plan_of(op, (x.aval,), ())
                return plan.execute(STATE.get(), x)

            return unary
        if n == 2 and not op.params:

            def binary(x: Any, y: Any) -> Any:
                try:
                    plan = plans[x.aval][y.aval]
                except (AttributeError, KeyError):
                    x, y = as_records(op, (x, y))
                    plan = pair_plan(op, x.aval, y.aval)
                return plan.execute(STATE.get(), x, y)

            return binary

        def general(*operands: Any) -> Any:
            xs = operands[:n]
            for x in xs:
                if not isinstance(x, ValueRecord):
                    xs = as_records(op, xs)
                    break
            plan = plan_of(op, tuple([x.aval for x in xs]), operands[n:])
            return plan.execute(STATE.get(), *xs)

        return general

    def add_into(self, target: Any, other: Any) -> Any:
        """`target += other` in the memory of `target`, which the caller owns.

        Cost: no allocation, no copy.
        """
        array = target.array
        _add(array, other.array, array)
        return target

    def literal(self, record: ValueRecord) -> ValueRecord:
        """A number as an operand."""
        return record

    def write(self, mode: str, call: Call, operands: Any) -> ValueRecord:
        """The call written over its first operand ("over"), or added to the operand
        before its own ("into"); the caller owns that memory.

        Cost: no allocation, no copy.
        """
        target = operands[0]
        xs = operands if mode == "over" else operands[1:]
        plan = plan_of(call.op, call.ins, call.params)
        arrays = [x.array for x in xs]
        if mode == "into":
            assert plan.into is not None
            plan.into(STATE.get(), *arrays, target.array)
        else:
            assert plan.overwrite is not None
            plan.overwrite(*arrays, target.array)
        return target  # type: ignore[no-any-return]


DEFAULT_DEVICE: Final[ContextVar[Any]] = ContextVar("tenferro_ad_device", default=CPU)
_add: Final = np.add
DIRECT: Final = DirectEvaluator()


def direct() -> DirectEvaluator:
    """Who computes on bare records here: the open trace, or the direct evaluator."""
    trace: DirectEvaluator | None = STATE.get().trace
    return DIRECT if trace is None else trace


# ---- Python scalars ------------------------------------------------------------------

_scalars: dict[tuple[Any, ...], ValueRecord] = {}


def scalar_key(value: Any, dtype: np.dtype[Any], device: Any) -> tuple[Any, ...]:
    """What numbers of one value, signs of zero included, are remembered by."""
    text = not value or type(value) is complex
    return (type(value), str(value) if text else value, dtype, device)


def scalar_record(value: Any, dtype: np.dtype[Any], device: Any) -> ValueRecord:
    """A Python number as an operand: a rootless record, with no event (decisions)."""
    key = scalar_key(value, dtype, device)
    found = _scalars.get(key)
    if found is None:
        before = quiet()
        try:
            array = np.asarray(value, dtype=dtype)
        except OverflowError:
            raise InvalidArgumentError(
                operation="promotion",
                argument="number",
                found=f"{shown(value)} beside values of dtype {dtype}",
                fix="use a number that the dtype holds, or convert with `ta.astype`",
            ) from None
        finally:
            loud(before)
        found = ValueRecord(array, aval_of((), dtype, device), None)
        if len(_scalars) >= PLAN_LIMIT:
            _scalars.clear()
        _scalars[key] = found
    return found


def as_records(op: Op, operands: tuple[Any, ...]) -> tuple[ValueRecord, ...]:
    """Give Python numbers the dtype that other operands ask for (weak promotion)."""
    known = [x.aval for x in operands if isinstance(x, ValueRecord)]
    if not known:
        raise InternalError(
            operation=op.name,
            argument=op.args[0],
            found="numbers only",
            fix="give at least one array operand",
        )
    dtype = np.result_type(*[a.dtype for a in known])
    return tuple(
        x
        if isinstance(x, ValueRecord)
        else scalar_record(x, np.result_type(dtype, x), known[0].device)
        for x in operands
    )


def devices() -> list[Any]:
    """The devices that values can live on: the CPU, and those opened so far."""
    return [CPU, *opened_devices()]


def default_device() -> Any:
    """The device of values that are made without one."""
    return DEFAULT_DEVICE.get()


def device_of(device: Any, operation: str) -> Any:
    """The device that a discovery name or a device stands for; None is the default.

    Raises:
        InvalidArgumentError: no device of that name.
    """
    if device is None:
        return DEFAULT_DEVICE.get()
    if isinstance(device, str):
        return find_device(device, operation)
    if not hasattr(device, "plan"):
        raise InvalidArgumentError(
            operation=operation,
            argument="device",
            found=a_kind(device),
            fix="use a name that `ta.devices()` shows, or the device itself",
        )
    return device


def host_aval(
    array: np.ndarray[Any, Any], device: Any = None, operation: str = "asarray"
) -> Aval:
    """The aval that an outside array has once it is transferred to `device`."""
    dtype = array.dtype.newbyteorder("=")
    return aval_of(array.shape, dtype, device_of(device, operation))
