"""Each row of the operation table in JAX, with the row's operands and parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special
import numpy as np
from jax import lax

JAX: dict[str, Callable[..., Any]] = {}
"""Row name to function: `fn(*operands, *params)`."""

NO_COUNTERPART: dict[str, str] = {
    "mask_indices": "the number of places is a parameter; nothing to differentiate",
}
"""Rows that are not compared with JAX, and why."""

NOT_AT: dict[tuple[str, str], str] = {
    ("erf", "complex"): "JAX has no complex erf",
    ("erfc", "complex"): "JAX has no complex erfc",
}
"""Samples (by row and kind of operand) that JAX cannot compute, and why."""

COSTLY: set[str] = set()
"""Rows of which only two samples are compared, one for each precision."""


def same(*names: str) -> None:
    """Rows that `jax.numpy` has by the same name and with the same signature."""
    for name in names:
        JAX[name] = getattr(jnp, name)


def renamed(**names: str) -> None:
    for name, theirs in names.items():
        JAX[name] = getattr(jnp, theirs)


def doubled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Integers of any width taken as float64."""

    def wide(*xs: Any) -> Any:
        return fn(*[x.astype(float) if x.dtype.kind in "biu" else x for x in xs])

    return wide


# ---- elementwise ---------------------------------------------------------------------
renamed(sub="subtract", mul="multiply", div="true_divide", neg="negative")
renamed(select="where", left_shift="left_shift", right_shift="right_shift")
same("add", "reciprocal", "square", "floor_divide", "remainder", "exp", "expm1")
same("exp2", "log", "log1p", "log2", "log10", "sqrt", "cbrt", "logaddexp", "sin", "cos")
same("tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh")
same("atanh", "hypot", "conj", "real", "imag", "abs", "sign", "angle", "equal")
same("not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and")
same("logical_or", "logical_xor", "logical_not", "isfinite", "isinf", "isnan")
same("signbit", "maximum", "minimum", "floor", "ceil", "trunc", "round", "bitwise_and")
same("bitwise_or", "bitwise_xor", "bitwise_invert", "copysign")
_FLOATING = (
    "div reciprocal exp expm1 exp2 log log1p log2 log10 sqrt cbrt logaddexp sin cos "
    "tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh hypot copysign angle"
)
for _name in _FLOATING.split():
    JAX[_name] = doubled(JAX[_name])
# JAX takes the sign of a complex number as locally constant.
JAX["sign"] = lambda x: x / jnp.abs(x) if x.dtype.kind == "c" else jnp.sign(x)


def _nextafter(x: Any, y: Any) -> Any:
    """JAX has no derivative of it: the next float follows its neighbour."""
    fixed, toward = lax.stop_gradient(x), lax.stop_gradient(y)
    return x + (jnp.nextafter(fixed, toward) - fixed)


JAX["nextafter"] = _nextafter
JAX["pow"] = jnp.power
JAX["rsqrt"] = doubled(lambda x: 1 / jnp.sqrt(x))
JAX["erf"] = doubled(special.erf)
JAX["erfc"] = doubled(special.erfc)
JAX["sigmoid"] = doubled(jax.nn.sigmoid)
JAX["relu"] = jax.nn.relu
JAX["softplus"] = doubled(jax.nn.softplus)
JAX["gelu"] = doubled(lambda x: jax.nn.gelu(x, approximate=False))
JAX["gelu_tanh"] = doubled(lambda x: jax.nn.gelu(x, approximate=True))
JAX["silu"] = doubled(jax.nn.silu)
JAX["clip"] = lambda x, lo, hi: jnp.minimum(jnp.maximum(x, lo), hi)
JAX["szmul"] = lambda x, y: jnp.where((x == 0) | (y == 0), 0, x * y)
JAX["szgate"] = lambda a, b, c: jnp.where(
    (a == 0) & ~jnp.isfinite(b), 0, c + jnp.zeros_like(a * b)
)
JAX["szfactor"] = lambda x, y: JAX["szgate"](x, y, y)
JAX["accumulate"] = lambda x: x


def _complex(x: Any, y: Any) -> Any:
    dtype = jnp.result_type(x, y)
    shape = jnp.broadcast_shapes(x.shape, y.shape)
    parts = [jnp.broadcast_to(v, shape).astype(dtype) for v in (x, y)]
    return lax.complex(*parts)


JAX["complex"] = _complex

