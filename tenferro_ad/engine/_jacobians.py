"""Matrices of derivatives: `jacfwd`, `jacrev`, `hessian`, over pytrees.

The function runs once. Then many directions at a time, `chunk_size` of them, go through
its linearization (`jacfwd`) or its recording (`jacrev`), as the examples of `ta.vmap`
do. So the memory of a Jacobian is its own, what the recording keeps, and `chunk_size`
times what one direction needs.

Complex numbers, in both modes: the Jacobian of real arguments has the dtypes of the
outputs; that of real outputs of complex arguments is made of gradients, as `ta.grad`
gives them; complex outputs of complex arguments have a matrix only if the function is
complex-differentiable, which `holomorphic=True` states.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

from .._aval import Aval, is_inexact
from .._ledger import STATE
from ..errors import DTypeError, InvalidArgumentError
from ..ops import OPS, moved, span
from ..runtime import DIRECT, BatchEvaluator, plan_of
from ._dispatch import HANDLES
from ._eager import EagerTensor, constant
from ._linear import LinearMap
from ._make import as_tensor
from ._pytrees import args_of, flatten, need_callable, without_aux
from ._tape import StrongZero
from ._transforms import Recording
from ._vmap import ExampleProgram

ArgNums = int | Sequence[int]


# ---- public --------------------------------------------------------------------------


def jacfwd(
    f: Callable[..., Any],
    argnums: ArgNums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The Jacobian of `f` column by column: for few inputs and many outputs.

    Args:
        f: a function of tensors and pytrees of tensors (with `has_aux` it returns a
            pair `(out, aux)`).
        argnums: positional argument(s) to differentiate.
        holomorphic: `f` is complex-differentiable (see the module).
        chunk_size: how many columns are computed at a time; None is all.

    Returns:
        A function that gives a pytree like `f`'s output; in place of each of its
        tensors one like the argument (a tuple of them for several `argnums`), of
        tensors with the output's axes first: `jac[out][in][i, j] = d out[i] / d in[j]`.
        With `has_aux` a pair of it and `aux`.

    Raises (when called):
        IntegerInputError, NoRuleError.
        DTypeError: integer outputs, or complex ones without a matrix.

    Cost: one run of `f`, and for each chunk one run of its linearization on all columns
    of the chunk. Peak memory grows with `chunk_size`.
    """
    need_callable("jacfwd", f)
    chunk_size = _checked(chunk_size, "jacfwd")

    def jacfwd_f(*args: Any, **kwargs: Any) -> Any:
        run, kept = without_aux(f, "jacfwd") if has_aux else (f, [])
        numbers = args_of(args, argnums, "jacfwd")
        linear = LinearMap("jacfwd", run, args, kwargs, numbers)
        outs = linear.values
        columns: list[list[Any]] = []  # for each input, for each output
        for tensors, nodes, _ in linear.leaves:
            for x, node in zip(tensors, nodes, strict=True):
                _check_dtypes("jacfwd", [x], outs, holomorphic)

                def push(t: Any, node: int = node) -> list[Any]:
                    return linear.push({node: t})

                is_pair = x.dtype.kind == "c" and not holomorphic
                fn = _both_parts(push) if is_pair else push
                found = _stacks(fn, x.aval, chunk_size)
                columns.append(
                    [_turned(g, x, y) for g, y in zip(found, outs, strict=True)]
                )
        parts = [(nodes, treedef) for _, nodes, treedef in linear.leaves]
        rows = [[column[k] for column in columns] for k in range(len(outs))]
        jac = _assembled(rows, parts, linear.out_def, argnums)
        return (jac, kept[0]) if has_aux else jac

    return jacfwd_f


