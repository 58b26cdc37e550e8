"""A state machine over owners, views, groups, handles, tapes, gradients, checkpoints.

The model knows for each root its numbers and who can reach it. After every step: every
readable object reads the model's numbers, every spent or ended one refuses, every
refused call gave back the same object and changed nothing, and the ledger's live count
is the model's.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
)

import tenferro_ad as ta
from tenferro_ad.engine import HANDLES as F
from tenferro_ad.engine._ownership_views import from_group
from tenferro_ad.errors import (
    BorrowConflictError,
    ExpiredCapabilityError,
    ExtractError,
    ExtractFailedError,
    NotUniqueError,
    OwnershipError,
    TapeConsumedError,
    UseAfterMoveError,
)
from tenferro_ad.storage import AllocationGroup, DescriptorRequest

SIZE = 3
BYTES = 8 * SIZE
NUMBERS = st.lists(st.integers(-3, 3).map(float), min_size=SIZE, max_size=SIZE)


class Root:
    """One allocation of the model: its numbers, and how many holders reach it."""

    def __init__(self, numbers: list[float]) -> None:
        self.numbers = list(numbers)
        self.holders = 0


class Held:
    """One object under test with the roots that the model says it reaches.

    Attributes:
        root: whose numbers the object reads.
        beside: what must stay alive with it (a guard, a handle on the leaf).
        others: further roots that it keeps.
    """

    def __init__(self, thing: Any, root: Root, *others: Root, beside: Any = ()) -> None:
        self.thing = thing
        self.root = root
        self.others = list(others)
        self.beside = beside
        for each in (root, *others):
            each.holders += 1

    def let_go(self) -> None:
        """Drop the object; the model's counts follow."""
        self.thing = None
        self.beside = ()
        for each in (self.root, *self.others):
            each.holders -= 1
        self.others.clear()


def numbers_of(view: Any) -> list[float]:
    return view._elements("model").tolist()  # type: ignore[no-any-return]


