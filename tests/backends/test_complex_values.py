"""Complex functions at special values: infinities, NaN, signed zeros, and parts whose
squares overflow or vanish, against NumPy.

NumPy's answers are those of C99 (annex G). `docs/devices.md` says what differs:
quotients are exact up to rounding of their larger part, powers up to that of their
logarithm.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from tenferro_ad.ops import OPS
from tests.backends.printing_support import PrintingLane, compute

Array = np.ndarray[Any, Any]
FUNCTIONS = "abs sqrt exp log sin cos tan sinh cosh tanh asin acos atan asinh acosh "
FUNCTIONS += "atanh reciprocal"
IN_NUMPY = {f"a{n}": f"arc{n}" for n in "sin cos tan sinh cosh tanh".split()}
C8, C16 = np.dtype(np.complex64), np.dtype(np.complex128)
every_dtype = pytest.mark.parametrize("dtype", [C8, C16], ids=str)


def limits_of(dtype: np.dtype[Any]) -> Any:
    return np.finfo(dtype)


def grid(dtype: np.dtype[Any], count: int = 16) -> Array:
    """All pairs of special parts; fewer of them leave out those that come last."""
    limits = limits_of(dtype)
    most, least = float(limits.max), float(limits.tiny)
    large = 100.0 if dtype == C8 else 720.0  # of which exp and cosh overflow
    parts = [0.0, -0.0, 1.0, -3.0, np.inf, -np.inf, np.nan, most / 2, -most]
    parts += [4 * least, 3 * most**0.5, -least, -1.0, least**0.5 / 3, large, 0.5]
    x = np.array(parts[:count], limits.dtype)
    made = np.empty((count, count), dtype)
    made.real, made.imag = x[:, None], x
    return made.ravel()


def unlike(seen: Array, wanted: Array, rtol: float, least: float) -> Any:
    """Where real numbers differ: another kind of value, sign, or size."""
    size = np.abs(seen - wanted)
    close_by = (size <= rtol * np.abs(wanted) + 4 * least) | (seen == wanted)
    same_sign = np.signbit(seen) == np.signbit(wanted)
    return ~np.where(np.isnan(wanted), np.isnan(seen), close_by & same_sign)


@every_dtype
@pytest.mark.parametrize("name", FUNCTIONS.split())
def test_special_values(printing_lane: PrintingLane, name: str, dtype: Any) -> None:
    lane = printing_lane
    if not lane.has(dtype):
        return
    z = grid(dtype, 9 if lane.is_slow else 16)
    (seen,) = compute(lane, OPS[name], [z])
    if not lane.computes:
        return
    with np.errstate(all="ignore"):
        wanted = getattr(np, IN_NUMPY.get(name, name))(z)
        rtol = 5e-6 if dtype == C8 else 1e-12
        least = float(limits_of(dtype).tiny)
        wrong = unlike(seen.real, wanted.real, rtol, least)
        if seen.dtype.kind == "c":
            wrong |= unlike(seen.imag, wanted.imag, rtol, least)
    assert not wrong.any(), [*zip(z[wrong], wanted[wrong], seen[wrong], strict=True)]


@every_dtype
def test_roots_and_logarithms_between_the_special_values(
    printing_lane: PrintingLane, dtype: Any
) -> None:
    """Parts of all sizes, each beside each: no formula cancels or overflows."""
    lane = printing_lane
    if not lane.has(dtype):
        return
    top = 37.0 if dtype == C8 else 307.0
    sizes = 10 ** np.linspace(-top, top, 7 if lane.is_slow else 41)
    sizes = np.concatenate([sizes, -sizes]).astype(limits_of(dtype).dtype)
    z = np.empty((sizes.size, sizes.size), dtype)
    z.real, z.imag = sizes[:, None], sizes
    for name in "sqrt asin acos atan asinh acosh atanh".split():
        (seen,) = compute(lane, OPS[name], [z])
        if not lane.computes:
            continue
        with np.errstate(all="ignore"):
            wanted = getattr(np, IN_NUMPY.get(name, name))(z.astype(C16))
            least, rtol = float(limits_of(dtype).tiny), 5e-6 if dtype == C8 else 1e-12
            wrong = unlike(seen.real, wanted.real, rtol, least)
            wrong |= unlike(seen.imag, wanted.imag, rtol, least)
        assert not wrong.any(), (name, z[wrong][:4], wanted[wrong][:4], seen[wrong][:4])


def of_pairs(
    lane: PrintingLane, name: str, dtype: Any
) -> tuple[Array, Array, Array] | None:
    """Special values beside each other, and what the lane makes of them; None where it
    computes nothing of this dtype."""
    if not lane.has(dtype):
        return None
    z = grid(dtype, 5 if lane.is_slow else 12)
    a, b = map(np.ascontiguousarray, np.meshgrid(z, z))
    (seen,) = compute(lane, OPS[name], [a, b])
    return (a, b, seen) if lane.computes else None


def kinds(x: Array) -> Any:
    """0 for NaN, 1 for infinity, 2 for numbers."""
    return np.where(np.isnan(x), 0, np.where(np.isinf(x), 1, 2))


@every_dtype
def test_quotients_differ_by_rounding_of_the_larger_part(
    printing_lane: PrintingLane, dtype: Any
) -> None:
    found = of_pairs(printing_lane, "div", dtype)
    if found is None:
        return
    a, b, seen = found
    limits = limits_of(dtype)
    least = float(limits.tiny)
    with np.errstate(all="ignore"):
        wanted = a / b
        larger = np.maximum(np.abs(wanted.real), np.abs(wanted.imag))
        for x, y in ((seen.real, wanted.real), (seen.imag, wanted.imag)):
            rounding = 8 * float(limits.eps) * larger + 4 * least
            good = (x == y) | (np.isnan(x) & np.isnan(y)) | (np.abs(x - y) <= rounding)
            assert good.all(), (a[~good][:4], b[~good][:4], y[~good][:4], x[~good][:4])


@every_dtype
def test_powers_differ_by_rounding_of_the_logarithm(
    printing_lane: PrintingLane, dtype: Any
) -> None:
    found = of_pairs(printing_lane, "pow", dtype)
    if found is None:
        return
    a, b, seen = found
    limits = limits_of(dtype)
    eps, least = float(limits.eps), float(limits.tiny)
    with np.errstate(all="ignore"):
        wanted = a**b
        size = np.abs(b.astype(C16)) * np.abs(np.log(a.astype(C16)))
        lost = 64 * eps * (1 + size)
        gap = np.abs(seen.astype(C16) - wanted) / np.abs(wanted.astype(C16))
        known = np.isfinite(gap) & (lost < 0.01)
        assert known.sum() > (20 if printing_lane.is_slow else 1000)
        off = known & (np.abs(wanted) > 4 * least) & (gap > lost)
        assert not off.any(), (a[off][:4], b[off][:4], wanted[off][:4], seen[off][:4])
        # Of what is NaN or infinite both say the same, but where numbers end.
        most = float(limits.max) * (1 - 1e-3)
        edge = np.isfinite(wanted) & (
            np.maximum(abs(wanted.real), abs(wanted.imag)) > most
        )
        for x, y in ((seen.real, wanted.real), (seen.imag, wanted.imag)):
            odd = (kinds(x) != kinds(y)) & ~edge
            assert not odd.any(), (a[odd][:4], b[odd][:4], y[odd][:4], x[odd][:4])
        nothing = (wanted == 0) & (np.abs(seen) > 4 * least)
        assert not nothing.any(), (a[nothing][:4], b[nothing][:4], seen[nothing][:4])


def test_the_page_says_what_differs() -> None:
    from tests.scripts import ROOT

    text = (ROOT / "docs" / "devices.md").read_text(encoding="utf-8")
    (rule,) = re.findall(r"^Complex functions.*?\n\n", text, re.M | re.DOTALL)
    for words in ("annex G", "larger", "exp(b * log(a))", "least normal", "WebGPU"):
        assert words in rule, words
