"""Evaluators compute operations; rules are written against them.

The table `OPS` lives here, so that an evaluator offers every row by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

from .._aval import Aval
from ..errors import InternalError

if TYPE_CHECKING:
    from ._op import Op

OPS: Final[dict[str, Op]] = {}


def register(op: Op) -> Op:
    """Enter a row into the table; names are unique."""
    if op.name in OPS:
        raise InternalError(
            operation=op.name,
            argument="name",
            found="a second row of that name",
            fix="choose another name",
        )
    OPS[op.name] = op
    return op


class Evaluator(dict["Op", Callable[..., Any]]):
    """Computes operations: `F[op](*args, *params)`, or `F.name(...)` for table rows.

    A mapping so that rules reach a bound operation with one lookup; subclasses supply
    `bind`. `inplace` tells the sweep that it may add into cotangents that it owns.
    """

    inplace: ClassVar[bool] = False

    def bind(self, op: Op) -> Callable[..., Any]:
        """A callable that computes `op` on this evaluator's values."""
        raise NotImplementedError

    def literal(self, record: Any) -> Any:
        """A number of a program's text as an operand."""
        raise NotImplementedError

    def region(self, call: Any, operands: Any) -> list[Any]:
        """The outputs of a region's call; evaluators that record keep it one call."""
        return list(call.run(self, operands))

    def write(self, mode: str, call: Any, operands: Any) -> Any:
        """An equation in memory that is used again; only where `inplace`."""
        raise NotImplementedError

    def __missing__(self, op: Op) -> Callable[..., Any]:
        fn = self[op] = self.bind(op)
        return fn

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            fn = self[OPS[name]]
        except KeyError:
            raise AttributeError(f"no operation is called `{name}`") from None
        setattr(self, name, fn)
        return fn


def project(F: Evaluator, g: Any, target: Aval) -> Any:
    """Bring a cotangent back to the argument's aval: the adjoint of broadcasting and
    of promotion (sum over broadcast axes, real part, cast)."""
    if g is None:
        return None
    aval = g.aval
    if aval.shape != target.shape:
        lead = aval.ndim - target.ndim
        axes = tuple(range(lead)) + tuple(
            lead + k
            for k, n in enumerate(target.shape)
            if n == 1 and aval.shape[lead + k] != 1
        )
        if axes:
            g = F.sum(g, axes, False)
        if g.aval.shape != target.shape:
            g = F.reshape(g, target.shape)
    if aval.dtype != target.dtype:
        if aval.dtype.kind == "c" and target.dtype.kind != "c":
            g = F.real(g)
        if g.aval.dtype != target.dtype:
            g = F.astype(g, target.dtype)
    return g


def expand(F: Evaluator, t: Any, out: Aval) -> Any:
    """Bring a tangent to the aval of the result: broadcasting and promotion."""
    if t.aval.dtype != out.dtype:
        t = F.astype(t, out.dtype)
    if t.aval.shape != out.shape:
        t = F.broadcast_to(t, out.shape)
    return t
