"""Tensor networks of the public einsum benchmark: values, gradients and their cost.

The peer is opt_einsum on PyTorch tensors with the same path (`torch.einsum` itself
knows 52 labels, these files have up to 298). Multiplications are counted from the sizes
of the pairs, ours in the traced programs and those of the value in opt_einsum's list.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import opt_einsum
import pytest

import tenferro_ad as ta
from tenferro_ad.ops import contraction_flops

pytestmark = [pytest.mark.shared, pytest.mark.reference]

Array = np.ndarray[Any, Any]
NAMES = [
    "bin_batched_matmul_b32_m64_n64_k64",
    "bin_matmul_256",
    "lm_batch_likelihood_sentence_3_12d",
    "lm_batch_likelihood_sentence_4_4d",
    "nary_matmul_chain_64",
    "str_matrix_chain_multiplication_100",
    "str_mps_varying_inner_product_200",
    "tensornetwork_permutation_light_415",
]


@pytest.fixture
def network(
    request: pytest.FixtureRequest, shared_data: Callable[..., Path]
) -> dict[str, Any]:
    path = shared_data("data", "einsum", f"{request.param}.json")
    found: dict[str, Any] = json.loads(path.read_text())
    return found


networks = pytest.mark.parametrize("network", NAMES, indirect=True)


def path_of(network: dict[str, Any], kind: str) -> list[tuple[int, ...]]:
    return [tuple(step) for step in network["paths"][kind]["path"]]


def operands(network: dict[str, Any]) -> list[Array]:
    """Mostly positive numbers, so that sums of products keep their digits, of a size
    that neither grows nor vanishes along the network."""
    rng = np.random.default_rng(7)
    found = []
    for shape in network["shapes"]:
        x = rng.uniform(-0.2, 1.0, shape)
        found.append(x / max(1.0, float(np.sqrt(np.sum(x * x)) / 1.2)))
    return found


def test_every_file_has_a_test(shared_data: Callable[..., Path]) -> None:
    files = shared_data("data", "einsum").glob("*.json")
    assert sorted(p.stem for p in files) == sorted(NAMES)


@networks
def test_value_and_gradient_are_those_of_opt_einsum_on_torch(
    network: dict[str, Any],
) -> None:
    import torch

    equation = network["format_string"]
    path = path_of(network, "opt_flops")
    xs = operands(network)
    theirs = [torch.tensor(x, requires_grad=True) for x in xs]
    y = opt_einsum.contract(equation, *theirs, optimize=path, backend="torch")
    weights = np.random.default_rng(8).uniform(0.5, 1.5, tuple(y.shape))
    wanted = torch.autograd.grad((y * torch.tensor(weights)).sum(), theirs)

    vs = [ta.variable(x) for x in xs]
    with ta.Tape() as tape:
        z = ta.einsum(equation, *vs, optimize=path)
        assert len(tape) == len(xs) + 1  # one operation
        loss = ta.sum(z * weights)
    grads = tape.backward(loss)
    with z.value() as guard:
        agree(guard.numpy(), y.detach().numpy())
    for v, reference in zip(vs, wanted, strict=True):
        with grads.grad(v) as g:
            agree(g.numpy(), reference.numpy())
    del g, guard


def agree(seen: Array, wanted: Array) -> None:
    """To ten digits of the largest number; the sums have up to 4e9 products."""
    assert seen.shape == wanted.shape
    scale = float(np.max(np.abs(wanted)))
    assert np.isfinite(scale)
    assert scale > 0
    assert float(np.max(np.abs(seen - wanted))) <= 1e-10 * scale


def flops(program: Any, name: str) -> int:
    return sum(
        contraction_flops(eq.call)
        for eq in program.equations
        if eq.call.op.name == name
    )


def multiplications(equation: str, shapes: Any, path: Any) -> int:
    """For each pair, the product of the lengths of its labels, by opt_einsum's list."""
    sizes = {
        c: n
        for term, shape in zip(equation.split("->")[0].split(","), shapes, strict=True)
        for c, n in zip(term, shape, strict=True)
    }
    info = opt_einsum.contract_path(equation, *shapes, shapes=True, optimize=path)[1]
    return sum(
        math.prod(sizes[c] for c in set(pair) - set(",->"))
        for _, _, pair, _, _ in info.contraction_list
    )


@networks
@pytest.mark.parametrize("kind", ["opt_flops", "opt_size"])
def test_backward_takes_at_most_three_times_the_multiplications(
    network: dict[str, Any], kind: str
) -> None:
    equation, path = network["format_string"], path_of(network, kind)
    shapes = [tuple(s) for s in network["shapes"]]
    specs = [ta.Spec(s) for s in shapes]

    def f(*xs: Any) -> Any:
        return ta.sum(ta.einsum(equation, *xs, optimize=path))

    forward = ta.trace(f, *specs).program
    ours = flops(forward, "einsum")
    # Labels of a single operand are summed before it meets another one.
    theirs = multiplications(equation, shapes, path)
    assert 0.999 * theirs <= ours <= theirs
    everything = tuple(range(len(shapes)))
    backward = ta.trace(ta.grad(f, everything), *specs).program
    # A gradient does not need the value, so this is the backward pass alone.
    assert flops(backward, "einsum") == 0
    assert 0 < flops(backward, "contract") <= 3 * ours
    number = sum(eq.call.op.name == "contract" for eq in backward.equations)
    assert number <= 3 * (len(shapes) - 1)
