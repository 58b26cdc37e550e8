"""What the user holds: eager tensors, tapes, transforms, checkpoints, functions."""

from . import (
    _fn_convolution,
    _fn_creation,
    _fn_cumulative,
    _fn_dtypes,
    _fn_einsum,
    _fn_elementwise,
    _fn_indexing,
    _fn_joining,
    _fn_linalg,
    _fn_movement,
    _fn_nn,
    _fn_norms,
    _fn_pooling,
    _fn_products,
    _fn_quantiles,
    _fn_reductions,
    _fn_reinterpret,
    _fn_scatter,
    _fn_solve,
    _fn_sorting,
    _namespace,
    _operators,  # noqa: F401  (attaches operators and methods)
)
from ._axes import axes_of, axis_of, extents, int_of, shape_of
from ._branches import cond as branch  # `cond` is the one of a matrix
from ._branches import switch
from ._checkpoint import checkpoint
from ._compile import Compiled, compile
from ._custom import custom_jvp, custom_vjp
from ._devices import default_device, devices
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._fn_convolution import *
from ._fn_creation import *
from ._fn_cumulative import *
from ._fn_dtypes import *
from ._fn_einsum import *
from ._fn_elementwise import *
from ._fn_indexing import *
from ._fn_joining import *
from ._fn_linalg import *
from ._fn_movement import *
from ._fn_nn import *
from ._fn_norms import *
from ._fn_pooling import *
from ._fn_products import *
from ._fn_quantiles import *
from ._fn_reductions import *
from ._fn_reinterpret import *
from ._fn_scatter import *
from ._fn_solve import *
from ._fn_sorting import *
from ._forward import hvp, jvp
from ._interchange import dlpack_device, from_dlpack, host_array_of, to_dlpack
from ._jacobians import hessian, jacfwd, jacrev
from ._linearize import linear_transpose, linearize
from ._loops import scan
from ._make import as_tensor, asarray, tensors, variable
from ._named_sizes import SymbolicProgram
from ._named_sizes import trace as program_of  # `trace` is the one of a matrix
from ._namespace import *
from ._numbers import dtype_of, real_of
from ._other_names import missing_in as missing_in
from ._other_names import name_elsewhere as name_elsewhere
from ._plan import Plan, plan
from ._pytrees import numbers_of, stop_gradient
from ._registration import Operation as Operation
from ._registration import forget_op as forget_op
from ._registration import operation_of as operation_of
from ._registration import register_op
from ._tape import Tape
from ._trace import Spec, TracedProgram
from ._transforms import grad, value_and_grad, vjp
from ._update import Fused, exclusive, fused, update
from ._value_guard import ValueGuard
from ._vmap import vmap
from ._while import fori_loop, while_loop

__all__ = [
    # tensors
    "EagerTensor",
    "Spec",
    "SymbolicProgram",
    "TracedProgram",
    "Compiled",
    "Plan",
    "ValueGuard",
    "as_tensor",
    "tensors",
    "asarray",
    "dlpack_device",
    "from_dlpack",
    "host_array_of",
    "to_dlpack",
    "compile",
    "plan",
    "program_of",
    "variable",
    # where values live
    "default_device",
    "devices",
    # reading arguments
    "axes_of",
    "dtype_of",
    "real_of",
    "axis_of",
    "extents",
    "int_of",
    "numbers_of",
    "shape_of",
    # recording and transforms
    "HANDLES",
    "Tape",
    "checkpoint",
    "grad",
    "hessian",
    "hvp",
    "jacfwd",
    "jacrev",
    "jvp",
    "scan",
    "branch",
    "register_op",
    "custom_jvp",
    "custom_vjp",
    "fori_loop",
    "switch",
    "while_loop",
    "linear_transpose",
    "linearize",
    "stop_gradient",
    "value_and_grad",
    "vjp",
    "vmap",
    # in place
    "Fused",
    "exclusive",
    "fused",
    "update",
]
__all__ += _fn_convolution.__all__
__all__ += _fn_creation.__all__
__all__ += _fn_cumulative.__all__
__all__ += _fn_dtypes.__all__
__all__ += _fn_einsum.__all__
__all__ += _fn_elementwise.__all__
__all__ += _fn_indexing.__all__
__all__ += _fn_joining.__all__
__all__ += _fn_linalg.__all__
__all__ += _fn_movement.__all__
__all__ += _fn_nn.__all__
__all__ += _fn_norms.__all__
__all__ += _fn_pooling.__all__
__all__ += _fn_products.__all__
__all__ += _fn_quantiles.__all__
__all__ += _fn_reductions.__all__
__all__ += _fn_reinterpret.__all__
__all__ += _fn_scatter.__all__
__all__ += _fn_solve.__all__
__all__ += _fn_sorting.__all__
__all__ += _namespace.__all__
