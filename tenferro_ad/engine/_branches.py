"""`ta.cond` and `ta.switch`: one of several functions, as a value decides.

Where the deciding value is there, these run like Python's own statement: only the
branch that is taken, as ordinary recorded operations. In a traced function they are one
operation with the branches as bodies (`ops/_cond.py`); what branches close over becomes
operands and keeps its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .._aval import mismatch
from .._ledger import OPERATION_OUTPUT, STATE, Account, State
from ..errors import DTypeError, InvalidArgumentError, ShapeError, type_name
from ..ops import body_of, branched, evaluate
from ..tape import TOOLS
from ._bodies import Traced, joined, placed, taking, unflatten, unused
from ._dispatch import HANDLES, pulled_mask
from ._eager import EagerTensor
from ._make import as_tensor, device_in
from ._plan import planned
from ._pytrees import flatten, need_callable
from ._trace import aval_like, traced


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """`true_fn(*operands)` if `pred`, else `false_fn(*operands)`.

        y = ta.cond(ta.sum(x) > 0.0, ta.sin, ta.cos, x)

    Args:
        pred: a boolean or real scalar; numbers count as true unless they are 0.
        true_fn, false_fn: functions of the operands; in a traced function both are
            called and must give the same structure, shapes and dtypes.
        operands: pytrees of tensors.

    Raises:
        ShapeError, DTypeError: `pred` is no boolean or real scalar.
        InvalidArgumentError, ShapeError, DTypeError (in a traced function): the
            branches differ in structure, shape or dtype of what they give.

    Cost: that of the branch taken. In a traced function one operation, which keeps the
        operands that a branch's derivative reads and nothing from inside: backward runs
        the branch once more. Under `vmap`, a `pred` that differs between examples runs
        both branches and selects.
    """
    need_callable("cond", true_fn, "true_fn")
    need_callable("cond", false_fn, "false_fn")
    value = decided("cond", "pred", pred)
    if value is not None:
        return _taken(true_fn if value else false_fn, pred, operands)
    if is_planning():
        return _taken(largest([false_fn, true_fn], operands), pred, operands)
    pred = scalar_of("cond", "pred", as_tensor(pred))
    fns = {"false_fn": false_fn, "true_fn": true_fn}
    return branches_of("cond", truth_of(pred), fns, operands)


def switch(index: Any, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; an index out of range is brought to its end.

    Args:
        index: an integer scalar.
        branches: functions of the operands, at least one; see `cond`.
        operands: pytrees of tensors.

    Raises:
        InvalidArgumentError: no branches.
        and what `cond` raises.

    Cost: as `cond`.
    """
    if not isinstance(branches, Sequence):
        raise DTypeError(
            operation="switch",
            argument="branches",
            found=f"an object of type `{type_name(branches)}`",
            fix="pass a list of functions",
        )
    for branch in branches:
        need_callable("switch", branch, "branches")
    if not branches:
        raise InvalidArgumentError(
            operation="switch",
            argument="branches",
            found="no branches",
            fix="give at least one function",
        )
    value = decided("switch", "index", index, COUNT)
    if value is not None or len(branches) == 1:
        chosen = min(max(int(value or 0), 0), len(branches) - 1)
        return _taken(branches[chosen], index, operands)
    if is_planning():
        return _taken(largest(branches, operands), index, operands)
    index = scalar_of("switch", "index", as_tensor(index), COUNT)
    fns = {f"branches[{k}]": fn for k, fn in enumerate(branches)}
    return branches_of("switch", index, fns, operands)


# Which dtypes decide: a truth, or a number of something.
TRUTH: Final = "biuf"
COUNT: Final = "iu"


def decided(operation: str, argument: str, x: Any, kinds: str = TRUTH) -> Any:
    """The scalar as a Python number, or None in a traced function.

    Raises:
        ShapeError, DTypeError: no scalar, or of another kind.
    """
    if isinstance(x, bool | int | float | np.generic) and np.dtype(type(x)).kind in (
        *kinds,
        "b",
    ):
        return x
    is_known = isinstance(x, np.ndarray) and not x.ndim
    if is_known and x.dtype.kind in (*kinds, "b"):
        return x.item()
    x = scalar_of(operation, argument, as_tensor(x), kinds)
    if STATE.get().trace is not None:
        return None
    with x.value() as guard:
        return guard.numpy().item()


def scalar_of(
    operation: str, argument: str, x: EagerTensor, kinds: str = TRUTH
) -> EagerTensor:
    if x.shape != ():
        raise ShapeError(
            operation=operation,
            argument=argument,
            found=f"shape {x.shape}",
            fix="give a scalar (`ta.any`, `ta.all`), or choose between elements with "
            "`ta.where`",
        )
    if x.dtype.kind not in kinds:
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"dtype {x.dtype}",
            fix="give an integer" if kinds == COUNT else "compare it with something",
        )
    return x


