"""Operators and methods of eager tensors; importing this module attaches them.

Operators are the bound operations themselves, so `x + y` costs no Python call beyond
the operation; only powers and reflected operators that do not commute need a wrapper.
There are no in-place operators: `x += y` computes `x + y` and rebinds the name.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from ..errors import InactiveTapeError, InvalidArgumentError, ShapeError
from ..tape import Gradients, TapeRecord
from . import _fn_elementwise as _elementwise
from . import _fn_indexing as _indexing
from . import _fn_movement as _movement
from . import _fn_reductions as _reductions
from ._at import At
from ._devices import to, to_device
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._interchange import dlpack_device, to_dlpack
from ._namespace import VERSIONS
from ._numpy_calls import array_function, array_ufunc
from ._tape import backward_from

Axis = _reductions.Axis


class Operators:
    """What `EagerTensor` gains here: for the type checker a base class, at run time the
    source that its members are copied from."""

    __slots__ = ()
    __dlpack__ = to_dlpack
    __dlpack_device__ = dlpack_device
    __array_ufunc__ = array_ufunc
    __array_function__ = array_function
    to = to
    to_device = to_device

    if TYPE_CHECKING:

        @property
        def shape(self) -> tuple[int, ...]: ...
        @property
        def ndim(self) -> int: ...

        def __add__(self, other: Any, /) -> EagerTensor: ...
        def __radd__(self, other: Any, /) -> EagerTensor: ...
        def __sub__(self, other: Any, /) -> EagerTensor: ...
        def __rsub__(self, other: Any, /) -> EagerTensor: ...
        def __mul__(self, other: Any, /) -> EagerTensor: ...
        def __rmul__(self, other: Any, /) -> EagerTensor: ...
        def __truediv__(self, other: Any, /) -> EagerTensor: ...
        def __rtruediv__(self, other: Any, /) -> EagerTensor: ...
        def __floordiv__(self, other: Any, /) -> EagerTensor: ...
        def __rfloordiv__(self, other: Any, /) -> EagerTensor: ...
        def __mod__(self, other: Any, /) -> EagerTensor: ...
        def __rmod__(self, other: Any, /) -> EagerTensor: ...
        def __matmul__(self, other: Any, /) -> EagerTensor: ...
        def __rmatmul__(self, other: Any, /) -> EagerTensor: ...
        def __pow__(self, other: Any, /) -> EagerTensor: ...
        def __rpow__(self, other: Any, /) -> EagerTensor: ...
        def __and__(self, other: Any, /) -> EagerTensor: ...
        def __rand__(self, other: Any, /) -> EagerTensor: ...
        def __or__(self, other: Any, /) -> EagerTensor: ...
        def __ror__(self, other: Any, /) -> EagerTensor: ...
        def __xor__(self, other: Any, /) -> EagerTensor: ...
        def __rxor__(self, other: Any, /) -> EagerTensor: ...
        def __lshift__(self, other: Any, /) -> EagerTensor: ...
        def __rlshift__(self, other: Any, /) -> EagerTensor: ...
        def __rshift__(self, other: Any, /) -> EagerTensor: ...
        def __rrshift__(self, other: Any, /) -> EagerTensor: ...
        def __lt__(self, other: Any, /) -> EagerTensor: ...
        def __le__(self, other: Any, /) -> EagerTensor: ...
        def __gt__(self, other: Any, /) -> EagerTensor: ...
        def __ge__(self, other: Any, /) -> EagerTensor: ...
        def __eq__(self, other: Any, /) -> EagerTensor: ...  # type: ignore[override]
        def __ne__(self, other: Any, /) -> EagerTensor: ...  # type: ignore[override]
        def __hash__(self) -> int: ...
        def __neg__(self) -> EagerTensor: ...
        def __pos__(self) -> EagerTensor: ...
        def __abs__(self) -> EagerTensor: ...
        def __invert__(self) -> EagerTensor: ...

    # -- methods: the functions of the same name ---------------------------------------

    def sum(
        self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False
    ) -> EagerTensor:
        """`ta.sum` of this tensor."""
        return _reductions.sum(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def prod(
        self, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False
    ) -> EagerTensor:
        """`ta.prod` of this tensor."""
        return _reductions.prod(self, axis=axis, dtype=dtype, keepdims=keepdims)

    def mean(self, axis: Axis = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.mean` of this tensor."""
        return _reductions.mean(self, axis=axis, keepdims=keepdims)

    def var(
        self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False
    ) -> EagerTensor:
        """`ta.var` of this tensor."""
        return _reductions.var(
            self, axis=axis, correction=correction, keepdims=keepdims
        )

    def std(
        self, axis: Axis = None, *, correction: float = 0.0, keepdims: bool = False
    ) -> EagerTensor:
        """`ta.std` of this tensor."""
        return _reductions.std(
            self, axis=axis, correction=correction, keepdims=keepdims
        )

    def max(self, axis: Axis = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.max` of this tensor."""
        return _reductions.max(self, axis=axis, keepdims=keepdims)

    def min(self, axis: Axis = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.min` of this tensor."""
        return _reductions.min(self, axis=axis, keepdims=keepdims)

    def any(self, axis: Axis = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.any` of this tensor."""
        return _reductions.any(self, axis=axis, keepdims=keepdims)

    def all(self, axis: Axis = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.all` of this tensor."""
        return _reductions.all(self, axis=axis, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.argmax` of this tensor."""
        return _reductions.argmax(self, axis=axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> EagerTensor:
        """`ta.argmin` of this tensor."""
        return _reductions.argmin(self, axis=axis, keepdims=keepdims)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> EagerTensor:
        """`ta.astype` of this tensor."""
        return _elementwise.astype(self, dtype, copy=copy)

    def __getitem__(self, key: Any) -> EagerTensor:
        """`ta.getitem` of this tensor: basic and integer-array indexing."""
        return _indexing.getitem(self, key)

    @property
    def at(self) -> At:
        """`x.at[key].set(v)` and `x.at[key].add(v)`: new values, `x` stays as it is."""
        assert isinstance(self, EagerTensor)
        return At(self)

    def reshape(self, *shape: Any, copy: bool | None = None) -> EagerTensor:
        """`ta.reshape` of this tensor; `x.reshape(2, 3)` and `x.reshape((2, 3))`."""
        whole = shape[0] if len(shape) == 1 else shape
        return _movement.reshape(self, whole, copy=copy)

    @property
    def T(self) -> EagerTensor:
        """The transpose of a matrix, as a view.

        Raises:
            ShapeError: not a matrix; stacks of matrices have `mT`.
        """
        if self.ndim != 2:
            raise ShapeError(
                operation="T",
                argument="self",
                found=f"shape {self.shape}",
                fix="use `x.mT` to transpose each matrix of a stack, or "
                "`ta.permute_dims`",
            )
        return _movement.permute_dims(self, (1, 0))

    @property
    def mT(self) -> EagerTensor:
        """The transpose of each matrix of a stack, as a view."""
        return _movement.matrix_transpose(self)

    def conj(self) -> EagerTensor:
        """`ta.conj` of this tensor."""
        return _elementwise.conj(self)

    @property
    def real(self) -> EagerTensor:
        """`ta.real` of this tensor."""
        return _elementwise.real(self)

    @property
    def imag(self) -> EagerTensor:
        """`ta.imag` of this tensor."""
        return _elementwise.imag(self)

    # -- recording and interchange -----------------------------------------------------

    def backward(
        self,
        cotangent: Any = None,
        *,
        retain: bool = False,
        strong_zero: bool | Literal["auto"] = "auto",
    ) -> Gradients:
        """Gradients of this value, on the tape that recorded it; see `Tape.backward`.

        Raises:
            InactiveTapeError: no tape recorded it.

        Cost: as `Tape.backward`.
        """
        core = getattr(self, "_link", None)
        if type(core) is not TapeRecord:
            raise InactiveTapeError(
                operation="backward",
                argument="self",
                found="a value that no tape recorded",
                fix="compute it from variables inside a `with ta.Tape()` block",
            )
        assert isinstance(self, EagerTensor)
        return backward_from(
            core, self, cotangent, retain=retain, strong_zero=strong_zero
        )

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """The module whose functions take this tensor (array API).

        Raises:
            InvalidArgumentError: a version of the standard that is not offered.

        Cost: no work.
        """
        if api_version is not None and api_version not in VERSIONS:
            raise InvalidArgumentError(
                operation="__array_namespace__",
                argument="api_version",
                found=f"{api_version!r}",
                fix=f"ask for one of {', '.join(VERSIONS)}, or for none",
            )
        return sys.modules[__name__.partition(".")[0]]


def _reflected(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, y: fn(y, x)


# Python name of the operator -> operation, and whether operands may be exchanged.
_BINARY: Final = {
    "add": ("add", True),
    "sub": ("sub", False),
    "mul": ("mul", True),
    "truediv": ("div", False),
    "floordiv": ("floor_divide", False),
    "mod": ("remainder", False),
    "matmul": ("matmul", False),
    "and": ("bitwise_and", True),
    "or": ("bitwise_or", True),
    "xor": ("bitwise_xor", True),
    "lshift": ("left_shift", False),
    "rshift": ("right_shift", False),
}
_OTHER: Final = {
    "eq": "equal",
    "ne": "not_equal",
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "neg": "neg",
    "pos": "accumulate",
    "abs": "abs",
    "invert": "bitwise_invert",
}


def _comparable(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """`x == None` and the like are no comparisons of values: Python answers them."""
    known = (EagerTensor, bool, int, float, complex, np.ndarray, np.generic)
    return lambda x, y: fn(x, y) if isinstance(y, known) else NotImplemented


def _attach() -> None:
    members = dict(vars(Operators))
    for name in ("__module__", "__qualname__", "__doc__", "__slots__", "__hash__"):
        members.pop(name, None)
    for python, (name, commutes) in _BINARY.items():
        op = members[f"__{python}__"] = getattr(HANDLES, name)
        members[f"__r{python}__"] = op if commutes else _reflected(op)
    for python, name in _OTHER.items():
        members[f"__{python}__"] = getattr(HANDLES, name)
    for python in ("eq", "ne"):
        members[f"__{python}__"] = _comparable(members[f"__{python}__"])
    members["__pow__"] = _elementwise.pow
    members["__rpow__"] = _reflected(_elementwise.pow)
    for name, value in members.items():
        setattr(EagerTensor, name, value)


_attach()
