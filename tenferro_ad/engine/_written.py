"""Eager functions of one and two operands, written out as source.

They run once for every eager operation, so finding the plan, the door, the kernel,
recording and making the handle cost no further calls. Anything unusual (other operand
types, several levels) leaves them for the functions that they are given. A leaf is
never cleared, so its uses are not counted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .._ledger import STATE
from ..backends import compiled, loud, quiet
from ..ops import Op
from ..storage import DOOR_NAMES, SMALL_RECORD_SOURCE
from ..tape import hold
from ._eager import EagerTensor

_UNARY = """
def unary(x):
    try:
        xr = x._rec
        plan = plans[xr.aval]
    except (AttributeError, KeyError):
        return general(op, x)
    {compute}
    specs = plan.specs
    core = state.core
    link = x._link
    if core is None or specs is None:
        if link is None and state.level is None:
            return Handle(out, None, -1, None)
        return finish(state.level, plan.call, (x,), (xr,), out)
    if link is core:
        i = x._node
        core.live[i] += 1
    elif link is None:
        return Handle(out, None, -1, None)
    else:
        try:
            i = core.leaves[link]
        except KeyError:
            i = leaf_node(state.level, link, xr.aval)
            if i is None:
                return finish(state.level, plan.call, (x,), (xr,), out)
    ins = (i,)
    spec = specs[1] or plan.spec(1)
    y = yr = None
    {record}
"""
_BINARY = """
def binary(x, y):
    try:
        xr = x._rec
        yr = y._rec
        plan = plans[xr.aval][yr.aval]
    except (AttributeError, KeyError):
        return general(op, x, y)
    {compute}
    specs = plan.specs
    core = state.core
    link = x._link
    if core is None or specs is None:
        if link is None and y._link is None and state.level is None:
            return Handle(out, None, -1, None)
        return finish(state.level, plan.call, (x, y), (xr, yr), out)
    if link is core:
        i = x._node
        mask = 1
    elif link is None:
        mask = 0
    else:
        try:
            i = core.leaves[link]
        except KeyError:
            i = leaf_node(state.level, link, xr.aval)
            if i is None:
                return finish(state.level, plan.call, (x, y), (xr, yr), out)
        mask = 5
    link = y._link
    if link is core:
        j = y._node
        core.live[j] += 1
        mask += 2
    elif link is not None:
        try:
            j = core.leaves[link]
        except KeyError:
            j = leaf_node(state.level, link, yr.aval)
            if j is None:
                return finish(state.level, plan.call, (x, y), (xr, yr), out)
        mask += 2
    if mask == 3:
        core.live[i] += 1
        ins = (i, j)
    elif mask == 2:
        ins = (j,)
    elif mask == 1:
        core.live[i] += 1
        ins = (i,)
    elif not mask:
        return Handle(out, None, -1, None)
    else:  # x is a leaf
        mask -= 4
        ins = (i, j) if mask == 3 else (i,)
    spec = specs[mask] or plan.spec(mask)
    {record}
"""
# The plan's `execute`, with its shortest way written out.
_COMPUTE = """
    state = state_of()
    fresh = plan.fresh
    if (
        fresh is not None
        and state.is_plain
        and plan.device.small is empty
        and {inline}
    ):
        before = quiet()
        try:
            array = fresh({arrays})
        finally:
            loud(before){door}
    elif state.trace is None:
        out = plan.execute(state, {records})
    else:
        return general(op, {handles})
"""
# `TapeRecord.append` for one output, and holding what the rule keeps.
_RECORD = """
    code = spec.code
    if code == 4:
        xr.tokens.append(None)
        yr.tokens.append(None)
        saved = (yr, xr)
    elif code == 3:
        out.tokens.append(None)
        saved = (out,)
    elif not code:
        saved = ()
    elif code == 1:
        xr.tokens.append(None)
        saved = (xr,)
    elif code == 2:
        yr.tokens.append(None)
        saved = (yr,)
    else:
        saved = tuple([hold(out if s < 0 else (xr, yr)[s]) for s in spec.saves])
    live = core.live
    made = new(Handle)
    made._rec = out
    made._link = core
    made._node = len(live)
    made._outer = None
    core.flat += (spec, ins, saved)
    live.append(1)
    {select}return made
"""


def written_out(
    op: Op,
    general: Callable[..., Any],
    finish: Callable[..., Any],
    leaf_node: Callable[..., Any],
) -> Callable[..., Any]:
    """The function of `op`, which has one or two operands and no parameters.

    Args:
        op: the operation.
        general: `general(op, *operands)` does everything, for operands without a plan.
        finish: `finish(level, call, operands, records, out)` records a result where the
            level is not a single tape, and makes its handle.
        leaf_node: `leaf_node(level, link, aval)` gives a leaf's node on its first use,
            None if the link is no leaf that the level watches.
    """
    args = ("x", "y")[: len(op.args)]
    select = "core.has_select = True\n    " if op.is_select else ""
    compute = _COMPUTE.format(
        door=SMALL_RECORD_SOURCE.rstrip(),
        inline=" and ".join(f"{a}r.home is None" for a in args),
        arrays=", ".join(f"{a}r.array" for a in args),
        records=", ".join(f"{a}r" for a in args),
        handles=", ".join(args),
    )
    space: dict[str, Any] = {
        **DOOR_NAMES,
        "Handle": EagerTensor,
        "finish": finish,
        "general": general,
        "hold": hold,
        "leaf_node": leaf_node,
        "loud": loud,
        "op": op,
        "plans": op.plans,
        "quiet": quiet,
        "state_of": STATE.get,
    }
    source = _UNARY if len(args) == 1 else _BINARY
    record = _RECORD.format(select=select)
    written = source.format(compute=compute.strip(), record=record.strip())
    exec(compiled(written), space)
    return space["unary" if len(args) == 1 else "binary"]  # type: ignore[no-any-return]
