"""What users write for an operation of their own, held to what it must give.

A rule may read what it was given and what it computed, and nothing else: then a tape
keeps what the rule names and no more. It computes with operations of `F`, because its
values are records that only an evaluator understands. A shape rule gives a pair of
shape and dtype for each output.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import numpy as np

from ..errors import (
    DTypeError,
    InvalidArgumentError,
    TenferroError,
    UndeclaredSaveError,
    a_kind,
)
from ..ops import Evaluator, Op
from ..storage import ValueRecord

Rule = Callable[..., Any]
_NUMBERS: Final = (bool, int, float, complex, np.generic)


def shape_rule(operation: str, shapes: Callable[..., Any], outs: int) -> Any:
    """The shape rule, whose answer is looked at."""

    @wraps(shapes)
    def infer(*facts: Any) -> Any:
        found = shapes(*facts)
        pairs = found if outs > 1 and isinstance(found, list | tuple) else [found]
        if len(pairs) != outs or not all(map(_is_pair, pairs)):
            wanted = "the pair `(shape, dtype)`"
            raise InvalidArgumentError(
                operation=operation,
                argument="shapes",
                found=f"a shape rule that gives {found!r}",
                fix=f"return {wanted}"
                if outs == 1
                else f"return {outs} pairs, each {wanted}",
            )
        return found

    return infer


def _is_pair(found: Any) -> bool:
    pair = isinstance(found, tuple | list) and len(found) == 2
    return pair and isinstance(found[0], tuple | list)


def guarded(operation: str, where: str, rule: Rule) -> Rule:
    """The rule, held to what it names."""

    @wraps(rule)
    def checked(F: Evaluator, given: Any, *facts: Any, **saved: Any) -> Any:
        G = _Guard(F, operation, where)
        try:
            G.admit(given)
            for value in saved.values():
                G.admit(value)
            try:
                found = rule(G, given, *facts, **saved)
            except (TypeError, AttributeError) as error:
                if isinstance(error, TenferroError) or not _is_about_records(error):
                    raise
                raise DTypeError(
                    operation=operation,
                    argument=where,
                    found=f"a rule that computes without `F` ({error})",
                    fix="write operations of `F`, such as `F.mul(ct, x)` for `ct * x`",
                ) from error
            for value in found if isinstance(found, tuple | list) else (found,):
                G.require(value)
            return found
        finally:
            G.close()

    return checked


def _is_about_records(error: Exception) -> bool:
    """Whether values, which are records, were taken for tensors or arrays."""
    return ValueRecord.__name__ in str(error)


class _Guard(Evaluator):
    """`F` for one run of a rule: takes values that the rule was given or computed."""

    def __init__(self, F: Evaluator, operation: str, where: str) -> None:
        super().__init__()
        self._inner, self._operation, self._where = F, operation, where
        # Values are held, so that an identity means one value.
        self._known: dict[int, Any] = {}

    def admit(self, value: Any) -> None:
        if isinstance(value, tuple | list):
            for part in value:
                self.admit(part)
        elif value is not None:
            self._known[id(value)] = value

    def require(self, value: Any) -> None:
        """Raises:
        UndeclaredSaveError: the rule was not given the value.
        """
        if value is None or isinstance(value, _NUMBERS) or id(value) in self._known:
            return
        shape = getattr(value, "shape", None)
        raise UndeclaredSaveError(
            operation=self._operation,
            argument=self._where,
            found=f"a rule that reads {a_kind(value)}"
            + ("" if shape is None else f" of shape {shape}")
            + ", which it does not name",
            fix="name operands and outputs as keyword-only arguments of the rule; make "
            "constants in it (`F.full`, `F.arange`)",
        )

    def close(self) -> None:
        """Hold nothing any more; bound operations refer to the guard."""
        self.clear()
        self.__dict__.clear()

    def bind(self, op: Op) -> Callable[..., Any]:
        fn = self._inner[op]
        n = 1 if op.variadic else len(op.args)

        def bound(*operands: Any) -> Any:
            for x in operands[0] if op.variadic else operands[:n]:
                self.require(x)
            found = fn(*operands)
            self.admit(found)
            return found

        return bound
