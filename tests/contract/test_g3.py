"""G3: detached submission of compiled graphs. One test for each clause, named after it.

Scoped execution is in `test_g3_scoped.py`, how runs end in `test_g3_outcomes.py`, the
rows of the state table in `test_g3_rows.py`.
"""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import runtime
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU
from tenferro_ad.errors import (
    BorrowConflictError,
    DeviceMismatchError,
    DTypeError,
    EngineLostError,
    ExtractError,
    InvalidArgumentError,
    InvalidSlotError,
    OutcomePendingError,
    OutputAccessError,
    OutputExtractError,
    OverlapError,
    ShapeError,
    SubmitError,
    SubmitRejected,
    UseAfterMoveError,
)
from tenferro_ad.runtime import ExecutionOutcome
from tenferro_ad.storage import AllocationGroup, DescriptorRequest, Tensor, TensorView
from tests.contract.device_support import upload, value_of
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

HINTS = inspect.get_annotations


@pytest.fixture(params=RUNS, ids=[run.name for run in RUNS])
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """Each runtime, whose work waits for `finish`."""
    made: Run = request.param()
    yield made
    made.close()


def ended(run: Run, handle: ta.ExecutionHandle) -> Any:
    """The outcome, once everything was let go."""
    run.finish()
    return handle.wait(30)


def bundle_of(run: Run, fn: Any, *values: Any) -> ta.ExecutionBundle:
    outcome = ended(run, run.submit(fn, *values))
    assert isinstance(outcome, ta.Completed), outcome
    assert isinstance(outcome.bundle, ta.ExecutionBundle)
    return outcome.bundle


# ---- the two surfaces


@pytest.mark.clause("g3-two-surfaces")
def test_detached_work_is_asynchronous_and_scoped_work_ends_retired() -> None:
    run = CpuRun()
    graph = run.graph(product, X, Y)
    handle = run.runtime.submit(graph, run.inputs(X, Y))
    assert not handle.is_done  # submitted, and the stream is still held
    x, y = run.tensor(X), run.tensor(Y)
    views = [x.as_view(), y.as_view()]
    outcome = run.runtime.execute_scoped_read_only(graph, ta.ScopedReadInputs(views))
    assert isinstance(outcome, ta.Completed)  # over, while the stream is still held
    assert outcome.bundle.into_owned_output(0).numpy().tolist() == PRODUCT.tolist()
    assert not handle.is_done
    assert value_of(ended(run, handle)).tolist() == PRODUCT.tolist()
    mutable: Any = [run.tensor(X).as_view_mut()]
    with pytest.raises(InvalidArgumentError, match="TensorViewMut"):
        ta.ScopedReadInputs(mutable)
    run.close()


@pytest.mark.clause("g3-two-surfaces")
def test_submission_on_the_cpu_does_not_run_in_the_callers_thread() -> None:
    run = CpuRun()
    seen: list[str] = []
    real = run.stream.prepare_program

    def noting(kernel: Any) -> Any:
        def noted(outs: Any, ins: Any) -> None:
            seen.append(threading.current_thread().name)
            kernel(outs, ins)

        return real(noted)

    vars(run.stream)["prepare_program"] = noting
    handles = [run.submit(product, X, Y) for _ in range(3)]
    assert seen == []  # three admitted, none begun
    assert not any(handle.is_done for handle in handles)
    for handle in handles:
        assert value_of(ended(run, handle)).tolist() == PRODUCT.tolist()
    assert set(seen) == {"cpu:stream"}
    run.close()


