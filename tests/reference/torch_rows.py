"""Each row of the operation table in PyTorch, with the row's operands and parameters.

PyTorch conjugates as we do: the gradient of |z|^2 is 2 z, so nothing is turned round.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as nn

TORCH: dict[str, Callable[..., Any]] = {}
"""Row name to function: `fn(*operands, *params)`."""

NO_COUNTERPART: dict[str, str] = {}
"""Rows that PyTorch has no function for, and what stands in its place."""

NO_DERIVATIVE: dict[str, str] = {
    "nextafter": "PyTorch has no rule; ours is that of `x`",
    "floor_divide": "PyTorch has no rule; ours is zero",
    "j0": "PyTorch has no rule",
    "j1": "PyTorch has no rule",
    "gammainc": "PyTorch has one in the second argument, we have none",
    "gammaincc": "PyTorch has one in the second argument, we have none",
    "zeta": "PyTorch has one in the second argument, we have none",
}
"""Rows of which values alone are compared, and why."""

NOT_AT: dict[tuple[str, str], str] = {
    ("erf", "complex"): "real in PyTorch",
    ("erfc", "complex"): "real in PyTorch",
    ("round", "complex"): "real in PyTorch",
    ("sort", "complex"): "real in PyTorch",
    ("argsort", "complex"): "real in PyTorch",
    ("multiply_along_axis", "complex"): "real in PyTorch",
    ("avg_pool", "complex"): "real in PyTorch",
    ("avg_pool_input", "complex"): "real in PyTorch",
    (
        "multiply_along_axis",
        "zeros among the factors",
    ): "PyTorch has no second derivative there",
    **{
        (name, "integer"): "PyTorch has no adjoint of an indexing of integers"
        for name in "take_add scatter_add add_along_axis place_diagonal".split()
    },
    **{
        (name, "empty"): "the library behind PyTorch refuses an empty batch"
        for name in "fftn ifftn rfftn irfftn view_as_real view_as_complex".split()
    },
}
"""Samples (by row, and label or word of `words_of`) that PyTorch lacks, and why."""

LOOSE: dict[str, tuple[float, str]] = {
    "digamma": (1e-8, "PyTorch's trigamma is a short series"),
    "gammaln": (1e-8, "its second derivative is PyTorch's trigamma"),
    "j0": (1e-8, "PyTorch's own rational approximation"),
}
"""Rows compared with another tolerance, and why."""


def same(module: Any, *names: str) -> None:
    for name in names:
        TORCH[name] = getattr(module, name)


def without(reason: str, names: str) -> None:
    for name in names.split():
        NO_COUNTERPART[name] = reason


def wide(x: Any) -> Any:
    """Integers and booleans as double precision, which is what rows do."""
    floating = x.is_floating_point() or x.is_complex()
    return x if floating else x.to(torch.float64)


def doubled(fn: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs: fn(*map(wide, xs))


def dtype_of(dtype: Any) -> Any:
    name = np.dtype(dtype).name
    return getattr(torch, name)


def adjoint(fn: Callable[..., Any], shape: Any, ct: Any) -> Any:
    """The adjoint of a linear `fn`, differentiable in `ct`."""
    x = torch.zeros(tuple(shape), dtype=ct.dtype, requires_grad=True)
    (found,) = torch.autograd.grad(fn(x), x, ct, create_graph=True)
    return found


# ---- elementwise ---------------------------------------------------------------------
same(torch, *"add sub mul floor_divide remainder pow square conj real imag".split())
same(torch, *"abs maximum minimum floor ceil trunc round bitwise_and".split())
same(torch, *"bitwise_or bitwise_xor nextafter logical_and logical_or".split())
same(torch, *"logical_xor logical_not isfinite isinf isnan signbit less".split())
same(torch, *"less_equal greater greater_equal not_equal relu complex".split())
TORCH["equal"] = torch.eq
TORCH["neg"] = torch.neg
TORCH["sign"] = torch.sgn
TORCH["select"] = torch.where
# `clamp` cannot bring the derivative of a bound back to its own shape.
TORCH["clip"] = lambda *xs: torch.clamp(*torch.broadcast_tensors(*xs))
TORCH["bitwise_invert"] = torch.bitwise_not
TORCH["left_shift"] = torch.bitwise_left_shift
TORCH["right_shift"] = torch.bitwise_right_shift
TORCH["accumulate"] = TORCH["duplicate"] = torch.clone
for _name in (
    "reciprocal exp expm1 exp2 log log1p log2 log10 sqrt rsqrt logaddexp sin cos tan "
    "asin acos atan atan2 sinh cosh tanh asinh acosh atanh hypot erf erfc sigmoid "
    "angle copysign erfinv digamma xlogy logit i0"
).split():
    TORCH[_name] = doubled(getattr(torch, _name))
for _name in (
    "erfcx ndtr ndtri log_ndtr gammainc gammaincc zeta i0e i1 i1e xlog1py entr gammaln"
).split():
    TORCH[_name] = doubled(getattr(torch.special, _name))
TORCH["div"] = doubled(torch.true_divide)
TORCH["j0"] = doubled(torch.special.bessel_j0)
TORCH["j1"] = doubled(torch.special.bessel_j1)
TORCH["log_expit"] = doubled(nn.logsigmoid)
TORCH["softplus"] = doubled(lambda x: nn.softplus(x, threshold=1e3))
TORCH["gelu"] = doubled(nn.gelu)
TORCH["gelu_tanh"] = doubled(lambda x: nn.gelu(x, approximate="tanh"))
TORCH["silu"] = doubled(nn.silu)
without(
    "PyTorch has no such function",
    "cbrt erfcinv dawsn gamma betaln jv iv ive rel_entr kl_div betainc betaincinv "
    "gammaincinv poisson_quantile binomial_quantile",
)
without("our sweep's own products", "szmul szfactor szgate")


# ---- values from parameters ----------------------------------------------------------
TORCH["full"] = lambda shape, dtype, value, device: torch.full(
    shape,
    complex(value) if dtype.kind == "c" else float(value),
    dtype=dtype_of(dtype),
)
TORCH["arange"] = lambda start, stop, step, size, dtype, device: torch.arange(
    float(start), float(stop), float(step), dtype=torch.float64
)[:size].to(dtype_of(dtype))
TORCH["eye"] = lambda rows, cols, k, dtype, device: torch.diag_embed(
    torch.ones(rows + cols + abs(k), dtype=dtype_of(dtype)), k
)[:rows, :cols]
without("PyTorch always takes both ends", "linspace")


# ---- movement ------------------------------------------------------------------------
def _astype(x: Any, dtype: Any) -> Any:
    x = x.real if x.is_complex() and dtype.kind != "c" else x
    return x.to(dtype_of(dtype))


def _slice(x: Any, key: Any) -> Any:
    axis = 0
    for entry in key:
        if entry is None:
            x = x.unsqueeze(axis)
            axis += 1
        elif isinstance(entry, tuple):
            start, count, step = entry
            places = torch.arange(count) * step + start
            x = x.index_select(axis, places)
            axis += 1
        else:
            x = x.select(axis, entry)
    return x


def _place(x: Any, shape: Any, key: Any, value: Any) -> Any:
    there = adjoint(lambda v: _slice(v, key), shape, torch.ones(x.shape).double())
    found = adjoint(lambda v: _slice(v, key), shape, wide(x)).to(x.dtype)
    return torch.where(there > 0, found, torch.as_tensor(value, dtype=x.dtype))


def _repeat(x: Any, reps: Any) -> Any:
    for axis, n in enumerate(reps):
        x = torch.repeat_interleave(x, n, axis)
    return x


def _place_diagonal(x: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    return adjoint(lambda v: torch.diagonal(v, offset, axis1, axis2), shape, x)


TORCH["astype"] = _astype
TORCH["reshape"] = TORCH["regroup"] = torch.reshape
TORCH["broadcast_to"] = torch.broadcast_to
TORCH["permute_dims"] = torch.permute
TORCH["stop_gradient"] = lambda x: x.detach()
TORCH["twin"] = torch.flip
TORCH["slice"] = _slice
TORCH["place"] = _place
TORCH["roll"] = lambda x, shifts: (
    torch.roll(x, shifts, tuple(range(x.ndim))) if shifts else x.clone()
)
TORCH["tile"] = torch.tile
TORCH["repeat"] = _repeat
TORCH["tril"] = torch.tril
TORCH["triu"] = torch.triu
TORCH["diagonal"] = torch.diagonal
TORCH["place_diagonal"] = _place_diagonal
TORCH["concat"] = lambda *xs: torch.concat(xs[:-1], xs[-1])
TORCH["split"] = lambda x, sizes, axis: tuple(torch.split(x, sizes, axis))
TORCH["view_as_real"] = torch.view_as_real
TORCH["view_as_complex"] = torch.view_as_complex
TORCH["pack_complex"] = lambda x: torch.complex(x[..., 0], x[..., 1])
without("our layout of a product of many", "lanes unlanes")


# ---- indexing ------------------------------------------------------------------------
def _take(x: Any, indices: Any, axis: int) -> Any:
    flat = indices.long().reshape(-1) % max(x.shape[axis], 1)
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, flat).reshape(shape)


def _gather(x: Any, indices: Any, axes: Any, at: int) -> Any:
    rest = [k for k in range(x.ndim) if k not in axes]
    found = x.permute(*axes, *rest)[tuple(indices.long())]
    batch = indices.ndim - 1
    return torch.movedim(found, tuple(range(batch)), tuple(range(at, at + batch)))


def _take_along(x: Any, indices: Any, axis: int) -> Any:
    return torch.take_along_dim(x, indices.long() % x.shape[axis], axis)


def _take_add(ct: Any, indices: Any, axis: int, size: int) -> Any:
    shape = (*ct.shape[:axis], size, *ct.shape[axis + indices.ndim :])
    return adjoint(lambda x: _take(x, indices, axis), shape, ct)


def _scatter_add(ct: Any, indices: Any, shape: Any, axes: Any, at: int) -> Any:
    return adjoint(lambda x: _gather(x, indices, axes, at), shape, ct)


def _add_along(ct: Any, indices: Any, axis: int, size: int) -> Any:
    shape = (*ct.shape[:axis], size, *ct.shape[axis + 1 :])
    return adjoint(lambda x: _take_along(x, indices, axis), shape, ct)


TORCH["take"] = _take
TORCH["take_add"] = _take_add
TORCH["gather"] = _gather
TORCH["scatter_add"] = _scatter_add
TORCH["take_along_axis"] = _take_along
TORCH["add_along_axis"] = _add_along
TORCH["extreme_along_axis"] = lambda x, values, indices, axis, largest: (
    torch.scatter_reduce(
        x,
        axis,
        indices.long() % max(x.shape[axis], 1),
        values,
        "amax" if largest else "amin",
    )
)
TORCH["multiply_along_axis"] = lambda x, indices, axis, size: torch.scatter_reduce(
    torch.ones((*x.shape[:axis], size, *x.shape[axis + 1 :]), dtype=x.dtype),
    axis,
    indices.long() % size,
    x,
    "prod",
)
TORCH["mask_indices"] = lambda mask, count: torch.nonzero(mask).T


# ---- reductions ----------------------------------------------------------------------
def along(fn: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch reduces everything where no axis is named; a row reduces nothing."""

    def reduced(x: Any, axes: Any, keepdims: bool) -> Any:
        return fn(x, axes, keepdims) if axes else fn(x[None], (0,), False)

    return reduced


