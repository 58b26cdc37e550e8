"""How values come in: constants, variables, moved tensors."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from .._aval import aval_of
from ..errors import (
    DTypeError,
    IntegerInputError,
    InvalidArgumentError,
    TenferroError,
    TracedConversionError,
    a_kind,
    type_name,
)
from ..ops import TO_DEVICE
from ..runtime import brought, device_of, host_aval
from ..storage import (
    Tensor,
    TensorView,
    TensorViewMut,
    TypedTensor,
    TypedTensorView,
    TypedTensorViewMut,
    record_of,
)
from ..tape import Leaf, hold
from ._dispatch import HANDLES
from ._eager import EagerTensor, constant
from ._numbers import dtype_of, need_parts
from ._value_guard import ValueGuard

_VIEWS = (TensorView, TensorViewMut, TypedTensorView, TypedTensorViewMut, ValueGuard)


def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> EagerTensor:
    """A constant from outside data, or the tensor itself.

    Args:
        obj: a number, nested sequence, NumPy array (copied in: one `Transfer`), a
            `Tensor` (moves in as it is; with `copy=True` it stays and is copied), or an
            eager tensor: the same value, tracked as it was, without an event unless
            `copy=True` (one `ExplicitDuplicate`).
        dtype: convert to this dtype.
        device: where the value lives; by default where it is, and of outside data the
            default device.
        copy: True always copies, False never (raises where a copy is needed), None
            copies outside data only.

    Raises:
        DTypeError: not a numeric or boolean array.
        InvalidArgumentError: `copy=False` for data that must be copied, or no such
            device.

    Cost: outside data allocates and copies once. Everything else is free, but for one
        output of another dtype and one `Transfer` to another device.
    """
    if isinstance(obj, EagerTensor):
        return _as_asked(obj, dtype, device, copy)
    if isinstance(obj, Tensor | TypedTensor):
        return _moved(obj, dtype, device, copy)
    if isinstance(obj, _VIEWS):
        raise DTypeError(
            operation="asarray",
            argument="obj",
            found="a borrowed view",
            fix="use `view.duplicate()` to get an owner, then `ta.asarray(owner)`",
        )
    array = outside(obj, None if dtype is None else dtype_of("asarray", dtype))
    if array.dtype.kind not in "biufc" or array.dtype.char in "gG":
        raise DTypeError(
            operation="asarray",
            argument="obj",
            found=f"data of dtype {array.dtype}",
            fix="pass numbers of at most double precision, or booleans",
        )
    if copy is False:
        raise InvalidArgumentError(
            operation="asarray",
            argument="copy",
            found="`copy=False` for memory that somebody else may write",
            fix="pass `copy=None`, or use `ta.unsafe.import_array` and keep its duties",
        )
    return constant(brought(array, host_aval(array, device), "asarray"))


def _as_asked(
    x: EagerTensor, dtype: Any, device: Any, copy: bool | None
) -> EagerTensor:
    """A tensor on the device, of the dtype and, if asked, with memory of its own."""
    target = x.device if device is None else device_of(device, "asarray")
    wanted = x.dtype if dtype is None else dtype_of("asarray", dtype)
    need_parts("asarray", x.dtype, wanted)
    is_other = target is not x.device or wanted != x.dtype
    if copy is False and is_other:
        raise InvalidArgumentError(
            operation="asarray",
            argument="copy",
            found="`copy=False` for another dtype or device than the value's",
            fix="pass `copy=None`, or ask for neither",
        )
    value: EagerTensor = x
    if target is not x.device:
        value = HANDLES[TO_DEVICE](x, target)
    if wanted != x.dtype:
        value = HANDLES.astype(value, wanted)
    return HANDLES.duplicate(x) if copy and not is_other else value


def outside(
    x: Any, dtype: Any = None, operation: str = "asarray", argument: str = "obj"
) -> np.ndarray[Any, Any]:
    """Outside data as an array, with refusals that say what to do."""
    if isinstance(x, np.ma.MaskedArray):
        raise DTypeError(
            operation=operation,
            argument=argument,
            found="a masked array, whose mask would be lost",
            fix="pass `x.filled(value)`, and the mask as an array of its own",
        )
    try:
        with nullcontext() if dtype is None else np.errstate(all="ignore"):
            return np.asarray(x, dtype=dtype)
    except TracedConversionError as error:  # of a tensor in a list
        raise TracedConversionError(
            operation=operation,
            argument=argument,
            found=f"a list with {error.found}",
            fix="join tensors with `ta.stack` or `ta.concat`, which record",
        ) from None
    except TenferroError:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        wanted = "" if dtype is None else f" for dtype `{dtype}`"
        raise DTypeError(
            operation=operation,
            argument=argument,
            found=f"{a_kind(x)} that makes no array{wanted} ({error})",
            fix="pass numbers in rows of equal length, and a dtype that holds them"
            if isinstance(x, Sequence)
            else "convert it to a NumPy array first",
        ) from None


def as_tensor(x: Any, device: Any = None) -> EagerTensor:
    """`x` itself if it is a tensor, else a constant made of it (see `asarray`).

    Args:
        device: where outside data goes; the default device if None.
    """
    return x if type(x) is EagerTensor else asarray(x, device=device)


def device_in(xs: Sequence[Any]) -> Any:
    """Where outside data among these goes: to the first tensor's device."""
    return next((x.device for x in xs if type(x) is EagerTensor), None)


