"""Agreement of whole-function transforms with JAX: `vmap`, Jacobians, Hessians, linear
maps, and their nestings, over pytrees. JAX gives the conjugate of our gradients."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optree
import pytest

import tenferro_ad as ta
from tests.ops.samples import close
from tests.reference.programs import Program
from tests.reference.test_jax import compile_and_run

RNG = np.random.default_rng(23)
Fn = Callable[..., Any]


def compare(seen: Any, wanted: Any, tolerance: float = 1e-10) -> None:
    """Equal pytrees, to `tolerance` times the largest number of each tensor."""
    leaves, treedef = optree.tree_flatten(seen, namespace="tenferro_ad")
    others, structure = optree.tree_flatten(wanted)
    assert treedef.paths() == structure.paths()
    for y, w in zip(leaves, others, strict=True):
        close(np.asarray(y), np.asarray(w), tolerance)


# ---- random programs -----------------------------------------------------------------


def stacked(program: Program, size: int) -> list[Any]:
    """Examples near the program's inputs."""
    return [
        np.stack([x * (1 + 0.03 * k) + 0.01 * k for k in range(size)], -1)
        for x in program.inputs
    ]


@pytest.mark.parametrize("seeds", [range(k, k + 20) for k in range(0, 80, 20)])
def test_random_programs_for_each_example(seeds: range) -> None:
    """Value, gradient and Jacobian-vector product inside `vmap`, batch axis last."""
    programs = [Program.random(seed) for seed in seeds]
    stacks = [stacked(p, 3) for p in programs]

    def theirs(stacks: Any) -> Any:
        def one(p: Program) -> Fn:
            def run(xs: Any) -> Any:
                value, grads = jax.value_and_grad(lambda v: p.run(jnp, v))(xs)
                return value, grads, jax.jvp(lambda v: p.run(jnp, v), (xs,), (xs,))[1]

            return run

        return [
            jax.vmap(one(p), in_axes=-1)(xs)
            for p, xs in zip(programs, stacks, strict=True)
        ]

    wanted = compile_and_run(theirs, stacks)
    for seed, program, xs, reference in zip(
        seeds, programs, stacks, wanted, strict=True
    ):

        def ours(v: Any, p: Program = program) -> Any:
            def f(v: Any) -> Any:
                return p.run(ta, v)

            return f(v), ta.grad(f)(v), ta.jvp(f, (v,), (v,))[1]

        try:
            compare(ta.vmap(ours, in_axes=-1)(xs), reference)
        except Exception as error:
            error.add_note(f"seed {seed}:\n{program}")
            raise


@pytest.mark.parametrize("seeds", [range(k, k + 10) for k in range(0, 40, 10)])
def test_hessians_of_random_programs(seeds: range) -> None:
    programs = [Program.random(seed) for seed in seeds]

    def theirs(inputs: Any) -> Any:
        return [
            jax.hessian(lambda v, p=p: p.run(jnp, v))(list(xs))
            for p, xs in zip(programs, inputs, strict=True)
        ]

    wanted = compile_and_run(theirs, [p.inputs for p in programs])
    for seed, program, reference in zip(seeds, programs, wanted, strict=True):
        for chunk_size in (None, 2):
            found = ta.hessian(
                lambda v, p=program: p.run(ta, v), chunk_size=chunk_size
            )(list(program.inputs))
            try:
                compare(found, reference, 1e-9)
            except Exception as error:
                error.add_note(f"seed {seed}:\n{program}")
                raise


# ---- networks ------------------------------------------------------------------------


def mlp(xp: Any, params: Any, x: Any) -> Any:
    for layer in params[:-1]:
        x = xp.tanh(x @ layer["w"] + layer["b"])
    return x @ params[-1]["w"] + params[-1]["b"]


def mlp_params(*sizes: int) -> Any:
    return [
        {"w": RNG.normal(size=(a, b)) / a**0.5, "b": RNG.normal(size=b)}
        for a, b in pairwise(sizes)
    ]


def mlp_loss(xp: Any, params: Any, x: Any, y: Any) -> Any:
    return xp.mean((mlp(xp, params, x) - y) ** 2)


PARAMS = mlp_params(4, 6, 3)
INPUTS, TARGETS = RNG.normal(size=(5, 4)), RNG.normal(size=(5, 3))


def both(make: Callable[[Any, Any], Any], *args: Any, tolerance: float = 1e-10) -> None:
    """`make(transforms, namespace)` is a function; ours and theirs agree."""
    wanted = compile_and_run(make(jax, jnp), *args)
    compare(make(ta, ta)(*args), wanted, tolerance)


