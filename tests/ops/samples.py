"""Samples for every row of the operation table: where the suite evaluates it.

A `Row` says what a row should do, independently of the package: a NumPy or SciPy
function for its value, the names that the reverse rule of each argument keeps, whether
its outputs are views, and operands of several dtypes and layouts, away from kinks
(`test_kinks.py` has those). `test_table.py` and `tests/reference/test_jax.py` do the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from tenferro_ad import EagerTensor
from tenferro_ad._aval import aval_of
from tenferro_ad.backends import CPU
from tenferro_ad.engine import HANDLES
from tenferro_ad.ops import OPS
from tenferro_ad.storage import transfer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Sample:
    """One point: operands with their layout, and parameters.

    Attributes:
        heavy: large; values and first derivatives only, and no comparison with JAX.
        fresh, copies: allocations and explicit duplicates, where not the row's.
        kept: what the reverse rule of each operand keeps, where not the row's.
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
    """What a row of the table should do.

    Attributes:
        reference: `reference(*operands, *params)` by NumPy or SciPy.
        keeps: for each differentiable argument what its reverse rule keeps, as names
            separated by blanks; arguments that are not named are never tracked here.
        keeps_complex: the same for arguments that are complex, if that differs.
        kept: for a row with a joint rule, the names that it keeps as a tape shows them,
            by sample and tracked positions.
        view: outputs are views, nothing is allocated.
        copies: explicit duplicates that the row makes.
        reruns: backward runs a body of the row again.
        smooth: replaces `reference` in difference quotients.
        special: points that only the test of kept values visits, where a rule reads
            what makes no difference elsewhere.
    """

    name: str
    reference: Callable[..., Any]
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
    def op(self) -> Any:
        return OPS[self.name]

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
        with np.errstate(all="ignore"):
            return arrays_of(self.reference(*sample.operands, *sample.params))

    def apply(self, sample: Sample, operands: Sequence[Any]) -> Any:
        """The row on handles, through the public door."""
        fn = HANDLES[self.op]
        if self.op.variadic:
            return fn(tuple(operands), *sample.params)
        return fn(*operands, *sample.params)

    def function(self, sample: Sample) -> tuple[Callable[..., Any], list[EagerTensor]]:
        """The row as a function of its tracked operands, and their values."""
        at = self.tracked(sample)
        fixed = [handle(x) for x in sample.operands]

        def f(*moving: Any) -> Any:
            operands = list(fixed)
            for i, x in zip(at, moving, strict=True):
                operands[i] = x
            return self.apply(sample, operands)

        return f, [fixed[i] for i in at]


ROWS: dict[str, Row] = {}


def row(
    name: str, reference: Callable[..., Any], samples: Sequence[Sample], **facts: Any
) -> None:
    """Enter the samples of one row."""
    assert name not in ROWS, name
    ROWS[name] = Row(name, reference, tuple(samples), **facts)


def load() -> dict[str, Row]:
    """All rows: those of every module `samples_*.py` beside this one."""
    for path in sorted(Path(__file__).parent.glob("samples_*.py")):
        import_module(f"{__package__}.{path.stem}")
    return ROWS


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
        error.add_note(f"row `{name}`, sample `{sample.label}`")
        raise


# ---- handles with the layout of an array ---------------------------------------------


def handle(array: Array) -> EagerTensor:
    """A constant with the values and the strides of `array`.

    A view becomes a second record on a root that holds what its base holds, which is
    how the package itself makes views.
    """
    if array.flags.c_contiguous:
        aval = aval_of(array.shape, array.dtype, CPU)
        return EagerTensor(transfer(array, aval, "sample"), None, -1, None)
    base = array.base
    assert base is not None
    assert base.flags.c_contiguous
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


# ---- drawing -------------------------------------------------------------------------

Draw = Callable[[np.random.Generator, tuple[int, ...]], Array]


def between(low: float, high: float) -> Draw:
    return lambda rng, shape: rng.uniform(low, high, shape)


def outside(gap: float, far: float = 2.5) -> Draw:
    """Of either sign, at least `gap` from zero."""
    return lambda rng, shape: (
        rng.choice([-1.0, 1.0], shape) * rng.uniform(gap, far, shape)
    )


def off_integers(low: int, high: int) -> Draw:
    """Not near an integer or a half."""
    return lambda rng, shape: (
        rng.integers(low, high, shape)
        + rng.choice([0.1, 0.6], shape)
        + rng.uniform(0.05, 0.3, shape)
    )


def spread(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Distinct numbers with a gap between any two, in random order."""
    n = int(np.prod(shape))
    return np.asarray(rng.permutation(n) / max(n, 1) * 4 - 2 + 0.01).reshape(shape)


class Drawer:
    """Arrays of one row, the same on every run."""

    def __init__(self, name: str, real: Draw, complex_: Draw | None = None) -> None:
        self.rng = np.random.default_rng(list(name.encode()))
        self.real = real
        self.complex = complex_ or between(0.4, 1.6)
        self.ints = (-4, 5)

    def __call__(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return np.asarray(self.rng.integers(0, 2, shape), dtype)
        if dtype.kind in "iu":
            low, high = self.ints
            low = max(low, 0) if dtype.kind == "u" else low
            return np.asarray(self.rng.integers(low, high, shape), dtype)
        if dtype.kind == "c":
            re = self.complex(self.rng, shape)
            im = self.rng.choice([-1.0, 1.0], shape) * self.complex(self.rng, shape)
            return np.asarray(re + 0.7j * im, dtype)
        return np.asarray(self.real(self.rng, shape), dtype)

    def flipped(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A view with a negative step along the first axis and gaps along the last."""
        if len(shape) == 1:
            return self((3 * shape[0],), dtype)[::-3]
        base = self((2 * shape[0], *shape[1:-1], 3 * shape[-1]), dtype)
        return base[::-2, ..., 1::3]

    def transposed(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A view with the axes in reverse order in memory."""
        return self(shape[::-1], dtype).transpose()

    def repeated(self, shape: tuple[int, ...], dtype: Any = np.float64) -> Array:
        """A view with stride 0 along the first axis."""
        return np.broadcast_to(self(shape[1:], dtype), shape)
