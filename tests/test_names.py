"""Errors name the call that stands in the user's code, and its arguments.

Every public function is called with things that do not fit. Whatever it is made of, its
refusal names the function itself and one of its own parameters; nothing but errors of
this package comes out.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.errors import (
    BorrowConflictError,
    OutcomePendingError,
    TenferroError,
    UseAfterMoveError,
    named,
)

ROOMS = {
    "ta": ta,
    "linalg": ta.linalg,
    "fft": ta.fft,
    "special": ta.special,
    "random": ta.random,
    "nn": ta.nn,
}
# They change the process, or open something that must be closed.
LEFT_OUT = {"ledger", "forbid", "doctor", "devices", "set_default_device", "memory"}
ALIASES = {"getitem": "x[key]", "expit": "sigmoid", "psi": "digamma"}


def functions() -> dict[str, tuple[str, Callable[..., Any]]]:
    found: dict[str, tuple[str, Callable[..., Any]]] = {}
    for room, module in ROOMS.items():
        for name in module.__all__:
            fn = getattr(module, name)
            if inspect.isfunction(fn) and name not in LEFT_OUT:
                found[f"{room}.{name}"] = (name, fn)
    return found


FUNCTIONS = functions()


class Wrong:
    """Things that some function does not take."""

    def __init__(self) -> None:
        real = ta.asarray(np.ones((2, 3)))
        with ta.Tape():
            tracked = ta.variable(np.ones((2, 3))) * 2.0
        moved = real * 1.0
        moved.into_value()
        self.tensors: dict[str, Any] = {
            "real": real,
            "complex": ta.asarray(np.ones((2, 3)) * 1j),
            "booleans": ta.asarray(np.ones((2, 3), bool)),
            "integers": ta.asarray(np.arange(3)),
            "0-d": ta.asarray(1.0),
            "empty": ta.asarray(np.ones((0, 3))),
            "square": ta.asarray(np.eye(3)),
            "images": ta.asarray(np.ones((1, 2, 4, 4))),
            "tracked": tracked,
            "moved": moved,
        }
        self.others: dict[str, Any] = {
            "text": "text",
            "object": object(),
            "none": None,
            "texts": ["a", "b"],
            "negative": -7,
            "fraction": 1.5,
        }
        self.all = self.tensors | self.others


def tries(fn: Callable[..., Any], wrong: Wrong) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Calls with each wrong thing in each place, beside things that may fit."""
    parameters = list(inspect.signature(fn).parameters.values())
    positional = [p for p in parameters if p.kind < p.VAR_POSITIONAL]
    needed = [p for p in positional if p.default is p.empty]
    keywords = {
        p.name: 2 for p in parameters
        if p.default is p.empty and p.kind is p.KEYWORD_ONLY
    }  # fmt: skip
    optional = [p.name for p in parameters if p.default is not p.empty
                and p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    n = len(needed)
    some = [wrong.all[k] for k in ("real", "square", "images", "integers")]
    for bad, good in itertools.product(wrong.all.values(), some):
        for at in range(n):
            yield (*[good] * at, bad, *[good] * (n - at - 1)), keywords
    for bad in wrong.all.values():
        yield (bad,) * n, keywords
    for name in optional:
        for bad in (*wrong.others.values(), wrong.all["real"]):
            for good in some[:3]:
                yield (good,) * n, {**keywords, name: bad}


@pytest.mark.parametrize("room", ROOMS)
def test_every_refusal_names_the_function_and_its_parameter(room: str) -> None:
    wrong = Wrong()
    faults = []
    refusals = 0
    for label, (name, fn) in FUNCTIONS.items():
        if not label.startswith(f"{room}."):
            continue
        known = set(inspect.signature(fn).parameters)
        for args, kwargs in tries(fn, wrong):
            try:
                fn(*args, **kwargs)
            except TenferroError as error:
                refusals += 1
                parts = (error.argument or "").replace(" and ", ",").split(",")
                right = {name, ALIASES.get(name, name)}
                fits = error.argument is None or known & {p.strip() for p in parts}
                told = error.fix and "0x" not in str(error)
                if error.operation not in right or not (fits and told):
                    faults.append(f"{label}: {error}")
            except Exception as error:
                faults.append(f"{label}: {type(error).__name__}: {error}")
    assert not faults, "\n".join(dict.fromkeys(faults))
    assert refusals > 100


# ---- how the call is found -----------------------------------------------------------


def test_a_call_inside_a_users_function_is_the_one_that_is_named() -> None:
    def loss(x: Any) -> Any:
        return ta.sum(ta.reshape(x, (5, 5)))

    for call in (
        lambda: loss(ta.ones(3)),
        lambda: ta.grad(loss)(np.ones(3)),
        lambda: ta.jvp(loss, (np.ones(3),), (np.ones(3),)),
        lambda: ta.checkpoint(loss)(ta.ones(3)),
        lambda: ta.vmap(loss)(ta.ones((2, 3))),
    ):
        with pytest.raises(ta.errors.ShapeError) as caught:
            call()
        assert (caught.value.operation, caught.value.argument) == ("reshape", "shape")
        del caught


def test_operators_are_named_like_the_functions() -> None:
    x, y = ta.ones(3), ta.ones(2)
    for call, name in (
        (lambda: x + y, "add"),
        (lambda: x - y, "subtract"),
        (lambda: x * y, "multiply"),
        (lambda: x / y, "divide"),
        (lambda: x**y, "pow"),
        (lambda: x @ y, "matmul"),
        (lambda: -(x > 0), "negative"),
        (lambda: x << 1, "bitwise_left_shift"),
        (lambda: x[7], "x[key]"),
    ):
        with pytest.raises(TenferroError) as caught:
            call()
        assert caught.value.operation == name
        del caught


def test_a_function_may_be_named_from_outside() -> None:
    """Only frames of the package count, so users' functions stay in their own name."""

    @named("mine", x="weights")
    def mine(weights: Any) -> Any:
        return ta.linalg.inv(weights)

    with pytest.raises(ta.errors.ShapeError) as caught:
        mine(np.ones((2, 3)))
    assert caught.value.operation == "inv"


# ---- programs and runs ---------------------------------------------------------------


class Runs:
    """One of everything that a run is made of."""

    def __init__(self) -> None:
        spec = ta.Spec((3,))
        self.runtime = ta.Runtime("cpu")
        self.program = ta.trace(lambda x: ta.exp(x), spec)
        self.sizes = ta.trace(lambda x: ta.exp(x), ta.Spec(("n",)))
        self.graph = self.runtime.compile(self.program)
        self.compiled = ta.compile(lambda x: ta.exp(x))
        held = ta.Runtime("cpu")
        held.endpoint.hold()
        self.pending = held.submit(self.graph, self.inputs())
        self.held = held

    def owner(self) -> ta.Tensor:
        return ta.asarray(np.ones(3)).into_value()

    def inputs(self) -> ta.ExecutionInputs:
        return ta.ExecutionInputs.of_tensors([self.owner()])

    def group(self) -> Any:
        return ta.AllocationGroup.of_tensors([self.owner()])

    def bundle(self) -> Any:
        outcome: Any = self.runtime.submit(self.graph, self.inputs()).wait(30)
        return outcome.bundle

    def scoped(self) -> Any:
        return ta.ScopedReadInputs([self.owner().as_view()])

    def scoped_bundle(self) -> Any:
        runtime: Any = self.runtime
        return runtime.execute_scoped_read_only(self.graph, self.scoped()).bundle

    def close(self) -> None:
        self.held.endpoint.let_go()
        assert self.runtime.close(30)
        assert self.held.close(30)


def nothing() -> None: ...


ODD: dict[str, Any] = {
    "none": None, "text": "text", "object": object(), "negative": -7,
    "fraction": 1.5, "nan": float("nan"), "truth": True, "complex": 1j,
    "huge": 10**5000, "hugely negative": -(10**5000), "bytes": b"ab", "texts": ["a"],
    "mapping": {"a": 1}, "set": {7}, "nested": [[1]], "array": np.ones(2),
    "type": ta.Runtime, "function": nothing, "tensor": ta.ones(2), "empty": (),
}  # fmt: skip
NUMBERS = {"negative", "fraction", "nan", "truth", "complex", "nested", "array"}
NUMBERS |= {"tensor", "empty"}
SECONDS = {"negative", "fraction", "nan", "huge", "hugely negative"}

# operation, argument, the call, and what of `ODD` fits
Call = tuple[str, str, Callable[[Runs, Any], Any], set[str]]
CALLS: dict[str, Call] = {
    "Runtime": ("Runtime", "endpoint", lambda s, x: ta.Runtime(x), set()),
    "Runtime, name": (
        "Runtime", "name", lambda s, x: ta.Runtime(name=x), {"none", "text"},
    ),
    "Runtime, deadline": (
        "Runtime", "deadline", lambda s, x: ta.Runtime(deadline=x),
        {"fraction", "huge"},
    ),
    "Runtime.compile": (
        "Runtime.compile", "traced", lambda s, x: s.runtime.compile(x), set(),
    ),
    "Runtime.submit": (
        "submit", "graph", lambda s, x: s.runtime.submit(x, s.inputs()), set(),
    ),
    "Runtime.submit, inputs": (
        "submit", "inputs", lambda s, x: s.runtime.submit(s.graph, x), set(),
    ),
    "Runtime.execute_scoped_read_only": (
        "execute_scoped_read_only", "graph",
        lambda s, x: s.runtime.execute_scoped_read_only(x, s.scoped()), set(),
    ),
    "Runtime.execute_scoped_read_only, inputs": (
        "execute_scoped_read_only", "inputs",
        lambda s, x: s.runtime.execute_scoped_read_only(s.graph, x), set(),
    ),
    "Runtime.close": (
        "close", "timeout", lambda s, x: ta.Runtime().close(x),
        {"none", *SECONDS} - {"nan"},
    ),
    "ExecutionHandle": (
        "ExecutionHandle", "", lambda s, x: ta.ExecutionHandle(x), set(),
    ),
    "ExecutionHandle.wait": (
        "wait", "timeout",
        lambda s, x: x if x is None or x is ODD["huge"] else s.pending.wait(x),
        {"none", "huge"},
    ),
    "ExecutionInputs": (
        "ExecutionInputs", "group",
        lambda s, x: ta.ExecutionInputs(x, s.group()[1]), set(),
    ),
    "ExecutionInputs, bindings": (
        "ExecutionInputs", "bindings",
        lambda s, x: ta.ExecutionInputs(s.group()[0], x), {"empty"},
    ),
    "ExecutionInputs, a binding": (
        "ExecutionInputs", "bindings",
        lambda s, x: ta.ExecutionInputs(s.group()[0], [x]), set(),
    ),
    "ExecutionInputs, donate": (
        "ExecutionInputs", "donate",
        lambda s, x: ta.ExecutionInputs(*s.group(), donate=x), {"empty"},
    ),
    "ExecutionInputs, a donation": (
        "ExecutionInputs", "donate",
        lambda s, x: ta.ExecutionInputs(*s.group(), donate=[x]), set(),
    ),
    "ExecutionInputs.of_tensors": (
        "ExecutionInputs.of_tensors", "tensors",
        lambda s, x: ta.ExecutionInputs.of_tensors(x), {"empty"},
    ),
    "ExecutionInputs.of_tensors, one": (
        "ExecutionInputs.of_tensors", "tensors",
        lambda s, x: ta.ExecutionInputs.of_tensors([s.owner(), x]), {"tensor"},
    ),
    "ExecutionInputs.of_tensors, donate": (
        "ExecutionInputs.of_tensors", "donate",
        lambda s, x: ta.ExecutionInputs.of_tensors([s.owner()], donate=x), {"empty"},
    ),
    "ExecutionInputs.of_values": (
        "ExecutionInputs.of_values", "values",
        lambda s, x: ta.ExecutionInputs.of_values(x), {"empty"},
    ),
    "ExecutionInputs.of_values, one": (
        "ExecutionInputs.of_values", "values",
        lambda s, x: ta.ExecutionInputs.of_values([s.owner(), x]), {"tensor"},
    ),
    "ExecutionInputs.of_values, donate": (
        "ExecutionInputs.of_values", "donate",
        lambda s, x: ta.ExecutionInputs.of_values([s.owner()], donate=x), {"empty"},
    ),
    "ExecutionBundle": (
        "ExecutionBundle", "", lambda s, x: ta.ExecutionBundle(x), set(),
    ),
    "ExecutionBundle.output": (
        "output", "output", lambda s, x: s.bundle().output(x), set(),
    ),
    "ExecutionBundle.into_output": (
        "into_output", "output", lambda s, x: s.bundle().into_output(x), set(),
    ),
    "ScopedReadInputs": (
        "ScopedReadInputs", "views", lambda s, x: ta.ScopedReadInputs(x), {"empty"},
    ),
    "ScopedReadInputs, one": (
        "ScopedReadInputs", "views", lambda s, x: ta.ScopedReadInputs([x]), set(),
    ),
    "ScopedExecutionBundle": (
        "ScopedExecutionBundle", "", lambda s, x: ta.ScopedExecutionBundle(x), set(),
    ),
    "ScopedExecutionBundle.output": (
        "output", "output", lambda s, x: s.scoped_bundle().output(x), set(),
    ),
    "ScopedExecutionBundle.into_owned_output": (
        "into_owned_output", "output",
        lambda s, x: s.scoped_bundle().into_owned_output(x), set(),
    ),
    "Spec": ("Spec", "shape", lambda s, x: ta.Spec(x), {"text", "texts", "mapping",
             "set", "huge", "empty"}),
    "Spec, dtype": ("Spec", "dtype", lambda s, x: ta.Spec(3, x), {"none", "tensor"}),
    "Spec, device": ("Spec", "device", lambda s, x: ta.Spec(3, device=x), {"none"}),
    "Spec.at": (
        "Spec.at", "sizes", lambda s, x: ta.Spec(("n",)).at(x), set(),
    ),
    "Spec.at, one": (
        "Spec.at", "sizes", lambda s, x: ta.Spec(("n",)).at({"n": x}), {"huge"},
    ),
    "SymbolicProgram.at": (
        "SymbolicProgram.at", "n", lambda s, x: s.sizes.at(n=x), set(),
    ),
    "SymbolicProgram.__call__": (
        "traced program", "args", lambda s, x: s.sizes(x), {"array", "tensor"},
    ),
    "TracedProgram.__call__": (
        "traced program", "args", lambda s, x: s.program(x), set(),
    ),
    "TracedProgram.bind": (
        "traced program", "args", lambda s, x: s.program.bind(x), set(),
    ),
    "Compiled.__call__": ("", "", lambda s, x: s.compiled(x), NUMBERS),
    "Compiled.graph": ("", "", lambda s, x: s.compiled.graph(x), NUMBERS),
    "Compiled.plan": ("", "", lambda s, x: s.compiled.plan(x), NUMBERS),
}  # fmt: skip
KINDS = (
    ta.Runtime, ta.ExecutionHandle, ta.ExecutionInputs, ta.ExecutionBundle,
    ta.ScopedReadInputs, ta.ScopedExecutionBundle, ta.Spec, ta.SymbolicProgram,
    ta.TracedProgram, ta.Compiled,
)  # fmt: skip


def test_the_table_names_every_call_of_programs_and_runs_that_takes_something() -> None:
    told = {name.partition(",")[0] for name in CALLS}
    left_out = {"SymbolicProgram", "TracedProgram", "Compiled"}  # made by functions
    for kind in KINDS:
        methods = {
            name: member for name, member in vars(kind).items()
            if not name.startswith("_") or name == "__call__"
        }  # fmt: skip
        wanted = {kind.__name__} - left_out
        for name, member in methods.items():
            fn = inspect.unwrap(getattr(member, "__func__", member))
            if callable(fn) and len(inspect.signature(fn).parameters) > 1:
                wanted.add(f"{kind.__name__}.{name}")
        assert wanted <= told, kind


@pytest.mark.parametrize("name", CALLS)
def test_programs_and_runs_name_the_argument_that_they_refuse(name: str) -> None:
    operation, argument, call, fits = CALLS[name]
    runs = Runs()
    faults = []
    for label, odd in ODD.items():
        try:
            call(runs, odd)
        except OutcomePendingError:
            assert name == "ExecutionHandle.wait"
            assert label in SECONDS - {"nan"}
        except TenferroError as error:
            text = str(error)
            named = (error.argument or "").startswith(argument)
            if operation and (error.operation != operation or not named):
                faults.append(f"{label}: {text}")
            if not error.fix or "0x" in text or len(text) > 400:
                faults.append(f"{label}: {text}")
        except Exception as error:
            faults.append(f"{label}: {type(error).__name__}: {error}")
        else:
            if label not in fits:
                faults.append(f"{label}: was taken")
    runs.close()
    assert not faults, "\n".join(faults)


def test_a_refused_timeout_leaves_the_runtime_open() -> None:
    runs = Runs()
    with pytest.raises(TenferroError, match="`close` refused `timeout`"):
        runs.runtime.close("soon")  # type: ignore[arg-type]
    assert len(runs.bundle()) == 1  # it still runs
    runs.close()


def test_a_donation_that_cannot_be_used_names_the_argument_of_that_call() -> None:
    step = ta.compile(ta.sum, donate_argnums=0)
    x = ta.ones(3)
    with pytest.raises(TenferroError, match="`compile` refused `donate_argnums`"):
        step(x)
    runs = Runs()
    total = runs.runtime.compile(ta.trace(ta.sum, ta.Spec((3,))))
    given = ta.ExecutionInputs.of_tensors([runs.owner()], donate=[0])
    with pytest.raises(TenferroError, match="`submit` refused `donate`"):
        runs.runtime.submit(total, given)
    assert len(given) == 1
    runs.close()


def test_donated_values_say_who_holds_them_and_who_took_them() -> None:
    step = ta.compile(lambda p: p * 2.0, donate_argnums=0)
    p = ta.asarray([1.0, 2.0])
    seen = np.asarray(p)
    with pytest.raises(BorrowConflictError) as caught:
        step(p)
    assert caught.value.operation == "compiled function"
    assert caught.value.argument == "donate_argnums"
    del caught, seen
    q = step(p)
    for use in (lambda: p + 1.0, lambda: step(p), lambda: p.tolist(), p.into_value):
        with pytest.raises(UseAfterMoveError, match="moved by `compiled function`"):
            use()
    q.into_value()
    with pytest.raises(UseAfterMoveError, match="moved by `into_value`"):
        q.tolist()


# ---- NumPy's functions on tensors ----------------------------------------------------


def test_operators_with_arrays_are_the_tensors() -> None:
    a, x = np.arange(1.0, 4.0), ta.asarray([1.0, 2.0, 4.0])
    for seen, wanted in (
        (a + x, [2.0, 4.0, 7.0]),
        (a - x, [0.0, 0.0, -1.0]),
        (a / x, [1.0, 1.0, 0.75]),
        (a**x, [1.0, 4.0, 81.0]),
        (a < x, [False, False, True]),
        (a @ x, 17.0),
        (np.float64(2) * x, [2.0, 4.0, 8.0]),
    ):
        assert isinstance(seen, ta.EagerTensor)
        assert seen.tolist() == wanted
    w = ta.variable([1.0, 2.0, 3.0])
    assert ta.grad(lambda w: ta.sum(a * w))(w).tolist() == a.tolist()


def test_numpy_functions_of_constants_are_numpys() -> None:
    x = ta.asarray([[1.0, 2.0], [3.0, 4.0]])
    assert np.array_equal(np.sin(x), np.sin(x.numpy()))
    assert np.sum(x) == 10.0
    assert np.concatenate([x, x.numpy()], axis=1).shape == (2, 4)
    assert np.add.reduce(x, axis=0).tolist() == [4.0, 6.0]
    assert np.allclose(x, x)
    total = np.zeros((2, 2))
    total += x
    assert total.tolist() == x.tolist()
    with ta.ledger() as led:
        np.sum(x)
    assert not led.allocations
    assert not led.copies


def test_numpy_functions_of_tracked_values_are_refused_with_the_fix() -> None:
    with ta.Tape():
        y = ta.variable(np.ones(3)) * 2.0
        for call, name, ours in (
            (lambda: np.sin(y), "numpy.sin", "ta.sin"),
            (lambda: np.arctan2(y, y), "numpy.arctan2", "ta.atan2"),
            (lambda: np.sum(y), "numpy.sum", "ta.sum"),
            (lambda: np.concatenate([y, y]), "numpy.concatenate", "ta.concat"),
            (lambda: np.linalg.norm(y), "numpy.norm", "ta.linalg.norm"),
            (lambda: np.fft.fft(y), "numpy.fft", "ta.fft.fft"),
            (lambda: np.interp(y, y, y), "numpy.interp", "functions of `ta`"),
        ):
            with pytest.raises(ta.errors.TracedConversionError) as caught:
                call()
            assert caught.value.operation == name
            assert ours in caught.value.fix
            assert isinstance(caught.value, TypeError)
            del caught