def tensors(*xs: Any) -> tuple[EagerTensor, ...]:
    """Operands as tensors: outside data goes to the device of the first tensor."""
    device = device_in(xs)
    return tuple([as_tensor(x, device) for x in xs])


def cast(operation: str, x: Any, dtype: Any) -> EagerTensor:
    """`x` as a tensor of a dtype; itself where that is its own, or none is given.

    Raises:
        DTypeError: not a dtype, or a real one for complex values.
    """
    x = as_tensor(x)
    if dtype is None or (wanted := dtype_of(operation, dtype)) == x.dtype:
        return x  # type: ignore[no-any-return]
    need_parts(operation, x.dtype, wanted)
    return HANDLES.astype(x, wanted)  # type: ignore[no-any-return]


def several(operation: str, arrays: Any, least: int = 1) -> list[EagerTensor]:
    """A sequence of operands as tensors, at least so many.

    Raises:
        DTypeError: not a sequence. InvalidArgumentError: fewer.
    """
    if not hasattr(arrays, "__iter__") or getattr(arrays, "ndim", 1) == 0:
        raise DTypeError(
            operation=operation,
            argument="arrays",
            found=f"an object of type `{type_name(arrays)}`",
            fix="pass a list of tensors",
        )
    xs = list(tensors(*arrays))
    if len(xs) < least:
        raise InvalidArgumentError(
            operation=operation,
            argument="arrays",
            found=f"{len(xs)} values" if xs else "no value",
            fix=f"pass at least {'one' if least == 1 else least}",
        )
    return xs


def _moved(tensor: Any, dtype: Any, device: Any, copy: bool | None) -> EagerTensor:
    """The owner as a handle; a copy of it if that is asked for."""
    aval = aval_of(tensor.shape, tensor.dtype, tensor.device)
    wanted = aval.dtype if dtype is None else dtype_of("asarray", dtype)
    target = aval.device if device is None else device_of(device, "asarray")
    if wanted != aval.dtype or target is not aval.device:
        # The conversion may fail, and the owner would be gone.
        name = "dtype" if wanted != aval.dtype else "device"
        raise InvalidArgumentError(
            operation="asarray",
            argument=name,
            found=f"another {name} than that of a `Tensor`, which moves in as it is",
            fix="convert the handle: `ta.astype(ta.asarray(t), dtype)`"
            if name == "dtype"
            else "move the handle: `ta.asarray(t).to(device)`",
        )
    owner = tensor.duplicate() if copy else tensor
    if isinstance(owner, TypedTensor):
        owner = owner.erase()
    return constant(record_of(owner, aval, "asarray"))


def variable(x: Any, *, dtype: Any = None) -> EagerTensor:
    """A differentiable leaf.

        w = ta.variable([1.0, 2.0])

    Args:
        x: outside data (copied in), a `Tensor` (moves in: no copy), or a constant
            (shared: no copy).
        dtype: convert to this dtype.

    Raises:
        TracedConversionError: `x` is tracked: a leaf is where a derivative ends.
        IntegerInputError: integers and booleans have no derivative.

    Cost: as `asarray`.
    """
    if isinstance(x, EagerTensor) and x.is_tracked:
        raise TracedConversionError(
            operation="variable",
            argument="x",
            found=f"a tracked value of shape {x.shape}, which would lose its history",
            fix="use it as it is, or take `ta.stop_gradient(x)` first",
        )
    value = asarray(x, dtype=dtype)
    if value.dtype.kind not in "fc":
        raise IntegerInputError(
            operation="variable",
            argument="x",
            found=f"dtype {value.dtype}",
            fix="convert it: `ta.variable(x, dtype=ta.float64)`",
        )
    return EagerTensor(hold(value._record), Leaf(), -1, None)
