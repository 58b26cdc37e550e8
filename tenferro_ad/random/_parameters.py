"""What draws with parameters share: shapes, dtypes and devices of their parameters."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import errors
from ..engine import HANDLES, EagerTensor, shape_of, tensors
from ..ops import broadcast_shapes
from ._draws import Shape, dtype_of
from ._keys import key_of


def inside(name: str, key: Any, shape: Shape, dtype: Any) -> EagerTensor:
    """Uniform numbers above 0 and below 1."""
    wanted, where = dtype_of(name, dtype, "dfe"), shape_of(name, shape)
    drawn = HANDLES.random_uniform(key_of(name, key), where, wanted)
    return HANDLES.maximum(drawn, float(np.finfo(wanted).eps) / 4)  # type: ignore[no-any-return]


def parameters(
    name: str, key: Any, shape: Shape | None, dtype: Any, **given: Any
) -> tuple[tuple[int, ...], Any, list[EagerTensor]]:
    """The shape of a draw, its dtype, and its parameters in that dtype.

    Args:
        shape: None means what the parameters broadcast to.
        dtype: None means what they promote to: float64, or what tensors have.
    """
    wanted, values = converted(name, key, dtype, **given)
    common = broadcast_shapes(name, *[v.shape for v in values])
    where = common if shape is None else shape_of(name, shape)
    ends = zip(reversed(common), reversed(where), strict=False)
    if len(common) > len(where) or any(a not in (1, b) for a, b in ends):
        raise errors.ShapeError(
            operation=name,
            argument="shape",
            found=f"{where} for parameters of shape {common}",
            fix="give a shape that the parameters broadcast to",
        )
    return where, wanted, values


def converted(
    name: str, key: Any, dtype: Any, **given: Any
) -> tuple[Any, list[EagerTensor]]:
    """Real parameters as tensors of one floating dtype, beside the key."""
    _, *values = tensors(key, *given.values())
    for argument, v in zip(given, values, strict=True):
        if v.dtype.kind not in "biuf":
            raise errors.DTypeError(
                operation=name,
                argument=argument,
                found=f"dtype {v.dtype}",
                fix="pass real numbers",
            )
    if dtype is None:
        found = np.result_type(*[v.dtype for v in values])
        dtype = found if found.kind == "f" else np.float64
    wanted = dtype_of(name, dtype, "dfe")
    return wanted, [
        v if v.dtype == wanted else HANDLES.astype(v, wanted) for v in values
    ]
