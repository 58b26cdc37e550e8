"""`ta.while_loop` and `ta.fori_loop`: loops whose number of steps values may decide.

Where the values are there, `while_loop` runs like Python's own statement, each step as
ordinary recorded operations. In a traced function it is one operation with a test and a
body (`ops/_while.py`). Reverse mode needs a bound in either case, so that a function
means the same eager and traced; with one, and for counted loops, it is a `scan`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._ledger import STATE
from ..ops import body_of, looped_while, refused_reverse
from ..runtime import STEPS
from ..tape import TOOLS
from ._axes import int_of
from ._bodies import Carry, rooted, structure_of, traced_step, unflatten
from ._branches import (
    COUNT,
    branches_of,
    decided,
    is_planning,
    scalar_of,
    truth_of,
)
from ._dispatch import HANDLES, pulled_mask
from ._eager import EagerTensor
from ._loops import looped
from ._make import as_tensor, tensors
from ._pytrees import flatten, need_callable
from ._trace import traced


def while_loop(
    cond_fun: Callable[[Any], Any],
    body_fun: Callable[[Any], Any],
    init_val: Any,
    max_steps: int | None = None,
) -> Any:
    """`val = body_fun(val)` while `cond_fun(val)`, from `init_val` on.

        n = ta.while_loop(lambda n: n < 10, lambda n: n * 2, 1)
        assert n.item() == 16

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
    need_callable("while_loop", cond_fun, "cond_fun")
    need_callable("while_loop", body_fun, "body_fun")
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
    if STATE.get().trace is None or is_planning():
        return _inline(operation, test, step, carry)
    program, constants, _ = traced_step(
        operation, "body_fun", lambda val: (step(val), None), carry, (init,)
    )
    tested, test_constants, _ = traced(
        lambda val: _truth(operation, test(val), carry.device),
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


def _truth(operation: str, x: Any, device: Any) -> EagerTensor:
    return truth_of(scalar_of(operation, "cond_fun", as_tensor(x, device)))


def _inline(
    operation: str, test: Callable[[Any], Any], step: Callable[[Any], Any], carry: Carry
) -> Any:
    """One step after the other, as ordinary operations."""
    now = carry.tensors
    known: list[Any] | None = None
    _refuse_reverse(now)
    planned = 0
    while True:
        goes = decided(operation, "cond_fun", test(unflatten(carry.treedef, now)))
        if goes is None:  # a plan: further steps hold no more than these
            planned += 1
            goes = planned <= STEPS
        if not goes:
            break
        out = step(unflatten(carry.treedef, now))
        carry.check_structure(operation, "body_fun", out)
        made = carry.taken(flatten(out)[0])
        del out
        avals = [x.aval for x in made]
        if known is None and carry.adopt(avals):  # numbers take the dtype of the step
            now = carry.tensors
            continue
        if avals != known:
            carry.check_avals(operation, "body_fun", avals)
            known = avals
        now = made
        _refuse_reverse(now)
    return unflatten(carry.treedef, [rooted(x) for x in now])


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

    def alike(val: Any) -> Any:
        return unflatten(carry.treedef, carry.taken(flatten(step(val))[0]))

    def masked(val: Any, _: Any) -> tuple[Any, Any]:
        return branches_of(
            "while_loop",
            _truth("while_loop", test(val), carry.device),
            {"cond_fun": lambda val: val, "body_fun": alike},
            (val,),
        ), None

    start = unflatten(carry.treedef, carry.tensors)
    return looped("while_loop", "body_fun", masked, start, None, [], steps)[0]


# ---- counted loops -------------------------------------------------------------------


def fori_loop(
    lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any
) -> Any:
    """`val = body_fun(i, val)` for i from `lower` up to but not including `upper`.

        total = ta.fori_loop(0, 4, lambda i, s: s + i, 0)
        assert total.item() == 6

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
    need_callable("fori_loop", body_fun, "body_fun")
    bounds = [
        decided("fori_loop", name, x, COUNT)
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
    first, last = (HANDLES.astype(x, np.dtype(np.int64)) for x in tensors(lower, upper))

    def going(state: Any) -> Any:
        return HANDLES.less(state[0], last)

    def step(state: Any) -> Any:
        i, val = state
        return HANDLES.add(i, 1), body_fun(i, val)

    return repeated("fori_loop", going, step, (first, init_val))[1]
