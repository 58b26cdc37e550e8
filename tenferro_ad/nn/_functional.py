"""Network functions composed of public ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tenferro_ad as ta

from ._arguments import together
from ._precision import in_single, rounded


@ta.errors.named()
def linear(x: Any, w: Any, b: Any = None) -> ta.EagerTensor:
    """x w^T + b.

    Args:
        x: (..., in features).
        w: (out features, in features).
        b: (out features,), or None.

    Raises:
        ShapeError: operands do not fit.

    Cost: allocates the product, and the sum if there is `b`.
    """
    x, w = together(x, w)
    if x.ndim == 0 or w.ndim != 2 or x.shape[-1] != w.shape[1]:
        raise ta.errors.ShapeError(
            operation="linear",
            argument="w",
            found=f"shape {w.shape} for `x` of shape {x.shape}",
            fix="give it the shape (out features, in features), where the last axis of "
            "`x` has the in features",
        )
    y = ta.matmul(x, ta.permute_dims(w, (1, 0)))
    return y if b is None else y + b


@ta.errors.named()
def layer_norm(
    x: Any,
    weight: Any = None,
    bias: Any = None,
    *,
    axis: int | Sequence[int] = -1,
    eps: float = 1e-5,
) -> ta.EagerTensor:
    """`x` shifted and scaled to mean 0 and variance 1 along `axis`.

    Args:
        x: real or complex values.
        weight, bias: factor and summand, broadcast against `x`; or None.
        axis: what is normalised; one axis or several.
        eps: added to the variance.

    Raises:
        IndexRangeError: an axis out of range.
        ShapeError: `weight` or `bias` does not fit.

    Cost: allocates a few values of the size of `x`.

    Source: J. L. Ba, J. R. Kiros, G. E. Hinton, arXiv:1607.06450.
    """
    given = ta.asarray(x)
    x = in_single(given)
    centred: ta.EagerTensor = x - ta.mean(x, axis=axis, keepdims=True)
    variance = ta.mean(ta.square(ta.abs(centred)), axis=axis, keepdims=True)
    y: ta.EagerTensor = centred * ta.rsqrt(variance + eps)
    y = y if weight is None else y * weight
    y = y if bias is None else y + bias
    return rounded(y, given, weight, bias)
