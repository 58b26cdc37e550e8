"""`einsum`: spellings, costs, precision, memory and what it refuses."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import opt_einsum
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import DTypeError, InvalidArgumentError, ShapeError
from tenferro_ad.ops import contraction_flops
from tenferro_ad.testing import check_grads

Array = np.ndarray[Any, Any]


def draw(*shapes: tuple[int, ...], dtype: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(11)
    found = []
    for shape in shapes:
        x = rng.uniform(-1, 1, shape)
        if np.dtype(dtype).kind == "c":
            x = x + 1j * rng.uniform(-1, 1, shape)
        found.append(np.asarray(x, dtype))
    return found


def close(seen: Any, wanted: Array, tolerance: float = 1e-12) -> None:
    with seen.value() as guard:
        value = np.array(guard.numpy())
    assert value.shape == wanted.shape
    scale = max(1.0, float(np.max(np.abs(wanted), initial=0.0)))
    assert float(np.max(np.abs(value - wanted), initial=0.0)) <= tolerance * scale


# ---- spellings -----------------------------------------------------------------------
@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ij,jk", [(2, 3), (3, 4)]),
        ("ba", [(2, 3)]),
        ("ii", [(3, 3)]),
        ("iij", [(3, 3, 2)]),
        ("i,i,i", [(3,), (3,), (3,)]),
        (" i j , j k -> k i ", [(2, 3), (3, 4)]),
        ("...ij,...jk->...ik", [(5, 2, 3), (5, 3, 4)]),
        ("...ij,...jk->...ik", [(2, 3), (5, 3, 4)]),
        ("...ij,jk", [(5, 2, 3), (3, 4)]),
        ("i...->...", [(3, 4, 2)]),
        ("...i,...i", [(2, 3), (4, 1, 3)]),
        ("...,...", [(2, 1), (3,)]),
        ("a...b,b...->...a", [(2, 5, 1, 3), (3, 4)]),
        ("...ii->...i", [(2, 3, 3)]),
        ("i...i->...", [(3, 2, 3)]),
        ("ij->...ij", [(2, 3)]),
        ("Zz,zé->éZ", [(2, 3), (3, 4)]),
        (",i->i", [(), (3,)]),
        ("", [()]),
    ],
)
def test_spellings_mean_what_they_mean_in_numpy(
    subscripts: str, shapes: list[tuple[int, ...]]
) -> None:
    xs = draw(*shapes)
    theirs = subscripts.replace("é", "e")
    close(ta.einsum(subscripts, *xs), np.einsum(theirs, *xs))
    check_grads(lambda *xs: ta.einsum(subscripts, *xs), xs, order=2)


def test_an_ellipsis_that_the_output_lacks_is_summed() -> None:
    (x,) = draw((2, 3, 4))
    close(ta.einsum("...i->i", x), x.sum((0, 1)))
    check_grads(lambda x: ta.einsum("...i->i", x), [x], order=2)


def test_numbers_take_the_dtype_of_the_others() -> None:
    (x,) = draw((3,), dtype=np.float32)
    y = ta.einsum("i,->i", x, 2.0)
    assert y.dtype == np.float32
    close(y, 2 * x)
    assert ta.einsum(",i->i", 1j, x).dtype == np.complex64


@pytest.mark.parametrize("subscripts", ["i->ii", "ij->iji", "ij->jjii", "...i->...ii"])
def test_a_label_repeated_in_the_output_fills_a_diagonal(subscripts: str) -> None:
    (x,) = draw((2,) if subscripts == "i->ii" else (2, 3))
    y = ta.einsum(subscripts, x)
    back = "->".join(reversed(subscripts.split("->")))
    close(ta.einsum(back, y), x)
    assert np.count_nonzero(np.array(y.tolist())) == x.size
    check_grads(lambda x: ta.einsum(subscripts, x), [x], order=2)
    check_grads(lambda x, w: ta.einsum(f"{subscripts}", x) * w, [x, y], order=2)


def test_hundreds_of_labels_are_told_apart() -> None:
    n = 300
    labels = [opt_einsum.get_symbol(k) for k in range(n + 1)]
    assert len(set(labels)) > 52
    text = ",".join(a + b for a, b in pairwise(labels))
    xs = [0.7 * x for x in draw(*[(2, 2)] * n)]
    wanted = np.linalg.multi_dot(xs)
    y = ta.einsum(f"{text}->{labels[0]}{labels[-1]}", *xs)
    close(y / float(np.abs(wanted).max()), wanted / np.abs(wanted).max())


def test_a_result_is_a_fresh_root_even_where_a_view_would_do() -> None:
    (x,) = draw((3, 3))
    a = ta.asarray(x)
    with ta.ledger() as ledger:
        y = ta.einsum("ii->i", a)
    ledger.expect(allocations={"OperationOutput": 1}, copies={})
    close(y, np.diagonal(x))


# ---- paths ---------------------------------------------------------------------------
CHAIN = "ab,bc,cd,de->ae"
CHAIN_SHAPES = [(2, 30), (30, 3), (3, 40), (40, 2)]


def by_greedy(*args: Any) -> Any:
    return opt_einsum.paths.greedy(*args)


@pytest.mark.parametrize(
    "optimize",
    [
        True,
        False,
        "auto",
        "greedy",
        "optimal",
        "dp",
        "branch-2",
        [(0, 1), (0, 1), (0, 1)],
        ((2, 3), (0, 1), (0, 1)),
        [(0, 1, 2), (0, 1)],
        [(0, 1, 2, 3)],
        [(3,), (0, 1), (0, 1), (0, 1)],
        ["einsum_path", (0, 3), (0, 1), (0, 1)],
        [np.array([0, 1]), np.array([0, 1]), np.array([0, 1])],
        by_greedy,
        opt_einsum.DynamicProgramming(),
    ],
    ids=lambda how: re.sub(r" object at .*| at 0x.*", "", repr(how)),
)
def test_any_path_gives_the_value_and_its_derivatives(optimize: Any) -> None:
    xs = draw(*CHAIN_SHAPES)
    close(ta.einsum(CHAIN, *xs, optimize=optimize), np.linalg.multi_dot(xs))
    check_grads(lambda *xs: ta.einsum(CHAIN, *xs, optimize=optimize), xs, order=1)


def flops(program: Any, *names: str) -> int:
    return sum(
        contraction_flops(eq.call)
        for eq in program.equations
        if eq.call.op.name in names
    )


def test_the_default_path_is_the_one_of_opt_einsum() -> None:
    xs = draw(*CHAIN_SHAPES)
    program = ta.trace(lambda *xs: ta.einsum(CHAIN, *xs), *xs).program
    info = opt_einsum.contract_path(CHAIN, *xs, optimize="auto")[1]
    # opt_einsum counts sums too.
    assert 2 * flops(program, "einsum") == info.opt_cost
    left = ta.trace(lambda *xs: ta.einsum(CHAIN, *xs, optimize=False), *xs).program
    assert flops(left, "einsum") == 2 * 30 * 3 + 2 * 3 * 40 + 2 * 40 * 2


# ---- costs ---------------------------------------------------------------------------
def chain(n: int, size: int = 4) -> tuple[str, list[Array]]:
    labels = [opt_einsum.get_symbol(k) for k in range(n + 1)]
    text = ",".join(a + b for a, b in pairwise(labels))
    return f"{text}->{labels[0]}{labels[-1]}", draw(*[(size, size)] * n)


def counts(f: Any, xs: list[Array]) -> tuple[int, int]:
    """Contractions of a traced function, and their operations."""
    program = ta.trace(f, *xs).program
    number = sum(eq.call.op.name == "contract" for eq in program.equations)
    return number, flops(program, "contract")


@pytest.mark.parametrize("n", [2, 3, 10, 40])
def test_derivatives_are_linear_in_the_number_of_operands(n: int) -> None:
    text, xs = chain(n)
    everything = tuple(range(n))
    ts = [2 * x for x in xs]

    def f(*xs: Any) -> Any:
        return ta.sum(ta.einsum(text, *xs, optimize=False))

    forward = 4**3 * (n - 1)
    # Each pair backwards is two contractions, and all but the last are made again.
    number, cost = counts(ta.grad(f, everything), xs)
    assert number == 3 * (n - 1) - 1
    assert cost == 3 * forward - 4**3
    number, cost = counts(lambda *xs: ta.jvp(f, xs[:n], xs[n:])[1], [*xs, *ts])
    assert number == 3 * (n - 1) - 1
    assert cost <= 3 * forward
    # Forward over reverse: each of those contractions is a pair with two tangents.
    number, _ = counts(lambda *xs: ta.hvp(f, xs[:n], xs[n:])[1], [*xs, *ts])
    assert number <= 9 * (n - 1)


def test_one_tracked_operand_costs_what_its_own_derivative_needs() -> None:
    text, xs = chain(10)

    def f(x: Any) -> Any:
        return ta.sum(ta.einsum(text, x, *map(ta.asarray, xs[1:]), optimize=False))

    # From the left: x meets the other nine one by one, so nothing is made again.
    assert counts(ta.grad(f), xs[:1])[0] == 9


@pytest.mark.parametrize("n", [1, 2, 5])
def test_a_tape_has_one_operation_and_keeps_operands_only(n: int) -> None:
    text, xs = chain(n)
    vs = [ta.variable(x) for x in xs]
    with ta.ledger() as ledger, ta.Tape() as tape:
        y = ta.einsum(text, *vs)
        assert len(tape) == n + 1
        assert [k.value for k in tape.retained()] == [
            f"xs[{k}]" for k in range(n) if n > 1
        ]
    ledger.expect(allocations={"OperationOutput": 1}, copies={})
    grads = tape.backward(y, cotangent=np.ones((4, 4)))
    assert len(grads) == n


def test_an_untracked_operand_is_kept_and_the_tracked_one_is_not() -> None:
    text, xs = chain(3)
    v = ta.variable(xs[1])
    with ta.Tape() as tape:
        y = ta.einsum(text, xs[0], v, xs[2])
        assert [k.value for k in tape.retained()] == ["xs[0]", "xs[2]"]
    del y


# ---- precision -----------------------------------------------------------------------
def test_halves_are_summed_in_single_precision() -> None:
    n = 4096
    ones, small = np.ones((2, n), np.float16), np.full((n, 2), 1.0, np.float16)
    y = ta.einsum("ij,jk->ik", ones, small)
    assert y.dtype == np.float16
    assert y.tolist() == [[4096.0, 4096.0]] * 2  # halves stop counting at 2048
    assert ta.einsum("ij->i", ones).tolist() == [4096.0, 4096.0]
    # The sum over k comes before the product and must not be rounded to 2048 either.
    pairs = np.full((2, n), 0.5, np.float16)
    z = ta.einsum("ij,ik->i", np.full((2, 1), 0.5, np.float16), pairs)
    assert z.tolist() == [1024.0, 1024.0]


def test_intermediate_results_of_halves_are_single() -> None:
    big = np.full((2, 2), 200.0, np.float16)
    small = np.full((2, 2), 1e-3, np.float16)
    # 200 * 200 * 2 = 80 000 has no half, the product with 0.001 has.
    y = ta.einsum("ab,bc,cd->ad", big, big, small, optimize=[(0, 1), (0, 1)])
    assert np.allclose(np.array(y.tolist()), 160.0, rtol=2e-3)
    g = ta.grad(
        lambda x: ta.sum(
            ta.einsum("ab,bc,cd->ad", x, big, small, optimize=[(0, 1), (0, 1)])
        )
    )(big)
    assert g.dtype == np.float16
    assert np.allclose(np.array(g.tolist()), 0.8, rtol=2e-3)


def test_long_sums_in_single_precision_are_accurate() -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(0, 1, (200_000, 2)).astype(np.float32)
    exact = x.astype(np.float64).sum(0)
    seen = np.array(ta.einsum("ij->j", x).tolist())
    assert np.max(np.abs(seen / exact - 1)) < 1e-6
    w = np.ones((3,), np.float32)
    seen = np.array(ta.einsum("ij,k->j", x, w).tolist())
    assert np.max(np.abs(seen / (3 * exact) - 1)) < 1e-6


def test_integers_wrap_nowhere_that_the_result_does_not() -> None:
    small = np.full((3,), 100, np.int8)
    assert ta.einsum("i,i,i->i", small, small, np.ones(3)).tolist() == [1e4] * 3
    big = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert ta.einsum("ij,kj->ik", big, big).tolist() == (big @ big.T).tolist()
    assert ta.einsum("i,i", small, small).dtype == np.int8


def test_complex_gradients_follow_the_convention() -> None:
    x, y = draw((2, 3), (3, 2), dtype=np.complex128)
    g = ta.grad(lambda x, y: ta.real(ta.einsum("ij,ji->", x, y)), (0, 1))(x, y)
    close(g[0], y.T.conj())
    close(g[1], x.T.conj())


def test_a_real_operand_among_complex_ones_has_a_real_gradient() -> None:
    (x, z), (y,) = draw((2, 3), (4, 2), dtype=np.complex128), draw((3, 4))

    def f(x: Any, y: Any, z: Any) -> Any:
        return ta.einsum("ab,bc,ca->c", x, y, z)

    check_grads(f, [x, y, z], order=2)
    g = ta.grad(lambda y: ta.sum(ta.real(f(x, y, z))))(y)
    assert g.dtype == np.float64
    close(g, np.real(np.einsum("ab,ca->bc", x, z)))


# ---- memory --------------------------------------------------------------------------
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.complex128, np.int64])
@pytest.mark.parametrize(
    ("subscripts", "shapes"),
    [
        ("ab,bc,cd->da", [(40, 300), (300, 50), (50, 200)]),
        ("abc,cbd->da", [(60, 20, 30), (30, 20, 50)]),
        ("abc,abd->acdb", [(30, 20, 30), (30, 20, 20)]),
        ("abc,cd,efa->bd", [(30, 20, 30), (30, 20), (40, 50, 30)]),
        ("aab,bc->ac", [(60, 60, 20), (20, 60)]),
        ("abc->b", [(60, 60, 30)]),
        ("ab,ac,ad->abcd", [(9, 20), (9, 20), (9, 20)]),
    ],
)
def test_scratch_stays_below_its_formula(
    subscripts: str, shapes: list[tuple[int, ...]], dtype: Any
) -> None:
    xs = [ta.asarray(x) for x in draw(*shapes, dtype=dtype)]
    one = ta.einsum(subscripts, *xs)  # plans are made
    result = one.nbytes
    del one
    with ta.ledger() as ledger:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        y = ta.einsum(subscripts, *xs)
        after, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak - before <= ledger.workspace + result + 32_000
    assert after - before <= result + 32_000  # nothing but the result is left
    del y


# ---- what is refused -----------------------------------------------------------------
X, Y = np.ones((2, 3)), np.ones((3, 4))


@pytest.mark.parametrize(
    ("kind", "message", "args", "options"),
    [
        (InvalidArgumentError, "type `int`", (3, X), {}),
        (InvalidArgumentError, "`operands`", ("ij",), {}),
        (InvalidArgumentError, "1 operands for the 2 terms", ("ij,jk", X), {}),
        (InvalidArgumentError, "3 operands for the 2 terms", ("ij,jk", X, Y, Y), {}),
        (InvalidArgumentError, "`-`", ("ij-ji", X), {}),
        (InvalidArgumentError, "`>`", ("ij>ji", X), {}),
        (InvalidArgumentError, "`-`", ("ij->i->j", X), {}),
        (InvalidArgumentError, "`,`", ("ij->i,j", X), {}),
        (InvalidArgumentError, r"`\.`", ("i.j", X), {}),
        (InvalidArgumentError, r"`\.`", ("...i...", X), {}),
        (InvalidArgumentError, "`z` in the output", ("ij->iz", X), {}),
        (ShapeError, r"shape \(2, 3\) for the term `i`", ("i,jk", X, Y), {}),
        (ShapeError, "operand 1", ("ij,jkl", X, Y), {}),
        (ShapeError, "operand 0", ("...ijk", X), {}),
        (ShapeError, "operand 1.*`j` of length 4.*3 in operand 0", ("ij,kj", X, Y), {}),
        (ShapeError, "another axis", ("ii", X), {}),
        (ShapeError, "length", ("...i,...i", X, np.ones((4, 3))), {}),
        (DTypeError, "operand 1.*bool", ("ij,jk", X, Y > 0), {}),
        (InvalidArgumentError, "`nonsense`", ("ij", X), {"optimize": "nonsense"}),
        (InvalidArgumentError, "type `float`", ("ij", X), {"optimize": 1.5}),
        (InvalidArgumentError, "positions", ("ij", X), {"optimize": [("a", "b")]}),
        (InvalidArgumentError, "positions", ("ij", X), {"optimize": [0, 1]}),
        (InvalidArgumentError, "step 0", ("ij,jk", X, Y), {"optimize": [(0, 2)]}),
        (InvalidArgumentError, "step 0", ("ij,jk", X, Y), {"optimize": [(0, 0)]}),
        (InvalidArgumentError, "step 0", ("ij,jk", X, Y), {"optimize": [(-1, 0)]}),
        (InvalidArgumentError, "leaves 2", ("ij,jk", X, Y), {"optimize": []}),
    ],
)
def test_what_makes_no_sense_is_a_typed_error(
    kind: Any, message: str, args: tuple[Any, ...], options: dict[str, Any]
) -> None:
    with pytest.raises(kind, match=message) as caught:
        ta.einsum(*args, **options)
    assert str(caught.value).startswith("`einsum` ")
    assert caught.value.fix


# ---- beside it -----------------------------------------------------------------------
def test_other_products_agree_with_it() -> None:
    x, y = draw((2, 3, 4), (4, 3, 5))
    u, v, w = draw((3,), (4,), (3,))
    a, b = draw((2, 3), (4, 5))
    cases: list[tuple[Any, Any, list[Array]]] = [
        (
            lambda x, y: ta.tensordot(x, y, axes=([1, 2], [1, 0])),
            lambda x, y: ta.einsum("abc,cbd->ad", x, y),
            [x, y],
        ),
        (ta.outer, lambda x, y: ta.einsum("a,b->ab", x, y), [u, v]),
        (ta.vecdot, lambda x, y: ta.einsum("a,a", x, y), [u, w]),
        (
            ta.kron,
            lambda x, y: ta.reshape(ta.einsum("ab,cd->acbd", x, y), (8, 15)),
            [a, b],
        ),
        (
            lambda *xs: ta.linalg.multi_dot(xs),
            lambda *xs: ta.einsum("ab,bc,cd->ad", *xs),
            draw((2, 3), (3, 4), (4, 2)),
        ),
    ]
    for ours, same, xs in cases:
        weights = draw(tuple(same(*xs).shape))[0]
        for order in (1, 2):
            check_grads(ours, xs, order=order)
        one = ta.grad(lambda *xs, f=ours, w=weights: ta.sum(f(*xs) * w), (0, 1))(*xs)
        two = ta.grad(lambda *xs, f=same, w=weights: ta.sum(f(*xs) * w), (0, 1))(*xs)
        for g, h in zip(one, two, strict=True):
            close(g, np.array(h.tolist()))
