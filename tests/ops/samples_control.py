"""Samples of the rows with bodies: loops and branches.

A body is written once, as a function of a module (`np`, `tenferro_ad`, `jax.numpy`) and
its operands; `FUNCTIONS` finds it again for the references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenferro_ad as ta
from tenferro_ad.engine import program_of
from tenferro_ad.ops import Body, body_of
from tenferro_ad.tape import TOOLS

from .samples import Array, Drawer, Sample, between, row
from .samples_arrays import C16, F4, F8, I8

Function = Callable[..., tuple[Any, ...]]
FUNCTIONS: dict[Body, Function] = {}


class Operations:
    """The few functions that bodies use, on tensors."""

    tanh, exp, sin, sum, where = ta.tanh, ta.exp, ta.sin, ta.sum, ta.where
    matmul = ta.matmul


def body(fn: Function, *operands: Array) -> Body:
    """The body for operands like these."""
    specs = [ta.Spec(x.shape, x.dtype) for x in operands]
    made = program_of(lambda *xs: fn(Operations, *xs), *specs)
    assert not made.constants
    found = body_of(made.program, TOOLS)
    FUNCTIONS[found] = fn
    return found


# ---- scan ----------------------------------------------------------------------------
def _cell(m: Any, h: Any, x: Any, w: Any) -> Any:
    """A recurrent cell: the carry is not linear, and `y` sees it."""
    h = m.tanh(m.matmul(w, h) + x)
    return h, h * h


def _decay(m: Any, h: Any, x: Any, a: Any) -> Any:
    """Linear in carry and input: only the factor of what is tracked is read."""
    h = a * h + x
    return (h,)


def _walk(m: Any, p: Any, v: Any, n: Any, k: Any) -> Any:
    """Two floating carries and a counter; nothing comes in, nothing is stacked."""
    v = v - m.sin(p) * 0.1
    return p + v * 0.1, v, n + k


def _gate(m: Any, h: Any, x: Any) -> Any:
    """A select in the body, and a `y` that is no result of an operation."""
    return m.where(x > 0.5, h * x, h), x


def _turn(m: Any, z: Any, x: Any) -> Any:
    return z * x, m.exp(z) + x


def scan_of(carry: int, xs: int, length: int, reverse: bool = False) -> Any:
    return carry, xs, length, reverse, ()


def scanned(*args: Any) -> Any:
    """The loop in NumPy."""
    *operands, made, k, m, n, reverse, _ = args
    fn = FUNCTIONS[made]
    carry, rows, consts = operands[:k], operands[k : k + m], operands[k + m :]
    outs: list[Any] = []
    for i in reversed(range(n)) if reverse else range(n):
        found = fn(np, *carry, *[x[i] for x in rows], *consts)
        carry = list(found[:k])
        outs.append(found[k:])
    if not n:
        avals = made.program.out_avals[k:]
        return *carry, *[np.zeros((0, *a.shape), a.dtype) for a in avals]
    outs = outs[::-1] if reverse else outs
    return *carry, *[np.stack(ys) for ys in zip(*outs, strict=True)]


def _scans() -> list[Sample]:
    draws = Drawer("scan", between(-1, 1), between(0.3, 0.8))
    found = []

    def add(
        label: str, fn: Function, n: int, carry: Any, xs: Any, consts: Any, **facts: Any
    ) -> None:
        reverse = facts.pop("reverse", False)
        made = body(fn, *carry, *[x[0] if n else x.sum(0) for x in xs], *consts)
        params = (made, *scan_of(len(carry), len(xs), n, reverse))
        found.append(Sample(label, (*carry, *xs, *consts), params, **facts))

    both = "operands[1] outs[2]"
    factor = "operands[2]"
    cell = dict.fromkeys(range(3), "outs[2] operands[1] operands[2]")
    h, w = draws((3,)), draws((3, 3))
    # Each step makes W h, the sum, its tanh and the square; then one stack.
    add("cell", _cell, 4, (h,), (draws.flipped((4, 3)),), (w,), fresh=17,
        kept=cell)  # fmt: skip
    add("cell, backwards", _cell, 3, (h,), (draws((3, 3)),), (w,), fresh=13,
        kept=cell, reverse=True)  # fmt: skip
    half = [draws(s, F4) for s in ((3,), (2, 3), (3, 3))]
    add("cell, float32", _cell, 2, half[:1], half[1:2], half[2:], fresh=9,
        kept=cell)  # fmt: skip
    # No step: the carry gets memory of its own, and so does the empty stack.
    add("cell, no steps", _cell, 0, (h,), (draws((0, 3)),), (w,), fresh=2,
        kept=cell)  # fmt: skip
    add("decay", _decay, 4, (h,), (draws((4, 3)),), (draws((3,)),), fresh=8,
        kept={0: factor, 1: factor, 2: f"{factor} outs[1]"})  # fmt: skip
    # Sines, two products, a difference, a sum, a count.
    count = (np.array(5), np.array(2))
    add("walk", _walk, 3, (h, draws((3,)), count[0]), (), count[1:], fresh=18)
    add("gate", _gate, 3, (draws((2,)),), (draws((3, 2)) + 1,), (), fresh=10,
        kept={0: "operands[1]", 1: both})  # fmt: skip
    add("complex", _turn, 3, (draws((2,), C16),), (draws((3, 2), C16),), (), fresh=10,
        kept={0: both, 1: both})  # fmt: skip
    return found


row("scan", scanned, _scans(), keeps={"operands": ""}, reruns=True)


# ---- cond ----------------------------------------------------------------------------
def _scaled(m: Any, x: Any, a: Any) -> Any:
    return m.sin(x) * a, x


def _powered(m: Any, x: Any, a: Any) -> Any:
    return x * x, x * a


def _swapped(m: Any, x: Any, a: Any) -> Any:
    return a + x, a * 1


def branched(index: Any, *args: Any) -> Any:
    *operands, branches = args
    chosen = min(max(int(index), 0), len(branches) - 1)
    return FUNCTIONS[branches[chosen]](np, *operands)


def _conds() -> list[Sample]:
    draws = Drawer("cond", between(0.2, 2))
    found = []

    def add(
        label: str, index: Any, fns: list[Function], *xs: Array, **facts: Any
    ) -> None:
        params = (tuple(body(fn, *xs) for fn in fns),)
        found.append(Sample(label, (np.asarray(index), *xs), params, **facts))

    kept = {
        1: "operands[0] operands[1] operands[2]",
        2: "operands[0] operands[1]",
    }
    x, a = draws.flipped((3,)), draws((3,))
    # The operand that a branch hands on gets memory of its own.
    two = [_powered, _scaled]
    add("true", True, two, x, a, fresh=3, kept=kept)
    add("false", False, two, x, a, fresh=2, kept=kept)
    three = [_scaled, _powered, _swapped]
    for index, fresh in ((-2, 3), (1, 2), (9, 2)):
        add(f"index {index}", index, three, x, a, fresh=fresh, kept=kept)
    add("float32", True, two, draws((2,), F4), draws((2,), F4), fresh=3, kept=kept)
    z = [draws((2,), C16), draws((2,), C16)]
    add("complex", True, [_swapped, _powered], *z, fresh=2, kept=kept)
    add(
        "linear",
        True,
        [_swapped, _swapped],
        x,
        a,
        fresh=2,
        kept=dict.fromkeys((1, 2), "operands[0]"),
    )
    return found


row("cond", branched, _conds(), keeps={"operands": ""}, reruns=True)


# ---- while ---------------------------------------------------------------------------
def _going(m: Any, n: Any, x: Any, stop: Any) -> Any:
    return (n < stop,)


def _growing(m: Any, n: Any, x: Any, a: Any) -> Any:
    return n + 1, x * a + a


def repeated(*args: Any) -> Any:
    *operands, test, made, k, m = args
    carry, tested, consts = operands[:k], operands[k : k + m], operands[k + m :]
    while FUNCTIONS[test](np, *carry, *tested)[0]:
        carry = list(FUNCTIONS[made](np, *carry, *consts))
    return tuple(np.asarray(x) for x in carry)


def _whiles() -> list[Sample]:
    draws = Drawer("while_loop", between(0.5, 1.5))
    found = []
    for label, start, stop, kind in (
        ("three steps", 0, 3, F8),
        ("no steps", 7, 3, F8),
        ("float32", 1, 3, F4),
        ("integers", 0, 3, I8),
    ):
        n, end = np.array(start), np.array(stop)
        x, a = draws((2,), kind), draws((2,), kind)
        steps = max(stop - start, 0)
        # Each step compares, counts, multiplies and adds; the last test compares once
        # more. Carries that took no step get memory of their own.
        params = (body(_going, n, x, end), body(_growing, n, x, a), 2, 1)
        found.append(
            Sample(label, (n, x, end, a), params, fresh=4 * steps + 1 if steps else 3)
        )
    return found


row("while_loop", repeated, _whiles())
