"""Linear functions: `linearize`, the derivative at a point, and `linear_transpose`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, overload

import optree

from ..errors import InvalidArgumentError, ShapeError, a_kind
from ..ops import evaluate
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._linear import LinearMap
from ._pytrees import (
    NAMESPACE,
    fitting,
    flatten,
    need_callable,
    without_aux,
    zeros_for,
)
from ._trace import Spec, aval_like, concrete
from ._transforms import vjp


@overload
def linearize(
    f: Callable[..., Any], *primals: Any, has_aux: Literal[False] = False
) -> tuple[Any, Callable[..., Any]]: ...


@overload
def linearize(
    f: Callable[..., Any], *primals: Any, has_aux: Literal[True]
) -> tuple[Any, Callable[..., Any], Any]: ...


def linearize(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """The value of `f` and its derivative at the primals as a linear function.

    Args:
        f: a function of tensors and pytrees of tensors; called once (with `has_aux` it
            returns a pair `(out, aux)`).
        primals: its positional arguments.

    Returns:
        `(out, push)`, or `(out, push, aux)`; `push(*tangents)` takes pytrees like the
        primals and gives one like `out`, as `ta.jvp` does, without running `f` again.
        It may be called any number of times, and keeps what forward rules read until it
        is dropped.

    Raises:
        IntegerInputError: a primal is an integer. NoRuleError: an operation has no
            forward rule.
        ShapeError, DTypeError (from `push`): a tangent does not fit its primal.

    Cost: one forward pass; each `push` one forward rule for each recorded equation; no
    copies.
    """
    need_callable("linearize", f)
    run, kept = without_aux(f, "linearize") if has_aux else (f, [])
    linear = LinearMap("linearize", run, primals, {}, range(len(primals)))

    def push(*tangents: Any) -> Any:
        if len(tangents) != len(primals):
            raise ShapeError(
                operation="linearize",
                argument="tangents",
                found=f"{len(tangents)} tangents for {len(primals)} primals",
                fix="give one tangent for each primal",
            )
        seeds: dict[int, Any] = {}
        for k, (tangent, (tensors, nodes, treedef)) in enumerate(
            zip(tangents, linear.leaves, strict=True)
        ):
            ts = fitting(tangent, tensors, treedef, "linearize", f"tangent {k}")
            seeds.update(zip(nodes, ts, strict=True))
        pushed = linear.push(seeds)
        return optree.tree_unflatten(
            linear.out_def,
            [
                zeros_for(y) if t is None else t
                for y, t in zip(linear.values, pushed, strict=True)
            ],
        )

    value = optree.tree_unflatten(linear.out_def, linear.values)
    return (value, push, kept.pop()) if has_aux else (value, push)


# ---- transposition -------------------------------------------------------------------


def linear_transpose(f: Callable[..., Any], *specs: Any) -> Callable[..., Any]:
    """The transpose of a linear function, without evaluating it.

    Args:
        f: linear in its positional arguments together. (Of `A x + b` this gives the
            transpose of `A`.)
        specs: for each argument a `Spec`, a tensor or an array, or a pytree of them;
            only shapes and dtypes matter.

    Returns:
        `transpose(ct)`, for a pytree like the output of `f`: a tuple with one pytree
        for each argument. `sum(ct * f(x))` equals `sum(transpose(ct)[0] * x)`; complex
        numbers are not conjugated, unlike in `ta.vjp`, which gives the adjoint.

    Raises:
        InvalidArgumentError: `f` is not linear (names an operation that is not), or
            gives something that is no tensor.
        ShapeError, DTypeError (from `transpose`): the cotangent does not fit.

    Cost: traces `f` and its pullback; each call the equations of the transpose.
    """
    need_callable("linear_transpose", f)
    made = concrete(f, *specs)
    if made.metadata:
        raise InvalidArgumentError(
            operation="linear_transpose",
            argument="f",
            found=f"a function that gives {a_kind(next(iter(made.metadata.values())))}",
            fix="return tensors alone",
        )
    avals = made.program.out_avals
    outputs = [Spec(a.shape, a.dtype, a.device) for a in avals]

    def back(primals: Any, cts: list[EagerTensor]) -> Any:
        out, pull = vjp(f, *primals)
        conjugated = optree.tree_unflatten(flatten(out)[1], [_conj(ct) for ct in cts])
        pulled: Any = pull(conjugated)
        return optree.tree_map(_conj, pulled, namespace=NAMESPACE)

    traced = concrete(back, specs, outputs)
    program = traced.program
    n = sum(aval_like(x) is not None for x in flatten(specs)[0])
    primals = set(program.inputs[:n])
    for eq in program.equations:
        if not primals.isdisjoint(eq.ins):
            raise InvalidArgumentError(
                operation="linear_transpose",
                argument="f",
                found=f"a function that is not linear (the transpose reads its "
                f"argument in `{eq.call.op.name}`)",
                fix="transpose its derivative at a point: `ta.linearize`, `ta.vjp`",
            )
    program = replace(program, inputs=program.inputs[n:])

    def transpose(ct: Any) -> Any:
        cts = fitting(ct, avals, made.out_def, "linear_transpose", "ct")
        outs = evaluate(program, HANDLES, [*cts, *traced.constants])
        return optree.tree_unflatten(traced.out_def, outs)

    return transpose


def _conj(x: EagerTensor) -> EagerTensor:
    return HANDLES.conj(x) if x.dtype.kind == "c" else x
