"""G4: nothing about providers or capabilities is resolved inside a loop over elements.

The final API is looked at twice. The sources of every loop over elements may name no
step of resolution. And whatever the package calls, in any module, is called equally
often for few and for many elements; only the steps of an iterator itself follow their
number.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import _numpy_printer
from tenferro_ad.storage import (
    PreparedContiguousRead,
    PreparedContiguousWrite,
    PreparedStridedRead,
    PreparedStridedWrite,
)
from tenferro_ad.storage import _traversal as traversal

PACKAGE = str(Path(ta.__file__).parent)
RESOLUTION = {
    *("provider", "context", "_context", "device", "endpoint", "engine", "_live"),
    *("prepare_read", "prepare_write", "prepare_host", "prepare_device", "map_host"),
    *("checked_read", "checked_write", "as_view", "as_view_mut", "_claim", "_borrow"),
    *(
        "_require",
        "borrow",
        "capability",
        "bind",
        "enqueue",
        "allocate",
        "check_layout",
    ),
    *("check_descriptor", "prove_injective", "guard", "_lend", "_elements", "numpy"),
}


def loops(function: Callable[..., Any]) -> list[list[ast.stmt] | list[ast.expr]]:
    """Bodies of the loops and generators of a function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    found: list[Any] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.While):
            found.append(node.body)
        if isinstance(node, ast.GeneratorExp):
            found.append([node.elt])
    return found


def named(body: Any) -> set[str]:
    nodes = [node for each in body for node in ast.walk(each)]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    return used | {node.attr for node in nodes if isinstance(node, ast.Attribute)}


@pytest.mark.clause("g4-hot-path-structure")
@pytest.mark.parametrize(
    "function",
    [
        traversal.PreparedContiguousWrite.iter_contiguous_mut,
        traversal.PreparedStridedWrite.iter_strided_mut,
        _numpy_printer._blocked,
    ],
    ids=lambda function: function.__qualname__,
)
def test_no_loop_over_elements_names_a_step_of_resolution(
    function: Callable[..., Any],
) -> None:
    bodies = loops(function)
    assert bodies
    for body in bodies:
        assert not named(body) & RESOLUTION


@pytest.mark.clause("g4-hot-path-structure")
def test_a_step_of_the_strided_iterator_calls_nothing() -> None:
    step = inspect.getsource(traversal.PreparedStridedIter.__next__)
    tree = ast.parse(textwrap.dedent(step))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not named(tree.body) & RESOLUTION


# ---- counted


def calls_of(action: Callable[[], Any]) -> Counter[tuple[str, str]]:
    """How often each Python function of the package is entered, by file and name."""
    found: Counter[tuple[str, str]] = Counter()

    def note(frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGE):
            found[Path(code.co_filename).name, code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return found


def contiguous(n: int) -> Callable[[], Any]:
    t = ta.asarray(np.arange(float(n))).into_value()

    def run() -> None:
        access = t.prepare_host()
        assert isinstance(access, PreparedContiguousRead)
        assert sum(access.iter_contiguous()) == access.as_slice().sum()
        access.close()
        t.numpy().sum()

    return run


def contiguous_mut(n: int) -> Callable[[], Any]:
    t = ta.asarray(np.arange(float(n))).into_value()

    def run() -> None:
        access = t.prepare_host_mut()
        assert isinstance(access, PreparedContiguousWrite)
        for element in access.iter_contiguous_mut():
            element[...] = 0.0
        access.close()

    return run


def strided(n: int) -> Callable[[], Any]:
    t = ta.asarray(np.arange(2.0 * n)).into_value()

    def run() -> None:
        access = t[::2].prepare_host()
        assert isinstance(access, PreparedStridedRead)
        assert sum(access.iter_strided()) == access.as_strided_array().sum()
        access.close()

    return run


def strided_mut(n: int) -> Callable[[], Any]:
    t = ta.asarray(np.arange(2.0 * n)).into_value()

    def run() -> None:
        with t.as_view_mut() as view:
            access = view[::2].prepare_host_mut()
        assert isinstance(access, PreparedStridedWrite)
        for element in access.iter_strided_mut():
            element[...] = 0.0
        access.close()

    return run


def operations(n: int) -> Callable[[], Any]:
    x = ta.asarray(np.arange(float(n)))
    return lambda: ta.sum(ta.tanh(x) * x + 1.0)


def derivatives(n: int) -> Callable[[], Any]:
    x = ta.variable(np.arange(float(n)))
    gradient = ta.value_and_grad(lambda x: ta.sum(ta.tanh(x) * x))
    return lambda: gradient(x)


def replayed(n: int) -> Callable[[], Any]:
    x = ta.asarray(np.arange(float(n)))
    step = ta.compile(lambda x: ta.sum(ta.tanh(x) * x + 1.0))
    step(x)
    return lambda: step(x)


def updated(n: int) -> Callable[[], Any]:
    t = ta.asarray(np.arange(float(n))).into_value()
    kernel = ta.fused(lambda E, p, q: p - 0.1 * q)
    other = ta.asarray(np.ones(n))

    def run() -> None:
        with t.as_view_mut() as view:
            ta.update(view, kernel, other)

    return run


STEPS = {  # what an iterator does for each element, and nothing else may
    contiguous: set(),
    contiguous_mut: {"PreparedContiguousWrite.iter_contiguous_mut.<locals>.<genexpr>"},
    strided: {"PreparedStridedIter.__next__"},
    strided_mut: {
        "PreparedStridedIter.__next__",
        "PreparedStridedWrite.iter_strided_mut.<locals>.<genexpr>",
    },
    operations: set(),
    derivatives: set(),
    replayed: set(),
    updated: set(),
}


@pytest.mark.clause("g4-hot-path-structure")
@pytest.mark.parametrize("make", STEPS, ids=lambda make: make.__name__)
def test_what_is_called_does_not_depend_on_the_number_of_elements(
    make: Callable[[int], Callable[[], Any]],
) -> None:
    for size in (7, 5_000):  # caches of kernels are filled first
        make(size)()
    few, many = (calls_of(make(size)) for size in (7, 5_000))
    follows = {name for (_, name) in few.keys() | many.keys() if name in STEPS[make]}
    assert follows == STEPS[make]
    for counts in (few, many):
        for key in [key for key in counts if key[1] in STEPS[make]]:
            del counts[key]
    assert few == many
    assert few  # something was counted
