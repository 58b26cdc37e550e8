"""Checks of what an operation keeps, allocates, owns and leaves alone."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from .._ledger import ledger
from ..engine import HANDLES, Tape, as_tensor, jvp, variable, vjp
from ._agree import ProviderCalls, ensure, like, weights_for
from ._numeric import Array
from ._samples import Row, Sample, as_tuple, at, handle, memory_of, numpy_of

# ---- retention -----------------------------------------------------------------------


def subsets(positions: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Each argument alone, and all together."""
    found: list[tuple[int, ...]] = [(i,) for i in positions]
    return found if len(found) == 1 else [*found, positions]


def recorded(row: Row, sample: Sample, tracked: tuple[int, ...]) -> Any:
    """Tape, variables and outputs of one application."""
    operands = [handle(x) for x in sample.operands]
    leaves = [variable(operands[i]) for i in tracked]
    for i, x in zip(tracked, leaves, strict=True):
        operands[i] = x
    with Tape() as tape:
        outs = as_tuple(row.apply(sample, operands))
    return tape, leaves, outs


def keyword_only(rule: Any) -> set[str]:
    return {
        n
        for n, p in inspect.signature(rule).parameters.items()
        if p.kind is inspect.Parameter.KEYWORD_ONLY
    }


def check_retention(row: Row) -> None:
    """A tape keeps what the rules name and nothing else: by hand (samples), by
    signature (keyword-only names), and by the tape."""
    prop = "what a tape keeps"
    for sample in row.differentiable():
        with at(row.name, sample):
            for tracked in subsets(row.tracked(sample)):
                tape, _, outs = recorded(row, sample, tracked)
                kept = tape.retained()
                for i in tracked:
                    rule = row.op.vjp.get(row.argument(i))
                    if rule is not None:
                        by_hand = row.kept_by(sample, i)
                        ensure(
                            by_hand == keyword_only(rule),
                            row,
                            prop,
                            f"a rule of `{row.argument(i)}` that names "
                            f"{sorted(keyword_only(rule))}, not {sorted(by_hand)}",
                        )
                seen = sorted(k.value for k in kept)
                wanted = sorted(row.retained(sample, tracked))
                ensure(
                    seen == wanted and all(k.operation == row.name for k in kept),
                    row,
                    prop,
                    f"{seen}, where the rules of operands {tracked} keep {wanted}",
                )
                del outs


def poisons(array: Array) -> list[Array]:
    """Other contents for a kept value, legal as far as that can be known."""
    if array.dtype.kind == "b":
        return [~array]
    if array.dtype.kind in "iu":
        last = -1 if array.ndim else None
        rolled, flipped = np.roll(array, 1, last), np.flip(array, last)
        return [rolled, flipped.copy(), np.zeros_like(array)]
    return [array * 0.875 + 0.0625, -array, np.full_like(array, 0.5)]


def check_kept_is_read(row: Row) -> None:
    """Poisoning a kept value changes a gradient, for some sample."""
    kept: set[tuple[int, str]] = set()
    read: set[tuple[int, str]] = set()
    for sample in row.differentiable(special=True):
        if sample.heavy or not all(x.size for x in sample.operands):
            continue
        with at(row.name, sample):
            for i in row.tracked(sample):
                found = _poisoned(row, sample, i)
                position = 0 if row.op.variadic or row.op.joint else i
                kept |= {(position, name) for name in found}
                read |= {
                    (position, name) for name, was_read in found.items() if was_read
                }
    unread = sorted(f"`{name}` (for `{row.argument(i)}`)" for i, name in kept - read)
    ensure(not unread, row, "kept values are read", f"unread {', '.join(unread)}")


def _poisoned(row: Row, sample: Sample, i: int) -> dict[str, bool]:
    """Whether each kept value is read for the gradient of operand i."""
    tape, (leaf,), outs = recorded(row, sample, (i,))
    names = [k.value for k in tape.retained()]
    cotangent = weights_for(row, sample, outs)
    clean = pulled(tape, leaf, outs, cotangent)
    values = [v for s in tape._core.flat[2::3] for v in s]
    read = {}
    for name, value in zip(names, values, strict=True):
        record = getattr(value, "record", value)
        content = record.array
        read[name] = False
        for poison in poisons(content):
            record.array = np.asarray(poison)
            with np.errstate(all="ignore"):
                dirty = pulled(tape, leaf, outs, cotangent)
            if not np.array_equal(clean, dirty, equal_nan=True):
                read[name] = True
        record.array = content
        again = pulled(tape, leaf, outs, cotangent)
        same = np.array_equal(clean, again, equal_nan=True)
        ensure(same, row, "backward twice", "another gradient the second time")
    return read


def pulled(tape: Any, leaf: Any, outs: tuple[Any, ...], ws: list[Array]) -> Array:
    """The gradient for the last output's cotangent; rules keep all of their outputs."""
    found = tape.backward(outs[-1], cotangent=as_tensor(ws[-1]), retain=True)
    view = found[leaf]
    return np.zeros(()) if view is None else numpy_of(view)


# ---- memory --------------------------------------------------------------------------