def truth_of(x: EagerTensor) -> EagerTensor:
    """A scalar as a boolean: whether it is not 0."""
    made: EagerTensor = x if x.dtype == np.bool_ else HANDLES.not_equal(x, 0)
    return made


def _as_given(x: Any, device: Any) -> Any:
    """An operand for a branch: arrays come in as tensors."""
    return as_tensor(x, device) if isinstance(x, np.ndarray) else x


def is_planning() -> bool:
    """Eager work is planned: what it does in Python happens, but values decide
    nothing."""
    trace = STATE.get().trace
    return trace is not None and trace.counting is not None


def largest(
    fns: Sequence[Callable[..., Any]], operands: tuple[Any, ...]
) -> Callable[..., Any]:
    """The branch whose passes hold most by themselves."""
    state = STATE.get()
    leaves, treedef = flatten(operands)
    avals = [aval_like(x) for x in leaves]

    def size(fn: Callable[..., Any]) -> tuple[int, int, int]:
        program, constants, _ = traced(fn, leaves, avals, treedef)
        given = [as_tensor(x) for x, a in zip(leaves, avals, strict=True) if a]
        given += constants
        mask = pulled_mask(state.level, given)
        found = planned(
            lambda *xs: evaluate(program, HANDLES, xs),
            given,
            [x.aval for x in given],
            [bool(mask >> i & 1) for i in range(len(given))],
            forward=True,
        )
        allocations = sum(found.allocations.values())
        return found.peak_bytes, found.retained_bytes, allocations

    # Apart from the plan around it: what is tried here is not held there.
    token = STATE.set(State(Account(None), OPERATION_OUTPUT, None))
    try:
        return max(fns, key=size)
    finally:
        STATE.reset(token)


def _taken(fn: Callable[..., Any], by: Any, operands: tuple[Any, ...]) -> Any:
    """What a branch gives; outside data goes where what decides and operands are."""
    leaves, treedef = flatten(operands)
    device = device_in([*leaves, by])
    out = fn(*unflatten(treedef, [_as_given(x, device) for x in leaves]))
    outs, out_def = flatten(out)
    return unflatten(out_def, [as_tensor(y, device) for y in outs])


def branches_of(
    operation: str,
    index: EagerTensor,
    fns: dict[str, Callable[..., Any]],
    operands: tuple[Any, ...],
) -> Any:
    """All branches as bodies of one operation."""
    leaves, in_def = flatten(operands)
    device = device_in([*leaves, index])
    leaves = [_as_given(x, device) for x in leaves]
    avals = [aval_like(x) for x in leaves]

    def there(fn: Callable[..., Any]) -> Callable[..., Any]:
        def placing(*given: Any) -> Any:
            outs, out_def = flatten(fn(*given))
            return unflatten(out_def, [placed(y, device) for y in outs])

        return placing

    made = [traced(there(fn), leaves, avals, in_def) for fn in fns.values()]
    _check_alike(operation, list(fns), made)
    given = [x for x, aval in zip(leaves, avals, strict=True) if aval is not None]
    n = len(given)
    constants, places = joined([found[1] for found in made])
    bodies = [
        body_of(
            taking(program, [*range(n), *unused(at, constants, n)]),
            TOOLS,
        )
        for (program, _, _), at in zip(made, places, strict=True)
    ]
    outs = branched(HANDLES, index, bodies, [*given, *constants])
    return unflatten(made[0][2], outs)


def _check_alike(operation: str, names: list[str], made: list[Traced]) -> None:
    """Branches give the same structure, shapes and dtypes.

    Raises:
        InvalidArgumentError, ShapeError, DTypeError: shows both.
    """
    program, _, out_def = made[0]
    paths = [
        "out" + "".join(f"[{part!r}]" for part in path) for path in out_def.paths()
    ]
    for name, (other, _, other_def) in zip(names[1:], made[1:], strict=True):
        if other_def != out_def:
            raise InvalidArgumentError(
                operation=operation,
                argument=name,
                found=f"a result of the structure {other_def}, where `{names[0]}` "
                f"gives {out_def}",
                fix="return the same structure from every branch",
            )
        for path, a, b in zip(paths, program.out_avals, other.out_avals, strict=True):
            if not a.same(b):
                raise mismatch(
                    b,
                    a,
                    operation=operation,
                    argument=name,
                    found=f"{b!r} for `{path}`, where `{names[0]}` gives {a!r}",
                    fix="return the same shapes and dtypes from every branch "
                    "(`ta.astype`, `ta.broadcast_to`)",
                )
