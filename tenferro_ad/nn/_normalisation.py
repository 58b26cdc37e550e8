"""Normalisations composed of public functions, and dropout with an explicit key.

Nothing here keeps state: running statistics and keys come in as arguments.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tenferro_ad as ta
from tenferro_ad import random

from ._arguments import number, together
from ._precision import in_single, rounded


def rms_norm(
    x: Any,
    weight: Any = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float | None = None,
) -> ta.EagerTensor:
    """`x` divided by the root of its mean square along `axis`.

    Args:
        x: real or complex values.
        weight: a factor that broadcasts against `x`, or None.
        axis: what is normalised; one axis or several.
        eps: added to the mean square; None means the spacing of the dtype at 1.

    Raises:
        IndexRangeError: an axis out of range. ShapeError: `weight` does not fit.

    Cost: allocates a few values of the size of `x`.

    Source: B. Zhang, R. Sennrich, arXiv:1910.07467.
    """
    given = ta.asarray(x)
    x = in_single(given)
    squares = ta.mean(ta.square(ta.abs(x)), axis=axis, keepdims=True)
    shift = float(ta.finfo(given.dtype).eps) if eps is None else eps
    y: ta.EagerTensor = x * ta.rsqrt(squares + shift)
    return rounded(y if weight is None else y * weight, given, weight)


def _channels(operation: str, x: ta.EagerTensor, v: Any) -> ta.EagerTensor:
    """A value for each channel, to broadcast against `x`."""
    _, v = together(x, v)
    if v.shape != (x.shape[1],):
        raise ta.errors.ShapeError(
            operation=operation,
            argument="parameters",
            found=f"shape {v.shape} for {x.shape[1]} channels",
            fix="pass one number for each channel",
        )
    return ta.reshape(v, (1, x.shape[1]) + (1,) * (x.ndim - 2))


def _batched(operation: str, x: Any) -> ta.EagerTensor:
    found: ta.EagerTensor = ta.asarray(x)
    if found.ndim < 2:
        raise ta.errors.ShapeError(
            operation=operation,
            argument="x",
            found=f"shape {found.shape}",
            fix="pass at least two axes: (batch, channels, *spatial)",
        )
    return found


def batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    *,
    training: bool = False,
    eps: float = 1e-5,
) -> ta.EagerTensor:
    """`x` shifted and scaled channel by channel, by statistics of the batch or running.

    Args:
        x: (batch, channels, *spatial).
        running_mean, running_var: for each channel, used unless `training`. They are
            not changed: `batch_statistics` gives the next ones.
        weight, bias: factor and summand for each channel, or None.
        training: use mean and variance of this batch.
        eps: added to the variance.

    Raises:
        ShapeError: operands do not fit.
        InvalidArgumentError: running statistics are needed but missing.

    Cost: allocates a few values of the size of `x`.

    Source: S. Ioffe, C. Szegedy, arXiv:1502.03167.
    """
    given = _batched("batch_norm", x)
    x = in_single(given)
    if training:
        axes = (0, *range(2, x.ndim))
        mean = ta.mean(x, axis=axes, keepdims=True)
        centred: ta.EagerTensor = x - mean
        variance = ta.mean(ta.square(ta.abs(centred)), axis=axes, keepdims=True)
    elif running_mean is None or running_var is None:
        raise ta.errors.InvalidArgumentError(
            operation="batch_norm",
            argument="running_mean, running_var",
            found="None",
            fix="pass both, or `training=True`",
        )
    else:
        centred = x - _channels("batch_norm", x, running_mean)
        variance = _channels("batch_norm", x, running_var)
    y: ta.EagerTensor = centred * ta.rsqrt(variance + eps)
    y = y if weight is None else y * _channels("batch_norm", x, weight)
    y = y if bias is None else y + _channels("batch_norm", x, bias)
    statistics = () if training else (running_mean, running_var)
    return rounded(y, given, weight, bias, *statistics)


def batch_statistics(
    x: Any, running_mean: Any, running_var: Any, *, momentum: float = 0.1
) -> tuple[ta.EagerTensor, ta.EagerTensor]:
    """The running mean and variance after this batch.

    Args:
        x: (batch, channels, *spatial).
        running_mean, running_var: for each channel, so far.
        momentum: the weight of this batch, whose variance is the unbiased estimate.

    Raises:
        ShapeError: operands do not fit.

    Cost: two passes over `x`; allocates a few values for each channel.
    """
    x = _batched("batch_statistics", ta.stop_gradient(ta.asarray(x)))
    axes = (0, *range(2, x.ndim))
    mean = ta.mean(x, axis=axes)
    variance = ta.var(x, axis=axes, correction=1.0)
    old = 1.0 - number("batch_statistics", "momentum", momentum, 0.0, 1.0)
    _, was_mean, was_variance = together(mean, running_mean, running_var)
    return was_mean * old + mean * momentum, was_variance * old + variance * momentum


def group_norm(
    x: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    *,
    eps: float = 1e-5,
) -> ta.EagerTensor:
    """`x` shifted and scaled to mean 0 and variance 1 in each group of channels.

    Args:
        x: (batch, channels, *spatial).
        num_groups: divides the number of channels.
        weight, bias: factor and summand for each channel, or None.
        eps: added to the variance.

    Raises:
        ShapeError: operands do not fit.
        InvalidArgumentError: the channels do not divide into the groups.

    Cost: allocates a few values of the size of `x`.

    Source: Y. Wu, K. He, arXiv:1803.08494.
    """
    given = _batched("group_norm", x)
    x = in_single(given)
    batch, channels, *spatial = x.shape
    if channels % number("group_norm", "num_groups", num_groups, 1, kind=int):
        raise ta.errors.InvalidArgumentError(
            operation="group_norm",
            argument="num_groups",
            found=f"{num_groups} groups of {channels} channels",
            fix="pass a divisor of the number of channels",
        )
    width = channels // num_groups * math.prod(spatial)
    grouped = ta.reshape(x, (batch, num_groups, width))
    centred: ta.EagerTensor = grouped - ta.mean(grouped, axis=2, keepdims=True)
    variance = ta.mean(ta.square(ta.abs(centred)), axis=2, keepdims=True)
    y = ta.reshape(centred * ta.rsqrt(variance + eps), x.shape)
    y = y if weight is None else y * _channels("group_norm", x, weight)
    y = y if bias is None else y + _channels("group_norm", x, bias)
    return rounded(y, given, weight, bias)


def dropout(
    x: Any, /, key: Any, *, rate: float = 0.5, training: bool = True
) -> ta.EagerTensor:
    """`x` with elements set to zero at random and the others scaled to the same mean.

    Args:
        x: the values.
        key: of `ta.random`; the same key drops the same elements, in a checkpoint that
            runs again too.
        rate: the probability of zero, from 0 to 1.
        training: False gives `x` itself.

    Raises:
        InvalidArgumentError: `rate` out of range. ShapeError: not a key.

    Cost: allocates the random numbers, the mask (retained) and two values of the size
        of `x`; nothing if `rate` is 0 or without `training`.

    Source: N. Srivastava et al., J. Mach. Learn. Res. 15 (2014).
    """
    y: ta.EagerTensor = ta.asarray(x)
    rate = number("dropout", "rate", rate, 0.0, 1.0)
    if not training or rate == 0.0:
        return y
    kept = random.bernoulli(key, 1.0 - rate, y.shape)
    return ta.where(kept, y * (1.0 / (1.0 - rate) if rate < 1.0 else 0.0), 0.0)
