"""G7 in traced programs: values attached to a run, and the ledgers of the CPU lane."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.engine._ownership_views import record_of, retention_of
from tenferro_ad.errors import (
    ExecutionError,
    InvalidArgumentError,
    NotUniqueError,
    TracedConversionError,
    UseAfterMoveError,
)
from tenferro_ad.runtime import ExecutionInputs
from tenferro_ad.runtime._package import Binding
from tenferro_ad.storage import AdValueRecord, AllocationGroup, TensorView
from tests.contract.device_support import value_of
from tests.contract.g3_support import (
    PRODUCT,
    RUNS,
    CpuRun,
    FakeRun,
    Run,
    X,
    Y,
    product,
    rejected,
)
from tests.contract.g7_support import first_key, kept, no_extraction


@pytest.fixture(params=RUNS, ids=[run.name for run in RUNS])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Each runtime, whose work waits for `finish`."""
    made: Run = request.param()
    yield made
    made.close()


def ended(run: Run, handle: ta.ExecutionHandle) -> Any:
    run.finish()
    return handle.wait(30)


# ---- attached values


@pytest.mark.clause("g7-attached-data")
def test_a_retained_value_is_bound_by_its_record_and_stays_the_tapes() -> None:
    run = CpuRun()
    w = ta.variable(X)
    with ta.Tape() as tape:
        y = ta.exp(w)
        loss = ta.sum(y)
    record = retention_of(tape)[first_key(tape, "exp")]
    graph = run.graph(product, X, Y)
    group, (slot,) = AllocationGroup.of_tensors([run.tensor(Y)])
    with ta.ledger() as led:
        inputs = ExecutionInputs(group, [record, slot])
        assert inputs.bindings == (record, slot)
        led.expect(allocations={}, copies={})  # attaching is no event
        outcome = ended(run, run.runtime.submit(graph, inputs))
    led.expect(allocations={"OperationOutput": 1}, copies={})
    assert np.allclose(value_of(outcome), np.tanh(np.exp(X)) * Y)
    assert record.shares(record_of(y))
    assert kept(tape) == [("exp", "out")]  # the tape keeps what it kept
    grads = tape.backward(loss)
    assert np.allclose(np.asarray(grads[w]), np.exp(X))
    run.close()


@pytest.mark.clause("g7-attached-data")
def test_a_binding_is_a_slot_or_a_record_that_only_reads() -> None:
    assert set(get_args(Binding)) == {ta.DescriptorSlot, AdValueRecord}
    offered = {}
    for name, member in inspect.getmembers(AdValueRecord):
        if name.startswith("_") or name == "container":
            continue
        call = member.fget if isinstance(member, property) else member
        offered[name] = str(inspect.get_annotations(call).get("return"))
    assert offered == {
        "aval": "Aval",
        "clone": "AdValueRecord",
        "descriptor": "CheckedDescriptor",
        "keep_for_good": "None",
        "shares": "bool",
        "view": "TensorView",
    }
    # What a run reads of it is a read view, and the package takes no owner of it.
    run = FakeRun()
    w = run.handle_of(X)
    inputs = ExecutionInputs.of_values([w, run.tensor(Y)])
    record = inputs.bindings[0]
    assert isinstance(record, AdValueRecord)
    assert record.shares(record_of(w))
    with record.view() as view:
        assert type(view) is TensorView
    assert len(inputs._ei_group.slots) == 1
    for donate in ([0], [0, 1]):
        with pytest.raises(InvalidArgumentError, match="others hold"):
            ExecutionInputs.of_values([w, run.tensor(Y)], donate=donate)
    with pytest.raises(InvalidArgumentError, match="others hold"):
        ExecutionInputs(inputs._ei_group, [record], donate=[0])
    run.close()