# ---- values from parameters ----------------------------------------------------------
JAX["full"] = lambda shape, dtype, value, device: jnp.full(
    shape, complex(value) if dtype.kind == "c" else float(value), dtype
)
JAX["arange"] = lambda start, stop, step, size, dtype, device: jnp.arange(
    start, stop, step, dtype=dtype
)
JAX["linspace"] = lambda start, stop, num, endpoint, dtype, device: jnp.linspace(
    start, stop, num, endpoint=endpoint, dtype=dtype
)
JAX["eye"] = lambda rows, cols, k, dtype, device: jnp.eye(rows, cols, k, dtype)


# ---- movement ------------------------------------------------------------------------
def _astype(x: Any, dtype: Any) -> Any:
    x = x.real if x.dtype.kind == "c" and dtype.kind != "c" else x
    return x.astype(dtype)


def _slice(x: Any, key: Any) -> Any:
    return x[tuple(_native(key))]


def _native(key: Any) -> Any:
    for entry in key:
        if isinstance(entry, tuple):
            start, count, step = entry
            stop = start + count * step
            yield slice(start, stop if stop >= 0 else None, step)
        else:
            yield entry


def _place(x: Any, shape: Any, key: Any, value: Any) -> Any:
    return jnp.full(shape, value, x.dtype).at[tuple(_native(key))].set(x)


def _repeat(x: Any, reps: Any) -> Any:
    for axis, n in enumerate(reps):
        x = jnp.repeat(x, n, axis)
    return x


