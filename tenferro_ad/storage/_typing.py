"""What the three typed classes share: type variables, keys and the checks on entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import EllipsisType
from typing import Any, Protocol, TypeVar

import numpy as np

from ..errors import AccessError, IndexRangeError, LayoutError
from ._descriptor import CheckedDescriptor
from ._layout import check_dtype
from ._ranks import DynRank, TensorRank

DT = TypeVar("DT", bound=np.generic)
D2 = TypeVar("D2", bound=np.generic)
R = TypeVar("R", bound=TensorRank)
R2 = TypeVar("R2", bound=TensorRank)
S = TypeVar("S")
V = TypeVar("V", bound="Lent")
T = TypeVar("T")


class Lent(Protocol):
    """A view, as far as its rank and its end go."""

    @property
    def ndim(self) -> int: ...

    def close(self) -> None: ...


KeptKey = slice | EllipsisType | tuple[slice | EllipsisType, ...]
"""Keys that keep the rank: slices, with or without `...`."""

AnyKey = int | None | tuple[int | slice | EllipsisType | None, ...]
"""Keys that may change the rank: integers drop an axis, None adds one."""


def keeps_rank(key: object) -> bool:
    parts = key if isinstance(key, tuple) else (key,)
    return all(isinstance(part, slice | EllipsisType) for part in parts)


def selected_rank(key: object, rank: type[TensorRank]) -> type[Any]:
    return rank if keeps_rank(key) else DynRank


def refuse_changed_rank(operation: str, keys: Sequence[object]) -> None:
    for key in keys:
        if not keeps_rank(key):
            raise IndexRangeError(
                operation=operation,
                argument="keys",
                found="a key with an integer or None, which changes the rank",
                fix="use slices, or split the erased view",
            )


def check_rank(operation: str, ndim: int, rank: type[TensorRank]) -> None:
    if not (isinstance(rank, type) and issubclass(rank, TensorRank)):
        raise LayoutError(
            operation=operation,
            field="rank",
            requested=rank,
            limit="the classes `Rank0` to `Rank8` and `DynRank`",
        )
    if not rank.admits(ndim):
        raise LayoutError(
            operation=operation,
            field="rank",
            requested=rank.__name__,
            limit=f"a value with {ndim} axes",
            fix="name the rank that the value has, or `DynRank`",
        )


def ranked(operation: str, view: V, rank: type[TensorRank]) -> V:
    """The view, if it has that rank; else its borrow ends here, because the error keeps
    its frames alive."""
    try:
        check_rank(operation, view.ndim, rank)
    except LayoutError:
        view.close()
        raise
    return view


def erased(source: Any) -> Any:
    """What a typed view holds; anything else as it is."""
    return getattr(source, "_tv_inner", source)


def check_entry(
    operation: str,
    value: object,
    descriptor: CheckedDescriptor,
    dtype: type[np.generic],
    rank: type[TensorRank],
) -> None:
    """Check the static facts of a value that becomes typed; nothing is used up."""
    try:
        named = check_dtype(operation, dtype)
        if named != descriptor.dtype:
            raise LayoutError(
                operation=operation,
                field="dtype",
                requested=named,
                limit=f"a value of {descriptor.dtype}",
                fix="name the dtype that the value has",
            )
        check_rank(operation, len(descriptor.shape), rank)
    except LayoutError as error:
        error.recovered = value
        raise


def same(holder: object, inner: S, call: Callable[[S], T]) -> T:
    """Run a call on the erased object; a failure gives the typed one back."""
    try:
        return call(inner)
    except (AccessError, LayoutError) as error:
        if error.recovered is inner:
            error.recovered = holder
        raise


def describe_typed(kind: str, rank: type[TensorRank], erased: str) -> str:
    return f"{kind}[{rank.__name__}]{erased[erased.index('(') :]}"
