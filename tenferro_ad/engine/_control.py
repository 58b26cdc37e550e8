"""`ta.cond`, `ta.switch`, `ta.while_loop`: control flow that values decide.

Where the deciding value is there, these run like Python's own statements: only the
branch that is taken, each step as ordinary recorded operations. In a traced function
they are operations with bodies (`ops/_cond.py`, `ops/_while.py`), traced once; what
bodies close over becomes operands and keeps its gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .._ledger import STATE
from ..errors import DTypeError, InvalidArgumentError, ShapeError
from ..ops import Program, body_of, branched, looped_while, refused_reverse
from ..tape import TOOLS
from ._axes import int_of
from ._bodies import Carry, Traced, structure_of, traced_step, unflatten
from ._dispatch import HANDLES, pulled_mask
from ._eager import EagerTensor
from ._loops import looped
from ._make import as_tensor
from ._pytrees import flatten
from ._trace import aval_like, traced

# ---- branches ------------------------------------------------------------------------


def cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    *operands: Any,
) -> Any:
    """`true_fn(*operands)` if `pred`, else `false_fn(*operands)`.

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
    value = _decided("cond", "pred", pred)
    if value is not None:
        return _taken(true_fn if value else false_fn, operands)
    pred = _scalar("cond", "pred", as_tensor(pred))
    if pred.dtype != np.bool_:
        pred = HANDLES.not_equal(pred, 0)
    fns = {"false_fn": false_fn, "true_fn": true_fn}
    return _branches("cond", pred, fns, operands)


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
    if not branches:
        raise InvalidArgumentError(
            operation="switch",
            argument="branches",
            found="no branches",
            fix="give at least one function",
        )
    value = _decided("switch", "index", index, COUNT)
    if value is not None or len(branches) == 1:
        chosen = min(max(int(value or 0), 0), len(branches) - 1)
        return _taken(branches[chosen], operands)
    index = _scalar("switch", "index", as_tensor(index), COUNT)
    fns = {f"branches[{k}]": fn for k, fn in enumerate(branches)}
    return _branches("switch", index, fns, operands)


# Which dtypes decide: a truth, or a number of something.
TRUTH: Final = "biuf"
COUNT: Final = "iu"


def _decided(operation: str, argument: str, x: Any, kinds: str = TRUTH) -> Any:
    """The scalar as a Python number, or None in a traced function."""
    if isinstance(x, bool | int | float | np.generic) and np.dtype(type(x)).kind in (
        *kinds,
        "b",
    ):
        return x
    x = _scalar(operation, argument, as_tensor(x), kinds)
    if STATE.get().trace is not None:
        return None
    with x.value() as guard:
        return guard.numpy().item()


def _scalar(
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


def _as_given(x: Any) -> Any:
    """An operand for a branch: arrays come in as tensors."""
    return as_tensor(x) if isinstance(x, np.ndarray) else x


def _taken(fn: Callable[..., Any], operands: tuple[Any, ...]) -> Any:
    leaves, treedef = flatten(operands)
    out = fn(*unflatten(treedef, [_as_given(x) for x in leaves]))
    outs, out_def = flatten(out)
    return unflatten(out_def, [as_tensor(y) for y in outs])


def _branches(
    operation: str,
    index: EagerTensor,
    fns: dict[str, Callable[..., Any]],
    operands: tuple[Any, ...],
) -> Any:
    """All branches as bodies of one operation."""
    leaves, in_def = flatten(operands)
    leaves = [_as_given(x) for x in leaves]
    avals = [aval_like(x) for x in leaves]
    made = [traced(fn, leaves, avals, in_def) for fn in fns.values()]
    _check_alike(operation, list(fns), made)
    given = [x for x, aval in zip(leaves, avals, strict=True) if aval is not None]
    constants, places = _joined([found[1] for found in made])
    bodies = [
        body_of(_widened(program, len(given), at, constants), TOOLS)
        for (program, _, _), at in zip(made, places, strict=True)
    ]
    outs = branched(HANDLES, index, bodies, [*given, *constants])
    return unflatten(made[0][2], outs)


def _joined(
    parts: list[list[EagerTensor]],
) -> tuple[list[EagerTensor], list[list[int]]]:
    """The constants of all branches, each once, and where those of each stand."""
    found: dict[Any, int] = {}
    constants: list[EagerTensor] = []
    places = []
    for part in parts:
        at = []
        for x in part:
            key = (id(x._record), id(x._link), x._node)
            if key not in found:
                found[key] = len(constants)
                constants.append(x)
            at.append(found[key])
        places.append(at)
    return constants, places


def _widened(
    program: Program, n: int, at: list[int], constants: list[EagerTensor]
) -> Program:
    """A branch that also takes, and ignores, the constants of the others."""
    mine = dict(zip(at, program.inputs[n:], strict=True))
    more = [
        mine[k] if k in mine else program.variable(x.aval)
        for k, x in enumerate(constants)
    ]
    program.inputs = [*program.inputs[:n], *more]
    return program


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
                kind = ShapeError if a.shape != b.shape else DTypeError
                raise kind(
                    operation=operation,
                    argument=name,
                    found=f"{b!r} for `{path}`, where `{names[0]}` gives {a!r}",
                    fix="return the same shapes and dtypes from every branch "
                    "(`ta.astype`, `ta.broadcast_to`)",
                )


# ---- while ---------------------------------------------------------------------------


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_steps: int | None = None,
) -> Any:
    """`val = body_fun(val)` while `cond_fun(val)`, from `init_val` on.

    Args:
        cond_fun: gives a boolean or real scalar.
        body_fun: gives a value of the same structure, shapes and dtypes.
        init_val: a pytree of tensors; a Python number takes the dtype that the body
            gives it.
        max_steps: the loop ends after so many steps in any case. Reverse mode needs
            this bound: the loop is then a `scan` over all of them, in which the steps
            after the last hand on the value.

    Raises:
        NoRuleError: reverse mode without `max_steps`.
        InvalidArgumentError, ShapeError, DTypeError: the body changes the structure, a
            shape or a dtype; `cond_fun` gives no scalar.

    Cost: that of the steps. With a bound, `max_steps` evaluations of `cond_fun`; a
        recording keeps one stack of that length for each value (see `scan`).
    """
    if max_steps is not None:
        return _bounded(cond_fun, body_fun, init_val, max_steps)
    return repeated("while_loop", cond_fun, body_fun, init_val)