def _place_diagonal(x: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    places = np.arange(int(np.prod(shape))).reshape(shape)
    at = np.diagonal(places, offset, axis1, axis2).reshape(-1)
    flat = jnp.zeros(places.size, x.dtype).at[at].set(x.reshape(-1))
    return flat.reshape(shape)


JAX["astype"] = _astype
JAX["reshape"] = JAX["regroup"] = jnp.reshape
JAX["broadcast_to"] = jnp.broadcast_to
JAX["permute_dims"] = lambda x, axes: jnp.transpose(x, axes)
JAX["stop_gradient"] = lax.stop_gradient
JAX["twin"] = jnp.flip
JAX["duplicate"] = lambda x: x
JAX["slice"] = _slice
JAX["place"] = _place
JAX["roll"] = lambda x, shifts: jnp.roll(x, shifts, tuple(range(x.ndim)))
JAX["tile"] = jnp.tile
JAX["repeat"] = _repeat
JAX["tril"] = jnp.tril
JAX["triu"] = jnp.triu
JAX["diagonal"] = jnp.diagonal
JAX["place_diagonal"] = _place_diagonal
JAX["concat"] = lambda *xs: jnp.concatenate(xs[:-1], xs[-1])
JAX["split"] = lambda x, sizes, axis: tuple(
    jnp.split(x, np.cumsum(np.asarray(sizes))[:-1].tolist(), axis)
)
JAX["view_as_real"] = lambda x: jnp.stack([x.real, x.imag], -1)
JAX["view_as_complex"] = lambda x: lax.complex(x[..., 0], x[..., 1])
JAX["pack_complex"] = JAX["view_as_complex"]


# ---- indexing ------------------------------------------------------------------------
def _gather(x: Any, indices: Any, axes: Any, at: int) -> Any:
    rest = [k for k in range(x.ndim) if k not in axes]
    found = jnp.transpose(x, (*axes, *rest))[tuple(indices)]
    batch = indices.ndim - 1
    return jnp.moveaxis(found, range(batch), range(at, at + batch))


def adjoint(fn: Callable[..., Any], shape: Any, ct: Any) -> Any:
    """The adjoint of a linear `fn` with real coefficients."""
    (found,) = jax.linear_transpose(fn, jax.ShapeDtypeStruct(shape, ct.dtype))(ct)
    return found


def _take_add(ct: Any, indices: Any, axis: int, size: int) -> Any:
    shape = (*ct.shape[:axis], size, *ct.shape[axis + indices.ndim :])
    return adjoint(lambda x: JAX["take"](x, indices, axis), shape, ct)


def _scatter_add(ct: Any, indices: Any, shape: Any, axes: Any, at: int) -> Any:
    return adjoint(lambda x: _gather(x, indices, axes, at), shape, ct)


def _add_along(ct: Any, indices: Any, axis: int, size: int) -> Any:
    shape = (*ct.shape[:axis], size, *ct.shape[axis + 1 :])
    return adjoint(lambda x: JAX["take_along_axis"](x, indices, axis), shape, ct)


# Sums of `take` run over a batch that may be empty: mode "wrap" keeps indices defined.
JAX["take"] = lambda x, indices, axis: jnp.take(x, indices, axis, mode="wrap")
JAX["take_add"] = _take_add
JAX["gather"] = _gather
JAX["scatter_add"] = _scatter_add
JAX["take_along_axis"] = lambda x, indices, axis: jnp.take_along_axis(
    x, jnp.where(indices < 0, indices + x.shape[axis], indices), axis
)
JAX["add_along_axis"] = _add_along


def _everywhere(indices: Any, axis: int) -> tuple[Any, ...]:
    key = list(np.indices(indices.shape))
    key[axis] = indices
    return tuple(key)


def _extreme_along(x: Any, values: Any, indices: Any, axis: int, largest: bool) -> Any:
    places = x.at[_everywhere(indices, axis)]
    return places.max(values) if largest else places.min(values)


def _multiply_along(x: Any, indices: Any, axis: int, size: int) -> Any:
    """JAX differentiates its own product of repeated places nowhere."""
    x, indices = (jnp.moveaxis(v, axis, 0) for v in (x, indices))
    lanes = range(size)
    found = [
        jnp.prod(jnp.where((indices == k) | (indices == k - size), x, 1), 0)
        for k in lanes
    ]
    return jnp.moveaxis(jnp.stack(found).astype(x.dtype), 0, axis)


JAX["extreme_along_axis"] = _extreme_along
JAX["multiply_along_axis"] = _multiply_along


# ---- reductions ----------------------------------------------------------------------
def _reduction(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, keepdims: fn(x, axis=axes, keepdims=keepdims)


def _lanes(x: Any, axes: Any, width: int, fill: Any) -> Any:
    rest = [k for k in range(x.ndim) if k not in axes]
    n = int(np.prod([x.shape[a] for a in axes]))
    found = jnp.transpose(x, (*rest, *axes)).reshape(-1, n)
    return jnp.pad(found, [(0, 0), (0, width - n)], constant_values=fill)


def _unlanes(x: Any, shape: Any, axes: Any) -> Any:
    order = (*[k for k in range(len(shape)) if k not in axes], *axes)
    n = int(np.prod([shape[a] for a in axes]))
    found = x[:, :n].reshape([shape[k] for k in order])
    return jnp.transpose(found, np.argsort(order))


def _tie_count(x: Any, top: Any, axes: Any) -> Any:
    tied = (x == top) | (jnp.isnan(x) & jnp.isnan(top))
    narrow = x.dtype.itemsize <= 4
    return jnp.sum(tied, axis=axes, keepdims=True).astype("f4" if narrow else "f8")


for _name in ("sum", "mean", "max", "min", "prod", "any", "all"):
    JAX[_name] = _reduction(getattr(jnp, _name))
JAX["count_nonzero"] = lambda x, axes, keepdims: jnp.sum(
    x != 0, axis=axes, keepdims=keepdims
)
JAX["logsumexp"] = lambda x, axes, keepdims: (
    special.logsumexp(doubled(lambda v: v)(x), axis=axes, keepdims=keepdims)
    if axes
    else x * 1.0
)
JAX["var"] = lambda x, axes, correction, keepdims: jnp.var(
    x, axis=axes, correction=correction, keepdims=keepdims
)
JAX["std"] = lambda x, *how: jnp.sqrt(JAX["var"](x, *how))
JAX["softmax"] = lambda x, axes: jax.nn.softmax(x, axes)
JAX["log_softmax"] = lambda x, axes: jax.nn.log_softmax(x, axes)
JAX["argmax"] = lambda x, axis, keepdims: jnp.argmax(x, axis, keepdims=keepdims)
JAX["argmin"] = lambda x, axis, keepdims: jnp.argmin(x, axis, keepdims=keepdims)
JAX["tie_count"] = _tie_count
JAX["lanes"] = _lanes
JAX["unlanes"] = _unlanes


# ---- contractions, convolution, pooling ----------------------------------------------
def _turned(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


JAX["matmul"] = jnp.matmul
JAX["matmul_nt"] = lambda x, y: jnp.matmul(x, _turned(y))
JAX["matmul_tn"] = lambda x, y: jnp.matmul(_turned(x), y)


def _contract(
    x: Any, y: Any, equation: str, conj_x: bool, conj_y: bool, dtype: Any
) -> Any:
    x, y = jnp.conj(x) if conj_x else x, jnp.conj(y) if conj_y else y
    return jnp.einsum(equation, x, y).astype(dtype)


def _einsum(*args: Any) -> Any:
    *xs, equation, _ = args
    # JAX promotes otherwise, and has no labels of length 1 that broadcast.
    dtype = np.result_type(*[x.dtype for x in xs])
    sizes: dict[str, int] = {}
    terms = equation.split("->")[0].split(",")
    for term, x in zip(terms, xs, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    wide = [
        jnp.broadcast_to(x.astype(dtype), [sizes[c] for c in term])
        if len(set(term)) == len(term)
        else x.astype(dtype)
        for term, x in zip(terms, xs, strict=True)
    ]
    left, _, out = equation.partition("->")
    once = "".join(dict.fromkeys(out))
    found = jnp.einsum(f"{left}->{once}", *wide)
    if once == out:  # JAX has no repeated labels in outputs
        return found
    places = jnp.indices(found.shape)
    zeros = jnp.zeros([found.shape[once.index(c)] for c in out], dtype)
    return zeros.at[tuple(places[once.index(c)] for c in out)].set(found)


JAX["contract"] = _contract
JAX["einsum"] = _einsum


def _conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    dtype = jnp.result_type(x, w)
    return lax.conv_general_dilated(
        x.astype(dtype),
        w.astype(dtype),
        stride,
        [(p, p) for p in padding],
        rhs_dilation=dilation,
        feature_group_count=groups,
    )


def _conv_input(y: Any, w: Any, shape: Any, *how: Any) -> Any:
    dtype = jnp.result_type(y, w)
    bar = jnp.conj(w).astype(dtype)
    return adjoint(lambda x: _conv(x, bar, *how), shape, y.astype(dtype))


def _conv_weight(x: Any, y: Any, shape: Any, *how: Any) -> Any:
    dtype = jnp.result_type(x, y)
    bar = jnp.conj(x).astype(dtype)
    return adjoint(lambda w: _conv(bar, w, *how), shape, y.astype(dtype))


JAX["conv"] = _conv
JAX["conv_input"] = _conv_input
JAX["conv_weight"] = _conv_weight


def _windows(x: Any, kernel: Any, stride: Any, padding: Any, fill: Any) -> Any:
    """The elements of each window along the last axis."""
    n = len(kernel)
    lead = x.ndim - n
    wide = jnp.pad(x, [(0, 0)] * lead + [(p, p) for p in padding], constant_values=fill)
    grid = [
        (m - k) // s + 1
        for m, k, s in zip(wide.shape[lead:], kernel, stride, strict=True)
    ]
    taps = [
        wide[
            (
                ...,
                *[
                    slice(t, t + (m - 1) * s + 1, s)
                    for t, m, s in zip(tap, grid, stride, strict=True)
                ],
            )
        ]
        for tap in np.ndindex(*kernel)
    ]
    return jnp.stack(taps, -1)


def _max_pool(x: Any, kernel: Any, stride: Any, padding: Any) -> Any:
    low = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _windows(x, kernel, stride, padding, low).max(-1)


def _max_pool_pick(t: Any, x: Any, top: Any, *how: Any) -> Any:
    hit = _windows(x, *how, -np.inf) == top[..., None]
    return (_windows(t, *how, 0) * hit).sum(-1) / hit.sum(-1).astype(t.dtype)


JAX["avg_pool"] = lambda x, *how: _windows(x, *how, 0).mean(-1)
JAX["avg_pool_input"] = lambda y, shape, *how: adjoint(
    lambda x: JAX["avg_pool"](x, *how), shape, y
)
JAX["max_pool"] = _max_pool
JAX["max_pool_pick"] = _max_pool_pick
JAX["max_pool_input"] = lambda y, x, top, *how: adjoint(
    lambda t: _max_pool_pick(t, x, top, *how), x.shape, y
)


# ---- cross-entropy -------------------------------------------------------------------
def _one_hot(x: Any, target: Any, axis: int) -> Any:
    return jax.nn.one_hot(target, x.shape[axis], dtype=x.dtype, axis=axis)


JAX["cross_entropy"] = lambda x, target, axis: (
    -jnp.sum(jax.nn.log_softmax(x, axis) * _one_hot(x, target, axis), axis)
)
JAX["cross_entropy_input"] = lambda ct, x, target, axis: (
    jnp.expand_dims(ct, axis) * (jax.nn.softmax(x, axis) - _one_hot(x, target, axis))
)
