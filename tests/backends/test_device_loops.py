"""Compiled loops and branches on lanes: the events of the CPU, for any length.

The bodies' values and carries lie in arenas that a run allocates once, on asynchronous
devices as on the host. On WebGPU, whose kernels may not read and write one buffer, each
place of an arena is an allocation; their number is no matter of the length either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tests.backends.lane_support import Counts, Lane, no_cpu_kernels

Array = np.ndarray[Any, Any]
Function = Callable[[Any], Any]


def scanned(x: Any) -> Any:
    return ta.scan(lambda c, t: (ta.tanh(c * 0.9 + t), c * t), x[0], x)


def backwards(x: Any) -> Any:
    """Transposed carries, and entries that are no rows of memory."""

    def body(c: Any, t: Any) -> Any:
        return (c @ c.T * 0.25 + t, ta.reshape(c.T, (-1,)))

    first = ta.reshape(x[0, :4], (2, 2)).T
    entries = ta.reshape(x[:, :4], (-1, 2, 2))
    entries = ta.permute_dims(entries, (0, 2, 1))
    return ta.scan(body, first, entries, reverse=True)


def counted(x: Any) -> Any:
    return ta.fori_loop(0, x.shape[0], lambda i, c: c * 0.9 + ta.sin(c) * 0.1, x)


def until(x: Any) -> Any:
    """As many steps as there are rows, though values decide."""
    n = float(x.shape[0])

    def body(s: Any) -> Any:
        k, c = s
        return k + 1.0, c * 0.9 + x * 0.1

    start = (ta.sum(x * 0.0), x)
    return ta.while_loop(lambda s: s[0] < n, body, start, 40)


def branched(x: Any) -> Any:
    return ta.cond(ta.sum(x) > 0.0, lambda x: ta.exp(x) * x, lambda x: x[::-1] * 2.0, x)


def nested(x: Any) -> Any:
    def body(c: Any, t: Any) -> Any:
        def more(c: Any) -> Any:
            return ta.fori_loop(0, 2, lambda i, c: c + t * 0.5, c)

        return ta.cond(ta.sum(c) > 1.0, lambda c: c * 0.5, more, c), c * t

    return ta.scan(body, x[0], x)


FUNCTIONS: dict[str, Function] = {
    "scan": scanned,
    "backwards": backwards,
    "fori": counted,
    "while": until,
    "cond": branched,
    "nested": nested,
}


def leaves(found: Any) -> list[Any]:
    if isinstance(found, tuple):
        return [x for part in found for x in leaves(part)]
    return [found]


def gradient(fn: Function) -> Function:
    def loss(x: Any) -> Any:
        total = 0.0
        for y in leaves(fn(x)):
            total = total + ta.sum(y * y)
        return total

    return ta.grad(loss)


def data(n: int, sign: float = 1.0) -> Array:
    rng = np.random.default_rng(n)
    return (sign * 0.5 * rng.random((n, 5))).astype(np.float32)


def seen(fast: Any, x: Any) -> tuple[Counter[str], Counter[str], int, list[Array]]:
    """Events and peak of one run, and its results."""
    with ta.ledger() as led:
        found = leaves(fast(x))
    return (
        led.allocations,
        led.copies,
        led.peak_bytes,
        [np.array(y) for y in found],
    )


@pytest.mark.clause("g7-lane-async", "g7-lane-no-fallback")
@pytest.mark.parametrize("mode", ["forward", "gradient"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_make_the_events_of_the_cpu_for_any_length(
    eager_lane: Lane, records: Counts, name: str, mode: str
) -> None:
    device = eager_lane.device
    fn = FUNCTIONS[name] if mode == "forward" else gradient(FUNCTIONS[name])
    by_length = []
    for n in (4, 9):
        wanted = seen(ta.compile(fn), ta.asarray(data(n)))
        fast, x = ta.compile(fn), ta.asarray(data(n), device=device)
        fast(x)
        device.drain()
        opened = records()
        with no_cpu_kernels():
            found = seen(fast, x)
            device.drain()
        now = records()
        opens = now["opened"] - opened["opened"]
        assert opens == now["released"] - opened["released"] > 0
        assert found[1] == wanted[1]
        for y, expected in zip(found[3], wanted[3], strict=True):
            assert np.allclose(y, expected, rtol=1e-4, atol=1e-5)
        by_length.append(found[0])
        if eager_lane.name != "webgpu":
            assert found[:3] == wanted[:3]
    assert by_length[0] == by_length[1]


def test_a_scan_allocates_what_the_pages_say(eager_lane: Lane) -> None:
    fast = ta.compile(lambda x: ta.scan(lambda c, t: (c * 0.9 + t, c * t), x[0], x)[1])
    for n in (4, 9):
        x = ta.asarray(data(n), device=eager_lane.device)
        plan = sum(fast.plan(x).allocations.values())
        count = sum(seen(fast, x)[0].values())
        assert plan == 2  # the stack, and one arena
        # On WebGPU the carry and its spare place have a buffer each.
        assert count == (3 if eager_lane.name == "webgpu" else plan)


def test_a_branch_takes_the_side_that_the_value_says(eager_lane: Lane) -> None:
    fast = ta.compile(branched)
    for sign in (1.0, -1.0):
        x = ta.asarray(data(3, sign), device=eager_lane.device)
        wanted = branched(ta.asarray(data(3, sign)))
        assert np.allclose(np.array(fast(x)), np.array(wanted), rtol=1e-5)


def test_loops_without_steps_and_of_many_kernels(eager_lane: Lane) -> None:
    device = eager_lane.device
    for n in (0, 150):  # more kernels than one launch gathers
        a = np.linspace(0.1, 0.9, n * 2, dtype=np.float32).reshape(n, 2)

        def fn(c: Any, x: Any) -> Any:
            return ta.scan(lambda c, t: (ta.sin(c) + t, c), c, x)

        c = np.array([0.5, 0.25], np.float32)
        wanted = fn(ta.asarray(c), ta.asarray(a))
        found = ta.compile(fn)(
            ta.asarray(c, device=device), ta.asarray(a, device=device)
        )
        for y, expected in zip(leaves(found), leaves(wanted), strict=True):
            assert np.allclose(np.array(y), np.array(expected), rtol=1e-4)

    def none(x: Any) -> Any:
        return ta.while_loop(lambda s: ta.sum(s) < 0.0, lambda s: s + 1.0, x)

    x = ta.asarray(data(3), device=device)
    assert np.array_equal(np.array(ta.compile(none)(x)), data(3))


def places(lane: Lane) -> int:
    """Allocations for the arena of a loop whose carry goes to and fro."""
    return 2 if lane.name == "webgpu" else 1


def test_a_loop_writes_over_a_donated_input(eager_lane: Lane) -> None:
    def fn(w: Any, x: Any) -> Any:
        found = ta.scan(lambda w, t: (w * 0.5 + t, None), w, x)[0]
        return ta.cumulative_sum(found)

    fast = ta.compile(fn, donate_argnums=0)
    x = ta.asarray(data(6), device=eager_lane.device)
    start = np.ones(5, np.float32)
    wanted = np.array(fn(ta.asarray(start), ta.asarray(data(6))))
    for _ in range(2):
        w = ta.asarray(start, device=eager_lane.device)
        with ta.ledger() as led:
            y = fast(w, x)
        assert led.allocations == {"OperationOutput": places(eager_lane)}
        assert np.allclose(np.array(y), wanted, rtol=1e-5)
        with pytest.raises(ta.errors.UseAfterMoveError):
            w.numpy()


def test_explicit_duplicates_in_a_step_are_counted(eager_lane: Lane) -> None:
    def fn(x: Any) -> Any:
        def body(c: Any, t: Any) -> Any:
            return c + t, ta.reshape(ta.reshape(c, (2, 3)).T, (6,))

        return ta.scan(body, x[0], x)[1]

    array = np.linspace(0.0, 1.0, 24, dtype=np.float32).reshape(4, 6)
    counts = []
    for device in ("cpu", eager_lane.device):
        x = ta.asarray(array, device=device)
        counts.append(seen(ta.compile(fn), x)[1])
    assert counts[0] == counts[1] == {"ExplicitDuplicate": 4}


def test_compiled_loops_read_a_first_carry_in_row_major_order() -> None:
    x = ta.asarray(data(4))
    assert seen(backwards, x)[1] == {"ExplicitDuplicate": 3}  # not in the first step
    assert seen(ta.compile(backwards), x)[1] == {"ExplicitDuplicate": 4}
