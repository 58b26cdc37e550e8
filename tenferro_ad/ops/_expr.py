"""Scalar expressions: what an elementwise kernel computes, as data.

One expression form serves every lane: backends print it (NumPy calls here, C-like
source elsewhere), and `derivative` differentiates it symbolically, so an elementwise
operation declares its derivative once and never spells out a VJP, a JVP or a second
derivative.

Complex values follow Wirtinger calculus: `derivative` returns the pair of partials with
respect to a variable and to its conjugate. For a real pairing Re(conj(a) b) the
pullback of a cotangent `ct` is `ct * conj(d) + conj(ct) * dbar`, the pushforward of a
tangent `t` is `t * d + conj(t) * dbar`.

Source: W. Wirtinger, Math. Ann. 97 (1927); K. Kreutz-Delgado, arXiv:0906.4835.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

Scalar = bool | int | float | complex


class Expr:
    """An interned expression node: equal structure means the same object."""

    __slots__ = ("args", "fn", "kind", "name", "value")

    _interned: ClassVar[dict[tuple[Any, ...], Expr]] = {}

    fn: str
    args: tuple[Expr, ...]
    name: str
    value: Scalar
    # "r" real, "c" complex, "b" bool: what a printer and `conj` need to know.
    kind: str

    @classmethod
    def _make(
        cls, fn: str, args: tuple[Expr, ...], name: str, value: Scalar, kind: str
    ) -> Expr:
        key = (fn, *(id(a) for a in args), name, type(value), repr(value), kind)
        found = cls._interned.get(key)
        if found is None:
            found = object.__new__(cls)
            found.fn, found.args, found.name = fn, args, name
            found.value, found.kind = value, kind
            cls._interned[key] = found
        return found

    def __add__(self, other: Any) -> Expr:
        return call("add", self, other)

    def __radd__(self, other: Any) -> Expr:
        return call("add", other, self)

    def __sub__(self, other: Any) -> Expr:
        return call("sub", self, other)

    def __rsub__(self, other: Any) -> Expr:
        return call("sub", other, self)

    def __mul__(self, other: Any) -> Expr:
        return call("mul", self, other)

    def __rmul__(self, other: Any) -> Expr:
        return call("mul", other, self)

    def __truediv__(self, other: Any) -> Expr:
        return call("div", self, other)

    def __rtruediv__(self, other: Any) -> Expr:
        return call("div", other, self)

    def __neg__(self) -> Expr:
        return call("neg", self)

    def __gt__(self, other: Any) -> Expr:
        return call("greater", self, other)

    def __lt__(self, other: Any) -> Expr:
        return call("less", self, other)

    def __ge__(self, other: Any) -> Expr:
        return call("greater_equal", self, other)

    def __le__(self, other: Any) -> Expr:
        return call("less_equal", self, other)

    def __and__(self, other: Any) -> Expr:
        return call("logical_and", self, other)

    def eq(self, other: Any) -> Expr:
        """Elementwise equality (`==` keeps its meaning of identity of structure)."""
        return call("equal", self, other)

    def __repr__(self) -> str:
        if self.fn == "var":
            return self.name
        if self.fn == "const":
            return repr(self.value)
        return f"{self.fn}({', '.join(map(repr, self.args))})"


def var(name: str, kind: str = "r") -> Expr:
    """A named operand."""
    return Expr._make("var", (), name, 0, kind)


def const(value: Scalar) -> Expr:
    """A literal; weakly typed, it never widens the other operand."""
    kind = "c" if isinstance(value, complex) else "r"
    return Expr._make("const", (), "", value, kind)


ZERO: Final = const(0.0)
ONE: Final = const(1.0)


@dataclass(frozen=True, slots=True)
class ScalarFn:
    """A scalar function: arity, kind of result, derivative for each argument.

    Attributes:
        d: partials, as expressions in `x`, `y`, `z` (the arguments) and `out` (the
            value); None where the function is locally constant.
        gate: instead of a multiplier, an expression linear in `ct` (used where a factor
            0 would turn an infinite or NaN cotangent into NaN).
        pair: partials for complex arguments where the function is not holomorphic.
        result: kind of the result; "same" takes it from the arguments.
        singular: the derivative can be infinite or NaN at points where the value is
            used (what `strong_zero` guards).
    """

    name: str
    nargs: int
    d: tuple[Expr | None, ...] = ()
    gate: tuple[Expr | None, ...] = ()
    pair: tuple[tuple[Expr, Expr], ...] = ()
    result: str = "same"
    singular: bool = False


FUNCTIONS: Final[dict[str, ScalarFn]] = {}
_ARGS: Final = ("x", "y", "z")


def scalar_fn(name: str, nargs: int, **fields: Any) -> ScalarFn:
    """Declare a scalar function; called by the op table, once for each row."""
    row = ScalarFn(name, nargs, **fields)
    FUNCTIONS[name] = row
    return row


def as_expr(value: Any) -> Expr:
    return value if isinstance(value, Expr) else const(value)


def _is(e: Expr, value: float) -> bool:
    return e.fn == "const" and e.value == value


def call(fn: str, *args: Any) -> Expr:
    """Apply a scalar function, with the exact simplifications of arithmetic by 0 and 1.

    Zero here is a *literal* zero of a derivative formula, so `0 * x` is 0 even where
    `x` is infinite: the formula says that there is no dependence at all.
    """
    es = tuple(as_expr(a) for a in args)
    a = es[0]
    if fn == "mul":
        b = es[1]
        if _is(a, 0) or _is(b, 0):
            return ZERO
        if _is(a, 1):
            return b
        if _is(b, 1):
            return a
        if a.fn == "const" and b.fn == "const":
            return const(a.value * b.value)
    elif fn == "add":
        if _is(a, 0):
            return es[1]
        if _is(es[1], 0):
            return a
    elif fn == "sub":
        if _is(es[1], 0):
            return a
        if _is(a, 0):
            return call("neg", es[1])
    elif fn == "div":
        if _is(a, 0):
            return ZERO
        if _is(es[1], 1):
            return a
    elif fn == "neg":
        if a.fn == "neg":
            return a.args[0]
        if a.fn == "const":
            return const(-a.value)
    elif fn == "conj":
        if a.kind != "c":
            return a
        if a.fn == "conj":
            return a.args[0]
        if a.fn == "const":
            return const(complex(a.value).conjugate())
    elif fn == "real" and a.kind != "c":
        return a
    elif fn == "imag" and a.kind != "c":
        return ZERO
    elif fn == "select" and es[1] is es[2]:
        return es[1]
    elif fn == "szmul" and (_is(a, 0) or _is(es[1], 0)):
        return ZERO
    row = FUNCTIONS.get(fn)
    result = "same" if row is None else row.result
    if result == "same":
        kinds = {e.kind for e in (es[1:] if fn == "select" else es)}
        result = "c" if "c" in kinds else ("b" if kinds == {"b"} else "r")
    return Expr._make(fn, es, "", 0, result)


def select(condition: Any, a: Any, b: Any) -> Expr:
    """`a` where `condition`, else `b`."""
    return call("select", condition, a, b)


def conj(e: Expr) -> Expr:
    return call("conj", e)


def substitute(e: Expr, bindings: Mapping[str, Expr]) -> Expr:
    """Replace variables; recomputes kinds and simplifications on the way up."""
    memo: dict[Expr, Expr] = {}
    for node in topological(e):
        if node.fn == "var":
            memo[node] = bindings.get(node.name, node)
        elif node.fn == "const":
            memo[node] = node
        else:
            memo[node] = call(node.fn, *(memo[a] for a in node.args))
    return memo[e]


def topological(root: Expr) -> Iterator[Expr]:
    """Every node once, operands first; iterative."""
    done: set[Expr] = set()
    stack: list[tuple[Expr, bool]] = [(root, False)]
    while stack:
        node, expanded = stack.pop()
        if node in done:
            continue
        if expanded:
            done.add(node)
            yield node
        else:
            stack.append((node, True))
            stack.extend((a, False) for a in reversed(node.args))


def variables(e: Expr) -> tuple[str, ...]:
    """Names of the variables that `e` reads, in order of first use."""
    return tuple(dict.fromkeys(n.name for n in topological(e) if n.fn == "var"))


def _partials(
    node: Expr, i: int, keep_out: bool
) -> tuple[Expr | None, Expr, Expr | None]:
    """(gate, d, dbar) of `node` for its argument i, as expressions of its operands."""
    row = FUNCTIONS[node.fn]
    bind = dict(zip(_ARGS, node.args, strict=False))
    bind["out"] = var("out", node.kind) if keep_out else node
    if row.pair and node.args[i].kind == "c":
        d, dbar = row.pair[i]
        return None, substitute(d, bind), substitute(dbar, bind)
    gate = row.gate[i] if row.gate else None
    if gate is not None:
        return substitute(gate, bind), ZERO, None
    d_i = row.d[i] if row.d else None
    return None, ZERO if d_i is None else substitute(d_i, bind), None


def derivative(
    e: Expr, name: str, *, strong: bool = False, keep_out: bool = False
) -> tuple[Expr, Expr]:
    """Partials of `e` with respect to variable `name` and to its conjugate.

    Args:
        strong: multiply inner derivatives with a product in which an exact zero
            absorbs.
        keep_out: `e` is one row of the table; let its derivative read the value as
            `out`.
    """
    grads: dict[Expr, tuple[Expr, Expr]] = {}
    times = (lambda a, b: call("szmul", a, b)) if strong else (lambda a, b: a * b)
    for node in topological(e):
        if node.fn == "var":
            grads[node] = (ONE if node.name == name else ZERO, ZERO)
            continue
        total, total_bar = ZERO, ZERO
        for i, arg in enumerate(node.args):
            g, g_bar = grads[arg]
            if g is ZERO and g_bar is ZERO:
                continue
            gate, d, dbar = _partials(node, i, keep_out and node is e)
            if gate is not None:
                total += substitute(gate, {"ct": g})
                total_bar += substitute(gate, {"ct": g_bar})
                continue
            total += _product(times, g, d)
            total_bar += _product(times, g_bar, d)
            if dbar is not None:
                total += _product(times, conj(g_bar), dbar)
                total_bar += _product(times, conj(g), dbar)
        grads[node] = (total, total_bar)
    return grads[e]


def _product(times: Any, g: Expr, d: Expr) -> Expr:
    """g * d, keeping literal 0 and 1 out of the kernel."""
    if g is ZERO or d is ZERO:
        return ZERO
    if g is ONE:
        return d
    if d is ONE:
        return g
    return times(g, d)  # type: ignore[no-any-return]


def pull(
    e: Expr, name: str, ct_kind: str, *, strong: bool, keep_out: bool
) -> Expr | None:
    """The cotangent of variable `name`, an expression in `ct`; None if it is zero.

    Reads `ct`, the variables of `e`, and `out` when `keep_out` (one row of the table).
    """
    ct = var("ct", ct_kind)
    row = FUNCTIONS.get(e.fn)
    if keep_out and row is not None and row.gate:
        gate, _, _ = _partials(e, [a.name for a in e.args].index(name), True)
        if gate is not None:
            return substitute(gate, {"ct": ct})
    d, dbar = derivative(e, name, strong=strong, keep_out=keep_out)
    guarded = strong and is_singular(e)
    total = ZERO
    for c, partial in ((ct, conj(d)), (conj(ct), dbar)):
        if partial is ZERO:
            continue
        if partial is ONE:
            total += c
        else:
            total += call("szmul", c, partial) if guarded else c * partial
    return None if total is ZERO else total


def push(e: Expr, name: str, kind: str, *, keep_out: bool) -> Expr | None:
    """The tangent of `e` for a tangent `ct` of variable `name`; None if it is zero.

    A kernel whose products let zeros absorb has a tangent that does the same: a zero
    cotangent is one whatever becomes of the values beside it.
    """
    t = var("ct", kind)
    row = FUNCTIONS.get(e.fn)
    if keep_out and row is not None and row.gate:
        gate, _, _ = _partials(e, [a.name for a in e.args].index(name), True)
        if gate is not None:
            return substitute(gate, {"ct": t})
    strong = any(n.fn == "szmul" for n in topological(e))
    times = (lambda a, b: call("szmul", a, b)) if strong else (lambda a, b: a * b)
    d, dbar = derivative(e, name, strong=strong, keep_out=keep_out)
    total = _product(times, t, d) + _product(times, conj(t), dbar)
    return None if total is ZERO else total


def is_singular(e: Expr) -> bool:
    """Whether a function in `e` declares that its derivative can be inf or NaN."""
    return any(n.fn in FUNCTIONS and FUNCTIONS[n.fn].singular for n in topological(e))
