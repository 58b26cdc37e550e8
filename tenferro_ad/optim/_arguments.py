"""What optimizers are given, and what they refuse of it."""

from __future__ import annotations

import math
from typing import Any

import optree

import tenferro_ad as ta

TREES = "tenferro_ad"


def check(operation: str, name: str, value: float, low: float, high: float) -> None:
    """Refuse a setting outside [low, high)."""
    number = isinstance(value, int | float)
    if not number or not low <= value < high:
        below = "a finite number" if high == math.inf else f"a number below {high:g}"
        fix = f"use {below}, at least {low:g}"
        if name == "lr":
            fix += ", or a function of the step; `update` takes the parameters"
        raise ta.errors.InvalidArgumentError(
            operation=operation,
            argument=name,
            found=repr(value) if number else ta.errors.a_kind(value),
            fix=fix,
        )


def paired(params: Any, grads: Any) -> list[tuple[Any, Any]]:
    """Variables and their gradients, of two pytrees of one structure."""
    leaves, treedef = optree.tree_flatten(params, namespace=TREES)
    tokens = [token_of(w, "update") for w in leaves]
    wanted = "the `Gradients` of `ta.value_and_grad` or `tape.backward`, or "
    try:
        given = treedef.flatten_up_to(grads)
    except (TypeError, ValueError):
        raise _unfit(
            ta.errors.a_kind(grads), f"{wanted}a pytree like `params`"
        ) from None
    if len(set(tokens)) < len(tokens):
        raise _unfit("two gradients of one variable", "the bundle, which has their sum")
    pairs = [
        (w, ta.asarray(g)) for w, g in zip(leaves, given, strict=True) if g is not None
    ]
    for w, g in pairs:
        if (
            g.shape != w.shape
            or ta.result_type(g, w) != w.dtype
            or g.device != w.device
        ):
            raise _unfit(f"{g.aval!r} for {w.aval!r}", f"{wanted}values like `params`")
    return pairs


def _unfit(found: str, wanted: str) -> ta.errors.InvalidArgumentError:
    return ta.errors.InvalidArgumentError(
        operation="update", argument="grads", found=found, fix=f"pass {wanted}"
    )


def token_of(w: Any, operation: str) -> Any:
    """The key of a variable."""
    token = w.leaf if isinstance(w, ta.EagerTensor) else None
    if token is None:
        raise ta.errors.NotALeafError(
            operation=operation,
            argument="params",
            found=f"{ta.errors.a_kind(w)} that is no variable",
            fix="use the tensors that `ta.variable` returned",
        )
    return token


def moment(part: Any, w: ta.EagerTensor) -> ta.EagerTensor:
    """A moment of a variable, in memory of its own."""
    given = ta.asarray(part)
    if given.shape != w.shape:
        raise misfit(f"a moment of shape {given.shape}", f"the shape {w.shape}")
    return ta.asarray(given, dtype=w.dtype, device=w.device, copy=True)


def misfit(found: str, wanted: str) -> ta.errors.InvalidArgumentError:
    return ta.errors.InvalidArgumentError(
        operation="restore",
        argument="state",
        found=found,
        fix=f"give {wanted}, as `state` does for the same parameters",
    )


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of a leaf, which may be a number."""
    return tuple(getattr(x, "shape", ()))


def need_real(operation: str, w: Any) -> None:
    """Refuse a parameter that cannot move by small steps."""
    dtype = w.dtype if hasattr(w, "dtype") else ta.asarray(w).dtype
    if dtype.kind not in "fc":
        raise ta.errors.IntegerInputError(
            operation=operation,
            argument="params",
            found=f"dtype {dtype}",
            fix="convert it (`ta.astype`), or leave it out of the parameters",
        )
