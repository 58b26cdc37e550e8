"""The direct evaluator: operations on bare value records, without handles or tapes.

`plan_of` is the one place where an application finds its plan; everything that computes
(eager handles, the sweeps, checkpoint recomputation) goes through it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Final

import numpy as np

from .._aval import Aval, aval_of
from .._ledger import STATE
from ..backends import CPU, Plan
from ..errors import DeviceMismatchError, InternalError, InvalidArgumentError
from ..ops import Evaluator, Op, RuleSpec
from ..storage import ValueRecord

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
                fix=f'move one of them: `x.to("{device.name}")`',
            )
    if device is None:
        device = dict(zip(op.params, params, strict=True)).get("device", CPU)
    plan: Plan = device.plan(op, ins, params)
    return plan


class InputRule:
    """The reverse rule of one input as one operation, its plan fixed.

    The avals of cotangent and saved values are facts of the application, so a sweep has
    nothing left to look up; the functions are written out as source.

    Attributes:
        fresh: `fresh(state, ct, saved)` gives a new value.
        into: `into(state, ct, saved, acc)` adds to the memory of `acc`, which the caller
            owns: no value is made.
        over: `over(ct, saved)` computes into the memory of `ct`, which the caller owns
            and gives up; None where that is impossible.
    """

    __slots__ = ("fresh", "into", "over")

    def __init__(
        self, applied: Any, ix: list[int], out: Aval, saved: list[Aval]
    ) -> None:
        operands = ["ct" if k < 0 else f"saved[{ix[k]}]" for k in applied.operands]
        avals = tuple(out if k < 0 else saved[ix[k]] for k in applied.operands)
        plan = plan_of(applied.op, avals, applied.params)
        arrays = ", ".join(f"{o}.array" for o in operands)
        space: dict[str, Any] = {
            "run": plan.execute,
            "add": plan.into,
            "write": plan.overwrite,
        }
        lines = [
            "def fresh(state, ct, saved):",
            f"    return run(state, {', '.join(operands)})",
            "def into(state, ct, saved, acc):",
            f"    add(state, {arrays}, acc.array)",
            "def over(ct, saved):",
            "    a = ct.array",
            f"    write({arrays}, a)",
            "    return ct",
        ]
        exec("\n".join(lines), space)
        self.fresh = space["fresh"]
        self.into = space["into"]
        possible = (
            plan.overwrite is not None
            and applied.operands[0] == -1
            and -1 not in applied.operands[1:]
            and plan.call.out.same(out)
        )
        self.over = space["over"] if possible else None


class DirectEvaluator(Evaluator):
    """`F` over records. Values it returns are owned by whoever holds them."""

    inplace: ClassVar[bool] = True

    def prepare(self, spec: RuleSpec) -> int:
        """Fix the plans of a rule, once for each application form; gives `spec.kind`.

        kind 1, 2: one or two inputs, each with an `InputRule` in `spec.rules`. kind 0: a
        single input that gets the cotangent itself. kind 3: any mixture, None in
        `spec.rules` for the cotangent itself. kind -1: the general path.
        """
        if spec.kernels is None:
            spec.kind = -1
            return -1
        call = spec.call
        saved = [call.outs[~s] if s < 0 else call.ins[s] for s in spec.saves]
        plain, strong = (
            tuple(
                None if k is None else InputRule(k[which], k[2], call.out, saved)
                for k in spec.kernels
            )
            for which in (0, 1)
        )
        spec.rules = (plain, strong)
        n = len(plain)
        if None not in plain and n <= 2:
            spec.kind = n
        else:
            spec.kind = 0 if plain == (None,) else 3
        return spec.kind

    def bind(self, op: Op) -> Callable[..., Any]:
        if op.variadic:

            def variadic(xs: Any, *params: Any) -> Any:
                plan = plan_of(op, tuple(x.aval for x in xs), params)
                return plan.execute(STATE.get(), *xs)

            return variadic
        n = len(op.args)
        if n == 1 and not op.params:
            plans = op.plans

            def unary(x: Any) -> Any:
                plan = plans.get(x.aval)
                if plan is None:
                    plan = plans[x.aval] = plan_of(op, (x.aval,), ())
                return plan.execute(STATE.get(), x)

            return unary
        if n == 2 and not op.params:

            def binary(x: Any, y: Any) -> Any:
                try:
                    plan = op.plans.get((x.aval, y.aval))
                except AttributeError:
                    x, y = as_records(op, (x, y))
                    plan = None
                if plan is None:
                    plan = plan_of(op, (x.aval, y.aval), ())
                    op.plans[(x.aval, y.aval)] = plan
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
        """`target += other` in the memory of `target`, which the caller owns exclusively.

        Cost: no allocation, no copy.
        """
        array = target.array
        _add(array, other.array, array)
        return target


_add: Final = np.add
DIRECT: Final = DirectEvaluator()


# ---- Python scalars -------------------------------------------------------------------

_scalars: dict[tuple[Any, ...], ValueRecord] = {}


def scalar_record(value: Any, dtype: np.dtype[Any], device: Any) -> ValueRecord:
    """A Python number as an operand: a rootless record, with no event (decisions)."""
    key = (type(value), value, dtype, device)
    found = _scalars.get(key)
    if found is None:
        try:
            array = np.asarray(value, dtype=dtype)
        except OverflowError:
            raise InvalidArgumentError(
                operation="promotion",
                argument="number",
                found=f"{value} beside values of dtype {dtype}",
                fix="use a number that the dtype holds, or convert with `ta.astype`",
            ) from None
        found = ValueRecord(array, aval_of((), dtype, device), None)
        if len(_scalars) >= PLAN_LIMIT:
            _scalars.clear()
        # -0.0 == 0.0 as a key, and NaN never equals itself: neither is cached.
        if value == value and value != 0:
            _scalars[key] = found
    return found


def as_records(op: Op, operands: tuple[Any, ...]) -> tuple[ValueRecord, ...]:
    """Give Python numbers the dtype that the other operands ask for (weak promotion)."""
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


def device_of(device: Any, operation: str) -> Any:
    """The device that a discovery name or a device stands for; None is the CPU.

    Raises:
        InvalidArgumentError: no device of that name.
    """
    if device is None or device == CPU.name:
        return CPU
    if isinstance(device, str):
        raise InvalidArgumentError(
            operation=operation,
            argument="device",
            found=f"`{device}`",
            fix=f"use `{CPU.name}`",
        )
    return device


def host_aval(
    array: np.ndarray[Any, Any], device: Any = None, operation: str = "asarray"
) -> Aval:
    """The aval that an outside array has once it is transferred to `device`."""
    dtype = array.dtype.newbyteorder("=")
    return aval_of(array.shape, dtype, device_of(device, operation))


def release_scalars() -> None:
    """Empty the scalar cache (tests that count objects)."""
    _scalars.clear()
