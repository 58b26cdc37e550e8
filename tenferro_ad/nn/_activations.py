"""Activations composed of public functions; kinks follow PyTorch."""

from __future__ import annotations

from typing import Any

import tenferro_ad as ta


def elu(x: Any, /, *, alpha: float = 1.0) -> ta.EagerTensor:
    """`x` where positive, else alpha (exp(x) - 1); slope `alpha` at 0.

    Args:
        x: real values.
        alpha: minus the limit for very negative `x`.

    Raises:
        DTypeError: complex operands.

    Cost: allocates the mask and three values of the size of `x`.

    Source: D.-A. Clevert, T. Unterthiner, S. Hochreiter, arXiv:1511.07289.
    """
    x = ta.asarray(x)
    positive = ta.greater(x, 0)
    # The exponential never sees a positive number, which it could not hold.
    below = ta.expm1(ta.where(positive, 0.0, x))
    return ta.where(positive, x, below if alpha == 1.0 else below * alpha)


def leaky_relu(x: Any, /, *, negative_slope: float = 0.01) -> ta.EagerTensor:
    """`x` where positive, else `negative_slope` times `x`; that slope at 0.

    Args:
        x: real values.
        negative_slope: the slope below and at 0.

    Raises:
        DTypeError: complex operands.

    Cost: allocates the mask and two values of the size of `x`.
    """
    x = ta.asarray(x)
    return ta.where(ta.greater(x, 0), x, x * negative_slope)
