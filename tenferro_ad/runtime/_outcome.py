"""How admitted work may end: three outcomes, as values (contract G3, G5).

An error is raised only when nothing happened. Once work may have run, the answer is one
of these, and it is published after retirement and not before. `CompletionUnproven`
holds no owner, because nobody can say that the memory is free to use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar, final

from ..errors import CompletionError, ExecutionError
from ..storage import AllocationSpan

B = TypeVar("B")
I = TypeVar("I")  # noqa: E741


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
