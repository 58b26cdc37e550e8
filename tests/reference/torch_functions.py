"""Public functions beside the rows, in PyTorch; and PyTorch by array API names.

Decompositions are compared in losses that no phase and no choice of basis changes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as nn

import tenferro_ad as ta
from tests.reference.torch_rows import _matmul

Array = np.ndarray[Any, Any]
Fn = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One function at one point.

    Attributes:
        ours, theirs: the function of tensors of each library.
        arrays: the arguments to differentiate.
    """

    ours: Fn
    theirs: Fn
    arrays: tuple[Array, ...]


FUNCTIONS: dict[str, list[Case]] = {}
"""Public function, by its name below the package, to where it is compared."""

WITHOUT: dict[str, str] = {}
"""Public functions that have nothing to compare, and why."""


# PyTorch's trigamma is a short series, of nine digits.
LOOSE = {"special.polygamma": 1e-8}


def draw(*shape: int, seed: int = 0, complex_: bool = False) -> Array:
    rng = np.random.default_rng([seed, *shape])
    x = rng.uniform(0.2, 1.8, shape) * rng.choice([-1.0, 1.0], shape)
    return x + 1j * rng.uniform(-1, 1, shape) if complex_ else x


def case(name: str, ours: Fn, theirs: Fn, *arrays: Any) -> None:
    """Arrays, or shapes to draw them."""
    found = tuple(
        draw(*a, seed=k) if isinstance(a, tuple) else a for k, a in enumerate(arrays)
    )
    FUNCTIONS.setdefault(name, []).append(Case(ours, theirs, found))


def without(reason: str, names: str) -> None:
    WITHOUT.update(dict.fromkeys(names.split(), reason))


def square(n: int, *lead: int, complex_: bool = False) -> Array:
    """Well conditioned."""
    return draw(*lead, n, n, seed=5, complex_=complex_) * 0.3 + 2 * np.eye(n)


PARTS = (False, True)

without(
    "values from parameters alone",
    "empty empty_like full_like ones ones_like zeros zeros_like variable from_dlpack "
    "fft.fftfreq fft.rfftfreq",
)
without(
    "positions, counts and truths, which have no derivative",
    "argwhere nonzero isin unique_all unique_counts unique_inverse bitwise_left_shift "
    "bitwise_right_shift linalg.matrix_rank",
)
without(
    "facts about dtypes and shapes",
    "broadcast_shapes can_cast finfo iinfo isdtype result_type",
)
without(
    "recording, transforms, accounting, submission",
    "checkpoint compile default_device devices exclusive forbid fused grad hessian "
    "hvp jacfwd jacrev jvp ledger linear_transpose linearize plan submit_borrowed "
    "register_op trace update value_and_grad vjp vmap",
)
without("loops and branches of functions", "cond fori_loop scan switch while_loop")
without("PyTorch draws other numbers", "nn.dropout")

# ---- products ------------------------------------------------------------------------
for _c in PARTS:
    _x, _y = draw(2, 3, 4, complex_=_c), draw(4, 3, 2, seed=1, complex_=_c)
    _u, _v = draw(3, complex_=_c), draw(2, 3, seed=1, complex_=_c)
    _m = [draw(*s, seed=k, complex_=_c) for k, s in enumerate([(2, 3), (3, 4), (4, 2)])]
    case(
        "linalg.tensordot",
        lambda x, y: ta.linalg.tensordot(x, y, axes=((1, 2), (1, 0))),
        lambda x, y: torch.tensordot(x, y, ([1, 2], [1, 0])),
        _x,
        _y,
    )
    case(
        "einsum",
        lambda x, y: ta.einsum("abc,cb...->...a", x, y),
        lambda x, y: torch.einsum("abc,cb...->...a", x, y),
        _x,
        _y,
    )
    case("linalg.vecdot", ta.linalg.vecdot, torch.linalg.vecdot, _u, _v)
    case("linalg.kron", ta.linalg.kron, torch.kron, _m[0], _m[1])
    case("linalg.outer", ta.linalg.outer, torch.outer, _u, draw(2, complex_=_c))
    case(
        "linalg.multi_dot",
        lambda *xs: ta.linalg.multi_dot(xs),
        lambda *xs: torch.linalg.multi_dot(xs),
        *_m,
    )
    case("linalg.matrix_transpose", ta.linalg.matrix_transpose, lambda x: x.mT, _x)
    case("linalg.matmul", ta.linalg.matmul, torch.matmul, _m[0], _m[1])
    case("linalg.cross", ta.linalg.cross, torch.linalg.cross, _v, _v * 2 + 1)
    case("linalg.trace", ta.linalg.trace, lambda x: x.diagonal(0, -2, -1).sum(-1), _x)
    case("linalg.diagonal", ta.linalg.diagonal, lambda x: x.diagonal(0, -2, -1), _x)