def test_a_runtime_has_the_id_that_its_maker_chose() -> None:
    left = ta.Runtime("cpu", name="left")
    right = ta.Runtime("cpu", name="right")
    other = ta.Runtime("cpu")
    assert (left.name, right.name) == ("left", "right")
    assert left.endpoint.name == right.endpoint.name == other.name == "cpu:stream"
    assert left.endpoint is not right.endpoint  # an engine each, one allocation domain
    assert left.endpoint.memory is right.endpoint.memory is CPU
    assert "'left'" in repr(left)
    graph = left.compile(ta.trace(product, ta.Spec((2, 3)), ta.Spec((2, 3))))
    left.close()
    inputs = ta.ExecutionInputs.of_tensors([upload(X, CPU), upload(Y, CPU)])
    with pytest.raises(SubmitRejected, match="`left` is lost") as caught:
        left.submit(graph, inputs)
    cause, back = caught.value.into_parts()
    assert isinstance(cause.__cause__, EngineLostError)
    handle = right.submit(graph, back)  # the graph belongs to no engine
    assert value_of(handle.wait(30)).tolist() == PRODUCT.tolist()
    with pytest.raises(InvalidArgumentError, match="nowhere"):
        ta.Runtime("nowhere:0")
    with pytest.raises(InvalidArgumentError, match="endpoint"):
        ta.Runtime(7)
    same = ta.Runtime(upload(X, CPU).device)  # a device is as good as its name
    assert (same.name, same.endpoint.memory) == ("cpu:stream", CPU)
    fake = FakeRun()
    assert fake.runtime.endpoint is fake.fake
    assert fake.runtime.name == "fake:0"
    fake.close()
    assert right.close(30)
    assert other.close(30)


def test_a_runtime_that_is_dropped_ends_what_it_was_given(run: Run) -> None:
    handle = run.submit(product, X, Y)
    run.runtime = ta.Runtime(run.device)  # and the other one is gone
    assert value_of(ended(run, handle)).tolist() == PRODUCT.tolist()


# ---- inputs


@pytest.mark.clause("g3-inputs-shape")
def test_inputs_are_a_group_and_the_slots_bound_to_inputs_in_order(run: Run) -> None:
    group, (one, two) = AllocationGroup.of_tensors([run.tensor(Y), run.tensor(X)])
    other, (foreign,) = AllocationGroup.of_tensors([run.tensor(X)])
    for slots in ([one, foreign], [one, 0]):
        with pytest.raises(InvalidSlotError):
            ta.ExecutionInputs(group, slots)  # type: ignore[arg-type]
    with group.view(one), pytest.raises(BorrowConflictError):
        ta.ExecutionInputs(group, [one])
    for donate in ([2], [-1], ["x"]):
        with pytest.raises(InvalidArgumentError, match="position"):
            ta.ExecutionInputs(group, [two, one], donate=donate)  # type: ignore
    assert not group.is_moved  # every refusal left it alone
    inputs = ta.ExecutionInputs(group, [two, one], donate=[1, 1])
    assert group.is_moved
    assert inputs.bindings == (two, one)
    assert inputs.donated == (1,)
    assert len(inputs) == 2
    back, bindings = inputs.into_parts()
    assert type(back) is AllocationGroup
    assert bindings == (two, one)
    assert "into_parts" in repr(inputs)
    inputs = ta.ExecutionInputs(back, bindings)
    handle = run.runtime.submit(run.graph(product, X, Y), inputs)
    assert value_of(ended(run, handle)).tolist() == PRODUCT.tolist()
    for call in (inputs.into_parts, lambda: inputs.bindings, lambda: inputs.donated):
        with pytest.raises(UseAfterMoveError, match="submit"):
            call()
    del other


@pytest.mark.clause("g3-inputs-shape")
def test_strided_parts_of_a_group_are_bound_as_they_lie(run: Run) -> None:
    group, (whole,) = AllocationGroup.of_tensors([run.tensor(X)])
    steps = X.strides[::-1]
    turned = group.insert(whole, DescriptorRequest((3, 2), np.float64, strides=steps))
    back = DescriptorRequest((2,), np.float64, strides=(-8,), offset=16)
    last = group.insert(whole, back)
    graph = run.graph(lambda a, b: a @ b, X.T, X[0, 1:])
    handle = run.runtime.submit(graph, ta.ExecutionInputs(group, [turned, last]))
    assert np.allclose(value_of(ended(run, handle)), X.T @ X[0, 2:0:-1])


@pytest.mark.clause("g3-submit-signature")
def test_submit_uses_up_inputs_and_wait_uses_up_the_handle(run: Run) -> None:
    assert list(HINTS(ta.Runtime.submit)) == ["graph", "inputs", "return"]
    assert HINTS(ta.Runtime.submit)["return"] == "ExecutionHandle"
    assert HINTS(ta.ExecutionHandle.wait)["return"] == "ExecutionOutcome"
    graph, inputs = run.graph(product, X, Y), run.inputs(X, Y)
    handle = run.runtime.submit(graph, inputs)
    assert type(handle) is ta.ExecutionHandle
    for again in (lambda: run.runtime.submit(graph, inputs), inputs.into_parts):
        with pytest.raises(UseAfterMoveError, match="submit"):
            again()
    with pytest.raises(OutcomePendingError):  # not yet: the handle stays usable
        handle.wait(0.01)
    assert value_of(ended(run, handle)).tolist() == PRODUCT.tolist()
    for look in (handle.wait, lambda: handle.is_done):
        with pytest.raises(UseAfterMoveError, match="wait"):
            look()
    for wrong in (run.tensor(X), [run.tensor(X)], None):
        with pytest.raises(InvalidArgumentError, match="ExecutionInputs"):
            run.runtime.submit(graph, wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="Runtime.compile"):
        run.runtime.submit(product, run.inputs(X, Y))  # type: ignore[arg-type]


