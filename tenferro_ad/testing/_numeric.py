"""The numbers behind `check_grads`: difference quotients on the host, and failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import optree

from ..engine import as_tensor
from ..errors import DTypeError, PromiseError

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]

NAMESPACE: Final = "tenferro_ad"


class GradientCheckError(PromiseError, AssertionError):
    """Two computations of one derivative (or value) differ.

    Attributes:
        index: Position in the array, or None where a whole direction was compared.
        expected: The reference: a central difference, or the other mode's number.
        seen: What the derivative rule gave.
        tolerance: Largest difference that would have passed.
    """

    index: tuple[int, ...] | None = None
    tolerance: float = 0.0

    _fix = (
        "correct the derivative rule; where the function has a kink or a singularity "
        "near the point, check at another point, or pass `eps` and `rtol`"
    )


# ---- arithmetic on the host


def difference(
    f: Function, point: list[Any], tangents: list[Array], eps: float
) -> list[Array]:
    """(f(x + h t) - f(x - h t)) / 2h for a step h that fits the size of the point."""
    size = max([1.0, *(largest(host(x)) for x in point)])
    h = eps * size / max([1.0, *(largest(t) for t in tangents)])
    # A power of two: `h * t` and the division by `2 h` add no rounding of their own.
    h = float(2.0 ** np.round(np.log2(h)))
    sides = []
    for sign in (1, -1):
        moved = [
            as_tensor((host(x) + sign * h * t).astype(x.dtype, copy=False))
            for x, t in zip(point, tangents, strict=True)
        ]
        sides.append([host(y) for y in flat(f(*moved))])
    return [_quotient(a, b, 2 * h) for a, b in zip(*sides, strict=True)]


# Infinities on both sides are a finding, not a warning of NumPy.
@np.errstate(invalid="ignore", over="ignore")
def _quotient(a: Array, b: Array, step: float) -> Array:
    return (a - b) / step


def random_direction(x: Any, rng: np.random.Generator) -> Array:
    v: Array = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        v = v + 1j * rng.standard_normal(x.shape)
    return np.asarray(v, x.dtype)


def only(direction: Array, where: Array) -> Array:
    part = np.zeros_like(direction)
    part.flat[where] = direction.flat[where]
    return part


def pair(a: Array, b: Array) -> float:
    """Re <a, b>: the real inner product, complex numbers being pairs of reals."""
    wide = np.complex128 if a.dtype.kind == "c" or b.dtype.kind == "c" else np.float64
    return float(np.vdot(a.astype(wide), b.astype(wide)).real)


def largest(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0.0))


def host(x: Any) -> Array:
    """A copy of the value for the check's own arithmetic, made outside any ledger."""
    with x.value() as guard:
        return np.array(guard.numpy())


def tensors(arrays: Sequence[Array]) -> tuple[Any, ...]:
    return tuple(as_tensor(a) for a in arrays)


def flat(out: Any) -> list[Any]:
    """The outputs as tensors that can carry a derivative."""
    leaves = [as_tensor(y) for y in optree.tree_leaves(out, namespace=NAMESPACE)]
    for k, y in enumerate(leaves):
        if y.dtype.kind not in "fc":
            raise DTypeError(
                operation="check_grads",
                argument=f"f (output {k})",
                found=f"dtype {y.dtype}, which carries no derivative",
                fix="return real or complex tensors only",
            )
    return leaves


def like(out: Any, weights: list[Array]) -> Any:
    """The weights in the structure of the output."""
    _, tree = optree.tree_flatten(out, namespace=NAMESPACE)
    return optree.tree_unflatten(tree, list(tensors(weights)))


# ---- failure


def same_twice(first: list[Any], second: list[Any], over: str) -> None:
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        x, y = host(a), host(b)
        if not np.array_equal(x, y, equal_nan=True):
            at = _worst(x, y)
            fail(
                f"output {k}",
                at,
                (y[at], x[at], 0.0),
                "second call",
                "first call",
                over,
            )


@np.errstate(invalid="ignore", over="ignore")
def agree(
    name: str,
    seen: Array,
    wanted: Array,
    allowed: float,
    what: str,
    ref: str,
    over: str,
) -> None:
    if seen.size and not np.all(np.abs(seen - wanted) <= allowed):
        at = _worst(seen, wanted)
        fail(name, at, (seen[at], wanted[at], allowed), what, ref, over)


@np.errstate(invalid="ignore", over="ignore")
def _worst(a: Array, b: Array) -> tuple[int, ...]:
    gap = np.nan_to_num(np.abs(a - b), nan=np.inf)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))


@np.errstate(invalid="ignore", over="ignore")
def fail(
    name: str,
    index: tuple[int, ...] | None,
    numbers: tuple[Any, Any, float],
    what: str,
    reference: str,
    over: str,
) -> None:
    seen, wanted, allowed = numbers
    place = "along a random direction" if index is None else f"at index {index}"
    level = f" (of the function's {over})" if over else ""
    raise GradientCheckError(
        operation="check_grads",
        argument=name,
        found=(
            f"{place}{level}, {what} gives {seen:.9g} and {reference} {wanted:.9g}; "
            f"they differ by {abs(seen - wanted):.3g}, allowed is {allowed:.3g}"
        ),
        index=index,
        seen=seen,
        expected=wanted,
        tolerance=allowed,
    )