def jacrev(
    f: Callable[..., Any],
    argnums: ArgNums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    strong_zero: StrongZero = "auto",
) -> Callable[..., Any]:
    """The Jacobian of `f` row by row: for many inputs and few outputs.

    Args:
        f: a function of tensors and pytrees of tensors (with `has_aux` it returns a
            pair `(out, aux)`).
        argnums: positional argument(s) to differentiate.
        holomorphic: `f` is complex-differentiable (see the module).
        chunk_size: how many rows are computed at a time; None is all rows of one
            output.
        strong_zero: see `grad`.

    Returns:
        A function that gives the same pytree as that of `jacfwd`.

    Raises (when called):
        IntegerInputError, NoRuleError.
        DTypeError: integer outputs, or complex ones without a matrix.

    Cost: one run of `f`, and for each chunk one backward pass with all rows of the
    chunk (two where complex outputs have real arguments). Peak memory grows with
    `chunk_size`.
    """
    need_callable("jacrev", f)
    chunk_size = _checked(chunk_size, "jacrev")

    def jacrev_f(*args: Any, **kwargs: Any) -> Any:
        run, kept = without_aux(f, "jacrev") if has_aux else (f, [])
        rec = Recording("jacrev")
        given = list(args)
        parts, xs, nodes = [], [], []
        for n in args_of(args, argnums, "jacrev"):
            given[n], own, tensors = rec.leaves(args[n], f"argument {n}")
            parts.append((own, flatten(args[n])[1]))
            xs += tensors
            nodes += own
        out = rec.call(run, given, kwargs)
        del given
        leaves, out_def = flatten(out)
        outs = [as_tensor(y) for y in leaves]
        del out, leaves
        rows = []
        y: EagerTensor | None = None
        for y in outs:
            _check_dtypes("jacrev", xs, [y], holomorphic)
            at = rec.node(y)

            def pull(ct: Any, at: Any = at) -> list[Any]:
                found = {} if at is None else rec.cotangents({at: ct}, strong_zero)
                return [found.get(node) for node in nodes]

            fn: Callable[[Any], list[Any]] = pull
            if y.dtype.kind == "c":
                fn = _conjugated(pull) if holomorphic else _both_parts(pull)
            found = _stacks(fn, y.aval, chunk_size)
            rows.append([_shaped(g, y, x) for g, x in zip(found, xs, strict=True)])
        del outs, y
        rec.core.close()
        jac = _assembled(rows, parts, out_def, argnums)
        return (jac, kept[0]) if has_aux else jac

    return jacrev_f


def hessian(
    f: Callable[..., Any],
    argnums: ArgNums = 0,
    *,
    has_aux: bool = False,
    holomorphic: bool = False,
    chunk_size: int | None = None,
    strong_zero: StrongZero = "auto",
) -> Callable[..., Any]:
    """Second derivatives of `f`: forward over reverse.

        h = ta.hessian(lambda x: ta.sum(x**3))(np.ones(2))
        assert h.tolist() == [[6.0, 0.0], [0.0, 6.0]]

    Args: as for `jacrev`; `chunk_size` is also how many columns of the Hessian are
        computed at a time.

    Returns:
        A function that gives a pytree like `f`'s output (for a scalar nothing but what
        follows), in place of each tensor one like the argument, and in place of each of
        its tensors another one like the argument: `d2 out / d in1 d in2`, with the axes
        in that order.

    Raises (when called): as `jacrev` and `jacfwd`.

    Cost: one run of `f` with its gradient, and for each chunk the linearization of both
    on all columns of the chunk.
    """
    first = jacrev(
        f,
        argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
        chunk_size=chunk_size,
        strong_zero=strong_zero,
    )
    return jacfwd(
        first,
        argnums,
        has_aux=has_aux,
        holomorphic=holomorphic,
        chunk_size=chunk_size,
    )


# ---- arguments and outputs -----------------------------------------------------------


def _checked(chunk_size: Any, operation: str) -> int | None:
    if chunk_size is not None and (not isinstance(chunk_size, int) or chunk_size < 1):
        raise InvalidArgumentError(
            operation=operation,
            argument="chunk_size",
            found=f"{chunk_size!r}",
            fix="give a number of rows or columns of at least 1, or None for all",
        )
    return chunk_size


def _check_dtypes(
    operation: str, xs: Sequence[Any], ys: Sequence[Any], holomorphic: bool
) -> None:
    """Refuse what has no Jacobian."""
    for y in ys:
        if not is_inexact(y.dtype):
            raise DTypeError(
                operation=operation,
                argument="f",
                found=f"an output of dtype {y.dtype}",
                fix="return floats, or return it as `aux` (`has_aux=True`)",
            )
    dtypes = [v.dtype for v in (*xs, *ys)]
    if holomorphic and any(d.kind != "c" for d in dtypes):
        raise DTypeError(
            operation=operation,
            argument="holomorphic",
            found=f"dtypes {', '.join(map(str, dtypes))}",
            fix="use it for complex arguments and complex outputs only",
        )
    if not holomorphic and all(any(v.dtype.kind == "c" for v in vs) for vs in (xs, ys)):
        raise DTypeError(
            operation=operation,
            argument="f",
            found="complex outputs of complex arguments, which have no one Jacobian",
            fix="state that `f` is complex-differentiable (`holomorphic=True`), or "
            "differentiate its real and imaginary parts (`ta.view_as_real`)",
        )


