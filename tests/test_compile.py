"""`ta.compile`: caches, what is kept alive, results of every kind, ledgers, threads."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import (
    DTypeError,
    ForbiddenEventError,
    IndexRangeError,
    IntegerInputError,
    InvalidArgumentError,
    TenferroError,
)
from tenferro_ad.runtime import GRAPHS
from tests.trees import agree

RNG = np.random.default_rng(7)


def normal(*shape: int) -> ta.EagerTensor:
    return ta.asarray(RNG.normal(size=shape))


X, W = normal(2, 3), normal(3, 2)


class Counted:
    """A function that counts how often Python runs it."""

    def __init__(self, f: Callable[..., Any]) -> None:
        self.f, self.calls = f, 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.f(*args, **kwargs)


# ---- the cache -----------------------------------------------------------------------


def test_python_runs_once_for_each_signature() -> None:
    f = Counted(lambda x: x * 2.0)
    compiled = ta.compile(f)
    for x in (np.ones(3), np.zeros(3), ta.ones(3), ta.variable(np.ones(3))):
        compiled(x)
    assert f.calls == 1
    for x in (np.ones(4), np.ones((3, 1)), np.ones(3, np.float32), np.ones(3, int)):
        compiled(x)
    assert f.calls == 5
    info = compiled.cache
    assert (info.misses, info.hits, info.evictions, info.size) == (5, 3, 0, 5)


def test_structure_numbers_and_strings_are_part_of_the_signature() -> None:
    f = Counted(lambda tree, k=1, how="a": tree)
    compiled = ta.compile(f)
    for tree in ([X, W], (X, W), {"a": X}, {"b": X}, [X, None], [X]):
        compiled(tree)
        compiled(tree)
    assert f.calls == 6
    for k in (2, 2.0, True, 1, 2 + 0j):
        compiled([X], k)
        compiled([X], k)
    assert f.calls == 11
    compiled([X], how="b")
    compiled([X], k=2)
    assert f.calls == 13


def test_the_default_device_is_part_of_the_signature() -> None:
    """A function without tensors makes its own where outside data goes."""
    device = FakeProvider(auto=True)
    for fn, args in ((lambda: ta.ones(3), ()), (lambda n: ta.arange(n) * 2, (3,))):
        compiled = ta.compile(fn)
        for _ in range(2):
            assert compiled(*args).device is CPU
            with ta.default_device(device):
                assert compiled(*args).device is device
                assert compiled(*args).numpy().tolist() == fn(*args).numpy().tolist()
        assert (compiled.cache.misses, compiled.cache.hits) == (2, 4)


def test_zeros_of_either_sign_are_apart() -> None:
    compiled = ta.compile(lambda x, k: x / k)
    for k in (0.0, -0.0, 0.0):
        assert compiled(ta.asarray(1.0), k).item() == math.copysign(math.inf, k)
    moved = ta.compile(lambda x, k: ta.imag(x + k))
    x = ta.asarray(complex(0, -0.0))
    for k in (complex(0, 0.0), complex(0, -0.0), complex(1, 0.0), complex(1, -0.0)):
        for f in (moved, lambda x, k: ta.imag(x + k)):
            assert math.copysign(1, f(x, k).item()) == math.copysign(1, k.imag)


def test_full_caches_give_up_what_was_used_least_lately() -> None:
    compiled = ta.compile(lambda x: x + 1.0)
    limit = compiled.cache.limit
    for n in range(limit + 3):
        compiled(np.ones(n))
        compiled(np.ones(0))  # always used
    info = compiled.cache
    assert (info.size, info.evictions) == (limit, 3)
    compiled(np.ones(0))
    assert compiled.cache.misses == info.misses
    compiled(np.ones(1))
    assert compiled.cache.misses == info.misses + 1


def test_functions_of_one_structure_share_their_replay() -> None:
    misses, hits = GRAPHS.info.misses, GRAPHS.info.hits
    for scale in (3.25, 3.25, 3.5):
        ta.compile(lambda x, s=scale: ta.tanh(x * s) + 17.75)(X)
    assert (GRAPHS.info.misses - misses, GRAPHS.info.hits - hits) == (2, 1)


def test_a_failed_trace_is_not_kept() -> None:
    f = Counted(lambda x: x @ ta.ones((5, 5)))
    compiled = ta.compile(f)
    for _ in range(2):
        with pytest.raises(TenferroError):
            compiled(X)
    assert (f.calls, compiled.cache.size) == (2, 0)


def test_specs_stand_for_arguments() -> None:
    f = Counted(lambda x, w: x @ w)
    compiled = ta.compile(f)
    plan = compiled.plan(ta.Spec((2, 3)), ta.Spec((3, 2)))
    assert compiled(X, W) is not None
    assert f.calls == 1
    assert compiled.plan(X, W) is plan


def test_a_wrapper_has_the_name_of_its_function() -> None:
    def step(x: Any) -> Any:
        """One step."""
        return x

    assert (ta.compile(step).__name__, ta.compile(step).__doc__) == (
        "step",
        "One step.",
    )


def test_mistakes_have_names() -> None:
    for call, text in (
        (lambda: ta.compile(lambda x, y: x)(X, bytearray(1)), "hashable"),
        (lambda: ta.compile(lambda x: x, donate_argnums=1)(X), "donate_argnums"),
        (lambda: ta.compile(lambda x: x, donate_argnums=-2)(X), "donate_argnums"),
    ):
        with pytest.raises(InvalidArgumentError) as caught:
            call()
        assert text in str(caught.value)
    with pytest.raises(DTypeError, match="`fn`"):
        ta.compile(3)  # type: ignore[arg-type]


# ---- what is kept alive --------------------------------------------------------------


def test_arguments_and_results_are_not_kept() -> None:
    compiled = ta.compile(lambda x, y: (ta.tanh(x @ y), x))
    gc.disable()
    try:
        x, y = normal(100, 100), normal(100, 100)
        live, nbytes = BASE.live, BASE.live_bytes
        out = compiled(x, y)
        assert BASE.live == live + 1
        del x, y, out
        assert BASE.live == live - 2
        assert BASE.live_bytes == nbytes - 2 * 80_000
    finally:
        gc.enable()


def test_constants_live_as_long_as_the_function() -> None:
    gc.collect()
    live = BASE.live
    w = normal(3, 2)
    compiled = ta.compile(lambda x, w=w: x, donate_argnums=())
    inner = [normal(3, 2)]
    compiled = ta.compile(lambda x: x @ inner[0])
    agree(compiled(X), X @ inner[0])
    kept = inner.pop()
    wanted = X @ kept
    del kept
    agree(compiled(X), wanted)  # its own constant
    del wanted
    assert BASE.live == live + 2  # w and the constant
    del compiled, w
    assert BASE.live == live


def test_a_shared_replay_keeps_no_constants() -> None:
    gc.collect()
    live = BASE.live

    def run() -> None:
        w = normal(3, 2)
        agree(ta.compile(lambda x: x @ w)(X), X @ w)

    for _ in range(3):
        run()
    gc.collect()
    assert BASE.live == live


def test_evicted_signatures_let_go_of_their_constants() -> None:
    gc.collect()
    live = BASE.live
    compiled = ta.compile(lambda x: x + ta.asarray(np.ones(x.shape)))
    for n in range(200):
        compiled(np.ones(n))
    gc.collect()
    assert BASE.live == live + compiled.cache.limit
    del compiled
    assert BASE.live == live


def test_trimming_the_pool_gives_arenas_back() -> None:
    compiled = ta.compile(lambda x: ta.sum(ta.tanh(x) @ x))
    x = normal(128, 128)
    first = compiled(x)
    CPU.trim()
    assert CPU.remembered == {}
    assert CPU.pool_bytes == 0
    agree(compiled(x), first, 0)
    assert len(CPU.remembered) == 1


def test_functions_over_arenas_are_remembered_up_to_a_limit() -> None:
    from tenferro_ad.runtime._replay import FRAMES

    CPU.trim()
    for n in range(FRAMES + 5):
        ta.compile(lambda x, n=n: ta.sum(ta.tanh(x * float(n + 2))))(np.ones(3))
    assert len(CPU.remembered) == FRAMES


# ---- results -------------------------------------------------------------------------


def test_results_may_be_inputs_repeated_views_or_numbers() -> None:
    def f(x: Any, w: Any) -> Any:
        y = ta.tanh(x)
        return {
            "input": x,
            "again": [x, y, y],
            "view of input": x.T,
            "view of result": ta.reshape(y, (3, 2)),
            "row": y[0],
            "number": 3,
            "text": "a",
            "nothing": None,
            "array": np.arange(3),
            "closed": W,
            "fresh constant": ta.asarray(2.5),
            "untouched": w,
        }

    compiled = ta.compile(f)
    compiled(X, W)  # outside data comes in while tracing
    for _ in range(3):
        with ta.ledger() as led:
            out = compiled(X, W)
        agree(out, f(X, W))
        # y alone: everything else is an input, a constant or a view.
        led.expect(allocations={"OperationOutput": 1}, copies={})
        assert out["input"]._record is X._record
        assert out["again"][1]._record is out["again"][2]._record
        del out


def test_results_live_on_their_own() -> None:
    compiled = ta.compile(lambda x: (ta.exp(x), ta.exp(x) * 2.0, ta.sin(x)[0]))
    kept = [compiled(X) for _ in range(3)]
    compiled(2.0 * X)
    for found in kept:
        agree(found, (ta.exp(X), ta.exp(X) * 2.0, ta.sin(X)[0]), 1e-14)
    a, b, _ = kept[0]
    del kept, found
    assert a.into_value().as_view().numpy().shape == (2, 3)
    agree(b, ta.exp(X) * 2.0, 1e-14)


def test_a_result_that_is_an_input_has_one_more_holder() -> None:
    x = normal(3)
    (y,) = ta.compile(lambda x: (x,))(x)
    with pytest.raises(TenferroError):
        y.into_value()
    del x
    y.into_value()


def test_numbers_as_results_are_values_of_their_own() -> None:
    compiled = ta.compile(lambda x: (ta.asarray(2.0), x.shape[0] * 1.0))
    one, two = compiled(X), compiled(X)
    assert one[0].item() == 2.0
    assert one[1] == 2.0
    assert one[0]._record is two[0]._record  # the function's own constant


@pytest.mark.parametrize(
    "layout",
    [
        lambda a: a.T,
        lambda a: a[::-1],
        lambda a: a[:, ::2],
        lambda a: a[1:, 1:],
        lambda a: ta.broadcast_to(a[:1], (4, 6)),
        lambda a: ta.broadcast_to(a[:, :1], (4, 6))[:, ::-1],
    ],
)
def test_inputs_may_have_any_strides(layout: Callable[[Any], Any]) -> None:
    x = layout(normal(4, 6))

    def f(x: Any) -> Any:
        flat = ta.reshape(x, (-1,))
        return (
            x,
            x.T @ x,
            ta.sum(ta.tanh(flat) * flat),
            ta.reshape(x.T, (-1, 1)),
            x[::-1] * 2.0,
            ta.cumulative_sum(x, axis=0),
        )

    compiled = ta.compile(f)
    for _ in range(2):
        agree(compiled(x), f(x), 1e-13)
    fresh = ta.asarray(np.ascontiguousarray(ta.stop_gradient(x)))
    agree(compiled(fresh), f(fresh), 1e-13)
    g = ta.grad(lambda x: ta.sum(f(x)[1]) + f(x)[2])
    agree(ta.compile(g)(x), g(x), 1e-12)


def test_results_of_libraries_may_have_other_strides() -> None:
    """Factors come from LAPACK in column order; views are taken all the same."""

    def f(x: Any) -> Any:
        q, r = ta.linalg.qr(x)
        u, s, vh = ta.linalg.svd(x)
        return q, r, ta.reshape(q, (-1,)), q.T, u, vh, ta.reshape(u, (-1,)), s, r[0]

    x = normal(4, 4)
    agree(ta.compile(f)(x), f(x), 1e-12)
    g = ta.compile(ta.grad(lambda x: ta.sum(f(x)[2] ** 3) + ta.sum(f(x)[6] ** 3)))
    agree(
        g(x), ta.grad(lambda x: ta.sum(f(x)[2] ** 3) + ta.sum(f(x)[6] ** 3))(x), 1e-10
    )


def test_empty_arrays_and_scalars() -> None:
    def f(x: Any, y: Any) -> Any:
        return ta.concat([x, x * 2.0]), ta.sum(x), y * ta.exp(y), ta.reshape(x, (0, 5))

    x, y = ta.zeros((0, 3)), ta.asarray(0.5)
    agree(ta.compile(f)(x, y), f(x, y))


# ---- ledgers -------------------------------------------------------------------------


def loss(x: Any, w: Any) -> Any:
    return ta.sum(ta.tanh(x @ w) ** 2)


def test_every_scope_counts_what_the_plan_says(provider_calls: Any) -> None:
    step = ta.compile(ta.grad(loss, (0, 1)))
    plan = step.plan(X, W)
    step(X, W)
    for options in ({}, {"detail": False}, {"events": True}):
        provider_calls.reset()
        with ta.ledger(**options) as led:
            step(X, W)
        assert dict(led.allocations) == plan.allocations == {"OperationOutput": 3}
        assert led.copies == {}
        assert provider_calls.total == 3
        assert led.live == 0
        assert led.peak_bytes == plan.peak
    names = [e.operation for e in led.events if e.kind == "allocation"]
    assert names[0] == "arena"
    assert all("test_compile.py" in e.where for e in led.events if e.kind != "release")


def test_forbidden_events_stop_before_anything_is_written() -> None:
    step = ta.compile(lambda x: ta.tanh(x) + 1.0)
    wanted = step(X)
    gc.collect()
    live = BASE.live
    with ta.forbid(allocations=True), pytest.raises(ForbiddenEventError):
        step(X)
    copying = ta.compile(lambda x: ta.reshape(x.T, (-1,)) * 1.0)
    copying(X)
    with ta.forbid(copies=True):
        step(X)
        with pytest.raises(ForbiddenEventError):
            copying(X)
    gc.collect()
    assert BASE.live == live
    agree(step(X), wanted, 0)


def test_a_failure_midway_leaves_nothing_behind() -> None:
    def f(x: Any, i: Any) -> Any:
        y = ta.exp(x)
        return y, ta.take(y, i, axis=0), y @ y.T

    compiled = ta.compile(f)
    good, bad = ta.asarray([0, 1]), ta.asarray([0, 7])
    wanted = compiled(X, good)
    gc.collect()
    live, before = BASE.live, CPU.pool_bytes
    for _ in range(3):
        with pytest.raises(IndexRangeError, match="7"):
            compiled(X, bad)
        gc.collect()
        assert BASE.live == live
    assert CPU.pool_bytes == before  # the arena is back
    agree(compiled(X, good), wanted, 0)


def test_explicit_copies_of_the_program_are_counted_each_time() -> None:
    compiled = ta.compile(lambda x: ta.reshape(x.T, (-1,)))
    for _ in range(2):
        with ta.ledger() as led:
            compiled(X)
        led.expect(
            allocations={"ExplicitDuplicateDestination": 1},
            copies={"ExplicitDuplicate": 1},
        )


# ---- recordings around ---------------------------------------------------------------


def test_recordings_see_every_operation() -> None:
    compiled = ta.compile(loss)
    w = ta.variable(np.asarray(W))
    compiled(X, w)
    for _ in range(2):
        with ta.Tape() as tape:
            out = compiled(X, w)
        assert (
            [eq.call.op.name for eq in tape.program().equations]
            == [
                "matmul",
                "tanh",
                "square",
                "sum",
            ]
            if hasattr(tape, "program")
            else True
        )
        agree(tape.backward(out).take_grad(w), ta.grad(loss, 1)(X, W))
    agree(ta.grad(compiled, (0, 1))(X, W), ta.grad(loss, (0, 1))(X, W))
    agree(ta.jvp(compiled, (X, W), (X, W)), ta.jvp(loss, (X, W), (X, W)))
    many = ta.stack([X, 2.0 * X])
    agree(ta.vmap(compiled, (0, None))(many, W), ta.vmap(loss, (0, None))(many, W))
    agree(ta.hessian(compiled, 1)(X, W), ta.hessian(loss, 1)(X, W))
    assert compiled.cache.misses <= 2  # with and without the batch axis


def test_a_tape_around_a_compiled_step_records_no_constants() -> None:
    step = ta.compile(ta.grad(loss, 1))
    with ta.Tape() as tape:
        step(X, W)
        assert len(tape) == 0


# ---- threads -------------------------------------------------------------------------


def test_threads_share_one_compiled_function() -> None:
    step = ta.compile(ta.grad(lambda w, x: ta.sum(ta.tanh(x @ w @ w))))
    w = normal(40, 40)
    xs = [normal(5, 40) for _ in range(6)]
    wanted = [ta.grad(lambda w, x: ta.sum(ta.tanh(x @ w @ w)))(w, x) for x in xs]
    found: list[Any] = [None] * len(xs)
    start = threading.Barrier(len(xs))

    def work(k: int) -> None:
        start.wait()
        for _ in range(20):
            found[k] = step(w, xs[k])

    threads = [threading.Thread(target=work, args=(k,)) for k in range(len(xs))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    agree(found, wanted, 1e-12)
    assert step.cache.size == 1


# ---- other dtypes --------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.complex64, np.complex128])
def test_steps_in_other_dtypes(dtype: Any) -> None:
    def f(x: Any, w: Any) -> Any:
        y = ta.tanh(x @ w)
        return ta.sum(ta.real(y * ta.conj(y)))

    x, w = (ta.astype(t, dtype) for t in (X, W))
    g = ta.grad(f, (0, 1))
    tolerance = {2: 1e-2, 4: 1e-5, 8: 1e-5, 16: 1e-12}[np.dtype(dtype).itemsize]
    agree(ta.compile(g)(x, w), g(x, w), tolerance)


def test_integer_work() -> None:
    def f(i: Any) -> Any:
        return i // 3, i % 3, ta.bitwise_and(i, 1), i > 2, ta.sum(i), ta.sort(-i)

    i = ta.arange(7)
    agree(ta.compile(f)(i), f(i))
    with pytest.raises(IntegerInputError):
        ta.compile(ta.grad(lambda i: ta.sum(i)))(i)


# ---- arguments that are no tensors ---------------------------------------------------


class Foreign:
    """An array of another library."""

    def __init__(self, data: Any) -> None:
        self.data = np.asarray(data)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return self.data if dtype is None else self.data.astype(dtype)


def test_arrays_of_other_libraries_are_operands() -> None:
    f = ta.compile(lambda x, s: x * ta.asarray(s))
    x, s = ta.ones(3), Foreign([1.0, 2.0, 3.0])
    assert f(x, s).tolist() == [1, 2, 3]
    s.data *= 5
    assert f(x, s).tolist() == [5, 10, 15]
    assert f.cache.misses == 1


class Layer:
    """A model that is compared by identity."""

    def __init__(self, w: Any) -> None:
        self.w = ta.asarray(w)

    @ta.compile
    def scaled(self, x: Any) -> Any:
        """x * w"""
        return x * self.w


def test_objects_whose_content_could_change_unseen_are_refused() -> None:
    layer = Layer([2.0])
    f = ta.compile(lambda model, x: x * model.w)
    for call in (lambda: f(layer, ta.ones(1)), lambda: layer.scaled(ta.ones(1))):
        with pytest.raises(InvalidArgumentError, match="compared by identity") as told:
            call()
        assert "Layer`" in str(told.value)
    assert layer.w.tolist() == [2]


class Scale(Layer):
    """The same as a node of pytrees."""


optree.register_pytree_node(
    Scale,
    lambda s: ((s.w,), None),
    lambda _, found: _scale_of(found[0]),
    namespace="tenferro_ad",
)


def _scale_of(w: Any) -> Scale:
    made = object.__new__(Scale)
    made.w = w
    return made


def test_compiled_methods_take_their_object_as_the_first_argument() -> None:
    scale = Scale([2.0])
    assert scale.scaled(ta.ones(1)).tolist() == [2]
    scale.w = ta.asarray([3.0])
    assert scale.scaled(ta.ones(1)).tolist() == [3]
    assert Scale.scaled.cache.misses == 1
    assert Scale.scaled.__doc__ == "x * w"


def test_functions_devices_and_dtypes_are_part_of_the_signature() -> None:
    f = ta.compile(lambda x, g, dtype, device: g(ta.astype(x, dtype)))
    x = ta.ones(2)
    for g in (ta.sin, ta.cos, ta.sin):
        f(x, g, ta.float32, x.device)
    assert f(x, ta.sin, ta.float64, x.device).dtype == ta.float64
    assert (f.cache.misses, f.cache.hits) == (3, 1)
