"""`einsum`: sums of products of any number of operands over named axes.

One operation however many operands there are. It keeps the operands that its rule reads
and none of its intermediate results, which are scratch. The rule computes those that it
needs again, then takes the pairs backwards, each by two contractions of the pair's own
cost: a gradient in all operands costs at most three times the value, and so does a
tangent. Rules consist of `contract`, so derivatives of every order are linear in the
number of operands.

Source: A. Griewank and A. Walther, "Evaluating Derivatives", SIAM (2008), chapter 3.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._aval import Aval
from ..errors import DTypeError
from . import _forms_einsum as forms
from ._contract import pair, pulled_dtype, with_batch
from ._einsum_host import einsum_scratch, einsum_values, plan_for, plan_of_call
from ._equations import DType, Ready, Shape, terms_of
from ._op import Call, Evaluator, Op, Write, register
from ._schedule import Path, Schedule, Step


def contraction_flops(call: Call) -> int:
    """Multiplications of one `einsum` or `contract`: for each pair, the product of the
    lengths of its symbols."""
    if call.op.name == "einsum":
        return plan_of_call(call).flops
    (x, y), _ = terms_of(call.equation)
    sizes = dict(zip(x + y, call.ins[0].shape + call.ins[1].shape, strict=True))
    return math.prod(sizes.values())


# ---- values --------------------------------------------------------------------------


def _infer(xs: tuple[Aval, ...], equation: str, path: Path) -> tuple[Any, Any]:
    for k, x in enumerate(xs):
        if x.dtype.kind == "b":
            raise DTypeError(
                operation="einsum",
                argument=f"operand {k}",
                found="dtype bool",
                fix="convert it with `ta.astype`; to count, use an integer dtype",
            )
    plan = plan_for(xs, equation, path)
    return plan.shape(plan.result.term), np.result_type(*[x.dtype for x in xs])


# ---- operands made ready, as values --------------------------------------------------


def _whole(shape: Sequence[int]) -> list[Any]:
    return [(0, n, 1) for n in shape]


def _folds(ready: Ready) -> list[tuple[Shape, int, int]]:
    """The diagonals to take, one after the other: the shape before, and two axes."""
    term = ready.term
    shape = [n for k, n in enumerate(ready.shape) if k not in ready.squeezed]
    found = []
    for c in dict.fromkeys(term):
        while term.count(c) > 1:
            a = term.index(c)
            b = term.index(c, a + 1)
            found.append((tuple(shape), a, b))
            n = shape[a]
            term = term[:a] + term[a + 1 : b] + term[b + 1 :] + c
            shape = [*shape[:a], *shape[a + 1 : b], *shape[b + 1 :], n]
    return found


def _ready_value(F: Evaluator, ready: Ready, x: Any) -> Any:
    if ready.is_trivial:
        return x
    if ready.squeezed:
        key = _whole(ready.shape)
        for k in ready.squeezed:
            key[k] = 0
        x = F.slice(x, tuple(key))
    for _, a, b in _folds(ready):
        x = F.diagonal(x, 0, a, b)
    return F.sum(x, ready.summed, False) if ready.summed else x


def _ready_back(F: Evaluator, ready: Ready, g: Any) -> Any:
    """The adjoint of `_ready_value`."""
    if ready.is_trivial:
        return g
    if ready.summed:
        key, lengths = _whole(g.aval.shape), list(g.aval.shape)
        for k in ready.summed:
            key.insert(k, None)
            lengths.insert(k, ready.shape[_first_axis(ready, k)])
        g = F.broadcast_to(F.slice(g, tuple(key)), tuple(lengths))
    for shape, a, b in reversed(_folds(ready)):
        g = F.place_diagonal(g, shape, 0, a, b)
    if ready.squeezed:
        key = _whole(g.aval.shape)
        for k in ready.squeezed:
            key.insert(k, None)
        g = F.slice(g, tuple(key))
    return g


def _first_axis(ready: Ready, k: int) -> int:
    """An axis of the operand that has the symbol `ready.distinct[k]`."""
    kept = [a for a in range(len(ready.shape)) if a not in ready.squeezed]
    return kept[ready.term.index(ready.distinct[k])]


# ---- derivatives ---------------------------------------------------------------------


class _Walk:
    """The nodes of one application for given operands that move.

    Attributes:
        moving: nodes that depend on those operands.
        needed: nodes whose value a derivative reads: those with a moving partner, and
            what they are made of.
        values: of needed nodes, as far as they are there.
    """

    __slots__ = ("F", "moving", "needed", "plan", "values")

    def __init__(self, F: Evaluator, plan: Schedule, moving: Sequence[int]) -> None:
        count = len(plan.ready) + len(plan.steps)
        self.F, self.plan = F, plan
        self.moving = bytearray(count)
        self.needed = bytearray(count)
        for i in moving:
            self.moving[i] = True
        for step in plan.steps:
            self.moving[step.out] = self.moving[step.x] or self.moving[step.y]
        for step in reversed(plan.steps):
            inside = self.needed[step.out]
            self.needed[step.x] = inside or self.moving[step.y]
            self.needed[step.y] = inside or self.moving[step.x]
        self.values: dict[int, Any] = {}

    def begin(self, xs: Sequence[Any]) -> None:
        for k, ready in enumerate(self.plan.ready):
            if self.needed[k]:
                self.values[k] = _ready_value(self.F, ready, xs[k])

    def value(self, step: Step) -> None:
        """Compute the step's result again, if it is needed."""
        if self.needed[step.out]:
            x, y = self.values[step.x], self.values[step.y]
            self.values[step.out] = pair(
                self.F, x, y, step.equation, False, False, step.dtype
            )

    def taken(self, step: Step) -> tuple[Any, Any]:
        """The sides' values, which nobody needs any more."""
        return self.values.pop(step.x, None), self.values.pop(step.y, None)

    def forget(self, step: Step) -> None:
        """Drop what the step's own derivatives do not read."""
        if not self.moving[step.y]:
            self.values.pop(step.x, None)
        if not self.moving[step.x]:
            self.values.pop(step.y, None)


