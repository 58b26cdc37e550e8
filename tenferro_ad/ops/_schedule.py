"""How an einsum is computed: which pairs are contracted, and how results lie in memory.

A path names, step by step, positions of operands that are contracted and whose result
goes to the end (the convention of opt_einsum). `schedule_of` turns it into nodes: the
operands, then one result for each pair.

The order of a result's axes is free, and decides what must be moved. A product of
matrices gives axes of one side, then those of the other; within that, axes that the
next pair treats alike (shared, kept, summed) stand together, in the order that the
result of that pair has them in. So an array that is moved at all is moved in few large
blocks, however many axes it has.

Source: D. Smith and J. Gray, "opt_einsum", JOSS 3 (2018), for paths.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from .._aval import real_dtype
from ..errors import InvalidArgumentError
from ._equations import (
    DType,
    Ready,
    Shape,
    canonical,
    made_ready,
    sizes_of,
    terms_of,
    wide,
)
from ._pairs import Layout, layout_of, merges

Path = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One pair: nodes `x` and `y` give node `out`.

    Attributes:
        equation: the pair, canonical; `back_x` that of the cotangent and y giving x's
            cotangent, `back_y` that of x and the cotangent giving y's.
        shape, dtype: of the result.
        layout: how the pair is multiplied.
    """

    x: int
    y: int
    out: int
    equation: str
    back_x: str
    back_y: str
    shape: Shape
    dtype: DType
    layout: Layout


@dataclass(frozen=True, slots=True)
class Schedule:
    """The nodes of an einsum.

    Attributes:
        ready: for each operand; `result` for the output, whose term may repeat symbols
            (the last node has each once, on the diagonals of zeros).
        symbols, dtypes: of each node. Operands have the dtype that they come in.
        steps: pairs, in order; the last one gives the output.
        sizes: length of each symbol.
        flops: multiplications; a pair has the product of the lengths of its symbols.
    """

    ready: tuple[Ready, ...]
    symbols: tuple[str, ...]
    dtypes: tuple[DType, ...]
    steps: tuple[Step, ...]
    result: Ready
    sizes: dict[str, int]
    flops: int

    def shape(self, symbols: str) -> Shape:
        return tuple([self.sizes[c] for c in symbols])

    def size(self, node: int) -> int:
        return math.prod(self.shape(self.symbols[node]))


@lru_cache(maxsize=1024)
def schedule_of(
    equation: str, path: Path, shapes: tuple[Shape, ...], dtypes: tuple[DType, ...]
) -> Schedule:
    """The schedule of an einsum.

    Raises:
        ShapeError: lengths disagree. InvalidArgumentError: the path does not fit.
    """
    terms, out = terms_of(equation)
    sizes = sizes_of("einsum", terms, shapes)
    ready = made_ready(terms, out, shapes, sizes)
    (result,) = made_ready((out,), out, (tuple([sizes[c] for c in out]),), sizes)
    out = result.symbols
    pairs = pairs_of(path, len(terms))
    sets, flops = _contents([r.symbols for r in ready], out, pairs, sizes)
    symbols = _ordered([r.symbols for r in ready], out, pairs, sets, sizes)
    dtype = wide(np.result_type(*dtypes))
    nodes = list(dtypes)
    steps = []
    for number, (x, y) in enumerate(pairs, len(terms)):
        complex_ = "c" in nodes[x].kind + nodes[y].kind
        nodes.append(dtype if complex_ else real_dtype(dtype))
        a, b, z = symbols[x], symbols[y], symbols[number]
        forms = canonical(a, b, z), canonical(z, b, a), canonical(a, z, b)
        one, two, shape = (tuple([sizes[c] for c in t]) for t in (a, b, z))
        layout = layout_of(forms[0], one, two)
        steps.append(Step(x, y, number, *forms, shape, nodes[-1], layout))
    return Schedule(
        ready, tuple(symbols), tuple(nodes), tuple(steps), result, sizes, flops
    )


def pairs_of(path: Path, count: int) -> list[tuple[int, int]]:
    """The path as pairs of nodes; steps of more than two operands go from the left.

    Raises:
        InvalidArgumentError: positions that do not exist, or operands are left.
    """
    nodes = list(range(count))
    total, pairs = count, []
    for number, step in enumerate(path):
        if len(set(step)) != len(step) or not all(0 <= k < len(nodes) for k in step):
            raise InvalidArgumentError(
                operation="einsum",
                argument="optimize",
                found=f"step {number}, {step}, with {len(nodes)} operands left",
                fix="name different positions of operands that are left",
            )
        taken = [nodes[k] for k in sorted(step)]
        for k in sorted(step, reverse=True):
            del nodes[k]
        while len(taken) > 1:
            pairs.append((taken[0], taken[1]))
            taken[:2] = [total]
            total += 1
        nodes += taken
    if len(nodes) != 1:
        raise InvalidArgumentError(
            operation="einsum",
            argument="optimize",
            found=f"a path of {len(path)} steps that leaves {len(nodes)} operands",
            fix="contract until one is left",
        )
    return pairs


