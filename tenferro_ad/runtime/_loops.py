"""Loops and branches in replays: what each needs, and how it is written out.

A body is a function over arrays, `body(state, *inputs, *outputs)`, whose own values
live in places of the arenas around it. Carries go to and fro between the memory of the
result and one spare place, so that the last step writes the result itself; what a step
stacks is written where it stands in the stack. Nothing is allocated in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import numpy as np

from .._aval import Aval
from ..backends import AsynchronousDevice
from ..ops import Body, Call, Region
from ._places import Strides

Layout = np.ndarray[Any, Any]
Names = Sequence[str]


def bodies_of(
    call: Call, layouts: Sequence[Layout]
) -> list[tuple[Body, list[Strides]]]:
    """The bodies that the row names, with the strides of their inputs."""
    kernel = call.op.kernel
    assert isinstance(kernel, Region)
    return [
        (body, [_strides_of(layouts, at) for at in sources])
        for body, sources in kernel.sources(call)
    ]


def _strides_of(layouts: Sequence[Layout], at: int | None) -> Strides:
    """Strides of an input of a body; None if it is row-major."""
    if at is None:
        return None
    layout = layouts[at] if at >= 0 else layouts[~at]
    if at < 0:
        shape, strides = layout.shape[1:], layout.strides[1:]
        layout = np.lib.stride_tricks.as_strided(layout, shape, strides)
    return None if layout.flags.c_contiguous else layout.strides


def _lies_apart(call: Call) -> bool:
    """Whether no kernel of the device may read and write one buffer."""
    device = call.out.device
    return isinstance(device, AsynchronousDevice) and not device.shares_buffers


class Form(Protocol):
    """One row of the table."""

    def spares(self, call: Call, layouts: Sequence[Layout]) -> list[Aval]:
        """Places that the loop itself needs."""

    def lines(
        self,
        call: Call,
        layouts: Sequence[Layout],
        bodies: Names,
        operands: Names,
        outs: Names,
        spares: Names,
    ) -> list[str]:
        """The statements."""


def _row(name: str, aval: Aval, index: str) -> str:
    """The entry of this aval along the first axis, an array also if it is a scalar."""
    return f"{name}[{index}]" if aval.shape else f"{name}[{index}, ...]"


def _call(body: str, *arguments: str) -> str:
    return f"{body}({', '.join(['state', *arguments])})"


def _block(head: str, lines: Sequence[str]) -> list[str]:
    return [head, *[f"    {line}" for line in lines]]


class _Carry:
    """The carries of a loop: `c0` holds what the next step reads of the first one,
    `d0` is what it writes, `e0` what the step after that writes."""

    def __init__(
        self,
        layouts: Sequence[Layout],
        init: Names,
        targets: Names,
        spares: Sequence[str | None],
    ) -> None:
        self.reads = [f"c{k}" for k in range(len(init))]
        self.writes = [f"d{k}" for k in range(len(init))]
        self.begin = []
        for k, (x, layout, first, second) in enumerate(
            zip(init, layouts, targets, spares, strict=True)
        ):
            if not layout.flags.c_contiguous:  # steps read row-major carries
                self.begin.append(f"copyto({second}, {x})")
                x = second or ""
            self.begin.append(f"c{k}, d{k}, e{k} = {x}, {first}, {second or first}")

    @property
    def turn(self) -> list[str]:
        return [f"c{k}, d{k}, e{k} = d{k}, e{k}, d{k}" for k in range(len(self.reads))]


class _While:
    """Steps while a test holds."""

    def spares(self, call: Call, layouts: Sequence[Layout]) -> list[Aval]:
        return [*call.ins[: call.carry], *call.test.program.out_avals]

    def lines(
        self,
        call: Call,
        layouts: Sequence[Layout],
        bodies: Names,
        operands: Names,
        outs: Names,
        spares: Names,
    ) -> list[str]:
        k, m = call.carry, call.carry + call.test_consts
        test, body = bodies
        carry = _Carry(layouts[:k], operands[:k], outs, spares[:k])
        tested = _call(test, *carry.reads, *operands[k:m], spares[k])
        step = _call(body, *carry.reads, *operands[m:], *carry.writes)
        lines = [*carry.begin, tested]
        lines += _block(f"while {spares[k]}:", [step, *carry.turn, tested])
        for c, out in zip(carry.reads, outs, strict=True):
            lines += _block(f"if {c} is not {out}:", [f"copyto({out}, {c})"])
        return lines


class _Scan:
    """A known number of steps. A carry whose values are stacked is written where the
    next step's stands in the stack, and needs no spare place; but where no kernel may
    read and write one buffer, it goes to and fro like others and is copied there."""

    def spares(self, call: Call, layouts: Sequence[Layout]) -> list[Aval]:
        return [call.ins[j] for j in self._spared(call, layouts)]

    def _spared(self, call: Call, layouts: Sequence[Layout]) -> list[int]:
        return [
            j
            for j in range(call.carry)
            if (j not in call.keeps or _lies_apart(call))
            and call.length
            and (call.length > 1 or not layouts[j].flags.c_contiguous)
        ]

    def lines(
        self,
        call: Call,
        layouts: Sequence[Layout],
        bodies: Names,
        operands: Names,
        outs: Names,
        spares: Names,
    ) -> list[str]:
        k, m, n = call.carry, call.carry + call.xs, call.length
        if not n:
            return [
                f"copyto({y}, {x})" for y, x in zip(outs, operands[:k], strict=False)
            ]
        stacks = outs[len(outs) - len(call.keeps) :]
        stack = dict(zip(call.keeps, stacks, strict=True))
        copied = {}
        if _lies_apart(call):
            stack, copied = {}, stack
        spare = dict(zip(self._spared(call, layouts), spares, strict=True))
        free = [j for j in range(k) if j not in stack]
        # The last step writes the results: the first one, if it is the same turn.
        turns = [
            (outs[j], spare.get(j)) if n % 2 else (spare[j], outs[j]) for j in free
        ]
        carry = _Carry(
            [layouts[j] for j in free],
            [operands[j] for j in free],
            [first or "" for first, _ in turns],
            [second for _, second in turns],
        )
        reads = dict(zip(free, carry.reads, strict=True))
        writes = dict(zip(free, carry.writes, strict=True))
        first, then, stop = ("0", "i + 1", str(n - 1))
        order = f"range({n - 1})"
        if call.reverse:
            first, then, stop = str(n - 1), "i - 1", "0"
            order = f"range({n - 1}, 0, -1)"
        lines = list(carry.begin)
        for j, s in stack.items():
            lines.append(f"copyto({_row(s, call.ins[j], first)}, {operands[j]})")

        ins, ys = call.body.program.in_avals, call.body.program.out_avals[k:]

        def step(i: str, after: str | None) -> list[str]:
            kept = [
                f"copyto({_row(s, ins[j], i)}, {reads[j]})" for j, s in copied.items()
            ]

            def carried(j: int, own: dict[int, str], at: str | None) -> str:
                if j not in stack:
                    return own[j]
                return outs[j] if at is None else _row(stack[j], ins[j], at)

            entries = zip(operands[k:m], ins[k:m], strict=True)
            made = _call(
                bodies[0],
                *[carried(j, reads, i) for j in range(k)],
                *[_row(x, aval, i) for x, aval in entries],
                *operands[m:],
                *[carried(j, writes, after) for j in range(k)],
                *[_row(y, a, i) for y, a in zip(outs[k:], ys, strict=False)],
            )
            return [*kept, made]

        if n > 1:
            lines += _block(f"for i in {order}:", [*step("i", then), *carry.turn])
        return [*lines, *step(stop, None)]


class _Cond:
    """One of several bodies."""

    def spares(self, call: Call, layouts: Sequence[Layout]) -> list[Aval]:
        return []

    def lines(
        self,
        call: Call,
        layouts: Sequence[Layout],
        bodies: Names,
        operands: Names,
        outs: Names,
        spares: Names,
    ) -> list[str]:
        last = len(call.branches) - 1
        names = dict(zip(dict.fromkeys(call.branches), bodies, strict=True))
        branches = ", ".join([names[branch] for branch in call.branches])
        chosen = f"({branches},)[min(max(int({operands[0]}), 0), {last})]"
        return [_call(chosen, *operands[1:], *outs)]


FORMS: Final[dict[str, Form]] = {
    "cond": _Cond(),
    "scan": _Scan(),
    "while_loop": _While(),
}

__all__ = ["FORMS", "Form", "bodies_of"]
