"""Samples of operations: where, and against what, an operation is checked.

A `Row` says what an operation should do, independently of its declaration: a NumPy or
SciPy function for its value, the names that the reverse rule of each argument keeps,
whether its outputs are views, and operands of several dtypes and layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._aval import aval_of
from ..backends import CPU
from ..engine import HANDLES, EagerTensor
from ..ops import Op
from ..storage import transfer
from ._numeric import Array


@dataclass(frozen=True)
class Sample:
    """One point: operands with their layout, and parameters.

    Attributes:
        label: a name for texts; samples of an operation have different ones.
        operands: NumPy arrays; views are given to the operation with their strides.
        params: the operation's parameters, in order.
        heavy: large; values and first derivatives only.
        fresh, copies: allocations and explicit duplicates, where not the operation's.
        kept: what the reverse rule of each operand keeps, where not the operation's.
    """

    label: str
    operands: tuple[Array, ...]
    params: tuple[Any, ...] = ()
    heavy: bool = False
    fresh: int | None = None
    copies: int | None = None
    kept: dict[int, str] | None = None


@dataclass(frozen=True)
class Row:
    """What an operation should do.

    Attributes:
        reference: `reference(*operands, *params)` by NumPy or SciPy; None if there is
            nothing to compare the operation with but itself.
        keeps: for each differentiable argument what its reverse rule keeps, as names
            separated by blanks; arguments that are not named are never tracked here.
        keeps_complex: the same for arguments that are complex, if that differs.
        kept: for an operation with a joint rule, the names that it keeps as a tape
            shows them, by sample and tracked positions.
        view: outputs are views, nothing is allocated.
        copies: explicit duplicates that the operation makes.
        reruns: backward runs a body of the operation again.
        smooth: replaces `reference` in difference quotients.
        special: points that only the check of kept values visits, where a rule reads
            what makes no difference elsewhere.
    """

    op: Op
    reference: Callable[..., Any] | None
    samples: tuple[Sample, ...]
    keeps: dict[str, str] = field(default_factory=dict)
    keeps_complex: dict[str, str] | None = None
    kept: Callable[[Sample, tuple[int, ...]], set[str]] | None = None
    view: bool = False
    copies: int = 0
    reruns: bool = False
    smooth: Callable[..., Any] | None = None
    special: tuple[Sample, ...] = ()

    @property
    def name(self) -> str:
        return self.op.name

    def argument(self, i: int) -> str:
        return self.op.args[0] if self.op.variadic else self.op.args[i]

    def kept_by(self, sample: Sample, i: int) -> set[str]:
        """Names that the reverse rule of argument i keeps."""
        if sample.kept is not None:
            return set(sample.kept[i].split())
        table = self.keeps
        if self.keeps_complex is not None and sample.operands[i].dtype.kind == "c":
            table = self.keeps_complex
        return set(table[self.argument(i)].split())

    def retained(self, sample: Sample, tracked: tuple[int, ...]) -> set[str]:
        """Names that the reverse rules of these arguments keep together."""
        if self.kept is not None:
            return self.kept(sample, tracked)
        return set().union(*[self.kept_by(sample, i) for i in tracked])

    def tracked(self, sample: Sample) -> tuple[int, ...]:
        """Positions of the operands that carry a derivative here."""
        return tuple(
            i
            for i, x in enumerate(sample.operands)
            if x.dtype.kind in "fc" and self.argument(i) in self.keeps
        )

    def differentiable(self, *, special: bool = False) -> Iterator[Sample]:
        """Samples with something to differentiate: some operand and some output."""
        for sample in (*self.samples, *(self.special if special else ())):
            outs = self.expected(sample)
            if self.tracked(sample) and all(y.dtype.kind in "fc" for y in outs):
                yield sample

    def expected(self, sample: Sample) -> list[Array]:
        """What the reference gives, or, without one, the operation."""
        return self.valued(sample.operands, sample.params)

    def valued(
        self,
        operands: Sequence[Array],
        params: Sequence[Any],
        *,
        smooth: bool = False,
    ) -> list[Array]:
        fn = (self.smooth if smooth else None) or self.reference
        if fn is None:
            sample = Sample("", tuple(operands), tuple(params))
            given = [handle(x) for x in operands]
            return [numpy_of(y) for y in as_tuple(self.apply(sample, given))]
        with np.errstate(all="ignore"):
            return arrays_of(fn(*operands, *params))

    def apply(self, sample: Sample, operands: Sequence[Any]) -> Any:
        """The operation on handles, through the public door."""
        fn = HANDLES[self.op]
        if self.op.variadic:
            return fn(tuple(operands), *sample.params)
        return fn(*operands, *sample.params)

    def function(self, sample: Sample) -> tuple[Callable[..., Any], list[EagerTensor]]:
        """The operation as a function of its tracked operands, and their values."""
        at = self.tracked(sample)
        fixed = [handle(x) for x in sample.operands]

        def f(*moving: Any) -> Any:
            operands = list(fixed)
            for i, x in zip(at, moving, strict=True):
                operands[i] = x
            return self.apply(sample, operands)

        return f, [fixed[i] for i in at]


def arrays_of(result: Any) -> list[Array]:
    many = isinstance(result, tuple | list)
    return [np.asarray(y) for y in (result if many else (result,))]


def as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


@contextmanager
def at(name: str, sample: Sample) -> Iterator[None]:
    """A failure inside names the sample."""
    try:
        yield
    except Exception as error:
        error.add_note(f"operation `{name}`, sample `{sample.label}`")
        raise


# ---- handles with the layout of an array ---------------------------------------------


def handle(array: Array) -> EagerTensor:
    """A constant with the values and the strides of `array`.

    A view becomes a second record on a root that holds what its base holds, which is
    how the package itself makes views.
    """
    if array.flags.c_contiguous or array.base is None:
        aval = aval_of(array.shape, array.dtype, CPU)
        return EagerTensor(transfer(array, aval, "sample"), None, -1, None)
    base = array.base
    if not (isinstance(base, np.ndarray) and base.flags.c_contiguous):
        base = np.ascontiguousarray(array)
        return handle(base)
    root = transfer(base, aval_of(base.shape, base.dtype, CPU), "sample")
    offset = address(array) - address(base)
    seen = np.ndarray(array.shape, array.dtype, root.array, offset, array.strides)
    record = root.derive(seen, aval_of(array.shape, array.dtype, CPU))
    return EagerTensor(record, None, -1, None)


def address(array: Array) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


def numpy_of(tensor: Any) -> Array:
    """The value, copied: memory of dropped values is used again."""
    return np.array(memory_of(tensor))


def memory_of(tensor: Any) -> Array:
    """The value's memory itself, read without borrowing it."""
    array: Array = tensor._record.array
    return array
