"""Counts and choices: integers, which carry no derivative."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import errors
from ..engine import (
    HANDLES,
    EagerTensor,
    as_tensor,
    axis_of,
    dtype_of,
    int_of,
    shape_of,
    stop_gradient,
    take,
)
from ..errors import named
from ..ops import span
from ._continuous import gumbel
from ._draws import Shape, bits, permutation, randint
from ._keys import key_of, split
from ._parameters import parameters

_INT64 = np.dtype(np.int64)
_DOUBLE = np.dtype(np.float64)


def _uniform(name: str, key: Any, shape: tuple[int, ...]) -> EagerTensor:
    return HANDLES.random_uniform(key_of(name, key), shape, _DOUBLE)  # type: ignore[no-any-return]


# ---- counts --------------------------------------------------------------------------


@named()
def poisson(key: Any, mean: Any, shape: Shape | None = None) -> EagerTensor:
    """Counts k with probability mean^k exp(-mean) / k!, as int64.

    Args:
        key: two words.
        mean: numbers from 0 on that broadcast to `shape`.
        shape: of the result; None means that of `mean`.

    Raises:
        ShapeError: not a key, or `mean` does not broadcast.
        InvalidArgumentError: not a shape. DTypeError: complex numbers.

    Cost: two allocations of the result's size, and an inversion of the distribution
        function for each count; never tracked.
    """
    where, _, (mean,) = parameters("poisson", key, shape, np.float64, mean=mean)
    return HANDLES.poisson_quantile(_uniform("poisson", key, where), mean)  # type: ignore[no-any-return]


@named()
def binomial(key: Any, n: Any, p: Any, shape: Shape | None = None) -> EagerTensor:
    """How many of `n` independent events of probability `p` happen, as int64.

    Args:
        key: two words.
        n: numbers of events. p: probabilities. Both broadcast to `shape`.
        shape: of the result; None means that of the parameters.

    Raises:
        ShapeError: not a key, or parameters do not broadcast.
        InvalidArgumentError: not a shape. DTypeError: complex numbers.

    Cost: as `poisson`.
    """
    where, _, (n, p) = parameters("binomial", key, shape, np.float64, n=n, p=p)
    return HANDLES.binomial_quantile(_uniform("binomial", key, where), n, p)  # type: ignore[no-any-return]


@named()
def geometric(key: Any, p: Any, shape: Shape | None = None) -> EagerTensor:
    """How many independent events of probability `p` until one happens, as int64.

    Args:
        key: two words.
        p: probabilities above 0 that broadcast to `shape`.
        shape: of the result; None means that of `p`.

    Raises:
        ShapeError: not a key, or `p` does not broadcast.
        InvalidArgumentError: not a shape. DTypeError: complex numbers.

    Cost: a few allocations of the result's size; never tracked.
    """
    where, _, (p,) = parameters("geometric", key, shape, np.float64, p=p)
    u = _uniform("geometric", key, where)
    logs = [HANDLES.log1p(HANDLES.neg(v)) for v in (u, stop_gradient(p))]
    found = HANDLES.astype(HANDLES.floor(HANDLES.div(*logs)), _INT64)
    return HANDLES.add(found, 1)  # type: ignore[no-any-return]


@named()
def multinomial(key: Any, n: Any, p: Any, shape: Shape = ()) -> EagerTensor:
    """How often each of several outcomes comes in `n` trials, as int64.

    Args:
        key: two words.
        n: the number of trials, a number.
        p: probabilities of the outcomes along the last axis.
        shape: how many draws; the result has the shape (*shape, *p.shape).

    Raises:
        ShapeError: not a key, or a 0-d `p`. InvalidArgumentError: not a shape.
        DTypeError: complex numbers.

    Cost: one binomial draw for each outcome, and a few allocations; never tracked.
    """
    common, _, (p,) = parameters("multinomial", key, None, np.float64, p=p)
    if not common:
        raise errors.ShapeError(
            operation="multinomial",
            argument="p",
            found="a 0-d value",
            fix="pass a probability for each outcome, along the last axis",
        )
    p = stop_gradient(p)
    *lead, outcomes = common
    where = (*shape_of("multinomial", shape), *lead)
    left = HANDLES.full(where, _INT64, int_of("multinomial", "n", n, 0), p.device)
    rest = HANDLES.sum(p, (p.ndim - 1,), False)
    found = []
    for k, part in enumerate(split(key, outcomes)):
        whole = [span(0, m, 1) for m in lead]
        share = HANDLES.slice(p, (*whole, k))
        chance = HANDLES.select(
            HANDLES.less(share, rest), HANDLES.div(share, rest), 1.0
        )
        count = left if k == outcomes - 1 else binomial(part, left, chance)
        left, rest = HANDLES.sub(left, count), HANDLES.sub(rest, share)
        found.append(HANDLES.reshape(count, (*where, 1)))
    if not found:
        return HANDLES.full((*where, 0), _INT64, 0, p.device)  # type: ignore[no-any-return]
    return HANDLES.concat(found, len(where))  # type: ignore[no-any-return]


# ---- choices -------------------------------------------------------------------------


@named()
def rademacher(key: Any, shape: Shape = (), *, dtype: Any = np.int64) -> EagerTensor:
    """-1 or 1, equally likely.

    Args:
        key: two words.
        shape: of the result.
        dtype: any that holds -1.

    Raises:
        ShapeError: not a key. InvalidArgumentError: not a shape.
        DTypeError: booleans or unsigned integers.

    Cost: a few allocations of the result's size; never tracked.
    """
    wanted = dtype_of("rademacher", dtype)
    if wanted.kind not in "ifc":
        raise errors.DTypeError(
            operation="rademacher",
            argument="dtype",
            found=f"dtype {wanted}",
            fix="pass a signed integer, floating or complex dtype",
        )
    one = HANDLES.astype(HANDLES.right_shift(bits(key, shape), 31), wanted)
    return HANDLES.sub(HANDLES.mul(one, 2), 1)  # type: ignore[no-any-return]


@named(x="logits")
def categorical(
    key: Any, logits: Any, shape: Shape = (), *, axis: int = -1
) -> EagerTensor:
    """Positions along `axis` with the probabilities of the softmax of `logits`.

    Args:
        key: two words.
        logits: logarithms of probabilities, up to a constant.
        shape: how many draws; comes before the shape of `logits` without `axis`.
        axis: which axis runs over the outcomes.

    Raises:
        ShapeError: not a key. InvalidArgumentError: not a shape, or no outcomes.
        IndexRangeError: not an axis of `logits`. DTypeError: complex numbers.

    Cost: a few allocations of the size of all draws times the outcomes; never tracked.

    Source: the largest of the logits with Gumbel noise (E. J. Gumbel, 1954).
    """
    _, wanted, (scores,) = parameters("categorical", key, None, None, logits=logits)
    at = axis_of("categorical", axis, scores.ndim)
    lead = shape_of("categorical", shape)
    noise = gumbel(key, (*lead, *scores.shape), dtype=wanted)
    noisy = HANDLES.add(stop_gradient(scores), noise)
    return HANDLES.argmax(noisy, len(lead) + at, False)  # type: ignore[no-any-return]


@named(x="a")
def choice(
    key: Any,
    a: Any,
    shape: Shape = (),
    *,
    replace: bool = True,
    p: Any = None,
    axis: int = 0,
) -> EagerTensor:
    """Slices of `a` along an axis, or integers below a number, chosen at random.

    Args:
        key: two words.
        a: a tensor with at least one axis, or a Python int.
        shape: how many; takes the place of the axis.
        replace: the same slice may be chosen again.
        p: a weight for each slice (they need not add up to 1); None means equal ones.
        axis: which axis of `a`.

    Raises:
        ShapeError: not a key, or not one weight for each slice.
        InvalidArgumentError: nothing to choose from; more than there is without
            `replace`. IndexRangeError: not an axis of `a`. DTypeError: complex weights.

    Cost: one draw and one index for each choice (without `replace`, or with weights,
        for each slice too); the slices are allocated and carry derivatives of `a`.
    """
    where = shape_of("choice", shape)
    count = math.prod(where)
    if isinstance(a, int):
        n, value, at = int_of("choice", "a", a, 0), None, 0
    else:
        value = as_tensor(a)
        at = axis_of("choice", axis, value.ndim)
        n = value.shape[at]
    if count and (n == 0 or (not replace and count > n)):
        raise errors.InvalidArgumentError(
            operation="choice",
            argument="shape",
            found=f"{count} choices among {n}",
            fix="choose fewer, or with `replace=True`",
        )
    weights = None if p is None else _weights(key, p, n)
    index = _chosen(key, n, count, replace, weights)
    index = HANDLES.reshape(index, where)
    return index if value is None else take(value, index, axis=at)


def _weights(key: Any, p: Any, n: int) -> EagerTensor:
    _, _, (weights,) = parameters("choice", key, None, np.float64, p=p)
    if weights.shape != (n,):
        raise errors.ShapeError(
            operation="choice",
            argument="p",
            found=f"shape {weights.shape} for {n} slices",
            fix="pass one weight for each",
        )
    return stop_gradient(weights)  # type: ignore[no-any-return]


def _chosen(
    key: Any, n: int, count: int, replace: bool, weights: EagerTensor | None
) -> EagerTensor:
    """Positions, in one row."""
    out: Any
    if not count:
        out = HANDLES.full((0,), _INT64, 0, key_of("choice", key).device)
    elif replace and weights is None:
        out = randint(key, (count,), 0, n)
    elif replace and weights is not None:
        edges = HANDLES.cumulative_sum(weights, 0, False)
        total = HANDLES.slice(edges, (n - 1,))
        drawn = HANDLES.mul(_uniform("choice", key, (count,)), total)
        out = HANDLES.minimum(HANDLES.searchsorted(edges, drawn, "right"), n - 1)
    else:
        if weights is None:
            order = permutation(key, n)
        else:
            noisy = HANDLES.add(HANDLES.log(weights), gumbel(key, (n,)))
            order = HANDLES.argsort(noisy, 0, True, True)
        out = HANDLES.slice(order, (span(0, count, 1),))
    return out  # type: ignore[no-any-return]
