"""Checks that users run on their own functions and rules.

`check_grads` compares derivatives with central differences along random directions, so
it costs a few evaluations for each argument and not one for each element. Steps and
tolerances follow from the precision of the arguments (float32 is compared as float32).
A failure says where it is, what both sides are and how far apart they may be.

With machine precision u, a central difference of step h errs by about h**2 from the
function's third derivative and by u / h from rounding; h = u**(1/3) balances both, and
leaves about u**(2/3) (Nocedal and Wright, Numerical Optimization, section 8.1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import optree

from .engine import EagerTensor, as_tensor, jvp, vjp
from .errors import DTypeError, IntegerInputError, InvalidArgumentError, PromiseError

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Any]

_NAMESPACE: Final = "tenferro_ad"
_MODES: Final = ("fwd", "rev")
# Room for third derivatives and sums over many elements, in units of u**(2/3).
_ROOM: Final = 100.0
# Forward and reverse mode agree to rounding: no difference quotient comes between them.
_ROUNDING: Final = 1e4


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


@dataclass(frozen=True, slots=True)
class _Settings:
    """Step and tolerances for one check."""

    eps: float
    rtol: float
    atol: float
    rounding: float
    modes: tuple[str, ...]
    rng: np.random.Generator


def check_grads(
    f: Function,
    args: Sequence[Any],
    order: int = 2,
    modes: Sequence[str] = _MODES,
    *,
    argnums: int | Sequence[int] | None = None,
    eps: float | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    seed: int = 0,
) -> None:
    """Check the derivatives of `f` at `args` up to `order`, in every mix of the modes.

    Args:
        f: takes `args`, gives a pytree of real or complex tensors. Complex numbers are
            checked as pairs of reals: Re(conj(cotangent) * tangent).
        args: the point, a sequence of pytrees of tensors, arrays or Python floats.
        order: highest order of derivative; 2 checks fwd over fwd, rev over fwd, ...
        modes: "fwd" (`jvp`), "rev" (`vjp`) or both.
        argnums: positions to differentiate; all by default. The others are passed on.
        eps: step of the central difference, for values of size 1.
        rtol: allowed difference, relative to the larger of the two numbers.
        atol: allowed difference at 0; by default `rtol`.
        seed: of the random directions; the same seed gives the same check.

    Raises:
        GradientCheckError: an `AssertionError` with argument, index, both numbers and
            tolerance.
        IntegerInputError: an argument to differentiate is an integer or boolean.
        DTypeError: an output is.
        InvalidArgumentError: no or unknown modes, or a wrong position.

    Cost: about four evaluations of `f` for each array among the arguments, mode and
        order below; `modes ** (order - 1)` checks in all.
    """
    args = tuple(args)
    unknown = [mode for mode in modes if mode not in _MODES]
    if unknown or not modes:
        raise InvalidArgumentError(
            operation="check_grads",
            argument="modes",
            found=f"{list(modes)}",
            fix='use "fwd", "rev" or both',
        )
    positions = _positions(argnums, len(args))
    point = _Point(args, positions)
    precision = max(float(np.finfo(x.dtype).eps) for x in point.leaves)
    default = _ROOM * precision ** (2 / 3)
    rtol = default if rtol is None else rtol
    settings = _Settings(
        eps=precision ** (1 / 3) if eps is None else eps,
        rtol=rtol,
        atol=rtol if atol is None else atol,
        rounding=_ROUNDING * precision,
        modes=tuple(mode for mode in _MODES if mode in modes),
        rng=np.random.default_rng(seed),
    )

    def of_leaves(*leaves: Any) -> Any:
        return f(*point.rebuild(leaves))

    _check(of_leaves, point.leaves, point.names, order, settings, "")


def _positions(argnums: int | Sequence[int] | None, n: int) -> tuple[int, ...]:
    if argnums is None:
        return tuple(range(n))
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    wrong = [k for k in wanted if not -n <= k < n]
    if wrong or not wanted:
        raise InvalidArgumentError(
            operation="check_grads",
            argument="argnums",
            found=f"{wanted} for {n} arguments",
            fix=f"name positions from 0 to {n - 1}",
        )
    return tuple(k % n for k in wanted)


class _Point:
    """The arguments as a flat list of tensors to differentiate, and back."""

    def __init__(self, args: tuple[Any, ...], positions: tuple[int, ...]) -> None:
        self.args, self.positions = args, positions
        self.trees = []
        self.leaves: list[EagerTensor] = []
        self.names: list[str] = []
        for k in positions:
            found, tree = optree.tree_flatten(args[k], namespace=_NAMESPACE)
            leaves = [as_tensor(x) for x in found]
            for path, x in zip(tree.paths(), leaves, strict=True):
                name = f"args[{k}]" + "".join(f"[{part!r}]" for part in path)
                if x.dtype.kind not in "fc":
                    raise IntegerInputError(
                        operation="check_grads",
                        argument=name,
                        found=f"dtype {x.dtype}",
                        fix="convert it to a float, or leave it out of `argnums`",
                    )
                self.names.append(name)
            self.leaves += leaves
            self.trees.append(tree)
        if not self.leaves:
            raise InvalidArgumentError(
                operation="check_grads",
                argument="args",
                found="no array to differentiate",
                fix="pass at least one",
            )

    def rebuild(self, leaves: Sequence[Any]) -> list[Any]:
        args = list(self.args)
        ends = list(accumulate(tree.num_leaves for tree in self.trees))
        for k, tree, end in zip(self.positions, self.trees, ends, strict=True):
            part = leaves[end - tree.num_leaves : end]
            args[k] = optree.tree_unflatten(tree, part)
        return args


# ---- one order: every mode against central differences, then the modes' derivatives


def _check(
    f: Function,
    point: list[EagerTensor],
    names: list[str],
    order: int,
    how: _Settings,
    over: str,
) -> None:
    outs = _flat(f(*point))
    _same_twice(outs, _flat(f(*point)), over)
    tangents = [_direction(x, how.rng) for x in point]
    weights = [_direction(y, how.rng) for y in outs]
    if "fwd" in how.modes:
        _forward(f, point, tangents, how, over)
    if "rev" in how.modes:
        _reverse(f, point, names, tangents, weights, how, over)
    if len(how.modes) == 2:
        _adjoint(f, point, tangents, weights, how, over)
    if order <= 1:
        return
    for mode in how.modes:

        def forward(*xs: Any) -> Any:
            return _flat(jvp(f, xs, _tensors(tangents))[1])

        def reverse(*xs: Any) -> Any:
            out, pull = vjp(f, *xs)
            return list(pull(_like(out, weights)))

        step = forward if mode == "fwd" else reverse
        _check(
            step, point, names, order - 1, how, f"{mode} of {over}" if over else mode
        )


def _forward(
    f: Function, point: list[Any], tangents: list[Array], how: _Settings, over: str
) -> None:
    """`jvp` along one random direction, element by element."""
    seen = [_host(t) for t in _flat(jvp(f, tuple(point), _tensors(tangents))[1])]
    wanted = _difference(f, point, tangents, how.eps)
    for k, (a, b) in enumerate(zip(seen, wanted, strict=True)):
        # A difference quotient errs by the size of the values around it, and so the
        # tolerance follows the largest number, not each one.
        allowed = how.atol + how.rtol * _largest(b)
        _agree(f"output {k}", a, b, allowed, "jvp", "central difference", over)


def _reverse(
    f: Function,
    point: list[Any],
    names: list[str],
    tangents: list[Array],
    weights: list[Array],
    how: _Settings,
    over: str,
) -> None:
    """`vjp` of random weights, along one random direction for each argument."""
    out, pull = vjp(f, *point)
    cotangents = [_host(ct) for ct in pull(_like(out, weights))]
    for k, name in enumerate(names):
        probe = _Probe(f, point, k, cotangents[k], weights, how)
        if probe.agrees(tangents[k]):
            continue
        # Halve the direction towards the larger disagreement, down to one element.
        part = tangents[k]
        where = np.arange(part.size)
        while len(where) > 1:
            halves = np.array_split(where, 2)
            where = max(halves, key=lambda half: probe.gap(_only(part, half)))
        unit = np.zeros_like(part)
        unit.flat[where] = 1
        single = not probe.agrees(unit)
        if not single and part.dtype.kind == "c":
            unit.flat[where] = 1j
            single = not probe.agrees(unit)
        seen, wanted = probe.both(unit if single else part)
        index = np.unravel_index(int(where[0]), part.shape)
        _fail(
            name,
            tuple(int(i) for i in index) if single else None,
            (seen, wanted, probe.allowed(wanted, unit if single else part)),
            "vjp",
            "central difference",
            over,
        )


@dataclass(frozen=True, slots=True)
class _Probe:
    """Reverse mode against a central difference, along directions of one argument."""

    f: Function
    point: list[Any]
    position: int
    cotangent: Array
    weights: list[Array]
    how: _Settings

    def both(self, direction: Array) -> tuple[float, float]:
        tangents = [np.zeros(x.shape, x.dtype) for x in self.point]
        tangents[self.position] = direction
        moved = _difference(self.f, self.point, tangents, self.how.eps)
        wanted = sum(map(_pair, self.weights, moved))
        return _pair(self.cotangent, direction), float(wanted)

    def allowed(self, wanted: float, direction: Array) -> float:
        """Sums of many terms err by the size of the terms, not of their sum."""
        scale = np.sqrt(max(sum(w.size for w in self.weights), 1))
        size = max(abs(wanted), float(np.linalg.norm(self.cotangent)))
        return float(self.how.atol * scale + self.how.rtol * size)

    def gap(self, direction: Array) -> float:
        seen, wanted = self.both(direction)
        return float(np.nan_to_num(abs(seen - wanted), nan=np.inf))

    def agrees(self, direction: Array) -> bool:
        seen, wanted = self.both(direction)
        return abs(seen - wanted) <= self.allowed(wanted, direction)


def _adjoint(
    f: Function,
    point: list[Any],
    tangents: list[Array],
    weights: list[Array],
    how: _Settings,
    over: str,
) -> None:
    """<weights, jvp(tangents)> equals <vjp(weights), tangents>, to rounding."""
    pushed = _flat(jvp(f, tuple(point), _tensors(tangents))[1])
    out, pull = vjp(f, *point)
    pulled = [_host(ct) for ct in pull(_like(out, weights))]
    wanted = [_pair(w, _host(t)) for w, t in zip(weights, pushed, strict=True)]
    seen = [_pair(ct, t) for ct, t in zip(pulled, tangents, strict=True)]
    size = [
        np.linalg.norm(w) * np.linalg.norm(_host(t))
        for w, t in zip(weights, pushed, strict=True)
    ]
    size += [
        np.linalg.norm(c) * np.linalg.norm(t)
        for c, t in zip(pulled, tangents, strict=True)
    ]
    allowed = how.rounding * max(1.0, *(float(n) for n in size))
    if not abs(sum(seen) - sum(wanted)) <= allowed:
        numbers = (float(sum(seen)), float(sum(wanted)), allowed)
        _fail("args", None, numbers, "<vjp(weights), tangents>", "<weights, jvp>", over)


# ---- arithmetic on the host


def _difference(
    f: Function, point: list[Any], tangents: list[Array], eps: float
) -> list[Array]:
    """(f(x + h t) - f(x - h t)) / 2h for a step h that fits the size of the point."""
    size = max([1.0, *(_largest(_host(x)) for x in point)])
    h = eps * size / max([1.0, *(_largest(t) for t in tangents)])
    # A power of two: `h * t` and the division by `2 h` add no rounding of their own.
    h = float(2.0 ** np.round(np.log2(h)))
    sides = []
    for sign in (1, -1):
        moved = [
            as_tensor((_host(x) + sign * h * t).astype(x.dtype, copy=False))
            for x, t in zip(point, tangents, strict=True)
        ]
        sides.append([_host(y) for y in _flat(f(*moved))])
    return [_quotient(a, b, 2 * h) for a, b in zip(*sides, strict=True)]


# Infinities on both sides are a finding, not a warning of NumPy.
@np.errstate(invalid="ignore", over="ignore")
def _quotient(a: Array, b: Array, step: float) -> Array:
    return (a - b) / step


def _direction(x: Any, rng: np.random.Generator) -> Array:
    v: Array = rng.standard_normal(x.shape)
    if x.dtype.kind == "c":
        v = v + 1j * rng.standard_normal(x.shape)
    return np.asarray(v, x.dtype)


def _only(direction: Array, where: Array) -> Array:
    part = np.zeros_like(direction)
    part.flat[where] = direction.flat[where]
    return part


def _pair(a: Array, b: Array) -> float:
    """Re <a, b>: the real inner product, complex numbers being pairs of reals."""
    wide = np.complex128 if a.dtype.kind == "c" or b.dtype.kind == "c" else np.float64
    return float(np.vdot(a.astype(wide), b.astype(wide)).real)


def _largest(x: Array) -> float:
    return float(np.max(np.abs(x), initial=0.0))


def _host(x: Any) -> Array:
    """A copy of the value for the check's own arithmetic, made outside any ledger."""
    with x.value() as guard:
        return np.array(guard.numpy())