def one_by_one(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Functions that take one axis."""

    def reduced(x: Any, axes: Any, keepdims: bool) -> Any:
        for axis in reversed(axes):
            x = fn(x, axis, keepdims)
        return x if axes else fn(x[None], 0, False)

    return reduced


def _variance(fn: Callable[..., Any]) -> Callable[..., Any]:
    def reduced(x: Any, axes: Any, correction: float, keepdims: bool) -> Any:
        lead, dim = (x, axes) if axes else (x[None], (0,))
        keep = keepdims if axes else False
        return fn(wide(lead), dim=dim, correction=correction, keepdim=keep)

    return reduced


def _place_of(fn: Callable[..., Any]) -> Callable[..., Any]:
    def found(x: Any, axis: int | None, keepdims: bool) -> Any:
        where = fn(x, axis, keepdims) if axis is not None else fn(x)
        return where.reshape((1,) * x.ndim) if axis is None and keepdims else where

    return found


def _softmax(x: Any, axes: Any) -> Any:
    if len(axes) == 1:
        return torch.softmax(wide(x), axes[0])
    return torch.exp(_log_softmax(x, axes))


def _log_softmax(x: Any, axes: Any) -> Any:
    if len(axes) == 1:
        return torch.log_softmax(wide(x), axes[0])
    return wide(x) - TORCH["logsumexp"](x, axes, True)


TORCH["sum"] = along(torch.sum)
TORCH["mean"] = along(lambda x, axes, keep: torch.mean(wide(x), axes, keep))
TORCH["max"] = along(torch.amax)
TORCH["min"] = along(torch.amin)
TORCH["prod"] = one_by_one(torch.prod)
TORCH["any"] = one_by_one(torch.any)
TORCH["all"] = one_by_one(torch.all)
TORCH["count_nonzero"] = along(lambda x, axes, keep: torch.sum(x != 0, axes, keep))
TORCH["logsumexp"] = along(lambda x, axes, keep: torch.logsumexp(wide(x), axes, keep))
TORCH["var"] = _variance(torch.var)
TORCH["std"] = _variance(torch.std)
TORCH["softmax"] = _softmax
TORCH["log_softmax"] = _log_softmax
TORCH["argmax"] = _place_of(torch.argmax)
TORCH["argmin"] = _place_of(torch.argmin)
without("part of the derivative of `max`, which is compared", "tie_count")


# ---- contractions, convolution, pooling ----------------------------------------------
def _promoted(x: Any, y: Any) -> Any:
    dtype = torch.promote_types(x.dtype, y.dtype)
    return x.to(dtype), y.to(dtype)


def _matmul(x: Any, y: Any) -> Any:
    return torch.matmul(*_promoted(x, y))


def _contract(
    x: Any, y: Any, equation: str, conj_x: bool, conj_y: bool, dtype: Any
) -> Any:
    x, y = x.conj() if conj_x else x, y.conj() if conj_y else y
    return torch.einsum(equation, *_promoted(x, y)).to(dtype_of(dtype))


def _einsum(*args: Any) -> Any:
    """A label that fills a diagonal is one that two identities repeat."""
    *xs, equation, _ = args
    dtype = xs[0].dtype
    for x in xs:
        dtype = torch.promote_types(dtype, x.dtype)
    left, _, out = equation.partition("->")
    sizes: dict[str, int] = {}
    for term, x in zip(left.split(","), xs, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            sizes[c] = n if sizes.get(c, 1) == 1 else sizes[c]
    terms, seen, fresh = left.split(","), set(), iter("ABCDEFGHIJ")
    wide = []
    for term, x in zip(terms, xs, strict=True):
        x = x.to(dtype)
        if len(set(term)) == len(term):
            x = torch.broadcast_to(x, [sizes[c] for c in term])
        wide.append(x)
    target = ""
    for c in out:
        if c in seen:
            again = next(fresh)
            terms.append(c + again)
            wide.append(torch.eye(sizes[c], dtype=dtype))
            target += again
        else:
            seen.add(c)
            target += c
    return torch.einsum(f"{','.join(terms)}->{target}", *wide)


def _conv(x: Any, w: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    fn = {1: nn.conv1d, 2: nn.conv2d, 3: nn.conv3d}[len(stride)]
    return fn(*_promoted(x, w), None, stride, padding, dilation, groups)


def _conv_input(y: Any, w: Any, shape: Any, *how: Any) -> Any:
    y, w = _promoted(y, w)
    return adjoint(lambda x: _conv(x, w, *how), shape, y)


def _conv_weight(x: Any, y: Any, shape: Any, *how: Any) -> Any:
    x, y = _promoted(x, y)
    return adjoint(lambda w: _conv(x, w, *how), shape, y)


def _pool(fn: str) -> Callable[..., Any]:
    def pooled(x: Any, kernel: Any, stride: Any, padding: Any) -> Any:
        n = len(kernel)
        lead = x.shape[: x.ndim - n]
        flat = x.reshape(1, int(np.prod(lead)), *x.shape[x.ndim - n :])
        found = getattr(nn, f"{fn}_pool{n}d")(flat, kernel, stride, padding)
        return found.reshape(*lead, *found.shape[2:])

    return pooled


TORCH["matmul"] = _matmul
TORCH["matmul_nt"] = lambda x, y: _matmul(x, y.mH)
TORCH["matmul_tn"] = lambda x, y: _matmul(x.mH, y)
TORCH["contract"] = _contract
TORCH["einsum"] = _einsum
TORCH["conv"] = _conv
TORCH["conv_input"] = _conv_input
TORCH["conv_weight"] = _conv_weight
TORCH["avg_pool"] = _pool("avg")
TORCH["max_pool"] = _pool("max")
TORCH["avg_pool_input"] = lambda y, shape, *how: adjoint(
    lambda x: TORCH["avg_pool"](x, *how), shape, y
)
without(
    "parts of the derivative of `max_pool`, which is compared",
    "max_pool_input max_pool_pick",
)
TORCH["cross_entropy"] = lambda x, target, axis: nn.cross_entropy(
    torch.movedim(x, axis, 1 if x.ndim > 1 else 0), target.long(), reduction="none"
)
without("the derivative of `cross_entropy`, which is compared", "cross_entropy_input")


# ---- along an axis -------------------------------------------------------------------
def directed(fn: Callable[..., Any]) -> Callable[..., Any]:
    def either(*args: Any) -> Any:
        *xs, axis, reverse = args
        if not reverse:
            return fn(*xs, axis)
        return torch.flip(fn(*[torch.flip(x, (axis,)) for x in xs], axis), (axis,))

    return either


def _recurrence(a: Any, b: Any, axis: int) -> Any:
    found: list[Any] = []
    a, b = (torch.movedim(wide(v), axis, 0) for v in _promoted(a, b))
    for k in range(a.shape[0]):
        found.append(b[k] if k == 0 else a[k] * found[-1] + b[k])
    return torch.stack(found, axis) if found else torch.movedim(b, 0, axis)


TORCH["cumulative_sum"] = directed(torch.cumsum)
TORCH["cumulative_prod"] = directed(torch.cumprod)
TORCH["cumulative_logsumexp"] = directed(
    lambda x, axis: torch.logcumsumexp(wide(x), axis)
)
TORCH["linear_recurrence"] = directed(_recurrence)
TORCH["sort"] = lambda x, axis, descending, stable: (
    torch.sort(x, stable=True, dim=axis, descending=descending).values
)
TORCH["argsort"] = lambda x, axis, descending, stable: (
    torch.sort(x, stable=True, dim=axis, descending=descending).indices
)
TORCH["searchsorted"] = lambda x, values, side: torch.searchsorted(
    x.contiguous(), values.contiguous(), side=side
)


# ---- Fourier transforms --------------------------------------------------------------
def _irfftn(x: Any, axes: Any, n: int, norm: str) -> Any:
    sizes = [*[x.shape[a] for a in axes[:-1]], n]
    return torch.fft.irfftn(x, sizes, axes, norm)


for _name in ("fftn", "ifftn", "rfftn"):
    TORCH[_name] = lambda x, axes, norm, n=_name: getattr(torch.fft, n)(
        wide(x), dim=axes, norm=norm
    )
TORCH["irfftn"] = _irfftn


# ---- linear algebra ------------------------------------------------------------------
def _cholesky(x: Any) -> Any:
    """PyTorch reads the argument as Hermitian, and its gradient is not."""
    return torch.linalg.cholesky((x + x.mH) / 2)


TORCH["cholesky"] = _cholesky
TORCH["inv"] = torch.linalg.inv
TORCH["expm"] = torch.linalg.matrix_exp
TORCH["pinv"] = lambda x, rtol: torch.linalg.pinv(x, rtol=rtol)
TORCH["solve_triangular"] = lambda a, b, upper, adj, unit: (
    torch.linalg.solve_triangular(
        a.mH if adj else a, b, upper=upper != adj, unitriangular=unit
    )
)
TORCH["lu_solve"] = lambda a, b, lu, rows, adj: torch.linalg.solve(
    a.mH if adj else a, b
)
TORCH["det"] = lambda a, lu, rows: torch.linalg.det(a)
TORCH["slogdet"] = lambda a, lu, rows: tuple(torch.linalg.slogdet(a))
TORCH["vector_norm"] = lambda x, order, axes, keepdims: torch.linalg.vector_norm(
    x, order, axes or None, keepdims
)
without(
    "factors are unique up to signs: `torch_functions.py` compares what is not",
    "qr eigh svd eig lu_factor",
)
without("a derivative of `det`, which is compared", "cofactors cofactors_moved")
without(
    "PyTorch draws other numbers",
    "philox random_bits random_uniform random_normal random_integers",
)