def test_gradients_of_each_example() -> None:
    both(
        lambda t, xp: t.vmap(
            t.grad(lambda p, x, y: mlp_loss(xp, p, x, y), argnums=(0, 1)),
            in_axes=(None, 0, 0),
        ),
        PARAMS,
        INPUTS,
        TARGETS,
    )


def test_gradients_of_an_ensemble() -> None:
    ensemble = jax.tree.map(lambda *xs: np.stack(xs), *[mlp_params(4, 6, 3)] * 3)
    both(
        lambda t, xp: t.vmap(
            t.vmap(t.grad(lambda p, x, y: mlp_loss(xp, p, x, y)), in_axes=(None, 0, 0)),
            in_axes=(0, None, None),
            out_axes=1,
        ),
        ensemble,
        INPUTS,
        TARGETS,
    )


def test_hessian_of_a_pytree() -> None:
    small = mlp_params(2, 3, 1)
    both(lambda t, xp: t.hessian(lambda p: mlp_loss(xp, p, INPUTS[:, :2], 1.0)), small)


def test_jacobians_of_pytrees() -> None:
    for name in ("jacfwd", "jacrev"):
        for argnums in (0, 1, (0, 1)):
            both(
                lambda t, xp, name=name, argnums=argnums: getattr(t, name)(
                    lambda p, x: {"y": mlp(xp, p, x), "s": (xp.sum(x * x), x)},
                    argnums=argnums,
                ),
                PARAMS,
                INPUTS[0],
            )


def test_a_hessian_inside_vmap_and_the_gradient_of_it_outside() -> None:
    both(
        lambda t, xp: t.grad(
            lambda xs: xp.sum(
                t.vmap(t.hessian(lambda x: xp.sum(mlp(xp, PARAMS, x) ** 2)))(xs) ** 2
            )
        ),
        INPUTS,
        tolerance=1e-9,
    )


def test_convolutions_of_each_example() -> None:
    """Shared and own weights, with groups, stride and padding; per-example gradients of
    the weights."""
    x = RNG.normal(size=(3, 2, 4, 7, 6))
    w = RNG.normal(size=(3, 6, 2, 3, 2))

    def ours(x: Any, w: Any) -> Any:
        y = ta.nn.conv2d(x, w, stride=(2, 1), padding=1, groups=2)
        return ta.sum(ta.sin(y))

    def theirs(x: Any, w: Any) -> Any:
        y = jax.lax.conv_general_dilated(
            x, w, (2, 1), [(1, 1), (1, 1)], feature_group_count=2
        )
        return jnp.sum(jnp.sin(y))

    for axes in ((0, 0), (0, None), (None, 0)):
        args = [a if k is not None else a[0] for a, k in zip((x, w), axes, strict=True)]
        found = ta.vmap(ta.grad(ours, argnums=(0, 1)), in_axes=axes)(*args)
        reference = jax.vmap(jax.grad(theirs, argnums=(0, 1)), in_axes=axes)
        wanted = compile_and_run(reference, *args)
        compare(found, wanted)


def test_normalisation_and_attention_of_each_example() -> None:
    q, k, v = (RNG.normal(size=(3, 5, 4)) for _ in range(3))

    def f(xp: Any, softmax: Any, q: Any, k: Any, v: Any) -> Any:
        mean = xp.mean(q, axis=-1, keepdims=True)
        var = xp.var(q, axis=-1, keepdims=True)
        q = (q - mean) / xp.sqrt(var + 1e-5)
        scores = softmax(q @ xp.matrix_transpose(k), axis=-1)
        return xp.sum(xp.tanh(scores @ v))

    found = ta.vmap(
        ta.grad(lambda *a: f(ta, ta.nn.softmax, *a), argnums=(0, 1, 2)),
        in_axes=(0, None, 0),
    )(q, k[0], v)
    wanted = jax.vmap(
        jax.grad(lambda *a: f(jnp, jax.nn.softmax, *a), argnums=(0, 1, 2)),
        in_axes=(0, None, 0),
    )(q, k[0], v)
    compare(found, wanted)


# ---- linear algebra, indexing, sorting -----------------------------------------------


def spd(xp: Any, a: Any) -> Any:
    return a @ xp.matrix_transpose(a) + 3.0 * xp.eye(3)