def repeated(
    operation: str,
    test: Callable[[Any], Any],
    step: Callable[[Any], Any],
    init: Any,
) -> Any:
    """`while_loop` in the name of another function."""
    carry = Carry(init, "init_val", ())
    if STATE.get().trace is None:
        return _inline(operation, test, step, carry)
    program, constants, _ = traced_step(
        operation, "body_fun", lambda val: (step(val), None), carry, (init,)
    )
    tested, test_constants, _ = traced(
        lambda val: _truth(operation, test(val)),
        [None] * len(carry),
        carry.avals,
        structure_of((init,)),
    )
    outs = looped_while(
        HANDLES,
        body_of(tested, TOOLS),
        body_of(program, TOOLS),
        carry.tensors,
        test_constants,
        constants,
    )
    return unflatten(carry.treedef, outs)


def _truth(operation: str, x: Any) -> EagerTensor:
    x = _scalar(operation, "cond_fun", as_tensor(x))
    return x if x.dtype == np.bool_ else HANDLES.not_equal(x, 0)


def _inline(
    operation: str, test: Callable[[Any], Any], step: Callable[[Any], Any], carry: Carry
) -> Any:
    """One step after the other, as ordinary operations."""
    now, known = carry.tensors, False
    _refuse_reverse(now)
    while True:
        if not _decided(operation, "cond_fun", test(unflatten(carry.treedef, now))):
            break
        out = step(unflatten(carry.treedef, now))
        carry.check_structure(operation, "body_fun", out)
        made = [as_tensor(x) for x in flatten(out)[0]]
        del out
        avals = [x.aval for x in made]
        if not known and carry.adopt(avals):  # numbers take the dtype of the step
            now = carry.tensors
            continue
        if not known or avals != known:
            carry.check_avals(operation, "body_fun", avals)
            known = avals
        now = made
        _refuse_reverse(now)
    return unflatten(carry.treedef, [rooted(x) for x in now])


def rooted(x: EagerTensor) -> EagerTensor:
    """A number as a value of its own."""
    return HANDLES.accumulate(x) if x._record.is_rootless else x


def _refuse_reverse(carry: list[EagerTensor]) -> None:
    """Here and in traced functions alike."""
    if pulled_mask(STATE.get().level, carry):
        raise refused_reverse("while_loop")


def _bounded(
    test: Callable[[Any], Any], step: Callable[[Any], Any], init: Any, max_steps: int
) -> Any:
    """A scan in which the steps after the last hand on the value."""
    steps = int_of("while_loop", "max_steps", max_steps, 0)
    carry = Carry(init, "init_val", ())
    # Settles the dtypes of numbers and names what the body does wrong.
    traced_step("while_loop", "body_fun", lambda val: (step(val), None), carry, (init,))

    def masked(val: Any, _: Any) -> tuple[Any, Any]:
        return _branches(
            "while_loop",
            _truth("while_loop", test(val)),
            {"cond_fun": lambda val: val, "body_fun": step},
            (val,),
        ), None

    start = unflatten(carry.treedef, carry.tensors)
    return looped("while_loop", "body_fun", masked, start, None, [], steps)[0]


# ---- counted loops -------------------------------------------------------------------


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any
) -> Any:
    """`val = body_fun(i, val)` for i from `lower` up to but not including `upper`.

    Args:
        lower, upper: integers. Bounds that a traced function computes make it a
            `while_loop`, without reverse mode.
        body_fun: gives a value of the same structure, shapes and dtypes; `i` is an
            int64 scalar.
        init_val: a pytree of tensors; a Python number takes the dtype that the body
            gives it.

    Raises: as `scan`, or `while_loop`.

    Cost: that of a `scan` over `arange(lower, upper)`.
    """
    bounds = [
        _decided("fori_loop", name, x, COUNT)
        for name, x in (("lower", lower), ("upper", upper))
    ]
    if None not in bounds:
        start, stop = (int(n) for n in bounds)
        n = max(stop - start, 0)
        device = Carry(init_val, "init_val", ()).device
        numbers = HANDLES.arange(start, start + n, 1, n, np.dtype(np.int64), device)

        def counted(val: Any, i: Any) -> tuple[Any, Any]:
            return body_fun(i, val), None

        return looped(
            "fori_loop", "body_fun", counted, init_val, numbers, [numbers], n
        )[0]
    first, last = (
        HANDLES.astype(as_tensor(x), np.dtype(np.int64)) for x in (lower, upper)
    )

    def going(state: Any) -> Any:
        return HANDLES.less(state[0], last)

    def step(state: Any) -> Any:
        i, val = state
        return HANDLES.add(i, 1), body_fun(i, val)

    return repeated("fori_loop", going, step, (first, init_val))[1]
