"""Bad input: a typed error that says what, where and what to do; nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tenferro_ad as ta
from tenferro_ad._ledger import BASE
from tenferro_ad.backends import CPU
from tenferro_ad.engine import HANDLES
from tenferro_ad.errors import (
    AllocationLimitError,
    BorrowConflictError,
    DTypeError,
    ExpiredCapabilityError,
    ExtractError,
    GroupConstructionError,
    ImmutableTensorError,
    IndexRangeError,
    IntegerInputError,
    InvalidArgumentError,
    InvalidSlotError,
    NotALeafError,
    NotScalarError,
    NotUniqueError,
    ShapeError,
    TapeConsumedError,
    TenferroError,
    TracedConversionError,
    UseAfterMoveError,
)
from tenferro_ad.errors import InactiveTapeError as Inactive


class World:
    """Values of every kind that a call can be given wrongly."""

    def __init__(self) -> None:
        self.w = ta.variable(np.ones((3, 4)))
        self.c = ta.asarray(np.ones((2, 5)))
        with ta.Tape() as self.tape:
            self.y = ta.tanh(self.w)
            self.loss = ta.sum(self.y)
        with ta.Tape() as self.other:
            self.foreign = ta.sum(self.w * self.w)
        with ta.Tape() as used:
            done = ta.sum(self.w)
        self.used = used
        self.grads = used.backward(done)
        self.done = done
        with ta.Tape() as again:
            more = ta.sum(self.w)
        self.taken = again.backward(more)
        self.owner = self.taken.take_grad(self.w)
        self.moved = ta.tanh(self.c)
        self.out = self.moved.into_value()
        self.group, (self.slot,) = ta.AllocationGroup.of_tensors([self.out])
        self.second, (self.foreign_slot,) = ta.AllocationGroup.of_tensors(
            [ta.tanh(self.c).into_value()]
        )

    def facts(self) -> list[Any]:
        """Everything that a refused call must leave alone."""
        facts: list[Any] = [BASE.live, BASE.live_bytes]
        for handle in (self.w, self.c, self.y, self.loss, self.foreign):
            record = handle._record
            facts += [id(record), len(record.tokens), record.array.tobytes()]
        for tape in (self.tape, self.other, self.used):
            facts += [len(tape), repr(tape), tape.retained()]
        for grads in (self.grads, self.taken):
            facts += [len(grads), repr(grads)]
        facts += [repr(self.group), repr(self.second), self.owner.nbytes]
        return facts


def enter(tape: ta.Tape) -> None:
    with tape:
        pass


def inside(tape: ta.Tape, call: Callable[[], Any]) -> Any:
    with tape:
        return call()


def assign(x: Any) -> None:
    x[0] = 1.0


Case = tuple[Callable[[World], Any], type[TenferroError], str, str, str]

# call, error, operation, argument, what the text must name besides
CASES: dict[str, Case] = {
    "shapes of a product": (
        lambda s: s.w @ s.c, ShapeError, "matmul", "y", "(3, 4) and (2, 5)",
    ),
    "shapes of a sum": (
        lambda s: s.w + s.c, ShapeError, "add", "", "(3, 4) and (2, 5)",
    ),
    "reshape": (
        lambda s: ta.reshape(s.w, (5, 5)), ShapeError, "reshape", "shape", "(3, 4)",
    ),
    "concat": (
        lambda s: ta.concat([s.w, s.c]), ShapeError, "concat", "arrays", "(2, 5)",
    ),
    "dtype of an operation": (
        lambda s: ta.bitwise_and(s.c, s.c), DTypeError, "bitwise_and", "x", "float64",
    ),
    "an operand that is no number": (
        lambda s: s.w + "a", DTypeError, "add", "y", "`str`",
    ),
    "text as data": (lambda s: ta.asarray("abc"), DTypeError, "asarray", "obj", "<U3"),
    "an integer leaf": (
        lambda s: ta.variable([1, 2]), IntegerInputError, "variable", "x", "int64",
    ),
    "the gradient of integers": (
        lambda s: ta.grad(ta.sum)(np.array([1])), IntegerInputError, "grad",
        "argument 0", "int64",
    ),
    "a loss that is no scalar": (
        lambda s: s.tape.backward(s.y), NotScalarError, "backward", "loss", "(3, 4)",
    ),
    "a complex loss": (
        lambda s: ta.grad(lambda z: z)(np.array(1j)), NotScalarError, "grad", "loss",
        "complex128",
    ),
    "a value of another tape": (
        lambda s: s.tape.backward(s.foreign), Inactive, "backward", "loss", "tape",
    ),
    "a constant as loss": (
        lambda s: s.tape.backward(ta.asarray(1.0)), Inactive, "backward", "loss",
        "variable",
    ),
    "a value of an inactive tape": (
        lambda s: s.y * 2.0, Inactive, "multiply", "x", "not active",
    ),
    "a value of another tape inside one": (
        lambda s: inside(s.other, lambda: s.y * 2.0), Inactive, "multiply", "x",
        "not active",
    ),
    "a consumed tape": (
        lambda s: s.used.backward(s.done), TapeConsumedError, "backward", "tape",
        "retain=True",
    ),
    "a consumed tape, entered": (
        lambda s: enter(s.used), TapeConsumedError, "enter", "tape", "ta.Tape()",
    ),
    "the shape of a cotangent": (
        lambda s: s.tape.backward(s.y, cotangent=s.c), ShapeError, "backward",
        "cotangent", "float64[2, 5]",
    ),
    "the dtype of a cotangent": (
        lambda s: s.tape.backward(s.y, cotangent=ta.astype(s.y_like(), ta.float32)),
        DTypeError, "backward", "cotangent", "float32",
    ),
    "a slot of another group": (
        lambda s: s.group.view(s.foreign_slot), InvalidSlotError, "view", "slot",
        "another group",
    ),
    "an index out of range": (
        lambda s: ta.take(s.w, ta.asarray([7]), axis=0), IndexRangeError, "take",
        "indices", "7",
    ),
    "a subscript out of range": (
        lambda s: s.w[0, 7], IndexRangeError, "x[key]", "key", "index 7 for axis 1",
    ),
    "a subscript that is no index": (
        lambda s: s.w[1.5], DTypeError, "x[key]", "key", "`float`",
    ),
    "an axis out of range": (
        lambda s: ta.sum(s.w, axis=5), IndexRangeError, "sum", "axis", "5",
    ),
    "use after move": (
        lambda s: s.moved.value(), UseAfterMoveError, "value", "", "into_value",
    ),
    "an owner after its move": (
        lambda s: s.out.as_view(), UseAfterMoveError, "as_view", "", "of_tensors",
    ),
    "taking a gradient twice": (
        lambda s: s.taken.take_grad(s.w), ExtractError, "take_grad", "key", "taken",
    ),
    "a key that is no leaf": (
        lambda s: s.grads.grad(s.c), NotALeafError, "grad", "key", "ta.variable",
    ),
    "a key that is no tensor": (
        lambda s: s.grads.take_grad("w"), NotALeafError, "take_grad", "key", "`str`",
    ),
    "item assignment": (
        lambda s: assign(s.c), ImmutableTensorError, "", "", "x.at[i].set(v)",
    ),
    "a tracked value as an array": (
        lambda s: np.asarray(s.y), TracedConversionError, "numpy", "", "stop_gradient",
    ),
    "a tracked value as a number": (
        lambda s: float(s.loss), TracedConversionError, "float", "", "stop_gradient",
    ),
    "a value that is shared": (
        lambda s: s.y.into_value(), NotUniqueError, "into_value", "", "duplicate_value",
    ),
    "copy=False": (
        lambda s: ta.asarray(np.ones(3), copy=False), InvalidArgumentError, "asarray",
        "copy", "import_array",
    ),
    "complex numbers as real ones": (
        lambda s: ta.astype(s.c * 1j, ta.float64), DTypeError, "astype", "dtype",
        "ta.real(x)",
    ),
    "a sum of complex numbers in a real dtype": (
        lambda s: ta.sum(s.c * 1j, dtype=ta.float32), DTypeError, "sum", "dtype",
        "ta.real(x)",
    ),
    "complex numbers as a real tensor": (
        lambda s: ta.asarray(s.c * 1j, dtype=ta.float64), DTypeError, "asarray",
        "dtype", "ta.real(x)",
    ),
    "complex numbers as a real array": (
        lambda s: np.asarray(s.c * 1j, dtype=np.float64), DTypeError, "numpy", "dtype",
        "ta.real(x)",
    ),
    "a dtype that is none": (
        lambda s: ta.zeros(3, dtype="text"), DTypeError, "zeros", "dtype", "`text`",
    ),
    "a tracked value as a leaf": (
        lambda s: ta.variable(s.y), TracedConversionError, "variable", "x",
        "stop_gradient",
    ),
    "a tracked value as a leaf of another dtype": (
        lambda s: ta.variable(s.y, dtype=ta.float32), TracedConversionError,
        "variable", "x", "stop_gradient",
    ),
    "a NumPy function of a tracked value": (
        lambda s: np.tanh(s.y), TracedConversionError, "numpy.tanh", "", "ta.tanh",
    ),
    "no function to differentiate": (
        lambda s: ta.grad(s.w), DTypeError, "grad", "f", "EagerTensor",
    ),
    "something else than owners in a group": (
        lambda s: ta.AllocationGroup.of_tensors([s.owner, "a"]),
        GroupConstructionError, "of_tensors", "tensors", "`str` at position 1",
    ),
    "something else than owners of bytes in a group": (
        lambda s: ta.AllocationGroup.of_owners([s.owner], []),
        GroupConstructionError, "of_owners", "owners", "`Tensor` at position 0",
    ),
    "an outside array as a source": (
        lambda s: s.owner.copy_from(np.ones((3, 4))), DTypeError, "copy_from", "source",
        "ta.asarray",
    ),
    "samples at no distance": (
        lambda s: ta.fft.fftfreq(4, d=0.0), InvalidArgumentError, "fftfreq", "d", "0",
    ),
    "a device number that is too long": (
        lambda s: ta.zeros(3, device="opencl:" + "9" * 5000), InvalidArgumentError,
        "zeros", "device", "ta.devices()",
    ),
    "a class that is none": (
        lambda s: ta.nn.cross_entropy(s.w, ta.asarray([0, 4, 1])), IndexRangeError,
        "cross_entropy", "target", "of 4",
    ),
    "an update of a handle": (
        lambda s: ta.update(s.w, ta.fused(lambda E, x: x)), DTypeError, "update",
        "target", "ta.exclusive",
    ),
    "an update by an outside array": (
        lambda s: _updated(s.w, np.ones(3)), DTypeError, "update", "operands",
        "ta.asarray",
    ),
    "a tangent of another shape": (
        lambda s: ta.jvp(ta.sum, (np.ones(3),), (np.ones(4),)), ShapeError, "jvp",
        "tangent 0", "float64[3]",
    ),
    "a vector to differentiate": (
        lambda s: ta.grad(ta.tanh)(np.ones(3)), NotScalarError, "grad", "loss",
        "`ta.vjp`, which takes a cotangent",
    ),
    "an object to differentiate": (
        lambda s: ta.grad(lambda o: ta.sum(o.w))(s), DTypeError, "grad", "argument 0",
        "pytree",
    ),
    "an object of variables": (
        lambda s: ta.value_and_grad(lambda o: ta.sum(o.w))([s]), NotALeafError,
        "value_and_grad", "argument 0[0]", "pytree",
    ),
    "an owner in an operator": (
        lambda s: s.c * s.owner, DTypeError, "multiply", "y", "`ta.asarray(t)`",
    ),
    "a view in an operator": (
        lambda s: s.c + s.owner.as_view(), DTypeError, "add", "y", "v.duplicate()",
    ),
    "taking a gradient that is viewed": (
        lambda s: viewed(s), BorrowConflictError, "take_grad", "", "`with` block",
    ),
    "an owner of another dtype": (
        lambda s: ta.asarray(s.owner, dtype=ta.float32), InvalidArgumentError,
        "asarray", "dtype", "ta.astype(ta.asarray(t), dtype)",
    ),
    "tracked values in a list": (
        lambda s: ta.asarray([s.loss, s.loss]), TracedConversionError, "asarray", "obj",
        "ta.stack",
    ),
    "a value after its block": (
        lambda s: ended(s.w).numpy(), ExpiredCapabilityError, "numpy", "",
        "inside the `with` block",
    ),
    "the truth of several": (
        lambda s: bool(s.c), ShapeError, "bool", "self", "ta.all",
    ),
    "several in a format": (
        lambda s: f"{s.c:.3f}", ShapeError, "format", "self", "indexing",
    ),
    "NumPy in a trace": (
        lambda s: ta.trace(lambda x: np.tanh(x), s.c), TracedConversionError,
        "numpy.tanh", "", "ta.tanh",
    ),
    "a mask in a trace": (
        lambda s: ta.trace(lambda x: x[x > 0], s.c), TracedConversionError, "x[key]",
        "key", "ta.where(mask, x, 0)",
    ),
    "values that do not fit a part": (
        lambda s: s.c.at[0].set(np.ones(3)), ShapeError, "x.at[key].set", "values",
        "shape (3,), which does not broadcast to (5,)",
    ),
    "weights the other way round": (
        lambda s: ta.nn.linear(s.c, ta.ones((5, 3))), ShapeError, "linear", "w",
        "shape (5, 3) for `x` of shape (2, 5)",
    ),
    "nothing to forbid": (
        lambda s: ta.forbid(), InvalidArgumentError, "forbid", "copies", "copies=True",
    ),
    "an array of another library that refuses": (
        lambda s: ta.asarray(Refusing()), DTypeError, "asarray", "obj", ".Refusing`",
    ),
}  # fmt: skip


class Refusing:
    """What PyTorch does where a tensor requires a gradient."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("call detach() first")


