"""Every failure of the package: one root, and families by what the caller can do next.

An error is raised only when nothing happened; once work may have started, the answer
is an outcome value instead. Each class also subclasses the builtin that a caller would
already catch. A class states its facts as typed fields, given by keyword, and its text
is built from them: one sentence with what was asked and found, one with the next step,
names in backquotes. No field and no text shows a memory address. A note below the text,
in a traceback, names the class's place in the documentation.

Classes with `recovered` carry the very object that the failed call used up, still
usable. They hold no other tensor. A pickled or copied error keeps its text and plain
fields and drops what it carried, since an owner exists once. A caught error keeps its
traceback, and with it the frames' variables: drop it before testing for uniqueness.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType, FrameType, FunctionType
from typing import Any, ClassVar, Final, TypeVar, dataclass_transform

_PACKAGE: Final = __name__.rpartition(".")[0]
_ADDRESS: Final = re.compile(r" at 0x[0-9a-f]+")


def _sentence(text: str) -> str:
    text = text.strip()
    ended = text if not text or text.endswith((".", "!", "?")) else text + "."
    return ended[:1].upper() + ended[1:]


def _rebuild(kind: type[TenferroError], text: str, facts: dict[str, Any]) -> Any:
    error = kind.__new__(kind, text)
    error.args = (text,)
    error.__dict__.update(facts)
    return error


def type_name(value: object) -> str:
    """The name of a value's type; types of other libraries with the library's name."""
    kind = type(value)
    home = kind.__module__.partition(".")[0]
    known = home in ("builtins", "__main__", _PACKAGE)
    return kind.__name__ if known else f"{home}.{kind.__name__}"


def a_kind(value: object) -> str:
    """A value in words, by its type: "an `int`", "a `torch.Tensor`"."""
    name = type_name(value)
    return f"{'an' if name[0] in 'aeioAEIO' else 'a'} `{name}`"


# ---- names: what users called, rather than what that was made of

_Fn = TypeVar("_Fn", bound=Callable[..., Any])

PUBLIC: Final[dict[str, str]] = {}
"""Rows of the operation table with another name than the function that users call."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A public function: its name, its parameters, and what they are called inside."""

    name: str
    parameters: frozenset[str]
    inside: dict[str, str]


_CALLS: Final[dict[CodeType, _Call]] = {}


def named(operation: str = "", **inside: str) -> Callable[[_Fn], _Fn]:
    """Let every error from inside a function name it, and its own parameters.

    An error names the call that stands in the user's code: the innermost frame of the
    package that was not called by the package. Only frames of errors are looked at, so
    calls that succeed cost nothing.

    Args:
        operation: the public spelling; the function's name if empty.
        inside: what operations call their arguments -> what the function calls them.
            Others are named where they are parameters of the function.
    """

    def register(fn: _Fn) -> _Fn:
        parameters = frozenset(inspect.signature(fn).parameters)
        _CALLS[fn.__code__] = _Call(operation or fn.__name__, parameters, inside)
        return fn

    return register


def publish(functions: Iterable[object]) -> None:
    """`named()` for those that are functions and have no names of their own yet."""
    for fn in functions:
        if isinstance(fn, FunctionType) and fn.__code__ not in _CALLS:
            named()(fn)


def _is_ours(frame: FrameType) -> bool:
    # Generated kernels have no module name; they belong to the package.
    name: str = frame.f_globals.get("__name__", _PACKAGE)
    return name == _PACKAGE or name.startswith(_PACKAGE + ".")


def _called() -> _Call | None:
    """The public function that the user's code called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        outer = frame.f_back
        while outer is not None and outer.f_globals.get("__name__") == "contextlib":
            outer = outer.f_back  # who entered a block of ours called it
        if _is_ours(frame) and (outer is None or not _is_ours(outer)):
            return _CALLS.get(frame.f_code)
        frame = outer
    return None


# ---- the root


@dataclass_transform(kw_only_default=True, eq_default=False)
class _Fields(Exception):
    """Keyword-only fields from annotations; a class attribute is a field's default."""

    _names: ClassVar[frozenset[str]] = frozenset()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = {
            name
            for name, kind in inspect.get_annotations(cls).items()
            if not str(kind).startswith("ClassVar")
        }
        inherited = (base.__dict__.get("_names", frozenset()) for base in cls.__mro__)
        cls._names = frozenset(own).union(*inherited)

    def __init__(self, **facts: Any) -> None:
        unknown = facts.keys() - self._names
        missing = {n for n in self._names - facts.keys() if not hasattr(type(self), n)}
        if unknown or missing:
            raise TypeError(
                f"`{type(self).__name__}` got unknown fields {sorted(unknown)} and "
                f"misses {sorted(missing)}. Its fields are {sorted(self._names)}."
            )
        for name in self._names:
            setattr(self, name, facts.get(name, getattr(type(self), name, None)))