@pytest.mark.clause("g3-submit-signature")
def test_of_two_threads_that_wait_one_gets_the_outcome(run: Run) -> None:
    handle = run.submit(product, X, Y)
    found: list[object] = []

    def wait() -> None:
        try:
            found.append(handle.wait(30))
        except UseAfterMoveError as error:
            found.append(type(error))

    waiters = [threading.Thread(target=wait) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    run.finish()
    for waiter in waiters:
        waiter.join(30)
    outcomes = [x for x in found if isinstance(x, ta.Completed)]
    assert len(outcomes) == 1
    assert found.count(UseAfterMoveError) == 3


# ---- rejections


def mistakes() -> Iterator[Any]:
    """What is refused, its error, and what to submit, given a run."""
    square = np.ones((2, 2))

    def aliased(run: Run) -> ta.ExecutionInputs:
        group, (x, *_) = AllocationGroup.of_tensors([run.tensor(X), run.tensor(Y)])
        part = group.insert(x, DescriptorRequest((2, 3), np.float64))
        return ta.ExecutionInputs(group, [x, part], donate=[0])

    def twice(run: Run) -> ta.ExecutionInputs:
        group, (x,) = AllocationGroup.of_tensors([run.tensor(X)])
        return ta.ExecutionInputs(group, [x, group.slots[0]])

    def elsewhere(run: Run) -> ta.ExecutionInputs:
        device = CPU if isinstance(run, FakeRun) else FakeRun().device
        return ta.ExecutionInputs.of_tensors([upload(X, device), upload(Y, device)])

    yield "too few", ShapeError, product, lambda run: run.inputs(X)
    yield "too many", ShapeError, product, lambda run: run.inputs(X, Y, X)
    yield "none", ShapeError, product, lambda run: run.inputs()
    yield "shape", ShapeError, product, lambda run: run.inputs(X, square)
    yield "dtype", DTypeError, product, lambda run: run.inputs(X, Y.astype("f4"))
    yield "device", DeviceMismatchError, product, elsewhere
    yield "twice", InvalidArgumentError, product, twice
    yield "overlap", OverlapError, product, aliased
    yield (
        "donation without use",
        InvalidArgumentError,
        lambda x, y: (x @ y.T).sum(),
        lambda run: run.inputs(X, Y, donate=[0]),
    )
    yield (
        "donation of an output",
        InvalidArgumentError,
        lambda x, y: (x, x * y),
        lambda run: run.inputs(X, Y, donate=[0]),
    )


@pytest.mark.clause("g3-rejected-shape")
@pytest.mark.parametrize(
    ("error", "fn", "given"),
    [m[1:] for m in mistakes()],
    ids=[m[0] for m in mistakes()],
)
def test_mistakes_in_bindings_hand_the_exact_inputs_back(
    run: Run, error: type[Exception], fn: Any, given: Any
) -> None:
    graph = run.graph(fn, X, Y)
    inputs = given(run)
    bindings, live = inputs.bindings, BASE.live
    assert isinstance(rejected(run, graph, inputs), error)
    assert run.records() == {}  # no record was opened: nothing came near the device
    assert inputs.bindings == bindings
    assert BASE.live == live  # and what was allocated is gone
    group, slots = inputs.into_parts()
    for slot in slots:
        with group.view(slot) as view:
            assert view.ndim == 2


@pytest.mark.clause("g3-rejected-shape")
def test_a_rejection_gives_its_cause_and_the_inputs_once(run: Run) -> None:
    graph, inputs = run.graph(product, X, Y), run.inputs(X)
    with pytest.raises(SubmitRejected) as caught:
        run.runtime.submit(graph, inputs)
    rejection = caught.value
    assert rejection.recovered is inputs
    assert "Bind 2" in str(rejection.cause.__cause__)
    cause, back = rejection.into_parts()
    assert type(cause) is SubmitError
    assert back is inputs
    assert rejection.into_parts() == (None, None)  # the error keeps neither
    group, (slot,) = back.into_parts()
    both, slots = AllocationGroup.of_tensors([group.into_tensor(slot), run.tensor(Y)])
    handle = run.runtime.submit(graph, ta.ExecutionInputs(both, slots))
    assert value_of(ended(run, handle)).tolist() == PRODUCT.tolist()


@pytest.mark.clause("g3-rejected-shape")
def test_a_graph_of_another_device_is_refused(run: Run) -> None:
    other = FakeRun() if isinstance(run, CpuRun) else CpuRun()
    graph, inputs = other.graph(product, X, Y), run.inputs(X, Y)
    found = rejected(run, graph, inputs)
    assert isinstance(found, DeviceMismatchError)
    assert found.argument == "graph"
    other.close()


# ---- outcomes and bundles


@pytest.mark.clause("g3-outcome-shape")
def test_an_outcome_is_one_of_three_and_comes_after_retirement() -> None:
    kinds = {getattr(kind, "__origin__", kind) for kind in get_args(ExecutionOutcome)}
    assert kinds == {ta.Completed, ta.RetiredFailed, ta.CompletionUnproven}
    fields = {kind: tuple(kind.__slots__) for kind in kinds}  # type: ignore[attr-defined]
    assert fields == {
        ta.Completed: ("bundle",),
        ta.RetiredFailed: ("cause", "inputs"),
        ta.CompletionUnproven: ("cause", "diagnostic_keys"),
    }
    run = FakeRun()
    for ends_well in (True, False):
        hang = run.fake.hang("release", after=1)
        handle = run.submit(product, X, Y)
        (event,) = run.fake.pending
        (event.complete if ends_well else event.fail)()
        assert hang.reached.wait(30)  # in the midst of giving things back
        assert not handle.is_done
        hang.let_go()
        outcome = handle.wait(30)
        assert type(outcome) is (ta.Completed if ends_well else ta.RetiredFailed)
        assert set(run.fake.outstanding) == {"buffers"}
        del outcome
    run.close()


def several(x: Any, y: Any) -> Any:
    """Identity, fresh, repeated, a view of an input, one of a result, and metadata."""
    z = ta.tanh(x) * y
    return x, z, x, y.T, z[1:], "epoch 3", z, 7


@pytest.mark.clause("g3-bundle-shape")
def test_a_bundle_is_a_group_and_outputs_that_are_slots_or_metadata(run: Run) -> None:
    bundle = bundle_of(run, several, X, Y)
    assert set(ta.ExecutionBundle.__slots__) == {"_eb_group", "_eb_outputs"}
    assert len(bundle) == 8
    kinds = {type(output) for output in bundle._eb_outputs}
    assert kinds == {ta.DescriptorSlot, ta.OutputMetadata}
    wanted = [X, PRODUCT, X, Y.T, PRODUCT[1:], "epoch 3", PRODUCT, 7]
    for k, value in enumerate(wanted):
        found = bundle.output(k)
        if isinstance(value, str | int):
            assert found == ta.OutputMetadata(value)
            continue
        assert type(found) is TensorView
        with found:
            assert found.shape == value.shape
            assert np.array_equal(found.numpy(), value)


@pytest.mark.clause("g3-bundle-methods")
def test_output_borrows_and_into_output_uses_up_the_bundle(run: Run) -> None:
    bundle = bundle_of(run, several, X, Y)
    for wrong in (8, -1):
        with pytest.raises(OutputAccessError) as caught:
            bundle.output(wrong)
        assert caught.value.recovered is bundle
        del caught
    looks: list[Any] = [bundle.output(k) for k in (1, 1, 0)]  # any number together
    with pytest.raises(BorrowConflictError):  # and while they are open none moves
        bundle.into_output(1)
    for look in looks:
        look.close()
    tensor = bundle.into_output(1)
    assert type(tensor) is Tensor
    assert tensor.numpy().tolist() == PRODUCT.tolist()
    for used in (bundle.output, bundle.into_output):
        with pytest.raises(UseAfterMoveError, match="into_output"):
            used(0)


@pytest.mark.clause("g3-output-extract-error", "g3-bundle-methods")
def test_taking_an_output_fails_in_three_ways_with_the_exact_bundle(run: Run) -> None:
    bundle = bundle_of(run, several, X, Y)
    bundle._eb_group.remove(bundle._eb_outputs[3])  # type: ignore[arg-type]
    for output, reason in (
        (8, "invalid-output"),
        (5, "metadata-output"),
        (3, "extract"),
    ):
        with pytest.raises(OutputExtractError) as caught:
            bundle.into_output(output)
        assert caught.value.reason == reason
        assert caught.value.recovered is bundle
        is_wrapped = isinstance(caught.value.cause, ExtractError)
        assert is_wrapped == (reason == "extract")
        del caught
    assert bundle.into_output(1).numpy().tolist() == PRODUCT.tolist()


@pytest.mark.clause("g3-outputs-never-copy")
def test_outputs_are_slots_of_the_returned_group_and_nothing_is_copied(
    run: Run,
) -> None:
    inputs = run.inputs(X, Y)
    given = [span.serial for span in spans(inputs._ei_group)]
    graph = run.graph(several, X, Y)
    with ta.ledger() as led:
        outcome = ended(run, run.runtime.submit(graph, inputs))
    # Only the product is fresh; `tanh(x)` is written where the product comes.
    led.expect(allocations={"OperationOutput": 1}, copies={})
    assert isinstance(outcome, ta.Completed)
    bundle = outcome.bundle
    serials = {}
    with ta.forbid(copies=True, allocations=True):
        for k in range(8):
            found = bundle.output(k)
            if isinstance(found, TensorView):
                serials[k] = found.span.serial
                found.close()
    assert serials[0] == serials[2] == given[0]  # identity, and the same once more
    assert serials[3] == given[1]  # a view of an input
    fresh = {serials[1], serials[4], serials[6]}
    assert len(fresh) == 1
    assert not fresh & set(given)
    assert bundle._eb_outputs[0] == bundle._eb_outputs[2]  # repeated: the same slot
    assert bundle._eb_outputs[1] == bundle._eb_outputs[6]
    assert not hasattr(bundle.output(5), "span")  # metadata has no storage


def spans(group: AllocationGroup) -> list[Any]:
    return [group.record(slot).storage for slot in group.slots]


@pytest.mark.clause("g3-into-output-consumes")
@pytest.mark.parametrize("output", [0, 1, 2, 3, 4, 6])
def test_taking_one_output_ends_its_aliases_the_group_and_the_map(
    run: Run, output: int
) -> None:
    wanted = [X, PRODUCT, X, Y.T, PRODUCT[1:], None, PRODUCT]
    with ta.ledger() as led:
        bundle = bundle_of(run, several, X, Y)
        group = bundle._eb_group
        assert led.live == 3  # two inputs and the product
        copies = dict(led.copies)
        tensor = bundle.into_output(output)
        assert led.live == 1  # the other owners went in the same call
        assert led.copies == copies
    assert np.array_equal(tensor.numpy(), wanted[output])  # type: ignore[arg-type]
    assert group.is_moved  # `into_tensor` of the group: nothing is left to ask for
    assert len(bundle) == 0
    with pytest.raises(UseAfterMoveError):
        bundle.output(output)
    with tensor.as_view_mut():  # and the owner is alone
        pass


@pytest.mark.clause("g3-no-extracted-flags")
def test_no_bundle_remembers_what_was_taken() -> None:
    folder = Path(runtime.__file__).parent
    kinds = {"ExecutionBundle", "ScopedExecutionBundle"}
    seen = set()
    for file in folder.glob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for kind in ast.walk(tree):
            if not isinstance(kind, ast.ClassDef) or kind.name not in kinds:
                continue
            seen.add(kind.name)
            stored = {
                node.attr
                for node in ast.walk(kind)
                if isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and getattr(node.value, "id", "") != "error"
            }
            # Whole parts come and go; no part records which output was looked at.
            assert {
                name.removeprefix("_eb_").removeprefix("_sb_") for name in stored
            } <= {
                "_moved_by",
                "group",
                "outputs",
                "views",
            }, (kind.name, stored)
            words = {n.id for n in ast.walk(kind) if isinstance(n, ast.Name)}
            assert not {w for w in words if "extracted_" in w or "taken" in w}
            assert "bool" not in words
    assert seen == kinds
