"""Steps: reverse rules of one or two inputs, written out for a sweep over bare roots.

A step does for one equation what the sweep's general loop does, where every input's
rule is one kernel or the cotangent itself. Avals of cotangent and saved values are
facts of the application, so nothing is left to look up; the cases differ only in which
inputs already have a cotangent, and each case is straight-line code.

In the sweep's list `cts` an array is a *bare root*: it belongs to the sweep alone,
which must release it or give it a record. A `ValueRecord` there is anything else (a
seed, a view, a value that several inputs share); `owned` says whether it may be
written.

A step is `step(state, cts, owned, i, ct, ins, saved)`. It answers False, having changed
nothing, where an input's cotangent is a record. If it raises, every bare root is still
in `cts`, so the sweep can release them all. On True the sweep forgets `cts[i]`, which
by then was moved on, written over or released.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._aval import Aval
from ..backends import Plan, compiled
from ..storage import (
    DOOR_NAMES,
    POOLED_FROM,
    SMALL_BARE_ARRAY_SOURCE,
    SMALL_BARE_SOURCE,
    SMALL_RELEASE_SOURCE,
    allocate_bare,
    release_bare,
)

Step = Callable[..., bool]
Lines = list[str]


class InputRule:
    """The reverse rule of one input as one operation, its plan fixed.

    Attributes:
        fresh: `fresh(state, ct, saved)` gives a new value.
        into: `into(state, ct, saved, acc)` adds to the array `acc`, which the caller
            owns: no value is made.
        over: `over(ct, saved)` computes into the memory of `ct`, which the caller owns
            and gives up; None where that is impossible.
        positions: the operands as positions in `saved`, or -1 for the cotangent.
        plan: the kernel; `operands` its arrays as source over `a` (the cotangent's
            array) and `saved`.
    """

    __slots__ = ("fresh", "into", "operands", "over", "plan", "positions")

    def __init__(self, plan: Plan, operands: list[int], out: Aval) -> None:
        self.plan = plan
        self.positions = tuple(operands)
        self.operands = ["a" if k < 0 else f"saved[{k}].array" for k in operands]
        records = ", ".join("ct" if k < 0 else f"saved[{k}]" for k in operands)
        arrays = ", ".join(self.operands)
        space: dict[str, Any] = {
            "run": plan.execute,
            "add": plan.into,
            "write": plan.overwrite,
        }
        source = f"""
def fresh(state, ct, saved):
    return run(state, {records})

def into(state, ct, saved, acc):
    a = ct.array
    add(state, {arrays}, acc)

def over(ct, saved):
    a = ct.array
    write({arrays}, a)
    return ct