class TenferroError(_Fields):
    """Root of every error of this package.

    Attributes:
        operation: Public name of the call that failed.
        found: What was found, as a phrase ("shape (3, 4)").
        fix: What to do next, as an imperative.
        argument: Name of the argument at fault, if one is.
        span: Identity of the bytes concerned (an `AllocationSpan`), never an address.
        link: Where the documentation explains the class, relative to its start page.
    """

    link: ClassVar[str] = "errors.html#tenferroerror"

    operation: str
    found: str = ""
    fix: str = ""
    argument: str | None = None
    span: object | None = None

    # Texts for classes whose fields say everything; `{name}` stands for a field.
    _found: ClassVar[str] = "an unusable value"
    _fix: ClassVar[str] = ""
    _prefix: ClassVar[str] = "found "
    _carried: ClassVar[tuple[str, ...]] = ("recovered", "cause")

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls.__module__.startswith(_PACKAGE) and not cls.__name__.startswith("_"):
            cls.link = f"errors.html#{cls.__name__.lower()}"

    def __init__(self, **facts: Any) -> None:
        super().__init__(**facts)
        self._name()
        self.found = self.found or self._found.format_map(self.__dict__)
        self.found = _ADDRESS.sub("", self.found)
        self.fix = self.fix or self._fix.format_map(self.__dict__)
        on = "was refused" if self.argument is None else f"refused `{self.argument}`"
        where = "" if self.span is None else f" ({self.span})"
        asked = f"`{self.operation}` {on}: {self._prefix}{self.found.rstrip('.')}"
        self.args = (f"{asked}{where}. {_sentence(self.fix)}".rstrip(),)
        self.add_note(f"See {self.link} in the documentation.")

    def _name(self) -> None:
        """Name the call that the user wrote, and its argument."""
        call = _called()
        if call is None:
            self.operation = PUBLIC.get(self.operation, self.operation)
            return
        own = self.operation == call.name
        self.operation = call.name
        argument = self.argument
        if argument is None or (own and argument in call.parameters):
            return
        known = own or argument in call.parameters
        self.argument = call.inside.get(argument, argument if known else None)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        facts = {k: None if k in self._carried else v for k, v in vars(self).items()}
        return (_rebuild, (type(self), str(self), facts))


# ---- ownership: your code used authority it no longer has


class OwnershipError(TenferroError, RuntimeError):
    """Authority over bytes was missing, spent or in use elsewhere."""

    _prefix = ""


class UseAfterMoveError(OwnershipError):
    """The receiver, a `kind`, was moved by the earlier call `consumed_by`."""

    kind: str
    consumed_by: str

    _found = "this `{kind}` was already moved by `{consumed_by}`"
    _fix = "use what `{consumed_by}` returned, or `duplicate()` before moving"


class BorrowConflictError(OwnershipError):
    """Another borrow is outstanding, so nothing was changed.

    Attributes:
        requested: Capability asked for: "shared", "exclusive" or "owning".
        outstanding: Kind of the borrow in the way: "shared" or "exclusive".
        count: How many holders that borrow has.
    """

    requested: str
    outstanding: str
    count: int = 1

    _found = (
        "it needs the {requested} capability, but there are outstanding {outstanding} "
        "borrows (holders: {count})"
    )
    _fix = (
        "end that borrow first: leave its `with` block, call `close()`, or drop the "
        "array that it handed out"
    )


class ExpiredCapabilityError(OwnershipError):
    """A view or guard, a `kind`, was used after its borrow ended with `ended_by`."""

    kind: str
    ended_by: str = "close"

    _found = "the borrow of this `{kind}` ended with `{ended_by}`"
    _fix = "take a new view from the owner"


class NotCloneableError(OwnershipError, TypeError):
    """An owner or capability cannot be copied, deep-copied or pickled."""

    kind: str

    _found = "a value of class `{kind}` is unique and is moved, never copied"
    _fix = "copy the bytes with `duplicate()`, or hand the object over"


class NotConstructibleError(OwnershipError, TypeError):
    """A `kind` is made only by methods of this package."""

    kind: str

    _found = "`{kind}` has no public constructor"
    _fix = "use the function or method that returns one"


# ---- arguments


class InvalidArgumentError(TenferroError, ValueError):
    """An argument has a value that the operation does not accept."""


class ShapeError(InvalidArgumentError):
    """Shapes do not fit the operation."""


class DTypeError(TenferroError, TypeError):
    """Data types do not fit the operation."""


class IndexRangeError(TenferroError, IndexError):
    """An index or axis is out of range."""


class DeviceMismatchError(TenferroError, ValueError):
    """Arguments live on different devices."""


class TracedConversionError(TenferroError, TypeError):
    """A tracked or traced value would have become a silent constant."""