def viewed(world: World) -> None:
    with world.grads.grad(world.w):
        world.grads.take_grad(world.w)


def ended(x: Any) -> Any:
    with x.value() as guard:
        pass
    return guard


def _updated(x: Any, operand: Any) -> None:
    with ta.exclusive(ta.asarray(x.numpy().copy())) as (view,):
        ta.update(view, ta.fused(lambda E, a, b: a + b), operand)


@contextmanager
def nothing_changes(world: World) -> Iterator[None]:
    before = world.facts()
    yield
    assert world.facts() == before


def like(world: World) -> Any:
    return ta.asarray(np.ones(world.y.shape))


World.y_like = like  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", CASES)
def test_bad_input_is_refused_by_name_and_changes_nothing(name: str) -> None:
    call, kind, operation, argument, words = CASES[name]
    world = World()
    with nothing_changes(world):
        with pytest.raises(kind) as caught:
            call(world)
        error = caught.value
        assert type(error) is kind
        assert operation in error.operation
        assert argument in (error.argument or "")
        assert words in str(error)
        assert error.fix
        assert str(error).endswith(".")
        assert "0x" not in str(error)
        del error, caught
    # The world still works.
    assert len(world.tape.backward(world.loss)) == 1


def test_an_empty_slot_is_refused_and_the_group_is_unchanged() -> None:
    world = World()
    world.group.remove(world.slot)
    with nothing_changes(world):
        for call in (world.group.view, world.group.view_mut, world.group.try_extract):
            with pytest.raises(InvalidSlotError, match="vacant"):
                call(world.slot)