def _assembled(
    rows: list[list[EagerTensor]],
    parts: Sequence[tuple[list[int], Any]],
    out_def: Any,
    argnums: ArgNums,
) -> Any:
    """For each output (row) the pytrees of the arguments, in the output's pytree."""
    trees = []
    for row in rows:
        found, at = [], 0
        for nodes, treedef in parts:
            found.append(optree.tree_unflatten(treedef, row[at : at + len(nodes)]))
            at += len(nodes)
        trees.append(found[0] if not isinstance(argnums, Sequence) else tuple(found))
    return optree.tree_unflatten(out_def, trees)


# ---- directions ----------------------------------------------------------------------

Directions = Callable[[Any], list[Any]]


def _both_parts(fn: Directions) -> Directions:
    """`fn(v) + i fn(i v)` for a function with real results."""

    def both(v: Any) -> list[Any]:
        pairs = zip(fn(v), fn(v * 1j), strict=True)
        return [_complex(re, im) for re, im in pairs]

    return both


def _complex(re: Any, im: Any) -> Any:
    if im is None:
        return re
    return HANDLES.complex(HANDLES.mul(im, 0) if re is None else re, im)


def _conjugated(fn: Directions) -> Directions:
    return lambda v: [None if g is None else HANDLES.conj(g) for g in fn(v)]


def _stacks(fn: Directions, aval: Aval, chunk_size: int | None) -> list[Any]:
    """`fn` of all unit vectors of a shape, `chunk_size` of them at a time, stacked
    along axis 0; None where `fn` gives None."""
    program = ExampleProgram(fn, [aval])
    n = aval.size
    step = max(1, n if chunk_size is None else min(chunk_size, n))
    rows: list[_Rows] = []
    for at in range(0, max(n, 1), step):
        size = min(step, n - at)
        units = HANDLES.eye(size, n, at, aval.dtype, aval.device)
        F = BatchEvaluator(HANDLES, size)
        outs = program.run(F, [HANDLES.regroup(units, (size, *aval.shape))])
        del units
        rows = rows or [_Rows(n) for _ in outs]
        for row in rows:
            row.add(F.with_batch(outs.pop(0)))
    found = iter([row.result() for row in rows])
    marks = optree.tree_unflatten(program.out_def, [True] * len(rows))
    return [None if mark is None else next(found) for mark in marks]


class _Rows:
    """Stacked values that arrive in chunks. Where no level records, each chunk is
    written into one value of full size, so that they never exist twice."""

    def __init__(self, n: int) -> None:
        self.n, self.at = n, 0
        self.parts: list[EagerTensor] = []
        state = STATE.get()
        self.in_place = state.level is None and state.trace is None

    def add(self, part: EagerTensor) -> None:
        size, *shape = part.shape
        if size == self.n or not self.in_place:
            self.parts.append(part)
            return
        if not self.parts:
            whole = DIRECT[OPS["full"]]((self.n, *shape), part.dtype, 0, part.device)
            self.parts.append(constant(whole))
        target = self.parts[0]._record
        key = (span(self.at, size, 1), *[span(0, d, 1) for d in shape])
        call = plan_of(OPS["place"], (part.aval,), (target.aval.shape, key, 0)).call
        DIRECT.write("into", call, (target, part._record))
        self.at += size

    def result(self) -> EagerTensor:
        if len(self.parts) == 1:
            return self.parts[0]
        return HANDLES.concat(self.parts, 0)  # type: ignore[no-any-return]


def _zeros(y: EagerTensor, x: EagerTensor) -> EagerTensor:
    """The Jacobian of an output that does not depend on an argument."""
    dtype = x.dtype if x.dtype.kind == "c" else y.dtype
    return HANDLES.full((*y.shape, *x.shape), dtype, 0, x.device)  # type: ignore[no-any-return]


def _turned(g: Any, x: EagerTensor, y: EagerTensor) -> EagerTensor:
    """Columns, stacked along axis 0, as a Jacobian (a view)."""
    if g is None:
        return _zeros(y, x)
    return HANDLES.regroup(moved(HANDLES, g, 0, y.ndim), (*y.shape, *x.shape))  # type: ignore[no-any-return]


def _shaped(g: Any, y: EagerTensor, x: EagerTensor) -> EagerTensor:
    """Rows, stacked along axis 0, as a Jacobian (a view)."""
    if g is None:
        return _zeros(y, x)
    return HANDLES.regroup(g, (*y.shape, *x.shape))  # type: ignore[no-any-return]
