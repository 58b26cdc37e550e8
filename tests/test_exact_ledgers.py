"""Exact ledgers: the multisets of whole forward and backward passes, derived by hand.

How to count. Forward: one `OperationOutput` for each operation that computes; views
(reshape, broadcasts) are none. Backward: the seed is one. A rule's result is one,
unless it is written over the cotangent that the rule uses up (elementwise rules, if the
sweep owns that cotangent) or added into a cotangent that the input already has and the
sweep owns. A rule that passes its cotangent on adds nothing, also under another shape.
What comes to rest at a leaf without being owned (a part of something, or shared) goes
through `accumulate`, one more.
A region's backward runs its equations again as far as some rule reads their results and
the boundary has not kept them: one `CheckpointRecomputeOutput` each. Its seed is the
caller's, so the first elementwise rule inside cannot write over it.

Traced: what eager work does, without dead and repeated equations. The gradients alone
need no value of the loss, so what only leads to it is dead. Compiled: one output for
each result, and at most one arena for each reason; the recompute mark survives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta

Wrap = Callable[[Any], Any]
RNG = np.random.default_rng(0)


def normal(*shape: int, kind: Any = float) -> Any:
    real = RNG.normal(size=shape)
    return real + 1j * RNG.normal(size=shape) if kind is complex else real


def no_checkpoint(f: Any) -> Any:
    return f


class Scenario:
    """A loss over variables; `wrap` is `ta.checkpoint` or nothing."""

    def __init__(self, loss: Callable[..., Any], *leaves: Any, **inputs: Any) -> None:
        self.loss = loss
        self.leaves = leaves
        self.inputs = inputs

    def run(self, wrap: Wrap) -> tuple[ta.LedgerScope, int, int]:
        """The ledger of both passes, live roots at their end, number of gradients."""
        leaves = [ta.variable(a) for a in self.leaves]
        inputs = {k: ta.asarray(v) for k, v in self.inputs.items()}
        with ta.ledger() as led:
            with ta.Tape() as tape:
                loss = self.loss(wrap, *leaves, **inputs)
            grads = tape.backward(loss)
            del loss
            return led, led.live, len(grads)


def mlp_loss(
    wrap: Wrap, w1: Any, b1: Any, w2: Any, b2: Any, w3: Any, b3: Any, x: Any
) -> Any:
    hidden = wrap(lambda x: ta.tanh(ta.tanh(x @ w1 + b1) @ w2 + b2))
    y = hidden(x) @ w3 + b3
    return ta.mean(y * y)


MLP = Scenario(
    mlp_loss,
    *(normal(4, 3), normal(3), normal(3, 3), normal(3), normal(3, 1), normal(1)),
    x=normal(5, 4),
)
# Forward, 10: three products, three additions, two tanh, y * y and the mean.
# Backward, 11:
#   1  the seed; 1 its division by the number of elements (spread out by a view)
#   1  y * y: the first share of y; the second is added into it
#   1  the sum for b3; the product with w3 gives the cotangent itself
#   2  of the last product: for the hidden layer and for w3
#   1  the sum for b2; tanh's rule is written over the cotangent
#   2  of the second product
#   1  the sum for b1; tanh's rule again in place
#   1  for w1; the input is a constant
MLP_PLAIN = {"OperationOutput": 10 + 11}
# The region's seed is not its own: its first tanh rule makes one more. Recomputed: the
# first product, addition and tanh. The rule of the second tanh reads its result, which
# the boundary keeps; nobody reads the second product and sum.
MLP_CHECKPOINTED = {"OperationOutput": 10 + 11 + 1, "CheckpointRecomputeOutput": 3}


def fifty_loss(wrap: Wrap, w: Any) -> Any:
    def power(w: Any) -> Any:
        y = w
        for _ in range(49):
            y = y * w
        return y

    return ta.sum(wrap(power)(w))


FIFTY = Scenario(fifty_loss, np.full(3, 1.01))
# The leaf is read 50 times. Forward, 50: 49 products and the sum.
# Backward, 3: the seed, spread out by a view; of the last product the shares of y and
# of w. From there on each share of w is added into the first, and each share of y is
# written over the cotangent; at w * w both are added.
FIFTY_PLAIN = {"OperationOutput": 50 + 3}
# 48 products again: nobody reads the last.
FIFTY_CHECKPOINTED = {"OperationOutput": 50 + 3, "CheckpointRecomputeOutput": 48}


def chain_loss(wrap: Wrap, u: Any, v: Any, a: Any) -> Any:
    product = wrap(lambda u, v: u @ v @ a @ u)
    return ta.sum(ta.real(product(u, v)))


CHAIN = Scenario(
    chain_loss,
    normal(3, 3, kind=complex),
    normal(3, 3, kind=complex),
    a=normal(3, 3, kind=complex),
)
# Forward, 5: three products, the real part, the sum.
# Backward, 7:
#   1  the seed, spread out by a view
#   2  the real part's rule, and its result as complex numbers
#   2  of the last product: for u v a and for u
#   1  of the second product, whose right operand is a constant
#   1  of the first product for v; the share of u is added into the one it has
CHAIN_PLAIN = {"OperationOutput": 5 + 7}
# Two products again: u v and u v a. No elementwise rule meets the region's seed.
CHAIN_CHECKPOINTED = {"OperationOutput": 5 + 7, "CheckpointRecomputeOutput": 2}


def digits_loss(
    wrap: Wrap, k1: Any, c1: Any, k2: Any, c2: Any, w: Any, b: Any, x: Any, labels: Any
) -> Any:
    def block(h: Any, k: Any, c: Any) -> Any:
        return ta.max_pool2d(ta.relu(ta.conv2d(h, k, c, padding=1)), 2)

    h = ta.relu(ta.conv2d(x, k1, c1, padding=1))
    h = wrap(block)(h, k2, c2)
    return ta.cross_entropy(ta.reshape(h, (2, 64)) @ w + b, labels)


DIGITS = Scenario(
    digits_loss,
    *(normal(3, 1, 3, 3), normal(3), normal(4, 3, 3, 3), normal(4)),
    *(normal(64, 3), normal(3)),
    x=normal(2, 1, 8, 8),
    labels=np.array([1, 2]),
)
# Forward, 11: two convolutions, each with the addition of its bias and a rectifier (6);
# the pooling; product, addition, cross-entropy of each image and the mean.
# Backward, 12:
#   1  the seed; 1 its division by the number of images
#   1  of the cross-entropy for the scores
#   1  the sum for b; 2 of the product
#   1  of the pooling; the rectifier's rule is written over it
#   1  the sum for c2; 2 of the convolution: for its input and for k2
#   1  the sum for c1, after the rectifier in place; 1 for k1 (the image is a constant)
# A bias is reshaped to be added, so what reaches it is its sum under another shape.
DIGITS_PLAIN = {"OperationOutput": 11 + 12}
# Recomputed: convolution, addition and rectifier, whose results rules read. The rule of
# the pooling also reads the maxima, which the boundary keeps.
DIGITS_CHECKPOINTED = {"OperationOutput": 11 + 12, "CheckpointRecomputeOutput": 3}


def repeated_loss(wrap: Wrap, w: Any) -> Any:
    return ta.sum(wrap(lambda w: ta.exp(ta.sin(w)) * ta.tanh(ta.sin(w)))(w))


REPEATED = Scenario(repeated_loss, np.full(3, 0.5))
# Forward, 6: two sines, exponential, tanh, product, sum.
# Backward, 3: the seed, spread out by a view; the shares of both factors. Every further
# rule is written over the cotangent; at the leaf the second share is added.
REPEATED_PLAIN = {"OperationOutput": 6 + 3}
# Again: both sines, exponential and tanh, whose results rules read.
REPEATED_CHECKPOINTED = {"OperationOutput": 6 + 3, "CheckpointRecomputeOutput": 4}

CASES = {
    "repeated": (REPEATED, REPEATED_PLAIN, REPEATED_CHECKPOINTED),
    "mlp": (MLP, MLP_PLAIN, MLP_CHECKPOINTED),
    "leaf used 50 times": (FIFTY, FIFTY_PLAIN, FIFTY_CHECKPOINTED),
    "complex matmul chain": (CHAIN, CHAIN_PLAIN, CHAIN_CHECKPOINTED),
    "digits network": (DIGITS, DIGITS_PLAIN, DIGITS_CHECKPOINTED),
}


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", CASES)
def test_the_multisets_are_those_derived_by_hand_twice_in_a_row(
    name: str, checkpointed: bool, provider_calls: Any
) -> None:
    scenario, plain, with_checkpoint = CASES[name]
    for _ in range(2):
        provider_calls.reset()
        led, live, gradients = scenario.run(
            ta.checkpoint if checkpointed else no_checkpoint
        )
        led.expect(allocations=with_checkpoint if checkpointed else plain, copies={})
        # The leaves and inputs came in outside the scope: one hand-out for each.
        outside = len(scenario.leaves) + len(scenario.inputs)
        assert sum(led.allocations.values()) == provider_calls.total - outside
        assert live == gradients == len(scenario.leaves)
        assert led.live == 0


@pytest.mark.parametrize("name", CASES)
def test_the_two_ways_agree_in_every_bit_of_their_gradients(name: str) -> None:
    scenario = CASES[name][0]
    found = []
    for wrap in (no_checkpoint, ta.checkpoint):
        leaves = [ta.variable(a) for a in scenario.leaves]
        inputs = {k: ta.asarray(v) for k, v in scenario.inputs.items()}
        with ta.Tape() as tape:
            loss = scenario.loss(wrap, *leaves, **inputs)
        grads = tape.backward(loss)
        found.append([grads.take_grad(leaf).numpy().copy() for leaf in leaves])
    for plain, checkpointed in zip(*found, strict=True):
        assert np.array_equal(plain, checkpointed)


@pytest.mark.parametrize("name", CASES)
def test_detail_and_plain_counting_see_the_same(name: str) -> None:
    scenario, plain, _ = CASES[name]
    leaves = [ta.variable(a) for a in scenario.leaves]
    inputs = {k: ta.asarray(v) for k, v in scenario.inputs.items()}
    for options in ({"detail": False}, {"events": True}):
        with ta.ledger(**options) as led:
            with ta.Tape() as tape:
                loss = scenario.loss(no_checkpoint, *leaves, **inputs)
            tape.backward(loss)
            del loss
        led.expect(allocations=plain, copies={})
        if led.events:
            kinds = [e.kind for e in led.events]
            assert kinds.count("allocation") == kinds.count("release")
            assert all(e.reason for e in led.events if e.kind == "allocation")


# ---- traced and compiled -------------------------------------------------------------

# Dead in the gradients alone, and repeated:
#   mlp: y * y and the mean
#   leaf used 50 times: the last product and the sum; all of a region's forward run
#   chain: the last product, the real part and the sum; likewise
#   digits: the cross-entropy of each image and the mean
#   repeated: the product and the sum are dead; one sine is repeated
TRACED = {
    "repeated": ({"OperationOutput": 6 - 3 + 3}, {"OperationOutput": 3}, 3),
    "mlp": ({"OperationOutput": 21 - 2}, {"OperationOutput": 22 - 2}, 3),
    "leaf used 50 times": ({"OperationOutput": 53 - 2}, {"OperationOutput": 3}, 48),
    "complex matmul chain": ({"OperationOutput": 12 - 3}, {"OperationOutput": 7}, 2),
    "digits network": ({"OperationOutput": 23 - 2}, {"OperationOutput": 23 - 2}, 3),
}


class Functional:
    """The gradients of a scenario as a function of all its arrays."""

    def __init__(self, scenario: Scenario, wrap: Wrap) -> None:
        self.scenario, self.wrap = scenario, wrap
        self.given = [ta.asarray(a) for a in scenario.leaves]
        self.count = len(self.given)
        self.given += [ta.asarray(v) for v in scenario.inputs.values()]

    def loss(self, *given: Any) -> Any:
        inputs = dict(zip(self.scenario.inputs, given[self.count :], strict=True))
        return self.scenario.loss(self.wrap, *given[: self.count], **inputs)

    def gradients(self, *given: Any) -> Any:
        return ta.grad(self.loss, tuple(range(self.count)))(*given)

    def both(self, *given: Any) -> Any:
        """The value, too: nothing is dead then."""

        def twice(*given: Any) -> Any:
            value = self.loss(*given)
            return value, value

        numbers = tuple(range(self.count))
        return ta.grad(twice, numbers, has_aux=True)(*given)


def arrays(tree: Any) -> list[np.ndarray[Any, Any]]:
    return [np.asarray(ta.stop_gradient(x)) for x in tree]


@pytest.mark.clause("g7-lane-cpu")
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", CASES)
def test_traced_multisets_are_those_derived_by_hand(
    name: str, checkpointed: bool, provider_calls: Any
) -> None:
    scenario, plain, with_checkpoint = CASES[name]
    work = Functional(scenario, ta.checkpoint if checkpointed else no_checkpoint)
    expected, of_regions, again = TRACED[name]
    if checkpointed:
        expected = {**of_regions, "CheckpointRecomputeOutput": again}
    traced = ta.trace(work.gradients, *work.given)
    wanted = arrays(work.gradients(*work.given))
    for _ in range(2):
        provider_calls.reset()
        with ta.ledger() as led:
            found = traced(*work.given)
        led.expect(allocations=expected, copies={})
        assert sum(led.allocations.values()) == provider_calls.total
        for a, b in zip(arrays(found), wanted, strict=True):
            # A region that has one sine instead of two adds before it, not after.
            apart = 1e-14 if name == "repeated" and checkpointed else 0.0
            assert np.allclose(a, b, rtol=0, atol=apart)
        del found, a
        assert led.live == 0
    both = ta.trace(work.both, *work.given)
    with ta.ledger() as led:
        both(*work.given)
    eager = dict(with_checkpoint if checkpointed else plain)
    if name == "repeated":  # one sine less, in the region one less each time
        eager["OperationOutput"] -= 1
        if checkpointed:
            eager["CheckpointRecomputeOutput"] -= 1
    led.expect(allocations=eager, copies={})


@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("name", CASES)
def test_compiled_steps_allocate_their_outputs_and_an_arena_for_each_reason(
    name: str, checkpointed: bool, provider_calls: Any
) -> None:
    scenario = CASES[name][0]
    work = Functional(scenario, ta.checkpoint if checkpointed else no_checkpoint)
    step = ta.compile(work.gradients)
    wanted = arrays(work.gradients(*work.given))
    plan = step.plan(*work.given)
    expected = {"OperationOutput": work.count + 1}
    if checkpointed:
        expected["CheckpointRecomputeOutput"] = 1
    for _ in range(2):
        provider_calls.reset()
        with ta.ledger() as led:
            found = step(*work.given)
        led.expect(allocations=expected, copies={})
        assert dict(led.allocations) == plan.allocations
        assert sum(led.allocations.values()) == provider_calls.total
        assert led.peak_bytes == plan.peak
        held = sum(g.nbytes for g in found)
        assert led.live_bytes == held
        assert plan.peak == held + sum(plan.arenas.values())
        for a, b in zip(arrays(found), wanted, strict=True):
            assert np.allclose(a, b, rtol=0, atol=1e-12 * max(1.0, np.abs(b).max()))
        del found, a
        assert led.live == 0


OPTIMIZERS = {
    "descent": lambda: ta.optim.SGD(0.1),
    "momentum": lambda: ta.optim.SGD(0.1, momentum=0.9),
    "adam": lambda: ta.optim.Adam(0.01),
}


@pytest.mark.parametrize("donated", [False, True], ids=["plain", "donated"])
@pytest.mark.parametrize("checkpointed", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_training_step_of_the_digits_network_in_the_steady_state(
    optimizer: str, checkpointed: bool, donated: bool, provider_calls: Any
) -> None:
    """Fresh outputs and one arena for each reason; no parameter or moment is fresh with
    donation. Nothing is copied."""
    opt = OPTIMIZERS[optimizer]()
    work = Functional(DIGITS, ta.checkpoint if checkpointed else no_checkpoint)

    def train(params: Any, state: Any, x: Any, labels: Any) -> Any:
        grads, value = work.both(*params, x, labels)
        params, state = opt.apply(params, list(grads), state)
        return params, state, value

    step = ta.compile(train, donate_argnums=(0, 1) if donated else ())
    params, data = work.given[: work.count], work.given[work.count :]
    plain = list(params)
    params = [p.duplicate_value() for p in params]
    params = [ta.asarray(p) for p in params]
    state, kept = opt.init(params), opt.init(plain)
    slots = {"descent": 0, "momentum": 1, "adam": 2}[optimizer]
    fresh = 1  # the loss
    if not donated:
        fresh += work.count * (1 + slots) + 1  # and the number of steps
    expected = {"OperationOutput": fresh + 1}
    if checkpointed:
        expected["CheckpointRecomputeOutput"] = 1
    for number in range(4):
        provider_calls.reset()
        with ta.ledger() as led:
            params, state, value = step(params, state, *data)
        if number:
            led.expect(allocations=expected, copies={})
            assert provider_calls.total == sum(expected.values())
        plain, kept, wanted = train(plain, kept, *data)
        assert abs(value.item() - wanted.item()) < 1e-12
    for a, b in zip(arrays(params), arrays(plain), strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-11)