# ---- movement and selection ----------------------------------------------------------
_A, _B = (2, 3), (2, 3, 4)
case("asarray", lambda x: ta.asarray(x, copy=True), torch.clone, _A)
case("positive", ta.positive, torch.positive, _A)
case("negative", ta.negative, torch.negative, _A)
for _ours, _theirs in {"multiply": "mul", "subtract": "sub", "divide": "div"}.items():
    case(_ours, getattr(ta, _ours), getattr(torch, _theirs), _A, (3,))
case(
    "where",
    lambda x, y: ta.where(x > 0.0, x, y),
    lambda x, y: torch.where(x > 0.0, x, y),
    _A,
    (3,),
)
case(
    "broadcast_arrays",
    lambda x, y: tuple(ta.broadcast_arrays(x, y)),
    torch.broadcast_tensors,
    (3, 1),
    (2,),
)
case("diag", lambda x: ta.diag(x, k=1), lambda x: torch.diag(x, 1), (3,))
case("diag", lambda x: ta.diag(x, k=-1), lambda x: torch.diag(x, -1), (3, 3))
case("diff", lambda x: ta.diff(x, n=2), lambda x: torch.diff(x, 2), (2, 5))
case("expand_dims", lambda x: ta.expand_dims(x, axis=1), lambda x: x.unsqueeze(1), _A)
case("squeeze", lambda x: ta.squeeze(x, axis=1), lambda x: x.squeeze(1), (2, 1, 3))
case("flip", lambda x: ta.flip(x, axis=(0, 2)), lambda x: torch.flip(x, (0, 2)), _B)
case("getitem", lambda x: x[1, ::2], lambda x: x[1, ::2], _B)
case("getitem", lambda x: x[[0, 1, 0]], lambda x: x[[0, 1, 0]], _B)
case("getitem", lambda x: x[x > 0.0], lambda x: x[x > 0.0], _B)
case(
    "hstack", lambda x, y: ta.hstack([x, y]), lambda x, y: torch.hstack([x, y]), _A, _A
)
case(
    "vstack", lambda x, y: ta.vstack([x, y]), lambda x, y: torch.vstack([x, y]), _A, _A
)
case("stack", lambda x, y: ta.stack([x, y], axis=1),
     lambda x, y: torch.stack([x, y], 1), _A, _A)  # fmt: skip
case("unstack", lambda x: ta.unstack(x, axis=1), lambda x: torch.unbind(x, 1), _A)
case(
    "meshgrid",
    lambda x, y: tuple(ta.meshgrid(x, y, indexing="ij")),
    lambda x, y: torch.meshgrid(x, y, indexing="ij"),
    (2,),
    (3,),
)
case("moveaxis", lambda x: ta.moveaxis(x, 0, 2), lambda x: torch.moveaxis(x, 0, 2), _B)
case("swapaxes", lambda x: ta.swapaxes(x, 0, 2), lambda x: torch.swapaxes(x, 0, 2), _B)
case(
    "pad",
    lambda x: ta.pad(x, ((1, 0), (2, 1)), constant_values=0.5),
    lambda x: nn.pad(x, (2, 1, 1, 0), value=0.5),
    _A,
)
_MODES = {"reflect": "reflect", "edge": "replicate", "wrap": "circular"}
for _mode, _their in _MODES.items():
    case(
        "pad",
        lambda x, m=_mode: ta.pad(x, ((0, 0), (0, 0), (2, 1)), m),
        lambda x, m=_their: nn.pad(x, (2, 1), m),
        _B,
    )
