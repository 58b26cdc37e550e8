"""Interrupts: wherever one arrives, what it hits can be used again.

CPython delivers a signal between bytecode instructions, at the places where it looks:
behind calls, at the beginning of functions, at jumps backwards. Here a trace function
raises `KeyboardInterrupt` at the first of these places below a call, then at the
second, and so on until the call ends unharmed; Python code of the standard library
counts too. Finalisers are left alone: what is raised there never reaches the caller.
"""

from __future__ import annotations

import ast
import dis
import functools
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import STATE
from tenferro_ad.backends import CPU
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import OutcomePendingError, UseAfterMoveError
from tests.contract.device_support import SECONDS, upload, value_of

LOOKS = {"RESUME", "CALL", "CALL_KW", "CALL_FUNCTION_EX", "JUMP_BACKWARD"}
MANY = 20_000  # places that no call here has


@functools.cache
def names(code: CodeType) -> dict[int, str]:
    return {i.offset: i.opname for i in dis.get_instructions(code)}


class Interrupter:
    """A trace function that raises once, at place number `at`."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.hit = False
        self.where = ""
        self._last: dict[int, str] = {}

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if frame.f_code.co_filename == __file__ or in_finaliser(frame):
            return None
        frame.f_trace_opcodes = True
        self._last[id(frame)] = "RESUME"
        return self._step

    def _step(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "exception":
            self._last[id(frame)] = ""  # a call that raised: the handler comes first
        elif event == "opcode":
            code, at = frame.f_code, frame.f_lasti
            before = self._last[id(frame)]
            self._last[id(frame)] = names(code)[at]
            if before in LOOKS:
                self.left -= 1
                if self.left < 0:
                    self.hit = True
                    self.where = f"{code.co_filename}:{frame.f_lineno} {code.co_name}"
                    raise KeyboardInterrupt
        return self._step


def in_finaliser(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


def interrupted(call: Callable[[], Any], at: int) -> tuple[str, Any]:
    """Where the interrupt hit, if it did, and what the call gave, if it ended."""
    trace, before = Interrupter(at), sys.gettrace()
    result = None
    sys.settrace(trace)
    try:
        result = call()
    except KeyboardInterrupt:
        assert trace.hit
    finally:
        sys.settrace(before)
    return trace.where, result


def places(call: Callable[[], Any]) -> Iterator[tuple[str, Any]]:
    """Interrupt a call at each place in turn; the last one is the call itself."""
    for at in range(MANY):
        where, result = interrupted(call, at)
        yield where, result
        if not where:
            assert at > 5  # there was something to interrupt
            return
    raise AssertionError("no end")


def owner(*values: float) -> ta.Tensor:
    return ta.asarray(np.array(values)).into_value()


def inputs() -> ta.ExecutionInputs:
    return ta.ExecutionInputs.of_tensors([owner(1.0, 2.0), owner(3.0, 4.0)])


def graph_of(rt: ta.Runtime, device: Any = CPU) -> Any:
    spec = ta.Spec((2,), np.float64, device)
    return rt.compile(ta.trace(lambda x, y: ta.tanh(x) * y, spec, spec))


WANTED = (np.tanh([1.0, 2.0]) * [3.0, 4.0]).tolist()


def test_nothing_waits_on_primitives_that_an_interrupt_can_leave_held() -> None:
    """Those of `threading` that are Python code; see `backends/_waiting.py`."""
    python = {"Event", "Condition", "Semaphore", "BoundedSemaphore", "Barrier", "Timer"}
    found = []
    for file in Path(ta.__file__).parent.rglob("*.py"):
        text = file.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)) if "threading" in text else ():
            match node:
                case ast.Attribute(value=ast.Name(id="threading"), attr=name) if (
                    name in python
                ):
                    found.append(f"{file.name}:{node.lineno}: {name}")
                case ast.Call(func=ast.Attribute(attr="start"), args=[]) if (
                    file.name != "_waiting.py"
                ):
                    found.append(f"{file.name}:{node.lineno}: Thread.start")
    assert found == []


# ---- submission ----------------------------------------------------------------------


def test_an_interrupt_while_waiting_for_what_is_done_loses_nothing() -> None:
    rt = ta.Runtime("cpu")
    graph = graph_of(rt)
    for at in range(MANY):
        handle = rt.submit(graph, inputs())
        while not handle.is_done:
            pass
        where, outcome = interrupted(handle.wait, at)
        if where:
            assert handle.is_done, where
            outcome = handle.wait(SECONDS)
        assert value_of(outcome).tolist() == WANTED, where
        with pytest.raises(UseAfterMoveError):
            handle.wait()
        if not where:
            break
    assert at > 5
    assert rt.close(SECONDS)


def test_an_interrupt_while_waiting_for_what_is_pending_leaves_the_handle() -> None:
    rt = ta.Runtime("cpu")
    graph = graph_of(rt)
    rt.endpoint.hold()
    handle = rt.submit(graph, inputs())

    def wait() -> Any:
        try:
            return handle.wait(1e-4)
        except OutcomePendingError:
            return "pending"

    for where, found in places(wait):
        assert (found is None) == bool(where)
        assert not handle.is_done, where
        with pytest.raises(OutcomePendingError):
            handle.wait(1e-4)
    rt.endpoint.let_go()
    assert value_of(handle.wait(SECONDS)).tolist() == WANTED
    assert rt.close(SECONDS)


@pytest.mark.parametrize("threads", ["started", "to start"])
def test_an_interrupt_in_submit_leaves_the_engine_and_the_inputs(threads: str) -> None:
    shared = ta.Runtime("cpu")
    graph = graph_of(shared)
    shared.submit(graph, inputs()).wait(SECONDS)
    used_up = 0
    for at in range(MANY):
        rt = shared if threads == "started" else ta.Runtime("cpu")
        given = inputs()
        where, handle = interrupted(functools.partial(rt.submit, graph, given), at)
        if handle is not None:
            assert value_of(handle.wait(SECONDS)).tolist() == WANTED
        # The engine is as it was, and in order.
        later = rt.submit(graph, inputs()).wait(SECONDS)
        assert value_of(later).tolist() == WANTED, where
        if where:
            try:
                again = rt.submit(graph, given)
            except UseAfterMoveError:
                used_up += 1  # the work was begun: it went on, detached
            else:
                assert value_of(again.wait(SECONDS)).tolist() == WANTED, where
        if rt is not shared:
            assert rt.close(SECONDS), where
        if not where:
            break
    assert at > 50
    assert used_up < at
    assert shared.close(SECONDS)


class Busy:
    """A job that keeps the worker until it is let go, and then enqueues nothing."""

    def __init__(self) -> None:
        self.begun, self.free = threading.Event(), threading.Event()

    def cross(self, boundary: Any) -> None:
        self.begun.set()
        assert self.free.wait(SECONDS)

    def reject(self, cause: BaseException) -> None:
        pass


def test_a_real_interrupt_gives_back_the_inputs_of_what_was_not_begun() -> None:
    def stop(*facts: object) -> None:
        raise KeyboardInterrupt

    rt, given, busy = ta.Runtime("cpu"), inputs(), Busy()
    graph = graph_of(rt)
    rt._engine.post(busy)  # type: ignore[arg-type]
    assert busy.begun.wait(SECONDS)
    before = signal.signal(signal.SIGALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        with pytest.raises(KeyboardInterrupt):
            rt.submit(graph, given)  # waits for the worker
    finally:
        signal.signal(signal.SIGALRM, before)
    assert len(given.bindings) == 2  # usable, and the worker does not know them
    busy.free.set()
    assert value_of(rt.submit(graph, given).wait(SECONDS)).tolist() == WANTED
    assert rt.close(SECONDS)


def test_an_interrupt_in_close_leaves_the_runtime_to_be_closed() -> None:
    graph = graph_of(ta.Runtime("cpu"))
    for at in range(MANY):
        rt = ta.Runtime("cpu")
        handle = rt.submit(graph, inputs())
        where, _ = interrupted(functools.partial(rt.close, SECONDS), at)
        assert rt.close(SECONDS), where
        assert value_of(handle.wait(SECONDS)).tolist() == WANTED
        if not where:
            break
    assert at > 5


# ---- recordings ----------------------------------------------------------------------


def context() -> tuple[Any, ...]:
    state = STATE.get()
    return state.account, state.level, state.trace, state.reason


def gradient(tape: ta.Tape, loss: ta.EagerTensor, v: ta.EagerTensor) -> Any:
    with tape.backward(loss).grad(v) as view:  # type: ignore[union-attr]
        return view.numpy().tolist()


def test_an_interrupt_at_the_entry_of_a_tape_changes_nothing() -> None:
    v = ta.variable([1.0, 2.0])
    with ta.Tape():
        around = context()
        for at in range(MANY):
            tape = ta.Tape()
            where, _ = interrupted(tape.__enter__, at)
            if where:
                assert context() == around, where
                assert len(tape) == 0
                tape.__enter__()  # it can be entered as if nothing had been
            assert STATE.get().level is tape._level
            loss = ta.sum(v * v)
            tape.__exit__()
            assert context() == around
            assert gradient(tape, loss, v) == [2.0, 4.0], where
            if not where:
                break
        assert at > 5


def test_an_interrupt_in_a_block_of_a_tape_ends_with_the_tape() -> None:
    v = ta.variable([1.0, 2.0])
    around = context()

    def block() -> None:
        with ta.Tape():
            pass

    for where, _ in places(block):
        assert context() == around, where
        assert not ta.sin(v).is_tracked, where


def test_a_tape_that_is_dropped_in_its_block_records_no_more() -> None:
    v = ta.variable([1.0, 2.0])
    around = context()
    ta.Tape().__enter__()
    assert context() == around
    assert not ta.sin(v).is_tracked


def test_a_tape_that_is_consumed_in_its_block_records_no_more() -> None:
    v = ta.variable([1.0, 2.0])
    with ta.Tape() as outer:
        with ta.Tape() as tape:
            loss = ta.sum(v * v)
            grads = tape.backward(loss)
            moved = v - 0.25 * grads[v]
            assert len(tape) == 0
            with moved.value() as guard:
                assert guard.numpy().tolist() == [0.5, 1.0]
            assert ta.sin(loss).is_tracked  # by the tape around
        total = ta.sum(moved * v)
    assert gradient(outer, total, v) == [1.0, 2.0]


def test_an_interrupt_at_the_entry_of_a_ledger_opens_none() -> None:
    around = context()
    for at in range(MANY):
        scope = ta.ledger()
        where, _ = interrupted(scope.__enter__, at)
        if not where:
            scope.__exit__()
            break
        assert context() == around, where
        with scope as led:
            ta.asarray([1.0]) + 1.0
        assert led.allocations["OperationOutput"] == 1
    assert at > 3


# ---- kernels -------------------------------------------------------------------------


@pytest.mark.clause("g3-worker-exception")
@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), SystemExit(3), GeneratorExit(), StopIteration(), OSError()],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("place", ["cpu", "fake"])
def test_whatever_a_registered_kernel_raises_is_a_proven_failure(
    place: str, error: BaseException
) -> None:
    raised = [error]

    def kernel(call: Any, outs: Any, ins: Any) -> None:
        if raised:
            raise raised.pop()
        np.multiply(ins[0], 2.0, outs[0])

    twice = ta.register_op(
        "tests.twice",
        ("x",),
        shapes=lambda x: (x.shape, x.dtype),
        kernel=kernel,
        replace=True,
    )
    fake = FakeProvider() if place == "fake" else None
    device = CPU if fake is None else fake
    rt = ta.Runtime(device)
    spec = ta.Spec((2,), np.float64, device)
    graph = rt.compile(ta.trace(lambda x: twice(ta.exp(x)), spec))
    given = ta.ExecutionInputs.of_tensors([upload([0.0, 0.0], device)])
    ends = []
    for _ in range(3):
        handle = rt.submit(graph, given)
        if fake is not None:
            fake.complete()
        ends.append(handle.wait(SECONDS))
        if isinstance(ends[-1], ta.RetiredFailed):
            assert ends[-1].inputs is given
            assert ends[-1].cause.__cause__ is error
        else:
            given = ta.ExecutionInputs.of_tensors([upload([0.0, 0.0], device)])
    assert [type(end).__name__ for end in ends] == [
        "RetiredFailed",
        "Completed",
        "Completed",
    ]
    assert value_of(ends[-1]).tolist() == [2.0, 2.0]
    assert rt.close(SECONDS)
