"""Further rows in JAX: special functions, accumulation, ordering, transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.scipy.special as special

from tests.reference.jax_rows import COSTLY, JAX, NO_COUNTERPART, doubled

for _name in [
    "erfinv",
    "ndtr",
    "ndtri",
    "log_ndtr",
    "digamma",
    "gammaln",
    "gamma",
    "betainc",
    "betaln",
    "gammainc",
    "gammaincc",
    "i0",
    "i1",
    "i0e",
    "i1e",
    "xlogy",
    "xlog1py",
    "entr",
    "rel_entr",
    "kl_div",
    "logit",
    "zeta",
]:
    JAX[_name] = doubled(getattr(special, _name))
JAX["erfcinv"] = doubled(lambda x: special.erfinv(1 - x))
JAX["erfcx"] = doubled(lambda x: jnp.exp(x * x) * special.erfc(x))
JAX["log_expit"] = doubled(jax.nn.log_sigmoid)
for _name in ("dawsn", "j0", "j1", "jv", "iv", "ive", "gammaincinv", "betaincinv"):
    NO_COUNTERPART[_name] = "JAX has no such function"


# Long series, whose derivatives take XLA seconds to compile.
COSTLY |= {"betaln", "zeta", "ndtri", "erfcinv"}


# ---- along an axis -------------------------------------------------------------------
def directed(fn: Callable[..., Any]) -> Callable[..., Any]:
    def either(*args: Any) -> Any:
        *xs, axis, reverse = args
        if not reverse:
            return fn(*xs, axis)
        return jnp.flip(fn(*[jnp.flip(x, axis) for x in xs], axis), axis)

    return either


def _logs(x: Any, axis: int) -> Any:
    return jax.lax.cumlogsumexp(doubled(lambda v: v)(x), axis)


def _recurrence(a: Any, b: Any, axis: int) -> Any:
    dtype = jnp.result_type(a, b)
    dtype = dtype if dtype.kind in "fc" else jnp.float64
    found: list[Any] = []
    a, b = (jnp.moveaxis(v.astype(dtype), axis, 0) for v in (a, b))
    for k in range(a.shape[0]):
        found.append(b[k] if k == 0 else a[k] * found[-1] + b[k])
    return jnp.stack(found, axis) if found else jnp.moveaxis(b, 0, axis)


def _wide(x: Any) -> Any:
    """Sums and products of integers are 64 bits wide."""
    return x.astype(int) if x.dtype.kind in "bi" else x


JAX["cumulative_sum"] = directed(lambda x, axis: jnp.cumsum(_wide(x), axis))
JAX["cumulative_prod"] = directed(lambda x, axis: jnp.cumprod(_wide(x), axis))
JAX["cumulative_logsumexp"] = directed(_logs)
JAX["linear_recurrence"] = directed(_recurrence)
JAX["sort"] = lambda x, axis, descending, stable: jnp.sort(
    x, axis, stable=stable, descending=descending
)
JAX["argsort"] = lambda x, axis, descending, stable: jnp.argsort(
    x, axis, stable=stable, descending=descending
)
JAX["searchsorted"] = lambda x, values, side: jnp.searchsorted(
    x, values, side=side
).astype(int)

# ---- Fourier transforms --------------------------------------------------------------
JAX["fftn"] = lambda x, axes, norm: jnp.fft.fftn(x, axes=axes, norm=norm)
JAX["ifftn"] = lambda x, axes, norm: jnp.fft.ifftn(x, axes=axes, norm=norm)
JAX["rfftn"] = lambda x, axes, norm: jnp.fft.rfftn(x, axes=axes, norm=norm)


def _irfftn(x: Any, axes: Any, n: int, norm: str) -> Any:
    sizes = [*[x.shape[a] for a in axes[:-1]], n]
    return jnp.fft.irfftn(x, sizes, axes, norm)


JAX["irfftn"] = _irfftn

for _name in [
    "philox",
    "random_bits",
    "random_uniform",
    "random_normal",
    "random_integers",
    "poisson_quantile",
    "binomial_quantile",
]:
    NO_COUNTERPART[_name] = (
        "JAX draws other numbers; these have a second implementation"
    )
