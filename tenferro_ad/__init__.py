"""Automatic differentiation that knows where every byte goes."""

from ._ledger import ledger, forbid
from .engine import *
from .engine import (
    HANDLES,
    EagerTensor,
    asarray,
    variable,
    Tape,
    checkpoint,
    grad,
    hvp,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
    Fused,
    exclusive,
    fused,
    update,
)
from .storage import Tensor, TensorView, TensorViewMut
from . import errors