@pytest.mark.clause("g7-attached-data", "g7-test-uniqueness")
def test_an_execution_record_holds_what_is_attached_until_it_retires(run: Run) -> None:
    w = run.handle_of(X)
    inputs = ExecutionInputs.of_values([w, run.tensor(Y)])
    graph = run.graph(product, X, Y)
    handle = run.runtime.submit(graph, inputs)
    with no_extraction(), pytest.raises(NotUniqueError) as caught:
        w.into_value()
    assert caught.value.recovered is w
    del caught
    outcome = ended(run, handle)
    assert isinstance(outcome, ta.Completed)
    with pytest.raises(UseAfterMoveError):
        assert inputs.bindings
    assert np.array_equal(w.into_value().numpy(), X)  # nobody else is left
    assert value_of(outcome).tolist() == PRODUCT.tolist()


@pytest.mark.clause("g7-attached-data")
def test_an_attached_value_outlives_its_handles_while_it_is_read(run: Run) -> None:
    live = BASE.live
    handle = run.runtime.submit(
        run.graph(product, X, Y),
        ExecutionInputs.of_values([run.handle_of(X), run.handle_of(Y)]),
    )
    assert BASE.live == live + 3  # two values that only the run holds, and the output
    outcome = ended(run, handle)
    assert BASE.live == live + 1
    assert value_of(outcome).tolist() == PRODUCT.tolist()


@pytest.mark.clause("g7-attached-data")
def test_one_value_may_be_attached_to_several_inputs_and_to_several_runs(
    run: Run,
) -> None:
    w = run.handle_of(X)
    graph = run.graph(product, X, Y)
    handles = [
        run.runtime.submit(graph, ExecutionInputs.of_values([w, w])) for _ in range(2)
    ]
    run.finish()
    for handle in handles:
        assert np.allclose(value_of(handle.wait(30)), np.tanh(X) * X)
    assert w.into_value().shape == X.shape


@pytest.mark.clause("g7-attached-data")
def test_a_failed_or_refused_run_leaves_what_is_attached_as_it_was(run: Run) -> None:
    w = run.handle_of(X)
    inputs = ExecutionInputs.of_values([w, run.tensor(Y)])
    bindings = inputs.bindings
    graph = run.graph(product, X, Y)
    run.fail("bind")
    assert rejected(run, graph, inputs)
    assert inputs.bindings == bindings
    run.fail("enqueue", OSError("after the work was taken"))
    outcome = ended(run, run.runtime.submit(graph, inputs))
    assert isinstance(outcome, ta.RetiredFailed)
    assert outcome.inputs is inputs
    assert inputs.bindings == bindings
    with w.value() as guard, guard.view as view:
        assert view.get((0, 0)) == X[0, 0]
    del outcome, inputs, bindings
    assert w.into_value().shape == X.shape


@pytest.mark.clause("g7-attached-data")
def test_no_outcome_names_an_attached_value_as_its_own(run: Run) -> None:
    for fn in (lambda x, y: (x, x * y), lambda x, y: x.T, lambda x, y: (y * x, x[0])):
        inputs = ExecutionInputs.of_values([run.handle_of(X), run.tensor(Y)])
        found = rejected(run, run.graph(fn, X, Y), inputs)
        assert isinstance(found, InvalidArgumentError)
        assert "attached value 0" in str(found)
    # Another input of the same run may well be returned.
    inputs = ExecutionInputs.of_values([run.handle_of(X), run.tensor(Y)])
    outcome = ended(
        run, run.runtime.submit(run.graph(lambda x, y: (x * y, y), X, Y), inputs)
    )
    assert isinstance(outcome, ta.Completed)
    with outcome.bundle.output(1) as same:
        assert np.array_equal(same.numpy(), Y)


@pytest.mark.clause("g7-attached-data")
def test_donated_slots_and_attached_values_run_together(run: Run) -> None:
    w = run.handle_of(Y)
    inputs = ExecutionInputs.of_values([run.tensor(X), w, run.tensor(Y)], donate=[0])
    graph = run.graph(lambda p, g, m: (p * g, m), X, Y, Y)
    with ta.ledger() as led:
        outcome = ended(run, run.runtime.submit(graph, inputs))
    led.expect(allocations={}, copies={})
    assert np.allclose(value_of(outcome), X * Y)
    assert np.array_equal(w.into_value().numpy(), Y)


