"""Facts of WebGPU that the backend rests on, each held by a test.

What any provider must do is in `test_conformance.py`. The library ends the process over
some mistakes instead of raising, so the lane runs in a process of its own in continuous
integration; none of those mistakes is reachable through the package.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import NotEnqueuedError
from tests.backends.lane_support import (
    SECONDS,
    WebGpuLane,
    is_in_flight_after_submission,
)
from tests.contract.device_support import until

X = np.asarray([0.5, 1.0, 2.0], np.float32)
SOURCES = Path(ta.__file__).parent / "backends"


@pytest.fixture
def webgpu(webgpu_only: str) -> Iterator[WebGpuLane]:
    made = WebGpuLane()
    yield made
    made.close()


def test_the_opengl_fallback_is_refused(webgpu: WebGpuLane) -> None:
    infos = ta.devices("webgpu")
    assert infos
    for info in infos:
        assert info.version.endswith((", Vulkan", ", Metal", ", D3D12"))


def test_a_long_kernel_is_not_complete_right_after_submission(
    webgpu: WebGpuLane,
) -> None:
    assert any(is_in_flight_after_submission(webgpu, n) for n in (256, 512))


def test_callers_never_wait_for_the_submission_before(
    webgpu: WebGpuLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library may block inside a submission until the one before it ends."""
    from tenferro_ad.backends import _webgpu_queue

    is_blocked, may_go_on = threading.Event(), threading.Event()
    proven = _webgpu_queue._proven

    def blocking(device: Any, commands: list[Any]) -> None:
        is_blocked.set()
        assert may_go_on.wait(SECONDS)  # else the device is lost
        proven(device, commands)

    x = ta.asarray(np.ones((8, 8), np.float32), device=webgpu.device)
    webgpu.device.drain()
    monkeypatch.setattr(_webgpu_queue, "_proven", blocking)
    products = [x @ x]
    assert is_blocked.wait(SECONDS)
    products += [x @ x for _ in range(6)]
    may_go_on.set()
    assert all(np.all(y.numpy() == 8.0) for y in products)


