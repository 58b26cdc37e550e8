"""Functions of neural networks: channels first, PyTorch's semantics, keyword `axis`.

Everything here is a composition of the package's public functions, or one of them.
"""

from tenferro_ad import (
    avg_pool2d,
    conv1d,
    conv2d,
    conv3d,
    cross_entropy,
    embedding,
    gelu,
    log_softmax,
    max_pool2d,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)

from ._functional import layer_norm, linear, mse_loss, nll_loss

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "linear",
    "embedding",
    "max_pool2d",
    "avg_pool2d",
    "relu",
    "gelu",
    "silu",
    "softplus",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
    "layer_norm",
    "cross_entropy",
    "nll_loss",
    "mse_loss",
]
