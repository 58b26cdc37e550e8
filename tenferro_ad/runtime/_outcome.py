"""How admitted work may end: three outcomes, as values (contract G3, G5).

An error is raised only when nothing happened. Once work may have run, the answer is one
of these, and it is published after retirement and not before. `CompletionUnproven`
holds no owner, because nobody can say that the memory is free to use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar, final

from ..errors import CompletionError, ExecutionError, SubmitError, TenferroError
from ..storage import AllocationSpan

B = TypeVar("B")
I = TypeVar("I")  # noqa: E741
R = TypeVar("R", bound=TenferroError)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Completed(Generic[B]):
    """The work retired well; `bundle` holds its results."""

    bundle: B


@final
@dataclass(frozen=True, slots=True, eq=False)
class RetiredFailed(Generic[I]):
    """The work retired badly; `inputs` is the exact package that was submitted."""

    cause: ExecutionError
    inputs: I


@final
@dataclass(frozen=True, slots=True, eq=False)
class CompletionUnproven:
    """Nobody knows whether the work has ended: what it may touch is kept for good.

    Attributes:
        diagnostic_keys: Identity of the allocations concerned; it opens nothing.
    """

    cause: CompletionError
    diagnostic_keys: tuple[AllocationSpan, ...]


# ---- causes in words


def said(cause: BaseException | None, otherwise: str = "") -> str:
    """What an exception is and says."""
    if cause is None:
        return otherwise
    name, text = type(cause).__name__, str(cause)
    return f"{name}: {text}" if text else name


def failure(name: str, cause: BaseException, fix: str) -> ExecutionError:
    """Why the work `name` retired badly."""
    error = ExecutionError(operation=name, found=said(cause), fix=fix)
    error.__cause__ = cause
    return error


def rejection(
    kind: type[R], operation: str, name: str, error: BaseException, recovered: Any
) -> R:
    """The rejection of a call by its cause, with the exact inputs."""
    cause = SubmitError(
        operation=name,
        found=said(error),
        fix="nothing ran: correct it and use the inputs again",
    )
    cause.__cause__ = error
    return kind(
        operation=operation, found=cause.found, cause=cause, recovered=recovered
    )
