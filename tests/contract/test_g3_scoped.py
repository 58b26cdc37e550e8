"""G3: scoped read-only execution. One test for each clause, named after it."""

from __future__ import annotations

import ast
import gc
import inspect
import threading
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import runtime
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU, HostEndpoint, HostStream
from tenferro_ad.backends.fake import FakeProvider
from tenferro_ad.errors import (
    AllocationLimitError,
    BorrowConflictError,
    DeviceMismatchError,
    DTypeError,
    ExecutionError,
    ExpiredCapabilityError,
    InternalError,
    InvalidArgumentError,
    NotEnqueuedError,
    OutputAccessError,
    OutputExtractError,
    ScopedOutputExtractError,
    ScopedSubmitRejected,
    ShapeError,
    SubmitError,
    UnsupportedError,
    UseAfterMoveError,
)
from tenferro_ad.runtime import ScopedExecutionOutcome
from tenferro_ad.storage import AllocationGroup, TensorView
from tests.contract.device_support import Counts, upload
from tests.contract.g3_support import PRODUCT, FakeRun, X, Y, product


class Scoped:
    """A CPU runtime whose scoped endpoint a test can break, and two lent tensors."""

    def __init__(self) -> None:
        self.runtime = ta.Runtime("cpu")
        self.endpoint = self.runtime._scoped
        self.x, self.y = upload(X, CPU), upload(Y, CPU)
        self.records = Counts()

    def graph(self, fn: Any, *values: Any) -> Any:
        specs = [ta.Spec(v.shape, v.dtype) for v in values or (X, Y)]
        return self.runtime.compile(ta.trace(fn, *specs))

    def lend(self) -> ta.ScopedReadInputs:
        return ta.ScopedReadInputs([self.x.as_view(), self.y.as_view()])

    def run(self, fn: Any) -> Any:
        return self.runtime.execute_scoped_read_only(self.graph(fn), self.lend())

    def bundle(self, fn: Any) -> ta.ScopedExecutionBundle:
        outcome = self.run(fn)
        assert isinstance(outcome, ta.Completed), outcome
        bundle: ta.ScopedExecutionBundle = outcome.bundle
        return bundle

    def borrows(self) -> list[str | None]:
        tensors = (self.x, self.y)
        return [tensor._owner_storage._borrow.outstanding for tensor in tensors]

    def rejected(self, graph: Any, inputs: ta.ScopedReadInputs) -> BaseException:
        """The cause of a rejection, after the exact package came back usable."""
        with pytest.raises(ScopedSubmitRejected) as caught:
            self.runtime.execute_scoped_read_only(graph, inputs)
        cause, back = caught.value.into_parts()
        assert back is inputs
        assert isinstance(cause, SubmitError)
        assert cause.__cause__ is not None
        return cause.__cause__


@pytest.fixture
def scoped() -> Scoped:
    return Scoped()


def several(x: Any, y: Any) -> Any:
    """Identity, fresh, repeated, a view of an input, one of a result, and metadata."""
    z = ta.tanh(x) * y
    return x, z, x, y.T, z[1:], "epoch 3", z


# ---- shapes


@pytest.mark.clause("g3-scoped-inputs-shape")
def test_scoped_inputs_are_views_in_order_and_have_no_writable_form(
    scoped: Scoped,
) -> None:
    views = (scoped.x.as_view(), scoped.y.as_view())
    inputs = ta.ScopedReadInputs(views)
    assert len(inputs) == 2
    assert ta.ScopedReadInputs.__slots__ == ("_sr_views",)
    assert inputs.into_views() == views  # the very views
    with pytest.raises(UseAfterMoveError, match="into_views"):
        inputs.into_views()
    for view in views:
        view.close()
    with scoped.x.as_view_mut() as mut:
        for wrong in (mut, scoped.y, X, None):
            with pytest.raises(InvalidArgumentError, match="TensorView"):
                ta.ScopedReadInputs([wrong])  # type: ignore[list-item]
    with pytest.raises(ExpiredCapabilityError):
        ta.ScopedReadInputs([views[0]])
    hints = get_type_hints(ta.ScopedReadInputs, vars(runtime._scoped))
    assert str(hints["_sr_views"]).count("TensorView") == 1
    assert "Mut" not in str(hints)