_I = np.array([1, 0, 1, 1])
case(
    "index_add",
    lambda x, s: ta.index_add(x, ta.asarray(_I), s, axis=1),
    lambda x, s: torch.index_add(x, 1, torch.from_numpy(_I), s),
    _A,
    (2, 4),
)
case(
    "segment_sum",
    lambda x: ta.segment_sum(x, ta.asarray(_I), num_segments=2),
    lambda x: torch.zeros(2, 3, dtype=x.dtype).index_add(0, torch.from_numpy(_I), x),
    (4, 3),
)
_J = np.array([[0, 2, 0, 1], [1, 1, 0, 2]])
_REDUCE = {"add": "sum", "multiply": "prod", "max": "amax", "min": "amin"}
for _how, _their in _REDUCE.items():
    case(
        "scatter",
        lambda x, s, h=_how: ta.scatter(x, ta.asarray(_J), s, axis=1, reduce=h),
        lambda x, s, h=_their: torch.scatter_reduce(x, 1, torch.from_numpy(_J), s, h),
        _A,
        (2, 4),
    )
case(
    "scatter",
    lambda x, s: ta.scatter(x, ta.asarray(_J[:, 1:2]), s, axis=1),
    lambda x, s: torch.scatter(x, 1, torch.from_numpy(_J[:, 1:2]), s),
    _A,
    (2, 1),
)
for _name, _their in {"prod": "prod", "max": "amax", "min": "amin"}.items():
    case(
        f"segment_{_name}",
        lambda x, n=_name: getattr(ta, f"segment_{n}")(
            x, ta.asarray(_I), num_segments=2
        ),
        lambda x, h=_their: torch.scatter_reduce(
            torch.ones(2, 3, dtype=x.dtype),
            0,
            torch.from_numpy(_I)[:, None].expand(4, 3),
            x,
            h,
            include_self=False,
        ),
        (4, 3),
    )
case(
    "topk",
    lambda x: ta.topk(x, 2, axis=1)[0],
    lambda x: torch.topk(x, 2, dim=1).values,
    (3, 5),
)
case(
    "array_split",
    lambda x: tuple(ta.array_split(x, 3, axis=1)),
    lambda x: torch.tensor_split(x, 3, 1),
    (2, 7),
)
# PyTorch's median is the lower of two; its quantile is ours.
case(
    "median",
    lambda x: ta.median(x, axis=1),
    lambda x: torch.quantile(x, 0.5, 1),
    (3, 4),
)
for _q in (0.0, 0.3, 1.0):
    case(
        "quantile",
        lambda x, q=_q: ta.quantile(x, q, axis=1),
        lambda x, q=_q: torch.quantile(x, q, 1),
        (3, 5),
    )
case("unique_values", ta.unique_values, lambda x: torch.sort(x.ravel()).values, _A)

# ---- linear algebra ------------------------------------------------------------------


def energy(xp: Any, y: Any) -> Any:
    """A real number that tells all elements apart."""
    weights = np.linspace(0.5, 1.5, int(np.prod(y.shape))).reshape(y.shape)
    w = ta.asarray(weights) if xp is ta else torch.from_numpy(weights)
    is_complex = y.dtype.kind == "c" if xp is ta else y.is_complex()
    if not is_complex:
        return xp.sum(w * y) + 0.3 * xp.sum(y * y)
    size = xp.sum(xp.real(xp.conj(y) * y))
    return xp.sum(w * xp.real(y)) + 0.7 * xp.sum(w * xp.imag(y)) + size


def hermitian(x: Any) -> Any:
    return (x + adjoint(x)) * 0.5


def adjoint(x: Any) -> Any:
    return x.mH if isinstance(x, torch.Tensor) else ta.conj(x.mT)


def of_eigh(xp: Any, x: Any) -> Any:
    w, v = xp.linalg.eigh(hermitian(x))
    low = v[..., :, :2]
    return energy(xp, low @ adjoint(low)) + energy(xp, w)


def of_svd(xp: Any, x: Any) -> Any:
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    one = u[..., :, :1] @ vh[..., :1, :]
    return energy(xp, one) + energy(xp, s) + energy(xp, u @ vh)


