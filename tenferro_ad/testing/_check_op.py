"""`check_op`: every property of the operation table, for one operation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from ..engine import operation_of
from ..errors import InvalidArgumentError
from ..ops import Op
from ..runtime import plan_of
from ._agree import counted_calls
from ._derivatives import (
    check_adjoint,
    check_forward,
    check_reverse,
    check_second,
    check_values,
)
from ._modes import (
    check_batch_is_no_loop,
    check_batching,
    check_checkpoint,
    check_no_examples,
    check_traced_and_compiled,
)
from ._retained import (
    check_allocations,
    check_backward_allocations,
    check_forward_writes_nothing,
    check_kept_is_read,
    check_nothing_written,
    check_operands,
    check_ownership,
    check_retention,
    keyword_only,
)
from ._samples import Row, Sample, handle

_MODES: Final = ("fwd", "rev")


def check_op(
    op: Any,
    samples: Sequence[Sample],
    *,
    reference: Callable[..., Any] | None = None,
    keeps: Mapping[str, str] | None = None,
    modes: Sequence[str] = _MODES,
    batching: bool = True,
    copies: int = 0,
) -> None:
    """Check an operation by the properties that every built-in operation has.

    Value, shape and dtype against the reference and the shape rule; forward mode
    against central differences; reverse mode as the adjoint of forward mode; second
    derivatives; what a tape keeps, and that each kept value is read; allocations and
    copies, in both passes; that gradients own their buffers and nothing is written
    over; the same results checkpointed, traced, compiled and for many examples.

    Args:
        op: what `ta.register_op` gave.
        samples: points, away from kinks, in each dtype and layout that matters;
            derivatives of second order are checked in double precision.
        reference: `reference(*operands, *params)` in NumPy; None compares the
            operation with itself only.
        keeps: for each argument with a derivative the names that its reverse rule
            keeps, separated by blanks; by default what the rules declare.
        modes: "fwd", "rev" or both: the derivatives that the operation has.
        batching: False for an operation without a batching rule.
        copies: explicit duplicates that one application makes.

    Raises:
        OperationCheckError: an `AssertionError` that names the property; a note names
            the sample.
        InvalidArgumentError: no samples, or labels that repeat.
        NoRuleError: a derivative or a batch that the operation has no rule for.

    Cost: some dozens of evaluations for each sample; counts all allocations of the CPU
        provider meanwhile, so nothing else may run beside it.
    """
    _check_labels(op, samples)
    declared = operation_of(op)
    row = _row(declared, tuple(samples), reference, keeps, copies)
    check_operands(row)
    check_values(row)
    with counted_calls() as calls:
        check_allocations(row, calls)
        if "rev" in modes:
            check_backward_allocations(row, calls)
    if "fwd" in modes:
        check_forward(row)
        check_forward_writes_nothing(row)
    if "rev" in modes:
        _reverse_checks(row, forward="fwd" in modes)
    check_traced_and_compiled(row if "rev" in modes else _constant(row))
    if batching:
        check_batching(row)
        check_no_examples(row)
        with counted_calls() as calls:
            check_batch_is_no_loop(row, calls)


def _reverse_checks(row: Row, *, forward: bool) -> None:
    if forward:
        check_adjoint(row)
    else:
        check_reverse(row)
    check_second(row, forward=forward)
    check_retention(row)
    check_kept_is_read(row)
    check_ownership(row)
    check_nothing_written(row)
    check_checkpoint(row)


def _check_labels(op: Any, samples: Sequence[Sample]) -> None:
    labels = [s.label for s in samples]
    if not samples or len(set(labels)) != len(labels):
        raise InvalidArgumentError(
            operation="check_op",
            argument="samples",
            found="no samples" if not samples else f"the labels {labels}",
            fix="give at least one sample, each with a label of its own",
        )


def _row(
    op: Op,
    samples: tuple[Sample, ...],
    reference: Callable[..., Any] | None,
    keeps: Mapping[str, str] | None,
    copies: int,
) -> Row:
    kept: Any = None
    if op.joint is not None:
        named = dict.fromkeys(op.args, "")
        kept = _kept_together(op)
    else:
        named = {arg: " ".join(sorted(keyword_only(r))) for arg, r in op.vjp.items()}
    return Row(
        op,
        reference,
        samples,
        keeps=dict(named if keeps is None else keeps),
        kept=kept if keeps is None else None,
        view=op.gives_views,
        copies=copies,
    )


def _kept_together(op: Op) -> Callable[[Sample, tuple[int, ...]], set[str]]:
    """What the joint rule of these operands declares."""

    def kept(sample: Sample, tracked: tuple[int, ...]) -> set[str]:
        avals = tuple(handle(x).aval for x in sample.operands)
        call = plan_of(op, avals, sample.params).call
        saves = call.spec(sum(1 << i for i in tracked)).saves
        return {
            op.outs[~s]
            if s < 0
            else f"{op.args[0]}[{s}]"
            if op.variadic
            else op.args[s]
            for s in saves
        }

    return kept


def _constant(row: Row) -> Row:
    """The operation with nothing to differentiate."""
    return Row(row.op, row.reference, row.samples, view=row.view, copies=row.copies)


__all__ = ["check_op"]