def check_allocations(row: Row, calls: ProviderCalls) -> None:
    """One allocation for each output, none for views, no copy; the provider counts the
    same."""
    for sample in row.samples:
        with at(row.name, sample):
            copies = row.copies if sample.copies is None else sample.copies
            n = 0 if row.view else len(row.expected(sample))
            n = n if sample.fresh is None else sample.fresh
            operands = [handle(x) for x in sample.operands]
            calls.reset()
            with ledger(detail=False) as led:
                outs = row.apply(sample, operands)
            seen = sum(led.allocations.values())
            ensure(
                seen == calls.total == n,
                row,
                "allocations",
                f"{seen} by the ledger and {calls.total} by the provider, not {n}",
            )
            wanted = {"ExplicitDuplicate": copies} if copies else {}
            ensure(led.copies == wanted, row, "copies", f"{dict(led.copies)}")
            if not copies:
                reasons = set(led.allocations)
                ensure(
                    reasons <= {"OperationOutput"}, row, "reasons", f"{sorted(reasons)}"
                )
            del outs, operands
            ensure(led.live == 0, row, "lifetimes", f"{led.live} roots left behind")


def check_backward_allocations(row: Row, calls: ProviderCalls) -> None:
    """The ledger of a backward pass is what the provider counts, twice the same, for
    cotangents of any layout; only gradients are left, each with a root of its own."""
    prop = "allocations in backward"
    again = {"CheckpointRecomputeOutput"} if row.reruns else set()
    for sample in row.differentiable():
        with at(row.name, sample):
            tape, leaves, outs = recorded(row, sample, row.tracked(sample))
            for seed in _seeds(weights_for(row, sample, outs)[0]):
                counts = []
                for _ in range(2):
                    calls.reset()
                    with ledger(detail=False) as led:
                        grads = tape.backward(outs[0], cotangent=seed, retain=True)
                    seen = sum(led.allocations.values())
                    told = f"{seen} by the ledger, {calls.total} by the provider"
                    ensure(seen == calls.total, row, prop, told)
                    reasons = set(led.allocations)
                    known = reasons <= {"OperationOutput"} | again
                    ensure(known, row, prop, f"{reasons}")
                    ensure(led.copies == {}, row, prop, f"copies {dict(led.copies)}")
                    told = f"{led.live} roots for {len(grads)} gradients"
                    ensure(led.live == len(grads), row, prop, told)
                    counts.append(led.allocations)
                    del grads
                    ensure(led.live == 0, row, prop, f"{led.live} roots left behind")
                told = f"first and second pass {counts}"
                ensure(counts[0] == counts[1], row, prop, told)
            del leaves


def _seeds(weights: Array) -> list[Any]:
    """A cotangent in row-major order, and one whose axes lie the other way round."""
    found = [as_tensor(weights)]
    if weights.ndim > 1:
        turned = as_tensor(np.ascontiguousarray(weights.T))
        found.append(HANDLES.permute_dims(turned, tuple(reversed(range(weights.ndim)))))
    return found


# ---- ownership -----------------------------------------------------------------------


def check_ownership(row: Row) -> None:
    """No two gradients share memory, nor with operands, outputs or the cotangent."""
    for sample in row.differentiable():
        with at(row.name, sample):
            tape, leaves, outs = recorded(row, sample, row.tracked(sample))
            seed = as_tensor(weights_for(row, sample, outs)[0])
            found = tape.backward(outs[0], cotangent=seed)
            others = [memory_of(x) for x in (*leaves, *outs, seed)]
            for leaf in leaves:
                if leaf not in found:
                    continue
                owner = found.take_grad(leaf)
                with owner.as_view() as view:
                    mine = view.numpy()
                    shared = any(np.may_share_memory(mine, x) for x in others)
                    ensure(not shared, row, "gradients own their buffers", "sharing")
                    others.append(mine)
                    del mine
                others.pop()
                del owner


def check_operands(row: Row) -> None:
    """Operands are as they were."""
    for sample in row.samples:
        with at(row.name, sample):
            operands = [handle(x) for x in sample.operands]
            outs = row.apply(sample, operands)
            after = [numpy_of(x).tobytes() for x in operands]
            same = after == [x.tobytes() for x in sample.operands]
            ensure(same, row, "operands are not written", "another operand afterwards")
            del outs


def check_nothing_written(row: Row) -> None:
    """Operands, outputs and cotangents are as they were after backward; pulling twice
    is the same."""
    for sample in row.differentiable():
        with at(row.name, sample):
            f, primals = row.function(sample)
            out, pull = vjp(f, *primals)
            seed = like(out, weights_for(row, sample, as_tuple(out)))
            watched = [*primals, *as_tuple(out), *as_tuple(seed)]
            before = [numpy_of(x).tobytes() for x in watched]
            first = [numpy_of(g).tobytes() for g in pull(seed)]
            second = [numpy_of(g).tobytes() for g in pull(seed)]
            ensure(first == second, row, "pulling twice", "another cotangent")
            same = [numpy_of(x).tobytes() for x in watched] == before
            ensure(same, row, "values are not written", "another value after backward")


def check_forward_writes_nothing(row: Row) -> None:
    """Primals and tangents are as they were."""
    for sample in row.differentiable():
        with at(row.name, sample):
            f, primals = row.function(sample)
            before = [numpy_of(x).tobytes() for x in primals]
            jvp(f, primals, tuple(primals))
            same = [numpy_of(x).tobytes() for x in primals] == before
            ensure(same, row, "values are not written", "another value afterwards")
