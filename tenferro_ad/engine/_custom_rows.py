"""Functions with rules of their own as one operation of traced work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, final

import numpy as np
import optree

from .._aval import Aval, is_inexact, mismatch
from .._ledger import STATE
from ..errors import InvalidArgumentError, a_kind
from ..ops import CUSTOM_JVP, CUSTOM_VJP, body_of
from ..tape import TOOLS
from ._bodies import Traced, joined, structure_of, taking, unflatten, unused
from ._custom_arguments import Arguments
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor
from ._pytrees import NAMESPACE, flatten
from ._trace import traced

Function = Callable[..., Any]


# How many derivatives a traced application may get: rules are traced as well, and may
# apply the function again. In eager work it is the number of open recordings.
ORDERS: Final = 3
_orders: ContextVar[int | None] = ContextVar("tenferro_ad_orders", default=None)


def orders_left() -> int:
    """How many derivatives the application may get that is traced now."""
    known = _orders.get()
    if known is not None:
        return known
    state = STATE.get()
    level, n = state.level, 0
    while level is not None:
        level, n = level.outer, n + 1
    return ORDERS if state.trace is not None else min(n, ORDERS)


@contextmanager
def _in_rule(orders: int) -> Iterator[None]:
    """What a rule applies gets one derivative less."""
    token = _orders.set(orders - 1)
    try:
        yield
    finally:
        _orders.reset(token)


@final
class Residuals:
    """The structure of what `fwd` keeps: tensors, and values that are fixed.

    Attributes:
        tensors: the tensors.
        names: where each stands.
    """

    __slots__ = ("_at", "_leaves", "_treedef", "names", "tensors")

    def __init__(self, tree: Any) -> None:
        self._leaves, self._treedef = flatten(tree)
        self._at: list[int] = []
        self.names: list[str] = []
        self.tensors: list[EagerTensor] = []
        for k, path in enumerate(self._treedef.paths()):
            x = self._leaves[k]
            if isinstance(x, EagerTensor | np.ndarray):
                self._at.append(k)
                self.names.append("res" + "".join(f"[{part!r}]" for part in path))
                self.tensors.append(as_tensor(x))
                self._leaves[k] = None

    def take(self) -> list[EagerTensor]:
        """The tensors, which are not held here any more."""
        found, self.tensors = self.tensors, []
        return found

    def tree(self, tensors: list[EagerTensor]) -> Any:
        leaves = list(self._leaves)
        for k, x in zip(self._at, tensors, strict=True):
            leaves[k] = x
        return optree.tree_unflatten(self._treedef, leaves)


def pair_of(operation: str, argument: str, out: Any) -> tuple[Any, Any]:
    """What a rule gives: two things.

    Raises:
        InvalidArgumentError: something else.
    """
    if not (isinstance(out, tuple | list) and len(out) == 2):
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"a rule that gives {a_kind(out)}"
            + (f" of {len(out)}" if isinstance(out, tuple | list) else ""),
            fix="return the pair `(out, residuals)`"
            if argument == "fwd"
            else "return the pair `(out, tangent_out)`",
        )
    return out[0], out[1]


def check_same(
    operation: str, argument: str, found: Any, wanted: Any, avals: list[Aval], n: int
) -> None:
    """A rule gives what the function gives.

    Args:
        found, wanted: structures.
        avals: of the rule's outputs and then of the function's, `n` each.

    Raises:
        InvalidArgumentError, ShapeError, DTypeError, DeviceMismatchError: shows both.
    """
    if found != wanted:
        raise InvalidArgumentError(
            operation=operation,
            argument=argument,
            found=f"a result of the structure {found}, where the function gives "
            f"{wanted}",
            fix="return what the function returns",
        )
    paths = ["out" + "".join(f"[{p!r}]" for p in path) for path in wanted.paths()]
    for path, a, b in zip(paths, avals[:n], avals[n:], strict=True):
        if not a.same(b):
            raise mismatch(
                a,
                b,
                operation=operation,
                argument=argument,
                found=f"{a!r} for `{path}`, where the function gives {b!r}",
                fix="return what the function returns",
            )


def _traced(fn: Function, avals: list[Aval]) -> Traced:
    leaves: list[Any] = [None] * len(avals)
    return traced(fn, leaves, avals, structure_of(tuple(range(len(avals)))))


def vjp_row(
    name: str, f: Function, fwd: Function, bwd: Function, given: Arguments
) -> Any:
    """One application of a function with a reverse rule."""
    avals = given.forms.avals
    n = len(avals)
    primal, primal_constants, out_def = _traced(lambda *xs: f(*given.all(xs)), avals)
    outs = list(primal.out_avals)
    orders = orders_left()
    if not orders:
        body = body_of(primal, TOOLS)
        made = HANDLES[CUSTOM_VJP](
            (*given.tensors, *primal_constants), name, body, None, None, n, ()
        )
        return unflatten(out_def, made if isinstance(made, tuple) else (made,))
    kept: list[Residuals] = []

    def forward(*xs: Any) -> Any:
        out, res = pair_of(name, "fwd", fwd(*given.all(xs)))
        kept.append(Residuals(res))
        return out, kept[-1].take()

    with _in_rule(orders):
        ahead, ahead_constants, ahead_def = _traced(forward, avals)
    k = len(outs)
    found = ahead_def.children()[0]
    seen = list(ahead.out_avals[: found.num_leaves])
    check_same(name, "fwd", found, out_def, [*seen, *outs], len(seen))
    residuals = list(ahead.out_avals[k:])
    smooth = [j for j, a in enumerate(outs) if is_inexact(a.dtype)]
    gives: list[int] = []

    def backward(*values: Any) -> Any:
        cts: list[Any] = [None] * k
        for j, ct in zip(smooth, values[len(residuals) :], strict=True):
            cts[j] = ct
        tree = kept[-1].tree(list(values[: len(residuals)]))
        forms, ct = given.forms, unflatten(out_def, cts)
        pulled = forms.cotangents(bwd(*forms.fixed, tree, ct))
        gives[:] = [i for i, g in enumerate(pulled) if g is not None]
        return [pulled[i] for i in gives]

    with _in_rule(orders):
        back, back_constants, _ = _traced(
            backward, [*residuals, *[outs[j] for j in smooth]]
        )
    constants, at = joined([primal_constants, ahead_constants, back_constants])
    r, s = len(residuals), len(smooth)
    operands: list[int | Aval] = list(range(n))
    unread: list[int | Aval] = list(avals)
    bodies = [
        taking(primal, [*operands, *unused(at[0], constants, n)]),
        taking(ahead, [*operands, *unused(at[1], constants, n)]),
        taking(back, [*unread, *unused(at[2], constants, r + s), *range(r + s)]),
    ]
    made = HANDLES[CUSTOM_VJP](
        (*given.tensors, *constants),
        name,
        *[body_of(body, TOOLS) for body in bodies],
        n,
        tuple(gives),
    )
    return unflatten(out_def, made if isinstance(made, tuple) else (made,))


def jvp_row(name: str, f: Function, rule: Function, given: Arguments) -> Any:
    """One application of a function with a forward rule."""
    avals = given.forms.avals
    n = len(avals)
    primal, primal_constants, out_def = _traced(lambda *xs: f(*given.all(xs)), avals)
    outs = list(primal.out_avals)
    orders = orders_left()
    if not orders:
        body = body_of(primal, TOOLS)
        made = HANDLES[CUSTOM_JVP](
            (*given.tensors, *primal_constants), name, body, None, n
        )
        return unflatten(out_def, made if isinstance(made, tuple) else (made,))
    moving = [i for i, a in enumerate(avals) if is_inexact(a.dtype)]

    def forward(*values: Any) -> Any:
        slopes: list[Any] = [None] * n
        for i, t in zip(moving, values[n:], strict=True):
            slopes[i] = t
        primals, tangents = given.trees(values[:n]), given.tangents(slopes)
        out, pushed = pair_of(
            name, "defjvp", rule(*given.forms.fixed, tuple(primals), tuple(tangents))
        )
        return out, _tangents(name, out, pushed)

    with _in_rule(orders):
        ahead, ahead_constants, ahead_def = _traced(
            forward, [*avals, *[avals[i] for i in moving]]
        )
    found = ahead_def.children()[0]
    seen = list(ahead.out_avals[: found.num_leaves])
    check_same(name, "defjvp", found, out_def, [*seen, *outs], len(seen))
    constants, at = joined([primal_constants, ahead_constants])
    m = n + len(moving)
    order = [*range(n), *unused(at[1], constants, m), *range(n, m)]
    made = HANDLES[CUSTOM_JVP](
        (*given.tensors, *constants),
        name,
        body_of(taking(primal, [*range(n), *unused(at[0], constants, n)]), TOOLS),
        body_of(taking(ahead, order), TOOLS),
        n,
    )
    return unflatten(out_def, made if isinstance(made, tuple) else (made,))


def _tangents(name: str, out: Any, pushed: Any) -> list[EagerTensor]:
    """The tangents of the outputs that have one.

    Raises:
        InvalidArgumentError, ShapeError, DTypeError: a tangent does not fit.
    """
    outs, out_def = flatten(out)
    leaves, found_def = optree.tree_flatten(
        pushed, none_is_leaf=True, namespace=NAMESPACE
    )
    if found_def != optree.tree_structure(out, none_is_leaf=True, namespace=NAMESPACE):
        raise InvalidArgumentError(
            operation=name,
            argument="defjvp",
            found=f"tangents of the structure {found_def}",
            fix=f"give them the structure of the output, {out_def}",
        )
    found = []
    for y, t in zip(map(as_tensor, outs), leaves, strict=True):
        if not is_inexact(y.dtype):
            continue
        t = HANDLES.full(y.shape, y.dtype, 0, y.device) if t is None else t
        t = as_tensor(t, y.device)
        if not t.aval.same(y.aval):
            raise mismatch(
                t.aval,
                y.aval,
                operation=name,
                argument="defjvp",
                found=f"a tangent {t.aval!r} for an output {y.aval!r}",
                fix="give the tangent the shape and dtype of the output",
            )
        found.append(t)
    return found
