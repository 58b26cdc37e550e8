"""Bodies: programs as parameters of operations (loops, branches, custom rules).

A `Body` is a closed program that compares and hashes by structure, so that plans of
operations with bodies are found again however often the body was traced. Bodies are
interned; what is derived from one (its derivatives, its batched form, how it runs) is
kept with it. It holds no values but the numbers in its text.

Rules of such operations build further bodies with the help of `Tools`, and their
kernels run bodies with the help of a `RegionHost`. Both are offered from above.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

from .._aval import Aval

if TYPE_CHECKING:
    from ._evaluator import Evaluator
    from ._program import Program

T = TypeVar("T")
# Bodies are structure only; a table that grew past this is started afresh.
BODY_LIMIT: Final = 4096


class RegionHost(Protocol):
    """What the kernel of a region may ask of the run time."""

    def run(self, body: Body, inputs: Sequence[Any]) -> list[Any]:
        """The outputs of the body; each may share memory with an input."""

    def output(self, j: int) -> Any:
        """Output j of the operation, unwritten."""

    def put(self, target: Any, i: int, value: Any) -> None:
        """Write `target[i]`."""

    def at(self, x: Any, i: int, aval: Aval) -> Any:
        """`x[i]`, a view with this aval."""

    def number(self, x: Any) -> Any:
        """A scalar as a Python number; waits for it."""

    def owned(self, outs: Sequence[Any], lent: Sequence[Any]) -> list[Any]:
        """The operation's first outputs with these values: each a root of its own,
        apart from those of `lent`."""


class Tools(Protocol):
    """What rules need in order to build bodies."""

    def traced(
        self, fn: Callable[[Evaluator, list[Any]], Sequence[Any]], avals: Sequence[Aval]
    ) -> Program:
        """The program of `fn(F, values)`, optimised."""

    def pulled(
        self,
        F: Evaluator,
        program: Program,
        tracked: Sequence[int],
        cts: Sequence[Any],
        values: Sequence[Any],
        addends: Mapping[int, Any],
        *,
        strong: bool,
    ) -> list[Any]:
        """Cotangents of the tracked inputs, as recomputed from the inputs' values.

        Args:
            tracked: positions of inputs.
            cts: one for each output, or None.
            values: the inputs.
            addends: what to add to the cotangent of a tracked input.
        """

    def batched(
        self,
        F: Evaluator,
        program: Program,
        size: int,
        values: Sequence[Any],
        flags: Sequence[bool],
    ) -> list[tuple[Any, bool]]:
        """The outputs for `size` examples, and whether each has the batch axis."""

    def unruled(self, body: Body) -> Body:
        """See `Body.unruled`."""


@final
class Body:
    """See the module text. Made by `body_of`; the program must not be changed.

    Attributes:
        key: equal for bodies of one structure.
        is_select: some equation chooses between values.
        has_rules: some function in it has a reverse rule of its own.
    """

    __slots__ = (
        "_derived",
        "_hash",
        "has_rules",
        "is_select",
        "key",
        "program",
        "tools",
    )

    def __init__(self, program: Program, key: Hashable, tools: Tools) -> None:
        self.program, self.key, self.tools = program, key, tools
        self.is_select, self.has_rules = program.has_select, program.has_rules
        self._hash = hash(key)
        self._derived: dict[Hashable, Any] = {}

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Body)
            and self._hash == other._hash
            and self.key == other.key
        )

    def derived(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once for each key."""
        found: T | None = self._derived.get(key)
        if found is None:
            found = self._derived[key] = make()
        return found

    def unruled(self) -> Body:
        """The body with the operations of `fwd` in the place of functions that have a
        reverse rule."""
        if not self.has_rules:
            return self
        return self.derived("unruled", lambda: self.tools.unruled(self))

    def __repr__(self) -> str:
        n = len(self.program.equations)
        return f"<program with {n} equation{'s' if n != 1 else ''}>"
