"""Rows with bodies in JAX: the same bodies, in JAX's loops and branches."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from tests.ops.samples_control import FUNCTIONS
from tests.reference.jax_rows import JAX


def _scan(*args: Any) -> Any:
    *operands, body, k, m, length, reverse, _ = args
    carry, xs, consts = operands[:k], operands[k : k + m], operands[k + m :]

    def step(carry: Any, xs: Any) -> Any:
        outs = FUNCTIONS[body](jnp, *carry, *xs, *consts)
        return tuple(outs[:k]), tuple(outs[k:])

    carry, ys = lax.scan(step, tuple(carry), tuple(xs), length, reverse)
    outs = (*carry, *ys)
    return outs if len(outs) > 1 else outs[0]


def _cond(index: Any, *args: Any) -> Any:
    *operands, branches = args
    fns = [
        lambda *xs, fn=FUNCTIONS[b]: tuple(map(jnp.asarray, fn(jnp, *xs)))
        for b in branches
    ]
    return lax.switch(jnp.asarray(index, int), fns, *operands)


def _while(*args: Any) -> Any:
    *operands, test, body, k, m = args
    carry, tested, consts = operands[:k], operands[k : k + m], operands[k + m :]
    return lax.while_loop(
        lambda carry: FUNCTIONS[test](jnp, *carry, *tested)[0],
        lambda carry: tuple(FUNCTIONS[body](jnp, *carry, *consts)),
        tuple(carry),
    )


JAX["scan"] = _scan
JAX["cond"] = _cond
JAX["while_loop"] = _while
