"""From calls of the table to launches of printed kernels."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

import numpy as np

from ..._aval import Aval
from ...errors import InternalError, UnsupportedError
from ...ops import (
    INDEX,
    Array,
    Call,
    Elementwise,
    ElementwiseOp,
    Equation,
    Expr,
    Kernel,
    Nest,
    Store,
    Write,
    call,
    cast,
    substitute,
)
from ._accesses import Loops, coalesce, prepare
from ._c import CudaDialect, OpenCLDialect
from ._dialects import BOOL, DOUBLE, HALF, SINGLE, Dialect, Dtype, computed
from ._functions import missing_function
from ._launch import Argument, Launch, Layout, Lowered, Slot, Strided, put_number
from ._library import Library
from ._schedule import Splitter, tiled
from ._statements import Body
from ._wgsl import WgslDialect

_NARROW: Final = np.dtype(np.int32)
_WIDE: Final = np.dtype(np.int64)
_KINDS: Final = {"x": "in", "y": "out", "s": "scratch"}


class Printer:
    """Prints the kernels of the table in one language.

    Args:
        features: what the device offers beyond the least (see the package).
    """

    dialect: ClassVar[type[Dialect]]

    def __init__(self, features: Sequence[str] = ()) -> None:
        self.features = frozenset(features)
        self._dialect = self.dialect()
        self.name = self._dialect.name
        self._found: dict[Any, str] = {}  # what is missing, by operation and dtypes

    @property
    def binds_once(self) -> bool:
        """Whether a kernel's arguments must be different buffers: operands in the
        buffer of an output say so in their layout."""
        return self._dialect.binds_once

    # -- what the lane has -------------------------------------------------------------

    def has_dtype(self, dtype: Dtype) -> bool:
        """Whether kernels can hold values of this dtype."""
        if dtype in (DOUBLE, np.dtype(np.complex128)):
            return "f64" in self.features
        return dtype.kind in "biufc" and dtype.itemsize <= 16

    def supports(self, applied: Call) -> bool:
        """Whether `lower` gives launches for this call."""
        try:
            self._check(applied)
        except UnsupportedError:
            return False
        return True

    def _check(self, applied: Call) -> None:
        """Refuse what this lane does not have.

        Raises:
            UnsupportedError: names the row, the lane and the reason.
        """
        name, kernel = applied.op.name, applied.op.kernel
        for aval in (*applied.ins, *applied.outs):
            if not self.has_dtype(aval.dtype):
                self._refuse(name, f"no dtype {aval.dtype} on `{self.name}`")
        if isinstance(kernel, Elementwise):
            if found := self._missing(applied):
                self._refuse(name, f"no function {found} on `{self.name}`")
        elif not isinstance(kernel, Write) or kernel.form is None:
            self._refuse(name, f"no kernel of this row on `{self.name}`")

    def _missing(self, applied: Call) -> str:
        """A scalar function of the expression that is not known for its dtype."""
        op, dtypes = applied.op, tuple(a.dtype for a in applied.ins)
        key = op, dtypes
        if key not in self._found:
            assert isinstance(op, ElementwiseOp)
            kinds = tuple("c" if d.kind == "c" else "r" for d in dtypes)
            self._found[key] = missing_function(
                op.expr_of(kinds),
                dict(zip(op.args, dtypes, strict=True)),
                Library(self._dialect),
            )
        return self._found[key]

    def _refuse(self, name: str, found: str) -> None:
        raise UnsupportedError(
            op=name,
            backend=self.name,
            found=found,
            fix="use another dtype or device for this operation",
        )

    # -- lowering ----------------------------------------------------------------------

    def lower(
        self,
        applied: Call,
        ins: Sequence[Layout],
        outs: Sequence[Layout],
        *,
        accumulate: bool = False,
    ) -> Lowered:
        """The launches that compute one call.

        Args:
            ins, outs: layouts of operands and outputs.
            accumulate: add the result to what the only output holds.

        Raises:
            UnsupportedError: the lane lacks the row or a dtype; nothing happened.
        Cost: prints source text; no device call. Cache the result.
        """
        self._check(applied)
        kernel = self._kernel(applied.ins, applied.outs)
        row = applied.op.kernel
        if isinstance(row, Elementwise):
            _elementwise(kernel, applied)
        else:
            assert isinstance(row, Write)
            assert row.form is not None
            row.form(kernel, applied)
        return self._finished(kernel, ins, outs, accumulate)

    def lower_copy(self, aval: Aval, source: Layout, target: Layout) -> Lowered:
        """The launch that writes the elements of one layout in another."""
        kernel = self._kernel((aval,), (aval,))
        nest, index = kernel.nest(*aval.shape)
        nest.store(kernel.outs[0], index, kernel.ins[0].at(*index))
        return self._finished(kernel, (source,), (target,), False)

    def lower_chain(
        self,
        equations: Sequence[Equation],
        inputs: Sequence[int],
        outputs: Sequence[int],
        ins: Sequence[Layout],
        outs: Sequence[Layout],
    ) -> Lowered:
        """Elementwise equations of a program as one kernel.

        Args:
            equations: rows with kernel `Elementwise`, `astype` or `broadcast_to`.
            inputs, outputs: variables that the kernel reads and writes; all outputs
                have one shape.
            ins, outs: their layouts.
        """
        avals = {
            v: a for e in equations for v, a in zip(e.ins, e.call.ins, strict=True)
        }
        made = {
            v: a for e in equations for v, a in zip(e.outs, e.call.outs, strict=True)
        }
        avals |= made
        for e in equations:
            self._check_chained(e)
        kernel = self._kernel([avals[v] for v in inputs], [avals[v] for v in outputs])
        shape = avals[outputs[0]].shape
        nest, index = kernel.nest(*shape)
        values: dict[int, Expr] = {
            v: _element(x, index) for v, x in zip(inputs, kernel.ins, strict=True)
        }
        for e in equations:
            values[e.outs[0]] = _chained(e, [values[v] for v in e.ins])
        for v, out in zip(outputs, kernel.outs, strict=True):
            if out.shape != shape:
                raise InternalError(
                    operation="lower_chain",
                    argument="outputs",
                    found=f"shapes {shape} and {out.shape}",
                    fix="print a kernel for each shape",
                )
            nest.store(out, index, values[v])
        return self._finished(kernel, ins, outs, False)

    def _check_chained(self, e: Equation) -> None:
        if e.call.op.name not in ("broadcast_to", "stop_gradient"):
            self._check(e.call)

    # -- pieces ------------------------------------------------------------------------

    def _kernel(self, ins: Sequence[Aval], outs: Sequence[Aval]) -> Kernel:
        return Kernel(
            tuple(Array(f"x{k}", a.shape, a.dtype) for k, a in enumerate(ins)),
            tuple(Array(f"y{k}", a.shape, a.dtype) for k, a in enumerate(outs)),
            DOUBLE if self.has_dtype(DOUBLE) else SINGLE,
            self.has_dtype(_WIDE),
        )

    def _finished(
        self,
        kernel: Kernel,
        ins: Sequence[Layout],
        outs: Sequence[Layout],
        accumulate: bool,
    ) -> Lowered:
        if not any(math.prod(a.shape) for a in kernel.outs):
            return Lowered(())
        layouts: dict[str, Layout] = {}
        for group, given in ((kernel.ins, ins), (kernel.outs, outs)):
            layouts |= {a.name: v for a, v in zip(group, given, strict=True)}
        for a in kernel.scratch:
            layouts[a.name] = Strided(0, contiguous(a.shape))
        index = self._index(kernel, layouts)
        nests = kernel.nests
        if accumulate:
            nests = _adding(kernel)
        arrays = {a.name: a for a in (*kernel.ins, *kernel.outs, *kernel.scratch)}
        for a, layout in zip(kernel.ins, ins, strict=True):
            if isinstance(layout, Strided) and layout.output is not None:
                arrays[a.name] = kernel.outs[layout.output]
        launches = []
        for nest in nests:
            if nest.is_background and accumulate:
                continue
            loops = prepare(nest, arrays, layouts)
            if any(loop.size == 0 for loop in loops.space):
                continue
            coalesce(loops)
            how = self._dialect
            for part in tiled(loops, *how.tile, how.least_blocks, unrolls=how.unrolls):
                split = Splitter(part, kernel.scratch, lambda d: self._stored(d, index))
                launches += [self._launch(x, index) for x in split.run()]
        scratch = tuple(
            max(1, math.prod(a.shape)) * self.itemsize(a.dtype) for a in kernel.scratch
        )
        return Lowered(tuple(launches), scratch)

    def _stored(self, dtype: Any, index: Dtype) -> Dtype:
        """What holds values of a dtype in scratch."""
        return index if dtype == INDEX else computed(np.dtype(dtype))

    def itemsize(self, dtype: Dtype) -> int:
        """Bytes of an element in memory of this lane."""
        return dtype.itemsize

    def _index(self, kernel: Kernel, layouts: Mapping[str, Layout]) -> Dtype:
        """The dtype of indices: 32 bits wherever operands and their buffers are small
        enough."""
        for a in (*kernel.ins, *kernel.outs, *kernel.scratch):
            layout = layouts[a.name]
            if not isinstance(layout, Strided):
                continue
            # Loops run over all elements, also where they lie at one place.
            if max(math.prod(a.shape), _reach(a.shape, layout)) >= 2**31:
                return _WIDE
        return _NARROW

    def _launch(self, loops: Loops, index: Dtype) -> Launch:
        body = Body(self._dialect, loops, index)
        arrays = [
            (name, array, written) for name, (array, written) in body.arrays.items()
        ]
        library = body.library.text()
        listed = [(name, array.dtype, written) for name, array, written in arrays]
        text = "\n".join([library, repr(listed), *body.lines])
        entry = "k" + hashlib.sha256(text.encode()).hexdigest()[:16]
        source = self._dialect.kernel(
            entry, listed, body.used, index, body.lines, library
        )
        params, slots = self._params(body, loops, index)
        arguments = tuple(
            Argument(_KINDS[name[0]], int(name[1:]), written)  # type: ignore[arg-type]
            for name, _, written in arrays
        )
        return Launch(
            source, entry, body.threads, self._dialect.group, arguments, params, slots
        )

    def _params(
        self, body: Body, loops: Loops, index: Dtype
    ) -> tuple[Any, tuple[Slot, ...]]:
        params = np.zeros(body.used, index)
        slots = []
        named = {word: name for name, word in body.word_of.items()}
        for word, value, dtype in body.words:
            if dtype is None:
                params[word] = value
                continue
            operand = loops.slots.get(named[word])
            slot = Slot(-1 if operand is None else operand, word, dtype)
            if operand is None:
                put_number(params, slot, _as_number(value, dtype))
            else:
                slots.append(slot)
        return params, tuple(slots)


class OpenCLPrinter(Printer):
    """OpenCL C; feature `f64` where the device has double precision."""

    dialect = OpenCLDialect


class CudaPrinter(Printer):
    """CUDA C; every device has double precision."""

    dialect = CudaDialect

    def __init__(self, features: Sequence[str] = ("f64",)) -> None:
        super().__init__(features)


class WgslPrinter(Printer):
    """WGSL; features `f16`, `f64` and `i64` where the adapter has them. `f64` needs
    `i64` as well, because its functions look at bits."""

    dialect = WgslDialect

    def has_dtype(self, dtype: Dtype) -> bool:
        if dtype == BOOL:
            return True
        if dtype == HALF:
            return "f16" in self.features
        if dtype.kind in "iu" and dtype.itemsize == 8:
            return "i64" in self.features
        if dtype in (DOUBLE, np.dtype(np.complex128)):
            return {"f64", "i64"} <= self.features
        return dtype.kind in "iufc" and dtype.itemsize in (4, 8)

    def itemsize(self, dtype: Dtype) -> int:
        return 4 if dtype == BOOL else dtype.itemsize

    def _index(self, kernel: Kernel, layouts: Mapping[str, Layout]) -> Dtype:
        found = super()._index(kernel, layouts)
        if found == _WIDE:
            self._refuse("indexing", "arrays of 2**31 elements or more")
        return found


# ---- values at an index --------------------------------------------------------------


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    return tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))


def _reach(shape: Sequence[int], layout: Strided) -> int:
    ends = [abs(s) * (n - 1) for n, s in zip(shape, layout.strides, strict=True) if n]
    return layout.offset + sum(ends)


def _element(x: Array, index: Sequence[Expr]) -> Expr:
    """The element of an operand that broadcasts."""
    own = index[len(index) - len(x.shape) :]
    return x.at(*[0 if n == 1 else i for n, i in zip(x.shape, own, strict=True)])


def _expression(applied: Call, values: Sequence[Expr]) -> Expr:
    op = applied.op
    assert isinstance(op, ElementwiseOp)
    kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in applied.ins)
    return substitute(op.expr_of(kinds), dict(zip(op.args, values, strict=True)))


def _elementwise(kernel: Kernel, applied: Call) -> None:
    nest, index = kernel.nest(*applied.out.shape)
    values = [_element(x, index) for x in kernel.ins]
    nest.store(kernel.outs[0], index, _expression(applied, values))


def _chained(e: Equation, values: Sequence[Expr]) -> Expr:
    """One equation on values, in the dtype that it states."""
    name = e.call.op.name
    if name in ("broadcast_to", "stop_gradient"):
        return values[0]
    if name == "astype":
        return cast(values[0], e.call.out.dtype)
    return cast(_expression(e.call, values), e.call.out.dtype)


def _adding(kernel: Kernel) -> list[Nest]:
    """Nests whose stores add to the output."""
    out = kernel.outs[0]

    def added(s: Any) -> Any:
        if isinstance(s, Store) and s.array is out:
            return replace(s, value=call("add", out.at(*s.index), s.value))
        if hasattr(s, "stores"):
            return replace(s, stores=tuple(map(added, s.stores)))
        return s

    for nest in kernel.nests:
        nest.body = [added(s) for s in nest.body]
    return kernel.nests


def _as_number(value: Any, dtype: Dtype) -> Any:
    if isinstance(value, str):
        return complex(value) if dtype.kind == "c" else float(value)
    return value
