"""`einsum`: its subscripts and paths as users write them.

Subscripts follow NumPy; any character but blanks, commas, dots and arrows is a label,
so hundreds of them can be told apart. Ellipsis axes get labels of their own here: rows
know nothing of ellipses, nor of implicit outputs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import count
from typing import Any, Final, NoReturn

from opt_einsum import get_symbol
from opt_einsum.paths import get_path_fn

from ..errors import InvalidArgumentError, ShapeError, type_name
from ..ops import einsum_sizes
from ._dispatch import HANDLES
from ._eager import EagerTensor
from ._make import as_tensor, device_in
from ._operands import plain

__all__ = ["einsum"]

F = HANDLES
_NUMBERS: Final = frozenset({int, float, complex})  # they take the others' dtype

Shape = tuple[int, ...]
Path = tuple[tuple[int, ...], ...]
PathFunction = Callable[..., Any]
Optimize = bool | str | Sequence[Sequence[int]] | PathFunction


def einsum(
    subscripts: str, /, *operands: Any, optimize: Optimize = True
) -> EagerTensor:
    """Sums of products over labelled axes, of any number of operands.

    A label that is repeated in one term takes the diagonal, in the output it fills the
    diagonal of zeros; labels that the output lacks are summed; without `->` the output
    has the labels that occur once, sorted. `...` stands for any further axes; the last
    ones of different terms are paired. Axes of length 1 broadcast, those of an ellipsis
    and those with a label.

        a, v = np.ones((3, 3)), np.ones(3)
        ta.einsum("...ij,jk->...ik", a, a)  # products of matrices
        ta.einsum("ii", a)  # the trace
        ta.einsum("i->ii", v)  # a diagonal matrix
        ta.einsum("i,ij,j", v, a, v)  # a quadratic form

    Args:
        subscripts: terms separated by commas, then perhaps `->` and the output. Any
            character but blanks, commas, dots and arrows is a label.
        operands: one for each term; integer, floating or complex. Python numbers take
            the dtype of the others.
        optimize: the order of contractions, as opt_einsum spells it: True (its choice,
            `"auto"`), the name of a method (`"greedy"`, `"optimal"`, `"dp"`, ...), a
            path (positions of operands for each step; results go to the end), or a
            function that finds one. False goes from the left to the right.

    Returns:
        A fresh tensor of the operands' common dtype. Halves are summed in single.

    Raises:
        InvalidArgumentError: the subscripts or the path make no sense.
        ShapeError: an operand has another number of axes than its term, or two axes
            with one label differ.
        DTypeError: a boolean operand.

    Source: D. Smith and J. Gray, "opt_einsum", JOSS 3 (2018), for paths; A. Griewank
    and A. Walther, "Evaluating Derivatives" (2008), for the reverse rule.

    Cost: one operation and one allocation however many operands; intermediate results
        are workspace. Pairs are (batched) matrix products; an operand whose axes do not
        merge into those of a matrix is laid out again in workspace. Keeps the operands
        that tracked ones are multiplied with. Backward costs at most three times the
        forward pass: it computes needed intermediate results again.
    """
    device, given = device_in(operands), [plain(x) for x in operands]
    xs = tuple([x if type(x) in _NUMBERS else as_tensor(x, device) for x in given])
    shapes = tuple([() if type(x) in _NUMBERS else x.shape for x in xs])
    equation = _explicit(subscripts, shapes)
    return F.einsum(xs, equation, _path(equation, shapes, optimize))  # type: ignore[no-any-return]


def _refuse(argument: str, found: str, fix: str) -> NoReturn:
    raise InvalidArgumentError(
        operation="einsum", argument=argument, found=found, fix=fix
    )


# ---- subscripts ----------------------------------------------------------------------


def _explicit(subscripts: Any, shapes: tuple[Shape, ...]) -> str:
    """The equation with one label for each axis and an explicit output."""
    if not isinstance(subscripts, str):
        _refuse(
            "subscripts",
            f"an object of type `{type_name(subscripts)}`",
            'write the terms as text first: `einsum("ij,jk->ik", x, y)`',
        )
    if not shapes:
        _refuse("operands", "none", "pass one operand for each term")
    return _parsed(subscripts, shapes)


@lru_cache(maxsize=4096)
def _parsed(subscripts: str, shapes: tuple[Shape, ...]) -> str:
    text = "".join(subscripts.split())
    left, arrow, out = text.partition("->")
    terms = left.split(",")
    for term in (*terms, out):
        _check_term(term)
    if len(terms) != len(shapes):
        _refuse(
            "operands",
            f"{len(shapes)} operands for the {len(terms)} terms of `{subscripts}`",
            "pass one operand for each term",
        )
    extra = [
        _extra_axes(k, t, s) for k, (t, s) in enumerate(zip(terms, shapes, strict=True))
    ]
    fresh = (c for c in map(get_symbol, count()) if c not in text)
    dots = [next(fresh) for _ in range(max(extra))]
    if not arrow:
        once = sorted(c for c in set(left) - set(",.") if left.count(c) == 1)
        out = ("..." if "..." in left else "") + "".join(once)
    explicit = [
        t.replace("...", "".join(dots[len(dots) - n :]))
        for t, n in zip(terms, extra, strict=True)
    ]
    _check_output(out, "".join(explicit))
    return ",".join(explicit) + "->" + out.replace("...", "".join(dots))


def _check_term(term: str) -> None:
    rest = term.replace("...", "", 1)
    for sign in (".", "-", ">", ","):
        if sign in rest:
            _refuse(
                "subscripts",
                f"`{sign}` in `{term}`",
                "separate terms by `,`, write `->` once before the output and `...` at "
                "most once in a term",
            )


def _extra_axes(k: int, term: str, shape: Shape) -> int:
    """How many axes the ellipsis of a term stands for."""
    named = len(term.replace("...", ""))
    if "..." in term and len(shape) >= named:
        return len(shape) - named
    if len(shape) != named:
        raise ShapeError(
            operation="einsum",
            argument=f"operand {k}",
            found=f"shape {shape} for the term `{term}`",
            fix="write one label for each axis, or `...` for several",
        )
    return 0


def _check_output(out: str, labels: str) -> None:
    named = out.replace("...", "")
    for c in named:
        if c not in labels:
            _refuse(
                "subscripts",
                f"`{c}` in the output, which no operand has",
                "use labels of the operands",
            )


# ---- paths ---------------------------------------------------------------------------


def _path(equation: str, shapes: tuple[Shape, ...], optimize: Any) -> Path:
    """The order of contractions, as positions of operands."""
    n = len(shapes)
    if isinstance(optimize, list | tuple):
        return _given_path(optimize)
    if not (isinstance(optimize, bool | str) or callable(optimize)):
        _refuse(
            "optimize",
            f"an object of type `{type_name(optimize)}`",
            "pass True, False, a method's name, a path or a function",
        )
    if optimize is True:
        optimize = "auto"
    if isinstance(optimize, str):
        return _path_of(equation, shapes, optimize)
    if n <= 2:
        return _short(n)
    if optimize is False:
        return ((0, 1), *[(0, k) for k in range(n - 2, 0, -1)])
    return _given_path(_searched(equation, shapes, optimize))


def _short(n: int) -> Path:
    return ((0, 1),) if n == 2 else ()


@lru_cache(maxsize=1024)
def _path_of(equation: str, shapes: tuple[Shape, ...], method: str) -> Path:
    try:
        search = get_path_fn(method)
    except KeyError:
        _refuse(
            "optimize",
            f"`{method}`",
            "use a method of opt_einsum, such as `auto`, `greedy`, `optimal` or `dp`",
        )
    if len(shapes) <= 2:
        return _short(len(shapes))
    return _given_path(_searched(equation, shapes, search))


def _searched(equation: str, shapes: tuple[Shape, ...], search: PathFunction) -> Any:
    left, _, out = equation.partition("->")
    terms = left.split(",")
    sizes = einsum_sizes("einsum", tuple(terms), shapes)
    inputs = [
        frozenset(c for c, n in zip(t, s, strict=True) if n == sizes[c])
        for t, s in zip(terms, shapes, strict=True)
    ]
    return search(inputs, frozenset(out), sizes, None)


def _given_path(path: Any) -> Path:
    """A path as tuples of positions. NumPy's form names its method first."""
    try:
        steps = list(path)
        if steps and isinstance(steps[0], str):
            del steps[0]
        return tuple(tuple(operator.index(k) for k in step) for step in steps)
    except TypeError:
        _refuse(
            "optimize",
            "a path that is not made of positions",
            "write one tuple of positions for each step, such as `[(0, 1), (0, 1)]`",
        )
