"""`x.at[key]` and `scatter` against NumPy and JAX, with their derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import errors

jax.config.update("jax_enable_x64", True)

RNG = np.random.default_rng(8)
X = np.arange(12.0).reshape(3, 4)
KEYS: list[Any] = [
    1,
    (1, 2),
    slice(None, None, -2),
    (slice(None), slice(1, 3)),
    (..., 0),
    (None, 1),
    np.array([2, 0]),
    (slice(None), np.array([[2, 0], [1, 3]])),
    (np.array([0, 1]), np.array([3, 3])),
    (1, np.array([0, 2])),
    (np.array([0, 2]), slice(1, None)),
    X > 6,
    np.zeros(3, bool),
    slice(2, 2),
]
# The same places several times, for one axis and for all.
REPEATED: list[Any] = [
    np.array([1, 0, 1, -2]),
    (slice(None), np.array([3, 1, 3, 3, -1])),
    (np.array([0, 1, 0, 0]), np.array([2, 2, 2, -2])),
]
HOW = ["set", "add", "subtract", "multiply", "divide", "power", "max", "min"]


def close(seen: Any, wanted: Any, tolerance: float = 1e-12) -> None:
    seen, wanted = np.asarray(seen), np.asarray(wanted)
    assert seen.shape == wanted.shape
    np.testing.assert_allclose(seen, wanted, tolerance, tolerance)


@pytest.mark.parametrize("key", [*KEYS, *REPEATED], ids=str)
@pytest.mark.parametrize("how", HOW)
def test_values_are_those_of_jax(how: str, key: Any) -> None:
    x = X + 0.5
    v = RNG.uniform(0.5, 1.0 if how == "power" else 9.0, x[key].shape)
    if how == "set" and any(key is k for k in REPEATED):
        wanted = x.copy()
        wanted[key] = v  # JAX leaves open which one stays
    else:
        wanted = getattr(jnp.asarray(x).at[key], how)(v)
    constant = ta.asarray(x)
    close(getattr(constant.at[key], how)(v), wanted)
    close(getattr(constant.at[key], how)(2), getattr(jnp.asarray(x).at[key], how)(2))
    assert np.array_equal(constant.numpy(), x)


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_get_reads(key: Any) -> None:
    close(ta.asarray(X).at[key].get(), X[key])


@pytest.mark.parametrize("key", [*KEYS[3:8:2], *REPEATED], ids=str)
@pytest.mark.parametrize("how", HOW)
def test_derivatives_at_any_key_to_second_order(how: str, key: Any) -> None:
    x = RNG.permutation(12).reshape(3, 4) * 0.0625 + 0.8
    shape = x[key].shape
    v = RNG.permutation(int(np.prod(shape))).reshape(shape) * 0.0625 + 0.75

    def f(x: Any, v: Any) -> Any:
        return ta.sin(getattr(x.at[key], how)(v))

    moving = (x, v) if v.size else (x,)
    ta.testing.check_grads(
        lambda *m: f(m[0], m[1] if v.size else v), moving, order=2, rtol=1e-6
    )


def test_zero_factors_at_one_place_have_the_slope_of_the_others() -> None:
    x = ta.asarray([2.0, 5.0])
    v = np.array([0.0, 3.0, 4.0])
    gx, gv = ta.grad(
        lambda x, v: ta.sum(x.at[np.array([0, 0, 0])].multiply(v)), (0, 1)
    )(x, v)
    assert gx.tolist() == [0.0, 1.0]
    assert gv.tolist() == [24.0, 0.0, 0.0]


@pytest.mark.parametrize("how", ["max", "min"])
def test_ties_share_equally_as_in_jax(how: str) -> None:
    at = np.array([0, 0, 1, 2, 2])
    x, v = np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 2.0, 3.0, 3.0])

    def loss(xp: Any) -> Any:
        return lambda x, v: xp.sum(
            getattr(x.at[at], how)(v) * np.array([2.0, 3.0, 5.0])
        )

    ours = ta.grad(loss(ta), (0, 1))(x, v)
    theirs = jax.grad(loss(jnp), (0, 1))(jnp.asarray(x), jnp.asarray(v))
    for a, b in zip(ours, theirs, strict=True):
        close(a, b)
    assert ours[0].tolist() == [2 / 3, 3 / 2, 5 / 3]


def test_many_ties_in_half_precision_keep_their_share() -> None:
    n = 70_000
    v = ta.asarray(np.ones(n, np.float16))
    at = np.zeros(n, np.int64)
    g = ta.grad(lambda v: ta.sum(ta.asarray(np.zeros(1, np.float16)).at[at].max(v)))(v)
    assert np.all(g.numpy() == np.float16(1 / n))


def test_repeated_indices_add_up_and_the_last_one_is_set() -> None:
    x = ta.asarray(np.zeros(3))
    at = np.array([1, 1, 2])
    v = np.array([1.0, 2.0, 4.0])
    assert x.at[at].add(v).tolist() == [0.0, 3.0, 4.0]
    assert x.at[at].set(v).tolist() == [0.0, 2.0, 4.0]
    gx, gv = ta.grad(lambda x, v: ta.sum(x.at[at].set(v)), (0, 1))(x, v)
    assert gx.tolist() == [1.0, 0.0, 0.0]
    assert gv.tolist() == [0.0, 1.0, 1.0]


def test_gradients_of_what_is_replaced_and_what_replaces() -> None:
    weights = np.arange(1.0, 13.0).reshape(3, 4)

    def loss(x: Any, v: Any) -> Any:
        return ta.sum(x.at[1, ::2].set(v) * weights)

    gx, gv = ta.grad(loss, (0, 1))(X, np.array([5.0, 6.0]))
    wanted = weights.copy()
    wanted[1, ::2] = 0
    assert np.array_equal(gx.numpy(), wanted)
    assert gv.tolist() == weights[1, ::2].tolist()


def test_nothing_comes_through_from_what_was_replaced() -> None:
    x = ta.asarray([0.0, -4.0, 9.0])
    g = ta.grad(lambda x: ta.sum(ta.sqrt(x).at[:2].set(1.0)))(x)
    assert g.tolist() == [0.0, 0.0, 1 / 6]


@pytest.mark.parametrize("how", HOW)
def test_dtypes_are_those_of_the_tensor(how: str) -> None:
    for kind in (np.int32, np.uint8, np.float32, np.complex64):
        if how in ("max", "min") and kind is np.complex64:
            continue
        x = ta.asarray(np.array([1, 2, 3], kind))
        for key in (0, np.array([0, 0])):
            y = getattr(x.at[key], how)(2)
            wanted = (
                np.float64 if how == "divide" and kind in (np.int32, np.uint8) else kind
            )
            assert y.dtype == wanted


def test_refusals_name_the_call_that_the_user_wrote() -> None:
    x = ta.asarray(X)
    counts = ta.asarray(np.arange(3))
    wrong = [
        (lambda: x.at[7].set(1.0), errors.IndexRangeError, "x.at[key].set", "key"),
        (lambda: x.at[np.array([7])].add(1.0), errors.IndexRangeError,
         "x.at[key].add", "key"),
        (lambda: x.at[0].multiply(np.ones(3)), errors.ShapeError,
         "x.at[key].multiply", "values"),
        (lambda: x.at[np.array([0])].max(np.ones(3)), errors.ShapeError,
         "x.at[key].max", "values"),
        (lambda: x.at[1.5].min(1.0), errors.DTypeError, "x.at[key].min", "key"),
        (lambda: counts.at[0].add(0.5), errors.DTypeError, "x.at[key].add", "values"),
        (lambda: counts.at[0].set(np.array(0.5)), errors.DTypeError, "x.at[key].set",
         "values"),
        (lambda: x.at[0].set(1j), errors.DTypeError, "x.at[key].set", "values"),
        (lambda: ta.asarray([1j]).at[0].max(1j), errors.DTypeError, "x.at[key].max",
         None),
        (lambda: ta.asarray([1j]).at[np.array([0])].max(1j), errors.DTypeError,
         "x.at[key].max", None),
    ]  # fmt: skip
    for call, kind, operation, argument in wrong:
        with pytest.raises(kind) as caught:
            call()
        assert caught.value.operation == operation
        assert argument is None or caught.value.argument == argument
        del caught


def test_no_copy_whatever_the_layout() -> None:
    x, v = ta.asarray(X).T, ta.asarray(np.ones((4, 2, 3))).mT
    at = ta.asarray(np.array([[1, 0], [1, 2], [0, 0]]))
    with ta.ledger() as led:
        for how in HOW:
            getattr(x.at[:, at[:, 0]], how)(v[:, :, 0])
            getattr(x.at[at, at], how)(2.0)
            getattr(x.at[1], how)(2.0)
    assert led.copies == {}


def test_item_assignment_names_the_way() -> None:
    x = ta.asarray(X)
    with pytest.raises(ta.errors.ImmutableTensorError, match=r"x\.at\[i\]\.set"):
        x[0] = 1.0


def test_a_value_on_its_own_device_is_another_handle() -> None:
    x = ta.asarray(X)
    with ta.ledger() as led:
        y = x.to("cpu")
        z = x.to(x.device)
    assert not led.allocations
    assert not led.copies
    assert np.shares_memory(y.numpy(), z.numpy())
    with pytest.raises(ta.errors.InvalidArgumentError, match="nowhere:0"):
        x.to("nowhere:0")


# ---- scatter and gather --------------------------------------------------------------

AT = np.array([[1, 1, 0], [2, 0, 2]])


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("reduce", ["set", "add", "multiply", "max", "min"])
def test_scatter_is_an_assignment_along_an_axis(reduce: str, axis: int) -> None:
    x = RNG.permutation(12).reshape(3, 4) * 0.0625 + 0.8
    index = AT if axis == 0 else AT.T
    v = RNG.permutation(index.size).reshape(index.shape) * 0.0625 + 0.75
    wanted = x.copy()
    combine = {
        "set": lambda a, b: b,
        "add": np.add,
        "multiply": np.multiply,
        "max": np.maximum,
        "min": np.minimum,
    }[reduce]
    for place in np.ndindex(index.shape):
        key = list(place)
        key[axis] = index[place]
        wanted[tuple(key)] = combine(wanted[tuple(key)], v[place])

    def f(x: Any, v: Any) -> Any:
        return ta.scatter(x, index, v, axis=axis, reduce=reduce)

    close(f(x, v), wanted)
    ta.testing.check_grads(lambda x, v: ta.sin(f(x, v)), (x, v), order=2)


def test_gather_reads_what_scatter_writes() -> None:
    x = RNG.standard_normal((3, 4))
    wanted = x[AT, np.arange(3)]
    close(ta.gather(x, AT, axis=0), wanted)
    close(ta.gather(ta.scatter(x, AT[:1], wanted[:1], axis=0), AT[:1], axis=0),
          wanted[:1])  # fmt: skip
    ta.testing.check_grads(lambda x: ta.sin(ta.gather(x, AT, axis=0)), (x,), order=2)
    for bad in (np.zeros((4, 5), int), np.zeros(3, int)):
        with pytest.raises(errors.ShapeError) as caught:
            ta.gather(x, bad, axis=0)
        assert (caught.value.operation, caught.value.argument) == ("gather", "indices")
        with pytest.raises(errors.ShapeError) as caught:
            ta.scatter(x, bad, 0.0, axis=0)
        assert (caught.value.operation, caught.value.argument) == ("scatter", "indices")
    with pytest.raises(errors.IndexRangeError) as range_error:
        ta.scatter(x, AT + 1, 0.0, axis=0)
    assert range_error.value.operation == "scatter"
    with pytest.raises(errors.InvalidArgumentError, match="reduce"):
        ta.scatter(x, AT, 0.0, axis=0, reduce="mean")  # type: ignore[arg-type]


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
def test_segments_are_those_of_jax(name: str, axis: int) -> None:
    x = RNG.permutation(20).reshape(5, 4) * 0.25 - 2.0
    segments = np.array([2, 0, 2, 2, 0] if axis == 0 else [3, 3, 0, 3])
    ours = getattr(ta, f"segment_{name}")
    theirs = getattr(jax.ops, f"segment_{name}")

    def f(x: Any) -> Any:
        return ours(x, segments, num_segments=4, axis=axis)

    wanted = jnp.moveaxis(
        theirs(jnp.moveaxis(x, axis, 0), segments, num_segments=4), 0, axis
    )
    close(f(x), wanted)
    ta.testing.check_grads(
        lambda x: ta.sin(ta.clip(f(x), -100, 100) * 0.1), (x,), order=2
    )
    whole = np.asarray(f(x.astype(np.int64)))
    assert whole.dtype == np.int64
    with pytest.raises(errors.ShapeError) as caught:
        ours(x, segments[:2], num_segments=4, axis=axis)
    assert (caught.value.operation, caught.value.argument) == (
        f"segment_{name}", "segments",
    )  # fmt: skip


MASKED: list[tuple[tuple[int, ...], Any]] = [
    ((3,), lambda m: m),
    ((3, 4), lambda m: m),
    ((2, 3), lambda m: (slice(None), m)),
    ((2, 2, 3), lambda m: (..., m)),
    ((2, 3, 2), lambda m: (slice(None), m, slice(None))),
    ((2, 3, 2), lambda m: (..., m, slice(None))),
]


@pytest.mark.parametrize("case", range(len(MASKED)))
@pytest.mark.parametrize("how", HOW)
def test_a_traced_mask_takes_the_same_values_everywhere(how: str, case: int) -> None:
    shape, key = MASKED[case]
    x, mask = RNG.uniform(0.5, 2.0, shape), np.array([True, False, True])
    v = RNG.uniform(0.6, 1.4, x[key(mask)].shape[-1:] if case == 1 else ())

    def f(x: Any, v: Any, mask: Any) -> Any:
        return ta.sin(getattr(ta.asarray(x).at[key(mask)], how)(v))

    def slopes(x: Any, v: Any, mask: Any) -> Any:
        return ta.grad(lambda x, v: ta.sum(f(x, v, mask)), argnums=(0, 1))(x, v)

    truth = ta.asarray(mask)
    close(ta.compile(f)(x, v, mask), f(x, v, truth))
    for seen, wanted in zip(
        ta.compile(slopes)(x, v, mask), slopes(x, v, truth), strict=True
    ):
        close(seen, wanted)
    masks = np.stack([mask, ~mask])
    each = ta.vmap(f, in_axes=(None, None, 0))(x, v, masks)
    close(each, np.stack([f(x, v, ta.asarray(m)) for m in masks]))


def test_a_traced_mask_refuses_values_of_its_elements() -> None:
    """How many there are depends on the mask."""
    for values in (np.ones(2), np.ones(3)):
        with pytest.raises(errors.TracedConversionError, match="mask"):
            ta.compile(lambda x, v=values: x.at[x > 1.0].set(v))(np.arange(3.0))
    relu = ta.checkpoint(lambda x: ta.sum(x.at[x < 0.0].set(0.0) ** 2))
    close(ta.grad(relu)(np.array([-1.0, 2.0])), [0.0, 4.0])
    with pytest.raises(errors.ShapeError, match="mask of shape"):
        ta.compile(lambda x: x.at[(x > 1.0)[:2]].set(0.0))(np.arange(3.0))
