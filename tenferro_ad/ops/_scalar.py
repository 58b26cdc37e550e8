"""Elementwise operations: derivatives and result dtypes from the scalar expression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from .._aval import Aval
from ..errors import DTypeError, InternalError
from ._batching import aligned
from ._call import Applied, ArgRule, Call, Rule
from ._evaluator import Evaluator, expand, project
from ._expr import Expr, pull, push, substitute, topological, var, variables
from ._op import Elementwise, Op, broadcast_shapes


class ElementwiseOp(Op):
    """A row whose kernel is one scalar expression; its rules follow from it."""

    __slots__ = ("_fused",)
    kernel: Elementwise

    def __init__(self, name: str, args: Sequence[str], **fields: Any) -> None:
        super().__init__(name, args, batch=aligned, **fields)
        self._fused: dict[Any, ElementwiseOp | None] = {}

    def pull_rule(self, call: Call, i: int) -> ArgRule:
        plain = self._fused_rule(call, i, "pull", strong=False)
        if plain is None:
            return ArgRule((), _no_dependence, _no_dependence)
        strong = self._fused_rule(call, i, "pull", strong=True)
        assert strong is not None
        target, out = call.ins[i], call.out
        saves = tuple(self.position(n, i) for n in plain.args[1:])
        if plain.kernel.expr.fn == "var":  # the cotangent itself: no kernel at all

            def passing(F: Evaluator, ct: Any) -> Any:
                return project(F, ct, target)

            return ArgRule((), passing, passing, passes=target.same(out))
        # The strong form may name its operands in another order; it reads no others.
        order = [strong.args[1:].index(n) for n in plain.args[1:]]
        if order != list(range(len(order))):
            raise InternalError(
                operation=strong.name,
                argument="saves",
                found="operands in another order than the plain rule's",
                fix="report this as a bug",
            )
        # Other dtypes may promote the product: a float32 divided by an int8.
        read = self._read_by(plain, call)
        wide = _wide(plain, call.out, read)
        promoted = plain.infer(out, *read)[1] != target.dtype
        if wide or promoted or not target.same(out):

            def fn(F: Evaluator, ct: Any, *saved: Any) -> Any:
                values = _widened(F, wide, saved, out)
                return project(F, F[plain](ct, *values), target)

            def fn_strong(F: Evaluator, ct: Any, *saved: Any) -> Any:
                values = _widened(F, wide, saved, out)
                return project(F, F[strong](ct, *values), target)

            return ArgRule(saves, fn, fn_strong)

        operands = tuple(range(-1, len(saves)))
        return ArgRule.of(saves, Applied(plain, operands), Applied(strong, operands))

    def _fused_rule(self, call: Call, i: int, mode: str, *, strong: bool) -> Any:
        """The derivative kernel of argument i as an operation of its own (it has rules
        again, derived the same way), or None where the derivative is zero."""
        assert isinstance(self.kernel, Elementwise)
        kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in call.ins)
        out_kind = "c" if call.out.dtype.kind == "c" else "r"
        key = (mode, i, kinds, strong)
        if key not in self._fused:
            name = self.args[i]
            expr = self.expr_of(kinds)
            row = expr.fn == self.name
            if mode == "pull":
                e = pull(expr, name, out_kind, strong=strong, keep_out=row)
            else:
                e = push(expr, name, kinds[i], keep_out=row)
            made = None
            if e is not None:
                # `ct` is the cotangent of whoever differentiates next: rename ours.
                own = "g"
                while own in self.args:
                    own += "g"
                kind = out_kind if mode == "pull" else kinds[i]
                e = substitute(e, {"ct": var(own, kind)})
                names = (own, *sorted(n for n in variables(e) if n != own))
                suffix = "" if mode == "jvp" else (".strong" if strong else "")
                made = elementwise(
                    f"{self.name}.{'vjp' if mode == 'pull' else 'jvp'}.{name}{suffix}",
                    e,
                    names,
                )
            self._fused[key] = made
        return self._fused[key]

    def expr_of(self, kinds: tuple[str, ...]) -> Expr:
        """The kernel's expression with the kinds (real, complex) of actual operands."""
        assert isinstance(self.kernel, Elementwise)
        return substitute(
            self.kernel.expr,
            {n: var(n, k) for n, k in zip(self.args, kinds, strict=True)},
        )

    def push_rule(self, call: Call, i: int) -> tuple[tuple[int, ...], Rule]:
        fused = self._fused_rule(call, i, "push", strong=False)
        if fused is None:
            return (), _no_dependence
        out = call.out
        if fused.kernel.expr.fn == "var":
            return (), lambda F, t: expand(F, t, out)
        reads = tuple(self.position(n, i) for n in fused.args[1:])
        wide = _wide(fused, call.ins[i], self._read_by(fused, call))

        def pushed(F: Evaluator, t: Any, *read: Any) -> Any:
            return expand(F, F[fused](t, *_widened(F, wide, read, out)), out)

        return reads, pushed

    def _read_by(self, derived: ElementwiseOp, call: Call) -> list[Aval]:
        """What a derivative kernel reads beside the cotangent or tangent."""
        known = dict(zip(self.args, call.ins, strict=True))
        return [known.get(n, call.out) for n in derived.args[1:]]


