"""Calls of every function that the array API names, for any namespace `xp`.

Elementwise functions are called with every dtype (`UNARY`, `BINARY`); the others as the
table says. What a function may be given in its place is `take(xp, ...)`: a fixed array
of that shape and dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Call = Callable[[Any], Any]

DTYPES = (
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 "
    "float32 float64 complex64 complex128"
).split()
SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 4), (3, 4)),
    ((3, 1), (4,)),
    ((), (2, 3)),
    ((), ()),
    ((0, 3), (1,)),
]

UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 "
    "floor imag isfinite isinf isnan log log1p log2 log10 logical_not negative "
    "positive real reciprocal round sign signbit sin sinh square sqrt tan tanh trunc"
).split()
BINARY = (
    "add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift "
    "bitwise_xor copysign divide equal floor_divide greater greater_equal hypot less "
    "less_equal logaddexp logical_and logical_or logical_xor maximum minimum multiply "
    "nextafter not_equal pow remainder subtract"
).split()
REDUCTIONS = "all any argmax argmin count_nonzero max mean min prod std sum var".split()

# Results at special values; arguments of either sign, halves, infinities, NaN.
SPECIAL = [-np.inf, -2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, np.inf, np.nan]


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray[Any, Any]:
    """Fixed numbers in (0, 1) for floats, from 1 to 5 for integers."""
    rng = np.random.default_rng([seed, *shape])
    kind = np.dtype(dtype).kind
    if kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    if kind in "iu":
        return np.asarray(rng.integers(1, 6, shape), dtype)
    x = np.asarray(rng.uniform(0.1, 0.9, shape))
    if kind == "c":
        x = x + 1j * rng.uniform(-0.9, 0.9, shape)
    return np.asarray(x, dtype)


def take(xp: Any, shape: Any, dtype: str = "float64", seed: int = 0) -> Any:
    return xp.asarray(numbers(shape, dtype, seed))


def square(xp: Any, shape: Any, dtype: str = "float64", seed: int = 0) -> Any:
    """Well conditioned matrices."""
    return xp.asarray(
        numbers(shape, dtype, seed) + 2 * np.eye(shape[-1], dtype=np.dtype(dtype))
    )


def hermitian(xp: Any, shape: Any, dtype: str = "float64") -> Any:
    """Positive definite matrices."""
    x = numbers(shape, dtype)
    found = x @ np.conj(np.swapaxes(x, -1, -2)) + 2 * np.eye(shape[-1])
    return xp.asarray(np.asarray(found, dtype))


def several(xp: Any) -> list[Any]:
    return [take(xp, (2, 3)), take(xp, (2, 3), "float32", 1), take(xp, (2, 3), seed=2)]


def ints(xp: Any, *values: Any) -> Any:
    return xp.asarray(np.array(values, np.int64))


def each(fn: Callable[..., Any], *variants: Any) -> list[Call]:
    """One call for each variant."""
    return [lambda xp, v=v: fn(xp, v) for v in variants]


FLOATS = ("float32", "float64", "complex64", "complex128")
REALS = ("float32", "float64")


def _creation() -> dict[str, list[Call]]:
    return {
        "asarray": [
            *each(
                lambda xp, v: xp.asarray(v),
                True,
                3,
                1.5,
                2j,
                [[1, 2], [3, 4]],
                [1.0, 2],
                [True, False],
            ),
            *each(lambda xp, d: xp.asarray([0, 1], dtype=getattr(xp, d)), *DTYPES),
            lambda xp: xp.asarray(take(xp, (2, 3)), copy=True),
            lambda xp: xp.asarray(take(xp, (2, 3)), dtype=xp.float32),
        ],
        "from_dlpack": [lambda xp: xp.from_dlpack(np.arange(3.0))],
        "arange": [
            *each(
                lambda xp, a: xp.arange(*a), (5,), (2, 5), (1, 8, 3), (5, 0, -2), (0.5,)
            ),
            lambda xp: xp.arange(3, dtype=xp.float32),
            lambda xp: xp.arange(0, 1, 0.25),
            lambda xp: xp.arange(3, 1),
        ],
        "linspace": [
            lambda xp: xp.linspace(0, 1, 5),
            lambda xp: xp.linspace(0, 1, 5, endpoint=False),
            lambda xp: xp.linspace(0, 1j, 4),
            lambda xp: xp.linspace(2, 3, 4, dtype=xp.float32),
            lambda xp: xp.linspace(2, 3, 0),
        ],
        "eye": [
            lambda xp: xp.eye(3),
            lambda xp: xp.eye(2, 4, k=1, dtype=xp.int32),
            lambda xp: xp.eye(4, 2, k=-1),
        ],
        "full": [
            *each(lambda xp, v: xp.full((2, 3), v), True, 3, 1.5, 2j),
            lambda xp: xp.full(3, 1, dtype=xp.uint8),
        ],
        "full_like": [lambda xp: xp.full_like(take(xp, (2,), "float32"), 2)],
        "zeros": [
            lambda xp: xp.zeros((2, 3)),
            lambda xp: xp.zeros(0, dtype=xp.complex64),
        ],
        "zeros_like": [lambda xp: xp.zeros_like(take(xp, (2, 3), "int16"))],
        "ones": [lambda xp: xp.ones(()), lambda xp: xp.ones((2,), dtype=xp.bool)],
        "ones_like": [lambda xp: xp.ones_like(take(xp, (2, 3)), dtype=xp.complex128)],
        # Only the form of what is empty is said.
        "empty": [lambda xp: xp.empty((2, 0), dtype=xp.float32)],
        "empty_like": [lambda xp: xp.empty_like(take(xp, (0, 3), "int32"))],
        "meshgrid": each(
            lambda xp, i: xp.meshgrid(
                take(xp, (2,)), take(xp, (3,)), take(xp, (4,)), indexing=i
            ),
            "xy",
            "ij",
        ),
        "tril": each(lambda xp, k: xp.tril(take(xp, (2, 3, 4)), k=k), -1, 0, 2),
        "triu": each(lambda xp, k: xp.triu(take(xp, (2, 3, 4)), k=k), -1, 0, 2),
    }


def _dtypes() -> dict[str, list[Call]]:
    pairs = [(a, b) for a in DTYPES for b in DTYPES]
    kinds = (
        "bool",
        "signed integer",
        "unsigned integer",
        "integral",
        "real floating",
        "complex floating",
        "numeric",
        ("bool", "integral"),
    )
    return {
        "astype": each(
            lambda xp, v: xp.astype(take(xp, (3,), v[0]), getattr(xp, v[1])),
            *[(a, b) for a, b in pairs if "complex" not in a or "complex" in b],
        ),
        "can_cast": each(
            lambda xp, v: xp.can_cast(getattr(xp, v[0]), getattr(xp, v[1])),
            # Between kinds, casts beyond promotion are left open.
            *[(a, b) for a, b in pairs if np.dtype(a).kind == np.dtype(b).kind],
        ),
        "result_type": [
            *each(
                lambda xp, v: (
                    np.dtype(
                        xp.result_type(getattr(xp, v[0]), getattr(xp, v[1])).__str__()
                    )
                    if xp.__name__ == "tenferro_ad"
                    else xp.result_type(getattr(xp, v[0]), getattr(xp, v[1]))._np_dtype
                ),
                *pairs,
            ),
        ],
        "isdtype": each(
            lambda xp, v: xp.isdtype(getattr(xp, v[0]), v[1]),
            *[(d, k) for d in DTYPES for k in kinds],
        ),
        "finfo": each(
            lambda xp, d: [
                float(getattr(xp.finfo(getattr(xp, d)), n))
                for n in ("bits", "eps", "max", "min", "smallest_normal")
            ],
            *FLOATS,
        ),
        "iinfo": each(
            lambda xp, d: [
                int(getattr(xp.iinfo(getattr(xp, d)), n))
                for n in ("bits", "max", "min")
            ],
            *[d for d in DTYPES if "int" in d],
        ),
        "broadcast_shapes": each(
            lambda xp, v: xp.broadcast_shapes(*v), (), ((2, 1), (3,)), ((0,), (1,))
        ),
        "__array_namespace_info__": [
            lambda xp: sorted(xp.__array_namespace_info__().dtypes())
        ],
    }


def _manipulation() -> dict[str, list[Call]]:
    return {
        "broadcast_arrays": [
            lambda xp: xp.broadcast_arrays(take(xp, (3, 1)), take(xp, (4,)))
        ],
        "broadcast_to": [lambda xp: xp.broadcast_to(take(xp, (3, 1)), (2, 3, 4))],
        "concat": each(lambda xp, a: xp.concat(several(xp), axis=a), 0, 1, -1, None),
        "stack": each(lambda xp, a: xp.stack(several(xp), axis=a), 0, 1, -1),
        "unstack": each(lambda xp, a: xp.unstack(take(xp, (2, 3)), axis=a), 0, 1, -1),
        "expand_dims": each(
            lambda xp, a: xp.expand_dims(take(xp, (2, 3)), axis=a), 0, 1, -1, -3
        ),
        "squeeze": each(
            lambda xp, a: xp.squeeze(take(xp, (1, 3, 1)), axis=a), 0, -1, (0, 2)
        ),
        "flip": each(
            lambda xp, a: xp.flip(take(xp, (2, 3)), axis=a), None, 0, -1, (0, 1)
        ),
        "moveaxis": each(
            lambda xp, a: xp.moveaxis(take(xp, (2, 3, 4)), *a),
            (0, 2),
            (-1, 0),
            ((0, 1), (2, 0)),
        ),
        "permute_dims": [lambda xp: xp.permute_dims(take(xp, (2, 3, 4)), (2, 0, 1))],
        "matrix_transpose": [lambda xp: xp.matrix_transpose(take(xp, (2, 3, 4)))],
        "repeat": [
            lambda xp: xp.repeat(take(xp, (2, 3)), 2),
            lambda xp: xp.repeat(take(xp, (2, 3)), 2, axis=1),
            lambda xp: xp.repeat(take(xp, (2, 3)), ints(xp, 1, 0, 2), axis=1),
        ],
        "reshape": [
            lambda xp: xp.reshape(take(xp, (2, 3)), (3, 2)),
            lambda xp: xp.reshape(take(xp, (2, 3)), (-1,)),
            lambda xp: xp.reshape(take(xp, (2, 3)), (6, 1), copy=True),
        ],
        "roll": [
            lambda xp: xp.roll(take(xp, (2, 3)), 1),
            lambda xp: xp.roll(take(xp, (2, 3)), -1, axis=1),
            lambda xp: xp.roll(take(xp, (2, 3)), (1, 2), axis=(0, 1)),
        ],
        "tile": each(lambda xp, r: xp.tile(take(xp, (2, 3)), r), (2,), (2, 1, 2), ()),
        "take": [
            lambda xp: xp.take(take(xp, (4, 3)), ints(xp, 2, 0, 2), axis=0),
            lambda xp: xp.take(take(xp, (4,)), ints(xp, 1)),
        ],
        "take_along_axis": [
            lambda xp: xp.take_along_axis(
                take(xp, (2, 3)), ints(xp, [0, 2], [1, 1]), axis=1
            )
        ],
    }


def _reductions() -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    for name in REDUCTIONS:
        axes: tuple[Any, ...] = (None, 0, -1)
        if not name.startswith("arg"):
            axes = (*axes, (0, 2))
        found[name] = [
            lambda xp, n=name, a=a, k=k, d=d: getattr(xp, n)(
                take(xp, (2, 3, 4), d), axis=a, keepdims=k
            )
            for a in axes
            for k in (False, True)
            for d in DTYPES
        ]
    for name in ("sum", "prod"):
        found[name] += [
            lambda xp, n=name, d=d: getattr(xp, n)(
                take(xp, (2, 3), "float32"), dtype=getattr(xp, d)
            )
            for d in FLOATS
        ]
        found[name] += [lambda xp, n=name: getattr(xp, n)(take(xp, (0, 3)), axis=0)]
    for name in ("var", "std"):
        found[name] += [
            lambda xp, n=name: getattr(xp, n)(take(xp, (3, 4)), axis=1, correction=1),
            lambda xp, n=name: getattr(xp, n)(take(xp, (3, 4)), correction=0.5),
        ]
    for name in ("cumulative_sum", "cumulative_prod"):
        found[name] = [
            *[
                lambda xp, n=name, d=d: getattr(xp, n)(take(xp, (4,), d))
                for d in DTYPES
            ],
            lambda xp, n=name: getattr(xp, n)(
                take(xp, (3, 4)), axis=1, include_initial=True
            ),
            lambda xp, n=name: getattr(xp, n)(take(xp, (3,)), dtype=xp.float32),
        ]
    found["diff"] = [
        *[lambda xp, d=d: xp.diff(take(xp, (2, 5), d)) for d in DTYPES[1:]],
        *each(lambda xp, n: xp.diff(take(xp, (2, 5)), n=n), 0, 2, 4),
        lambda xp: xp.diff(take(xp, (3, 4)), axis=0),
        lambda xp: xp.diff(
            take(xp, (2, 3)), prepend=take(xp, (2, 1)), append=take(xp, (2, 2))
        ),
    ]
    return found


def _searching() -> dict[str, list[Call]]:
    def ranked(xp: Any) -> Any:
        return xp.asarray([[3, 1, 2], [1, 1, 0]])

    calls: dict[str, list[Call]] = {
        "where": [
            *each(
                lambda xp, v: xp.where(
                    take(xp, (2, 3), "bool"),
                    take(xp, (2, 3), v[0]),
                    take(xp, (3,), v[1]),
                ),
                *[(a, b) for a in DTYPES for b in DTYPES],
            ),
            lambda xp: xp.where(take(xp, (3,), "bool"), take(xp, (3,)), 0.0),
            lambda xp: xp.where(take(xp, (3,), "bool"), 1, take(xp, (3,), "int8")),
        ],
        "nonzero": [lambda xp: xp.nonzero(take(xp, (3, 4), "bool"))],
        "searchsorted": [
            *each(
                lambda xp, s: xp.searchsorted(
                    xp.asarray([1.0, 2.0, 2.0, 3.0]),
                    xp.asarray([2.0, 0.0, 9.0]),
                    side=s,
                ),
                "left",
                "right",
            ),
            lambda xp: xp.searchsorted(
                xp.asarray([3.0, 1.0, 2.0]),
                xp.asarray([[2.0], [1.5]]),
                sorter=ints(xp, 1, 2, 0),
            ),
        ],
        "isin": [
            lambda xp: xp.isin(ranked(xp), xp.asarray([1, 3])),
        ],
        "clip": [
            *each(
                lambda xp, v: xp.clip(take(xp, (3, 4), v[0]), *v[1]),
                *[
                    (d, b)
                    for d in DTYPES[1:11]
                    for b in ((2, 4), (None, 3), (2, None), (None, None))
                ],
            ),
            lambda xp: xp.clip(take(xp, (3, 4)), take(xp, (4,)), take(xp, (3, 1)) + 1),
            lambda xp: xp.clip(take(xp, (3,)), min=0.3),
        ],
    }
    for name in ("all", "counts", "inverse", "values"):
        calls[f"unique_{name}"] = [
            lambda xp, n=name: getattr(xp, f"unique_{n}")(ranked(xp)),
            lambda xp, n=name: getattr(xp, f"unique_{n}")(take(xp, (2, 3))),
        ]
    for name in ("sort", "argsort"):
        calls[name] = [
            lambda xp, n=name, a=a, d=d: getattr(xp, n)(
                ranked(xp), axis=a, descending=d
            )
            for a in (0, -1)
            for d in (False, True)
        ] + [lambda xp, n=name: getattr(xp, n)(take(xp, (5,)), stable=False)]
    return calls


def _linalg() -> dict[str, list[Call]]:
    def family(prefix: str) -> dict[str, list[Call]]:
        of: Callable[[Any], Any] = (lambda xp: xp.linalg) if prefix else (lambda xp: xp)
        return {
            prefix + "matmul": each(
                lambda xp, v: of(xp).matmul(take(xp, v[0], v[2]), take(xp, v[1], v[3])),
                ((2, 3), (3, 4), "float32", "float64"),
                ((3,), (3,), "float64", "complex64"),
                ((5, 2, 3), (3,), "int32", "int64"),
                ((2, 3), (5, 3, 2), "float64", "float64"),
            ),
            prefix + "tensordot": each(
                lambda xp, a: of(xp).tensordot(
                    take(xp, (2, 3, 4)), take(xp, (4, 3, 2)), axes=a
                ),
                0,
                1,
                ((1, 2), (1, 0)),
            ),
            prefix + "vecdot": each(
                lambda xp, v: of(xp).vecdot(
                    take(xp, (2, 3), v[0]), take(xp, (3,), v[0], 1), axis=v[1]
                ),
                ("float64", -1),
                ("complex128", -1),
                ("int64", -1),
            ),
        }

    found = {**family(""), **family("linalg.")}
    found["linalg.matrix_transpose"] = [
        lambda xp: xp.linalg.matrix_transpose(take(xp, (2, 3, 4)))
    ]
    stacks = [(s, d) for s in ((3, 3), (2, 3, 3), (0, 3, 3)) for d in FLOATS]
    for name in ("inv", "det", "slogdet", "pinv"):
        found[f"linalg.{name}"] = each(
            lambda xp, v, n=name: getattr(xp.linalg, n)(square(xp, *v)), *stacks
        )
    for name in ("cholesky", "eigvalsh"):
        found[f"linalg.{name}"] = each(
            lambda xp, v, n=name: getattr(xp.linalg, n)(hermitian(xp, *v)), *stacks
        )
    found["linalg.cholesky"] += [
        lambda xp: xp.linalg.cholesky(hermitian(xp, (3, 3)), upper=True)
    ]
    # Factors are unique up to signs: only what does not depend on them is compared.
    found["linalg.eigh"] = each(
        lambda xp, v: _of_eigh(xp, hermitian(xp, *v)), *stacks[:8]
    )
    found["linalg.svd"] = each(
        lambda xp, v: _of_svd(xp, take(xp, *v[:2]), v[2]),
        *[
            (s, d, f)
            for s in ((4, 3), (2, 3, 4))
            for d in FLOATS
            for f in (True, False)
        ],
    )
    found["linalg.qr"] = each(
        lambda xp, v: _of_qr(xp, take(xp, *v[:2]), v[2]),
        *[
            (s, d, m)
            for s in ((4, 3), (2, 3, 4))
            for d in FLOATS
            for m in ("reduced", "complete")
        ],
    )
    found["linalg.svdvals"] = each(
        lambda xp, v: xp.linalg.svdvals(take(xp, *v)),
        *[(s, d) for s in ((4, 3), (2, 3, 4)) for d in FLOATS],
    )
    found["linalg.solve"] = each(
        lambda xp, v: xp.linalg.solve(square(xp, v[0], v[2]), take(xp, v[1], v[2])),
        *[
            (a, b, d)
            for a, b in (((3, 3), (3,)), ((2, 3, 3), (3, 2)), ((3, 3), (2, 3, 1)))
            for d in FLOATS
        ],
    )
    found["linalg.cross"] = each(
        lambda xp, v: xp.linalg.cross(
            take(xp, v[0], v[2]), take(xp, v[1], v[2], 1), axis=v[3]
        ),
        ((2, 3), (2, 3), "float64", -1),
        ((3, 2), (3, 2), "complex64", 0),
        ((2, 3), (1, 3), "int64", -1),
    )
    found["linalg.diagonal"] = each(
        lambda xp, k: xp.linalg.diagonal(take(xp, (2, 3, 4)), offset=k), -1, 0, 2
    )
    found["linalg.trace"] = [
        *each(lambda xp, d: xp.linalg.trace(take(xp, (2, 3, 4), d)), *DTYPES[1:]),
        lambda xp: xp.linalg.trace(take(xp, (3, 3)), offset=1, dtype=xp.float32),
    ]
    found["linalg.outer"] = each(
        lambda xp, d: xp.linalg.outer(take(xp, (2,), d), take(xp, (3,), d)), *DTYPES[1:]
    )
    found["linalg.matrix_norm"] = each(
        lambda xp, v: xp.linalg.matrix_norm(
            take(xp, (2, 3, 4), v[0]), ord=v[1], keepdims=v[2]
        ),
        *[
            (d, o, k)
            for d in FLOATS
            for o in ("fro", "nuc", 1, 2, np.inf, -1, -2, -np.inf)
            for k in (False, True)
        ],
    )
    found["linalg.vector_norm"] = each(
        lambda xp, v: xp.linalg.vector_norm(
            take(xp, (2, 3, 4), v[0]), ord=v[1], axis=v[2], keepdims=v[3]
        ),
        *[
            (d, o, a, k)
            for d in FLOATS
            for o in (0, 1, 2, 3, np.inf, -np.inf, -1, 0.5)
            for a in (None, 1, (0, 2))
            for k in (False, True)
        ],
    )
    found["linalg.matrix_power"] = each(
        lambda xp, n: xp.linalg.matrix_power(square(xp, (2, 3, 3)), n), 0, 1, 5, -2
    )
    found["linalg.matrix_rank"] = [
        lambda xp: xp.linalg.matrix_rank(take(xp, (2, 3, 4))),
        lambda xp: xp.linalg.matrix_rank(xp.ones((3, 3))),
        lambda xp: xp.linalg.matrix_rank(square(xp, (3, 3)), rtol=0.9),
    ]
    return found


def _of_eigh(xp: Any, a: Any) -> Any:
    found = xp.linalg.eigh(a)
    w, v = found.eigenvalues, found.eigenvectors
    rebuilt = v @ (w[..., None] * xp.conj(xp.matrix_transpose(v)))
    return w, rebuilt, xp.abs(v)


def _of_svd(xp: Any, a: Any, full: bool) -> Any:
    found = xp.linalg.svd(a, full_matrices=full)
    u, s, vh = found.U, found.S, found.Vh
    k = s.shape[-1]
    return (
        xp.zeros(u.shape),
        xp.zeros(vh.shape),
        s,
        u[..., :k] * s[..., None, :] @ vh[..., :k, :],
    )


def _of_qr(xp: Any, a: Any, mode: str) -> Any:
    found = xp.linalg.qr(a, mode=mode)
    q, r = found.Q, found.R
    return xp.zeros(q.shape), xp.zeros(r.shape), q @ r, xp.abs(r)


def _fft() -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    norms = ("backward", "ortho", "forward")
    for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
        takes = ("float32", "float64") if name in ("rfft", "ihfft") else FLOATS[2:]
        found[f"fft.{name}"] = each(
            lambda xp, v, n=name: getattr(xp.fft, n)(
                take(xp, (3, 5), v[0]), n=v[1], axis=v[2], norm=v[3]
            ),
            *[
                (d, k, a, m)
                for d in takes
                for k in (None, 3, 8)
                for a in (0, -1)
                for m in norms
            ],
        )
    for name in ("fftn", "ifftn", "rfftn", "irfftn"):
        takes = ("float32", "float64") if name == "rfftn" else FLOATS[2:]
        found[f"fft.{name}"] = each(
            lambda xp, v, n=name: getattr(xp.fft, n)(
                take(xp, (3, 4, 5), v[0]), s=v[1], axes=v[2], norm=v[3]
            ),
            *[
                (d, s, a, m)
                for d in takes
                for s, a in ((None, None), ((2, 8), (0, 2)), (None, (1, 2)))
                for m in norms
            ],
        )
    for name in ("fftfreq", "rfftfreq"):
        found[f"fft.{name}"] = [
            lambda xp, n=name: getattr(xp.fft, n)(5),
            lambda xp, n=name: getattr(xp.fft, n)(8, d=0.25),
            lambda xp, n=name: getattr(xp.fft, n)(8, dtype=xp.float32),
        ]
    for name in ("fftshift", "ifftshift"):
        found[f"fft.{name}"] = each(
            lambda xp, a, n=name: getattr(xp.fft, n)(take(xp, (3, 4)), axes=a),
            None,
            0,
            (0, 1),
        )
    return found


CALLS: dict[str, list[Call]] = {
    **_creation(),
    **_dtypes(),
    **_manipulation(),
    **_reductions(),
    **_searching(),
    **_linalg(),
    **_fft(),
}
