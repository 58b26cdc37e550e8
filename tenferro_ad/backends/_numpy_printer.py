"""Prints scalar expressions as straight-line NumPy code.

Each node becomes one ufunc call with a positional output; temporaries live in as few
registers as the expression's liveness allows, and the output itself serves as a
register. Large contiguous operands are walked in blocks, so that scratch stays small
whatever the size (decision A4) and intermediate values stay in cache.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..ops import Expr, call, const, node_dtype, topological
from ._numpy_functions import FUNCTIONS, MASKS, on_integers
from ._quiet import quietly
from ._scaled_sum import scaled_sum

Array = np.ndarray[Any, Any]
Run = Callable[..., None]

BLOCK: Final = 16_384  # elements: a few registers of this size stay in the L2 cache


class Printed:
    """A compiled expression.

    Attributes:
        body: `body(*ins, out, *registers)`, straight-line; `temps` are the registers.
        aliased: the same where `out` may be the first operand; registers
            `aliased_temps`.
        dtype: of the result.
        masks: bytes for each element that the functions take themselves.
        large: `large(*ins, out)` tries large contiguous operands in one pass.
    """

    __slots__ = (
        "aliased",
        "aliased_temps",
        "body",
        "dtype",
        "large",
        "masks",
        "n",
        "temps",
    )

    def __init__(
        self,
        body: Run,
        temps: Sequence[np.dtype[Any]],
        aliased: Run,
        aliased_temps: Sequence[np.dtype[Any]],
        dtype: np.dtype[Any],
        n: int,
        masks: int,
        large: Callable[..., bool] | None = None,
    ) -> None:
        self.body, self.temps, self.large = body, tuple(temps), large
        self.aliased, self.aliased_temps = aliased, tuple(aliased_temps)
        self.dtype, self.n, self.masks = dtype, n, masks

    def scratch_nbytes(self, shape: tuple[int, ...]) -> int:
        """Scratch of `runner` for outputs of this shape."""
        each = sum(t.itemsize for t in self.temps) + self.masks
        return each * _block_size(shape)

    def adder_scratch_nbytes(self, shape: tuple[int, ...]) -> int:
        """Scratch of `adder`: one register more, for the values to be added."""
        return self.scratch_nbytes(shape) + self.dtype.itemsize * _block_size(shape)

    def runner(self, shape: tuple[int, ...], *, even: bool = False) -> Run:
        """`run(*ins, out)` for outputs of this shape; `even`: operands have it too."""
        more = (self.masks, self.large)
        return _fitted(self.body, self.temps, shape, self.n, even, *more)

    def overwriter(self, shape: tuple[int, ...], *, even: bool = False) -> Run:
        """`run(*ins, out)` where `out` may be the first operand."""
        more = (self.masks, self.large)
        return _fitted(self.aliased, self.aliased_temps, shape, self.n, even, *more)

    def inline(
        self,
        operands: Sequence[str],
        out: str,
        registers: Sequence[str],
        named: Callable[[str, Any], str],
        *,
        aliased: bool,
    ) -> list[str] | None:
        """The kernel as statements of a longer function.

        Args:
            operands, out, registers: names of the arrays.
            named: `named(hint, value)` names the kernel's functions and numbers.
            aliased: `out` is the first operand's memory.

        None where the kernel is no straight line of statements.
        """
        body: Any = self.aliased if aliased else self.body
        written = getattr(body, "written", None)
        if written is None:
            return None
        params, lines = written
        names = dict(zip(params.split(", "), [*operands, out], strict=True))
        names.update((f"t{k}", r) for k, r in enumerate(registers))

        def renamed(found: re.Match[str]) -> str:
            name = found[0]
            if name in names:
                return str(names[name])
            if name in body.__globals__:
                value = body.__globals__[name]
                return named(getattr(value, "__name__", "c"), value)
            return name

        return [re.sub(r"[A-Za-z_]\w*", renamed, line) for line in lines]

    def adder(self, shape: tuple[int, ...]) -> Run:
        """`run(*ins, acc)` adds the values to `acc`."""
        body, n = self.body, self.n
        if n == 2 and not self.temps:  # the derivative of a product, above all

            def adding(x: Array, y: Array, acc: Array, held: Array) -> None:
                body(x, y, held)
                np.add(acc, held, acc)

        else:

            def adding(*operands: Array) -> None:  # type: ignore[misc]
                acc, held = operands[n], operands[n + 1]
                body(*operands[:n], held, *operands[n + 2 :])
                np.add(acc, held, acc)

        return _fitted(adding, (self.dtype, *self.temps), shape, n, False, self.masks)


def _fitted(
    body: Any,
    temps: tuple[np.dtype[Any], ...],
    shape: tuple[int, ...],
    n: int,
    even: bool,
    masks: int,
    large: Callable[..., bool] | None = None,
) -> Run:
    """`body` with its registers supplied: whole ones for small outputs, blocks for
    large ones."""
    if math.prod(shape) > 2 * BLOCK:
        return _blocked(body, temps, masks, large)
    if not temps:
        return body  # type: ignore[no-any-return]
    space: dict[str, Any] = {**body.__globals__, "empty": np.empty, "shape": shape}
    if hasattr(body, "written"):
        params, lines = body.written[0], list(body.written[1])
    else:
        registers = ", ".join(f"t{k}" for k in range(len(temps)))
        params = ", ".join([*(f"x{i}" for i in range(n)), "out"])
        space["body"] = body
        lines = [f"body({params}, {registers})"]
    source = [f"def run({params}):"]
    for k, t in enumerate(temps):
        space[f"d{k}"] = t
        uses = [i for i, line in enumerate(lines) if f" t{k})" in line]
        found = uses and _CALL_OF_OPERANDS.fullmatch(lines[uses[0]])
        plain = found and isinstance(space[found[1].partition("(")[0]], np.ufunc)
        if found and plain and even and shape:
            # The function makes the register, which costs less than filling one.
            lines[uses[0]] = f"t{k} = {found[1]})"
        else:
            source.append(f"    t{k} = empty(shape, d{k})")
    source += [f"    {line}" for line in lines]
    exec("\n".join(source), space)
    return space["run"]  # type: ignore[no-any-return]


# A function of operands alone that writes a register.
_CALL_OF_OPERANDS: Final = re.compile(r"(f_\d+\(a_\w+(?:, a_\w+)*), t\d+\)")


def _block_size(shape: tuple[int, ...]) -> int:
    """Elements worked on at a time: a block, or one index of the first axis."""
    size = math.prod(shape)
    if size <= 2 * BLOCK:
        return size
    return max(BLOCK, size // shape[0])


@quietly
def print_numpy(
    expr: Expr, args: Sequence[str], dtypes: Sequence[np.dtype[Any]]
) -> Printed:
    """Compile `expr` for operands of the given dtypes.

    Cost: one `exec` of a few lines; results are cached by the caller.
    """
    expr = _folded(expr)
    nodes = [n for n in topological(expr) if n.fn not in ("var", "const")]
    of = dict(zip(args, dtypes, strict=True))
    if not nodes:
        return _copy_of(expr, args, of)
    body, temps, dtype = _body(expr, nodes, args, of, aliased=False)
    aliased, more = body, temps
    if len(nodes) > 1 or not FUNCTIONS[nodes[0].fn][1]:
        aliased, more, _ = _body(expr, nodes, args, of, aliased=True)
    elif [a.name for a in nodes[0].args] == list(args):
        fn = FUNCTIONS[nodes[0].fn][0]
        body = aliased = on_integers(fn, dtypes, dtype)
    masks = max(MASKS.get(node.fn, 0) for node in nodes)
    large = scaled_sum(expr, args, dtypes)
    return Printed(body, temps, aliased, more, dtype, len(args), masks, large)


def _folded(expr: Expr) -> Expr:
    """Compute what has constant operands only, such as 0.5 + 0.5 in a derivative."""
    memo: dict[Expr, Expr] = {}
    for node in topological(expr):
        args = [memo[a] for a in node.args]
        if args and all(a.fn == "const" for a in args):
            out = np.empty((), np.result_type(*[a.value for a in args], 0.0))
            FUNCTIONS[node.fn][0](*[np.asarray(a.value) for a in args], out)
            memo[node] = const(out.item())
        else:
            memo[node] = call(node.fn, *args) if args else node
    return memo[expr]


def _copy_of(expr: Expr, args: Sequence[str], of: dict[str, np.dtype[Any]]) -> Printed:
    source: Any = expr.value
    at = list(args).index(expr.name) if expr.fn == "var" else None
    n = len(args)

    def body(*operands: Array) -> None:
        np.copyto(operands[n], source if at is None else operands[at])

    dtype = np.result_type(source) if at is None else of[expr.name]
    return Printed(body, (), body, (), dtype, n, 0)


def _body(
    expr: Expr,
    nodes: list[Expr],
    args: Sequence[str],
    of: dict[str, np.dtype[Any]],
    *,
    aliased: bool,
) -> tuple[Run, list[np.dtype[Any]], np.dtype[Any]]:
    """Straight-line code over registers; `aliased`: `out` may be the first operand, so
    it is written only by the last step, or after the last read of that operand."""
    dtypes: dict[Expr, Any] = {}
    last: dict[Expr, int] = {}
    for node in topological(expr):
        if node.fn == "var":
            dtypes[node] = of[node.name]
        elif node.fn == "const":
            dtypes[node] = node.value
        else:
            dtypes[node] = node_dtype(node, [dtypes[a] for a in node.args])
    for node in nodes:
        # A function of literals is weak like a literal, but its register is not.
        if not isinstance(dtypes[node], np.dtype):
            dtypes[node] = np.result_type(dtypes[expr], dtypes[node])
    for i, node in enumerate(nodes):
        for a in node.args:
            last[a] = i
    names: dict[Expr, str] = {}
    space: dict[str, Any] = {}
    temps: list[np.dtype[Any]] = []
    free: list[str] = []
    register_dtype: dict[str, np.dtype[Any]] = {"out": dtypes[expr]}
    first = {n for n in last if n.fn == "var" and n.name == args[0]}
    out_from = max((last[n] for n in first), default=-1) if aliased else -1
    if not aliased:
        free.append("out")
    lines: list[str] = []
    moved = ""
    for i, node in enumerate(nodes):
        if aliased and i == out_from + 1 and i < len(nodes) - 1:
            free.append("out")
        fn, may_alias = FUNCTIONS[node.fn]
        fn = on_integers(fn, [dtypes[a] for a in node.args], dtypes[node])
        space[f"f_{i}"] = fn
        dying = [a for a in dict.fromkeys(node.args) if last[a] == i and a in names]
        if may_alias:
            free.extend(names[a] for a in dying)
        if node is expr and aliased and not may_alias and first & set(node.args):
            # The function reads its operands again after its first write.
            target = _take(free, register_dtype, temps, dtypes[node], "out")
            moved = f"copyto(out, {target})"
        elif node is expr:
            target = "out"
            if not may_alias and any(names.get(a) == "out" for a in node.args):
                # The last step reads `out` as a register: move that value aside.
                held = next(a for a in node.args if names.get(a) == "out")
                spare = _take(free, register_dtype, temps, dtypes[held], "out")
                lines.append(f"copyto({spare}, out)")
                names[held] = spare
        else:
            target = _take(free, register_dtype, temps, dtypes[node], None)
        if not may_alias:
            free.extend(names[a] for a in dying)
        operands = [_operand(a, node, names, dtypes, space) for a in node.args]
        lines.append(f"f_{i}({', '.join(operands)}, {target})")
        names[node] = target
    if moved:
        lines.append(moved)
    params = ", ".join([*(f"a_{a}" for a in args), "out"])
    registers = "".join(f", t{k}" for k in range(len(temps)))
    source = [f"def body({params}{registers}):", *("    " + line for line in lines)]
    space["copyto"] = np.copyto
    exec("\n".join(source), space)
    space["body"].written = (params, lines)  # `_fitted` writes it out again
    return space["body"], temps, dtypes[expr]


def _take(
    free: list[str],
    register_dtype: dict[str, np.dtype[Any]],
    temps: list[np.dtype[Any]],
    dtype: np.dtype[Any],
    avoid: str | None,
) -> str:
    for name in reversed(free):
        if register_dtype[name] == dtype and name != avoid:
            free.remove(name)
            return name
    name = f"t{len(temps)}"
    temps.append(dtype)
    register_dtype[name] = dtype
    return name


def _operand(
    a: Expr,
    node: Expr,
    names: dict[Expr, str],
    dtypes: dict[Expr, Any],
    space: dict[str, Any],
) -> str:
    if a.fn == "var":
        return f"a_{a.name}"
    if a.fn != "const":
        return names[a]
    others = [dtypes[o] for o in node.args if o.fn != "const"]
    if node.fn == "select":
        others = [dtypes[node]]
    dtype = np.result_type(*others, a.value) if others else np.result_type(a.value)
    if node.kind == "r" and dtype.kind in "iub":
        dtype = np.result_type(dtype, dtypes[node])
    name = f"c{len(space)}"
    # A 0-d array of the right dtype saves NumPy the conversion of a Python number.
    space[name] = np.asarray(a.value, dtype=dtype)
    return name


def _blocked(
    body: Run,
    temps: tuple[np.dtype[Any], ...],
    masks: int,
    large: Callable[..., bool] | None,
) -> Run:
    """`body` over blocks of large operands; at once if it takes nothing else."""
    whole = not temps and not masks

    def run(*operands: Array) -> None:
        out = operands[-1]
        size, shape = out.size, out.shape
        if all(
            (a.flags.c_contiguous and a.shape == shape) or a.size == 1 for a in operands
        ):
            if whole and all(a.size == size for a in operands):
                body(*operands)
                return
            if large is not None and large(*operands):
                return
            flat = [a.reshape(-1) for a in operands]
            scratch = [np.empty(BLOCK, t) for t in temps]
            for at in range(0, size, BLOCK):
                end = min(at + BLOCK, size)
                parts = [a[at:end] if a.size != 1 else a for a in flat]
                body(*parts, *[s[: end - at] for s in scratch])
            return
        rows = max(1, BLOCK // (size // shape[0]))
        scratch = [np.empty((rows, *shape[1:]), t) for t in temps]
        for at in range(0, shape[0], rows):
            end = min(at + rows, shape[0])
            parts = [
                a[at:end] if a.ndim == len(shape) and a.shape[0] != 1 else a
                for a in operands
            ]
            body(*parts, *[s[: end - at] for s in scratch])

    return run
