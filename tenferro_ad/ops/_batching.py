"""Batching: how a row computes many independent applications as one.

A row's `batch` is a rule

    def rule(F, call, size, xs, batched): ...  # the output, or a tuple of outputs

`call` is one application without the batch: avals, outputs and parameters. `xs` are the
operands (variadic rows too); `batched[i]` says that `xs[i]` carries `size` examples
along a new leading axis 0, where `call.ins[i]` has none; at least one does, and `size`
is not 0 (`Call.batch` knows what no examples give). Every
output carries them along axis 0, in the same order. A rule applies operations of `F` to
values and nothing else, so that it can be recorded, traced, differentiated and batched
again. Values equal those of a loop over the examples, up to rounding.

Most rows need only `leading`; elementwise rows have `aligned` without asking. Rules
adjust shapes by views (`slice`, `broadcast_to`, `permute_dims`) and by `regroup`, which
never duplicates. A row without operands needs no rule, and a row without a rule refuses
(`NoRuleError`): nothing falls back to a loop. `by_loop` is for rows that no kernel can
compute for many examples at once, and says so in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ._call import Call

if TYPE_CHECKING:
    from ._evaluator import Evaluator

BatchRule = Callable[["Evaluator", Call, int, Sequence[Any], Sequence[bool]], Any]
# What becomes of one parameter: `change(value, size)`.
Change = Callable[[Any, int], Any]


# ---- the rule of most rows -----------------------------------------------------------


def leading(**changes: Change) -> BatchRule:
    """The rule of a row that treats a further leading axis as it does others.

    Operands without the batch are broadcast along it (a view). Parameters that name
    axes or shapes are changed: `leading(axis=later, shape=longer)`.
    """

    def rule(
        F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
    ) -> Any:
        xs = all_batched(F, size, xs, batched)
        return apply(F, call, xs, changed(call, size, **changes))

    return rule


def later(value: Any, size: int) -> Any:
    """Axis numbers, one further to the right."""
    return value + 1 if isinstance(value, int) else tuple(a + 1 for a in value)


def longer(value: tuple[int, ...], size: int) -> tuple[int, ...]:
    """A shape with the batch in front."""
    return (size, *value)


def before(entry: Any) -> Change:
    """A tuple with one entry for each axis: `entry` for the batch axis."""
    return lambda value, size: (entry, *value)


def selecting(value: tuple[Any, ...], size: int) -> tuple[Any, ...]:
    """A key of `slice` that takes all of the batch."""
    return (whole(size), *value)


# ---- the rule of elementwise rows ----------------------------------------------------


def aligned(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    """Operands broadcast against each other behind the batch axis (views)."""
    rank = call.out.ndim
    return F[call.op](
        *[with_rank(F, x, rank) if b else x for x, b in zip(xs, batched, strict=True)]
    )


# ---- one example after the other -----------------------------------------------------


def by_loop(
    F: Evaluator, call: Call, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> Any:
    """Apply the row to each example and join the results.

    Cost: `size` applications, and one more output for each result.
    """
    many = len(call.outs) > 1
    rows: list[tuple[Any, ...]] = []
    for i in range(size):
        one = [example(F, x, i) if b else x for x, b in zip(xs, batched, strict=True)]
        found = apply(F, call, one, call.params)
        rows.append(found if many else (found,))
    joined = tuple(
        F.concat([new_axis(F, v) for v in parts], 0)
        for parts in zip(*rows, strict=True)
    )
    return joined if many else joined[0]


# ---- what rules share ----------------------------------------------------------------


def apply(F: Evaluator, call: Call, xs: Sequence[Any], params: Sequence[Any]) -> Any:
    """The row itself on other operands and parameters."""
    if call.op.variadic:
        return F[call.op](tuple(xs), *params)
    return F[call.op](*xs, *params)


def changed(call: Call, size: int, **changes: Change) -> tuple[Any, ...]:
    """The parameters, some of them changed by name."""
    return tuple(
        changes[name](value, size) if name in changes else value
        for name, value in zip(call.op.params, call.params, strict=True)
    )


def all_batched(
    F: Evaluator, size: int, xs: Sequence[Any], batched: Sequence[bool]
) -> list[Any]:
    """Operands without the batch seen once for each example (views)."""
    return [
        x if b else F.broadcast_to(x, (size, *x.aval.shape))
        for x, b in zip(xs, batched, strict=True)
    ]


def whole(n: int) -> tuple[int, int, int]:
    """All indices of an axis, as an entry of a key."""
    return (0, n, 1)


def with_rank(F: Evaluator, x: Any, rank: int) -> Any:
    """A batched value with axes of length 1 behind the batch axis, so that `rank` axes
    follow it (a view)."""
    size, *shape = x.aval.shape
    missing = rank - len(shape)
    if not missing:
        return x
    return F.slice(x, (whole(size), *[None] * missing, *map(whole, shape)))


def example(F: Evaluator, x: Any, i: int) -> Any:
    """One example of a batched value (a view)."""
    return F.slice(x, (i, *map(whole, x.aval.shape[1:])))


def new_axis(F: Evaluator, x: Any, at: int = 0) -> Any:
    """A value with one more axis of length 1 (a view)."""
    key: list[Any] = [whole(n) for n in x.aval.shape]
    key.insert(at, None)
    return F.slice(x, tuple(key))


def moved(F: Evaluator, x: Any, source: int, target: int) -> Any:
    """A value with one axis at another position (a view)."""
    if source == target:
        return x
    order = [k for k in range(x.aval.ndim) if k != source]
    order.insert(target, source)
    return F.permute_dims(x, tuple(order))
