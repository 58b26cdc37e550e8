"""G6: a call whose `Cost:` line says that it allocates nothing is held to it.

Every public callable that says so is called here between two readings of the ledger and
of a count at the CPU provider's own hand-outs; one that is added without a case fails.
Calls of the storage classes are counted in `test_g6_costs.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad.backends import CPU, HostEndpoint
from tenferro_ad.ops import OPS
from tenferro_ad.storage import DescriptorRequest, OwnedStorage, Rank2, TypedTensor
from tenferro_ad.testing._agree import counted_calls
from tests.scripts import script

ERRORS = script("check-public-error-docs")
ACCESS = script("check-storage-element-access-docs")
SAYS = re.compile(
    r"(?:\bno|allocates|never copies,) (?:storage )?(?:allocation|nothing|allocates)\b"
    r"|metadata only|nothing is allocated|allocates and copies nothing"
)


def claims() -> Iterator[str]:
    """Public callables whose cost is stated as no allocation, those of access apart."""
    counted = {
        f"{owner}.{name}"
        for owner, names in ACCESS.CALLS.items()
        for name in names.split()
    }
    for name, text in ERRORS.texts(ERRORS.published()).items():
        cost = " ".join(text.partition("Cost:")[2].split())
        cost = cost.partition(" Raises:")[0]
        if SAYS.search(cost) and name.removeprefix("storage.") not in counted:
            yield name


CLAIMS = sorted(claims())
DATA = np.arange(6.0).reshape(2, 3)


def tensor() -> Any:
    return ta.asarray(DATA).into_value()


def group() -> Any:
    """A group with two values, and the slot of the first."""
    made, slots = ta.AllocationGroup.of_tensors([tensor(), tensor()])
    return made, slots[0]


class Released:
    """Who is told of the end of a root that no ledger knows."""

    def release(self, nbytes: int) -> None: ...


def owners() -> Any:
    """What is below tensors: roots with their one owner each."""
    arrays = np.zeros(4), np.ones(4)
    return [OwnedStorage._from_allocation(CPU, a, Released()) for a in arrays]


def graph(runtime: Any) -> Any:
    return runtime.compile(ta.trace(lambda x: x + 1.0, ta.Spec((2, 3), ta.float64)))


def bundle() -> Any:
    runtime = ta.Runtime("cpu")
    inputs = ta.ExecutionInputs.of_tensors([tensor()])
    return runtime.submit(graph(runtime), inputs).wait(60).bundle


def scoped() -> Any:
    owner = tensor()
    runtime = ta.Runtime("cpu")
    inputs = ta.ScopedReadInputs([owner.as_view()])
    return runtime.execute_scoped_read_only(graph(runtime), inputs).bundle


def gradients() -> Any:
    w = ta.variable(DATA)
    with ta.Tape() as tape:
        loss = ta.sum(w * w)
    return w, tape.backward(loss)


def two_gradients() -> Any:
    return gradients_of(w := ta.variable(DATA)), gradients_of(w)


def gradients_of(w: Any) -> Any:
    with ta.Tape() as tape:
        loss = ta.sum(w * w)
    return tape.backward(loss)


def borrowed() -> Any:
    return OPS["exp"], [tensor().as_view()], [tensor().as_view_mut()]


def bound() -> Any:
    op, reads, writes = borrowed()
    return ta.BorrowedBindings.of_views(HostEndpoint(), op, reads, writes)


def on_a_tape() -> Any:
    tape = ta.Tape()
    with tape:
        y = ta.exp(ta.variable(DATA))
    return tape, y


def mutable() -> Any:
    return tensor().as_view_mut()


def write(m: Any) -> None:
    ta.update(m, ta.fused(lambda E, y, a: y * a), 2.0)


Case = tuple[Callable[[], Any], Callable[[Any], Any]]

# What is there before the call, and the call.
CASES: dict[str, Case] = {
    "AllocationGroup.of_owners": (
        owners,
        lambda found: ta.AllocationGroup.of_owners(found, []),
    ),
    "AllocationGroup.of_tensors": (
        lambda: [tensor(), tensor()],
        ta.AllocationGroup.of_tensors,
    ),
    "AllocationGroup.insert": (
        group,
        lambda g: g[0].insert(g[1], DescriptorRequest((3,), np.dtype(np.float64))),
    ),
    "AllocationGroup.view": (group, lambda g: g[0].view(g[1])),
    "AllocationGroup.view_mut": (group, lambda g: g[0].view_mut(g[1])),
    "AllocationGroup.try_extract": (group, lambda g: g[0].try_extract(g[1])),
    "AllocationGroup.into_tensor": (group, lambda g: g[0].into_tensor(g[1])),
    "Gradients.grad": (gradients, lambda made: made[1].grad(made[0])),
    "Gradients.take_grad": (gradients, lambda made: made[1].take_grad(made[0])),
    "Gradients.tree": (gradients, lambda made: made[1].tree({"w": made[0]})),
    "Gradients.into_group": (gradients, lambda made: made[1].into_group()),
    "Gradients.accumulate": (two_gradients, lambda made: made[0].accumulate(made[1])),
    "BorrowedBindings.of_views": (
        borrowed,
        lambda made: ta.BorrowedBindings.of_views(HostEndpoint(), *made),
    ),
    "submit_borrowed": (bound, ta.submit_borrowed),
    "ExecutionBundle.output": (bundle, lambda b: b.output(0)),
    "ExecutionBundle.into_output": (bundle, lambda b: b.into_output(0)),
    "ScopedExecutionBundle.output": (scoped, lambda b: b.output(0)),
    "ScopedExecutionBundle.into_owned_output": (
        scoped,
        lambda b: b.into_owned_output(0),
    ),
    "ExecutionInputs.of_tensors": (lambda: [tensor()], ta.ExecutionInputs.of_tensors),
    "ExecutionInputs.of_values": (
        lambda: [ta.asarray(DATA)],
        ta.ExecutionInputs.of_values,
    ),
    "Runtime.compile": (lambda: ta.Runtime("cpu"), graph),
    "ledger": (ta.ledger, lambda led: led.__enter__().__exit__(None, None, None)),
    "EagerTensor.clone": (lambda: ta.asarray(DATA), lambda x: x.clone()),
    "EagerTensor.value": (lambda: ta.asarray(DATA), lambda x: x.value().close()),
    "EagerTensor.into_value": (lambda: ta.asarray(DATA), lambda x: x.into_value()),
    "EagerTensor.to": (lambda: ta.asarray(DATA), lambda x: x.to("cpu")),
    "Tape.attach": (on_a_tape, lambda made: made[0].attach()),
    "Tape.retain": (on_a_tape, lambda made: made[0].retain(made[1])),
    "exclusive": (
        lambda: ta.variable(DATA),
        lambda w: ta.exclusive(w).__enter__()[0].close(),
    ),
    "meshgrid": (
        lambda: (ta.asarray([1.0, 2.0]), ta.asarray([3.0])),
        lambda xs: ta.meshgrid(*xs),
    ),
    "stop_gradient": (lambda: ta.variable(DATA), ta.stop_gradient),
    "update": (mutable, write),
    "view_as_real": (lambda: ta.asarray(DATA + 1j), ta.view_as_real),
    "view_as_complex": (lambda: ta.asarray(DATA[:, :2]), ta.view_as_complex),
    "unsafe.import_array": (lambda: np.zeros(3), ta.unsafe.import_array),
    "unsafe.from_dlpack": (lambda: np.zeros(3), ta.unsafe.from_dlpack),
    "Tensor.into_reinterpreted": (tensor, lambda t: t.into_reinterpreted(np.int64)),
    "TensorView.reinterpret": (
        lambda: tensor().as_view(),
        lambda v: v.reinterpret(np.int64),
    ),
    "TensorViewMut.reinterpret_mut": (mutable, lambda m: m.reinterpret_mut(np.int64)),
    "TensorViewMut.copy_from": (
        lambda: (mutable(), tensor().as_view()),
        lambda pair: pair[0].copy_from(pair[1]),
    ),
    "TypedTensor.into_reinterpreted": (
        lambda: TypedTensor.of(tensor(), np.float64, Rank2),
        lambda t: t.into_reinterpreted(np.int64),
    ),
}


def test_every_claim_has_its_case() -> None:
    assert sorted(CASES) == CLAIMS


@pytest.mark.clause("g6-cost-line")
@pytest.mark.parametrize("name", CLAIMS)
def test_a_call_that_allocates_nothing_is_counted(name: str) -> None:
    make, call = CASES[name]
    held = make()
    with counted_calls() as calls, ta.ledger() as led:
        made = call(held)
    assert led.allocations == Counter()
    copies = {"ExplicitDuplicate": 1} if name.endswith(".copy_from") else {}
    assert led.copies == copies
    assert calls.total == 0
    del made, held
