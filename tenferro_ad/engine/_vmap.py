"""`ta.vmap`: a function of one example, applied to all of them at once.

The function runs once, on symbolic values of one example (`ta.trace`). Then each of its
operations is computed for all examples by its row's batching rule; what does not depend
on an example is computed once. Transforms inside the function are part of its program,
transforms outside see the batched operations, so `vmap` nests with all of them, and
with itself. Tensors that the function closes over are shared by the examples and keep
their gradients.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
import optree

from .._aval import Aval
from ..errors import IndexRangeError, InvalidArgumentError, ShapeError
from ..ops import evaluate, moved
from ..runtime import BatchEvaluator, Example
from ._axes import int_of
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor
from ._pytrees import NAMESPACE, flatten, need_callable
from ._trace import traced

Axes = Any  # an int, None, or a pytree prefix of them


def vmap(
    f: Callable[..., Any],
    in_axes: Axes = 0,
    out_axes: Axes = 0,
    *,
    axis_size: int | None = None,
) -> Callable[..., Any]:
    """`f` for many examples at once.

        dots = ta.vmap(lambda a, b: a @ b)(np.ones((4, 3)), np.ones((4, 3)))
        assert dots.tolist() == [3.0, 3.0, 3.0, 3.0]

    Args:
        f: a function of tensors and pytrees of tensors; called once, with the tensors
            of one example. Its Python control flow must not depend on their values.
        in_axes: along which axis each positional argument holds the examples; None is
            an argument that all examples share. An int for all arguments, or a tuple
            with an entry for each: an int, None, or a pytree prefix of the argument.
        out_axes: where the outputs have them, in the same form. None is an output that
            is the same for all examples.
        axis_size: how many examples there are; needed where no argument has them.

    Keyword arguments are shared by all examples, whatever they are. A random key that
    examples share gives all of them the same numbers.

    Raises (when called):
        InvalidArgumentError: `in_axes` or `out_axes` does not fit; nothing says how
            many examples there are; an output at `out_axes` None differs between them.
        DTypeError: `axis_size` is no integer.
        ShapeError: arguments differ in the number of examples.
        IndexRangeError: an axis that an argument or output does not have.
        TracedConversionError: Python asks for the value of an example.
        NoRuleError: an operation has no batching rule; names it.

    Cost: as many operations as one example, each on all of them; what examples share is
        computed once. Moving axes are views; no copies.
    """
    need_callable("vmap", f)

    in_axes = tuple(in_axes) if isinstance(in_axes, list) else in_axes

    @functools.wraps(f)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        leaves, in_def = flatten(args)
        leaves = [as_tensor(x) if isinstance(x, np.ndarray) else x for x in leaves]
        axes = _prefix(in_axes, args, "in_axes")
        # Only arguments with examples become variables of one example; the others are
        # closed over.
        at = [k for k, axis in enumerate(axes) if axis is not None]
        paths = in_def.paths()
        names = ["args" + "".join(f"[{p!r}]" for p in paths[k]) for k in at]
        xs = [
            _to_front(as_tensor(leaves[k]), axes[k], name)
            for k, name in zip(at, names, strict=True)
        ]
        size = _size([x.shape[0] for x in xs], names, axis_size)

        def one(*parts: Any) -> Any:
            given = list(leaves)
            for k, part in zip(at, parts, strict=True):
                given[k] = part
            return f(*optree.tree_unflatten(in_def, given), **kwargs)

        F = BatchEvaluator(HANDLES, size)
        program = ExampleProgram(one, [F.each(x).aval for x in xs])
        outs = program.run(F, xs)
        del xs
        axes = _prefix(
            out_axes, optree.tree_unflatten(program.out_def, outs), "out_axes"
        )
        return optree.tree_unflatten(
            program.out_def,
            [_placed(F, y, axis) for y, axis in zip(outs, axes, strict=True)],
        )

    return mapped


@final
class ExampleProgram:
    """A function of the tensors of one example, traced; runs for any number of them.

    Attributes:
        out_def: the structure of its result.
    """

    __slots__ = ("constants", "out_def", "program")

    def __init__(self, fn: Callable[..., Any], avals: Sequence[Aval]) -> None:
        empty: Any = (None,) * len(avals)
        in_def = optree.tree_structure(empty, none_is_leaf=True, namespace=NAMESPACE)
        self.program, self.constants, self.out_def = traced(
            fn, list(empty), avals, in_def
        )

    def run(self, F: BatchEvaluator, xs: Sequence[EagerTensor]) -> list[Example]:
        """The outputs, in order, for tensors with the examples along axis 0."""
        inputs = [*map(F.each, xs), *map(F.shared, self.constants)]
        return evaluate(self.program, F, inputs)


# ---- axes ----------------------------------------------------------------------------


def _prefix(prefix: Axes, tree: Any, argument: str) -> list[int | None]:
    """The axis for each leaf of `tree`."""
    heads, head_def = optree.tree_flatten(
        prefix, none_is_leaf=True, namespace=NAMESPACE
    )
    try:
        parts = head_def.flatten_up_to(tree)
    except ValueError:
        raise InvalidArgumentError(
            operation="vmap",
            argument=argument,
            found=f"{prefix!r} for the structure {flatten(tree)[1]}",
            fix="give an int, None, or a pytree that the structure begins with",
        ) from None
    axes: list[int | None] = []
    for head, part in zip(heads, parts, strict=True):
        if head is not None and not isinstance(head, int | np.integer):
            raise InvalidArgumentError(
                operation="vmap",
                argument=argument,
                found=f"{head!r}",
                fix="name axes by ints, and what all examples share by None",
            )
        axis = None if head is None else int_of("vmap", argument, head)
        axes += [axis] * len(flatten(part)[0])
    return axes


def _to_front(x: EagerTensor, axis: Any, argument: str) -> EagerTensor:
    """The value with one axis first (a view)."""
    n = x.ndim
    if not -n <= axis < n:
        raise IndexRangeError(
            operation="vmap",
            argument=argument,
            found=f"axis {axis} of a value with {n} axes",
            fix=f"name an axis from {-n} to {n - 1}"
            if n
            else "share it between the examples: `in_axes` None",
        )
    return moved(HANDLES, x, axis % n, 0)  # type: ignore[no-any-return]


def _size(sizes: list[int], names: list[str], axis_size: int | None) -> int:
    """How many examples there are."""
    if axis_size is not None:
        given = int_of("vmap", "axis_size", axis_size, 0)
        sizes, names = [*sizes, given], [*names, "axis_size"]
    if not sizes:
        raise InvalidArgumentError(
            operation="vmap",
            argument="in_axes",
            found="no argument with examples",
            fix="name an axis of at least one argument, or give `axis_size=`",
        )
    for size, name in zip(sizes, names, strict=True):
        if size != sizes[0]:
            raise ShapeError(
                operation="vmap",
                argument=name,
                found=f"{size} examples, where `{names[0]}` has {sizes[0]}",
                fix="give all arguments one number of examples, or share an argument: "
                "`in_axes` None",
            )
    return sizes[0]


def _placed(F: BatchEvaluator, y: Example, axis: int | None) -> EagerTensor:
    """An output with the examples along an axis."""
    n = y.aval.ndim + 1
    if axis is None:
        if y.batched:
            raise InvalidArgumentError(
                operation="vmap",
                argument="out_axes",
                found="None for an output that differs between examples",
                fix="name the axis that its examples go to",
            )
        return y.value  # type: ignore[no-any-return]
    if not -n <= axis < n:
        raise IndexRangeError(
            operation="vmap",
            argument="out_axes",
            found=f"axis {axis} of an output with {n} axes, that of the examples among "
            "them",
            fix=f"name an axis from {-n} to {n - 1}",
        )
    return moved(HANDLES, F.with_batch(y), 0, axis % n)  # type: ignore[no-any-return]