@pytest.mark.clause("g3-scoped-signature")
def test_a_scoped_call_completes_or_fails_and_has_no_third_end(scoped: Scoped) -> None:
    call = ta.Runtime.execute_scoped_read_only
    assert inspect.get_annotations(call) == {
        "graph": "CompiledGraph",
        "inputs": "ScopedReadInputs",
        "return": "ScopedExecutionOutcome",
    }
    kinds = {
        getattr(kind, "__origin__", kind) for kind in get_args(ScopedExecutionOutcome)
    }
    assert kinds == {ta.Completed, ta.RetiredFailed}
    source = (Path(runtime.__file__).parent / "_scoped.py").read_text(encoding="utf-8")
    assert "Unproven" not in source
    inputs = scoped.lend()
    outcome = scoped.runtime.execute_scoped_read_only(scoped.graph(product), inputs)
    assert isinstance(outcome, ta.Completed)
    assert type(outcome.bundle) is ta.ScopedExecutionBundle
    with pytest.raises(UseAfterMoveError, match="execute_scoped_read_only"):
        scoped.runtime.execute_scoped_read_only(scoped.graph(product), inputs)
    for wrong in ([scoped.x], scoped.x, None):
        with pytest.raises(InvalidArgumentError, match="ScopedReadInputs"):
            scoped.runtime.execute_scoped_read_only(
                scoped.graph(product),
                wrong,  # type: ignore[arg-type]
            )


@pytest.mark.clause("g3-scoped-bundle-shape")
def test_a_scoped_bundle_tells_borrowed_owned_and_metadata_apart(
    scoped: Scoped,
) -> None:
    bundle = scoped.bundle(several)
    assert len(bundle) == 7
    kinds = [type(output) for output in bundle._sb_outputs]
    view, slot, metadata = TensorView, ta.DescriptorSlot, ta.OutputMetadata
    assert kinds == [view, slot, view, view, slot, metadata, slot]
    assert type(bundle._sb_group) is AllocationGroup
    assert len(bundle._sb_group.slots) == 2  # the product and a part of it
    for wrong in (7, -1):
        with pytest.raises(OutputAccessError) as caught:
            bundle.output(wrong)
        assert caught.value.recovered is bundle


# ---- rejection


@pytest.mark.clause("g3-scoped-rejected-shape")
def test_a_rejected_scoped_call_hands_back_the_same_package_and_its_borrows(
    scoped: Scoped,
) -> None:
    graph = scoped.graph(product)

    def of(*values: Any) -> ta.ScopedReadInputs:
        return ta.ScopedReadInputs([upload(v, CPU).as_view() for v in values])

    for error, inputs in (
        (ShapeError, of(X)),
        (ShapeError, of(X, Y, Y)),
        (ShapeError, of(X, Y.T.copy())),
        (DTypeError, of(X, Y.astype(np.float32))),
        (DeviceMismatchError, ta.ScopedReadInputs([foreign(), foreign()])),
    ):
        assert isinstance(scoped.rejected(graph, inputs), error)
        for view in inputs.into_views():
            assert view.ndim == 2
            view._live("test")  # still a borrow
    inputs = scoped.lend()
    CPU.limit = 0
    found = scoped.rejected(graph, inputs)
    CPU.limit = None
    assert isinstance(found, AllocationLimitError)
    del found
    outcome = scoped.runtime.execute_scoped_read_only(graph, inputs)
    assert isinstance(outcome, ta.Completed)


def foreign() -> TensorView:
    return upload(X, FakeProvider(auto=True)).as_view()


