"""`ta.scan`: a loop as one recorded operation.

The body is traced once, for one step; what it closes over becomes operands of the loop
and keeps its gradient. How the loop is differentiated and what it keeps stands in its
row (`ops/_scan.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .._aval import aval_of
from ..errors import InvalidArgumentError, ShapeError, a_kind
from ..ops import body_of, scanned
from ..tape import TOOLS
from ._axes import int_of
from ._bodies import Carry, rooted, traced_step, unflatten
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, device_in
from ._pytrees import flatten, need_callable


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """Carry values through a loop and stack what its steps give.

        total, sums = ta.scan(lambda c, x: (c + x, c + x), 0.0, np.ones(3))
        assert sums.tolist() == [1.0, 2.0, 3.0]

    As `for x in xs: carry, y = f(carry, x)`, with `init` as the first carry.

    Args:
        f: `f(carry, x)` gives `(carry, y)`, pytrees of tensors. Called with symbolic
            values of one step; its Python control flow must not depend on them.
        init: a pytree of tensors. The structure, shapes and dtypes of the carry stay
            the same in every step; a Python number takes the dtype that `f` gives it.
        xs: a pytree of tensors that have the steps along axis 0, or None.
        length: number of steps; needed if `xs` has no tensor.
        reverse: the steps run from the last entry to the first; ys are stacked in the
            order of `xs` all the same.

    Returns:
        The last carry, and a pytree like `y` with the steps along axis 0 of each
        tensor. No steps give `init` and empty stacks.

    Raises:
        InvalidArgumentError: `f` gives no pair, or a carry of another structure;
            nothing says how many steps there are.
        ShapeError, DTypeError: a carry changes its shape or dtype; names it.
        ShapeError: tensors of `xs` differ in their number of steps.
        TracedConversionError: Python asks for a value inside the loop.

    Cost: for each step one output for each operation of the body; one output for each
        stack; no copies. A recording keeps `xs`, what the body closes over and one
        stack for each carry, as far as the body's derivative reads them, and nothing
        from inside the body: backward runs the body once more, as a checkpoint does.
        Forward mode runs values and tangents together.
    """
    need_callable("scan", f)
    rows, xs_def = flatten(xs)
    device = device_in([*rows, *flatten(init)[0]])
    rows = [as_tensor(x, device) for x in rows]
    steps = _steps(rows, xs_def, length)

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        out = f(carry, x)
        if not (isinstance(out, tuple | list) and len(out) == 2):
            raise InvalidArgumentError(
                operation="scan",
                argument="f",
                found=f"a function that gives {a_kind(out)}",
                fix="return the pair `(carry, y)`; y may be None",
            )
        return out[0], out[1]

    return looped("scan", "f", step, init, xs, rows, steps, reverse=reverse)


def looped(
    operation: str,
    argument: str,
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    rows: Sequence[EagerTensor],
    length: int,
    *,
    reverse: bool = False,
) -> tuple[Any, Any]:
    """`scan` in the name of another function; `rows` are the tensors of `xs`."""
    carry = Carry(init, "init", rows)
    entries = [aval_of(x.shape[1:], x.dtype, x.device) for x in rows]
    program, constants, out_def = traced_step(
        operation, argument, step, carry, (init, xs), entries
    )
    outs = scanned(
        HANDLES,
        body_of(program, TOOLS),
        carry.tensors,
        rows,
        constants,
        length,
        reverse=reverse,
    )
    return unflatten(out_def, [rooted(y) for y in outs])  # type: ignore[no-any-return]


def _steps(rows: list[EagerTensor], xs_def: Any, length: int | None) -> int:
    """How many steps there are."""
    names = ["xs" + "".join(f"[{part!r}]" for part in path) for path in xs_def.paths()]
    known: list[tuple[str, int]] = []
    if length is not None:
        known.append(("length", int_of("scan", "length", length, 0)))
    for name, x in zip(names, rows, strict=True):
        if not x.ndim:
            raise ShapeError(
                operation="scan",
                argument=name,
                found="a value without axes, where the steps lie along axis 0",
                fix="close over what is the same in every step",
            )
        known.append((name, x.shape[0]))
    if not known:
        raise InvalidArgumentError(
            operation="scan",
            argument="length",
            found="neither `length` nor a tensor in `xs`",
            fix="give the number of steps: `length=`",
        )
    first, steps = known[0]
    for name, n in known:
        if n != steps:
            raise ShapeError(
                operation="scan",
                argument=name,
                found=f"{n} steps, where `{first}` has {steps}",
                fix="give everything the same number of steps",
            )
    return steps
