"""Checks of an operation's value and derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..engine import HANDLES, as_tensor, grad, hvp, jvp, vjp
from ..runtime import plan_of
from ._agree import (
    close,
    differences,
    directions,
    ensure,
    is_double,
    like,
    weights_for,
)
from ._numeric import Array, pair, tensors
from ._samples import Row, as_tuple, at, handle, numpy_of


def check_values(row: Row) -> None:
    """The value is the reference's; so are shape and dtype, and the shape rule foretold
    both."""
    prop = "value"
    for sample in row.samples:
        with at(row.name, sample):
            operands = [handle(x) for x in sample.operands]
            wanted = row.expected(sample)
            outs = as_tuple(row.apply(sample, operands))
            avals = tuple(x.aval for x in operands)
            inferred = plan_of(row.op, avals, sample.params).call.outs
            counts = (len(outs), len(wanted), len(inferred))
            ensure(len(set(counts)) == 1, row, "outputs", f"counts of {counts}")
            for y, reference, aval in zip(outs, wanted, inferred, strict=True):
                value = numpy_of(y)
                for what in ("dtype", "shape"):
                    seen = [getattr(x, what) for x in (value, reference, aval, y)]
                    ensure(
                        all(x == seen[0] for x in seen),
                        row,
                        what,
                        f"{seen} of value, reference, shape rule and tensor",
                    )
                tolerance = 5e-6 if value.dtype.char in "fF" else 1e-12
                tolerance = 2e-3 if value.dtype.char == "e" else tolerance
                close(row, prop, "the value", value, reference, tolerance)


def check_forward(row: Row) -> None:
    """Forward mode is the derivative of the reference, by central differences."""
    for sample in row.differentiable():
        with at(row.name, sample):
            f, primals = row.function(sample)
            positions = row.tracked(sample)
            ts = directions(sample, [sample.operands[i] for i in positions])
            _, pushed = jvp(f, primals, tensors(ts))
            moved = differences(row, sample, dict(zip(positions, ts, strict=True)))
            tolerance = 1e-7 if is_double(row, sample) else 1e-4
            for t, wanted, y in zip(
                as_tuple(pushed), moved, row.expected(sample), strict=True
            ):
                ensure(t.dtype == y.dtype, row, "forward mode", f"dtype {t.dtype}")
                tol = 5e-2 if t.dtype.char == "e" else tolerance
                close(row, "forward mode", "the tangent", numpy_of(t), wanted, tol)


def check_reverse(row: Row) -> None:
    """Reverse mode is the derivative of the reference, by central differences along one
    direction for each argument."""
    for sample in row.differentiable():
        with at(row.name, sample):
            f, primals = row.function(sample)
            positions = row.tracked(sample)
            points = [sample.operands[i] for i in positions]
            ts = directions(sample, points)
            out, pull = vjp(f, *primals)
            ws = weights_for(row, sample, as_tuple(out))
            pulled = [numpy_of(g) for g in pull(like(out, ws))]
            tolerance = 1e-6 if is_double(row, sample) else 1e-2
            for i, g, t, x in zip(positions, pulled, ts, points, strict=True):
                _fits(row, g, x)
                moved = differences(row, sample, {i: t})
                wanted = sum(map(pair, ws, moved))
                what = f"the gradient of `{row.argument(i)}`"
                close(row, "reverse mode", what, pair(g, t), wanted, tolerance)


def _fits(row: Row, g: Array, x: Array) -> None:
    ensure(
        (g.shape, g.dtype) == (x.shape, x.dtype),
        row,
        "reverse mode",
        f"a gradient {g.dtype}{list(g.shape)} for an argument {x.dtype}{list(x.shape)}",
    )


def check_adjoint(row: Row) -> None:
    """<w, J t> = <J^H w, t> in the real pairing; gradients fit their arguments."""
    prop = "reverse mode is the adjoint of forward mode"
    for sample in row.differentiable():
        with at(row.name, sample):
            f, primals = row.function(sample)
            points = [sample.operands[i] for i in row.tracked(sample)]
            ts = directions(sample, points)
            out, pull = vjp(f, *primals)
            ws = weights_for(row, sample, as_tuple(out))
            pulled = [numpy_of(g) for g in pull(like(out, ws))]
            for g, x in zip(pulled, points, strict=True):
                _fits(row, g, x)
            _, pushed = jvp(f, primals, tensors(ts))
            forward = [numpy_of(t) for t in as_tuple(pushed)]
            seen = sum(map(pair, pulled, ts))
            wanted = sum(map(pair, ws, forward))
            size = float(sum(_sizes(ws, forward)) + sum(_sizes(pulled, ts)))
            rounding = 1e-12 if is_double(row, sample) else 1e-5
            rounding = 1e-2 if any(x.dtype.char == "e" for x in points) else rounding
            ensure(
                abs(seen - wanted) <= rounding * max(1.0, size),
                row,
                prop,
                f"<J^H w, t> = {seen:.9g} and <w, J t> = {wanted:.9g}",
                seen=seen,
                wanted=wanted,
            )


def _sizes(a: list[Array], b: list[Array]) -> Iterator[float]:
    for x, y in zip(a, b, strict=True):
        yield float(np.linalg.norm(x) * np.linalg.norm(y))


# ---- second derivatives --------------------------------------------------------------


def energy(f: Callable[..., Any], ws: list[Array]) -> Callable[..., Any]:
    """A real number with a Hessian even for linear `f`: Re <w, f> + |f|^2 / 2."""
    F = HANDLES

    def phi(*xs: Any) -> Any:
        total = None
        for y, w in zip(as_tuple(f(*xs)), ws, strict=True):
            weight = as_tensor(w)
            term = F.add(F.mul(F.conj(weight), y), F.mul(F.mul(y, F.conj(y)), 0.5))
            if y.dtype.kind == "c":
                term = F.real(term)
            term = F.sum(term, tuple(range(len(term.shape))), False)
            total = term if total is None else F.add(total, term)
        return total

    return phi


def slope(g: Callable[..., Any], ts: list[Array]) -> Callable[..., Any]:
    """The derivative of the gradient's function along a direction."""

    def along(*xs: Any) -> Any:
        total = None
        for gi, t in zip(g(*xs), ts, strict=True):
            term = HANDLES.mul(HANDLES.conj(as_tensor(t)), gi)
            term = HANDLES.real(term) if term.dtype.kind == "c" else term
            if term.dtype != np.float64:
                term = HANDLES.astype(term, np.dtype(np.float64))
            term = HANDLES.sum(term, tuple(range(len(term.shape))), False)
            total = term if total is None else HANDLES.add(total, term)
        return total

    return along


