"""Rows in JAX: linear algebra. Factors of LU are constants of rows that take them."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import jax.scipy.linalg as linalg
from jax import lax

from tests.reference.jax_rows import JAX, NO_COUNTERPART


def _adjoint(x: Any) -> Any:
    return jnp.conj(jnp.swapaxes(x, -1, -2))


JAX["cholesky"] = jnp.linalg.cholesky
JAX["eigh"] = lambda x, gap: tuple(jnp.linalg.eigh(x))
JAX["svd"] = lambda x, full, gap: tuple(jnp.linalg.svd(x, full))
JAX["qr"] = lambda x, complete: tuple(
    jnp.linalg.qr(x, "complete" if complete else "reduced")
)
JAX["inv"] = jnp.linalg.inv
JAX["expm"] = lambda x: linalg.expm(x) if x.size else x
JAX["pinv"] = lambda x, rtol: jnp.linalg.pinv(x, rtol=rtol)
JAX["solve_triangular"] = lambda a, b, upper, adj, unit: lax.linalg.triangular_solve(
    a,
    b,
    left_side=True,
    lower=not upper,
    transpose_a=adj,
    conjugate_a=adj,
    unit_diagonal=unit,
)
JAX["lu_solve"] = lambda a, b, lu, rows, adj: jnp.linalg.solve(
    _adjoint(a) if adj else a, b
)
JAX["det"] = lambda a, lu, rows: jnp.linalg.det(a)
JAX["slogdet"] = lambda a, lu, rows: tuple(jnp.linalg.slogdet(a))


def _vector_norm(x: Any, order: float, axes: Any, keepdims: bool) -> Any:
    size = jnp.sum(jnp.abs(x) ** order, axis=axes, keepdims=keepdims)
    return size ** (1 / order)


JAX["vector_norm"] = _vector_norm
NO_COUNTERPART["eig"] = "JAX normalises eigenvectors in another way"
NO_COUNTERPART["lu_factor"] = "JAX gives pivots as well; `linalg.lu` is compared"
NO_COUNTERPART["cofactors"] = "a derivative of `det`, which is compared"
NO_COUNTERPART["cofactors_moved"] = "a derivative of `det`, which is compared"
