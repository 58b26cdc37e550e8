"""The evaluator of rules that meet handles and bare records at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from ..ops import Op
from ..storage import ValueRecord
from ._dispatch import HANDLES, HandleEvaluator, apply_region, value_at


class MixedEvaluator(HandleEvaluator):
    """`HANDLES`, also for the bare records that a recording without outer levels kept:
    they are constants."""

    def bind(self, op: Op) -> Callable[..., Any]:
        fn = HANDLES[op]
        if op.variadic:
            return lambda xs, *params: fn(tuple(map(_dressed, xs)), *params)
        n = len(op.args)
        return lambda *operands: fn(*map(_dressed, operands[:n]), *operands[n:])

    def region(self, call: Any, operands: Any) -> list[Any]:
        return apply_region(call, list(map(_dressed, operands)))


def _dressed(x: Any) -> Any:
    return value_at(x, None) if type(x) is ValueRecord else x


MIXED: Final = MixedEvaluator()
