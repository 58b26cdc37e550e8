"""What the user holds."""

from ._checkpoint import checkpoint
from ._dispatch import HANDLES
from ._eager import EagerTensor, ValueGuard
from ._forward import hvp, jvp
from ._functions import *
from ._make import as_tensor, asarray, variable
from ._pytrees import stop_gradient
from ._tape import Tape
from ._transforms import grad, value_and_grad, vjp
from ._update import Fused, exclusive, fused, update