class EscapedTracerError(TenferroError, RuntimeError):
    """A symbolic value was used after the trace that it belongs to had ended."""


class ImmutableTensorError(TenferroError, TypeError):
    """An eager tensor was assigned to."""

    operation: str = "__setitem__"

    _found = "an assignment to an eager tensor, which is immutable"
    _fix = "write `y = x.at[i].set(v)` instead of `x[i] = v`"


# ---- layout: this descriptor can never be valid


class LayoutError(TenferroError, ValueError):
    """A descriptor breaks an invariant of its layout, span, dtype or provider.

    Attributes:
        field: The fact at fault ("shape", "strides", "offset", "byte_range", "dtype",
            "alignment", "provider", "injectivity", "rank").
        requested: The requested value.
        limit: The bound that it breaks.
        recovered: What a consuming call hands back unchanged, else None.
    """

    field: str
    requested: object
    limit: object
    recovered: Any = None

    _found = "{field} {requested}, where the limit is {limit}"
    _fix = "give it within that limit"


# ---- access and binding: the provider could not do it now


class AccessError(TenferroError, RuntimeError):
    """Preparing an access failed; `recovered` is the unchanged pairing or view."""

    recovered: Any = None

    _prefix = ""
    _fix = "use the recovered object again, or give it up"


class BindError(AccessError):
    """Binding failed; `recovered` is the exact prepared payload."""


class NotEnqueuedError(AccessError):
    """The provider proved that nothing was enqueued; `recovered` is the launch."""


# ---- groups


class GroupError(TenferroError):
    """A group or bundle refused and is unchanged.

    Attributes:
        slots: Positions of the slots concerned.
        reason: Short machine-readable cause.
        recovered: What a consuming call hands back, else None.
    """

    slots: tuple[int, ...] = ()
    reason: str = "refused"
    recovered: Any = None

    _prefix = ""
    _fix = "ask for a slot that this group offers"


class InvalidSlotError(GroupError, LookupError):
    """The slot is vacant, out of range, or belongs to another group."""

    reason: str = "invalid-slot"

    _fix = "use a slot that this group returned and still occupies"


class GroupConstructionError(GroupError, ValueError):
    """A group could not be built; `recovered` is the tuple of all given owners."""

    reason: str = "invariant"

    _fix = "correct the owners or descriptors and build again"


class DisjointViewError(GroupError, ValueError):
    """The requested mutable views cannot be handed out together."""

    reason: str = "not-disjoint"

    _fix = "request slots whose bytes are separate"


class NonInjectiveError(DisjointViewError):
    """A requested layout writes one byte through two elements."""

    reason: str = "non-injective"

    _fix = "write through a layout whose elements are all distinct"


class OverlapError(DisjointViewError):
    """Two requested layouts, or two owners, share bytes."""

    reason: str = "overlap"


class NotProvablyDisjointError(DisjointViewError):
    """Byte envelopes overlap, and elements are never enumerated to do better."""

    reason: str = "not-provably-disjoint"

    _fix = "request layouts whose byte envelopes are separate"


class ExtractError(GroupError):
    """The value cannot be moved out; a consuming call puts the group in `recovered`."""

    reason: str = "aliased-allocation"

    _fix = "remove the other descriptors of that allocation first"


class InvalidExtractSlotError(ExtractError, InvalidSlotError):
    """Extraction named a vacant, unknown or foreign slot."""

    reason: str = "invalid-slot"

    _fix = "use a slot that this group returned and still occupies"


# ---- moving a value out of a handle


class IntoValueError(TenferroError, RuntimeError):
    """A handle could not give up its value; `recovered` is the same usable handle."""

    recovered: Any = None
    cause: Any = None

    _prefix = ""
    _fix = "drop the other holders, or use `duplicate_value()`"


class NotUniqueError(IntoValueError):
    """Somebody else still holds the value."""


class ExtractFailedError(IntoValueError):
    """The value's group refused to extract it; `cause` is that `ExtractError`."""


# ---- submission


class SubmitError(TenferroError, RuntimeError):
    """Why nothing was enqueued."""

    _prefix = ""


class ExecutionError(TenferroError, RuntimeError):
    """Admitted work failed and has retired."""

    _prefix = ""


class CompletionError(TenferroError, RuntimeError):
    """Admitted work cannot be proven complete."""

    _prefix = ""


class OutcomePendingError(TenferroError, TimeoutError):
    """The outcome was not published in time; the handle stays usable."""

    _prefix = ""
    _found = "the work has not retired yet"
    _fix = "wait again, or drop the handle: the work retires without it"


