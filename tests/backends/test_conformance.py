"""The provider contract, the same on every lane: admission, retirement, outcomes.

Values are one operation on small float32 data; what is under test is who owns what
while it runs, and how it may end.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tenferro_ad._aval import aval_of
from tenferro_ad.backends import PreparedLaunch, bind_launch, infer_call
from tenferro_ad.errors import (
    BorrowedSubmitRejected,
    NotEnqueuedError,
    OutcomePendingError,
    SubmitRejected,
    UnsupportedError,
)
from tenferro_ad.ops import OPS
from tenferro_ad.runtime import (
    BorrowedBindings,
    Completed,
    CompletionUnproven,
    ExecutionInputs,
    RetiredFailed,
    submit_borrowed,
)
from tests.backends.lane_support import SECONDS, Counts, Lane, Panicking
from tests.contract.device_support import strong, until, value_of

X = np.asarray([0.5, 1.0, 2.0], np.float32)
DOCS = Path(__file__).parents[2] / "docs" / "devices.md"


def proof_of_identity(lane: Lane, inputs: ExecutionInputs) -> None:
    """The returned package is usable: it can be submitted again, with its values."""
    outcome = lane.submit(lane.engine(), "exp", inputs).wait(SECONDS)
    assert np.allclose(value_of(outcome), np.exp(X), rtol=1e-6)


# ---- admission and completion


@pytest.mark.clause("g5-test-provider-matrix", "g1-test-all-providers")
def test_owned_inputs_are_submitted_and_come_back_as_a_bundle(
    any_lane: Lane, records: Counts
) -> None:
    lane = any_lane
    engine = lane.engine()
    lane.hold()
    handle = lane.submit(engine, "exp", lane_inputs(lane))
    assert not handle.is_done
    with pytest.raises(OutcomePendingError):
        handle.wait(0.02)
    lane.let_go()
    outcome = handle.wait(SECONDS)
    assert isinstance(outcome, Completed)
    assert np.allclose(value_of(outcome), np.exp(X), rtol=1e-6)
    assert records()["opened"] == records()["released"]


def lane_inputs(lane: Lane, count: int = 1) -> ExecutionInputs:
    """Inputs at rest; a held lane is let go meanwhile."""
    lane.let_go()
    inputs = lane.inputs(*[X] * count)
    lane.hold()
    return inputs


@pytest.mark.clause("g5-test-provider-matrix")
def test_borrowed_submission_is_refused_before_admission(any_lane: Lane) -> None:
    lane = any_lane
    source, target = lane.tensor(X), lane.tensor(X)
    before = lane.launched
    bindings = BorrowedBindings.of_views(
        lane.endpoint, OPS["exp"], [source.as_view()], [target.as_view_mut()]
    )
    with pytest.raises(BorrowedSubmitRejected) as caught:
        submit_borrowed(bindings)
    cause, returned = caught.value.into_parts()
    assert returned is bindings
    assert isinstance(cause.__cause__, UnsupportedError)
    assert lane.launched == before
    returned.close()


@pytest.mark.parametrize("when", ["prepare", "enqueue"])
def test_a_refusal_before_the_boundary_returns_the_exact_inputs(
    any_lane: Lane, records: Counts, when: str
) -> None:
    lane = any_lane
    inputs = lane.inputs(X)
    opened = records().get("opened", 0)
    error: Exception = NotEnqueuedError(operation="enqueue", found="a test says no")
    if when == "prepare":
        error = RuntimeError("a panic before the boundary")
    engine = lane.engine(endpoint=Panicking(lane.endpoint, when, error))
    before = lane.launched
    with pytest.raises(SubmitRejected) as caught:
        lane.submit(engine, "exp", inputs)
    assert caught.value.into_parts()[1] is inputs
    assert lane.launched == before
    seen = records()
    assert seen.get("opened", 0) - opened == seen.get("undone", 0)
    del caught, error
    proof_of_identity(lane, inputs)


def test_a_panic_after_the_boundary_drains_and_returns_the_exact_inputs(
    any_lane: Lane,
) -> None:
    lane = any_lane
    panic = RuntimeError("a panic after the boundary")
    engine = lane.engine(endpoint=Panicking(lane.endpoint, "enqueued", panic))
    inputs = lane_inputs(lane)
    handle = lane.submit(engine, "exp", inputs)
    assert not handle.is_done  # it may be running: nothing comes back yet
    lane.let_go()
    outcome = handle.wait(SECONDS)
    assert isinstance(outcome, RetiredFailed)
    assert outcome.inputs is inputs
    assert "a panic after" in str(outcome.cause)
    del outcome, panic
    proof_of_identity(lane, inputs)


# ---- outcomes


def test_a_reported_failure_returns_the_exact_inputs(
    failing_lane: Lane, records: Counts
) -> None:
    lane = failing_lane
    inputs = lane_inputs(lane)
    handle = lane.submit(lane.engine(), "exp", inputs)
    lane.break_off()
    outcome = handle.wait(SECONDS)
    assert isinstance(outcome, RetiredFailed)
    assert outcome.inputs is inputs
    assert records()["opened"] == records()["released"]
    del outcome
    proof_of_identity(lane, inputs)


def test_without_proof_nothing_comes_back_and_everything_is_kept(
    any_lane: Lane, records: Counts
) -> None:
    lane = any_lane
    inputs = lane_inputs(lane)
    handle = lane.submit(lane.engine(deadline=0.1), "exp", inputs)
    outcome = handle.wait(SECONDS)
    assert isinstance(outcome, CompletionUnproven)
    assert not hasattr(outcome, "inputs")
    assert outcome.diagnostic_keys
    assert records()["unproven"] == 1
    lane.let_go()  # the work really ends now, and the record stays
    lane.device.drain()
    assert lane.endpoint.synchronise(time.monotonic() + SECONDS) == "done"
    assert records()["unproven"] == 1
    assert "pending" not in records()


@pytest.mark.parametrize("state", ["in flight", "ended"])
def test_dropping_the_handle_changes_nothing_for_the_work(
    any_lane: Lane, records: Counts, state: str
) -> None:
    lane = any_lane
    engine = lane.engine()
    inputs = lane_inputs(lane)
    handles = [lane.submit(engine, "exp", inputs)]
    if state == "ended":
        lane.let_go()
        until(lambda: handles[0].is_done)
    handles.clear()
    del inputs
    lane.let_go()
    until(lambda: records()["opened"] == records().get("released", 0))


def test_dropping_the_handle_of_work_that_fails(
    failing_lane: Lane, records: Counts
) -> None:
    lane = failing_lane
    inputs = lane_inputs(lane)
    handles = [lane.submit(lane.engine(), "exp", inputs)]
    handles.clear()
    del inputs
    lane.break_off()
    until(lambda: records()["opened"] == records().get("released", 0))
    assert "unproven" not in records()


def test_dropping_the_handle_of_work_without_proof(
    any_lane: Lane, records: Counts
) -> None:
    lane = any_lane
    inputs = lane_inputs(lane)
    handles = [lane.submit(lane.engine(deadline=0.1), "exp", inputs)]
    handles.clear()
    del inputs
    until(lambda: records().get("unproven") == 1)
    lane.let_go()
    lane.device.drain()
    assert lane.endpoint.synchronise(time.monotonic() + SECONDS) == "done"
    assert records()["unproven"] == 1  # kept for good, with nobody to ask


def test_a_panic_while_proof_is_awaited_is_no_proof(
    any_lane: Lane, records: Counts
) -> None:
    lane = any_lane
    panic = RuntimeError("a panic instead of proof")
    inputs = lane.inputs(X)
    engine = lane.engine(endpoint=Panicking(lane.endpoint, "await", panic))
    outcome = lane.submit(engine, "exp", inputs).wait(SECONDS)
    assert isinstance(outcome, CompletionUnproven)
    assert records()["unproven"] == 1
    assert lane.endpoint.synchronise(time.monotonic() + SECONDS) == "done"


def test_each_root_is_released_once_and_in_time(any_lane: Lane) -> None:
    lane = any_lane
    tensor = lane.tensor(X)
    root = tensor._owner_storage._claim._root.clone()
    handle = lane.submit(lane.engine(), "exp", held(lane, tensor))
    assert root.strong_count > 2  # the record holds it too
    lane.let_go()
    outcome = handle.wait(SECONDS)
    assert isinstance(outcome, Completed)
    assert root.strong_count == 2  # the bundle, and this test
    del outcome
    assert root.strong_count == 1
    root.release()


def held(lane: Lane, *tensors: Any) -> ExecutionInputs:
    lane.hold()
    return ExecutionInputs.of_tensors(tensors)


# ---- preparation and binding


def test_preparations_and_bindings_do_not_depend_on_size(any_lane: Lane) -> None:
    lane = any_lane
    seen = []
    for size in (1, 1000, 100_000):
        inputs = lane.inputs(np.ones(size, np.float32))
        before = lane.accesses
        outcome = lane.submit(lane.engine(), "exp", inputs).wait(SECONDS)
        assert isinstance(outcome, Completed)
        seen.append(tuple(b - a for a, b in zip(before, lane.accesses, strict=True)))
    assert seen == [(0, 0) if lane.name == "cpu" else (2, 2)] * 3


def test_an_unadmitted_launch_gives_everything_back(any_lane: Lane) -> None:
    lane = any_lane
    source, target = lane.tensor(X), lane.tensor(X)
    before = lane.launched
    aval = aval_of(X.shape, X.dtype, lane.device)
    kernel = lane.endpoint.prepare(infer_call(OPS["exp"], (aval,), (), lane.device))
    prepared = PreparedLaunch._of(
        lane.endpoint, kernel, [source.as_view()], [target.as_view_mut()]
    )
    bind_launch(prepared).close()
    assert lane.launched == before
    assert strong(source) == strong(target) == 1
    with source.as_view_mut(), target.as_view_mut():
        pass  # no borrow is left


# ---- lost engines


def test_a_lost_engine_rejects_with_the_exact_inputs(any_lane: Lane) -> None:
    lane = any_lane
    engine = lane.engine()
    assert engine.close(SECONDS)
    inputs = lane.inputs(X)
    with pytest.raises(SubmitRejected, match="lost") as caught:
        lane.submit(engine, "exp", inputs)
    assert caught.value.into_parts()[1] is inputs
    del caught
    proof_of_identity(lane, inputs)


# ---- the matrix of the docs


def matrix() -> dict[str, dict[str, str]]:
    """Lane -> (fact -> what the page says)."""
    text = DOCS.read_text(encoding="utf-8").split("## The lanes\n")[1]
    lines = [line for line in text.split("\n## ")[0].splitlines() if line[:1] == "|"]
    head, _, *rows = ([c.strip() for c in line.strip("|").split("|")] for line in lines)
    return {
        name: {row[0]: row[k] for row in rows} for k, name in enumerate(head) if name
    }


@pytest.mark.clause("g1-test-all-providers")
def test_the_matrix_says_what_the_lane_does(any_lane: Lane) -> None:
    lane, said = any_lane, matrix()
    if lane.name not in said:
        assert lane.name == "fake"  # no device of a user
        return
    facts = said[lane.name]
    assert (facts["eager operations"] == "synchronous") != lane.works_eagerly
    failure = facts["failure of admitted work"]
    assert failure.startswith("reported") == lane.can_fail
    borrowed = facts["borrowed submission (`submit_borrowed`, scoped)"]
    assert borrowed == ("yes" if lane.name == "cpu" else "refused before admission")
    assert hasattr(lane.device, "limit")
    dtypes = {
        "float64, complex128": "dD",
        "float32, complex64, int32, uint32, bool": "fFiI?",
        "float16": "e",
        "8- and 16-bit integers": "bhBH",
    }
    has = getattr(lane.device, "supports_dtype", lambda dtype: True)
    for fact, chars in dtypes.items():
        found = {has(np.dtype(char)) for char in chars}
        assert len(found) == 1, fact
        if facts[fact] in ("yes", "no"):
            assert found == {facts[fact] == "yes"}, fact
        else:
            assert facts[fact].startswith("where the"), fact
