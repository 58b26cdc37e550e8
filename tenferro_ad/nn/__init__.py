"""Functions of neural networks: channels first, PyTorch's semantics, keyword `axis`.

Everything here is a composition of the package's public functions, or one of them.
"""

from tenferro_ad import (
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cross_entropy,
    embedding,
    gelu,
    log_softmax,
    max_pool1d,
    max_pool2d,
    max_pool3d,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
    tanh,
)

from ._activations import elu, leaky_relu
from ._attention import scaled_dot_product_attention
from ._functional import layer_norm, linear
from ._losses import (
    binary_cross_entropy_with_logits,
    huber_loss,
    kl_div,
    l1_loss,
    mse_loss,
    nll_loss,
    smooth_l1_loss,
)
from ._normalisation import (
    batch_norm,
    batch_statistics,
    dropout,
    group_norm,
    rms_norm,
)
from ._resizing import adaptive_avg_pool, adaptive_max_pool, interpolate

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "linear",
    "embedding",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "adaptive_max_pool",
    "adaptive_avg_pool",
    "interpolate",
    "relu",
    "elu",
    "leaky_relu",
    "gelu",
    "silu",
    "softplus",
    "sigmoid",
    "tanh",
    "softmax",
    "log_softmax",
    "layer_norm",
    "rms_norm",
    "batch_norm",
    "batch_statistics",
    "group_norm",
    "dropout",
    "scaled_dot_product_attention",
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy_with_logits",
    "kl_div",
    "mse_loss",
    "l1_loss",
    "huber_loss",
    "smooth_l1_loss",
]