def _wide(derived: ElementwiseOp, along: Aval, read: Sequence[Aval]) -> tuple[int, ...]:
    """Which of the values read are integers that the kernel would add or multiply with
    each other: there they wrap around, as derivatives do not."""
    avals = (along, *read)
    kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in avals)
    found: set[str] = set()
    ins = dict(zip(derived.args, avals, strict=True))
    for node, dtype in _dtypes(derived.expr_of(kinds), ins).items():
        among = node.fn in _ARITHMETIC and isinstance(dtype, np.dtype)
        if among and dtype.kind in "biu":
            found.update(variables(node))
    return tuple(k for k, n in enumerate(derived.args[1:]) if n in found)


def _widened(
    F: Evaluator, wide: tuple[int, ...], values: tuple[Any, ...], out: Aval
) -> tuple[Any, ...]:
    if not wide:
        return values
    dtype = (
        out.dtype if out.dtype.kind == "f" else np.dtype(f"f{out.dtype.itemsize // 2}")
    )
    return tuple([F.astype(v, dtype) if k in wide else v for k, v in enumerate(values)])


_ARITHMETIC: Final = frozenset(("add", "sub", "mul", "neg"))


def of_kinds(
    name: str, args: Sequence[str], kinds: str, infer: Callable[..., Any]
) -> Callable[..., Any]:
    """`infer`, refusing operands whose dtype kind is not among `kinds`; parameters may
    follow the operands."""

    def checked(*given: Any) -> Any:
        for arg, x in zip(args, given, strict=False):
            if x.dtype.kind not in kinds:
                words = [_KINDS[k] for k in kinds]
                raise DTypeError(
                    operation=name,
                    argument=arg,
                    found=f"dtype {x.dtype}, where it takes {' or '.join(words)}",
                    fix="convert it: `ta.astype(x, dtype)`",
                )
        return infer(*given)

    return checked


_KINDS: Final = {
    "b": "booleans",
    "i": "integers",
    "u": "unsigned integers",
    "f": "floats",
    "c": "complex numbers",
}


def _no_dependence(F: Evaluator, ct: Any, *saved: Any) -> None:
    return None


def elementwise(
    name: str, expr: Expr, args: Sequence[str], *, is_select: bool = False
) -> ElementwiseOp:
    """An elementwise operation: its derivatives follow from the expression."""

    def infer(*ins: Aval) -> tuple[tuple[int, ...], np.dtype[Any]]:
        shape = broadcast_shapes(name, *(a.shape for a in ins))
        kinds = tuple("c" if a.dtype.kind == "c" else "r" for a in ins)
        return shape, expr_dtype(op.expr_of(kinds), dict(zip(args, ins, strict=True)))

    # A derivative kernel may read an operand called `out`, the value it belongs to.
    op = ElementwiseOp(
        name,
        args,
        infer=infer,
        kernel=Elementwise(expr),
        outs=("value",) if "out" in args else ("out",),
        is_select=is_select,
    )
    return op


_INT_TO_FLOAT: Final = np.dtype(np.float64)
_BOOL: Final = np.dtype(np.bool_)
# Functions whose value on integers is an integer.
INTEGER_CLOSED: Final[set[str]] = set()


def expr_dtype(expr: Expr, ins: dict[str, Aval]) -> np.dtype[Any]:
    """Result dtype: promotion of the operands that the value is made of."""
    found = _dtypes(expr, ins)[expr]
    return found if isinstance(found, np.dtype) else np.result_type(found)


def _dtypes(expr: Expr, ins: dict[str, Aval]) -> dict[Expr, Any]:
    """The dtype of each node, operands first; the value of a Python number."""
    dtypes: dict[Expr, Any] = {}
    for node in topological(expr):
        if node.fn == "var":
            dtypes[node] = ins[node.name].dtype
        elif node.fn == "const":
            dtypes[node] = node.value
        else:
            dtypes[node] = node_dtype(node, [dtypes[a] for a in node.args])
    return dtypes


def node_dtype(node: Expr, dtypes: list[Any]) -> Any:
    """Dtype of one scalar function; Python numbers among `dtypes` are weak."""
    if node.kind == "b":
        return _BOOL
    if node.fn == "select":
        dtypes = dtypes[1:]
    weak = [d for d in dtypes if not isinstance(d, np.dtype)]
    if len(weak) == len(dtypes):
        return sum(weak) if weak else 0.0
    dtype = np.result_type(*dtypes)
    if node.fn not in INTEGER_CLOSED and dtype.kind in "biu":
        dtype = _INT_TO_FLOAT
    if node.kind == "r" and dtype.kind == "c":
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    elif node.kind == "c" and dtype.kind != "c":
        dtype = np.result_type(dtype, np.complex64)
    return dtype