class Ownership(RuleBasedStateMachine):
    owners = Bundle("owners")
    handles = Bundle("handles")
    views = Bundle("views")
    arrays = Bundle("arrays")
    writers = Bundle("writers")
    groups = Bundle("groups")
    tapes = Bundle("tapes")
    bundles = Bundle("bundles")

    def __init__(self) -> None:
        super().__init__()
        self.ledger = ta.ledger(detail=False)
        self.ledger.__enter__()
        self.roots: list[Root] = []
        self.alive: list[Held] = []
        self.ended: list[Any] = []

    def root(self, numbers: list[float]) -> Root:
        made = Root(numbers)
        self.roots.append(made)
        return made

    def hold(self, thing: Any, root: Root, *others: Root, beside: Any = ()) -> Held:
        held = Held(thing, root, *others, beside=beside)
        self.alive.append(held)
        return held

    def drop(self, held: Held) -> None:
        self.alive.remove(held)
        held.let_go()

    def borrows(self, root: Root, *kinds: type) -> int:
        return sum(h.root is root and isinstance(h.thing, kinds) for h in self.alive)

    def check_recovered(self, refused: Exception, thing: Any) -> None:
        """The very object comes back; a borrow conflict uses nothing up."""
        if not isinstance(refused, BorrowConflictError):
            assert refused.recovered is thing  # type: ignore[attr-defined]

    # ---- owners and their views

    @initialize(target=owners, numbers=NUMBERS)
    def first(self, numbers: list[float]) -> Held:
        return self.make(numbers)

    @rule(target=owners, numbers=NUMBERS)
    def allocate(self, numbers: list[float]) -> Held:
        return self.make(numbers)

    def make(self, numbers: list[float]) -> Held:
        return self.hold(ta.asarray(numbers).into_value(), self.root(numbers))

    @rule(target=owners, owner=owners)
    def duplicate(self, owner: Held) -> Any:
        try:
            copy = owner.thing.duplicate()
        except OwnershipError:
            assert self.refuses_reading(owner)
            return multiple()
        return self.hold(copy, self.root(owner.root.numbers))

    def refuses_reading(self, owner: Held) -> bool:
        return owner.thing is None or self.writing(owner.root)

    def writing(self, root: Root) -> bool:
        return self.borrows(root, ta.TensorViewMut) > 0

    def reading(self, root: Root) -> bool:
        return self.borrows(root, ta.TensorView, np.ndarray) > 0

    @rule(target=views, owner=owners)
    def view(self, owner: Held) -> Any:
        if owner.thing is None:
            return multiple()
        try:
            view = owner.thing.as_view()
        except BorrowConflictError:
            assert self.writing(owner.root)
            return multiple()
        assert not self.writing(owner.root)
        return self.hold(view, owner.root)

    @rule(target=arrays, view=views)
    def export(self, view: Held) -> Any:
        if view.thing is None:
            return multiple()
        return self.hold(view.thing.numpy()[::-1][::-1], view.root)

    @rule(target=writers, owner=owners)
    def view_mut(self, owner: Held) -> Any:
        if owner.thing is None:
            return multiple()
        busy = self.writing(owner.root) or self.reading(owner.root)
        try:
            writer = owner.thing.as_view_mut()
        except BorrowConflictError:
            assert busy
            return multiple()
        assert not busy
        return self.hold(writer, owner.root)

    @rule(writer=writers, number=st.integers(-3, 3).map(float))
    def write(self, writer: Held, number: float) -> None:
        if writer.thing is not None:
            writer.thing.fill(number)
            writer.root.numbers = [number] * SIZE

    @rule(view=consumes(views) | consumes(writers))
    def close(self, view: Held) -> None:
        if view.thing is not None:
            view.thing.close()
            self.ended.append(view.thing)
            self.drop(view)

    @rule(array=consumes(arrays))
    def forget_array(self, array: Held) -> None:
        if array.thing is not None:
            self.drop(array)

    @rule(owner=consumes(owners))
    def drop_owner(self, owner: Held) -> None:
        if owner.thing is not None:
            self.drop(owner)

    # ---- groups

    @rule(target=groups, owner=consumes(owners))
    def group(self, owner: Held) -> Any:
        tensor = owner.thing
        if tensor is None:
            return multiple()
        busy = self.writing(owner.root) or self.reading(owner.root)
        try:
            group, (slot,) = AllocationGroup.of_tensors([tensor])
        except Exception as error:
            assert busy
            (same,) = error.recovered  # type: ignore[attr-defined]
            assert same is tensor
            self.drop(owner)
            return multiple()
        assert not busy
        self.ended.append(tensor)
        self.drop(owner)
        return self.hold((group, slot), owner.root)

    @rule(group=groups)
    def describe(self, group: Held) -> None:
        if group.thing is not None:
            table, slot = group.thing
            if len(table.slots) < 3:
                table.insert(slot, DescriptorRequest((1,), np.float64))

    @rule(target=owners, group=groups)
    def extract(self, group: Held) -> Any:
        if group.thing is None:
            return multiple()
        table, slot = group.thing
        before = table.slots
        try:
            owner = table.try_extract(slot)
        except ExtractError:
            assert len(before) > 1
            assert table.slots == before
            return multiple()
        held = self.hold(owner, group.root)
        self.drop(group)
        return held

    @rule(target=handles, group=consumes(groups), whole=st.booleans())
    def into_handles(self, group: Held, whole: bool) -> Any:
        if group.thing is None:
            return multiple()
        table, slot = group.thing
        made = from_group(table, None if whole else [slot])
        self.ended.append(table)
        self.drop(group)
        return self.hold(made[0], group.root)

    # ---- handles

    @rule(target=handles, owner=consumes(owners))
    def seat(self, owner: Held) -> Any:
        tensor = owner.thing
        if tensor is None:
            return multiple()
        busy = self.writing(owner.root) or self.reading(owner.root)
        try:
            handle = ta.variable(tensor)
        except BorrowConflictError:
            assert busy
            self.drop(owner)
            return multiple()
        assert not busy
        self.ended.append(tensor)
        self.drop(owner)
        return self.hold(handle, owner.root)

    @rule(target=handles, handle=handles)
    def clone(self, handle: Held) -> Any:
        if handle.thing is None:
            return multiple()
        return self.hold(handle.thing.clone(), handle.root)

    @rule(target=views, handle=handles)
    def guard(self, handle: Held) -> Any:
        if handle.thing is None:
            return multiple()
        guard = handle.thing.value()
        return self.hold(guard.view, handle.root, beside=guard)

    @rule(target=owners, handle=handles)
    def into_value(self, handle: Held) -> Any:
        value = handle.thing
        if value is None:
            return multiple()
        before = self.ledger.live, value._record, value.shape
        try:
            owner = value.into_value()
        except (NotUniqueError, ExtractFailedError, BorrowConflictError) as refused:
            self.check_recovered(refused, value)
            assert (self.ledger.live, value._record, value.shape) == before
            return multiple()
        self.ended.append(value)
        held = self.hold(owner, handle.root)
        self.drop(handle)
        return held

    @rule(handle=handles, number=st.integers(-3, 3).map(float))
    def exclusive(self, handle: Held, number: float) -> None:
        value = handle.thing
        if value is None or value.shape != (SIZE,):
            return
        try:
            with ta.exclusive(value) as (writer,):
                writer.fill(number)
                handle.root.numbers = [number] * SIZE
        except NotUniqueError as refused:
            self.check_recovered(refused, value)
        except BorrowConflictError:
            assert self.reading(handle.root)

    @rule(handle=consumes(handles))
    def drop_handle(self, handle: Held) -> None:
        if handle.thing is not None:
            self.drop(handle)

    # ---- tapes and gradients; all that they keep is dropped with them

    @rule(target=tapes, handle=handles, region=st.booleans())
    def record(self, handle: Held, region: bool) -> Any:
        leaf = handle.thing
        if leaf is None or leaf.leaf is None or leaf.shape != (SIZE,):
            return multiple()

        def square(x: Any) -> Any:
            return x * x

        with ta.Tape() as tape:
            y = (ta.checkpoint(square) if region else square)(leaf)
            loss = F.sum(y, (0,), False)
        # Kept while the tape lives: the leaf's root, the loss, and the output of a
        # region (last of the others); the plain product is needed by no rule.
        others = [self.root([sum(n * n for n in handle.root.numbers)])]
        if region:
            others.append(self.root([n * n for n in handle.root.numbers]))
        return self.hold((tape, loss), handle.root, *others, beside=leaf.clone())

    @rule(target=bundles, tape=tapes, retain=st.booleans())
    def backward(self, tape: Held, retain: bool) -> Any:
        if tape.thing is None:
            return multiple()
        recording, loss = tape.thing
        before = len(recording), recording.retained()
        try:
            grads = recording.backward(loss, retain=retain)
        except TapeConsumedError:
            assert (len(recording), recording.retained()) == before == (0, [])
            return multiple()
        if not retain:  # the recording let go of what it retained
            for output in tape.others[1:]:
                output.holders -= 1
            del tape.others[1:]
        slopes = self.root([2.0 * n for n in tape.root.numbers])
        leaf = tape.beside.clone()
        return self.hold((grads, leaf), slopes, tape.root)

    @rule(tape=consumes(tapes))
    def drop_tape(self, tape: Held) -> None:
        if tape.thing is not None:
            self.drop(tape)

    @rule(target=views, bundle=bundles)
    def grad(self, bundle: Held) -> Any:
        if bundle.thing is None:
            return multiple()
        grads, leaf = bundle.thing
        view = grads.grad(leaf)
        return multiple() if view is None else self.hold(view, bundle.root)

    @rule(target=owners, bundle=bundles)
    def take_grad(self, bundle: Held) -> Any:
        if bundle.thing is None:
            return multiple()
        grads, leaf = bundle.thing
        before = len(grads), self.ledger.live
        try:
            owner = grads.take_grad(leaf)
        except BorrowConflictError:
            assert self.reading(bundle.root)
            assert (len(grads), self.ledger.live) == before
            return multiple()
        held = self.hold(owner, bundle.root)
        self.drop(bundle)
        return held

    @rule(bundle=consumes(bundles))
    def drop_bundle(self, bundle: Held) -> None:
        if bundle.thing is not None:
            self.drop(bundle)

    # ---- what always holds

    @invariant()
    def the_ledger_agrees_with_the_model(self) -> None:
        expected = sum(root.holders > 0 for root in self.roots)
        assert self.ledger.live == expected, (self.ledger.live, expected)

    @invariant()
    def what_can_be_read_reads_the_numbers_of_the_model(self) -> None:
        for held in self.alive:
            thing = held.thing
            match thing:
                case ta.TensorView() | ta.TensorViewMut():
                    seen = numbers_of(thing)
                case np.ndarray():
                    assert not thing.flags.writeable
                    seen = thing.tolist()
                case ta.EagerTensor():
                    seen = thing._record.array.tolist()
                case ta.Tensor():
                    if self.writing(held.root):
                        continue
                    with thing.as_view() as view:
                        seen = numbers_of(view)
                case _:
                    continue
            assert seen == held.root.numbers[: len(seen)]

    @invariant()
    def what_is_spent_or_ended_refuses(self) -> None:
        for thing in self.ended[-5:]:
            match thing:
                case ta.Tensor():
                    calls = [thing.as_view, thing.as_view_mut, thing.duplicate]
                case ta.EagerTensor():
                    calls = [thing.value, thing.into_value, thing.duplicate_value]
                case AllocationGroup():
                    calls = [lambda t=thing: t.slots]
                case _:
                    calls = [thing.numpy, thing.duplicate]
            for call in calls:
                try:
                    call()
                except (UseAfterMoveError, ExpiredCapabilityError):
                    continue
                raise AssertionError(f"{thing!r} still answers {call}")

    @precondition(lambda self: len(self.ended) > 20)
    @rule()
    def forget_the_ended(self) -> None:
        self.ended = self.ended[-5:]

    def teardown(self) -> None:
        for held in list(self.alive):
            self.drop(held)
        self.ended.clear()
        live = self.ledger.live
        self.ledger.__exit__()
        assert live == 0


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    print_blob=False,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