def of_qr(xp: Any, x: Any) -> Any:
    """The projector, and the Gram matrix by its factor."""
    q, r = xp.linalg.qr(x)
    return energy(xp, q @ adjoint(q)) + energy(xp, adjoint(r) @ r)


def of_eig(xp: Any, x: Any) -> Any:
    """Spectral projectors: V diag(f(w)) V^-1 for a smooth f."""
    w, v = xp.linalg.eig(x)
    power = v @ (xp.exp(0.1 * w)[..., None] * xp.linalg.inv(v))
    return energy(xp, power)


def of_lu(xp: Any, x: Any) -> Any:
    if xp is ta:
        _, low, up = ta.linalg.lu(x)
    else:
        _, low, up = torch.linalg.lu(x)
    return energy(xp, low) + energy(xp, up)


def both(name: str, loss: Fn, *arrays: Any) -> None:
    """A loss in terms of the namespace."""
    case(name, lambda *xs: loss(ta, *xs), lambda *xs: loss(torch, *xs), *arrays)


for _c in PARTS:
    _s, _b = square(3, 2, complex_=_c), draw(2, 3, 2, complex_=_c)
    _tall, _wide = draw(4, 3, complex_=_c), draw(3, 4, complex_=_c)
    both("linalg.eigh", of_eigh, square(4, complex_=_c))
    both("linalg.eig", of_eig, square(3, complex_=_c))
    for _x in (_s, _tall, _wide):
        both("linalg.svd", of_svd, _x)
        both("linalg.lu", of_lu, _x)
    for _x in (_s, _tall):
        both("linalg.qr", of_qr, _x)
    both("linalg.eigvalsh", lambda xp, x: xp.linalg.eigvalsh(hermitian(x)), _s)
    case("linalg.svdvals", ta.linalg.svdvals, torch.linalg.svdvals, _tall)
    case(
        "linalg.eigvals",
        lambda x: energy(ta, ta.linalg.eigvals(x) ** 2),
        lambda x: energy(torch, torch.linalg.eigvals(x) ** 2),
        square(1, complex_=_c),
    )
    both("linalg.cholesky", lambda xp, x: xp.linalg.cholesky(x @ adjoint(x)), _s)
    case("linalg.solve", ta.linalg.solve, torch.linalg.solve, _s, _b)
    case("linalg.inv", ta.linalg.inv, torch.linalg.inv, _s)
    case("linalg.det", ta.linalg.det, torch.linalg.det, _s)
    case("linalg.slogdet", lambda x: tuple(ta.linalg.slogdet(x)),
         lambda x: tuple(torch.linalg.slogdet(x)), _s)  # fmt: skip
    case("linalg.expm", ta.linalg.expm, torch.linalg.matrix_exp, _s)
    for _x in (_tall, _wide):
        case("linalg.pinv", ta.linalg.pinv, torch.linalg.pinv, _x)
    case(
        "linalg.lstsq",
        ta.linalg.lstsq,
        lambda a, b: torch.linalg.lstsq(a, b).solution,
        _tall,
        draw(4, 2, complex_=_c),
    )
    for _up in PARTS:
        case(
            "linalg.solve_triangular",
            lambda a, b, u=_up: ta.linalg.solve_triangular(a, b, upper=u),
            lambda a, b, u=_up: torch.linalg.solve_triangular(a, b, upper=u),
            _s,
            _b,
        )
    case(
        "linalg.cho_solve",
        lambda x, b: ta.linalg.cho_solve(ta.linalg.cholesky(x @ adjoint(x)), b),
        lambda x, b: torch.cholesky_solve(b, torch.linalg.cholesky(x @ x.mH)),
        _s,
        _b,
    )
    for _n in (0, 3, -2):
        case(
            "linalg.matrix_power",
            lambda x, n=_n: ta.linalg.matrix_power(x, n),
            lambda x, n=_n: torch.linalg.matrix_power(x, n),
            _s,
        )
    for _o in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for _space in ("matrix_norm", "norm"):
            more = {} if _space == "matrix_norm" else {"axis": (-2, -1)}
            case(
                f"linalg.{_space}",
                lambda x, o=_o, n=_space, m=more: getattr(ta.linalg, n)(x, ord=o, **m),
                lambda x, o=_o: torch.linalg.matrix_norm(x, o),
                _tall,
            )
    for _o in (1, 2, 3, 0.5, np.inf, -np.inf):
        for _space in ("vector_norm", "norm"):
            case(
                f"linalg.{_space}",
                lambda x, o=_o, n=_space: getattr(ta.linalg, n)(x, ord=o, axis=1),
                lambda x, o=_o: torch.linalg.vector_norm(x, o, 1),
                _tall,
            )
