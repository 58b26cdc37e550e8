"""Optimisers that update parameters in place under exclusive access.

Written with the public API only. `opt.update(params, grads)` changes the variables of a
pytree in place: in the steady state it allocates and copies nothing. A parameter that
somebody else still holds raises `NotUniqueError` before anything changed.
"""

from ._optimizers import SGD, Adam

__all__ = ["SGD", "Adam"]
