"""What the user holds."""

from ._checkpoint import checkpoint
from ._dispatch import HANDLES
from ._eager import EagerTensor, ValueGuard
from ._functions import *
from ._make import as_tensor, asarray, variable
from ._tape import Tape
from ._transforms import grad, hvp, jvp, stop_gradient, value_and_grad, vjp
from ._update import Fused, exclusive, fused, update
