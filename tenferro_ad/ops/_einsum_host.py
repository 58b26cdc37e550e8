"""The host kernel of `einsum`: pair after pair, intermediate results in scratch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._aval import Aval, real_dtype
from ._axes import BLOCK, add_reduce, block_sum, in_blocks
from ._call import Call
from ._equations import DType, Ready, Shape, wide
from ._pairs import Array, multiply, scratch_of
from ._schedule import Path, Schedule, schedule_of


def plan_of_call(call: Call) -> Schedule:
    """The schedule of one application, found once."""
    found: Schedule | None = call.__dict__.get("schedule")
    if found is None:
        found = call.__dict__["schedule"] = plan_for(call.ins, *call.params)
    return found


def plan_for(xs: Sequence[Aval], equation: str, path: Path) -> Schedule:
    shapes, dtypes = tuple([x.shape for x in xs]), tuple([x.dtype for x in xs])
    return schedule_of(equation, path, shapes, dtypes)


def einsum_values(call: Call, outs: list[Array], ins: list[Array]) -> None:
    plan, out = plan_of_call(call), outs[0]
    if not plan.result.is_distinct:
        out.fill(0)
        out = _diagonals(plan.result, out)
    if not plan.steps:
        _one_operand(plan, ins[0], out)
        return
    made: dict[int, Array] = {}

    def taken(k: int, dtype: DType) -> Array:
        return made.pop(k) if k in made else _made_ready(plan.ready[k], ins[k], dtype)

    for step in plan.steps:
        x, y = taken(step.x, step.dtype), taken(step.y, step.dtype)
        z = out if step is plan.steps[-1] else np.empty(step.shape, step.dtype)
        multiply(step.layout, x, y, z, step.dtype)
        made[step.out] = z


def _diagonals(ready: Ready, x: Array) -> Array:
    """A view with each symbol once, in the order `ready.distinct`."""
    if ready.squeezed:
        x = x.reshape([n for k, n in enumerate(x.shape) if k not in ready.squeezed])
    if ready.term == ready.distinct:
        return x
    axes = [[k for k, c in enumerate(ready.term) if c == d] for d in ready.distinct]
    return np.lib.stride_tricks.as_strided(
        x,
        [x.shape[a[0]] for a in axes],
        [sum([x.strides[k] for k in a]) for a in axes],
    )


def _made_ready(ready: Ready, x: Array, dtype: DType) -> Array:
    """The operand with distinct symbols, for a pair in `dtype`; sums are scratch."""
    if ready.is_trivial:
        return x
    x = _diagonals(ready, x)
    if not ready.summed:
        return x
    rest = [n for k, n in enumerate(x.shape) if k not in ready.summed]
    out = np.empty(rest, dtype if x.dtype.kind == "c" else real_dtype(dtype))
    _sum_into(out, x, ready.summed)
    return out


def _sum_into(out: Array, x: Array, axes: Shape) -> None:
    dtype = wide(out.dtype)
    if in_blocks(x, axes, dtype):
        np.copyto(out, block_sum(x, axes).reshape(out.shape), casting="unsafe")
    elif dtype == out.dtype:
        add_reduce(x, axes, dtype, out)
    else:
        np.copyto(out, add_reduce(x, axes, dtype), casting="unsafe")


def _one_operand(plan: Schedule, x: Array, out: Array) -> None:
    ready = plan.ready[0]
    x = _diagonals(ready, x)
    target = out.transpose([plan.result.symbols.index(c) for c in ready.symbols])
    if ready.summed:
        _sum_into(target, x, ready.summed)
    else:
        np.copyto(target, x)


def einsum_scratch(call: Call) -> int:
    """The largest sum of results in hand and what the pair in work takes besides."""
    plan = plan_of_call(call)
    peak = live = 0
    if not plan.steps and plan.ready[0].summed:
        peak = _sum_scratch(call.ins[0], plan.size(0))
    held: dict[int, int] = {}
    for step in plan.steps:
        last = step is plan.steps[-1]
        item = step.dtype.itemsize
        for k in (step.x, step.y):
            if k < len(plan.ready) and plan.ready[k].summed:
                held[k] = item * plan.size(k)
                peak = max(peak, live + _sum_scratch(call.ins[k], plan.size(k)))
                live += held[k]
        if not last:
            held[step.out] = item * plan.size(step.out)
            live += held[step.out]
        plain = not last or (call.out.dtype == step.dtype and plan.result.is_distinct)
        peak = max(peak, live + scratch_of(step.layout, step.dtype, plain=plain))
        live -= held.pop(step.x, 0) + held.pop(step.y, 0)
    return peak


def _sum_scratch(x: Aval, sums: int) -> int:
    """Blocks and double sums of an operand's own sum."""
    return 16 * (2 * min(x.size, 2 * BLOCK) + 3 * sums)
