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
from tenferro_ad.errors import TenferroError, named

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
            (lambda: np.linalg.norm(y), "numpy.norm", "functions of `ta`"),
        ):
            with pytest.raises(ta.errors.TracedConversionError) as caught:
                call()
            assert caught.value.operation == name
            assert ours in caught.value.fix
            assert isinstance(caught.value, TypeError)
            del caught