def _contents(
    operands: list[str], out: str, pairs: list[tuple[int, int]], sizes: dict[str, int]
) -> tuple[list[frozenset[str]], int]:
    """The symbols of each node, in no order, and the multiplications of all pairs."""
    uses = dict.fromkeys(sizes, 0)
    for term in (*operands, out):
        for c in term:
            uses[c] += 1
    sets = [frozenset(term) for term in operands]
    flops = 0
    for x, y in pairs:
        a, b = sets[x], sets[y]
        for c in (*a, *b):
            uses[c] -= 1
        z = frozenset(c for c in a | b if uses[c])
        for c in z:
            uses[c] += 1
        sets.append(z)
        flops += math.prod([sizes[c] for c in a | b])
    return sets, flops


# ---- orders of axes ------------------------------------------------------------------


def _ordered(
    operands: list[str],
    out: str,
    pairs: list[tuple[int, int]],
    sets: list[frozenset[str]],
    sizes: dict[str, int],
) -> list[str]:
    """The symbols of each node in the order of its axes, from the output down."""
    first = len(operands)
    orders: list[str] = [*operands, *([""] * len(pairs))]
    if pairs:
        orders[-1] = out
    sides = {first + k: pair for k, pair in enumerate(pairs)}
    for node in range(len(orders) - 1, first - 1, -1):
        x, y = sides[node]
        z = orders[node]
        summed = _summed(x, y, sets[node], sets, sides, orders)
        for child in (x, y):
            if child >= first:
                kept = [c for c in z if c in sets[child]]
                other = sets[y if child == x else x]
                made_of = sets[sides[child][0]], sets[sides[child][1]]
                tail = _tail([orders[k] for k in sides[child]], sets[child], sizes)
                orders[child] = _order(kept, summed, other, *made_of, tail, sizes)
    return orders


def _summed(
    x: int,
    y: int,
    kept: frozenset[str],
    sets: list[frozenset[str]],
    sides: dict[int, tuple[int, int]],
    orders: list[str],
) -> list[str]:
    """The order of the symbols that a pair sums: that of an operand, else together what
    comes from one side of either."""
    found = (sets[x] & sets[y]) - kept
    for node in (x, y):
        if node not in sides:
            return [c for c in orders[node] if c in found]
    (a, _), (b, _) = sides[x], sides[y]
    return sorted(found, key=lambda c: (c in sets[a], c in sets[b], c))


def _tail(sides: list[str], kept: frozenset[str], sizes: dict[str, int]) -> str:
    """The kept symbol that varies fastest in the largest operand, if any: BLAS is twice
    as fast with long thin results if it varies fastest in the result too."""
    found, most = "", 0
    for term in sides:  # orders of results are not known yet
        real = [c for c in term if sizes[c] != 1]
        count = math.prod([sizes[c] for c in real])
        if real and real[-1] in kept and count > most:
            found, most = real[-1], count
    return found


def _order(
    kept: list[str],
    summed: list[str],
    other: frozenset[str],
    x: frozenset[str],
    y: frozenset[str],
    tail: str,
    sizes: dict[str, int],
) -> str:
    """The order of a result's axes, given what the next pair does with them.

    Args:
        kept: symbols that the next result has, in its order; `other` of them are shared
            with the next pair's other side.
        summed: symbols that the next pair sums.
        x, y: the sides that the result is made of.
        tail: the symbol that had better be among those of the last side.
    """
    shared = [c for c in kept if c in other]
    rows = [c for c in kept if c not in other]
    wanted = [*shared, *rows, *summed]
    both = [c for c in wanted if c in x and c in y]
    left = [c for c in wanted if c in x and c not in y]
    right = [c for c in wanted if c in y and c not in x]
    for candidate in _stackings(both, left, right, turned=tail in left):
        if merges(candidate, _as_in(candidate, rows), _as_in(candidate, summed), sizes):
            return candidate
    # It is moved: with the longest runs that its two sides allow.
    ends = [c in shared for c in (*left[-1:], *right[-1:])]
    return next(_stackings(both, left, right, turned=ends == [False, True]))


def _as_in(term: str, group: Iterable[str]) -> list[str]:
    return [c for c in term if c in group]


def _stackings(
    both: list[str], left: list[str], right: list[str], *, turned: bool = False
) -> Iterator[str]:
    """Orders that a product of stacks of matrices can write."""
    sides = [(left, right), (right, left)]
    for one, two in reversed(sides) if turned else sides:
        yield "".join([*both, *one, *two])
    if both:
        yield "".join([*left, *both, *right])
        yield "".join([*right, *both, *left])