def _tensors(arrays: list[Array]) -> tuple[Any, ...]:
    return tuple(as_tensor(a) for a in arrays)


def _flat(out: Any) -> list[Any]:
    """The outputs as tensors that can carry a derivative."""
    leaves = [as_tensor(y) for y in optree.tree_leaves(out, namespace=_NAMESPACE)]
    for k, y in enumerate(leaves):
        if y.dtype.kind not in "fc":
            raise DTypeError(
                operation="check_grads",
                argument=f"f (output {k})",
                found=f"dtype {y.dtype}, which carries no derivative",
                fix="return real or complex tensors only",
            )
    return leaves


def _like(out: Any, weights: list[Array]) -> Any:
    """The weights in the structure of the output."""
    _, tree = optree.tree_flatten(out, namespace=_NAMESPACE)
    return optree.tree_unflatten(tree, list(_tensors(weights)))


# ---- failure


def _same_twice(first: list[Any], second: list[Any], over: str) -> None:
    for k, (a, b) in enumerate(zip(first, second, strict=True)):
        x, y = _host(a), _host(b)
        if not np.array_equal(x, y, equal_nan=True):
            at = _worst(x, y)
            _fail(
                f"output {k}",
                at,
                (y[at], x[at], 0.0),
                "second call",
                "first call",
                over,
            )


@np.errstate(invalid="ignore", over="ignore")
def _agree(
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
        _fail(name, at, (seen[at], wanted[at], allowed), what, ref, over)


@np.errstate(invalid="ignore", over="ignore")
def _worst(a: Array, b: Array) -> tuple[int, ...]:
    gap = np.nan_to_num(np.abs(a - b), nan=np.inf)
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(gap)), gap.shape))


@np.errstate(invalid="ignore", over="ignore")
def _fail(
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


__all__ = ["GradientCheckError", "check_grads"]