class Broken(Exception):
    """Raised by a rule."""


def test_a_rule_that_fails_in_the_middle_leaves_the_tape_for_a_retry(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    w = ta.variable(np.array([[1.0, 2.0], [3.0, 4.0]]))
    with ta.Tape() as tape:
        y = ta.exp(w) @ w
        loss = ta.sum(ta.softmax(y) * ta.tanh(y))
    before = len(tape), tape.retained(), BASE.live, BASE.live_bytes
    left, real = 0, CPU.small

    def failing(*args: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise Broken
        return real(*args)

    def attempt(hand_outs: int) -> Any:
        """The gradients, or None if the pass needs more than so many hand-outs."""
        nonlocal left
        left = hand_outs
        with monkeypatch.context() as patch, ta.ledger():
            patch.setattr(CPU, "small", failing)
            try:
                return tape.backward(loss, retain=True)
            except Broken:
                return None

    needed = 0
    while (grads := attempt(needed)) is None:  # each hand-out of the pass fails once
        assert (len(tape), tape.retained(), BASE.live, BASE.live_bytes) == before
        needed += 1
    assert needed > 5
    again = tape.backward(loss)
    a, b = grads.take_grad(w), again.take_grad(w)
    assert np.array_equal(a.numpy(), b.numpy())


def test_the_memory_limit_refuses_before_anything_happens() -> None:
    world = World()
    with nothing_changes(world):
        CPU.limit = BASE.live_bytes + 8
        try:
            with pytest.raises(AllocationLimitError) as caught:
                world.c * 2.0
            assert isinstance(caught.value, MemoryError)
            assert caught.value.nbytes == 80
            with pytest.raises(MemoryError):
                world.tape.backward(world.loss, retain=True)
            del caught
            with ta.ledger(events=True) as led, pytest.raises(AllocationLimitError):
                ta.fft.fft(world.c)  # a result that would have been adopted
            assert led.events == ()
            assert not led.facts.groups
        finally:
            CPU.limit = None
    assert len(world.tape.backward(world.loss)) == 1


def test_what_the_operating_system_refuses_is_a_typed_error() -> None:
    """The pool's memory goes back first: it might have been enough."""
    del_me = ta.zeros(100_000)
    del del_me
    assert CPU.pool_bytes
    with ta.ledger(events=True) as led, pytest.raises(AllocationLimitError) as caught:
        ta.zeros(2**55)
    assert isinstance(caught.value, MemoryError)
    assert caught.value.nbytes == 2**58
    assert led.events == ()
    assert not CPU.pool_bytes


def test_a_class_out_of_range_is_refused_before_anything_is_allocated() -> None:
    x, target = ta.variable(np.ones((2, 3))), ta.asarray([0, 3])
    with ta.ledger() as led:
        with pytest.raises(IndexRangeError, match="from 0 to 2"):
            ta.nn.cross_entropy(x, target)
        with pytest.raises(IndexRangeError, match="from 0 to 2"), ta.Tape():
            ta.nn.cross_entropy(x, target)
    led.expect(allocations={}, copies={})


def test_errors_hold_no_tensor_but_the_recovered_one() -> None:
    for name, (call, kind, *_) in CASES.items():
        world = World()
        with pytest.raises(kind) as caught:
            call(world)
        held = [
            key
            for key, value in vars(caught.value).items()
            if isinstance(value, ta.EagerTensor | ta.Tensor)
        ]
        assert held == (["recovered"] if kind is NotUniqueError else []), name
        del caught


GOLDEN: dict[str, tuple[Callable[[World], Any], str]] = {
    name: (CASES[name][0], text)
    for name, text in {
        "shapes of a product": (
            "`matmul` refused `y`: found shapes (3, 4) and (2, 5): 4 columns "
            "against 2 rows. Make the last axis of `x` and the last but one of "
            "`y` equal."
        ),
        "reshape": (
            "`reshape` refused `shape`: found (5, 5) (25 elements) for a value of"
            " shape (3, 4) (12 elements). Keep the number of elements."
        ),
        "concat": (
            "`concat` refused `arrays`: found shapes (3, 4) and (2, 5) along axis"
            " 0. Make all axes but that one equal."
        ),
        "complex numbers as real ones": (
            "`astype` refused `dtype`: found float64 for complex128 values, whose "
            "imaginary parts would be lost. Take `ta.real(x)`, `ta.imag(x)` or "
            "`ta.abs(x)`."
        ),
        "a tracked value as a leaf": (
            "`variable` refused `x`: found a tracked value of shape (3, 4), which "
            "would lose its history. Use it as it is, or take `ta.stop_gradient(x)` "
            "first."
        ),
        "a NumPy function of a tracked value": (
            "`numpy.tanh` was refused: found a tracked value of shape (3, 4), whose "
            "derivative would be lost. Use `ta.tanh`, which records, or take "
            "`ta.stop_gradient(x)` to make it a constant."
        ),
        "no function to differentiate": (
            "`grad` refused `f`: found an object of type `EagerTensor`. Pass a "
            "function; it is called here."
        ),
        "item assignment": (
            "`item assignment` refused `key`: found an eager tensor, whose value never "
            "changes. Use `x = x.at[i].set(v)`."
        ),
        "an operand that is no number": (
            "`add` refused `y`: found an object of type `str`. Pass a tensor "
            "(`ta.asarray`), a NumPy array or a Python number."
        ),
        "text as data": (
            "`asarray` refused `obj`: found data of dtype <U3. Pass numbers of at most "
            "double precision, or booleans."
        ),
        "an integer leaf": (
            "`variable` refused `x`: dtype int64. Convert it: `ta.variable(x, "
            "dtype=ta.float64)`."
        ),
        "a loss that is no scalar": (
            "`backward` refused `loss`: a value of shape (3, 4) and dtype "
            "float64. Reduce it to a real scalar (`ta.sum`, `ta.real`), or pass "
            "`cotangent=` of the same shape."
        ),
        "a value of another tape": (
            "`backward` refused `loss`: a value that this tape did not record. "
            "Compute it from variables inside this tape's `with` block."
        ),
        "a constant as loss": (
            "`backward` refused `loss`: a value that this tape did not record "
            "(computed outside it, or from no variable). Compute it from variables "
            "inside this tape's `with` block."
        ),
        "a value of an inactive tape": (
            "`multiply` refused `x`: a value tracked by a tape that is not active "
            "here. Use it inside that tape's `with` block, finish with "
            "`tape.backward`, or take `ta.stop_gradient` of it."
        ),
        "a consumed tape": (
            "`backward` refused `tape`: a tape that was used by an earlier "
            "backward pass. Pass `retain=True` to the first pass, or record again"
            " on a new `ta.Tape()`."
        ),
        "the shape of a cotangent": (
            "`backward` refused `cotangent`: found float64[2, 5] for a value "
            "float64[3, 4]. Give the cotangent the shape and dtype of the value."
        ),
        "a slot of another group": (
            "`view` refused `slot`: slot 0 belongs to another group. Use a slot "
            "that this group returned and still occupies."
        ),
        "an index out of range": (
            "`take` refused `indices`: found index 7 for axis 0, which has size "
            "3. Use indices from -3 to 2."
        ),
        "an axis out of range": (
            "`sum` refused `axis`: found axis 5 of a value with 2 axes. Pass an "
            "axis from -2 to 1."
        ),
        "use after move": (
            "`value` was refused: this `EagerTensor` was already moved by "
            "`into_value`. Use what `into_value` returned, or "
            "`duplicate_value()` before moving."
        ),
        "taking a gradient twice": (
            "`take_grad` refused `key`: a gradient that was taken before. Use the"
            " tensor that `take_grad` returned."
        ),
        "a tracked value as a number": (
            "`float` refused `self`: found a tracked value of shape (). Use `with"
            " y.value() as v: v.numpy()` to read it, or `ta.stop_gradient(y)` to "
            "make it a constant."
        ),
        "a value that is shared": (
            "`into_value` was refused: someone else still holds this value. Drop "
            "the other holders, or use `duplicate_value()`."
        ),
        "copy=False": (
            "`asarray` refused `copy`: found `copy=False` for memory that "
            "somebody else may write. Pass `copy=None`, or use "
            "`ta.unsafe.import_array` and keep its duties."
        ),
    }.items()
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_texts_of_the_commonest_mistakes(name: str) -> None:
    call, text = GOLDEN[name]
    with pytest.raises(TenferroError) as caught:
        call(World())
    assert str(caught.value) == text


def test_an_operation_on_a_moved_handle_names_the_operation() -> None:
    world = World()
    for call, name in (
        (lambda: world.moved + 1.0, "add"),
        (lambda: ta.tanh(world.moved), "tanh"),
        (lambda: HANDLES.matmul(world.c, world.moved), "matmul"),
    ):
        with pytest.raises(UseAfterMoveError) as caught:
            call()
        assert caught.value.operation == name
        assert caught.value.consumed_by == "into_value"
        del caught


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        ([[1.0, 2.0], [3.0]], None),
        ([1 + 2j], np.float64),
        ([np.nan], np.int64),
        ([1.0], "foo"),
        (np.ma.array([1.0, 2.0], mask=[0, 1]), None),
        (np.ones(2, np.longdouble), None),
    ],
)
def test_outside_data_that_makes_no_value_is_refused(data: Any, dtype: Any) -> None:
    with pytest.raises(ta.errors.DTypeError, match="asarray"):
        ta.asarray(data, dtype=dtype)


def test_whole_values_that_do_not_fit_are_refused_by_name() -> None:
    target = ta.asarray([1.0, 2.0]).into_value()
    other = ta.asarray([1.0, 2.0, 3.0]).into_value()
    numbers = ta.asarray([1j, 2j]).into_value()
    with target.as_view_mut() as mut:
        for value in ("a", 1j, [1.0, 2.0, 3.0]):
            with pytest.raises(DTypeError, match="`fill` refused `value`"):
                mut.fill(value)
        with other.as_view() as view, pytest.raises(ShapeError, match="copy_from"):
            mut.copy_from(view)
        with numbers.as_view() as view, pytest.raises(DTypeError, match="copy_from"):
            mut.copy_from(view)
    assert target.numpy().tolist() == [1.0, 2.0]


def test_a_guard_that_has_ended_is_refused_by_name() -> None:
    guard = ta.asarray([1.0]).value()
    guard.close()
    guard.close()
    with pytest.raises(ExpiredCapabilityError, match="ended with `close`"):
        guard.numpy()