for _o in (None, 2, -2):  # PyTorch writes over what its rule keeps for the others
    case(
        "linalg.cond",
        lambda x, o=_o: ta.linalg.cond(x, ord=o),
        lambda x, o=_o: torch.linalg.cond(x, o),
        square(3),
    )

# ---- Fourier transforms --------------------------------------------------------------
_NORMS = ("backward", "ortho", "forward")
for _name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    for _n in (None, 3, 8):
        for _norm in _NORMS:
            case(
                f"fft.{_name}",
                lambda x, f=_name, n=_n, m=_norm: getattr(ta.fft, f)(
                    x, n=n, axis=0, norm=m
                ),
                lambda x, f=_name, n=_n, m=_norm: getattr(torch.fft, f)(
                    x, n=n, dim=0, norm=m
                ),
                draw(5, 2, complex_=_name not in ("rfft", "ihfft")),
            )
for _name in ("fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"):
    for _s in (None, (3, 6)):
        case(
            f"fft.{_name}",
            lambda x, f=_name, s=_s: getattr(ta.fft, f)(x, s=s, axes=(-2, -1)),
            lambda x, f=_name, s=_s: getattr(torch.fft, f)(x, s=s, dim=(-2, -1)),
            draw(2, 4, 5, complex_=not _name.startswith("rfft")),
        )
for _name in ("fftshift", "ifftshift"):
    case(f"fft.{_name}", getattr(ta.fft, _name), getattr(torch.fft, _name), (3, 4))

# ---- special functions ---------------------------------------------------------------
_P = np.abs(draw(3, 4)) + 0.3
for _n in (0, 1, 2, 3):
    case(
        "special.polygamma",
        lambda x, n=_n: ta.special.polygamma(n, x),
        lambda x, n=_n: torch.special.polygamma(n, x),
        _P,
    )

# ---- networks ------------------------------------------------------------------------
_W = {1: (4, 2, 3), 2: (4, 2, 3, 2), 3: (4, 2, 2, 2, 2)}
_X = {1: (2, 4, 7), 2: (2, 4, 7, 6), 3: (1, 4, 5, 4, 4)}
for _n in (1, 2, 3):
    for _how in (
        {},
        {"stride": 2, "padding": 1, "dilation": 2} if _n < 3 else {"stride": 2},
    ):
        case(
            f"nn.conv{_n}d",
            lambda x, w, b, n=_n, h=_how: getattr(ta.nn, f"conv{n}d")(
                x, w, b, groups=2, **h
            ),
            lambda x, w, b, n=_n, h=_how: getattr(nn, f"conv{n}d")(
                x, w, b, groups=2, **h
            ),
            _X[_n],
            _W[_n],
            (4,),
        )
    for _how in (
        {},
        {"stride": 2, "padding": 1, "output_padding": 1, "dilation": 1},
    ):
        case(
            f"nn.conv_transpose{_n}d",
            lambda x, w, b, n=_n, h=_how: getattr(ta.nn, f"conv_transpose{n}d")(
                x, w, b, groups=2, **h
            ),
            lambda x, w, b, n=_n, h=_how: getattr(nn, f"conv_transpose{n}d")(
                x, w, b, groups=2, **h
            ),
            _X[_n],
            _W[_n],
            (4,),
        )
    for _how in ({}, {"stride": 1, "padding": 1}):
        case(
            f"nn.max_pool{_n}d",
            lambda x, n=_n, h=_how: getattr(ta.nn, f"max_pool{n}d")(x, 2, **h),
            lambda x, n=_n, h=_how: getattr(nn, f"max_pool{n}d")(x, 2, **h),
            _X[_n],
        )
        for _count in PARTS:
            case(
                f"nn.avg_pool{_n}d",
                lambda x, n=_n, h=_how, c=_count: getattr(ta.nn, f"avg_pool{n}d")(
                    x, 2, count_include_pad=c, **h
                ),
                lambda x, n=_n, h=_how, c=_count: getattr(nn, f"avg_pool{n}d")(
                    x, 2, count_include_pad=c, **h
                ),
                _X[_n],
            )
