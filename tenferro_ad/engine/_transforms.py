"""Reverse-mode transforms over pytrees: `grad`, `value_and_grad`, `vjp`.

Each transform opens one recording level around one call of the function and
differentiates with respect to explicit arguments; arguments that levels outside track
stay tracked there, so transforms nest in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

import optree

from .._ledger import STATE
from ..errors import (
    GradientError,
    InvalidArgumentError,
    NotALeafError,
    TapeConsumedError,
    a_kind,
)
from ..tape import Gradients, Leaf, TapeRecord
from ._dispatch import chain_of, enter_level, leave_level, living, value_at
from ._eager import EagerTensor, constant
from ._levels import ReverseLevel
from ._pytrees import (
    NAMESPACE,
    TREES,
    args_of,
    fitting,
    flatten,
    is_data,
    need_callable,
    relinked,
    tensors_of,
    without_aux,
    zeros_for,
)
from ._tape import (
    StrongZero,
    backward_from,
    no_gradients,
    node_on,
    run_sweep,
    seed_of,
    strong_of,
)


class Recording:
    """One reverse level around one call, with explicit arguments as leaves."""

    def __init__(self, operation: str) -> None:
        self.operation = operation
        self.core = TapeRecord()
        self.outer = STATE.get().level
        self.level = ReverseLevel(self.core, self.outer, watches=False)

    def __del__(self) -> None:
        # Handles that the function let escape may outlive this call: the recording ends
        # with it all the same, also when the function raised.
        self.core.close()

    def leaves(self, tree: Any, argument: str) -> tuple[Any, list[int], list[Any]]:
        """The tree with its leaves linked to this recording; their nodes and values."""
        tensors, treedef = tensors_of(tree, self.operation, argument)
        nodes = [self.core.leaf(None, x.aval) for x in tensors]
        linked = [
            relinked(x, self.core, n) for x, n in zip(tensors, nodes, strict=True)
        ]
        for n in nodes:
            self.core.keep(n)
        return optree.tree_unflatten(treedef, linked), nodes, tensors

    def call(
        self, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        before = STATE.get()
        try:
            enter_level(self.level)
            return f(*args, **kwargs)
        finally:
            leave_level(before)

    def node(self, y: EagerTensor) -> int | None:
        living(chain_of(y), self.operation, "f")
        return node_on(self.core, y)

    def outside(self, y: EagerTensor) -> EagerTensor:
        """`y` as levels outside know it."""
        chain = living(chain_of(y), self.operation, "f")
        if chain is not None and chain[0] is self.core:
            chain = chain[2]
        return value_at(y._record, chain)

    def as_outside(self, leaf: Any) -> Any:
        """A leaf of an auxiliary result: a tensor as `outside`, others as they are."""
        return self.outside(leaf) if isinstance(leaf, EagerTensor) else leaf

    def cotangents(
        self, seeds: dict[int, EagerTensor], strong_zero: StrongZero
    ) -> dict[int, EagerTensor]:
        if not seeds:
            return {}
        strong = strong_of(self.core, self.outer, strong_zero, self.operation)
        found = run_sweep(self.core, self.outer, seeds, strong)
        return {n: h if h is not None else constant(r) for n, (r, h) in found.items()}


def _scalar_output(f_out: Any, has_aux: bool, operation: str) -> tuple[Any, Any]:
    if has_aux:
        if not (isinstance(f_out, tuple) and len(f_out) == 2):
            raise InvalidArgumentError(
                operation=operation,
                argument="has_aux",
                found="a function that did not return a pair (value, aux)",
                fix="return `(value, aux)`, or drop `has_aux=True`",
            )
        out, aux = f_out
    else:
        out, aux = f_out, None
    if not isinstance(out, EagerTensor):
        raise GradientError(
            operation=operation,
            argument="f",
            found=f"a function that returned {a_kind(out)}",
            fix="return one scalar tensor",
        )
    return out, aux


def value_and_grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    strong_zero: StrongZero = "auto",
) -> Callable[..., tuple[Any, Gradients]]:
    """A function that gives `f`'s value and a `Gradients` bundle for its variables.

        value, grads = ta.value_and_grad(lambda w: ta.sum(w * w))(w)
        gradient = grads.take_grad(w)  # a Tensor

    The arguments named by `argnums` are pytrees of variables; look gradients up by the
    same variables: `grads.grad(w)`, `grads.tree(params)`.

    Args:
        f: returns a real scalar (or `(scalar, aux)` with `has_aux`).
        strong_zero: see `grad`.

    Raises (when called):
        NotALeafError: a leaf of those arguments is not a variable.
        NotScalarError: the value is not a real scalar.

    Cost: one forward and one backward pass; no copies.
    """
    need_callable("value_and_grad", f)

    def value_and_grad_f(*args: Any, **kwargs: Any) -> tuple[Any, Gradients]:
        rec = Recording("value_and_grad")
        for n in args_of(args, argnums, "value_and_grad"):
            leaves, treedef = flatten(args[n])
            for path, x in zip(treedef.paths(), leaves, strict=True):
                token = getattr(x, "_link", None)
                if type(token) is not Leaf:
                    raise NotALeafError(
                        operation="value_and_grad",
                        argument=f"argument {n}" + "".join(f"[{p!r}]" for p in path),
                        found=f"{a_kind(x)} that is no variable",
                        fix="make it one with `ta.variable`, or use `ta.grad`, which "
                        "takes any arrays and returns a pytree"
                        if is_data(x)
                        else TREES,
                    )
                rec.core.leaf(token, x.aval)
        out, aux = _scalar_output(rec.call(f, args, kwargs), has_aux, "value_and_grad")
        value = rec.outside(out)
        if rec.node(out) is None:
            seed_of(out, None, "value_and_grad")
            grads = no_gradients()
        else:
            grads = backward_from(
                rec.core,
                out,
                None,
                retain=False,
                strong_zero=strong_zero,
                operation="value_and_grad",
            )
        del out
        rec.core.close()
        return ((value, aux) if has_aux else value), grads

    return value_and_grad_f


def grad(
    f: Callable[..., Any],
    argnums: int | Sequence[int] = 0,
    *,
    has_aux: bool = False,
    strong_zero: StrongZero = "auto",
) -> Callable[..., Any]:
    """A function that gives the gradient of `f` as a pytree like its argument.

        g = ta.grad(lambda x: ta.sum(x * x))(np.ones(3))
        assert g.tolist() == [2.0, 2.0, 2.0]

    Args:
        f: returns a real scalar (or `(scalar, aux)` with `has_aux`).
        argnums: positional argument(s) to differentiate; any arrays.
        strong_zero: whether an exact zero cotangent absorbs infinite or NaN
            derivatives. "auto" does so when the program contains a select (`where`,
            masks).

    Gradients of complex arguments follow Re(conj(a) b): the gradient of |z|^2 is 2 z.
    Unused arguments get zeros.

    Raises (when called):
        NotScalarError, IntegerInputError, NoRuleError.

    Cost: one forward and one backward pass; no copies.
    """
    need_callable("grad", f)

    def grad_f(*args: Any, **kwargs: Any) -> Any:
        numbers = args_of(args, argnums, "grad")
        rec = Recording("grad")
        call_args = list(args)
        parts = []
        tree: Any = None
        for n in numbers:
            tree, nodes, tensors = rec.leaves(args[n], f"argument {n}")
            call_args[n] = tree
            parts.append((nodes, tensors, flatten(args[n])[1]))
        out, aux = _scalar_output(rec.call(f, call_args, kwargs), has_aux, "grad")
        del call_args, tree
        seed = seed_of(out, None, "grad")
        node = rec.node(out)
        found = rec.cotangents({} if node is None else {node: seed}, strong_zero)
        trees = [
            optree.tree_unflatten(
                treedef,
                [
                    found[k] if k in found else zeros_for(x)
                    for k, x in zip(nodes, tensors, strict=True)
                ],
            )
            for nodes, tensors, treedef in parts
        ]
        del out
        rec.core.close()
        result = trees[0] if not isinstance(argnums, Sequence) else tuple(trees)
        return (result, aux) if has_aux else result

    return grad_f


@overload
def vjp(
    f: Callable[..., Any],
    *primals: Any,
    has_aux: Literal[False] = False,
    strong_zero: StrongZero = "auto",
) -> tuple[Any, Callable[..., tuple[Any, ...]]]: ...


@overload
def vjp(
    f: Callable[..., Any],
    *primals: Any,
    has_aux: Literal[True],
    strong_zero: StrongZero = "auto",
) -> tuple[Any, Callable[..., tuple[Any, ...]], Any]: ...


def vjp(
    f: Callable[..., Any],
    *primals: Any,
    has_aux: bool = False,
    strong_zero: StrongZero = "auto",
) -> Any:
    """The value of `f` and the function that pulls cotangents back.

        y, pull = ta.vjp(lambda x: 2.0 * x, np.ones(3))
        (back,) = pull(ta.ones(3))

    Args:
        f: a function of tensors and pytrees of tensors (with `has_aux` it returns a
            pair `(out, aux)`).
        strong_zero: see `grad`.

    Returns:
        `(out, pull)`; `pull(ct)` takes a pytree like `out` and gives a tuple with one
        pytree for each primal. It may be called any number of times; it keeps what the
        rules declared until it is dropped. With `has_aux` it is `(out, pull, aux)`.

    Raises:
        IntegerInputError: a primal is an integer.
        ShapeError, DTypeError, DeviceMismatchError (from `pull`): the cotangent does
            not fit.

    Cost: one forward pass; each `pull` one backward pass.
    """
    need_callable("vjp", f)
    run, kept = without_aux(f, "vjp") if has_aux else (f, [])
    rec = Recording("vjp")
    trees, parts = [], []
    tree: Any = None
    for n, primal in enumerate(primals):
        tree, nodes, tensors = rec.leaves(primal, f"primal {n}")
        trees.append(tree)
        parts.append((nodes, tensors, flatten(primal)[1]))
    out = rec.call(run, trees, {})
    del tree, trees
    if has_aux:
        aux = optree.tree_map(rec.as_outside, kept.pop(), namespace=NAMESPACE)
    outs, out_def = flatten(out)
    del out
    at = []
    y: Any = None
    for k, y in enumerate(outs):
        if not isinstance(y, EagerTensor):
            raise GradientError(
                operation="vjp",
                argument=f"output {k}",
                found=a_kind(y),
                fix="return tensors",
            )
        node = rec.node(y)
        if node is not None:
            rec.core.keep(node)
        at.append(node)
    values = [rec.outside(y) for y in outs]
    avals = [y.aval for y in outs]
    del outs, y

    def pull(ct: Any) -> tuple[Any, ...]:
        if rec.core.live is None:
            raise TapeConsumedError(
                operation="vjp",
                argument="pull",
                found="a pullback whose recording has ended",
                fix="call `ta.vjp` again",
            )
        cts = fitting(ct, avals, out_def, "vjp", "ct")
        seeds: dict[int, EagerTensor] = {}
        for c, node in zip(cts, at, strict=True):
            if node is not None:
                seeds[node] = seeds[node] + c if node in seeds else c
        found = rec.cotangents(seeds, strong_zero)
        return tuple(
            optree.tree_unflatten(
                treedef,
                [
                    found[i] if i in found else zeros_for(x)
                    for i, x in zip(nodes, tensors, strict=True)
                ],
            )
            for nodes, tensors, treedef in parts
        )

    value = optree.tree_unflatten(out_def, values)
    return (value, pull, aux) if has_aux else (value, pull)
