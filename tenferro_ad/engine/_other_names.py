"""What other libraries call things that this package calls differently.

Whoever asks for a name that is not here gets an `AttributeError`, as anywhere, and its
text says what there is instead: the same function in another namespace, another name,
or the way it is done here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final, NoReturn, final

_ROOMS: Final = ("linalg", "fft", "special", "random", "nn", "optim")
# Functions: theirs, and ours.
_OURS: Final = {
    "absolute": "abs",
    "amax": "max",
    "amin": "min",
    "arccos": "acos",
    "arccosh": "acosh",
    "arcsin": "asin",
    "arcsinh": "asinh",
    "arctan": "atan",
    "arctan2": "atan2",
    "arctanh": "atanh",
    "array": "asarray",
    "bmm": "matmul",
    "cat": "concat",
    "concatenate": "concat",
    "conjugate": "conj",
    "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum",
    "from_numpy": "asarray",
    "GradientTape": "Tape",
    "invert": "bitwise_invert",
    "jacobian": "jacrev",
    "jit": "compile",
    "mm": "matmul",
    "permute": "permute_dims",
    "power": "pow",
    "rint": "round",
    "tensor": "asarray",
    "transpose": "permute_dims",
    "true_divide": "divide",
    "unsqueeze": "expand_dims",
    "Variable": "variable",
    "view": "reshape",
}
_WRITING: Final = "make a new value with `x.at`, or write with `ta.exclusive(x)`"
# What is done in another way, in the package and with a tensor.
_WAYS: Final = {
    "as_view": "call `x.value()`, which lends a view",
    "as_view_mut": _WRITING,
    "bfloat16": "this dtype does not exist here; use `ta.float32`",
    "copy": "call `x.clone()` for a handle, `x.duplicate_value()` for a copy",
    "cpu": 'call `x.to("cpu")`',
    "cuda": "call `x.to(device)` with a name of `ta.devices()`",
    "data": "read with `x.value()`; write with `ta.exclusive(w)`",
    "dot": "use `x @ y`, or `ta.vecdot`",
    "detach": "call `ta.stop_gradient(x)`",
    "double": "call `x.astype(ta.float64)`",
    "duplicate": "call `x.duplicate_value()`",
    "fill": _WRITING,
    "flatten": "call `x.reshape(-1)`",
    "float": "call `x.astype(ta.float32)`",
    "half": "call `x.astype(ta.float16)`",
    "load": "see guides/saving-and-loading in the documentation",
    "manual_seed": "there is no global state; draw with a key of `ta.random.key`",
    "no_grad": "nothing is recorded outside a `ta.Tape()` or a transform",
    "ravel": "call `x.reshape(-1)`",
    "requires_grad": "make a leaf with `ta.variable(x)`",
    "requires_grad_": "make a leaf with `ta.variable(x)`",
    "save": "see guides/saving-and-loading in the documentation",
    "seed": "there is no global state; draw with a key of `ta.random.key`",
    "write": _WRITING,
    "zero_": _WRITING,
}
_OF_TENSORS: Final = {
    "grad": "`tape.backward` gives a bundle; read `grads.grad(w)`",
    "t": "use `ta.matrix_transpose`",
    "retain_grad": "call `tape.retain(x)`, or differentiate by `x` as a variable",
}
_CLASSES: Final = {
    "linear": "linear",
    "relu": "relu",
    "conv1d": "conv1d",
    "conv2d": "conv2d",
    "conv3d": "conv3d",
    "dropout": "dropout",
    "embedding": "embedding",
    "layernorm": "layer_norm",
    "batchnorm1d": "batch_norm",
    "batchnorm2d": "batch_norm",
    "groupnorm": "group_norm",
    "maxpool2d": "max_pool2d",
    "avgpool2d": "avg_pool2d",
    "gelu": "gelu",
    "silu": "silu",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "softmax": "softmax",
    "crossentropyloss": "cross_entropy",
    "mseloss": "mse_loss",
    "l1loss": "l1_loss",
    "nllloss": "nll_loss",
    "bcewithlogitsloss": "binary_cross_entropy_with_logits",
}
_LAYERS: Final = frozenset({"module", "sequential", "parameter", "modulelist"})


def public_name(name: str) -> str | None:
    """What the package calls a function of another library: `ta.linalg.inv`."""
    package = sys.modules[__name__.partition(".")[0]]
    ours = _OURS.get(name, name)
    if ours in package.__all__ and ours not in _ROOMS:
        return f"ta.{ours}"
    for room in _ROOMS:
        if ours in getattr(package, room).__all__:
            return f"ta.{room}.{ours}"
    return None


def _in_room(room: str, name: str) -> str | None:
    """Layers as classes, for those who know them: here they are functions."""
    if room != "nn":
        return None
    low = name.lower()
    if low in _LAYERS:
        return "a model is a pytree of variables and a function; see tutorials/models"
    ours = _CLASSES.get(low)
    return ours and f"it is a function of its parameters: `ta.nn.{ours}`"


def missing_in(module: str) -> Callable[[str], Any]:
    """`__getattr__` of a public module of the package: names that it lacks."""

    def missing(name: str) -> NoReturn:
        said = f"module '{module}' has no attribute '{name}'"
        hint = _in_room(module.rpartition(".")[2], name) or _hint(name)
        raise _error(said, hint, name, sys.modules[module])

    return missing


class OtherNames:
    """Base of tensors: names that they lack and other libraries' tensors have.

    Each name stands for itself, because a class with `__getattr__` is slower at every
    attribute that it has.
    """

    __slots__ = ()

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self)} - {*vars(OtherNames)})


@final
class _Elsewhere:
    """One such name: whoever asks for it gets an `AttributeError`."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, x: Any, kind: type) -> NoReturn:
        name = self._name
        what = f"'{kind.__name__}' object"
        if x is None:
            x, what = kind, f"type object '{kind.__name__}'"
        said = f"{what} has no attribute '{name}'"
        raise _error(said, _OF_TENSORS.get(name) or _hint(name), name, x)


def name_elsewhere(kind: type) -> None:
    """Let `OtherNames` know what `kind` lacks, once the package has all its names."""
    package = sys.modules[__name__.partition(".")[0]]
    rooms = [package, *[getattr(package, room) for room in _ROOMS]]
    functions = [name for room in rooms for name in room.__all__ if name.islower()]
    for name in (*_OURS, *_WAYS, *_OF_TENSORS, *functions):
        if not hasattr(kind, name):
            setattr(OtherNames, name, _Elsewhere(name))


def _hint(name: str) -> str | None:
    if name.startswith("_"):
        return None
    ours = public_name(name)
    return _WAYS.get(name) or (ours and f"use `{ours}`")


def _error(said: str, hint: str | None, name: str, obj: Any) -> AttributeError:
    text = f"{said}. {hint[:1].upper()}{hint[1:]}." if hint else said
    return AttributeError(text, name=name, obj=obj)
