"""Random equations: values, derivatives and second derivatives against NumPy and JAX.

An einsum is linear in each operand, so NumPy itself gives the exact derivatives: put a
tangent in the place of an operand, or two in the places of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import tenferro_ad as ta

jax.config.update("jax_enable_x64", True)

Array = np.ndarray[Any, Any]
SIZES = {"a": 2, "b": 3, "c": 2, "d": 1, "é": 4, "Z": 0}


@dataclass(frozen=True)
class Case:
    """Subscripts, the shapes of the operands, which are complex, and a path."""

    subscripts: str
    shapes: tuple[tuple[int, ...], ...]
    is_complex: tuple[bool, ...]
    path: tuple[tuple[int, ...], ...]

    def draw(self, seed: int) -> list[Array]:
        rng = np.random.default_rng(seed)
        found = []
        for shape, c in zip(self.shapes, self.is_complex, strict=True):
            x = rng.uniform(-1, 1, shape)
            found.append(x + 1j * rng.uniform(-1, 1, shape) if c else x)
        return found

    @property
    def dtype(self) -> Any:
        return np.complex128 if any(self.is_complex) else np.float64


@st.composite
def cases(draw: Any) -> Case:
    n = draw(st.integers(1, 4))
    ellipsis = draw(st.booleans())
    letters = draw(st.permutations(sorted(SIZES)))[: draw(st.integers(1, 5))]
    dots = draw(st.sampled_from([(), (2,), (3, 2)])) if ellipsis else ()
    terms, shapes = [], []
    for _ in range(n):
        labels = draw(st.lists(st.sampled_from(letters), max_size=4))
        shape = [SIZES[c] for c in labels]
        if ellipsis and draw(st.booleans()):
            at = draw(st.integers(0, len(labels)))
            own = [draw(st.sampled_from([1, m])) for m in dots]
            own = own[draw(st.integers(0, len(own))) :]
            shape[at:at] = own
            labels.insert(at, "...")
        terms.append("".join(labels))
        shapes.append(tuple(shape))
    text = ",".join(terms)
    if draw(st.booleans()):
        used = sorted({c for c in text if c not in ",."})
        kept = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
        if "..." in text:
            kept.insert(draw(st.integers(0, len(kept))), "...")
        text += "->" + "".join(kept)
    left, path = n, []
    while left > 1:
        size = min(left, draw(st.sampled_from([2, 2, 2, 3])))
        step = draw(st.permutations(range(left)))[:size]
        path.append(tuple(step))
        left -= size - 1
    flags = tuple(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    return Case(text, tuple(shapes), flags, tuple(path))


def numpy_einsum(case: Case, xs: list[Array]) -> Array:
    """The definition, with labels that NumPy knows."""
    text = case.subscripts.replace("é", "e")
    if "..." not in text.partition("->")[2] and "->" in text and "..." in text:
        # NumPy wants the ellipsis in the output: it comes first and is summed.
        left, _, out = text.partition("->")
        found = np.asarray(np.einsum(f"{left}->...{out}", *xs))
        return found.sum(tuple(range(found.ndim - len(out))))
    return np.asarray(np.einsum(text, *xs))


def ours(case: Case) -> Any:
    return lambda *xs: ta.einsum(case.subscripts, *xs, optimize=case.path)


def close(seen: Any, wanted: Array) -> None:
    value = np.array(seen.tolist(), wanted.dtype).reshape(seen.shape)
    assert value.shape == wanted.shape
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    assert float(np.max(np.abs(value - wanted), initial=0.0)) <= 1e-11 * scale


def pair(a: Array, b: Array) -> float:
    return float(np.sum(np.conj(a) * b).real)


def put(xs: list[Array], *changes: tuple[int, Array]) -> list[Array]:
    found = list(xs)
    for i, t in changes:
        found[i] = t
    return found


MANY = settings(
    max_examples=150, deadline=None, suppress_health_check=list(HealthCheck)
)
FEW = settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(cases())
@example(Case("aab,bc...->a", ((2, 2, 3), (3, 2, 4)), (True, False), ((0, 1),)))
def test_values_and_derivatives_are_those_of_the_definition(case: Case) -> None:
    xs, ts, ss = case.draw(1), case.draw(2), case.draw(3)
    n = len(xs)
    f = ours(case)
    value = numpy_einsum(case, xs)
    close(f(*xs), value)
    _, pushed = ta.jvp(f, xs, ts)
    slope = sum(numpy_einsum(case, put(xs, (i, ts[i]))) for i in range(n))
    close(pushed, np.asarray(slope, value.dtype))

    # <w, f(..., t, ...)> = <g, t> for every t: with the units of all operands, exactly.
    w = np.asarray(np.random.default_rng(4).uniform(-1, 1, value.shape), value.dtype)
    out, pull = ta.vjp(f, *xs)
    gs = [
        np.array(g.tolist(), x.dtype).reshape(x.shape)
        for g, x in zip(pull(ta.asarray(w)), xs, strict=True)
    ]
    del out, pull
    for i, g in enumerate(gs):
        for index in np.ndindex(xs[i].shape):
            unit = np.zeros_like(xs[i])
            unit[index] = 1.0
            wanted = pair(w, numpy_einsum(case, put(xs, (i, unit))))
            assert abs(g[index].real - wanted) <= 1e-11 * max(1.0, abs(wanted))
            if case.is_complex[i]:
                wanted = pair(w, numpy_einsum(case, put(xs, (i, 1j * unit))))
                assert abs(g[index].imag - wanted) <= 1e-11 * max(1.0, abs(wanted))

    # Second derivatives of phi = Re <w, f>: one tangent for each of two operands.
    def phi(*xs: Any) -> Any:
        y = ta.sum(f(*xs) * ta.asarray(np.conj(w)))
        return ta.real(y) if y.dtype.kind == "c" else y

    _, forward = ta.hvp(phi, xs, ts)
    forward = forward if isinstance(forward, tuple) else (forward,)
    seen = sum(
        pair(np.array(h.tolist(), s.dtype).reshape(s.shape), s)
        for h, s in zip(forward, ss, strict=True)
    )
    wanted = sum(
        pair(w, numpy_einsum(case, put(xs, (i, ts[i]), (j, ss[j]))))
        for i, j in permutations(range(n), 2)
    )
    assert abs(seen - wanted) <= 1e-10 * max(1.0, abs(wanted))


@FEW
@given(cases())
def test_values_and_derivatives_are_those_of_jax(case: Case) -> None:
    xs, ts = case.draw(1), case.draw(2)
    f = ours(case)

    def theirs(*xs: Any) -> Any:
        return jnp.einsum(case.subscripts, *[x.astype(case.dtype) for x in xs])

    def phi(*xs: Any) -> Any:
        y = theirs(*xs)
        return jnp.sum(jnp.real(y * jnp.conj(y)))

    def our_phi(*xs: Any) -> Any:
        y = f(*xs)
        return ta.sum(ta.real(y * ta.conj(y)) if y.dtype.kind == "c" else y * y)

    numbers = tuple(range(len(xs)))
    value, pushed = jax.jvp(theirs, tuple(xs), tuple(ts))
    slopes, moved = jax.jvp(jax.grad(phi, numbers), tuple(xs), tuple(ts))
    one, two = ta.jvp(f, xs, ts)
    close(one, np.asarray(value))
    close(two, np.asarray(pushed))
    first, second = ta.jvp(ta.grad(our_phi, numbers), xs, ts)
    for seen, wanted in zip((*first, *second), (*slopes, *moved), strict=True):
        close(seen, np.conj(wanted))  # JAX gives the conjugate
