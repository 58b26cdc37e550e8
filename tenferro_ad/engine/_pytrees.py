"""Pytrees of tensors, and handles linked to a recording. `None` is not a leaf."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import optree

from .._aval import is_inexact, mismatch
from .._ledger import STATE
from ..errors import (
    DTypeError,
    IntegerInputError,
    InvalidArgumentError,
    ShapeError,
    a_kind,
    type_name,
)
from ..ops import OPS
from ..runtime import direct, is_symbolic
from ..tape import hold
from ._axes import int_of
from ._dispatch import HANDLES, chain_of, value_at
from ._eager import EagerTensor, constant
from ._make import as_tensor

NAMESPACE: Final = "tenferro_ad"
TREES: Final = (
    "pass tensors in a pytree: lists, dicts, or a class that `optree` knows (in its "
    "namespace `tenferro_ad`)"
)


def without_aux(
    f: Callable[..., Any], operation: str
) -> tuple[Callable[..., Any], list[Any]]:
    """`f` without its second result, which goes to the list."""
    kept: list[Any] = []

    def run(*args: Any, **kwargs: Any) -> Any:
        found = f(*args, **kwargs)
        if not (isinstance(found, tuple) and len(found) == 2):
            raise InvalidArgumentError(
                operation=operation,
                argument="has_aux",
                found="a function that did not return a pair (value, aux)",
                fix="return `(value, aux)`, or drop `has_aux=True`",
            )
        kept.append(found[1])
        return found[0]

    return run, kept


def flatten(tree: Any) -> tuple[list[Any], Any]:
    leaves, treedef = optree.tree_flatten(tree, namespace=NAMESPACE)
    return list(leaves), treedef


def is_data(x: Any) -> bool:
    """A tensor, an array or a number, and no object that may hold some."""
    return isinstance(x, EagerTensor | np.ndarray | np.generic | int | float | complex)


def _leaf(x: Any, operation: str, argument: str) -> EagerTensor:
    try:
        return as_tensor(x)
    except DTypeError as error:
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=error.found if is_data(x) else a_kind(x),
            fix=error.fix if is_data(x) else TREES,
        ) from None


def tensors_of(tree: Any, operation: str, argument: str) -> tuple[list[Any], Any]:
    """The leaves of a pytree as tensors that carry a derivative.

    Raises:
        IntegerInputError: a leaf is an integer or boolean.
        DTypeError: a leaf is no data.
    """
    leaves, treedef = flatten(tree)
    names = [argument + "".join(f"[{p!r}]" for p in path) for path in treedef.paths()]
    tensors = [_leaf(x, operation, name) for x, name in zip(leaves, names, strict=True)]
    for name, x in zip(names, tensors, strict=True):
        if not is_inexact(x.dtype):
            raise IntegerInputError(
                operation=operation,
                argument=name,
                found=f"dtype {x.dtype}",
                fix="convert it to a float (`ta.astype`), or leave it out of the "
                "arguments to differentiate",
            )
    return tensors, treedef


def fitting(
    tree: Any, like: Sequence[Any], treedef: Any, operation: str, argument: str
) -> list[EagerTensor]:
    """The tensors of a pytree that must have the structure, shapes and dtypes of
    another.

    Raises:
        ShapeError, DTypeError, DeviceMismatchError: names the argument.
    """
    leaves, found = flatten(tree)
    if found != treedef:
        raise ShapeError(
            operation=operation,
            argument=argument,
            found=f"the structure {found}",
            fix=f"give it the structure {treedef}",
        )
    tensors = [as_tensor(t, x.device) for t, x in zip(leaves, like, strict=True)]
    for k, (t, x) in enumerate(zip(tensors, like, strict=True)):
        if (t.shape, t.dtype, t.device) != (x.shape, x.dtype, x.device):
            raise mismatch(
                t,
                x,
                operation=operation,
                argument=argument + "".join(f"[{p!r}]" for p in treedef.paths()[k]),
                found=f"{t.dtype}{list(t.shape)} where {x.dtype}{list(x.shape)} fits",
                fix="give it the shapes and dtypes of the value it belongs to",
            )
    return tensors


def relinked(x: EagerTensor, core: Any, node: int) -> EagerTensor:
    """Another handle on the value: `node` of `core`, and outside what it was."""
    outside = chain_of(x)
    handle = value_at(x._record, outside)
    handle._link, handle._node, handle._outer = core, node, outside
    return handle


def need_callable(operation: str, f: Any, argument: str = "f") -> None:
    """Refuse what cannot be called, before anything is recorded.

    Raises:
        DTypeError: not a function.
    """
    if not callable(f):
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"an object of type `{type_name(f)}`",
            fix="pass a function; it is called here",
        )


def numbers_of(numbers: Any, operation: str, argument: str) -> tuple[int, ...]:
    """Positions of arguments: one, or a sequence of them.

    Raises:
        DTypeError: one is no integer.
    """
    many = isinstance(numbers, Sequence) and not isinstance(numbers, str)
    return tuple(
        int_of(operation, argument, n) for n in (numbers if many else (numbers,))
    )


def args_of(
    args: tuple[Any, ...], argnums: int | Sequence[int], operation: str
) -> tuple[int, ...]:
    """Positions from 0 on of the arguments to differentiate.

    Raises:
        DTypeError: one is no integer. InvalidArgumentError: out of range, or twice.
    """
    numbers = numbers_of(argnums, operation, "argnums")
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise InvalidArgumentError(
                operation=operation,
                argument="argnums",
                found=f"{n} for a call with {len(args)} positional arguments",
                fix="name positional arguments that the call passes",
            )
    found = tuple(n % len(args) for n in numbers)
    if len(set(found)) < len(found):
        raise InvalidArgumentError(
            operation=operation,
            argument="argnums",
            found=f"{numbers}, which names an argument twice",
            fix="name each argument once",
        )
    return found


def zeros_for(x: EagerTensor) -> EagerTensor:
    record = direct()[OPS["full"]](x.shape, x.dtype, 0, x.device)
    return constant(record)


def stop_gradient(x: Any) -> Any:
    """The same value as a constant: no derivative flows through it.

    Takes a pytree. Inside a checkpointed region it is recorded, so that recomputation
    stops there too.

    Raises:
        UseAfterMoveError: a value was moved out.

    Cost: one handle; no allocation, no copy.
    """

    def stop(t: Any) -> Any:
        if not isinstance(t, EagerTensor):
            return t
        t._live("stop_gradient")
        state = STATE.get()
        if state.level is not None and state.level.records_all:
            return HANDLES[OPS["stop_gradient"]](t)
        trace = state.trace
        if trace is not None and trace.counting is None and is_symbolic(t._record):
            # Whoever differentiates the program later must stop here too.
            return constant(direct()[OPS["stop_gradient"]](t._record))
        return constant(hold(t._record))

    return optree.tree_map(stop, x, namespace=NAMESPACE)