LINALG: dict[str, Callable[[Any, Any, Any], Any]] = {
    "solve": lambda xp, a, b: xp.linalg.solve(spd(xp, a), b[:, None]),
    "inv": lambda xp, a, b: xp.linalg.inv(spd(xp, a)) @ b,
    "det": lambda xp, a, b: xp.linalg.det(a) * b,
    "slogdet": lambda xp, a, b: xp.linalg.slogdet(spd(xp, a))[1] * b,
    "cholesky": lambda xp, a, b: xp.linalg.cholesky(spd(xp, a)) @ b,
    "eigh": lambda xp, a, b: xp.linalg.eigh(spd(xp, a))[0] * b,
    "svd": lambda xp, a, b: xp.linalg.svdvals(a) * b,
    "qr": lambda xp, a, b: xp.abs(xp.linalg.qr(a)[1]) @ b,
    "pinv": lambda xp, a, b: xp.linalg.pinv(a) @ b,
    "norm": lambda xp, a, b: xp.linalg.vector_norm(a, axis=0) * b,
    "power": lambda xp, a, b: xp.linalg.matrix_power(a, 3) @ b,
    "sort": lambda xp, a, b: xp.sort(a, axis=0) @ b,
    "take": lambda xp, a, b: xp.take(a, xp.argsort(b), axis=1),
    "along": lambda xp, a, b: xp.take_along_axis(a, xp.argsort(a, axis=1), axis=1) @ b,
    "cumulative": lambda xp, a, b: xp.cumulative_prod(b) * xp.cumulative_sum(b),
    "einsum": lambda xp, a, b: xp.einsum("ij,kj,k->i", a, a, b),
}


@pytest.mark.parametrize("name", LINALG)
@pytest.mark.parametrize("axes", [(0, 0), (None, 0)])
def test_functions_of_matrices(name: str, axes: Any) -> None:
    """Values, gradients and Jacobians of each example."""
    full = (RNG.normal(size=(4, 3, 3)), RNG.normal(size=(4, 3)))
    args = [a if k == 0 else a[0] for a, k in zip(full, axes, strict=True)]

    def make(t: Any, xp: Any) -> Any:
        def f(a: Any, b: Any) -> Any:
            return LINALG[name](xp, a, b)

        def total(a: Any, b: Any) -> Any:
            return xp.sum(xp.sin(f(a, b)))

        def one(a: Any, b: Any) -> Any:
            return (
                f(a, b),
                t.grad(total, argnums=(0, 1))(a, b),
                t.jacrev(f)(a, b),
                t.jacfwd(f, argnums=1)(a, b),
            )

        return t.vmap(one, in_axes=axes)

    both(make, *args, tolerance=1e-9)


# ---- complex numbers and linear maps -------------------------------------------------


def test_holomorphic_jacobians() -> None:
    z = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    m = RNG.normal(size=(2, 3)) + 1j * RNG.normal(size=(2, 3))
    for name in ("jacfwd", "jacrev", "hessian"):
        both(
            lambda t, xp, name=name: getattr(t, name)(
                lambda z: xp.exp(xp.asarray(m) @ z) * xp.sum(z), holomorphic=True
            ),
            z,
        )


def test_complex_gradients_of_each_example_are_conjugates() -> None:
    z = RNG.normal(size=(4, 3)) + 1j * RNG.normal(size=(4, 3))

    def f(xp: Any, z: Any) -> Any:
        return xp.sum(xp.abs(xp.exp(z)) ** 2) + xp.real(xp.sum(z * z))

    found = ta.vmap(ta.grad(lambda z: f(ta, z)))(z)
    wanted = jax.vmap(jax.grad(lambda z: f(jnp, z)))(z)
    compare(found, np.conj(wanted))


def test_linearize_and_linear_transpose() -> None:
    x, ct = INPUTS[0], TARGETS[0]

    def make(t: Any, xp: Any) -> Any:
        def run(x: Any, ct: Any) -> Any:
            out, push = t.linearize(lambda v: mlp(xp, PARAMS, v), x)
            back = t.linear_transpose(push, x)
            return out, push(x), back(ct)

        return run

    both(make, x, ct)
    m = RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4))
    z = RNG.normal(size=4) + 1j * RNG.normal(size=4)
    w = RNG.normal(size=3) + 1j * RNG.normal(size=3)
    both(
        lambda t, xp: (
            lambda z, w: t.linear_transpose(
                lambda v: xp.asarray(m) @ v + 2j * xp.sum(v), z
            )(w)
        ),
        z,
        w,
    )