def check_second(row: Row, *, forward: bool = True) -> None:
    """Reverse over reverse = forward over reverse (if the operation has forward mode)
    = differences of gradients."""
    prop = "second derivatives"
    for sample in row.differentiable():
        if sample.heavy:
            continue
        with at(row.name, sample):
            f, primals = row.function(sample)
            points = [sample.operands[i] for i in row.tracked(sample)]
            numbers = tuple(range(len(points)))
            ts = directions(sample, points)
            phi = energy(f, weights_for(row, sample, as_tuple(f(*primals))))
            g = grad(phi, numbers)
            reverse = grad(slope(g, ts), numbers)(*primals)
            double = is_double(row, sample)
            if forward:
                pushed = as_tuple(hvp(phi, primals, tensors(ts))[1])
                tol = 1e-9 if double else 1e-3
                for a, b in zip(pushed, reverse, strict=True):
                    what = "forward over reverse mode"
                    close(row, prop, what, numpy_of(a), numpy_of(b), tol)
            if double:
                moved = _moved_gradients(g, points, ts)
                for a, wanted in zip(reverse, moved, strict=True):
                    what = "reverse over reverse mode"
                    close(row, prop, what, numpy_of(a), wanted, 1e-6)


def _moved_gradients(
    g: Callable[..., Any], points: list[Array], ts: list[Array], h: float = 2.0**-17
) -> list[Array]:
    sides = []
    for sign in (h, -h):
        moved = [
            handle(np.asarray(x + sign * t)) for x, t in zip(points, ts, strict=True)
        ]
        sides.append([numpy_of(y) for y in g(*moved)])
    return [(up - down) / (2 * h) for up, down in zip(*sides, strict=True)]


__all__ = [
    "check_adjoint",
    "check_forward",
    "check_reverse",
    "check_second",
    "check_values",
]
