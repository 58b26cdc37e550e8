"""In-place change under exclusive access, and fused elementwise kernels.

A handle gives no write authority. `exclusive` unwraps the containers of handles that
nobody shares, lends one `TensorViewMut` for each, and seats the same handles again
afterwards; either all of them are lent or nothing happened. `update` runs an
elementwise kernel into such a view.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from .._aval import Aval, aval_of, mismatch
from .._ledger import STATE
from ..backends import loud, quiet
from ..errors import (
    BorrowConflictError,
    DTypeError,
    InvalidArgumentError,
    NotUniqueError,
    a_kind,
    type_name,
)
from ..ops import FUNCTIONS, Expr, Op, call, elementwise, var
from ..runtime import plan_of, scalar_record
from ..storage import TensorView, TensorViewMut, ValueRecord
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._moved_out import LENT
from ._pytrees import need_callable


@contextmanager
def exclusive(*tensors: EagerTensor) -> Iterator[list[TensorViewMut]]:
    """Exclusive access to the values of handles: `with ta.exclusive(w) as (m,): ...`.

    Inside the block the handles are empty (using one raises `UseAfterMoveError`); after
    it they hold the same values again. All or nothing.

    Raises:
        DTypeError: something that is no eager tensor.
        NotUniqueError: somebody else holds a value (a clone, a tape, a checkpoint);
            `recovered` is that same handle, and nothing changed.
        BorrowConflictError: a guard or an exported array reads a value.
        InvalidArgumentError: a handle is named twice.

    Cost: metadata only; no allocation, no copy. Waits for work in flight on
        asynchronous lanes (a documented synchronisation point).
    """
    records: list[ValueRecord] = []
    for x in tensors:
        if not isinstance(x, EagerTensor):
            raise DTypeError(
                operation="exclusive",
                argument="tensors",
                found=f"an object of type `{type_name(x)}`",
                fix="name handles: `ta.variable(...)`, `ta.asarray(...)`",
            )
    for device in {id(x.device): x.device for x in tensors}.values():
        device.drain()
    for x in tensors:
        record = x._record
        if any(record is r for r in records):
            raise InvalidArgumentError(
                operation="exclusive",
                argument="tensors",
                found="one handle named twice",
                fix="name each handle once",
            )
        if not record.is_unique or record.is_rootless:
            raise NotUniqueError(
                operation="exclusive",
                argument="tensors",
                found=f"someone else still holds the value of shape {x.shape}",
                fix="drop the other holders (handles, tapes that retain it), or work "
                "on `duplicate_value()`",
                recovered=x,
            )
        records.append(record)
    views: list[TensorViewMut] = []
    try:
        for record in records:
            views.append(record.container().view_mut(record))
    except BorrowConflictError:
        for view in views:
            view.close()
        raise
    nodes = [x._node for x in tensors]
    for x in tensors:
        x._rec, x._node = None, LENT  # type: ignore[assignment]
    try:
        yield views
    finally:
        for view in views:
            view.close()
        for x, record, node in zip(tensors, records, nodes, strict=True):
            x._rec, x._node = record, node


class _Functions:
    """The scalar functions of the operation table, for `fused` expressions."""

    def __getattr__(self, name: str) -> Callable[..., Expr]:
        if name not in FUNCTIONS:
            raise InvalidArgumentError(
                operation="fused",
                argument="fn",
                found=f"the scalar function `{name}`, which there is not",
                fix="use the names of elementwise operations (docs, Operations)",
            )
        return lambda *args: call(name, *args)


@final
class Fused:
    """An elementwise operation made of one expression; differentiable to any order.

    Call it on tensors like any operation, or run it in place with `ta.update`.
    """

    __slots__ = ("op",)

    def __init__(self, op: Op) -> None:
        self.op = op

    def __call__(self, *operands: Any) -> EagerTensor:
        """The expression at every index of the operands, which broadcast.

        Raises:
            InvalidArgumentError: another number of operands.
            DTypeError, ShapeError: as its functions and broadcasting raise.

        Cost: one allocation of the result's size, one pass.
        """
        _need_operands(self.op.name, self, len(operands))
        return HANDLES[self.op](*operands)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<fused {self.op.name}({', '.join(self.op.args)})>"


def fused(fn: Callable[..., Any], name: str | None = None) -> Fused:
    """One kernel from a scalar expression.

        step = ta.fused(lambda E, p, g, lr: p - lr * g)
        with ta.exclusive(w) as (p,):
            ta.update(p, step, x, 0.1)

    Args:
        fn: `fn(E, x, y, ...)` builds the expression with operators and the functions of
            `E` (`E.sqrt`, `E.exp`, `E.select`, ...); it is called once, on symbols.

    Raises:
        DTypeError: `fn` cannot be called, or does not say what it takes.
        InvalidArgumentError: it returns no expression, or calls what is no function.

    Cost: calling the result allocates its output only, in one pass over memory; scratch
        is a few blocks, whatever the size.
    """
    need_callable("fused", fn, "fn")
    try:
        params = list(inspect.signature(fn).parameters)[1:]
    except ValueError:
        raise DTypeError(
            operation="fused",
            argument="fn",
            found=f"{a_kind(fn)} without a signature",
            fix="pass a Python function of `E` and the operands",
        ) from None
    # Operands may be complex: kinds are settled when the kernel meets actual dtypes.
    expr = fn(_Functions(), *[var(p, "c") for p in params])
    if not isinstance(expr, Expr):
        raise InvalidArgumentError(
            operation="fused",
            argument="fn",
            found=f"a function that returned {a_kind(expr)}",
            fix="return an expression of its arguments",
        )
    return Fused(elementwise(name or "fused", expr, params))


def update(target: TensorViewMut, kernel: Fused, *operands: Any) -> None:
    """`target = kernel(target, *operands)` in the memory of `target`.

    Args:
        target: a mutable view, as `exclusive` or `Tensor.as_view_mut` lends it.
        kernel: takes the target as its first operand.
        operands: tensors, views or numbers that broadcast to the target.

    Raises:
        ShapeError, DTypeError: the result would not have the target's shape and dtype.
        DeviceMismatchError: an operand is elsewhere. In each case nothing was written.

    Cost: no allocation, no copy; one pass over memory, scratch of a few blocks.
    """
    if not isinstance(target, TensorViewMut) or not isinstance(kernel, Fused):
        view = isinstance(target, TensorViewMut)
        raise DTypeError(
            operation="update",
            argument="kernel" if view else "target",
            found=f"an object of type `{type_name(kernel if view else target)}`",
            fix="make it with `ta.fused`"
            if view
            else "lend a view: `with ta.exclusive(w) as (target,): ...`",
        )
    _need_operands("update", kernel, len(operands) + 1)
    device = target.device
    lent = getattr(device, "takes_views", False)  # launches use views, not arrays
    aval = aval_of(target.shape, target.dtype, device)
    known = [_known(x, aval) for x in operands]
    plan = plan_of(kernel.op, (aval, *[a for a, _ in known]), ())
    made = plan.call.out
    if made.shape != aval.shape or made.dtype != aval.dtype:
        raise mismatch(
            made,
            aval,
            operation="update",
            argument="operands",
            found=f"a result {made!r} for a target {aval!r}",
            fix="use operands that broadcast and promote to the target",
        )
    assert plan.overwrite is not None
    out, *arrays = (
        x._elements("update") if isinstance(x, _Views) and not lent else x
        for x in (target, *[x for _, x in known])
    )
    if plan.scratch_nbytes:
        STATE.get().account.use_workspace(plan.scratch_nbytes)
    before = quiet()
    try:
        plan.overwrite(out, *arrays, out)
    finally:
        loud(before)


def _need_operands(operation: str, kernel: Fused, count: int) -> None:
    wanted = len(kernel.op.args)
    if count != wanted:
        raise InvalidArgumentError(
            operation=operation,
            argument="operands",
            found=f"{count} operands for an expression of {wanted}",
            fix=f"give {', '.join(kernel.op.args)}"
            + (", the first as the target" if operation == "update" else ""),
        )


_Views = TensorView | TensorViewMut


def _known(x: Any, target: Aval) -> tuple[Aval, Any]:
    """The form of an operand, and its elements or the view that lends them."""
    if isinstance(x, EagerTensor):
        return x.aval, x._record.array
    if isinstance(x, _Views):
        return aval_of(x.shape, x.dtype, x.device), x
    if isinstance(x, int | float | complex | np.number | np.bool):
        dtype = np.result_type(target.dtype, x)
        record = scalar_record(x, dtype, target.device)
        return record.aval, record.array
    raise DTypeError(
        operation="update",
        argument="operands",
        found=f"an object of type `{type_name(x)}`",
        fix="pass tensors, views or numbers: `ta.asarray(x)` takes it over",
    )
