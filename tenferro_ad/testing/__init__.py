"""Checks that users run on their own functions, rules and operations.

`check_grads` compares derivatives with central differences along random directions, so
it costs a few evaluations for each argument and not one for each element. Steps and
tolerances follow from the precision of the arguments (float32 is compared as float32,
float16 as float16).
A failure says where it is, what both sides are and how far apart they may be.

With machine precision u, a central difference of step h errs by about h**2 from the
function's third derivative and by u / h from rounding; h = u**(1/3) balances both, and
leaves about u**(2/3) (Nocedal and Wright, Numerical Optimization, section 8.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final

import numpy as np
import optree

from ..engine import EagerTensor, as_tensor, jvp, numbers_of, vjp
from ..errors import IntegerInputError, InvalidArgumentError, a_kind
from ._agree import OperationCheckError
from ._check_op import check_op
from ._numeric import (
    NAMESPACE,
    Array,
    Function,
    GradientCheckError,
    agree,
    difference,
    fail,
    flat,
    host,
    largest,
    like,
    only,
    pair,
    random_direction,
    same_twice,
    tensors,
)
from ._samples import Sample

_MODES: Final = ("fwd", "rev")
# Room for third derivatives and sums over many elements, in units of u**(2/3), as far
# as it leaves something to check: a unit of halves is 0.01.
_ROOM: Final = 100.0
_MOST: Final = 0.03
# Forward and reverse mode agree to rounding: no difference quotient comes between them.
_ROUNDING: Final = 1e4


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
        InvalidArgumentError: no or unknown modes, a wrong position, or arguments that
            are no sequence.

    Cost: about four evaluations of `f` for each array among the arguments, mode and
        order below; `modes ** (order - 1)` checks in all.
    """
    if not isinstance(args, tuple | list):
        raise InvalidArgumentError(
            operation="check_grads",
            argument="args",
            found=a_kind(args),
            fix="pass a tuple with one entry for each argument of `f`",
        )
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
    default = min(_ROOM * precision ** (2 / 3), _MOST)
    rtol = default if rtol is None else rtol
    settings = _Settings(
        eps=precision ** (1 / 3) if eps is None else eps,
        rtol=rtol,
        atol=rtol if atol is None else atol,
        rounding=min(_ROUNDING * precision, _MOST),
        modes=tuple(mode for mode in _MODES if mode in modes),
        rng=np.random.default_rng(seed),
    )

    def of_leaves(*leaves: Any) -> Any:
        return f(*point.rebuild(leaves))

    _check(of_leaves, point.leaves, point.names, order, settings, "")


def _positions(argnums: int | Sequence[int] | None, n: int) -> tuple[int, ...]:
    if argnums is None:
        return tuple(range(n))
    wanted = numbers_of(argnums, "check_grads", "argnums")
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
            found, tree = optree.tree_flatten(args[k], namespace=NAMESPACE)
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
    outs = flat(f(*point))
    same_twice(outs, flat(f(*point)), over)
    tangents = [random_direction(x, how.rng) for x in point]
    weights = [random_direction(y, how.rng) for y in outs]
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
            return flat(jvp(f, xs, tensors(tangents))[1])

        def reverse(*xs: Any) -> Any:
            out, pull = vjp(f, *xs)
            return list(pull(like(out, weights)))

        step = forward if mode == "fwd" else reverse
        _check(
            step, point, names, order - 1, how, f"{mode} of {over}" if over else mode
        )


def _forward(
    f: Function, point: list[Any], tangents: list[Array], how: _Settings, over: str
) -> None:
    """`jvp` along one random direction, element by element."""
    seen = [host(t) for t in flat(jvp(f, tuple(point), tensors(tangents))[1])]
    wanted = difference(f, point, tangents, how.eps)
    for k, (a, b) in enumerate(zip(seen, wanted, strict=True)):
        # A difference quotient errs by the size of the values around it, and so the
        # tolerance follows the largest number, not each one.
        allowed = how.atol + how.rtol * largest(b)
        agree(f"output {k}", a, b, allowed, "jvp", "central difference", over)


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
    cotangents = [host(ct) for ct in pull(like(out, weights))]
    for k, name in enumerate(names):
        probe = _Probe(f, point, k, cotangents[k], weights, how)
        if probe.agrees(tangents[k]):
            continue
        # Halve the direction towards the larger disagreement, down to one element.
        part = tangents[k]
        where = np.arange(part.size)
        while len(where) > 1:
            halves = np.array_split(where, 2)
            where = max(halves, key=lambda half: probe.gap(only(part, half)))
        unit = np.zeros_like(part)
        unit.flat[where] = 1
        single = not probe.agrees(unit)
        if not single and part.dtype.kind == "c":
            unit.flat[where] = 1j
            single = not probe.agrees(unit)
        seen, wanted = probe.both(unit if single else part)
        index = np.unravel_index(int(where[0]), part.shape)
        fail(
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
        moved = difference(self.f, self.point, tangents, self.how.eps)
        wanted = sum(map(pair, self.weights, moved))
        return pair(self.cotangent, direction), float(wanted)

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
    pushed = flat(jvp(f, tuple(point), tensors(tangents))[1])
    out, pull = vjp(f, *point)
    pulled = [host(ct) for ct in pull(like(out, weights))]
    wanted = [pair(w, host(t)) for w, t in zip(weights, pushed, strict=True)]
    seen = [pair(ct, t) for ct, t in zip(pulled, tangents, strict=True)]
    size = [
        np.linalg.norm(w) * np.linalg.norm(host(t))
        for w, t in zip(weights, pushed, strict=True)
    ]
    size += [
        np.linalg.norm(c) * np.linalg.norm(t)
        for c, t in zip(pulled, tangents, strict=True)
    ]
    allowed = how.rounding * max(1.0, *(float(n) for n in size))
    if not abs(sum(seen) - sum(wanted)) <= allowed:
        numbers = (float(sum(seen)), float(sum(wanted)), allowed)
        fail("args", None, numbers, "<vjp(weights), tangents>", "<weights, jvp>", over)


__all__ = [
    "GradientCheckError",
    "OperationCheckError",
    "Sample",
    "check_grads",
    "check_op",
]