for _name in ("max", "avg"):
    case(
        f"nn.adaptive_{_name}_pool",
        lambda x, f=_name: getattr(ta.nn, f"adaptive_{f}_pool")(x, (3, 4)),
        lambda x, f=_name: getattr(nn, f"adaptive_{f}_pool2d")(x, (3, 4)),
        _X[2],
    )
for _size in ((9, 5), (3, 12)):
    case(
        "nn.interpolate",
        lambda x, s=_size: ta.nn.interpolate(x, s),
        lambda x, s=_size: nn.interpolate(x, s),
        _X[2],
    )
    for _c in PARTS:
        case(
            "nn.interpolate",
            lambda x, s=_size, c=_c: ta.nn.interpolate(
                x, s, mode="linear", align_corners=c
            ),
            lambda x, s=_size, c=_c: nn.interpolate(
                x, s, mode="bilinear", align_corners=c
            ),
            _X[2],
        )
case("nn.linear", ta.nn.linear, nn.linear, (5, 3), (4, 3), (4,))
case(
    "nn.embedding",
    lambda w: ta.nn.embedding(w, ta.asarray(_I)),
    lambda w: nn.embedding(torch.from_numpy(_I), w),
    (3, 2),
)
case("nn.elu", lambda x: ta.nn.elu(x, alpha=1.3), lambda x: nn.elu(x, 1.3), (3, 4))
case(
    "nn.leaky_relu",
    lambda x: ta.nn.leaky_relu(x, negative_slope=0.2),
    lambda x: nn.leaky_relu(x, 0.2),
    (3, 4),
)
case(
    "nn.layer_norm",
    lambda x, w, b: ta.nn.layer_norm(x, w, b, axis=(-2, -1)),
    lambda x, w, b: nn.layer_norm(x, (3, 4), w, b),
    _B,
    (3, 4),
    (3, 4),
)
case(
    "nn.rms_norm",
    lambda x, w: ta.nn.rms_norm(x, w, eps=1e-6),
    lambda x, w: nn.rms_norm(x, (4,), w, 1e-6),
    _B,
    (4,),
)
case(
    "nn.group_norm",
    lambda x, w, b: ta.nn.group_norm(x, 2, w, b),
    lambda x, w, b: nn.group_norm(x, 2, w, b),
    _X[2],
    (4,),
    (4,),
)
_MEAN, _VAR = draw(4), np.abs(draw(4))
for _train in PARTS:
    case(
        "nn.batch_norm",
        lambda x, w, b, t=_train: ta.nn.batch_norm(x, _MEAN, _VAR, w, b, training=t),
        lambda x, w, b, t=_train: nn.batch_norm(
            x, torch.tensor(_MEAN), torch.tensor(_VAR), w, b, training=t
        ),
        _X[2],
        (4,),
        (4,),
    )


def _running(x: Any, mean: Any, var: Any) -> Any:
    found = torch.tensor(mean), torch.tensor(var)
    nn.batch_norm(x.detach(), *found, training=True, momentum=0.1)
    return found


case(
    "nn.batch_statistics",
    lambda x: ta.nn.batch_statistics(ta.stop_gradient(x), _MEAN, _VAR),
    lambda x: _running(x, _MEAN, _VAR),
    _X[2],
)
_MASK = np.array([[True, False, True], [True, True, False]])
for _how in ({}, {"is_causal": True}, {"scale": 0.3}):
    case(
        "nn.scaled_dot_product_attention",
        lambda q, k, v, h=_how: ta.nn.scaled_dot_product_attention(q, k, v, **h),
        lambda q, k, v, h=_how: nn.scaled_dot_product_attention(q, k, v, **h),
        (2, 3, 4),
        (2, 3, 4),
        (2, 3, 5),
    )
