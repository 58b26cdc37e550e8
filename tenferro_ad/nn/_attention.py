"""Attention composed of public functions."""

from __future__ import annotations

import math
from typing import Any

import tenferro_ad as ta

from ._arguments import together


def _allowed(queries: int, keys: int, mask: Any, is_causal: bool, device: Any) -> Any:
    """Booleans that say which key a query may see, or None for all."""
    if not is_causal:
        return mask
    rows = ta.expand_dims(ta.arange(queries, device=device), axis=1)
    earlier = ta.less_equal(ta.arange(keys, device=device), rows)
    return earlier if mask is None else ta.logical_and(mask, earlier)


def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    mask: Any = None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
) -> ta.EagerTensor:
    """softmax(scale query key^T) value, over the keys that each query may see.

    Args:
        query: (..., queries, width).
        key: (..., keys, width).
        value: (..., keys, channels).
        mask: broadcasts to (..., queries, keys). Booleans say what may be seen; real
            numbers are added to the scores.
        is_causal: query i sees keys 0 to i only.
        scale: None means 1 / sqrt(width).

    Raises:
        ShapeError: operands do not fit.

    A query that may see nothing (by booleans) gives zeros, and has slope 0.

    Cost: allocates the scaled `query`, scores and weights of shape (..., queries,
        keys), and the result. Numbers that are added take one more value of that shape,
        booleans and `is_causal` two, and the latter the booleans besides.

    Source: A. Vaswani et al., arXiv:1706.03762.
    """
    query, key, value = together(query, key, value)
    if query.ndim < 2 or key.ndim < 2:
        raise ta.errors.ShapeError(
            operation="scaled_dot_product_attention",
            argument="query, key",
            found=f"shapes {query.shape} and {key.shape}",
            fix="pass at least two axes: (queries, width) and (keys, width)",
        )
    width = max(query.shape[-1], 1)  # without any, the scores are 0
    factor = 1.0 / math.sqrt(width) if scale is None else scale
    scores = ta.matmul(query * factor, ta.matrix_transpose(key))
    mask = None if mask is None else together(query, mask)[1]
    if mask is not None and not ta.isdtype(mask.dtype, "bool"):
        scores, mask = scores + mask, None
    seen = _allowed(query.shape[-2], key.shape[-2], mask, is_causal, query.device)
    if seen is None:
        return ta.matmul(ta.softmax(scores, axis=-1), value)
    least = float(ta.finfo(scores.dtype).min)
    weights = ta.softmax(ta.where(seen, scores, least), axis=-1)
    return ta.matmul(ta.where(seen, weights, 0.0), value)