def test_a_kernel_binds_a_buffer_once_and_nothing_is_copied_for_that(
    webgpu: WebGpuLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reads where it writes has one binding for both."""
    device, in_place = webgpu.device, [0]
    bind = device.bind_group

    def watched(pipeline: Any, buffers: list[Any]) -> Any:
        assert len(set(map(id, buffers))) == len(buffers)
        in_place[0] += len(buffers) == 2  # one array, and the parameters
        return bind(pipeline, buffers)

    monkeypatch.setattr(device, "bind_group", watched)

    def step(w: Any, x: Any) -> Any:
        def body(w: Any, t: Any) -> tuple[Any, Any]:
            w = ta.tanh(w * t) + w
            return w * 0.5 + t, w

        w, rows = ta.scan(body, w, x)
        return w * 2.0 - ta.sum(rows, axis=0)

    w, x = np.full(4, 0.5, np.float32), np.linspace(0, 1, 12, dtype=np.float32)
    rows = x.reshape(3, 4)
    wanted = step(ta.asarray(w), ta.asarray(rows)).numpy()
    fast = ta.compile(step)
    found = fast(ta.asarray(w, device=device), ta.asarray(rows, device=device))
    assert np.allclose(found.numpy(), wanted, rtol=1e-5)
    v = ta.variable(ta.asarray(x, device=device))
    device.drain()
    before = in_place[0]
    with ta.exclusive(v) as (m,):
        ta.update(m, ta.fused(lambda E, p: p * p + 1.0))
    assert np.allclose(v.numpy(), x * x + 1.0, rtol=1e-6)
    assert in_place[0] == before + 1


def test_what_arrives_meanwhile_is_one_submission(
    webgpu: WebGpuLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tenferro_ad.backends import _webgpu_queue

    batches: list[int] = []
    proven = _webgpu_queue._proven

    def counting(device: Any, commands: list[Any]) -> None:
        batches.append(len(commands))
        proven(device, commands)

    x = ta.asarray(X, device=webgpu.device)
    webgpu.device.drain()
    monkeypatch.setattr(_webgpu_queue, "_proven", counting)
    webgpu.hold()
    y = x
    for _ in range(10):
        y = y + 1.0
    webgpu.let_go()
    assert y.tolist() == (X + 10).tolist()
    # At most the first alone (it was taken before the others arrived), then the rest.
    assert sum(batches) == 10
    assert len([n for n in batches if n]) <= 2


def test_proof_is_the_callback_and_not_the_answer_of_a_poll() -> None:
    """A poll that does not wait says that it is done while work runs."""
    source = (SOURCES / "_webgpu_queue.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    polls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and ast.unparse(node.value.func) == "lib.wgpuDevicePoll"
    ]
    calls = source.count("lib.wgpuDevicePoll(")
    assert calls == len(polls) > 0  # each a statement: its value is never looked at


def test_buffers_are_never_destroyed_by_hand() -> None:
    for name in ("_webgpu.py", "_webgpu_queue.py"):
        tree = ast.parse((SOURCES / name).read_text(encoding="utf-8"))
        called = {
            node.func.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        }
        assert "destroy" not in called


def test_empty_values_have_no_buffer_and_ordinary_records(webgpu: WebGpuLane) -> None:
    x = ta.asarray(np.zeros((0, 3), np.float32), device=webgpu.device)
    assert x._record.array.allocation.raw is None
    y = ta.exp(x) + 1.0
    assert y.value().numpy().shape == (0, 3)
    assert ta.sum(y).item() == 0.0


def test_booleans_take_a_word_there_and_a_byte_here(webgpu: WebGpuLane) -> None:
    flags = np.asarray([[True, False, True], [False, True, True]])
    x = ta.asarray(flags, device=webgpu.device)
    assert x._record.array.allocation.raw.size == 24
    assert x.nbytes == 6
    assert np.array_equal(x.numpy(), flags)
    assert np.array_equal(ta.logical_not(x).T.numpy(), ~flags.T)
    with ta.exclusive(x) as (m,):
        m.write()[0, 0] = False
    assert x.tolist() == [[False, False, True], [False, True, True]]


def test_a_kernel_may_read_and_write_one_buffer_through_a_copy(
    webgpu: WebGpuLane,
) -> None:
    """The library lets no dispatch bind one buffer twice, even at separate places."""
    w = ta.variable(ta.asarray(np.arange(6, dtype=np.float32), device=webgpu.device))
    with ta.exclusive(w) as (m,):
        first, second = m.split_mut([slice(0, 3), slice(3, 6)])
        with first, second:
            first.copy_from(second.as_view())
    assert w.tolist() == [3.0, 4.0, 5.0, 3.0, 4.0, 5.0]


def test_more_groups_than_one_axis_has_are_folded(webgpu: WebGpuLane) -> None:
    n = 65_535 * 64 + 1000
    x = ta.asarray(np.ones(n, np.float32), device=webgpu.device)
    y = (x + 1.0).numpy()
    assert y[0] == y[-1] == 2.0
    assert y.min() == y.max() == 2.0


def test_a_bad_program_is_refused_before_anything_is_enqueued(
    webgpu: WebGpuLane, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = ta.asarray(X, device=webgpu.device)
    webgpu.device.drain()

    def broken(source: str, entry: str) -> Any:
        return webgpu.device.raw.create_shader_module(code="this is no WGSL")

    before = webgpu.launched
    with monkeypatch.context() as patch:
        patch.setattr(webgpu.device, "pipeline", broken)
        with pytest.raises(NotEnqueuedError):
            ta.exp(x)
    assert webgpu.launched == before
    assert np.allclose(ta.exp(x).numpy(), np.exp(X), rtol=1e-6)


def test_four_threads_share_a_device(webgpu: WebGpuLane) -> None:
    found: dict[int, float] = {}

    def work(k: int) -> None:
        x = ta.asarray(np.full(16, k, np.float32), device=webgpu.device)
        for _ in range(20):
            x = x + 1.0
        found[k] = float(ta.sum(x))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(found) == 4)
    assert found == {k: 16 * (20.0 + k) for k in range(4)}
    for thread in threads:
        thread.join()
    webgpu.device.drain()
