"""What the tests of gate 7 share: programs, holders, and what must not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.engine import HANDLES
from tenferro_ad.engine._ownership_views import retention_of
from tenferro_ad.storage import ValueRecord

F = HANDLES

X = np.array([0.1, 0.2, 0.3])


def leaf(values: Any = X) -> ta.EagerTensor:
    return ta.variable(values)


def read(value: ta.EagerTensor) -> list[float]:
    """The elements, through a guard that ends before this returns."""
    with value.value() as guard, guard.view as view:
        return view._elements("test").tolist()  # type: ignore[no-any-return]


def kept(tape: ta.Tape) -> list[tuple[str, str]]:
    """What a tape retains, as (operation, argument or output)."""
    return [(r.operation, r.value) for r in tape.retained()]


def first_key(tape: ta.Tape, operation: str) -> Any:
    return next(k for k in retention_of(tape) if k.operation == operation)


def state(*things: Any) -> tuple[Any, ...]:
    """Everything that a refused call must leave alone."""
    facts: list[Any] = [BASE.live, BASE.live_bytes]
    for thing in things:
        if isinstance(thing, ta.EagerTensor):
            record = thing._rec
            facts += [id(record), len(record.tokens), record.array.tolist()]
            facts += [record.is_unique, record.root_nbytes]
        elif isinstance(thing, ta.Tape):
            facts += [len(thing), repr(thing), kept(thing)]
        elif isinstance(thing, ta.Gradients):
            facts += [len(thing), [(k, id(r)) for k, r in thing._records.items()]]
    return tuple(facts)


@contextmanager
def no_extraction() -> Iterator[None]:
    """Fail if anything tries to move an owner out of a record."""

    def boom(self: ValueRecord) -> Any:
        raise AssertionError("the value was extracted, or its extraction attempted")

    real = ValueRecord.into_tensor
    ValueRecord.into_tensor = boom  # type: ignore[method-assign]
    try:
        yield
    finally:
        ValueRecord.into_tensor = real  # type: ignore[method-assign]


def region(x: Any) -> Any:
    """sin(tanh(x) * x): two interior values and one output."""
    return F.sin(F.tanh(x) * x)


HOLDERS: dict[str, Callable[[ta.EagerTensor], Any]] = {}
"""Who can hold a value beside its handle: each gives the holder to keep alive."""


def holder(fn: Callable[[ta.EagerTensor], Any]) -> Callable[[ta.EagerTensor], Any]:
    HOLDERS[fn.__name__] = fn
    return fn


@holder
def sibling_handle(y: ta.EagerTensor) -> Any:
    return y.clone()


@holder
def tape_record(y: ta.EagerTensor) -> Any:
    """The rule of `w * y` for `w` keeps `y`."""
    with ta.Tape() as tape:
        product = leaf(np.ones(y.shape)) * y
    return tape, product


@holder
def explicit_retention(y: ta.EagerTensor) -> Any:
    with ta.Tape() as tape:
        tape.retain(y)
    return tape


@holder
def checkpoint_record(y: ta.EagerTensor) -> Any:
    """`y` is closed over by a region, and so one of its boundary values."""
    with ta.Tape() as tape:
        out = ta.checkpoint(lambda w: F.sin(w * y))(leaf(np.ones(y.shape)))
    return tape, out


@holder
def pullback(y: ta.EagerTensor) -> Any:
    return ta.vjp(lambda w: w * y, np.ones(y.shape))


@holder
def open_guard(y: ta.EagerTensor) -> Any:
    return y.value()


@holder
def view_of_it(y: ta.EagerTensor) -> Any:
    """Another record on the same container."""
    return F.reshape(y, (y.size,))