class _Rejection(TenferroError, RuntimeError):
    """Shared shape of the rejections: a cause, and the exact inputs."""

    recovered: Any = None
    cause: Any = None

    _prefix = ""
    _fix = "correct the cause and use the recovered object again"

    def into_parts(self) -> tuple[Any, Any]:
        """Return the cause and the exact inputs; the error keeps neither afterwards."""
        parts = (self.cause, self.recovered)
        self.cause = None
        self.recovered = None
        return parts


class SubmitRejected(_Rejection):
    """Nothing was enqueued; carries the exact inputs."""


class ScopedSubmitRejected(_Rejection):
    """A scoped run was refused before admission; carries the exact inputs."""


class BorrowedSubmitRejected(_Rejection):
    """A borrowed run was refused before admission; carries the exact bindings."""


class OutputAccessError(_Rejection):
    """This output cannot be read that way; carries the bundle."""


class OutputExtractError(_Rejection):
    """This output cannot be moved out that way; carries the bundle.

    Attributes:
        reason: `invalid-output`, `metadata-output`, or `extract`, whose `ExtractError`
            is the cause.
    """

    reason: str = "invalid-output"


class ScopedOutputExtractError(_Rejection):
    """This output of a scoped run cannot be moved out; carries the bundle.

    Attributes:
        reason: `borrowed-output`, or `output`, whose `OutputExtractError` is the cause.
    """

    reason: str = "output"


# ---- providers


class AllocationLimitError(TenferroError, MemoryError):
    """The provider of `engine` refused `nbytes` before anything happened."""

    engine: str = ""
    nbytes: int = 0
    limit: int | None = None

    _prefix = ""
    _found = "`{engine}` cannot give {nbytes} bytes (limit: {limit})"
    _fix = "free values, or choose a larger limit or a smaller problem"


class EngineLostError(TenferroError, RuntimeError):
    """The engine is gone and accepts nothing more."""

    engine: str

    _prefix = ""
    _found = "engine `{engine}` is lost"
    _fix = "open a new engine and move the surviving values to it"


class UnsupportedError(TenferroError, NotImplementedError):
    """The backend does not offer the operation `op`."""

    op: str
    backend: str
    operation: str = ""

    _prefix = ""
    _found = "backend `{backend}` does not offer `{op}`"
    _fix = "use a backend that offers it"

    def __init__(self, **facts: Any) -> None:
        facts.setdefault("operation", facts.get("op", ""))
        super().__init__(**facts)


class ForkedProcessError(TenferroError, RuntimeError):
    """The package was used in a forked child process."""

    _prefix = ""
    _found = "this process was forked from one that used the package"
    _fix = "start workers with the `spawn` method"


# ---- promises about memory and recompute


class PromiseError(TenferroError):
    """A promise about memory or recompute does not hold.

    Attributes:
        expected: What was promised.
        seen: What was seen.
        first: First operation that differs.
        minimum: Smallest value that would hold.
    """

    expected: object = None
    seen: object = None
    first: str | None = None
    minimum: int | None = None

    _prefix = ""

    def _name(self) -> None:
        """The operation is the one that did not keep the promise."""
        self.operation = PUBLIC.get(self.operation, self.operation)


class ForbiddenEventError(PromiseError, RuntimeError):
    """A ledger event would have happened that an enclosing `forbid` excludes."""


class LedgerMismatchError(PromiseError, AssertionError):
    """A ledger's events differ from the expected ones; the text is the whole report."""

    operation: str = "expect"

    def __init__(self, report: str, **facts: Any) -> None:
        super().__init__(**facts)
        self.args = (report,)


class CheckpointMismatchError(PromiseError, RuntimeError):
    """A recomputed value differs from the first computation."""


class BudgetTooSmallError(PromiseError, ValueError):
    """No plan fits the budget; `minimum` says the smallest that does."""


# ---- derivatives


class GradientError(TenferroError, RuntimeError):
    """No rule, wrong seed, or a foreign or used tape."""

    _prefix = ""


class TapeConsumedError(GradientError):
    """The tape was already used by a backward pass."""


class InactiveTapeError(GradientError):
    """The value is tracked by a tape that is not active here."""


class UndeclaredSaveError(GradientError):
    """A derivative rule reads a value that it does not name, and so does not keep."""


class NoRuleError(GradientError, NotImplementedError):
    """The operation has no derivative rule for this argument."""


class NotScalarError(GradientError, ValueError):
    """A gradient without a cotangent needs a scalar."""


class IntegerInputError(GradientError, TypeError):
    """Integer and boolean inputs have no derivative."""


class NotALeafError(GradientError, KeyError):
    """The key is not a leaf of that backward pass."""


# ---- our bug


class InternalError(TenferroError, RuntimeError):
    """An invariant of this package does not hold: please report it."""

    invariant: str = ""

    _prefix = ""
    _found = "the invariant `{invariant}` does not hold"
    _fix = "report this as a bug of tenferro_ad"
