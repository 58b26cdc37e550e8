"""Device forms of `contract` and `einsum`: one nest for each pair, results in scratch.

An operand with symbols of its own is summed over them first, so that no pair costs more
than the product of its symbols' lengths. Repeated symbols are one variable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ._einsum_host import plan_of_call
from ._equations import DType, Ready, terms_of, wide
from ._expr import Expr, call
from ._form import Array, Index, Kernel, Nest, cast
from ._schedule import Schedule, Step

Env = Mapping[str, Expr]


def contract(k: Kernel, c: Any) -> None:
    (x, y), (out,) = k.ins, k.outs
    (one, two), result = terms_of(c.equation)
    sizes = {s: n for s, n in zip(one + two, x.shape + y.shape, strict=True) if n != 1}
    dtype = wide(np.result_type(c.dtype, x.dtype, y.dtype))
    n, env, total = _pair(
        k, result, one, two, sizes, dtype, lambda e: _at(x, one, e, c.conj_x),
        lambda e: _at(y, two, e, c.conj_y),
    )  # fmt: skip
    n.store(out, [env[s] for s in result], cast(total, out.dtype))


def _at(x: Array, term: str, env: Env, conj: bool) -> Expr:
    places = [0 if n == 1 else env[s] for s, n in zip(term, x.shape, strict=True)]
    found = x.at(*places)
    return call("conj", found) if conj else found


def _pair(
    k: Kernel,
    result: str,
    one: str,
    two: str,
    sizes: Mapping[str, int],
    dtype: DType,
    left: Any,
    right: Any,
) -> tuple[Nest, dict[str, Expr], Expr]:
    """A nest over the symbols of the result, and the sum of products there."""
    n, index = k.nest(*[sizes.get(s, 1) for s in result])
    env = dict(zip(result, index, strict=True))
    summed = [s for s in dict.fromkeys(one + two) if s not in env]
    over = n.loops([sizes.get(s, 1) for s in summed])
    inner = env | {s: loop.var for s, loop in zip(summed, over, strict=True)}
    rows = [s for s in result if s in one and s not in two]
    cols = [s for s in result if s in two and s not in one]
    if rows and cols:
        # The variable that runs fastest in the result goes along rows of a block.
        if result.rindex(rows[-1]) > result.rindex(cols[-1]):
            rows, cols = cols, rows
        n.tile = (env[rows[-1]], env[cols[-1]])
    value = cast(left(inner), dtype) * cast(right(inner), dtype)
    return n, env, n.reduce("sum", over, value, dtype)


# ---- many operands -------------------------------------------------------------------


def _places(ready: Ready, env: Env) -> list[Index]:
    """Indices into an operand (or the output) of the symbols in `env`."""
    symbols = iter(ready.term)
    return [
        0 if a in ready.squeezed else env[next(symbols)]
        for a in range(len(ready.shape))
    ]


class _Nodes:
    """Values of the nodes of a schedule, read at symbols."""

    def __init__(self, k: Kernel, plan: Schedule) -> None:
        self.k, self.plan = k, plan
        self.made: dict[int, Array] = {}
        for i, ready in enumerate(plan.ready):
            if ready.summed and plan.steps:
                self.made[i] = self._summed(i, ready)

    def _summed(self, i: int, ready: Ready) -> Array:
        x = self.k.ins[i]
        made = self.k.array(self.plan.shape(ready.symbols), wide(x.dtype))
        n, total, index = self.sum_of(i, ready.symbols, made.dtype)
        n.store(made, index, total)
        return made

    def sum_of(
        self, i: int, order: Sequence[str], dtype: DType
    ) -> tuple[Nest, Expr, tuple[Expr, ...]]:
        """An operand summed over symbols of its own, for each index of `order`."""
        ready, sizes = self.plan.ready[i], self.plan.sizes
        n, index = self.k.nest(*[sizes[s] for s in order])
        own = [ready.distinct[a] for a in ready.summed]
        over = n.loops([sizes[s] for s in own])
        env = dict(zip(order, index, strict=True))
        env |= {s: loop.var for s, loop in zip(own, over, strict=True)}
        value = cast(self.k.ins[i].at(*_places(ready, env)), dtype)
        total = n.reduce("sum", over, value, dtype) if over else value
        return n, total, index

    def at(self, i: int, env: Env) -> Expr:
        if i in self.made:
            return self.made[i].at(*[env[s] for s in self.plan.symbols[i]])
        return self.k.ins[i].at(*_places(self.plan.ready[i], env))


def einsum(k: Kernel, c: Any) -> None:
    plan, (out,) = plan_of_call(c), k.outs
    if not plan.result.is_distinct:
        k.fill(0)
    nodes = _Nodes(k, plan)
    if not plan.steps:
        order = plan.result.symbols
        n, total, index = nodes.sum_of(0, order, out.dtype)
        env = dict(zip(order, index, strict=True))
        n.store(out, _places(plan.result, env), total)
        return
    for step in plan.steps:
        n, env, total = _step(k, nodes, step)
        if step is plan.steps[-1]:
            n.store(out, _places(plan.result, env), cast(total, out.dtype))
        else:
            made = nodes.made[step.out] = k.array(step.shape, step.dtype)
            n.store(made, [env[s] for s in plan.symbols[step.out]], total)


def _step(k: Kernel, nodes: _Nodes, step: Step) -> tuple[Nest, dict[str, Expr], Expr]:
    plan = nodes.plan
    one, two, result = (plan.symbols[i] for i in (step.x, step.y, step.out))
    return _pair(
        k, result, one, two, plan.sizes, step.dtype,
        lambda e: nodes.at(step.x, e), lambda e: nodes.at(step.y, e),
    )  # fmt: skip
