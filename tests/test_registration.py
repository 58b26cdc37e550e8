"""Operations of users: registered, held to their promises, and checked.

`check_op` passes for operations that keep every promise; for each promise there is an
operation below that breaks this one only, and the check names it.
"""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad import extension
from tenferro_ad.engine import _registration
from tenferro_ad.errors import (
    DTypeError,
    InvalidArgumentError,
    NoRuleError,
    UndeclaredSaveError,
)
from tenferro_ad.testing import OperationCheckError, Sample, check_grads, check_op

Array = np.ndarray[Any, Any]
rng = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def own_names() -> Iterator[None]:
    before = set(_registration._registered)
    yield
    for name in set(_registration._registered) - before:
        extension.forget_op(name)


def draw(*shape: int, dtype: Any = np.float64) -> Array:
    x = rng.uniform(0.3, 1.5, shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.uniform(0.3, 1.5, shape)
    return np.asarray(x, dtype)


# ---- an operation that keeps its promises --------------------------------------------
# x * exp(y), elementwise over equal shapes.
def _kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
    np.exp(ins[1], outs[0])
    np.multiply(outs[0], ins[0], outs[0])


GOOD: dict[str, Any] = {
    "args": ("x", "y"),
    "shapes": lambda x, y: (x.shape, x.dtype),
    "kernel": _kernel,
    "vjp": {
        "x": lambda F, ct, call, *, y: F.mul(ct, F.conj(F.exp(y))),
        "y": lambda F, ct, call, *, out: F.mul(ct, F.conj(out)),
    },
    "jvp": {
        "x": lambda F, t, call, *, y: F.mul(t, F.exp(y)),
        "y": lambda F, t, call, *, out: F.mul(t, out),
    },
    "batch": extension.leading(),
}
SAMPLES = [
    Sample("vector", (draw(3), draw(3))),
    Sample("matrix, a view", (draw(4, 6)[::-2, 1::2], draw(2, 3))),
    Sample("float32", (draw(3, dtype=np.float32), draw(3, dtype=np.float32))),
    Sample("complex", (draw(2, dtype=np.complex128), draw(2, dtype=np.complex128))),
    Sample("nothing", (draw(0, 3), draw(0, 3))),
]


def reference(x: Array, y: Array) -> Array:
    return np.asarray(x * np.exp(y))


def registered(**changes: Any) -> Any:
    facts = GOOD | changes
    return ta.register_op("tests.scaled_exp", facts.pop("args"), **facts)


def test_a_good_operation_passes() -> None:
    check_op(registered(), SAMPLES, reference=reference, keeps={"x": "y", "y": "out"})


def test_a_reference_and_hand_written_names_are_optional() -> None:
    check_op(registered(), SAMPLES)


def test_an_operation_of_one_mode_passes_in_that_mode() -> None:
    check_op(registered(jvp=None), SAMPLES, reference=reference, modes=["rev"])
    check_op(
        registered(vjp=None, replace=True),
        SAMPLES,
        reference=reference,
        modes=["fwd"],
    )
    with pytest.raises(NoRuleError):
        check_op(registered(jvp=None, replace=True), SAMPLES)
    with pytest.raises(NoRuleError, match="batch"):
        check_op(registered(batch=None, replace=True), SAMPLES)
    check_op(registered(batch=None, replace=True), SAMPLES, batching=False)


# ---- each promise, broken ------------------------------------------------------------
def _aliased(call: Any, *ins: Array) -> Array:
    return np.asarray(reference(*ins))


def _twice(call: Any, outs: list[Array], ins: list[Array]) -> None:
    """Scribbles on an operand."""
    _kernel(call, outs, ins)
    np.add(ins[0], 1, ins[0])


def _hidden(call: Any, outs: list[Array], ins: list[Array]) -> None:
    """Allocates a value by itself."""
    ta.asarray(np.zeros(3)) + 1.0
    _kernel(call, outs, ins)


def _nondeterministic(call: Any, outs: list[Array], ins: list[Array]) -> None:
    _kernel(call, outs, ins)
    noise = 1e-14 * np.random.default_rng().uniform(0.5, 1)
    np.add(outs[0], noise, outs[0])


BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "value": ({"kernel": lambda call, outs, ins: np.exp(ins[1], outs[0])}, "value"),
    "shape": ({"kernel": extension.Library(
        lambda call, x, y: np.ravel(x * np.exp(y)).copy())}, "shape"),
    "dtype": ({"shapes": lambda x, y: (x.shape, np.result_type(x.dtype, np.float64))},
              "dtype"),
    "forward": ({"jvp": GOOD["jvp"] | {"y": lambda F, t, call: t}}, "forward mode"),
    "reverse": ({"vjp": GOOD["vjp"] | {"y": lambda F, ct, call: ct}}, "adjoint"),
    "conjugate": ({"vjp": GOOD["vjp"]
                   | {"y": lambda F, ct, call, *, out: F.mul(ct, out)}}, "adjoint"),
    "second": ({"vjp": GOOD["vjp"] | {
        "y": lambda F, ct, call, *, out: F.mul(ct, F.conj(F.stop_gradient(out)))}},
        "second derivatives"),
    "kept for nothing": ({"vjp": GOOD["vjp"] | {
        "y": lambda F, ct, call, *, out, x: F.mul(ct, F.conj(out))}},
        "kept values are read"),
    "not alone": ({"kernel": _hidden}, "allocations"),
    "written": ({"kernel": _twice}, "operands are not written"),
    "batch": ({"batch": lambda F, call, size, xs, batched: F.mul(
        *[x if b else F.broadcast_to(x, (size, *x.aval.shape))
          for x, b in zip(xs, batched, strict=True)])}, "many examples"),
    "a loop": ({"batch": lambda *facts: extension.by_loop(*facts)}, "many examples"),
    "other bits": ({"kernel": _nondeterministic}, "recompute|traced|other bits"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(BROKEN))
def test_each_broken_promise_is_named(what: str) -> None:
    change, text = BROKEN[what]
    with pytest.raises((OperationCheckError, ta.errors.CheckpointMismatchError)) as e:
        check_op(registered(**change), SAMPLES, reference=reference)
    notes = " ".join(getattr(e.value, "__notes__", []))
    assert re.search(text, str(e.value) + notes), str(e.value)
    assert what == "kept for nothing" or "sample `" in notes
    del e


def test_what_the_declaration_says_by_hand_is_compared() -> None:
    with pytest.raises(OperationCheckError, match="what a tape keeps"):
        check_op(registered(), SAMPLES, keeps={"x": "y", "y": "x"})


def test_gradients_that_share_memory_are_found() -> None:
    """A rule may not hand the cotangent to two operands as one value in two gradients:
    the sweep gives each leaf a buffer of its own, and the check sees that it does."""
    add = ta.register_op(
        "tests.plain_sum",
        ("x", "y"),
        shapes=lambda x, y: (x.shape, x.dtype),
        kernel=lambda call, outs, ins: np.add(*ins, outs[0]),
        vjp={"x": lambda F, ct, call: ct, "y": lambda F, ct, call: ct},
        jvp={"x": lambda F, t, call: t, "y": lambda F, t, call: t},
        batch=extension.leading(),
    )
    check_op(add, SAMPLES, reference=np.add, keeps={"x": "", "y": ""})


# ---- rules that keep what they name --------------------------------------------------
@pytest.mark.parametrize("mode", ["eager", "traced", "checkpointed", "second"])
def test_a_rule_that_reads_what_it_does_not_name_is_refused(mode: str) -> None:
    seen: list[Any] = []

    def sneaky(F: Any, ct: Any, call: Any) -> Any:
        return F.mul(ct, seen[0])

    op = registered(vjp=GOOD["vjp"] | {"x": sneaky})
    y = ta.asarray(draw(3))
    seen.append(ta.exp(y) if mode in ("traced", "second") else ta.exp(y)._record)

    def f(x: Any) -> Any:
        return ta.sum(op(x, y))

    g: Any = {
        "eager": ta.grad(f),
        "traced": lambda x: ta.trace(ta.grad(f), x)(x),
        "checkpointed": ta.grad(ta.checkpoint(f)),
        "second": ta.grad(lambda x: ta.sum(ta.grad(f)(x))),
    }[mode]
    with pytest.raises(UndeclaredSaveError, match=r"vjp\['x'\]"):
        g(draw(3))


def test_forward_rules_and_results_are_held_to_it_too() -> None:
    constant = ta.asarray(draw(3))
    op = registered(jvp=GOOD["jvp"] | {"x": lambda F, t, call: F.mul(t, constant)})
    y = ta.asarray(draw(3))
    with pytest.raises(UndeclaredSaveError, match=r"jvp\['x'\]"):
        ta.jvp(lambda x: op(x, y), (draw(3),), (draw(3),))
    op = registered(
        vjp=GOOD["vjp"] | {"x": lambda F, ct, call: constant._record}, replace=True
    )
    with pytest.raises(UndeclaredSaveError):
        ta.grad(lambda x: ta.sum(op(x, y)))(draw(3))


def test_a_joint_rule_and_several_outputs() -> None:
    def back(F: Any, cts: Any, call: Any, tracked: Any, *, r: Any, t: Any) -> Any:
        a, b = cts
        found: list[Any] = [None, None]
        for ct, own, turned in (
            (a, F.cos(t), F.neg(F.sin(t))),
            (b, F.sin(t), F.cos(t)),
        ):
            if ct is None:
                continue
            parts = F.mul(ct, own), F.mul(F.mul(ct, r), turned)
            found = [p if g is None else F.add(g, p)
                     for g, p in zip(found, parts, strict=True)]  # fmt: skip
        return [found[i] for i in tracked]

    def ahead(F: Any, ts: Any, call: Any, *, r: Any, t: Any) -> Any:
        outs: list[Any] = [None, None]
        dr, dt = ts
        for k, (own, turned) in enumerate(
            ((F.cos(t), F.neg(F.sin(t))), (F.sin(t), F.cos(t)))
        ):
            if dr is not None:
                outs[k] = F.mul(dr, own)
            if dt is not None:
                part = F.mul(F.mul(dt, r), turned)
                outs[k] = part if outs[k] is None else F.add(outs[k], part)
        return tuple(outs)

    def kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
        np.multiply(ins[0], np.cos(ins[1]), outs[0])
        np.multiply(ins[0], np.sin(ins[1]), outs[1])

    polar = ta.register_op(
        "tests.polar",
        ("r", "t"),
        outs=("x", "y"),
        shapes=lambda r, t: [(r.shape, r.dtype), (t.shape, t.dtype)],
        kernel=kernel,
        joint=back,
        joint_jvp=ahead,
        batch=extension.leading(),
    )
    check_op(
        polar,
        [SAMPLES[0], SAMPLES[1]],
        reference=lambda r, t: (r * np.cos(t), r * np.sin(t)),
    )


@pytest.mark.parametrize("variadic", [False, True])
def test_a_check_comes_before_anything_is_allocated(variadic: bool) -> None:
    """Also for several outputs, and for any number of operands."""

    def check(call: Any, ins: list[Array]) -> None:
        if (ins[0] < 0).any():
            raise InvalidArgumentError(
                operation=call.op.name, argument="x", found="a negative number"
            )

    def kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
        for k, out in enumerate(outs):
            np.multiply(ins[0], k, out)

    def shapes(given: Any) -> Any:
        x = given[0] if variadic else given
        return (x.shape, x.dtype) if variadic else [(x.shape, x.dtype)] * 2

    op = ta.register_op(
        "tests.checked",
        ("x",),
        outs=("out",) if variadic else ("a", "b"),
        variadic=variadic,
        shapes=shapes,
        kernel=extension.Write(kernel, check=check),
    )
    good, bad = ta.asarray([1.0]), ta.asarray([-1.0])
    op((good,)) if variadic else op(good)
    with ta.ledger() as led, pytest.raises(InvalidArgumentError, match="negative"):
        op((bad,)) if variadic else op(bad)
    led.expect(allocations={}, copies={})


def test_parameters_and_variadic_operands() -> None:
    def kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
        outs[0].fill(call.start)
        for x in ins:
            np.add(outs[0], x * call.scale, outs[0])

    total = ta.register_op(
        "tests.total",
        ("xs",),
        params={"scale": 1.0, "start": 0.0},
        variadic=True,
        shapes=lambda xs, scale, start: (xs[0].shape, xs[0].dtype),
        kernel=kernel,
        vjp={"xs": lambda F, ct, call, i: F.mul(ct, call.scale)},
        jvp={"xs": lambda F, t, call, i: F.mul(t, call.scale)},
        batch=extension.leading(),
        doc="A scaled sum.",
    )
    assert total.doc == "A scaled sum."
    xs = (np.ones(2), np.full(2, 2.0))
    assert total(xs).tolist() == [3.0, 3.0]
    assert total(xs, 2.0).tolist() == total(xs, scale=np.float64(2)).tolist() == [6, 6]
    assert total(xs, start=1.0, scale=2.0).tolist() == [7.0, 7.0]
    check_op(
        total,
        [Sample("three", (draw(3), draw(3), draw(3)), (2.0, 0.5))],
        reference=lambda a, b, c, scale, start: start + scale * (a + b + c),
    )
    for args, kwargs, text in (
        ((xs, 1.0, 2.0, 3.0), {}, "4 positional"),
        ((xs,), {"size": 3}, "size"),
        ((xs, 1.0), {"scale": 2.0}, "scale"),
        ((xs,), {"scale": np.ones(2)}, "ndarray"),
        ((), {}, "0 positional"),
    ):
        with pytest.raises(InvalidArgumentError, match=text):
            total(*args, **kwargs)


# ---- registration --------------------------------------------------------------------
FAULTS: list[tuple[str, dict[str, Any], str]] = [
    ("no library", {"name": "scaled"}, "library"),
    ("no name", {"name": "tests."}, "library"),
    ("unknown operand", {"vjp": {"z": lambda F, ct, call: ct}}, "z"),
    ("unknown value", {"vjp": {"x": lambda F, ct, call, *, z: ct}}, "z"),
    ("both", {"joint": lambda F, ct, call, tracked: [ct]}, "joint"),
    ("no kernel", {"kernel": 3}, "kernel"),
]


@pytest.mark.parametrize(
    ("change", "text"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_wrong_declarations_are_refused(change: dict[str, Any], text: str) -> None:
    facts = {"name": "tests.wrong", **GOOD, **change}
    with pytest.raises(InvalidArgumentError, match=text):
        ta.register_op(facts.pop("name"), facts.pop("args"), **facts)


def test_names_are_unique_unless_replaced() -> None:
    registered()
    with pytest.raises(InvalidArgumentError, match="registered already"):
        registered()
    registered(replace=True)
    extension.forget_op("tests.scaled_exp")
    with pytest.raises(InvalidArgumentError, match="not registered"):
        extension.forget_op("tests.scaled_exp")


def test_what_is_no_operation_cannot_be_checked() -> None:
    with pytest.raises(InvalidArgumentError, match="check_op"):
        check_op(np.exp, SAMPLES)
    op = registered()
    with pytest.raises(InvalidArgumentError, match="no samples"):
        check_op(op, [])
    with pytest.raises(InvalidArgumentError, match="labels"):
        check_op(op, [SAMPLES[0], SAMPLES[0]])


# ---- execution -----------------------------------------------------------------------
def within(seconds: float, fn: Any) -> Any:
    """The result of `fn()`, which must come in time, from a thread of its own."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(fn())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "deadlock"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def test_53_a_kernel_may_call_eager_operations() -> None:
    """Execution that enters the run time again must not deadlock."""

    def kernel(call: Any, outs: list[Array], ins: list[Array]) -> None:
        inner = ta.sum(ta.asarray(ins[0]) * 2.0)
        outs[0][...] = ins[0] + inner.item()

    op = ta.register_op(
        "tests.reentrant",
        ("x",),
        shapes=lambda x: (x.shape, x.dtype),
        kernel=kernel,
        vjp={
            "x": lambda F, ct, call: F.add(
                ct, F.broadcast_to(F.mul(F.sum(ct, (0,), False), 2.0), call.out.shape)
            )
        },
    )
    x = np.array([1.0, 2.0])
    wanted = [7.0, 8.0]

    def everything() -> None:
        assert op(x).tolist() == wanted
        v = ta.variable(x)
        with ta.Tape() as tape:
            y = op(v)
            assert len(tape) == 2  # the leaf and the operation: nothing from inside
            loss = ta.sum(y)
        with tape.backward(loss).grad(v) as g:
            assert g.numpy().tolist() == [5.0, 5.0]
        assert ta.grad(ta.checkpoint(lambda x: ta.sum(op(x))))(x).tolist() == [5, 5]
        assert ta.compile(op)(x).tolist() == wanted
        assert ta.scan(lambda c, _: (op(c), None), x, None, 2)[0].tolist() == [37, 38]

    within(20, everything)

    def submitted() -> None:
        runtime = ta.Runtime("cpu")
        graph = runtime.compile(ta.trace(op, x))
        inputs = ta.ExecutionInputs.of_tensors([ta.asarray(x).into_value()])
        handle = runtime.submit(graph, inputs)
        outcome = handle.wait()
        assert isinstance(outcome, ta.Completed)
        tensor = outcome.bundle.into_output(0)
        with tensor.as_view() as view:
            assert view.numpy().tolist() == wanted

    within(20, submitted)


def test_a_call_costs_what_every_call_costs() -> None:
    """Field report 56: a budget for an operation that does nothing."""
    shapes_asked: list[tuple[int, ...]] = []

    def shapes(x: Any) -> tuple[Any, Any]:
        shapes_asked.append(x.shape)
        return x.shape, x.dtype

    op = ta.register_op(
        "tests.nothing", ("x",), shapes=shapes, kernel=lambda call, outs, ins: None
    )
    x = ta.asarray(np.zeros(1))
    op(x), ta.softplus(x)
    shapes_asked.clear()
    # More than a row of the package: the object, its checks, a kernel in Python.
    assert calls_of(op, x) <= calls_of(ta.softplus, x) + 4
    assert shapes_asked == []  # the plan is found, not made


def calls_of(fn: Any, x: Any) -> int:
    """Functions of Python that one call enters."""
    entered: list[str] = []

    def note(frame: Any, event: str, arg: object) -> None:
        if event == "call":
            entered.append(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        fn(x)
    finally:
        sys.setprofile(None)
    return len(entered)


def test_rules_of_one_operation_apply_another() -> None:
    inner = registered()

    outer = ta.register_op(
        "tests.outer",
        ("x",),
        shapes=lambda x: (x.shape, x.dtype),
        kernel=lambda call, outs, ins: np.exp(ins[0], outs[0]),
        vjp={"x": lambda F, ct, call, *, x: F[inner.op](ct, x)},
        jvp={"x": lambda F, t, call, *, x: F[inner.op](t, x)},
        batch=extension.leading(),
    )
    check_op(outer, [Sample("vector", (draw(3),))], reference=np.exp)
    check_grads(lambda x: outer(x) * x, [draw(3)], order=3)
    many = ta.vmap(ta.grad(lambda x: ta.sum(outer(x))))(np.ones((2, 3)))
    assert np.allclose(many.tolist(), np.e)


@pytest.mark.parametrize(
    "rule",
    [lambda F, ct, call, *, x: ct * 2.0 * x, lambda F, ct, call, *, x: x.sum()],
)
def test_a_rule_that_computes_without_the_evaluator_is_told_how(rule: Any) -> None:
    op = ta.register_op(
        "test.without_f",
        ("x",),
        shapes=lambda x: (x.shape, x.dtype),
        kernel=lambda call, outs, ins: np.square(ins[0], outs[0]),
        vjp={"x": rule},
    )
    with pytest.raises(DTypeError, match="computes without `F`") as caught:
        ta.grad(lambda x: ta.sum(op(x)))(np.ones(2))
    assert "`F.mul(ct, x)`" in caught.value.fix
    assert caught.value.operation == "test.without_f"
    assert caught.value.argument == "vjp['x']"


@pytest.mark.parametrize(
    ("outs", "answer"),
    [(("out",), (2, 3)), (("out",), None), (("a", "b"), ((2,), np.dtype("f8")))],
)
def test_a_shape_rule_that_gives_no_pairs_is_refused(outs: Any, answer: Any) -> None:
    op = ta.register_op(
        "test.no_pair",
        ("x",),
        outs=outs,
        shapes=lambda x: answer,
        kernel=lambda call, outs, ins: None,
    )
    with pytest.raises(InvalidArgumentError, match="refused `shapes`"):
        op(np.ones((2, 3)))
