"""Forward-mode transforms over pytrees: `jvp` and `hvp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import optree

from .._ledger import STATE
from ..errors import DTypeError, InvalidArgumentError, ShapeError, a_kind, type_name
from ..tape import hold
from ._dispatch import chain_of, enter_level, inside, leave_level, living, value_at
from ._eager import constant
from ._levels import ForwardLevel, ForwardRecord
from ._make import as_tensor
from ._pytrees import (
    fitting,
    flatten,
    need_callable,
    relinked,
    tensors_of,
    without_aux,
    zeros_for,
)
from ._transforms import grad


@overload
def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[False] = False,
) -> tuple[Any, Any]: ...


@overload
def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: Literal[True],
) -> tuple[Any, Any, Any]: ...


def jvp(
    f: Callable[..., Any],
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    has_aux: bool = False,
) -> Any:
    """The value of `f` and its derivative along `tangents`, computed together.

        y, dy = ta.jvp(ta.sin, (np.zeros(3),), (np.ones(3),))
        assert dy.tolist() == [1.0, 1.0, 1.0]

    Args:
        f: a function of tensors and pytrees of tensors (with `has_aux` it returns a
            pair `(out, aux)`).
        primals: positional arguments, pytrees of arrays.
        tangents: pytrees of the same structure, shapes and dtypes.

    Returns:
        `(out, tangent_out)`, pytrees of the same structure; with `has_aux` `aux` comes
        third.

    Raises:
        ShapeError, DTypeError, DeviceMismatchError: a tangent does not fit its primal.
        IntegerInputError: a primal is an integer.
        NoRuleError: an operation has no forward rule.

    Cost: one pass; keeps tangents only while their values are in use; no copies.
    """
    need_callable("jvp", f)
    for name, given in (("primals", primals), ("tangents", tangents)):
        if not isinstance(given, tuple | list):
            raise InvalidArgumentError(
                operation="jvp",
                argument=name,
                found=a_kind(given),
                fix="pass a tuple with one entry for each argument of `f`",
            )
    if len(primals) != len(tangents):
        raise ShapeError(
            operation="jvp",
            argument="tangents",
            found=f"{len(tangents)} tangents for {len(primals)} primals",
            fix="give one tangent for each primal",
        )
    run, kept = without_aux(f, "jvp") if has_aux else (f, [])
    state = STATE.get()
    outer = state.level
    core = ForwardRecord()
    bare = outer is None
    trees = []
    for n, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        xs, treedef = tensors_of(primal, "jvp", f"primal {n}")
        ts = fitting(tangent, xs, treedef, "jvp", f"tangent {n}")
        linked = []
        for x, t in zip(xs, ts, strict=True):
            if state.trace is not None:
                t = inside(state, t, "jvp")
            seed: Any = hold(t._record) if bare else value_at(t._record, chain_of(t))
            node = core.seed(seed)
            linked.append(relinked(x, core, node))
        trees.append(optree.tree_unflatten(treedef, linked))
        del linked
    before = STATE.get()
    try:
        enter_level(ForwardLevel(core, outer))
        out = run(*trees)
    finally:
        leave_level(before)
    del trees
    outs, out_def = flatten(out)
    del out
    values, pushed = [], []
    y: Any = None
    for y in outs:
        y = as_tensor(y)
        chain = living(chain_of(y), "jvp", "f")
        if chain is not None and chain[0] is core:
            t = core.tangents[chain[1]]
            values.append(value_at(y._record, chain[2]))
            pushed.append(constant(hold(t)) if bare else t.clone())
        else:
            values.append(value_at(y._record, chain))
            pushed.append(zeros_for(y))
    del outs, y
    core.close()  # what it held is the results' now
    both = (
        optree.tree_unflatten(out_def, values),
        optree.tree_unflatten(out_def, pushed),
    )
    return (*both, kept.pop()) if has_aux else both


def hvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[Any, Any]:
    """Gradient of a scalar `f` and its Hessian-vector product, forward over reverse.

    Returns:
        `(grad, hessian @ tangent)`, pytrees like the primals (a tuple if several).

    Source: B. Pearlmutter, Neural Computation 6 (1994).

    Raises:
        NotScalarError: `f` gives no real scalar.
        IntegerInputError: a primal is an integer or boolean.
        ShapeError: a tangent does not fit its primal.
        NoRuleError: an operation has no derivative; names it.

    Cost: about two gradients; no copies.
    """
    if not isinstance(primals, Sequence):
        raise DTypeError(
            operation="hvp",
            argument="primals",
            found=f"an object of type `{type_name(primals)}`",
            fix="pass a tuple of arguments",
        )
    numbers = 0 if len(primals) == 1 else tuple(range(len(primals)))
    return jvp(grad(f, numbers), primals, tangents)