@pytest.mark.clause("g7-attached-data")
def test_values_without_bytes_are_not_attached(run: Run) -> None:
    gone = run.handle_of(X)
    record = record_of(gone)
    del record
    gone.into_value()
    with pytest.raises(UseAfterMoveError):
        ExecutionInputs.of_values([gone])
    for wrong in (X, 1.0, None, "x"):
        with pytest.raises(InvalidArgumentError, match=re.escape("values[0]")):
            ExecutionInputs.of_values([wrong])

    def inside(x: Any) -> Any:
        ExecutionInputs.of_values([x])
        return x

    with pytest.raises(TracedConversionError):
        run.trace(inside, X)


@pytest.mark.clause("g7-attached-data")
def test_what_a_program_closes_over_is_held_by_records_as_well(run: Run) -> None:
    w = run.handle_of(Y)
    graph = run.graph(lambda x: x * w, X)
    (held,) = graph.held
    assert type(held) is AdValueRecord
    assert held.shares(record_of(w))
    assert graph.constants == (w._record,)
    del held
    with no_extraction(), pytest.raises(NotUniqueError):
        w.into_value()
    del graph
    assert w.into_value().shape == Y.shape


@pytest.mark.clause("g7-attached-data")
def test_a_value_in_flight_is_waited_for_before_it_is_attached() -> None:
    run = FakeRun()
    w = run.handle_of(X)
    y = ta.exp(w)  # an eager launch, which ends when it is told
    graph = run.graph(product, X, Y)
    (event,) = run.fake.pending
    found: list[Any] = []

    def submit() -> None:
        inputs = ExecutionInputs.of_values([y, run.tensor(Y)])
        found.append(run.runtime.submit(graph, inputs))

    thread = threading.Thread(target=submit)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    event.complete()
    thread.join(30)
    outcome = ended(run, found.pop())
    assert np.allclose(value_of(outcome), np.tanh(np.exp(X)) * Y)
    # A value that has none, because its producer failed, is refused.
    y = ta.exp(w)
    run.fake.pending[0].fail(OSError("bad address"))
    cause = rejected(run, graph, ExecutionInputs.of_values([y, run.tensor(Y)]))
    assert isinstance(cause, ExecutionError)
    assert "exp" in str(cause)
    run.close()


# ---- the CPU lane: both passes eagerly, traced and compiled, with a checkpoint or not

RNG = np.random.default_rng(0)
DATA, WEIGHTS = RNG.normal(size=(5, 4)), RNG.normal(size=(4, 3))


def loss(wrap: Callable[..., Any], x: Any, w: Any) -> Any:
    h = wrap(lambda w: ta.sin(ta.tanh(x @ w)))(w)
    return ta.sum(h * h)


def plain(f: Any) -> Any:
    return f


def both_passes(wrap: Any) -> Callable[..., Any]:
    def step(x: Any, w: Any) -> Any:
        value, pull = ta.vjp(lambda w: loss(wrap, x, w), w)
        return value, pull(ta.ones(()))[0]

    return step


# Forward, 5: product, tanh, sin, h * h and the sum.
# Backward, 3: the seed, spread by a view; the first share of h, into which the second
# is added, and over which the rules of sin and tanh are written; the gradient of w.
EAGER = {"OperationOutput": 5 + 3}
# The region's seed is not its own, so the rule of sin makes one more. The product and
# tanh run again; what sin computes, nobody reads.
CHECKPOINTED = {"OperationOutput": 5 + 4, "CheckpointRecomputeOutput": 2}
# Replayed: the value, the gradient, and an arena for each reason.
COMPILED = {"OperationOutput": 2 + 1}
COMPILED_CHECKPOINTED = {"OperationOutput": 2 + 1, "CheckpointRecomputeOutput": 1}