@pytest.mark.clause("g3-scoped-rejected-shape")
@pytest.mark.parametrize("step", ["compile", "small", "prepare_device", "bind"])
@pytest.mark.parametrize("error", [OSError("driver"), KeyboardInterrupt("now")])
def test_a_failure_before_scoped_work_leaves_package_and_borrows(
    scoped: Scoped, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    graph, inputs = scoped.graph(product), scoped.lend()

    def broken(*args: Any) -> Any:
        raise error

    live = BASE.live
    with monkeypatch.context() as patch:
        if step == "compile":
            patch.setitem(vars(scoped.endpoint), "prepare_program", broken)
        else:
            patch.setitem(vars(CPU), step, broken)
        if isinstance(error, Exception):
            scoped.rejected(graph, inputs)
        else:  # an interrupt passes through; the package stays the caller's
            with pytest.raises(KeyboardInterrupt):
                scoped.runtime.execute_scoped_read_only(graph, inputs)
    assert BASE.live == live
    # Nothing but the caller's own views is lent.
    assert scoped.borrows() == ["shared", "shared"]
    inputs.close()
    assert scoped.borrows() == [None, None]
    error.__traceback__ = error.__context__ = None


@pytest.mark.clause("g3-scoped-host-only")
def test_providers_that_may_leave_work_running_refuse_before_admission() -> None:
    run = FakeRun()
    for asynchronous, device in (
        (run.runtime, run.fake),
        (ta.Runtime(HostStream("mine", CPU)), CPU),
    ):
        x, y = upload(X, device), upload(Y, device)
        specs = [ta.Spec(X.shape, device=device), ta.Spec(Y.shape, device=device)]
        graph = asynchronous.compile(ta.trace(product, *specs))
        inputs = ta.ScopedReadInputs([x.as_view(), y.as_view()])
        calls = run.fake.counts
        with pytest.raises(ScopedSubmitRejected) as caught:
            asynchronous.execute_scoped_read_only(graph, inputs)
        cause, back = caught.value.into_parts()
        assert isinstance(cause.__cause__, UnsupportedError)
        assert "submit" in str(cause.__cause__)
        assert back is inputs
        assert run.fake.counts == calls  # not even an allocation
        for view in back.into_views():
            view._live("test")
        assert asynchronous.close(30)
    # And a synchronous one accepts.
    assert ta.Runtime(HostEndpoint()).execute_scoped_read_only(
        ta.Runtime("cpu").compile(ta.trace(lambda: ta.ones((2,)))),
        ta.ScopedReadInputs([]),
    )
    assert run.records() == {}
    run.close()


# ---- retirement inside the call


@pytest.mark.clause("g3-scoped-retires-before-return", "g3-scoped-no-work-at-unwind")
@pytest.mark.parametrize(
    "error", [ArithmeticError("in the kernel"), KeyboardInterrupt()]
)
def test_nothing_runs_any_more_when_a_scoped_call_returns_or_raises(
    scoped: Scoped, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    graph, running = scoped.graph(product), threading.active_count()
    ran: list[int] = []

    def broken(run: Any) -> Any:
        def kernel(outs: Any, ins: Any) -> None:
            ran.append(threading.get_ident())
            raise error

        return kernel

    monkeypatch.setitem(vars(scoped.endpoint), "prepare_program", broken)
    inputs = scoped.lend()
    if isinstance(error, Exception):
        outcome = scoped.runtime.execute_scoped_read_only(graph, inputs)
        assert isinstance(outcome, ta.RetiredFailed)
        assert type(outcome.cause) is ExecutionError
        assert outcome.cause.__cause__ is error
        assert outcome.inputs is inputs  # the exact package, usable
    else:
        with pytest.raises(KeyboardInterrupt):
            scoped.runtime.execute_scoped_read_only(graph, inputs)
    assert ran == [threading.get_ident()]  # in the caller's own thread, and over
    assert threading.active_count() == running
    assert scoped.records() == {}  # no record was needed, so none can be pending
    assert scoped.endpoint.synchronise(0.0) == "done"
    error.__traceback__ = error.__context__ = None
    inputs.close()
    assert scoped.borrows() == [None, None]
    with scoped.x.as_view_mut() as mut:  # the bytes are the caller's again
        mut.fill(1.0)


@pytest.mark.clause("g3-scoped-no-work-at-unwind")
def test_safety_at_unwind_is_the_endpoints_contract_and_no_handlers_work(
    scoped: Scoped, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Finalisers: the module has none, and nothing that it builds on registers one.
    source = (Path(runtime.__file__).parent / "_scoped.py").read_text(encoding="utf-8")
    tree = ast.parse(source)
    names = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    assert "__del__" not in names
    assert not {"weakref", "atexit", "contextlib", "threading"} & {
        alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    # What an endpoint must promise is asked before admission, and held to afterwards.
    monkeypatch.setattr(HostEndpoint, "await_event", lambda *args: "unproven")
    with pytest.raises(InternalError, match="inside `enqueue`"):
        scoped.run(product)
    monkeypatch.setattr(HostEndpoint, "is_synchronous", False)
    with pytest.raises(ScopedSubmitRejected):
        scoped.run(product)


@pytest.mark.clause("g3-scoped-rejected-shape")
def test_a_proof_that_nothing_ran_is_a_rejection(
    scoped: Scoped, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, inputs = scoped.graph(product), scoped.lend()

    def refuses(launch: Any) -> Any:
        raise NotEnqueuedError(operation="enqueue", found="told to refuse")

    with monkeypatch.context() as patch:
        patch.setitem(vars(scoped.endpoint), "enqueue", refuses)
        assert isinstance(scoped.rejected(graph, inputs), NotEnqueuedError)
    assert scoped.borrows() == ["shared", "shared"]
    outcome = scoped.runtime.execute_scoped_read_only(graph, inputs)
    assert isinstance(outcome, ta.Completed)


# ---- outputs


@pytest.mark.clause("g3-scoped-borrowed-outputs")
def test_identity_and_repeated_outputs_are_the_callers_views_again(
    scoped: Scoped,
) -> None:
    with ta.ledger() as led:
        bundle = scoped.bundle(several)
    led.expect(allocations={"OperationOutput": 1}, copies={})  # the product alone
    serials = {}
    with ta.forbid(copies=True, allocations=True):
        for k in range(7):
            found = bundle.output(k)
            if isinstance(found, TensorView):
                serials[k] = found.span.serial
                found.close()
    assert serials[0] == serials[2] == scoped.x.span.serial
    assert serials[3] == scoped.y.span.serial
    assert serials[1] == serials[4] == serials[6]
    assert bundle.output(5) == ta.OutputMetadata("epoch 3")
    with bundle.output(3) as turned:  # type: ignore[union-attr]
        assert np.array_equal(turned.numpy(), Y.T)
    # The borrow of the inputs lasts as long as the bundle that names them.
    for tensor in (scoped.x, scoped.y):
        with pytest.raises(BorrowConflictError):
            tensor.as_view_mut()
    bundle.close()
    assert scoped.borrows() == [None, None]
    with pytest.raises(UseAfterMoveError, match="close"):
        bundle.output(0)


@pytest.mark.clause("g3-scoped-borrowed-outputs")
def test_a_borrowed_output_ends_with_the_view_that_was_lent(scoped: Scoped) -> None:
    with scoped.x.as_view() as x, scoped.y.as_view() as y:
        outcome = scoped.runtime.execute_scoped_read_only(
            scoped.graph(several), ta.ScopedReadInputs([x, y])
        )
        assert isinstance(outcome, ta.Completed)
        bundle = outcome.bundle
        with bundle.output(0) as same:
            assert same.get((0, 0)) == X[0, 0]
        owned = bundle.output(1)
    with pytest.raises(ExpiredCapabilityError):
        bundle.output(0)
    assert owned.get((0, 0)) == PRODUCT[0, 0]  # what is owned needs no borrow


@pytest.mark.clause("g3-scoped-borrowed-outputs")
def test_parts_and_shared_views_are_read_where_they_lie(scoped: Scoped) -> None:
    graph = scoped.graph(lambda a, b: (a + b, a[0]), X[:, ::-1], X[:, ::-1])
    flipped = scoped.x.flip(1)
    inputs = ta.ScopedReadInputs([flipped, flipped])  # readers may share
    with ta.ledger() as led:
        outcome = scoped.runtime.execute_scoped_read_only(graph, inputs)
        assert isinstance(outcome, ta.Completed)
    led.expect(allocations={"OperationOutput": 1}, copies={})
    with outcome.bundle.output(0) as total, outcome.bundle.output(1) as row:
        assert np.array_equal(total.numpy(), 2 * X[:, ::-1])
        assert np.array_equal(row.numpy(), X[0, ::-1])
        assert row.span.serial == scoped.x.span.serial


@pytest.mark.clause("g3-scoped-into-owned")
@pytest.mark.parametrize("output", [1, 4, 6])
def test_taking_an_owned_output_discards_the_rest_with_it(
    scoped: Scoped, output: int
) -> None:
    with ta.ledger() as led:
        bundle = scoped.bundle(several)
        group, look = bundle._sb_group, bundle.output(output)
        assert isinstance(look, TensorView)  # an immutable view, and it holds
        with pytest.raises(BorrowConflictError):
            bundle.into_owned_output(output)
        look.close()
        tensor = bundle.into_owned_output(output)
    led.expect(allocations={"OperationOutput": 1}, copies={})
    wanted = PRODUCT[1:] if output == 4 else PRODUCT
    assert np.array_equal(tensor.numpy(), wanted)
    assert group.is_moved
    assert scoped.borrows() == [None, None]  # the views went with the map
    for use in (bundle.output, bundle.into_owned_output):
        with pytest.raises(UseAfterMoveError, match="into_owned_output"):
            use(0)
    with pytest.raises(UseAfterMoveError):
        bundle.close()


@pytest.mark.clause("g3-scoped-take-refused")
def test_borrowed_outputs_and_metadata_cannot_be_taken(scoped: Scoped) -> None:
    bundle = scoped.bundle(several)
    bundle._sb_group.remove(bundle._sb_outputs[4])  # type: ignore[arg-type]
    inside = {5: "metadata-output", 7: "invalid-output", 4: "extract"}
    with ta.forbid(copies=True, allocations=True):
        for output in (0, 2, 3, 4, 5, 7):
            with pytest.raises(ScopedOutputExtractError) as caught:
                bundle.into_owned_output(output)
            error = caught.value
            assert error.recovered is bundle
            if output in inside:
                assert error.reason == "output"
                assert isinstance(error.cause, OutputExtractError)
                assert error.cause.reason == inside[output]
            else:
                assert error.reason == "borrowed-output"
                assert error.cause is None
            del caught, error
    assert scoped.borrows() == ["shared", "shared"]
    assert np.array_equal(bundle.into_owned_output(1).numpy(), PRODUCT)


def test_scoped_work_reads_constants_and_counts_in_the_open_scope(
    scoped: Scoped,
) -> None:
    w = ta.asarray(upload(Y, CPU))
    graph = scoped.graph(lambda x: ta.tanh(x @ w.T).sum(), X)
    with ta.ledger() as led, scoped.x.as_view() as view:
        outcome = scoped.runtime.execute_scoped_read_only(
            graph, ta.ScopedReadInputs([view])
        )
        assert isinstance(outcome, ta.Completed)
        found = outcome.bundle.into_owned_output(0)
    led.expect(allocations={"OperationOutput": 2}, copies={})  # and an arena
    assert np.allclose(found.numpy(), np.tanh(X @ Y.T).sum())
    assert led.live == 1
    del graph
    gc.collect()
    assert np.array_equal(w.into_value().numpy(), Y)