def _keeps(call: Call, tracked: tuple[int, ...]) -> list[int]:
    """Whatever is multiplied with a tracked operand."""
    return [k for k in range(len(call.ins)) if tracked != (k,)]


def _back(
    F: Evaluator, ct: Any, call: Call, tracked: tuple[int, ...], *, xs: Any
) -> list[Any]:
    plan = plan_of_call(call)
    walk = _Walk(F, plan, tracked)
    walk.begin(xs)
    for step in plan.steps:
        walk.value(step)
        walk.forget(step)
    ct = _ready_value(F, plan.result, ct)
    if not plan.steps:
        order = tuple([plan.result.symbols.index(c) for c in plan.symbols[0]])
        whole = order == tuple(range(len(order)))
        ct = ct if whole else F.permute_dims(ct, order)
    cts = {len(walk.moving) - 1: ct}
    del ct
    for step in reversed(plan.steps):
        if not walk.moving[step.out]:
            continue
        g = cts.pop(step.out)
        x, y = walk.taken(step)
        if walk.moving[step.x]:
            cts[step.x] = _pulled(F, g, y, step.back_x, plan.dtypes[step.x], first=True)
        if walk.moving[step.y]:
            cts[step.y] = _pulled(
                F, g, x, step.back_y, plan.dtypes[step.y], first=False
            )
    return [_ready_back(F, plan.ready[i], cts.pop(i)) for i in tracked]


def _pulled(
    F: Evaluator, g: Any, other: Any, equation: str, target: DType, *, first: bool
) -> Any:
    """The cotangent of one side of a pair, from the result's and the other side."""
    dtype = pulled_dtype(target, g.aval.dtype, other.aval.dtype)
    if first:
        g = pair(F, g, other, equation, False, True, dtype)
    else:
        g = pair(F, other, g, equation, True, False, dtype)
    if dtype != target:
        g = F.real(g)
    return g if g.aval.dtype == target else F.astype(g, target)


def _push(F: Evaluator, ts: tuple[Any, ...], call: Call, *, xs: Any) -> Any:
    plan = plan_of_call(call)
    if not plan.steps:
        return F.einsum(ts, *call.params)
    moving = [k for k, t in enumerate(ts) if t is not None]
    walk = _Walk(F, plan, moving)
    walk.begin(xs)
    tangents = {k: _ready_value(F, plan.ready[k], ts[k]) for k in moving}
    for step in plan.steps:
        walk.value(step)
        x, y = walk.taken(step)
        if not walk.moving[step.out]:
            continue
        t, u = tangents.pop(step.x, None), tangents.pop(step.y, None)
        dtype = call.out.dtype if step is plan.steps[-1] else step.dtype
        total = None
        if t is not None:
            total = pair(F, t, y, step.equation, False, False, dtype)
        if u is not None:
            part = pair(F, x, u, step.equation, False, False, dtype)
            total = part if total is None else F.add(total, part)
        tangents[step.out] = total
    return _ready_back(F, plan.result, tangents[len(walk.moving) - 1])


register(
    Op(
        "einsum",
        ("xs",),
        variadic=True,
        params=("equation", "path"),
        infer=_infer,
        kernel=Write(einsum_values, einsum_scratch, form=forms.einsum),
        joint=_back,
        joint_keeps=_keeps,
        joint_jvp=_push,
        batch=lambda F, call, size, xs, batched: F.einsum(
            tuple(xs), with_batch(call.equation, batched), call.path
        ),
    )
)