case(
    "nn.scaled_dot_product_attention",
    lambda q, k, v: ta.nn.scaled_dot_product_attention(q, k, v, ta.asarray(_MASK)),
    lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, torch.tensor(_MASK)),
    (2, 2, 4),
    (2, 3, 4),
    (2, 3, 5),
)
_T = np.array([2, 0, 1, 1])
_MASS = np.array([0.5, 1.0, 2.0])
for _r in ("mean", "sum", "none"):
    case(
        "nn.cross_entropy",
        lambda x, r=_r: ta.nn.cross_entropy(x, ta.asarray(_T), reduction=r),
        lambda x, r=_r: nn.cross_entropy(x, torch.tensor(_T), reduction=r),
        (4, 3),
    )
    case(
        "nn.nll_loss",
        lambda x, r=_r: ta.nn.nll_loss(x, ta.asarray(_T), reduction=r),
        lambda x, r=_r: nn.nll_loss(x, torch.tensor(_T), reduction=r),
        (4, 3),
    )
    for _name, _more in {
        "l1_loss": {},
        "huber_loss": {"delta": 0.7},
        "smooth_l1_loss": {"beta": 0.7},
    }.items():
        case(
            f"nn.{_name}",
            lambda x, y, n=_name, r=_r, m=_more: getattr(ta.nn, n)(
                x, y, reduction=r, **m
            ),
            lambda x, y, n=_name, r=_r, m=_more: getattr(nn, n)(x, y, reduction=r, **m),
            (4, 3),
            (4, 3),
        )
    case(
        "nn.binary_cross_entropy_with_logits",
        lambda x, y, r=_r: ta.nn.binary_cross_entropy_with_logits(
            x, y, weight=_MASS, pos_weight=_MASS + 1, reduction=r
        ),
        lambda x, y, r=_r: nn.binary_cross_entropy_with_logits(
            x,
            y,
            weight=torch.tensor(_MASS),
            pos_weight=torch.tensor(_MASS + 1),
            reduction=r,
        ),
        (4, 3),
        np.linspace(0.05, 0.95, 12).reshape(4, 3),
    )
    case(
        "nn.mse_loss",
        lambda x, y, r=_r: ta.nn.mse_loss(x, y, reduction=r),
        lambda x, y, r=_r: nn.mse_loss(x, y, reduction=r),
        (4, 3),
        (4, 3),
    )


# ---- PyTorch by array API names ------------------------------------------------------


class Namespace:
    """What `programs.py` and `kinks.py` call, as the standard says it."""

    # PyTorch has no slices of negative step.
    programs: ClassVar[dict[str, Fn]] = {
        "index": lambda xp, x: torch.concat([torch.flip(x, (1,))[:1], x[1:]])
    }
    matmul = staticmethod(_matmul)
    permute_dims = staticmethod(torch.permute)
    expand_dims = staticmethod(lambda x, axis: x.unsqueeze(axis))
    flip = staticmethod(lambda x: torch.flip(x, tuple(range(x.ndim))))
    take = staticmethod(lambda x, at, axis: x.index_select(axis, at))
    sign = staticmethod(torch.sgn)
    sort = staticmethod(lambda x: torch.sort(x, stable=True).values)
    cumulative_prod = staticmethod(lambda x: torch.cumprod(x, 0))

    @staticmethod
    def max(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return _extremum("amax", x, axis, keepdims)

    @staticmethod
    def min(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return _extremum("amin", x, axis, keepdims)

    @staticmethod
    def prod(x: Any, axis: int | None = None, keepdims: bool = False) -> Any:
        return torch.prod(x) if axis is None else torch.prod(x, axis, keepdims)

    @staticmethod
    def var(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.var(x, axis, correction=0, keepdim=keepdims)

    @staticmethod
    def std(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return torch.std(x, axis, correction=0, keepdim=keepdims)

    @staticmethod
    def where(condition: Any, x: Any, y: Any) -> Any:
        return torch.where(condition, x, y)

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def _extremum(name: str, x: Any, axis: Any, keepdims: bool) -> Any:
    axes = tuple(range(x.ndim)) if axis is None else axis
    return getattr(torch, name)(x, axes, keepdims)


NAMESPACE = Namespace()