"""
        exec(compiled(source), space)
        self.fresh: Callable[..., Any] = space["fresh"]
        self.into: Callable[..., None] = space["into"]
        possible = (
            plan.overwrite is not None
            and operands[0] == -1
            and -1 not in operands[1:]
            and plan.call.out.same(out)
        )
        self.over: Callable[..., Any] | None = space["over"] if possible else None


def step_of(rules: tuple[InputRule | None, ...], out: Aval) -> Step | None:
    """The step for these rules (None: the cotangent itself), or None if there is none.

    Args:
        rules: one for each tracked input.
        out: aval of the equation's output, thus of the cotangent.
    """
    n = len(rules)
    if n > 2 or any(r is not None and r.plan.run is None for r in rules):
        return None
    space: dict[str, Any] = {
        **DOOR_NAMES,
        "add": np.add,
        "allocate_bare": allocate_bare,
        "ndarray": np.ndarray,
        "release_bare": release_bare,
    }
    writer = _Writer(rules, out, space)
    step = _block(
        "def step(state, cts, owned, i, ct, ins, saved):",
        *_block("if type(ct) is ndarray:", "a = ct", "own = is_bare = True"),
        *_block("else:", "a = ct.array", "own = owned[i]", "is_bare = False"),
        *(writer.one() if n == 1 else writer.two()),
    )
    exec(compiled("\n".join(step)), space)
    return space["step"]  # type: ignore[no-any-return]


def _block(head: str, *lines: str) -> Lines:
    return [head, *["    " + line for line in lines]]


def _source(template: str, k: int | str) -> Lines:
    return template.strip().format(k=k).split("\n")


class _Writer:
    """Writes the body of a step. Names that end in a number belong to that input: `j0`
    its node, `h0` its cotangent so far, `run0` its kernel; `_ct` ends those of the
    cotangent.
    """

    def __init__(
        self, rules: tuple[InputRule | None, ...], out: Aval, space: dict[str, Any]
    ) -> None:
        self.rules, self.out = rules, out
        space["aval_ct"], space["nbytes_ct"] = out, out.nbytes
        for k, rule in enumerate(rules):
            if rule is not None:
                plan = rule.plan
                facts = {
                    "aval": plan.aval,
                    "device": plan.device,
                    "dtype": plan.dtype,
                    "into": plan.into,
                    "into_nbytes": plan.into_nbytes,
                    "layout": plan.layout,
                    "name": plan.call.op.name,
                    "nbytes": plan.nbytes,
                    "run": plan.run,
                    "scratch_nbytes": plan.scratch_nbytes,
                    "shape": plan.shape,
                    "write": plan.overwrite,
                }
                space.update({f"{name}{k}": fact for name, fact in facts.items()})

    # -- parts -------------------------------------------------------------------------

    def fresh(self, k: int) -> Lines:
        """Input `k` has no cotangent: it gets a bare root. The root is in `cts` before
        the kernel runs, so that a kernel that raises leaves nothing behind."""
        rule = self.rules[k]
        assert rule is not None
        plan, operands = rule.plan, ", ".join(rule.operands)
        made = [f"array = allocate_bare(state, aval{k}, name{k})"]
        if plan.layout is not None:
            needed = f"scratch_nbytes{k} + layout{k}({operands})"
            made.append(f"state.account.use_workspace({needed})")
        elif plan.scratch_nbytes:
            made.append(f"state.account.use_workspace(scratch_nbytes{k})")
        if plan.is_small:
            small = SMALL_BARE_ARRAY_SOURCE + SMALL_BARE_SOURCE
            made = [
                *_block("if state.is_plain:", *_source(small, k)),
                *_block("else:", *made),
            ]
        made += [f"cts[j{k}] = array", f"run{k}({operands}, array)"]
        source = plan.source
        if plan.fresh is None or source is None or not source.startswith("{0}."):
            return made
        # A product of matrices, whatever their strides, is row-major.
        return [
            *_block(
                f"if state.is_plain and device{k}.small is empty:",
                f"array = {source.format(*rule.operands)}",
                f"cts[j{k}] = array",
                *_source(SMALL_BARE_SOURCE, k),
            ),
            *_block("else:", *made),
        ]

    def into(self, k: int, h: str) -> Lines:
        """Input `k` has a bare root: add to it."""
        rule = self.rules[k]
        if rule is None:
            return [f"add({h}, a, {h})"]
        plan = rule.plan
        if plan.source is None or not plan.is_small:
            return [f"into{k}(state, {', '.join(rule.operands)}, {h})"]
        value = plan.source.replace("run(", f"run{k}(").format(*rule.operands)
        needed = f"into_nbytes{k}"
        if plan.layout is not None:
            needed += f" + layout{k}({', '.join(rule.operands)})"
        return [
            *_block("if not state.is_plain:", f"state.account.use_workspace({needed})"),
            f"add({h}, {value}, {h})",
        ]

    def drop(self) -> Lines:
        """Nobody needs the cotangent any more; a record looks after itself."""
        released = ["release_bare(state.account, aval_ct, ct)"]
        if self.out.nbytes < POOLED_FROM:
            released = [
                *_block("if state.is_plain:", *_source(SMALL_RELEASE_SOURCE, "_ct")),
                *_block("else:", *released),
            ]
        return [*_block("if is_bare:", *released), "return True"]

    def last(self, k: int) -> Lines:
        """As `fresh`; nobody needs the cotangent afterwards: move or write over it."""
        rule = self.rules[k]
        if rule is None:
            moved = _block("if not is_bare:", f"owned[j{k}] = own")
            return [f"cts[j{k}] = ct", *moved, "return True"]
        over: Lines = []
        if rule.over is not None:
            over = _block(
                "if own:",
                f"write{k}({', '.join(rule.operands)}, a)",
                f"cts[j{k}] = ct",
                "if not is_bare:",
                f"    owned[j{k}] = True",
                "return True",
            )
        return [*over, *self.fresh(k), *self.drop()]

    # -- bodies ------------------------------------------------------------------------

    def one(self) -> Lines:
        return [
            "j0 = ins[0]",
            "h0 = cts[j0]",
            *_block("if h0 is None:", *self.last(0)),
            *_block("if type(h0) is ndarray:", *self.into(0, "h0"), *self.drop()),
            "return False",
        ]

    def two(self) -> Lines:
        """An input that only adds to what it has goes first, so that the other one may
        take over the cotangent."""
        into0, into1 = self.into(0, "h0"), self.into(1, "h1")
        # Where neither has one, the cotangent itself goes last, to be moved.
        first, second = (1, 0) if self.rules[0] is None else (0, 1)
        if self.rules[first] is None:
            neither = ["return False"]  # both share it: a record
        else:
            neither = [
                *self.fresh(first),
                *_block("if j0 != j1:", *self.last(second)),
                *self.into(second, "array"),
                *self.drop(),
            ]
        return [
            "j0, j1 = ins",
            "h0 = cts[j0]",
            "h1 = cts[j1]",
            *_block(
                "if type(h1) is ndarray:",
                *_block("if h0 is None:", *into1, *self.last(0)),
                *_block("if type(h0) is ndarray:", *into0, *into1, *self.drop()),
            ),
            *_block(
                "elif h1 is None:",
                *_block("if type(h0) is ndarray:", *into0, *self.last(1)),
                *_block("if h0 is None:", *neither),
            ),
            "return False",
        ]