def eagerly(wrap: Any) -> Callable[..., Any]:
    def step(x: Any, w: Any) -> Any:
        leaf = ta.variable(w)
        with ta.Tape() as tape:
            value = loss(wrap, x, leaf)
        grads = tape.backward(value)
        return value, grads[leaf]

    return step


def traced(wrap: Any) -> Callable[..., Any]:
    specs = ta.Spec(DATA.shape), ta.Spec(WEIGHTS.shape)
    program = ta.trace(both_passes(wrap), *specs)
    assert isinstance(program, ta.TracedProgram)
    return program


def compiled(wrap: Any) -> Callable[..., Any]:
    fast = ta.compile(both_passes(wrap))
    fast.graph(DATA, WEIGHTS)
    return fast


def submitted(wrap: Any) -> Callable[..., Any]:
    runtime = ta.Runtime("cpu")
    specs = ta.Spec(DATA.shape), ta.Spec(WEIGHTS.shape)
    graph = runtime.compile(ta.trace(both_passes(wrap), *specs))

    def step(x: Any, w: Any) -> Any:
        handle = runtime.submit(graph, ExecutionInputs.of_values([x, w]))
        outcome = handle.wait(30)
        assert isinstance(outcome, ta.Completed)
        bundle = outcome.bundle
        group, slots = bundle._eb_group, bundle._eb_outputs
        tensors = [group.try_extract(slot) for slot in slots]  # type: ignore[arg-type]
        return tuple(map(ta.asarray, tensors))

    return step


LANE = [
    (eagerly, plain, EAGER),
    (eagerly, ta.checkpoint, CHECKPOINTED),
    (traced, plain, EAGER),
    (traced, ta.checkpoint, CHECKPOINTED),
    (compiled, plain, COMPILED),
    (compiled, ta.checkpoint, COMPILED_CHECKPOINTED),
    (submitted, plain, COMPILED),
    (submitted, ta.checkpoint, COMPILED_CHECKPOINTED),
]


@pytest.mark.clause("g7-lane-cpu")
@pytest.mark.parametrize(
    ("mode", "wrap", "allocations"),
    LANE,
    ids=[f"{m.__name__}-{w.__name__}" for m, w, _ in LANE],
)
def test_both_passes_make_the_expected_multisets_of_allocations_and_of_copies(
    provider_calls: Any, mode: Any, wrap: Any, allocations: dict[str, int]
) -> None:
    x, w = ta.asarray(DATA), ta.asarray(WEIGHTS)
    step = mode(wrap)
    provider_calls.reset()
    with ta.ledger() as led:
        value, grad = step(x, w)
    assert (
        dict(led.copies) == {}
    )  # nothing duplicates or transfers; keeping is no event
    assert dict(led.allocations) == allocations
    assert provider_calls.total == sum(allocations.values())  # counted elsewhere, too
    h = np.sin(np.tanh(DATA @ WEIGHTS))
    slope = 2 * h * np.cos(np.tanh(DATA @ WEIGHTS)) / np.cosh(DATA @ WEIGHTS) ** 2
    assert np.allclose(np.asarray(value), np.sum(h * h))
    assert np.allclose(np.asarray(grad), DATA.T @ slope)


@pytest.mark.clause("g7-lane-cpu")
@pytest.mark.parametrize("mode", [eagerly, traced, compiled, submitted])
def test_copies_that_a_program_asks_for_are_counted_apart(mode: Any) -> None:
    step, x = mode(plain), ta.asarray(DATA)
    with ta.ledger() as led:
        w = ta.asarray(WEIGHTS)  # comes from outside: one transfer, and its memory
        value, _ = step(x, w)
        value.duplicate_value()
    made = EAGER if mode in (eagerly, traced) else COMPILED
    assert dict(led.copies) == {"Transfer": 1, "ExplicitDuplicate": 1}
    assert dict(led.allocations) == {
        **made,
        "TransferDestination": 1,
        "ExplicitDuplicateDestination": 1,
    }
