"""Every failure of the package: one root, and families by what the caller can do next.

An error is raised only when nothing happened; once work may have started, the answer
is an outcome value instead. Each class also subclasses the builtin that a caller would
already catch, stores its facts as typed fields, and builds its text from them: one
sentence with what was asked and found, one with the next step, names in backquotes. No
field and no text shows a memory address.

Classes with `recovered` carry the very object that the failed call used up, still
usable. They hold no other tensor. A pickled or copied error keeps its text and plain
fields and drops what it carried, since an owner exists once. A caught error keeps its
traceback, and with it the frames' variables: drop it before testing for uniqueness.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar


def _as_sentence(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        return ""
    ended = stripped if stripped.endswith((".", "!", "?")) else stripped + "."
    return ended[0].upper() + ended[1:]


def _rebuild(
    kind: type[TenferroError], text: str, fields: dict[str, Any]
) -> TenferroError:
    error = kind.__new__(kind, text)
    error.args = (text,)
    error.__dict__.update(fields)
    return error


class TenferroError(Exception):
    """Root of every error of this package.

    Args:
        operation: Public name of the call that failed.
        found: What was found, as a phrase ("shape (3, 4)").
        fix: What to do next, as an imperative.
        argument: Name of the argument at fault.
        span: Identity of the bytes concerned (an `AllocationSpan`), never an address.
    """

    operation: str
    found: str
    fix: str
    argument: str | None
    span: object | None

    _prefix: ClassVar[str] = "found "
    _carried: ClassVar[tuple[str, ...]] = ("recovered", "cause")

    def __init__(
        self,
        *,
        operation: str,
        found: str,
        fix: str,
        argument: str | None = None,
        span: object | None = None,
    ) -> None:
        self.operation = operation
        self.found = found
        self.fix = fix
        self.argument = argument
        self.span = span
        on = f" refused `{argument}`" if argument is not None else " was refused"
        where = f" ({span})" if span is not None else ""
        asked = f"`{operation}`{on}: {self._prefix}{found.rstrip('.')}{where}."
        super().__init__(f"{asked} {_as_sentence(fix)}".rstrip())

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else type(self).__name__

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {k: v for k, v in self.__dict__.items() if k not in self._carried}
        for name in self._carried:
            if name in self.__dict__:
                fields[name] = None
        return (_rebuild, (type(self), str(self), fields))


# ---- ownership: your code used authority it no longer has


class OwnershipError(TenferroError, RuntimeError):
    """Authority over bytes was missing, spent or in use elsewhere."""

    _prefix = ""


class UseAfterMoveError(OwnershipError):
    """The receiver was moved by an earlier call.

    Args:
        kind: Class name of the receiver.
        consumed_by: Operation that moved it.
    """

    kind: str
    consumed_by: str

    def __init__(
        self,
        *,
        operation: str,
        kind: str,
        consumed_by: str,
        span: object | None = None,
    ) -> None:
        self.kind = kind
        self.consumed_by = consumed_by
        super().__init__(
            operation=operation,
            found=f"this `{kind}` was already moved by `{consumed_by}`",
            fix=f"use what `{consumed_by}` returned, or `duplicate()` before moving",
            span=span,
        )


class BorrowConflictError(OwnershipError):
    """Another borrow is outstanding, so nothing was changed.

    Args:
        requested: Kind of borrow asked for: "shared", "exclusive" or "owning".
        outstanding: Kind of the borrow in the way: "shared" or "exclusive".
        count: How many such borrows are open.
    """

    requested: str
    outstanding: str
    count: int

    def __init__(
        self,
        *,
        operation: str,
        requested: str,
        outstanding: str,
        count: int = 1,
        span: object | None = None,
    ) -> None:
        self.requested = requested
        self.outstanding = outstanding
        self.count = count
        plural = "borrow is" if count == 1 else "borrows are"
        super().__init__(
            operation=operation,
            found=(
                f"it needs the {requested} capability, but {count} {outstanding} "
                f"{plural} outstanding"
            ),
            fix=(
                "end that borrow first: leave its `with` block, call `close()`, or "
                "drop the array that it handed out"
            ),
            span=span,
        )


class ExpiredCapabilityError(OwnershipError):
    """A view or guard was used after its borrow ended.

    Args:
        kind: Class name of the expired object.
        ended_by: What ended its borrow.
    """

    kind: str
    ended_by: str

    def __init__(
        self,
        *,
        operation: str,
        kind: str,
        ended_by: str = "close",
        span: object | None = None,
    ) -> None:
        self.kind = kind
        self.ended_by = ended_by
        super().__init__(
            operation=operation,
            found=f"this `{kind}` expired with `{ended_by}`",
            fix="take a new view from the owner",
            span=span,
        )


class NotCloneableError(OwnershipError, TypeError):
    """An owner or capability cannot be copied, deep-copied or pickled.

    Args:
        kind: Class name of the object.
    """

    kind: str

    def __init__(self, *, operation: str, kind: str) -> None:
        self.kind = kind
        super().__init__(
            operation=operation,
            found=f"a `{kind}` is unique and is moved, never copied",
            fix="copy the bytes with `duplicate()` or hand the object over",
        )


class NotConstructibleError(OwnershipError, TypeError):
    """A class of this package is made only by its own methods.

    Args:
        kind: Class name.
    """

    kind: str

    def __init__(self, *, operation: str, kind: str, fix: str, found: str = "") -> None:
        self.kind = kind
        super().__init__(
            operation=operation,
            found=found or f"`{kind}` has no public constructor",
            fix=fix,
        )


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


class ImmutableTensorError(TenferroError, TypeError):
    """An eager tensor was assigned to."""

    def __init__(
        self,
        *,
        operation: str = "__setitem__",
        found: str = "eager tensors are immutable",
        fix: str = "write `y = x.at[i].set(v)` instead of `x[i] = v`",
        argument: str | None = None,
        span: object | None = None,
    ) -> None:
        super().__init__(
            operation=operation, found=found, fix=fix, argument=argument, span=span
        )


# ---- layout: this descriptor can never be valid


class LayoutError(TenferroError, ValueError):
    """A descriptor breaks an invariant of its layout, span, dtype or provider.

    Args:
        field: The fact at fault ("shape", "strides", "offset", "byte_range", "dtype",
            "alignment", "provider", "injectivity").
        requested: The requested value.
        limit: The bound that it breaks.
    """

    field: str
    requested: object
    limit: object

    def __init__(
        self,
        *,
        operation: str,
        field: str,
        requested: object,
        limit: object,
        fix: str = "",
        span: object | None = None,
    ) -> None:
        self.field = field
        self.requested = requested
        self.limit = limit
        super().__init__(
            operation=operation,
            argument=field,
            found=f"{requested}, limit {limit}",
            fix=fix or f"give a `{field}` within {limit}",
            span=span,
        )


# ---- access and binding: the provider could not do it now


class AccessError(TenferroError, RuntimeError):
    """Preparing an access failed; `recovered` is the unchanged pairing or view."""

    _prefix = ""
    recovered: Any

    def __init__(
        self,
        *,
        operation: str,
        found: str,
        fix: str = "use the recovered object again or give it up",
        recovered: Any = None,
        argument: str | None = None,
        span: object | None = None,
    ) -> None:
        self.recovered = recovered
        super().__init__(
            operation=operation, found=found, fix=fix, argument=argument, span=span
        )


class BindError(AccessError):
    """Binding failed; `recovered` is the exact prepared payload."""


# ---- groups


class GroupError(TenferroError):
    """A group or bundle refused and is unchanged.

    Args:
        reason: Short machine-readable cause.
        slots: Positions of the slots concerned.
        recovered: What a consuming call hands back, else None.
    """

    _prefix = ""
    _default_reason: ClassVar[str] = "refused"
    _default_fix: ClassVar[str] = "ask for a slot that this group offers"

    reason: str
    slots: tuple[int, ...]
    recovered: Any

    def __init__(
        self,
        *,
        operation: str,
        found: str,
        slots: Sequence[int] = (),
        reason: str | None = None,
        fix: str | None = None,
        recovered: Any = None,
        argument: str | None = None,
        span: object | None = None,
    ) -> None:
        self.reason = self._default_reason if reason is None else reason
        self.slots = tuple(slots)
        self.recovered = recovered
        super().__init__(
            operation=operation,
            found=found,
            fix=self._default_fix if fix is None else fix,
            argument=argument,
            span=span,
        )


class InvalidSlotError(GroupError, LookupError):
    """The slot is vacant, out of range, or belongs to another group."""

    _default_reason = "invalid-slot"
    _default_fix = "use a slot that this group returned and still occupies"


class GroupConstructionError(GroupError, ValueError):
    """A group could not be built; `recovered` is the tuple of all given owners."""

    _default_reason = "invariant"
    _default_fix = "correct the owners or descriptors and build again"


class DisjointViewError(GroupError, ValueError):
    """The requested mutable views cannot be handed out together."""

    _default_reason = "not-disjoint"
    _default_fix = "request slots whose bytes are separate"


class NonInjectiveError(DisjointViewError):
    """A requested layout writes one byte through two elements."""

    _default_reason = "non-injective"
    _default_fix = "write through a layout whose elements are all distinct"


class OverlapError(DisjointViewError):
    """Two requested layouts, or two owners, share bytes."""

    _default_reason = "overlap"


class NotProvablyDisjointError(DisjointViewError):
    """Byte envelopes overlap, and elements are never enumerated to do better."""

    _default_reason = "not-provably-disjoint"
    _default_fix = "request layouts whose byte envelopes are separate"


class ExtractError(GroupError):
    """The value cannot be moved out; a consuming call puts the group in `recovered`."""

    _default_reason = "aliased-allocation"
    _default_fix = "remove the other descriptors of that allocation first"


class InvalidExtractSlotError(ExtractError, InvalidSlotError):
    """Extraction named a vacant, unknown or foreign slot."""

    _default_reason = "invalid-slot"
    _default_fix = "use a slot that this group returned and still occupies"


# ---- moving a value out of a handle


class IntoValueError(TenferroError, RuntimeError):
    """A handle could not give up its value; `recovered` is the same usable handle."""

    _prefix = ""
    recovered: Any
    cause: Any

    def __init__(
        self,
        *,
        operation: str,
        found: str,
        fix: str = "drop the other holders, or use `duplicate_value()`",
        recovered: Any = None,
        cause: Any = None,
        span: object | None = None,
    ) -> None:
        self.recovered = recovered
        self.cause = cause
        super().__init__(operation=operation, found=found, fix=fix, span=span)


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


class _Rejection(TenferroError, RuntimeError):
    """Shared shape of the rejections: a cause, and the exact inputs."""

    _prefix = ""
    recovered: Any
    cause: Any

    def __init__(
        self,
        *,
        operation: str,
        found: str,
        fix: str = "correct the cause and submit the recovered inputs again",
        recovered: Any = None,
        cause: Any = None,
        argument: str | None = None,
    ) -> None:
        self.recovered = recovered
        self.cause = cause
        super().__init__(operation=operation, found=found, fix=fix, argument=argument)

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
    """This output cannot be moved out that way; carries the bundle."""


class ScopedOutputExtractError(_Rejection):
    """This output of a scoped run cannot be moved out; carries the bundle."""


# ---- providers


class AllocationLimitError(TenferroError, MemoryError):
    """A provider refused an allocation before anything happened.

    Args:
        engine: Engine or device name.
        nbytes: Requested bytes.
        limit: Largest number of bytes it would give, if known.
    """

    _prefix = ""
    engine: str
    nbytes: int
    limit: int | None

    def __init__(
        self,
        *,
        operation: str,
        engine: str,
        nbytes: int,
        limit: int | None = None,
        fix: str = "free values, or choose a larger limit or a smaller problem",
    ) -> None:
        self.engine = engine
        self.nbytes = nbytes
        self.limit = limit
        bound = "" if limit is None else f" with a limit of {limit}"
        super().__init__(
            operation=operation,
            found=f"`{engine}` cannot give {nbytes} bytes{bound}",
            fix=fix,
        )


class EngineLostError(TenferroError, RuntimeError):
    """An engine is gone and accepts nothing more.

    Args:
        engine: Engine or device name.
    """

    _prefix = ""
    engine: str

    def __init__(
        self,
        *,
        operation: str,
        engine: str,
        found: str = "",
        fix: str = "open a new engine and move the surviving values to it",
    ) -> None:
        self.engine = engine
        super().__init__(
            operation=operation, found=found or f"engine `{engine}` is lost", fix=fix
        )


class UnsupportedError(TenferroError, NotImplementedError):
    """This backend does not offer the operation.

    Args:
        op: Operation name.
        backend: Backend name.
    """

    _prefix = ""
    op: str
    backend: str

    def __init__(
        self,
        *,
        op: str,
        backend: str,
        found: str = "",
        fix: str = "use a backend that offers it",
        operation: str | None = None,
    ) -> None:
        self.op = op
        self.backend = backend
        super().__init__(
            operation=operation or op,
            found=found or f"backend `{backend}` does not offer `{op}`",
            fix=fix,
        )


class ForkedProcessError(TenferroError, RuntimeError):
    """The package was used in a forked child process."""

    _prefix = ""

    def __init__(
        self,
        *,
        operation: str,
        found: str = "this process was forked from one that used the package",
        fix: str = "start workers with the `spawn` method",
    ) -> None:
        super().__init__(operation=operation, found=found, fix=fix)


# ---- promises about memory and recompute


class PromiseError(TenferroError):
    """A promise about memory or recompute does not hold.

    Args:
        expected: What was promised.
        seen: What was seen.
        first: First operation that differs.
        minimum: Smallest value that would hold.
    """

    _prefix = ""
    expected: object
    seen: object
    first: str | None
    minimum: int | None

    def __init__(
        self,
        *,
        operation: str,
        found: str,
        fix: str,
        expected: object = None,
        seen: object = None,
        first: str | None = None,
        minimum: int | None = None,
    ) -> None:
        self.expected = expected
        self.seen = seen
        self.first = first
        self.minimum = minimum
        super().__init__(operation=operation, found=found, fix=fix)


class ForbiddenEventError(PromiseError, RuntimeError):
    """A ledger event happened that an enclosing `forbid` excludes."""


class LedgerMismatchError(PromiseError, AssertionError):
    """A ledger's events differ from the expected ones."""


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
    """An invariant of this package does not hold: please report it.

    Args:
        invariant: The invariant that failed.
    """

    _prefix = ""
    invariant: str

    def __init__(self, *, operation: str, invariant: str) -> None:
        self.invariant = invariant
        super().__init__(
            operation=operation,
            found=f"the invariant `{invariant}` does not hold",
            fix="report this as a bug of tenferro_ad",
        )
